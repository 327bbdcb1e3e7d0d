//! What a fused step's gates and norms may be off by, by the definitions: how a state moves with the
//! logarithms of its gates and with the length of its key, and what a norm of the output makes of errors.

use crate::draws::Draws;
use crate::gdn_inputs::{f32_tensor, magnitude};
use reference::linear_attention::norms::{OutputErrors, gate_output};
use reference::{Inputs, reference};

const KEY_DIM: usize = 4;
const VALUE_DIM: usize = 3;
const SCALE: f64 = -0.375;
const EPS: f64 = 0.125;

fn near(what: &str, observed: f64, expected: f64) {
    let allowed = 1e-11 * expected.abs() + 1e-300;
    assert!((observed - expected).abs() <= allowed, "{what}: {observed} where {expected} is right");
}

/// Two heads of one row, each with its key head.
struct Step {
    rows: [Vec<f64>; 3],
    /// a, b, dt_bias and a_log of each head.
    gates: [Vec<f64>; 4],
    s: Vec<f64>,
}

fn f32s(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

impl Step {
    fn draw() -> Step {
        let mut draws = Draws::new(17);
        Step {
            rows: [
                draws.normals(2 * KEY_DIM),
                draws.unit_rows(2, KEY_DIM, 0.5),
                draws.normals(2 * VALUE_DIM),
            ],
            gates: [
                draws.uniforms(2, -2.0, 2.0),
                draws.uniforms(2, -2.0, 2.0),
                draws.uniforms(2, -1.0, 1.0),
                draws.uniforms(2, -2.0, 0.5),
            ],
            s: draws.normals(2 * VALUE_DIM * KEY_DIM),
        }
    }

    fn inputs(&self, norm: &str) -> Inputs {
        let tensor = |name: &str, shape: &[usize], values: &[f64]| {
            (name.to_owned(), f32_tensor(shape, &f32s(values)))
        };
        let [q, k, v] = &self.rows;
        let [a, b, dt_bias, a_log] = &self.gates;
        let words = [
            ("head_map", "block"),
            ("gate_form", "raw"),
            ("alpha_clamp", "none"),
            ("qk_norm", norm),
            ("output_gate", "none"),
            ("snapshot", "none"),
        ];
        Inputs {
            tensors: vec![
                tensor("q", &[1, 2, KEY_DIM], q),
                tensor("k", &[1, 2, KEY_DIM], k),
                tensor("v", &[1, 2, VALUE_DIM], v),
                tensor("a", &[1, 2], a),
                tensor("b", &[1, 2], b),
                tensor("dt_bias", &[2], dt_bias),
                tensor("a_log", &[2], a_log),
                tensor("s", &[1, 2, VALUE_DIM, KEY_DIM], &self.s),
            ],
            scalars: [("scale", SCALE), ("qk_eps", EPS), ("norm_eps", EPS)]
                .map(|(name, value)| (name.to_owned(), value))
                .to_vec(),
            options: words.map(|(name, word)| (name.to_owned(), word.to_owned())).to_vec(),
            dims: vec![("slots".to_owned(), 1)],
            lists: vec![("slot".to_owned(), vec![0])],
            ..Inputs::default()
        }
    }
}

#[test]
fn gates_and_norms_err_as_the_state_moves_with_them() {
    for (norm, norm_units) in [("none", 0.0), ("l2", 10.0), ("rms_scaled", 10.0)] {
        let step = Step::draw();
        let outputs = reference("gdn_decode").expect("it is registered")(&step.inputs(norm));
        let of = |tensor: &str, name: &str, at: usize| magnitude(&outputs, tensor, name)[at];
        for head in 0..2 {
            let row = |which: usize, length: f64| -> Vec<f64> {
                let x = &step.rows[which][head * KEY_DIM..(head + 1) * KEY_DIM];
                let square: f64 = x.iter().map(|x| x * x).sum();
                let factor = match norm {
                    "none" => 1.0,
                    "l2" => (square + EPS).sqrt().recip(),
                    _ => length * (square / KEY_DIM as f64 + EPS).sqrt().recip(),
                };
                x.iter().map(|x| x * factor).collect()
            };
            let (q, k) = (row(0, 0.25), row(1, 0.5));
            let scale = if norm == "rms_scaled" { 1.0 } else { SCALE.abs() };
            let [a, b, dt_bias, a_log] = [0, 1, 2, 3].map(|which| step.gates[which][head]);
            let (rate, softplus) = (a_log.exp(), (1.0 + (a + dt_bias).exp()).ln());
            let (alpha, beta) = ((-rate * softplus).exp(), 1.0 / (1.0 + (-b).exp()));
            // Units that α and β may be off by, relatively.
            let (of_alpha, of_beta) = (rate * (2.0 + 8.0 * softplus) + 4.0, 8.0);
            for channel in 0..VALUE_DIM {
                let output = head * VALUE_DIM + channel;
                let s = &step.s[output * KEY_DIM..(output + 1) * KEY_DIM];
                let v = step.rows[2][output].abs();
                let recalled: f64 = s.iter().zip(&k).map(|(s, k)| (alpha * s * k).abs()).sum();
                let (mut gates, mut norms, mut paths) = (0.0, 0.0, 0.0);
                for key in 0..KEY_DIM {
                    let at = output * KEY_DIM + key;
                    let what = format!("{norm} head {head} channel {channel} key {key}");
                    let by_alpha = alpha * s[key].abs() + beta * recalled * k[key].abs();
                    let by_beta = beta * (v + recalled) * k[key].abs();
                    let by_gates = of_alpha * by_alpha + of_beta * by_beta;
                    near(&what, of("s", "gates", at), by_gates);
                    near(&what, of("s", "norms", at), 2.0 * norm_units * by_beta);
                    gates += by_gates * q[key].abs();
                    norms += 2.0 * norm_units * by_beta * q[key].abs();
                    paths += (alpha * s[key].abs() + by_beta) * q[key].abs();
                }
                let what = format!("{norm} head {head} channel {channel}");
                near(&what, of("o", "paths", output), scale * paths);
                near(&what, of("o", "gates", output), scale * gates);
                near(&what, of("o", "norms", output), scale * (norms + norm_units * paths));
            }
        }
    }
}

/// y of one head.
fn normed(o: &[f64], w: &[f64], z: &[f64]) -> Vec<f64> {
    let mean = o.iter().map(|o| o * o).sum::<f64>() / o.len() as f64;
    let inverse = (mean + EPS).sqrt().recip();
    (0..o.len()).map(|at| o[at] * inverse * w[at] * z[at] / (1.0 + (-z[at]).exp())).collect()
}

#[test]
fn a_norm_of_the_output_carries_errors_through_its_derivative() {
    const COUNT: usize = 6;
    let mut draws = Draws::new(3);
    let (o, w, z) = (draws.normals(COUNT), draws.normals(COUNT), draws.normals(COUNT));
    let mut part = || draws.uniforms(COUNT, 1e3, 1e4);
    let before = OutputErrors { paths: part(), gates: part(), norms: part(), stored: part() };
    let (mut y, mut after) = (o.clone(), before.clone());
    gate_output(&mut y, &mut after, &w, &z, EPS);
    let expected = normed(&o, &w, &z);
    let unit = 2f64.powi(-24);
    let total = |at: usize| {
        unit * (8.0 * before.paths[at] + before.gates[at] + before.norms[at])
            + 2f64.powi(-11) * before.stored[at]
    };
    let mean: f64 = o.iter().map(|o| o * o).sum::<f64>() / COUNT as f64;
    let inverse = (mean + EPS).sqrt().recip();
    let all: f64 = (0..COUNT).map(|at| total(at) * total(at)).sum::<f64>() / COUNT as f64;
    let lost = all.sqrt() * inverse;
    assert!(lost > 0.5, "errors of the state's type are beyond the norm: {lost}");
    // Then the direction is lost: any two results are as near as two rows of a norm are.
    for at in 0..COUNT {
        near("y", y[at], expected[at]);
        let gain = (w[at] * z[at] / (1.0 + (-z[at]).exp())).abs();
        near("paths", after.paths[at], 2.0 * (COUNT as f64).sqrt() * gain / (8.0 * unit));
        // Six elements: three steps of a sum, and eight; four for the gate.
        near("norms", after.norms[at], (3.0 + 8.0 + 4.0) * y[at].abs());
        assert_eq!((after.gates[at], after.stored[at]), (0.0, 0.0));
    }

    let small = OutputErrors { stored: draws.uniforms(COUNT, 1.0, 10.0), ..before };
    let (mut y, mut after) = (o.clone(), small.clone());
    gate_output(&mut y, &mut after, &w, &z, EPS);
    let total = |at: usize| {
        unit * (8.0 * small.paths[at] + small.gates[at] + small.norms[at])
            + 2f64.powi(-11) * small.stored[at]
    };
    let all: f64 = (0..COUNT).map(|at| total(at) * total(at)).sum::<f64>() / COUNT as f64;
    let kept = 1.0 - all.sqrt() * inverse;
    assert!(kept > 0.9, "errors are small beside the norm");
    for (name, before, after, own) in [
        ("paths", &small.paths, &after.paths, 0.0),
        ("gates", &small.gates, &after.gates, 0.0),
        ("norms", &small.norms, &after.norms, 15.0),
        ("stored", &small.stored, &after.stored, 0.0),
    ] {
        // What the mean square takes from the errors of all elements.
        let share = (0..COUNT).map(|at| (o[at].abs() + total(at)) * before[at]).sum::<f64>()
            * inverse
            * inverse
            / COUNT as f64;
        for at in 0..COUNT {
            let size = inverse * (w[at] * z[at] / (1.0 + (-z[at]).exp())).abs();
            let carried = size * (before[at] + o[at].abs() * share) / kept.powi(3);
            near(name, after[at], carried + own * y[at].abs());
        }
    }
}
