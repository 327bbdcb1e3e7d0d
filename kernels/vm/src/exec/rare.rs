//! Executes the operations of [`crate::rare`], out of the hot loop.

use super::machine::Machine;
use super::step::Laned;
use super::warp::{FULL, Warp};
use super::warpgroup;
use super::{bulk, discard, flight, mbarrier, print, tensor, tile};
use crate::fault::FaultKind;
use crate::rare::Rare;
use crate::syntax::Space;

/// How the warp goes on.
pub(crate) enum Turn {
    Next,
    /// The whole warp has to come here first.
    Gather,
    /// Others run before the next instruction: it waits for them.
    Yield,
    /// Others run before this instruction is tried again.
    Stay,
    /// A strong access that changed nothing: where the first lane's leads.
    Poll(Space, u64),
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
        Rare::WarpgroupFence => {
            flight::fence(warp, machine);
            Ok(Turn::Next)
        }
        Rare::WarpgroupCommit => {
            flight::commit(warp, machine);
            Ok(Turn::Next)
        }
        Rare::WarpgroupWait { pending } => flight::wait(warp, machine, *pending, pc),
        Rare::BlockFence => {
            machine.shared.fence_block(warp.index);
            Ok(Turn::Next)
        }
        Rare::ClusterFence if machine.cluster.is_several() => {
            machine.fence(warp.index);
            Ok(Turn::Next)
        }
        Rare::ClusterFence => {
            machine.shared.fence_block(warp.index);
            Ok(Turn::Next)
        }
        Rare::ProxyFence => {
            machine.shared.fence_proxy(warp.index);
            Ok(Turn::Next)
        }
        Rare::Touches(what) => flight::touch(warp, machine, what, mask, pc),
        Rare::Mbarrier(what) => mbarrier::execute(warp, machine, what, mask, pc),
        Rare::Print(what) => print::print(warp, machine, what, mask, pc),
        Rare::Assert(what) => print::assertion(warp, machine, what, mask, pc),
        Rare::Exchange(what) => tile::exchange(warp, machine, what, mask, pc),
        Rare::Tile(what) => tile::tile(warp, machine, what, pc),
        Rare::Aligned { at, bytes } => tile::aligned(warp, machine, *at, *bytes, mask),
        Rare::Discard(at) => discard::discard(warp, machine, *at, mask, pc),
        Rare::TooDeep => Err((mask.trailing_zeros(), FaultKind::CallDepth.into())),
        Rare::CallNowhere { address } => {
            let lane = mask.trailing_zeros();
            let address = warp.longs[usize::from(*address)].0[lane as usize & 31];
            Err((lane, FaultKind::BadCall { address }.into()))
        }
        Rare::Bulk(what) => bulk::copy(warp, machine, what, mask, pc),
        Rare::BulkGroup(what) => bulk::group(warp, machine, *what, mask),
        Rare::Tensor(what) => tensor::copy(warp, machine, what, mask, pc),
        Rare::Async(what) => bulk::async_store(warp, machine, what, mask, pc),
    }
}
