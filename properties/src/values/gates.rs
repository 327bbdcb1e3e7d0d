//! The gates of the gated delta rule: one decay class per (sequence, head), as the specification's
//! §0.4 defines the classes, so that heads of one case forget at different speeds. Every form of the
//! gates is written from the same log decay g and β.

use super::noise::{below, between, normal, row_key, word};
use super::rows::chance;
use super::{fill, in_domain, push_row, rounded};
use contracts::case::Content;
use contracts::dtype::DType;
use contracts::format::{Domain, GateClass};

/// Type and domain of one tensor.
pub type Member<'a> = (DType, &'a Domain);

/// The form the gates take, and its tensors.
#[derive(Clone, Copy, Debug)]
pub enum GateTensors<'a> {
    /// g and β, `[rows, heads]`.
    Log([Member<'a>; 2]),
    /// e^g and β, `[rows, heads]`.
    Alpha([Member<'a>; 2]),
    /// a and b, `[rows, heads]`; dt_bias and a_log, `[heads]`.
    Raw([Member<'a>; 4]),
}

/// The tensors and what they run over.
#[derive(Clone, Copy, Debug)]
pub struct GateField<'a> {
    /// The form.
    pub tensors: GateTensors<'a>,
    /// Rows.
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
    /// Plant g = −104 (e^g underflows), g = −10⁴ and β ∈ {0, 1} here and there; in raw gates the
    /// places where softplus and sigmoid change their ways, and rates of zero.
    pub adversarial: bool,
    /// Fixes every value.
    pub seed: u64,
}

/// The rate of one head's decay and the bias of a.
#[derive(Clone, Copy)]
struct Rate {
    rate: f64,
    dt_bias: f64,
}

/// Arguments at which softplus overflows, underflows, or is replaced in some implementations.
const SOFTPLUS_EDGES: [f64; 12] =
    [-104.0, -88.0, -20.0, -16.6, 0.0, 19.99, 20.0, 20.01, 40.0, 88.5, 89.0, 104.0];
/// The same for the sigmoid, without their signs.
const SIGMOID_EDGES: [f64; 5] = [0.0, 20.0, 88.0, 104.0, f64::INFINITY];

impl Gates<'_> {
    /// Contents of the form's tensors, in its order.
    pub fn contents(&self, field: &GateField<'_>) -> Vec<Content> {
        let members: &[Member<'_>] = match &field.tensors {
            GateTensors::Log(members) | GateTensors::Alpha(members) => members,
            GateTensors::Raw(members) => members,
        };
        if self.seed == 0 && self.only.is_none() {
            return members.iter().map(|member| zeros(*member)).collect();
        }
        let count = (field.rows * field.heads) as usize;
        let (mut decay, mut rate) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut row = 0;
        let mut sequence_rows = |sequence: u64, rows: u64| {
            for _ in 0..rows {
                for head in 0..field.heads {
                    let (g, beta) = self.gate(sequence, row, head);
                    let (first, second) = match field.tensors {
                        GateTensors::Log(_) => (g, beta),
                        GateTensors::Alpha(_) => (libm::exp(g), beta),
                        GateTensors::Raw(_) => self.raw(row, head, g, beta),
                    };
                    decay.push(legal(members[0], first));
                    rate.push(legal(members[1], second));
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
        decay.resize(count, legal(members[0], 0.0));
        rate.resize(count, legal(members[1], 0.0));
        let mut all = vec![bytes(members[0].0, &decay), bytes(members[1].0, &rate)];
        if let GateTensors::Raw([_, _, dt_bias, a_log]) = field.tensors {
            let rates: Vec<Rate> = (0..field.heads).map(|head| self.rate(head)).collect();
            let biases: Vec<u64> = rates.iter().map(|r| legal(dt_bias, r.dt_bias)).collect();
            let logs: Vec<u64> = rates.iter().map(|r| legal(a_log, libm::log(r.rate))).collect();
            all.extend([bytes(dt_bias.0, &biases), bytes(a_log.0, &logs)]);
        }
        all
    }

    fn rate(&self, head: u64) -> Rate {
        let key = row_key(row_key(self.seed, u64::MAX), head);
        let (rare, plain) = (word(key, 2), word(key, 3));
        let rate = between(word(key, 0), 0.05, 16.0);
        let dt_bias = between(word(key, 1), -8.0, 2.0);
        Rate {
            rate: if self.adversarial && chance(rare, 12) { 0.0 } else { rate },
            dt_bias: if self.adversarial && chance(plain, 4) { 0.0 } else { dt_bias },
        }
    }

    /// The a and b that give g and β.
    fn raw(&self, row: u64, head: u64, g: f64, beta: f64) -> (f64, f64) {
        let Rate { rate, dt_bias } = self.rate(head);
        let key = row_key(row_key(!self.seed, u64::MAX - row), head);
        // The inverse of softplus; nothing decays where e^p vanishes.
        let wanted = -g / rate;
        let p = match wanted {
            wanted if wanted > 30.0 => wanted,
            wanted if wanted > 0.0 => libm::log(libm::expm1(wanted)),
            _ => SOFTPLUS_EDGES[0],
        };
        let (a, b) = (p - dt_bias, libm::log(beta / (1.0 - beta)));
        if !self.adversarial {
            return (a, b);
        }
        let (edge_a, edge_b) = (word(key, 0), word(key, 1));
        let edge = |noise: u64, among: &[f64]| among[below(noise, among.len() as u64) as usize];
        let sign = if edge_b & 2 == 0 { 1.0 } else { -1.0 };
        (
            if chance(edge_a, 6) { edge(word(key, 2), &SOFTPLUS_EDGES) - dt_bias } else { a },
            if chance(edge_b, 6) { sign * edge(word(key, 3), &SIGMOID_EDGES) } else { b },
        )
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

fn legal((dtype, domain): Member<'_>, value: f64) -> u64 {
    in_domain(domain, dtype, rounded(dtype, value))
}

fn zeros((dtype, domain): Member<'_>) -> Content {
    fill(in_domain(domain, dtype, 0))
}

fn bytes(dtype: DType, bits: &[u64]) -> Content {
    let mut bytes = Vec::with_capacity(bits.len() * dtype.size_bytes() as usize);
    push_row(dtype, bits, &mut bytes);
    Content::Dense(bytes)
}
