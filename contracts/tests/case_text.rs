//! Cases as YAML: every bit survives, broken texts are refused in words, no text panics.

mod common;

use common::{plain_sample, sample};
use contracts::case::{Found, hashed_bits};
use contracts::case_yaml::{read_case, write_case};
use contracts::{
    Case, Content, Contract, DType, Fill, Geometry, Layout, Poison, Schedule, StoreForm, contract,
};
use std::collections::BTreeMap;

fn read(text: &str) -> Result<Case, contracts::CaseError> {
    read_case(text, "case.yaml", &contract)
}

/// The same decisions and the same bits, whatever form the contents have.
#[track_caller]
fn assert_same(contract: &Contract, a: &Case, b: &Case) {
    let bare = |case: &Case| {
        let mut bare = case.clone();
        bare.tensors.values_mut().for_each(|tensor| tensor.content = Content::Output);
        bare
    };
    assert_eq!(bare(a), bare(b));
    for tensor in Geometry::of(contract, a).expect("legal").tensors {
        let (a, b) = (&a.tensors[&tensor.name].content, &b.tensors[&tensor.name].content);
        let hashed = |c: &Content| matches!(c, Content::Sparse { fill: Fill::Hashed { .. }, .. });
        if tensor.count() > 1 << 20 || hashed(a) {
            assert_eq!(a, b);
            continue;
        }
        for flat in 0..tensor.count() {
            let bits = |content: &Content| content.bits(tensor.dtype, flat);
            assert_eq!(bits(a), bits(b), "{}[{flat}]", tensor.name);
        }
    }
}

#[test]
fn sampled_cases_survive() {
    for contract in contracts::builtin().iter().chain(contracts::canary()) {
        for seed in 0..40 {
            let mut case = sample(contract, seed);
            if seed % 2 == 0 {
                let issue =
                    (seed % 4 == 0).then(|| "https://example.org/issues/12 \"#'é".to_owned());
                case.found =
                    Some(Found { clause: "tolerance.o.f32".into(), backend: "vm".into(), issue });
            }
            let text = write_case(&case, contract, Some("what it shows\n\u{1b}[1m: [x"));
            assert!(text.starts_with("# what it shows\n# [1m: [x\ncase: 1\n"));
            let again = read(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_same(contract, &case, &again);
            assert_eq!(write_case(&again, contract, None), write_case(&case, contract, None));
        }
    }
}

#[test]
fn nan_payloads_and_every_width_survive() {
    let argmax = contract("argmax_rows").expect("argmax_rows");
    for (dtype, rows) in [(DType::F32, 3), (DType::F16, 3), (DType::BF16, 3), (DType::F32, 0)] {
        for columns in [5, 2050] {
            let mut case = sample(argmax, 9);
            case.dtypes["x"] = dtype;
            case.dims["R"] = rows;
            case.dims["V"] = columns;
            let mut bytes = Vec::new();
            for index in 0..(rows * columns) as u64 {
                // NaN payloads, quiet and signalling, signed.
                let nan = dtype.poison(Poison::Signalling)
                    ^ (hashed_bits(1, index) & 3)
                    ^ (index & 1) << (8 * dtype.size_bytes() - 1);
                dtype.push_bytes(nan, &mut bytes);
            }
            case.tensors["x"].content = Content::Dense(bytes);
            case.tensors["x"].layout = Layout::RowPadded(7);
            let text = write_case(&case, argmax, None);
            assert_same(argmax, &case, &read(&text).unwrap_or_else(|error| panic!("{error}")));
        }
    }
}

#[test]
fn the_form_is_the_documented_one() {
    let decode = contract("gdn_decode").expect("gdn_decode");
    let mut case = plain_sample(decode, 4);
    for (name, size) in [("N", 2), ("Hk", 1), ("Hv", 1), ("Dk", 32), ("Dv", 32), ("slots", 3)] {
        case.dims[name] = size;
    }
    case.dtypes["io"] = DType::F16;
    case.lists["slot"] = vec![2, -1];
    case.poison = Poison::Quiet;
    case.schedule = Schedule::InOrder;
    case.stores["qkv"] = StoreForm::Packed { pad: 8 };
    case.stores["gates"] = StoreForm::Separate;
    case.stores["raw"] = StoreForm::Separate;
    for (name, tensor) in &mut case.tensors {
        tensor.layout = Layout::Dense;
        if matches!(tensor.content, Content::Dense(_) | Content::Sparse { .. }) {
            let at = if name == "k" { BTreeMap::from([(33, 0x3c00)]) } else { BTreeMap::new() };
            tensor.content = Content::Sparse { fill: Fill::Bits(0), at };
        }
    }
    case.tensors["s"].layout = Layout::OuterPadded(4);
    case.tensors["g"].layout = Layout::RowPadded(3);
    assert_eq!(
        write_case(&case, decode, None),
        "case: 1
contract: gdn_decode
version: 2
dtypes: {io: f16, state: f32}
options: {state_layout: vk, gate_form: log, alpha_clamp: none, head_map: block, qk_norm: none, output_gate: none, snapshot: none}
variants: {retention: registers, epilogue: fused}
dims: {N: 2, Hk: 1, Hv: 1, Dk: 32, Dv: 32, slots: 3}
lists: {slot: [2, -1]}
scalars: {scale: 0x3e000000, qk_eps: 0x3e000000, norm_eps: 0x3e000000, alpha_low: 0x3e000000, alpha_high: 0x3e000000}
stores: {qkv: {packed: 8}, gates: separate, raw: separate}
poison: quiet
tensors:
  slot_of: {derived: [2, -1]}
  q: {layout: dense, fill: 0x0000}
  k: {layout: dense, fill: 0x0000, at: {\"1,0,1\": 0x3c00}}
  v: {layout: dense, fill: 0x0000}
  g: {layout: {row_padded: 3}, fill: 0x00000000}
  beta: {layout: dense, fill: 0x00000000}
  s: {layout: {outer_padded: 4}, fill: 0x00000000}
  o: {layout: dense}
"
    );
}

fn good() -> String {
    let ple = contract("ple_gather").expect("ple_gather");
    let mut case = sample(ple, 2);
    case.dims["R"] = 7;
    case.dims["n"] = 2;
    case.lists["id"] = vec![6, -1];
    case.dtypes["out"] = DType::F32;
    case.poison = Poison::Quiet;
    case.schedule = Schedule::InOrder;
    for tensor in case.tensors.values_mut() {
        tensor.layout = Layout::Dense;
    }
    case.tensors["codes"].content =
        Content::Sparse { fill: Fill::Hashed { seed: 1 }, at: BTreeMap::from([(960, 0x38)]) };
    case.tensors["scale"].content =
        Content::Sparse { fill: Fill::Bits(0x3f80), at: BTreeMap::new() };
    write_case(&case, ple, None)
}

#[test]
fn an_order_of_blocks_is_written_where_it_was_drawn() {
    let in_order = good();
    assert!(!in_order.contains("schedule"), "{in_order}");
    let said = in_order.replace("poison: quiet", "poison: quiet\nschedule: in_order");
    assert_eq!(read(&said).expect("a case").schedule, Schedule::InOrder);
    for seed in [0, 17, u64::MAX] {
        let text = in_order.replace("poison: quiet", &format!("poison: quiet\nschedule: {seed}"));
        let case = read(&text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(case.schedule, Schedule::Seeded(seed));
        assert_eq!(write_case(&case, contract("ple_gather").expect("ple_gather"), None), text);
    }
}

#[test]
fn broken_texts_are_refused_in_words() {
    let good = good();
    assert!(read(&good).is_ok(), "{good}");
    for (from, to, expected) in [
        ("case: 1", "case: 2", "case.yaml:1: case: form 2 is unknown; write case: 1"),
        ("ple_gather", "ple_scatter", "case.yaml:2: contract: no contract is named `ple_scatter`"),
        (
            "version: 1",
            "version: 3",
            "case.yaml:3: version: the case is for version 3, the contract is 1; read the contract's history",
        ),
        (
            "poison: quiet",
            "poison: loud",
            "case.yaml:7: poison: unknown word `loud`; write one of quiet, signalling, large",
        ),
        (
            "poison: quiet",
            "poison: quiet\nschedule: -1",
            "case.yaml:8: schedule: `-1` is no order of blocks and warps; write in_order, or a seed",
        ),
        ("R: 7", "R: 7, Q: 1", "case.yaml:5: dims.Q: the contract has no `Q`"),
        ("R: 7, ", "", "case.yaml:5: dims.R: it is undecided; add `R:` to dims"),
        (
            "R: 7",
            "rows: 7",
            "case.yaml:5: dims.R: it is undecided, and the contract has no `rows`; write `R` for `rows`; where the \
             contract renamed it, a new version whose history says renamed: {dims.rows: dims.R} reads older cases so",
        ),
        (
            "id: [6, -1]",
            "id: [5, -1]",
            "case.yaml:11: tensors.ids: stored [6, -1], but its list gives [5, -1]",
        ),
        ("id: [6, -1]", "id: [6, 8]", "case.yaml:6: lists.id[1]: 8 is outside `R`"),
        (
            "\"6,0\": 0x38",
            "\"7,0\": 0x38",
            "case.yaml:9: tensors.codes.at: \"7,0\" lies outside the shape [7, 160]",
        ),
        (
            "\"6,0\": 0x38",
            "\"6,0\": 0x138",
            "case.yaml:9: tensors.codes: 0x138 has more bits than e4m3",
        ),
        (
            "fill: 0x3f80",
            "fill: 0x0000",
            "case.yaml:10: tensors.scale: the fill 0 (0x0) is outside the domain",
        ),
        (
            "fill: 0x3f80",
            "bits: \"3f8\"",
            "case.yaml:10: tensors.scale.bits: 3 digits for the shape [1]; write 4, 4 an element",
        ),
        (
            "fill: 0x3f80",
            "bits: \"3f8g\"",
            "case.yaml:10: tensors.scale.bits: `3f8g` is not hexadecimal",
        ),
        (
            "fill: 0x3f80",
            "fil: 0x3f80",
            "case.yaml:10: tensors.scale.fil: unknown field `fil`; write `fill`",
        ),
        (
            "fill: {hashed: 0x1}",
            "fill: {hash: 1}",
            "case.yaml:9: tensors.codes.fill: unknown field `hash`",
        ),
        (
            "status: {layout: dense}",
            "status: {layout: dense, fill: 0}",
            "case.yaml:13: tensors.status: the contents are of another sort",
        ),
        (
            "status: {layout: dense}",
            "state: {layout: dense}",
            "case.yaml:8: tensors.status: the tensor is missing",
        ),
    ] {
        assert_eq!(good.matches(from).count(), 1, "`{from}` in {good}");
        let found = read(&good.replace(from, to)).expect_err("no refusal").to_string();
        assert!(found.starts_with(expected), "expected {expected}\nfound    {found}");
    }
    let long = format!("{good}# {}", "x".repeat(contracts::case_yaml::CASE_LIMIT_BYTES));
    assert!(read(&long).expect_err("too long").to_string().contains("limit"));
}

#[test]
fn no_mutilated_text_panics() {
    let decode = contract("gdn_decode").expect("gdn_decode");
    let texts = [good(), write_case(&sample(decode, 7), decode, Some("header"))];
    for seed in 0..1500u64 {
        let draw = |n: u64, of: usize| hashed_bits(seed ^ 0x5eed, n) as usize % of.max(1);
        let mut text = texts[seed as usize % 2].clone().into_bytes();
        text.truncate(40_000);
        for edit in 0..1 + draw(0, 3) as u64 {
            let at = draw(3 * edit + 1, text.len().min(900));
            match draw(3 * edit + 2, 4) {
                0 => drop(text.remove(at)),
                1 => text.insert(at, b"{}[]:,-#\"'&*! \n0aZ%"[draw(3 * edit + 3, 19)]),
                2 => text[at] = b"0123456789"[draw(3 * edit + 3, 10)],
                _ => text.splice(at..at, b"99999999999".iter().copied()).for_each(drop),
            }
        }
        if let Ok(text) = String::from_utf8(text)
            && let Err(error) = read(&text)
        {
            assert!(!error.what.is_empty() && !error.remedy.is_empty(), "{error}");
        }
    }
}
