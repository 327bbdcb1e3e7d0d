//! The one path from a case to its verdict: prepare, run, run again where that can tell more, compare,
//! and whatever else is to be examined. Every door (tests, fuzz targets, the command) comes through
//! `check`.

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

use crate::choices::mix;
use crate::counters::Counters;
use crate::examine::Examine;
use crate::oracle::{
    self, Exercised, Observed, fault_report, first_difference, first_unchanged, first_unwritten,
    forsaken_path, judge,
};
use crate::prepare::{Prepared, fill, prepare};
use crate::reject::{self, Refusal};
use crate::relation;
use crate::subject::Subject;
use crate::verdict::{Disagreement, Verdict};
use contracts::CaseError;
use contracts::case::{Case, Content, Schedule};
use contracts::dtype::Poison;
use contracts::format::Access;
use kernels::arena::Arena;
use kernels::backend::{Backend, BackendError, Outcome};
use kernels::call::Rejection;
use kernels::launch::Plan;
use std::collections::BTreeSet;
use std::fmt;

/// The backend that marks every store and faults at the instruction that breaks a rule.
const EXACT_BACKEND: &str = "vm";
/// One case in this many is run once more, once captured, and once with other poison where the machine
/// guards poison already.
const RERUN_ONE_IN: u64 = 8;
/// Of one case in this many it is measured how far inside its bounds the kernel is.
const MEASURED_ONE_IN: u64 = 16;

/// The tool itself failing; says nothing about a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolError {
    /// The backend could not run a plan.
    Backend(BackendError),
    /// The case does not satisfy its contract.
    Case(CaseError),
    /// A contract names something that is registered nowhere.
    Missing(String),
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToolError::Backend(error) => error.fmt(f),
            ToolError::Case(error) => error.fmt(f),
            ToolError::Missing(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ToolError {}

impl From<BackendError> for ToolError {
    fn from(error: BackendError) -> Self {
        ToolError::Backend(error)
    }
}

/// Memory reused from case to case. One a thread.
#[derive(Default)]
pub struct Workspace {
    arena: Arena,
    /// What run A left.
    first: Observed,
    /// What any later run left.
    later: Observed,
    exercised: Exercised,
}

impl Workspace {
    /// An empty workspace.
    pub fn new() -> Workspace {
        Workspace::default()
    }

    /// The memory, for a run outside `check`.
    pub(crate) fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }
}

/// Where runs of one case happen.
pub struct Session<'s> {
    /// The backend.
    pub backend: &'s mut dyn Backend,
    /// Its memory.
    pub arena: &'s mut Arena,
}

/// Examines a case and counts the clauses it exercised, once each.
///
/// # Errors
/// When the tool fails: the case is not legal, the backend cannot run, or the contract names what
/// does not exist. A kernel that is wrong is a verdict.
pub fn check(
    subject: &Subject,
    case: &Case,
    examine: &Examine,
    backend: &mut dyn Backend,
    workspace: &mut Workspace,
    counters: &mut Counters,
) -> Result<Verdict, ToolError> {
    let Workspace { arena, first, later, exercised } = workspace;
    exercised.clear();
    exercised.measures = digest(case).is_multiple_of(MEASURED_ONE_IN);
    let mut session = Session { backend, arena };
    let verdict = examined(subject, case, examine, &mut session, (first, later), exercised)?;
    if let Some(clause) = verdict.clause() {
        exercised.mark(subject, &[clause]);
    }
    if !matches!(verdict, Verdict::Discard(_)) {
        counters.cases += 1;
    }
    exercised.count(subject, case, counters);
    Ok(verdict)
}

/// As [`check`], for a case prepared before: many kernels can be held against one expectation. Only
/// what launches the kernel is examined; calls that must be refused are not.
///
/// # Errors
/// When the tool fails, as in [`check`].
pub fn check_prepared(
    prepared: &Prepared<'_>,
    examine: &Examine,
    backend: &mut dyn Backend,
    workspace: &mut Workspace,
) -> Result<Verdict, ToolError> {
    let Workspace { arena, first, later, exercised } = workspace;
    exercised.clear();
    let mut session = Session { backend, arena };
    launched(prepared, examine, &mut session, (first, later), exercised)
}

/// Every clause that this verdict of [`check_prepared`], just given with this workspace, speaks for: its
/// own, and what else the same results break.
///
/// # Errors
/// When the contract names what the reference does not return.
pub fn failing_clauses(
    prepared: &Prepared<'_>,
    verdict: &Verdict,
    workspace: &Workspace,
) -> Result<BTreeSet<String>, ToolError> {
    let mut clauses: BTreeSet<String> = verdict.clause().map(str::to_owned).into_iter().collect();
    // After a fault there are no results, and a relation is asked only of results that hold.
    let before_any = ["house.accepts", "paths.", "relations."];
    let has_results = |clause: &&str| before_any.iter().all(|before| !clause.starts_with(before));
    if let (Verdict::Disagree(_), Some(_)) = (verdict, verdict.clause().filter(has_results)) {
        clauses.extend(oracle::failing_clauses(prepared, &workspace.first)?);
    }
    Ok(clauses)
}

fn examined(
    subject: &Subject,
    case: &Case,
    examine: &Examine,
    session: &mut Session<'_>,
    (first, later): (&mut Observed, &mut Observed),
    exercised: &mut Exercised,
) -> Result<Verdict, ToolError> {
    if *examine == Examine::Rejections {
        for id in &subject.rejections {
            if let Some(verdict) = refused(id, subject, case, exercised)? {
                return Ok(verdict);
            }
        }
        return Ok(Verdict::Agree);
    }
    if let Examine::Rejection(id) = examine {
        match reject::examine(id, subject, case, exercised)? {
            Refusal::Held => return Ok(Verdict::Agree),
            Refusal::Failed(verdict) => return Ok(verdict),
            Refusal::Impossible | Refusal::ByStatus => {}
        }
    }
    let prepared = prepare(subject, case).map_err(ToolError::Case)?;
    let verdict = launched(&prepared, examine, session, (first, later), exercised)?;
    if verdict == Verdict::Agree && *examine == Examine::All {
        for id in &subject.rejections {
            if let Some(verdict) = refused(id, subject, case, exercised)? {
                return Ok(verdict);
            }
        }
    }
    Ok(verdict)
}

/// One call that must be refused, unless its clause is switched off: how the launch function failed.
fn refused(
    id: &str,
    subject: &Subject,
    case: &Case,
    exercised: &mut Exercised,
) -> Result<Option<Verdict>, ToolError> {
    if !subject.judges(id) {
        return Ok(None);
    }
    match reject::examine(id, subject, case, exercised)? {
        Refusal::Failed(verdict) => Ok(Some(verdict)),
        Refusal::Held | Refusal::Impossible | Refusal::ByStatus => Ok(None),
    }
}

/// What is examined by launching the kernel: its results, then relations between runs.
fn launched(
    prepared: &Prepared<'_>,
    examine: &Examine,
    session: &mut Session<'_>,
    (first, later): (&mut Observed, &mut Observed),
    exercised: &mut Exercised,
) -> Result<Verdict, ToolError> {
    let reruns = matches!(examine, Examine::All | Examine::Reruns) || is_rerun(prepared.case);
    if let Some(verdict) = kernel(prepared, reruns, session, (&mut *first, later), exercised)? {
        return Ok(verdict);
    }
    match examine {
        Examine::Kernel | Examine::Reruns | Examine::Rejection(_) | Examine::Rejections => {}
        Examine::Relation(id) => {
            let found = relation::examine(id, prepared, first, session, exercised)?;
            return Ok(found.unwrap_or(Verdict::Agree));
        }
        Examine::All => {
            for name in prepared.subject.contract.relations.keys() {
                let id = format!("relations.{name}");
                if !prepared.subject.judges(&id) {
                    continue;
                }
                let found = relation::examine(&id, prepared, first, session, exercised)?;
                if let Some(verdict) = found {
                    return Ok(verdict);
                }
            }
        }
    }
    Ok(Verdict::Agree)
}

/// The kernel against its reference, and the house rules. `None` when all hold; run A's results stay
/// in `first`.
fn kernel(
    prepared: &Prepared<'_>,
    reruns: bool,
    session: &mut Session<'_>,
    (first, later): (&mut Observed, &mut Observed),
    exercised: &mut Exercised,
) -> Result<Option<Verdict>, ToolError> {
    let plan = match prepared.plan() {
        Ok(plan) => plan,
        Err(_) if !prepared.subject.judges("house.accepts") => {
            return Ok(Some(Verdict::Discard("the kernel refuses it".to_owned())));
        }
        Err(refusal) => return Ok(Some(refused_legal(&refusal))),
    };
    exercised.mark(prepared.subject, &["house", "accepts"]);
    if let Some(found) = forsaken_path(prepared, &plan, exercised)? {
        return Ok(Some(Verdict::Disagree(Box::new(found))));
    }
    let is_exact = session.backend.name() == EXACT_BACKEND;
    if let Some(verdict) = run(prepared, &plan, prepared.case.poison, session)? {
        return Ok(Some(verdict));
    }
    mark_house(prepared, &plan, is_exact, exercised);
    first.gather(prepared, session.arena);
    if is_exact
        && prepared.subject.judges("house.written")
        && let Some(found) = first_unwritten(prepared, session.arena)
    {
        return Ok(Some(Verdict::Disagree(Box::new(found))));
    }
    let mut later_runs = LaterRuns { prepared, plan: &plan, session, first, later, exercised };
    if let Some(verdict) = later_runs.all(is_exact, reruns)? {
        return Ok(Some(verdict));
    }
    Ok(judge(prepared, first, exercised)?.map(|found| Verdict::Disagree(Box::new(found))))
}

/// Runs of a case after its first, each held against that one bit by bit.
struct LaterRuns<'r, 'p, 's> {
    prepared: &'r Prepared<'p>,
    plan: &'r Plan,
    session: &'r mut Session<'s>,
    first: &'r Observed,
    later: &'r mut Observed,
    exercised: &'r mut Exercised,
}

impl LaterRuns<'_, '_, '_> {
    /// With other poison, in the order of numbers, once more, captured. The last two, and where marks
    /// stand guard the first, are a share of the cases' and asked for by `reruns`.
    fn all(&mut self, is_exact: bool, reruns: bool) -> Result<Option<Verdict>, ToolError> {
        let case = self.prepared.case;
        if (reruns || !(is_exact && self.is_poison_guarded()))
            && let Some(verdict) = self.other_poison(is_exact)?
        {
            return Ok(Some(verdict));
        }
        if case.schedule != Schedule::InOrder && self.session.backend.orders() {
            let ended =
                run_in(Schedule::InOrder, self.prepared, self.plan, case.poison, self.session)?;
            let note =
                "expected is the case's own order of blocks and warps, observed is by number";
            if let Some(verdict) = ended.or_else(|| self.difference("house.schedule", note)) {
                return Ok(Some(verdict));
            }
        }
        if reruns {
            let ended = run(self.prepared, self.plan, case.poison, self.session)?;
            let note = "expected and observed are two runs of the same case";
            if let Some(verdict) = ended.or_else(|| self.difference("house.repeat", note)) {
                return Ok(Some(verdict));
            }
            if self.session.backend.captures() {
                return self.captured();
            }
        }
        Ok(None)
    }

    /// Whether the machine ends a run that reads a byte of poison: then no result can depend on which
    /// poison it is, and a second run only tries the marks.
    fn is_poison_guarded(&self) -> bool {
        ["house.unread", "house.initialised"].iter().all(|rule| self.prepared.subject.judges(rule))
    }

    fn other_poison(&mut self, is_exact: bool) -> Result<Option<Verdict>, ToolError> {
        let prepared = self.prepared;
        let poison = prepared.case.poison;
        if let Some(verdict) = run(prepared, self.plan, Poison::Large, self.session)? {
            return Ok(Some(verdict));
        }
        let note = "expected with NaN in unread memory, observed with large numbers there";
        let disagreement = self.difference("house.poison_agree", note);
        if !is_exact
            && prepared.subject.judges("house.written")
            && let Some(found) =
                first_unchanged(prepared, (self.first, poison), (self.later, Poison::Large))
        {
            return Ok(Some(Verdict::Disagree(Box::new(found))));
        }
        Ok(disagreement)
    }

    fn captured(&mut self) -> Result<Option<Verdict>, ToolError> {
        let Session { backend, arena } = &mut *self.session;
        fill(self.prepared, self.prepared.case.poison, arena);
        let outcome = backend.run_captured(&self.prepared.call, self.plan, arena)?;
        let note = "expected is an eager run, observed a captured and replayed one";
        Ok(finding(self.prepared, outcome).or_else(|| self.difference("house.capture", note)))
    }

    /// The first bit in which the run just ended differs from the first one.
    fn difference(&mut self, rule: &str, note: &str) -> Option<Verdict> {
        self.later.gather(self.prepared, self.session.arena);
        if has_live(self.prepared, |access| access != Access::Read) {
            self.exercised.mark(self.prepared.subject, &[rule]);
        }
        if !self.prepared.subject.judges(rule) {
            return None;
        }
        let found = first_difference(self.prepared, self.first, self.later, rule, note)?;
        Some(Verdict::Disagree(Box::new(found)))
    }
}

/// House rules a finished run exercised: only what this case could have broken here.
fn mark_house(prepared: &Prepared<'_>, plan: &Plan, is_exact: bool, exercised: &mut Exercised) {
    let subject = prepared.subject;
    if plan.launches.is_empty() {
        return;
    }
    let mut mark = |rule: &str| exercised.mark(subject, &["house", rule]);
    mark("bounds");
    if is_exact {
        ["initialised", "races", "barriers", "budget"].into_iter().for_each(&mut mark);
    } else {
        mark("guard");
    }
    if has_live(prepared, |access| access == Access::Read) {
        mark("read_only");
    }
    if has_live(prepared, |access| access == Access::Write) {
        mark("written");
    }
    if prepared.has_dead_bytes() {
        mark("dead_untouched");
        mark("unread");
    }
}

/// Whether a tensor touched in this way has an element.
fn has_live(prepared: &Prepared<'_>, touched: impl Fn(Access) -> bool) -> bool {
    let mut tensors = prepared.geometry.tensors.iter().zip(&prepared.live);
    tensors.any(|(tensor, live)| touched(tensor.access) && !live.is_empty())
}

/// Plans and runs a case once. `None` when it finished: the results are in the arena.
///
/// # Errors
/// When the backend fails.
pub fn attempt(
    prepared: &Prepared<'_>,
    poison: Poison,
    session: &mut Session<'_>,
) -> Result<Option<Verdict>, ToolError> {
    match prepared.plan() {
        Ok(plan) => run(prepared, &plan, poison, session),
        Err(refusal) => Ok(Some(refused_legal(&refusal))),
    }
}

/// Runs the launches of a plan once, in the case's own order.
///
/// # Errors
/// When the backend fails.
pub(crate) fn run(
    prepared: &Prepared<'_>,
    plan: &Plan,
    poison: Poison,
    session: &mut Session<'_>,
) -> Result<Option<Verdict>, ToolError> {
    run_in(prepared.case.schedule, prepared, plan, poison, session)
}

fn run_in(
    schedule: Schedule,
    prepared: &Prepared<'_>,
    plan: &Plan,
    poison: Poison,
    session: &mut Session<'_>,
) -> Result<Option<Verdict>, ToolError> {
    session.backend.order(schedule);
    fill(prepared, poison, session.arena);
    let outcome = session.backend.run(&prepared.call, plan, session.arena)?;
    Ok(finding(prepared, outcome))
}

fn finding(prepared: &Prepared<'_>, outcome: Outcome) -> Option<Verdict> {
    match outcome {
        Outcome::Ran(_) => None,
        Outcome::Fault(fault) => {
            let report = fault_report(prepared, &fault);
            let judged = prepared.subject.judges(&report.clause);
            judged.then(|| Verdict::Fault(Box::new(report)))
        }
        Outcome::Unsupported { what, where_ } => Some(Verdict::Unsupported(if where_.is_empty() {
            what
        } else {
            format!("{what} ({where_})")
        })),
    }
}

/// A legal call that the kernel refuses.
fn refused_legal(refusal: &Rejection) -> Verdict {
    Verdict::Disagree(Box::new(Disagreement {
        clause: "house.accepts".to_owned(),
        tensor: Some(refusal.argument.clone()),
        index: Vec::new(),
        expected: "a plan: the call is legal".to_owned(),
        observed: format!("refusal {refusal}"),
        written_by: String::new(),
        error: None,
        note: String::new(),
    }))
}

/// Whether this case is of the fixed share that is run again.
fn is_rerun(case: &Case) -> bool {
    digest(case).is_multiple_of(RERUN_ONE_IN)
}

/// A cheap hash of a case: sizes, lists, and the first bytes of contents.
fn digest(case: &Case) -> u64 {
    let mut hash = case.dims.values().fold(0, |hash, size| mix(hash, *size as u64));
    for item in case.lists.values().flatten() {
        hash = mix(hash, *item as u64);
    }
    for tensor in case.tensors.values() {
        if let Content::Dense(bytes) = &tensor.content {
            let head = bytes.as_chunks::<8>().0.iter().take(8);
            hash = head.fold(hash, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        }
    }
    hash
}
