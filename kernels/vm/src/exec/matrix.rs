//! Matrix loads, matrix products and asynchronous copies of one warp.

use super::access::{Target, addresses, read_one, resolve, shared_trouble, toucher};
use super::lane::put32;
use super::machine::{Machine, PendingCopy};
use super::step::Laned;
use super::warp::{Warp, lanes};
use crate::dispatch;
use crate::fault::MemorySpace;
use crate::program::Matrix;
use crate::shared::Touch;
use crate::syntax::Space;

#[inline(always)]
pub(crate) fn execute<const CHECKS: bool>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Matrix,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    match what {
        Matrix::Load { d, count, transposed, base, offset } => {
            let all = addresses(warp, *base, *offset);
            let mut bytes = [0u8; 512];
            let (rows, _) = bytes.as_chunks_mut::<16>();
            for (l, row) in rows.iter_mut().enumerate().take(usize::from(*count) * 8) {
                let me = toucher(warp, l, pc);
                let target = resolve(Space::Shared, all[l]);
                read_one::<CHECKS>(machine, target, row, me, false)
                    .map_err(|trouble| (l as u32, trouble))?;
            }
            let (tiles, _) = bytes.as_chunks::<128>();
            for (tile, d) in tiles.iter().zip(d).take(usize::from(*count)) {
                let (pairs, _) = tile.as_chunks::<4>();
                let mut t = [0u32; 32];
                if *transposed {
                    for (l, t) in t.iter_mut().enumerate() {
                        let (row, column) = (l / 4, (l % 4) * 2);
                        let element = |column: usize| {
                            let at = column * 16 + row * 2;
                            u32::from(u16::from_le_bytes([tile[at], tile[at + 1]]))
                        };
                        *t = element(column) | element(column + 1) << 16;
                    }
                } else {
                    for (t, pair) in t.iter_mut().zip(pairs) {
                        *t = u32::from_le_bytes(*pair);
                    }
                }
                put32(&mut warp.words[usize::from(*d)], &t, mask);
            }
            Ok(())
        }
        Matrix::Product(what) => {
            dispatch::product(machine.wide, warp, machine.operands, what);
            Ok(())
        }
        Matrix::Copy { bytes, d, d_offset, s, s_offset, size } => {
            let to = addresses(warp, *d, *d_offset);
            let from = addresses(warp, *s, *s_offset);
            for l in lanes(mask) {
                let len = usize::from(*bytes);
                let wanted = size.map_or(len, |slot| warp.word(slot)[l] as usize).min(len);
                match len {
                    16 => copy::<CHECKS, 16>(warp, machine, l, pc, to[l], from[l], wanted)?,
                    8 => copy::<CHECKS, 8>(warp, machine, l, pc, to[l], from[l], wanted)?,
                    _ => copy::<CHECKS, 4>(warp, machine, l, pc, to[l], from[l], wanted)?,
                }
            }
            Ok(())
        }
        Matrix::Commit => {
            for l in lanes(mask) {
                machine.commits[warp.index as usize * 32 + l] += 1;
            }
            Ok(())
        }
        Matrix::Wait { pending } => {
            for l in lanes(mask) {
                let thread = warp.index * 32 + l as u32;
                let open = match pending {
                    None => u32::MAX,
                    Some(pending) => machine.commits[thread as usize].saturating_sub(*pending),
                };
                land::<CHECKS>(warp, machine, thread, open, pc)?;
            }
            Ok(())
        }
    }
}

#[allow(clippy::too_many_arguments)]
fn copy<const CHECKS: bool, const LEN: usize>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    lane: usize,
    pc: u32,
    to: u64,
    from: u64,
    wanted: usize,
) -> Result<(), Laned> {
    let len = LEN;
    let me = toucher(warp, lane, pc);
    let at = lane as u32;
    let mut data = [0u8; 16];
    if from & (len as u64 - 1) != 0 {
        return Err((at, machine.misaligned(MemorySpace::Global, from, len as u32, false)));
    }
    if wanted == len {
        let target = resolve(Space::Global, from);
        read_one::<CHECKS>(machine, target, &mut data[..len], me, false)
            .map_err(|trouble| (at, trouble))?;
    } else {
        for i in 0..wanted {
            let target = resolve(Space::Global, from + i as u64);
            read_one::<CHECKS>(machine, target, &mut data[i..=i], me, false)
                .map_err(|trouble| (at, trouble))?;
        }
    }
    let Target::Shared(offset) = resolve(Space::Shared, to) else {
        return Ok(());
    };
    if offset & (len as u64 - 1) != 0 {
        return Err((at, machine.misaligned(MemorySpace::Shared, offset, len as u32, true)));
    }
    if !machine.shared.in_bounds(offset, LEN) {
        return Err((at, machine.out_of_bounds(MemorySpace::Shared, offset, len as u32, true)));
    }
    if CHECKS {
        let touched = machine.shared.touch(offset as usize, LEN, me, Touch::Write, false);
        touched.map_err(|fault| (at, shared_trouble(machine, fault, offset, len as u32, true)))?;
        machine.shared.set_ready(offset as usize, LEN, false);
    }
    machine.copies[me.thread as usize].push_back(PendingCopy {
        group: machine.commits[me.thread as usize],
        offset: offset as u32,
        bytes: data,
        len: len as u8,
    });
    Ok(())
}

/// Lets the copies of a thread's groups below `open` arrive.
fn land<const CHECKS: bool>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    thread: u32,
    open: u32,
    pc: u32,
) -> Result<(), Laned> {
    // A thread's groups are in order.
    while let Some(&pending) = machine.copies[thread as usize].front()
        && pending.group < open
    {
        machine.copies[thread as usize].pop_front();
        match pending.len {
            16 => arrive::<CHECKS, 16>(warp, machine, thread, pending, pc)?,
            8 => arrive::<CHECKS, 8>(warp, machine, thread, pending, pc)?,
            _ => arrive::<CHECKS, 4>(warp, machine, thread, pending, pc)?,
        }
    }
    Ok(())
}

#[inline(always)]
fn arrive<const CHECKS: bool, const LEN: usize>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    thread: u32,
    pending: PendingCopy,
    pc: u32,
) -> Result<(), Laned> {
    let at = pending.offset as usize;
    if CHECKS {
        let lane = thread % 32;
        let me = toucher(warp, lane as usize, pc);
        let offset = u64::from(pending.offset);
        let touched = machine.shared.touch(at, LEN, me, Touch::Write, false);
        touched
            .map_err(|fault| (lane, shared_trouble(machine, fault, offset, LEN as u32, true)))?;
        machine.shared.set_ready(at, LEN, true);
    }
    machine.shared.data[at..at + LEN].copy_from_slice(&pending.bytes[..LEN]);
    Ok(())
}
