//! Flags between the threads of a block: what a thread did before a fence is ordered before what
//! another does after a strong load of the place that the first stored to strongly since. As with
//! barriers, everything before is then ordered with everything after: races can be missed, none is
//! invented. A fence before the load's successors is not asked for.

use super::{Shared, Toucher};

/// Raised flags that are kept; with more the block counts as ordered.
const MOST: usize = 64;

#[derive(Default)]
pub(super) struct Flags {
    /// Warps that fenced since everything was ordered last.
    fenced: u32,
    /// Places stored to strongly after a fence, by which thread.
    raised: Vec<(u64, u32)>,
}

impl Flags {
    /// Everything is ordered.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.fenced = 0;
        self.raised.clear();
    }
}

impl Shared {
    /// A fence of the block, or a wider one, by a warp.
    pub fn fence_block(&mut self, warp: u32) {
        self.flags.fenced |= 1 << (warp % 32);
    }

    /// Whether a strong access by a warp may raise a flag or see one.
    #[inline(always)]
    pub fn flagged(&self, warp: u32) -> bool {
        !self.flags.raised.is_empty() || self.flags.fenced >> (warp % 32) & 1 != 0
    }

    /// A strong store to a place: an offset in shared memory, or an address of another space.
    /// `fenced`: a fence comes with it.
    pub fn raise(&mut self, place: u64, me: Toucher, fenced: bool) {
        if !fenced && self.flags.fenced >> (me.thread / 32 % 32) & 1 == 0 {
            return;
        }
        if let Some(flag) = self.flags.raised.iter_mut().find(|flag| flag.0 == place) {
            flag.1 = me.thread;
        } else if self.flags.raised.len() < MOST {
            self.flags.raised.push((place, me.thread));
        } else {
            self.next_epoch();
        }
    }

    /// A strong load of a place.
    pub fn look(&mut self, place: u64, me: Toucher) {
        if self.flags.raised.iter().any(|flag| flag.0 == place && flag.1 != me.thread) {
            self.next_epoch();
        }
    }
}
