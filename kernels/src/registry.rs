//! Every production kernel, from the one registry macro; a missing launch function does not compile.

use crate::call::{Call, Rejection};
use crate::canary::Planted;
use crate::launch::Plan;

/// A launch function: checks every argument, then plans.
pub type PlanFn = fn(&Call) -> Result<Plan, Rejection>;

/// One kernel of the crate.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Family: the folder in every crate.
    pub family: &'static str,
    /// The contract's name; also the PTX module's stem.
    pub name: &'static str,
    /// Its launch function.
    pub plan: PlanFn,
}

macro_rules! kernels {
    ($($family:ident { $($name:ident)* })*) => {
        /// Every production kernel.
        pub const KERNELS: &[Kernel] = &[$($(
            Kernel { family: stringify!($family), name: stringify!($name), plan: crate::$family::$name::plan },
        )*)*];
    };
}
contracts::registry!(kernels);

/// The canary: deliberately wrong, kept out of `KERNELS`.
pub const CANARY: Kernel =
    Kernel { family: "canary", name: "canary_row_sum", plan: crate::canary::canary_row_sum::plan };

/// Kernels that are right and can be told to be wrong, each with its faults: what clauses and relations
/// are shown on.
pub const TEST_KERNELS: [(Kernel, &[Planted]); 4] = [
    (
        Kernel { family: "canary", name: "canary_rows", plan: crate::canary::canary_rows::plan },
        crate::canary::canary_rows::PLANTED,
    ),
    (
        Kernel { family: "canary", name: "canary_steps", plan: crate::canary::canary_steps::plan },
        crate::canary::canary_steps::PLANTED,
    ),
    (
        Kernel {
            family: "canary",
            name: "canary_experts",
            plan: crate::canary::canary_experts::plan,
        },
        crate::canary::canary_experts::PLANTED,
    ),
    (
        Kernel { family: "canary", name: "canary_step", plan: crate::canary::canary_step::plan },
        crate::canary::canary_step::PLANTED,
    ),
];

/// The production kernel of this name.
pub fn kernel(name: &str) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}
