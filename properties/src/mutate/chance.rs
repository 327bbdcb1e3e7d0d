//! What chance brings about in a small sample, by exact binomial sums. A sample that chance alone makes as
//! bad as it is less often than [`LEAST_CHANCE`] is worse for another reason.

/// Some twenty contracts are judged at every change, by two marks each: a mark that chance passes once in
/// ten thousand samples is a false alarm in some two hundred and fifty changes at most.
pub const LEAST_CHANCE: f64 = 1e-4;

/// How likely at most so many of a sample are of a kind, of which there is such a share below 1.
pub fn of_at_most(most: usize, sample: usize, share: f64) -> f64 {
    // Binomial terms, each from the one before.
    let mut term = (1.0 - share).powi(sample as i32);
    let mut sum = term;
    for at in 0..most.min(sample) {
        term *= (sample - at) as f64 / (at + 1) as f64 * share / (1.0 - share);
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_by_hand() {
        assert!((of_at_most(12, 12, 0.9) - 1.0).abs() < 1e-9, "every outcome together");
        assert!((of_at_most(1, 2, 0.75) - (1.0 - 0.75 * 0.75)).abs() < 1e-12);
        assert!((of_at_most(0, 3, 0.1) - 0.729).abs() < 1e-12);
        assert_eq!(of_at_most(0, 0, 0.5), 1.0, "of nothing there is nothing");
    }
}
