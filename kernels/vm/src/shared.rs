//! Shared memory of one block: bytes, who may read them, and who touched them last.
//! A race is two accesses of one byte in one epoch, one of them a store, by threads that no
//! `bar.warp.sync` orders. Atomic and volatile accesses do not race among themselves. A store
//! of the value already there does not race with the store that put it there. Barriers of a part
//! of the block order the whole block here: such races can be missed, none is invented.

use crate::fault::RaceKind;
use crate::program::SharedArray;

const REDZONE: u8 = 0;
const UNINIT: u8 = 1;
const INIT: u8 = 3;

// Record: epoch 24 | split 1 | atomic 1 | kind 2 | thread 10 | clock 10 | pc 16.
const EPOCH_SHIFT: u32 = 40;
const SPLIT: u64 = 1 << 39;
const ATOMIC: u64 = 1 << 38;
const KIND_SHIFT: u32 = 36;
const THREAD_SHIFT: u32 = 26;
const CLOCK_SHIFT: u32 = 16;
const KIND_THREAD: u64 = 1;
const KIND_WARP: u64 = 2;
const KIND_MANY: u64 = 3;
const LAST_EPOCH: u64 = (1 << 24) - 1;
pub(crate) const LAST_CLOCK: u32 = (1 << 10) - 1;

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
    epoch: u64,
}

/// The thread that touches.
#[derive(Clone, Copy)]
pub(crate) struct Toucher {
    pub thread: u32,
    pub clock: u32,
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

    /// Forgets the previous block.
    pub fn start_block(&mut self) {
        self.state.clear();
        self.state.extend_from_slice(&self.template);
        self.next_epoch();
    }

    /// A barrier: everything before is ordered with everything after.
    pub fn next_epoch(&mut self) {
        if self.epoch >= LAST_EPOCH {
            self.forget();
        }
        self.epoch += 1;
    }

    /// Drops every record: races may be missed, none is invented.
    pub fn forget(&mut self) {
        self.writers.fill(0);
        self.readers.fill(0);
        self.epoch = 0;
    }

    /// Whether the bytes belong to one array.
    #[inline(always)]
    pub fn in_bounds(&self, offset: u64, len: usize) -> bool {
        usize::try_from(offset).is_ok_and(|offset| self.ready(offset, len).is_some())
    }

    #[inline(always)]
    fn record(&self, me: Toucher, kind: u64, strong: bool) -> u64 {
        self.epoch << EPOCH_SHIFT
            | if strong { ATOMIC } else { 0 }
            | kind << KIND_SHIFT
            | u64::from(me.thread) << THREAD_SHIFT
            | u64::from(me.clock) << CLOCK_SHIFT
            | u64::from(me.pc.min(0xffff))
    }

    #[inline(always)]
    fn current(&self, record: u64) -> bool {
        record >> EPOCH_SHIFT == self.epoch
    }

    #[inline(always)]
    fn conflicts(&self, record: u64, me: Toucher) -> bool {
        if !self.current(record) {
            return false;
        }
        let thread = (record >> THREAD_SHIFT) as u32 & 0x3ff;
        let clock = (record >> CLOCK_SHIFT) as u32 & 0x3ff;
        let same_warp = thread / 32 == me.thread / 32;
        match record >> KIND_SHIFT & 3 {
            KIND_THREAD => thread != me.thread && !(same_warp && clock < me.clock),
            KIND_WARP => !(same_warp && clock < me.clock),
            KIND_MANY => true,
            _ => false,
        }
    }

    /// The record after `me` joins it.
    #[inline(always)]
    fn merged(&self, record: u64, me: Toucher, strong: bool) -> u64 {
        let mine = self.record(me, KIND_THREAD, strong);
        if !self.current(record) {
            return mine;
        }
        let thread = (record >> THREAD_SHIFT) as u32 & 0x3ff;
        let clock = (record >> CLOCK_SHIFT) as u32 & 0x3ff;
        let same_warp = thread / 32 == me.thread / 32;
        // A set of accesses is strong only while all are.
        let strong = strong && record & ATOMIC != 0;
        match record >> KIND_SHIFT & 3 {
            KIND_THREAD if thread == me.thread => self.record(me, KIND_THREAD, strong),
            KIND_THREAD | KIND_WARP if same_warp && clock < me.clock => mine,
            KIND_THREAD | KIND_WARP if same_warp => self.record(me, KIND_WARP, strong),
            _ => self.record(me, KIND_MANY, strong),
        }
    }

    fn other(&self, record: u64) -> Other {
        let pc = record as u32 & 0xffff;
        Other {
            thread: (record >> KIND_SHIFT & 3 == KIND_THREAD)
                .then_some((record >> THREAD_SHIFT) as u32 & 0x3ff),
            pc: (pc != 0xffff).then_some(pc),
        }
    }

    /// Checks one pair of records and returns the new ones.
    fn judge(
        &self,
        writer: u64,
        reader: u64,
        me: Toucher,
        touch: Touch,
        same_value: bool,
    ) -> Result<(u64, u64), (RaceKind, Other)> {
        let strong_pair = touch.strong() && writer & ATOMIC != 0;
        if !touch.writes() {
            if !strong_pair && self.conflicts(writer, me) {
                return Err((RaceKind::ReadAfterWrite, self.other(writer)));
            }
            return Ok((writer, self.merged(reader, me, touch.strong())));
        }
        let reads_strong = touch.strong() && reader & ATOMIC != 0;
        if !reads_strong && self.conflicts(reader, me) {
            return Err((RaceKind::WriteAfterRead, self.other(reader)));
        }
        if !strong_pair && self.conflicts(writer, me) {
            if same_value && !touch.strong() && writer & ATOMIC == 0 {
                return Ok((writer, reader));
            }
            return Err((RaceKind::WriteAfterWrite, self.other(writer)));
        }
        let next = if touch.strong() {
            self.merged(writer, me, true)
        } else {
            self.record(me, KIND_THREAD, false)
        };
        Ok((next, reader))
    }

    fn touch_cell(
        &mut self,
        cell: usize,
        from: usize,
        to: usize,
        me: Toucher,
        touch: Touch,
        same_value: bool,
    ) -> Result<(), SharedFault> {
        let is_split = self.writers[cell] & SPLIT != 0 && self.current(self.writers[cell]);
        let base = cell * 4;
        let race = |(race, other)| SharedFault::Race { race, other };
        if !is_split {
            if from == base && to == base + 4 {
                let (writer, reader) = self
                    .judge(self.writers[cell], self.readers[cell], me, touch, same_value)
                    .map_err(race)?;
                self.writers[cell] = writer;
                self.readers[cell] = reader;
                return Ok(());
            }
            let keep = |record: u64| if self.current(record) { record } else { 0 };
            let (writer, reader) = (keep(self.writers[cell]), keep(self.readers[cell]));
            self.byte_writers[base..base + 4].fill(writer);
            self.byte_readers[base..base + 4].fill(reader);
            self.writers[cell] = self.epoch << EPOCH_SHIFT | SPLIT;
        }
        for byte in from..to {
            let (writer, reader) = self
                .judge(self.byte_writers[byte], self.byte_readers[byte], me, touch, same_value)
                .map_err(race)?;
            self.byte_writers[byte] = writer;
            self.byte_readers[byte] = reader;
        }
        Ok(())
    }

    /// Records an access of in-bounds bytes and reports a race. `same_value`: the store leaves
    /// every byte as it is.
    #[inline(always)]
    pub fn touch(
        &mut self,
        offset: usize,
        len: usize,
        me: Toucher,
        touch: Touch,
        same_value: bool,
    ) -> Result<(), SharedFault> {
        if !(offset | len).is_multiple_of(4) {
            return self.touch_bytes(offset, len, me, touch, same_value);
        }
        let mine = self.record(me, KIND_THREAD, touch.strong());
        for cell in offset / 4..(offset + len) / 4 {
            let (writer, reader) = (self.writers[cell], self.readers[cell]);
            // Nothing of this epoch, or only what this very thread did in the same way.
            let free = |record| !self.current(record) || (record ^ mine) >> THREAD_SHIFT == 0;
            if !free(writer) || touch.writes() && !free(reader) {
                self.touch_cell(cell, cell * 4, cell * 4 + 4, me, touch, same_value)?;
            } else if touch.writes() {
                self.writers[cell] = mine;
            } else {
                self.readers[cell] = self.merged(reader, me, touch.strong());
            }
        }
        Ok(())
    }

    fn touch_bytes(
        &mut self,
        offset: usize,
        len: usize,
        me: Toucher,
        touch: Touch,
        same_value: bool,
    ) -> Result<(), SharedFault> {
        let end = offset + len;
        for cell in offset / 4..end.div_ceil(4) {
            let from = offset.max(cell * 4);
            let to = end.min(cell * 4 + 4);
            self.touch_cell(cell, from, to, me, touch, same_value)?;
        }
        Ok(())
    }

    /// Whether all bytes are initialised; `None` when some lie outside.
    #[inline(always)]
    pub fn ready(&self, offset: usize, len: usize) -> Option<bool> {
        let state = self.state.get(offset..offset.checked_add(len)?)?;
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

    /// Records an atomic update of four bytes when nothing stands against it: only atomics touched
    /// them in this epoch. `false` asks for the slow way.
    #[inline(always)]
    pub fn update_word(&mut self, offset: u64, me: Toucher) -> bool {
        let Ok(at) = usize::try_from(offset) else {
            return false;
        };
        if !at.is_multiple_of(4) || self.ready(at, 4) != Some(true) {
            return false;
        }
        let (writer, reader) = (self.writers[at / 4], self.readers[at / 4]);
        let free = |record| !self.current(record) || record & (SPLIT | ATOMIC) == ATOMIC;
        if !free(writer) || !free(reader) {
            return false;
        }
        self.readers[at / 4] = self.merged(reader, me, true);
        self.writers[at / 4] = self.merged(writer, me, true);
        true
    }

    /// Bytes become initialised or not without a thread's access (asynchronous copies).
    #[inline(always)]
    pub fn set_ready(&mut self, offset: usize, len: usize, ready: bool) {
        self.state[offset..offset + len].fill(if ready { INIT } else { UNINIT });
    }

    /// A read of bytes by two threads of one warp, or one alone, when nothing stands against it;
    /// `false` asks for the slow way.
    #[inline(always)]
    pub fn load_same(&mut self, offset: u64, len: usize, a: Toucher, b: Option<Toucher>) -> bool {
        let Ok(offset) = usize::try_from(offset) else {
            return false;
        };
        if self.ready(offset, len) != Some(true) {
            return false;
        }
        if !(offset | len).is_multiple_of(4) {
            let mut read = |me| self.touch(offset, len, me, Touch::Read, true).is_ok();
            return read(a) && b.is_none_or(read);
        }
        for cell in offset / 4..(offset + len) / 4 {
            if self.current(self.writers[cell]) {
                let (at, me) = (cell * 4, a);
                let mut read = |me| self.touch(at, 4, me, Touch::Read, true).is_ok();
                if !(read(me) && b.is_none_or(read)) {
                    return false;
                }
                continue;
            }
            let one = self.merged(self.readers[cell], a, false);
            self.readers[cell] = b.map_or(one, |b| self.merged(one, b, false));
        }
        true
    }

    /// One read of `lanes` consecutive pieces of `piece` bytes by consecutive threads, when
    /// nothing stands against it; `false` asks for the slow way.
    #[inline(always)]
    pub fn load_run(&mut self, offset: usize, lanes: usize, piece: usize, first: Toucher) -> bool {
        match piece {
            4 => self.load_cells::<1>(offset, lanes, first),
            8 => self.load_cells::<2>(offset, lanes, first),
            16 => self.load_cells::<4>(offset, lanes, first),
            _ => false,
        }
    }

    #[inline(always)]
    fn load_cells<const CELLS: usize>(
        &mut self,
        offset: usize,
        lanes: usize,
        first: Toucher,
    ) -> bool {
        if self.ready(offset, lanes * CELLS * 4) != Some(true) {
            return false;
        }
        let start = offset / 4;
        let range = start..start + lanes * CELLS;
        let mine = self.record(first, KIND_THREAD, false);
        let writers = &self.writers[range.clone()];
        let readers = &mut self.readers[range];
        let mut against = 0;
        for (i, (writer, reader)) in writers.iter().zip(readers.iter()).enumerate() {
            let want = mine + ((i / CELLS) as u64) * (1 << THREAD_SHIFT);
            let stale = u64::from(reader >> EPOCH_SHIFT != self.epoch);
            let own = u64::from((reader ^ want) >> THREAD_SHIFT == 0);
            against |= u64::from(writer >> EPOCH_SHIFT == self.epoch) | (stale | own) ^ 1;
        }
        if against != 0 {
            return false;
        }
        for (i, reader) in readers.iter_mut().enumerate() {
            *reader = mine + ((i / CELLS) as u64) * (1 << THREAD_SHIFT);
        }
        true
    }

    /// The same for a store: no record of this epoch may stand in the way but the thread's own.
    #[inline(always)]
    pub fn store_run(&mut self, offset: usize, lanes: usize, piece: usize, first: Toucher) -> bool {
        match piece {
            4 => self.store_cells::<1>(offset, lanes, first),
            8 => self.store_cells::<2>(offset, lanes, first),
            16 => self.store_cells::<4>(offset, lanes, first),
            _ => false,
        }
    }

    #[inline(always)]
    fn store_cells<const CELLS: usize>(
        &mut self,
        offset: usize,
        lanes: usize,
        first: Toucher,
    ) -> bool {
        let len = lanes * CELLS * 4;
        let Some(ready) = self.ready(offset, len) else {
            return false;
        };
        let start = offset / 4;
        let range = start..start + lanes * CELLS;
        let mine = self.record(first, KIND_THREAD, false);
        let readers = &self.readers[range.clone()];
        let writers = &mut self.writers[range];
        let mut against = 0;
        for (i, (writer, reader)) in writers.iter().zip(readers).enumerate() {
            let want = mine + ((i / CELLS) as u64) * (1 << THREAD_SHIFT);
            for record in [writer, reader] {
                let stale = u64::from(record >> EPOCH_SHIFT != self.epoch);
                let own = u64::from((record ^ want) >> THREAD_SHIFT == 0);
                against |= (stale | own) ^ 1;
            }
        }
        if against != 0 {
            return false;
        }
        for (i, writer) in writers.iter_mut().enumerate() {
            *writer = mine + ((i / CELLS) as u64) * (1 << THREAD_SHIFT);
        }
        if !ready {
            self.state[offset..offset + len].fill(INIT);
        }
        true
    }
}

#[cfg(test)]
mod tests;
