//! Executes the operations of [`crate::rare`], out of the hot loop.

use super::machine::Machine;
use super::step::Laned;
use super::warp::{FULL, Warp};
use super::warpgroup;
use super::{bulk, mbarrier};
use crate::rare::Rare;

/// How the warp goes on.
pub(crate) enum Turn {
    Next,
    /// The whole warp has to come here first.
    Gather,
    /// Others run before the next instruction.
    Yield,
    /// The entry's unsupported of that number.
    Unsupported(u16),
}

#[inline(never)]
pub(crate) fn execute(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Rare,
    mask: u32,
    pc: u32,
) -> Result<Turn, Laned> {
    if what.aligned() && mask != FULL {
        return Ok(Turn::Gather);
    }
    match what {
        Rare::Warpgroup(what) => warpgroup::product(warp, machine, what, pc),
        Rare::Mbarrier(what) => mbarrier::execute(warp, machine, what, mask, pc),
        Rare::Bulk(what) => bulk::copy(warp, machine, what, mask, pc),
    }
}
