//! The k largest elements of each row, in order: see `cuda/selection/row_topk.cu`.
//! One launch: one block a row, or several whose pools of candidates the last of them joins; the results
//! are the same bits, because the order is total. For up to 8 rows of a large vocabulary 16 blocks a row
//! were the fastest on an H200, for 16 rows 8, for 64 rows 6.

use super::argmax_rows::{contiguous_rows, count, word};
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan, Scratch};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

/// Largest k.
pub const MOST: u64 = 64;
const VECTOR_BYTES: u64 = 16;
/// A block has at most this many threads, and a thread this many vectors before another warp helps.
const MAX_THREADS: u64 = 512;
const VECTORS_PER_THREAD: u64 = 4;
/// Fewer warps than this cannot offer the floor of a large k: each offers at most its 32 threads.
const WARPS_FOR_LARGE_K: u64 = 4;
/// Up to here one warp is enough.
const SMALL_K: u64 = 16;
/// Limit of the grid's second axis.
const MAX_PARTS: u64 = 65_535;

/// Checks x `[R, V]` f32, f16 or bf16, ids i32 `[R, k]` and values f32 `[R, k]` with k from 1 to
/// [`MOST`], and the variant `blocks_per_row`, and plans one launch; none without rows.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let x = call.tensor("x")?.dtype_in("x", &[DType::F32, DType::F16, DType::BF16])?;
    let ids = call.tensor("ids")?.dtype_in("ids", &[DType::I32])?;
    let values = call.tensor("values")?.dtype_in("values", &[DType::F32])?;
    let [rows, columns] = x.axes("x")?;
    if columns == 0 {
        let detail = "has no columns; must have at least one";
        return Err(Rejection::new(ErrorKind::Shape, "x", detail));
    }
    let [_, k] = ids.axes("ids")?;
    if !(1..=MOST).contains(&k) {
        let detail = format!("has {k} columns; k must be from 1 to {MOST}");
        return Err(Rejection::new(ErrorKind::Shape, "ids", detail));
    }
    contiguous_rows("ids", ids, &[rows, k])?;
    contiguous_rows("values", values, &[rows, k])?;
    let parts = call.word("blocks_per_row")?;
    let parts = parts
        .parse::<u64>()
        .ok()
        .filter(|parts| (1..=MAX_PARTS).contains(parts))
        .ok_or_else(|| word("blocks_per_row", parts, "a number from 1 to 65535"))?;
    let x_stride = i64::try_from(x.row_stride("x")?)
        .map_err(|_| Rejection::new(ErrorKind::Shape, "x", "row stride exceeds 2^63 - 1"))?;
    x.aligned("x", x.dtype.size_bytes())?;
    let (row_blocks, column_count) = (count("x", "rows", rows)?, count("x", "columns", columns)?);
    call.no_alias(&["ids", "values"])?;
    if rows == 0 {
        return Ok(Plan::default());
    }

    // Stretches of whole vectors, so that an aligned row stays aligned in every part.
    let vector = VECTOR_BYTES / x.dtype.size_bytes();
    let part_columns = match parts {
        1 => columns,
        _ => columns.div_ceil(parts).next_multiple_of(vector),
    };
    let pool = pool(k);
    let mut scratch = Vec::new();
    let (mut partials, mut finished) = (Argument::Null, Argument::Null);
    if parts > 1 {
        let shape = vec![rows, pool, parts];
        scratch.push(Scratch { name: "partials", dtype: DType::I64, shape, zeroed: false });
        let shape = vec![rows];
        scratch.push(Scratch { name: "finished", dtype: DType::I32, shape, zeroed: true });
        (partials, finished) = (Argument::Scratch(0), Argument::Scratch(1));
    }
    let threads = threads(part_columns, k, x.dtype);
    let launch = Launch {
        module: "row_topk",
        entry: format!("row_topk_{}", x.dtype.name()).into(),
        grid: [row_blocks.unsigned_abs(), parts as u32, 1],
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("x"),
            Argument::Tensor("ids"),
            Argument::Tensor("values"),
            partials,
            finished,
            Argument::I64(x_stride),
            Argument::I32(column_count),
            Argument::I32(count("x", "columns of a part", part_columns)?),
            Argument::I32(k as i32),
            Argument::I32(pool as i32),
            Argument::I32(tops(k, threads)),
        ],
    };
    Ok(Plan { scratch, launches: vec![launch] })
}

/// Candidates a block pools at most: of scattered values 1.2 to 1.5 k reach its floor. No result
/// depends on it.
fn pool(k: u64) -> u64 {
    (2 * k + 16).clamp(32, 2 * MOST)
}

/// Keys each warp offers for the floor, together more than k.
fn tops(k: u64, threads: u32) -> i32 {
    (k as i32 / (threads / 32) as i32 + 1).clamp(2, 32)
}

/// Whole warps, enough for a stretch of `columns` elements.
fn threads(columns: u64, k: u64, dtype: DType) -> u32 {
    let least = if k <= SMALL_K { 32 } else { 32 * WARPS_FOR_LARGE_K };
    let vectors = (columns * dtype.size_bytes()).div_ceil(VECTOR_BYTES);
    vectors.div_ceil(VECTORS_PER_THREAD).next_multiple_of(32).clamp(least, MAX_THREADS) as u32
}
