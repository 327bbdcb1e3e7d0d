//! Accesses of a block's shared memory that its own barriers do not order: by other blocks of its
//! cluster, and by bulk copies out of it until their thread has waited for their group. One by another
//! block and an access by
//! another thread race unless the cluster was ordered between them ([`Shared::order`]): by its
//! barrier, or by whatever else orders blocks, which here orders everything of everybody, so that
//! races can be missed and none is invented.
//! Invariant: records of them stand in every epoch until then, where the block's own accesses meet
//! them.

use super::record::{
    ATOMIC, EPOCH_SHIFT, Four, SPLIT, current_kind, many, other, strong_only_with,
};
use super::{Other, RaceKind, Shared, SharedFault, Touch, Toucher};

/// Accesses that are remembered, and bytes of them; with more, all count as ordered, and further copies
/// as waited for.
const REMEMBERED: usize = 4096;
const REMEMBERED_BYTES: usize = 1 << 19;

/// Stands for the block itself.
const OWN: u32 = u32::MAX;

/// A thread of another block.
#[derive(Clone, Copy)]
pub(crate) struct Distant {
    pub block: u32,
    pub thread: Toucher,
    /// Of its own block's memory, which the barriers there advance.
    pub epoch: u64,
}

impl Distant {
    fn other(self, thread: u32) -> Other {
        // A copy's own block goes without saying.
        let block = (self.block != OWN).then_some(self.block);
        Other { thread: Some(thread), pc: Some(self.thread.pc), block }
    }

    /// Whether nothing in its own block orders another's access with mine, which comes later.
    fn apart(self, mine: Distant) -> bool {
        if self.block != mine.block {
            return true;
        }
        let (theirs, mine_) = (self.thread, mine.thread);
        let same_warp = theirs.thread / 32 == mine_.thread / 32;
        self.epoch == mine.epoch
            && theirs.thread != mine_.thread
            && !(same_warp && theirs.clock < mine_.clock)
    }
}

/// Lanes side by side, or one.
#[derive(Clone, Copy)]
pub(super) struct Past {
    start: usize,
    end: usize,
    /// Bytes of a lane.
    piece: usize,
    touch: Touch,
    /// The first lane.
    who: Distant,
    /// The cluster met since, though nobody released anything.
    met: bool,
    /// It is a bulk copy's read, in that group of its thread.
    group: Option<u32>,
}

impl Past {
    fn overlaps(&self, start: usize, end: usize) -> bool {
        self.start < end && start < self.end
    }

    /// The same instruction of the same block.
    fn alike(&self, other: &Past) -> bool {
        self.who.block == other.who.block
            && self.who.epoch == other.who.epoch
            && self.who.thread.pc == other.who.thread.pc
            && self.who.thread.clock == other.who.thread.clock
            && self.touch == other.touch
            && self.piece == other.piece
            && self.group == other.group
    }

    fn again(&self, other: &Past) -> bool {
        self.alike(other) && self.who.thread.thread == other.who.thread.thread
    }

    /// Who of them touched a byte, or what comes first behind it.
    fn thread(&self, byte: usize) -> u32 {
        let lane = byte.max(self.start) - self.start;
        self.who.thread.thread + (lane / self.piece.max(1)) as u32
    }
}

impl Shared {
    /// Orders everything before with everything after, for all blocks.
    pub fn order(&mut self) {
        self.distant.retain(|past| past.group.is_some());
        self.next_epoch();
        self.ordered = self.epoch;
    }

    /// The cluster meets without a release: accesses may race with later ones, but are over.
    pub fn meet_cluster(&mut self) {
        self.distant.iter_mut().for_each(|past| past.met = true);
    }

    /// The last access by another block that may not be over.
    pub fn under_way(&self) -> Option<(u64, Other)> {
        let past = self.distant.iter().rev().find(|past| !past.met && past.group.is_none())?;
        Some((past.start as u64, past.who.other(past.who.thread.thread)))
    }

    /// Checks and records an access of in-bounds bytes by another block. `same`: a store leaves
    /// every byte as it is.
    pub fn reach(
        &mut self,
        at: usize,
        len: usize,
        who: Distant,
        touch: Touch,
        same: bool,
    ) -> Result<(), SharedFault> {
        let end = at + len;
        let mut shadowed = [false; 2];
        for past in self.distant.iter().rev().filter(|past| past.overlaps(at, end)) {
            shadowed[usize::from(past.touch.writes())] = true;
            let harmless = same && !past.touch.strong() && !touch.strong();
            let stores = past.touch.writes() || touch.writes();
            let strong = past.touch.strong() && touch.strong();
            let both_store = past.touch.writes() && touch.writes();
            if !stores || strong || both_store && harmless || !past.who.apart(who) {
                continue;
            }
            let race = race(past.touch.writes(), touch.writes());
            let other = past.who.other(past.thread(at));
            return Err(SharedFault::Race { race, other });
        }
        for byte in at..end {
            self.meet(byte, touch, same, shadowed)
                .map_err(|(race, other)| SharedFault::Race { race, other })?;
        }
        self.remember(at, end, who, touch);
        Ok(())
    }

    /// Compares with what the block's own threads did since the cluster was ordered. `shadowed`:
    /// another block's read, and store, stand in the records.
    fn meet(
        &self,
        byte: usize,
        touch: Touch,
        same: bool,
        shadowed: [bool; 2],
    ) -> Result<(), (RaceKind, Other)> {
        let recent = |record: u64| record >> EPOCH_SHIFT >= self.ordered;
        let cell = byte / 4;
        let split = self.writers[cell] & SPLIT != 0 && recent(self.writers[cell]);
        let [writer, reader] = if split {
            [self.byte_writers[byte], self.byte_readers[byte]]
        } else {
            [self.writers[cell], self.readers[cell]]
        };
        let foe = |record: u64| {
            recent(record) && current_kind(record) && !(touch.strong() && record & ATOMIC != 0)
        };
        let harmless = same && !touch.strong() && writer & ATOMIC == 0;
        if foe(writer) && !shadowed[1] && !(touch.writes() && harmless) {
            return Err((race(true, touch.writes()), other(writer)));
        }
        if touch.writes() && foe(reader) && !shadowed[0] {
            return Err((RaceKind::WriteAfterRead, other(reader)));
        }
        Ok(())
    }

    fn is_crowded(&self, more: usize) -> bool {
        let bytes: usize = self.distant.iter().map(|past| past.end - past.start).sum();
        self.distant.len() >= REMEMBERED || bytes + more > REMEMBERED_BYTES
    }

    /// A bulk copy reads bytes until its thread has waited for the group that it is in.
    pub fn read_in_bulk(&mut self, at: usize, len: usize, me: Toucher) {
        if self.is_crowded(len) {
            return;
        }
        let group = self.bulk_groups.iter().find(|(thread, _)| *thread == me.thread);
        let group = Some(group.map_or(0, |(_, closed)| *closed));
        let who = Distant { block: OWN, thread: me, epoch: 0 };
        let (start, end, touch) = (at, at + len, Touch::Read);
        let past = Past { start, end, piece: len, touch, who, met: false, group };
        self.stamp(past);
        self.distant.push(past);
    }

    /// A thread closes its group of bulk copies.
    pub fn close_bulk_group(&mut self, thread: u32) {
        match self.bulk_groups.iter_mut().find(|(t, _)| *t == thread) {
            Some((_, closed)) => *closed += 1,
            None => self.bulk_groups.push((thread, 1)),
        }
    }

    /// All but the last `pending` of a thread's groups have read what they copy.
    pub fn wait_bulk_groups(&mut self, thread: u32, pending: u32) {
        let closed = self.bulk_groups.iter().find(|(t, _)| *t == thread).map_or(0, |(_, n)| *n);
        let over = |past: &Past| {
            past.who.thread.thread == thread
                && past.group.is_some_and(|group| group < closed.saturating_sub(pending))
        };
        for i in 0..self.distant.len() {
            let Past { start, end, .. } = self.distant[i];
            if over(&self.distant[i]) {
                self.forget_readers(start, end - start);
            }
        }
        self.distant.retain(|past| !over(past));
        self.stamp_all();
    }

    fn remember(&mut self, start: usize, end: usize, who: Distant, touch: Touch) {
        if self.is_crowded(end - start) {
            self.order();
        }
        let piece = end - start;
        let past = Past { start, end, piece, touch, who, met: false, group: None };
        self.stamp(past);
        // Polls and repeated sums come again and again.
        let same = |old: &Past| old.start == start && old.end == end && old.again(&past);
        if let Some(old) = self.distant.iter_mut().rev().take(32).find(|old| same(old)) {
            old.met = false;
            return;
        }
        if let Some(last) = self.distant.last_mut() {
            let lanes = (last.end - last.start) / last.piece.max(1);
            let next = last.who.thread.thread + lanes as u32;
            if !last.met && last.alike(&past) && last.end == start && next == who.thread.thread {
                last.end = end;
                return;
            }
        }
        self.distant.push(past);
    }

    /// Gives the records of distant accesses the new epoch.
    #[cold]
    pub(super) fn stamp_all(&mut self) {
        for i in 0..self.distant.len() {
            self.stamp(self.distant[i]);
        }
    }

    /// Puts an access into the records of this epoch, as one by many threads.
    fn stamp(&mut self, past: Past) {
        let record = many(self.epoch, past.who.thread.pc, past.touch.strong());
        for cell in past.start / 4..past.end.div_ceil(4) {
            let bytes = past.start.max(cell * 4)..past.end.min(cell * 4 + 4);
            self.fours[cell / 4] = Four { stored: self.epoch as u32, read: self.epoch as u32 };
            let split = self.writers[cell] & SPLIT != 0 && self.current(self.writers[cell]);
            if !split && bytes.len() == 4 {
                let records =
                    if past.touch.writes() { &mut self.writers } else { &mut self.readers };
                records[cell] = strong_only_with(records[cell], record);
                continue;
            }
            if !split {
                let old = [self.writers[cell], self.readers[cell]];
                let [writer, reader] = old.map(|old| if self.current(old) { old } else { 0 });
                self.byte_writers[cell * 4..cell * 4 + 4].fill(writer);
                self.byte_readers[cell * 4..cell * 4 + 4].fill(reader);
                self.writers[cell] = self.epoch << EPOCH_SHIFT | SPLIT;
            }
            let records = if past.touch.writes() {
                &mut self.byte_writers[bytes]
            } else {
                &mut self.byte_readers[bytes]
            };
            records.iter_mut().for_each(|old| *old = strong_only_with(*old, record));
        }
    }

    /// What another block sent has arrived: its bytes are there, and race with nobody.
    pub fn settle(&mut self, at: usize, bytes: &[u8]) {
        self.forget_distant(at, bytes.len());
        self.forget_bytes(at, bytes.len());
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
        self.set_ready(at, bytes.len(), true);
    }

    /// Forgets accesses by other blocks that lie within bytes.
    pub fn forget_distant(&mut self, at: usize, len: usize) {
        if !self.distant.is_empty() {
            let within = |past: &Past| past.start >= at && past.end <= at + len;
            self.distant.retain(|past| past.group.is_some() || !within(past));
        }
    }

    fn forget_readers(&mut self, at: usize, len: usize) {
        for cell in at / 4..(at + len).div_ceil(4) {
            self.readers[cell] = 0;
        }
        let end = (at + len).min(self.byte_readers.len());
        self.byte_readers[at..end].fill(0);
    }

    /// Forgets who touched bytes.
    pub fn forget_bytes(&mut self, at: usize, len: usize) {
        for cell in at / 4..(at + len).div_ceil(4).min(self.writers.len()) {
            (self.writers[cell], self.readers[cell]) = (0, 0);
        }
    }

    /// Names the thread of another block that a race of the block's own thread is with.
    #[cold]
    pub(super) fn named(&self, fault: SharedFault, start: usize, end: usize) -> SharedFault {
        let SharedFault::Race { race, other } = fault else {
            return fault;
        };
        let stores = race != RaceKind::WriteAfterRead;
        let found = self.distant.iter().rev().find(|past| {
            past.overlaps(start, end)
                && past.touch.writes() == stores
                && other.pc.is_none_or(|pc| pc == past.who.thread.pc)
        });
        match found {
            Some(past) if other.thread.is_none() => {
                SharedFault::Race { race, other: past.who.other(past.thread(start)) }
            }
            _ => fault,
        }
    }
}

/// Of an earlier access and mine.
fn race(earlier_stores: bool, stores: bool) -> RaceKind {
    match (earlier_stores, stores) {
        (true, true) => RaceKind::WriteAfterWrite,
        (true, false) => RaceKind::ReadAfterWrite,
        _ => RaceKind::WriteAfterRead,
    }
}
