//! Launch functions of the selection kernels.

pub mod argmax_rows;
pub mod row_topk;
