//! The shrinker as a sequence of candidates, each answered by `keep` or `reject`. It walks the passes
//! round by round until a whole round keeps nothing, then again with finer parts, and never offers
//! the same case twice. Candidates may be asked for ahead, as if those before were rejected: keeping
//! one of them undoes what came after it, so the end does not depend on how far one looked ahead.

use super::digest::digest;
use super::edits::{self, Edit, Pass};
use super::values;
use contracts::case::Case;
use contracts::format::Contract;
use contracts::geometry::Geometry;
use std::collections::HashSet;
use std::sync::Arc;

/// Parts a tensor's elements are cut into at first; finer only once nothing coarser helps.
const FIRST_PARTS: usize = 64;
/// Parts after which a tensor is as fine as it gets.
pub(super) const LAST_PARTS: usize = 1 << 20;

/// A shrink in progress.
#[derive(Clone, Debug)]
pub struct Stepper<'a> {
    contract: &'a Contract,
    case: Case,
    place: Place,
    /// Offered and not answered yet, in order.
    offered: Vec<Offer>,
    seen: HashSet<u64>,
    /// What `seen` holds, oldest first: looking ahead is undone by shortening it.
    trail: Vec<u64>,
}

/// How far the walk over passes, levels and edits has come.
#[derive(Clone, Debug)]
struct Place {
    pass: usize,
    level: u32,
    edits: Option<Arc<[Edit]>>,
    cursor: usize,
    /// Whether this round kept anything.
    progress: bool,
    parts: usize,
    finished: bool,
}

/// A candidate and the walk as it was when this one was next.
#[derive(Clone, Debug)]
struct Offer {
    case: Case,
    place: Place,
    seen: usize,
}

impl<'a> Stepper<'a> {
    /// Starts from a failing case.
    pub fn new(contract: &'a Contract, case: Case) -> Stepper<'a> {
        let first = digest(&case);
        let place = Place {
            pass: 0,
            level: 0,
            edits: None,
            cursor: 0,
            progress: false,
            parts: FIRST_PARTS,
            finished: false,
        };
        Stepper {
            contract,
            case,
            place,
            offered: Vec::new(),
            seen: HashSet::from([first]),
            trail: vec![first],
        }
    }

    /// The smallest case kept so far.
    pub fn case(&self) -> &Case {
        &self.case
    }

    /// The case offered and not answered yet.
    pub fn pending(&self) -> Option<&Case> {
        self.offered.first().map(|offer| &offer.case)
    }

    /// Whether every edit has been offered: no single one keeps the failure.
    pub fn is_finished(&self) -> bool {
        self.place.finished
    }

    /// The smallest case, its contents in their smallest form.
    pub fn into_case(mut self) -> Case {
        values::compact(self.contract, &mut self.case);
        self.case
    }

    /// The next legal case to judge; `None` when there is none, or as soon as `go_on` says no.
    /// An unanswered candidate counts as rejected.
    pub fn candidate(&mut self, go_on: &dyn Fn() -> bool) -> Option<&Case> {
        self.candidates(1, go_on).next()
    }

    /// The next cases to judge, at most so many, each as if those before it were rejected. Fewer when
    /// there are no more, or as soon as `go_on` says no.
    pub fn candidates(
        &mut self,
        most: usize,
        go_on: &dyn Fn() -> bool,
    ) -> impl ExactSizeIterator<Item = &Case> {
        self.reject();
        while self.offered.len() < most {
            let Some(offer) = self.offer(go_on) else { break };
            self.offered.push(offer);
        }
        self.offered.iter().map(|offer| &offer.case)
    }

    /// The next candidate, the walk standing after it.
    fn offer(&mut self, go_on: &dyn Fn() -> bool) -> Option<Offer> {
        while !self.place.finished && go_on() {
            let Some(edits) = self.place.edits.clone() else {
                self.open_level();
                continue;
            };
            let Some(edit) = edits.get(self.place.cursor) else {
                self.place.level += 1;
                self.place.edits = None;
                continue;
            };
            let seen = self.trail.len();
            let candidate = edits::apply(self.contract, &self.case, edit);
            if let Some(candidate) = candidate.filter(|candidate| *candidate != self.case)
                && self.is_new(&candidate)
                && Geometry::of(self.contract, &candidate).is_ok()
            {
                let offer = Offer { case: candidate, place: self.place.clone(), seen };
                self.place.cursor += 1;
                return Some(offer);
            }
            self.place.cursor += 1;
        }
        None
    }

    fn is_new(&mut self, candidate: &Case) -> bool {
        let digest = digest(candidate);
        let is_new = self.seen.insert(digest);
        if is_new {
            self.trail.push(digest);
        }
        is_new
    }

    /// The pending candidate fails alike: it is the case from now on.
    pub fn keep(&mut self) {
        self.keep_nth(0);
    }

    /// The candidate of this place among those offered fails alike, and none before it does.
    pub fn keep_nth(&mut self, nth: usize) {
        if nth >= self.offered.len() {
            return;
        }
        let Offer { case, place, seen } = self.offered.swap_remove(nth);
        self.offered.clear();
        // The kept case itself has been seen; whatever was looked at after it has not.
        for later in self.trail.drain(seen + 1..) {
            self.seen.remove(&later);
        }
        self.case = case;
        self.place = Place { progress: true, ..place };
        // On with what the edit was about, under the new case; edits of other things keep their turn.
        let edits = self.place.edits.take().unwrap_or_default();
        if let Some(kept) = edits.get(self.place.cursor)
            && let Some(first) = edits.iter().position(|edit| edit.same_target(kept))
        {
            self.place.cursor = first;
        }
        self.place.edits = Some(self.edits().unwrap_or_default());
    }

    /// No pending candidate fails alike.
    pub fn reject(&mut self) {
        self.offered.clear();
    }

    fn edits(&self) -> Option<Arc<[Edit]>> {
        let Place { pass, level, parts, .. } = self.place;
        let pass = Pass::ALL.get(pass)?;
        pass.edits(level, self.contract, &self.case, parts).map(Arc::from)
    }

    fn open_level(&mut self) {
        self.place.cursor = 0;
        if self.place.pass < Pass::ALL.len() {
            self.place.edits = self.edits();
            if self.place.edits.is_none() {
                self.place.pass += 1;
                self.place.level = 0;
            }
            return;
        }
        let place = &mut self.place;
        if !place.progress {
            place.finished = place.parts >= LAST_PARTS;
            place.parts = (place.parts * 64).min(LAST_PARTS);
        }
        (place.pass, place.level, place.progress) = (0, 0, false);
    }
}
