//! Calls that must be refused: a legal call is edited once, and the plan must answer with exactly the
//! declared error. Nothing is launched. The call starts dense and separate, so that the edit is the
//! only thing wrong with it.

mod automatic;
mod edit;
#[cfg(test)]
mod tests;

use crate::check::ToolError;
use crate::choices::mix;
use crate::generate::complete;
use crate::oracle::Exercised;
use crate::prepare::{call, missing};
use crate::relation::{plain, skeleton};
use crate::subject::Subject;
use crate::verdict::{Disagreement, Verdict};
use contracts::CaseScope;
use contracts::ClauseKind;
use contracts::case::{Case, CaseTensor, Content, Layout, StoreForm};
use contracts::format::{Contract, Detected, ErrorKind, LayoutKind, Rejection, Requirement};
use contracts::geometry::Geometry;
use edit::Edit;
use kernels::call::Call;

/// What became of a rejection.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// Refused as declared.
    Held,
    /// Accepted, or refused as something else.
    Failed(Verdict),
    /// This case cannot be edited so: the tensor is empty or absent, has one row…
    Impossible,
    /// Found by the kernel and reported in an output: the case's own run examines it.
    ByStatus,
}

/// Examines one rejection, by clause id; marks it exercised when a call was made.
///
/// # Errors
/// When no clause has the id, or the contract asks for an edit that has no meaning here.
pub fn examine(
    id: &str,
    subject: &Subject,
    case: &Case,
    exercised: &mut Exercised,
) -> Result<Refusal, ToolError> {
    let contract = subject.contract;
    let clause = missing(
        || format!("{} has no clause `{id}`", contract.contract),
        subject.clauses.iter().find(|clause| clause.id == id),
    )?;
    let seed = seed_of(case, id);
    let base = plain_case(contract, case);
    let made = match &clause.kind {
        ClauseKind::AutoReject { what, tensor } => {
            let Some(legal) = legal_call(subject, &base)? else { return Ok(Refusal::Impossible) };
            automatic::edit(contract, &base, legal, *what, tensor, seed)
        }
        ClauseKind::Requires(name) => match contract.requires.get(name) {
            Some(requirement) => {
                broken_requirement(contract, &base, name, seed).map(|(call, what)| Edit {
                    call,
                    what,
                    argument: None,
                    error: requirement.otherwise,
                })
            }
            None => None,
        },
        ClauseKind::Rejects(name) => {
            let rejection = missing(
                || format!("{} has no rejection `{name}`", contract.contract),
                contract.rejects.get(name),
            )?;
            match rejection.detected {
                Detected::Plan => declared(subject, &base, rejection)?,
                Detected::Status => {
                    if holds_by_status(contract, case, rejection, id)? {
                        exercised.mark(subject, &[id]);
                    }
                    return Ok(Refusal::ByStatus);
                }
                Detected::Caller => None,
            }
        }
        _ => return Err(ToolError::Missing(format!("`{id}` is no clause about refusals"))),
    };
    let Some(edit) = made else { return Ok(Refusal::Impossible) };
    exercised.mark(subject, &[id]);
    Ok(judge(id, subject, edit))
}

/// Whether the plan refuses the edited call with the declared error.
fn judge(id: &str, subject: &Subject, edit: Edit) -> Refusal {
    let observed = match (subject.plan)(&edit.call) {
        Err(refusal) if refusal.kind == edit.error => return Refusal::Held,
        Err(refusal) => format!("refusal {refusal}"),
        Ok(plan) => format!("a plan of {} launches", plan.launches.len()),
    };
    Refusal::Failed(Verdict::Disagree(Box::new(Disagreement {
        clause: id.to_owned(),
        tensor: edit.argument,
        index: Vec::new(),
        expected: format!("refusal {:?}", edit.error),
        observed,
        written_by: String::new(),
        error: None,
        note: edit.what,
    })))
}

/// The call of a legal case; `None` when the plan refuses even that, which the case's own run reports.
fn legal_call(subject: &Subject, base: &Case) -> Result<Option<Call>, ToolError> {
    let geometry = Geometry::layout_only(subject.contract, base).map_err(ToolError::Case)?;
    let call = call(subject.contract, base, &geometry);
    Ok((subject.plan)(&call).is_ok().then_some(call))
}

/// The case dense and separate, without contents: planning sees none.
fn plain_case(contract: &Contract, case: &Case) -> Case {
    let tensors = case.tensors.iter().map(|(name, tensor)| {
        let content = match tensor.content {
            Content::Derived => Content::Derived,
            _ => Content::Output,
        };
        (name.clone(), CaseTensor { layout: plain(contract, name, tensor.layout), content })
    });
    Case {
        stores: case.stores.keys().map(|name| (name.clone(), StoreForm::Separate)).collect(),
        tensors: tensors.collect(),
        ..skeleton(case)
    }
}

/// Which of several possible edits is made: a function of sizes and types, so shrinking values keeps it.
fn seed_of(case: &Case, id: &str) -> u64 {
    let mut seed = id.bytes().fold(0, |seed, byte| mix(seed, u64::from(byte)));
    for dtype in case.dtypes.values() {
        seed = mix(seed, *dtype as u64);
    }
    case.dims.values().fold(seed, |seed, size| mix(seed, *size as u64))
}

/// A call that breaks one requirement and no other: by the size of a dim, or, where no size does, by
/// another word of an option, variant or type that the requirement names.
fn broken_requirement(
    contract: &Contract,
    base: &Case,
    name: &str,
    seed: u64,
) -> Option<(Call, String)> {
    let requirement = contract.requires.get(name)?;
    by_sizes(contract, base, name, requirement, seed)
        .or_else(|| by_words(contract, base, name, requirement, seed))
}

/// Whether a case breaks this requirement, and this one alone.
fn breaks_only(contract: &Contract, case: &Case, name: &str) -> bool {
    let scope = CaseScope::new(contract, case);
    contract.requires.iter().all(|(other, requirement)| {
        requirement.that.eval_bool(&scope).is_ok_and(|holds| holds != (other == name))
    })
}

fn by_sizes(
    contract: &Contract,
    base: &Case,
    name: &str,
    requirement: &Requirement,
    seed: u64,
) -> Option<(Call, String)> {
    let dims: Vec<&str> =
        requirement.that.names().into_iter().filter(|dim| base.dims.contains_key(*dim)).collect();
    // A limit is passed by one, a multiple missed by little.
    let limits =
        requirement.that.numbers().into_iter().filter_map(|limit| i64::try_from(limit).ok());
    let limits: Vec<i64> =
        limits.flat_map(|limit| [-1, 0, 1].map(|s| limit.saturating_add(s))).collect();
    let mut tries = Vec::new();
    for dim in &dims {
        let now = base.dims[*dim];
        let near =
            (-2..=2).map(|step| now + step).chain([0, 1, 2, 3, 5]).chain(limits.iter().copied());
        tries.extend(near.filter(|size| *size >= 0 && *size != now).map(|size| (*dim, size)));
    }
    rotated(tries, seed).into_iter().find_map(|(dim, size)| {
        let mut case = base.clone();
        *case.dims.get_mut(dim)? = size;
        let only_it = breaks_only(contract, &case, name);
        let (case, geometry) = only_it.then(|| laid_out(contract, case)).flatten()?;
        let was = base.dims[dim];
        Some((call(contract, &case, &geometry), format!("{dim} set from {was} to {size}")))
    })
}

/// Another word brings and takes away the tensors that hang on it; sizes stay.
fn by_words(
    contract: &Contract,
    base: &Case,
    name: &str,
    requirement: &Requirement,
    seed: u64,
) -> Option<(Call, String)> {
    let tries =
        requirement.that.names().into_iter().flat_map(|name| words_instead(contract, base, name));
    rotated(tries.collect(), seed).into_iter().find_map(|(case, what)| {
        let mut case = case;
        complete(contract, &mut case).ok()?;
        let sized = (&case.dims, &case.lists) == (&base.dims, &base.lists);
        let only_it = sized && breaks_only(contract, &case, name);
        let (case, geometry) =
            only_it.then(|| laid_out(contract, plain_case(contract, &case))).flatten()?;
        Some((call(contract, &case, &geometry), what))
    })
}

/// The case with each other word that the contract has for this option, variant or type.
fn words_instead(contract: &Contract, base: &Case, name: &str) -> Vec<(Case, String)> {
    let mut edited = Vec::new();
    let mut add = |was: &str, now: &str, edit: &dyn Fn(&mut Case)| {
        if was != now {
            let mut case = base.clone();
            edit(&mut case);
            edited.push((case, format!("{name} set from {was} to {now}")));
        }
    };
    if let (Some(was), Some(words)) = (base.options.get(name), contract.options.get(name)) {
        for word in words {
            add(was, word, &|case| _ = case.options.insert(name.to_owned(), word.clone()));
        }
    }
    if let (Some(was), Some(variant)) = (base.variants.get(name), contract.variants.get(name)) {
        for word in &variant.values {
            add(was, &word.0, &|case| _ = case.variants.insert(name.to_owned(), word.0.clone()));
        }
    }
    if let (Some(was), Some(types)) = (base.dtypes.get(name), contract.dtypes.get(name)) {
        for dtype in types {
            let insert = |case: &mut Case| _ = case.dtypes.insert(name.to_owned(), *dtype);
            add(was.name(), dtype.name(), &insert);
        }
    }
    edited
}

/// The same, from another place on.
fn rotated<T>(mut tries: Vec<T>, seed: u64) -> Vec<T> {
    let first = (seed % tries.len().max(1) as u64) as usize;
    tries.rotate_left(first);
    tries
}

/// The case with its tensors in memory. Rows that would begin where the contract does not let them are
/// padded, where they may be: the size alone is to be wrong.
fn laid_out(contract: &Contract, case: Case) -> Option<(Case, Geometry)> {
    const MOST_PADDING: u64 = 16;
    if let Ok(geometry) = Geometry::lay_out(contract, &case) {
        return Some((case, geometry));
    }
    (1..MOST_PADDING).find_map(|padding| {
        let mut padded = case.clone();
        for (name, tensor) in &mut padded.tensors {
            let allowed = contract
                .tensors
                .get(name)
                .is_some_and(|t| t.layout.contains(&LayoutKind::RowPadded));
            if allowed {
                tensor.layout = Layout::RowPadded(padding);
            }
        }
        let geometry = Geometry::lay_out(contract, &padded).ok()?;
        Some((padded, geometry))
    })
}

/// The call a declared rejection edits; `None` where the edit changes nothing or cannot be made.
fn declared(
    subject: &Subject,
    base: &Case,
    rejection: &Rejection,
) -> Result<Option<Edit>, ToolError> {
    let contract = subject.contract;
    let mut case = base.clone();
    let mut what = Vec::new();
    let mut argument = None;
    let value = |expr: &contracts::expr::Expr| {
        let scope = CaseScope::new(contract, base);
        let value = expr.eval_int(&scope);
        value.map_err(|error| ToolError::Missing(format!("rejects: `{expr}`: {error}")))
    };
    for (dim, expr) in &rejection.set_dim {
        let size = value(expr)? as i64;
        if let Some(now) = case.dims.get_mut(dim) {
            if *now == size {
                return Ok(None);
            }
            what.push(format!("{dim} set from {now} to {size}"));
            *now = size;
        }
    }
    let mut call = if rejection.set_dim.is_empty() {
        match legal_call(subject, &case)? {
            Some(call) => call,
            None => return Ok(None),
        }
    } else {
        let Ok(geometry) = Geometry::lay_out(contract, &case) else { return Ok(None) };
        call(contract, &case, &geometry)
    };
    for (name, dtype) in &rejection.set_dtype {
        let Some(tensor) = edit::tensor(&mut call, name) else { return Ok(None) };
        what.push(format!("{name} given as {dtype} instead of {}", tensor.dtype));
        tensor.dtype = *dtype;
        argument = Some(name.clone());
    }
    for (name, exprs) in &rejection.set_shape {
        let extents = exprs.iter().map(|expr| value(expr).map(|size| size.max(0) as u64));
        let shape: Vec<u64> = extents.collect::<Result<_, _>>()?;
        let Some(tensor) = edit::tensor(&mut call, name) else { return Ok(None) };
        if tensor.shape == shape {
            return Ok(None);
        }
        what.push(format!("{name} given as {shape:?} instead of {:?}", tensor.shape));
        edit::reshape(tensor, shape, 1);
        argument = Some(name.clone());
    }
    for (name, expr) in &rejection.set_stride {
        let stride = value(expr)?;
        let Some(tensor) = edit::tensor(&mut call, name) else { return Ok(None) };
        let rows = tensor.shape.first().copied().unwrap_or(0);
        let Ok(stride) = u64::try_from(stride) else { return Ok(None) };
        if rows < 2 || tensor.strides[0] == stride {
            return Ok(None);
        }
        what.push(format!("row stride of {name} set from {} to {stride}", tensor.strides[0]));
        tensor.strides[0] = stride;
        argument = Some(name.clone());
    }
    if what.is_empty() {
        return Ok(None);
    }
    Ok(Some(Edit { call, what: what.join("; "), argument, error: rejection.error }))
}

/// Whether the case holds what a status word must report.
fn holds_by_status(
    contract: &Contract,
    case: &Case,
    rejection: &Rejection,
    id: &str,
) -> Result<bool, ToolError> {
    if rejection.error != ErrorKind::IdRange {
        return Err(ToolError::Missing(format!(
            "{id}: nothing here knows when a case holds {:?}; only IdRange is detected by status",
            rejection.error
        )));
    }
    Ok(contract.lists.iter().any(|(name, declared)| {
        let Some(ids) = &declared.ids else { return false };
        let below = case.dims.get(&ids.below).copied().unwrap_or(0);
        let items = case.lists.get(name).map_or(&[][..], Vec::as_slice);
        items.iter().any(|item| *item < 0 || *item >= below)
    }))
}
