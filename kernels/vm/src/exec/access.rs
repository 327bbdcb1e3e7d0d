//! Loads of a warp, and what loads and stores share. Consecutive and equal addresses take a
//! short way; whatever it refuses goes lane by lane, and there the faults are named.

use super::address::{GLOBAL_START, Shape, Target, addresses, offset, place, resolve, space_of};
use super::deliver::deliver;
use super::machine::{Machine, Trouble};
use super::step::Laned;
use super::warp::{Warp, lanes};
use super::{cluster, copy};
use crate::fault::{FaultKind, MemorySpace};
use crate::memory::{Page, marks};
use crate::module::Owner;
use crate::program::{Access, Scope};
use crate::race::{Act, Foe, Races};
use crate::shared::{SharedFault, Touch, Toucher};
use crate::space::DATA_BASE;
use crate::syntax::Space;
use std::ops::Range;

#[inline(always)]
pub(crate) fn toucher(warp: &Warp, lane: usize, pc: u32) -> Toucher {
    let Warp { clock, synced, .. } = *warp;
    Toucher { thread: warp.index * 32 + lane as u32, clock, synced, pc }
}

pub(crate) fn shared_trouble(
    machine: &Machine<'_>,
    fault: SharedFault,
    offset: u64,
    bytes: u32,
    store: bool,
) -> Box<Trouble> {
    let visited = machine.cluster.visitor().is_some();
    let space = if visited { MemorySpace::Cluster } else { MemorySpace::Shared };
    match fault {
        SharedFault::OutOfBounds => machine.out_of_bounds(space, offset, bytes, store),
        SharedFault::Uninitialised { offset } => {
            let kind =
                FaultKind::Uninitialised { space, buffer: None, offset, access_bytes: bytes };
            Box::new(Trouble { kind, other: copy::on_the_way(machine, offset) })
        }
        SharedFault::Race { race, mut other } => {
            let rank = machine.cluster.rank_at_hand();
            let kind = if visited || other.block.is_some() {
                FaultKind::ClusterRace { rank, offset, access_bytes: bytes, race }
            } else {
                FaultKind::SharedRace { offset, access_bytes: bytes, race }
            };
            if visited {
                let owner = machine.clusters.block(machine.cluster.number, rank);
                other.block = other.block.or(Some(machine.clusters.number(owner) as u32));
            }
            Box::new(Trouble { kind, other: Some(other) })
        }
    }
}

/// Checks the marks of a global load.
#[inline(always)]
pub(crate) fn readable(shadow: &[u8]) -> bool {
    const MASK: u64 = u64::from_ne_bytes([marks::INIT | marks::UNREAD; 8]);
    const FINE: u64 = u64::from_ne_bytes([marks::INIT; 8]);
    let wrong = |eight: &[u8; 8]| u64::from_ne_bytes(*eight) & MASK ^ FINE;
    let (chunks, rest) = shadow.as_chunks::<32>();
    let mut all = [0; 4];
    for chunk in chunks {
        let eights = chunk.as_chunks::<8>().0;
        for i in 0..4 {
            all[i] |= wrong(&eights[i]);
        }
    }
    let mut any = all[0] | all[1] | all[2] | all[3];
    let (eights, rest) = rest.as_chunks::<8>();
    for eight in eights {
        any |= wrong(eight);
    }
    for mark in rest {
        any |= u64::from(mark & (marks::INIT | marks::UNREAD) ^ marks::INIT);
    }
    any == 0
}

/// Names what forbids a load of global bytes.
pub(crate) fn unreadable(
    machine: &mut Machine<'_>,
    address: u64,
    bytes: u64,
) -> Option<Box<Trouble>> {
    let (page, at) = machine.memory.window(address, bytes)?;
    let shadow = &page.marks[at..at + bytes as usize];
    let first =
        shadow.iter().position(|mark| mark & marks::INIT == 0 || mark & marks::UNREAD != 0)?;
    let poisoned = shadow[first] & marks::UNREAD != 0;
    let place = machine.buffer_place(address + first as u64)?;
    Some(if poisoned {
        FaultKind::UnreadRead { buffer: place }.into()
    } else {
        FaultKind::Uninitialised {
            space: MemorySpace::Global,
            offset: place.offset as u64,
            buffer: Some(place),
            access_bytes: bytes as u32,
        }
        .into()
    })
}

/// Loads of lanes side by side or at one place, when nothing stands against it; `false` asks for
/// [`load_each`].
#[inline(always)]
pub(crate) fn load<const CHECKS: bool, const BYTES: usize>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Access,
    mask: u32,
    pc: u32,
) -> bool {
    let bytes = BYTES as u64;
    let (first, shape) = place(warp, what, mask, bytes);
    let aligned = first & (bytes - 1) == 0;
    let span = match shape {
        Shape::Uniform => bytes,
        Shape::Run(n) => bytes * n as u64,
        Shape::Scattered => 0,
    };
    if aligned && span != 0 {
        let global = matches!(what.space, Space::Global | Space::Generic) && first >= GLOBAL_START;
        if global
            && let Some((page, at)) = machine.memory.window(first, span)
            && (!CHECKS || readable(&page.marks[at..at + span as usize]))
        {
            if CHECKS && machine.races.on {
                let lane = mask.trailing_zeros() as usize & 31;
                let me = toucher(warp, lane, pc);
                let span = at..at + span as usize;
                if what.strong || !recorded(machine.races, page, span, bytes as usize, me) {
                    return false;
                }
            }
            let data = &page.data[at..at + span as usize];
            deliver::<BYTES>(warp, what, mask, shape, data);
            return true;
        }
        if what.space == Space::Shared && !what.strong {
            let at = first as usize;
            let me = toucher(warp, 0, pc);
            let ok = match shape {
                _ if !CHECKS => first.saturating_add(span) <= machine.shared.data.len() as u64,
                Shape::Run(n) => machine.shared.read_run(first, n, bytes as usize, me),
                _ => {
                    // Two readers stand for all: more change nothing in the records.
                    let a = mask.trailing_zeros();
                    let b = (mask & mask.wrapping_sub(1)).trailing_zeros();
                    let lane = |lane| Toucher { thread: warp.index * 32 + lane, ..me };
                    let b = (b < 32).then(|| lane(b));
                    machine.shared.read_same::<BYTES>(first, lane(a), b)
                }
            };
            if ok {
                let data = &machine.shared.data[at..at + span as usize];
                deliver::<BYTES>(warp, what, mask, shape, data);
                return true;
            }
        }
    }
    false
}

/// Records weak loads of lanes side by side where a store of another block could meet them; false
/// when one may have.
#[inline(always)]
fn recorded(
    races: &mut Races,
    page: &mut Page,
    span: Range<usize>,
    bytes: usize,
    me: Toucher,
) -> bool {
    let len = page.data.len();
    constant(page, span.clone())
        || races.run::<false>(&mut page.shadow, len, span.start, span.len(), bytes, me)
}

/// Whether nobody may store to any of the bytes: nothing races with a load of them.
#[inline(always)]
pub(super) fn constant(page: &Page, span: Range<usize>) -> bool {
    if page.constant {
        return true;
    }
    let shadow = &page.marks[span];
    if shadow.first().is_none_or(|mark| mark & marks::UNWRITABLE == 0) {
        return false;
    }
    let mut all = marks::UNWRITABLE;
    for mark in shadow {
        all &= *mark;
    }
    all != 0
}

/// Calls `f::<CHECKS, BYTES>`, so that each size of an access has code of its own.
macro_rules! by_size {
    ($bytes:expr, $f:ident($($arg:expr),*)) => {
        match $bytes {
            1 => $f::<CHECKS, 1>($($arg),*),
            2 => $f::<CHECKS, 2>($($arg),*),
            4 => $f::<CHECKS, 4>($($arg),*),
            8 => $f::<CHECKS, 8>($($arg),*),
            16 => $f::<CHECKS, 16>($($arg),*),
            _ => $f::<CHECKS, 32>($($arg),*),
        }
    };
}

pub(super) use by_size;

/// Loads lane by lane, and names what is wrong.
#[inline(always)]
pub(crate) fn load_each<const CHECKS: bool>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Access,
    mask: u32,
    pc: u32,
) -> Result<(), Laned> {
    let addresses = &addresses(warp, what.base, offset(warp, what) as i64);
    by_size!(what.bytes(), gather(warp, machine, what, mask, pc, addresses))
}

#[inline(always)]
fn gather<const CHECKS: bool, const BYTES: usize>(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Access,
    mask: u32,
    pc: u32,
    addresses: &[u64; 32],
) -> Result<(), Laned> {
    let mut buffer = [[0u8; BYTES]; 32];
    let done = match what.space {
        Space::Global | Space::Generic if !(what.strong && machine.races.on) => {
            let first = toucher(warp, 0, pc);
            gather_global::<CHECKS, BYTES>(machine, mask, addresses, first, &mut buffer)
        }
        Space::Shared if CHECKS && !what.strong => {
            let first = toucher(warp, 0, pc);
            machine.shared.read_apart(addresses, mask, first, &mut buffer)
        }
        _ => false,
    };
    if !done {
        machine.within(what.scope);
        for l in lanes(mask) {
            let target = resolve(what.space, addresses[l]);
            let me = toucher(warp, l, pc);
            if CHECKS && what.strong {
                acquire(machine, target, me);
            }
            read_one::<CHECKS>(machine, target, &mut buffer[l], me, what.strong)
                .map_err(|trouble| (l as u32, trouble))?;
        }
        machine.within(Scope::Wide);
    }
    deliver::<BYTES>(warp, what, mask, Shape::Run(32), buffer.as_flattened());
    Ok(())
}

/// Where a flag for threads of the block may stand: an offset in shared memory, or an address, which
/// is larger than any.
pub(super) fn flag_place(target: Target) -> Option<u64> {
    match target {
        Target::Global(address) => Some(address),
        Target::Data(offset) => Some(DATA_BASE + offset),
        Target::Shared(offset) => Some(offset),
        _ => None,
    }
}

/// A strong load learns what was released there.
pub(crate) fn acquire(machine: &mut Machine<'_>, target: Target, me: Toucher) {
    if let Some(place) = flag_place(target)
        && machine.shared.flagged(me.thread / 32)
    {
        machine.shared.look(place, me);
    }
    if machine.races.on {
        match target {
            Target::Global(address) => machine.races.acquire(me.thread / 32, address),
            Target::Data(offset) => machine.races.acquire(me.thread / 32, DATA_BASE + offset),
            Target::Shared(offset) => machine.learn(offset, me),
            // What is wrong with the address, the load says.
            Target::Cluster(address) => {
                let _ = machine.reach(address, me, |machine, offset| {
                    machine.learn(offset, me);
                    Ok(())
                });
            }
            _ => {}
        }
    }
}

/// What an access of another block or warp stands against it, as a fault.
#[cold]
pub(crate) fn block_race(machine: &Machine<'_>, address: u64, foe: Foe) -> Box<Trouble> {
    let address = address + foe.byte as u64;
    let buffer = machine.buffer_place(address);
    let race = foe.race;
    let kind = match foe.other.block {
        Some(_) => FaultKind::BlockRace { buffer, address, race },
        None => FaultKind::WarpRace { buffer, address, race },
    };
    Box::new(Trouble { kind, other: Some(foe.other) })
}

/// All lanes' bytes when they lie in buffers and nothing is wrong with any of them.
#[inline(always)]
pub(super) fn gather_global<const CHECKS: bool, const BYTES: usize>(
    machine: &mut Machine<'_>,
    mask: u32,
    addresses: &[u64; 32],
    first: Toucher,
    buffer: &mut [[u8; BYTES]],
) -> bool {
    let recorded = if CHECKS { machine.races.scattered(first, BYTES) } else { None };
    let mut left = mask;
    while left != 0 {
        let start = addresses[left.trailing_zeros() as usize & 31];
        if start < GLOBAL_START {
            return false;
        }
        let Some((page, at)) = machine.memory.window(start, BYTES as u64) else {
            return false;
        };
        // The lanes that follow in the same page.
        for l in lanes(left) {
            let from = addresses[l].wrapping_sub(start).wrapping_add(at as u64);
            if from >= page.data.len() as u64 {
                break;
            }
            let (from, end) = (from as usize, from as usize + BYTES);
            let (Some(data), Some(shadow)) = (page.data.get(from..end), page.marks.get(from..end))
            else {
                break;
            };
            if addresses[l] & (BYTES as u64 - 1) != 0 || CHECKS && !readable(shadow) {
                return false;
            }
            if let Some(first) = recorded
                && !constant(page, from..end)
            {
                let mine = first + ((l as u32) << 4);
                let len = page.data.len();
                if !machine.races.single::<false, BYTES>(&mut page.shadow, len, from, mine) {
                    return false;
                }
            }
            buffer[l].copy_from_slice(data);
            left &= left - 1;
        }
    }
    true
}

/// Reads one thread's bytes, or says why not.
#[inline(always)]
pub(crate) fn read_one<const CHECKS: bool>(
    machine: &mut Machine<'_>,
    target: Target,
    out: &mut [u8],
    me: Toucher,
    strong: bool,
) -> Result<(), Box<Trouble>> {
    let len = out.len();
    let bytes = len as u32;
    let (space, offset) = space_of(target);
    if !offset.is_multiple_of(len as u64) {
        return Err(machine.misaligned(space, offset, bytes, false));
    }
    match target {
        Target::Global(address) => {
            let Some((page, at)) = machine.memory.window(address, len as u64) else {
                return Err(machine.out_of_bounds(space, address, bytes, false));
            };
            if CHECKS && !readable(&page.marks[at..at + len]) {
                if let Some(trouble) = unreadable(machine, address, len as u64) {
                    return Err(trouble);
                }
                return Ok(());
            }
            if CHECKS && machine.races.on && !constant(page, at..at + len) {
                let act = Act { store: false, strong, harmless: false, same: false };
                let page_len = page.data.len();
                if let Err(foe) = machine.races.touch(&mut page.shadow, page_len, at, len, me, act)
                {
                    return Err(block_race(machine, address, foe));
                }
                if let Some((page, at)) = machine.memory.window(address, len as u64) {
                    out.copy_from_slice(&page.data[at..at + len]);
                }
                return Ok(());
            }
            out.copy_from_slice(&page.data[at..at + len]);
        }
        Target::Shared(offset) => {
            if CHECKS {
                let touch = if strong { Touch::StrongRead } else { Touch::Read };
                let result = machine.shared.load(offset, len, me, touch);
                result.map_err(|fault| shared_trouble(machine, fault, offset, bytes, false))?;
            }
            let data = &machine.shared.data;
            match slice(data, offset, len) {
                Some(data) => out.copy_from_slice(data),
                None => return Err(machine.out_of_bounds(space, offset, bytes, false)),
            }
        }
        Target::Cluster(address) => return cluster::read(machine, address, out, me, strong),
        _ => return read_other::<CHECKS>(machine, target, out, me, strong),
    }
    Ok(())
}

/// The same for the spaces of a thread or of all.
#[inline(never)]
fn read_other<const CHECKS: bool>(
    machine: &mut Machine<'_>,
    target: Target,
    out: &mut [u8],
    me: Toucher,
    strong: bool,
) -> Result<(), Box<Trouble>> {
    let (len, bytes) = (out.len(), out.len() as u32);
    let (space, _) = space_of(target);
    match target {
        Target::Local(offset) => {
            let Some(at) = local_at(machine, offset, len, me.thread) else {
                return Err(machine.out_of_bounds(space, offset, bytes, false));
            };
            if CHECKS && !machine.local.init[at..at + len].iter().all(|i| *i) {
                return Err(FaultKind::Uninitialised {
                    space,
                    buffer: None,
                    offset,
                    access_bytes: bytes,
                }
                .into());
            }
            out.copy_from_slice(&machine.local.data[at..at + len]);
        }
        Target::Param(offset) => match slice(machine.parameters, offset, len) {
            Some(data) => out.copy_from_slice(data),
            None => return Err(machine.out_of_bounds(space, offset, bytes, false)),
        },
        Target::Data(offset) => {
            let Some(range) = machine.module.owned(offset, len) else {
                return Err(machine.out_of_bounds(space, offset, bytes, false));
            };
            let global = machine.module.owners[range.start] == Owner::Global;
            out.copy_from_slice(&machine.data[range]);
            if CHECKS && machine.races.on && global {
                let act = Act { store: false, strong, harmless: false, same: false };
                touch_data(machine, offset, len, me, act)?;
            }
        }
        Target::Global(_) | Target::Shared(_) | Target::Cluster(_) => {}
    }
    Ok(())
}

/// Records an access of the module's own variables.
pub(crate) fn touch_data(
    machine: &mut Machine<'_>,
    offset: u64,
    len: usize,
    me: Toucher,
    act: Act,
) -> Result<(), Box<Trouble>> {
    let races = &mut *machine.races;
    let mut shadow = std::mem::take(&mut races.data);
    let result = races.touch(&mut shadow, machine.data.len(), offset as usize, len, me, act);
    races.data = shadow;
    result.map_err(|foe| block_race(machine, DATA_BASE + offset, foe))
}

fn slice(data: &[u8], offset: u64, len: usize) -> Option<&[u8]> {
    let at = usize::try_from(offset).ok()?;
    data.get(at..at.checked_add(len)?)
}

pub(crate) fn local_at(
    machine: &Machine<'_>,
    offset: u64,
    len: usize,
    thread: u32,
) -> Option<usize> {
    let size = machine.local.bytes_per_thread;
    let end = usize::try_from(offset).ok()?.checked_add(len)?;
    (end <= size).then(|| thread as usize * size + offset as usize)
}
