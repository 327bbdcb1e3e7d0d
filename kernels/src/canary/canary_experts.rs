//! Gate times up of each expert, and the faults that show what layouts of scales hide: see
//! `cuda/canary/canary_experts.cu`. Without a fault both the plan and the kernel are right.

use super::Planted;
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::{ErrorKind, ScaleKind};

/// Rows of w that share a scale.
const BLOCK: u64 = 128;

/// Every fault.
pub const PLANTED: &[Planted] = &[
    Planted { name: "split_padded", plan: plan_with::<1> },
    Planted { name: "scale_pad", plan: plan_with::<2> },
];

/// The right kernel.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    plan_with::<0>(call)
}

fn plan_with<const FAULT: i32>(call: &Call) -> Result<Plan, Rejection> {
    let float = |name| call.tensor(name)?.dtype_in(name, &[DType::F32]);
    let (w, s, y) = (float("w")?, float("s")?, float("y")?);
    let [experts, inner] = y.axes("y")?;
    w.shape_is("w", &[experts, 2 * inner])?;
    let blocks = (2 * inner).div_ceil(BLOCK);
    if s.kind != Some(ScaleKind::Block128F32) {
        return Err(Rejection::new(ErrorKind::ScaleKind, "s", "must be one f32 for 128 rows"));
    }
    if s.shape != [experts, blocks] {
        let detail = format!("has shape {:?}; must be [{experts}, {blocks}]", s.shape);
        return Err(Rejection::new(ErrorKind::ScaleShape, "s", detail));
    }
    for (name, tensor) in [("w", w), ("y", y)] {
        if tensor.row_stride(name)? != tensor.shape[1] && experts > 1 {
            return Err(Rejection::new(ErrorKind::Shape, name, "must be contiguous"));
        }
    }
    let s_row = s.row_stride("s")?;
    call.no_alias(&["y"])?;
    let small = |name: &str, size: u64| {
        i32::try_from(size).map_err(|_| {
            Rejection::new(ErrorKind::Shape, name, format!("extent {size} exceeds 2^31 - 1"))
        })
    };
    let (grid, inner) = (small("y", experts)?, small("y", inner)?);
    if grid == 0 || inner == 0 {
        return Ok(Plan::default());
    }
    let launch = Launch {
        module: "canary_experts",
        entry: "canary_experts_f32".into(),
        grid: [grid.unsigned_abs(), 1, 1],
        block: [32, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("w"),
            Argument::Tensor("s"),
            Argument::Tensor("y"),
            Argument::I64(s_row as i64),
            Argument::I32(inner),
            Argument::I32(FAULT),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}
