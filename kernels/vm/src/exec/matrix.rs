//! Matrix instructions of one warp: fragments from and to shared memory, and transposed in
//! registers.

use super::access::{read_one, toucher};
use super::address::{addresses, resolve};
use super::copy;
use super::lane::put32;
use super::machine::Machine;
use super::mma;
use super::step::Laned;
use super::store::write_one;
use super::warp::{FULL, Warp, lanes};
use crate::dispatch;
use crate::program::{Fragments, Matrix};
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
        Matrix::Load(what) => load::<CHECKS>(warp, machine, what, mask, pc),
        Matrix::Store(what) => store::<CHECKS>(warp, machine, what, pc),
        Matrix::Transpose { d, a } => {
            let t = transposed(warp.word(*a));
            put32(&mut warp.words[usize::from(*d)], &t, mask);
            Ok(())
        }
        Matrix::Product(what) => {
            let model = machine.matrix_model;
            dispatch::product(machine.wide, warp, machine.operands, what, model);
            Ok(())
        }
        Matrix::Multiply(what) => {
            mma::multiply(warp, what);
            Ok(())
        }
        Matrix::Copy(what) => copy::copy::<CHECKS>(warp, machine, what, mask, pc),
        Matrix::Clock { d, step, high } => {
            let now = machine.read_clock(warp.index, mask, *step);
            let now = if *high { now >> 32 } else { now };
            lanes(mask).for_each(|l| warp.set(*d, l, now));
            Ok(())
        }
        Matrix::Commit => {
            copy::commit(warp, machine, mask);
            Ok(())
        }
        Matrix::Wait { pending } => copy::wait::<CHECKS>(warp, machine, *pending, mask, pc),
    }
}

/// An 8×8 tile of halves, of which lane l holds two neighbours of row l / 4, with rows and
/// columns exchanged.
#[inline(always)]
fn transposed(words: &[u32; 32]) -> [u32; 32] {
    let mut t = [0; 32];
    for row in 0..8 {
        for pair in 0..4 {
            // Elements (2 pair, row) and (2 pair + 1, row).
            let (upper, lower) = (words[8 * pair + row / 2], words[8 * pair + 4 + row / 2]);
            t[4 * row + pair] = if row % 2 == 0 {
                upper & 0xffff | lower << 16
            } else {
                upper >> 16 | lower & 0xffff_0000
            };
        }
    }
    t
}

/// Lane l gives the address of row l of all tiles.
#[inline(always)]
fn load<const CHECKS: bool>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Fragments,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    let all = addresses(warp, what.base, what.offset);
    let mut bytes = [[0u8; 16]; 32];
    let rows = FULL >> (32 - 8 * u32::from(what.count));
    let first = toucher(warp, 0, pc);
    if !CHECKS || !machine.shared.read_apart(&all, rows, first, &mut bytes) {
        for l in lanes(rows) {
            let target = resolve(Space::Shared, all[l]);
            let me = toucher(warp, l, pc);
            read_one::<CHECKS>(machine, target, &mut bytes[l], me, false)
                .map_err(|t| (l as u32, t))?;
        }
    }
    for (tile, d) in bytes.as_chunks::<8>().0.iter().zip(what.regs).take(what.count.into()) {
        let mut t = [0; 32];
        for (t, word) in t.iter_mut().zip(tile.as_flattened().as_chunks::<4>().0) {
            *t = u32::from_le_bytes(*word);
        }
        if what.transposed {
            t = transposed(&t);
        }
        put32(&mut warp.words[usize::from(d)], &t, mask);
    }
    Ok(())
}

#[inline(always)]
fn store<const CHECKS: bool>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Fragments,
    pc: u32,
) -> Result<(), Laned> {
    let all = addresses(warp, what.base, what.offset);
    for (i, slot) in what.regs.iter().enumerate().take(what.count.into()) {
        let mut t = *warp.word(*slot);
        if what.transposed {
            t = transposed(&t);
        }
        for (row, words) in t.as_chunks::<4>().0.iter().enumerate() {
            let l = 8 * i + row;
            let me = toucher(warp, l, pc);
            let mut bytes = [0; 16];
            for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
                *to = word.to_le_bytes();
            }
            let target = resolve(Space::Shared, all[l]);
            write_one::<CHECKS>(machine, target, &bytes, me, false).map_err(|t| (l as u32, t))?;
        }
    }
    Ok(())
}
