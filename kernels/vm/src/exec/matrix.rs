//! Matrix loads, matrix products and asynchronous copies of one warp.
//! Products follow the H200: every product and the accumulator are cut toward zero to a common
//! quantum of 2^(E−25), summed exactly and the sum cut to f32.

use super::access::{Target, addresses, read_one, resolve, shared_trouble, toucher};
use super::lane::put32;
use super::machine::{Machine, PendingCopy};
use super::step::Laned;
use super::warp::{Warp, lanes};
use crate::fault::MemorySpace;
use crate::float::{NAN_F32, Rounding, narrow, power_of_two};
use crate::program::{Matrix, Shape};
use crate::shared::Touch;
use crate::syntax::Space;

#[inline(always)]
pub(crate) fn execute<const CHECKS: bool>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Matrix,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    match what {
        Matrix::Load { d, count, transposed, base, offset } => {
            let all = addresses(warp, *base, *offset);
            let mut bytes = [0u8; 512];
            let (rows, _) = bytes.as_chunks_mut::<16>();
            for (l, row) in rows.iter_mut().enumerate().take(usize::from(*count) * 8) {
                let me = toucher(warp, l, pc);
                let target = resolve(Space::Shared, all[l]);
                read_one::<CHECKS>(machine, target, row, me, false)
                    .map_err(|trouble| (l as u32, trouble))?;
            }
            let (tiles, _) = bytes.as_chunks::<128>();
            for (tile, d) in tiles.iter().zip(d).take(usize::from(*count)) {
                let (pairs, _) = tile.as_chunks::<4>();
                let mut t = [0u32; 32];
                if *transposed {
                    for (l, t) in t.iter_mut().enumerate() {
                        let (row, column) = (l / 4, (l % 4) * 2);
                        let element = |column: usize| {
                            let at = column * 16 + row * 2;
                            u32::from(u16::from_le_bytes([tile[at], tile[at + 1]]))
                        };
                        *t = element(column) | element(column + 1) << 16;
                    }
                } else {
                    for (t, pair) in t.iter_mut().zip(pairs) {
                        *t = u32::from_le_bytes(*pair);
                    }
                }
                put32(&mut warp.words[usize::from(*d)], &t, mask);
            }
            Ok(())
        }
        Matrix::Product { shape, a, b, c, d } => {
            product(warp, machine.operands, *shape, *a, *b, *c, *d);
            Ok(())
        }
        Matrix::Copy { bytes, d, d_offset, s, s_offset, size } => {
            let to = addresses(warp, *d, *d_offset);
            let from = addresses(warp, *s, *s_offset);
            for l in lanes(mask) {
                let len = usize::from(*bytes);
                let wanted = size.map_or(len, |slot| warp.word(slot)[l] as usize).min(len);
                match len {
                    16 => copy::<CHECKS, 16>(warp, machine, l, pc, to[l], from[l], wanted)?,
                    8 => copy::<CHECKS, 8>(warp, machine, l, pc, to[l], from[l], wanted)?,
                    _ => copy::<CHECKS, 4>(warp, machine, l, pc, to[l], from[l], wanted)?,
                }
            }
            Ok(())
        }
        Matrix::Commit => {
            for l in lanes(mask) {
                machine.commits[warp.index as usize * 32 + l] += 1;
            }
            Ok(())
        }
        Matrix::Wait { pending } => {
            for l in lanes(mask) {
                let thread = warp.index * 32 + l as u32;
                let open = match pending {
                    None => u32::MAX,
                    Some(pending) => machine.commits[thread as usize].saturating_sub(*pending),
                };
                land::<CHECKS>(warp, machine, thread, open, pc)?;
            }
            Ok(())
        }
    }
}

#[allow(clippy::too_many_arguments)]
fn copy<const CHECKS: bool, const LEN: usize>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    lane: usize,
    pc: u32,
    to: u64,
    from: u64,
    wanted: usize,
) -> Result<(), Laned> {
    let len = LEN;
    let me = toucher(warp, lane, pc);
    let at = lane as u32;
    let mut data = [0u8; 16];
    if from & (len as u64 - 1) != 0 {
        return Err((at, machine.misaligned(MemorySpace::Global, from, len as u32, false)));
    }
    if wanted == len {
        let target = resolve(Space::Global, from);
        read_one::<CHECKS>(machine, target, &mut data[..len], me, false)
            .map_err(|trouble| (at, trouble))?;
    } else {
        for i in 0..wanted {
            let target = resolve(Space::Global, from + i as u64);
            read_one::<CHECKS>(machine, target, &mut data[i..=i], me, false)
                .map_err(|trouble| (at, trouble))?;
        }
    }
    let Target::Shared(offset) = resolve(Space::Shared, to) else {
        return Ok(());
    };
    if offset & (len as u64 - 1) != 0 {
        return Err((at, machine.misaligned(MemorySpace::Shared, offset, len as u32, true)));
    }
    if !machine.shared.in_bounds(offset, LEN) {
        return Err((at, machine.out_of_bounds(MemorySpace::Shared, offset, len as u32, true)));
    }
    if CHECKS {
        let touched = machine.shared.touch(offset as usize, LEN, me, Touch::Write, false);
        touched.map_err(|fault| (at, shared_trouble(machine, fault, offset, len as u32, true)))?;
        machine.shared.set_ready(offset as usize, LEN, false);
    }
    machine.copies[me.thread as usize].push_back(PendingCopy {
        group: machine.commits[me.thread as usize],
        offset: offset as u32,
        bytes: data,
        len: len as u8,
    });
    Ok(())
}

/// Lets the copies of a thread's groups below `open` arrive.
fn land<const CHECKS: bool>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    thread: u32,
    open: u32,
    pc: u32,
) -> Result<(), Laned> {
    // A thread's groups are in order.
    while let Some(&pending) = machine.copies[thread as usize].front()
        && pending.group < open
    {
        machine.copies[thread as usize].pop_front();
        match pending.len {
            16 => arrive::<CHECKS, 16>(warp, machine, thread, pending, pc)?,
            8 => arrive::<CHECKS, 8>(warp, machine, thread, pending, pc)?,
            _ => arrive::<CHECKS, 4>(warp, machine, thread, pending, pc)?,
        }
    }
    Ok(())
}

#[inline(always)]
fn arrive<const CHECKS: bool, const LEN: usize>(
    warp: &Warp,
    machine: &mut Machine<'_>,
    thread: u32,
    pending: PendingCopy,
    pc: u32,
) -> Result<(), Laned> {
    let at = pending.offset as usize;
    if CHECKS {
        let lane = thread % 32;
        let me = toucher(warp, lane as usize, pc);
        let offset = u64::from(pending.offset);
        let touched = machine.shared.touch(at, LEN, me, Touch::Write, false);
        touched
            .map_err(|fault| (lane, shared_trouble(machine, fault, offset, LEN as u32, true)))?;
        machine.shared.set_ready(at, LEN, true);
    }
    machine.shared.data[at..at + LEN].copy_from_slice(&pending.bytes[..LEN]);
    Ok(())
}

/// Marks a zero operand: no real exponent is near it.
const NONE: i16 = -10_000;

/// Factors of a product as each lane needs them: `[half of the rows][k][lane]` of a and
/// `[parity of the column][k][lane]` of b.
pub(crate) struct Factors {
    values: [[[f32; 32]; 16]; 2],
    exponents: [[[i16; 32]; 16]; 2],
    /// Lanes that hold a factor the fast way cannot take, by half of the rows.
    odd: [u32; 2],
    /// The registers these come from: neighbouring products share operands.
    source: [[u32; 32]; 4],
    shape: Option<Shape>,
}

/// Working space of products: one left operand and a few right ones.
pub(crate) type Operands = [Factors; 1 + RIGHT_KEPT];
const RIGHT_KEPT: usize = 4;

impl Default for Factors {
    fn default() -> Factors {
        Factors {
            values: [[[0.0; 32]; 16]; 2],
            exponents: [[[0; 32]; 16]; 2],
            odd: [0; 2],
            source: [[0; 32]; 4],
            shape: None,
        }
    }
}

impl Factors {
    /// Notes where the factors come from; true when they are there already.
    #[inline(always)]
    fn hold(&mut self, shape: Shape, warp: &Warp, registers: &[u16]) -> bool {
        let mut same = self.shape == Some(shape);
        for (source, slot) in self.source.iter_mut().zip(registers) {
            let words = &warp.words[usize::from(*slot)].0;
            let mut different = 0;
            for l in 0..32 {
                different |= source[l] ^ words[l];
            }
            if different != 0 {
                *source = *words;
                same = false;
            }
        }
        self.shape = Some(shape);
        same
    }

    /// Puts the two halves of a register of a in place: the four lanes of a row share its
    /// factors. Returns the lanes that hold a factor the fast way cannot take.
    #[inline(always)]
    fn put_left(&mut self, brain: bool, words: &[u32; 32], half: usize, k: usize) -> u32 {
        let mut odd = 0;
        for high in 0..2 {
            let (values, exponents) = decode_half(brain, words, high == 1);
            odd |= unusual(&exponents, FACTOR_LIMIT);
            for j in 0..4 {
                let at = k + 2 * j + high;
                let (to, _) = self.values[half][at].as_chunks_mut::<4>();
                for (group, to) in to.iter_mut().enumerate() {
                    *to = [values[4 * group + j]; 4];
                }
                let (to, _) = self.exponents[half][at].as_chunks_mut::<4>();
                for (group, to) in to.iter_mut().enumerate() {
                    *to = [exponents[4 * group + j]; 4];
                }
            }
        }
        odd
    }

    /// The same for b: lanes equal modulo four share a column of either parity.
    #[inline(always)]
    fn put_right(&mut self, brain: bool, words: &[u32; 32], k: usize) -> u32 {
        let mut odd = 0;
        for high in 0..2 {
            let (values, exponents) = decode_half(brain, words, high == 1);
            odd |= unusual(&exponents, FACTOR_LIMIT);
            for parity in 0..2 {
                for j in 0..4 {
                    let at = k + 2 * j + high;
                    let from = 4 * parity + j;
                    let four =
                        [values[from], values[from + 8], values[from + 16], values[from + 24]];
                    let (to, _) = self.values[parity][at].as_chunks_mut::<4>();
                    for to in to {
                        *to = four;
                    }
                    let four = [
                        exponents[from],
                        exponents[from + 8],
                        exponents[from + 16],
                        exponents[from + 24],
                    ];
                    let (to, _) = self.exponents[parity][at].as_chunks_mut::<4>();
                    for to in to {
                        *to = four;
                    }
                }
            }
        }
        odd
    }
}

/// One half of every lane's register, and the exponents.
#[inline(always)]
fn decode_half(brain: bool, words: &[u32; 32], high: bool) -> ([f32; 32], [i16; 32]) {
    let mut values = [0f32; 32];
    let mut exponents = [0i16; 32];
    let shift = if high { 16 } else { 0 };
    if brain {
        for l in 0..32 {
            values[l] = f32::from_bits((words[l] >> shift) << 16);
        }
    } else {
        for l in 0..32 {
            values[l] = f32::from_bits(crate::float::f16_to_f32(words[l] >> shift & 0xffff));
        }
    }
    for l in 0..32 {
        exponents[l] = exponent(values[l]) as i16;
    }
    (values, exponents)
}

/// The lanes whose value the fast way cannot take.
#[inline(always)]
fn unusual(exponents: &[i16; 32], limit: i16) -> u32 {
    // The sign bit tells; what stands far below every real exponent is a zero.
    let mut beyond = 0;
    for e in exponents {
        beyond |= (limit - e.abs()) & !((*e - NONE / 2) >> 15);
    }
    if beyond >= 0 {
        return 0;
    }
    exponents.iter().rev().fold(0, |all, e| all << 1 | u32::from(!usual(*e, limit)))
}

/// Largest exponent of a factor whose products and their scaling stay normal in f32.
const FACTOR_LIMIT: i16 = 50;
const START_LIMIT: i16 = 100;

/// Zero, or within the limit.
#[inline(always)]
fn usual(exponent: i16, limit: i16) -> bool {
    exponent == NONE || (exponent >= -limit && exponent <= limit)
}

/// d = a·b + c over the whole warp. The lanes of one register of d are computed together.
#[inline(always)]
fn product(
    warp: &mut Warp,
    operands: &mut Operands,
    shape: Shape,
    a: [u16; 4],
    b: [u16; 2],
    c: [u16; 4],
    d: [u16; 4],
) {
    let (a_count, b_count) = shape.registers();
    let depth = b_count * 8;
    let brain = matches!(shape, Shape::Bf16K16 | Shape::Bf16K8);
    let [left, rights @ ..] = operands;
    if !left.hold(shape, warp, &a[..a_count]) {
        left.odd = [0; 2];
        for i in 0..a_count {
            let words = &warp.words[usize::from(a[i])].0;
            left.odd[i & 1] |= left.put_left(brain, words, i & 1, 8 * (i >> 1));
        }
    }
    let right = &mut rights[usize::from(b[0] >> 1) % RIGHT_KEPT];
    if !right.hold(shape, warp, &b[..b_count]) {
        right.odd = [0; 2];
        for i in 0..b_count {
            let words = &warp.words[usize::from(b[i])].0;
            right.odd[0] |= right.put_right(brain, words, 8 * i);
        }
    }
    let (odd_left, odd_right) = (left.odd, right.odd[0]);
    let mut out = [[0u32; 32]; 4];
    for r in 0..4 {
        let (half, parity) = (r >> 1, r & 1);
        let mut start = [0f32; 32];
        for (start, bits) in start.iter_mut().zip(&warp.words[usize::from(c[r])].0) {
            *start = f32::from_bits(*bits);
        }
        let mut highest = [NONE; 32];
        for l in 0..32 {
            highest[l] = exponent(start[l]) as i16;
        }
        let mut odd = unusual(&highest, START_LIMIT);
        for k in 0..depth {
            let (x, y) = (&left.exponents[half][k], &right.exponents[parity][k]);
            for l in 0..32 {
                highest[l] = highest[l].max(x[l] + y[l]);
            }
        }
        sums(&left.values[half], &right.values[parity], &start, &highest, depth, &mut out[r]);
        if odd_left[half] | odd_right != 0 {
            for l in 0..32 {
                let row = odd_left[half] >> (l & !3) & 0xf;
                let column = odd_right >> ((l & 3) * 8 + 4 * parity) & 0xf;
                odd |= u32::from(row | column != 0) << l;
            }
        }
        for l in lanes(odd) {
            let (mut x, mut y) = ([0f32; 16], [0f32; 16]);
            for k in 0..depth {
                x[k] = left.values[half][k][l];
                y[k] = right.values[parity][k][l];
            }
            out[r][l] = dot(&x[..depth], &y[..depth], start[l]);
        }
    }
    for (slot, values) in d.iter().zip(&out) {
        warp.words[usize::from(*slot)].0 = *values;
    }
}

/// The sums of one register of d, for factors and starts within their limits.
#[inline(always)]
fn sums(
    x: &[[f32; 32]; 16],
    y: &[[f32; 32]; 16],
    start: &[f32; 32],
    highest: &[i16; 32],
    depth: usize,
    out: &mut [u32; 32],
) {
    let mut scale = [0f32; 32];
    for l in 0..32 {
        let e = (25 - i32::from(highest[l])).clamp(-126, 127);
        scale[l] = f32::from_bits(((e + 127) as u32) << 23);
    }
    // Sums of seventeen integers below 2^27, as multiples of 2^12 and rests of at most 2^11: both
    // are exact in f32.
    let (mut high, mut low) = ([0f32; 32], [0f32; 32]);
    for l in 0..32 {
        (high[l], low[l]) = parts(start[l] * scale[l]);
    }
    for (x, y) in x.iter().zip(y).take(depth) {
        for l in 0..32 {
            let (h, rest) = parts(x[l] * y[l] * scale[l]);
            high[l] += h;
            low[l] += rest;
        }
    }
    for l in 0..32 {
        let total = f64::from(high[l]) + f64::from(low[l]);
        // 24 significant bits, the rest cut toward zero; the limits keep the result normal.
        let cut = f64::from_bits(total.to_bits() & !0x1fff_ffff);
        let e = i32::from(highest[l].max(-900)) - 25;
        let quantum = f64::from_bits(((e + 1023) as u64) << 52);
        out[l] = ((cut * quantum) as f32).to_bits();
    }
}

/// Cuts toward zero to an integer and splits that at a multiple of 2^12.
#[inline(always)]
fn parts(x: f32) -> (f32, f32) {
    // Adding this leaves no bit below 2^12.
    const COARSE: f32 = 1.5 * (1u64 << 35) as f32;
    let whole = x.trunc();
    let high = (whole + COARSE) - COARSE;
    (high, whole - high)
}

/// The exponent of a finite value; [`NONE`] for zero.
#[inline(always)]
fn exponent(x: f32) -> i32 {
    let e = (x.to_bits() >> 23 & 0xff) as i32;
    if x == 0.0 { i32::from(NONE) } else { e.max(1) - 127 }
}

/// The sum in quanta of 2^(highest − 25) as f32, cut toward zero.
fn finish(sum: f64, highest: i32) -> u32 {
    if sum == 0.0 {
        return 0;
    }
    let exact = sum * power_of_two((highest - 25).clamp(-1000, 1000));
    narrow(exact, Rounding::Zero).to_bits()
}

/// The same for one element with any operands.
fn dot(x: &[f32], y: &[f32], start: f32) -> u32 {
    let mut highest = exponent(start);
    let mut plain = 0.0f64;
    let mut finite = start.is_finite();
    for (a, b) in x.iter().zip(y) {
        finite &= a.is_finite() && b.is_finite();
        plain += f64::from(*a) * f64::from(*b);
        highest = highest.max(exponent(*a) + exponent(*b));
    }
    if !finite {
        plain += f64::from(start);
        return if plain.is_nan() { NAN_F32 } else { (plain as f32).to_bits() };
    }
    if highest < -1000 {
        return 0;
    }
    let scale = power_of_two(25 - highest);
    let mut sum = (f64::from(start) * scale).trunc();
    for (a, b) in x.iter().zip(y) {
        sum += (f64::from(*a) * f64::from(*b) * scale).trunc();
    }
    finish(sum, highest)
}

#[cfg(test)]
mod tests {
    use super::super::warp::Words;
    use super::*;

    /// Words whose halves are small, huge, tiny, zero, infinite or no numbers.
    fn operand(seed: &mut u64, wild: bool, brain: bool) -> Words {
        Words(std::array::from_fn(|_| {
            *seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let word = (*seed >> 32) as u32;
            let near = if brain { 0x3f00 } else { 0x3800 };
            let calm = word & 0x83ff_83ff | near << 16 | near;
            match word >> 10 & 7 {
                0 if wild => word,
                1 => calm & 0xffff,
                _ => calm,
            }
        }))
    }

    #[test]
    fn the_fast_way_agrees_with_one_element_at_a_time() {
        let mut seed = 3;
        let mut operands: Operands = Default::default();
        for (round, shape) in
            (0..200).zip([Shape::Bf16K16, Shape::F16K16, Shape::Bf16K8, Shape::F16K8].repeat(50))
        {
            let brain = matches!(shape, Shape::Bf16K16 | Shape::Bf16K8);
            let wild = round % 3 == 2;
            let mut warp = Warp::default();
            warp.words.extend((0..6).map(|_| operand(&mut seed, wild, brain)));
            warp.words.extend((0..4).map(|_| operand(&mut seed, wild, true)));
            warp.words.extend([Words([0; 32]); 4]);
            // Twice: the second time the factors are kept.
            for _ in 0..2 {
                product(
                    &mut warp,
                    &mut operands,
                    shape,
                    [0, 1, 2, 3],
                    [4, 5],
                    [6, 7, 8, 9],
                    [10, 11, 12, 13],
                );
                let half = |slot: usize, lane: usize, high: usize| {
                    let code = warp.words[slot].0[lane] >> (16 * high) & 0xffff;
                    f32::from_bits(if brain { code << 16 } else { crate::float::f16_to_f32(code) })
                };
                let depth = shape.registers().1 * 8;
                for (row, column) in (0..16).flat_map(|r| (0..8).map(move |c| (r, c))) {
                    let (mut x, mut y) = ([0f32; 16], [0f32; 16]);
                    for k in 0..depth {
                        let from = (k % 8) / 2;
                        x[k] = half(row / 8 + 2 * (k / 8), row % 8 * 4 + from, k % 2);
                        y[k] = half(4 + k / 8, column * 4 + from, k % 2);
                    }
                    let (r, lane) = (row / 8 * 2 + column % 2, row % 8 * 4 + column / 2);
                    let start = f32::from_bits(warp.words[6 + r].0[lane]);
                    let want = dot(&x[..depth], &y[..depth], start);
                    assert_eq!(warp.words[10 + r].0[lane], want, "{shape:?} {row} {column}");
                }
            }
        }
    }
}
