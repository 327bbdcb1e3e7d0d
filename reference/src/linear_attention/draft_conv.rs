//! The drafting model's grouped dynamic convolution in f64, block by block.
//!
//! ```text
//! coef[t] = W x[t]      y[t,c] = Σ_{τ<2, τ≤t} (base[side,τ,c] + coef[t,side,τ,c/gs])·x[t−τ,c]  (+ residual)
//! ```
//!
//! Coefficients are rounded to their type and the rounded used, as where they are stored. Magnitudes of
//! `y`: `taps` = Σ(|base| + |coef|)|x| + |residual|; where coefficients are projected, `projected`, the
//! error of their sums in units of 2⁻²⁴, and `crossed` = Σ(|coef| + the least normal number)|x|, by a
//! unit of which the sums' errors may round to a neighbour. Of `coef`: `projected`.

use crate::{Expected, Inputs, Outputs};
use contracts::dtype::DType;

const SIDES: usize = 2;
const TAPS: usize = 2;

/// Reads x `[blocks,rows,H]`, base `[2,2,H]`, the options `stage` and `residual`, the type `io` and, as
/// the options ask, coef `[blocks,rows,2,2,G]` or w `[4G,H]`, and residual `[blocks,rows,H]`.
/// Returns `y` `[blocks,rows,H]` and, of `project`, `coef`.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract.
pub fn draft_conv(inputs: &Inputs) -> Outputs {
    let x = inputs.tensor("x");
    let [rows, channels] = [1, 2].map(|axis| x.shape[axis] as usize);
    let base = inputs.tensor("base").to_f64();
    let side = usize::from(inputs.word("stage") == "finish");
    let projected = inputs.word("stage") == "project";
    let x = x.to_f64();
    let coefs = if projected {
        let w = inputs.tensor("w").to_f64();
        Coefficients::project(&x, &w, channels, inputs.dtype("io"))
    } else {
        Coefficients::given(inputs.tensor("coef").to_f64(), inputs.tensor("coef").shape[4] as usize)
    };
    let residual = (inputs.word("residual") == "added").then(|| inputs.tensor("residual").to_f64());

    let mut y = Out::new(x.len());
    for row in 0..x.len().checked_div(channels).unwrap_or(0) {
        for channel in 0..channels {
            let at = row * channels + channel;
            for tap in 0..TAPS.min(row % rows + 1) {
                let before = x[at - tap * channels];
                let coef = coefs.place(row, side, tap, channel * coefs.groups / channels);
                let base = base[(side * TAPS + tap) * channels + channel];
                y.value[at] += (base + coefs.rounded[coef]) * before;
                y.taps[at] += (base.abs() + coefs.rounded[coef].abs()) * before.abs();
                y.projected[at] += coefs.error[coef] * before.abs();
                y.crossed[at] += coefs.step[coef] * before.abs();
            }
            if let Some(residual) = &residual {
                y.value[at] += residual[at];
                y.taps[at] += residual[at].abs();
            }
        }
    }
    let mut tensors = vec![("y", y.expected())];
    if projected {
        tensors.push(("coef", coefs.expected()));
    }
    Outputs { tensors }
}

/// Coefficients `[rows,side,tap,group]` before and after they are rounded, and how far off a kernel's may
/// be: its sums' errors, and what a neighbour's distance is in units of the type's roundoff.
struct Coefficients {
    groups: usize,
    exact: Vec<f64>,
    rounded: Vec<f64>,
    error: Vec<f64>,
    step: Vec<f64>,
}

impl Coefficients {
    fn given(rounded: Vec<f64>, groups: usize) -> Coefficients {
        let zero = vec![0.0; rounded.len()];
        Coefficients { groups, exact: rounded.clone(), rounded, error: zero.clone(), step: zero }
    }

    fn project(x: &[f64], w: &[f64], channels: usize, io: DType) -> Coefficients {
        let outputs = w.len().checked_div(channels).unwrap_or(0);
        let roundings = sum_roundings(channels, io);
        let least_normal = io.smallest_subnormal() / (2.0 * io.unit_roundoff());
        let mut coefs =
            Coefficients { groups: outputs / (SIDES * TAPS), ..Coefficients::given(Vec::new(), 0) };
        for row in x.chunks_exact(channels.max(1)) {
            for weights in w.chunks_exact(channels.max(1)) {
                let products = || weights.iter().zip(row).map(|(w, x)| w * x);
                let sum: f64 = products().sum();
                let rounded = io.to_f64(io.round_from_f64(sum));
                coefs.exact.push(sum);
                coefs.rounded.push(rounded);
                coefs.error.push(roundings * products().map(f64::abs).sum::<f64>());
                coefs.step.push(sum.abs() + least_normal);
            }
        }
        coefs
    }

    fn place(&self, row: usize, side: usize, tap: usize, group: usize) -> usize {
        ((row * SIDES + side) * TAPS + tap) * self.groups + group
    }

    fn expected(self) -> Expected {
        Expected::Real {
            value: self.exact,
            magnitudes: vec![("projected", self.error)],
            measures: Vec::new(),
        }
    }
}

/// What a sum of so many products may be off by, in units of 2⁻²⁴ of its magnitudes.
fn sum_roundings(channels: usize, io: DType) -> f64 {
    if io == DType::F32 {
        // The longest way of a product through a sum that four warps share.
        return channels.div_ceil(128) as f64 + 14.0;
    }
    // A tensor core cuts sixteen products and what they are added to at 2⁻²⁵ of the largest, of a
    // power of two up to it, and their sum at 2⁻²³; eight such steps, at most, are a sum that is
    // rounded as f32 is: eight of them are a part.
    let step = 17.0 / 2.0 + 2.0;
    step * channels.div_ceil(16).min(8) as f64 + 7.0 + channels.div_ceil(1024) as f64
}

/// Outputs and their magnitudes.
struct Out {
    value: Vec<f64>,
    taps: Vec<f64>,
    projected: Vec<f64>,
    crossed: Vec<f64>,
}

impl Out {
    fn new(count: usize) -> Out {
        let zero = vec![0.0; count];
        Out { value: zero.clone(), taps: zero.clone(), projected: zero.clone(), crossed: zero }
    }

    fn expected(self) -> Expected {
        Expected::Real {
            value: self.value,
            magnitudes: vec![
                ("taps", self.taps),
                ("projected", self.projected),
                ("crossed", self.crossed),
            ],
            measures: Vec::new(),
        }
    }
}
