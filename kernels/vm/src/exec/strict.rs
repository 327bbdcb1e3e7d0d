//! Rules that hardware since sm_70 does not enforce, for [`super::Options::strict`]: a member mask
//! names only lanes that are there, every thread comes to a barrier without a count, a warp comes to
//! an aligned barrier at one place, and no copy is under way when its thread exits.
//! Each is seen where it happens: nothing is said about what might have happened.

use super::machine::{Machine, Trouble};
use super::step::{Laned, Raise, Raised};
use super::warp::{State, Warp, lanes};
use crate::fault::FaultKind;
use crate::program::Action;
use crate::shared::Other;

/// A complete group of lanes whose mask names others.
pub(crate) fn members(
    warp: &Warp,
    machine: &Machine<'_>,
    members: u32,
    here: u32,
) -> Result<(), Laned> {
    let missing = members & !here;
    if !machine.strict || missing == 0 {
        return Ok(());
    }
    let lane = missing.trailing_zeros();
    let thread = warp.index * 32 + lane;
    let exited = thread < machine.block_threads;
    let kind = FaultKind::MissingLane { members, lane, exited };
    let other = exited.then(|| exit_of(warp, lane));
    Err((here.trailing_zeros() & 31, Box::new(Trouble { kind, other })))
}

/// Where a lane exited.
fn exit_of(warp: &Warp, lane: u32) -> Other {
    Other {
        thread: Some(warp.index * 32 + lane),
        pc: warp.exits.get(lane as usize).copied(),
        block: None,
    }
}

/// Lanes exit.
pub(crate) fn exit(
    warp: &mut Warp,
    machine: &Machine<'_>,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    if !machine.strict {
        return Ok(());
    }
    warp.exits.resize(32, 0);
    lanes(mask).for_each(|lane| warp.exits[lane] = pc);
    let pending = machine.copies[warp.index as usize].iter().map(|copy| copy.under_way(mask));
    match pending.filter(|lanes| *lanes != 0).map(u32::trailing_zeros).min() {
        Some(lane) => Err((lane, FaultKind::CopyUnderWay.into())),
        None => Ok(()),
    }
}

/// A barrier opens: for the whole block if nobody gave a count.
pub(crate) fn opens(
    warps: &[Warp],
    machine: &Machine<'_>,
    id: u8,
) -> Result<(), (usize, Box<Raised>)> {
    if !machine.strict {
        return Ok(());
    }
    let raise = |w: usize, pc: u32, mask: u32, trouble| {
        (
            w,
            Box::new(Raised {
                pc,
                lane: mask.trailing_zeros() & 31,
                what: Raise::Trouble(trouble),
            }),
        )
    };
    let gate = machine.gates[usize::from(id)];
    for (w, warp) in warps.iter().enumerate() {
        let mut here = warp.fragments.iter().filter(|f| f.state == State::AtBarrier(id));
        let Some(first) = here.next() else {
            continue;
        };
        let barrier = match machine.entry.code[first.pc as usize].action {
            Action::Barrier(i) => Some(&machine.entry.barriers[usize::from(i)]),
            _ => None,
        };
        if gate.expected == 0 && machine.alive_threads < machine.block_threads {
            let kind = FaultKind::ExitedAtBarrier {
                barrier: id.into(),
                arrived: gate.arrived,
                expected: machine.block_threads,
            };
            let other = warps.iter().find_map(|warp| {
                let all = (machine.block_threads - warp.index * 32).min(32);
                let gone = !warp.alive & (u32::MAX >> (32 - all));
                (gone != 0).then(|| exit_of(warp, gone.trailing_zeros()))
            });
            return Err(raise(w, first.pc, first.mask, Box::new(Trouble { kind, other })));
        }
        let aligned = barrier.is_some_and(|barrier| barrier.aligned);
        if aligned && let Some(elsewhere) = here.find(|other| other.pc != first.pc) {
            let kind = FaultKind::DivergedBarrier { barrier: id.into() };
            let thread = warp.index * 32 + elsewhere.mask.trailing_zeros();
            let other = Other { thread: Some(thread), pc: Some(elsewhere.pc), block: None };
            let trouble = Box::new(Trouble { kind, other: Some(other) });
            return Err(raise(w, first.pc, first.mask, trouble));
        }
    }
    Ok(())
}
