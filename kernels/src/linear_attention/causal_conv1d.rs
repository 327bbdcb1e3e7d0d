//! Causal depthwise convolution: see `cuda/linear_attention/causal_conv1d.cu`.
//! One launch, and two ways to walk the rows that give the same bits: a block owns channels of a
//! sequence from its first row to its last, or of a tile of 32 rows.

use super::gated_delta::{IO, count, dense, one_of, only, row_offsets, stride};
use crate::call::{Call, Rejection, TensorArg};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const MODULE: &str = "causal_conv1d";
const THREADS: u32 = 128;
/// Widths the kernel is compiled for.
const WIDTHS: [u64; 3] = [2, 3, 4];
/// Channels of a head that is normed: a block's threads are whole heads.
const HEAD_DIMS: [u64; 3] = [32, 64, 128];
/// Limit of the grid's second axis.
const GRID_LIMIT: u32 = 65_535;
/// Rows of a tile.
const TILE_ROWS: u64 = 32;
/// Channels a thread of a tile owns: they are loaded and stored together.
const TILE_CHANNELS: u64 = 4;
/// Rows a sequence has on average where tiles begin to pay.
const MANY_ROWS: u64 = 16;

/// Checks cu_seqlens `[N + 1]`, slot_of `[N]`, x, out `[rows, heads, D]`, weight `[heads, D, W]` of x's
/// type, state `[slots, heads, D, kept]` f32 with kept W - 1 or W, the scalar `eps` and the options
///
/// * `silu_form`: `product`, acc·σ(acc);
/// * `bias`: `given` takes bias `[heads, D]` f32;
/// * `activation`: `none` or `silu`;
/// * `norm`: `l2` takes the scalar `normed_heads`: so many heads, the first, are normed, all where there
///   are fewer; `D` is then 32, 64 or 128;
/// * `live_state`: `advanced`, or `kept`: state is read alone;
/// * `snapshot`: `each` takes snap `[rows, heads, D, kept]` f32;
/// * `walk`: `rows`, `tiles`, or `chosen` by the number of rows. Where rows, weights and bias are not
///   whole pieces of four elements, aligned as such, it is rows;
///
/// and plans one launch; none without sequences or channels. x and out are each f32, f16 or bf16.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let x = call.tensor("x")?.dtype_in("x", &IO)?;
    let typed = |name: &str, dtype: DType| call.tensor(name)?.dtype_in(name, &[dtype]);
    let out = call.tensor("out")?.dtype_in("out", &IO)?;
    let weight = typed("weight", x.dtype)?;
    let (state, slot_of) = (typed("state", DType::F32)?, typed("slot_of", DType::I64)?);
    let has_bias = one_of(call, "bias", ["none", "given"])?;
    let applies_silu = one_of(call, "activation", ["none", "silu"])?;
    let norms = one_of(call, "norm", ["none", "l2"])?;
    let keeps = one_of(call, "live_state", ["advanced", "kept"])?;
    let snapshots = one_of(call, "snapshot", ["none", "each"])?;
    let walk = Walk::of(call)?;
    only(call, "silu_form", "product")?;

    let [rows, heads, head_dim] = x.axes("x")?;
    let [_, _, width] = weight.axes("weight")?;
    let [slots, _, _, kept] = state.axes("state")?;
    let [sequences] = slot_of.axes("slot_of")?;
    if !WIDTHS.contains(&width) {
        let detail = format!("has {width} taps a channel; must be one of {WIDTHS:?}");
        return Err(Rejection::new(ErrorKind::Shape, "weight", detail));
    }
    out.shape_is("out", &[rows, heads, head_dim])?;
    weight.shape_is("weight", &[heads, head_dim, width])?;
    if kept != width - 1 && kept != width {
        let detail = format!("holds {kept} inputs a channel; must be {} or {width}", width - 1);
        return Err(Rejection::new(ErrorKind::Shape, "state", detail));
    }
    state.shape_is("state", &[slots, heads, head_dim, kept])?;
    let sequences = count("slot_of", "sequences", sequences)?;
    let channels = count("x", "channels", heads.saturating_mul(head_dim))?;
    let norm_channels = if norms { normed_channels(call, heads, head_dim)? } else { 0 };
    let cu_is_i64 = row_offsets(call, sequences)?;
    dense("slot_of", slot_of)?;
    contiguous("weight", stride("weight", weight)?, head_dim * width, heads)?;
    if has_bias {
        let bias = typed("bias", DType::F32)?.shape_is("bias", &[heads, head_dim])?;
        contiguous("bias", stride("bias", bias)?, head_dim, heads)?;
    }
    let snap_stride = if snapshots {
        let snap = typed("snap", DType::F32)?;
        stride("snap", snap.shape_is("snap", &[rows, heads, head_dim, kept])?)?
    } else {
        0
    };
    let (x_stride, out_stride) = (stride("x", x)?, stride("out", out)?);
    let state_stride = stride("state", state)?;
    call.no_alias(&["state", "out", "snap"])?;
    if sequences == 0 || channels == 0 {
        return Ok(Plan::default());
    }
    let pieces = [Some(x), Some(weight), Some(out), call.optional_tensor("bias")];
    let in_pieces = pieces.into_iter().flatten().all(is_in_pieces)
        && channels.unsigned_abs().is_multiple_of(TILE_CHANNELS as u32);
    let by_tiles = in_pieces && walk.by_tiles(rows, sequences);
    let mut launch = Launch {
        module: MODULE,
        entry: entry(by_tiles, x.dtype, out.dtype, width).into(),
        // Blocks of the second axis take further sequences in turn.
        grid: [
            channels.unsigned_abs().div_ceil(THREADS),
            sequences.unsigned_abs().min(GRID_LIMIT),
            1,
        ],
        block: [THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("x"),
            Argument::Tensor("weight"),
            if has_bias { Argument::Tensor("bias") } else { Argument::Null },
            Argument::Tensor("state"),
            if snapshots { Argument::Tensor("snap") } else { Argument::Null },
            Argument::Tensor("cu_seqlens"),
            Argument::Tensor("slot_of"),
            Argument::Tensor("out"),
            Argument::I64(x_stride),
            Argument::I64(state_stride),
            Argument::I64(snap_stride),
            Argument::I64(out_stride),
            Argument::I32(cu_is_i64.into()),
            Argument::I32(sequences),
            Argument::I32(channels),
            Argument::I32(kept as i32),
            Argument::I32(applies_silu.into()),
            Argument::I32(norm_channels),
            Argument::I32(if norms { head_dim as i32 } else { THREADS as i32 }),
            Argument::I32(keeps.into()),
            Argument::F32(call.f32("eps")?),
        ],
    };
    if by_tiles {
        // Every sequence may end within a tile; a tile past the last has nothing to do.
        let tiles = rows.div_ceil(TILE_ROWS) + u64::from(sequences.unsigned_abs());
        let blocks = channels.unsigned_abs().div_ceil(THREADS * TILE_CHANNELS as u32);
        let grid = count("x", "tiles of rows and channels", tiles.saturating_mul(blocks.into()))?;
        launch.grid = [grid.unsigned_abs(), 1, 1];
        launch.arguments.push(Argument::I32(blocks as i32));
    }
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}

/// How the rows of a sequence are shared among blocks.
#[derive(Clone, Copy)]
enum Walk {
    Rows,
    Tiles,
    Chosen,
}

impl Walk {
    fn of(call: &Call) -> Result<Walk, Rejection> {
        match call.word("walk")? {
            "rows" => Ok(Walk::Rows),
            "tiles" => Ok(Walk::Tiles),
            "chosen" => Ok(Walk::Chosen),
            word => {
                let detail = format!("is `{word}`; must be `rows`, `tiles` or `chosen`");
                Err(Rejection::new(ErrorKind::Shape, "walk", detail))
            }
        }
    }

    fn by_tiles(self, rows: u64, sequences: i32) -> bool {
        match self {
            Walk::Rows => false,
            Walk::Tiles => true,
            Walk::Chosen => rows > MANY_ROWS * u64::from(sequences.unsigned_abs()),
        }
    }
}

fn entry(by_tiles: bool, x: DType, out: DType, width: u64) -> String {
    let walk = if by_tiles { "_tiles" } else { "" };
    format!("causal_conv1d{walk}_{}_{}_w{width}", x.name(), out.name())
}

/// Whether every row begins where four elements may be loaded together.
fn is_in_pieces(tensor: &TensorArg) -> bool {
    tensor.aligned("", TILE_CHANNELS * tensor.dtype.size_bytes()).is_ok()
}

/// Channels of the normed heads.
fn normed_channels(call: &Call, heads: u64, head_dim: u64) -> Result<i32, Rejection> {
    let normed = call.i32("normed_heads")?;
    let Ok(normed) = u64::try_from(normed) else {
        let detail = format!("is {normed}; must not be negative");
        return Err(Rejection::new(ErrorKind::Shape, "normed_heads", detail));
    };
    if !HEAD_DIMS.contains(&head_dim) {
        let detail = format!("has {head_dim} channels a head; a norm needs one of {HEAD_DIMS:?}");
        return Err(Rejection::new(ErrorKind::Shape, "x", detail));
    }
    count("x", "normed channels", normed.min(heads) * head_dim)
}

fn contiguous(name: &str, stride: i64, run: u64, rows: u64) -> Result<(), Rejection> {
    if rows < 2 || u64::try_from(stride) == Ok(run) {
        return Ok(());
    }
    Err(Rejection::new(ErrorKind::Shape, name, "must be contiguous"))
}
