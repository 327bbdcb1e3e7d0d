//! Tables of what was measured hold a row for everything there is to measure, and no row that is over
//! its limit: a mutant or a decision that is newly planted has to be looked for, a contract to be shrunk as
//! well.

use kernels::transaction::Planted;
use properties::corpus::Date;
use properties::rounds::protocol;
use properties::subject::{Subject, known_subjects, subject, subjects};
use std::collections::BTreeSet;

const MUTANT_TIMES: &str = include_str!("../MUTANT_TIMES.md");
const ROUNDS: &str = include_str!("../ROUNDS.md");
const SHRINKING: &str = include_str!("../SHRINKING.md");

/// In which a mutant must be found, in the median.
const MUTANT_SECONDS: f64 = 2.0;
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

/// What is wrong with the row of a mutant, unless it was found in time.
fn too_slow(row: &[&str]) -> Option<String> {
    let [contract, mutant, median, most, cases, clause, day] = row else {
        return Some(format!("{row:?}: not seven cells"));
    };
    let seconds = [median, most].map(|cell| cell.parse::<f64>().ok());
    let [Some(median), Some(most)] = seconds else {
        return Some(format!("{contract}.{mutant}: no seconds"));
    };
    let Some(subject) = subject(contract) else {
        return Some(format!("{contract}.{mutant}: no such contract"));
    };
    let clause = clause.trim_matches('`');
    let is_found = contracts::clauses(subject.contract).iter().any(|one| one.id == clause);
    let in_time = (0.0..=MUTANT_SECONDS).contains(&median) && median <= most;
    let of_cases = cases.parse::<u64>().is_ok_and(|cases| cases > 0) && Date::parse(day).is_some();
    (!(in_time && is_found && of_cases)).then(|| format!("{contract}.{mutant}: {row:?}"))
}

#[test]
fn every_mutant_a_contract_names_was_timed() {
    let named = |subject: &Subject| {
        let mutants = subject.contract.mutants.iter();
        let told_apart = mutants.filter(|(_, mutant)| mutant.equivalent.is_none());
        told_apart.map(|(id, _)| format!("{}.{id}", subject.name())).collect::<Vec<_>>()
    };
    let wanted: BTreeSet<String> = subjects().iter().flat_map(named).collect();
    let rows = rows(MUTANT_TIMES);
    let names: Vec<String> = rows.iter().map(|row| format!("{}.{}", row[0], row[1])).collect();
    let measured: BTreeSet<String> = names.iter().cloned().collect();
    must_be_same(&wanted, &measured, "mutant_times, with the names of those");
    assert_eq!(names.len(), measured.len(), "a mutant has two rows");
    let slow: Vec<String> = rows.iter().filter_map(|row| too_slow(row)).collect();
    assert!(slow.is_empty(), "{slow:#?}");
}

#[test]
fn a_mutant_found_late_or_never_is_told() {
    let row = ["gdn_decode", "decay_sign", "2.000", "7.500", "3", "`house.races`", "2026-12-01"];
    assert_eq!(too_slow(&row), None);
    for (cell, wrong) in [
        (2, "2.001"),
        (2, "-1.000"),
        (2, "NaN"),
        (2, "soon"),
        (3, "1.999"),
        (4, "0"),
        (5, "`not found`"),
        (5, "`tolerance.x.f32`"),
        (0, "gdn_decoder"),
        (6, "2026-02-30"),
    ] {
        let mut row = row;
        row[cell] = wrong;
        assert!(too_slow(&row).is_some(), "{wrong} in cell {cell}");
    }
    assert!(too_slow(&row[..6]).is_some());
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
