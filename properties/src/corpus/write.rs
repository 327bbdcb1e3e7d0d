//! Writing stored cases, whole or not at all: a file is made beside its place, synced and renamed, under
//! a lock of the folder, so that processes that write at once lose nothing and one that is killed
//! leaves nothing a reader would see.

use super::{CorpusError, LONGEST_WAIT, comment, fnv, read, read_text, rewritten_comment};
use crate::subject::Subject;
use crate::verdict::Verdict;
use contracts::case::{Case, Found};
use contracts::case_yaml::{CASE_LIMIT_BYTES, write_case};
use contracts::format::Contract;
use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Digits of a digest in a name.
const DIGITS: [usize; 2] = [8, 16];

/// How an unfinished file's name begins and ends.
const UNFINISHED: (&str, &str) = (".", ".tmp");

/// Writes a failing case into `root/<contract>/` and returns the file. The same case with the same
/// clause is written once: its file is returned as it stands.
///
/// # Errors
/// When the verdict is no failure, or the file system does not take the file.
pub fn write_regression(
    root: &Path,
    subject: &Subject,
    case: &Case,
    verdict: &Verdict,
    backend: &str,
) -> Result<PathBuf, CorpusError> {
    let clause =
        verdict.clause().filter(|_| verdict.is_failure()).ok_or(CorpusError::NotAFailure)?;
    let mut stored = Case { found: None, ..case.clone() };
    let body = write_case(&stored, subject.contract, None);
    let stems = stems(clause, &body);
    let issue = case.found.as_ref().and_then(|found| found.issue.clone());
    stored.found = Some(Found { clause: clause.to_owned(), backend: backend.to_owned(), issue });
    let folder = root.join(subject.name());
    std::fs::create_dir_all(&folder)
        .map_err(|error| CorpusError::io(&folder, "making the folder", error))?;
    let held = Held::folder(&folder)?;
    for (place, stem) in stems.iter().enumerate() {
        let path = folder.join(format!("{stem}.yaml"));
        if path.symlink_metadata().is_ok() {
            if body_of(&path, subject.contract).as_deref() == Some(&body) {
                return Ok(path);
            }
            if place == 0 {
                continue;
            }
        }
        let comment = comment(&path, root, case, verdict);
        let text = write_case(&stored, subject.contract, Some(&comment));
        within_limit(&path, &text)?;
        held.write(&path, text.as_bytes())?;
        return Ok(path);
    }
    Err(CorpusError::TooMany { folder })
}

/// What a regression's file may be called: the clause and eight digits of a digest of the case, sixteen
/// when another case has them already.
pub(super) fn stems(clause: &str, body: &str) -> [String; 2] {
    let (slug, digest) = (clause.replace('.', "_"), digest(body.as_bytes()));
    DIGITS.map(|digits| format!("{slug}-{}", &digest[..digits]))
}

fn digest(body: &[u8]) -> String {
    format!("{:016x}", fnv(body))
}

/// Whether the file could be read again.
fn within_limit(path: &Path, text: &str) -> Result<(), CorpusError> {
    let (len_bytes, limit_bytes) = (text.len() as u64, CASE_LIMIT_BYTES as u64);
    if len_bytes > limit_bytes {
        return Err(CorpusError::TooLarge { path: path.to_owned(), len_bytes, limit_bytes });
    }
    Ok(())
}

/// A stored case without what it once showed.
fn body_of(path: &Path, contract: &Contract) -> Option<String> {
    let known = read(path, contract).ok()?;
    Some(write_case(&Case { found: None, ..known }, contract, None))
}

/// Whether a stored case is as the tool wrote it: the digest of what it holds is in its name, or, where
/// the tool wrote it anew under its old name, in its comment.
pub(super) fn is_ours(path: &Path, text: &str) -> bool {
    let digest = digest(body_in(text).as_bytes());
    is_named(path, &digest) || comment::rewritten_digest(text) == Some(&*digest)
}

fn is_named(path: &Path, digest: &str) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let named = stem.rsplit_once('-').map(|(_, digits)| digits);
    DIGITS.iter().any(|digits| named == Some(&digest[..*digits]))
}

/// The text of a case as its digest was taken: without the comment above and what it once showed.
fn body_in(text: &str) -> String {
    let lines = text.split_inclusive('\n').skip_while(|line| line.starts_with('#'));
    lines.filter(|line| !line.starts_with("found: ")).collect()
}

/// What a file holds once this case has taken the place of the one it held, under the comment there, in
/// which `fresh` takes the place of the tool's own lines.
pub fn replacement(
    path: &Path,
    before: &str,
    case: &Case,
    contract: &Contract,
    fresh: Option<&str>,
) -> String {
    let body = write_case(&Case { found: None, ..case.clone() }, contract, None);
    let digest = digest(body.as_bytes());
    let marked = is_ours(path, before) && !is_named(path, &digest);
    let comment = rewritten_comment(before, fresh, marked.then_some(&*digest));
    write_case(case, contract, Some(&comment))
}

/// Puts a [`replacement`] in the place of a stored case that held the text `before`.
///
/// # Errors
/// When the file holds something else by now, or the file system does not take it; the one there stays as
/// it is.
pub fn replace_case(
    path: &Path,
    before: &str,
    case: &Case,
    contract: &Contract,
    fresh: Option<&str>,
) -> Result<(), CorpusError> {
    let text = replacement(path, before, case, contract, fresh);
    within_limit(path, &text)?;
    // Of a link, what it leads to: a rename would put a file of its own in the link's place.
    let target =
        path.canonicalize().map_err(|error| CorpusError::io(path, "finding the file", error))?;
    let held = Held::folder(folder_of(&target))?;
    must_hold(&target, before)?;
    held.write(&target, text.as_bytes())
}

/// Removes a stored case that held the text `before`.
///
/// # Errors
/// When it holds something else by now, or cannot be removed; it stays.
pub fn remove_case(path: &Path, before: &str) -> Result<(), CorpusError> {
    let _held = Held::folder(folder_of(path))?;
    must_hold(path, before)?;
    std::fs::remove_file(path).map_err(|error| CorpusError::io(path, "removing", error))
}

fn must_hold(path: &Path, before: &str) -> Result<(), CorpusError> {
    if read_text(path, CASE_LIMIT_BYTES as u64)? == before {
        return Ok(());
    }
    Err(CorpusError::Changed { path: path.to_owned() })
}

/// Writes any file whole or not at all, its folder made where it is missing.
///
/// # Errors
/// When the file system does not take the file; one already there stays as it is.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), CorpusError> {
    let folder = folder_of(path);
    std::fs::create_dir_all(folder)
        .map_err(|error| CorpusError::io(folder, "making the folder", error))?;
    Held::folder(folder)?.write(path, bytes)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// A folder that no other process writes into: the lock is the folder's own and ends with the
/// process, however that ends.
struct Held<'a> {
    folder: &'a Path,
    /// `None` where folders cannot be opened or locked: renaming alone must do there.
    lock: Option<File>,
}

impl<'a> Held<'a> {
    fn folder(folder: &'a Path) -> Result<Held<'a>, CorpusError> {
        let Ok(lock) = File::open(folder) else { return Ok(Held { folder, lock: None }) };
        let started = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if started.elapsed() >= LONGEST_WAIT => {
                    return Err(CorpusError::Busy { folder: folder.to_owned() });
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
                Err(TryLockError::Error(_)) => return Ok(Held { folder, lock: None }),
            }
        }
        let held = Held { folder, lock: Some(lock) };
        held.remove_unfinished();
        Ok(held)
    }

    /// Whoever was writing these is gone: writers hold the lock.
    fn remove_unfinished(&self) {
        let Ok(entries) = std::fs::read_dir(self.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            let (begins, ends) = UNFINISHED;
            let is_ours = name.starts_with(begins.as_bytes()) && name.ends_with(ends.as_bytes());
            if is_ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                // What stays is hidden and harmless.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Writes beside the target and renames, so that a reader sees all of the file or none.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), CorpusError> {
        let failed = |error: io::Error| CorpusError::io(path, "writing", error);
        let mut builder = tempfile::Builder::new();
        builder.prefix(UNFINISHED.0).suffix(UNFINISHED.1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // Readable as any source file; the process's umask still applies.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let mut file = builder.tempfile_in(self.folder).map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        // The rename itself is durable once the folder is; a system that cannot open folders does it
        // alone.
        if let Some(folder) = &self.lock {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}
