//! Stores to shared memory that the asynchronous proxy cannot see yet: those of threads' own
//! instructions that no `fence.proxy.async` has followed. A fence makes visible what its own warp
//! stored before, and what anybody stored before the block last met. Kept for modules with `wgmma` or
//! bulk copies out of shared memory alone; stores too old to keep are forgotten, so that some are missed and none invented.

use super::{Other, Toucher};

/// Stores that are kept.
const MOST: usize = 1 << 16;

#[derive(Clone, Copy)]
struct Stored {
    serial: u32,
    /// Cells of four bytes, from the first up to the one behind the last.
    cells: [u32; 2],
    by: Toucher,
    /// Meetings of the block until then.
    meetings: u64,
}

#[derive(Default)]
pub(crate) struct Generic {
    /// The store that a cell still shows; 0 for none.
    cells: Vec<u32>,
    stores: Vec<Stored>,
    last_serial: u32,
}

impl Generic {
    pub fn clear(&mut self) {
        self.cells.clear();
        self.stores.clear();
        self.last_serial = 0;
    }

    /// A thread stores to bytes.
    pub fn store(&mut self, offset: u64, len: usize, by: Toucher, meetings: u64) {
        let Ok(at) = usize::try_from(offset) else {
            return;
        };
        let (first, end) = (at / 4, at.saturating_add(len).div_ceil(4));
        if end > 1 << 20 {
            return;
        }
        if self.cells.len() < end {
            self.cells.resize(end, 0);
        }
        let cells = [first as u32, end as u32];
        let known = self.stores.last_mut().filter(|last| {
            last.cells[1] == cells[0]
                && last.meetings == meetings
                && (last.by.pc, last.by.thread / 32) == (by.pc, by.thread / 32)
        });
        if let Some(last) = known {
            last.cells[1] = cells[1];
        } else {
            if self.stores.len() >= MOST {
                let old: Vec<Stored> = self.stores.drain(..MOST / 2).collect();
                old.iter().for_each(|stored| self.uncover(stored));
            }
            self.last_serial += 1;
            let serial = self.last_serial;
            self.stores.push(Stored { serial, cells, by, meetings });
        }
        self.cells[first..end].fill(self.last_serial);
    }

    fn uncover(&mut self, stored: &Stored) {
        let [first, end] = stored.cells.map(|cell| cell as usize);
        for cell in &mut self.cells[first..end] {
            *cell = if *cell == stored.serial { 0 } else { *cell };
        }
    }

    /// `fence.proxy.async` by a warp.
    pub fn fence(&mut self, warp: u32, meetings: u64) {
        let stores = std::mem::take(&mut self.stores);
        let (seen, left): (Vec<_>, Vec<_>) = stores
            .into_iter()
            .partition(|stored| stored.by.thread / 32 == warp || stored.meetings != meetings);
        seen.iter().for_each(|stored| self.uncover(stored));
        self.stores = left;
    }

    /// Bytes come from elsewhere from now on.
    pub fn forget(&mut self, offset: usize, len: usize) {
        let end = offset.saturating_add(len).div_ceil(4).min(self.cells.len());
        if let Some(cells) = self.cells.get_mut(offset / 4..end) {
            cells.fill(0);
        }
    }

    /// A store to these bytes that the asynchronous proxy cannot see, and its first byte.
    pub fn unseen(&self, offset: usize, len: usize) -> Option<(usize, Other)> {
        let end = (offset + len).div_ceil(4).min(self.cells.len());
        let cells = self.cells.get(offset / 4..end)?;
        let (i, serial) = cells.iter().enumerate().find(|(_, serial)| **serial != 0)?;
        let at = self.stores.binary_search_by_key(serial, |stored| stored.serial).ok()?;
        let by = self.stores[at].by;
        // Lanes side by side are kept as one store.
        Some((offset / 4 * 4 + 4 * i, Other { thread: None, pc: Some(by.pc), block: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(thread: u32) -> Toucher {
        Toucher { thread, clock: 0, synced: 0, pc: 7 }
    }

    #[test]
    fn a_fence_shows_its_warps_stores_and_those_before_a_meeting() {
        let mut generic = Generic::default();
        generic.store(64, 4, thread(0), 0);
        generic.store(68, 4, thread(33), 0);
        generic.fence(1, 0);
        assert_eq!(generic.unseen(64, 16).map(|(at, _)| at), Some(64));
        assert!(generic.unseen(68, 4).is_none());
        generic.fence(2, 1);
        assert!(generic.unseen(64, 16).is_none());
    }

    #[test]
    fn a_later_store_is_not_shown_by_an_earlier_fence() {
        let mut generic = Generic::default();
        generic.store(0, 16, thread(0), 0);
        generic.fence(0, 0);
        generic.store(8, 4, thread(0), 0);
        let (at, other) = generic.unseen(0, 16).unwrap();
        assert_eq!((at, other.pc), (8, Some(7)));
        generic.forget(8, 4);
        assert!(generic.unseen(0, 16).is_none());
    }

    #[test]
    fn too_many_stores_are_forgotten() {
        let mut generic = Generic::default();
        for i in 0..2 * MOST as u64 {
            generic.store(8 * (i % 100), 4, thread(0), i);
        }
        assert!(generic.stores.len() <= MOST && generic.unseen(0, 4).is_some());
    }
}
