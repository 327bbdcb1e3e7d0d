//! The gated delta rule, row by row in f64, with the magnitudes that bound any evaluation of it.
//! Invariant: every value is a plain sum or product of the equations, never masked, reordered or
//! chunked, so NaN goes exactly where they send it and the result can judge chunked kernels.
//!
//! Per value head, with the state S `[Dv,Dk]`, α = e^g, one number or one for each key channel, and the
//! key head's rows q and k:
//!
//! ```text
//! δ_t = β_t(v_t − α_t S_{t−1} k_t)      S_t = α_t S_{t−1} + δ_t k_tᵀ      o_t = scale · S_t q_t
//! m_t = β_t(|v_t| + |α_t S_{t−1}|·|k_t|)  M_t = α_t M_{t−1} + m_t |k_t|ᵀ    M^o_t = scale · M_t |q_t|
//! ```
//!
//! `M_0 = |S_0|`. M follows the true S, so it sums the absolute terms of every path into an element:
//! a rounding anywhere on a path moves the element by at most a few units of its M.
//!
//! Where terms cancel in S, its error of some units of M is more than units of |S|, and a later row that reads
//! S errs by as much. Over many rows that shows: the paths of an evaluation in chunks read M,
//!
//! ```text
//! N_t = α_t N_{t−1} + β_t(|v_t| + α_t M_{t−1}|k_t|)|k_t|ᵀ      N_0 = |S_0|
//! ```
//!
//! with N in the place of M in S_t and in the output. M follows the true S and N follows M, so that neither
//! grows from row to row by itself.
//!
//! A state kept in a narrow type is rounded after each row, and each rounding is carried on and read. In
//! units of the type's roundoff u, with η its smallest normal number, the carried roundings are at most
//!
//! ```text
//! D_t = α_t R_{t−1} + β_t(α_t R_{t−1}|k_t|)|k_t|ᵀ      R_t = (1 + u)D_t + max(|S_t|, η)      R_0 = 0
//! ```
//!
//! of S_t before its own rounding (D) and after it (R); of the output `scale · R_t |q_t|`. Decays that a
//! kernel computes err as well, the same way in every row where they are equal; in units of their relative
//! error those add up to
//!
//! ```text
//! C_t = α_t E_{t−1} + β_t(α_t E_{t−1}|k_t|)|k_t|ᵀ      E_t = C_t + |S_t|      E_0 = |S_0|
//! ```
//!
//! of S_t; of the output `scale · C_t |q_t|`.

use super::tile::{LANES, Tile, store};
use crate::{Expected, Outputs};
use contracts::dtype::DType;

/// Rows over which log decays are summed for Γ: the chunk of the chunked form.
pub const CHUNK_ROWS: usize = 64;

/// Which key head a value head reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadMap {
    /// Neighbouring value heads share a key head: `hv div (Hv/Hk)`.
    Block,
    /// Value heads take key heads in turn: `hv mod Hk`.
    Cyclic,
}

/// Counts of heads and channels. `value_heads` is a multiple of `key_heads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Hk, the heads of q and k.
    pub key_heads: usize,
    /// Hv, the heads of v, g, β, the state and the output.
    pub value_heads: usize,
    /// Dk, the channels of q and k.
    pub key_dim: usize,
    /// Dv, the channels of v and the output.
    pub value_dim: usize,
    /// Which key head a value head reads.
    pub map: HeadMap,
}

impl Heads {
    /// The key head that value head `value_head` reads.
    pub fn key_head(&self, value_head: usize) -> usize {
        match self.map {
            HeadMap::Block => value_head / (self.value_heads / self.key_heads),
            HeadMap::Cyclic => value_head % self.key_heads,
        }
    }

    /// Elements of one slot of the state.
    pub fn slot_count(&self) -> usize {
        self.value_heads * self.value_dim * self.key_dim
    }
}

/// What the recurrence reads, row-major.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// `[rows,Hk,Dk]`, already normalised.
    pub q: &'a [f64],
    /// `[rows,Hk,Dk]`, already normalised.
    pub k: &'a [f64],
    /// `[rows,Hv,Dv]`.
    pub v: &'a [f64],
    /// `[rows,Hv]`, the logarithm of the decay, or `[rows,Hv,Dk]`, one of each key channel.
    pub g: &'a [f64],
    /// `[rows,Hv]`, the strength of the write.
    pub beta: &'a [f64],
    /// Factor of the output, normally Dk^−½.
    pub scale: f64,
}

/// Consecutive rows that share a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Index of the first row.
    pub first_row: usize,
    /// Number of rows; zero leaves the state as it starts.
    pub row_count: usize,
    /// Where the state lives; `None` skips the sequence.
    pub slot: Option<usize>,
}

/// The type a state is kept in between rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateType {
    /// What is finite stops at ± this number.
    pub largest: f64,
    /// u, the largest relative error of one rounding.
    pub roundoff: f64,
    /// η, the smallest number that is rounded with that relative error.
    pub smallest_normal: f64,
}

impl StateType {
    /// f16 or f32. An f32 state never reaches its largest number within a contract's domain, so nothing
    /// stops there.
    ///
    /// # Panics
    /// If a state is of no such type.
    pub fn of(dtype: DType) -> StateType {
        let roundoff = dtype.unit_roundoff();
        let largest = match dtype {
            DType::F16 => dtype.largest_finite(),
            DType::F32 => f64::INFINITY,
            other => panic!("a state is f16 or f32, not {other:?}"),
        };
        // Below η a rounding errs by up to half the smallest number, whatever it rounds.
        StateType {
            largest,
            roundoff,
            smallest_normal: dtype.smallest_subnormal() / 2.0 / roundoff,
        }
    }

    /// R of a number and its D.
    pub fn rounded(self, drift: f64, value: f64) -> f64 {
        (1.0 + self.roundoff) * drift + value.abs().max(self.smallest_normal)
    }
}

/// Results, magnitudes and measures. Rows of no sequence and slots of none hold zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrence {
    /// `[rows,Hv,Dv]`.
    pub o: Vec<f64>,
    /// M^o, `[rows,Hv,Dv]`.
    pub o_paths: Vec<f64>,
    /// M^o·Γ of the row's sequence and head, `[rows,Hv,Dv]`.
    pub o_paths_gamma: Vec<f64>,
    /// Final state, `[slots,Hv,Dv,Dk]`.
    pub s: Vec<f64>,
    /// M of the final state, `[slots,Hv,Dv,Dk]`.
    pub s_paths: Vec<f64>,
    /// M·Γ of the final state, `[slots,Hv,Dv,Dk]`.
    pub s_paths_gamma: Vec<f64>,
    /// Relative RMS error a state kept in f32 reaches, `[slots,Hv]`.
    pub rounding_walk: Vec<f64>,
    /// 1 + Γ/32, `[slots,Hv]`.
    pub one_plus_gamma_32: Vec<f64>,
    /// ‖M‖/‖S‖ of the final state: how far paths cancel, `[slots,Hv]`; 0 where S is zero.
    pub paths_ratio: Vec<f64>,
    /// The state after each row, `[rows,Hv,Dv,Dk]`; empty unless asked for.
    pub s_by_row: Vec<f64>,
    /// Its M, likewise.
    pub s_by_row_paths: Vec<f64>,
    /// Its D, likewise.
    pub s_by_row_drift: Vec<f64>,
    /// Its C, likewise.
    pub s_by_row_decays: Vec<f64>,
    /// scale · R|q|, `[rows,Hv,Dv]`; empty unless the states after each row are asked for.
    pub o_drift: Vec<f64>,
    /// scale · C|q|, likewise.
    pub o_decays: Vec<f64>,
}

/// Advances every sequence from its slot of `initial` (`[slots,Hv,Dv,Dk]`), or from zero without one.
///
/// # Panics
/// If a slice is shorter than its shape or a slot is not below `slots`.
pub fn gated_delta_rule(
    heads: Heads,
    rows: Rows<'_>,
    sequences: &[Sequence],
    slots: usize,
    initial: Option<&[f64]>,
) -> Recurrence {
    recurrence(heads, rows, sequences, slots, initial, Evaluation::ByRow)
}

/// As [`gated_delta_rule`], with the magnitudes of an evaluation in chunks: N for M.
///
/// # Panics
/// Likewise.
pub fn gated_delta_rule_in_chunks(
    heads: Heads,
    rows: Rows<'_>,
    sequences: &[Sequence],
    slots: usize,
    initial: Option<&[f64]>,
) -> Recurrence {
    recurrence(heads, rows, sequences, slots, initial, Evaluation::InChunks)
}

/// As [`gated_delta_rule`], and the state after every row, kept in the type `kept`: what is finite of it
/// stops at the largest number after each row, and that is carried on and read; D and R are its roundings'.
///
/// # Panics
/// Likewise.
pub fn gated_delta_rule_by_row(
    heads: Heads,
    rows: Rows<'_>,
    sequences: &[Sequence],
    slots: usize,
    initial: Option<&[f64]>,
    kept: StateType,
) -> Recurrence {
    recurrence(heads, rows, sequences, slots, initial, Evaluation::Kept(kept))
}

/// What the magnitudes are to bound.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Evaluation {
    /// One row or a few in f32: M.
    ByRow,
    /// A state that is kept in this type after each row: its errors too.
    Kept(StateType),
    /// Many rows in chunks: N.
    InChunks,
}

fn recurrence(
    heads: Heads,
    rows: Rows<'_>,
    sequences: &[Sequence],
    slots: usize,
    initial: Option<&[f64]>,
    evaluation: Evaluation,
) -> Recurrence {
    let kept = match evaluation {
        Evaluation::Kept(kept) => Some(kept),
        Evaluation::ByRow | Evaluation::InChunks => None,
    };
    let in_chunks = evaluation == Evaluation::InChunks;
    let state_count = slots * heads.slot_count();
    let kept_rows = if kept.is_some() { rows.beta.len() / heads.value_heads } else { 0 };
    let kept_count = kept_rows * heads.slot_count();
    let mut result = Recurrence {
        o: vec![0.0; rows.v.len()],
        o_paths: vec![0.0; rows.v.len()],
        o_paths_gamma: vec![0.0; rows.v.len()],
        s: vec![0.0; state_count],
        s_paths: vec![0.0; state_count],
        s_paths_gamma: vec![0.0; state_count],
        rounding_walk: vec![0.0; slots * heads.value_heads],
        one_plus_gamma_32: vec![0.0; slots * heads.value_heads],
        paths_ratio: vec![0.0; slots * heads.value_heads],
        s_by_row: vec![0.0; kept_count],
        s_by_row_paths: vec![0.0; kept_count],
        s_by_row_drift: vec![0.0; kept_count],
        s_by_row_decays: vec![0.0; kept_count],
        o_drift: vec![0.0; if kept.is_some() { rows.v.len() } else { 0 }],
        o_decays: vec![0.0; if kept.is_some() { rows.v.len() } else { 0 }],
    };
    for sequence in sequences {
        let Some(slot) = sequence.slot else { continue };
        assert!(slot < slots, "slot {slot} is outside a pool of {slots}");
        for value_head in 0..heads.value_heads {
            let head = Head { heads, rows, sequence: *sequence, value_head, kept, in_chunks };
            head.advance(slot, initial, &mut result);
        }
    }
    result
}

/// One value head of one sequence.
struct Head<'a> {
    heads: Heads,
    rows: Rows<'a>,
    sequence: Sequence,
    value_head: usize,
    /// The type of a state that is kept row by row.
    kept: Option<StateType>,
    in_chunks: bool,
}

impl Head<'_> {
    fn advance(&self, slot: usize, initial: Option<&[f64]>, result: &mut Recurrence) {
        let Heads { key_dim, value_dim, value_heads, .. } = self.heads;
        let gates: Vec<Gate<'_>> = self.gates().collect();
        let gamma = largest_chunk_decay(&gates);
        let group = slot * value_heads + self.value_head;
        result.rounding_walk[group] = rounding_walk(&gates, key_dim);
        result.one_plus_gamma_32[group] = 1.0 + gamma / 32.0;
        for first in (0..value_dim).step_by(LANES) {
            let lanes = LANES.min(value_dim - first);
            let state = (group * value_dim + first) * key_dim..;
            let mut tile = Tile::new(key_dim, self.kept, self.in_chunks);
            let mut decay = vec![0.0; key_dim];
            if let Some(initial) = initial {
                tile.load(&initial[state.clone()][..lanes * key_dim]);
            }
            for (row, gate) in (self.sequence.first_row..).zip(&gates) {
                gate.spread(&mut decay);
                let gate = (&*decay, gate.beta);
                self.advance_tile(&mut tile, row, gate, first..first + lanes, gamma, result);
                if self.kept.is_some() {
                    let at = ((row * value_heads + self.value_head) * value_dim + first) * key_dim;
                    let kept = at..at + lanes * key_dim;
                    store(&tile.state, &mut result.s_by_row[kept.clone()]);
                    store(&tile.paths, &mut result.s_by_row_paths[kept.clone()]);
                    store(&tile.rounding.now, &mut result.s_by_row_drift[kept.clone()]);
                    store(&tile.decaying.now, &mut result.s_by_row_decays[kept]);
                }
            }
            let stored = state.start..state.start + lanes * key_dim;
            store(&tile.state, &mut result.s[stored.clone()]);
            store(tile.all_paths(), &mut result.s_paths[stored.clone()]);
            for at in stored {
                result.s_paths_gamma[at] = result.s_paths[at] * gamma;
            }
        }
        let own = group * value_dim * key_dim..(group + 1) * value_dim * key_dim;
        let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let (state, paths) = (norm(&result.s[own.clone()]), norm(&result.s_paths[own]));
        result.paths_ratio[group] = if state > 0.0 { paths / state } else { 0.0 };
    }

    /// One row for the value channels `channels`.
    fn advance_tile(
        &self,
        tile: &mut Tile,
        row: usize,
        gate: (&[f64], f64),
        channels: std::ops::Range<usize>,
        gamma: f64,
        result: &mut Recurrence,
    ) {
        let Heads { key_heads, key_dim, value_dim, value_heads, .. } = self.heads;
        let keys = (row * key_heads + self.heads.key_head(self.value_head)) * key_dim..;
        let first = (row * value_heads + self.value_head) * value_dim + channels.start;
        let values = first..first + channels.len();
        let mut v = [0.0; LANES];
        v[..channels.len()].copy_from_slice(&self.rows.v[values.clone()]);
        let k = &self.rows.k[keys.clone()][..key_dim];
        let q = &self.rows.q[keys][..key_dim];
        let (read, read_paths) = tile.advance(gate, k, q, v);
        for (at, lane) in values.clone().zip(0..) {
            result.o[at] = self.rows.scale * read[lane];
            result.o_paths[at] = self.rows.scale.abs() * read_paths[lane];
            result.o_paths_gamma[at] = result.o_paths[at] * gamma;
        }
        if let Some(kept) = self.kept {
            let (rounded, decays) = tile.carry_errors(kept, gate, k, q);
            for (at, lane) in values.zip(0..) {
                result.o_drift[at] = self.rows.scale.abs() * rounded[lane];
                result.o_decays[at] = self.rows.scale.abs() * decays[lane];
            }
        }
    }

    fn gates(&self) -> impl Iterator<Item = Gate<'_>> {
        let Sequence { first_row, row_count, .. } = self.sequence;
        // One decay a head, or one for each of its key channels.
        let channels = self.rows.g.len().checked_div(self.rows.beta.len()).unwrap_or(1);
        (first_row..first_row + row_count).map(move |row| {
            let at = row * self.heads.value_heads + self.value_head;
            let log_decay = &self.rows.g[at * channels..(at + 1) * channels];
            Gate { log_decay, beta: self.rows.beta[at] }
        })
    }
}

/// The gates of one row and head.
#[derive(Clone, Copy)]
struct Gate<'a> {
    /// Of the head, or of each of its key channels.
    log_decay: &'a [f64],
    beta: f64,
}

impl Gate<'_> {
    /// α of every key channel.
    fn spread(&self, alpha: &mut [f64]) {
        match self.log_decay {
            [of_head] => alpha.fill(libm::exp(*of_head)),
            of_channels => {
                for (alpha, log_decay) in alpha.iter_mut().zip(of_channels) {
                    *alpha = libm::exp(*log_decay);
                }
            }
        }
    }
}

/// Γ of one head: the largest |Σ g| over the chunks of the sequence and the decays of a row.
fn largest_chunk_decay(gates: &[Gate<'_>]) -> f64 {
    let channels = gates.first().map_or(0, |gate| gate.log_decay.len());
    let of_chunk = |chunk: &[Gate<'_>]| -> f64 {
        let sum = |at: usize| chunk.iter().map(|gate| gate.log_decay[at]).sum::<f64>().abs();
        (0..channels).map(sum).fold(0.0, f64::max)
    };
    gates.chunks(CHUNK_ROWS).map(of_chunk).fold(0.0, f64::max)
}

/// 0.42·2⁻²⁴·√min(T, N_eff): state rounding is a random walk that decay and overwriting contract,
/// so it grows as √T only up to N_eff = 1/(1 − E[α²](1 − E[β(2−β)]/Dk)); of several decays, the slowest
/// carries its walk farthest.
fn rounding_walk(gates: &[Gate<'_>], key_dim: usize) -> f64 {
    let Some(first) = gates.first() else { return 0.0 };
    let row_count = gates.len() as f64;
    let kept = |at: usize| {
        let squares = gates.iter().map(|gate| libm::exp(2.0 * gate.log_decay[at]));
        squares.sum::<f64>() / row_count
    };
    let kept = (0..first.log_decay.len()).map(kept).fold(0.0, f64::max);
    let overwritten = gates.iter().map(|gate| gate.beta * (2.0 - gate.beta)).sum::<f64>()
        / row_count
        / key_dim as f64;
    let lost = 1.0 - kept * (1.0 - overwritten);
    // Nothing lost per row (or a NaN gate): the walk never saturates.
    let effective_rows = if lost > 0.0 { (1.0 / lost).min(row_count) } else { row_count };
    0.42 * 2f64.powi(-24) * effective_rows.sqrt()
}

impl Recurrence {
    /// The tensors `o` and `s` of a contract.
    pub fn into_outputs(self) -> Outputs {
        let o = Expected::Real {
            value: self.o,
            magnitudes: vec![("paths", self.o_paths), ("paths_gamma", self.o_paths_gamma)],
            measures: Vec::new(),
        };
        let s = Expected::Real {
            value: self.s,
            magnitudes: vec![("paths", self.s_paths), ("paths_gamma", self.s_paths_gamma)],
            measures: vec![
                ("rounding_walk", self.rounding_walk),
                ("one_plus_gamma_32", self.one_plus_gamma_32),
                ("paths_ratio", self.paths_ratio),
            ],
        };
        Outputs { tensors: vec![("o", o), ("s", s)] }
    }
}
