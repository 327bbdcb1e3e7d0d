//! Draws are legal, reach everything a contract mentions, and never change for a seed.

use super::*;
use crate::choices::{Seeded, Tape};
use crate::subject::{canary, subject, subjects};
use contracts::Geometry;
use contracts::case::{Content, Fill, Layout, StoreForm};
use contracts::format::{Dim, LayoutKind};
use std::collections::BTreeSet;

fn all_subjects() -> impl Iterator<Item = &'static Subject> {
    subjects().iter().chain(canary())
}

fn named(name: &str) -> &'static Subject {
    subject(name).unwrap_or_else(|| panic!("no subject {name}"))
}

fn cases(subject: &Subject, count: u64) -> impl Iterator<Item = Case> {
    (0..count).filter_map(|seed| draw(subject, &mut Seeded { seed }).ok()).map(|draw| draw.case)
}

#[test]
fn every_draw_is_legal_and_few_are_discarded() {
    for subject in all_subjects() {
        let contract = subject.contract;
        let mut discarded = 0;
        for seed in 0..2000 {
            match draw(subject, &mut Seeded { seed }) {
                Ok(draw) => {
                    let checked = Geometry::of(contract, &draw.case);
                    assert!(
                        checked.is_ok(),
                        "{} seed {seed}: {}",
                        contract.contract,
                        checked.unwrap_err()
                    );
                }
                Err(_) => discarded += 1,
            }
        }
        assert!(discarded <= 40, "{}: {discarded} of 2000 discarded", contract.contract);
    }
}

/// Every feature of a case that a contract mentions, as words.
fn features(contract: &Contract, case: &Case, into: &mut BTreeSet<String>) {
    for (name, dtype) in &case.dtypes {
        into.insert(format!("dtypes.{name}.{dtype}"));
    }
    for (section, words) in [("options", &case.options), ("variants", &case.variants)] {
        into.extend(words.iter().map(|(name, word)| format!("{section}.{name}.{word}")));
    }
    for (name, size) in &case.dims {
        into.insert(format!("dims.{name}.{size}"));
    }
    for (name, items) in &case.lists {
        into.extend(items.iter().map(|item| format!("lists.{name}.{item}")));
        let Some(ids) = &contract.lists[name].ids else { continue };
        for expr in &ids.invalid {
            let value = structure::integer(expr, &contracts::CaseScope::new(contract, case));
            if value.is_ok_and(|value| items.contains(&value)) {
                into.insert(format!("lists.{name}.invalid {expr}"));
            }
        }
    }
    for (name, form) in &case.stores {
        let packed = matches!(form, StoreForm::Packed { .. });
        into.insert(format!("stores.{name}.{}", if packed { "packed" } else { "separate" }));
    }
    for (name, tensor) in &case.tensors {
        into.insert(format!("tensors.{name}.{:?}", tensor.layout.kind()));
    }
    into.insert(format!("poison.{:?}", case.poison));
}

/// Every feature a contract mentions.
fn mentioned(contract: &Contract) -> BTreeSet<String> {
    let mut all = BTreeSet::from(["poison.Quiet".to_owned(), "poison.Signalling".to_owned()]);
    for (name, types) in &contract.dtypes {
        all.extend(types.iter().map(|dtype| format!("dtypes.{name}.{dtype}")));
    }
    for (name, words) in &contract.options {
        all.extend(words.iter().map(|word| format!("options.{name}.{word}")));
    }
    for (name, variant) in &contract.variants {
        all.extend(variant.values.iter().map(|word| format!("variants.{name}.{}", word.0)));
    }
    for (name, dim) in &contract.dims {
        let Dim { range, edges, one_of, .. } = dim;
        let ends = range.iter().flatten();
        all.extend(ends.chain(edges).chain(one_of).map(|size| format!("dims.{name}.{size}")));
    }
    for (name, list) in &contract.lists {
        if let Some(lengths) = &list.length {
            let all_lengths = lengths.range.iter().chain(&lengths.edges);
            all.extend(all_lengths.map(|length| format!("lists.{name}.{length}")));
        }
        if let Some(slots) = &list.slots {
            all.extend(slots.pad.iter().map(|pad| format!("lists.{name}.{pad}")));
        }
        if let Some(ids) = &list.ids {
            all.extend(ids.invalid.iter().map(|expr| format!("lists.{name}.invalid {expr}")));
        }
    }
    for name in contract.stores.keys() {
        all.extend(["packed", "separate"].map(|form| format!("stores.{name}.{form}")));
    }
    for (name, tensor) in &contract.tensors {
        all.extend(tensor.layout.iter().map(|kind| format!("tensors.{name}.{kind:?}")));
    }
    all
}

#[test]
fn every_edge_option_dtype_and_layout_is_reached() {
    for subject in all_subjects() {
        let contract = subject.contract;
        let mut missing = mentioned(contract);
        for case in cases(subject, 12_000) {
            if missing.is_empty() {
                break;
            }
            let mut seen = BTreeSet::new();
            features(contract, &case, &mut seen);
            missing.retain(|feature| !seen.contains(feature));
        }
        assert!(missing.is_empty(), "{}: never drawn: {missing:?}", contract.contract);
    }
}

#[test]
fn features_occur_alone_and_together() {
    let subject = named("gdn_chunk");
    let spare = |case: &Case| case.dims["rows"] > case.lists["seq_len"].iter().sum::<i64>();
    let pads = |case: &Case| case.lists["slot"].contains(&-1);
    let packed = |case: &Case| case.stores.values().any(|form| *form != StoreForm::Separate);
    let padded =
        |case: &Case| case.tensors.values().any(|t| matches!(t.layout, Layout::RowPadded(_)));
    let mut seen = BTreeSet::new();
    for case in cases(subject, 3000) {
        seen.insert([spare(&case), pads(&case), packed(&case), padded(&case)]);
    }
    assert_eq!(seen.len(), 16, "combinations seen: {seen:?}");
}

#[test]
fn small_cases_are_common_and_large_ones_rare() {
    for subject in all_subjects() {
        let plan = Plan::of(subject.contract);
        let start = std::time::Instant::now();
        let drawn: Vec<Case> = cases(subject, 2000).collect();
        let each = start.elapsed().as_secs_f64() * 1e6 / 2000.0;
        let mut units: Vec<u64> = Vec::new();
        for case in drawn {
            let mut choices = Seeded { seed: 0 };
            let source = Source {
                contract: subject.contract,
                plan: &plan,
                fixture: None,
                wish: None,
                production: false,
                swarm: Swarm(0),
                choices: &mut choices,
            };
            units.push(source.work(&case) / plan.unit);
        }
        units.sort_unstable();
        let (median, last) = (units[units.len() / 2], units[units.len() - 1]);
        let mean = units.iter().sum::<u64>() / units.len() as u64;
        let name = &subject.contract.contract;
        println!(
            "{name}: {each:.1} us a draw; median {median}, mean {mean}, largest {last} units of {}",
            plan.unit
        );
        assert!(median <= 64 && mean <= 256, "{name}: median {median}, mean {mean}");
    }
}

#[test]
fn sequences_often_cross_a_chunk_and_are_sometimes_empty() {
    let (mut crossing, mut empty) = (0, 0);
    for case in cases(named("gdn_chunk"), 2000) {
        crossing += u32::from(case.lists["seq_len"].iter().any(|length| *length > 64));
        empty += u32::from(case.lists["seq_len"].contains(&0));
    }
    println!("{crossing} of 2000 cross a chunk, {empty} have an empty sequence");
    assert!(crossing >= 200 && empty >= 100, "{crossing} and {empty} of 2000");
}

#[test]
fn nan_is_planted_now_and_then_where_the_contract_allows() {
    let subject = named("gdn_decode");
    let holds_nan = |case: &Case| {
        case.tensors.iter().any(|(name, tensor)| {
            let Some(dtype) = subject.contract.tensors[name].dtype.resolve(&case.dtypes) else {
                return false;
            };
            match &tensor.content {
                Content::Dense(bytes) => bytes
                    .chunks_exact(dtype.size_bytes() as usize)
                    .any(|element| dtype.is_nan(dtype.from_bytes(element))),
                Content::Sparse { at, .. } => at.values().any(|bits| dtype.is_nan(*bits)),
                Content::Derived | Content::Output => false,
            }
        })
    };
    let planted = cases(subject, 2000).filter(holds_nan).count();
    assert!((100..=300).contains(&planted), "{planted} of 2000");
}

#[test]
fn no_choices_make_the_simplest_case() {
    for subject in all_subjects() {
        let contract = subject.contract;
        let drawn = draw(subject, &mut Tape::new(&[])).expect("a zero tape is a case");
        assert_eq!(drawn.examine, Examine::Kernel);
        for (name, dim) in &contract.dims {
            let simplest = dim.range.map(|[low, _]| low).or(dim.one_of.first().copied());
            assert!(simplest.is_none_or(|size| drawn.case.dims[name] == size), "{name}");
        }
        for (name, tensor) in &drawn.case.tensors {
            assert_eq!(tensor.layout, Layout::Dense, "{name}");
            if let Content::Sparse { at, .. } = &tensor.content {
                assert!(at.is_empty(), "{name}");
            }
        }
        assert!(Geometry::of(contract, &drawn.case).is_ok());
    }
}

#[test]
fn a_record_of_a_tape_changes_its_decision_alone() {
    let subject = named("argmax_rows");
    let mut bytes = 1u64.to_le_bytes().to_vec();
    let before = draw(subject, &mut Tape::new(&bytes)).expect("a case").case;
    bytes.extend_from_slice(&Path::new("poison").key().to_le_bytes());
    let other = u64::from(before.poison == contracts::dtype::Poison::Quiet);
    bytes.extend_from_slice(&other.to_le_bytes()[..6]);
    let after = draw(subject, &mut Tape::new(&bytes)).expect("a case").case;
    assert_ne!(before.poison, after.poison);
    assert_eq!(Case { poison: before.poison, ..after }, before);
}

#[test]
fn fixtures_keep_what_they_assign() {
    for subject in all_subjects() {
        let contract = subject.contract;
        for (name, fixture) in &contract.fixtures {
            for seed in 0..40 {
                let case = draw_fixture(subject, name, &mut Seeded { seed })
                    .unwrap_or_else(|why| panic!("{}.{name}: {why}", contract.contract));
                let checked = Geometry::of(contract, &case);
                assert!(checked.is_ok(), "{}.{name}: {}", contract.contract, checked.unwrap_err());
                for (dim, size) in &fixture.dims {
                    assert_eq!(case.dims[dim], *size, "{name}.{dim}");
                }
                for (list, items) in &fixture.lists {
                    assert_eq!(case.lists[list], *items, "{name}.{list}");
                }
                for (option, word) in &fixture.options {
                    assert_eq!(case.options[option], word.0, "{name}.{option}");
                }
                for (tensor, kind) in &fixture.layout {
                    assert_eq!(case.tensors[tensor].layout.kind(), *kind, "{name}.{tensor}");
                }
            }
            draw_fixture(subject, name, &mut Tape::new(&[])).expect("the simplest completion");
        }
    }
    let unknown = draw_fixture(named("argmax_rows"), "all_eqal", &mut Tape::new(&[]));
    assert!(unknown.is_err_and(|why| why.0.contains("all_equal")));
}

#[test]
fn fixtures_are_as_rare_as_what_the_kernel_reads_of_them_is_large() {
    let of = |name: &str, fixture: &str| {
        let contract = named(name).contract;
        rarity(contract, &contract.fixtures[fixture])
    };
    // 40 places in a pool of small states; a table of 7 rows; k is no size of what is read.
    assert_eq!(of("gdn_chunk", "many_sequences"), 1);
    assert_eq!(of("ple_gather", "many_ids"), 1);
    assert_eq!(of("row_topk", "long_row"), 11);
    // Every part of a large table is looked at now and then, a large row seldom.
    assert_eq!(of("ple_gather", "whole_table"), rarity::RAREST);
    assert_eq!(of("row_topk", "all_in_flight"), 47);
    assert_eq!(of("ple_gather", "landmarks"), 1);
    // 300 flags are cleared, and no state is there; states are folded that are not much larger than the smallest.
    assert_eq!(of("gdn_write_on_accept", "many"), 1);
    assert_eq!(of("gdn_write_on_accept", "folds"), 2);
    assert_eq!(of("gdn_chunk", "hopper"), 7);
    // 33 rows of one group of 328: as wide as its groups are.
    assert_eq!(of("draft_conv", "steps"), 11);
}

#[test]
fn a_table_is_never_materialised() {
    let subject = named("ple_gather");
    let mut wide = 0;
    for case in cases(subject, 4000).filter(|case| case.dims["R"] > 1_000_000) {
        let codes = &case.tensors["codes"];
        wide += u32::from(codes.layout.kind() == LayoutKind::Wide);
        let Content::Sparse { fill, at } = &codes.content else { panic!("materialised") };
        assert!(matches!(fill, Fill::Hashed { .. }) || at.len() <= 4096 + 3);
    }
    assert!(wide > 0);
}

#[test]
fn completing_a_complete_case_changes_nothing() {
    for subject in all_subjects() {
        for case in cases(subject, 300) {
            let mut completed = case.clone();
            complete(subject.contract, &mut completed).expect("a legal case completes");
            assert_eq!(completed, case);
        }
    }
}

#[test]
fn edited_decisions_complete_to_a_legal_case() {
    let subject = named("gdn_chunk");
    for mut case in cases(subject, 400).filter(|case| case.dims["N"] > 1) {
        case.dims.insert("N".to_owned(), 1);
        case.dims.insert("Hk".to_owned(), 1);
        case.dims.insert("Hv".to_owned(), 1);
        case.dims.insert("slots".to_owned(), 0);
        case.dims.insert("rows".to_owned(), 0);
        case.lists.insert("seq_len".to_owned(), vec![3]);
        case.lists.insert("slot".to_owned(), vec![0]);
        complete(subject.contract, &mut case).expect("it completes");
        assert_eq!((case.dims["slots"], case.dims["rows"]), (1, 3));
        let laid_out = Geometry::layout_only(subject.contract, &case);
        assert!(laid_out.is_ok(), "{}", laid_out.unwrap_err());
        let flipped = if case.options["initial_state"] == "slot" { "zero" } else { "slot" };
        case.options.insert("initial_state".to_owned(), flipped.to_owned());
        complete(subject.contract, &mut case).expect("it completes");
        assert_eq!(case.tensors["s"].content == Content::Output, flipped == "zero");
    }
}

/// A digest of everything a case decides.
fn digest(case: &Case, hash: &mut u64) {
    let mut add = |bytes: &[u8]| {
        bytes.iter().for_each(|byte| *hash = crate::choices::mix(*hash, u64::from(*byte)));
    };
    add(case.contract.as_bytes());
    case.dtypes.values().for_each(|dtype| add(dtype.name().as_bytes()));
    case.options.values().chain(case.variants.values()).for_each(|word| add(word.as_bytes()));
    add(format!("{:?} {:?} {:?} {:?}", case.dims, case.lists, case.stores, case.poison).as_bytes());
    add(format!("{:?} {:?}", case.scalars, case.schedule).as_bytes());
    for (name, tensor) in &case.tensors {
        add(format!("{name} {:?}", tensor.layout).as_bytes());
        match &tensor.content {
            Content::Derived | Content::Output => add(&[1]),
            Content::Dense(bytes) => add(bytes),
            Content::Sparse { fill, at } => add(format!("{fill:?} {at:?}").as_bytes()),
        }
    }
}

#[test]
fn seeds_are_frozen() {
    let mut found = Vec::new();
    for subject in all_subjects() {
        let mut hash = 0;
        for case in cases(subject, 20) {
            digest(&case, &mut hash);
        }
        found.push((subject.contract.contract.as_str(), hash));
    }
    let frozen = vec![
        ("gdn_decode", 8864245976961975256),
        ("gdn_chunk", 2856820749594267599),
        ("gdn_verify", 14137557416459744691),
        ("gdn_write_on_accept", 13722333871910433659),
        ("gdn_gates", 16516713144934136020),
        ("qkvz_deinterleave", 15015460352751801201),
        ("causal_conv1d", 18386465129371387907),
        ("draft_conv", 8671617447486320429),
        ("state_convert", 12000342347794762816),
        ("kda_decode", 14117633641996556837),
        ("kda_chunk", 16287662072480788537),
        ("kda_qk_norm", 9260999985016650612),
        ("kda_gate", 15607618758814523074),
        ("gated_rms_norm", 12377756591066244458),
        ("ple_gather", 11197189606797649497),
        ("argmax_rows", 18304907030975610523),
        ("row_topk", 4882055797433127459),
        ("state_scatter", 15112657630244258807),
        ("canary_row_sum", 2593009785849775590),
    ];
    assert_eq!(
        found, frozen,
        "a seed draws another case now: right only if a contract or the generator changed on purpose"
    );
}
