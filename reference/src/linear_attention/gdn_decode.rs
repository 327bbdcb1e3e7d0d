//! Gated delta rule, one token per sequence: row i advances the state in slot `slot[i]` by one step.
//! The state is always read; a negative slot skips its row.

use super::gated_delta_rule::{Sequence, gated_delta_rule};
use super::inputs::GatedDeltaInputs;
use crate::{Inputs, Outputs};

/// Reads q, k `[N,Hk,Dk]`, v `[N,Hv,Dv]`, g, beta `[N,Hv]` and s `[slots,Hv,Dv,Dk]`, the list `slot`
/// (N), the scalar `scale`, the dim `slots` and the option `head_map`. Returns `o` `[N,Hv,Dv]` and
/// `s` `[slots,Hv,Dv,Dk]`; rows and slots of no sequence are dead.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract (a slot outside the pool).
pub fn gdn_decode(inputs: &Inputs) -> Outputs {
    let read = GatedDeltaInputs::read(inputs);
    let sequences: Vec<Sequence> = inputs
        .list("slot")
        .iter()
        .enumerate()
        .map(|(row, slot)| Sequence {
            first_row: row,
            row_count: 1,
            slot: usize::try_from(*slot).ok(),
        })
        .collect();
    let initial = inputs.tensor("s").to_f64();
    gated_delta_rule(read.heads, read.rows(), &sequences, read.slots, Some(&initial)).into_outputs()
}
