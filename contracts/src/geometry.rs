//! What follows from a case's decisions: shapes, strides, buffers, liveness, derived contents.
//! One function computes it, so generator, oracle, shrinker and replay cannot disagree.

use crate::dtype::DType;
use crate::format::{Access, ScaleKind};

/// Physical facts of every present tensor of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    /// In the contract's order; tensors whose `when` fails are missing.
    pub tensors: Vec<TensorGeometry>,
    /// Memory the tensors lie in.
    pub buffers: Vec<BufferGeometry>,
}

/// One tensor's place and shape.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorGeometry {
    /// Name in the contract.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Who touches it.
    pub access: Access,
    /// Logical shape.
    pub shape: Vec<u64>,
    /// Stride of each axis, in elements.
    pub strides: Vec<u64>,
    /// Index into `Geometry::buffers`.
    pub buffer: usize,
    /// Distance of element 0 from the buffer's start, in elements.
    pub offset: u64,
    /// Alignment promised to the kernel, in bytes.
    pub align_bytes: u64,
    /// Scale kind, if it is a scale.
    pub kind: Option<ScaleKind>,
    /// Which indices of the first axis may be touched; `None` = all.
    pub live: Option<Vec<bool>>,
    /// Contents of a derived tensor, by flat index.
    pub derived: Option<Vec<i64>>,
}

/// One allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferGeometry {
    /// Its only tensor, or its store.
    pub name: String,
    /// Size.
    pub len_bytes: u64,
    /// Type of its elements; fixes the poison pattern.
    pub dtype: DType,
}

impl TensorGeometry {
    /// Number of elements.
    pub fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Elements below one index of the first axis; the whole tensor when it has no axes.
    pub fn row_count(&self) -> u64 {
        self.shape.iter().skip(1).product()
    }

    /// Whether an index of the first axis may be touched.
    pub fn is_live_row(&self, row: u64) -> bool {
        self.live.as_ref().is_none_or(|live| live.get(row as usize).copied().unwrap_or(false))
    }

    /// Distance of the element with this flat row-major index from the buffer's start, in elements.
    pub fn element_offset(&self, flat: u64) -> u64 {
        let mut rest = flat;
        let mut offset = self.offset;
        for (extent, stride) in self.shape.iter().zip(&self.strides).rev() {
            offset += rest % extent * stride;
            rest /= extent;
        }
        offset
    }

    /// Coordinates of a flat row-major index.
    pub fn coordinates(&self, flat: u64) -> Vec<u64> {
        let mut rest = flat;
        let mut coordinates = vec![0; self.shape.len()];
        for (axis, extent) in self.shape.iter().enumerate().rev() {
            coordinates[axis] = rest % extent;
            rest /= extent;
        }
        coordinates
    }

    /// The longest contiguous innermost run, in elements: all axes whose stride is the product of
    /// the extents inside them.
    pub fn contiguous_run(&self) -> u64 {
        let mut run = 1;
        for (extent, stride) in self.shape.iter().zip(&self.strides).rev() {
            if *stride != run && *extent != 1 {
                break;
            }
            run *= extent;
        }
        run
    }
}

impl Geometry {
    /// The tensor of this name, if present.
    pub fn tensor(&self, name: &str) -> Option<&TensorGeometry> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }
}
