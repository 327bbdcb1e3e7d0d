//! Log decays of key channels from the forget gate: see `cuda/linear_attention/kda_gate.cu`. One launch.

use super::gated_delta::{IO, aligned_stride, count, dense, one_of};
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const MODULE: &str = "kda_gate";
const THREADS: u32 = 256;
/// Channels of a thread; a head has whole pieces of them.
const PIECE: u64 = 4;
const ALIGN_BYTES: u64 = 16;
/// Limit of the grid's second axis.
const GRID_LIMIT: u32 = 65_535;

/// Checks f `[rows, H, D]` (f32, f16 or bf16), g `[rows, H, D]` f32, dt_bias `[H, D]` and a_log `[H]` f32,
/// D a multiple of four, the option `gate_law` and with `lb_sigmoid` the scalar `lower_bound`, and plans
/// one launch; none without elements.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let law = if one_of(call, "gate_law", ["softplus", "lb_sigmoid"])? {
        "lb_sigmoid"
    } else {
        "softplus"
    };
    let f = call.tensor("f")?.dtype_in("f", &IO)?;
    let [rows, heads, dim] = f.axes("f")?;
    let typed = |name: &str| call.tensor(name)?.dtype_in(name, &[DType::F32]);
    let (g, dt_bias, a_log) = (typed("g")?, typed("dt_bias")?, typed("a_log")?);
    g.shape_is("g", &[rows, heads, dim])?;
    dt_bias.shape_is("dt_bias", &[heads, dim])?;
    a_log.shape_is("a_log", &[heads])?;
    if !dim.is_multiple_of(PIECE) {
        let detail = format!("has {dim} channels a head; must be a multiple of {PIECE}");
        return Err(Rejection::new(ErrorKind::Shape, "f", detail));
    }
    let columns = u64::try_from(u128::from(heads) * u128::from(dim)).unwrap_or(u64::MAX);
    count("f", "channels", columns.saturating_add(PIECE * u64::from(THREADS)))?;
    let (f_stride, g_stride) = (aligned_stride("f", f)?, aligned_stride("g", g)?);
    if dt_bias.row_stride("dt_bias")? != dim && heads > 1 {
        return Err(Rejection::new(ErrorKind::Shape, "dt_bias", "must be contiguous"));
    }
    dt_bias.aligned("dt_bias", ALIGN_BYTES)?;
    dense("a_log", a_log)?;
    let lower_bound = call.f32("lower_bound")?;
    call.no_alias(&["g"])?;
    let rows = count("f", "rows", rows)?;
    if rows == 0 || columns == 0 {
        return Ok(Plan::default());
    }
    let launch = Launch {
        module: MODULE,
        entry: format!("{MODULE}_{law}_{}", f.dtype.name()).into(),
        // Blocks of the second axis take further rows in turn.
        grid: [
            (columns / PIECE).div_ceil(u64::from(THREADS)) as u32,
            rows.unsigned_abs().min(GRID_LIMIT),
            1,
        ],
        block: [THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("f"),
            Argument::Tensor("dt_bias"),
            Argument::Tensor("a_log"),
            Argument::Tensor("g"),
            Argument::I64(f_stride),
            Argument::I64(g_stride),
            Argument::I32(rows),
            // Counted above: the channels of all heads fit.
            Argument::I32(heads as i32),
            Argument::I32(dim as i32),
            Argument::F32(lower_bound),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}
