//! Histories of successive seeds until one fails, time is up, or there were enough.

use super::generate::history_of_seed;
use super::history::History;
use super::machine::run;
use super::shrink::{Shrunk, shrink};
use super::violation::Violation;
use kernels::backend::Backend;
use kernels::transaction::Planted;
use reference::transaction::projections::mixed;
use std::time::{Duration, Instant};

/// What to search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The first history.
    pub seed: u64,
    /// Most histories.
    pub histories: u64,
    /// Most time.
    pub limit: Duration,
    /// The wrong decision, if one is planted.
    pub planted: Option<Planted>,
}

/// A failing history, as found and made small.
#[derive(Clone, Debug)]
pub struct Found {
    /// As drawn.
    pub history: History,
    /// Its failure.
    pub violation: Violation,
    /// Made small.
    pub shrunk: Shrunk,
}

/// Runs histories; gives how many ran, their events, and the failure.
pub fn search(plan: Search, backend: &mut dyn Backend) -> (u64, u64, Option<Found>) {
    let started = Instant::now();
    let mut events = 0;
    for number in 0..plan.histories {
        if started.elapsed() >= plan.limit {
            return (number, events, None);
        }
        let history = history_of_seed(mixed(&[plan.seed, number]));
        events += history.steps.len() as u64;
        if let Some(violation) = run(&history, plan.planted, backend).violation {
            let shrunk = shrink(&history, &violation, plan.planted, backend);
            return (number + 1, events, Some(Found { history, violation, shrunk }));
        }
    }
    (plan.histories, events, None)
}
