//! Further cases for a mutant that the suite left alive. Thousands of lines of unrolled code are reached
//! by few of a suite's questions, and with few values; so a survivor is asked a fixed number of cases
//! that are built like those which reach it, with other contents. They come from the generator that
//! every search uses, and the unchanged kernel must answer a case as the reference does before the case
//! may judge anyone.

use super::suite::{Member, Origin};
use crate::choices::{Choices, Path, Seeded, mix};
use crate::generate;
use crate::subject::Subject;
use contracts::case::{Case, Layout};
use contracts::format::{Fixture, LayoutKind, Word};

/// Cases that a survivor of the suite is asked besides.
pub const CASES: u64 = 256;
/// First seed of their contents: one for every mutant, so that a score depends on nothing but its
/// mutants.
const SEED: u64 = 0x6675_7274;

/// The case of this number for a mutant that these questions reach; `None` when the generator refuses
/// what it was given.
pub fn case(reaching: &[&Member<'_>], number: u64) -> Option<Case> {
    let mut choices = Seeded { seed: mix(SEED, number) };
    let which = choices.choose(Path::new("member"), reaching.len() as u64) as usize;
    let member = reaching.get(which)?;
    let subject = member.prepared.subject;
    let keeps_values = choices.choose(Path::new("keeps_values"), 4) != 0;
    let assigned = like(subject, member, keeps_values);
    generate::draw_assigned(subject, &assigned, &mut choices).ok()
}

/// What a member's case decides about which instructions run: types, options, sizes, lengths and
/// layouts; and, where they are a fixture's, the generators of its values.
fn like(subject: &Subject, member: &Member<'_>, keeps_values: bool) -> Fixture {
    let case = member.prepared.case;
    let mut assigned = Fixture::default();
    let words = |from: &contracts::case::Decisions<String>| {
        from.iter().map(|(name, word)| (name.clone(), Word(word.clone()))).collect()
    };
    assigned.dtypes = case.dtypes.iter().map(|(name, dtype)| (name.clone(), *dtype)).collect();
    assigned.options = words(&case.options);
    assigned.variants = words(&case.variants);
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
        assigned.layout.insert(name.clone(), kind_of(tensor.layout));
    }
    let fixture = match member.origin {
        Origin::Fixture(name) => subject.contract.fixtures.get(name),
        Origin::Corpus(_) | Origin::Fresh(_) => None,
    };
    if let Some(fixture) = fixture.filter(|_| keeps_values) {
        assigned.values = fixture.values.clone();
        assigned.joint = fixture.joint.clone();
    }
    assigned
}

fn kind_of(layout: Layout) -> LayoutKind {
    match layout {
        Layout::Dense => LayoutKind::Dense,
        Layout::RowPadded(_) => LayoutKind::RowPadded,
        Layout::OuterPadded(_) => LayoutKind::OuterPadded,
        Layout::Offset(_) => LayoutKind::Offset,
        Layout::Wide => LayoutKind::Wide,
        Layout::Rank0 => LayoutKind::Rank0,
    }
}
