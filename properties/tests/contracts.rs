//! Every contract of the registry: its corpus replays, its fixtures and fresh cases agree, and every
//! clause is exercised for every dtype. With `--features cuda` the same runs on the GPU.

use kernels::backend::Backend;
use properties::check::{Workspace, check};
use properties::choices::{Seeded, mix};
use properties::counters::Counters;
use properties::examine::Examine;
use properties::generate;
use properties::replay::{Meaning, Replay};
use properties::report;
use properties::search::{Plan, search};
use properties::subject::{Subject, known_subjects, subject};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Cases each clause × dtype must have been exercised by.
const CASES_PER_CLAUSE: u64 = 24;
/// Draws of each fixture.
const DRAWS_PER_FIXTURE: u64 = 4;

fn named(name: &str) -> &'static Subject {
    subject(name).unwrap_or_else(|| panic!("`{name}` is in the registry but has no subject"))
}

fn backends() -> Vec<Box<dyn Backend>> {
    kernels::backend::of_this_build().unwrap_or_else(|error| panic!("{error}"))
}

/// The checkout's corpora; those of the current folder for a binary carried to another machine.
fn corpora() -> PathBuf {
    let runner_says = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let package = runner_says.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    let beside = package.join("../corpora");
    if beside.is_dir() { beside } else { PathBuf::from("corpora") }
}

/// Stored cases stand for bugs a kernel of this contract had or could have: there are some, and all
/// are judged on every backend.
fn corpus_replays(name: &str) {
    let subject = named(name);
    let root = corpora();
    let paths = properties::corpus::files(&root, subject.name()).unwrap_or_else(|e| panic!("{e}"));
    assert!(!paths.is_empty(), "{}: no stored case of {name}", root.display());
    let replays = properties::replay::replay(&root, &paths, &mut backends())
        .unwrap_or_else(|e| panic!("{e}"));
    let wrong = |replay: &&Replay| replay.is_failure() || replay.meaning == Meaning::Undecided;
    let wrong: Vec<_> = replays.iter().filter(wrong).cloned().collect();
    assert!(wrong.is_empty(), "{}", report::replays(&wrong, None));
    assert_eq!(replays.len(), paths.len() * backends().len(), "not every stored case ran");
}

#[test]
fn nothing_in_the_corpora_is_passed_over() {
    let mut known: Vec<_> = known_subjects().map(|subject| subject.name()).collect();
    known.push(properties::rounds::CONTRACT);
    let strays = properties::corpus::strays(&corpora(), &known).unwrap_or_else(|e| panic!("{e}"));
    let strays: Vec<_> = strays.iter().map(ToString::to_string).collect();
    assert!(strays.is_empty(), "{}", strays.join("\n"));
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
        limit: Duration::from_secs(150),
        seed: 0x7e57,
        threads: 1,
        corpora: Some(corpora()),
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

/// Fresh small cases on the GPU against the same reference, after the machine found nothing: so many
/// that every clause had its turn, captured graphs and guard bands among them.
#[cfg(feature = "cuda")]
fn gpu_agrees(name: &str) {
    const CASES: u64 = 400;
    const MOST_CASES: u64 = 20 * CASES;
    let subject = named(name);
    let mut backends = backends();
    let mut counters: Vec<Counters> = backends.iter().map(|_| Counters::default()).collect();
    let mut workspace = Workspace::new();
    let mut drawn = 0;
    while drawn < CASES || (drawn < MOST_CASES && !rarely_exercised(subject, &counters).is_empty())
    {
        let mut choices = Seeded { seed: mix(0x6e0, drawn) };
        drawn += 1;
        let Ok(draw) = generate::draw(subject, &mut choices) else { continue };
        for (backend, counters) in backends.iter_mut().zip(&mut counters) {
            let backend = backend.as_mut();
            let (case, examine) = (&draw.case, &draw.examine);
            let verdict = check(subject, case, examine, backend, &mut workspace, counters)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            if verdict.is_failure() {
                let finding = report::finding(subject, case, &verdict, None);
                panic!("{}: {finding}", backend.name());
            }
        }
    }
    let rare = rarely_exercised(subject, &counters);
    assert!(rare.is_empty(), "{name}: too rare in {drawn} draws: {}", rare.join(", "));
    for counters in &counters {
        // A few draws may be no case.
        assert!(counters.cases >= drawn * 9 / 10, "{name}: only {} cases ran", counters.cases);
    }
}

/// Clause and dtypes exercised on neither backend, or, where only the GPU can, fewer than five times.
/// `counters` are the machine's and the GPU's.
#[cfg(feature = "cuda")]
fn rarely_exercised(subject: &Subject, counters: &[Counters]) -> Vec<String> {
    const ON_GPU: [&str; 3] = ["house.guard", "house.capture", "house.bounds"];
    let mut both = Counters::default();
    counters.iter().for_each(|counters| both.merge(counters));
    let cuda = counters.last().map(|cuda| cuda.summary(subject, true, false)).unwrap_or_default();
    let of_both = both.summary(subject, true, false);
    let wanted = of_both.iter().filter(|line| line.not_here.is_none()).map(|line| (line, 1));
    let on_gpu = cuda.iter().filter(|line| ON_GPU.contains(&line.clause.as_str()));
    wanted
        .chain(on_gpu.map(|line| (line, 5)))
        .filter(|(line, least)| line.cases < *least)
        .map(|(line, _)| format!("{} at {} ({} times)", line.clause, line.dtypes, line.cases))
        .collect()
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
