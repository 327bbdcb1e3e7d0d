//! Adapters of selections: `smaller_k`, fewer are a prefix of more; `first_column`, the first id is the
//! other contract's only one.

use super::alone::compare_kept;
use super::comparison::Comparison;
use super::slice::{Kept, plain, sub_case};
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::oracle::each;
use crate::prepare::missing;
use crate::subject::subject;
use crate::verdict::Verdict;
use contracts::case::{Case, CaseTensor, Content, Decisions};
use contracts::format::{Compare, Equals};

/// The next smaller k the contract has; nothing where there is none.
pub(super) fn smaller_k(
    related: &mut Related<'_, '_>,
    _equals: &Equals,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let k = missing(|| lacks(related, "dim `k`"), whole.case.dims.get("k").copied())?;
    let choices = whole.subject.contract.dims.get("k").map_or(&[][..], |dim| &dim.one_of);
    let Some(fewer) = choices.iter().copied().filter(|choice| (1..k).contains(choice)).max() else {
        return Ok(None);
    };
    let first = 0..fewer as u64;
    let kept = [Kept { dim: "k".to_owned(), ranges: vec![first] }];
    let case = sub_case(whole, &kept, &[])?;
    let what = format!("k {fewer}");
    let (prepared, observed) = match related.run(whole.subject, &case, &what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    let note = format!("expected is the whole run, observed {what}");
    compare_kept(related, &prepared, &observed, &kept, &note, &|_| true)
}

/// The other contract takes the same `x` and gives one id a row; options and variants are its first.
pub(super) fn first_column(
    related: &mut Related<'_, '_>,
    equals: &Equals,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let unknown = || lacks(related, &format!("registered contract `{}`", equals.contract));
    let target = missing(unknown, subject(&equals.contract))?;
    let contract = target.contract;
    let mut case = Case {
        contract: contract.contract.clone(),
        version: contract.version,
        found: None,
        dtypes: whole.case.dtypes.clone(),
        options: Decisions::new(),
        variants: Decisions::new(),
        dims: Decisions::new(),
        lists: Decisions::new(),
        scalars: Decisions::new(),
        stores: Decisions::new(),
        poison: whole.case.poison,
        schedule: whole.case.schedule,
        tensors: Decisions::new(),
    };
    for (name, words) in &contract.options {
        let first = missing(|| lacks(related, &format!("option `{name}`")), words.first())?;
        case.options.insert(name.clone(), first.clone());
    }
    for (name, variant) in &contract.variants {
        let first = variant.values.first().map(|word| word.0.clone());
        let first = missing(|| lacks(related, &format!("variant `{name}`")), first)?;
        case.variants.insert(name.clone(), first);
    }
    for name in contract.dims.keys() {
        let size = whole.case.dims.get(name).copied();
        case.dims.insert(name.clone(), missing(|| lacks(related, &format!("dim `{name}`")), size)?);
    }
    for (name, declared) in &contract.tensors {
        let scope = contracts::CaseScope::new(contract, &case);
        let present = declared.when.as_ref().map_or(Ok(true), |when| when.eval_bool(&scope));
        if !present.unwrap_or(false) {
            continue;
        }
        let given = whole.case.tensors.get(name);
        let tensor = match given.filter(|_| name == "x") {
            Some(x) => {
                CaseTensor { layout: plain(contract, name, x.layout), content: x.content.clone() }
            }
            None => CaseTensor { layout: contracts::Layout::Dense, content: Content::Output },
        };
        case.tensors.insert(name.clone(), tensor);
    }
    let what = format!("{} on the same rows", equals.contract);
    let (part, observed) = match related.run(target, &case, &what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    let place_of = |tensors: &[contracts::TensorGeometry]| {
        tensors.iter().position(|tensor| tensor.name == "ids")
    };
    let own = missing(|| lacks(related, "tensor `ids`"), place_of(&whole.geometry.tensors))?;
    let other = missing(|| lacks(related, "tensor `ids`"), place_of(&part.geometry.tensors))?;
    let width = whole.geometry.tensors[own].row_count();
    let note = format!("expected is the first id of each row, observed {what}");
    let pair = (whole, related.observed);
    let mut comparison = Comparison::of(related.clause, pair, own, Compare::Bits, None, note)?;
    each(
        &part.live[other],
        part.geometry.tensors[other].dtype,
        &observed.tensors[other],
        |row, id| {
            comparison.element(row * width, id);
        },
    );
    let (compared, found) = comparison.finish();
    related.compared += compared;
    Ok(found)
}

fn lacks(related: &Related<'_, '_>, what: &str) -> String {
    format!("{}: there is no {what}", related.clause)
}
