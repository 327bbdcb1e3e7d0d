//! The convolutions and the converter of states against their definitions, worked out here by random
//! access, on shapes that are no multiple of anything; and against a GPU's own roundings.

use crate::draws::Draws;
use crate::gdn_inputs::{f32_tensor, magnitude, value};
use contracts::dtype::DType;
use contracts::logical::Logical;
use reference::{Expected, Inputs, Outputs, reference};
use safetensors::SafeTensors;

fn run(name: &str, inputs: &Inputs) -> Outputs {
    reference(name).expect("it is registered")(inputs)
}

fn owned<const N: usize>(words: [(&str, &str); N]) -> Vec<(String, String)> {
    words.map(|(name, word)| (name.to_owned(), word.to_owned())).to_vec()
}

fn normals(draws: &mut Draws, count: usize) -> Vec<f32> {
    draws.normals(count).into_iter().map(|value| value as f32).collect()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * b.abs().max(1e-3)
}

fn bits<'a>(outputs: &'a Outputs, tensor: &str) -> &'a [u64] {
    match outputs.tensor(tensor) {
        Some(Expected::Bits(bits)) => bits,
        other => panic!("{tensor} is not bits: {other:?}"),
    }
}

// ---- causal_conv1d ----

const HEADS: usize = 3;
const DIM: usize = 2;
const CHANNELS: usize = HEADS * DIM;
const SLOTS: usize = 4;
const EPS: f64 = 0.25;
/// Rows of each sequence; the second is a pad, the third empty; two rows belong to nobody.
const LENGTHS: [usize; 4] = [2, 3, 0, 6];
const SLOT_OF: [i64; 4] = [3, -1, 0, 1];
const ROWS: usize = 13;

/// Inputs of every shape, and the words that say what is asked.
struct Conv {
    width: usize,
    kept: usize,
    biased: bool,
    silu: bool,
    normed_heads: Option<usize>,
    x: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    state: Vec<f32>,
}

impl Conv {
    fn new(
        width: usize,
        kept: usize,
        biased: bool,
        silu: bool,
        normed_heads: Option<usize>,
    ) -> Conv {
        let mut draws = Draws::new(11 * width as u64 + kept as u64);
        Conv {
            width,
            kept,
            biased,
            silu,
            normed_heads,
            x: normals(&mut draws, ROWS * CHANNELS),
            weight: normals(&mut draws, CHANNELS * width),
            bias: normals(&mut draws, CHANNELS),
            state: normals(&mut draws, SLOTS * CHANNELS * kept),
        }
    }

    fn run(&self, live_state: &str, snapshot: &str) -> Outputs {
        let mut tensors = vec![
            ("x".to_owned(), f32_tensor(&[ROWS, HEADS, DIM], &self.x)),
            ("weight".to_owned(), f32_tensor(&[HEADS, DIM, self.width], &self.weight)),
            ("state".to_owned(), f32_tensor(&[SLOTS, HEADS, DIM, self.kept], &self.state)),
        ];
        if self.biased {
            tensors.push(("bias".to_owned(), f32_tensor(&[HEADS, DIM], &self.bias)));
        }
        let inputs = Inputs {
            tensors,
            scalars: vec![
                ("eps".to_owned(), EPS),
                ("normed_heads".to_owned(), self.normed_heads.unwrap_or(HEADS) as f64),
            ],
            options: owned([
                ("bias", if self.biased { "given" } else { "none" }),
                ("activation", if self.silu { "silu" } else { "none" }),
                ("norm", if self.normed_heads.is_some() { "l2" } else { "none" }),
                ("live_state", live_state),
                ("snapshot", snapshot),
            ]),
            lists: vec![
                ("seq_len".to_owned(), LENGTHS.map(|length| length as i64).to_vec()),
                ("slot".to_owned(), SLOT_OF.to_vec()),
            ],
            ..Inputs::default()
        };
        run("causal_conv1d", &inputs)
    }

    /// Input `at` of a sequence's channel; below zero what its slot held, the last of it at −1.
    fn input(&self, first: usize, slot: usize, channel: usize, at: i64) -> f32 {
        match usize::try_from(at) {
            Ok(row) => self.x[(first + row) * CHANNELS + channel],
            Err(_) => {
                self.state
                    [(slot * CHANNELS + channel) * self.kept + (self.kept as i64 + at) as usize]
            }
        }
    }

    /// One output before a norm, with the sum of absolute products and the accumulator.
    fn output(&self, first: usize, slot: usize, channel: usize, row: usize) -> (f64, f64, f64) {
        let bias = if self.biased { f64::from(self.bias[channel]) } else { 0.0 };
        let (mut acc, mut absolute) = (bias, bias.abs());
        for tap in 0..self.width {
            let weight = f64::from(self.weight[channel * self.width + tap]);
            let at = row as i64 - self.width as i64 + 1 + tap as i64;
            let product = weight * f64::from(self.input(first, slot, channel, at));
            acc += product;
            absolute += product.abs();
        }
        (if self.silu { acc / (1.0 + libm::exp(-acc)) } else { acc }, absolute, acc)
    }
}

/// Calls f(sequence's first row, slot, row) for every row that is not a pad's.
fn each_row(mut f: impl FnMut(usize, usize, usize)) {
    let mut first = 0;
    for (length, slot) in LENGTHS.into_iter().zip(SLOT_OF) {
        for row in 0..length {
            if let Ok(slot) = usize::try_from(slot) {
                f(first, slot, row);
            }
        }
        first += length;
    }
}

fn every_conv() -> Vec<Conv> {
    let mut all = Vec::new();
    for width in [2, 3, 4] {
        for kept in [width - 1, width] {
            for (biased, silu) in [(false, false), (true, false), (false, true), (true, true)] {
                for normed_heads in [None, Some(0), Some(2), Some(7)] {
                    all.push(Conv::new(width, kept, biased, silu, normed_heads));
                }
            }
        }
    }
    all
}

#[test]
fn a_convolution_is_its_definition() {
    for conv in every_conv() {
        let outputs = conv.run("advanced", "none");
        let out = value(&outputs, "out");
        let of = |name| magnitude(&outputs, "out", name);
        let (taps, silu, norm) = (of("taps"), of("silu"), of("norm"));
        let normed = conv.normed_heads.map_or(0, |heads| heads.min(HEADS));
        each_row(|first, slot, row| {
            for head in 0..HEADS {
                let channels = head * DIM..(head + 1) * DIM;
                let parts: Vec<_> = channels
                    .clone()
                    .map(|channel| conv.output(first, slot, channel, row))
                    .collect();
                let square: f64 = parts.iter().map(|(y, ..)| y * y).sum();
                let length = (square + EPS).sqrt();
                let errors = |(y, absolute, acc): &(f64, f64, f64)| {
                    let slope = if conv.silu { 1.1 } else { 1.0 };
                    let of_silu = if conv.silu { (16.0 + 3.0 * acc.abs()) * y.abs() } else { 0.0 };
                    (slope * (conv.width as f64 + 2.0) * absolute, of_silu)
                };
                for (channel, part) in channels.zip(&parts) {
                    let at = (first + row) * CHANNELS + channel;
                    let (own_taps, own_silu) = errors(part);
                    if head >= normed {
                        assert!(near(out[at], part.0), "{} {}", out[at], part.0);
                        assert!(near(taps[at], own_taps) && near(silu[at], own_silu));
                        assert_eq!(norm[at], 0.0);
                        continue;
                    }
                    let y = part.0 / length;
                    let moved = |pick: fn((f64, f64)) -> f64| -> f64 {
                        parts.iter().map(|part| part.0.abs() * pick(errors(part))).sum::<f64>()
                            / length
                    };
                    assert!(near(out[at], y), "{} {y}", out[at]);
                    assert!(near(taps[at], (own_taps + y.abs() * moved(|e| e.0)) / length));
                    assert!(near(silu[at], (own_silu + y.abs() * moved(|e| e.1)) / length));
                    assert!(near(norm[at], 12.0 * y.abs()));
                }
            }
        });
    }
}

#[test]
fn windows_are_the_last_inputs_and_a_pads_slot_is_nobodys() {
    for conv in every_conv() {
        let outputs = conv.run("advanced", "each");
        let (state, snap) = (bits(&outputs, "state"), bits(&outputs, "snap"));
        let expect = |held: &[u64], first: usize, slot: usize, channel: usize, rows: usize| {
            for (j, bits) in held.iter().enumerate() {
                let at = rows as i64 - conv.kept as i64 + j as i64;
                let expected = conv.input(first, slot, channel, at);
                assert_eq!(
                    *bits,
                    u64::from(expected.to_bits()),
                    "W {} kept {}",
                    conv.width,
                    conv.kept
                );
            }
        };
        let window = |of: usize, channel: usize| {
            let begin = (of * CHANNELS + channel) * conv.kept;
            begin..begin + conv.kept
        };
        for channel in 0..CHANNELS {
            each_row(|first, slot, row| {
                expect(&snap[window(first + row, channel)], first, slot, channel, row + 1);
            });
            let mut first = 0;
            for (length, slot) in LENGTHS.into_iter().zip(SLOT_OF) {
                if let Ok(slot) = usize::try_from(slot) {
                    expect(&state[window(slot, channel)], first, slot, channel, length);
                }
                first += length;
            }
            expect(&state[window(2, channel)], 0, 2, channel, 0); // nobody's
        }
        let kept = conv.run("kept", "each");
        assert!(kept.tensor("state").is_none() && bits(&kept, "snap") == snap);
        assert!(conv.run("kept", "none").tensor("snap").is_none());
    }
}

#[test]
fn a_convolution_by_hand() {
    let mut conv = Conv::new(2, 1, true, false, None);
    conv.x[..CHANNELS].copy_from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    conv.x[CHANNELS..2 * CHANNELS].copy_from_slice(&[10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
    conv.weight.copy_from_slice(&[2.0, 3.0, 1.0, 0.0, 0.0, 1.0, -1.0, 1.0, 0.5, 0.25, 4.0, -4.0]);
    conv.bias.copy_from_slice(&[0.5, 0.0, -1.0, 0.0, 0.0, 2.0]);
    conv.state[3 * CHANNELS..].copy_from_slice(&[5.0, 7.0, 9.0, 11.0, 13.0, 15.0]);
    let outputs = conv.run("advanced", "none");
    assert_eq!(value(&outputs, "out")[..6], [13.5, 7.0, 2.0, -7.0, 7.75, 38.0]);
    assert_eq!(value(&outputs, "out")[6..12], [32.5, 2.0, 29.0, 36.0, 15.0, -214.0]);
    assert_eq!(magnitude(&outputs, "out", "taps")[..2], [4.0 * 13.5, 4.0 * 7.0]);
}

// ---- draft_conv ----

const BLOCKS: usize = 2;
const BLOCK_ROWS: usize = 3;
const GROUPS: usize = 2;
const GROUP: usize = 5;
const WIDTH: usize = GROUPS * GROUP;

struct Draft {
    x: Vec<f32>,
    base: Vec<f32>,
    coef: Vec<f32>,
    w: Vec<f32>,
    residual: Vec<f32>,
}

impl Draft {
    fn new() -> Draft {
        let mut draws = Draws::new(5);
        Draft {
            x: normals(&mut draws, BLOCKS * BLOCK_ROWS * WIDTH),
            base: normals(&mut draws, 4 * WIDTH),
            coef: normals(&mut draws, BLOCKS * BLOCK_ROWS * 4 * GROUPS),
            w: normals(&mut draws, 4 * GROUPS * WIDTH),
            residual: normals(&mut draws, BLOCKS * BLOCK_ROWS * WIDTH),
        }
    }

    fn run(&self, stage: &str, residual: &str) -> Outputs {
        let rows = [BLOCKS, BLOCK_ROWS, WIDTH];
        let mut tensors = vec![
            ("x".to_owned(), f32_tensor(&rows, &self.x)),
            ("base".to_owned(), f32_tensor(&[2, 2, WIDTH], &self.base)),
        ];
        tensors.push(if stage != "project" {
            let shape = [BLOCKS, BLOCK_ROWS, 2, 2, GROUPS];
            ("coef".to_owned(), f32_tensor(&shape, &self.coef))
        } else {
            ("w".to_owned(), f32_tensor(&[4 * GROUPS, WIDTH], &self.w))
        });
        if residual == "added" {
            tensors.push(("residual".to_owned(), f32_tensor(&rows, &self.residual)));
        }
        let inputs = Inputs {
            tensors,
            dtypes: vec![("io".to_owned(), DType::F32)],
            options: owned([("stage", stage), ("residual", residual)]),
            ..Inputs::default()
        };
        run("draft_conv", &inputs)
    }

    /// y and Σ(|base| + |coef|)|x| of one element, by the coefficients `[rows,2,2,G]`.
    fn element(&self, coef: &[f64], side: usize, row: usize, c: usize) -> (f64, f64) {
        let of = |tap: usize| {
            let base = f64::from(self.base[(side * 2 + tap) * WIDTH + c]);
            let coef = coef[((row * 2 + side) * 2 + tap) * GROUPS + c / GROUP];
            let x = f64::from(self.x[(row - tap) * WIDTH + c]);
            ((base + coef) * x, (base.abs() + coef.abs()) * x.abs())
        };
        let (mut y, mut taps) = of(0);
        if !row.is_multiple_of(BLOCK_ROWS) {
            let second = of(1);
            (y, taps) = (y + second.0, taps + second.1);
        }
        (y, taps)
    }
}

#[test]
fn a_drafting_convolution_is_its_definition_on_either_side() {
    let draft = Draft::new();
    let coef: Vec<f64> = draft.coef.iter().map(|coef| f64::from(*coef)).collect();
    for (side, stage) in ["prepare", "finish"].into_iter().enumerate() {
        for residual in ["none", "added"] {
            let outputs = draft.run(stage, residual);
            assert!(outputs.tensor("coef").is_none(), "what is given is not returned");
            let (y, taps) = (value(&outputs, "y"), magnitude(&outputs, "y", "taps"));
            for row in 0..BLOCKS * BLOCK_ROWS {
                for c in 0..WIDTH {
                    let at = row * WIDTH + c;
                    let added =
                        if residual == "added" { f64::from(draft.residual[at]) } else { 0.0 };
                    let (expected, absolute) = draft.element(&coef, side, row, c);
                    assert!(near(y[at], expected + added), "{stage} row {row} channel {c}");
                    assert!(near(taps[at], absolute + added.abs()));
                }
            }
            for name in ["projected", "crossed"] {
                assert!(magnitude(&outputs, "y", name).iter().all(|error| *error == 0.0));
            }
        }
    }
}

#[test]
fn projected_coefficients_are_products_rounded_before_they_are_used() {
    let draft = Draft::new();
    let outputs = draft.run("project", "none");
    let (coef, error) = (value(&outputs, "coef"), magnitude(&outputs, "coef", "projected"));
    let (y, moved) = (value(&outputs, "y"), magnitude(&outputs, "y", "projected"));
    let crossed = magnitude(&outputs, "y", "crossed");
    let rounded: Vec<f64> = coef.iter().map(|coef| f64::from(*coef as f32)).collect();
    assert!(rounded != coef, "some product is not of f32");
    for row in 0..BLOCKS * BLOCK_ROWS {
        for output in 0..4 * GROUPS {
            let products = (0..WIDTH).map(|k| {
                f64::from(draft.w[output * WIDTH + k]) * f64::from(draft.x[row * WIDTH + k])
            });
            let absolute: f64 = products.clone().map(f64::abs).sum();
            let at = row * 4 * GROUPS + output;
            assert!(near(coef[at], products.sum()), "row {row} output {output}");
            assert!(near(error[at], 15.0 * absolute), "one product a lane, and fourteen more");
        }
        for c in 0..WIDTH {
            let at = row * WIDTH + c;
            assert!(near(y[at], draft.element(&rounded, 0, row, c).0), "row {row} channel {c}");
            let sum = |of: &dyn Fn(usize) -> f64| -> f64 {
                let taps = if !row.is_multiple_of(BLOCK_ROWS) { 2 } else { 1 };
                (0..taps)
                    .map(|tap| {
                        let place = (row * 4 + tap) * GROUPS + c / GROUP;
                        of(place) * f64::from(draft.x[(row - tap) * WIDTH + c]).abs()
                    })
                    .sum()
            };
            assert!(near(moved[at], sum(&|place| error[place])));
            let least = f64::from(f32::MIN_POSITIVE);
            assert!(near(crossed[at], sum(&|place| coef[place].abs() + least)));
        }
    }
}

/// A sum that tensor cores make: steps of sixteen products, at most eight of them to a part.
#[test]
fn a_projection_of_a_narrow_type_errs_by_its_steps_and_parts() {
    for (io, least) in [(DType::F16, 2f64.powi(-14)), (DType::BF16, 2f64.powi(-126))] {
        // Channels, and units of 2⁻²⁴: ten and a half a step, seven, and one for every 1,024.
        for (channels, units) in [(40, 3.0 * 10.5 + 7.0 + 1.0), (2050, 8.0 * 10.5 + 7.0 + 3.0)] {
            let mut draws = Draws::new(9);
            let mut narrow = |shape: &[usize], size: f64| {
                let values: Vec<f64> = draws
                    .normals(shape.iter().product())
                    .iter()
                    .map(|x| io.to_f64(io.round_from_f64(size * x)))
                    .collect();
                let mut bytes = Vec::new();
                values.iter().for_each(|x| io.push_bytes(io.round_from_f64(*x), &mut bytes));
                let shape = shape.iter().map(|extent| *extent as u64).collect();
                (Logical::from_bytes(io, shape, bytes), values)
            };
            let ((x, x_values), (base, _)) =
                (narrow(&[1, 1, channels], 1.0), narrow(&[2, 2, channels], 1.0));
            // Sums about the least normal number of f16, so that it counts.
            let (w, w_values) = narrow(&[4, channels], 1e-4);
            let inputs = Inputs {
                tensors: [("x", x), ("base", base), ("w", w)]
                    .map(|(name, tensor)| (name.to_owned(), tensor))
                    .to_vec(),
                dtypes: vec![("io".to_owned(), io)],
                options: owned([("stage", "project"), ("residual", "none")]),
                ..Inputs::default()
            };
            let outputs = run("draft_conv", &inputs);
            let error = magnitude(&outputs, "coef", "projected");
            let crossed = magnitude(&outputs, "y", "crossed");
            for (output, weights) in w_values.chunks(channels).enumerate() {
                let products = weights.iter().zip(&x_values).map(|(w, x)| w * x);
                let size: f64 = products.clone().map(f64::abs).sum();
                assert!(near(error[output], units * size), "{io:?} {channels}");
                if output == 0 {
                    let step = products.sum::<f64>().abs() + least;
                    for (crossed, x) in crossed.iter().zip(&x_values) {
                        assert!(near(*crossed, step * x.abs()), "{io:?} {channels}");
                    }
                }
            }
        }
    }
}

// ---- state_convert ----

fn convert(from: Logical, to: DType) -> Vec<u64> {
    let (source, target, direction) =
        if to == DType::F16 { ("wide", "narrow", "narrow") } else { ("narrow", "wide", "widen") };
    let inputs = Inputs {
        tensors: vec![(source.to_owned(), from)],
        options: owned([("direction", direction)]),
        ..Inputs::default()
    };
    bits(&run("state_convert", &inputs), target).to_vec()
}

/// The f32 of an f16 pattern that is no NaN, from its sign, exponent and fraction.
fn widened(pattern: u16) -> f32 {
    let (exponent, fraction) = (pattern >> 10 & 31, f64::from(pattern & 1023));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 => f64::INFINITY,
        _ => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    (if pattern & 0x8000 != 0 { -size } else { size }) as f32
}

#[test]
fn every_f16_widens_exactly_and_comes_back() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let wide = convert(Logical::from_bytes(DType::F16, vec![1, 65536], all), DType::F32);
    let floats: Vec<f32> = wide.iter().map(|bits| f32::from_bits(*bits as u32)).collect();
    let back = convert(f32_tensor(&[1, 65536], &floats), DType::F16);
    for pattern in 0..=u16::MAX {
        let at = usize::from(pattern);
        if pattern & 0x7fff > 0x7c00 {
            assert!(floats[at].is_nan() && DType::F16.is_nan(back[at]), "{pattern:#06x}");
            continue;
        }
        assert_eq!(wide[at], u64::from(widened(pattern).to_bits()), "{pattern:#06x}");
        assert_eq!(back[at], u64::from(pattern));
    }
}

#[test]
fn f32_narrows_as_on_a_gpu_and_to_infinity() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpora/golden/h200.safetensors");
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let file = SafeTensors::deserialize(&bytes).expect("h200.safetensors is intact");
    let words = |name: &str| -> Vec<u32> {
        let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        tensor.data().as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
    };
    let x: Vec<f32> = words("unary.x").into_iter().map(f32::from_bits).collect();
    let ours = convert(f32_tensor(&[1, x.len()], &x), DType::F16);
    for ((x, ours), gpu) in x.iter().zip(ours).zip(words("unary.to_f16")) {
        let both_nan = DType::F16.is_nan(ours) && DType::F16.is_nan(gpu.into());
        assert!(both_nan || ours == u64::from(gpu), "{x:e}: {ours:#06x} here, {gpu:#06x} there");
    }
    let edges = [
        (65504.0, 0x7bff),
        (65519.99, 0x7bff),
        (65520.0, 0x7c00),
        (-65520.0, 0xfc00),
        (2f32.powi(-25), 0),
        (-(2f32.powi(-25)), 0x8000),
        (f32::from_bits(0x3300_0001), 1),
        (1.0 + 2f32.powi(-11), 0x3c00),
        (1.0 + 3.0 * 2f32.powi(-11), 0x3c02),
        (-0.0, 0x8000),
    ];
    let narrow = convert(f32_tensor(&[2, 5], &edges.map(|(x, _)| x)), DType::F16);
    assert_eq!(narrow, edges.map(|(_, bits)| bits));
}
