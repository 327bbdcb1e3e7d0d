//! mbarriers of a block: phases, arrivals and bytes under way, exactly as the PTX ISA counts them
//! (section "mbarrier"). A phase completes when no arrival and no byte is missing; the copies it
//! tracks are there from the first test that sees it. Such a test orders what was done before the
//! arrivals of its phase before what its thread does from then on, and its warp once that meets
//! (`shared::phases`); where clusters have several blocks, everything before it, so that races can be
//! missed and none is invented.
//! Other blocks of the cluster arrive, expect and send bytes; they do not wait.
//! Initialising one twice and plain accesses to one are not judged.

mod landing;

use super::access::{shared_trouble, toucher};
use super::address::{Target, addresses, resolve};
use super::machine::{Machine, Trouble};
use super::rare::Turn;
use super::step::{Laned, Raise, Raised};
use super::warp::{Warp, lanes};
use super::{collective, copy};
use crate::fault::{ClusterFault, FaultKind, MbarrierFault, MemorySpace};
use crate::program::Action;
use crate::rare::{Act, At, Mbarrier, Rare};
use crate::shared::{Other, Released, Shared, SharedFault, Touch, Toucher};
pub(super) use landing::bring;
use landing::{Arrival, settle};

const BYTES: usize = 8;
const LARGEST: u32 = (1 << 20) - 1;
/// Failed tests in a row, with next to nothing done between, after which nobody will help; more
/// where somebody looks at a clock, and may give up in time.
const PATIENCE: u64 = 1 << 14;
const PATIENCE_BY_CLOCK: u64 = 1 << 19;
const WORK_PER_TEST: u64 = 64;
const WARPS: usize = 32;

struct Object {
    offset: u64,
    phase: u32,
    expected: u32,
    pending: u32,
    /// Bytes expected and not there; negative when they came first.
    missing: i64,
    arrivals: Vec<Arrival>,
    /// Those of complete phases that nobody has tested yet.
    landed: Vec<Arrival>,
    released: Released,
    /// Who initialised it, and the epoch.
    initialised: (Toucher, u64),
    /// Who last spoke of bytes.
    counted_by: Toucher,
}

/// The objects of one block, and what is known of those who wait.
#[derive(Default)]
pub(crate) struct Mbarriers {
    /// By their offsets.
    objects: Vec<Object>,
    /// Failed tests since anybody arrived anywhere or memory changed.
    failed: u64,
    /// Changes of memory in the launch until then.
    changes: u64,
    /// Instructions left in the launch at the first of them.
    left: u64,
    watchers: Watchers,
}

/// Lanes of each warp since the first of the failed tests.
#[derive(Default)]
struct Watchers {
    tested: [u32; WARPS],
    /// They looked at a clock, and did so again.
    looked: [u32; WARPS],
    again: [u32; WARPS],
}

impl Watchers {
    /// Some wait for nothing but time, after which they may help.
    fn wait_for_time(&self) -> bool {
        self.again.iter().zip(&self.tested).any(|(again, tested)| again & !tested != 0)
    }
}

impl Mbarriers {
    pub fn clear(&mut self) {
        self.objects.clear();
        self.failed = 0;
    }

    /// Lanes of a warp look at a clock.
    pub fn look_at_clock(&mut self, warp: u32, mask: u32) {
        if self.failed != 0 {
            let warp = warp as usize % WARPS;
            self.watchers.again[warp] |= self.watchers.looked[warp] & mask;
            self.watchers.looked[warp] |= mask;
        }
    }

    /// Forgets who initialised the objects.
    pub fn settle(&self, shared: &mut Shared) {
        for object in &self.objects {
            shared.forget_bytes(object.offset as usize, BYTES);
        }
    }

    /// Who sent bytes for a place that nobody has waited for.
    pub fn on_the_way(&self, offset: u64) -> Option<Other> {
        let all =
            self.objects.iter().flat_map(|object| object.arrivals.iter().chain(&object.landed));
        let mut all = all.filter(|arrival| {
            offset.checked_sub(arrival.offset).is_some_and(|at| at < arrival.bytes.len() as u64)
        });
        let Arrival { by, from, .. } = all.next_back()?;
        Some(Other { thread: Some(by.thread), pc: Some(by.pc), block: *from })
    }

    fn find(&mut self, offset: u64) -> Result<&mut Object, Box<Trouble>> {
        match self.at(offset) {
            Ok(at) => Ok(&mut self.objects[at]),
            Err(_) => Err(fault(offset, MbarrierFault::Uninitialised)),
        }
    }

    /// Where the object of an offset stands among all, or would.
    fn at(&self, offset: u64) -> Result<usize, usize> {
        self.objects.binary_search_by_key(&offset, |object| object.offset)
    }

    fn put(&mut self, object: Object) {
        match self.at(object.offset) {
            Ok(at) => self.objects[at] = object,
            Err(at) => self.objects.insert(at, object),
        }
    }
}

fn fault(offset: u64, wrong: MbarrierFault) -> Box<Trouble> {
    FaultKind::Mbarrier { offset, wrong }.into()
}

/// Does something in the shared memory that a lane's address leads to; `f` gets the offset there.
pub(super) fn at_hand<T>(
    machine: &mut Machine<'_>,
    at: At,
    address: u64,
    me: Toucher,
    f: impl FnOnce(&mut Machine<'_>, u64) -> Result<T, Box<Trouble>>,
) -> Result<T, Box<Trouble>> {
    match resolve(at.space, address) {
        Target::Shared(offset) => f(machine, offset),
        Target::Cluster(address) => machine.reach(address, me, f),
        _ => Err(machine.out_of_bounds(MemorySpace::Shared, address, BYTES as u32, true)),
    }
}

pub(super) fn execute(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Mbarrier,
    mask: u32,
    pc: u32,
) -> Result<Turn, Laned> {
    let all = addresses(warp, what.at.base, what.at.offset);
    let mut complete = 0u32;
    for lane in lanes(mask) {
        let me = toucher(warp, lane, pc);
        let state = what.state.map(|slot| warp.longs[usize::from(slot)].0[lane]);
        let amount = warp.word(what.amount)[lane];
        let result = at_hand(machine, what.at, all[lane], me, |machine, offset| {
            one(machine, what, offset, amount, state, me)
        });
        match result.map_err(|trouble| (lane as u32, trouble))? {
            Some(Answer::State(state)) => {
                if let Some(slot) = what.state {
                    warp.longs[usize::from(slot)].0[lane] = state;
                }
            }
            Some(Answer::Complete(yes)) => {
                complete |= u32::from(yes.is_some()) << lane;
                let synced = yes.unwrap_or_default();
                warp.synced = warp.synced.max(synced);
                warp.clock = warp.clock.max(synced);
            }
            None => {}
        }
    }
    if machine.shared.is_phased() && what.act.arrives() {
        collective::advance_clock(warp, machine);
    }
    let Some(p) = what.complete else {
        return Ok(Turn::Next);
    };
    let p = &mut warp.predicates[usize::from(p)];
    *p = *p & !mask | complete;
    if complete != 0 {
        machine.shared.pass_on(warp.index, complete, warp.alive);
        if !machine.shared.is_phased() {
            machine.shared.next_epoch();
        }
    }
    if complete == mask {
        return Ok(Turn::Next);
    }
    let lane = (mask & !complete).trailing_zeros();
    warp.waits(pc, lane, (what.at.space, all[lane as usize & 31]));
    let offset = match resolve(what.at.space, all[lane as usize & 31]) {
        Target::Shared(offset) | Target::Cluster(offset) => offset,
        _ => 0,
    };
    stuck(machine, offset, warp.index, mask & !complete).map_err(|trouble| (lane, trouble))?;
    Ok(Turn::Yield)
}

/// Counts a test that failed for some lanes, and says when everybody waits.
fn stuck(
    machine: &mut Machine<'_>,
    offset: u64,
    warp: u32,
    failed: u32,
) -> Result<(), Box<Trouble>> {
    let (left, changes) = (machine.left, machine.changes);
    let all = &mut *machine.mbarriers;
    if all.failed == 0 || all.changes != changes {
        // Whoever changes memory may be on the way here.
        (all.failed, all.left, all.changes) = (0, left, changes);
        all.watchers = Watchers::default();
    }
    all.failed += 1;
    all.watchers.tested[warp as usize % WARPS] |= failed;
    let timed = all.watchers.looked.iter().any(|lanes| *lanes != 0);
    let patience = if timed { PATIENCE_BY_CLOCK } else { PATIENCE };
    let busy = all.left - left > WORK_PER_TEST * all.failed || all.watchers.wait_for_time();
    if all.failed < patience || busy {
        return Ok(());
    }
    Err(no_progress(machine, offset))
}

/// Nobody will complete the phase that somebody waits for.
pub(super) fn no_progress(machine: &Machine<'_>, offset: u64) -> Box<Trouble> {
    let all = &machine.mbarriers;
    fault(
        offset,
        match all.at(offset).ok().map(|at| &all.objects[at]) {
            Some(&Object { phase, pending, missing: bytes, .. }) => {
                MbarrierFault::NoProgress { phase, pending, bytes }
            }
            None => MbarrierFault::Uninitialised,
        },
    )
}

enum Answer {
    State(u64),
    /// The phase is complete: the clock before which the warp's own accesses are ordered.
    Complete(Option<u32>),
}

/// One lane's operation.
fn one(
    machine: &mut Machine<'_>,
    what: &Mbarrier,
    offset: u64,
    amount: u32,
    state: Option<u64>,
    me: Toucher,
) -> Result<Option<Answer>, Box<Trouble>> {
    if !what.act.reaches() && machine.cluster.visitor().is_some() {
        return Err(FaultKind::Cluster { wrong: ClusterFault::AnotherBlock }.into());
    }
    if what.release {
        machine.order_cluster();
    }
    touch(machine, what.act, offset, me)?;
    // Threads may learn from each other.
    match what.act {
        Act::Arrive { .. } => machine.tell(offset, me, what.release),
        Act::Test { .. } => machine.learn(offset, me),
        _ => machine.races.meet(),
    }
    machine.changes += u64::from(!matches!(what.act, Act::Test { .. }));
    let wrong = |wrong| Err(fault(offset, wrong));
    match what.act {
        Act::Init => {
            if !(1..=LARGEST).contains(&amount) {
                return wrong(MbarrierFault::BadCount { count: amount });
            }
            machine.mbarriers.put(Object {
                offset,
                phase: 0,
                expected: amount,
                pending: amount,
                missing: 0,
                arrivals: Vec::new(),
                landed: Vec::new(),
                released: Released::default(),
                initialised: (me, machine.shared.age()),
                counted_by: me,
            });
            Ok(None)
        }
        Act::Invalidate => {
            machine.mbarriers.find(offset)?;
            if let Ok(at) = machine.mbarriers.at(offset) {
                machine.mbarriers.objects.remove(at);
            }
            Ok(None)
        }
        Act::Test { parity } => {
            let object = machine.mbarriers.find(offset)?;
            let current = object.phase;
            if parity {
                if amount > 1 {
                    return wrong(MbarrierFault::BadParity { parity: amount });
                }
                return test(machine, offset, current & 1 != amount, me);
            }
            let tested = (state.unwrap_or_default() >> 32) as u32;
            if current.wrapping_sub(tested) > 1 {
                return wrong(MbarrierFault::StalePhase { tested, current });
            }
            test(machine, offset, current != tested, me)
        }
        Act::Expect => expect(machine, offset, i64::from(amount), me).map(|()| None),
        Act::Complete => {
            expect(machine, offset, -i64::from(amount), me)?;
            release(machine, offset, me)?;
            machine.mbarriers.find(offset)?.advance();
            Ok(None)
        }
        Act::Arrive { expects, drops, incomplete } => {
            if expects {
                expect(machine, offset, amount.into(), me)?;
            }
            let count = if expects { 1 } else { amount };
            release(machine, offset, me)?;
            let state = arrive(machine, offset, count, drops, incomplete)?;
            Ok(Some(Answer::State(state)))
        }
        Act::Copies { counted } => {
            let phase = machine.mbarriers.find(offset)?.phase;
            copy::track(machine, me.thread, offset, phase);
            release(machine, offset, me)?;
            if counted {
                arrive(machine, offset, 1, false, false)?;
            }
            Ok(None)
        }
    }
}

/// The access as the other checks see it: an initialisation is a plain store, the rest atomic.
fn touch(
    machine: &mut Machine<'_>,
    act: Act,
    offset: u64,
    me: Toucher,
) -> Result<(), Box<Trouble>> {
    let len = BYTES as u32;
    if !offset.is_multiple_of(BYTES as u64) {
        return Err(machine.misaligned(MemorySpace::Shared, offset, len, true));
    }
    if !machine.shared.in_bounds(offset, BYTES) {
        return Err(machine.out_of_bounds(MemorySpace::Shared, offset, len, true));
    }
    if act != Act::Init && machine.mbarriers.find(offset).is_err() {
        return Err(uninitialised(machine, offset));
    }
    if !machine.checks {
        return Ok(());
    }
    let (touch, bytes) = match act {
        // A pattern that no program expects to find there.
        Act::Init => (Touch::Write, [0xb1; BYTES]),
        Act::Test { .. } => (Touch::StrongRead, [0; BYTES]),
        _ => (Touch::StrongWrite, [0xb1; BYTES]),
    };
    let touched = match touch {
        _ if machine.cluster.visitor().is_some() => {
            machine.touch_at_hand(offset, BYTES, me, touch, false)
        }
        Touch::StrongRead => machine.shared.load(offset, BYTES, me, touch),
        _ => machine.shared.store(offset, &bytes, me, touch),
    };
    touched.map_err(|fault| {
        unordered(machine, offset, &fault).unwrap_or_else(|| {
            shared_trouble(machine, fault, offset, len, touch != Touch::StrongRead)
        })
    })
}

/// Nobody has initialised it. The kernel's `mbarrier.init` is named where it has only one.
fn uninitialised(machine: &Machine<'_>, offset: u64) -> Box<Trouble> {
    let is_init = |action: &Action| match action {
        Action::Rare(i) => match &machine.entry.rares[usize::from(*i)] {
            Rare::Mbarrier(what) => what.act == Act::Init,
            _ => false,
        },
        _ => false,
    };
    let mut all = (0..).zip(&machine.entry.code).filter(|(_, step)| is_init(&step.action));
    let first = all.next().filter(|_| all.next().is_none());
    let other = first.map(|(pc, _)| Other { thread: None, pc: Some(pc), block: None });
    let kind = FaultKind::Mbarrier { offset, wrong: MbarrierFault::Uninitialised };
    Box::new(Trouble { kind, other })
}

/// A race with who initialised it.
fn unordered(machine: &mut Machine<'_>, offset: u64, fault: &SharedFault) -> Option<Box<Trouble>> {
    let SharedFault::Race { other, .. } = fault else { return None };
    let (by, age) = machine.mbarriers.find(offset).ok()?.initialised;
    let theirs = other.block.is_none() && other.thread.is_none_or(|thread| thread == by.thread);
    if machine.cluster.visitor().is_some() || age != machine.shared.age() || !theirs {
        return None;
    }
    let other = Other { thread: Some(by.thread), pc: Some(by.pc), block: None };
    let kind = FaultKind::Mbarrier { offset, wrong: MbarrierFault::UnorderedInit };
    Some(Box::new(Trouble { kind, other: Some(other) }))
}

fn expect(
    machine: &mut Machine<'_>,
    offset: u64,
    bytes: i64,
    me: Toucher,
) -> Result<(), Box<Trouble>> {
    let object = machine.mbarriers.find(offset)?;
    object.missing += bytes;
    object.counted_by = me;
    let bytes = object.missing;
    if bytes.unsigned_abs() > LARGEST.into() {
        return Err(fault(offset, MbarrierFault::TooManyBytes { bytes }));
    }
    machine.mbarriers.failed = 0;
    Ok(())
}

/// Returns the state before the arrival: its phase above what was pending.
fn arrive(
    machine: &mut Machine<'_>,
    offset: u64,
    count: u32,
    drops: bool,
    incomplete: bool,
) -> Result<u64, Box<Trouble>> {
    let object = machine.mbarriers.find(offset)?;
    let pending = object.pending;
    let state = u64::from(object.phase) << 32 | u64::from(pending);
    if !(1..=LARGEST).contains(&count) {
        return Err(fault(offset, MbarrierFault::BadCount { count }));
    }
    if count > pending {
        return Err(fault(offset, MbarrierFault::OverArrived { pending, count }));
    }
    if incomplete && count == pending {
        return Err(fault(offset, MbarrierFault::Completes { pending }));
    }
    object.pending -= count;
    if drops {
        object.expected -= count.min(object.expected);
    }
    object.advance();
    machine.mbarriers.failed = 0;
    Ok(state)
}

/// What a thread did before goes with the current phase.
fn release(machine: &mut Machine<'_>, offset: u64, me: Toucher) -> Result<(), Box<Trouble>> {
    let object = machine.mbarriers.find(offset)?;
    machine.shared.release_phase(&mut object.released, me);
    Ok(())
}

/// The answer to a test.
fn test(
    machine: &mut Machine<'_>,
    offset: u64,
    complete: bool,
    me: Toucher,
) -> Result<Option<Answer>, Box<Trouble>> {
    if !complete {
        return Ok(Some(Answer::Complete(None)));
    }
    settle(machine, offset)?;
    let object = machine.mbarriers.find(offset)?;
    let synced = machine.shared.acquire_phase(&mut object.released, me);
    Ok(Some(Answer::Complete(Some(synced))))
}

impl Object {
    /// Completes the phase if nothing is missing.
    fn advance(&mut self) {
        if self.pending == 0 && self.missing == 0 {
            self.phase = self.phase.wrapping_add(1);
            self.pending = self.expected;
            self.released.complete_phase();
            self.landed.append(&mut self.arrivals);
        }
    }
}

/// The block has ended: no byte of a copy may be missing or unexpected.
pub(super) fn ended(machine: &Machine<'_>) -> Result<(), (usize, Box<Raised>)> {
    let Some(object) = machine.mbarriers.objects.iter().find(|object| object.missing != 0) else {
        return Ok(());
    };
    let Toucher { thread, pc, .. } = object.counted_by;
    let wrong = MbarrierFault::Leaked { bytes: object.missing };
    let what = Raise::Trouble(fault(object.offset, wrong));
    Err((thread as usize / 32, Box::new(Raised { pc, lane: thread % 32, what })))
}
