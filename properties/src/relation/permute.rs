//! `permute`: the indices of an axis, or the places of a pool, in the opposite order give the same in
//! that order: nothing depends on where a sequence stands or where its state lies.

use super::alone::compare_kept;
use super::slice::{Kept, kept_axes, segment_dims, segments, sub_case};
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::verdict::Verdict;
use contracts::format::{List, OverAxis};

pub(super) fn permute(
    related: &mut Related<'_, '_>,
    over: &OverAxis,
) -> Result<Option<Verdict>, ToolError> {
    let (whole, axis) = (related.whole, &over.axis);
    let contract = whole.subject.contract;
    let size = whole.case.dims.get(axis).map_or(0, |size| (*size).max(0) as u64);
    if size < 2 {
        return Ok(None);
    }
    let backwards = |count: u64| (0..count).rev().map(|index| index..index + 1).collect();
    let mut kept = vec![Kept { dim: axis.clone(), ranges: backwards(size) }];
    let mut lists: Vec<(&str, Vec<i64>)> = Vec::new();
    let points_into = |list: &List| {
        let slots = list.slots.as_ref().is_some_and(|slots| slots.pool == *axis);
        slots || list.ids.as_ref().is_some_and(|ids| ids.below == *axis)
    };
    for (name, declared) in &contract.lists {
        let Some(items) = whole.case.lists.get(name) else { continue };
        if declared.each == *axis {
            for dim in segment_dims(contract, name) {
                let ranges = segments(items).into_iter().rev().collect();
                kept.push(Kept { dim: dim.clone(), ranges });
            }
        } else if points_into(declared) {
            let last = size as i64 - 1;
            let mapped = |item: &i64| if (0..=last).contains(item) { last - item } else { *item };
            lists.push((name, items.iter().map(mapped).collect()));
        }
    }
    let case = sub_case(whole, &kept, &lists)?;
    let what = format!("{axis} in the opposite order");
    let (part, observed) = match related.run(whole.subject, &case, &what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    let note = format!("expected is the whole run, observed {what}");
    if let Some(found) = compare_kept(related, &part, &observed, &kept, &note, &|_| true)? {
        return Ok(Some(found));
    }
    // What the order of a pool's places leaves where it is.
    let is_pool = contract.lists.values().any(points_into);
    let is_cut = |tensor: &str| kept_axes(contract, tensor, &kept).iter().any(Option::is_some);
    related.compare_same(&part, &observed, &note, &|tensor| is_pool && !is_cut(tensor))
}
