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
    pub fn in_bounds(&self, offset: u64, len: u64) -> bool {
        let Some(end) = offset.checked_add(len) else {
            return false;
        };
        end <= self.template.len() as u64
            && self.template[offset as usize..end as usize].iter().all(|s| *s != REDZONE)
    }

    fn record(&self, me: Toucher, kind: u64, strong: bool) -> u64 {
        self.epoch << EPOCH_SHIFT
            | if strong { ATOMIC } else { 0 }
            | kind << KIND_SHIFT
            | u64::from(me.thread) << THREAD_SHIFT
            | u64::from(me.clock) << CLOCK_SHIFT
            | u64::from(me.pc.min(0xffff))
    }

    fn current(&self, record: u64) -> bool {
        record >> EPOCH_SHIFT == self.epoch
    }

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
            let from = offset.max(cell * 4);
            let to = end.min(cell * 4 + 4);
            self.touch_cell(cell, from, to, me, touch, same_value)?;
        }
        Ok(())
    }

    /// Whether all bytes are initialised; `None` when some lie outside.
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

    /// Bytes become initialised or not without a thread's access (asynchronous copies).
    pub fn set_ready(&mut self, offset: usize, len: usize, ready: bool) {
        self.state[offset..offset + len].fill(if ready { INIT } else { UNINIT });
    }

    /// One read of `lanes` consecutive pieces of `piece` bytes (a multiple of 4) by consecutive
    /// threads, when nothing stands against it; `false` asks for the slow way.
    #[inline(always)]
    pub fn load_run(&mut self, offset: usize, lanes: usize, piece: usize, first: Toucher) -> bool {
        if self.ready(offset, lanes * piece) != Some(true) {
            return false;
        }
        let cells = piece / 4;
        let start = offset / 4;
        let range = start..start + lanes * cells;
        let epoch = self.epoch;
        let mut clean = true;
        for writer in &self.writers[range.clone()] {
            clean &= *writer >> EPOCH_SHIFT != epoch;
        }
        if !clean {
            return false;
        }
        let mine = self.record(first, KIND_THREAD, false);
        let readers = &mut self.readers[range];
        let mut free = true;
        for (i, reader) in readers.iter().enumerate() {
            let want = mine + ((i / cells) as u64) * (1 << THREAD_SHIFT);
            free &= *reader >> EPOCH_SHIFT != epoch || (*reader ^ want) >> THREAD_SHIFT == 0;
        }
        if !free {
            return false;
        }
        for (i, reader) in readers.iter_mut().enumerate() {
            *reader = mine + ((i / cells) as u64) * (1 << THREAD_SHIFT);
        }
        true
    }

    /// The same for a store: no record of this epoch may stand in the way but the thread's own.
    #[inline(always)]
    pub fn store_run(&mut self, offset: usize, lanes: usize, piece: usize, first: Toucher) -> bool {
        let Some(ready) = self.ready_or_not(offset, lanes * piece) else {
            return false;
        };
        let cells = piece / 4;
        let start = offset / 4;
        let range = start..start + lanes * cells;
        let epoch = self.epoch;
        let mine = self.record(first, KIND_THREAD, false);
        let mut free = true;
        for (i, (writer, reader)) in
            self.writers[range.clone()].iter().zip(&self.readers[range.clone()]).enumerate()
        {
            let want = mine + ((i / cells) as u64) * (1 << THREAD_SHIFT);
            free &= *writer >> EPOCH_SHIFT != epoch || (*writer ^ want) >> THREAD_SHIFT == 0;
            free &= *reader >> EPOCH_SHIFT != epoch || (*reader ^ want) >> THREAD_SHIFT == 0;
        }
        if !free {
            return false;
        }
        for (i, writer) in self.writers[range].iter_mut().enumerate() {
            *writer = mine + ((i / cells) as u64) * (1 << THREAD_SHIFT);
        }
        if !ready {
            self.state[offset..offset + lanes * piece].fill(INIT);
        }
        true
    }

    /// `Some(all initialised)` when in bounds.
    fn ready_or_not(&self, offset: usize, len: usize) -> Option<bool> {
        self.ready(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        let mut shared = Shared::default();
        let array = SharedArray { offset_bytes: 0, size_bytes: 64 };
        shared.prepare(&[array], 96, 16);
        shared.start_block();
        shared
    }

    fn me(thread: u32, clock: u32) -> Toucher {
        Toucher { thread, clock, pc: 7 }
    }

    #[test]
    fn a_barrier_orders_and_its_absence_races() {
        let mut s = shared();
        s.store(0, &[1; 4], me(0, 0), Touch::Write).unwrap();
        assert!(s.load(0, 4, me(0, 0), Touch::Read).is_ok());
        assert!(matches!(
            s.load(0, 4, me(40, 0), Touch::Read),
            Err(SharedFault::Race { race: RaceKind::ReadAfterWrite, .. })
        ));
        s.next_epoch();
        assert!(s.load(0, 4, me(40, 0), Touch::Read).is_ok());
        assert!(matches!(
            s.store(0, &[2; 4], me(0, 0), Touch::Write),
            Err(SharedFault::Race { race: RaceKind::WriteAfterRead, .. })
        ));
    }

    #[test]
    fn neighbouring_bytes_do_not_race() {
        let mut s = shared();
        s.store(0, &[1; 2], me(0, 0), Touch::Write).unwrap();
        s.store(2, &[1; 2], me(1, 0), Touch::Write).unwrap();
        assert!(s.load(0, 2, me(0, 0), Touch::Read).is_ok());
        assert!(s.load(2, 2, me(0, 0), Touch::Read).is_err());
        s.next_epoch();
        assert!(s.load(0, 4, me(9, 0), Touch::Read).is_ok());
    }

    #[test]
    fn warp_synchronisation_orders_its_own_warp_only() {
        let mut s = shared();
        s.store(0, &[1; 4], me(0, 0), Touch::Write).unwrap();
        assert!(s.load(0, 4, me(1, 0), Touch::Read).is_err());
        assert!(s.load(0, 4, me(1, 1), Touch::Read).is_ok());
        assert!(s.load(0, 4, me(32, 1), Touch::Read).is_err());
    }

    #[test]
    fn a_reader_ordered_before_me_and_my_own_read_do_not_race() {
        let mut s = shared();
        s.store(0, &[1; 4], me(5, 0), Touch::Write).unwrap();
        s.next_epoch();
        s.load(0, 4, me(0, 0), Touch::Read).unwrap();
        s.load(0, 4, me(1, 1), Touch::Read).unwrap();
        assert!(s.store(0, &[2; 4], me(1, 1), Touch::Write).is_ok());
    }

    #[test]
    fn atomics_race_with_plain_accesses_only() {
        let mut s = shared();
        s.store(0, &[0; 4], me(0, 0), Touch::Write).unwrap();
        s.next_epoch();
        s.touch(0, 4, me(3, 0), Touch::StrongWrite, false).unwrap();
        s.touch(0, 4, me(70, 0), Touch::StrongWrite, false).unwrap();
        assert!(s.load(0, 4, me(3, 0), Touch::Read).is_err());
        s.next_epoch();
        assert!(s.load(0, 4, me(3, 0), Touch::Read).is_ok());
    }

    #[test]
    fn equal_stores_do_not_race_and_different_ones_do() {
        let mut s = shared();
        s.store(0, &[1; 4], me(0, 0), Touch::Write).unwrap();
        assert!(s.store(0, &[1; 4], me(33, 0), Touch::Write).is_ok());
        assert!(s.store(0, &[2; 4], me(33, 0), Touch::Write).is_err());
    }

    #[test]
    fn redzones_and_missing_bytes() {
        let mut s = shared();
        assert_eq!(s.store(62, &[0; 4], me(0, 0), Touch::Write), Err(SharedFault::OutOfBounds));
        s.store(60, &[0; 4], me(0, 0), Touch::Write).unwrap();
        assert_eq!(
            s.load(56, 8, me(0, 0), Touch::Read),
            Err(SharedFault::Uninitialised { offset: 56 })
        );
        assert_eq!(s.load(64, 4, me(0, 0), Touch::Read), Err(SharedFault::OutOfBounds));
        s.store(96, &[0; 16], me(0, 0), Touch::Write).unwrap();
        assert_eq!(s.store(112, &[0; 4], me(0, 0), Touch::Write), Err(SharedFault::OutOfBounds));
    }
}
