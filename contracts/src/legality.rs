//! Whether a case is legal: every decision present and allowed, every requirement met, contents of the
//! right size and inside their domains. What steers drawing (`range`, `edges`, `values`) binds nobody.

use crate::case::{Case, Content, Decisions, Fill, Layout, StoreForm};
use crate::case_error::CaseError;
use crate::expr::Expr;
use crate::format::{Access, Contract, Dim, Domain, LayoutKind, List, Tensor};
use crate::geometry::{Geometry, TensorGeometry};
use crate::layout::{MOST_ELEMENTS, is_present};
use crate::load::suggestion;
use crate::scope::CaseScope;

/// Largest dim: beyond it no buffer could hold an axis of one-byte elements.
const LARGEST_DIM: i64 = 1 << 36;
/// What rounding to a narrow type may add to a row's norm.
const NORM_SLACK: f64 = 1e-3;

type Checked = Result<(), CaseError>;

fn error(path: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> CaseError {
    CaseError::new(path, what, remedy)
}

impl Geometry {
    /// Checks the case completely and lays it out.
    pub fn of(contract: &Contract, case: &Case) -> Result<Geometry, CaseError> {
        let geometry = Geometry::layout_only(contract, case)?;
        check_scalars(contract, case)?;
        for tensor in &geometry.tensors {
            check_content(contract, case, tensor)?;
        }
        Ok(geometry)
    }

    /// As `of`, without looking at contents or scalars: cheap enough to ask after every decision.
    pub fn layout_only(contract: &Contract, case: &Case) -> Result<Geometry, CaseError> {
        check_decisions(contract, case)?;
        let geometry = Geometry::lay_out(contract, case)?;
        check_layouts(contract, case)?;
        Ok(geometry)
    }
}

/// Checks dtypes, options, variants, dims, lists, stores and requirements.
pub fn check_decisions(contract: &Contract, case: &Case) -> Checked {
    check_structure(contract, case)?;
    let scope = CaseScope::new(contract, case);
    for (name, requirement) in &contract.requires {
        let path = format!("requires.{name}");
        match requirement.that.eval_bool(&scope) {
            Ok(true) => {}
            Ok(false) => {
                let what = format!("`{}` does not hold", requirement.that);
                return Err(error(path, what, "choose dims and lists that satisfy it"));
            }
            Err(e) => return Err(CaseError::expression(path, &requirement.that, &e)),
        }
    }
    Ok(())
}

/// As `check_decisions`, without the contract's `requires`: for cases that break one of them.
pub fn check_structure(contract: &Contract, case: &Case) -> Checked {
    if case.contract != contract.contract {
        let what = format!("the case is for `{}`", case.contract);
        return Err(error("contract", what, format!("use the contract `{}`", contract.contract)));
    }
    if case.version != contract.version {
        let what = format!(
            "the case is for version {}, the contract is {}",
            case.version, contract.version
        );
        return Err(error("version", what, "read the contract's history and rewrite the case"));
    }
    same_names("dtypes", contract.dtypes.keys(), &case.dtypes)?;
    same_names("options", contract.options.keys(), &case.options)?;
    same_names("variants", contract.variants.keys(), &case.variants)?;
    same_names("dims", contract.dims.keys(), &case.dims)?;
    same_names("lists", contract.lists.keys(), &case.lists)?;
    same_names("stores", contract.stores.keys(), &case.stores)?;
    check_choices(contract, case)?;
    for (name, dim) in &contract.dims {
        check_dim(contract, case, name, dim)?;
    }
    for (name, list) in &contract.lists {
        check_list(contract, case, name, list)?;
    }
    check_available(contract, case)
}

/// Every declared name is decided, and no other.
fn same_names<'a, T>(
    section: &str,
    declared: impl Iterator<Item = &'a String> + Clone,
    decided: &Decisions<T>,
) -> Checked {
    let mut count = 0;
    for name in declared.clone() {
        count += 1;
        if !decided.contains_key(name) {
            let stray = decided.keys().find(|known| !declared.clone().any(|one| one == *known));
            let path = format!("{section}.{name}");
            return Err(match stray {
                None => error(path, "it is undecided", format!("add `{name}:` to {section}")),
                Some(stray) => renamed(section, name, stray),
            });
        }
    }
    if decided.len() == count {
        return Ok(());
    }
    match decided.keys().find(|name| !declared.clone().any(|known| known == *name)) {
        None => Ok(()),
        Some(name) => {
            let remedy = suggestion(name, declared.map(String::as_str));
            Err(error(format!("{section}.{name}"), format!("the contract has no `{name}`"), remedy))
        }
    }
}

/// A decision is missing, and another is there that the contract has not.
fn renamed(section: &str, name: &str, stray: &str) -> CaseError {
    error(
        format!("{section}.{name}"),
        format!("it is undecided, and the contract has no `{stray}`"),
        format!(
            "write `{name}` for `{stray}`; where the contract renamed it, a new version whose history says \
             renamed: {{{section}.{stray}: {section}.{name}}} reads older cases so"
        ),
    )
}

fn check_choices(contract: &Contract, case: &Case) -> Checked {
    for (name, dtype) in &case.dtypes {
        let types = &contract.dtypes[name];
        if !types.contains(dtype) {
            let remedy = suggestion(dtype.name(), types.iter().map(|known| known.name()));
            return Err(error(
                format!("dtypes.{name}"),
                format!("`{name}` is never {dtype}"),
                remedy,
            ));
        }
    }
    for (name, word) in &case.options {
        let words = &contract.options[name];
        if !words.contains(word) {
            let remedy = suggestion(word, words.iter().map(String::as_str));
            return Err(error(
                format!("options.{name}"),
                format!("`{word}` is no value of `{name}`"),
                remedy,
            ));
        }
    }
    for (name, word) in &case.variants {
        let words = &contract.variants[name].values;
        if !words.iter().any(|known| known.0 == *word) {
            let remedy = suggestion(word, words.iter().map(|known| known.0.as_str()));
            return Err(error(
                format!("variants.{name}"),
                format!("`{word}` is no value of `{name}`"),
                remedy,
            ));
        }
    }
    Ok(())
}

fn check_available(contract: &Contract, case: &Case) -> Checked {
    let scope = CaseScope::new(contract, case);
    for (name, word) in &case.variants {
        let Some(condition) = contract.variants[name].available.get(word) else { continue };
        let path = format!("variants.{name}");
        match condition.eval_bool(&scope) {
            Ok(true) => {}
            Ok(false) => {
                let what = format!("`{word}` is only available where `{condition}`");
                return Err(error(path, what, "choose another value"));
            }
            Err(e) => return Err(CaseError::expression(path, condition, &e)),
        }
    }
    Ok(())
}

fn check_dim(contract: &Contract, case: &Case, name: &str, dim: &Dim) -> Checked {
    let size = case.dims[name];
    let refuse = |what: String, remedy: String| Err(error(format!("dims.{name}"), what, remedy));
    let int = |expr: &Expr| {
        let scope = CaseScope::new(contract, case);
        expr.eval_int(&scope).map_err(|e| CaseError::expression(format!("dims.{name}"), expr, &e))
    };
    if !(0..=LARGEST_DIM).contains(&size) {
        return refuse(format!("{size} is no size"), format!("write 0 to {LARGEST_DIM}"));
    }
    if !dim.one_of.is_empty() && !dim.one_of.contains(&size) {
        return refuse(format!("{size} is not allowed"), format!("write one of {:?}", dim.one_of));
    }
    if let Some(expr) = &dim.multiple_of {
        let unit = int(expr)?;
        let fits = if unit == 0 { size == 0 } else { i128::from(size) % unit == 0 };
        if !fits {
            return refuse(
                format!("{size} is no multiple of `{expr}`, {unit}"),
                "write a multiple".to_owned(),
            );
        }
    }
    if let Some(expr) = &dim.at_least {
        let least = int(expr)?;
        if i128::from(size) < least {
            return refuse(format!("{size} is below `{expr}`"), format!("write at least {least}"));
        }
    }
    if let Some(expr) = &dim.is {
        let exact = int(expr)?;
        if i128::from(size) != exact {
            return refuse(format!("{size} is not `{expr}`"), format!("write {exact}"));
        }
    }
    if let Some(list) = &dim.segments {
        let sum: i128 = case.lists[list].iter().map(|item| i128::from(*item)).sum();
        let rest = i128::from(size) - sum;
        if rest < 0 || (rest > 0 && dim.spare.is_none()) {
            return refuse(format!("{size} is not the sum of `{list}`"), format!("write {sum}"));
        }
    }
    Ok(())
}

fn check_list(contract: &Contract, case: &Case, name: &str, list: &List) -> Checked {
    let items = &case.lists[name];
    let place = |index: usize| format!("lists.{name}[{index}]");
    let count = case.dims[&list.each];
    if items.len() as i64 != count {
        let what = format!("{} elements for {count} of `{}`", items.len(), list.each);
        return Err(error(format!("lists.{name}"), what, format!("write {count} elements")));
    }
    if list.length.is_some()
        && let Some(index) = items.iter().position(|item| !(0..=LARGEST_DIM).contains(item))
    {
        return Err(error(
            place(index),
            format!("{} is no length", items[index]),
            "write 0 or more",
        ));
    }
    if let Some(expr) = &list.is {
        for (index, item) in items.iter().enumerate() {
            let scope = CaseScope::new(contract, case).at(&list.each, index);
            let exact =
                expr.eval_int(&scope).map_err(|e| CaseError::expression(place(index), expr, &e))?;
            if exact != i128::from(*item) {
                return Err(error(
                    place(index),
                    format!("{item} is not `{expr}`"),
                    format!("write {exact}"),
                ));
            }
        }
    }
    if let Some(slots) = &list.slots {
        let pool = case.dims[&slots.pool];
        let is_pad = |item: &i64| slots.pad.contains(item);
        let in_pool = |item: &i64| (0..pool).contains(item);
        return check_places(name, items, &is_pad, &in_pool, false, &slots.pool);
    }
    if let Some(ids) = &list.ids {
        let below = case.dims[&ids.below];
        let scope = CaseScope::new(contract, case);
        let mut invalid = Vec::with_capacity(ids.invalid.len());
        for expr in &ids.invalid {
            let value = expr
                .eval_int(&scope)
                .map_err(|e| CaseError::expression(format!("lists.{name}"), expr, &e))?;
            invalid.push(value);
        }
        let is_invalid = |item: &i64| invalid.contains(&i128::from(*item));
        let in_table = |item: &i64| (0..below).contains(item);
        return check_places(name, items, &is_invalid, &in_table, ids.repeats, &ids.below);
    }
    Ok(())
}

/// Entries are exempt, or in the pool and, unless they may repeat, named once.
fn check_places(
    name: &str,
    items: &[i64],
    exempt: &dyn Fn(&i64) -> bool,
    in_pool: &dyn Fn(&i64) -> bool,
    repeats: bool,
    pool: &str,
) -> Checked {
    let mut taken = std::collections::HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let path = || format!("lists.{name}[{index}]");
        if exempt(item) {
            continue;
        }
        if !in_pool(item) {
            let remedy = format!(
                "write a value from 0 to `{pool}` - 1, or one the list declares as no place"
            );
            return Err(error(path(), format!("{item} is outside `{pool}`"), remedy));
        }
        if !taken.insert(*item) && !repeats {
            return Err(error(path(), format!("{item} is named twice"), "name each place once"));
        }
    }
    Ok(())
}

fn check_layouts(contract: &Contract, case: &Case) -> Checked {
    let scope = CaseScope::new(contract, case);
    for (name, tensor) in &contract.tensors {
        if !is_present(name, tensor, &scope)? {
            if case.tensors.contains_key(name) {
                let what = "the tensor is absent under these options";
                return Err(error(format!("tensors.{name}"), what, "remove it"));
            }
            continue;
        }
        let path = format!("tensors.{name}.layout");
        let layout = case.tensors[name].layout;
        let kind = layout.kind();
        let allowed =
            tensor.layout.contains(&kind) || tensor.layout.is_empty() && kind == LayoutKind::Dense;
        if !allowed {
            let known = tensor.layout.iter().map(|kind| crate::check_tensors::layout_word(*kind));
            let remedy = suggestion("", known);
            return Err(error(path, "the contract does not allow this layout", remedy));
        }
        let store = contract.stores.iter().find(|(_, store)| store.holds.contains(name));
        let packed =
            store.is_some_and(|(store, _)| matches!(case.stores[store], StoreForm::Packed { .. }));
        if packed && layout != Layout::Dense {
            return Err(error(
                path,
                "a packed tensor has its store's layout",
                "write dense, or separate the store",
            ));
        }
    }
    match case.tensors.keys().find(|name| !contract.tensors.contains_key(*name)) {
        None => Ok(()),
        Some(name) => {
            let remedy = suggestion(name, contract.tensors.keys().map(String::as_str));
            Err(error(format!("tensors.{name}"), format!("the contract has no `{name}`"), remedy))
        }
    }
}

fn check_scalars(contract: &Contract, case: &Case) -> Checked {
    same_names("scalars", contract.scalars.keys(), &case.scalars)?;
    for (name, scalar) in &contract.scalars {
        let (bits, path) = (case.scalars[name], format!("scalars.{name}"));
        if bits & !scalar.dtype.mask() != 0 {
            return Err(error(
                path,
                format!("{bits:#x} has more bits than {}", scalar.dtype),
                "write fewer digits",
            ));
        }
        if !inside(&scalar.domain, scalar.dtype.to_f64(bits)) {
            let what = format!("{} is outside the domain", scalar.dtype.to_f64(bits));
            return Err(error(path, what, "choose a value inside it"));
        }
    }
    Ok(())
}

fn check_content(contract: &Contract, case: &Case, tensor: &TensorGeometry) -> Checked {
    let declared = &contract.tensors[&tensor.name];
    let content = &case.tensors[&tensor.name].content;
    let path = format!("tensors.{}", tensor.name);
    let wanted = if declared.from.is_some() {
        "derived"
    } else if tensor.access == Access::Write {
        "no contents, for an output"
    } else {
        "values"
    };
    let fits = match content {
        Content::Derived => declared.from.is_some(),
        Content::Output => declared.from.is_none() && tensor.access == Access::Write,
        Content::Dense(_) | Content::Sparse { .. } => {
            declared.from.is_none() && tensor.access != Access::Write
        }
    };
    if !fits {
        return Err(error(path, "the contents are of another sort", format!("write {wanted}")));
    }
    check_size(&path, tensor, content)?;
    match (declared.domain_under(&case.options), content) {
        (Some(domain), Content::Dense(_) | Content::Sparse { .. }) => {
            check_domain(contract, declared, tensor, domain, content)
        }
        _ => Ok(()),
    }
}

fn check_size(path: &str, tensor: &TensorGeometry, content: &Content) -> Checked {
    let count = tensor.count();
    match content {
        Content::Dense(bytes) => {
            let wanted = count.saturating_mul(tensor.dtype.size_bytes());
            if count > MOST_ELEMENTS || bytes.len() as u64 != wanted {
                let what =
                    format!("{} bytes of contents for the shape {:?}", bytes.len(), tensor.shape);
                return Err(error(
                    path,
                    what,
                    format!("give {wanted}, at most {MOST_ELEMENTS} elements"),
                ));
            }
        }
        Content::Sparse { fill, at } => {
            if let Some((index, _)) = at.range(count..).next() {
                return Err(error(path, format!("element {index} of {count}"), "remove it"));
            }
            let fill = match fill {
                Fill::Bits(bits) => *bits,
                Fill::Hashed { .. } => 0,
            };
            if let Some(bits) =
                at.values().chain([&fill]).find(|bits| **bits & !tensor.dtype.mask() != 0)
            {
                return Err(error(
                    path,
                    format!("{bits:#x} has more bits than {}", tensor.dtype),
                    "write fewer digits",
                ));
            }
        }
        Content::Derived | Content::Output => {}
    }
    Ok(())
}

fn inside(domain: &Domain, value: f64) -> bool {
    match domain {
        Domain::Any => true,
        Domain::Finite | Domain::RowNorm(_) => value.is_finite(),
        Domain::Positive => value.is_finite() && value > 0.0,
        Domain::Nonzero => value.is_finite() && value != 0.0,
        Domain::Range([low, high]) => (*low..=*high).contains(&value),
        Domain::RangeOrInfinite([low, high]) => {
            value.is_infinite() || (*low..=*high).contains(&value)
        }
        Domain::AtMost(most) => value <= *most,
    }
}

/// Live rows only: what lies in dead ones is never seen. A tensor NaN may be planted in may hold NaN
/// whatever its domain.
fn check_domain(
    contract: &Contract,
    declared: &Tensor,
    tensor: &TensorGeometry,
    domain: &Domain,
    content: &Content,
) -> Checked {
    if *domain == Domain::Any || tensor.count() == 0 {
        return Ok(());
    }
    let nan_allowed = declared.from.is_none()
        && contract.nan.as_ref().is_some_and(|nan| nan.into.contains(&tensor.name));
    let dtype = tensor.dtype;
    let legal = |bits: u64| {
        let value = dtype.to_f64(bits);
        inside(domain, value) || nan_allowed && dtype.is_float() && value.is_nan()
    };
    let innermost = tensor.shape.last().copied().unwrap_or(1);
    let row_count = tensor.row_count();
    let place = |flat: u64| format!("tensors.{}{:?}", tensor.name, tensor.coordinates(flat));
    let judge = |flat: u64| {
        let bits = content.bits(dtype, flat);
        if legal(bits) || !tensor.is_live_row(flat / row_count.max(1)) {
            return Ok(());
        }
        let what = format!("{} ({bits:#x}) is outside the domain", dtype.to_f64(bits));
        Err(error(place(flat), what, "choose a value inside it"))
    };
    if let (Content::Sparse { fill: Fill::Bits(fill), at }, false) =
        (content, matches!(domain, Domain::RowNorm(_)))
    {
        // One look at the fill and at each override judges them all.
        at.keys().try_for_each(|flat| judge(*flat))?;
        let shown =
            |flat: &u64| !at.contains_key(flat) && tensor.is_live_row(flat / row_count.max(1));
        if !legal(*fill) && (0..tensor.count()).any(|flat| shown(&flat)) {
            let what =
                format!("the fill {} ({fill:#x}) is outside the domain", dtype.to_f64(*fill));
            return Err(error(format!("tensors.{}", tensor.name), what, "choose a fill inside it"));
        }
        return Ok(());
    }
    if tensor.count() > MOST_ELEMENTS {
        let what = "too many elements to judge against a domain";
        return Err(error(
            format!("tensors.{}", tensor.name),
            what,
            "fill with bits, or choose smaller dims",
        ));
    }
    let values = content.values(dtype, 0..tensor.count());
    let outside = (0..).zip(&values).filter(|(_, value)| !inside(domain, **value));
    outside.into_iter().try_for_each(|(flat, _)| judge(flat))?;
    if let Domain::RowNorm(most) = domain {
        let limit = most * (1.0 + NORM_SLACK);
        let rows = values.chunks_exact(innermost.max(1) as usize);
        for (start, row) in (0..tensor.count()).step_by(innermost.max(1) as usize).zip(rows) {
            let numbers = row.iter().filter(|value| !value.is_nan());
            let square: f64 = numbers.map(|value| value * value).sum();
            if square > limit * limit && tensor.is_live_row(start / row_count.max(1)) {
                let what = format!("the row's norm is {}", square.sqrt());
                return Err(error(place(start), what, format!("scale it to at most {most}")));
            }
        }
    }
    Ok(())
}
