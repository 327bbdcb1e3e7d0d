//! The canary's mutants: one that must die, one that must live, one that is no other kernel, one that is
//! no PTX. The canary is wrong in its tail on purpose; the cases that show it judge no mutant.

use properties::mutate::equivalents::{Equivalents, FILE};
use properties::mutate::judge::{Fate, Judge};
use properties::mutate::modules::{self, Module};
use properties::mutate::operators::Operator;
use properties::mutate::sample::{Mutant, sample, seed_of};
use properties::mutate::suite::{Suite, questions};
use properties::mutate::{Plan, Score, mutate};
use properties::subject::{Subject, canary};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const CASES: u64 = 300;

fn subject() -> &'static Subject {
    canary().expect("the canary loads")
}

/// Runs `ask` with a judge of the canary, its modules and its suite.
fn judged<T>(ask: impl FnOnce(&mut Judge<'_>, &[Module], &Suite<'_>) -> T) -> T {
    let questions = questions(subject(), Path::new("no corpora"), CASES).expect("questions");
    let suite = Suite::measure(subject(), &questions, 2).expect("the canary answers");
    let modules = modules::of_contract(subject()).expect("its PTX");
    ask(&mut Judge::new(&modules, &suite, false), &modules, &suite)
}

/// The mutant that puts `now` in the place of the first executed line that contains `was`.
fn mutant(modules: &[Module], suite: &Suite<'_>, was: &str, now: &str) -> Mutant {
    let all = sample(modules, suite, usize::MAX, 0, None).mutants;
    let found = all.into_iter().filter(|one| one.was.contains(was)).min_by_key(|one| one.line);
    let found = found.unwrap_or_else(|| panic!("no executed line has `{was}`"));
    let now = found.was.replace(was, now);
    Mutant { operator: Operator::Arithmetic, now, ..found }
}

#[test]
fn the_planted_bug_judges_no_mutant() {
    judged(|_, _, suite| {
        assert!(!suite.failing.is_empty(), "the canary's bug shows");
        assert!(suite.failing.iter().all(|(_, clause)| clause == "tolerance.y.all"));
        assert!(suite.members.len() > suite.failing.len(), "most cases are answered well");
    });
}

#[test]
fn a_wrong_sum_is_killed_and_the_clause_is_named() {
    judged(|judge, modules, suite| {
        let wrong = mutant(modules, suite, "add.f32", "sub.f32");
        let fate = judge.judge(&wrong).expect("judged");
        let Fate::Killed { clause, after, .. } = fate else { panic!("{fate:?}") };
        assert_eq!(clause, "tolerance.y.all");
        assert!(after <= 20, "after {after} cases");
    });
}

#[test]
fn a_thorough_judge_knows_that_no_other_clause_kills() {
    judged(|quick, modules, suite| {
        let mut thorough = Judge::new(modules, suite, true);
        let wrong = mutant(modules, suite, "add.f32", "sub.f32");
        let of = |judge: &mut Judge<'_>| match judge.judge(&wrong).expect("judged") {
            Fate::Killed { clause, after, sole, .. } => (clause, after, sole),
            other => panic!("{other:?}"),
        };
        let (clause, after, sole) = of(quick);
        assert_eq!(sole, None, "nobody asked");
        assert_eq!(of(&mut thorough), (clause, after, Some(true)), "nothing else is wrong");
    });
}

#[test]
fn a_load_beside_the_row_is_killed_by_the_machine() {
    judged(|judge, modules, suite| {
        let wrong = mutant(modules, suite, "%f121, [%rd100]", "%f121, [%rd100+16384]");
        let fate = judge.judge(&wrong).expect("judged");
        assert!(
            matches!(&fate, Fate::Killed { clause, .. } if clause.starts_with("house.")),
            "{fate:?}"
        );
    });
}

#[test]
fn an_endless_loop_is_killed_by_its_budget() {
    judged(|judge, modules, suite| {
        // A branch to itself: whoever comes here never leaves.
        let wrong = mutant(modules, suite, "@%p23 bra 	$L__BB0_33", "$Lhere: bra 	$Lhere");
        let fate = judge.judge(&wrong).expect("judged");
        assert!(
            matches!(&fate, Fate::Killed { clause, .. } if clause == "house.budget"),
            "{fate:?}"
        );
    });
}

#[test]
fn another_order_of_summation_survives() {
    judged(|judge, modules, suite| {
        // a + b for b + a: no bit changes. No operator makes this edit; a test must see a survivor.
        let same = mutant(modules, suite, "%f86, %f140, %f141", "%f86, %f141, %f140");
        assert!(
            matches!(judge.judge(&same).expect("judged"), Fate::Survived { asked, .. } if asked > 0)
        );
        assert!(judge.same_bits(&same).expect("compared").is_some_and(|cases| cases > 0));
        // The sum of two other terms: within the bound only by chance, and with other bits.
        let other = mutant(modules, suite, "%f86, %f140, %f141", "%f86, %f140, %f142");
        assert_eq!(judge.same_bits(&other).expect("compared"), None);
    });
}

#[test]
fn what_is_no_ptx_is_told_apart() {
    judged(|judge, modules, suite| {
        for nonsense in ["add.f32 [", "frobnicate.f32"] {
            let wrong = mutant(modules, suite, "add.f32", nonsense);
            let fate = judge.judge(&wrong).expect("judged");
            assert!(matches!(fate, Fate::Rejected(_)), "{nonsense}: {fate:?}");
        }
    });
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let run = |plan: &Plan| mutate(plan, &STOP, &mut |_| {}).expect("a score");
    let first = run(&plan("a"));
    let again = run(&plan("a"));
    let fates = |score: &Score| {
        score.judged.iter().map(|one| (one.mutant.clone(), one.fate.clone())).collect::<Vec<_>>()
    };
    assert_eq!(fates(&first), fates(&again));
    assert_eq!(first.judged.len(), first.executed, "every executed site has one mutant");
    assert!(first.share().is_some_and(|share| share > 0.7), "{:?}", first.share());
    assert_ne!(seed_of("a"), seed_of("b"));
}

/// The canary's automatic mutants, every executed site.
fn plan(seed: &str) -> Plan {
    Plan {
        subject: subject(),
        corpora: PathBuf::from("no corpora"),
        cases: CASES,
        sample: 1000,
        seed: seed.to_owned(),
        threads: 2,
        budget: None,
        changes: None,
        lines: Vec::new(),
        named: Vec::new(),
        assembler: None,
        equivalents: Equivalents::default(),
        explained: Equivalents::default(),
        is_thorough: false,
    }
}

#[test]
fn a_budget_that_is_over_at_once_leaves_the_contract_unjudged() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let over = Plan { budget: Some(Duration::ZERO), ..plan("a") };
    let score = mutate(&over, &STOP, &mut |_| {}).expect("a score");
    assert!(score.chosen > 0 && score.is_unjudged(), "nothing begun, and said so");
    // No site to try is another matter: a change that touches no kernel has no mutants.
    let nothing = Plan { sample: 0, ..over };
    assert!(!mutate(&nothing, &STOP, &mut |_| {}).expect("a score").is_unjudged());
}

#[test]
fn lines_are_tried_with_every_edit_and_no_other_line() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let score = |plan: &Plan| mutate(plan, &STOP, &mut |_| {}).expect("a score");
    let all = score(&plan("a"));
    let line = all.judged[0].mutant.line;
    let of_line = score(&Plan { lines: vec![line], ..plan("a") });
    assert_eq!((of_line.sites, of_line.executed), (1, 1));
    assert!(of_line.judged.iter().all(|judged| judged.mutant.line == line));
    // A sample has one edit a site; here that one is among all.
    let sampled = |score: &Score| score.judged.iter().any(|one| one.mutant == all.judged[0].mutant);
    assert!(sampled(&of_line) && of_line.judged.len() > 1, "{} edits", of_line.judged.len());
    assert_eq!(score(&Plan { lines: vec![1], ..plan("a") }).chosen, 0, "line 1 has no site");
}

#[test]
fn a_declared_equivalent_is_known_and_leaves_the_kernels_bits() {
    let root = kernels::ptx::sources::checkout_root().expect("a checkout");
    let declared = Equivalents::read(&root, FILE).expect("declarations");
    judged(|judge, modules, suite| {
        let found = mutant(modules, suite, "@%p5 bra", "");
        let never = Mutant { now: String::new(), ..found };
        assert!(declared.reason_for(subject().name(), &never).is_some());
        assert!(judge.same_bits(&never).expect("compared").is_some_and(|cases| cases > 0));
        // The wide load always: no declaration speaks of it, and rows that are not aligned fault.
        let always = Mutant { now: "bra $L__BB0_7;".to_owned(), ..never };
        assert_eq!(declared.reason_for(subject().name(), &always), None);
        assert!(matches!(judge.judge(&always).expect("judged"), Fate::Killed { .. }));
    });
}
