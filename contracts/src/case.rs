//! A case: one concrete input, decoded and self-contained. It holds the *decisions*; everything that
//! follows from them (shapes, strides, derived tensors, liveness) is recomputed by `Geometry`.

use crate::dtype::{DType, Poison};
use indexmap::IndexMap;
use std::collections::BTreeMap;

/// Ordered map from a name to a decision.
pub type Decisions<T> = IndexMap<String, T>;

/// One concrete input of one contract.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Contract name.
    pub contract: String,
    /// Contract version the case was written for.
    pub version: u32,
    /// Where it comes from, when it is a regression.
    pub found: Option<Found>,
    /// Dtype symbol to type.
    pub dtypes: Decisions<DType>,
    /// Option to word.
    pub options: Decisions<String>,
    /// Variant to word.
    pub variants: Decisions<String>,
    /// Dim to size; every dim, computed ones included.
    pub dims: Decisions<i64>,
    /// List to its elements; every list, computed ones included.
    pub lists: Decisions<Vec<i64>>,
    /// Scalar to its bits.
    pub scalars: Decisions<u64>,
    /// Store to its form.
    pub stores: Decisions<StoreForm>,
    /// The NaN that fills unread memory in run A; run B always uses `Poison::Large`.
    pub poison: Poison,
    /// The order in which blocks and warps run, where the backend lets one choose.
    pub schedule: Schedule,
    /// Tensor to layout and contents, for every tensor that is present.
    pub tensors: Decisions<CaseTensor>,
}

/// The order in which a kernel's blocks and warps run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// Blocks and warps by number.
    #[default]
    InOrder,
    /// The order this seed draws: the same on every host.
    Seeded(u64),
}

/// What a regression once showed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// Clause id.
    pub clause: String,
    /// Backend it was seen on.
    pub backend: String,
    /// A link to a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<String>,
}

/// Whether the tensors of a store are slices of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreForm {
    /// Each tensor has memory of its own.
    Separate,
    /// One row holds them all, plus this many unread elements.
    Packed {
        /// Elements between rows; a multiple of the strictest member's alignment.
        pad: u64,
    },
}

/// Layout and contents of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseTensor {
    /// Physical layout with its amounts.
    pub layout: Layout,
    /// Values by logical row-major index.
    pub content: Content,
}

/// A physical layout with its amounts, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Row-major without gaps.
    Dense,
    /// This many unread elements after each index of the first axis.
    RowPadded(u64),
    /// As `RowPadded`, for pools whose rows are whole slots.
    OuterPadded(u64),
    /// The first element this far from the buffer's start.
    Offset(u64),
    /// The last two axes in the opposite order in memory: `[…, n, m]` as `[…, m, n]`.
    Permuted,
    /// Axes of one index with a stride this much larger than the elements inside them.
    OddUnitStrides(u64),
    /// Row stride such that the last row begins beyond 2³² elements.
    Wide,
    /// Shape `[]` instead of `[1]`.
    Rank0,
}

/// Logical contents.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Recomputed from lists.
    Derived,
    /// Written by the kernel alone.
    Output,
    /// Every element's little-endian bytes, row-major.
    Dense(Vec<u8>),
    /// A fill and the elements that differ, by flat row-major index.
    Sparse {
        /// What the others hold.
        fill: Fill,
        /// Bits by index.
        at: BTreeMap<u64, u64>,
    },
}

/// What a sparse tensor holds where nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The same bits everywhere.
    Bits(u64),
    /// `hashed_bits(seed, index)`: a frozen function, never to be changed.
    Hashed {
        /// The seed.
        seed: u64,
    },
}

/// SplitMix64's finaliser over seed and index. Frozen: cases on disk depend on it.
pub fn hashed_bits(seed: u64, index: u64) -> u64 {
    let mut z = seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Content {
    /// Bits of one element; zero for derived and output contents.
    pub fn bits(&self, dtype: DType, index: u64) -> u64 {
        match self {
            Content::Derived | Content::Output => 0,
            Content::Dense(bytes) => {
                let size = dtype.size_bytes() as usize;
                let start = index as usize * size;
                dtype.from_bytes(&bytes[start..start + size])
            }
            Content::Sparse { fill, at } => match (at.get(&index), fill) {
                (Some(bits), _) => *bits,
                (None, Fill::Bits(bits)) => *bits,
                (None, Fill::Hashed { seed }) => hashed_bits(*seed, index) & dtype.mask(),
            },
        }
    }
}
