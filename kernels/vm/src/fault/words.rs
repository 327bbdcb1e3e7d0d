//! The one place that words faults.

use super::{BufferPlace, ClusterFault, Fault, FaultKind, MbarrierFault, MemorySpace, Stop};
use std::fmt;

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

pub(super) fn place(
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
            FaultKind::CopySize { wanted_bytes, piece_bytes } => {
                write!(f, "a copy of {wanted_bytes} bytes into a piece of {piece_bytes}")
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
            FaultKind::ConstWrite { variable: Some(variable), .. } => {
                write!(f, "a store to {variable}, which is constant")
            }
            FaultKind::ConstWrite { offset, .. } => {
                write!(f, "a store to constant byte {offset}")
            }
            FaultKind::SharedRace { offset, race, .. } => {
                let what = race.words("thread", true);
                write!(f, "shared byte {offset} {what} without a barrier between")
            }
            FaultKind::ClusterRace { rank, offset, race, .. } => {
                let what = race.words("block", true);
                write!(f, "shared byte {offset} of rank {rank} {what}, and nothing orders them")
            }
            FaultKind::Cluster { wrong } => wrong.fmt(f),
            FaultKind::Tensor { map, wrong } => write!(f, "tensor map {map}: {wrong}"),
            FaultKind::GlobalRace { buffer, .. } => {
                write!(f, "{buffer} gets different values from two threads at once")
            }
            FaultKind::BlockRace { buffer, address, race } => {
                place(f, MemorySpace::Global, buffer.as_ref(), *address)?;
                write!(f, " {} without a fence and a flag between", race.words("block", false))
            }
            FaultKind::WarpRace { buffer, address, race } => {
                place(f, MemorySpace::Global, buffer.as_ref(), *address)?;
                let what = race.words("warp", false);
                write!(f, " {what} of the block without a barrier between")
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
            FaultKind::ProxyFence { offset } => write!(
                f,
                "the copy reads shared byte {offset}, stored without a fence.proxy.async since"
            ),
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
    /// What the other party of a fault is, in a word.
    pub fn party(&self) -> &'static str {
        match self {
            FaultKind::Uninitialised { .. } => "copy",
            FaultKind::Mbarrier { .. } => "init",
            _ => "other",
        }
    }

    /// What the other party of a fault did.
    fn other(&self) -> &'static str {
        match self {
            FaultKind::MissingLane { .. } | FaultKind::ExitedAtBarrier { .. } => {
                "the other thread exited at"
            }
            FaultKind::Cluster { wrong: ClusterFault::Exited { .. } } => {
                "the other block exited at"
            }
            FaultKind::DivergedBarrier { .. } => "the other place is",
            FaultKind::Uninitialised { .. } => "a copy that nobody waited for brings them:",
            FaultKind::Mbarrier { wrong: MbarrierFault::Uninitialised, .. } => {
                "the kernel's only initialisation is"
            }
            FaultKind::Mbarrier { .. } => "its initialisation is",
            FaultKind::Warpgroup { wrong } => wrong.other(),
            _ => "the other access is",
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
            write!(f, "; {source}")?;
        }
        f.write_str(")")?;
        if let Some(other) = &self.other {
            write!(f, "; {} PTX line {}", self.kind.other(), other.ptx_line)?;
            if let Some(source) = &other.source {
                write!(f, " ({source})")?;
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
