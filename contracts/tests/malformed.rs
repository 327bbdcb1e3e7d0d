//! Malformed contracts: each refusal names line, path, what is wrong and what would be right.

use contracts::parse_contract;

const GOOD: &str = "\
contract: scale_rows
version: 1
kind: kernel
summary: Each row times its factor.
spec: none
dtypes: {io: [f32, bf16]}
options:
  order: [first, last]
variants:
  tile: {values: [32, 64], equal: bits}
dims:
  N: {range: [0, 4]}
  R: {segments: len, spare: [0, 2]}
  D: {one_of: [8, 16]}
  pool: {at_least: N, slack: [0, 1]}
lists:
  len: {each: N, length: {range: [0, 9], edges: [1]}}
  slot: {each: N, slots: {pool: pool, pad: [-1]}}
stores:
  xs: {along: R, holds: [x, w]}
tensors:
  x: {access: read, dtype: io, shape: [R, D], layout: [dense, row_padded], align: 8, domain: finite, values: [{normal: 1.0}]}
  w: {access: read, dtype: io, shape: [R, D], domain: finite, values: [ramp]}
  cu: {access: read, dtype: i32, shape: [\"N + 1\"], from: {prefix_sum: len}}
  s: {access: {by: {order: {first: read_write, last: write}}}, dtype: f32, shape: [pool, D], live: {by: slot}, domain: any, values: [zero]}
  y: {access: write, dtype: io, shape: [R, D]}
nan: {into: [x], reach: {y: row}}
tolerance:
  y:
    narrow: {when: \"io == bf16\", bound: {round_out: io, terms: {abs_sum: {times: 2, unit: io}}, floor: 0.0}}
    exact: {when: \"io == f32\", bits: {}}
  s: {all: {bits: {}}}
relations:
  alone: {alone: {axis: N}, compare: bits}
paths:
  vectors: {takes: fours, when: \"io == f32\", where: \"D % 16 == 0\", pieces: {x: 4}}
rejects:
  wide_x: {set_dtype: {x: f16}, error: dtype}
fixtures:
  one: {dims: {N: 1}, lists: {len: [3]}}
mutants:
  doubled: {killed_by: tolerance.y, with: one}
history: []
";

#[test]
fn the_good_contract_is_good() {
    if let Err(error) = parse_contract(GOOD, "good.yaml") {
        panic!("{error}");
    }
}

/// Replaces one piece of the good contract and expects exactly this message.
#[track_caller]
fn refused(from: &str, to: &str, message: &str) {
    assert_eq!(GOOD.matches(from).count(), 1, "`{from}` is not one place");
    let error = parse_contract(&GOOD.replace(from, to), "bad.yaml").expect_err("no refusal");
    assert_eq!(error.to_string(), message);
}

#[test]
fn form_is_refused_where_it_breaks() {
    refused(
        "x: {access: read, dtype: io, shape: [R, D], layout",
        "x: {acess: read, dtype: io, shape: [R, D], layout",
        "bad.yaml:22: tensors.x.acess: unknown field `acess`; write `access`",
    );
    refused(
        "kind: kernel",
        "kind: kernal",
        "bad.yaml:3: kind: unknown word `kernal`; write `kernel`",
    );
    refused("spec: none\n", "", "bad.yaml: `spec` is missing; add `spec:`");
    refused(
        "\n  D: {one_of",
        "\n\tD: {one_of",
        "bad.yaml:14: a tab indents the line; indent by blanks",
    );
    refused(
        "version: 1",
        "version: 99999999999999999999999",
        "bad.yaml:2: version: integer `99999999999999999999999` as u128 is not allowed here; write a map, \
         a list, a word or a number of at most 64 bits",
    );
    refused(
        "version: 1",
        "version: one",
        "bad.yaml:2: version: string \"one\" is not allowed here; write a whole number, 0 or more",
    );
    refused(
        "spec: none\n",
        "spec: none\nspec: none\n",
        "bad.yaml:6: duplicate key `spec`; keep one of the two",
    );
    refused(
        "spec: none",
        "spec: &a none",
        "bad.yaml:5: `&` begins an anchor, an alias or a tag; write the value out, or quote it",
    );
    refused(
        "[\"N + 1\"]",
        "[\"N + + 1\"]",
        "bad.yaml:24: tensors.cu.shape[0]: `N + + 1` is no expression: at byte 4: expected an integer, \
         a name, a call or `(`; see the format in the documentation of the crate `contracts`",
    );
}

#[test]
fn names_must_resolve() {
    refused(
        "shape: [pool, D], live",
        "shape: [pol, D], live",
        "bad.yaml:25: tensors.s.shape[0]: unknown name `pol`; write `pool`",
    );
    refused(
        "narrow: {when: \"io == bf16\"",
        "narrow: {when: \"io == f16\"",
        "bad.yaml:30: tolerance.y.narrow.when: `f16` is no value of `io`; write `bf16`",
    );
    refused(
        "narrow: {when: \"io == bf16\"",
        "narrow: {when: \"D == 8\"",
        "bad.yaml:30: tolerance.y.narrow.when: `D` is a size, and this condition ranges over choices only; \
         use options, variants and dtype symbols",
    );
    refused(
        "live: {by: slot}",
        "live: {by: len}",
        "bad.yaml:25: tensors.s.live.by: `len` does not select along this tensor's first axis; name a list \
         of slots or ids whose pool, whose axis, or the segments of whose axis, is the first axis",
    );
    refused(
        "holds: [x, w]",
        "holds: [x, z]",
        "bad.yaml:20: stores.xs.holds[1]: `z` is no tensor; write one of x, w, cu, s, y",
    );
    refused(
        "  D: {one_of",
        "  order: {one_of",
        "bad.yaml:14: dims.order: `order` already names another dtype symbol, option, variant, dim or list; \
         choose another name",
    );
    refused(
        "pool: {at_least: N",
        "pool: {at_least: \"largest(slot)\"",
        "bad.yaml:15: dims.pool: `pool` depends on itself, through others or directly; break the cycle: \
         decide one of them first",
    );
}

#[test]
fn a_path_names_one_word_of_an_entry_and_what_the_contract_has() {
    refused(
        "{takes: fours,",
        "{takes: fours, never: single,",
        "bad.yaml:36: paths.vectors: takes and never exclude each other; keep exactly one of takes, never",
    );
    refused(
        "{takes: fours,",
        "{",
        "bad.yaml:36: paths.vectors: no form is written; write exactly one of takes, never",
    );
    refused(
        "{takes: fours,",
        "{takes: in_fours,",
        "bad.yaml:36: paths.vectors: `in_fours` is no word of an entry's name; write letters and digits, what \
         stands between two `_`",
    );
    refused(
        "when: \"io == f32\", where",
        "when: \"D == 8\", where",
        "bad.yaml:36: paths.vectors.when: `D` is a size, and this condition ranges over choices only; use \
         options, variants and dtype symbols",
    );
    refused(
        "where: \"D % 16 == 0\", pieces",
        "where: \"D % 16\", pieces",
        "bad.yaml:36: paths.vectors.where: `D % 16` is an integer, not a condition; write an expression that is a \
         condition",
    );
    refused(
        "pieces: {x: 4}",
        "pieces: {z: 4}",
        "bad.yaml:36: paths.vectors.pieces.z: `z` is no tensor; write one of x, w, cu, s, y",
    );
}

#[test]
fn exactly_one_form_is_written() {
    refused(
        "D: {one_of: [8, 16]}",
        "D: {one_of: [8, 16], range: [0, 1]}",
        "bad.yaml:14: dims.D: range and one_of exclude each other; keep exactly one of range, one_of, \
         multiple_of, at_least, is, segments",
    );
    refused(
        "D: {one_of: [8, 16]}",
        "D: {}",
        "bad.yaml:14: dims.D: no form is written; write exactly one of range, one_of, multiple_of, at_least, \
         is, segments",
    );
    refused(
        "D: {one_of: [8, 16]}",
        "D: {one_of: [8, 16], slack: [0, 1]}",
        "bad.yaml:14: dims.D.slack: `slack` belongs to `at_least`; remove it or write `at_least`",
    );
    refused(
        "{when: \"io == f32\", bits: {}}",
        "{when: \"io == f32\"}",
        "bad.yaml:31: tolerance.y.exact: no form is written; write exactly one of bits, bound",
    );
    refused(
        "{set_dtype: {x: f16}, error: dtype}",
        "{set_dtype: {x: f16, w: f16}, error: dtype}",
        "bad.yaml:38: rejects.wide_x: 2 edits; write exactly one of set_dtype, set_shape, set_stride, \
         set_dim, with one entry",
    );
}

#[test]
fn tolerances_cover_each_choice_once() {
    refused(
        "exact: {when: \"io == f32\", bits",
        "exact: {when: \"io in [f32, bf16]\", bits",
        "bad.yaml:29: tolerance.y: narrow and exact all admit io: bf16; narrow their `when` until one remains",
    );
    refused(
        "dtypes: {io: [f32, bf16]}",
        "dtypes: {io: [f32, bf16, f16]}",
        "bad.yaml:29: tolerance.y: no class admits io: f16; widen a `when`, or add a class",
    );
    refused(
        "  s: {all: {bits: {}}}\n",
        "",
        "bad.yaml:25: tensors.s: the written tensor `s` has no tolerance; add `s:` under `tolerance:`",
    );
    refused(
        "  s: {all: {bits: {}}}\n",
        "  s: {all: {bits: {}}}\n  w: {all: {bits: {}}}\n",
        "bad.yaml:33: tolerance.w: a tensor that is only read cannot be judged; remove it",
    );
    refused(
        "floor: 0.0",
        "floor: -1.0",
        "bad.yaml:30: tolerance.y.narrow.bound.floor: -1 is no coefficient; write a finite number, 0 or more",
    );
}

#[test]
fn tensors_are_consistent() {
    refused(
        "{order: {first: read_write, last: write}}",
        "{order: {first: read_write}}",
        "bad.yaml:25: tensors.s.access: `by` says nothing for `order: last`; add `last:`",
    );
    refused(
        "domain: finite, values: [ramp]",
        "domain: finite",
        "bad.yaml:23: tensors.w: values come from exactly one place; write `values:`, or name the tensor in \
         one joint generator",
    );
    refused(
        "domain: finite, values: [ramp]",
        "values: [ramp]",
        "bad.yaml:23: tensors.w: a tensor that is read has no `domain`; add `domain:`",
    );
    refused(
        "from: {prefix_sum: len}}",
        "from: {copy: len}}",
        "bad.yaml:24: tensors.cu.from: the contents of `len` do not have this shape; write shape: [\"N\"]",
    );
    refused(
        "from: {prefix_sum: len}}",
        "from: {prefix_sum: len}, domain: any}",
        "bad.yaml:24: tensors.cu.from: a derived tensor has values of its own; remove `domain`, `values` and \
         its joint generator",
    );
    refused(
        "align: 8",
        "align: 2",
        "bad.yaml:22: tensors.x.align: 2 is no alignment of this tensor; write a power of two, at least the \
         element's size and at most 256",
    );
    refused(
        "layout: [dense, row_padded]",
        "layout: [dense, rank0]",
        "bad.yaml:22: tensors.x.layout: `rank0` does not fit this shape; rank0 needs shape [\"1\"]; padded and \
         wide layouts need two axes, permuted three",
    );
    refused(
        "  w: {access: read, dtype: io",
        "  w: {access: read, dtype: f32",
        "bad.yaml:20: stores.xs.holds[1]: `w` has another dtype or first axis than the store; hold tensors of \
         dtype io whose first axis is R",
    );
}

#[test]
fn promises_mention_what_exists() {
    refused(
        "killed_by: tolerance.y",
        "killed_by: tolerance.z",
        "bad.yaml:42: mutants.doubled.killed_by: `tolerance.z` is no clause; write one of tolerance.y.narrow, \
         tolerance.y.exact, tolerance.s.all, nan.y, relations.alone, paths.vectors, rejects.wide_x, rejects.auto.dtype.x, \
         rejects.auto.shape.x, rejects.auto.stride.x, rejects.auto.align.x, rejects.auto.dtype.w, \
         rejects.auto.shape.w, rejects.auto.stride.w, rejects.auto.dtype.cu, rejects.auto.shape.cu, \
         rejects.auto.dtype.s, rejects.auto.shape.s, rejects.auto.stride.s, rejects.auto.alias.s, \
         rejects.auto.dtype.y, rejects.auto.shape.y, rejects.auto.stride.y, rejects.auto.alias.y, \
         house.accepts, house.bounds, house.initialised, house.races, house.barriers, house.budget, house.read_only, \
         house.dead_untouched, house.unread, house.written, house.poison_agree, house.repeat, house.schedule, house.guard, \
         house.capture",
    );
    refused(
        "with: one}",
        "with: two}",
        "bad.yaml:42: mutants.doubled.with: `two` is no fixture; write one of one",
    );
    refused(
        "{dims: {N: 1}, lists: {len: [3]}}",
        "{dims: {N: 2}, lists: {len: [3]}}",
        "bad.yaml:40: fixtures.one.lists.len: 1 elements, but N is 2; make the two agree",
    );
    refused(
        "{dims: {N: 1}, lists: {len: [3]}}",
        "{dims: {D: 9}}",
        "bad.yaml:40: fixtures.one.dims.D: 9 is no size of `D`; write one of [8, 16]",
    );
    refused(
        "reach: {y: row}",
        "reach: {x: row}",
        "bad.yaml:27: nan.reach.x: `x` is not written; name outputs",
    );
    refused(
        "alone: {alone: {axis: N}",
        "alone: {alone: {axis: M}",
        "bad.yaml:34: relations.alone.alone.axis: `M` is no dim; write one of N, R, D, pool",
    );
    refused(
        "{alone: {axis: N}, compare",
        "{same: {set: {order: sideways}}, compare",
        "bad.yaml:34: relations.alone.same.set.order: `sideways` is no value of `order`; write one of first, last",
    );
    refused(
        "{alone: {axis: N}, compare",
        "{copies: {of: s, into: y, by: slot}, compare",
        "bad.yaml:34: relations.alone.copies: the two outputs are not slots and rows of one type and shape; name an \
         output in the list's pool and one over the list's axis",
    );
    refused(
        "{alone: {axis: N}, compare",
        "{permute: {axis: R}, compare",
        "bad.yaml:34: relations.alone.permute.axis: `R` is the axis of no list, no list points into it, and its order is \
         not free; name an axis or a pool of a list, or an axis of inputs and outputs",
    );
    refused(
        "{alone: {axis: N}, compare",
        "{steps: {list: slot, carry: [s]}, compare",
        "bad.yaml:34: relations.alone.steps.list: `slot` has no lengths; name a list of `length`",
    );
    refused(
        "{alone: {axis: N}, compare",
        "{replay: {list: len, carry: [y]}, compare",
        "bad.yaml:34: relations.alone.replay.carry[0]: `y` is not updated in place; name read_write tensors",
    );
    refused(
        "{alone: {axis: N}, compare",
        "{heads: {of: N, with: R}, compare",
        "bad.yaml:34: relations.alone.heads.with: `R` is no multiple of `N`; name a dim that is `multiple_of: <of>`",
    );
    refused(
        "{alone: {axis: N}, compare",
        "{scale: {tensors: [cu], power: 1, outputs: [y]}, compare",
        "bad.yaml:34: relations.alone.scale.tensors[0]: `cu` holds no floating-point numbers to scale; name inputs under \
         tensors, outputs under outputs",
    );
    refused(
        "{alone: {axis: N}, compare",
        "{scale: {tensors: [x], power: 0, outputs: [y]}, compare",
        "bad.yaml:34: relations.alone.scale: nothing is scaled; name tensors, outputs and a power not 0",
    );
    refused(
        "{alone: {axis: N}, compare",
        "{recall: {change: gain}, compare",
        "bad.yaml:34: relations.alone.recall.change: `gain` is no scalar; name a scalar of this contract",
    );
    refused(
        "layout: [dense, row_padded], align: 8",
        "layout: [dense, permuted], align: 8",
        "bad.yaml:22: tensors.x.layout: `permuted` does not fit this shape; rank0 needs shape [\"1\"]; padded and wide \
         layouts need two axes, permuted three",
    );
    refused(
        "align: 8, domain: finite",
        "align: 8, domain: {by: {order: {first: finite}}}",
        "bad.yaml:22: tensors.x.domain: `by` says nothing for `order: last`; add `last:`",
    );
    refused(
        "{set_dtype: {x: f16}",
        "{set_dtype: {x: bf16}",
        "bad.yaml:38: rejects.wide_x.set_dtype.x: `x` may be bf16; name a type it must not have",
    );
    refused(
        "history: []",
        "except: {racing: no}",
        "bad.yaml:43: except: `racing` is no house rule; write one of written, poison_agree, repeat, schedule, capture",
    );
    refused(
        "history: []",
        "except: {races: two blocks add to one word}",
        "bad.yaml:43: except: `races` cannot be excepted: a run that breaks it ends there; write one of written, \
         poison_agree, repeat, schedule, capture",
    );
}

#[test]
fn a_history_that_excuses_nothing_is_refused() {
    let entry = |clauses: &str, link: &str| {
        format!(
            "history: [{{version: 1, clauses: [{clauses}], because: measured, link: \"{link}\"}}]"
        )
    };
    let issue = "https://example.org/issues/1";
    let good = GOOD.replace("history: []", &entry("tolerance.y.exact, dims.N", issue));
    parse_contract(&good, "good.yaml").expect("an entry that names clauses and an issue");
    // One version may have several entries; an older one after it may not come.
    let twice = "history: [{version: 1, because: a, link: b}, {version: 1, because: c, link: d}]";
    parse_contract(&GOOD.replace("history: []", twice), "good.yaml").expect("two of one version");
    refused(
        "history: []",
        &entry("tolerance", issue),
        "bad.yaml:43: history[0].clauses[0]: `tolerance` names no single clause; write it as `assay review` does: \
         tolerance.o.bf16, dims.T, regressions.<file>",
    );
    refused(
        "history: []",
        &entry("tolerance.*", issue),
        "bad.yaml:43: history[0].clauses[0]: `tolerance.*` names no single clause; write it as `assay review` does: \
         tolerance.o.bf16, dims.T, regressions.<file>",
    );
    refused(
        "history: []",
        &entry("dims.N", "later"),
        "bad.yaml:43: history[0].link: `later` is no link to an issue; write link: https://…, a weaker clause needs one",
    );
    refused(
        "{killed_by: tolerance.y, with: one}",
        "{killed_by: tolerance.y, equivalent: \" \"}",
        "bad.yaml:42: mutants.doubled.equivalent: no reason is given; say why no case can tell it from the kernel",
    );
}

#[test]
fn an_equivalent_mutant_is_no_clause() {
    let ids = |text: &str| {
        let contract = parse_contract(text, "good.yaml").expect("a contract");
        contracts::clauses(&contract).into_iter().map(|clause| clause.id).collect::<Vec<_>>()
    };
    let equivalent = GOOD.replace(
        "{killed_by: tolerance.y, with: one}",
        "{killed_by: tolerance.y, equivalent: 2 times 0 is 0}",
    );
    assert!(ids(GOOD).contains(&"mutants.doubled".to_owned()));
    assert!(!ids(&equivalent).contains(&"mutants.doubled".to_owned()));
}

#[test]
fn no_mutilated_text_panics() {
    let bytes = GOOD.as_bytes();
    for seed in 0..2000u64 {
        let draw = |n: u64, of: usize| contracts::case::hashed_bits(seed, n) as usize % of.max(1);
        let mut text = bytes.to_vec();
        for edit in 0..1 + draw(0, 3) as u64 {
            let at = draw(3 * edit + 1, text.len());
            match draw(3 * edit + 2, 3) {
                0 if !text.is_empty() => drop(text.remove(at)),
                1 => text.insert(at, b"{}[]:,-#\"'&*! \n0aZ%"[draw(3 * edit + 3, 19)]),
                _ => text.truncate(at.max(1)),
            }
        }
        if let Ok(text) = String::from_utf8(text)
            && let Err(error) = parse_contract(&text, "cut.yaml")
        {
            assert!(!error.what.is_empty() && !error.remedy.is_empty(), "{error}");
        }
    }
}
