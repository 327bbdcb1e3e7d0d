//! The rows: what is planted, the clause or generator that must find it, and what it must let pass.

use crate::drive::Backing;
use crate::table::{Elsewhere, Off, Row};
use contracts::format::{LayoutKind, Values};

const CLEAN: Row = Row {
    form: "",
    kernel: "canary_rows",
    fault: "",
    does: "",
    near_miss: None,
    passes: "the kernel as it is",
    off: Off::Clauses(&[]),
    backing: Backing::Exact,
    dims: None,
};

/// Every form a test kernel shows.
pub const ROWS: &[Row] = &[
    Row {
        form: "tolerance.bits",
        fault: "sign_of_zero",
        does: "a copy loses the sign of -0",
        off: Off::Clauses(&["tolerance.y.all"]),
        ..CLEAN
    },
    Row {
        form: "tolerance.bound",
        fault: "weight_of_first",
        does: "the last column is weighted with the first weight",
        near_miss: Some("truncates"),
        passes: "rounds toward zero",
        off: Off::Clauses(&["tolerance.z.infinite", "tolerance.z.stops", "drift.z.all"]),
        ..CLEAN
    },
    Row {
        form: "tolerance.saturates",
        fault: "overflows",
        does: "past the largest number infinity where it should stop",
        off: Off::Clauses(&["tolerance.z.stops"]),
        ..CLEAN
    },
    Row {
        form: "tolerance.bound",
        fault: "saturates",
        does: "past the largest number it stops where infinity is promised",
        off: Off::Clauses(&["tolerance.z.infinite", "drift.z.all"]),
        ..CLEAN
    },
    Row {
        form: "drift",
        fault: "leans",
        does: "every product five unit roundoffs too large, within each bound",
        near_miss: Some("truncates"),
        passes: "rounds toward zero",
        off: Off::Clauses(&["drift.z.all"]),
        ..CLEAN
    },
    Row {
        form: "nan.exact",
        fault: "nan_dropped",
        does: "NaN is copied as 0",
        near_miss: Some("nan_payload"),
        passes: "NaN is copied with another payload",
        off: Off::Clauses(&["nan.y"]),
        ..CLEAN
    },
    Row {
        form: "nan.row",
        fault: "nan_other_head",
        does: "NaN reaches another head",
        near_miss: Some("nan_whole_row"),
        passes: "NaN fills its row",
        off: Off::Clauses(&["nan.z"]),
        ..CLEAN
    },
    Row {
        form: "nan.chunk",
        kernel: "canary_steps",
        fault: "nan_before",
        does: "NaN reaches the chunk before its own",
        near_miss: Some("nan_of_chunk"),
        passes: "NaN fills its chunk, earlier rows too",
        off: Off::Clauses(&["nan.o"]),
        ..CLEAN
    },
    Row {
        form: "relations.alone",
        kernel: "canary_steps",
        fault: "batch_variant",
        does: "rounds otherwise when there are several sequences",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise wherever it may",
        off: Off::Clauses(&["relations.sequences_alone"]),
        ..CLEAN
    },
    Row {
        form: "relations.split",
        kernel: "canary_steps",
        fault: "chunk_variant",
        does: "rounds the first two rows of a call otherwise",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise wherever it may",
        off: Off::Clauses(&["relations.split_at_two"]),
        ..CLEAN
    },
    Row {
        form: "relations.steps",
        kernel: "canary_steps",
        fault: "parity_of_row",
        does: "rounds every other row otherwise",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise wherever it may",
        off: Off::Clauses(&["relations.row_by_row"]),
        ..CLEAN
    },
    Row {
        form: "relations.permute",
        kernel: "canary_steps",
        fault: "place_of_state",
        does: "rounds otherwise for states in odd slots",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise wherever it may",
        off: Off::Clauses(&["relations.slots_anywhere"]),
        ..CLEAN
    },
    Row {
        form: "relations.heads",
        kernel: "canary_steps",
        fault: "heads_beyond_two",
        does: "rounds otherwise from the third head on",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise wherever it may",
        off: Off::Clauses(&["relations.groups_alone"]),
        ..CLEAN
    },
    Row {
        form: "relations.append_dead",
        kernel: "canary_steps",
        fault: "pitch_of_rows",
        does: "rounds otherwise where rows lie far apart",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise wherever it may",
        off: Off::Clauses(&["relations.dead_tail"]),
        ..CLEAN
    },
    Row {
        form: "relations.scale",
        kernel: "canary_steps",
        fault: "above_two",
        does: "rounds values above 2 otherwise",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise wherever it may",
        off: Off::Clauses(&["relations.four_times"]),
        ..CLEAN
    },
    Row {
        form: "relations.same",
        kernel: "canary_steps",
        fault: "second_variant",
        does: "one variant rounds otherwise",
        near_miss: Some("other_rounding"),
        passes: "every variant rounds otherwise",
        off: Off::Clauses(&["relations.other_pass"]),
        ..CLEAN
    },
    Row {
        form: "relations.same",
        kernel: "canary_steps",
        fault: "second_variant",
        does: "one variant rounds otherwise",
        near_miss: Some("nan_in_second"),
        passes: "one variant spreads NaN as far as the policy allows",
        off: Off::Clauses(&["relations.other_pass"]),
        ..CLEAN
    },
    Row {
        form: "relations.copies",
        kernel: "canary_steps",
        fault: "snapshot_apart",
        does: "the snapshot is computed apart from the state",
        off: Off::Clauses(&["relations.snapshot_is_s"]),
        ..CLEAN
    },
    Row {
        form: "relations.recall",
        kernel: "canary_steps",
        fault: "plan_remembered",
        does: "a cache of plans forgets the scalar",
        near_miss: Some("plan_remembered_whole"),
        passes: "a cache of plans keeps the whole call",
        off: Off::Clauses(&["relations.other_scale"]),
        ..CLEAN
    },
    Row {
        form: "relations.replay",
        kernel: "canary_steps",
        fault: "bound_kept",
        does: "a bound stored by the first launch holds for the next",
        near_miss: Some("bound_renewed"),
        passes: "each launch stores its own bound",
        off: Off::Clauses(&["relations.other_lengths"]),
        ..CLEAN
    },
    Row {
        form: "relations.equals",
        kernel: "canary_steps",
        fault: "exact_ignored",
        does: "rounds otherwise where the bits of another kernel are promised",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise where they are not",
        off: Off::Clauses(&["relations.row_kernel"]),
        ..CLEAN
    },
    Row {
        form: "paths.takes",
        kernel: "canary_step",
        fault: "fours_forgotten",
        does: "takes two columns at once where four are aligned",
        passes: "takes two or one where no more are aligned",
        off: Off::Clauses(&["paths.fours"]),
        ..CLEAN
    },
    Row {
        form: "paths.never",
        kernel: "canary_step",
        fault: "pairs_forgotten",
        does: "takes column by column where two are aligned",
        passes: "takes one where no two are aligned",
        off: Off::Clauses(&["paths.no_single"]),
        ..CLEAN
    },
    Row {
        form: "house.schedule",
        kernel: "canary_steps",
        fault: "order_of_blocks",
        does: "rounds otherwise where blocks arrive out of order",
        near_miss: Some("ticket_cleared"),
        passes: "counts the blocks that arrive",
        off: Off::Clauses(&["house.schedule"]),
        ..CLEAN
    },
    Row {
        form: "house.repeat",
        kernel: "canary_steps",
        fault: "ticket_kept",
        does: "leaves a counter for the next run",
        near_miss: Some("ticket_cleared"),
        passes: "clears its counter",
        off: Off::Clauses(&["house.repeat"]),
        ..CLEAN
    },
    Row {
        form: "house.capture",
        kernel: "canary_steps",
        fault: "order_of_blocks",
        does: "rounds otherwise where blocks arrive out of order, which replays do",
        near_miss: Some("ticket_cleared"),
        passes: "counts the blocks that arrive",
        off: Off::Clauses(&["house.capture"]),
        backing: Backing::Emulated,
        ..CLEAN
    },
    Row {
        form: "house.guard",
        fault: "past_status",
        does: "stores behind an output, outside every buffer",
        near_miss: Some("stores_twice"),
        passes: "stores every element twice",
        off: Off::Clauses(&["house.guard"]),
        backing: Backing::Emulated,
        ..CLEAN
    },
    Row {
        form: "house.accepts",
        fault: "refuses_seven",
        does: "refuses rows of seven columns",
        off: Off::Clauses(&["house.accepts"]),
        dims: Some(("C", 7)),
        ..CLEAN
    },
    Row {
        form: "house.bounds",
        fault: "past_the_ids",
        does: "reads the id after the last, and does not use it",
        off: Off::Clauses(&["house.bounds"]),
        ..CLEAN
    },
    Row {
        form: "house.initialised",
        fault: "stale_shared",
        does: "reads shared memory nobody stored to",
        near_miss: Some("reads_back"),
        passes: "reads an output after it is stored",
        off: Off::Clauses(&["house.initialised"]),
        ..CLEAN
    },
    Row {
        form: "house.races",
        fault: "no_barrier",
        does: "two warps store to one place of shared memory without a barrier",
        near_miss: Some("with_barrier"),
        passes: "one reads what the other stored, after a barrier",
        off: Off::Clauses(&["house.races"]),
        ..CLEAN
    },
    Row {
        form: "house.barriers",
        fault: "absent_lane",
        does: "a shuffle reads a lane that takes no part in it",
        near_miss: Some("present_lane"),
        passes: "a shuffle of half a warp",
        off: Off::Clauses(&["house.barriers"]),
        ..CLEAN
    },
    Row {
        form: "house.budget",
        fault: "endless",
        does: "never ends where rows have 17 columns",
        near_miss: Some("ends_late"),
        passes: "a thousand idle rounds",
        off: Off::Clauses(&["house.budget"]),
        dims: Some(("C", 17)),
        ..CLEAN
    },
    Row {
        form: "house.read_only",
        fault: "stores_weight",
        does: "stores to a weight what it holds",
        off: Off::Clauses(&["house.read_only"]),
        ..CLEAN
    },
    Row {
        form: "house.dead_untouched",
        fault: "stores_pad",
        does: "stores behind a row",
        off: Off::Clauses(&["house.dead_untouched"]),
        ..CLEAN
    },
    Row {
        form: "house.unread",
        fault: "masked_row",
        does: "reads rows nobody asked for, times 0",
        near_miss: Some("asked_rows"),
        passes: "reads the rows asked for again",
        off: Off::Clauses(&["house.unread"]),
        ..CLEAN
    },
    Row {
        form: "house.written",
        fault: "skips_last",
        does: "leaves the last element of a row",
        near_miss: Some("stores_twice"),
        passes: "stores every element twice",
        off: Off::Clauses(&["house.written", "house.poison_agree", "tolerance.y.all", "nan.y"]),
        ..CLEAN
    },
    Row {
        form: "house.poison_agree",
        fault: "poison_read",
        does: "one result depends on what rows hold that nobody asked for",
        near_miss: Some("asked_rows"),
        passes: "reads the rows asked for again",
        off: Off::Clauses(&["house.poison_agree"]),
        backing: Backing::Blind,
        ..CLEAN
    },
    Row {
        form: "requires",
        fault: "unchecked_pairs",
        does: "does not check what the contract requires",
        off: Off::Clauses(&["requires.pairs"]),
        ..CLEAN
    },
    Row {
        form: "rejects.set_dim",
        fault: "unchecked_columns",
        does: "accepts rows of no columns",
        off: Off::Clauses(&["rejects.no_columns"]),
        ..CLEAN
    },
    Row {
        form: "rejects.set_dtype",
        fault: "accepts_bf16",
        does: "accepts a multiplier of another type",
        off: Off::Clauses(&["rejects.a_as_bf16", "rejects.auto.dtype.a"]),
        ..CLEAN
    },
    Row {
        form: "rejects.set_shape",
        fault: "accepts_per_row",
        does: "accepts a multiplier a row",
        off: Off::Clauses(&["rejects.a_per_row", "rejects.auto.shape.a"]),
        ..CLEAN
    },
    Row {
        form: "rejects.set_stride",
        fault: "unchecked_stride",
        does: "does not check the distance of rows",
        off: Off::Clauses(&["rejects.short_pitch", "rejects.auto.stride.y"]),
        ..CLEAN
    },
    Row {
        form: "rejects.auto.stride",
        fault: "unchecked_stride",
        does: "does not check the distance of rows",
        off: Off::Clauses(&["rejects.short_pitch", "rejects.auto.stride.y"]),
        ..CLEAN
    },
    Row {
        form: "rejects.auto.dtype",
        fault: "unchecked_dtype",
        does: "does not check an output's type",
        off: Off::Clauses(&["rejects.auto.dtype.y"]),
        ..CLEAN
    },
    Row {
        form: "rejects.auto.shape",
        fault: "unchecked_shape",
        does: "does not check an output's shape",
        off: Off::Clauses(&["rejects.auto.shape.y"]),
        ..CLEAN
    },
    Row {
        form: "rejects.auto.align",
        fault: "unchecked_align",
        does: "accepts a misaligned base",
        off: Off::Clauses(&["rejects.auto.align.w"]),
        ..CLEAN
    },
    Row {
        form: "rejects.auto.kind",
        fault: "unchecked_kind",
        does: "accepts a scale of another kind",
        off: Off::Clauses(&["rejects.auto.kind.a"]),
        ..CLEAN
    },
    Row {
        form: "rejects.auto.alias",
        fault: "unchecked_alias",
        does: "accepts outputs that overlap other tensors",
        off: Off::Clauses(&[
            "rejects.auto.alias.y",
            "rejects.auto.alias.z",
            "rejects.auto.alias.status",
        ]),
        ..CLEAN
    },
    Row {
        form: "layout.row_padded",
        fault: "dense_rows",
        does: "takes rows a little apart for dense",
        off: Off::Layout("x", LayoutKind::RowPadded),
        ..CLEAN
    },
    Row {
        form: "layout.outer_padded",
        fault: "dense_out",
        does: "takes an output's rows for dense",
        off: Off::Layout("z", LayoutKind::OuterPadded),
        ..CLEAN
    },
    Row {
        form: "layout.offset",
        fault: "offset_ignored",
        does: "rounds a base down",
        off: Off::Layout("x", LayoutKind::Offset),
        ..CLEAN
    },
    Row {
        form: "layout.permuted",
        fault: "dense_inner",
        does: "takes the inner axes for dense",
        off: Off::Layout("x", LayoutKind::Permuted),
        ..CLEAN
    },
    Row {
        form: "layout.odd_unit_strides",
        fault: "stride_of_one",
        does: "adds the stride of an axis of one index",
        off: Off::Layout("x", LayoutKind::OddUnitStrides),
        ..CLEAN
    },
    Row {
        form: "layout.wide",
        fault: "index_32",
        does: "computes offsets in 32 bits",
        off: Off::Layout("x", LayoutKind::Wide),
        ..CLEAN
    },
    Row {
        form: "layout.rank0",
        fault: "refuses_rank0",
        does: "refuses a scalar tensor of rank 0",
        off: Off::Layout("a", LayoutKind::Rank0),
        ..CLEAN
    },
    Row {
        form: "stores.packed",
        fault: "packed_rows",
        does: "takes rows for dense between which another tensor lies",
        off: Off::Store("out"),
        ..CLEAN
    },
];

/// Generators of values: each reveals a fault that survives the same cases with plain values in its place.
pub const GENERATORS: &[Row] = &[
    Row {
        form: "specials",
        fault: "sign_of_zero",
        does: "a copy loses the sign of -0",
        off: Off::Values("x", &[Values::Normal(1.0), Values::Ramp]),
        ..CLEAN
    },
    Row {
        form: "specials",
        fault: "overflows",
        does: "past the largest number infinity where it should stop",
        off: Off::Values("x", &[Values::Normal(1.0), Values::NanPayloads]),
        ..CLEAN
    },
    Row {
        form: "nan_payloads",
        fault: "quiet_only",
        does: "a signalling NaN is copied as 0",
        near_miss: Some("nan_payload"),
        passes: "NaN is copied with another payload",
        off: Off::Values("x", &[Values::Normal(1.0), Values::Ramp]),
        ..CLEAN
    },
    Row {
        form: "distinct_mantissas",
        kernel: "canary_experts",
        fault: "split_padded",
        does: "takes another block's scale",
        off: Off::Values("s", &[Values::Constant(1.0)]),
        ..CLEAN
    },
    Row {
        form: "normal",
        fault: "weight_of_first",
        does: "takes another column's weight",
        near_miss: Some("truncates"),
        passes: "rounds toward zero",
        off: Off::Values("w", &[Values::Constant(1.0)]),
        ..CLEAN
    },
];

/// Forms shown by other tests.
pub const ELSEWHERE: &[Elsewhere] = &[Elsewhere {
    form: "mutants",
    file: "properties/tests/mutation.rs",
    test: "a_wrong_sum_is_killed_and_the_clause_is_named",
    why: "judged by `assay mutate --named`, which needs nvrtc; near-miss: `another_order_of_summation_survives`",
}];
