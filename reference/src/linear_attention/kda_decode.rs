//! One step of the delta rule whose key channels decay each by itself, a row a sequence.

use super::gated_delta_rule::{Sequence, gated_delta_rule};
use super::inputs::GatedDeltaInputs;
use crate::{Inputs, Outputs};

/// Reads q, k `[N,Hk,Dk]`, v `[N,Hv,Dv]`, g `[N,Hv,Dk]`, beta `[N,Hv]`, s `[slots,Hv,Dv,Dk]`, the list
/// `slot`, the dim `slots`, the scalar `q_output_scale` and the options `gate_law` and `head_map`.
/// Returns `o` `[N,Hv,Dv]` and `s`.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract (a slot outside the pool).
pub fn kda_decode(inputs: &Inputs) -> Outputs {
    let read = GatedDeltaInputs::of_key_channels(inputs);
    let initial = inputs.tensor("s").to_f64();
    let sequences: Vec<Sequence> = inputs
        .list("slot")
        .iter()
        .enumerate()
        .map(|(first_row, slot)| Sequence {
            first_row,
            row_count: 1,
            slot: usize::try_from(*slot).ok(),
        })
        .collect();
    gated_delta_rule(read.heads, read.rows(), &sequences, read.slots, Some(&initial)).into_outputs()
}
