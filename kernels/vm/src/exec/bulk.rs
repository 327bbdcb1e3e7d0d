//! `cp.async.bulk`, its reductions and asynchronous stores, a lane's after another's. The source is
//! read and checked at once. Into shared memory the bytes come with the phase of their mbarrier and
//! nothing may be read there before; into global memory they are stored at once, and what was read may
//! not change before the copy's group is waited for.

use super::access::{read_one, shared_trouble, toucher};
use super::address::{Target, addresses, resolve};
use super::machine::{Machine, Trouble};
use super::mbarrier::{self, at_hand};
use super::rare::Turn;
use super::reduction::Combine;
use super::span;
use super::step::Laned;
use super::warp::{Warp, lanes};
use crate::fault::{ClusterFault, FaultKind, MemorySpace};
use crate::rare::{AsyncStore, At, Bulk, BulkGroup};
use crate::shared::{Touch, Toucher};
use crate::space::{OWN_BYTES, rank_of};
use crate::syntax::Space;

/// What sizes and addresses are multiples of.
const PIECE: usize = 16;
/// Beyond any shared memory.
const LARGEST: u32 = 1 << 18;

pub(super) fn copy(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Bulk,
    mask: u32,
    pc: u32,
) -> Result<Turn, Laned> {
    let address = |at: &At| addresses(warp, at.base, at.offset);
    let (to, from) = (address(&what.to), address(&what.from));
    let counts = what.counts.map(|at| (at, address(&at)));
    for lane in lanes(mask) {
        let me = toucher(warp, lane, pc);
        let bytes = warp.word(what.bytes)[lane];
        let ranks = what.ranks.map(|slot| warp.word(slot)[lane] & 0xffff);
        let [to, from] = [to[lane], from[lane]];
        let result = match counts {
            Some((at, all)) => source(machine, what.from, from, bytes, me).and_then(|data| {
                checked(machine, to, bytes, MemorySpace::Shared, true)?;
                let goal = Goal { to: what.to, address: to, counts: at, object: all[lane], ranks };
                let combines = what.reduces.map(|(how, number)| Combine::Bulk(how, number));
                send(machine, &goal, &[(0, data)], combines, me)
            }),
            None => out_of_shared(machine, what, [to, from], bytes, me),
        };
        result.map_err(|trouble| (lane as u32, trouble))?;
        machine.changes += 1;
    }
    Ok(Turn::Next)
}

/// Copies out of shared memory have been made when they are issued; until they are waited for, what
/// they read may not change.
pub(super) fn group(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: BulkGroup,
    mask: u32,
) -> Result<Turn, Laned> {
    for lane in lanes(mask) {
        let thread = warp.index * 32 + lane as u32;
        match what {
            BulkGroup::Commit => machine.shared.close_bulk_group(thread),
            BulkGroup::Wait(pending) => machine.shared.wait_bulk_groups(thread, pending),
        }
    }
    Ok(Turn::Next)
}

/// Where bytes go, and what counts them.
pub(super) struct Goal {
    pub to: At,
    pub address: u64,
    pub counts: At,
    pub object: u64,
    /// To the same places in the memory of these ranks instead.
    pub ranks: Option<u32>,
}

/// Takes away what stands at the places of pieces, whose bytes come with the phase of the mbarrier.
pub(super) fn send(
    machine: &mut Machine<'_>,
    goal: &Goal,
    pieces: &[(u64, Vec<u8>)],
    combines: Option<Combine>,
    me: Toucher,
) -> Result<(), Box<Trouble>> {
    let offset = |at: At, address| match resolve(at.space, address) {
        Target::Shared(offset) | Target::Cluster(offset) => Ok(offset),
        _ => Err(machine.out_of_bounds(MemorySpace::Shared, address, PIECE as u32, true)),
    };
    let (to, object) = (offset(goal.to, goal.address)?, offset(goal.counts, goal.object)?);
    let own = u64::from(machine.cluster.rank);
    let one = |machine: &mut Machine<'_>, to: u64| {
        let object = object % OWN_BYTES;
        take_away(machine, to, pieces, combines.is_some(), me)?;
        let placed = pieces.iter().map(|(at, bytes)| (to + at, bytes.clone()));
        mbarrier::bring(machine, object, placed, combines, me)
    };
    match goal.ranks {
        Some(ranks) => machine.reach_all(ranks, to % OWN_BYTES, me, one),
        None if rank_of(to, own) != rank_of(object, own) => {
            Err(FaultKind::Cluster { wrong: ClusterFault::AnotherBlock }.into())
        }
        None => at_hand(machine, goal.to, goal.address, me, one),
    }
}

/// Nothing stands from now on where the bytes will come, unless they are combined with it.
fn take_away(
    machine: &mut Machine<'_>,
    to: u64,
    pieces: &[(u64, Vec<u8>)],
    combined: bool,
    me: Toucher,
) -> Result<(), Box<Trouble>> {
    let space = match machine.cluster.visitor() {
        Some(_) => MemorySpace::Cluster,
        None => MemorySpace::Shared,
    };
    for (at, data) in pieces {
        let (at, len) = (to + at, data.len());
        let Some(ready) = machine.shared.ready(at as usize, len) else {
            return Err(machine.out_of_bounds(space, at, len as u32, true));
        };
        if !machine.checks {
            continue;
        }
        let touch = if combined { Touch::StrongWrite } else { Touch::Write };
        let touched = machine.touch_at_hand(at, len, me, touch, false);
        touched.map_err(|fault| shared_trouble(machine, fault, at, len as u32, true))?;
        if !combined {
            machine.shared.set_ready(at as usize, len, false);
        } else if !ready {
            let (buffer, access_bytes) = (None, len as u32);
            return Err(FaultKind::Uninitialised { space, buffer, offset: at, access_bytes }.into());
        }
    }
    Ok(())
}

fn checked(
    machine: &Machine<'_>,
    address: u64,
    bytes: u32,
    space: MemorySpace,
    store: bool,
) -> Result<(), Box<Trouble>> {
    if !(address | u64::from(bytes)).is_multiple_of(PIECE as u64) {
        return Err(machine.misaligned(space, address, PIECE as u32, store));
    }
    if bytes > LARGEST {
        return Err(machine.out_of_bounds(space, address, bytes, store));
    }
    Ok(())
}

/// Reads what is copied, from shared or global memory.
fn source(
    machine: &mut Machine<'_>,
    at: At,
    address: u64,
    bytes: u32,
    me: Toucher,
) -> Result<Vec<u8>, Box<Trouble>> {
    let shared = at.space == Space::Shared;
    let space = if shared { MemorySpace::Shared } else { MemorySpace::Global };
    checked(machine, address, bytes, space, false)?;
    let mut out = vec![0; bytes as usize];
    for (i, piece) in out.chunks_mut(PIECE).enumerate() {
        let target = resolve(at.space, address.wrapping_add((i * PIECE) as u64));
        if machine.checks {
            read_one::<true>(machine, target, piece, me, false)?;
        } else {
            read_one::<false>(machine, target, piece, me, false)?;
        }
    }
    Ok(out)
}

/// Whether the asynchronous proxy sees what stands in shared memory.
pub(super) fn visible(machine: &Machine<'_>, at: usize, len: usize) -> Result<(), Box<Trouble>> {
    match machine.shared.generic.unseen(at, len) {
        None => Ok(()),
        Some((offset, other)) => {
            let kind = FaultKind::ProxyFence { offset: offset as u64 };
            Err(Box::new(Trouble { kind, other: Some(other) }))
        }
    }
}

fn out_of_shared(
    machine: &mut Machine<'_>,
    what: &Bulk,
    [to, from]: [u64; 2],
    bytes: u32,
    me: Toucher,
) -> Result<(), Box<Trouble>> {
    checked(machine, to, bytes, MemorySpace::Global, true)?;
    let mut data = source(machine, what.from, from, bytes, me)?;
    if machine.checks {
        visible(machine, from as usize, bytes as usize)?;
        machine.shared.read_in_bulk(from as usize, bytes as usize, me);
    }
    for (i, piece) in data.chunks_mut(PIECE).enumerate() {
        let to = to.wrapping_add((i * PIECE) as u64);
        let mut strong = false;
        if let Some((how, number)) = what.reduces {
            let mut old = [0; PIECE];
            let target = resolve(Space::Global, to);
            if machine.checks {
                read_one::<true>(machine, target, &mut old, me, true)?;
            } else {
                read_one::<false>(machine, target, &mut old, me, true)?;
            }
            Combine::Bulk(how, number).all(&old, piece);
            strong = true;
        }
        span::write(machine, to, piece, me, strong)
            .map_err(|obstacle| obstacle.trouble(machine, PIECE as u32, true))?;
    }
    Ok(())
}

/// `st.async` and `red.async`.
pub(super) fn async_store(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &AsyncStore,
    mask: u32,
    pc: u32,
) -> Result<Turn, Laned> {
    let (to, objects) = (
        addresses(warp, what.at.base, what.at.offset),
        addresses(warp, what.counts.base, what.counts.offset),
    );
    let width = usize::from(what.width_bytes);
    for lane in lanes(mask) {
        let me = toucher(warp, lane, pc);
        let regs = &what.regs[..usize::from(what.count)];
        let values = regs.iter().map(|reg| warp.value(*reg, lane).to_le_bytes());
        let data: Vec<u8> = values.flat_map(|bytes| bytes.into_iter().take(width)).collect();
        let len = data.len() as u32;
        let goal = Goal {
            to: what.at,
            address: to[lane],
            counts: what.counts,
            object: objects[lane],
            ranks: None,
        };
        let combines = what.reduces.map(Combine::Atomic);
        let result = if to[lane].is_multiple_of(len.into()) {
            send(machine, &goal, &[(0, data)], combines, me)
        } else {
            Err(machine.misaligned(MemorySpace::Cluster, to[lane] % OWN_BYTES, len, true))
        };
        result.map_err(|trouble| (lane as u32, trouble))?;
        machine.changes += 1;
    }
    Ok(Turn::Next)
}
