//! Planted failures, judged without a kernel, must end at their known minimum.

use super::*;
use crate::verdict::Disagreement;
use contracts::case::{CaseTensor, Content, Decisions, Fill, Layout, Schedule, StoreForm};
use contracts::dtype::{DType, Poison};
use contracts::format::{Access, Contract};
use contracts::geometry::Geometry;
use std::collections::BTreeMap;

const MINUTE: Duration = Duration::from_secs(60);

fn contract(name: &str) -> &'static Contract {
    contracts::contract(name)
        .or(contracts::canary().filter(|c| c.contract == name))
        .expect("a built-in contract")
}

fn words<T: Clone>(pairs: &[(&str, T)]) -> Decisions<T> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn hashed(dtype: DType, count: u64, seed: u64) -> Content {
    let mut bytes = Vec::new();
    for index in 0..count {
        let unit = (contracts::case::hashed_bits(seed, index) >> 40) as f64 / f64::from(1 << 24);
        dtype.push_bytes(dtype.round_from_f64(unit * 0.08 + 0.01), &mut bytes);
    }
    Content::Dense(bytes)
}

fn negated(content: Content, dtype: DType) -> Content {
    let Content::Dense(bytes) = content else { return content };
    let size = dtype.size_bytes() as usize;
    let mut out = Vec::new();
    for element in bytes.chunks_exact(size) {
        dtype.push_bytes(dtype.from_bytes(element) | 1 << (8 * size - 1), &mut out);
    }
    Content::Dense(out)
}

/// Contents for every tensor of a case whose decisions are made.
fn fill(contract: &Contract, mut case: Case) -> Case {
    crate::generate::complete(contract, &mut case).expect("decisions are complete");
    let scope = contracts::CaseScope::new(contract, &case);
    let mut contents = Vec::new();
    for (seed, (name, tensor)) in contract.tensors.iter().enumerate() {
        let access = tensor.access.resolve(&case.options).copied();
        if tensor.from.is_some()
            || access == Some(Access::Write)
            || !case.tensors.contains_key(name)
        {
            continue;
        }
        let dtype = tensor.dtype.resolve(&case.dtypes).expect("a type");
        let count =
            tensor.shape.iter().map(|axis| axis.eval_int(&scope).expect("a size") as u64).product();
        let content = hashed(dtype, count, seed as u64);
        contents.push((name.clone(), if name == "g" { negated(content, dtype) } else { content }));
    }
    for (name, content) in contents {
        case.tensors[&name].content = content;
    }
    Geometry::of(contract, &case).expect("a legal case");
    case
}

fn empty_case(contract: &Contract) -> Case {
    Case {
        contract: contract.contract.clone(),
        version: contract.version,
        found: None,
        dtypes: contract.dtypes.iter().map(|(name, all)| (name.clone(), all[0])).collect(),
        options: contract
            .options
            .iter()
            .map(|(name, all)| (name.clone(), all[0].clone()))
            .collect(),
        variants: contract
            .variants
            .iter()
            .map(|(name, v)| (name.clone(), v.values[0].0.clone()))
            .collect(),
        dims: Decisions::new(),
        lists: Decisions::new(),
        scalars: Decisions::new(),
        stores: contract.stores.keys().map(|name| (name.clone(), StoreForm::Separate)).collect(),
        poison: Poison::Signalling,
        schedule: Schedule::Seeded(9),
        tensors: Decisions::new(),
    }
}

fn argmax_case() -> Case {
    let contract = contract("argmax_rows");
    let mut case = empty_case(contract);
    case.dtypes = words(&[("x", DType::BF16)]);
    case.options = words(&[("value_kind", "f32".to_owned())]);
    case.variants = words(&[("blocks_per_row", "4".to_owned())]);
    case.dims = words(&[("R", 4), ("V", 201)]);
    let mut case = fill(contract, case);
    case.tensors["x"].layout = Layout::RowPadded(13);
    case
}

fn chunk_case() -> Case {
    let contract = contract("gdn_chunk");
    let mut case = empty_case(contract);
    case.dtypes = words(&[("io", DType::F16), ("state", DType::F32), ("index", DType::I64)]);
    case.options.insert("head_map".to_owned(), "cyclic".to_owned());
    case.dims = words(&[
        ("N", 3),
        ("rows", 212),
        ("Hk", 2),
        ("Hv", 6),
        ("Dk", 64),
        ("Dv", 32),
        ("slots", 5),
    ]);
    case.lists = words(&[("seq_len", vec![70, 0, 140]), ("slot", vec![4, -1, 2])]);
    case.scalars = words(&[("scale", 0x3f123456)]);
    case.stores = words(&[("qkv", StoreForm::Separate), ("gates", StoreForm::Packed { pad: 3 })]);
    let mut case = fill(contract, case);
    case.tensors["v"].layout = Layout::RowPadded(24);
    case.tensors["q"].layout = Layout::Offset(16);
    Geometry::of(contract, &case).expect("still legal");
    case
}

fn canary_case() -> Case {
    let contract = contract("canary_row_sum");
    let mut case = empty_case(contract);
    case.dims = words(&[("R", 3), ("n", 187)]);
    let mut case = fill(contract, case);
    case.tensors["x"].layout = Layout::Offset(7);
    case
}

fn fails(tensor: &str) -> Verdict {
    Verdict::Disagree(Box::new(Disagreement {
        clause: "tolerance.planted".to_owned(),
        tensor: Some(tensor.to_owned()),
        index: Vec::new(),
        expected: String::new(),
        observed: String::new(),
        written_by: String::new(),
        error: None,
        note: String::new(),
    }))
}

/// No single edit of a finished case keeps the failure.
fn assert_minimal(case: &Case, failing: &mut dyn FnMut(&Case, &Geometry) -> bool) {
    let contract = contract(&case.contract);
    let neighbours = neighbours(contract, case);
    for near in &neighbours {
        let geometry = Geometry::of(contract, near).expect("neighbours are legal");
        assert!(!failing(near, &geometry), "one more edit keeps the failure: {near:?}");
    }
}

/// Shrinks under a predicate, within the number of judgements a planted failure may cost.
fn minimum(case: &Case, mut failing: impl FnMut(&Case, &Geometry) -> bool) -> Case {
    let contract = contract(&case.contract);
    let judge = |case: &Case, failing: &mut dyn FnMut(&Case, &Geometry) -> bool| {
        let geometry = Geometry::of(contract, case).expect("only legal cases are judged");
        Some(if failing(case, &geometry) { fails("x") } else { Verdict::Agree })
    };
    assert!(
        judge(case, &mut failing).is_some_and(|v| v.is_failure()),
        "the failure is not in the case"
    );
    let subject = crate::subject::subject(&contract.contract).expect("a subject");
    let shrunk = shrink(subject, case, &fails("x"), &mut |case| judge(case, &mut failing), MINUTE);
    assert!(shrunk.finished);
    assert!(shrunk.tried < 400, "{} cases judged", shrunk.tried);
    println!("{}: {} judged, {} kept", case.contract, shrunk.tried, shrunk.kept);
    assert!(judge(&shrunk.case, &mut failing).is_some_and(|v| v.is_failure()));
    assert_minimal(&shrunk.case, &mut failing);
    shrunk.case
}

fn element(case: &Case, geometry: &Geometry, tensor: &str, at: &[u64]) -> f64 {
    let place = geometry.tensor(tensor).expect("present");
    let flat = at.iter().zip(&place.shape).fold(0, |flat, (index, extent)| flat * extent + index);
    place.dtype.to_f64(case.tensors[tensor].content.bits(place.dtype, flat))
}

fn blank() -> Content {
    Content::Sparse { fill: Fill::Bits(0), at: BTreeMap::new() }
}

fn only(index: u64, bits: u64) -> Content {
    Content::Sparse { fill: Fill::Bits(0), at: BTreeMap::from([(index, bits)]) }
}

fn dense(content: Content) -> CaseTensor {
    CaseTensor { layout: Layout::Dense, content }
}

#[test]
fn a_long_row_with_one_element_past_64() {
    let found = minimum(&canary_case(), |case, geometry| {
        let (rows, columns) = (case.dims["R"] as u64, case.dims["n"] as u64);
        (0..rows).any(|row| {
            (64..columns).any(|column| element(case, geometry, "x", &[row, column]) != 0.0)
        })
    });
    assert_eq!(found.dims, words(&[("R", 1), ("n", 65)]));
    assert_eq!(found.tensors["x"], dense(only(64, 0x3f80_0000)));
    assert_eq!((found.poison, found.schedule), (Poison::Quiet, Schedule::InOrder));
}

#[test]
fn a_case_that_fails_whatever_it_holds_becomes_the_first_of_everything() {
    let found = minimum(&chunk_case(), |_, _| true);
    let expected =
        [("N", 0), ("rows", 0), ("Hk", 1), ("Hv", 1), ("Dk", 32), ("Dv", 32), ("slots", 1)];
    assert_eq!(found.dims, words(&expected));
    assert_eq!(
        found.dtypes,
        words(&[("io", DType::F32), ("state", DType::F32), ("index", DType::I32)])
    );
    assert_eq!(found.options["head_map"], "block");
    assert!(found.stores.values().all(|form| *form == StoreForm::Separate));
    assert!(found.tensors.values().all(|tensor| tensor.layout == Layout::Dense));
    assert_eq!(found.scalars["scale"], 0x3f80_0000);
}

#[test]
fn two_sequences_with_rows() {
    let found = minimum(&chunk_case(), |case, _| {
        case.lists["seq_len"].iter().filter(|len| **len > 0).count() >= 2
    });
    assert_eq!(found.lists["seq_len"], [1, 1]);
    assert_eq!((found.dims["N"], found.dims["rows"], found.dims["slots"]), (2, 2, 2));
    assert_eq!(found.tensors["q"], dense(blank()));
}

#[test]
fn a_live_sequence_and_a_pad_get_the_first_slots() {
    let found = minimum(&chunk_case(), |case, _| {
        let slots = &case.lists["slot"];
        slots.contains(&-1) && slots.iter().any(|slot| *slot >= 0)
    });
    assert_eq!(found.lists["slot"], [0, -1]);
    assert_eq!((found.dims["slots"], found.dims["rows"]), (2, 0));
}

#[test]
fn a_sequence_of_65_rows_with_a_key_in_its_second_chunk() {
    let found = minimum(&chunk_case(), |case, geometry| {
        let lens = &case.lists["seq_len"];
        (0..lens.len()).any(|n| {
            let start = lens[..n].iter().sum::<i64>() as u64;
            (64..lens[n] as u64)
                .any(|row| element(case, geometry, "k", &[start + row, 0, 5]) != 0.0)
        })
    });
    assert_eq!(found.lists["seq_len"], [65]);
    assert_eq!(found.lists["slot"], [0]);
    assert_eq!((found.dims["Hk"], found.dims["Hv"], found.dims["rows"]), (1, 1, 65));
    assert_eq!(found.tensors["k"], dense(only(64 * 32 + 5, 0x3f80_0000)));
    assert_eq!(found.tensors["s"], dense(blank()));
}

#[test]
fn state_follows_its_slot_and_a_late_row_its_sequence() {
    // Sequence 2 lives in slot 2; its last row and that slot's state are what matters.
    let mut case = chunk_case();
    let (dv, dk) = (32, 64);
    case.tensors["s"].content = only(((2 * 6 + 3) * dv + 7) * dk + 9, 0x4040_0000);
    case.tensors["v"].content = only((209 * 6 + 4) * dv + 1, DType::F16.round_from_f64(5.0));
    let found = minimum(&case, |case, geometry| {
        let pairs = case.lists["seq_len"].iter().zip(&case.lists["slot"]);
        let mut start = 0;
        for (len, slot) in pairs {
            let rows = start..start + *len as u64;
            start = rows.end;
            let Ok(slot) = u64::try_from(*slot) else { continue };
            let heads = 0..case.dims["Hv"] as u64;
            let state =
                heads.clone().any(|h| element(case, geometry, "s", &[slot, h, 7, 9]) == 3.0);
            let value = rows.clone().any(|row| {
                heads.clone().any(|h| element(case, geometry, "v", &[row, h, 1]) != 0.0)
            });
            if state && value {
                return true;
            }
        }
        false
    });
    assert_eq!(
        (found.lists["seq_len"].as_slice(), found.lists["slot"].as_slice()),
        ([1].as_slice(), [0].as_slice())
    );
    let heads = found.dims["Hv"];
    assert!(found.dims["Hk"] == 1 && heads <= 2, "{heads} heads");
    assert!(
        matches!(&found.tensors["v"].content, Content::Sparse { at, .. } if at.values().eq([&0x3f80_0000]))
    );
    assert!(
        matches!(&found.tensors["s"].content, Content::Sparse { at, .. } if at.values().eq([&0x4040_0000]))
    );
}

#[test]
fn a_nan_is_kept_where_the_failure_needs_it() {
    let mut case = argmax_case();
    let Content::Dense(bytes) = &mut case.tensors["x"].content else { panic!("dense") };
    bytes[2 * (2 * 201 + 137)..][..2].copy_from_slice(&0x7fa5u16.to_le_bytes());
    let found = minimum(&case, |case, geometry| {
        (0..case.dims["R"] as u64).any(|r| {
            (0..case.dims["V"] as u64).any(|c| element(case, geometry, "x", &[r, c]).is_nan())
        })
    });
    assert_eq!(found.dims, words(&[("R", 1), ("V", 1)]));
    assert_eq!(found.dtypes["x"], DType::F32);
    assert!(DType::F32.is_nan(found.tensors["x"].content.bits(DType::F32, 0)));
    assert!(!found.tensors.contains_key("values"));
}

#[test]
fn a_padded_layout_is_kept_at_its_smallest() {
    let found = minimum(&argmax_case(), |case, _| {
        matches!(case.tensors["x"].layout, Layout::RowPadded(_)) && case.dims["R"] >= 2
    });
    assert_eq!(found.tensors["x"], CaseTensor { layout: Layout::RowPadded(1), content: blank() });
    assert_eq!(found.dims, words(&[("R", 2), ("V", 1)]));
    assert_eq!(found.variants["blocks_per_row"], "1");
}

#[test]
fn a_packed_store_and_a_late_dtype_are_kept_when_needed() {
    let found = minimum(&chunk_case(), |case, _| {
        case.dtypes["index"] == DType::I64 && case.stores["gates"] != StoreForm::Separate
    });
    assert_eq!(
        found.dtypes,
        words(&[("io", DType::F32), ("state", DType::F32), ("index", DType::I64)])
    );
    assert_eq!(found.stores["gates"], StoreForm::Packed { pad: 0 });
}

#[test]
fn a_table_too_large_to_hold_keeps_only_the_rows_named() {
    let contract = contract("ple_gather");
    let mut case = empty_case(contract);
    case.dims = words(&[("R", 2_500_012), ("W", 160), ("n", 5)]);
    case.lists = words(&[("id", vec![3, 2_499_999, -1, 2_499_999, 2_500_012])]);
    crate::generate::complete(contract, &mut case).expect("decisions are complete");
    case.tensors["codes"] = CaseTensor {
        layout: Layout::Dense,
        content: Content::Sparse { fill: Fill::Hashed { seed: 9 }, at: BTreeMap::new() },
    };
    case.tensors["scale"] = dense(Content::Dense(vec![0x81, 0x3f]));
    Geometry::of(contract, &case).expect("legal");
    let code = contracts::case::hashed_bits(9, 2_499_999 * 160 + 17) & 0xff;
    let found = minimum(&case, |case, _| {
        let content = &case.tensors["codes"].content;
        let rows = case.dims["R"];
        case.lists["id"].iter().any(|id| {
            (0..rows).contains(id) && content.bits(DType::E4M3, *id as u64 * 160 + 17) == code
        })
    });
    assert_eq!((found.dims["R"], found.dims["n"]), (7, 1));
    assert_eq!(found.lists["id"], [0]);
    assert_eq!(found.tensors["codes"], dense(only(17, code)));
    assert_eq!(
        found.tensors["scale"],
        dense(Content::Sparse { fill: Fill::Bits(0x3f80), at: BTreeMap::new() })
    );
}

#[test]
fn another_clause_or_tensor_is_another_failure() {
    let case = canary_case();
    let subject = crate::subject::subject("canary_row_sum").expect("a subject");
    let shrunk = shrink(subject, &case, &fails("x"), &mut |_| Some(fails("y")), MINUTE);
    assert!(shrunk.case == case && shrunk.finished);
    assert_eq!(shrunk.kept, 0);
}

#[test]
fn no_time_means_no_judgement_and_an_unfinished_shrink() {
    let case = canary_case();
    let subject = crate::subject::subject("canary_row_sum").expect("a subject");
    let shrunk = shrink(subject, &case, &fails("x"), &mut |_| panic!("judged"), Duration::ZERO);
    assert_eq!((shrunk.tried, shrunk.finished, shrunk.verdict), (0, false, fails("x")));
}

#[test]
fn the_same_failure_shrinks_the_same_way_twice() {
    let steps = |_: u32| {
        let mut seen = Vec::new();
        let case = chunk_case();
        let mut stepper = Stepper::new(contract("gdn_chunk"), case);
        while let Some(candidate) = stepper.candidate(&|| true) {
            let fails = candidate.lists["seq_len"].iter().any(|len| *len > 17);
            seen.push(candidate.clone());
            if fails { stepper.keep() } else { stepper.reject() }
        }
        (seen, stepper.into_case())
    };
    assert!(steps(0) == steps(1));
}

/// The largest finite element of the first tensor that is neither derived nor an output.
fn largest(case: &Case, geometry: &Geometry) -> Option<f64> {
    let held = |content: &Content| !matches!(content, Content::Derived | Content::Output);
    let place = geometry.tensors.iter().find(|place| held(&case.tensors[&place.name].content))?;
    let content = &case.tensors[&place.name].content;
    let listed = place.count() <= 1 << 18;
    let elements: Vec<u64> = match content {
        Content::Sparse { at, .. } if !listed => at.keys().copied().collect(),
        _ => (0..place.count().min(1 << 18)).collect(),
    };
    let values =
        elements.into_iter().map(|flat| place.dtype.to_f64(content.bits(place.dtype, flat)).abs());
    values.filter(|value| value.is_finite()).reduce(f64::max)
}

#[test]
fn drawn_cases_of_every_contract_end_with_one_element() {
    for subject in crate::subject::subjects().iter().chain(crate::subject::canary()) {
        let (mut shrunk_cases, mut most) = (0, 0);
        for seed in 0..400 {
            let Ok(draw) = crate::generate::draw(subject, &mut crate::choices::Seeded { seed })
            else {
                continue;
            };
            let fails_now = |case: &Case| {
                let geometry = Geometry::of(subject.contract, case).expect("legal");
                largest(case, &geometry).is_some_and(|value| value > 0.25)
            };
            if !fails_now(&draw.case) {
                continue;
            }
            let mut judge =
                |case: &Case| Some(if fails_now(case) { fails("x") } else { Verdict::Agree });
            let shrunk = shrink(subject, &draw.case, &fails("x"), &mut judge, MINUTE);
            assert!(shrunk.finished, "{} seed {seed}: {} tried", subject.name(), shrunk.tried);
            assert!(shrunk.tried < 400, "{} seed {seed}: {} tried", subject.name(), shrunk.tried);
            let different: usize = shrunk
                .case
                .tensors
                .keys()
                .filter_map(|name| values::Edited::of(subject.contract, &shrunk.case, name))
                .map(|edited| edited.different().len())
                .sum();
            assert!(different <= 1, "{} seed {seed}: {:?}", subject.name(), shrunk.case);
            most = most.max(shrunk.tried);
            shrunk_cases += 1;
            if shrunk_cases == 25 {
                break;
            }
        }
        println!("{}: {shrunk_cases} drawn cases shrunk, at most {most} judged", subject.name());
        assert!(shrunk_cases >= 10, "{}: {shrunk_cases} cases", subject.name());
    }
}

/// A case and what fails of it.
type Planted = (Case, fn(&Case) -> bool);

/// What every thread count must agree on: a failure of structure, one of values, one of words.
fn planted() -> Vec<Planted> {
    vec![
        (chunk_case(), |case| case.lists["seq_len"].iter().filter(|len| **len > 17).count() >= 2),
        (argmax_case(), |case| {
            let geometry = Geometry::of(contract("argmax_rows"), case).expect("legal");
            largest(case, &geometry).is_some_and(|value| value > 0.05) && case.dims["V"] > 69
        }),
        (canary_case(), |case| case.poison == Poison::Signalling),
    ]
}

#[test]
fn any_number_of_threads_ends_at_the_same_case_after_the_same_steps() {
    for (case, failing) in planted() {
        let subject = crate::subject::subject(&case.contract).expect("a subject");
        let judge =
            || move |case: &Case| Some(if failing(case) { fails("x") } else { Verdict::Agree });
        let alone = shrink(subject, &case, &fails("x"), &mut judge(), MINUTE);
        assert!(alone.finished && alone.kept > 2, "{alone:?}");
        for threads in [1, 2, 7] {
            let shrunk = shrink_on_threads(subject, &case, &fails("x"), threads, &judge, MINUTE);
            assert_eq!(shrunk, alone, "{threads} threads");
        }
    }
}

#[test]
fn candidates_looked_at_in_vain_are_offered_again() {
    let case = chunk_case();
    let failing = |case: &Case| case.lists["seq_len"].iter().any(|len| *len > 17);
    let walk = |ahead: usize| {
        let mut stepper = Stepper::new(contract("gdn_chunk"), case.clone());
        let mut judged = Vec::new();
        loop {
            let cases: Vec<Case> = stepper.candidates(ahead, &|| true).cloned().collect();
            if cases.is_empty() {
                return (judged, stepper.into_case());
            }
            let kept = cases.iter().position(failing);
            judged.extend(cases[..kept.map_or(cases.len(), |nth| nth + 1)].iter().cloned());
            match kept {
                Some(nth) => stepper.keep_nth(nth),
                None => stepper.reject(),
            }
        }
    };
    let one = walk(1);
    for ahead in [2, 5, 64] {
        assert!(walk(ahead) == one, "{ahead} ahead");
    }
}

#[test]
fn a_judge_that_panics_is_heard_on_every_number_of_threads() {
    let case = canary_case();
    let subject = crate::subject::subject("canary_row_sum").expect("a subject");
    for threads in [1, 3] {
        let shrunk = std::panic::catch_unwind(|| {
            let judge = || |_: &Case| -> Option<Verdict> { panic!("no judgement") };
            shrink_on_threads(subject, &case, &fails("x"), threads, &judge, MINUTE)
        });
        assert!(shrunk.is_err(), "{threads} threads");
    }
}

#[test]
fn a_case_that_could_be_smaller_has_a_neighbour_that_fails() {
    let case = canary_case();
    let canary = contract("canary_row_sum");
    let near = neighbours(canary, &case);
    assert!(near.len() > 500, "{} neighbours", near.len());
    assert!(near.iter().any(|near| near.poison == Poison::Quiet));
    assert!(near.iter().any(|near| near.dims["n"] == 65));
    assert!(near.iter().all(|near| *near != case));
    assert_eq!(elements_that_matter(canary, &case), 3 * 187);
}
