//! Gated delta rule with a decay for each key channel, one token a sequence: see
//! `cuda/linear_attention/kda_decode.cu`. One launch; a block owns 32 value channels of one head.

use super::gated_delta::{GatedDelta, TILE_VALUES};
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan};
use contracts::format::ErrorKind;

const MODULE: &str = "kda_decode";
const THREADS: u32 = 128;
/// Limit of the grid's second and third axis.
const GRID_LIMIT: u32 = 65_535;

/// Checks q, k `[N, Hk, Dk]`, v, o `[N, Hv, Dv]` (f32, f16 or bf16), g `[N, Hv, Dk]` and beta `[N, Hv]`
/// f32, s `[slots, Hv, Dv, Dk]` f32, slot_of `[N]` i64, the scalar `q_output_scale` and the options
/// `gate_law` and `head_map`, and plans one launch; none for an empty batch.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let (checked, least) = GatedDelta::check_key_decays(call)?;
    if checked.rows != u64::from(checked.sequences.unsigned_abs()) {
        let detail = format!("has {} rows; must have {}", checked.rows, checked.sequences);
        return Err(Rejection::new(ErrorKind::Shape, "q", detail));
    }
    let heads = checked.value_heads.unsigned_abs();
    if heads > GRID_LIMIT {
        let detail = format!("has {heads} heads; at most {GRID_LIMIT} fit one launch");
        return Err(Rejection::new(ErrorKind::Shape, "v", detail));
    }
    let sequences = checked.sequences.unsigned_abs();
    if sequences == 0 {
        return Ok(Plan::default());
    }
    let launch = Launch {
        module: MODULE,
        entry: checked.entry(MODULE).into(),
        // Blocks of the last axis take further sequences in turn.
        grid: [checked.value_dim.unsigned_abs() / TILE_VALUES, heads, sequences.min(GRID_LIMIT)],
        block: [THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("q"),
            Argument::Tensor("k"),
            Argument::Tensor("v"),
            Argument::Tensor("g"),
            Argument::Tensor("beta"),
            Argument::Tensor("s"),
            Argument::Tensor("slot_of"),
            Argument::Tensor("o"),
            Argument::I64(checked.q_stride),
            Argument::I64(checked.k_stride),
            Argument::I64(checked.v_stride),
            Argument::I64(checked.g_stride),
            Argument::I64(checked.beta_stride),
            Argument::I64(checked.s_stride),
            Argument::I64(checked.o_stride),
            Argument::I32(checked.sequences),
            Argument::I32(checked.key_heads),
            Argument::I32(checked.value_heads),
            Argument::I32(checked.value_dim),
            checked.head_map(),
            Argument::F32(least),
            Argument::F32(checked.scale),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}
