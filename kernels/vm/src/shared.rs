//! Shared memory of one block: bytes, who may read them, and who touched them last.
//! A race is two accesses of one byte in one epoch, one of them a store, by threads that no
//! `bar.warp.sync`, no phase of an mbarrier ([`phases`]) and no fence with a flag orders. Atomic and
//! volatile accesses do not race among themselves. A store of the value already there does not race
//! with the store that put it there. Barriers of a part of the block order the whole block here: such
//! races can be missed, none is invented.

mod distant;
mod flags;
mod generic;
mod many;
mod phases;
mod record;

use crate::fault::RaceKind;
use crate::program::SharedArray;
pub(crate) use distant::Distant;
use distant::Past;
use flags::Flags;
use generic::Generic;
use phases::Phases;
pub(crate) use phases::Released;
pub(crate) use record::LAST_CLOCK;
use record::{
    ATOMIC, EPOCH_SHIFT, Four, LAST_EPOCH, SPLIT, THREAD_SHIFT, conflicts, foreign, judged, merged,
    other, recent, record,
};
use std::ops::Range;

const REDZONE: u8 = 0;
const UNINIT: u8 = 1;
const INIT: u8 = 3;

/// How a thread touches memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touch {
    Read,
    Write,
    /// Atomic or volatile read.
    StrongRead,
    /// Atomic read-modify-write or volatile store.
    StrongWrite,
}

impl Touch {
    fn writes(self) -> bool {
        matches!(self, Touch::Write | Touch::StrongWrite)
    }

    fn strong(self) -> bool {
        matches!(self, Touch::StrongRead | Touch::StrongWrite)
    }
}

/// Why an access is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SharedFault {
    OutOfBounds,
    Uninitialised { offset: u64 },
    Race { race: RaceKind, other: Other },
}

/// The other side of a race.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Other {
    pub thread: Option<u32>,
    pub pc: Option<u32>,
    /// The number of its block, where it is another one.
    pub block: Option<u32>,
}

#[derive(Default)]
pub(crate) struct Shared {
    pub data: Vec<u8>,
    state: Vec<u8>,
    template: Vec<u8>,
    writers: Vec<u64>,
    readers: Vec<u64>,
    byte_writers: Vec<u64>,
    byte_readers: Vec<u64>,
    /// Of every four cells. Records of a cell are of this epoch only where its four say so, which
    /// is all that most accesses need to know.
    fours: Vec<Four>,
    pub epoch: u64,
    /// What other blocks of the cluster did since the cluster was ordered.
    distant: Vec<Past>,
    /// Groups of bulk copies that threads have closed.
    bulk_groups: Vec<(u32, u32)>,
    /// The first epoch since then.
    ordered: u64,
    /// Times the block met: by a barrier or an mbarrier, or a thread may have learnt of others.
    meetings: u64,
    /// Stores that the asynchronous proxy cannot see.
    pub generic: Generic,
    flags: Flags,
    phases: Phases,
}

/// Whether all bytes are initialised; a comparison each for the sizes of single accesses.
#[inline(always)]
fn all_ready(state: &[u8]) -> bool {
    match state.len() {
        4 => state == [INIT; 4],
        8 => state == [INIT; 8],
        16 => state == [INIT; 16],
        _ => {
            let (sixteens, rest) = state.as_chunks::<16>();
            sixteens.iter().all(|s| *s == [INIT; 16]) && rest.iter().all(|s| *s == INIT)
        }
    }
}

/// The thread that touches.
#[derive(Clone, Copy)]
pub(crate) struct Toucher {
    pub thread: u32,
    pub clock: u32,
    /// What its own warp did before this clock is ordered before it.
    pub synced: u32,
    pub pc: u32,
}

impl Shared {
    /// Lays out the arrays and the dynamic part for a launch.
    pub fn prepare(&mut self, arrays: &[SharedArray], dynamic_offset: u32, dynamic_bytes: u32) {
        let end = (dynamic_offset + dynamic_bytes).next_multiple_of(4) as usize;
        self.template.clear();
        self.template.resize(end, REDZONE);
        for array in arrays {
            let start = array.offset_bytes as usize;
            self.template[start..start + array.size_bytes as usize].fill(UNINIT);
        }
        let start = dynamic_offset as usize;
        self.template[start..start + dynamic_bytes as usize].fill(UNINIT);
        self.data.clear();
        self.data.resize(end, 0);
        let cells = end / 4;
        if self.fours.len() < cells.div_ceil(4) {
            self.fours.resize(cells.div_ceil(4), Four::default());
        }
        // Epochs grow over the machine's whole life: records of older launches are stale.
        for records in [&mut self.writers, &mut self.readers] {
            if records.len() < cells {
                records.resize(cells, 0);
            }
        }
        for records in [&mut self.byte_writers, &mut self.byte_readers] {
            if records.len() < end {
                records.resize(end, 0);
            }
        }
    }

    /// Forgets the previous block. `phased`: phases of mbarriers order the next one's warps.
    pub fn start_block(&mut self, phased: bool) {
        self.phases.on = phased;
        self.state.clear();
        self.state.extend_from_slice(&self.template);
        self.distant.clear();
        self.bulk_groups.clear();
        self.generic.clear();
        self.flags.clear();
        self.order();
    }

    /// A barrier: everything before is ordered with everything after.
    pub fn next_epoch(&mut self) {
        if self.epoch >= LAST_EPOCH {
            self.forget();
        }
        self.epoch += 1;
        self.meetings += 1;
        self.flags.clear();
        self.phases.restart();
        if !self.distant.is_empty() {
            self.stamp_all();
        }
    }

    /// Drops every record: races may be missed, none is invented.
    pub fn forget(&mut self) {
        self.writers.fill(0);
        self.readers.fill(0);
        self.fours.fill(Four::default());
        self.epoch = 0;
        self.ordered = 0;
        self.meetings += 1;
    }

    /// A thread's own instruction stores to bytes, in a kernel whose tensor cores read them.
    pub fn generic_store(&mut self, offset: u64, len: usize, by: Toucher) {
        self.generic.store(offset, len, by, self.meetings);
    }

    /// A thread may have learnt what others did.
    pub fn learned(&mut self) {
        self.meetings += 1;
    }

    /// `fence.proxy.async` by a warp.
    pub fn fence_proxy(&mut self, warp: u32) {
        self.generic.fence(warp, self.meetings);
    }

    /// Who stored to a byte last, as far as it is still recorded.
    pub fn last_writer(&self, offset: usize) -> Option<Other> {
        let record = *self.writers.get(offset / 4)?;
        let record = if record & SPLIT != 0 { *self.byte_writers.get(offset)? } else { record };
        (record != 0).then(|| other(record))
    }

    /// Whether the bytes belong to one array.
    #[inline(always)]
    pub fn in_bounds(&self, offset: u64, len: usize) -> bool {
        usize::try_from(offset).is_ok_and(|offset| self.ready(offset, len).is_some())
    }

    #[inline(always)]
    fn current(&self, record: u64) -> bool {
        record >> EPOCH_SHIFT == self.epoch
    }

    /// Checks one pair of records and returns the new ones.
    fn judge(
        &mut self,
        [writer, reader]: [u64; 2],
        me: Toucher,
        touch: Touch,
        same_value: bool,
    ) -> Result<[u64; 2], (RaceKind, Other)> {
        let mine = record(self.epoch, me, touch.strong());
        let strong_pair = touch.strong() && writer & ATOMIC != 0;
        if !touch.writes() {
            if !strong_pair && self.against(writer, me) {
                return Err((RaceKind::ReadAfterWrite, other(writer)));
            }
            return Ok([writer, self.join(reader, mine, me)]);
        }
        let reads_strong = touch.strong() && reader & ATOMIC != 0;
        if !reads_strong && self.against(reader, me) {
            return Err((RaceKind::WriteAfterRead, other(reader)));
        }
        if !strong_pair && self.against(writer, me) {
            if same_value && !touch.strong() && writer & ATOMIC == 0 {
                return Ok([writer, reader]);
            }
            return Err((RaceKind::WriteAfterWrite, other(writer)));
        }
        let next = if touch.strong() { self.join(writer, mine, me) } else { mine };
        Ok([next, reader])
    }

    /// Whether an earlier access is not ordered before me.
    #[inline(always)]
    fn against(&self, old: u64, me: Toucher) -> bool {
        conflicts(old, judged(record(self.epoch, me, false), me)) && !self.phases.order(old, me)
    }

    /// The record after I join it.
    #[inline(always)]
    fn join(&mut self, old: u64, mine: u64, me: Toucher) -> u64 {
        if self.phases.on && foreign(&[old], mine) {
            self.phases.join(old, mine, me)
        } else {
            merged(old, mine)
        }
    }

    fn touch_cell(
        &mut self,
        cell: usize,
        bytes: Range<usize>,
        me: Toucher,
        touch: Touch,
        same_value: bool,
    ) -> Result<(), SharedFault> {
        let race = |(race, other)| SharedFault::Race { race, other };
        let base = cell * 4;
        let old = [self.writers[cell], self.readers[cell]];
        self.fours[cell / 4] = Four { stored: self.epoch as u32, read: self.epoch as u32 };
        if old[0] & SPLIT == 0 || !self.current(old[0]) {
            if bytes == (base..base + 4) {
                let next = self.judge(old, me, touch, same_value).map_err(race)?;
                [self.writers[cell], self.readers[cell]] = next;
                return Ok(());
            }
            let [writer, reader] = old.map(|old| if self.current(old) { old } else { 0 });
            self.byte_writers[base..base + 4].fill(writer);
            self.byte_readers[base..base + 4].fill(reader);
            self.writers[cell] = self.epoch << EPOCH_SHIFT | SPLIT;
        }
        for byte in bytes {
            let old = [self.byte_writers[byte], self.byte_readers[byte]];
            let next = self.judge(old, me, touch, same_value).map_err(race)?;
            [self.byte_writers[byte], self.byte_readers[byte]] = next;
        }
        Ok(())
    }

    /// Records an access of in-bounds bytes and reports a race. `same_value`: the store leaves
    /// every byte as it is.
    pub fn touch(
        &mut self,
        offset: usize,
        len: usize,
        me: Toucher,
        touch: Touch,
        same_value: bool,
    ) -> Result<(), SharedFault> {
        let end = offset + len;
        for cell in offset / 4..end.div_ceil(4) {
            let bytes = offset.max(cell * 4)..end.min(cell * 4 + 4);
            self.touch_cell(cell, bytes, me, touch, same_value)
                .map_err(|fault| self.named(fault, cell * 4, cell * 4 + 4))?;
        }
        Ok(())
    }

    /// Whether all bytes are initialised; `None` when some lie outside.
    #[inline(always)]
    pub fn ready(&self, offset: usize, len: usize) -> Option<bool> {
        let state = self.state.get(offset..offset.checked_add(len)?)?;
        if all_ready(state) {
            return Some(true);
        }
        let mut all = INIT;
        for s in state {
            all &= *s;
        }
        match all {
            INIT => Some(true),
            UNINIT => Some(false),
            _ => None,
        }
    }

    /// Checks a load of one thread, in bounds included.
    #[inline(always)]
    pub fn load(
        &mut self,
        offset: u64,
        len: usize,
        me: Toucher,
        touch: Touch,
    ) -> Result<(), SharedFault> {
        if touch == Touch::Read && self.read_run(offset, 1, len, me) {
            return Ok(());
        }
        match usize::try_from(offset).ok().and_then(|o| self.ready(o, len)) {
            None => Err(SharedFault::OutOfBounds),
            Some(false) => {
                let first = (0..len as u64)
                    .find(|i| self.state[(offset + i) as usize] != INIT)
                    .unwrap_or(0);
                // A race explains missing bytes better where there is one.
                Err(SharedFault::Uninitialised { offset: offset + first })
            }
            Some(true) => self.touch(offset as usize, len, me, touch, true),
        }
    }

    /// Checks a store of one thread and writes the bytes.
    #[inline(always)]
    pub fn store(
        &mut self,
        offset: u64,
        bytes: &[u8],
        me: Toucher,
        touch: Touch,
    ) -> Result<(), SharedFault> {
        let len = bytes.len();
        let at = usize::try_from(offset).map_err(|_| SharedFault::OutOfBounds)?;
        if touch == Touch::Write && self.write_run(offset, 1, len, me) {
            self.data[at..at + len].copy_from_slice(bytes);
            return Ok(());
        }
        let Some(ready) = self.ready(at, len) else {
            return Err(SharedFault::OutOfBounds);
        };
        let same = ready && self.data[at..at + len] == *bytes;
        self.touch(at, len, me, touch, same)?;
        self.data[at..at + len].copy_from_slice(bytes);
        if !ready {
            self.state[at..at + len].fill(INIT);
        }
        Ok(())
    }

    /// Bytes become initialised or not without a thread's access (asynchronous copies).
    #[inline(always)]
    pub fn set_ready(&mut self, offset: usize, len: usize, ready: bool) {
        self.state[offset..offset + len].fill(if ready { INIT } else { UNINIT });
        self.generic.forget(offset, len);
    }

    /// The cells of whole words that hold values.
    #[inline(always)]
    fn cells(&self, offset: u64, len: usize) -> Option<Range<usize>> {
        let at = usize::try_from(offset).ok()?;
        let whole = (at | len).is_multiple_of(4) && self.ready(at, len)?;
        whole.then(|| at / 4..(at + len) / 4)
    }

    /// A read of `lanes` consecutive pieces by consecutive threads, when nothing stands against
    /// it; `false` asks for the slow way.
    #[inline(always)]
    pub fn read_run(&mut self, offset: u64, lanes: usize, piece: usize, first: Toucher) -> bool {
        let Some(cells) = self.cells(offset, lanes * piece) else {
            return false;
        };
        match piece {
            4 => self.run::<1, false>(cells, first),
            8 => self.run::<2, false>(cells, first),
            16 => self.run::<4, false>(cells, first),
            _ => false,
        }
    }

    /// The same for a store; the bytes count as initialised from then on.
    #[inline(always)]
    pub fn write_run(&mut self, offset: u64, lanes: usize, piece: usize, first: Toucher) -> bool {
        let (Ok(at), len) = (usize::try_from(offset), lanes * piece) else {
            return false;
        };
        let Some(ready) = self.ready(at, len) else {
            return false;
        };
        if !at.is_multiple_of(4) {
            return false;
        }
        let cells = at / 4..(at + len) / 4;
        let done = match piece {
            4 => self.run::<1, true>(cells, first),
            8 => self.run::<2, true>(cells, first),
            16 => self.run::<4, true>(cells, first),
            _ => false,
        };
        if done && !ready {
            self.state[at..at + len].fill(INIT);
        }
        done
    }

    /// Records a run over whole cells, `CELLS` of them a thread, unless one is in its way.
    #[inline(always)]
    fn run<const CELLS: usize, const STORE: bool>(
        &mut self,
        cells: Range<usize>,
        first: Toucher,
    ) -> bool {
        if self.phases.on {
            return self.run_in_phases::<CELLS, STORE>(cells, first);
        }
        self.run_over::<CELLS, STORE, false>(cells, first)
    }

    #[inline(never)]
    fn run_in_phases<const CELLS: usize, const STORE: bool>(
        &mut self,
        cells: Range<usize>,
        first: Toucher,
    ) -> bool {
        self.run_over::<CELLS, STORE, true>(cells, first)
    }

    #[inline(always)]
    fn run_over<const CELLS: usize, const STORE: bool, const PHASED: bool>(
        &mut self,
        cells: Range<usize>,
        first: Toucher,
    ) -> bool {
        let me = first;
        let first = record(self.epoch, me, false);
        let judged = if PHASED { judged(first, me) } else { first };
        let lane = |i: usize| ((i / CELLS) as u64) << THREAD_SHIFT;
        let mine = |i: usize| first + lane(i);
        let fours = &mut self.fours[cells.start / 4..cells.end.div_ceil(4)];
        let (stored, read) = recent(fours, self.epoch);
        let writers = &mut self.writers[cells.clone()];
        let readers = &mut self.readers[cells];
        let mut against = false;
        if stored {
            for (i, writer) in writers.iter().enumerate() {
                against |= conflicts(*writer, judged + lane(i));
            }
        }
        if STORE && read {
            for (i, reader) in readers.iter().enumerate() {
                against |= conflicts(*reader, judged + lane(i));
            }
        }
        if PHASED && !STORE && read {
            against |= foreign(readers, first);
        }
        if against {
            return false;
        }
        for four in fours {
            let last = if STORE { &mut four.stored } else { &mut four.read };
            *last = self.epoch as u32;
        }
        if STORE {
            for (i, writer) in writers.iter_mut().enumerate() {
                *writer = mine(i);
            }
        } else if read {
            for (i, reader) in readers.iter_mut().enumerate() {
                *reader = merged(*reader, mine(i));
            }
        } else {
            for (i, reader) in readers.iter_mut().enumerate() {
                *reader = mine(i);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
