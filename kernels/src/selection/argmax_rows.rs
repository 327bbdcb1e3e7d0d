//! Index and value of each row's largest element: see `cuda/selection/argmax_rows.cu`.
//! One launch: one block a row, or several whose partial results the last of them folds; the results
//! are the same bits, because the order is total. For few rows of a large vocabulary, 128 blocks in
//! all or 8 a row, whichever is more, were the fastest on an H200.

use crate::call::{Call, Rejection, TensorArg};
use crate::launch::{Argument, Launch, Plan, Scratch};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const MODULE: &str = "argmax_rows";
const VECTOR_BYTES: u64 = 16;
/// A block has at most this many threads.
const MAX_THREADS: u64 = 512;
/// A thread has this many vectors of an undivided row before another warp helps. A row is divided to
/// be read at once, and there a thread has one.
const VECTORS_PER_THREAD: u64 = 4;
/// Limit of the grid's second axis.
const MAX_PARTS: u64 = 65_535;

/// Checks x `[R, V]` f32, f16 or bf16, ids i32 `[R]`, values f32 `[R]` where the option `value_kind` is
/// `f32`, and the variant `blocks_per_row`, and plans one launch; none without rows.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let x = call.tensor("x")?.dtype_in("x", &[DType::F32, DType::F16, DType::BF16])?;
    let ids = call.tensor("ids")?.dtype_in("ids", &[DType::I32])?;
    let [rows, columns] = x.axes("x")?;
    if columns == 0 {
        return Err(Rejection::new(
            ErrorKind::Shape,
            "x",
            "has no columns; must have at least one",
        ));
    }
    contiguous_rows("ids", ids, &[rows])?;
    let values = match call.word("value_kind")? {
        "none" => Argument::Null,
        "f32" => {
            let values = call.tensor("values")?.dtype_in("values", &[DType::F32])?;
            contiguous_rows("values", values, &[rows])?;
            Argument::Tensor("values")
        }
        other => return Err(word("value_kind", other, "`none` or `f32`")),
    };
    let parts = call.word("blocks_per_row")?;
    let parts = parts
        .parse::<u64>()
        .ok()
        .filter(|parts| (1..=MAX_PARTS).contains(parts))
        .ok_or_else(|| word("blocks_per_row", parts, "a number from 1 to 65535"))?;
    let x_stride = x.row_stride("x")?;
    x.aligned("x", x.dtype.size_bytes())?;
    let (row_blocks, column_count) = (count("x", "rows", rows)?, count("x", "columns", columns)?);
    let x_stride = i64::try_from(x_stride)
        .map_err(|_| Rejection::new(ErrorKind::Shape, "x", "row stride exceeds 2^63 - 1"))?;
    call.no_alias(&["ids", "values"])?;
    if rows == 0 {
        return Ok(Plan::default());
    }

    let row_blocks = row_blocks.unsigned_abs();
    let suffix = x.dtype.name();
    let row = [Argument::I64(x_stride), Argument::I32(column_count)];
    if parts == 1 {
        let arguments =
            [vec![Argument::Tensor("x"), Argument::Tensor("ids"), values], row.to_vec()].concat();
        let threads = threads(columns, x.dtype, VECTORS_PER_THREAD);
        let whole = launch(format!("argmax_rows_{suffix}"), [row_blocks, 1, 1], threads, arguments);
        return Ok(Plan { scratch: Vec::new(), launches: vec![whole] });
    }
    // Stretches of whole vectors, so that an aligned row stays aligned in every part.
    let vector = VECTOR_BYTES / x.dtype.size_bytes();
    let part_columns = columns.div_ceil(parts).next_multiple_of(vector);
    let arguments = [
        vec![Argument::Tensor("x"), Argument::Scratch(0), Argument::Scratch(1)],
        vec![Argument::Tensor("ids"), values],
        row.to_vec(),
        vec![Argument::I32(count("x", "columns of a part", part_columns)?)],
    ]
    .concat();
    let split = launch(
        format!("argmax_rows_split_{suffix}"),
        [row_blocks, parts as u32, 1],
        threads(part_columns, x.dtype, 1),
        arguments,
    );
    let partials =
        Scratch { name: "partials", dtype: DType::I64, shape: vec![rows, parts], zeroed: false };
    let finished = Scratch { name: "finished", dtype: DType::I32, shape: vec![rows], zeroed: true };
    Ok(Plan { scratch: vec![partials, finished], launches: vec![split] })
}

fn launch(entry: String, grid: [u32; 3], threads: u32, arguments: Vec<Argument>) -> Launch {
    Launch {
        module: MODULE,
        entry: entry.into(),
        grid,
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        arguments,
    }
}

/// Whole warps, enough for a stretch of `columns` elements.
fn threads(columns: u64, dtype: DType, vectors_per_thread: u64) -> u32 {
    let vectors = (columns * dtype.size_bytes()).div_ceil(VECTOR_BYTES);
    vectors.div_ceil(vectors_per_thread).next_multiple_of(32).clamp(32, MAX_THREADS) as u32
}

/// Checks that an output has this shape, of one or two axes, and no gaps.
pub(super) fn contiguous_rows(
    name: &str,
    tensor: &TensorArg,
    shape: &[u64],
) -> Result<(), Rejection> {
    tensor.shape_is(name, shape)?.aligned(name, tensor.dtype.size_bytes())?;
    let row: u64 = shape.iter().skip(1).product();
    if tensor.row_stride(name)? != row && shape[0] > 1 {
        return Err(Rejection::new(ErrorKind::Shape, name, "must be contiguous"));
    }
    Ok(())
}

/// As a kernel takes it.
pub(super) fn count(name: &str, what: &str, value: u64) -> Result<i32, Rejection> {
    i32::try_from(value).map_err(|_| {
        Rejection::new(ErrorKind::Shape, name, format!("has {value} {what}; at most 2^31 - 1 fit"))
    })
}

/// The refusal of an option's or variant's word.
pub(super) fn word(option: &str, given: &str, right: &str) -> Rejection {
    Rejection::new(ErrorKind::Shape, option, format!("is `{given}`; must be {right}"))
}
