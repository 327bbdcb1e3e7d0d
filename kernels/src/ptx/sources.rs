//! The CUDA sources of a PTX module and their one hash: the `.cu` and every project header it
//! includes, directly or not, with `\n` line ends. Toolkit headers are pinned by the compiler's
//! version instead.

use super::PtxError;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// The folder of project headers, inside the source root.
pub const INCLUDE: &str = "include";

/// The checkout's `kernels/cuda`, if it is at hand; on a machine that only has the binary it is not.
pub fn checkout_root() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda");
    root.is_dir().then_some(root)
}

/// Every `<family>/<stem>.cu` under `root`, as (stem, path relative to `root`), by stem.
/// Two files of one stem are an error, for the stem names the PTX file.
pub fn kernels(root: &Path) -> Result<BTreeMap<String, String>, PtxError> {
    let mut found = BTreeMap::new();
    for family in sorted_entries(root)? {
        if !family.is_dir() || family.ends_with(INCLUDE) {
            continue;
        }
        for file in sorted_entries(&family)? {
            if file.extension().is_none_or(|extension| extension != "cu") {
                continue;
            }
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let relative = relative_name(&file, root);
            if let Some(other) = found.insert(stem, relative.clone()) {
                return Err(PtxError::TwoSources { first: other, second: relative });
            }
        }
    }
    Ok(found)
}

/// The name under `root` of the `.cu` with this stem.
pub fn find(root: &Path, stem: &str) -> Result<String, PtxError> {
    kernels(root)?.remove(stem).ok_or_else(|| PtxError::NoSource {
        stem: stem.to_owned(),
        root: root.display().to_string(),
    })
}

/// Reads a source below `root`, with `\n` line ends.
pub fn read(root: &Path, name: &str) -> Result<String, PtxError> {
    let path = root.join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.replace("\r\n", "\n")),
        Err(error) => Err(read_error(&path, &error)),
    }
}

/// SHA-256, in hex, of `text` as the source called `name` and of the project headers it includes.
pub fn hash(root: &Path, name: &str, text: &str) -> Result<String, PtxError> {
    let mut files = BTreeMap::new();
    let mut pending = vec![(name.to_owned(), text.replace("\r\n", "\n"))];
    while let Some((name, text)) = pending.pop() {
        for include in quoted_includes(&text) {
            // A quoted name that is no project header belongs to the toolkit.
            let Some(header) = resolve(root, &name, include) else { continue };
            if !files.contains_key(&header) && !pending.iter().any(|(other, _)| *other == header) {
                let text = read(root, &header)?;
                pending.push((header, text));
            }
        }
        files.insert(name, text);
    }
    let mut digest = Sha256::new();
    for (name, text) in &files {
        // Lengths keep the boundary between name and text unambiguous.
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A source and every project header it includes, directly or not, by what `text` says of a name under
/// the source root; for trees that are not on disk. A source that is not there has no files.
pub fn closure(name: &str, text: &dyn Fn(&str) -> Option<String>) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut pending = vec![name.to_owned()];
    while let Some(name) = pending.pop() {
        let Some(body) = text(&name).filter(|_| !files.contains(&name)) else { continue };
        pending.extend(quoted_includes(&body).filter_map(|include| {
            resolve_among(&name, include, &|candidate| text(candidate).is_some())
        }));
        files.insert(name);
    }
    files
}

/// The names of `#include` lines, quoted or in angle brackets; the latter may name a project header too.
fn quoted_includes(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let rest =
            line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let close = match rest.chars().next()? {
            '"' => '"',
            '<' => '>',
            _ => return None,
        };
        rest[1..].split(close).next()
    })
}

/// The file an include means: beside the includer, else in the project's include folder.
fn resolve(root: &Path, includer: &str, include: &str) -> Option<String> {
    resolve_among(includer, include, &|name| root.join(name).is_file())
}

fn resolve_among(includer: &str, include: &str, is_file: &dyn Fn(&str) -> bool) -> Option<String> {
    let beside = Path::new(includer).parent().unwrap_or(Path::new("")).join(include);
    [beside, Path::new(INCLUDE).join(include)]
        .iter()
        .filter_map(|path| normal_name(path))
        .find(|name| is_file(name))
}

/// A relative path without `.` and `..`; `None` when it leaves the root.
fn normal_name(path: &Path) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?.to_owned()),
            Component::CurDir => {}
            Component::ParentDir => drop(parts.pop()?),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// `path` below `root`, with `/` between its parts on every platform.
pub(crate) fn relative_name(path: &Path, root: &Path) -> String {
    let relative = path.strip_prefix(root).unwrap_or(path);
    relative
        .components()
        .map(|part| part.as_os_str().to_string_lossy())
        .collect::<Vec<_>>()
        .join("/")
}

fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>, PtxError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder)? {
            paths.push(entry?.path());
        }
        paths.sort();
        Ok(paths)
    };
    list().map_err(|error| read_error(folder, &error))
}

fn read_error(path: &Path, error: &io::Error) -> PtxError {
    PtxError::Read { path: path.display().to_string(), error: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        folder
    }

    const KERNEL: &str = "#include <cuda_bf16.h>\n# include \"a.cuh\"\nvoid k();\n";

    #[test]
    fn the_hash_follows_headers_of_headers() {
        let before = tree(&[
            ("f/k.cu", KERNEL),
            ("include/a.cuh", "#include \"b.cuh\"\n"),
            ("include/b.cuh", "int b;\n"),
            ("include/unused.cuh", "int u;\n"),
        ]);
        let of = |root: &Path| hash(root, "f/k.cu", KERNEL).expect("a hash");
        let first = of(before.path());
        assert_eq!(first.len(), 64);
        fs::write(before.path().join("include/unused.cuh"), "int other;\n").expect("a file");
        assert_eq!(of(before.path()), first, "a header nobody includes does not matter");
        fs::write(before.path().join("include/b.cuh"), "int b;\r\n").expect("a file");
        assert_eq!(of(before.path()), first, "line ends do not matter");
        fs::write(before.path().join("include/b.cuh"), "int c;\n").expect("a file");
        assert_ne!(of(before.path()), first);
    }

    #[test]
    fn includes_that_go_in_a_circle_end() {
        let root = tree(&[
            ("f/k.cu", KERNEL),
            ("include/a.cuh", "#include \"b.cuh\"\n"),
            ("include/b.cuh", "#include \"a.cuh\"\n"),
        ]);
        assert!(hash(root.path(), "f/k.cu", KERNEL).is_ok());
    }

    #[test]
    fn the_name_is_part_of_the_hash() {
        let root = tree(&[("f/k.cu", "x"), ("f/l.cu", "x")]);
        assert_ne!(hash(root.path(), "f/k.cu", "x"), hash(root.path(), "f/l.cu", "x"));
    }

    #[test]
    fn one_stem_names_one_source() {
        let root = tree(&[("f/k.cu", ""), ("g/l.cu", ""), ("include/k.cuh", "")]);
        let found = kernels(root.path()).expect("two kernels");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("k".to_owned(), "f/k.cu".to_owned()), ("l".to_owned(), "g/l.cu".to_owned()),]
        );
        fs::write(root.path().join("g/k.cu"), "").expect("a file");
        assert!(matches!(kernels(root.path()), Err(PtxError::TwoSources { .. })));
        assert!(matches!(find(root.path(), "absent"), Err(PtxError::TwoSources { .. })));
    }

    #[test]
    fn includes_cannot_leave_the_root() {
        assert_eq!(normal_name(Path::new("f/../include/a.cuh")).as_deref(), Some("include/a.cuh"));
        assert_eq!(normal_name(Path::new("../a.cuh")), None);
        assert_eq!(normal_name(Path::new("/a.cuh")), None);
    }
}
