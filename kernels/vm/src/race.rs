//! Races of blocks on global memory: two accesses of one byte by threads of different blocks of one
//! launch, one of them a store, one of them weak (neither atomic nor `.volatile`, `.relaxed`,
//! `.acquire`, `.release`), and no release and acquire between them ([`order`] has the rules).
//! Weak stores of one value are a race too, unless the bytes bear [`crate::marks::SAME_VALUE`].
//!
//! No false alarms: every access of a block is compared with what really happened before it, and
//! where order cannot be told, it is assumed. So these are missed: races of threads of one block,
//! a reader that two later ones of other blocks replaced in the records, a scope of `.cta` on an
//! atomic, and whatever follows 2²² blocks, or accesses that differ in instruction, warp, block
//! or the fences before them. Bytes that nobody may store to are not recorded. Launches of one block pay nothing.

mod clock;
mod order;
mod shadow;

use crate::fault::RaceKind;
use crate::shared::{Other, Toucher};
use order::Order;
pub(crate) use order::Standing;
pub(crate) use shadow::Shadow;
use shadow::{INDEX_SHIFT, LINE, Line, Records, STEPS, WHOLE, index_of, lane_of, mask_of, number};
use std::ops::Range;

/// Accesses, and blocks, a launch may log.
const LOG: u32 = 1 << 22;
/// Numbers of accesses that fit into a record.
const INDICES: u32 = 1 << (32 - INDEX_SHIFT);

/// One instruction of a warp, between two fences.
#[derive(Clone, Copy)]
struct Logged {
    serial: u32,
    tick: u32,
    pc: u32,
    warp: u8,
    /// Bytes of one lane.
    piece: u8,
    strong: bool,
    /// An earlier access to other bytes of the same cell, which this one's records stand for too.
    joint: Option<Earlier>,
}

/// The bytes of a cell that an earlier access touched.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Earlier {
    index: u32,
    mask: u8,
    /// Its lane, where that is not the later one's.
    lane: Option<u8>,
}

/// The last index made for an access together with an earlier one.
#[derive(Clone, Copy, Default)]
struct Joint {
    before: Earlier,
    after: u32,
    index: u32,
}

/// The access a new one races with.
pub(crate) struct Foe {
    pub race: RaceKind,
    /// The first byte they share, from the start of the access.
    pub byte: usize,
    pub other: Other,
}

/// What an access of one lane does.
#[derive(Clone, Copy)]
pub(crate) struct Act {
    pub store: bool,
    pub strong: bool,
    /// The store leaves every byte as it is, and that is declared harmless.
    pub harmless: bool,
}

/// Numbers of this launch from before the running block began to run.
#[derive(Clone, Copy)]
struct Foreign {
    base: u32,
    width: u32,
}

impl Foreign {
    #[inline(always)]
    fn holds(self, number: u32) -> bool {
        number.wrapping_sub(self.base) < self.width
    }

    /// Whether a number is of this launch.
    #[inline(always)]
    fn current(self, number: u32) -> bool {
        number >= self.base
    }
}

/// Records accesses to cells that several blocks have touched, unless one of another block is in
/// the way.
#[inline(always)]
fn among<const STORE: bool>(
    [writers, readers, others]: [&mut [u32]; 3],
    first: u32,
    steps: &[u32; 256],
    foreign: Foreign,
) -> bool {
    let (mut stored, mut read) = (false, false);
    for writer in &*writers {
        stored |= foreign.holds(*writer);
    }
    for reader in &*readers {
        read |= foreign.holds(*reader);
    }
    if stored || STORE && read {
        return false;
    }
    if STORE || !read {
        let records = if STORE { writers } else { readers };
        for (record, step) in records.iter_mut().zip(steps) {
            *record = first + step;
        }
    } else {
        for ((reader, other), step) in readers.iter_mut().zip(others).zip(steps) {
            let theirs = foreign.holds(*reader);
            *other = if theirs { first + step } else { *other };
            *reader = if theirs { *reader } else { first + step };
        }
    }
    true
}

/// The log and the order of a launch.
#[derive(Default)]
pub(crate) struct Races {
    /// Accesses are recorded: the launch has several blocks.
    pub on: bool,
    /// Something in the kernel may order blocks.
    synchronises: bool,
    log: Vec<Logged>,
    /// Indices of this launch begin here; the first is that of no access but marks split cells.
    first: u32,
    /// Those of the running block, since it last began to run.
    block_first: u32,
    next: u32,
    /// The latest index of each instruction.
    recent: Vec<u32>,
    /// The last that shared a cell with an earlier one.
    joint: Joint,
    order: Order,
    standing: Standing,
    /// Blocks in the order of their start.
    blocks: Vec<u32>,
    /// Records of the module's own variables.
    pub data: Shadow,
}

impl Races {
    /// A launch begins; `next` is the first number that the memory has not seen. False when too few
    /// are left: the memory must forget its records, and then 0 be passed.
    pub fn begin(&mut self, next: u32, code: usize, data_bytes: usize, synchronises: bool) -> bool {
        if next == 0 {
            self.next = 1;
            self.recent.clear();
            self.joint = Joint::default();
            self.data.forget();
        }
        // Numbers may have been used in other memories and by other launches of this thread.
        self.next = self.next.max(next).max(1);
        if self.next >= INDICES - LOG {
            return false;
        }
        self.on = true;
        self.synchronises = synchronises;
        self.log.clear();
        self.blocks.clear();
        if self.recent.len() < code {
            self.recent.resize(code, 0);
        }
        self.data.cover(data_bytes);
        self.order.restart();
        self.first = self.next;
        let mark = Logged {
            serial: u32::MAX,
            tick: 0,
            pc: 0,
            warp: 0,
            piece: 4,
            strong: false,
            joint: None,
        };
        self.log.push(mark);
        self.next += 1;
        self.block_first = self.next;
        true
    }

    /// The launch ended: the first unused index.
    pub fn end(&mut self) -> u32 {
        self.on = false;
        self.next += 1;
        self.next
    }

    /// A block starts.
    pub fn start_block(&mut self, block: u32) {
        if self.blocks.len() >= LOG as usize {
            self.on = false;
        }
        if self.on {
            let serial = self.blocks.len() as u32;
            self.blocks.push(block);
            self.standing.restart(serial, self.order.tick);
            self.block_first = self.next;
        }
    }

    /// A block is laid aside, or goes on.
    pub fn exchange_block(&mut self, standing: &mut Standing) {
        if self.on {
            std::mem::swap(&mut self.standing, standing);
            self.block_first = self.next;
        }
    }

    /// The number of an access by lane 0 to a whole cell.
    #[inline(always)]
    fn access(&mut self, me: Toucher, piece: usize, strong: bool) -> u32 {
        let known = self.recent.get(me.pc as usize).copied().unwrap_or(0);
        if known >= self.block_first
            && let Some(logged) = self.log.get((known - self.first) as usize)
            && logged.tick == self.order.tick
            && u32::from(logged.warp) == me.thread / 32
        {
            return number(known, 0, WHOLE);
        }
        self.log_access(me, piece, strong)
    }

    #[inline(never)]
    fn log_access(&mut self, me: Toucher, piece: usize, strong: bool) -> u32 {
        let index = self.next;
        if index - self.first >= LOG {
            self.on = false;
            return number(index, 0, WHOLE);
        }
        self.next += 1;
        self.log.push(Logged {
            serial: self.standing.serial,
            tick: self.order.tick,
            pc: me.pc,
            warp: (me.thread / 32) as u8,
            piece: piece as u8,
            strong,
            joint: None,
        });
        if let Some(recent) = self.recent.get_mut(me.pc as usize) {
            *recent = index;
        }
        number(index, 0, WHOLE)
    }

    #[inline(always)]
    fn foreign(&self) -> Foreign {
        Foreign {
            base: self.first << INDEX_SHIFT,
            width: (self.block_first - self.first) << INDEX_SHIFT,
        }
    }

    /// The number of no access.
    #[inline(always)]
    fn mark(&self) -> u32 {
        number(self.first, 0, 0)
    }

    /// The number of a weak access together with an earlier one of the block to other bytes of the
    /// cell.
    #[inline(always)]
    fn join(&mut self, old: u32, mine: u32) -> Option<u32> {
        if mask_of(old) & mask_of(mine) != 0 || mask_of(old) == 0 {
            return None;
        }
        let apart = lane_of(old) != lane_of(mine);
        let before = Earlier {
            index: index_of(old),
            mask: mask_of(old) as u8,
            lane: apart.then(|| lane_of(old) as u8),
        };
        let known = self.joint.before == before && self.joint.after == index_of(mine);
        let index = if known { self.joint.index } else { self.log_joint(before, mine)? };
        Some(number(index, lane_of(mine), mask_of(old) | mask_of(mine)))
    }

    #[inline(never)]
    fn log_joint(&mut self, before: Earlier, mine: u32) -> Option<u32> {
        let me = *self.logged(mine)?;
        if self.next - self.first >= LOG {
            return None;
        }
        let index = self.next;
        self.next += 1;
        self.log.push(Logged { joint: Some(before), ..me });
        self.joint = Joint { before, after: index_of(mine), index };
        Some(index)
    }

    /// The number of the access that touched a byte of a cell, where a record stands for several.
    fn part_of(&self, record: u32, byte: usize) -> u32 {
        let mut record = record;
        while let Some(before) = self.logged(record).and_then(|logged| logged.joint) {
            let lane = lane_of(record);
            if before.mask >> byte & 1 == 0 {
                return number(index_of(record), lane, mask_of(record) & !u32::from(before.mask));
            }
            let lane = before.lane.map_or(lane, u32::from);
            record = number(before.index, lane, before.mask.into());
        }
        record
    }

    /// Records weak accesses of lanes side by side, `piece` bytes each from that of `me` on, when
    /// no other block is in the way; false asks for [`Races::touch`].
    #[inline(never)]
    pub fn run<const STORE: bool>(
        &mut self,
        shadow: &mut Shadow,
        page_bytes: usize,
        at: usize,
        span: usize,
        piece: usize,
        me: Toucher,
    ) -> bool {
        shadow.cover(page_bytes);
        let first = self.access(me, piece, false) + ((me.thread & 31) << 4);
        if (at | span) & 3 != 0 {
            for (lane, at) in (at..at + span).step_by(piece).enumerate() {
                if !self.part::<STORE>(shadow, at, piece, first + ((lane as u32) << 4)) {
                    return false;
                }
            }
            return true;
        }
        if (at | span) & (4 * LINE - 1) == 0 {
            let foreign = self.foreign();
            let lines = shadow.lines.get_mut(at / (4 * LINE)..(at + span) / (4 * LINE));
            let Some(lines) = lines else {
                return false;
            };
            let mut shared = false;
            for line in &*lines {
                shared |= foreign.holds(line.owner);
            }
            if !shared {
                let step = (4 * LINE as u32 >> piece.trailing_zeros()) << 4;
                let mut mine = first;
                for line in lines {
                    line.owner = mine;
                    *(if STORE { &mut line.writer } else { &mut line.reader }) = mine;
                    mine += step;
                }
                return true;
            }
        }
        let steps = &STEPS[piece.trailing_zeros() as usize % STEPS.len()];
        let cells = at / 4..(at + span) / 4;
        let mut cell = cells.start;
        while cell < cells.end {
            let end = (cell / LINE * LINE + LINE).min(cells.end);
            let mine = first + steps[cell - cells.start];
            let done = self.line::<STORE>(shadow, cell..end, mine, steps);
            if !done {
                return false;
            }
            cell = end;
        }
        true
    }

    /// Records an access to cells of one line.
    #[inline(always)]
    fn line<const STORE: bool>(
        &self,
        shadow: &mut Shadow,
        cells: Range<usize>,
        first: u32,
        steps: &[u32; 256],
    ) -> bool {
        let foreign = self.foreign();
        let at = cells.start / LINE;
        let Some(line) = shadow.lines.get_mut(at) else {
            return false;
        };
        let alone = !foreign.holds(line.owner);
        if alone {
            line.owner = first;
            if cells.len() == LINE {
                *(if STORE { &mut line.writer } else { &mut line.reader }) = first;
                return true;
            }
        }
        if foreign.current(line.writer) || foreign.current(line.reader) {
            self.expand(shadow, at);
        }
        let (Some(writers), Some(readers), Some(others)) = (
            shadow.writers.get_mut(cells.clone()),
            shadow.readers.get_mut(cells.clone()),
            shadow.others.get_mut(cells),
        ) else {
            return false;
        };
        if alone {
            let records = if STORE { writers } else { readers };
            for (record, step) in records.iter_mut().zip(steps) {
                *record = first + step;
            }
            return true;
        }
        let done = among::<STORE>([writers, readers, others], first, steps, foreign);
        if done {
            shadow.lines[at].owner = self.mark();
        }
        done
    }

    /// Gives the cells of a line the records of the whole line.
    #[cold]
    fn expand(&self, shadow: &mut Shadow, at: usize) {
        let Line { owner, writer, reader } = shadow.lines[at];
        shadow.lines[at] = Line { owner, writer: 0, reader: 0 };
        let cells = at * LINE..at * LINE + LINE;
        for (first, records) in [(writer, &mut shadow.writers), (reader, &mut shadow.readers)] {
            let piece = self.logged(first).map_or(4, |logged| logged.piece);
            if self.current(first) {
                let steps = &STEPS[piece.trailing_zeros() as usize % STEPS.len()];
                for (record, step) in records[cells.clone()].iter_mut().zip(steps) {
                    *record = first + step;
                }
            }
        }
    }

    /// The number of accesses of lanes apart, from that of lane 0 on, for [`Races::single`].
    #[inline(always)]
    pub fn scattered(&mut self, me: Toucher, piece: usize) -> Option<u32> {
        if self.on { Some(self.access(me, piece, false)) } else { None }
    }

    /// The same as [`Races::run`] for one lane of scattered ones.
    #[inline(always)]
    pub fn single<const STORE: bool, const BYTES: usize>(
        &mut self,
        shadow: &mut Shadow,
        page_bytes: usize,
        at: usize,
        mine: u32,
    ) -> bool {
        shadow.cover(page_bytes);
        if BYTES < 4 {
            return self.part::<STORE>(shadow, at, BYTES, mine);
        }
        self.line::<STORE>(shadow, at / 4..(at + BYTES) / 4, mine, &[0; 256])
    }

    /// The same for a part of a cell.
    #[inline(always)]
    fn part<const STORE: bool>(
        &mut self,
        shadow: &mut Shadow,
        at: usize,
        len: usize,
        mine: u32,
    ) -> bool {
        let foreign = self.foreign();
        let (cell, mine) = (at / 4, mine & !WHOLE | ((1 << len) - 1) << (at & 3));
        let Some(line) = shadow.lines.get(cell / LINE).copied() else {
            return false;
        };
        if foreign.current(line.writer) || foreign.current(line.reader) {
            self.expand(shadow, cell / LINE);
        }
        let records = if STORE { &mut shadow.writers } else { &mut shadow.readers };
        let (Some(line), Some(record)) = (shadow.lines.get_mut(cell / LINE), records.get_mut(cell))
        else {
            return false;
        };
        if !foreign.holds(line.owner) {
            let old = *record;
            let free = !foreign.current(old) || mask_of(old) == mask_of(mine);
            let new = if free { Some(mine) } else { self.join(old, mine) };
            if let Some(new) = new {
                line.owner = mine;
                *record = new;
                return true;
            }
        }
        let act = Act { store: STORE, strong: false, harmless: false };
        self.touch_cell(shadow, cell, mine, act).is_ok()
    }

    /// Records an access of one lane or finds what it races with.
    pub fn touch(
        &mut self,
        shadow: &mut Shadow,
        page_bytes: usize,
        at: usize,
        len: usize,
        me: Toucher,
        act: Act,
    ) -> Result<(), Foe> {
        shadow.cover(page_bytes);
        let whole = self.access(me, len, act.strong) + ((me.thread & 31) << 4);
        if !self.on {
            return Ok(());
        }
        let end = at + len;
        for cell in at / 4..end.div_ceil(4) {
            let from = at.max(cell * 4) - cell * 4;
            let to = end.min(cell * 4 + 4) - cell * 4;
            let mask = (1u32 << to) - (1 << from);
            self.touch_cell(shadow, cell, whole & !WHOLE | mask, act)
                .map_err(|foe| Foe { byte: (cell * 4 + foe.byte).saturating_sub(at), ..foe })?;
        }
        Ok(())
    }

    fn touch_cell(&self, shadow: &mut Shadow, cell: usize, mine: u32, act: Act) -> Result<(), Foe> {
        let mask = mask_of(mine);
        let line = shadow.lines[cell / LINE];
        if self.current(line.writer) || self.current(line.reader) {
            self.expand(shadow, cell / LINE);
        }
        let alone = !self.current(line.owner) || mask_of(line.owner) != 0 && self.own(line.owner);
        shadow.lines[cell / LINE].owner = if alone { mine } else { self.mark() };
        let old = shadow.cell(cell);
        let split = self.current(old.writer) && mask_of(old.writer) == 0;
        if !split {
            let joint = |record| self.logged(record).is_some_and(|logged| logged.joint.is_some());
            let alike = |record| !self.current(record) || mask_of(record) == mask && !joint(record);
            if old.all(alike) {
                let byte = mask.trailing_zeros() as usize;
                let new = self.judge(old, mine, act).map_err(|(race, record)| Foe {
                    race,
                    byte,
                    other: self.name(record, byte),
                })?;
                shadow.set_cell(cell, new);
                return Ok(());
            }
            for byte in 0..4 {
                *shadow.byte(cell * 4 + byte) = old.map(|record| {
                    let touches = self.current(record) && record >> byte & 1 != 0;
                    if touches { self.part_of(record, byte) } else { 0 }
                });
            }
            shadow.writers[cell] = self.mark();
            shadow.lines[cell / LINE].owner = self.mark();
        }
        for byte in (0..4).filter(|byte| mask >> byte & 1 != 0) {
            let old = *shadow.byte(cell * 4 + byte);
            let new = self.judge(old, mine, act).map_err(|(race, record)| Foe {
                race,
                byte,
                other: self.name(record, byte),
            })?;
            *shadow.byte(cell * 4 + byte) = new;
        }
        if act.store && mask == WHOLE {
            shadow.set_cell(cell, Records { writer: mine, ..Records::default() });
        }
        Ok(())
    }

    /// Compares an access with those recorded of the same bytes; returns the records after it.
    fn judge(&self, old: Records, mine: u32, act: Act) -> Result<Records, (RaceKind, u32)> {
        let mut new = old;
        if self.races(old.writer, mine, act.strong) && !(act.harmless && !self.strong(old.writer)) {
            let race = if act.store { RaceKind::WriteAfterWrite } else { RaceKind::ReadAfterWrite };
            return Err((race, old.writer));
        }
        if act.store {
            for reader in [old.reader, old.other] {
                if self.races(reader, mine, act.strong) {
                    return Err((RaceKind::WriteAfterRead, reader));
                }
            }
            if !(act.strong && self.own(old.writer) && !self.strong(old.writer)) {
                new.writer = mine;
            }
        } else if !self.current(old.reader) || self.own(old.reader) {
            if !(act.strong && self.current(old.reader) && !self.strong(old.reader)) {
                new.reader = mine;
            }
        } else if self.strong(old.reader) && !act.strong {
            // A weak reader can race with more than a strong one.
            new.reader = mine;
        } else {
            new.other = mine;
        }
        Ok(new)
    }

    fn logged(&self, record: u32) -> Option<&Logged> {
        self.log.get(index_of(record).checked_sub(self.first)? as usize)
    }

    /// Whether a record is of this launch.
    fn current(&self, record: u32) -> bool {
        index_of(record) >= self.first
    }

    fn own(&self, record: u32) -> bool {
        self.current(record)
            && self.logged(record).is_some_and(|logged| logged.serial == self.standing.serial)
    }

    fn strong(&self, record: u32) -> bool {
        self.logged(record).is_some_and(|logged| logged.strong)
    }

    /// Whether a recorded access and mine are of two blocks, not both strong and not ordered.
    fn races(&self, record: u32, mine: u32, strong: bool) -> bool {
        if !self.current(record) || self.own(record) {
            return false;
        }
        let (Some(theirs), Some(me)) = (self.logged(record), self.logged(mine)) else {
            return false;
        };
        let what = [theirs.serial, u32::from(theirs.warp), theirs.tick];
        !(theirs.strong && strong)
            && !self.order.before(&self.standing, me.warp.into(), what, theirs.strong)
    }

    /// The thread of a record that touched a byte of its cell.
    fn name(&self, record: u32, byte: usize) -> Other {
        let Some(logged) = self.logged(record) else {
            return Other { thread: None, pc: None, block: None };
        };
        // A cell of several lanes is recorded as the first one's.
        let next = if mask_of(record) == WHOLE { byte as u32 / u32::from(logged.piece) } else { 0 };
        Other {
            thread: Some(u32::from(logged.warp) * 32 + lane_of(record) + next),
            pc: Some(logged.pc),
            block: self.blocks.get(logged.serial as usize).copied(),
        }
    }

    /// A fence of the whole GPU by a warp.
    pub fn fence(&mut self, warp: u32) {
        if self.on {
            self.order.fence(&mut self.standing, warp);
        }
    }

    /// The threads of the block meet, at a barrier or through shared memory.
    pub fn meet(&mut self) {
        if self.on && self.synchronises {
            self.order.barrier(&mut self.standing, self.next);
        }
    }

    /// A strong load of an address of global memory.
    pub fn acquire(&mut self, warp: u32, address: u64) {
        if self.synchronises {
            self.order.acquire(&mut self.standing, warp, address / 8);
        }
    }

    /// A strong store to it.
    pub fn release(&mut self, warp: u32, address: u64, fenced: bool) {
        if self.synchronises {
            if fenced {
                self.order.fence(&mut self.standing, warp);
            }
            self.order.release(&self.standing, warp, address / 8);
        }
    }
}
