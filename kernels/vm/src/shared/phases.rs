//! Order by the phases of mbarriers: what a thread did before it arrived at a phase is ordered
//! before what another does after its successful test of that phase, and nothing else is.
//! A test is the lane's that makes it: other lanes of its warp have learnt what it did from the next
//! `bar.warp.sync` with it on, or once every lane has made a test since. An arrival speaks for its
//! whole warp, as do the records that are compared: races can be missed so, none is invented. Of
//! clusters of several blocks and kernels without mbarriers nothing is kept.
//!
//! Invariant: clocks are those of the warps in this epoch; whatever ends the epoch orders all.

use super::record::{Named, named, of_set};
use super::{Shared, Toucher};
use std::collections::HashMap;

const WARPS: usize = 32;
/// Sets of warps and clocks in an epoch; of more, only the last access is remembered.
const SETS: u32 = 1 << 14;

/// Of each warp, the first clock that is not covered.
type Clocks = [u16; WARPS];

fn join(all: &mut Clocks, more: &Clocks) {
    for (all, more) in all.iter_mut().zip(more) {
        *all = (*all).max(*more);
    }
}

/// What arrivals at an mbarrier have released.
#[derive(Clone, Default)]
pub(crate) struct Released {
    /// The epoch of the clocks; of others they say nothing.
    age: u64,
    /// To those who see the current phase complete.
    arriving: Clocks,
    /// By the phases that are complete.
    complete: Clocks,
}

impl Released {
    /// The phase is complete.
    pub fn complete_phase(&mut self) {
        join(&mut self.complete, &self.arriving);
    }

    fn renew(&mut self, age: u64) {
        if self.age != age {
            *self = Released { age, ..Released::default() };
        }
    }
}

/// What some lanes of a warp have learnt by tests, and the others have not.
#[derive(Clone, Copy, Default)]
struct Ahead {
    lanes: u32,
    clocks: Clocks,
}

/// A merge that has just been made: it is made again for the next cell, as a rule.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Last {
    /// Whom the old record named.
    old: Option<(Option<usize>, u32)>,
    warp: usize,
    clock: u32,
    ahead: bool,
    version: u64,
    /// Nothing where only I am left.
    set: Option<u32>,
}

#[derive(Default)]
pub(super) struct Phases {
    /// Phases order the warps of this block.
    pub on: bool,
    /// Grows with each epoch of any block.
    age: u64,
    /// What all lanes of each warp know of the others.
    known: Vec<Clocks>,
    ahead: Vec<Ahead>,
    /// Grows whenever a warp learns.
    version: u64,
    /// The accesses that a record stands for: of each warp, one more than the clock of its last.
    sets: Vec<Clocks>,
    numbers: HashMap<Clocks, u32>,
    last: Last,
}

impl Phases {
    /// Everything is ordered.
    #[inline(always)]
    pub fn restart(&mut self) {
        self.age += 1;
        if self.on || !self.known.is_empty() {
            self.clear();
        }
    }

    #[inline(never)]
    fn clear(&mut self) {
        self.known.clear();
        self.ahead.clear();
        if self.on {
            self.known.resize(WARPS, [0; WARPS]);
            self.ahead.resize(WARPS, Ahead::default());
        }
        self.sets.clear();
        self.numbers.clear();
        self.version += 1;
    }

    /// What a thread's warp has learnt ahead of others, if it is one that has.
    fn ahead(&self, me: Toucher) -> Option<&Clocks> {
        let Ahead { lanes, clocks } = self.ahead.get(me.thread as usize / 32 % WARPS)?;
        (lanes >> (me.thread % 32) & 1 != 0).then_some(clocks)
    }

    /// What a thread knows of the other warps.
    fn known(&self, me: Toucher) -> Clocks {
        let warp = me.thread as usize / 32 % WARPS;
        let mut known = self.known.get(warp).copied().unwrap_or_default();
        if let Some(more) = self.ahead(me) {
            join(&mut known, more);
        }
        known
    }

    /// Lanes of a warp meet: what one of them has learnt all have. `alive`: the warp's lanes.
    fn pass_on(&mut self, warp: u32, lanes: u32, alive: u32) {
        let warp = warp as usize % WARPS;
        let (Some(ahead), Some(known)) = (self.ahead.get_mut(warp), self.known.get_mut(warp))
        else {
            return;
        };
        if ahead.lanes & lanes == 0 {
            return;
        }
        ahead.lanes |= lanes;
        if alive & !ahead.lanes == 0 {
            join(known, &ahead.clocks);
            *ahead = Ahead::default();
        }
        self.version += 1;
    }

    /// Whether the accesses of a record of this epoch come before mine by phases of mbarriers.
    #[inline(always)]
    pub fn order(&self, old: u64, me: Toucher) -> bool {
        self.on && self.precedes(old, me)
    }

    #[inline(never)]
    fn precedes(&self, old: u64, me: Toucher) -> bool {
        let mine = me.thread as usize / 32 % WARPS;
        let known = self.known(me);
        match named(old) {
            Named::Nobody => false,
            Named::Warp(warp, clock) if warp == mine => clock < me.synced,
            Named::Warp(warp, clock) => clock < known[warp].into(),
            Named::Set(set) => match self.set(set) {
                Some(clocks) => covers(&known, clocks, mine),
                None => false,
            },
        }
    }

    /// A set by its number; 0 stands for anybody.
    fn set(&self, number: u32) -> Option<&Clocks> {
        self.sets.get((number as usize).checked_sub(1)?)
    }

    /// The record after I join one of this epoch that names another warp.
    #[inline(never)]
    pub fn join(&mut self, old: u64, mine: u64, me: Toucher) -> u64 {
        let warp = me.thread as usize / 32 % WARPS;
        let key = match named(old) {
            Named::Nobody => return mine,
            Named::Set(0) => return of_set(old, mine, 0),
            Named::Set(set) => (None, set),
            Named::Warp(warp, clock) => (Some(warp), clock),
        };
        let ahead = self.ahead(me).is_some();
        let (version, clock) = (self.version, me.clock);
        let now = Last { old: Some(key), warp, clock, ahead, version, set: self.last.set };
        if now != self.last {
            let set = if self.precedes(old, me) { None } else { self.with(key, warp, clock) };
            self.last = Last { set, ..now };
        }
        match self.last.set {
            None => mine,
            Some(set) => of_set(old, mine, set),
        }
    }

    /// The number of a set with me in it.
    fn with(&mut self, (alone, of): (Option<usize>, u32), warp: usize, clock: u32) -> Option<u32> {
        let mut clocks = match alone {
            None => self.set(of).copied().unwrap_or_default(),
            Some(alone) => {
                let mut clocks = [0; WARPS];
                clocks[alone] = of as u16 + 1;
                clocks
            }
        };
        clocks[warp] = clocks[warp].max(clock as u16 + 1);
        let next = self.sets.len() as u32 + 1;
        if next >= SETS {
            return self.numbers.get(&clocks).copied();
        }
        let number = *self.numbers.entry(clocks).or_insert(next);
        if number == next {
            self.sets.push(clocks);
        }
        Some(number)
    }
}

/// Whether a warp that knows so much knows of all accesses of a set by other warps. Those of its own
/// cannot be told from the thread's.
fn covers(known: &Clocks, set: &Clocks, mine: usize) -> bool {
    let mut all = true;
    for warp in 0..WARPS {
        all &= set[warp] <= known[warp] || warp == mine;
    }
    all
}

impl Shared {
    /// Whether phases of mbarriers order the warps of this block.
    pub fn is_phased(&self) -> bool {
        self.phases.on
    }

    /// A thread arrives at a phase, or its copy does: what its warp did up to its clock goes with it.
    pub fn release_phase(&mut self, to: &mut Released, me: Toucher) {
        if self.phases.on {
            let warp = me.thread as usize / 32 % WARPS;
            to.renew(self.phases.age);
            join(&mut to.arriving, &self.phases.known(me));
            to.arriving[warp] = to.arriving[warp].max(me.clock as u16 + 1);
        }
    }

    /// A thread has seen a phase complete. Returns the clock before which its warp's own accesses are
    /// ordered.
    pub fn acquire_phase(&mut self, from: &mut Released, me: Toucher) -> u32 {
        self.meetings += 1;
        let warp = me.thread as usize / 32 % WARPS;
        from.renew(self.phases.age);
        if let Some(ahead) = self.phases.ahead.get_mut(warp) {
            ahead.lanes |= 1 << (me.thread % 32);
            join(&mut ahead.clocks, &from.complete);
            self.phases.version += 1;
        }
        from.complete[warp].into()
    }

    /// Lanes of a warp meet, or have made the same test: what one of them has learnt all have. `alive`:
    /// the warp's lanes.
    pub fn pass_on(&mut self, warp: u32, lanes: u32, alive: u32) {
        if self.phases.on {
            self.phases.pass_on(warp, lanes, alive);
        }
    }

    /// A warp waits for what another did asynchronously.
    pub fn acquire_asynchronous(&mut self, warp: u32, of: u32) {
        if let Some(known) = self.phases.known.get_mut(warp as usize % WARPS) {
            let known = &mut known[of as usize % WARPS];
            *known = (*known).max(1);
            self.phases.version += 1;
        }
    }

    /// The epoch of clocks.
    pub fn age(&self) -> u64 {
        self.phases.age
    }

    /// Who brings bytes that were sent at that age: clocks of another one say nothing, and what
    /// waits for the phase covers the clock that no instruction of a thread has.
    pub fn landing(&self, by: Toucher, age: u64, phase: &mut Released) -> Toucher {
        if !self.phases.on || age == self.phases.age {
            return by;
        }
        phase.renew(self.phases.age);
        let covered = &mut phase.complete[by.thread as usize / 32 % WARPS];
        *covered = (*covered).max(1);
        Toucher { clock: 0, synced: 0, ..by }
    }
}
