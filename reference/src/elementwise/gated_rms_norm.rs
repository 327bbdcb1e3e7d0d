//! RMS norm, weight and gate in f64.
//!
//! ```text
//! n = x / √(mean x² + ε)      y = n · (w or 1 + w) · φ(z),   φ(z) = z·σ(z) or σ(z)
//! ```
//!
//! Magnitudes: `norm`, in units of 2⁻²⁴, the norm's, the exponential's and the products' roundings;
//! `rounded`, where n is rounded to the type of x, what one unit of that type does to y.

use crate::{Expected, Inputs, Outputs};
use contracts::dtype::DType;

/// Reads x, z `[rows,D]`, w `[D]`, the scalar `eps`, the dtype `io` and the options `gate`, `weight`,
/// `round_point` and `wide_out`. Returns `out` and, with `wide_out: f32`, `out_f32`, `[rows,D]`.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract.
pub fn gated_rms_norm(inputs: &Inputs) -> Outputs {
    let [x, z, w] = ["x", "z", "w"].map(|tensor| inputs.tensor(tensor).to_f64());
    let channels = w.len();
    let eps = inputs.scalar("eps");
    let offset = if inputs.word("weight") == "one_plus" { 1.0 } else { 0.0 };
    let gate: fn(f64) -> f64 = match inputs.word("gate") {
        "silu" => |z| z * sigmoid(z),
        "sigmoid" => sigmoid,
        other => panic!("option `gate` is `{other}`; the reference knows silu and sigmoid"),
    };
    let rounds_norm = inputs.word("round_point") == "after_norm";
    // Below the smallest normal number every rounding is as large as that one's.
    let least = match inputs.dtype("io") {
        DType::F16 => libm::exp2(-14.0),
        _ => libm::exp2(-126.0),
    };
    let units = libm::ceil(libm::log2(channels.max(1) as f64)) + 8.0 + 4.0;
    let (mut value, mut norm, mut rounded) = (Vec::new(), Vec::new(), Vec::new());
    for (x, z) in x.chunks_exact(channels.max(1)).zip(z.chunks_exact(channels.max(1))) {
        let mean: f64 = x.iter().map(|x| x * x).sum::<f64>() / channels as f64;
        let inverse = 1.0 / libm::sqrt(mean + eps);
        for ((x, z), w) in x.iter().zip(z).zip(&w) {
            let (normed, gain) = (x * inverse, (offset + w) * gate(*z));
            value.push(normed * gain);
            norm.push(units * (normed * gain).abs());
            rounded.push(if rounds_norm { normed.abs().max(least) * gain.abs() } else { 0.0 });
        }
    }
    let expected = || Expected::Real {
        value: value.clone(),
        magnitudes: vec![("norm", norm.clone()), ("rounded", rounded.clone())],
        measures: Vec::new(),
    };
    let mut tensors = vec![("out", expected())];
    if inputs.word("wide_out") == "f32" {
        tensors.push(("out_f32", expected()));
    }
    Outputs { tensors }
}

fn sigmoid(z: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-z))
}
