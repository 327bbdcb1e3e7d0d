//! Gated delta rule over whole sequences in chunks of C rows: see `cuda/linear_attention/gdn_chunk.cu`.
//! f32 is three launches in f32 arithmetic, f16 and bf16 two on tensor cores, of which the second has a
//! variant for Hopper alone (`gdn_chunk_hopper.cu`). The host knows a bound of the number of chunks, not
//! the number; surplus blocks leave at once.

use super::gated_delta::{GateForm, GatedDelta, TILE_VALUES, count, one_of, row_offsets};
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan, Scratch};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const MODULE: &str = "gdn_chunk";
const HOPPER_MODULE: &str = "gdn_chunk_hopper";
const WU_THREADS: u32 = 256;
const DELTA_THREADS: u32 = 128;
const OUTPUT_THREADS: u32 = 256;
const INTRA_THREADS: u32 = 128;
/// Value channels a block of `chunk_inter` owns at most, and those of one warp.
const INTER_VALUES: u32 = 64;
const WARP_VALUES: u32 = 16;
/// Threads of `chunk_inter` that bring tiles in.
const INTER_BRINGERS: u32 = 128;
/// What the Hopper variant of `chunk_inter` is compiled for.
const HOPPER_KEY_DIM: i32 = 128;
const HOPPER_THREADS: u32 = 384;

/// Scratch of the f32 class, by index of the plan.
mod exact {
    pub(super) const G_SUM: usize = 0;
    pub(super) const U: usize = 1;
    pub(super) const W: usize = 2;
    pub(super) const S_CHUNK: usize = 3;
    pub(super) const DELTA: usize = 4;
}

/// Scratch of the tensor-core class, by index of the plan.
mod tensor_core {
    pub(super) const DECAYS: usize = 0;
    pub(super) const T: usize = 1;
    pub(super) const P: usize = 2;
}

/// Checks cu_seqlens `[N + 1]`, slot_of `[N]`, q, k `[rows, Hk, Dk]`, v, o `[rows, Hv, Dv]`, g, beta
/// `[rows, Hv]`, s `[slots, Hv, Dv, Dk]`, the scalar `scale`, the options `head_map` and
/// `initial_state` and the variants `C` (64 or 32) and `arch` (hopper: bf16, Dk 128, Dv 64 or 128, on a
/// device of compute capability 9.0), and plans the launches; none without sequences.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let checked = GatedDelta::check(call, &[DType::F32], &[GateForm::Log])?;
    let initial_zero = one_of(call, "initial_state", ["slot", "zero"])?;
    let chunk_rows = if one_of(call, "C", ["64", "32"])? { 32 } else { 64 };
    let hopper = one_of(call, "arch", ["portable", "hopper"])?;
    if hopper {
        admit_hopper(&checked)?;
    }
    let cu_is_i64 = row_offsets(call, checked.sequences)?;
    if checked.sequences == 0 {
        return Ok(Plan::default());
    }

    let sequences = u64::from(checked.sequences.unsigned_abs());
    // Every sequence rounds up to whole chunks, so the rows make at most this many.
    let chunks = checked.rows / chunk_rows + sequences;
    let common = Common {
        checked: &checked,
        chunks,
        chunk_rows,
        hopper,
        cu_is_i64: Argument::I32(cu_is_i64.into()),
        initial_zero: Argument::I32(initial_zero.into()),
    };
    if checked.io == DType::F32 { common.exact() } else { common.tensor_core() }
}

/// The shapes and the type that the Hopper variant is compiled for.
fn admit_hopper(checked: &GatedDelta) -> Result<(), Rejection> {
    let refused = |kind, argument: &str, has: String| {
        Err(Rejection::new(kind, argument, format!("{has}; take the portable `arch` for it")))
    };
    if checked.io != DType::BF16 {
        let has = format!("is {}; the hopper `arch` takes bf16", checked.io);
        return refused(ErrorKind::Dtype, "q", has);
    }
    if checked.key_dim != HOPPER_KEY_DIM {
        let has = format!(
            "has {} channels a head; the hopper `arch` takes {HOPPER_KEY_DIM}",
            checked.key_dim
        );
        return refused(ErrorKind::Shape, "q", has);
    }
    if checked.value_dim.unsigned_abs() < INTER_VALUES {
        let has = format!(
            "has {} channels a head; the hopper `arch` takes {INTER_VALUES} or more",
            checked.value_dim
        );
        return refused(ErrorKind::Shape, "v", has);
    }
    Ok(())
}

fn blocks(wanted: u128) -> Result<u32, Rejection> {
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    count("q", "blocks of work", wanted).map(i32::unsigned_abs)
}

struct Common<'a> {
    checked: &'a GatedDelta,
    chunks: u64,
    chunk_rows: u64,
    hopper: bool,
    cu_is_i64: Argument,
    initial_zero: Argument,
}

impl Common<'_> {
    fn exact(&self) -> Result<Plan, Rejection> {
        let (chunks, rows) = (self.chunks, self.chunk_rows);
        let [heads, key_dim, value_dim] = self.sizes();
        let scratch = |name, shape: &[u64]| scratch(name, DType::F32, shape);
        let chunk_blocks = self.blocks(chunks, heads)?;
        let tiles = value_dim / u64::from(TILE_VALUES);
        Ok(Plan {
            scratch: vec![
                scratch("g_sum", &[self.checked.rows, heads, 2]),
                scratch("u", &[chunks, heads, rows, value_dim]),
                scratch("w", &[chunks, heads, rows, key_dim]),
                scratch("s_chunk", &[chunks, heads, value_dim, key_dim]),
                scratch("delta", &[chunks, heads, rows, value_dim]),
            ],
            launches: vec![
                self.recompute_wu(chunk_blocks),
                self.chunk_delta_h(self.state_blocks(tiles)?),
                self.chunk_fwd_o(chunk_blocks),
            ],
        })
    }

    fn tensor_core(&self) -> Result<Plan, Rejection> {
        let (chunks, rows, io) = (self.chunks, self.chunk_rows, self.checked.io);
        let [heads, _, value_dim] = self.sizes();
        let key_heads = u64::from(self.checked.key_heads.unsigned_abs());
        let values = value_dim.min(u64::from(INTER_VALUES));
        Ok(Plan {
            scratch: vec![
                scratch("decays", DType::F32, &[chunks, heads, rows, 2]),
                scratch("t", io, &[chunks, heads, rows, rows]),
                scratch("p", io, &[chunks, heads, rows, rows]),
            ],
            launches: vec![
                self.chunk_intra(self.blocks(chunks, key_heads)?),
                self.chunk_inter(self.state_blocks(value_dim / values)?, values),
            ],
        })
    }

    fn sizes(&self) -> [u64; 3] {
        let checked = self.checked;
        [checked.value_heads, checked.key_dim, checked.value_dim]
            .map(|count| u64::from(count.unsigned_abs()))
    }

    fn blocks(&self, first: u64, second: u64) -> Result<u32, Rejection> {
        blocks(u128::from(first) * u128::from(second))
    }

    fn state_blocks(&self, tiles: u64) -> Result<u32, Rejection> {
        let [heads, ..] = self.sizes();
        let sequences = u128::from(self.checked.sequences.unsigned_abs());
        blocks(sequences * u128::from(heads) * u128::from(tiles))
    }

    fn chunk_rows(&self) -> Argument {
        Argument::I32(if self.chunk_rows == 32 { 32 } else { 64 })
    }

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
            Argument::Scratch(exact::G_SUM),
            Argument::Scratch(exact::U),
            Argument::Scratch(exact::W),
            Argument::I64(checked.k_stride),
            Argument::I64(checked.v_stride),
            Argument::I64(checked.g_stride),
            Argument::I64(checked.beta_stride),
            self.chunk_rows(),
            Argument::I32(checked.sequences),
            Argument::I32(checked.key_heads),
            Argument::I32(checked.value_heads),
            Argument::I32(checked.key_dim),
            Argument::I32(checked.value_dim),
            self.cu_is_i64.clone(),
            checked.head_map(),
        ];
        self.launch("gdn_chunk_recompute_wu_f32".to_owned(), grid, WU_THREADS, arguments)
    }

    fn chunk_delta_h(&self, grid: u32) -> Launch {
        let checked = self.checked;
        let arguments = vec![
            Argument::Tensor("k"),
            Argument::Scratch(exact::G_SUM),
            Argument::Scratch(exact::U),
            Argument::Scratch(exact::W),
            Argument::Tensor("cu_seqlens"),
            Argument::Tensor("slot_of"),
            Argument::Tensor("s"),
            Argument::Scratch(exact::S_CHUNK),
            Argument::Scratch(exact::DELTA),
            Argument::I64(checked.k_stride),
            Argument::I64(checked.s_stride),
            self.chunk_rows(),
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
            Argument::Scratch(exact::G_SUM),
            Argument::Scratch(exact::S_CHUNK),
            Argument::Scratch(exact::DELTA),
            Argument::Tensor("cu_seqlens"),
            Argument::Tensor("slot_of"),
            Argument::Tensor("o"),
            Argument::I64(checked.q_stride),
            Argument::I64(checked.k_stride),
            Argument::I64(checked.o_stride),
            self.chunk_rows(),
            Argument::I32(checked.sequences),
            Argument::I32(checked.key_heads),
            Argument::I32(checked.value_heads),
            Argument::I32(checked.key_dim),
            Argument::I32(checked.value_dim),
            self.cu_is_i64.clone(),
            checked.head_map(),
            Argument::F32(checked.scale),
        ];
        self.launch("gdn_chunk_fwd_o_f32".to_owned(), grid, OUTPUT_THREADS, arguments)
    }
    fn chunk_intra(&self, grid: u32) -> Launch {
        let checked = self.checked;
        let arguments = vec![
            Argument::Tensor("q"),
            Argument::Tensor("k"),
            Argument::Tensor("g"),
            Argument::Tensor("beta"),
            Argument::Tensor("cu_seqlens"),
            Argument::Tensor("slot_of"),
            Argument::Scratch(tensor_core::DECAYS),
            Argument::Scratch(tensor_core::T),
            Argument::Scratch(tensor_core::P),
            Argument::I64(checked.q_stride),
            Argument::I64(checked.k_stride),
            Argument::I64(checked.g_stride),
            Argument::I64(checked.beta_stride),
            self.chunk_rows(),
            Argument::I32(checked.sequences),
            Argument::I32(checked.key_heads),
            Argument::I32(checked.value_heads),
            Argument::I32(checked.key_dim),
            self.cu_is_i64.clone(),
            checked.head_map(),
        ];
        let entry = format!("gdn_chunk_intra_{}", checked.io.name());
        self.launch(entry, grid, INTRA_THREADS, arguments)
    }

    /// A warp and a half for every 16 value channels of a block, and those that bring tiles in.
    fn chunk_inter(&self, grid: u32, values: u64) -> Launch {
        let checked = self.checked;
        let arguments = vec![
            Argument::Tensor("q"),
            Argument::Tensor("k"),
            Argument::Tensor("v"),
            Argument::Scratch(tensor_core::DECAYS),
            Argument::Scratch(tensor_core::T),
            Argument::Scratch(tensor_core::P),
            Argument::Tensor("cu_seqlens"),
            Argument::Tensor("slot_of"),
            Argument::Tensor("s"),
            Argument::Tensor("o"),
            Argument::I64(checked.q_stride),
            Argument::I64(checked.k_stride),
            Argument::I64(checked.v_stride),
            Argument::I64(checked.s_stride),
            Argument::I64(checked.o_stride),
            self.chunk_rows(),
            Argument::I32(checked.key_heads),
            Argument::I32(checked.value_heads),
            Argument::I32(checked.value_dim),
            self.cu_is_i64.clone(),
            checked.head_map(),
            self.initial_zero.clone(),
            Argument::F32(checked.scale),
        ];
        if self.hopper {
            let entry = checked.entry("gdn_chunk_inter_hopper");
            let launch = self.launch(entry, grid, HOPPER_THREADS, arguments);
            return Launch {
                module: HOPPER_MODULE,
                dynamic_shared_bytes: hopper_shared_bytes(),
                ..launch
            };
        }
        let threads = INTER_BRINGERS + 48 * (values as u32 / WARP_VALUES);
        let launch = self.launch(checked.entry("gdn_chunk_inter"), grid, threads, arguments);
        Launch {
            dynamic_shared_bytes: inter_shared_bytes(checked.key_dim.unsigned_abs()),
            ..launch
        }
    }
}

/// `InterTiles` of the source: for two chunks, 64 rows of k and q, of 64 value channels, two 64x64
/// squares, all of two bytes an element, and twice 64 pairs of f32; operands and scales of four warps.
fn inter_shared_bytes(key_dim: u32) -> u32 {
    let tiles = 64 * 2 * (2 * key_dim + INTER_VALUES + 2 * 64) + 2 * 64 * 8;
    let handed = 4 * 512 * (key_dim / 16 + 4 + 1);
    2 * (tiles + handed)
}

/// `HopperTiles` of the source: tiles of 8 KiB, four in each of three places for the state, three in
/// each of two for o and for what is handed over; 64 padded rows of o; decays of five places; 14 mbarriers.
fn hopper_shared_bytes() -> u32 {
    (3 * 4 + 2 * 3 + 2 * 3) * 8192 + 64 * 144 + 5 * 64 * 8 + 14 * 8
}

fn scratch(name: &'static str, dtype: DType, shape: &[u64]) -> Scratch {
    Scratch { name, dtype, shape: shape.to_vec(), zeroed: false }
}
