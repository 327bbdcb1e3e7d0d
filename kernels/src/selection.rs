//! Launch functions of the selection kernels.

pub mod argmax_rows;
