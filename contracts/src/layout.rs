//! Where every tensor of a case lies: shapes, strides, buffers, liveness and derived contents. Sizes
//! are checked in 128 bits before any memory is taken.
//!
//! Rules: but for `permuted` the innermost axis is contiguous; padding and `wide` change the stride of the
//! first axis only; a buffer ends with its last element, so what lies behind is out of bounds; a packed row is
//! whole, its unread tail included. Buffers are meant to start at multiples of 256 bytes.

use crate::case::{Case, Layout, StoreForm};
use crate::case_error::CaseError;
use crate::dtype::DType;
use crate::expr::Expr;
use crate::format::{Contract, Derivation, LayoutKind, List, Tensor};
use crate::geometry::{BufferGeometry, Geometry, TensorGeometry};
use crate::scope::CaseScope;

/// Largest buffer: 2³⁶ bytes.
pub const LARGEST_BUFFER_BYTES: u64 = 1 << 36;
/// Most elements a tensor may hold one by one; sparse contents may describe more.
pub const MOST_ELEMENTS: u64 = 1 << 28;
/// Most elements of a tensor all of which may be touched: a reference looks at each.
pub const MOST_LIVE_ELEMENTS: u64 = 1 << 26;
/// The offset, in elements, that the last row of a `wide` tensor exceeds.
const WIDE_ELEMENTS: u128 = 1 << 32;

impl Layout {
    /// Its name, without the amounts.
    pub fn kind(self) -> LayoutKind {
        match self {
            Layout::Dense => LayoutKind::Dense,
            Layout::RowPadded(_) => LayoutKind::RowPadded,
            Layout::OuterPadded(_) => LayoutKind::OuterPadded,
            Layout::Offset(_) => LayoutKind::Offset,
            Layout::Permuted => LayoutKind::Permuted,
            Layout::OddUnitStrides(_) => LayoutKind::OddUnitStrides,
            Layout::Wide => LayoutKind::Wide,
            Layout::Rank0 => LayoutKind::Rank0,
        }
    }
}

impl Geometry {
    /// Places the tensors of a case whose names and dtypes are complete, without asking whether its
    /// dims, lists and contents are legal: for calls that must be refused. Fails where no such call
    /// could be made: unknown sizes, misaligned strides, too much memory.
    pub fn lay_out(contract: &Contract, case: &Case) -> Result<Geometry, CaseError> {
        let mut geometry = Geometry { tensors: Vec::new(), buffers: Vec::new() };
        let scope = CaseScope::new(contract, case);
        for (name, tensor) in &contract.tensors {
            if is_present(name, tensor, &scope)? {
                let placed = place(contract, case, name, tensor)?;
                geometry.tensors.push(placed);
            }
        }
        assign_buffers(contract, case, &mut geometry)?;
        Ok(geometry)
    }
}

/// Whether the tensor is there in this case.
pub(crate) fn is_present(
    name: &str,
    tensor: &Tensor,
    scope: &CaseScope<'_>,
) -> Result<bool, CaseError> {
    let Some(when) = &tensor.when else { return Ok(true) };
    when.eval_bool(scope).map_err(|e| CaseError::expression(format!("tensors.{name}"), when, &e))
}

fn error(name: &str, what: impl Into<String>, remedy: impl Into<String>) -> CaseError {
    CaseError::new(format!("tensors.{name}"), what, remedy)
}

/// The logical shape of a tensor in this case, before `rank0` removes its axis.
pub(crate) fn shape_of(
    contract: &Contract,
    case: &Case,
    name: &str,
    tensor: &Tensor,
) -> Result<Vec<u64>, CaseError> {
    let scope = CaseScope::new(contract, case);
    let mut shape = Vec::with_capacity(tensor.shape.len());
    let mut count: u128 = 1;
    for extent in &tensor.shape {
        let size = extent
            .eval_int(&scope)
            .map_err(|e| CaseError::expression(format!("tensors.{name}"), extent, &e))?;
        let Ok(size) = u64::try_from(size) else {
            return Err(error(
                name,
                format!("the extent `{extent}` is {size}"),
                "choose dims that make it 0 or more",
            ));
        };
        shape.push(size);
        count = count.saturating_mul(size.into());
    }
    let most = if tensor.live.is_some() { LARGEST_BUFFER_BYTES } else { MOST_LIVE_ELEMENTS };
    if count > u128::from(most) {
        return Err(error(
            name,
            format!("{count} elements are more than {most}"),
            "choose smaller dims",
        ));
    }
    Ok(shape)
}

fn place(
    contract: &Contract,
    case: &Case,
    name: &str,
    tensor: &Tensor,
) -> Result<TensorGeometry, CaseError> {
    let Some(drawn) = case.tensors.get(name) else {
        return Err(error(name, "the tensor is missing", "add its layout and contents"));
    };
    let Some(dtype) = tensor.dtype.resolve(&case.dtypes) else {
        return Err(error(
            name,
            format!("the dtype `{}` is undecided", tensor.dtype.0),
            "decide it under dtypes",
        ));
    };
    let Some(access) = tensor.access.resolve(&case.options) else {
        return Err(error(
            name,
            "the option its access depends on is undecided",
            "decide it under options",
        ));
    };
    let mut shape = shape_of(contract, case, name, tensor)?;
    if drawn.layout == Layout::Rank0 && shape == [1] {
        shape.clear();
    }
    let align_bytes = tensor.align.unwrap_or(dtype.size_bytes()).max(dtype.size_bytes());
    let (strides, offset) = strides_of(name, drawn.layout, &shape, dtype, align_bytes)?;
    let derived =
        tensor.from.as_ref().map(|from| derived_contents(case, name, from, dtype)).transpose()?;
    if let Some(contents) = &derived
        && contents.len() as u64 != shape.iter().product::<u64>()
    {
        let what = format!("{} derived elements do not fill the shape {shape:?}", contents.len());
        return Err(error(name, what, "make the list as long as its axis"));
    }
    Ok(TensorGeometry {
        name: name.to_owned(),
        dtype,
        access: *access,
        live: live_rows(contract, case, tensor, shape.first().copied())?,
        shape,
        strides,
        buffer: 0,
        offset,
        align_bytes,
        kind: tensor.kind,
        derived,
    })
}

/// Strides of a tensor with memory of its own, and its base offset, in elements.
fn strides_of(
    name: &str,
    layout: Layout,
    shape: &[u64],
    dtype: DType,
    align_bytes: u64,
) -> Result<(Vec<u64>, u64), CaseError> {
    let mut strides = vec![1u64; shape.len()];
    for axis in (1..shape.len()).rev() {
        // No overflow: the product of the extents was limited, and zero extents count as one.
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    let rows = shape.first().copied().unwrap_or(1);
    let align = align_bytes / dtype.size_bytes();
    let mut offset = 0;
    match layout {
        Layout::Dense => {}
        Layout::Rank0 if shape.is_empty() => {}
        Layout::Rank0 => {
            return Err(error(
                name,
                format!("rank0 does not fit the shape {shape:?}"),
                "write layout: dense",
            ));
        }
        Layout::Offset(elements) => offset = elements,
        Layout::Permuted if shape.len() < 3 => {
            return Err(error(
                name,
                format!("permuted needs three axes, and the shape is {shape:?}"),
                "write layout: dense",
            ));
        }
        Layout::Permuted => {
            let last = shape.len() - 1;
            strides[last] = shape[last - 1].max(1);
            strides[last - 1] = 1;
        }
        Layout::OddUnitStrides(more) => {
            for (stride, extent) in strides.iter_mut().zip(shape) {
                *stride = if *extent == 1 { stride.saturating_add(more) } else { *stride };
            }
        }
        Layout::RowPadded(_) | Layout::OuterPadded(_) | Layout::Wide if shape.len() < 2 => {
            return Err(error(
                name,
                "a tensor of one axis has no rows to pad",
                "write layout: dense",
            ));
        }
        Layout::RowPadded(pad) | Layout::OuterPadded(pad) => {
            strides[0] = strides[0].saturating_add(pad);
        }
        Layout::Wide if rows < 2 => {
            return Err(error(
                name,
                "wide needs two rows",
                "choose dims that give two rows, or layout: dense",
            ));
        }
        Layout::Wide => {
            let past = (WIDE_ELEMENTS / u128::from(rows - 1) + 1) as u64;
            strides[0] = strides[0].max(past.next_multiple_of(align));
        }
    }
    let aligned = offset.is_multiple_of(align)
        && (rows < 2 || shape.len() < 2 || strides[0].is_multiple_of(align));
    if !aligned {
        let what = format!(
            "base {offset} or row stride {} is not a multiple of {align} elements",
            strides[0]
        );
        return Err(error(name, what, format!("choose amounts that are multiples of {align}")));
    }
    Ok((strides, offset))
}

fn derived_contents(
    case: &Case,
    name: &str,
    from: &Derivation,
    dtype: DType,
) -> Result<Vec<i64>, CaseError> {
    let (Derivation::Copy(list) | Derivation::PrefixSum(list)) = from;
    let Some(items) = case.lists.get(list) else {
        return Err(CaseError::new(format!("lists.{list}"), "the list is missing", "add it"));
    };
    let contents = match from {
        Derivation::Copy(_) => items.clone(),
        Derivation::PrefixSum(_) => {
            let mut sum = 0i64;
            let sums = items.iter().map(|item| {
                sum = sum.saturating_add(*item);
                sum
            });
            std::iter::once(0).chain(sums).collect()
        }
    };
    let fits = dtype != DType::I32 || contents.iter().all(|item| i32::try_from(*item).is_ok());
    if fits {
        Ok(contents)
    } else {
        Err(error(name, "an element exceeds i32", "choose smaller values or i64"))
    }
}

/// Which indices of the first axis may be touched; `None` when all.
fn live_rows(
    contract: &Contract,
    case: &Case,
    tensor: &Tensor,
    rows: Option<u64>,
) -> Result<Option<Vec<bool>>, CaseError> {
    let (Some(Expr::Name(axis)), Some(rows)) = (tensor.shape.first(), rows) else {
        return Ok(None);
    };
    let axis = &**axis;
    let segments = contract.dims.get(axis).and_then(|dim| dim.segments.as_ref());
    let Some(live) = &tensor.live else {
        // Rows past the last segment belong to no one.
        let lengths = segments.map(|list| items(case, list)).transpose()?;
        let used: Option<u64> =
            lengths.map(|l| l.iter().map(|length| u64::try_from(*length).unwrap_or(0)).sum());
        return Ok(used
            .filter(|used| *used < rows)
            .map(|used| (0..rows).map(|row| row < used).collect()));
    };
    let list = contract.lists.get(&live.by).ok_or_else(|| missing_list(&live.by))?;
    let entries = items(case, &live.by)?;
    if pool_of(list) == Some(axis) {
        let mut touched = vec![false; rows as usize];
        for entry in entries {
            if let Some(flag) =
                usize::try_from(*entry).ok().and_then(|index| touched.get_mut(index))
            {
                *flag = true;
            }
        }
        return Ok(Some(touched));
    }
    let placed = |entry: &i64| list.slots.as_ref().is_none_or(|slots| !slots.pad.contains(entry));
    if axis == list.each {
        return Ok(Some(entries.iter().map(placed).collect()));
    }
    let lengths = segments.map(|list| items(case, list)).transpose()?.unwrap_or(&[]);
    let mut touched = Vec::new();
    for (entry, length) in entries.iter().zip(lengths) {
        let end =
            (touched.len() as u64).saturating_add(u64::try_from(*length).unwrap_or(0)).min(rows);
        touched.resize(end as usize, placed(entry));
    }
    touched.resize(rows as usize, false);
    Ok(Some(touched))
}

/// The dim that bounds a list's entries.
pub(crate) fn pool_of(list: &List) -> Option<&str> {
    let pool = list.slots.as_ref().map(|slots| slots.pool.as_str());
    pool.or_else(|| list.ids.as_ref().map(|ids| ids.below.as_str()))
}

fn missing_list(name: &str) -> CaseError {
    CaseError::new(format!("lists.{name}"), "the list is missing", "add it")
}

fn items<'a>(case: &'a Case, name: &str) -> Result<&'a [i64], CaseError> {
    case.lists.get(name).map(Vec::as_slice).ok_or_else(|| missing_list(name))
}

fn assign_buffers(
    contract: &Contract,
    case: &Case,
    geometry: &mut Geometry,
) -> Result<(), CaseError> {
    let mut placed = vec![false; geometry.tensors.len()];
    for index in 0..geometry.tensors.len() {
        if placed[index] {
            continue;
        }
        let name = geometry.tensors[index].name.clone();
        let store = contract.stores.iter().find(|(_, store)| store.holds.contains(&name));
        let packed = store.and_then(|(store_name, store)| match case.stores.get(store_name) {
            Some(StoreForm::Packed { pad }) => Some((store_name, store, *pad)),
            _ => None,
        });
        let buffer = geometry.buffers.len();
        match packed {
            None => {
                let tensor = &mut geometry.tensors[index];
                tensor.buffer = buffer;
                placed[index] = true;
                let len_bytes = own_len_bytes(tensor)?;
                geometry.buffers.push(BufferGeometry { name, len_bytes, dtype: tensor.dtype });
            }
            Some((store_name, store, pad)) => {
                let members: Vec<usize> = store
                    .holds
                    .iter()
                    .filter_map(|held| {
                        geometry.tensors.iter().position(|tensor| tensor.name == *held)
                    })
                    .collect();
                let len_bytes = pack(store_name, &mut geometry.tensors, &members, pad)?;
                for member in members {
                    geometry.tensors[member].buffer = buffer;
                    placed[member] = true;
                }
                let dtype = geometry.tensors[index].dtype;
                geometry.buffers.push(BufferGeometry {
                    name: store_name.clone(),
                    len_bytes,
                    dtype,
                });
            }
        }
    }
    Ok(())
}

/// Bytes from the buffer's start to the end of the last element; up to the base for no elements.
fn own_len_bytes(tensor: &TensorGeometry) -> Result<u64, CaseError> {
    let mut end = u128::from(tensor.offset);
    if !tensor.shape.contains(&0) {
        end += 1;
        for (extent, stride) in tensor.shape.iter().zip(&tensor.strides) {
            end += u128::from(extent - 1) * u128::from(*stride);
        }
    }
    limited(&tensor.name, end * u128::from(tensor.dtype.size_bytes()))
}

fn limited(name: &str, len_bytes: u128) -> Result<u64, CaseError> {
    match u64::try_from(len_bytes) {
        Ok(len) if len <= LARGEST_BUFFER_BYTES => Ok(len),
        _ => {
            let what =
                format!("{len_bytes} bytes exceed the largest buffer, {LARGEST_BUFFER_BYTES}");
            Err(error(name, what, "choose smaller dims or amounts"))
        }
    }
}

/// Lays the members one after another into one row; returns the buffer's size.
fn pack(
    store: &str,
    tensors: &mut [TensorGeometry],
    members: &[usize],
    pad: u64,
) -> Result<u64, CaseError> {
    let path = || format!("stores.{store}");
    let mut running: u128 = 0;
    for &member in members {
        let tensor = &mut tensors[member];
        tensor.offset = running as u64;
        let bytes = running * u128::from(tensor.dtype.size_bytes());
        if !bytes.is_multiple_of(u128::from(tensor.align_bytes)) {
            let what = format!(
                "`{}` begins at byte {bytes} of the row, no multiple of {}",
                tensor.name, tensor.align_bytes
            );
            return Err(CaseError::new(path(), what, "write separate, or choose other dims"));
        }
        running += u128::from(tensor.row_count());
    }
    let pitch = running + u128::from(pad);
    for &member in members {
        let tensor = &mut tensors[member];
        let bytes = pitch * u128::from(tensor.dtype.size_bytes());
        if !bytes.is_multiple_of(u128::from(tensor.align_bytes)) {
            let what = format!(
                "the row pitch of {bytes} bytes is no multiple of {}, which `{}` needs",
                tensor.align_bytes, tensor.name
            );
            return Err(CaseError::new(path(), what, "choose another pad"));
        }
        limited(&tensor.name, bytes)?;
        if let Some(first) = tensor.strides.first_mut() {
            *first = pitch as u64;
        }
    }
    let Some(first) = members.first().map(|&member| &tensors[member]) else { return Ok(0) };
    let rows = u128::from(first.shape.first().copied().unwrap_or(0));
    limited(store, rows * pitch * u128::from(first.dtype.size_bytes()))
}
