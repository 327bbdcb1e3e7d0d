//! Gated delta rule with a decay for each key channel over whole sequences, in chunks of 64 rows: see
//! `cuda/linear_attention/kda_chunk.cu`. Two launches. The host knows a bound of the number of chunks,
//! not the number; surplus blocks leave at once.

use super::gated_delta::{GatedDelta, TILE_VALUES, count, one_of, row_offsets};
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan, Scratch};
use contracts::dtype::DType;

const MODULE: &str = "kda_chunk";
const CHUNK_ROWS: u64 = 64;
const THREADS: u32 = 256;

/// Scratch, by index of the plan.
const U: usize = 0;
const W: usize = 1;
const P: usize = 2;
const QD: usize = 3;
const KD: usize = 4;
const DECAY: usize = 5;

/// Checks cu_seqlens `[N + 1]`, slot_of `[N]`, q, k `[rows, Hk, Dk]`, v, o `[rows, Hv, Dv]` (f32, f16 or
/// bf16), g `[rows, Hv, Dk]` and beta `[rows, Hv]` f32, s `[slots, Hv, Dv, Dk]` f32, the scalar
/// `q_output_scale` and the options `gate_law`, `head_map` and `initial_state`, and plans the launches;
/// none without sequences.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let (checked, least) = GatedDelta::check_key_decays(call)?;
    let initial_zero = one_of(call, "initial_state", ["slot", "zero"])?;
    let cu_is_i64 = row_offsets(call, checked.sequences)?;
    if checked.sequences == 0 {
        return Ok(Plan::default());
    }
    let [sequences, heads, key_dim, value_dim] =
        [checked.sequences, checked.value_heads, checked.key_dim, checked.value_dim]
            .map(|count| u64::from(count.unsigned_abs()));
    // Every sequence rounds up to whole chunks, so the rows make at most this many.
    let chunks = checked.rows / CHUNK_ROWS + sequences;
    let scratch = |name, shape: &[u64]| Scratch {
        name,
        dtype: DType::F32,
        shape: shape.to_vec(),
        zeroed: false,
    };
    let launch = |entry: String, blocks: u128, arguments: Vec<Argument>| {
        let blocks = u64::try_from(blocks).unwrap_or(u64::MAX);
        Ok(Launch {
            module: MODULE,
            entry: entry.into(),
            grid: [count("q", "blocks of work", blocks)?.unsigned_abs(), 1, 1],
            block: [THREADS, 1, 1],
            dynamic_shared_bytes: 0,
            arguments,
        })
    };
    let tiles = value_dim / u64::from(TILE_VALUES);
    let carried = u128::from(sequences) * u128::from(heads) * u128::from(tiles);
    let cu_is_i64 = Argument::I32(cu_is_i64.into());
    Ok(Plan {
        scratch: vec![
            scratch("u", &[chunks, heads, CHUNK_ROWS, value_dim]),
            scratch("w", &[chunks, heads, CHUNK_ROWS, key_dim]),
            scratch("p", &[chunks, heads, CHUNK_ROWS, CHUNK_ROWS]),
            scratch("qd", &[chunks, heads, CHUNK_ROWS, key_dim]),
            scratch("kd", &[chunks, heads, CHUNK_ROWS, key_dim]),
            scratch("decay", &[chunks, heads, key_dim]),
        ],
        launches: vec![
            launch(
                format!("kda_chunk_wy_{}", checked.io.name()),
                u128::from(chunks) * u128::from(heads),
                wy_arguments(&checked, least, cu_is_i64.clone()),
            )?,
            launch(
                checked.entry("kda_chunk_carry"),
                carried,
                carry_arguments(&checked, initial_zero, cu_is_i64),
            )?,
        ],
    })
}

fn wy_arguments(checked: &GatedDelta, least: f32, cu_is_i64: Argument) -> Vec<Argument> {
    vec![
        Argument::Tensor("q"),
        Argument::Tensor("k"),
        Argument::Tensor("v"),
        Argument::Tensor("g"),
        Argument::Tensor("beta"),
        Argument::Tensor("cu_seqlens"),
        Argument::Tensor("slot_of"),
        Argument::Scratch(U),
        Argument::Scratch(W),
        Argument::Scratch(P),
        Argument::Scratch(QD),
        Argument::Scratch(KD),
        Argument::Scratch(DECAY),
        Argument::I64(checked.q_stride),
        Argument::I64(checked.k_stride),
        Argument::I64(checked.v_stride),
        Argument::I64(checked.g_stride),
        Argument::I64(checked.beta_stride),
        Argument::I32(checked.sequences),
        Argument::I32(checked.key_heads),
        Argument::I32(checked.value_heads),
        Argument::I32(checked.key_dim),
        Argument::I32(checked.value_dim),
        cu_is_i64,
        checked.head_map(),
        Argument::F32(least),
    ]
}

fn carry_arguments(checked: &GatedDelta, initial_zero: bool, cu_is_i64: Argument) -> Vec<Argument> {
    vec![
        Argument::Scratch(U),
        Argument::Scratch(W),
        Argument::Scratch(P),
        Argument::Scratch(QD),
        Argument::Scratch(KD),
        Argument::Scratch(DECAY),
        Argument::Tensor("cu_seqlens"),
        Argument::Tensor("slot_of"),
        Argument::Tensor("s"),
        Argument::Tensor("o"),
        Argument::I64(checked.s_stride),
        Argument::I64(checked.o_stride),
        Argument::I32(checked.value_heads),
        Argument::I32(checked.value_dim),
        cu_is_i64,
        Argument::I32(initial_zero.into()),
        Argument::F32(checked.scale),
    ]
}
