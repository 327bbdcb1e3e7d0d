//! What is wrong with the use of clusters and of tensor maps, and how it is worded.

use super::words::place;
use super::{BufferPlace, MemorySpace};
use std::fmt;

/// What is wrong with the use of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterFault {
    /// An address of the shared memory of a rank that the cluster lacks.
    NoSuchRank {
        /// The rank; from 254 on all are one.
        rank: u32,
        /// Blocks of the cluster.
        ranks: u32,
    },
    /// An access of the shared memory of a block that has exited.
    Exited {
        /// Its rank.
        rank: u32,
    },
    /// A block exits, and nothing orders another block's access of its shared memory before.
    StillUsed {
        /// Where the last such access begins.
        offset: u64,
    },
    /// A thread arrives at the cluster's barrier again before it waited.
    ArrivedTwice,
    /// A thread waits at the cluster's barrier and has not arrived.
    NotArrived,
    /// Threads wait at the cluster's barrier for others that cannot come.
    Waiting {
        /// Threads that arrived.
        arrived: u32,
        /// Threads of the cluster that have not exited.
        alive: u32,
    },
    /// The mbarrier of a copy lies in another block than its bytes, or only the block itself may do
    /// that to it.
    AnotherBlock,
}

/// What is wrong with a tensor map, or with a copy under it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TensorFault {
    /// No tensor map is there.
    NoMap,
    /// The instruction names another number of dimensions.
    Rank {
        /// Of the map.
        map: u32,
        /// Of the instruction.
        instruction: u32,
    },
    /// The type of the map's elements has no such reduction.
    Reduction,
    /// The box begins at no multiple of 16 bytes along the innermost dimension.
    Crooked {
        /// The coordinate along it.
        coordinate: i32,
        /// Bytes of an element.
        element_bytes: u32,
    },
    /// An element of the tensor lies outside the memory that the map is bound to.
    BeyondBuffer {
        /// The element, innermost dimension first.
        element: Vec<u64>,
        /// Dimensions of the tensor.
        dims: Vec<u64>,
        /// The buffer it belongs to, or is nearest to.
        buffer: Option<BufferPlace>,
        /// Its address.
        address: u64,
        /// Whether it is stored to.
        store: bool,
    },
    /// A box that is stored begins before the tensor.
    Before {
        /// Where, innermost dimension first.
        coordinates: Vec<i32>,
    },
    /// No element of the box is one of the tensor: a strict rule.
    Outside {
        /// Where the box begins, innermost dimension first.
        coordinates: Vec<i32>,
        /// Dimensions of the tensor.
        dims: Vec<u64>,
    },
}

impl fmt::Display for ClusterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterFault::NoSuchRank { rank, ranks } => {
                write!(f, "an address in rank {rank} of a cluster of {ranks} blocks")
            }
            ClusterFault::Exited { rank } => {
                write!(f, "an access of the shared memory of rank {rank}, which has exited")
            }
            ClusterFault::StillUsed { offset } => write!(
                f,
                "the block exits, and nothing orders another block's access of its shared byte \
                 {offset} before"
            ),
            ClusterFault::ArrivedTwice => {
                f.write_str("a thread arrives at the cluster's barrier twice without a wait")
            }
            ClusterFault::NotArrived => {
                f.write_str("a thread waits at the cluster's barrier and has not arrived")
            }
            ClusterFault::Waiting { arrived, alive } => write!(
                f,
                "the cluster's barrier has {arrived} of {alive} threads, and the rest cannot come"
            ),
            ClusterFault::AnotherBlock => {
                f.write_str("the mbarrier lies in another block of the cluster")
            }
        }
    }
}

impl fmt::Display for TensorFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorFault::NoMap => f.write_str("there is none"),
            TensorFault::Rank { map, instruction } => {
                write!(f, "it has {map} dimensions, the instruction {instruction}")
            }
            TensorFault::Reduction => f.write_str("its type has no such reduction"),
            TensorFault::Crooked { coordinate, element_bytes } => write!(
                f,
                "the box begins at element {coordinate} of {element_bytes} bytes each, which is no \
                 multiple of 16 bytes"
            ),
            TensorFault::BeyondBuffer { element, dims, buffer, address, store } => {
                let what = if *store { "stored" } else { "loaded" };
                write!(f, "element {element:?} of {dims:?} is {what} outside its memory: ")?;
                place(f, MemorySpace::Global, buffer.as_ref(), *address)
            }
            TensorFault::Before { coordinates } => {
                write!(f, "a box is stored at {coordinates:?}, before the tensor")
            }
            TensorFault::Outside { coordinates, dims } => {
                write!(f, "the box at {coordinates:?} has no element of {dims:?}")
            }
        }
    }
}
