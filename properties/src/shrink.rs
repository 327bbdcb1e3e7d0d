//! Makes a failing case small, deterministically: edits decisions, recomputes what follows, keeps a
//! step iff the case stays legal and the same clause and tensor fail. When `finished`, no single edit
//! of `edits::Pass` keeps the failure.

mod axis;
mod digest;
mod edits;
mod stepper;
mod structure;
mod values;

#[cfg(test)]
mod tests;

pub use stepper::Stepper;

use crate::subject::Subject;
use crate::verdict::Verdict;
use contracts::case::Case;
use std::time::{Duration, Instant};

/// Most cases judged in one shrink.
pub const STEPS: u64 = 4_000;

/// What a shrink came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Shrunk {
    /// The smallest case found.
    pub case: Case,
    /// How it fails.
    pub verdict: Verdict,
    /// Cases judged.
    pub tried: u64,
    /// Cases that failed alike, each the start of what was tried next.
    pub kept: u64,
    /// False when time or `STEPS` ran out first.
    pub finished: bool,
}

/// Shrinks `case`, whose verdict was `failing`. `judge` runs a case; `None` when the tool itself failed
/// on it, which counts as another outcome. After `limit` no further case is judged.
pub fn shrink(
    subject: &Subject,
    case: &Case,
    failing: &Verdict,
    judge: &mut dyn FnMut(&Case) -> Option<Verdict>,
    limit: Duration,
) -> Shrunk {
    let deadline = Instant::now().checked_add(limit);
    let in_time = || deadline.is_none_or(|deadline| Instant::now() < deadline);
    let mut stepper = Stepper::new(subject.contract, case.clone());
    let mut shrunk =
        Shrunk { case: case.clone(), verdict: failing.clone(), tried: 0, kept: 0, finished: false };
    while shrunk.tried < STEPS && in_time() {
        let Some(candidate) = stepper.candidate(&in_time) else {
            shrunk.finished = stepper.is_finished();
            break;
        };
        shrunk.tried += 1;
        match judge(candidate).filter(|verdict| verdict.same_failure(failing)) {
            Some(verdict) => {
                shrunk.kept += 1;
                shrunk.verdict = verdict;
                stepper.keep();
            }
            None => stepper.reject(),
        }
    }
    shrunk.case = stepper.into_case();
    shrunk
}
