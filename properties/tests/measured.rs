//! Tables of what was measured hold a row for everything there is to measure, and no row that is over
//! its limit: a decision that is newly planted has to be looked for, a contract to be shrunk as well.

use kernels::transaction::Planted;
use properties::rounds::protocol;
use properties::subject::known_subjects;
use std::collections::BTreeSet;

const ROUNDS: &str = include_str!("../ROUNDS.md");
const SHRINKING: &str = include_str!("../SHRINKING.md");

/// In which each wrong round must be found, and the most events that may be left of it.
const ROUND_SECONDS: f64 = 60.0;
const ROUND_EVENTS: usize = 8;

/// The cells of a document's rows, the head and the line under it left out.
fn rows(document: &str) -> Vec<Vec<&str>> {
    let rows = document.lines().filter(|line| line.starts_with("| "));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect());
    cells.skip(1).collect()
}

/// What is to be measured and has no row, and rows of what is not there.
fn differing(wanted: &BTreeSet<String>, measured: &BTreeSet<String>) -> Option<String> {
    let without_row: Vec<&String> = wanted.difference(measured).collect();
    let of_nothing: Vec<&String> = measured.difference(wanted).collect();
    let same = without_row.is_empty() && of_nothing.is_empty();
    (!same).then(|| format!("not measured: {without_row:?}; rows of nothing: {of_nothing:?}"))
}

fn must_be_same(wanted: &BTreeSet<String>, measured: &BTreeSet<String>, example: &str) {
    if let Some(differing) = differing(wanted, measured) {
        panic!("{differing}; measure anew: cargo run --release -p properties --example {example}");
    }
}

#[test]
fn every_wrong_round_was_fuzzed() {
    let wanted = Planted::ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    let rows = rows(ROUNDS);
    let measured = rows.iter().map(|row| row[0].to_owned()).collect();
    must_be_same(&wanted, &measured, "fuzzed_rounds > properties/ROUNDS.md");
    for row in rows {
        let most: f64 = row[2].parse().expect("seconds");
        let events: usize = row[3].parse().unwrap_or(usize::MAX);
        assert!(most < ROUND_SECONDS && events <= ROUND_EVENTS, "{row:?}");
        let promises = row[4].split(", ").map(|promise| promise.trim_matches('`'));
        for promise in promises {
            let name = promise.strip_prefix("invariants.").unwrap_or(promise);
            assert!(protocol().invariants.contains_key(name), "{row:?}");
        }
    }
}

#[test]
fn shrinking_was_measured_on_every_contract() {
    let wanted = known_subjects().map(|subject| subject.name().to_owned()).collect();
    let names = rows(SHRINKING).into_iter().map(|row| row[0].to_owned());
    let measured = names.filter(|name| name != "**all**").collect();
    must_be_same(&wanted, &measured, "shrinking > properties/SHRINKING.md");
}

#[test]
fn a_row_too_few_and_a_row_too_many_are_told() {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(differing(&set(&["a", "b"]), &set(&["b", "a"])), None);
    let told = differing(&set(&["a", "b"]), &set(&["a"])).expect("one too few");
    assert!(told.contains("not measured: [\"b\"]"), "{told}");
    let told = differing(&set(&["a"]), &set(&["a", "c"])).expect("one too many");
    assert!(told.contains("rows of nothing: [\"c\"]"), "{told}");
    let table = "# A\n\n| what | how |\n|---|---|\n| a | 1 |\n| b | 2 |\n";
    assert_eq!(rows(table), [["a", "1"], ["b", "2"]]);
}
