//! The adapter `read_again`: a step that neither decays the state (g = 0, α = 1) nor writes to it
//! (β = 0), taken on the state a step left, gives that step's outputs. So what was stored is what the
//! outputs were computed from, whatever it was rounded to. Zeros may change their sign.

use super::comparison::Comparison;
use super::slice::overlaid;
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::oracle::each;
use crate::prepare::missing;
use crate::values;
use crate::verdict::Verdict;
use contracts::case::{Case, Content};
use contracts::format::{Access, Equals};

pub(super) fn read_again(
    related: &mut Related<'_, '_>,
    _: &Equals,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let case = missing(
        || format!("{}: there are no gates `beta` and `g` or `alpha`", related.clause),
        idle_step(related),
    )?;
    let what = "a step without decay or write on the state left";
    let (part, observed) = match related.run(whole.subject, &case, what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    for place in part.written() {
        let tensor = &part.geometry.tensors[place];
        if tensor.access != Access::Write {
            continue;
        }
        let note = format!("expected is the step itself, observed {what}");
        let (run, compare) = ((whole, related.observed), related.relation.compare);
        let mut comparison = Comparison::of(related.clause, run, place, compare, None, note)?;
        let is_zero = |bits: u64| tensor.dtype.to_f64(bits) == 0.0;
        each(&part.live[place], tensor.dtype, &observed.tensors[place], |flat, bits| {
            let before = related.observed.bits(whole, place, flat).unwrap_or(bits);
            let both_zero = is_zero(bits) && is_zero(before);
            comparison.element(flat, if both_zero { before } else { bits });
        });
        let (compared, found) = comparison.finish();
        related.compared += compared;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The case with idle gates and the observed state in place of the first.
fn idle_step(related: &Related<'_, '_>) -> Option<Case> {
    let whole = related.whole;
    let mut case = Case { found: None, ..whole.case.clone() };
    let one = |name: &str| if name == "alpha" { 1.0 } else { 0.0 };
    let decay = ["g", "alpha"].into_iter().find(|name| case.tensors.contains_key(*name))?;
    for name in [decay, "beta"] {
        let dtype = whole.geometry.tensor(name)?.dtype;
        case.tensors.get_mut(name)?.content = values::fill(dtype.round_from_f64(one(name)));
    }
    for place in whole.written() {
        let tensor = &whole.geometry.tensors[place];
        if tensor.access == Access::ReadWrite {
            let stored = case.tensors.get_mut(&tensor.name)?;
            let (runs, bytes) = (&whole.live[place], &related.observed.tensors[place]);
            let content: &Content = &stored.content;
            stored.content = overlaid(content, tensor.dtype, tensor.count(), runs, bytes);
        }
    }
    Some(case)
}
