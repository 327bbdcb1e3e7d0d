//! The norms fused into the gated delta rule: of q and k before it, of its output after it.
//!
//! ```text
//! l2:         x̂ = x / √(Σx² + ε)
//! rms_scaled: x̂ = x / √(Σx²/D + ε) · c,   c = D^−½ for k, 1/D for q (which holds the output's scale)
//! output:     y = o / √(mean o² + ε) · w · z·σ(z)
//! ```
//!
//! The output's norm divides what errors o has by the size of o itself, so its magnitudes are o's
//! carried through the norm's derivative, not new ones.

/// The norm of q and k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// They come normalised.
    None,
    /// To unit length.
    L2,
    /// To unit RMS, then by constants.
    RmsScaled,
}

/// Units of 2⁻²⁴ by which the norm of a row of `dim` elements may miss, relatively (§7).
pub fn norm_error(dim: usize) -> f64 {
    libm::ceil(libm::log2(dim.max(1) as f64)) + 8.0
}

/// Each row of `dim` elements normalised; `length` is what rms_scaled multiplies by.
pub fn normalised(norm: QkNorm, x: &[f64], dim: usize, eps: f64, length: f64) -> Vec<f64> {
    if norm == QkNorm::None || dim == 0 {
        return x.to_vec();
    }
    x.chunks_exact(dim)
        .flat_map(|row| {
            let square: f64 = row.iter().map(|x| x * x).sum();
            let factor = match norm {
                QkNorm::L2 => 1.0 / libm::sqrt(square + eps),
                _ => length / libm::sqrt(square / dim as f64 + eps),
            };
            row.iter().map(move |x| x * factor)
        })
        .collect()
}

/// z·σ(z).
pub fn silu(z: f64) -> f64 {
    z / (1.0 + libm::exp(-z))
}

/// Largest errors of a head's outputs, by channel, each in its own unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputErrors {
    /// Multiples of 8 · 2⁻²⁴.
    pub paths: Vec<f64>,
    /// Multiples of 2⁻²⁴: gates computed from raw ones.
    pub gates: Vec<f64>,
    /// Multiples of 2⁻²⁴: norms.
    pub norms: Vec<f64>,
    /// Multiples of 2⁻¹¹: the state rounded to f16.
    pub stored: Vec<f64>,
}

const UNIT_F32: f64 = 1.0 / (1u64 << 24) as f64;
const UNIT_F16: f64 = 1.0 / (1u64 << 11) as f64;
/// The multiple of 2⁻²⁴ in which a kernel's outputs follow `paths`: κ_o of §0.3.
const PATHS_TIMES: f64 = 8.0;

/// Norm, weight and gate of one head: `o` becomes y, its errors become y's.
pub fn gate_output(o: &mut [f64], errors: &mut OutputErrors, w: &[f64], z: &[f64], eps: f64) {
    let count = o.len() as f64;
    let inverse = 1.0 / libm::sqrt(o.iter().map(|o| o * o).sum::<f64>() / count + eps);
    let error = |at: usize| {
        let units = PATHS_TIMES * errors.paths[at] + errors.gates[at] + errors.norms[at];
        UNIT_F32 * units + UNIT_F16 * errors.stored[at]
    };
    let all: Vec<f64> = (0..o.len()).map(error).collect();
    // The error against the norm itself: beyond one half the direction of o is lost.
    let lost = libm::sqrt(all.iter().map(|e| e * e).sum::<f64>() / count) * inverse;
    let kept = 1.0 - lost;
    let factor = (lost < 0.5).then(|| 1.0 / (kept * kept * kept));
    let carried = |magnitude: &[f64]| {
        let sum: f64 = (0..o.len()).map(|at| (o[at].abs() + all[at]) * magnitude[at]).sum();
        inverse * inverse * sum / count
    };
    let shares = [&errors.paths, &errors.gates, &errors.norms, &errors.stored].map(|m| carried(m));
    for at in 0..o.len() {
        let gain = w[at] * silu(z[at]);
        let size = gain.abs() * inverse;
        let y = o[at] * inverse * gain;
        let parts = [
            &mut errors.paths[at],
            &mut errors.gates[at],
            &mut errors.norms[at],
            &mut errors.stored[at],
        ];
        match factor {
            Some(factor) => {
                for (part, share) in parts.into_iter().zip(shares) {
                    *part = size * (*part + o[at].abs() * share) * factor;
                }
            }
            // Any two results of a norm are this near: no element exceeds √D.
            None => {
                for part in parts {
                    *part = 0.0;
                }
                errors.paths[at] = 2.0 * libm::sqrt(count) * gain.abs() / (PATHS_TIMES * UNIT_F32);
            }
        }
        // The norm's own rounding, the exponential's and the division's.
        errors.norms[at] += (norm_error(o.len()) + 4.0) * y.abs();
        o[at] = y;
    }
}
