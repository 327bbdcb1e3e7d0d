//! Words of variants that are available in few cases. Drawn freely, such a word is refused with nearly every
//! choice of sizes and types and drawn anew without it; so one draw in some begins with what its condition
//! asks for.

use super::{Choices, Path};
use contracts::expr::{Expr, Operator};
use contracts::format::{Contract, Dim, Fixture, Word};

/// One draw in so many, of a contract that has such words.
const ONE_IN: u64 = 16;

/// One of the words with a condition, and the choices the condition names; the rest is left to be drawn.
pub(super) fn narrowed(contract: &Contract, choices: &mut dyn Choices) -> Option<Fixture> {
    let conditional = contract.variants.values().map(|variant| variant.available.len());
    let count: usize = conditional.sum();
    let path = Path::new("rare");
    if count == 0 || !choices.one_in(path, ONE_IN) {
        return None;
    }
    let which = choices.choose(path.child("which"), count as u64) as usize;
    let words = contract.variants.iter().flat_map(|(name, variant)| {
        variant.available.iter().map(move |(word, condition)| (name, word, condition))
    });
    let (name, word, condition) = words.into_iter().nth(which)?;
    let mut fixture = Fixture::default();
    fixture.variants.insert(name.clone(), Word(word.clone()));
    assume(contract, condition, &mut fixture);
    Some(fixture)
}

/// Assigns what the conjuncts `name == value` and `dim >= size` say; others are met by luck.
fn assume(contract: &Contract, condition: &Expr, fixture: &mut Fixture) {
    let Expr::Binary(operator, left, right) = condition else { return };
    match (operator, &**left, &**right) {
        (Operator::And, one, other) => {
            assume(contract, one, fixture);
            assume(contract, other, fixture);
        }
        (Operator::Equal, Expr::Name(name), Expr::Name(word)) => {
            if contract.options.contains_key(&**name) {
                fixture.options.insert(name.to_string(), Word(word.to_string()));
            } else if let Some(types) = contract.dtypes.get(&**name) {
                let dtype = types.iter().find(|dtype| dtype.name() == &**word);
                fixture.dtypes.extend(dtype.map(|dtype| (name.to_string(), *dtype)));
            }
        }
        (Operator::Equal | Operator::GreaterEqual, Expr::Name(name), Expr::Int(size)) => {
            let dim = contract.dims.get(&**name);
            let size = dim.and_then(|dim| least_size(dim, *size));
            fixture.dims.extend(size.map(|size| (name.to_string(), size)));
        }
        _ => {}
    }
}

/// The least size from this on that a dim of listed or ranging sizes may have.
fn least_size(dim: &Dim, size: i128) -> Option<i64> {
    let size = i64::try_from(size).ok()?;
    match dim.range {
        Some([low, high]) => (low..=high).contains(&size).then_some(size),
        None => dim.one_of.iter().copied().filter(|known| *known >= size).min(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::{Seeded, mix};
    use crate::generate::draw;
    use crate::subject::subjects;

    /// Every word with a condition is drawn often enough that what holds for it alone is looked at.
    #[test]
    fn words_available_in_few_cases_are_drawn() {
        const CASES: u64 = 1200;
        let mut words = 0;
        for subject in subjects() {
            for (name, variant) in &subject.contract.variants {
                for word in variant.available.keys() {
                    let has = |seed: &u64| {
                        let drawn = draw(subject, &mut Seeded { seed: mix(0x4a4e, *seed) });
                        drawn.is_ok_and(|draw| draw.case.variants[name] == *word)
                    };
                    let drawn = (0..CASES).filter(has).count();
                    assert!(drawn >= 24, "{}: {name} {word} {drawn} times", subject.name());
                    words += 1;
                }
            }
        }
        assert!(words >= 4, "{words} words");
    }

    #[test]
    fn a_contract_without_such_words_is_not_asked() {
        struct Unasked;
        impl Choices for Unasked {
            fn choose(&mut self, _: Path, _: u64) -> u64 {
                panic!("nothing is to be chosen")
            }
        }
        let contract = contracts::contract("ple_gather").expect("it is registered");
        assert_eq!(narrowed(contract, &mut Unasked), None);
    }
}
