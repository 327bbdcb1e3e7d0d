//! Log decay g and β of the gated delta rule: one decay class per (sequence, head), as the
//! specification's §0.4 defines the classes, so that heads of one case forget at different speeds.

use super::noise::{below, between, normal, row_key, word};
use super::rows::chance;
use super::{fill, in_domain, push_row, rounded};
use contracts::case::Content;
use contracts::dtype::DType;
use contracts::format::{Domain, GateClass};

/// The two tensors, of shape `[rows, heads]`.
#[derive(Clone, Copy, Debug)]
pub struct GateField<'a> {
    /// Type and domain of g.
    pub log: (DType, &'a Domain),
    /// Type and domain of β.
    pub beta: (DType, &'a Domain),
    /// Rows of both.
    pub rows: u64,
    /// Heads.
    pub heads: u64,
    /// Lengths of the sequences the rows belong to; `None`: each row is a sequence. Rows past the
    /// last segment belong to none and are zero.
    pub segments: Option<&'a [i64]>,
}

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Gates<'a> {
    /// Classes to draw from, each as often.
    pub classes: &'a [GateClass],
    /// One class for all heads, instead.
    pub only: Option<GateClass>,
    /// Plant g = −104 (e^g underflows), g = −10⁴ and β ∈ {0, 1} here and there.
    pub adversarial: bool,
    /// Fixes every value.
    pub seed: u64,
}

impl Gates<'_> {
    /// Contents of g and of β.
    pub fn contents(&self, field: &GateField<'_>) -> (Content, Content) {
        if self.seed == 0 && self.only.is_none() {
            return (zeros(field.log), zeros(field.beta));
        }
        let count = (field.rows * field.heads) as usize;
        let (mut log, mut beta) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut row = 0;
        let mut sequence_rows = |sequence: u64, rows: u64| {
            for _ in 0..rows {
                for head in 0..field.heads {
                    let (g, b) = self.gate(sequence, row, head);
                    log.push(in_domain(field.log.1, field.log.0, rounded(field.log.0, g)));
                    beta.push(in_domain(field.beta.1, field.beta.0, rounded(field.beta.0, b)));
                }
                row += 1;
            }
        };
        match field.segments {
            Some(lengths) => lengths.iter().zip(0..).for_each(|(length, sequence)| {
                sequence_rows(sequence, u64::try_from(*length).unwrap_or(0));
            }),
            None => (0..field.rows).for_each(|sequence| sequence_rows(sequence, 1)),
        }
        log.resize(count, in_domain(field.log.1, field.log.0, 0));
        beta.resize(count, in_domain(field.beta.1, field.beta.0, 0));
        (bytes(field.log.0, &log), bytes(field.beta.0, &beta))
    }

    fn gate(&self, sequence: u64, row: u64, head: u64) -> (f64, f64) {
        let per_head = row_key(row_key(!self.seed, sequence), head);
        let per_row = row_key(row_key(self.seed, row), head);
        let class = self.only.unwrap_or_else(|| {
            let drawn = below(word(per_head, 0), self.classes.len().max(1) as u64) as usize;
            self.classes.get(drawn).copied().unwrap_or(GateClass::One)
        });
        let noise = word(per_row, 0);
        let g = match class {
            GateClass::One => 0.0,
            GateClass::Slow => -libm::exp(between(noise, -9.0, -5.0)),
            GateClass::Model => {
                let rate = between(word(per_head, 1), 1.0, 16.0);
                -rate * libm::log1p(libm::exp(normal(noise) - 4.0))
            }
            GateClass::Fast => -libm::exp(between(noise, -1.0, 2.0)),
            GateClass::Discriminating => between(noise, -2.0, -0.1),
        };
        let beta = match class {
            GateClass::Discriminating => between(word(per_row, 1), 0.2, 0.8),
            _ => 1.0 / (1.0 + libm::exp(-1.5 * normal(word(per_row, 1)))),
        };
        if !self.adversarial {
            return (g, beta);
        }
        let (extreme_g, extreme_beta) = (word(per_row, 2), word(per_row, 3));
        (
            if chance(extreme_g, 48) { [-104.0, -1.0e4][(extreme_g & 1) as usize] } else { g },
            if chance(extreme_beta, 12) { (extreme_beta & 1) as f64 } else { beta },
        )
    }
}

fn zeros((dtype, domain): (DType, &Domain)) -> Content {
    fill(in_domain(domain, dtype, 0))
}

fn bytes(dtype: DType, bits: &[u64]) -> Content {
    let mut bytes = Vec::with_capacity(bits.len() * dtype.size_bytes() as usize);
    push_row(dtype, bits, &mut bytes);
    Content::Dense(bytes)
}
