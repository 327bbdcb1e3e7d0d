//! Tests of the tests: kernels that are wrong in one place, and whether their contract notices. A
//! contract's score is the share of wrong kernels that its clauses kill; a survivor is a gap in the
//! clauses or the generators, or no wrong kernel at all, and then says why.
//!
//! Automatic mutants change one PTX instruction ([`operators`]); a seed samples them by site
//! ([`mod@sample`]). Each is asked the same questions ([`suite`]), those that execute the changed line, and
//! dies at the first wrong answer ([`judge`]). A survivor whose machine code is the kernel's own is no
//! mutant ([`machine_code`]); one declared equivalent ([`equivalents`]) must give the kernel's own bits.

pub mod chance;
pub mod changes;
pub mod clock;
pub mod equivalents;
pub mod further;
pub mod judge;
pub mod listing;
pub mod machine_code;
pub mod modules;
pub mod named;
pub mod operators;
pub mod record;
pub mod sample;
pub mod shrunk;
pub mod suite;

use crate::check::ToolError;
use crate::subject::Subject;
use chance::{LEAST_CHANCE, of_at_most};
use changes::Changes;
use equivalents::Equivalents;
use judge::{Fate, Judge};
use machine_code::Assembler;
use modules::Module;
use named::Named;
use sample::{Mutant, Sample, of_lines, sample, seed_of};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use suite::{Suite, questions};

/// What to try on one contract.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The contract with its kernel.
    pub subject: &'static Subject,
    /// Where its stored cases are.
    pub corpora: PathBuf,
    /// Fresh cases drawn for the suite.
    pub cases: u64,
    /// Automatic mutants at most.
    pub sample: usize,
    /// Which: a commit's hash, or any word.
    pub seed: String,
    /// Worker threads.
    pub threads: usize,
    /// No mutant is begun after judging for so long.
    pub budget: Option<Duration>,
    /// Only mutants of lines this touches.
    pub changes: Option<Changes>,
    /// Every edit of these PTX lines in place of a sample, where there are any.
    pub lines: Vec<u32>,
    /// Wrong kernels from source, asked everything.
    pub named: Vec<Named>,
    /// Compares machine code, where `ptxas` is at hand.
    pub assembler: Option<Assembler>,
    /// Mutants declared equivalent.
    pub equivalents: Equivalents,
    /// Why survivors live.
    pub explained: Equivalents,
    /// Whether a killed mutant is asked on, to know the clause that alone notices it.
    pub is_thorough: bool,
}

/// A mutant and what became of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The mutant.
    pub mutant: Mutant,
    /// Its fate.
    pub fate: Fate,
}

/// What became of the mutants of one contract.
#[derive(Clone, Debug)]
pub struct Score {
    /// The contract.
    pub subject: &'static Subject,
    /// Seed of the sample.
    pub seed: String,
    /// Questions in the suite.
    pub questions: usize,
    /// Where the unchanged kernel itself fails, with the clause.
    pub failing: Vec<(String, String)>,
    /// Clauses no question exercised, that can be exercised here.
    pub vacuous: Vec<String>,
    /// By clause, the cases of the suite that exercised it, summed over dtypes.
    pub exercised: BTreeMap<String, u64>,
    /// PTX sites an edit applies to.
    pub sites: usize,
    /// Those some question executes.
    pub executed: usize,
    /// Automatic mutants chosen; more than are judged when time ran out.
    pub chosen: usize,
    /// Automatic mutants, in the order of the seed.
    pub judged: Vec<Judged>,
    /// Mutants from source: contract's id, expected clause where it has one, fate.
    pub named: Vec<(String, Option<String>, Fate)>,
    /// What a sample by another seed gave, where one was tried.
    pub second: Option<Second>,
    /// Time for the suite.
    pub measuring: Duration,
    /// Time for the automatic mutants.
    pub judging: Duration,
}

/// A sample nobody looked at while survivors of the first were worked off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Second {
    /// Its seed.
    pub seed: String,
    /// Mutants killed.
    pub killed: usize,
    /// Of this many.
    pub total: usize,
}

impl Score {
    /// This score as the second sample of another.
    pub fn as_second(&self) -> Second {
        Second { seed: self.seed.clone(), killed: self.killed(), total: self.total() }
    }

    /// Automatic mutants of one fate.
    fn count(&self, is: fn(&Fate) -> bool) -> usize {
        self.judged.iter().filter(|judged| is(&judged.fate)).count()
    }

    /// Automatic mutants that a clause killed.
    pub fn killed(&self) -> usize {
        self.count(|fate| matches!(fate, Fate::Killed { .. }))
    }

    /// Automatic mutants nobody noticed.
    pub fn survived(&self) -> usize {
        self.count(|fate| matches!(fate, Fate::Survived { .. }))
    }

    /// Automatic mutants that are no other kernel.
    pub fn equivalent(&self) -> usize {
        self.count(|fate| matches!(fate, Fate::Equivalent { .. }))
    }

    /// Of those, the ones a person declared.
    pub fn declared(&self) -> usize {
        self.count(|fate| matches!(fate, Fate::Equivalent { reason: Some(_), .. }))
    }

    /// Automatic mutants that are no kernel.
    pub fn rejected(&self) -> usize {
        self.count(|fate| matches!(fate, Fate::Rejected(_)))
    }

    /// Mutants the score is a share of: neither equivalent nor rejected.
    pub fn total(&self) -> usize {
        self.killed() + self.survived()
    }

    /// The share killed; `None` without a mutant.
    pub fn share(&self) -> Option<f64> {
        (self.total() > 0).then(|| self.killed() as f64 / self.total() as f64)
    }

    /// Whether time ran out before any mutant was judged: nothing is known of the contract.
    pub fn is_unjudged(&self) -> bool {
        self.chosen > 0 && self.judged.is_empty()
    }

    /// More declared equivalents than a sample of this size may hold.
    pub fn declares_too_many(&self) -> bool {
        self.declared() > most_declared(self.judged.len())
    }

    /// By clause, the mutants that it was the first to kill.
    pub fn first_kills(&self) -> BTreeMap<&str, usize> {
        self.count_kills(|_| true)
    }

    /// By clause, the mutants that no other clause kills; empty unless the run was thorough.
    pub fn sole_kills(&self) -> BTreeMap<&str, usize> {
        self.count_kills(|sole| sole == Some(true))
    }

    fn count_kills(&self, counts: fn(Option<bool>) -> bool) -> BTreeMap<&str, usize> {
        let mut kills: BTreeMap<&str, usize> = BTreeMap::new();
        let fates = self.judged.iter().map(|judged| &judged.fate);
        for fate in fates.chain(self.named.iter().map(|(_, _, fate)| fate)) {
            if let Fate::Killed { clause, sole, .. } = fate
                && counts(*sole)
            {
                *kills.entry(clause).or_default() += 1;
            }
        }
        kills
    }

    /// Whether the run looked for the clause that alone kills a mutant.
    pub fn is_thorough(&self) -> bool {
        let is_known = |fate: &Fate| matches!(fate, Fate::Killed { sole: Some(_), .. });
        self.judged.iter().any(|judged| is_known(&judged.fate))
            || self.named.iter().any(|(_, _, fate)| is_known(fate))
    }

    /// Named mutants alive, or killed by another clause than declared, with what was seen.
    pub fn named_failures(&self) -> Vec<(&str, String)> {
        let wrong =
            |(id, expected, fate): &'_ (String, Option<String>, Fate)| match (fate, expected) {
                (Fate::Killed { clause, .. }, Some(expected))
                    if !clause.starts_with(expected.as_str()) =>
                {
                    Some((id.clone(), format!("is killed by {clause} and never by {expected}")))
                }
                (Fate::Killed { .. } | Fate::Equivalent { .. }, _) => None,
                (Fate::Survived { asked, .. }, _) => {
                    Some((id.clone(), format!("survived {asked} cases")))
                }
                (Fate::Rejected(why), _) => Some((id.clone(), format!("was not run: {why}"))),
            };
        self.named.iter().filter_map(|named| Some((named.0.as_str(), wrong(named)?.1))).collect()
    }
}

/// The scores of families: name, killed, total, in the order they are met.
pub fn family_scores(scores: &[Score]) -> Vec<(&'static str, usize, usize)> {
    let mut families: Vec<(&'static str, usize, usize)> = Vec::new();
    for score in scores {
        match families.iter_mut().find(|(family, _, _)| *family == score.subject.family) {
            Some((_, killed, total)) => {
                *killed += score.killed();
                *total += score.total();
            }
            None => families.push((score.subject.family, score.killed(), score.total())),
        }
    }
    families.retain(|(_, _, total)| *total > 0);
    families
}

/// Live figures for a progress display.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Mutants judged.
    pub judged: usize,
    /// Mutants to judge.
    pub chosen: usize,
}

/// Tries the mutants of a contract. `observe` is called about ten times a second.
///
/// # Errors
/// When the tool fails; a wrong kernel that nobody notices is no error.
pub fn mutate(
    plan: &Plan,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(Progress),
) -> Result<Score, ToolError> {
    let subject = plan.subject;
    let started = Instant::now();
    let questions = questions(subject, &plan.corpora, plan.cases)?;
    let suite = Suite::measure(subject, &questions, plan.threads)?;
    let measuring = started.elapsed();

    let modules = modules::of_contract(subject)?;
    let seed = seed_of(&plan.seed);
    let judges = |changes: &Changes| changes.judges(subject.family, subject.name());
    let whole = plan.changes.as_ref().is_some_and(judges);
    let changes = plan.changes.as_ref().filter(|_| !whole);
    let Sample { mutants, sites, executed } = match &plan.lines[..] {
        [] => sample(&modules, &suite, plan.sample, seed, changes),
        lines => of_lines(&modules, &suite, lines),
    };

    let judging = Instant::now();
    let until = plan.budget.map(|budget| judging + budget);
    let work = Work { plan, stop, until, modules: &modules, suite: &suite, mutants: &mutants };
    let (judged, named) = work.run(observe)?;
    Ok(Score {
        subject,
        seed: plan.seed.clone(),
        questions: suite.members.len(),
        failing: suite
            .failing
            .iter()
            .map(|(at, clause)| (at.to_string(), clause.clone()))
            .collect(),
        vacuous: vacuous(&suite, subject),
        exercised: exercised(&suite, subject),
        sites,
        executed,
        chosen: mutants.len(),
        judged,
        named,
        second: None,
        measuring,
        judging: judging.elapsed(),
    })
}

/// By clause, the cases that exercised it.
fn exercised(suite: &Suite<'_>, subject: &Subject) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in suite.counters.summary(subject, false, false) {
        if line.not_here.is_none() {
            *counts.entry(line.clause).or_default() += line.cases;
        }
    }
    counts
}

fn vacuous(suite: &Suite<'_>, subject: &Subject) -> Vec<String> {
    exercised(suite, subject)
        .into_iter()
        .filter_map(|(clause, cases)| (cases == 0).then_some(clause))
        .collect()
}

/// The mutants of one contract on all cores.
struct Work<'w> {
    plan: &'w Plan,
    stop: &'w AtomicBool,
    until: Option<Instant>,
    modules: &'w [Module],
    suite: &'w Suite<'w>,
    mutants: &'w [Mutant],
}

type Fates = Vec<(usize, Result<Fate, ToolError>)>;
type FromSource = Vec<(String, Option<String>, Fate)>;

impl Work<'_> {
    /// Judges the named mutants and then the automatic ones, in order, until time is up.
    fn run(
        &self,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<(Vec<Judged>, FromSource), ToolError> {
        let (named, count) = (&self.plan.named, self.plan.named.len());
        let all = count + self.mutants.len();
        let next = AtomicUsize::new(0);
        let fates: Mutex<Fates> = Mutex::default();
        let lock = || fates.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        std::thread::scope(|scope| {
            let work = || {
                let mut judge = Judge::new(self.modules, self.suite, self.plan.is_thorough);
                while !self.is_over() {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= all {
                        return;
                    }
                    let fate = match named.get(at) {
                        Some(named) => {
                            let killed_by = named.killed_by.as_deref().unwrap_or("");
                            judge.judge_module(&named.module, &named.ptx, killed_by)
                        }
                        None => self.fate(&mut judge, &self.mutants[at - count]),
                    };
                    lock().push((at, fate));
                }
            };
            let workers: Vec<_> =
                (0..self.plan.threads.max(1)).map(|_| scope.spawn(work)).collect();
            while workers.iter().any(|worker| !worker.is_finished()) {
                std::thread::sleep(Duration::from_millis(20));
                observe(Progress { judged: lock().len(), chosen: all });
            }
        });
        let mut fates = fates.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        fates.sort_by_key(|(at, _)| *at);
        let (mut judged, mut from_source) = (Vec::new(), Vec::new());
        for (at, fate) in fates {
            let fate = fate?;
            match named.get(at) {
                Some(named) => from_source.push((named.id.clone(), named.killed_by.clone(), fate)),
                None => judged.push(Judged { mutant: self.mutants[at - count].clone(), fate }),
            }
        }
        Ok((judged, from_source))
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// The fate of an automatic mutant: a survivor must also be another program than the kernel.
    fn fate(&self, judge: &mut Judge<'_>, mutant: &Mutant) -> Result<Fate, ToolError> {
        let fate = judge.judge(mutant)?;
        let Fate::Survived { asked, .. } = fate else { return Ok(fate) };
        if let Some(assembler) = &self.plan.assembler {
            let listing = &modules::named(self.modules, mutant.stem).listing;
            let whole = listing.line(mutant.line);
            let kernel = listing.with_line(&mutant.entry, mutant.line, whole);
            let changed = listing.with_line(&mutant.entry, mutant.line, &mutant.now);
            match assembler.compare(&kernel, &changed).map_err(ToolError::Missing)? {
                machine_code::Comparison::Same => {
                    let evidence = "the same machine code".to_owned();
                    return Ok(Fate::Equivalent { evidence, reason: None });
                }
                machine_code::Comparison::Refused(why) => return Ok(Fate::Rejected(why)),
                machine_code::Comparison::Different => {}
            }
        }
        let same = judge.same_bits(mutant)?;
        let name = self.plan.subject.name();
        let reason = self.plan.equivalents.reason_for(name, mutant);
        Ok(match (same, reason) {
            (Some(cases), Some(reason)) => Fate::Equivalent {
                evidence: format!("the kernel's own bits in {cases} cases"),
                reason: Some(reason.to_owned()),
            },
            (same, _) => Fate::Survived {
                asked,
                same_bits: Some(same.is_some()),
                why: self.plan.explained.reason_for(name, mutant).map(str::to_owned),
            },
        })
    }
}

/// Declared equivalents that a sample may hold: a tenth of a whole one; chance may put more of them into
/// a smaller one, by two and a half standard errors.
fn most_declared(sample: usize) -> usize {
    const WHOLE_SAMPLE: usize = 150;
    if sample >= WHOLE_SAMPLE {
        return sample / 10;
    }
    let is_chance = |most: &usize| 1.0 - of_at_most(*most, sample, 0.1) >= LEAST_CHANCE;
    (0..sample).take_while(is_chance).count()
}

#[cfg(test)]
mod tests {
    use super::most_declared;

    #[test]
    fn a_small_sample_may_hold_more_declared_by_chance_than_a_whole_one() {
        assert_eq!([150, 159, 300].map(most_declared), [15, 15, 30]);
        assert_eq!([0, 1, 4, 12, 25, 149].map(most_declared), [0, 1, 3, 6, 9, 30]);
    }
}
