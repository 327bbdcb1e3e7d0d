//! Embedding: rows of a table by id.

pub mod ple_gather;

pub use ple_gather::ple_gather;
