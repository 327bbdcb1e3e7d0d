//! Who touched a cell last, in one word: epoch 24 | split 1 | atomic 1 | kind 2 | thread 10 |
//! clock 10 | pc 16. Rules are written without branches, so that a run of cells is judged at once.

use super::{Other, Toucher};

pub(super) const EPOCH_SHIFT: u32 = 40;
/// The cell's bytes have records of their own.
pub(super) const SPLIT: u64 = 1 << 39;
pub(super) const ATOMIC: u64 = 1 << 38;
const KIND_SHIFT: u32 = 36;
pub(super) const THREAD_SHIFT: u32 = 26;
const CLOCK_SHIFT: u32 = 16;

const KINDS: u64 = 3 << KIND_SHIFT;
const THREAD: u64 = 1 << KIND_SHIFT;
const WARP: u64 = 2 << KIND_SHIFT;
const MANY: u64 = 3 << KIND_SHIFT;
const CLOCKS: u64 = 0x3ff << CLOCK_SHIFT;
/// The thread's number in its warp.
const LANES: u64 = 31 << THREAD_SHIFT;
/// What two records of one warp and epoch agree in.
const SAME_WARP: u64 = !(ATOMIC | KINDS | ((1 << (THREAD_SHIFT + 5)) - 1));

pub(super) const LAST_EPOCH: u64 = (1 << 24) - 1;
/// Clocks go up to this one.
pub(crate) const LAST_CLOCK: u32 = (1 << 10) - 1;

/// The last epochs in which someone stored to four cells or read them.
#[derive(Clone, Copy, Default)]
pub(super) struct Four {
    pub stored: u32,
    pub read: u32,
}

/// Whether the records of some of the fours may be of this epoch: stores, reads.
#[inline(always)]
pub(super) fn recent(fours: &[Four], epoch: u64) -> (bool, bool) {
    let (mut stored, mut read) = (false, false);
    for four in fours {
        stored |= four.stored == epoch as u32;
        read |= four.read == epoch as u32;
    }
    (stored, read)
}

/// The record of one thread that touches a cell alone.
#[inline(always)]
pub(super) fn record(epoch: u64, me: Toucher, strong: bool) -> u64 {
    epoch << EPOCH_SHIFT
        | if strong { ATOMIC } else { 0 }
        | THREAD
        | u64::from(me.thread) << THREAD_SHIFT
        | u64::from(me.clock) << CLOCK_SHIFT
        | u64::from(me.pc.min(0xffff))
}

/// My record as earlier ones are compared with it: what its own warp did before the clock that it
/// bears is ordered before it. An arrival at an mbarrier alone orders nothing within the warp.
#[inline(always)]
pub(super) fn judged(mine: u64, me: Toucher) -> u64 {
    let ahead = i64::from(me.clock) - i64::from(me.synced);
    mine.wrapping_sub((ahead << CLOCK_SHIFT) as u64)
}

/// The record of threads that cannot be told apart.
pub(super) fn many(epoch: u64, pc: u32, strong: bool) -> u64 {
    epoch << EPOCH_SHIFT | if strong { ATOMIC } else { 0 } | MANY | u64::from(pc.min(0xffff))
}

/// What a record says of whom it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Named {
    Nobody,
    /// Threads of that warp, at that clock.
    Warp(usize, u32),
    /// Threads of several warps: the number of their set, where phases order the block; 0 for
    /// anybody.
    Set(u32),
}

pub(super) fn named(record: u64) -> Named {
    match record & KINDS {
        0 => Named::Nobody,
        MANY => Named::Set((record >> CLOCK_SHIFT) as u32 & 0xf_ffff),
        _ => Named::Warp(
            (record >> (THREAD_SHIFT + 5)) as usize & 31,
            (record >> CLOCK_SHIFT) as u32 & LAST_CLOCK,
        ),
    }
}

/// The record of a set's threads, the last of which is `mine`; strong only if both are.
pub(super) fn of_set(old: u64, mine: u64, set: u32) -> u64 {
    let strong = old & mine & ATOMIC;
    mine >> EPOCH_SHIFT << EPOCH_SHIFT
        | strong
        | MANY
        | u64::from(set) << CLOCK_SHIFT
        | mine & 0xffff
}

/// Whether some record is of this epoch and names another warp than mine.
#[inline(always)]
pub(super) fn foreign(records: &[u64], mine: u64) -> bool {
    let mut any = false;
    for old in records {
        let apart = old ^ mine;
        any |= (apart >> EPOCH_SHIFT == 0)
            & (old & KINDS != 0)
            & ((apart & SAME_WARP != 0) | (old & KINDS == MANY));
    }
    any
}

/// Whether a record names anybody.
pub(super) fn current_kind(record: u64) -> bool {
    record & KINDS != 0
}

/// A record of many in place of one of the same epoch: strong only if both are.
pub(super) fn strong_only_with(old: u64, many: u64) -> u64 {
    let weak = (old ^ many) >> EPOCH_SHIFT == 0 && current_kind(old) && old & ATOMIC == 0;
    if weak { many & !ATOMIC } else { many }
}

/// Whether a record of a few stands against me.
#[inline(always)]
pub(super) fn against(records: &[u64], mine: u64) -> bool {
    let mut any = false;
    for old in records {
        any |= conflicts(*old, mine);
    }
    any
}

/// The same thread.
#[inline(always)]
fn own(old: u64, mine: u64) -> bool {
    ((old ^ mine) & !ATOMIC) >> THREAD_SHIFT == 0
}

/// Threads of my warp that a `bar.warp.sync` separates from me.
#[inline(always)]
fn before(old: u64, mine: u64) -> bool {
    ((old ^ mine) & SAME_WARP == 0) & (old & KINDS != MANY) & (old & CLOCKS < mine & CLOCKS)
}

/// Whether a record is of this epoch and not ordered before me. A split cell always is in the way.
#[inline(always)]
pub(super) fn conflicts(old: u64, mine: u64) -> bool {
    ((old ^ mine) >> EPOCH_SHIFT == 0) & !own(old, mine) & !before(old, mine)
}

/// The record after I join it.
#[inline(always)]
pub(super) fn merged(old: u64, mine: u64) -> u64 {
    // What a `bar.warp.sync` separates from me stands against nobody who is not separated from it
    // too, but for other warps: such a race of theirs with my older access is missed.
    let alone = ((old ^ mine) >> EPOCH_SHIFT != 0) | before(old, mine);
    let same_warp = ((old ^ mine) & SAME_WARP == 0) & (old & KINDS != MANY);
    let joined = if same_warp { WARP - THREAD } else { MANY - THREAD };
    let more = if alone | own(old, mine) { 0 } else { joined };
    // A set of accesses is strong only while all are.
    let weak = if alone { 0 } else { !old & ATOMIC };
    (mine & !weak) + more
}

/// The same for single records, most of which are of an older epoch or mine.
#[inline(always)]
pub(super) fn joined(old: u64, mine: u64) -> u64 {
    let apart = old ^ mine;
    if apart >> EPOCH_SHIFT != 0 || apart >> THREAD_SHIFT == 0 {
        mine
    } else if apart & !(KINDS | LANES) == 0 && old & KINDS != MANY {
        // Another lane of this very instruction.
        mine + (WARP - THREAD)
    } else if old & KINDS == MANY {
        // One more of many, who are strong only while all are.
        (mine & !(!old & ATOMIC)) + (MANY - THREAD)
    } else {
        merged(old, mine)
    }
}

/// The record after plain reads by two lanes of one instruction, the second of them `mine`: what
/// [`merged`] gives one after the other.
#[inline(always)]
pub(super) fn joined_by_two(old: u64, mine: u64) -> u64 {
    let apart = old ^ mine;
    let same_warp = (apart & SAME_WARP == 0) & (old & KINDS != MANY);
    let few = apart >> EPOCH_SHIFT != 0 || same_warp;
    mine + if few { WARP - THREAD } else { MANY - THREAD }
}

/// The thread and place that a record names.
pub(super) fn other(record: u64) -> Other {
    let pc = record as u32 & 0xffff;
    Other {
        thread: (record & KINDS == THREAD).then_some((record >> THREAD_SHIFT) as u32 & 0x3ff),
        pc: (pc != 0xffff).then_some(pc),
        block: None,
    }
}
