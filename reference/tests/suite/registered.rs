//! The registered references through their inputs: names, options, absent tensors, dead parts, bits.

use crate::draws::Draws;
use crate::gdn_inputs::{Gdn, Kda, f32_tensor, magnitude, measure, value};
use contracts::case::{Content, Fill, hashed_bits};
use contracts::dtype::DType;
use contracts::logical::Logical;
use reference::{Expected, Inputs, Outputs, canary_reference, reference};
use std::collections::BTreeMap;
use std::sync::Arc;

fn narrow(values: Vec<f64>) -> Vec<f32> {
    values.into_iter().map(|value| value as f32).collect()
}

fn gdn(seed: u64, rows: usize) -> Gdn {
    let mut draws = Draws::new(seed);
    Gdn {
        key_heads: 2,
        value_heads: 4,
        key_dim: 32,
        value_dim: 32,
        slots: 3,
        head_map: "block",
        q: narrow(draws.unit_rows(rows * 2, 32, 0.0)),
        k: narrow(draws.unit_rows(rows * 2, 32, 0.0)),
        v: narrow(draws.normals(rows * 4 * 32)),
        g: narrow(draws.uniforms(rows * 4, -0.5, 0.0)),
        beta: narrow(draws.uniforms(rows * 4, 0.0, 1.0)),
        s: narrow(draws.normals(3 * 4 * 32 * 32)),
        scale: 0.176_776_7,
    }
}

const SLOT: usize = 4 * 32 * 32;
const ROW: usize = 4 * 32;

fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

#[test]
fn gdn_chunk_of_one_row_each_is_gdn_decode() {
    for head_map in ["block", "cyclic"] {
        let gdn = Gdn { head_map, ..gdn(1, 3) };
        let slots = [2, -1, 0];
        let (chunk, decode) = (gdn.chunk("slot", &[1, 1, 1], &slots), gdn.decode(&slots));
        for tensor in ["o", "s"] {
            assert_eq!(value(&chunk, tensor), value(&decode, tensor));
            assert_eq!(magnitude(&chunk, tensor, "paths"), magnitude(&decode, tensor, "paths"));
        }
        assert!(value(&chunk, "o")[..ROW].iter().any(|o| o.abs() > 0.01));
    }
    let (block, cyclic) = (gdn(1, 3), Gdn { head_map: "cyclic", ..gdn(1, 3) });
    assert_ne!(block.decode(&[0, 1, 2]).tensors, cyclic.decode(&[0, 1, 2]).tensors);
}

/// With one decay for all channels of a head the rule is the gated delta rule's own.
#[test]
fn equal_decays_of_key_channels_are_one_decay() {
    let gdn = gdn(5, 70);
    let g = gdn.g.iter().flat_map(|g| std::iter::repeat_n(*g, gdn.key_dim)).collect();
    let kda = Kda(Gdn { g, ..gdn.clone() });
    let (of_heads, of_channels) =
        (gdn.chunk("slot", &[65, 5], &[0, 2]), kda.chunk("lb_sigmoid", &[65, 5], &[0, 2]));
    assert_eq!(of_heads.tensors, of_channels.tensors);
}

#[test]
fn log_decays_are_held_between_the_law_s_bound_and_zero() {
    let gdn = gdn(6, 1);
    let with = |g: f32| Kda(Gdn { g: vec![g; 4 * 32], ..gdn.clone() });
    let s = |g: f32, law: &str| value(&with(g).decode(law, &[0]), "s").to_vec();
    assert_eq!(s(-9.0, "lb_sigmoid"), s(-5.0, "softplus"), "held at the bound");
    assert_ne!(s(-9.0, "softplus"), s(-5.0, "softplus"), "softplus has none");
    for law in ["softplus", "lb_sigmoid"] {
        assert_eq!(s(3.0, law), s(0.0, law), "nothing grows");
    }
    assert!(s(f32::NAN, "lb_sigmoid")[..SLOT].iter().all(|s| s.is_nan()));
    // Channels decay apart: the first by a factor, the others not at all.
    let mut one = with(0.0);
    one.0.g[0] = -2.0;
    one.0.beta = vec![0.0; 4];
    let kept = value(&one.decode("softplus", &[0]), "s").to_vec();
    let old = widened(&gdn.s);
    for row in kept[..32 * 32].chunks(32).zip(old[..32 * 32].chunks(32)) {
        assert_eq!(row.0[0], libm::exp(-2.0) * row.1[0]);
        assert_eq!(row.0[1..], row.1[1..]);
    }
}

#[test]
fn an_empty_sequence_keeps_its_slot_or_ends_in_zero() {
    let gdn = gdn(2, 4);
    let kept = gdn.chunk("slot", &[0, 3], &[1, 0]);
    let old = widened(&gdn.s[SLOT..2 * SLOT]);
    assert_eq!(value(&kept, "s")[SLOT..2 * SLOT], old);
    let paths = &magnitude(&kept, "s", "paths")[SLOT..2 * SLOT];
    assert!(paths.iter().zip(&old).all(|(paths, s)| *paths == s.abs()));
    let alone = gdn.chunk("slot", &[3], &[0]);
    assert_eq!(value(&kept, "o"), value(&alone, "o"), "no row is spent on it");
    let zeroed = gdn.chunk("zero", &[0, 3], &[1, 0]);
    assert!(value(&zeroed, "s")[SLOT..2 * SLOT].iter().all(|s| *s == 0.0));
    assert!(value(&zeroed, "s")[..SLOT].iter().any(|s| *s != 0.0));
}

#[test]
fn a_zero_start_is_a_slot_of_zeros_whatever_the_slot_held() {
    let old = gdn(3, 70);
    let cleared = Gdn { s: vec![0.0; 3 * SLOT], ..old.clone() };
    let zero = old.chunk("zero", &[65, 5], &[0, 2]);
    assert_eq!(zero.tensors, cleared.chunk("slot", &[65, 5], &[0, 2]).tensors);
    assert_ne!(zero.tensors, old.chunk("slot", &[65, 5], &[0, 2]).tensors);
}

#[test]
fn measures_have_one_element_per_slot_and_head() {
    let gdn = gdn(4, 5);
    let outputs = gdn.chunk("slot", &[5], &[2]);
    for name in ["rounding_walk", "one_plus_gamma_32", "paths_ratio"] {
        let measure = measure(&outputs, "s", name);
        assert_eq!(measure.len(), 3 * 4);
        assert!(measure[8..].iter().all(|measure| *measure > 0.0), "{name}");
    }
    let decay: f64 = (0..5).map(|row| f64::from(gdn.g[row * 4 + 1])).sum();
    assert_eq!(measure(&outputs, "s", "one_plus_gamma_32")[9], 1.0 + decay.abs() / 32.0);
    assert!(measure(&outputs, "s", "paths_ratio")[8..].iter().all(|ratio| *ratio >= 1.0));
}

#[test]
#[should_panic(expected = "the reference reads list `slot`, which the inputs lack")]
fn a_missing_name_says_which() {
    let mut inputs = Inputs::default();
    inputs.lists.push(("slots".to_owned(), vec![0]));
    inputs.list("slot");
}

fn bits<'a>(outputs: &'a Outputs, tensor: &str) -> &'a [u64] {
    match outputs.tensor(tensor) {
        Some(Expected::Bits(bits)) => bits,
        other => panic!("{tensor} is not exact: {other:?}"),
    }
}

fn tensor(dtype: DType, shape: &[u64], elements: &[u64]) -> Logical {
    let mut bytes = Vec::new();
    elements.iter().for_each(|bits| dtype.push_bytes(*bits, &mut bytes));
    Logical::from_bytes(dtype, shape.to_vec(), bytes)
}

const TABLE_ROWS: u64 = 2_500_012;
const TABLE_SEED: u64 = 7;

/// A table that is never materialised; `at` overrides single codes.
fn gather(out: DType, scale: u64, ids: &[i64], at: &[(u64, u64)]) -> Outputs {
    gather_from(TABLE_ROWS, out, scale, ids, at)
}

fn gather_from(table_rows: u64, out: DType, scale: u64, ids: &[i64], at: &[(u64, u64)]) -> Outputs {
    let codes = Logical {
        dtype: DType::E4M3,
        shape: vec![table_rows, 160],
        content: Arc::new(Content::Sparse {
            fill: Fill::Hashed { seed: TABLE_SEED },
            at: at.iter().copied().collect::<BTreeMap<_, _>>(),
        }),
    };
    let id_bits: Vec<u64> = ids.iter().map(|id| *id as u64).collect();
    let inputs = Inputs {
        tensors: vec![
            ("codes".to_owned(), codes),
            ("scale".to_owned(), tensor(DType::BF16, &[], &[scale])),
            ("ids".to_owned(), tensor(DType::I64, &[ids.len() as u64], &id_bits)),
        ],
        dtypes: vec![("out".to_owned(), out)],
        ..Inputs::default()
    };
    reference("ple_gather").expect("ple_gather is registered")(&inputs)
}

const ONE_BF16: u64 = 0x3f80;

#[test]
fn ple_gather_reads_only_named_rows_of_a_virtual_table() {
    let last = TABLE_ROWS as i64 - 1;
    let outputs = gather(DType::F32, ONE_BF16, &[last, 0, last], &[]);
    let out = bits(&outputs, "out");
    assert_eq!(out.len(), 3 * 160);
    assert_eq!(out[..160], out[320..], "repeated ids repeat their row");
    for column in 0..160 {
        let code = hashed_bits(TABLE_SEED, last as u64 * 160 + column) & 0xff;
        let decoded = DType::E4M3.to_f64(code);
        let same = DType::F32.to_f64(out[column as usize]) == decoded;
        assert!(same || decoded.is_nan(), "column {column}");
    }
    assert_eq!(bits(&outputs, "status"), [0]);
}

#[test]
fn ple_gather_reaches_elements_beyond_32_bits() {
    let last = 40_000_000 - 1;
    // 1.0 in column 3 and 2.0 where a 32-bit index would land.
    let (there, wrapped) = (last * 160 + 3, (last * 160 + 3) & 0xffff_ffff);
    let at = [(there, 0x38), (wrapped, 0x40)];
    let outputs = gather_from(40_000_000, DType::F32, ONE_BF16, &[last as i64], &at);
    assert_eq!(bits(&outputs, "out")[3], 0x3f80_0000);
}

#[test]
fn ple_gather_zeroes_invalid_rows_and_reports_the_first() {
    let outputs = gather(DType::BF16, ONE_BF16, &[3, TABLE_ROWS as i64, -1, i64::MIN], &[]);
    assert_eq!(bits(&outputs, "status"), [2]);
    assert!(bits(&outputs, "out")[160..].iter().all(|bits| *bits == 0));
    assert!(bits(&outputs, "out")[..160].iter().any(|bits| *bits != 0));
    let none = gather(DType::BF16, ONE_BF16, &[], &[]);
    assert_eq!((bits(&none, "out").len(), bits(&none, "status")), (0, &[0][..]));
}

#[test]
fn ple_gather_rounds_once_to_each_type() {
    let codes: Vec<(u64, u64)> =
        (0..).zip([0x00, 0x80, 0x38, 0xb8, 0x7e, 0x01, 0x3b, 0x7f]).collect();
    let row = |out, scale| bits(&gather(out, scale, &[0], &codes), "out")[..8].to_vec();
    // −1: the sign of zero follows the product.
    assert_eq!(row(DType::F32, 0xbf80)[..4], [0x8000_0000, 0, 0xbf80_0000, 0x3f80_0000]);
    // 256 · 448 is beyond f16, 2⁻¹⁰⁰ below it.
    assert_eq!(row(DType::F16, 0x4380)[4], 0x7c00);
    assert_eq!(row(DType::F16, 0x0d80)[2..4], [0x0000, 0x8000]);
    assert_eq!(row(DType::F32, 0x0d80)[5], u64::from(2f32.powi(-109).to_bits()));
    // 1.375 · (1 + 3·2⁻⁷) = 1.375 + 33·2⁻¹⁰ lies between bf16 neighbours 180·2⁻⁷ and 181·2⁻⁷,
    // nearer the first; f16 holds it exactly.
    assert_eq!(row(DType::BF16, 0x3f83)[6], 0x3fb4);
    assert_eq!(row(DType::F16, 0x3f83)[6], 0x3c00 + 384 + 33);
    for out in [DType::F32, DType::F16, DType::BF16] {
        assert!(out.is_nan(row(out, ONE_BF16)[7]), "{out}: NaN codes stay NaN");
    }
}

fn argmax(x: Logical, value_kind: &str) -> Outputs {
    let inputs = Inputs {
        tensors: vec![("x".to_owned(), x)],
        options: vec![("value_kind".to_owned(), value_kind.to_owned())],
        ..Inputs::default()
    };
    reference("argmax_rows").expect("argmax_rows is registered")(&inputs)
}

#[test]
fn argmax_rows_returns_ids_and_the_chosen_element_as_f32() {
    // −0 +0 | −∞ NaN | NaN NaN | 1 65504, in f16.
    let x = [0x8000, 0x0000, 0xfc00, 0x7e00, 0x7e00, 0xfe00, 0x3c00, 0x7bff];
    let outputs = argmax(tensor(DType::F16, &[4, 2], &x), "f32");
    assert_eq!(bits(&outputs, "ids"), [0, 0, 0xffff_ffff, 1]);
    let largest = u64::from(65504f32.to_bits());
    assert_eq!(bits(&outputs, "values"), [0x8000_0000, 0xff80_0000, 0x7fff_ffff, largest]);
    let ids_only = argmax(tensor(DType::F16, &[4, 2], &x), "none");
    assert!(ids_only.tensor("values").is_none());
    assert_eq!(bits(&ids_only, "ids"), bits(&outputs, "ids"));
}

#[test]
fn argmax_rows_tells_neighbouring_values_apart() {
    for (dtype, one) in [(DType::F32, 0x3f80_0000), (DType::F16, 0x3c00), (DType::BF16, 0x3f80)] {
        let outputs = argmax(tensor(dtype, &[1, 4], &[one, one + 1, one + 1, one]), "f32");
        assert_eq!(bits(&outputs, "ids"), [1], "{dtype}");
        let value = f32::from_bits(bits(&outputs, "values")[0] as u32);
        assert_eq!(f64::from(value), dtype.to_f64(one + 1), "{dtype}");
    }
    assert!(bits(&argmax(tensor(DType::F32, &[0, 5], &[]), "none"), "ids").is_empty());
}

#[test]
fn canary_row_sum_sums_every_element() {
    let row: Vec<f32> = (0..131).map(|at| if at % 2 == 0 { 1.0 } else { -0.5 }).collect();
    let inputs = Inputs {
        tensors: vec![("x".to_owned(), f32_tensor(&[1, 131], &row))],
        ..Inputs::default()
    };
    let outputs = canary_reference("canary_row_sum").expect("it is registered")(&inputs);
    assert_eq!(value(&outputs, "y"), [66.0 - 32.5]);
    assert_eq!(magnitude(&outputs, "y", "abs_sum"), [66.0 + 32.5]);
}
