//! Why an event of a round did not happen: it was not legal, or the device failed. A refused event has
//! changed nothing.

use super::rounds::Stage;
use crate::backend::{BackendError, Fault};
use crate::call::Rejection;
use std::fmt;

/// Why an event was refused, as a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not in this state.
    State,
    /// The ticket is not that of the sequence's latest round.
    StaleId,
    /// The sequence was released, or never was.
    Released,
    /// More rows than there is room for, or no free slot.
    Capacity,
    /// A number of rows outside what is legal.
    Rows,
    /// A device error left the sequence in doubt.
    Broken,
}

/// Why an event did not happen.
#[derive(Debug)]
pub enum RoundError {
    /// An event that is not legal in the sequence's state.
    State {
        /// The event.
        event: &'static str,
        /// The state it came in.
        stage: Stage,
        /// The states it is legal in.
        legal: &'static str,
    },
    /// A ticket of an earlier round.
    StaleId {
        /// The ticket's number.
        given: u64,
        /// That of the sequence's latest round.
        latest: u64,
    },
    /// A sequence that was released.
    Released {
        /// Its slot.
        slot: u64,
    },
    /// Too many rows for the slot, or no slot free.
    Capacity {
        /// What there is room for.
        capacity: u64,
        /// What was asked for.
        wanted: u64,
    },
    /// A number of rows outside what is legal.
    Rows {
        /// The event.
        event: &'static str,
        /// The number.
        given: usize,
        /// The least and the most.
        legal: (usize, usize),
    },
    /// An earlier device error left the sequence in doubt.
    Broken {
        /// Its slot.
        slot: u64,
    },
    /// A launch was refused at planning.
    Rejected(Rejection),
    /// A kernel broke a rule.
    Fault(Box<Fault>),
    /// The backend cannot run the kernel.
    Unsupported(String),
    /// The backend failed.
    Backend(BackendError),
}

impl RoundError {
    /// The class of a refusal; `None` where the device failed.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            RoundError::State { .. } => Some(Refusal::State),
            RoundError::StaleId { .. } => Some(Refusal::StaleId),
            RoundError::Released { .. } => Some(Refusal::Released),
            RoundError::Capacity { .. } => Some(Refusal::Capacity),
            RoundError::Rows { .. } => Some(Refusal::Rows),
            RoundError::Broken { .. } => Some(Refusal::Broken),
            _ => None,
        }
    }
}

impl fmt::Display for RoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoundError::State { event, stage, legal } => {
                write!(f, "{event} of a sequence that is {stage}; it must be {legal}")
            }
            RoundError::StaleId { given, latest } => {
                write!(f, "ticket {given} is of an earlier round; the latest is {latest}")
            }
            RoundError::Released { slot } => {
                write!(f, "the sequence of slot {slot} was released; acquire another")
            }
            RoundError::Capacity { capacity, wanted } => {
                write!(f, "{wanted} rows or slots are wanted, and there is room for {capacity}")
            }
            RoundError::Rows { event, given, legal: (least, most) } => {
                write!(f, "{event} of {given} rows; must be {least} to {most}")
            }
            RoundError::Broken { slot } => {
                write!(f, "a device error left slot {slot} in doubt; nothing may use it")
            }
            RoundError::Rejected(rejection) => write!(f, "a launch was refused: {rejection}"),
            RoundError::Fault(fault) => write!(f, "{fault}"),
            RoundError::Unsupported(what) => write!(f, "the backend cannot run this: {what}"),
            RoundError::Backend(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for RoundError {}

impl From<Rejection> for RoundError {
    fn from(rejection: Rejection) -> Self {
        RoundError::Rejected(rejection)
    }
}

impl From<BackendError> for RoundError {
    fn from(error: BackendError) -> Self {
        RoundError::Backend(error)
    }
}
