//! Launch functions of kernels that treat each row alone. All check every argument before they plan.

pub mod gated_rms_norm;
