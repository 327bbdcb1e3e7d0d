//! The adapter `pair_apart`: a and b of every head out of one tensor equal the same from a tensor each, be
//! they given or the weights that project them.

use super::{Related, SubRun};
use crate::check::ToolError;
use crate::generate::complete;
use crate::prepare::{Prepared, missing};
use crate::verdict::Verdict;
use contracts::case::{Case, Content};
use contracts::format::Equals;

pub(super) fn pair_apart(
    related: &mut Related<'_, '_>,
    equals: &Equals,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let case = missing(
        || format!("{}: there is no tensor that holds a and b", related.clause),
        apart(whole, equals)?,
    )?;
    let what = "a and b from a tensor each";
    let (part, observed) = match related.run(whole.subject, &case, what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    let note = format!("expected is the case as it is, observed {what}");
    related.compare_same(&part, &observed, &note, &|_| true)
}

/// The case with the pair taken apart.
fn apart(whole: &Prepared<'_>, equals: &Equals) -> Result<Option<Case>, ToolError> {
    let mut case = Case { found: None, ..whole.case.clone() };
    for (name, word) in &equals.set {
        case.options.insert(name.clone(), word.0.clone());
    }
    complete(whole.subject.contract, &mut case).map_err(ToolError::Case)?;
    let joined = ["ab", "ab_grouped", "w_ab", "w_ab_grouped"];
    let Some(name) = joined.into_iter().find(|name| whole.case.tensors.contains_key(*name)) else {
        return Ok(None);
    };
    let (Some(tensor), Some(stored)) = (whole.geometry.tensor(name), whole.case.tensors.get(name))
    else {
        return Ok(None);
    };
    let dim = |name: &str| whole.case.dims.get(name).map_or(0, |size| *size as u64);
    let (heads, layout) = (dim("Hv"), whole.case.options.get("ba_layout"));
    let (group, a_at, b_at) = match layout.map(String::as_str) {
        Some("concat_ab") => (heads, 0, heads),
        Some("concat_ba") => (heads, heads, 0),
        _ => (heads / dim("Hk").max(1), heads / dim("Hk").max(1), 0),
    };
    let column = |head: u64| head / group * 2 * group + head % group;
    let is_weight = name.starts_with("w_");
    // A column of a row, or a whole row of weights.
    let (rows, run) = if is_weight { (1, dim("hidden")) } else { (dim("rows"), 1) };
    let taken = |first: u64| {
        let mut bytes = Vec::new();
        for row in 0..rows {
            for head in 0..heads {
                let from = (row * 2 * heads + first + column(head)) * run;
                for flat in from..from + run {
                    tensor.dtype.push_bytes(stored.content.bits(tensor.dtype, flat), &mut bytes);
                }
            }
        }
        Content::Dense(bytes)
    };
    for (target, first) in
        [(if is_weight { "w_a" } else { "a" }, a_at), (if is_weight { "w_b" } else { "b" }, b_at)]
    {
        match case.tensors.get_mut(target) {
            Some(tensor) => tensor.content = taken(first),
            None => return Ok(None),
        }
    }
    Ok(Some(case))
}
