//! Stored cases, known failures and golden answers compared. A case is what it decodes to: comments,
//! order and the version it was rewritten for are not part of it. One that is gone or holds another
//! input is no longer replayed.

use super::change::{Change, Class};
use super::git::ReviewError;
use super::sides::Sides;
use super::tree::Tree;
use crate::corpus::{KnownFailure, KnownFailures};
use serde_json::Value;
use std::collections::BTreeMap;

/// The folder of answers that other implementations gave.
const GOLDEN: &str = "corpora/golden";

/// Changes of a contract's stored cases; `was` and `is` are its names.
pub fn regressions(
    sides: &mut Sides<'_>,
    (base, was): (&Tree<'_>, &str),
    (head, is): (&Tree<'_>, &str),
) {
    let (before, after) = (stored(base, was), stored(head, is));
    let mut gone = Vec::new();
    for (stem, path) in &before {
        match after.get(stem) {
            None => gone.push((stem, path)),
            Some(new) if base.same(path, head, new) => {}
            Some(new) => edited(sides, stem, (base, path), (head, new)),
        }
    }
    let mut new: Vec<_> = after.iter().filter(|(stem, _)| !before.contains_key(*stem)).collect();
    for (stem, path) in gone {
        let twin = new.iter().position(|(_, there)| is_same_case((base, path), (head, there)));
        match twin {
            Some(place) => {
                let (moved, _) = new.remove(place);
                sides.renamed("regressions", stem, moved);
            }
            None => {
                let says = format!("regression {stem}.yaml deleted");
                sides.gone(&format!("regressions.{stem}"), Class::Loosened, says, stem.clone());
            }
        }
    }
    for (stem, _) in new {
        let says = format!("regression {stem}.yaml added");
        sides.new_at(&format!("regressions.{stem}"), Class::Tightened, says, stem.clone());
    }
}

/// The stored cases of a contract, by file stem: what a replay would look at, so nothing hidden and
/// nothing in folders of its own.
fn stored(tree: &Tree<'_>, contract: &str) -> BTreeMap<String, String> {
    let folder = format!("corpora/{contract}");
    let stem = |path: &str| {
        let file = path.strip_prefix(&folder)?.strip_prefix('/')?;
        let is_case = !file.starts_with('.') && !file.contains('/');
        file.strip_suffix(".yaml").filter(|_| is_case).map(str::to_owned)
    };
    let files = tree.under(&folder).filter_map(|path| Some((stem(path)?, path.to_owned())));
    files.collect()
}

fn edited(
    sides: &mut Sides<'_>,
    stem: &str,
    (base, path): (&Tree<'_>, &str),
    (head, new): (&Tree<'_>, &str),
) {
    let clause = &format!("regressions.{stem}");
    let (old, new) = match (case(base, path), case(head, new)) {
        (Some(old), Some(new)) => (old, new),
        // What does not decode is replayed by no one; the replay itself says so.
        _ => (Stored::default(), Stored { input: Value::Bool(true), ..Stored::default() }),
    };
    if old.input != new.input && !old.is_migrated(&new) && !new.is_migrated(&old) {
        let (path, was, is) = first_difference(&old.input, &new.input, "");
        let place = format!("{path}: {was} → {is}");
        let says = format!(
            "regression {stem}.yaml edited: the case it held is no longer replayed; {place}"
        );
        sides.gone(clause, Class::Loosened, says, format!("{path}: {was}"));
        let says = format!("regression {stem}.yaml edited: another case is replayed; {place}");
        sides.new_at(clause, Class::Tightened, says, format!("{path}: {is}"));
    }
    if !sides.is_renamed(&old.clause, &new.clause) {
        sides.either(clause, &format!("the clause {stem}.yaml shows"), &old.clause, &new.clause);
    }
}

/// A stored case without what its file is called and when it was written.
#[derive(Default)]
struct Stored {
    input: Value,
    clause: String,
    version: u64,
}

impl Stored {
    /// Whether `newer` is this case with what a later version of the contract asks for beside it: new
    /// sections, and new entries of sections; those it had are as they were.
    fn is_migrated(&self, newer: &Stored) -> bool {
        newer.version > self.version
            && holds_all(&self.input, &newer.input, |section, newer| {
                section == newer || holds_all(section, newer, |entry, newer| entry == newer)
            })
    }
}

/// Whether every entry of an object has one of that name in the other, alike by `alike`.
fn holds_all(less: &Value, more: &Value, alike: impl Fn(&Value, &Value) -> bool) -> bool {
    match (less, more) {
        (Value::Object(less), Value::Object(more)) => {
            less.iter().all(|(key, value)| more.get(key).is_some_and(|other| alike(value, other)))
        }
        _ => false,
    }
}

fn case(tree: &Tree<'_>, path: &str) -> Option<Stored> {
    let text = tree.text(path).ok()?;
    let mut input: Value = contracts::load::parse_yaml(&text, path).ok()?;
    let fields = input.as_object_mut()?;
    fields.remove("contract");
    let version = fields.remove("version").and_then(|version| version.as_u64()).unwrap_or(0);
    let found = fields.remove("found").unwrap_or_default();
    let clause = found.get("clause").and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(Stored { input, clause, version })
}

fn is_same_case((base, path): (&Tree<'_>, &str), (head, new): (&Tree<'_>, &str)) -> bool {
    base.same(path, head, new)
        || match (case(base, path), case(head, new)) {
            (Some(old), Some(new)) => old.input == new.input && old.clause == new.clause,
            _ => false,
        }
}

/// The first place where two cases differ, with both values.
fn first_difference(before: &Value, after: &Value, path: &str) -> (String, String, String) {
    if let (Value::Object(old), Value::Object(new)) = (before, after) {
        let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
        for key in keys {
            let inside = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match (old.get(key), new.get(key)) {
                (Some(a), Some(b)) if a == b => {}
                (a, b) => {
                    let (a, b) = (a.unwrap_or(&Value::Null), b.unwrap_or(&Value::Null));
                    return first_difference(a, b, &inside);
                }
            }
        }
    }
    let short = |value: &Value| {
        let text = crate::report::explain::flow(value);
        match text.char_indices().nth(60) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    };
    (path.to_owned(), short(before), short(after))
}

/// Known failures of both trees, by contract of the head.
pub struct Known {
    before: Vec<KnownFailure>,
    after: Vec<KnownFailure>,
}

impl Known {
    /// Reads both lists; a tree without one tolerates nothing.
    pub fn read(base: &Tree<'_>, head: &Tree<'_>) -> Result<Known, ReviewError> {
        let path = format!("corpora/{}", KnownFailures::FILE);
        let entries = |tree: &Tree<'_>| -> Result<Vec<KnownFailure>, ReviewError> {
            if !tree.has(&path) {
                return Ok(Vec::new());
            }
            // Whether the case is stored is the replay's question.
            let parsed = KnownFailures::parse(&tree.text(&path)?, &path, &|_| true);
            let parsed = parsed.map_err(|error| ReviewError::File {
                tree: tree.name.clone(),
                path: path.clone(),
                what: error.to_string(),
                remedy: "see the entries in CONTRIBUTING.md".to_owned(),
            })?;
            Ok(parsed.entries().to_vec())
        };
        Ok(Known { before: entries(base)?, after: entries(head)? })
    }

    /// Changes of one contract's entries.
    pub fn compare(&self, sides: &mut Sides<'_>, was: &str, is: &str) {
        let of = |side: &[KnownFailure], name: &str| -> BTreeMap<String, KnownFailure> {
            let own = side.iter().filter(|entry| entry.contract == name);
            own.map(|entry| (entry.case.clone(), entry.clone())).collect()
        };
        let (before, after) = (of(&self.before, was), of(&self.after, is));
        let keys = before.keys().chain(after.keys().filter(|case| !before.contains_key(*case)));
        for case in keys {
            let clause = &format!("known_failures.{case}");
            match (before.get(case), after.get(case)) {
                (None, Some(new)) => {
                    let says = format!("{case}.yaml may now fail `{}`; {}", new.clause, new.issue);
                    sides.new_at(clause, Class::Loosened, says, new.clause.clone());
                }
                (Some(old), None) => {
                    let says = format!("{case}.yaml may no longer fail `{}`", old.clause);
                    sides.gone(clause, Class::Tightened, says, old.clause.clone());
                }
                (Some(old), Some(new)) => {
                    let what = format!("the clause {case}.yaml may fail");
                    if !sides.is_renamed(&old.clause, &new.clause) {
                        sides.either(clause, &what, &old.clause, &new.clause);
                    }
                    if old.issue != new.issue {
                        let says = format!("{case}.yaml: issue {} → {}", old.issue, new.issue);
                        let values = (Some(old.issue.clone()), Some(new.issue.clone()));
                        sides.push(clause, Class::Neutral, says, values);
                    }
                }
                (None, None) => {}
            }
        }
    }
}

/// Answers of other implementations: they belong to no contract, and no one recomputes them.
pub fn golden(base: &Tree<'_>, head: &Tree<'_>) -> Vec<Change> {
    let name = |path: &str| path[GOLDEN.len() + 1..].to_owned();
    let clause = |path: &str| {
        let name = name(path);
        format!("golden.{}", name.split('.').next().unwrap_or(&name))
    };
    let change = |path: &str, class, says, sides: (bool, bool)| Change {
        clause: clause(path),
        was: None,
        class,
        says,
        before: sides.0.then(|| name(path)),
        after: sides.1.then(|| name(path)),
        reason: None,
    };
    let mut all = Vec::new();
    for path in base.under(GOLDEN) {
        if !head.has(path) {
            let says = format!("golden answers {} deleted", name(path));
            all.push(change(path, Class::Loosened, says, (true, false)));
        } else if !base.same(path, head, path) {
            let says = format!("golden answers {} changed", name(path));
            all.push(change(path, Class::Incomparable, says, (true, true)));
        }
    }
    for path in head.under(GOLDEN).filter(|path| !base.has(path)) {
        let says = format!("golden answers {} added", name(path));
        all.push(change(path, Class::Tightened, says, (false, true)));
    }
    all
}

/// Source edits of named mutants, by contract and id.
pub struct Edits {
    before: BTreeMap<(String, String), String>,
    after: BTreeMap<(String, String), String>,
}

impl Edits {
    /// The table of edits; none where there is none.
    pub fn read(base: &Tree<'_>, head: &Tree<'_>) -> Result<Edits, ReviewError> {
        const TABLE: &str = "kernels/cuda/mutants.tsv";
        let rows = |tree: &Tree<'_>| -> Result<BTreeMap<(String, String), String>, ReviewError> {
            if !tree.has(TABLE) {
                return Ok(BTreeMap::new());
            }
            let text = tree.text(TABLE)?;
            let row = |line: &str| {
                let mut fields = line.splitn(3, '\t');
                let key = (fields.next()?.to_owned(), fields.next()?.to_owned());
                Some((key, fields.next()?.to_owned()))
            };
            Ok(text.lines().filter(|line| !line.starts_with('#')).filter_map(row).collect())
        };
        if base.same(TABLE, head, TABLE) {
            return Ok(Edits { before: BTreeMap::new(), after: BTreeMap::new() });
        }
        Ok(Edits { before: rows(base)?, after: rows(head)? })
    }

    /// Wrong kernels of one contract that are now wrong otherwise.
    pub fn compare(&self, sides: &mut Sides<'_>, was: &str, is: &str) {
        for ((_, id), old) in self.before.iter().filter(|((name, _), _)| name == was) {
            let Some(new) = self.after.get(&(is.to_owned(), id.clone())) else { continue };
            // The file a text stands in is no part of the edit.
            let edit = |row: &str| row.split_once('\t').map(|(_, edit)| edit.replace('\t', " | "));
            let (old, new) = (edit(old), edit(new));
            if old != new {
                let says = format!("{id} is now made wrong by another edit; it has to be read");
                sides.push(&format!("mutants.{id}"), Class::Neutral, says, (old, new));
            }
        }
    }
}
