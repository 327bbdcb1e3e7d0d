//! The gates of the gated delta rule in their three forms, with what rounding may do to each.
//! Softplus is exact for every argument: no threshold, no overflow (linear_attention §4).
//!
//! ```text
//! log:   α = e^g           alpha: α given           raw: g = −e^a_log · ln(1 + e^(a + dt_bias)), β = σ(b)
//! ```
//!
//! α, however it came, is then clamped where the call says so.

/// Gates of some rows and heads, and how far an accurate f32 evaluation may miss them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gates {
    /// ln α, −∞ where the state is forgotten.
    pub log_decay: Vec<f64>,
    /// β.
    pub beta: Vec<f64>,
    /// Relative error of α beyond that of one exponential, in units of 2⁻²⁴.
    pub alpha_error: Vec<f64>,
    /// Relative error of β, in units of 2⁻²⁴.
    pub beta_error: Vec<f64>,
}

impl Gates {
    /// From g and β.
    pub fn log(g: Vec<f64>, beta: Vec<f64>) -> Gates {
        let exact = vec![0.0; beta.len()];
        Gates { log_decay: g, beta, alpha_error: exact.clone(), beta_error: exact }
    }

    /// From α = e^g and β.
    pub fn alpha(alpha: &[f64], beta: Vec<f64>) -> Gates {
        Gates::log(alpha.iter().map(|alpha| libm::log(*alpha)).collect(), beta)
    }

    /// From a and b, `[rows, heads]`, and dt_bias and a_log, `[heads]`.
    pub fn raw(a: &[f64], b: &[f64], dt_bias: &[f64], a_log: &[f64]) -> Gates {
        let mut gates = Gates::default();
        let heads = dt_bias.len();
        for (at, (a, b)) in a.iter().zip(b).enumerate() {
            let (rate, softplus) =
                (libm::exp(a_log[at % heads]), softplus(a + dt_bias[at % heads]));
            gates.log_decay.push(-rate * softplus);
            // |Δg| ≤ A (2⁻²³ + 8·2⁻²⁴ sp), and the exponential's own error.
            gates.alpha_error.push(rate * (2.0 + 8.0 * softplus) + 4.0);
            gates.beta.push(1.0 / (1.0 + libm::exp(-b)));
            gates.beta_error.push(8.0);
        }
        gates
    }

    /// Brings every α between the two; NaN stays.
    pub fn clamped(mut self, low: f64, high: f64) -> Gates {
        let (least, most) = (libm::log(low), libm::log(high));
        for log_decay in &mut self.log_decay {
            // `max` and `min` would lose a NaN.
            if *log_decay < least {
                *log_decay = least;
            }
            if *log_decay > most {
                *log_decay = most;
            }
        }
        self
    }
}

/// ln(1 + e^p).
pub fn softplus(p: f64) -> f64 {
    p.max(0.0) + if p.is_nan() { p } else { libm::log1p(libm::exp(-p.abs())) }
}
