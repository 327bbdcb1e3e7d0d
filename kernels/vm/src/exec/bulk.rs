//! `cp.async.bulk` between global and shared memory, a lane's copy after another's. The source is
//! read and checked at once; into shared memory the bytes come with the phase of their mbarrier and
//! nothing may be read there before; out of it they are stored at once.

use super::access::{addresses, read_one, resolve, shared_trouble, toucher};
use super::machine::{Machine, Trouble};
use super::mbarrier;
use super::rare::Turn;
use super::step::Laned;
use super::store::write_one;
use super::warp::{Warp, lanes};
use crate::fault::MemorySpace;
use crate::rare::{At, Bulk};
use crate::shared::{Touch, Toucher};

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
        let result = match counts {
            Some((at, all)) => into_shared(machine, what, [to[lane], from[lane]], bytes, me)
                .and_then(|(to, bytes)| {
                    let object = mbarrier::shared_offset(machine, at, all[lane], 8)?;
                    mbarrier::bring(machine, object, to, bytes, me)
                }),
            None => out_of_shared(machine, what, [to[lane], from[lane]], bytes, me),
        };
        result.map_err(|trouble| (lane as u32, trouble))?;
        machine.changes += 1;
    }
    Ok(Turn::Next)
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

fn read(
    machine: &mut Machine<'_>,
    at: At,
    address: u64,
    bytes: u32,
    me: Toucher,
) -> Result<Vec<u8>, Box<Trouble>> {
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

/// Reads the source and takes away what stood at the destination.
fn into_shared(
    machine: &mut Machine<'_>,
    what: &Bulk,
    [to, from]: [u64; 2],
    bytes: u32,
    me: Toucher,
) -> Result<(u64, Vec<u8>), Box<Trouble>> {
    let to = mbarrier::shared_offset(machine, what.to, to, bytes)?;
    checked(machine, from, bytes, MemorySpace::Global, false)?;
    checked(machine, to, bytes, MemorySpace::Shared, true)?;
    let data = read(machine, what.from, from, bytes, me)?;
    let len = data.len();
    if !machine.shared.in_bounds(to, len) {
        return Err(machine.out_of_bounds(MemorySpace::Shared, to, bytes, true));
    }
    if machine.checks && len != 0 {
        let touched = machine.shared.touch(to as usize, len, me, Touch::Write, false);
        touched.map_err(|fault| shared_trouble(machine, fault, to, bytes, true))?;
        machine.shared.set_ready(to as usize, len, false);
    }
    Ok((to, data))
}

fn out_of_shared(
    machine: &mut Machine<'_>,
    what: &Bulk,
    [to, from]: [u64; 2],
    bytes: u32,
    me: Toucher,
) -> Result<(), Box<Trouble>> {
    checked(machine, to, bytes, MemorySpace::Global, true)?;
    checked(machine, from, bytes, MemorySpace::Shared, false)?;
    let data = read(machine, what.from, from, bytes, me)?;
    for (i, piece) in data.chunks(PIECE).enumerate() {
        let target = resolve(what.to.space, to.wrapping_add((i * PIECE) as u64));
        if machine.checks {
            write_one::<true>(machine, target, piece, me, false)?;
        } else {
            write_one::<false>(machine, target, piece, me, false)?;
        }
    }
    Ok(())
}
