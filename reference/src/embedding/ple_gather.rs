//! Rows of an E4M3 table times one bf16 scale; an invalid id gives a row of +0 and is reported.
//! Exact: a code has 4 significant bits and the scale 8, so the f64 product is exact and each output
//! is one rounding. Only the rows that ids name are looked at: tables may be virtual.

use crate::{Expected, Inputs, Outputs};
use contracts::dtype::{DType, e4m3_value};

/// Bits of `scale` times each of the 256 codes, rounded once to `out`. NaN codes give NaN; beyond the
/// range of `out` the result is infinite.
pub fn scaled_codes(scale: f64, out: DType) -> [u64; 256] {
    std::array::from_fn(|code| out.round_from_f64(e4m3_value(code as u8) * scale))
}

/// out`[i,c]` = `rounded[code(ids[i], c)]`, `[ids,width]`, with rows of zero bits where an id is not in
/// `0..table_rows`; and the status, 0 or 1 + the position of the first such id. `append_row` appends the
/// codes of a row.
pub fn gather(
    ids: &[i64],
    table_rows: u64,
    width: u64,
    rounded: &[u64; 256],
    append_row: impl Fn(u64, &mut Vec<u8>),
) -> (Vec<u64>, i32) {
    let mut out = Vec::with_capacity(ids.len() * width as usize);
    let mut codes = Vec::with_capacity(width as usize);
    let mut status = 0;
    for (position, id) in ids.iter().enumerate() {
        match u64::try_from(*id).ok().filter(|row| *row < table_rows) {
            Some(row) => {
                codes.clear();
                append_row(row, &mut codes);
                out.extend(codes.iter().map(|code| rounded[usize::from(*code)]));
            }
            None => {
                out.extend((0..width).map(|_| 0));
                if status == 0 {
                    status = 1 + position as i32;
                }
            }
        }
    }
    (out, status)
}

/// Reads codes e4m3 `[R,W]`, scale bf16 `[1]` or `[]` and ids i64 `[n]`. Returns `out` `[n,W]` in the
/// type the dtype symbol `out` names and `status` i32 `[1]`.
///
/// # Panics
/// If a name is missing.
pub fn ple_gather(inputs: &Inputs) -> Outputs {
    let codes = inputs.tensor("codes");
    let (table_rows, width) = (codes.shape[0], codes.shape[1]);
    let rounded = scaled_codes(inputs.tensor("scale").value(0), inputs.dtype("out"));
    let ids = inputs.tensor("ids").to_i64();
    let (out, status) = gather(&ids, table_rows, width, &rounded, |row, bytes| {
        codes.content.append_bytes(codes.dtype, row * width..(row + 1) * width, bytes);
    });
    let status = vec![u64::from(status as u32)];
    Outputs { tensors: vec![("out", Expected::Bits(out)), ("status", Expected::Bits(status))] }
}
