//! Rows of a table, copied and weighted, and the faults that show what each clause about one run finds:
//! see `cuda/canary/canary_rows.cu`. Without a fault both the plan and the kernel are right.

use super::Planted;
use crate::call::{Call, Rejection, TensorArg};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::{ErrorKind, ScaleKind};

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
/// Alignment of the weights.
const WEIGHT_BYTES: u64 = 16;

/// Checks that a launch function can be told to forget, from here on up.
const UNCHECKED_DTYPE: i32 = 200;
const UNCHECKED_SHAPE: i32 = 201;
const UNCHECKED_STRIDE: i32 = 202;
const UNCHECKED_ALIGN: i32 = 203;
const UNCHECKED_KIND: i32 = 204;
const UNCHECKED_ALIAS: i32 = 205;
const UNCHECKED_PAIRS: i32 = 206;
const UNCHECKED_COLUMNS: i32 = 207;
const ACCEPTS_BF16: i32 = 208;
const ACCEPTS_PER_ROW: i32 = 209;
const REFUSES_SEVEN: i32 = 210;
const REFUSES_RANK0: i32 = 211;

macro_rules! planted {
    ($($name:ident = $number:expr,)*) => {
        &[$(Planted { name: stringify!($name), plan: plan_with::<{ $number }> },)*]
    };
}

/// Every fault, and every near-miss.
pub const PLANTED: &[Planted] = planted! {
    sign_of_zero = 1,
    weight_of_first = 2,
    leans = 3,
    nan_dropped = 4,
    saturates = 6,
    overflows = 7,
    past_the_ids = 8,
    stale_shared = 9,
    no_barrier = 10,
    absent_lane = 11,
    endless = 12,
    stores_weight = 13,
    stores_pad = 14,
    masked_row = 15,
    skips_last = 16,
    dense_rows = 17,
    dense_inner = 18,
    stride_of_one = 19,
    offset_ignored = 20,
    index_32 = 21,
    dense_out = 22,
    poison_read = 23,
    nan_other_head = 25,
    packed_rows = 26,
    past_status = 27,
    quiet_only = 28,
    nan_payload = 100,
    truncates = 101,
    nan_whole_row = 102,
    with_barrier = 103,
    present_lane = 104,
    ends_late = 105,
    reads_back = 106,
    stores_twice = 107,
    asked_rows = 108,
    unchecked_dtype = UNCHECKED_DTYPE,
    unchecked_shape = UNCHECKED_SHAPE,
    unchecked_stride = UNCHECKED_STRIDE,
    unchecked_align = UNCHECKED_ALIGN,
    unchecked_kind = UNCHECKED_KIND,
    unchecked_alias = UNCHECKED_ALIAS,
    unchecked_pairs = UNCHECKED_PAIRS,
    unchecked_columns = UNCHECKED_COLUMNS,
    accepts_bf16 = ACCEPTS_BF16,
    accepts_per_row = ACCEPTS_PER_ROW,
    refuses_seven = REFUSES_SEVEN,
    refuses_rank0 = REFUSES_RANK0,
};

/// The right kernel.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    plan_with::<0>(call)
}

fn plan_with<const FAULT: i32>(call: &Call) -> Result<Plan, Rejection> {
    let x = call.tensor("x")?.dtype_in("x", &FLOATS)?;
    let (y, z) = (call.tensor("y")?, call.tensor("z")?);
    if FAULT != UNCHECKED_DTYPE {
        y.dtype_in("y", &[x.dtype])?;
    }
    z.dtype_in("z", &[x.dtype])?;
    let ids = call.tensor("ids")?.dtype_in("ids", &[DType::I64])?;
    let w = call.tensor("w")?.dtype_in("w", &[DType::F32])?;
    let status = call.tensor("status")?.dtype_in("status", &[DType::I32])?;
    let [rows, heads, columns] = x.axes("x")?;
    let [count] = ids.axes("ids")?;
    multiplier::<FAULT>(call.tensor("a")?)?;
    w.shape_is("w", &[columns])?;
    if FAULT != UNCHECKED_SHAPE {
        y.shape_is("y", &[count, heads, columns])?;
    }
    z.shape_is("z", &[count, heads, columns])?;
    status.shape_is("status", &[1])?;
    let odd = columns % 2 == 1 && columns >= 24;
    let none = columns == 0 && FAULT != UNCHECKED_COLUMNS;
    let seven = columns == 7 && FAULT == REFUSES_SEVEN;
    if odd && FAULT != UNCHECKED_PAIRS || none || seven {
        let detail = format!("has {columns} columns; must be even from 24 on, and some");
        return Err(Rejection::new(ErrorKind::Shape, "x", detail));
    }
    apart(x)?;
    let y_row = if FAULT == UNCHECKED_STRIDE { y.strides[0] } else { y.row_stride("y")? };
    let z_row = z.row_stride("z")?;
    for (name, tensor) in [("ids", ids), ("w", w)] {
        if tensor.row_stride(name)? != 1 && tensor.count() > 1 {
            return Err(Rejection::new(ErrorKind::Shape, name, "must be contiguous"));
        }
    }
    if FAULT != UNCHECKED_ALIGN && !w.offset_bytes.is_multiple_of(WEIGHT_BYTES) {
        let detail = format!("base must be a multiple of {WEIGHT_BYTES} bytes");
        return Err(Rejection::new(ErrorKind::Align, "w", detail));
    }
    if FAULT != UNCHECKED_ALIAS {
        call.no_alias(&["y", "z", "status"])?;
    }
    let launch = Launch {
        module: "canary_rows",
        entry: format!("canary_rows_{}", x.dtype.name()).into(),
        grid: [1, 1, 1],
        block: [64, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("x"),
            Argument::Tensor("ids"),
            Argument::Tensor("w"),
            Argument::Tensor("a"),
            Argument::Tensor("y"),
            Argument::Tensor("z"),
            Argument::Tensor("status"),
            Argument::I64(x.strides[0] as i64),
            Argument::I64(x.strides[1] as i64),
            Argument::I64(x.strides[2] as i64),
            Argument::I64(y_row as i64),
            Argument::I64(z_row as i64),
            Argument::I64(count as i64),
            Argument::I64(rows as i64),
            Argument::I64(heads as i64),
            Argument::I64(columns as i64),
            Argument::I32(i32::from(call.word("overflow")? == "stops")),
            Argument::I32(FAULT),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}

/// One f32 multiplier, `[1]` or rank 0.
fn multiplier<const FAULT: i32>(a: &TensorArg) -> Result<(), Rejection> {
    let types: &[DType] =
        if FAULT == ACCEPTS_BF16 { &[DType::F32, DType::BF16] } else { &[DType::F32] };
    a.dtype_in("a", types)?;
    if FAULT != UNCHECKED_KIND && a.kind != Some(ScaleKind::TensorF32Multiplier) {
        let detail = "must be one f32 multiplier for the tensor";
        return Err(Rejection::new(ErrorKind::ScaleKind, "a", detail));
    }
    let is_one = a.shape == [1] || a.shape.is_empty() && FAULT != REFUSES_RANK0;
    if !(is_one || FAULT == ACCEPTS_PER_ROW && a.shape.len() == 1) {
        let detail = format!("has shape {:?}; must be [1] or rank 0", a.shape);
        return Err(Rejection::new(ErrorKind::ScaleShape, "a", detail));
    }
    Ok(())
}

/// Any strides that keep the elements of `x` apart: each axis steps over all of those nested in it.
fn apart(x: &TensorArg) -> Result<(), Rejection> {
    let mut axes: Vec<(u64, u64)> =
        x.strides.iter().copied().zip(x.shape.iter().copied()).filter(|(_, n)| *n > 1).collect();
    axes.sort_unstable();
    let mut span = 1;
    for (stride, extent) in axes {
        if stride < span {
            let detail = format!("strides {:?} let elements of {:?} overlap", x.strides, x.shape);
            return Err(Rejection::new(ErrorKind::Shape, "x", detail));
        }
        span += stride * (extent - 1);
    }
    Ok(())
}
