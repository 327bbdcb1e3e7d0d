//! The blocks under way: which one runs, for how long, and when none can get any further.
//! The blocks of a cluster start together.
//! A block leaves the floor for another when all it does is to poll memory that nobody changes, and
//! more blocks start only then; a launch without polls runs block after block.
//!
//! No progress is reported when it is proven: no block can start, and each block under way has come
//! back to exactly the state in which it last stood while no byte of memory changed. A loop that
//! counts its polls, or looks at a clock, is left to the budget.

use super::cluster::{self, Clusters};
use super::machine::{Machine, Trouble};
use super::resident::{Calm, Resident};
use super::schedule::{Blocks, Schedule, Turns};
use super::step::{Outcome, Raise, Raised};
use super::warp::Warp;
use super::{Launch, Limits, collective, mbarrier};
use crate::dispatch;
use crate::fault::{FaultKind, MemorySpace, WarpgroupFault};
use crate::module::Entry;
use crate::program::Action;
use crate::rare::Rare;
use crate::space::{SHARED_BASE, WINDOW_BYTES};
use crate::syntax::Space;
use std::collections::VecDeque;

/// Calm visits before a block's state is looked at.
const CALM: u32 = 4;
/// Blocks kept for later launches.
const KEPT: usize = 8;

/// Blocks of earlier launches; boxes, for they change places.
#[allow(clippy::vec_box)]
pub(crate) type Spare = Vec<Box<Resident>>;

/// Why a launch stops.
pub(crate) enum Halt {
    Raised {
        block: u64,
        warp: usize,
        raised: Box<Raised>,
    },
    /// Blocks wait, and there is no room for those they may wait for.
    Crowded {
        waiting: usize,
        /// Where one of them polls.
        pc: u32,
    },
}

/// How a block's time ended.
enum Visit {
    Finished,
    /// Nothing but polls, or it waits for the others of its cluster.
    Waiting,
    /// Others may run.
    Over,
}

pub(crate) struct Floor<'a> {
    entry: &'a Entry,
    launch: &'a Launch<'a>,
    clusters: Clusters,
    limits: &'a Limits,
    /// Clusters that have not started.
    blocks: Blocks,
    turns: Turns,
    /// Started blocks that do not run, the next one first.
    aside: VecDeque<Box<Resident>>,
    spare: &'a mut Spare,
    /// Clusters that may be under way at once, and whether memory rather than hardware says so.
    room: usize,
    crowded: bool,
    /// Visits in a row that changed no memory, and the count of changes before them.
    quiet: usize,
    changes: u64,
    /// Visits in a row, every warp having had its turn, after which nothing at all had changed.
    idle: usize,
}

impl<'a> Floor<'a> {
    pub fn new(
        entry: &'a Entry,
        launch: &'a Launch<'a>,
        clusters: Clusters,
        limits: &'a Limits,
        schedule: Schedule,
        spare: &'a mut Spare,
    ) -> Floor<'a> {
        let ranks = clusters.ranks();
        let total: u64 = launch.grid.iter().map(|n| u64::from(*n)).product();
        let total = total / u64::from(ranks);
        let (hardware, memory) = room(entry, launch, limits);
        let [hardware, memory] = [hardware, memory].map(|n| (n / ranks as usize).max(1));
        let room = hardware.min(memory);
        Floor {
            entry,
            launch,
            clusters,
            limits,
            blocks: Blocks::new(schedule, total, room),
            turns: Turns::new(schedule),
            aside: VecDeque::new(),
            spare,
            room,
            crowded: memory < hardware,
            quiet: 0,
            changes: 0,
            idle: 0,
        }
    }

    /// Blocks begun so far.
    pub fn started(&self) -> u64 {
        self.blocks.started * u64::from(self.clusters.ranks())
    }

    /// Runs every block to its end.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn run(&mut self, machine: &mut Machine<'_>) -> Result<(), Halt> {
        let mut current = self.fresh();
        current.exchange(machine);
        let result = self.run_all(machine, &mut current);
        self.put_down(machine, &mut current);
        // Some allocations are for the next launch.
        self.spare.extend(self.aside.drain(..));
        self.spare.push(current);
        let most = self.spare.len().saturating_sub(KEPT);
        self.spare.drain(..most);
        result
    }

    /// Whether everybody has waited for so long that it is time to see who can go on.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn is_steady(&self) -> bool {
        self.turns.in_order() || self.quiet > 4 * (self.aside.len() + 1)
    }

    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn fresh(&mut self) -> Box<Resident> {
        // One that knows the kernel has its registers laid out; the others serve their own.
        let known = self.spare.iter().rposition(|spare| spare.knows(self.entry));
        let mut resident = match known {
            Some(at) => self.spare.remove(at),
            None if self.spare.len() < KEPT => Box::default(),
            None => self.spare.remove(0),
        };
        resident.furnish(self.entry, self.launch, self.clusters);
        resident
    }

    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn run_all(
        &mut self,
        machine: &mut Machine<'_>,
        current: &mut Box<Resident>,
    ) -> Result<(), Halt> {
        let Some(mut number) = self.blocks.next(0) else {
            return Ok(());
        };
        self.start(machine, current, number);
        loop {
            let steady = self.is_steady();
            let visit = self
                .visit(machine, current, steady)
                .map_err(|(warp, raised)| Halt::Raised { block: current.number, warp, raised })?;
            let quiet = machine.changes == self.changes && !matches!(visit, Visit::Finished);
            self.quiet = if quiet { self.quiet + 1 } else { 0 };
            self.changes = machine.changes;
            match visit {
                Visit::Finished => {
                    self.idle = 0;
                    // Those who waited may find what they waited for.
                    let pick = self.turns.pick(self.aside.len(), false);
                    if pick < self.aside.len() {
                        self.put_down(machine, current);
                        self.pass_on(current);
                        if let Some(next) = self.aside.remove(pick) {
                            self.spare.push(std::mem::replace(current, next));
                        }
                        self.take_up(machine, current);
                    } else {
                        match self.blocks.next(0) {
                            Some(next) => number = next,
                            None => return Ok(()),
                        }
                        self.start(machine, current, number);
                    }
                    continue;
                }
                Visit::Waiting => {
                    if steady && self.is_idle(machine, current) {
                        self.idle += 1;
                    } else {
                        self.idle = 0;
                    }
                }
                Visit::Over => self.idle = 0,
            }
            self.change(machine, current)?;
        }
    }

    /// Another block's turn, if there is one.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn change(
        &mut self,
        machine: &mut Machine<'_>,
        current: &mut Box<Resident>,
    ) -> Result<(), Halt> {
        let under_way = self.aside.len() + 1;
        let ranks = self.clusters.ranks() as usize;
        // The others of a cluster come before another cluster.
        let ripe = self.quiet > under_way
            || (ranks == 1 || !self.turns.in_order()) && self.turns.another(under_way);
        let clusters = under_way.div_ceil(ranks);
        let next = if clusters < self.room && ripe { self.blocks.next(clusters) } else { None };
        if let Some(number) = next {
            self.idle = 0;
            let mut next = self.fresh();
            std::mem::swap(current, &mut next);
            self.put_down(machine, &mut next);
            self.aside.push_back(next);
            current.exchange(machine);
            self.start(machine, current, number);
            return Ok(());
        }
        if self.idle >= under_way * 2 {
            // Somebody who polls says more than who waits for others.
            let polls = |block: &Resident| block.warps().iter().any(Warp::is_ready);
            if !polls(current) {
                let Some(next) = self.aside.iter().position(|block| polls(block)) else {
                    return Err(self.deadlock(machine, current));
                };
                self.lay_aside(machine, current, next);
            }
            if self.crowded && !self.blocks.is_empty() {
                let pc = current.warps()[polling(self.entry, current)].poll.pc;
                return Err(Halt::Crowded { waiting: under_way, pc });
            }
            return Err(self.no_progress(machine, current));
        }
        let pick = self.turns.pick(self.aside.len(), self.is_steady());
        self.lay_aside(machine, current, pick);
        Ok(())
    }

    /// Changes the running block for one of those laid aside, if there is that one.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn lay_aside(&mut self, machine: &mut Machine<'_>, current: &mut Box<Resident>, next: usize) {
        if next >= self.aside.len() {
            return;
        }
        self.put_down(machine, current);
        if let Some(next) = self.aside.remove(next) {
            let old = std::mem::replace(current, next);
            self.aside.push_back(old);
        }
        self.take_up(machine, current);
    }

    /// Begins the blocks of a cluster, of which the first is the one that runs.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn start(&mut self, machine: &mut Machine<'_>, current: &mut Box<Resident>, cluster: u64) {
        let ranks = self.clusters.ranks();
        for rank in (1..ranks).chain([0]) {
            let block = self.clusters.block(cluster, rank);
            let number = if ranks == 1 { cluster } else { self.clusters.number(block) };
            machine.cluster.begin(cluster, [rank, ranks], number as u32);
            current.start(machine, number, block);
            if rank != 0 {
                let mut next = self.fresh();
                std::mem::swap(current, &mut next);
                next.exchange(machine);
                current.exchange(machine);
                self.aside.push_back(next);
            }
        }
        let clusters = self.clusters;
        let number = |rank| clusters.number(clusters.block(cluster, rank)) as u32;
        machine.cluster.hold(machine.block_threads, number);
        self.lend(machine);
    }

    /// A block goes on: what it shares with the others of its cluster comes to it.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn take_up(&mut self, machine: &mut Machine<'_>, current: &mut Resident) {
        current.exchange(machine);
        if machine.cluster.is_several() {
            if !machine.cluster.holds {
                let number = machine.cluster.number;
                let holder = self.aside.iter_mut().find(|b| b.cluster.holds_for(number));
                if let Some(holder) = holder {
                    holder.cluster.pass_to(&mut machine.cluster);
                }
            }
            self.lend(machine);
        }
    }

    /// The running block stops.
    fn put_down(&mut self, machine: &mut Machine<'_>, current: &mut Resident) {
        self.lend(machine);
        current.exchange(machine);
    }

    /// The memory of the others of the running block's cluster comes to hand, or goes back.
    fn lend(&mut self, machine: &mut Machine<'_>) {
        if !machine.cluster.is_several() {
            return;
        }
        let cluster = &mut machine.cluster;
        for block in self.aside.iter_mut().filter(|block| block.cluster.number == cluster.number) {
            if let Some(peer) = cluster.common.peers.get_mut(block.cluster.rank as usize) {
                std::mem::swap(&mut peer.shared, &mut block.seat.shared);
                std::mem::swap(&mut peer.mbarriers, &mut block.seat.mbarriers);
            }
        }
    }

    /// A block that has ended leaves what its cluster shares to another.
    fn pass_on(&mut self, ended: &mut Resident) {
        if !ended.cluster.is_several() {
            return;
        }
        let cluster = &mut ended.cluster;
        let rank = cluster.rank as usize;
        if let Some(peer) = cluster.common.peers.get_mut(rank) {
            peer.exit = Some(cluster.exit);
        }
        let number = cluster.number;
        let heir = self.aside.iter_mut().find(|block| block.cluster.number == number);
        if let Some(heir) = heir {
            cluster.pass_to(&mut heir.cluster);
        }
    }

    /// Nobody can run any more, and no block is at fault alone.
    fn deadlock(&self, machine: &Machine<'_>, current: &Resident) -> Halt {
        let (warp, lane, pc, trouble) = collective::deadlock(current.warps(), machine);
        let raised = Box::new(Raised { pc, lane, what: Raise::Trouble(trouble) });
        Halt::Raised { block: current.number, warp, raised }
    }

    /// Whether the block stands exactly as it stood before, and memory too.
    fn is_idle(&self, machine: &Machine<'_>, current: &mut Box<Resident>) -> bool {
        let calm = &mut current.calm;
        if (calm.changes, calm.ticks) != (machine.changes, machine.ticks) {
            let Machine { changes, ticks, .. } = *machine;
            *calm = Calm { changes, ticks, ..Calm::default() };
            return false;
        }
        calm.times = calm.times.saturating_add(1);
        if calm.times < CALM {
            return false;
        }
        let now = Some(current.fingerprint());
        let [last, earlier] = current.calm.fingerprints;
        current.calm.fingerprints = [now, last];
        // Two polls in turn may take two visits to come back.
        now == last || now == earlier
    }

    /// Runs the warps until all have exited or the block's time is over. In a steady visit every
    /// warp has its turn.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    fn visit(
        &mut self,
        machine: &mut Machine<'_>,
        current: &mut Box<Resident>,
        steady: bool,
    ) -> Result<Visit, (usize, Box<Raised>)> {
        let warps = current.warps_mut();
        let mut rounds = self.turns.rounds(steady);
        loop {
            let (mut advanced, mut polled) = (false, false);
            let turns = self.turns.warps(steady, || warps.iter().filter(|w| w.is_ready()).count());
            let mut ready = 0;
            for w in 0..warps.len() {
                let warp = &mut warps[w];
                if !warp.is_ready() {
                    continue;
                }
                ready += 1;
                if !turns.contains(&(ready - 1)) {
                    continue;
                }
                if machine.left == 0 {
                    let fragment = warp.fragments[0];
                    let kind = FaultKind::InstructionBudget { limit: self.limits.instructions };
                    return Err((w, raised(fragment.pc, fragment.mask, kind.into())));
                }
                machine.polled = false;
                machine.slice = self.turns.slice(steady);
                match dispatch::run_warp(warp, machine) {
                    Ok(Outcome::Exited | Outcome::Blocked) => advanced = true,
                    Ok(Outcome::Slice) if !machine.polled => advanced = true,
                    Ok(Outcome::Slice | Outcome::Polled) => polled = true,
                    Err(raised) => return Err((w, raised)),
                }
            }
            if machine.alive_threads == 0 {
                mbarrier::ended(machine)?;
                cluster::ended(machine)?;
                return Ok(Visit::Finished);
            }
            let opened = collective::release(warps, machine)?;
            if !advanced && !opened {
                if polled || cluster::is_waited_for(warps) && machine.cluster.has_others() {
                    return Ok(Visit::Waiting);
                }
                let (w, lane, pc, trouble) = collective::deadlock(warps, machine);
                let what = Raise::Trouble(trouble);
                return Err((w, Box::new(Raised { pc, lane, what })));
            }
            rounds -= 1;
            if rounds == 0 {
                return Ok(Visit::Over);
            }
        }
    }

    /// Names the poll that the block which runs cannot leave.
    fn no_progress(&self, machine: &Machine<'_>, current: &Resident) -> Halt {
        let warp = polling(self.entry, current);
        let poll = current.warps()[warp].poll;
        let (space, address) = match poll.space {
            Space::Shared | Space::Cluster => (MemorySpace::Shared, poll.address),
            _ if poll.address.wrapping_sub(SHARED_BASE) < WINDOW_BYTES => {
                (MemorySpace::Shared, poll.address - SHARED_BASE)
            }
            _ => (MemorySpace::Global, poll.address),
        };
        let global = space == MemorySpace::Global;
        let buffer = if global { machine.buffer_place(address) } else { None };
        let trouble = if tests(self.entry, poll.pc) {
            mbarrier::no_progress(machine, address)
        } else if waits_for_product(self.entry, poll.pc) {
            FaultKind::Warpgroup { wrong: WarpgroupFault::MissingWarps }.into()
        } else {
            let waiting_blocks = self.aside.len() as u64 + 1;
            let unstarted_blocks = self.blocks.left() * u64::from(self.clusters.ranks());
            FaultKind::NoProgress { space, buffer, address, waiting_blocks, unstarted_blocks }
                .into()
        };
        let what = Raise::Trouble(trouble);
        let raised = Box::new(Raised { pc: poll.pc, lane: poll.lane, what });
        Halt::Raised { block: current.number, warp, raised }
    }
}

/// A warp of the block that can run, and so polls: memory rather than an mbarrier, for who waits at
/// one waits for the others of the block.
fn polling(entry: &Entry, block: &Resident) -> usize {
    let ready = |w: &usize| block.warps()[*w].is_ready();
    let mut warps = (0..block.warps().len()).filter(ready);
    let first = warps.clone().next().unwrap_or(0);
    warps.find(|w| !tests(entry, block.warps()[*w].poll.pc)).unwrap_or(first)
}

/// Whether an instruction tests an mbarrier.
fn tests(entry: &Entry, pc: u32) -> bool {
    match entry.code[pc as usize].action {
        Action::Rare(i) => matches!(entry.rares[usize::from(i)], Rare::Mbarrier(_)),
        _ => false,
    }
}

/// Whether an instruction waits for products.
fn waits_for_product(entry: &Entry, pc: u32) -> bool {
    match entry.code[pc as usize].action {
        Action::Rare(i) => matches!(entry.rares[usize::from(i)], Rare::WarpgroupWait { .. }),
        _ => false,
    }
}

/// Blocks that an array of multiprocessors, and the host, can hold.
fn room(entry: &Entry, launch: &Launch<'_>, limits: &Limits) -> (usize, usize) {
    const RESERVED: u64 = 1024;
    let threads: u64 = launch.block.iter().map(|n| u64::from(*n)).product();
    let warps = threads.div_ceil(32);
    let shared = u64::from(entry.static_shared_bytes) + u64::from(launch.dynamic_shared_bytes);
    let by_shared = (limits.shared_bytes + RESERVED) / (shared + RESERVED);
    let each = (2048 / (warps * 32)).min(32).min(by_shared).max(1);
    let hardware = each * u64::from(limits.multiprocessors.max(1));
    let memory = (limits.resident_bytes / block_bytes(entry, launch)).max(1);
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    (count(hardware), count(memory))
}

/// What one block takes of the host's memory, about.
pub(super) fn block_bytes(entry: &Entry, launch: &Launch<'_>) -> u64 {
    let threads: u64 = launch.block.iter().map(|n| u64::from(*n)).product();
    // A shared byte has records of its own: some 24 bytes.
    let shared = u64::from(entry.dynamic_shared_offset) + u64::from(launch.dynamic_shared_bytes);
    let registers = u64::from(entry.words) * 128 + u64::from(entry.longs) * 256;
    threads.div_ceil(32) * (registers + 64 * u64::from(entry.local_bytes) + 1024) + shared * 26
}

fn raised(pc: u32, mask: u32, trouble: Box<Trouble>) -> Box<Raised> {
    Box::new(Raised { pc, lane: mask.trailing_zeros() & 31, what: Raise::Trouble(trouble) })
}
