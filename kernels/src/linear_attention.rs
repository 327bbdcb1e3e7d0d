//! Launch functions of the linear-attention kernels. All check every argument before they plan.

pub mod causal_conv1d;
pub mod draft_conv;
mod gated_delta;
pub mod gdn_chunk;
pub mod gdn_decode;
pub mod gdn_gates;
pub mod gdn_verify;
pub mod gdn_write_on_accept;
pub mod qkvz_deinterleave;
pub mod state_convert;
