//! The approximate functions: correctly rounded, or with the H200's own deviations.
//! The H200's `ex2`, `rcp` and `rsqrt` are known for every mantissa: each table holds, two bits
//! a value, how many units in the last place the hardware lies from the rounded result.

use crate::float::{NAN_F32, bits32, flush, power_of_two};
use crate::program::Approx;
use std::sync::OnceLock;

/// Whose `.approx` results the machine gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum FloatModel {
    /// An H200 to the bit for `ex2`, `rcp` and `rsqrt`; the rest correctly rounded.
    #[default]
    H200,
    /// Every approximate function correctly rounded.
    Portable,
}

const MANTISSAS: usize = 1 << 23;
const MANTISSA_BITS: u32 = (1 << 23) - 1;

/// Deviations of one function, four a byte, lowest first.
struct Deviations {
    cell: OnceLock<Vec<u8>>,
    packed: &'static [u8],
    lowest: i32,
}

static EX2: Deviations = Deviations::new(include_bytes!("../tables/h200_ex2.zlib"), -1);
static RCP: Deviations = Deviations::new(include_bytes!("../tables/h200_rcp.zlib"), -1);
static RSQRT_EVEN: Deviations = Deviations::new(include_bytes!("../tables/h200_rsqrt0.zlib"), -2);
static RSQRT_ODD: Deviations = Deviations::new(include_bytes!("../tables/h200_rsqrt1.zlib"), -1);

impl Deviations {
    const fn new(packed: &'static [u8], lowest: i32) -> Deviations {
        Deviations { cell: OnceLock::new(), packed, lowest }
    }

    /// The rounded value with the hardware's deviation.
    fn apply(&self, mantissa: u32, rounded: f32) -> f64 {
        let table = self.cell.get_or_init(|| {
            // The tables are part of the program: a damaged one is a build defect.
            let bytes = miniz_oxide::inflate::decompress_to_vec_zlib(self.packed)
                .expect("the embedded table is whole");
            assert_eq!(bytes.len(), MANTISSAS / 4, "the embedded table is whole");
            bytes
        });
        let code = table[mantissa as usize / 4] >> (mantissa % 4 * 2) & 3;
        let bits = rounded.to_bits() as i32 + i32::from(code) + self.lowest;
        f64::from(f32::from_bits(bits as u32))
    }
}

/// One approximate function of f32 bits.
pub(crate) fn evaluate(model: FloatModel, op: Approx, a: u32) -> u32 {
    let ftz = matches!(
        op,
        Approx::Ex2Ftz
            | Approx::Lg2Ftz
            | Approx::RcpFtz
            | Approx::RsqrtFtz
            | Approx::SqrtFtz
            | Approx::SinFtz
            | Approx::CosFtz
    );
    let a = if ftz { flush(a) } else { a };
    let x = f32::from_bits(a);
    if x.is_nan() {
        return NAN_F32;
    }
    let bits = match (model, op) {
        (FloatModel::H200, Approx::Ex2) if x < -126.0 && x.is_finite() => {
            let root = ex2(x / 2.0) as f32;
            (root * root).to_bits()
        }
        (FloatModel::H200, Approx::Ex2 | Approx::Ex2Ftz) if x.is_finite() => bits32(ex2(x) as f32),
        (FloatModel::H200, Approx::Rcp | Approx::RcpFtz) if x.is_finite() && x != 0.0 => {
            let (mantissa, exponent) = split(x);
            let rounded = (1.0 / significand(mantissa)) as f32;
            let y = RCP.apply(mantissa, rounded) * power_of_two(-exponent);
            bits32((y as f32).copysign(x))
        }
        (FloatModel::H200, Approx::Rsqrt | Approx::RsqrtFtz) if x.is_finite() && x > 0.0 => {
            let (mantissa, exponent) = split(x);
            let parity = exponent.rem_euclid(2);
            let scaled = significand(mantissa) * power_of_two(parity);
            let rounded = (1.0 / scaled.sqrt()) as f32;
            let table = if parity == 0 { &RSQRT_EVEN } else { &RSQRT_ODD };
            let y = table.apply(mantissa, rounded) * power_of_two(-(exponent - parity) / 2);
            bits32(y as f32)
        }
        _ => bits32(rounded(op, f64::from(x)) as f32),
    };
    if ftz { flush(bits) } else { bits }
}

/// Mantissa bits and exponent of a finite number other than zero, subnormals normalised.
fn split(x: f32) -> (u32, i32) {
    let bits = f64::from(x).to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1023;
    ((bits >> 29) as u32 & MANTISSA_BITS, exponent)
}

fn significand(mantissa: u32) -> f64 {
    1.0 + f64::from(mantissa) / MANTISSAS as f64
}

/// 2^x of a finite number as the H200 computes it, before the last rounding.
fn ex2(x: f32) -> f64 {
    let steps = (f64::from(x).abs() * MANTISSAS as f64).floor().min((1u64 << 40) as f64) as u64;
    let (i, whole) = (steps as u32 & MANTISSA_BITS, (steps >> 23).min(400) as i32);
    let fraction = |i: u32| EX2.apply(i, libm::exp2(f64::from(i) / MANTISSAS as f64) as f32);
    if x >= 0.0 {
        fraction(i) * power_of_two(whole)
    } else if i == 0 {
        power_of_two(-whole)
    } else {
        // The hardware takes the one's complement of the fraction.
        fraction(MANTISSA_BITS - i) * power_of_two(-whole - 1)
    }
}

fn rounded(op: Approx, x: f64) -> f64 {
    match op {
        Approx::Ex2 | Approx::Ex2Ftz => libm::exp2(x),
        Approx::Lg2 | Approx::Lg2Ftz if x == 0.0 => f64::NEG_INFINITY,
        Approx::Lg2 | Approx::Lg2Ftz => libm::log2(x),
        Approx::Rcp | Approx::RcpFtz => 1.0 / x,
        Approx::Rsqrt | Approx::RsqrtFtz if x == 0.0 => f64::INFINITY.copysign(x),
        Approx::Rsqrt | Approx::RsqrtFtz => 1.0 / x.sqrt(),
        Approx::Sqrt | Approx::SqrtFtz => x.sqrt(),
        Approx::Sin | Approx::SinFtz => libm::sin(x),
        Approx::Cos | Approx::CosFtz => libm::cos(x),
        Approx::Tanh => libm::tanh(x),
    }
}
