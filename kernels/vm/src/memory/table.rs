//! Which pages of a buffer there are. The larger the buffer, the more of it lies between what is
//! touched: so pages are the whole buffer, 64 KiB, or, where rows are likely far apart, small ones in
//! a table of two levels.

use super::{ID_SHIFT, PAGE_SHIFT};
use std::ops::Range;

/// Buffers up to this size are one page of exactly their length.
const SINGLE_PAGE_BYTES: u64 = 1 << 20;
/// Buffers beyond this size have small pages.
const PAGED_BYTES: u64 = 1 << 30;
const SMALL_PAGE_SHIFT: u32 = 11;
const LEAF_SHIFT: u32 = 8;
const LEAF: usize = 1 << LEAF_SHIFT;
/// Entries a table has room for when it is kept.
const KEPT: usize = 1024;

/// From the number of a page to 1 + its place; 0 for a page that nobody touched.
#[derive(Default)]
pub(super) struct Table {
    page_shift: u32,
    /// By page; of small pages, 1 + the place of a leaf by [`LEAF`] of them.
    root: Vec<u32>,
    leaves: Vec<[u32; LEAF]>,
}

impl Table {
    /// No page of a buffer of this length.
    pub fn lay_out(&mut self, len_bytes: u64) {
        self.page_shift = if len_bytes <= SINGLE_PAGE_BYTES {
            ID_SHIFT
        } else if len_bytes <= PAGED_BYTES {
            PAGE_SHIFT
        } else {
            SMALL_PAGE_SHIFT
        };
        self.leaves.clear();
        let shift = self.page_shift + if self.is_small() { LEAF_SHIFT } else { 0 };
        let entries = len_bytes.div_ceil(1 << shift).max(1) as usize;
        if entries <= 64 {
            self.root.clear();
            self.root.resize(entries, 0);
        } else {
            // A fresh zeroed table costs only what the allocator touches of it.
            self.root = vec![0; entries];
        }
    }

    /// Gives back what a small table does not need.
    pub fn shrink(&mut self) {
        self.root.truncate(KEPT);
        self.root.shrink_to(KEPT);
        self.leaves.clear();
        self.leaves.shrink_to(KEPT / LEAF);
    }

    #[inline(always)]
    pub fn page_shift(&self) -> u32 {
        self.page_shift
    }

    #[inline(always)]
    fn is_small(&self) -> bool {
        self.page_shift == SMALL_PAGE_SHIFT
    }

    /// 1 + the place of a page; 0 where untouched.
    #[inline(always)]
    pub fn slot(&self, page: u64) -> u32 {
        if self.is_small() { self.leaf_slot(page) } else { self.root[page as usize] }
    }

    #[inline(never)]
    fn leaf_slot(&self, page: u64) -> u32 {
        match self.root[(page >> LEAF_SHIFT) as usize] {
            0 => 0,
            leaf => self.leaves[leaf as usize - 1][page as usize % LEAF],
        }
    }

    /// A page is touched for the first time.
    pub fn set(&mut self, page: u64, slot: u32) {
        if !self.is_small() {
            self.root[page as usize] = slot;
            return;
        }
        let leaf = &mut self.root[(page >> LEAF_SHIFT) as usize];
        if *leaf == 0 {
            self.leaves.push([0; LEAF]);
            *leaf = self.leaves.len() as u32;
        }
        self.leaves[*leaf as usize - 1][page as usize % LEAF] = slot;
    }

    /// Pages that somebody touched, with their slots, in order.
    pub fn touched(&self) -> impl Iterator<Item = (u64, u32)> {
        let is_small = self.is_small();
        let roots = self.root.iter().enumerate().filter(|(_, entry)| **entry != 0);
        roots.flat_map(move |(at, entry)| {
            let (first, slots) = if is_small {
                (at * LEAF, &self.leaves[*entry as usize - 1][..])
            } else {
                (at, std::slice::from_ref(entry))
            };
            let slots = slots.iter().enumerate().filter(|(_, slot)| **slot != 0);
            slots.map(move |(within, slot)| ((first + within) as u64, *slot))
        })
    }

    /// The bytes of a page, of a buffer of this length.
    pub fn range(&self, page: u64, len_bytes: u64) -> Range<u64> {
        let start = page << self.page_shift;
        start..len_bytes.min(start + (1 << self.page_shift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_finds_its_pages_again_in_order() {
        for (len_bytes, pages) in [
            (0, vec![0]),
            (SINGLE_PAGE_BYTES, vec![0]),
            (SINGLE_PAGE_BYTES + 1, vec![0, 3, 16]),
            (PAGED_BYTES, vec![5, 16_383]),
            (PAGED_BYTES + 1, vec![0, 255, 256, 524_288]),
            (1 << 39, vec![1, (1 << 28) - 1]),
        ] {
            let mut table = Table::default();
            table.lay_out(len_bytes);
            for (place, page) in pages.iter().enumerate().rev() {
                assert_eq!(table.slot(*page), 0);
                table.set(*page, place as u32 + 1);
            }
            let expected: Vec<(u64, u32)> = pages.iter().copied().zip(1..).collect();
            assert_eq!(table.touched().collect::<Vec<_>>(), expected, "{len_bytes} bytes");
            for (page, slot) in expected {
                assert_eq!(table.slot(page), slot);
            }
            let last = *pages.last().expect("a page");
            if last > 1 && len_bytes != 1 << 39 {
                assert_eq!(table.range(last, len_bytes).end, len_bytes, "the last page ends there");
            }
            table.shrink();
            table.lay_out(1);
            assert_eq!(table.slot(0), 0);
        }
    }
}
