//! What keeps a launch from starting.

use std::fmt;

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

impl std::error::Error for LaunchError {}
