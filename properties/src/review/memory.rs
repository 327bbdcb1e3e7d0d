//! What is in memory compared: tensors, scalars, stores, joint generators, and where NaN may be. Fewer
//! layouts, generators or legal values are looser; another shape, type or derivation is another call.

use super::change::Class;
use super::conditions::{Words, assignments, canonical, difference, spelled};
use super::domains;
use super::sides::{Pair, Sides, named, pairs, shown};
use super::structure::interface;
use contracts::expr::Expr;
use contracts::format::{
    Access, By, Contract, Domain, Joint, LayoutKind, Named, NanPolicy, RawGates, Reach, Scalar,
    Store, Tensor, Values,
};

/// `tensors`.
pub fn tensors<'a>(sides: &mut Sides<'a>, before: &'a Named<Tensor>, after: &'a Named<Tensor>) {
    interface(sides, "tensors", "tensor", before, after, tensor);
}

fn tensor<'a>(sides: &mut Sides<'a>, name: &str, before: &'a Tensor, after: &'a Tensor) {
    let at = |part: &str| format!("tensors.{name}.{part}");
    let Tensor { access, dtype, shape, when, layout, align, live, kind, from, domain, values } =
        before;
    let (old, new) = (sides.before, sides.after);
    switched(sides, &at("access"), &format!("access to {name}"), access, &after.access);
    sides.either(&at("dtype"), &format!("the type of {name}"), dtype, &after.dtype);
    let extents = |shape: &[Expr]| shape.iter().map(canonical).collect::<Vec<_>>();
    if extents(shape) != extents(&after.shape) {
        sides.either(&at("shape"), &format!("the shape of {name}"), shape, &after.shape);
    }
    match difference((old, when.as_ref()), (new, after.when.as_ref())) {
        Some(found) if found.lost.is_empty() && found.gained.is_empty() => {}
        _ => sides.either(&at("when"), &format!("when {name} is there"), when, &after.when),
    }
    sides.members(
        &at("layout"),
        &layouts(layout),
        &layouts(&after.layout),
        &|lost| format!("layout {lost} no longer generated for {name}"),
        &|gained| format!("layout {gained} now generated for {name}"),
    );
    alignment(sides, &at("align"), name, (old, before, *align), (new, after, after.align));
    sides.either(&at("live"), &format!("the live part of {name}"), live, &after.live);
    sides.either(&at("kind"), &format!("the scale kind of {name}"), kind, &after.kind);
    sides.either(&at("from"), &format!("the contents of {name}"), from, &after.from);
    match (domain, &after.domain) {
        (Some(before), Some(after)) => domain_of(sides, &at("domain"), name, before, after),
        (before, after) => {
            sides.either(&at("domain"), &format!("the domain of {name}"), before, after)
        }
    }
    generators(sides, &at("values"), name, values, &after.values);
}

/// The layouts' words; dense alone when none is written.
fn layouts(layout: &[LayoutKind]) -> Vec<String> {
    if layout.is_empty() {
        vec![shown(&LayoutKind::Dense)]
    } else {
        layout.iter().map(shown).collect()
    }
}

/// What is drawn, as texts.
fn generators(
    sides: &mut Sides<'_>,
    clause: &str,
    name: &str,
    before: &[Values],
    after: &[Values],
) {
    let texts = |all: &[Values]| all.iter().map(shown).collect::<Vec<_>>();
    sides.members(
        clause,
        &texts(before),
        &texts(after),
        &|lost| format!("values {lost} no longer drawn for {name}"),
        &|gained| format!("values {gained} now drawn for {name}"),
    );
}

/// A multiple that callers must keep: a larger one lets fewer calls in.
fn alignment(
    sides: &mut Sides<'_>,
    clause: &str,
    name: &str,
    (old, before, align): (&Contract, &Tensor, Option<u64>),
    (new, after, align_after): (&Contract, &Tensor, Option<u64>),
) {
    // Without a number it is the element's size, the smallest type's where several are possible.
    let effective = |contract: &Contract, tensor: &Tensor, align: Option<u64>| {
        let types = contract.dtypes.get(&tensor.dtype.0).cloned();
        let sizes = types.into_iter().flatten().map(|dtype| dtype.size_bytes());
        let fixed = tensor.dtype.resolve(&Default::default()).map(|dtype| dtype.size_bytes());
        align.or_else(|| sizes.chain(fixed).min()).unwrap_or(1)
    };
    if align == align_after {
        return;
    }
    let (from, to) = (effective(old, before, align), effective(new, after, align_after));
    let class = match to.cmp(&from) {
        std::cmp::Ordering::Greater => Class::Loosened,
        std::cmp::Ordering::Less => Class::Tightened,
        std::cmp::Ordering::Equal => return,
    };
    let says = format!("{name} must be aligned to {to} bytes, was {from}");
    sides.push(clause, class, says, (Some(from.to_string()), Some(to.to_string())));
}

/// A value per word of an option, or one for all: the pairs of the two sides, with the choices each
/// stands for.
fn resolved<'a, T: PartialEq>(
    sides: &Sides<'a>,
    before: &'a By<T>,
    after: &'a By<T>,
) -> Option<Vec<(&'a T, &'a T, String)>> {
    let options = [before, after].into_iter().flat_map(|side| match side {
        By::Always(_) => None,
        By::Option { by } => by.keys().next().map(String::as_str),
    });
    let value = |side: &'a By<T>, words: Words<'_, '_>| match side {
        By::Always(value) => Some(value),
        By::Option { by } => {
            let (option, table) = by.first()?;
            table.get(words.word(option)?)
        }
    };
    let mut all: Vec<(&T, &T, Vec<_>)> = Vec::new();
    let everywhere = assignments(sides.before, sides.after, options)?;
    for assignment in everywhere.iter().cloned() {
        let pair = (value(before, assignment.before()), value(after, assignment.after()));
        let (Some(old), Some(new)) = pair else { continue };
        match all.iter_mut().find(|(a, b, _)| *a == old && *b == new) {
            Some((.., where_)) => where_.push(assignment),
            None => all.push((old, new, vec![assignment])),
        }
    }
    let one = all.len() == 1;
    let place = |where_: Vec<_>| match one {
        true => String::new(),
        false => format!(" where {}", spelled(&where_, &everywhere)),
    };
    Some(all.into_iter().map(|(old, new, where_)| (old, new, place(where_))).collect())
}

fn switched(
    sides: &mut Sides<'_>,
    clause: &str,
    what: &str,
    before: &By<Access>,
    after: &By<Access>,
) {
    let owned = (before.clone(), after.clone());
    let uneven =
        match resolved(&Sides::new(sides.before, sides.after, sides.renames), &owned.0, &owned.1) {
            Some(pairs) => pairs.iter().any(|(old, new, _)| old != new),
            None => true,
        };
    if uneven {
        sides.either(clause, what, before, after);
    }
}

fn domain_of<'a>(
    sides: &mut Sides<'a>,
    clause: &str,
    name: &str,
    before: &'a By<Domain>,
    after: &'a By<Domain>,
) {
    let Some(pairs) = resolved(sides, before, after) else {
        return sides.either(clause, &format!("the domain of {name}"), before, after);
    };
    for (old, new, place) in pairs {
        domains::compare(sides, clause, &format!("{name}{place}"), old, new);
    }
}

/// `scalars`.
pub fn scalars<'a>(sides: &mut Sides<'a>, before: &'a Named<Scalar>, after: &'a Named<Scalar>) {
    interface(sides, "scalars", "scalar", before, after, |sides, name, before, after| {
        let Scalar { dtype, domain, values } = before;
        let at = |part: &str| format!("scalars.{name}.{part}");
        sides.either(&at("dtype"), &format!("the type of {name}"), dtype, &after.dtype);
        domains::compare(sides, &at("domain"), name, domain, &after.domain);
        generators(sides, &at("values"), name, values, &after.values);
    });
}

/// `stores`: a packed row is one more layout callers may use.
pub fn stores(sides: &mut Sides<'_>, before: &Named<Store>, after: &Named<Store>) {
    for pair in pairs(before, after) {
        match pair {
            Pair::Gone(name, old) => {
                let says =
                    format!("packed rows of {} are no longer generated", old.holds.join(", "));
                sides.gone(&format!("stores.{name}"), Class::Loosened, says, shown(old));
            }
            Pair::New(name, new) => {
                let says = format!("packed rows of {} are now generated", new.holds.join(", "));
                sides.new_at(&format!("stores.{name}"), Class::Tightened, says, shown(new));
            }
            Pair::Renamed(old, new) => sides.renamed("stores", old, new),
            Pair::Both(name, Store { along, holds }, new) => {
                let clause = &format!("stores.{name}");
                sides.either(clause, &format!("the axis of {name}"), along, &new.along);
                sides.either(clause, &format!("the packed row {name}"), holds, &new.holds);
            }
        }
    }
}

/// `joint`: fewer classes are fewer kinds of values.
pub fn joint(sides: &mut Sides<'_>, before: &Named<Joint>, after: &Named<Joint>) {
    for pair in pairs(before, after) {
        match pair {
            Pair::Gone(name, old) => {
                let says = format!("the joint generator {name} is gone");
                sides.gone(&format!("joint.{name}"), Class::Incomparable, says, shown(old));
            }
            Pair::New(name, new) => {
                let says = format!("the joint generator {name} is new");
                sides.new_at(&format!("joint.{name}"), Class::Incomparable, says, shown(new));
            }
            Pair::Renamed(old, new) => sides.renamed("joint", old, new),
            Pair::Both(name, old, new) => {
                let clause = &format!("joint.{name}");
                let Joint::GdnGates { log, alpha, beta, raw, classes } = old;
                let Joint::GdnGates { log: l, alpha: al, beta: b, raw: r, classes: others } = new;
                let roles = |log: &str,
                             alpha: &Option<String>,
                             beta: &str,
                             raw: &Option<RawGates>| {
                    shown(
                        &serde_json::json!({"log": log, "alpha": alpha, "beta": beta, "raw": raw}),
                    )
                };
                let (ours, theirs) = (roles(log, alpha, beta, raw), roles(l, al, b, r));
                sides.either(clause, &format!("the tensors of {name}"), &ours, &theirs);
                let texts = |all: &[_]| all.iter().map(shown).collect::<Vec<_>>();
                sides.members(
                    clause,
                    &texts(classes),
                    &texts(others),
                    &|lost| format!("class {lost} of {name} no longer drawn"),
                    &|gained| format!("class {gained} of {name} now drawn"),
                );
            }
        }
    }
}

/// `nan`: fewer inputs with NaN and a wider reach are looser.
pub fn nan(sides: &mut Sides<'_>, before: Option<&NanPolicy>, after: Option<&NanPolicy>) {
    let empty = NanPolicy { into: Vec::new(), reach: Named::new() };
    let NanPolicy { into, reach } = before.unwrap_or(&empty);
    let new = after.unwrap_or(&empty);
    sides.members(
        "nan.into",
        into,
        &new.into,
        &|lost| format!("NaN no longer planted in {lost}"),
        &|gained| format!("NaN now planted in {gained}"),
    );
    let wide = |policy: &NanPolicy| policy.reach.values().any(|reach| *reach != Reach::Exact);
    if wide(before.unwrap_or(&empty)) || wide(new) {
        widened(sides, into, &new.into);
    }
    let names = reach.keys().chain(new.reach.keys().filter(|name| !reach.contains_key(*name)));
    for name in names {
        reach_of(sides, name, reach.get(name).copied(), new.reach.get(name).copied());
    }
}

/// Where NaN was legal without being planted, planting it also lets `nan.reach` excuse it.
fn widened(sides: &mut Sides<'_>, before: &[String], after: &[String]) {
    let legal = |contract: &Contract, name: &String| {
        let any = |domain: &Domain| *domain == Domain::Any;
        contract.tensors.get(name).and_then(|t| t.domain.as_ref()).is_some_and(
            |domain| match domain {
                By::Always(domain) => any(domain),
                By::Option { by } => by.values().flat_map(|table| table.values()).any(any),
            },
        )
    };
    let (old, new) = (sides.before, sides.after);
    for name in before.iter().filter(|name| !after.contains(name) && legal(new, name)) {
        let says = format!("NaN in `{name}` no longer widens what outputs may be");
        sides.gone("nan.into", Class::Tightened, says, name.clone());
    }
    for name in after.iter().filter(|name| !before.contains(name) && legal(old, name)) {
        let says = format!("NaN in `{name}` now widens what outputs may be, as `nan.reach` says");
        sides.new_at("nan.into", Class::Loosened, says, name.clone());
    }
}

/// Without a word NaN may reach exactly what the reference says, and nobody counts whether it was tried.
fn reach_of(sides: &mut Sides<'_>, name: &str, before: Option<Reach>, after: Option<Reach>) {
    if before == after {
        return;
    }
    let width = |reach: Option<Reach>| match reach {
        None | Some(Reach::Exact) => 0,
        Some(Reach::Row) => 1,
        Some(Reach::Chunk) => 2,
    };
    // A chunk is made of whole rows only where a row has an axis of its own below its head's.
    let axes = |contract: &Contract| contract.tensors.get(name).map_or(0, |t| t.shape.len());
    let nested = axes(sides.before).min(axes(sides.after)) >= 3;
    let (narrow, wide) = (width(before).min(width(after)), width(before).max(width(after)));
    let clause = &format!("nan.{name}");
    let texts = (before.map(|reach| shown(&reach)), after.map(|reach| shown(&reach)));
    let word = |text: &Option<String>| named(text.as_deref().unwrap_or(""));
    let says = format!("NaN may reach in {name}: {} → {}", word(&texts.0), word(&texts.1));
    let class = match width(before).cmp(&width(after)) {
        _ if narrow == 1 && wide == 2 && !nested => Class::Incomparable,
        std::cmp::Ordering::Less => Class::Loosened,
        std::cmp::Ordering::Greater => Class::Tightened,
        std::cmp::Ordering::Equal if before.is_none() => Class::Tightened,
        std::cmp::Ordering::Equal => Class::Loosened,
    };
    sides.push(clause, class, says, texts);
}
