//! Operands of instructions whose cost lies in their work, not in their dispatch: products of
//! warpgroups, mbarriers, printing, assertions. Kept apart so that the hot operations stay small.

use crate::program::{Atomic, Factor, Reg, Scope, Slot, Sum};
use crate::syntax::Space;

#[derive(Clone, Debug)]
pub(crate) enum Rare {
    Warpgroup(Box<Warpgroup>),
    /// `wgmma.fence`
    WarpgroupFence,
    /// `wgmma.commit_group`
    WarpgroupCommit,
    /// `wgmma.wait_group`
    WarpgroupWait {
        pending: u32,
    },
    /// A fence that orders the threads of the block alone.
    BlockFence,
    /// A fence that orders the threads of the cluster.
    ClusterFence,
    /// `fence.proxy.async`, in a module where the asynchronous proxy reads shared memory.
    ProxyFence,
    /// Stands before an instruction of a kernel with `wgmma`.
    Touches(Box<Touches>),
    Mbarrier(Mbarrier),
    Bulk(Bulk),
    Tensor(Box<Tensor>),
    /// `st.async` and `red.async`.
    Async(AsyncStore),
    /// `cp.async.bulk.commit_group` and `wait_group`.
    BulkGroup(BulkGroup),
    Print(Print),
    Assert(Assert),
    Exchange(Exchange),
    Tile(Tile),
    /// A vector's address must be a multiple of its size.
    Aligned {
        at: At,
        bytes: u32,
    },
    /// `discard`: the 128 bytes from there hold nothing any more.
    Discard(At),
    /// A call deeper than calls are inlined.
    TooDeep,
    /// A call through a pointer to no function that fits.
    CallNowhere {
        address: Slot,
    },
}

impl Rare {
    /// All lanes of the warp execute it together.
    pub fn aligned(&self) -> bool {
        matches!(
            self,
            Rare::Warpgroup(_)
                | Rare::WarpgroupFence
                | Rare::WarpgroupCommit
                | Rare::WarpgroupWait { .. }
                | Rare::Tile(_)
        )
    }

    /// It may order blocks.
    pub fn releases(&self) -> bool {
        match self {
            Rare::ClusterFence => true,
            Rare::Exchange(what) => what.release,
            Rare::Mbarrier(what) => what.release,
            _ => false,
        }
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

impl Warpgroup {
    /// Columns of the product.
    pub fn columns(&self) -> usize {
        self.d.len() * if self.sum.is_f16() { 4 } else { 2 }
    }
}

/// What an instruction does to registers of warpgroups' products, and to shared memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touches {
    pub reads: Vec<Slot>,
    pub writes: Vec<Slot>,
    /// Moves: the target, and what it may take over.
    pub copies: Vec<(Slot, [Slot; 2])>,
    /// A store that may go to shared memory.
    pub generic: Option<Generic>,
}

/// What stores to shared memory, by its place in its table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Generic {
    Store(u16),
    Atomic(u16),
    Matrix(u16),
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

/// An address: a register or none, what is added, and the space the instruction names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub base: Option<Reg>,
    pub offset: i64,
    pub space: Space,
}

/// An operation on an mbarrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mbarrier {
    pub act: Act,
    pub at: At,
    /// Count, bytes or parity; 1 where it is left out.
    pub amount: Slot,
    /// Where the state goes, or comes from for a test.
    pub state: Option<Slot>,
    /// Whether the phase is complete.
    pub complete: Option<Slot>,
    /// What was done before is released to the cluster.
    pub release: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Init,
    Invalidate,
    Arrive {
        /// Bytes are expected with it; then the amount is theirs and the count is 1.
        expects: bool,
        /// Later phases count so many fewer.
        drops: bool,
        /// It must not complete the phase.
        incomplete: bool,
    },
    Expect,
    Complete,
    /// A test by state, or by the parity in the amount.
    Test {
        parity: bool,
    },
    /// `cp.async.mbarrier.arrive`: the lanes' copies arrive with the phase.
    Copies {
        /// They count among the arrivals expected.
        counted: bool,
    },
}

impl Act {
    /// What the thread, or its copies, did before goes with the phase.
    pub fn arrives(self) -> bool {
        matches!(self, Act::Arrive { .. } | Act::Copies { .. } | Act::Complete)
    }

    /// It may be done to an mbarrier of another block of the cluster.
    pub fn reaches(self) -> bool {
        matches!(self, Act::Arrive { .. } | Act::Expect | Act::Complete)
    }
}

/// `cp.async.bulk` between global and shared memory, or the shared memory of two blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bulk {
    pub to: At,
    pub from: At,
    pub bytes: Slot,
    /// Into shared memory: where its bytes are counted. Without it, out of shared memory.
    pub counts: Option<At>,
    /// The ranks it goes to, as bits.
    pub ranks: Option<Slot>,
    /// It combines with what stands there.
    pub reduces: Option<(Reduction, Number)>,
}

/// `cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor {
    pub map: At,
    pub coordinates: [Slot; 5],
    pub rank: u8,
    /// Where the box lies in shared memory.
    pub at: At,
    pub act: TensorAct,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum TensorAct {
    /// Into shared memory: where its bytes are counted, and the ranks it goes to, as bits.
    Load {
        counts: At,
        ranks: Option<Slot>,
    },
    Store,
    Reduce(Reduction),
    Prefetch,
}

/// How a bulk reduction combines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reduction {
    Add,
    Min,
    Max,
    Increment,
    Decrement,
    And,
    Or,
    Xor,
}

/// What a bulk reduction combines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Number {
    Unsigned(u8),
    Signed(u8),
    F16,
    Bf16,
    F32,
    /// Subnormal numbers count as zero.
    F32Flushed,
    F64,
}

impl Number {
    pub fn bytes(self) -> usize {
        match self {
            Number::Unsigned(bits) | Number::Signed(bits) => usize::from(bits / 8),
            Number::F16 | Number::Bf16 => 2,
            Number::F32 | Number::F32Flushed => 4,
            Number::F64 => 8,
        }
    }
}

/// A store, or a reduction, in the memory of a block of the cluster, which an mbarrier there counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsyncStore {
    pub at: At,
    pub counts: At,
    pub regs: [Reg; 4],
    pub count: u8,
    pub width_bytes: u8,
    pub reduces: Option<Atomic>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BulkGroup {
    Commit,
    /// Until so many groups at most are under way, or have not read their sources, which is the same
    /// here.
    Wait(u32),
}

/// `printf`: where the format and its arguments stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Print {
    pub format: Slot,
    pub arguments: Slot,
    /// The number of arguments printed.
    pub count: Slot,
}

/// A failed assertion: where its texts stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assert {
    pub message: Slot,
    pub file: Slot,
    pub line: Slot,
    pub function: Slot,
}

/// An exchange of sixteen bytes: where, what stood there, what comes, and what must stand there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub at: At,
    pub old: Option<[Slot; 2]>,
    pub new: [Slot; 2],
    pub expected: Option<[Slot; 2]>,
    /// A fence comes before it.
    pub release: bool,
    pub scope: Scope,
}

/// `wmma.load` or `wmma.store`: a tile in memory, spread over registers as `mma` takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    pub at: At,
    /// Elements from one line to the next; none for the least there can be.
    pub stride: Option<Slot>,
    pub part: Part,
    pub element_bytes: u8,
    /// Lines of memory run across the fragment's lines.
    pub across: bool,
    pub regs: [Slot; 8],
    pub count: u8,
    pub store: bool,
}

/// Which fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// A factor: `lines` rows or columns of `k`.
    Factor { lines: u8, k: u8, left: bool },
    /// Sums of rows by eight columns times so many.
    Sum { rows: u8, columns: u8 },
}
