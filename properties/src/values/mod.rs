//! The named generators of values. Each is pointwise, a function of seed and logical coordinates, and
//! never leaves the tensor's domain. Values are frozen: the same seed gives the same bits for ever.

mod domain;
mod gates;
mod noise;
mod rows;

pub use domain::{admits, in_domain, rounded, row_in_domain, row_norm};
pub use gates::{GateField, GateTensors, Gates, Member};

pub(crate) use rows::special_bits;

use contracts::case::{Content, Decisions, Fill};
use contracts::dtype::DType;
use contracts::format::{Domain, Values};
use std::collections::BTreeMap;

/// Most elements a free draw materialises.
pub const MATERIALISED_ELEMENTS: u64 = 1 << 20;

/// Most elements stored beside a fill.
pub const SPARSE_ELEMENTS: u64 = 4096;

/// What is to be filled.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// Element type.
    pub dtype: DType,
    /// Logical shape.
    pub shape: &'a [u64],
    /// What callers may pass.
    pub domain: &'a Domain,
    /// Fixes every value.
    pub seed: u64,
    /// Sizes, for generators that depend on one.
    pub dims: &'a Decisions<i64>,
}

impl Field<'_> {
    /// Number of elements.
    pub fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Extent of the innermost axis; 1 without axes.
    pub fn row_len(&self) -> u64 {
        self.shape.last().copied().unwrap_or(1)
    }

    /// The simplest legal element.
    pub fn zero(&self) -> u64 {
        in_domain(self.domain, self.dtype, 0)
    }
}

/// Contents that need no element of their own: constants and, where all bits are legal, hashes.
/// `None` for every other generator.
pub fn described(values: &Values, field: &Field<'_>) -> Option<Content> {
    let constant =
        |value: f64| fill(in_domain(field.domain, field.dtype, rounded(field.dtype, value)));
    match values {
        Values::Zero => Some(fill(field.zero())),
        Values::Constant(value) if !matches!(field.domain, Domain::RowNorm(_)) => {
            Some(constant(*value))
        }
        Values::ModelScale(dim) => Some(constant(model_scale(field.dims.get(dim)))),
        Values::Hashed if matches!(field.domain, Domain::Any) => {
            Some(Content::Sparse { fill: Fill::Hashed { seed: field.seed }, at: BTreeMap::new() })
        }
        _ => None,
    }
}

/// Contents of some rows of the first axis, the simplest legal element elsewhere. A whole-tensor draw
/// gives these rows the same values.
pub fn content_of_rows(values: &Values, field: &Field<'_>, indices: &[u64]) -> Content {
    let below: u64 = field.shape.iter().skip(1).product();
    let len = field.row_len();
    if len == 0 || field.shape.is_empty() {
        return fill(field.zero());
    }
    let mut at = BTreeMap::new();
    let mut row = vec![0; len as usize];
    let mut rows = rows::Rows::new(values, field);
    for index in indices {
        for first in (index * below..(index + 1) * below).step_by(len as usize) {
            rows.write(first / len, &mut row);
            row_in_domain(field.domain, field.dtype, &mut row);
            at.extend(row.iter().enumerate().map(|(column, bits)| (first + column as u64, *bits)));
        }
    }
    Content::Sparse { fill: Fill::Bits(field.zero()), at }
}

/// Every element's bytes, however many: the caller answers for the size. With `only`, the other
/// indices of the first axis hold the simplest legal element; these hold what they would hold anyway.
pub fn materialised(values: &Values, field: &Field<'_>, only: Option<&[u64]>) -> Content {
    let (count, len) = (field.count(), field.row_len());
    let size = field.dtype.size_bytes();
    let mut row = vec![field.zero(); len as usize];
    let Some(rows_in_all) = count.checked_div(len) else { return Content::Dense(Vec::new()) };
    let below = rows_in_all / field.shape.first().copied().unwrap_or(1).max(1);
    let inside = rows::stays_inside(values, field.domain);
    let mut rows = rows::Rows::new(values, field);
    let mut push = |bytes: &mut Vec<u8>, index: u64| {
        rows.write(index, &mut row);
        if !inside {
            row_in_domain(field.domain, field.dtype, &mut row);
        }
        push_row(field.dtype, &row, bytes);
    };
    let mut bytes = Vec::with_capacity((count * size) as usize);
    let Some(only) = only else {
        (0..rows_in_all).for_each(|index| push(&mut bytes, index));
        return Content::Dense(bytes);
    };
    let gap = field.zero().to_le_bytes();
    for index in only {
        pad_to(&mut bytes, index * below * len * size, &gap[..size as usize]);
        (index * below..(index + 1) * below).for_each(|index| push(&mut bytes, index));
    }
    pad_to(&mut bytes, count * size, &gap[..size as usize]);
    Content::Dense(bytes)
}

/// Lengthens with copies of one element.
pub(crate) fn pad_to(bytes: &mut Vec<u8>, len_bytes: u64, element: &[u8]) {
    if element.iter().all(|byte| *byte == 0) {
        bytes.resize((len_bytes as usize).max(bytes.len()), 0);
        return;
    }
    while (bytes.len() as u64) < len_bytes {
        bytes.extend_from_slice(element);
    }
}

/// One number by value: the generator's first element.
pub fn scalar(values: &Values, field: &Field<'_>) -> u64 {
    let content = described(values, field).unwrap_or_else(|| materialised(values, field, None));
    content.bits(field.dtype, 0)
}

/// The same bits everywhere.
pub fn fill(bits: u64) -> Content {
    Content::Sparse { fill: Fill::Bits(bits), at: BTreeMap::new() }
}

/// Changes one element. Derived and written tensors have none.
pub fn set_element(content: &mut Content, dtype: DType, flat: u64, bits: u64) {
    match content {
        Content::Derived | Content::Output => {}
        Content::Dense(bytes) => {
            let size = dtype.size_bytes() as usize;
            let start = flat as usize * size;
            bytes[start..start + size].copy_from_slice(&bits.to_le_bytes()[..size]);
        }
        Content::Sparse { at, .. } => {
            at.insert(flat, bits);
        }
    }
}

/// Appends a row's little-endian bytes.
pub(crate) fn push_row(dtype: DType, row: &[u64], bytes: &mut Vec<u8>) {
    match dtype.size_bytes() {
        1 => bytes.extend(row.iter().map(|bits| *bits as u8)),
        2 => append(row, bytes, |bits| (bits as u16).to_le_bytes()),
        4 => append(row, bytes, |bits| (bits as u32).to_le_bytes()),
        _ => append(row, bytes, u64::to_le_bytes),
    }
}

/// One resize a row: growing element by element would check the capacity as often.
fn append<const SIZE: usize>(row: &[u64], bytes: &mut Vec<u8>, encode: impl Fn(u64) -> [u8; SIZE]) {
    let start = bytes.len();
    bytes.resize(start + row.len() * SIZE, 0);
    for (element, bits) in bytes[start..].chunks_exact_mut(SIZE).zip(row) {
        element.copy_from_slice(&encode(*bits));
    }
}

fn model_scale(size: Option<&i64>) -> f64 {
    1.0 / libm::sqrt(size.copied().unwrap_or(1).max(1) as f64)
}

/// How many explicit mantissa bits a type has; integers have none.
pub(crate) fn mantissa_bits(dtype: DType) -> u32 {
    match dtype {
        DType::F32 => 23,
        DType::F16 => 10,
        DType::BF16 => 7,
        DType::E4M3 => 3,
        DType::I32 | DType::I64 => 0,
    }
}

#[cfg(test)]
mod tests;
