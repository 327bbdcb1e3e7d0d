//! What a draw needs to know of a contract besides the contract: the order of decisions, which tensors
//! are pools, and the cost of the smallest case. Computed once a contract and thread.

use super::structure::Caps;
use super::{Source, Swarm};
use crate::choices::{Choices, Path};
use contracts::expr::Expr;
use contracts::format::{Contract, Tensor};
use contracts::{Decision, decision_order};
use std::cell::RefCell;
use std::rc::Rc;

/// One structural decision, by its place in the contract's section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A dim.
    Dim(usize),
    /// A list.
    List(usize),
}

/// Facts of one contract.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Every dim and list, each after what it depends on.
    pub(super) steps: Vec<Step>,
    /// By tensor: whether its first axis is a pool that a list points into.
    pub(super) pooled: Vec<bool>,
    /// Work of the smallest case; budgets are multiples of it.
    pub(super) unit: u64,
}

impl Plan {
    /// The facts of this contract, remembered: the address of a static contract is its identity.
    pub(super) fn of(contract: &'static Contract) -> Rc<Plan> {
        thread_local! {
            static PLANS: RefCell<Vec<(*const Contract, Rc<Plan>)>> = const { RefCell::new(Vec::new()) };
        }
        PLANS.with_borrow_mut(|plans| {
            let known = plans.iter().find(|(address, _)| std::ptr::eq(*address, contract));
            if let Some((_, plan)) = known {
                return Rc::clone(plan);
            }
            let plan = Rc::new(Plan::new(contract));
            plans.push((contract, Rc::clone(&plan)));
            plan
        })
    }

    pub(super) fn new(contract: &Contract) -> Plan {
        let steps = decision_order(contract)
            .into_iter()
            .filter_map(|decision| match decision {
                Decision::Dim(name) => contract.dims.get_index_of(name).map(Step::Dim),
                Decision::List(name) => contract.lists.get_index_of(name).map(Step::List),
            })
            .collect();
        let pooled = contract.tensors.values().map(|tensor| is_pool(contract, tensor)).collect();
        let mut plan = Plan { steps, pooled, unit: 1 };
        plan.unit = smallest_work(contract, &plan);
        plan
    }
}

/// The dim of a tensor's first axis, if it is one.
pub(super) fn first_axis(tensor: &Tensor) -> Option<&str> {
    match tensor.shape.first() {
        Some(Expr::Name(name)) => Some(name),
        _ => None,
    }
}

fn is_pool(contract: &Contract, tensor: &Tensor) -> bool {
    let Some(list) = tensor.live.as_ref().and_then(|live| contract.lists.get(&live.by)) else {
        return false;
    };
    let pool =
        list.slots.as_ref().map(|slots| &slots.pool).or(list.ids.as_ref().map(|ids| &ids.below));
    pool.is_some_and(|pool| first_axis(tensor) == Some(pool))
}

/// The work of the case that takes every first choice.
fn smallest_work(contract: &Contract, plan: &Plan) -> u64 {
    struct First;
    impl Choices for First {
        fn choose(&mut self, _: Path, _: u64) -> u64 {
            0
        }
    }
    let mut source = Source {
        contract,
        plan,
        fixture: None,
        wish: None,
        production: true,
        swarm: Swarm(0),
        choices: &mut First,
    };
    let smallest = source.undecided_case(0).and_then(|mut case| {
        source.decide_sizes(&mut case, 0, &mut Caps::none(contract))?;
        Ok(case)
    });
    smallest.map_or(1, |case| source.work(&case).max(1))
}
