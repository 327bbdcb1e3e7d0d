//! Asynchronous copies of a warp: the source is read and checked at once, the destination holds
//! nothing between the copy and the wait that it arrives at. Lanes side by side go together.

use super::access::{
    GLOBAL_START, Target, addresses, read_one, readable, resolve, shared_trouble, toucher,
};
use super::machine::Machine;
use super::step::Laned;
use super::warp::{Warp, lanes};
use crate::fault::MemorySpace;
use crate::program::Copying;
use crate::shared::Touch;
use crate::syntax::Space;

/// A copy instruction under way: its bytes are not there before the wait.
#[derive(Clone, Copy)]
pub(crate) struct PendingCopy {
    /// Lanes whose bytes have not arrived.
    mask: u32,
    /// Commits of those lanes before this copy's group closes.
    group: u32,
    bytes_per_lane: u8,
    offsets: [u32; 32],
    /// Of lane 0, 1, … one after the other.
    bytes: [u8; 512],
}

#[inline(always)]
pub(crate) fn copy<const CHECKS: bool>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    what: &Copying,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    let commits = machine.commits[warp.index as usize];
    let mut left = mask;
    while left != 0 {
        // Lanes with one number of commits: as a rule all.
        let group = commits[left.trailing_zeros() as usize & 31];
        let same = (0..32).fold(0, |all, l| all | u32::from(commits[l] == group) << l) & left;
        left &= !same;
        let mut pending = PendingCopy {
            mask: same,
            group,
            bytes_per_lane: what.bytes,
            offsets: [0; 32],
            bytes: [0; 512],
        };
        match what.bytes {
            16 => issue::<CHECKS, 16>(warp, machine, what, &mut pending, pc)?,
            8 => issue::<CHECKS, 8>(warp, machine, what, &mut pending, pc)?,
            _ => issue::<CHECKS, 4>(warp, machine, what, &mut pending, pc)?,
        }
        machine.copies[warp.index as usize].push_back(pending);
    }
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
            *wanted = (*size).min(LEN as u32);
        }
    }
    if let Some(ignored) = &what.ignored {
        let p = warp.predicates[usize::from(ignored.slot)];
        let ignored = if ignored.negate { !p } else { p };
        for l in lanes(ignored) {
            wanted[l] = 0;
        }
    }
    for (offset, to) in pending.offsets.iter_mut().zip(to) {
        *offset = to as u32;
    }
    let whole = sources::<CHECKS, LEN>(machine, &from, &wanted, pending);
    if whole && targets::<CHECKS, LEN>(warp, machine, &to, pending.mask, pc) {
        return Ok(());
    }
    for l in lanes(pending.mask) {
        let bytes = &mut pending.bytes[l * LEN..(l + 1) * LEN];
        one::<CHECKS, LEN>(warp, machine, l, pc, [to[l], from[l]], wanted[l], bytes)?;
    }
    Ok(())
}

/// Lanes that carry on where the one before them ends.
#[inline(always)]
fn followers(addresses: &[u64; 32], step: usize) -> u32 {
    let mut follows = 0;
    for l in 1..32 {
        let next = addresses[l] == addresses[l - 1].wrapping_add(step as u64);
        follows |= u32::from(next) << l;
    }
    follows
}

/// Reads what the lanes want, unless something is wrong with it or it is a part of a piece.
#[inline(always)]
fn sources<const CHECKS: bool, const LEN: usize>(
    machine: &mut Machine<'_>,
    from: &[u64; 32],
    wanted: &[u32; 32],
    pending: &mut PendingCopy,
) -> bool {
    let (mut all, mut none, mut crooked) = (0, 0, 0);
    for l in 0..32 {
        all |= u32::from(wanted[l] == LEN as u32) << l;
        none |= u32::from(wanted[l] == 0) << l;
        crooked |= u32::from(from[l] & (LEN as u64 - 1) != 0) << l;
    }
    if pending.mask & (!(all | none) | crooked) != 0 {
        return false;
    }
    for (first, n) in runs(pending.mask & all, followers(from, LEN)) {
        let bytes = &mut pending.bytes[first * LEN..(first + n) * LEN];
        if from[first] < GLOBAL_START {
            return false;
        }
        match machine.memory.window(from[first], bytes.len() as u64) {
            Some((page, at)) if !CHECKS || readable(&page.marks[at..at + bytes.len()]) => {
                bytes.copy_from_slice(&page.data[at..at + bytes.len()]);
            }
            _ => return false,
        }
    }
    true
}

/// Takes away what stood at the destinations, unless a lane may not store there.
#[inline(always)]
fn targets<const CHECKS: bool, const LEN: usize>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    to: &[u64; 32],
    mask: u32,
    pc: u32,
) -> bool {
    for (first, n) in runs(mask, followers(to, LEN)) {
        let (start, len) = (to[first], n * LEN);
        let me = toucher(warp, first, pc);
        let free = if CHECKS {
            machine.shared.write_run(start, n, LEN, me)
        } else {
            start.saturating_add(len as u64) <= machine.shared.data.len() as u64
        };
        if !start.is_multiple_of(LEN as u64) || !free {
            return false;
        }
        if CHECKS {
            machine.shared.set_ready(start as usize, len, false);
        }
    }
    true
}

/// The runs of a mask's lanes: first lane and length. `follows` has the lanes that go with the
/// one before them.
#[inline(always)]
fn runs(mask: u32, follows: u32) -> impl Iterator<Item = (usize, usize)> {
    let starts = mask & !(follows & mask << 1);
    lanes(starts).map(move |first| {
        let rest = !(u64::from(mask & !starts) >> 1 >> first);
        (first, 1 + rest.trailing_zeros() as usize)
    })
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
        let mut ripe = 0;
        for l in 0..32 {
            let open = pending.is_none_or(|n| copy.group < commits[l].saturating_sub(n));
            ripe |= u32::from(open) << l;
        }
        ripe &= mask & copy.mask;
        copy.mask &= !ripe;
        match copy.bytes_per_lane {
            16 => arrive::<CHECKS, 16>(warp, machine, copy, ripe, pc)?,
            8 => arrive::<CHECKS, 8>(warp, machine, copy, ripe, pc)?,
            _ => arrive::<CHECKS, 4>(warp, machine, copy, ripe, pc)?,
        }
    }
    while all.front().is_some_and(|copy| copy.mask == 0) {
        all.pop_front();
    }
    machine.copies[w] = all;
    Ok(())
}

#[inline(always)]
fn arrive<const CHECKS: bool, const LEN: usize>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    copy: &PendingCopy,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    let follows = followers(&copy.offsets.map(u64::from), LEN);
    for (first, n) in runs(mask, follows) {
        let start = u64::from(copy.offsets[first]);
        if CHECKS && !machine.shared.write_run(start, n, LEN, toucher(warp, first, pc)) {
            for l in first..first + n {
                let offset = copy.offsets[l];
                let me = toucher(warp, l, pc);
                machine.shared.touch(offset as usize, LEN, me, Touch::Write, false).map_err(
                    |fault| {
                        let len = LEN as u32;
                        let trouble = shared_trouble(machine, fault, offset.into(), len, true);
                        (l as u32, trouble)
                    },
                )?;
                machine.shared.set_ready(offset as usize, LEN, true);
            }
        }
        let at = copy.offsets[first] as usize;
        let bytes = &copy.bytes[first * LEN..(first + n) * LEN];
        machine.shared.data[at..at + n * LEN].copy_from_slice(bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn runs_end_at_gaps_and_where_lanes_do_not_follow() {
        let all = |mask, follows| runs(mask, follows).collect::<Vec<_>>();
        assert_eq!(all(u32::MAX, u32::MAX), [(0, 32)]);
        assert_eq!(all(u32::MAX, !(1 << 4)), [(0, 4), (4, 28)]);
        assert_eq!(all(0b1100_1110, u32::MAX), [(1, 3), (6, 2)]);
        assert_eq!(all(1 << 31, u32::MAX), [(31, 1)]);
        assert_eq!(all(0b111, 0), [(0, 1), (1, 1), (2, 1)]);
        assert_eq!(all(0, u32::MAX), []);
    }
}
