//! What lies where in the corpora: a folder a contract, stored cases in it, nothing that would be
//! passed over in silence.

use super::{CorpusError, KnownFailures, MOST_FILES};
use std::io;
use std::path::{Path, PathBuf};

/// Vectors of other implementations, read by tests of their own.
const GOLDEN: &str = "golden";

/// The stored cases of one contract, sorted by name; none when the folder does not exist.
pub fn files(root: &Path, contract: &str) -> Result<Vec<PathBuf>, CorpusError> {
    let mut files = entries(&root.join(contract))?;
    files.retain(|path| has_extension(path, "yaml"));
    Ok(files)
}

/// Everything under `root` that no replay would ever look at: folders of no contract in `contracts`,
/// files that are no cases by their name. Empty when there are no corpora.
pub fn strays(root: &Path, contracts: &[&str]) -> Result<Vec<CorpusError>, CorpusError> {
    let mut strays = Vec::new();
    for path in entries(root)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && contracts.contains(&name.as_str()) {
            let is_case =
                |path: &PathBuf| (has_extension(path, "yaml") && !path.is_dir()) || is_note(path);
            strays.extend(entries(&path)?.into_iter().filter(|path| !is_case(path)).map(|path| {
                let what = "its name is no stored case's".to_owned();
                CorpusError::Stray { path, what, remedy: "end it in .yaml, or move it away" }
            }));
        } else if path.is_dir() && name != GOLDEN {
            let what = format!("no contract is named `{name}`");
            let remedy = "give the folder its contract's name (`cargo run --release -- list`), or move it away";
            strays.push(CorpusError::Stray { path, what, remedy });
        } else if !path.is_dir() && name != KnownFailures::FILE && !is_note(&path) {
            let what = "it lies in no contract's folder".to_owned();
            let remedy = "move it into the folder of its contract, or away";
            strays.push(CorpusError::Stray { path, what, remedy });
        }
    }
    Ok(strays)
}

/// A folder's entries, sorted, without hidden ones (among them files being written); none when the
/// folder does not exist.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, CorpusError> {
    let failed = |error| CorpusError::io(folder, "listing the folder", error);
    let listed = match std::fs::read_dir(folder) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut paths = Vec::new();
    for entry in listed {
        let path = entry.map_err(failed)?.path();
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            continue;
        }
        if paths.len() == MOST_FILES {
            return Err(CorpusError::TooMany { folder: folder.to_owned() });
        }
        paths.push(path);
    }
    paths.sort();
    Ok(paths)
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension == wanted)
}

/// Text for people may lie anywhere; a folder is none, whatever it is called.
fn is_note(path: &Path) -> bool {
    has_extension(path, "md") && path.is_file()
}
