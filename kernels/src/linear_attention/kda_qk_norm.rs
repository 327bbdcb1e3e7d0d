//! Unit length for the rows of q and k: see `cuda/linear_attention/kda_qk_norm.cu`. One launch.

use super::gated_delta::{IO, aligned_stride, head_dim, one_of};
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan};
use contracts::format::ErrorKind;

const MODULE: &str = "kda_qk_norm";
const THREADS: u32 = 256;
/// Channels of a lane.
const LANE_CHANNELS: u64 = 4;

/// Checks q, k `[rows, heads, D]` (f32, f16 or bf16; D 32, 64 or 128), the scalar `eps` and the option
/// `place`: `apart` takes q_out and k_out of the same shape and type, `in_place` writes q and k. No two of
/// them overlap. Plans one launch; none without rows or heads.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let outputs =
        if one_of(call, "place", ["apart", "in_place"])? { ["q", "k"] } else { ["q_out", "k_out"] };
    let q = call.tensor("q")?.dtype_in("q", &IO)?;
    let [rows, heads, dim] = q.axes("q")?;
    head_dim("q", dim)?;
    let mut strides = Vec::with_capacity(4);
    for name in ["q", "k"].into_iter().chain(outputs) {
        let tensor = call.tensor(name)?.dtype_in(name, &[q.dtype])?;
        tensor.shape_is(name, &[rows, heads, dim])?;
        strides.push(Argument::I64(aligned_stride(name, tensor)?));
    }
    let head_rows = u128::from(rows) * u128::from(heads);
    let count = i32::try_from(head_rows).map_err(|_| {
        let detail = format!("has {head_rows} rows of heads; at most 2^31 - 1 fit one launch");
        Rejection::new(ErrorKind::Shape, "q", detail)
    })?;
    let eps = call.f32("eps")?;
    call.no_alias(&["q", "k", "q_out", "k_out"])?;
    if count == 0 {
        return Ok(Plan::default());
    }
    let block_rows = u64::from(THREADS) / (dim / LANE_CHANNELS);
    let blocks = u64::from(count.unsigned_abs()).div_ceil(block_rows);
    let mut arguments: Vec<Argument> =
        ["q", "k"].into_iter().chain(outputs).map(Argument::Tensor).collect();
    arguments.extend(strides);
    // No more heads than rows of heads.
    arguments.extend([Argument::I32(count), Argument::I32(heads as i32), Argument::F32(eps)]);
    let launch = Launch {
        module: MODULE,
        entry: format!("{MODULE}_{}_d{dim}", q.dtype.name()).into(),
        grid: [blocks as u32, 2, 1],
        block: [THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments,
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}
