//! Where a plan runs: the PTX virtual machine, or a GPU. Both run the same plan in the same arena
//! and leave the results there; what the kernel did wrong is an outcome, what the tool could not do
//! is an error.

mod arguments;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "planted")]
pub mod emulated;
mod modules;
#[cfg(any(test, feature = "cuda", feature = "planted"))]
mod slab;
pub mod vm;

use crate::arena::Arena;
use crate::call::Call;
use crate::launch::Plan;
use crate::ptx::PtxError;
use contracts::case::Schedule;
use std::fmt;

/// How a plan ended.
#[derive(Debug)]
pub enum Outcome {
    /// Every launch finished; the results are in the arena.
    Ran(RunStats),
    /// The kernel broke a rule; the arena holds what it had done by then.
    Fault(Fault),
    /// The backend cannot run this, which says nothing about the kernel.
    Unsupported {
        /// What it cannot do.
        what: String,
        /// Where: PTX line and source line, or the plan.
        where_: String,
    },
}

/// What a run cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Launches.
    pub launches: u64,
    /// Warp instructions; 0 where the backend does not count them.
    pub instructions: u64,
}

/// A rule the kernel broke.
#[derive(Debug)]
pub enum Fault {
    /// The virtual machine's exact report.
    Machine(Box<ptx_vm::Fault>),
    /// The GPU changed a byte that no thread may write. The first such byte.
    StrayWrite {
        /// The buffer's name.
        buffer: String,
        /// Position in the buffer.
        offset_bytes: u64,
        /// The byte before the run.
        before: u8,
        /// The byte after.
        after: u8,
    },
    /// The GPU wrote outside every buffer. The first such byte.
    GuardWrite {
        /// The buffer whose guard band it is.
        buffer: String,
        /// Position relative to the buffer's start: negative before it, at least its length after it.
        offset_bytes: i64,
        /// The guard's byte.
        before: u8,
        /// The byte after the run.
        after: u8,
    },
    /// Two replays of one captured graph from the same memory left different bytes. The first.
    Replay {
        /// The buffer's name.
        buffer: String,
        /// Position in the buffer.
        offset_bytes: u64,
        /// The byte after the first replay.
        first: u8,
        /// The byte after the second.
        second: u8,
    },
    /// Scratch that is zero before every run was not left zero: the next run would go wrong. The
    /// first such byte.
    Residue {
        /// The scratch's name.
        scratch: &'static str,
        /// Position in it.
        offset_bytes: u64,
        /// The byte left there.
        left: u8,
    },
    /// The GPU stopped: an illegal address, a trap, a time-out. The backend is lost with it.
    Device {
        /// CUDA's error number.
        code: u32,
        /// CUDA's name and words for it.
        message: String,
        /// The entries launched, the last of which is the likeliest cause.
        entries: String,
    },
}

/// The tool failing, not the kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum BackendError {
    /// The module's PTX is missing, stale or unreadable.
    Ptx(PtxError),
    /// The module lacks the entry.
    UnknownEntry {
        /// The module's stem.
        module: String,
        /// The entry.
        entry: String,
        /// The entries it has.
        known: Vec<String>,
    },
    /// The plan's arguments do not fit the entry's parameters.
    Signature {
        /// The entry.
        entry: String,
        /// The parameter, from 0.
        index: usize,
        /// What the PTX declares.
        expected: String,
        /// What the plan passes.
        found: String,
    },
    /// The call names a buffer the arena lacks.
    NoBuffer {
        /// The tensor.
        tensor: String,
        /// Its buffer's index.
        buffer: u32,
    },
    /// The plan names scratch it did not plan.
    NoScratch {
        /// The entry.
        entry: String,
        /// The scratch number.
        number: usize,
        /// How many there are.
        planned: usize,
    },
    /// The launch itself is impossible: its grid, block or shared memory.
    BadLaunch {
        /// The entry.
        entry: String,
        /// Why.
        why: String,
    },
    /// No usable GPU or driver.
    NoDevice {
        /// Why, in one paragraph.
        reason: String,
    },
    /// The module is written for one generation of GPUs, and the device is of another.
    OtherDevice {
        /// The module.
        module: String,
        /// Compute capability it demands.
        demanded: (i32, i32),
        /// The device's.
        found: (i32, i32),
    },
    /// An earlier fault took the GPU's context with it.
    DeviceLost {
        /// That fault.
        reason: String,
    },
    /// A call of the driver failed, before any launch unless it was copying results.
    Driver {
        /// What was being done.
        doing: &'static str,
        /// CUDA's words.
        message: String,
    },
    /// This backend has no graphs to capture into.
    CannotCapture {
        /// The backend.
        backend: &'static str,
    },
}

/// What a backend does once launches have ended, as [`BackendError::Driver`] says it.
pub const COPYING_RESULTS: &str = "copying results";

impl BackendError {
    /// Whether no launch of the plan can have run, so that memory is as it was.
    pub fn nothing_ran(&self) -> bool {
        match self {
            BackendError::DeviceLost { .. } => false,
            BackendError::Driver { doing, .. } => *doing != COPYING_RESULTS,
            _ => true,
        }
    }
}

/// A place to run plans.
pub trait Backend {
    /// `vm` or `cuda`.
    fn name(&self) -> &'static str;

    /// Runs the plan of `call`. Scratch is added to the arena, uninitialised and filled with its
    /// poison; bytes the kernel stores are marked `WRITTEN` there.
    fn run(&mut self, call: &Call, plan: &Plan, arena: &mut Arena)
    -> Result<Outcome, BackendError>;

    /// The order in which blocks and warps of later runs go, where the backend lets one choose.
    fn order(&mut self, _schedule: Schedule) {}

    /// Whether [`Backend::order`] changes anything.
    fn orders(&self) -> bool {
        false
    }

    /// As [`Backend::run`], while `watch` learns who stores to its bytes; `None` where the backend
    /// cannot tell.
    fn run_watched(
        &mut self,
        _call: &Call,
        _plan: &Plan,
        _arena: &mut Arena,
        _watch: &mut ptx_vm::Watch,
    ) -> Result<Option<Outcome>, BackendError> {
        Ok(None)
    }

    /// What was reached of the checked-in modules so far, where the backend counts it.
    fn reached(&self) -> Option<&vm::Coverage> {
        None
    }

    /// From now on, runs `ptx` wherever a plan names module `stem`: a mutant in the kernel's place.
    fn replace_module(&mut self, stem: &str, ptx: &str) -> Result<(), BackendError>;

    /// Ends every replacement.
    fn restore_modules(&mut self);

    /// Whether [`Backend::run_captured`] works.
    fn captures(&self) -> bool {
        false
    }

    /// As [`Backend::run`], through a captured graph that is replayed twice from the same arena.
    fn run_captured(
        &mut self,
        _call: &Call,
        _plan: &Plan,
        _arena: &mut Arena,
    ) -> Result<Outcome, BackendError> {
        Err(BackendError::CannotCapture { backend: self.name() })
    }
}

/// Every backend of this build, the virtual machine first: what it finds faulty goes to no GPU. A build
/// with the `cuda` feature is meant for a GPU, so none there is an error and not a shorter list.
pub fn of_this_build() -> Result<Vec<Box<dyn Backend>>, BackendError> {
    let machine: Box<dyn Backend> = Box::new(vm::VmBackend::new());
    #[cfg(feature = "cuda")]
    return Ok(vec![machine, Box::new(cuda::CudaBackend::new()?)]);
    #[cfg(not(feature = "cuda"))]
    Ok(vec![machine])
}

/// The entry, or an error that lists the entries there are.
fn entry_of<'a>(
    module: &'a ptx_vm::Module,
    stem: &str,
    entry: &str,
) -> Result<&'a ptx_vm::Entry, BackendError> {
    module.entry(entry).ok_or_else(|| BackendError::UnknownEntry {
        module: stem.to_owned(),
        entry: entry.to_owned(),
        known: module.entries().map(|entry| entry.name().to_owned()).collect(),
    })
}

impl From<PtxError> for BackendError {
    fn from(error: PtxError) -> Self {
        BackendError::Ptx(error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Machine(fault) => write!(f, "{fault}"),
            Fault::StrayWrite { buffer, offset_bytes, before, after } => write!(
                f,
                "byte {offset_bytes} of `{buffer}`, which no thread may write, changed from {before:#04x} to {after:#04x}"
            ),
            Fault::GuardWrite { buffer, offset_bytes, before, after } => {
                let place = if *offset_bytes < 0 { "before" } else { "after" };
                write!(
                    f,
                    "the guard band {place} `{buffer}`, at byte {offset_bytes} from its start, changed from \
                     {before:#04x} to {after:#04x}: a store left the buffer"
                )
            }
            Fault::Replay { buffer, offset_bytes, first, second } => write!(
                f,
                "byte {offset_bytes} of `{buffer}` is {first:#04x} after one replay of the captured graph and \
                 {second:#04x} after the next, from the same memory"
            ),
            Fault::Residue { scratch, offset_bytes, left } => write!(
                f,
                "byte {offset_bytes} of scratch `{scratch}`, which is zero before a run and must be zero after \
                 it, was left {left:#04x}: the next run would start from it"
            ),
            Fault::Device { code, message, entries } => {
                write!(f, "the GPU stopped with error {code}, {message}, while running {entries}")
            }
        }
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendError::Ptx(error) => write!(f, "{error}"),
            BackendError::UnknownEntry { module, entry, known } => {
                write!(f, "module `{module}` has no entry `{entry}`; it has {}", known.join(", "))
            }
            BackendError::Signature { entry, index, expected, found } => write!(
                f,
                "argument {index} of entry `{entry}`: the PTX declares {expected}, the plan passes {found}"
            ),
            BackendError::NoBuffer { tensor, buffer } => {
                write!(
                    f,
                    "tensor `{tensor}` lies in buffer {buffer}, which the arena does not have"
                )
            }
            BackendError::NoScratch { entry, number, planned } => {
                write!(f, "entry `{entry}` is given scratch {number} of a plan that has {planned}")
            }
            BackendError::BadLaunch { entry, why } => {
                write!(f, "entry `{entry}` cannot be launched: {why}")
            }
            BackendError::NoDevice { reason } => write!(f, "no usable GPU: {reason}"),
            BackendError::OtherDevice { module, demanded, found } => write!(
                f,
                "module `{module}` demands compute capability {}.{}; the device has {}.{}: take a portable \
                 variant of the kernel",
                demanded.0, demanded.1, found.0, found.1
            ),
            BackendError::DeviceLost { reason } => {
                write!(
                    f,
                    "the GPU's context was lost to an earlier fault ({reason}); start a new process"
                )
            }
            BackendError::Driver { doing, message } => write!(f, "{doing} failed: {message}"),
            BackendError::CannotCapture { backend } => {
                write!(f, "the {backend} backend cannot capture launches into a graph")
            }
        }
    }
}

impl std::error::Error for BackendError {}
