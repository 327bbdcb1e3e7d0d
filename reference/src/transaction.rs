//! Speculative rounds: what they move, what they must leave, and rows to move.

pub mod ordered;
pub mod projections;
pub mod speculative_round;
pub mod state_scatter;

pub use speculative_round::{Model, Refused, Shape, Slot, Stage};
pub use state_scatter::state_scatter;
