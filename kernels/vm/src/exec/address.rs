//! Where an address leads, and how the addresses of a warp lie: the same, side by side, or apart.

use super::lane::{ones32, ones64};
use super::warp::{FULL, Warp};
use crate::fault::MemorySpace;
use crate::program::{Access, Class, Reg};
use crate::space::{DATA_BASE, LOCAL_BASE, OWN_BYTES, PARAM_BASE, SHARED_BASE, WINDOW_BYTES};
use crate::syntax::Space;

pub(crate) const GLOBAL_START: u64 = 1 << 40;

/// Where an address leads: the space and the offset (or address) in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Global(u64),
    Shared(u64),
    /// Of another block of the cluster, as the address names it.
    Cluster(u64),
    Local(u64),
    Param(u64),
    /// The module's own variables.
    Data(u64),
}

#[inline(always)]
pub(crate) fn resolve(space: Space, address: u64) -> Target {
    match space {
        Space::Shared => Target::Shared(address),
        Space::Cluster if address < OWN_BYTES => Target::Shared(address),
        Space::Cluster => Target::Cluster(address),
        Space::Local => Target::Local(address),
        Space::Param => Target::Param(address),
        Space::Const => Target::Data(address.wrapping_sub(DATA_BASE)),
        _ => {
            let window = |base: u64| address.wrapping_sub(base) < WINDOW_BYTES;
            if window(DATA_BASE) {
                Target::Data(address - DATA_BASE)
            } else if space == Space::Generic && window(SHARED_BASE) {
                resolve(Space::Cluster, address - SHARED_BASE)
            } else if space == Space::Generic && window(LOCAL_BASE) {
                Target::Local(address - LOCAL_BASE)
            } else if space == Space::Generic && window(PARAM_BASE) {
                Target::Param(address - PARAM_BASE)
            } else {
                Target::Global(address)
            }
        }
    }
}

pub(crate) fn space_of(target: Target) -> (MemorySpace, u64) {
    match target {
        Target::Global(at) => (MemorySpace::Global, at),
        Target::Shared(at) => (MemorySpace::Shared, at),
        Target::Cluster(at) => (MemorySpace::Cluster, at % OWN_BYTES),
        Target::Local(at) => (MemorySpace::Local, at),
        Target::Param(at) => (MemorySpace::Param, at),
        Target::Data(at) => (MemorySpace::Const, at),
    }
}

#[inline(always)]
pub(crate) fn addresses(warp: &Warp, base: Option<Reg>, offset: i64) -> [u64; 32] {
    let mut out = [offset as u64; 32];
    match base {
        Some(reg) if reg.class == Class::Long => {
            let x = &warp.longs[usize::from(reg.slot)].0;
            for l in 0..32 {
                out[l] = x[l].wrapping_add(offset as u64);
            }
        }
        Some(reg) => {
            let x = &warp.words[usize::from(reg.slot)].0;
            for l in 0..32 {
                out[l] = u64::from(x[l]).wrapping_add(offset as u64);
            }
        }
        None => {}
    }
    out
}

/// How the active lanes' addresses lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Uniform,
    /// Lanes 0 to n−1, one after the other.
    Run(usize),
    Scattered,
}

/// What is added to the base, the same for all lanes.
#[inline(always)]
pub(crate) fn offset(warp: &Warp, what: &Access) -> u64 {
    let plus = what.plus.map_or(0, |slot| warp.longs[usize::from(slot)].0[0]);
    plus.wrapping_add(what.offset as u64)
}

/// The first active lane's address, and how those of all active lanes lie.
#[inline(always)]
pub(crate) fn place(warp: &Warp, what: &Access, mask: u32, bytes: u64) -> (u64, Shape) {
    let active = mask.trailing_zeros() as usize & 31;
    // The second lane says which of the two shapes is left to look for.
    let next = (mask & mask.wrapping_sub(1)).trailing_zeros() as usize;
    let shift = bytes.trailing_zeros();
    let offset = offset(warp, what);
    match what.base {
        Some(reg) if reg.class == Class::Long => {
            let x = &warp.longs[usize::from(reg.slot)].0;
            let first = x[active];
            let shape = if next > 31 || x[next] == first {
                uniform(!differs64(x, mask, |_| first))
            } else {
                run(mask, !differs64(x, mask, |l| first.wrapping_add((l as u64) << shift)))
            };
            (first.wrapping_add(offset), shape)
        }
        Some(reg) => {
            let x = &warp.words[usize::from(reg.slot)].0;
            let first = x[active];
            let shape = if next > 31 || x[next] == first {
                uniform(!differs32(x, mask, |_| first))
            } else {
                let all = !differs32(x, mask, |l| first.wrapping_add((l as u32) << shift));
                // A run must not wrap around at 2^32.
                run(mask, all && first < 1 << 31)
            };
            (u64::from(first).wrapping_add(offset), shape)
        }
        None => (offset, Shape::Uniform),
    }
}

/// Whether an active lane holds something else than it is expected to.
#[inline(always)]
fn differs64(x: &[u64; 32], mask: u32, expected: impl Fn(usize) -> u64) -> bool {
    let mut different = 0;
    if mask == FULL {
        for l in 0..32 {
            different |= x[l] ^ expected(l);
        }
    } else {
        for l in 0..32 {
            different |= (x[l] ^ expected(l)) & ones64(mask, l);
        }
    }
    different != 0
}

#[inline(always)]
fn differs32(x: &[u32; 32], mask: u32, expected: impl Fn(usize) -> u32) -> bool {
    let mut different = 0;
    for l in 0..32 {
        different |= (x[l] ^ expected(l)) & ones32(mask, l);
    }
    different != 0
}

#[inline(always)]
fn uniform(all: bool) -> Shape {
    if all { Shape::Uniform } else { Shape::Scattered }
}

#[inline(always)]
fn run(mask: u32, all: bool) -> Shape {
    let n = mask.trailing_ones();
    if all && u64::from(mask) >> n == 0 { Shape::Run(n as usize) } else { Shape::Scattered }
}
