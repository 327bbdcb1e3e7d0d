//! Bugs that shipped elsewhere, each shown on a wrong kernel of ours: the clause that finds it, and the
//! case it shrinks to, which is stored and compared. `properties/KNOWN_BUGS.md` is written by
//! `UPDATE_KNOWN_BUGS=1 cargo test --release -p properties --test known_bugs`, with the seconds it took
//! there; mutants of production kernels are then compiled anew, which needs NVRTC.

mod mutants;
mod rows;

use contracts::case_yaml::{read_case, write_case};
use kernels::backend::Backend;
use kernels::backend::vm::VmBackend;
use kernels::transaction::Planted;
use properties::check::{Workspace, check};
use properties::choices::{Seeded, mix};
use properties::corpus;
use properties::counters::Counters;
use properties::generate;
use properties::rounds::{self, MeaningOfRound, Search};
use properties::search::shrink_on;
use properties::shrink::Shrunk;
use properties::subject::{Subject, planted, subject};
use rows::{Bug, On, ROUNDS, ROWS, RoundBug};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Cases after which a mutant counts as not found.
const MOST_CASES: u64 = 60_000;
/// Longer than any of these shrinks takes on a slow machine: where it ends does not depend on time.
const SHRINK_LIMIT: Duration = Duration::from_secs(600);

/// A bug, found.
struct Found {
    clause: String,
    shrunk: Shrunk,
    cases: u64,
    seconds: f64,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/known_bugs")
}

fn updates() -> bool {
    std::env::var_os("UPDATE_KNOWN_BUGS").is_some()
}

/// The wrong kernel: its subject, and a machine that runs it.
fn wrong(bug: &Bug) -> (Subject, VmBackend) {
    let mut backend = VmBackend::new();
    match bug.on {
        On::Mutant { contract, mutant, entry } => {
            let right = subject(contract).unwrap_or_else(|| panic!("no contract {contract}"));
            let ptx = mutants::ptx(contract, mutant, entry, updates());
            backend
                .replace_entry(contract, entry, ptx)
                .unwrap_or_else(|error| panic!("{contract}.{mutant}: {error}"));
            (right.clone(), backend)
        }
        On::Planted { kernel, fault } => {
            let wrong = planted(kernel, fault).unwrap_or_else(|| panic!("{kernel} has no {fault}"));
            (wrong, backend)
        }
    }
}

/// Draws cases until the clause fails, and shrinks that case.
fn find(bug: &Bug) -> Result<Found, String> {
    let started = Instant::now();
    let (subject, mut backend) = wrong(bug);
    let (mut workspace, mut counters) = (Workspace::new(), Counters::default());
    for number in 0..MOST_CASES {
        let Ok(draw) = generate::draw(&subject, &mut Seeded { seed: mix(0xb06, number) }) else {
            continue;
        };
        let verdict =
            check(&subject, &draw.case, &draw.examine, &mut backend, &mut workspace, &mut counters)
                .map_err(|error| error.to_string())?;
        let Some(clause) = verdict.clause().filter(|_| verdict.is_failure()) else { continue };
        if !clause.starts_with(bug.clause) {
            continue;
        }
        let clause = clause.to_owned();
        let backend: &mut dyn Backend = &mut backend;
        let shrunk =
            shrink_on(&subject, &draw.case, &verdict, backend, &mut workspace, SHRINK_LIMIT);
        let seconds = started.elapsed().as_secs_f64();
        return Ok(Found { clause, shrunk, cases: number + 1, seconds });
    }
    Err(format!("{} is not found by {} in {MOST_CASES} cases", bug.slug, bug.clause))
}

/// Every bug, each on a thread of its own.
fn find_all() -> Vec<Result<Found, String>> {
    std::thread::scope(|scope| {
        let rows: Vec<_> = ROWS.iter().map(|bug| scope.spawn(|| find(bug))).collect();
        rows.into_iter().map(|row| row.join().expect("no search panics")).collect()
    })
}

#[test]
fn every_known_bug_is_found_by_its_clause_and_shrinks_to_the_stored_case() {
    let mut wrong = Vec::new();
    let mut lines = Vec::new();
    for (bug, found) in ROWS.iter().zip(find_all()) {
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                wrong.push(why);
                continue;
            }
        };
        let contract = subject(bug.on.contract()).expect("it was found").contract;
        let text = write_case(&found.shrunk.case, contract, Some(bug.happened));
        let path = folder().join(format!("{}.yaml", bug.slug));
        if updates() {
            std::fs::write(&path, &text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        if stored != text {
            wrong.push(format!("{}: shrinks to another case now:\n{text}", bug.slug));
        }
        if !found.shrunk.finished {
            wrong.push(format!("{}: the shrink did not finish", bug.slug));
        }
        lines.push((bug, found));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let document = document(&lines);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("KNOWN_BUGS.md");
    if updates() {
        std::fs::write(&path, &document).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    // The seconds are the machine's on which the table was written.
    assert_eq!(
        without_seconds(&stored),
        without_seconds(&document),
        "properties/KNOWN_BUGS.md is stale: UPDATE_KNOWN_BUGS=1 cargo test --release -p properties \
         --test known_bugs"
    );
}

/// A stored case fails on the wrong kernel by its clause, and agrees on the right one.
#[test]
fn stored_cases_tell_wrong_kernels_from_right_ones() {
    for bug in ROWS {
        let path = folder().join(format!("{}.yaml", bug.slug));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let case = read_case(&text, &path.display().to_string(), &contracts::contract)
            .unwrap_or_else(|error| panic!("{error}"));
        let right = subject(bug.on.contract()).expect("a subject");
        let (wrong, mut backend) = wrong(bug);
        let examine = properties::examine::Examine::for_clause(bug.clause);
        let (mut workspace, mut counters) = (Workspace::new(), Counters::default());
        let verdict = check(&wrong, &case, &examine, &mut backend, &mut workspace, &mut counters)
            .expect("runs");
        let clause = verdict.clause().unwrap_or("nothing");
        assert!(clause.starts_with(bug.clause), "{}: {verdict}", bug.slug);
        let mut backend = VmBackend::new();
        let verdict = check(right, &case, &examine, &mut backend, &mut workspace, &mut counters)
            .expect("runs");
        assert!(!verdict.is_failure(), "{} on the right kernel: {verdict}", bug.slug);
    }
}

/// The mutants' PTX is that of the sources as they are.
#[test]
fn stored_mutants_are_fresh() {
    for bug in ROWS {
        if let On::Mutant { contract, mutant, .. } = bug.on {
            mutants::is_fresh(contract, mutant).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

/// A wrong round, found and made small.
struct FoundRound {
    clause: String,
    events: String,
    histories: u64,
    seconds: f64,
}

/// Draws histories until one shows the wrong transaction; the stored one does, too, and is as small.
fn find_round(bug: &RoundBug) -> FoundRound {
    let planted = Planted::named(bug.planted);
    let started = Instant::now();
    let plan = Search { seed: 1, histories: 10_000, limit: SHRINK_LIMIT, planted };
    let mut backend = VmBackend::new();
    let (histories, _, found) = rounds::search(plan, &mut backend);
    let seconds = started.elapsed().as_secs_f64();
    let found = found.unwrap_or_else(|| panic!("{} is not found", bug.planted)).shrunk;
    let stored = corpora().join("speculative_round").join(bug.stored).with_extension("yaml");
    let read = rounds::read(&stored).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read.planted, planted, "{}", stored.display());
    assert_eq!(read.invariant, found.violation.invariant, "{}", stored.display());
    assert_eq!(read.history.steps, found.history.steps, "{}", stored.display());
    let replays = rounds::replay(&stored, &mut [Box::new(backend)]);
    let replays = replays.unwrap_or_else(|error| panic!("{error}"));
    assert!(replays.iter().all(|one| one.meaning == MeaningOfRound::Passes), "{replays:?}");
    let events: Vec<String> = read.history.steps.iter().map(|step| step.to_string()).collect();
    let clause = format!("invariants.{}", read.invariant.name());
    FoundRound { clause, events: events.join(", "), histories, seconds }
}

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpora")
}

fn document(lines: &[(&Bug, Found)]) -> String {
    let mut out = String::from(
        "# Bugs that shipped elsewhere, and what finds them here\n\n\
         Each kind of bug is planted in a kernel of ours, found by fresh cases, and shrunk; the stored case \
         fails on the wrong kernel and agrees on the right one. Production kernels are made wrong by the \
         edits of `kernels/cuda/mutants.tsv`; `canary_…` are small kernels kept with the canary, for kinds \
         whose kernel is still to come. Seconds are from the first case to the end of the shrink, on one of \
         two shared cores of an AMD EPYC (Zen 5) virtual machine, 2026-11-30.\n\n\
         Written by `UPDATE_KNOWN_BUGS=1 cargo test --release -p properties --test known_bugs`, and checked \
         without it.\n\n\
         | kind | mutant | clause | shrunk case | after cases | seconds |\n\
         |---|---|---|---|---|---|\n",
    );
    for (bug, found) in lines {
        let _ = writeln!(
            out,
            "| {} | `{}` | `{}` | [{}](tests/known_bugs/{}.yaml) | {} | {:.2} |",
            bug.kind,
            bug.on.name(),
            found.clause,
            corpus::describe(&found.shrunk.case).replace('|', "\\|"),
            bug.slug,
            found.cases,
            found.seconds
        );
    }
    for bug in ROUNDS {
        let FoundRound { clause, events, histories, seconds } = find_round(bug);
        let _ = writeln!(
            out,
            "| {} | `{}` | `{clause}` | [{events}](../corpora/speculative_round/{}.yaml) | {histories} | \
             {seconds:.2} |",
            bug.kind, bug.planted, bug.stored
        );
    }
    out
}

/// The table without its last column.
fn without_seconds(text: &str) -> String {
    let cut = |line: &str| {
        let cells: Vec<&str> = line.split(" | ").collect();
        if line.starts_with("| ") && cells.len() == 6 {
            cells[..5].join(" | ")
        } else {
            line.to_owned()
        }
    };
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}
