//! How bulk reductions and asynchronous ones combine bytes with what stands there.

use super::atomic;
use crate::float::{
    BF16, F16, Narrow, Rounding, add_to_odd, bf16_of, bf16_to_f32, bits32, f16_of, f16_to_f32,
    flush, max32, min32, result64,
};
use crate::program::Atomic;
use crate::rare::{Number, Reduction};

/// Of elements side by side.
#[derive(Clone, Copy)]
pub(super) enum Combine {
    Atomic(Atomic),
    Bulk(Reduction, Number),
}

impl Combine {
    /// Turns operands into results, given what stands there.
    pub fn all(self, old: &[u8], bytes: &mut [u8]) {
        let width = match self {
            Combine::Atomic(what) => usize::from(what.width_bytes),
            Combine::Bulk(_, number) => number.bytes(),
        };
        for (old, new) in old.chunks(width).zip(bytes.chunks_mut(width)) {
            let value = |bytes: &[u8]| {
                let mut all = [0; 8];
                all[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(all)
            };
            let result = match self {
                Combine::Atomic(what) => {
                    atomic::combine(&what, value(old), value(new), value(new), true)
                }
                Combine::Bulk(operation, number) => {
                    combine(operation, number, value(old), value(new))
                }
            };
            new.copy_from_slice(&result.to_le_bytes()[..new.len()]);
        }
    }
}

/// One element.
pub(super) fn combine(operation: Reduction, number: Number, old: u64, a: u64) -> u64 {
    use Reduction::{Add, And, Decrement, Increment, Max, Min, Or, Xor};
    let signed = |x: u64, bits: u8| (x << (64 - bits)) as i64 >> (64 - bits);
    match (operation, number) {
        (And, _) => old & a,
        (Or, _) => old | a,
        (Xor, _) => old ^ a,
        (Increment, _) => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        (Decrement, _) => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
        (Add, Number::Unsigned(_) | Number::Signed(_)) => old.wrapping_add(a),
        (Min, Number::Unsigned(_)) => old.min(a),
        (Max, Number::Unsigned(_)) => old.max(a),
        (Min, Number::Signed(bits)) => {
            if signed(a, bits) < signed(old, bits) {
                a
            } else {
                old
            }
        }
        (Max, Number::Signed(bits)) => {
            if signed(a, bits) > signed(old, bits) {
                a
            } else {
                old
            }
        }
        (_, Number::F16) => narrow(operation, F16, old, a),
        (_, Number::Bf16) => narrow(operation, BF16, old, a),
        (_, Number::F32) => {
            let sum = f32::from_bits(old as u32) + f32::from_bits(a as u32);
            bits32(sum).into()
        }
        (_, Number::F32Flushed) => {
            let [x, y] = [old, a].map(|bits| f32::from_bits(flush(bits as u32)));
            flush(bits32(x + y)).into()
        }
        (_, Number::F64) => {
            let sum = f64::from_bits(old) + f64::from_bits(a);
            // A NaN stays as it is, and signals on; that of the operand goes first.
            let nan = |bits: &u64| f64::from_bits(*bits).is_nan();
            [a, old].into_iter().find(nan).unwrap_or_else(|| result64(sum, &[]))
        }
    }
}

/// Of halves: sums are rounded to the nearest, and subnormal numbers stay.
fn narrow(operation: Reduction, format: Narrow, old: u64, a: u64) -> u64 {
    let (x, y) = (old as u32, a as u32);
    let half = format.exponent_bits == F16.exponent_bits;
    let wide = |x: u32| if half { f16_to_f32(x) } else { bf16_to_f32(x) };
    let extreme = match operation {
        Reduction::Min => min32(wide(x), wide(y), false),
        Reduction::Max => max32(wide(x), wide(y), false),
        _ => {
            let sum = add_to_odd(format.decode(x), format.decode(y));
            return format.encode(sum, Rounding::Nearest, false).into();
        }
    };
    u64::from(if half { f16_of(extreme) } else { bf16_of(extreme) })
}
