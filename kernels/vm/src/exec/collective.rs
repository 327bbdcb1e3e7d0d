//! Block barriers and the `.sync` operations of a warp.

use super::cluster;
use super::machine::{Machine, Trouble};
use super::step::{Laned, Raised};
use super::strict;
use super::warp::{FULL, Fragment, State, Warp, lanes};
use crate::fault::FaultKind;
use crate::program::{Action, Barrier, BarrierKind, Shuffle, ShuffleMode, Vote, VoteKind};
use crate::shared::LAST_CLOCK;

/// The lanes of a warp meet.
#[inline(always)]
pub(super) fn order_lanes(warp: &mut Warp, machine: &mut Machine<'_>) {
    advance_clock(warp, machine);
    warp.synced = warp.clock;
}

/// What the warp does from now on can be told from what it did before.
#[inline(always)]
pub(super) fn advance_clock(warp: &mut Warp, machine: &mut Machine<'_>) {
    if warp.clock >= LAST_CLOCK {
        machine.shared.forget();
        machine.shared.next_epoch();
        warp.restart_clock();
    }
    warp.clock += 1;
}

/// Lanes arrive at a block barrier. Returns those that now wait (all but for `bar.arrive`).
#[cfg_attr(feature = "libfuzzer", inline(always))]
#[cfg_attr(not(feature = "libfuzzer"), inline(never))]
pub(crate) fn arrive(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    barrier: &Barrier,
    mask: u32,
    pc: u32,
) -> Result<u32, Laned> {
    match barrier.kind {
        BarrierKind::ClusterArrive { release } => {
            return cluster::arrive(warp, machine, mask, release).map(|()| 0);
        }
        BarrierKind::ClusterWait => return cluster::wait(warp, machine, mask, pc),
        _ => {}
    }
    let first = mask.trailing_zeros() as usize & 31;
    let id = warp.word(barrier.id)[first];
    let count = barrier.count.map(|slot| warp.word(slot)[first]);
    let bad = id > 15 || count.is_some_and(|c| c % 32 != 0 || c == 0);
    if bad {
        let kind = FaultKind::BadBarrier { barrier: id, count };
        return Err((first as u32, kind.into()));
    }
    let gate = &mut machine.gates[id as usize];
    if gate.arrived == 0 {
        gate.popc = 0;
        gate.all = true;
        gate.any = false;
    }
    gate.expected = count.unwrap_or(0);
    // A barrier counts whole warps: a partly filled one stands for 32 threads.
    let whole = mask == FULL || count.is_some() && mask == warp.alive;
    gate.arrived += if whole { 32 } else { mask.count_ones() };
    let mut p = warp.predicates[usize::from(barrier.p)];
    if barrier.negate {
        p = !p;
    }
    if barrier.kind == BarrierKind::RedPopc {
        gate.popc += (p & mask).count_ones();
    }
    gate.all &= p & mask == mask;
    gate.any |= p & mask != 0;
    if barrier.kind == BarrierKind::Arrive {
        return Ok(0);
    }
    warp.fragments.push(Fragment { pc, mask, state: State::AtBarrier(id as u8) });
    Ok(mask)
}

/// Runs a shuffle, vote or warp barrier for every group whose members are all here. Returns the
/// lanes that have to wait.
#[inline(always)]
pub(crate) fn synchronous(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    action: &Action,
    mask: u32,
) -> Result<u32, Laned> {
    if let Action::Shuffle(i) | Action::Exchange(i) = *action {
        let what = &machine.entry.shuffles[usize::from(i)];
        if mask == FULL
            && let Some((b, c)) = what.fixed
        {
            let a = warp.words[usize::from(what.a)].0;
            shuffle_whole(warp, what, &a, b as i32, c);
            return Ok(0);
        }
    }
    let members = match *action {
        Action::WarpSync { members } => members,
        Action::Shuffle(i) | Action::Exchange(i) => machine.entry.shuffles[usize::from(i)].members,
        Action::Vote(i) => machine.entry.votes[usize::from(i)].members,
        _ => return Ok(0),
    };
    let masks = &warp.words[usize::from(members)].0;
    if mask == FULL && masks.iter().fold(FULL, |all, m| all & m) == FULL {
        group(warp, machine, action, FULL)?;
        return Ok(0);
    }
    let masks = *masks;
    some(warp, machine, action, mask, &masks)
}

fn some(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    action: &Action,
    mask: u32,
    masks: &[u32; 32],
) -> Result<u32, Laned> {
    let mut left = mask;
    let mut waiting = 0;
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let members = masks[first];
        let same = lanes(left).filter(|l| masks[*l] == members).fold(0, |all, l| all | 1u32 << l);
        left &= !same;
        let outside = same & !members;
        if outside != 0 {
            let kind = FaultKind::BadMemberMask { members };
            return Err((outside.trailing_zeros(), kind.into()));
        }
        if members & warp.alive & !same != 0 {
            waiting |= same;
        } else {
            strict::members(warp, machine, members, same)?;
            group(warp, machine, action, same)?;
        }
    }
    Ok(waiting)
}

/// One complete group.
#[inline(always)]
fn group(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    action: &Action,
    mask: u32,
) -> Result<(), Laned> {
    match *action {
        Action::WarpSync { .. } => {
            order_lanes(warp, machine);
            machine.shared.pass_on(warp.index, mask, warp.alive);
            Ok(())
        }
        Action::Shuffle(i) | Action::Exchange(i) => {
            shuffle(warp, &machine.entry.shuffles[usize::from(i)], mask)
        }
        Action::Vote(i) => {
            vote(warp, &machine.entry.votes[usize::from(i)], mask);
            Ok(())
        }
        _ => Ok(()),
    }
}

#[inline(always)]
fn shuffle(warp: &mut Warp, what: &Shuffle, mask: u32) -> Result<(), Laned> {
    let a = warp.words[usize::from(what.a)].0;
    let b = &warp.words[usize::from(what.b)].0;
    let c = &warp.words[usize::from(what.c)].0;
    if mask == FULL {
        let mut different = 0;
        for l in 0..32 {
            different |= (b[l] ^ b[0]) | (c[l] ^ c[0]);
        }
        if different == 0 {
            let (by, clamp) = (b[0] & 31, c[0]);
            shuffle_whole(warp, what, &a, by as i32, clamp);
            return Ok(());
        }
    }
    let (b, c) = (*b, *c);
    let mut inside = 0u32;
    for l in lanes(mask) {
        let lane = l as i32;
        let by = (b[l] & 0x1f) as i32;
        let clamp = (c[l] & 0x1f) as i32;
        let segments = (c[l] >> 8 & 0x1f) as i32;
        let highest = (lane & segments) | (clamp & !segments);
        let lowest = lane & segments;
        let (from, ok) = match what.mode {
            ShuffleMode::Up => (lane - by, lane - by >= highest),
            ShuffleMode::Down => (lane + by, lane + by <= highest),
            ShuffleMode::Butterfly => (lane ^ by, (lane ^ by) <= highest),
            ShuffleMode::Index => {
                let from = lowest | (by & !segments);
                (from, from <= highest)
            }
        };
        let from = if ok { from } else { lane };
        if mask >> (from & 31) & 1 == 0 {
            let kind = FaultKind::ShuffleInactive { lane: from as u32 };
            return Err((l as u32, kind.into()));
        }
        warp.words[usize::from(what.d)].0[l] = a[from as usize & 31];
        inside |= u32::from(ok) << l;
    }
    if let Some(p) = what.p {
        let p = &mut warp.predicates[usize::from(p)];
        *p = *p & !mask | inside & mask;
    }
    Ok(())
}

/// Every lane takes part and all agree on distance and clamp: no lane can be missing.
#[inline(always)]
fn shuffle_whole(warp: &mut Warp, what: &Shuffle, a: &[u32; 32], by: i32, c: u32) {
    let clamp = (c & 0x1f) as i32;
    let segments = (c >> 8 & 0x1f) as i32;
    let highest = |lane: i32| (lane & segments) | (clamp & !segments);
    let (from, inside) = match what.mode {
        ShuffleMode::Up => sources(|lane| (lane - by, lane - by >= highest(lane))),
        ShuffleMode::Down => sources(|lane| (lane + by, lane + by <= highest(lane))),
        ShuffleMode::Butterfly => sources(|lane| (lane ^ by, (lane ^ by) <= highest(lane))),
        ShuffleMode::Index => sources(|lane| {
            let from = (lane & segments) | (by & !segments);
            (from, from <= highest(lane))
        }),
    };
    let d = &mut warp.words[usize::from(what.d)].0;
    for l in 0..32 {
        d[l] = a[from[l] as usize & 31];
    }
    if let Some(p) = what.p {
        warp.predicates[usize::from(p)] = inside;
    }
}

/// The lane each lane reads, itself where the wanted one is outside, and who is inside.
#[inline(always)]
fn sources(source: impl Fn(i32) -> (i32, bool)) -> ([i32; 32], u32) {
    let mut from = [0i32; 32];
    let mut inside = 0u32;
    for l in 0..32 {
        let (lane, ok) = source(l as i32);
        let ones = i32::from(ok).wrapping_neg();
        from[l] = lane & ones | l as i32 & !ones;
        inside |= u32::from(ok) << l;
    }
    (from, inside)
}

#[cfg_attr(feature = "libfuzzer", inline(always))]
fn vote(warp: &mut Warp, what: &Vote, mask: u32) {
    let values = |warp: &Warp| {
        let mut out = [0u64; 32];
        for l in lanes(mask) {
            out[l] = warp.value(what.a, l);
        }
        out
    };
    let mut ballot = 0;
    if matches!(what.kind, VoteKind::Any | VoteKind::All | VoteKind::Uniform | VoteKind::Ballot) {
        let p = warp.predicates[usize::from(what.a.slot)];
        ballot = mask & if what.negate { !p } else { p };
    }
    let mut result = |value: u64| {
        if let Some(d) = what.d {
            warp.set_masked(d, mask, value);
        }
    };
    match what.kind {
        VoteKind::Any => result(u64::from(ballot != 0)),
        VoteKind::All => result(u64::from(ballot == mask)),
        VoteKind::Uniform => result(u64::from(ballot == mask || ballot == 0)),
        VoteKind::Ballot => result(u64::from(ballot)),
        VoteKind::Elect => {
            let leader = mask.trailing_zeros();
            result(u64::from(leader));
            if let Some(p) = what.p {
                let p = &mut warp.predicates[usize::from(p)];
                *p = *p & !mask | 1 << leader;
            }
        }
        VoteKind::MatchAny => {
            let all = values(warp);
            for l in lanes(mask) {
                let same = lanes(mask).filter(|k| all[*k] == all[l]).fold(0, |m, k| m | 1u32 << k);
                if let Some(d) = what.d {
                    warp.set(d, l, u64::from(same));
                }
            }
        }
        VoteKind::MatchAll => {
            let all = values(warp);
            let first = all[mask.trailing_zeros() as usize & 31];
            let same = lanes(mask).all(|l| all[l] == first);
            for l in lanes(mask) {
                if let Some(d) = what.d {
                    warp.set(d, l, if same { u64::from(mask) } else { 0 });
                }
            }
            if let Some(p) = what.p {
                let p = &mut warp.predicates[usize::from(p)];
                *p = if same { *p | mask } else { *p & !mask };
            }
        }
        _ => {
            let reduced = reduced(what.kind, &warp.words[usize::from(what.a.slot)].0, mask);
            if let Some(d) = what.d {
                warp.set_masked(d, mask, u64::from(reduced));
            }
        }
    }
}

/// One value of the masked lanes'. What to reduce by is asked once, outside the loops; a lane that is not
/// in the mask stands for what changes nothing.
fn reduced(kind: VoteKind, all: &[u32; 32], mask: u32) -> u32 {
    match kind {
        VoteKind::MinU => fold(all, mask, u32::MAX, |x, y| x.min(y)),
        VoteKind::MaxU => fold(all, mask, 0, |x, y| x.max(y)),
        VoteKind::MinS => fold(all, mask, i32::MAX as u32, |x, y| (x as i32).min(y as i32) as u32),
        VoteKind::MaxS => fold(all, mask, 1 << 31, |x, y| (x as i32).max(y as i32) as u32),
        VoteKind::And => fold(all, mask, u32::MAX, |x, y| x & y),
        VoteKind::Or => fold(all, mask, 0, |x, y| x | y),
        VoteKind::Xor => fold(all, mask, 0, |x, y| x ^ y),
        _ => fold(all, mask, 0, u32::wrapping_add),
    }
}

#[inline(always)]
fn fold(all: &[u32; 32], mask: u32, neutral: u32, f: impl Fn(u32, u32) -> u32) -> u32 {
    let lane = |l: usize| if mask >> l & 1 != 0 { all[l] } else { neutral };
    (0..32).map(lane).fold(neutral, f)
}

/// Opens barriers that have everyone. Returns whether any opened.
#[cfg_attr(feature = "libfuzzer", inline(always))]
pub(crate) fn release(
    warps: &mut [Warp],
    machine: &mut Machine<'_>,
) -> Result<bool, (usize, Box<Raised>)> {
    let mut opened = cluster::open(warps, machine);
    for id in 0..machine.gates.len() as u8 {
        let gate = machine.gates[usize::from(id)];
        let needed = if gate.expected == 0 { machine.alive_threads } else { gate.expected };
        if gate.arrived == 0 || gate.arrived < needed {
            continue;
        }
        strict::opens(warps, machine, id)?;
        opened = true;
        machine.gates[usize::from(id)] = Default::default();
        machine.shared.next_epoch();
        machine.races.meet();
        let entry = machine.entry;
        for warp in warps.iter_mut() {
            warp.restart_clock();
            for i in 0..warp.fragments.len() {
                let fragment = warp.fragments[i];
                if fragment.state != State::AtBarrier(id) {
                    continue;
                }
                if let Action::Barrier(index) = entry.code[fragment.pc as usize].action {
                    let barrier = &entry.barriers[usize::from(index)];
                    let value = match barrier.kind {
                        BarrierKind::RedPopc => gate.popc,
                        BarrierKind::RedAnd => u32::from(gate.all),
                        _ => u32::from(gate.any),
                    };
                    if let Some(d) = barrier.d {
                        for l in lanes(fragment.mask) {
                            warp.set(d, l, u64::from(value));
                        }
                    }
                }
                warp.fragments[i].pc += 1;
                warp.fragments[i].state = State::Ready;
            }
        }
    }
    Ok(opened)
}

/// Nothing can run: says which rule the block broke, and the warp, lane and place to blame.
pub(crate) fn deadlock(warps: &[Warp], machine: &Machine<'_>) -> (usize, u32, u32, Box<Trouble>) {
    let mut at_barrier: Option<(u8, usize, Fragment)> = None;
    let mut second: Option<u8> = None;
    let mut gathering: Option<(usize, Fragment)> = None;
    let mut waiting = 0;
    for (w, warp) in warps.iter().enumerate() {
        for fragment in &warp.fragments {
            match fragment.state {
                State::AtBarrier(id) => {
                    waiting += fragment.mask.count_ones();
                    match at_barrier {
                        None => at_barrier = Some((id, w, *fragment)),
                        Some((first, ..)) if first != id => second = Some(id),
                        _ => {}
                    }
                }
                _ => gathering = gathering.or(Some((w, *fragment))),
            }
        }
    }
    let alive = machine.alive_threads;
    let (w, fragment, kind) = match (at_barrier, second, gathering) {
        (_, _, Some((w, fragment))) => (
            w,
            fragment,
            FaultKind::BarrierDivergence {
                waiting: waiting.max(fragment.mask.count_ones()),
                alive,
            },
        ),
        (Some((first, w, fragment)), Some(second), None) => (
            w,
            fragment,
            FaultKind::BarrierMismatch {
                first: first.min(second).into(),
                second: first.max(second).into(),
            },
        ),
        (Some((cluster::GATE, w, fragment)), None, None) => (w, fragment, cluster::stuck(machine)),
        (Some((id, w, fragment)), None, None) => {
            let gate = machine.gates[usize::from(id)];
            let exited = machine.alive_threads < machine.block_threads;
            let kind = if gate.expected != 0 && exited {
                FaultKind::ExitedAtBarrier {
                    barrier: u32::from(id),
                    arrived: gate.arrived,
                    expected: gate.expected,
                }
            } else {
                FaultKind::BarrierDivergence { waiting, alive }
            };
            (w, fragment, kind)
        }
        (None, _, None) => {
            let none = Fragment { pc: 0, mask: 1, state: State::Ready };
            (0, none, FaultKind::BarrierDivergence { waiting, alive })
        }
    };
    let lane = fragment.mask.trailing_zeros() & 31;
    (w, lane, fragment.pc, kind.into())
}
