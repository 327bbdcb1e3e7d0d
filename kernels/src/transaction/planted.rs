//! Wrong transactions, one decision each, that a search must find. They exist in builds with the
//! feature `planted` alone; elsewhere the question is a constant `false`.

/// One decision made wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Planted {
    /// The window of the convolution stays after the last verified row, whatever is decided.
    ConvNotRolledBack,
    /// Attention reads one row past the rows of the sequence and the round.
    KvTailRead,
    /// The state after row c is published, not after row c - 1.
    SnapshotLate,
    /// A resolved round is committed again.
    SecondCommitAccepted,
    /// A round that is dropped stays as it is.
    DropIsNoop,
    /// A slot's next sequence begins with the last one's state.
    SlotReuseLeaks,
    /// The first layer commits alone.
    OneLayerCommits,
    /// Keys and values are one row shorter than the rest.
    KvCommitsLess,
    /// The window after row c - 2 is published.
    ConvCommitsLess,
    /// Rejected rows keep their contents.
    PoisonSkipped,
    /// One count of committed rows serves all sequences.
    CountIsGlobal,
    /// A ticket of an earlier round serves the current one.
    StaleIdAccepted,
    /// A failed verify counts as a finished one.
    VerifyErrorIgnored,
    /// An abort leaves the mark of a finished verify, so the next round commits what was aborted.
    VerifiedMarkKept,
    /// Two layers commit each other's states.
    LayersSwapped,
    /// A commit publishes every verified row.
    CommitsAllRows,
    /// The count of accepted proposals stands for that of committed rows.
    AcceptedForCommitted,
    /// A round begins without room for its rows.
    CapacityIgnored,
    /// A slot is released while its round is open.
    ReleasedWhileOpen,
    /// An abort restores the windows and not the states.
    AbortKeepsState,
    /// A commit's count is not held against the round's rows.
    CountUnchecked,
    /// A commit that failed halfway is left as it is.
    HalfCommitLeft,
    /// Rows past those that drafts are trained on are not verified.
    TrainedRowsOnly,
    /// A round that a panic drops stays as it is.
    UnwindSkipsAbort,
    /// An abort restores the checkpoint of slot 0.
    FirstCheckpointForAll,
    /// A sequence in doubt is used further.
    BrokenIsUsed,
    /// The accepted rows are folded into the state twice.
    FoldTwice,
    /// The fold is told the round's rows for the accepted ones.
    FoldAllRows,
    /// The fold reads the stash of slot 0.
    FirstStashForAll,
    /// The fold asks slot 0 whether its round stashed anything.
    FirstEngagedForAll,
}

impl Planted {
    /// Every one, by the name commands know it by.
    pub const ALL: &[(&str, Planted)] = &[
        ("conv_not_rolled_back", Planted::ConvNotRolledBack),
        ("kv_tail_read", Planted::KvTailRead),
        ("snapshot_late", Planted::SnapshotLate),
        ("second_commit_accepted", Planted::SecondCommitAccepted),
        ("drop_is_noop", Planted::DropIsNoop),
        ("slot_reuse_leaks", Planted::SlotReuseLeaks),
        ("one_layer_commits", Planted::OneLayerCommits),
        ("kv_commits_less", Planted::KvCommitsLess),
        ("conv_commits_less", Planted::ConvCommitsLess),
        ("poison_skipped", Planted::PoisonSkipped),
        ("count_is_global", Planted::CountIsGlobal),
        ("stale_id_accepted", Planted::StaleIdAccepted),
        ("verify_error_ignored", Planted::VerifyErrorIgnored),
        ("verified_mark_kept", Planted::VerifiedMarkKept),
        ("layers_swapped", Planted::LayersSwapped),
        ("commits_all_rows", Planted::CommitsAllRows),
        ("accepted_for_committed", Planted::AcceptedForCommitted),
        ("capacity_ignored", Planted::CapacityIgnored),
        ("released_while_open", Planted::ReleasedWhileOpen),
        ("abort_keeps_state", Planted::AbortKeepsState),
        ("count_unchecked", Planted::CountUnchecked),
        ("half_commit_left", Planted::HalfCommitLeft),
        ("trained_rows_only", Planted::TrainedRowsOnly),
        ("unwind_skips_abort", Planted::UnwindSkipsAbort),
        ("first_checkpoint_for_all", Planted::FirstCheckpointForAll),
        ("broken_is_used", Planted::BrokenIsUsed),
        ("fold_twice", Planted::FoldTwice),
        ("fold_all_rows", Planted::FoldAllRows),
        ("first_stash_for_all", Planted::FirstStashForAll),
        ("first_engaged_for_all", Planted::FirstEngagedForAll),
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Planted> {
        Planted::ALL.iter().find(|(known, _)| *known == name).map(|(_, planted)| *planted)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Planted::ALL.iter().find(|(_, planted)| *planted == self).map_or("?", |(name, _)| name)
    }
}
