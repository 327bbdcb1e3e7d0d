//! Arithmetic of whole warps; each function is inlined into the hot loop and vectorised there.

use super::step::{long2, map1, map2, map3};
use super::warp::{Warp, lanes};
use crate::approx::{FloatModel, evaluate};
use crate::float::{self, Rounding, bits32};
use crate::program::{Approx, Binary, Compare, Long2, Shift, Ternary, Unary};

fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

#[inline(always)]
pub(crate) fn unary(warp: &mut Warp, op: Unary, d: u16, a: u16, m: u32) {
    match op {
        Unary::Not => map1(warp, d, a, m, |x| !x),
        Unary::Negate => map1(warp, d, a, m, u32::wrapping_neg),
        Unary::AbsS => map1(warp, d, a, m, |x| (x as i32).wrapping_abs() as u32),
        Unary::FloatNegate => map1(warp, d, a, m, |x| x ^ 0x8000_0000),
        Unary::FloatAbs => map1(warp, d, a, m, |x| x & 0x7fff_ffff),
        Unary::Popc => map1(warp, d, a, m, u32::count_ones),
        Unary::Clz => map1(warp, d, a, m, u32::leading_zeros),
        Unary::Brev => map1(warp, d, a, m, u32::reverse_bits),
        Unary::Low16 => map1(warp, d, a, m, |x| x & 0xffff),
        Unary::High16 => map1(warp, d, a, m, |x| x >> 16),
        Unary::Sext8 => map1(warp, d, a, m, |x| (((x << 24) as i32) >> 24) as u32),
        Unary::Sext16 => map1(warp, d, a, m, |x| (((x << 16) as i32) >> 16) as u32),
        Unary::F32OfS32 => map1(warp, d, a, m, |x| (x as i32 as f32).to_bits()),
        Unary::F32OfU32 => map1(warp, d, a, m, |x| (x as f32).to_bits()),
        Unary::Saturate => map1(warp, d, a, m, float::saturate),
        Unary::Bf16OfF32 => map1(warp, d, a, m, float::bf16_of),
        Unary::F32OfBf16 => map1(warp, d, a, m, |x| float::bf16_to_f32(x & 0xffff)),
        Unary::F32OfF16 => map1(warp, d, a, m, |x| float::f16_to_f32(x & 0xffff)),
        Unary::F16OfF32 => each1(warp, d, a, m, float::f16_of),
    }
}

/// For functions too long to repeat per lane in vector code.
fn each1(warp: &mut Warp, d: u16, a: u16, m: u32, f: impl Fn(u32) -> u32) {
    for lane in lanes(m) {
        warp.words[usize::from(d)].0[lane] = f(warp.words[usize::from(a)].0[lane]);
    }
}

#[inline(always)]
pub(crate) fn binary(warp: &mut Warp, op: Binary, d: u16, a: u16, b: u16, m: u32) {
    match op {
        Binary::Add => map2(warp, d, a, b, m, u32::wrapping_add),
        Binary::Sub => map2(warp, d, a, b, m, u32::wrapping_sub),
        Binary::Mul => map2(warp, d, a, b, m, u32::wrapping_mul),
        Binary::MulHiS => map2(warp, d, a, b, m, |x, y| {
            ((i64::from(x as i32) * i64::from(y as i32)) >> 32) as u32
        }),
        Binary::MulHiU => {
            map2(warp, d, a, b, m, |x, y| ((u64::from(x) * u64::from(y)) >> 32) as u32)
        }
        Binary::And => map2(warp, d, a, b, m, |x, y| x & y),
        Binary::Or => map2(warp, d, a, b, m, |x, y| x | y),
        Binary::Xor => map2(warp, d, a, b, m, |x, y| x ^ y),
        Binary::Shl => map2(warp, d, a, b, m, |x, y| if y > 31 { 0 } else { x << (y & 31) }),
        Binary::ShrU => map2(warp, d, a, b, m, |x, y| if y > 31 { 0 } else { x >> (y & 31) }),
        Binary::ShrS => map2(warp, d, a, b, m, |x, y| ((x as i32) >> y.min(31)) as u32),
        Binary::MinS => map2(warp, d, a, b, m, |x, y| (x as i32).min(y as i32) as u32),
        Binary::MinU => map2(warp, d, a, b, m, u32::min),
        Binary::MaxS => map2(warp, d, a, b, m, |x, y| (x as i32).max(y as i32) as u32),
        Binary::MaxU => map2(warp, d, a, b, m, u32::max),
        Binary::Pack16 => map2(warp, d, a, b, m, |x, y| x & 0xffff | y << 16),
        Binary::FAdd => map2(warp, d, a, b, m, |x, y| bits32(f(x) + f(y))),
        Binary::FSub => map2(warp, d, a, b, m, |x, y| bits32(f(x) - f(y))),
        Binary::FMul => map2(warp, d, a, b, m, |x, y| bits32(f(x) * f(y))),
        Binary::FMin => map2(warp, d, a, b, m, |x, y| float::min32(x, y, false)),
        Binary::FMax => map2(warp, d, a, b, m, |x, y| float::max32(x, y, false)),
        Binary::FAddZero => {
            map2(warp, d, a, b, m, |x, y| float::add32(f(x), f(y), Rounding::Zero));
        }
        Binary::BfPairAdd => map2(warp, d, a, b, m, |x, y| {
            bf_pair(|s| float::add32(f(half(x, s)), f(half(y, s)), Rounding::Nearest))
        }),
        Binary::BfPairMul => map2(warp, d, a, b, m, |x, y| {
            bf_pair(|s| float::mul32(f(half(x, s)), f(half(y, s)), Rounding::Nearest))
        }),
        Binary::PackBf16 => {
            map2(warp, d, a, b, m, |x, y| float::bf16_of(x) | float::bf16_of(y) << 16);
        }
    }
}

/// One bf16 of a pair as f32 bits: the high one or the low one.
#[inline(always)]
fn half(x: u32, high: bool) -> u32 {
    if high { x & 0xffff_0000 } else { x << 16 }
}

#[inline(always)]
fn bf_pair(exact: impl Fn(bool) -> u32) -> u32 {
    float::bf16_of(exact(false)) | float::bf16_of(exact(true)) << 16
}

#[inline(always)]
pub(crate) fn ternary(warp: &mut Warp, op: Ternary, d: u16, s: [u16; 3], m: u32) {
    match op {
        Ternary::Mad => map3(warp, d, s, m, |x, y, z| x.wrapping_mul(y).wrapping_add(z)),
        Ternary::Fma => map3(warp, d, s, m, |x, y, z| bits32(f(x).mul_add(f(y), f(z)))),
        Ternary::FmaDown => {
            map3(warp, d, s, m, |x, y, z| float::fma32(f(x), f(y), f(z), Rounding::Down))
        }
        Ternary::BfPairFma => map3(warp, d, s, m, |x, y, z| {
            let one = |high| {
                let product = f64::from(f(half(x, high))) * f64::from(f(half(y, high)));
                let sum = float::add_to_odd(product, f64::from(f(half(z, high))));
                float::BF16.encode(sum, Rounding::Nearest, false)
            };
            one(false) | one(true) << 16
        }),
    }
}

pub(crate) fn approximate(warp: &mut Warp, model: FloatModel, op: Approx, d: u16, a: u16, m: u32) {
    let mut last: Option<(u32, u32)> = None;
    for lane in lanes(m) {
        let x = warp.words[usize::from(a)].0[lane];
        let y = match last {
            Some((key, value)) if key == x => value,
            _ => evaluate(model, op, x),
        };
        last = Some((x, y));
        warp.words[usize::from(d)].0[lane] = y;
    }
}

#[inline(always)]
pub(crate) fn long(warp: &mut Warp, op: Long2, d: u16, a: u16, b: u16, m: u32) {
    match op {
        Long2::Add => long2(warp, d, a, b, m, u64::wrapping_add),
        Long2::Sub => long2(warp, d, a, b, m, u64::wrapping_sub),
        Long2::Mul => long2(warp, d, a, b, m, u64::wrapping_mul),
        Long2::And => long2(warp, d, a, b, m, |x, y| x & y),
        Long2::Or => long2(warp, d, a, b, m, |x, y| x | y),
        Long2::Xor => long2(warp, d, a, b, m, |x, y| x ^ y),
        Long2::MinS => long2(warp, d, a, b, m, |x, y| (x as i64).min(y as i64) as u64),
        Long2::MinU => long2(warp, d, a, b, m, u64::min),
        Long2::MaxS => long2(warp, d, a, b, m, |x, y| (x as i64).max(y as i64) as u64),
        Long2::MaxU => long2(warp, d, a, b, m, u64::max),
    }
}

#[inline(always)]
pub(crate) fn shift(warp: &mut Warp, op: Shift, d: u16, a: u16, b: u16, m: u32) {
    let x = &warp.longs[usize::from(a)].0;
    let y = &warp.words[usize::from(b)].0;
    let mut t = [0u64; 32];
    match op {
        Shift::Left => {
            for l in 0..32 {
                t[l] = if y[l] > 63 { 0 } else { x[l] << (y[l] & 63) };
            }
        }
        Shift::RightU => {
            for l in 0..32 {
                t[l] = if y[l] > 63 { 0 } else { x[l] >> (y[l] & 63) };
            }
        }
        Shift::RightS => {
            for l in 0..32 {
                t[l] = ((x[l] as i64) >> y[l].min(63)) as u64;
            }
        }
    }
    let target = &mut warp.longs[usize::from(d)].0;
    for l in 0..32 {
        target[l] = if m >> l & 1 != 0 { t[l] } else { target[l] };
    }
}

#[inline(always)]
fn test32(warp: &Warp, a: u16, b: u16, test: impl Fn(u32, u32) -> bool) -> u32 {
    let x = &warp.words[usize::from(a)].0;
    let y = &warp.words[usize::from(b)].0;
    let mut out = 0;
    for l in 0..32 {
        out |= u32::from(test(x[l], y[l])) << l;
    }
    out
}

#[inline(always)]
fn test64(warp: &Warp, a: u16, b: u16, test: impl Fn(u64, u64) -> bool) -> u32 {
    let x = &warp.longs[usize::from(a)].0;
    let y = &warp.longs[usize::from(b)].0;
    let mut out = 0;
    for l in 0..32 {
        out |= u32::from(test(x[l], y[l])) << l;
    }
    out
}

#[inline(always)]
pub(crate) fn compare32(warp: &Warp, op: Compare, a: u16, b: u16, m: u32) -> u32 {
    if m != 0 {
        let lane = m.trailing_zeros() as usize;
        crate::dispatch::trace_compare32(
            warp.words[usize::from(a)].0[lane],
            warp.words[usize::from(b)].0[lane],
        );
    }
    match op {
        Compare::Eq => test32(warp, a, b, |x, y| x == y),
        Compare::Ne => test32(warp, a, b, |x, y| x != y),
        Compare::LtS => test32(warp, a, b, |x, y| (x as i32) < y as i32),
        Compare::LeS => test32(warp, a, b, |x, y| x as i32 <= y as i32),
        Compare::GtS => test32(warp, a, b, |x, y| x as i32 > y as i32),
        Compare::GeS => test32(warp, a, b, |x, y| x as i32 >= y as i32),
        Compare::LtU => test32(warp, a, b, |x, y| x < y),
        Compare::LeU => test32(warp, a, b, |x, y| x <= y),
        Compare::GtU => test32(warp, a, b, |x, y| x > y),
        Compare::GeU => test32(warp, a, b, |x, y| x >= y),
        Compare::FEq => test32(warp, a, b, |x, y| f(x) == f(y)),
        Compare::FNe => test32(warp, a, b, |x, y| f(x) < f(y) || f(x) > f(y)),
        Compare::FLt => test32(warp, a, b, |x, y| f(x) < f(y)),
        Compare::FLe => test32(warp, a, b, |x, y| f(x) <= f(y)),
        Compare::FGt => test32(warp, a, b, |x, y| f(x) > f(y)),
        Compare::FGe => test32(warp, a, b, |x, y| f(x) >= f(y)),
        Compare::FEqU => !test32(warp, a, b, |x, y| f(x) < f(y) || f(x) > f(y)),
        Compare::FNeU => test32(warp, a, b, |x, y| f(x) != f(y)),
        Compare::FLtU => !test32(warp, a, b, |x, y| f(x) >= f(y)),
        Compare::FLeU => !test32(warp, a, b, |x, y| f(x) > f(y)),
        Compare::FGtU => !test32(warp, a, b, |x, y| f(x) <= f(y)),
        Compare::FGeU => !test32(warp, a, b, |x, y| f(x) < f(y)),
        Compare::FNum => test32(warp, a, b, |x, y| !f(x).is_nan() && !f(y).is_nan()),
        Compare::FNan => test32(warp, a, b, |x, y| f(x).is_nan() || f(y).is_nan()),
    }
}

#[inline(always)]
pub(crate) fn compare64(warp: &Warp, op: Compare, a: u16, b: u16, m: u32) -> u32 {
    if m != 0 {
        let lane = m.trailing_zeros() as usize;
        crate::dispatch::trace_compare64(
            warp.longs[usize::from(a)].0[lane],
            warp.longs[usize::from(b)].0[lane],
        );
    }
    match op {
        Compare::Eq => test64(warp, a, b, |x, y| x == y),
        Compare::LtS => test64(warp, a, b, |x, y| (x as i64) < y as i64),
        Compare::LeS => test64(warp, a, b, |x, y| x as i64 <= y as i64),
        Compare::GtS => test64(warp, a, b, |x, y| x as i64 > y as i64),
        Compare::GeS => test64(warp, a, b, |x, y| x as i64 >= y as i64),
        Compare::LtU => test64(warp, a, b, |x, y| x < y),
        Compare::LeU => test64(warp, a, b, |x, y| x <= y),
        Compare::GtU => test64(warp, a, b, |x, y| x > y),
        Compare::GeU => test64(warp, a, b, |x, y| x >= y),
        // Float comparisons of 64 bits are lane functions; the lowering never gives them here.
        _ => test64(warp, a, b, |x, y| x != y),
    }
}
