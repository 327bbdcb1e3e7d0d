//! Which house rule a fault breaks, and where it lies in the contract's words. All faults of all
//! backends are attributed here.

use crate::prepare::{Owner, Place, Prepared, locate};
use crate::verdict::FaultReport;
use kernels::backend::Fault;
use ptx_vm::FaultKind;

/// A fault as a verdict: its clause, its tensor, and one paragraph for a reader.
pub fn fault_report(prepared: &Prepared<'_>, fault: &Fault) -> FaultReport {
    let named = |buffer: &str, offset: i64| {
        let buffers = &prepared.geometry.buffers;
        let found = buffers.iter().position(|facts| facts.name == *buffer);
        found.map(|index| locate(prepared, index as u32, offset))
    };
    let (clause, place, source) = match fault {
        Fault::Machine(fault) => {
            let place = fault.kind.buffer();
            let place = place.map(|buffer| locate(prepared, buffer.id.0, buffer.offset));
            let source = fault.source.as_ref();
            let source = source.map(|line| format!("{}:{}", line.file, line.line));
            (machine_clause(&fault.kind, place.as_ref()), place, source)
        }
        Fault::StrayWrite { buffer, offset_bytes, .. } => {
            let place = named(buffer, i64::try_from(*offset_bytes).unwrap_or(i64::MAX));
            (stray_write(place.as_ref()), place, None)
        }
        Fault::GuardWrite { buffer, offset_bytes, .. } => {
            ("house.guard", named(buffer, *offset_bytes), None)
        }
        Fault::Replay { buffer, offset_bytes, .. } => {
            let place = named(buffer, i64::try_from(*offset_bytes).unwrap_or(i64::MAX));
            ("house.capture", place, None)
        }
        Fault::Residue { .. } => ("house.repeat", None, None),
        // The GPU says only that an address was bad, or that time ran out.
        Fault::Device { .. } => ("house.bounds", None, None),
    };
    let mut text = fault.to_string();
    if let Some(place) = place.as_ref().filter(|place| place.owner != Owner::Scratch) {
        text.push_str(&format!("; that is {}", place.text));
    }
    FaultReport {
        clause: clause.to_owned(),
        text,
        tensor: place.and_then(|place| place.tensor),
        source,
    }
}

fn machine_clause(kind: &FaultKind, place: Option<&Place>) -> &'static str {
    match kind {
        FaultKind::Uninitialised { .. } => "house.initialised",
        FaultKind::UnreadRead { .. } => "house.unread",
        FaultKind::UnwritableWrite { .. } => stray_write(place),
        FaultKind::SharedRace { .. }
        | FaultKind::GlobalRace { .. }
        | FaultKind::BlockRace { .. }
        | FaultKind::ClusterRace { .. }
        | FaultKind::WarpRace { .. } => "house.races",
        FaultKind::BarrierDivergence { .. }
        | FaultKind::BarrierMismatch { .. }
        | FaultKind::ExitedAtBarrier { .. }
        | FaultKind::BadBarrier { .. }
        | FaultKind::Mbarrier { .. }
        | FaultKind::ShuffleInactive { .. }
        | FaultKind::BadMemberMask { .. }
        | FaultKind::MissingLane { .. }
        | FaultKind::DivergedBarrier { .. }
        | FaultKind::Cluster { .. }
        | FaultKind::CopyUnderWay
        | FaultKind::ProxyFence { .. }
        | FaultKind::Warpgroup { .. } => "house.barriers",
        FaultKind::InstructionBudget { .. }
        | FaultKind::MemoryBudget { .. }
        | FaultKind::NoProgress { .. } => "house.budget",
        FaultKind::OutOfBounds { .. }
        | FaultKind::Misaligned { .. }
        | FaultKind::CopySize { .. }
        | FaultKind::ConstWrite { .. }
        | FaultKind::BadBranchIndex { .. }
        | FaultKind::BadDescriptor { .. }
        | FaultKind::Tensor { .. }
        | FaultKind::Assertion { .. }
        | FaultKind::CallDepth
        | FaultKind::BadCall { .. }
        | FaultKind::Trap => "house.bounds",
    }
}

/// A store to what is only read, or to what nobody may touch.
fn stray_write(place: Option<&Place>) -> &'static str {
    match place.map(|place| place.owner) {
        Some(Owner::ReadOnly) => "house.read_only",
        _ => "house.dead_untouched",
    }
}
