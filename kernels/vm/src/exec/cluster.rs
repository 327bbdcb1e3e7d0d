//! Clusters: how a grid falls into them, their barrier, and the shared memory of the other blocks of
//! the running block's, which is at hand while it runs.
//! Whatever releases to the cluster orders all that its blocks did to each other's shared memory
//! before: races can be missed, none is invented. A block that ends while another's access to its
//! memory is not ordered before is a race as well, whichever came first.

use super::machine::{Machine, Trouble};
use super::mbarrier::Mbarriers;
use super::step::{Laned, Raise, Raised};
use super::warp::{Fragment, State, Warp, lanes};
use super::{Launch, Options, place_of};
use crate::fault::{ClusterFault, FaultKind, LaunchError, MemorySpace};
use crate::module::Entry;
use crate::program::{Scope, Special};
use crate::shared::{Distant, Other, Shared, SharedFault, Touch, Toucher};
use crate::space::{OWN_BYTES, rank_of};
use std::mem::swap;

/// The number that stands for the cluster's barrier beside the block's sixteen.
pub(crate) const GATE: u8 = 16;
/// As many as hardware holds together.
const LARGEST: u32 = 16;
/// Places that no address has, for the order of global accesses.
const PLACES: u64 = 1 << 63;

/// How the blocks of a grid fall into clusters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clusters {
    pub grid: [u32; 3],
    /// Blocks along x, y, z.
    pub dims: [u32; 3],
    /// Somebody asked for them.
    pub explicit: bool,
}

impl Clusters {
    pub fn of(
        entry: &Entry,
        launch: &Launch<'_>,
        options: &Options,
    ) -> Result<Clusters, LaunchError> {
        let refuse = |why| {
            let cluster = options.cluster.or(entry.cluster).unwrap_or([1; 3]);
            Err(LaunchError::Cluster { cluster, grid: launch.grid, why })
        };
        let dims = match (options.cluster, entry.cluster) {
            (Some(asked), Some(own)) if asked != own => {
                return refuse("the kernel has clusters of another size");
            }
            (None, None) if entry.explicit_cluster => {
                return refuse("the kernel must be launched with clusters");
            }
            (asked, own) => asked.or(own).unwrap_or([1; 3]),
        };
        if dims.contains(&0) || dims.iter().try_fold(1u32, |all, n| all.checked_mul(*n)).is_none() {
            return refuse("no such cluster exists");
        }
        if dims.iter().product::<u32>() > LARGEST {
            return refuse("a cluster has at most 16 blocks");
        }
        if launch.grid.iter().zip(dims).any(|(blocks, n)| blocks % n != 0) {
            return refuse("the grid is no whole number of clusters");
        }
        let explicit = options.cluster.is_some() || entry.cluster.is_some();
        Ok(Clusters { grid: launch.grid, dims, explicit })
    }

    /// Blocks of a cluster.
    pub fn ranks(&self) -> u32 {
        self.dims.iter().product()
    }

    fn counts(&self) -> [u32; 3] {
        std::array::from_fn(|i| self.grid[i] / self.dims[i])
    }

    /// The block of a rank: its index in the grid.
    pub fn block(&self, cluster: u64, rank: u32) -> [u32; 3] {
        if self.dims == [1; 3] {
            return place_of(cluster, self.grid);
        }
        let (at, within) = (place_of(cluster, self.counts()), place_of(rank.into(), self.dims));
        std::array::from_fn(|i| at[i] * self.dims[i] + within[i])
    }

    /// A block's number in the grid.
    pub fn number(&self, [x, y, z]: [u32; 3]) -> u64 {
        let [nx, ny, _] = self.grid.map(u64::from);
        (u64::from(z) * ny + u64::from(y)) * nx + u64::from(x)
    }

    /// What a special register holds in a block, where that depends on the cluster alone.
    pub fn special(&self, special: Special, block: [u32; 3]) -> Option<u32> {
        let at = |axis: u8| usize::from(axis).min(2);
        let within = |i: usize| block[i] % self.dims[i];
        Some(match special {
            Special::Ctaid(axis) => block[at(axis)],
            Special::ClusterId(axis) => block[at(axis)] / self.dims[at(axis)],
            Special::ClusterCount(axis) => self.counts()[at(axis)],
            Special::ClusterCtaid(axis) => within(at(axis)),
            Special::ClusterNctaid(axis) => self.dims[at(axis)],
            Special::ClusterRank => {
                (within(2) * self.dims[1] + within(1)) * self.dims[0] + within(0)
            }
            Special::ClusterRanks => self.ranks(),
            Special::ExplicitCluster => u32::from(self.explicit),
            _ => return None,
        })
    }
}

/// A block of the cluster that does not run.
#[derive(Default)]
pub(crate) struct Peer {
    /// Its number in the grid.
    pub block: u32,
    pub shared: Shared,
    pub mbarriers: Mbarriers,
    /// The last thread to exit, and where, once all have.
    pub exit: Option<(u32, u32)>,
}

/// The cluster's barrier.
#[derive(Clone, Copy, Default)]
pub(crate) struct Barrier {
    phase: u32,
    arrived: u32,
    /// Threads of the cluster that have not exited.
    pub alive: u32,
    /// Somebody released what was done before.
    ordered: bool,
}

/// What the blocks of a cluster share. It travels with the one that ran last.
#[derive(Default)]
pub(crate) struct Common {
    pub barrier: Barrier,
    /// By rank; that of the running block is empty. None in a cluster of one.
    pub peers: Vec<Peer>,
}

/// The cluster of a block.
#[derive(Default)]
pub(crate) struct Cluster {
    pub number: u64,
    pub rank: u32,
    /// Blocks of it; 0 and 1 for none but the block.
    pub ranks: u32,
    /// The block's own number in the grid.
    pub block: u32,
    /// Whether the common part is here.
    pub holds: bool,
    pub common: Common,
    /// Threads of the block have waited at the barrier.
    waited: bool,
    /// Where the running block's threads exited last.
    pub exit: (u32, u32),
    /// While something is done in another block's memory: whose, and by whom.
    visited: Option<(u32, Distant)>,
}

impl Cluster {
    /// The cluster of a block that starts.
    pub fn begin(&mut self, number: u64, [rank, ranks]: [u32; 2], block: u32) {
        (self.number, self.rank, self.ranks, self.block) = (number, rank, ranks, block);
        (self.holds, self.waited, self.visited, self.exit) = (false, false, None, (0, 0));
    }

    /// Begins what its blocks share, here; `number` names them in the grid.
    pub fn hold(&mut self, threads: u32, number: impl Fn(u32) -> u32) {
        self.holds = true;
        self.common.barrier = Barrier { alive: threads * self.ranks, ..Barrier::default() };
        self.common.peers.clear();
        if self.is_several() {
            let peer = |rank| Peer { block: number(rank), ..Peer::default() };
            self.common.peers.extend((0..self.ranks).map(peer));
        }
    }

    /// Whether what the blocks of a cluster share is here.
    pub fn holds_for(&self, number: u64) -> bool {
        self.is_several() && self.holds && self.number == number
    }

    /// Gives what the blocks share to another of them.
    pub fn pass_to(&mut self, other: &mut Cluster) {
        swap(&mut self.common, &mut other.common);
        (self.holds, other.holds) = (false, true);
    }

    /// Whether there are other blocks in it.
    pub fn is_several(&self) -> bool {
        self.ranks > 1
    }

    /// Whose shared memory is at hand.
    pub fn rank_at_hand(&self) -> u32 {
        self.visited.map_or(self.rank, |(rank, _)| rank)
    }

    /// Who works in another block's memory.
    pub fn visitor(&self) -> Option<Distant> {
        self.visited.map(|(_, who)| who)
    }

    /// Whether other blocks of it are under way.
    pub fn has_others(&self) -> bool {
        let gone = |peer: &Peer| peer.exit.is_some();
        self.is_several()
            && (0..).zip(&self.common.peers).any(|(rank, p)| rank != self.rank && !gone(p))
    }

    /// A place for the order of global accesses that belongs to the barrier.
    fn barrier_place(&self) -> u64 {
        PLACES + self.number * 8 % PLACES
    }

    /// A place for the order of global accesses that belongs to a byte of shared memory at hand.
    fn place(&self, offset: u64) -> u64 {
        let cluster = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16 << 29;
        PLACES | (cluster ^ u64::from(self.rank_at_hand()) << 24 ^ offset) & (PLACES - 1)
    }
}

fn fault(wrong: ClusterFault) -> Box<Trouble> {
    FaultKind::Cluster { wrong }.into()
}

impl Machine<'_> {
    /// Does something in the shared memory of the block that an address of the cluster's shared
    /// memory leads to; `f` gets the offset there.
    pub fn reach<T>(
        &mut self,
        address: u64,
        me: Toucher,
        f: impl FnOnce(&mut Self, u64) -> Result<T, Box<Trouble>>,
    ) -> Result<T, Box<Trouble>> {
        let cluster = &mut self.cluster;
        let rank = rank_of(address, cluster.rank.into());
        let offset = address % OWN_BYTES;
        if rank == u64::from(cluster.rank) {
            return f(self, offset);
        }
        let ranks = cluster.ranks.max(1);
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        let peer = cluster.common.peers.get_mut(rank as usize);
        let Some(peer) = peer.filter(|_| rank < ranks) else {
            return Err(fault(ClusterFault::NoSuchRank { rank, ranks }));
        };
        if let Some((thread, pc)) = peer.exit {
            let other = Other { thread: Some(thread), pc: Some(pc), block: Some(peer.block) };
            let kind = FaultKind::Cluster { wrong: ClusterFault::Exited { rank } };
            return Err(Box::new(Trouble { kind, other: Some(other) }));
        }
        let who = Distant { block: cluster.block, thread: me, epoch: self.shared.epoch };
        cluster.visited = Some((rank, who));
        swap(self.shared, &mut peer.shared);
        swap(self.mbarriers, &mut peer.mbarriers);
        let result = f(self, offset);
        let peer = &mut self.cluster.common.peers[rank as usize];
        swap(self.shared, &mut peer.shared);
        swap(self.mbarriers, &mut peer.mbarriers);
        self.cluster.visited = None;
        result
    }

    /// Does the same at one offset in the memory of each rank of a mask.
    pub fn reach_all(
        &mut self,
        ranks: u32,
        offset: u64,
        me: Toucher,
        mut f: impl FnMut(&mut Self, u64) -> Result<(), Box<Trouble>>,
    ) -> Result<(), Box<Trouble>> {
        let own = u64::from(self.cluster.rank);
        for rank in lanes(ranks) {
            let address = crate::space::at_rank(offset, rank as u64, own);
            self.reach(address, me, &mut f)?;
        }
        Ok(())
    }

    /// Checks an access of shared memory at hand, wherever it belongs, and records it.
    pub fn touch_at_hand(
        &mut self,
        offset: u64,
        len: usize,
        me: Toucher,
        touch: Touch,
        same: bool,
    ) -> Result<(), SharedFault> {
        match self.cluster.visitor() {
            Some(who) => self.shared.reach(offset as usize, len, who, touch, same),
            None => self.shared.touch(offset as usize, len, me, touch, same),
        }
    }

    /// What was done before is released to the cluster: everything by everybody is ordered.
    pub fn order_cluster(&mut self) {
        if self.cluster.is_several() && self.checks {
            self.shared.order();
            for peer in &mut self.cluster.common.peers {
                peer.shared.order();
            }
        }
    }

    /// The strong accesses that follow are so among these threads; [`Scope::Wide`] ends it. Blocks
    /// of one cluster are not told from others.
    #[inline(always)]
    pub fn within(&mut self, scope: Scope) {
        self.races.narrow = match scope {
            Scope::Wide => false,
            Scope::Cluster => !self.cluster.is_several(),
            Scope::Block => true,
        };
    }

    /// A fence wider than the block.
    pub fn fence(&mut self, warp: u32) {
        self.races.fence(warp);
        self.shared.fence_block(warp);
        self.order_cluster();
    }

    /// A strong store to shared memory at hand tells other blocks what was fenced.
    pub fn tell(&mut self, offset: u64, me: Toucher, fenced: bool) {
        self.races.meet();
        self.shared.learned();
        if self.cluster.is_several() && self.races.on {
            let place = self.cluster.place(offset);
            self.races.release(me.thread / 32, place, fenced);
        }
    }

    /// A strong load of shared memory at hand learns it.
    pub fn learn(&mut self, offset: u64, me: Toucher) {
        self.races.meet();
        if self.cluster.is_several() && self.races.on {
            let place = self.cluster.place(offset);
            self.races.acquire(me.thread / 32, place);
        }
    }

    /// Opens the barrier's next phase if everybody is there.
    fn advance(&mut self) {
        let barrier = &mut self.cluster.common.barrier;
        if barrier.arrived == 0 || barrier.arrived < barrier.alive {
            return;
        }
        barrier.phase = barrier.phase.wrapping_add(1);
        barrier.arrived = 0;
        let ordered = std::mem::take(&mut barrier.ordered);
        self.changes += 1;
        if ordered {
            self.shared.next_epoch();
            self.order_cluster();
            return;
        }
        // What `fence.mbarrier_init` releases is ordered without a release at the barrier.
        self.mbarriers.settle(self.shared);
        self.shared.meet_cluster();
        for peer in &mut self.cluster.common.peers {
            peer.mbarriers.settle(&mut peer.shared);
            peer.shared.meet_cluster();
        }
    }
}

/// Loads from another block's memory.
pub(super) fn read(
    machine: &mut Machine<'_>,
    address: u64,
    out: &mut [u8],
    me: Toucher,
    strong: bool,
) -> Result<(), Box<Trouble>> {
    machine.reach(address, me, |machine, offset| {
        let (at, len) = (offset as usize, out.len());
        if machine.checks {
            let touch = if strong { Touch::StrongRead } else { Touch::Read };
            checked(machine, offset, len, touch)?;
            let touched = machine.touch_at_hand(offset, len, me, touch, true);
            touched.map_err(|fault| {
                super::access::shared_trouble(machine, fault, offset, len as u32, false)
            })?;
        }
        match machine.shared.data.get(at..at + len) {
            Some(data) => out.copy_from_slice(data),
            None => {
                let space = MemorySpace::Cluster;
                return Err(machine.out_of_bounds(space, offset, len as u32, false));
            }
        }
        Ok(())
    })
}

/// Whether bytes at hand are there, and for a load hold something.
fn checked(
    machine: &Machine<'_>,
    offset: u64,
    len: usize,
    touch: Touch,
) -> Result<(), Box<Trouble>> {
    let store = !matches!(touch, Touch::Read | Touch::StrongRead);
    match machine.shared.ready(offset as usize, len) {
        None => Err(machine.out_of_bounds(MemorySpace::Cluster, offset, len as u32, store)),
        Some(false) if !store => {
            let fault = SharedFault::Uninitialised { offset };
            Err(super::access::shared_trouble(machine, fault, offset, len as u32, false))
        }
        _ => Ok(()),
    }
}

/// Stores to another block's memory.
pub(super) fn write(
    machine: &mut Machine<'_>,
    address: u64,
    data: &[u8],
    me: Toucher,
    strong: bool,
) -> Result<(), Box<Trouble>> {
    machine.reach(address, me, |machine, offset| {
        let (at, len) = (offset as usize, data.len());
        if machine.checks {
            let touch = if strong { Touch::StrongWrite } else { Touch::Write };
            checked(machine, offset, len, touch)?;
            let ready = machine.shared.ready(at, len) == Some(true);
            let same = ready && machine.shared.data[at..at + len] == *data;
            let touched = machine.touch_at_hand(offset, len, me, touch, same);
            touched.map_err(|fault| {
                super::access::shared_trouble(machine, fault, offset, len as u32, true)
            })?;
            machine.shared.set_ready(at, len, true);
        }
        match machine.shared.data.get_mut(at..at + len) {
            Some(bytes) => bytes.copy_from_slice(data),
            None => {
                let space = MemorySpace::Cluster;
                return Err(machine.out_of_bounds(space, offset, len as u32, true));
            }
        }
        Ok(())
    })
}

/// Lanes arrive at the cluster's barrier.
pub(super) fn arrive(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    mask: u32,
    release: bool,
) -> Result<(), Laned> {
    let twice = warp.arrived & mask;
    if twice != 0 {
        return Err((twice.trailing_zeros(), fault(ClusterFault::ArrivedTwice)));
    }
    let barrier = &mut machine.cluster.common.barrier;
    warp.arrived |= mask;
    let odd = if barrier.phase & 1 == 1 { mask } else { 0 };
    warp.arrived_odd = warp.arrived_odd & !mask | odd;
    barrier.arrived += mask.count_ones();
    barrier.ordered |= release;
    if machine.cluster.is_several() && machine.races.on {
        let place = machine.cluster.barrier_place();
        machine.races.release(warp.index, place, release);
    }
    machine.advance();
    Ok(())
}

/// Lanes wait there. Returns those that have to.
pub(super) fn wait(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    mask: u32,
    pc: u32,
) -> Result<u32, Laned> {
    let early = mask & !warp.arrived;
    if early != 0 {
        return Err((early.trailing_zeros(), fault(ClusterFault::NotArrived)));
    }
    let waiting = mask & !passing(warp, machine, mask);
    if waiting != 0 {
        machine.cluster.waited = true;
        warp.fragments.push(Fragment { pc, mask: waiting, state: State::AtBarrier(GATE) });
    }
    Ok(waiting)
}

/// The lanes whose phase is complete pass.
fn passing(warp: &mut Warp, machine: &mut Machine<'_>, mask: u32) -> u32 {
    let odd = machine.cluster.common.barrier.phase & 1 == 1;
    let complete = mask & if odd { !warp.arrived_odd } else { warp.arrived_odd };
    warp.arrived &= !complete;
    if complete != 0 && machine.cluster.is_several() && machine.races.on {
        let place = machine.cluster.barrier_place();
        machine.races.acquire(warp.index, place);
        machine.races.meet();
    }
    complete
}

/// Lets lanes go on whose phase is complete. Returns whether there were any.
pub(super) fn open(warps: &mut [Warp], machine: &mut Machine<'_>) -> bool {
    let mut opened = false;
    if !machine.cluster.waited {
        return false;
    }
    for warp in warps {
        for i in 0..warp.fragments.len() {
            let fragment = warp.fragments[i];
            if fragment.state == State::AtBarrier(GATE)
                && passing(warp, machine, fragment.mask) == fragment.mask
            {
                opened = true;
                warp.fragments[i].pc += 1;
                warp.fragments[i].state = State::Ready;
            }
        }
    }
    opened
}

/// Lanes exit: nobody waits for them any more.
pub(super) fn leave(warp: &mut Warp, machine: &mut Machine<'_>, mask: u32, pc: u32) {
    let cluster = &mut machine.cluster;
    cluster.exit = (warp.index * 32 + 31 - mask.leading_zeros().min(31), pc);
    let barrier = &mut cluster.common.barrier;
    let odd = if barrier.phase & 1 == 1 { warp.arrived_odd } else { !warp.arrived_odd };
    barrier.arrived -= (warp.arrived & mask & odd).count_ones().min(barrier.arrived);
    barrier.alive -= mask.count_ones().min(barrier.alive);
    warp.arrived &= !mask;
    machine.advance();
}

/// Whether lanes of a block wait at the cluster's barrier.
pub(super) fn is_waited_for(warps: &[Warp]) -> bool {
    let waits = |fragment: &Fragment| fragment.state == State::AtBarrier(GATE);
    warps.iter().any(|warp| warp.fragments.iter().any(waits))
}

/// The running block has ended: no other may still use its memory.
pub(super) fn ended(machine: &Machine<'_>) -> Result<(), (usize, Box<Raised>)> {
    if !machine.cluster.is_several() {
        return Ok(());
    }
    let Some((offset, other)) = machine.shared.under_way() else {
        return Ok(());
    };
    let (thread, pc) = machine.cluster.exit;
    let kind = FaultKind::Cluster { wrong: ClusterFault::StillUsed { offset } };
    let what = Raise::Trouble(Box::new(Trouble { kind, other: Some(other) }));
    Err((thread as usize / 32, Box::new(Raised { pc, lane: thread % 32, what })))
}

/// Nobody can come any more.
pub(super) fn stuck(machine: &Machine<'_>) -> FaultKind {
    let Barrier { arrived, alive, .. } = machine.cluster.common.barrier;
    FaultKind::Cluster { wrong: ClusterFault::Waiting { arrived, alive } }
}
