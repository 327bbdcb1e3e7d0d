//! Bit-exact floating-point arithmetic of PTX: directed roundings, narrow formats, NaN rules.
//! Everything is computed from IEEE operations alone, so results are the same on every host.

/// Rounding direction of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

/// The single NaN that f32 operations return.
pub(crate) const NAN_F32: u32 = 0x7fff_ffff;
/// The NaN that f16 and bf16 operations return.
pub(crate) const NAN_16: u16 = 0x7fff;
/// The NaN of f64 operations that keep no operand's.
const NAN_F64: u64 = 0x7ff8_0000_0000_0000;
/// What an f64 operation without a defined result returns.
const INVALID_F64: u64 = 0xfff8_0000_0000_0000;
/// Set in a NaN that does not signal.
const QUIET_F64: u64 = 1 << 51;

#[inline(always)]
pub(crate) fn bits32(x: f32) -> u32 {
    if x.is_nan() { NAN_F32 } else { x.to_bits() }
}

#[inline(always)]
pub(crate) fn bits64(x: f64) -> u64 {
    let bits = x.to_bits();
    if is_nan64(bits) { NAN_F64 } else { bits }
}

/// In integers: compilers drop the choice between a value and the NaN they would make of it.
#[inline(always)]
pub(crate) fn is_nan64(bits: u64) -> bool {
    bits & (u64::MAX >> 1) > 0x7ff << 52
}

/// The result of f64 arithmetic on these operands: which NaN it is is theirs to say, not the host's.
#[inline(always)]
pub(crate) fn result64(x: f64, operands: &[u64]) -> u64 {
    let bits = x.to_bits();
    if is_nan64(bits) { nan64(operands) } else { bits }
}

/// An operand's NaN, made quiet: the first that signals, else the first. An H200 shows that the
/// addend's goes before a factor's where only the addend's signals, and the second factor's before
/// the addend's where both are quiet; no more is measured of their order.
#[cold]
fn nan64(operands: &[u64]) -> u64 {
    let nans = || operands.iter().filter(|bits| is_nan64(**bits));
    let signals = nans().find(|bits| *bits & QUIET_F64 == 0);
    signals.or_else(|| nans().next()).map_or(INVALID_F64, |bits| quiet64(*bits))
}

/// An f64 whose NaN, if it is one, does not signal.
#[inline(always)]
pub(crate) fn quiet64(bits: u64) -> u64 {
    if is_nan64(bits) { bits | QUIET_F64 } else { bits }
}

/// A quiet NaN in a format of so many bits: the sign and the top of the fraction stay.
pub(crate) fn narrow_nan64(bits: u64, exponent_bits: u32, mantissa_bits: u32) -> u64 {
    let sign = bits >> 63 << (exponent_bits + mantissa_bits);
    let exponent = ((1 << exponent_bits) - 1) << mantissa_bits;
    sign | exponent | (bits | QUIET_F64) << 12 >> (64 - mantissa_bits)
}

#[inline(always)]
pub(crate) fn f32_of(bits: u32) -> f32 {
    f32::from_bits(bits)
}

/// Replaces a subnormal by a zero of its sign.
#[inline(always)]
pub(crate) fn flush(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

/// A result of `.ftz`: zero where the exact value, of which `odd` is a rounding to odd at more bits,
/// lies below the least normal number when it is rounded to as many bits as a normal one has. A
/// subnormal has fewer, and so may have been rounded up to that number.
#[inline(always)]
fn flush_rounded(bits: u32, odd: f64, rounding: Rounding) -> u32 {
    let least = f64::from(f32::MIN_POSITIVE);
    let at_least = bits & 0x7fff_ffff == f32::MIN_POSITIVE.to_bits();
    if at_least && odd.abs() < least {
        let scale = power_of_two(64);
        if f64::from(narrow(odd * scale, rounding).abs()) < least * scale {
            return bits & 0x8000_0000;
        }
    }
    flush(bits)
}

/// `cvt.ftz` of a double.
pub(crate) fn narrow_flushed(x: f64, rounding: Rounding) -> u32 {
    flush_rounded(bits32(narrow(x, rounding)), x, rounding)
}

/// Clamps to [0, 1], NaN to +0.
#[inline(always)]
pub(crate) fn saturate(bits: u32) -> u32 {
    let x = f32::from_bits(bits);
    if x > 0.0 { if x < 1.0 { bits } else { 0x3f80_0000 } } else { 0 }
}

/// Rounds a f64 to f32. Exact when `x` is exact or was itself rounded to odd.
#[inline(always)]
pub(crate) fn narrow(x: f64, rounding: Rounding) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    match rounding {
        Rounding::Nearest => nearest,
        Rounding::Down if back > x => step_down(nearest),
        Rounding::Up if back < x => step_up(nearest),
        Rounding::Zero if back.abs() > x.abs() => f32::from_bits(nearest.to_bits() - 1),
        _ => nearest,
    }
}

#[inline(always)]
fn step_down(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits == 0 {
        0x8000_0001
    } else if bits >> 31 == 0 {
        bits - 1
    } else {
        bits + 1
    })
}

#[inline(always)]
fn step_up(x: f32) -> f32 {
    -step_down(-x)
}

/// `a + b` rounded to odd: 53 bits from which any narrower rounding is exact.
/// Both must be finite and their sum within range.
#[inline(always)]
pub(crate) fn add_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    if error == 0.0 || sum.is_nan() || error.is_nan() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    // The exact value lies between `sum` and its neighbour on the side of `error`;
    // of the two, the odd one is that neighbour.
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// The sign an exact zero sum takes when the operands do not share one.
#[inline(always)]
fn zero_sum(a: f64, b: f64, sum: f64, rounding: Rounding) -> f64 {
    if sum == 0.0 && rounding == Rounding::Down && (a.is_sign_negative() || b.is_sign_negative()) {
        -0.0
    } else {
        sum
    }
}

#[inline(always)]
pub(crate) fn add32(a: f32, b: f32, rounding: Rounding) -> u32 {
    if rounding == Rounding::Nearest {
        return bits32(a + b);
    }
    sum32(f64::from(a), f64::from(b), rounding)
}

#[inline(always)]
fn sum32(a: f64, b: f64, rounding: Rounding) -> u32 {
    let sum = add_to_odd(a, b);
    if !sum.is_finite() {
        return bits32(sum as f32);
    }
    bits32(narrow(zero_sum(a, b, sum, rounding), rounding))
}

#[inline(always)]
pub(crate) fn mul32(a: f32, b: f32, rounding: Rounding) -> u32 {
    if rounding == Rounding::Nearest {
        return bits32(a * b);
    }
    let product = f64::from(a) * f64::from(b);
    if product.is_infinite() {
        return bits32(product as f32);
    }
    bits32(narrow(product, rounding))
}

#[inline(always)]
pub(crate) fn fma32(a: f32, b: f32, c: f32, rounding: Rounding) -> u32 {
    if rounding == Rounding::Nearest {
        return bits32(a.mul_add(b, c));
    }
    sum32(f64::from(a) * f64::from(b), f64::from(c), rounding)
}

fn flushed(x: f32) -> f32 {
    f32::from_bits(flush(x.to_bits()))
}

/// `mul.ftz`, which an H200 judges as [`flush_rounded`] does.
pub(crate) fn mul32_flushed(a: f32, b: f32, rounding: Rounding) -> u32 {
    let (a, b) = (flushed(a), flushed(b));
    flush_rounded(mul32(a, b, rounding), f64::from(a) * f64::from(b), rounding)
}

/// `fma.ftz`, likewise.
pub(crate) fn fma32_flushed(a: f32, b: f32, c: f32, rounding: Rounding) -> u32 {
    let (a, b, c) = (flushed(a), flushed(b), flushed(c));
    let sum = add_to_odd(f64::from(a) * f64::from(b), f64::from(c));
    flush_rounded(fma32(a, b, c, rounding), sum, rounding)
}

/// f32 quotient in the given direction.
pub(crate) fn div32(a: f32, b: f32, rounding: Rounding) -> u32 {
    let nearest = a / b;
    if rounding == Rounding::Nearest || !nearest.is_finite() && (b == 0.0 || !a.is_finite()) {
        return bits32(nearest);
    }
    // The quotient of two 24-bit numbers in f64 is never within rounding error of an f32
    // boundary unless it is exactly one, so one correction of the f64 quotient is enough.
    let (wide_a, wide_b) = (f64::from(a), f64::from(b));
    let quotient = wide_a / wide_b;
    let rest = (-quotient).mul_add(wide_b, wide_a);
    bits32(narrow(odd(quotient, rest, b), rounding))
}

/// f32 quotient of `.ftz`: one below the least normal number becomes zero before it is rounded, so
/// that rounding up does not reach that number; products are judged otherwise.
pub(crate) fn div32_flushed(a: f32, b: f32, rounding: Rounding) -> u32 {
    let bits = div32(a, b, rounding);
    let least = f64::from(f32::MIN_POSITIVE);
    let at_least = bits & 0x7fff_ffff == f32::MIN_POSITIVE.to_bits();
    if at_least && f64::from(a).abs() < f64::from(b).abs() * least {
        return bits & 0x8000_0000;
    }
    flush(bits)
}

fn odd(quotient: f64, rest: f64, divisor: f32) -> f64 {
    if rest == 0.0 || quotient.to_bits() & 1 == 1 || quotient == 0.0 {
        return quotient;
    }
    let error_positive = (rest > 0.0) == (divisor > 0.0);
    let away = error_positive == (quotient > 0.0);
    f64::from_bits(if away { quotient.to_bits() + 1 } else { quotient.to_bits() - 1 })
}

/// f32 square root in the given direction.
pub(crate) fn sqrt32(a: f32, rounding: Rounding) -> u32 {
    let root = f64::from(a).sqrt();
    if !root.is_finite() || root == 0.0 || rounding == Rounding::Nearest {
        return bits32(a.sqrt());
    }
    let rest = (-root).mul_add(root, f64::from(a));
    bits32(narrow(odd(root, rest, 1.0), rounding))
}

/// A binary format of at most 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Narrow {
    pub mantissa_bits: u32,
    pub exponent_bits: u32,
    /// Largest finite code, sign cleared.
    pub max_finite: u32,
    /// Code of infinity; equal to `nan` where the format has none.
    pub infinity: u32,
    /// The NaN written; 0 where the format has none.
    pub nan: u32,
}

pub(crate) const F16: Narrow = Narrow {
    mantissa_bits: 10,
    exponent_bits: 5,
    max_finite: 0x7bff,
    infinity: 0x7c00,
    nan: 0x7fff,
};
pub(crate) const BF16: Narrow = Narrow {
    mantissa_bits: 7,
    exponent_bits: 8,
    max_finite: 0x7f7f,
    infinity: 0x7f80,
    nan: 0x7fff,
};
pub(crate) const E4M3: Narrow =
    Narrow { mantissa_bits: 3, exponent_bits: 4, max_finite: 0x7e, infinity: 0x7f, nan: 0x7f };
pub(crate) const E5M2: Narrow =
    Narrow { mantissa_bits: 2, exponent_bits: 5, max_finite: 0x7b, infinity: 0x7c, nan: 0x7f };
pub(crate) const E2M1: Narrow =
    Narrow { mantissa_bits: 1, exponent_bits: 2, max_finite: 0x7, infinity: 0x7, nan: 0x7 };

impl Narrow {
    fn sign_bit(self) -> u32 {
        1 << (self.mantissa_bits + self.exponent_bits)
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Encodes `x` (exact, or rounded to odd). `finite` clamps overflow to the largest finite
    /// value; otherwise overflow becomes infinity as the rounding direction says.
    pub fn encode(self, x: f64, rounding: Rounding, finite: bool) -> u32 {
        let sign = if x.is_sign_negative() { self.sign_bit() } else { 0 };
        if x.is_nan() {
            return self.nan;
        }
        if x == 0.0 {
            return sign;
        }
        if x.is_infinite() {
            return sign | if finite { self.max_finite } else { self.infinity };
        }
        let bits = x.to_bits();
        let raw_exponent = ((bits >> 52) & 0x7ff) as i32;
        let significand = if raw_exponent == 0 {
            bits & ((1 << 52) - 1)
        } else {
            bits & ((1 << 52) - 1) | 1 << 52
        };
        let exponent = raw_exponent.max(1) - 1023;
        let lowest = 1 - self.bias();
        let kept_exponent = exponent.max(lowest);
        let drop = (52 - self.mantissa_bits as i32) + (kept_exponent - exponent);
        let away = match rounding {
            Rounding::Up => sign == 0,
            Rounding::Down => sign != 0,
            _ => false,
        };
        let (kept, half, rest) = if drop > 62 {
            (0, false, true)
        } else {
            let kept = significand >> drop;
            let tail = significand & ((1 << drop) - 1);
            let half_unit = 1u64 << (drop - 1);
            (kept, tail & half_unit != 0, tail & (half_unit - 1) != 0)
        };
        let up = match rounding {
            Rounding::Nearest => half && (rest || kept & 1 == 1),
            _ => away && (half || rest),
        };
        let code = (((kept_exponent - lowest) as u64) << self.mantissa_bits) + kept + u64::from(up);
        if code > u64::from(self.max_finite) {
            let to_finite = finite || (rounding != Rounding::Nearest && !away);
            return sign | if to_finite { self.max_finite } else { self.infinity };
        }
        sign | code as u32
    }

    /// The exact value of a code.
    pub fn decode(self, code: u32) -> f64 {
        let magnitude = code & (self.sign_bit() - 1);
        let negative = code & self.sign_bit() != 0;
        let field = (magnitude >> self.mantissa_bits) as i32;
        let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
        let value = if magnitude > self.max_finite {
            if magnitude == self.infinity && self.infinity != self.nan {
                f64::INFINITY
            } else {
                f64::NAN
            }
        } else {
            let exponent = field.max(1) - self.bias() - self.mantissa_bits as i32;
            let whole = if field == 0 { mantissa } else { mantissa | 1 << self.mantissa_bits };
            f64::from(whole) * power_of_two(exponent)
        };
        if negative { -value } else { value }
    }
}

/// 2^e for e in the normal f64 range.
pub(crate) fn power_of_two(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// f32 to bf16, nearest even.
#[inline(always)]
pub(crate) fn bf16_of(bits: u32) -> u32 {
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    if bits & 0x7fff_ffff > 0x7f80_0000 { u32::from(NAN_16) } else { rounded }
}

/// f16 code to f32 bits (NaN becomes the canonical one).
#[inline(always)]
pub(crate) fn f16_to_f32(code: u32) -> u32 {
    let sign = (code & 0x8000) << 16;
    let magnitude = code & 0x7fff;
    if magnitude > 0x7c00 {
        return NAN_F32;
    }
    if magnitude == 0x7c00 {
        return sign | 0x7f80_0000;
    }
    // A f16 pattern shifted into f32 position is the value times 2^-112, subnormals included.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    sign | scaled.to_bits()
}

/// bf16 code to f32 bits: a shift for every code, NaN among them.
#[inline(always)]
pub(crate) fn bf16_to_f32(code: u32) -> u32 {
    code << 16
}

/// f32 to f16, nearest even.
pub(crate) fn f16_of(bits: u32) -> u32 {
    F16.encode(f64::from(f32::from_bits(bits)), Rounding::Nearest, false)
}

/// Minimum as PTX defines it: −0 below +0; one NaN loses unless `nan_wins`.
#[inline(always)]
pub(crate) fn min32(a: u32, b: u32, nan_wins: bool) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    if x.is_nan() || y.is_nan() {
        return nan_choice(a, b, nan_wins);
    }
    if ordered_key(a) < ordered_key(b) { a } else { b }
}

/// Maximum; see [`min32`].
#[inline(always)]
pub(crate) fn max32(a: u32, b: u32, nan_wins: bool) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    if x.is_nan() || y.is_nan() {
        return nan_choice(a, b, nan_wins);
    }
    if ordered_key(a) > ordered_key(b) { a } else { b }
}

#[inline(always)]
fn nan_choice(a: u32, b: u32, nan_wins: bool) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    if nan_wins || (x.is_nan() && y.is_nan()) {
        NAN_F32
    } else if x.is_nan() {
        b
    } else {
        a
    }
}

/// Orders f32 bits as their values, −0 below +0.
#[inline(always)]
fn ordered_key(bits: u32) -> i32 {
    let signed = bits as i32;
    signed ^ (((signed >> 31) as u32) >> 1) as i32
}

/// Rounds to an integral value.
#[inline(always)]
pub(crate) fn integral(x: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => x.round_ties_even(),
        Rounding::Zero => x.trunc(),
        Rounding::Down => x.floor(),
        Rounding::Up => x.ceil(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directed_sums_bracket_the_exact_value() {
        let one = 1.0f32;
        let tiny = f32::from_bits(1);
        assert_eq!(add32(one, tiny, Rounding::Nearest), one.to_bits());
        assert_eq!(add32(one, tiny, Rounding::Zero), one.to_bits());
        assert_eq!(add32(one, tiny, Rounding::Down), one.to_bits());
        assert_eq!(add32(one, tiny, Rounding::Up), one.to_bits() + 1);
        assert_eq!(add32(one, -tiny, Rounding::Down), one.to_bits() - 1);
        assert_eq!(add32(one, -tiny, Rounding::Zero), one.to_bits() - 1);
        assert_eq!(add32(one, -tiny, Rounding::Up), one.to_bits());
        assert_eq!(add32(one, -one, Rounding::Down), 0x8000_0000);
        assert_eq!(add32(one, -one, Rounding::Zero), 0);
        assert_eq!(add32(f32::MAX, f32::MAX, Rounding::Zero), f32::MAX.to_bits());
        assert_eq!(add32(f32::MAX, f32::MAX, Rounding::Up), f32::INFINITY.to_bits());
    }

    #[test]
    fn directed_products_and_quotients() {
        let x = f32::from_bits(0x3f80_0001);
        let exact = f64::from(x) * f64::from(x);
        for (rounding, ok) in [
            (Rounding::Down, (|r: f64, e: f64| r <= e) as fn(f64, f64) -> bool),
            (Rounding::Up, |r, e| r >= e),
        ] {
            let got = f64::from(f32::from_bits(mul32(x, x, rounding)));
            assert!(ok(got, exact));
        }
        let down = div32(1.0, 3.0, Rounding::Down);
        let up = div32(1.0, 3.0, Rounding::Up);
        assert_eq!(up, down + 1);
        assert_eq!(div32(1.0, 0.0, Rounding::Zero), f32::INFINITY.to_bits());
        assert_eq!(div32(6.0, 3.0, Rounding::Up), 2.0f32.to_bits());
        let root = sqrt32(2.0, Rounding::Up);
        assert_eq!(root, sqrt32(2.0, Rounding::Down) + 1);
        assert_eq!(sqrt32(4.0, Rounding::Up), 2.0f32.to_bits());
    }

    #[test]
    fn flushed_quotients_are_judged_before_rounding() {
        let least = f32::MIN_POSITIVE;
        let above = f32::from_bits(0x3f80_0001);
        // 2^-126 · (1 - 2^-23 + ...): up to 2^-126 without .ftz, nothing with it.
        assert_eq!(div32(least, above, Rounding::Up), least.to_bits());
        assert_eq!(div32_flushed(least, above, Rounding::Up), 0);
        assert_eq!(div32_flushed(-least, above, Rounding::Down), 0x8000_0000);
        let large = f32::from_bits(0x7e80_0001);
        assert_eq!(div32(1.0, large, Rounding::Up), least.to_bits());
        assert_eq!(div32_flushed(1.0, large, Rounding::Up), 0);
        // Neither exactly 2^-126 nor what is rounded down to it.
        assert_eq!(div32_flushed(least, 1.0, Rounding::Up), least.to_bits());
        assert_eq!(div32_flushed(2.0 * least, 2.0, Rounding::Down), least.to_bits());
        let next = f32::from_bits(least.to_bits() + 1);
        assert_eq!(div32_flushed(next, 1.0, Rounding::Zero), next.to_bits());
        let below = f32::from_bits(0x3f7f_ffff);
        assert_eq!(div32_flushed(least, below, Rounding::Zero), least.to_bits());
    }

    #[test]
    fn a_double_without_a_number_comes_from_the_operands() {
        let (quiet, signalling) = (0x7ff8_0000_0000_1234, 0xfff0_0000_0000_5678);
        let of = |operands: &[u64]| result64(f64::NAN, operands);
        assert_eq!(of(&[0, 0x7ff0 << 48]), 0xfff8_0000_0000_0000);
        assert_eq!(of(&[quiet, 0]), quiet);
        assert_eq!(of(&[0, quiet, 0x7ff8_0000_0000_0001]), quiet);
        assert_eq!(of(&[quiet, 0, signalling]), signalling | 1 << 51);
        assert_eq!(result64(-0.0, &[quiet, signalling]), 1 << 63);
        assert_eq!(narrow_nan64(0x7ff8_0000_0000_0000, 8, 23), 0x7fc0_0000);
        assert_eq!(narrow_nan64(0xfff0_0000_2000_0001, 8, 23), 0xffc0_0001);
        assert_eq!(narrow_nan64(0x7ff8_0000_0000_0001, 5, 10), 0x7e00);
        assert_eq!(narrow_nan64(0x7ffa_0000_0000_0000, 8, 7), 0x7fd0);
    }

    #[test]
    fn narrow_formats_round_trip_every_code() {
        for (format, codes) in [(F16, 1 << 16), (BF16, 1 << 16), (E4M3, 256), (E5M2, 256)] {
            for code in 0..codes {
                let value = format.decode(code);
                if !value.is_nan() {
                    assert_eq!(
                        format.encode(value, Rounding::Nearest, false),
                        code,
                        "{format:?} {code:#x}"
                    );
                }
            }
        }
        for code in 0..1u32 << 16 {
            let value = F16.decode(code);
            if !value.is_nan() {
                assert_eq!(f16_to_f32(code), (value as f32).to_bits());
            }
        }
    }

    #[test]
    fn nearest_bf16_agrees_with_the_general_encoder() {
        let mut bits = 0x1234_5678u32;
        for _ in 0..200_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let general = BF16.encode(f64::from(f32::from_bits(bits)), Rounding::Nearest, false);
            assert_eq!(bf16_of(bits), general, "{bits:#x}");
        }
    }

    #[test]
    fn minimum_and_maximum_follow_ptx() {
        let nan = f32::NAN.to_bits();
        let one = 1.0f32.to_bits();
        assert_eq!(min32(nan, one, false), one);
        assert_eq!(min32(one, nan, false), one);
        assert_eq!(min32(nan, one, true), NAN_F32);
        assert_eq!(min32(0, 0x8000_0000, false), 0x8000_0000);
        assert_eq!(max32(0x8000_0000, 0, false), 0);
        assert_eq!(max32(nan, nan, false), NAN_F32);
    }
}
