//! Lane functions of the f64 instructions.

use crate::exact;
use crate::float::{Rounding, bits64, result64};

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
    // Each direction is a function of its own: a lane function carries no data.
    macro_rules! by_mode {
        ($count:literal: |$a:ident, $b:ident, $c:ident, $r:ident| $near:expr, $directed:expr) => {
            match mode {
                Rounding::Nearest => |a, b, c| {
                    let ($a, $b, $c) = (f(a), f(b), f(c));
                    let _ = ($a, $b, $c);
                    result64($near, &[a, b, c][..$count])
                },
                Rounding::Zero => by_mode!(@one $a $b $c $r Zero $directed),
                Rounding::Down => by_mode!(@one $a $b $c $r Down $directed),
                Rounding::Up => by_mode!(@one $a $b $c $r Up $directed),
            }
        };
        (@one $a:ident $b:ident $c:ident $r:ident $mode:ident $directed:expr) => {
            |$a, $b, $c| {
                let ($a, $b, $c, $r) = (f($a), f($b), f($c), Rounding::$mode);
                let _ = ($a, $b, $c);
                $directed
            }
        };
    }
    let one: LaneFn = match base {
        "add" => by_mode!(2: |a, b, c, r| a + b, exact::add(a, b, r)),
        "sub" => by_mode!(2: |a, b, c, r| a - b, exact::sub(a, b, r)),
        "mul" => by_mode!(2: |a, b, c, r| a * b, exact::mul(a, b, r)),
        "fma" | "mad" => by_mode!(3: |a, b, c, r| a.mul_add(b, c), exact::fma(a, b, c, r)),
        "div" => by_mode!(2: |a, b, c, r| a / b, exact::div(a, b, r)),
        // Only the top 20 mantissa bits are promised, and the rest is zero.
        "rcp" if parts.contains(&"approx") => |a, _, _| bits64(1.0 / f(a)) & !0xffff_ffff,
        "rsqrt" => |a, _, _| bits64(1.0 / f(a).sqrt()) & !0xffff_ffff,
        "rcp" => by_mode!(1: |a, b, c, r| 1.0 / a, exact::div(1.0, a, r)),
        "sqrt" => by_mode!(1: |a, b, c, r| a.sqrt(), exact::sqrt(a, r)),
        "min" => min,
        "max" => max,
        "neg" => |a, _, _| a ^ 1 << 63,
        "abs" => |a, _, _| a & !(1 << 63),
        _ => return None,
    };
    let count = match base {
        "fma" | "mad" => 3,
        "rcp" | "sqrt" | "rsqrt" | "neg" | "abs" => 1,
        _ => 2,
    };
    Some((one, count))
}
