//! What the two targets of the virtual machine share: real PTX to start from, edits of it, kernels
//! made up from bytes, and launches that are compared with each other. An input never makes the
//! machine panic, hang or take unbounded memory: it gives results, or an error or fault with a type.

pub mod edit;
pub mod execute;
pub mod kernel;
pub mod samples;
pub mod spread;
pub mod text;
