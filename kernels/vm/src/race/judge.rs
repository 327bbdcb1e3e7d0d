//! The long way: an access of one lane is compared with all that is recorded of its bytes.

use super::shadow::{LINE, Records, Shadow, WHOLE, index_of, lane_of, mask_of};
use super::{Act, Foe, Logged, Races};
use crate::fault::RaceKind;
use crate::shared::{Other, Toucher};

impl Races {
    /// Records an access of one lane or finds what it races with.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
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

    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub(super) fn touch_cell(
        &self,
        shadow: &mut Shadow,
        cell: usize,
        mine: u32,
        act: Act,
    ) -> Result<(), Foe> {
        let mask = mask_of(mine);
        let line = shadow.lines[cell / LINE];
        if self.current(line.writer) || self.current(line.reader) {
            self.expand(shadow, cell / LINE);
        }
        let mine_alone = || self.own(line.owner) && !self.rival(line.owner, mine);
        let alone = !self.current(line.owner) || mask_of(line.owner) != 0 && mine_alone();
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
                let parts = old.map(|record| {
                    let touches = self.current(record) && record >> byte & 1 != 0;
                    if touches { self.part_of(record, byte) } else { 0 }
                });
                shadow.set_byte(cell * 4 + byte, parts);
            }
            shadow.writers[cell] = self.mark();
            shadow.lines[cell / LINE].owner = self.mark();
        }
        for byte in (0..4).filter(|byte| mask >> byte & 1 != 0) {
            let old = shadow.byte(cell * 4 + byte);
            let new = self.judge(old, mine, act).map_err(|(race, record)| Foe {
                race,
                byte,
                other: self.name(record, byte),
            })?;
            shadow.set_byte(cell * 4 + byte, new);
        }
        if act.store && mask == WHOLE {
            shadow.set_cell(cell, Records { writer: mine, ..Records::default() });
        }
        Ok(())
    }

    /// Compares an access with those recorded of the same bytes; returns the records after it.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn judge(&self, old: Records, mine: u32, act: Act) -> Result<Records, (RaceKind, u32)> {
        let mut new = old;
        let same = act.harmless || act.same && self.own(old.writer);
        let harmless = same && !self.strong(old.writer);
        // Without a fence anywhere nothing is ordered but strong accesses of this very place, with
        // those the block has made there.
        let seen = |record| self.own(record) && self.wide(record);
        let met = !self.synchronises
            && !self.narrow
            && [old.writer, old.reader, old.other].into_iter().any(seen);
        let known = |record| met && self.wide(record) && !self.own(record);
        let races = |record| self.races(record, mine, act.strong) && !known(record);
        if !harmless && races(old.writer) {
            let race = if act.store { RaceKind::WriteAfterWrite } else { RaceKind::ReadAfterWrite };
            return Err((race, old.writer));
        }
        if act.store {
            for reader in [old.reader, old.other] {
                if races(reader) {
                    return Err((RaceKind::WriteAfterRead, reader));
                }
            }
            if !(act.strong && self.own(old.writer) && !self.strong(old.writer)) {
                new.writer = mine;
            }
        } else if self.rival(old.reader, mine) {
            // Another warp's read stays beside mine.
            if !self.current(old.other) || self.own(old.other) {
                new.other = mine;
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

    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub(super) fn logged(&self, record: u32) -> Option<&Logged> {
        self.log.get(index_of(record).checked_sub(self.first)? as usize)
    }

    /// Whether a record is of this launch.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub(super) fn current(&self, record: u32) -> bool {
        index_of(record) >= self.first
    }

    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn own(&self, record: u32) -> bool {
        self.current(record)
            && self.logged(record).is_some_and(|logged| logged.serial == self.standing.serial)
    }

    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn strong(&self, record: u32) -> bool {
        self.logged(record).is_some_and(|logged| logged.strong)
    }

    /// Strong for threads of other blocks too.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn wide(&self, record: u32) -> bool {
        self.logged(record).is_some_and(|logged| logged.strong && !logged.narrow)
    }

    /// Whether a recorded access and mine are of two blocks or warps, not both strong and not
    /// ordered.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn races(&self, record: u32, mine: u32, strong: bool) -> bool {
        if !self.current(record) {
            return false;
        }
        if self.own(record) {
            return self.rival(record, mine) && !(strong && self.strong(record));
        }
        let (Some(theirs), Some(me)) = (self.logged(record), self.logged(mine)) else {
            return false;
        };
        let what = [theirs.serial, u32::from(theirs.warp), theirs.tick];
        let theirs_wide = theirs.strong && !theirs.narrow;
        let both_strong = theirs_wide && strong && !me.narrow;
        let before = self.order.before(&self.standing, me.warp.into(), what, theirs_wide);
        !both_strong && !before
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
            block: (logged.serial != self.standing.serial)
                .then(|| self.blocks.get(logged.serial as usize).copied())
                .flatten(),
        }
    }
}
