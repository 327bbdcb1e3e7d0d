//! What a block knows to have happened in others: vector time over blocks and their warps.
//! Invariant: a clock only grows, and one too large to keep covers more, never less, so that order
//! is invented at worst and a race never.

/// Entries a clock keeps before it covers everything up to its latest.
const ENTRIES: usize = 4096;
const WARP_BITS: u32 = 6;
/// Stands for every warp of a block.
pub(super) const ALL: u32 = 63;

/// How far one warp of a block, or all, is known.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Block and warp.
    key: u64,
    /// Any access up to here.
    tick: u32,
    /// Strong accesses up to here: those that were observed themselves.
    strong: u32,
}

#[derive(Clone, Default, Debug)]
pub(super) struct Clock {
    /// Every access of every block up to here.
    floor: u32,
    /// Sorted by key.
    known: Vec<Known>,
}

fn key(block: u32, warp: u32) -> u64 {
    u64::from(block) << WARP_BITS | u64::from(warp)
}

impl Clock {
    pub fn clear(&mut self) {
        self.floor = 0;
        self.known.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.floor == 0 && self.known.is_empty()
    }

    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn at(&self, key: u64) -> Option<&Known> {
        self.known.binary_search_by_key(&key, |known| known.key).ok().map(|at| &self.known[at])
    }

    /// Whether an access of that time is covered.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn covers(&self, block: u32, warp: u32, tick: u32, strong: bool) -> bool {
        let reached = |known: &Known| known.tick >= tick || strong && known.strong >= tick;
        tick <= self.floor
            || self.at(key(block, ALL)).is_some_and(reached)
            || self.at(key(block, warp)).is_some_and(reached)
    }

    /// Learns of a warp's accesses.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn learn(&mut self, block: u32, warp: u32, tick: u32, strong: u32) {
        let key = key(block, warp);
        match self.known.binary_search_by_key(&key, |known| known.key) {
            Ok(at) => {
                let known = &mut self.known[at];
                known.tick = known.tick.max(tick);
                known.strong = known.strong.max(strong);
            }
            Err(at) => {
                self.known.insert(at, Known { key, tick, strong });
                self.bound();
            }
        }
    }

    /// Learns what another clock knows.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn join(&mut self, other: &Clock) {
        self.floor = self.floor.max(other.floor);
        if self.known.is_empty() {
            self.known.extend_from_slice(&other.known);
            return;
        }
        let mut at = 0;
        for theirs in &other.known {
            while self.known.get(at).is_some_and(|known| known.key < theirs.key) {
                at += 1;
            }
            match self.known.get_mut(at) {
                Some(known) if known.key == theirs.key => {
                    known.tick = known.tick.max(theirs.tick);
                    known.strong = known.strong.max(theirs.strong);
                }
                _ => self.known.insert(at, *theirs),
            }
        }
        self.bound();
    }

    fn bound(&mut self) {
        if self.known.len() > ENTRIES {
            let latest = self.known.iter().map(|known| known.tick.max(known.strong)).max();
            self.floor = self.floor.max(latest.unwrap_or(0));
            self.known.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_what_it_learnt_and_no_more() {
        let mut clock = Clock::default();
        assert!(clock.is_empty() && !clock.covers(0, 0, 1, false));
        clock.learn(3, 1, 7, 9);
        assert!(clock.covers(3, 1, 7, false) && !clock.covers(3, 1, 8, false));
        assert!(clock.covers(3, 1, 9, true) && !clock.covers(3, 1, 10, true));
        assert!(!clock.covers(3, 2, 7, false) && !clock.covers(2, 1, 7, false));
        clock.learn(3, ALL, 5, 0);
        assert!(clock.covers(3, 2, 5, false) && !clock.covers(3, 2, 6, false));
        let mut other = Clock::default();
        other.learn(4, 0, 2, 0);
        other.join(&clock);
        assert!(other.covers(3, 1, 7, false) && other.covers(4, 0, 2, false));
    }

    #[test]
    fn a_clock_too_large_covers_more() {
        let mut clock = Clock::default();
        for block in 0..=ENTRIES as u32 {
            clock.learn(block, 0, block + 1, 0);
        }
        assert!(clock.known.len() <= ENTRIES);
        for block in 0..=ENTRIES as u32 {
            assert!(clock.covers(block, 0, block + 1, false));
        }
        assert!(!clock.covers(0, 0, ENTRIES as u32 + 2, false));
    }
}
