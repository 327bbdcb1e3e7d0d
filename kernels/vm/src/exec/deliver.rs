//! The last step of a load: bytes into registers, sign- or zero-extended.

use super::address::Shape;
use super::lane::{put32, put64};
use super::warp::{Warp, lanes};
use crate::program::{Access, Class};

/// Spreads loaded bytes that lie together over the destination registers.
#[inline(always)]
pub(super) fn deliver<const BYTES: usize>(
    warp: &mut Warp,
    what: &Access,
    mask: u32,
    shape: Shape,
    data: &[u8],
) {
    let width = usize::from(what.width_bytes);
    if shape == Shape::Uniform {
        return deliver_same::<BYTES>(warp, what, mask, data);
    }
    let plain = what.count == 1 && !(what.signed && width < 4);
    let slot = usize::from(what.regs[0].slot);
    match (BYTES, width, what.regs[0].class) {
        (4, 4, Class::Word) => {
            let mut t = [0; 32];
            for (t, chunk) in t.iter_mut().zip(data.as_chunks::<4>().0) {
                *t = u32::from_le_bytes(*chunk);
            }
            return put32(&mut warp.words[slot], &t, mask);
        }
        (2, 2, Class::Word) if plain => {
            let mut t = [0; 32];
            for (t, chunk) in t.iter_mut().zip(data.as_chunks::<2>().0) {
                *t = u32::from(u16::from_le_bytes(*chunk));
            }
            return put32(&mut warp.words[slot], &t, mask);
        }
        (8, 8, Class::Long) => {
            let mut t = [0; 32];
            for (t, chunk) in t.iter_mut().zip(data.as_chunks::<8>().0) {
                *t = u64::from_le_bytes(*chunk);
            }
            return put64(&mut warp.longs[slot], &t, mask);
        }
        (8, 4, _) => return deliver_words::<2, 8>(warp, what, mask, data),
        (16, 4, _) => return deliver_words::<4, 16>(warp, what, mask, data),
        _ => {}
    }
    deliver_each(warp, what, mask, |l| &data[l * BYTES..]);
}

/// The same element for every lane.
#[inline(always)]
fn deliver_same<const BYTES: usize>(warp: &mut Warp, what: &Access, mask: u32, data: &[u8]) {
    let width = usize::from(what.width_bytes);
    if BYTES == 4 && width == 4 && what.regs[0].class == Class::Word {
        let value = u32_at(data, 0);
        return put32(&mut warp.words[usize::from(what.regs[0].slot)], &[value; 32], mask);
    }
    for i in 0..usize::from(what.count) {
        let value = extend(data, i * width, what);
        let slot = usize::from(what.regs[i].slot);
        if what.regs[i].class == Class::Word {
            put32(&mut warp.words[slot], &[value as u32; 32], mask);
        } else {
            put64(&mut warp.longs[slot], &[value; 32], mask);
        }
    }
}

/// The words of a vector load.
#[inline(always)]
fn deliver_words<const COUNT: usize, const BYTES: usize>(
    warp: &mut Warp,
    what: &Access,
    mask: u32,
    data: &[u8],
) {
    let mut t = [[0u32; 32]; COUNT];
    for (l, chunk) in data.as_chunks::<BYTES>().0.iter().enumerate().take(32) {
        for i in 0..COUNT {
            t[i][l] = u32_at(chunk, i * 4);
        }
    }
    for (reg, t) in what.regs.iter().zip(&t) {
        match reg.class {
            Class::Word => put32(&mut warp.words[usize::from(reg.slot)], t, mask),
            _ => {
                for l in lanes(mask) {
                    let x = t[l];
                    warp.set(*reg, l, if what.signed { x as i32 as u64 } else { u64::from(x) });
                }
            }
        }
    }
}

/// Spreads loaded bytes over the destination registers; `piece` gives each lane's bytes.
#[inline(always)]
fn deliver_each<'b>(warp: &mut Warp, what: &Access, mask: u32, piece: impl Fn(usize) -> &'b [u8]) {
    let width = usize::from(what.width_bytes);
    for i in 0..usize::from(what.count) {
        let reg = what.regs[i];
        for l in lanes(mask) {
            warp.set(reg, l, extend(piece(l), i * width, what));
        }
    }
}

#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes)
}

#[inline(always)]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
}

/// One element as its register holds it.
fn extend(bytes: &[u8], at: usize, what: &Access) -> u64 {
    let value = match (what.width_bytes, what.signed) {
        (1, false) => u64::from(bytes[at]),
        (1, true) => bytes[at] as i8 as u64,
        (2, false) => u64::from(u16_at(bytes, at)),
        (2, true) => u16_at(bytes, at) as i16 as u64,
        (4, false) => u64::from(u32_at(bytes, at)),
        (4, true) => u32_at(bytes, at) as i32 as u64,
        _ => u64_at(bytes, at),
    };
    if what.half { value & 0xffff } else { value }
}
