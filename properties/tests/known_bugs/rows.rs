//! The kinds of bug, and the wrong kernel that shows each.

/// One kind of bug.
pub struct Bug {
    /// The kind.
    pub kind: &'static str,
    /// Stem of the stored case.
    pub slug: &'static str,
    /// What happened elsewhere; the head of the stored case.
    pub happened: &'static str,
    /// The wrong kernel.
    pub on: On,
    /// The clause that finds it, or the beginning of one.
    pub clause: &'static str,
}

/// A wrong kernel.
#[derive(Clone, Copy)]
pub enum On {
    /// A named mutant of a production kernel, in one entry of its module.
    Mutant { contract: &'static str, mutant: &'static str, entry: &'static str },
    /// A fault of a test kernel.
    Planted { kernel: &'static str, fault: &'static str },
}

impl On {
    /// The contract it breaks.
    pub fn contract(self) -> &'static str {
        match self {
            On::Mutant { contract, .. } => contract,
            On::Planted { kernel, .. } => kernel,
        }
    }

    /// Contract and mutant.
    pub fn name(self) -> String {
        match self {
            On::Mutant { contract, mutant, .. } => format!("{contract}.{mutant}"),
            On::Planted { kernel, fault } => format!("{kernel}.{fault}"),
        }
    }
}

/// Every kind that one launch, or a few alike, can show.
pub const ROWS: &[Bug] = &[
    Bug {
        kind: "tail read",
        slug: "tail_read",
        happened: "rows past the end of the last chunk are read",
        on: On::Mutant {
            contract: "gdn_chunk",
            mutant: "tail_unmasked",
            entry: "gdn_chunk_delta_h_f32_k32",
        },
        clause: "house.",
    },
    Bug {
        kind: "tail state",
        slug: "tail_state",
        happened: "the decay of a chunk's last row is taken from its last place, row or not",
        on: On::Mutant {
            contract: "gdn_chunk",
            mutant: "g_end_at_row_c",
            entry: "gdn_chunk_delta_h_f32_k32",
        },
        clause: "tolerance.s",
    },
    Bug {
        kind: "tail index",
        slug: "tail_index",
        happened: "an element behind the row takes part in its top-k",
        on: On::Mutant { contract: "row_topk", mutant: "reads_pad", entry: "row_topk_f32" },
        clause: "house.",
    },
    Bug {
        kind: "64-bit index",
        slug: "index_64",
        happened: "the offset of a row beyond 2^31 elements wraps",
        on: On::Mutant { contract: "ple_gather", mutant: "index_32_bit", entry: "ple_gather_f32" },
        clause: "house.",
    },
    Bug {
        kind: "strides",
        slug: "strides_rows",
        happened: "rows a stride apart are read as if they were dense",
        on: On::Mutant { contract: "argmax_rows", mutant: "rows_dense", entry: "argmax_rows_f32" },
        clause: "house.unread",
    },
    Bug {
        kind: "strides of packed rows",
        slug: "strides_packed",
        happened: "a slice of packed rows is taken for dense",
        on: On::Planted { kernel: "canary_rows", fault: "packed_rows" },
        clause: "house.",
    },
    Bug {
        kind: "poison in: padding of scales",
        slug: "poison_scale_padding",
        happened: "the padding of a scale buffer, which nobody writes, is read",
        on: On::Planted { kernel: "canary_experts", fault: "scale_pad" },
        clause: "house.unread",
    },
    Bug {
        kind: "poison in: NaN × 0",
        slug: "poison_masked_rows",
        happened: "masked rows are read and multiplied by zero: a NaN in one poisons the rest",
        on: On::Planted { kernel: "canary_rows", fault: "masked_row" },
        clause: "house.unread",
    },
    Bug {
        kind: "poison out",
        slug: "poison_out",
        happened: "a part of the output is left as it was",
        on: On::Mutant { contract: "ple_gather", mutant: "drops_tail", entry: "ple_gather_f32" },
        clause: "house.written",
    },
    Bug {
        kind: "domain",
        slug: "domain_lowest",
        happened: "a row of -inf has no largest element",
        on: On::Mutant { contract: "argmax_rows", mutant: "lowest_lost", entry: "argmax_rows_f32" },
        clause: "tolerance.ids",
    },
    Bug {
        kind: "ties",
        slug: "ties",
        happened: "of equal values another than the first is chosen",
        on: On::Mutant {
            contract: "argmax_rows",
            mutant: "ties_highest",
            entry: "argmax_rows_f32",
        },
        clause: "tolerance.ids",
    },
    Bug {
        kind: "capacity",
        slug: "capacity",
        happened: "candidates beyond a fixed buffer are dropped",
        on: On::Mutant { contract: "row_topk", mutant: "pool_overflows", entry: "row_topk_f32" },
        clause: "tolerance.",
    },
    Bug {
        kind: "grouping",
        slug: "grouping",
        happened: "value heads go to key heads by a wrong modulus",
        on: On::Mutant {
            contract: "gdn_decode",
            mutant: "block_cyclic",
            entry: "gdn_decode_f32_f32_k32",
        },
        clause: "tolerance.",
    },
    Bug {
        kind: "grouping, seen by groups alone",
        slug: "grouping_groups",
        happened: "heads beyond the second are treated otherwise",
        on: On::Planted { kernel: "canary_steps", fault: "heads_beyond_two" },
        clause: "relations.groups_alone",
    },
    Bug {
        kind: "expert layout",
        slug: "expert_layout",
        happened: "the scales of up are looked for behind whole blocks of gate",
        on: On::Planted { kernel: "canary_experts", fault: "split_padded" },
        clause: "tolerance.y",
    },
    Bug {
        kind: "race",
        slug: "race",
        happened: "a barrier between two steps of a block is missing; no value changes",
        on: On::Mutant { contract: "row_topk", mutant: "missing_barrier", entry: "row_topk_f32" },
        clause: "house.races",
    },
    Bug {
        kind: "race of blocks",
        slug: "race_blocks",
        happened: "the result depends on the order in which blocks arrive",
        on: On::Planted { kernel: "canary_steps", fault: "order_of_blocks" },
        clause: "house.schedule",
    },
    Bug {
        kind: "stale call",
        slug: "stale_call",
        happened: "a second call with another scale runs the first one's plan",
        on: On::Planted { kernel: "canary_steps", fault: "plan_remembered" },
        clause: "relations.other_scale",
    },
    Bug {
        kind: "graph",
        slug: "graph",
        happened: "a replay with other lengths reads the bound of the capture",
        on: On::Planted { kernel: "canary_steps", fault: "bound_kept" },
        clause: "relations.other_lengths",
    },
];

/// A kind that needs a history of events.
pub struct RoundBug {
    pub kind: &'static str,
    /// The wrong transaction.
    pub planted: &'static str,
    /// The stored history, under `corpora/speculative_round`.
    pub stored: &'static str,
}

pub const ROUNDS: &[RoundBug] = &[
    RoundBug {
        kind: "rollback of a state",
        planted: "snapshot_late",
        stored: "same_rows-669ec8f6",
    },
    RoundBug {
        kind: "rollback of a window",
        planted: "conv_not_rolled_back",
        stored: "same_rows-4b12a9c9",
    },
    RoundBug {
        kind: "reuse of a slot",
        planted: "slot_reuse_leaks",
        stored: "fresh_slot-8e1cc95d",
    },
];
