//! A case: one concrete input, decoded and self-contained. It holds the *decisions*; everything that
//! follows from them (shapes, strides, derived tensors, liveness) is recomputed by `Geometry`.

use crate::dtype::{DType, Poison};
use indexmap::IndexMap;
use std::collections::BTreeMap;
use std::ops::Range;

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
    /// The NaN that fills unread memory; a second run, where there is one, uses `Poison::Large`.
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

    /// Appends the little-endian bytes of the elements of a range; zeros for derived and output contents.
    pub fn append_bytes(&self, dtype: DType, elements: Range<u64>, bytes: &mut Vec<u8>) {
        let size = dtype.size_bytes() as usize;
        let count = (elements.end - elements.start) as usize;
        let (fill, at) = match self {
            Content::Derived | Content::Output => {
                return bytes.resize(bytes.len() + count * size, 0);
            }
            Content::Dense(all) => {
                let all = &all[elements.start as usize * size..elements.end as usize * size];
                return bytes.extend_from_slice(all);
            }
            Content::Sparse { fill, at } => (fill, at),
        };
        let from = bytes.len();
        match fill {
            Fill::Bits(bits) => append_same(&bits.to_le_bytes()[..size], count, bytes),
            Fill::Hashed { seed } => elements
                .clone()
                .for_each(|index| dtype.push_bytes(hashed_bits(*seed, index), bytes)),
        }
        for (index, bits) in at.range(elements.clone()) {
            let start = from + (index - elements.start) as usize * size;
            bytes[start..start + size].copy_from_slice(&bits.to_le_bytes()[..size]);
        }
    }

    /// The values of the elements of a range; zeros for derived and output contents.
    pub fn values(&self, dtype: DType, elements: Range<u64>) -> Vec<f64> {
        let mut values = Vec::with_capacity((elements.end - elements.start) as usize);
        match self {
            Content::Dense(all) => {
                let size = dtype.size_bytes();
                let range = (elements.start * size) as usize..(elements.end * size) as usize;
                dtype.each_value(&all[range], |value| values.push(value));
            }
            _ => {
                let mut bytes = Vec::new();
                self.append_bytes(dtype, elements, &mut bytes);
                dtype.each_value(&bytes, |value| values.push(value));
            }
        }
        values
    }
}

fn append_same(element: &[u8], count: usize, bytes: &mut Vec<u8>) {
    if element.iter().all(|byte| *byte == element[0]) {
        bytes.resize(bytes.len() + count * element.len(), element[0]);
    } else {
        (0..count).for_each(|_| bytes.extend_from_slice(element));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_the_elements_one_by_one() {
        let at = BTreeMap::from([(0, 0x7fc1), (3, 0x3f80), (9, 0x8000)]);
        let bytes: Vec<u8> = (0..20).collect();
        let contents = [
            Content::Dense(bytes),
            Content::Sparse { fill: Fill::Bits(0x3f01), at: at.clone() },
            Content::Sparse { fill: Fill::Bits(0x3f3f), at: at.clone() },
            Content::Sparse { fill: Fill::Hashed { seed: 5 }, at },
            Content::Output,
        ];
        for content in contents {
            for range in [0..10, 3..9, 4..4, 9..10] {
                let one_by_one: Vec<u64> =
                    range.clone().map(|index| content.bits(DType::BF16, index)).collect();
                let mut bytes = vec![0xaa];
                content.append_bytes(DType::BF16, range.clone(), &mut bytes);
                let mut together = Vec::new();
                DType::BF16.each_bits(&bytes[1..], |bits| together.push(bits));
                assert_eq!((bytes[0], &together), (0xaa, &one_by_one), "{content:?} {range:?}");
                let values = content.values(DType::BF16, range.clone());
                let right = one_by_one.iter().map(|bits| DType::BF16.to_f64(*bits).to_bits());
                assert!(
                    values.iter().map(|value| value.to_bits()).eq(right),
                    "{content:?} {range:?}"
                );
            }
        }
    }
}
