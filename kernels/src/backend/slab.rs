//! How an arena lies in one piece of device memory, and what a run changed in it.
//!
//! Buffers start 256-byte aligned with at least 256 bytes of guard before and after. Buffers up to
//! [`HUGE_BYTES`] travel whole, as one image. A larger one is filled on the device and only the pages
//! that the host touched (wrote or marked) travel and are compared: a store elsewhere in it is not
//! seen. A store of the very value a byte already held cannot be told from no store.

use ptx_vm::{BufferId, Memory, marks};
use std::ops::Range;

use super::Fault;

/// Beyond this a buffer is not copied whole.
pub(super) const HUGE_BYTES: u64 = 64 << 20;
/// The byte of guard bands.
pub(super) const GUARD: u8 = 0xa5;
const GUARD_BYTES: u64 = 256;
const ALIGN_BYTES: u64 = 256;

/// Where one buffer lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub buffer: BufferId,
    /// From the slab's start.
    pub base: u64,
    pub len_bytes: u64,
}

impl Placement {
    fn end(&self) -> u64 {
        self.base + self.len_bytes
    }
}

/// Where everything lies: the copied buffers first, then the huge ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// In order of their bases.
    placements: Vec<Placement>,
    /// Position in `placements` by buffer number.
    order: Vec<usize>,
    /// How many of them are copied whole.
    copied: usize,
    /// Length of the part copied whole, guards included.
    pub image_bytes: u64,
    /// Length of everything.
    pub total_bytes: u64,
}

impl Layout {
    /// Lays out every buffer of `memory`.
    pub(super) fn of(memory: &Memory) -> Layout {
        let (copied, huge): (Vec<_>, Vec<_>) =
            memory.buffers().partition(|&buffer| memory.len_bytes(buffer) <= HUGE_BYTES);
        let mut layout = Layout {
            placements: Vec::with_capacity(copied.len() + huge.len()),
            order: vec![0; copied.len() + huge.len()],
            copied: copied.len(),
            image_bytes: GUARD_BYTES,
            total_bytes: GUARD_BYTES,
        };
        layout.place(&copied, memory);
        layout.image_bytes = layout.total_bytes;
        layout.place(&huge, memory);
        layout
    }

    fn place(&mut self, buffers: &[BufferId], memory: &Memory) {
        for &buffer in buffers {
            let base = self.total_bytes.next_multiple_of(ALIGN_BYTES);
            let len_bytes = memory.len_bytes(buffer);
            self.order[buffer.0 as usize] = self.placements.len();
            self.placements.push(Placement { buffer, base, len_bytes });
            self.total_bytes = base + len_bytes + GUARD_BYTES;
        }
    }

    /// Position of a byte of a buffer, from the slab's start.
    pub(super) fn position(&self, buffer: BufferId, offset: u64) -> u64 {
        self.placements[self.order[buffer.0 as usize]].base + offset
    }

    /// The buffers that are not copied whole.
    pub(super) fn huge(&self) -> &[Placement] {
        &self.placements[self.copied..]
    }

    /// The first byte of one of the first `buffers` buffers at which two images differ. Guards do not
    /// count, nor does scratch, whose contents no one is promised: it follows the buffers of a call.
    pub(super) fn first_difference(
        &self,
        buffers: u32,
        one: &[u8],
        other: &[u8],
    ) -> Option<(BufferId, u64)> {
        let placements = self.placements[..self.copied].iter();
        placements.filter(|placement| placement.buffer.0 < buffers).find_map(|placement| {
            let bytes = placement.base as usize..placement.end() as usize;
            let at = one[bytes.clone()]
                .iter()
                .zip(&other[bytes])
                .position(|(one, other)| one != other)?;
            Some((placement.buffer, at as u64))
        })
    }

    /// The bytes of the copied part: guards and buffers.
    pub(super) fn image(&self, memory: &Memory, out: &mut Vec<u8>) {
        out.clear();
        out.resize(self.image_bytes as usize, GUARD);
        for placement in &self.placements[..self.copied] {
            let target = &mut out[placement.base as usize..placement.end() as usize];
            memory.read(placement.buffer, 0, target);
        }
    }

    /// Guard bands of the whole slab that the image does not hold.
    #[cfg_attr(
        not(any(test, feature = "cuda")),
        expect(dead_code, reason = "what is not copied lies on a device alone")
    )]
    pub(super) fn huge_guards(&self) -> Vec<Range<u64>> {
        let mut start = self.image_bytes;
        let mut guards = Vec::new();
        for placement in self.huge() {
            guards.push(start..placement.base);
            start = placement.end();
        }
        if start < self.total_bytes {
            guards.push(start..self.total_bytes);
        }
        guards.retain(|guard| !guard.is_empty());
        guards
    }

    /// Copies what the run changed in the image back to `memory`; gives the first broken rule.
    pub(super) fn settle_image(
        &self,
        before: &[u8],
        after: &[u8],
        memory: &mut Memory,
    ) -> Option<Fault> {
        let mut fault = None;
        let mut guard_start = 0;
        for placement in &self.placements[..self.copied] {
            let guard = guard_start..placement.base;
            fault = fault.or_else(|| self.settle_guard(guard, after, memory));
            guard_start = placement.end();
        }
        fault = fault.or_else(|| self.settle_guard(guard_start..self.image_bytes, after, memory));
        for placement in &self.placements[..self.copied] {
            let bytes = placement.base as usize..placement.end() as usize;
            let stray =
                settle_bytes(placement.buffer, 0, &before[bytes.clone()], &after[bytes], memory);
            fault = fault.or(stray);
        }
        fault
    }

    /// Checks one guard band, whose slab bytes are `after[guard]`.
    fn settle_guard(&self, guard: Range<u64>, after: &[u8], memory: &Memory) -> Option<Fault> {
        let bytes = &after[guard.start as usize..guard.end as usize];
        self.guard_fault(guard.start, bytes, memory)
    }

    /// The fault of a guard band that starts at slab position `start` and now holds `bytes`.
    pub(super) fn guard_fault(&self, start: u64, bytes: &[u8], memory: &Memory) -> Option<Fault> {
        let at = bytes.iter().position(|&byte| byte != GUARD)?;
        let position = start + at as u64;
        // The nearer of the buffer that ends before the band and the one that starts after it.
        let next = self.placements.iter().find(|placement| placement.base > position);
        let last = self.placements.iter().rev().find(|placement| placement.base <= position);
        let nearest = match (last, next) {
            (Some(last), Some(next)) if next.base - position < position - last.end() => next,
            (Some(last), _) => last,
            (None, Some(next)) => next,
            (None, None) => return None,
        };
        Some(Fault::GuardWrite {
            buffer: memory.name(nearest.buffer).to_owned(),
            offset_bytes: position as i64 - nearest.base as i64,
            before: GUARD,
            after: bytes[at],
        })
    }
}

/// Copies the bytes that changed back to `memory` and marks them written; gives the first that no
/// thread may write, which stays as it was. `offset` is that of the two slices in the buffer.
pub(super) fn settle_bytes(
    buffer: BufferId,
    offset: u64,
    before: &[u8],
    after: &[u8],
    memory: &mut Memory,
) -> Option<Fault> {
    let mut fault = None;
    for run in changed_runs(before, after) {
        let place = offset + run.start as u64..offset + run.end as u64;
        let shadow = memory.marks(buffer, place.clone()).into_owned();
        let stray = shadow.iter().position(|mark| mark & marks::UNWRITABLE != 0);
        if let Some(at) = stray {
            fault = fault.or_else(|| {
                Some(Fault::StrayWrite {
                    buffer: memory.name(buffer).to_owned(),
                    offset_bytes: place.start + at as u64,
                    before: before[run.start + at],
                    after: after[run.start + at],
                })
            });
            continue;
        }
        memory.write(buffer, place.start, &after[run]);
        memory.mark(buffer, place, marks::WRITTEN, 0);
    }
    fault
}

/// Maximal runs of positions where the slices, of one length, differ.
fn changed_runs(before: &[u8], after: &[u8]) -> Vec<Range<usize>> {
    const CHUNK: usize = 64;
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (number, (old, new)) in before.chunks(CHUNK).zip(after.chunks(CHUNK)).enumerate() {
        if old == new {
            continue;
        }
        for at in (0..old.len()).filter(|&at| old[at] != new[at]) {
            let position = number * CHUNK + at;
            match runs.last_mut() {
                Some(run) if run.end == position => run.end += 1,
                _ => runs.push(position..position + 1),
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> (Memory, BufferId, BufferId) {
        let mut memory = Memory::new();
        let a = memory.allocate("a", 100, &[1], marks::UNWRITABLE);
        memory.write(a, 0, &[9; 100]);
        let b = memory.allocate("b", 300, &[2, 3], 0);
        (memory, a, b)
    }

    fn run(change: impl Fn(&Layout, &mut [u8])) -> (Memory, Option<Fault>) {
        let (mut memory, ..) = memory();
        let layout = Layout::of(&memory);
        let mut before = Vec::new();
        layout.image(&memory, &mut before);
        let mut after = before.clone();
        change(&layout, &mut after);
        let fault = layout.settle_image(&before, &after, &mut memory);
        (memory, fault)
    }

    #[test]
    fn buffers_are_aligned_and_guarded() {
        let (mut memory, a, b) = memory();
        let huge = memory.allocate("huge", HUGE_BYTES + 1, &[], 0);
        let last = memory.allocate("last", 1, &[], 0);
        let layout = Layout::of(&memory);
        let mut end = 0;
        for buffer in [a, b, last, huge] {
            let base = layout.position(buffer, 0);
            assert_eq!(base % 256, 0);
            assert!(base >= end + 256, "a guard before {buffer:?}");
            end = base + memory.len_bytes(buffer);
        }
        assert!(layout.total_bytes >= end + 256, "a guard at the end");
        assert_eq!(layout.huge().len(), 1);
        let guards = layout.huge_guards();
        assert_eq!(guards.last(), Some(&(end..layout.total_bytes)));
        assert!(layout.position(huge, 0) >= layout.image_bytes);
    }

    #[test]
    fn nothing_changed_is_nothing_written() {
        let (memory, fault) = run(|_, _| {});
        assert!(fault.is_none());
        assert!(memory.buffers().all(|buffer| memory.written_ranges(buffer).is_empty()));
    }

    #[test]
    fn changed_bytes_come_back_and_are_marked() {
        let b = BufferId(1);
        let (memory, fault) = run(|layout, bytes| {
            let at = layout.position(b, 62) as usize;
            bytes[at..at + 4].copy_from_slice(&[7; 4]);
        });
        assert!(fault.is_none());
        assert_eq!(memory.written_ranges(b), vec![62..66]);
        let mut out = [0; 6];
        memory.read(b, 61, &mut out);
        assert_eq!(out, [3, 7, 7, 7, 7, 2]);
        assert_eq!(memory.marks(b, 61..63)[..], [0, marks::INIT | marks::WRITTEN]);
    }

    #[test]
    fn a_store_to_a_read_only_byte_is_a_fault_and_undone() {
        let a = BufferId(0);
        let (memory, fault) = run(|layout, bytes| bytes[layout.position(a, 99) as usize] = 8);
        let Some(Fault::StrayWrite { buffer, offset_bytes: 99, before: 9, after: 8 }) = fault
        else {
            panic!("no stray write: {fault:?}")
        };
        assert_eq!(buffer, "a");
        let mut out = [0];
        memory.read(a, 99, &mut out);
        assert_eq!(out, [9]);
    }

    #[test]
    fn a_store_outside_every_buffer_names_the_nearest() {
        for (buffer, offset, expected) in [
            (0, -1i64, ("a", -1)),
            (0, 100, ("a", 100)),
            (0, 355, ("b", -157)),
            (1, 300, ("b", 300)),
            (1, 555, ("b", 555)),
        ] {
            let (_, fault) = run(|layout, bytes| {
                bytes[(layout.position(BufferId(buffer), 0) as i64 + offset) as usize] = 0;
            });
            let Some(Fault::GuardWrite { buffer, offset_bytes, .. }) = &fault else {
                panic!("no guard write: {fault:?}")
            };
            assert_eq!((buffer.as_str(), *offset_bytes), expected);
        }
    }

    #[test]
    fn a_difference_between_images_is_named_by_buffer() {
        let (memory, _, b) = memory();
        let layout = Layout::of(&memory);
        let mut one = Vec::new();
        layout.image(&memory, &mut one);
        let mut other = one.clone();
        other[0] ^= 1;
        assert_eq!(layout.first_difference(2, &one, &other), None, "a guard does not count");
        other[layout.position(b, 5) as usize] ^= 1;
        assert_eq!(layout.first_difference(2, &one, &other), Some((b, 5)));
        assert_eq!(layout.first_difference(1, &one, &other), None, "scratch does not count");
    }

    #[test]
    fn runs_cross_chunks() {
        let mut after = vec![0; 200];
        after[60..70].fill(1);
        after[199] = 1;
        assert_eq!(changed_runs(&[0; 200], &after), vec![60..70, 199..200]);
    }
}
