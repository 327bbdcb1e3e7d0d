//! A tensor as mathematics sees it: elements by logical row-major index, no strides, no padding.

use crate::case::{Case, Content};
use crate::dtype::DType;
use crate::geometry::TensorGeometry;
use std::sync::Arc;

/// Shape and contents of one tensor, cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Logical {
    /// Element type.
    pub dtype: DType,
    /// Logical shape, outermost axis first; empty for rank 0.
    pub shape: Vec<u64>,
    /// Elements by row-major index.
    pub content: Arc<Content>,
}

impl Logical {
    /// From every element's little-endian bytes, row-major.
    pub fn from_bytes(dtype: DType, shape: Vec<u64>, bytes: Vec<u8>) -> Logical {
        Logical { dtype, shape, content: Arc::new(Content::Dense(bytes)) }
    }

    /// A tensor of a case, derived contents included; an output holds zeros. `None` when absent.
    pub fn of(tensor: &TensorGeometry, case: &Case) -> Option<Logical> {
        let content = match &tensor.derived {
            Some(items) => {
                let mut bytes =
                    Vec::with_capacity(items.len() * tensor.dtype.size_bytes() as usize);
                items.iter().for_each(|item| tensor.dtype.push_bytes(*item as u64, &mut bytes));
                Content::Dense(bytes)
            }
            None => in_one_piece(&case.tensors.get(&tensor.name)?.content, tensor),
        };
        Some(Logical {
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            content: Arc::new(content),
        })
    }

    /// Number of elements.
    pub fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bits of one element. The index must be below `count`.
    pub fn bits(&self, flat: u64) -> u64 {
        self.content.bits(self.dtype, flat)
    }

    /// Value of one element. The index must be below `count`.
    pub fn value(&self, flat: u64) -> f64 {
        self.dtype.to_f64(self.bits(flat))
    }

    /// Every element's value.
    pub fn to_f64(&self) -> Vec<f64> {
        self.content.values(self.dtype, 0..self.count())
    }

    /// Every element as an integer; floating-point values truncate.
    pub fn to_i64(&self) -> Vec<i64> {
        let integer = |bits| self.dtype.to_i64(bits).unwrap_or(self.dtype.to_f64(bits) as i64);
        (0..self.count()).map(|flat| integer(self.bits(flat))).collect()
    }
}

/// A tensor of this many bytes is looked up faster by index than in a map.
const MOST_BYTES_IN_ONE_PIECE: u64 = 64 << 10;

fn in_one_piece(content: &Content, tensor: &TensorGeometry) -> Content {
    let bytes = tensor.count().saturating_mul(tensor.dtype.size_bytes());
    match content {
        Content::Sparse { .. } if bytes <= MOST_BYTES_IN_ONE_PIECE => {
            let mut all = Vec::with_capacity(bytes as usize);
            content.append_bytes(tensor.dtype, 0..tensor.count(), &mut all);
            Content::Dense(all)
        }
        other => other.clone(),
    }
}
