//! From a case to everything one run needs: geometry, the call a consumer would make, the logical
//! inputs a reference sees, and what the reference expects. The same `Prepared` fills any number of
//! arenas, so two runs of a case differ in nothing but their poison.

mod fill;
mod place;

pub use fill::fill;
pub use place::{Owner, Place, locate};

use crate::check::ToolError;
use crate::subject::Subject;
use contracts::CaseError;
use contracts::case::Case;
use contracts::dtype::DType;
use contracts::format::{Access, Contract};
use contracts::geometry::{Geometry, TensorGeometry};
use contracts::logical::Logical;
use kernels::call::{Call, ScalarArg, TensorArg};
use reference::{Inputs, Outputs};

/// A case ready to run and to be judged.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// Contract, kernel and reference.
    pub subject: &'a Subject,
    /// The case.
    pub case: &'a Case,
    /// Shapes, strides, buffers, liveness.
    pub geometry: Geometry,
    /// The call; `TensorArg::buffer` is an index into `geometry.buffers`.
    pub call: Call,
    /// Everything the kernel reads, by logical index.
    pub inputs: Inputs,
    /// What the reference expects; empty for a run that is compared with another run only.
    pub expected: Outputs,
    /// Live elements of each tensor of `geometry.tensors`.
    pub live: Vec<Vec<LiveRun>>,
}

/// Live elements that are neighbours both logically and in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRun {
    /// Flat row-major index of the first.
    pub flat: u64,
    /// How many.
    pub count: u64,
    /// Distance of the first from the buffer's start, in elements.
    pub offset: u64,
    /// Live elements of the tensor in earlier runs.
    pub before: u64,
}

/// Checks a case completely and computes what its run and its judgement need.
///
/// # Errors
/// When the case does not satisfy its contract.
pub fn prepare<'a>(subject: &'a Subject, case: &'a Case) -> Result<Prepared<'a>, CaseError> {
    let geometry = Geometry::of(subject.contract, case)?;
    let mut prepared = assemble(subject, case, geometry);
    prepared.expected = (subject.reference)(&prepared.inputs);
    Ok(prepared)
}

/// As `prepare`, without a look at the contents and without the reference: for runs whose results
/// are compared with another run's.
///
/// # Errors
/// When sizes, lists or layouts do not satisfy the contract.
pub fn prepare_unjudged<'a>(
    subject: &'a Subject,
    case: &'a Case,
) -> Result<Prepared<'a>, CaseError> {
    let geometry = Geometry::layout_only(subject.contract, case)?;
    Ok(assemble(subject, case, geometry))
}

fn assemble<'a>(subject: &'a Subject, case: &'a Case, geometry: Geometry) -> Prepared<'a> {
    let call = call(subject.contract, case, &geometry);
    let inputs = inputs(subject.contract, case, &geometry);
    let live = geometry.tensors.iter().map(live_runs).collect();
    Prepared { subject, case, geometry, call, inputs, expected: Outputs::default(), live }
}

/// The call a consumer would make for this case.
pub fn call(contract: &Contract, case: &Case, geometry: &Geometry) -> Call {
    let tensors = geometry.tensors.iter().map(|tensor| {
        let argument = TensorArg {
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            strides: tensor.strides.clone(),
            buffer: tensor.buffer as u32,
            offset_bytes: tensor.offset * tensor.dtype.size_bytes(),
            kind: tensor.kind,
        };
        (tensor.name.clone(), argument)
    });
    let scalars = case.scalars.iter().map(|(name, bits)| {
        let dtype = contract.scalars.get(name).map_or(DType::F32, |scalar| scalar.dtype);
        (name.clone(), scalar(dtype, *bits))
    });
    let words = case.options.iter().chain(&case.variants);
    Call {
        tensors: tensors.collect(),
        scalars: scalars.collect(),
        words: words.map(|(name, word)| (name.clone(), word.clone())).collect(),
    }
}

/// Calls know f32, i32 and i64 scalars; narrower floats travel as the f32 of the same value.
fn scalar(dtype: DType, bits: u64) -> ScalarArg {
    match dtype {
        DType::I32 => ScalarArg::I32(bits as u32 as i32),
        DType::I64 => ScalarArg::I64(bits as i64),
        DType::F32 => ScalarArg::F32(bits as u32),
        narrow => ScalarArg::F32((narrow.to_f64(bits) as f32).to_bits()),
    }
}

fn inputs(contract: &Contract, case: &Case, geometry: &Geometry) -> Inputs {
    let read = geometry.tensors.iter().filter(|tensor| tensor.access != Access::Write);
    let tensors = read.filter_map(|tensor| Some((tensor.name.clone(), Logical::of(tensor, case)?)));
    let scalars = case.scalars.iter().map(|(name, bits)| {
        let dtype = contract.scalars.get(name).map_or(DType::F32, |scalar| scalar.dtype);
        (name.clone(), dtype.to_f64(*bits))
    });
    Inputs {
        tensors: tensors.collect(),
        dtypes: case.dtypes.iter().map(|(name, dtype)| (name.clone(), *dtype)).collect(),
        scalars: scalars.collect(),
        options: case.options.iter().map(|(name, word)| (name.clone(), word.clone())).collect(),
        dims: case.dims.iter().map(|(name, size)| (name.clone(), *size)).collect(),
        lists: case.lists.iter().map(|(name, list)| (name.clone(), list.clone())).collect(),
    }
}

/// Live elements as runs, ascending. Where only the first axis has gaps, a run is a number of
/// whole rows; neighbouring rows without a gap are one run.
fn live_runs(tensor: &TensorGeometry) -> Vec<LiveRun> {
    let row = tensor.row_count();
    let rows = tensor.shape.first().copied().unwrap_or(1);
    if row == 0 || rows == 0 {
        return Vec::new();
    }
    if tensor.shape.len() > 1 && inner_run(tensor) < row {
        return scattered_runs(tensor, inner_run(tensor));
    }
    let pitch = tensor.strides.first().copied().unwrap_or(row);
    let mut runs = Vec::new();
    let mut before = 0;
    let mut push_run = |first: u64, count: u64| {
        let (flat, offset) = (first * row, tensor.offset + first * pitch);
        runs.push(LiveRun { flat, count: count * row, offset, before });
        before += count * row;
    };
    let mut push = |first: u64, count: u64| {
        if pitch == row || count == 1 {
            push_run(first, count);
        } else {
            (first..first + count).for_each(|one| push_run(one, 1));
        }
    };
    let Some(live) = &tensor.live else {
        push(0, rows);
        return runs;
    };
    const STEP: usize = 64;
    let live = &live[..live.len().min(rows as usize)];
    let mut at = 0;
    while at < live.len() {
        // Pools are millions of rows of which a few are live.
        if live.len() - at >= STEP && !live[at..at + STEP].iter().fold(false, |any, one| any | one)
        {
            at += STEP;
        } else if live[at] {
            let end = live[at..].iter().position(|one| !one).map_or(live.len(), |n| at + n);
            push(at as u64, (end - at) as u64);
            at = end;
        } else {
            at += 1;
        }
    }
    runs
}

/// Neighbours in memory below one index of the first axis.
fn inner_run(tensor: &TensorGeometry) -> u64 {
    let mut run = 1;
    for (extent, stride) in tensor.shape.iter().zip(&tensor.strides).skip(1).rev() {
        if *stride != run && *extent != 1 {
            break;
        }
        run *= extent;
    }
    run
}

/// Live elements of a tensor whose rows do not lie in one piece, `piece` elements a run.
fn scattered_runs(tensor: &TensorGeometry, piece: u64) -> Vec<LiveRun> {
    let row = tensor.row_count();
    let starts = (0..tensor.count()).step_by(piece.max(1) as usize);
    let live = starts.filter(|flat| tensor.is_live_row(flat / row));
    let runs = live.enumerate().map(|(place, flat)| LiveRun {
        flat,
        count: piece,
        offset: tensor.element_offset(flat),
        before: place as u64 * piece,
    });
    runs.collect()
}

impl Prepared<'_> {
    /// Live elements of one tensor, by its place in `geometry.tensors`.
    pub fn live_count(&self, place: usize) -> u64 {
        self.live[place].iter().map(|run| run.count).sum()
    }

    /// Places of the tensors the kernel writes.
    pub fn written(&self) -> impl Iterator<Item = usize> + '_ {
        let tensors = self.geometry.tensors.iter().enumerate();
        tensors.filter(|(_, tensor)| tensor.access != Access::Read).map(|(place, _)| place)
    }

    /// Whether any byte of the buffers belongs to no live element.
    pub fn has_dead_bytes(&self) -> bool {
        let live: u64 = (0..self.live.len())
            .map(|place| self.live_count(place) * self.geometry.tensors[place].dtype.size_bytes())
            .sum();
        live < self.geometry.buffers.iter().map(|buffer| buffer.len_bytes).sum()
    }

    /// The launches the kernel plans for this case.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn plan(&self) -> Result<kernels::launch::Plan, kernels::call::Rejection> {
        (self.subject.plan)(&self.call)
    }
}

/// Missing parts of a contract's machinery, as the tool's failure.
pub(crate) fn missing<T>(what: impl FnOnce() -> String, found: Option<T>) -> Result<T, ToolError> {
    found.ok_or_else(|| ToolError::Missing(what()))
}
