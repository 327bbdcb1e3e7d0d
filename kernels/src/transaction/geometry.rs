//! What a model's layers ask of a round: sizes, storage types, how a round is undone, and where its
//! rows come from. Numbers alone; nothing here touches memory.

use contracts::dtype::DType;
use std::ops::RangeInclusive;

/// A token's number.
pub type Token = u64;

/// Rows a round may verify: the last token, not yet ingested, and the proposals after it.
pub const VERIFY_ROWS: RangeInclusive<usize> = 2..=10;
/// The most of them; drafts are trained on 8.
pub const MOST_VERIFY_ROWS: u64 = 10;

/// Where the state lies that an abort restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rollback {
    /// A copy made at begin: verify works in the slot itself.
    Checkpoint,
    /// The slot itself: verify leaves it, and a commit brings the row that was accepted.
    Snapshot,
    /// The slot itself: verify writes no state, and a commit folds the accepted rows into it.
    WriteOnAccept,
}

/// Sizes and storage types. One sequence takes a slot of each pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Sequences at once.
    pub slots: u64,
    /// Rows of keys and values a sequence may have.
    pub capacity: u64,
    /// Layers with a matrix state and a convolution window.
    pub gdn_layers: usize,
    /// Layers with rows of keys and values.
    pub attention_layers: usize,
    /// Heads of q and k, and of v.
    pub key_heads: u64,
    /// Heads of v and the state; a multiple of `key_heads`.
    pub value_heads: u64,
    /// Channels of every head: 32, 64 or 128.
    pub head_dim: u64,
    /// Taps of the convolution.
    pub conv_width: u64,
    /// Elements of one row of keys and values; a multiple of 8.
    pub kv_width: u64,
    /// Storage type of rows.
    pub io: DType,
    /// Storage type of states.
    pub state: DType,
}

impl Geometry {
    /// Heads of a row `[q | k | v]`.
    pub fn row_heads(&self) -> u64 {
        2 * self.key_heads + self.value_heads
    }

    /// Elements of such a row.
    pub fn row_width(&self) -> u64 {
        self.row_heads() * self.head_dim
    }

    /// Elements of a state.
    pub fn state_width(&self) -> u64 {
        self.value_heads * self.head_dim * self.head_dim
    }

    /// Elements of a convolution window.
    pub fn window_width(&self) -> u64 {
        self.row_width() * (self.conv_width - 1)
    }
}

/// What the layers before these kernels compute: their rows, as bits of the storage type.
pub trait Projections {
    /// Bits of the convolution's weights of a layer, `[row_heads, head_dim, conv_width]`.
    fn weights(&self, layer: usize) -> Vec<u64>;
    /// Bits of the convolution's input for a token, `row_width` of them.
    fn row(&self, layer: usize, token: Token) -> Vec<u64>;
    /// The decay e^g and the strength of the write of each value head.
    fn gates(&self, layer: usize, token: Token) -> (Vec<f32>, Vec<f32>);
    /// Bits of the row of keys and values, `kv_width` of them.
    fn keys_and_values(&self, layer: usize, token: Token) -> Vec<u64>;
}
