//! A speculative round whose state is written once, for the rows that were accepted: see
//! `cuda/linear_attention/gdn_write_on_accept.cu`. A round is a verify, which writes the engaged word of
//! every sequence, and its fold; `clear` is for a round that `gdn_verify` runs. A block owns a tile of 32
//! value channels of one head of one sequence, or of many sequences all tiles of a verify's head.

use super::gated_delta::{
    GateForm, GatedDelta, MANY_SEQUENCES, TILE_VALUES, aligned_stride, count, dense, head_dim,
    one_of, round_threads, row_offsets, stride, whole_groups,
};
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const MODULE: &str = "gdn_write_on_accept";
/// Storage types of the state.
const STATES: [DType; 2] = [DType::F32, DType::F16];
/// Of `clear`, a sequence each.
const CLEAR_THREADS: u32 = 128;
const FOLD_THREADS: u32 = 64;
/// Limit of the grid's second and third axis.
const GRID_LIMIT: u32 = 65_535;

/// Checks, by the option `phase`:
///
/// * `verify`: what `gdn_verify` takes but snap, with s read alone; stash_alpha `[rows, Hv]`, stash_delta
///   `[rows, Hv, Dv]` and stash_key `[rows, Hk, Dk]`, all f32, and engaged `[N]` i32, which are written;
/// * `fold`: cu_seqlens, slot_of, s, snap `[rows, Hv, Dv, Dk]` of its type, the stash, engaged_of and
///   accepted_of `[N]` i32;
/// * `round`: both, without snap and engaged_of;
/// * `clear`: slot_of and engaged;
///
/// and plans its launches; none without sequences.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let launches = match call.word("phase")? {
        "verify" => verify(call)?,
        "fold" => fold(call, "engaged_of")?,
        "round" => [verify(call)?, fold(call, "engaged")?].concat(),
        "clear" => vec![clear(call)?],
        other => {
            let detail = format!("is `{other}`; must be `verify`, `fold`, `round` or `clear`");
            return Err(Rejection::new(ErrorKind::Shape, "phase", detail));
        }
    };
    let has_work = launches.iter().all(|launch| launch.grid.iter().all(|extent| *extent > 0));
    Ok(Plan { scratch: Vec::new(), launches: if has_work { launches } else { Vec::new() } })
}

fn clear(call: &Call) -> Result<Launch, Rejection> {
    let slot_of = call.tensor("slot_of")?.dtype_in("slot_of", &[DType::I64])?;
    let [sequences] = slot_of.axes("slot_of")?;
    dense("slot_of", slot_of)?;
    let sequences = count("slot_of", "sequences", sequences)?;
    words(call, "engaged", sequences)?;
    call.no_alias(&["engaged"])?;
    Ok(Launch {
        module: MODULE,
        entry: "gdn_write_on_accept_clear".into(),
        grid: [sequences.unsigned_abs().div_ceil(CLEAR_THREADS), 1, 1],
        block: [CLEAR_THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![Argument::Tensor("engaged"), Argument::I32(sequences)],
    })
}

fn verify(call: &Call) -> Result<Vec<Launch>, Rejection> {
    let checked = GatedDelta::check(call, &STATES, &[GateForm::Log, GateForm::Alpha])?;
    count("q", "rows", checked.rows)?;
    let cu_is_i64 = row_offsets(call, checked.sequences)?;
    let stash = Stash::check(call)?;
    let [rows, key_heads, key_dim] = call.tensor("q")?.axes("q")?;
    let [_, value_heads, value_dim] = call.tensor("v")?.axes("v")?;
    call.tensor("stash_key")?.shape_is("stash_key", &[rows, key_heads, key_dim])?;
    call.tensor("stash_delta")?.shape_is("stash_delta", &[rows, value_heads, value_dim])?;
    grid_fits(checked.value_heads)?;
    words(call, "engaged", checked.sequences)?;
    call.no_alias(&["o", "stash_alpha", "stash_delta", "stash_key", "engaged"])?;
    let entry = format!(
        "gdn_write_on_accept_verify_{}_{}_k{}",
        checked.io.name(),
        checked.state.name(),
        checked.key_dim
    );
    let many = checked.sequences.unsigned_abs() >= MANY_SEQUENCES;
    let tiles = if many { checked.value_dim.unsigned_abs() / TILE_VALUES } else { 1 };
    let [all_tiles, heads, sequences] =
        grid(checked.value_dim, checked.value_heads, checked.sequences);
    let launch = Launch {
        module: MODULE,
        entry: entry.into(),
        grid: [all_tiles / tiles, heads, sequences],
        block: [tiles * round_threads(checked.state), 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("q"),
            Argument::Tensor("k"),
            Argument::Tensor("v"),
            Argument::Tensor(checked.decay),
            Argument::Tensor("beta"),
            Argument::Tensor("s"),
            Argument::Tensor("cu_seqlens"),
            Argument::Tensor("slot_of"),
            Argument::Tensor("o"),
            Argument::Tensor("stash_alpha"),
            Argument::Tensor("stash_delta"),
            Argument::Tensor("stash_key"),
            Argument::Tensor("engaged"),
            Argument::I64(checked.q_stride),
            Argument::I64(checked.k_stride),
            Argument::I64(checked.v_stride),
            Argument::I64(checked.g_stride),
            Argument::I64(checked.beta_stride),
            Argument::I64(checked.s_stride),
            Argument::I64(checked.o_stride),
            Argument::I64(stash.alpha_stride),
            Argument::I64(stash.delta_stride),
            Argument::I64(stash.key_stride),
            Argument::I32(cu_is_i64.into()),
            Argument::I32(checked.sequences),
            Argument::I32(checked.key_heads),
            Argument::I32(checked.value_heads),
            Argument::I32(checked.value_dim),
            checked.head_map(),
            Argument::I32((checked.decay == "alpha").into()),
            Argument::F32(checked.scale),
        ],
    };
    Ok(vec![launch])
}

fn fold(call: &Call, engaged: &'static str) -> Result<Vec<Launch>, Rejection> {
    let stash = Stash::check(call)?;
    let s = call.tensor("s")?.dtype_in("s", &STATES)?;
    let [slots, ..] = s.axes::<4>("s")?;
    let [_, value_heads, value_dim] = call.tensor("stash_delta")?.axes("stash_delta")?;
    let [_, key_heads, key_dim] = call.tensor("stash_key")?.axes("stash_key")?;
    head_dim("stash_key", key_dim)?;
    head_dim("stash_delta", value_dim)?;
    whole_groups(key_heads, value_heads)
        .map_err(|refusal| Rejection::new(refusal.kind, "stash_delta", refusal.detail))?;
    s.shape_is("s", &[slots, value_heads, value_dim, key_dim])?;
    let slot_of = call.tensor("slot_of")?.dtype_in("slot_of", &[DType::I64])?;
    let [sequences] = slot_of.axes("slot_of")?;
    dense("slot_of", slot_of)?;
    let sequences = count("slot_of", "sequences", sequences)?;
    let cu_is_i64 = row_offsets(call, sequences)?;
    words(call, "accepted_of", sequences)?;
    words(call, engaged, sequences)?;
    let cyclic = one_of(call, "head_map", ["block", "cyclic"])?;
    // A round engages every sequence it runs, so it has no snapshots.
    let snap_stride = if engaged == "engaged_of" {
        let snap = call.tensor("snap")?.dtype_in("snap", &[s.dtype])?;
        snap.shape_is("snap", &[stash.rows, value_heads, value_dim, key_dim])?;
        Some(aligned_stride("snap", snap)?)
    } else {
        None
    };
    let s_stride = aligned_stride("s", s)?;
    let [key_heads, value_heads, value_dim] =
        [("stash_key", key_heads), ("stash_delta", value_heads), ("stash_delta", value_dim)]
            .map(|(name, extent)| count(name, "heads or channels", extent));
    let (key_heads, value_heads, value_dim) = (key_heads?, value_heads?, value_dim?);
    grid_fits(value_heads)?;
    call.no_alias(&["s", "stash_alpha", "stash_delta", "stash_key"])?;
    let launch = Launch {
        module: MODULE,
        entry: format!("gdn_write_on_accept_fold_{}_k{key_dim}", s.dtype.name()).into(),
        grid: grid(value_dim, value_heads, sequences),
        block: [FOLD_THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("s"),
            if snap_stride.is_some() { Argument::Tensor("snap") } else { Argument::Null },
            Argument::Tensor("cu_seqlens"),
            Argument::Tensor("slot_of"),
            Argument::Tensor("accepted_of"),
            Argument::Tensor(engaged),
            Argument::Tensor("stash_alpha"),
            Argument::Tensor("stash_delta"),
            Argument::Tensor("stash_key"),
            Argument::I64(s_stride),
            Argument::I64(snap_stride.unwrap_or(0)),
            Argument::I64(stash.alpha_stride),
            Argument::I64(stash.delta_stride),
            Argument::I64(stash.key_stride),
            Argument::I32(cu_is_i64.into()),
            Argument::I32(sequences),
            Argument::I32(key_heads),
            Argument::I32(value_heads),
            Argument::I32(value_dim),
            Argument::I32(cyclic.into()),
        ],
    };
    Ok(vec![launch])
}

/// The stash of a round, whose tensors agree in their rows and value heads.
struct Stash {
    rows: u64,
    alpha_stride: i64,
    delta_stride: i64,
    key_stride: i64,
}

impl Stash {
    fn check(call: &Call) -> Result<Stash, Rejection> {
        let typed = |name: &str| call.tensor(name)?.dtype_in(name, &[DType::F32]);
        let (alpha, delta, key) =
            (typed("stash_alpha")?, typed("stash_delta")?, typed("stash_key")?);
        let [rows, value_heads, _] = delta.axes("stash_delta")?;
        let [_, key_heads, key_dim] = key.axes("stash_key")?;
        alpha.shape_is("stash_alpha", &[rows, value_heads])?;
        key.shape_is("stash_key", &[rows, key_heads, key_dim])?;
        Ok(Stash {
            rows,
            alpha_stride: stride("stash_alpha", alpha)?,
            delta_stride: stride("stash_delta", delta)?,
            key_stride: aligned_stride("stash_key", key)?,
        })
    }
}

/// A dense vector of one i32 a sequence.
fn words(call: &Call, name: &str, sequences: i32) -> Result<(), Rejection> {
    let words = call.tensor(name)?.dtype_in(name, &[DType::I32])?;
    words.shape_is(name, &[u64::from(sequences.unsigned_abs())])?;
    dense(name, words)
}

fn grid_fits(value_heads: i32) -> Result<(), Rejection> {
    if value_heads.unsigned_abs() <= GRID_LIMIT {
        return Ok(());
    }
    let detail = format!("has {value_heads} heads; at most {GRID_LIMIT} fit one launch");
    Err(Rejection::new(ErrorKind::Shape, "stash_delta", detail))
}

/// Tiles of value channels, heads, and sequences, which blocks take in turn where there are too many.
fn grid(value_dim: i32, value_heads: i32, sequences: i32) -> [u32; 3] {
    [
        value_dim.unsigned_abs() / TILE_VALUES,
        value_heads.unsigned_abs(),
        sequences.unsigned_abs().min(GRID_LIMIT),
    ]
}
