//! Work is bounded softly: budgets are log-uniform, so small cases are common and large ones rare,
//! and a case over its budget gives up size in one decision after another, in an order drawn per
//! case. Every decision is kept in some order, so no edge becomes impossible.

use super::plan::Step;
use super::structure::Caps;
use super::{Source, wish};
use crate::choices::Path;
use crate::values::MATERIALISED_ELEMENTS;
use contracts::CaseScope;
use contracts::case::Case;
use contracts::format::Contract;

/// Work a table of more elements than are materialised stands for, in units.
const TABLE_UNITS: u64 = 64;

/// How often sizes are lowered at most.
const ROUNDS: usize = 48;

impl Source<'_> {
    /// Draws sizes, then lowers caps until the case costs no more than its budget.
    pub(super) fn sizes_within_budget(
        &mut self,
        case: &mut Case,
        attempt: usize,
    ) -> Result<(), String> {
        let mut caps = Caps::none(self.contract);
        self.decide_sizes(case, attempt, &mut caps)?;
        if self.production {
            return Ok(());
        }
        let path = Path::new("budget");
        let drawn = budget_units(self.choices.choose(path, 64));
        let units = self.wish.map_or(drawn, |_| drawn.max(wish::least_units(attempt)));
        let budget = self.plan.unit.saturating_mul(units);
        let mut work = self.work(case);
        if work <= budget {
            return Ok(());
        }
        let mut order = self.reducible();
        if order.is_empty() {
            return Ok(());
        }
        let first = self.choices.choose(path.child("order"), order.len() as u64) as usize;
        order.rotate_left(first);
        let mut place = 0;
        for _ in 0..ROUNDS {
            let Some(step) = order.get(place) else { break };
            let Some(mut lower) = lowered(self.contract, case, &caps, *step, work, budget) else {
                place += 1;
                continue;
            };
            self.decide_sizes(case, attempt, &mut lower)?;
            let cost = self.work(case);
            if cost < work {
                (work, caps) = (cost, lower);
            } else {
                place += 1;
            }
            if work <= budget {
                return Ok(());
            }
        }
        // The last step may have been one that saved nothing.
        self.decide_sizes(case, attempt, &mut caps)
    }

    /// Work in elements: rows times the largest row, or half of all elements if that is more.
    pub(super) fn work(&self, case: &Case) -> u64 {
        let scope = CaseScope::new(self.contract, case);
        let (mut rows, mut largest, mut elements, mut tables) = (1u64, 1u64, 0u64, 0u64);
        for ((_, tensor), pooled) in self.contract.tensors.iter().zip(&self.plan.pooled) {
            let mut extents = tensor
                .shape
                .iter()
                .map(|extent| extent.eval_int(&scope).map_or(0, |e| e.clamp(0, 1 << 40) as u64));
            let first = extents.next().unwrap_or(1);
            let row = extents.fold(1u64, u64::saturating_mul);
            if !pooled {
                rows = rows.max(first);
            }
            largest = largest.max(row);
            match first.saturating_mul(row) {
                count if count > MATERIALISED_ELEMENTS => tables += 1,
                count => elements += count,
            }
        }
        let work = rows.saturating_mul(largest).max(elements / 2);
        work.saturating_add(tables.saturating_mul(TABLE_UNITS * self.plan.unit))
    }

    /// Free decisions that have a smaller choice.
    fn reducible(&self) -> Vec<Step> {
        let contract = self.contract;
        let is_free = |step: &Step| match *step {
            Step::Dim(index) => contract.dims.get_index(index).is_some_and(|(name, dim)| {
                let sized =
                    dim.range.is_some() || !dim.one_of.is_empty() || dim.multiple_of.is_some();
                sized && self.assigned_dim(name).is_none()
            }),
            Step::List(index) => contract.lists.get_index(index).is_some_and(|(name, list)| {
                list.length.is_some()
                    && self.fixture.is_none_or(|fixture| !fixture.lists.contains_key(name))
            }),
        };
        self.plan.steps.iter().copied().filter(is_free).collect()
    }
}

/// Caps that shrink this decision in proportion to the excess; `None` when it is at its smallest.
fn lowered(
    contract: &Contract,
    case: &Case,
    caps: &Caps,
    step: Step,
    work: u64,
    budget: u64,
) -> Option<Caps> {
    let share =
        |size: i64| ((i128::from(size) * i128::from(budget)) / i128::from(work.max(1))) as i64;
    let mut caps = caps.clone();
    match step {
        Step::Dim(index) => {
            let (_, dim) = contract.dims.get_index(index)?;
            let decided = caps.decided[index]?;
            let least = match (dim.range, dim.factor) {
                (Some([low, _]), _) | (None, Some([low, _])) => low,
                (None, None) => dim.one_of.iter().copied().min()?,
            };
            caps.dims[index] =
                (decided > least).then(|| share(decided).clamp(least, decided - 1))?;
        }
        Step::List(index) => {
            let (_, list) = contract.lists.get_index(index)?;
            let least = list.length.as_ref()?.range[0];
            let longest = case.lists[index].iter().copied().max()?;
            caps.lists[index] =
                (longest > least).then(|| share(longest).clamp(least, longest - 1))?;
        }
    }
    Some(caps)
}

/// 1 to 512 units, log-uniform; 1 in 21 cases more.
fn budget_units(drawn: u64) -> u64 {
    match drawn {
        63 => 1 << 13,
        61..=62 => 1 << 11,
        // Steps of 2^(9/60).
        _ => libm::exp2(drawn as f64 * 0.15) as u64,
    }
}
