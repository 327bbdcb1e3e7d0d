//! Which tokens the sequences of a history see, and their rows: functions of the sequence, its place and
//! its round alone, so that leaving other events out changes none of them.

use kernels::transaction::{Projections, Token};
use reference::transaction::Shape;
use reference::transaction::projections::{self, bits, mixed};

/// The rows of the model's own layers.
pub(super) struct Rows(pub(super) Shape);

impl Projections for Rows {
    fn weights(&self, layer: usize) -> Vec<u64> {
        bits(self.0.io, &projections::weights(&self.0, layer))
    }

    fn row(&self, layer: usize, token: Token) -> Vec<u64> {
        bits(self.0.io, &projections::row(&self.0, layer, token))
    }

    fn gates(&self, layer: usize, token: Token) -> (Vec<f32>, Vec<f32>) {
        projections::gates(&self.0, layer, token)
    }

    fn keys_and_values(&self, layer: usize, token: Token) -> Vec<u64> {
        bits(self.0.io, &projections::keys_and_values(&self.0, layer, token))
    }
}

/// The token that is certain at a place of a sequence.
pub(super) fn certain(sequence: usize, place: usize) -> Token {
    mixed(&[11, sequence as u64, place as u64])
}

/// Proposals after a place; other ones each round.
pub(super) fn proposals(sequence: usize, place: usize, round: u64, count: usize) -> Vec<Token> {
    (0..count as u64).map(|at| mixed(&[12, sequence as u64, place as u64 + at, round])).collect()
}
