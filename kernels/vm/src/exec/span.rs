//! Runs of bytes of global memory, of any length and alignment, as bulk and tensor copies take them,
//! under the checks of every load and store.

use super::access::{block_race, constant, read_one, readable, unreadable};
use super::address::{Target, resolve, space_of};
use super::machine::{Machine, Trouble};
use super::store::write_one;
use crate::fault::FaultKind;
use crate::memory::{Page, marks};
use crate::race::Act;
use crate::shared::Toucher;
use crate::syntax::Space;
use std::ops::Range;

/// Why a run cannot be accessed.
pub(super) enum Obstacle {
    /// That address belongs to no buffer.
    Outside(u64),
    Trouble(Box<Trouble>),
}

impl Obstacle {
    /// As a fault of a plain access.
    pub fn trouble(self, machine: &Machine<'_>, bytes: u32, store: bool) -> Box<Trouble> {
        match self {
            Obstacle::Outside(address) => {
                let (space, at) = space_of(resolve(Space::Global, address));
                machine.out_of_bounds(space, at, bytes, store)
            }
            Obstacle::Trouble(trouble) => trouble,
        }
    }
}

/// Pages hold multiples of this, but for the last of a buffer.
const PAGE: u64 = 1 << 16;

/// Splits a run into what lies in one page, single bytes where nothing longer does.
fn pieces(
    machine: &mut Machine<'_>,
    address: u64,
    len: usize,
    mut f: impl FnMut(&mut Machine<'_>, u64, Range<usize>) -> Result<(), Obstacle>,
) -> Result<(), Obstacle> {
    let mut done = 0;
    while done < len {
        let at = address.wrapping_add(done as u64);
        let page = (PAGE - at % PAGE).min((len - done) as u64) as usize;
        let piece = (16 - at % 16).min((len - done) as u64) as usize;
        let fits = [page, piece, 1].into_iter().find(|n| machine.memory.holds(at, *n as u64));
        let Some(n) = fits else {
            return Err(Obstacle::Outside(at));
        };
        f(machine, at, done..done + n)?;
        done += n;
    }
    Ok(())
}

/// Records an access of bytes of one page, sixteen at a time, where blocks may race.
fn record(
    machine: &mut Machine<'_>,
    address: u64,
    len: usize,
    me: Toucher,
    act: impl Fn(&Page, Range<usize>) -> Act,
) -> Result<(), Obstacle> {
    let Some((page, first)) = machine.memory.window(address, len as u64) else {
        return Err(Obstacle::Outside(address));
    };
    if !machine.races.on {
        return Ok(());
    }
    let mut at = first;
    while at < first + len {
        let end = (at + 1).next_multiple_of(16).min(first + len);
        let act = act(page, at..end);
        if act.store || !constant(page, at..end) {
            let page_len = page.data.len();
            let touched = machine.races.touch(&mut page.shadow, page_len, at, end - at, me, act);
            if let Err(foe) = touched {
                let address = address + (at - first) as u64;
                return Err(Obstacle::Trouble(block_race(machine, address, foe)));
            }
        }
        at = end;
    }
    Ok(())
}

/// Reads a run. `strong`: as atomics do.
pub(super) fn read(
    machine: &mut Machine<'_>,
    address: u64,
    out: &mut [u8],
    me: Toucher,
    strong: bool,
) -> Result<(), Obstacle> {
    if let Target::Data(start) = resolve(Space::Global, address) {
        for (i, byte) in out.chunks_mut(1).enumerate() {
            let target = Target::Data(start + i as u64);
            if machine.checks {
                read_one::<true>(machine, target, byte, me, strong).map_err(Obstacle::Trouble)?;
            } else {
                read_one::<false>(machine, target, byte, me, strong).map_err(Obstacle::Trouble)?;
            }
        }
        return Ok(());
    }
    pieces(machine, address, out.len(), |machine, address, range| {
        let len = range.len();
        let Some((page, at)) = machine.memory.window(address, len as u64) else {
            return Err(Obstacle::Outside(address));
        };
        let bytes = at..at + len;
        if machine.checks {
            if !readable(&page.marks[bytes.clone()])
                && let Some(trouble) = unreadable(machine, address, len as u64)
            {
                return Err(Obstacle::Trouble(trouble));
            }
            record(machine, address, len, me, |_, _| Act {
                store: false,
                strong,
                harmless: false,
                same: false,
            })?;
        }
        if let Some((page, at)) = machine.memory.window(address, len as u64) {
            out[range].copy_from_slice(&page.data[at..at + len]);
        }
        Ok(())
    })
}

/// Writes a run. `strong`: as atomics do.
pub(super) fn write(
    machine: &mut Machine<'_>,
    address: u64,
    data: &[u8],
    me: Toucher,
    strong: bool,
) -> Result<(), Obstacle> {
    if let Target::Data(start) = resolve(Space::Global, address) {
        for (i, byte) in data.chunks(1).enumerate() {
            let target = Target::Data(start + i as u64);
            if machine.checks {
                write_one::<true>(machine, target, byte, me, strong).map_err(Obstacle::Trouble)?;
            } else {
                write_one::<false>(machine, target, byte, me, strong).map_err(Obstacle::Trouble)?;
            }
        }
        return Ok(());
    }
    pieces(machine, address, data.len(), |machine, address, range| {
        let (data, len) = (&data[range.clone()], range.len());
        let Some((page, first)) = machine.memory.window(address, len as u64) else {
            return Err(Obstacle::Outside(address));
        };
        if machine.checks {
            let shadow = &page.marks[first..first + len];
            let refused = shadow.iter().position(|m| m & marks::UNWRITABLE != 0);
            if let Some(i) = refused
                && let Some(buffer) = machine.buffer_place(address + i as u64)
            {
                return Err(Obstacle::Trouble(FaultKind::UnwritableWrite { buffer }.into()));
            }
            record(machine, address, len, me, |page, at| {
                let declared = page.marks[at.clone()].iter().all(|m| m & marks::SAME_VALUE != 0);
                let from = at.start - first;
                let same = !strong && page.data[at.clone()] == data[from..from + at.len()];
                Act { store: true, strong, harmless: same && declared, same }
            })?;
        }
        if let Some((page, at)) = machine.memory.window(address, len as u64) {
            page.data[at..at + len].copy_from_slice(data);
            for mark in &mut page.marks[at..at + len] {
                *mark |= marks::INIT | marks::WRITTEN;
            }
            crate::watch::copied(machine, address, data, me, strong);
        }
        Ok(())
    })
}
