//! Causal depthwise convolution in f64, row by row, with the window of the last inputs carried in slots.
//!
//! ```text
//! acc = bias + Σ_j w[j]·x[t−W+1+j]      y = acc, or acc·σ(acc);  of a normed head y / √(Σ y² + ε)
//! ```
//!
//! A slot holds the last inputs, W − 1 or W: the oldest of W is read by no tap and carried along.
//!
//! Magnitudes of `out`, in units of 2⁻²⁴: `taps` = (W + 2)(|bias| + Σ|w||x|), carried through what
//! follows; `silu` = (16 + 3|acc|)·|y|, the exponential's and the quotient's; `norm`, the sum's and the
//! root's. They are zero where nothing of the kind is computed.

use super::gdn_chunk::end_to_end;
use crate::{Expected, Inputs, Outputs};

/// Reads x `[rows,heads,D]`, weight `[heads,D,W]` (oldest tap first), bias `[heads,D]` with `bias: given`,
/// state `[slots,heads,D,kept]` (oldest first, `kept` W − 1 or W), the lists `seq_len` and `slot`, the
/// scalars `eps` and `normed_heads` and the options `activation`, `norm`, `live_state` and `snapshot`.
/// Returns `out` `[rows,heads,D]` and, where they are written, `state` and `snap` `[rows,heads,D,kept]`,
/// which are bits.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract.
pub fn causal_conv1d(inputs: &Inputs) -> Outputs {
    let conv = Convolution::read(inputs);
    let channels = conv.heads * conv.head_dim;
    let rows = conv.x.len() / channels;
    let state = inputs.tensor("state");
    let held = state.shape[3] as usize;
    let mut live: Vec<u64> = (0..state.count()).map(|at| state.bits(at)).collect();
    let mut snap = vec![0; rows * channels * held];
    let mut out = Out::new(conv.x.len());
    for sequence in end_to_end(inputs.list("seq_len"), inputs.list("slot")) {
        let Some(slot) = sequence.slot else { continue };
        for channel in 0..channels {
            let own = slot * channels + channel;
            let window = &mut live[own * held..(own + 1) * held];
            for row in sequence.first_row..sequence.first_row + sequence.row_count {
                let at = row * channels + channel;
                let (acc, taps) = conv.taps(channel, window, at);
                (out.value[at], out.taps[at]) = (acc, taps);
                window.rotate_left(1);
                window[held - 1] = u64::from((conv.x[at] as f32).to_bits());
                snap[at * held..(at + 1) * held].copy_from_slice(window);
            }
        }
        for row in sequence.first_row..sequence.first_row + sequence.row_count {
            for head in 0..conv.heads {
                conv.finish(head, row * channels + head * conv.head_dim, &mut out);
            }
        }
    }
    let mut tensors = vec![("out", out.expected())];
    if inputs.word("live_state") == "advanced" {
        tensors.push(("state", Expected::Bits(live)));
    }
    if inputs.word("snapshot") == "each" {
        tensors.push(("snap", Expected::Bits(snap)));
    }
    Outputs { tensors }
}

struct Convolution {
    heads: usize,
    head_dim: usize,
    width: usize,
    x: Vec<f64>,
    weight: Vec<f64>,
    bias: Option<Vec<f64>>,
    applies_silu: bool,
    normed_heads: usize,
    eps: f64,
}

/// Outputs and their magnitudes, before and after what follows the taps.
struct Out {
    value: Vec<f64>,
    taps: Vec<f64>,
    silu: Vec<f64>,
    norm: Vec<f64>,
}

impl Out {
    fn new(count: usize) -> Out {
        let zero = vec![0.0; count];
        Out { value: zero.clone(), taps: zero.clone(), silu: zero.clone(), norm: zero }
    }

    fn expected(self) -> Expected {
        Expected::Real {
            value: self.value,
            magnitudes: vec![("taps", self.taps), ("silu", self.silu), ("norm", self.norm)],
            measures: Vec::new(),
        }
    }
}

impl Convolution {
    fn read(inputs: &Inputs) -> Convolution {
        let values = |tensor: &str| inputs.tensor(tensor).to_f64();
        let extent = |tensor: &str, axis: usize| inputs.tensor(tensor).shape[axis] as usize;
        let heads = extent("weight", 0);
        Convolution {
            heads,
            head_dim: extent("weight", 1),
            width: extent("weight", 2),
            x: values("x"),
            weight: values("weight"),
            bias: (inputs.word("bias") == "given").then(|| values("bias")),
            applies_silu: inputs.word("activation") == "silu",
            normed_heads: match inputs.word("norm") {
                "l2" => (inputs.scalar("normed_heads") as usize).min(heads),
                _ => 0,
            },
            eps: inputs.scalar("eps"),
        }
    }

    /// The accumulator of one output, and the magnitude of its roundings.
    fn taps(&self, channel: usize, window: &[u64], at: usize) -> (f64, f64) {
        let bias = self.bias.as_ref().map_or(0.0, |bias| bias[channel]);
        let (mut acc, mut magnitude) = (bias, bias.abs());
        let weights = &self.weight[channel * self.width..(channel + 1) * self.width];
        let before = &window[window.len() + 1 - self.width..];
        let older = before.iter().map(|bits| f64::from(f32::from_bits(*bits as u32)));
        for (weight, x) in weights.iter().zip(older.chain([self.x[at]])) {
            acc += weight * x;
            magnitude += (weight * x).abs();
        }
        (acc, (self.width as f64 + 2.0) * magnitude)
    }

    /// What follows the taps, for the channels of one head and row from `first` on.
    fn finish(&self, head: usize, first: usize, out: &mut Out) {
        let own = first..first + self.head_dim;
        if self.applies_silu {
            for at in own.clone() {
                let acc = out.value[at];
                // |d silu/d acc| is at most 1.1.
                let y = silu(acc);
                (out.value[at], out.taps[at]) = (y, 1.1 * out.taps[at]);
                out.silu[at] = (16.0 + 3.0 * acc.abs()) * y.abs();
            }
        }
        if head >= self.normed_heads {
            return;
        }
        let y = &out.value[own.clone()];
        let square: f64 = y.iter().map(|y| y * y).sum::<f64>() + self.eps;
        let length = libm::sqrt(square);
        // How far errors of all channels move the length: Σ |y| e / length.
        let moved = |errors: &[f64]| -> f64 {
            y.iter().zip(errors).map(|(y, e)| y.abs() * e).sum::<f64>() / length
        };
        let (taps, silu) = (moved(&out.taps[own.clone()]), moved(&out.silu[own.clone()]));
        for at in own {
            let y = out.value[at] / length;
            out.taps[at] = (out.taps[at] + y.abs() * taps) / length;
            out.silu[at] = (out.silu[at] + y.abs() * silu) / length;
            // Seven levels of the sum, its squares, eps, root and division.
            out.norm[at] = 12.0 * y.abs();
            out.value[at] = y;
        }
    }
}

/// acc·σ(acc); −0 far below zero, NaN at −∞ as the kernel's quotient has it.
fn silu(acc: f64) -> f64 {
    acc / (1.0 + libm::exp(-acc))
}
