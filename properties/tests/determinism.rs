//! The same seed searches the same cases, counts and finds the same, on any number of threads.

use properties::search::{Plan, SubjectSummary, search};
use properties::subject::{Subject, canary, subject};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn searched(subject: &'static Subject, cases: u64, seed: u64, threads: usize) -> SubjectSummary {
    static STOP: AtomicBool = AtomicBool::new(false);
    let plan = Plan {
        subjects: vec![subject],
        cases_per_clause: cases,
        limit: Duration::from_secs(200),
        seed,
        threads,
        corpora: None,
        shrink_limit: Duration::from_secs(100),
        findings_per_subject: 1,
    };
    let mut summary = search(plan, &STOP, &mut |_, _| {}).expect("the search runs");
    assert!(summary.elapsed < Duration::from_secs(200), "time, and not the cases, ended it");
    summary.subjects.pop().expect("one subject")
}

#[test]
fn a_search_does_not_depend_on_its_threads() {
    for (name, cases) in [("argmax_rows", 12), ("ple_gather", 12)] {
        let subject = subject(name).expect("a production subject");
        let alone = searched(subject, cases, 11, 1);
        assert!(alone.counters.cases > 100 && alone.findings.is_empty(), "{alone:?}");
        for threads in [2, 7] {
            let other = searched(subject, cases, 11, threads);
            assert_eq!(other.counters, alone.counters, "{name} on {threads} threads");
            assert!(other.coverage == alone.coverage, "{name} on {threads} threads");
        }
        let elsewhere = searched(subject, cases, 12, 2);
        assert!(elsewhere.counters != alone.counters, "another seed is another search");
    }
}

#[test]
fn findings_are_the_same_and_shrink_the_same() {
    let canary = canary().expect("the canary loads");
    let found = |threads| {
        let summary = searched(canary, u64::MAX, 5, threads);
        let all = summary.findings.into_iter().map(|finding| {
            assert!(finding.shrunk.finished, "time, and not the steps, ended it");
            (finding.after_cases, finding.shrunk)
        });
        all.collect::<Vec<_>>()
    };
    let alone = found(1);
    assert!(!alone.is_empty());
    for threads in [2, 7] {
        assert_eq!(found(threads), alone, "{threads} threads");
    }
}
