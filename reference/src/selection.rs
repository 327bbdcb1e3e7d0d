//! Selection: ids chosen by an order on scores.

pub mod argmax_rows;
pub mod row_topk;

pub use argmax_rows::argmax_rows;
pub use row_topk::row_topk;
