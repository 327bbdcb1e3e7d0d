//! A launch: checked, set up, and its blocks run one after the other, warps in turn.
//! Invariant: the order of everything is fixed, so equal launches give equal results.

pub(crate) mod access;
pub(crate) mod alu;
pub(crate) mod atomic;
pub(crate) mod collective;
mod copy;
mod deliver;
pub(crate) mod lane;
pub(crate) mod machine;
pub(crate) mod matrix;
pub(crate) mod mma;
pub(crate) mod product;
pub(crate) mod step;
pub(crate) mod store;
pub(crate) mod warp;

use crate::approx::FloatModel;
use crate::coverage::Coverage;
use crate::dispatch;
use crate::fault::{Fault, FaultKind, LaunchError, Party, Stop};
use crate::memory::Memory;
use crate::module::{Entry, Module};
use crate::program::{Class, Special};
use crate::race::Races;
use crate::shared::Shared;
use copy::PendingCopy;
use machine::{Gate, Local, Machine, Trouble};
use product::Operands;
use std::cell::Cell;
use std::collections::VecDeque;
use step::{Outcome, Raise, Raised};
use warp::{Fragment, Longs, State, Warp, Words};

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
}

impl Default for Options {
    /// Everything checked.
    fn default() -> Options {
        Options { checks: true, float_model: FloatModel::default() }
    }
}

/// What a launch did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Warp instructions executed.
    pub warp_instructions: u64,
    /// Blocks run.
    pub blocks: u64,
}

/// Allocations kept from launch to launch.
#[derive(Default)]
struct Scratch {
    shared: Shared,
    local: Local,
    warps: Vec<Warp>,
    data: Vec<u8>,
    copies: Vec<VecDeque<PendingCopy>>,
    commits: Vec<[u32; 32]>,
    operands: Operands,
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
    let entry = check(module, launch, limits).map_err(Stop::BadLaunch)?;
    let mut scratch = SCRATCH.take().unwrap_or_default();
    let counts = coverage.open(entry);
    let result = run(module, entry, memory, launch, limits, options, counts, &mut scratch);
    SCRATCH.set(Some(scratch));
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
    if scratch.warps.len() < warp_count {
        scratch.warps.resize_with(warp_count, Warp::default);
    }
    let warps = &mut scratch.warps[..warp_count];
    for (index, warp) in warps.iter_mut().enumerate() {
        prepare(warp, index as u32, entry, launch);
    }
    let grid = launch.grid.map(u64::from);
    if options.checks && grid.iter().product::<u64>() > 1 {
        let races = &mut scratch.races;
        let (code, data) = (entry.code.len(), module.data.len());
        let mut begin = |next| races.begin(next, code, data, entry.synchronises);
        if !begin(memory.next_access) {
            memory.forget_accesses();
            begin(0);
        }
    }
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
        wide: dispatch::detect(),
        checks: options.checks,
        races: &mut scratch.races,
        left: limits.instructions,
        gates: [Gate::default(); 16],
        alive_threads: threads,
        block_threads: threads,
        copies: &mut scratch.copies[..warp_count],
        commits: &mut scratch.commits,
        ticks: 0,
        operands: &mut scratch.operands,
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
                machine.races.start_block(blocks as u32 - 1);
                start_block(warps, &mut machine, block, threads);
                let ended = run_block(warps, &mut machine, limits);
                if let Err((warp, raised)) = ended {
                    result = Err(report(&machine, launch, block, warp, *raised));
                    break 'grid;
                }
            }
        }
    }
    if machine.races.on {
        machine.memory.next_access = machine.races.end();
    }
    let stats = Stats { warp_instructions: limits.instructions - machine.left, blocks };
    result.map(|()| stats)
}

/// Gives a warp its registers, constants, parameters and thread numbers.
fn prepare(warp: &mut Warp, index: u32, entry: &Entry, launch: &Launch<'_>) {
    warp.index = index;
    let size = [entry.words, entry.longs, entry.predicates].map(|n| n as usize);
    // What a thread may read before writing is zeroed at each block's start; the rest of the
    // slots need no value.
    warp.words.resize(size[0], Words([0; 32]));
    warp.longs.resize(size[1], Longs([0; 32]));
    warp.predicates.clear();
    warp.predicates.resize(size[2].max(1), 0);
    warp.predicates[0] = warp::FULL;
    for (slot, value) in &entry.word_constants {
        warp.words[usize::from(*slot)].0 = [*value; 32];
    }
    for (slot, value) in &entry.long_constants {
        warp.longs[usize::from(*slot)].0 = [*value; 32];
    }
    for (offset, width, signed, reg) in &entry.parameter_slots {
        let at = *offset as usize;
        let mut bytes = [0u8; 8];
        let width = usize::from(*width);
        if let Some(given) = launch.parameters.get(at..at + width) {
            bytes[..width].copy_from_slice(given);
        }
        let mut value = u64::from_le_bytes(bytes);
        if *signed && width < 8 {
            let unused = 64 - 8 * width as u32;
            value = ((value << unused) as i64 >> unused) as u64;
        }
        warp.fill(*reg, value);
    }
    for (special, reg) in &entry.specials {
        let values = special_values(*special, index, entry, launch);
        match reg.class {
            Class::Word => warp.words[usize::from(reg.slot)].0 = values,
            Class::Long => warp.longs[usize::from(reg.slot)].0 = values.map(u64::from),
            Class::Predicate => {}
        }
    }
}

/// A special register in every lane of a warp; those of the block are set at its start.
fn special_values(special: Special, warp: u32, entry: &Entry, launch: &Launch<'_>) -> [u32; 32] {
    let [bx, by, bz] = launch.block;
    let first = warp * 32;
    let lanes = |f: fn(u32) -> u32| std::array::from_fn(|lane| f(lane as u32));
    let same = |value| [value; 32];
    match special {
        Special::Tid(0) if first + 32 <= bx => std::array::from_fn(|lane| first + lane as u32),
        Special::Tid(axis) => {
            let (mut x, mut y, mut z) = (first % bx, first / bx % by, first / bx / by);
            std::array::from_fn(|_| {
                let value = [x, y, z][usize::from(axis).min(2)];
                x += 1;
                if x == bx {
                    (x, y) = (0, y + 1);
                }
                if y == by {
                    (y, z) = (0, z + 1);
                }
                value
            })
        }
        Special::Ntid(axis) => same(launch.block[usize::from(axis).min(2)]),
        Special::Nctaid(axis) => same(launch.grid[usize::from(axis).min(2)]),
        Special::Ctaid(_) | Special::Zero => same(0),
        Special::Lane => lanes(|lane| lane),
        Special::Warp => same(warp),
        Special::WarpCount => same((bx * by * bz).div_ceil(32)),
        Special::LaneMaskEq => lanes(|lane| 1 << lane),
        Special::LaneMaskLt => lanes(|lane| (1 << lane) - 1),
        Special::LaneMaskLe => lanes(|lane| (1 << lane) | ((1 << lane) - 1)),
        Special::LaneMaskGt => lanes(|lane| !((1 << lane) | ((1 << lane) - 1))),
        Special::LaneMaskGe => lanes(|lane| !((1 << lane) - 1)),
        Special::DynamicShared => same(launch.dynamic_shared_bytes),
        Special::TotalShared => same(entry.static_shared_bytes + launch.dynamic_shared_bytes),
        Special::DynamicBase => same(entry.dynamic_shared_offset),
    }
}

fn start_block(warps: &mut [Warp], machine: &mut Machine<'_>, block: [u32; 3], threads: u32) {
    machine.gates = [Gate::default(); 16];
    machine.alive_threads = threads;
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
            return Ok(());
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
    machine: &Machine<'_>,
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
            block: other.block.map(|n| {
                let [nx, ny, _] = launch.grid;
                [n % nx, n / nx % ny, n / nx / ny]
            }),
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
    }))
}
