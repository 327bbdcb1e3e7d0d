//! Completion: whoever edits decisions of a case (shrinker, relations) calls this, and everything that
//! follows from them is right again. Decisions that are still legal stay as they are.

use super::layouts::{
    is_packed, is_present, realigned, realigned_store, shape_of, undrawn_content,
};
use super::structure::{integer, is_available, segments_total};
use crate::values::{self, Field};
use contracts::case::{Case, CaseTensor, Content, Decisions, Layout, StoreForm};
use contracts::dtype::DType;
use contracts::expr::{ExprError, Scope};
use contracts::format::{Contract, Dim, Domain, LayoutKind, List, Scalar, Tensor};
use contracts::{CaseError, CaseScope, Decision, decision_order};

/// Recomputes what follows from a case's decisions, in the contract's order of names:
/// - a dim keeps its size while its form admits it, else takes the nearest that does: the next
///   multiple below (one factor at least), the least of `at_least`, the sum of its segments with as
///   much spare as is left and allowed; `is` is recomputed;
/// - a list keeps its elements and is cut or lengthened to its axis (0, the next free slot, row 0);
/// - missing dtypes, options, variants, scalars and stores take their first choice;
/// - pads and offsets grow to the next amount that is aligned; members that no longer pack separate;
/// - tensors appear and vanish with their `when`; contents whose size still fits stay, others are cut
///   or lengthened with zeros at the end (a caller that slices along an axis does so before).
pub fn complete(contract: &Contract, case: &mut Case) -> Result<(), CaseError> {
    case.contract.clone_from(&contract.contract);
    case.version = contract.version;
    complete_choices(contract, case);
    complete_sizes(contract, case)?;
    for (name, variant) in &contract.variants {
        let available = |case: &Case| is_available(contract, case, name, variant);
        if available(case).map_err(|e| failed("variants", name, &e))? {
            continue;
        }
        for word in &variant.values {
            case.variants.insert(name.clone(), word.0.clone());
            complete_sizes(contract, case)?;
            if available(case).map_err(|e| failed("variants", name, &e))? {
                break;
            }
        }
    }
    complete_scalars(contract, case);
    complete_tensors(contract, case);
    Ok(())
}

fn complete_choices(contract: &Contract, case: &mut Case) {
    case.dtypes.retain(|name, _| contract.dtypes.contains_key(name));
    for (name, types) in &contract.dtypes {
        let known = case.dtypes.get(name).is_some_and(|dtype| types.contains(dtype));
        if let (false, Some(first)) = (known, types.first()) {
            case.dtypes.insert(name.clone(), *first);
        }
    }
    case.options.retain(|name, _| contract.options.contains_key(name));
    for (name, words) in &contract.options {
        let known = case.options.get(name).is_some_and(|word| words.contains(word));
        if let (false, Some(first)) = (known, words.first()) {
            case.options.insert(name.clone(), first.clone());
        }
    }
    case.variants.retain(|name, _| contract.variants.contains_key(name));
    for (name, variant) in &contract.variants {
        let known =
            case.variants.get(name).is_some_and(|word| variant.values.iter().any(|v| v.0 == *word));
        if let (false, Some(first)) = (known, variant.values.first()) {
            case.variants.insert(name.clone(), first.0.clone());
        }
    }
    case.stores.retain(|name, _| contract.stores.contains_key(name));
    for name in contract.stores.keys() {
        case.stores.entry(name.clone()).or_insert(StoreForm::Separate);
    }
}

fn complete_sizes(contract: &Contract, case: &mut Case) -> Result<(), CaseError> {
    let mut dims = std::mem::take(&mut case.dims);
    let mut lists = std::mem::take(&mut case.lists);
    case.dims = contract.dims.keys().map(|name| (name.clone(), 0)).collect();
    case.lists = contract.lists.keys().map(|name| (name.clone(), Vec::new())).collect();
    for decision in decision_order(contract) {
        match decision {
            Decision::Dim(name) => {
                let Some(dim) = contract.dims.get(name) else { continue };
                let size = complete_dim(contract, case, dim, dims.swap_remove(name));
                let size = size.map_err(|e| failed("dims", name, &e))?;
                set(&mut case.dims, name, size);
            }
            Decision::List(name) => {
                let Some(list) = contract.lists.get(name) else { continue };
                let items = complete_list(
                    contract,
                    case,
                    list,
                    lists.swap_remove(name).unwrap_or_default(),
                );
                let items = items.map_err(|e| failed("lists", name, &e))?;
                set(&mut case.lists, name, items);
            }
        }
    }
    Ok(())
}

fn set<T>(among: &mut Decisions<T>, name: &str, value: T) {
    if let Some(place) = among.get_mut(name) {
        *place = value;
    }
}

fn complete_dim(
    contract: &Contract,
    case: &Case,
    dim: &Dim,
    kept: Option<i64>,
) -> Result<i64, ExprError> {
    let scope = CaseScope::new(contract, case);
    let scope: &dyn Scope = &scope;
    if let Some(base) = &dim.multiple_of {
        let (base, [low, _]) = (integer(base, scope)?, dim.factor.unwrap_or([1, 1]));
        let factor = kept.unwrap_or(0).checked_div(base).unwrap_or(0).max(low);
        return base.checked_mul(factor).ok_or(ExprError::Overflow);
    }
    if let Some(least) = &dim.at_least {
        let least = integer(least, scope)?;
        return Ok(kept.unwrap_or(least).max(least));
    }
    if let Some(exact) = &dim.is {
        return integer(exact, scope);
    }
    if dim.segments.is_some() {
        let sum = segments_total(case, dim);
        let [low, high] = dim.spare.unwrap_or([0, 0]);
        let (least, most) = (sum.saturating_add(low), sum.saturating_add(high));
        return Ok(kept.unwrap_or(least).clamp(least, most.max(least)));
    }
    if !dim.one_of.is_empty() {
        let fits = kept.filter(|size| dim.one_of.contains(size));
        return Ok(fits.or_else(|| dim.one_of.first().copied()).unwrap_or(0));
    }
    Ok(kept.unwrap_or_else(|| dim.range.map_or(0, |[low, _]| low)).max(0))
}

fn complete_list(
    contract: &Contract,
    case: &Case,
    list: &List,
    mut items: Vec<i64>,
) -> Result<Vec<i64>, ExprError> {
    let count = usize::try_from(case.dims.get(&list.each).copied().unwrap_or(0)).unwrap_or(0);
    if let Some(expr) = &list.is {
        let scope = CaseScope::new(contract, case);
        return (0..count).map(|index| integer(expr, &scope.at(&list.each, index))).collect();
    }
    items.truncate(count);
    while items.len() < count {
        let next = match &list.slots {
            Some(_) => (0..).find(|place| !items.contains(place)).unwrap_or(0),
            None => list.length.as_ref().map_or(0, |lengths| lengths.range[0]),
        };
        items.push(next);
    }
    Ok(items)
}

fn complete_scalars(contract: &Contract, case: &mut Case) {
    case.scalars.retain(|name, _| contract.scalars.contains_key(name));
    for (name, scalar) in &contract.scalars {
        if case.scalars.contains_key(name) {
            continue;
        }
        let bits = first_scalar(scalar, &case.dims);
        case.scalars.insert(name.clone(), bits);
    }
}

/// A scalar's first value under these sizes.
pub fn first_scalar(scalar: &Scalar, dims: &Decisions<i64>) -> u64 {
    let field = Field { dtype: scalar.dtype, shape: &[1], domain: &scalar.domain, seed: 0, dims };
    scalar.values.first().map_or(field.zero(), |values| values::scalar(values, &field))
}

fn complete_tensors(contract: &Contract, case: &mut Case) {
    for (name, store) in &contract.stores {
        let form = case.stores.get(name).copied().unwrap_or(StoreForm::Separate);
        let form = realigned_store(contract, case, store, form);
        case.stores.insert(name.clone(), form);
    }
    let mut kept = std::mem::take(&mut case.tensors);
    for (name, tensor) in &contract.tensors {
        if !is_present(contract, case, tensor) {
            continue;
        }
        let before = kept.swap_remove(name);
        let layout = before.as_ref().map_or(Layout::Dense, |tensor| tensor.layout);
        let shape = shape_of(contract, case, tensor).unwrap_or_default();
        let layout = if is_packed(contract, case, name) {
            Layout::Dense
        } else {
            possible(case, layout, tensor, &shape)
        };
        let content = complete_content(case, tensor, &shape, before.map(|tensor| tensor.content));
        case.tensors.insert(name.clone(), CaseTensor { layout, content });
    }
}

/// The layout while shape and contract admit it, its amount aligned again; else dense.
fn possible(case: &Case, layout: Layout, tensor: &Tensor, shape: &[u64]) -> Layout {
    let fits = match layout.kind() {
        LayoutKind::Dense => true,
        LayoutKind::Offset => tensor.layout.contains(&LayoutKind::Offset),
        LayoutKind::Wide => shape.len() >= 2 && shape[0] >= 2,
        LayoutKind::Permuted => shape.len() >= 3 && tensor.layout.contains(&LayoutKind::Permuted),
        LayoutKind::OddUnitStrides => tensor.layout.contains(&LayoutKind::OddUnitStrides),
        LayoutKind::Rank0 => shape == [1],
        LayoutKind::RowPadded | LayoutKind::OuterPadded => shape.len() >= 2,
    };
    if fits { realigned(case, tensor, shape, layout) } else { Layout::Dense }
}

fn complete_content(case: &Case, tensor: &Tensor, shape: &[u64], kept: Option<Content>) -> Content {
    let undrawn = undrawn_content(case, tensor);
    if matches!(undrawn, Content::Derived | Content::Output) {
        return undrawn;
    }
    let dtype = tensor.dtype.resolve(&case.dtypes).unwrap_or(DType::F32);
    let domain = tensor.domain_under(&case.options).unwrap_or(&Domain::Any);
    let field = Field { dtype, shape, domain, seed: 0, dims: &case.dims };
    match kept {
        None | Some(Content::Derived | Content::Output) => values::fill(field.zero()),
        Some(Content::Dense(mut bytes)) => {
            let (size, zero) = (dtype.size_bytes() as usize, field.zero().to_le_bytes());
            let wanted = field.count() as usize * size;
            bytes.truncate(wanted);
            // A stray part of an element cannot be completed.
            bytes.truncate(bytes.len() / size * size);
            values::pad_to(&mut bytes, wanted as u64, &zero[..size]);
            Content::Dense(bytes)
        }
        Some(Content::Sparse { fill, mut at }) => {
            at.split_off(&field.count());
            Content::Sparse { fill, at }
        }
    }
}

fn failed(section: &str, name: &str, error: &ExprError) -> CaseError {
    CaseError::new(
        format!("{section}.{name}"),
        format!("it has no value: {error}"),
        "decide what it depends on",
    )
}
