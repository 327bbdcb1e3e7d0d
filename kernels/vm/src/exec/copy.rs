//! Asynchronous copies of a warp: the source is read and checked at once, the destination holds
//! nothing between the copy and the wait that it arrives at.

use super::access::{gather_global, read_one, shared_trouble, toucher};
use super::address::{Target, addresses, resolve};
use super::lane::lanes_where;
use super::machine::{Machine, Trouble};
use super::step::Laned;
use super::warp::{FULL, Warp, lanes};
use crate::fault::{FaultKind, MemorySpace};
use crate::program::Copying;
use crate::shared::{Other, Released, Touch, Toucher};
use crate::syntax::Space;

/// Copies of a warp under way; of more, the oldest arrives: it may at any time.
const MOST_PENDING: usize = 1 << 12;

/// A copy instruction under way: its bytes are not there before the wait.
#[derive(Clone, Copy)]
pub(crate) struct PendingCopy {
    /// Lanes whose bytes have not arrived.
    mask: u32,
    /// Commits of those lanes before this copy's group closes.
    group: u32,
    /// Lanes whose bytes come with a phase of the mbarrier at that shared offset.
    tracked: u32,
    mbarrier: u64,
    phase: u32,
    /// The epoch of its clocks.
    age: u64,
    /// Lane 0 when it was issued.
    first: Toucher,
    bytes_per_lane: u8,
    offsets: [u32; 32],
    /// Of lane 0, 1, … one after the other.
    bytes: [u8; 512],
}

impl PendingCopy {
    /// Lanes of a mask whose bytes have not arrived, and come with no mbarrier's phase either.
    pub fn under_way(&self, mask: u32) -> u32 {
        self.mask & !self.tracked & mask
    }
}

#[inline(always)]
pub(crate) fn copy<const CHECKS: bool>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    what: &Copying,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    let w = warp.index as usize;
    let commits = machine.commits[w];
    let mut all = std::mem::take(&mut machine.copies[w]);
    let mut left = mask;
    if all.len() >= MOST_PENDING
        && let Some(oldest) = all.pop_front()
    {
        let by = Toucher { pc: oldest.first.pc, ..toucher(warp, 0, pc) };
        land::<CHECKS>(machine, &oldest, oldest.mask, by)?;
    }
    while left != 0 {
        // Lanes with one number of commits: as a rule all.
        let group = commits[left.trailing_zeros() as usize & 31];
        let same = lanes_where(|l| commits[l] == group) & left;
        left &= !same;
        // It is filled where it stays: it is large to move.
        all.push_back(PendingCopy {
            mask: same,
            group,
            tracked: 0,
            mbarrier: 0,
            phase: 0,
            age: machine.shared.age(),
            first: toucher(warp, 0, pc),
            bytes_per_lane: what.bytes,
            offsets: [0; 32],
            bytes: [0; 512],
        });
        let Some(pending) = all.back_mut() else {
            continue;
        };
        match what.bytes {
            16 => issue::<CHECKS, 16>(warp, machine, what, pending, pc)?,
            8 => issue::<CHECKS, 8>(warp, machine, what, pending, pc)?,
            _ => issue::<CHECKS, 4>(warp, machine, what, pending, pc)?,
        }
    }
    machine.copies[w] = all;
    Ok(())
}

/// Reads the sources of a copy's lanes and takes away what stood at the destinations.
#[inline(always)]
fn issue<const CHECKS: bool, const LEN: usize>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    what: &Copying,
    pending: &mut PendingCopy,
    pc: u32,
) -> Result<(), Laned> {
    let to = addresses(warp, what.d, what.d_offset);
    let from = addresses(warp, what.s, what.s_offset);
    let mut wanted = [LEN as u32; 32];
    if let Some(slot) = what.size {
        for (wanted, size) in wanted.iter_mut().zip(warp.word(slot)) {
            *wanted = *size;
        }
    }
    if let Some(ignored) = &what.ignored {
        let p = warp.predicates[usize::from(ignored.slot)];
        let ignored = if ignored.negate { !p } else { p };
        for l in lanes(ignored) {
            wanted[l] = 0;
        }
    }
    let too_large = lanes_where(|l| wanted[l] > LEN as u32) & pending.mask;
    if let Some(l) = lanes(too_large).next() {
        let (wanted_bytes, piece_bytes) = (wanted[l], LEN as u32);
        return Err((l as u32, FaultKind::CopySize { wanted_bytes, piece_bytes }.into()));
    }
    for (offset, to) in pending.offsets.iter_mut().zip(to) {
        *offset = to as u32;
    }
    let first = toucher(warp, 0, pc);
    let whole = sources::<CHECKS, LEN>(machine, &from, &wanted, first, pending);
    if whole && targets::<CHECKS, LEN>(warp, machine, &to, pending, pc) {
        return Ok(());
    }
    for l in lanes(pending.mask) {
        let bytes = &mut pending.bytes[l * LEN..(l + 1) * LEN];
        one::<CHECKS, LEN>(warp, machine, l, pc, [to[l], from[l]], wanted[l], bytes)?;
    }
    Ok(())
}

/// Reads what the lanes want, unless something is wrong with it or it is a part of a piece.
#[inline(always)]
fn sources<const CHECKS: bool, const LEN: usize>(
    machine: &mut Machine<'_>,
    from: &[u64; 32],
    wanted: &[u32; 32],
    first: Toucher,
    pending: &mut PendingCopy,
) -> bool {
    let all = lanes_where(|l| wanted[l] == LEN as u32);
    let none = lanes_where(|l| wanted[l] == 0);
    let crooked = lanes_where(|l| from[l] & (LEN as u64 - 1) != 0);
    if pending.mask & (!(all | none) | crooked) != 0 {
        return false;
    }
    let pieces = pending.bytes.as_chunks_mut().0;
    gather_global::<CHECKS, LEN>(machine, pending.mask & all, from, first, pieces)
}

/// Takes away what stood at the destinations, unless a lane may not store there.
#[inline(always)]
fn targets<const CHECKS: bool, const LEN: usize>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    to: &[u64; 32],
    pending: &PendingCopy,
    pc: u32,
) -> bool {
    if CHECKS {
        let (first, pieces) = (toucher(warp, 0, pc), pending.bytes.as_chunks().0);
        return machine.shared.write_apart::<LEN, false>(to, pending.mask, first, pieces) == 0;
    }
    let end = machine.shared.data.len() as u64;
    let step = LEN as u64;
    pending.mask & lanes_where(|l| to[l] & (step - 1) != 0 || to[l].saturating_add(step) > end) == 0
}

/// One lane's copy, or what is wrong with it.
fn one<const CHECKS: bool, const LEN: usize>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    lane: usize,
    pc: u32,
    [to, from]: [u64; 2],
    wanted: u32,
    bytes: &mut [u8],
) -> Result<(), Laned> {
    let (len, wanted) = (LEN as u32, wanted as usize);
    let me = toucher(warp, lane, pc);
    let at = lane as u32;
    bytes.fill(0);
    if !from.is_multiple_of(len.into()) {
        return Err((at, machine.misaligned(MemorySpace::Global, from, len, false)));
    }
    if wanted == LEN {
        let target = resolve(Space::Global, from);
        read_one::<CHECKS>(machine, target, bytes, me, false).map_err(|trouble| (at, trouble))?;
    } else {
        for i in 0..wanted {
            let target = resolve(Space::Global, from + i as u64);
            read_one::<CHECKS>(machine, target, &mut bytes[i..=i], me, false)
                .map_err(|trouble| (at, trouble))?;
        }
    }
    let Target::Shared(offset) = resolve(Space::Shared, to) else {
        return Ok(());
    };
    if !offset.is_multiple_of(len.into()) {
        return Err((at, machine.misaligned(MemorySpace::Shared, offset, len, true)));
    }
    if !machine.shared.in_bounds(offset, LEN) {
        return Err((at, machine.out_of_bounds(MemorySpace::Shared, offset, len, true)));
    }
    if CHECKS {
        let touched = machine.shared.touch(offset as usize, LEN, me, Touch::Write, false);
        touched.map_err(|fault| (at, shared_trouble(machine, fault, offset, len, true)))?;
        machine.shared.set_ready(offset as usize, LEN, false);
    }
    Ok(())
}

/// Lanes close a group of copies.
#[inline(always)]
pub(crate) fn commit(warp: &Warp, machine: &mut Machine<'_>, mask: u32) {
    for (l, commits) in machine.commits[warp.index as usize].iter_mut().enumerate() {
        *commits += mask >> l & 1;
    }
}

/// Lets the copies of all but the last `pending` groups of the lanes arrive; of all without it.
#[inline(always)]
pub(crate) fn wait<const CHECKS: bool>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    pending: Option<u32>,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    let w = warp.index as usize;
    let commits = machine.commits[w];
    let mut all = std::mem::take(&mut machine.copies[w]);
    for copy in &mut all {
        let ripe = match pending {
            Some(n) => lanes_where(|l| copy.group < commits[l].saturating_sub(n)),
            None => FULL,
        } & mask
            & copy.mask;
        copy.mask &= !ripe;
        land::<CHECKS>(machine, copy, ripe, toucher(warp, 0, pc))?;
    }
    while all.front().is_some_and(|copy| copy.mask == 0) {
        all.pop_front();
    }
    machine.copies[w] = all;
    Ok(())
}

/// Lets the bytes of some lanes arrive.
#[inline(always)]
fn land<const CHECKS: bool>(
    machine: &mut Machine<'_>,
    copy: &PendingCopy,
    mask: u32,
    first: Toucher,
) -> Result<(), Laned> {
    match copy.bytes_per_lane {
        16 => arrive::<CHECKS, 16>(machine, copy, mask, first),
        8 => arrive::<CHECKS, 8>(machine, copy, mask, first),
        _ => arrive::<CHECKS, 4>(machine, copy, mask, first),
    }
}

#[inline(always)]
fn arrive<const CHECKS: bool, const LEN: usize>(
    machine: &mut Machine<'_>,
    copy: &PendingCopy,
    mask: u32,
    first: Toucher,
) -> Result<(), Laned> {
    let pieces = copy.bytes.as_chunks::<LEN>().0;
    let mut left = mask;
    if CHECKS {
        let to = copy.offsets.map(u64::from);
        left = machine.shared.write_apart::<LEN, true>(&to, mask, first, pieces);
    }
    for l in lanes(left) {
        let at = copy.offsets[l] as usize;
        if CHECKS {
            let me = Toucher { thread: first.thread + l as u32, ..first };
            machine.shared.touch(at, LEN, me, Touch::Write, false).map_err(|fault| {
                (l as u32, shared_trouble(machine, fault, at as u64, LEN as u32, true))
            })?;
            machine.shared.set_ready(at, LEN, true);
        }
        machine.shared.data[at..at + LEN].copy_from_slice(&pieces[l]);
    }
    Ok(())
}

/// The copy under way that will bring a byte of the shared memory at hand.
pub(super) fn on_the_way(machine: &Machine<'_>, offset: u64) -> Option<Other> {
    if let Some(other) = machine.mbarriers.on_the_way(offset) {
        return Some(other);
    }
    if machine.cluster.visitor().is_some() {
        return None;
    }
    let mut all = machine.copies.iter().flat_map(|copies| copies.iter().rev());
    all.find_map(|copy| {
        let holds = |l: &usize| {
            let at = offset.checked_sub(copy.offsets[*l].into());
            at.is_some_and(|at| at < copy.bytes_per_lane.into())
        };
        let lane = lanes(copy.mask).find(holds)?;
        let Toucher { thread, pc, .. } = copy.first;
        Some(Other { thread: Some(thread + lane as u32), pc: Some(pc), block: None })
    })
}

/// From now on a thread's copies under way come with the current phase of an mbarrier.
pub(super) fn track(machine: &mut Machine<'_>, thread: u32, mbarrier: u64, phase: u32) {
    let lane = 1u32 << (thread % 32);
    let all = &mut machine.copies[thread as usize / 32];
    for i in 0..all.len() {
        let copy = &mut all[i];
        if copy.mask & lane == 0 || copy.tracked & lane != 0 {
            continue;
        }
        if copy.tracked == 0 || (copy.mbarrier, copy.phase) == (mbarrier, phase) {
            copy.tracked |= lane;
            (copy.mbarrier, copy.phase) = (mbarrier, phase);
            continue;
        }
        // Lanes of one copy at different mbarriers or phases part.
        copy.mask &= !lane;
        let apart = PendingCopy { mask: lane, tracked: lane, mbarrier, phase, ..*copy };
        all.push_back(apart);
    }
}

/// The copies that phases of an mbarrier before this one track are there.
pub(super) fn arrived(
    machine: &mut Machine<'_>,
    mbarrier: u64,
    phase: u32,
    released: &mut Released,
) -> Result<(), Box<Trouble>> {
    for w in 0..machine.copies.len() {
        if machine.copies[w].iter().all(|copy| copy.tracked == 0) {
            continue;
        }
        let mut all = std::mem::take(&mut machine.copies[w]);
        for copy in &mut all {
            if copy.tracked == 0 || copy.mbarrier != mbarrier || copy.phase == phase {
                continue;
            }
            let ripe = copy.tracked & copy.mask;
            machine.changes += u64::from(ripe != 0);
            copy.mask &= !ripe;
            copy.tracked = 0;
            let first = machine.shared.landing(copy.first, copy.age, released);
            let done = if machine.checks {
                land::<true>(machine, copy, ripe, first)
            } else {
                land::<false>(machine, copy, ripe, first)
            };
            done.map_err(|(_, trouble)| trouble)?;
        }
        while all.front().is_some_and(|copy| copy.mask == 0) {
            all.pop_front();
        }
        machine.copies[w] = all;
    }
    Ok(())
}
