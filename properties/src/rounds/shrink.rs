//! Makes a failing history small: events are left out, then sequences and sizes, then arguments, each
//! kept if the same promise still breaks. Deterministic; ends where no single edit keeps the failure, or
//! at the limit of tries.

use super::events::{Event, Step};
use super::history::{History, ROLLBACKS, Setup};
use super::machine::run;
use super::violation::{Invariant, Violation};
use contracts::dtype::DType;
use kernels::backend::Backend;
use kernels::transaction::Planted;

/// Histories run at most.
const MOST_TRIES: usize = 4_000;

/// A small history that fails.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The history.
    pub history: History,
    /// Its failure.
    pub violation: Violation,
    /// Histories run on the way.
    pub tries: usize,
}

struct Shrinker<'a> {
    planted: Option<Planted>,
    backend: &'a mut dyn Backend,
    found: Shrunk,
}

/// Shrinks a history that breaks `invariant`.
pub fn shrink(
    history: &History,
    violation: &Violation,
    planted: Option<Planted>,
    backend: &mut dyn Backend,
) -> Shrunk {
    let mut history = history.clone();
    history.steps.truncate(violation.at + 1);
    let found = Shrunk { history, violation: violation.clone(), tries: 0 };
    let mut shrinker = Shrinker { planted, backend, found };
    loop {
        let before = shrinker.found.history.clone();
        shrinker.fewer_events();
        shrinker.simpler_setup();
        shrinker.smaller_arguments();
        if shrinker.found.history == before || shrinker.found.tries >= MOST_TRIES {
            return shrinker.found;
        }
    }
}

impl Shrinker<'_> {
    /// Whether a history breaks the same promise; it takes the place of the last one then.
    fn keep(&mut self, history: History) -> bool {
        let wanted: Invariant = self.found.violation.invariant;
        if self.found.tries >= MOST_TRIES || history == self.found.history {
            return false;
        }
        self.found.tries += 1;
        match run(&history, self.planted, self.backend).violation {
            Some(violation) if violation.invariant == wanted => {
                let mut history = history;
                history.steps.truncate(violation.at + 1);
                self.found = Shrunk { history, violation, tries: self.found.tries };
                true
            }
            _ => false,
        }
    }

    /// Leaves out runs of events, long ones first, then pairs that only go together.
    fn fewer_events(&mut self) {
        let mut length = self.found.history.steps.len() / 2;
        while length > 0 {
            let mut at = 0;
            while at + length <= self.found.history.steps.len() {
                let mut history = self.found.history.clone();
                history.steps.drain(at..at + length);
                if !self.keep(history) {
                    at += 1;
                }
            }
            length /= 2;
        }
        let mut first = 0;
        while first + 1 < self.found.history.steps.len() {
            let pairs = first + 1..self.found.history.steps.len();
            let kept = pairs.into_iter().any(|second| {
                let mut history = self.found.history.clone();
                history.steps.remove(second);
                history.steps.remove(first);
                self.keep(history)
            });
            if !kept {
                first += 1;
            }
        }
    }

    fn simpler_setup(&mut self) {
        // Events of the last sequence by the one before, so that the last is not needed.
        while self.found.history.setup.sequences > 1 {
            let mut history = self.found.history.clone();
            history.setup.sequences -= 1;
            let last = history.setup.sequences;
            let unused = self.keep(history.clone());
            let renamed = |step: &mut Step| step.sequence = step.sequence.min(last - 1);
            history.steps.iter_mut().for_each(renamed);
            if !unused && !self.keep(history) {
                break;
            }
        }
        let plain = Setup::PLAIN;
        for (_, rollback) in ROLLBACKS {
            if rollback == self.found.history.setup.rollback {
                break;
            }
            let mut history = self.found.history.clone();
            history.setup.rollback = rollback;
            if self.keep(history) {
                break;
            }
        }
        let edits: [fn(&mut Setup, Setup); 5] = [
            |setup, _| setup.io = DType::F32,
            |setup, _| setup.state = DType::F32,
            |setup, plain| setup.gdn_layers = plain.gdn_layers,
            |setup, plain| setup.attention_layers = plain.attention_layers,
            |setup, plain| setup.capacity = plain.capacity,
        ];
        for edit in edits {
            let mut history = self.found.history.clone();
            edit(&mut history.setup, plain);
            self.keep(history);
        }
        self.swap_sequences();
    }

    /// The first event's sequence is s0.
    fn swap_sequences(&mut self) {
        let Some(first) = self.found.history.steps.first().map(|step| step.sequence) else {
            return;
        };
        let mut history = self.found.history.clone();
        for step in &mut history.steps {
            step.sequence = match step.sequence {
                0 => first,
                own if own == first => 0,
                own => own,
            };
        }
        self.keep(history);
    }

    fn smaller_arguments(&mut self) {
        for at in 0..self.found.history.steps.len() {
            while let Some(step) = self.found.history.steps.get(at).copied() {
                let smaller = smaller(&step);
                let kept = smaller.into_iter().any(|step| {
                    let mut history = self.found.history.clone();
                    history.steps[at] = step;
                    self.keep(history)
                });
                if !kept {
                    break;
                }
            }
        }
        self.smaller_together();
    }

    /// A round and what it commits, one row less together.
    fn smaller_together(&mut self) {
        loop {
            let mut history = self.found.history.clone();
            for step in &mut history.steps {
                match &mut step.event {
                    Event::Begin(rows) if *rows > 2 => *rows -= 1,
                    Event::Commit(rows, _) if *rows > 1 => *rows -= 1,
                    _ => {}
                }
            }
            if !self.keep(history) {
                break;
            }
        }
    }
}

/// Simpler forms of an event, simplest first.
fn smaller(step: &Step) -> Vec<Step> {
    let with = |event: Event| Step { event, ..*step };
    let mut simpler = match step.event {
        Event::Prefill(rows) => {
            let mut events = vec![with(Event::Decode)];
            events.extend((rows > 1).then(|| with(Event::Prefill(rows - 1))));
            events
        }
        Event::Begin(rows) if rows > 2 => vec![with(Event::Begin(2)), with(Event::Begin(rows - 1))],
        Event::Commit(rows, failure) if rows > 1 => {
            vec![with(Event::Commit(1, failure)), with(Event::Commit(rows - 1, failure))]
        }
        Event::Drop { unwinds: true } => vec![with(Event::Drop { unwinds: false })],
        _ => Vec::new(),
    };
    match step.event {
        Event::Verify(Some(_)) => simpler.insert(0, with(Event::Verify(None))),
        Event::Commit(rows, Some(_)) => simpler.insert(0, with(Event::Commit(rows, None))),
        Event::Abort(Some(_)) => simpler.insert(0, with(Event::Abort(None))),
        _ => {}
    }
    if step.stale {
        simpler.push(Step { stale: false, ..*step });
    }
    simpler
}
