//! What can be wrong with the use of an mbarrier.

use std::fmt;

/// What is wrong with the use of an mbarrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MbarrierFault {
    /// Nobody initialised it, or it was invalidated.
    Uninitialised,
    /// Another thread initialises it, and nothing orders that before this use.
    UnorderedInit,
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

impl fmt::Display for MbarrierFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MbarrierFault::Uninitialised => f.write_str("it is not initialised"),
            MbarrierFault::UnorderedInit => f.write_str(
                "it may not be initialised yet: nothing orders its initialisation before this",
            ),
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
