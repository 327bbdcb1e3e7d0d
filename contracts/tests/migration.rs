//! Cases of older versions under today's contract: what the history says is done, what it does not say
//! is refused by name, and nothing is guessed.

use contracts::case_yaml::{read_case, read_versioned, write_case};
use contracts::{Case, Content, Contract, parse_contract};

const TODAY: &str = "\
contract: scale_rows
version: 3
kind: kernel
summary: Each row times its factor.
spec: none
dtypes: {io: [f32, bf16]}
options:
  order: [first, final]
  bias_kind: [none, row]
variants:
  tile: {values: [32, 64], equal: bits}
dims:
  tokens: {range: [0, 4]}
  groups: {range: [1, 2]}
  D: {one_of: [2, 4]}
  padded: {is: \"align_up(tokens, 4)\"}
lists:
  group: {each: tokens, ids: {below: groups, repeats: true}}
  twice: {each: tokens, is: \"group * 2\"}
scalars:
  scale: {dtype: f32, domain: positive, values: [{constant: 1.0}]}
tensors:
  x: {access: read, dtype: io, shape: [tokens, groups, D], domain: any, values: [{normal: 1.0}]}
  bias: {access: read, when: \"bias_kind == row\", dtype: f32, shape: [D], domain: any, values: [zero]}
  group_of: {access: read, dtype: i32, shape: [tokens], from: {copy: group}}
  out: {access: write, dtype: io, shape: [tokens, D]}
  count: {access: write, dtype: i32, shape: [\"1\"]}
tolerance:
  out: {all: {bits: {}}}
  count: {all: {bits: {}}}
relations:
  rows_alone: {alone: {axis: tokens}, compare: bits}
history:
  - version: 2
    because: rows are tokens, the last row is the final one
    link: \"https://example.org/issues/9\"
    renamed: {dims.T: dims.tokens, tensors.y: tensors.out, options.order.last: options.order.final, relations.alone: relations.rows_alone}
    retired: {variants.plan: staged, scalars.unused: ~, tensors.shift: 0}
  - version: 3
    because: rows come in groups, and may have a bias
    link: \"https://example.org/issues/10\"
    added: {options.bias_kind: none, dims.groups: 1, lists.group: 0, scalars.scale: 0x3f800000, tensors.bias: 0}
    axis: [{tensor: x, at: 1, dim: groups}]
";

const OLD: &str = "\
case: 1
contract: scale_rows
version: 1
found: {clause: tolerance.y.all, backend: vm}
dtypes: {io: f32}
options: {order: last}
variants: {tile: 32, plan: staged}
dims: {T: 3, D: 2}
scalars: {unused: 0x7f}
poison: quiet
tensors:
  x: {layout: dense, fill: 0x3f800000, at: {\"2,1\": 0x40000000}}
  shift: {layout: dense, fill: 0x00000000}
  y: {layout: dense}
";

fn today() -> Contract {
    parse_contract(TODAY, "scale_rows.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn read(text: &str, contract: &Contract) -> Result<Case, String> {
    read_case(text, "case.yaml", &|name| (name == "scale_rows").then_some(contract))
        .map_err(|error| error.to_string())
}

/// Today's reading of the old case with one piece of it, or of the contract, replaced.
#[track_caller]
fn edited(case: (&str, &str), contract: (&str, &str)) -> Result<Case, String> {
    for (text, (from, _)) in [(OLD, case), (TODAY, contract)] {
        assert!(from.is_empty() || text.matches(from).count() == 1, "`{from}` is not one place");
    }
    let replaced = |text: &str, (from, to): (&str, &str)| {
        if from.is_empty() { text.to_owned() } else { text.replace(from, to) }
    };
    let contract = parse_contract(&replaced(TODAY, contract), "scale_rows.yaml");
    read(&replaced(OLD, case), &contract.unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn an_old_case_is_read_as_the_history_says_and_written_in_todays_form() {
    let contract = today();
    let case = read(OLD, &contract).unwrap_or_else(|error| panic!("{error}"));
    let written = "\
case: 1
contract: scale_rows
version: 3
found: {clause: tolerance.out.all, backend: vm}
dtypes: {io: f32}
options: {order: final, bias_kind: none}
variants: {tile: 32}
dims: {tokens: 3, groups: 1, D: 2, padded: 4}
lists: {group: [0, 0, 0], twice: [0, 0, 0]}
scalars: {scale: 0x3f800000}
poison: quiet
tensors:
  x: {layout: dense, fill: 0x3f800000, at: {\"2,0,1\": 0x40000000}}
  group_of: {derived: [0, 0, 0]}
  out: {layout: dense}
  count: {layout: dense}
";
    assert_eq!(write_case(&case, &contract, None), written);
    assert_eq!(read(written, &contract).as_ref(), Ok(&case));
    let lookup = |_: &str| Some(&contract);
    assert!(read_versioned(OLD, "", &lookup).expect("read").1);
    assert!(!read_versioned(written, "", &lookup).expect("read").1);
}

#[test]
fn a_case_of_the_version_between_takes_the_later_steps_alone() {
    let between = OLD
        .replace("version: 1", "version: 2")
        .replace("tolerance.y", "relations.rows_alone")
        .replace(".all, ", ", ")
        .replace("order: last", "order: final")
        .replace(", plan: staged", "")
        .replace("{T: 3", "{tokens: 3")
        .replace("scalars: {unused: 0x7f}\n", "")
        .replace("  shift: {layout: dense, fill: 0x00000000}\n", "")
        .replace("  y:", "  out:");
    let contract = today();
    let case = read(&between, &contract).unwrap_or_else(|error| panic!("{error}"));
    let old = read(OLD, &contract).expect("read");
    assert_eq!(Case { found: None, ..case }, Case { found: None, ..old });
}

#[test]
fn clauses_follow_the_names_they_hold() {
    let found = |clause: &str| {
        let case = edited(("tolerance.y.all", clause), ("", "")).expect("read");
        case.found.expect("found").clause
    };
    assert_eq!(found("relations.alone"), "relations.rows_alone");
    assert_eq!(found("drift.y.f32"), "drift.out.f32");
    assert_eq!(found("tolerance.yes.all"), "tolerance.yes.all", "another name that begins alike");
    assert_eq!(found("house.bounds"), "house.bounds");
}

#[test]
fn what_cannot_be_carried_over_says_why() {
    let refused = |case, contract, expected: &str| {
        let error = edited(case, contract).expect_err("it cannot be read");
        assert!(error.contains(expected), "{error}\nhas no\n{expected}");
    };
    // A retired choice with a word that means something else today.
    refused(
        ("plan: staged", "plan: fused"),
        ("", ""),
        "case.yaml:7: variants.plan: version 2 retired it for `staged`, and the case has `fused`; the case \
         cannot be carried over: write one for today's contract, or remove the file",
    );
    refused(
        (
            "shift: {layout: dense, fill: 0x00000000}",
            "shift: {layout: dense, fill: 0x00000000, at: {\"0\": 1}}",
        ),
        ("", ""),
        "tensors.shift: version 2 retired it for `0`",
    );
    // A value that was removed without a word about it.
    refused(
        ("order: last", "order: sorted"),
        ("", ""),
        "options.order: `sorted` is no value of `order`; write one of first, final",
    );
    // An addition without an old value.
    refused(
        ("", ""),
        ("added: {options.bias_kind: none, ", "added: {"),
        "options.bias_kind: it is undecided; add `bias_kind:` to options",
    );
    // A renamed dim that the history does not mention.
    refused(
        ("", ""),
        ("renamed: {dims.T: dims.tokens, ", "renamed: {"),
        "lists.group: the history gives one value for all, and the list's axis has no size; add the dim first",
    );
    refused(
        ("{T: 3", "{tokens: 3, T: 3"),
        ("", ""),
        "dims.tokens: the history renames `T` to `tokens`, and the case has both; keep one of the two",
    );
    refused(
        ("order: last", "order: last, bias_kind: row"),
        ("", ""),
        "options.bias_kind: an older version of the contract had no `bias_kind`",
    );
    refused(
        ("", ""),
        ("dims.groups: 1", "dims.groups: 2"),
        "tensors.x: version 3 gave it the axis `groups` of extent 1; add `dims.groups: 1`",
    );
}

#[test]
fn a_version_the_history_is_silent_about_is_named() {
    let silent = TODAY.replace("version: 3\nkind", "version: 4\nkind");
    let contract = parse_contract(&silent, "scale_rows.yaml").expect("it loads");
    let error = read(OLD, &contract).expect_err("silent");
    assert!(
        error.contains("case.yaml:3: version: the contract's history does not say what version 4 changed; add an entry"),
        "{error}"
    );
    let later = OLD.replace("version: 1", "version: 9");
    let error = read(&later, &contract).expect_err("a case of the future");
    assert!(error.contains("version: the case is for version 9, the contract is 4"), "{error}");
    let said =
        silent.clone() + "  - {version: 4, because: a tolerance became a bound, link: none}\n";
    let contract = parse_contract(&said, "scale_rows.yaml").expect("it loads");
    assert_eq!(read(OLD, &contract).expect("nothing to do").version, 4);
}

#[test]
fn nonsense_under_an_old_version_is_refused_and_never_panics() {
    let contract = today();
    for (from, to) in [
        ("{T: 3, D: 2}", "3"),
        ("{T: 3, D: 2}", "{T: [3], D: 2}"),
        ("{T: 3, D: 2}", "{T: 99999999999999, D: 2}"),
        ("{T: 3, D: 2}", "{T: -1, D: 2}"),
        ("found: {clause: tolerance.y.all, backend: vm}", "found: 7"),
        ("found: {clause: tolerance.y.all, backend: vm}", "found: {clause: [1]}"),
        ("\"2,1\"", "\"2\""),
        ("\"2,1\"", "\"\""),
        ("\"2,1\"", "\",,,,\""),
        ("at: {\"2,1\": 0x40000000}", "at: 5"),
        ("version: 1", "version: 0"),
        ("version: 1", "version: -1"),
        ("version: 1", "version: 99999999999999999999"),
        ("options: {order: last}", "options: [order]"),
        ("options: {order: last}", "options: {order: {last: 1}}"),
    ] {
        assert_eq!(OLD.matches(from).count(), 1, "`{from}`");
        let error = read(&OLD.replace(from, to), &contract).expect_err(to);
        assert!(error.contains("case.yaml"), "{error}");
    }
}

#[test]
fn two_names_may_swap() {
    let swapped = TODAY.replace(
        "renamed: {dims.T: dims.tokens, tensors.y: tensors.out,",
        "renamed: {dims.T: dims.tokens, tensors.y: tensors.out, options.order: options.bias_kind, options.bias_kind: options.order,",
    );
    let swapped = swapped
        .replace("options.order.last: options.order.final, ", "")
        .replace("{options.bias_kind: none, ", "{");
    let contract = parse_contract(&swapped, "scale_rows.yaml").unwrap_or_else(|e| panic!("{e}"));
    let old = OLD.replace("{order: last}", "{order: none, bias_kind: final}");
    let case = read(&old, &contract).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (case.options["order"].as_str(), case.options["bias_kind"].as_str()),
        ("final", "none")
    );
    assert!(matches!(case.tensors["count"].content, Content::Output));
}

#[test]
fn a_history_that_leads_nowhere_is_refused() {
    let refused = |from: &str, to: &str, message: &str| {
        assert_eq!(TODAY.matches(from).count(), 1, "`{from}` is not one place");
        let error = parse_contract(&TODAY.replace(from, to), "bad.yaml").expect_err(to);
        let error = error.to_string();
        assert!(error.contains(message), "{error}\nhas no\n{message}");
    };
    refused(
        "dims.T: dims.tokens",
        "dims.T: dims.token",
        "history[0].renamed: the contract has no `dims.token`; name what it has, or say in a later entry",
    );
    refused(
        "dims.T: dims.tokens",
        "dims.T: options.order",
        "history[0].renamed: `dims.T` cannot become `options.order`",
    );
    refused(
        "options.order.last: options.order.final",
        "options.order.last: options.bias_kind.row",
        "history[0].renamed: `options.order.last` is a word of another choice",
    );
    refused(
        "retired: {variants.plan: staged",
        "retired: {variants.tile: 32",
        "`variants.tile` is still there",
    );
    refused(
        "scalars.unused: ~",
        "scalar.unused: ~",
        "`scalar.unused` begins with no section of a case; write `scalars`",
    );
    refused(
        "options.bias_kind: none",
        "options.bias_kind: ~",
        "history[1].added: `options.bias_kind` has no value; say what older cases meant",
    );
    refused(
        "options.bias_kind: none",
        "options.bias: none",
        "history[1].added: the contract has no `options.bias`",
    );
    refused("lists.group: 0", "lists: 0", "`lists` names nothing");
    refused(
        "{tensor: x, at: 1",
        "{tensor: z, at: 1",
        "history[1].axis: the contract has no `tensors.z`",
    );
    refused(
        "  - version: 2",
        "  - version: 1",
        "history[0].version: no case is older than version 1",
    );
}

/// A stored case as it was before gates, norms and snapshots became options.
const FIRST_VERSION: &str = "\
# nan.s: s[0, 1, 0, 0] expected NaN (0x7fc00000), observed 0 (0x00000000)
case: 1
contract: gdn_decode
version: 1
found: {clause: nan.s, backend: vm}
dtypes: {io: f32, state: f32}
options: {state_layout: vk, gate_form: log, head_map: block}
dims: {N: 1, Hk: 2, Hv: 4, Dk: 32, Dv: 32, slots: 1}
lists: {slot: [0]}
scalars: {scale: 0x3f800000}
stores: {qkv: separate, gates: separate}
poison: quiet
tensors:
  slot_of: {derived: [0]}
  q: {layout: dense, fill: 0x00000000}
  k: {layout: dense, fill: 0x00000000, at: {\"0,0,20\": 0x7fc00000}}
  v: {layout: dense, fill: 0x00000000}
  g: {layout: dense, fill: 0x00000000}
  beta: {layout: dense, fill: 0x00000000}
  s: {layout: dense, fill: 0x00000000}
  o: {layout: dense}
";

#[test]
fn a_case_of_the_first_gdn_decode_is_a_plain_step_today() {
    let decode = contracts::contract("gdn_decode").expect("gdn_decode");
    let case = read_case(FIRST_VERSION, "case.yaml", &|name| contracts::contract(name));
    let case = case.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(case.version, decode.version);
    for option in ["alpha_clamp", "qk_norm", "output_gate", "snapshot"] {
        assert_eq!(case.options[option], "none");
    }
    assert_eq!(
        (case.dims["Hv"], case.tensors["k"].content.bits(contracts::DType::F32, 20)),
        (4, 0x7fc0_0000)
    );
    assert!(!case.tensors.contains_key("snap") && !case.tensors.contains_key("w"));
    let text = write_case(&case, decode, None);
    assert_eq!(read_case(&text, "", &|name| contracts::contract(name)), Ok(case));
}
