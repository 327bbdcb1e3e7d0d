//! Selection: ids chosen by an order on scores.

pub mod argmax_rows;

pub use argmax_rows::argmax_rows;
