//! Whether a changed clause is exercised at all: cases are drawn from the head's contract, without a
//! kernel, and looked at for one the clause would judge.

use super::change::{Change, Class};
use crate::choices::Seeded;
use crate::generate::draw_unbound;
use contracts::case::{Case, Content, Fill};
use contracts::expr::Expr;
use contracts::format::{Access, Contract};
use contracts::{CaseScope, DType};

/// Cases drawn for one contract.
pub const CASES: u64 = 256;

/// The changed clauses that none of the drawn cases exercises.
pub fn unexercised(contract: &Contract, changes: &[Change]) -> Vec<String> {
    let mut left: Vec<&str> = changes
        .iter()
        .filter(|change| change.class != Class::Neutral && change.after.is_some())
        .map(|change| change.clause.as_str())
        .filter(|clause| judged(contract, clause))
        .collect();
    left.sort_unstable();
    left.dedup();
    if left.is_empty() {
        return Vec::new();
    }
    // Generation remembers facts by a contract's address, so it asks for one that stays; a review has
    // a handful, and then the process ends.
    let contract: &'static Contract = Box::leak(Box::new(contract.clone()));
    for seed in 1..=CASES {
        if left.is_empty() {
            break;
        }
        if let Ok(case) = draw_unbound(contract, &mut Seeded { seed }) {
            left.retain(|clause| !exercises(contract, &case, clause));
        }
    }
    left.into_iter().map(str::to_owned).collect()
}

/// Whether a clause is one that a case by itself exercises, or not.
fn judged(contract: &Contract, clause: &str) -> bool {
    let parts: Vec<&str> = clause.split('.').collect();
    match parts.as_slice() {
        ["tolerance", tensor, class] => {
            contract.tolerance.get(*tensor).is_some_and(|classes| classes.contains_key(*class))
        }
        ["drift", tensor, class] => {
            contract.drift.get(*tensor).is_some_and(|classes| classes.contains_key(*class))
        }
        ["relations", name] => contract.relations.contains_key(*name),
        ["nan", tensor] => contract.nan.as_ref().is_some_and(|nan| nan.reach.contains_key(*tensor)),
        _ => false,
    }
}

fn exercises(contract: &Contract, case: &Case, clause: &str) -> bool {
    let scope = CaseScope::new(contract, case);
    let parts: Vec<&str> = clause.split('.').collect();
    match parts.as_slice() {
        ["tolerance", tensor, class] => {
            is_judged(contract, case, tensor)
                && contract.tolerance_of(tensor, &scope).is_some_and(|(name, _)| name == *class)
        }
        ["drift", tensor, class] => {
            is_judged(contract, case, tensor)
                && contract.drift_of(tensor, &scope).is_some_and(|(name, _)| name == *class)
        }
        ["relations", name] => {
            let when = contract.relations.get(*name).and_then(|relation| relation.when.as_ref());
            when.is_none_or(|expr| expr.eval_bool(&scope).unwrap_or(false))
        }
        ["nan", tensor] => is_judged(contract, case, tensor) && has_nan(contract, case),
        _ => false,
    }
}

/// Whether a tensor is there, is written, and has an element.
fn is_judged(contract: &Contract, case: &Case, name: &str) -> bool {
    let Some(tensor) = contract.tensors.get(name).filter(|_| case.tensors.contains_key(name))
    else {
        return false;
    };
    let scope = CaseScope::new(contract, case);
    let filled = |extent: &Expr| extent.eval_int(&scope).is_ok_and(|extent| extent > 0);
    tensor.access.resolve(&case.options).is_some_and(|access| *access != Access::Read)
        && tensor.shape.iter().all(filled)
}

/// Whether some tensor NaN may be planted in holds one.
fn has_nan(contract: &Contract, case: &Case) -> bool {
    contract.nan.iter().flat_map(|nan| &nan.into).any(|name| {
        let stored = case.tensors.get(name);
        let dtype = contract.tensors.get(name).and_then(|t| t.dtype.resolve(&case.dtypes));
        stored.zip(dtype).is_some_and(|(stored, dtype)| holds_nan(&stored.content, dtype))
    })
}

fn holds_nan(content: &Content, dtype: DType) -> bool {
    if !dtype.is_float() {
        return false;
    }
    match content {
        Content::Derived | Content::Output => false,
        Content::Dense(bytes) => {
            let elements = bytes.chunks_exact(dtype.size_bytes() as usize);
            elements.into_iter().any(|raw| dtype.is_nan(dtype.from_bytes(raw)))
        }
        Content::Sparse { fill, at } => {
            matches!(fill, Fill::Bits(bits) if dtype.is_nan(*bits))
                || at.values().any(|bits| dtype.is_nan(*bits))
        }
    }
}
