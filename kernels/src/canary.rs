//! Launch functions of kernels that are wrong, or can be told to be. Only the search runs them: the
//! canary, whose bug a search must find, and small kernels with one planted fault for each clause of the
//! vocabulary, which that clause alone must catch.

pub mod canary_experts;
pub mod canary_row_sum;
pub mod canary_rows;
pub mod canary_step;
pub mod canary_steps;

use crate::registry::PlanFn;

/// A fault, or a near-miss, of a kernel that can be told to be wrong.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// What is wrong, or only looks so.
    pub name: &'static str,
    /// The launch function with it.
    pub plan: PlanFn,
}
