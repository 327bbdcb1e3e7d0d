//! The transaction: which event is legal when, and which launches it takes. An event either happens or
//! is an error; a refused one has launched nothing. Sequences never meet but in the backend.

use super::error::RoundError;
use super::geometry::{Geometry, MOST_VERIFY_ROWS, Projections, Rollback, Token, VERIFY_ROWS};
use super::planted::Planted;
use super::pool::{Fold, Path, Pool, Table};
use crate::backend::Backend;
use std::fmt;

/// Rows that drafts are trained on.
const TRAINED_ROWS: u64 = 8;

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No round is open.
    Idle,
    /// A round has begun.
    Open,
    /// Its rows are verified.
    Staged,
    /// Its verification failed: it can only be undone.
    Failed,
    /// A device error left the sequence in doubt.
    Broken,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Idle => "idle",
            Stage::Open => "open",
            Stage::Staged => "staged",
            Stage::Failed => "failed",
            Stage::Broken => "broken",
        })
    }
}

/// A sequence, until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub(super) slot: u64,
    generation: u64,
}

/// One round of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(super) sequence: Sequence,
    id: u64,
}

/// What the host knows of one slot.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    generation: u64,
    pub(super) occupied: bool,
    pub(super) stage: Stage,
    pub(super) length: u64,
    /// Rows of keys and values that are published; the same number.
    pub(super) kv_length: u64,
    pub(super) last_token: Token,
    pub(super) round: u64,
    /// The latest round's number.
    latest: u64,
    tokens: Vec<Token>,
    /// Whether the round's rows are in the snapshots.
    verified: bool,
    /// Rows of keys and values that hold something: published, or of a round not yet dead.
    pub(super) kv_touched: u64,
    staged_rows: u64,
    /// The last run's rows, for who looks at its outputs.
    pub(super) ran: u64,
}

/// Sequences and their rounds on one backend.
pub struct Rounds<B> {
    pub(super) pool: Pool<B>,
    pub(super) slots: Vec<Slot>,
    pub(super) rollback: Rollback,
    projections: Box<dyn Projections>,
    tickets: u64,
    poisons: bool,
    #[cfg(feature = "planted")]
    planted: Option<Planted>,
    /// The one count of [`Planted::CountIsGlobal`].
    global_count: Option<usize>,
}

impl<B: Backend> Rounds<B> {
    /// Empty slots on this backend.
    pub fn new(
        backend: B,
        geometry: Geometry,
        rollback: Rollback,
        projections: Box<dyn Projections>,
    ) -> Rounds<B> {
        let slot = Slot {
            generation: 0,
            occupied: false,
            stage: Stage::Idle,
            length: 0,
            kv_length: 0,
            last_token: 0,
            round: 0,
            latest: 0,
            tokens: Vec::new(),
            verified: false,
            kv_touched: 0,
            staged_rows: 0,
            ran: 0,
        };
        Rounds {
            pool: Pool::new(backend, geometry, projections.as_ref()),
            slots: vec![slot; geometry.slots as usize],
            rollback,
            projections,
            tickets: 0,
            poisons: false,
            #[cfg(feature = "planted")]
            planted: None,
            global_count: None,
        }
    }

    /// From now on, what a round leaves behind is overwritten with poison that no kernel may read. For
    /// tests: production pays nothing for rows that are never read.
    pub fn poison_rejected(&mut self) {
        self.poisons = true;
    }

    /// From now on, runs through captured graphs where the backend can.
    pub fn capture(&mut self) {
        self.pool.captures = true;
    }

    /// From now on, one decision is made wrongly.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, planted: Planted) {
        self.planted = Some(planted);
    }

    #[cfg(feature = "planted")]
    pub(super) fn planted(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    #[cfg(not(feature = "planted"))]
    pub(super) fn planted(&self, _: Planted) -> bool {
        false
    }

    /// The backend.
    pub fn backend(&mut self) -> &mut B {
        &mut self.pool.backend
    }

    /// A free slot, empty, whose first token will be `first`.
    ///
    /// # Errors
    /// `Capacity` without a free slot; the device's.
    pub fn acquire(&mut self, first: Token) -> Result<Sequence, RoundError> {
        let free = self.slots.iter().position(|slot| !slot.occupied);
        let capacity = self.slots.len() as u64;
        let at = free.ok_or(RoundError::Capacity { capacity, wanted: capacity + 1 })?;
        if !self.planted(Planted::SlotReuseLeaks) || self.slots[at].generation == 0 {
            self.pool.clear(at as u64)?;
        }
        let slot = &mut self.slots[at];
        slot.generation += 1;
        (slot.occupied, slot.stage, slot.last_token) = (true, Stage::Idle, first);
        (slot.length, slot.kv_length, slot.round) = (0, 0, 0);
        Ok(Sequence { slot: at as u64, generation: slot.generation })
    }

    /// Gives an idle sequence's slot back.
    ///
    /// # Errors
    /// `Released`, `Broken`, or `State` while a round is open.
    pub fn release(&mut self, sequence: Sequence) -> Result<(), RoundError> {
        let at = self.place(sequence)?;
        if !self.planted(Planted::ReleasedWhileOpen) {
            self.stage_is(at, "release", &[Stage::Idle])?;
        }
        let slot = &mut self.slots[at];
        (slot.occupied, slot.stage, slot.verified) = (false, Stage::Idle, false);
        (slot.length, slot.kv_length) = (0, 0);
        self.poison(at);
        Ok(())
    }

    /// Ingests rows the sequence is certain of: the last token and those after it, `next` being what
    /// follows them. Several rows take the verify kernels, one the decode kernels.
    ///
    /// # Errors
    /// `State` unless idle, `Rows`, `Capacity`; the device's, after which the sequence is broken.
    pub fn ingest(
        &mut self,
        sequence: Sequence,
        more: &[Token],
        next: Token,
    ) -> Result<(), RoundError> {
        let at = self.place(sequence)?;
        self.stage_is(at, "ingest", &[Stage::Idle])?;
        let rows = more.len() as u64 + 1;
        if rows > MOST_VERIFY_ROWS {
            let legal = (1, MOST_VERIFY_ROWS as usize);
            return Err(RoundError::Rows { event: "ingest", given: rows as usize, legal });
        }
        self.has_room(at, rows)?;
        let tokens = [&[self.slots[at].last_token], more].concat();
        let path = if rows == 1 { Path::Step } else { Path::InPlace };
        if let Err(error) = self.run(at, &tokens, path) {
            self.slots[at].stage = Stage::Broken;
            return Err(error);
        }
        let slot = &mut self.slots[at];
        slot.length += rows;
        slot.kv_length += rows;
        slot.last_token = next;
        self.poison(at);
        Ok(())
    }

    /// Opens a round over the last token and these proposals.
    ///
    /// # Errors
    /// `State` unless idle, `Rows`, `Capacity`; the device's, after which nothing is open.
    pub fn begin(&mut self, sequence: Sequence, proposals: &[Token]) -> Result<Ticket, RoundError> {
        let at = self.place(sequence)?;
        self.stage_is(at, "begin", &[Stage::Idle])?;
        let rows = proposals.len() + 1;
        if !VERIFY_ROWS.contains(&rows) {
            let legal = (*VERIFY_ROWS.start(), *VERIFY_ROWS.end());
            return Err(RoundError::Rows { event: "begin", given: rows, legal });
        }
        if !self.planted(Planted::CapacityIgnored) {
            self.has_room(at, rows as u64)?;
        }
        if self.rollback == Rollback::Checkpoint {
            for layer in 0..self.pool.gdn.len() {
                let own = self.pool.gdn[layer];
                self.pool.copy(own.s, own.kept_s, &[(at as u64, at as u64)])?;
                self.pool.copy(own.window, own.kept_window, &[(at as u64, at as u64)])?;
            }
        }
        self.tickets += 1;
        let slot = &mut self.slots[at];
        slot.latest = self.tickets;
        slot.tokens = [&[slot.last_token], proposals].concat();
        slot.stage = Stage::Open;
        if slot.verified {
            slot.stage = Stage::Staged; // the mark of an earlier round: never left in a sound build
        }
        Ok(Ticket { sequence, id: self.tickets })
    }

    /// Runs the round's rows: outputs for all, and the state after each.
    ///
    /// # Errors
    /// `State` unless open, `StaleId`; the device's, after which the round can only be undone.
    pub fn verify(&mut self, ticket: Ticket) -> Result<(), RoundError> {
        let at = self.round(ticket)?;
        self.stage_is(at, "verify", &[Stage::Open])?;
        let mut tokens = self.slots[at].tokens.clone();
        if self.planted(Planted::TrainedRowsOnly) {
            tokens.truncate(TRAINED_ROWS as usize);
        }
        let path = match self.rollback {
            Rollback::Checkpoint => Path::InPlace,
            Rollback::Snapshot => Path::Apart,
            Rollback::WriteOnAccept => Path::Stashed,
        };
        let ran = self.run(at, &tokens, path);
        let counts_as_done = ran.is_ok() || self.planted(Planted::VerifyErrorIgnored);
        let slot = &mut self.slots[at];
        slot.stage = if counts_as_done { Stage::Staged } else { Stage::Failed };
        slot.verified = counts_as_done;
        ran
    }

    /// Publishes the round's first `rows` rows; `next` follows them.
    ///
    /// # Errors
    /// `State` unless verified, `StaleId`, `Rows`; the device's, twice for one launch, after which the
    /// sequence is broken.
    pub fn commit(&mut self, ticket: Ticket, rows: usize, next: Token) -> Result<(), RoundError> {
        let at = self.round(ticket)?;
        if !self.planted(Planted::SecondCommitAccepted) || self.slots[at].stage != Stage::Idle {
            self.stage_is(at, "commit", &[Stage::Staged])?;
        }
        let verified = self.slots[at].tokens.len();
        if !(1..=verified).contains(&rows) && !self.planted(Planted::CountUnchecked) {
            let legal = (1, verified);
            return Err(RoundError::Rows { event: "commit", given: rows, legal });
        }
        let mut rows = rows;
        if self.planted(Planted::CountIsGlobal) {
            rows = *self.global_count.get_or_insert(rows);
        }
        if self.planted(Planted::CommitsAllRows) {
            rows = verified;
        }
        if self.planted(Planted::AcceptedForCommitted) {
            rows -= 1;
        }
        if let Err(error) = self.publish(at, rows) {
            let left = self.planted(Planted::HalfCommitLeft);
            self.slots[at].stage = if left { Stage::Idle } else { Stage::Broken };
            return Err(error);
        }
        let less = u64::from(self.planted(Planted::KvCommitsLess));
        let slot = &mut self.slots[at];
        slot.length += rows as u64;
        slot.kv_length += (rows as u64).saturating_sub(less);
        slot.last_token = next;
        slot.round += 1;
        self.resolved(at, false);
        Ok(())
    }

    /// Undoes the round: everything is as it was at begin.
    ///
    /// # Errors
    /// `State` without an open round, `StaleId`; the device's, twice for one launch, after which the
    /// sequence is broken.
    pub fn abort(&mut self, ticket: Ticket) -> Result<(), RoundError> {
        let at = self.round(ticket)?;
        self.stage_is(at, "abort", &[Stage::Open, Stage::Staged, Stage::Failed])?;
        let touched = self.slots[at].stage != Stage::Open;
        if touched
            && self.rollback == Rollback::Checkpoint
            && let Err(error) = self.restore(at)
        {
            self.slots[at].stage = Stage::Broken;
            return Err(error);
        }
        self.resolved(at, self.planted(Planted::VerifiedMarkKept));
        Ok(())
    }

    /// What dropping a round does: an abort, unless it is resolved. Nobody is left to hear of an error:
    /// the sequence is broken then.
    pub(super) fn drop_round(&mut self, ticket: Ticket) {
        let unwinds = std::thread::panicking() && self.planted(Planted::UnwindSkipsAbort);
        if !self.planted(Planted::DropIsNoop) && !unwinds {
            // A refusal says that the round is resolved already.
            let _ = self.abort(ticket);
        }
    }

    /// Where the sequence stands.
    ///
    /// # Errors
    /// `Released`.
    pub fn stage(&self, sequence: Sequence) -> Result<Stage, RoundError> {
        Ok(self.slots[self.occupied(sequence)?].stage)
    }

    /// Brings the state and window after the last of `rows` rows to the slot.
    fn publish(&mut self, at: usize, rows: usize) -> Result<(), RoundError> {
        let (slot, verified) = (at as u64, self.slots[at].tokens.len());
        if rows == 0 || (self.rollback == Rollback::Checkpoint && rows == verified) {
            return Ok(()); // the slot holds the state after the last row already
        }
        let (first, last) = (slot * MOST_VERIFY_ROWS, rows as u64 - 1);
        let late = u64::from(self.planted(Planted::SnapshotLate));
        let state_row = (last + late).min(MOST_VERIFY_ROWS - 1);
        let folds = self.rollback == Rollback::WriteOnAccept;
        let window_row = match () {
            () if self.planted(Planted::ConvNotRolledBack) => verified as u64 - 1,
            () if self.planted(Planted::ConvCommitsLess) => last.saturating_sub(1),
            () => state_row,
        };
        for layer in 0..self.pool.gdn.len() {
            if layer > 0 && self.planted(Planted::OneLayerCommits) {
                break;
            }
            let own = self.pool.gdn[layer];
            let swapped = self.planted(Planted::LayersSwapped);
            let from = if swapped { self.pool.gdn.len() - 1 - layer } else { layer };
            if folds {
                self.fold(at, layer, from, state_row + 1)?;
            } else {
                let snapshots = self.pool.gdn[from].snap_s;
                self.insist(snapshots, own.s, (first + state_row, slot))?;
            }
            self.insist(own.snap_window, own.window, (first + window_row, slot))?;
        }
        Ok(())
    }

    /// Brings the checkpoint back.
    fn restore(&mut self, at: usize) -> Result<(), RoundError> {
        let slot = at as u64;
        let kept = if self.planted(Planted::FirstCheckpointForAll) { 0 } else { slot };
        for layer in 0..self.pool.gdn.len() {
            let own = self.pool.gdn[layer];
            if !self.planted(Planted::AbortKeepsState) {
                self.insist(own.kept_s, own.s, (kept, slot))?;
            }
            if !self.planted(Planted::ConvNotRolledBack) {
                self.insist(own.kept_window, own.window, (kept, slot))?;
            }
        }
        Ok(())
    }

    /// A copy that may be made twice: its source stays, so a second try completes what a first one that
    /// failed may have begun.
    fn insist(&mut self, from: Table, to: Table, pair: (u64, u64)) -> Result<(), RoundError> {
        match self.pool.copy(from, to, &[pair]) {
            // A rule that a kernel broke it breaks again.
            Err(RoundError::Backend(_)) if !self.planted(Planted::HalfCommitLeft) => {
                self.pool.copy(from, to, &[pair])
            }
            done => done,
        }
    }

    /// Folds rows of the round into a layer's state, which is read and written in place: a second try is
    /// made only where the first is known to have left everything as it was.
    fn fold(
        &mut self,
        at: usize,
        layer: usize,
        from: usize,
        accepted: u64,
    ) -> Result<(), RoundError> {
        let (slot, rows) = (at as u64, self.slots[at].tokens.len() as u64);
        let all = self.planted(Planted::FoldAllRows);
        let of = |first: bool| if first { 0 } else { slot };
        let fold = Fold {
            slot,
            rows,
            accepted: if all { rows } else { accepted },
            from,
            stash_of: of(self.planted(Planted::FirstStashForAll)),
            engaged_by: of(self.planted(Planted::FirstEngagedForAll)),
        };
        if self.planted(Planted::FoldTwice) {
            self.pool.fold(layer, fold)?;
        }
        match self.pool.fold(layer, fold) {
            Err(RoundError::Backend(error))
                if error.nothing_ran() && !self.planted(Planted::HalfCommitLeft) =>
            {
                self.pool.fold(layer, fold)
            }
            done => done,
        }
    }

    fn run(&mut self, at: usize, tokens: &[Token], path: Path) -> Result<(), RoundError> {
        let (slot, rows, length) = (at as u64, tokens.len() as u64, self.slots[at].kv_length);
        self.pool.stage(slot, tokens, self.projections.as_ref());
        let own = &mut self.slots[at];
        (own.staged_rows, own.ran) = (own.staged_rows.max(rows), rows);
        own.kv_touched = own.kv_touched.max(length + rows);
        for layer in 0..self.pool.gdn.len() {
            self.pool.advance(layer, slot, rows, path)?;
        }
        let tail = u64::from(self.planted(Planted::KvTailRead));
        for layer in 0..self.pool.attention.len() {
            self.pool.attend(layer, slot, length, rows, length + rows + tail)?;
        }
        Ok(())
    }

    fn resolved(&mut self, at: usize, verified: bool) {
        let slot = &mut self.slots[at];
        (slot.stage, slot.verified) = (Stage::Idle, verified);
        let unresolved = |slot: &Slot| matches!(slot.stage, Stage::Open | Stage::Staged);
        if !self.slots.iter().any(unresolved) {
            self.global_count = None;
        }
        self.poison(at);
    }

    /// What is not published is dead.
    fn poison(&mut self, at: usize) {
        if !self.poisons || self.planted(Planted::PoisonSkipped) {
            return;
        }
        let first = at as u64 * self.pool.geometry.capacity;
        let slot = &mut self.slots[at];
        let (length, touched) = (slot.kv_length, std::mem::take(&mut slot.kv_touched));
        let rows = std::mem::take(&mut slot.staged_rows);
        slot.kv_touched = length;
        let dead = touched.min(self.pool.geometry.capacity).saturating_sub(length);
        for layer in self.pool.attention.clone() {
            self.pool.poison(layer.kv, first + length, dead);
        }
        self.pool.poison_staged(at as u64, rows);
    }

    fn occupied(&self, sequence: Sequence) -> Result<usize, RoundError> {
        let at = sequence.slot as usize;
        let slot = self.slots.get(at);
        match slot.filter(|slot| slot.occupied && slot.generation == sequence.generation) {
            Some(_) => Ok(at),
            None => Err(RoundError::Released { slot: sequence.slot }),
        }
    }

    fn place(&self, sequence: Sequence) -> Result<usize, RoundError> {
        let at = self.occupied(sequence)?;
        if self.slots[at].stage == Stage::Broken && !self.planted(Planted::BrokenIsUsed) {
            return Err(RoundError::Broken { slot: sequence.slot });
        }
        Ok(at)
    }

    /// The slot of a round, which is its sequence's latest.
    fn round(&self, ticket: Ticket) -> Result<usize, RoundError> {
        let at = self.place(ticket.sequence)?;
        let latest = self.slots[at].latest;
        if ticket.id == latest || self.planted(Planted::StaleIdAccepted) {
            return Ok(at);
        }
        Err(RoundError::StaleId { given: ticket.id, latest })
    }

    fn stage_is(&self, at: usize, event: &'static str, legal: &[Stage]) -> Result<(), RoundError> {
        let stage = self.slots[at].stage;
        let broken = stage == Stage::Broken && self.planted(Planted::BrokenIsUsed);
        if legal.contains(&stage) || broken {
            return Ok(());
        }
        let legal = match legal {
            [Stage::Idle] => "idle",
            [Stage::Open] => "open",
            [Stage::Staged] => "staged",
            _ => "open, staged or failed",
        };
        Err(RoundError::State { event, stage, legal })
    }

    fn has_room(&self, at: usize, rows: u64) -> Result<(), RoundError> {
        let (capacity, wanted) = (self.pool.geometry.capacity, self.slots[at].length + rows);
        if wanted <= capacity {
            return Ok(());
        }
        Err(RoundError::Capacity { capacity, wanted })
    }
}
