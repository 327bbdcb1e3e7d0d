//! References of kernels that are wrong, or can be told to be: the canary's, whose bug a search must
//! find, and those on which clauses and relations are shown. Kept apart so that nobody mistakes their
//! kernels for ones that are meant to pass.

use crate::{Expected, Inputs, Outputs};
use contracts::dtype::DType;

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

/// Reads x io `[R,H,C]`, ids i64 `[N]`, w f32 `[C]`, a f32 `[1]` and the option `overflow`. Returns `y`
/// `[N,H,C]`, the rows named; `z`, a·w`[c]` times them with the magnitude `paths` and the unit roundoff of
/// io a row; and `status`. Rows of ids outside the table are zero.
///
/// # Panics
/// If a name is missing.
pub fn canary_rows(inputs: &Inputs) -> Outputs {
    let (x, w, a) = (inputs.tensor("x"), inputs.tensor("w").to_f64(), inputs.tensor("a").value(0));
    let io = inputs.dtype("io");
    let (rows, columns) = (x.shape[0], x.shape[2]);
    let (ids, row) = (inputs.list("id"), x.shape[1] * columns);
    let (mut y, mut z, mut status) = (Vec::new(), Vec::new(), 0);
    for (position, id) in ids.iter().enumerate() {
        let known = u64::try_from(*id).ok().filter(|id| *id < rows);
        if known.is_none() && status == 0 {
            status = 1 + position as i64;
        }
        for element in 0..row {
            let value = known.map_or(0.0, |id| x.value(id * row + element));
            y.push(known.map_or(0, |id| x.bits(id * row + element)));
            let product = a * w[(element % columns) as usize] * value;
            let stops = inputs.word("overflow") == "stops" && value.is_finite();
            let most = io.largest_finite();
            z.push(if stops { product.clamp(-most, most) } else { product });
        }
    }
    let paths = z.iter().map(|value| value.abs()).collect();
    let units = vec![io.unit_roundoff(); ids.len()];
    let z = Expected::Real {
        value: z,
        magnitudes: vec![("paths", paths)],
        measures: vec![("unit_of_io", units)],
    };
    let status = Expected::Bits(vec![DType::I32.round_from_f64(status as f64)]);
    Outputs { tensors: vec![("y", Expected::Bits(y)), ("z", z), ("status", status)] }
}

/// Reads w f32 `[E,2I]` and s f32 `[E,⌈2I/128⌉]`. Returns `y` `[E,I]`, row i of w times row I + i, each with
/// the scale of its block of 128 rows; the magnitude `paths` is its size.
///
/// # Panics
/// If a name is missing.
pub fn canary_experts(inputs: &Inputs) -> Outputs {
    let (w, s) = (inputs.tensor("w"), inputs.tensor("s"));
    let (rows, blocks) = (w.shape[1], s.shape[1]);
    let scaled =
        |expert: u64, row: u64| w.value(expert * rows + row) * s.value(expert * blocks + row / 128);
    let inner = rows / 2;
    let experts = (0..w.shape[0]).flat_map(|expert| (0..inner).map(move |row| (expert, row)));
    let value: Vec<f64> =
        experts.map(|(expert, row)| scaled(expert, row) * scaled(expert, inner + row)).collect();
    let paths = value.iter().map(|value| value.abs()).collect();
    let y = Expected::Real { value, magnitudes: vec![("paths", paths)], measures: Vec::new() };
    Outputs { tensors: vec![("y", y)] }
}

/// Reads k f32 `[N,Hk,D]`, v f32 `[N,Hv,D]`, s f32 `[slots,Hv,D]` and the scalar `scale`. Returns `s` after
/// one row of each sequence with a slot, and `o`; the magnitude `paths` is the sum of what was added, by
/// size.
///
/// # Panics
/// If a name is missing.
pub fn canary_step(inputs: &Inputs) -> Outputs {
    let (k, v, s) = (inputs.tensor("k"), inputs.tensor("v"), inputs.tensor("s"));
    let (key_heads, heads, columns) =
        (k.shape[1] as usize, v.shape[1] as usize, v.shape[2] as usize);
    let (key, value, mut state) = (k.to_f64(), v.to_f64(), s.to_f64());
    let mut sizes: Vec<f64> = state.iter().map(|one| one.abs()).collect();
    let (row, scale) = (heads * columns, inputs.scalar("scale"));
    let mut o = (vec![0.0; value.len()], vec![0.0; value.len()]);
    for (n, slot) in inputs.list("slot").iter().enumerate() {
        let Ok(slot) = usize::try_from(*slot) else { continue };
        for at in 0..row {
            let key_head = at / columns * key_heads / heads;
            let product =
                key[(n * key_heads + key_head) * columns + at % columns] * value[n * row + at];
            let held = slot * row + at;
            state[held] += product;
            sizes[held] += product.abs();
            o.0[n * row + at] = scale * state[held];
            o.1[n * row + at] = scale * sizes[held];
        }
    }
    let real = |(value, paths)| Expected::Real {
        value,
        magnitudes: vec![("paths", paths)],
        measures: Vec::new(),
    };
    Outputs { tensors: vec![("s", real((state, sizes))), ("o", real(o))] }
}

/// Reads k f32 `[rows,Hk,D]`, v f32 `[rows,Hv,D]`, s f32 `[slots,Hv,D]` and the scalar `scale`. Returns `s`
/// after the last row of each sequence, `o`, `snap` and `bound`, the first sequence's rows under a tag; the magnitude
/// `paths` is the sum of what was added, by size.
///
/// # Panics
/// If a name is missing.
pub fn canary_steps(inputs: &Inputs) -> Outputs {
    let (k, v, s) = (inputs.tensor("k"), inputs.tensor("v"), inputs.tensor("s"));
    let (heads, columns) = (v.shape[1] as usize, v.shape[2] as usize);
    let share = heads / (k.shape[1] as usize).max(1);
    let (key, value, mut state) = (k.to_f64(), v.to_f64(), s.to_f64());
    let mut sizes: Vec<f64> = state.iter().map(|one| one.abs()).collect();
    let row = heads * columns;
    let (lengths, slots) = (inputs.list("len"), inputs.list("slot"));
    let mut o = (vec![0.0; value.len()], vec![0.0; value.len()]);
    let mut snap = (vec![0.0; lengths.len() * row], vec![0.0; lengths.len() * row]);
    let (scale, mut first) = (inputs.scalar("scale"), 0);
    for (n, (length, slot)) in lengths.iter().zip(slots).enumerate() {
        let rows = first..first + *length as usize;
        first = rows.end;
        let Ok(slot) = usize::try_from(*slot) else { continue };
        for at in 0..row {
            let (head, column) = (at / columns, at % columns);
            let held = slot * row + at;
            for t in rows.clone() {
                let product = key[(t * (heads / share) + head / share) * columns + column]
                    * value[t * row + at];
                state[held] += product;
                sizes[held] += product.abs();
                o.0[t * row + at] = scale * state[held];
                o.1[t * row + at] = scale * sizes[held];
            }
            snap.0[n * row + at] = state[held];
            snap.1[n * row + at] = sizes[held];
        }
    }
    let real = |(value, paths)| Expected::Real {
        value,
        magnitudes: vec![("paths", paths)],
        measures: Vec::new(),
    };
    let bound = match lengths.first() {
        Some(rows) if row > 0 => 0x005a_5a40 | *rows as u64,
        _ => inputs.tensor("bound").bits(0),
    };
    Outputs {
        tensors: vec![
            ("s", real((state, sizes))),
            ("o", real(o)),
            ("snap", real(snap)),
            ("bound", Expected::Bits(vec![bound])),
        ],
    }
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
