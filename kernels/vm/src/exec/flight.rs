//! `wgmma` under way: what the PTX ISA asks between a product and the wait for its group (section
//! "Asynchronous wgmma Proxy Operations"). Each rule is judged on registers as values: a move
//! between registers carries what is under way along and is no access, for compilers put moves
//! where the source has none.
//!
//! Reported: a sum read, written or taken by a product of another shape before its wait (a group
//! that nobody commits is never waited for); a factor's register written before the wait; a
//! product before any `wgmma.fence`, or on a register written since the last; a factor in shared
//! memory of which a byte has changed, or been announced by an asynchronous copy, when the wait
//! comes. Not reported: reads of a factor's registers, which the tensor core only reads too, and
//! an accumulator read, but not written, since the last fence.
//!
//! Products are computed when they are issued. A wait lasts until the other warps of the
//! warpgroup have issued what it waits for: one warp may tell a producer for all four.

use super::access::toucher;
use super::address::{Target, addresses, offset, resolve};
use super::collective::order_lanes;
use super::machine::{Machine, Trouble};
use super::rare::Turn;
use super::step::Laned;
use super::warp::{Warp, lanes};
use crate::fault::{FaultKind, WarpgroupFault};
use crate::program::{Matrix, Slot};
use crate::rare::{Generic, Touches, Warpgroup, Wide};
use crate::shared::{Other, Touch, Toucher};
use crate::syntax::Space;

/// Warps of a warpgroup.
const WARPS: usize = 4;

/// A product that has been issued.
#[derive(Clone, Copy)]
struct Issued {
    pc: u32,
    columns: usize,
    group: u32,
}

/// What a register has to do with products, by their numbers; 0 for none.
#[derive(Clone, Copy, Default)]
struct Hold {
    sum: u32,
    factor: u32,
    /// One more than the place that wrote it since the last fence.
    written: u32,
}

/// Sixteen bytes of a factor as a product read them.
struct Piece {
    offset: usize,
    bytes: [u8; 16],
    group: u32,
    pc: u32,
}

/// The products of one warp.
#[derive(Default)]
pub(crate) struct Flight {
    /// Those from number `first + 1` on; all before have been waited for.
    issued: Vec<Issued>,
    first: u32,
    /// Groups closed so far, and how many of them have been waited for.
    commits: u32,
    landed: u32,
    fenced: bool,
    holds: Vec<Hold>,
    pieces: Vec<Piece>,
}

impl Flight {
    pub fn clear(&mut self) {
        self.issued.clear();
        self.holds.clear();
        self.pieces.clear();
        (self.first, self.commits, self.landed, self.fenced) = (0, 0, 0, false);
    }

    /// The product of that number, if it is under way.
    fn under_way(&self, number: u32) -> Option<Issued> {
        let at = number.checked_sub(self.first + 1)?;
        let issued = self.issued.get(at as usize)?;
        (issued.group >= self.landed).then_some(*issued)
    }

    fn hold(&mut self, slot: Slot) -> &mut Hold {
        let at = usize::from(slot);
        if self.holds.len() <= at {
            self.holds.resize(at + 1, Hold::default());
        }
        &mut self.holds[at]
    }

    fn read(&mut self, slot: Slot) -> Result<(), Box<Trouble>> {
        let sum = self.hold(slot).sum;
        match self.under_way(sum) {
            Some(issued) => {
                let committed = issued.group < self.commits;
                Err(fault(WarpgroupFault::EarlyRead { committed }, issued.pc))
            }
            None => Ok(()),
        }
    }

    fn write(&mut self, slot: Slot, pc: u32) -> Result<(), Box<Trouble>> {
        let Hold { sum, factor, .. } = *self.hold(slot);
        if let Some(issued) = self.under_way(sum) {
            return Err(fault(WarpgroupFault::EarlyWrite { sum: true }, issued.pc));
        }
        if let Some(issued) = self.under_way(factor) {
            return Err(fault(WarpgroupFault::EarlyWrite { sum: false }, issued.pc));
        }
        *self.hold(slot) = Hold { sum: 0, factor: 0, written: pc + 1 };
        Ok(())
    }

    /// A register takes over what one of two holds.
    fn copy(&mut self, d: Slot, sources: [Slot; 2]) {
        let [a, b] = sources.map(|slot| *self.hold(slot));
        let (sum, written) = (a.sum.max(b.sum), a.written.max(b.written));
        if !sources.contains(&d) {
            *self.hold(d) = Hold { sum, factor: 0, written };
        }
    }

    fn written_since(&mut self, slot: Slot) -> Result<(), Box<Trouble>> {
        match self.hold(slot).written {
            0 => Ok(()),
            place => Err(fault(WarpgroupFault::Unfenced, place - 1)),
        }
    }
}

fn fault(wrong: WarpgroupFault, pc: u32) -> Box<Trouble> {
    let other = Some(Other { thread: None, pc: Some(pc), block: None });
    Box::new(Trouble { kind: FaultKind::Warpgroup { wrong }, other })
}

/// An instruction is about to touch registers of products, or to store to shared memory.
pub(super) fn touch(
    warp: &Warp,
    machine: &mut Machine<'_>,
    what: &Touches,
    mask: u32,
    pc: u32,
) -> Result<Turn, Laned> {
    if !machine.checks {
        return Ok(Turn::Next);
    }
    let flight = &mut machine.flights[warp.index as usize];
    let first = mask.trailing_zeros() & 31;
    let at = |trouble| (first, trouble);
    what.reads.iter().try_for_each(|slot| flight.read(*slot)).map_err(at)?;
    what.writes.iter().try_for_each(|slot| flight.write(*slot, pc)).map_err(at)?;
    what.copies.iter().for_each(|(d, sources)| flight.copy(*d, *sources));
    if let Some(generic) = what.generic {
        store(warp, machine, generic, mask, pc);
    }
    Ok(Turn::Next)
}

/// Notes a store to shared memory by the generic proxy.
fn store(warp: &Warp, machine: &mut Machine<'_>, generic: Generic, mask: u32, pc: u32) {
    let entry = machine.entry;
    let (space, base, offset, len, mask) = match generic {
        Generic::Store(i) => {
            let what = &entry.accesses[usize::from(i)];
            (what.space, what.base, offset(warp, what) as i64, what.bytes() as usize, mask)
        }
        Generic::Atomic(i) => {
            let what = &entry.atomics[usize::from(i)];
            (what.space, what.base, what.offset, what.width_bytes.into(), mask)
        }
        Generic::Matrix(i) => match &entry.matrices[usize::from(i)] {
            Matrix::Store(what) => {
                let rows = u32::MAX >> (32 - 8 * u32::from(what.count));
                (Space::Shared, what.base, what.offset, 16, rows)
            }
            // Copies are not the generic proxy's.
            Matrix::Copy(what) => {
                let to = addresses(warp, what.d, what.d_offset);
                for lane in lanes(mask) {
                    let at = usize::try_from(to[lane]).unwrap_or(usize::MAX);
                    machine.shared.generic.forget(at, what.bytes.into());
                }
                return;
            }
            _ => return,
        },
    };
    let all = addresses(warp, base, offset);
    for lane in lanes(mask) {
        if let Target::Shared(at) = resolve(space, all[lane]) {
            machine.shared.generic_store(at, len, toucher(warp, lane, pc));
        }
    }
}

/// `wgmma.fence`.
pub(super) fn fence(warp: &Warp, machine: &mut Machine<'_>) {
    let flight = &mut machine.flights[warp.index as usize];
    flight.fenced = true;
    flight.holds.iter_mut().for_each(|hold| hold.written = 0);
}

/// `wgmma.commit_group`.
pub(super) fn commit(warp: &Warp, machine: &mut Machine<'_>) {
    machine.flights[warp.index as usize].commits += 1;
    machine.changes += 1;
}

/// Whether a product may be issued.
pub(super) fn admit(
    warp: &Warp,
    machine: &mut Machine<'_>,
    what: &Warpgroup,
) -> Result<(), Box<Trouble>> {
    let flight = &mut machine.flights[warp.index as usize];
    if !flight.fenced {
        return Err(FaultKind::Warpgroup { wrong: WarpgroupFault::NoFence }.into());
    }
    if let Wide::Registers(slots) = what.left {
        for slot in slots {
            flight.read(slot)?;
            flight.written_since(slot)?;
        }
    }
    for slot in &what.d {
        flight.written_since(*slot)?;
        let Hold { sum, factor, .. } = *flight.hold(*slot);
        if let Some(issued) = flight.under_way(sum)
            && issued.columns != what.columns()
        {
            return Err(fault(WarpgroupFault::OtherShape, issued.pc));
        }
        if let Some(issued) = flight.under_way(factor) {
            return Err(fault(WarpgroupFault::EarlyWrite { sum: false }, issued.pc));
        }
    }
    Ok(())
}

/// A product is issued; its factors in shared memory are noted by [`read`] from then on.
pub(super) fn issue(warp: &Warp, machine: &mut Machine<'_>, what: &Warpgroup, pc: u32) {
    let flight = &mut machine.flights[warp.index as usize];
    let group = flight.commits;
    flight.issued.push(Issued { pc, columns: what.columns(), group });
    let number = flight.first + flight.issued.len() as u32;
    if let Wide::Registers(slots) = what.left {
        slots.iter().for_each(|slot| flight.hold(*slot).factor = number);
    }
    for slot in &what.d {
        *flight.hold(*slot) = Hold { sum: number, factor: 0, written: 0 };
    }
}

/// The product issued last reads a piece of a factor.
pub(super) fn read(
    machine: &mut Machine<'_>,
    warp: u32,
    offset: u64,
    bytes: [u8; 16],
) -> Result<(), Box<Trouble>> {
    let offset = offset as usize;
    if let Some((at, other)) = machine.shared.generic.unseen(offset, bytes.len()) {
        let wrong = WarpgroupFault::NoProxyFence { offset: at as u64 };
        return Err(Box::new(Trouble { kind: FaultKind::Warpgroup { wrong }, other: Some(other) }));
    }
    let flight = &mut machine.flights[warp as usize];
    if let Some(Issued { pc, group, .. }) = flight.issued.last().copied() {
        flight.pieces.push(Piece { offset, bytes, group, pc });
    }
    Ok(())
}

/// `wgmma.wait_group`: all but the last `pending` groups.
pub(super) fn wait(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    pending: u32,
    pc: u32,
) -> Result<Turn, Laned> {
    let me = warp.index as usize;
    let landed = machine.flights[me].commits.saturating_sub(pending);
    if landed <= machine.flights[me].landed {
        return Ok(Turn::Next);
    }
    let first = me / WARPS * WARPS;
    let all = first..(first + WARPS).min(machine.flights.len());
    if machine.flights[all.clone()].iter().any(|flight| flight.commits < landed) {
        warp.waits(pc, 0, (Space::Shared, 0));
        return Ok(Turn::Stay);
    }
    machine.changes += 1;
    let flight = &mut machine.flights[me];
    flight.landed = landed;
    if flight.issued.iter().all(|issued| issued.group < landed) {
        flight.first += flight.issued.len() as u32;
        flight.issued.clear();
    }
    // The products are the warpgroup's: they are complete for the other warps as well, who may
    // not touch their registers before waiting all the same.
    for w in all {
        let pieces = std::mem::take(&mut machine.flights[w].pieces);
        let (there, left): (Vec<Piece>, Vec<Piece>) =
            pieces.into_iter().partition(|piece| piece.group < landed);
        machine.flights[w].pieces = left;
        machine.shared.acquire_asynchronous(warp.index, w as u32);
        for piece in &there {
            // Whoever waits has waited for all: it comes before whatever they do after that.
            let by = Toucher { thread: 32 * w as u32, pc: piece.pc, clock: 0, synced: 0 };
            land(machine, piece, by).map_err(|trouble| (0, trouble))?;
        }
    }
    order_lanes(warp, machine);
    machine.shared.pass_on(warp.index, warp.alive, warp.alive);
    Ok(Turn::Next)
}

/// A piece that a product has read for the last time: it must be as it was, and who stores to it
/// from now on must come after the wait.
fn land(machine: &mut Machine<'_>, piece: &Piece, me: Toucher) -> Result<(), Box<Trouble>> {
    let at = piece.offset;
    let same = machine.shared.data.get(at..at + 16) == Some(&piece.bytes);
    if same && machine.shared.ready(at, 16) == Some(true) {
        // A race with a store that changed nothing is none.
        let _ = machine.shared.load(at as u64, 16, me, Touch::Read);
        return Ok(());
    }
    let now = machine.shared.data.get(at..at + 16).unwrap_or_default();
    let changed = now.iter().zip(&piece.bytes).position(|(now, then)| now != then).unwrap_or(0);
    let product_line = machine.entry.places[me.pc as usize].ptx_line;
    let offset = at + changed;
    let wrong = WarpgroupFault::Overwritten { offset: offset as u64, product_line };
    let other = machine.shared.last_writer(offset);
    Err(Box::new(Trouble { kind: FaultKind::Warpgroup { wrong }, other }))
}
