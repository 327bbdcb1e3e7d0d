//! `mma.sync` against an H200, bit for bit, on every kind of operand: any bits, ordinary numbers,
//! subnormals, the whole range of exponents, overflows, specials, cancellation. The hardware's answers
//! are `corpora/golden/mma_h200.safetensors`, written by `hardware/mma.py`, which draws the same operands.

mod support;

use safetensors::SafeTensors;
use support::products;

const TILES: usize = 1536;
/// Tiles whose every word is stored.
const FULL: usize = 72;
const KINDS: [&str; 12] = [
    "any bits",
    "ordinary",
    "subnormal a",
    "any normal",
    "overflowing",
    "specials",
    "subnormal a, large b",
    "cancelling",
    "tiny on a zero",
    "vanishing beside c",
    "zeros",
    "about the largest",
];

#[derive(Clone, Copy, PartialEq)]
enum Element {
    /// Total, exponent and mantissa bits.
    Float(u32, u32, u32),
    Bits,
    /// Near the ends of the range, so that sums saturate.
    High,
}
use Element::{Bits, Float, High};
const BF16: Element = Float(16, 8, 7);
const F16: Element = Float(16, 5, 10);
const F32: Element = Float(32, 8, 23);
const E4M3: Element = Float(8, 4, 3);
const E5M2: Element = Float(8, 5, 2);

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

/// splitmix64's finaliser.
fn mixed(key: u64) -> u64 {
    let x = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// One element: its kind goes by the tile's number. `operand` is 0, 1 or 2 for a, b, c.
fn float(random: u64, tile: usize, operand: usize, exponent_bits: u32, mantissa_bits: u32) -> u64 {
    let (ones, bias) = ((1u64 << exponent_bits) - 1, (1u64 << (exponent_bits - 1)) - 1);
    let (sign, mut mantissa) = (random >> 63, random & ((1 << mantissa_bits) - 1));
    let pick = random >> 32 & 0xffff;
    let near_one = bias - 3 + pick % 7;
    let large = ones - 1 - pick % 3;
    let c = operand == 2;
    let mut exponent = match tile % KINDS.len() {
        0 => ones & random >> mantissa_bits,
        2 => [0, near_one, pick % ones.min(30)][operand],
        3 => 1 + pick % (ones - 1),
        4 => large,
        6 => [0, large, 0][operand],
        7 => bias + pick % 2 + if c { 4 } else { 0 },
        8 => {
            if c {
                0
            } else {
                pick % 8
            }
        }
        9 if c => (bias + 20).min(ones - 10) + pick % 10,
        10 => {
            if c || pick & 8 == 0 {
                0
            } else {
                near_one
            }
        }
        11 => {
            if c {
                large
            } else {
                bias + bias / 2 + pick % 2
            }
        }
        _ => near_one,
    };
    if (tile % KINDS.len() == 8 && c) || (tile % KINDS.len() == 10 && exponent == 0) {
        mantissa = 0;
    }
    let rare = pick >> 3 & 7 == 0;
    match pick % 8 {
        _ if tile % KINDS.len() != 5 => {}
        0 => (exponent, mantissa) = (0, 0),
        1 => exponent = 0,
        5 => (exponent, mantissa) = (ones - 1, (1 << mantissa_bits) - 1),
        6 if rare => (exponent, mantissa) = (ones, 0),
        7 if rare => (exponent, mantissa) = (ones, mantissa | 1),
        _ => {}
    }
    sign << (exponent_bits + mantissa_bits) | exponent << mantissa_bits | mantissa
}

/// An operand's registers, tile after tile, lane after lane.
fn operand(form: usize, which: usize) -> Vec<u32> {
    let (_, counts, elements) = &FORMS[form];
    let mut words = Vec::with_capacity(TILES * 32 * counts[which]);
    for tile in 0..TILES {
        for lane in 0..32 {
            for register in 0..counts[which] {
                let key = form << 48 | which << 44 | tile << 20 | lane << 12 | register << 4;
                let draw = |part: u32| mixed(key as u64 | u64::from(part));
                words.push(match elements[which] {
                    Bits => draw(0) as u32,
                    High => {
                        let end = if draw(0) >> 40 & 1 == 1 { 0x7fff_ffff } else { 0x8000_0000 };
                        end ^ draw(0) as u32 & 0x3_ffff
                    }
                    Float(bits, exponent_bits, mantissa_bits) => (0..32 / bits)
                        .map(|part| {
                            let value =
                                float(draw(part), tile, which, exponent_bits, mantissa_bits);
                            (value as u32) << (bits * part)
                        })
                        .fold(0, |word, value| word | value),
                });
            }
        }
    }
    words
}

/// FNV-1a over the words' bytes.
fn digest(words: &[u32]) -> u64 {
    words.iter().flat_map(|word| word.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
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
