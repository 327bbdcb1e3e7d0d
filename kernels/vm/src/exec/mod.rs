//! A launch: checked, set up, and its blocks run one after the other, warps in turn.
//! Invariant: the order of everything is fixed, so equal launches give equal results.

pub(crate) mod access;
pub(crate) mod alu;
pub(crate) mod atomic;
mod bulk;
pub(crate) mod collective;
mod copy;
mod crew;
mod deliver;
pub(crate) mod lane;
pub(crate) mod machine;
pub(crate) mod matrix;
mod mbarrier;
pub(crate) mod mma;
mod print;
pub(crate) mod product;
mod rare;
pub(crate) mod step;
pub(crate) mod store;
mod tile;
pub(crate) mod warp;
mod warpgroup;

use crate::approx::FloatModel;
use crate::coverage::Coverage;
use crate::dispatch;
use crate::fault::{Fault, FaultKind, LaunchError, Party, Stop};
use crate::memory::Memory;
use crate::module::{Entry, Module};
use crate::program::Special;
use crate::shared::Shared;
use crate::watch::Watch;
use copy::PendingCopy;
use crew::Crews;
use machine::{Gate, Local, Machine, Trouble};
use mbarrier::Mbarriers;
pub use product::MatrixModel;
use product::Operands;
use std::cell::Cell;
use std::collections::VecDeque;
use step::{Outcome, Raise, Raised};
use warp::{Fragment, State, Warp};

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
}

impl Default for Limits {
    /// 2³² warp instructions and the 227 KiB of an H200.
    fn default() -> Limits {
        Limits { instructions: 1 << 32, shared_bytes: 227 * 1024 }
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
}

impl Default for Options {
    /// Everything checked.
    fn default() -> Options {
        Options {
            checks: true,
            float_model: FloatModel::default(),
            matrix_model: MatrixModel::default(),
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
    shared: Shared,
    local: Local,
    crews: Crews,
    data: Vec<u8>,
    copies: Vec<VecDeque<PendingCopy>>,
    commits: Vec<[u32; 32]>,
    operands: Operands,
    tile: Warp,
    mbarriers: Mbarriers,
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
    let mut scratch = SCRATCH.take().unwrap_or_default();
    let counts = coverage.open(entry);
    let watching = watch.as_deref_mut();
    let result =
        run(module, entry, memory, launch, limits, options, counts, &mut scratch, watching);
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
    if zero || grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535 || block[2] > 64 {
        return Err(LaunchError::BadGeometry { grid, block });
    }
    let threads = block.iter().map(|n| u64::from(*n)).product();
    let limit = entry.max_threads.unwrap_or(1024).min(1024);
    if threads > u64::from(limit) {
        return Err(LaunchError::TooManyThreads { threads, limit });
    }
    let bytes = u64::from(entry.static_shared_bytes) + u64::from(launch.dynamic_shared_bytes);
    if bytes > limits.shared_bytes {
        return Err(LaunchError::TooMuchShared { bytes, limit: limits.shared_bytes });
    }
    Ok(entry)
}

#[allow(clippy::too_many_arguments)]
fn run(
    module: &Module,
    entry: &Entry,
    memory: &mut Memory,
    launch: &Launch<'_>,
    limits: &Limits,
    options: &Options,
    counts: &mut crate::coverage::EntryCoverage,
    scratch: &mut Scratch,
    watch: Option<&mut Watch>,
) -> Result<Stats, Stop> {
    let threads: u32 = launch.block.iter().product();
    let warp_count = threads.div_ceil(32) as usize;
    scratch.shared.prepare(&entry.shared, entry.dynamic_shared_offset, launch.dynamic_shared_bytes);
    scratch.data.clear();
    scratch.data.extend_from_slice(&module.data);
    let local = &mut scratch.local;
    local.bytes_per_thread = entry.local_bytes as usize;
    local.data.clear();
    local.data.resize(warp_count * 32 * local.bytes_per_thread, 0);
    scratch.commits.clear();
    scratch.commits.resize(warp_count, [0; 32]);
    if scratch.copies.len() < warp_count {
        scratch.copies.resize_with(warp_count, VecDeque::new);
    }
    let warps = scratch.crews.ready(entry, launch, warp_count);
    let mut machine = Machine {
        module,
        entry,
        memory,
        shared: &mut scratch.shared,
        local,
        parameters: launch.parameters,
        data: &mut scratch.data,
        edges: &mut counts.edges,
        model: options.float_model,
        matrix_model: options.matrix_model,
        wide: dispatch::detect(),
        checks: options.checks,
        left: limits.instructions,
        gates: [Gate::default(); 17],
        alive_threads: threads,
        block_threads: threads,
        copies: &mut scratch.copies[..warp_count],
        commits: &mut scratch.commits,
        ticks: 0,
        printed: String::new(),
        operands: &mut scratch.operands,
        watch,
        tile: &mut scratch.tile,
        mbarriers: &mut scratch.mbarriers,
    };
    let mut blocks = 0;
    let [nx, ny, nz] = launch.grid;
    let mut result = Ok(());
    'grid: for z in 0..nz {
        for y in 0..ny {
            for x in 0..nx {
                counts.launched += 1;
                blocks += 1;
                let block = [x, y, z];
                start_block(warps, &mut machine, block, threads);
                let ended = run_block(warps, &mut machine, limits);
                if let Err((warp, raised)) = ended {
                    result = Err(report(&mut machine, launch, block, warp, *raised));
                    break 'grid;
                }
            }
        }
    }
    let printed = std::mem::take(&mut machine.printed);
    let stats = Stats { warp_instructions: limits.instructions - machine.left, blocks, printed };
    result.map(|()| stats)
}

fn start_block(warps: &mut [Warp], machine: &mut Machine<'_>, block: [u32; 3], threads: u32) {
    if let Some(watch) = &mut machine.watch {
        watch.block = block;
    }
    machine.gates = [Gate::default(); 17];
    machine.alive_threads = threads;
    machine.mbarriers.clear();
    machine.shared.start_block();
    machine.local.init.clear();
    machine.local.init.resize(machine.local.data.len(), false);
    for copies in machine.copies.iter_mut() {
        copies.clear();
    }
    machine.commits.fill([0; 32]);
    for warp in warps.iter_mut() {
        let here = (threads - warp.index * 32).min(32);
        warp.alive = if here == 32 { warp::FULL } else { (1 << here) - 1 };
        warp.clock = 0;
        warp.yielding = None;
        warp.fragments.clear();
        warp.fragments.push(Fragment { pc: 0, mask: warp.alive, state: State::Ready });
        for (special, reg) in &machine.entry.specials {
            if let Special::Ctaid(axis) = special {
                warp.fill(*reg, u64::from(block[usize::from(*axis).min(2)]));
            }
        }
        for reg in &machine.entry.exposed {
            warp.fill(*reg, 0);
        }
    }
}

/// Runs the warps in turn until all have exited.
fn run_block(
    warps: &mut [Warp],
    machine: &mut Machine<'_>,
    limits: &Limits,
) -> Result<(), (usize, Box<Raised>)> {
    loop {
        let mut progress = false;
        let mut running = false;
        for w in 0..warps.len() {
            let warp = &mut warps[w];
            if warp.alive == 0 {
                continue;
            }
            running = true;
            if !warp.fragments.iter().any(|f| f.state == State::Ready) {
                continue;
            }
            if machine.left == 0 {
                let fragment = warp.fragments[0];
                let kind = FaultKind::InstructionBudget { limit: limits.instructions };
                return Err((w, raised(fragment.pc, fragment.mask, kind.into())));
            }
            progress = true;
            match dispatch::run_warp(warp, machine) {
                Ok(Outcome::Exited | Outcome::Blocked | Outcome::Slice) => {}
                Err(raised) => return Err((w, raised)),
            }
        }
        if !running {
            return mbarrier::ended(machine);
        }
        let opened = collective::release(warps, machine);
        if !progress && !opened {
            let (w, lane, pc, trouble) = collective::deadlock(warps, machine);
            let what = Raise::Trouble(trouble);
            return Err((w, Box::new(Raised { pc, lane, what })));
        }
    }
}

fn raised(pc: u32, mask: u32, trouble: Box<Trouble>) -> Box<Raised> {
    Box::new(Raised { pc, lane: mask.trailing_zeros() & 31, what: Raise::Trouble(trouble) })
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
