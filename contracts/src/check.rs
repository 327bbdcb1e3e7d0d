//! The rules a typed contract must keep: names, choices, dims and lists. `check_tensors` has the rules
//! for what is in memory, `check_promises` those for what is promised. A contract that passes can be
//! drawn, laid out and judged without a lookup failing.

use crate::check_tensors::{check_scalars_and_joint, check_stores, check_tensor};
use crate::expr::Function;
use crate::format::{Contract, Dim, List};
use crate::load::suggestion;
use crate::names::{self, Complaint, Kind, Visible, expect};
use crate::order::decision_order;
use std::collections::HashSet;

/// Most entries of one section.
const MOST_NAMES: usize = 64;
/// Longest name, in bytes.
const LONGEST_NAME_BYTES: usize = 48;

/// A broken rule: where, what and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: String,
    pub(crate) what: String,
    pub(crate) remedy: String,
}

pub(crate) type Checked = Result<(), Found>;

pub(crate) fn found(
    path: impl Into<String>,
    what: impl Into<String>,
    remedy: impl Into<String>,
) -> Found {
    Found { path: path.into(), what: what.into(), remedy: remedy.into() }
}

/// Refuses with a place when the condition fails.
pub(crate) fn ensure(holds: bool, path: &str, what: &str, remedy: &str) -> Checked {
    if holds { Ok(()) } else { Err(found(path, what, remedy)) }
}

/// Puts a complaint at a place.
pub(crate) fn at(path: &str) -> impl Fn(Complaint) -> Found + '_ {
    move |(what, remedy)| found(path, what, remedy)
}

/// Checks every rule.
pub(crate) fn check(contract: &Contract) -> Checked {
    check_names(contract)?;
    check_choices(contract)?;
    for (name, dim) in &contract.dims {
        check_dim(contract, name, dim)?;
    }
    for (name, list) in &contract.lists {
        check_list(contract, name, list)?;
    }
    check_cycles(contract)?;
    for (name, tensor) in &contract.tensors {
        check_tensor(contract, name, tensor)?;
    }
    check_stores(contract)?;
    check_scalars_and_joint(contract)?;
    crate::check_promises::check(contract)
}

fn check_names(contract: &Contract) -> Checked {
    ensure(contract.version >= 1, "version", "versions count from 1", "write 1 or more")?;
    check_name("contract", &contract.contract)?;
    let mut taken = HashSet::new();
    let sections: [(&str, Vec<&String>); 14] = [
        ("dtypes", contract.dtypes.keys().collect()),
        ("options", contract.options.keys().collect()),
        ("variants", contract.variants.keys().collect()),
        ("dims", contract.dims.keys().collect()),
        ("lists", contract.lists.keys().collect()),
        ("requires", contract.requires.keys().collect()),
        ("scalars", contract.scalars.keys().collect()),
        ("stores", contract.stores.keys().collect()),
        ("tensors", contract.tensors.keys().collect()),
        ("joint", contract.joint.keys().collect()),
        ("relations", contract.relations.keys().collect()),
        ("paths", contract.paths.keys().collect()),
        ("fixtures", contract.fixtures.keys().collect()),
        ("mutants", contract.mutants.keys().collect()),
    ];
    for (position, (section, keys)) in sections.into_iter().enumerate() {
        let limit = format!("more than {MOST_NAMES} entries");
        ensure(keys.len() <= MOST_NAMES, section, &limit, "split the contract")?;
        for key in keys {
            let path = format!("{section}.{key}");
            check_name(&path, key)?;
            // The first five sections share the namespace of expressions.
            if position < 5 {
                let reserved = Function::ALL.iter().any(|f| f.name() == key)
                    || crate::dtype::DType::ALL.iter().any(|dtype| dtype.name() == key);
                ensure(
                    !reserved,
                    &path,
                    &format!("`{key}` is reserved by the format"),
                    "choose another name",
                )?;
                let twice = format!(
                    "`{key}` already names another dtype symbol, option, variant, dim or list"
                );
                ensure(taken.insert(key), &path, &twice, "choose another name")?;
            }
        }
    }
    let kinds: [(&str, bool); 2] =
        [("dtypes", contract.dtypes.is_empty()), ("tensors", contract.tensors.is_empty())];
    for (section, empty) in kinds {
        ensure(!empty, section, "nothing is declared", "declare at least one")?;
    }
    Ok(())
}

pub(crate) fn check_name(path: &str, name: &str) -> Checked {
    let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let begins = name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    let reserved = matches!(name, "and" | "or" | "not" | "in" | "by");
    ensure(
        letters && begins && name.len() <= LONGEST_NAME_BYTES,
        path,
        &format!("`{name}` is not a name"),
        "use letters, digits and `_`, not a digit first, at most 48",
    )?;
    ensure(!reserved, path, &format!("`{name}` is reserved by the format"), "choose another name")
}

pub(crate) fn distinct<T: PartialEq>(items: &[T]) -> bool {
    items.iter().enumerate().all(|(index, item)| !items[..index].contains(item))
}

fn check_choices(contract: &Contract) -> Checked {
    for (name, types) in &contract.dtypes {
        let path = format!("dtypes.{name}");
        ensure(
            !types.is_empty() && distinct(types),
            &path,
            "the types are empty or repeat",
            "list each once",
        )?;
    }
    let options = contract.options.keys().map(|name| ("options", name));
    for (section, name) in options.chain(contract.variants.keys().map(|name| ("variants", name))) {
        let path = format!("{section}.{name}");
        let words = names::words_of(contract, name).unwrap_or_default();
        ensure(
            !words.is_empty() && distinct(&words),
            &path,
            "the words are empty or repeat",
            "list each once",
        )?;
        let numbers = words.iter().filter(|word| word.parse::<i64>().is_ok()).count();
        ensure(
            numbers == 0 || numbers == words.len(),
            &path,
            "integers and words are mixed",
            "write integers only or words only",
        )?;
        for word in words {
            let plain =
                !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            ensure(
                plain,
                &path,
                &format!("`{word}` is not a word"),
                "use letters, digits and `_`",
            )?;
            let ambiguous =
                format!("`{word}` also names a choice, so a comparison could mean either");
            ensure(names::words_of(contract, word).is_none(), &path, &ambiguous, "rename one")?;
        }
    }
    for (name, variant) in &contract.variants {
        for (word, condition) in &variant.available {
            let path = format!("variants.{name}.where.{word}");
            let words = variant.values.iter().map(|w| w.0.as_str());
            ensure(
                words.clone().any(|known| known == word),
                &path,
                &format!("`{word}` is no value of `{name}`"),
                &suggestion(word, words),
            )?;
            expect(contract, condition, Visible::Structure, Kind::Bool).map_err(at(&path))?;
        }
        let first =
            variant.values.first().is_none_or(|word| !variant.available.contains_key(&word.0));
        ensure(
            first,
            &format!("variants.{name}.where"),
            "the first value is not always available",
            "list one that is first",
        )?;
    }
    Ok(())
}

/// Exactly one of several forms is written.
pub(crate) fn one_form(path: &str, forms: &[(&str, bool)]) -> Checked {
    let written: Vec<&str> = forms.iter().filter(|(_, is)| *is).map(|(form, _)| *form).collect();
    let known = forms.iter().map(|(form, _)| *form).collect::<Vec<_>>().join(", ");
    match written.as_slice() {
        [_] => Ok(()),
        [] => Err(found(path, "no form is written", format!("write exactly one of {known}"))),
        several => {
            let what = format!("{} exclude each other", several.join(" and "));
            Err(found(path, what, format!("keep exactly one of {known}")))
        }
    }
}

fn check_bounds(path: &str, bounds: Option<[i64; 2]>, least: i64) -> Checked {
    let Some([low, high]) = bounds else { return Ok(()) };
    ensure(
        (least..=high).contains(&low),
        path,
        &format!("[{low}, {high}] is empty or below {least}"),
        &format!("write [low, high] with {least} <= low <= high"),
    )
}

fn check_dim(contract: &Contract, name: &str, dim: &Dim) -> Checked {
    let path = format!("dims.{name}");
    one_form(
        &path,
        &[
            ("range", dim.range.is_some()),
            ("one_of", !dim.one_of.is_empty()),
            ("multiple_of", dim.multiple_of.is_some()),
            ("at_least", dim.at_least.is_some()),
            ("is", dim.is.is_some()),
            ("segments", dim.segments.is_some()),
        ],
    )?;
    let pairs = [
        ("factor", dim.factor.is_some(), "multiple_of", dim.multiple_of.is_some(), true),
        ("slack", dim.slack.is_some(), "at_least", dim.at_least.is_some(), true),
        ("spare", dim.spare.is_some(), "segments", dim.segments.is_some(), false),
        ("edges", !dim.edges.is_empty(), "range", dim.range.is_some(), false),
    ];
    for (part, has_part, form, has_form, needed) in pairs {
        ensure(
            has_form || !has_part,
            &format!("{path}.{part}"),
            &format!("`{part}` belongs to `{form}`"),
            &format!("remove it or write `{form}`"),
        )?;
        ensure(
            has_part || !has_form || !needed,
            &path,
            &format!("`{form}` needs `{part}`"),
            &format!("add `{part}: [low, high]`"),
        )?;
    }
    check_bounds(&format!("{path}.range"), dim.range, 0)?;
    check_bounds(&format!("{path}.factor"), dim.factor, 0)?;
    check_bounds(&format!("{path}.slack"), dim.slack, 0)?;
    check_bounds(&format!("{path}.spare"), dim.spare, 0)?;
    let sizes = dim.one_of.iter().chain(&dim.edges).all(|size| *size >= 0);
    ensure(
        sizes && distinct(&dim.one_of),
        &path,
        "a size is negative or repeats",
        "list each size once",
    )?;
    let exprs = [("multiple_of", &dim.multiple_of), ("at_least", &dim.at_least), ("is", &dim.is)];
    for (part, expr) in exprs {
        if let Some(expr) = expr {
            let path = format!("{path}.{part}");
            expect(contract, expr, Visible::Structure, Kind::Int).map_err(at(&path))?;
        }
    }
    match &dim.segments {
        Some(list) => check_list_name(contract, &format!("{path}.segments"), list),
        None => Ok(()),
    }
}

pub(crate) fn check_dim_name(contract: &Contract, path: &str, name: &str) -> Checked {
    let known = contract.dims.keys().map(String::as_str);
    ensure(
        contract.dims.contains_key(name),
        path,
        &format!("`{name}` is no dim"),
        &suggestion(name, known),
    )
}

pub(crate) fn check_list_name(contract: &Contract, path: &str, name: &str) -> Checked {
    let known = contract.lists.keys().map(String::as_str);
    ensure(
        contract.lists.contains_key(name),
        path,
        &format!("`{name}` is no list"),
        &suggestion(name, known),
    )
}

pub(crate) fn check_tensor_name(contract: &Contract, path: &str, name: &str) -> Checked {
    let known = contract.tensors.keys().map(String::as_str);
    ensure(
        contract.tensors.contains_key(name),
        path,
        &format!("`{name}` is no tensor"),
        &suggestion(name, known),
    )
}

fn check_list(contract: &Contract, name: &str, list: &List) -> Checked {
    let path = format!("lists.{name}");
    one_form(
        &path,
        &[
            ("length", list.length.is_some()),
            ("slots", list.slots.is_some()),
            ("ids", list.ids.is_some()),
            ("is", list.is.is_some()),
        ],
    )?;
    check_dim_name(contract, &format!("{path}.each"), &list.each)?;
    if let Some(length) = &list.length {
        check_bounds(&format!("{path}.length.range"), Some(length.range), 0)?;
        let edges = length.edges.iter().all(|edge| *edge >= 0);
        ensure(
            edges,
            &format!("{path}.length.edges"),
            "a length is negative",
            "write lengths of 0 or more",
        )?;
    }
    if let Some(slots) = &list.slots {
        check_dim_name(contract, &format!("{path}.slots.pool"), &slots.pool)?;
        let pads = slots.pad.iter().all(|pad| *pad < 0);
        ensure(pads, &format!("{path}.slots.pad"), "a pad could be a slot", "write negative pads")?;
    }
    if let Some(ids) = &list.ids {
        check_dim_name(contract, &format!("{path}.ids.below"), &ids.below)?;
        for (index, invalid) in ids.invalid.iter().enumerate() {
            let path = format!("{path}.ids.invalid[{index}]");
            expect(contract, invalid, Visible::Structure, Kind::Int).map_err(at(&path))?;
        }
    }
    if let Some(expr) = &list.is {
        let path = format!("{path}.is");
        expect(contract, expr, Visible::Each(&list.each), Kind::Int).map_err(at(&path))?;
    }
    Ok(())
}

fn check_cycles(contract: &Contract) -> Checked {
    let order = decision_order(contract);
    let missing = contract
        .dims
        .keys()
        .map(|name| ("dims", name))
        .chain(contract.lists.keys().map(|name| ("lists", name)))
        .find(|(_, name)| !order.iter().any(|decision| decision.name() == name.as_str()));
    match missing {
        None => Ok(()),
        Some((section, name)) => {
            let what = format!("`{name}` depends on itself, through others or directly");
            Err(found(
                format!("{section}.{name}"),
                what,
                "break the cycle: decide one of them first",
            ))
        }
    }
}
