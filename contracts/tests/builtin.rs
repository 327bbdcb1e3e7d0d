//! The shipped contracts load, are named after their files, and promise the clauses expected of them.

mod common;

use contracts::{
    AutoReject, ClauseKind, Contract, DType, Decisions, HOUSE_RULES, Need, clauses, contract,
};

fn all() -> impl Iterator<Item = &'static Contract> {
    contracts::builtin().iter().chain(contracts::canary())
}

fn ids(name: &str) -> Vec<String> {
    clauses(contract(name).expect(name)).into_iter().map(|clause| clause.id).collect()
}

#[test]
fn every_shipped_contract_loads() {
    if let Err(error) = contracts::check_builtin() {
        panic!("{error}");
    }
    let names: Vec<&str> = all().map(|contract| contract.contract.as_str()).collect();
    assert_eq!(
        names,
        [
            "gdn_decode",
            "gdn_chunk",
            "gdn_verify",
            "gdn_write_on_accept",
            "gdn_gates",
            "qkvz_deinterleave",
            "causal_conv1d",
            "draft_conv",
            "state_convert",
            "gated_rms_norm",
            "ple_gather",
            "argmax_rows",
            "row_topk",
            "state_scatter",
            "canary_row_sum"
        ]
    );
    for name in names {
        let text = contracts::source(name).expect("a source");
        assert!(text.contains(&format!("contract: {name}\n")) && text.starts_with("# "), "{name}");
        let read = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(read <= 150, "{name} is two contracts");
    }
    assert_eq!(contracts::family("gdn_chunk"), Some("linear_attention"));
    assert_eq!(contracts::family("canary_row_sum"), Some("canary"));
    assert!(contract("no_such_kernel").is_none());
}

#[test]
fn a_contract_survives_its_own_serialisation() {
    for contract in all() {
        let text = serde_json::to_string(contract).expect("json");
        let again =
            contracts::parse_contract(&text, "again").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(format!("{contract:?}"), format!("{again:?}"));
    }
}

#[test]
fn clause_ids_are_complete_and_distinct() {
    for contract in all() {
        let ids = ids(&contract.contract);
        let distinct: std::collections::HashSet<&String> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{}", contract.contract);
        for (rule, _) in HOUSE_RULES {
            assert!(ids.contains(&format!("house.{rule}")));
        }
    }
    let chunk = ids("gdn_chunk");
    for id in [
        "tolerance.o.f32",
        "drift.s.f32",
        "nan.o",
        "nan.s",
        "relations.split_anywhere",
        "requires.whole_groups",
        "rejects.state_read_as_f16",
        "rejects.auto.dtype.q",
        "rejects.auto.shape.cu_seqlens",
        "rejects.auto.stride.q",
        "rejects.auto.align.q",
        "rejects.auto.alias.s",
        "rejects.auto.alias.o",
        "mutants.missing_barrier",
    ] {
        assert!(chunk.iter().any(|known| known == id), "{id}");
    }
    for id in [
        "rejects.auto.stride.slot_of",
        "rejects.auto.align.g",
        "rejects.auto.alias.q",
        "rejects.auto.kind.q",
        "nan.q",
    ] {
        assert!(!chunk.iter().any(|known| known == id), "{id}");
    }
    assert!(ids("ple_gather").contains(&"rejects.auto.kind.scale".to_owned()));
}

#[test]
fn needs_name_what_is_missing() {
    for clause in clauses(contract("gdn_decode").expect("gdn_decode")) {
        let expected = match clause.id.as_str() {
            "house.guard" | "house.capture" => Need::Cuda,
            id if id.starts_with("mutants.") => Need::Nvrtc,
            _ => Need::Nothing,
        };
        assert_eq!(clause.needs, expected, "{}", clause.id);
        if let ClauseKind::AutoReject { what: AutoReject::Align, tensor } = &clause.kind {
            assert_eq!(clause.id, format!("rejects.auto.align.{tensor}"));
        }
    }
}

#[test]
fn a_class_applies_where_its_condition_can_hold() {
    let text = contracts::source("canary_row_sum").expect("a source").replace(
        "y: {all: {bound: {round_out: f32, terms: {abs_sum: {times: 256, unit: f32}}, floor: 1.0e-30}}}",
        "y:\n    narrow: {when: \"x in [f16, bf16]\", bits: {}}\n    wide: {when: \"x == f32\", bits: {}}",
    );
    let text = text.replace("{x: [f32]}", "{x: [f32, f16, bf16]}");
    let contract =
        contracts::parse_contract(&text, "test").unwrap_or_else(|error| panic!("{error}"));
    for (dtype, wide) in [(DType::F32, true), (DType::F16, false), (DType::BF16, false)] {
        let dtypes = Decisions::from_iter([("x".to_owned(), dtype)]);
        for clause in clauses(&contract) {
            let expected = match clause.id.as_str() {
                "tolerance.y.wide" => wide,
                "tolerance.y.narrow" => !wide,
                _ => true,
            };
            assert_eq!(clause.applies(&contract, &dtypes), expected, "{} for {dtype}", clause.id);
        }
    }
}

#[test]
fn the_class_in_force_follows_the_case() {
    let chunk = contract("gdn_chunk").expect("gdn_chunk");
    let case = common::sample(chunk, 1);
    let scope = contracts::CaseScope::new(chunk, &case);
    let io = case.dtypes["io"].name();
    assert_eq!(chunk.tolerance_of("o", &scope).map(|(class, _)| class), Some(io));
    assert_eq!(chunk.drift_of("s", &scope).map(|(class, _)| class), Some(io));
    assert!(chunk.drift_of("o", &scope).is_none() && chunk.tolerance_of("q", &scope).is_none());
    assert_eq!(Need::Cuda.missing(false, true), Some("cuda"));
    assert_eq!(Need::Nvrtc.missing(true, false), Some("nvrtc"));
    assert!(
        Need::Nothing.missing(false, false).is_none() && Need::Cuda.missing(true, false).is_none()
    );
}
