//! Which contract of the base is which of the head: by name, and for what is left over by content, so
//! that one renamed or moved is followed and not taken for one removed and one added.

use super::git::ReviewError;
use super::judges::is_contract;
use super::protocols::is_protocol;
use super::sides::Renames;
use super::tree::Tree;
use contracts::format::Contract;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Share of all entries that must be the same for a contract to be another one's successor.
const SUCCESSOR: f64 = 0.6;

/// One contract as a file.
pub struct Written {
    /// Its file.
    pub path: String,
    /// What it says.
    pub contract: Contract,
}

/// A contract on both sides, or on one.
pub struct Paired {
    /// At the base.
    pub before: Option<Written>,
    /// At the head.
    pub after: Option<Written>,
}

impl Paired {
    /// The name at the base.
    pub fn was(&self) -> Option<&str> {
        self.before.as_ref().map(|written| written.contract.contract.as_str())
    }

    /// The name at the head.
    pub fn is(&self) -> Option<&str> {
        self.after.as_ref().map(|written| written.contract.contract.as_str())
    }
}

/// The contract files of a tree, by their stem, which only one may have: two would be one contract, and
/// which of them is built is not for a review to guess.
fn files(tree: &Tree<'_>) -> Result<BTreeMap<String, String>, ReviewError> {
    let stem = |path: &str| {
        let file = path.rsplit('/').next().unwrap_or(path);
        file.strip_suffix(".yaml").unwrap_or(file).to_owned()
    };
    let mut files = BTreeMap::new();
    for path in tree.under("contracts").filter(|path| is_contract(path)) {
        if let Some(first) = files.insert(stem(path), path.to_owned()) {
            let (tree, second) = (tree.name.clone(), path.to_owned());
            return Err(ReviewError::TwoContracts { tree, first, second });
        }
    }
    files.retain(|_, path| !is_protocol(tree, path));
    Ok(files)
}

/// Reads the contracts of both trees, and pairs them.
pub fn pair(base: &Tree<'_>, head: &Tree<'_>) -> Result<Vec<Paired>, ReviewError> {
    let (before, after) = (files(base)?, files(head)?);
    for (tree, files) in [(base, &before), (head, &after)] {
        if files.is_empty() {
            return Err(ReviewError::NoContracts { tree: tree.name.clone() });
        }
    }
    let mut all = Vec::new();
    let mut left = Vec::new();
    for (stem, path) in &before {
        match after.get(stem) {
            Some(new) if path == new && base.same(path, head, new) => {
                // The same bytes need no comparison, but stored cases may have changed.
                let written = read(head, new)?;
                let twin = Written { path: path.clone(), contract: written.contract.clone() };
                all.push(Paired { before: Some(twin), after: Some(written) });
            }
            Some(new) => all.push(Paired {
                before: Some(read_base(base, path)?),
                after: Some(read(head, new)?),
            }),
            None => left.push(read_base(base, path)?),
        }
    }
    let mut new = Vec::new();
    for (_, path) in after.iter().filter(|(stem, _)| !before.contains_key(*stem)) {
        new.push(read(head, path)?);
    }
    follow(&mut all, left, new);
    Ok(all)
}

/// Pairs what is left over, the most alike first.
fn follow(all: &mut Vec<Paired>, left: Vec<Written>, new: Vec<Written>) {
    let mut left: Vec<Option<Written>> = left.into_iter().map(Some).collect();
    let mut new: Vec<Option<Written>> = new.into_iter().map(Some).collect();
    let contents = |side: &[Option<Written>]| -> Vec<BTreeSet<String>> {
        side.iter().flatten().map(|written| entries(&written.contract)).collect()
    };
    let (old_entries, new_entries) = (contents(&left), contents(&new));
    let mut likes = Vec::new();
    for (i, a) in old_entries.iter().enumerate() {
        for (j, b) in new_entries.iter().enumerate() {
            let likeness = alike(a, b);
            if likeness >= SUCCESSOR {
                likes.push((likeness, i, j));
            }
        }
    }
    likes.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    for (_, i, j) in likes {
        if left[i].is_some() && new[j].is_some() {
            all.push(Paired { before: left[i].take(), after: new[j].take() });
        }
    }
    all.extend(left.into_iter().flatten().map(|old| Paired { before: Some(old), after: None }));
    all.extend(new.into_iter().flatten().map(|new| Paired { before: None, after: Some(new) }));
}

/// Entries of all sections as texts, without what names the contract or tells its story.
fn entries(contract: &Contract) -> BTreeSet<String> {
    let tree = serde_json::to_value(contract).unwrap_or_default();
    let head = ["contract", "version", "kind", "summary", "spec", "history"];
    let mut all = BTreeSet::new();
    for (section, entries) in tree.as_object().into_iter().flatten() {
        if head.contains(&section.as_str()) {
            continue;
        }
        if let Value::Object(entries) = entries {
            all.extend(entries.iter().map(|(name, entry)| format!("{section}.{name}: {entry}")));
        }
    }
    all
}

/// Entries both have, of all that either has.
fn alike(a: &BTreeSet<String>, b: &BTreeSet<String>) -> f64 {
    let both = a.intersection(b).count() as f64;
    both / ((a.len() + b.len()) as f64 - both).max(1.0)
}

fn read_base(tree: &Tree<'_>, path: &str) -> Result<Written, ReviewError> {
    let text = tree.text(path)?;
    match contracts::parse_contract(&text, path) {
        Ok(contract) => Ok(Written { path: path.to_owned(), contract }),
        Err(error) => {
            Err(ReviewError::OldFormat { tree: tree.name.clone(), said: error.to_string() })
        }
    }
}

fn read(tree: &Tree<'_>, path: &str) -> Result<Written, ReviewError> {
    let text = tree.text(path)?;
    let refused = |error: contracts::ContractError| {
        let place = error.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let dotted =
            if error.path.is_empty() { String::new() } else { format!("{}: ", error.path) };
        ReviewError::File {
            tree: tree.name.clone(),
            path: path.to_owned(),
            what: format!("{place}{dotted}{}", error.what),
            remedy: error.remedy,
        }
    };
    let contract = contracts::parse_contract(&text, path).map_err(refused)?;
    Ok(Written { path: path.to_owned(), contract })
}

/// The contracts that have another name now.
pub fn renames(pairs: &[Paired]) -> Renames {
    pairs
        .iter()
        .filter_map(|pair| Some((pair.was()?, pair.is()?)))
        .filter(|(was, is)| was != is)
        .map(|(was, is)| (was.to_owned(), is.to_owned()))
        .collect()
}
