//! A 64-bit digest of a case, by which a shrink knows what it has tried already.

use contracts::case::{Case, Content, Fill, Layout, Schedule, StoreForm};
use contracts::dtype::Poison;

/// FNV-1a over every decision of a case, `found` apart. Contents count by their stored form.
pub(super) fn digest(case: &Case) -> u64 {
    let mut fnv = Fnv(0xcbf2_9ce4_8422_2325);
    fnv.text(&case.contract);
    fnv.word(u64::from(case.version));
    fnv.map(&case.dtypes, |fnv, dtype| fnv.text(dtype.name()));
    fnv.map(&case.options, |fnv, word| fnv.text(word));
    fnv.map(&case.variants, |fnv, word| fnv.text(word));
    fnv.map(&case.dims, |fnv, size| fnv.word(*size as u64));
    fnv.map(&case.lists, |fnv, items| {
        fnv.word(items.len() as u64);
        items.iter().for_each(|item| fnv.word(*item as u64));
    });
    fnv.map(&case.scalars, |fnv, bits| fnv.word(*bits));
    fnv.map(&case.stores, |fnv, form| {
        fnv.word(match form {
            StoreForm::Separate => 0,
            StoreForm::Packed { pad } => pad + 1,
        });
    });
    fnv.word(match case.poison {
        Poison::Quiet => 0,
        Poison::Signalling => 1,
        Poison::Large => 2,
    });
    fnv.word(match case.schedule {
        Schedule::InOrder => 0,
        Schedule::Seeded(seed) => seed.wrapping_add(1),
    });
    fnv.map(&case.tensors, |fnv, tensor| {
        let (kind, amount) = match tensor.layout {
            Layout::Dense => (0, 0),
            Layout::RowPadded(pad) => (1, pad),
            Layout::OuterPadded(pad) => (2, pad),
            Layout::Offset(offset) => (3, offset),
            Layout::Wide => (4, 0),
            Layout::Rank0 => (5, 0),
            Layout::Permuted => (6, 0),
            Layout::OddUnitStrides(more) => (7, more),
        };
        fnv.word(kind);
        fnv.word(amount);
        fnv.content(&tensor.content);
    });
    fnv.0
}

struct Fnv(u64);

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn word(&mut self, word: u64) {
        self.bytes(&word.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    /// Maps are hashed in the order of their keys: order carries no meaning.
    fn map<T>(&mut self, map: &contracts::case::Decisions<T>, each: impl Fn(&mut Fnv, &T)) {
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_unstable_by_key(|(name, _)| *name);
        self.word(entries.len() as u64);
        for (name, value) in entries {
            self.text(name);
            each(self, value);
        }
    }

    fn content(&mut self, content: &Content) {
        match content {
            Content::Derived => self.word(0),
            Content::Output => self.word(1),
            Content::Dense(bytes) => {
                self.word(2);
                self.word(bytes.len() as u64);
                self.bytes(bytes);
            }
            Content::Sparse { fill, at } => {
                match fill {
                    Fill::Bits(bits) => [3, *bits].map(|word| self.word(word)),
                    Fill::Hashed { seed } => [4, *seed].map(|word| self.word(word)),
                };
                self.word(at.len() as u64);
                for (index, bits) in at {
                    self.word(*index);
                    self.word(*bits);
                }
            }
        }
    }
}
