//! Gated delta rule over whole sequences: the row-by-row recurrence, never the chunked form, so that
//! it can judge kernels that work by chunks.
//! Sequences lie end to end; rows past the last one and slots of none are dead.

use super::gated_delta_rule::{Sequence, gated_delta_rule_in_chunks};
use super::inputs::GatedDeltaInputs;
use crate::{Inputs, Outputs};

/// Reads q, k `[rows,Hk,Dk]`, v `[rows,Hv,Dv]`, g, beta `[rows,Hv]`, the lists `seq_len` and `slot`
/// (N each), the scalar `scale`, the dim `slots` and the options `head_map` and `initial_state`.
/// With `initial_state` `slot` a sequence starts from its slot of s `[slots,Hv,Dv,Dk]`, and an empty
/// one leaves it; with `zero` s is not looked at and an empty sequence ends in zero.
/// Returns `o` `[rows,Hv,Dv]` and `s` `[slots,Hv,Dv,Dk]`.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract (a slot outside the pool, sequences
/// longer than the rows).
pub fn gdn_chunk(inputs: &Inputs) -> Outputs {
    let read = GatedDeltaInputs::read(inputs, inputs.tensor("g").to_f64());
    let initial = match inputs.word("initial_state") {
        "slot" => Some(inputs.tensor("s").to_f64()),
        "zero" => None,
        other => panic!("option `initial_state` is `{other}`; the reference knows slot and zero"),
    };
    let sequences = end_to_end(inputs.list("seq_len"), inputs.list("slot"));
    gated_delta_rule_in_chunks(read.heads, read.rows(), &sequences, read.slots, initial.as_deref())
        .into_outputs()
}

/// Sequences of these lengths one after the other; a negative slot is a skipped one.
pub(super) fn end_to_end(lengths: &[i64], slots: &[i64]) -> Vec<Sequence> {
    let mut first_row = 0;
    let mut sequences = Vec::with_capacity(lengths.len());
    for (length, slot) in lengths.iter().zip(slots) {
        let row_count = usize::try_from(*length).expect("a sequence length is not negative");
        sequences.push(Sequence { first_row, row_count, slot: usize::try_from(*slot).ok() });
        first_row += row_count;
    }
    sequences
}
