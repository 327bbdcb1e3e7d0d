//! What a history must never break, by the names of the specification's invariants.

use std::fmt;

/// One promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Invariant {
    /// I1: a round is resolved once.
    OneResolution,
    /// I2: abort, drop and a failed verify leave what was published at begin.
    Restores,
    /// I3: a commit publishes what stood after its last row.
    PublishesPrefix,
    /// I3: rows give what as many decodes give.
    EqualsDecodes,
    /// I4: outputs of a row do not depend on later ones.
    FutureBlind,
    /// I5: all components commit the same rows.
    SameRows,
    /// I6: what is rejected is dead: poison, and unread.
    RejectedDead,
    /// I7: other sequences stay as they are.
    OthersUntouched,
    /// I8: a commit that fails leaves the old, the new, or a sequence that is refused everything.
    NeverMixed,
    /// I9: no buffer moves, two sequences' memory is apart.
    StableAddresses,
    /// I10: the length is the sum of what was prefilled, decoded and committed.
    LengthAddsUp,
    /// A slot taken again is as good as new.
    FreshSlot,
    /// What is not legal is refused, by the right error, and changes nothing.
    Refusals,
    /// What is legal happens.
    Happens,
    /// I11: write on accept and snapshots leave the same.
    ModesAgree,
}

impl Invariant {
    /// Every one, with its name.
    pub const ALL: &[(&str, Invariant)] = &[
        ("one_resolution", Invariant::OneResolution),
        ("restores", Invariant::Restores),
        ("publishes_prefix", Invariant::PublishesPrefix),
        ("equals_decodes", Invariant::EqualsDecodes),
        ("future_blind", Invariant::FutureBlind),
        ("same_rows", Invariant::SameRows),
        ("rejected_dead", Invariant::RejectedDead),
        ("others_untouched", Invariant::OthersUntouched),
        ("never_mixed", Invariant::NeverMixed),
        ("stable_addresses", Invariant::StableAddresses),
        ("length_adds_up", Invariant::LengthAddsUp),
        ("fresh_slot", Invariant::FreshSlot),
        ("refusals", Invariant::Refusals),
        ("happens", Invariant::Happens),
        ("modes_agree", Invariant::ModesAgree),
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Invariant> {
        Invariant::ALL.iter().find(|(known, _)| *known == name).map(|(_, invariant)| *invariant)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Invariant::ALL.iter().find(|(_, own)| *own == self).map_or("?", |(name, _)| name)
    }

    /// The clause that promises it.
    pub fn clause(self) -> String {
        format!("invariants.{}", self.name())
    }
}

/// A promise broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// By which event of the history.
    pub at: usize,
    /// What was expected and what was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invariants.{} is broken by event {}: {}",
            self.invariant.name(),
            self.at,
            self.what
        )
    }
}

impl std::error::Error for Violation {}
