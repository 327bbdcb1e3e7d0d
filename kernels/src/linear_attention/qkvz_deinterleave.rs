//! Rows of [q | k | v | z] by key head to rows of each: see `cuda/linear_attention/qkvz_deinterleave.cu`.
//! One launch, in the largest unit of 16, 4 or 2 bytes that everything is a multiple of.

use super::gated_delta::{IO, count, stride, whole_groups};
use crate::call::{Call, Rejection, TensorArg};
use crate::launch::{Argument, Launch, Plan};
use contracts::format::ErrorKind;

const THREADS: u32 = 256;
/// Limit of the grid's second axis; blocks take further rows in turn.
const GRID_LIMIT: u64 = 65_535;
/// Units the kernel is compiled for, in bytes.
const UNITS: [u64; 3] = [16, 4, 2];

/// Checks mixed `[rows, Hk, 2 Dk + 2 (Hv / Hk) Dv]` (f32, f16 or bf16), q, k `[rows, Hk, Dk]` and v, z
/// `[rows, Hv, Dv]` of its type, and plans one launch; none for no rows.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let mixed = call.tensor("mixed")?.dtype_in("mixed", &IO)?;
    let like_mixed = |name: &str| call.tensor(name)?.dtype_in(name, &[mixed.dtype]);
    let (q, k) = (like_mixed("q")?, like_mixed("k")?);
    let (v, z) = (like_mixed("v")?, like_mixed("z")?);
    let [rows, key_heads, key_dim] = q.axes("q")?;
    let [_, value_heads, value_dim] = v.axes("v")?;
    k.shape_is("k", &[rows, key_heads, key_dim])?;
    v.shape_is("v", &[rows, value_heads, value_dim])?;
    z.shape_is("z", &[rows, value_heads, value_dim])?;
    whole_groups(key_heads, value_heads)?;
    let values = (value_heads / key_heads).saturating_mul(value_dim);
    let of_head = key_dim.saturating_add(values).saturating_mul(2);
    mixed.shape_is("mixed", &[rows, key_heads, of_head])?;
    count("mixed", "channels", key_heads.saturating_mul(of_head))?;
    let tensors = [("mixed", mixed), ("q", q), ("k", k), ("v", v), ("z", z)];
    for (name, tensor) in tensors {
        stride(name, tensor)?;
    }
    call.no_alias(&["q", "k", "v", "z"])?;
    if rows == 0 || key_heads * of_head == 0 {
        return Ok(Plan::default());
    }
    let size = mixed.dtype.size_bytes();
    let divides = |unit: &u64| {
        let extents = [key_dim, values];
        extents.iter().all(|extent| (extent * size).is_multiple_of(*unit))
            && tensors.iter().all(|(name, tensor)| tensor.aligned(name, *unit).is_ok())
    };
    let Some(unit) = UNITS.into_iter().find(divides) else {
        return Err(Rejection::new(ErrorKind::Align, "mixed", "no unit divides its extents"));
    };
    let units = |elements: u64| elements * size / unit;
    let in_units = |name: &str, tensor: &TensorArg| -> Result<Argument, Rejection> {
        // A single row's stride is never used, and need not be whole units.
        Ok(Argument::I64(stride(name, tensor)? / (unit / size) as i64))
    };
    let mut arguments: Vec<Argument> =
        ["mixed", "q", "k", "v", "z"].into_iter().map(Argument::Tensor).collect();
    for (name, tensor) in tensors {
        arguments.push(in_units(name, tensor)?);
    }
    arguments.extend([
        Argument::I64(i64::from(count("mixed", "rows", rows)?)),
        Argument::I32(count("mixed", "key heads", key_heads)?),
        Argument::I32(count("q", "channels", units(key_dim))?),
        Argument::I32(count("v", "channels", units(values))?),
    ]);
    let columns = units(key_heads * of_head) as u32;
    let launch = Launch {
        module: "qkvz_deinterleave",
        entry: format!("qkvz_deinterleave_{unit}").into(),
        grid: [columns.div_ceil(THREADS), rows.min(GRID_LIMIT) as u32, 1],
        block: [THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments,
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}
