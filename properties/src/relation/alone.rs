//! `alone`: each index of an axis, run by itself, gives what it gave among the others.

use super::comparison::Comparison;
use super::slice::{Kept, kept_axes, segment_dims, segments, source_of, sub_case};
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::oracle::{Observed, each};
use crate::prepare::Prepared;
use crate::verdict::Verdict;
use contracts::format::OverAxis;

pub(super) fn alone(
    related: &mut Related<'_, '_>,
    over: &OverAxis,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let count = whole.case.dims.get(&over.axis).copied().unwrap_or(0).max(0) as u64;
    for index in 0..count {
        let kept = kept(whole, &over.axis, index);
        let case = sub_case(whole, &kept, &[])?;
        let what = format!("index {index} of {} alone", over.axis);
        let (prepared, observed) = match related.run(whole.subject, &case, &what)? {
            SubRun::Ran(prepared, observed) => (prepared, observed),
            SubRun::Ended(verdict) => return Ok(Some(verdict)),
        };
        let note = format!("expected is the whole run, observed {what}");
        if let Some(found) = compare_kept(related, &prepared, &observed, &kept, &note, &|_| true)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// One index of an axis, and the rows of its segment of every axis that is segments over it.
fn kept(whole: &Prepared<'_>, axis: &str, index: u64) -> Vec<Kept> {
    let contract = whole.subject.contract;
    let one = index..index + 1;
    let mut kept = vec![Kept { dim: axis.to_owned(), ranges: vec![one] }];
    for (name, declared) in &contract.lists {
        if declared.each != axis {
            continue;
        }
        let Some(lengths) = whole.case.lists.get(name) else { continue };
        for dim in segment_dims(contract, name) {
            let ranges = segments(lengths).get(index as usize).cloned().into_iter().collect();
            kept.push(Kept { dim: dim.clone(), ranges });
        }
    }
    kept
}

/// Compares every written tensor of a sub-run with the elements of the whole it was cut from: along
/// kept axes element by element; a pool, of which no axis is kept, slot by slot. `wanted` says which
/// tensors. Tensors that are neither describe the whole call and are passed over.
pub(super) fn compare_kept(
    related: &mut Related<'_, '_>,
    part: &Prepared<'_>,
    observed: &Observed,
    kept: &[Kept],
    note: &str,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Option<Verdict>, ToolError> {
    let contract = related.whole.subject.contract;
    for place in part.written() {
        let tensor = &part.geometry.tensors[place];
        let Some(whole_place) =
            related.whole.geometry.tensors.iter().position(|other| other.name == tensor.name)
        else {
            continue;
        };
        let axes = kept_axes(contract, &tensor.name, kept);
        let is_cut = axes.iter().any(Option::is_some);
        let is_pool =
            contract.tensors.get(&tensor.name).is_some_and(|declared| declared.live.is_some());
        if !is_cut && !is_pool || !wanted(&tensor.name) {
            continue;
        }
        let (whole, all) = (related.whole, related.observed);
        let shape = &whole.geometry.tensors[whole_place].shape;
        let compare = related.relation.compare;
        let mut comparison = Comparison::of(
            related.clause,
            (whole, all),
            whole_place,
            compare,
            None,
            note.to_owned(),
        )?;
        each(&part.live[place], tensor.dtype, &observed.tensors[place], |flat, bits| {
            if let Some(source) = source_of(flat, shape, &tensor.shape, &axes) {
                comparison.element(source, bits);
            }
        });
        let (compared, found) = comparison.finish();
        related.compared += compared;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
