//! The shrinker as a sequence of candidates, each answered by `keep` or `reject`. It walks the passes
//! round by round until a whole round keeps nothing, then again with finer parts, and never offers
//! the same case twice.

use super::digest::digest;
use super::edits::{self, Edit, Pass};
use super::values;
use contracts::case::Case;
use contracts::format::Contract;
use contracts::geometry::Geometry;
use std::collections::HashSet;

/// Parts a tensor's elements are cut into at first; finer only once nothing coarser helps.
const FIRST_PARTS: usize = 64;
/// Parts after which a tensor is as fine as it gets.
const LAST_PARTS: usize = 1 << 20;

/// A shrink in progress.
#[derive(Clone, Debug)]
pub struct Stepper<'a> {
    contract: &'a Contract,
    case: Case,
    pass: usize,
    level: u32,
    edits: Option<Vec<Edit>>,
    cursor: usize,
    /// Whether this round kept anything.
    progress: bool,
    parts: usize,
    pending: Option<Case>,
    seen: HashSet<u64>,
    finished: bool,
}

impl<'a> Stepper<'a> {
    /// Starts from a failing case.
    pub fn new(contract: &'a Contract, case: Case) -> Stepper<'a> {
        let seen = HashSet::from([digest(&case)]);
        Stepper {
            contract,
            case,
            pass: 0,
            level: 0,
            edits: None,
            cursor: 0,
            progress: false,
            parts: FIRST_PARTS,
            pending: None,
            seen,
            finished: false,
        }
    }

    /// The smallest case kept so far.
    pub fn case(&self) -> &Case {
        &self.case
    }

    /// The case offered and not answered yet.
    pub fn pending(&self) -> Option<&Case> {
        self.pending.as_ref()
    }

    /// Whether every edit has been offered: no single one keeps the failure.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The smallest case, its contents in their smallest form.
    pub fn into_case(mut self) -> Case {
        values::compact(self.contract, &mut self.case);
        self.case
    }

    /// The next legal case to judge; `None` when there is none, or as soon as `go_on` says no.
    /// An unanswered candidate counts as rejected.
    pub fn candidate(&mut self, go_on: &dyn Fn() -> bool) -> Option<&Case> {
        if self.pending.is_some() {
            self.reject();
        }
        while !self.finished && go_on() {
            if self.edits.is_none() {
                self.open_level();
                continue;
            }
            let Some(edit) = self.edits.as_ref().and_then(|edits| edits.get(self.cursor)) else {
                self.level += 1;
                self.edits = None;
                continue;
            };
            let candidate = edits::apply(self.contract, &self.case, edit);
            if let Some(candidate) = candidate.filter(|candidate| *candidate != self.case)
                && self.seen.insert(digest(&candidate))
                && Geometry::of(self.contract, &candidate).is_ok()
            {
                self.pending = Some(candidate);
                return self.pending.as_ref();
            }
            self.cursor += 1;
        }
        None
    }

    /// The pending candidate fails alike: it is the case from now on.
    pub fn keep(&mut self) {
        let (Some(candidate), Some(edits)) = (self.pending.take(), self.edits.take()) else {
            return;
        };
        self.case = candidate;
        self.progress = true;
        // On with what the edit was about, under the new case; edits of other things keep their turn.
        if let Some(kept) = edits.get(self.cursor)
            && let Some(first) = edits.iter().position(|edit| edit.same_target(kept))
        {
            self.cursor = first;
        }
        let edits = Pass::ALL[self.pass].edits(self.level, self.contract, &self.case, self.parts);
        self.edits = Some(edits.unwrap_or_default());
    }

    /// The pending candidate does not fail alike.
    pub fn reject(&mut self) {
        if self.pending.take().is_some() {
            self.cursor += 1;
        }
    }

    fn open_level(&mut self) {
        self.cursor = 0;
        if let Some(pass) = Pass::ALL.get(self.pass) {
            self.edits = pass.edits(self.level, self.contract, &self.case, self.parts);
            if self.edits.is_none() {
                self.pass += 1;
                self.level = 0;
            }
            return;
        }
        if !self.progress {
            self.finished = self.parts >= LAST_PARTS;
            self.parts = (self.parts * 64).min(LAST_PARTS);
        }
        (self.pass, self.level, self.progress) = (0, 0, false);
    }
}
