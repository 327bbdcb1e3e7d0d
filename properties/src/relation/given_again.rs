//! The adapter `given_again`: the call under the words it sets, where what this case wrote is given, leaves
//! the same in every other output. So what was stored is what the outputs were computed from.

use super::slice::overlaid;
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::generate::complete;
use crate::values;
use crate::verdict::Verdict;
use contracts::case::Case;
use contracts::format::{Access, Equals};

pub(super) fn given_again(
    related: &mut Related<'_, '_>,
    equals: &Equals,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let contract = whole.subject.contract;
    let mut case = Case { found: None, ..whole.case.clone() };
    for (name, word) in &equals.set {
        let choices =
            if case.options.contains_key(name) { &mut case.options } else { &mut case.variants };
        choices.insert(name.clone(), word.0.clone());
    }
    complete(contract, &mut case).map_err(ToolError::Case)?;
    for place in whole.written() {
        let tensor = &whole.geometry.tensors[place];
        let declared = contract.tensors.get(&tensor.name);
        let now = declared.and_then(|declared| declared.access.resolve(&case.options));
        if let (Some(Access::Read), Some(given)) = (now, case.tensors.get_mut(&tensor.name)) {
            let (runs, bytes) = (&whole.live[place], &related.observed.tensors[place]);
            given.content = overlaid(&values::fill(0), tensor.dtype, tensor.count(), runs, bytes);
        }
    }
    let set: Vec<String> =
        equals.set.iter().map(|(name, word)| format!("{name}: {}", word.0)).collect();
    let what = format!("{} on what was stored", set.join(", "));
    let (part, observed) = match related.run(whole.subject, &case, &what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    let note = format!("expected is the case as it is, observed {what}");
    related.compare_same(&part, &observed, &note, &|_| true)
}
