use super::*;
use crate::choices::Seeded;
use crate::generate::draw;
use crate::subject::{canary, subjects};
use contracts::dtype::DType;
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

/// Of a plan that knows what goes together, one that checks neither, and one that forgets the type.
#[test]
fn a_requirement_on_words_alone_is_broken_by_another_word() {
    const CONTRACT: &str = "\
contract: narrow_rows
version: 1
kind: kernel
summary: Rows stored narrower.
spec: none
dtypes: {io: [f32, bf16]}
options: {overflow: [infinite, stops], weights: [none, given]}
dims:
  R: {range: [1, 4]}
requires:
  stops_in_bf16:  {that: \"overflow == infinite or io == bf16\", else: dtype}
  weights_in_f32: {that: \"weights == none or io == f32\", else: shape}
tensors:
  x: {access: read, dtype: io, shape: [R], domain: any, values: [{normal: 1.0}]}
  w: {access: read, when: \"weights == given\", dtype: f32, shape: [R], domain: any, values: [{normal: 1.0}]}
  y: {access: write, dtype: io, shape: [R]}
tolerance:
  y: {all: {bits: {}}}
history: []
";
    fn refused(call: &Call, knows_types: bool) -> Result<Plan, kernels::call::Rejection> {
        let refusal = |kind, argument| Err(kernels::call::Rejection::new(kind, argument, "no"));
        let x = call.tensor("x")?;
        if knows_types && call.word("overflow")? == "stops" && x.dtype != DType::BF16 {
            return refusal(ErrorKind::Dtype, "x");
        }
        if call.word("weights")? == "given" {
            call.tensor("w")?;
            if x.dtype != DType::F32 {
                return refusal(ErrorKind::Shape, "w");
            }
        }
        Ok(Plan::default())
    }
    let contract = contracts::parse_contract(CONTRACT, "narrow_rows.yaml").expect("it loads");
    let contract: &'static Contract = Box::leak(Box::new(contract));
    let canary = canary().expect("the canary loads");
    let (clauses, rejections) =
        (contracts::clause::clauses(contract), vec!["requires.stops_in_bf16".to_owned()]);
    let strict = Subject {
        contract,
        plan: |call| refused(call, true),
        clauses,
        rejections,
        ..canary.clone()
    };
    let lax = Subject { plan: |call| refused(call, false), ..strict.clone() };
    let mut seen = BTreeMap::new();
    for seed in 0..200 {
        let Ok(draw) = draw(&strict, &mut Seeded { seed }) else { continue };
        for id in ["requires.stops_in_bf16", "requires.weights_in_f32"] {
            let ask = |subject: &Subject| {
                let mut exercised = Exercised::default();
                let refusal = examine(id, subject, &draw.case, &mut exercised).expect("an answer");
                (refusal, exercised.has(subject, id))
            };
            let (held, made) = ask(&strict);
            assert_eq!(held == Refusal::Held, made, "{id}: {held:?}");
            let (of_lax, _) = ask(&lax);
            let found = matches!(&of_lax, Refusal::Failed(Verdict::Disagree(found))
                if found.clause == id && found.note.contains(" set from "));
            assert_eq!(found, made && id == "requires.stops_in_bf16", "{id}: {of_lax:?}");
            *seen.entry((id, made)).or_insert(0) += 1;
        }
    }
    // A case of two words that break nothing together with any other cannot be edited so.
    for key in ["requires.stops_in_bf16", "requires.weights_in_f32"] {
        assert!(seen.get(&(key, true)).is_some_and(|made| *made > 20), "{seen:?}");
    }
}
