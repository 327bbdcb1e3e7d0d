//! State between f16 and f32: the element's value, rounded once to the other type.
//! Widening is exact. Narrowing rounds to nearest even, to infinity past the largest number.

use crate::{Expected, Inputs, Outputs};
use contracts::dtype::DType;

/// Reads the option `direction` and, where it is `narrow`, wide `[slots,n]`, else narrow `[slots,n]`.
/// Returns the other of the two, bits.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract.
pub fn state_convert(inputs: &Inputs) -> Outputs {
    let (from, to, dtype) = match inputs.word("direction") {
        "narrow" => ("wide", "narrow", DType::F16),
        "widen" => ("narrow", "wide", DType::F32),
        other => panic!("option `direction` is `{other}`; the reference knows narrow and widen"),
    };
    let values = inputs.tensor(from).to_f64().into_iter();
    let bits = values.map(|value| dtype.round_from_f64(value)).collect();
    Outputs { tensors: vec![(to, Expected::Bits(bits))] }
}
