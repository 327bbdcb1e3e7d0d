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
    for row in 0..usize::from(what.rows) {
        for column in 0..8 {
            let (lane, at) = (row % 8 * 4 + column / 2, row / 8 * 2 + column % 2);
            match what.sum {
                Sum::F32 | Sum::Short | Sum::Int { .. } => {
                    let start = warp.word(what.c[at])[lane];
                    out[at][lane] = element(warp, what, row, column, start);
                }
                Sum::F16 => {
                    let half = 16 * (at % 2);
                    let start = warp.word(what.c[at / 2])[lane] >> half & 0xffff;
                    out[at / 2][lane] |= element(warp, what, row, column, start) << half;
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

fn element(warp: &Warp, what: &Multiply, row: usize, column: usize, start: u32) -> u32 {
    let (rows, k_count) = (usize::from(what.rows), usize::from(what.k));
    let halves = rows / 8;
    let left = |k| factor(warp, &what.a[row / 8..], halves, row % 8, k, what.left.bits());
    let right = |k| factor(warp, &what.b, 1, column, k, what.right.bits());
    if let Sum::Int { saturate } = what.sum {
        let products =
            (0..k_count).map(|k| what.left.integer(left(k)) * what.right.integer(right(k)));
        let sum = products.sum::<i64>() + i64::from(start as i32);
        let cut = sum.clamp(i32::MIN.into(), i32::MAX.into());
        return if saturate { cut as u32 } else { sum as u32 };
    }
    let (mut x, mut y) = ([0.0; LONGEST], [0.0; LONGEST]);
    for k in 0..k_count {
        x[k] = what.left.float(left(k));
        y[k] = what.right.float(right(k));
    }
    let (x, y) = (&x[..k_count], &y[..k_count]);
    let wide = Cut { lowest: what.left.lowest_exponent(), kept_bits: WIDE_BITS };
    match what.sum {
        Sum::F16 => match total(x, y, f32::from_bits(f16_to_f32(start)), wide) {
            Total::Special(bits) => half_of(bits),
            Total::Exact(sum) => {
                let bits = F16.encode(sum, Rounding::Nearest, false);
                // What rounds to zero is +0.
                if bits << 17 == 0 { 0 } else { bits }
            }
        },
        Sum::Short => {
            match total(x, y, f32::from_bits(start), Cut { kept_bits: SHORT_BITS, ..wide }) {
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
    /// The exponent of subnormal factors.
    lowest: i32,
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
fn total(x: &[f32], y: &[f32], start: f32, Cut { lowest, kept_bits }: Cut) -> Total {
    let mut highest = exponent(start, -126);
    let mut plain = f64::from(start);
    let mut finite = start.is_finite();
    for (a, b) in x.iter().zip(y) {
        finite &= a.is_finite() && b.is_finite();
        plain += f64::from(*a) * f64::from(*b);
        if let (Some(a), Some(b)) = (exponent(*a, lowest), exponent(*b, lowest)) {
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

    /// The exponent that subnormal factors have; 8-bit floats are multiplied as f16.
    fn lowest_exponent(self) -> i32 {
        if self == Factor::Tf32 { -126 } else { -14 }
    }

    fn is_fp8(self) -> bool {
        matches!(self, Factor::E4m3 | Factor::E5m2)
    }

    fn integer(self, code: u32) -> i64 {
        match self {
            Factor::S8 => i64::from(code as u8 as i8),
            Factor::S4 => i64::from((code << 28) as i32 >> 28),
            _ => i64::from(code),
        }
    }

    fn float(self, code: u32) -> f32 {
        let eight = |format: Narrow| format.decode(code) as f32;
        match self {
            // The tensor core reads ten mantissa bits, of a NaN too: one with low bits only is infinite.
            Factor::Tf32 => f32::from_bits(code & !0x1fff),
            Factor::F16 => f32::from_bits(f16_to_f32(code)),
            Factor::E4m3 => eight(E4M3),
            Factor::E5m2 => eight(E5M2),
            Factor::S8 | Factor::U8 | Factor::S4 | Factor::U4 => 0.0,
        }
    }
}
