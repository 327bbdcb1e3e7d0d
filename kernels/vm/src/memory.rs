//! Global memory: named buffers whose every byte has data and one shadow byte of marks.
//! The buffer's number stands in address bits 40 and up, so an address names its buffer
//! exactly; pages are made when first touched.

mod spare;
mod table;

use crate::race::Shadow;
use spare::Spare;
use std::borrow::Cow;
use std::ops::Range;
use table::Table;

/// One buffer of a [`Memory`].
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug, Hash)]
pub struct BufferId(pub u32);

impl BufferId {
    /// Stands for a variable of the module, which no memory holds.
    pub const VARIABLE: BufferId = BufferId(u32::MAX);
}

/// The shadow marks of one byte.
pub mod marks {
    /// The byte has a defined value.
    pub const INIT: u8 = 1;
    /// The contract promises that no thread reads the byte.
    pub const UNREAD: u8 = 2;
    /// No thread may store to the byte.
    pub const UNWRITABLE: u8 = 4;
    /// A thread stored to the byte.
    pub const WRITTEN: u8 = 8;
    /// Blocks may store to the byte at once as long as all store the same value.
    pub const SAME_VALUE: u8 = 16;
}

const ID_SHIFT: u32 = 40;
const PAGE_SHIFT: u32 = 16;
/// Buffers kept from one set to the next.
const KEPT_BUFFERS: usize = 256;
/// Bytes of a fill, and entries of a list of pages, that a kept one has room for.
const KEPT_ENTRIES: usize = 1024;

#[derive(Default)]
pub(crate) struct Page {
    pub data: Vec<u8>,
    pub marks: Vec<u8>,
    /// Who touched it, in launches of several blocks.
    pub shadow: Shadow,
    /// All bytes are [`marks::UNWRITABLE`]; may be false where they are.
    pub constant: bool,
}

impl Page {
    /// Memory it holds on to.
    fn kept_bytes(&self) -> usize {
        self.data.capacity() + self.marks.capacity() + self.shadow.kept_bytes()
    }
}

struct Buffer {
    name: String,
    len_bytes: u64,
    fill: Vec<u8>,
    initial_marks: u8,
    /// From a page's number to its place in `pages`.
    table: Table,
    pages: Vec<Page>,
}

/// All global memory a launch can reach.
pub struct Memory {
    buffers: Vec<Buffer>,
    spare_pages: Spare,
    spare_buffers: Vec<Buffer>,
    /// Bytes of the pages that threads touched first; beyond the limit once one was refused.
    touched_bytes: u64,
    touch_limit_bytes: u64,
    /// The first number of an access that no record in the pages holds.
    pub(crate) next_access: u32,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            buffers: Vec::new(),
            spare_pages: Spare::default(),
            spare_buffers: Vec::new(),
            touched_bytes: 0,
            touch_limit_bytes: u64::MAX,
            next_access: 0,
        }
    }
}

impl Buffer {
    fn page_len_bytes(&self, page: u64) -> usize {
        let range = self.table.range(page, self.len_bytes);
        (range.end - range.start) as usize
    }

    fn page_shift(&self) -> u32 {
        self.table.page_shift()
    }

    fn touch(&mut self, page: u64, spare: &mut Spare) -> &mut Page {
        let slot = self.table.slot(page);
        if slot != 0 {
            return &mut self.pages[slot as usize - 1];
        }
        let len = self.page_len_bytes(page);
        let mut fresh = spare.take();
        fresh.data.clear();
        fresh.marks.clear();
        fresh.marks.resize(len, self.initial_marks);
        fresh.constant = self.initial_marks & marks::UNWRITABLE != 0;
        match self.fill.as_slice() {
            [] => fresh.data.resize(len, 0),
            [byte] => fresh.data.resize(len, *byte),
            fill => {
                fresh.data.reserve(len);
                let phase = ((page << self.page_shift()) % fill.len() as u64) as usize;
                fresh.data.extend_from_slice(&fill[phase..]);
                fresh.data.truncate(len);
                fresh.data.extend_from_slice(&fill[..fill.len().min(len - fresh.data.len())]);
                // What is there repeats: double it, whole patterns at a time.
                while fresh.data.len() < len {
                    let whole = fresh.data.len() / fill.len() * fill.len();
                    let have = whole.min(len - fresh.data.len());
                    let from = fresh.data.len() - whole;
                    fresh.data.extend_from_within(from..from + have);
                }
            }
        }
        self.pages.push(fresh);
        self.table.set(page, self.pages.len() as u32);
        self.pages.last_mut().expect("a page was just pushed")
    }

    fn fill_byte(&self, offset: u64) -> u8 {
        if self.fill.is_empty() { 0 } else { self.fill[(offset % self.fill.len() as u64) as usize] }
    }
}

impl Memory {
    /// A memory without buffers.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Drops every buffer and keeps allocations for the next ones: some tens of MiB of them at most,
    /// whatever the buffers took.
    pub fn clear(&mut self) {
        for mut buffer in self.buffers.drain(..) {
            for page in buffer.pages.drain(..) {
                self.spare_pages.put(page);
            }
            if self.spare_buffers.len() < KEPT_BUFFERS {
                buffer.table.shrink();
                buffer.pages.shrink_to(KEPT_ENTRIES);
                buffer.fill.clear();
                buffer.fill.shrink_to(KEPT_ENTRIES);
                self.spare_buffers.push(buffer);
            }
        }
        self.touched_bytes = 0;
    }

    /// Threads may be the first to touch pages of this many bytes in all; each costs twice its size.
    /// Beyond it a launch ends with [`crate::FaultKind::MemoryBudget`]. Without a limit, a kernel
    /// that walks through a sparse buffer takes all the memory there is.
    pub fn limit_touched(&mut self, limit_bytes: u64) {
        self.touch_limit_bytes = limit_bytes;
    }

    /// The limit, when a page was refused because of it.
    pub(crate) fn exhausted(&self) -> Option<u64> {
        (self.touched_bytes > self.touch_limit_bytes).then_some(self.touch_limit_bytes)
    }

    /// Adds a buffer. A byte never written reads as `fill[offset % fill.len()]` (zero for an
    /// empty pattern) and starts with `marks`. The length is at most 2³⁹ bytes.
    ///
    /// # Panics
    /// When the length exceeds 2³⁹ bytes or 2²³ buffers exist.
    pub fn allocate(&mut self, name: &str, len_bytes: u64, fill: &[u8], marks: u8) -> BufferId {
        assert!(len_bytes <= 1 << 39, "a buffer holds at most 2^39 bytes");
        assert!(self.buffers.len() < 1 << 23, "too many buffers");
        let mut buffer = self.spare_buffers.pop().unwrap_or_else(|| Buffer {
            name: String::new(),
            len_bytes,
            fill: Vec::new(),
            initial_marks: marks,
            table: Table::default(),
            pages: Vec::new(),
        });
        buffer.name.clear();
        buffer.name.push_str(name);
        buffer.fill.clear();
        buffer.fill.extend_from_slice(fill);
        buffer.len_bytes = len_bytes;
        buffer.initial_marks = marks;
        buffer.table.lay_out(len_bytes);
        self.buffers.push(buffer);
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Drops what is recorded of accesses, so that their numbers can begin anew.
    pub(crate) fn forget_accesses(&mut self) {
        let pages = self.buffers.iter_mut().flat_map(|buffer| &mut buffer.pages);
        for page in pages {
            page.shadow.forget();
        }
        self.spare_pages.forget_accesses();
        self.next_access = 0;
    }

    fn buffer(&self, b: BufferId) -> &Buffer {
        &self.buffers[b.0 as usize]
    }

    fn assert_range(&self, b: BufferId, range: &Range<u64>) {
        let buffer = self.buffer(b);
        assert!(
            range.start <= range.end && range.end <= buffer.len_bytes,
            "bytes {}..{} lie outside {} ({} bytes)",
            range.start,
            range.end,
            buffer.name,
            buffer.len_bytes
        );
    }

    /// Calls `f` with each touched page piece: (page, range in the page, position in `range`).
    fn each_piece(
        &mut self,
        b: BufferId,
        range: Range<u64>,
        mut f: impl FnMut(&mut Page, Range<usize>, usize),
    ) {
        self.assert_range(b, &range);
        let buffer = &mut self.buffers[b.0 as usize];
        let shift = buffer.page_shift();
        let mut at = range.start;
        while at < range.end {
            let page = at >> shift;
            let end = range.end.min((page + 1) << shift);
            let start_in_page = (at - (page << shift)) as usize;
            let len = (end - at) as usize;
            let piece = buffer.touch(page, &mut self.spare_pages);
            f(piece, start_in_page..start_in_page + len, (at - range.start) as usize);
            at = end;
        }
    }

    /// Host write: sets data and [`marks::INIT`].
    ///
    /// # Panics
    /// When the range leaves the buffer.
    pub fn write(&mut self, b: BufferId, offset: u64, bytes: &[u8]) {
        self.each_piece(b, offset..offset + bytes.len() as u64, |page, at, from| {
            let len = at.len();
            page.data[at.clone()].copy_from_slice(&bytes[from..from + len]);
            for mark in &mut page.marks[at] {
                *mark |= marks::INIT;
            }
        });
    }

    /// Host read of any bytes, whatever their marks.
    ///
    /// # Panics
    /// When the range leaves the buffer.
    pub fn read(&self, b: BufferId, offset: u64, out: &mut [u8]) {
        self.assert_range(b, &(offset..offset + out.len() as u64));
        let buffer = self.buffer(b);
        let mut at = offset;
        let end = offset + out.len() as u64;
        while at < end {
            let page = at >> buffer.page_shift();
            let piece_end = end.min((page + 1) << buffer.page_shift());
            let target = &mut out[(at - offset) as usize..(piece_end - offset) as usize];
            match buffer.table.slot(page) {
                0 => {
                    for (i, byte) in target.iter_mut().enumerate() {
                        *byte = buffer.fill_byte(at + i as u64);
                    }
                }
                slot => {
                    let start = (at - (page << buffer.page_shift())) as usize;
                    let data = &buffer.pages[slot as usize - 1].data;
                    target.copy_from_slice(&data[start..start + target.len()]);
                }
            }
            at = piece_end;
        }
    }

    /// Sets the marks `set` and then clears the marks `clear` of every byte in `range`.
    ///
    /// # Panics
    /// When the range leaves the buffer.
    pub fn mark(&mut self, b: BufferId, range: Range<u64>, set: u8, clear: u8) {
        self.each_piece(b, range, |page, at, _| {
            page.constant &= clear & marks::UNWRITABLE == 0;
            for mark in &mut page.marks[at] {
                *mark = (*mark | set) & !clear;
            }
        });
    }

    /// The marks of a range, one byte each.
    ///
    /// # Panics
    /// When the range leaves the buffer.
    pub fn marks(&self, b: BufferId, range: Range<u64>) -> Cow<'_, [u8]> {
        self.assert_range(b, &range);
        let buffer = self.buffer(b);
        if range.is_empty() {
            return Cow::Borrowed(&[]);
        }
        let shift = buffer.page_shift();
        let first = range.start >> shift;
        if first == (range.end - 1) >> shift && buffer.table.slot(first) != 0 {
            let start = (range.start - (first << shift)) as usize;
            let page = &buffer.pages[buffer.table.slot(first) as usize - 1];
            return Cow::Borrowed(&page.marks[start..start + (range.end - range.start) as usize]);
        }
        let mut out = vec![buffer.initial_marks; (range.end - range.start) as usize];
        let mut at = range.start;
        while at < range.end {
            let page = at >> shift;
            let end = range.end.min((page + 1) << shift);
            let slot = buffer.table.slot(page);
            if slot != 0 {
                let start = (at - (page << shift)) as usize;
                let len = (end - at) as usize;
                let from = (at - range.start) as usize;
                out[from..from + len]
                    .copy_from_slice(&buffer.pages[slot as usize - 1].marks[start..start + len]);
            }
            at = end;
        }
        Cow::Owned(out)
    }

    /// The device address of a byte; the base of every buffer is 256-aligned (in fact 2⁴⁰).
    pub fn address(&self, b: BufferId, offset: u64) -> u64 {
        (u64::from(b.0 + 1) << ID_SHIFT).wrapping_add(offset)
    }

    /// Length of a buffer.
    pub fn len_bytes(&self, b: BufferId) -> u64 {
        self.buffer(b).len_bytes
    }

    /// Name of a buffer.
    pub fn name(&self, b: BufferId) -> &str {
        &self.buffer(b).name
    }

    /// Every buffer, in the order of allocation.
    pub fn buffers(&self) -> impl Iterator<Item = BufferId> + use<> {
        (0..self.buffers.len() as u32).map(BufferId)
    }

    /// The buffer nearest to a device address and the signed byte offset from its base;
    /// `None` where the address belongs to no buffer's region.
    pub fn locate(&self, address: u64) -> Option<(BufferId, i64)> {
        let id = address >> ID_SHIFT;
        let offset = address & ((1 << ID_SHIFT) - 1);
        let below = offset >= 1 << (ID_SHIFT - 1);
        let exists = |id: u64| id >= 1 && id <= self.buffers.len() as u64;
        if below && exists(id + 1) {
            return Some((BufferId(id as u32), offset as i64 - (1 << ID_SHIFT)));
        }
        exists(id).then(|| (BufferId(id as u32 - 1), offset as i64))
    }

    /// Maximal runs of bytes some thread stored to.
    pub fn written_ranges(&self, b: BufferId) -> Vec<Range<u64>> {
        const EIGHT: u64 = u64::from_ne_bytes([marks::WRITTEN; 8]);
        let buffer = self.buffer(b);
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut push = |start: u64, end: u64| match runs.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => runs.push(start..end),
        };
        let untouched = buffer.initial_marks & marks::WRITTEN != 0;
        let mut next = 0;
        for (page, slot) in buffer.table.touched() {
            let Range { start: base, end } = buffer.table.range(page, buffer.len_bytes);
            if untouched && next < base {
                push(next, base);
            }
            next = end;
            let all = &buffer.pages[slot as usize - 1].marks;
            for (i, eight) in all.chunks(8).enumerate() {
                let at = base + i as u64 * 8;
                if let Ok(word) = <[u8; 8]>::try_from(eight) {
                    match u64::from_ne_bytes(word) & EIGHT {
                        0 => continue,
                        EIGHT => {
                            push(at, at + 8);
                            continue;
                        }
                        _ => {}
                    }
                }
                for (j, mark) in eight.iter().enumerate() {
                    if mark & marks::WRITTEN != 0 {
                        push(at + j as u64, at + j as u64 + 1);
                    }
                }
            }
        }
        if untouched && next < buffer.len_bytes {
            push(next, buffer.len_bytes);
        }
        runs
    }

    /// The pattern a never-written byte of the buffer holds; empty means zero.
    pub fn fill(&self, b: BufferId) -> &[u8] {
        &self.buffer(b).fill
    }

    /// Maximal ranges of bytes around those with storage of their own, by 64 KiB. Every byte outside
    /// them holds the fill and the initial marks.
    pub fn touched_ranges(&self, b: BufferId) -> Vec<Range<u64>> {
        const AROUND: u64 = 1 << PAGE_SHIFT;
        let buffer = self.buffer(b);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (page, _) in buffer.table.touched() {
            let Range { start, end } = buffer.table.range(page, buffer.len_bytes);
            let start = start / AROUND * AROUND;
            let end = end.next_multiple_of(AROUND).min(buffer.len_bytes);
            match ranges.last_mut() {
                Some(last) if last.end >= start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }

    /// Whether one page of one buffer holds `len_bytes` bytes at a device address.
    pub(crate) fn holds(&self, address: u64, len_bytes: u64) -> bool {
        let id = (address >> ID_SHIFT).wrapping_sub(1);
        let offset = address & ((1 << ID_SHIFT) - 1);
        self.buffers.get(id as usize).is_some_and(|buffer| {
            let within = offset & ((1 << buffer.page_shift()) - 1);
            offset + len_bytes <= buffer.len_bytes && within + len_bytes <= 1 << buffer.page_shift()
        })
    }

    /// The page that holds `len_bytes` bytes at a device address, and their offset in it.
    /// `None` when they are not all inside one page of one buffer, or no further page is allowed.
    #[inline(always)]
    pub(crate) fn window(&mut self, address: u64, len_bytes: u64) -> Option<(&mut Page, usize)> {
        let id = (address >> ID_SHIFT).wrapping_sub(1);
        let offset = address & ((1 << ID_SHIFT) - 1);
        let buffer = self.buffers.get_mut(id as usize)?;
        if offset + len_bytes > buffer.len_bytes {
            return None;
        }
        let shift = buffer.page_shift();
        let page = offset >> shift;
        let at = offset - (page << shift);
        if at + len_bytes > 1 << shift {
            return None;
        }
        let slot = buffer.table.slot(page);
        if slot == 0 {
            let len = buffer.page_len_bytes(page) as u64;
            self.touched_bytes = self.touched_bytes.saturating_add(len);
            if self.touched_bytes > self.touch_limit_bytes {
                return None;
            }
            return Some((buffer.touch(page, &mut self.spare_pages), at as usize));
        }
        Some((&mut buffer.pages[slot as usize - 1], at as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_buffers_cost_only_touched_pages() {
        let mut memory = Memory::new();
        let b = memory.allocate("big", 1 << 34, &[1, 2, 3], 0);
        memory.write(b, (1 << 34) - 2, &[9, 8]);
        let mut out = [0; 6];
        memory.read(b, (1 << 34) - 6, &mut out);
        let phase = ((1u64 << 34) - 6) % 3;
        let expected: Vec<u8> = (0..4).map(|i| [1, 2, 3][((phase + i) % 3) as usize]).collect();
        assert_eq!(&out[..4], &expected[..]);
        assert_eq!(&out[4..], &[9, 8]);
        let shadow = memory.marks(b, (1 << 34) - 3..1 << 34);
        assert_eq!(&*shadow, &[0, marks::INIT, marks::INIT]);
        assert_eq!(memory.buffers[0].pages.len(), 1);
    }

    #[test]
    fn fill_keeps_its_phase_across_pages() {
        let mut memory = Memory::new();
        let b = memory.allocate("odd", (1 << 20) + 7, &[5, 6, 7], marks::INIT);
        memory.mark(b, 65_530..65_550, marks::UNREAD, 0);
        let mut out = vec![0; 40];
        memory.read(b, 65_520, &mut out);
        for (i, byte) in out.iter().enumerate() {
            assert_eq!(*byte, [5, 6, 7][(65_520 + i) % 3]);
        }
    }

    #[test]
    fn locate_names_the_nearest_buffer() {
        let mut memory = Memory::new();
        let a = memory.allocate("a", 64, &[], 0);
        let b = memory.allocate("b", 64, &[], 0);
        assert_eq!(memory.locate(memory.address(a, 70)), Some((a, 70)));
        assert_eq!(memory.locate(memory.address(b, 0) - 4), Some((b, -4)));
        assert_eq!(memory.locate(memory.address(a, 0) - 1), Some((a, -1)));
        assert_eq!(memory.locate(16), None);
        assert_eq!(memory.address(b, 0) % 256, 0);
    }

    #[test]
    fn written_runs_are_maximal() {
        let mut memory = Memory::new();
        let b = memory.allocate("b", 100, &[], 0);
        memory.mark(b, 3..20, marks::WRITTEN, 0);
        memory.mark(b, 20..21, marks::WRITTEN, 0);
        memory.mark(b, 99..100, marks::WRITTEN, 0);
        assert_eq!(memory.written_ranges(b), vec![3..21, 99..100]);
        memory.clear();
        let c = memory.allocate("c", 100, &[], 0);
        assert!(memory.written_ranges(c).is_empty());
    }
}
