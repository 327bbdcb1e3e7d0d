//! What the kernels of the gated delta rule share: their row tensors as f64 and their counts of heads.

use super::gated_delta_rule::{HeadMap, Heads, Rows};
use crate::Inputs;

/// The row tensors as f64.
pub(super) struct GatedDeltaInputs {
    pub(super) heads: Heads,
    pub(super) slots: usize,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    g: Vec<f64>,
    beta: Vec<f64>,
    scale: f64,
}

impl GatedDeltaInputs {
    /// Reads q, k, v, beta, `scale`, `slots` and `head_map`; head counts come from the shapes. The
    /// logarithm of the decay, `[rows,Hv]`, is the caller's.
    pub(super) fn read(inputs: &Inputs, log_decay: Vec<f64>) -> GatedDeltaInputs {
        GatedDeltaInputs::scaled_by(inputs, log_decay, "scale")
    }

    /// As `read`, for decays of key channels: g `[rows,Hv,Dk]`, held between the law's bound and zero,
    /// and the scalar `q_output_scale`.
    pub(super) fn of_key_channels(inputs: &Inputs) -> GatedDeltaInputs {
        let least = match inputs.word("gate_law") {
            "softplus" => f64::NEG_INFINITY,
            "lb_sigmoid" => -5.0,
            other => {
                panic!(
                    "option `gate_law` is `{other}`; the reference knows softplus and lb_sigmoid"
                )
            }
        };
        // NaN stays: `max` and `min` would lose it.
        let held = |g: f64| {
            if g < least {
                least
            } else if g > 0.0 {
                0.0
            } else {
                g
            }
        };
        let log_decay = inputs.tensor("g").to_f64().into_iter().map(held).collect();
        GatedDeltaInputs::scaled_by(inputs, log_decay, "q_output_scale")
    }

    fn scaled_by(inputs: &Inputs, log_decay: Vec<f64>, scale: &str) -> GatedDeltaInputs {
        let extent = |tensor: &str, axis: usize| inputs.tensor(tensor).shape[axis] as usize;
        let map = match inputs.word("head_map") {
            "block" => HeadMap::Block,
            "cyclic" => HeadMap::Cyclic,
            other => panic!("option `head_map` is `{other}`; the reference knows block and cyclic"),
        };
        GatedDeltaInputs {
            heads: Heads {
                key_heads: extent("q", 1),
                value_heads: extent("v", 1),
                key_dim: extent("q", 2),
                value_dim: extent("v", 2),
                map,
            },
            slots: usize::try_from(inputs.dim("slots")).expect("dim `slots` is not negative"),
            q: inputs.tensor("q").to_f64(),
            k: inputs.tensor("k").to_f64(),
            v: inputs.tensor("v").to_f64(),
            g: log_decay,
            beta: inputs.tensor("beta").to_f64(),
            scale: inputs.scalar(scale),
        }
    }

    /// The view the recurrence takes.
    pub(super) fn rows(&self) -> Rows<'_> {
        Rows { q: &self.q, k: &self.k, v: &self.v, g: &self.g, beta: &self.beta, scale: self.scale }
    }
}
