//! What one run is judged by, compared for every choice of words both sides have: which class of
//! tolerance or drift judges a tensor there, and whether its numbers grew. So a class that was split,
//! joined or renamed is compared by what it does, and a wider `when` is not taken for a wider bound.

use super::change::Class;
use super::conditions::{Assignment, Words, assignments, spelled};
use super::sides::{Sides, number, ratio, shown};
use contracts::DType;
use contracts::expr::Expr;
use contracts::format::{Access, Bound, By, Drift, Named, Overflow, Tensor, Term, Tolerance};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A class of tolerance or drift.
trait Judge: serde::Serialize + PartialEq {
    /// The section it is written in.
    const SECTION: &'static str;
    /// Which cases it judges.
    fn when(&self) -> Option<&Expr>;
    /// The dtype symbols its numbers depend on.
    fn symbols(&self) -> Vec<&str>;
    /// What changed where this class judged at the base and `after` judges at the head.
    fn compare(&self, after: &Self, sides: &mut Sides<'_>, place: &Place<'_>);
}

/// Where two classes are compared.
struct Place<'p> {
    clause: String,
    /// The tensor, and the class where it has more than one.
    what: String,
    tensor: &'p str,
    assignment: &'p Assignment<'p>,
    /// The tensor's type here, where both sides agree on it.
    dtype: Option<DType>,
}

/// One section, tensor by tensor.
type Classes<T> = Named<Named<T>>;

/// `tolerance`.
pub fn tolerance<'a>(
    sides: &mut Sides<'a>,
    before: &'a Classes<Tolerance>,
    after: &'a Classes<Tolerance>,
) {
    judged(sides, before, after);
}

/// `drift`.
pub fn drift<'a>(sides: &mut Sides<'a>, before: &'a Classes<Drift>, after: &'a Classes<Drift>) {
    judged(sides, before, after);
}

fn judged<'a, T: Judge>(sides: &mut Sides<'a>, before: &'a Classes<T>, after: &'a Classes<T>) {
    let (at_base, at_head) = (sides.before, sides.after);
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        match (at_base.tensors.get(name), at_head.tensors.get(name)) {
            (Some(at_base), Some(at_head)) => {
                classes(sides, name, (at_base, old), (at_head, new));
            }
            // The tensor itself came or went, and what judges it with it.
            (base, _) => {
                let class = if base.is_some() { Class::Loosened } else { Class::Tightened };
                let side = if base.is_some() { old } else { new };
                for (judge, entry) in side.into_iter().flatten() {
                    one_sided::<T>(sides, (name, judge), class, shown(entry), "");
                }
            }
        }
    }
}

/// A class that judges where nothing does on the other side.
fn one_sided<T: Judge>(
    sides: &mut Sides<'_>,
    (tensor, judge): (&str, &str),
    class: Class,
    value: String,
    place: &str,
) {
    let clause = format!("{}.{tensor}.{judge}", T::SECTION);
    if class == Class::Loosened {
        let says = format!("{} of {tensor} no longer checked by `{judge}`{place}", T::SECTION);
        sides.gone(&clause, class, says, value);
    } else {
        let says = format!("{} of {tensor} now checked by `{judge}`{place}", T::SECTION);
        sides.new_at(&clause, class, says, value);
    }
}

fn classes<'a, T: Judge>(
    sides: &mut Sides<'a>,
    name: &str,
    (tensor, old): (&'a Tensor, Option<&'a Named<T>>),
    (tensor_after, new): (&'a Tensor, Option<&'a Named<T>>),
) {
    let mentioned = [tensor, tensor_after]
        .into_iter()
        .flat_map(|tensor| tensor.when.iter().flat_map(Expr::names).chain(switch(tensor)));
    let judges = || [old, new].into_iter().flatten().flat_map(Named::values);
    let conditions = judges().filter_map(Judge::when).flat_map(Expr::names);
    let types = [tensor, tensor_after].into_iter().map(|tensor| tensor.dtype.0.as_str());
    let mentioned =
        mentioned.chain(conditions).chain(judges().flat_map(Judge::symbols)).chain(types);
    let section = format!("{}.{name}", T::SECTION);
    let Some(all) = assignments(sides.before, sides.after, mentioned) else {
        let says = format!("{} of {name}, over too many choices to compare", T::SECTION);
        return sides.either(&section, &says, &old, &new);
    };
    let mut met: BTreeMap<(Option<&str>, Option<&str>), Vec<Assignment<'a>>> = BTreeMap::new();
    let all: Vec<Assignment<'a>> = all
        .into_iter()
        .filter(|a| is_written(tensor, a.before()) && is_written(tensor_after, a.after()))
        .collect();
    for assignment in all.iter().cloned() {
        let pair = (admitting(old, assignment.before()), admitting(new, assignment.after()));
        met.entry(pair).or_default().push(assignment);
    }
    for (pair, places) in &met {
        match *pair {
            (Some(was), Some(is)) => {
                both(
                    sides,
                    name,
                    (was, &old.unwrap_or(&Named::new())[was]),
                    (is, &new.unwrap_or(&Named::new())[is]),
                    (tensor, tensor_after),
                    places,
                );
            }
            (Some(judge), None) => {
                let place = partly(new, judge, places, &all);
                let value = old.map(|classes| shown(&classes[judge])).unwrap_or_default();
                one_sided::<T>(sides, (name, judge), Class::Loosened, value, &place);
            }
            (None, Some(judge)) => {
                let place = partly(old, judge, places, &all);
                let value = new.map(|classes| shown(&classes[judge])).unwrap_or_default();
                one_sided::<T>(sides, (name, judge), Class::Tightened, value, &place);
            }
            (None, None) => {}
        }
    }
}

/// Where a class judges on one side only, unless the other side has no class of its name at all.
fn partly<T>(
    other: Option<&Named<T>>,
    judge: &str,
    places: &[Assignment<'_>],
    all: &[Assignment<'_>],
) -> String {
    match other.is_some_and(|classes| classes.contains_key(judge)) {
        true => format!(" where {}", spelled(places, all)),
        false => String::new(),
    }
}

fn both<T: Judge>(
    sides: &mut Sides<'_>,
    name: &str,
    (was, old): (&str, &T),
    (is, new): (&str, &T),
    (tensor, tensor_after): (&Tensor, &Tensor),
    places: &[Assignment<'_>],
) {
    let from = sides.count();
    for assignment in places {
        let dtype = assignment.dtype(&tensor.dtype.0);
        let dtype = dtype.filter(|_| dtype == assignment.dtype(&tensor_after.dtype.0));
        let clause = format!("{}.{name}.{is}", T::SECTION);
        let what = if is == "all" { name.to_owned() } else { format!("{name} at {is}") };
        old.compare(new, sides, &Place { clause, what, tensor: name, assignment, dtype });
    }
    let was_clause = format!("{}.{name}.{was}", T::SECTION);
    if was == is {
        return;
    }
    match sides.count() == from {
        true => sides.renamed(&format!("{}.{name}", T::SECTION), was, is),
        false => sides.since(from).iter_mut().for_each(|c| c.was = Some(was_clause.clone())),
    }
}

fn admitting<'a, T: Judge>(classes: Option<&'a Named<T>>, words: Words<'_, '_>) -> Option<&'a str> {
    let mut all = classes.into_iter().flatten();
    all.find(|(_, class)| words.admits(class.when())).map(|(name, _)| name.as_str())
}

/// The option an access switches on.
fn switch(tensor: &Tensor) -> Option<&str> {
    match &tensor.access {
        By::Always(_) => None,
        By::Option { by } => by.keys().next().map(String::as_str),
    }
}

fn is_written(tensor: &Tensor, words: Words<'_, '_>) -> bool {
    let access = match &tensor.access {
        By::Always(access) => Some(access),
        By::Option { by } => by.first().and_then(|(option, table)| table.get(words.word(option)?)),
    };
    words.admits(tensor.when.as_ref()) && access.is_some_and(|access| *access != Access::Read)
}

impl Judge for Tolerance {
    const SECTION: &'static str = "tolerance";

    fn symbols(&self) -> Vec<&str> {
        let Some(bound) = &self.bound else { return Vec::new() };
        let units = bound.terms.values().map(|term| term.unit.0.as_str());
        units.chain([bound.round_out.0.as_str()]).collect()
    }

    fn when(&self) -> Option<&Expr> {
        self.when.as_ref()
    }

    fn compare(&self, after: &Tolerance, sides: &mut Sides<'_>, place: &Place<'_>) {
        let Tolerance { when: _, bits, bound } = self;
        let values = || (Some(shown(self)), Some(shown(after)));
        match ((bits, bound), (&after.bits, &after.bound)) {
            ((_, Some(old)), (_, Some(new))) => bounds(sides, place, old, new),
            ((Some(_), None), (_, Some(new))) => {
                let class =
                    if is_finer(place, new) { Class::Loosened } else { Class::Incomparable };
                let says = format!(
                    "{} was equal bit for bit, is now near: {}",
                    place.tensor,
                    formula(new)
                );
                sides.push(&place.clause, class, says, values());
            }
            ((_, Some(old)), (Some(_), None)) => {
                let class =
                    if is_finer(place, old) { Class::Tightened } else { Class::Incomparable };
                let says = format!(
                    "{} was near, is now equal bit for bit; before: {}",
                    place.tensor,
                    formula(old)
                );
                sides.push(&place.clause, class, says, values());
            }
            _ => {}
        }
    }
}

/// Whether equal bits are always within a bound: its final rounding is the tensor's own, or coarser.
/// What saturates instead of overflowing may differ from the nearest bits.
fn is_finer(place: &Place<'_>, bound: &Bound) -> bool {
    let round = place.assignment.dtype(&bound.round_out.0);
    let (Some(own), Some(round)) = (place.dtype, round) else { return false };
    let plain = matches!(own, DType::F32 | DType::F16 | DType::BF16);
    plain
        && bound.overflow == Overflow::Infinite
        && matches!(rounding(own, round), Some(Ordering::Equal | Ordering::Less))
}

/// How two final roundings compare: `Greater` where the first is looser in every respect: a larger
/// unit, a larger smallest step and an earlier overflow. `None` where each is looser in some respect.
fn rounding(a: DType, b: DType) -> Option<Ordering> {
    let order = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or(Ordering::Equal);
    let parts = [
        order(a.unit_roundoff(), b.unit_roundoff()),
        order(a.smallest_subnormal(), b.smallest_subnormal()),
        order(b.largest_finite(), a.largest_finite()),
    ];
    let mut directions = parts.into_iter().filter(|part| *part != Ordering::Equal);
    let Some(first) = directions.next() else { return Some(Ordering::Equal) };
    directions.all(|part| part == first).then_some(first)
}

/// A bound as `explain` writes it, in short.
fn formula(bound: &Bound) -> String {
    let Bound { round_out, overflow: _, terms, floor } = bound;
    let mut parts = vec![format!("half an ulp of {}", round_out.0)];
    parts.extend(terms.iter().map(|(magnitude, Term { times, unit })| {
        format!("{} u({}) {magnitude}", number(*times), unit.0)
    }));
    parts.push(number(*floor));
    parts.join(" + ")
}

fn bounds(sides: &mut Sides<'_>, place: &Place<'_>, before: &Bound, after: &Bound) {
    let Place { clause, what, tensor, assignment, .. } = place;
    let Bound { round_out, overflow, terms, floor } = before;
    let dtypes = (assignment.dtype(&round_out.0), assignment.dtype(&after.round_out.0));
    if let (Some(old), Some(new)) = dtypes
        && old != new
    {
        let class = match rounding(old, new) {
            Some(Ordering::Less) => Class::Loosened,
            Some(Ordering::Greater) => Class::Tightened,
            _ => Class::Incomparable,
        };
        let says = format!("final rounding of {tensor} {old} → {new}");
        sides.push(clause, class, says, (Some(old.to_string()), Some(new.to_string())));
    }
    if *overflow != after.overflow {
        // What saturates may not be infinite; what overflows may be either.
        let class = match after.overflow {
            Overflow::Infinite => Class::Loosened,
            Overflow::Saturates => Class::Tightened,
        };
        let (old, new) = (shown(overflow), shown(&after.overflow));
        let says = format!("{tensor} past its largest number: {old} → {new}");
        sides.push(clause, class, says, (Some(old), Some(new)));
    }
    let names = terms.keys().chain(after.terms.keys().filter(|name| !terms.contains_key(*name)));
    for magnitude in names {
        term(sides, place, magnitude, terms.get(magnitude), after.terms.get(magnitude));
    }
    sides.coefficient(clause, &format!("tolerance of {what}: floor"), *floor, after.floor);
}

/// `times · u(unit)` of one magnitude; none is zero.
fn term(
    sides: &mut Sides<'_>,
    place: &Place<'_>,
    magnitude: &str,
    before: Option<&Term>,
    after: Option<&Term>,
) {
    let unit = |term: &Term| place.assignment.dtype(&term.unit.0);
    let share = |term: Option<&Term>| {
        term.map_or(0.0, |term| term.times * unit(term).map_or(0.0, DType::unit_roundoff))
    };
    let (old, new) = (share(before), share(after));
    if old == new {
        return;
    }
    let one_unit = before.map(unit) == after.map(unit);
    let text = |term: &Term| match (one_unit, unit(term)) {
        (false, Some(unit)) => format!("{} u({unit})", number(term.times)),
        _ => number(term.times),
    };
    let class = if new > old { Class::Loosened } else { Class::Tightened };
    let texts = (before.map(text), after.map(text));
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let says = format!(
        "tolerance of {}: {magnitude} {} → {}, {}",
        place.what,
        word(&texts.0),
        word(&texts.1),
        ratio(old, new)
    );
    sides.push(&place.clause, class, says, texts);
}

impl Judge for Drift {
    const SECTION: &'static str = "drift";

    fn symbols(&self) -> Vec<&str> {
        Vec::new()
    }

    fn when(&self) -> Option<&Expr> {
        self.when.as_ref()
    }

    fn compare(&self, after: &Drift, sides: &mut Sides<'_>, place: &Place<'_>) {
        let Drift { when: _, axes, times, of, plus } = self;
        let Place { clause, what, tensor, .. } = place;
        sides.either(clause, &format!("axes of a group of {tensor}"), axes, &after.axes);
        sides.either(clause, &format!("the measure of {tensor}'s drift"), of, &after.of);
        sides.coefficient(clause, &format!("drift of {what}: {of}"), *times, after.times);
        sides.coefficient(clause, &format!("drift of {what}: plus"), *plus, after.plus);
    }
}
