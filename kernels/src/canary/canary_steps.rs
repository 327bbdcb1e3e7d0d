//! A running sum with a carried state, and the faults that show what each relation finds: see
//! `cuda/canary/canary_steps.cu`. Without a fault both the plan and the kernel are right.

use super::Planted;
use crate::call::{Call, Rejection};
use crate::launch::{Argument, Launch, Plan, Scratch};
use contracts::dtype::DType;
use contracts::format::ErrorKind;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Every fault, and every near-miss.
pub const PLANTED: &[Planted] = &[
    Planted { name: "batch_variant", plan: plan_with::<1> },
    Planted { name: "chunk_variant", plan: plan_with::<2> },
    Planted { name: "parity_of_row", plan: plan_with::<3> },
    Planted { name: "place_of_state", plan: plan_with::<4> },
    Planted { name: "heads_beyond_two", plan: plan_with::<5> },
    Planted { name: "pitch_of_rows", plan: plan_with::<6> },
    Planted { name: "above_two", plan: plan_with::<7> },
    Planted { name: "second_variant", plan: plan_with::<8> },
    Planted { name: "snapshot_apart", plan: plan_with::<9> },
    Planted { name: "order_of_blocks", plan: plan_with::<10> },
    Planted { name: "ticket_kept", plan: plan_with::<11> },
    Planted { name: "bound_kept", plan: plan_with::<12> },
    Planted { name: "exact_ignored", plan: plan_with::<13> },
    Planted { name: "nan_before", plan: plan_with::<14> },
    Planted { name: "plan_remembered", plan: remembered },
    Planted { name: "ticket_cleared", plan: plan_with::<100> },
    Planted { name: "bound_renewed", plan: plan_with::<101> },
    Planted { name: "other_rounding", plan: plan_with::<102> },
    Planted { name: "nan_of_chunk", plan: plan_with::<103> },
    Planted { name: "nan_in_second", plan: plan_with::<104> },
    Planted { name: "plan_remembered_whole", plan: remembered_whole },
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
    let long = |name| call.tensor(name)?.dtype_in(name, &[DType::I64]);
    let (k, v, s, o, snap) = (float("k")?, float("v")?, float("s")?, float("o")?, float("snap")?);
    let (cu, places, bound) = (long("cu")?, long("where")?, long("bound")?);
    let [rows, key_heads, columns] = k.axes("k")?;
    let [_, value_heads, _] = v.axes("v")?;
    let [slots, ..] = s.axes::<3>("s")?;
    let [sequences] = places.axes("where")?;
    v.shape_is("v", &[rows, value_heads, columns])?;
    o.shape_is("o", &[rows, value_heads, columns])?;
    s.shape_is("s", &[slots, value_heads, columns])?;
    snap.shape_is("snap", &[sequences, value_heads, columns])?;
    cu.shape_is("cu", &[sequences + 1])?;
    bound.shape_is("bound", &[1])?;
    if key_heads == 0 || value_heads % key_heads != 0 {
        let detail = format!("has {value_heads} heads; must be a multiple of the {key_heads} of k");
        return Err(Rejection::new(ErrorKind::Shape, "v", detail));
    }
    let mut pitches = [0; 3];
    for (pitch, (name, tensor)) in pitches.iter_mut().zip([("k", k), ("v", v), ("o", o)]) {
        *pitch = tensor.row_stride(name)? as i64;
    }
    for (name, tensor) in [("s", s), ("snap", snap)] {
        let dense = tensor.shape[1..].iter().product::<u64>();
        if tensor.row_stride(name)? != dense && tensor.shape[0] > 1 {
            return Err(Rejection::new(ErrorKind::Shape, name, "must be contiguous"));
        }
    }
    for (name, tensor) in [("cu", cu), ("where", places), ("bound", bound)] {
        if tensor.row_stride(name)? != 1 && tensor.count() > 1 {
            return Err(Rejection::new(ErrorKind::Shape, name, "must be contiguous"));
        }
    }
    call.no_alias(&["s", "o", "snap", "bound"])?;
    let small = |name: &str, size: u64| {
        i32::try_from(size).map_err(|_| {
            Rejection::new(ErrorKind::Shape, name, format!("extent {size} exceeds 2^31 - 1"))
        })
    };
    let blocks = small("where", sequences.saturating_mul(value_heads))?;
    if blocks == 0 {
        return Ok(Plan::default());
    }
    let chosen = |name, word| call.word(name).map(|chosen| i32::from(chosen == word));
    let variant = chosen("width", "four")?
        | chosen("pass", "second")? << 1
        | chosen("rounding", "exact")? << 2
        | chosen("width", "whole")? << 3;
    let tickets = Scratch { name: "tickets", dtype: DType::I32, shape: vec![1], zeroed: true };
    let launch = Launch {
        module: "canary_steps",
        entry: "canary_steps_f32".into(),
        grid: [blocks.unsigned_abs(), 1, 1],
        block: [32, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("cu"),
            Argument::Tensor("where"),
            Argument::Tensor("k"),
            Argument::Tensor("v"),
            Argument::Tensor("s"),
            Argument::Tensor("o"),
            Argument::Tensor("snap"),
            Argument::Tensor("bound"),
            Argument::Scratch(0),
            Argument::I64(pitches[0]),
            Argument::I64(pitches[1]),
            Argument::I64(pitches[2]),
            Argument::I32(small("where", sequences)?),
            Argument::I32(small("k", key_heads)?),
            Argument::I32(small("v", value_heads)?),
            Argument::I32(small("k", columns)?),
            Argument::F32(call.f32("scale")?),
            Argument::I32(variant),
            Argument::I32(FAULT),
        ],
    };
    Ok(Plan { scratch: vec![tickets], launches: vec![launch] })
}

/// Plans by what they were made for.
type Remembered = Mutex<BTreeMap<String, Plan>>;

/// A cache of plans whose key forgets the scalars: right until a call differs in nothing else.
fn remembered(call: &Call) -> Result<Plan, Rejection> {
    static PLANS: Remembered = Mutex::new(BTreeMap::new());
    from_cache(&PLANS, format!("{:?} {:?}", call.tensors, call.words), call)
}

/// The cache with all of the call in its key.
fn remembered_whole(call: &Call) -> Result<Plan, Rejection> {
    static PLANS: Remembered = Mutex::new(BTreeMap::new());
    from_cache(&PLANS, format!("{call:?}"), call)
}

fn from_cache(plans: &Remembered, key: String, call: &Call) -> Result<Plan, Rejection> {
    let planned = plan(call)?;
    let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(plans.entry(key).or_insert(planned).clone())
}
