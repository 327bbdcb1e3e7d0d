//! Cases of an older version under today's contract: what its `history` says was renamed, retired and
//! added is done to the written case, version by version, before it is read. What the history does not
//! say is an error that names the field; nothing is guessed.

use crate::case::{Case, Decisions};
use crate::case_error::CaseError;
use crate::format::{AxisAdded, Contract, HistoryEntry, Named};
use crate::layout::is_present;
use crate::order::{Decision, decision_order};
use crate::scope::CaseScope;
use serde_json::{Map, Value, json};

/// Sections of a case whose entries are decisions.
pub(crate) const DECISIONS: [&str; 8] =
    ["dtypes", "options", "variants", "dims", "lists", "scalars", "stores", "tensors"];
/// Sections of a contract whose entries are clauses.
pub(crate) const CLAUSES: [&str; 7] =
    ["tolerance", "drift", "nan", "relations", "paths", "rejects", "requires"];
/// Clauses that are named after a tensor.
const OF_TENSORS: [&str; 3] = ["tolerance", "drift", "nan"];

type Checked = Result<(), CaseError>;

/// Brings a written case to the contract's version. False when it is not of an older one; what is no
/// case at all is left for the reader to refuse.
pub fn migrate(tree: &mut Value, contract: &Contract) -> Result<bool, CaseError> {
    let written = tree.get("version").and_then(Value::as_u64);
    let Some(case) = tree.as_object_mut() else { return Ok(false) };
    let Some(written) = written.filter(|written| (1..contract.version.into()).contains(written))
    else {
        return Ok(false);
    };
    for version in written + 1..=contract.version.into() {
        let mut entries =
            contract.history.iter().filter(|entry| u64::from(entry.version) == version).peekable();
        if entries.peek().is_none() {
            let what =
                format!("the contract's history does not say what version {version} changed");
            let remedy = format!(
                "add an entry with version: {version} to it; without renamed, retired or added, older cases mean the same"
            );
            return Err(CaseError::new("version", what, remedy));
        }
        for entry in entries {
            apply(case, contract, entry)?;
        }
    }
    case.insert("version".to_owned(), json!(contract.version));
    Ok(true)
}

fn apply(case: &mut Map<String, Value>, contract: &Contract, entry: &HistoryEntry) -> Checked {
    rename(case, &entry.renamed)?;
    for (path, value) in &entry.retired {
        retire(case, path, value, entry.version)?;
    }
    for (path, value) in &entry.added {
        add(case, contract, path, value)?;
    }
    for axis in &entry.axis {
        insert_axis(case, axis, entry.version)?;
    }
    Ok(())
}

fn refused(path: &str, what: String, remedy: &str) -> CaseError {
    CaseError::new(path, what, remedy)
}

/// All renames of one entry at once: two names may swap.
fn rename(case: &mut Map<String, Value>, renamed: &Named<String>) -> Checked {
    for section in DECISIONS {
        let Some(Value::Object(decided)) = case.get_mut(section) else { continue };
        let mut new = Map::new();
        for (name, value) in std::mem::take(decided) {
            let path = format!("{section}.{name}");
            let now = renamed.get(&path).and_then(|to| to.strip_prefix(section)?.strip_prefix('.'));
            let word =
                value.as_str().map(str::to_owned).or_else(|| value.as_i64().map(|n| n.to_string()));
            // `options.order.rank`: a word of an option or a variant.
            let now_word = word
                .and_then(|word| renamed.get(&format!("{path}.{word}")))
                .and_then(|to| to.strip_prefix(&path)?.strip_prefix('.'));
            let now = now.unwrap_or(&name).to_owned();
            let value = now_word.map_or(value, Value::from);
            if new.insert(now.clone(), value).is_some() {
                let what =
                    format!("the history renames `{name}` to `{now}`, and the case has both");
                return Err(refused(&format!("{section}.{now}"), what, "keep one of the two"));
            }
        }
        *decided = new;
    }
    let clause = case.get_mut("found").and_then(|found| found.get_mut("clause"));
    if let Some(clause) = clause
        && let Some(now) = clause.as_str().and_then(|clause| renamed_clause(clause, renamed))
    {
        *clause = now.into();
    }
    Ok(())
}

/// A clause after these renames, of itself, of what it is part of, or of the tensor it is about.
pub fn renamed_clause(clause: &str, renamed: &Named<String>) -> Option<String> {
    let after = |old: &str| {
        let rest = clause.strip_prefix(old)?;
        (rest.is_empty() || rest.starts_with('.')).then_some(rest)
    };
    renamed.iter().find_map(|(old, new)| {
        if let Some(rest) = after(old) {
            return Some(format!("{new}{rest}"));
        }
        let (old, new) = (old.strip_prefix("tensors.")?, new.strip_prefix("tensors.")?);
        OF_TENSORS.iter().find_map(|section| {
            Some(format!("{section}.{new}{}", after(&format!("{section}.{old}"))?))
        })
    })
}

/// Removes a decision that today's contract does not have. Only the one value that means the same
/// today can be removed; any, where the history says `~`.
fn retire(case: &mut Map<String, Value>, path: &str, value: &Value, version: u32) -> Checked {
    let Some((section, name)) = path.split_once('.') else { return Ok(()) };
    let Some(Value::Object(decided)) = case.get_mut(section) else { return Ok(()) };
    let Some(held) = decided.get(name) else { return Ok(()) };
    if !value.is_null() && !same(section, held, value) {
        let what = format!(
            "version {version} retired it for {}, and the case has {}",
            short(value),
            short(held)
        );
        let remedy =
            "the case cannot be carried over: write one for today's contract, or remove the file";
        return Err(refused(path, what, remedy));
    }
    decided.shift_remove(name);
    Ok(())
}

/// Whether a written decision is the one the history speaks of. A tensor is when it holds its fill
/// alone, whatever its layout.
fn same(section: &str, held: &Value, wanted: &Value) -> bool {
    let text = |value: &Value| match value {
        Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    match (section, held) {
        ("tensors", Value::Object(tensor)) => {
            let plain = ["bits", "derived"].iter().all(|key| !tensor.contains_key(*key))
                && tensor.get("at").and_then(Value::as_object).is_none_or(Map::is_empty);
            let wanted = wanted.get("fill").unwrap_or(wanted);
            plain && tensor.get("fill") == Some(wanted)
        }
        _ => text(held) == text(wanted),
    }
}

/// A value as the file has it, cut to what a reader needs.
fn short(value: &Value) -> String {
    let text = match value {
        Value::String(word) => format!("`{word}`"),
        other => format!("`{other}`"),
    };
    crate::case_error::shortened(&text).into_owned()
}

/// Adds what older cases meant without saying it.
fn add(case: &mut Map<String, Value>, contract: &Contract, path: &str, value: &Value) -> Checked {
    let Some((section, name)) = path.split_once('.') else { return Ok(()) };
    let value = match section {
        "lists" if value.is_i64() => {
            let each = contract.lists.get(name).map(|list| list.each.as_str());
            let count = each.and_then(|each| case.get("dims")?.get(each)?.as_u64());
            let Some(count) = count.filter(|count| *count <= MOST_ITEMS) else {
                let what = "the history gives one value for all, and the list's axis has no size";
                return Err(refused(
                    path,
                    what.to_owned(),
                    "add the dim first, or write the list out",
                ));
            };
            Value::from(vec![value.clone(); count as usize])
        }
        "tensors" if value.is_u64() => json!({"layout": "dense", "fill": value}),
        _ => value.clone(),
    };
    let decided = case.entry(section).or_insert_with(|| json!({}));
    let Some(decided) = decided.as_object_mut() else { return Ok(()) };
    if decided.contains_key(name) {
        let what = format!("an older version of the contract had no `{name}`");
        return Err(refused(path, what, "remove it, or write the version the case is of"));
    }
    decided.insert(name.to_owned(), value);
    Ok(())
}

/// Longest list written out from one value.
const MOST_ITEMS: u64 = 1 << 20;

/// Gives a tensor's elements a coordinate on an axis of extent 1.
fn insert_axis(case: &mut Map<String, Value>, axis: &AxisAdded, version: u32) -> Checked {
    let AxisAdded { tensor, at, dim } = axis;
    let path = format!("tensors.{tensor}");
    let extent = case.get("dims").and_then(|dims| dims.get(dim)).and_then(Value::as_i64);
    if extent != Some(1) {
        let what = format!("version {version} gave it the axis `{dim}` of extent 1");
        let remedy = format!("add `dims.{dim}: 1` to the same entry of the history");
        return Err(CaseError::new(path, what, remedy));
    }
    let elements = case.get_mut("tensors").and_then(|t| t.get_mut(tensor)?.get_mut("at"));
    let Some(Value::Object(elements)) = elements else { return Ok(()) };
    let mut new = Map::new();
    for (coordinates, bits) in std::mem::take(elements) {
        let mut parts: Vec<&str> = coordinates.split(',').filter(|part| !part.is_empty()).collect();
        if *at > parts.len() {
            let what = format!("\"{coordinates}\" has no place {at} for the axis `{dim}`");
            return Err(refused(&format!("{path}.at"), what, "correct the history's `at`"));
        }
        parts.insert(*at, "0");
        new.insert(parts.join(","), bits);
    }
    *elements = new;
    Ok(())
}

/// What follows from a migrated case's decisions and older cases did not hold: computed dims and lists,
/// and no tensors but those present now; nobody draws the contents of those that are `empty`.
pub(crate) fn settle<T>(
    contract: &Contract,
    case: &mut Case,
    tensors: &mut Decisions<T>,
    empty: impl Fn() -> T,
) -> Checked {
    for decision in decision_order(contract) {
        match decision {
            Decision::Dim(name) if !case.dims.contains_key(name) => {
                if let Some(size) = computed_dim(contract, case, name)? {
                    case.dims.insert(name.to_owned(), size);
                }
            }
            Decision::List(name) if !case.lists.contains_key(name) => {
                if let Some(items) = computed_list(contract, case, name)? {
                    case.lists.insert(name.to_owned(), items);
                }
            }
            _ => {}
        }
    }
    for (name, tensor) in &contract.tensors {
        let there = is_present(name, tensor, &CaseScope::new(contract, case))?;
        let is_undrawn = tensor.from.is_some()
            || tensor.access.resolve(&case.options) == Some(&crate::format::Access::Write);
        if !there {
            tensors.shift_remove(name);
        } else if is_undrawn && !tensors.contains_key(name) {
            tensors.insert(name.clone(), empty());
        }
    }
    Ok(())
}

/// A dim that follows from others; `None` where somebody has to decide it.
fn computed_dim(contract: &Contract, case: &Case, name: &str) -> Result<Option<i64>, CaseError> {
    let Some(dim) = contract.dims.get(name) else { return Ok(None) };
    if let Some(list) = dim.segments.as_ref().and_then(|list| case.lists.get(list)) {
        return Ok(list.iter().try_fold(0i64, |sum, len| sum.checked_add(*len)));
    }
    let Some(expr) = &dim.is else { return Ok(None) };
    let size = expr
        .eval_int(&CaseScope::new(contract, case))
        .map_err(|e| CaseError::expression(format!("dims.{name}"), expr, &e))?;
    Ok(i64::try_from(size).ok())
}

/// A list that follows from others.
fn computed_list(
    contract: &Contract,
    case: &Case,
    name: &str,
) -> Result<Option<Vec<i64>>, CaseError> {
    let Some(list) = contract.lists.get(name) else { return Ok(None) };
    let count = case.dims.get(&list.each).and_then(|size| u64::try_from(*size).ok());
    let (Some(expr), Some(count)) = (&list.is, count.filter(|count| *count <= MOST_ITEMS)) else {
        return Ok(None);
    };
    let mut items = Vec::with_capacity(count as usize);
    for index in 0..count as usize {
        let item = expr
            .eval_int(&CaseScope::new(contract, case).at(&list.each, index))
            .map_err(|e| CaseError::expression(format!("lists.{name}[{index}]"), expr, &e))?;
        let Ok(item) = i64::try_from(item) else { return Ok(None) };
        items.push(item);
    }
    Ok(Some(items))
}
