//! A history: sizes, types, how rounds are undone, and events. Small enough to be read whole.

use super::events::Step;
use contracts::dtype::DType;
use kernels::transaction::Geometry;
use reference::transaction::Shape;

pub use kernels::transaction::Rollback;

/// The contract's word for each way to undo a round.
pub(super) const ROLLBACKS: [(&str, Rollback); 3] = [
    ("checkpoint", Rollback::Checkpoint),
    ("snapshot", Rollback::Snapshot),
    ("write_on_accept", Rollback::WriteOnAccept),
];
/// Channels of a head: the least the kernels have.
const HEAD_DIM: u64 = 32;
/// Elements of a row of keys and values.
const KV_WIDTH: u64 = 16;
/// Where the events happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// How a round is undone.
    pub rollback: Rollback,
    /// Storage of rows: f32 or bf16.
    pub io: DType,
    /// Storage of states: f32 or f16.
    pub state: DType,
    /// Sequences, 1 to 3, each with a slot.
    pub sequences: u8,
    /// Rows of keys and values of each.
    pub capacity: u8,
    /// Layers with a state, 1 or 2.
    pub gdn_layers: u8,
    /// Layers with keys and values, 1 or 2.
    pub attention_layers: u8,
}

impl Setup {
    /// The simplest.
    pub const PLAIN: Setup = Setup {
        rollback: Rollback::Checkpoint,
        io: DType::F32,
        state: DType::F32,
        sequences: 1,
        capacity: 24,
        gdn_layers: 1,
        attention_layers: 1,
    };

    /// A size by its name in the contract.
    pub fn dim(&self, name: &str) -> Option<u8> {
        match name {
            "sequences" => Some(self.sequences),
            "capacity" => Some(self.capacity),
            "gdn_layers" => Some(self.gdn_layers),
            "attention_layers" => Some(self.attention_layers),
            _ => None,
        }
    }

    /// As the transaction takes it.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            slots: self.sequences.into(),
            capacity: self.capacity.into(),
            gdn_layers: self.gdn_layers.into(),
            attention_layers: self.attention_layers.into(),
            key_heads: 1,
            value_heads: 1,
            head_dim: HEAD_DIM,
            conv_width: 4,
            kv_width: KV_WIDTH,
            io: self.io,
            state: self.state,
        }
    }

    /// As the model takes it.
    pub fn shape(&self) -> Shape {
        let geometry = self.geometry();
        Shape {
            slots: geometry.slots as usize,
            capacity: geometry.capacity as usize,
            gdn_layers: geometry.gdn_layers,
            attention_layers: geometry.attention_layers,
            key_heads: geometry.key_heads as usize,
            value_heads: geometry.value_heads as usize,
            head_dim: geometry.head_dim as usize,
            conv_width: geometry.conv_width as usize,
            kv_width: geometry.kv_width as usize,
            io: geometry.io,
            state: geometry.state,
        }
    }
}

/// Events in their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct History {
    /// Where.
    pub setup: Setup,
    /// What.
    pub steps: Vec<Step>,
}
