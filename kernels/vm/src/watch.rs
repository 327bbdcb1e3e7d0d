//! Provenance: which instruction stored last to bytes somebody asks about. Kept by a build of the
//! hot loop of its own (`dispatch::run_watched`), so that a launch without a watch pays nothing.
//! Invariant: what stands here was stored; a store that faulted leaves no trace.

mod definition;

use crate::exec::address::{Target, addresses, offset, resolve};
use crate::exec::machine::Machine;
use crate::exec::warp::{Warp, lanes};
use crate::memory::{BufferId, Memory};
use crate::module::{Entry, Module};
use crate::program::{Access, Atomic, AtomicOp, Reg};
use crate::shared::Toucher;
use crate::source::SourceLine;
use crate::syntax::Space;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

/// Bytes of global memory whose writers are to be known, for [`crate::launch_watched`]. One watch
/// may go through several launches; the last store to a byte counts.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    ranges: Vec<Watched>,
    /// Launches begun.
    launches: u32,
    /// The block whose warps run.
    pub(crate) block: [u32; 3],
}

#[derive(Clone, Debug)]
struct Watched {
    buffer: BufferId,
    range: Range<u64>,
    /// Device address of the first byte.
    start: u64,
    stores: u64,
    /// One a byte.
    last: Vec<Last>,
}

#[derive(Clone, Debug)]
enum Last {
    Nobody,
    /// A store of this launch.
    Raw(Raw),
    Named(Box<Write>),
}

/// A store before its place is named.
#[derive(Clone, Copy, Debug)]
struct Raw {
    pc: u32,
    block: [u32; 3],
    thread: u32,
    address: u64,
    /// Bytes of the whole access.
    len_bytes: u8,
    width_bytes: u8,
    values: [u64; 8],
    count: u8,
    atomic: bool,
    before: Option<u64>,
}

/// One thread's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which launch of the watch did it, from 0.
    pub launch: u32,
    /// The kernel.
    pub entry: String,
    /// Line of the PTX text.
    pub ptx_line: u32,
    /// That line as written.
    pub instruction: String,
    /// CUDA source line.
    pub source: Option<SourceLine>,
    /// Block index.
    pub block: [u32; 3],
    /// Thread index in the block.
    pub thread: [u32; 3],
    /// First byte of the access in its buffer.
    pub offset: u64,
    /// Width of one element of the access.
    pub width_bytes: u8,
    /// Bits of the value operands in the order of the instruction: what a store puts side by side,
    /// what an atomic combines with memory.
    pub values: Vec<u64>,
    /// Whether it is an atomic or a reduction.
    pub atomic: bool,
    /// What an atomic found, where the instruction keeps it.
    pub before: Option<u64>,
    /// Where the value at the byte asked about was computed, if one instruction alone can have done
    /// it.
    pub computed: Option<Computed>,
}

/// The instruction behind a stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computed {
    /// Line of the PTX text.
    pub ptx_line: u32,
    /// The instruction.
    pub instruction: String,
    /// CUDA source line.
    pub source: Option<SourceLine>,
}

impl Watch {
    /// Watches nothing.
    pub fn new() -> Watch {
        Watch::default()
    }

    /// Watches these bytes of a buffer as well. Costs some hundred bytes a byte.
    ///
    /// # Panics
    /// When the range leaves the buffer.
    pub fn add(&mut self, memory: &Memory, buffer: BufferId, range: Range<u64>) {
        assert!(
            range.start <= range.end && range.end <= memory.len_bytes(buffer),
            "bytes {range:?} lie outside {} ({} bytes)",
            memory.name(buffer),
            memory.len_bytes(buffer)
        );
        let start = memory.address(buffer, range.start);
        let last = vec![Last::Nobody; (range.end - range.start) as usize];
        self.ranges.push(Watched { buffer, range, start, stores: 0, last });
    }

    /// The last store to a watched byte; `None` when no thread stored to it, or nobody watches it.
    pub fn last(&self, buffer: BufferId, offset: u64) -> Option<&Write> {
        let watched = self.of(buffer, offset)?;
        match &watched.last[(offset - watched.range.start) as usize] {
            Last::Named(write) => Some(write),
            _ => None,
        }
    }

    /// How many threads' stores touched the watched range that holds this byte.
    pub fn stores(&self, buffer: BufferId, offset: u64) -> u64 {
        self.of(buffer, offset).map_or(0, |watched| watched.stores)
    }

    fn of(&self, buffer: BufferId, offset: u64) -> Option<&Watched> {
        self.ranges.iter().find(|one| one.buffer == buffer && one.range.contains(&offset))
    }

    /// Whether an access touches a watched byte.
    fn concerns(&self, address: u64, len: u64) -> bool {
        self.ranges.iter().any(|watched| watched.overlap(address, len).is_some())
    }

    fn note(&mut self, raw: Raw) {
        for watched in &mut self.ranges {
            if let Some(bytes) = watched.overlap(raw.address, raw.len_bytes.into()) {
                watched.stores += 1;
                watched.last[bytes].fill(Last::Raw(raw));
            }
        }
    }

    /// Names the places of the launch that ends.
    pub(crate) fn close(&mut self, module: &Module, entry: &Entry, block: [u32; 3]) {
        let launch = self.launches;
        self.launches += 1;
        // Many bytes, few instructions.
        let mut definitions = HashMap::new();
        for watched in &mut self.ranges {
            let base = watched.start - watched.range.start;
            for (at, last) in watched.last.iter_mut().enumerate() {
                let Last::Raw(raw) = *last else { continue };
                // Which of the values lies at this byte.
                let which = (watched.start + at as u64 - raw.address) / u64::from(raw.width_bytes);
                let place = entry.places[raw.pc as usize];
                let [bx, by, _] = block;
                let thread = raw.thread;
                let computed = definitions
                    .entry((place.ptx_line, which))
                    .or_insert_with(|| definition::of_stored(module, entry, place.ptx_line, which))
                    .clone();
                *last = Last::Named(Box::new(Write {
                    launch,
                    entry: entry.name.clone(),
                    ptx_line: place.ptx_line,
                    instruction: module.text(place.ptx_line),
                    source: module.source(place),
                    block: raw.block,
                    thread: [thread % bx, thread / bx % by, thread / bx / by],
                    offset: raw.address.wrapping_sub(base),
                    width_bytes: raw.width_bytes,
                    values: raw.values[..usize::from(raw.count)].to_vec(),
                    atomic: raw.atomic,
                    before: raw.before,
                    computed,
                }));
            }
        }
    }
}

impl Watched {
    /// The watched bytes among those of an access.
    fn overlap(&self, address: u64, len: u64) -> Option<Range<usize>> {
        let size = self.last.len() as u64;
        let from = address.max(self.start) - self.start;
        let end = address.saturating_add(len).saturating_sub(self.start).min(size);
        (from < end).then_some(from as usize..end as usize)
    }
}

/// Notes what a store that succeeded put into watched bytes.
pub(crate) fn stored(warp: &Warp, machine: &mut Machine<'_>, what: &Access, mask: u32, pc: u32) {
    if !reaches_global(what.space) {
        return;
    }
    let addresses = addresses(warp, what.base, offset(warp, what) as i64);
    let Some(watch) = machine.watch.as_deref_mut() else { return };
    for lane in lanes(mask) {
        let Target::Global(address) = resolve(what.space, addresses[lane]) else { continue };
        if !watch.concerns(address, u64::from(what.bytes())) {
            continue;
        }
        let mut values = [0; 8];
        for (value, reg) in values.iter_mut().zip(&what.regs).take(usize::from(what.count)) {
            *value = cut(warp.value(*reg, lane), what.width_bytes);
        }
        watch.note(Raw {
            pc,
            block: watch.block,
            thread: warp.index * 32 + lane as u32,
            address,
            len_bytes: what.bytes() as u8,
            width_bytes: what.width_bytes,
            values,
            count: what.count,
            atomic: false,
            before: None,
        });
    }
}

/// Notes what a copy put into watched bytes, in words where they are whole.
pub(crate) fn copied(
    machine: &mut Machine<'_>,
    address: u64,
    data: &[u8],
    me: Toucher,
    atomic: bool,
) {
    let Some(watch) = machine.watch.as_deref_mut() else { return };
    if !watch.concerns(address, data.len() as u64) {
        return;
    }
    let mut at = 0;
    while at < data.len() {
        let here = address + at as u64;
        let whole = here.is_multiple_of(4) && data.len() - at >= 4;
        let width = if whole { 4 } else { 1 };
        let mut value = [0; 8];
        value[..width].copy_from_slice(&data[at..at + width]);
        let mut values = [0; 8];
        values[0] = u64::from_le_bytes(value);
        watch.note(Raw {
            pc: me.pc,
            block: watch.block,
            thread: me.thread,
            address: here,
            len_bytes: width as u8,
            width_bytes: width as u8,
            values,
            count: 1,
            atomic,
            before: None,
        });
        at += width;
    }
}

/// Operands of atomics on watched bytes; taken before, since the result may replace an operand.
pub(crate) struct Pending(Vec<(usize, u64, [u64; 2])>);

/// What an atomic is about to combine with watched bytes.
pub(crate) fn before(warp: &Warp, machine: &Machine<'_>, what: &Atomic, mask: u32) -> Pending {
    let mut pending = Vec::new();
    if let Some(watch) = machine.watch.as_deref()
        && reaches_global(what.space)
    {
        let addresses = addresses(warp, what.base, what.offset);
        for lane in lanes(mask) {
            if let Target::Global(address) = resolve(what.space, addresses[lane])
                && watch.concerns(address, u64::from(what.width_bytes))
            {
                let operand = |reg| cut(warp.value(reg, lane), what.width_bytes);
                pending.push((lane, address, [what.a, what.b].map(operand)));
            }
        }
    }
    Pending(pending)
}

/// Notes atomics that succeeded.
pub(crate) fn updated(
    warp: &Warp,
    machine: &mut Machine<'_>,
    what: &Atomic,
    pending: &Pending,
    pc: u32,
) {
    let Some(watch) = machine.watch.as_deref_mut() else { return };
    for &(lane, address, [a, b]) in &pending.0 {
        let mut values = [0; 8];
        values[..2].copy_from_slice(&[a, b]);
        let before = |d: Reg| cut(warp.value(d, lane), what.width_bytes);
        watch.note(Raw {
            pc,
            block: watch.block,
            thread: warp.index * 32 + lane as u32,
            address,
            len_bytes: what.width_bytes,
            width_bytes: what.width_bytes,
            values,
            count: if what.op == AtomicOp::CompareSwap { 2 } else { 1 },
            atomic: true,
            before: what.d.map(before),
        });
    }
}

fn reaches_global(space: Space) -> bool {
    matches!(space, Space::Global | Space::Generic)
}

fn cut(value: u64, width_bytes: u8) -> u64 {
    if width_bytes >= 8 { value } else { value & ((1 << (8 * u32::from(width_bytes))) - 1) }
}

/// One line; with `#` one for the instruction, the thread, the values and their origin each.
impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = if f.alternate() { "\n" } else { ", " };
        let (line, instruction) = (self.ptx_line, self.instruction.trim_end_matches(';'));
        write!(f, "PTX line {line}: {instruction}{}", At(self.source.as_ref()))?;
        write!(f, "{next}{}, block {:?}, thread {:?}", self.entry, self.block, self.thread)?;
        write!(f, "{next}{} ", if self.atomic { "combining" } else { "storing" })?;
        for (i, value) in self.values.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            self.value(f, *value)?;
        }
        if let Some(before) = self.before {
            f.write_str(" with ")?;
            self.value(f, before)?;
        }
        if let Some(computed) = &self.computed {
            let (line, text) = (computed.ptx_line, &computed.instruction);
            write!(f, "{next}computed by PTX line {line}: {text}{}", At(computed.source.as_ref()))?;
        }
        Ok(())
    }
}

/// A source line in brackets, where there is one.
struct At<'a>(Option<&'a SourceLine>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(source) => write!(f, " ({source})"),
            None => Ok(()),
        }
    }
}

impl Write {
    /// Bits, and the number they are where the instruction says of which type.
    fn value(&self, f: &mut fmt::Formatter<'_>, bits: u64) -> fmt::Result {
        write!(f, "{bits:#0width$x}", width = 2 + 2 * usize::from(self.width_bytes))?;
        let opcode = self.instruction.split_whitespace().find(|word| !word.starts_with('@'));
        let opcode = opcode.unwrap_or_default().trim_end_matches(';');
        match (opcode.rsplit('.').next(), self.width_bytes) {
            (Some("f32"), 4) => write!(f, " ({:?})", f32::from_bits(bits as u32)),
            (Some("f64"), 8) => write!(f, " ({:?})", f64::from_bits(bits)),
            (Some("s32"), 4) => write!(f, " ({})", bits as u32 as i32),
            (Some("s64"), 8) => write!(f, " ({})", bits as i64),
            (Some("u8" | "u16" | "u32" | "u64"), _) => write!(f, " ({bits})"),
            _ => Ok(()),
        }
    }
}
