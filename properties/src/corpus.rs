//! Failing cases on disk: `corpora/<contract>/<clause>-<digest>.yaml`, written whole or not at all and
//! replayed for ever. A file that cannot be read is reported beside those that can, never skipped.

mod comment;
mod date;
mod folders;
mod known_failures;
pub mod migrate;
pub mod minimize;
mod write;

pub use comment::comment;
use comment::rewritten_comment;
pub use date::Date;
pub use folders::{files, strays};
pub use known_failures::{KnownFailure, KnownFailures, Standing};
pub use write::{remove_case, replace_case, replacement, write_regression, write_whole};

use contracts::case::{Case, Content, Layout, StoreForm};
use contracts::case_yaml::{CASE_LIMIT_BYTES, read_case};
use contracts::format::Contract;
use contracts::{CaseError, ContractError};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for other writers of a folder: each holds it for one write.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// Most files read in one folder.
pub const MOST_FILES: usize = 100_000;

/// Why a corpus could not be read or written. Each text says what to do about it.
#[derive(Debug)]
pub enum CorpusError {
    /// The operating system refuses access.
    Permission {
        /// File or folder.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
    },
    /// No room left; nothing was left half-written.
    DiskFull {
        /// The file that would not fit.
        path: PathBuf,
    },
    /// Any other failure of the file system.
    Io {
        /// File or folder.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        error: io::Error,
    },
    /// A file beyond the limit of its kind.
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        len_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// More files in one folder than `MOST_FILES`.
    TooMany {
        /// The folder.
        folder: PathBuf,
    },
    /// Something that would never be replayed.
    Stray {
        /// File or folder.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What would be right.
        remedy: &'static str,
    },
    /// Another process has been writing into the folder all this time.
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// A stored case that is not any more what it was when it was read.
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A verdict that is no failure has no regression.
    NotAFailure,
    /// A case file is no case.
    Case(ContractError),
    /// `known_failures.yaml` is not what it must be.
    KnownFailures(ContractError),
}

impl CorpusError {
    fn io(path: &Path, doing: &'static str, error: io::Error) -> CorpusError {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                CorpusError::Permission { path, doing }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                CorpusError::DiskFull { path }
            }
            _ => CorpusError::Io { path, doing, error },
        }
    }
}

impl fmt::Display for CorpusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            CorpusError::Permission { path, doing } => format!(
                "{}: no permission for {doing}; change its owner or mode, or keep the corpora elsewhere (--corpora FOLDER)",
                path.display()
            ),
            CorpusError::DiskFull { path } => format!(
                "{}: no space left, nothing was written; make room, or keep the corpora on another disk (--corpora FOLDER)",
                path.display()
            ),
            CorpusError::Io { path, doing, error } => format!(
                "{}: {doing} failed: {error}; put that right, or keep the corpora elsewhere (--corpora FOLDER)",
                path.display()
            ),
            CorpusError::TooLarge { path, len_bytes, limit_bytes } => format!(
                "{}: {len_bytes} bytes are more than the limit of {limit_bytes}; give the shrinker more time, \
                 or keep the case elsewhere",
                path.display()
            ),
            CorpusError::TooMany { folder } => format!(
                "{}: more than {MOST_FILES} files; move those that show the same failure away",
                folder.display()
            ),
            CorpusError::Stray { path, what, remedy } => {
                format!("{}: {what}; {remedy}", path.display())
            }
            CorpusError::Busy { folder } => format!(
                "{}: another process has held it for {LONGEST_WAIT:?}, nothing was written; end that process, or keep the corpora elsewhere (--corpora FOLDER)",
                folder.display()
            ),
            CorpusError::Changed { path } => format!(
                "{}: it was changed meanwhile and stays as it is; run the command again",
                path.display()
            ),
            CorpusError::NotAFailure => {
                "a case that does not fail is no regression; write only what disagrees or faults"
                    .to_owned()
            }
            CorpusError::Case(error) | CorpusError::KnownFailures(error) => error.to_string(),
        };
        f.write_str(&contracts::printable(&text))
    }
}

impl std::error::Error for CorpusError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CorpusError::Io { error, .. } => Some(error),
            CorpusError::KnownFailures(error) => Some(error),
            _ => None,
        }
    }
}

/// Every stored case of a contract, sorted by file name. A file that cannot be read, is too large, or
/// no longer fits the contract is an error in its place; so is a folder that cannot be listed.
pub fn read_all(root: &Path, contract: &Contract) -> Vec<(PathBuf, Result<Case, CaseError>)> {
    match files(root, &contract.contract) {
        Ok(files) => files.into_iter().map(|path| (path.clone(), read(&path, contract))).collect(),
        Err(error) => vec![(root.join(&contract.contract), Err(unreadable(root, &error)))],
    }
}

/// One stored case of this contract.
pub fn read(path: &Path, contract: &Contract) -> Result<Case, CaseError> {
    let case = read_any(path, &|name| or_another(contract, name))?;
    must_be_of(&case, contract, path).map(|()| case)
}

/// This contract or the registered one of that name: a file in the wrong folder is told by its place.
fn or_another<'a>(contract: &'a Contract, name: &str) -> Option<&'a Contract> {
    if name == contract.contract { Some(contract) } else { contracts::contract(name) }
}

fn must_be_of(case: &Case, contract: &Contract, path: &Path) -> Result<(), CaseError> {
    if case.contract == contract.contract {
        return Ok(());
    }
    let what = format!("`{}`, in the folder of `{}`", case.contract, contract.contract);
    let remedy = "move the file to the folder of its contract";
    let file = path.display().to_string();
    Err(CaseError { file, ..CaseError::new("contract", what, remedy) })
}

/// One stored case of whichever contract its `contract:` line names and `lookup` knows.
pub fn read_any<'a>(
    path: &Path,
    lookup: &dyn Fn(&str) -> Option<&'a Contract>,
) -> Result<Case, CaseError> {
    let text =
        read_text(path, CASE_LIMIT_BYTES as u64).map_err(|error| unreadable(path, &error))?;
    read_case(&text, &path.display().to_string(), lookup)
}

fn unreadable(path: &Path, error: &CorpusError) -> CaseError {
    let text = error.to_string();
    let shown = format!("{}: ", contracts::printable(&path.display().to_string()));
    let text = text.strip_prefix(&*shown).unwrap_or(&text);
    let (what, remedy) = text.split_once("; ").unwrap_or((text, "make it readable"));
    CaseError { file: path.display().to_string(), ..CaseError::new("", what, remedy) }
}

/// A file's text; refuses it before reading when it is larger than the limit, and stops there when it
/// grows meanwhile.
pub(crate) fn read_text(path: &Path, limit_bytes: u64) -> Result<String, CorpusError> {
    let failed = |error| CorpusError::io(path, "reading", error);
    // Opening a pipe would wait for its other end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        let kind = io::ErrorKind::InvalidInput;
        return Err(failed(io::Error::new(kind, "it is no regular file")));
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    let len_bytes = file.metadata().map_err(failed)?.len();
    let mut text = String::new();
    let read_bytes = if len_bytes > limit_bytes {
        len_bytes
    } else {
        file.take(limit_bytes + 1).read_to_string(&mut text).map_err(failed)? as u64
    };
    if read_bytes > limit_bytes {
        return Err(CorpusError::TooLarge {
            path: path.to_owned(),
            len_bytes: read_bytes,
            limit_bytes,
        });
    }
    Ok(text)
}

/// The command that replays a stored case: as seen from the repository for a file of its corpora,
/// otherwise with the path at hand.
pub fn replay_command(path: &Path, root: &Path) -> String {
    let ours = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpora")).canonicalize();
    let is_ours = match (ours, root.canonicalize()) {
        (Ok(ours), Ok(root)) => ours == root,
        // A binary away from its checkout: by convention the commands run in the repository.
        (Err(_), _) => root == Path::new("corpora"),
        _ => false,
    };
    let inside = path.strip_prefix(root).ok().filter(|_| is_ours);
    let shown = inside.map_or_else(|| path.to_owned(), |rest| Path::new("corpora").join(rest));
    format!("cargo run --release -- replay {}", shown.display())
}

/// A case in one line: types, choices, sizes, lists, and layouts that are not dense.
pub fn describe(case: &Case) -> String {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(case.dtypes.iter().map(|(name, dtype)| format!("{name}={dtype}")));
    parts.extend(
        case.options.iter().chain(&case.variants).map(|(name, word)| format!("{name}={word}")),
    );
    parts.extend(case.dims.iter().map(|(name, size)| format!("{name}={size}")));
    parts.extend(case.lists.iter().map(|(name, items)| format!("{name}={}", shortened(items))));
    for (name, form) in &case.stores {
        if let StoreForm::Packed { pad } = form {
            parts.push(format!("{name} packed with {pad} between rows"));
        }
    }
    let dead = |tensor: &Content| matches!(tensor, Content::Derived);
    for (name, tensor) in case.tensors.iter().filter(|(_, tensor)| !dead(&tensor.content)) {
        match tensor.layout {
            Layout::Dense => {}
            Layout::RowPadded(pad) => parts.push(format!("{name} row_padded {pad}")),
            Layout::OuterPadded(pad) => parts.push(format!("{name} outer_padded {pad}")),
            Layout::Offset(offset) => parts.push(format!("{name} offset {offset}")),
            Layout::Permuted => parts.push(format!("{name} permuted")),
            Layout::OddUnitStrides(more) => parts.push(format!("{name} odd_unit_strides {more}")),
            Layout::Wide => parts.push(format!("{name} wide")),
            Layout::Rank0 => parts.push(format!("{name} rank0")),
        }
    }
    parts.join(" ")
}

/// A list as YAML, the middle of a long one left out.
fn shortened(items: &[i64]) -> String {
    let text = |items: &[i64]| items.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    match items {
        [first @ .., last] if first.len() > 15 => {
            format!("[{},…{} more…,{last}]", text(&first[..8]), first.len() - 8)
        }
        items => format!("[{}]", text(items)),
    }
}

/// FNV-1a. Frozen: file names depend on it.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
