//! Lane functions of the f64 instructions.

use crate::float::{self, Rounding, bits64};

type LaneFn = fn(u64, u64, u64) -> u64;

fn f(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn min(a: u64, b: u64, _: u64) -> u64 {
    pick(a, b, |a, b| a < b)
}

fn max(a: u64, b: u64, _: u64) -> u64 {
    pick(a, b, |a, b| a > b)
}

fn pick(a: u64, b: u64, better: fn(i64, i64) -> bool) -> u64 {
    if f(a).is_nan() {
        return bits64(f(b));
    }
    if f(b).is_nan() {
        return a;
    }
    let key = |bits: u64| {
        let signed = bits as i64;
        signed ^ (((signed >> 63) as u64) >> 1) as i64
    };
    if better(key(a), key(b)) { a } else { b }
}

/// The function of an f64 instruction and its number of operands.
pub(crate) fn function(base: &str, mode: Rounding, parts: &[&str]) -> Option<(LaneFn, usize)> {
    let nearest = mode == Rounding::Nearest;
    let approx = parts.contains(&"approx");
    let one: LaneFn = match (base, mode) {
        ("add", Rounding::Nearest) => |a, b, _| bits64(f(a) + f(b)),
        ("add", Rounding::Zero) => |a, b, _| float::add64(f(a), f(b), Rounding::Zero),
        ("add", Rounding::Down) => |a, b, _| float::add64(f(a), f(b), Rounding::Down),
        ("add", Rounding::Up) => |a, b, _| float::add64(f(a), f(b), Rounding::Up),
        ("sub", Rounding::Nearest) => |a, b, _| bits64(f(a) - f(b)),
        ("sub", Rounding::Zero) => |a, b, _| float::add64(f(a), -f(b), Rounding::Zero),
        ("sub", Rounding::Down) => |a, b, _| float::add64(f(a), -f(b), Rounding::Down),
        ("sub", Rounding::Up) => |a, b, _| float::add64(f(a), -f(b), Rounding::Up),
        ("mul", Rounding::Nearest) => |a, b, _| bits64(f(a) * f(b)),
        ("mul", Rounding::Zero) => |a, b, _| float::mul64(f(a), f(b), Rounding::Zero),
        ("mul", Rounding::Down) => |a, b, _| float::mul64(f(a), f(b), Rounding::Down),
        ("mul", Rounding::Up) => |a, b, _| float::mul64(f(a), f(b), Rounding::Up),
        ("fma" | "mad", Rounding::Nearest) => |a, b, c| bits64(f(a).mul_add(f(b), f(c))),
        ("div", Rounding::Nearest) => |a, b, _| bits64(f(a) / f(b)),
        ("rcp", _) if nearest && !approx => |a, _, _| bits64(1.0 / f(a)),
        ("sqrt", Rounding::Nearest) => |a, _, _| bits64(f(a).sqrt()),
        // Only the top 20 mantissa bits are promised, and the rest is zero.
        ("rcp", _) if approx => |a, _, _| bits64(1.0 / f(a)) & !0xffff_ffff,
        ("rsqrt", _) => |a, _, _| bits64(1.0 / f(a).sqrt()) & !0xffff_ffff,
        ("min", _) => min,
        ("max", _) => max,
        ("neg", _) => |a, _, _| a ^ 1 << 63,
        ("abs", _) => |a, _, _| a & !(1 << 63),
        _ => return None,
    };
    let count = match base {
        "fma" | "mad" => 3,
        "rcp" | "sqrt" | "rsqrt" | "neg" | "abs" => 1,
        _ => 2,
    };
    Some((one, count))
}
