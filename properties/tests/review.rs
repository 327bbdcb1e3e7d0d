//! Pairs of trees and what a review says of them: one file a pair under `review/pairs`, edits to the tree
//! in `review/base`. What class which clause must get stands in the file; the words are snapshots.
//! `INSTA_UPDATE=always` writes those anew.

use contracts::case_yaml::{read_case, write_case};
use contracts::format::Contract;
use properties::choices::{Seeded, mix};
use properties::generate::draw_unbound;
use properties::report::Paint;
use properties::review::{
    Change, Class, ContractReview, KernelReview, Review, ReviewError, Tree, review, show,
};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A tree as texts.
type Texts = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    what: String,
    edits: Vec<Edit>,
    /// "class clause", in any order; nothing else may be found.
    expect: Vec<String>,
}

/// One edit of one file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: String,
    /// Stands there exactly once…
    from: Option<String>,
    /// …and becomes this.
    to: Option<String>,
    /// The file moves here.
    #[serde(rename = "move")]
    moved: Option<String>,
    /// The file is new and says this.
    create: Option<String>,
    #[serde(default)]
    delete: bool,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/review")
}

fn base() -> Texts {
    texts_in(&folder().join("base"))
}

fn texts_in(root: &Path) -> Texts {
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
fn applies(texts: &Texts, edits: &[Edit]) -> bool {
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

fn edited(mut texts: Texts, edits: &[Edit], pair: &str) -> Texts {
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

fn compared(before: &Texts, after: &Texts) -> Review {
    reviewed(before, after).unwrap_or_else(|error| panic!("{error}"))
}

fn reviewed(before: &Texts, after: &Texts) -> Result<Review, ReviewError> {
    let tree = |name: &str, texts: &Texts| Tree::in_memory(name, texts.clone());
    review(&tree("base", before), &tree("head", after))
}

fn pairs() -> Vec<(String, Pair)> {
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
fn found(review: &Review) -> Vec<String> {
    let line = |class: Class, clause: &str| format!("{} {clause}", class.name().to_lowercase());
    let mut all: Vec<String> =
        review.changes().map(|(_, change)| line(change.class, &change.clause)).collect();
    all.sort();
    all
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(folder().join("snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn every_kind_of_change_is_said_as_it_is() {
    let base = base();
    let all = pairs();
    assert!(all.len() >= 30, "{} pairs", all.len());
    let mut wrong = String::new();
    for (name, pair) in &all {
        let head = edited(base.clone(), &pair.edits, name);
        let forth = compared(&base, &head);
        let mut expected = pair.expect.clone();
        expected.sort();
        let found = found(&forth);
        if found != expected {
            let shown = show::terminal(&forth, Paint::PLAIN);
            wrong.push_str(&format!("{name}: {found:?}, not {expected:?}\n{shown}\n"));
            continue;
        }
        let exit = i32::from(forth.unjustified() > 0);
        let text = format!("{}\n\n{}exit {exit}", pair.what, show::terminal(&forth, Paint::PLAIN));
        snapshot(name, &text);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Each change's place, class and values; those of the way back, when mirrored. Entries of the history
/// that are gone are told; new ones show with what they excuse.
fn mirrored(
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

#[test]
fn the_way_back_mirrors_the_way_there() {
    let base = base();
    for (name, pair) in pairs() {
        let head = edited(base.clone(), &pair.edits, &name);
        let (forth, back) = (compared(&base, &head), compared(&head, &base));
        assert_eq!(mirrored(&forth, false), mirrored(&back, true), "{name}");
        let kernels = |review: &Review| review.kernels.len();
        assert_eq!(kernels(&forth), kernels(&back), "{name}");
    }
}

/// Several changes at once: the way back mirrors the way there, and what one change weakens is found
/// beside all others as well.
#[test]
fn nothing_hides_behind_another_change() {
    const DRAWS: u64 = 60;
    let base = base();
    let pairs = pairs();
    let weaker = |review: &Review| -> Vec<String> {
        let lost = review.changes().filter(|(_, change)| change.class == Class::Loosened);
        // By what it is about at the base: other changes may rename it.
        lost.map(|(_, change)| change.was.clone().unwrap_or_else(|| change.clause.clone()))
            .collect()
    };
    let alone: Vec<Vec<String>> = pairs
        .iter()
        .map(|(name, pair)| weaker(&compared(&base, &edited(base.clone(), &pair.edits, name))))
        .collect();
    let mut held = 0;
    for seed in 1..=DRAWS {
        let mut head = base.clone();
        let mut names = Vec::new();
        let mut wanted = BTreeSet::new();
        for draw in 0..4 {
            let place = (mix(seed, draw) % pairs.len() as u64) as usize;
            let (name, pair) = &pairs[place];
            if applies(&head, &pair.edits) {
                let next = edited(head.clone(), &pair.edits, name);
                // Two edits of one place may make no contract of it.
                if reviewed(&base, &next).is_ok() {
                    head = next;
                    names.push(name.as_str());
                    wanted.extend(alone[place].iter().cloned());
                }
            }
        }
        let (forth, back) = (compared(&base, &head), compared(&head, &base));
        assert_eq!(mirrored(&forth, false), mirrored(&back, true), "{names:?}");
        let found = weaker(&forth);
        held += wanted.len();
        for clause in wanted {
            // A contract that is gone takes all that is said of it along.
            let gone = found.iter().filter_map(|other| other.strip_prefix("contracts."));
            let covered = gone.into_iter().any(|contract| clause.contains(contract));
            assert!(covered || found.contains(&clause), "{names:?}: {clause} in {found:?}");
        }
    }
    assert!(held > 60, "{held} weakenings were held against others");
}

#[test]
fn a_tree_and_itself_differ_in_nothing() {
    let base = base();
    let mut trees = vec![base.clone()];
    trees.extend(pairs().iter().map(|(name, pair)| edited(base.clone(), &pair.edits, name)));
    for tree in trees {
        let same = compared(&tree, &tree);
        assert!(
            same.is_empty() && same.notes.is_empty(),
            "{}",
            show::terminal(&same, Paint::PLAIN)
        );
    }
}

#[test]
fn a_comment_more_changes_no_contract_there_is() {
    let texts = |comment: &str| -> Texts {
        contracts::builtin()
            .iter()
            .map(|contract| {
                let name = &contract.contract;
                let family = contracts::family(name).expect("a family");
                let text = contracts::source(name).expect("a source");
                (format!("contracts/{family}/{name}.yaml"), format!("{text}{comment}"))
            })
            .collect()
    };
    let same = compared(&texts(""), &texts("# read\n"));
    assert!(same.is_empty(), "{}", show::terminal(&same, Paint::PLAIN));
}

#[test]
fn the_comment_and_the_report_say_the_same() {
    let base = base();
    let several = [
        "bound_wider",
        "layout_lost",
        "comments_and_order",
        "regression_deleted",
        "fixture_renamed",
        "kernel_and_ptx",
        "bound_term_new",
        "golden_changed",
        "unexercised",
    ];
    let mut head = base.clone();
    for (name, pair) in pairs().iter().filter(|(name, _)| several.contains(&name.as_str())) {
        head = edited(head, &pair.edits, name);
    }
    let review = compared(&base, &head);
    let comment = show::markdown(&review);
    snapshot("markdown_comment", &comment);
    snapshot("json_report", &show::json(&review));
    let again: Review = serde_json::from_str(&show::json(&review)).expect("its own report");
    assert_eq!(show::markdown(&again), comment);
    for (_, change) in review.changes() {
        assert!(comment.contains(&format!("`{}`", change.clause)), "{}", change.clause);
    }
}

/// The README shows a comment as the tool writes it. `INSTA_UPDATE=always` writes it anew.
#[test]
fn the_readme_shows_a_comment_as_it_is() {
    let demo = folder().join("demo");
    let text = std::fs::read_to_string(demo.join("edits.yaml")).expect("text");
    let pair: Pair = contracts::load::parse_yaml(&text, "edits").unwrap_or_else(|e| panic!("{e}"));
    let before = texts_in(&demo.join("base"));
    let after = edited(before.clone(), &pair.edits, "demo");
    let tree = |name: &str, texts: &Texts| Tree::in_memory(name, texts.clone());
    let (before, after) =
        (tree("main (eb04fe98bc)", &before), tree("scaled_keys (6ba8706b0b)", &after));
    let review = review(&before, &after).unwrap_or_else(|error| panic!("{error}"));
    let mut expected = pair.expect.clone();
    expected.sort();
    assert_eq!(found(&review), expected, "{}", pair.what);
    let comment = show::markdown(&review);
    let (mark, comment) = comment.split_once('\n').expect("a first line");
    assert_eq!(mark, show::MARK);
    let quoted =
        |line: &str| if line.is_empty() { ">\n".to_owned() } else { format!("> {line}\n") };
    let wanted: String = comment.lines().map(quoted).collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(&file).expect("the README").replace("\r\n", "\n");
    let from = readme.find("> ### Contract review").expect("a comment in the README");
    let quote = |line: &&str| line.starts_with('>');
    let shown: String =
        readme[from..].lines().take_while(quote).map(|l| format!("{l}\n")).collect();
    if shown != wanted && std::env::var("INSTA_UPDATE").is_ok_and(|value| value == "always") {
        std::fs::write(&file, readme.replace(&shown, &wanted)).expect("written");
        return;
    }
    assert_eq!(shown, wanted, "the README's comment is not what the tool writes");
}

#[test]
fn strings_of_a_contract_are_only_text_in_the_comment() {
    let base = base();
    let mut head = base.clone();
    let file = "contracts/families/scale_rows.yaml";
    let hostile = "summary: \"x |</td> `tick ![i](https://evil.example/i.png) <script>a</script> @everyone #1 \\u202e\"";
    let text = head.get_mut(file).expect("the contract");
    *text = text.replace("summary: Each row times its factor.", hostile);
    let comment = show::markdown(&compared(&base, &head));
    let row = comment.lines().find(|line| line.contains("summary")).expect("its row");
    assert!(row.ends_with('|') && !row.contains("<script") && !row.contains("</td>"), "{row}");
    assert!(!row.contains("](http") && !row.contains("@everyone") && !row.contains("#1"), "{row}");
    assert!(!row.contains('\u{202e}') && !row.contains("://"), "{row}");
    // Cells: the empty one, sign, clause, change. A bar of the text is escaped.
    let bars = row.replace("\\|", "").matches('|').count();
    assert_eq!(bars, 4, "{row}");
}

#[test]
fn a_comment_fits_into_a_comment() {
    let base = base();
    let mut head = base.clone();
    for case in 0..3000 {
        head.insert(
            format!("corpora/scale_rows/added_{case}.yaml"),
            base["corpora/scale_rows/pads.yaml"].clone(),
        );
    }
    let (forth, back) = (compared(&base, &head), compared(&head, &base));
    assert_eq!((forth.count(Class::Tightened), back.count(Class::Loosened)), (3000, 3000));
    for review in [&forth, &back] {
        let comment = show::markdown(review);
        assert!(comment.chars().count() < 65_536);
        assert!(comment.contains("regressions.added_0`") && comment.contains("2940 more changes"));
    }
}

/// A report may come from anybody: whatever is long in it is cut, what is weaker stands first, and what
/// is left out is counted.
#[test]
fn a_report_of_any_size_is_a_comment() {
    const MOST: usize = 65_536;
    let change = |clause: String, class, says: String| Change {
        clause,
        was: None,
        class,
        says,
        before: None,
        after: None,
        reason: None,
    };
    let contract = |name: String, changes: Vec<Change>| ContractReview {
        contract: name,
        file: "f".repeat(10_000),
        changes,
        unexercised: (0..2000).map(|n| format!("tolerance.{n}")).collect(),
        ..ContractReview::default()
    };
    let hostile = "<script>@everyone|".repeat(40);
    let quiet = |n: usize| {
        contract(format!("a{n}"), vec![change("x.y".to_owned(), Class::Neutral, hostile.clone())])
    };
    let loosened =
        (0..500).map(|n| change(format!("z.{n}"), Class::Loosened, hostile.clone())).collect();
    let mut contracts: Vec<ContractReview> = (0..500).map(quiet).collect();
    contracts.push(contract("z".to_owned(), loosened));
    let kernel = |n: usize| KernelReview {
        kernel: format!("k{n}"),
        sources: vec![hostile.clone(); 200],
        judged_by: vec![hostile.clone(); 200],
        mismatch: Some(hostile.clone()),
    };
    let review = Review {
        base: hostile.repeat(100),
        head: hostile.repeat(100),
        notes: (0..20_000).map(|n| format!("{n} {hostile}")).collect(),
        contracts,
        kernels: (0..300).map(kernel).collect(),
        error: None,
    };
    let comment = show::markdown(&review);
    let length = comment.chars().count();
    assert!(length < MOST, "{length}");
    for text in [
        "500 changes are weaker without a reason",
        "more notes",
        "`z.0`",
        "of them weaker without a reason",
        "more contracts changed",
        "More kernels changed",
    ] {
        assert!(comment.contains(text), "{text}");
    }
    assert!(comment.find("`z.0`") < comment.find("`x.y`"), "what is weaker stands first");
    // What stands between backquotes is code.
    let outside: String = comment.split('`').step_by(2).collect();
    assert!(!outside.contains("<script") && !outside.contains("@everyone"));
    let failed = show::markdown(&Review::failed(hostile.repeat(10_000)));
    assert!(failed.chars().count() < MOST && !failed.contains("<script"));
}

/// Thousands of files that were renamed and given a comment each are read once, not once for each other.
#[test]
fn thousands_of_stored_cases_are_followed_in_seconds() {
    const CASES: usize = 4000;
    let base = base();
    let (mut before, mut after) = (base.clone(), base.clone());
    for case in 0..CASES {
        let text =
            base["corpora/scale_rows/tail_65.yaml"].replace("len: [65]", &format!("len: [{case}]"));
        before.insert(format!("corpora/scale_rows/old_{case}.yaml"), text.clone());
        after.insert(
            format!("corpora/scale_rows/new_{}.yaml", CASES - case),
            format!("{text}# moved\n"),
        );
    }
    let started = Instant::now();
    let found = compared(&before, &after);
    assert_eq!((found.count(Class::Neutral), found.count(Class::Loosened)), (CASES, 0));
    let took = started.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
}

/// A stored case that is written anew as its contract's history says is no edit; anything else is, and so
/// is what no history says.
#[test]
fn a_migrated_case_is_the_same_case() {
    let file = "contracts/families/sum_rows.yaml";
    let texts = base();
    let old = &texts[file];
    let entry = "history:\n  - {version: 2, because: \"the scale was 1 before\", link: \"https://example.org/issues/3\", added: {scalars.scale: 0x3f800000}}\n";
    let new = old
        .replace("version: 1\n", "version: 2\n")
        .replace("tensors:\n", "scalars:\n  scale: {dtype: f32, domain: finite, values: [{constant: 1.0}, {constant: 2.0}]}\ntensors:\n")
        .replace("history: []\n", entry);
    let read = |text: &str| -> &'static Contract {
        let contract = contracts::parse_contract(text, file).unwrap_or_else(|e| panic!("{e}"));
        Box::leak(Box::new(contract))
    };
    let (old_contract, new_contract) = (read(old), read(&new));
    let case = draw_unbound(old_contract, &mut Seeded { seed: 3 }).expect("a case");
    let old_case = write_case(&case, old_contract, None);
    let migrated = read_case(&old_case, "case", &|_| Some(new_contract)).expect("migrated");
    let new_case = write_case(&migrated, new_contract, None);
    let tree = |contract: &str, case: &str| {
        let mut texts = texts.clone();
        texts.insert(file.to_owned(), contract.to_owned());
        texts.insert("corpora/sum_rows/stored.yaml".to_owned(), case.to_owned());
        texts
    };
    let of_case = |after: &Texts| -> Vec<Class> {
        let (before, after) = (tree(old, &old_case), after.clone());
        let (forth, back) = (compared(&before, &after), compared(&after, &before));
        assert_eq!(mirrored(&forth, false), mirrored(&back, true));
        let own = forth.changes().filter(|(_, change)| change.clause == "regressions.stored");
        own.map(|(_, change)| change.class).collect()
    };
    let edit = [Class::Loosened, Class::Tightened];
    assert!(of_case(&tree(&new, &new_case)).is_empty());
    // The scale of the migrated case is another one than the history says, or the version has no history.
    let other = new_case.replace("0x3f800000", "0x40000000");
    assert_ne!(other, new_case);
    assert_eq!(of_case(&tree(&new, &other)), edit);
    assert_eq!(of_case(&tree(&new.replace(entry, "history: []\n"), &new_case)), edit);
}

/// A loosening hides behind no renamed word: classes that judge under it are compared with those that
/// judged under the word in its place.
#[test]
fn a_renamed_word_hides_nothing() {
    let file = "contracts/families/scale_rows.yaml";
    let whole = "  s: {all: {bound: {round_out: state, terms: {paths: {times: 6, unit: f32}}, floor: 1.0e-30}}}";
    let class = |word: &str, times: u32| {
        format!(
            "    {word}: {{when: \"order == {word}\", bound: {{round_out: state, terms: {{paths: {{times: {times}, unit: f32}}}}, floor: 1.0e-30}}}}"
        )
    };
    let tree = |words: &[&str], times: &[u32]| {
        let mut texts = base();
        let text = texts.get_mut(file).expect("the contract");
        let by = |all: [&str; 3]| {
            let value = |at: usize| all.get(at).copied().unwrap_or(all[0]);
            words
                .iter()
                .enumerate()
                .map(|(at, word)| format!("{word}: {}", value(at)))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let classes = words
            .iter()
            .zip(times)
            .map(|(word, times)| class(word, *times))
            .collect::<Vec<_>>()
            .join("\n");
        for (from, to) in [
            ("order: [first, last, middle]", format!("order: [{}]", words.join(", "))),
            ("first: finite, last: finite, middle: nonzero", by(["finite", "finite", "nonzero"])),
            (
                "first: read_write, last: write, middle: read_write",
                by(["read_write", "write", "read_write"]),
            ),
            ("order != last", format!("order != {}", words[1])),
            (whole, format!("  s:\n{classes}")),
        ] {
            assert_eq!(text.matches(from).count(), 1, "{from}");
            *text = text.replace(from, &to);
        }
        texts
    };
    let before = tree(&["first", "last", "middle"], &[6, 7, 8]);
    let weaker = |after: &Texts| -> Vec<String> {
        let review = compared(&before, after);
        let loosened = review.changes().filter(|(_, change)| change.class == Class::Loosened);
        loosened
            .map(|(_, change)| change.says.clone())
            .filter(|says| says.starts_with("tolerance"))
            .collect()
    };
    // Renamed alone: the words are gone and new, the classes judge as they did.
    let none: [String; 0] = [];
    assert_eq!(weaker(&tree(&["head", "tail", "mid"], &[6, 7, 8])), none);
    assert_eq!(weaker(&tree(&["first", "last", "mid"], &[6, 7, 8])), none);
    // One of them wider.
    let wider = ["tolerance of s at tail: paths 7 → 9, 28.6 % looser"];
    assert_eq!(weaker(&tree(&["head", "tail", "mid"], &[6, 9, 8])), wider);
    assert_eq!(weaker(&tree(&["first", "tail", "middle"], &[6, 9, 8])), wider);
    // Behind a word more, any new word may stand for any that is gone.
    let among = weaker(&tree(&["head", "tail", "mid", "extra"], &[6, 7, 9, 6]));
    assert!(among.iter().any(|says| says.contains("at mid: paths 8 → 9")), "{among:?}");
    let fewer = weaker(&tree(&["head", "tail"], &[6, 99]));
    assert!(fewer.iter().any(|says| says.contains("at tail: paths 7 → 99")), "{fewer:?}");
}

#[test]
fn what_cannot_be_compared_says_where_and_why() {
    let base = base();
    let error = |before: &Texts, after: &Texts| {
        let tree = |name: &str, texts: &Texts| Tree::in_memory(name, texts.clone());
        review(&tree("base", before), &tree("head", after)).expect_err("an error").to_string()
    };
    let file = "contracts/families/scale_rows.yaml";
    let mut old = base.clone();
    let text = old[file].replace("kind: kernel\n", "kind: kernel\nrevision: 3\n");
    old.insert(file.to_owned(), text);
    assert_eq!(
        error(&old, &base),
        "base has a contract that this build's format does not read: contracts/families/scale_rows.yaml:5: revision: \
         unknown field `revision`; write `version`. It predates the format, so what changed in meaning cannot be said; \
         name a later base, or review it with the build of that commit"
    );
    let said = error(&base, &old);
    assert!(
        said.starts_with("contracts/families/scale_rows.yaml (head): line 5: revision:"),
        "{said}"
    );
    let mut none = base.clone();
    none.retain(|path, _| !path.starts_with("contracts"));
    assert!(error(&none, &base).contains("base has no contracts/"), "{}", error(&none, &base));
    let mut twice = base.clone();
    twice.insert("contracts/other/scale_rows.yaml".to_owned(), base[file].clone());
    let said = error(&base, &twice);
    assert!(
        said.starts_with("head has contracts/families/scale_rows.yaml and contracts/other/"),
        "{said}"
    );
    let mut known = base.clone();
    known.insert("corpora/known_failures.yaml".to_owned(), "- {contract: x}\n".to_owned());
    assert!(error(&base, &known).starts_with("corpora/known_failures.yaml (head):"));
    let mut elsewhere = base.clone();
    elsewhere.insert(
        "contracts/history.yaml".to_owned(),
        "- {clauses: [a.b], because: c, link: d}\n".to_owned(),
    );
    assert!(error(&base, &elsewhere).contains("`d` is no link to an issue"));
}

#[test]
fn what_no_contract_can_explain_is_explained_beside_them() {
    let base = base();
    let mut head = base.clone();
    head.remove("corpora/golden/peers.safetensors");
    assert_eq!(compared(&base, &head).unjustified(), 1);
    let entry = "- {clauses: [golden.peers], because: \"the peer's answers are of a version with a bug\", link: \"https://example.org/issues/9\"}\n";
    head.insert("contracts/history.yaml".to_owned(), entry.to_owned());
    assert_eq!(compared(&base, &head).unjustified(), 0);
    // The next change cannot lean on it.
    let mut next = head.clone();
    next.insert("corpora/golden/peers.safetensors".to_owned(), "again".to_owned());
    assert_eq!(compared(&next, &head).unjustified(), 1);
}
