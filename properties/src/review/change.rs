//! One change of meaning, with its direction, its numbers and the place a `history:` entry names it by.
//! A change is about one thing: what is lost and what is gained are two changes.

use serde::{Deserialize, Serialize};

/// Which way a change goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Something is promised, drawn, refused or replayed no more, or less exactly.
    Loosened,
    /// Neither side implies the other: a person has to read both.
    Incomparable,
    /// Something is promised, drawn, refused or replayed that was not, or more exactly.
    Tightened,
    /// What holds is the same.
    Neutral,
}

impl Class {
    /// The class of the change back.
    pub fn mirrored(self) -> Class {
        match self {
            Class::Loosened => Class::Tightened,
            Class::Tightened => Class::Loosened,
            same => same,
        }
    }

    /// The word for a reader.
    pub fn name(self) -> &'static str {
        match self {
            Class::Loosened => "Loosened",
            Class::Incomparable => "Incomparable",
            Class::Tightened => "Tightened",
            Class::Neutral => "Neutral",
        }
    }

    /// Whether a `history:` entry has to say why: where something weaker may hold afterwards.
    pub fn needs_reason(self) -> bool {
        matches!(self, Class::Loosened | Class::Incomparable)
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Dotted place at the head (the base's, where it is gone): `tolerance.o.bf16`, `tensors.q.layout`.
    pub clause: String,
    /// The place's name at the base, where it was another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// Its direction.
    pub class: Class,
    /// One sentence without a full stop.
    pub says: String,
    /// The value at the base; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The value at the head; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Why, where the change needs a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// What the history says about a change that needs a reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reason {
    /// An entry of this change names the clause.
    Given {
        /// Its `because`.
        because: String,
        /// Its link.
        link: String,
    },
    /// None counts.
    Missing {
        /// Why an entry that names the clause does not count; empty when none names it.
        why: String,
    },
}

impl Change {
    /// Whether it may not merge as it stands.
    pub fn is_unjustified(&self) -> bool {
        self.class.needs_reason() && !matches!(self.reason, Some(Reason::Given { .. }))
    }
}

/// Every change of one contract, its stored cases included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContractReview {
    /// Its name; at the base, where it is gone. Empty for what belongs to no contract.
    pub contract: String,
    /// The file that its `history:` is in.
    pub file: String,
    /// Its version at the head, or the base's where it is gone.
    pub version: u32,
    /// What changed, weakest first.
    pub changes: Vec<Change>,
    /// Changed clauses that no drawn case exercises.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unexercised: Vec<String>,
}

/// A kernel's sources and PTX.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelReview {
    /// The kernel.
    pub kernel: String,
    /// Files of its source that changed, headers included.
    pub sources: Vec<String>,
    /// Contracts that judge it: its own, and those that compare with it.
    pub judged_by: Vec<String>,
    /// What does not belong together: PTX without source, or the reverse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<String>,
}

/// A whole comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Review {
    /// What was compared with, for a reader.
    pub base: String,
    /// What was looked at.
    pub head: String,
    /// What a reader must know about the comparison itself.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Contracts with changes, by name.
    pub contracts: Vec<ContractReview>,
    /// Kernels whose source or PTX changed, by name.
    pub kernels: Vec<KernelReview>,
    /// Why nothing could be compared; then all else is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Review {
    /// Every change, with its contract.
    pub fn changes(&self) -> impl Iterator<Item = (&ContractReview, &Change)> {
        self.contracts
            .iter()
            .flat_map(|contract| contract.changes.iter().map(move |change| (contract, change)))
    }

    /// The changes of one class.
    pub fn count(&self, class: Class) -> usize {
        self.changes().filter(|(_, change)| change.class == class).count()
    }

    /// Changes that need a reason and have none.
    pub fn unjustified(&self) -> usize {
        self.changes().filter(|(_, change)| change.is_unjustified()).count()
    }

    /// What a tool error leaves in place of a comparison.
    pub fn failed(error: String) -> Review {
        Review { error: Some(error), ..Review::default() }
    }

    /// Whether nothing at all changed.
    pub fn is_empty(&self) -> bool {
        self.contracts.is_empty() && self.kernels.is_empty()
    }
}
