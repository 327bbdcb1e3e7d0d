//! What a review calls tightened is: a case that failed under the base fails under the head. Contracts of
//! the kernel with the planted bug are written at random, cases are drawn from all of them and judged by
//! all of them, and every pair that a review finds tightened and nothing else is held against that.

use contracts::case::Case;
use contracts::format::Contract;
use kernels::backend::Backend;
use kernels::backend::vm::VmBackend;
use kernels::registry::CANARY;
use properties::check::{Workspace, check};
use properties::choices::{Seeded, mix};
use properties::counters::Counters;
use properties::examine::Examine;
use properties::generate::draw_unbound;
use properties::review::{Class, Review, Tree, review};
use properties::subject::Subject;

/// What may be written in a place of the canary's contract: the text that stands there, and others.
const PLACES: &[(&str, &[&str])] = &[
    ("range: [1, 200]", &["range: [1, 64]", "range: [60, 90]", "range: [1, 130]"]),
    ("edges: [1, 2, 63, 64, 65, 127, 128, 129]", &["edges: [1, 65, 66]", "edges: [64]"]),
    ("R: {range: [1, 3]}", &["R: {range: [1, 2]}", "R: {one_of: [1, 2, 3]}", "R: {one_of: [2]}"]),
    (
        "domain: {range: [-4096.0, 4096.0]}",
        &[
            "domain: any",
            "domain: finite",
            "domain: {at_most: 4096.0}",
            "domain: {row_norm: 4096.0}",
        ],
    ),
    ("ramp]", &["ramp, specials]", "{normal: 1.0e-3}]", "spike]"]),
    ("layout: [dense, row_padded, offset]", &["layout: [dense]", "layout: [dense, offset]"]),
    (
        "bound: {round_out: f32, terms: {abs_sum: {times: 256, unit: f32}}, floor: 1.0e-30}",
        &[
            "bits: {}",
            "bound: {round_out: f32, terms: {abs_sum: {times: 256, unit: f32}}, floor: 0.5}",
            "bound: {round_out: f32, terms: {abs_sum: {times: 1, unit: f32}}, floor: 1.0e-30}",
            "bound: {round_out: f32, terms: {abs_sum: {times: 256, unit: bf16}}, floor: 1.0e-30}",
            "bound: {round_out: f32, terms: {abs_sum: {times: 2, unit: bf16}}, floor: 1.0e-30}",
            "bound: {round_out: bf16, terms: {abs_sum: {times: 256, unit: f32}}, floor: 1.0e-30}",
            "bound: {round_out: f16, terms: {abs_sum: {times: 256, unit: f32}}, floor: 1.0e-30}",
            "bound: {round_out: f32, overflow: saturates, terms: {abs_sum: {times: 256, unit: f32}}, floor: 1.0e-30}",
            "bound: {round_out: f32, terms: {}, floor: 0.0}",
        ],
    ),
    (
        "history: []",
        &[
            "relations: {apart: {alone: {axis: R}, compare: bits}}",
            "relations: {apart: {alone: {axis: R}, compare: bound}}",
            "relations: {tail: {append_dead: {axis: n}, compare: bits}}",
            "nan: {into: [x], reach: {y: exact}}",
            "nan: {into: [x], reach: {y: row}}",
            "nan: {into: [], reach: {y: row}}",
            "requires: {short: {that: \"n <= 100\", else: shape}}",
            "requires: {short: {that: \"n <= 100 and R <= 2\", else: shape}}",
        ],
    ),
];

const FILE: &str = "contracts/canary/canary_row_sum.yaml";
/// Contracts with several edits.
const RANDOM: u64 = 30;
const CASES_EACH: u64 = 20;

/// A contract with what is chosen for each place; what is not chosen stays as it is.
fn written(choice: impl Fn(usize) -> Option<usize>) -> Option<(String, &'static Contract)> {
    let mut text = contracts::source("canary_row_sum")?.to_owned();
    for (place, (stands, others)) in PLACES.iter().enumerate() {
        if let Some(which) = choice(place) {
            assert_eq!(text.matches(stands).count(), 1, "`{stands}`");
            text = text.replace(stands, others[which % others.len()]);
        }
    }
    let contract = contracts::parse_contract(&text, FILE).ok()?;
    Some((text, Box::leak(Box::new(contract))))
}

/// The contract as it is, with each single edit there is, and with several at random.
fn all_written() -> Vec<(String, &'static Contract)> {
    let mut all: Vec<_> = written(|_| None).into_iter().collect();
    for (place, (_, others)) in PLACES.iter().enumerate() {
        all.extend(
            (0..others.len())
                .filter_map(|which| written(|other| (other == place).then_some(which))),
        );
    }
    all.extend((1..=RANDOM).filter_map(|seed| {
        written(|place| {
            let drawn = mix(seed, place as u64);
            drawn.is_multiple_of(3).then_some((drawn / 3 % 1000) as usize)
        })
    }));
    all
}

/// Every change's clause, class and values; those of the way back, when mirrored.
fn classes(
    review: &Review,
    mirrored: bool,
) -> Vec<(String, Class, Option<String>, Option<String>)> {
    let mut all: Vec<_> = review
        .changes()
        .map(|(_, change)| {
            let (clause, class) = (change.clause.clone(), change.class);
            let (old, new) = (change.before.clone(), change.after.clone());
            if mirrored { (clause, class.mirrored(), new, old) } else { (clause, class, old, new) }
        })
        .collect();
    all.sort();
    all
}

/// Whether a case fails under a contract, with every relation there is; `None` where it is not legal.
fn fails(
    subject: &Subject,
    case: &Case,
    backend: &mut dyn Backend,
    workspace: &mut Workspace,
) -> Option<bool> {
    let mut counters = Counters::default();
    let case = Case { version: subject.contract.version, ..case.clone() };
    let relations = subject.contract.relations.keys();
    let all = relations.map(|name| Examine::Relation(format!("relations.{name}")));
    let mut failed = false;
    for examine in std::iter::once(Examine::Kernel).chain(all) {
        let verdict = check(subject, &case, &examine, backend, workspace, &mut counters).ok()?;
        failed |= verdict.is_failure();
    }
    Some(failed)
}

#[test]
fn what_is_tightened_lets_no_failing_case_pass() {
    let reference = reference::canary_reference(CANARY.name).expect("the canary's reference");
    let texts = all_written();
    assert!(texts.len() > 40, "{} contracts load", texts.len());
    let subjects: Vec<Subject> =
        texts.iter().map(|(_, contract)| Subject::new(contract, &CANARY, reference)).collect();
    let cases: Vec<Case> = subjects
        .iter()
        .flat_map(|subject| {
            let draw = |seed| draw_unbound(subject.contract, &mut Seeded { seed }).ok();
            (1..=CASES_EACH).filter_map(draw)
        })
        .collect();
    let mut backend = VmBackend::new();
    let mut workspace = Workspace::new();
    let verdicts: Vec<Vec<Option<bool>>> = subjects
        .iter()
        .map(|subject| {
            cases.iter().map(|case| fails(subject, case, &mut backend, &mut workspace)).collect()
        })
        .collect();
    let tree = |text: &str| Tree::in_memory("tree", [(FILE.to_owned(), text.to_owned())]);
    let trees: Vec<_> = texts.iter().map(|(text, _)| tree(text)).collect();
    let reviews: Vec<Vec<Review>> = trees
        .iter()
        .map(|before| {
            trees.iter().map(|after| review(before, after).expect("two contracts")).collect()
        })
        .collect();
    let (mut tightened, mut stricter) = (0, 0);
    for a in 0..trees.len() {
        assert!(reviews[a][a].is_empty(), "{}", texts[a].0);
        for b in (0..trees.len()).filter(|b| *b != a) {
            let found = &reviews[a][b];
            assert_eq!(
                classes(found, false),
                classes(&reviews[b][a], true),
                "{}\n{}",
                texts[a].0,
                texts[b].0
            );
            let tighter = found.count(Class::Tightened);
            if found.count(Class::Loosened) + found.count(Class::Incomparable) > 0 {
                continue;
            }
            tightened += usize::from(tighter > 0);
            for (case, (old, new)) in cases.iter().zip(verdicts[a].iter().zip(&verdicts[b])) {
                if let (Some(old), Some(new)) = (old, new) {
                    stricter += usize::from(tighter > 0 && !old && *new);
                    let holds = if tighter > 0 { !old || *new } else { old == new };
                    assert!(
                        holds,
                        "fails under\n{}\nand passes under the tighter\n{}\n{}",
                        texts[a].0,
                        texts[b].0,
                        properties::corpus::describe(case)
                    );
                }
            }
        }
    }
    // Otherwise nothing was held against anything.
    assert!(tightened >= 60, "{tightened} pairs are tightened");
    assert!(stricter >= 60, "{stricter} cases fail under the tighter contract only");
}
