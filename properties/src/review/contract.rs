//! Two versions of one contract, compared section by section. The destructuring names every field
//! there is: a field added to the format does not compile until it is decided here what it means.

use super::change::Class;
use super::sides::Sides;
use super::{memory, promises, runs, structure};
use contracts::format::{Contract, HistoryEntry};
use serde_json::Value;
use std::collections::BTreeMap;

/// Every change of meaning, in the order of the sections.
pub fn compare(sides: &mut Sides<'_>) {
    let (before, after) = (sides.before, sides.after);
    let Contract {
        contract,
        version,
        kind,
        summary,
        spec,
        dtypes,
        options,
        variants,
        dims,
        lists,
        requires,
        scalars,
        stores,
        tensors,
        joint,
        nan,
        tolerance,
        drift,
        relations,
        paths,
        rejects,
        fixtures,
        mutants,
        production,
        except,
        history,
    } = before;
    let all = sides;
    neutral(all, "contract", "renamed", contract, &after.contract);
    neutral(all, "version", "version", &version.to_string(), &after.version.to_string());
    all.either("kind", "kind", kind, &after.kind);
    neutral(all, "summary", "summary", summary, &after.summary);
    neutral(all, "spec", "equations", spec, &after.spec);
    structure::words(all, "dtypes", dtypes, &after.dtypes);
    structure::words(all, "options", options, &after.options);
    structure::variants(all, variants, &after.variants);
    structure::dims(all, dims, &after.dims);
    structure::lists(all, lists, &after.lists);
    structure::requires(all, requires, &after.requires);
    memory::scalars(all, scalars, &after.scalars);
    memory::stores(all, stores, &after.stores);
    memory::tensors(all, tensors, &after.tensors);
    memory::joint(all, joint, &after.joint);
    memory::nan(all, nan.as_ref(), after.nan.as_ref());
    promises::tolerance(all, tolerance, &after.tolerance);
    promises::drift(all, drift, &after.drift);
    runs::relations(all, relations, &after.relations);
    runs::paths(all, paths, &after.paths);
    runs::rejects(all, rejects, &after.rejects);
    runs::fixtures(all, "fixtures", fixtures, &after.fixtures);
    runs::mutants(all, mutants, &after.mutants);
    runs::fixtures(all, "production", production, &after.production);
    runs::except(all, except, &after.except);
    forgotten(all, history, &after.history);
}

/// What readers are told, and nothing is judged by.
fn neutral(sides: &mut Sides<'_>, clause: &str, what: &str, before: &str, after: &str) {
    if before != after {
        let says = format!("{what} `{before}` → `{after}`");
        let values = (Some(before.to_owned()), Some(after.to_owned()));
        sides.push(clause, Class::Neutral, says, values);
    }
}

/// Entries of the history that are gone: new ones are shown with what they excuse. What entries say
/// about how older cases are read is compared too.
fn forgotten(sides: &mut Sides<'_>, before: &[HistoryEntry], after: &[HistoryEntry]) {
    for entry in before.iter().filter(|entry| !after.contains(entry)) {
        let HistoryEntry { version, because, .. } = entry;
        let says = format!("the history of version {version} no longer says: {because}");
        sides.gone("history", Class::Neutral, says, because.clone());
    }
    let (old, new) = (migrations(before), migrations(after));
    for version in old.keys().chain(new.keys().filter(|version| !old.contains_key(*version))) {
        let clause = format!("migration.v{version}");
        let what = format!("how cases older than version {version} are read");
        sides.either(&clause, &what, &old.get(version), &new.get(version));
    }
}

/// What each version's entries say beside who, why and where.
fn migrations(history: &[HistoryEntry]) -> BTreeMap<u32, Vec<Value>> {
    const TOLD: [&str; 4] = ["version", "clauses", "because", "link"];
    let is_empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    let mut all: BTreeMap<u32, Vec<Value>> = BTreeMap::new();
    for entry in history {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(entry) else { continue };
        fields.retain(|name, value| !TOLD.contains(&name.as_str()) && !is_empty(value));
        if !fields.is_empty() {
            all.entry(entry.version).or_default().push(Value::Object(fields));
        }
    }
    all
}
