//! Every contract of the registry: its corpus replays, its fixtures and fresh cases agree, and every
//! clause is exercised for every dtype. With `--features cuda` the same runs on the GPU.

use kernels::backend::Backend;
use kernels::backend::vm::VmBackend;
use properties::check::{Workspace, check};
use properties::choices::{Seeded, mix};
use properties::counters::Counters;
use properties::examine::Examine;
use properties::generate;
use properties::report;
use properties::search::{Plan, search};
use properties::subject::{Subject, subject};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Cases each clause × dtype must have been exercised by.
const CASES_PER_CLAUSE: u64 = 24;
/// Draws of each fixture.
const DRAWS_PER_FIXTURE: u64 = 4;

fn named(name: &str) -> &'static Subject {
    subject(name).unwrap_or_else(|| panic!("`{name}` is in the registry but has no subject"))
}

/// Every backend of this build. A GPU that was asked for and is missing is a failure, not a skip.
fn backends() -> Vec<Box<dyn Backend>> {
    #[allow(unused_mut)]
    let mut backends: Vec<Box<dyn Backend>> = vec![Box::new(VmBackend::new())];
    #[cfg(feature = "cuda")]
    match kernels::backend::cuda::CudaBackend::new() {
        Ok(cuda) => backends.push(Box::new(cuda)),
        Err(error) => panic!("the `cuda` feature is on and there is no usable GPU: {error}"),
    }
    backends
}

fn corpora() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpora"))
}

fn corpus_replays(name: &str) {
    let subject = named(name);
    let paths =
        properties::corpus::files(corpora(), subject.name()).unwrap_or_else(|e| panic!("{e}"));
    let replays = properties::replay::replay_on(corpora(), &paths, &mut backends())
        .unwrap_or_else(|e| panic!("{e}"));
    let failed: Vec<_> = replays.iter().filter(|replay| replay.is_failure()).cloned().collect();
    assert!(failed.is_empty(), "{}", report::replays(&failed));
    assert_eq!(replays.len(), paths.len() * backends().len(), "not every stored case ran");
}

/// Fixtures on every backend: a case on which the machine found nothing goes to the GPU.
fn fixtures_agree(name: &str) {
    let subject = named(name);
    assert!(!subject.contract.fixtures.is_empty(), "{name} has no fixtures");
    let mut backends = backends();
    let (mut workspace, mut counters) = (Workspace::new(), Counters::default());
    for fixture in subject.contract.fixtures.keys() {
        for draw in 0..DRAWS_PER_FIXTURE {
            let mut choices = Seeded { seed: mix(0xf1c5, draw) };
            let case = generate::draw_fixture(subject, fixture, &mut choices)
                .unwrap_or_else(|e| panic!("{name}: fixture {fixture} cannot be drawn: {}", e.0));
            for backend in &mut backends {
                let verdict = check(
                    subject,
                    &case,
                    &Examine::Kernel,
                    backend.as_mut(),
                    &mut workspace,
                    &mut counters,
                )
                .unwrap_or_else(|e| panic!("{name}: fixture {fixture}: {e}"));
                assert!(
                    !verdict.is_failure(),
                    "{}",
                    report::finding(subject, &case, &verdict, None)
                );
            }
        }
    }
    assert!(counters.cases > 0, "{name}: no fixture gave a case");
}

/// Fresh cases until every clause × dtype has its share.
fn clauses_are_exercised(name: &str) {
    static STOP: AtomicBool = AtomicBool::new(false);
    let subject = named(name);
    let plan = Plan {
        subjects: vec![subject],
        cases_per_clause: CASES_PER_CLAUSE,
        limit: Duration::from_secs(90),
        seed: 0x7e57,
        threads: 1,
        corpora: Some(corpora().to_owned()),
        shrink_limit: Duration::from_secs(20),
        findings_per_subject: 1,
    };
    let summary = search(plan, &STOP, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
    let found = &summary.subjects[0];
    if let Some(finding) = found.findings.first() {
        let shrunk = &finding.shrunk;
        panic!(
            "{}",
            report::finding(subject, &shrunk.case, &shrunk.verdict, finding.path.as_deref())
        );
    }
    assert!(found.unsupported.is_empty(), "{name}: the machine lacks {:?}", found.unsupported);
    let least = found.counters.least(subject, false, false);
    assert!(least >= CASES_PER_CLAUSE, "{}", report::summary(&summary, false));
}

/// Fresh small cases on the GPU against the same reference, after the machine found nothing.
#[cfg(feature = "cuda")]
fn gpu_agrees(name: &str) {
    let subject = named(name);
    let mut backends = backends();
    let (mut workspace, mut counters) = (Workspace::new(), Counters::default());
    let cases = 400;
    for number in 0..cases {
        let mut choices = Seeded { seed: mix(0x6e0, number) };
        let Ok(draw) = generate::draw(subject, &mut choices) else { continue };
        for backend in &mut backends {
            let verdict = check(
                subject,
                &draw.case,
                &draw.examine,
                backend.as_mut(),
                &mut workspace,
                &mut counters,
            )
            .unwrap_or_else(|e| panic!("{name}: {e}"));
            if verdict.is_failure() {
                panic!(
                    "{}: {}",
                    backend.name(),
                    report::finding(subject, &draw.case, &verdict, None)
                );
            }
        }
    }
    // Counted over both backends, and a few draws may be no case.
    let wanted = cases * backends.len() as u64 * 9 / 10;
    assert!(counters.cases >= wanted, "{name}: only {} of {wanted} cases ran", counters.cases);
}

/// Production geometry, straight on the GPU.
#[cfg(feature = "cuda")]
fn production_agrees(name: &str) {
    let subject = named(name);
    assert!(!subject.contract.production.is_empty(), "{name} names no production shape");
    let mut cuda = backends().pop().unwrap_or_else(|| panic!("no backend"));
    assert_eq!(cuda.name(), "cuda");
    let (mut workspace, mut counters) = (Workspace::new(), Counters::default());
    for shape in subject.contract.production.keys() {
        let mut choices = Seeded { seed: 0x9d0d };
        let case = generate::draw_fixture(subject, shape, &mut choices)
            .unwrap_or_else(|e| panic!("{name}: production shape {shape}: {}", e.0));
        let verdict =
            check(subject, &case, &Examine::Kernel, cuda.as_mut(), &mut workspace, &mut counters)
                .unwrap_or_else(|e| panic!("{name}: {shape}: {e}"));
        assert!(
            matches!(verdict, properties::verdict::Verdict::Agree),
            "{name}: {shape}: {verdict}"
        );
    }
}

macro_rules! suites {
    ($($family:ident { $($name:ident)* })*) => { $($(
        mod $name {
            #[test]
            fn corpus_replays() { super::corpus_replays(stringify!($name)) }
            #[test]
            fn fixtures_agree() { super::fixtures_agree(stringify!($name)) }
            #[test]
            fn clauses_are_exercised() { super::clauses_are_exercised(stringify!($name)) }
            #[cfg(feature = "cuda")]
            #[test]
            fn gpu_agrees() { super::gpu_agrees(stringify!($name)) }
            #[cfg(feature = "cuda")]
            #[test]
            fn production_agrees() { super::production_agrees(stringify!($name)) }
        }
    )*)* };
}
contracts::registry!(suites);
