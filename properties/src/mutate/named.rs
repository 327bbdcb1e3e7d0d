//! Wrong kernels from source: the edits of `kernels/cuda/mutants.tsv`, and any file a person supplies in
//! a kernel's place. Compiled by NVRTC in a copy of the sources, so that nothing outside the project's
//! own folders can be included and nothing in the checkout changes.

use kernels::compile::{Compiler, Installation};
use kernels::ptx::sources;
use std::fmt;
use std::path::{Component, Path};

/// The table of edits, under the sources.
const FILE: &str = "mutants.tsv";

/// A wrong kernel, compiled.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its id in the contract, or the file it came from.
    pub id: String,
    /// Clause, or beginning of one, that the contract says kills it.
    pub killed_by: Option<String>,
    /// The module it stands for.
    pub module: String,
    /// Its PTX.
    pub ptx: String,
}

/// Why a wrong kernel could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotMake {
    /// The mutant.
    pub id: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for CannotMake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mutant {}: {}", self.id, self.what)
    }
}

impl std::error::Error for CannotMake {}

/// One line of the table.
struct Edit {
    id: String,
    file: String,
    stands: String,
    instead: String,
}

/// Compiles every named mutant of a contract.
///
/// # Errors
/// When an edit does not apply exactly once or does not compile: the contract then promises what
/// nothing checks.
pub fn of_contract(
    installation: &Installation,
    root: &Path,
    subject: &crate::subject::Subject,
) -> Result<Vec<Named>, CannotMake> {
    let contract = subject.name();
    let table = table(root, contract)?;
    let edits = table.lines().filter_map(|line| edit_of(line, contract));
    edits.map(|edit| made(installation, root, subject, &edit)).collect()
}

/// Compiles one named mutant of a contract.
///
/// # Errors
/// As [`of_contract`], and when there is none of this name.
pub fn of_mutant(
    installation: &Installation,
    root: &Path,
    subject: &crate::subject::Subject,
    mutant: &str,
) -> Result<Named, CannotMake> {
    made(installation, root, subject, &edit_named(root, subject.name(), mutant)?)
}

/// The hash of a contract's source and its headers with a mutant's edit: the one in the first line of
/// the mutant's PTX.
///
/// # Errors
/// When there is no such mutant, or its edit does not apply exactly once.
pub fn source_hash(root: &Path, contract: &str, mutant: &str) -> Result<String, CannotMake> {
    let edit = edit_named(root, contract, mutant)?;
    let failed = |what: String| CannotMake { id: format!("{contract}.{mutant}"), what };
    let (source, changed) = edited(root, contract, &edit)?;
    let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    copy(root, folder.path()).map_err(|error| failed(format!("copying the sources: {error}")))?;
    std::fs::write(folder.path().join(&edit.file), changed)
        .map_err(|error| failed(error.to_string()))?;
    let text = sources::read(folder.path(), &source).map_err(|error| failed(error.to_string()))?;
    sources::hash(folder.path(), &source, &text).map_err(|error| failed(error.to_string()))
}

fn table(root: &Path, contract: &str) -> Result<String, CannotMake> {
    std::fs::read_to_string(root.join(FILE)).map_err(|error| CannotMake {
        id: format!("{contract}.*"),
        what: format!("kernels/cuda/{FILE}: {error}"),
    })
}

fn edit_named(root: &Path, contract: &str, mutant: &str) -> Result<Edit, CannotMake> {
    let table = table(root, contract)?;
    let mut edits = table.lines().filter_map(|line| edit_of(line, contract));
    edits.find(|edit| edit.id == mutant).ok_or_else(|| CannotMake {
        id: format!("{contract}.{mutant}"),
        what: format!("kernels/cuda/{FILE} has no such line"),
    })
}

/// The source file to compile, and the text of the edited file: an edited `.cu` is itself compiled, for a
/// variant may have a module of its own, and for an edited header the contract's.
fn edited(root: &Path, contract: &str, edit: &Edit) -> Result<(String, String), CannotMake> {
    let failed = |what: String| CannotMake { id: format!("{contract}.{}", edit.id), what };
    let source = if edit.file.ends_with(".cu") {
        edit.file.clone()
    } else {
        sources::find(root, contract).map_err(|e| failed(e.to_string()))?
    };
    let text = sources::read(root, &edit.file).map_err(|e| failed(e.to_string()))?;
    let places = text.matches(&edit.stands).count();
    if places != 1 {
        return Err(failed(format!(
            "`{}` stands {places} times in {}; mend the edit in kernels/cuda/{FILE}",
            edit.stands, edit.file
        )));
    }
    Ok((source, text.replacen(&edit.stands, &edit.instead, 1)))
}

fn made(
    installation: &Installation,
    root: &Path,
    subject: &crate::subject::Subject,
    edit: &Edit,
) -> Result<Named, CannotMake> {
    let contract = subject.name();
    let (source, changed) = edited(root, contract, edit)?;
    let ptx = compile_with(installation, root, &source, &[(&edit.file, &changed)])
        .map_err(|what| CannotMake { id: format!("{contract}.{}", edit.id), what })?;
    let killed_by = subject.contract.mutants.get(&edit.id).map(|mutant| mutant.killed_by.clone());
    let module = Path::new(&source).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Named { id: edit.id.clone(), killed_by, module, ptx })
}

fn edit_of(line: &str, contract: &str) -> Option<Edit> {
    let fields: Vec<String> = line.split('\t').map(|one| one.replace("\\n", "\n")).collect();
    match <[String; 5]>::try_from(fields) {
        Ok([of, id, file, stands, instead]) if of == contract => {
            Some(Edit { id, file, stands, instead })
        }
        _ => None,
    }
}

/// Compiles a file a person supplies in the place of a contract's source.
///
/// # Errors
/// When it cannot be read, includes what is not the project's or the toolkit's, or does not compile.
pub fn of_file(
    installation: &Installation,
    root: &Path,
    contract: &str,
    path: &Path,
) -> Result<Named, CannotMake> {
    let id = path.display().to_string();
    let failed = |what: String| CannotMake { id: id.clone(), what };
    let about = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if !about.is_file() || about.len() > 16 << 20 {
        return Err(failed("it is no regular file of at most 16 MiB".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let text = text.replace("\r\n", "\n");
    confined(&text).map_err(failed)?;
    let source = sources::find(root, contract).map_err(|error| failed(error.to_string()))?;
    let ptx = compile_with(installation, root, &source, &[(&source, &text)]).map_err(failed)?;
    Ok(Named { id, killed_by: None, module: contract.to_owned(), ptx })
}

/// Refuses includes that lead out of the folders the compiler is given.
fn confined(text: &str) -> Result<(), String> {
    // A backslash continues a line and a macro can name a file: neither is needed to include one.
    let joined = text.replace("\\\n", "");
    for line in joined.lines() {
        let line = line.trim_start();
        let directive = line
            .strip_prefix('#')
            .or_else(|| line.strip_prefix("%:"))
            .or_else(|| line.strip_prefix("??="));
        let Some(directive) = directive.map(str::trim_start) else { continue };
        if !directive.starts_with("include") {
            continue;
        }
        let named =
            directive.trim_start_matches("include_next").trim_start_matches("include").trim();
        let inner = named
            .strip_prefix('"')
            .and_then(|rest| rest.split('"').next())
            .or_else(|| named.strip_prefix('<').and_then(|rest| rest.split('>').next()));
        let is_inside = |name: &&str| {
            let parts = Path::new(name).components();
            let mut parts = parts.filter(|part| *part != Component::CurDir);
            parts.all(|part| matches!(part, Component::Normal(_)))
        };
        if inner.filter(is_inside).is_none() {
            return Err(format!(
                "`{line}` leads out of the project's folders; include by a plain name, from \
                 kernels/cuda/include or the kernel's own folder"
            ));
        }
    }
    if joined.contains("__has_include")
        || joined.contains("__has_embed")
        || joined.contains("#embed")
    {
        return Err("it asks about other files; leave __has_include and #embed out".to_owned());
    }
    Ok(())
}

/// Compiles `source` in a copy of the sources with these files' texts replaced.
fn compile_with(
    installation: &Installation,
    root: &Path,
    source: &str,
    replaced: &[(&str, &str)],
) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    copy(root, folder.path()).map_err(|error| format!("copying the sources: {error}"))?;
    for (file, text) in replaced {
        std::fs::write(folder.path().join(file), text).map_err(|error| error.to_string())?;
    }
    let compiler = Compiler::open(installation.clone(), folder.path().to_owned())
        .map_err(|error| error.to_string())?;
    let text = sources::read(folder.path(), source).map_err(|error| error.to_string())?;
    let compiled = compiler.compile_source(&text, source).map_err(|error| error.to_string())?;
    Ok(compiled.ptx)
}

/// Copies the sources: two levels, files only.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_stay_inside() {
        for good in
            ["#include \"element.cuh\"", "#include <cuda_fp16.h>", "int x;  // #include <a>"]
        {
            assert_eq!(confined(good), Ok(()), "{good}");
        }
        for bad in [
            "#include \"/etc/passwd\"",
            "#include \"../../secret.h\"",
            "# include <../x>",
            "#include NAME",
            "#inc\\\nlude \"/etc/passwd\"",
            "%:include \"/etc/passwd\"",
            "#if __has_include(\"/etc/passwd\")",
        ] {
            assert!(confined(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_edit_has_five_fields_and_a_contract() {
        let edit = edit_of("k\tid\tf/k.cu\ta\\nb\tc", "k").expect("an edit");
        assert_eq!((edit.stands.as_str(), edit.instead.as_str()), ("a\nb", "c"));
        assert!(edit_of("k\tid\tf/k.cu\ta\tb", "other").is_none());
        assert!(edit_of("# k\tid", "k").is_none());
    }
}
