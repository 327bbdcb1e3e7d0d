//! Rows of one pool at places of another, bit for bit. Only the rows that are named are looked at.

use crate::{Expected, Inputs, Outputs};

/// Reads from `[R,W]`, the lists `source` and `place` (n each) and the dim `slots`. Returns `to`
/// `[slots,W]`: row `source[i]` at `place[i]`; places of no row are dead, and a negative place is no place.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract.
pub fn state_scatter(inputs: &Inputs) -> Outputs {
    let from = inputs.tensor("from");
    let width = from.shape[1];
    let slots = u64::try_from(inputs.dim("slots")).expect("dim `slots` is not negative");
    let mut to = vec![0; (slots * width) as usize];
    for (source, place) in inputs.list("source").iter().zip(inputs.list("place")) {
        let Ok(place) = u64::try_from(*place) else { continue };
        let source = u64::try_from(*source).expect("a row is not negative");
        for column in 0..width {
            to[(place * width + column) as usize] = from.bits(source * width + column);
        }
    }
    Outputs { tensors: vec![("to", Expected::Bits(to))] }
}
