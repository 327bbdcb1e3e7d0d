//! How fences, strong accesses and barriers order the accesses of blocks.
//! A release is a strong store (atomic, `.volatile`, `.relaxed`, `.release`) after a fence of the
//! whole GPU, by the same thread or before a barrier; an acquire is any strong load of the place.
//! Where the rules of PTX ask for more (a fence after the load, fences of every thread), nothing
//! more is asked here. Threads of a warp count as one.

use super::clock::{ALL, Clock};
use std::collections::HashMap;

/// Places a launch may synchronise at before older order is taken for granted.
const PLACES: usize = 4096;
const WARPS: usize = 32;

/// What one block has fenced and learnt.
#[derive(Default)]
pub(crate) struct Standing {
    pub serial: u32,
    /// Accesses up to here were before the last barrier.
    barrier: u32,
    /// The state of the log at the last barrier.
    seen: u32,
    /// Known to every thread.
    clock: Clock,
    /// Known to single warps until a barrier.
    pending: Vec<(u32, Clock)>,
    /// A warp's last fence since the barrier: its time and that of the barrier before.
    fences: [Option<(u32, u32)>; WARPS],
    fenced: bool,
    /// Fenced before the last barrier: by all, by each warp.
    settled_all: u32,
    settled: [u32; WARPS],
    /// Grows with what the block learns or fences.
    stamp: u32,
    /// The place and version acquired last.
    acquired: (u64, u32),
    /// The place told of all that was known at that stamp.
    told: (u64, u32),
}

impl Standing {
    pub fn restart(&mut self, serial: u32, tick: u32) {
        self.serial = serial;
        self.barrier = tick - 1;
        self.seen = 0;
        self.clock.clear();
        self.pending.clear();
        self.fences = [None; WARPS];
        self.fenced = false;
        self.settled_all = 0;
        self.settled = [0; WARPS];
        self.stamp = 1;
        self.acquired = (0, 0);
        self.told = (0, 0);
    }

    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn pending(&mut self, warp: u32) -> &mut Clock {
        let at = match self.pending.iter().position(|(w, _)| *w == warp) {
            Some(at) => at,
            None => {
                self.pending.push((warp, Clock::default()));
                self.pending.len() - 1
            }
        };
        &mut self.pending[at].1
    }
}

#[derive(Default)]
struct Place {
    clock: Clock,
    version: u32,
}

/// The order of a launch.
#[derive(Default)]
pub(super) struct Order {
    /// Grows with every fence, barrier and strong access.
    pub tick: u32,
    places: HashMap<u64, Place>,
    spare: Vec<Place>,
    /// Accesses up to here are taken for ordered.
    floor: u32,
}

impl Order {
    pub fn restart(&mut self) {
        self.tick = 1;
        self.floor = 0;
        self.spare.extend(self.places.drain().map(|(_, place)| place));
        self.spare.truncate(PLACES);
    }

    /// The time until now, which ends.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn end_tick(&mut self) -> u32 {
        let now = self.tick;
        self.tick = self.tick.saturating_add(1);
        now
    }

    /// Whether an access of another block is ordered before this warp.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn before(
        &self,
        me: &Standing,
        warp: u32,
        [their_block, their_warp, tick]: [u32; 3],
        strong: bool,
    ) -> bool {
        let covers = |clock: &Clock| clock.covers(their_block, their_warp, tick, strong);
        tick <= self.floor
            || covers(&me.clock)
            || me.pending.iter().any(|(w, clock)| *w == warp && covers(clock))
    }

    /// A fence of the whole GPU.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn fence(&mut self, me: &mut Standing, warp: u32) {
        let now = self.end_tick();
        me.fences[warp as usize % WARPS] = Some((now, me.barrier));
        me.fenced = true;
        me.stamp += 1;
    }

    /// The threads of a block meet. `seen` changes when one of them accessed global memory.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn barrier(&mut self, me: &mut Standing, seen: u32) {
        if !me.fenced && me.pending.is_empty() && me.seen == seen {
            return;
        }
        me.seen = seen;
        me.stamp += 1;
        me.barrier = self.end_tick();
        if me.fenced {
            me.fenced = false;
            for (fence, settled) in me.fences.iter_mut().zip(&mut me.settled) {
                if let Some((tick, barrier)) = fence.take() {
                    *settled = tick;
                    me.settled_all = me.settled_all.max(barrier);
                }
            }
        }
        for (_, clock) in me.pending.drain(..) {
            me.clock.join(&clock);
        }
    }

    /// A strong load.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn acquire(&mut self, me: &mut Standing, warp: u32, place: u64) {
        self.end_tick();
        let Some(found) = self.places.get(&place) else {
            return;
        };
        let what = (place ^ u64::from(warp) << 56, found.version);
        if me.acquired == what || found.clock.is_empty() {
            return;
        }
        me.acquired = what;
        me.stamp += 1;
        me.pending(warp).join(&found.clock);
    }

    /// A strong store, which what was fenced travels with.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn release(&mut self, me: &mut Standing, warp: u32, place: u64) {
        let now = self.end_tick();
        if self.places.len() >= PLACES && !self.places.contains_key(&place) {
            self.floor = now;
            self.spare.extend(self.places.drain().map(|(_, place)| place));
        }
        let target = self.places.entry(place).or_insert_with(|| {
            let mut fresh = self.spare.pop().unwrap_or_default();
            fresh.clock.clear();
            fresh.version = 0;
            fresh
        });
        // What a block tells a place is no news to it.
        let key = place ^ u64::from(warp) << 56;
        let current = me.acquired == (key, target.version);
        target.version = target.version.wrapping_add(1);
        if current {
            me.acquired.1 = target.version;
        }
        let clock = &mut target.clock;
        if me.told == (key, me.stamp) && !clock.is_empty() {
            return clock.learn(me.serial, warp, 0, now);
        }
        me.told = (key, me.stamp);
        clock.join(&me.clock);
        for (w, known) in &me.pending {
            if *w == warp {
                clock.join(known);
            }
        }
        let own = me.fences[warp as usize % WARPS].unwrap_or_default();
        let all = me.settled_all.max(own.1);
        if all != 0 {
            clock.learn(me.serial, ALL, all, 0);
        }
        for (w, settled) in me.settled.iter().enumerate() {
            if *settled > all && w as u32 != warp {
                clock.learn(me.serial, w as u32, *settled, 0);
            }
        }
        let mine = me.settled[warp as usize % WARPS].max(own.0);
        clock.learn(me.serial, warp, mine, now);
    }
}
