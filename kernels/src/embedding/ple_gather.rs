//! Rows of an E4M3 table times one bf16 scale: see `cuda/embedding/ple_gather.cu`.
//! One launch, also for no ids: the status word is written every time.

use crate::call::{Call, Rejection, TensorArg};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::{ErrorKind, ScaleKind};

/// Codes of a table row.
const WIDTH: u64 = 160;
/// Alignment of a row of codes and of output.
const ROW_ALIGN_BYTES: u64 = 16;
/// Up to here a small block scans the ids as fast as a large one.
const FEW_IDS: u64 = 4096;
/// Row blocks of the largest launch: enough to fill a device several times over.
const MAX_ROW_BLOCKS: u64 = 4096;

/// Checks codes e4m3 `[R, 160]`, scale bf16 `[1]` or `[]`, ids i64 `[n]`, out `[n, 160]` f32, f16 or
/// bf16 and status i32 `[1]`, and plans one launch.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let codes = call.tensor("codes")?.dtype_in("codes", &[DType::E4M3])?;
    let out = call.tensor("out")?.dtype_in("out", &[DType::F32, DType::F16, DType::BF16])?;
    let ids = call.tensor("ids")?.dtype_in("ids", &[DType::I64])?;
    let status = call.tensor("status")?.dtype_in("status", &[DType::I32])?;
    one_scale(call.tensor("scale")?)?;
    let [table_rows, width] = codes.axes("codes")?;
    let [count] = ids.axes("ids")?;
    if width != WIDTH {
        let detail = format!("has rows of {width} codes; must be {WIDTH}");
        return Err(Rejection::new(ErrorKind::Shape, "codes", detail));
    }
    out.shape_is("out", &[count, WIDTH])?;
    status.shape_is("status", &[1])?.aligned("status", DType::I32.size_bytes())?;
    if count >= i32::MAX as u64 {
        let detail =
            format!("has {count} elements; the status word names at most 2^31 - 2 positions");
        return Err(Rejection::new(ErrorKind::Shape, "ids", detail));
    }
    if ids.row_stride("ids")? != 1 && count > 1 {
        return Err(Rejection::new(ErrorKind::Shape, "ids", "must be contiguous"));
    }
    ids.aligned("ids", DType::I64.size_bytes())?;
    let codes_stride = stride("codes", codes)?;
    let out_stride = stride("out", out)?;
    call.no_alias(&["out", "status"])?;

    let threads: u32 = if count <= FEW_IDS { 128 } else { 512 };
    let pieces = count * (WIDTH * out.dtype.size_bytes() / ROW_ALIGN_BYTES);
    let row_blocks = pieces.div_ceil(u64::from(threads)).min(MAX_ROW_BLOCKS) as u32;
    let launch = Launch {
        module: "ple_gather",
        entry: format!("ple_gather_{}", out.dtype.name()).into(),
        grid: [1 + row_blocks, 1, 1], // block 0 scans the ids
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("codes"),
            Argument::Tensor("scale"),
            Argument::Tensor("ids"),
            Argument::Tensor("out"),
            Argument::Tensor("status"),
            Argument::I64(codes_stride),
            Argument::I64(out_stride),
            Argument::I64(signed("codes", table_rows)?),
            Argument::I64(signed("ids", count)?),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}

/// One bf16 multiplier for the whole table: `[1]` or rank 0, never per row or per column.
fn one_scale(scale: &TensorArg) -> Result<(), Rejection> {
    scale.dtype_in("scale", &[DType::BF16])?;
    if scale.kind != Some(ScaleKind::TensorBf16) {
        let detail = format!("is {:?}; must be one bf16 multiplier for the table", scale.kind);
        return Err(Rejection::new(ErrorKind::ScaleKind, "scale", detail));
    }
    if !(scale.shape.is_empty() || scale.shape == [1]) {
        let detail = format!("has shape {:?}; must be [1] or rank 0", scale.shape);
        return Err(Rejection::new(ErrorKind::ScaleShape, "scale", detail));
    }
    scale.aligned("scale", DType::BF16.size_bytes())?;
    Ok(())
}

fn stride(name: &str, tensor: &TensorArg) -> Result<i64, Rejection> {
    let stride = tensor.row_stride(name)?;
    tensor.aligned(name, ROW_ALIGN_BYTES)?;
    signed(name, stride)
}

fn signed(name: &str, value: u64) -> Result<i64, Rejection> {
    i64::try_from(value).map_err(|_| {
        Rejection::new(ErrorKind::Shape, name, format!("extent {value} exceeds 2^63 - 1"))
    })
}
