//! Trees as texts, the edits that make one of another, and what a review finds between two.

use properties::review::{Class, Review, ReviewError, Tree, review};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A tree as texts.
pub type Texts = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    pub what: String,
    pub edits: Vec<Edit>,
    /// "class clause", in any order; nothing else may be found.
    pub expect: Vec<String>,
}

/// One edit of one file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    pub file: String,
    /// Stands there exactly once…
    pub from: Option<String>,
    /// …and becomes this.
    pub to: Option<String>,
    /// The file moves here.
    #[serde(rename = "move")]
    pub moved: Option<String>,
    /// The file is new and says this.
    pub create: Option<String>,
    #[serde(default)]
    pub delete: bool,
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/review")
}

pub fn base() -> Texts {
    texts_in(&folder().join("base"))
}

pub fn texts_in(root: &Path) -> Texts {
    fn walk(folder: &Path, root: &Path, texts: &mut Texts) {
        for entry in std::fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                walk(&path, root, texts);
            } else {
                let name = path.strip_prefix(root).expect("inside").to_string_lossy();
                let text = std::fs::read_to_string(&path).expect("text");
                texts.insert(name.replace('\\', "/"), text.replace("\r\n", "\n"));
            }
        }
    }
    let mut texts = Texts::new();
    walk(root, root, &mut texts);
    texts
}

/// Whether every edit still has what it edits.
pub fn applies(texts: &Texts, edits: &[Edit]) -> bool {
    let mut texts = texts.clone();
    edits.iter().all(|edit| {
        let there = texts.get(&edit.file).cloned();
        let fits = match (&edit.from, &edit.create, &there) {
            (Some(from), _, Some(text)) => text.matches(from.as_str()).count() == 1,
            (_, Some(_), there) => there.is_none(),
            (_, _, there) => there.is_some(),
        };
        if fits {
            texts = edited(std::mem::take(&mut texts), std::slice::from_ref(edit), "");
        }
        fits
    })
}

pub fn edited(mut texts: Texts, edits: &[Edit], pair: &str) -> Texts {
    for edit in edits {
        let file = &edit.file;
        match edit {
            Edit { delete: true, .. } => drop(texts.remove(file).expect("a file to delete")),
            Edit { create: Some(text), .. } => {
                assert!(
                    texts.insert(file.clone(), text.clone()).is_none(),
                    "{pair}: {file} is there"
                );
            }
            Edit { moved: Some(to), .. } => {
                let text = texts.remove(file).expect("a file to move");
                texts.insert(to.clone(), text);
            }
            Edit { from: Some(from), to: Some(to), .. } => {
                let text = texts.get_mut(file).unwrap_or_else(|| panic!("{pair}: no {file}"));
                assert_eq!(text.matches(from.as_str()).count(), 1, "{pair}: `{from}` in {file}");
                *text = text.replace(from.as_str(), to);
            }
            _ => panic!("{pair}: {file}: no edit"),
        }
    }
    texts
}

pub fn compared(before: &Texts, after: &Texts) -> Review {
    reviewed(before, after).unwrap_or_else(|error| panic!("{error}"))
}

pub fn reviewed(before: &Texts, after: &Texts) -> Result<Review, ReviewError> {
    let tree = |name: &str, texts: &Texts| Tree::in_memory(name, texts.clone());
    review(&tree("base", before), &tree("head", after))
}

pub fn pairs() -> Vec<(String, Pair)> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder().join("pairs"))
        .expect("readable")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        let name = path.file_stem().expect("a stem").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).expect("text");
        let pair = contracts::load::parse_yaml(&text, &name).unwrap_or_else(|e| panic!("{e}"));
        (name, pair)
    };
    files.iter().map(read).collect()
}

/// What was found, as the pair files write it.
pub fn found(review: &Review) -> Vec<String> {
    let line = |class: Class, clause: &str| format!("{} {clause}", class.name().to_lowercase());
    let mut all: Vec<String> =
        review.changes().map(|(_, change)| line(change.class, &change.clause)).collect();
    all.sort();
    all
}

pub fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(folder().join("snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Each change's place, class and values; those of the way back, when mirrored. Entries of the history
/// that are gone are told; new ones show with what they excuse.
pub fn mirrored(
    review: &Review,
    mirrored: bool,
) -> Vec<(String, Class, Option<String>, Option<String>)> {
    let changes = review.changes().filter(|(_, change)| change.clause != "history");
    let mut all: Vec<_> = changes
        .map(|(_, change)| {
            let other = change.was.clone().unwrap_or_else(|| change.clause.clone());
            let (old, new) = (change.before.clone(), change.after.clone());
            if mirrored {
                (other, change.class.mirrored(), new, old)
            } else {
                (change.clause.clone(), change.class, old, new)
            }
        })
        .collect();
    all.sort();
    all
}
