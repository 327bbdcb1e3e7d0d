//! Gated delta rule, one token per sequence: row i advances the state in slot `slot[i]` by one step,
//! with the gates, norms and output gate that the options name. The state is always read; a negative
//! slot skips its row.
//!
//! Beside `paths` (see `gated_delta_rule`) outputs and state have magnitudes for what else is computed:
//! `gates` for gates made from raw ones, `norms` for norms (both in units of 2⁻²⁴), `stored` for an f16
//! state's rounding as the output sees it (in units of 2⁻¹¹). They are zero where nothing of the kind
//! happens.

use super::gated_delta_rule::{HeadMap, Heads, Recurrence, Rows, Sequence, gated_delta_rule};
use super::gates::Gates;
use super::norms::{OutputErrors, QkNorm, gate_output, norm_error, normalised};
use crate::{Expected, Inputs, Outputs};
use contracts::dtype::DType;

/// Reads q, k `[N,Hk,Dk]`, v `[N,Hv,Dv]`, s `[slots,Hv,Dv,Dk]` f32 or f16, the list `slot` (N), the
/// dim `slots`, the scalars `scale`, `qk_eps`, `norm_eps`, `alpha_low` and `alpha_high` and the options:
///
/// * `head_map`: `block` or `cyclic`;
/// * `gate_form`: `log` (g, beta `[N,Hv]`), `alpha` (alpha, beta) or `raw` (a, b `[N,Hv]`, dt_bias,
///   a_log `[Hv]`); `alpha_clamp`: `none`, or `range` between the two scalars;
/// * `qk_norm`: `none`, `l2` or `rms_scaled`, whose q holds the output's scale, so `scale` is not used;
/// * `output_gate`: `none`, or `rms_silu` with z `[N,Hv,Dv]` and w `[Dv]`;
/// * `snapshot`: `none` or `each`.
///
/// Returns `o` `[N,Hv,Dv]`, `s` `[slots,Hv,Dv,Dk]` and, with snapshots, `snap` `[N,Hv,Dv,Dk]`; rows and
/// slots of no sequence are dead. A state in f16 stops at ±65504 where it is finite.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract (a slot outside the pool).
pub fn gdn_decode(inputs: &Inputs) -> Outputs {
    let step = Step::read(inputs);
    let mut recurrence = step.recurrence();
    let mut errors = Errors::new(&recurrence);
    for (row, slot) in step.sequences() {
        for value_head in 0..step.heads.value_heads {
            let head = Head::new(&step, row, slot, value_head);
            head.saturate(&mut recurrence);
            head.add_errors(&recurrence, &mut errors);
            head.gate_output(&mut recurrence, &mut errors);
        }
    }
    if step.is_f16 {
        // The walk of a state that rounds to 2⁻¹¹.
        recurrence.rounding_walk.iter_mut().for_each(|walk| *walk *= 8192.0);
    }
    step.outputs(recurrence, errors)
}

/// Everything of one call, as f64.
struct Step {
    heads: Heads,
    slots: usize,
    slot: Vec<i64>,
    is_f16: bool,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    gates: Gates,
    /// Units of 2⁻²⁴ by which norms of q and k may miss; 0 without norms.
    norm_error: f64,
    /// z, w and ε of the output's norm.
    output_gate: Option<(Vec<f64>, Vec<f64>, f64)>,
    has_snapshots: bool,
    initial: Vec<f64>,
    scale: f64,
}

impl Step {
    fn read(inputs: &Inputs) -> Step {
        let values = |tensor: &str| inputs.tensor(tensor).to_f64();
        let extent = |tensor: &str, axis: usize| inputs.tensor(tensor).shape[axis] as usize;
        let heads = Heads {
            key_heads: extent("q", 1),
            value_heads: extent("v", 1),
            key_dim: extent("q", 2),
            value_dim: extent("v", 2),
            map: match inputs.word("head_map") {
                "block" => HeadMap::Block,
                "cyclic" => HeadMap::Cyclic,
                other => unknown("head_map", other, "block and cyclic"),
            },
        };
        let gates = match inputs.word("gate_form") {
            "log" => Gates::log(values("g"), values("beta")),
            "alpha" => Gates::alpha(&values("alpha"), values("beta")),
            "raw" => Gates::raw(&values("a"), &values("b"), &values("dt_bias"), &values("a_log")),
            other => unknown("gate_form", other, "log, alpha and raw"),
        };
        let gates = match inputs.word("alpha_clamp") {
            "none" => gates,
            "range" => gates.clamped(inputs.scalar("alpha_low"), inputs.scalar("alpha_high")),
            other => unknown("alpha_clamp", other, "none and range"),
        };
        let norm = match inputs.word("qk_norm") {
            "none" => QkNorm::None,
            "l2" => QkNorm::L2,
            "rms_scaled" => QkNorm::RmsScaled,
            other => unknown("qk_norm", other, "none, l2 and rms_scaled"),
        };
        let output_gate = match inputs.word("output_gate") {
            "none" => None,
            "rms_silu" => Some((values("z"), values("w"), inputs.scalar("norm_eps"))),
            other => unknown("output_gate", other, "none and rms_silu"),
        };
        let (dim, eps) = (heads.key_dim, inputs.scalar("qk_eps"));
        let normed =
            |tensor: &str, length: f64| normalised(norm, &values(tensor), dim, eps, length);
        Step {
            heads,
            slots: usize::try_from(inputs.dim("slots")).expect("dim `slots` is not negative"),
            slot: inputs.list("slot").to_vec(),
            is_f16: inputs.tensor("s").dtype == DType::F16,
            q: normed("q", 1.0 / dim as f64),
            k: normed("k", 1.0 / libm::sqrt(dim as f64)),
            v: values("v"),
            gates,
            norm_error: if norm == QkNorm::None { 0.0 } else { norm_error(dim) },
            output_gate,
            has_snapshots: inputs.word("snapshot") == "each",
            initial: values("s"),
            scale: if norm == QkNorm::RmsScaled { 1.0 } else { inputs.scalar("scale") },
        }
    }

    /// Rows that are no pads, and their slots.
    fn sequences(&self) -> impl Iterator<Item = (usize, usize)> {
        let place = |(row, slot): (usize, &i64)| Some((row, usize::try_from(*slot).ok()?));
        self.slot.iter().enumerate().filter_map(place)
    }

    fn recurrence(&self) -> Recurrence {
        let rows = Rows {
            q: &self.q,
            k: &self.k,
            v: &self.v,
            g: &self.gates.log_decay,
            beta: &self.gates.beta,
            scale: self.scale,
        };
        let sequences: Vec<Sequence> = self
            .sequences()
            .map(|(row, slot)| Sequence { first_row: row, row_count: 1, slot: Some(slot) })
            .collect();
        gated_delta_rule(self.heads, rows, &sequences, self.slots, Some(&self.initial))
    }

    fn outputs(&self, recurrence: Recurrence, errors: Errors) -> Outputs {
        let snap = self.has_snapshots.then(|| {
            let gather = |state: &[f64]| self.of_slots(state);
            Expected::Real {
                value: gather(&recurrence.s),
                magnitudes: vec![
                    ("paths", gather(&recurrence.s_paths)),
                    ("gates", gather(&errors.s_gates)),
                    ("norms", gather(&errors.s_norms)),
                ],
                measures: Vec::new(),
            }
        });
        let o = Expected::Real {
            value: recurrence.o,
            magnitudes: vec![
                ("paths", recurrence.o_paths),
                ("gates", errors.o_gates),
                ("norms", errors.o_norms),
                ("stored", errors.o_stored),
            ],
            measures: Vec::new(),
        };
        let s = Expected::Real {
            value: recurrence.s,
            magnitudes: vec![
                ("paths", recurrence.s_paths),
                ("gates", errors.s_gates),
                ("norms", errors.s_norms),
            ],
            measures: vec![("rounding_walk", recurrence.rounding_walk)],
        };
        let mut tensors = vec![("o", o), ("s", s)];
        tensors.extend(snap.map(|snap| ("snap", snap)));
        Outputs { tensors }
    }

    /// The slots of a pool in the order of the sequences; zeros for pads.
    fn of_slots(&self, pool: &[f64]) -> Vec<f64> {
        let count = self.heads.slot_count();
        let mut rows = vec![0.0; self.slot.len() * count];
        for (row, slot) in self.sequences() {
            rows[row * count..(row + 1) * count]
                .copy_from_slice(&pool[slot * count..(slot + 1) * count]);
        }
        rows
    }
}

fn unknown(option: &str, word: &str, known: &str) -> ! {
    panic!("option `{option}` is `{word}`; the reference knows {known}")
}

/// Magnitudes beside `paths`.
struct Errors {
    s_gates: Vec<f64>,
    s_norms: Vec<f64>,
    o_gates: Vec<f64>,
    o_norms: Vec<f64>,
    o_stored: Vec<f64>,
}

impl Errors {
    fn new(recurrence: &Recurrence) -> Errors {
        let (state, output) = (vec![0.0; recurrence.s.len()], vec![0.0; recurrence.o.len()]);
        Errors {
            s_gates: state.clone(),
            s_norms: state,
            o_gates: output.clone(),
            o_norms: output.clone(),
            o_stored: output,
        }
    }
}

/// One value head of one sequence.
struct Head<'a> {
    step: &'a Step,
    q: &'a [f64],
    k: &'a [f64],
    /// Index of the head's gates.
    gate: usize,
    /// Where its outputs begin, and its state.
    output: usize,
    state: usize,
}

impl Head<'_> {
    fn new(step: &Step, row: usize, slot: usize, value_head: usize) -> Head<'_> {
        let Heads { key_heads, value_heads, key_dim, value_dim, .. } = step.heads;
        let keys = (row * key_heads + step.heads.key_head(value_head)) * key_dim;
        let gate = row * value_heads + value_head;
        Head {
            step,
            q: &step.q[keys..keys + key_dim],
            k: &step.k[keys..keys + key_dim],
            gate,
            output: gate * value_dim,
            state: (slot * value_heads + value_head) * value_dim * key_dim,
        }
    }

    /// The elements of one value channel's state.
    fn row(&self, channel: usize) -> std::ops::Range<usize> {
        let first = self.state + channel * self.k.len();
        first..first + self.k.len()
    }

    /// What an f16 state cannot hold stops at its largest number, and the output reads that.
    fn saturate(&self, recurrence: &mut Recurrence) {
        if !self.step.is_f16 {
            return;
        }
        let largest = DType::F16.largest_finite();
        for channel in 0..self.step.heads.value_dim {
            let row = &mut recurrence.s[self.row(channel)];
            if !row.iter().any(|s| s.is_finite() && s.abs() > largest) {
                continue;
            }
            for s in row.iter_mut().filter(|s| s.is_finite()) {
                *s = s.clamp(-largest, largest);
            }
            let read: f64 = row.iter().zip(self.q).map(|(s, q)| s * q).sum();
            recurrence.o[self.output + channel] = self.step.scale * read;
        }
    }

    fn add_errors(&self, recurrence: &Recurrence, errors: &mut Errors) {
        let (step, gates) = (self.step, &self.step.gates);
        let (alpha_error, beta_error) = (gates.alpha_error[self.gate], gates.beta_error[self.gate]);
        // The least f16 rounds alike, whatever is smaller.
        let least = 2f64.powi(-14);
        let has_errors = alpha_error != 0.0 || beta_error != 0.0 || step.norm_error != 0.0;
        let (alpha, beta) = (libm::exp(gates.log_decay[self.gate]), gates.beta[self.gate].abs());
        for channel in 0..step.heads.value_dim {
            let (row, output) = (self.row(channel), self.output + channel);
            if step.is_f16 {
                let stored = recurrence.s[row.clone()].iter().zip(self.q);
                let sum: f64 = stored.map(|(s, q)| s.abs().max(least) * q.abs()).sum();
                errors.o_stored[output] = step.scale.abs() * sum;
            }
            if !has_errors {
                continue;
            }
            let before = &step.initial[row.clone()];
            let recalled: f64 = before.iter().zip(self.k).map(|(s, k)| (alpha * s * k).abs()).sum();
            let written = beta * (step.v[output].abs() + recalled);
            let (mut gates, mut norms) = (0.0, 0.0);
            for (at, (s, (k, q))) in row.zip(before.iter().zip(self.k.iter().zip(self.q))) {
                // How S' moves with ln α, with ln β, and with the length of k, in which it is square.
                let by_alpha = alpha * s.abs() + beta * recalled * k.abs();
                let by_beta = written * k.abs();
                let by_gates = alpha_error * by_alpha + beta_error * by_beta;
                let by_norm = 2.0 * step.norm_error * by_beta;
                (errors.s_gates[at], errors.s_norms[at]) = (by_gates, by_norm);
                gates += by_gates * q.abs();
                norms += by_norm * q.abs();
            }
            errors.o_gates[output] = step.scale.abs() * gates;
            errors.o_norms[output] =
                step.scale.abs() * norms + step.norm_error * recurrence.o_paths[output];
        }
    }

    fn gate_output(&self, recurrence: &mut Recurrence, errors: &mut Errors) {
        let Some((z, w, eps)) = &self.step.output_gate else { return };
        let channels = self.output..self.output + self.step.heads.value_dim;
        let mut head = OutputErrors {
            paths: recurrence.o_paths[channels.clone()].to_vec(),
            gates: errors.o_gates[channels.clone()].to_vec(),
            norms: errors.o_norms[channels.clone()].to_vec(),
            stored: errors.o_stored[channels.clone()].to_vec(),
        };
        let o = &mut recurrence.o[channels.clone()];
        gate_output(o, &mut head, w, &z[channels.clone()], *eps);
        recurrence.o_paths[channels.clone()].copy_from_slice(&head.paths);
        errors.o_gates[channels.clone()].copy_from_slice(&head.gates);
        errors.o_norms[channels.clone()].copy_from_slice(&head.norms);
        errors.o_stored[channels].copy_from_slice(&head.stored);
    }
}
