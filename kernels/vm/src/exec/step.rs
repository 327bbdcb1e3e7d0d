//! The hot loop: one warp's instructions until it blocks, ends or uses up its slice.
//! Inlined into each build of `dispatch`; what touches whole registers is called through the
//! tables there.

use super::address::offset;
use super::lane::put32;
use super::machine::{Machine, Trouble};
use super::rare::Turn;
use super::warp::{FULL, Fragment, State, Warp, lanes};
use super::{alu, cluster, collective, rare, strict};
use crate::dispatch::Vectors;
use crate::fault::FaultKind;
use crate::program::{Action, Matrix, Reg, Step};
use crate::syntax::Space;

/// Instructions a warp runs before another gets its turn.
pub(crate) const SLICE: u64 = 1 << 16;
/// Backward branches of divergent lanes before the others are let past.
const PATIENCE: u32 = 1 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Exited,
    Blocked,
    Slice,
    /// It polls what others have to change.
    Polled,
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

/// Runs one warp.
#[inline(always)]
pub(crate) fn run<V: Vectors>(
    vectors: V,
    warp: &mut Warp,
    machine: &mut Machine<'_>,
) -> Result<Outcome, Box<Raised>> {
    let entry = machine.entry;
    let code = entry.code.as_slice();
    let mut slice = machine.slice.min(machine.left) as u32;
    let granted = slice;
    let mut patience = PATIENCE;
    'pick: loop {
        let lenient = warp.yielding.is_some();
        let Some(Fragment { mut pc, mut mask, .. }) = warp.pick() else {
            machine.left -= u64::from(granted - slice);
            return Ok(if warp.alive == 0 { Outcome::Exited } else { Outcome::Blocked });
        };
        let mut divergent = !warp.fragments.is_empty();
        // Nobody else stands before this place, so until then there is no one to meet.
        let mut meeting = 0;
        // What was executed since the last jump are the steps from here; from `stop` on, someone
        // may have to be met or the slice may be used up.
        let mut from = pc;
        let mut stop = 0;
        // How the warp goes on from `pc`, where lanes wait for something.
        macro_rules! go {
            ($after:expr) => {
                match $after {
                    After::On => {}
                    after => {
                        slice -= pc + 1 - from;
                        if let After::Others = after {
                            continue 'pick;
                        }
                        machine.left -= u64::from(granted - slice);
                        return Ok(Outcome::Polled);
                    }
                }
            };
        }
        macro_rules! poll {
            ($m:expr, $space:expr, $at:expr) => {
                go!(poll(warp, machine, [pc, mask, $m], ($space, $at)))
            };
        }
        loop {
            if pc >= stop {
                slice -= pc - from;
                from = pc;
                if pc >= meeting {
                    if meet(warp, pc, &mut mask, lenient, &mut meeting) {
                        continue 'pick;
                    }
                    divergent = !warp.fragments.is_empty();
                }
                if slice == 0 {
                    machine.left -= u64::from(granted);
                    warp.fragments.push(Fragment { pc, mask, state: State::Ready });
                    return Ok(Outcome::Slice);
                }
                stop = meeting.min(pc + slice);
            }
            let step = &code[pc as usize];
            let run = if mask == FULL { step.whole_run } else { step.run };
            if run != 0 {
                let (first, run) = (pc as usize, u32::from(run).min(stop - pc));
                for lane in &entry.lanes[first..first + run as usize] {
                    lane.function.call(warp, lane.s, mask);
                }
                pc += run;
                continue;
            }
            let mut m = mask;
            if step.guard != 0 {
                let p = warp.predicates[usize::from(step.guard)];
                m &= if step.flip { !p } else { p };
                if m == 0 && !matches!(step.action, Action::Branch { .. }) {
                    pc += 1;
                    continue;
                }
            }
            match step.action {
                Action::Lane => {
                    let lane = &entry.lanes[pc as usize];
                    lane.function.call(warp, lane.s, m);
                }
                Action::Exchange(_) if m == FULL => {
                    let lane = &entry.lanes[pc as usize];
                    lane.function.call(warp, lane.s, m);
                }
                Action::Approx { op, d, a } => vectors.approximate(warp, machine, [d, a], op, m),
                Action::Pure(i) => alu::pure(warp, &entry.pures[usize::from(i)], m),
                Action::Load(i) => {
                    let what = &entry.accesses[usize::from(i)];
                    let at =
                        if what.strong { place(warp, what.base, offset(warp, what), m) } else { 0 };
                    vectors.load(warp, machine, what, m, pc).map_err(laned(pc))?;
                    if what.strong {
                        poll!(m, what.space, at);
                    }
                }
                Action::Store(i) => {
                    let what = &entry.accesses[usize::from(i)];
                    vectors.store(warp, machine, what, m, pc).map_err(laned(pc))?;
                    machine.changes += u64::from(what.space != Space::Local);
                }
                Action::Atomic(i) => {
                    let what = &entry.atomics[usize::from(i)];
                    let at = place(warp, what.base, what.offset as u64, m);
                    let before = machine.changes;
                    vectors.atomic(warp, machine, what, m, pc).map_err(laned(pc))?;
                    machine.polled = true;
                    if machine.changes == before {
                        poll!(m, what.space, at);
                    }
                }
                Action::Branch { target, edge } => {
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
                    slice -= pc + 1 - from;
                    if divergent && target <= pc {
                        patience -= 1;
                        if patience == 0 {
                            patience = PATIENCE;
                            warp.yielding = Some(pc);
                            warp.fragments.push(Fragment { pc: target, mask, state: State::Ready });
                            continue 'pick;
                        }
                    }
                    (pc, from, stop) = (target, target, 0);
                    meeting = if divergent { 0 } else { u32::MAX };
                    continue;
                }
                Action::BranchTable(i) => {
                    slice -= pc + 1 - from;
                    branch_table(warp, machine, i, mask, m, pc)?;
                    continue 'pick;
                }
                Action::Exit => {
                    strict::exit(warp, machine, m, pc).map_err(laned(pc))?;
                    leave(warp, machine, m, pc);
                    mask &= !m;
                    if mask == 0 {
                        slice -= pc + 1 - from;
                        continue 'pick;
                    }
                    (meeting, stop) = (0, 0);
                }
                Action::Barrier(i) => {
                    machine.changes += 1;
                    let barrier = &entry.barriers[usize::from(i)];
                    let waiting =
                        collective::arrive(warp, machine, barrier, m, pc).map_err(laned(pc))?;
                    mask &= !waiting;
                    if mask == 0 {
                        slice -= pc + 1 - from;
                        continue 'pick;
                    }
                    divergent |= waiting != 0;
                }
                Action::WarpSync { .. }
                | Action::Shuffle(_)
                | Action::Exchange(_)
                | Action::Vote(_) => {
                    let waiting =
                        vectors.synchronous(warp, machine, &step.action, m).map_err(laned(pc))?;
                    if waiting != 0 {
                        warp.fragments.push(Fragment {
                            pc,
                            mask: waiting,
                            state: State::Gathering,
                        });
                        mask &= !waiting;
                        if mask == 0 {
                            slice -= pc + 1 - from;
                            continue 'pick;
                        }
                        // The rest moves on; it does not come by here again before a jump.
                        divergent = true;
                    }
                }
                Action::ActiveMask { d } => {
                    put32(&mut warp.words[usize::from(d)], &[m; 32], m);
                }
                Action::Matrix(i) => {
                    let what = &entry.matrices[usize::from(i)];
                    // Time alone brings nobody what they wait for.
                    machine.changes += u64::from(!matches!(what, Matrix::Clock { .. }));
                    if what.aligned() && m != FULL {
                        // It takes the whole warp.
                        warp.fragments.push(Fragment { pc, mask: m, state: State::Gathering });
                        mask &= !m;
                        if mask == 0 {
                            slice -= pc + 1 - from;
                            continue 'pick;
                        }
                        divergent = true;
                        pc += 1;
                        continue;
                    }
                    vectors.matrix(warp, machine, what, m, pc).map_err(laned(pc))?;
                }
                Action::Rare(i) => {
                    let what = &entry.rares[usize::from(i)];
                    match rare::execute(warp, machine, what, m, pc).map_err(laned(pc))? {
                        Turn::Next => {}
                        Turn::Gather => {
                            warp.fragments.push(Fragment { pc, mask: m, state: State::Gathering });
                            mask &= !m;
                            if mask == 0 {
                                slice -= pc + 1 - from;
                                continue 'pick;
                            }
                            divergent = true;
                        }
                        Turn::Poll(space, at) => poll!(m, space, at),
                        Turn::Yield => {
                            machine.polled = true;
                            // Lanes further on go first: they may be who is waited for.
                            let others = let_pass(warp, pc, mask);
                            go!(if others { After::Others } else { After::Leave });
                        }
                        Turn::Stay => {
                            machine.polled = true;
                            slice -= pc - from;
                            machine.left -= u64::from(granted - slice);
                            warp.fragments.push(Fragment { pc, mask, state: State::Ready });
                            return Ok(Outcome::Polled);
                        }
                        Turn::Unsupported(i) => return Err(raise(pc, m, Raise::Unsupported(i))),
                    }
                }
                Action::Fence => machine.fence(warp.index),
                Action::Trap => {
                    let kind = FaultKind::Trap;
                    return Err(raise(pc, m, Raise::Trouble(kind.into())));
                }
                Action::Unsupported(i) => return Err(raise(pc, m, Raise::Unsupported(i))),
            }
            pc += 1;
        }
    }
}

/// Sends the lanes of `m` to the places their indices name and the rest of `mask` on.
#[inline(never)]
fn branch_table(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    table: u16,
    mask: u32,
    m: u32,
    pc: u32,
) -> Result<(), Box<Raised>> {
    let entry = machine.entry;
    let table = &entry.tables[usize::from(table)];
    let index = warp.words[usize::from(table.index)].0;
    let mut left = m;
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let value = index[first];
        let Some(target) = table.targets.get(value as usize) else {
            let kind =
                FaultKind::BadBranchIndex { index: value, targets: table.targets.len() as u32 };
            return Err(raise(pc, left, Raise::Trouble(kind.into())));
        };
        let group = lanes(left).filter(|l| index[*l] == value);
        let group = group.fold(0, |all, l| all | 1u32 << l);
        machine.edges[usize::from(table.edge) + value as usize] += 1;
        crate::dispatch::count_edge(entry.edge_seed, table.edge + value as u16);
        warp.fragments.push(Fragment { pc: *target, mask: group, state: State::Ready });
        left &= !group;
    }
    let rest = mask & !m;
    if rest != 0 {
        warp.fragments.push(Fragment { pc: pc + 1, mask: rest, state: State::Ready });
    }
    Ok(())
}

/// Threads exit.
#[cfg_attr(feature = "libfuzzer", inline(always))]
#[cfg_attr(not(feature = "libfuzzer"), inline(never))]
fn leave(warp: &mut Warp, machine: &mut Machine<'_>, m: u32, pc: u32) {
    cluster::leave(warp, machine, m, pc);
    warp.alive &= !m;
    machine.alive_threads -= m.count_ones();
    // Those who wait for the lanes that left may go on.
    for fragment in &mut warp.fragments {
        if fragment.state == State::Gathering {
            fragment.state = State::Ready;
        }
    }
}

/// The address that the first lane of a mask accesses.
#[inline(always)]
fn place(warp: &Warp, base: Option<Reg>, offset: u64, mask: u32) -> u64 {
    let lane = mask.trailing_zeros() as usize & 31;
    base.map_or(0, |reg| warp.value(reg, lane)).wrapping_add(offset)
}

/// How a warp goes on after a strong access that changed nothing.
enum After {
    On,
    /// With its lanes elsewhere.
    Others,
    /// When others have run.
    Leave,
}

/// Counts a poll by `active` ones of the lanes that stand at `pc`.
#[cfg_attr(feature = "libfuzzer", inline(always))]
#[cfg_attr(not(feature = "libfuzzer"), inline(never))]
fn poll(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    [pc, mask, active]: [u32; 3],
    place: (Space, u64),
) -> After {
    machine.polled = true;
    if !warp.polls(pc, active.trailing_zeros() & 31, place, machine.changes) {
        After::On
    } else if let_pass(warp, pc, mask) {
        After::Others
    } else {
        After::Leave
    }
}

/// Puts back the lanes that poll at `pc`; true when others of the warp are to run first.
#[cfg_attr(feature = "libfuzzer", inline(always))]
fn let_pass(warp: &mut Warp, pc: u32, mask: u32) -> bool {
    let others = warp.fragments.iter().filter(|other| other.state == State::Ready).count();
    warp.fragments.push(Fragment { pc: pc + 1, mask, state: State::Ready });
    warp.yielding = Some(pc + 1);
    warp.poll.passed += 1;
    if warp.poll.passed as usize <= others {
        return true;
    }
    warp.poll.passed = 0;
    warp.poll.times = 1;
    false
}

/// Merges what stands at `pc` into the running fragment and finds the next place where someone
/// stands; true when another must run first and the running one was put back.
#[cfg_attr(feature = "libfuzzer", inline(always))]
fn meet(warp: &mut Warp, pc: u32, mask: &mut u32, lenient: bool, meeting: &mut u32) -> bool {
    let mut i = 0;
    let mut lower = false;
    *meeting = u32::MAX;
    while i < warp.fragments.len() {
        let other = warp.fragments[i];
        if other.pc == pc && !matches!(other.state, State::AtBarrier(_)) {
            *mask |= other.mask;
            warp.fragments.swap_remove(i);
            continue;
        }
        lower |= other.state == State::Ready && other.pc < pc;
        if other.pc > pc {
            *meeting = (*meeting).min(other.pc);
        }
        i += 1;
    }
    if lower && !lenient {
        warp.fragments.push(Fragment { pc, mask: *mask, state: State::Ready });
        return true;
    }
    false
}

const _: () = assert!(size_of::<Step>() <= 16);
