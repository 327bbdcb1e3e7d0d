//! One plain function per kernel, in f64, straight from the equations of its specification.
//! No kernel, launch or generator is in sight: that independence is the point of the crate.
#![forbid(unsafe_code)]

mod inputs;
mod registry;

pub mod canary;
pub mod elementwise;
pub mod embedding;
pub mod linear_attention;
pub mod selection;
pub mod transaction;

pub use inputs::{Expected, Inputs, Outputs};
pub use registry::{Reference, canary_reference, reference};
