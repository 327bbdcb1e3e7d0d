//! `split`: each segment cut in two, the second part run after the first with what it carries, gives
//! what one run gave. Where the cuts lie follows from the lengths alone, so shrinking values keeps them.

use super::alone::compare_kept;
use super::slice::{Kept, overlaid, segment_dims, segments, sub_case};
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::choices::mix;
use crate::verdict::Verdict;
use contracts::CaseScope;
use contracts::format::Split;

pub(super) fn split(
    related: &mut Related<'_, '_>,
    split: &Split,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let contract = whole.subject.contract;
    let step = split.at.eval_int(&CaseScope::new(contract, whole.case));
    let step = step.map_err(|error| {
        ToolError::Missing(format!("{}: `{}`: {error}", related.clause, split.at))
    })?;
    let Some(lengths) = whole.case.lists.get(&split.list) else { return Ok(None) };
    let cuts = cuts(lengths, (step as i64).max(1));
    if cuts.iter().all(|cut| *cut == 0) {
        return Ok(None);
    }
    let rest: Vec<i64> = lengths.iter().zip(&cuts).map(|(length, cut)| length - cut).collect();
    let all = segments(lengths);
    let kept = |first: bool| -> Vec<Kept> {
        let ranges = all.iter().zip(&cuts).map(|(segment, cut)| {
            let middle = segment.start + *cut as u64;
            if first { segment.start..middle } else { middle..segment.end }
        });
        let ranges: Vec<_> = ranges.collect();
        segment_dims(contract, &split.list)
            .map(|dim| Kept { dim: dim.clone(), ranges: ranges.clone() })
            .collect()
    };

    let first_kept = kept(true);
    let first_case = sub_case(whole, &first_kept, &[(&split.list, cuts.clone())])?;
    let what = format!("the first part, {} {cuts:?}", split.list);
    let (first, first_left) = match related.run(whole.subject, &first_case, &what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    let note = |part: &str| {
        format!(
            "expected is the whole run, observed the {part} of two, cut after {} {cuts:?}",
            split.list
        )
    };
    let is_carried = |tensor: &str| split.carry.iter().any(|carried| carried == tensor);
    let is_cut = |tensor: &str| !is_carried(tensor);
    let found = compare_kept(related, &first, &first_left, &first_kept, &note("first"), &is_cut)?;
    if found.is_some() {
        return Ok(found);
    }

    let second_kept = kept(false);
    let mut second_case = sub_case(whole, &second_kept, &[(&split.list, rest)])?;
    for name in &split.carry {
        let place = first.geometry.tensors.iter().position(|tensor| tensor.name == *name);
        let (Some(place), Some(target)) = (place, second_case.tensors.get_mut(name)) else {
            continue;
        };
        let tensor = &first.geometry.tensors[place];
        let (runs, bytes) = (&first.live[place], &first_left.tensors[place]);
        target.content = overlaid(&target.content, tensor.dtype, tensor.count(), runs, bytes);
    }
    let (second, second_left) = match related.run(whole.subject, &second_case, "the second part")? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    compare_kept(related, &second, &second_left, &second_kept, &note("second"), &|_| true)
}

/// For each segment a multiple of `step` strictly inside it; 0 where there is none.
fn cuts(lengths: &[i64], step: i64) -> Vec<i64> {
    let seed = lengths.iter().fold(step as u64, |seed, length| mix(seed, *length as u64));
    let cut = |(index, length): (usize, &i64)| {
        let places = (length - 1).max(0) / step;
        if places == 0 { 0 } else { step * (1 + (mix(seed, index as u64) % places as u64) as i64) }
    };
    lengths.iter().enumerate().map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_multiples_strictly_inside() {
        for seed in 0..200i64 {
            let lengths = [0, 1, 64, 65, 129, 193 + seed];
            let at_64 = cuts(&lengths, 64);
            assert_eq!(at_64[..4], [0, 0, 0, 64]);
            for step in [1, 64] {
                for (cut, length) in cuts(&lengths, step).iter().zip(lengths) {
                    assert!(cut % step == 0 && *cut >= 0 && *cut < length.max(1));
                }
            }
        }
    }
}
