//! How often draws meet what is rare: each word with each type, each path of a launch with each type, taken
//! and passed. What a search meets once in an hour it does not test.

use super::*;
use crate::choices::Seeded;
use crate::prepare::prepare_unjudged;
use crate::subject::{canary, subjects};
use contracts::dtype::DType;
use contracts::expr::Expr;
use std::collections::{BTreeMap, BTreeSet};

/// Draws in which they are counted.
const DRAWN: u64 = 600;
/// In so many of them each word is met with each type.
const WORDS: usize = 10;
/// And each path.
const PATHS: usize = 6;
/// Rows of 16 bits that a block has begin with 1025 elements: more than any draw but a fixture's has.
const OF_FIXTURES: [&str; 2] = ["short_rows passed io=f16", "short_rows passed io=bf16"];

fn cases(subject: &Subject) -> impl Iterator<Item = Case> {
    (0..DRAWN).filter_map(|seed| draw(subject, &mut Seeded { seed }).ok()).map(|draw| draw.case)
}

fn worded(name: &str, word: &impl fmt::Display) -> String {
    format!("{name}={word}")
}

/// Whether these conditions leave a type to a case: what asks for another says `name == type`.
fn admit(conditions: &[&Expr], name: &str, dtype: DType) -> bool {
    conditions.iter().map(ToString::to_string).all(|text| {
        !text.contains(&format!("{name} == ")) || text.contains(&format!("{name} == {dtype}"))
    })
}

/// The types that a contract's cases have under these conditions, as words.
fn types_under(contract: &Contract, conditions: &[&Expr]) -> Vec<String> {
    let all = contract.dtypes.iter();
    let all = all.flat_map(|(name, types)| types.iter().map(move |dtype| (name, *dtype)));
    all.filter(|(name, dtype)| admit(conditions, name, *dtype))
        .map(|(name, dtype)| worded(name, &dtype))
        .collect()
}

/// Every word of options and variants, with every type that a case may have along with it.
fn words_with_types(contract: &Contract) -> BTreeMap<[String; 2], usize> {
    let mut words: Vec<(String, Option<&Expr>)> = Vec::new();
    for (name, options) in &contract.options {
        words.extend(options.iter().map(|word| (worded(name, word), None)));
    }
    for (name, variant) in &contract.variants {
        let condition = |word: &str| variant.available.get(word);
        let values = variant.values.iter();
        words.extend(values.map(|word| (worded(name, &word.0), condition(&word.0))));
    }
    let pairs = words.into_iter().flat_map(|(word, condition)| {
        let types = types_under(contract, condition.as_slice());
        types.into_iter().map(move |dtype| ([word.clone(), dtype], 0))
    });
    pairs.collect()
}

#[test]
fn each_word_is_drawn_often_with_each_type() {
    let mut counted = 0;
    for subject in subjects().iter().chain(canary()) {
        let mut counts = words_with_types(subject.contract);
        for case in cases(subject) {
            let words = case.options.iter().chain(&case.variants);
            let words: Vec<String> = words.map(|(name, word)| worded(name, word)).collect();
            for (name, dtype) in &case.dtypes {
                for word in &words {
                    let pair = [word.clone(), worded(name, dtype)];
                    if let Some(count) = counts.get_mut(&pair) {
                        *count += 1;
                    }
                }
            }
        }
        counted += counts.len();
        let rarest = counts.iter().min_by_key(|(_, count)| **count);
        println!("{}: {rarest:?} of {DRAWN}", subject.name());
        let rare: Vec<_> = counts.iter().filter(|(_, count)| **count < WORDS).collect();
        assert!(rare.is_empty(), "{}: {rare:?} of {DRAWN}", subject.name());
    }
    assert!(counted >= 200, "{counted} words with types");
}

/// Whether the kernel has an entry that a path speaks of, for this type.
fn has_entry(subject: &Subject, path: &contracts::format::Path, dtype: &str) -> bool {
    let stems = kernels::ptx::stems().filter(|stem| stem.starts_with(subject.name()));
    let texts = stems.filter_map(kernels::ptx::embedded);
    let mut entries = texts
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix(".visible .entry ")?.strip_suffix('('));
    entries.any(|entry| path.names(entry) && entry.split('_').any(|part| part == dtype))
}

/// Every path of a contract as taken, and as passed where sizes decide, with every type. What is never
/// launched has to be there for a type to be passed to it.
fn paths_with_types(subject: &Subject) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (name, path) in &subject.contract.paths {
        let conditions: Vec<&Expr> = path.when.iter().chain(&path.sizes).collect();
        for dtype in types_under(subject.contract, &conditions) {
            let (_, word) = dtype.split_once('=').expect("a name and a type");
            let can_pass = path.never.is_none() || has_entry(subject, path, word);
            if path.sizes.is_some() && can_pass {
                counts.insert(format!("{name} passed {dtype}"), 0);
            }
            counts.insert(format!("{name} taken {dtype}"), 0);
        }
    }
    counts
}

#[test]
fn each_path_is_taken_and_passed_often_with_each_type() {
    let mut counted = 0;
    for subject in subjects().iter().filter(|subject| !subject.contract.paths.is_empty()) {
        let mut counts = paths_with_types(subject);
        for case in cases(subject) {
            let prepared = prepare_unjudged(subject, &case).expect("a drawn case is legal");
            let launches = prepared.plan().expect("a legal call").launches;
            for (name, path) in subject.contract.paths.iter().filter(|_| !launches.is_empty()) {
                let named = launches.iter().any(|launch| path.names(&launch.entry));
                let how = if named == path.takes.is_some() { "taken" } else { "passed" };
                for (of, dtype) in &case.dtypes {
                    let which = format!("{name} {how} {}", worded(of, dtype));
                    if let Some(count) = counts.get_mut(&which) {
                        *count += 1;
                    }
                }
            }
        }
        println!("{}: {counts:?} of {DRAWN}", subject.name());
        counts.retain(|which, _| !OF_FIXTURES.contains(&which.as_str()));
        counted += counts.len();
        let rare: Vec<_> = counts.iter().filter(|(_, count)| **count < PATHS).collect();
        assert!(rare.is_empty(), "{}: {rare:?} of {DRAWN}", subject.name());
    }
    assert!(counted >= 30, "{counted} paths with types");
    let draft = crate::subject::subject("draft_conv").expect("a production subject");
    let wide = &draft.contract.paths["eight_channels"];
    assert!(has_entry(draft, wide, "bf16") && !has_entry(draft, wide, "f32"));
}

/// A wish narrows what it is about, and is given up where it cannot be met.
#[test]
fn a_wish_is_met_or_given_up() {
    let named = |name: &str| crate::subject::subject(name).expect("a production subject");
    let wished = |subject: &Subject, wish: Wish<'static>, seed: u64| {
        let given = Given { wish: Some(wish), ..Given::default() };
        assemble(subject.contract, given, &mut Seeded { seed }).expect("a case")
    };
    let hopper = Wish::Word { variant: "arch", word: "hopper" };
    let (mut met, mut given_up) = (0, BTreeSet::new());
    for seed in 0..300 {
        let case = wished(named("gdn_chunk"), hopper, seed);
        if case.variants["arch"] == "hopper" {
            met += 1;
        } else {
            given_up.insert(case.dtypes["io"]);
        }
    }
    assert!(met >= 80, "{met} of 300");
    assert!(given_up.contains(&DType::F32) && given_up.contains(&DType::F16), "{given_up:?}");

    let many = Wish::Word { variant: "blocks_per_row", word: "40" };
    for seed in 0..100 {
        let case = wished(named("argmax_rows"), many, seed);
        let (rows, columns) = (case.dims["R"], case.dims["V"]);
        assert!(case.variants["blocks_per_row"] != "40" || rows > 0 && columns >= 320);
    }
}
