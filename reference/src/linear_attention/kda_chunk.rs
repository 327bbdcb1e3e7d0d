//! The delta rule whose key channels decay each by itself, over whole sequences: row by row, never in
//! chunks. Sequences lie end to end; rows past the last one and slots of none are dead.

use super::gated_delta_rule::gated_delta_rule_in_chunks;
use super::gdn_chunk::end_to_end;
use super::inputs::GatedDeltaInputs;
use crate::{Inputs, Outputs};

/// Reads q, k `[rows,Hk,Dk]`, v `[rows,Hv,Dv]`, g `[rows,Hv,Dk]`, beta `[rows,Hv]`, the lists `seq_len`
/// and `slot` (N each), the scalar `q_output_scale`, the dim `slots` and the options `gate_law`,
/// `head_map` and `initial_state`. With `initial_state` `slot` a sequence starts from its slot of s
/// `[slots,Hv,Dv,Dk]`, and an empty one leaves it; with `zero` s is not looked at and an empty sequence
/// ends in zero. Returns `o` `[rows,Hv,Dv]` and `s`.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract (a slot outside the pool, sequences
/// longer than the rows).
pub fn kda_chunk(inputs: &Inputs) -> Outputs {
    let read = GatedDeltaInputs::of_key_channels(inputs);
    let initial = match inputs.word("initial_state") {
        "slot" => Some(inputs.tensor("s").to_f64()),
        "zero" => None,
        other => panic!("option `initial_state` is `{other}`; the reference knows slot and zero"),
    };
    let sequences = end_to_end(inputs.list("seq_len"), inputs.list("slot"));
    gated_delta_rule_in_chunks(read.heads, read.rows(), &sequences, read.slots, initial.as_deref())
        .into_outputs()
}
