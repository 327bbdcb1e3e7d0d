//! f64 arithmetic in every rounding direction, from integers alone: a magnitude of up to 126 bits
//! whose last bit also stands for everything below it, rounded once. Invariant: what is cut off
//! before that rounding leaves at least two bits below the result's last place.

use crate::float::{Rounding, result64};

const FRACTION: u64 = (1 << 52) - 1;

/// ±`magnitude` · 2^`exponent`; an odd magnitude may stand for one with more bits.
#[derive(Clone, Copy)]
struct Number {
    negative: bool,
    magnitude: u128,
    exponent: i32,
}

/// A finite f64.
fn number(x: f64) -> Number {
    let bits = x.to_bits();
    let field = (bits >> 52 & 0x7ff) as i32;
    let fraction = bits & FRACTION;
    let whole = if field == 0 { fraction } else { fraction | 1 << 52 };
    Number {
        negative: x.is_sign_negative(),
        magnitude: whole.into(),
        exponent: field.max(1) - 1075,
    }
}

/// Shifts right; what falls out marks the last bit.
fn jam(magnitude: u128, by: u32) -> u128 {
    if by == 0 {
        magnitude
    } else if by > 127 {
        u128::from(magnitude != 0)
    } else {
        magnitude >> by | u128::from(magnitude & ((1 << by) - 1) != 0)
    }
}

impl Number {
    /// The same value with its highest bit at 125.
    fn normal(self) -> Number {
        if self.magnitude == 0 {
            return self;
        }
        let by = self.magnitude.leading_zeros() as i32 - 2;
        let magnitude =
            if by >= 0 { self.magnitude << by } else { jam(self.magnitude, by.unsigned_abs()) };
        Number { magnitude, exponent: self.exponent - by, ..self }
    }

    fn round(self, rounding: Rounding) -> u64 {
        let sign = u64::from(self.negative) << 63;
        if self.magnitude == 0 {
            return sign;
        }
        let x = self.normal();
        // Bit 125 becomes bit 52, or lower where the result is subnormal.
        let drop = (73).max(-1074 - x.exponent) as u32;
        let exponent = x.exponent + drop as i32;
        let kept = if drop > 127 { 0 } else { x.magnitude >> drop } as u64;
        let (half, rest) = match drop {
            0..=127 => {
                let unit = 1u128 << (drop - 1);
                (x.magnitude & unit != 0, x.magnitude & (unit - 1) != 0)
            }
            _ => (false, true),
        };
        let up = match rounding {
            Rounding::Nearest => half && (rest || kept & 1 == 1),
            Rounding::Zero => false,
            Rounding::Down => self.negative && (half || rest),
            Rounding::Up => !self.negative && (half || rest),
        };
        // Field 1 is exponent −1074, and a carry out of the fraction raises the field.
        let field = (exponent + 1074) as u64;
        let code = (field << 52) + kept + u64::from(up);
        if code >= 0x7ff << 52 {
            let outward = match rounding {
                Rounding::Nearest => true,
                Rounding::Zero => false,
                Rounding::Down => self.negative,
                Rounding::Up => !self.negative,
            };
            return sign | if outward { 0x7ff << 52 } else { (0x7ff << 52) - 1 };
        }
        sign | code
    }
}

/// The exact sum, but for a marked last bit; `None` for an exact zero.
fn sum(a: Number, b: Number) -> Option<Number> {
    if a.magnitude == 0 {
        return (b.magnitude != 0).then_some(b);
    }
    if b.magnitude == 0 {
        return Some(a);
    }
    let (a, b) = (a.normal(), b.normal());
    let (large, small) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
    let near = jam(small.magnitude, (large.exponent - small.exponent) as u32);
    let (negative, magnitude) = if large.negative == small.negative {
        (large.negative, large.magnitude + near)
    } else if large.magnitude >= near {
        (large.negative, large.magnitude - near)
    } else {
        (small.negative, near - large.magnitude)
    };
    (magnitude != 0).then_some(Number { negative, magnitude, exponent: large.exponent })
}

fn product(a: f64, b: f64) -> Number {
    let (a, b) = (number(a), number(b));
    Number {
        negative: a.negative != b.negative,
        magnitude: a.magnitude * b.magnitude,
        exponent: a.exponent + b.exponent,
    }
}

fn rounded_sum(a: Number, b: Number, rounding: Rounding) -> u64 {
    match sum(a, b) {
        Some(total) => total.round(rounding),
        // Zeros of one sign keep it; otherwise an exact zero is positive but when rounding down.
        None => {
            let both = a.negative && b.negative && a.magnitude == 0 && b.magnitude == 0;
            let either = a.negative || b.negative;
            u64::from(both || rounding == Rounding::Down && either) << 63
        }
    }
}

/// a + b.
pub(crate) fn add(a: f64, b: f64, rounding: Rounding) -> u64 {
    if !a.is_finite() || !b.is_finite() {
        return result64(a + b, &[a.to_bits(), b.to_bits()]);
    }
    rounded_sum(number(a), number(b), rounding)
}

/// a − b. A NaN keeps its sign, so this is not the sum with −b.
pub(crate) fn sub(a: f64, b: f64, rounding: Rounding) -> u64 {
    if !a.is_finite() || !b.is_finite() {
        return result64(a - b, &[a.to_bits(), b.to_bits()]);
    }
    add(a, -b, rounding)
}

/// a · b.
pub(crate) fn mul(a: f64, b: f64, rounding: Rounding) -> u64 {
    if !a.is_finite() || !b.is_finite() {
        return result64(a * b, &[a.to_bits(), b.to_bits()]);
    }
    product(a, b).round(rounding)
}

/// a · b + c, rounded once.
pub(crate) fn fma(a: f64, b: f64, c: f64, rounding: Rounding) -> u64 {
    if !a.is_finite() || !b.is_finite() || !c.is_finite() {
        return result64(a.mul_add(b, c), &[a, b, c].map(f64::to_bits));
    }
    rounded_sum(product(a, b), number(c), rounding)
}

/// a / b.
pub(crate) fn div(a: f64, b: f64, rounding: Rounding) -> u64 {
    if !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0 {
        return result64(a / b, &[a.to_bits(), b.to_bits()]);
    }
    let (x, y) = (number(a).normal(), number(b));
    let divisor = y.magnitude;
    let quotient = x.magnitude / divisor;
    let sticky = u128::from(x.magnitude % divisor != 0);
    // At least 126 − 53 bits.
    let magnitude = quotient << 1 | sticky;
    let exponent = x.exponent - y.exponent - 1;
    Number { negative: x.negative != y.negative, magnitude, exponent }.round(rounding)
}

/// √a.
pub(crate) fn sqrt(a: f64, rounding: Rounding) -> u64 {
    if !a.is_finite() || a <= 0.0 {
        return result64(a.sqrt(), &[a.to_bits()]);
    }
    let mut x = number(a).normal();
    if x.exponent % 2 != 0 {
        x.magnitude >>= 1;
        x.exponent += 1;
    }
    let root = x.magnitude.isqrt();
    let sticky = u128::from(root * root != x.magnitude);
    Number { negative: false, magnitude: root << 1 | sticky, exponent: x.exponent / 2 - 1 }
        .round(rounding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(got: u64, want: f64) -> bool {
        f64::from_bits(got).is_nan() && want.is_nan() || got == want.to_bits()
    }

    const EDGES: [f64; 20] = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        1.0 / 3.0,
        5e-324,
        -1e-310,
        f64::MIN_POSITIVE,
        -f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        1e300,
        -1e-300,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        1.000_000_000_000_000_2,
        0.999_999_999_999_999_9,
        1e16,
        -7.0,
    ];

    #[test]
    fn nearest_agrees_with_the_processor() {
        for a in EDGES {
            assert!(is(sqrt(a, Rounding::Nearest), a.sqrt()), "{a:e}");
            for b in EDGES {
                assert!(is(add(a, b, Rounding::Nearest), a + b), "{a:e} + {b:e}");
                assert!(is(mul(a, b, Rounding::Nearest), a * b), "{a:e} * {b:e}");
                assert!(is(div(a, b, Rounding::Nearest), a / b), "{a:e} / {b:e}");
                for c in EDGES {
                    let want = a.mul_add(b, c);
                    assert!(is(fma(a, b, c, Rounding::Nearest), want), "{a:e} {b:e} {c:e}");
                }
            }
        }
    }

    #[test]
    fn directions_bracket_the_nearest() {
        for a in EDGES {
            for b in EDGES {
                for c in EDGES {
                    let [near, zero, down, up] =
                        [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up]
                            .map(|r| f64::from_bits(fma(a, b, c, r)));
                    if near.is_nan() {
                        continue;
                    }
                    assert!(down <= near && near <= up, "{a:e} {b:e} {c:e}");
                    assert!(down == up || down.next_up() == up, "{a:e} {b:e} {c:e}");
                    assert!(zero == if down >= 0.0 { down } else { up }, "{a:e} {b:e} {c:e}");
                }
            }
        }
    }
}
