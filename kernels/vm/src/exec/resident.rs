//! A block that has started and not ended: its warps, and what only it can reach.
//! Invariant: a block that was laid aside and taken up again goes on as if it had never stopped.

use super::Launch;
use super::cluster::{Cluster, Clusters};
use super::copy::PendingCopy;
use super::crew::Crew;
use super::flight::Flight;
use super::machine::{Gate, Local, Machine};
use super::mbarrier::Mbarriers;
use super::warp::{self, Fragment, Poll, State, Warp};
use crate::module::Entry;
use crate::race::Standing;
use crate::rare::Rare;
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
    pub mbarriers: Mbarriers,
    pub flights: Vec<Flight>,
}

/// How a block stood when it last had nothing to do but poll.
#[derive(Clone, Copy, Default)]
pub(crate) struct Calm {
    /// Changes of memory in the launch until then.
    pub changes: u64,
    /// Times that a clock was read in the launch until then.
    pub ticks: u64,
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
    pub calm: Calm,
    crew: Crew,
    pub seat: Seat,
    /// Its index in the grid, for the launch's watch.
    place: [u32; 3],
    gates: [Gate; 16],
    pub cluster: Cluster,
    alive_threads: u32,
    standing: Standing,
}

impl Resident {
    /// Lays out registers and memory for the blocks of a launch.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn furnish(&mut self, entry: &Entry, launch: &Launch<'_>, clusters: Clusters) {
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
        if seat.flights.len() < warps {
            seat.flights.resize_with(warps, Flight::default);
        }
        if seat.copies.len() < warps {
            seat.copies.resize_with(warps, VecDeque::new);
        }
        self.crew.prepare(entry, launch, clusters, warps);
    }

    /// Whether it was laid out for the same kernel before.
    pub fn knows(&self, entry: &Entry) -> bool {
        self.crew.knows(entry)
    }

    pub fn warps(&self) -> &[Warp] {
        self.crew.warps()
    }

    pub fn warps_mut(&mut self) -> &mut [Warp] {
        self.crew.warps_mut()
    }

    /// Changes places with the block that runs.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn exchange(&mut self, machine: &mut Machine<'_>) {
        swap(&mut self.seat.shared, machine.shared);
        swap(&mut self.seat.local, machine.local);
        swap(&mut self.seat.copies, machine.copies);
        swap(&mut self.seat.commits, machine.commits);
        swap(&mut self.seat.mbarriers, machine.mbarriers);
        swap(&mut self.seat.flights, machine.flights);
        if let Some(watch) = &mut machine.watch {
            swap(&mut self.place, &mut watch.block);
        }
        swap(&mut self.gates, &mut machine.gates);
        swap(&mut self.cluster, &mut machine.cluster);
        swap(&mut self.alive_threads, &mut machine.alive_threads);
        machine.races.exchange_block(&mut self.standing);
    }

    /// Begins a block, while it is the one that runs.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn start(&mut self, machine: &mut Machine<'_>, number: u64, block: [u32; 3]) {
        /// Bytes that are cleared in the time of an instruction.
        const CLEARED_BYTES: usize = 1024;
        let clusters = machine.clusters;
        let threads = machine.block_threads;
        let cleared = machine.shared.data.len() + machine.local.data.len();
        let charge = machine.left.min((cleared / CLEARED_BYTES) as u64);
        machine.left -= charge;
        machine.charged += charge;
        self.number = number;
        self.calm = Calm::default();
        machine.races.start_block(number as u32);
        if let Some(watch) = &mut machine.watch {
            watch.block = block;
        }
        machine.gates = [Gate::default(); 16];
        machine.mbarriers.clear();
        machine.flights.iter_mut().for_each(Flight::clear);
        machine.alive_threads = threads;
        let tests = |rare: &Rare| matches!(rare, Rare::Mbarrier(_));
        let phased = !machine.cluster.is_several() && machine.entry.rares.iter().any(tests);
        machine.shared.start_block(phased);
        machine.local.init.clear();
        machine.local.init.resize(machine.local.data.len(), false);
        for copies in machine.copies.iter_mut() {
            copies.clear();
        }
        machine.commits.fill([0; 32]);
        for warp in self.crew.warps_mut() {
            let here = (threads - warp.index * 32).min(32);
            warp.alive = if here == 32 { warp::FULL } else { (1 << here) - 1 };
            warp.restart_clock();
            warp.yielding = None;
            warp.poll = Poll::default();
            warp.arrived = 0;
            warp.fragments.clear();
            warp.fragments.push(Fragment { pc: 0, mask: warp.alive, state: State::Ready });
            for (special, reg) in &machine.entry.specials {
                if let Some(value) = clusters.special(*special, block) {
                    warp.fill(*reg, value.into());
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
        for warp in self.warps() {
            add(u64::from(warp.arrived) << 32 | u64::from(warp.arrived_odd & warp.arrived));
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
