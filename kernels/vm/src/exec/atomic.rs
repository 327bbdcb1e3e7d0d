//! Atomic read-modify-writes, lane after lane.

use super::access::{acquire, read_one, toucher};
use super::address::{Target, addresses, resolve};
use super::lane::put32;
use super::machine::{Machine, Trouble};
use super::step::Laned;
use super::store::{release, write_one};
use super::warp::{Warp, lanes};
use crate::float::{BF16, F16, Narrow, Rounding, add_to_odd, bits32, flush, result64};
use crate::program::{Atomic, AtomicOp, Class, Reg, Scope};
use crate::shared::Toucher;
use crate::space::SHARED_BASE;
use crate::syntax::Space;
use std::cell::Cell;

#[inline(always)]
pub(crate) fn atomic<const CHECKS: bool>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Atomic,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    let any = |old, a, b, shared| combine(what, old, a, b, shared);
    match (what.width_bytes, what.op) {
        // The commonest by far: worth a loop of its own.
        (4, AtomicOp::AddInt) => {
            let add = |old: u64, a, _, _| old.wrapping_add(a);
            each::<CHECKS, 4>(warp, machine, what, mask, pc, add)
        }
        (4, _) => each::<CHECKS, 4>(warp, machine, what, mask, pc, any),
        (8, _) => each::<CHECKS, 8>(warp, machine, what, mask, pc, any),
        _ => each::<CHECKS, 2>(warp, machine, what, mask, pc, any),
    }
}

#[inline(always)]
fn each<const CHECKS: bool, const BYTES: usize>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Atomic,
    mask: u32,
    pc: u32,
    f: impl Fn(u64, u64, u64, bool) -> u64,
) -> Result<(), Laned> {
    let window = match what.space {
        Space::Shared => Some(0),
        // Addresses elsewhere then lie outside.
        Space::Generic => Some(SHARED_BASE),
        _ => None,
    };
    let mut before = [0; 32];
    let mut left = mask;
    if let Some(base) = window
        && CHECKS
        && BYTES == 4
        && !machine.cluster.is_several()
        && !what.release
        && !machine.shared.flagged(warp.index)
    {
        left = words(warp, machine, what, mask, pc, base, &mut before, &f);
        if left == 0 {
            if let Some(d) = what.d {
                put32(&mut warp.words[usize::from(d.slot)], &before, mask);
            }
            return Ok(());
        }
    }
    let mut before = before.map(u64::from);
    rest::<CHECKS, BYTES>(warp, machine, what, left, pc, &mut before, f)?;
    match what.d {
        Some(Reg { class: Class::Word, slot }) => {
            put32(&mut warp.words[usize::from(slot)], &before.map(|old| old as u32), mask);
        }
        Some(d) => lanes(mask).for_each(|lane| warp.set(d, lane, before[lane])),
        None => {}
    }
    Ok(())
}

/// Updates words of shared memory as long as nothing stands against it; returns the lanes that are
/// left.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn words(
    warp: &Warp,
    machine: &mut Machine<'_>,
    what: &Atomic,
    mask: u32,
    pc: u32,
    window: u64,
    before: &mut [u32; 32],
    f: impl Fn(u64, u64, u64, bool) -> u64,
) -> u32 {
    let [a, b] = [what.a, what.b].map(|reg| &warp.words[usize::from(reg.slot)].0);
    let changed = Cell::new(0);
    let f = |old: u32, l: usize| {
        let new = f(old.into(), a[l].into(), b[l].into(), true) as u32;
        changed.set(changed.get() | (new ^ old));
        new
    };
    // Threads of a block may learn from each other.
    machine.races.meet();
    let first = toucher(warp, 0, pc);
    let offset = (what.offset as u64).wrapping_sub(window);
    let shared = &mut machine.shared;
    let left = match what.base {
        Some(Reg { class: Class::Word, slot }) => {
            let x = &warp.words[usize::from(slot)].0;
            let address = |l: usize| u64::from(x[l]).wrapping_add(offset);
            shared.update_words(address, mask, first, before, f)
        }
        Some(reg) => {
            let x = &warp.longs[usize::from(reg.slot)].0;
            shared.update_words(|l| x[l].wrapping_add(offset), mask, first, before, f)
        }
        None => shared.update_words(|_| offset, mask, first, before, f),
    };
    machine.changes += u64::from(changed.get() != 0);
    left
}

/// Lane after lane, wherever the addresses lead.
#[inline(always)]
fn rest<const CHECKS: bool, const BYTES: usize>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    what: &Atomic,
    mask: u32,
    pc: u32,
    before: &mut [u64; 32],
    f: impl Fn(u64, u64, u64, bool) -> u64,
) -> Result<(), Laned> {
    let addresses = addresses(warp, what.base, what.offset);
    machine.within(what.scope);
    for lane in lanes(mask) {
        let (a, b) = (warp.value(what.a, lane), warp.value(what.b, lane));
        let target = resolve(what.space, addresses[lane]);
        let me = toucher(warp, lane, pc);
        let shared = matches!(target, Target::Shared(_) | Target::Cluster(_));
        if CHECKS {
            acquire(machine, target, me);
        }
        before[lane] = exchange::<CHECKS, BYTES>(machine, target, me, |old| f(old, a, b, shared))
            .map_err(|trouble| (lane as u32, trouble))?;
        if CHECKS {
            release(machine, target, me, what.release);
        }
    }
    machine.within(Scope::Wide);
    Ok(())
}

#[inline(always)]
fn exchange<const CHECKS: bool, const BYTES: usize>(
    machine: &mut Machine<'_>,
    target: Target,
    me: Toucher,
    f: impl Fn(u64) -> u64,
) -> Result<u64, Box<Trouble>> {
    let mut bytes = [0; BYTES];
    read_one::<CHECKS>(machine, target, &mut bytes, me, true)?;
    let mut old = [0; 8];
    old[..BYTES].copy_from_slice(&bytes);
    let old = u64::from_le_bytes(old);
    let new = f(old);
    machine.changes += u64::from(new != old);
    let new = new.to_le_bytes();
    write_one::<CHECKS>(machine, target, &new[..BYTES], me, true)?;
    Ok(old)
}

fn pair(old: u64, a: u64, format: Narrow) -> u64 {
    half(old & 0xffff, a & 0xffff, format)
        | half(old >> 16 & 0xffff, a >> 16 & 0xffff, format) << 16
}

fn half(old: u64, a: u64, format: Narrow) -> u64 {
    let sum = add_to_odd(format.decode(old as u32), format.decode(a as u32));
    u64::from(format.encode(sum, Rounding::Nearest, false))
}

#[inline(always)]
pub(super) fn combine(what: &Atomic, old: u64, a: u64, b: u64, shared: bool) -> u64 {
    let long = what.width_bytes == 8;
    let signed = |x: u64| if long { x as i64 } else { i64::from(x as i32) };
    match what.op {
        AtomicOp::AddInt => old.wrapping_add(a),
        AtomicOp::AddF32 => {
            // Only the addition in global memory flushes subnormals.
            if shared {
                return bits32(f32::from_bits(old as u32) + f32::from_bits(a as u32)).into();
            }
            let x = f32::from_bits(flush(old as u32)) + f32::from_bits(flush(a as u32));
            u64::from(flush(bits32(x)))
        }
        AtomicOp::AddF64 => result64(f64::from_bits(old) + f64::from_bits(a), &[old, a]),
        AtomicOp::AddF16x2 => pair(old, a, F16),
        AtomicOp::AddBf16x2 => pair(old, a, BF16),
        AtomicOp::AddF16 => half(old, a, F16),
        AtomicOp::AddBf16 => half(old, a, BF16),
        AtomicOp::MinS => {
            if signed(a) < signed(old) {
                a
            } else {
                old
            }
        }
        AtomicOp::MaxS => {
            if signed(a) > signed(old) {
                a
            } else {
                old
            }
        }
        AtomicOp::MinU => old.min(a),
        AtomicOp::MaxU => old.max(a),
        AtomicOp::Exchange => a,
        AtomicOp::CompareSwap => {
            if old == a {
                b
            } else {
                old
            }
        }
        AtomicOp::And => old & a,
        AtomicOp::Or => old | a,
        AtomicOp::Xor => old ^ a,
        AtomicOp::Increment => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        AtomicOp::Decrement => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
    }
}
