//! Matrix products outside the two hot forms, element after element: tf32, fp8, 8-bit and 4-bit
//! integers, and f16 sums. Float sums follow the H200's rule (see `product`); integers are exact.

use super::lane::put32;
use super::product::cut;
use super::warp::{FULL, Warp};
use crate::float::{E4M3, E5M2, F16, NAN_16, NAN_F32, Narrow, Rounding, f16_to_f32};
use crate::float::{bits32, power_of_two};
use crate::program::{Factor, Multiply, Sum};

/// The longest row of any form.
const LONGEST: usize = 64;
/// Bits below the largest exponent that an addition keeps.
const WIDE_BITS: i32 = 25;
const SHORT_BITS: i32 = 13;

#[inline(never)]
pub(crate) fn multiply(warp: &mut Warp, what: &Multiply) {
    let mut out = [[0u32; 32]; 4];
    let factors = Factors::of(warp, what);
    for row in 0..usize::from(what.rows) {
        for column in 0..8 {
            let (lane, at) = (row % 8 * 4 + column / 2, row / 8 * 2 + column % 2);
            match what.sum {
                Sum::F32 | Sum::Short | Sum::Int { .. } => {
                    let start = warp.word(what.c[at])[lane];
                    out[at][lane] = element(what, &factors, row, column, start);
                }
                Sum::F16 | Sum::ShortF16 => {
                    let half = 16 * (at % 2);
                    let start = warp.word(what.c[at / 2])[lane] >> half & 0xffff;
                    out[at / 2][lane] |= element(what, &factors, row, column, start) << half;
                }
            }
        }
    }
    for (slot, values) in what.d.iter().zip(&out).take(what.sums().into()) {
        put32(&mut warp.words[usize::from(*slot)], values, FULL);
    }
}

/// One element of a row or column: lane `4 * line + t` holds `32 / bits` neighbours in each
/// register, and registers follow each other by what the four lanes hold together.
fn factor(warp: &Warp, registers: &[u16], step: usize, line: usize, k: usize, bits: usize) -> u32 {
    let each = 32 / bits;
    let register = registers[k / (4 * each) * step];
    let word = warp.word(register)[line * 4 + k / each % 4];
    let mask = u32::MAX >> (32 - bits);
    word >> (k % each * bits) & mask
}

/// Rows of the left factor and columns of the right one; whole numbers are exact in f32.
struct Factors {
    left: [[f32; LONGEST]; 16],
    right: [[f32; LONGEST]; 8],
}

impl Factors {
    fn of(warp: &Warp, what: &Multiply) -> Factors {
        let mut factors = Factors { left: [[0.0; LONGEST]; 16], right: [[0.0; LONGEST]; 8] };
        let (k_count, halves) = (usize::from(what.k), usize::from(what.rows) / 8);
        for (row, line) in factors.left.iter_mut().enumerate().take(usize::from(what.rows)) {
            for (k, value) in line.iter_mut().enumerate().take(k_count) {
                let bits = what.left.bits();
                let code = factor(warp, &what.a[row / 8..], halves, row % 8, k, bits);
                *value = what.left.value(code);
            }
        }
        for (column, line) in factors.right.iter_mut().enumerate() {
            for (k, value) in line.iter_mut().enumerate().take(k_count) {
                let code = factor(warp, &what.b, 1, column, k, what.right.bits());
                *value = what.right.value(code);
            }
        }
        factors
    }
}

fn element(what: &Multiply, factors: &Factors, row: usize, column: usize, start: u32) -> u32 {
    let k_count = usize::from(what.k);
    let (x, y) = (&factors.left[row][..k_count], &factors.right[column][..k_count]);
    if let Sum::Int { saturate } = what.sum {
        let products = x.iter().zip(y).map(|(a, b)| i64::from(*a as i32) * i64::from(*b as i32));
        let sum = products.sum::<i64>() + i64::from(start as i32);
        let cut = sum.clamp(i32::MIN.into(), i32::MAX.into());
        return if saturate { cut as u32 } else { sum as u32 };
    }
    let start_lowest = if what.sum.is_f16() { -14 } else { -126 };
    let lowest = [what.left.lowest_exponent(); 2];
    let wide = Cut { lowest, start_lowest, kept_bits: WIDE_BITS };
    let lowest = [what.left.own_lowest_exponent(), what.right.own_lowest_exponent()];
    let short = Cut { lowest, start_lowest, kept_bits: SHORT_BITS };
    match what.sum {
        Sum::F16 | Sum::ShortF16 => {
            let cut = if what.sum == Sum::F16 { wide } else { short };
            match total(x, y, f32::from_bits(f16_to_f32(start)), cut) {
                Total::Special(bits) => half_of(bits),
                Total::Exact(sum) => {
                    let bits = F16.encode(sum, Rounding::Nearest, false);
                    // What rounds to zero is +0.
                    if bits << 17 == 0 { 0 } else { bits }
                }
            }
        }
        Sum::Short => {
            match total(x, y, f32::from_bits(start), short) {
                // Of the result, too, 13 fraction bits are kept.
                Total::Exact(sum) => cut(sum) >> 10 << 10,
                Total::Special(bits) => bits,
            }
        }
        _ if what.left.is_fp8() => {
            // Two halves of the row one after the other; the accumulator comes last.
            let pick = |all: &[f32], second: bool| -> Vec<f32> {
                all.iter()
                    .enumerate()
                    .filter(|(k, _)| (k & 2 != 0) == second)
                    .map(|(_, v)| *v)
                    .collect()
            };
            let part = |second: bool, start: f32| {
                single(total(&pick(x, second), &pick(y, second), start, wide))
            };
            let both = part(true, f32::from_bits(part(false, 0.0)));
            bits32(f32::from_bits(both) + f32::from_bits(start))
        }
        _ => single(total(x, y, f32::from_bits(start), wide)),
    }
}

/// How the parts of a sum are cut.
#[derive(Clone, Copy)]
struct Cut {
    /// The exponents of subnormal factors, left and right.
    lowest: [i32; 2],
    /// That of a subnormal accumulator.
    start_lowest: i32,
    /// Bits below the largest exponent.
    kept_bits: i32,
}

enum Total {
    /// Not finite: f32 bits.
    Special(u32),
    /// The sum of what was left after cutting.
    Exact(f64),
}

fn half_of(bits: u32) -> u32 {
    let x = f32::from_bits(bits);
    if x.is_nan() { NAN_16.into() } else { F16.encode(x.into(), Rounding::Nearest, false) }
}

fn single(total: Total) -> u32 {
    match total {
        Total::Special(bits) => bits,
        Total::Exact(sum) => cut(sum),
    }
}

/// Exponent of a finite number, at least `lowest`, which subnormals keep; `None` for zero.
fn exponent(x: f32, lowest: i32) -> Option<i32> {
    let field = (x.to_bits() >> 23 & 0xff) as i32;
    (x != 0.0).then(|| (field - 127).max(lowest))
}

/// Products and accumulator, each cut toward zero to the common quantum, added exactly.
fn total(x: &[f32], y: &[f32], start: f32, cut: Cut) -> Total {
    let Cut { lowest, start_lowest, kept_bits } = cut;
    let mut highest = exponent(start, start_lowest);
    let mut plain = f64::from(start);
    let mut finite = start.is_finite();
    for (a, b) in x.iter().zip(y) {
        finite &= a.is_finite() && b.is_finite();
        plain += f64::from(*a) * f64::from(*b);
        if let (Some(a), Some(b)) = (exponent(*a, lowest[0]), exponent(*b, lowest[1])) {
            highest = highest.max(Some(a + b));
        }
    }
    if !finite {
        return Total::Special(if plain.is_nan() { NAN_F32 } else { (plain as f32).to_bits() });
    }
    let Some(highest) = highest else {
        return Total::Exact(0.0);
    };
    let scale = power_of_two(kept_bits - highest);
    let mut sum = (f64::from(start) * scale).trunc();
    for (a, b) in x.iter().zip(y) {
        sum += (f64::from(*a) * f64::from(*b) * scale).trunc();
    }
    // A sum of nothing is +0.
    Total::Exact(if sum == 0.0 { 0.0 } else { sum * power_of_two(highest - kept_bits) })
}

impl Factor {
    pub fn bits(self) -> usize {
        match self {
            Factor::Tf32 => 32,
            Factor::F16 => 16,
            Factor::E4m3 | Factor::E5m2 | Factor::S8 | Factor::U8 => 8,
            Factor::S4 | Factor::U4 => 4,
        }
    }

    /// The exponent that subnormal factors have; 8-bit floats are multiplied as f16 by `mma`.
    fn lowest_exponent(self) -> i32 {
        if self == Factor::Tf32 { -126 } else { -14 }
    }

    /// The same where 8-bit floats are multiplied as they are, by `wgmma`.
    fn own_lowest_exponent(self) -> i32 {
        if self == Factor::E4m3 { -6 } else { self.lowest_exponent() }
    }

    fn is_fp8(self) -> bool {
        matches!(self, Factor::E4m3 | Factor::E5m2)
    }

    fn value(self, code: u32) -> f32 {
        let eight = |format: Narrow| format.decode(code) as f32;
        match self {
            // The tensor core reads ten mantissa bits, of a NaN too: one with low bits only is infinite.
            Factor::Tf32 => f32::from_bits(code & !0x1fff),
            Factor::F16 => f32::from_bits(f16_to_f32(code)),
            Factor::E4m3 => eight(E4M3),
            Factor::E5m2 => eight(E5M2),
            Factor::S8 => f32::from(code as u8 as i8),
            Factor::S4 => ((code << 28) as i32 >> 28) as f32,
            Factor::U8 | Factor::U4 => code as f32,
        }
    }
}
