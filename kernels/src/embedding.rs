//! Launch functions of the embedding kernels.

pub mod ple_gather;
