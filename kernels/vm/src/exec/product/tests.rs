use super::super::warp::Words;
use super::*;
use crate::dispatch;

const SHAPES: [Shape; 4] = [Shape::Bf16K16, Shape::F16K16, Shape::Bf16K8, Shape::F16K8];

fn next(seed: &mut u64) -> u32 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 32) as u32
}

/// How the numbers of a tile are drawn.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// Near one.
    Calm,
    /// Any bits: huge, tiny, subnormal, infinite, no numbers.
    Wild,
    /// Any finite bits.
    Finite,
    /// Largest mantissas and exponents of either sign: sums overflow 31 bits.
    Heavy,
    /// Few powers of two that cancel.
    Cancelling,
    /// Mostly zeros of both signs.
    Sparse,
    /// Exponents that fall off along a row.
    Decaying,
    Subnormal,
}

const KINDS: [Kind; 8] = [
    Kind::Calm,
    Kind::Wild,
    Kind::Finite,
    Kind::Heavy,
    Kind::Cancelling,
    Kind::Sparse,
    Kind::Decaying,
    Kind::Subnormal,
];

/// A number of `mantissa` fraction bits whose largest exponent field is `fields`.
fn number(kind: Kind, seed: &mut u64, mantissa: u32, fields: u32, lane: usize) -> u32 {
    let random = next(seed);
    let fraction = random & ((1 << mantissa) - 1);
    let sign = ((random >> 31) * (fields + 1)) << mantissa;
    let one = fields / 2;
    let field = match kind {
        Kind::Calm => one - (random >> 24 & 3),
        Kind::Wild => random >> 23 & fields,
        Kind::Finite => (random >> 23 & fields).min(fields - 1),
        Kind::Heavy => return sign & random << 3 | one << mantissa | ((1 << mantissa) - 1),
        Kind::Cancelling => return sign | (one - (random >> 24 & 1)) << mantissa,
        Kind::Sparse if random >> 28 & 7 != 0 => return sign,
        Kind::Sparse => one - (random >> 20 & 0xff).min(one),
        Kind::Decaying => one.saturating_sub(lane as u32 % 4 * (one / 3) + (random >> 27 & 3)),
        Kind::Subnormal => random >> 26 & 1,
    };
    sign | field << mantissa | fraction
}

fn factors(kind: Kind, seed: &mut u64, brain: bool) -> Words {
    let (mantissa, fields) = if brain { (7, 0xff) } else { (10, 0x1f) };
    Words(std::array::from_fn(|lane| {
        let low = number(kind, seed, mantissa, fields, lane);
        low | number(kind, seed, mantissa, fields, lane) << 16
    }))
}

/// Runs one product on every build and one element at a time.
#[track_caller]
fn agree(warp: &mut Warp, operands: &mut Operands, shape: Shape, what: &str) -> usize {
    let brain = matches!(shape, Shape::Bf16K16 | Shape::Bf16K8);
    let depth = shape.registers().1 * 8;
    let half = |warp: &Warp, slot: usize, lane: usize, high: usize| {
        let code = warp.words[slot].0[lane] >> (16 * high) & 0xffff;
        f32::from_bits(if brain { code << 16 } else { crate::float::f16_to_f32(code) })
    };
    for vectors in dispatch::builds() {
        let (a, b, c, d) = ([0, 1, 2, 3], [4, 5], [6, 7, 8, 9], [10, 11, 12, 13]);
        let product = Product { shape, a, b, c, d };
        dispatch::product(vectors, warp, operands, &product, MatrixModel::H200);
        for (row, column) in (0..16).flat_map(|r| (0..8).map(move |c| (r, c))) {
            let (mut x, mut y) = ([0f32; 16], [0f32; 16]);
            for k in 0..depth {
                let from = (k % 8) / 2;
                x[k] = half(warp, row / 8 + 2 * (k / 8), row % 8 * 4 + from, k % 2);
                y[k] = half(warp, 4 + k / 8, column * 4 + from, k % 2);
            }
            let (r, lane) = (row / 8 * 2 + column % 2, row % 8 * 4 + column / 2);
            let start = f32::from_bits(warp.words[6 + r].0[lane]);
            let want = dot(&x, &y, start, lowest_field(brain));
            let got = warp.words[10 + r].0[lane];
            assert_eq!(
                got, want,
                "{what} {shape:?} {vectors:?} {row} {column}: {got:#x}, want {want:#x}\n{x:?}\n{y:?}\n{start}"
            );
        }
    }
    let (left, right) = (&operands.left, &operands.rights[2]);
    let exponents = portable::across(right);
    let odd = |row| portable::sums(left, right, &exponents, row, &[0; 8]).1.count_ones();
    (0..16).map(odd).sum::<u32>() as usize
}

#[test]
fn every_kind_of_tile_agrees_with_one_element_at_a_time() {
    let mut seed = 3;
    let mut operands = Operands::default();
    for round in 0..12 {
        for (i, kinds) in KINDS.iter().flat_map(|a| KINDS.map(|b| (*a, b))).enumerate() {
            for shape in SHAPES {
                let brain = matches!(shape, Shape::Bf16K16 | Shape::Bf16K8);
                let mut warp = Warp::default();
                let (a, b) = kinds;
                warp.words.extend((0..4).map(|_| factors(a, &mut seed, brain)));
                warp.words.extend((0..2).map(|_| factors(b, &mut seed, brain)));
                let c = KINDS[(i + round) % KINDS.len()];
                warp.words
                    .extend((0..4).map(|_| {
                        Words(std::array::from_fn(|l| number(c, &mut seed, 23, 0xff, l)))
                    }));
                warp.words.extend([Words([0; 32]); 4]);
                let what = format!("{kinds:?} {c:?} round {round}");
                agree(&mut warp, &mut operands, shape, &what);
            }
        }
    }
}

#[test]
fn ordinary_tiles_leave_nothing_over() {
    let mut seed = 11;
    let mut operands = Operands::default();
    for kind in [Kind::Calm, Kind::Cancelling, Kind::Sparse, Kind::Decaying] {
        let mut warp = Warp::default();
        warp.words.extend((0..4).map(|_| factors(kind, &mut seed, false)));
        warp.words.extend((0..2).map(|_| factors(kind, &mut seed, false)));
        warp.words.extend([Words([0; 32]); 8]);
        let slow = agree(&mut warp, &mut operands, Shape::F16K16, "ordinary");
        assert_eq!(slow, 0, "{kind:?}");
    }
}

#[test]
fn plain_products_add_in_the_order_of_k_on_every_build() {
    let mut seed = 17;
    let mut operands = Operands::default();
    let mut differs = 0;
    for (i, kinds) in KINDS.iter().flat_map(|a| KINDS.map(|b| (*a, b))).enumerate() {
        for shape in SHAPES {
            let brain = is_brain(shape);
            let depth = shape.registers().1 * 8;
            let mut warp = Warp::default();
            warp.words.extend((0..4).map(|_| factors(kinds.0, &mut seed, brain)));
            warp.words.extend((0..2).map(|_| factors(kinds.1, &mut seed, brain)));
            let c = KINDS[i % KINDS.len()];
            warp.words.extend(
                (0..4).map(|_| Words(std::array::from_fn(|l| number(c, &mut seed, 23, 0xff, l)))),
            );
            warp.words.extend([Words([0; 32]); 4]);
            let (a, b, c, d) = ([0, 1, 2, 3], [4, 5], [6, 7, 8, 9], [10, 11, 12, 13]);
            let product = Product { shape, a, b, c, d };
            // The factors stay, the model changes: nothing of one may serve the other.
            dispatch::product(None, &mut warp, &mut operands, &product, MatrixModel::H200);
            let exact: Vec<[u32; 32]> = warp.words[10..14].iter().map(|w| w.0).collect();
            for vectors in dispatch::builds() {
                dispatch::product(vectors, &mut warp, &mut operands, &product, MatrixModel::F32);
                for (row, column) in (0..16).flat_map(|r| (0..8).map(move |c| (r, c))) {
                    let half = |slot: usize, lane: usize, high: usize| {
                        f32::from_bits(f32_bits(brain, warp.words[slot].0[lane] >> (16 * high)))
                    };
                    let (r, lane) = (row / 8 * 2 + column % 2, row % 8 * 4 + column / 2);
                    let mut sum = f32::from_bits(warp.words[6 + r].0[lane]);
                    for k in 0..depth {
                        let x = half(row / 8 + 2 * (k / 8), row % 8 * 4 + k % 8 / 2, k % 2);
                        let y = half(4 + k / 8, column * 4 + k % 8 / 2, k % 2);
                        sum += x * y;
                    }
                    let (got, want) = (warp.words[10 + r].0[lane], crate::float::bits32(sum));
                    let same = got == want || got << 1 == 0 && want << 1 == 0;
                    assert!(
                        same,
                        "{kinds:?} {shape:?} {vectors:?} {row} {column}: {got:#x} {want:#x}"
                    );
                    differs += usize::from(got != exact[r][lane]);
                }
                dispatch::product(vectors, &mut warp, &mut operands, &product, MatrixModel::H200);
                let again: Vec<[u32; 32]> = warp.words[10..14].iter().map(|w| w.0).collect();
                assert_eq!(again, exact, "{kinds:?} {shape:?}");
            }
        }
    }
    assert!(differs > 1000, "the two models differ: {differs}");
}
