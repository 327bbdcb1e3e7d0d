//! The hot loop: one warp's instructions until it blocks, ends or uses up its slice.
//! Inlined into each build of `dispatch`, so everything here that touches lanes is inlined too.

use super::machine::{Machine, Trouble};
use super::warp::{FULL, Fragment, Longs, State, Warp, Words, lanes};
use super::{access, alu, atomic, collective, matrix, store};
use crate::fault::FaultKind;
use crate::program::{Matrix, Op, Pure};

/// Instructions a warp runs before another gets its turn.
pub(crate) const SLICE: u64 = 1 << 16;
/// Backward branches of divergent lanes before the others are let past.
const PATIENCE: u32 = 1 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Exited,
    Blocked,
    Slice,
}

#[derive(Debug)]
pub(crate) enum Raise {
    Trouble(Box<Trouble>),
    Unsupported(u16),
}

/// What stopped a warp, and where.
#[derive(Debug)]
pub(crate) struct Raised {
    pub pc: u32,
    pub lane: u32,
    pub what: Raise,
}

fn raise(pc: u32, mask: u32, what: Raise) -> Box<Raised> {
    Box::new(Raised { pc, lane: mask.trailing_zeros() & 31, what })
}

/// A trouble with the lane that has it.
pub(crate) type Laned = (u32, Box<Trouble>);

#[inline(always)]
fn laned(pc: u32) -> impl Fn(Laned) -> Box<Raised> {
    move |(lane, trouble)| Box::new(Raised { pc, lane, what: Raise::Trouble(trouble) })
}

#[inline(always)]
fn put32(d: &mut Words, t: &[u32; 32], mask: u32) {
    if mask == FULL {
        d.0 = *t;
    } else {
        for l in 0..32 {
            d.0[l] = if mask >> l & 1 != 0 { t[l] } else { d.0[l] };
        }
    }
}

#[inline(always)]
fn put64(d: &mut Longs, t: &[u64; 32], mask: u32) {
    if mask == FULL {
        d.0 = *t;
    } else {
        for l in 0..32 {
            d.0[l] = if mask >> l & 1 != 0 { t[l] } else { d.0[l] };
        }
    }
}

#[inline(always)]
pub(crate) fn map1(warp: &mut Warp, d: u16, a: u16, mask: u32, f: impl Fn(u32) -> u32) {
    let x = &warp.words[usize::from(a)].0;
    let mut t = [0; 32];
    for l in 0..32 {
        t[l] = f(x[l]);
    }
    put32(&mut warp.words[usize::from(d)], &t, mask);
}

#[inline(always)]
pub(crate) fn map2(
    warp: &mut Warp,
    d: u16,
    a: u16,
    b: u16,
    mask: u32,
    f: impl Fn(u32, u32) -> u32,
) {
    let x = &warp.words[usize::from(a)].0;
    let y = &warp.words[usize::from(b)].0;
    let mut t = [0; 32];
    for l in 0..32 {
        t[l] = f(x[l], y[l]);
    }
    put32(&mut warp.words[usize::from(d)], &t, mask);
}

#[inline(always)]
pub(crate) fn map3(
    warp: &mut Warp,
    d: u16,
    [a, b, c]: [u16; 3],
    mask: u32,
    f: impl Fn(u32, u32, u32) -> u32,
) {
    let x = &warp.words[usize::from(a)].0;
    let y = &warp.words[usize::from(b)].0;
    let z = &warp.words[usize::from(c)].0;
    let mut t = [0; 32];
    for l in 0..32 {
        t[l] = f(x[l], y[l], z[l]);
    }
    put32(&mut warp.words[usize::from(d)], &t, mask);
}

#[inline(always)]
pub(crate) fn long2(
    warp: &mut Warp,
    d: u16,
    a: u16,
    b: u16,
    mask: u32,
    f: impl Fn(u64, u64) -> u64,
) {
    let x = &warp.longs[usize::from(a)].0;
    let y = &warp.longs[usize::from(b)].0;
    let mut t = [0; 32];
    for l in 0..32 {
        t[l] = f(x[l], y[l]);
    }
    put64(&mut warp.longs[usize::from(d)], &t, mask);
}

/// A 64-bit result of two words.
#[inline(always)]
fn widen2(warp: &mut Warp, d: u16, a: u16, b: u16, mask: u32, f: impl Fn(u32, u32) -> u64) {
    let x = &warp.words[usize::from(a)].0;
    let y = &warp.words[usize::from(b)].0;
    let mut t = [0; 32];
    for l in 0..32 {
        t[l] = f(x[l], y[l]);
    }
    put64(&mut warp.longs[usize::from(d)], &t, mask);
}

#[inline(always)]
fn widen3(
    warp: &mut Warp,
    d: u16,
    [a, b, c]: [u16; 3],
    mask: u32,
    f: impl Fn(u32, u32, u64) -> u64,
) {
    let x = &warp.words[usize::from(a)].0;
    let y = &warp.words[usize::from(b)].0;
    let z = &warp.longs[usize::from(c)].0;
    let mut t = [0; 32];
    for l in 0..32 {
        t[l] = f(x[l], y[l], z[l]);
    }
    put64(&mut warp.longs[usize::from(d)], &t, mask);
}

#[inline(always)]
fn put_predicate(warp: &mut Warp, d: u16, value: u32, mask: u32) {
    let p = &mut warp.predicates[usize::from(d)];
    *p = *p & !mask | value & mask;
}

fn pure(warp: &mut Warp, pure: &Pure, mask: u32) {
    let [a, b, c] = pure.sources;
    let count = pure.count;
    let get = |warp: &Warp, lane| {
        let x = warp.value(a, lane);
        let y = if count > 1 { warp.value(b, lane) } else { 0 };
        let z = if count > 2 { warp.value(c, lane) } else { 0 };
        (x, y, z)
    };
    let mut last = None;
    for lane in lanes(mask) {
        let (x, y, z) = get(warp, lane);
        // Neighbouring lanes often agree.
        let value = match last {
            Some((key, value)) if key == (x, y, z) => value,
            _ => (pure.f)(x, y, z),
        };
        last = Some(((x, y, z), value));
        warp.set(pure.d, lane, value);
    }
}

/// Runs one warp.
#[inline(always)]
pub(crate) fn run(warp: &mut Warp, machine: &mut Machine<'_>) -> Result<Outcome, Box<Raised>> {
    let entry = machine.entry;
    let code = entry.code.as_slice();
    let mut slice = SLICE.min(machine.left);
    let granted = slice;
    let mut patience = PATIENCE;
    'pick: loop {
        let lenient = warp.yielding.is_some();
        let Some(Fragment { mut pc, mut mask, .. }) = warp.pick() else {
            machine.left -= granted - slice;
            return Ok(if warp.alive == 0 { Outcome::Exited } else { Outcome::Blocked });
        };
        let mut divergent = !warp.fragments.is_empty();
        loop {
            if divergent && meet(warp, &mut pc, &mut mask, lenient, &mut divergent) {
                continue 'pick;
            }
            if slice == 0 {
                machine.left -= granted;
                warp.fragments.push(Fragment { pc, mask, state: State::Ready });
                return Ok(Outcome::Slice);
            }
            slice -= 1;
            let instr = &code[pc as usize];
            let mut m = mask;
            if instr.guard != 0 {
                let p = warp.predicates[usize::from(instr.guard)];
                m &= if instr.flip { !p } else { p };
                if m == 0 && !matches!(instr.op, Op::Branch { .. }) {
                    pc += 1;
                    continue;
                }
            }
            match instr.op {
                Op::Mov32 { d, a } => {
                    let t = warp.words[usize::from(a)].0;
                    put32(&mut warp.words[usize::from(d)], &t, m);
                }
                Op::Mov64 { d, a } => {
                    let t = warp.longs[usize::from(a)].0;
                    put64(&mut warp.longs[usize::from(d)], &t, m);
                }
                Op::MovP { d, a } => {
                    let value = warp.predicates[usize::from(a)];
                    put_predicate(warp, d, value, m);
                }
                Op::NotP { d, a } => {
                    let value = !warp.predicates[usize::from(a)];
                    put_predicate(warp, d, value, m);
                }
                Op::AndP { d, a, b } => {
                    let value = warp.predicates[usize::from(a)] & warp.predicates[usize::from(b)];
                    put_predicate(warp, d, value, m);
                }
                Op::OrP { d, a, b } => {
                    let value = warp.predicates[usize::from(a)] | warp.predicates[usize::from(b)];
                    put_predicate(warp, d, value, m);
                }
                Op::XorP { d, a, b } => {
                    let value = warp.predicates[usize::from(a)] ^ warp.predicates[usize::from(b)];
                    put_predicate(warp, d, value, m);
                }
                Op::Unary { op, d, a } => alu::unary(warp, op, d, a, m),
                Op::Binary { op, d, a, b } => alu::binary(warp, op, d, a, b, m),
                Op::Ternary { op, d, a, b, c } => alu::ternary(warp, op, d, [a, b, c], m),
                Op::Approx { op, d, a } => alu::approximate(warp, machine.model, op, d, a, m),
                Op::Long2 { op, d, a, b } => alu::long(warp, op, d, a, b, m),
                Op::Shift64 { op, d, a, b } => alu::shift(warp, op, d, a, b, m),
                Op::MulWideS { d, a, b } => widen2(warp, d, a, b, m, |x, y| {
                    (i64::from(x as i32) * i64::from(y as i32)) as u64
                }),
                Op::MulWideU { d, a, b } => {
                    widen2(warp, d, a, b, m, |x, y| u64::from(x) * u64::from(y));
                }
                Op::MadWideS { d, a, b, c } => widen3(warp, d, [a, b, c], m, |x, y, z| {
                    ((i64::from(x as i32) * i64::from(y as i32)) as u64).wrapping_add(z)
                }),
                Op::MadWideU { d, a, b, c } => widen3(warp, d, [a, b, c], m, |x, y, z| {
                    (u64::from(x) * u64::from(y)).wrapping_add(z)
                }),
                Op::Mad64 { d, a, b, c } => {
                    let z = warp.longs[usize::from(c)].0;
                    let x = &warp.longs[usize::from(a)].0;
                    let y = &warp.longs[usize::from(b)].0;
                    let mut t = [0; 32];
                    for l in 0..32 {
                        t[l] = x[l].wrapping_mul(y[l]).wrapping_add(z[l]);
                    }
                    put64(&mut warp.longs[usize::from(d)], &t, m);
                }
                Op::Sext { d, a } => {
                    widen2(warp, d, a, a, m, |x, _| i64::from(x as i32) as u64);
                }
                Op::Zext { d, a } => widen2(warp, d, a, a, m, |x, _| u64::from(x)),
                Op::Trunc { d, a } => {
                    let x = &warp.longs[usize::from(a)].0;
                    let mut t = [0; 32];
                    for l in 0..32 {
                        t[l] = x[l] as u32;
                    }
                    put32(&mut warp.words[usize::from(d)], &t, m);
                }
                Op::Join { d, a, b } => {
                    widen2(warp, d, a, b, m, |x, y| u64::from(x) | u64::from(y) << 32);
                }
                Op::Split { low, high, a } => {
                    let x = &warp.longs[usize::from(a)].0;
                    let (mut t, mut u) = ([0; 32], [0; 32]);
                    for l in 0..32 {
                        t[l] = x[l] as u32;
                        u[l] = (x[l] >> 32) as u32;
                    }
                    put32(&mut warp.words[usize::from(low)], &t, m);
                    put32(&mut warp.words[usize::from(high)], &u, m);
                }
                Op::Select32 { d, a, b, p } => {
                    let p = warp.predicates[usize::from(p)];
                    let x = &warp.words[usize::from(a)].0;
                    let y = &warp.words[usize::from(b)].0;
                    let mut t = [0; 32];
                    for l in 0..32 {
                        t[l] = if p >> l & 1 != 0 { x[l] } else { y[l] };
                    }
                    put32(&mut warp.words[usize::from(d)], &t, m);
                }
                Op::Select64 { d, a, b, p } => {
                    let p = warp.predicates[usize::from(p)];
                    let x = &warp.longs[usize::from(a)].0;
                    let y = &warp.longs[usize::from(b)].0;
                    let mut t = [0; 32];
                    for l in 0..32 {
                        t[l] = if p >> l & 1 != 0 { x[l] } else { y[l] };
                    }
                    put64(&mut warp.longs[usize::from(d)], &t, m);
                }
                Op::Set32 { op, d, a, b } => {
                    let value = alu::compare32(warp, op, a, b, m);
                    put_predicate(warp, d, value, m);
                }
                Op::Set64 { op, d, a, b } => {
                    let value = alu::compare64(warp, op, a, b, m);
                    put_predicate(warp, d, value, m);
                }
                Op::Pure(i) => pure(warp, &entry.pures[usize::from(i)], m),
                Op::Load(i) => {
                    let what = &entry.accesses[usize::from(i)];
                    if machine.checks {
                        access::load::<true>(warp, machine, what, m, pc)
                    } else {
                        access::load::<false>(warp, machine, what, m, pc)
                    }
                    .map_err(laned(pc))?;
                }
                Op::Store(i) => {
                    let what = &entry.accesses[usize::from(i)];
                    if machine.checks {
                        store::store::<true>(warp, machine, what, m, pc)
                    } else {
                        store::store::<false>(warp, machine, what, m, pc)
                    }
                    .map_err(laned(pc))?;
                }
                Op::Atomic(i) => {
                    let what = &entry.atomics[usize::from(i)];
                    if machine.checks {
                        atomic::atomic::<true>(warp, machine, what, m, pc)
                    } else {
                        atomic::atomic::<false>(warp, machine, what, m, pc)
                    }
                    .map_err(laned(pc))?;
                }
                Op::Branch { target, edge } => {
                    let rest = mask & !m;
                    if m != 0 {
                        machine.edges[usize::from(edge)] += 1;
                        crate::dispatch::count_edge(entry.edge_seed, edge);
                    }
                    if rest != 0 {
                        machine.edges[usize::from(edge) + 1] += 1;
                        crate::dispatch::count_edge(entry.edge_seed, edge + 1);
                        if m != 0 {
                            warp.fragments.push(Fragment {
                                pc: pc + 1,
                                mask: rest,
                                state: State::Ready,
                            });
                            divergent = true;
                            mask = m;
                        } else {
                            pc += 1;
                            continue;
                        }
                    }
                    if divergent && target <= pc {
                        patience -= 1;
                        if patience == 0 {
                            patience = PATIENCE;
                            warp.yielding = Some(pc);
                            warp.fragments.push(Fragment { pc: target, mask, state: State::Ready });
                            continue 'pick;
                        }
                    }
                    pc = target;
                    continue;
                }
                Op::BranchTable(i) => {
                    let table = &entry.tables[usize::from(i)];
                    let index = warp.words[usize::from(table.index)].0;
                    let rest = mask & !m;
                    let mut left = m;
                    while left != 0 {
                        let first = left.trailing_zeros() as usize;
                        let value = index[first];
                        let Some(target) = table.targets.get(value as usize) else {
                            let kind = FaultKind::BadBranchIndex {
                                index: value,
                                targets: table.targets.len() as u32,
                            };
                            return Err(raise(pc, left, Raise::Trouble(kind.into())));
                        };
                        let group = lanes(left).filter(|l| index[*l] == value);
                        let group = group.fold(0, |all, l| all | 1u32 << l);
                        machine.edges[usize::from(table.edge) + value as usize] += 1;
                        crate::dispatch::count_edge(entry.edge_seed, table.edge + value as u16);
                        warp.fragments.push(Fragment {
                            pc: *target,
                            mask: group,
                            state: State::Ready,
                        });
                        left &= !group;
                    }
                    if rest != 0 {
                        warp.fragments.push(Fragment {
                            pc: pc + 1,
                            mask: rest,
                            state: State::Ready,
                        });
                    }
                    continue 'pick;
                }
                Op::Exit => {
                    warp.alive &= !m;
                    machine.alive_threads -= m.count_ones();
                    // Those who wait for the lanes that left may go on.
                    for fragment in &mut warp.fragments {
                        if fragment.state == State::Gathering {
                            fragment.state = State::Ready;
                        }
                    }
                    mask &= !m;
                    if mask == 0 {
                        continue 'pick;
                    }
                }
                Op::Barrier(i) => {
                    let barrier = &entry.barriers[usize::from(i)];
                    let waiting =
                        collective::arrive(warp, machine, barrier, m, pc).map_err(laned(pc))?;
                    mask &= !waiting;
                    if mask == 0 {
                        continue 'pick;
                    }
                    divergent = true;
                }
                Op::WarpSync { .. } | Op::Shuffle(_) | Op::Vote(_) => {
                    let waiting =
                        collective::synchronous(warp, machine, &instr.op, m).map_err(laned(pc))?;
                    if waiting != 0 {
                        warp.fragments.push(Fragment {
                            pc,
                            mask: waiting,
                            state: State::Gathering,
                        });
                        mask &= !waiting;
                        if mask == 0 {
                            continue 'pick;
                        }
                        divergent = true;
                        // The rest moves on; `meet` must not merge it back.
                    }
                }
                Op::ActiveMask { d } => {
                    put32(&mut warp.words[usize::from(d)], &[m; 32], m);
                }
                Op::Matrix(i) => {
                    let what = &entry.matrices[usize::from(i)];
                    if let Matrix::Product { shape, a, b, c, d } = *what {
                        matrix::product(warp, shape, a, b, c, d);
                        pc += 1;
                        continue;
                    }
                    if machine.checks {
                        matrix::execute::<true>(warp, machine, what, m, pc)
                    } else {
                        matrix::execute::<false>(warp, machine, what, m, pc)
                    }
                    .map_err(laned(pc))?;
                }
                Op::Trap => {
                    let kind = FaultKind::Trap;
                    return Err(raise(pc, m, Raise::Trouble(kind.into())));
                }
                Op::Unsupported(i) => return Err(raise(pc, m, Raise::Unsupported(i))),
            }
            pc += 1;
        }
    }
}

/// Merges what stands at `pc` into the running fragment; true when another must run first and
/// the running one was put back.
fn meet(
    warp: &mut Warp,
    pc: &mut u32,
    mask: &mut u32,
    lenient: bool,
    divergent: &mut bool,
) -> bool {
    let mut i = 0;
    let mut lower = false;
    while i < warp.fragments.len() {
        let other = warp.fragments[i];
        if other.pc == *pc && !matches!(other.state, State::AtBarrier(_)) {
            *mask |= other.mask;
            warp.fragments.swap_remove(i);
            continue;
        }
        lower |= other.state == State::Ready && other.pc < *pc;
        i += 1;
    }
    *divergent = !warp.fragments.is_empty();
    if lower && !lenient {
        warp.fragments.push(Fragment { pc: *pc, mask: *mask, state: State::Ready });
        return true;
    }
    false
}

const _: () = assert!(size_of::<Op>() <= 12);
