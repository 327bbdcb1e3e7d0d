//! Atomic read-modify-writes, lane after lane.

use super::access::{Target, addresses, read_one, resolve, toucher};
use super::machine::{Machine, Trouble};
use super::step::Laned;
use super::store::write_one;
use super::warp::{Warp, lanes};
use crate::float::{BF16, F16, Narrow, Rounding, add_to_odd, bits32, bits64, flush};
use crate::program::{Atomic, AtomicOp};
use crate::shared::Toucher;

pub(crate) fn atomic<const CHECKS: bool>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Atomic,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    let addresses = addresses(warp, what.base, what.offset);
    let width = usize::from(what.width_bytes);
    for lane in lanes(mask) {
        let a = warp.value(what.a, lane);
        let b = warp.value(what.b, lane);
        let target = resolve(what.space, addresses[lane]);
        let me = toucher(warp, lane, pc);
        let old = exchange::<CHECKS>(machine, target, width, me, |old| combine(what, old, a, b))
            .map_err(|trouble| (lane as u32, trouble))?;
        if let Some(d) = what.d {
            warp.set(d, lane, old);
        }
    }
    Ok(())
}

fn exchange<const CHECKS: bool>(
    machine: &mut Machine<'_>,
    target: Target,
    width: usize,
    me: Toucher,
    f: impl Fn(u64) -> u64,
) -> Result<u64, Box<Trouble>> {
    let mut bytes = [0; 8];
    read_one::<CHECKS>(machine, target, &mut bytes[..width], me, true)?;
    let old = u64::from_le_bytes(bytes);
    let new = f(old).to_le_bytes();
    write_one::<CHECKS>(machine, target, &new[..width], me, true)?;
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

fn combine(what: &Atomic, old: u64, a: u64, b: u64) -> u64 {
    let long = what.width_bytes == 8;
    let signed = |x: u64| if long { x as i64 } else { i64::from(x as i32) };
    match what.op {
        AtomicOp::AddInt => old.wrapping_add(a),
        AtomicOp::AddF32 => {
            // The hardware's float addition in memory flushes subnormals.
            let x = f32::from_bits(flush(old as u32)) + f32::from_bits(flush(a as u32));
            u64::from(flush(bits32(x)))
        }
        AtomicOp::AddF64 => bits64(f64::from_bits(old) + f64::from_bits(a)),
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
