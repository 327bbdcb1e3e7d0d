//! Tensor copies: boxes of tensors in global memory, to and from shared memory, under a map.
//! What of a box lies outside the tensor is filled, or left alone by a store, to the byte as an H200
//! does: it stores whole pieces of sixteen bytes, those behind the end of a line that begin before it
//! included. Whatever of it lies outside the memory that the tensor is bound to is a fault, seen when
//! it is reached.

use super::access::{read_one, shared_trouble, toucher};
use super::address::{Target, addresses, resolve, space_of};
use super::bulk::{self, Goal};
use super::machine::{Machine, Trouble};
use super::rare::Turn;
use super::span::{self, Obstacle};
use super::step::Laned;
use super::warp::{Warp, lanes};
use crate::fault::{FaultKind, MemorySpace, TensorFault};
use crate::lower::convert::tf32_nearest;
use crate::rare::{Number, Reduction, Tensor, TensorAct};
use crate::shared::{Touch, Toucher};
use crate::space::OWN_BYTES;
use crate::tensor_map::{Decoded, Fill, RANKS, TENSOR_MAP_BYTES, TensorMap, TensorType};
use std::ops::Range;

/// What a map's address, and a box's in shared memory, are multiples of.
const MAP_ALIGN: u64 = 64;
const BOX_ALIGN: u64 = 128;
/// What a NaN becomes in tf32.
const NAN_TF32: u32 = 0x7fff_e000;
/// Beyond any shared memory.
const LARGEST: u64 = 1 << 18;
/// Bytes that change places together.
const PIECE: u64 = 16;

pub(super) fn copy(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Tensor,
    mask: u32,
    pc: u32,
) -> Result<Turn, Laned> {
    let maps = addresses(warp, what.map.base, what.map.offset);
    let places = addresses(warp, what.at.base, what.at.offset);
    for lane in lanes(mask) {
        let me = toucher(warp, lane, pc);
        let mut start = [0; RANKS];
        for (start, slot) in start.iter_mut().zip(&what.coordinates[..usize::from(what.rank)]) {
            *start = i64::from(warp.word(*slot)[lane] as i32);
        }
        let goal = match what.act {
            TensorAct::Load { counts, ranks } => Some(Goal {
                to: what.at,
                address: places[lane],
                counts,
                object: addresses(warp, counts.base, counts.offset)[lane],
                ranks: ranks.map(|slot| warp.word(slot)[lane] & 0xffff),
            }),
            _ => None,
        };
        let target = resolve(what.map.space, maps[lane]);
        let result = one(machine, what, target, start, places[lane], goal, me);
        result.map_err(|trouble| (lane as u32, trouble))?;
        machine.changes += 1;
    }
    Ok(Turn::Next)
}

/// One lane's copy.
fn one(
    machine: &mut Machine<'_>,
    what: &Tensor,
    target: Target,
    start: [i64; RANKS],
    at: u64,
    goal: Option<Goal>,
    me: Toucher,
) -> Result<(), Box<Trouble>> {
    let map = map_at(machine, target, me)?;
    let fault = |machine: &Machine<'_>, wrong| -> Result<(), Box<Trouble>> {
        Err(FaultKind::Tensor { map: name(machine, target), wrong }.into())
    };
    if map.rank != usize::from(what.rank) {
        let (map, instruction) = (map.rank as u32, what.rank.into());
        return fault(machine, TensorFault::Rank { map, instruction });
    }
    if !(start[0] * map.size() as i64).unsigned_abs().is_multiple_of(PIECE) {
        let (coordinate, element_bytes) = (start[0] as i32, map.size() as u32);
        return fault(machine, TensorFault::Crooked { coordinate, element_bytes });
    }
    if machine.strict && map.is_outside(start) {
        let coordinates = start[..map.rank].iter().map(|c| *c as i32).collect();
        let dims = map.dims[..map.rank].to_vec();
        return fault(machine, TensorFault::Outside { coordinates, dims });
    }
    if !at.is_multiple_of(BOX_ALIGN) && !matches!(what.act, TensorAct::Prefetch) {
        let (bytes, store) = (BOX_ALIGN as u32, goal.is_some());
        return Err(machine.misaligned(MemorySpace::Shared, at % OWN_BYTES, bytes, store));
    }
    if map.pitch() * map.lines() > LARGEST {
        let bytes = LARGEST as u32;
        return Err(machine.out_of_bounds(
            MemorySpace::Shared,
            at % OWN_BYTES,
            bytes,
            goal.is_some(),
        ));
    }
    let stores = matches!(what.act, TensorAct::Store | TensorAct::Reduce(_));
    if stores && start.iter().any(|c| *c < 0) {
        let coordinates = start[..map.rank].iter().map(|c| *c as i32).collect();
        return fault(machine, TensorFault::Before { coordinates });
    }
    let copy = BoxCopy { map, target, start, me };
    match (what.act, goal) {
        (TensorAct::Load { .. }, Some(goal)) => {
            let image = copy.load(machine)?;
            let pieces = map.swizzled(image, goal.address % OWN_BYTES);
            bulk::send(machine, &goal, &pieces, None, me)
        }
        (TensorAct::Store, _) => copy.store(machine, at, None),
        (TensorAct::Reduce(how), _) => match number(how, map.ty) {
            Some(number) => copy.store(machine, at, Some((how, number))),
            None => fault(machine, TensorFault::Reduction),
        },
        // It changes nothing but the cache.
        _ => Ok(()),
    }
}

/// The map whose bytes lie there.
fn map_at(machine: &mut Machine<'_>, target: Target, me: Toucher) -> Result<Decoded, Box<Trouble>> {
    let (space, start) = space_of(target);
    if !start.is_multiple_of(MAP_ALIGN) {
        return Err(machine.misaligned(space, start, MAP_ALIGN as u32, false));
    }
    let mut bytes = [0; TENSOR_MAP_BYTES];
    for (i, piece) in bytes.chunks_mut(16).enumerate() {
        let by = 16 * i as u64;
        let target = match target {
            Target::Global(at) => Target::Global(at + by),
            Target::Data(at) => Target::Data(at + by),
            Target::Param(at) => Target::Param(at + by),
            Target::Shared(at) => Target::Shared(at + by),
            Target::Cluster(at) => Target::Cluster(at + by),
            Target::Local(at) => Target::Local(at + by),
        };
        if machine.checks {
            read_one::<true>(machine, target, piece, me, false)?;
        } else {
            read_one::<false>(machine, target, piece, me, false)?;
        }
    }
    TensorMap::decode(&bytes).ok_or_else(|| {
        let map = name(machine, target);
        FaultKind::Tensor { map, wrong: TensorFault::NoMap }.into()
    })
}

/// Where a map comes from.
fn name(machine: &Machine<'_>, target: Target) -> String {
    match target {
        Target::Param(at) => {
            let holds = |p: &&crate::Parameter| {
                (u64::from(p.offset_bytes)..u64::from(p.offset_bytes + p.size_bytes)).contains(&at)
            };
            let found = machine.entry.parameters.iter().find(holds);
            found.map_or_else(|| format!("at parameter byte {at}"), |p| p.name.clone())
        }
        Target::Global(at) => match machine.buffer_place(at) {
            Some(place) => format!("at {place}"),
            None => format!("at {at:#x}"),
        },
        _ => {
            let (space, at) = space_of(target);
            format!("at {at:#x} of {space}")
        }
    }
}

/// How elements of a type are reduced, where the hardware has it.
fn number(how: Reduction, ty: TensorType) -> Option<Number> {
    use Reduction::{Add, And, Decrement, Increment, Max, Min, Or, Xor};
    let number = match ty {
        TensorType::U32 => Number::Unsigned(32),
        TensorType::S32 => Number::Signed(32),
        TensorType::U64 => Number::Unsigned(64),
        TensorType::S64 => Number::Signed(64),
        TensorType::F16 => Number::F16,
        TensorType::Bf16 => Number::Bf16,
        TensorType::F32 | TensorType::Tf32 => Number::F32,
        TensorType::F32Flushed | TensorType::Tf32Flushed => Number::F32Flushed,
        TensorType::F64 => Number::F64,
        TensorType::U8 | TensorType::U16 => return None,
    };
    let integer = matches!(number, Number::Unsigned(_) | Number::Signed(_));
    let known = match how {
        Increment | Decrement => number == Number::Unsigned(32),
        And | Or | Xor => integer && number != Number::Signed(64),
        Add => number != Number::Signed(64),
        Min | Max => integer || matches!(number, Number::F16 | Number::Bf16),
    };
    known.then_some(number)
}

/// Part of a line of a box inside the tensor.
struct Row {
    /// First byte in the box, as it lies there in order.
    at: u64,
    /// Address of the first element.
    address: u64,
    /// Its index in the tensor.
    element: [u64; RANKS],
    len_bytes: usize,
}

impl Decoded {
    fn size(&self) -> u64 {
        self.ty.size_bytes()
    }

    /// Bytes of a line of the box.
    fn line_bytes(&self) -> u64 {
        self.counts[0] * self.size()
    }

    /// Bytes from one line to the next in shared memory.
    fn pitch(&self) -> u64 {
        self.line_bytes().max(self.swizzle.line_bytes())
    }

    fn lines(&self) -> u64 {
        self.counts[1..].iter().product()
    }

    /// Indices of a dimension that lie inside the tensor, of those the box takes.
    fn inside(&self, dimension: usize, start: i64) -> Range<u64> {
        let (count, step) = (self.counts[dimension], self.steps[dimension] as i64);
        // The first with start + i·step ≥ 0, and the first with start + i·step ≥ dim.
        let reaches = |goal: i64| {
            let gap = goal - start;
            if gap <= 0 { 0 } else { (gap as u64).div_ceil(step as u64).min(count) }
        };
        let (first, end) = (reaches(0), reaches(self.dims[dimension] as i64));
        first.min(end)..end
    }

    fn is_outside(&self, start: [i64; RANKS]) -> bool {
        (0..self.rank).any(|i| self.inside(i, start[i]).is_empty())
    }

    /// Calls `f` with each line of the box that reaches into the tensor; whole pieces of it for a
    /// store.
    fn rows(
        &self,
        start: [i64; RANKS],
        store: bool,
        mut f: impl FnMut(Row) -> Result<(), Box<Trouble>>,
    ) -> Result<(), Box<Trouble>> {
        let mut inside: [Range<u64>; RANKS] = std::array::from_fn(|i| self.inside(i, start[i]));
        if inside.iter().any(Range::is_empty) {
            return Ok(());
        }
        if store {
            let bytes = (inside[0].end * self.size()).next_multiple_of(PIECE);
            inside[0].end = bytes / self.size();
        }
        let first = inside[0].start;
        let len_bytes = ((inside[0].end - first) * self.size()) as usize;
        let mut index: [u64; RANKS] = std::array::from_fn(|i| inside[i].start);
        loop {
            let element: [u64; RANKS] = std::array::from_fn(|i| {
                (start[i] + (index[i] * self.steps[i]) as i64).max(0) as u64
            });
            let offsets = element.iter().zip(self.strides).map(|(at, n)| at.wrapping_mul(n));
            let address = offsets.fold(self.address, u64::wrapping_add);
            let line = (1..RANKS).rev().fold(0, |line, i| line * self.counts[i] + index[i]);
            let at = line * self.line_bytes() + first * self.size();
            f(Row { at, address, element, len_bytes })?;
            let Some(next) = (1..RANKS).find(|i| index[*i] + 1 < inside[*i].end) else {
                return Ok(());
            };
            index[next] += 1;
            (1..next).for_each(|i| index[i] = inside[i].start);
        }
    }

    /// Where a byte of the box lies, from the box's place on.
    fn place(&self, at: u64, to: u64) -> u64 {
        let address = to + at / self.line_bytes() * self.pitch() + at % self.line_bytes();
        (address ^ address >> 3 & (self.swizzle.line_bytes() - PIECE)) - to
    }

    /// The bytes of the box in runs as they lie at a place in shared memory.
    fn swizzled(&self, image: Vec<u8>, to: u64) -> Vec<(u64, Vec<u8>)> {
        if self.swizzle.line_bytes() == PIECE {
            return vec![(0, image)];
        }
        let mut pieces: Vec<(u64, &[u8])> = image
            .chunks(PIECE as usize)
            .enumerate()
            .map(|(i, piece)| (self.place(i as u64 * PIECE, to), piece))
            .collect();
        pieces.sort_unstable_by_key(|(at, _)| *at);
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for (at, piece) in pieces {
            match runs.last_mut() {
                Some((start, run)) if *start + run.len() as u64 == at => {
                    run.extend_from_slice(piece);
                }
                _ => runs.push((at, piece.to_vec())),
            }
        }
        runs
    }

    /// What a box holds outside the tensor.
    fn fill(&self) -> Vec<u8> {
        let len = (self.line_bytes() * self.lines()) as usize;
        match self.fill {
            Fill::Zero => vec![0; len],
            // Whatever the type.
            Fill::Nan => [0xf7, 0x7f].into_iter().cycle().take(len).collect(),
        }
    }

    /// What becomes of elements on the way to shared memory: tf32 is rounded. Subnormal numbers stay,
    /// whatever the type's name says.
    fn convert(&self, bytes: &mut [u8]) {
        if !matches!(self.ty, TensorType::Tf32 | TensorType::Tf32Flushed) {
            return;
        }
        for word in bytes.as_chunks_mut::<4>().0 {
            let x = u32::from_le_bytes(*word);
            let nan = f32::from_bits(x).is_nan();
            *word = if nan { NAN_TF32 } else { tf32_nearest(x) }.to_le_bytes();
        }
    }
}

/// A copy of one box.
struct BoxCopy {
    map: Decoded,
    target: Target,
    start: [i64; RANKS],
    me: Toucher,
}

impl BoxCopy {
    fn obstacle(
        &self,
        machine: &Machine<'_>,
        row: &Row,
        obstacle: Obstacle,
        store: bool,
    ) -> Box<Trouble> {
        let address = match obstacle {
            Obstacle::Trouble(trouble) => return trouble,
            Obstacle::Outside(address) => address,
        };
        if let Some(limit_bytes) = machine.memory.exhausted() {
            return FaultKind::MemoryBudget { limit_bytes }.into();
        }
        let mut element = row.element[..self.map.rank].to_vec();
        element[0] += address.wrapping_sub(row.address) / self.map.size();
        let wrong = TensorFault::BeyondBuffer {
            element,
            dims: self.map.dims[..self.map.rank].to_vec(),
            buffer: machine.buffer_place(address),
            address,
            store,
        };
        FaultKind::Tensor { map: name(machine, self.target), wrong }.into()
    }

    /// The box in order.
    fn load(&self, machine: &mut Machine<'_>) -> Result<Vec<u8>, Box<Trouble>> {
        let mut image = self.map.fill();
        self.map.rows(self.start, false, |row| {
            let bytes = &mut image[row.at as usize..][..row.len_bytes];
            span::read(machine, row.address, bytes, self.me, false)
                .map_err(|obstacle| self.obstacle(machine, &row, obstacle, false))?;
            self.map.convert(bytes);
            Ok(())
        })?;
        Ok(image)
    }

    /// Stores what of the box lies inside the tensor, or combines it with what stands there.
    fn store(
        &self,
        machine: &mut Machine<'_>,
        from: u64,
        reduces: Option<(Reduction, Number)>,
    ) -> Result<(), Box<Trouble>> {
        let mut reads = Vec::new();
        self.map.rows(self.start, true, |row| {
            let mut bytes = self.read_shared(machine, &row, from, &mut reads)?;
            if let Some((how, number)) = reduces {
                let mut old = vec![0; bytes.len()];
                span::read(machine, row.address, &mut old, self.me, true)
                    .map_err(|obstacle| self.obstacle(machine, &row, obstacle, true))?;
                super::reduction::Combine::Bulk(how, number).all(&old, &mut bytes);
            }
            span::write(machine, row.address, &bytes, self.me, reduces.is_some())
                .map_err(|obstacle| self.obstacle(machine, &row, obstacle, true))
        })?;
        reads.sort_unstable_by_key(|read| read.start);
        for run in reads.chunk_by(|a, b| a.end == b.start) {
            let len = run.iter().map(Range::len).sum();
            machine.shared.read_in_bulk(run[0].start, len, self.me);
        }
        Ok(())
    }

    /// The bytes of a row, from where they lie in shared memory.
    fn read_shared(
        &self,
        machine: &mut Machine<'_>,
        row: &Row,
        from: u64,
        reads: &mut Vec<Range<usize>>,
    ) -> Result<Vec<u8>, Box<Trouble>> {
        let mut bytes = Vec::with_capacity(row.len_bytes);
        while bytes.len() < row.len_bytes {
            let at = row.at + bytes.len() as u64;
            let len = ((PIECE - at % PIECE) as usize).min(row.len_bytes - bytes.len());
            let place = from + self.map.place(at, from);
            if machine.checks {
                let read = machine.shared.load(place, len, self.me, Touch::Read);
                read.map_err(|f| shared_trouble(machine, f, place, len as u32, false))?;
                bulk::visible(machine, place as usize, len)?;
                reads.push(place as usize..place as usize + len);
            }
            let found = machine.shared.data.get(place as usize..place as usize + len);
            let outside = || machine.out_of_bounds(MemorySpace::Shared, place, len as u32, false);
            bytes.extend_from_slice(found.ok_or_else(outside)?);
        }
        Ok(bytes)
    }
}
