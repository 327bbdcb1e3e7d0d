//! Races of blocks on global memory: two accesses of one byte by threads of different blocks of one
//! launch, one of them a store, one of them weak (neither atomic nor `.volatile`, `.relaxed`,
//! `.acquire`, `.release`), and no release and acquire between them ([`order`] has the rules).
//! Weak stores of one value are a race too, unless the bytes bear [`crate::marks::SAME_VALUE`].
//!
//! No false alarms: every access of a block is compared with what really happened before it, and
//! where order cannot be told, it is assumed. So these are missed: races of threads of one block,
//! a reader that two later ones of other blocks replaced in the records, a scope of `.cta` on an
//! atomic, and whatever follows 2²² accesses at different places of the code, blocks, warps and
//! fences. Bytes that nobody may store to are not recorded. Launches of one block pay nothing.

mod clock;
mod order;
mod shadow;

use crate::fault::RaceKind;
use crate::shared::{Other, Toucher};
use order::Order;
pub(crate) use order::Standing;
pub(crate) use shadow::Shadow;
use shadow::{INDEX_SHIFT, LINE, Records, STEPS, WHOLE, index_of, lane_of, mask_of, number};

/// Accesses a launch may log.
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
    /// Bytes of the cell that another access touched, and its index.
    joint: Option<(u8, u32)>,
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
    /// The same of those that share a cell with an earlier one.
    joints: Vec<u32>,
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
            self.joints.clear();
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
            self.joints.resize(code, 0);
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
        if self.on {
            let serial = self.blocks.len() as u32;
            self.blocks.push(block);
            self.standing.restart(serial, self.order.tick);
            self.block_first = self.next;
        }
    }

    /// Another block goes on that had been laid aside; returns the one that ran.
    pub fn exchange_block(&mut self, standing: Standing) -> Standing {
        self.block_first = self.next;
        std::mem::replace(&mut self.standing, standing)
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

    /// The number of a weak access that shares a cell with an earlier one of the same thread, when
    /// no fence or barrier lies between.
    #[inline(always)]
    fn join(&mut self, old: u32, mine: u32) -> Option<u32> {
        let (before, me) = (*self.logged(old)?, *self.logged(mine)?);
        let alike = before.tick == me.tick
            && before.warp == me.warp
            && !before.strong
            && index_of(old) >= self.block_first
            && lane_of(old) == lane_of(mine)
            && mask_of(old) & mask_of(mine) == 0
            && mask_of(old) != 0;
        if !alike {
            return None;
        }
        let joint = Some((mask_of(old) as u8, index_of(old)));
        let slot = self.joints.get_mut(me.pc as usize)?;
        let mut index = *slot;
        let known = index
            .checked_sub(self.first)
            .and_then(|at| self.log.get(at as usize))
            .is_some_and(|known| known.joint == joint && known.tick == me.tick);
        if !known {
            if self.next - self.first >= LOG {
                return None;
            }
            index = self.next;
            self.next += 1;
            *slot = index;
            self.log.push(Logged { joint, ..me });
        }
        Some(number(index, lane_of(mine), mask_of(old) | mask_of(mine)))
    }

    /// Records weak accesses of lanes side by side, `piece` bytes each from that of `me` on, when
    /// no other block is in the way; false asks for [`Races::touch`].
    #[inline(always)]
    pub fn run<const STORE: bool>(
        &mut self,
        shadow: &mut Shadow,
        page_bytes: usize,
        at: usize,
        span: usize,
        piece: usize,
        me: Toucher,
    ) -> bool {
        if (at | span) & 3 != 0 {
            let lanes = (at..at + span).step_by(piece).zip(me.thread..);
            return lanes.fold(true, |all, (at, thread)| {
                let me = Toucher { thread, ..me };
                all && match piece {
                    1 => self.single::<STORE, 1>(shadow, page_bytes, at, me),
                    _ => self.single::<STORE, 2>(shadow, page_bytes, at, me),
                }
            });
        }
        shadow.cover(page_bytes);
        let first = self.access(me, piece, false) + ((me.thread & 31) << 4);
        let foreign = self.foreign();
        let cells = at / 4..(at + span) / 4;
        let (Some(lines), Some(writers), Some(readers), Some(others)) = (
            shadow.lines.get_mut(cells.start / LINE..cells.end.div_ceil(LINE)),
            shadow.writers.get_mut(cells.clone()),
            shadow.readers.get_mut(cells.clone()),
            shadow.others.get_mut(cells),
        ) else {
            return false;
        };
        let steps = &STEPS[piece.trailing_zeros() as usize % STEPS.len()];
        let mut shared = false;
        for line in &*lines {
            shared |= foreign.holds(*line);
        }
        if shared {
            let mark = self.mark();
            let done = among::<STORE>([writers, readers, others], first, steps, foreign);
            if done {
                lines.fill(mark);
            }
            return done;
        }
        lines.fill(first);
        let records = if STORE { writers } else { readers };
        for (record, step) in records.iter_mut().zip(steps) {
            *record = first + step;
        }
        true
    }

    /// The same for one lane's access of any width.
    #[inline(always)]
    pub fn single<const STORE: bool, const BYTES: usize>(
        &mut self,
        shadow: &mut Shadow,
        page_bytes: usize,
        at: usize,
        me: Toucher,
    ) -> bool {
        if BYTES >= 4 {
            return self.run::<STORE>(shadow, page_bytes, at, BYTES, BYTES, me);
        }
        shadow.cover(page_bytes);
        let foreign = self.foreign();
        let whole = self.access(me, BYTES, false) + ((me.thread & 31) << 4);
        let mine = whole & !WHOLE | ((1 << BYTES) - 1) << (at & 3);
        let cell = at / 4;
        let (Some(line), Some(writer), Some(reader)) =
            (shadow.lines.get(cell / LINE), shadow.writers.get(cell), shadow.readers.get(cell))
        else {
            return false;
        };
        let old = if STORE { *writer } else { *reader };
        if !foreign.holds(*line) {
            let free = !foreign.current(old) || mask_of(old) == mask_of(mine);
            let new = if free { Some(mine) } else { self.join(old, mine) };
            if let Some(new) = new {
                shadow.lines[cell / LINE] = mine;
                let records = if STORE { &mut shadow.writers } else { &mut shadow.readers };
                records[cell] = new;
                return true;
            }
        }
        let act = Act { store: STORE, strong: false, harmless: false };
        self.touch(shadow, page_bytes, at, BYTES, me, act).is_ok()
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
        let old = shadow.cell(cell);
        let line = &mut shadow.lines[cell / LINE];
        let alone = !self.current(*line) || mask_of(*line) != 0 && self.own(*line);
        *line = if alone { mine } else { self.mark() };
        let split = self.current(old.writer) && mask_of(old.writer) == 0;
        if !split {
            let alike = |record| !self.current(record) || mask_of(record) == mask;
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
                    if touches { record } else { 0 }
                });
            }
            shadow.writers[cell] = self.mark();
            shadow.lines[cell / LINE] = self.mark();
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
        let next = match logged.joint {
            Some((mask, before)) if mask >> byte & 1 != 0 => {
                return self.name(number(before, lane_of(record), mask.into()), byte);
            }
            // A cell of several lanes is recorded as the first one's.
            None if mask_of(record) == WHOLE => byte as u32 / u32::from(logged.piece),
            _ => 0,
        };
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
