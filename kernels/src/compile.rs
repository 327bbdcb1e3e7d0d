//! Compiles CUDA sources to the PTX that is checked in, with NVRTC and no GPU. One pinned compiler
//! and normalised text make the same bytes on every machine, so a difference means a changed source.
//! Files are replaced whole or not at all.

mod find;
mod normalise;
mod nvrtc;
pub mod resources;

pub use find::{Installation, NVRTC_VARIABLE};

use crate::ptx::{Header, PtxError, sources};
use normalise::Roots;
use nvrtc::Nvrtc;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The virtual architecture: every GPU from Ampere on runs it.
pub const TARGET: &str = "compute_80";

/// Modules written for one generation of GPUs, which others cannot run, say so by their stems' endings:
/// the ending and the virtual architecture.
const GENERATIONS: &[(&str, &str)] = &[("_hopper", "compute_90a")];

/// The virtual architecture that a module is compiled for.
pub fn target(stem: &str) -> &'static str {
    GENERATIONS.iter().find(|(ending, _)| stem.ends_with(ending)).map_or(TARGET, |(_, arch)| arch)
}

/// The compute capability that a module demands exactly; `None` where 8.0 and all later ones do.
pub fn only_on(stem: &str) -> Option<(i32, i32)> {
    let digits = target(stem).strip_prefix("compute_")?.strip_suffix('a')?;
    let (major, minor) = digits.split_at_checked(digits.len().checked_sub(1)?)?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The compile policy: source lines for reports, IEEE subnormals, divisions and square roots.
pub const FLAGS: &[&str] =
    &["-lineinfo", "-ftz=false", "-prec-div=true", "-prec-sqrt=true", "-std=c++17"];

/// The one compiler whose output is checked in.
pub const PINNED_COMPILER: &str = "13.0.88";

/// Names and hashes of the wheels that hold the pinned compiler and its headers.
pub const REQUIREMENTS: &str = ".ci/nvrtc-requirements.txt";

/// Why nothing was compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// No NVRTC in any of these places.
    NotFound {
        /// Folders, or the one path that was named.
        searched: Vec<String>,
    },
    /// NVRTC, or a function of it, cannot be opened.
    Library {
        /// The library.
        path: String,
        /// The loader's words.
        error: String,
    },
    /// Another compiler than the pinned one was about to make checked-in files.
    Version {
        /// The version found.
        found: String,
        /// The library it came from.
        library: String,
    },
    /// The source does not compile.
    Source {
        /// Its name under `kernels/cuda`.
        name: String,
        /// The compiler's messages.
        log: String,
    },
    /// NVRTC itself fails.
    Nvrtc {
        /// The function.
        call: &'static str,
        /// Its message.
        message: String,
    },
    /// The sources cannot be found or read.
    Sources(PtxError),
    /// No source has this stem.
    Unknown {
        /// What was asked for.
        stem: String,
        /// The stems there are.
        known: Vec<String>,
    },
    /// What the kernels need of the GPU cannot be told, or is too much.
    Resources {
        /// What is wrong.
        what: String,
        /// What would be right.
        remedy: String,
    },
    /// A result cannot be written.
    Write {
        /// The file.
        path: String,
        /// The operating system's words.
        error: String,
    },
}

/// A compiled source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The PTX: header line and normalised text.
    pub ptx: String,
    /// Warnings; empty when there are none.
    pub log: String,
    /// Full version of the compiler.
    pub compiler: String,
}

/// NVRTC together with the project's sources.
pub struct Compiler {
    nvrtc: Nvrtc,
    installation: Installation,
    sources: PathBuf,
}

impl Compiler {
    /// Finds and opens NVRTC: `ASSAY_NVRTC`, else the toolkits of `CUDA_HOME`, `CUDA_PATH` and
    /// `/usr/local/cuda*`, the wheels of the Python on the search path, `LD_LIBRARY_PATH`; the
    /// pinned release wherever it stands among them, else the first found.
    pub fn find() -> Result<Compiler, CompileError> {
        let root = sources::checkout_root().ok_or_else(|| {
            let root = format!("{}/cuda", env!("CARGO_MANIFEST_DIR"));
            CompileError::Sources(PtxError::Read {
                path: root,
                error: "the sources are not here".to_owned(),
            })
        })?;
        Compiler::open(find::find(&find::Surroundings::of_process())?, root)
    }

    /// Opens a known installation for the sources under `root`.
    pub fn open(installation: Installation, root: PathBuf) -> Result<Compiler, CompileError> {
        let nvrtc = Nvrtc::open(&installation.library, installation.builtins.as_deref())?;
        Ok(Compiler { nvrtc, installation, sources: root })
    }

    /// Where NVRTC was found.
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Major and minor version of the library, known before anything is compiled.
    pub fn release(&self) -> Result<(i32, i32), CompileError> {
        self.nvrtc.version()
    }

    /// Compiles a text as the source called `name` under `kernels/cuda`, with the project's headers.
    /// Any compiler version will do: for mutants, which are never checked in.
    pub fn compile_source(&self, text: &str, name: &str) -> Result<Compiled, CompileError> {
        let text = text.replace("\r\n", "\n");
        let source = sources::hash(&self.sources, name, &text).map_err(CompileError::Sources)?;
        let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
        let target = target(&stem);
        let mut options = vec![format!("--gpu-architecture={target}")];
        options.extend(FLAGS.iter().map(|&flag| flag.to_owned()));
        let beside = self.sources.join(name).parent().map(Path::to_owned);
        let project = [Some(self.sources.join(sources::INCLUDE)), beside];
        for folder in project.iter().flatten().chain(&self.installation.include) {
            options.push(format!("-I{}", folder.display()));
        }
        let (raw, log) = self.nvrtc.compile(&text, name, &options)?;

        let compiler = match normalise::compiler_version(&raw) {
            Some(version) => version.to_owned(),
            None => {
                let (major, minor) = self.release()?;
                format!("{major}.{minor}")
            }
        };
        let working = std::env::current_dir().unwrap_or_default();
        let roots = Roots {
            sources: &self.sources,
            working: &working,
            toolkit: &self.installation.include,
        };
        let flags = FLAGS.iter().map(|&flag| flag.to_owned()).collect();
        let header =
            Header { source, compiler: compiler.clone(), target: target.to_owned(), flags };
        let ptx = format!("{header}\n{}", normalise::normalise(&raw, &roots));
        Ok(Compiled { ptx, log: log.trim().to_owned(), compiler })
    }
}

/// Compiles a text as the source called `name` under `kernels/cuda`, such as
/// `selection/argmax_rows.cu`. NVRTC is found once a process.
pub fn compile_source(text: &str, name: &str) -> Result<Compiled, CompileError> {
    static COMPILER: OnceLock<Result<Compiler, CompileError>> = OnceLock::new();
    match COMPILER.get_or_init(Compiler::find) {
        Ok(compiler) => compiler.compile_source(text, name),
        Err(error) => Err(error.clone()),
    }
}

/// What [`Compiler::compile_all`] does.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only these stems; all when `None`.
    pub only: Option<Vec<String>>,
    /// Compare with the files that are there and write nothing.
    pub check: bool,
    /// Accept another compiler than the pinned one.
    pub any_version: bool,
    /// Where the PTX files lie.
    pub folder: PathBuf,
}

impl Default for Options {
    /// Compiles everything into `kernels/ptx`.
    fn default() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ptx");
        Options { only: None, check: false, any_version: false, folder }
    }
}

/// What became of one PTX file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    /// The file already held these bytes.
    Same,
    /// The file was written.
    Written,
    /// Check mode: the file does not exist.
    Missing,
    /// Check mode: the file first differs at this line, counted from 1.
    Differs {
        /// The line.
        line: usize,
    },
    /// The file has no source; delete it.
    Orphan,
}

/// One PTX file of a [`Compiler::compile_all`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledFile {
    /// The module's stem.
    pub stem: String,
    /// Its PTX file.
    pub path: PathBuf,
    /// What became of it.
    pub state: FileState,
    /// Compiler warnings.
    pub log: String,
}

impl CompiledFile {
    /// Whether the file is now what its source says.
    pub fn is_current(&self) -> bool {
        matches!(self.state, FileState::Same | FileState::Written)
    }
}

impl Compiler {
    /// Compiles every source, or those asked for, and writes or checks the PTX files; `each` is told of
    /// every file as it is done. A source that does not compile stops the run; files already written
    /// stay, each whole.
    pub fn compile_all(
        &self,
        options: &Options,
        each: &mut dyn FnMut(&CompiledFile),
    ) -> Result<Vec<CompiledFile>, CompileError> {
        let known = sources::kernels(&self.sources).map_err(CompileError::Sources)?;
        let asked: BTreeSet<String> = match &options.only {
            Some(only) => only.iter().cloned().collect(),
            None => known.keys().cloned().collect(),
        };
        if let Some(stem) = asked.iter().find(|&stem| !known.contains_key(stem)) {
            return Err(CompileError::Unknown {
                stem: stem.clone(),
                known: known.into_keys().collect(),
            });
        }
        if !options.any_version {
            let (major, minor) = self.release()?;
            self.require_pinned(&format!("{major}.{minor}"))?;
        }
        let mut files = Vec::new();
        let mut done = |file: CompiledFile| {
            each(&file);
            files.push(file);
        };
        for (stem, name) in known.iter().filter(|(stem, _)| asked.contains(*stem)) {
            let text = sources::read(&self.sources, name).map_err(CompileError::Sources)?;
            let compiled = self.compile_source(&text, name)?;
            if !options.any_version {
                self.require_pinned(&compiled.compiler)?;
            }
            let path = options.folder.join(format!("{stem}.ptx"));
            let state = settle(&path, &compiled.ptx, options.check)?;
            done(CompiledFile { stem: stem.clone(), path, state, log: compiled.log });
        }
        if options.only.is_none() {
            for (stem, path) in ptx_files(&options.folder)? {
                if !known.contains_key(&stem) {
                    done(CompiledFile { stem, path, state: FileState::Orphan, log: String::new() });
                }
            }
        }
        Ok(files)
    }

    /// A release such as `13.0` passes as a prefix of the pinned version; a full version must equal it.
    fn require_pinned(&self, found: &str) -> Result<(), CompileError> {
        let rest = PINNED_COMPILER.strip_prefix(found);
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
            return Ok(());
        }
        let library = self.installation.library.display().to_string();
        Err(CompileError::Version { found: found.to_owned(), library })
    }
}

/// Writes `text`, or in check mode compares it.
fn settle(path: &Path, text: &str, check: bool) -> Result<FileState, CompileError> {
    let present = match std::fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(write_error(path, &error)),
    };
    match present {
        Some(bytes) if bytes == text.as_bytes() => Ok(FileState::Same),
        Some(bytes) if check => {
            Ok(FileState::Differs { line: first_difference(&bytes, text.as_bytes()) })
        }
        None if check => Ok(FileState::Missing),
        _ => {
            write_whole(path, text).map_err(|error| write_error(path, &error))?;
            Ok(FileState::Written)
        }
    }
}

/// Writes beside the file and renames, so that no reader sees half of it.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let temporary = path.with_extension(format!("ptx.{}", std::process::id()));
    let result = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if result.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
    }
    result
}

/// The line, counted from 1, of the first differing byte.
fn first_difference(old: &[u8], new: &[u8]) -> usize {
    let at = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    1 + new[..at].iter().filter(|&&byte| byte == b'\n').count()
}

fn ptx_files(folder: &Path) -> Result<Vec<(String, PathBuf)>, CompileError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(write_error(folder, &error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| write_error(folder, &error))?.path();
        if path.extension().is_some_and(|extension| extension == "ptx") {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            files.push((stem, path));
        }
    }
    files.sort();
    Ok(files)
}

fn write_error(path: &Path, error: &io::Error) -> CompileError {
    CompileError::Write { path: path.display().to_string(), error: error.to_string() }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::NotFound { searched } => write!(
                f,
                "NVRTC was not found in {}. Install the pinned wheels with `pip install --no-deps \
                 --require-hashes -r {REQUIREMENTS}`, or set {NVRTC_VARIABLE} to the library or its folder",
                if searched.is_empty() { "any place".to_owned() } else { searched.join(", ") }
            ),
            CompileError::Library { path, error } => {
                write!(
                    f,
                    "{path} cannot be used as NVRTC: {error}; set {NVRTC_VARIABLE} to a library of NVRTC \
                     {PINNED_COMPILER} or its folder, or install the pinned wheels with `pip install \
                     --no-deps --require-hashes -r {REQUIREMENTS}`"
                )
            }
            CompileError::Version { found, library } => write!(
                f,
                "{library} is NVRTC {found}; kernels/ptx is made with {PINNED_COMPILER} alone, so that two \
                 machines make the same bytes. Install the pinned wheels with `pip install --no-deps \
                 --require-hashes -r {REQUIREMENTS}`, or pass --any-version to try another compiler"
            ),
            CompileError::Source { name, log } => {
                write!(f, "{name} does not compile:\n{}", log.trim_end())
            }
            CompileError::Nvrtc { call, message } => write!(f, "{call} failed: {message}"),
            CompileError::Sources(error) => write!(f, "{error}"),
            CompileError::Unknown { stem, known } => {
                write!(f, "no kernel `{stem}`; there are {}", known.join(", "))
            }
            CompileError::Resources { what, remedy } => write!(f, "{what}; {remedy}"),
            CompileError::Write { path, error } => write!(f, "cannot write {path}: {error}"),
        }
    }
}

impl std::error::Error for CompileError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_once_and_then_the_same() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("ptx/k.ptx");
        assert_eq!(settle(&path, "a\nb\n", true), Ok(FileState::Missing));
        assert_eq!(settle(&path, "a\nb\n", false), Ok(FileState::Written));
        assert_eq!(settle(&path, "a\nb\n", false), Ok(FileState::Same));
        assert_eq!(settle(&path, "a\nc\n", true), Ok(FileState::Differs { line: 2 }));
        assert_eq!(
            std::fs::read_to_string(&path).expect("the file"),
            "a\nb\n",
            "check mode writes nothing"
        );
        assert_eq!(settle(&path, "a\nc\n", false), Ok(FileState::Written));
        let names = ptx_files(&folder.path().join("ptx")).expect("a folder");
        assert_eq!(names.len(), 1, "no temporary file stays");
    }

    #[test]
    fn a_module_of_one_generation_has_a_target_of_its_own() {
        for portable in ["gdn_chunk", "hopper_rows", "gdn_hopper_chunk"] {
            assert_eq!((target(portable), only_on(portable)), (TARGET, None));
        }
        assert_eq!(target("gdn_chunk_hopper"), "compute_90a");
        assert_eq!(only_on("gdn_chunk_hopper"), Some((9, 0)));
    }

    #[test]
    fn a_difference_is_found_by_line() {
        assert_eq!(first_difference(b"a\nb\n", b"a\nb"), 2);
        assert_eq!(first_difference(b"", b"a"), 1);
    }

    #[test]
    fn the_version_message_names_the_cure() {
        let error =
            CompileError::Version { found: "12.4".to_owned(), library: "libnvrtc.so".to_owned() };
        let text = error.to_string();
        for part in ["12.4", PINNED_COMPILER, REQUIREMENTS, "--any-version"] {
            assert!(text.contains(part), "{part} in: {text}");
        }
    }
}
