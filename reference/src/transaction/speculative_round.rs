//! The truth about speculative rounds (linear_attention §9): what a sequence has published is what the
//! decodes of its tokens, one after another, would have left, and an event that is not legal changes
//! nothing. Rows are computed in order, so a row cannot depend on a later one.

use super::ordered::{Row, convolve, stored_bits};
use super::projections;
use contracts::dtype::DType;

/// The least and the most rows a round verifies.
pub const VERIFY_ROWS: (usize, usize) = (2, 10);
/// The most rows one ingestion takes.
pub const INGEST_ROWS: usize = 10;

/// Sizes and storage types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sequences at once.
    pub slots: usize,
    /// Rows of keys and values of each.
    pub capacity: usize,
    /// Layers with a state.
    pub gdn_layers: usize,
    /// Layers with keys and values.
    pub attention_layers: usize,
    /// Heads of q and k.
    pub key_heads: usize,
    /// Heads of v and the state.
    pub value_heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Taps of the convolution.
    pub conv_width: usize,
    /// Elements of a row of keys and values.
    pub kv_width: usize,
    /// Storage of rows.
    pub io: DType,
    /// Storage of states.
    pub state: DType,
}

impl Shape {
    /// Channels of a row `[q | k | v]`.
    pub fn channels(&self) -> usize {
        (2 * self.key_heads + self.value_heads) * self.head_dim
    }
}

/// Why an event is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not in this state.
    State,
    /// A ticket of an earlier round.
    StaleId,
    /// The sequence was released.
    Released,
    /// No room.
    Capacity,
    /// A number of rows outside what is legal.
    Rows,
    /// The sequence is in doubt.
    Broken,
}

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No round is open.
    Idle,
    /// A round has begun.
    Open,
    /// Its rows are verified.
    Staged,
    /// Its verification failed.
    Failed,
    /// A device error left the sequence in doubt.
    Broken,
}

/// One layer's state and window, as f32 values of what is stored.
#[derive(Clone, Debug, PartialEq)]
struct Carried {
    state: Vec<f32>,
    window: Vec<f32>,
}

/// All layers after one row.
type Layers = Vec<Carried>;

/// One sequence.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Whether it is held; a released one has nothing.
    pub held: bool,
    /// Where it stands.
    pub stage: Stage,
    /// Tokens ingested, whose number is its length.
    pub tokens: Vec<u64>,
    /// Emitted, and not yet ingested.
    pub last_token: u64,
    /// Rounds committed.
    pub round: u64,
    layers: Layers,
    /// The open round's rows, and the layers after each once they are verified.
    proposed: Vec<u64>,
    after: Vec<Layers>,
    /// Bits of the outputs of the last run's rows, by layer.
    outputs: Vec<Vec<u64>>,
    /// Rows the last run's attention read.
    pub context: Vec<u64>,
}

/// Some sequences.
#[derive(Clone, Debug)]
pub struct Model {
    /// Sizes and types.
    pub shape: Shape,
    /// The sequences.
    pub slots: Vec<Slot>,
    weights: Vec<Vec<f32>>,
}

impl Model {
    /// Nobody holds a slot.
    pub fn new(shape: Shape) -> Model {
        let layers = vec![
            Carried {
                state: vec![0.0; shape.value_heads * shape.head_dim * shape.head_dim],
                window: vec![0.0; shape.channels() * (shape.conv_width - 1)],
            };
            shape.gdn_layers
        ];
        let slot = Slot {
            held: false,
            stage: Stage::Idle,
            tokens: Vec::new(),
            last_token: 0,
            round: 0,
            layers,
            proposed: Vec::new(),
            after: Vec::new(),
            outputs: vec![Vec::new(); shape.gdn_layers],
            context: Vec::new(),
        };
        let weights =
            (0..shape.gdn_layers).map(|layer| projections::weights(&shape, layer)).collect();
        Model { shape, slots: vec![slot; shape.slots], weights }
    }

    /// An empty sequence.
    pub fn acquire(&mut self, at: usize, first: u64) {
        let empty = Model::new(self.shape).slots.swap_remove(0);
        self.slots[at] = Slot { held: true, last_token: first, ..empty };
    }

    /// The slot is nobody's.
    ///
    /// # Errors
    /// As the transaction's.
    pub fn release(&mut self, at: usize) -> Result<(), Refused> {
        self.usable(at)?;
        self.stage_is(at, &[Stage::Idle])?;
        self.slots[at].held = false;
        Ok(())
    }

    /// The last token and `more` are certain; `next` follows.
    ///
    /// # Errors
    /// As the transaction's.
    pub fn ingest(&mut self, at: usize, more: &[u64], next: u64) -> Result<(), Refused> {
        self.usable(at)?;
        self.stage_is(at, &[Stage::Idle])?;
        let rows = more.len() + 1;
        if rows > INGEST_ROWS {
            return Err(Refused::Rows);
        }
        self.has_room(at, rows)?;
        let tokens = [&[self.slots[at].last_token], more].concat();
        let mut after = self.run(at, &tokens);
        let slot = &mut self.slots[at];
        slot.layers = after.pop().unwrap_or_default();
        slot.tokens.extend(tokens);
        slot.last_token = next;
        Ok(())
    }

    /// Opens a round.
    ///
    /// # Errors
    /// As the transaction's.
    pub fn begin(&mut self, at: usize, proposals: &[u64]) -> Result<(), Refused> {
        self.usable(at)?;
        self.stage_is(at, &[Stage::Idle])?;
        let rows = proposals.len() + 1;
        if !(VERIFY_ROWS.0..=VERIFY_ROWS.1).contains(&rows) {
            return Err(Refused::Rows);
        }
        self.has_room(at, rows)?;
        let slot = &mut self.slots[at];
        slot.proposed = [&[slot.last_token], proposals].concat();
        slot.stage = Stage::Open;
        Ok(())
    }

    /// Whether a verify may run; nothing changes.
    ///
    /// # Errors
    /// As the transaction's.
    pub fn may_verify(&self, at: usize, current: bool) -> Result<(), Refused> {
        self.round(at, current)?;
        self.stage_is(at, &[Stage::Open])
    }

    /// The round's rows ran, or failed to.
    pub fn verified(&mut self, at: usize, ran: bool) {
        self.slots[at].stage = if ran { Stage::Staged } else { Stage::Failed };
        if ran {
            let tokens = self.slots[at].proposed.clone();
            self.slots[at].after = self.run(at, &tokens);
        }
    }

    /// Publishes the first `rows` rows; `next` follows.
    ///
    /// # Errors
    /// As the transaction's.
    pub fn commit(
        &mut self,
        at: usize,
        current: bool,
        rows: usize,
        next: u64,
    ) -> Result<(), Refused> {
        self.round(at, current)?;
        self.stage_is(at, &[Stage::Staged])?;
        let slot = &mut self.slots[at];
        if !(1..=slot.proposed.len()).contains(&rows) {
            return Err(Refused::Rows);
        }
        slot.layers = slot.after.swap_remove(rows - 1);
        slot.tokens.extend(&slot.proposed[..rows]);
        slot.last_token = next;
        slot.round += 1;
        slot.close();
        Ok(())
    }

    /// Nothing of the round ever was.
    ///
    /// # Errors
    /// As the transaction's.
    pub fn abort(&mut self, at: usize, current: bool) -> Result<(), Refused> {
        self.round(at, current)?;
        self.stage_is(at, &[Stage::Open, Stage::Staged, Stage::Failed])?;
        self.slots[at].close();
        Ok(())
    }

    /// A device error left the sequence in doubt.
    pub fn break_down(&mut self, at: usize) {
        self.slots[at].stage = Stage::Broken;
    }

    /// Whether an abort has anything to bring back, where verify works in the slot itself.
    pub fn is_touched(&self, at: usize) -> bool {
        matches!(self.slots[at].stage, Stage::Staged | Stage::Failed)
    }

    /// Bits of a layer's published state.
    pub fn state_bits(&self, at: usize, layer: usize) -> Vec<u64> {
        self.bits_of(&self.slots[at].layers[layer].state)
    }

    /// Bits of a layer's published window.
    pub fn window_bits(&self, at: usize, layer: usize) -> Vec<u64> {
        window_bits(&self.slots[at].layers[layer].window)
    }

    /// Bits of a layer's state and window after each of the round's rows.
    pub fn after_bits(&self, at: usize, layer: usize) -> Vec<(Vec<u64>, Vec<u64>)> {
        let after = self.slots[at].after.iter().map(|layers| &layers[layer]);
        after.map(|own| (self.bits_of(&own.state), window_bits(&own.window))).collect()
    }

    /// Bits of the outputs of the last run's rows.
    pub fn output_bits(&self, at: usize, layer: usize) -> &[u64] {
        &self.slots[at].outputs[layer]
    }

    /// Bits of the rows of keys and values of these tokens.
    pub fn kv_bits(&self, layer: usize, tokens: &[u64]) -> Vec<u64> {
        let row = |token: &u64| projections::keys_and_values(&self.shape, layer, *token);
        tokens.iter().flat_map(|token| projections::bits(self.shape.io, &row(token))).collect()
    }

    /// Rows after what is published, and the layers after each.
    fn run(&mut self, at: usize, tokens: &[u64]) -> Vec<Layers> {
        let mut layers = self.slots[at].layers.clone();
        let mut outputs = vec![Vec::new(); layers.len()];
        let mut after = Vec::with_capacity(tokens.len());
        for token in tokens {
            for (layer, own) in layers.iter_mut().enumerate() {
                outputs[layer].extend(self.advance(layer, own, *token));
            }
            after.push(layers.clone());
        }
        let slot = &mut self.slots[at];
        slot.outputs = outputs;
        slot.context = [&slot.tokens[..], tokens].concat();
        after
    }

    /// One row through one layer: bits of its outputs.
    fn advance(&self, layer: usize, own: &mut Carried, token: u64) -> Vec<u64> {
        let shape = &self.shape;
        let Shape { key_heads, value_heads, head_dim: dim, io, .. } = *shape;
        let x = projections::row(shape, layer, token);
        let weights = &self.weights[layer];
        let y = convolve(io, weights, &mut own.window, &x, dim, 2 * key_heads);
        let head = |number: usize| &y[number * dim..(number + 1) * dim];
        let (decays, rates) = projections::gates(shape, layer, token);
        let mut outputs = Vec::with_capacity(value_heads * dim);
        for (value_head, state) in own.state.chunks_exact_mut(dim * dim).enumerate() {
            let key_head = value_head / (value_heads / key_heads);
            let row = Row {
                state: shape.state,
                q: head(key_head),
                k: head(key_heads + key_head),
                v: head(2 * key_heads + value_head),
                gates: (decays[value_head], rates[value_head]),
                scale: (dim as f32).sqrt().recip(),
            };
            outputs.extend(row.advance(state).iter().map(|o| stored_bits(io, *o)));
        }
        outputs
    }

    fn bits_of(&self, state: &[f32]) -> Vec<u64> {
        state.iter().map(|s| stored_bits(self.shape.state, *s)).collect()
    }

    fn usable(&self, at: usize) -> Result<(), Refused> {
        match self.slots[at].held {
            false => Err(Refused::Released),
            true if self.slots[at].stage == Stage::Broken => Err(Refused::Broken),
            true => Ok(()),
        }
    }

    fn round(&self, at: usize, current: bool) -> Result<(), Refused> {
        self.usable(at)?;
        if current { Ok(()) } else { Err(Refused::StaleId) }
    }

    fn stage_is(&self, at: usize, legal: &[Stage]) -> Result<(), Refused> {
        if legal.contains(&self.slots[at].stage) { Ok(()) } else { Err(Refused::State) }
    }

    fn has_room(&self, at: usize, rows: usize) -> Result<(), Refused> {
        let wanted = self.slots[at].tokens.len() + rows;
        if wanted <= self.shape.capacity { Ok(()) } else { Err(Refused::Capacity) }
    }
}

impl Slot {
    fn close(&mut self) {
        self.stage = Stage::Idle;
        self.proposed.clear();
        self.after.clear();
    }
}

fn window_bits(window: &[f32]) -> Vec<u64> {
    window.iter().map(|x| u64::from(x.to_bits())).collect()
}
