//! Words of options that have another name: what they judge by is compared under it.

use crate::trees::{Texts, base, compared};
use properties::review::Class;

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
