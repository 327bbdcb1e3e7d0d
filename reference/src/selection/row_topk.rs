//! The k largest elements of each row, in order: larger value first, −0 equal to +0, equal values by lower
//! index, NaN never. Exact: elements are compared as given and passed on without arithmetic.

use crate::{Expected, Inputs, Outputs};
use std::cmp::Ordering;

/// Index and value of the k largest elements that are not NaN, fewer if there are not so many.
pub fn topk(row: impl IntoIterator<Item = f64>, k: usize) -> Vec<(usize, f64)> {
    let mut numbers: Vec<(usize, f64)> =
        row.into_iter().enumerate().filter(|(_, value)| !value.is_nan()).collect();
    let order = |(i, a): &(usize, f64), (j, b): &(usize, f64)| {
        b.partial_cmp(a).unwrap_or(Ordering::Equal).then(i.cmp(j))
    };
    if k < numbers.len() {
        numbers.select_nth_unstable_by(k, order);
        numbers.truncate(k);
    }
    numbers.sort_unstable_by(order);
    numbers
}

/// Reads x `[R,V]` and the dim `k`. Returns `ids` i32 `[R,k]` and `values` f32 `[R,k]`, the chosen
/// elements with their signs; −1 and −∞ where a row has fewer than k numbers.
///
/// # Panics
/// If a name is missing.
pub fn row_topk(inputs: &Inputs) -> Outputs {
    let x = inputs.tensor("x");
    let (rows, row_len) = (x.shape[0], x.shape[1]);
    let k = inputs.dim("k").max(0) as usize;
    let (mut ids, mut values) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let elements = (row * row_len..(row + 1) * row_len).map(|flat| x.value(flat));
        let chosen = topk(elements, k);
        let absent = std::iter::repeat_n((-1, f32::NEG_INFINITY), k - chosen.len());
        let chosen = chosen.into_iter().map(|(index, value)| (index as i32, value as f32));
        for (id, value) in chosen.chain(absent) {
            ids.push(u64::from(id as u32));
            values.push(u64::from(value.to_bits()));
        }
    }
    Outputs { tensors: vec![("ids", Expected::Bits(ids)), ("values", Expected::Bits(values))] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::argmax_rows::argmax;

    const NAN: f64 = f64::NAN;
    const LOWEST: f64 = f64::NEG_INFINITY;

    #[test]
    fn order_of_the_specification() {
        for (row, k, ids) in [
            (vec![1.0, 3.0, 2.0], 2, vec![1, 2]),
            (vec![2.0, 2.0, 2.0], 2, vec![0, 1]),
            (vec![0.0, -0.0, 1.0, 0.0], 4, vec![2, 0, 1, 3]),
            (vec![-0.0, 0.0], 1, vec![0]),
            (vec![LOWEST, 5.0, LOWEST], 3, vec![1, 0, 2]),
            (vec![NAN, LOWEST, NAN, 1.0], 4, vec![3, 1]),
            (vec![f64::INFINITY, NAN, f64::INFINITY], 2, vec![0, 2]),
            (vec![NAN, NAN], 2, vec![]),
            (vec![], 1, vec![]),
        ] {
            let chosen: Vec<usize> =
                topk(row.iter().copied(), k).into_iter().map(|(index, _)| index).collect();
            assert_eq!(chosen, ids, "{row:?}");
        }
    }

    #[test]
    fn the_first_is_the_largest_and_fewer_are_a_prefix() {
        let row: Vec<f64> = (0..200).map(|i| f64::from((i * 37 + 11) % 23)).collect();
        let all = topk(row.iter().copied(), row.len());
        for k in [1, 2, 22, 64, 199, 200, 300] {
            assert_eq!(topk(row.iter().copied(), k), all[..k.min(row.len())]);
        }
        assert_eq!(argmax(row.iter().copied()), Some(all[0]));
    }
}
