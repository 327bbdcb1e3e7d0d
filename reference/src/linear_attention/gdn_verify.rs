//! The rows of a speculative round: the recurrence row by row, and the state after every row.
//! Sequences lie end to end; rows past the last one, and rows and slots of pads, are dead.

use super::gated_delta_rule::gated_delta_rule_by_row;
use super::gates::Gates;
use super::gdn_chunk::end_to_end;
use super::inputs::{GatedDeltaInputs, largest_state};
use crate::{Expected, Inputs, Outputs};

/// Reads q, k `[rows,Hk,Dk]`, v `[rows,Hv,Dv]`, g or alpha, beta `[rows,Hv]`, s `[slots,Hv,Dv,Dk]`, the
/// lists `seq_len` and `slot` (N each), the scalar `scale`, the dim `slots` and the options `gate_form`,
/// `head_map` and `live_state`. Returns `o` `[rows,Hv,Dv]`, `snap` `[rows,Hv,Dv,Dk]` and, unless the live
/// state is kept, `s`; each with the magnitude `paths` (see `gated_delta_rule`).
///
/// # Panics
/// If a name is missing or the inputs contradict their contract (a slot outside the pool, sequences
/// longer than the rows).
pub fn gdn_verify(inputs: &Inputs) -> Outputs {
    let log_decay = match inputs.word("gate_form") {
        "log" => inputs.tensor("g").to_f64(),
        "alpha" => Gates::alpha(&inputs.tensor("alpha").to_f64(), Vec::new()).log_decay,
        other => panic!("option `gate_form` is `{other}`; the reference knows log and alpha"),
    };
    let read = GatedDeltaInputs::read(inputs, log_decay);
    let initial = inputs.tensor("s").to_f64();
    let sequences = end_to_end(inputs.list("seq_len"), inputs.list("slot"));
    let largest = largest_state(inputs.tensor("s").dtype);
    let rows = gated_delta_rule_by_row(
        read.heads,
        read.rows(),
        &sequences,
        read.slots,
        Some(&initial),
        largest,
    );
    let real = |value: Vec<f64>, paths: Vec<f64>| Expected::Real {
        value,
        magnitudes: vec![("paths", paths)],
        measures: Vec::new(),
    };
    let mut tensors =
        vec![("o", real(rows.o, rows.o_paths)), ("snap", real(rows.s_by_row, rows.s_by_row_paths))];
    match inputs.word("live_state") {
        "advanced" => tensors.push(("s", real(rows.s, rows.s_paths))),
        "kept" => {}
        other => panic!("option `live_state` is `{other}`; the reference knows advanced and kept"),
    }
    Outputs { tensors }
}
