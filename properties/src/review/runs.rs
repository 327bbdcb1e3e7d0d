//! Promises about more than one run, and what is always run: relations, refusals, fixtures, production
//! shapes, mutants, exceptions from house rules. Fewer is looser; an edit of one is read by a person.

use super::change::Class;
use super::conditions::{Difference, canonical, difference, same, spelled};
use super::sides::{Pair, Sides, named, pairs, shown};
use super::structure::{compare, only_where};
use contracts::expr::Expr;
use contracts::format::{
    Copies, Detected, Equals, Fixture, Mutant, Named, OverAxis, Path, Rejection, Relation, Same,
    Split,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// A section whose entries are promises: what is gone is looser, what is new is tighter.
fn promises<'a, T: PartialEq + Serialize>(
    sides: &mut Sides<'a>,
    section: &str,
    what: (&str, &str),
    before: &'a Named<T>,
    after: &'a Named<T>,
    both: &dyn Fn(&mut Sides<'a>, &str, &str, &'a T, &'a T),
) {
    let (noun, verb) = what;
    for pair in pairs(before, after) {
        match pair {
            Pair::Gone(name, old) => {
                let says = format!("{noun} {name} is no longer {verb}");
                sides.gone(&format!("{section}.{name}"), Class::Loosened, says, shown(old));
            }
            Pair::New(name, new) => {
                let says = format!("{noun} {name} is now {verb}");
                sides.new_at(&format!("{section}.{name}"), Class::Tightened, says, shown(new));
            }
            Pair::Renamed(old, new) => sides.renamed(section, old, new),
            Pair::Both(name, old, new) => both(sides, &format!("{section}.{name}"), name, old, new),
        }
    }
}

/// `relations`.
pub fn relations<'a>(
    sides: &mut Sides<'a>,
    before: &'a Named<Relation>,
    after: &'a Named<Relation>,
) {
    promises(sides, "relations", ("relation", "checked"), before, after, &relation);
}

fn relation<'a>(
    sides: &mut Sides<'a>,
    clause: &str,
    name: &str,
    before: &'a Relation,
    after: &'a Relation,
) {
    let Relation {
        alone,
        split,
        equals,
        append_dead,
        same,
        copies,
        permute,
        steps,
        heads,
        scale,
        recall,
        replay,
        when,
        compare: how,
    } = before;
    let axis = |over: &Option<OverAxis>| over.as_ref().map(|OverAxis { axis }| axis.clone());
    let what = format!("relation {name}");
    sides.either(clause, &what, &axis(alone), &axis(&after.alone));
    sides.either(clause, &what, &axis(append_dead), &axis(&after.append_dead));
    sides.either(clause, &what, &axis(permute), &axis(&after.permute));
    sides.either(clause, &what, steps, &after.steps);
    sides.either(clause, &what, heads, &after.heads);
    sides.either(clause, &what, scale, &after.scale);
    sides.either(clause, &what, recall, &after.recall);
    sides.either(clause, &what, replay, &after.replay);
    match (split, &after.split) {
        (Some(old), Some(new)) => cut(sides, clause, name, old, new),
        (old, new) => sides.either(clause, &what, old, new),
    }
    match (equals, &after.equals) {
        (Some(old), Some(new)) => {
            let Equals { contract, adapter, set } = old;
            let contract = sides.renames.get(contract).unwrap_or(contract).clone();
            let old = Equals { contract, adapter: adapter.clone(), set: set.clone() };
            sides.either(clause, &what, &old, new);
        }
        (old, new) => sides.either(clause, &what, old, new),
    }
    let words = |same: &Option<Same>| same.as_ref().map(|Same { set }| set.clone());
    sides.either(clause, &what, &words(same), &words(&after.same));
    let roles = |copies: &Option<Copies>| {
        copies.as_ref().map(|Copies { of, into, by }| [of.clone(), into.clone(), by.clone()])
    };
    sides.either(clause, &what, &roles(copies), &roles(&after.copies));
    applies(sides, clause, &what, when.as_ref(), after.when.as_ref());
    compare(sides, clause, &format!("the two runs of {name}"), *how, after.compare);
}

/// A cut at every multiple of a smaller divisor holds at those of a larger one too.
fn cut(sides: &mut Sides<'_>, clause: &str, name: &str, before: &Split, after: &Split) {
    let Split { list, at, carry } = before;
    sides.either(clause, &format!("the list {name} cuts"), list, &after.list);
    sides.either(clause, &format!("what {name} carries"), carry, &after.carry);
    if same(Some(at), Some(&after.at)) {
        return;
    }
    let divides = |small: &Expr, large: &Expr| match (small, large) {
        (Expr::Int(1), _) => true,
        (Expr::Int(small), Expr::Int(large)) => *small > 0 && large % small == 0,
        _ => false,
    };
    let class = match (divides(at, &after.at), divides(&after.at, at)) {
        (true, _) => Class::Loosened,
        (_, true) => Class::Tightened,
        _ => Class::Incomparable,
    };
    let (old, new) = (shown(at), shown(&after.at));
    let says = format!("{name} cuts at multiples of {}, before of {}", named(&new), named(&old));
    sides.push(clause, class, says, (Some(old), Some(new)));
}

/// A narrower condition promises less.
fn applies<'a>(
    sides: &mut Sides<'a>,
    clause: &str,
    what: &str,
    before: Option<&'a Expr>,
    after: Option<&'a Expr>,
) {
    let Some(Difference { lost, gained, all }) =
        difference((sides.before, before), (sides.after, after))
    else {
        return sides.expressions(clause, &format!("{what} applies"), before, after);
    };
    let values = (before.map(shown), after.map(shown));
    for (class, word, places) in
        [(Class::Loosened, "no longer", lost), (Class::Tightened, "now", gained)]
    {
        if !places.is_empty() {
            let says = format!("{what} {word} applies where {}", spelled(&places, &all));
            sides.push(clause, class, says, values.clone());
        }
    }
}

/// `paths`.
pub fn paths<'a>(sides: &mut Sides<'a>, before: &'a Named<Path>, after: &'a Named<Path>) {
    promises(sides, "paths", ("path", "checked"), before, after, &path);
}

fn path<'a>(sides: &mut Sides<'a>, clause: &str, name: &str, before: &'a Path, after: &'a Path) {
    let Path { takes, never, when, sizes, pieces } = before;
    let what = format!("path {name}");
    sides.either(clause, &what, &(takes, never), &(&after.takes, &after.never));
    applies(sides, clause, &what, when.as_ref(), after.when.as_ref());
    only_where(
        sides,
        clause,
        &format!("{what} was promised"),
        sizes.as_ref(),
        after.sizes.as_ref(),
    );
    sides.either(clause, &format!("the pieces of {name}"), pieces, &after.pieces);
}

/// `rejects`.
pub fn rejects<'a>(
    sides: &mut Sides<'a>,
    before: &'a Named<Rejection>,
    after: &'a Named<Rejection>,
) {
    promises(
        sides,
        "rejects",
        ("the call", "refused"),
        before,
        after,
        &|sides, clause, name, before, after| {
            let Rejection { set_dtype, set_shape, set_stride, set_dim, error, detected } = before;
            let what = format!("the call {name}");
            sides.either(clause, &what, &sorted(set_dtype), &sorted(&after.set_dtype));
            let shapes = |all: &Named<Vec<Expr>>| -> BTreeMap<String, Vec<String>> {
                let extents = |shape: &Vec<Expr>| shape.iter().map(canonical).collect();
                all.iter().map(|(name, shape)| (name.clone(), extents(shape))).collect()
            };
            let sizes = |all: &Named<Expr>| -> BTreeMap<String, String> {
                all.iter().map(|(name, size)| (name.clone(), canonical(size))).collect()
            };
            if shapes(set_shape) != shapes(&after.set_shape) {
                sides.either(clause, &what, set_shape, &after.set_shape);
            }
            for (old, new) in [(set_stride, &after.set_stride), (set_dim, &after.set_dim)] {
                if sizes(old) != sizes(new) {
                    sides.either(clause, &what, old, new);
                }
            }
            sides.either(clause, &format!("the error of {name}"), error, &after.error);
            found(sides, clause, name, *detected, after.detected);
        },
    );
}

/// The later a refusal is found, the less is promised.
fn found(sides: &mut Sides<'_>, clause: &str, name: &str, before: Detected, after: Detected) {
    let late = |detected: Detected| match detected {
        Detected::Plan => 0,
        Detected::Status => 1,
        Detected::Caller => 2,
    };
    if before == after {
        return;
    }
    let class = if late(after) > late(before) { Class::Loosened } else { Class::Tightened };
    let (old, new) = (shown(&before), shown(&after));
    let says = format!("{name} was found in {}, is now in {}", named(&old), named(&new));
    sides.push(clause, class, says, (Some(old), Some(new)));
}

/// `fixtures` and `production`.
pub fn fixtures<'a>(
    sides: &mut Sides<'a>,
    section: &str,
    before: &'a Named<Fixture>,
    after: &'a Named<Fixture>,
) {
    let noun = if section == "production" { "production shape" } else { "fixture" };
    promises(
        sides,
        section,
        (noun, "run"),
        before,
        after,
        &|sides, clause, name, before, after| {
            let Fixture { dims, lists, dtypes, options, variants, layout, values, joint } = before;
            let at = |part: &str| format!("{part} of {noun} {name}");
            sides.either(clause, &at("dims"), &sorted(dims), &sorted(&after.dims));
            sides.either(clause, &at("lists"), &sorted(lists), &sorted(&after.lists));
            sides.either(clause, &at("dtypes"), &sorted(dtypes), &sorted(&after.dtypes));
            sides.either(clause, &at("options"), &sorted(options), &sorted(&after.options));
            sides.either(clause, &at("variants"), &sorted(variants), &sorted(&after.variants));
            sides.either(clause, &at("layouts"), &sorted(layout), &sorted(&after.layout));
            sides.either(clause, &at("values"), &sorted(values), &sorted(&after.values));
            sides.either(clause, &at("classes"), &sorted(joint), &sorted(&after.joint));
        },
    );
}

/// The order of keys means nothing, and shows as none.
fn sorted<T: Clone>(named: &Named<T>) -> Named<T> {
    let mut sorted = named.clone();
    sorted.sort_keys();
    sorted
}

/// `mutants`: one that need not be caught, or by more clauses, proves less.
pub fn mutants<'a>(sides: &mut Sides<'a>, before: &'a Named<Mutant>, after: &'a Named<Mutant>) {
    for pair in pairs(before, after) {
        match pair {
            Pair::Gone(name, old) => {
                let says = format!("the wrong kernel {name} need no longer be caught");
                sides.gone(&format!("mutants.{name}"), Class::Loosened, says, shown(old));
            }
            Pair::New(name, new) => {
                let says = format!("the wrong kernel {name} must now be caught");
                sides.new_at(&format!("mutants.{name}"), Class::Tightened, says, shown(new));
            }
            // Many mutants are written alike, so an equal entry under another id is another mutant
            // unless its edit went with it, which the table of edits says.
            Pair::Renamed(old, new) => {
                let says = format!("the wrong kernel {old} need no longer be caught");
                sides.gone(&format!("mutants.{old}"), Class::Loosened, says, shown(&before[old]));
                let says = format!("the wrong kernel {new} must now be caught");
                sides.new_at(&format!("mutants.{new}"), Class::Tightened, says, shown(&after[new]));
            }
            Pair::Both(name, old, new) => mutant(sides, name, old, new),
        }
    }
}

fn mutant(sides: &mut Sides<'_>, name: &str, before: &Mutant, after: &Mutant) {
    let clause = &format!("mutants.{name}");
    let Mutant { killed_by, with, equivalent } = before;
    match (equivalent, &after.equivalent) {
        (None, Some(why)) => {
            let says = format!("the wrong kernel {name} is declared equivalent: {why}");
            sides.new_at(clause, Class::Loosened, says, why.clone());
        }
        (Some(why), None) => {
            let says = format!("the wrong kernel {name} is no longer declared equivalent");
            sides.gone(clause, Class::Tightened, says, why.clone());
        }
        (Some(old), Some(new)) => {
            let says = format!("why {name} is equivalent: `{old}` → `{new}`");
            reworded(sides, clause, says, old, new);
        }
        (None, None) => {}
    }
    if *killed_by != after.killed_by && !sides.is_renamed(killed_by, &after.killed_by) {
        let within = |inner: &str, outer: &str| inner.starts_with(&format!("{outer}."));
        let class = if within(killed_by, &after.killed_by) {
            Class::Loosened
        } else if within(&after.killed_by, killed_by) {
            Class::Tightened
        } else {
            Class::Incomparable
        };
        let says =
            format!("{name} must be caught by `{}`, before by `{killed_by}`", after.killed_by);
        sides.push(clause, class, says, (Some(killed_by.clone()), Some(after.killed_by.clone())));
    }
    let fixture = |with: &Option<String>| format!("fixtures.{}", with.as_deref().unwrap_or(""));
    if !sides.is_renamed(&fixture(with), &fixture(&after.with)) {
        sides.either(clause, &format!("the fixture that shows {name}"), with, &after.with);
    }
}

/// `except`: a house rule excused is a promise less.
pub fn except(sides: &mut Sides<'_>, before: &Named<String>, after: &Named<String>) {
    for (rule, reason) in before.iter().filter(|(rule, _)| !after.contains_key(*rule)) {
        let says = format!("house rule {rule} holds again");
        sides.gone(&format!("house.{rule}"), Class::Tightened, says, reason.clone());
    }
    for (rule, old, new) in
        before.iter().filter_map(|(rule, old)| Some((rule, old, after.get(rule)?)))
    {
        let says = format!("why house rule {rule} does not hold: `{old}` → `{new}`");
        reworded(sides, &format!("house.{rule}"), says, old, new);
    }
    for (rule, reason) in after.iter().filter(|(rule, _)| !before.contains_key(*rule)) {
        let says = format!("house rule {rule} no longer holds: {reason}");
        sides.new_at(&format!("house.{rule}"), Class::Loosened, says, reason.clone());
    }
}

/// Another reason for what was excused before.
fn reworded(sides: &mut Sides<'_>, clause: &str, says: String, old: &str, new: &str) {
    if old != new {
        sides.push(clause, Class::Neutral, says, (Some(old.to_owned()), Some(new.to_owned())));
    }
}
