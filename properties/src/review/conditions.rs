//! When two expressions mean the same, and for which choices two conditions differ. Conditions over
//! choices are compared by enumerating the choices; others by their canonical form.

use contracts::dtype::DType;
use contracts::expr::{Expr, Operator, Scope, Value};
use contracts::format::Contract;

/// Most assignments enumerated.
const MOST_ASSIGNMENTS: usize = 4096;

/// One choice of words for some options, variants and dtype symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment<'a>(Vec<(&'a str, &'a str)>);

impl Scope for Assignment<'_> {
    fn value(&self, name: &str) -> Option<Value<'_>> {
        let word = self.word(name)?;
        if let Some(dtype) = DType::ALL.into_iter().find(|dtype| dtype.name() == word) {
            return Some(Value::DType(dtype));
        }
        Some(word.parse::<i64>().map_or(Value::Word(word), |number| Value::Int(number.into())))
    }
}

impl<'a> Assignment<'a> {
    /// The word chosen for a name.
    pub fn word(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, word)| *word)
    }

    /// The element type a symbol or type name means here.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        let word = self.word(name).unwrap_or(name);
        DType::ALL.into_iter().find(|dtype| dtype.name() == word)
    }

    /// Whether a condition holds; no condition does.
    pub fn admits(&self, when: Option<&Expr>) -> bool {
        when.is_none_or(|expr| expr.eval_bool(self).unwrap_or(false))
    }
}

/// Every assignment, of words both sides have, of the choices `names` mentions on either side. `None`
/// when there are too many to look at.
pub fn assignments<'a>(
    before: &'a Contract,
    after: &'a Contract,
    names: impl Iterator<Item = &'a str>,
) -> Option<Vec<Assignment<'a>>> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    let mut all = vec![Assignment(Vec::new())];
    for name in names {
        let words: Vec<&str> = match (words(before, name), words(after, name)) {
            (Some(mut words), Some(others)) => {
                words.retain(|word| others.contains(word));
                words
            }
            (Some(words), None) | (None, Some(words)) => words,
            (None, None) => continue,
        };
        if all.len() * words.len() > MOST_ASSIGNMENTS {
            return None;
        }
        all = all
            .into_iter()
            .flat_map(|Assignment(known)| {
                words.iter().map(move |word| {
                    let mut next = known.clone();
                    next.push((name, *word));
                    Assignment(next)
                })
            })
            .collect();
    }
    Some(all)
}

/// The words of a choice.
fn words<'a>(contract: &'a Contract, name: &str) -> Option<Vec<&'a str>> {
    if let Some(words) = contract.options.get(name) {
        return Some(words.iter().map(String::as_str).collect());
    }
    if let Some(variant) = contract.variants.get(name) {
        return Some(variant.values.iter().map(|word| word.0.as_str()).collect());
    }
    contract.dtypes.get(name).map(|types| types.iter().map(|dtype| dtype.name()).collect())
}

/// Where two conditions differ.
pub struct Difference<'a> {
    /// Where only the first holds.
    pub lost: Vec<Assignment<'a>>,
    /// Where only the second holds.
    pub gained: Vec<Assignment<'a>>,
    /// Everything looked at.
    pub all: Vec<Assignment<'a>>,
}

/// Where two conditions differ; `None` when there are too many choices.
pub fn difference<'a>(
    (before, old): (&'a Contract, Option<&'a Expr>),
    (after, new): (&'a Contract, Option<&'a Expr>),
) -> Option<Difference<'a>> {
    let names = old.into_iter().chain(new).flat_map(Expr::names);
    let all = assignments(before, after, names)?;
    let only = |mine: Option<&Expr>, other: Option<&Expr>| -> Vec<Assignment<'a>> {
        all.iter().filter(|a| a.admits(mine) && !a.admits(other)).cloned().collect()
    };
    Some(Difference { lost: only(old, new), gained: only(new, old), all })
}

/// Some assignments of all that were looked at, in words. A name that makes no difference is not named.
pub fn spelled(some: &[Assignment<'_>], all: &[Assignment<'_>]) -> String {
    const MOST: usize = 3;
    let mut some = some.to_vec();
    let mut all = all.to_vec();
    let names: Vec<&str> = all
        .first()
        .map_or_else(Vec::new, |Assignment(words)| words.iter().map(|(name, _)| *name).collect());
    for name in names {
        let without = |side: &[Assignment<'_>]| -> Vec<Vec<(String, String)>> {
            let rest = side.iter().map(|Assignment(words)| {
                let others = words.iter().filter(|(other, _)| *other != name);
                others.map(|(name, word)| ((*name).to_owned(), (*word).to_owned())).collect()
            });
            let mut rest: Vec<_> = rest.collect();
            rest.sort();
            rest
        };
        // It makes none where each combination of the others has as many of its words here as anywhere.
        let (here, anywhere) = (without(&some), without(&all));
        let count = |side: &[Vec<(String, String)>], one: &Vec<(String, String)>| {
            side.iter().filter(|other| *other == one).count()
        };
        if here.iter().all(|one| count(&here, one) == count(&anywhere, one)) {
            let drop = |side: &mut Vec<Assignment<'_>>| {
                side.iter_mut().for_each(|a| a.0.retain(|(other, _)| *other != name));
                let mut kept: Vec<Assignment<'_>> = Vec::new();
                side.retain(|one| {
                    let new = !kept.contains(one);
                    kept.extend(new.then(|| one.clone()));
                    new
                });
            };
            drop(&mut some);
            drop(&mut all);
        }
    }
    let one = |Assignment(words): &Assignment<'_>| {
        words.iter().map(|(name, word)| format!("{name}: {word}")).collect::<Vec<_>>().join(", ")
    };
    let shown: Vec<String> =
        some.iter().take(MOST).map(one).filter(|text| !text.is_empty()).collect();
    if shown.is_empty() {
        return "every case".to_owned();
    }
    match some.len().saturating_sub(MOST) {
        0 => shown.join("; "),
        more => format!("{}; and {more} other combinations", shown.join("; ")),
    }
}

/// Whether two expressions mean the same by their canonical form.
pub fn same(before: Option<&Expr>, after: Option<&Expr>) -> bool {
    before.map(canonical) == after.map(canonical)
}

/// The conditions that must all hold.
pub fn conjuncts(expr: &Expr) -> Vec<String> {
    let mut all = operands(expr, Operator::And);
    all.dedup();
    all
}

/// The operands of a chain of one operator, however it nests, sorted.
fn operands(expr: &Expr, operator: Operator) -> Vec<String> {
    match expr {
        Expr::Binary(own, left, right) if *own == operator => {
            let mut all = operands(left, operator);
            all.extend(operands(right, operator));
            all.sort_unstable();
            all
        }
        other => vec![canonical(other)],
    }
}

/// One text for every way to write an expression that differs in order or direction only.
pub fn canonical(expr: &Expr) -> String {
    match expr {
        Expr::Int(value) => value.to_string(),
        Expr::Name(name) => name.to_string(),
        Expr::Not(inner) => format!("not({})", canonical(inner)),
        Expr::In(item, list) => {
            let mut words: Vec<String> = list.iter().map(canonical).collect();
            words.sort_unstable();
            words.dedup();
            format!("in({};{})", canonical(item), words.join(","))
        }
        Expr::Call(function, arguments) => {
            let arguments: Vec<String> = arguments.iter().map(canonical).collect();
            format!("{}({})", function.name(), arguments.join(","))
        }
        Expr::Binary(Operator::And, ..) => format!("and({})", conjuncts(expr).join(",")),
        Expr::Binary(Operator::Greater, left, right) => binary("<", right, left),
        Expr::Binary(Operator::GreaterEqual, left, right) => binary("<=", right, left),
        Expr::Binary(Operator::Less, left, right) => binary("<", left, right),
        Expr::Binary(Operator::LessEqual, left, right) => binary("<=", left, right),
        Expr::Binary(operator @ (Operator::Or | Operator::Add | Operator::Multiply), ..) => {
            format!("{operator:?}({})", operands(expr, *operator).join(","))
        }
        Expr::Binary(operator @ (Operator::Equal | Operator::NotEqual), left, right) => {
            let mut sides = [canonical(left), canonical(right)];
            sides.sort_unstable();
            format!("{operator:?}({},{})", sides[0], sides[1])
        }
        Expr::Binary(operator, left, right) => binary(&format!("{operator:?}"), left, right),
    }
}

fn binary(operator: &str, left: &Expr, right: &Expr) -> String {
    format!("{operator}({},{})", canonical(left), canonical(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(a: &str, b: &str) -> bool {
        same(Some(&Expr::parse(a).expect(a)), Some(&Expr::parse(b).expect(b)))
    }

    #[test]
    fn names_that_make_no_difference_are_not_named() {
        let words = |x: &'static str, y: &'static str| Assignment(vec![("x", x), ("y", y)]);
        let all = [words("a", "c"), words("a", "d"), words("b", "c"), words("b", "d")];
        assert_eq!(spelled(&all[..2], &all), "x: a");
        assert_eq!(spelled(&[all[1].clone(), all[3].clone()], &all), "y: d");
        assert_eq!(spelled(&all[..1], &all), "x: a, y: c");
        assert_eq!(spelled(&all[..3], &all), "x: a, y: c; x: a, y: d; x: b, y: c");
        assert_eq!(spelled(&all, &all), "every case");
    }

    #[test]
    fn order_and_direction_mean_nothing_and_all_else_does() {
        assert!(alike("a >= 1 and b == c", "(c == b) and (1 <= a)"));
        assert!(alike("a * b + 1", "1 + b * a"));
        assert!(alike("a in [x, y]", "a in [y, x, y]"));
        assert!(alike("a + (b + c)", "(c + a) + b"));
        assert!(!alike("a + b", "a + b + b"));
        assert!(!alike("a - b", "b - a"));
        assert!(!alike("a > 1", "a >= 1"));
        assert!(!alike("a or b", "a and b"));
        assert!(!alike("ceil_div(a, b)", "ceil_div(b, a)"));
        assert!(!same(None, Some(&Expr::Int(1))));
    }
}
