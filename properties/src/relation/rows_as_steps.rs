//! The adapter `rows_as_steps`: a prefill over rows equals one step after another of a kernel that
//! takes a row a sequence, the state carried from step to step. Equal names correspond.

use super::comparison::Comparison;
use super::slice::{Kept, kept_axes, overlaid, segment_dims, segments, sliced};
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::generate::first_scalar;
use crate::oracle::{Allowed, each, expected};
use crate::prepare::{Prepared, missing};
use crate::subject::{Subject, subject};
use crate::verdict::Verdict;
use contracts::CaseScope;
use contracts::case::{Case, CaseTensor, Content, Decisions, Layout, StoreForm};
use contracts::format::{Access, Compare, Contract, Equals, Named, Word};
use std::ops::Range;

/// What the adapter found out about both contracts: which axis and list are stepped through.
struct Steps<'a> {
    whole: &'a Prepared<'a>,
    target: &'static Subject,
    /// Words of the target's options and variants that the whole lacks.
    set: &'a Named<Word>,
    /// The whole's axis of rows and the list of its segments.
    rows: &'a str,
    /// The axis both contracts count sequences by.
    sequences: &'a str,
    segments: Vec<Range<u64>>,
    /// Sequences that are not pads.
    active: Vec<usize>,
}

pub(super) fn rows_as_steps(
    related: &mut Related<'_, '_>,
    equals: &Equals,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let target = missing(
        || {
            format!(
                "{} names the contract `{}`, which is not registered",
                related.clause, equals.contract
            )
        },
        subject(&equals.contract),
    )?;
    let steps = missing(
        || {
            format!(
                "{}: {} has no axis of segments to step through",
                related.clause,
                whole.subject.name()
            )
        },
        Steps::of(whole, target, &equals.set),
    )?;
    if let Some(name) = equals.set.iter().find_map(|(name, word)| {
        let contract = target.contract;
        let is_option = contract.options.get(name).is_some_and(|words| words.contains(&word.0));
        let is_variant =
            contract.variants.get(name).is_some_and(|variant| variant.values.contains(word));
        (!is_option && !is_variant).then_some(name)
    }) {
        let what = format!("{}: {} has no such word for `{name}`", related.clause, target.name());
        return Err(ToolError::Missing(what));
    }
    let longest = steps.active.iter().map(|n| steps.len(*n)).max().unwrap_or(0);
    let mut states: Decisions<Content> = steps.initial_states();
    // Rows of the outputs as (tensor, first flat index of the whole, bits of the row's elements).
    let mut rows: Vec<(usize, u64, Vec<u64>)> = Vec::new();
    for step in 0..longest {
        let sequences: Vec<usize> =
            steps.active.iter().copied().filter(|n| steps.len(*n) > step).collect();
        let case = steps.case(&sequences, step, &states)?;
        let what = format!("step {step} by {}", equals.contract);
        let (part, observed) = match related.run(target, &case, &what)? {
            SubRun::Ran(prepared, observed) => (prepared, observed),
            SubRun::Ended(verdict) => return Ok(Some(verdict)),
        };
        for place in part.written() {
            let tensor = &part.geometry.tensors[place];
            let (runs, bytes) = (&part.live[place], &observed.tensors[place]);
            if let Some(state) = states.get_mut(&tensor.name) {
                *state = overlaid(state, tensor.dtype, tensor.count(), runs, bytes);
                continue;
            }
            let Some(whole_place) = steps.place(&tensor.name) else { continue };
            let width = tensor.row_count().max(1);
            each(runs, tensor.dtype, bytes, |flat, bits| {
                if flat % width == 0 {
                    let row = steps.segments[sequences[(flat / width) as usize]].start + step;
                    rows.push((whole_place, row * width, Vec::with_capacity(width as usize)));
                }
                if let Some((.., row)) = rows.last_mut() {
                    row.push(bits);
                }
            });
        }
    }
    compare(related, &steps, &states, &rows, equals)
}

/// Rows of the outputs and the last states, against the whole run.
fn compare(
    related: &mut Related<'_, '_>,
    steps: &Steps<'_>,
    states: &Decisions<Content>,
    rows: &[(usize, u64, Vec<u64>)],
    equals: &Equals,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    // The tolerance of one step, as the other contract's; its magnitudes are the whole's own.
    let step_case = steps.case(&[], 0, states)?;
    for place in whole.written() {
        let tensor = &whole.geometry.tensors[place];
        if whole.live[place].is_empty() || !steps.target.contract.tensors.contains_key(&tensor.name)
        {
            continue;
        }
        let other = match related.relation.compare {
            Compare::Bits => None,
            Compare::Bound => {
                let expected = expected(whole, tensor)?;
                Some(Allowed::of(steps.target.contract, &step_case, tensor, expected)?)
            }
        };
        let note =
            format!("expected is the whole run, observed row by row through {}", equals.contract);
        let run = (whole, related.observed);
        let mut comparison =
            Comparison::of(related.clause, run, place, related.relation.compare, other, note)?;
        match states.get(&tensor.name) {
            Some(state) => {
                for run in &whole.live[place] {
                    for flat in run.flat..run.flat + run.count {
                        comparison.element(flat, state.bits(tensor.dtype, flat));
                    }
                }
            }
            None => {
                for (_, first, row) in rows.iter().filter(|(row_place, ..)| *row_place == place) {
                    for (flat, bits) in (*first..).zip(row) {
                        comparison.element(flat, *bits);
                    }
                }
            }
        }
        let (compared, found) = comparison.finish();
        related.compared += compared;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

impl<'a> Steps<'a> {
    fn of(
        whole: &'a Prepared<'a>,
        target: &'static Subject,
        set: &'a Named<Word>,
    ) -> Option<Steps<'a>> {
        let contract = whole.subject.contract;
        // The list of lengths is the one whose segments an axis of the whole is, over an axis that
        // both contracts have.
        let (list, declared) = contract.lists.iter().find(|(name, declared)| {
            target.contract.dims.contains_key(&declared.each)
                && segment_dims(contract, name).next().is_some_and(|dim| is_row_axis(contract, dim))
        })?;
        let rows = segment_dims(contract, list).next()?;
        let segments = segments(whole.case.lists.get(list)?);
        let is_pad = |n: usize| {
            contract.lists.iter().any(|(name, declared)| {
                let items = whole.case.lists.get(name);
                let item = items.and_then(|items| items.get(n)).copied().unwrap_or(0);
                declared.slots.as_ref().is_some_and(|slots| slots.pad.contains(&item))
            })
        };
        let active = (0..segments.len()).filter(|n| !is_pad(*n)).collect();
        Some(Steps { whole, target, set, rows, sequences: &declared.each, segments, active })
    }

    fn len(&self, sequence: usize) -> u64 {
        self.segments[sequence].end - self.segments[sequence].start
    }

    fn place(&self, tensor: &str) -> Option<usize> {
        self.whole.geometry.tensors.iter().position(|other| other.name == tensor)
    }

    /// Tensors that both contracts hold in a pool: the whole's contents where it reads them, else zero.
    fn initial_states(&self) -> Decisions<Content> {
        let whole = self.whole;
        let carried = |tensor: &&contracts::geometry::TensorGeometry| {
            let declared = self.target.contract.tensors.get(&tensor.name);
            let kept = self.rows_of(std::iter::empty());
            let cut = kept_axes(whole.subject.contract, &tensor.name, &kept);
            declared.is_some_and(|declared| declared.live.is_some())
                && tensor.access != Access::Read
                && cut.iter().all(Option::is_none)
        };
        let content = |tensor: &contracts::geometry::TensorGeometry| {
            let stored = whole.case.tensors.get(&tensor.name).map(|stored| &stored.content);
            let stored = stored.filter(|_| tensor.access == Access::ReadWrite);
            let content = stored.unwrap_or(&Content::Output);
            (tensor.name.clone(), overlaid(content, tensor.dtype, tensor.count(), &[], &[]))
        };
        whole.geometry.tensors.iter().filter(carried).map(content).collect()
    }

    fn rows_of(&self, rows: impl Iterator<Item = u64>) -> Vec<Kept> {
        let ranges = rows.map(|row| row..row + 1).collect();
        vec![Kept { dim: self.rows.to_owned(), ranges }]
    }

    /// One step: these sequences, each at its row `step`.
    fn case(
        &self,
        sequences: &[usize],
        step: u64,
        states: &Decisions<Content>,
    ) -> Result<Case, ToolError> {
        let (whole, target) = (self.whole, self.target.contract);
        let lacks = |kind: &str, name: &str| {
            format!("{} has no {kind} `{name}` to give {}", whole.subject.name(), target.contract)
        };
        let mut case = Case {
            contract: target.contract.clone(),
            version: target.version,
            found: None,
            dtypes: Decisions::new(),
            options: Decisions::new(),
            variants: Decisions::new(),
            dims: Decisions::new(),
            lists: Decisions::new(),
            scalars: Decisions::new(),
            stores: target.stores.keys().map(|name| (name.clone(), StoreForm::Separate)).collect(),
            poison: whole.case.poison,
            schedule: whole.case.schedule,
            tensors: Decisions::new(),
        };
        for (symbol, types) in &target.dtypes {
            let given = whole.case.dtypes.get(symbol).or(types.first()).copied();
            case.dtypes.insert(symbol.clone(), missing(|| lacks("dtype", symbol), given)?);
        }
        let pinned = |name: &String| self.set.get(name).map(|word| &word.0);
        for (name, words) in &target.options {
            let given = pinned(name).or(whole.case.options.get(name)).or(words.first()).cloned();
            case.options.insert(name.clone(), missing(|| lacks("option", name), given)?);
        }
        for (name, variant) in &target.variants {
            let first = variant.values.first().map(|word| &word.0);
            let given = pinned(name).or(whole.case.variants.get(name)).or(first);
            case.variants.insert(name.clone(), missing(|| lacks("variant", name), given)?.clone());
        }
        for name in target.dims.keys() {
            let size = if name == self.sequences {
                sequences.len() as i64
            } else {
                missing(|| lacks("dim", name), whole.case.dims.get(name).copied())?
            };
            case.dims.insert(name.clone(), size);
        }
        for name in target.lists.keys() {
            let items = missing(|| lacks("list", name), whole.case.lists.get(name))?;
            let picked = sequences.iter().filter_map(|n| items.get(*n).copied()).collect();
            case.lists.insert(name.clone(), picked);
        }
        // What the whole has no scalar for, its options do not use.
        for (name, scalar) in &target.scalars {
            let given = whole.case.scalars.get(name).copied();
            let bits = given.unwrap_or_else(|| first_scalar(scalar, &case.dims));
            case.scalars.insert(name.clone(), bits);
        }
        let kept = self.rows_of(sequences.iter().map(|n| self.segments[*n].start + step));
        for (name, declared) in &target.tensors {
            let scope = CaseScope::new(target, &case);
            let present = declared.when.as_ref().map_or(Ok(true), |when| when.eval_bool(&scope));
            if !present.unwrap_or(false) {
                continue;
            }
            let content = if declared.from.is_some() {
                Content::Derived
            } else if let Some(state) = states.get(name) {
                state.clone()
            } else if declared.access.resolve(&case.options) == Some(&Access::Write) {
                Content::Output
            } else {
                let stored = missing(|| lacks("tensor", name), whole.case.tensors.get(name))?;
                let geometry = missing(|| lacks("tensor", name), whole.geometry.tensor(name))?;
                let axes = kept_axes(whole.subject.contract, name, &kept);
                sliced(&stored.content, geometry.dtype, &geometry.shape, &axes)
            };
            case.tensors.insert(name.clone(), CaseTensor { layout: Layout::Dense, content });
        }
        Ok(case)
    }
}

/// Whether some tensor's first axis is this dim.
fn is_row_axis(contract: &Contract, dim: &str) -> bool {
    contract
        .tensors
        .values()
        .any(|tensor| tensor.shape.first().is_some_and(|axis| axis.to_string() == dim))
}
