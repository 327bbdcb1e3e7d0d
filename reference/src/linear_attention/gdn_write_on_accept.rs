//! A speculative round that stashes what its rows would do to the state, and the fold of the rows that
//! were accepted.
//!
//! ```text
//! verify:  δ_t = β_t(v_t − α_t S_{t−1} k_t), with α_t and k_t to the stash;  o_t as ever;  S not written
//! fold:    S ← α_t S + δ_t k_tᵀ over the first rows;  without a stash, the state after them from `snap`
//! ```
//!
//! Magnitudes: `paths` of δ is β(|v| + α M_{t−1}|k|), M as in `gated_delta_rule`; of a folded state it is
//! the same sum with |δ||k|; `stored`, in roundoffs of the state's type, is R of an output, β α R_{t−1}|k|
//! of δ, D of a state; `decays`, of computed decays alone, is C, and β α E_{t−1}|k| of δ; `exponential` of α
//! is α where it is computed.

use super::gated_delta_rule::{
    HeadMap, Heads, Recurrence, Sequence, StateType, gated_delta_rule_by_row,
};
use super::gates::Gates;
use super::gdn_chunk::end_to_end;
use super::inputs::GatedDeltaInputs;
use crate::{Expected, Inputs, Outputs};

/// By the option `phase`:
///
/// * `verify`: reads what `gdn_verify` reads; returns `o`, `stash_alpha` `[rows,Hv]`, `stash_delta`
///   `[rows,Hv,Dv]`, `stash_key` `[rows,Hk,Dk]` and `engaged` `[N]`;
/// * `fold`: reads the stash, s, snap and the lists `seq_len`, `slot`, `accepted` and `engaged`; returns `s`;
/// * `round`: both, every sequence engaged;
/// * `clear`: returns `engaged`.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract.
pub fn gdn_write_on_accept(inputs: &Inputs) -> Outputs {
    match inputs.word("phase") {
        "verify" => Outputs { tensors: Verify::read(inputs).stash() },
        "round" => {
            let verify = Verify::read(inputs);
            let mut tensors = verify.stash();
            tensors.push(("s", verify.accepted_state(inputs.list("accepted"))));
            Outputs { tensors }
        }
        "fold" => Outputs { tensors: vec![("s", fold(inputs))] },
        "clear" => {
            let cleared = vec![0; inputs.list("slot").len()];
            Outputs { tensors: vec![("engaged", Expected::Bits(cleared))] }
        }
        other => {
            panic!("option `phase` is `{other}`; the reference knows verify, fold, round, clear")
        }
    }
}

/// Values that narrow states were read for, or that are one.
fn carried(Carried { value, paths, stored, decays }: Carried) -> Expected {
    let magnitudes = vec![("paths", paths), ("stored", stored), ("decays", decays)];
    Expected::Real { value, magnitudes, measures: Vec::new() }
}

/// Numbers with their magnitudes.
struct Carried {
    value: Vec<f64>,
    paths: Vec<f64>,
    stored: Vec<f64>,
    decays: Vec<f64>,
}

impl Carried {
    /// What is given, exactly.
    fn of_initial(value: Vec<f64>) -> Carried {
        let paths = value.iter().map(|value| value.abs()).collect();
        let exact = vec![0.0; value.len()];
        Carried { value, paths, stored: exact.clone(), decays: exact }
    }
}

/// Everything of a verify, and its recurrence row by row.
struct Verify<'a> {
    inputs: &'a Inputs,
    read: GatedDeltaInputs,
    initial: Vec<f64>,
    alpha: Vec<f64>,
    sequences: Vec<Sequence>,
    kept: StateType,
    rows: Recurrence,
}

impl<'a> Verify<'a> {
    fn read(inputs: &'a Inputs) -> Verify<'a> {
        let is_log = match inputs.word("gate_form") {
            "log" => true,
            "alpha" => false,
            other => panic!("option `gate_form` is `{other}`; the reference knows log and alpha"),
        };
        let decay = inputs.tensor(if is_log { "g" } else { "alpha" }).to_f64();
        let alpha =
            if is_log { decay.iter().map(|g| libm::exp(*g)).collect() } else { decay.clone() };
        let log_decay = if is_log { decay } else { Gates::alpha(&decay, Vec::new()).log_decay };
        let read = GatedDeltaInputs::read(inputs, log_decay);
        let initial = inputs.tensor("s").to_f64();
        let sequences = end_to_end(inputs.list("seq_len"), inputs.list("slot"));
        let kept = StateType::of(inputs.tensor("s").dtype);
        let rows = gated_delta_rule_by_row(
            read.heads,
            read.rows(),
            &sequences,
            read.slots,
            Some(&initial),
            kept,
        );
        Verify { inputs, read, initial, alpha, sequences, kept, rows }
    }

    fn stash(&self) -> Vec<(&'static str, Expected)> {
        let key = self.inputs.tensor("k");
        let keys = (0..key.count()).map(|at| {
            u64::from((key.dtype.to_f64(key.bits(at)) as f32).to_bits()) // exact: a wider type
        });
        let computed = self.inputs.word("gate_form") == "log";
        let exponential = self.alpha.iter().map(|a| if computed { *a } else { 0.0 }).collect();
        let engaged = self.sequences.iter().map(|s| u64::from(s.slot.is_some())).collect();
        let alpha = Expected::Real {
            value: self.alpha.clone(),
            magnitudes: vec![("exponential", exponential)],
            measures: Vec::new(),
        };
        let o = Carried {
            value: self.rows.o.clone(),
            paths: self.rows.o_paths.clone(),
            stored: self.rows.o_drift.clone(),
            decays: self.computed(&self.rows.o_decays),
        };
        vec![
            ("o", carried(o)),
            ("stash_alpha", alpha),
            ("stash_delta", carried(self.deltas())),
            ("stash_key", Expected::Bits(keys.collect())),
            ("engaged", Expected::Bits(engaged)),
        ]
    }

    /// The errors of decays, none where the decay itself is given.
    fn computed(&self, errors: &[f64]) -> Vec<f64> {
        let computed = if self.inputs.word("gate_form") == "log" { 1.0 } else { 0.0 };
        errors.iter().map(|error| computed * error).collect()
    }

    /// δ, `[rows,Hv,Dv]`.
    fn deltas(&self) -> Carried {
        let Heads { key_heads, value_heads, key_dim, value_dim, .. } = self.read.heads;
        let rows = self.read.rows();
        let mut delta = Carried::of_initial(vec![0.0; rows.v.len()]);
        for (sequence, slot) in self.sequences.iter().filter_map(|s| Some((s, s.slot?))) {
            for row in sequence.first_row..sequence.first_row + sequence.row_count {
                let before = self.before(sequence, slot, row);
                for head in 0..value_heads {
                    let keys = (row * key_heads + self.read.heads.key_head(head)) * key_dim;
                    let k = &rows.k[keys..keys + key_dim];
                    let gate = row * value_heads + head;
                    let (alpha, beta) = (self.alpha[gate], rows.beta[gate]);
                    for value in 0..value_dim {
                        let at = (head * value_dim + value) * key_dim;
                        let dot = |of: &[f64], part: fn(f64) -> f64| -> f64 {
                            of[at..at + key_dim].iter().zip(k).map(|(s, k)| part(s * k)).sum()
                        };
                        let out = gate * value_dim + value;
                        let recalled_paths = alpha * dot(&before.paths, f64::abs);
                        delta.value[out] = beta * (rows.v[out] - alpha * dot(&before.value, |x| x));
                        delta.paths[out] = beta * (rows.v[out].abs() + recalled_paths);
                        delta.stored[out] = beta * alpha * dot(&before.stored, f64::abs);
                        delta.decays[out] = beta * alpha * dot(&before.decays, f64::abs);
                    }
                }
            }
        }
        delta
    }

    /// The state that a row of a sequence reads, with M, R and E.
    fn before(&self, sequence: &Sequence, slot: usize, row: usize) -> Carried {
        let slot_count = self.read.heads.slot_count();
        if row == sequence.first_row {
            let own = &self.initial[slot * slot_count..(slot + 1) * slot_count];
            let exact = Carried::of_initial(own.to_vec());
            let decays = self.computed(&exact.paths);
            return Carried { decays, ..exact };
        }
        let own = (row - 1) * slot_count..row * slot_count;
        let value = self.rows.s_by_row[own.clone()].to_vec();
        let drift = &self.rows.s_by_row_drift[own.clone()];
        let stored = drift.iter().zip(&value).map(|(d, s)| self.kept.rounded(*d, *s)).collect();
        let carried = &self.rows.s_by_row_decays[own.clone()];
        let decays: Vec<f64> = carried.iter().zip(&value).map(|(c, s)| c + s.abs()).collect();
        let paths = self.rows.s_by_row_paths[own].to_vec();
        Carried { value, paths, stored, decays: self.computed(&decays) }
    }

    /// The state after the first rows of each sequence, as many as `accepted` says and there are.
    fn accepted_state(&self, accepted: &[i64]) -> Expected {
        let slot_count = self.read.heads.slot_count();
        let mut state = Carried::of_initial(self.initial.clone());
        for (sequence, accepted) in self.sequences.iter().zip(accepted) {
            let rows = sequence.row_count.min(usize::try_from(*accepted).unwrap_or(0));
            let (Some(slot), true) = (sequence.slot, rows > 0) else { continue };
            let own = slot * slot_count..(slot + 1) * slot_count;
            let row = sequence.first_row + rows - 1;
            let after = row * slot_count..(row + 1) * slot_count;
            state.value[own.clone()].copy_from_slice(&self.rows.s_by_row[after.clone()]);
            state.paths[own.clone()].copy_from_slice(&self.rows.s_by_row_paths[after.clone()]);
            state.stored[own.clone()].copy_from_slice(&self.rows.s_by_row_drift[after.clone()]);
            state.decays[own].copy_from_slice(&self.computed(&self.rows.s_by_row_decays[after]));
        }
        carried(state)
    }
}

/// The state after a fold of what the inputs stash.
fn fold(inputs: &Inputs) -> Expected {
    let extent = |tensor: &str, axis: usize| inputs.tensor(tensor).shape[axis] as usize;
    let heads = Heads {
        key_heads: extent("stash_key", 1),
        value_heads: extent("stash_delta", 1),
        key_dim: extent("stash_key", 2),
        value_dim: extent("stash_delta", 2),
        map: if inputs.word("head_map") == "cyclic" { HeadMap::Cyclic } else { HeadMap::Block },
    };
    let [alpha, delta, key, snap] = ["stash_alpha", "stash_delta", "stash_key", "snap"]
        .map(|tensor| inputs.tensor(tensor).to_f64());
    let mut state = Carried::of_initial(inputs.tensor("s").to_f64());
    let slot_count = heads.slot_count();
    let kept_type = StateType::of(inputs.tensor("s").dtype);
    let sequences = end_to_end(inputs.list("seq_len"), inputs.list("slot"));
    for (n, sequence) in sequences.iter().enumerate() {
        let accepted = usize::try_from(inputs.list("accepted")[n]).unwrap_or(0);
        let kept = sequence.row_count.min(accepted);
        let (Some(slot), true) = (sequence.slot, kept > 0) else { continue };
        let own = slot * slot_count..(slot + 1) * slot_count;
        if inputs.list("engaged")[n] == 0 {
            if kept < sequence.row_count {
                let row = sequence.first_row + kept - 1;
                state.value[own.clone()]
                    .copy_from_slice(&snap[row * slot_count..(row + 1) * slot_count]);
            }
            state.paths[own].fill(0.0); // a copy
            continue;
        }
        for at in 0..slot_count {
            let (channel, of_key) = (at / heads.key_dim, at % heads.key_dim);
            let head = channel / heads.value_dim;
            let element = own.start + at;
            let mut rounded = 0.0; // R
            for row in sequence.first_row..sequence.first_row + kept {
                let a = alpha[row * heads.value_heads + head];
                let written = delta[row * heads.value_heads * heads.value_dim + channel]
                    * key[(row * heads.key_heads + heads.key_head(head)) * heads.key_dim + of_key];
                let mut value = a * state.value[element] + written;
                if value.is_finite() {
                    value = value.clamp(-kept_type.largest, kept_type.largest);
                }
                state.value[element] = value;
                state.paths[element] = a * state.paths[element] + written.abs();
                state.stored[element] = a * rounded;
                rounded = kept_type.rounded(state.stored[element], value);
            }
        }
    }
    carried(state)
}
