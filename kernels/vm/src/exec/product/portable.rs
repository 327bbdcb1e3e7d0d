//! Products of matrices on any processor: the eight columns of a row side by side, which compilers make
//! vectors of. The steps are those of the builds with wider ones.

use super::super::warp::Warp;
use super::{
    Accumulator, HIGHEST, LOWEST, Left, MatrixModel, NONE, Operands, Product, Right, Source, TINY,
    Work, ZERO, exponent, is_brain, lowest_field, one_by_one,
};
use crate::dispatch::truncated;
use crate::float::bits32;
use std::hint::black_box;

/// d = a·b + c over the whole warp.
pub(crate) fn product(warp: &mut Warp, operands: &mut Operands, what: &Product) {
    let work = operands.hold(warp, what, MatrixModel::H200);
    let brain = is_brain(what.shape);
    if work.new_left {
        put_left(work.left, brain);
    }
    if work.new_right {
        put_right(work.right, brain);
    }
    let start = what.c.map(|slot| warp.word(slot));
    let mut out: Accumulator = [[0; 32]; 4];
    let mut slow = [0; 16];
    let exponents = across(work.right);
    for row in 0..16 {
        let (r, l) = (row / 8 * 2, row % 8 * 4);
        let line = std::array::from_fn(|column| start[r + column % 2][l + column / 2]);
        let (line, odd) = sums(work.left, work.right, &exponents, row, &line);
        for (column, bits) in line.into_iter().enumerate() {
            out[r + column % 2][l + column / 2] = bits;
        }
        slow[row] = odd;
    }
    one_by_one(&work, &start, &slow, &mut out);
    for (slot, values) in what.d.iter().zip(out) {
        warp.words[usize::from(*slot)].0 = values;
    }
}

/// The same in ordinary f32.
pub(crate) fn plain(warp: &mut Warp, operands: &mut Operands, what: &Product) {
    let Work { left, right, new_left, new_right } = operands.hold(warp, what, MatrixModel::F32);
    let brain = is_brain(what.shape);
    if new_left {
        for row in 0..16 {
            let line = left.source.line(brain, row / 8, row / 8 + 2, row % 8);
            for k in 0..16 {
                left.values[k / 8][row][k % 8] = line[k];
            }
        }
    }
    if new_right {
        for column in 0..8 {
            let line = right.source.line(brain, 0, 1, column);
            for k in 0..16 {
                right.values[k][column] = line[k];
            }
        }
    }
    let mut out: Accumulator = what.c.map(|slot| *warp.word(slot));
    for row in 0..16 {
        for column in 0..8 {
            let (r, l) = (row / 8 * 2 + column % 2, row % 8 * 4 + column / 2);
            let mut sum = f32::from_bits(out[r][l]);
            for k in 0..16 {
                sum += left.values[k / 8][row][k % 8] * right.values[k][column];
            }
            out[r][l] = bits32(sum);
        }
    }
    for (slot, values) in what.d.iter().zip(out) {
        warp.words[usize::from(*slot)].0 = values;
    }
}

/// The scaled factors of a row or column, their relative exponents and the largest as it stands in an f32.
fn scaled<const N: usize>(
    source: &Source<N>,
    brain: bool,
    low: usize,
    high: usize,
    line: usize,
) -> ([f32; 16], [i8; 16], i32) {
    let raw = source.line(brain, low, high, line);
    let exponents = raw.map(|x| exponent(x.to_bits(), lowest_field(brain)));
    let peak = exponents.into_iter().fold(NONE, i32::max);
    let peak = if peak == NONE { -127 } else { peak };
    let factor = f32::from_bits(((128 - peak).min(254) as u32) << 23);
    let relative = exponents.map(|e| {
        let near = (e - peak).max(i32::from(TINY)) as i8;
        if e == NONE { ZERO } else { near }
    });
    (raw.map(|x| x * factor), relative, peak + 127)
}

fn put_left(left: &mut Left, brain: bool) {
    (left.odd, left.zero) = (0, 0);
    for row in 0..16 {
        let half = row / 8;
        let (values, exponents, peak) = scaled(&left.source, brain, half, half + 2, row % 8);
        for k in 0..16 {
            left.values[k / 8][row][k % 8] = values[k];
        }
        for (to, eight) in left.exponents.iter_mut().zip(exponents.as_chunks::<8>().0) {
            to[row] = i64::from_le_bytes(eight.map(|e| e as u8));
        }
        left.peaks[row] = peak;
        left.odd |= u32::from(peak == 255) << row;
        left.zero |= u32::from(peak == 0) << row;
    }
}

fn put_right(right: &mut Right, brain: bool) {
    right.odd = 0;
    let mut all = [[0; 8]; 16];
    for column in 0..8 {
        let (values, exponents, peak) = scaled(&right.source, brain, 0, 1, column);
        for k in 0..16 {
            right.values[k][column] = values[k];
            all[k][column] = exponents[k] as u8;
        }
        right.peaks[column] = peak;
        right.odd |= u32::from(peak == 255) << column;
    }
    right.exponents = all.map(i64::from_le_bytes);
}

/// The exponents of the right factors: of each k, those of the columns.
pub(super) fn across(right: &Right) -> [[i16; 8]; 16] {
    right.exponents.map(|eight| eight.to_le_bytes().map(|e| i16::from(e as i8)))
}

/// The number 2^(field − 127), of which the field is brought into range.
fn power(field: i32) -> f32 {
    f32::from_bits((field.clamp(1, 254) as u32) << 23)
}

/// A row's sums, and the columns that have to be computed one by one.
#[inline(always)]
pub(super) fn sums(
    left: &Left,
    right: &Right,
    exponents: &[[i16; 8]; 16],
    row: usize,
    start: &[u32; 8],
) -> ([u32; 8], u8) {
    // The largest exponent of each column's products, relative to the peaks.
    let mut near = [i16::from(ZERO); 8];
    for k in 0..16 {
        let x = i16::from((left.exponents[k / 8][row] >> (8 * (k % 8))) as i8);
        for c in 0..8 {
            near[c] = near[c].max(x + exponents[k][c]);
        }
    }
    let mut odd = [false; 8];
    let (mut units, mut scales) = ([0; 8], [0.0; 8]);
    for c in 0..8 {
        (units[c], scales[c], odd[c]) =
            quantum(near[c].into(), left.peaks[row] + right.peaks[c] - 127, start[c]);
    }
    // Sixteen numbers below 2^27, and one of 2^26.
    let mut sums = [0i32; 8];
    for k in 0..16 {
        // Opaque, or compilers take four k for a vector and gather the factors of each column.
        let x = black_box(left.values[k / 8][row][k % 8]);
        for c in 0..8 {
            sums[c] = sums[c].wrapping_add(truncated(x * right.values[k][c] * scales[c]));
        }
    }
    let mut out = [0; 8];
    let mut slow = 0;
    for c in 0..8 {
        let large = sums[c].unsigned_abs() > (i32::MAX - (1 << 27)) as u32;
        let own = f32::from_bits(start[c]) * f32::from_bits((units[c] as u32) << 23);
        out[c] = rounded(sums[c].wrapping_add(truncated(own)), units[c]);
        slow |= u8::from(large | odd[c]) << c;
    }
    (out, slow)
}

/// What an accumulator is multiplied with to count quanta (its exponent's field: 2^(25 − E)), and what
/// its scaled products are, and whether that does not do. `near` is the largest exponent of the
/// products relative to `both` peaks. Exponents are biased by 127 here.
#[inline(always)]
fn quantum(near: i32, both: i32, start: u32) -> (i32, f32, bool) {
    let none = near == i32::from(ZERO);
    let far = !none & (near <= i32::from(TINY));
    let products = if none { NONE } else { near + both };
    let top = products.max((start >> 23 & 0xff) as i32);
    let low = (top < LOWEST + 127) & !(none & (start << 1 == 0));
    // An infinity stands highest.
    let high = top > HIGHEST + 127;
    let unit = 279 - top.clamp(LOWEST + 127, 255);
    (unit, power(unit + both - 129), far | low | high)
}

/// A sum as f32, cut toward zero: the nearest, and back one where that went up.
#[inline(always)]
fn rounded(sum: i32, unit: i32) -> u32 {
    let magnitude = sum.unsigned_abs() as i32;
    let nearest = magnitude as f32;
    let up = u32::from(truncated(nearest) > magnitude);
    let cut = f32::from_bits(nearest.to_bits() - up);
    let quantum = f32::from_bits(((254 - unit) as u32) << 23);
    (cut * quantum).to_bits() | sum as u32 & 1 << 31
}
