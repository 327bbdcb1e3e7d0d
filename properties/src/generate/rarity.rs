//! How seldom a fixture is drawn: the more seldom the larger what the kernel reads of it. Of a tensor that
//! its words leave out (`when`, `access`) nothing is read.

use super::plan::Plan;
use contracts::expr::{Expr, Operator, Scope, Value};
use contracts::format::{Access, By, Contract, Fixture, List, Tensor};

/// A fixture whose sizes multiply to more than this is the rarer the larger it is.
const LARGE: i64 = 1024;
/// And to more than so many times the work of the contract's smallest case: not every contract has small ones.
const LARGE_UNITS: i64 = 8;
/// So many places of a pool are few.
const FEW_PLACES: i64 = 64;
/// As rare as one gets.
pub(super) const RAREST: i64 = 64;

/// One in so many of a fixture's turns is taken, by the sizes of what the kernel reads. A few places of a
/// pool or a table do not count: they are stored, and no work is done on them.
pub(super) fn rarity(contract: &'static Contract, fixture: &Fixture) -> i64 {
    let assigned = Assigned { contract, fixture };
    let read = contract.tensors.values().filter(|tensor| assigned.may_read(tensor));
    let extents = read.flat_map(|tensor| tensor.shape.iter().flat_map(Expr::names));
    // A dim that follows from others stands for them.
    let sizing: Vec<&str> = extents
        .flat_map(|dim| match contract.dims.get(dim).and_then(|dim| dim.is.as_ref()) {
            Some(exact) => exact.names(),
            None => vec![dim],
        })
        .collect();
    let pooled = |dim: &str| {
        let slots = |list: &List| list.slots.as_ref().is_some_and(|slots| slots.pool == dim);
        let ids = |list: &List| list.ids.as_ref().is_some_and(|ids| ids.below == dim);
        contract.lists.values().any(|list| slots(list) || ids(list))
    };
    let counts =
        |dim: &str, size: i64| sizing.contains(&dim) && (size > FEW_PLACES || !pooled(dim));
    let sizes = fixture.dims.iter().filter(|(dim, size)| counts(dim, **size));
    let size = sizes.fold(1, |all: i64, (_, size)| all.saturating_mul(*size));
    let smallest = i64::try_from(Plan::of(contract).unit).unwrap_or(i64::MAX);
    let large = smallest.saturating_mul(LARGE_UNITS).max(LARGE);
    (size / large + 1).min(RAREST)
}

/// What a fixture assigns, as names of its contract's conditions.
#[derive(Clone, Copy)]
struct Assigned<'a> {
    contract: &'a Contract,
    fixture: &'a Fixture,
}

impl Scope for Assigned<'_> {
    fn value(&self, name: &str) -> Option<Value<'_>> {
        let fixture = self.fixture;
        let worded = |word: &str| word.parse::<i64>().ok().map(|number| Value::Int(number.into()));
        let size = fixture.dims.get(name).map(|size| Value::Int((*size).into()));
        let dtype = || fixture.dtypes.get(name).map(|dtype| Value::DType(*dtype));
        let list = || fixture.lists.get(name).map(|items| Value::List(items));
        let word = || {
            let word = fixture.options.get(name).or_else(|| fixture.variants.get(name))?;
            worded(&word.0).or(Some(Value::Word(&word.0)))
        };
        size.or_else(dtype).or_else(list).or_else(word)
    }
}

impl Assigned<'_> {
    /// Whether the kernel reads the tensor in some completion of the fixture, as far as is seen term by term.
    fn may_read(self, tensor: &Tensor) -> bool {
        let reads = match &tensor.access {
            By::Always(access) => *access != Access::Write,
            By::Option { by } => by.iter().all(|(option, table)| {
                let word = self.fixture.options.get(option);
                word.is_none_or(|word| table.get(&word.0) != Some(&Access::Write))
            }),
        };
        reads && tensor.when.as_ref().is_none_or(|when| self.may_hold(when))
    }

    /// Whether nothing that is assigned forbids the condition. A name not assigned would be taken for a word.
    fn may_hold(self, when: &Expr) -> bool {
        match when {
            Expr::Binary(Operator::And, left, right) => self.may_hold(left) && self.may_hold(right),
            Expr::Binary(Operator::Or, left, right) => self.may_hold(left) || self.may_hold(right),
            _ => {
                let is_open = |name: &str| self.declares(name) && self.value(name).is_none();
                when.names().into_iter().any(is_open) || when.eval_bool(&self) != Ok(false)
            }
        }
    }

    fn declares(self, name: &str) -> bool {
        let contract = self.contract;
        contract.dims.contains_key(name)
            || contract.lists.contains_key(name)
            || contract.dtypes.contains_key(name)
            || contract.options.contains_key(name)
            || contract.variants.contains_key(name)
    }
}
