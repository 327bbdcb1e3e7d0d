//! Who touched the cells of a page last, as numbers of accesses in the log of a launch.
//! A number is index 23 | lane 5 | bytes of the cell 4. Numbers only grow, so that those of older
//! launches are stale without being cleared.

/// Bits below the index.
pub(super) const INDEX_SHIFT: u32 = 9;
const LANE_SHIFT: u32 = 4;
/// All bytes of a cell.
pub(super) const WHOLE: u32 = 0xf;
/// Cells of a line.
pub(super) const LINE: usize = 16;

/// By the binary logarithm of a lane's bytes: how numbers grow from cell to cell of lanes side by
/// side.
pub(super) static STEPS: [[u32; 256]; 6] = {
    let mut steps = [[0; 256]; 6];
    let mut shift = 0;
    while shift < 6 {
        let mut cell = 0;
        while cell < 256 {
            steps[shift][cell] = ((cell as u32 * 4) >> shift) << LANE_SHIFT;
            cell += 1;
        }
        shift += 1;
    }
    steps
};

/// The number of an access by one lane to the bytes of a mask.
#[inline(always)]
pub(super) fn number(index: u32, lane: u32, mask: u32) -> u32 {
    index << INDEX_SHIFT | lane << LANE_SHIFT | mask
}

#[inline(always)]
pub(super) fn index_of(number: u32) -> u32 {
    number >> INDEX_SHIFT
}

pub(super) fn lane_of(number: u32) -> u32 {
    number >> LANE_SHIFT & 31
}

pub(super) fn mask_of(number: u32) -> u32 {
    number & WHOLE
}

/// The last store, the first reader and the last reader of another block.
#[derive(Clone, Copy, Default)]
pub(super) struct Records {
    pub writer: u32,
    pub reader: u32,
    pub other: u32,
}

impl Records {
    pub fn map(self, f: impl Fn(u32) -> u32) -> Records {
        Records { writer: f(self.writer), reader: f(self.reader), other: f(self.other) }
    }

    pub fn all(self, f: impl Fn(u32) -> bool) -> bool {
        f(self.writer) && f(self.reader) && f(self.other)
    }
}

/// Who touched the cells of a line.
#[derive(Clone, Copy, Default)]
pub(super) struct Line {
    /// Any access while only one block has touched it, and one warp since its warps last met; that
    /// of no access where several have.
    pub owner: u32,
    /// The last store and the last load of the whole line, as of its first cell; where they are of
    /// this launch, they come after the records of the cells.
    pub writer: u32,
    pub reader: u32,
}

/// The records of a page: of cells of four bytes, and of single bytes where a cell is split.
#[derive(Default)]
pub(crate) struct Shadow {
    pub(super) lines: Vec<Line>,
    pub(super) writers: Vec<u32>,
    pub(super) readers: Vec<u32>,
    pub(super) others: Vec<u32>,
    /// Writer, reader and other of each byte.
    bytes: Vec<[u32; 3]>,
}

impl Shadow {
    /// Makes room for a page of that length.
    #[inline(always)]
    pub(crate) fn cover(&mut self, len_bytes: usize) {
        if self.writers.len() * 4 < len_bytes {
            self.grow(len_bytes.div_ceil(4));
        }
    }

    #[cold]
    fn grow(&mut self, cells: usize) {
        let cells = cells.next_multiple_of(LINE);
        for records in [&mut self.writers, &mut self.readers, &mut self.others] {
            // Zeroed memory costs only what is touched of it.
            *records = vec![0; cells];
        }
        self.lines = vec![Line::default(); cells / LINE];
        self.bytes = Vec::new();
    }

    /// Memory the records take.
    pub(crate) fn kept_bytes(&self) -> usize {
        let cells = self.writers.capacity() + self.readers.capacity() + self.others.capacity();
        cells * size_of::<u32>()
            + self.lines.capacity() * size_of::<Line>()
            + self.bytes.capacity() * size_of::<[u32; 3]>()
    }

    /// Drops every record.
    pub(crate) fn forget(&mut self) {
        *self = Shadow::default();
    }

    pub(super) fn cell(&self, cell: usize) -> Records {
        Records { writer: self.writers[cell], reader: self.readers[cell], other: self.others[cell] }
    }

    pub(super) fn set_cell(&mut self, cell: usize, records: Records) {
        self.writers[cell] = records.writer;
        self.readers[cell] = records.reader;
        self.others[cell] = records.other;
    }

    pub(super) fn byte(&self, byte: usize) -> Records {
        let [writer, reader, other] = self.bytes.get(byte).copied().unwrap_or_default();
        Records { writer, reader, other }
    }

    pub(super) fn set_byte(&mut self, byte: usize, records: Records) {
        if self.bytes.is_empty() {
            // Zeroed memory, as above.
            self.bytes = vec![[0; 3]; self.writers.len() * 4];
        }
        self.bytes[byte] = [records.writer, records.reader, records.other];
    }
}
