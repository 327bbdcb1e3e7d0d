//! The search for inputs on which a kernel and its reference disagree: choices become cases, cases
//! become verdicts, failing cases become small regressions. `cargo test`, `cargo fuzz` and the
//! `assay` command are three doors to this one path; none generates, compares or shrinks on its own.

pub mod check;
pub mod choices;
pub mod corpus;
pub mod counters;
pub mod examine;
pub mod fuzz_targets;
pub mod fuzzing;
pub mod generate;
pub mod mutate;
pub mod oracle;
pub mod prepare;
pub mod provenance;
pub mod reach;
pub mod reject;
pub mod relation;
pub mod replay;
pub mod report;
pub mod review;
pub mod rounds;
pub mod search;
pub mod shrink;
pub mod strategy;
pub mod subject;
pub mod values;
pub mod verdict;
