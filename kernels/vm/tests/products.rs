//! `mma.sync` on random small integers, whose sums are exact in every type and are computed apart here,
//! laid out by the fragment tables of the PTX ISA (section "Matrix Fragments for mma").

mod support;

use support::{Random, products};

/// How a type codes an integer.
#[derive(Clone, Copy)]
struct Code {
    name: &'static str,
    bits: usize,
    least: i32,
    most: i32,
    encode: fn(i32) -> u32,
}

const S8: Code = Code { name: "s8", bits: 8, least: -128, most: 127, encode: |x| x as u32 };
const U8: Code = Code { name: "u8", bits: 8, least: 0, most: 255, encode: |x| x as u32 };
const S4: Code = Code { name: "s4", bits: 4, least: -8, most: 7, encode: |x| x as u32 };
const U4: Code = Code { name: "u4", bits: 4, least: 0, most: 15, encode: |x| x as u32 };
const TF32: Code =
    Code { name: "tf32", bits: 32, least: -40, most: 40, encode: |x| (x as f32).to_bits() };
const F16: Code = Code { name: "f16", bits: 16, least: -8, most: 8, encode: f16 };

/// The f16 of an integer below 2048.
fn f16(x: i32) -> u32 {
    let bits = (x as f32).to_bits();
    let magnitude = if x == 0 { 0 } else { (bits >> 13 & 0x3ffff) - (112 << 10) };
    bits >> 16 & 0x8000 | magnitude
}

/// Row (or column) and k of element `i` of a lane's fragment: rows 0 to 7 and 8 to 15 take turns by register
/// for A of 16 rows, then k advances by what four lanes hold.
fn place(lane: usize, i: usize, bits: usize, rows: usize) -> (usize, usize) {
    let run = 32 / bits;
    let (register, within) = (i / run, i % run);
    let halves = rows / 8;
    (lane / 4 + 8 * (register % halves), lane % 4 * run + within + 4 * run * (register / halves))
}

fn pack(code: Code, registers: usize, at: impl Fn(usize, usize) -> i32, rows: usize) -> Vec<u32> {
    let mut words = vec![0u32; 32 * registers];
    let run = 32 / code.bits;
    for lane in 0..32 {
        for i in 0..registers * run {
            let (line, k) = place(lane, i, code.bits, rows);
            let field = (code.encode)(at(line, k)) & (u32::MAX >> (32 - code.bits));
            words[lane * registers + i / run] |= field << (i % run * code.bits);
        }
    }
    words
}

/// Ten products of random integers; `start` draws C.
fn agrees(
    shape: &str,
    (rows, k): (usize, usize),
    (left, right): (Code, Code),
    sum: &str,
    start: fn(&mut Random) -> i32,
) {
    let saturate = sum == "s32.satfinite";
    let sum_type = sum.trim_end_matches(".satfinite");
    let cut = if saturate { "satfinite." } else { "" };
    let form = format!(
        "mma.sync.aligned.{shape}.row.col.{cut}{sum_type}.{}.{}.{sum_type}",
        left.name, right.name
    );
    let mut random = Random(0x6d6d61);
    for _ in 0..10 {
        let mut draw = |code: Code, n: usize| -> Vec<i32> {
            let span = (code.most - code.least + 1) as u32;
            (0..n).map(|_| code.least + (random.next() % span) as i32).collect()
        };
        let (a, b) = (draw(left, rows * k), draw(right, 8 * k));
        let c: Vec<i32> = (0..rows * 8).map(|_| start(&mut random)).collect();
        let expected = |row: usize, column: usize| -> u32 {
            let product = |n: usize| i64::from(a[row * k + n]) * i64::from(b[column * k + n]);
            let exact = (0..k).map(product).sum::<i64>() + i64::from(c[row * 8 + column]);
            match sum_type {
                "f32" => (exact as f32).to_bits(),
                "f16" => f16(exact as i32),
                _ if saturate => exact.clamp(i32::MIN.into(), i32::MAX.into()) as u32,
                _ => exact as u32,
            }
        };
        let a_words = rows * k * left.bits / 1024;
        let b_words = 8 * k * right.bits / 1024;
        let a_fragment = pack(left, a_words, |row, n| a[row * k + n], rows);
        let b_fragment = pack(right, b_words, |column, n| b[column * k + n], 8);
        // Sums: two neighbours of a row, then the row eight below.
        let encode = |x: i32| match sum_type {
            "f32" => (x as f32).to_bits(),
            "f16" => f16(x),
            _ => x as u32,
        };
        let halves = rows / 8;
        let sums = |of: &dyn Fn(usize, usize) -> u32| -> Vec<u32> {
            let each = |lane: usize, i: usize| of(lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2);
            let lanes = 0..32;
            if sum_type == "f16" {
                let word = |lane, i: usize| each(lane, 2 * i) | each(lane, 2 * i + 1) << 16;
                lanes.flat_map(|lane| (0..halves).map(move |i| word(lane, i))).collect()
            } else {
                lanes.flat_map(|lane| (0..2 * halves).map(move |i| each(lane, i))).collect()
            }
        };
        let c_fragment = sums(&|row, column| encode(c[row * 8 + column]));
        let per_lane = [a_words, b_words, c_fragment.len() / 32];
        let got = products(&form, per_lane, [&a_fragment, &b_fragment, &c_fragment])
            .unwrap_or_else(|e| panic!("{form}: {e}"));
        assert_eq!(got, sums(&expected), "{form}");
    }
}

fn small(random: &mut Random) -> i32 {
    (random.next() % 2001) as i32 - 1000
}

/// Within a few products of the ends of 32 bits.
fn at_the_ends(random: &mut Random) -> i32 {
    let near = (random.next() % 4096) as i32;
    if random.next() & 1 == 0 { i32::MAX - near } else { i32::MIN + near }
}

#[test]
fn bytes() {
    for (shape, size) in [("m8n8k16", (8, 16)), ("m16n8k16", (16, 16)), ("m16n8k32", (16, 32))] {
        for types in [(S8, S8), (U8, S8), (S8, U8), (U8, U8)] {
            agrees(shape, size, types, "s32", small);
        }
    }
}

#[test]
fn four_bit_integers() {
    for (shape, size) in [("m8n8k32", (8, 32)), ("m16n8k32", (16, 32)), ("m16n8k64", (16, 64))] {
        for types in [(S4, S4), (U4, S4), (S4, U4), (U4, U4)] {
            agrees(shape, size, types, "s32", small);
        }
    }
}

#[test]
fn integer_sums_wrap_unless_they_saturate() {
    for sum in ["s32", "s32.satfinite"] {
        agrees("m16n8k32", (16, 32), (S8, S8), sum, at_the_ends);
        agrees("m16n8k64", (16, 64), (U4, U4), sum, at_the_ends);
    }
}

#[test]
fn tf32_of_both_depths() {
    agrees("m16n8k4", (16, 4), (TF32, TF32), "f32", small);
    agrees("m16n8k8", (16, 8), (TF32, TF32), "f32", small);
}

#[test]
fn f16_sums_of_both_depths() {
    agrees("m16n8k8", (16, 8), (F16, F16), "f16", small);
    agrees("m16n8k16", (16, 16), (F16, F16), "f16", small);
}
