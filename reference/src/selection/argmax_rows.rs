//! The largest element of each row: larger value first, −0 equal to +0, equal values by lower index,
//! NaN below every number.
//! Exact: elements are compared as given, and the chosen one is passed on without arithmetic.

use crate::{Expected, Inputs, Outputs};

/// Bits of the f32 NaN that stands for the value of a row without a number.
pub const NO_NUMBER_BITS: u64 = 0x7fff_ffff;

/// Index and value of the first largest element that is not NaN; `None` if there is none.
pub fn argmax(row: impl IntoIterator<Item = f64>) -> Option<(usize, f64)> {
    let mut best: Option<(usize, f64)> = None;
    for (index, value) in row.into_iter().enumerate() {
        // `>` is false for NaN and for −0 against +0, so only strictly larger numbers replace.
        let wins = match best {
            None => !value.is_nan(),
            Some((_, largest)) => value > largest,
        };
        if wins {
            best = Some((index, value));
        }
    }
    best
}

/// Reads x `[R,V]` and the option `value_kind`. Returns `ids` i32 `[R]`, −1 for a row without a
/// number, and with `value_kind` `f32` also `values` f32 `[R]`, the chosen element with its sign.
///
/// # Panics
/// If a name is missing.
pub fn argmax_rows(inputs: &Inputs) -> Outputs {
    let x = inputs.tensor("x");
    let (rows, row_len) = (x.shape[0], x.shape[1]);
    let (mut ids, mut values) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let elements = (row * row_len..(row + 1) * row_len).map(|flat| x.value(flat));
        let (id, value) = match argmax(elements) {
            Some((index, value)) => (index as i32, u64::from((value as f32).to_bits())),
            None => (-1, NO_NUMBER_BITS),
        };
        ids.push(u64::from(id as u32));
        values.push(value);
    }
    let mut tensors = vec![("ids", Expected::Bits(ids))];
    if inputs.word("value_kind") == "f32" {
        tensors.push(("values", Expected::Bits(values)));
    }
    Outputs { tensors }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f64 = f64::NAN;
    const LOWEST: f64 = f64::NEG_INFINITY;

    #[test]
    fn order_of_the_specification() {
        for (row, id) in [
            (vec![1.0, 3.0, 2.0], Some(1)),
            (vec![2.0, 2.0, 2.0], Some(0)),
            (vec![-1.0, 0.0, -0.0], Some(1)),
            (vec![-1.0, -0.0, 0.0], Some(1)),
            (vec![LOWEST, LOWEST], Some(0)),
            (vec![NAN, LOWEST, LOWEST], Some(1)),
            (vec![NAN, -5.0, NAN, -4.0, NAN], Some(3)),
            (vec![f64::INFINITY, NAN, f64::INFINITY], Some(0)),
            (vec![NAN, NAN], None),
            (vec![], None),
        ] {
            assert_eq!(argmax(row.iter().copied()).map(|(index, _)| index), id, "{row:?}");
        }
    }

    #[test]
    fn the_value_keeps_the_sign_of_the_chosen_zero() {
        let (_, value) = argmax([-0.0, 0.0]).expect("a row of zeros has a largest element");
        assert!(value.is_sign_negative());
    }
}
