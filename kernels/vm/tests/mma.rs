//! `mma.sync` against an H200, bit for bit, on every kind of operand: any bits, ordinary numbers,
//! subnormals, the whole range of exponents, overflows, specials, cancellation. The hardware's answers
//! are `corpora/golden/mma_h200.safetensors`, written by `hardware/mma.py`, which draws the same operands.

mod support;

use safetensors::SafeTensors;
use support::drawn::Element::{self, Bits, High};
use support::drawn::{self, BF16, E4M3, E5M2, F16, F32, KINDS, digest};
use support::products;

const TILES: usize = 1536;
/// Tiles whose every word is stored.
const FULL: usize = 72;
/// Name, registers of a, b and c, and what they hold; in the order of `mma.py`.
const FORMS: [(&str, [usize; 3], [Element; 3]); 16] = [
    ("m16n8k16.f32.bf16.bf16.f32", [4, 2, 4], [BF16, BF16, F32]),
    ("m16n8k16.f32.f16.f16.f32", [4, 2, 4], [F16, F16, F32]),
    ("m16n8k16.f16.f16.f16.f16", [4, 2, 2], [F16, F16, F16]),
    ("m16n8k8.f32.bf16.bf16.f32", [2, 1, 4], [BF16, BF16, F32]),
    ("m16n8k8.f32.f16.f16.f32", [2, 1, 4], [F16, F16, F32]),
    ("m16n8k8.f16.f16.f16.f16", [2, 1, 2], [F16, F16, F16]),
    ("m16n8k8.f32.tf32.tf32.f32", [4, 2, 4], [F32, F32, F32]),
    ("m16n8k4.f32.tf32.tf32.f32", [2, 1, 4], [F32, F32, F32]),
    ("m16n8k32.f32.e4m3.e4m3.f32", [4, 2, 4], [E4M3, E4M3, F32]),
    ("m16n8k32.f32.e5m2.e5m2.f32", [4, 2, 4], [E5M2, E5M2, F32]),
    ("m16n8k32.f32.e4m3.e5m2.f32", [4, 2, 4], [E4M3, E5M2, F32]),
    ("m16n8k32.s32.s8.s8.s32", [4, 2, 4], [Bits, Bits, Bits]),
    ("m16n8k32.satfinite.s32.u8.s8.s32", [4, 2, 4], [Bits, Bits, High]),
    ("m16n8k16.s32.s8.u8.s32", [2, 1, 4], [Bits, Bits, Bits]),
    ("m16n8k64.s32.s4.s4.s32", [4, 2, 4], [Bits, Bits, Bits]),
    ("m16n8k32.s32.u4.s4.s32", [2, 1, 4], [Bits, Bits, Bits]),
];

/// An operand's registers, tile after tile, lane after lane.
fn operand(form: usize, which: usize) -> Vec<u32> {
    let (_, counts, elements) = &FORMS[form];
    let mut words = Vec::with_capacity(TILES * 32 * counts[which]);
    for tile in 0..TILES {
        for lane in 0..32 {
            for register in 0..counts[which] {
                let key = form << 48 | which << 44 | tile << 20 | lane << 12 | register << 4;
                words.push(drawn::word(elements[which], key as u64, tile, which));
            }
        }
    }
    words
}

/// Tiles of each kind that differ, and the first differing word that is stored.
fn compare(form: usize, golden: &SafeTensors<'_>) -> ([usize; KINDS.len()], Option<String>) {
    let (name, counts, _) = FORMS[form];
    let bytes =
        |part: &str| golden.tensor(&format!("{name}/{part}")).expect("stored").data().to_vec();
    let stored: Vec<u32> =
        bytes("d").as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
    let digests: Vec<u64> =
        bytes("digest").as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
    let operands = [0, 1, 2].map(|which| operand(form, which));
    let (shape, types) = name.split_once('.').expect("shape and types");
    let instruction = format!("mma.sync.aligned.{shape}.row.col.{types}");
    let d = products(&instruction, counts, operands.each_ref().map(Vec::as_slice))
        .unwrap_or_else(|stop| panic!("{instruction}: {stop}"));
    let per_tile = 32 * counts[2];
    assert_eq!((d.len(), stored.len(), digests.len()), (TILES * per_tile, FULL * per_tile, TILES));
    let mut wrong = [0; KINDS.len()];
    for (tile, words) in d.chunks_exact(per_tile).enumerate() {
        wrong[tile % KINDS.len()] += usize::from(digest(words) != digests[tile]);
    }
    let first = d.iter().zip(&stored).position(|(ours, theirs)| ours != theirs).map(|at| {
        let (tile, lane, register) = (at / per_tile, at % per_tile / counts[2], at % counts[2]);
        format!(
            "tile {tile} ({}), lane {lane}, register {register}: machine {:08x}, H200 {:08x}",
            KINDS[tile % KINDS.len()],
            d[at],
            stored[at]
        )
    });
    (wrong, first)
}

#[test]
fn every_product_has_the_bits_of_an_h200() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpora/golden/mma_h200.safetensors");
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let golden = SafeTensors::deserialize(&file).expect("a safetensors file");
    let mut failures = Vec::new();
    for (form, (name, ..)) in FORMS.iter().enumerate() {
        let (wrong, first) = compare(form, &golden);
        for (kind, wrong) in KINDS.iter().zip(wrong).filter(|(_, wrong)| *wrong > 0) {
            failures.push(format!("{name}: {wrong} of {} tiles, {kind}", TILES / KINDS.len()));
        }
        failures.extend(first);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
