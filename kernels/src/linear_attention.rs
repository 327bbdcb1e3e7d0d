//! Launch functions of the linear-attention kernels. All check every argument before they plan.

mod gated_delta;
pub mod gdn_chunk;
pub mod gdn_decode;
