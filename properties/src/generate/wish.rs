//! What free draws seldom meet: a word of a variant that few cases admit, the sizes that send a launch along
//! a path of its contract or past it. Now and then a draw wishes for one of them: what it decides first
//! without meeting the wish is refused like what the contract refuses, and it may cost as much as it must.

use super::Swarm;
use super::layouts::{is_present, shape_of};
use crate::choices::{Choices, Path};
use contracts::CaseScope;
use contracts::case::Case;
use contracts::expr::{Expr, ExprError};
use contracts::format::{self, Contract, Tensor};

/// One draw in so many for each wish of a contract: with three types, each of them meets it in one of 60.
const ONE_IN: u64 = 20;
/// So many attempts are made to meet a wish before it is given up.
pub(super) const ATTEMPTS: usize = 40;
/// In so many attempts what the case may cost doubles, from one unit.
const ATTEMPTS_A_DOUBLING: usize = 3;

/// Something that is to hold of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wish<'a> {
    /// A variant has this word, which has a condition.
    Word { variant: &'a str, word: &'a str },
    /// Choices, sizes and layouts are such that a path is promised; or the sizes alone are not.
    Path { path: &'a format::Path, is_promised: bool },
}

impl<'a> Wish<'a> {
    /// Every wish that a contract gives reason for.
    pub(super) fn all(contract: &'a Contract) -> impl Iterator<Item = Wish<'a>> {
        let words = contract.variants.iter().flat_map(|(variant, declared)| {
            declared.available.keys().map(move |word| Wish::Word { variant, word })
        });
        let promised = contract.paths.values().map(|path| Wish::Path { path, is_promised: true });
        let passed = contract.paths.values().filter(|path| path.sizes.is_some());
        let passed = passed.map(|path| Wish::Path { path, is_promised: false });
        words.chain(promised).chain(passed)
    }

    pub(super) fn draw(contract: &'a Contract, choices: &mut dyn Choices) -> Option<Wish<'a>> {
        let path = Path::new("wish");
        let mut wishes = Wish::all(contract).enumerate();
        let drawn = wishes.find(|(place, _)| choices.one_in(path.index(*place), ONE_IN));
        drawn.map(|(_, wish)| wish)
    }

    /// The word it is about, if it is one of this variant.
    pub(super) fn word(self, of: &str) -> Option<&'a str> {
        match self {
            Wish::Word { variant, word } if variant == of => Some(word),
            _ => None,
        }
    }

    /// Features without those that a path's rows of whole pieces forbid.
    pub(super) fn narrowed(self, swarm: Swarm) -> Swarm {
        match self {
            Wish::Path { path, is_promised: true } if !path.pieces.is_empty() => {
                swarm.without([Swarm::PADDED, Swarm::OFFSET, Swarm::PACKED])
            }
            _ => swarm,
        }
    }

    /// Whether choices and sizes are as wished, of a call that has something to do.
    pub(super) fn is_met(self, contract: &Contract, case: &Case) -> Result<bool, ExprError> {
        let is_empty = |tensor: &Tensor| {
            let shape = shape_of(contract, case, tensor).unwrap_or_default();
            is_present(contract, case, tensor) && shape.contains(&0)
        };
        if contract.tensors.values().any(is_empty) {
            return Ok(false);
        }
        let scope = CaseScope::new(contract, case);
        let holds = |condition: &Option<Expr>| match condition {
            Some(condition) => condition.eval_bool(&scope),
            None => Ok(true),
        };
        match self {
            Wish::Word { variant, word } => {
                Ok(case.variants.get(variant).is_some_and(|has| has == word))
            }
            Wish::Path { path, is_promised } => {
                Ok(holds(&path.when)? && holds(&path.sizes)? == is_promised)
            }
        }
    }
}

/// The least budget of an attempt at a wish, in units.
pub(super) fn least_units(attempt: usize) -> u64 {
    1 << (attempt / ATTEMPTS_A_DOUBLING).min(16)
}
