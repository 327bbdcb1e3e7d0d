//! What becomes of one mutant: it is asked the questions that execute the changed line, in order, and
//! is dead at the first that the contract answers with a failure. One that lives is asked the further
//! cases of [`further`].

use super::further;
use super::modules::{self, Module};
use super::sample::Mutant;
use super::suite::{Member, Suite, instruction_budget};
use crate::check::{Session, ToolError, Workspace, attempt, check_prepared, failing_clauses};
use crate::generate::Draw;
use crate::oracle::{Observed, first_difference};
use crate::prepare::{Prepared, prepare};
use crate::verdict::Verdict;
use kernels::arena::Arena;
use kernels::backend::vm::VmBackend;
use kernels::backend::{Backend, BackendError};
use kernels::ptx::PtxError;
use ptx_vm::{Limits, Options};
use std::collections::BTreeSet;

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// A clause failed.
    Killed {
        /// The clause.
        clause: String,
        /// Questions asked, the last included.
        after: usize,
        /// Where the last came from.
        by: String,
        /// Whether no question breaks any other clause; `None` where only the first was wanted.
        sole: Option<bool>,
    },
    /// Every question was answered as the reference does.
    Survived {
        /// Questions asked.
        asked: usize,
        /// Whether the answers were the kernel's own, bit for bit; `None` where nobody compared.
        same_bits: Option<bool>,
        /// Why, where somebody wrote it down.
        why: Option<String>,
    },
    /// Not distinguishable from the kernel by any input.
    Equivalent {
        /// What shows it, as checked just now.
        evidence: String,
        /// Why, where a person declared it.
        reason: Option<String>,
    },
    /// The text is no PTX, or none the machine runs.
    Rejected(String),
}

/// Judges mutants, one after another. One a thread.
pub struct Judge<'s> {
    modules: &'s [Module],
    suite: &'s Suite<'s>,
    /// Whether every question is asked of what one has killed, for the clauses that would have too.
    is_thorough: bool,
    workspace: Workspace,
}

impl<'s> Judge<'s> {
    /// A judge of mutants of these modules of one contract.
    pub fn new(modules: &'s [Module], suite: &'s Suite<'s>, is_thorough: bool) -> Judge<'s> {
        Judge { modules, suite, is_thorough, workspace: Workspace::new() }
    }

    /// Asks one mutant.
    ///
    /// # Errors
    /// When the tool fails.
    pub fn judge(&mut self, mutant: &Mutant) -> Result<Fate, ToolError> {
        let mut backend = self.machine_for(mutant);
        match backend.replace_entry(mutant.stem, &mutant.entry, self.text_of(mutant)) {
            Ok(()) => {}
            Err(BackendError::Ptx(PtxError::Parse { error, .. })) => {
                return Ok(Fate::Rejected(error));
            }
            Err(error) => return Err(error.into()),
        }
        let questions = self.suite.reaching(&mutant.entry, mutant.block);
        let fate = ask(&mut backend, questions, "", self.is_thorough, &mut self.workspace)?;
        match fate {
            Fate::Survived { asked, .. } => self.ask_further(&mut backend, mutant, asked),
            _ => Ok(fate),
        }
    }

    /// The further cases of a mutant that lives.
    fn ask_further(
        &mut self,
        backend: &mut VmBackend,
        mutant: &Mutant,
        mut asked: usize,
    ) -> Result<Fate, ToolError> {
        for (number, Draw { case, examine }) in further_questions(self.suite, mutant) {
            let subject = self.suite.members[0].prepared.subject;
            // A case that no call can be made of judges nobody.
            let Ok(prepared) = prepare(subject, &case) else { continue };
            asked += 1;
            let verdict = check_prepared(&prepared, &examine, backend, &mut self.workspace)?;
            if !matches!(verdict, Verdict::Disagree(_) | Verdict::Fault(_)) {
                continue;
            }
            let mut kernel = self.machine_for(mutant);
            let own = check_prepared(&prepared, &examine, &mut kernel, &mut self.workspace)?;
            if own == Verdict::Agree {
                let clause = verdict.clause().unwrap_or_default().to_owned();
                let by = format!("further case {number}");
                return Ok(Fate::Killed { clause, after: asked, by, sole: None });
            }
        }
        Ok(Fate::Survived { asked, same_bits: None, why: None })
    }

    /// Asks a whole module in the kernel's place every question, until a clause that begins with
    /// `expected` fails; one that fails otherwise is killed too, by what failed first.
    ///
    /// # Errors
    /// When the tool fails.
    pub fn judge_module(
        &mut self,
        module: &str,
        ptx: &str,
        expected: &str,
    ) -> Result<Fate, ToolError> {
        let mut backend = machine(instruction_budget(self.suite.members.iter()));
        match backend.replace_module(module, ptx) {
            Ok(()) => {}
            Err(BackendError::Ptx(PtxError::Parse { error, .. })) => {
                return Ok(Fate::Rejected(error));
            }
            Err(error) => return Err(error.into()),
        }
        let questions = self.suite.members.iter();
        ask(&mut backend, questions, expected, self.is_thorough, &mut self.workspace)
    }

    /// In how many cases a survivor leaves the very bits that the kernel leaves; `None` when one
    /// differs. A case that the kernel itself does not run shows nothing.
    ///
    /// # Errors
    /// When the tool fails.
    pub fn same_bits(&mut self, mutant: &Mutant) -> Result<Option<usize>, ToolError> {
        let mut pair = Pair {
            kernel: self.machine_for(mutant),
            changed: self.machine_for(mutant),
            arena: Arena::new(),
            expected: Observed::default(),
            observed: Observed::default(),
        };
        pair.changed.replace_entry(mutant.stem, &mutant.entry, self.text_of(mutant))?;
        let mut cases = 0;
        for member in self.suite.reaching(&mutant.entry, mutant.block) {
            match pair.agrees_on(&member.prepared)? {
                Some(true) => cases += 1,
                Some(false) => return Ok(None),
                None => {}
            }
        }
        for (_, Draw { case, .. }) in further_questions(self.suite, mutant) {
            let subject = self.suite.members[0].prepared.subject;
            let Ok(prepared) = prepare(subject, &case) else { continue };
            match pair.agrees_on(&prepared)? {
                Some(true) => cases += 1,
                Some(false) => return Ok(None),
                None => {}
            }
        }
        Ok(Some(cases))
    }

    /// The mutant's entry.
    fn text_of(&self, mutant: &Mutant) -> String {
        let module = modules::named(self.modules, mutant.stem);
        module.listing.with_line(&mutant.entry, mutant.line, &mutant.now)
    }

    fn machine_for(&self, mutant: &Mutant) -> VmBackend {
        machine(instruction_budget(self.suite.reaching(&mutant.entry, mutant.block)))
    }
}

/// A kernel and a changed one, on the same cases.
struct Pair {
    kernel: VmBackend,
    changed: VmBackend,
    arena: Arena,
    expected: Observed,
    observed: Observed,
}

impl Pair {
    /// Whether both leave the same bits in everything a caller sees; `None` where the kernel does not run.
    fn agrees_on(&mut self, prepared: &Prepared<'_>) -> Result<Option<bool>, ToolError> {
        let Pair { kernel, changed, arena, expected, observed } = self;
        let poison = prepared.case.poison;
        if attempt(prepared, poison, &mut Session { backend: kernel, arena })?.is_some() {
            return Ok(None);
        }
        expected.gather(prepared, arena);
        if attempt(prepared, poison, &mut Session { backend: changed, arena })?.is_some() {
            return Ok(Some(false));
        }
        observed.gather(prepared, arena);
        Ok(Some(first_difference(prepared, expected, observed, "", "").is_none()))
    }
}

/// The further questions of a mutant, numbered.
fn further_questions<'s, 'a>(
    suite: &'s Suite<'a>,
    mutant: &Mutant,
) -> impl Iterator<Item = (u64, Draw)> + use<'s, 'a> {
    further::questions(suite.reaching(&mutant.entry, mutant.block).collect())
}

fn machine(instructions: u64) -> VmBackend {
    VmBackend::with(Limits { instructions, ..Limits::default() }, Options::default())
}

/// Asks until a clause that begins with `expected` fails; where `is_thorough`, on until another one
/// fails as well.
fn ask<'m, 'a: 'm>(
    backend: &mut VmBackend,
    questions: impl Iterator<Item = &'m Member<'a>>,
    expected: &str,
    is_thorough: bool,
    workspace: &mut Workspace,
) -> Result<Fate, ToolError> {
    let (mut asked, mut found) = (0, None);
    let (mut is_as_expected, mut seen) = (false, BTreeSet::new());
    for member in questions {
        asked += 1;
        let prepared = &member.prepared;
        let verdict = check_prepared(prepared, member.examine, backend, workspace)?;
        match &verdict {
            Verdict::Disagree(_) | Verdict::Fault(_) => {}
            Verdict::Unsupported(what) => return Ok(Fate::Rejected(what.clone())),
            Verdict::Agree | Verdict::Discard(_) => continue,
        }
        let failing = failing_clauses(prepared, &verdict, workspace)?;
        let first = verdict.clause().unwrap_or_default();
        let clause = failing.iter().find(|clause| clause.starts_with(expected));
        if found.is_none() || !is_as_expected && clause.is_some() {
            is_as_expected = clause.is_some();
            let first_expected = first.starts_with(expected) || clause.is_none();
            let clause = if first_expected { first } else { clause.map_or(first, |c| c) };
            let by = member.origin.to_string();
            found = Some((clause.to_owned(), asked, by));
        }
        seen.extend(failing);
        if is_as_expected && (!is_thorough || seen.len() > 1) {
            break;
        }
    }
    let Some((clause, after, by)) = found else {
        return Ok(Fate::Survived { asked, same_bits: None, why: None });
    };
    let sole = is_thorough.then_some(seen.len() == 1);
    Ok(Fate::Killed { clause, after, by, sole })
}
