//! `heads`: each index of one axis with its share of another, run by itself, gives what it gave among
//! the others: a wrong modulus in the map from value heads to key heads shows.

use super::alone::compare_kept;
use super::slice::{Kept, sub_case};
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::verdict::Verdict;
use contracts::format::Heads;
use std::iter;

pub(super) fn heads(
    related: &mut Related<'_, '_>,
    heads: &Heads,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let size = |dim: &str| whole.case.dims.get(dim).map_or(0, |size| (*size).max(0) as u64);
    let (groups, all) = (size(&heads.of), size(&heads.with));
    let share = all.checked_div(groups).unwrap_or(0);
    if groups < 2 || share == 0 {
        return Ok(None);
    }
    for group in 0..groups {
        let kept = [
            Kept { dim: heads.of.clone(), ranges: iter::once(group..group + 1).collect() },
            Kept {
                dim: heads.with.clone(),
                ranges: iter::once(group * share..(group + 1) * share).collect(),
            },
        ];
        let case = sub_case(whole, &kept, &[])?;
        let what = format!("index {group} of {} with its {share} of {}", heads.of, heads.with);
        let (part, observed) = match related.run(whole.subject, &case, &what)? {
            SubRun::Ran(prepared, observed) => (prepared, observed),
            SubRun::Ended(verdict) => return Ok(Some(verdict)),
        };
        let note = format!("expected is the whole run, observed {what}");
        if let Some(found) = compare_kept(related, &part, &observed, &kept, &note, &|_| true)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
