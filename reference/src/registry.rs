//! Finds a reference by the name of its contract.
//! The names come from the one registry of kernels, so a kernel without a reference does not compile.

use crate::{Inputs, Outputs};

/// A plain function from the logical inputs of a case to what a kernel must return.
pub type Reference = fn(&Inputs) -> Outputs;

macro_rules! table {
    ($($family:ident { $($kernel:ident)* })*) => {
        const REFERENCES: &[(&str, Reference)] =
            &[$($((stringify!($kernel), crate::$family::$kernel as Reference),)*)*];
    };
}
contracts::registry!(table);

/// The reference of the contract with this name; `None` when the name is not in the registry.
pub fn reference(name: &str) -> Option<Reference> {
    REFERENCES.iter().find(|(kernel, _)| *kernel == name).map(|(_, reference)| *reference)
}

/// The reference of a canary, a contract whose kernel is deliberately wrong or can be told to be; `None`
/// for other names.
pub fn canary_reference(name: &str) -> Option<Reference> {
    match name {
        "canary_row_sum" => Some(crate::canary::canary_row_sum),
        "canary_experts" => Some(crate::canary::canary_experts),
        "canary_rows" => Some(crate::canary::canary_rows),
        "canary_step" => Some(crate::canary::canary_step),
        "canary_steps" => Some(crate::canary::canary_steps),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_references_and_canaries_stay_apart() {
        for name in ["gdn_decode", "gdn_chunk", "ple_gather", "argmax_rows", "row_topk"] {
            assert!(reference(name).is_some(), "{name}");
            assert!(canary_reference(name).is_none(), "{name}");
        }
        assert!(reference("canary_row_sum").is_none() && reference("gdn").is_none());
        assert!(canary_reference("canary_row_sum").is_some());
    }
}
