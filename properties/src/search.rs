//! The search loop: draws cases for the clauses least exercised, on every core, until each clause
//! has its share or time is up. Findings are shrunk and written by the worker that made them.

use crate::check::{ToolError, Workspace, check};
use crate::choices::{Seeded, mix};
use crate::corpus;
use crate::counters::Counters;
use crate::examine::Examine;
use crate::generate;
use crate::provenance;
use crate::relation;
use crate::shrink::{Shrunk, shrink};
use crate::subject::Subject;
use crate::verdict::Verdict;
use contracts::case::Case;
use kernels::backend::Backend;
use kernels::backend::vm::{Coverage, VmBackend};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What to search and when to stop.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Subjects to search.
    pub subjects: Vec<&'static Subject>,
    /// Stop when every clause × dtype has this many cases…
    pub cases_per_clause: u64,
    /// …or after this long.
    pub limit: Duration,
    /// First seed; the run is a function of it and of where it stops.
    pub seed: u64,
    /// Worker threads.
    pub threads: usize,
    /// Where regressions are written; `None` writes nothing.
    pub corpora: Option<PathBuf>,
    /// Time one finding may be shrunk for.
    pub shrink_limit: Duration,
    /// Findings after which a subject is left alone.
    pub findings_per_subject: usize,
}

/// One disagreement, shrunk.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Contract.
    pub contract: &'static str,
    /// The shrunk case and its verdict.
    pub shrunk: Shrunk,
    /// Cases of the contract tried when it was found.
    pub after_cases: u64,
    /// Backend that showed it.
    pub backend: &'static str,
    /// Where it was written.
    pub path: Option<PathBuf>,
    /// Why it could not be written.
    pub unwritten: Option<String>,
}

/// What a search of one subject came to.
#[derive(Clone, Debug)]
pub struct SubjectSummary {
    /// The subject.
    pub subject: &'static Subject,
    /// Exercise counts.
    pub counters: Counters,
    /// PTX blocks and edges reached.
    pub coverage: Coverage,
    /// Disagreements and faults.
    pub findings: Vec<Finding>,
    /// What the machine could not run, once each.
    pub unsupported: BTreeSet<String>,
}

/// What a search came to.
#[derive(Debug)]
pub struct Summary {
    /// One a subject, in the plan's order.
    pub subjects: Vec<SubjectSummary>,
    /// Wall time.
    pub elapsed: Duration,
    /// Whether it was asked to stop early.
    pub interrupted: bool,
}

/// Live figures for a progress display.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Contract.
    pub contract: &'static str,
    /// Cases with a verdict.
    pub cases: u64,
    /// Clause × dtype pairs with their share.
    pub done: usize,
    /// Clause × dtype pairs that can be exercised here.
    pub total: usize,
    /// PTX edges reached.
    pub edges: usize,
    /// Findings.
    pub findings: usize,
}

struct Shared {
    plan: Plan,
    started: Instant,
    stop: &'static AtomicBool,
    next_case: Vec<AtomicU64>,
    states: Vec<Mutex<State>>,
    failure: Mutex<Option<ToolError>>,
}

#[derive(Default)]
struct State {
    counters: Counters,
    coverage: Coverage,
    findings: Vec<Finding>,
    /// (clause, tensor) pairs already found: shrinking one twice tells nothing new.
    known: BTreeSet<(String, String)>,
    unsupported: BTreeSet<String>,
    spent: Duration,
}

/// Cases a worker runs before it reports.
const BATCH: u64 = 16;

/// Runs a search. `observe` is called about four times a second with live figures.
pub fn search(
    plan: Plan,
    stop: &'static AtomicBool,
    observe: &mut dyn FnMut(&[Progress], Duration),
) -> Result<Summary, ToolError> {
    let count = plan.subjects.len();
    let shared = Shared {
        started: Instant::now(),
        stop,
        next_case: (0..count).map(|_| AtomicU64::new(0)).collect(),
        states: (0..count).map(|_| Mutex::new(State::default())).collect(),
        failure: Mutex::new(None),
        plan,
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..shared.plan.threads.max(1)).map(|_| scope.spawn(|| work(&shared))).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
            observe(&shared.progress(), shared.started.elapsed());
        }
    });
    if let Some(error) = lock(&shared.failure).take() {
        return Err(error);
    }
    let interrupted = stop.load(Ordering::Relaxed);
    let elapsed = shared.started.elapsed();
    let subjects = shared.plan.subjects.clone();
    let summaries = subjects.into_iter().zip(shared.states).map(|(subject, state)| {
        let state = state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        SubjectSummary {
            subject,
            counters: state.counters,
            coverage: state.coverage,
            findings: state.findings,
            unsupported: state.unsupported,
        }
    });
    Ok(Summary { subjects: summaries.collect(), elapsed, interrupted })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.started.elapsed() >= self.plan.limit
            || lock(&self.failure).is_some()
    }

    fn progress(&self) -> Vec<Progress> {
        let one = |(subject, state): (&&'static Subject, &Mutex<State>)| {
            let state = lock(state);
            let lines = state.counters.summary(subject, false, false);
            let here = lines.iter().filter(|line| line.not_here.is_none());
            let done = here.clone().filter(|line| line.cases >= self.plan.cases_per_clause).count();
            Progress {
                contract: subject.name(),
                cases: state.counters.cases,
                done,
                total: here.count(),
                edges: state.coverage.edges(),
                findings: state.findings.len(),
            }
        };
        self.plan.subjects.iter().zip(&self.states).map(one).collect()
    }

    /// The unfinished subject that has had the least time; `None` when all are finished.
    fn neediest(&self) -> Option<usize> {
        let mut best: Option<(Duration, usize)> = None;
        for (place, subject) in self.plan.subjects.iter().enumerate() {
            let state = lock(&self.states[place]);
            let finished = state.counters.least(subject, false, false)
                >= self.plan.cases_per_clause
                || state.findings.len() >= self.plan.findings_per_subject;
            if !finished && best.is_none_or(|(spent, _)| state.spent < spent) {
                best = Some((state.spent, place));
            }
        }
        best.map(|(_, place)| place)
    }
}

fn work(shared: &Shared) {
    let mut workspace = Workspace::new();
    while !shared.is_over() {
        let Some(place) = shared.neediest() else { return };
        if let Err(error) = batch(shared, place, &mut workspace) {
            *lock(&shared.failure) = Some(error);
            return;
        }
    }
}

/// Runs `BATCH` cases of one subject and adds what they exercised to its state.
fn batch(shared: &Shared, place: usize, workspace: &mut Workspace) -> Result<(), ToolError> {
    let subject = shared.plan.subjects[place];
    let mut backend = VmBackend::new();
    let mut counters = Counters::default();
    let mut unsupported = BTreeSet::new();
    let started = Instant::now();
    let wanted = shared.plan.cases_per_clause;
    let (aims, rejections_lack) = {
        let counters = &lock(&shared.states[place]).counters;
        (counters.neediest(subject, wanted), counters.rejections_lack(subject, wanted))
    };
    for turn in 0..BATCH as usize {
        if shared.is_over() {
            break;
        }
        let number = shared.next_case[place].fetch_add(1, Ordering::Relaxed);
        // One case in four examines the relation examined least, one all rejections while they lack
        // cases; the rest follow their own draw.
        let aim = aims.get(turn / 4 % aims.len().max(1)).filter(|_| turn % 4 == 1);
        let Some(mut draw) = draw_for(subject, aim, mix(shared.plan.seed, number)) else {
            counters.discarded += 1;
            continue;
        };
        if turn % 4 == 3 && rejections_lack {
            draw.examine = Examine::Rejections;
        }
        let verdict =
            check(subject, &draw.case, &draw.examine, &mut backend, workspace, &mut counters)?;
        match &verdict {
            Verdict::Unsupported(what) => {
                unsupported.insert(what.clone());
            }
            verdict if verdict.is_failure() => {
                found(shared, place, &draw.case, verdict, number + 1, workspace)?;
            }
            _ => {}
        }
    }
    let mut state = lock(&shared.states[place]);
    state.counters.merge(&counters);
    state.coverage.merge(backend.coverage());
    state.unsupported.append(&mut unsupported);
    state.spent += started.elapsed();
    Ok(())
}

/// A case of this seed; with an aim, the first of a few that the relation has something to say of.
fn draw_for(subject: &Subject, aim: Option<&String>, seed: u64) -> Option<generate::Draw> {
    const TRIES: u64 = 64;
    let Some(aim) = aim else { return generate::draw(subject, &mut Seeded { seed }).ok() };
    let draws = (0..TRIES)
        .filter_map(|nth| generate::draw(subject, &mut Seeded { seed: mix(seed, nth) }).ok());
    let mut draw =
        draws.into_iter().find(|draw| relation::speaks_of(aim, subject.contract, &draw.case))?;
    draw.examine = Examine::Relation(aim.clone());
    Some(draw)
}

fn found(
    shared: &Shared,
    place: usize,
    case: &Case,
    verdict: &Verdict,
    after_cases: u64,
    workspace: &mut Workspace,
) -> Result<(), ToolError> {
    let subject = shared.plan.subjects[place];
    let key = (
        verdict.clause().unwrap_or_default().to_owned(),
        verdict.tensor().unwrap_or_default().to_owned(),
    );
    if !lock(&shared.states[place]).known.insert(key) {
        return Ok(());
    }
    let mut backend = VmBackend::new();
    let shrunk =
        shrink_on(subject, case, verdict, &mut backend, workspace, shared.plan.shrink_limit);
    let written =
        shared.plan.corpora.as_ref().map(|root| {
            corpus::write_regression(root, subject, &shrunk.case, &shrunk.verdict, "vm")
        });
    // A finding that cannot be stored is still a finding: it is told, with its case.
    let (path, unwritten) = match written {
        Some(Ok(path)) => (Some(path), None),
        Some(Err(error)) => (None, Some(error.to_string())),
        None => (None, None),
    };
    let contract = subject.name();
    let finding = Finding { contract, shrunk, after_cases, backend: "vm", path, unwritten };
    lock(&shared.states[place]).findings.push(finding);
    Ok(())
}

/// Shrinks a failing case on one backend, and traces the wrong element to its writer. A case on which the tool itself fails is not a smaller
/// failure.
pub fn shrink_on(
    subject: &Subject,
    case: &Case,
    verdict: &Verdict,
    backend: &mut dyn Backend,
    workspace: &mut Workspace,
    limit: Duration,
) -> Shrunk {
    let examine = Examine::for_clause(verdict.clause().unwrap_or_default());
    let mut ignored = Counters::default();
    let mut judge =
        |case: &Case| check(subject, case, &examine, backend, workspace, &mut ignored).ok();
    let mut shrunk = shrink(subject, case, verdict, &mut judge, limit);
    // Words for the reader: without them the finding stands all the same.
    let _ = provenance::trace(subject, &shrunk.case, &mut shrunk.verdict, backend, workspace);
    shrunk
}
