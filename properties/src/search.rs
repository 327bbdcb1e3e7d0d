//! The search loop: draws cases for the clauses least exercised, on every core, until each clause
//! has its share or time is up. Findings are shrunk and written by the worker that made them. What a
//! batch of cases aims at follows from the batches long before it, and batches count in order: the same
//! seed gives the same cases, counts and findings on any number of threads.

mod order;

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
use order::{Aims, Batch, InOrder};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
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
    states: Vec<Mutex<State>>,
    failure: Mutex<Option<ToolError>>,
}

/// One subject's share of a search.
struct State {
    order: InOrder,
    counters: Counters,
    coverage: Coverage,
    findings: Vec<Finding>,
    /// (clause, tensor) pairs already found: shrinking one twice tells nothing new.
    known: BTreeSet<(String, String)>,
    unsupported: BTreeSet<String>,
    spent: Duration,
}

impl State {
    fn new(subject: &Subject, plan: &Plan) -> State {
        let counters = Counters::default();
        State {
            order: InOrder::new(&aims(&counters, subject, plan.cases_per_clause)),
            counters,
            coverage: Coverage::new(),
            findings: Vec::new(),
            known: BTreeSet::new(),
            unsupported: BTreeSet::new(),
            spent: Duration::ZERO,
        }
    }
}

/// What lacks cases by these counts.
fn aims(counters: &Counters, subject: &Subject, wanted: u64) -> Aims {
    Aims {
        relations: counters.neediest(subject, wanted),
        rejections_lack: counters.rejections_lack(subject, wanted),
    }
}

/// A failing case to be shrunk by the worker whose batch it came with.
struct Failing {
    case: Case,
    verdict: Verdict,
    after_cases: u64,
}

/// Cases of a batch: what a worker does before it reports.
const BATCH: u64 = 16;

/// Runs a search. `observe` is called about four times a second with live figures.
pub fn search(
    plan: Plan,
    stop: &'static AtomicBool,
    observe: &mut dyn FnMut(&[Progress], Duration),
) -> Result<Summary, ToolError> {
    let shared = Shared {
        started: Instant::now(),
        stop,
        states: plan.subjects.iter().map(|s| Mutex::new(State::new(s, &plan))).collect(),
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

    /// The batch to do next: of the unfinished subject that has had the least time and whose next batch
    /// has its aims.
    fn next(&self) -> Next {
        let mut best: Option<(Duration, usize)> = None;
        let mut any = false;
        for (place, state) in self.states.iter().enumerate() {
            let state = lock(state);
            any |= !state.order.is_finished();
            let ready = state.order.is_ready();
            if ready && best.is_none_or(|(spent, _)| state.spent < spent) {
                best = Some((state.spent, place));
            }
        }
        let taken = best.and_then(|(_, place)| {
            let batch = lock(&self.states[place]).order.take()?;
            Some((place, batch))
        });
        match taken {
            Some((place, (number, aims))) => Next::Batch { place, number, aims },
            None if any => Next::Wait,
            None => Next::Done,
        }
    }

    /// Adds a batch, and every later one that waited for it, and says what is to be shrunk now.
    fn add(&self, place: usize, number: u64, batch: Batch, spent: Duration) -> Vec<Failing> {
        let (subject, wanted) = (self.plan.subjects[place], self.plan.cases_per_clause);
        let mut state = lock(&self.states[place]);
        let State { order, counters, coverage, known, unsupported, findings: _, spent: all } =
            &mut *state;
        *all += spent;
        order.put(number, batch);
        let mut failing = Vec::new();
        while let Some((number, batch)) = order.next_in_order() {
            counters.merge(&batch.counters);
            coverage.merge(&batch.coverage);
            unsupported.extend(batch.unsupported);
            for (turn, case, verdict) in batch.failing {
                let key = (
                    verdict.clause().unwrap_or_default().to_owned(),
                    verdict.tensor().unwrap_or_default().to_owned(),
                );
                if known.len() < self.plan.findings_per_subject && known.insert(key) {
                    let after_cases = number * BATCH + turn + 1;
                    failing.push(Failing { case, verdict, after_cases });
                }
            }
            let finished = counters.least(subject, false, false) >= wanted
                || known.len() >= self.plan.findings_per_subject;
            order.follow(finished, || aims(counters, subject, wanted));
        }
        failing
    }
}

enum Next {
    Batch {
        place: usize,
        number: u64,
        aims: Aims,
    },
    /// Others have the batches that the next ones' aims follow from.
    Wait,
    Done,
}

fn work(shared: &Shared) {
    let mut workspace = Workspace::new();
    while !shared.is_over() {
        let (place, number, aims) = match shared.next() {
            Next::Batch { place, number, aims } => (place, number, aims),
            Next::Wait => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Next::Done => return,
        };
        let started = Instant::now();
        let done = batch(shared, place, number, &aims, &mut workspace).and_then(|batch| {
            let failing = shared.add(place, number, batch, started.elapsed());
            failing
                .into_iter()
                .try_for_each(|failing| found(shared, place, failing, &mut workspace))
        });
        if let Err(error) = done {
            *lock(&shared.failure) = Some(error);
            return;
        }
    }
}

/// Runs the `BATCH` cases of one number of one subject.
fn batch(
    shared: &Shared,
    place: usize,
    number: u64,
    aims: &Aims,
    workspace: &mut Workspace,
) -> Result<Batch, ToolError> {
    let subject = shared.plan.subjects[place];
    let mut backend = VmBackend::new();
    let mut batch = Batch::default();
    for turn in 0..BATCH {
        if shared.is_over() {
            break;
        }
        // One case in four examines the relation examined least, one all rejections while they lack
        // cases; the rest follow their own draw.
        let relations = &aims.relations;
        let aim =
            relations.get(turn as usize / 4 % relations.len().max(1)).filter(|_| turn % 4 == 1);
        let seed = mix(shared.plan.seed, number * BATCH + turn);
        let Some(mut draw) = draw_for(subject, aim, seed) else {
            batch.counters.discarded += 1;
            continue;
        };
        if turn % 4 == 3 && aims.rejections_lack {
            draw.examine = Examine::Rejections;
        }
        let verdict = check(
            subject,
            &draw.case,
            &draw.examine,
            &mut backend,
            workspace,
            &mut batch.counters,
        )?;
        match verdict {
            Verdict::Unsupported(what) => {
                batch.unsupported.insert(what);
            }
            verdict if verdict.is_failure() => batch.failing.push((turn, draw.case, verdict)),
            _ => {}
        }
    }
    batch.coverage = backend.coverage().clone();
    Ok(batch)
}

/// A case of this seed; with an aim, the first of a few that the relation has something to say of.
fn draw_for(subject: &Subject, aim: Option<&String>, seed: u64) -> Option<generate::Draw> {
    const TRIES: u64 = 64;
    let Some(aim) = aim else { return generate::draw(subject, &mut Seeded { seed }).ok() };
    let draws = (0..TRIES)
        .filter_map(|nth| generate::draw(subject, &mut Seeded { seed: mix(seed, nth) }).ok());
    let draw =
        draws.into_iter().find(|draw| relation::speaks_of(aim, subject.contract, &draw.case))?;
    Some(generate::Draw::of(draw.case, Examine::Relation(aim.clone())))
}

fn found(
    shared: &Shared,
    place: usize,
    failing: Failing,
    workspace: &mut Workspace,
) -> Result<(), ToolError> {
    let subject = shared.plan.subjects[place];
    let Failing { case, verdict, after_cases } = failing;
    let mut backend = VmBackend::new();
    let shrunk =
        shrink_on(subject, &case, &verdict, &mut backend, workspace, shared.plan.shrink_limit);
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
    let mut state = lock(&shared.states[place]);
    state.findings.push(finding);
    state.findings.sort_by_key(|finding| finding.after_cases);
    Ok(())
}

/// Shrinks a failing case on one backend, and traces the wrong element to its writer. A case on which
/// the tool itself fails is not a smaller failure.
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
