//! Dtypes, options, variants, dims and lists: the decisions everything else follows from. A fixture's
//! assignments stand; free dims give way to them.

use super::plan::Step;
use super::{Source, Swarm, section};
use crate::choices::{Choices, Path};
use contracts::CaseScope;
use contracts::case::{Case, Decisions, Schedule};
use contracts::dtype::Poison;
use contracts::expr::{Expr, ExprError, Scope};
use contracts::format::{Contract, Dim, List, Variant};

/// Upper limits on decisions, lowered until a case fits its budget; and the decisions as drawn.
#[derive(Clone, Debug)]
pub(super) struct Caps {
    /// By dim: the largest value (or factor) that may be drawn.
    pub(super) dims: Vec<i64>,
    /// By list: the largest length.
    pub(super) lists: Vec<i64>,
    /// By dim: the decision (value or factor) last drawn, `None` where there is none.
    pub(super) decided: Vec<Option<i64>>,
}

impl Caps {
    pub(super) fn none(contract: &Contract) -> Caps {
        Caps {
            dims: vec![i64::MAX; contract.dims.len()],
            lists: vec![i64::MAX; contract.lists.len()],
            decided: vec![None; contract.dims.len()],
        }
    }
}

/// One case in this many runs its blocks and warps in a drawn order.
const SCHEDULED_ONE_IN: u64 = 12;
/// Orders drawn from: few enough to be read and typed again.
const SEEDS: u64 = 1 << 16;

impl Source<'_> {
    /// Everything but layouts and contents, within the budget. An error is a combination the contract
    /// refuses; another attempt draws another.
    pub(super) fn structure(&mut self, attempt: usize) -> Result<Case, String> {
        let mut case = self.undecided_case(attempt)?;
        self.sizes_within_budget(&mut case, attempt)?;
        let contract = self.contract;
        for (name, requirement) in &contract.requires {
            let scope = CaseScope::new(contract, &case);
            if !requirement.that.eval_bool(&scope).map_err(|e| of(name, &e))? {
                return Err(format!("requires.{name} fails"));
            }
        }
        for (name, variant) in &contract.variants {
            if !is_available(contract, &case, name, variant).map_err(|e| of(name, &e))? {
                return Err(format!("variants.{name} is not available"));
            }
        }
        if let Some(wish) = self.wish
            && !wish.is_met(contract, &case).map_err(|e| of("wish", &e))?
        {
            return Err("what was wished for does not hold".to_owned());
        }
        Ok(case)
    }

    /// Dtypes, options, variants and poison drawn; names of dims and lists in the contract's order,
    /// values to come.
    pub(super) fn undecided_case(&mut self, attempt: usize) -> Result<Case, String> {
        let (contract, fixture) = (self.contract, self.fixture);
        let mut case = Case {
            contract: contract.contract.clone(),
            version: contract.version,
            found: None,
            dtypes: Decisions::with_capacity(contract.dtypes.len()),
            options: Decisions::with_capacity(contract.options.len()),
            variants: Decisions::with_capacity(contract.variants.len()),
            dims: contract.dims.keys().map(|name| (name.clone(), 0)).collect(),
            lists: contract.lists.keys().map(|name| (name.clone(), Vec::new())).collect(),
            scalars: Decisions::with_capacity(contract.scalars.len()),
            stores: Decisions::with_capacity(contract.stores.len()),
            poison: Poison::Quiet,
            schedule: Schedule::InOrder,
            tensors: Decisions::with_capacity(contract.tensors.len()),
        };
        // Whose wish would be met more easily by one type than by another keeps the one drawn.
        let path = section("dtypes", if self.wish.is_some() { 0 } else { attempt });
        for (name, types) in &contract.dtypes {
            let assigned = fixture.and_then(|f| f.dtypes.get(name)).copied();
            let dtype = assigned.or_else(|| pick(self.choices, path.child(name), types).copied());
            case.dtypes
                .insert(name.clone(), dtype.ok_or_else(|| format!("dtypes.{name} is empty"))?);
        }
        let path = section("options", attempt);
        for (name, words) in &contract.options {
            let assigned = fixture.and_then(|f| f.options.get(name)).map(|word| &word.0);
            let word = assigned.or_else(|| pick(self.choices, path.child(name), words));
            case.options.insert(
                name.clone(),
                word.ok_or_else(|| format!("options.{name} is empty"))?.clone(),
            );
        }
        let path = section("variants", attempt);
        for (name, variant) in &contract.variants {
            let assigned = fixture.and_then(|f| f.variants.get(name)).map(|word| word.0.as_str());
            let assigned = assigned.or_else(|| self.wish.and_then(|wish| wish.word(name)));
            let word = assigned.or_else(|| {
                pick(self.choices, path.child(name), &variant.values).map(|word| word.0.as_str())
            });
            let word = word.ok_or_else(|| format!("variants.{name} is empty"))?;
            case.variants.insert(name.clone(), word.to_owned());
        }
        if self.choices.choose(Path::new("poison"), 2) == 1 {
            case.poison = Poison::Signalling;
        }
        let path = Path::new("schedule");
        if self.choices.one_in(path, SCHEDULED_ONE_IN) {
            case.schedule = Schedule::Seeded(self.choices.choose(path.child("seed"), SEEDS));
        }
        Ok(case)
    }

    /// Draws every dim and list under these caps, in dependency order.
    pub(super) fn decide_sizes(
        &mut self,
        case: &mut Case,
        attempt: usize,
        caps: &mut Caps,
    ) -> Result<(), String> {
        let (dims, lists) = (section("dims", attempt), section("lists", attempt));
        let contract = self.contract;
        for step in &self.plan.steps {
            match *step {
                Step::Dim(index) => {
                    let Some((name, dim)) = contract.dims.get_index(index) else { continue };
                    let value = self.dim(case, dims.child(name), name, dim, index, caps)?;
                    case.dims[index] = value;
                }
                Step::List(index) => {
                    let Some((name, list)) = contract.lists.get_index(index) else { continue };
                    let items =
                        self.list(case, lists.child(name), name, list, caps.lists[index])?;
                    case.lists[index] = items;
                }
            }
        }
        Ok(())
    }

    fn dim(
        &mut self,
        case: &Case,
        path: Path,
        name: &str,
        dim: &Dim,
        index: usize,
        caps: &mut Caps,
    ) -> Result<i64, String> {
        let scope = CaseScope::new(self.contract, case);
        let cap = caps.dims[index];
        let assigned = self.assigned_dim(name);
        caps.decided[index] = None;
        if let Some(value) = assigned {
            return allowed(case, &scope, name, dim, value);
        }
        if let Some(divisors) = self.divisors_wanted(name, dim) {
            let divisor = pick(self.choices, path.child("divisor"), &divisors);
            return divisor
                .copied()
                .ok_or_else(|| format!("dims.{name}: no size divides what is assigned"));
        }
        if let Some([low, high]) = dim.range {
            let value = ranged(self.choices, path, [low, high], &dim.edges, cap);
            caps.decided[index] = Some(value);
            return Ok(value);
        }
        if !dim.one_of.is_empty() {
            let drawn = pick(self.choices, path, &dim.one_of).copied().unwrap_or(0);
            let fitting = dim.one_of.iter().copied().filter(|value| *value <= cap.min(drawn)).max();
            let value = fitting.or_else(|| dim.one_of.iter().copied().min()).unwrap_or(drawn);
            caps.decided[index] = Some(value);
            return Ok(value);
        }
        if let Some(base) = &dim.multiple_of {
            let base = integer(base, &scope).map_err(|e| of(name, &e))?;
            let factor =
                ranged(self.choices, path.child("factor"), dim.factor.unwrap_or([1, 1]), &[], cap);
            caps.decided[index] = Some(factor);
            return base.checked_mul(factor).ok_or_else(|| format!("dims.{name} overflows"));
        }
        if let Some(least) = &dim.at_least {
            let least =
                integer(least, &scope).map_err(|e| of(name, &e))?.max(self.pool_assigned(name));
            let slack = ranged(
                self.choices,
                path.child("slack"),
                dim.slack.unwrap_or([0, 0]),
                &[],
                i64::MAX,
            );
            return least.checked_add(slack).ok_or_else(|| format!("dims.{name} overflows"));
        }
        if let Some(exact) = &dim.is {
            return integer(exact, &scope).map_err(|e| of(name, &e));
        }
        let [low, high] = dim.spare.unwrap_or([0, 0]);
        let high = if self.swarm.has(Swarm::SPARE) { high } else { low };
        let spare = ranged(self.choices, path.child("spare"), [low, high], &[], i64::MAX);
        segments_total(case, dim).checked_add(spare).ok_or_else(|| format!("dims.{name} overflows"))
    }

    fn list(
        &mut self,
        case: &Case,
        path: Path,
        name: &str,
        list: &List,
        cap: i64,
    ) -> Result<Vec<i64>, String> {
        let count = usize::try_from(case.dims.get(&list.each).copied().unwrap_or(0)).unwrap_or(0);
        if let Some(items) = self.fixture.and_then(|fixture| fixture.lists.get(name)) {
            let fits = items.len() == count;
            return if fits {
                Ok(items.clone())
            } else {
                Err(format!("lists.{name} needs {count} elements"))
            };
        }
        let scope = CaseScope::new(self.contract, case);
        if let Some(lengths) = &list.length {
            let length =
                |index| ranged(self.choices, path.index(index), lengths.range, &lengths.edges, cap);
            return Ok((0..count).map(length).collect());
        }
        if let Some(slots) = &list.slots {
            let pool = case.dims.get(&slots.pool).copied().unwrap_or(0);
            let pads: &[i64] = if self.swarm.has(Swarm::PADS) { &slots.pad } else { &[] };
            return self
                .slots(path, count, pool, pads)
                .ok_or_else(|| format!("lists.{name}: the pool is too small"));
        }
        if let Some(ids) = &list.ids {
            let below = case.dims.get(&ids.below).copied().unwrap_or(0);
            let invalid = if self.swarm.has(Swarm::INVALID) { ids.invalid.as_slice() } else { &[] };
            let invalid: Vec<i64> =
                invalid.iter().filter_map(|expr| integer(expr, &scope).ok()).collect();
            return self
                .ids(path, count, below, &invalid, ids.repeats)
                .ok_or_else(|| format!("lists.{name}: not enough rows"));
        }
        let Some(expr) = &list.is else { return Err(format!("lists.{name} has no form")) };
        let at = |index| integer(expr, &scope.at(&list.each, index));
        (0..count).map(at).collect::<Result<_, _>>().map_err(|e| of(name, &e))
    }

    /// Distinct places of the pool, about a quarter of them pads; the identity when all choices are 0.
    fn slots(&mut self, path: Path, count: usize, pool: i64, pads: &[i64]) -> Option<Vec<i64>> {
        let mut free: Vec<i64> = (0..pool).collect();
        (0..count)
            .map(|index| {
                let path = path.index(index);
                if let Some(pad) = unusual(self.choices, path.child("pad"), pads) {
                    return Some(pad);
                }
                if free.is_empty() {
                    return None;
                }
                Some(free.remove(self.choices.choose(path, free.len() as u64) as usize))
            })
            .collect()
    }

    /// Rows below `below`, often its first or last. About a quarter of them are invalid: anywhere, from
    /// some place on, or, most often, one alone: who looks for the first may look at another.
    fn ids(
        &mut self,
        path: Path,
        count: usize,
        below: i64,
        invalid: &[i64],
        repeats: bool,
    ) -> Option<Vec<i64>> {
        let (mut valid, mut lone_at) = (0, None);
        if count > 0 && !invalid.is_empty() {
            let anywhere = |choices: &mut dyn Choices, what: &'static str| {
                choices.choose(path.child(what), count as u64) as usize
            };
            match self.choices.choose(path.child("kind"), 8) {
                0 => {}
                1 => valid = anywhere(self.choices, "valid"),
                2 => lone_at = Some(count - 1),
                _ => lone_at = Some(anywhere(self.choices, "lone_at")),
            }
        }
        let mut ids: Vec<i64> = Vec::with_capacity(count);
        for index in 0..count {
            let path = path.index(index);
            if lone_at == Some(index) {
                ids.extend(pick(self.choices, path.child("invalid"), invalid));
                continue;
            }
            let invalid = if lone_at.is_some() || index < valid { &[] } else { invalid };
            if let Some(id) = unusual(self.choices, path.child("invalid"), invalid) {
                ids.push(id);
                continue;
            }
            if below <= 0 {
                return None;
            }
            let id = match self.choices.choose(path.child("place"), 8) {
                6 => 0,
                7 => below - 1,
                _ => self.choices.choose(path, below as u64) as i64,
            };
            let unused = |id: &i64| repeats || !ids.contains(id);
            ids.push((id..below).chain(0..id).find(unused)?);
        }
        Some(ids)
    }

    /// The size a fixture gives, itself or through a list over the dim.
    pub(super) fn assigned_dim(&self, name: &str) -> Option<i64> {
        let fixture = self.fixture?;
        let through_list = || {
            let over = |(list, items): (&String, &Vec<i64>)| {
                let each = &self.contract.lists.get(list)?.each;
                (each == name).then_some(items.len() as i64)
            };
            fixture.lists.iter().find_map(over)
        };
        fixture.dims.get(name).copied().or_else(through_list)
    }

    /// Sizes of a free dim that divide an assigned one which must be a multiple of it.
    fn divisors_wanted(&self, name: &str, dim: &Dim) -> Option<Vec<i64>> {
        let fixture = self.fixture?;
        let (assigned, [low, high]) = fixture.dims.iter().find_map(|(other, value)| {
            let other = self.contract.dims.get(other)?;
            let is_base = matches!(&other.multiple_of, Some(Expr::Name(base)) if **base == *name);
            is_base.then_some((*value, other.factor.unwrap_or([1, 1])))
        })?;
        let candidates = match dim.range {
            Some([low, high]) => (low..=high).collect(),
            None => dim.one_of.clone(),
        };
        let divides = |size: &i64| *size > 0 && assigned % size == 0;
        let within = |size: &i64| divides(size) && (low..=high).contains(&(assigned / size));
        let best: Vec<i64> = candidates.iter().copied().filter(within).collect();
        // A fixture may exceed the factor's range, never the legality of the division.
        Some(if best.is_empty() { candidates.into_iter().filter(divides).collect() } else { best })
    }

    /// One past the largest place that a fixture's list names in this pool.
    fn pool_assigned(&self, pool: &str) -> i64 {
        let Some(fixture) = self.fixture else { return 0 };
        let largest = |(name, items): (&String, &Vec<i64>)| {
            let slots = self.contract.lists.get(name)?.slots.as_ref()?;
            if slots.pool == pool { items.iter().max().copied() } else { None }
        };
        fixture.lists.iter().filter_map(largest).max().map_or(0, |place| place + 1)
    }
}

/// An assigned size, if the forms that bind callers admit it.
fn allowed(
    case: &Case,
    scope: &dyn Scope,
    name: &str,
    dim: &Dim,
    value: i64,
) -> Result<i64, String> {
    let legal = if let Some(base) = &dim.multiple_of {
        let base = integer(base, scope).map_err(|e| of(name, &e))?;
        base != 0 && value % base == 0 || base == 0 && value == 0
    } else if let Some(least) = &dim.at_least {
        value >= integer(least, scope).map_err(|e| of(name, &e))?
    } else if let Some(exact) = &dim.is {
        value == integer(exact, scope).map_err(|e| of(name, &e))?
    } else if dim.segments.is_some() {
        value >= segments_total(case, dim)
    } else {
        dim.one_of.is_empty() || dim.one_of.contains(&value)
    };
    if legal {
        Ok(value)
    } else {
        Err(format!("dims.{name} cannot be {value} with the sizes drawn"))
    }
}

/// The sum of the list a `segments` dim adds up.
pub(super) fn segments_total(case: &Case, dim: &Dim) -> i64 {
    let list = dim.segments.as_ref().and_then(|list| case.lists.get(list));
    list.map_or(0, |lengths| lengths.iter().fold(0i64, |sum, length| sum.saturating_add(*length)))
}

/// Whether the variant's chosen word may be used with these sizes.
pub(super) fn is_available(
    contract: &Contract,
    case: &Case,
    name: &str,
    variant: &Variant,
) -> Result<bool, ExprError> {
    let condition = case.variants.get(name).and_then(|word| variant.available.get(word));
    condition.map_or(Ok(true), |condition| condition.eval_bool(&CaseScope::new(contract, case)))
}

/// An expression's value as a size.
pub(super) fn integer(expr: &Expr, scope: &dyn Scope) -> Result<i64, ExprError> {
    i64::try_from(expr.eval_int(scope)?).map_err(|_| ExprError::Overflow)
}

/// A number of a range, about half the time one of its edges (its end is one); smaller ones are
/// likelier in long ranges. What exceeds the cap becomes the largest edge under it, else the cap.
pub(super) fn ranged(
    choices: &mut dyn Choices,
    path: Path,
    range: [i64; 2],
    edges: &[i64],
    cap: i64,
) -> i64 {
    let [low, high] = range;
    let span = (high - low).max(0) as u64 + 1;
    if span == 1 {
        return low;
    }
    let inside = |edge: &&i64| (low..=high).contains(*edge);
    let on_edge = !edges.is_empty() && choices.choose(path.child("edge"), 2) == 1;
    let drawn = if on_edge {
        let count = edges.iter().filter(inside).count() as u64 + 1;
        let which = choices.choose(path.child("which"), count) as usize;
        edges.iter().filter(inside).nth(which).copied().unwrap_or(high)
    } else if span <= 8 {
        low + choices.choose(path, span) as i64
    } else {
        // Linearly fewer of the larger ones.
        let span = span.min(1 << 31);
        let rest = span * span - 1 - choices.choose(path, span * span);
        low + (span - 1 - rest.isqrt()) as i64
    };
    if drawn <= cap {
        return drawn;
    }
    edges.iter().filter(inside).copied().filter(|edge| *edge <= cap).max().unwrap_or(cap.max(low))
}

/// One of the choices; the first when every choice is 0.
pub(super) fn pick<'c, T>(choices: &mut dyn Choices, path: Path, among: &'c [T]) -> Option<&'c T> {
    among.get(choices.choose(path, among.len() as u64) as usize)
}

/// One time in four one of these, if there are any.
fn unusual(choices: &mut dyn Choices, path: Path, among: &[i64]) -> Option<i64> {
    let count = among.len() as u64;
    let drawn = choices.choose(path, 4 * count);
    if count == 0 || drawn < 3 * count {
        None
    } else {
        among.get((drawn - 3 * count) as usize).copied()
    }
}

fn of(name: &str, error: &ExprError) -> String {
    format!("{name}: {error}")
}
