//! `wgmma.mma_async` of one warp: its sixteen rows of A, from registers or shared memory, times B
//! from shared memory, as products of eight columns each. It is computed at once; what may not be
//! touched before its wait is the matter of [`super::flight`].
//! Descriptors follow the PTX ISA, section "Matrix-descriptor": start, two strides, a swizzle.

use super::access::{shared_trouble, toucher};
use super::flight;
use super::machine::Machine;
use super::mma;
use super::rare::Turn;
use super::step::Laned;
use super::warp::{FULL, Warp, Words};
use crate::dispatch;
use crate::fault::FaultKind;
use crate::program::{Factor, Multiply, Product, Shape, Slot, Sum};
use crate::rare::{Warpgroup, Wide, WideFactor};
use crate::shared::{Touch, Toucher};

/// Registers of the small products: a, b, c, d.
const A: [Slot; 4] = [0, 1, 2, 3];
const B: [Slot; 2] = [4, 5];
const C: [Slot; 4] = [6, 7, 8, 9];
const D: [Slot; 4] = [10, 11, 12, 13];

/// A matrix in shared memory, in pieces of sixteen bytes.
struct Image {
    start: u64,
    leading: u64,
    stride: u64,
    /// Bytes of a swizzled row, 16 for none.
    row_bytes: u64,
}

impl Image {
    fn new(descriptor: u64) -> Image {
        let field = |at: u32| (descriptor >> at & 0x3fff) << 4;
        let row_bytes = match descriptor >> 62 {
            1 => 128,
            2 => 64,
            3 => 32,
            _ => 16,
        };
        Image { start: field(0), leading: field(16), stride: field(32), row_bytes }
    }

    /// Where a piece lies: `line` of sixteen bytes along k, or, `transposed`, one k of eight lines.
    fn piece(&self, line: u64, along: u64, transposed: bool) -> u64 {
        let pitch = self.row_bytes;
        let at = match (transposed, pitch) {
            (false, 16) => line / 8 * self.stride + along * self.leading + line % 8 * 16,
            (false, _) => line / 8 * self.stride + line % 8 * pitch + along * 16,
            (true, 16) => line / 8 * self.stride + along / 8 * self.leading + along % 8 * 16,
            (true, _) => {
                let (unit, units) = (line / 8, pitch / 16);
                let (block, within) = (unit / units, unit % units);
                block * self.leading + within * 16 + along / 8 * self.stride + along % 8 * pitch
            }
        };
        let at = self.start + at;
        at ^ at >> 3 & (pitch - 16)
    }
}

/// Eight lines of a factor by 32 bytes of k, as the tensor core takes them from registers.
type Fragment = [[u32; 32]; 2];

struct Reader<'w, 'm> {
    warp: &'w Warp,
    pc: u32,
    bits: usize,
    transposed: bool,
    negate: bool,
    machine: &'w mut Machine<'m>,
}

impl Reader<'_, '_> {
    fn bytes(&mut self, at: u64) -> Result<[u8; 16], Laned> {
        let machine = &mut *self.machine;
        // The tensor core's own access, until its wait.
        let me = Toucher { clock: 0, ..toucher(self.warp, 0, self.pc) };
        if machine.checks {
            let read = machine.shared.load(at, 16, me, Touch::Read);
            read.map_err(|fault| (0, shared_trouble(machine, fault, at, 16, false)))?;
        }
        let bytes = usize::try_from(at).ok().and_then(|at| machine.shared.data.get(at..at + 16));
        let outside = || machine.out_of_bounds(crate::fault::MemorySpace::Shared, at, 16, false);
        let bytes = bytes.ok_or_else(|| (0, outside()))?;
        let mut out = [0; 16];
        out.copy_from_slice(bytes);
        if machine.checks {
            flight::read(machine, self.warp.index, at, out).map_err(|trouble| (0, trouble))?;
        }
        Ok(out)
    }

    /// Lines `first` to `first + 8`.
    fn fragment(&mut self, image: &Image, first: u64) -> Result<Fragment, Laned> {
        let mut rows = [[0u8; 32]; 8];
        if self.transposed {
            for k in 0..16 {
                let piece = self.bytes(image.piece(first, k as u64, true))?;
                for (row, half) in rows.iter_mut().zip(piece.as_chunks::<2>().0) {
                    row[2 * k..2 * k + 2].copy_from_slice(half);
                }
            }
        } else {
            for (line, row) in rows.iter_mut().enumerate() {
                for along in 0..2 {
                    let at = image.piece(first + line as u64, along as u64, false);
                    row[16 * along..16 * (along + 1)].copy_from_slice(&self.bytes(at)?);
                }
            }
        }
        let mut out = [[0; 32]; 2];
        for (line, row) in rows.iter().enumerate() {
            for (i, word) in row.as_chunks::<4>().0.iter().enumerate() {
                out[i / 4][line * 4 + i % 4] = u32::from_le_bytes(*word);
            }
        }
        if self.negate {
            out.as_flattened_mut().iter_mut().for_each(|word| *word ^= signs(self.bits));
        }
        Ok(out)
    }
}

/// The sign bits of a word of floats.
fn signs(bits: usize) -> u32 {
    match bits {
        8 => 0x8080_8080,
        16 => 0x8000_8000,
        _ => 0x8000_0000,
    }
}

pub(super) fn product(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Warpgroup,
    pc: u32,
) -> Result<Turn, Laned> {
    let descriptor = |warp: &Warp, slot: Slot| -> Result<u64, Laned> {
        let all = &warp.longs[usize::from(slot)].0;
        if all.iter().any(|x| *x != all[0]) {
            let why = "the lanes of a warp must agree on it";
            return Err((0, FaultKind::BadDescriptor { descriptor: all[0], why }.into()));
        }
        Ok(all[0])
    };
    // Other warps of the block may belong to none.
    if (warp.index / 4 + 1) * 128 > machine.block_threads {
        let why = "the block lacks warps of its warpgroup";
        let descriptor = descriptor(warp, what.right)?;
        return Err((0, FaultKind::BadDescriptor { descriptor, why }.into()));
    }
    let right = descriptor(warp, what.right)?;
    let left = match what.left {
        Wide::Descriptor(slot) => Some(descriptor(warp, slot)?),
        Wide::Registers(_) => None,
    };
    if [Some(right), left].iter().flatten().any(|d| d >> 49 & 7 != 0) {
        return Ok(Turn::Unsupported(what.base_offset));
    }
    if machine.checks {
        flight::admit(warp, machine, what).map_err(|trouble| (0, trouble))?;
        flight::issue(warp, machine, what, pc);
    }
    let bits = what.factors[0].bits();
    let mut tile = std::mem::take(machine.tile);
    tile.words.resize(14, Words([0; 32]));
    let mut reader =
        Reader { warp, pc, bits, transposed: what.transposed[0], negate: what.negate[0], machine };
    let first = u64::from(warp.index % 4) * 16;
    match (what.left, left) {
        (Wide::Registers(slots), _) => {
            for (to, from) in A.into_iter().zip(slots) {
                let mut words = *warp.word(from);
                if what.negate[0] {
                    words.iter_mut().for_each(|word| *word ^= signs(bits));
                }
                tile.words[usize::from(to)].0 = words;
            }
        }
        (_, left) => {
            let image = Image::new(left.unwrap_or_default());
            for half in 0..2 {
                let [low, high] = reader.fragment(&image, first + 8 * half as u64)?;
                tile.words[half].0 = low;
                tile.words[half + 2].0 = high;
            }
        }
    }
    let image = Image::new(right);
    let (transposed, negate) = (what.transposed[1], what.negate[1]);
    let each = if what.sum.is_f16() { 2 } else { 4 };
    let keep = what.accumulate.map_or(FULL, |slot| warp.predicates[usize::from(slot)]);
    for column in 0..what.d.len() / each {
        let mut reader = Reader { warp, pc, bits, transposed, negate, machine: &mut *machine };
        let fragment = reader.fragment(&image, 8 * column as u64)?;
        for (to, words) in B.into_iter().zip(fragment) {
            tile.words[usize::from(to)].0 = words;
        }
        for i in 0..each {
            let old = *warp.word(what.c[column * each + i]);
            let start = std::array::from_fn(|l| if keep >> l & 1 == 1 { old[l] } else { 0 });
            tile.words[usize::from(C[i])].0 = start;
        }
        small(&mut tile, machine, what);
        for i in 0..each {
            let slot = what.d[column * each + i];
            warp.words[usize::from(slot)].0 = *tile.word(D[i]);
        }
    }
    *machine.tile = tile;
    Ok(Turn::Next)
}

/// Sixteen rows by eight columns.
fn small(tile: &mut Warp, machine: &mut Machine<'_>, what: &Warpgroup) {
    let shape = match (what.factors, what.sum) {
        ([WideFactor::Bf16, _], _) => Some(Shape::Bf16K16),
        ([WideFactor::Other(Factor::F16), _], Sum::F32) => Some(Shape::F16K16),
        _ => None,
    };
    if let Some(shape) = shape {
        let what = Product { shape, a: A, b: B, c: C, d: D };
        let model = machine.matrix_model;
        return dispatch::product(machine.wide, tile, machine.operands, &what, model);
    }
    let [WideFactor::Other(left), WideFactor::Other(right)] = what.factors else {
        return;
    };
    let k = (256 / left.bits()) as u8;
    let what = Multiply { left, right, sum: what.sum, rows: 16, k, a: A, b: B, c: C, d: D };
    mma::multiply(tile, &what);
}
