//! What can stop a launch, and the one place that words it.

mod hopper;
mod warpgroup;

use crate::memory::BufferId;
use crate::syntax::SourceLine;
pub use hopper::{ClusterFault, TensorFault};
use std::fmt;
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

/// A place in a buffer; the offset may lie outside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BufferPlace {
    /// The buffer.
    pub id: BufferId,
    /// Its name.
    pub name: String,
    /// Byte offset from its base.
    pub offset: i64,
    /// Its length.
    pub len_bytes: u64,
}

/// Which two accesses collide.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum RaceKind {
    /// A read of what another thread stored.
    ReadAfterWrite,
    /// A store to what another thread read.
    WriteAfterRead,
    /// Two stores of different values.
    WriteAfterWrite,
}

/// What is wrong with the use of an mbarrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MbarrierFault {
    /// Nobody initialised it, or it was invalidated.
    Uninitialised,
    /// A count that is zero or above 2²⁰ − 1.
    BadCount {
        /// The count.
        count: u32,
    },
    /// More arrivals in one phase than it expects.
    OverArrived {
        /// Arrivals that were missing.
        pending: u32,
        /// Arrivals that came.
        count: u32,
    },
    /// `.noComplete` arrivals that complete the phase.
    Completes {
        /// Arrivals that were missing.
        pending: u32,
    },
    /// More bytes expected, or arrived unexpected, than it can count (2²⁰ − 1).
    TooManyBytes {
        /// Bytes that are missing; negative when they came too early.
        bytes: i64,
    },
    /// A test of a phase that is neither the current one nor the one before.
    StalePhase {
        /// The phase of the state.
        tested: u32,
        /// The current phase.
        current: u32,
    },
    /// A parity that is neither 0 nor 1.
    BadParity {
        /// The parity.
        parity: u32,
    },
    /// The block ended with bytes of a phase missing or not expected.
    Leaked {
        /// Bytes that are missing; negative when nobody expected them.
        bytes: i64,
    },
    /// Everybody waits for a phase that cannot complete.
    NoProgress {
        /// The phase.
        phase: u32,
        /// Arrivals that are missing.
        pending: u32,
        /// Bytes that are missing.
        bytes: i64,
    },
}

/// What a kernel did wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// An access outside every buffer, array or window.
    OutOfBounds {
        /// Where.
        space: MemorySpace,
        /// Nearest buffer, for global memory.
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
        /// The byte, where a buffer holds it and not a variable of the module.
        buffer: Option<BufferPlace>,
        /// Its address.
        address: u64,
        /// Which accesses collide.
        race: RaceKind,
    },
    /// Threads of two warps of a block touch a byte of global memory, one of them storing to it, and
    /// no barrier orders them.
    WarpRace {
        /// The byte, where a buffer holds it and not a variable of the module.
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
    /// The buffer it happened in, or nearest to, where it concerns global memory.
    pub fn buffer(&self) -> Option<&BufferPlace> {
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

/// A launch that cannot start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LaunchError {
    /// The module has no kernel of that name.
    UnknownEntry(String),
    /// The parameter bytes do not have the kernel's length.
    ParameterLength {
        /// What the kernel needs.
        expected_bytes: u32,
        /// What was passed.
        given_bytes: usize,
    },
    /// A dimension of zero, or beyond what hardware allows.
    BadGeometry {
        /// Grid.
        grid: [u32; 3],
        /// Block.
        block: [u32; 3],
    },
    /// More threads than the kernel was compiled for, or than 1024.
    TooManyThreads {
        /// Threads of the block.
        threads: u64,
        /// The limit.
        limit: u32,
    },
    /// Clusters that hardware does not have, or that do not fit the kernel or the grid.
    Cluster {
        /// Blocks of a cluster.
        cluster: [u32; 3],
        /// Grid.
        grid: [u32; 3],
        /// What is wrong.
        why: &'static str,
    },
    /// More host memory for one block's registers, local and shared memory than
    /// [`crate::Limits::resident_bytes`].
    TooMuchMemory {
        /// What one block takes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// More shared memory than a block may have.
    TooMuchShared {
        /// Static and dynamic together.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
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

impl fmt::Display for MemorySpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemorySpace::Global => "global memory",
            MemorySpace::Shared => "shared memory",
            MemorySpace::Cluster => "another block's shared memory",
            MemorySpace::Local => "local memory",
            MemorySpace::Const => "constant memory",
            MemorySpace::Param => "the parameters",
        })
    }
}

impl fmt::Display for BufferPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = i64::try_from(self.len_bytes).unwrap_or(i64::MAX);
        if self.offset < 0 {
            write!(f, "{} bytes before {}", self.offset.unsigned_abs(), self.name)?;
        } else if self.offset >= len {
            write!(f, "{} bytes past the end of {}", self.offset - len, self.name)?;
        } else {
            write!(f, "byte {} of {}", self.offset, self.name)?;
        }
        write!(f, " ({len} bytes)")
    }
}

fn place(
    f: &mut fmt::Formatter<'_>,
    space: MemorySpace,
    buffer: Option<&BufferPlace>,
    at: u64,
) -> fmt::Result {
    match buffer {
        Some(buffer) => write!(f, "{buffer}"),
        None => write!(f, "{at:#x} of {space}"),
    }
}

impl fmt::Display for MbarrierFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MbarrierFault::Uninitialised => f.write_str("it is not initialised"),
            MbarrierFault::BadCount { count } => {
                write!(f, "a count of {count}, which must be 1 to 1048575")
            }
            MbarrierFault::OverArrived { pending, count } => {
                write!(f, "{count} arrivals where the phase misses {pending}")
            }
            MbarrierFault::Completes { pending } => {
                write!(f, "an arrival that must not complete the phase, which misses {pending}")
            }
            MbarrierFault::TooManyBytes { bytes } => {
                write!(f, "{bytes} bytes under way, of which it can count 1048575")
            }
            MbarrierFault::StalePhase { tested, current } => {
                write!(f, "a test of phase {tested} in phase {current}")
            }
            MbarrierFault::BadParity { parity } => write!(f, "parity {parity} is neither 0 nor 1"),
            MbarrierFault::Leaked { bytes } => {
                write!(f, "the block ended while the phase misses {bytes} bytes")
            }
            MbarrierFault::NoProgress { phase, pending, bytes } => write!(
                f,
                "phase {phase} misses {pending} arrivals and {bytes} bytes, and nobody brings them"
            ),
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |store: &bool| if *store { "a store" } else { "a load" };
        match self {
            FaultKind::OutOfBounds { space, buffer, address, access_bytes, store } => {
                write!(f, "{} of {access_bytes} bytes out of bounds: ", verb(store))?;
                place(f, *space, buffer.as_ref(), *address)
            }
            FaultKind::Misaligned { space, buffer, address, access_bytes, store } => {
                write!(
                    f,
                    "{} of {access_bytes} bytes at an address that is no multiple of it: ",
                    verb(store)
                )?;
                place(f, *space, buffer.as_ref(), *address)
            }
            FaultKind::Uninitialised { space, buffer, offset, .. } => {
                f.write_str("a load of bytes that nobody wrote: ")?;
                place(f, *space, buffer.as_ref(), *offset)
            }
            FaultKind::UnreadRead { buffer } => {
                write!(f, "a load of {buffer}, which must not be read")
            }
            FaultKind::UnwritableWrite { buffer } => {
                write!(f, "a store to {buffer}, which must not be written")
            }
            FaultKind::ConstWrite { offset } => {
                write!(f, "a store to constant byte {offset}")
            }
            FaultKind::SharedRace { offset, race, .. } => {
                let what = match race {
                    RaceKind::ReadAfterWrite => "is read while another thread stores to it",
                    RaceKind::WriteAfterRead => "is stored to while another thread reads it",
                    RaceKind::WriteAfterWrite => "gets different values from two threads",
                };
                write!(f, "shared byte {offset} {what} without a barrier between")
            }
            FaultKind::ClusterRace { rank, offset, race, .. } => {
                let what = match race {
                    RaceKind::ReadAfterWrite => "is read while another block stores to it",
                    RaceKind::WriteAfterRead => "is stored to while another block reads it",
                    RaceKind::WriteAfterWrite => "gets different values from two blocks",
                };
                write!(f, "shared byte {offset} of rank {rank} {what}, and nothing orders them")
            }
            FaultKind::Cluster { wrong } => wrong.fmt(f),
            FaultKind::Tensor { map, wrong } => write!(f, "tensor map {map}: {wrong}"),
            FaultKind::GlobalRace { buffer, .. } => {
                write!(f, "{buffer} gets different values from two threads at once")
            }
            FaultKind::BlockRace { buffer, address, race } => {
                place(f, MemorySpace::Global, buffer.as_ref(), *address)?;
                f.write_str(match race {
                    RaceKind::ReadAfterWrite => " is read while another block stores to it",
                    RaceKind::WriteAfterRead => " is stored to while another block reads it",
                    RaceKind::WriteAfterWrite => " is stored to by two blocks",
                })?;
                f.write_str(" without a fence and a flag between")
            }
            FaultKind::WarpRace { buffer, address, race } => {
                place(f, MemorySpace::Global, buffer.as_ref(), *address)?;
                f.write_str(match race {
                    RaceKind::ReadAfterWrite => " is read while another warp stores to it",
                    RaceKind::WriteAfterRead => " is stored to while another warp reads it",
                    RaceKind::WriteAfterWrite => " is stored to by two warps",
                })?;
                f.write_str(" of the block without a barrier between")
            }
            FaultKind::BarrierDivergence { waiting, alive } => {
                write!(f, "{waiting} of {alive} threads wait for others that cannot come")
            }
            FaultKind::BarrierMismatch { first, second: 16 } => {
                write!(f, "threads of one block wait at barrier {first} and at the cluster's")
            }
            FaultKind::BarrierMismatch { first, second } => {
                write!(f, "threads of one block wait at barrier {first} and at barrier {second}")
            }
            FaultKind::ExitedAtBarrier { barrier, arrived, expected } => write!(
                f,
                "barrier {barrier} has {arrived} of {expected} threads and the rest exited"
            ),
            FaultKind::BadBarrier { barrier, count } => match count {
                Some(count) => write!(f, "barrier {barrier} for {count} threads cannot exist"),
                None => write!(f, "barrier {barrier} does not exist"),
            },
            FaultKind::ShuffleInactive { lane } => {
                write!(f, "a shuffle reads lane {lane}, which does not take part")
            }
            FaultKind::BadMemberMask { members } => {
                write!(f, "a lane outside the member mask {members:#010x} takes part")
            }
            FaultKind::MissingLane { members, lane, exited } => {
                let how = if *exited { "has exited" } else { "does not exist" };
                write!(f, "the member mask {members:#010x} names lane {lane}, which {how}")
            }
            FaultKind::DivergedBarrier { barrier } => {
                write!(f, "the lanes of a warp come to aligned barrier {barrier} at two places")
            }
            FaultKind::CopyUnderWay => {
                f.write_str("a thread exits while its asynchronous copies are under way")
            }
            FaultKind::BadBranchIndex { index, targets } => {
                write!(f, "index {index} of a branch table with {targets} targets")
            }
            FaultKind::Mbarrier { offset, wrong } => {
                write!(f, "mbarrier at shared byte {offset}: {wrong}")
            }
            FaultKind::BadDescriptor { descriptor, why } => {
                write!(f, "matrix descriptor {descriptor:#018x}: {why}")
            }
            FaultKind::Warpgroup { wrong } => wrong.fmt(f),
            FaultKind::InstructionBudget { limit } => {
                write!(f, "more than {limit} warp instructions: it may never end")
            }
            FaultKind::Assertion { message, file, line, function } => {
                write!(f, "assertion {message:?} of {function} failed at {file}:{line}")
            }
            FaultKind::CallDepth => f.write_str("recursion deeper than the machine follows"),
            FaultKind::BadCall { address } => {
                write!(f, "a call to {address:#x}, where no function with such parameters is")
            }
            FaultKind::MemoryBudget { limit_bytes } => {
                write!(f, "threads touch more than {limit_bytes} bytes of global memory")
            }
            FaultKind::NoProgress { space, buffer, address, waiting_blocks, unstarted_blocks } => {
                f.write_str("no progress: a thread polls ")?;
                place(f, *space, buffer.as_ref(), *address)?;
                write!(f, ", and nobody among {waiting_blocks} blocks changes it")?;
                if *unstarted_blocks > 0 {
                    write!(f, "; {unstarted_blocks} blocks more do not fit beside them")?;
                }
                Ok(())
            }
            FaultKind::Trap => f.write_str("the kernel trapped"),
        }
    }
}

impl FaultKind {
    /// What the other party of a fault did.
    fn other(&self) -> &'static str {
        match self {
            FaultKind::MissingLane { .. } | FaultKind::ExitedAtBarrier { .. } => "thread exited at",
            FaultKind::Cluster { wrong: ClusterFault::Exited { .. } } => "block exited at",
            FaultKind::DivergedBarrier { .. } => "place is",
            FaultKind::Warpgroup { wrong } => wrong.other(),
            _ => "access is",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instruction = self.instruction.trim_end_matches(';');
        write!(
            f,
            "{}: {} (block {:?}, thread {:?}, PTX line {}: {instruction}",
            self.entry, self.kind, self.block, self.thread, self.ptx_line
        )?;
        if let Some(source) = &self.source {
            write!(f, "; {}:{}", source.file, source.line)?;
        }
        f.write_str(")")?;
        if let Some(other) = &self.other {
            write!(f, "; the other {} PTX line {}", self.kind.other(), other.ptx_line)?;
            if let Some(source) = &other.source {
                write!(f, " ({}:{})", source.file, source.line)?;
            }
            if let Some(thread) = other.thread {
                write!(f, " by thread {thread:?}")?;
            }
            if let Some(block) = other.block {
                write!(f, " of block {block:?}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::UnknownEntry(name) => write!(f, "the module has no kernel {name:?}"),
            LaunchError::ParameterLength { expected_bytes, given_bytes } => {
                write!(f, "{given_bytes} parameter bytes where {expected_bytes} are needed")
            }
            LaunchError::BadGeometry { grid, block } => {
                write!(f, "grid {grid:?} of blocks {block:?} cannot be launched")
            }
            LaunchError::TooManyThreads { threads, limit } => {
                write!(f, "{threads} threads in a block of at most {limit}")
            }
            LaunchError::Cluster { cluster, grid, why } => {
                write!(f, "clusters of {cluster:?} in a grid of {grid:?}: {why}")
            }
            LaunchError::TooMuchMemory { bytes, limit } => {
                write!(
                    f,
                    "a block takes {bytes} bytes of the host's memory, the limit is {limit} (`Limits::resident_bytes`)"
                )
            }
            LaunchError::TooMuchShared { bytes, limit } => {
                write!(f, "{bytes} bytes of shared memory in a block of at most {limit}")
            }
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Fault(fault) => fault.fmt(f),
            Stop::Unsupported { what, ptx_line, .. } => {
                write!(f, "{what} (PTX line {ptx_line}) is not supported")
            }
            Stop::BadLaunch(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Stop {}
impl std::error::Error for LaunchError {}
