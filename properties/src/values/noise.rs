//! Frozen noise: words from (seed, coordinates), uniform and normal deviates from words. Every value
//! is quantised well above the last bits of the functions it comes from, so no library update moves it.

use crate::choices::mix;
use contracts::case::hashed_bits;
use std::sync::OnceLock;

/// Buckets of equal probability in the table of normal quantiles.
const BUCKETS: usize = 2048;

/// The grid normal quantiles are rounded to.
const GRID: f64 = (1u64 << 20) as f64;

/// 64 bits for one element of one row.
pub fn word(row_key: u64, column: usize) -> u64 {
    hashed_bits(row_key, column as u64)
}

/// The key of a row (all coordinates but the innermost, folded) under a tensor's seed.
pub fn row_key(seed: u64, row: u64) -> u64 {
    mix(seed, row)
}

/// Uniform in (0, 1).
pub fn uniform(word: u64) -> f64 {
    ((word >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
}

/// Uniform between two bounds.
pub fn between(word: u64, low: f64, high: f64) -> f64 {
    low + (high - low) * uniform(word)
}

/// A number below `count`, which is at least 1.
pub fn below(word: u64, count: u64) -> u64 {
    ((u128::from(word) * u128::from(count)) >> 64) as u64
}

/// N(0, 1): the quantile of a uniform deviate. Inner buckets interpolate a table, the two outer ones
/// are solved for, so the tails are real.
pub fn normal(word: u64) -> f64 {
    // Lower end of each bucket; the two ends at infinity are never read.
    static TABLE: OnceLock<[f64; BUCKETS + 1]> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        std::array::from_fn(|i| {
            if i % BUCKETS == 0 { 0.0 } else { quantile(i as f64 / BUCKETS as f64) }
        })
    });
    let bucket = (word >> 53) as usize;
    if bucket == 0 || bucket == BUCKETS - 1 {
        return quantile(uniform(word));
    }
    let (low, high) = (table[bucket], table[bucket + 1]);
    let share = ((word >> 21) & 0xffff_ffff) as f64 * (1.0 / (1u64 << 32) as f64);
    low + (high - low) * share
}

/// Solves Φ(z) = p by bisection to the grid's width.
fn quantile(p: f64) -> f64 {
    // The smaller tail keeps the digits.
    let (tail, sign) = if p < 0.5 { (p, -1.0) } else { (1.0 - p, 1.0) };
    let (mut low, mut high) = (0.0, 9.0);
    for _ in 0..26 {
        let middle = 0.5 * (low + high);
        if 0.5 * libm::erfc(middle * std::f64::consts::FRAC_1_SQRT_2) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    sign * libm::round(0.5 * (low + high) * GRID) / GRID
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_deviates_have_the_moments_and_tails_of_a_normal() {
        let count = 400_000;
        let start = std::time::Instant::now();
        let (mut sum, mut square, mut fourth, mut beyond_three) = (0.0, 0.0, 0.0, 0);
        for column in 0..count {
            let z = normal(word(7, column));
            sum += z;
            square += z * z;
            fourth += z * z * z * z;
            beyond_three += u32::from(z.abs() > 3.0);
        }
        let n = count as f64;
        println!("{:.1} ns a deviate", start.elapsed().as_secs_f64() * 1e9 / n);
        assert!((sum / n).abs() < 0.01, "mean {}", sum / n);
        assert!((square / n - 1.0).abs() < 0.01, "variance {}", square / n);
        assert!((fourth / n - 3.0).abs() < 0.1, "fourth moment {}", fourth / n);
        assert!((0.0022..0.0032).contains(&(f64::from(beyond_three) / n)), "{beyond_three}");
    }

    #[test]
    fn normal_deviates_are_frozen() {
        let drawn: Vec<u64> = (0..4).map(|column| normal(word(1, column)).to_bits()).collect();
        let tails = [normal(1 << 20).to_bits(), normal(u64::MAX - (1 << 20)).to_bits()];
        assert_eq!(
            drawn,
            [
                0xbfda_b7dc_9f5e_6e00,
                0x3ff3_f6e1_b763_cd53,
                0x3fe5_2929_287d_62f8,
                0xbfe8_c426_4116_5e0e
            ]
        );
        assert_eq!(tails, [0xc01d_b1fb_8000_0000, 0x401d_b21d_4000_0000]);
    }
}
