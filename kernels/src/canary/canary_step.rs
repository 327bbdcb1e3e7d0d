//! One row of a running sum with a carried state: see `cuda/canary/canary_step.cu`. The kernel is right:
//! what another is held against. The plan chooses among three entries, and can be told to forget one.

use super::Planted;
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

/// Columns loaded together, and the entry that does so; the first that the call allows is chosen.
const ENTRIES: [(u64, &str); 3] =
    [(4, "canary_step_f32_fours"), (2, "canary_step_f32_pairs"), (1, "canary_step_f32_single")];

/// Entries that are forgotten, by the columns they load together.
pub const PLANTED: &[Planted] = &[
    Planted { name: "fours_forgotten", plan: plan_without::<4> },
    Planted { name: "pairs_forgotten", plan: plan_without::<2> },
];

/// The right plan.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    plan_without::<0>(call)
}

fn plan_without<const FORGOTTEN: u64>(call: &Call) -> Result<Plan, Rejection> {
    let float = |name| call.tensor(name)?.dtype_in(name, &[DType::F32]);
    let (k, v, s, o) = (float("k")?, float("v")?, float("s")?, float("o")?);
    let places = call.tensor("where")?.dtype_in("where", &[DType::I64])?;
    let [sequences, key_heads, columns] = k.axes("k")?;
    let [_, value_heads, _] = v.axes("v")?;
    let [slots, ..] = s.axes::<3>("s")?;
    places.shape_is("where", &[sequences])?;
    v.shape_is("v", &[sequences, value_heads, columns])?;
    o.shape_is("o", &[sequences, value_heads, columns])?;
    s.shape_is("s", &[slots, value_heads, columns])?;
    if key_heads == 0 || value_heads % key_heads != 0 {
        let detail = format!("has {value_heads} heads; must be a multiple of the {key_heads} of k");
        return Err(Rejection::new(ErrorKind::Shape, "v", detail));
    }
    let v_row = v.row_stride("v")?;
    for (name, tensor) in [("where", places), ("k", k), ("s", s), ("o", o)] {
        let dense = tensor.shape[1..].iter().product::<u64>();
        if tensor.row_stride(name)? != dense && tensor.shape[0] > 1 {
            return Err(Rejection::new(ErrorKind::Shape, name, "must be contiguous"));
        }
    }
    call.no_alias(&["s", "o"])?;
    let small = |name: &str, size: u64| {
        i32::try_from(size).map_err(|_| {
            Rejection::new(ErrorKind::Shape, name, format!("extent {size} exceeds 2^31 - 1"))
        })
    };
    let blocks = small("where", sequences.saturating_mul(value_heads))?;
    if blocks == 0 {
        return Ok(Plan::default());
    }
    let tensors = [k, v, s, o];
    let fits = |together: u64| {
        let bytes = together * DType::F32.size_bytes();
        columns.is_multiple_of(together) && tensors.iter().all(|t| t.aligned("", bytes).is_ok())
    };
    let (_, entry) = ENTRIES
        .into_iter()
        .find(|(together, _)| *together != FORGOTTEN && fits(*together))
        .ok_or_else(|| Rejection::new(ErrorKind::Align, "v", "does not begin on an element"))?;
    let launch = Launch {
        module: "canary_step",
        entry: entry.into(),
        grid: [blocks.unsigned_abs(), 1, 1],
        block: [32, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("where"),
            Argument::Tensor("k"),
            Argument::Tensor("v"),
            Argument::Tensor("s"),
            Argument::Tensor("o"),
            Argument::I64(v_row as i64),
            Argument::I32(small("k", key_heads)?),
            Argument::I32(small("v", value_heads)?),
            Argument::I32(small("k", columns)?),
            Argument::F32(call.f32("scale")?),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}
