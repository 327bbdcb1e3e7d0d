//! Stores of a warp: consecutive addresses at once, everything else lane by lane.

use super::access::{
    block_race, by_size, flag_place, local_at, shared_trouble, touch_data, toucher,
};
use super::address::{GLOBAL_START, Shape, Target, addresses, offset, place, resolve, space_of};
use super::cluster;
use super::lane::lanes_where;
use super::machine::{Machine, Trouble};
use super::step::Laned;
use super::warp::{FULL, Warp, lanes};
use crate::fault::{FaultKind, RaceKind};
use crate::memory::marks;
use crate::module::Owner;
use crate::program::{Access, Class, Scope};
use crate::race::Act;
use crate::shared::{Touch, Toucher};
use crate::space::DATA_BASE;
use crate::syntax::Space;

/// Stores of lanes side by side, when nothing stands against it; `false` asks for [`store_each`].
#[inline(always)]
pub(crate) fn store<const CHECKS: bool, const BYTES: usize>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Access,
    mask: u32,
    pc: u32,
) -> bool {
    let bytes = BYTES;
    let (first, shape) = place(warp, what, mask, bytes as u64);
    let span = match shape {
        Shape::Run(n) => n * bytes,
        // All lanes at one place, or one lane alone.
        Shape::Uniform if mask.is_power_of_two() => bytes,
        _ => 0,
    };
    if span != 0 && first & (bytes as u64 - 1) == 0 {
        let lane = mask.trailing_zeros() as usize & 31;
        let global = matches!(what.space, Space::Global | Space::Generic) && first >= GLOBAL_START;
        if global && let Some((page, at)) = machine.memory.window(first, span as u64) {
            let shadow = &page.marks[at..at + span];
            let refused =
                CHECKS && shadow.iter().fold(0, |any, m| any | *m) & marks::UNWRITABLE != 0;
            let recorded = !CHECKS
                || !machine.races.on
                || !what.strong && {
                    let me = toucher(warp, lane, pc);
                    let len = page.data.len();
                    machine.races.run::<true>(&mut page.shadow, len, at, span, bytes, me)
                };
            if !refused && recorded {
                let shadow = &mut page.marks[at..at + span];
                for mark in shadow {
                    *mark |= marks::INIT | marks::WRITTEN;
                }
                collect::<BYTES>(warp, what, lane, &mut page.data[at..at + span]);
                return true;
            }
        }
        if what.space == Space::Shared && !what.strong && first < 1 << 24 {
            let at = first as usize;
            let ok = if CHECKS {
                let me = toucher(warp, lane, pc);
                machine.shared.write_run(first, span / bytes, bytes, me)
            } else {
                at + span <= machine.shared.data.len()
            };
            if ok {
                collect::<BYTES>(warp, what, lane, &mut machine.shared.data[at..at + span]);
                return true;
            }
        }
    }
    false
}

/// Stores lane by lane, and names what is wrong.
#[inline(always)]
pub(crate) fn store_each<const CHECKS: bool>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Access,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    let addresses = &addresses(warp, what.base, offset(warp, what) as i64);
    by_size!(what.bytes(), scatter(warp, machine, what, mask, pc, addresses))
}

/// The bytes that lanes from `lane` on store, one after the other, as many as fit.
#[inline(always)]
fn collect<const BYTES: usize>(warp: &Warp, what: &Access, lane: usize, buffer: &mut [u8]) {
    let width = usize::from(what.width_bytes);
    let slot = usize::from(what.regs[0].slot);
    let lane = lane & 31;
    match (BYTES, width, what.regs[0].class) {
        (4, 4, Class::Word) => {
            let x = &warp.words[slot].0[lane..];
            for (to, x) in buffer.as_chunks_mut::<4>().0.iter_mut().zip(x) {
                *to = x.to_le_bytes();
            }
        }
        (2, 2, Class::Word) => {
            let x = &warp.words[slot].0[lane..];
            for (to, x) in buffer.as_chunks_mut::<2>().0.iter_mut().zip(x) {
                *to = (*x as u16).to_le_bytes();
            }
        }
        (8, 8, Class::Long) => {
            let x = &warp.longs[slot].0[lane..];
            for (to, x) in buffer.as_chunks_mut::<8>().0.iter_mut().zip(x) {
                *to = x.to_le_bytes();
            }
        }
        (8, 4, _) => collect_words::<2, 8>(warp, what, lane, buffer),
        (16, 4, _) => collect_words::<4, 16>(warp, what, lane, buffer),
        _ => {
            for i in 0..usize::from(what.count) {
                let reg = what.regs[i];
                for (l, chunk) in (lane..32).zip(buffer.chunks_exact_mut(BYTES)) {
                    let value = warp.value(reg, l).to_le_bytes();
                    chunk[i * width..(i + 1) * width].copy_from_slice(&value[..width]);
                }
            }
        }
    }
}

#[inline(always)]
fn collect_words<const COUNT: usize, const BYTES: usize>(
    warp: &Warp,
    what: &Access,
    lane: usize,
    buffer: &mut [u8],
) {
    let mut x = [[0u32; 32]; COUNT];
    for (x, reg) in x.iter_mut().zip(&what.regs) {
        match reg.class {
            Class::Word => *x = warp.words[usize::from(reg.slot)].0,
            _ => *x = std::array::from_fn(|l| warp.value(*reg, l) as u32),
        }
    }
    for (l, to) in (lane..32).zip(buffer.as_chunks_mut::<BYTES>().0) {
        for i in 0..COUNT {
            to[i * 4..i * 4 + 4].copy_from_slice(&x[i][l].to_le_bytes());
        }
    }
}

#[inline(always)]
fn scatter<const CHECKS: bool, const BYTES: usize>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    what: &Access,
    mask: u32,
    pc: u32,
    addresses: &[u64; 32],
) -> Result<(), Laned> {
    let mut buffer = [[0u8; BYTES]; 32];
    collect::<BYTES>(warp, what, 0, buffer.as_flattened_mut());
    let elsewhere =
        matches!(what.space, Space::Shared | Space::Local | Space::Param | Space::Const);
    if CHECKS
        && !what.strong
        && !elsewhere
        && let Some((lane, address)) = collision(mask, addresses, &buffer)
        && let Target::Global(address) = resolve(what.space, address)
        && let Some(place) = machine.buffer_place(address)
    {
        let kind = FaultKind::GlobalRace { buffer: place, race: RaceKind::WriteAfterWrite };
        return Err((lane, kind.into()));
    }
    let left = match what.space {
        Space::Global | Space::Generic if !(what.strong && machine.races.on) => {
            let first = toucher(warp, 0, pc);
            scatter_global::<CHECKS, BYTES>(machine, mask, addresses, first, &buffer)
        }
        Space::Shared if CHECKS && !what.strong => {
            let first = toucher(warp, 0, pc);
            machine.shared.write_apart::<BYTES, true>(addresses, mask, first, &buffer)
        }
        _ => mask,
    };
    machine.within(what.scope);
    for l in lanes(left) {
        let target = resolve(what.space, addresses[l]);
        let me = toucher(warp, l, pc);
        write_one::<CHECKS>(machine, target, &buffer[l], me, what.strong)
            .map_err(|trouble| (l as u32, trouble))?;
        if CHECKS && what.strong {
            release(machine, target, me, what.release);
        }
    }
    machine.within(Scope::Wide);
    Ok(())
}

/// A strong store tells what was fenced before it.
pub(crate) fn release(machine: &mut Machine<'_>, target: Target, me: Toucher, fenced: bool) {
    // The scope of the block says nothing to others.
    if fenced && !machine.races.narrow {
        machine.order_cluster();
    }
    if let Some(place) = flag_place(target)
        && (fenced || machine.shared.flagged(me.thread / 32))
    {
        machine.shared.raise(place, me, fenced);
    }
    if machine.races.on {
        match target {
            Target::Global(address) => machine.races.release(me.thread / 32, address, fenced),
            Target::Data(offset) => {
                machine.races.release(me.thread / 32, DATA_BASE + offset, fenced);
            }
            Target::Shared(offset) => machine.tell(offset, me, fenced),
            Target::Cluster(address) => {
                let _ = machine.reach(address, me, |machine, offset| {
                    machine.tell(offset, me, fenced);
                    Ok(())
                });
            }
            _ => {}
        }
    }
}

/// Stores in order to buffers as long as nothing forbids it; returns the lanes that are left.
#[inline(always)]
fn scatter_global<const CHECKS: bool, const BYTES: usize>(
    machine: &mut Machine<'_>,
    mask: u32,
    addresses: &[u64; 32],
    first: Toucher,
    buffer: &[[u8; BYTES]; 32],
) -> u32 {
    let recorded = if CHECKS { machine.races.scattered(first, BYTES) } else { None };
    let mut left = mask;
    while left != 0 {
        let start = addresses[left.trailing_zeros() as usize & 31];
        if start < GLOBAL_START {
            return left;
        }
        let Some((page, at)) = machine.memory.window(start, BYTES as u64) else {
            return left;
        };
        // The lanes that follow in the same page.
        for l in lanes(left) {
            let from = addresses[l].wrapping_sub(start).wrapping_add(at as u64);
            if from >= page.data.len() as u64 {
                break;
            }
            let (from, end) = (from as usize, from as usize + BYTES);
            let data_len = page.data.len();
            let (Some(data), Some(shadow)) =
                (page.data.get_mut(from..end), page.marks.get_mut(from..end))
            else {
                break;
            };
            let mut any = 0;
            for mark in &*shadow {
                any |= *mark;
            }
            if addresses[l] & (BYTES as u64 - 1) != 0 || CHECKS && any & marks::UNWRITABLE != 0 {
                return left;
            }
            if let Some(first) = recorded {
                let mine = first + ((l as u32) << 4);
                if !machine.races.single::<true, BYTES>(&mut page.shadow, data_len, from, mine) {
                    return left;
                }
            }
            for mark in shadow {
                *mark |= marks::INIT | marks::WRITTEN;
            }
            data.copy_from_slice(&buffer[l]);
            left &= left - 1;
        }
    }
    0
}

/// Whether each lane's bytes lie behind those of the lane before.
#[inline(always)]
fn rising(mask: u32, addresses: &[u64; 32], bytes: u64) -> bool {
    let behind = |last: u64, next: u64| next >= last.saturating_add(bytes);
    if mask == FULL {
        // Without branches, so that lanes become vectors.
        let mut all = true;
        for l in 1..32 {
            all &= behind(addresses[l - 1], addresses[l]);
        }
        return all;
    }
    let mut last = None;
    let mut all = true;
    for l in lanes(mask) {
        all &= last.is_none_or(|last| behind(last, addresses[l]));
        last = Some(addresses[l]);
    }
    all
}

/// A lane whose bytes overlap an earlier lane's with another value.
#[inline(always)]
fn collision<const BYTES: usize>(
    mask: u32,
    addresses: &[u64; 32],
    buffer: &[[u8; BYTES]; 32],
) -> Option<(u32, u64)> {
    if rising(mask, addresses, BYTES as u64) || apart(mask, addresses, buffer) {
        return None;
    }
    clash(mask, addresses, buffer.as_flattened(), BYTES)
}

/// Whether all pieces are aligned, so that those with a byte in common have all of them, and such
/// pieces hold the same value.
#[inline(always)]
fn apart<const BYTES: usize>(mask: u32, addresses: &[u64; 32], buffer: &[[u8; BYTES]; 32]) -> bool {
    if lanes_where(|l| addresses[l] & (BYTES as u64 - 1) != 0) & mask != 0 {
        return false;
    }
    for l in lanes(mask) {
        let same = lanes_where(|other| addresses[other] == addresses[l]) & mask;
        // Each pair is seen from both sides; the earlier lane is enough.
        for earlier in lanes(same & ((1 << l) - 1)) {
            if buffer[earlier] != buffer[l] {
                return false;
            }
        }
    }
    true
}

fn clash(mask: u32, addresses: &[u64; 32], buffer: &[u8], bytes: usize) -> Option<(u32, u64)> {
    for l in lanes(mask) {
        for earlier in lanes(mask & ((1 << l) - 1)) {
            let (a, b) = (addresses[earlier], addresses[l]);
            if a.abs_diff(b) >= bytes as u64 {
                continue;
            }
            let start = a.max(b);
            for at in start..a.min(b).saturating_add(bytes as u64) {
                let x = buffer[earlier * bytes + (at - a) as usize];
                let y = buffer[l * bytes + (at - b) as usize];
                if x != y {
                    return Some((l as u32, at));
                }
            }
        }
    }
    None
}

/// Writes one thread's bytes, or says why not.
#[inline(always)]
pub(crate) fn write_one<const CHECKS: bool>(
    machine: &mut Machine<'_>,
    target: Target,
    data: &[u8],
    me: Toucher,
    strong: bool,
) -> Result<(), Box<Trouble>> {
    let len = data.len();
    let bytes = len as u32;
    let (space, offset) = space_of(target);
    if !offset.is_multiple_of(len as u64) {
        return Err(machine.misaligned(space, offset, bytes, true));
    }
    match target {
        Target::Global(address) => {
            let Some((page, at)) = machine.memory.window(address, len as u64) else {
                return Err(machine.out_of_bounds(space, address, bytes, true));
            };
            if CHECKS
                && let Some(i) =
                    page.marks[at..at + len].iter().position(|m| m & marks::UNWRITABLE != 0)
                && let Some(buffer) = machine.buffer_place(address + i as u64)
            {
                return Err(FaultKind::UnwritableWrite { buffer }.into());
            }
            if CHECKS
                && machine.races.on
                && let Some((page, at)) = machine.memory.window(address, len as u64)
            {
                let declared = page.marks[at..at + len].iter().all(|m| m & marks::SAME_VALUE != 0);
                let same = !strong && page.data[at..at + len] == *data;
                let act = Act { store: true, strong, harmless: same && declared, same };
                let page_len = page.data.len();
                let touched = machine.races.touch(&mut page.shadow, page_len, at, len, me, act);
                if let Err(foe) = touched {
                    return Err(block_race(machine, address, foe));
                }
            }
            if let Some((page, at)) = machine.memory.window(address, len as u64) {
                page.data[at..at + len].copy_from_slice(data);
                for mark in &mut page.marks[at..at + len] {
                    *mark |= marks::INIT | marks::WRITTEN;
                }
            }
        }
        Target::Shared(offset) => {
            if CHECKS {
                let touch = if strong { Touch::StrongWrite } else { Touch::Write };
                let result = machine.shared.store(offset, data, me, touch);
                result.map_err(|fault| shared_trouble(machine, fault, offset, bytes, true))?;
            } else {
                let end = offset.saturating_add(len as u64);
                if end > machine.shared.data.len() as u64 {
                    return Err(machine.out_of_bounds(space, offset, bytes, true));
                }
                machine.shared.data[offset as usize..end as usize].copy_from_slice(data);
            }
        }
        Target::Cluster(address) => return cluster::write(machine, address, data, me, strong),
        _ => return write_other::<CHECKS>(machine, target, data, me, strong),
    }
    Ok(())
}

/// The same for the spaces of a thread or of all.
#[inline(never)]
fn write_other<const CHECKS: bool>(
    machine: &mut Machine<'_>,
    target: Target,
    data: &[u8],
    me: Toucher,
    strong: bool,
) -> Result<(), Box<Trouble>> {
    let (len, bytes) = (data.len(), data.len() as u32);
    let (space, _) = space_of(target);
    match target {
        Target::Local(offset) => {
            let Some(at) = local_at(machine, offset, len, me.thread) else {
                return Err(machine.out_of_bounds(space, offset, bytes, true));
            };
            machine.local.data[at..at + len].copy_from_slice(data);
            machine.local.init[at..at + len].fill(true);
        }
        Target::Param(offset) => {
            return Err(machine.out_of_bounds(space, offset, bytes, true));
        }
        Target::Data(offset) => {
            let Some(range) = machine.module.owned(offset, len) else {
                return Err(machine.out_of_bounds(space, offset, bytes, true));
            };
            if machine.module.owners[range.clone()].contains(&Owner::Const) {
                let variable = machine.variable_place(offset);
                return Err(FaultKind::ConstWrite { offset, variable }.into());
            }
            if CHECKS && machine.races.on {
                let same = !strong && machine.data[range.clone()] == *data;
                let act = Act { store: true, strong, harmless: false, same };
                touch_data(machine, offset, len, me, act)?;
            }
            machine.data[range].copy_from_slice(data);
        }
        Target::Global(_) | Target::Shared(_) | Target::Cluster(_) => {}
    }
    Ok(())
}
