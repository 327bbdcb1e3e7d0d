//! What a sequence has published and what a run left, read back for comparison. Host-side reads: they
//! synchronise, and production never makes them.

use super::error::RoundError;
use super::geometry::{MOST_VERIFY_ROWS, Rollback, Token};
use super::pool::Table;
use super::rounds::{Rounds, Sequence, Stage};
use crate::arena::poison_pattern;
use crate::backend::Backend;
use ptx_vm::BufferId;

/// All that a sequence has published; nothing else of it has a meaning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Published {
    /// Rows ingested.
    pub length: u64,
    /// Rows of keys and values.
    pub kv_length: u64,
    /// Emitted, and not yet ingested.
    pub last_token: Token,
    /// Rounds committed.
    pub round: u64,
    /// Bits of the state, by layer.
    pub states: Vec<Vec<u64>>,
    /// Bits of the convolution's window, by layer.
    pub windows: Vec<Vec<u64>>,
    /// Bits of the published rows of keys and values, by layer.
    pub keys_and_values: Vec<Vec<u64>>,
}

/// What the last run of a sequence's rows left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// Bits of the rows' outputs, by layer.
    pub o: Vec<Vec<u64>>,
    /// Bits of all rows of keys and values that attention read, by layer.
    pub context: Vec<Vec<u64>>,
}

impl<B: Backend> Rounds<B> {
    /// What the sequence has published. While a round is open and works in place, that is its checkpoint.
    ///
    /// # Errors
    /// `Released`, or `Broken`: nothing is certain then.
    pub fn published(&self, sequence: Sequence) -> Result<Published, RoundError> {
        let stage = self.stage(sequence)?;
        if stage == Stage::Broken {
            return Err(RoundError::Broken { slot: sequence.slot });
        }
        let in_doubt = matches!(stage, Stage::Staged | Stage::Failed);
        let kept = in_doubt && self.rollback == Rollback::Checkpoint;
        let slot = &self.slots[sequence.slot as usize];
        let row = |table: Table| self.bits(table, sequence.slot, 1);
        let layers = || self.pool.gdn.iter();
        let first = sequence.slot * self.pool.geometry.capacity;
        Ok(Published {
            length: slot.length,
            kv_length: slot.kv_length,
            last_token: slot.last_token,
            round: slot.round,
            states: layers().map(|own| row(if kept { own.kept_s } else { own.s })).collect(),
            windows: layers()
                .map(|own| row(if kept { own.kept_window } else { own.window }))
                .collect(),
            keys_and_values: self
                .pool
                .attention
                .iter()
                .map(|own| self.bits(own.kv, first, slot.kv_length))
                .collect(),
        })
    }

    /// What the sequence's last run left, `context_rows` rows of keys and values among it.
    ///
    /// # Errors
    /// `Released`.
    pub fn outputs(&self, sequence: Sequence, context_rows: u64) -> Result<Outputs, RoundError> {
        self.stage(sequence)?;
        let rows = self.slots[sequence.slot as usize].ran;
        let (first, staged) =
            (sequence.slot * self.pool.geometry.capacity, sequence.slot * MOST_VERIFY_ROWS);
        let attention = self.pool.attention.iter();
        Ok(Outputs {
            o: self.pool.gdn.iter().map(|own| self.bits(own.o, staged, rows)).collect(),
            context: attention.map(|own| self.bits(own.context, first, context_rows)).collect(),
        })
    }

    /// The first place of a slot that is published by nobody and yet holds something; `None` when all of
    /// it is poison. Slots with an open round are not asked.
    pub fn undead(&self, slot: u64) -> Option<String> {
        let own = &self.slots[slot as usize];
        if own.stage != Stage::Idle {
            return None;
        }
        let capacity = self.pool.geometry.capacity;
        let rows = own.kv_length.min(capacity);
        let kv = self
            .pool
            .attention
            .iter()
            .map(|layer| (layer.kv, slot * capacity + rows, capacity - rows));
        let (staged, count) = (slot * MOST_VERIFY_ROWS, MOST_VERIFY_ROWS);
        let rounds = self.pool.gdn.iter().flat_map(|layer| {
            let staged = layer.staged().map(|table| (table, staged, count));
            staged.into_iter().chain(layer.of_round().map(|table| (table, slot, 1)))
        });
        kv.chain(rounds).find_map(|(table, first, count)| {
            let poison = poison_pattern(table.dtype, self.pool.arena.poison());
            let bytes = self.bytes(table, first, count);
            let alive = bytes.chunks_exact(poison.len()).position(|bits| bits != poison)?;
            let name = self.pool.arena.memory().name(BufferId(table.buffer));
            let row = alive as u64 / table.width;
            Some(format!("row {row} of the dead rows of `{name}` in slot {slot}"))
        })
    }

    /// Device addresses and sizes of every buffer, in order: they never change.
    pub fn addresses(&self) -> Vec<(u64, u64)> {
        let memory = self.pool.arena.memory();
        memory.buffers().map(|id| (memory.address(id, 0), memory.len_bytes(id))).collect()
    }

    fn bytes(&self, table: Table, first: u64, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; (count * table.row_bytes()) as usize];
        self.pool.arena.memory().read(
            BufferId(table.buffer),
            first * table.row_bytes(),
            &mut bytes,
        );
        bytes
    }

    fn bits(&self, table: Table, first: u64, count: u64) -> Vec<u64> {
        let bytes = self.bytes(table, first, count);
        let elements = bytes.chunks_exact(table.dtype.size_bytes() as usize);
        elements.map(|element| table.dtype.from_bytes(element)).collect()
    }
}
