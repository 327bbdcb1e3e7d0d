//! Choices and sizes compared: dtypes, options, variants, dims, lists, requirements. Fewer words, values
//! or edges are looser, for less is run; a new condition on callers is looser, for less is promised.

use super::change::Class;
use super::conditions::{canonical, conjuncts, matched, same};
use super::sides::{Pair, Record, Sides, named, pairs, shown};
use contracts::expr::Expr;
use contracts::format::{
    Compare, Dim, Ids, Lengths, List, Named, Requirement, Slots, Variant, Word,
};
use serde::Serialize;

/// An entry that belongs to the call itself: having or lacking it is another interface.
pub fn interface<'a, T: PartialEq + Serialize>(
    sides: &mut Sides<'a>,
    section: &str,
    what: &str,
    before: &'a Named<T>,
    after: &'a Named<T>,
    both: fn(&mut Sides<'a>, &str, &'a T, &'a T),
) {
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        let says = format!("{what} `{name}` is gone");
        sides.gone(&format!("{section}.{name}"), Class::Incomparable, says, shown(&before[name]));
    }
    for (name, new) in after {
        match before.get(name) {
            Some(old) => both(sides, name, old, new),
            None => {
                let says = format!("{what} `{name}` is new");
                sides.new_at(&format!("{section}.{name}"), Class::Incomparable, says, shown(new));
            }
        }
    }
}

/// `dtypes` and `options`: a word less is not run any more.
pub fn words<T: PartialEq + Serialize>(
    record: &mut Record,
    section: &str,
    before: &Named<Vec<T>>,
    after: &Named<Vec<T>>,
) {
    let none = Vec::new();
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    for name in names {
        let texts = |side: &Named<Vec<T>>| -> Vec<String> {
            side.get(name).unwrap_or(&none).iter().map(shown).collect()
        };
        record.members(
            &format!("{section}.{name}"),
            &texts(before),
            &texts(after),
            &|lost| format!("{name} no longer takes {lost}"),
            &|gained| format!("{name} now takes {gained}"),
        );
    }
}

/// `variants`.
pub fn variants(sides: &mut Sides<'_>, before: &Named<Variant>, after: &Named<Variant>) {
    let texts = |side: &Named<Variant>, name: &str| -> Vec<String> {
        side.get(name).map_or_else(Vec::new, |v| v.values.iter().map(|Word(w)| w.clone()).collect())
    };
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    for name in names {
        let clause = format!("variants.{name}");
        sides.members(
            &clause,
            &texts(before, name),
            &texts(after, name),
            &|lost| format!("variant {name} no longer runs as {lost}"),
            &|gained| format!("variant {name} now runs as {gained}"),
        );
        let (Some(old), Some(new)) = (before.get(name), after.get(name)) else { continue };
        let Variant { values: _, equal, available } = old;
        compare(sides, &clause, &format!("results of variant {name}"), *equal, new.equal);
        for (was, is) in matched(sides.before, sides.after, name).unwrap_or_default() {
            let word = if was == is { was.to_owned() } else { format!("{is} (was {was})") };
            let (old, new) = (available.get(was), new.available.get(is));
            only_where(sides, &clause, &format!("{name}: {word} was available"), old, new);
        }
    }
}

/// How two runs are compared: within bounds is looser than bit for bit.
pub fn compare(sides: &mut Sides<'_>, clause: &str, what: &str, before: Compare, after: Compare) {
    if before == after {
        return;
    }
    let (class, says) = match after {
        Compare::Bound => (Class::Loosened, "are now equal within bounds only, not bit for bit"),
        Compare::Bits => (Class::Tightened, "are now equal bit for bit, not within bounds only"),
    };
    let values = (Some(shown(&before)), Some(shown(&after)));
    sides.push(clause, class, format!("{what} {says}"), values);
}

/// Where something is to be had, a variant's value or a path: everywhere promises most.
pub fn only_where(
    sides: &mut Sides<'_>,
    clause: &str,
    what: &str,
    before: Option<&Expr>,
    after: Option<&Expr>,
) {
    if same(before, after) {
        return;
    }
    let (all_before, all_after) =
        (before.map(conjuncts).unwrap_or_default(), after.map(conjuncts).unwrap_or_default());
    let covers = |wide: &[String], narrow: &[String]| wide.iter().all(|part| narrow.contains(part));
    let class = if covers(&all_before, &all_after) {
        Class::Loosened
    } else if covers(&all_after, &all_before) {
        Class::Tightened
    } else {
        Class::Incomparable
    };
    let everywhere = |side: Option<&Expr>| {
        side.map_or_else(|| "everywhere".to_owned(), |expr| format!("where `{expr}`"))
    };
    let says = format!("{what} {}, now {}", everywhere(before), everywhere(after));
    sides.push(clause, class, says, (before.map(shown), after.map(shown)));
}

/// `dims`.
pub fn dims<'a>(sides: &mut Sides<'a>, before: &'a Named<Dim>, after: &'a Named<Dim>) {
    interface(sides, "dims", "dim", before, after, dim);
}

fn dim<'a>(sides: &mut Sides<'a>, name: &str, before: &'a Dim, after: &'a Dim) {
    let clause = &format!("dims.{name}");
    let Dim { range, edges, one_of, multiple_of, factor, at_least, slack, is, segments, spare } =
        before;
    if form(before) != form(after) {
        return other_form(sides, clause, name, before, after);
    }
    if let (Some(old), Some(new)) = (*range, after.range) {
        sides.range(clause, name, old, new);
        sides.edges(clause, name, (old, edges), (new, &after.edges));
    }
    let sizes = |all: &[i64]| all.iter().map(i64::to_string).collect::<Vec<_>>();
    sides.members(
        clause,
        &sizes(one_of),
        &sizes(&after.one_of),
        &|lost| format!("{name} may no longer be {lost}"),
        &|gained| format!("{name} may now be {gained}"),
    );
    for (what, old, new) in [
        (format!("{name} is a multiple"), multiple_of, &after.multiple_of),
        (format!("the least {name}"), at_least, &after.at_least),
        (format!("{name} is computed"), is, &after.is),
    ] {
        sides.expressions(clause, &what, old.as_ref(), new.as_ref());
    }
    for (what, old, new) in [
        (format!("the factor of {name}"), factor, after.factor),
        (format!("the slack of {name}"), slack, after.slack),
        (format!("the spare rows of {name}"), spare, after.spare),
    ] {
        // Only `spare` may be absent while the form stays: then nothing is spare.
        let (old, new) = (old.unwrap_or([0, 0]), new.unwrap_or([0, 0]));
        sides.range(clause, &what, old, new);
    }
    sides.either(clause, &format!("the list {name} sums"), segments, &after.segments);
}

/// Which of a dim's forms is written.
fn form(dim: &Dim) -> &'static str {
    let written = [
        ("range", dim.range.is_some()),
        ("one_of", !dim.one_of.is_empty()),
        ("multiple_of", dim.multiple_of.is_some()),
        ("at_least", dim.at_least.is_some()),
        ("is", dim.is.is_some()),
    ];
    written.iter().find(|(_, is)| *is).map_or("segments", |(form, _)| form)
}

/// A closed list instead of a range binds callers; a range instead of a list frees them.
fn other_form(sides: &mut Sides<'_>, clause: &str, name: &str, before: &Dim, after: &Dim) {
    let drawn = |range: Option<[i64; 2]>, sizes: &[i64]| {
        range.is_some_and(|[low, high]| sizes.iter().all(|size| (low..=high).contains(size)))
    };
    let class = if drawn(before.range, &after.one_of) && !after.one_of.is_empty() {
        Class::Loosened
    } else if drawn(after.range, &before.one_of) && !before.one_of.is_empty() {
        Class::Tightened
    } else {
        Class::Incomparable
    };
    let (old, new) = (shown(before), shown(after));
    let says = format!("{name} was `{old}`, is `{new}`");
    sides.push(clause, class, says, (Some(old), Some(new)));
}

/// `lists`.
pub fn lists<'a>(sides: &mut Sides<'a>, before: &'a Named<List>, after: &'a Named<List>) {
    interface(sides, "lists", "list", before, after, list);
}

fn list<'a>(sides: &mut Sides<'a>, name: &str, before: &'a List, after: &'a List) {
    let clause = &format!("lists.{name}");
    let List { each, length, slots, ids, is } = before;
    sides.either(clause, &format!("the axis of {name}"), each, &after.each);
    let integers = |all: &[i64]| all.iter().map(i64::to_string).collect::<Vec<_>>();
    match (length, &after.length, slots, &after.slots, ids, &after.ids) {
        (Some(Lengths { range, edges }), Some(new), ..) => {
            sides.range(clause, name, *range, new.range);
            sides.edges(clause, name, (*range, edges), (new.range, &new.edges));
        }
        (_, _, Some(Slots { pool, pad }), Some(new), ..) => {
            sides.either(clause, &format!("the pool of {name}"), pool, &new.pool);
            sides.members(
                clause,
                &integers(pad),
                &integers(&new.pad),
                &|lost| format!("{name} no longer holds the pad {lost}"),
                &|gained| format!("{name} may now hold the pad {gained}"),
            );
        }
        (.., Some(Ids { below, invalid, repeats }), Some(new)) => {
            sides.either(clause, &format!("the table of {name}"), below, &new.below);
            let (old_invalid, new_invalid) = spelled_alike(invalid, &new.invalid);
            sides.members(
                clause,
                &old_invalid,
                &new_invalid,
                &|lost| format!("{name} no longer holds the invalid {lost}"),
                &|gained| format!("{name} may now hold the invalid {gained}"),
            );
            if *repeats != new.repeats {
                let (class, says) = if new.repeats {
                    (Class::Tightened, format!("{name} may now name a row twice"))
                } else {
                    (Class::Loosened, format!("{name} no longer names a row twice"))
                };
                sides.push(
                    clause,
                    class,
                    says,
                    (Some(repeats.to_string()), Some(new.repeats.to_string())),
                );
            }
        }
        _ if is.is_some() && after.is.is_some() => {
            sides.expressions(
                clause,
                &format!("{name} is computed"),
                is.as_ref(),
                after.is.as_ref(),
            );
        }
        _ => sides.either(clause, &format!("list {name}"), before, after),
    }
}

/// Two sets of expressions as texts; what means the same is spelled the same.
fn spelled_alike(before: &[Expr], after: &[Expr]) -> (Vec<String>, Vec<String>) {
    let first = |expr: &Expr| {
        let form = canonical(expr);
        let alike = before.iter().chain(after).filter(|other| canonical(other) == form);
        alike.map(Expr::to_string).min().unwrap_or(form)
    };
    (before.iter().map(first).collect(), after.iter().map(first).collect())
}

/// `requires`: a condition binds callers, so less is promised; and its breach must be refused, so more is.
pub fn requires(sides: &mut Sides<'_>, before: &Named<Requirement>, after: &Named<Requirement>) {
    for pair in pairs(before, after) {
        match pair {
            Pair::Gone(name, old) => lifted(sides, name, old),
            Pair::New(name, new) => imposed(sides, name, new),
            Pair::Renamed(old, new) => sides.renamed("requires", old, new),
            Pair::Both(name, old, new) => {
                let clause = &format!("requires.{name}");
                let Requirement { that, otherwise } = old;
                sides.either(clause, &format!("the error of {name}"), otherwise, &new.otherwise);
                sides.expressions(
                    clause,
                    &format!("condition {name}"),
                    Some(that),
                    Some(&new.that),
                );
            }
        }
    }
}

fn imposed(sides: &mut Sides<'_>, name: &str, new: &Requirement) {
    let (clause, that) = (&format!("requires.{name}"), shown(&new.that));
    let says = format!("callers must now keep {}", named(&that));
    sides.new_at(clause, Class::Loosened, says, that.clone());
    let says =
        format!("calls that break {} are now refused with {}", named(&that), shown(&new.otherwise));
    sides.new_at(clause, Class::Tightened, says, that);
}

fn lifted(sides: &mut Sides<'_>, name: &str, old: &Requirement) {
    let (clause, that) = (&format!("requires.{name}"), shown(&old.that));
    let says = format!("callers need no longer keep {}", named(&that));
    sides.gone(clause, Class::Tightened, says, that.clone());
    let says = format!(
        "calls that break {} are no longer refused with {}",
        named(&that),
        shown(&old.otherwise)
    );
    sides.gone(clause, Class::Loosened, says, that);
}
