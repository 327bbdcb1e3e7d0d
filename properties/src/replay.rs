//! Stored cases, again: every file on every backend at hand, everything that applies to it examined.
//! A file that no longer decodes is an error that names it; a case may fail only when
//! `known_failures.yaml` says so, and must fail then.

mod many;

pub use many::{Replayed, replay_all};

use crate::check::{ToolError, Workspace, check};
use crate::corpus::{self, KnownFailures, Standing};
use crate::counters::Counters;
use crate::examine::Examine;
use crate::provenance;
use crate::subject::{Subject, subject};
use crate::verdict::Verdict;
use contracts::case::Case;
use kernels::backend::Backend;
use std::path::{Path, PathBuf};

/// One stored case on one backend.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The file.
    pub path: PathBuf,
    /// Its contract.
    pub subject: &'static Subject,
    /// The case.
    pub case: Case,
    /// `vm` or `cuda`.
    pub backend: &'static str,
    /// What became of it.
    pub verdict: Verdict,
    /// What that means for the run.
    pub meaning: Meaning,
}

/// What a replay means for the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It passes and should.
    Passes,
    /// It fails.
    Fails,
    /// It fails, and by another clause than the one `known_failures.yaml` tolerates.
    FailsOtherwise(String),
    /// It fails as `known_failures.yaml` says; the issue's link.
    Tolerated(String),
    /// It passes though `known_failures.yaml` says it fails: the entry must go.
    PassesUnexpectedly(String),
    /// The backend could not say.
    Undecided,
}

impl Replay {
    /// Whether the run fails because of it.
    pub fn is_failure(&self) -> bool {
        matches!(
            self.meaning,
            Meaning::Fails | Meaning::FailsOtherwise(_) | Meaning::PassesUnexpectedly(_)
        )
    }
}

/// Replays files on these backends, in order. A case on which the first found a fault goes to no other:
/// a crash would take a GPU's context with it.
///
/// # Errors
/// At the first file that is no case, and when the tool fails.
pub fn replay(
    root: &Path,
    paths: &[PathBuf],
    backends: &mut [Box<dyn Backend>],
) -> Result<Vec<Replay>, ToolError> {
    let known = KnownFailures::read(root).map_err(|error| ToolError::Missing(error.to_string()))?;
    let mut workspace = Workspace::new();
    let mut replays = Vec::new();
    for path in paths {
        replays.extend(one(root, &known, path, backends, &mut workspace)?);
    }
    Ok(replays)
}

/// One file on every backend.
fn one(
    root: &Path,
    known: &KnownFailures,
    path: &Path,
    backends: &mut [Box<dyn Backend>],
    workspace: &mut Workspace,
) -> Result<Vec<Replay>, ToolError> {
    let (subject, case) = read(root, path)?;
    let examine = examination(&case);
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let mut replays = Vec::with_capacity(backends.len());
    for backend in backends.iter_mut() {
        let mut counters = Counters::default();
        let mut verdict =
            check(subject, &case, &examine, backend.as_mut(), workspace, &mut counters)?;
        provenance::trace(subject, &case, &mut verdict, backend.as_mut(), workspace)?;
        let meaning = match known.standing(subject.name(), &stem, &verdict) {
            Standing::Passes => Meaning::Passes,
            Standing::Fails => Meaning::Fails,
            Standing::FailsOtherwise(entry) => Meaning::FailsOtherwise(entry.clause.clone()),
            Standing::Tolerated(entry) => Meaning::Tolerated(entry.issue.clone()),
            Standing::PassesUnexpectedly(entry) => Meaning::PassesUnexpectedly(entry.issue.clone()),
            Standing::Undecided => Meaning::Undecided,
        };
        let faulted = matches!(verdict, Verdict::Fault(_));
        let (path, case, backend) = (path.to_owned(), case.clone(), backend.name());
        replays.push(Replay { path, subject, case, backend, verdict, meaning });
        if faulted {
            break;
        }
    }
    Ok(replays)
}

/// What a stored case is examined for: the clause it once showed, after the kernel itself.
pub fn examination(case: &Case) -> Examine {
    case.found.as_ref().map_or(Examine::Kernel, |found| Examine::for_clause(&found.clause))
}

/// The contract a file speaks of, from its own `contract:` line, and the case. A file under `root`
/// must lie in its contract's folder.
///
/// # Errors
/// When the file cannot be read or is no case of a contract there is; the text says which field.
pub fn read(root: &Path, path: &Path) -> Result<(&'static Subject, Case), ToolError> {
    let case = corpus::read_any(path, &|name| subject(name).map(|subject| subject.contract))
        .map_err(ToolError::Case)?;
    let name = case.contract.as_str();
    let missing = |field: &str, what: String| {
        ToolError::Missing(format!("{}: {field}: {what}", path.display()))
    };
    let Some(subject) = subject(name) else {
        return Err(missing("contract", format!("no contract is named `{name}`")));
    };
    let folder = path.parent().filter(|folder| is_folder_of(root, folder));
    if let Some(folder) = folder.and_then(Path::file_name).filter(|folder| *folder != name) {
        let what = format!(
            "`{name}`, in the folder of `{}`; move the file to the folder of its contract",
            folder.display()
        );
        return Err(missing("contract", what));
    }
    if let Some(found) = &case.found
        && !subject.clauses.iter().any(|clause| clause.id == found.clause)
    {
        let what =
            format!("{name} has no clause `{}`; name the one the case shows now", found.clause);
        return Err(missing("found.clause", what));
    }
    Ok((subject, case))
}

/// Whether `folder` lies directly under the corpora.
fn is_folder_of(root: &Path, folder: &Path) -> bool {
    let above = folder.canonicalize().ok().and_then(|folder| folder.parent().map(Path::to_owned));
    above.is_some() && above == root.canonicalize().ok()
}
