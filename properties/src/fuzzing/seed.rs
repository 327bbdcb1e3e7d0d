//! A stored case as an input of a fuzz target: the case's own text, then tape records. Without records
//! it decodes to exactly that case; with some, to the case with what they change in a draw changed in
//! it, so a fuzzer goes on from everything known.

use crate::choices::{Answer, Tape};
use crate::generate::{Discard, Draw, complete, draw};
use crate::replay::examination;
use crate::subject::Subject;
use crate::values::set_element;
use contracts::case::{Case, Content, Decisions};
use contracts::case_yaml::read_case;
use contracts::dtype::DType;
use contracts::geometry::Geometry;
use std::collections::HashMap;

/// The first bytes of such an input.
const MARK: &[u8; 4] = b"case";
/// The mark and the length of the text.
const HEAD_BYTES: usize = 8;
/// A record of a tape; texts are padded to a multiple.
const RECORD_BYTES: usize = 8;
/// Longest input that libFuzzer takes without being told.
pub const LONGEST_INPUT_BYTES: usize = 1 << 20;
/// Records that change at most this many elements of a tensor change those; others its whole contents.
const FEW_ELEMENTS: usize = 16;
/// A text with larger sizes, tensors without elements among them, is an edit's invention: no contract
/// draws any, and no launch counts so far.
const LARGEST_SIZE: i64 = i32::MAX as i64;
/// Cases remembered by their text.
const MOST_REMEMBERED: usize = 256;

/// The input that decodes to the case of this text; `None` when it would be longer than a fuzzer takes.
pub fn input_of(text: &str) -> Option<Vec<u8>> {
    let len = u32::try_from(text.len()).ok()?;
    let mut bytes = MARK.to_vec();
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(RECORD_BYTES), 0);
    (bytes.len() <= LONGEST_INPUT_BYTES).then_some(bytes)
}

/// The text and the records of an input that holds a case.
fn parts(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = bytes.strip_prefix(MARK)?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let padded = len.checked_next_multiple_of(RECORD_BYTES)?;
    let (text, records) = rest.split_at_checked(padded)?;
    Some((&text[..len], records))
}

/// Bytes at the front of an input that hold no record.
pub(super) fn head_bytes(bytes: &[u8]) -> usize {
    parts(bytes).map_or(HEAD_BYTES, |(_, records)| bytes.len() - records.len())
}

/// Decodes inputs of one subject.
pub struct Decoder {
    subject: &'static Subject,
    known: HashMap<Vec<u8>, Option<Case>>,
}

/// A case, or why these bytes make none, and the decisions that were asked for on the way.
pub type Decoded = (Result<Draw, Discard>, Vec<(u16, Answer)>);

impl Decoder {
    /// For one subject.
    pub fn new(subject: &'static Subject) -> Decoder {
        Decoder { subject, known: HashMap::new() }
    }

    /// The case of these bytes.
    pub fn decode(&mut self, bytes: &[u8]) -> Decoded {
        let Some((text, records)) = parts(bytes) else {
            let mut tape = Tape::new(bytes);
            let drawn = draw(self.subject, &mut tape);
            return (drawn, tape.asked);
        };
        // Every decision without a record takes its first choice: what the records change is theirs.
        let mut head = vec![0; HEAD_BYTES];
        let mut plain = Tape::new(&head);
        head.extend_from_slice(records);
        let mut changed = Tape::new(&head);
        let before = draw(self.subject, &mut plain);
        let after = draw(self.subject, &mut changed);
        let subject = self.subject;
        let drawn = match self.base(text) {
            None => Err(Discard("the text is no case of this contract".to_owned())),
            Some(base) => joined(subject, base, before, after),
        };
        (drawn, changed.asked)
    }

    fn base(&mut self, text: &[u8]) -> Option<&Case> {
        if self.known.len() >= MOST_REMEMBERED {
            self.known.clear();
        }
        let contract = self.subject.contract;
        let read = || {
            let lookup = |name: &str| (name == contract.contract).then_some(contract);
            let case = read_case(std::str::from_utf8(text).ok()?, "the input", &lookup).ok()?;
            case.dims.values().all(|size| *size <= LARGEST_SIZE).then_some(case)
        };
        if !self.known.contains_key(text) {
            self.known.insert(text.to_vec(), read());
        }
        self.known.get(text)?.as_ref()
    }
}

/// The case with the differences between two draws.
fn joined(
    subject: &Subject,
    base: &Case,
    before: Result<Draw, Discard>,
    after: Result<Draw, Discard>,
) -> Result<Draw, Discard> {
    let (before, after) = (before?, after?);
    let examine =
        if before.examine == after.examine { examination(base) } else { after.examine.clone() };
    if before.case == after.case {
        return Ok(Draw { case: base.clone(), examine });
    }
    let (old, new) = (&before.case, &after.case);
    let mut case = Case { found: None, ..base.clone() };
    take_changed(&mut case.dtypes, &old.dtypes, &new.dtypes);
    take_changed(&mut case.options, &old.options, &new.options);
    take_changed(&mut case.variants, &old.variants, &new.variants);
    take_changed(&mut case.dims, &old.dims, &new.dims);
    take_changed(&mut case.scalars, &old.scalars, &new.scalars);
    take_changed(&mut case.stores, &old.stores, &new.stores);
    take_changed_items(&mut case.lists, &old.lists, &new.lists);
    if old.poison != new.poison {
        case.poison = new.poison;
    }
    if old.schedule != new.schedule {
        case.schedule = new.schedule;
    }
    // Sizes first: an element has a place only once they are settled.
    let legal = |case: &mut Case| {
        complete(subject.contract, case).and_then(|()| Geometry::of(subject.contract, case))
    };
    let refused = |error: contracts::CaseError| Discard(error.to_string());
    let geometry = legal(&mut case).map_err(refused)?;
    for (name, now) in &new.tensors {
        let (Some(was), Some(place)) = (old.tensors.get(name), geometry.tensor(name)) else {
            continue;
        };
        let Some(tensor) = case.tensors.get_mut(name) else { continue };
        if was.layout != now.layout {
            tensor.layout = now.layout;
        }
        take_changed_elements(
            &mut tensor.content,
            (place.dtype, place.count()),
            &was.content,
            &now.content,
        );
    }
    legal(&mut case).map_err(refused)?;
    Ok(Draw { case, examine })
}

fn take_changed<T: Clone + PartialEq>(
    into: &mut Decisions<T>,
    old: &Decisions<T>,
    new: &Decisions<T>,
) {
    for (name, value) in new.iter().filter(|(name, value)| old.get(*name) != Some(value)) {
        into.insert(name.clone(), value.clone());
    }
}

/// Lists of one length change item by item; others as a whole.
fn take_changed_items(
    into: &mut Decisions<Vec<i64>>,
    old: &Decisions<Vec<i64>>,
    new: &Decisions<Vec<i64>>,
) {
    for (name, now) in new {
        let was = old.get(name).map_or(&[][..], Vec::as_slice);
        if was == now.as_slice() {
            continue;
        }
        let items = into.entry(name.clone()).or_default();
        if was.len() != now.len() {
            items.clone_from(now);
            continue;
        }
        for (index, item) in now.iter().enumerate().filter(|(index, item)| was[*index] != **item) {
            if let Some(place) = items.get_mut(index) {
                *place = *item;
            }
        }
    }
}

/// Contents of one size and type change element by element where few differ, else as a whole.
fn take_changed_elements(
    into: &mut Content,
    (dtype, count): (DType, u64),
    was: &Content,
    now: &Content,
) {
    let is_drawn = |content: &Content| !matches!(content, Content::Derived | Content::Output);
    let same_size = match (was, now) {
        (Content::Dense(was), Content::Dense(now)) => was.len() == now.len(),
        _ => true,
    };
    if was == now || !same_size || ![&*into, was, now].into_iter().all(is_drawn) {
        return;
    }
    let differing: Vec<u64> = match (was, now) {
        (Content::Dense(bytes), Content::Dense(_)) => {
            let elements = (bytes.len() as u64) / dtype.size_bytes();
            let differs = |flat: &u64| now.bits(dtype, *flat) != was.bits(dtype, *flat);
            (0..elements).filter(differs).take(FEW_ELEMENTS + 1).collect()
        }
        (Content::Sparse { fill: a, .. }, Content::Sparse { fill: b, at }) if a == b => {
            at.keys().copied().take(FEW_ELEMENTS + 1).collect()
        }
        _ => Vec::new(),
    };
    if differing.is_empty() || differing.len() > FEW_ELEMENTS {
        into.clone_from(now);
        return;
    }
    for flat in differing.into_iter().filter(|flat| *flat < count) {
        set_element(into, dtype, flat, now.bits(dtype, flat));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::{Path, Seeded, mix};
    use crate::examine::Examine;
    use contracts::case_yaml::write_case;

    fn record(path: Path, value: u64) -> Vec<u8> {
        let mut bytes = path.key().to_le_bytes().to_vec();
        bytes.extend_from_slice(&value.to_le_bytes()[..6]);
        bytes
    }

    /// A drawn case, as text and as the bytes of an input.
    fn input(subject: &Subject, seed: u64) -> Option<(Case, Vec<u8>)> {
        let case = draw(subject, &mut Seeded { seed }).ok()?.case;
        let bytes = input_of(&write_case(&case, subject.contract, None))?;
        Some((case, bytes))
    }

    #[test]
    fn an_input_without_records_is_exactly_its_case() {
        for subject in crate::subject::known_subjects() {
            let mut decoder = Decoder::new(subject);
            for number in 0..20 {
                let Some((case, bytes)) = input(subject, mix(3, number)) else { continue };
                let (drawn, asked) = decoder.decode(&bytes);
                let drawn = drawn.expect("it decodes");
                // Contents may be written otherwise; the text says every bit.
                let text = |case: &Case| write_case(case, subject.contract, None);
                assert_eq!(text(&drawn.case), text(&case));
                assert_eq!(drawn.examine, Examine::Kernel);
                assert!(!asked.is_empty(), "a mutator needs keys");
            }
        }
    }

    #[test]
    fn records_change_what_they_name_and_leave_the_rest() {
        let subject = crate::subject::subject("argmax_rows").expect("a production subject");
        let mut decoder = Decoder::new(subject);
        let mut changed = [0; 3];
        for number in 0..60 {
            let Some((case, bytes)) = input(subject, mix(5, number)) else { continue };
            let mut with = |record: Vec<u8>| {
                let bytes = [bytes.clone(), record].concat();
                decoder.decode(&bytes).0.ok().map(|draw| draw.case)
            };
            if let Some(now) = with(record(Path::new("poison"), 1)) {
                assert_eq!(now.dims, case.dims);
                assert_eq!(now.poison, contracts::dtype::Poison::Signalling);
                changed[0] += 1;
            }
            if let Some(now) = with(record(Path::new("options").child("value_kind"), 1)) {
                assert_eq!(now.options["value_kind"], "f32");
                assert_eq!((&now.dims, &now.dtypes), (&case.dims, &case.dtypes));
                changed[1] += 1;
            }
            if let Some(now) = with(record(Path::new("no such decision"), 1)) {
                assert_eq!(now, case_as_read(subject, &case));
                changed[2] += 1;
            }
        }
        assert!(changed.iter().all(|count| *count >= 30), "{changed:?}");
    }

    fn case_as_read(subject: &Subject, case: &Case) -> Case {
        let text = write_case(case, subject.contract, None);
        read_case(&text, "", &|_| Some(subject.contract)).expect("it was written")
    }

    #[test]
    fn bytes_that_hold_no_whole_case_are_refused_or_a_tape() {
        let subject = crate::subject::subject("argmax_rows").expect("a production subject");
        let mut decoder = Decoder::new(subject);
        let bytes = input_of("case: 1\ncontract: another\n").expect("short");
        assert!(decoder.decode(&bytes).0.is_err());
        let (_, whole) = input(subject, 1).expect("drawn");
        // Cut inside the text, the length lies: what is left is a tape like any other bytes.
        for cut in [0, 3, 7, 8, 20, whole.len() - 1] {
            let _ = decoder.decode(&whole[..cut]);
        }
        let mut endless = whole.clone();
        endless[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(head_bytes(&endless), HEAD_BYTES);
        let _ = decoder.decode(&endless);
        assert_eq!(head_bytes(&whole), whole.len());
        assert_eq!(head_bytes(&[whole.clone(), vec![1; 24]].concat()), whole.len());
    }

    #[test]
    fn a_text_with_sizes_beyond_all_launches_is_no_case() {
        let subject = crate::subject::subject("argmax_rows").expect("a production subject");
        let mut decoder = Decoder::new(subject);
        let fixture = contracts::format::Fixture {
            dims: [("R".to_owned(), 0), ("V".to_owned(), 1025)].into_iter().collect(),
            ..Default::default()
        };
        let mut choices = Seeded { seed: 2 };
        let drawn = crate::generate::draw_assigned(subject, &fixture, &mut choices);
        let text = write_case(&drawn.expect("drawn"), subject.contract, None);
        let mut decoded = |columns: &str| {
            let text = text.replace("V: 1025", columns);
            decoder.decode(&input_of(&text).expect("short")).0.is_ok()
        };
        assert!(decoded("V: 1025") && decoded("V: 9025"));
        assert!(!decoded("V: 69000000000"));
    }

    #[test]
    fn a_case_too_long_for_a_fuzzer_is_no_input() {
        assert!(input_of(&"x".repeat(LONGEST_INPUT_BYTES - 8)).is_some());
        assert!(input_of(&"x".repeat(LONGEST_INPUT_BYTES - 7)).is_none());
    }
}
