//! The element types a tensor may hold: their bits, their value as f64, their rounding and their poison.
//! Everything here is exact integer or IEEE arithmetic, so two machines agree on every bit.

use half::{bf16, f16};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An element type. Bits travel as the low bits of a `u64`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
    /// FP8 E4M3 (FN): no infinity, `7f`/`ff` are NaN, largest 448.
    E4M3,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
}

/// The two fills of memory that must stay unread (and of outputs before a run).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Poison {
    /// Quiet NaN: betrays `0 × NaN`.
    Quiet,
    /// Signalling NaN: betrays code that quiets what it copies.
    Signalling,
    /// A large finite value: betrays `max`-like code that swallows NaN.
    Large,
}

impl DType {
    /// All types, in the order error messages list them.
    pub const ALL: [DType; 6] =
        [DType::F32, DType::F16, DType::BF16, DType::E4M3, DType::I32, DType::I64];

    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::E4M3 => "e4m3",
            DType::I32 => "i32",
            DType::I64 => "i64",
        }
    }

    /// Bytes one element occupies.
    pub fn size_bytes(self) -> u64 {
        match self {
            DType::E4M3 => 1,
            DType::F16 | DType::BF16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::I64 => 8,
        }
    }

    /// Whether the type holds floating-point numbers.
    pub fn is_float(self) -> bool {
        !matches!(self, DType::I32 | DType::I64)
    }

    /// Mask of the bits an element uses.
    pub fn mask(self) -> u64 {
        if self.size_bytes() == 8 { u64::MAX } else { (1 << (8 * self.size_bytes())) - 1 }
    }

    /// The element's value. Integers beyond 2⁵³ round.
    pub fn to_f64(self, bits: u64) -> f64 {
        match self {
            DType::F32 => f64::from(f32::from_bits(bits as u32)),
            DType::F16 => f16_value(bits as u16),
            DType::BF16 => bf16_value(bits as u16),
            DType::E4M3 => e4m3_value(bits as u8),
            DType::I32 => f64::from(bits as u32 as i32),
            DType::I64 => bits as i64 as f64,
        }
    }

    /// The element as an integer; `None` for floating-point types.
    pub fn to_i64(self, bits: u64) -> Option<i64> {
        match self {
            DType::I32 => Some(i64::from(bits as u32 as i32)),
            DType::I64 => Some(bits as i64),
            _ => None,
        }
    }

    /// The nearest element, ties to even, one rounding from f64. Overflow gives infinity where the
    /// type has one; E4M3 saturates. Integers truncate and saturate.
    pub fn round_from_f64(self, value: f64) -> u64 {
        match self {
            DType::F32 => u64::from((value as f32).to_bits()),
            DType::F16 => u64::from(f16::from_f32(to_odd_f32(value)).to_bits()),
            DType::BF16 => u64::from(bf16::from_f32(to_odd_f32(value)).to_bits()),
            DType::E4M3 => u64::from(e4m3_encode(value)),
            DType::I32 => u64::from(value as i32 as u32),
            DType::I64 => value as i64 as u64,
        }
    }

    /// Unit roundoff u: half the spacing just above one. Zero for integers.
    pub fn unit_roundoff(self) -> f64 {
        match self {
            DType::F32 => 2f64.powi(-24),
            DType::F16 => 2f64.powi(-11),
            DType::BF16 => 2f64.powi(-8),
            DType::E4M3 => 2f64.powi(-4),
            DType::I32 | DType::I64 => 0.0,
        }
    }

    /// Smallest positive subnormal; half of it is the largest rounding error near zero.
    pub fn smallest_subnormal(self) -> f64 {
        match self {
            DType::F32 => 2f64.powi(-149),
            DType::F16 => 2f64.powi(-24),
            DType::BF16 => 2f64.powi(-133),
            DType::E4M3 => 2f64.powi(-9),
            DType::I32 | DType::I64 => 0.0,
        }
    }

    /// Largest finite value.
    pub fn largest_finite(self) -> f64 {
        match self {
            DType::F32 => f64::from(f32::MAX),
            DType::F16 => 65504.0,
            DType::BF16 => bf16::MAX.to_f64(),
            DType::E4M3 => 448.0,
            DType::I32 => f64::from(i32::MAX),
            DType::I64 => i64::MAX as f64,
        }
    }

    /// Whether the bits are a NaN.
    pub fn is_nan(self, bits: u64) -> bool {
        self.is_float() && self.to_f64(bits).is_nan()
    }

    /// The one table of poison. Integers are out of any valid range in all three.
    pub fn poison(self, poison: Poison) -> u64 {
        match (self, poison) {
            (DType::F32, Poison::Quiet) => 0x7fc0_0bad,
            (DType::F32, Poison::Signalling) => 0x7fa5_a5a5,
            (DType::F32, Poison::Large) => u64::from(1e30f32.to_bits()),
            (DType::F16, Poison::Quiet) => 0x7e01,
            (DType::F16, Poison::Signalling) => 0x7da5,
            (DType::F16, Poison::Large) => u64::from(f16::from_f64(60000.0).to_bits()),
            (DType::BF16, Poison::Quiet) => 0x7fc1,
            (DType::BF16, Poison::Signalling) => 0x7fa5,
            (DType::BF16, Poison::Large) => u64::from(bf16::from_f64(1e30).to_bits()),
            (DType::E4M3, Poison::Quiet | Poison::Signalling) => 0x7f,
            (DType::E4M3, Poison::Large) => 0x7e,
            (DType::I32, Poison::Quiet | Poison::Signalling) => 0x7fa5_a5a5,
            (DType::I32, Poison::Large) => 0x8000_0bad,
            (DType::I64, Poison::Quiet | Poison::Signalling) => 0x7fa5_a5a5_7fa5_a5a5,
            (DType::I64, Poison::Large) => 0x8000_0000_0000_0bad,
        }
    }

    /// Appends the element's little-endian bytes.
    pub fn push_bytes(self, bits: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&bits.to_le_bytes()[..self.size_bytes() as usize]);
    }

    /// Reads one element from its little-endian bytes (exactly `size_bytes` of them).
    pub fn from_bytes(self, bytes: &[u8]) -> u64 {
        let mut raw = [0u8; 8];
        raw[..self.size_bytes() as usize].copy_from_slice(bytes);
        u64::from_le_bytes(raw)
    }

    /// Calls `f` with the bits of each element of little-endian bytes. The branch on the type is outside
    /// the loops, here and in `each_value`: every element of every case comes through them.
    pub fn each_bits(self, bytes: &[u8], mut f: impl FnMut(u64)) {
        match self.size_bytes() {
            1 => bytes.iter().for_each(|byte| f(u64::from(*byte))),
            2 => words(bytes).for_each(|raw| f(u64::from(u16::from_le_bytes(raw)))),
            4 => words(bytes).for_each(|raw| f(u64::from(u32::from_le_bytes(raw)))),
            _ => words(bytes).for_each(|raw| f(u64::from_le_bytes(raw))),
        }
    }

    /// Calls `f` with the value of each element of little-endian bytes.
    pub fn each_value(self, bytes: &[u8], mut f: impl FnMut(f64)) {
        match self {
            DType::F32 => words(bytes).for_each(|raw| f(f64::from(f32::from_le_bytes(raw)))),
            DType::F16 => words(bytes).for_each(|raw| f(f16_value(u16::from_le_bytes(raw)))),
            DType::BF16 => words(bytes).for_each(|raw| f(bf16_value(u16::from_le_bytes(raw)))),
            DType::E4M3 => bytes.iter().for_each(|byte| f(e4m3_value(*byte))),
            DType::I32 => words(bytes).for_each(|raw| f(f64::from(i32::from_le_bytes(raw)))),
            DType::I64 => words(bytes).for_each(|raw| f(i64::from_le_bytes(raw) as f64)),
        }
    }
}

fn words<const SIZE: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; SIZE]> {
    bytes.as_chunks::<SIZE>().0.iter().copied()
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The value as f32 rounded to odd, so that a second rounding to a narrower type is the only one that
/// shows: `half`'s own conversions from f64 lose the bits that decide just beyond a tie.
fn to_odd_f32(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    if back == value || !nearest.is_finite() {
        return nearest;
    }
    let away = back.abs() > value.abs();
    f32::from_bits((nearest.to_bits() - u32::from(away)) | 1)
}

/// The value of a binary16, by operations that a compiler makes vectors of: exponent and fraction as those
/// of an f32, then a power of two between the biases. Exact, subnormals included.
fn f16_value(bits: u16) -> f64 {
    let bits = u32::from(bits);
    let magnitude = (bits & 0x7fff) << 13;
    let special = (bits & 0x7c00) == 0x7c00;
    let value = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
    let beyond = f32::from_bits(magnitude | 0x7f80_0000);
    let sign = (bits & 0x8000) << 16;
    f64::from(f32::from_bits(if special { beyond } else { value }.to_bits() | sign))
}

fn bf16_value(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

/// Value of an E4M3 code: e = 0 gives m·2⁻⁹, else (8+m)·2^(e−10); `7f` and `ff` are NaN.
pub fn e4m3_value(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let magnitude = match (exponent, code & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa * 2f64.powi(-9),
        _ => (8.0 + mantissa) * 2f64.powi(exponent - 10),
    };
    if code & 0x80 != 0 { -magnitude } else { magnitude }
}

/// Nearest E4M3 code, ties to even, saturating at ±448; NaN gives `7f`. The sign of zero is kept.
pub fn e4m3_encode(value: f64) -> u8 {
    if value.is_nan() {
        return 0x7f;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs();
    // Positive codes are ordered by value, so the nearest is found between two neighbours.
    let above = (0u8..0x7f).find(|&code| e4m3_value(code) >= magnitude).unwrap_or(0x7e);
    if above == 0 || magnitude >= 448.0 {
        return sign | above;
    }
    let below = above - 1;
    let (down, up) = (magnitude - e4m3_value(below), e4m3_value(above) - magnitude);
    let nearest = match down.partial_cmp(&up) {
        Some(std::cmp::Ordering::Less) => below,
        Some(std::cmp::Ordering::Greater) => above,
        _ if below & 1 == 0 => below,
        _ => above,
    };
    sign | nearest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_16_bits_are_those_of_the_library() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(bits).to_f64(), bf16::from_bits(bits).to_f64());
            for (value, right) in [(f16_value(bits), half), (bf16_value(bits), brain)] {
                let both_nan = value.is_nan() && right.is_nan();
                assert!(both_nan || value.to_bits() == right.to_bits(), "{bits:#06x}: {value}");
            }
        }
    }

    #[test]
    fn all_elements_are_what_each_of_them_is() {
        for dtype in DType::ALL {
            let all: Vec<u64> =
                (0..300).map(|i| crate::case::hashed_bits(7, i) & dtype.mask()).collect();
            let mut bytes = Vec::new();
            all.iter().for_each(|bits| dtype.push_bytes(*bits, &mut bytes));
            let (mut seen, mut values) = (Vec::new(), Vec::new());
            dtype.each_bits(&bytes, |bits| seen.push(bits));
            dtype.each_value(&bytes, |value| values.push(value.to_bits()));
            assert_eq!(seen, all, "{dtype}");
            let one_by_one: Vec<u64> =
                all.iter().map(|bits| dtype.to_f64(*bits).to_bits()).collect();
            assert_eq!(values, one_by_one, "{dtype}");
        }
    }

    #[test]
    fn e4m3_landmarks() {
        for (code, value) in [
            (0x00, 0.0),
            (0x01, 2f64.powi(-9)),
            (0x07, 7.0 * 2f64.powi(-9)),
            (0x08, 2f64.powi(-6)),
            (0x38, 1.0),
            (0x40, 2.0),
            (0x77, 240.0),
            (0x7e, 448.0),
            (0xb8, -1.0),
            (0xfe, -448.0),
        ] {
            assert_eq!(e4m3_value(code), value, "code {code:#04x}");
            assert_eq!(e4m3_encode(value), code, "value {value}");
        }
        assert!(e4m3_value(0x80).is_sign_negative() && e4m3_value(0x80) == 0.0);
        assert!(e4m3_value(0x7f).is_nan() && e4m3_value(0xff).is_nan());
    }

    #[test]
    fn e4m3_ties_go_to_even_and_overflow_saturates() {
        for (value, code) in [
            (2f64.powi(-10), 0x00),
            (3.0 * 2f64.powi(-10), 0x02),
            (7.5 * 2f64.powi(-9), 0x08),
            (1.0625, 0x38),
            (1.1875, 0x3a),
            (17.0, 0x58),
            (19.0, 0x5a),
            (432.0, 0x7e),
            (464.0, 0x7e),
            (1e9, 0x7e),
            (f64::INFINITY, 0x7e),
            (-(2f64.powi(-10)), 0x80),
            (-0.0, 0x80),
        ] {
            assert_eq!(e4m3_encode(value), code, "value {value}");
        }
    }

    #[test]
    fn rounding_from_f64_happens_once() {
        let beyond = 2f64.powi(-40);
        assert_eq!(DType::F16.round_from_f64(1.0 + 2f64.powi(-11)), 0x3c00);
        assert_eq!(DType::F16.round_from_f64(1.0 + 2f64.powi(-11) + beyond), 0x3c01);
        assert_eq!(DType::F16.round_from_f64(1.0 + 3.0 * 2f64.powi(-11) - beyond), 0x3c01);
        assert_eq!(DType::BF16.round_from_f64(-1.0 - 2f64.powi(-8)), 0xbf80);
        assert_eq!(DType::BF16.round_from_f64(-1.0 - 2f64.powi(-8) - beyond), 0xbf81);
        assert_eq!(DType::F16.round_from_f64(2f64.powi(-25)), 0);
        assert_eq!(DType::F16.round_from_f64(2f64.powi(-25) * (1.0 + beyond)), 1);
        assert_eq!(DType::F16.round_from_f64(65520.0), 0x7c00);
        assert_eq!(DType::F16.round_from_f64(65519.999), 0x7bff);
        assert_eq!(DType::F16.round_from_f64(f64::INFINITY), 0x7c00);
        assert!(DType::BF16.is_nan(DType::BF16.round_from_f64(f64::NAN)));
        for code in 0..=u64::from(u16::MAX) {
            for dtype in [DType::F16, DType::BF16] {
                if !dtype.is_nan(code) {
                    assert_eq!(
                        dtype.round_from_f64(dtype.to_f64(code)),
                        code,
                        "{dtype} {code:#06x}"
                    );
                }
            }
        }
    }

    #[test]
    fn poison_is_nan_or_out_of_range() {
        for dtype in DType::ALL {
            for poison in [Poison::Quiet, Poison::Signalling] {
                assert_eq!(dtype.is_nan(dtype.poison(poison)), dtype.is_float());
            }
            assert!(!dtype.is_nan(dtype.poison(Poison::Large)));
            assert_eq!(dtype.poison(Poison::Large) & !dtype.mask(), 0);
        }
    }
}
