//! A launch: checked, set up, run and reported.
//! Invariant: the order of everything follows from the schedule, so equal launches give equal
//! results.

pub(crate) mod access;
pub(crate) mod address;
pub(crate) mod alu;
pub(crate) mod atomic;
mod bulk;
pub(crate) mod cluster;
pub(crate) mod collective;
mod copy;
mod crew;
mod deliver;
mod discard;
mod flight;
pub(crate) mod floor;
pub(crate) mod lane;
pub(crate) mod machine;
pub(crate) mod matrix;
mod mbarrier;
pub(crate) mod mma;
mod print;
pub(crate) mod product;
mod rare;
mod reduction;
pub(crate) mod resident;
mod schedule;
mod span;
pub(crate) mod step;
pub(crate) mod store;
mod strict;
mod tensor;
mod tile;
pub(crate) mod warp;
mod warpgroup;

use crate::approx::FloatModel;
use crate::coverage::Coverage;
use crate::dispatch;
use crate::fault::{Fault, LaunchError, Party, Stop};
use crate::memory::Memory;
use crate::module::{Entry, Module};
use crate::race::Races;
use crate::watch::Watch;
use cluster::{Cluster, Clusters};
use floor::{Floor, Halt, Spare};
use machine::{Gate, Machine};
pub use product::MatrixModel;
use product::Operands;
use resident::Seat;
pub use schedule::Schedule;
use std::cell::Cell;
use step::{Raise, Raised};
use warp::Warp;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Name of the kernel.
    pub entry: &'a str,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Shared memory beyond the declared arrays.
    pub dynamic_shared_bytes: u32,
    /// Parameter bytes, laid out by [`crate::Parameter::offset_bytes`].
    pub parameters: &'a [u8],
}

/// Bounds of one launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Warp instructions.
    pub instructions: u64,
    /// Shared memory of a block, static and dynamic.
    pub shared_bytes: u64,
    /// Multiprocessors. They bound the blocks that can be under way at once, each with as many as
    /// its 2,048 threads, 32 blocks and 228 KiB of shared memory allow.
    pub multiprocessors: u32,
    /// Host memory for blocks that wait for others.
    pub resident_bytes: u64,
}

impl Default for Limits {
    /// 2³² warp instructions, the 227 KiB and 132 multiprocessors of an H200, 1 GiB.
    fn default() -> Limits {
        Limits {
            instructions: 1 << 32,
            shared_bytes: 227 * 1024,
            multiprocessors: 132,
            resident_bytes: 1 << 30,
        }
    }
}

/// How to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Check initialisation, marks and races. Bounds and alignment of global memory, barriers
    /// and shuffles are always checked.
    pub checks: bool,
    /// Whose approximate functions.
    pub float_model: FloatModel,
    /// How matrix products add.
    pub matrix_model: MatrixModel,
    /// In which order blocks and warps run.
    pub schedule: Schedule,
    /// Blocks of a cluster along x, y, z, as a launch attribute; without it, the kernel's own
    /// (`.reqnctapercluster`), or one.
    pub cluster: Option<[u32; 3]>,
    /// Report as well what hardware since sm_70 lets pass: member masks that name exited or absent
    /// lanes, threads that exited before a barrier of the whole block, an aligned barrier that one
    /// warp reaches at two places, copies under way at an exit. Off by default, for CUDA lets only
    /// the threads that have not exited count for masks and barriers, and so correct kernels, such
    /// as those of blocks that are no multiple of a warp, do the first two.
    pub strict: bool,
}

impl Default for Options {
    /// Everything checked.
    fn default() -> Options {
        Options {
            checks: true,
            float_model: FloatModel::default(),
            matrix_model: MatrixModel::default(),
            schedule: Schedule::InOrder,
            cluster: None,
            strict: false,
        }
    }
}

/// What a launch did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Warp instructions executed.
    pub warp_instructions: u64,
    /// Blocks run.
    pub blocks: u64,
    /// What the kernel printed, thread after thread as they ran; the first 64 KiB of it.
    pub printed: String,
}

/// Allocations kept from launch to launch.
#[derive(Default)]
struct Scratch {
    /// The running block's own memory.
    seat: Seat,
    /// Blocks of earlier launches.
    spare: Spare,
    data: Vec<u8>,
    operands: Operands,
    tile: Warp,
    races: Races,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Runs a kernel on `memory` and counts its edges in `coverage`.
///
/// # Errors
/// [`Stop`] says whether the kernel is at fault, the machine lacks something, or the launch is
/// impossible. After a fault, `memory` holds what was stored before it.
pub fn launch(
    module: &Module,
    memory: &mut Memory,
    launch: &Launch<'_>,
    limits: &Limits,
    options: &Options,
    coverage: &mut Coverage,
) -> Result<Stats, Stop> {
    launch_with(module, memory, launch, limits, options, coverage, None)
}

/// As [`launch`], and `watch` learns which instructions stored to its bytes: slower, the same
/// results. After a fault it holds the stores before it.
///
/// # Errors
/// As [`launch`].
pub fn launch_watched(
    module: &Module,
    memory: &mut Memory,
    launch: &Launch<'_>,
    limits: &Limits,
    options: &Options,
    coverage: &mut Coverage,
    watch: &mut Watch,
) -> Result<Stats, Stop> {
    launch_with(module, memory, launch, limits, options, coverage, Some(watch))
}

fn launch_with(
    module: &Module,
    memory: &mut Memory,
    launch: &Launch<'_>,
    limits: &Limits,
    options: &Options,
    coverage: &mut Coverage,
    mut watch: Option<&mut Watch>,
) -> Result<Stats, Stop> {
    let entry = check(module, launch, limits).map_err(Stop::BadLaunch)?;
    let cluster = Clusters::of(entry, launch, options).map_err(Stop::BadLaunch)?;
    let mut scratch = SCRATCH.take().unwrap_or_default();
    let counts = coverage.open(entry);
    let watching = watch.as_deref_mut();
    let result = run(
        module,
        entry,
        memory,
        launch,
        cluster,
        limits,
        options,
        counts,
        &mut scratch,
        watching,
    );
    SCRATCH.set(Some(scratch));
    if let Some(watch) = watch {
        watch.close(module, entry, launch.block);
    }
    result
}

fn check<'m>(
    module: &'m Module,
    launch: &Launch<'_>,
    limits: &Limits,
) -> Result<&'m Entry, LaunchError> {
    let entry = module
        .entry(launch.entry)
        .ok_or_else(|| LaunchError::UnknownEntry(launch.entry.to_owned()))?;
    if launch.parameters.len() != entry.parameter_bytes as usize {
        return Err(LaunchError::ParameterLength {
            expected_bytes: entry.parameter_bytes,
            given_bytes: launch.parameters.len(),
        });
    }
    let (grid, block) = (launch.grid, launch.block);
    let zero = grid.contains(&0) || block.contains(&0);
    let long = grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535;
    if zero || long || block[2] > 64 {
        return Err(LaunchError::BadGeometry { grid, block });
    }
    let threads = block.iter().fold(1, |all: u64, n| all.saturating_mul((*n).into()));
    let limit = entry.max_threads.unwrap_or(1024).min(1024);
    if threads > u64::from(limit) {
        return Err(LaunchError::TooManyThreads { threads, limit });
    }
    let bytes = u64::from(entry.static_shared_bytes) + u64::from(launch.dynamic_shared_bytes);
    if bytes > limits.shared_bytes {
        return Err(LaunchError::TooMuchShared { bytes, limit: limits.shared_bytes });
    }
    let bytes = floor::block_bytes(entry, launch);
    if bytes > limits.resident_bytes {
        return Err(LaunchError::TooMuchMemory { bytes, limit: limits.resident_bytes });
    }
    Ok(entry)
}

#[allow(clippy::too_many_arguments)]
fn run(
    module: &Module,
    entry: &Entry,
    memory: &mut Memory,
    launch: &Launch<'_>,
    clusters: Clusters,
    limits: &Limits,
    options: &Options,
    counts: &mut crate::coverage::EntryCoverage,
    scratch: &mut Scratch,
    watch: Option<&mut Watch>,
) -> Result<Stats, Stop> {
    scratch.data.clear();
    scratch.data.extend_from_slice(&module.data);
    let blocks: u64 = launch.grid.iter().map(|n| u64::from(*n)).product();
    let threads: u32 = launch.block.iter().product();
    let recorded = options.checks && (blocks > 1 || threads > 32);
    if recorded {
        let races = &mut scratch.races;
        let (code, data) = (entry.code.len(), module.data.len());
        let mut begin = |next| races.begin(next, code, data, entry.synchronises);
        if !begin(memory.next_access) {
            memory.forget_accesses();
            begin(0);
        }
    }
    let seat = &mut scratch.seat;
    let mut machine = Machine {
        module,
        entry,
        memory,
        shared: &mut seat.shared,
        local: &mut seat.local,
        parameters: launch.parameters,
        data: &mut scratch.data,
        edges: &mut counts.edges,
        model: options.float_model,
        matrix_model: options.matrix_model,
        wide: dispatch::detect(),
        checks: options.checks,
        strict: options.strict,
        races: &mut scratch.races,
        left: limits.instructions,
        charged: 0,
        slice: step::SLICE,
        changes: 0,
        polled: false,
        gates: [Gate::default(); 16],
        clusters,
        cluster: Cluster::default(),
        alive_threads: 0,
        block_threads: launch.block.iter().product(),
        copies: &mut seat.copies,
        commits: &mut seat.commits,
        ticks: 0,
        printed: String::new(),
        operands: &mut scratch.operands,
        watch,
        tile: &mut scratch.tile,
        mbarriers: &mut seat.mbarriers,
        flights: &mut seat.flights,
    };
    let mut floor =
        Floor::new(entry, launch, clusters, limits, options.schedule, &mut scratch.spare);
    let result = dispatch::run_blocks(&mut floor, &mut machine);
    counts.launched += floor.started();
    let blocks = floor.started();
    let warp_instructions = limits.instructions - machine.left - machine.charged;
    let result = result.map_err(|halt| match halt {
        Halt::Raised { block, warp, raised } => {
            report(&mut machine, launch, place_of(block, launch.grid), warp, *raised)
        }
        Halt::Crowded { waiting, pc } => {
            let place = entry.places[pc as usize];
            Stop::Unsupported {
                what: format!("more than {waiting} blocks at once in `Limits::resident_bytes`"),
                ptx_line: place.ptx_line,
                source: module.source(place),
            }
        }
    });
    if recorded {
        machine.memory.next_access = machine.races.end();
    }
    let printed = std::mem::take(&mut machine.printed);
    result.map(|()| Stats { warp_instructions, blocks, printed })
}

/// The index of a block by its number.
pub(crate) fn place_of(number: u64, [nx, ny, _]: [u32; 3]) -> [u32; 3] {
    let (nx, ny) = (u64::from(nx), u64::from(ny));
    [number % nx, number / nx % ny, number / nx / ny].map(|n| n as u32)
}

/// Names places and threads.
fn report(
    machine: &mut Machine<'_>,
    launch: &Launch<'_>,
    block: [u32; 3],
    warp: usize,
    raised: Raised,
) -> Stop {
    let entry = machine.entry;
    let place = entry.places[raised.pc as usize];
    let source = machine.module.source(place);
    let index = |thread: u32| {
        let [bx, by, _] = launch.block;
        [thread % bx, thread / bx % by, thread / bx / by]
    };
    let trouble = match raised.what {
        Raise::Unsupported(i) => {
            return Stop::Unsupported {
                what: entry.unsupported[usize::from(i)].clone(),
                ptx_line: place.ptx_line,
                source,
            };
        }
        Raise::Trouble(trouble) => *trouble,
    };
    let other = trouble.other.and_then(|other| {
        let place = *entry.places.get(other.pc? as usize)?;
        Some(Party {
            block: other.block.map(|n| place_of(n.into(), launch.grid)),
            thread: other.thread.map(index),
            ptx_line: place.ptx_line,
            instruction: machine.module.text(place.ptx_line),
            source: machine.module.source(place),
        })
    });
    Stop::Fault(Box::new(Fault {
        kind: trouble.kind,
        entry: entry.name.clone(),
        ptx_line: place.ptx_line,
        instruction: machine.module.text(place.ptx_line),
        source,
        block,
        thread: index(warp as u32 * 32 + raised.lane),
        other,
        printed: std::mem::take(&mut machine.printed),
    }))
}
