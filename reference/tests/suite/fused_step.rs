//! A step of gdn_decode with everything fused, against the equations written out once more by hand:
//! gates in each form, clamps, norms of q and k, the output's gated norm, f16 states, pads, snapshots.

use crate::draws::Draws;
use crate::gdn_inputs::{f32_tensor, magnitude, measure, value};
use contracts::dtype::DType;
use contracts::logical::Logical;
use reference::{Inputs, Outputs};

const KEY_HEADS: usize = 2;
const VALUE_HEADS: usize = 4;
const KEY_DIM: usize = 8;
const VALUE_DIM: usize = 6;
const SLOTS: usize = 3;
/// The second sequence is a pad.
const SLOT: [i64; 3] = [2, -1, 0];
const LOW: f64 = 0.25;
const HIGH: f64 = 0.5;
const QK_EPS: f64 = 0.125;
const NORM_EPS: f64 = 0.0625;
const SCALE: f64 = 0.375;

/// What a step is made of.
#[derive(Clone, Copy)]
struct Form {
    gates: &'static str,
    clamp: &'static str,
    norm: &'static str,
    output: &'static str,
    map: &'static str,
}

const PLAIN: Form =
    Form { gates: "log", clamp: "none", norm: "none", output: "none", map: "block" };

struct Problem {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    gate: Vec<f32>,
    beta: Vec<f32>,
    bias: Vec<f32>,
    a_log: Vec<f32>,
    z: Vec<f32>,
    w: Vec<f32>,
    s: Vec<f32>,
}

fn f32s(values: Vec<f64>) -> Vec<f32> {
    values.into_iter().map(|x| x as f32).collect()
}

impl Problem {
    /// `gate` and `beta` are what the form takes: g or α and β, or a and b.
    fn draw(form: Form) -> Problem {
        let mut draws = Draws::new(11);
        let (rows, heads) = (SLOT.len(), SLOT.len() * VALUE_HEADS);
        let (low, high) = match form.gates {
            "log" => (-2.5, -0.1),
            "alpha" => (0.1, 0.9),
            _ => (-3.0, 3.0),
        };
        Problem {
            q: f32s(draws.normals(rows * KEY_HEADS * KEY_DIM)),
            k: f32s(draws.unit_rows(rows * KEY_HEADS, KEY_DIM, 0.5)),
            v: f32s(draws.normals(heads * VALUE_DIM)),
            gate: f32s(draws.uniforms(heads, low, high)),
            beta: f32s(draws.uniforms(heads, 0.2, 0.8)),
            bias: f32s(draws.uniforms(VALUE_HEADS, -1.0, 1.0)),
            a_log: f32s(draws.uniforms(VALUE_HEADS, -2.0, 0.5)),
            z: f32s(draws.normals(heads * VALUE_DIM)),
            w: f32s(draws.normals(VALUE_DIM)),
            s: f32s(draws.normals(SLOTS * VALUE_HEADS * VALUE_DIM * KEY_DIM)),
        }
    }

    fn run(&self, form: Form, state: Logical) -> Outputs {
        let rows = SLOT.len();
        let (gate, beta) = match form.gates {
            "log" => ("g", "beta"),
            "alpha" => ("alpha", "beta"),
            _ => ("a", "b"),
        };
        let tensor = |name: &str, shape: &[usize], values: &[f32]| {
            (name.to_owned(), f32_tensor(shape, values))
        };
        let mut tensors = vec![
            tensor("q", &[rows, KEY_HEADS, KEY_DIM], &self.q),
            tensor("k", &[rows, KEY_HEADS, KEY_DIM], &self.k),
            tensor("v", &[rows, VALUE_HEADS, VALUE_DIM], &self.v),
            tensor(gate, &[rows, VALUE_HEADS], &self.gate),
            tensor(beta, &[rows, VALUE_HEADS], &self.beta),
            tensor("dt_bias", &[VALUE_HEADS], &self.bias),
            tensor("a_log", &[VALUE_HEADS], &self.a_log),
            tensor("z", &[rows, VALUE_HEADS, VALUE_DIM], &self.z),
            tensor("w", &[VALUE_DIM], &self.w),
        ];
        tensors.push(("s".to_owned(), state));
        let word = |name: &str, word: &str| (name.to_owned(), word.to_owned());
        let scalar = |name: &str, value: f64| (name.to_owned(), value);
        let inputs = Inputs {
            tensors,
            scalars: vec![
                scalar("scale", SCALE),
                scalar("qk_eps", QK_EPS),
                scalar("norm_eps", NORM_EPS),
                scalar("alpha_low", LOW),
                scalar("alpha_high", HIGH),
            ],
            options: vec![
                word("head_map", form.map),
                word("gate_form", form.gates),
                word("alpha_clamp", form.clamp),
                word("qk_norm", form.norm),
                word("output_gate", form.output),
                word("snapshot", "each"),
            ],
            dims: vec![("slots".to_owned(), SLOTS as i64)],
            lists: vec![("slot".to_owned(), SLOT.to_vec())],
            ..Inputs::default()
        };
        reference::reference("gdn_decode").expect("gdn_decode is registered")(&inputs)
    }

    fn state(&self) -> Logical {
        f32_tensor(&[SLOTS, VALUE_HEADS, VALUE_DIM, KEY_DIM], &self.s)
    }

    /// α and β of one row and head.
    fn gates(&self, form: Form, row: usize, head: usize) -> (f64, f64) {
        let at = row * VALUE_HEADS + head;
        let (gate, beta) = (f64::from(self.gate[at]), f64::from(self.beta[at]));
        let (alpha, beta) = match form.gates {
            "log" => (gate.exp(), beta),
            "alpha" => (gate, beta),
            _ => {
                let softplus = (1.0 + (gate + f64::from(self.bias[head])).exp()).ln();
                let rate = f64::from(self.a_log[head]).exp();
                ((-rate * softplus).exp(), 1.0 / (1.0 + (-beta).exp()))
            }
        };
        (if form.clamp == "range" { alpha.clamp(LOW, HIGH) } else { alpha }, beta)
    }

    /// One row of q or k as the step uses it.
    fn key(&self, form: Form, x: &[f32], row: usize, head: usize, is_q: bool) -> Vec<f64> {
        let key_head = match form.map {
            "block" => head / (VALUE_HEADS / KEY_HEADS),
            _ => head % KEY_HEADS,
        };
        let first = (row * KEY_HEADS + key_head) * KEY_DIM;
        let x: Vec<f64> = x[first..first + KEY_DIM].iter().map(|x| f64::from(*x)).collect();
        let square: f64 = x.iter().map(|x| x * x).sum();
        let dim = KEY_DIM as f64;
        let factor = match form.norm {
            "none" => 1.0,
            "l2" => (square + QK_EPS).sqrt().recip(),
            _ if is_q => (square / dim + QK_EPS).sqrt().recip() / dim,
            _ => (square / dim + QK_EPS).sqrt().recip() / dim.sqrt(),
        };
        x.iter().map(|x| x * factor).collect()
    }

    /// Outputs and final states, rows of pads and slots of nobody zero.
    fn by_hand(&self, form: Form) -> (Vec<f64>, Vec<f64>) {
        let mut o = vec![0.0; self.v.len()];
        let mut s = vec![0.0; self.s.len()];
        for (row, slot) in SLOT.iter().enumerate().filter(|(_, slot)| **slot >= 0) {
            for head in 0..VALUE_HEADS {
                let (alpha, beta) = self.gates(form, row, head);
                let k = self.key(form, &self.k, row, head, false);
                let q = self.key(form, &self.q, row, head, true);
                let scale = if form.norm == "rms_scaled" { 1.0 } else { SCALE };
                let first = (row * VALUE_HEADS + head) * VALUE_DIM;
                for channel in 0..VALUE_DIM {
                    let own =
                        ((*slot as usize * VALUE_HEADS + head) * VALUE_DIM + channel) * KEY_DIM;
                    let old: Vec<f64> =
                        (0..KEY_DIM).map(|i| alpha * f64::from(self.s[own + i])).collect();
                    let recalled: f64 = old.iter().zip(&k).map(|(s, k)| s * k).sum();
                    let delta = beta * (f64::from(self.v[first + channel]) - recalled);
                    for i in 0..KEY_DIM {
                        s[own + i] = old[i] + delta * k[i];
                        o[first + channel] += scale * s[own + i] * q[i];
                    }
                }
                if form.output == "rms_silu" {
                    let own = &mut o[first..first + VALUE_DIM];
                    let mean = own.iter().map(|o| o * o).sum::<f64>() / VALUE_DIM as f64;
                    for (at, o) in own.iter_mut().enumerate() {
                        let z = f64::from(self.z[first + at]);
                        let gate = z / (1.0 + (-z).exp());
                        *o = *o / (mean + NORM_EPS).sqrt() * f64::from(self.w[at]) * gate;
                    }
                }
            }
        }
        (o, s)
    }
}

fn near(observed: &[f64], expected: &[f64]) -> bool {
    observed.len() == expected.len()
        && observed.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-12 * (1.0 + b.abs()))
}

#[test]
fn every_form_of_a_step_is_its_equations() {
    for gates in ["log", "alpha", "raw"] {
        for clamp in ["none", "range"] {
            for norm in ["none", "l2", "rms_scaled"] {
                for (output, map) in [("none", "cyclic"), ("rms_silu", "block")] {
                    let form = Form { gates, clamp, norm, output, map };
                    let problem = Problem::draw(form);
                    let outputs = problem.run(form, problem.state());
                    let (o, s) = problem.by_hand(form);
                    let name = format!("{gates} {clamp} {norm} {output} {map}");
                    assert!(near(value(&outputs, "o"), &o), "o of {name}");
                    assert!(near(value(&outputs, "s"), &s), "s of {name}");
                    let slot = VALUE_HEADS * VALUE_DIM * KEY_DIM;
                    let snap = [&s[2 * slot..], &vec![0.0; slot], &s[..slot]].concat();
                    assert!(near(value(&outputs, "snap"), &snap), "snap of {name}");
                }
            }
        }
    }
}

#[test]
fn magnitudes_are_there_where_something_is_rounded_and_only_there() {
    let largest = |outputs: &Outputs, tensor: &str, name: &str| {
        magnitude(outputs, tensor, name).iter().fold(0.0, |most: f64, x| most.max(*x))
    };
    for (form, gates, norms) in [
        (PLAIN, false, false),
        (Form { gates: "alpha", ..PLAIN }, false, false),
        (Form { gates: "raw", ..PLAIN }, true, false),
        (Form { norm: "l2", ..PLAIN }, false, true),
    ] {
        let problem = Problem::draw(form);
        let outputs = problem.run(form, problem.state());
        for tensor in ["o", "s", "snap"] {
            assert_eq!(largest(&outputs, tensor, "gates") > 0.0, gates, "{tensor} gates");
            assert_eq!(largest(&outputs, tensor, "norms") > 0.0, norms, "{tensor} norms");
        }
        assert_eq!(largest(&outputs, "o", "stored"), 0.0, "an f32 state is not rounded");
    }
}

/// How far results move when a gate does is what the magnitude says, and not several times as much.
#[test]
fn gates_move_results_by_their_magnitude() {
    let form = Form { gates: "raw", ..PLAIN };
    let problem = Problem::draw(form);
    let outputs = problem.run(form, problem.state());
    let (_, base) = problem.by_hand(form);
    let step = 1e-6;
    let mut moved = Problem::draw(form);
    // β by a relative step: b moves by step / (1 − β).
    for b in &mut moved.beta {
        let beta = 1.0 / (1.0 + (-f64::from(*b)).exp());
        *b = (f64::from(*b) + 1e3 * step / (1.0 - beta)) as f32;
    }
    let (_, after) = moved.by_hand(form);
    let allowed = magnitude(&outputs, "s", "gates");
    for at in 0..base.len() {
        // Eight units of β's relative error are among what the magnitude allows.
        let seen = (after[at] - base[at]).abs() / (1e3 * step) * 8.0;
        assert!(seen <= 1.05 * allowed[at] + 1e-6, "{at}: {seen} of {}", allowed[at]);
    }
    let total: f64 = (0..base.len()).map(|at| (after[at] - base[at]).abs() / step * 8e-3).sum();
    assert!(total * 20.0 > allowed.iter().sum::<f64>(), "{total}: the magnitude is not idle");
}

#[test]
fn an_f16_state_stops_at_its_largest_number_and_the_output_reads_that() {
    let problem = Problem::draw(PLAIN);
    // Element 1 of every row is the largest f16, and v pushes it further.
    let bits: Vec<u16> =
        (0..problem.s.len()).map(|at| if at % KEY_DIM == 1 { 0x7bff } else { 0x3c00 }).collect();
    let bytes = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let shape = [SLOTS, VALUE_HEADS, VALUE_DIM, KEY_DIM].map(|extent| extent as u64).to_vec();
    let state = Logical::from_bytes(DType::F16, shape, bytes);
    let wide: Vec<f32> = state.to_f64().iter().map(|x| *x as f32).collect();
    let pushed = Problem {
        gate: vec![0.0; problem.gate.len()],
        beta: vec![1.0; problem.beta.len()],
        k: problem
            .k
            .iter()
            .enumerate()
            .map(|(at, _)| if at % KEY_DIM == 1 { 0.5 } else { 0.0 })
            .collect(),
        v: vec![60_000.0; problem.v.len()],
        s: wide,
        ..problem
    };
    let outputs = pushed.run(PLAIN, state);
    let (o, s) = pushed.by_hand(PLAIN);
    let (observed, read) = (value(&outputs, "s"), value(&outputs, "o"));
    let mut stopped = 0;
    for (at, s) in s.iter().enumerate() {
        assert_eq!(observed[at], s.clamp(-65504.0, 65504.0));
        stopped += usize::from(s.abs() > 65504.0);
    }
    assert!(stopped > 0, "nothing overflows");
    assert!(
        o.iter().zip(read).any(|(a, b)| (a - b).abs() > 1.0),
        "the output reads what is stored"
    );
    let q = pushed.key(PLAIN, &pushed.q, 0, 0, true);
    let own = 2 * VALUE_HEADS * VALUE_DIM * KEY_DIM;
    let first: f64 = (0..KEY_DIM).map(|i| SCALE * observed[own + i] * q[i]).sum();
    assert!((read[0] - first).abs() <= 1e-9 * first.abs(), "{} and {first}", read[0]);
    let least = 2f64.powi(-14);
    let stored: f64 =
        (0..KEY_DIM).map(|i| SCALE * observed[own + i].abs().max(least) * q[i].abs()).sum();
    let magnitude = magnitude(&outputs, "o", "stored")[0];
    assert!((magnitude - stored).abs() <= 1e-9 * stored, "{magnitude} and {stored}");
}

#[test]
fn a_row_of_which_everything_is_too_large_stops_as_well() {
    let problem = Problem::draw(PLAIN);
    let shape = [SLOTS, VALUE_HEADS, VALUE_DIM, KEY_DIM].map(|extent| extent as u64).to_vec();
    let bytes = [0xff, 0x7b].repeat(problem.s.len());
    let state = Logical::from_bytes(DType::F16, shape, bytes);
    let pushed = Problem {
        gate: vec![0.0; problem.gate.len()],
        beta: vec![1.0; problem.beta.len()],
        k: vec![0.25; problem.k.len()],
        v: vec![1e7; problem.v.len()],
        s: vec![65504.0; problem.s.len()],
        ..problem
    };
    let outputs = pushed.run(PLAIN, state);
    let (_, s) = pushed.by_hand(PLAIN);
    let mut stopped = 0;
    for (observed, s) in value(&outputs, "s").iter().zip(s) {
        assert_eq!(*observed, s.clamp(-65504.0, 65504.0));
        stopped += usize::from(s > 65504.0);
    }
    assert!(stopped >= VALUE_DIM * KEY_DIM, "{stopped}: whole rows overflow");
}

#[test]
fn a_walk_of_roundings_to_f16_is_as_much_longer_as_its_steps() {
    let problem = Problem::draw(PLAIN);
    let walk = |state: Logical| measure(&problem.run(PLAIN, state), "s", "rounding_walk").to_vec();
    let shape = [SLOTS, VALUE_HEADS, VALUE_DIM, KEY_DIM].map(|extent| extent as u64).to_vec();
    let narrow = Logical::from_bytes(DType::F16, shape, vec![0; 2 * problem.s.len()]);
    let (of_f32, of_f16) = (walk(problem.state()), walk(narrow));
    assert!(of_f32.iter().any(|walk| *walk > 0.0));
    for (wide, narrow) in of_f32.iter().zip(&of_f16) {
        assert_eq!(*narrow, wide * 8192.0, "2⁻¹¹ for 2⁻²⁴");
    }
}
