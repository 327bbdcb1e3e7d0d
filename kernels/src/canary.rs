//! Launch functions of deliberately wrong kernels. Only the search runs them.

pub mod canary_row_sum;
