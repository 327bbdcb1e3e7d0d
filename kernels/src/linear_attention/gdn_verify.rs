//! Gated delta rule over the rows of a speculative round: see `cuda/linear_attention/gdn_verify.cu`.
//! One launch; a block owns 32 value channels of one head of one sequence, from its first row to its last.

use super::gated_delta::{
    GateForm, GatedDelta, MANY_SEQUENCES, TILE_VALUES, aligned_stride, count, one_of,
    round_threads, row_offsets,
};
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const MODULE: &str = "gdn_verify";
/// Storage types of the state.
const STATES: [DType; 2] = [DType::F32, DType::F16];
/// Limit of the grid's second and third axis.
const GRID_LIMIT: u32 = 65_535;

/// Checks cu_seqlens `[N + 1]`, slot_of `[N]`, q, k `[rows, Hk, Dk]`, v, o `[rows, Hv, Dv]`, g or alpha,
/// beta `[rows, Hv]`, s `[slots, Hv, Dv, Dk]` (f32 or f16), snap `[rows, Hv, Dv, Dk]` of its type, the
/// scalar `scale` and the options `gate_form`, `head_map` and `live_state` (`advanced`, or `kept`: s is
/// read alone), and plans one launch; none without sequences.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let checked = GatedDelta::check(call, &STATES, &[GateForm::Log, GateForm::Alpha])?;
    count("q", "rows", checked.rows)?;
    let keeps = one_of(call, "live_state", ["advanced", "kept"])?;
    let cu_is_i64 = row_offsets(call, checked.sequences)?;
    let snap = call.tensor("snap")?.dtype_in("snap", &[checked.state])?;
    let heads = checked.value_heads.unsigned_abs();
    let (key_dim, value_dim) = (checked.key_dim.unsigned_abs(), checked.value_dim.unsigned_abs());
    snap.shape_is("snap", &[checked.rows, heads.into(), value_dim.into(), key_dim.into()])?;
    let snap_stride = aligned_stride("snap", snap)?;
    if heads > GRID_LIMIT {
        let detail = format!("has {heads} heads; at most {GRID_LIMIT} fit one launch");
        return Err(Rejection::new(ErrorKind::Shape, "v", detail));
    }
    call.no_alias(&["s", "o", "snap"])?;
    let sequences = checked.sequences.unsigned_abs();
    if sequences == 0 {
        return Ok(Plan::default());
    }
    let io = checked.io.name();
    let launch = Launch {
        module: MODULE,
        entry: format!("gdn_verify_{io}_{}_k{key_dim}", checked.state.name()).into(),
        // Blocks of the last axis take further sequences in turn.
        grid: [value_dim / TILE_VALUES, heads, sequences.min(GRID_LIMIT)],
        block: [threads(checked.state, sequences), 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("q"),
            Argument::Tensor("k"),
            Argument::Tensor("v"),
            Argument::Tensor(checked.decay),
            Argument::Tensor("beta"),
            Argument::Tensor("s"),
            Argument::Tensor("snap"),
            Argument::Tensor("cu_seqlens"),
            Argument::Tensor("slot_of"),
            Argument::Tensor("o"),
            Argument::I64(checked.q_stride),
            Argument::I64(checked.k_stride),
            Argument::I64(checked.v_stride),
            Argument::I64(checked.g_stride),
            Argument::I64(checked.beta_stride),
            Argument::I64(checked.s_stride),
            Argument::I64(snap_stride),
            Argument::I64(checked.o_stride),
            Argument::I32(cu_is_i64.into()),
            Argument::I32(checked.sequences),
            Argument::I32(checked.key_heads),
            Argument::I32(checked.value_heads),
            Argument::I32(checked.value_dim),
            checked.head_map(),
            Argument::I32((checked.decay == "alpha").into()),
            Argument::I32(keeps.into()),
            Argument::F32(checked.scale),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}

/// Threads of a block. Many tiles of an f16 state have a warp each, which takes one half after the other.
fn threads(state: DType, sequences: u32) -> u32 {
    if sequences < MANY_SEQUENCES { round_threads(state) } else { 32 }
}
