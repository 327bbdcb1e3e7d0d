//! Refusals every contract promises without writing them: a foreign type, a shape that contradicts
//! the others, a stride shorter than a row, a misaligned base, another kind of scale, an overlap.

use super::edit::{Edit, reshape, tensor};
use contracts::AutoReject;
use contracts::case::Case;
use contracts::dtype::DType;
use contracts::expr::Expr;
use contracts::format::{Contract, DTypeRef, ErrorKind, LayoutKind, ScaleKind};
use kernels::call::{Call, TensorArg};

/// Kinds a scale may be mistaken for.
const KINDS: [ScaleKind; 4] = [
    ScaleKind::TensorBf16,
    ScaleKind::TensorF32Multiplier,
    ScaleKind::RowF32,
    ScaleKind::Block128F32,
];
/// Bases of allocations are multiples of this.
const BASE_BYTES: u64 = 256;

/// Edits a legal call of `base`; `None` where this case allows no such edit. `seed` picks among several.
pub(super) fn edit(
    contract: &Contract,
    base: &Case,
    mut call: Call,
    what: AutoReject,
    name: &str,
    seed: u64,
) -> Option<Edit> {
    let align = align_bytes(contract, &call, name)?;
    let (what, error) = match what {
        AutoReject::Dtype => {
            (foreign_dtype(contract, base, &mut call, name, seed)?, ErrorKind::Dtype)
        }
        AutoReject::Shape => {
            let text = contradicted_shape(contract, base, &mut call, name, align, seed)?;
            let is_scale = tensor(&mut call, name)?.kind.is_some();
            (text, if is_scale { ErrorKind::ScaleShape } else { ErrorKind::Shape })
        }
        AutoReject::Stride => {
            let scattered = contract.tensors.get(name)?.layout.contains(&LayoutKind::Permuted);
            (broken_stride(tensor(&mut call, name)?, align, scattered, seed)?, ErrorKind::Shape)
        }
        AutoReject::Align => (misaligned(tensor(&mut call, name)?, align, seed)?, ErrorKind::Align),
        AutoReject::Kind => (other_kind(tensor(&mut call, name)?, seed)?, ErrorKind::ScaleKind),
        AutoReject::Alias => (overlapping(&mut call, name, align, seed)?, ErrorKind::Alias),
    };
    Some(Edit { call, what: format!("{name}: {what}"), argument: Some(name.to_owned()), error })
}

fn pick<T: Clone>(among: &[T], seed: u64) -> Option<T> {
    among.get((seed % among.len().max(1) as u64) as usize).cloned()
}

fn align_bytes(contract: &Contract, call: &Call, name: &str) -> Option<u64> {
    let size = call.optional_tensor(name)?.dtype.size_bytes();
    Some(contract.tensors.get(name)?.align.unwrap_or(size).max(size))
}

/// A type the contract never gives the tensor, or gives it only together with others that stay as
/// they are. At least as wide where possible, so that pitches stay aligned.
fn foreign_dtype(
    contract: &Contract,
    base: &Case,
    call: &mut Call,
    name: &str,
    seed: u64,
) -> Option<String> {
    let DTypeRef(symbol) = &contract.tensors.get(name)?.dtype;
    let present = |other: &&String| call.optional_tensor(other).is_some();
    let sharers = contract.tensors.iter().filter(|(_, declared)| declared.dtype.0 == *symbol);
    let is_shared = sharers.map(|(other, _)| other).filter(present).count() > 1;
    let allowed = contract.dtypes.get(symbol).map_or(&[][..], Vec::as_slice);
    let argument = tensor(call, name)?;
    let now = argument.dtype;
    let is_foreign = |dtype: &DType| {
        *dtype != now && (is_shared && base.dtypes.contains_key(symbol) || !allowed.contains(dtype))
    };
    let foreign: Vec<DType> = DType::ALL.into_iter().filter(is_foreign).collect();
    let wide: Vec<DType> =
        foreign.iter().copied().filter(|dtype| dtype.size_bytes() >= now.size_bytes()).collect();
    argument.dtype = pick(if wide.is_empty() { &foreign } else { &wide }, seed)?;
    Some(format!("given as {} instead of {now}", argument.dtype))
}

/// One axis longer or shorter than the other arguments say, or one axis too many.
fn contradicted_shape(
    contract: &Contract,
    base: &Case,
    call: &mut Call,
    name: &str,
    align: u64,
    seed: u64,
) -> Option<String> {
    let declared = contract.tensors.get(name)?;
    let now = call.optional_tensor(name)?.shape.clone();
    let mut shapes = vec![[&now[..], &[1]].concat()];
    for (axis, extent) in declared.shape.iter().enumerate() {
        if axis < now.len() && is_pinned(contract, base, call, (name, axis), extent) {
            let longer = Some(now[axis] + 1);
            for size in [longer, now[axis].checked_sub(1)].into_iter().flatten() {
                let mut shape = now.clone();
                shape[axis] = size;
                shapes.push(shape);
            }
        }
    }
    let shape = pick(&shapes, seed)?;
    let argument = tensor(call, name)?;
    let text = format!("given as {shape:?} instead of {now:?}");
    reshape(argument, shape, (align / argument.dtype.size_bytes()).max(1));
    Some(text)
}

/// Whether another size of this axis would contradict something: a constant, a dim of one value, or
/// dims that other axes of the call state as they are.
fn is_pinned(
    contract: &Contract,
    base: &Case,
    call: &Call,
    (name, axis): (&str, usize),
    extent: &Expr,
) -> bool {
    let stated_elsewhere = |dim: &str| {
        contract.tensors.iter().any(|(other, declared)| {
            call.optional_tensor(other).is_some()
                && declared.shape.iter().enumerate().any(|(other_axis, extent)| {
                    (other != name || other_axis != axis)
                        && matches!(extent, Expr::Name(named) if **named == *dim)
                })
        })
    };
    let names = extent.names();
    names.iter().filter(|dim| base.dims.contains_key(**dim)).all(|dim| {
        stated_elsewhere(dim) || contract.dims.get(*dim).is_some_and(|dim| dim.one_of.len() == 1)
    })
}

/// Rows closer than they are long, or elements of a row apart.
fn broken_stride(
    argument: &mut TensorArg,
    align: u64,
    scattered: bool,
    seed: u64,
) -> Option<String> {
    let rows = *argument.shape.first()?;
    let row: u64 = argument.shape.iter().skip(1).product();
    if row == 0 {
        return None;
    }
    let unit = (align / argument.dtype.size_bytes()).max(1);
    let short =
        (rows > 1).then(|| row.saturating_sub(1) / unit * unit).filter(|short| *short < row);
    let inner_axis = (1..argument.shape.len())
        .rev()
        .find(|axis| argument.shape[*axis] > 1)
        .filter(|_| !scattered);
    let choices: Vec<bool> =
        [short.map(|_| true), inner_axis.map(|_| false)].into_iter().flatten().collect();
    if pick(&choices, seed)? {
        let short = short?;
        argument.strides[0] = short;
        return Some(format!("row stride {short} for rows of {row} elements"));
    }
    // Everything twice as far apart: rows do not overlap and pitches stay aligned.
    argument.strides.iter_mut().for_each(|stride| *stride *= 2);
    Some(format!("strides {:?}: elements of a row lie apart", argument.strides))
}

/// A base off by one element, or by half the alignment.
fn misaligned(argument: &mut TensorArg, align: u64, seed: u64) -> Option<String> {
    let size = argument.dtype.size_bytes();
    if argument.count() == 0 || align <= size {
        return None;
    }
    let shift = pick(&[size, align / 2], seed)?;
    argument.offset_bytes += shift;
    Some(format!("base moved {shift} bytes off its {align}-byte alignment"))
}

fn other_kind(argument: &mut TensorArg, seed: u64) -> Option<String> {
    let now = argument.kind?;
    let others: Vec<ScaleKind> = KINDS.into_iter().filter(|kind| *kind != now).collect();
    let kind = pick(&others, seed)?;
    argument.kind = Some(kind);
    Some(format!("kind {kind:?} instead of {now:?}, at the same size"))
}

/// A written tensor moved onto another's memory, onto its start or past it.
fn overlapping(call: &mut Call, name: &str, align: u64, seed: u64) -> Option<String> {
    if call.optional_tensor(name)?.count() == 0 {
        return None;
    }
    let others: Vec<(String, u32, u64, u64)> = (call.tensors.iter())
        .filter(|(other, argument)| other != name && argument.count() > 0)
        .map(|(other, a)| (other.clone(), a.buffer, a.offset_bytes, a.extent_bytes()))
        .collect();
    let (other, buffer, offset, extent) = pick(&others, seed)?;
    // Past the start only by whole alignments, and only while some byte is still shared.
    let step = align.max(BASE_BYTES);
    let shift = if seed & 1 << 32 != 0 && extent > step { step } else { 0 };
    let argument = tensor(call, name)?;
    argument.buffer = buffer;
    argument.offset_bytes = offset.next_multiple_of(align) + shift;
    if argument.offset_bytes >= offset + extent {
        argument.offset_bytes = offset / align * align;
    }
    Some(format!("laid over `{other}`, {shift} bytes past its start"))
}
