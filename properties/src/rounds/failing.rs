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
