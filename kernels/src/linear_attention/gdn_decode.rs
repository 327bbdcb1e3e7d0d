//! Gated delta rule, one token a sequence: see `cuda/linear_attention/gdn_decode.cu`.
//! One launch; a block owns 32 value channels of one head.

use super::gated_delta::GatedDelta;
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan};
use contracts::format::ErrorKind;

const THREADS: u32 = 128;
/// Limit of the grid's second and third axis.
const GRID_LIMIT: u32 = 65_535;

/// Checks q, k `[N, Hk, Dk]`, v, o `[N, Hv, Dv]`, g, beta `[N, Hv]`, s `[slots, Hv, Dv, Dk]`,
/// slot_of `[N]`, the scalar `scale` and the option `head_map`, and plans one launch, or none for an
/// empty batch.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let checked = GatedDelta::check(call)?;
    if checked.rows != u64::from(checked.sequences.unsigned_abs()) {
        let detail = format!("names {} sequences; q has {} rows", checked.sequences, checked.rows);
        return Err(Rejection::new(ErrorKind::Shape, "slot_of", detail));
    }
    let heads = checked.value_heads.unsigned_abs();
    if heads > GRID_LIMIT {
        let detail = format!("has {heads} heads; at most {GRID_LIMIT} fit one launch");
        return Err(Rejection::new(ErrorKind::Shape, "v", detail));
    }
    if checked.sequences == 0 {
        return Ok(Plan::default());
    }
    let launch = Launch {
        module: "gdn_decode",
        entry: checked.entry("gdn_decode").into(),
        // Blocks of the third axis take further sequences in turn.
        grid: [checked.value_tiles(), heads, checked.sequences.unsigned_abs().min(GRID_LIMIT)],
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
            Argument::F32(checked.scale),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}
