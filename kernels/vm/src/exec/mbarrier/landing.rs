//! Bytes of bulk copies that come with the phases of mbarriers: kept back until a test sees their
//! phase complete, unless there are too many of them.

use super::super::access::shared_trouble;
use super::super::copy;
use super::super::machine::{Machine, Trouble};
use super::super::reduction::Combine;
use super::{BYTES, expect, release, touch};
use crate::rare::Act;
use crate::shared::{Released, Touch, Toucher};

/// Copies of complete phases that are kept back until somebody tests; more are there at once.
const MOST_LANDED: usize = 256;
/// Copies of one phase, and bytes of them, more than a block's memory holds; with more, those before
/// are there at once, as they may be.
const MOST_ON_THE_WAY: usize = 4096;
const MOST_BYTES_ON_THE_WAY: usize = 1 << 19;
/// Bytes of a bulk copy that are not there yet.
pub(super) struct Arrival {
    pub offset: u64,
    pub bytes: Vec<u8>,
    pub by: Toucher,
    /// The epoch of its clocks.
    age: u64,
    /// The block that sent it, where that is another one.
    pub from: Option<u32>,
    /// They are combined with what stands there.
    combines: Option<Combine>,
}

/// Bytes of an asynchronous copy, each piece with its place, come with the current phase.
pub(in super::super) fn bring(
    machine: &mut Machine<'_>,
    offset: u64,
    pieces: impl IntoIterator<Item = (u64, Vec<u8>)>,
    combines: Option<Combine>,
    by: Toucher,
) -> Result<(), Box<Trouble>> {
    touch(machine, Act::Complete, offset, by)?;
    let from = machine.cluster.visitor().map(|who| who.block);
    for (to, bytes) in pieces {
        expect(machine, offset, -(bytes.len() as i64), by)?;
        if machine.mbarriers.find(offset)?.landed.len() > MOST_LANDED {
            settle(machine, offset)?;
        }
        if bytes.is_empty() {
            continue;
        }
        bound(machine, offset)?;
        let age = machine.shared.age();
        let arrival = Arrival { offset: to, bytes, by, age, from, combines };
        machine.mbarriers.find(offset)?.arrivals.push(arrival);
    }
    release(machine, offset, by)?;
    machine.mbarriers.find(offset)?.advance();
    Ok(())
}

/// Makes room for another copy of a phase.
fn bound(machine: &mut Machine<'_>, offset: u64) -> Result<(), Box<Trouble>> {
    let object = machine.mbarriers.find(offset)?;
    let bytes = object.arrivals.iter().map(|arrival| arrival.bytes.len()).sum::<usize>();
    if object.arrivals.len() < MOST_ON_THE_WAY && bytes < MOST_BYTES_ON_THE_WAY {
        return Ok(());
    }
    let early = std::mem::take(&mut object.arrivals);
    let mut released = std::mem::take(&mut object.released);
    for arrival in early {
        land(machine, arrival, &mut released)?;
    }
    machine.mbarriers.find(offset)?.released = released;
    Ok(())
}

/// What an asynchronous copy brought is there.
fn land(
    machine: &mut Machine<'_>,
    arrival: Arrival,
    released: &mut Released,
) -> Result<(), Box<Trouble>> {
    let Arrival { offset, mut bytes, by, age, from, combines } = arrival;
    let by = machine.shared.landing(by, age, released);
    let (at, len) = (offset as usize, bytes.len());
    if let Some(combines) = combines {
        combines.all(&machine.shared.data[at..at + len], &mut bytes);
    }
    if !machine.checks {
        machine.shared.data[at..at + len].copy_from_slice(&bytes);
    } else if from.is_some() || combines.is_some() {
        machine.shared.settle(at, &bytes);
    } else {
        let stored = machine.shared.store(offset, &bytes, by, Touch::Write);
        stored.map_err(|fault| shared_trouble(machine, fault, offset, len as u32, true))?;
    }
    Ok(())
}

/// What came with complete phases is there from now on.
pub(super) fn settle(machine: &mut Machine<'_>, offset: u64) -> Result<(), Box<Trouble>> {
    let object = machine.mbarriers.find(offset)?;
    let phase = object.phase;
    let landed = std::mem::take(&mut object.landed);
    let mut released = std::mem::take(&mut object.released);
    machine.changes += u64::from(!landed.is_empty());
    for arrival in landed {
        land(machine, arrival, &mut released)?;
    }
    if machine.cluster.is_several() {
        // Whoever arrived from afar has been waited for.
        machine.shared.forget_distant(offset as usize, BYTES);
    }
    copy::arrived(machine, offset, phase, &mut released)?;
    machine.mbarriers.find(offset)?.released = released;
    Ok(())
}
