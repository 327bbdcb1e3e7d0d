//! Rows of [q | k | v | z] by key head as rows of each: nothing is computed, bits are copied.

use crate::{Expected, Inputs, Outputs};

/// Reads mixed `[rows,Hk,2·Dk+2·r·Dv]` and the dims `Hk`, `Hv`, `Dk` and `Dv`, r = Hv/Hk. Returns `q`, `k`
/// `[rows,Hk,Dk]` and `v`, `z` `[rows,Hv,Dv]`, all bits.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract.
pub fn qkvz_deinterleave(inputs: &Inputs) -> Outputs {
    let extent = |dim: &str| u64::try_from(inputs.dim(dim)).expect("a dim is not negative");
    let (key_heads, value_heads) = (extent("Hk"), extent("Hv"));
    let (keys, values) = (extent("Dk"), value_heads / key_heads * extent("Dv"));
    let mixed = inputs.tensor("mixed");
    let groups = mixed.shape[0] * key_heads;
    // What lies `from` the start of every group, one group after another.
    let part = |from: u64, len: u64| {
        let of_group = |group: u64| {
            let first = group * 2 * (keys + values) + from;
            (first..first + len).map(|at| mixed.bits(at))
        };
        Expected::Bits((0..groups).flat_map(of_group).collect())
    };
    Outputs {
        tensors: vec![
            ("q", part(0, keys)),
            ("k", part(keys, keys)),
            ("v", part(2 * keys, values)),
            ("z", part(2 * keys + values, values)),
        ],
    }
}
