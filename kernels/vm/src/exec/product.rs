//! Matrix products of a warp as an H200 makes them: every product and the accumulator are cut
//! toward zero to a common quantum of 2^(E−25), E the largest exponent among them, summed exactly,
//! and the sum is cut to f32. A subnormal factor has its format's lowest exponent; what is cut to
//! nothing is +0, what reaches 2^128 infinite. Factors are kept scaled by powers of two, so that
//! sums of a whole tile are plain f32 and integer arithmetic; the few elements that this cannot
//! take (infinities, far-off exponents) are computed one by one.

#[cfg(target_arch = "x86_64")]
pub(crate) mod pairs;
pub(crate) mod portable;
#[cfg(target_arch = "x86_64")]
pub(crate) mod wide;

use super::warp::{Warp, lanes};
use crate::float::{NAN_F32, Rounding, narrow, power_of_two};
use crate::program::{Product, Shape, Slot};

/// How matrix products of f16 or bf16 factors add into f32.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum MatrixModel {
    /// As an H200, to the bit.
    #[default]
    H200,
    /// In ordinary f32: each product rounded, then added, in the order of k. Faster, and what no
    /// tensor core gives to the bit.
    F32,
}

/// The four registers of an accumulator: lane l of register r holds row 8(r / 2) + l / 4 and
/// column 2(l % 4) + r % 2.
type Accumulator = [[u32; 32]; 4];
type Start<'w> = [&'w [u32; 32]; 4];
/// The columns of each row that have to be computed one by one.
type Leftover = [u8; 16];

/// Exponent of a zero: no real one is near it.
const NONE: i32 = -10_000;
/// The same among exponents relative to a peak; saturating sums keep it.
const ZERO: i8 = -128;
/// Relative exponents are cut here, so that the sum of two stays above [`ZERO`].
const TINY: i8 = -60;
/// Results with exponents beyond these may leave the normal numbers.
const LOWEST: i32 = -101;
const HIGHEST: i32 = 120;

/// Left factors, of which each row is scaled so that its largest exponent is 1.
#[derive(Default)]
struct Left {
    /// `[k / 8][row][k % 8]`
    values: [[[f32; 8]; 16]; 2],
    /// Exponents below the row's largest, a byte each, in an order of k that `Right` shares.
    exponents: [[i64; 16]; 2],
    /// The largest exponents as they stand in an f32, 0 for a row of zeros.
    peaks: [i32; 16],
    /// Rows that hold an infinity or no number.
    odd: u32,
    /// Rows of zeros.
    zero: u32,
    source: Source<4>,
}

/// Right factors, of which each column is scaled so that its largest exponent is 1.
#[derive(Default)]
struct Right {
    /// `[k][column]`
    values: [[f32; 8]; 16],
    /// Exponents below the column's largest, a byte each column.
    exponents: [i64; 16],
    peaks: [i32; 8],
    /// Columns that hold an infinity or no number.
    odd: u32,
    source: Source<2>,
}

/// The registers that factors come from: neighbouring products share operands. Lane l holds two
/// neighbouring factors of row or column l / 4.
struct Source<const N: usize> {
    shape: Option<Shape>,
    model: MatrixModel,
    words: [[u32; 32]; N],
}

impl<const N: usize> Default for Source<N> {
    fn default() -> Self {
        Source { shape: None, model: MatrixModel::H200, words: [[0; 32]; N] }
    }
}

impl<const N: usize> Source<N> {
    /// Notes where the factors come from; true when they are new. Registers that the shape lacks
    /// read as zeros.
    #[inline(always)]
    fn hold(&mut self, shape: Shape, model: MatrixModel, warp: &Warp, registers: &[Slot]) -> bool {
        let mut new = self.shape != Some(shape) || self.model != model;
        for (i, source) in self.words.iter_mut().enumerate() {
            let words = registers.get(i).map_or(&[0; 32], |slot| warp.word(*slot));
            let mut different = 0;
            for l in 0..32 {
                different |= source[l] ^ words[l];
            }
            if different != 0 {
                *source = *words;
                new = true;
            }
        }
        (self.shape, self.model) = (Some(shape), model);
        new
    }

    /// The factors of a row or column: eight from register `low`, then eight from `high`.
    fn line(&self, brain: bool, low: usize, high: usize, line: usize) -> [f32; 16] {
        std::array::from_fn(|k| {
            let word = self.words[if k < 8 { low } else { high }][line * 4 + k % 8 / 2];
            f32::from_bits(f32_bits(brain, word >> (16 * (k % 2))))
        })
    }
}

/// Working space of products: one left operand and a few right ones.
#[derive(Default)]
pub(crate) struct Operands {
    left: Left,
    rights: [Right; RIGHT_KEPT],
}
const RIGHT_KEPT: usize = 4;

/// What one product works on.
struct Work<'o> {
    left: &'o mut Left,
    right: &'o mut Right,
    new_left: bool,
    new_right: bool,
}

impl Operands {
    #[inline(always)]
    fn hold(&mut self, warp: &Warp, what: &Product, model: MatrixModel) -> Work<'_> {
        let (a, b) = what.shape.registers();
        let Operands { left, rights } = self;
        let right = &mut rights[usize::from(what.b[0] >> 1) % RIGHT_KEPT];
        let new_left = left.source.hold(what.shape, model, warp, &what.a[..a]);
        let new_right = right.source.hold(what.shape, model, warp, &what.b[..b]);
        Work { left, right, new_left, new_right }
    }
}

fn is_brain(shape: Shape) -> bool {
    matches!(shape, Shape::Bf16K16 | Shape::Bf16K8)
}

/// f32 bits of the number in the low half.
#[inline(always)]
fn f32_bits(brain: bool, word: u32) -> u32 {
    if brain { word << 16 } else { crate::float::f16_to_f32(word & 0xffff) }
}

/// The lowest exponent of a factor as it stands in an f32: subnormals keep that of their format.
#[inline(always)]
fn lowest_field(brain: bool) -> i32 {
    if brain { 1 } else { 127 - 14 }
}

/// The exponent of a finite value; [`NONE`] for zero.
#[inline(always)]
fn exponent(bits: u32, lowest_field: i32) -> i32 {
    let e = (bits >> 23 & 0xff) as i32;
    if bits << 1 == 0 { NONE } else { e.max(lowest_field) - 127 }
}

/// A sum as f32: cut toward zero, which is +0, and infinite from 2^128 on.
pub(crate) fn cut(sum: f64) -> u32 {
    if sum.abs() >= power_of_two(128) {
        return f32::INFINITY.copysign(sum as f32).to_bits();
    }
    let bits = narrow(sum, Rounding::Zero).to_bits();
    if bits << 1 == 0 { 0 } else { bits }
}

/// Computes what the tile left over, and all that has an infinity or no number among its factors.
#[inline(always)]
fn one_by_one(work: &Work<'_>, start: &Start<'_>, slow: &Leftover, out: &mut Accumulator) {
    let any = u128::from_ne_bytes(*slow) != 0;
    if any || (work.left.odd | work.right.odd) != 0 {
        elements(work.left, work.right, start, slow, out);
    }
}

#[cold]
#[inline(never)]
fn elements(left: &Left, right: &Right, start: &Start<'_>, slow: &Leftover, out: &mut Accumulator) {
    let brain = left.source.shape.is_some_and(is_brain);
    for row in 0..16 {
        let odd = left.odd >> row & 1 != 0;
        let columns = if odd { 0xff } else { u32::from(slow[row]) | right.odd };
        if columns == 0 {
            continue;
        }
        let x = left.source.line(brain, row / 8, row / 8 + 2, row % 8);
        for column in lanes(columns) {
            let y = right.source.line(brain, 0, 1, column);
            let (r, l) = (row / 8 * 2 + column % 2, row % 8 * 4 + column / 2);
            out[r][l] = dot(&x, &y, f32::from_bits(start[r][l]), lowest_field(brain));
        }
    }
}

/// One element with any operands.
fn dot(x: &[f32; 16], y: &[f32; 16], start: f32, lowest_field: i32) -> u32 {
    let mut highest = exponent(start.to_bits(), 1);
    let mut plain = 0.0f64;
    let mut finite = start.is_finite();
    for (a, b) in x.iter().zip(y) {
        finite &= a.is_finite() && b.is_finite();
        plain += f64::from(*a) * f64::from(*b);
        let field = |x: &f32| exponent(x.to_bits(), lowest_field);
        highest = highest.max(field(a) + field(b));
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
    if sum == 0.0 {
        return 0;
    }
    cut(sum * power_of_two(highest - 25))
}

#[cfg(test)]
mod tests;
