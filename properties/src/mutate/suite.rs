//! The questions every mutant of a contract is asked: its stored cases, its fixtures, and a fixed
//! number of fresh cases, each prepared once with the reference's answer. The unchanged kernel answers
//! first; what it executed then says which questions can tell a mutant from it, because up to the
//! changed instruction the two are one kernel.

use crate::check::{ToolError, Workspace, check};
use crate::choices::{Seeded, mix};
use crate::corpus;
use crate::counters::Counters;
use crate::examine::Examine;
use crate::generate;
use crate::prepare::{Prepared, prepare};
use crate::replay::examination;
use crate::subject::Subject;
use crate::verdict::Verdict;
use contracts::case::{Case, Schedule};
use kernels::arena::Arena;
use kernels::backend::vm::VmBackend;
use kernels::backend::{Backend, BackendError, Outcome};
use kernels::call::Call;
use kernels::launch::Plan;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Draws of each fixture.
const DRAWS_PER_FIXTURE: u64 = 64;
/// First seed of the fresh cases: the same for every mutant and every sample, so that two scores differ
/// by their mutants alone.
const SEED: u64 = 0x6d75_7461;
/// A launch that needs this many times the instructions of the unchanged kernel's longest run of the
/// same questions hangs.
const HANG_FACTOR: u64 = 16;

/// Where a question comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A stored case, by file stem.
    Corpus(String),
    /// A fixture of the contract.
    Fixture(String),
    /// The fresh case of this number.
    Fresh(u64),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Corpus(stem) => write!(f, "stored case {stem}"),
            Origin::Fixture(name) => write!(f, "fixture {name}"),
            Origin::Fresh(number) => write!(f, "fresh case {number}"),
        }
    }
}

/// A case and what is examined of it.
#[derive(Debug)]
pub struct Question {
    case: Case,
    examine: Examine,
    origin: Origin,
}

impl Question {
    /// The case, and what is examined of it.
    pub fn parts(&self) -> (&Case, &Examine) {
        (&self.case, &self.examine)
    }
}

/// The questions of a subject in the order they are asked.
///
/// # Errors
/// When a stored case cannot be read.
pub fn questions(
    subject: &Subject,
    corpora: &Path,
    fresh: u64,
) -> Result<Vec<Question>, ToolError> {
    let mut questions = Vec::new();
    for (path, case) in corpus::read_all(corpora, subject.contract) {
        let case = case.map_err(ToolError::Case)?;
        let examine = examination(&case);
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        questions.push(Question { case, examine, origin: Origin::Corpus(stem) });
    }
    for name in subject.contract.fixtures.keys() {
        for draw in 0..DRAWS_PER_FIXTURE {
            let mut choices = Seeded { seed: mix(SEED ^ 0xf1c5, draw) };
            if let Ok(case) = generate::draw_fixture(subject, name, &mut choices) {
                let origin = Origin::Fixture(name.clone());
                questions.push(Question { case, examine: Examine::Kernel, origin });
            }
        }
    }
    for number in 0..fresh {
        let mut choices = Seeded { seed: mix(SEED, number) };
        if let Ok(draw) = generate::draw(subject, &mut choices) {
            let origin = Origin::Fresh(number);
            questions.push(Question { case: draw.case, examine: draw.examine, origin });
        }
    }
    Ok(questions)
}

/// A question together with what the unchanged kernel executed to answer it.
#[derive(Debug)]
pub struct Member<'a> {
    /// The case with the reference's answer.
    pub prepared: Prepared<'a>,
    /// What is examined.
    pub examine: &'a Examine,
    /// Where it comes from.
    pub origin: &'a Origin,
    /// Instructions of the longest run.
    pub instructions: u64,
    /// By entry, which basic blocks were executed.
    reach: BTreeMap<String, Vec<bool>>,
}

/// Every question that the unchanged kernel answers as the reference does.
#[derive(Debug)]
pub struct Suite<'a> {
    /// In the order they are asked.
    pub members: Vec<Member<'a>>,
    /// How often each clause was exercised.
    pub counters: Counters,
    /// Where the unchanged kernel itself fails, with the clause; such a question judges no mutant.
    pub failing: Vec<(&'a Origin, String)>,
}

/// What the unchanged kernel made of one question.
struct Answer<'a> {
    member: Option<Member<'a>>,
    failing: Option<(&'a Origin, String)>,
    counters: Counters,
}

impl<'a> Suite<'a> {
    /// Asks the unchanged kernel every question.
    ///
    /// # Errors
    /// When the tool fails.
    pub fn measure(
        subject: &'a Subject,
        questions: &'a [Question],
        threads: usize,
    ) -> Result<Suite<'a>, ToolError> {
        let next = AtomicUsize::new(0);
        let answers: Mutex<Vec<(usize, Result<Answer<'a>, ToolError>)>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    let mut workspace = Workspace::new();
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(question) = questions.get(at) else { return };
                        let answer = ask(subject, question, &mut workspace);
                        answers
                            .lock()
                            .unwrap_or_else(std::sync::PoisonError::into_inner)
                            .push((at, answer));
                    }
                });
            }
        });
        let mut answers = answers.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        answers.sort_by_key(|(at, _)| *at);
        let (mut members, mut failing) = (Vec::new(), Vec::new());
        let mut counters = Counters::default();
        for (_, answer) in answers {
            let answer = answer?;
            counters.merge(&answer.counters);
            members.extend(answer.member);
            failing.extend(answer.failing);
        }
        Ok(Suite { members, counters, failing })
    }

    /// The questions whose answer passed through a block of an entry, in order.
    pub fn reaching(&self, entry: &str, block: usize) -> impl Iterator<Item = &Member<'a>> {
        self.members.iter().filter(move |member| {
            member.reach.get(entry).is_some_and(|blocks| blocks.get(block) == Some(&true))
        })
    }
}

/// Instructions after which a launch of a mutant that is asked these counts as endless.
pub fn instruction_budget<'m, 'a: 'm>(members: impl Iterator<Item = &'m Member<'a>>) -> u64 {
    members.map(|member| member.instructions).max().unwrap_or(0) * HANG_FACTOR + (1 << 16)
}

fn ask<'a>(
    subject: &'a Subject,
    question: &'a Question,
    workspace: &mut Workspace,
) -> Result<Answer<'a>, ToolError> {
    let Question { case, examine, origin } = question;
    let mut backend = Metered { machine: VmBackend::new(), instructions: 0 };
    let mut counters = Counters::default();
    let verdict = check(subject, case, examine, &mut backend, workspace, &mut counters)?;
    let instructions = backend.instructions;
    let failing = match &verdict {
        Verdict::Disagree(_) | Verdict::Fault(_) => verdict.clause().map(str::to_owned),
        Verdict::Unsupported(what) => Some(format!("unsupported: {what}")),
        Verdict::Agree | Verdict::Discard(_) => None,
    };
    let launches_nothing = *examine == Examine::Rejections || verdict != Verdict::Agree;
    let member = if launches_nothing {
        None
    } else {
        let prepared = prepare(subject, case).map_err(ToolError::Case)?;
        let reach = reach(&backend.machine)?;
        Some(Member { prepared, examine, origin, instructions, reach })
    };
    let failing = failing.map(|clause| (origin, clause));
    Ok(Answer { member, failing, counters })
}

/// By entry, which blocks this machine executed of the checked-in modules.
fn reach(machine: &VmBackend) -> Result<BTreeMap<String, Vec<bool>>, ToolError> {
    let mut reach = BTreeMap::new();
    for (stem, coverage) in machine.coverage().modules() {
        let module = kernels::ptx::module(stem).map_err(BackendError::from)?;
        for (name, counts) in coverage.entries() {
            if let Some(entry) = module.entry(name) {
                let blocks = counts.block_hits(entry).into_iter().map(|hits| hits > 0).collect();
                reach.insert(name.to_owned(), blocks);
            }
        }
    }
    Ok(reach)
}

/// The machine, and the instructions of its longest run.
struct Metered {
    machine: VmBackend,
    instructions: u64,
}

impl Backend for Metered {
    fn name(&self) -> &'static str {
        self.machine.name()
    }

    fn run(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
    ) -> Result<Outcome, BackendError> {
        let outcome = self.machine.run(call, plan, arena)?;
        if let Outcome::Ran(stats) = &outcome {
            self.instructions = self.instructions.max(stats.instructions);
        }
        Ok(outcome)
    }

    fn order(&mut self, schedule: Schedule) {
        self.machine.order(schedule);
    }

    fn orders(&self) -> bool {
        self.machine.orders()
    }

    fn replace_module(&mut self, stem: &str, ptx: &str) -> Result<(), BackendError> {
        self.machine.replace_module(stem, ptx)
    }

    fn restore_modules(&mut self) {
        self.machine.restore_modules();
    }
}
