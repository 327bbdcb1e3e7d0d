//! Linear attention: kernels that carry a matrix state per head.

pub mod gated_delta_rule;
pub mod gates;
pub mod gdn_chunk;
pub mod gdn_decode;
mod inputs;
pub mod norms;

pub use gdn_chunk::gdn_chunk;
pub use gdn_decode::gdn_decode;
