//! Sum of each row: the reference of a kernel with a planted bug, which a search must find.
//! Kept apart so that nobody mistakes its kernel for one that is meant to pass.

use crate::{Expected, Inputs, Outputs};

/// y`[r]` = Σ_c x`[r,c]` and Σ_c |x`[r,c]`|, left to right in f64. `x` is `[rows, row_len]`, row-major;
/// both results have `rows` elements, zero for empty rows.
///
/// # Panics
/// If `x` is shorter than its shape.
pub fn row_sums(x: &[f64], rows: usize, row_len: usize) -> (Vec<f64>, Vec<f64>) {
    (0..rows)
        .map(|row| {
            let row = &x[row * row_len..(row + 1) * row_len];
            (row.iter().sum::<f64>(), row.iter().map(|value| value.abs()).sum::<f64>())
        })
        .unzip()
}

/// Reads x `[R,n]`; returns `y` `[R]` with the magnitude `abs_sum`.
///
/// # Panics
/// If `x` is missing.
pub fn canary_row_sum(inputs: &Inputs) -> Outputs {
    let x = inputs.tensor("x");
    let (value, abs_sum) = row_sums(&x.to_f64(), x.shape[0] as usize, x.shape[1] as usize);
    let y = Expected::Real { value, magnitudes: vec![("abs_sum", abs_sum)], measures: Vec::new() };
    Outputs { tensors: vec![("y", y)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_rows_and_their_magnitudes() {
        let (value, abs_sum) = row_sums(&[1.0, -2.0, 0.5, 1e30, -1e30, 3.0], 2, 3);
        assert_eq!((value, abs_sum), (vec![-0.5, 3.0], vec![3.5, 2e30 + 3.0]));
        assert!(row_sums(&[1.0, f64::NAN], 1, 2).0[0].is_nan());
    }
}
