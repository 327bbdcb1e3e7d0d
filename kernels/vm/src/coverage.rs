//! Which branch edges, basic blocks and lines launches reached. Edges are counted; blocks follow
//! from them, and lines from blocks: whoever enters a block executes all of it, unless the launch
//! ends there in a fault.

use crate::module::{Entry, Module};
use std::collections::BTreeMap;
use std::sync::Arc;

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

/// Hits of one kernel by line. A line that stands in several blocks (inlined, or a loop's head)
/// has those of the block entered most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineHits {
    /// By line of the PTX text.
    pub ptx: BTreeMap<u32, u64>,
    /// By line of each CUDA source file, where the PTX was compiled with line information.
    pub source: BTreeMap<Arc<str>, BTreeMap<u32, u64>>,
}

impl EntryCoverage {
    /// How often the lines of `entry` were executed: those of every instruction that can be
    /// reached at all, executed or not.
    pub fn line_hits(&self, module: &Module, entry: &Entry) -> LineHits {
        let mut lines = LineHits::default();
        let hits = self.block_hits(entry);
        let reachable = entry.reachable_blocks();
        for block in 0..hits.len() {
            if !reachable[block] {
                continue;
            }
            let end = entry.block_starts.get(block + 1).copied();
            let end = end.map_or(entry.places.len(), |end| end as usize);
            for place in &entry.places[entry.block_starts[block] as usize..end] {
                raise(&mut lines.ptx, place.ptx_line, hits[block]);
                if let Some(source) = module.source(*place) {
                    raise(lines.source.entry(source.file).or_default(), source.line, hits[block]);
                }
            }
        }
        lines
    }
}

fn raise(lines: &mut BTreeMap<u32, u64>, line: u32, hits: u64) {
    let most = lines.entry(line).or_default();
    *most = hits.max(*most);
}

impl LineHits {
    /// Adds another kernel's hits, or another run's.
    pub fn merge(&mut self, other: &LineHits) {
        let add = |ours: &mut BTreeMap<u32, u64>, theirs: &BTreeMap<u32, u64>| {
            for (line, hits) in theirs {
                *ours.entry(*line).or_default() += hits;
            }
        };
        add(&mut self.ptx, &other.ptx);
        for (file, lines) in &other.source {
            add(self.source.entry(file.clone()).or_default(), lines);
        }
    }

    /// Executed CUDA source lines, and all.
    pub fn source_lines(&self) -> (usize, usize) {
        let all = self.source.values().flat_map(BTreeMap::values);
        (all.clone().filter(|hits| **hits > 0).count(), all.count())
    }
}
