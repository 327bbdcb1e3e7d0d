//! Sum of each row, deliberately wrong: see `cuda/canary/canary_row_sum.cu`. The plan is right; the
//! fault is the kernel's.

use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const ROWS_PER_BLOCK: u64 = 4;
const THREADS: u32 = 128;

/// Checks x f32 `[R, n]` and y f32 `[R]`, and plans one launch; none without rows.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let x = call.tensor("x")?.dtype_in("x", &[DType::F32])?;
    let y = call.tensor("y")?.dtype_in("y", &[DType::F32])?;
    let [rows, columns] = x.axes("x")?;
    y.shape_is("y", &[rows])?;
    if y.row_stride("y")? != 1 && rows > 1 {
        return Err(Rejection::new(ErrorKind::Shape, "y", "must be contiguous"));
    }
    let x_stride = x.row_stride("x")?;
    x.aligned("x", DType::F32.size_bytes())?;
    y.aligned("y", DType::F32.size_bytes())?;
    call.no_alias(&["y"])?;
    if rows == 0 {
        return Ok(Plan::default());
    }
    let signed = |value: u64| {
        i64::try_from(value).map_err(|_| {
            Rejection::new(ErrorKind::Shape, "x", format!("extent {value} exceeds 2^63 - 1"))
        })
    };
    let blocks = i32::try_from(rows.div_ceil(ROWS_PER_BLOCK)).map_err(|_| {
        Rejection::new(ErrorKind::Shape, "x", format!("has {rows} rows; at most 2^33 - 4 fit"))
    })?;
    let launch = Launch {
        module: "canary_row_sum",
        entry: "canary_row_sum_f32".into(),
        grid: [blocks.unsigned_abs(), 1, 1],
        block: [THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("x"),
            Argument::Tensor("y"),
            Argument::I64(signed(x_stride)?),
            Argument::I64(signed(rows)?),
            Argument::I64(signed(columns)?),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}
