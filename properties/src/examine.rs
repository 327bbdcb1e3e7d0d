//! What is examined of a case besides the kernel against its reference: one relation, all
//! rejections, or (in replay) all that apply. A decision like any other, so the fuzzer steers it.

use crate::choices::{Choices, Path};
use contracts::format::Contract;

/// House rules that a run which repeats the first may be needed to break.
const RERUN_RULES: [&str; 3] = ["house.poison_agree", "house.repeat", "house.capture"];

/// What to examine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Examine {
    /// The kernel against its reference, and the house rules; runs that only repeat it for one case in
    /// eight.
    Kernel,
    /// The kernel, with every run that repeats it.
    Reruns,
    /// The kernel, then one relation, by clause id.
    Relation(String),
    /// One call that must be refused, by clause id (`rejects.…`, `requires.…`).
    Rejection(String),
    /// Every call that must be refused: each is the legal call with one edit, and nothing is launched.
    Rejections,
    /// Everything that applies.
    All,
}

impl Examine {
    /// Draws: about half the cases kernel only, a third one relation, the rest every rejection.
    pub fn draw(contract: &Contract, choices: &mut dyn Choices) -> Examine {
        let path = Path::new("examine");
        match choices.choose(path, 12) {
            6..=9 if !contract.relations.is_empty() => {
                let which = choices.choose(path.child("relation"), contract.relations.len() as u64);
                let name = contract.relations.get_index(which as usize).map(|(name, _)| name);
                name.map_or(Examine::Kernel, |name| Examine::Relation(format!("relations.{name}")))
            }
            10..=11 => Examine::Rejections,
            _ => Examine::Kernel,
        }
    }

    /// What a stored failure of this clause needs examined again.
    pub fn for_clause(clause: &str) -> Examine {
        if clause.starts_with("relations.") {
            Examine::Relation(clause.to_owned())
        } else if clause.starts_with("rejects.") || clause.starts_with("requires.") {
            Examine::Rejection(clause.to_owned())
        } else if RERUN_RULES.contains(&clause) {
            Examine::Reruns
        } else {
            Examine::Kernel
        }
    }
}
