//! The drafting model's grouped dynamic convolution: see `cuda/linear_attention/draft_conv.cu`.
//! Before a sublayer: the projection of coefficients where it is asked for, then the convolution. After
//! it: the convolution alone.

use super::gated_delta::{IO, count, one_of, stride};
use crate::call::{Call, Rejection, TensorArg};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const MODULE: &str = "draft_conv";
const THREADS: u32 = 128;
const SIDES: u64 = 2;
const TAPS: u64 = 2;
/// Elements a thread loads and stores together where it can.
const PIECE: u64 = 4;
/// Outputs and rows a block of the projection owns.
const OUTPUTS: u32 = 4;
const ROWS: u64 = 8;
/// Limit of the grid's second axis; blocks take further rows in turn.
const GRID_LIMIT: u64 = 65_535;

/// Checks x and y `[blocks, rows, H]` (f32, f16 or bf16), base `[2, 2, H]` and coef
/// `[blocks, rows, 2, 2, G]` of their type, `H` a multiple of `G`, and the options
///
/// * `stage`: `prepare`, side 0; `finish`, side 1; or `project`, side 0 with coefficients from x, the
///   sublayer's input: takes w `[4 G, H]` and writes coef, both sides of it, before it is used;
/// * `residual`: `added` takes residual `[blocks, rows, H]`;
///
/// and plans one launch, or two; none without rows or channels.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let x = call.tensor("x")?.dtype_in("x", &IO)?;
    let typed = |name: &str| call.tensor(name)?.dtype_in(name, &[x.dtype]);
    let (y, base, coef) = (typed("y")?, typed("base")?, typed("coef")?);
    let (finishes, projects) = match call.word("stage")? {
        "prepare" => (false, false),
        "finish" => (true, false),
        "project" => (false, true),
        word => {
            let detail = format!("is `{word}`; must be `prepare`, `finish` or `project`");
            return Err(Rejection::new(ErrorKind::Shape, "stage", detail));
        }
    };
    let adds = one_of(call, "residual", ["none", "added"])?;
    let [blocks, rows, channels] = x.axes("x")?;
    let [.., groups] = coef.axes::<5>("coef")?;
    y.shape_is("y", &[blocks, rows, channels])?;
    base.shape_is("base", &[SIDES, TAPS, channels])?;
    coef.shape_is("coef", &[blocks, rows, SIDES, TAPS, groups])?;
    if groups == 0 || !channels.is_multiple_of(groups) {
        let detail = format!("has {groups} groups; the {channels} channels must be whole groups");
        return Err(Rejection::new(ErrorKind::Shape, "coef", detail));
    }
    let residual = if adds {
        Some(typed("residual")?.shape_is("residual", &[blocks, rows, channels])?)
    } else {
        None
    };
    let weight = if projects {
        Some(typed("w")?.shape_is("w", &[SIDES * TAPS * groups, channels])?)
    } else {
        None
    };
    let strides = Strides {
        x: stride("x", x)?,
        y: stride("y", y)?,
        coef: stride("coef", coef)?,
        residual: residual.map_or(Ok(0), |residual| stride("residual", residual))?,
        weight: weight.map_or(Ok(0), |weight| stride("w", weight))?,
    };
    if stride("base", base)?.unsigned_abs() != TAPS * channels {
        return Err(Rejection::new(ErrorKind::Shape, "base", "must be contiguous"));
    }
    call.no_alias(&["y", "coef"])?;

    let sizes = Sizes {
        all_rows: signed("x", blocks.saturating_mul(rows))?,
        rows: count("x", "rows a block", rows)?,
        channels: count("x", "channels", channels)?,
        groups: count("coef", "coefficients a row", SIDES * TAPS * groups)? / (SIDES * TAPS) as i32,
    };
    if sizes.all_rows == 0 || channels == 0 {
        return Ok(Plan::default());
    }
    let in_pieces = |tensors: &[Option<&TensorArg>]| {
        channels.is_multiple_of(PIECE) && tensors.iter().flatten().all(|tensor| is_aligned(tensor))
    };
    let mut launches = Vec::new();
    if projects {
        launches.push(project(x.dtype, in_pieces(&[Some(x), weight]), &sizes, &strides));
    }
    let pieces = in_pieces(&[Some(x), Some(y), Some(base), residual]);
    launches.push(convolve(x.dtype, pieces, &sizes, &strides, finishes, adds));
    Ok(Plan { scratch: Vec::new(), launches })
}

/// Distances of two blocks, or of two rows of w, in elements.
struct Strides {
    x: i64,
    y: i64,
    coef: i64,
    residual: i64,
    weight: i64,
}

struct Sizes {
    all_rows: i64,
    rows: i32,
    channels: i32,
    groups: i32,
}

impl Sizes {
    /// Blocks of the second axis, each of which owns so many rows at a time.
    fn row_blocks(&self, rows: u64) -> u32 {
        self.all_rows.unsigned_abs().div_ceil(rows).min(GRID_LIMIT) as u32
    }
}

fn entry(stem: &str, dtype: DType, in_pieces: bool) -> String {
    format!("{stem}_{}{}", dtype.name(), if in_pieces { "" } else { "_single" })
}

fn project(dtype: DType, in_pieces: bool, sizes: &Sizes, strides: &Strides) -> Launch {
    let outputs = sizes.groups * (SIDES * TAPS) as i32;
    Launch {
        module: MODULE,
        entry: entry("draft_conv_project", dtype, in_pieces).into(),
        grid: [outputs.unsigned_abs() / OUTPUTS, sizes.row_blocks(ROWS), 1],
        block: [THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("x"),
            Argument::Tensor("w"),
            Argument::Tensor("coef"),
            Argument::I64(strides.x),
            Argument::I64(strides.weight),
            Argument::I64(strides.coef),
            Argument::I64(sizes.all_rows),
            Argument::I32(sizes.rows),
            Argument::I32(sizes.channels),
            Argument::I32(outputs),
        ],
    }
}

fn convolve(
    dtype: DType,
    in_pieces: bool,
    sizes: &Sizes,
    strides: &Strides,
    finishes: bool,
    adds: bool,
) -> Launch {
    let of_thread = if in_pieces { PIECE as u32 } else { 1 };
    Launch {
        module: MODULE,
        entry: entry("draft_conv", dtype, in_pieces).into(),
        grid: [sizes.channels.unsigned_abs().div_ceil(THREADS * of_thread), sizes.row_blocks(1), 1],
        block: [THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("x"),
            Argument::Tensor("base"),
            Argument::Tensor("coef"),
            if adds { Argument::Tensor("residual") } else { Argument::Null },
            Argument::Tensor("y"),
            Argument::I64(strides.x),
            Argument::I64(strides.coef),
            Argument::I64(strides.residual),
            Argument::I64(strides.y),
            Argument::I64(sizes.all_rows),
            Argument::I32(sizes.rows),
            Argument::I32(sizes.channels),
            Argument::I32(sizes.channels / sizes.groups),
            Argument::I32(finishes.into()),
        ],
    }
}

/// Whether every block, and so every row, begins where a piece may be loaded in one access.
fn is_aligned(tensor: &TensorArg) -> bool {
    tensor.aligned("", PIECE * tensor.dtype.size_bytes()).is_ok()
}

fn signed(name: &str, value: u64) -> Result<i64, Rejection> {
    i64::try_from(value).map_err(|_| {
        Rejection::new(ErrorKind::Shape, name, format!("extent {value} exceeds 2^63 - 1"))
    })
}
