//! A backend whose launches can be made to fail: what a lost device or a full queue does to whoever
//! launches.

use super::events::Failure;
use kernels::arena::Arena;
use kernels::backend::{Backend, BackendError, Outcome};
use kernels::call::Call;
use kernels::launch::Plan;

/// Another backend, and the failure to come.
pub struct Failing<'a> {
    inner: &'a mut dyn Backend,
    failure: Option<Failure>,
    launches: u8,
    /// Whether a launch failed since it was armed.
    pub fired: bool,
}

impl<'a> Failing<'a> {
    pub fn new(inner: &'a mut dyn Backend) -> Failing<'a> {
        Failing { inner, failure: None, launches: 0, fired: false }
    }

    /// Counts launches from here on.
    pub fn arm(&mut self, failure: Option<Failure>) {
        (self.failure, self.launches, self.fired) = (failure, 0, false);
    }

    fn fails(&mut self) -> Result<(), BackendError> {
        let number = self.launches;
        self.launches = self.launches.saturating_add(1);
        let fails = match self.failure {
            None => false,
            Some(Failure::Once(at)) => at == number,
            Some(Failure::Lasting(at)) => number >= at,
        };
        if !fails {
            return Ok(());
        }
        self.fired = true;
        Err(BackendError::Driver { doing: "launching", message: "made to fail".to_owned() })
    }
}

impl Backend for Failing<'_> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn run(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
    ) -> Result<Outcome, BackendError> {
        self.fails()?;
        self.inner.run(call, plan, arena)
    }

    fn replace_module(&mut self, stem: &str, ptx: &str) -> Result<(), BackendError> {
        self.inner.replace_module(stem, ptx)
    }

    fn restore_modules(&mut self) {
        self.inner.restore_modules();
    }

    fn captures(&self) -> bool {
        self.inner.captures()
    }

    fn run_captured(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
    ) -> Result<Outcome, BackendError> {
        self.fails()?;
        self.inner.run_captured(call, plan, arena)
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Setup;
    use super::super::rows::Rows;
    use super::*;
    use kernels::backend::COPYING_RESULTS;
    use kernels::backend::vm::VmBackend;
    use kernels::transaction::{Rollback, Rounds, Sequence, Stage};

    /// A backend that fails once, before its launch or when that has run.
    struct FailsOnce {
        inner: VmBackend,
        runs: u8,
        fails_at: Option<u8>,
        ran_first: bool,
    }

    impl Backend for FailsOnce {
        fn name(&self) -> &'static str {
            self.inner.name()
        }

        fn run(
            &mut self,
            call: &Call,
            plan: &Plan,
            arena: &mut Arena,
        ) -> Result<Outcome, BackendError> {
            let fails = self.fails_at == Some(self.runs);
            self.runs += 1;
            if fails && !self.ran_first {
                return Err(BackendError::Driver { doing: "launching", message: String::new() });
            }
            let outcome = self.inner.run(call, plan, arena);
            if fails {
                return Err(BackendError::Driver {
                    doing: COPYING_RESULTS,
                    message: String::new(),
                });
            }
            outcome
        }

        fn replace_module(&mut self, stem: &str, ptx: &str) -> Result<(), BackendError> {
            self.inner.replace_module(stem, ptx)
        }

        fn restore_modules(&mut self) {
            self.inner.restore_modules();
        }
    }

    /// A verified round of two rows, whose next launch but `at` fails.
    fn commit(rollback: Rollback, at: u8, ran_first: bool) -> (Rounds<FailsOnce>, Sequence, bool) {
        let backend = FailsOnce { inner: VmBackend::new(), runs: 0, fails_at: None, ran_first };
        let rows = Box::new(Rows(Setup::PLAIN.shape()));
        let mut rounds = Rounds::new(backend, Setup::PLAIN.geometry(), rollback, rows);
        let sequence = rounds.acquire(1).expect("a slot");
        let ticket = rounds.begin(sequence, &[2]).expect("a round");
        rounds.verify(ticket).expect("its rows run");
        let backend = rounds.backend();
        (backend.runs, backend.fails_at) = (0, Some(at));
        let committed = rounds.commit(ticket, 1, 3).is_ok();
        (rounds, sequence, committed)
    }

    #[test]
    fn rows_are_folded_again_only_where_they_were_not() {
        let (sound, sequence, committed) = commit(Rollback::WriteOnAccept, u8::MAX, false);
        assert!(committed);
        let wanted = sound.published(sequence).expect("published");
        // The fold is the first launch of a commit, the window's copy the second.
        for (at, ran_first) in [(0, false), (1, false), (1, true)] {
            let (rounds, sequence, committed) = commit(Rollback::WriteOnAccept, at, ran_first);
            assert!(committed, "launch {at}, run first: {ran_first}");
            assert_eq!(rounds.published(sequence).expect("published"), wanted);
        }
        let (rounds, sequence, committed) = commit(Rollback::WriteOnAccept, 0, true);
        assert!(!committed, "nobody knows what the slot holds");
        assert_eq!(rounds.stage(sequence).expect("a sequence"), Stage::Broken);
        // A snapshot stays what it is, however often it is copied.
        let (_, _, committed) = commit(Rollback::Snapshot, 0, true);
        assert!(committed);
    }
}
