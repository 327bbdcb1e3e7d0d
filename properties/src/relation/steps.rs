//! `steps`: one row of each segment a run, with what is carried handed on, gives what one run gave.

use super::alone::compare_kept;
use super::slice::{Kept, overlaid, segment_dims, segments, sub_case};
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::verdict::Verdict;
use contracts::case::{Content, Decisions};
use contracts::format::Carried;

/// Longer segments are left to shorter cases: each row is a run.
const MOST_STEPS: u64 = 64;

pub(super) fn steps(
    related: &mut Related<'_, '_>,
    carried: &Carried,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let contract = whole.subject.contract;
    let Some(lengths) = whole.case.lists.get(&carried.list) else { return Ok(None) };
    let all = segments(lengths);
    let longest = all.iter().map(|segment| segment.end - segment.start).max().unwrap_or(0);
    if longest > MOST_STEPS {
        return Ok(None);
    }
    let is_carried = |tensor: &str| carried.carry.iter().any(|name| name == tensor);
    let mut states: Decisions<Content> = Decisions::new();
    for step in 0..longest {
        let has_row = |segment: &std::ops::Range<u64>| segment.start + step < segment.end;
        let row = |segment: &std::ops::Range<u64>| segment.start + step..segment.start + step + 1;
        let ranges: Vec<_> = all.iter().filter(|one| has_row(one)).map(row).collect();
        let ones: Vec<i64> = all.iter().map(|segment| i64::from(has_row(segment))).collect();
        let kept: Vec<Kept> = segment_dims(contract, &carried.list)
            .map(|dim| Kept { dim: dim.clone(), ranges: ranges.clone() })
            .collect();
        let mut case = sub_case(whole, &kept, &[(&carried.list, ones)])?;
        for (name, state) in &states {
            if let Some(target) = case.tensors.get_mut(name) {
                target.content.clone_from(state);
            }
        }
        let what = format!("row {step} of each of {}", carried.list);
        let (part, observed) = match related.run(whole.subject, &case, &what)? {
            SubRun::Ran(prepared, observed) => (prepared, observed),
            SubRun::Ended(verdict) => return Ok(Some(verdict)),
        };
        let note = format!("expected is the whole run, observed {what}, one run a row");
        let is_last = step + 1 == longest;
        let wanted = |tensor: &str| is_last || !is_carried(tensor);
        let found = compare_kept(related, &part, &observed, &kept, &note, &wanted)?;
        if found.is_some() {
            return Ok(found);
        }
        for (place, tensor) in part.geometry.tensors.iter().enumerate() {
            if is_carried(&tensor.name) {
                let old = &case.tensors[&tensor.name].content;
                let (runs, bytes) = (&part.live[place], &observed.tensors[place]);
                let state = overlaid(old, tensor.dtype, tensor.count(), runs, bytes);
                states.insert(tensor.name.clone(), state);
            }
        }
    }
    Ok(None)
}
