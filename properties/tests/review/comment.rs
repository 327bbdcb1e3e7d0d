//! The comment: it says what the report says, fits, and what comes out of contracts is text in it.

use crate::trees::{Pair, Texts, base, compared, edited, folder, found, pairs, snapshot, texts_in};
use properties::review::{Change, Class, ContractReview, KernelReview, Review, Tree, review, show};
use std::path::Path;

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
