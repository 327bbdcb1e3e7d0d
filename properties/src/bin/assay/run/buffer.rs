//! The buffers of a run: made from their description, read back after the launch. Sizes are
//! checked before memory is taken; files must be regular ones.

use super::argument::{Access, BUFFER_LIMIT_BYTES, Buffer, Contents};
use super::element::Element;
use super::error::RunError;
use super::npy;
use properties::choices::mix;
use ptx_vm::{BufferId, Memory, marks};
use std::fs::File;
use std::io::{Read, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes of files and random numbers one run takes in, and of results it writes: twice that is
/// needed in memory.
pub const HOST_LIMIT_BYTES: u64 = 4 << 30;
/// Elements moved at a time.
const PIECE_BYTES: usize = 1 << 20;

/// A buffer of the run.
#[derive(Debug)]
pub struct Made {
    /// Which `--arg`, from 0.
    pub number: usize,
    /// It as written.
    pub text: String,
    pub id: BufferId,
    pub element: Element,
    pub shape: Vec<u64>,
    /// What the kernel may do with it, in words.
    pub access: &'static str,
    pub is_writable: bool,
    pub save: Option<PathBuf>,
}

/// What threads left in a buffer they may write.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Left {
    /// Elements with a byte some thread stored to.
    pub written: u64,
    /// Among those: not a number,
    pub nan: u64,
    /// infinite,
    pub infinite: u64,
    /// least and largest of the rest, as bits.
    pub range: Option<(u64, u64)>,
}

/// Makes the buffer of an argument; `taken` counts bytes of files and random numbers.
pub fn make(
    memory: &mut Memory,
    number: usize,
    text: &str,
    buffer: &Buffer,
    taken: &mut u64,
) -> Result<Made, RunError> {
    let name = format!("argument {number} `{text}`");
    let refuse = |what: String| RunError::Buffer { name: name.clone(), what };
    let read_only = if buffer.access == Access::ReadOnly { marks::UNWRITABLE } else { 0 };
    let mut take = |bytes: u64| {
        *taken = taken.saturating_add(bytes);
        if *taken > HOST_LIMIT_BYTES {
            return Err(refuse(format!(
                "{bytes} bytes; files and random numbers of a run are at most {HOST_LIMIT_BYTES} bytes: \
                 use fill: or uninit:, which cost only what is touched"
            )));
        }
        Ok(())
    };
    // A byte that nobody wrote is NaN in every float type and −1 or the largest in the integers.
    const UNWRITTEN: &[u8] = &[0xff];
    let mut allocate = |element: Element, shape: &[u64], fill: &[u8], marks: u8| {
        let bytes = npy::size_bytes(element, shape).filter(|bytes| *bytes <= BUFFER_LIMIT_BYTES);
        let bytes = bytes.ok_or_else(|| refuse("larger than 2^39 bytes".to_owned()))?;
        Ok::<_, RunError>(memory.allocate(&name, bytes, fill, marks))
    };
    let (id, element, shape) = match &buffer.contents {
        Contents::Fill(element, shape, bits) => {
            let marks = marks::INIT | read_only;
            (allocate(*element, shape, &element.bytes(*bits), marks)?, *element, shape.clone())
        }
        Contents::Uninitialised(element, shape) => {
            (allocate(*element, shape, UNWRITTEN, read_only)?, *element, shape.clone())
        }
        Contents::Unread(element, shape) => {
            let marks = marks::INIT | marks::UNREAD | read_only;
            (allocate(*element, shape, UNWRITTEN, marks)?, *element, shape.clone())
        }
        Contents::Random { element, shape, seed, range } => {
            take(npy::size_bytes(*element, shape).unwrap_or(u64::MAX))?;
            let id = allocate(*element, shape, &[], read_only)?;
            scatter(memory, id, *element, *seed, *range);
            (id, *element, shape.clone())
        }
        Contents::Npy(wanted, path) => {
            let (mut file, bytes) = open(path)?;
            let mut head = Vec::new();
            let prefix = npy::prefix_bytes() as u64;
            Read::take(&mut file, prefix).read_to_end(&mut head).map_err(RunError::file(path))?;
            let wrong = |what: String| RunError::File { path: path.clone(), what };
            let header = npy::header(&head, bytes).map_err(|error| wrong(error.to_string()))?;
            let element = wanted.unwrap_or(header.element);
            if !element.reads(header.element) {
                let (here, wanted) = (header.element.name(), element.name());
                return Err(wrong(format!("descr: the file holds {here}, which is not {wanted}")));
            }
            take(bytes)?;
            let id = allocate(element, &header.shape, &[], read_only)?;
            pour(memory, id, head.split_off(header.data_at), &mut file, path)?;
            (id, element, header.shape)
        }
        Contents::Raw(element, path) => {
            let (mut file, bytes) = open(path)?;
            let size = element.size_bytes();
            if !bytes.is_multiple_of(size) {
                let what = format!("{bytes} bytes are no whole number of {}", element.name());
                return Err(RunError::File { path: path.clone(), what });
            }
            take(bytes)?;
            let shape = vec![bytes / size];
            let id = allocate(*element, &shape, &[], read_only)?;
            pour(memory, id, Vec::new(), &mut file, path)?;
            (id, *element, shape)
        }
    };
    let is_writable = buffer.access == Access::Writable;
    let access = match &buffer.contents {
        Contents::Unread(..) => "must stay unread",
        Contents::Uninitialised(..) => "uninitialised",
        _ if is_writable => "read and written",
        _ => "read-only",
    };
    let save = buffer.save.clone();
    let text = text.to_owned();
    Ok(Made { number, text, id, element, shape, access, is_writable, save })
}

/// A regular file and its length: a pipe may never end, and a folder has no bytes.
pub fn open(path: &Path) -> Result<(File, u64), RunError> {
    let facts = std::fs::metadata(path).map_err(RunError::file(path))?;
    if !facts.is_file() {
        let what = "not a regular file; name a file".to_owned();
        return Err(RunError::File { path: path.to_owned(), what });
    }
    Ok((File::open(path).map_err(RunError::file(path))?, facts.len()))
}

/// Moves `first` and then a file into a buffer of exactly that length.
fn pour(
    memory: &mut Memory,
    id: BufferId,
    first: Vec<u8>,
    file: &mut File,
    path: &Path,
) -> Result<(), RunError> {
    let length = memory.len_bytes(id);
    let mut piece = first;
    let mut at = 0;
    loop {
        if at + piece.len() as u64 > length {
            break;
        }
        memory.write(id, at, &piece);
        at += piece.len() as u64;
        piece.clear();
        Read::take(&mut *file, PIECE_BYTES as u64)
            .read_to_end(&mut piece)
            .map_err(RunError::file(path))?;
        if piece.is_empty() {
            break;
        }
    }
    if at == length && piece.is_empty() {
        return Ok(());
    }
    let what = "its length changed while it was read".to_owned();
    Err(RunError::File { path: path.to_owned(), what })
}

/// Random elements; equal seeds give equal ones.
fn scatter(
    memory: &mut Memory,
    id: BufferId,
    element: Element,
    seed: u64,
    range: Option<(f64, f64)>,
) {
    let size = element.size_bytes();
    let count = memory.len_bytes(id) / size;
    let range = range.or(element.is_float().then_some((-1.0, 1.0)));
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    let mut at = 0;
    for index in 0..count {
        let draw = mix(seed, index);
        let bits = match range {
            None => draw,
            Some((low, high)) => {
                let unit = (draw >> 11) as f64 / (1u64 << 53) as f64;
                let value = low + unit * (high - low);
                element.nearest(if element.is_float() { value } else { value.floor() })
            }
        };
        piece.extend_from_slice(&bits.to_le_bytes()[..size as usize]);
        if piece.len() + 8 > PIECE_BYTES {
            memory.write(id, at, &piece);
            at += piece.len() as u64;
            piece.clear();
        }
    }
    memory.write(id, at, &piece);
}

impl Made {
    pub fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// `f32 [64, 128]`.
    pub fn form(&self) -> String {
        format!("{} {:?}", self.element.name(), self.shape)
    }

    /// The indices of an element.
    pub fn coordinates(&self, flat: u64) -> Vec<u64> {
        let mut rest = flat;
        let mut out: Vec<u64> = self
            .shape
            .iter()
            .rev()
            .map(|extent| {
                let at = rest % extent.max(&1);
                rest /= extent.max(&1);
                at
            })
            .collect();
        out.reverse();
        out
    }

    /// Bits of an element.
    pub fn bits(&self, memory: &Memory, flat: u64) -> u64 {
        let size = self.element.size_bytes();
        let mut bytes = [0; 8];
        memory.read(self.id, flat * size, &mut bytes[..size as usize]);
        u64::from_le_bytes(bytes)
    }

    /// What threads left in it.
    pub fn left(&self, memory: &Memory) -> Left {
        let mut left = Left::default();
        let mut bounds: Option<((f64, u64), (f64, u64))> = None;
        let size = self.element.size_bytes();
        let mut next = 0;
        for range in memory.written_ranges(self.id) {
            let elements = (range.start / size).max(next)..range.end.div_ceil(size);
            next = elements.end;
            each(memory, self.id, elements, size, |bytes| {
                let bits = self.element.of_bytes(bytes);
                let value = self.element.value(bits);
                left.written += 1;
                if value.is_nan() {
                    left.nan += 1;
                } else if value.is_infinite() {
                    left.infinite += 1;
                } else {
                    let (low, high) = bounds.get_or_insert(((value, bits), (value, bits)));
                    if value < low.0 {
                        *low = (value, bits);
                    }
                    if value > high.0 {
                        *high = (value, bits);
                    }
                }
            });
        }
        left.range = bounds.map(|((_, low), (_, high))| (low, high));
        left
    }

    /// Writes its contents to its `.npy` file; the bytes written.
    pub fn store(&self, memory: &Memory) -> Result<Option<u64>, RunError> {
        let Some(path) = &self.save else { return Ok(None) };
        let bytes = memory.len_bytes(self.id);
        let mut file = File::create(path).map_err(RunError::file(path))?;
        let head = npy::head_of(self.element, &self.shape);
        file.write_all(&head).map_err(RunError::file(path))?;
        let mut failed = None;
        each(memory, self.id, 0..bytes.div_ceil(PIECE_BYTES as u64), PIECE_BYTES as u64, |piece| {
            if failed.is_none() {
                failed = file.write_all(piece).err();
            }
        });
        if let Some(error) = failed {
            return Err(RunError::file(path)(error));
        }
        Ok(Some(head.len() as u64 + bytes))
    }

    /// Whether its results may be written at all; asked before the launch.
    pub fn check_save(&self) -> Result<(), RunError> {
        let Some(path) = &self.save else { return Ok(()) };
        let bytes = npy::size_bytes(self.element, &self.shape).unwrap_or(u64::MAX);
        let refuse = |what: String| Err(RunError::File { path: path.clone(), what });
        if bytes > HOST_LIMIT_BYTES {
            return refuse(format!("{bytes} bytes; at most {HOST_LIMIT_BYTES} are written"));
        }
        if path.as_os_str().is_empty() {
            return refuse("no file is named after `=`".to_owned());
        }
        match std::fs::metadata(path) {
            Ok(facts) if !facts.is_file() => refuse("not a regular file; name another".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Calls `f` with pieces of `size` bytes of a buffer, the last perhaps shorter.
fn each(memory: &Memory, id: BufferId, pieces: Range<u64>, size: u64, mut f: impl FnMut(&[u8])) {
    let length = memory.len_bytes(id);
    let many = (PIECE_BYTES as u64 / size).max(1);
    let mut bytes = Vec::new();
    let mut at = pieces.start;
    while at < pieces.end {
        let end = (at + many).min(pieces.end);
        bytes.resize(((end * size).min(length) - at * size) as usize, 0);
        memory.read(id, at * size, &mut bytes);
        bytes.chunks(size as usize).for_each(&mut f);
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::argument::{Argument, parse};

    fn made(text: &str, memory: &mut Memory) -> Result<Made, RunError> {
        match parse(text) {
            Ok(Argument::Buffer(buffer)) => make(memory, 0, text, &buffer, &mut 0),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn random_elements_stay_in_their_range_and_repeat() {
        let mut memory = Memory::new();
        let ints = made("random:i32:1000:7:-3:5", &mut memory).expect("made");
        let mut seen = std::collections::BTreeSet::new();
        for flat in 0..1000 {
            seen.insert(ints.bits(&memory, flat) as u32 as i32);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), (-3..5).collect::<Vec<_>>());
        let (one, two, other) = (
            made("random:f16:64:1", &mut memory).expect("made"),
            made("random:f16:64:1", &mut memory).expect("made"),
            made("random:f16:64:2", &mut memory).expect("made"),
        );
        let all = |made: &Made| (0..64).map(|i| made.bits(&memory, i)).collect::<Vec<_>>();
        assert_eq!(all(&one), all(&two));
        assert_ne!(all(&one), all(&other));
        assert!(all(&one).iter().all(|bits| Element::F16.value(*bits).abs() <= 1.0));
    }

    #[test]
    fn huge_buffers_cost_nothing_and_huge_files_are_refused() {
        let mut memory = Memory::new();
        let sparse = made("fill:f32:8589934592:0.5", &mut memory).expect("sparse");
        assert_eq!(sparse.bits(&memory, 8_589_934_591), u64::from(0.5f32.to_bits()));
        let error = made("random:f32:8589934592:1", &mut memory).expect_err("too much").to_string();
        assert!(error.contains("use fill: or uninit:"), "{error}");
        let made = made("out:f32:8589934592=y.npy", &mut memory).expect("sparse");
        let error = made.check_save().expect_err("too much").to_string();
        assert!(error.starts_with("y.npy: 34359738368 bytes"), "{error}");
    }

    #[test]
    fn what_was_left_is_counted() {
        let mut memory = Memory::new();
        let out = made("out:f32:2x4", &mut memory).expect("made");
        assert_eq!(out.left(&memory), Left::default());
        for (at, value) in [(0, 3.0f32), (1, f32::NAN), (2, -1.0), (5, f32::INFINITY)] {
            memory.write(out.id, at * 4, &value.to_le_bytes());
            memory.mark(out.id, at * 4..at * 4 + 4, marks::WRITTEN, 0);
        }
        let bits = |value: f32| u64::from(value.to_bits());
        let range = Some((bits(-1.0), bits(3.0)));
        assert_eq!(out.left(&memory), Left { written: 4, nan: 1, infinite: 1, range });
        assert_eq!((out.coordinates(5), out.form()), (vec![1, 1], "f32 [2, 4]".to_owned()));
        // Half an element is one.
        memory.mark(out.id, 28..30, marks::WRITTEN, 0);
        memory.mark(out.id, 31..32, marks::WRITTEN, 0);
        assert_eq!(out.left(&memory).written, 5);
    }
}
