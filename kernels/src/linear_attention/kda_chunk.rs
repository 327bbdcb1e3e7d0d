//! Gated delta rule with a decay for each key channel over whole sequences, in chunks of 64 rows: see
//! `cuda/linear_attention/kda_chunk.cu`. Two launches; f32 and f16 in f32 arithmetic, bf16 on tensor
//! cores. The host knows a bound of the number of chunks, not the number; surplus blocks leave at once.

use super::gated_delta::{GatedDelta, TILE_VALUES, count, one_of, row_offsets};
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan, Scratch};
use contracts::dtype::DType;

const MODULE: &str = "kda_chunk";
const CHUNK_ROWS: u64 = 64;
const THREADS: u32 = 256;
/// Of `chunk_intra`: a warp for every 16 rows.
const INTRA_THREADS: u32 = 128;
/// Value channels a block of `chunk_inter` owns at most, and its threads that bring tiles in.
const INTER_VALUES: u64 = 64;
const INTER_BRINGERS: u64 = 128;

/// Scratch, by index of the plan.
const UT: usize = 0;
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
    let cu_is_i64 = Argument::I32(row_offsets(call, checked.sequences)?.into());
    if checked.sequences == 0 {
        return Ok(Plan::default());
    }
    let sizes = Sizes::of(&checked);
    let narrow = checked.io == DType::BF16;
    let (form, threads, shared) = if narrow {
        ("intra", INTRA_THREADS, intra_shared_bytes(checked.key_dim.unsigned_abs()))
    } else {
        ("wy", THREADS, 0)
    };
    let first = Launch {
        module: MODULE,
        entry: format!("kda_chunk_{form}_{}", checked.io.name()).into(),
        grid: [blocks(sizes.chunks, sizes.heads)?, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared_bytes: shared,
        arguments: first_arguments(&checked, least, cu_is_i64.clone()),
    };
    let initial_zero = Argument::I32(initial_zero.into());
    let second = if narrow {
        sizes.inter(&checked, cu_is_i64, initial_zero)?
    } else {
        sizes.carry(&checked, cu_is_i64, initial_zero)?
    };
    Ok(Plan { scratch: sizes.scratch(checked.io), launches: vec![first, second] })
}

fn blocks(first: u64, second: u64) -> Result<u32, Rejection> {
    let wanted = u64::try_from(u128::from(first) * u128::from(second)).unwrap_or(u64::MAX);
    count("q", "blocks of work", wanted).map(i32::unsigned_abs)
}

struct Sizes {
    sequences: u64,
    /// Every sequence rounds up to whole chunks, so the rows make at most this many.
    chunks: u64,
    heads: u64,
    key_dim: u64,
    value_dim: u64,
}

impl Sizes {
    fn of(checked: &GatedDelta) -> Sizes {
        let [sequences, heads, key_dim, value_dim] =
            [checked.sequences, checked.value_heads, checked.key_dim, checked.value_dim]
                .map(|count| u64::from(count.unsigned_abs()));
        let chunks = checked.rows / CHUNK_ROWS + sequences;
        Sizes { sequences, chunks, heads, key_dim, value_dim }
    }

    fn scratch(&self, io: DType) -> Vec<Scratch> {
        let narrow = io == DType::BF16;
        let rows = |name, width| Scratch {
            name,
            dtype: if narrow { DType::BF16 } else { DType::F32 },
            shape: vec![self.chunks, self.heads, CHUNK_ROWS, width],
            zeroed: false,
        };
        let solved = if narrow { rows("t", CHUNK_ROWS) } else { rows("u", self.value_dim) };
        vec![
            solved,
            rows("w", self.key_dim),
            rows("p", CHUNK_ROWS),
            rows("qd", self.key_dim),
            rows("kd", self.key_dim),
            Scratch {
                name: "decay",
                dtype: DType::F32,
                shape: vec![self.chunks, self.heads, self.key_dim],
                zeroed: false,
            },
        ]
    }

    /// Blocks of one sequence, head and `values` value channels each.
    fn state_blocks(&self, values: u64) -> Result<u32, Rejection> {
        blocks(self.sequences.saturating_mul(self.heads), self.value_dim / values)
    }

    fn carry(
        &self,
        checked: &GatedDelta,
        cu_is_i64: Argument,
        initial_zero: Argument,
    ) -> Result<Launch, Rejection> {
        Ok(Launch {
            module: MODULE,
            entry: checked.entry("kda_chunk_carry").into(),
            grid: [self.state_blocks(TILE_VALUES.into())?, 1, 1],
            block: [THREADS, 1, 1],
            dynamic_shared_bytes: 0,
            arguments: vec![
                Argument::Scratch(UT),
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
                initial_zero,
                Argument::F32(checked.scale),
            ],
        })
    }

    /// A warp and a half for every 16 value channels of a block, and those that bring tiles in.
    fn inter(
        &self,
        checked: &GatedDelta,
        cu_is_i64: Argument,
        initial_zero: Argument,
    ) -> Result<Launch, Rejection> {
        let values = self.value_dim.min(INTER_VALUES);
        Ok(Launch {
            module: MODULE,
            entry: checked.entry("kda_chunk_inter").into(),
            grid: [self.state_blocks(values)?, 1, 1],
            block: [(INTER_BRINGERS + 3 * values) as u32, 1, 1],
            dynamic_shared_bytes: inter_shared_bytes(checked.key_dim.unsigned_abs()),
            arguments: vec![
                Argument::Tensor("v"),
                Argument::Scratch(W),
                Argument::Scratch(KD),
                Argument::Scratch(QD),
                Argument::Scratch(UT),
                Argument::Scratch(P),
                Argument::Scratch(DECAY),
                Argument::Tensor("cu_seqlens"),
                Argument::Tensor("slot_of"),
                Argument::Tensor("s"),
                Argument::Tensor("o"),
                Argument::I64(checked.v_stride),
                Argument::I64(checked.s_stride),
                Argument::I64(checked.o_stride),
                Argument::I32(checked.value_heads),
                Argument::I32(checked.value_dim),
                cu_is_i64,
                initial_zero,
                Argument::F32(checked.scale),
            ],
        })
    }
}

/// `KdaTiles` of the source: for two chunks, 64 rows of k, twice, and of q, of 64 value channels, two
/// 64x64 squares, all of two bytes an element, and 512 bytes of decays; operands of four warps.
fn inter_shared_bytes(key_dim: u32) -> u32 {
    let tiles = 64 * 2 * (3 * key_dim + 64 + 2 * 64) + 512;
    let handed = 4 * 512 * (key_dim / 16 + 4);
    2 * (tiles + handed)
}

/// Of the source: for three of a chunk's four blocks of 16 rows, q and k decayed from its start and k to
/// its end, in f32; in their place, later, a square in two parts and four triangles.
fn intra_shared_bytes(key_dim: u32) -> u32 {
    let decayed = 3 * 3 * 16 * key_dim * 4;
    let solved = 2 * 64 * 64 * 2 + 4 * 16 * 16 * 4;
    decayed.max(solved)
}

/// Of `chunk_wy`, and without what belongs to v, which it solves for, of `chunk_intra`.
fn first_arguments(checked: &GatedDelta, least: f32, cu_is_i64: Argument) -> Vec<Argument> {
    let solves = checked.io != DType::BF16;
    let of_v = |argument| solves.then_some(argument);
    [
        Some(Argument::Tensor("q")),
        Some(Argument::Tensor("k")),
        of_v(Argument::Tensor("v")),
        Some(Argument::Tensor("g")),
        Some(Argument::Tensor("beta")),
        Some(Argument::Tensor("cu_seqlens")),
        Some(Argument::Tensor("slot_of")),
        Some(Argument::Scratch(UT)),
        Some(Argument::Scratch(W)),
        Some(Argument::Scratch(P)),
        Some(Argument::Scratch(QD)),
        Some(Argument::Scratch(KD)),
        Some(Argument::Scratch(DECAY)),
        Some(Argument::I64(checked.q_stride)),
        Some(Argument::I64(checked.k_stride)),
        of_v(Argument::I64(checked.v_stride)),
        Some(Argument::I64(checked.g_stride)),
        Some(Argument::I64(checked.beta_stride)),
        Some(Argument::I32(checked.sequences)),
        Some(Argument::I32(checked.key_heads)),
        Some(Argument::I32(checked.value_heads)),
        Some(Argument::I32(checked.key_dim)),
        of_v(Argument::I32(checked.value_dim)),
        Some(cu_is_i64),
        Some(checked.head_map()),
        Some(Argument::F32(least)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
