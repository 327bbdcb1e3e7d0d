//! Further cases for a mutant that the suite left alive. Thousands of lines of unrolled code are reached
//! by few of a suite's questions, and with few values; so a survivor is asked a fixed number of cases
//! that are built like those which reach it, with other contents. They come from the generator that
//! every search uses, and the unchanged kernel must answer a case as the reference does before the case
//! may judge anyone. Some also examine a relation that must hold bit for bit: it sees what a bound has room
//! for; and some borrow the values of a fixture that does not reach the mutant.

use super::suite::{Member, Origin};
use crate::choices::{Choices, Path, Seeded, mix};
use crate::examine::Examine;
use crate::generate::{self, Draw};
use crate::subject::Subject;
use contracts::CaseScope;
use contracts::case::Case;
use contracts::format::{Compare, Contract, Fixture, Relation, Word};

/// Cases that a survivor of the suite is asked besides.
pub const CASES: u64 = 384;
/// Cases after those, each with a relation.
const RELATED: u64 = 96;
/// Cases after those, each with some fixture's values.
const BORROWED: u64 = 192;
/// First seed of their contents: one for every mutant, so that a score depends on nothing but its
/// mutants.
const SEED: u64 = 0x6675_7274;
/// Elements by which a size is moved at most: those of a piece of 16 bytes.
const LARGEST_STEP: i64 = 8;

/// The further questions of a mutant that these questions reach, numbered.
pub fn questions<'s, 'a>(
    reaching: Vec<&'s Member<'a>>,
) -> impl Iterator<Item = (u64, Draw)> + use<'s, 'a> {
    (0..CASES + RELATED + BORROWED)
        .filter_map(move |number| Some((number, question(&reaching, number)?)))
}

fn question(reaching: &[&Member<'_>], number: u64) -> Option<Draw> {
    let contract = reaching.first()?.prepared.subject.contract;
    let case = case(reaching, number)?;
    let examine = if (CASES..CASES + RELATED).contains(&number) {
        relation_of(contract, &case, number)?
    } else {
        Examine::Kernel
    };
    Some(Draw::of(case, examine))
}

/// One of the relations that hold of this case bit for bit; `None` where there is none.
fn relation_of(contract: &Contract, case: &Case, number: u64) -> Option<Examine> {
    let scope = CaseScope::new(contract, case);
    let is_asked = |relation: &Relation| {
        relation.compare == Compare::Bits
            && relation.when.as_ref().is_none_or(|when| when.eval_bool(&scope).unwrap_or(false))
    };
    let names: Vec<&String> = contract
        .relations
        .iter()
        .filter(|(_, relation)| is_asked(relation))
        .map(|(name, _)| name)
        .collect();
    let mut choices = Seeded { seed: mix(SEED, number) };
    let which = choices.choose(Path::new("relation"), names.len() as u64) as usize;
    names.get(which).map(|name| Examine::Relation(format!("relations.{name}")))
}

/// The case of this number for a mutant that these questions reach; `None` when the generator refuses
/// what it was given.
fn case(reaching: &[&Member<'_>], number: u64) -> Option<Case> {
    let mut choices = Seeded { seed: mix(SEED, number) };
    let member = drawn_member(reaching, &mut choices)?;
    let subject = member.prepared.subject;
    let mut assigned = like(subject, member, &mut choices);
    if number >= CASES + RELATED {
        let fixtures = &subject.contract.fixtures;
        let which = choices.choose(Path::new("borrowed"), fixtures.len() as u64) as usize;
        let (_, fixture) = fixtures.get_index(which)?;
        assigned.values = fixture.values.clone();
        assigned.joint = fixture.joint.clone();
    }
    generate::draw_assigned(subject, &assigned, &mut choices).ok()
}

/// One of the questions: half the time any; else one of a drawn fixture, however few of its draws reach
/// the mutant, or of the origin that runs longest: what unrolled loops do last, only long rows show.
fn drawn_member<'m, 'a>(
    reaching: &[&'m Member<'a>],
    choices: &mut dyn Choices,
) -> Option<&'m Member<'a>> {
    let path = Path::new("member");
    let is_fixture = |member: &&&Member<'_>| matches!(member.origin, Origin::Fixture(_));
    let origin = match choices.choose(path.child("of"), 4) {
        0 => {
            let mut origins: Vec<&Origin> =
                reaching.iter().filter(is_fixture).map(|member| member.origin).collect();
            origins.dedup();
            let which = choices.choose(path.child("fixture"), origins.len() as u64) as usize;
            origins.get(which).copied()
        }
        1 => {
            let longest = reaching.iter().max_by_key(|member| member.instructions);
            longest.map(|member| member.origin)
        }
        _ => None,
    };
    let of_origin = |member: &&&Member<'_>| origin.is_none_or(|origin| origin == member.origin);
    let among = reaching.iter().filter(of_origin).count() as u64;
    reaching.iter().filter(of_origin).nth(choices.choose(path, among) as usize).copied()
}

/// What a member's case decides about which instructions run: types, options, sizes, lengths and
/// layouts; and, where they are a fixture's, the generators of its values. Now and then one option, or
/// the values, are drawn anew, and every other time one size is a little more or less: the end of a row
/// has as many cases as a piece has elements.
fn like(subject: &Subject, member: &Member<'_>, choices: &mut dyn Choices) -> Fixture {
    let case = member.prepared.case;
    let mut assigned = Fixture::default();
    let words = |from: &contracts::case::Decisions<String>| {
        from.iter().map(|(name, word)| (name.clone(), Word(word.clone()))).collect()
    };
    assigned.dtypes = case.dtypes.iter().map(|(name, dtype)| (name.clone(), *dtype)).collect();
    assigned.options = words(&case.options);
    assigned.variants = words(&case.variants);
    let path = Path::new("drawn_anew");
    if choices.choose(path, 3) == 2 {
        let which = choices.choose(path.child("option"), assigned.options.len() as u64) as usize;
        assigned.options.shift_remove_index(which);
    }
    assigned.dims = case.dims.iter().map(|(name, size)| (name.clone(), *size)).collect();
    for (name, items) in &case.lists {
        // Places and ids are contents; lengths say how long loops are.
        let list = subject.contract.lists.get(name);
        if list.is_some_and(|list| list.slots.is_none() && list.ids.is_none()) {
            assigned.lists.insert(name.clone(), items.clone());
        }
    }
    let is_held =
        |name: &String| subject.contract.stores.values().any(|store| store.holds.contains(name));
    for (name, tensor) in case.tensors.iter().filter(|(name, _)| !is_held(name)) {
        assigned.layout.insert(name.clone(), tensor.layout.kind());
    }
    let fixture = match member.origin {
        Origin::Fixture(name) => subject.contract.fixtures.get(name),
        Origin::Corpus(_) | Origin::Fresh(_) => None,
    };
    if let Some(fixture) = fixture.filter(|_| choices.choose(path.child("values"), 4) != 3) {
        assigned.values = fixture.values.clone();
        assigned.joint = fixture.joint.clone();
    }
    resize(subject, &mut assigned, choices);
    assigned
}

/// Moves a free size or a length by a quarter of itself at most, and by no more than a piece, every other
/// time; what follows from sizes is left to the generator then.
fn resize(subject: &Subject, assigned: &mut Fixture, choices: &mut dyn Choices) {
    let path = Path::new("resized");
    if choices.choose(path, 2) == 0 {
        return;
    }
    let contract = subject.contract;
    // The least that is drawn, and the size.
    let mut sizes: Vec<(i64, &mut i64)> = Vec::new();
    for (name, size) in &mut assigned.dims {
        let range = contract.dims.get(name).and_then(|dim| dim.range);
        sizes.extend(range.map(|[least, _]| (least, size)));
    }
    for (name, items) in &mut assigned.lists {
        let length = contract.lists.get(name).and_then(|list| list.length.as_ref());
        if let Some(length) = length {
            sizes.extend(items.iter_mut().map(|item| (length.range[0], item)));
        }
    }
    let which = choices.choose(path.child("which"), sizes.len() as u64) as usize;
    if let Some((least, size)) = sizes.into_iter().nth(which) {
        let most = (*size / 4).clamp(1, LARGEST_STEP);
        let by = choices.choose(path.child("by"), 2 * most as u64) as i64 - most;
        *size = (*size + by + i64::from(by >= 0)).max(least);
    }
    let follows = |name: &str| {
        contract.dims.get(name).is_some_and(|d| d.is.is_some() || d.segments.is_some())
    };
    assigned.dims.retain(|name, _| !follows(name));
}
