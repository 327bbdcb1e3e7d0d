//! The rows: what is planted, the clause that must find it, and what it must let pass.

use crate::drive::{Backing, Shown};
use contracts::format::LayoutKind;
use std::fmt::Write as _;

/// One form of clause, shown.
pub struct Row {
    /// The form, as `forms::every_form` names it.
    pub form: &'static str,
    /// The test kernel.
    pub kernel: &'static str,
    /// The planted fault.
    pub fault: &'static str,
    /// What the fault does.
    pub does: &'static str,
    /// What looks like it and is right; the kernel as it is where nothing does.
    pub near_miss: Option<&'static str>,
    /// What the near-miss does.
    pub passes: &'static str,
    /// What is switched off to show that nothing else finds the fault.
    pub off: Off,
    /// Where it runs.
    pub backing: Backing,
    /// A dim held at one size, where the fault shows only there.
    pub dims: Option<(&'static str, i64)>,
    /// Whether blocks and warps run by number in every case.
    pub by_number: bool,
}

/// What is switched off.
#[derive(Clone, Copy)]
pub enum Off {
    /// Clauses; the first is the row's own, others promise the same of the same tensors.
    Clauses(&'static [&'static str]),
    /// A layout of a tensor.
    Layout(&'static str, LayoutKind),
    /// Packed rows of a store.
    Store(&'static str),
}

impl Row {
    /// Whether this clause may find the fault: the row's own, or any where a layout shows it.
    pub fn finds(&self, clause: &str) -> bool {
        match self.off {
            Off::Clauses(clauses) => clauses.contains(&clause),
            Off::Layout(..) | Off::Store(_) => true,
        }
    }

    fn clause(&self) -> String {
        match self.off {
            Off::Clauses(clauses) => format!("`{}`", clauses[0]),
            Off::Layout(tensor, kind) => format!("`{tensor}` {kind:?}"),
            Off::Store(store) => format!("`{store}` packed"),
        }
    }
}

/// A form that another test shows.
pub struct Elsewhere {
    /// The form.
    pub form: &'static str,
    /// The test's file.
    pub file: &'static str,
    /// The test.
    pub test: &'static str,
    /// Why it is not shown here.
    pub why: &'static str,
}

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
    by_number: false,
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
        form: "relations.alone",
        kernel: "canary_steps",
        fault: "batch_variant",
        does: "rounds otherwise when there are several sequences",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise always",
        off: Off::Clauses(&["relations.sequences_alone"]),
        ..CLEAN
    },
    Row {
        form: "relations.split",
        kernel: "canary_steps",
        fault: "chunk_variant",
        does: "rounds the first two rows of a call otherwise",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise always",
        off: Off::Clauses(&["relations.split_at_two"]),
        ..CLEAN
    },
    Row {
        form: "relations.steps",
        kernel: "canary_steps",
        fault: "parity_of_row",
        does: "rounds every other row otherwise",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise always",
        off: Off::Clauses(&["relations.row_by_row"]),
        ..CLEAN
    },
    Row {
        form: "relations.permute",
        kernel: "canary_steps",
        fault: "place_of_state",
        does: "rounds otherwise for states in odd slots",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise always",
        off: Off::Clauses(&["relations.slots_anywhere"]),
        ..CLEAN
    },
    Row {
        form: "relations.heads",
        kernel: "canary_steps",
        fault: "heads_beyond_two",
        does: "rounds otherwise from the third head on",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise always",
        off: Off::Clauses(&["relations.groups_alone"]),
        ..CLEAN
    },
    Row {
        form: "relations.append_dead",
        kernel: "canary_steps",
        fault: "pitch_of_rows",
        does: "rounds otherwise where rows lie far apart",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise always",
        off: Off::Clauses(&["relations.dead_tail"]),
        ..CLEAN
    },
    Row {
        form: "relations.scale",
        kernel: "canary_steps",
        fault: "above_two",
        does: "rounds values above 2 otherwise",
        near_miss: Some("other_rounding"),
        passes: "rounds otherwise always",
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
        does: "a value passes through shared memory without a barrier",
        near_miss: Some("with_barrier"),
        passes: "with one",
        off: Off::Clauses(&["house.races"]),
        // Where the reader comes first, it reads what nobody stored.
        by_number: true,
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

/// Forms shown by other tests.
pub const ELSEWHERE: &[Elsewhere] = &[
    Elsewhere {
        form: "relations.equals",
        file: "properties/src/check/tests.rs",
        test: "steps_through_the_decode_kernel_equal_the_prefill",
        why: "needs two contracts and an adapter between them",
    },
    Elsewhere {
        form: "nan.chunk",
        file: "properties/src/check/tests.rs",
        test: "nan_reaches_as_far_as_the_policy_says",
        why: "needs chunks of rows",
    },
    Elsewhere {
        form: "house.guard",
        file: "kernels/tests/cuda.rs",
        test: "a_store_beyond_a_buffer_is_found",
        why: "not exercisable here: needs cuda",
    },
    Elsewhere {
        form: "house.capture",
        file: "kernels/tests/cuda.rs",
        test: "both_backends_leave_the_same_arena",
        why: "not exercisable here: needs cuda",
    },
    Elsewhere {
        form: "mutants",
        file: "properties/tests/mutation.rs",
        test: "a_wrong_sum_is_killed_and_the_clause_is_named",
        why: "judged by `assay mutate --named`, which needs nvrtc",
    },
];

/// The table as Markdown.
pub fn document(shown: &[(usize, Shown)]) -> String {
    let mut out = String::from(
        "# What each form of clause catches\n\n\
         One row a form. Its fault, planted in a test kernel beside the canary, is found by this clause and \
         by no other; with the clause switched off it survives the same cases; the near-miss passes while \
         the clause is exercised. The figures are of 400 drawn cases, the same on every machine.\n\n\
         Written by `UPDATE_CLAUSES=1 cargo test --release -p properties --test clauses`, and checked \
         without it.\n\n\
         | form | clause | the fault | found after | the near-miss | exercised by it |\n\
         |---|---|---|---|---|---|\n",
    );
    for (place, shown) in shown {
        let row = &ROWS[*place];
        let _ = writeln!(
            out,
            "| `{}` | {} of {} | {} | {} | {} | {} |",
            row.form,
            row.clause(),
            row.kernel,
            row.does,
            shown.after,
            row.passes,
            shown.exercised
        );
    }
    out.push_str("\nShown by other tests:\n\n| form | test | why |\n|---|---|---|\n");
    for row in ELSEWHERE {
        let _ = writeln!(out, "| `{}` | `{}` of {} | {} |", row.form, row.test, row.file, row.why);
    }
    out
}
