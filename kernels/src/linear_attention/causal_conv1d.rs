//! Causal depthwise convolution: see `cuda/linear_attention/causal_conv1d.cu`.
//! One launch; a block owns 128 channels of a sequence, from its first row to its last.

use super::gated_delta::{IO, count, dense, one_of, row_offsets, stride};
use crate::call::{Call, Rejection};
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

/// Checks cu_seqlens `[N + 1]`, slot_of `[N]`, x, out `[rows, heads, D]` (f32, f16 or bf16), weight
/// `[heads, D, W]` of their type, state `[slots, heads, D, W - 1]` f32, the scalar `eps` and the options
///
/// * `bias`: `given` takes bias `[heads, D]` f32;
/// * `activation`: `none` or `silu`;
/// * `norm`: `l2` takes the scalar `normed_heads`: so many heads, the first, are normed, all where there
///   are fewer; `D` is then 32, 64 or 128;
/// * `live_state`: `advanced`, or `kept`: state is read alone;
/// * `snapshot`: `each` takes snap `[rows, heads, D, W - 1]` f32;
///
/// and plans one launch; none without sequences or channels.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let x = call.tensor("x")?.dtype_in("x", &IO)?;
    let typed = |name: &str, dtype: DType| call.tensor(name)?.dtype_in(name, &[dtype]);
    let (out, weight) = (typed("out", x.dtype)?, typed("weight", x.dtype)?);
    let (state, slot_of) = (typed("state", DType::F32)?, typed("slot_of", DType::I64)?);
    let has_bias = one_of(call, "bias", ["none", "given"])?;
    let applies_silu = one_of(call, "activation", ["none", "silu"])?;
    let norms = one_of(call, "norm", ["none", "l2"])?;
    let keeps = one_of(call, "live_state", ["advanced", "kept"])?;
    let snapshots = one_of(call, "snapshot", ["none", "each"])?;

    let [rows, heads, head_dim] = x.axes("x")?;
    let [_, _, width] = weight.axes("weight")?;
    let [slots, ..] = state.axes::<4>("state")?;
    let [sequences] = slot_of.axes("slot_of")?;
    if !WIDTHS.contains(&width) {
        let detail = format!("has {width} taps a channel; must be one of {WIDTHS:?}");
        return Err(Rejection::new(ErrorKind::Shape, "weight", detail));
    }
    out.shape_is("out", &[rows, heads, head_dim])?;
    weight.shape_is("weight", &[heads, head_dim, width])?;
    state.shape_is("state", &[slots, heads, head_dim, width - 1])?;
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
        stride("snap", snap.shape_is("snap", &[rows, heads, head_dim, width - 1])?)?
    } else {
        0
    };
    let (x_stride, out_stride) = (stride("x", x)?, stride("out", out)?);
    let state_stride = stride("state", state)?;
    call.no_alias(&["state", "out", "snap"])?;
    if sequences == 0 || channels == 0 {
        return Ok(Plan::default());
    }
    let launch = Launch {
        module: MODULE,
        entry: format!("causal_conv1d_{}_w{width}", x.dtype.name()).into(),
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
            Argument::I32(applies_silu.into()),
            Argument::I32(norm_channels),
            Argument::I32(if norms { head_dim as i32 } else { THREADS as i32 }),
            Argument::I32(keeps.into()),
            Argument::F32(call.f32("eps")?),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
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
