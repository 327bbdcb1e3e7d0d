//! Accesses wider than one register: tiles of `wmma`, whose fragments here are those of `mma`, so
//! that their products are `mma`'s; exchanges of sixteen bytes; vectors' alignment.

use super::access::{acquire, read_one, toucher};
use super::address::{addresses, resolve};
use super::machine::Machine;
use super::rare::Turn;
use super::step::Laned;
use super::store::{release, write_one};
use super::warp::{FULL, Warp, lanes};
use crate::fault::MemorySpace;
use crate::program::Scope;
use crate::rare::{At, Exchange, Part, Tile};

pub(super) fn aligned(
    warp: &Warp,
    machine: &Machine<'_>,
    at: At,
    bytes: u32,
    mask: u32,
) -> Result<Turn, Laned> {
    let all = addresses(warp, at.base, at.offset);
    let crooked = lanes(mask).find(|l| !all[*l].is_multiple_of(bytes.into()));
    match crooked {
        Some(l) => Err((l as u32, machine.misaligned(MemorySpace::Global, all[l], bytes, true))),
        None => Ok(Turn::Next),
    }
}

pub(super) fn exchange(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Exchange,
    mask: u32,
    pc: u32,
) -> Result<Turn, Laned> {
    let all = addresses(warp, what.at.base, what.at.offset);
    let changes = machine.changes;
    machine.within(what.scope);
    for lane in lanes(mask) {
        let me = toucher(warp, lane, pc);
        let target = resolve(what.at.space, all[lane]);
        acquire(machine, target, me);
        let both = |slots: [u16; 2]| {
            let [low, high] = slots.map(|slot| u128::from(warp.longs[usize::from(slot)].0[lane]));
            low | high << 64
        };
        let (new, expected) = (both(what.new), what.expected.map(both));
        let mut bytes = [0; 16];
        let result = if machine.checks {
            read_one::<true>(machine, target, &mut bytes, me, true)
        } else {
            read_one::<false>(machine, target, &mut bytes, me, true)
        };
        result.map_err(|trouble| (lane as u32, trouble))?;
        let old = u128::from_le_bytes(bytes);
        let next = if expected.is_none_or(|e| e == old) { new } else { old };
        machine.changes += u64::from(next != old);
        let next = next.to_le_bytes();
        let result = if machine.checks {
            write_one::<true>(machine, target, &next, me, true)
        } else {
            write_one::<false>(machine, target, &next, me, true)
        };
        result.map_err(|trouble| (lane as u32, trouble))?;
        release(machine, target, me, what.release);
        if let Some([low, high]) = what.old {
            warp.longs[usize::from(low)].0[lane] = old as u64;
            warp.longs[usize::from(high)].0[lane] = (old >> 64) as u64;
        }
    }
    machine.within(Scope::Wide);
    machine.polled = true;
    if machine.changes == changes {
        let address = all[mask.trailing_zeros() as usize & 31];
        return Ok(Turn::Poll(what.at.space, address));
    }
    Ok(Turn::Next)
}

/// Line and place in it of element `i` of a register: of a factor, row or column and k; of sums,
/// row and column.
fn place(
    part: Part,
    element_bytes: usize,
    register: usize,
    lane: usize,
    i: usize,
) -> (usize, usize) {
    let each = 4 / element_bytes;
    match part {
        Part::Factor { lines, k, left } => {
            let (lines, k) = (usize::from(lines), usize::from(k));
            // A register of each lane holds eight lines by four times `each` of k.
            let along = k / (4 * each);
            let register = register % (lines / 8 * along);
            let (group, within, step) = if left {
                let (band, rest) = (register / (2 * along), register % (2 * along));
                (2 * band + rest % 2, rest / 2, 4 * each)
            } else {
                (register / along, register % along, 4 * each)
            };
            (8 * group + lane / 4, within * step + lane % 4 * each + i)
        }
        Part::Sum { columns, .. } => {
            let halves = if element_bytes == 2 { 2 } else { 4 };
            let (small, within) = (register / halves, register % halves);
            let tiles = usize::from(columns / 8);
            let (band, tile) = (small / tiles, small % tiles);
            let (low, column) =
                if element_bytes == 2 { (within, i) } else { (within / 2, within % 2) };
            (16 * band + 8 * low + lane / 4, 8 * tile + lane % 4 * 2 + column)
        }
    }
}

pub(super) fn tile(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Tile,
    pc: u32,
) -> Result<Turn, Laned> {
    let all = addresses(warp, what.at.base, what.at.offset);
    let strides = what.stride.map(|slot| *warp.word(slot));
    let bytes = usize::from(what.element_bytes);
    machine.changes += u64::from(what.store);
    let least = match (what.part, what.across) {
        (Part::Factor { k, .. }, false) => k,
        (Part::Factor { lines, .. }, true) => lines,
        (Part::Sum { columns, .. }, false) => columns,
        (Part::Sum { rows, .. }, true) => rows,
    };
    for register in 0..usize::from(what.count) {
        let mut words = *warp.word(what.regs[register]);
        for lane in lanes(FULL) {
            let stride = strides.map_or(u64::from(least), |strides| strides[lane].into());
            let me = toucher(warp, lane, pc);
            for i in 0..4 / bytes {
                let (line, along) = place(what.part, bytes, register, lane, i);
                let (major, minor) = if what.across { (along, line) } else { (line, along) };
                let index = (major as u64).wrapping_mul(stride).wrapping_add(minor as u64);
                let address = all[lane].wrapping_add(index.wrapping_mul(bytes as u64));
                let target = resolve(what.at.space, address);
                let shift = 8 * bytes * i;
                let mask = u32::MAX >> (32 - 8 * bytes);
                let mut buffer = [0u8; 4];
                let buffer = &mut buffer[..bytes];
                let done = if what.store {
                    let value = (words[lane] >> shift & mask).to_le_bytes();
                    buffer.copy_from_slice(&value[..bytes]);
                    match machine.checks {
                        true => write_one::<true>(machine, target, buffer, me, false),
                        false => write_one::<false>(machine, target, buffer, me, false),
                    }
                } else {
                    match machine.checks {
                        true => read_one::<true>(machine, target, buffer, me, false),
                        false => read_one::<false>(machine, target, buffer, me, false),
                    }
                };
                done.map_err(|trouble| (lane as u32, trouble))?;
                if !what.store {
                    let value = buffer.iter().rev().fold(0, |all, b| all << 8 | u32::from(*b));
                    words[lane] = words[lane] & !(mask << shift) | value << shift;
                }
            }
        }
        if !what.store {
            warp.words[usize::from(what.regs[register])].0 = words;
        }
    }
    Ok(Turn::Next)
}
