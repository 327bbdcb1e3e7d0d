//! The references of the kernels with a decay for each key channel, against closed forms and definitions
//! worked out here: every option word, asymmetric sizes, magnitudes and measures.

use crate::draws::Draws;
use crate::gdn_inputs::{Gdn, Kda, f32_tensor, magnitude, measure, value};
use reference::{Inputs, Outputs, reference};

const EPS: f64 = 1e-6;

fn run(kernel: &str, inputs: &Inputs) -> Outputs {
    reference(kernel).expect("registered")(inputs)
}

fn option(name: &str, word: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), word.to_owned())]
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * b.abs()
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

/// Seven rows of two key heads of 3 channels and four value heads of 2.
fn kda(head_map: &'static str) -> Kda {
    let mut draws = Draws::new(11);
    Kda(Gdn {
        key_heads: 2,
        value_heads: 4,
        key_dim: 3,
        value_dim: 2,
        slots: 2,
        head_map,
        q: narrow(&draws.unit_rows(7 * 2, 3, 0.0)),
        k: narrow(&draws.unit_rows(7 * 2, 3, 0.3)),
        v: narrow(&draws.normals(7 * 4 * 2)),
        g: narrow(&draws.uniforms(7 * 4 * 3, -2.0, 0.0)),
        beta: narrow(&draws.uniforms(7 * 4, 0.1, 0.9)),
        s: narrow(&draws.normals(2 * 4 * 2 * 3)),
        scale: 0.5,
    })
}

/// S, N, o and its N of one value head and value channel, as the equations have them.
struct Channel {
    s: Vec<f64>,
    paths: Vec<f64>,
    o: Vec<f64>,
    o_paths: Vec<f64>,
}

fn channel(kda: &Kda, key_head: usize, head: usize, value: usize, slot: usize) -> Channel {
    let gdn = &kda.0;
    let (dk, dv) = (gdn.key_dim, gdn.value_dim);
    let first = ((slot * gdn.value_heads + head) * dv + value) * dk;
    let mut s: Vec<f64> = gdn.s[first..first + dk].iter().map(|s| f64::from(*s)).collect();
    let mut paths: Vec<f64> = s.iter().map(|s| s.abs()).collect();
    // M, by which N goes.
    let mut read = paths.clone();
    let (mut o, mut o_paths) = (Vec::new(), Vec::new());
    for row in 0..7 {
        let at = |of: &[f32], heads: usize, head: usize, dim: usize, c: usize| {
            f64::from(of[(row * heads + head) * dim + c])
        };
        let k = |c| at(&gdn.k, gdn.key_heads, key_head, dk, c);
        let q = |c| at(&gdn.q, gdn.key_heads, key_head, dk, c);
        let a = |c| libm::exp(at(&gdn.g, gdn.value_heads, head, dk, c));
        let beta = at(&gdn.beta, gdn.value_heads, head, 1, 0);
        let v = at(&gdn.v, gdn.value_heads, head, dv, value);
        let recalled: f64 = (0..dk).map(|c| a(c) * s[c] * k(c)).sum();
        let of_s: f64 = (0..dk).map(|c| (a(c) * s[c] * k(c)).abs()).sum();
        let most: f64 = (0..dk).map(|c| (a(c) * read[c] * k(c)).abs()).sum();
        for c in 0..dk {
            s[c] = a(c) * s[c] + beta * (v - recalled) * k(c);
            read[c] = a(c) * read[c] + beta * (v.abs() + of_s) * k(c).abs();
            paths[c] = a(c) * paths[c] + beta * (v.abs() + most) * k(c).abs();
        }
        o.push(0.5 * (0..dk).map(|c| s[c] * q(c)).sum::<f64>());
        o_paths.push(0.5 * (0..dk).map(|c| paths[c] * q(c).abs()).sum::<f64>());
    }
    Channel { s, paths, o, o_paths }
}

#[test]
fn every_channel_decays_by_itself_in_value_and_in_magnitude() {
    for head_map in ["block", "cyclic"] {
        let kda = kda(head_map);
        let outputs = kda.chunk("softplus", &[7], &[1]);
        for head in 0..4 {
            let key_head = if head_map == "block" { head / 2 } else { head % 2 };
            for channel_of in 0..2 {
                let expected = channel(&kda, key_head, head, channel_of, 1);
                let first = ((4 + head) * 2 + channel_of) * 3;
                for c in 0..3 {
                    assert!(near(value(&outputs, "s")[first + c], expected.s[c]));
                    let paths = magnitude(&outputs, "s", "paths")[first + c];
                    assert!(near(paths, expected.paths[c]));
                }
                for row in 0..7 {
                    let at = (row * 4 + head) * 2 + channel_of;
                    assert!(near(value(&outputs, "o")[at], expected.o[row]), "{head_map} {row}");
                    assert!(near(magnitude(&outputs, "o", "paths")[at], expected.o_paths[row]));
                }
            }
        }
    }
}

#[test]
fn what_grows_with_the_decay_goes_by_the_largest_and_the_slowest_channel() {
    let kda = kda("block");
    let outputs = kda.chunk("softplus", &[7], &[1]);
    for head in 0..4 {
        let of = |c: usize| -> Vec<f64> {
            (0..7).map(|row| f64::from(kda.0.g[(row * 4 + head) * 3 + c])).collect()
        };
        let gamma = (0..3).map(|c| -of(c).iter().sum::<f64>()).fold(0.0, f64::max);
        assert!(near(measure(&outputs, "s", "one_plus_gamma_32")[4 + head], 1.0 + gamma / 32.0));
        let paths = magnitude(&outputs, "s", "paths")[(4 + head) * 6];
        assert!(near(magnitude(&outputs, "s", "paths_gamma")[(4 + head) * 6], paths * gamma));
        let kept = |c: usize| of(c).iter().map(|g| libm::exp(2.0 * g)).sum::<f64>() / 7.0;
        let slowest = (0..3).map(kept).fold(0.0, f64::max);
        let betas: Vec<f64> = (0..7).map(|row| f64::from(kda.0.beta[row * 4 + head])).collect();
        let lost = betas.iter().map(|beta| beta * (2.0 - beta)).sum::<f64>() / 7.0 / 3.0;
        let rows = (1.0 / (1.0 - slowest * (1.0 - lost))).min(7.0);
        let walk = 0.42 * 2f64.powi(-24) * rows.sqrt();
        assert!(near(measure(&outputs, "s", "rounding_walk")[4 + head], walk));
    }
}

#[test]
fn a_prefill_is_as_many_steps_and_starts_from_its_slot_or_from_nothing() {
    let kda = kda("cyclic");
    let whole = kda.chunk("lb_sigmoid", &[7], &[0]);
    let mut states = kda.clone();
    for row in 0..7 {
        let step = Kda(Gdn { s: states.0.s.clone(), ..kda.rows(row..row + 1).0 });
        let outputs = step.decode("lb_sigmoid", &[0]);
        let error = value(&outputs, "o").iter().zip(&value(&whole, "o")[row * 8..]);
        assert!(error.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) < 1e-6);
        states.0.s[..24].copy_from_slice(&narrow(&value(&outputs, "s")[..24]));
    }
    assert!(value(&whole, "s")[24..].iter().all(|s| *s == 0.0), "nobody's slot");
    let mut cleared = kda.clone();
    cleared.0.s.fill(0.0);
    let zero = kda.chunk_from("zero", "softplus", &[7], &[0]);
    assert_eq!(zero.tensors, cleared.chunk("softplus", &[7], &[0]).tensors);
    assert_ne!(zero.tensors, kda.chunk("softplus", &[7], &[0]).tensors);
    let skipped = kda.chunk("softplus", &[2, 5], &[-1, 1]);
    assert!(value(&skipped, "o")[..16].iter().all(|o| *o == 0.0), "a pad's rows");
    assert!(value(&skipped, "o")[16..].iter().any(|o| *o != 0.0));
}

fn gate(law: &str, bound: f64, f: &[f32]) -> Outputs {
    let inputs = Inputs {
        tensors: vec![
            ("f".to_owned(), f32_tensor(&[1, 2, 2], f)),
            ("dt_bias".to_owned(), f32_tensor(&[2, 2], &[0.0, 1.0, -2.0, 0.0])),
            ("a_log".to_owned(), f32_tensor(&[2], &[0.0, 1.0])),
        ],
        scalars: vec![("lower_bound".to_owned(), bound)],
        options: option("gate_law", law),
        ..Inputs::default()
    };
    run("kda_gate", &inputs)
}

#[test]
fn the_forget_gate_is_its_law_at_points_known_by_heart() {
    let e = std::f64::consts::E;
    let f = [0.0, 39.0, 2.0, -100.0];
    let softplus = gate("softplus", -5.0, &f);
    let ln2 = std::f64::consts::LN_2;
    // Softplus of 0, 40, 0 and −100, at the rates 1, 1, e and e.
    for (g, expected) in value(&softplus, "g").iter().zip([ln2, 40.0, e * ln2, 0.0]) {
        assert!((g + expected).abs() < 1e-7 * (1.0 + expected), "{g}");
    }
    let law = magnitude(&softplus, "g", "law");
    for (law, expected) in
        law.iter().zip([2.0 + 8.0 * ln2, 2.0 + 320.0, e * (2.0 + 8.0 * ln2), 2.0 * e])
    {
        assert!((law - expected).abs() < 1e-6 * expected, "{law}");
    }
    for bound in [-5.0, -1.0] {
        // p is 0, 40, 0 and −100: half the bound, all of it, half, none.
        let bounded = gate("lb_sigmoid", bound, &f);
        for (g, share) in value(&bounded, "g").iter().zip([0.5, 1.0, 0.5, 0.0]) {
            assert!((g - bound * share).abs() < 1e-12, "{g}");
        }
        let law = magnitude(&bounded, "g", "law");
        assert!(near(law[0], -bound * 4.0) && near(law[2], -bound * 4.0), "x is 0");
        assert!((law[1] + bound * 8.0).abs() < 1e-12, "the slope is gone");
        assert!(law[3] > 0.0 && law[3] < 1e-100);
    }
    let slope = gate("lb_sigmoid", -5.0, &[1.0, 39.0, 2.0, 0.0]);
    let sigmoid = 1.0 / (1.0 + libm::exp(-1f64));
    assert!(near(value(&slope, "g")[0], -5.0 * sigmoid));
    let expected = 5.0 * sigmoid * (8.0 + 6.0 / (1.0 + e));
    assert!(near(magnitude(&slope, "g", "law")[0], expected));
}

#[test]
fn rows_are_over_their_length_with_eps_added() {
    // Rows (3, 4)·10^-3, zero, (0, −2) and (5, 12).
    let q = [3e-3, 4e-3, 0.0, 0.0];
    let k = [0.0, -2.0, 5.0, 12.0];
    for (place, names) in [("apart", ["q_out", "k_out"]), ("in_place", ["q", "k"])] {
        let inputs = Inputs {
            tensors: vec![
                ("q".to_owned(), f32_tensor(&[1, 2, 2], &q)),
                ("k".to_owned(), f32_tensor(&[1, 2, 2], &k)),
            ],
            scalars: vec![("eps".to_owned(), EPS)],
            options: option("place", place),
            ..Inputs::default()
        };
        let outputs = run("kda_qk_norm", &inputs);
        assert_eq!(outputs.tensors.len(), 2);
        let short = (25e-6f64 + EPS).sqrt();
        let long = (169.0f64 + EPS).sqrt();
        for (name, expected) in [
            (names[0], [3e-3 / short, 4e-3 / short, 0.0, 0.0]),
            (names[1], [0.0, -2.0 / (4.0 + EPS).sqrt(), 5.0 / long, 12.0 / long]),
        ] {
            for (y, expected) in value(&outputs, name).iter().zip(expected) {
                assert!((y - expected).abs() <= 1e-7 * expected.abs(), "{place} {name}: {y}");
            }
            let lengths = magnitude(&outputs, name, "length");
            assert!(lengths.iter().zip(value(&outputs, name)).all(|(m, y)| *m == y.abs()));
        }
        // (3, 4)·10^-3 is 5·10^-3 long: 0.98 with eps added, 1 with a floor, 0.14 with an RMS.
        let y = &value(&outputs, names[0])[..2];
        assert!((libm::hypot(y[0], y[1]) - 0.980_58).abs() < 1e-5);
    }
}
