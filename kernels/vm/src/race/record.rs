//! The short way of recording weak accesses: by whole lines and cells, as long as no other block has
//! touched them, nor another warp since the block's warps last met. Whatever it refuses is judged.

use super::shadow::{LINE, Line, Records, STEPS, Shadow, WHOLE, mask_of};
use super::{Act, Races};
use crate::shared::Toucher;
use std::ops::Range;

/// Numbers of this launch from before the running block began to run.
#[derive(Clone, Copy)]
pub(super) struct Foreign {
    pub base: u32,
    pub width: u32,
}

impl Foreign {
    #[inline(always)]
    pub fn holds(self, number: u32) -> bool {
        number.wrapping_sub(self.base) < self.width
    }

    /// Whether a number is of this launch.
    #[inline(always)]
    pub fn current(self, number: u32) -> bool {
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
    if STORE {
        for other in &*others {
            read |= foreign.holds(*other);
        }
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

impl Races {
    /// Records weak accesses of lanes side by side, `piece` bytes each from that of `me` on, when
    /// no other block is in the way; false asks for [`Races::touch`].
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    #[cfg_attr(not(feature = "libfuzzer"), inline(never))]
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
                shared |= foreign.holds(line.owner) || self.rival(line.owner, first);
            }
            if !shared {
                let step = ((4 * LINE as u32) >> piece.trailing_zeros()) << 4;
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
        let rival = self.rival(line.owner, first);
        if rival && STORE {
            return false;
        }
        if alone && !rival {
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
        if rival || !alone {
            let meets = |record: &u32| self.rival(*record, first);
            let read = STORE && readers.iter().chain(&*others).any(meets);
            if read || writers.iter().any(meets) {
                return false;
            }
        }
        if alone && rival {
            // Another warp's reads stay beside mine.
            for ((reader, other), step) in readers.iter_mut().zip(others).zip(steps) {
                *(if self.rival(*reader, first) { other } else { reader }) = first + step;
            }
            shadow.lines[at].owner = self.mark();
            return true;
        }
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
    pub(super) fn expand(&self, shadow: &mut Shadow, at: usize) {
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
        if BYTES == 4 && self.cell::<STORE>(shadow, at / 4, mine) {
            return true;
        }
        self.line::<STORE>(shadow, at / 4..(at + BYTES) / 4, mine, &[0; 256])
    }

    /// Records an access to a cell of a line that is the warp's alone and has no records as a whole;
    /// false asks for [`Races::line`], which does the same.
    #[inline(always)]
    fn cell<const STORE: bool>(&self, shadow: &mut Shadow, cell: usize, mine: u32) -> bool {
        let foreign = self.foreign();
        let records = if STORE { &mut shadow.writers } else { &mut shadow.readers };
        let (Some(line), Some(record)) = (shadow.lines.get_mut(cell / LINE), records.get_mut(cell))
        else {
            return false;
        };
        let whole = foreign.current(line.writer) | foreign.current(line.reader);
        if whole || foreign.holds(line.owner) || self.rival(line.owner, mine) {
            return false;
        }
        (line.owner, *record) = (mine, mine);
        true
    }

    /// Whether no other block has touched a cell, nor another warp since the block's warps last met.
    #[inline(always)]
    fn alone(&self, old: Records, mine: u32) -> bool {
        let foreign = self.foreign();
        old.all(|record| !foreign.holds(record) && !self.rival(record, mine))
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
        let (owner, rival) = (line.owner, self.rival(line.owner, mine));
        if foreign.current(line.writer) || foreign.current(line.reader) {
            self.expand(shadow, cell / LINE);
        }
        // In a line that several have touched, a cell may still be the warp's alone.
        let shared = foreign.holds(owner);
        if !rival && (!shared || self.alone(shadow.cell(cell), mine)) {
            let records = if STORE { &mut shadow.writers } else { &mut shadow.readers };
            let record = &mut records[cell];
            let free = !foreign.current(*record) || mask_of(*record) == mask_of(mine);
            let new = if free { Some(mine) } else { self.join(*record, mine) };
            if let Some(new) = new {
                *record = new;
                if !shared {
                    shadow.lines[cell / LINE].owner = mine;
                }
                return true;
            }
        }
        if rival && STORE {
            // Whether the store changes anything is known further up.
            return false;
        }
        let act = Act { store: STORE, strong: false, harmless: false, same: false };
        self.touch_cell(shadow, cell, mine, act).is_ok()
    }
}
