//! Which branch edges and basic blocks launches reached.

use crate::module::Entry;
use std::collections::BTreeMap;

/// Hit counts of every kernel launched so far, by kernel name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    entries: BTreeMap<String, EntryCoverage>,
}

/// Hit counts of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryCoverage {
    /// Blocks launched.
    pub launched: u64,
    /// Warps that took each branch edge, in the order of the code: for a conditional branch the
    /// taken edge and then the other.
    pub edges: Vec<u64>,
}

impl Coverage {
    /// No hits yet.
    pub fn new() -> Coverage {
        Coverage::default()
    }

    /// Counts of the kernel of that name, if it was launched.
    pub fn entry(&self, name: &str) -> Option<&EntryCoverage> {
        self.entries.get(name)
    }

    /// Every kernel launched, by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &EntryCoverage)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Coverage) {
        for (name, theirs) in &other.entries {
            let ours = self.entries.entry(name.clone()).or_default();
            ours.launched += theirs.launched;
            if ours.edges.len() < theirs.edges.len() {
                ours.edges.resize(theirs.edges.len(), 0);
            }
            for (edge, count) in ours.edges.iter_mut().zip(&theirs.edges) {
                *edge += count;
            }
        }
    }

    pub(crate) fn open(&mut self, entry: &Entry) -> &mut EntryCoverage {
        // The name is copied for the first launch alone.
        if !self.entries.contains_key(&entry.name) {
            self.entries.insert(entry.name.clone(), EntryCoverage::default());
        }
        let found = self.entries.get_mut(&entry.name).expect("the entry is there by now");
        if found.edges.len() != entry.edge_count() {
            found.edges = vec![0; entry.edge_count()];
        }
        found
    }
}

impl EntryCoverage {
    /// How often each basic block of `entry` was entered, in the order of
    /// [`Entry::blocks`].
    pub fn block_hits(&self, entry: &Entry) -> Vec<u64> {
        let mut hits = vec![0; entry.blocks.len()];
        if let Some(first) = hits.first_mut() {
            *first = self.launched;
        }
        for (edge, target) in self.edges.iter().zip(&entry.edge_targets) {
            hits[*target as usize] += edge;
        }
        for block in 1..hits.len() {
            if entry.falls_through[block - 1] {
                hits[block] += hits[block - 1];
            }
        }
        hits
    }
}
