//! What happened in a history undone by write on accept, once more by snapshots: refusals and failed
//! launches left out, for a failing launch meets another one there. After every event the sequence it
//! was of must have published the same bits in both. The model judges each alone and is not asked here.

use super::events::{Event, Step};
use super::history::{Rollback, Setup};
use super::machine::{Did, Machine};
use super::violation::{Invariant, Violation};
use kernels::backend::Backend;
use kernels::transaction::{Planted, Published};

/// Events that happened, their numbers in the history, and what their sequences had published then.
#[derive(Debug, Default)]
pub struct Happened {
    events: Vec<(usize, Step, Option<Published>)>,
}

impl Happened {
    /// Notes an event, if it happened.
    pub fn note(&mut self, machine: &Machine<'_>, at: usize, step: &Step, did: Did) {
        if did == Did::Happened {
            let published = machine.seen(step.sequence.into());
            self.events.push((at, unfailing(step), published));
        }
    }

    /// The same events, their rounds undone by snapshots.
    pub fn by_snapshots(
        &self,
        setup: Setup,
        planted: Option<Planted>,
        backend: &mut dyn Backend,
    ) -> Option<Violation> {
        let (first, ..) = self.events.first()?;
        let disagree =
            |at: usize, what: String| Violation { invariant: Invariant::ModesAgree, at, what };
        let setup = Setup { rollback: Rollback::Snapshot, ..setup };
        let mut machine = match Machine::new(backend, setup, planted) {
            Ok(machine) => machine,
            Err(violation) => return Some(disagree(*first, violation.what)),
        };
        self.events.iter().find_map(|(at, step, published)| {
            let sequence = usize::from(step.sequence);
            match machine.apply(step) {
                Ok(Did::Happened) => {
                    let differing = differing(published.as_ref(), machine.seen(sequence).as_ref())?;
                    let what = format!("of s{sequence}, {differing} is another with snapshots");
                    Some(disagree(*at, what))
                }
                Ok(other) => {
                    let what = format!("`{step}` happened; with snapshots: {other:?}");
                    Some(disagree(*at, what))
                }
                Err(violation) => {
                    let what = format!("with snapshots, {}", violation.what);
                    Some(disagree(*at, what))
                }
            }
        })
    }
}

/// The event with no launch made to fail.
fn unfailing(step: &Step) -> Step {
    let event = match step.event {
        Event::Verify(_) => Event::Verify(None),
        Event::Commit(rows, _) => Event::Commit(rows, None),
        Event::Abort(_) => Event::Abort(None),
        event => event,
    };
    Step { event, ..*step }
}

/// The first part in which two publications differ.
fn differing(one: Option<&Published>, other: Option<&Published>) -> Option<String> {
    let (one, other) = match (one, other) {
        (None, None) => return None,
        (Some(one), Some(other)) => (one, other),
        _ => return Some("whether anything is published".to_owned()),
    };
    let of_layer = |name: &str, one: &[Vec<u64>], other: &[Vec<u64>]| {
        let layer = one.iter().zip(other).position(|(one, other)| one != other)?;
        Some(format!("the {name} of layer {layer}"))
    };
    if one == other {
        return None;
    }
    of_layer("state", &one.states, &other.states)
        .or_else(|| of_layer("window", &one.windows, &other.windows))
        .or_else(|| {
            of_layer("rows of keys and values", &one.keys_and_values, &other.keys_and_values)
        })
        .or_else(|| Some("a length, the last token or the count of rounds".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::generate::history_of_seed;
    use super::super::history::History;
    use super::super::machine::run_noting;
    use super::*;
    use kernels::backend::vm::VmBackend;

    /// What happened in a sound history by write on accept.
    fn happened(seed: u64, backend: &mut VmBackend) -> (History, Happened) {
        let mut history = history_of_seed(seed);
        history.setup.rollback = Rollback::WriteOnAccept;
        let mut happened = Happened::default();
        let run = run_noting(&history, None, backend, |machine, at, step, did| {
            happened.note(machine, at, step, did);
        });
        assert_eq!(run.violation, None, "seed {seed}");
        (history, happened)
    }

    #[test]
    fn both_modes_leave_the_same() {
        let mut backend = VmBackend::new();
        let mut commits = 0;
        for seed in 0..60 {
            let (history, happened) = happened(0x11a + seed, &mut backend);
            let commit = |step: &Step| matches!(step.event, Event::Commit(..));
            commits += happened.events.iter().filter(|(_, step, _)| commit(step)).count();
            let violation = happened.by_snapshots(history.setup, None, &mut backend);
            assert_eq!(violation, None, "seed {seed}: {:?}", history.steps);
        }
        assert!(commits > 60, "{commits} commits");
    }

    #[test]
    fn one_mode_that_is_wrong_shows() {
        let mut backend = VmBackend::new();
        for planted in [Planted::LayersSwapped, Planted::ConvCommitsLess, Planted::SlotReuseLeaks] {
            let shown = (0..60).any(|seed| {
                let (history, happened) = happened(0x0dd + seed, &mut backend);
                let violation = happened.by_snapshots(history.setup, Some(planted), &mut backend);
                violation.is_some_and(|violation| violation.invariant == Invariant::ModesAgree)
            });
            assert!(shown, "{planted:?}");
        }
    }

    #[test]
    fn what_was_published_is_told_by_its_part() {
        let mut backend = VmBackend::new();
        let (history, mut happened) = happened(0x11a, &mut backend);
        let last = happened.events.len() - 1;
        let (at, _, published) = &mut happened.events[last];
        let (at, published) = (*at, published.as_mut().expect("something is published"));
        published.states[0][7] ^= 1;
        let violation = happened.by_snapshots(history.setup, None, &mut backend);
        let violation = violation.expect("one bit of a state");
        assert_eq!((violation.invariant, violation.at), (Invariant::ModesAgree, at));
        assert!(violation.what.contains("the state of layer 0"), "{violation}");
    }
}
