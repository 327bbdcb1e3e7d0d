//! `recall`: the same call with another scalar, in the same process, gives what the reference says of
//! that scalar; and the call as it was then gives what it gave. Whatever a launch function remembers
//! from call to call shows.

use super::{Related, SubRun};
use crate::check::ToolError;
use crate::verdict::Verdict;
use contracts::case::Case;
use contracts::format::Recall;

pub(super) fn recall(
    related: &mut Related<'_, '_>,
    recall: &Recall,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let name = &recall.change;
    let declared = whole.subject.contract.scalars.get(name);
    let (Some(declared), Some(bits)) = (declared, whole.case.scalars.get(name)) else {
        return Ok(None);
    };
    let value = declared.dtype.to_f64(*bits);
    let other = [0.5 * value, 2.0 * value, 1.0].into_iter().find_map(|value| {
        let mut case = Case { found: None, ..whole.case.clone() };
        let changed = declared.dtype.round_from_f64(value);
        case.scalars.insert(name.clone(), changed);
        let legal = contracts::Geometry::of(whole.subject.contract, &case).is_ok();
        (changed != *bits && legal).then_some(case)
    });
    let Some(other) = other else { return Ok(None) };
    match related.judge(&other, None, &format!("the same call with another {name}"))? {
        SubRun::Ran(..) => {}
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    }
    let what = format!("the call again, after one with another {name}");
    let (part, observed) = match related.run(whole.subject, whole.case, &what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    let note = format!("expected is the first call, observed {what}");
    related.compare_same(&part, &observed, &note, &|_| true)
}
