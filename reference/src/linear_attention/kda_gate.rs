//! Log decays of key channels from the forget gate, by either law (linear_attention §5).
//!
//! ```text
//! softplus:   g = −e^a_log · ln(1 + e^p)        p = f + dt_bias
//! lb_sigmoid: g = lower_bound · σ(e^a_log · p)
//! ```
//!
//! The magnitude `law` is how far an accurate f32 evaluation may miss, in units of 2⁻²⁴: of softplus
//! A(2 + 8 ln(1 + e^p)), a logarithm's absolute error and eight relative roundings; of the sigmoid eight
//! roundings of itself and six of its argument, through its slope.

use super::gates::softplus;
use crate::{Expected, Inputs, Outputs};

/// Reads f `[rows,H,D]`, dt_bias `[H,D]`, a_log `[H]`, the option `gate_law` and the scalar `lower_bound`.
/// Returns `g` `[rows,H,D]`.
///
/// # Panics
/// If a name is missing or the law is unknown.
pub fn kda_gate(inputs: &Inputs) -> Outputs {
    let (f, dt_bias) = (inputs.tensor("f").to_f64(), inputs.tensor("dt_bias").to_f64());
    let a_log = inputs.tensor("a_log").to_f64();
    let bound = inputs.scalar("lower_bound");
    let bounded = match inputs.word("gate_law") {
        "softplus" => false,
        "lb_sigmoid" => true,
        other => {
            panic!("option `gate_law` is `{other}`; the reference knows softplus and lb_sigmoid")
        }
    };
    let dim = dt_bias.len().checked_div(a_log.len()).unwrap_or(1).max(1);
    let (mut value, mut law) = (Vec::with_capacity(f.len()), Vec::with_capacity(f.len()));
    for (at, f) in f.iter().enumerate() {
        let channel = at % dt_bias.len();
        let (p, rate) = (f + dt_bias[channel], libm::exp(a_log[channel / dim]));
        if bounded {
            let x = rate * p;
            let sigmoid = 1.0 / (1.0 + libm::exp(-x));
            value.push(bound * sigmoid);
            let slope = 1.0 / (1.0 + libm::exp(x));
            law.push(bound.abs() * sigmoid * (8.0 + 6.0 * x.abs() * slope));
        } else {
            value.push(-rate * softplus(p));
            law.push(rate * (2.0 + 8.0 * softplus(p)));
        }
    }
    let g = Expected::Real { value, magnitudes: vec![("law", law)], measures: Vec::new() };
    Outputs { tensors: vec![("g", g)] }
}
