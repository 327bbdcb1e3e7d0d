//! The rows of a speculative round: the recurrence row by row, and the state after every row.
//! Sequences lie end to end; rows past the last one, and rows and slots of pads, are dead.

use super::gated_delta_rule::{Sequence, StateType, gated_delta_rule_by_row};
use super::gates::Gates;
use super::gdn_chunk::end_to_end;
use super::inputs::GatedDeltaInputs;
use crate::{Expected, Inputs, Outputs};

/// Reads q, k `[rows,Hk,Dk]`, v `[rows,Hv,Dv]`, g or alpha, beta `[rows,Hv]`, s `[slots,Hv,Dv,Dk]`, the
/// lists `seq_len` and `slot` (N each), the scalar `scale`, the dim `slots` and the options `gate_form`,
/// `head_map` and `live_state`. Returns `o` `[rows,Hv,Dv]`, `snap` `[rows,Hv,Dv,Dk]` and, unless the live
/// state is kept, `s`; each with the magnitudes `paths` (M), `stored`, the carried roundings of the state
/// in roundoffs of its type (R of an output, D of a state), and `decays`, the carried errors of decays in
/// units of one's (C; zero where the decay itself is given); see `gated_delta_rule`.
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
    let rows = gated_delta_rule_by_row(
        read.heads,
        read.rows(),
        &sequences,
        read.slots,
        Some(&initial),
        StateType::of(inputs.tensor("s").dtype),
    );
    let [drift, decays] = [&rows.s_by_row_drift, &rows.s_by_row_decays]
        .map(|by_row| of_last_rows(by_row, rows.s.len(), read.heads.slot_count(), &sequences));
    let computed = if inputs.word("gate_form") == "log" { 1.0 } else { 0.0 };
    let real = |value: Vec<f64>, paths: Vec<f64>, stored: Vec<f64>, decays: Vec<f64>| {
        let decays = decays.into_iter().map(|error| computed * error).collect();
        let magnitudes = vec![("paths", paths), ("stored", stored), ("decays", decays)];
        Expected::Real { value, magnitudes, measures: Vec::new() }
    };
    let snap = real(rows.s_by_row, rows.s_by_row_paths, rows.s_by_row_drift, rows.s_by_row_decays);
    let mut tensors =
        vec![("o", real(rows.o, rows.o_paths, rows.o_drift, rows.o_decays)), ("snap", snap)];
    match inputs.word("live_state") {
        "advanced" => tensors.push(("s", real(rows.s, rows.s_paths, drift, decays))),
        "kept" => {}
        other => panic!("option `live_state` is `{other}`; the reference knows advanced and kept"),
    }
    Outputs { tensors }
}

/// What each sequence's last row left, of the states after every row: `[slots,Hv,Dv,Dk]`.
fn of_last_rows(
    by_row: &[f64],
    state_count: usize,
    slot_count: usize,
    sequences: &[Sequence],
) -> Vec<f64> {
    let mut left = vec![0.0; state_count];
    for sequence in sequences.iter().filter(|sequence| sequence.row_count > 0) {
        let Some(slot) = sequence.slot else { continue };
        let last = (sequence.first_row + sequence.row_count - 1) * slot_count;
        left[slot * slot_count..(slot + 1) * slot_count]
            .copy_from_slice(&by_row[last..last + slot_count]);
    }
    left
}
