//! Gated delta rule over whole sequences in chunks of 64 rows: see `cuda/linear_attention/gdn_chunk.cu`.
//! Three launches over shared scratch. The host knows a bound of the number of chunks, not the number;
//! surplus blocks leave at once.

use super::gated_delta::{GatedDelta, count, dense, one_of};
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan, Scratch};
use contracts::dtype::DType;

const MODULE: &str = "gdn_chunk";
/// Rows of a chunk.
const CHUNK_ROWS: u64 = 64;
const WU_THREADS: u32 = 256;
const DELTA_THREADS: u32 = 128;
const OUTPUT_THREADS: u32 = 256;

/// Scratch by index of the plan.
const G_SUM: usize = 0;
const U: usize = 1;
const W: usize = 2;
const S_CHUNK: usize = 3;
const DELTA: usize = 4;

/// Checks cu_seqlens `[N + 1]`, slot_of `[N]`, q, k `[rows, Hk, Dk]`, v, o `[rows, Hv, Dv]`, g, beta
/// `[rows, Hv]`, s `[slots, Hv, Dv, Dk]`, the scalar `scale` and the options `head_map` and
/// `initial_state`, and plans three launches; none without sequences.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let checked = GatedDelta::check(call)?;
    let initial_zero = one_of(call, "initial_state", ["slot", "zero"])?;
    let cu_seqlens =
        call.tensor("cu_seqlens")?.dtype_in("cu_seqlens", &[DType::I32, DType::I64])?;
    cu_seqlens.shape_is("cu_seqlens", &[u64::from(checked.sequences.unsigned_abs()) + 1])?;
    dense("cu_seqlens", cu_seqlens)?;
    if checked.sequences == 0 {
        return Ok(Plan::default());
    }

    let sequences = u64::from(checked.sequences.unsigned_abs());
    let heads = u64::from(checked.value_heads.unsigned_abs());
    let (key_dim, value_dim) =
        (u64::from(checked.key_dim.unsigned_abs()), u64::from(checked.value_dim.unsigned_abs()));
    // Every sequence rounds up to whole chunks, so the rows make at most this many.
    let chunks = checked.rows / CHUNK_ROWS + sequences;
    let chunk_blocks = blocks(u128::from(chunks) * u128::from(heads))?;
    let state_blocks =
        blocks(u128::from(sequences) * u128::from(heads) * u128::from(checked.value_tiles()))?;
    let scratch = |name, shape: &[u64]| Scratch {
        name,
        dtype: DType::F32,
        shape: shape.to_vec(),
        zeroed: false,
    };
    let common = Common {
        checked: &checked,
        cu_is_i64: Argument::I32((cu_seqlens.dtype == DType::I64).into()),
        initial_zero: Argument::I32(initial_zero.into()),
    };
    Ok(Plan {
        scratch: vec![
            scratch("g_sum", &[checked.rows, heads, 2]),
            scratch("u", &[chunks, heads, CHUNK_ROWS, value_dim]),
            scratch("w", &[chunks, heads, CHUNK_ROWS, key_dim]),
            scratch("s_chunk", &[chunks, heads, value_dim, key_dim]),
            scratch("delta", &[chunks, heads, CHUNK_ROWS, value_dim]),
        ],
        launches: vec![
            common.recompute_wu(chunk_blocks),
            common.chunk_delta_h(state_blocks),
            common.chunk_fwd_o(chunk_blocks),
        ],
    })
}

fn blocks(wanted: u128) -> Result<u32, Rejection> {
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    count("q", "blocks of work", wanted).map(i32::unsigned_abs)
}

struct Common<'a> {
    checked: &'a GatedDelta,
    cu_is_i64: Argument,
    initial_zero: Argument,
}

impl Common<'_> {
    fn launch(&self, entry: String, grid: u32, threads: u32, arguments: Vec<Argument>) -> Launch {
        Launch {
            module: MODULE,
            entry: entry.into(),
            grid: [grid, 1, 1],
            block: [threads, 1, 1],
            dynamic_shared_bytes: 0,
            arguments,
        }
    }

    fn recompute_wu(&self, grid: u32) -> Launch {
        let checked = self.checked;
        let arguments = vec![
            Argument::Tensor("k"),
            Argument::Tensor("v"),
            Argument::Tensor("g"),
            Argument::Tensor("beta"),
            Argument::Tensor("cu_seqlens"),
            Argument::Tensor("slot_of"),
            Argument::Scratch(G_SUM),
            Argument::Scratch(U),
            Argument::Scratch(W),
            Argument::I64(checked.k_stride),
            Argument::I64(checked.v_stride),
            Argument::I64(checked.g_stride),
            Argument::I64(checked.beta_stride),
            Argument::I32(checked.sequences),
            Argument::I32(checked.key_heads),
            Argument::I32(checked.value_heads),
            Argument::I32(checked.key_dim),
            Argument::I32(checked.value_dim),
            self.cu_is_i64.clone(),
            checked.head_map(),
        ];
        self.launch(
            format!("gdn_chunk_recompute_wu_{}", checked.io.name()),
            grid,
            WU_THREADS,
            arguments,
        )
    }

    fn chunk_delta_h(&self, grid: u32) -> Launch {
        let checked = self.checked;
        let arguments = vec![
            Argument::Tensor("k"),
            Argument::Scratch(G_SUM),
            Argument::Scratch(U),
            Argument::Scratch(W),
            Argument::Tensor("cu_seqlens"),
            Argument::Tensor("slot_of"),
            Argument::Tensor("s"),
            Argument::Scratch(S_CHUNK),
            Argument::Scratch(DELTA),
            Argument::I64(checked.k_stride),
            Argument::I64(checked.s_stride),
            Argument::I32(checked.key_heads),
            Argument::I32(checked.value_heads),
            Argument::I32(checked.value_dim),
            self.cu_is_i64.clone(),
            checked.head_map(),
            self.initial_zero.clone(),
        ];
        self.launch(checked.entry("gdn_chunk_delta_h"), grid, DELTA_THREADS, arguments)
    }

    fn chunk_fwd_o(&self, grid: u32) -> Launch {
        let checked = self.checked;
        let arguments = vec![
            Argument::Tensor("q"),
            Argument::Tensor("k"),
            Argument::Scratch(G_SUM),
            Argument::Scratch(S_CHUNK),
            Argument::Scratch(DELTA),
            Argument::Tensor("cu_seqlens"),
            Argument::Tensor("slot_of"),
            Argument::Tensor("o"),
            Argument::I64(checked.q_stride),
            Argument::I64(checked.k_stride),
            Argument::I64(checked.o_stride),
            Argument::I32(checked.sequences),
            Argument::I32(checked.key_heads),
            Argument::I32(checked.value_heads),
            Argument::I32(checked.key_dim),
            Argument::I32(checked.value_dim),
            self.cu_is_i64.clone(),
            checked.head_map(),
            Argument::F32(checked.scale),
        ];
        self.launch(
            format!("gdn_chunk_fwd_o_{}", checked.io.name()),
            grid,
            OUTPUT_THREADS,
            arguments,
        )
    }
}
