//! Stored cases and golden answers compared. A case is what it decodes to: comments, order and the
//! version it was rewritten for are not part of it. One that is gone or holds another input is no longer
//! replayed. What has another name is followed by what it holds.

use super::change::{Change, Class};
use super::sides::{Record, contrasted};
use super::tree::Tree;
use contracts::case_yaml::{CASE_LIMIT_BYTES, read_case, write_case};
use contracts::format::Contract;
use contracts::load::parse_yaml_within;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// The folder of all of them.
const ROOT: &str = "corpora";
/// The folder of answers that other implementations gave.
const GOLDEN: &str = "corpora/golden";
/// Most characters of a value that two cases differ in.
const MOST_OF_A_VALUE: usize = 60;

/// The stored cases of one contract in one tree.
#[derive(Clone, Copy)]
pub struct Folder<'f> {
    /// The tree.
    pub tree: &'f Tree<'f>,
    /// The contract's name, and the folder's.
    pub name: &'f str,
    /// What they are cases of; `None` where it is no contract.
    pub contract: Option<&'f Contract>,
}

/// Changes of the stored cases of one contract; `section` is what their places begin with.
pub fn regressions(record: &mut Record, section: &str, base: Folder<'_>, head: Folder<'_>) {
    let (before, after) = (stored(base.tree, base.name), stored(head.tree, head.name));
    for (stem, path) in &before {
        let Some(new) = after.get(stem) else { continue };
        // Under another name of the contract the same text may be nobody's case.
        if base.name != head.name || !base.tree.same(path, head.tree, new) {
            edited(record, &format!("{section}.{stem}"), stem, (base, path), (head, new));
        }
    }
    let only = |mine: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
        let mine = mine.iter().filter(|(stem, _)| !other.contains_key(*stem));
        mine.map(|(stem, path)| (stem.clone(), path.clone())).collect::<Vec<_>>()
    };
    let (gone, mut new) = (only(&before, &after), only(&after, &before));
    for (old, new) in moved(record, (base, &gone), (head, &mut new)) {
        match new {
            Some(new) => record.renamed(section, &old, &new),
            None => {
                let says = format!("regression {old}.yaml deleted");
                record.gone(&format!("{section}.{old}"), Class::Loosened, says, old);
            }
        }
    }
    for (stem, _) in new {
        let says = format!("regression {stem}.yaml added");
        record.new_at(&format!("{section}.{stem}"), Class::Tightened, says, stem.clone());
    }
}

/// Each file that is gone, with the new one that holds the same; those are no longer new. Every file is
/// read once, and none where none can have moved.
fn moved(
    record: &Record,
    (base, gone): (Folder<'_>, &[(String, String)]),
    (head, new): (Folder<'_>, &mut Vec<(String, String)>),
) -> Vec<(String, Option<String>)> {
    if gone.is_empty() || new.is_empty() {
        return gone.iter().map(|(stem, _)| (stem.clone(), None)).collect();
    }
    let mut waiting: HashMap<Held, VecDeque<String>> = HashMap::new();
    for (stem, path) in new.iter() {
        let held = Held::of(head, path, &|clause| clause.to_owned());
        waiting.entry(held).or_default().push_back(stem.clone());
    }
    let mut all = Vec::new();
    for (stem, path) in gone {
        let held = Held::of(base, path, &|clause| record.new_name(clause));
        let twin = waiting.get_mut(&held).and_then(VecDeque::pop_front);
        all.push((stem.clone(), twin));
    }
    let taken: BTreeSet<&str> = all.iter().filter_map(|(_, twin)| twin.as_deref()).collect();
    new.retain(|(stem, _)| !taken.contains(stem.as_str()));
    all
}

/// The stored cases of a contract, by file stem: what a replay would look at, so nothing hidden and
/// nothing in folders of its own.
fn stored(tree: &Tree<'_>, contract: &str) -> BTreeMap<String, String> {
    let folder = format!("{ROOT}/{contract}");
    let stem = |path: &str| {
        let file = path.strip_prefix(&folder)?.strip_prefix('/')?;
        let is_case = !file.starts_with('.') && !file.contains('/');
        file.strip_suffix(".yaml").filter(|_| is_case).map(str::to_owned)
    };
    let files = tree.under(&folder).filter_map(|path| Some((stem(path)?, path.to_owned())));
    files.collect()
}

/// How many stored cases a contract has.
pub fn count(tree: &Tree<'_>, contract: &str) -> usize {
    stored(tree, contract).len()
}

/// The folders of stored cases in either tree, golden answers left out.
pub fn folders(base: &Tree<'_>, head: &Tree<'_>) -> BTreeSet<String> {
    let name = |path: &str| {
        Some(path.strip_prefix(ROOT)?.strip_prefix('/')?.split_once('/')?.0.to_owned())
    };
    let all = base.under(ROOT).chain(head.under(ROOT)).filter_map(name);
    all.filter(|name| *name != GOLDEN[ROOT.len() + 1..]).collect()
}

/// What a file of the corpora holds: the same under another name is the same case.
#[derive(PartialEq, Eq, Hash)]
enum Held {
    Case(Value, String),
    /// No case; unreadable files are never the same.
    Bytes(Vec<u8>),
    Nothing(String),
}

impl Held {
    fn of(folder: Folder<'_>, path: &str, clause_name: &dyn Fn(&str) -> String) -> Held {
        if let Some(Stored { input, clause }) = case(folder, path) {
            return Held::Case(input, clause_name(&clause));
        }
        let tree = folder.tree;
        let nothing = |_| Held::Nothing(format!("{}: {path}", tree.name));
        tree.bytes(path).map_or_else(nothing, Held::Bytes)
    }
}

fn edited(
    record: &mut Record,
    clause: &str,
    stem: &str,
    (base, path): (Folder<'_>, &str),
    (head, new_path): (Folder<'_>, &str),
) {
    let (old, new) = match (case(base, path), case(head, new_path)) {
        (Some(old), Some(new)) => migrated((base, path), (head, new_path)).unwrap_or((old, new)),
        (old, new) => return refused(record, clause, stem, old.is_some(), new.is_some()),
    };
    if old.input != new.input {
        let (path, was, is) = first_difference(&old.input, &new.input, "");
        let place = format!("{path}: {was} → {is}");
        let says = format!(
            "regression {stem}.yaml edited: the case it held is no longer replayed; {place}"
        );
        record.gone(clause, Class::Loosened, says, format!("{path}: {was}"));
        let says = format!("regression {stem}.yaml edited: another case is replayed; {place}");
        record.new_at(clause, Class::Tightened, says, format!("{path}: {is}"));
    }
    if !record.is_renamed(&old.clause, &new.clause) {
        record.either(clause, &format!("the clause {stem}.yaml shows"), &old.clause, &new.clause);
    }
}

/// An edit of what a replay refuses, before or after.
fn refused(record: &mut Record, clause: &str, stem: &str, was_case: bool, is_case: bool) {
    let word = |is_case| if is_case { "a case" } else { "no case" }.to_owned();
    if was_case || !is_case {
        let says = format!(
            "regression {stem}.yaml edited: the case it held is no longer replayed; it is {} of its contract",
            word(is_case)
        );
        record.gone(clause, Class::Loosened, says, word(was_case));
    }
    if is_case || !was_case {
        let says = format!(
            "regression {stem}.yaml edited: it is {} of its contract, was {}",
            word(is_case),
            word(was_case)
        );
        record.new_at(clause, Class::Tightened, says, word(is_case));
    }
}

/// Two files as cases of the newer contract: what its history says was renamed, retired and added since
/// is no edit. `None` where the contract has one version, or its history does not read both.
fn migrated(base: (Folder<'_>, &str), head: (Folder<'_>, &str)) -> Option<(Stored, Stored)> {
    let (before, after) = base.0.contract.zip(head.0.contract)?;
    if before.version == after.version {
        return None;
    }
    let newer = if after.version > before.version { after } else { before };
    let read = |(folder, path): (Folder<'_>, &str)| -> Option<Stored> {
        let text = folder.tree.text(path).ok()?;
        let lookup = |name: &str| (name == folder.name).then_some(newer);
        let mut case = read_case(&text, path, &lookup).ok()?;
        let clause = case.found.take().map(|found| found.clause).unwrap_or_default();
        let mut fields = fields(&write_case(&case, newer, None), path)?;
        fields.remove("contract");
        Some(Stored { input: Value::Object(fields), clause })
    };
    Some((read(base)?, read(head)?))
}

/// A stored case without what its file is called and when it was written.
struct Stored {
    input: Value,
    clause: String,
}

/// A file as a case of its folder; `None` where a replay would refuse it.
fn case(folder: Folder<'_>, path: &str) -> Option<Stored> {
    let text = folder.tree.text(path).ok()?;
    let mut fields = fields(&text, path)?;
    let is_own = fields.remove("contract").is_none_or(|name| name == folder.name);
    let version = fields.remove("version").and_then(|version| version.as_u64()).unwrap_or(0);
    let newest = folder.contract.map_or(u64::MAX, |contract| u64::from(contract.version));
    let found = fields.remove("found").unwrap_or_default();
    let clause = found.get("clause").and_then(Value::as_str).unwrap_or_default().to_owned();
    (is_own && version <= newest).then_some(Stored { input: Value::Object(fields), clause })
}

fn fields(text: &str, path: &str) -> Option<Map<String, Value>> {
    match parse_yaml_within(text, path, CASE_LIMIT_BYTES).ok()? {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

/// The first place where two cases differ, with both values.
fn first_difference(before: &Value, after: &Value, path: &str) -> (String, String, String) {
    if let (Value::Object(old), Value::Object(new)) = (before, after) {
        // In one order from either side.
        for key in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
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
    let [before, after] = [before, after].map(crate::report::explain::flow);
    let (before, after) = contrasted(&before, &after, MOST_OF_A_VALUE);
    (path.to_owned(), before, after)
}

/// Answers of other implementations: they belong to no contract, and no one recomputes them. One with
/// another name is followed by what it holds.
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
    // Text for people answers nothing.
    let is_answer = |path: &&str| !path.ends_with(".md");
    let only = |tree: &Tree<'_>, other: &Tree<'_>| -> Vec<String> {
        let mine = tree.under(GOLDEN).filter(is_answer).filter(|path| !other.has(path));
        mine.map(str::to_owned).collect()
    };
    let (gone, mut new) = (only(base, head), only(head, base));
    let mut all = Vec::new();
    for path in base.under(GOLDEN).filter(is_answer).filter(|path| head.has(path)) {
        if !base.same(path, head, path) {
            let says = format!("golden answers {} changed", name(path));
            all.push(change(path, Class::Incomparable, says, (true, true)));
        }
    }
    for old in &gone {
        match new.iter().position(|path| base.same(old, head, path)) {
            Some(place) => {
                let path = new.remove(place);
                let says = format!("golden answers {} are now called {}", name(old), name(&path));
                let change = change(&path, Class::Neutral, says, (false, true));
                all.push(Change { was: Some(clause(old)), before: Some(name(old)), ..change });
            }
            None => {
                let says = format!("golden answers {} deleted", name(old));
                all.push(change(old, Class::Loosened, says, (true, false)));
            }
        }
    }
    for path in &new {
        let says = format!("golden answers {} added", name(path));
        all.push(change(path, Class::Tightened, says, (false, true)));
    }
    all
}
