//! Stores of a warp: consecutive addresses at once, everything else lane by lane.

use super::access::{
    GLOBAL_START, Shape, Target, addresses, local_at, resolve, shape, shared_trouble, space_of,
    toucher,
};
use super::machine::{Machine, Trouble};
use super::step::Laned;
use super::warp::{Warp, lanes};
use crate::fault::{FaultKind, RaceKind};
use crate::memory::marks;
use crate::program::{Access, Class};
use crate::shared::{Touch, Toucher};
use crate::syntax::Space;

#[inline(always)]
pub(crate) fn store<const CHECKS: bool>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Access,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    // Most stores are small; clearing a small buffer costs little.
    if what.bytes() <= 4 {
        store_with::<CHECKS, 128>(warp, machine, what, mask, pc)
    } else {
        store_with::<CHECKS, 1024>(warp, machine, what, mask, pc)
    }
}

#[inline(always)]
fn store_with<const CHECKS: bool, const BYTES: usize>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Access,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    let addresses = addresses(warp, what.base, what.offset);
    let bytes = what.bytes() as usize;
    let mut buffer = [0u8; BYTES];
    collect(warp, what, &mut buffer, bytes);
    let first = addresses[mask.trailing_zeros() as usize & 31];
    if let Shape::Run(n) = shape(&addresses, mask, bytes as u64)
        && first & (bytes as u64 - 1) == 0
    {
        let span = n * bytes;
        let global = matches!(what.space, Space::Global | Space::Generic) && first >= GLOBAL_START;
        if global && let Some((page, at)) = machine.memory.window(first, span as u64) {
            let shadow = &mut page.marks[at..at + span];
            let refused =
                CHECKS && shadow.iter().fold(0, |any, m| any | *m) & marks::UNWRITABLE != 0;
            if !refused {
                page.data[at..at + span].copy_from_slice(&buffer[..span]);
                for mark in shadow {
                    *mark |= marks::INIT | marks::WRITTEN;
                }
                return Ok(());
            }
        }
        if what.space == Space::Shared && !what.strong && first < 1 << 24 {
            let at = first as usize;
            let ok = if CHECKS {
                let me = toucher(warp, 0, pc);
                bytes.is_multiple_of(4) && machine.shared.store_run(at, n, bytes, me)
            } else {
                at + span <= machine.shared.data.len()
            };
            if ok {
                machine.shared.data[at..at + span].copy_from_slice(&buffer[..span]);
                return Ok(());
            }
        }
    }
    store_each::<CHECKS>(warp, machine, what, mask, pc, &addresses, &buffer)
}

/// The bytes every lane stores, lane after lane.
#[inline(always)]
fn collect(warp: &Warp, what: &Access, buffer: &mut [u8], bytes: usize) {
    let width = usize::from(what.width_bytes);
    for i in 0..usize::from(what.count) {
        let reg = what.regs[i];
        let slot = usize::from(reg.slot);
        let chunks = buffer.chunks_exact_mut(bytes);
        match reg.class {
            Class::Word => {
                let x = &warp.words[slot].0;
                match width {
                    4 => {
                        for (chunk, value) in chunks.zip(x) {
                            chunk[i * 4..i * 4 + 4].copy_from_slice(&value.to_le_bytes());
                        }
                    }
                    2 => {
                        for (chunk, value) in chunks.zip(x) {
                            chunk[i * 2..i * 2 + 2].copy_from_slice(&(*value as u16).to_le_bytes());
                        }
                    }
                    _ => {
                        for (chunk, value) in chunks.zip(x) {
                            chunk[i * width] = *value as u8;
                        }
                    }
                }
            }
            _ => {
                let x = &warp.longs[slot].0;
                for (chunk, value) in chunks.zip(x) {
                    let target = &mut chunk[i * width..(i + 1) * width];
                    target.copy_from_slice(&value.to_le_bytes()[..width]);
                }
            }
        }
    }
}

fn store_each<const CHECKS: bool>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    what: &Access,
    mask: u32,
    pc: u32,
    addresses: &[u64; 32],
    buffer: &[u8],
) -> Result<(), Laned> {
    let bytes = what.bytes() as usize;
    if CHECKS
        && !what.strong
        && let Some((lane, address)) = collision(mask, addresses, buffer, bytes)
        && let Target::Global(address) = resolve(what.space, address)
        && let Some(place) = machine.buffer_place(address)
    {
        let kind = FaultKind::GlobalRace { buffer: place, race: RaceKind::WriteAfterWrite };
        return Err((lane, kind.into()));
    }
    for l in lanes(mask) {
        let target = resolve(what.space, addresses[l]);
        let me = toucher(warp, l, pc);
        let data = &buffer[l * bytes..(l + 1) * bytes];
        write_one::<CHECKS>(machine, target, data, me, what.strong)
            .map_err(|trouble| (l as u32, trouble))?;
    }
    Ok(())
}

/// A lane whose bytes overlap an earlier lane's with another value.
fn collision(mask: u32, addresses: &[u64; 32], buffer: &[u8], bytes: usize) -> Option<(u32, u64)> {
    let mut last = None;
    let mut rising = true;
    for l in lanes(mask) {
        rising &=
            last.is_none_or(|previous: u64| addresses[l] >= previous.saturating_add(bytes as u64));
        last = Some(addresses[l]);
    }
    if rising {
        return None;
    }
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
            let end = offset.saturating_add(len as u64);
            if end > machine.data.len() as u64 {
                return Err(machine.out_of_bounds(space, offset, bytes, true));
            }
            let range = offset as usize..end as usize;
            if !machine.module.writable[range.clone()].iter().all(|w| *w) {
                return Err(FaultKind::ConstWrite { offset }.into());
            }
            machine.data[range].copy_from_slice(data);
        }
    }
    Ok(())
}
