//! How well failures shrink: wrong kernels made by changing one PTX instruction, the first drawn case
//! that each gets wrong, and what the shrinker makes of it. Everything but the seconds follows from the
//! seed.

use super::clock::Clock;
use super::modules::{self, Module};
use super::sample::{Mutant, Sample, sample};
use super::suite::{Suite, instruction_budget, questions};
use crate::check::{ToolError, Workspace, check};
use crate::choices::{Seeded, mix};
use crate::counters::Counters;
use crate::examine::Examine;
use crate::generate;
use crate::shrink::{Shrunk, elements_that_matter, neighbours, shrink};
use crate::subject::Subject;
use crate::verdict::Verdict;
use contracts::case::Case;
use kernels::backend::BackendError;
use kernels::backend::vm::VmBackend;
use ptx_vm::{Limits, Options};
use std::path::Path;
use std::time::Duration;

/// Draws within which a wrong kernel must fail to count.
const DRAWS: u64 = 60;
/// Fresh cases that say which lines are executed.
const FRESH: u64 = 30;
/// Time one failure may be shrunk for.
const LIMIT: Duration = Duration::from_secs(60);
/// Instructions after which a launch of the canary counts as endless.
const CANARY_BUDGET: u64 = 1 << 24;

/// One planted failure and what became of it.
#[derive(Clone, Debug)]
pub struct Planted {
    /// The contract.
    pub subject: &'static Subject,
    /// What was changed; nothing where the kernel itself is wrong.
    pub mutant: Option<Mutant>,
    /// The drawn case.
    pub case: Case,
    /// Its shrunk form.
    pub shrunk: Shrunk,
    /// Time of one core.
    pub seconds: f64,
}

impl Planted {
    /// Elements that matter in the drawn and in the shrunk case.
    pub fn elements(&self) -> [usize; 2] {
        [&self.case, &self.shrunk.case]
            .map(|case| elements_that_matter(self.subject.contract, case))
    }

    /// Single edits of the shrunk case that were tried once more, and the first that keeps the failure:
    /// there is none when the case is minimal over them.
    ///
    /// # Errors
    /// When the wrong kernel cannot be run any more.
    pub fn single_edits(&self, kernels: &Kernels) -> Result<(usize, Option<Case>), ToolError> {
        let mut judge = Judge::new(self.subject, kernels.machine(self.mutant.as_ref())?);
        judge.examine = Examine::for_clause(self.shrunk.verdict.clause().unwrap_or_default());
        let near = neighbours(self.subject.contract, &self.shrunk.case);
        let count = near.len();
        let alike = near.into_iter().find(|case| {
            judge.judge(case).is_some_and(|verdict| verdict.same_failure(&self.shrunk.verdict))
        });
        Ok((count, alike))
    }
}

/// The wrong kernels of one contract.
pub struct Kernels {
    modules: Vec<Module>,
    budget: u64,
}

impl Kernels {
    /// A machine with the mutant in the kernel's place.
    fn machine(&self, mutant: Option<&Mutant>) -> Result<VmBackend, BackendError> {
        let limits = Limits { instructions: self.budget, ..Limits::default() };
        let mut machine = VmBackend::with(limits, Options::default());
        if let Some(mutant) = mutant {
            let listing = &modules::named(&self.modules, mutant.stem).listing;
            let text = listing.with_line(&mutant.entry, mutant.line, &mutant.now);
            machine.replace_entry(mutant.stem, &mutant.entry, text)?;
        }
        Ok(machine)
    }
}

struct Judge {
    subject: &'static Subject,
    machine: VmBackend,
    workspace: Workspace,
    examine: Examine,
}

impl Judge {
    fn new(subject: &'static Subject, machine: VmBackend) -> Judge {
        Judge { subject, machine, workspace: Workspace::new(), examine: Examine::Kernel }
    }

    fn judge(&mut self, case: &Case) -> Option<Verdict> {
        let mut ignored = Counters::default();
        let Judge { subject, machine, workspace, examine } = self;
        check(subject, case, examine, machine, workspace, &mut ignored).ok()
    }
}

/// Plants so many failures in the kernel of a contract, those of the canary in none, and shrinks each.
///
/// # Errors
/// When the tool fails.
pub fn planted(
    subject: &'static Subject,
    count: usize,
    seed: u64,
) -> Result<(Kernels, Vec<Planted>), ToolError> {
    let mut modules = modules::of_contract(subject)?;
    modules.truncate(1);
    let is_canary = crate::subject::canary().is_some_and(|canary| std::ptr::eq(canary, subject));
    let (mutants, budget): (Vec<Option<Mutant>>, u64) = if is_canary {
        (vec![None; count], CANARY_BUDGET)
    } else {
        let asked = questions(subject, Path::new("no stored cases"), FRESH)?;
        let suite = Suite::measure(subject, &asked, 1)?;
        let Sample { mutants, .. } = sample(&modules, &suite, usize::MAX, seed, None);
        let budget = instruction_budget(suite.members.iter());
        (mutants.into_iter().map(Some).collect(), budget)
    };
    let kernels = Kernels { modules, budget };
    let mut all = Vec::new();
    for (number, mutant) in mutants.into_iter().enumerate() {
        if all.len() == count {
            break;
        }
        // Text that is no PTX is no wrong kernel.
        let Ok(machine) = kernels.machine(mutant.as_ref()) else { continue };
        let mut judge = Judge::new(subject, machine);
        let draws = (0..DRAWS).map(|draw| mix(mix(seed, number as u64), draw));
        let Some((case, verdict)) = first_failure(&mut judge, draws) else { continue };
        judge.examine = Examine::for_clause(verdict.clause().unwrap_or_default());
        let started = Clock::start();
        let shrunk = shrink(subject, &case, &verdict, &mut |case| judge.judge(case), LIMIT);
        all.push(Planted { subject, mutant, case, shrunk, seconds: started.seconds() });
    }
    Ok((kernels, all))
}

/// The first drawn case that fails, with its verdict.
fn first_failure(judge: &mut Judge, seeds: impl Iterator<Item = u64>) -> Option<(Case, Verdict)> {
    for seed in seeds {
        let Ok(draw) = generate::draw(judge.subject, &mut Seeded { seed }) else { continue };
        judge.examine = draw.examine;
        if judge.examine == Examine::Rejections {
            continue;
        }
        match judge.judge(&draw.case)? {
            verdict if verdict.is_failure() => return Some((draw.case, verdict)),
            Verdict::Unsupported(_) => return None,
            _ => {}
        }
    }
    None
}
