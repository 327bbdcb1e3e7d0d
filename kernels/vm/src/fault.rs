//! What can stop a launch: the faults of every checker, and whom they name.

mod hopper;
mod launch;
mod mbarrier;
mod race;
mod warpgroup;
mod words;

use crate::memory::BufferId;
use crate::source::SourceLine;
pub use hopper::{ClusterFault, TensorFault};
pub use launch::LaunchError;
pub use mbarrier::MbarrierFault;
pub use race::RaceKind;
pub use warpgroup::WarpgroupFault;

/// A state space, as reports name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum MemorySpace {
    /// Buffers of the launch and the module's own variables.
    Global,
    /// The block's shared memory.
    Shared,
    /// The shared memory of another block of the cluster.
    Cluster,
    /// A thread's own arrays.
    Local,
    /// `.const` variables.
    Const,
    /// Kernel parameters.
    Param,
}

/// A place in a buffer, or in a variable of the module; the offset may lie outside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BufferPlace {
    /// The buffer; [`BufferId::VARIABLE`] for a variable.
    pub id: BufferId,
    /// Its name; a variable's with its space.
    pub name: String,
    /// Byte offset from its base.
    pub offset: i64,
    /// Its length.
    pub len_bytes: u64,
}

/// What a kernel did wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// An access outside every buffer, array or window.
    OutOfBounds {
        /// Where.
        space: MemorySpace,
        /// Nearest buffer, for global memory; or the module's variable.
        buffer: Option<BufferPlace>,
        /// The address (an offset for shared, local and parameter memory).
        address: u64,
        /// Bytes of the access.
        access_bytes: u32,
        /// Whether it is a store.
        store: bool,
    },
    /// An address that is no multiple of the access width.
    Misaligned {
        /// Where.
        space: MemorySpace,
        /// The buffer, for global memory.
        buffer: Option<BufferPlace>,
        /// The address (an offset for shared, local and parameter memory).
        address: u64,
        /// Bytes of the access.
        access_bytes: u32,
        /// Whether it is a store.
        store: bool,
    },
    /// A `cp.async` that is to bring more bytes than its piece has.
    CopySize {
        /// Bytes it is to bring.
        wanted_bytes: u32,
        /// Bytes of the piece.
        piece_bytes: u32,
    },
    /// A read of bytes nobody wrote.
    Uninitialised {
        /// Where.
        space: MemorySpace,
        /// The buffer, for global memory; its offset is the first such byte.
        buffer: Option<BufferPlace>,
        /// Offset of the first such byte.
        offset: u64,
        /// Bytes of the access.
        access_bytes: u32,
    },
    /// A read of a byte marked [`crate::marks::UNREAD`].
    UnreadRead {
        /// The first such byte.
        buffer: BufferPlace,
    },
    /// A store to a byte marked [`crate::marks::UNWRITABLE`].
    UnwritableWrite {
        /// The first such byte.
        buffer: BufferPlace,
    },
    /// A store to `.const` memory.
    ConstWrite {
        /// Byte offset in the module's variables.
        offset: u64,
        /// The variable, and where in it.
        variable: Option<BufferPlace>,
    },
    /// Two threads touch shared memory without a barrier between.
    SharedRace {
        /// First byte of the access.
        offset: u64,
        /// Bytes of the access.
        access_bytes: u32,
        /// Which accesses collide.
        race: RaceKind,
    },
    /// Threads of two blocks of a cluster touch shared memory, and nothing orders the blocks.
    ClusterRace {
        /// The block whose memory it is.
        rank: u32,
        /// First byte of the access.
        offset: u64,
        /// Bytes of the access.
        access_bytes: u32,
        /// Which accesses collide.
        race: RaceKind,
    },
    /// A cluster used against its rules.
    Cluster {
        /// Which rule.
        wrong: ClusterFault,
    },
    /// A tensor map, or a copy under one, that does not fit.
    Tensor {
        /// Where the map comes from: a parameter's name, or a place in memory.
        map: String,
        /// What is wrong.
        wrong: TensorFault,
    },
    /// Lanes of one instruction store different values to one global byte.
    GlobalRace {
        /// The byte.
        buffer: BufferPlace,
        /// Which accesses collide.
        race: RaceKind,
    },
    /// Threads of two blocks touch a byte, one of them storing to it, and no fence with a flag
    /// orders them.
    BlockRace {
        /// The byte, in a buffer or a variable of the module.
        buffer: Option<BufferPlace>,
        /// Its address.
        address: u64,
        /// Which accesses collide.
        race: RaceKind,
    },
    /// Threads of two warps of a block touch a byte of global memory, one of them storing to it, and
    /// no barrier orders them.
    WarpRace {
        /// The byte, in a buffer or a variable of the module.
        buffer: Option<BufferPlace>,
        /// Its address.
        address: u64,
        /// Which accesses collide.
        race: RaceKind,
    },
    /// Threads wait for others that can no longer come.
    BarrierDivergence {
        /// Threads of the block that wait.
        waiting: u32,
        /// Threads of the block that have not exited.
        alive: u32,
    },
    /// Threads of one block wait at different barriers.
    BarrierMismatch {
        /// One barrier.
        first: u32,
        /// Another; 16 is the cluster's.
        second: u32,
    },
    /// A barrier waits for more threads than are left; under strict rules, threads exited before a
    /// barrier of the whole block.
    ExitedAtBarrier {
        /// The barrier.
        barrier: u32,
        /// Threads it has.
        arrived: u32,
        /// Threads it needs.
        expected: u32,
    },
    /// A barrier number above 15 or a thread count that is no multiple of 32.
    BadBarrier {
        /// The barrier.
        barrier: u32,
        /// The count, if one was given.
        count: Option<u32>,
    },
    /// A shuffle reads a lane that does not take part.
    ShuffleInactive {
        /// The lane it reads.
        lane: u32,
    },
    /// A lane executes a `.sync` operation whose member mask leaves it out.
    BadMemberMask {
        /// The mask.
        members: u32,
    },
    /// A member mask names a lane that has exited or never was: a strict rule.
    MissingLane {
        /// The mask.
        members: u32,
        /// The first such lane.
        lane: u32,
        /// It exited; otherwise the block is smaller.
        exited: bool,
    },
    /// The lanes of a warp come to an aligned barrier at two places: a strict rule.
    DivergedBarrier {
        /// The barrier.
        barrier: u32,
    },
    /// A thread exits before its asynchronous copies have arrived: a strict rule.
    CopyUnderWay,
    /// A branch table is indexed past its end.
    BadBranchIndex {
        /// The index.
        index: u32,
        /// Targets in the table.
        targets: u32,
    },
    /// An mbarrier used against its rules.
    Mbarrier {
        /// Where it lies in shared memory.
        offset: u64,
        /// Which rule.
        wrong: MbarrierFault,
    },
    /// A matrix descriptor that leads nowhere.
    BadDescriptor {
        /// The descriptor.
        descriptor: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An asynchronous product used against its rules.
    Warpgroup {
        /// Which rule.
        wrong: WarpgroupFault,
    },
    /// A bulk copy out of shared memory reads what a thread's own instruction stored, and no
    /// `fence.proxy.async` followed.
    ProxyFence {
        /// The byte.
        offset: u64,
    },
    /// The launch ran more warp instructions than its limit.
    InstructionBudget {
        /// The limit.
        limit: u64,
    },
    /// A failed device assertion.
    Assertion {
        /// The condition as written.
        message: String,
        /// Its file.
        file: String,
        /// Its line.
        line: u32,
        /// Its function.
        function: String,
    },
    /// Recursion deeper than the machine follows.
    CallDepth,
    /// A call through a pointer that leads to no function with such parameters.
    BadCall {
        /// The pointer.
        address: u64,
    },
    /// Threads touched more memory than [`crate::Memory::limit_touched`] allows.
    MemoryBudget {
        /// The limit.
        limit_bytes: u64,
    },
    /// Every thread that is left polls, and nothing changes any more.
    NoProgress {
        /// Where the named thread polls.
        space: MemorySpace,
        /// The buffer, for global memory.
        buffer: Option<BufferPlace>,
        /// The address, or the offset in shared memory.
        address: u64,
        /// Blocks that have started and not ended.
        waiting_blocks: u64,
        /// Blocks for which there is no room beside them.
        unstarted_blocks: u64,
    },
    /// `trap` or `brkpt`.
    Trap,
}

impl FaultKind {
    /// The buffer it happened in, or nearest to, where it concerns one.
    pub fn buffer(&self) -> Option<&BufferPlace> {
        self.place().filter(|place| place.id != BufferId::VARIABLE)
    }

    /// The same, or the module's variable.
    fn place(&self) -> Option<&BufferPlace> {
        match self {
            FaultKind::OutOfBounds { buffer, .. }
            | FaultKind::Misaligned { buffer, .. }
            | FaultKind::Uninitialised { buffer, .. }
            | FaultKind::BlockRace { buffer, .. }
            | FaultKind::WarpRace { buffer, .. }
            | FaultKind::NoProgress { buffer, .. } => buffer.as_ref(),
            FaultKind::Tensor { wrong: TensorFault::BeyondBuffer { buffer, .. }, .. } => {
                buffer.as_ref()
            }
            FaultKind::UnreadRead { buffer }
            | FaultKind::UnwritableWrite { buffer }
            | FaultKind::GlobalRace { buffer, .. } => Some(buffer),
            _ => None,
        }
    }
}

/// The other thread of a race, or the one that is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Party {
    /// Its block, where that is not the one of the fault.
    pub block: Option<[u32; 3]>,
    /// Its thread index, where one thread can be named.
    pub thread: Option<[u32; 3]>,
    /// PTX line of its access.
    pub ptx_line: u32,
    /// The line as written.
    pub instruction: String,
    /// CUDA source of its access.
    pub source: Option<SourceLine>,
}

/// One fault: what, where in the code, and which thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// The kernel.
    pub entry: String,
    /// Line of the PTX text.
    pub ptx_line: u32,
    /// That line as written.
    pub instruction: String,
    /// CUDA source line.
    pub source: Option<SourceLine>,
    /// Block index.
    pub block: [u32; 3],
    /// Thread index in the block.
    pub thread: [u32; 3],
    /// The other side of a race, or where the missing thread went.
    pub other: Option<Party>,
    /// What the kernel had printed, as in [`crate::Stats::printed`].
    pub printed: String,
}

/// Why a launch ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The kernel did something wrong.
    Fault(Box<Fault>),
    /// The launch reached something this machine does not have.
    Unsupported {
        /// Opcode or feature.
        what: String,
        /// Line of the PTX text.
        ptx_line: u32,
        /// CUDA source line.
        source: Option<SourceLine>,
    },
    /// The launch could not start.
    BadLaunch(LaunchError),
}
