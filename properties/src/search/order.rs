//! Batches of one subject in order: each is taken with aims that follow from the batches up to `AHEAD`
//! before it, and counted once all before it are. So nothing depends on who was faster.

use crate::counters::Counters;
use crate::verdict::Verdict;
use contracts::case::Case;
use kernels::backend::vm::Coverage;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Batches that may be under way at once. Part of what a seed means: it decides what a batch aims at.
pub(super) const AHEAD: u64 = 32;

/// What a batch's cases are to exercise besides their own draw.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Aims {
    /// Relations that lack cases, the least exercised first.
    pub(super) relations: Vec<String>,
    /// Whether a call that must be refused lacks cases.
    pub(super) rejections_lack: bool,
}

/// What a batch came to.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) counters: Counters,
    pub(super) coverage: Coverage,
    pub(super) unsupported: BTreeSet<String>,
    /// Turn, case and verdict of what failed.
    pub(super) failing: Vec<(u64, Case, Verdict)>,
}

/// Where the batches of one subject stand.
pub(super) struct InOrder {
    taken: u64,
    counted: u64,
    /// Aims of the batches from `taken` on, as far as they are known.
    aims: VecDeque<Aims>,
    waiting: BTreeMap<u64, Batch>,
    finished: bool,
}

impl InOrder {
    /// Nothing done; the first batches aim at what lacks when nothing is exercised.
    pub(super) fn new(first: &Aims) -> InOrder {
        let aims = (0..AHEAD).map(|_| first.clone()).collect();
        InOrder { taken: 0, counted: 0, aims, waiting: BTreeMap::new(), finished: false }
    }

    /// Whether the last batch that counts has been counted.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether a batch can be taken now.
    pub(super) fn is_ready(&self) -> bool {
        !self.finished && !self.aims.is_empty()
    }

    /// The next batch, by number, with its aims.
    pub(super) fn take(&mut self) -> Option<(u64, Aims)> {
        if self.finished {
            return None;
        }
        let aims = self.aims.pop_front()?;
        self.taken += 1;
        Some((self.taken - 1, aims))
    }

    /// A batch is done; it counts when those before it have. Past the end none counts.
    pub(super) fn put(&mut self, number: u64, batch: Batch) {
        if !self.finished {
            self.waiting.insert(number, batch);
        }
    }

    /// The next batch to count, if it is done.
    pub(super) fn next_in_order(&mut self) -> Option<(u64, Batch)> {
        let batch = self.waiting.remove(&self.counted)?;
        self.counted += 1;
        Some((self.counted - 1, batch))
    }

    /// After counting a batch: whether that was the last, or what the batch `AHEAD` later aims at.
    pub(super) fn follow(&mut self, finished: bool, lacking: impl FnOnce() -> Aims) {
        if finished {
            self.finished = true;
            self.waiting.clear();
        } else {
            self.aims.push_back(lacking());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking(name: &str) -> Aims {
        Aims { relations: vec![name.to_owned()], rejections_lack: false }
    }

    #[test]
    fn a_batch_aims_at_what_lacked_long_before_it_whoever_came_first() {
        let mut order = InOrder::new(&lacking("first"));
        for number in 0..AHEAD {
            assert_eq!(order.take().expect("nothing to wait for").0, number);
        }
        assert!(!order.is_ready() && order.take().is_none(), "the next aims are not known");
        order.put(1, Batch::default());
        assert!(order.next_in_order().is_none(), "the first is not done");
        order.put(0, Batch::default());
        for expected in [0, 1] {
            let (number, _) = order.next_in_order().expect("both are done");
            assert_eq!(number, expected);
            order.follow(false, || lacking(&format!("after {number}")));
        }
        assert_eq!(order.take(), Some((AHEAD, lacking("after 0"))));
        assert_eq!(order.take(), Some((AHEAD + 1, lacking("after 1"))));
    }

    #[test]
    fn past_the_end_nothing_counts_and_nothing_is_taken() {
        let mut order = InOrder::new(&lacking("first"));
        (0..4).for_each(|_| drop(order.take()));
        order.put(1, Batch::default());
        order.put(0, Batch::default());
        order.next_in_order().expect("done");
        order.follow(true, Aims::default);
        assert!(order.is_finished() && order.next_in_order().is_none() && order.take().is_none());
        order.put(2, Batch::default());
        assert!(order.next_in_order().is_none());
    }
}
