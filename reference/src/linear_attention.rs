//! Linear attention: kernels that carry a matrix state per head.

pub mod causal_conv1d;
pub mod draft_conv;
pub mod gated_delta_rule;
pub mod gates;
pub mod gdn_chunk;
pub mod gdn_decode;
pub mod gdn_gates;
pub mod gdn_verify;
pub mod gdn_write_on_accept;
mod inputs;
pub mod kda_chunk;
pub mod kda_decode;
pub mod kda_gate;
pub mod kda_qk_norm;
pub mod norms;
pub mod qkvz_deinterleave;
pub mod state_convert;
mod tile;

pub use causal_conv1d::causal_conv1d;
pub use draft_conv::draft_conv;
pub use gdn_chunk::gdn_chunk;
pub use gdn_decode::gdn_decode;
pub use gdn_gates::gdn_gates;
pub use gdn_verify::gdn_verify;
pub use gdn_write_on_accept::gdn_write_on_accept;
pub use kda_chunk::kda_chunk;
pub use kda_decode::kda_decode;
pub use kda_gate::kda_gate;
pub use kda_qk_norm::kda_qk_norm;
pub use qkvz_deinterleave::qkvz_deinterleave;
pub use state_convert::state_convert;
