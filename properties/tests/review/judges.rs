//! Files that no comparison reads: each change of one is told, and many of one kind hide none of another.

use crate::trees::{Texts, base, compared};
use properties::review::{Review, show};

const NOTE: &str = "What judges changed too, and is to be read";

/// The note that names a file, if one does.
fn names(review: &Review, file: &str) -> bool {
    review.notes.iter().any(|note| note.starts_with(NOTE) && note.contains(file))
}

#[test]
fn what_is_not_compared_is_told() {
    let base = base();
    for file in [
        "corpora/reference_mutation.md",
        "corpora/golden/README.md",
        "corpora/scale_rows/notes.txt",
        "corpora/scale_rows/.tail_65.yaml",
        "corpora/scale_rows/shelf/tail_65.yaml",
        "corpora/odd",
        "kernels/cuda/survivors.tsv",
        "kernels/cuda/include/included_by_nobody.cuh",
        "kernels/ptx/flags.txt",
        "kernels/src/families/scale_rows.rs",
        "kernels/vm/src/dispatch.rs",
        "contracts/families/deep/x.yaml",
        "contracts/tests/x.yaml",
        "reference/src/families/scale_rows.rs",
        "fuzz/fuzz_targets/x.rs",
        ".github/workflows/contract-review.yml",
        "Cargo.toml",
    ] {
        let (mut with, mut other) = (base.clone(), base.clone());
        with.insert(file.to_owned(), "one\n".to_owned());
        other.insert(file.to_owned(), "other\n".to_owned());
        for (before, after) in [(&base, &with), (&with, &other), (&with, &base)] {
            let review = compared(before, after);
            assert!(names(&review, file), "{file}: {:?}", review.notes);
        }
    }
    // What says nothing, and what is compared, is not told.
    for file in ["README.md", "LICENSE-MIT", "kernels/bench/times.rs", "contracts/history.yaml"] {
        let mut with = base.clone();
        with.insert(file.to_owned(), "[]\n".to_owned());
        assert_eq!(compared(&base, &with).notes, [""; 0], "{file}");
    }
}

#[test]
fn many_files_hide_none_of_another_kind() {
    let reference = "reference/src/families/scale_rows.rs";
    let mut before = base();
    before.insert(reference.to_owned(), "x * scale\n".to_owned());
    let mut after = before.clone();
    after.insert(reference.to_owned(), "x * scale * scale\n".to_owned());
    for place in 0..200 {
        after.insert(format!(".many/{place:03}_{}", "x".repeat(240)), String::new());
        after.insert(format!("reference/src/aaa/{place:03}.rs"), String::new());
        after.insert(format!("reference/tests/{place:03}.rs"), String::new());
    }
    let review = compared(&before, &after);
    assert!(names(&review, reference), "{:?}", review.notes);
    // A comment shows each note whole: all files are named or counted.
    let comment = show::markdown(&review);
    assert!(comment.contains("scale\\_rows.rs") && !comment.contains("… and"), "{comment}");
    for more in ["198 more files", "193 more files", "192 more files"] {
        assert!(comment.contains(more), "{more}: {comment}");
    }
}

#[test]
fn a_long_value_shows_where_it_changed() {
    let file = "contracts/families/scale_rows.yaml";
    let tree = |last: &str| -> Texts {
        let mut texts = base();
        let text = texts.get_mut(file).expect("the contract");
        let rows: Vec<String> = (0..200).map(|_| "1.0".to_owned()).collect();
        let long = format!(
            "one: {{dims: {{N: 1}}, values: {{x: {{runs: [{}, {last}]}}}}, lists",
            rows.join(", ")
        );
        *text = text.replace("one: {dims: {N: 1}, lists", &long);
        texts
    };
    let comment = show::markdown(&compared(&tree("2.0"), &tree("3.0")));
    let row = comment.lines().find(|line| line.contains("`fixtures.one`")).expect("its row");
    assert!(row.contains("2.0") && row.contains("3.0"), "{row}");
}
