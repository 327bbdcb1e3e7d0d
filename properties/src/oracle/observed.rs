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
    in_runs(runs, dtype, bytes, |mut flat, here| {
        dtype.each_bits(here, |bits| {
            f(flat, bits);
            flat += 1;
        });
    });
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

/// Calls `f` with flat index and value of each live element.
pub(crate) fn each_value(
    runs: &[LiveRun],
    dtype: DType,
    bytes: &[u8],
    mut f: impl FnMut(usize, f64),
) {
    in_runs(runs, dtype, bytes, |flat, here| {
        let mut flat = flat as usize;
        dtype.each_value(here, |value| {
            f(flat, value);
            flat += 1;
        });
    });
}

/// Calls `f` with the flat index at which each run begins, and the run's bytes.
fn in_runs(runs: &[LiveRun], dtype: DType, bytes: &[u8], mut f: impl FnMut(u64, &[u8])) {
    let mut rest = bytes;
    for run in runs {
        let (here, after) = rest.split_at((run.count * dtype.size_bytes()) as usize);
        rest = after;
        f(run.flat, here);
    }
}
