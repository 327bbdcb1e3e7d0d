//! When two expressions mean the same, and for which choices two conditions differ. Conditions over
//! choices are compared by enumerating the choices; others by their canonical form.

use contracts::dtype::DType;
use contracts::expr::{Expr, Function, Operator, Scope, Value};
use contracts::format::Contract;

/// Most assignments enumerated.
const MOST_ASSIGNMENTS: usize = 4096;

/// One choice of words for some options, variants and dtype symbols: the base's, and the one in its
/// place at the head, which is another where the word has another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment<'a>(Vec<Choice<'a>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Choice<'a> {
    name: &'a str,
    was: &'a str,
    is: &'a str,
}

/// An assignment in the words of one tree.
#[derive(Clone, Copy)]
pub struct Words<'w, 'a> {
    assignment: &'w Assignment<'a>,
    at_head: bool,
}

impl<'a> Assignment<'a> {
    /// In the words of the base.
    pub fn before(&self) -> Words<'_, 'a> {
        Words { assignment: self, at_head: false }
    }

    /// In the words of the head.
    pub fn after(&self) -> Words<'_, 'a> {
        Words { assignment: self, at_head: true }
    }

    /// The element type a symbol or type name means here; types have no other name at the head.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        let word = self.before().word(name).unwrap_or(name);
        DType::ALL.into_iter().find(|dtype| dtype.name() == word)
    }
}

impl Scope for Words<'_, '_> {
    fn value(&self, name: &str) -> Option<Value<'_>> {
        let word = self.word(name)?;
        if let Some(dtype) = DType::ALL.into_iter().find(|dtype| dtype.name() == word) {
            return Some(Value::DType(dtype));
        }
        Some(word.parse::<i64>().map_or(Value::Word(word), |number| Value::Int(number.into())))
    }
}

impl<'a> Words<'_, 'a> {
    /// The word chosen for a name.
    pub fn word(&self, name: &str) -> Option<&'a str> {
        let choice = self.assignment.0.iter().find(|choice| choice.name == name)?;
        Some(if self.at_head { choice.is } else { choice.was })
    }

    /// Whether a condition holds; no condition does.
    pub fn admits(&self, when: Option<&Expr>) -> bool {
        when.is_none_or(|expr| expr.eval_bool(self).unwrap_or(false))
    }
}

/// Every assignment of the choices `names` mentions on either side. `None` when there are too many to
/// look at.
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
        let Some(words) = matched(before, after, name) else { continue };
        if all.len() * words.len() > MOST_ASSIGNMENTS {
            return None;
        }
        all = all
            .into_iter()
            .flat_map(|Assignment(known)| {
                words.iter().map(move |&(was, is)| {
                    let mut next = known.clone();
                    next.push(Choice { name, was, is });
                    Assignment(next)
                })
            })
            .collect();
    }
    Some(all)
}

/// The words of a choice on both sides: each with itself, and of those only one side has each with the
/// one in its place. Where they are not as many, any may stand for any, or a loosening would hide behind
/// a word more. Types have no other name: of theirs, only common ones are compared.
pub fn matched<'a>(
    before: &'a Contract,
    after: &'a Contract,
    name: &str,
) -> Option<Vec<(&'a str, &'a str)>> {
    let (old, new) = match (words(before, name), words(after, name)) {
        (Some(old), Some(new)) => (old, new),
        (Some(words), None) | (None, Some(words)) => {
            return Some(words.into_iter().map(|word| (word, word)).collect());
        }
        (None, None) => return None,
    };
    let only = |mine: &[&'a str], others: &[&'a str]| -> Vec<&'a str> {
        mine.iter().filter(|word| !others.contains(word)).copied().collect()
    };
    let (mut lost, mut gained) = (only(&old, &new), only(&new, &old));
    let both = old.iter().filter(|word| new.contains(word));
    let mut all: Vec<(&str, &str)> = both.map(|word| (*word, *word)).collect();
    if before.dtypes.contains_key(name) && after.dtypes.contains_key(name) {
        return Some(all);
    }
    // What the history says was renamed is known; the rest stands by its place.
    for (was, is) in renamed_words(before, after, name) {
        let places = (lost.iter().position(|w| *w == was), gained.iter().position(|w| *w == is));
        if let (Some(place), Some(new_place)) = places {
            all.push((lost.remove(place), gained.remove(new_place)));
        }
    }
    if lost.len() == gained.len() {
        all.extend(lost.into_iter().zip(gained));
    } else {
        all.extend(lost.iter().flat_map(|was| gained.iter().map(move |is| (*was, *is))));
    }
    Some(all)
}

/// The words of a choice that the history of one side says have another name on the other.
fn renamed_words(before: &Contract, after: &Contract, name: &str) -> Vec<(String, String)> {
    let of = |own: &Contract, other: &Contract| -> Vec<(String, String)> {
        let new = own.history.iter().filter(|entry| !other.history.contains(entry));
        let renamed = new.flat_map(|entry| &entry.renamed);
        let words = ["options", "variants"].map(|section| format!("{section}.{name}."));
        let word = |path: &str| {
            words.iter().find_map(|prefix| path.strip_prefix(prefix.as_str())).map(str::to_owned)
        };
        renamed.filter_map(|(was, is)| Some((word(was)?, word(is)?))).collect()
    };
    let back = of(before, after).into_iter().map(|(was, is)| (is, was));
    of(after, before).into_iter().chain(back).collect()
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
    let held = |a: &Assignment<'_>| (a.before().admits(old), a.after().admits(new));
    let those = |wanted: (bool, bool)| -> Vec<Assignment<'a>> {
        all.iter().filter(|a| held(a) == wanted).cloned().collect()
    };
    Some(Difference { lost: those((true, false)), gained: those((false, true)), all })
}

/// Some assignments of all that were looked at, in words. A name that makes no difference is not named.
pub fn spelled(some: &[Assignment<'_>], all: &[Assignment<'_>]) -> String {
    const MOST: usize = 3;
    let mut some = some.to_vec();
    let mut all = all.to_vec();
    let names: Vec<&str> = all
        .first()
        .map_or_else(Vec::new, |Assignment(choices)| choices.iter().map(|c| c.name).collect());
    for name in names {
        let without = |side: &[Assignment<'_>]| -> Vec<Vec<String>> {
            let rest = side.iter().map(|Assignment(choices)| {
                choices.iter().filter(|choice| choice.name != name).map(spelled_out).collect()
            });
            let mut rest: Vec<_> = rest.collect();
            rest.sort();
            rest
        };
        // It makes none where each combination of the others has as many of its words here as anywhere.
        let (here, anywhere) = (without(&some), without(&all));
        let count = |side: &[Vec<String>], one: &Vec<String>| {
            side.iter().filter(|other| *other == one).count()
        };
        if here.iter().all(|one| count(&here, one) == count(&anywhere, one)) {
            let drop = |side: &mut Vec<Assignment<'_>>| {
                side.iter_mut().for_each(|a| a.0.retain(|choice| choice.name != name));
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
    let one = |Assignment(choices): &Assignment<'_>| {
        choices.iter().map(spelled_out).collect::<Vec<_>>().join(", ")
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

fn spelled_out(Choice { name, was, is }: &Choice<'_>) -> String {
    if was == is { format!("{name}: {was}") } else { format!("{name}: {is} (was {was})") }
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
            let mut arguments: Vec<String> = arguments.iter().map(canonical).collect();
            if matches!(function, Function::Min | Function::Max) {
                arguments.sort_unstable();
            }
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
        let same = |name, word| Choice { name, was: word, is: word };
        let words = |x: &'static str, y: &'static str| Assignment(vec![same("x", x), same("y", y)]);
        let all = [words("a", "c"), words("a", "d"), words("b", "c"), words("b", "d")];
        assert_eq!(spelled(&all[..2], &all), "x: a");
        assert_eq!(spelled(&[all[1].clone(), all[3].clone()], &all), "y: d");
        assert_eq!(spelled(&all[..1], &all), "x: a, y: c");
        assert_eq!(spelled(&all[..3], &all), "x: a, y: c; x: a, y: d; x: b, y: c");
        assert_eq!(spelled(&all, &all), "every case");
        let renamed = Assignment(vec![Choice { name: "x", was: "a", is: "b" }, same("y", "c")]);
        assert_eq!(spelled(&[renamed], &all), "x: b (was a), y: c");
    }

    #[test]
    fn order_and_direction_mean_nothing_and_all_else_does() {
        assert!(alike("a >= 1 and b == c", "(c == b) and (1 <= a)"));
        assert!(alike("a * b + 1", "1 + b * a"));
        assert!(alike("a in [x, y]", "a in [y, x, y]"));
        assert!(alike("a + (b + c)", "(c + a) + b"));
        assert!(alike("max(a + 1, b * c)", "max(c * b, 1 + a)"));
        assert!(alike("(a + b) * c - d", "c * (b + a) - d"));
        assert!(!alike("(a + b) * c", "a + b * c"));
        assert!(!alike("a + b", "a + b + b"));
        assert!(!alike("a - b", "b - a"));
        assert!(!alike("a > 1", "a >= 1"));
        assert!(!alike("a or b", "a and b"));
        assert!(!alike("ceil_div(a, b)", "ceil_div(b, a)"));
        assert!(!same(None, Some(&Expr::Int(1))));
    }
}
