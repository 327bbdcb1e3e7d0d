//! The order in which dims and lists can be decided: each after everything it mentions.

use crate::expr::Expr;
use crate::format::{Contract, Dim, List};

/// One structural decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// A dim, by name.
    Dim(&'a str),
    /// A list, by name.
    List(&'a str),
}

impl<'a> Decision<'a> {
    /// The dim's or list's name.
    pub fn name(self) -> &'a str {
        match self {
            Decision::Dim(name) | Decision::List(name) => name,
        }
    }
}

/// Every dim and list, each after those it depends on; among independent ones the file's order, dims
/// first. A checked contract has no cycle; members of a cycle and what needs them would be missing.
pub fn decision_order(contract: &Contract) -> Vec<Decision<'_>> {
    let mut waiting: Vec<(Decision<'_>, Vec<&str>)> = contract
        .dims
        .iter()
        .map(|(name, dim)| (Decision::Dim(name), dim_needs(dim)))
        .chain(contract.lists.iter().map(|(name, list)| (Decision::List(name), list_needs(list))))
        .collect();
    let mut order: Vec<Decision<'_>> = Vec::with_capacity(waiting.len());
    loop {
        let is_structure =
            |name: &str| contract.dims.contains_key(name) || contract.lists.contains_key(name);
        let ready = waiting.iter().position(|(_, needs)| {
            needs.iter().all(|need| !is_structure(need) || order.iter().any(|d| d.name() == *need))
        });
        match ready {
            Some(index) => order.push(waiting.remove(index).0),
            None => return order,
        }
    }
}

fn dim_needs(dim: &Dim) -> Vec<&str> {
    let exprs = [&dim.multiple_of, &dim.at_least, &dim.is];
    exprs.into_iter().flatten().flat_map(Expr::names).chain(dim.segments.as_deref()).collect()
}

fn list_needs(list: &List) -> Vec<&str> {
    let mut needs = vec![list.each.as_str()];
    needs.extend(list.slots.as_ref().map(|slots| slots.pool.as_str()));
    if let Some(ids) = &list.ids {
        needs.push(&ids.below);
        needs.extend(ids.invalid.iter().flat_map(Expr::names));
    }
    needs.extend(list.is.iter().flat_map(Expr::names));
    needs
}
