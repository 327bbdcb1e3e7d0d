//! The PTX that ships: embedded at build time, one module a kernel, checked against its sources
//! wherever those are at hand. A stale module is an error that names the files and the cure; the
//! build never depends on freshness, so the cure always builds.
//!
//! `ASSAY_PTX_DIR=FOLDER` loads `FOLDER/<stem>.ptx` instead of the embedded text, for trying a
//! changed kernel without a rebuild; the same check applies.

pub mod sources;

use crate::compile;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The environment variable that replaces the embedded PTX by a folder of files.
pub const PTX_DIR_VARIABLE: &str = "ASSAY_PTX_DIR";

/// Largest PTX file read in place of an embedded one.
const MOST_BYTES: u64 = 64 << 20;

/// The command that makes PTX anew.
pub const COMPILE_COMMAND: &str = "cargo run --release -- compile";

/// (stem, text) of every generated file, by stem.
static EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/ptx_table.rs"));

/// The first line of a generated file: where it came from and how it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// SHA-256, in hex, of the sources: see [`sources::hash`].
    pub source: String,
    /// Full version of NVRTC, such as `13.0.88`.
    pub compiler: String,
    /// Virtual architecture, such as `compute_80`.
    pub target: String,
    /// Compiler flags, in order.
    pub flags: Vec<String>,
}

/// Why a module's PTX cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PtxError {
    /// The kernel was never compiled.
    Missing {
        /// The module's stem.
        stem: String,
    },
    /// The first line is no header of this project.
    Header {
        /// The PTX file.
        ptx: String,
        /// The line that was found.
        line: String,
    },
    /// The sources or the flags changed after the PTX was made.
    Stale {
        /// The PTX file.
        ptx: String,
        /// The CUDA source.
        source: String,
        /// What changed.
        change: &'static str,
    },
    /// No `.cu` has this stem.
    NoSource {
        /// The module's stem.
        stem: String,
        /// The folder searched.
        root: String,
    },
    /// Two sources would make one PTX file.
    TwoSources {
        /// One source.
        first: String,
        /// The other.
        second: String,
    },
    /// A file cannot be read.
    Read {
        /// The file.
        path: String,
        /// The operating system's words.
        error: String,
    },
    /// A file that `ASSAY_PTX_DIR` puts in place of an embedded one cannot be read.
    Replacement {
        /// The file.
        path: String,
        /// What is wrong with it.
        error: String,
    },
    /// The machine's parser refuses the text.
    Parse {
        /// The PTX file.
        ptx: String,
        /// The parser's words, with the line.
        error: String,
    },
}

/// Where a module's text lies, for messages.
fn ptx_name(stem: &str, folder: Option<&Path>) -> String {
    match folder {
        Some(folder) => folder.join(format!("{stem}.ptx")).display().to_string(),
        None => format!("kernels/ptx/{stem}.ptx"),
    }
}

fn override_folder() -> Option<PathBuf> {
    std::env::var_os(PTX_DIR_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// A module that was found and is fresh. Never dropped: there is one a kernel.
struct Loaded {
    text: &'static str,
    /// Where the text lies, for messages.
    name: String,
    module: OnceLock<Result<ptx_vm::Module, PtxError>>,
}

fn loaded(stem: &str) -> Result<&'static Loaded, PtxError> {
    static CACHE: Mutex<BTreeMap<String, Result<&'static Loaded, PtxError>>> =
        Mutex::new(BTreeMap::new());
    // A panic elsewhere cannot leave the map half-changed.
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = cache.get(stem) {
        return known.clone();
    }
    let folder = override_folder();
    let result = load(stem, folder.as_deref(), sources::checkout_root().as_deref()).map(|text| {
        let name = ptx_name(stem, folder.as_deref());
        &*Box::leak(Box::new(Loaded { text, name, module: OnceLock::new() }))
    });
    cache.insert(stem.to_owned(), result.clone());
    result
}

/// The module's text from `folder`, else the embedded one, held against the sources under `root`.
fn load(stem: &str, folder: Option<&Path>, root: Option<&Path>) -> Result<&'static str, PtxError> {
    let name = ptx_name(stem, folder);
    let text: &'static str = match folder {
        Some(_) => match read_replacement(Path::new(&name)) {
            Ok(text) => Box::leak(text.into_boxed_str()),
            Err(error) => {
                return Err(PtxError::Replacement { path: name, error: error.to_string() });
            }
        },
        None => embedded(stem).ok_or_else(|| PtxError::Missing { stem: stem.to_owned() })?,
    };
    match root {
        Some(root) => check_text(root, stem, &name, text)?,
        // Without sources only the header can be checked.
        None => drop(Header::of(text, &name)?),
    }
    Ok(text)
}

/// A file's text, refused before it is opened when it is none: a pipe would wait for its other end.
fn read_replacement(path: &Path) -> io::Result<String> {
    let refused = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        return refused("it is no regular file".to_owned());
    }
    if about.len() > MOST_BYTES {
        return refused(format!("its {} bytes are more than {MOST_BYTES}", about.len()));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// The embedded text of a module, unchecked.
pub fn embedded(stem: &str) -> Option<&'static str> {
    EMBEDDED.iter().find(|(name, _)| *name == stem).map(|(_, text)| *text)
}

/// The stems of all embedded modules.
pub fn stems() -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().map(|(stem, _)| *stem)
}

/// The text of a module, header included, once it is known to be fresh. Checked once a process.
pub fn module_text(stem: &str) -> Result<&'static str, PtxError> {
    loaded(stem).map(|loaded| loaded.text)
}

/// The module as the virtual machine runs it. Parsed once a process.
pub fn module(stem: &str) -> Result<&'static ptx_vm::Module, PtxError> {
    let loaded = loaded(stem)?;
    let parsed = loaded.module.get_or_init(|| parse(loaded.text, &loaded.name));
    parsed.as_ref().map_err(Clone::clone)
}

/// Parses PTX; `ptx` names it in the error.
pub fn parse(text: &str, ptx: &str) -> Result<ptx_vm::Module, PtxError> {
    ptx_vm::Module::parse(text)
        .map_err(|error| PtxError::Parse { ptx: ptx.to_owned(), error: error.to_string() })
}

/// Checks that a module exists and fits its sources, where they are at hand.
pub fn check_fresh(stem: &str) -> Result<(), PtxError> {
    loaded(stem).map(drop)
}

/// Checks `text`, called `ptx` in errors, against the sources of `stem` under `root`.
pub fn check_text(root: &Path, stem: &str, ptx: &str, text: &str) -> Result<(), PtxError> {
    let header = Header::of(text, ptx)?;
    let source = sources::find(root, stem)?;
    let stale = |change| {
        let source = format!("kernels/cuda/{source}");
        Err(PtxError::Stale { ptx: ptx.to_owned(), source, change })
    };
    if header.source != sources::hash(root, &source, &sources::read(root, &source)?)? {
        return stale("the source or a header it includes");
    }
    if header.target != compile::target(stem) || header.flags != compile::FLAGS {
        return stale("the compiler's target or flags");
    }
    Ok(())
}

const HEADER_MAGIC: &str = "// assay-ptx 1 ";

impl Header {
    /// Reads the first line of `text`; `ptx` names the file in the error.
    pub fn of(text: &str, ptx: &str) -> Result<Header, PtxError> {
        let line = text.lines().next().unwrap_or("");
        Header::parse(line).ok_or_else(|| PtxError::Header {
            ptx: ptx.to_owned(),
            line: line.chars().take(120).collect(),
        })
    }

    fn parse(line: &str) -> Option<Header> {
        let mut words = line.strip_prefix(HEADER_MAGIC)?.split(' ');
        let mut field = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
        let header = Header {
            source: field("source")?.to_owned(),
            compiler: field("compiler")?.to_owned(),
            target: field("target")?.to_owned(),
            flags: field("flags")?.split(',').map(str::to_owned).collect(),
        };
        words.next().is_none().then_some(header)
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Header { source, compiler, target, flags } = self;
        write!(
            f,
            "{HEADER_MAGIC}source={source} compiler={compiler} target={target} flags={}",
            flags.join(",")
        )
    }
}

impl fmt::Display for PtxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PtxError::Missing { stem } => write!(
                f,
                "kernels/ptx/{stem}.ptx does not exist: kernel `{stem}` was never compiled; run `{COMPILE_COMMAND}`"
            ),
            PtxError::Header { ptx, line } => {
                write!(
                    f,
                    "{ptx} does not begin with this project's header but with `{line}`; run `{COMPILE_COMMAND}`"
                )
            }
            PtxError::Stale { ptx, source, change } => {
                write!(
                    f,
                    "{ptx} is stale: {change} changed since it was made from {source}; run `{COMPILE_COMMAND}`"
                )
            }
            PtxError::NoSource { stem, root } => {
                write!(f, "no `{stem}.cu` in a family folder of {root}")
            }
            PtxError::TwoSources { first, second } => {
                write!(f, "{first} and {second} would both make one PTX file; rename one")
            }
            PtxError::Read { path, error } => write!(f, "cannot read {path}: {error}"),
            PtxError::Replacement { path, error } => write!(
                f,
                "cannot read {path}: {error}; {PTX_DIR_VARIABLE} names the folder it is looked for in: \
                 compile into that folder, or unset the variable"
            ),
            PtxError::Parse { ptx, error } => write!(f, "{ptx} cannot be parsed: {error}"),
        }
    }
}

impl std::error::Error for PtxError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn header(source: &str) -> Header {
        Header {
            source: source.to_owned(),
            compiler: "13.0.88".to_owned(),
            target: compile::TARGET.to_owned(),
            flags: compile::FLAGS.iter().map(|&flag| flag.to_owned()).collect(),
        }
    }

    #[test]
    fn a_header_reads_back() {
        let header = header("00ff");
        let text = format!("{header}\n.version 9.0\n");
        assert_eq!(Header::of(&text, "k.ptx"), Ok(header));
    }

    #[test]
    fn a_strange_first_line_is_refused() {
        let good = header("00ff").to_string();
        for line in [
            String::new(),
            "//".to_owned(),
            good.replace("assay-ptx 1", "assay-ptx 2"),
            good.replace("source=", "origin="),
            format!("{good} more=1"),
            good.split(" flags").next().expect("a part").to_owned(),
        ] {
            let error = Header::of(&line, "k.ptx").expect_err(&line);
            assert!(error.to_string().contains("k.ptx"), "{error}");
        }
    }

    #[test]
    fn changed_sources_make_the_text_stale() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let family = root.path().join("f");
        fs::create_dir(&family).expect("a folder");
        fs::write(family.join("k.cu"), "void k();\n").expect("a file");
        let hash = sources::hash(root.path(), "f/k.cu", "void k();\n").expect("a hash");
        let text = header(&hash).to_string();
        assert_eq!(check_text(root.path(), "k", "k.ptx", &text), Ok(()));

        let other_flags = text.replace("-ftz=false", "-ftz=true");
        assert_ne!(other_flags, text);
        let error = check_text(root.path(), "k", "k.ptx", &other_flags).expect_err("other flags");
        assert!(error.to_string().contains("flags"), "{error}");

        fs::write(family.join("k.cu"), "void l();\n").expect("a file");
        let error =
            check_text(root.path(), "k", "k.ptx", &text).expect_err("a stale text").to_string();
        for part in ["k.ptx", "kernels/cuda/f/k.cu", COMPILE_COMMAND] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_folder_replaces_the_embedded_text_and_is_checked_too() {
        let root = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(root.path().join("f")).expect("a folder");
        fs::write(root.path().join("f/k.cu"), "void k();\n").expect("a file");
        let hash = sources::hash(root.path(), "f/k.cu", "void k();\n").expect("a hash");
        let text = header(&hash).to_string();
        let (folder, root) = (Some(root.path()), Some(root.path()));
        let file = folder.expect("a folder").join("k.ptx");
        let missing = load("k", folder, root).expect_err("no file yet").to_string();
        assert!(missing.contains("k.ptx") && missing.contains(PTX_DIR_VARIABLE), "{missing}");
        fs::create_dir(&file).expect("a folder in the file's place");
        let odd = load("k", folder, root).expect_err("no file").to_string();
        assert!(odd.contains("no regular file") && odd.contains(PTX_DIR_VARIABLE), "{odd}");
        fs::remove_dir(&file).expect("removed");
        fs::write(&file, &text).expect("a file");
        assert_eq!(load("k", folder, root), Ok(text.as_str()));
        fs::write(&file, header("00").to_string()).expect("a file");
        assert!(matches!(load("k", folder, root), Err(PtxError::Stale { .. })));
        assert!(load("k", folder, None).is_ok(), "without sources the header is enough");
        fs::write(&file, ".version 9.0").expect("a file");
        assert!(matches!(load("k", folder, None), Err(PtxError::Header { .. })));
    }

    #[test]
    fn an_unknown_module_names_the_command() {
        let error = module_text("no_such_kernel").expect_err("no such module").to_string();
        assert!(error.contains("no_such_kernel.ptx") && error.contains(COMPILE_COMMAND), "{error}");
    }

    #[test]
    fn every_kernel_of_the_registry_has_fresh_ptx_that_parses() {
        let kernels = crate::registry::KERNELS.iter().chain([&crate::registry::CANARY]);
        // A variant may have a module of its own.
        for stem in kernels.map(|kernel| kernel.name).chain(stems()) {
            if let Err(error) = module(stem) {
                panic!("{error}");
            }
        }
    }
}
