//! What the libFuzzer target does with its bytes: they become a history, which runs. A broken promise is
//! made small, printed as a script and kept before the process crashes on it. Inputs are kept for the
//! events they have, in which state and with what outcome, beside the kernels' branches.

use super::events::Event;
use super::generate::history_of_bytes;
use super::history::{History, Rollback};
use super::machine::{Machine, script};
use super::modes::Happened;
use super::shrink::shrink;
use super::store::write;
use super::violation::Violation;
use crate::fuzzing::Keep;
use kernels::backend::vm::{VmBackend, guidance};
use kernels::transaction::Planted;
use std::path::Path;

/// Names the wrong decision the target plants: to see that fuzzing finds it.
pub const PLANTED_VARIABLE: &str = "ASSAY_PLANTED";

/// State the target keeps between inputs.
pub struct RoundHarness {
    backend: VmBackend,
    planted: Option<Planted>,
}

impl RoundHarness {
    /// A harness, with what the environment says is planted.
    ///
    /// # Panics
    /// When it names no wrong transaction.
    pub fn new() -> RoundHarness {
        let planted = std::env::var(PLANTED_VARIABLE).ok().map(|name| {
            Planted::named(&name).unwrap_or_else(|| {
                panic!("{PLANTED_VARIABLE}: no wrong transaction is named `{name}`")
            })
        });
        RoundHarness { backend: VmBackend::new(), planted }
    }

    /// Runs one input.
    ///
    /// # Panics
    /// When a promise is broken, after the history has been made small and kept.
    pub fn run(&mut self, bytes: &[u8]) -> Keep {
        let history = history_of_bytes(bytes);
        if history.steps.is_empty() {
            return Keep::No;
        }
        if let Some(violation) = self.examine(&history) {
            self.crash(&history, &violation);
        }
        Keep::Yes
    }

    fn examine(&mut self, history: &History) -> Option<Violation> {
        let mut happened = Happened::default();
        let violation = self.drive(history, &mut happened);
        if violation.is_some() || history.setup.rollback != Rollback::WriteOnAccept {
            return violation;
        }
        happened.by_snapshots(history.setup, self.planted, &mut self.backend)
    }

    /// Runs the events, each a feature of the input by its state and outcome.
    fn drive(&mut self, history: &History, happened: &mut Happened) -> Option<Violation> {
        let mut machine = match Machine::new(&mut self.backend, history.setup, self.planted) {
            Ok(machine) => machine,
            Err(violation) => return Some(violation),
        };
        for (at, step) in history.steps.iter().enumerate() {
            let stage = machine.slot(step.sequence.into()).map_or(0, |slot| 1 + slot.stage as u64);
            match machine.apply(step) {
                Ok(did) => {
                    guidance::count_feature(feature(&step.event) << 8 | stage << 4 | did as u64);
                    happened.note(&machine, at, step, did);
                }
                Err(violation) => return Some(violation),
            }
        }
        None
    }

    fn crash(&mut self, history: &History, violation: &Violation) -> ! {
        let mut backend = VmBackend::new();
        let shrunk = shrink(history, violation, self.planted, &mut backend);
        eprintln!("{}", script(&shrunk.history, self.planted, &mut backend));
        if self.planted.is_none() {
            let corpora = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpora"));
            match write(corpora, &shrunk, None, &mut backend) {
                Ok(path) => eprintln!("{}", crate::corpus::replay_command(&path, corpora)),
                Err(error) => eprintln!("{error}"),
            }
        }
        panic!("{} events; {}", shrunk.history.steps.len(), shrunk.violation);
    }
}

impl Default for RoundHarness {
    fn default() -> Self {
        RoundHarness::new()
    }
}

/// An event and the size class of its argument.
fn feature(event: &Event) -> u64 {
    let failing = |failure: bool| 32 * u64::from(failure);
    match event {
        Event::Prefill(_) => 1,
        Event::Decode => 2,
        Event::Begin(rows) => 64 + u64::from(*rows),
        Event::Verify(failure) => 3 + failing(failure.is_some()),
        Event::Commit(rows, failure) => 128 + u64::from(*rows) + failing(failure.is_some()),
        Event::Abort(failure) => 4 + failing(failure.is_some()),
        Event::Drop { unwinds } => 5 + u64::from(*unwinds),
        Event::Release => 7,
        Event::Acquire => 8,
    }
}
