//! Products of matrices on any processor, one element after the other.

use super::super::warp::Warp;
use super::{
    Accumulator, HIGHEST, LOWEST, Left, MatrixModel, NONE, Operands, Product, Right, Source, TINY,
    Work, ZERO, exponent, is_brain, lowest_field, one_by_one,
};
use crate::float::bits32;

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
    for row in 0..16 {
        for column in 0..8 {
            let (r, l) = (row / 8 * 2 + column % 2, row % 8 * 4 + column / 2);
            match element(work.left, work.right, row, column, start[r][l]) {
                Some(bits) => out[r][l] = bits,
                None => slow[row] |= 1 << column,
            }
        }
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

/// One element, where it can be had this way.
pub(super) fn element(
    left: &Left,
    right: &Right,
    row: usize,
    column: usize,
    start: u32,
) -> Option<u32> {
    let both = left.peaks[row] + right.peaks[column] - 254;
    let mut near = ZERO;
    for k in 0..16 {
        let x = (left.exponents[k / 8][row] >> (8 * (k % 8))) as i8;
        let y = (right.exponents[k] >> (8 * column)) as i8;
        near = near.max(x.saturating_add(y));
    }
    let products = if near == ZERO { NONE } else { i32::from(near) + both };
    let field = (start >> 23 & 0xff) as i32;
    let own = exponent(start, 1);
    let top = products.max(own);
    let outside = top > HIGHEST || (top < LOWEST && top != NONE);
    if outside || field == 255 || (near != ZERO && near <= TINY) {
        return None;
    }
    let mantissa = start & 0x7f_ffff | u32::from(field > 0) << 23;
    let quanta = i64::from((mantissa << 2) >> (top - own).min(31));
    let mut sum = if start >> 31 == 1 { -quanta } else { quanta };
    let scale = f32::from_bits(((150 - (top - both)).clamp(1, 254) as u32) << 23);
    for k in 0..16 {
        let product = left.values[k / 8][row][k % 8] * right.values[k][column];
        sum += i64::from((product * scale) as i32);
    }
    // 24 significant bits, the rest cut.
    let magnitude = sum.unsigned_abs();
    let spare = 40u32.saturating_sub(magnitude.leading_zeros());
    let cut = (magnitude >> spare << spare) as f32;
    let quantum = f32::from_bits(((top + 102).clamp(1, 254) as u32) << 23);
    Some((cut * quantum).to_bits() | ((sum >> 63) as u32 & 1 << 31))
}
