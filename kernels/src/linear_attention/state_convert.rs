//! State between f16 and f32, slot by slot: see `cuda/linear_attention/state_convert.cu`.
//! One launch, never in place; slots without gaps on either side are converted as one.

use super::gated_delta::{one_of, stride};
use crate::call::{Call, Rejection, TensorArg};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const MODULE: &str = "state_convert";
const THREADS: u64 = 256;
/// Elements a thread converts at a time where it can.
const PIECE: u64 = 8;
/// Alignment of a piece: of f32 it is two accesses.
const ACCESS_BYTES: u64 = 16;
/// Blocks along one slot of the largest launch: they take further pieces in turn.
const MOST_BLOCKS_A_SLOT: u64 = 1 << 16;
/// Limit of the grid's second axis; blocks take further slots in turn.
const GRID_LIMIT: u64 = 65_535;

/// Checks wide `[slots, n]` f32 and narrow `[slots, n]` f16 and the option `direction`, `narrow` or
/// `widen`, and plans one launch; none for no elements.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let wide = call.tensor("wide")?.dtype_in("wide", &[DType::F32])?;
    let narrow = call.tensor("narrow")?.dtype_in("narrow", &[DType::F16])?;
    let widens = one_of(call, "direction", ["narrow", "widen"])?;
    let [slots, count] = wide.axes("wide")?;
    narrow.shape_is("narrow", &[slots, count])?;
    let (wide_pitch, narrow_pitch) = (stride("wide", wide)?, stride("narrow", narrow)?);
    call.no_alias(&["wide", "narrow"])?;
    if slots == 0 || count == 0 {
        return Ok(Plan::default());
    }
    let has_no_gaps = |pitch: i64| pitch.unsigned_abs() == count;
    let (slots, count) = if has_no_gaps(wide_pitch) && has_no_gaps(narrow_pitch) {
        (1, slots.saturating_mul(count))
    } else {
        (slots, count)
    };
    let in_pieces = count.is_multiple_of(PIECE) && [wide, narrow].into_iter().all(is_aligned);
    let units = if in_pieces { count / PIECE } else { count };
    let single = if in_pieces { "" } else { "_single" };
    let (types, from, to) =
        if widens { ("f16_f32", "narrow", "wide") } else { ("f32_f16", "wide", "narrow") };
    let (from_pitch, to_pitch) =
        if widens { (narrow_pitch, wide_pitch) } else { (wide_pitch, narrow_pitch) };
    let launch = Launch {
        module: MODULE,
        entry: format!("state_convert_{types}{single}").into(),
        grid: [
            units.div_ceil(THREADS).min(MOST_BLOCKS_A_SLOT) as u32,
            slots.min(GRID_LIMIT) as u32,
            1,
        ],
        block: [THREADS as u32, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor(from),
            Argument::Tensor(to),
            Argument::I64(from_pitch),
            Argument::I64(to_pitch),
            Argument::I64(signed(from, slots)?),
            Argument::I64(signed(from, units)?),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}

/// Whether every slot begins where a piece may be loaded and stored in whole accesses.
fn is_aligned(tensor: &TensorArg) -> bool {
    tensor.aligned("", ACCESS_BYTES).is_ok()
}

fn signed(name: &str, value: u64) -> Result<i64, Rejection> {
    i64::try_from(value).map_err(|_| {
        Rejection::new(ErrorKind::Shape, name, format!("extent {value} exceeds 2^63 - 1"))
    })
}
