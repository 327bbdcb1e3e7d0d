//! The gated norm against its definition, on rows whose root is a whole number, with its magnitudes.

use crate::gdn_inputs::{f32_tensor, magnitude, value};
use contracts::dtype::DType;
use reference::{Inputs, Outputs, reference};

/// Rows of five numbers; with ε = 3 the root of the mean square is 2, 3 and 1/√3 of nothing at all.
const X: [[f32; 5]; 3] =
    [[1.0, -1.0, 1.0, -1.0, 1.0], [2.0, 4.0, -1.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]];
const ROOTS: [f64; 3] = [2.0, 3.0, 1.732_050_807_568_877_2];
const Z: [f32; 5] = [-2.0, 0.5, 3.0, -0.25, 8.0];
const W: [f32; 5] = [0.5, -0.75, 2.0, -1.0, 1.5];

fn run(io: DType, words: [(&str, &str); 4]) -> Outputs {
    let rows = X.len();
    let inputs = Inputs {
        tensors: vec![
            ("x".to_owned(), f32_tensor(&[rows, 5], X.as_flattened())),
            ("z".to_owned(), f32_tensor(&[rows, 5], &Z.repeat(rows))),
            ("w".to_owned(), f32_tensor(&[5], &W)),
        ],
        dtypes: vec![("io".to_owned(), io)],
        scalars: vec![("eps".to_owned(), 3.0)],
        options: words.map(|(name, word)| (name.to_owned(), word.to_owned())).to_vec(),
        ..Inputs::default()
    };
    reference("gated_rms_norm").expect("it is registered")(&inputs)
}

/// σ by the hyperbolic tangent, which the reference does not use.
fn sigmoid(z: f64) -> f64 {
    (1.0 + (z / 2.0).tanh()) / 2.0
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-13 * b.abs()
}

#[test]
fn a_gated_norm_is_its_definition_in_every_form() {
    for io in [DType::F32, DType::F16, DType::BF16] {
        for gate in ["silu", "sigmoid"] {
            for weight in ["plain", "one_plus"] {
                for round_point in ["end", "after_norm"] {
                    for wide_out in ["none", "f32"] {
                        let words = [
                            ("gate", gate),
                            ("weight", weight),
                            ("round_point", round_point),
                            ("wide_out", wide_out),
                        ];
                        agrees(io, words);
                    }
                }
            }
        }
    }
}

fn agrees(io: DType, words: [(&str, &str); 4]) {
    let outputs = run(io, words);
    let [gate, weight, round_point, wide_out] = words.map(|(_, word)| word);
    assert_eq!(outputs.tensor("out_f32").is_some(), wide_out == "f32");
    let least = if io == DType::F16 { 2f64.powi(-14) } else { 2f64.powi(-126) };
    for name in ["out", "out_f32"] {
        if outputs.tensor(name).is_none() {
            continue;
        }
        let [norm, rounded] = ["norm", "rounded"].map(|part| magnitude(&outputs, name, part));
        for (at, (y, x)) in value(&outputs, name).iter().zip(X.as_flattened()).enumerate() {
            let (normed, z) = (f64::from(*x) / ROOTS[at / 5], f64::from(Z[at % 5]));
            let phi = if gate == "silu" { z * sigmoid(z) } else { sigmoid(z) };
            let w = f64::from(W[at % 5]) + if weight == "one_plus" { 1.0 } else { 0.0 };
            assert!(near(*y, normed * w * phi), "{words:?} [{at}]: {y}");
            // log2 5 rounded up, eight for the norm, four for the gate and the products.
            assert!(near(norm[at], (3.0 + 8.0 + 4.0) * (normed * w * phi).abs()));
            let of_norm = if round_point == "end" { 0.0 } else { normed.abs().max(least) };
            assert!(near(rounded[at], of_norm * (w * phi).abs()), "{words:?} [{at}]");
        }
    }
}
