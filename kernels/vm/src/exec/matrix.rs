//! Matrix loads, matrix products and asynchronous copies of one warp.
//! Products follow the H200: every product and the accumulator are cut toward zero to a common
//! quantum of 2^(E−25), summed exactly and the sum cut to f32.

use super::access::{Target, addresses, read_one, resolve, shared_trouble, toucher};
use super::machine::{Machine, PendingCopy};
use super::step::Laned;
use super::warp::{Warp, lanes};
use crate::fault::MemorySpace;
use crate::float::{NAN_F32, Rounding, narrow, power_of_two};
use crate::program::{Matrix, Shape};
use crate::shared::Touch;
use crate::syntax::Space;

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
            let mut rows = [[0u8; 16]; 32];
            for l in 0..usize::from(*count) * 8 {
                let me = toucher(warp, l, pc);
                let target = resolve(Space::Shared, all[l]);
                read_one::<CHECKS>(machine, target, &mut rows[l], me, false)
                    .map_err(|trouble| (l as u32, trouble))?;
            }
            for (tile, d) in d.iter().take(usize::from(*count)).enumerate() {
                for l in lanes(mask) {
                    let element = |row: usize, column: usize| {
                        let bytes = &rows[tile * 8 + row][column * 2..column * 2 + 2];
                        u32::from(u16::from_le_bytes([bytes[0], bytes[1]]))
                    };
                    let (row, column) = (l / 4, (l % 4) * 2);
                    let (low, high) = if *transposed {
                        (element(column, row), element(column + 1, row))
                    } else {
                        (element(row, column), element(row, column + 1))
                    };
                    warp.words[usize::from(*d)].0[l] = low | high << 16;
                }
            }
            Ok(())
        }
        Matrix::Product { shape, a, b, c, d } => {
            product(warp, *shape, *a, *b, *c, *d);
            Ok(())
        }
        Matrix::Copy { bytes, d, d_offset, s, s_offset, size } => {
            let to = addresses(warp, *d, *d_offset);
            let from = addresses(warp, *s, *s_offset);
            for l in lanes(mask) {
                let len = usize::from(*bytes);
                let wanted = size.map_or(len, |slot| warp.word(slot)[l] as usize).min(len);
                copy::<CHECKS>(warp, machine, l, pc, to[l], from[l], len, wanted)?;
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
fn copy<const CHECKS: bool>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    lane: usize,
    pc: u32,
    to: u64,
    from: u64,
    len: usize,
    wanted: usize,
) -> Result<(), Laned> {
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
    if !machine.shared.in_bounds(offset, len as u64) {
        return Err((at, machine.out_of_bounds(MemorySpace::Shared, offset, len as u32, true)));
    }
    if CHECKS {
        let touched = machine.shared.touch(offset as usize, len, me, Touch::Write, false);
        touched.map_err(|fault| (at, shared_trouble(machine, fault, offset, len as u32, true)))?;
        machine.shared.set_ready(offset as usize, len, false);
    }
    machine.copies.push(PendingCopy {
        thread: me.thread,
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
    let mut i = 0;
    while i < machine.copies.len() {
        let pending = machine.copies[i];
        if pending.thread != thread || pending.group >= open {
            i += 1;
            continue;
        }
        machine.copies.remove(i);
        let (at, len) = (pending.offset as usize, usize::from(pending.len));
        if CHECKS {
            let lane = thread % 32;
            let me = toucher(warp, lane as usize, pc);
            let offset = u64::from(pending.offset);
            let touched = machine.shared.touch(at, len, me, Touch::Write, false);
            touched.map_err(|fault| {
                (lane, shared_trouble(machine, fault, offset, len as u32, true))
            })?;
            machine.shared.set_ready(at, len, true);
        }
        machine.shared.data[at..at + len].copy_from_slice(&pending.bytes[..len]);
    }
    Ok(())
}

/// Marks a zero operand: no real exponent is near it.
const NONE: i32 = -10_000;

/// d = a·b + c over the whole warp; inlined into the hot loop and vectorised over columns.
#[inline(always)]
pub(crate) fn product(
    warp: &mut Warp,
    shape: Shape,
    a: [u16; 4],
    b: [u16; 2],
    c: [u16; 4],
    d: [u16; 4],
) {
    let (a_count, b_count) = shape.registers();
    let depth = b_count * 8;
    let brain = matches!(shape, Shape::Bf16K16 | Shape::Bf16K8);
    let mut left = [[0f32; 16]; 16];
    let mut right = [[0f32; 8]; 16];
    for l in 0..32 {
        let (row, k) = (l / 4, (l % 4) * 2);
        for i in 0..a_count {
            let word = warp.words[usize::from(a[i])].0[l];
            let (r, k) = (row + 8 * (i & 1), k + 8 * (i >> 1));
            left[r][k] = decode(brain, word & 0xffff);
            left[r][k + 1] = decode(brain, word >> 16);
        }
        for i in 0..b_count {
            let word = warp.words[usize::from(b[i])].0[l];
            let k = k + 8 * i;
            right[k][row] = decode(brain, word & 0xffff);
            right[k + 1][row] = decode(brain, word >> 16);
        }
    }
    let mut right_exponents = [[NONE; 8]; 16];
    let mut calm = true;
    for k in 0..depth {
        for n in 0..8 {
            right_exponents[k][n] = exponent(right[k][n]);
            calm &= usual(right[k][n]);
        }
    }
    let mut out = [[0u32; 32]; 4];
    for row in 0..16 {
        let mut start = [0f32; 8];
        for (n, start) in start.iter_mut().enumerate() {
            let slot = c[(row >> 3) * 2 + (n & 1)];
            *start = f32::from_bits(warp.words[usize::from(slot)].0[(row & 7) * 4 + n / 2]);
        }
        let mut highest = [NONE; 8];
        let mut row_calm = calm;
        for n in 0..8 {
            highest[n] = exponent(start[n]);
            row_calm &= usual(start[n]);
        }
        for k in 0..depth {
            let e = exponent(left[row][k]);
            row_calm &= usual(left[row][k]);
            for n in 0..8 {
                highest[n] = highest[n].max(e + right_exponents[k][n]);
            }
        }
        let mut sums = [0u32; 8];
        if row_calm {
            let mut scale = [0f32; 8];
            for n in 0..8 {
                // All factors lie within 2^±60: this is a normal number.
                let e = (25 - highest[n]).clamp(-126, 127);
                scale[n] = f32::from_bits(((e + 127) as u32) << 23);
            }
            let mut whole = [0i32; 8];
            for k in 0..depth {
                let x = left[row][k];
                for n in 0..8 {
                    let quanta = x * right[k][n] * scale[n];
                    // At most 2^27 in magnitude.
                    whole[n] += quanta as i32;
                }
            }
            for n in 0..8 {
                let total = i64::from(whole[n]) + i64::from((start[n] * scale[n]) as i32);
                sums[n] = finish(total as f64, highest[n]);
            }
        } else {
            for n in 0..8 {
                let mut column = [0f32; 16];
                for k in 0..depth {
                    column[k] = right[k][n];
                }
                sums[n] = dot(&left[row][..depth], &column[..depth], start[n]);
            }
        }
        for n in 0..8 {
            out[(row >> 3) * 2 + (n & 1)][(row & 7) * 4 + n / 2] = sums[n];
        }
    }
    for (slot, values) in d.iter().zip(&out) {
        warp.words[usize::from(*slot)].0 = *values;
    }
}

/// Zero, or far from overflow and underflow in the fast way's f32 products.
#[inline(always)]
fn usual(x: f32) -> bool {
    let e = x.to_bits() >> 23 & 0xff;
    x == 0.0 || (e > 127 - 30 && e < 127 + 30)
}

#[inline(always)]
fn decode(brain: bool, code: u32) -> f32 {
    f32::from_bits(if brain { code << 16 } else { crate::float::f16_to_f32(code) })
}

/// The exponent of a finite value; [`NONE`] for zero.
#[inline(always)]
fn exponent(x: f32) -> i32 {
    if x == 0.0 { NONE } else { ((x.to_bits() >> 23 & 0xff) as i32).max(1) - 127 }
}

/// The sum in quanta of 2^(highest − 25) as f32, cut toward zero.
#[inline(always)]
fn finish(sum: f64, highest: i32) -> u32 {
    if sum == 0.0 {
        return 0;
    }
    let exact = sum * power_of_two((highest - 25).clamp(-1000, 1000));
    narrow(exact, Rounding::Zero).to_bits()
}

/// The same for one element with any operands.
fn dot(x: &[f32], y: &[f32], start: f32) -> u32 {
    let mut highest = exponent(start);
    let mut plain = 0.0f64;
    let mut finite = start.is_finite();
    for (a, b) in x.iter().zip(y) {
        finite &= a.is_finite() && b.is_finite();
        plain += f64::from(*a) * f64::from(*b);
        highest = highest.max(exponent(*a) + exponent(*b));
    }
    if !finite {
        plain += f64::from(start);
        return if plain.is_nan() { NAN_F32 } else { (plain as f32).to_bits() };
    }
    if highest < -1000 {
        return 0;
    }
    let scale = power_of_two(25 - highest);
    let mut sum = (f64::from(start) * scale).trunc();
    for (a, b) in x.iter().zip(y) {
        sum += (f64::from(*a) * f64::from(*b) * scale).trunc();
    }
    finish(sum, highest)
}
