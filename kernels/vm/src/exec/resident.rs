//! A block that has started and not ended: its warps, and what only it can reach.
//! Invariant: a block that was laid aside and taken up again goes on as if it had never stopped.

use super::Launch;
use super::copy::PendingCopy;
use super::machine::{Gate, Local, Machine};
use super::warp::{self, Fragment, Longs, Poll, State, Warp, Words};
use crate::module::Entry;
use crate::program::{Class, Special};
use crate::race::Standing;
use crate::shared::Shared;
use std::collections::VecDeque;
use std::mem::swap;

/// A block's memory.
#[derive(Default)]
pub(crate) struct Seat {
    pub shared: Shared,
    pub local: Local,
    pub copies: Vec<VecDeque<PendingCopy>>,
    pub commits: Vec<[u32; 32]>,
}

/// How a block stood when it last had nothing to do but poll.
#[derive(Clone, Copy, Default)]
pub(crate) struct Calm {
    /// Changes of memory in the launch until then.
    pub changes: u64,
    /// Times in a row without a change.
    pub times: u32,
    /// Of everything the block's threads held the last two times, once it has been calm for some
    /// time.
    pub fingerprints: [Option<u64>; 2],
}

#[derive(Default)]
pub(crate) struct Resident {
    /// Number of the block in the grid.
    pub number: u64,
    pub warps: Vec<Warp>,
    pub calm: Calm,
    seat: Seat,
    gates: [Gate; 16],
    alive_threads: u32,
    standing: Standing,
}

impl Resident {
    /// Lays out registers and memory for the blocks of a launch.
    pub fn furnish(&mut self, entry: &Entry, launch: &Launch<'_>) {
        let threads: u32 = launch.block.iter().product();
        let warps = threads.div_ceil(32) as usize;
        let seat = &mut self.seat;
        seat.shared.prepare(
            &entry.shared,
            entry.dynamic_shared_offset,
            launch.dynamic_shared_bytes,
        );
        seat.local.bytes_per_thread = entry.local_bytes as usize;
        seat.local.data.clear();
        seat.local.data.resize(warps * 32 * seat.local.bytes_per_thread, 0);
        seat.commits.clear();
        seat.commits.resize(warps, [0; 32]);
        if seat.copies.len() < warps {
            seat.copies.resize_with(warps, VecDeque::new);
        }
        self.warps.truncate(warps);
        self.warps.resize_with(warps, Warp::default);
        for (index, warp) in self.warps.iter_mut().enumerate() {
            prepare(warp, index as u32, entry, launch);
        }
    }

    /// Changes places with the block that runs.
    pub fn exchange(&mut self, machine: &mut Machine<'_>) {
        swap(&mut self.seat.shared, machine.shared);
        swap(&mut self.seat.local, machine.local);
        swap(&mut self.seat.copies, machine.copies);
        swap(&mut self.seat.commits, machine.commits);
        swap(&mut self.gates, &mut machine.gates);
        swap(&mut self.alive_threads, &mut machine.alive_threads);
        machine.races.exchange_block(&mut self.standing);
    }

    /// Begins a block, while it is the one that runs.
    pub fn start(&mut self, machine: &mut Machine<'_>, number: u64, block: [u32; 3]) {
        let threads = machine.block_threads;
        self.number = number;
        self.calm = Calm::default();
        machine.races.start_block(number as u32);
        machine.gates = [Gate::default(); 16];
        machine.alive_threads = threads;
        machine.shared.start_block();
        machine.local.init.clear();
        machine.local.init.resize(machine.local.data.len(), false);
        for copies in machine.copies.iter_mut() {
            copies.clear();
        }
        machine.commits.fill([0; 32]);
        for warp in &mut self.warps {
            let here = (threads - warp.index * 32).min(32);
            warp.alive = if here == 32 { warp::FULL } else { (1 << here) - 1 };
            warp.clock = 0;
            warp.yielding = None;
            warp.poll = Poll::default();
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

    /// A hash of all that the threads hold.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |x: u64| hash = (hash ^ x).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        for warp in &self.warps {
            add(u64::from(warp.alive) << 32 | u64::from(warp.yielding.unwrap_or(u32::MAX)));
            for fragment in &warp.fragments {
                let state = match fragment.state {
                    State::Ready => 16,
                    State::Gathering => 17,
                    State::AtBarrier(id) => u64::from(id),
                };
                add(u64::from(fragment.pc) << 32 | u64::from(fragment.mask));
                add(state);
            }
            if warp.fragments.is_empty() {
                continue;
            }
            warp.predicates.iter().for_each(|p| add(u64::from(*p)));
            warp.words.iter().flat_map(|w| &w.0).for_each(|w| add(u64::from(*w)));
            warp.longs.iter().flat_map(|l| &l.0).for_each(|l| add(*l));
        }
        hash
    }
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
