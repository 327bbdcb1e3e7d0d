//! Rows of q and of k over √(Σx² + ε): ε is added, so a short row shrinks and a row of zeros stays zero.

use super::norms::{QkNorm, normalised};
use crate::{Expected, Inputs, Outputs};

/// Reads q, k `[rows,heads,D]`, the scalar `eps` and the option `place`. Returns `q_out` and `k_out`, or q
/// and k themselves where they are written in place; each with the magnitude `length`, |y|.
///
/// # Panics
/// If a name is missing or the option is unknown.
pub fn kda_qk_norm(inputs: &Inputs) -> Outputs {
    let outputs = match inputs.word("place") {
        "apart" => ["q_out", "k_out"],
        "in_place" => ["q", "k"],
        other => panic!("option `place` is `{other}`; the reference knows apart and in_place"),
    };
    let unit = |name: &str| {
        let x = inputs.tensor(name);
        let dim = x.shape.last().map_or(1, |dim| *dim as usize);
        let value = normalised(QkNorm::L2, &x.to_f64(), dim, inputs.scalar("eps"), 1.0);
        let magnitudes = vec![("length", value.iter().map(|y| y.abs()).collect())];
        Expected::Real { value, magnitudes, measures: Vec::new() }
    };
    Outputs { tensors: outputs.into_iter().zip(["q", "k"].map(unit)).collect() }
}
