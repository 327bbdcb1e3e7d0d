//! Promises about two runs: the case as a whole, already run and judged, and one or more runs that
//! are made from it. Sub-runs take the same path as every run; a fault in one is a finding of the
//! relation.

mod alone;
mod append_dead;
mod comparison;
mod copies;
mod given_again;
mod heads;
mod pair_apart;
mod permute;
mod read_again;
mod recall;
mod replay;
mod rows_accepted;
mod rows_as_steps;
mod same;
mod scale;
mod selection;
mod slice;
mod split;
mod steps;
mod wide_outputs;

pub(crate) use slice::{plain, skeleton};

use crate::check::{Session, ToolError, attempt, run};
use crate::oracle::{Exercised, Observed, each, judge};
use crate::prepare::{Prepared, missing, prepare, prepare_unjudged};
use crate::subject::Subject;
use crate::verdict::{FaultReport, Verdict};
use comparison::Comparison;
use contracts::CaseScope;
use contracts::case::Case;
use contracts::format::{Carried, Contract, Equals, Relation, Split};
use kernels::launch::Plan;

/// One relation at work on one case.
pub(crate) struct Related<'a, 's> {
    /// Clause id: `relations.<name>`.
    clause: &'a str,
    relation: &'a Relation,
    /// The case as a whole and what its run left.
    whole: &'a Prepared<'a>,
    observed: &'a Observed,
    session: &'a mut Session<'s>,
    /// Elements compared so far.
    compared: u64,
}

/// An adapter turns a case of one contract into runs of another and compares.
type Adapter = fn(&mut Related<'_, '_>, &Equals) -> Result<Option<Verdict>, ToolError>;

/// Every adapter `equals` may name.
const ADAPTERS: &[(&str, Adapter)] = &[
    ("rows_accepted", rows_accepted::rows_accepted),
    ("pair_apart", pair_apart::pair_apart),
    ("rows_as_steps", rows_as_steps::rows_as_steps),
    ("read_again", read_again::read_again),
    ("given_again", given_again::given_again),
    ("smaller_k", selection::smaller_k),
    ("first_column", selection::first_column),
    ("wide_outputs", wide_outputs::wide_outputs),
];

/// Examines one relation, by clause id. `None` when it holds, or does not speak of this case; it is
/// marked exercised when at least one element was compared.
///
/// # Errors
/// When the id, adapter or other contract is unknown, or the tool fails in a sub-run.
pub fn examine(
    id: &str,
    whole: &Prepared<'_>,
    observed: &Observed,
    session: &mut Session<'_>,
    exercised: &mut Exercised,
) -> Result<Option<Verdict>, ToolError> {
    let contract = whole.subject.contract;
    let relation = missing(
        || format!("{} has no relation with the clause id `{id}`", contract.contract),
        id.strip_prefix("relations.").and_then(|name| contract.relations.get(name)),
    )?;
    if let Some(when) = &relation.when {
        let holds = when.eval_bool(&CaseScope::new(contract, whole.case));
        let holds =
            holds.map_err(|error| ToolError::Missing(format!("{id}: `{when}`: {error}")))?;
        if !holds {
            return Ok(None);
        }
    }
    let mut related = Related { clause: id, relation, whole, observed, session, compared: 0 };
    let found = if let Some(over) = &relation.alone {
        alone::alone(&mut related, over)
    } else if let Some(split) = &relation.split {
        split::split(&mut related, split)
    } else if let Some(over) = &relation.append_dead {
        append_dead::append_dead(&mut related, over)
    } else if let Some(same) = &relation.same {
        same::same(&mut related, same)
    } else if let Some(copies) = &relation.copies {
        copies::copies(&mut related, copies)
    } else if let Some(over) = &relation.permute {
        permute::permute(&mut related, over)
    } else if let Some(carried) = &relation.steps {
        steps::steps(&mut related, carried)
    } else if let Some(heads) = &relation.heads {
        heads::heads(&mut related, heads)
    } else if let Some(scaled) = &relation.scale {
        scale::scale(&mut related, scaled)
    } else if let Some(recalled) = &relation.recall {
        recall::recall(&mut related, recalled)
    } else if let Some(carried) = &relation.replay {
        replay::replay(&mut related, carried)
    } else if let Some(equals) = &relation.equals {
        adapter(&equals.adapter).and_then(|adapter| adapter(&mut related, equals))
    } else {
        Err(ToolError::Missing(format!("{id} of {} has no form", contract.contract)))
    };
    if related.compared > 0 {
        exercised.mark(whole.subject, &[id]);
    }
    found
}

/// Whether a relation has anything to say of a case, without running it: its `when` holds, and a
/// segment is long enough to be cut.
pub fn speaks_of(id: &str, contract: &Contract, case: &Case) -> bool {
    let relation = id.strip_prefix("relations.").and_then(|name| contract.relations.get(name));
    let Some(relation) = relation else { return false };
    let scope = CaseScope::new(contract, case);
    let holds = relation.when.as_ref().is_none_or(|when| when.eval_bool(&scope) == Ok(true));
    let can_be_cut = |split: &Split| match (split.at.eval_int(&scope), case.lists.get(&split.list))
    {
        (Ok(step), Some(lengths)) => lengths.iter().any(|length| i128::from(*length) > step),
        _ => false,
    };
    let has_rows = |carried: &Carried| {
        case.lists
            .get(&carried.list)
            .is_some_and(|lengths| lengths.iter().any(|length| *length > 0))
    };
    holds
        && relation.split.as_ref().is_none_or(can_be_cut)
        && relation.steps.iter().chain(&relation.replay).all(has_rows)
}

fn adapter(name: &str) -> Result<Adapter, ToolError> {
    let known = || ADAPTERS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    missing(
        || format!("no adapter is named `{name}`; there are: {}", known()),
        ADAPTERS.iter().find(|(known, _)| *known == name).map(|(_, adapter)| *adapter),
    )
}

/// A sub-run: ready to compare, or what became of it instead.
enum SubRun<'c> {
    Ran(Box<Prepared<'c>>, Observed),
    Ended(Verdict),
}

impl Related<'_, '_> {
    /// Runs a case once and holds it against the reference, every failure as one of this relation:
    /// `None` and the results when it agrees. `plan` launches what another call planned.
    fn judge<'c>(
        &mut self,
        case: &'c Case,
        plan: Option<&Plan>,
        what: &str,
    ) -> Result<SubRun<'c>, ToolError>
    where
        Self: 'c,
    {
        let prepared = prepare(self.whole.subject, case).map_err(ToolError::Case)?;
        let ended = match plan {
            Some(plan) => run(&prepared, plan, prepared.case.poison, self.session)?,
            None => attempt(&prepared, prepared.case.poison, self.session)?,
        };
        if let Some(verdict) = ended {
            return Ok(SubRun::Ended(self.blamed(verdict, what)));
        }
        let mut observed = Observed::default();
        observed.gather(&prepared, self.session.arena);
        match judge(&prepared, &observed, &mut Exercised::default())? {
            None => Ok(SubRun::Ran(Box::new(prepared), observed)),
            Some(found) => {
                let verdict = Verdict::Disagree(Box::new(found));
                Ok(SubRun::Ended(self.blamed(verdict, what)))
            }
        }
    }

    /// A failure of a sub-run as one of this relation.
    fn blamed(&self, verdict: Verdict, what: &str) -> Verdict {
        match verdict {
            Verdict::Fault(fault) => Verdict::Fault(Box::new(FaultReport {
                clause: self.clause.to_owned(),
                text: format!("{} in the run of {what}: {}", fault.clause, fault.text),
                ..*fault
            })),
            Verdict::Disagree(mut found) => {
                let clause = std::mem::replace(&mut found.clause, self.clause.to_owned());
                found.note = format!("{clause} in the run of {what}");
                Verdict::Disagree(found)
            }
            other => other,
        }
    }

    /// Compares every written tensor of another run, index by index, with the whole's; `wanted` says
    /// which. Tensors of another shape are passed over.
    fn compare_same(
        &mut self,
        part: &Prepared<'_>,
        observed: &Observed,
        note: &str,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Verdict>, ToolError> {
        for place in part.written() {
            let tensor = &part.geometry.tensors[place];
            let in_whole = |other: &usize| {
                let other = &self.whole.geometry.tensors[*other];
                other.name == tensor.name && other.shape == tensor.shape
            };
            let Some(whole_place) = self.whole.written().find(in_whole) else { continue };
            if !wanted(&tensor.name) {
                continue;
            }
            let (run, compare) = ((self.whole, self.observed), self.relation.compare);
            let mut comparison =
                Comparison::of(self.clause, run, whole_place, compare, None, note.to_owned())?;
            each(&part.live[place], tensor.dtype, &observed.tensors[place], |flat, bits| {
                comparison.element(flat, bits);
            });
            let (compared, found) = comparison.finish();
            self.compared += compared;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Runs a sub-case once, under the whole case's poison. `what` names the run in a report.
    fn run<'c>(
        &mut self,
        subject: &'c Subject,
        case: &'c Case,
        what: &str,
    ) -> Result<SubRun<'c>, ToolError> {
        let prepared = prepare_unjudged(subject, case).map_err(ToolError::Case)?;
        let mut observed = Observed::default();
        match attempt(&prepared, self.whole.case.poison, self.session)? {
            None => {
                observed.gather(&prepared, self.session.arena);
                Ok(SubRun::Ran(Box::new(prepared), observed))
            }
            Some(Verdict::Disagree(mut refusal)) => {
                refusal.clause = self.clause.to_owned();
                refusal.note = format!("in the run of {what}");
                Ok(SubRun::Ended(Verdict::Disagree(refusal)))
            }
            Some(other) => Ok(SubRun::Ended(self.blamed(other, what))),
        }
    }
}
