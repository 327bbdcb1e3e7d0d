//! The live elements a run left behind, copied out of the arena so that runs can be compared.

use crate::prepare::{LiveRun, Prepared};
use contracts::dtype::DType;
use kernels::arena::Arena;
use ptx_vm::BufferId;

/// Bytes of the live elements of each tensor of a geometry, in the order of its live runs; nothing
/// for tensors the kernel does not write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// One a tensor of the geometry.
    pub tensors: Vec<Vec<u8>>,
}

impl Observed {
    /// Copies what is live and written.
    pub fn gather(&mut self, prepared: &Prepared<'_>, arena: &Arena) {
        self.tensors.resize_with(prepared.geometry.tensors.len(), Vec::new);
        for bytes in &mut self.tensors {
            bytes.clear();
        }
        for place in prepared.written() {
            let tensor = &prepared.geometry.tensors[place];
            let (buffer, size) = (BufferId(tensor.buffer as u32), tensor.dtype.size_bytes());
            let bytes = &mut self.tensors[place];
            for run in &prepared.live[place] {
                let start = bytes.len();
                bytes.resize(start + (run.count * size) as usize, 0);
                arena.memory().read(buffer, run.offset * size, &mut bytes[start..]);
            }
        }
    }

    /// Bits of one element; `None` when it is not live.
    pub fn bits(&self, prepared: &Prepared<'_>, place: usize, flat: u64) -> Option<u64> {
        let dtype = prepared.geometry.tensors[place].dtype;
        let runs = &prepared.live[place];
        let run = runs[..runs.partition_point(|run| run.flat <= flat)].last()?;
        if flat - run.flat >= run.count {
            return None;
        }
        let size = dtype.size_bytes() as usize;
        let start = (run.before + flat - run.flat) as usize * size;
        Some(dtype.from_bytes(self.tensors[place].get(start..start + size)?))
    }
}

/// Calls `f` with flat index and bits of each live element.
pub(crate) fn each(runs: &[LiveRun], dtype: DType, bytes: &[u8], mut f: impl FnMut(u64, u64)) {
    let size = dtype.size_bytes() as usize;
    let mut rest = bytes;
    for run in runs {
        let (here, after) = rest.split_at(run.count as usize * size);
        rest = after;
        let flats = run.flat..;
        match size {
            1 => flats.zip(here).for_each(|(flat, byte)| f(flat, u64::from(*byte))),
            2 => flats
                .zip(here.as_chunks::<2>().0)
                .for_each(|(flat, raw)| f(flat, u64::from(u16::from_le_bytes(*raw)))),
            4 => flats
                .zip(here.as_chunks::<4>().0)
                .for_each(|(flat, raw)| f(flat, u64::from(u32::from_le_bytes(*raw)))),
            _ => flats
                .zip(here.as_chunks::<8>().0)
                .for_each(|(flat, raw)| f(flat, u64::from_le_bytes(*raw))),
        }
    }
}

/// Calls `f` with flat index and both runs' bits of each live element, until it answers `Some`.
pub(crate) fn find_pair<T>(
    runs: &[LiveRun],
    dtype: DType,
    (one, other): (&[u8], &[u8]),
    mut f: impl FnMut(u64, u64, u64) -> Option<T>,
) -> Option<T> {
    let size = dtype.size_bytes() as usize;
    let flats = runs.iter().flat_map(|run| run.flat..run.flat + run.count);
    let pairs = one.chunks_exact(size).zip(other.chunks_exact(size));
    flats
        .zip(pairs)
        .find_map(|(flat, (one, other))| f(flat, dtype.from_bytes(one), dtype.from_bytes(other)))
}

/// Calls `f` with flat index and value of each live element. The branch on the type is outside the
/// loops: this is the oracle's hot path.
pub(crate) fn each_value(
    runs: &[LiveRun],
    dtype: DType,
    bytes: &[u8],
    mut f: impl FnMut(usize, f64),
) {
    let size = dtype.size_bytes() as usize;
    let mut rest = bytes;
    for run in runs {
        let (here, after) = rest.split_at(run.count as usize * size);
        rest = after;
        let flats = run.flat as usize..;
        match dtype {
            DType::F32 => flats
                .zip(here.as_chunks::<4>().0)
                .for_each(|(flat, raw)| f(flat, f64::from(f32::from_le_bytes(*raw)))),
            DType::F16 => flats.zip(here.as_chunks::<2>().0).for_each(|(flat, raw)| {
                f(flat, DType::F16.to_f64(u64::from(u16::from_le_bytes(*raw))))
            }),
            DType::BF16 => flats.zip(here.as_chunks::<2>().0).for_each(|(flat, raw)| {
                f(flat, DType::BF16.to_f64(u64::from(u16::from_le_bytes(*raw))))
            }),
            other => flats
                .zip(here.chunks_exact(size))
                .for_each(|(flat, raw)| f(flat, other.to_f64(other.from_bytes(raw)))),
        }
    }
}
