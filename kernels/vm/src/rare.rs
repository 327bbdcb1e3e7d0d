//! Operands of instructions whose cost lies in their work, not in their dispatch: products of
//! warpgroups, mbarriers, printing, assertions. Kept apart so that the hot operations stay small.

use crate::program::{Factor, Slot, Sum};

#[derive(Clone, Debug)]
pub(crate) enum Rare {
    Warpgroup(Box<Warpgroup>),
}

impl Rare {
    /// All lanes of the warp execute it together.
    pub fn aligned(&self) -> bool {
        matches!(self, Rare::Warpgroup(_))
    }
}

/// `wgmma.mma_async`: one warp's sixteen rows of an m64 product.
#[derive(Clone, Debug)]
pub(crate) struct Warpgroup {
    pub left: Wide,
    /// Of both factors.
    pub factors: [WideFactor; 2],
    pub sum: Sum,
    /// Descriptor of B.
    pub right: Slot,
    /// Whether the products of A and of B count negative.
    pub negate: [bool; 2],
    /// Whether A and B lie with their rows (columns) along memory instead of k.
    pub transposed: [bool; 2],
    /// The predicate under which the old sums count; `None` for always.
    pub accumulate: Option<Slot>,
    pub c: Vec<Slot>,
    pub d: Vec<Slot>,
    /// Names what a descriptor may ask and the machine lacks, among the entry's unsupported.
    pub base_offset: u16,
}

/// Where the left factor of a warpgroup lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wide {
    Registers([Slot; 4]),
    Descriptor(Slot),
}

/// A factor's type in a warpgroup product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WideFactor {
    Bf16,
    /// As in the other forms.
    Other(Factor),
}

impl WideFactor {
    pub fn bits(self) -> usize {
        match self {
            WideFactor::Bf16 => 16,
            WideFactor::Other(factor) => factor.bits(),
        }
    }
}
