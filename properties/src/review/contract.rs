//! Two versions of one contract, compared section by section. The destructuring names every field
//! there is: a field added to the format does not compile until it is decided here what it means.

use super::change::{Change, Class};
use super::sides::{Renames, Sides};
use super::{memory, promises, runs, structure};
use contracts::format::{Contract, HistoryEntry};

/// Every change of meaning, in the order of the sections.
pub fn compare(before: &Contract, after: &Contract, renames: &Renames) -> Vec<Change> {
    let mut sides = Sides::new(before, after, renames);
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
        rejects,
        fixtures,
        mutants,
        production,
        except,
        history,
    } = before;
    let all = &mut sides;
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
    runs::rejects(all, rejects, &after.rejects);
    runs::fixtures(all, "fixtures", fixtures, &after.fixtures);
    runs::mutants(all, mutants, &after.mutants);
    runs::fixtures(all, "production", production, &after.production);
    runs::except(all, except, &after.except);
    forgotten(all, history, &after.history);
    sides.changes
}

/// What readers are told, and nothing is judged by.
fn neutral(sides: &mut Sides<'_>, clause: &str, what: &str, before: &str, after: &str) {
    if before != after {
        let says = format!("{what} `{before}` → `{after}`");
        let values = (Some(before.to_owned()), Some(after.to_owned()));
        sides.push(clause, Class::Neutral, says, values);
    }
}

/// Entries of the history that are gone. New ones are shown with what they excuse.
fn forgotten(sides: &mut Sides<'_>, before: &[HistoryEntry], after: &[HistoryEntry]) {
    for entry in before.iter().filter(|entry| !after.contains(entry)) {
        let HistoryEntry { version, because, .. } = entry;
        let says = format!("the history of version {version} no longer says: {because}");
        sides.gone("history", Class::Neutral, says, because.clone());
    }
}
