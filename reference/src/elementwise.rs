//! Kernels that treat each row alone.

pub mod gated_rms_norm;

pub use gated_rms_norm::gated_rms_norm;
