use super::*;
use crate::choices::Seeded;
use crate::generate::draw;
use crate::subject::{canary, subjects};
use kernels::launch::Plan;
use std::collections::BTreeMap;

/// Draws until every rejection of every contract has been made, and none was answered wrongly.
#[test]
fn every_plan_refuses_every_rejection_with_the_declared_error() {
    let all = subjects().iter().chain(canary());
    for subject in all {
        let mut held: BTreeMap<&str, u64> =
            subject.rejections.iter().map(|id| (id.as_str(), 0)).collect();
        for seed in 0..300 {
            let Ok(draw) = draw(subject, &mut Seeded { seed }) else { continue };
            for id in &subject.rejections {
                let mut exercised = Exercised::default();
                let refusal = examine(id, subject, &draw.case, &mut exercised);
                match refusal.unwrap_or_else(|error| panic!("{error}")) {
                    Refusal::Held => {
                        assert!(exercised.has(subject, id));
                        *held.entry(id).or_default() += 1;
                    }
                    Refusal::Failed(verdict) => panic!("{} seed {seed}: {verdict}", subject.name()),
                    Refusal::Impossible => assert!(!exercised.has(subject, id)),
                    Refusal::ByStatus => {
                        *held.entry(id).or_default() += u64::from(exercised.has(subject, id));
                    }
                }
            }
        }
        for (id, count) in held {
            assert!(count >= 10, "{}: {id} was made {count} times in 300 cases", subject.name());
        }
    }
}

/// A plan that accepts everything, and one that refuses everything for one reason.
#[test]
fn an_accepted_or_misnamed_refusal_is_a_finding() {
    let name = "argmax_rows";
    let strict = crate::subject::subject(name).expect("registered");
    let mut seed = 0;
    let case = loop {
        let case = draw(strict, &mut Seeded { seed }).expect("a draw").case;
        if case.dims["R"] > 1 && case.dims["V"] > 1 {
            break case;
        }
        seed += 1;
    };
    let lax = Subject { plan: |_| Ok(Plan::default()), ..strict.clone() };
    let mut exercised = Exercised::default();
    for id in &lax.rejections {
        let refusal = examine(id, &lax, &case, &mut exercised).expect("an answer");
        let Refusal::Failed(Verdict::Disagree(found)) = refusal else {
            assert_eq!(refusal, Refusal::Impossible, "{id}");
            continue;
        };
        assert_eq!(found.clause, *id);
        assert!(found.expected.starts_with("refusal "), "{}", found.expected);
        assert_eq!(found.observed, "a plan of 0 launches");
        assert!(!found.note.is_empty());
    }
    assert!(
        exercised.has(&lax, "rejects.auto.dtype.x") && exercised.has(&lax, "rejects.short_pitch")
    );

    // The legal call passes; everything else is refused as misaligned.
    let misnaming = Subject {
        plan: |call| match crate::subject::subject("argmax_rows")
            .map(|subject| (subject.plan)(call))
        {
            Some(Err(refusal)) => {
                Err(kernels::call::Rejection::new(ErrorKind::Align, &refusal.argument, "no"))
            }
            _ => Ok(Plan::default()),
        },
        ..strict.clone()
    };
    let refusal =
        examine("rejects.auto.shape.x", &misnaming, &case, &mut exercised).expect("an answer");
    let Refusal::Failed(verdict) = refusal else { panic!("the wrong error passed") };
    assert!(
        verdict.to_string().contains("expected refusal Shape, observed refusal Align: "),
        "{verdict}"
    );
}

#[test]
fn an_unknown_clause_is_an_error_that_names_it() {
    let subject = crate::subject::subject("argmax_rows").expect("registered");
    let case = draw(subject, &mut Seeded { seed: 1 }).expect("a draw").case;
    let error = examine("rejects.nothing", subject, &case, &mut Exercised::default());
    let error = error.expect_err("no such clause");
    assert!(error.to_string().contains("`rejects.nothing`"), "{error}");
}
