//! The drafting model's grouped dynamic convolution: see `cuda/linear_attention/draft_conv.cu`.
//! Before a sublayer: the projection of coefficients where it is asked for, which leaves sums over parts of
//! the channels, then the convolution, which adds them. After it: the convolution alone. How the channels
//! are parted tells nothing of the rows, so a block's bits are its own.

use super::gated_delta::{IO, count, one_of, stride};
use crate::call::{Call, Rejection, TensorArg};
use crate::launch::{Argument, Launch, Plan, Scratch};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const MODULE: &str = "draft_conv";
const THREADS: u32 = 128;
const SIDES: u64 = 2;
const TAPS: u64 = 2;
/// Elements a thread loads and stores together where it can.
const PIECE: u64 = 4;
/// Limit of the grid's second axis; blocks take further rows in turn.
const GRID_LIMIT: u32 = 65_535;

/// Of the projection of f32: outputs and rows a block owns.
const F32_OUTPUTS: u32 = 4;
const F32_ROWS: u64 = 8;
/// Of the projection of 16-bit types: a block's threads and outputs, the channels of a part, and elements
/// that are loaded together.
const NARROW_THREADS: u32 = 512;
const NARROW_OUTPUTS: u32 = 64;
const NARROW_CHANNELS: u32 = 1024;
const NARROW_PIECE: u64 = 8;
/// A step of 32 rows with half a line more each, and its sums of eight slabs, four more than outputs each.
const NARROW_SHARED: u32 = 32 * (2 * NARROW_CHANNELS + 64) + 8 * 32 * 4 * (NARROW_OUTPUTS + 4);

/// Checks x and y `[blocks, rows, H]` (f32, f16 or bf16), base `[2, 2, H]` and coef
/// `[blocks, rows, 2, 2, G]` of their type, `H` a multiple of `G`, and the options
///
/// * `stage`: `prepare`, side 0; `finish`, side 1; or `project`, side 0 with coefficients from x, the
///   sublayer's input: takes w `[4 G, H]` and writes coef, both sides of it, before it is used;
/// * `residual`: `added` takes residual `[blocks, rows, H]`;
///
/// and plans one launch, or two with the sums of parts between them; none without rows or channels.
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
    if sizes.outputs().unsigned_abs() > GRID_LIMIT * NARROW_OUTPUTS {
        let most = GRID_LIMIT * NARROW_OUTPUTS;
        let detail =
            format!("has {} coefficients a row; at most {most} fit one launch", sizes.outputs());
        return Err(Rejection::new(ErrorKind::Shape, "coef", detail));
    }
    if sizes.all_rows == 0 || channels == 0 {
        return Ok(Plan::default());
    }
    let in_pieces = |piece: u64, tensors: &[Option<&TensorArg>]| {
        channels.is_multiple_of(piece)
            && tensors.iter().flatten().all(|tensor| is_aligned(tensor, piece))
    };
    let mut plan = Plan::default();
    if projects {
        let piece = if x.dtype == DType::F32 { PIECE } else { NARROW_PIECE };
        let launch = project(x.dtype, in_pieces(piece, &[Some(x), weight]), &sizes, &strides);
        plan.launches.push(launch);
        plan.scratch.push(Scratch {
            name: "parts",
            dtype: DType::F32,
            shape: vec![
                u64::from(sizes.parts(x.dtype)),
                sizes.all_rows.unsigned_abs(),
                SIDES * TAPS * groups,
            ],
            zeroed: false,
        });
    }
    let stage = Stage { parts: projects.then(|| sizes.parts(x.dtype)), finishes, adds };
    let pieces = in_pieces(PIECE, &[Some(x), Some(y), Some(base), residual]);
    plan.launches.push(convolve(x.dtype, pieces, &sizes, &strides, &stage));
    Ok(plan)
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
        self.all_rows.unsigned_abs().div_ceil(rows).min(GRID_LIMIT.into()) as u32
    }

    /// Coefficients of a row.
    fn outputs(&self) -> i32 {
        self.groups * (SIDES * TAPS) as i32
    }

    /// Parts of the channels over which the projection leaves a sum each.
    fn parts(&self, dtype: DType) -> u32 {
        match dtype {
            DType::F32 => 1,
            _ => self.channels.unsigned_abs().div_ceil(NARROW_CHANNELS),
        }
    }
}

/// What the convolution is asked for.
struct Stage {
    /// Parts of which coefficients are the sums, unless they are given.
    parts: Option<u32>,
    finishes: bool,
    adds: bool,
}

fn project(dtype: DType, in_pieces: bool, sizes: &Sizes, strides: &Strides) -> Launch {
    let outputs = sizes.outputs().unsigned_abs();
    let (by_element, threads, dynamic_shared_bytes, grid) = match dtype {
        DType::F32 => {
            ("_single", THREADS, 0, [outputs / F32_OUTPUTS, sizes.row_blocks(F32_ROWS), 1])
        }
        _ => {
            let grid = [sizes.parts(dtype), outputs.div_ceil(NARROW_OUTPUTS), 1];
            ("_elements", NARROW_THREADS, NARROW_SHARED, grid)
        }
    };
    let suffix = if in_pieces { "" } else { by_element };
    Launch {
        module: MODULE,
        entry: format!("draft_conv_project_{}{suffix}", dtype.name()).into(),
        grid,
        block: [threads, 1, 1],
        dynamic_shared_bytes,
        arguments: vec![
            Argument::Tensor("x"),
            Argument::Tensor("w"),
            Argument::Scratch(0),
            Argument::I64(strides.x),
            Argument::I64(strides.weight),
            Argument::I64(sizes.all_rows),
            Argument::I32(sizes.rows),
            Argument::I32(sizes.channels),
            Argument::I32(sizes.outputs()),
        ],
    }
}

fn convolve(
    dtype: DType,
    in_pieces: bool,
    sizes: &Sizes,
    strides: &Strides,
    stage: &Stage,
) -> Launch {
    let of_thread = if in_pieces { PIECE as u32 } else { 1 };
    let blocks = sizes.channels.unsigned_abs().div_ceil(THREADS * of_thread);
    // Further blocks store the coefficients.
    let storing = stage.parts.map_or(0, |_| sizes.outputs().unsigned_abs().div_ceil(THREADS));
    Launch {
        module: MODULE,
        entry: format!("draft_conv_{}{}", dtype.name(), if in_pieces { "" } else { "_single" })
            .into(),
        grid: [blocks + storing, sizes.row_blocks(1), 1],
        block: [THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("x"),
            Argument::Tensor("base"),
            Argument::Tensor("coef"),
            if stage.parts.is_some() { Argument::Scratch(0) } else { Argument::Null },
            if stage.adds { Argument::Tensor("residual") } else { Argument::Null },
            Argument::Tensor("y"),
            Argument::I64(strides.x),
            Argument::I64(strides.coef),
            Argument::I64(strides.residual),
            Argument::I64(strides.y),
            Argument::I64(sizes.all_rows),
            Argument::I32(sizes.rows),
            Argument::I32(sizes.channels),
            Argument::I32(sizes.channels / sizes.groups),
            Argument::I32(stage.finishes.into()),
            Argument::I32(stage.parts.unwrap_or(0) as i32),
        ],
    }
}

/// Whether every block, and so every row, begins where a piece may be loaded in one access.
fn is_aligned(tensor: &TensorArg, piece: u64) -> bool {
    tensor.aligned("", piece * tensor.dtype.size_bytes()).is_ok()
}

fn signed(name: &str, value: u64) -> Result<i64, Rejection> {
    i64::try_from(value).map_err(|_| {
        Rejection::new(ErrorKind::Shape, name, format!("extent {value} exceeds 2^63 - 1"))
    })
}
