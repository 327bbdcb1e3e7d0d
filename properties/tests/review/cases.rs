//! Stored cases: thousands are followed in seconds, and one written anew for a newer contract is the same.

use crate::trees::{Texts, base, compared, mirrored};
use contracts::case_yaml::{read_case, write_case};
use contracts::format::Contract;
use properties::choices::Seeded;
use properties::generate::draw_unbound;
use properties::review::Class;
use std::time::{Duration, Instant};

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

/// What the history says of version 2.
struct Migration {
    /// The entry's own fields.
    says: &'static str,
    /// The contract's edits: what stands there exactly once, and what becomes of it.
    edits: &'static [(&'static str, &'static str)],
    /// An edit of the migrated case that the history does not say.
    edit: (&'static str, &'static str),
    /// How it is told.
    told: &'static str,
}

const ADDED: Migration = Migration {
    says: "added: {scalars.scale: 0x3f800000}",
    edits: &[(
        "tensors:\n",
        "scalars:\n  scale: {dtype: f32, domain: finite, values: [{constant: 1.0}, {constant: 2.0}]}\ntensors:\n",
    )],
    edit: ("0x3f800000", "0x40000000"),
    told: "scalars.scale: 1065353216 → 1073741824",
};

/// A dim and a tensor have other names.
const RENAMED: Migration = Migration {
    says: "renamed: {dims.n: dims.width, tensors.x: tensors.rows}",
    edits: &[
        ("  n: {range", "  width: {range"),
        ("n >= 1", "width >= 1"),
        ("  x: {access", "  rows: {access"),
        ("shape: [R, n]", "shape: [R, width]"),
        ("{dims: {n: 200}}", "{dims: {width: 200}}"),
    ],
    edit: ("rows: {layout: dense", "rows: {layout: {row_padded: 13}"),
    told: "tensors.rows.layout: dense → {row_padded: 13}",
};

/// A stored case that is written anew as its contract's history says is no edit; anything else is, and so
/// is what no history says.
#[test]
fn a_migrated_case_is_the_same_case() {
    for migration in [ADDED, RENAMED] {
        migrated(&migration);
    }
}

fn migrated(migration: &Migration) {
    let file = "contracts/families/sum_rows.yaml";
    let texts = base();
    let old = &texts[file];
    let entry = format!(
        "history:\n  - {{version: 2, because: \"sums have another form now\", link: \"https://example.org/issues/3\", {}}}\n",
        migration.says
    );
    let own = [("version: 1\n", "version: 2\n"), ("history: []\n", entry.as_str())];
    let mut new = old.clone();
    for (from, to) in migration.edits.iter().chain(&own) {
        assert_eq!(new.matches(from).count(), 1, "{from}");
        new = new.replace(from, to);
    }
    let read = |text: &str| -> &'static Contract {
        let contract = contracts::parse_contract(text, file).unwrap_or_else(|e| panic!("{e}"));
        Box::leak(Box::new(contract))
    };
    let (old_contract, new_contract) = (read(old), read(&new));
    let drawn = (1..100).filter_map(|seed| draw_unbound(old_contract, &mut Seeded { seed }).ok());
    let mut written = drawn.map(|case| write_case(&case, old_contract, None));
    let old_case = written.find(|text| text.contains("x: {layout: dense")).expect("a dense case");
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
    let says = |after: &Texts| {
        compared(&tree(old, &old_case), after)
            .changes()
            .fold(String::new(), |all, (_, change)| all + &change.says + "\n")
    };
    let edit = [Class::Loosened, Class::Tightened];
    assert!(of_case(&tree(&new, &new_case)).is_empty(), "{}", migration.says);
    // As it was, it is read by the history, and is the same.
    assert!(of_case(&tree(&new, &old_case)).is_empty(), "{}", migration.says);
    // The migrated case says something the history does not, or the version has no history.
    let other = new_case.replacen(migration.edit.0, migration.edit.1, 1);
    assert_ne!(other, new_case);
    assert_eq!(of_case(&tree(&new, &other)), edit, "{}", migration.says);
    // What is told is the edit, and not what the history did to the case.
    let told = says(&tree(&new, &other));
    assert!(told.contains(migration.told), "{told}");
    assert_eq!(of_case(&tree(&new.replace(&entry, "history: []\n"), &new_case)), edit);
}
