//! One warp: its registers and the groups of lanes that stand at different places.
//! Invariant: fragments are disjoint and cover exactly the lanes that have not exited.

use crate::program::{Class, Reg};
use crate::syntax::Space;

/// All lanes.
pub(crate) const FULL: u32 = u32::MAX;

#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Words(pub [u32; 32]);

#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Longs(pub [u64; 32]);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Ready,
    /// At a `.sync` operation, waiting for lanes of its mask.
    Gathering,
    /// Arrived at that block barrier.
    AtBarrier(u8),
}

/// Lanes that stand at one place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    pub pc: u32,
    pub mask: u32,
    pub state: State,
}

/// The last strong accesses that changed nothing.
#[derive(Clone, Copy, Default)]
pub(crate) struct Poll {
    pub pc: u32,
    pub lane: u32,
    pub space: Space,
    pub address: u64,
    /// Changes of memory in the launch until then.
    changes: u64,
    /// Times the warp came back to `pc` since; 0 for any place.
    pub times: u32,
    /// Times its lanes elsewhere were let past since.
    pub passed: u32,
}

/// Times a warp comes back to a poll before others run.
const POLLS: u32 = 32;

#[derive(Default)]
pub(crate) struct Warp {
    pub words: Vec<Words>,
    pub longs: Vec<Longs>,
    pub predicates: Vec<u32>,
    pub fragments: Vec<Fragment>,
    /// Lanes that have not exited.
    pub alive: u32,
    pub index: u32,
    /// Counts `bar.warp.sync`, and arrivals at mbarriers, within an epoch; asynchronous accesses
    /// have the clock 0.
    pub clock: u32,
    /// The clock before which its own lanes' accesses are ordered.
    pub synced: u32,
    /// Let other fragments run first although they stand further on.
    pub yielding: Option<u32>,
    pub poll: Poll,
    /// Lanes that arrived at the cluster's barrier and have not waited there, and those of them that
    /// did in an odd phase.
    pub arrived: u32,
    pub arrived_odd: u32,
    /// Where each lane exited, under strict rules.
    pub exits: Vec<u32>,
}

impl Warp {
    /// An epoch begins for it.
    #[inline(always)]
    pub fn restart_clock(&mut self) {
        (self.clock, self.synced) = (1, 1);
    }

    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn is_ready(&self) -> bool {
        self.fragments.iter().any(|fragment| fragment.state == State::Ready)
    }

    /// Counts a strong access that changed nothing; true when it is time to let others run.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn polls(&mut self, pc: u32, lane: u32, place: (Space, u64), changes: u64) -> bool {
        let poll = &mut self.poll;
        if poll.changes != changes || poll.times == 0 {
            let passed = if poll.changes == changes { poll.passed } else { 0 };
            let (space, address) = place;
            *poll = Poll { pc, lane, space, address, changes, times: 1, passed };
        } else if poll.pc == pc {
            (poll.space, poll.address) = place;
            poll.lane = lane;
            poll.times += 1;
        }
        if poll.times > POLLS {
            poll.times = 0;
            return true;
        }
        false
    }

    /// Notes a test that failed; others run at once.
    pub fn waits(&mut self, pc: u32, lane: u32, (space, address): (Space, u64)) {
        self.poll = Poll { pc, lane, space, address, ..self.poll };
    }

    /// Merges ready fragments at equal places and takes out the one to run.
    #[inline(always)]
    pub fn pick(&mut self) -> Option<Fragment> {
        let after = self.yielding.take();
        if let [only] = *self.fragments {
            if only.state != State::Ready {
                return None;
            }
            self.fragments.clear();
            return Some(only);
        }
        self.pick_among(after)
    }

    #[cfg_attr(feature = "libfuzzer", inline(always))]
    #[cfg_attr(not(feature = "libfuzzer"), inline(never))]
    fn pick_among(&mut self, after: Option<u32>) -> Option<Fragment> {
        let mut best: Option<usize> = None;
        for (i, fragment) in self.fragments.iter().enumerate() {
            if fragment.state != State::Ready {
                continue;
            }
            let later = |pc: u32| after.is_some_and(|limit| pc <= limit);
            let better = match best {
                None => true,
                Some(j) => {
                    let other = &self.fragments[j];
                    (later(fragment.pc), fragment.pc) < (later(other.pc), other.pc)
                }
            };
            if better {
                best = Some(i);
            }
        }
        let mut chosen = self.fragments.swap_remove(best?);
        let mut i = 0;
        while i < self.fragments.len() {
            let other = self.fragments[i];
            if other.pc == chosen.pc && !matches!(other.state, State::AtBarrier(_)) {
                chosen.mask |= other.mask;
                self.fragments.swap_remove(i);
            } else {
                i += 1;
            }
        }
        Some(chosen)
    }

    pub fn word(&self, slot: u16) -> &[u32; 32] {
        &self.words[usize::from(slot)].0
    }

    /// A register's value in one lane, zero-extended.
    #[inline(always)]
    pub fn value(&self, reg: Reg, lane: usize) -> u64 {
        let slot = usize::from(reg.slot);
        match reg.class {
            Class::Predicate => u64::from(self.predicates[slot] >> lane & 1),
            Class::Word => u64::from(self.words[slot].0[lane]),
            Class::Long => self.longs[slot].0[lane],
        }
    }

    /// Sets a register in one lane.
    #[inline(always)]
    pub fn set(&mut self, reg: Reg, lane: usize, value: u64) {
        let slot = usize::from(reg.slot);
        match reg.class {
            Class::Predicate => {
                let bit = 1 << lane;
                if value & 1 != 0 {
                    self.predicates[slot] |= bit;
                } else {
                    self.predicates[slot] &= !bit;
                }
            }
            Class::Word => self.words[slot].0[lane] = value as u32,
            Class::Long => self.longs[slot].0[lane] = value,
        }
    }

    /// Sets a register in the lanes of a mask.
    #[inline(always)]
    pub fn set_masked(&mut self, reg: Reg, mask: u32, value: u64) {
        let slot = usize::from(reg.slot);
        match reg.class {
            Class::Predicate => {
                let p = self.predicates[slot];
                self.predicates[slot] = if value & 1 != 0 { p | mask } else { p & !mask };
            }
            Class::Word if mask == FULL => self.words[slot].0 = [value as u32; 32],
            _ => lanes(mask).for_each(|lane| self.set(reg, lane, value)),
        }
    }

    /// Sets a register in every lane.
    pub fn fill(&mut self, reg: Reg, value: u64) {
        let slot = usize::from(reg.slot);
        match reg.class {
            Class::Predicate => self.predicates[slot] = if value & 1 != 0 { FULL } else { 0 },
            Class::Word => self.words[slot].0 = [value as u32; 32],
            Class::Long => self.longs[slot].0 = [value; 32],
        }
    }
}

/// The set lanes of a mask, lowest first.
#[inline(always)]
pub(crate) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let lane = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            lane
        })
    })
}
