//! What a review says of every pair, and what must hold of any two trees: the way back mirrors the way
//! there, nothing hides behind another change, a tree and itself differ in nothing.

use crate::trees::{
    Texts, applies, base, compared, edited, found, mirrored, pairs, reviewed, snapshot,
};
use properties::choices::mix;
use properties::report::Paint;
use properties::review::{Class, Review, show};
use std::collections::BTreeSet;

#[test]
fn every_kind_of_change_is_said_as_it_is() {
    let base = base();
    let all = pairs();
    assert!(all.len() >= 30, "{} pairs", all.len());
    let mut wrong = String::new();
    for (name, pair) in &all {
        let head = edited(base.clone(), &pair.edits, name);
        let forth = compared(&base, &head);
        let mut expected = pair.expect.clone();
        expected.sort();
        let found = found(&forth);
        if found != expected {
            let shown = show::terminal(&forth, Paint::PLAIN);
            wrong.push_str(&format!("{name}: {found:?}, not {expected:?}\n{shown}\n"));
            continue;
        }
        let exit = i32::from(forth.unjustified() > 0);
        let text = format!("{}\n\n{}exit {exit}", pair.what, show::terminal(&forth, Paint::PLAIN));
        snapshot(name, &text);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_way_back_mirrors_the_way_there() {
    let base = base();
    for (name, pair) in pairs() {
        let head = edited(base.clone(), &pair.edits, &name);
        let (forth, back) = (compared(&base, &head), compared(&head, &base));
        assert_eq!(mirrored(&forth, false), mirrored(&back, true), "{name}");
        let kernels = |review: &Review| review.kernels.len();
        assert_eq!(kernels(&forth), kernels(&back), "{name}");
    }
}

/// Several changes at once: the way back mirrors the way there, and what one change weakens is found
/// beside all others as well.
#[test]
fn nothing_hides_behind_another_change() {
    const DRAWS: u64 = 60;
    let base = base();
    let pairs = pairs();
    // Each with its contract, by what it is about at the base: other changes may rename it.
    let weaker = |review: &Review| -> Vec<(String, String)> {
        let lost = review.changes().filter(|(_, change)| change.class == Class::Loosened);
        lost.map(|(of, change)| {
            let clause = change.was.clone().unwrap_or_else(|| change.clause.clone());
            (of.contract.clone(), clause)
        })
        .collect()
    };
    let alone: Vec<Vec<(String, String)>> = pairs
        .iter()
        .map(|(name, pair)| weaker(&compared(&base, &edited(base.clone(), &pair.edits, name))))
        .collect();
    let mut held = 0;
    for seed in 1..=DRAWS {
        let mut head = base.clone();
        let mut names = Vec::new();
        let mut wanted = BTreeSet::new();
        for draw in 0..4 {
            let place = (mix(seed, draw) % pairs.len() as u64) as usize;
            let (name, pair) = &pairs[place];
            if applies(&head, &pair.edits) {
                let next = edited(head.clone(), &pair.edits, name);
                // Two edits of one place may make no contract of it.
                if reviewed(&base, &next).is_ok() {
                    head = next;
                    names.push(name.as_str());
                    wanted.extend(alone[place].iter().cloned());
                }
            }
        }
        let (forth, back) = (compared(&base, &head), compared(&head, &base));
        assert_eq!(mirrored(&forth, false), mirrored(&back, true), "{names:?}");
        let found: Vec<String> = weaker(&forth).into_iter().map(|(_, clause)| clause).collect();
        held += wanted.len();
        for (of, clause) in wanted {
            // A contract that is gone takes all that is said of it along.
            let mut gone = found.iter().filter_map(|other| other.strip_prefix("contracts."));
            let covered = gone.any(|contract| of == contract || clause.contains(contract));
            assert!(covered || found.contains(&clause), "{names:?}: {clause} in {found:?}");
        }
    }
    assert!(held > 60, "{held} weakenings were held against others");
}

#[test]
fn a_tree_and_itself_differ_in_nothing() {
    let base = base();
    let mut trees = vec![base.clone()];
    trees.extend(pairs().iter().map(|(name, pair)| edited(base.clone(), &pair.edits, name)));
    for tree in trees {
        let same = compared(&tree, &tree);
        assert!(
            same.is_empty() && same.notes.is_empty(),
            "{}",
            show::terminal(&same, Paint::PLAIN)
        );
    }
}

#[test]
fn a_comment_more_changes_no_contract_there_is() {
    let texts = |comment: &str| -> Texts {
        contracts::builtin()
            .iter()
            .map(|contract| {
                let name = &contract.contract;
                let family = contracts::family(name).expect("a family");
                let text = contracts::source(name).expect("a source");
                (format!("contracts/{family}/{name}.yaml"), format!("{text}{comment}"))
            })
            .collect()
    };
    let same = compared(&texts(""), &texts("# read\n"));
    assert!(same.is_empty(), "{}", show::terminal(&same, Paint::PLAIN));
}
