//! Rows from one pool to places of another: see `cuda/transaction/state_scatter.cu`.
//! One launch for any number of rows.

use crate::call::{Call, Rejection, TensorArg};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const THREADS: u32 = 128;
/// Rows are copied by vectors of this size.
const VECTOR_BYTES: u64 = 16;
/// Elements of a row: a multiple of these, whole vectors in every type.
const ELEMENTS: u64 = 8;
/// Blocks along one row; they take further vectors in turn.
const MOST_BLOCKS_A_ROW: u64 = 64;
/// Limit of the grid's second axis; blocks take further rows in turn.
const GRID_LIMIT: u64 = 65_535;

/// Checks from `[rows, width]`, to `[slots, width]` of its type (f32, f16 or bf16, `width` a
/// multiple of 8), from_of and to_of `[n]` i64, and plans one launch; none for no rows.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let from = call.tensor("from")?.dtype_in("from", &[DType::F32, DType::F16, DType::BF16])?;
    let to = call.tensor("to")?.dtype_in("to", &[from.dtype])?;
    let from_of = call.tensor("from_of")?.dtype_in("from_of", &[DType::I64])?;
    let to_of = call.tensor("to_of")?.dtype_in("to_of", &[DType::I64])?;
    let [_, width] = from.axes("from")?;
    let [slots, _] = to.axes("to")?;
    let [count] = from_of.axes("from_of")?;
    to.shape_is("to", &[slots, width])?;
    to_of.shape_is("to_of", &[count])?;
    if !width.is_multiple_of(ELEMENTS) {
        let detail = format!("has rows of {width} elements; must be a multiple of {ELEMENTS}");
        return Err(Rejection::new(ErrorKind::Shape, "from", detail));
    }
    let row_bytes = width.saturating_mul(from.dtype.size_bytes());
    for (name, list) in [("from_of", from_of), ("to_of", to_of)] {
        list.aligned(name, DType::I64.size_bytes())?;
        if list.row_stride(name)? != 1 && count > 1 {
            return Err(Rejection::new(ErrorKind::Shape, name, "must be contiguous"));
        }
    }
    let (from_pitch, to_pitch) = (pitch("from", from)?, pitch("to", to)?);
    call.no_alias(&["to"])?;
    let vectors = row_bytes / VECTOR_BYTES;
    if count == 0 || vectors == 0 {
        return Ok(Plan::default());
    }
    let launch = Launch {
        module: "state_scatter",
        entry: "state_scatter".into(),
        grid: [
            vectors.div_ceil(THREADS.into()).min(MOST_BLOCKS_A_ROW) as u32,
            count.min(GRID_LIMIT) as u32,
            1,
        ],
        block: [THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("from"),
            Argument::Tensor("from_of"),
            Argument::Tensor("to_of"),
            Argument::Tensor("to"),
            Argument::I64(from_pitch),
            Argument::I64(to_pitch),
            Argument::I64(signed("from", vectors)?),
            Argument::I64(signed("from_of", count)?),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}

/// Distance of two rows in vectors.
fn pitch(name: &str, tensor: &TensorArg) -> Result<i64, Rejection> {
    let stride = tensor.aligned(name, VECTOR_BYTES)?.row_stride(name)?;
    signed(name, stride.saturating_mul(tensor.dtype.size_bytes()) / VECTOR_BYTES)
}

fn signed(name: &str, value: u64) -> Result<i64, Rejection> {
    i64::try_from(value).map_err(|_| {
        Rejection::new(ErrorKind::Shape, name, format!("extent {value} exceeds 2^63 - 1"))
    })
}
