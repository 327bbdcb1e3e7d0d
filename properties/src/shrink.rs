//! Makes a failing case small, deterministically: edits decisions, recomputes what follows, keeps a
//! step iff the case stays legal and the same clause and tensor fail. When `finished`, no single edit
//! of `edits::Pass` keeps the failure.

mod axis;
mod digest;
mod edits;
mod parallel;
mod stepper;
mod structure;
mod values;

#[cfg(test)]
mod tests;

pub use parallel::shrink_on_threads;
pub use stepper::Stepper;

use crate::subject::Subject;
use crate::verdict::Verdict;
use contracts::case::Case;
use contracts::format::Contract;
use contracts::geometry::Geometry;
use std::collections::HashSet;
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

/// Every other legal case that one edit makes of this one: a finished shrink is minimal over them.
pub fn neighbours(contract: &Contract, case: &Case) -> Vec<Case> {
    let mut seen = HashSet::from([digest::digest(case)]);
    let mut all = Vec::new();
    for pass in edits::Pass::ALL {
        for level in 0.. {
            let Some(edits) = pass.edits(level, contract, case, stepper::LAST_PARTS) else { break };
            let cases = edits.iter().filter_map(|edit| edits::apply(contract, case, edit));
            let new = cases.filter(|new| new != case && seen.insert(digest::digest(new)));
            all.extend(new.filter(|new| Geometry::of(contract, new).is_ok()));
        }
    }
    all
}

/// Elements of a case that differ from the plainest legal value of their tensor: what a reader of a
/// regression has to look at.
pub fn elements_that_matter(contract: &Contract, case: &Case) -> usize {
    let tensors = contract.tensors.keys();
    let edited = tensors.filter_map(|name| values::Edited::of(contract, case, name));
    edited.map(|edited| edited.different().len()).sum()
}
