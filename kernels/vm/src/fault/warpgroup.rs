//! The rules of asynchronous products (`wgmma`), as reports word them.

use std::fmt;

/// Which rule of asynchronous products (`wgmma`) is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WarpgroupFault {
    /// A product before any `wgmma.fence` of the warp.
    NoFence,
    /// A register of a product was written since the last `wgmma.fence`: there.
    Unfenced,
    /// A sum is read before the wait for its product.
    EarlyRead {
        /// A `wgmma.commit_group` closed its group; otherwise no wait can be for it.
        committed: bool,
    },
    /// A register of a product is written before the wait for it.
    EarlyWrite {
        /// It is a sum; otherwise it holds a factor.
        sum: bool,
    },
    /// A product takes sums on which one of another shape is under way.
    OtherShape,
    /// A byte of a factor in shared memory changed before the wait: where the other party is.
    Overwritten {
        /// The byte.
        offset: u64,
        /// PTX line of the product.
        product_line: u32,
    },
    /// A factor in shared memory was stored by a thread's own instruction, and no
    /// `fence.proxy.async` followed.
    NoProxyFence {
        /// The byte.
        offset: u64,
    },
    /// A wait for products that the other warps of the warpgroup do not issue.
    MissingWarps,
}

impl WarpgroupFault {
    /// What the other party did.
    pub(super) fn other(self) -> &'static str {
        match self {
            WarpgroupFault::Unfenced
            | WarpgroupFault::Overwritten { .. }
            | WarpgroupFault::NoProxyFence { .. } => "the other access is",
            _ => "the other product is",
        }
    }
}

impl fmt::Display for WarpgroupFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WarpgroupFault::NoFence => f.write_str("a product without a wgmma.fence before it"),
            WarpgroupFault::Unfenced => {
                f.write_str("a register of the product was written after the last wgmma.fence")
            }
            WarpgroupFault::EarlyRead { committed: true } => {
                f.write_str("a sum is read before the wgmma.wait_group for its product")
            }
            WarpgroupFault::EarlyRead { committed: false } => f.write_str(
                "a sum is read while its product has no wgmma.commit_group, so that no wait is for it",
            ),
            WarpgroupFault::EarlyWrite { sum } => write!(
                f,
                "a {} of a product is written before the wgmma.wait_group for it",
                if *sum { "sum" } else { "factor" }
            ),
            WarpgroupFault::OtherShape => {
                f.write_str("the sums of a product of another shape, which no wait has been for")
            }
            WarpgroupFault::Overwritten { offset, product_line } => write!(
                f,
                "shared byte {offset}, a factor of the product at PTX line {product_line}, is \
                 overwritten before the wgmma.wait_group for it"
            ),
            WarpgroupFault::NoProxyFence { offset } => write!(
                f,
                "the product reads shared byte {offset}, stored without a fence.proxy.async since"
            ),
            WarpgroupFault::MissingWarps => {
                f.write_str("the other warps of the warpgroup do not issue the product")
            }
        }
    }
}
