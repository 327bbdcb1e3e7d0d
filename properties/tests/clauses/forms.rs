//! The closed list of what a clause may be: every form of promise of the format, every house rule, every
//! refusal, every layout. Enumerated from the types, so that a new one has no row until it is shown.

use contracts::clause::HOUSE_RULES;
use contracts::format::{Contract, LayoutKind, Overflow, Reach, Rejection, Tolerance};
use contracts::{AutoReject, Clause, ClauseKind, contract};
use std::collections::BTreeSet;

/// Every form, as the rows name it.
pub fn every_form() -> BTreeSet<String> {
    let mut all: BTreeSet<String> = ["tolerance.bits", "tolerance.bound", "tolerance.saturates"]
        .into_iter()
        .chain([
            "drift",
            "nan.exact",
            "nan.row",
            "nan.chunk",
            "paths.takes",
            "paths.never",
            "requires",
            "mutants",
            "stores.packed",
        ])
        .chain(["rejects.set_dtype", "rejects.set_shape", "rejects.set_stride", "rejects.set_dim"])
        .map(str::to_owned)
        .collect();
    let relations = &contract("canary_steps").expect("it loads").relations;
    let forms = relations.values().next().expect("it has relations").forms();
    all.extend(forms.map(|(form, _)| format!("relations.{form}")));
    all.extend(HOUSE_RULES.map(|(rule, _)| format!("house.{rule}")));
    all.extend(AUTOMATIC.map(|what| format!("rejects.auto.{}", what.name())));
    all.extend(LAYOUTS.map(|kind| format!("layout.{}", layout(kind))));
    all
}

const AUTOMATIC: [AutoReject; 6] = [
    AutoReject::Dtype,
    AutoReject::Shape,
    AutoReject::Stride,
    AutoReject::Align,
    AutoReject::Kind,
    AutoReject::Alias,
];

/// Dense is what every other row shows.
const LAYOUTS: [LayoutKind; 7] = [
    LayoutKind::RowPadded,
    LayoutKind::OuterPadded,
    LayoutKind::Offset,
    LayoutKind::Permuted,
    LayoutKind::OddUnitStrides,
    LayoutKind::Wide,
    LayoutKind::Rank0,
];

fn layout(kind: LayoutKind) -> &'static str {
    match kind {
        LayoutKind::Dense => "dense",
        LayoutKind::RowPadded => "row_padded",
        LayoutKind::OuterPadded => "outer_padded",
        LayoutKind::Offset => "offset",
        LayoutKind::Permuted => "permuted",
        LayoutKind::OddUnitStrides => "odd_unit_strides",
        LayoutKind::Wide => "wide",
        LayoutKind::Rank0 => "rank0",
    }
}

/// The form of one clause of a contract.
pub fn form_of(contract: &Contract, clause: &Clause) -> String {
    match &clause.kind {
        ClauseKind::Tolerance { tensor, class } => tolerance(&contract.tolerance[tensor][class]),
        ClauseKind::Drift { .. } => "drift".to_owned(),
        ClauseKind::Nan { tensor } => {
            let reach = contract.nan.as_ref().map(|nan| nan.reach[tensor]);
            match reach {
                Some(Reach::Row) => "nan.row",
                Some(Reach::Chunk) => "nan.chunk",
                Some(Reach::Exact) | None => "nan.exact",
            }
            .to_owned()
        }
        ClauseKind::Relation(name) => {
            let forms = contract.relations[name].forms();
            let form = forms.iter().find(|(_, is)| *is).map_or("none", |(form, _)| *form);
            format!("relations.{form}")
        }
        ClauseKind::Path(name) => {
            let forms = contract.paths[name].forms();
            let form = forms.iter().find(|(_, is)| *is).map_or("none", |(form, _)| *form);
            format!("paths.{form}")
        }
        ClauseKind::Requires(_) => "requires".to_owned(),
        ClauseKind::Rejects(name) => rejection(&contract.rejects[name]).to_owned(),
        ClauseKind::AutoReject { what, .. } => format!("rejects.auto.{}", what.name()),
        ClauseKind::House(rule) => format!("house.{rule}"),
        ClauseKind::Mutant(_) => "mutants".to_owned(),
    }
}

fn tolerance(tolerance: &Tolerance) -> String {
    match &tolerance.bound {
        Some(bound) if bound.overflow == Overflow::Saturates => "tolerance.saturates",
        Some(_) => "tolerance.bound",
        None => "tolerance.bits",
    }
    .to_owned()
}

fn rejection(rejection: &Rejection) -> &'static str {
    let Rejection { set_dtype, set_shape, set_stride, set_dim, .. } = rejection;
    match (set_dtype.len(), set_shape.len(), set_stride.len(), set_dim.len()) {
        (1.., ..) => "rejects.set_dtype",
        (_, 1.., ..) => "rejects.set_shape",
        (_, _, 1.., _) => "rejects.set_stride",
        _ => "rejects.set_dim",
    }
}
