//! Drives the transaction and the model through a history, and holds one against the other after every
//! event. Invariant: the model is told what was asked and whether a launch was made to fail, and nothing
//! of what the transaction answered.

use super::events::{Event, Failure, Step};
use super::failing::Failing;
use super::history::{History, Rollback, Setup};
use super::modes::Happened;
use super::rows::{Rows, certain, proposals};
use super::violation::{Invariant, Violation};
use kernels::backend::{Backend, Fault};
use kernels::transaction::{
    Planted, Published, Refusal, Round, RoundError, Rounds, Sequence, Session, Stage, Ticket,
};
use reference::transaction::{Model, Refused, Slot, Stage as ModelStage};

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Did {
    /// It happened.
    Happened,
    /// It was refused.
    Refused,
    /// A launch was made to fail, and it did not happen.
    Failed,
    /// It has no meaning here: there is no round to drop, no earlier ticket, no free slot to take.
    Skipped,
}

/// The two sides of a history.
pub struct Machine<'a> {
    session: Session<Failing<'a>>,
    model: Model,
    labels: Vec<Label<'a>>,
    addresses: Vec<(u64, u64)>,
    at: usize,
    refusal: std::cell::Cell<Option<Refused>>,
}

/// One sequence's owner.
struct Label<'a> {
    sequence: Sequence,
    round: Option<Round<Failing<'a>>>,
    /// Tickets of this sequence's rounds, in order.
    tickets: Vec<Ticket>,
    /// Rows that were prefilled, decoded or committed.
    rows: u64,
}

/// A history that ran to its end, or to a broken promise.
#[derive(Clone, Debug)]
pub struct Run {
    /// Events that happened, were refused, failed, were skipped.
    pub did: Vec<Did>,
    /// The promise broken.
    pub violation: Option<Violation>,
}

/// Runs a history; one undone by write on accept that keeps its promises, by snapshots too.
pub fn run(history: &History, planted: Option<Planted>, backend: &mut dyn Backend) -> Run {
    let mut happened = Happened::default();
    let run = run_noting(history, planted, backend, |machine, at, step, did| {
        if history.setup.rollback == Rollback::WriteOnAccept {
            happened.note(machine, at, step, did);
        }
    });
    if run.violation.is_some() {
        return run;
    }
    let violation = happened.by_snapshots(history.setup, planted, backend);
    Run { violation, ..run }
}

/// Runs a history, and tells of each event that kept its promises: its number, and what became of it.
pub fn run_noting<'b>(
    history: &History,
    planted: Option<Planted>,
    backend: &'b mut dyn Backend,
    mut note: impl FnMut(&Machine<'b>, usize, &Step, Did),
) -> Run {
    let mut did = Vec::with_capacity(history.steps.len());
    let mut machine = match Machine::new(backend, history.setup, planted) {
        Ok(machine) => machine,
        Err(violation) => return Run { did, violation: Some(violation) },
    };
    for (at, step) in history.steps.iter().enumerate() {
        match machine.apply(step) {
            Ok(one) => {
                note(&machine, at, step, one);
                did.push(one);
            }
            Err(violation) => return Run { did, violation: Some(violation) },
        }
    }
    Run { did, violation: None }
}

/// A history as a person reads it: one line an event, the sequence before and after.
pub fn script(history: &History, planted: Option<Planted>, backend: &mut dyn Backend) -> String {
    let setup = &history.setup;
    let mut text = format!(
        "{:?}, rows {}, state {}; {} sequences of at most {} rows, {} gdn and {} attention layers\n",
        setup.rollback,
        setup.io,
        setup.state,
        setup.sequences,
        setup.capacity,
        setup.gdn_layers,
        setup.attention_layers
    );
    let Ok(mut machine) = Machine::new(backend, history.setup, planted) else { return text };
    for (at, step) in history.steps.iter().enumerate() {
        let sequence = usize::from(step.sequence);
        let before = machine.stands(sequence);
        let outcome = machine.apply(step);
        let after = machine.stands(sequence);
        let said = match &outcome {
            Ok(Did::Happened) => format!("{before} -> {after}"),
            Ok(Did::Refused) => format!("{before}, refused"),
            Ok(Did::Failed) => format!("{before} -> {after}, a launch failed"),
            Ok(Did::Skipped) => format!("{before}, nothing to do"),
            Err(violation) => format!("{before} -> {after}\n      {violation}"),
        };
        text.push_str(&format!("{at:>4}  {:<24} {said}\n", step.to_string()));
        if outcome.is_err() {
            break;
        }
    }
    text
}

impl<'a> Machine<'a> {
    /// Every sequence holds a slot, empty.
    ///
    /// # Errors
    /// When not even that works.
    pub fn new(
        backend: &'a mut dyn Backend,
        setup: Setup,
        planted: Option<Planted>,
    ) -> Result<Machine<'a>, Violation> {
        let shape = setup.shape();
        let captures = backend.captures();
        let mut rounds = Rounds::new(
            Failing::new(backend),
            setup.geometry(),
            setup.rollback,
            Box::new(Rows(shape)),
        );
        rounds.poison_rejected();
        if captures {
            rounds.capture();
        }
        if let Some(planted) = planted {
            rounds.plant(planted);
        }
        let addresses = rounds.addresses();
        let mut model = Model::new(shape);
        let mut labels = Vec::new();
        for at in 0..usize::from(setup.sequences) {
            let first = certain(at, 0);
            let sequence = rounds.acquire(first).map_err(|error| Violation {
                invariant: Invariant::Happens,
                at: 0,
                what: format!("acquiring sequence {at}: {error}"),
            })?;
            model.acquire(at, first);
            labels.push(Label { sequence, round: None, tickets: Vec::new(), rows: 0 });
        }
        let refusal = std::cell::Cell::new(None);
        Ok(Machine { session: Session::new(rounds), model, labels, addresses, at: 0, refusal })
    }

    /// One event, and all that must hold after it.
    ///
    /// # Errors
    /// The first promise broken.
    pub fn apply(&mut self, step: &Step) -> Result<Did, Violation> {
        let own = usize::from(step.sequence);
        if own >= self.labels.len() {
            self.at += 1;
            return Ok(Did::Skipped);
        }
        let before = self.model.slots[own].clone();
        let did = self.event(own, step)?;
        if did != Did::Skipped {
            self.examine(own, step, did, &before)?;
        }
        self.at += 1;
        Ok(did)
    }

    /// How the model refused the last event that it refused.
    pub fn refusal(&self) -> Option<Refused> {
        self.refusal.get()
    }

    /// Where a sequence stands, by the model.
    pub fn slot(&self, sequence: usize) -> Option<&Slot> {
        self.model.slots.get(sequence)
    }

    /// What a sequence has published; `None` when it is released or in doubt.
    pub fn seen(&self, sequence: usize) -> Option<Published> {
        let own = self.labels.get(sequence)?.sequence;
        self.session.with(|rounds| rounds.published(own).ok())
    }

    fn stands(&self, sequence: usize) -> String {
        let Some(slot) = self.slot(sequence) else { return "no such sequence".to_owned() };
        if !slot.held {
            return "released".to_owned();
        }
        let stage = format!("{:?}", slot.stage).to_lowercase();
        format!("{stage} L={} round={}", slot.tokens.len(), slot.round)
    }

    fn event(&mut self, own: usize, step: &Step) -> Result<Did, Violation> {
        let length = self.model.slots[own].tokens.len();
        let sequence = self.labels[own].sequence;
        match step.event {
            Event::Acquire => self.acquire(own),
            Event::Prefill(rows) => {
                let rows = usize::from(rows).max(1);
                let more: Vec<_> = (1..rows).map(|row| certain(own, length + row)).collect();
                let next = certain(own, length + rows);
                let expected = self.model.ingest(own, &more, next);
                let seen = self.session.with(|rounds| rounds.ingest(sequence, &more, next));
                self.count(own, rows, &seen);
                self.judge(expected, seen, Invariant::Refusals)
            }
            Event::Decode => {
                let next = certain(own, length + 1);
                let expected = self.model.ingest(own, &[], next);
                let seen = self.session.with(|rounds| rounds.ingest(sequence, &[], next));
                self.count(own, 1, &seen);
                self.judge(expected, seen, Invariant::Refusals)
            }
            Event::Begin(rows) => {
                let round = self.model.slots[own].round;
                let proposed =
                    proposals(own, length + 1, round, usize::from(rows).saturating_sub(1));
                let expected = self.model.begin(own, &proposed);
                let seen = self.session.begin(sequence, &proposed).map(|round| {
                    self.labels[own].tickets.push(round.ticket());
                    self.labels[own].round = Some(round);
                });
                self.judge(expected, seen, Invariant::Refusals)
            }
            Event::Release => {
                let expected = self.model.release(own);
                let seen = self.session.with(|rounds| rounds.release(sequence));
                self.judge(expected, seen, Invariant::Refusals)
            }
            Event::Drop { unwinds } => self.drop_round(own, unwinds),
            Event::Verify(_) | Event::Commit(..) | Event::Abort(_) => self.by_ticket(own, step),
        }
    }

    /// A sequence that has a slot takes another only to hear that there is none.
    fn acquire(&mut self, own: usize) -> Result<Did, Violation> {
        let held = |slot: &Slot| slot.held;
        let all_held = self.model.slots.iter().all(held);
        if held(&self.model.slots[own]) && !all_held {
            return Ok(Did::Skipped);
        }
        let first = certain(own, 0);
        let expected = if all_held {
            Err(Refused::Capacity)
        } else {
            self.model.acquire(own, first);
            Ok(())
        };
        let seen = self.session.with(|rounds| rounds.acquire(first)).map(|sequence| {
            self.labels[own] = Label { sequence, round: None, tickets: Vec::new(), rows: 0 };
        });
        self.judge(expected, seen, Invariant::Refusals)
    }

    fn drop_round(&mut self, own: usize, unwinds: bool) -> Result<Did, Violation> {
        let Some(round) = self.labels[own].round.take() else { return Ok(Did::Skipped) };
        if unwinds {
            let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _round = round;
                // Unwinds as a panic does, without a message for each history.
                std::panic::resume_unwind(Box::new("a panic takes the round along"));
            }));
            debug_assert!(dropped.is_err(), "the panic ends here");
        } else {
            drop(round);
        }
        let expected = self.model.abort(own, true);
        self.refusal.set(expected.err());
        Ok(if expected.is_ok() { Did::Happened } else { Did::Refused })
    }

    fn by_ticket(&mut self, own: usize, step: &Step) -> Result<Did, Violation> {
        let tickets = &self.labels[own].tickets;
        let at = tickets.len().checked_sub(1 + usize::from(step.stale));
        let Some(ticket) = at.map(|at| tickets[at]) else { return Ok(Did::Skipped) };
        let current = !step.stale;
        let closed = self.model.slots[own].stage == ModelStage::Idle;
        let (failure, expected, seen) = match step.event {
            Event::Verify(failure) => {
                let expected = self.model.may_verify(own, current);
                let seen = self.with_failure(failure, |rounds| rounds.verify(ticket));
                if expected.is_ok() {
                    self.model.verified(own, !self.fired());
                }
                (failure, expected, seen)
            }
            Event::Commit(rows, failure) => {
                let kept = usize::from(rows);
                let next = certain(own, self.model.slots[own].tokens.len() + kept);
                let expected = self.model.commit(own, current, kept, next);
                let seen = self.with_failure(failure, |rounds| rounds.commit(ticket, kept, next));
                self.count(own, kept, &seen);
                (failure, expected, seen)
            }
            Event::Abort(failure) => {
                let expected = self.model.abort(own, current);
                let seen = self.with_failure(failure, |rounds| rounds.abort(ticket));
                (failure, expected, seen)
            }
            _ => return Ok(Did::Skipped),
        };
        let resolves = matches!(step.event, Event::Commit(..) | Event::Abort(_));
        let lasting = matches!(failure, Some(Failure::Lasting(_)));
        if expected.is_ok() && self.fired() && (!resolves || lasting) {
            if resolves {
                self.model.break_down(own);
            }
            return match seen {
                Err(error) if error.refusal().is_none() => Ok(Did::Failed),
                seen => Err(self.broken(
                    Invariant::NeverMixed,
                    format!("a launch failed for good, and the answer is {}", words(&seen)),
                )),
            };
        }
        if resolves && seen.is_ok() {
            // Dropping a resolved round is nothing.
            self.labels[own].round = None;
        }
        if let (Ok(()), Event::Commit(_, Some(_)), Err(error)) = (expected, step.event, &seen)
            && self.fired()
        {
            let what =
                format!("one launch failed, which a second try mends; the answer is {error}");
            return Err(self.broken(Invariant::NeverMixed, what));
        }
        let wrong = if resolves && closed { Invariant::OneResolution } else { Invariant::Refusals };
        self.judge(expected, seen, wrong)
    }

    fn with_failure(
        &mut self,
        failure: Option<Failure>,
        event: impl FnOnce(&mut Rounds<Failing<'a>>) -> Result<(), RoundError>,
    ) -> Result<(), RoundError> {
        self.session.with(|rounds| {
            rounds.backend().arm(failure);
            let seen = event(rounds);
            let fired = rounds.backend().fired;
            rounds.backend().arm(None);
            rounds.backend().fired = fired;
            seen
        })
    }

    fn fired(&self) -> bool {
        self.session.with(|rounds| rounds.backend().fired)
    }

    fn count(&mut self, own: usize, rows: usize, seen: &Result<(), RoundError>) {
        if seen.is_ok() {
            self.labels[own].rows += rows as u64;
        }
    }

    /// Both sides' answers.
    fn judge(
        &self,
        expected: Result<(), Refused>,
        seen: Result<(), RoundError>,
        wrong: Invariant,
    ) -> Result<Did, Violation> {
        match (expected, &seen) {
            (Ok(()), Ok(())) => Ok(Did::Happened),
            (Err(refused), Err(error)) if error.refusal() == Some(class(refused)) => {
                self.refusal.set(Some(refused));
                Ok(Did::Refused)
            }
            (Err(refused), _) => {
                let what =
                    format!("{refused:?} must be the refusal; the answer is {}", words(&seen));
                Err(self.broken(wrong, what))
            }
            (Ok(()), Err(RoundError::Fault(fault))) if reads_dead(fault) => {
                Err(self.broken(Invariant::RejectedDead, fault.to_string()))
            }
            (Ok(()), Err(error)) if error.refusal().is_some() => {
                Err(self.broken(Invariant::Refusals, format!("a legal event is refused: {error}")))
            }
            (Ok(()), Err(error)) => Err(self.broken(Invariant::Happens, error.to_string())),
        }
    }

    /// All that must hold after an event of `own`.
    fn examine(&self, own: usize, step: &Step, did: Did, before: &Slot) -> Result<(), Violation> {
        self.session.with(|rounds| {
            for at in 0..self.labels.len() {
                let wrong =
                    if at == own { changed_by(step, did) } else { Invariant::OthersUntouched };
                self.stands_as(rounds, at, wrong)?;
                self.published(rounds, at, wrong, (at == own).then_some((step, did, before)))?;
            }
            let runs = matches!(step.event, Event::Prefill(_) | Event::Decode | Event::Verify(_));
            if runs && did == Did::Happened {
                self.outputs(rounds, own)?;
            }
            for slot in 0..self.labels.len() as u64 {
                if let Some(place) = rounds.undead(slot) {
                    let what = format!("{place} is no poison");
                    return Err(self.broken(Invariant::RejectedDead, what));
                }
            }
            if rounds.addresses() != self.addresses {
                return Err(self.broken(Invariant::StableAddresses, "a buffer moved".to_owned()));
            }
            Ok(())
        })
    }

    fn stands_as(
        &self,
        rounds: &Rounds<Failing<'a>>,
        at: usize,
        wrong: Invariant,
    ) -> Result<(), Violation> {
        let slot = &self.model.slots[at];
        let seen = rounds.stage(self.labels[at].sequence).ok();
        let expected = slot.held.then_some(match slot.stage {
            ModelStage::Idle => Stage::Idle,
            ModelStage::Open => Stage::Open,
            ModelStage::Staged => Stage::Staged,
            ModelStage::Failed => Stage::Failed,
            ModelStage::Broken => Stage::Broken,
        });
        if seen == expected {
            return Ok(());
        }
        let says = |stage: Option<Stage>| stage.map_or("released".to_owned(), |s| s.to_string());
        let what = format!("s{at} must be {}, and is {}", says(expected), says(seen));
        Err(self.broken(wrong, what))
    }

    /// What a sequence has published, part by part.
    fn published(
        &self,
        rounds: &Rounds<Failing<'a>>,
        at: usize,
        wrong: Invariant,
        cause: Option<(&Step, Did, &Slot)>,
    ) -> Result<(), Violation> {
        let Ok(seen) = rounds.published(self.labels[at].sequence) else { return Ok(()) };
        let slot = &self.model.slots[at];
        let rows = slot.tokens.len() as u64;
        let parts = [
            ("the length", u64::from(seen.length == rows)),
            ("the count of rows of keys and values", u64::from(seen.kv_length == rows)),
            ("the last token", u64::from(seen.last_token == slot.last_token)),
            ("the count of rounds", u64::from(seen.round == slot.round)),
        ];
        let mut parts: Vec<(String, bool)> =
            parts.iter().map(|(name, same)| ((*name).to_owned(), *same == 1)).collect();
        for layer in 0..seen.states.len() {
            let state = seen.states[layer] == self.model.state_bits(at, layer);
            let window = seen.windows[layer] == self.model.window_bits(at, layer);
            parts.push((format!("the state of layer {layer}"), state));
            parts.push((format!("the window of layer {layer}"), window));
        }
        for (layer, kv) in seen.keys_and_values.iter().enumerate() {
            let same = *kv == self.model.kv_bits(layer, &slot.tokens);
            parts.push((format!("the keys and values of layer {layer}"), same));
        }
        let differing: Vec<&str> =
            parts.iter().filter(|(_, same)| !same).map(|(name, _)| name.as_str()).collect();
        if differing.is_empty() {
            if seen.length != self.labels[at].rows {
                let what = format!(
                    "s{at} is {} rows long, and {} were prefilled, decoded and committed",
                    seen.length, self.labels[at].rows
                );
                return Err(self.broken(Invariant::LengthAddsUp, what));
            }
            return Ok(());
        }
        let commits = cause.is_some_and(|(step, did, _)| {
            did == Did::Happened && matches!(step.event, Event::Commit(..))
        });
        let apart = commits && differing.len() < parts.len() - 2;
        let wrong = if apart { Invariant::SameRows } else { wrong };
        let (shown, more) = differing.split_at(differing.len().min(4));
        let more =
            if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        let what = format!(
            "of s{at}, {}{more} {} not what the decodes of its {rows} tokens leave",
            shown.join(", "),
            if differing.len() == 1 { "is" } else { "are" }
        );
        Err(self.broken(wrong, what))
    }

    /// Outputs of the rows that ran, and what attention read for them.
    fn outputs(&self, rounds: &Rounds<Failing<'a>>, own: usize) -> Result<(), Violation> {
        let context = &self.model.slots[own].context;
        let seen = rounds.outputs(self.labels[own].sequence, context.len() as u64);
        let seen = seen.map_err(|error| self.broken(Invariant::Happens, error.to_string()))?;
        for (layer, o) in seen.o.iter().enumerate() {
            let expected = self.model.output_bits(own, layer);
            if o == expected {
                continue;
            }
            let first = o.iter().zip(expected).position(|(seen, expected)| seen != expected);
            let what = format!(
                "of s{own}, layer {layer}, {} of {} outputs came, the first that differs is number {:?}",
                o.len(),
                expected.len(),
                first.unwrap_or(o.len().min(expected.len()))
            );
            return Err(self.broken(Invariant::FutureBlind, what));
        }
        for (layer, read) in seen.context.iter().enumerate() {
            if *read != self.model.kv_bits(layer, context) {
                let what = format!("of s{own}, attention layer {layer} read other rows");
                return Err(self.broken(Invariant::RejectedDead, what));
            }
        }
        Ok(())
    }

    fn broken(&self, invariant: Invariant, what: String) -> Violation {
        Violation { invariant, at: self.at, what }
    }
}

/// The promise that a wrong state after this event breaks.
fn changed_by(step: &Step, did: Did) -> Invariant {
    match (step.event, did) {
        (_, Did::Refused | Did::Skipped) => Invariant::Refusals,
        (Event::Commit(..), Did::Failed) => Invariant::NeverMixed,
        (Event::Commit(_, Some(_)), Did::Happened) => Invariant::NeverMixed,
        (Event::Commit(..), Did::Happened) => Invariant::PublishesPrefix,
        (Event::Abort(_) | Event::Drop { .. } | Event::Verify(_) | Event::Begin(_), _) => {
            Invariant::Restores
        }
        (Event::Prefill(_) | Event::Decode, _) => Invariant::EqualsDecodes,
        (Event::Release | Event::Acquire, _) => Invariant::FreshSlot,
    }
}

fn class(refused: Refused) -> Refusal {
    match refused {
        Refused::State => Refusal::State,
        Refused::StaleId => Refusal::StaleId,
        Refused::Released => Refusal::Released,
        Refused::Capacity => Refusal::Capacity,
        Refused::Rows => Refusal::Rows,
        Refused::Broken => Refusal::Broken,
    }
}

fn words(seen: &Result<(), RoundError>) -> String {
    match seen {
        Ok(()) => "that it happened".to_owned(),
        Err(error) => format!("\"{error}\""),
    }
}

fn reads_dead(fault: &Fault) -> bool {
    matches!(fault, Fault::Machine(fault)
        if matches!(fault.kind, ptx_vm::FaultKind::Uninitialised { .. }))
}
