//! The adapter `rows_accepted`: a round that writes its state for the accepted rows alone equals the same
//! round of a kernel that leaves the state after every row in `snap`. Equal names correspond; outputs of
//! both are compared as they are, and each slot of `s` with the state after its last accepted row.

use super::comparison::Comparison;
use super::slice::segments;
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::generate::complete;
use crate::oracle::Observed;
use crate::prepare::{Prepared, missing};
use crate::subject::subject;
use crate::verdict::Verdict;
use contracts::case::{Case, Content, Decisions};
use contracts::format::{Contract, Equals};

pub(super) fn rows_accepted(
    related: &mut Related<'_, '_>,
    equals: &Equals,
) -> Result<Option<Verdict>, ToolError> {
    let target = missing(
        || format!("{}: the contract `{}` is not registered", related.clause, equals.contract),
        subject(&equals.contract),
    )?;
    let case = round(related.whole, target.contract, equals)?;
    let what = format!("the same rows by {}", equals.contract);
    let (part, observed) = match related.run(target, &case, &what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    let note = format!("expected is the whole run, observed {what}");
    let found = related.compare_same(&part, &observed, &note, &|name| name != "s")?;
    if found.is_some() {
        return Ok(found);
    }
    states(related, &part, &observed, note)
}

/// The round as the other contract puts it: what it names alike, and its first words for the rest.
fn round(whole: &Prepared<'_>, target: &Contract, equals: &Equals) -> Result<Case, ToolError> {
    let mut case = Case {
        found: None,
        stores: Decisions::new(),
        tensors: Decisions::new(),
        ..super::skeleton(whole.case)
    };
    for (name, word) in &equals.set {
        case.options.insert(name.clone(), word.0.clone());
    }
    case.dims.retain(|name, _| target.dims.contains_key(name));
    case.lists.retain(|name, _| target.lists.contains_key(name));
    case.scalars.retain(|name, _| target.scalars.contains_key(name));
    complete(target, &mut case).map_err(ToolError::Case)?;
    for (name, tensor) in &mut case.tensors {
        let given = whole.case.tensors.get(name).map(|given| &given.content);
        if let (Some(given), false) =
            (given, matches!(tensor.content, Content::Derived | Content::Output))
        {
            tensor.content = given.clone();
        }
    }
    Ok(case)
}

/// Each slot the round wrote, with the other's state after as many rows; of none, what it held before.
fn states(
    related: &mut Related<'_, '_>,
    part: &Prepared<'_>,
    observed: &Observed,
    note: String,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let state = whole.written().find(|place| whole.geometry.tensors[*place].name == "s");
    let Some(state) = state else { return Ok(None) };
    let snap = part.written().find(|place| part.geometry.tensors[*place].name == "snap");
    let snap = missing(|| format!("{}: the other round has no `snap`", related.clause), snap)?;
    let list = |name: &str| {
        let lists = &whole.case.lists;
        missing(|| format!("{}: there is no list `{name}`", related.clause), lists.get(name))
    };
    let (lengths, slots, accepted) = (list("seq_len")?, list("slot")?, list("accepted")?);
    let tensor = &whole.geometry.tensors[state];
    let count = tensor.row_count();
    let before = whole.case.tensors.get("s").map(|stored| &stored.content);
    let run = (whole, related.observed);
    let compare = related.relation.compare;
    let mut comparison = Comparison::of(related.clause, run, state, compare, None, note)?;
    for (segment, (slot, accepted)) in segments(lengths).into_iter().zip(slots.iter().zip(accepted))
    {
        let Ok(slot) = u64::try_from(*slot) else { continue };
        let rows = u64::try_from(*accepted).unwrap_or(0).min(segment.end - segment.start);
        for element in 0..count {
            let flat = slot * count + element;
            let bits = match rows {
                0 => before.map(|before| before.bits(tensor.dtype, flat)),
                _ => observed.bits(part, snap, (segment.start + rows - 1) * count + element),
            };
            if let Some(bits) = bits {
                comparison.element(flat, bits);
            }
        }
    }
    let (compared, found) = comparison.finish();
    related.compared += compared;
    Ok(found)
}
