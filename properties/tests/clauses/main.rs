//! The vocabulary of clauses, each with a planted fault that it alone catches and a near-miss that it
//! lets pass: `rows::ROWS`. A clause of the format, or of any contract, without a row fails here. The
//! table in `properties/CLAUSES.md` is written from what the rows showed:
//! `UPDATE_CLAUSES=1 cargo test --release -p properties --test clauses`.

mod drive;
mod forms;
mod rows;
mod table;

use drive::Shown;
use forms::{every_form, form_of};
use properties::subject::{known_subjects, planted};
use rows::{ELSEWHERE, GENERATORS, ROWS};
use std::collections::BTreeSet;
use std::path::Path;
use table::Row;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/CLAUSES.md");

#[test]
fn every_form_of_clause_has_a_row_and_every_row_a_form() {
    let rows: BTreeSet<&str> =
        ROWS.iter().map(|row| row.form).chain(ELSEWHERE.iter().map(|row| row.form)).collect();
    let forms = every_form();
    let lacking: Vec<_> = forms.iter().filter(|form| !rows.contains(form.as_str())).collect();
    assert!(lacking.is_empty(), "no row shows {lacking:?}: add one to tests/clauses/rows.rs");
    let strays: Vec<_> = rows.iter().filter(|row| !forms.contains(**row)).collect();
    assert!(strays.is_empty(), "{strays:?} are no forms of clause");
}

#[test]
fn every_clause_of_every_contract_is_of_a_known_form() {
    let forms = every_form();
    for subject in known_subjects() {
        for clause in &subject.clauses {
            let form = form_of(subject.contract, clause);
            assert!(forms.contains(&form), "{} {}: `{form}`", subject.name(), clause.id);
        }
    }
}

#[test]
fn every_planted_fault_and_near_miss_is_shown() {
    // The third kernel's are in the table of known bugs.
    let shown_here = |name: &str| name != "canary_experts";
    for (kernel, faults) in kernels::registry::TEST_KERNELS {
        if !shown_here(kernel.name) {
            continue;
        }
        for fault in faults {
            let shown = ROWS.iter().chain(GENERATORS).any(|row| {
                row.kernel == kernel.name
                    && (row.fault == fault.name || row.near_miss == Some(fault.name))
            });
            assert!(shown, "{} {}: no row plants it", kernel.name, fault.name);
            assert!(planted(kernel.name, fault.name).is_some());
        }
    }
}

/// The driver: each fault is found by its clause and by no other, survives with it switched off, and the
/// near-miss passes while the clause is exercised.
#[test]
fn each_clause_alone_catches_its_fault_and_lets_its_near_miss_pass() {
    let mut wrong = Vec::new();
    let mut shown: Vec<(&Row, Shown)> = Vec::new();
    let rows: Vec<&Row> = ROWS.iter().chain(GENERATORS).collect();
    for (row, result) in rows.iter().zip(drive::show_all(&rows)) {
        match result {
            Ok(one) => shown.push((row, one)),
            Err(why) => wrong.push(format!("{} ({} {}): {why}", row.form, row.kernel, row.fault)),
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    let text = table::document(&shown);
    if std::env::var_os("UPDATE_CLAUSES").is_some() {
        std::fs::write(DOCUMENT, &text).unwrap_or_else(|error| panic!("{DOCUMENT}: {error}"));
    }
    let stored = std::fs::read_to_string(DOCUMENT).unwrap_or_default();
    assert!(
        stored == text,
        "properties/CLAUSES.md is not what the rows show; write it anew: UPDATE_CLAUSES=1 cargo test \
         --release -p properties --test clauses"
    );
}

/// What another test shows is named with its file, and is there.
#[test]
fn what_is_shown_elsewhere_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for row in ELSEWHERE {
        let text = std::fs::read_to_string(root.join(row.file))
            .unwrap_or_else(|error| panic!("{}: {error}", row.file));
        assert!(text.contains(&format!("fn {}(", row.test)), "{}: no test {}", row.file, row.test);
    }
}

/// Refused legal calls, calls that are not refused, and clauses of one run: nothing is reported of the
/// right kernels.
#[test]
fn the_test_kernels_are_right_as_they_are() {
    for subject in properties::subject::test_kernels() {
        let found = drive::failing(subject, None, 400);
        assert!(found.clauses.is_empty(), "{}: {:?}", subject.name(), found.clauses);
        assert!(found.cases > 300, "{}: only {} cases", subject.name(), found.cases);
    }
}
