//! What a domain admits, and the nearest thing it does admit: draws, planted values and shrunk values
//! all pass through here, so none of them leaves what callers may pass.

use contracts::dtype::DType;
use contracts::format::Domain;

/// Whether one element is legal. A bound on row norms says of an element only that it is finite.
pub fn admits(domain: &Domain, dtype: DType, bits: u64) -> bool {
    if let Domain::Any = domain {
        return true;
    }
    let value = dtype.to_f64(bits);
    match domain {
        Domain::Any => true,
        Domain::Finite | Domain::RowNorm(_) => value.is_finite(),
        Domain::Positive => value.is_finite() && value > 0.0,
        Domain::Nonzero => value.is_finite() && value != 0.0,
        Domain::Range([low, high]) => value >= *low && value <= *high,
        Domain::RangeOrInfinite([low, high]) => {
            value.is_infinite() || value >= *low && value <= *high
        }
        Domain::AtMost(most) => value <= *most,
    }
}

/// The element itself when it is legal, else one near it: infinities become the largest value, NaN
/// becomes zero, zero becomes one where zero is illegal.
pub fn in_domain(domain: &Domain, dtype: DType, bits: u64) -> u64 {
    if admits(domain, dtype, bits) {
        return bits;
    }
    let value = dtype.to_f64(bits);
    let finite = if value.is_nan() {
        0.0
    } else {
        value.clamp(-dtype.largest_finite(), dtype.largest_finite())
    };
    match domain {
        Domain::Any => bits,
        Domain::Finite | Domain::RowNorm(_) => rounded(dtype, finite),
        Domain::Positive if finite == 0.0 => rounded(dtype, 1.0),
        Domain::Positive => rounded(dtype, finite.abs()),
        Domain::Nonzero if finite == 0.0 => rounded(dtype, 1.0),
        Domain::Nonzero => rounded(dtype, finite),
        Domain::Range([low, high]) | Domain::RangeOrInfinite([low, high]) => {
            inside(dtype, finite.clamp(*low, *high), *low, *high)
        }
        Domain::AtMost(most) => inside(dtype, finite.min(*most), f64::NEG_INFINITY, *most),
    }
}

/// Rounds into the range: rounding to nearest may step over a bound the type cannot hold.
fn inside(dtype: DType, value: f64, low: f64, high: f64) -> u64 {
    let bits = rounded(dtype, value);
    let stepped = dtype.to_f64(bits);
    let (outside, toward_zero) = match () {
        () if stepped > high => (true, stepped > 0.0),
        () if stepped < low => (true, stepped < 0.0),
        () => (false, false),
    };
    match (outside, toward_zero) {
        (false, _) => bits,
        // Sign and magnitude: one less is one step toward zero.
        (true, true) if dtype.is_float() => bits - 1,
        (true, false) if dtype.is_float() => bits + 1,
        _ if stepped > high => bits.wrapping_sub(1) & dtype.mask(),
        _ => bits.wrapping_add(1) & dtype.mask(),
    }
}

/// Brings one innermost row into the domain. Where row norms are bounded a longer row is scaled.
pub fn row_in_domain(domain: &Domain, dtype: DType, row: &mut [u64]) {
    if let Domain::Any = domain {
        return;
    }
    for bits in row.iter_mut() {
        *bits = in_domain(domain, dtype, *bits);
    }
    let Domain::RowNorm(most) = domain else { return };
    let norm = row_norm(dtype, row);
    if norm > *most {
        // A little inside, so that rounding each element cannot lead back out.
        let scale = 0.98 * most / norm;
        for bits in row.iter_mut() {
            *bits = rounded(dtype, dtype.to_f64(*bits) * scale);
        }
    }
}

/// L2 norm of a row.
pub fn row_norm(dtype: DType, row: &[u64]) -> f64 {
    libm::sqrt(row.iter().map(|bits| dtype.to_f64(*bits)).map(|value| value * value).sum())
}

/// The nearest element, the same on every machine: f16 goes through f32, because hardware that
/// converts from f64 does so on some machines and not on others.
pub fn rounded(dtype: DType, value: f64) -> u64 {
    match dtype {
        DType::F16 => dtype.round_from_f64(f64::from(value as f32)),
        _ => dtype.round_from_f64(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contracts::dtype::Poison;

    #[test]
    fn whatever_comes_in_comes_out_legal() {
        let domains = [
            Domain::Any,
            Domain::Finite,
            Domain::Positive,
            Domain::Nonzero,
            Domain::Range([-1.0e4, 0.0]),
            Domain::Range([0.0, 1.0]),
            Domain::Range([0.1, 0.3]),
            Domain::AtMost(0.0),
            Domain::AtMost(2.7726),
            Domain::RowNorm(1.02),
        ];
        for domain in &domains {
            for dtype in [DType::F32, DType::F16, DType::BF16, DType::E4M3] {
                for top in 0..=0xffu64 {
                    for low in [0, 1, 0x5a, 0xff] {
                        let shift = 8 * (dtype.size_bytes() - 1);
                        let bits = (top << shift | low) & dtype.mask();
                        let legal = in_domain(domain, dtype, bits);
                        assert!(
                            admits(domain, dtype, legal),
                            "{domain:?} {dtype} {bits:#x} -> {legal:#x}"
                        );
                        assert_eq!(in_domain(domain, dtype, legal), legal);
                    }
                }
            }
        }
    }

    #[test]
    fn long_rows_are_scaled_and_short_ones_kept() {
        let domain = Domain::RowNorm(1.02);
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let mut row = vec![rounded(dtype, 3.0); 17];
            row[3] = dtype.poison(Poison::Quiet);
            row_in_domain(&domain, dtype, &mut row);
            let norm = row_norm(dtype, &row);
            assert!((0.9..=1.02).contains(&norm), "{dtype} {norm}");
            let before = row.clone();
            row_in_domain(&domain, dtype, &mut row);
            assert_eq!(row, before);
        }
    }
}
