//! `same`: the same tensors under other words of options or variants leave the same in every output
//! that both runs write. Layouts stay as they are, so nothing differs but the words.

use super::comparison::Comparison;
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::generate::complete;
use crate::oracle::each;
use crate::verdict::Verdict;
use contracts::format::Same;

pub(super) fn same(
    related: &mut Related<'_, '_>,
    same: &Same,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let mut case = whole.case.clone();
    case.found = None;
    for (name, word) in &same.set {
        let choices =
            if case.options.contains_key(name) { &mut case.options } else { &mut case.variants };
        choices.insert(name.clone(), word.0.clone());
    }
    if case.options == whole.case.options && case.variants == whole.case.variants {
        return Ok(None);
    }
    complete(whole.subject.contract, &mut case).map_err(ToolError::Case)?;
    let set: Vec<String> =
        same.set.iter().map(|(name, word)| format!("{name}: {}", word.0)).collect();
    let what = format!("the same tensors with {}", set.join(", "));
    let (part, observed) = match related.run(whole.subject, &case, &what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    for place in part.written() {
        let tensor = &part.geometry.tensors[place];
        let in_whole = |other: &&usize| {
            let other = &whole.geometry.tensors[**other];
            (&other.name, other.dtype, &other.shape) == (&tensor.name, tensor.dtype, &tensor.shape)
        };
        let Some(whole_place) = whole.written().collect::<Vec<_>>().iter().find(in_whole).copied()
        else {
            continue;
        };
        let note = format!("expected is the case as it is, observed {what}");
        let compare = related.relation.compare;
        let run = (whole, related.observed);
        let mut comparison = Comparison::of(related.clause, run, whole_place, compare, None, note)?
            .between_kernels()?;
        each(&part.live[place], tensor.dtype, &observed.tensors[place], |flat, bits| {
            comparison.element(flat, bits);
        });
        let (compared, found) = comparison.finish();
        related.compared += compared;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
