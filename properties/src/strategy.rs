//! The same cases for proptest: a seed from the runner becomes a case, and the structural shrinker
//! makes it smaller. Every failing candidate counts, so a test that means one failure asks for it.

use crate::choices::Seeded;
use crate::generate::{Draw, draw};
use crate::shrink::Stepper;
use crate::subject::Subject;
use proptest::prelude::Rng as _;
use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};

/// Seeds tried before a subject counts as impossible to draw from.
const DRAWS: u32 = 64;
/// Cases tried when a failing one is shrunk.
const SHRINK_STEPS: u32 = 2_000;
/// The seed of every run that does not choose one.
const SEED: u64 = 0x0a55_a710;

/// Cases of one subject.
#[derive(Clone, Copy, Debug)]
pub struct Cases {
    subject: &'static Subject,
}

/// The strategy of a subject.
pub fn cases(subject: &'static Subject) -> Cases {
    Cases { subject }
}

/// A run of `cases` cases with a fixed seed. Seeds of failures are not stored: they rot when the
/// generator changes, while the regression that the test writes does not.
pub fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: SHRINK_STEPS,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(SEED),
        ..Config::default()
    }
}

impl Strategy for Cases {
    type Tree = CaseTree;
    type Value = Draw;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let mut last = None;
        for _ in 0..DRAWS {
            let seed = runner.rng().next_u64();
            match draw(self.subject, &mut Seeded { seed }) {
                Ok(draw) => return Ok(CaseTree::new(self.subject, draw)),
                Err(discard) => last = Some(discard.0),
            }
        }
        let why = last.unwrap_or_default();
        Err(format!(
            "{}: {DRAWS} draws were discarded, the last because {why}",
            self.subject.name()
        )
        .into())
    }
}

/// A drawn case on its way to a smaller one.
#[derive(Clone, Debug)]
pub struct CaseTree {
    draw: Draw,
    stepper: Stepper<'static>,
}

impl CaseTree {
    fn new(subject: &'static Subject, draw: Draw) -> CaseTree {
        let stepper = Stepper::new(subject.contract, draw.case.clone());
        CaseTree { draw, stepper }
    }

    fn advance(&mut self) -> bool {
        self.stepper.candidate(&|| true).is_some()
    }
}

impl ValueTree for CaseTree {
    type Value = Draw;

    fn current(&self) -> Draw {
        let case = self.stepper.pending().unwrap_or(self.stepper.case()).clone();
        Draw { case, examine: self.draw.examine.clone() }
    }

    /// The case at hand fails: it is the one to make smaller.
    fn simplify(&mut self) -> bool {
        self.stepper.keep();
        self.advance()
    }

    /// The case at hand does not fail: back to the last that did, and another edit.
    fn complicate(&mut self) -> bool {
        self.stepper.reject();
        self.advance()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::test_runner::{TestCaseError, TestError};

    fn subject() -> &'static Subject {
        crate::subject::subject("argmax_rows").expect("a production subject")
    }

    #[test]
    fn a_failing_property_ends_at_the_smallest_case() {
        let mut runner = TestRunner::new(config(500));
        let result = runner.run(&cases(subject()), |draw| {
            let wide = draw.case.dims["V"] > 1023 && draw.case.dims["R"] > 1;
            if wide { Err(TestCaseError::fail("wide")) } else { Ok(()) }
        });
        let Err(TestError::Fail(_, draw)) = result else { panic!("{result:?}") };
        assert_eq!((draw.case.dims["R"], draw.case.dims["V"]), (2, 1024));
        assert_eq!(draw.case.dtypes.values().next(), Some(&contracts::dtype::DType::F32));
    }

    #[test]
    fn the_same_seed_draws_the_same_cases_and_stores_no_seeds() {
        let drawn = |_| {
            let mut runner = TestRunner::new(config(1));
            let mut tree = || cases(subject()).new_tree(&mut runner).expect("drawn").current().case;
            (tree(), tree())
        };
        let (first, again): ((_, _), (_, _)) = (drawn(0), drawn(1));
        assert!(first == again && first.0 != first.1);
        assert!(config(3).failure_persistence.is_none() && config(3).cases == 3);
    }
}
