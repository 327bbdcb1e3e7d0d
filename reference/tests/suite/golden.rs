//! The references against answers computed elsewhere: public model code and a GPU's own conversions.

use crate::gdn_inputs::{Gdn, Kda, f32_tensor, value};
use contracts::dtype::{DType, e4m3_encode, e4m3_value};
use reference::{Expected, Inputs, Outputs, reference};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeSet;

const NORM_EPSILON: f64 = 1e-6;
const TOLERANCE: f64 = 1e-5;

fn golden(file: &str) -> Vec<u8> {
    let path = format!("{}/../corpora/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn words(file: &SafeTensors<'_>, name: &str, dtype: Dtype) -> Vec<u32> {
    let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tensor.dtype(), dtype, "{name}");
    tensor.data().as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

fn floats(file: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    words(file, name, Dtype::F32).into_iter().map(f32::from_bits).collect()
}

/// Each row of `width` elements over √(Σx² + ε).
fn l2_normalised(raw: &[f32], width: usize) -> Vec<f32> {
    raw.chunks_exact(width)
        .flat_map(|row| {
            let square_sum: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
            let norm = (square_sum + NORM_EPSILON).sqrt();
            row.iter().map(move |x| (f64::from(*x) / norm) as f32)
        })
        .collect()
}

/// `[heads,Dk,Dv]` to `[heads,Dv,Dk]`.
fn value_first(state: &[f32], key_dim: usize, value_dim: usize) -> Vec<f32> {
    state
        .chunks_exact(key_dim * value_dim)
        .flat_map(|head| {
            (0..value_dim * key_dim).map(|at| head[at % key_dim * value_dim + at / key_dim])
        })
        .collect()
}

fn relative_rms(observed: &[f64], expected: &[f32]) -> f64 {
    assert_eq!(observed.len(), expected.len());
    assert!(!expected.is_empty(), "nothing to compare");
    let pairs = observed.iter().zip(expected).map(|(y, r)| (*y, f64::from(*r)));
    let error: f64 = pairs.clone().map(|(y, r)| (y - r) * (y - r)).sum();
    let norm: f64 = pairs.map(|(_, r)| r * r).sum();
    (error / norm).sqrt()
}

/// A case of the file, with its row count, outputs and final state.
struct GoldenGdn {
    gdn: Gdn,
    rows: usize,
    out: Vec<f32>,
    state_out: Vec<f32>,
}

impl GoldenGdn {
    fn read(file: &SafeTensors<'_>, case: &str) -> GoldenGdn {
        let name = |tensor: &str| format!("{case}.{tensor}");
        let shape = |tensor: &str| match file.tensor(&name(tensor)) {
            Ok(view) => view.shape().to_vec(),
            Err(error) => panic!("{case}.{tensor}: {error}"),
        };
        let (keys, values) = (shape("q"), shape("v"));
        let (key_dim, value_dim) = (keys[3], values[3]);
        let state = |tensor: &str| value_first(&floats(file, &name(tensor)), key_dim, value_dim);
        GoldenGdn {
            rows: keys[1],
            out: floats(file, &name("out")),
            state_out: state("state_out_kv"),
            gdn: Gdn {
                key_heads: keys[2],
                value_heads: values[2],
                key_dim,
                value_dim,
                slots: 1,
                head_map: "block",
                q: l2_normalised(&floats(file, &name("q")), key_dim),
                k: l2_normalised(&floats(file, &name("k")), key_dim),
                v: floats(file, &name("v")),
                g: floats(file, &name("g")),
                beta: floats(file, &name("beta")),
                s: state("state_in_kv"),
                scale: (key_dim as f32).sqrt().recip(),
            },
        }
    }

    /// Decodes row by row, the state rounded to f32 in between as a kernel stores it.
    fn decode_all(&self) -> (Vec<f64>, Vec<f64>) {
        let mut gdn = self.gdn.clone();
        let mut out = Vec::new();
        let mut state = Vec::new();
        for row in 0..self.rows {
            let mut step = gdn.rows(row..row + 1);
            step.s = std::mem::take(&mut gdn.s);
            let outputs = step.decode(&[0]);
            out.extend_from_slice(value(&outputs, "o"));
            state = value(&outputs, "s").to_vec();
            gdn.s = state.iter().map(|element| *element as f32).collect();
        }
        (out, state)
    }
}

#[test]
fn gated_delta_rule_agrees_with_public_model_code() {
    let bytes = golden("peers.safetensors");
    let file = SafeTensors::deserialize(&bytes).expect("peers.safetensors is intact");
    let cases: BTreeSet<&str> = file
        .names()
        .into_iter()
        .filter(|name| name.starts_with("gdn.") || name.starts_with("gdn_chunk."))
        .filter_map(|name| name.strip_suffix(".state_out_kv"))
        .collect();
    for case in &cases {
        let golden = GoldenGdn::read(&file, case);
        let outputs = golden.gdn.chunk("slot", &[golden.rows as i64], &[0]);
        let (decoded_o, decoded_s) = golden.decode_all();
        for (what, observed, expected) in [
            ("gdn_chunk o", value(&outputs, "o"), &golden.out),
            ("gdn_chunk s", value(&outputs, "s"), &golden.state_out),
            ("gdn_decode o", &decoded_o, &golden.out),
            ("gdn_decode s", &decoded_s, &golden.state_out),
        ] {
            let error = relative_rms(observed, expected);
            println!("{case}: {what}: relative RMS {error:.1e}");
            assert!(error <= TOLERANCE, "{case}: {what}: relative RMS {error:e}");
        }
    }
    let expected = ["gdn.t1", "gdn.t130", "gdn.t5", "gdn.t63", "gdn.t64", "gdn.t65"];
    let expected = expected.into_iter().chain(["gdn_chunk.t67d128"]);
    assert_eq!(cases, expected.collect(), "every case of the file was run");
}

#[test]
fn the_rule_with_a_decay_for_each_key_channel_agrees_with_public_model_code() {
    let bytes = golden("peers.safetensors");
    let file = SafeTensors::deserialize(&bytes).expect("peers.safetensors is intact");
    let cases: BTreeSet<&str> = file
        .names()
        .into_iter()
        .filter(|name| name.starts_with("kda."))
        .filter_map(|name| name.strip_suffix(".state_out_kv"))
        .collect();
    for case in &cases {
        let golden = GoldenGdn::read(&file, case);
        let kda = Kda(golden.gdn.clone());
        let whole = kda.chunk("softplus", &[golden.rows as i64], &[0]);
        let (mut out, mut state) = (Vec::new(), golden.gdn.s.clone());
        for row in 0..golden.rows {
            let mut step = kda.rows(row..row + 1);
            step.0.s = state;
            let outputs = step.decode("softplus", &[0]);
            out.extend_from_slice(value(&outputs, "o"));
            state = value(&outputs, "s").iter().map(|element| *element as f32).collect();
        }
        let state: Vec<f64> = state.iter().map(|element| f64::from(*element)).collect();
        for (what, observed, expected) in [
            ("kda_chunk o", value(&whole, "o"), &golden.out),
            ("kda_chunk s", value(&whole, "s"), &golden.state_out),
            ("kda_decode o", &out, &golden.out),
            ("kda_decode s", &state, &golden.state_out),
        ] {
            let error = relative_rms(observed, expected);
            println!("{case}: {what}: relative RMS {error:.1e}");
            assert!(error <= TOLERANCE, "{case}: {what}: relative RMS {error:e}");
        }
    }
    let expected = ["kda.t1", "kda.t4", "kda.t63", "kda.t64", "kda.t65"];
    assert_eq!(cases, expected.into_iter().collect(), "every case of the file was run");
}

#[test]
fn the_forget_gate_and_the_unit_norm_agree_with_public_model_code() {
    let bytes = golden("peers.safetensors");
    let file = SafeTensors::deserialize(&bytes).expect("peers.safetensors is intact");
    let run = |kernel: &str, inputs: &Inputs| -> Outputs {
        reference(kernel).expect("registered")(inputs)
    };
    let word = |name: &str, word: &str| vec![(name.to_owned(), word.to_owned())];
    for (case, law) in [("softplus", "softplus"), ("safe_lower_bound_-5", "lb_sigmoid")] {
        let all = |tensor: &str| floats(&file, &format!("kda_gate.{case}.{tensor}"));
        let inputs = Inputs {
            tensors: vec![
                ("f".to_owned(), f32_tensor(&[9, 3, 8], &all("raw"))),
                ("dt_bias".to_owned(), f32_tensor(&[3, 8], &all("dt_bias"))),
                ("a_log".to_owned(), f32_tensor(&[3], &all("A_log"))),
            ],
            scalars: vec![("lower_bound".to_owned(), -5.0)],
            options: word("gate_law", law),
            ..Inputs::default()
        };
        let error = relative_rms(value(&run("kda_gate", &inputs), "g"), &all("g"));
        println!("kda_gate.{case}: relative RMS {error:.1e}");
        assert!(error <= TOLERANCE, "kda_gate.{case}: relative RMS {error:e}");
    }
    let (x, out) = (floats(&file, "l2norm.eps1e-6.x"), floats(&file, "l2norm.eps1e-6.out"));
    let reversed: Vec<f32> = x.iter().rev().copied().collect();
    let inputs = Inputs {
        tensors: vec![
            ("q".to_owned(), f32_tensor(&[6, 1, 32], &x)),
            ("k".to_owned(), f32_tensor(&[6, 1, 32], &reversed)),
        ],
        scalars: vec![("eps".to_owned(), NORM_EPSILON)],
        options: word("place", "apart"),
        ..Inputs::default()
    };
    let outputs = run("kda_qk_norm", &inputs);
    let error = relative_rms(value(&outputs, "q_out"), &out);
    println!("l2norm: relative RMS {error:.1e}");
    assert!(error <= TOLERANCE, "l2norm: relative RMS {error:e}");
    let mirrored: Vec<f64> = value(&outputs, "k_out").iter().rev().copied().collect();
    assert!(relative_rms(&mirrored, &out) <= TOLERANCE);
    assert!(value(&outputs, "q_out")[32..64].iter().all(|y| *y == 0.0), "the row of zeros");
}

#[test]
fn gated_rms_norm_agrees_with_public_model_code() {
    let bytes = golden("peers.safetensors");
    let file = SafeTensors::deserialize(&bytes).expect("peers.safetensors is intact");
    for gate in ["silu", "sigmoid"] {
        let all = |tensor: &str| floats(&file, &format!("gated_rms_norm.{gate}.{tensor}"));
        let [x, z, w, expected] = ["x", "gate", "weight", "out"].map(all);
        let shape = [x.len() / w.len(), w.len()];
        let words = [("gate", gate), ("weight", "plain"), ("round_point", "end")];
        let inputs = Inputs {
            tensors: [("x", &shape[..], &x), ("z", &shape[..], &z), ("w", &shape[1..], &w)]
                .map(|(name, shape, values)| (name.to_owned(), f32_tensor(shape, values)))
                .to_vec(),
            dtypes: vec![("io".to_owned(), DType::F32)],
            scalars: vec![("eps".to_owned(), NORM_EPSILON)],
            options: words
                .into_iter()
                .chain([("wide_out", "none")])
                .map(|(name, word)| (name.to_owned(), word.to_owned()))
                .collect(),
            ..Inputs::default()
        };
        let outputs = reference("gated_rms_norm").expect("it is registered")(&inputs);
        let pairs = value(&outputs, "out").iter().zip(&expected);
        let error = pairs.map(|(y, r)| (y - f64::from(*r)).abs()).fold(0.0, f64::max);
        println!("gated_rms_norm.{gate}: largest error {error:.1e}");
        assert!(error <= 2e-6, "{gate}: largest error {error:e}");
    }
}

#[test]
fn the_convolution_agrees_with_public_model_code() {
    let bytes = golden("peers.safetensors");
    let file = SafeTensors::deserialize(&bytes).expect("peers.safetensors is intact");
    let values = |tensor: &str| floats(&file, &format!("causal_conv1d.w4_silu.{tensor}"));
    let (batch, channels, rows, width) = (2, 10, 9, 4);
    let rows_first = |x: Vec<f32>| -> Vec<f32> {
        let at = |flat: usize| {
            let (b, t, c) = (flat / (rows * channels), flat / channels % rows, flat % channels);
            x[(b * channels + c) * rows + t]
        };
        (0..x.len()).map(at).collect()
    };
    let options = [
        ("bias", "none"),
        ("activation", "silu"),
        ("norm", "none"),
        ("live_state", "kept"),
        ("snapshot", "each"),
    ];
    let inputs = Inputs {
        tensors: vec![
            ("x".to_owned(), f32_tensor(&[batch * rows, channels, 1], &rows_first(values("x")))),
            ("weight".to_owned(), f32_tensor(&[channels, 1, width], &values("weight"))),
            (
                "state".to_owned(),
                f32_tensor(&[batch, channels, 1, width], &vec![0.0; batch * channels * width]),
            ),
        ],
        scalars: vec![("eps".to_owned(), NORM_EPSILON), ("normed_heads".to_owned(), 0.0)],
        options: options.map(|(name, word)| (name.to_owned(), word.to_owned())).to_vec(),
        lists: vec![
            ("seq_len".to_owned(), vec![rows as i64; batch]),
            ("slot".to_owned(), vec![0, 1]),
        ],
        ..Inputs::default()
    };
    let outputs = reference("causal_conv1d").expect("it is registered")(&inputs);
    for answer in ["full", "step"] {
        let error = relative_rms(value(&outputs, "out"), &rows_first(values(answer)));
        println!("causal_conv1d.w4_silu.{answer}: relative RMS {error:.1e}");
        assert!(error <= TOLERANCE, "{answer}: relative RMS {error:e}");
    }
    let windows = values("state_after_step");
    let Some(Expected::Bits(snap)) = outputs.tensor("snap") else { panic!("windows are bits") };
    let slot = channels * width;
    for (place, bits) in snap.iter().enumerate() {
        let (sequence, row) = (place / slot / rows, place / slot % rows);
        let expected = windows[(row * batch + sequence) * slot + place % slot];
        assert_eq!(*bits, u64::from(expected.to_bits()), "row {row} of sequence {sequence}");
    }
}

#[test]
fn e4m3_codes_decode_as_on_a_gpu() {
    let bytes = golden("h200.safetensors");
    let file = SafeTensors::deserialize(&bytes).expect("h200.safetensors is intact");
    let decoded = words(&file, "decode.e4m3", Dtype::U32);
    assert_eq!(decoded.len(), 256);
    for (code, bits) in decoded.into_iter().enumerate() {
        let value = e4m3_value(code as u8) as f32;
        let gpu = f32::from_bits(bits);
        let same = value.to_bits() == bits || (value.is_nan() && gpu.is_nan());
        assert!(same, "code {code:#04x}: {value} here, {gpu} on the GPU");
    }
    println!("decode.e4m3: 256 codes");
}

#[test]
fn e4m3_encodes_as_on_a_gpu() {
    let bytes = golden("h200.safetensors");
    let file = SafeTensors::deserialize(&bytes).expect("h200.safetensors is intact");
    let inputs = words(&file, "encode.x", Dtype::U32);
    let saturating = words(&file, "encode.to_e4m3_sat", Dtype::U32);
    let unsaturated = words(&file, "encode.to_e4m3_nosat", Dtype::U32);
    let packed = words(&file, "encode.to_e4m3x2_ptx", Dtype::U32);
    assert!(inputs.len() > 1000, "the boundary set is complete");
    let (mut finite, mut within) = (0, 0);
    for (at, bits) in inputs.iter().enumerate() {
        let x = f32::from_bits(*bits);
        let code = u32::from(e4m3_encode(f64::from(x)));
        assert!(same_code(code, saturating[at]), "{x:e} ({bits:#010x}): {code:#04x}");
        let negated = u32::from(e4m3_encode(-f64::from(x)));
        let halves = [packed[at] & 0xff, packed[at] >> 8 & 0xff];
        let pair = [code, negated];
        assert!((0..2).all(|half| same_code(pair[half], halves[1 - half])), "{x:e}: {halves:x?}");
        finite += usize::from(x.is_finite());
        // Only beyond the last midpoint does saturation matter.
        if x.abs() <= 464.0 {
            within += 1;
            assert!(same_code(code, unsaturated[at]), "{x:e} unsaturated");
        }
    }
    println!("encode e4m3: {} inputs, {finite} finite, {within} below overflow", inputs.len());
    assert!(within > 700);
}

/// Equal, NaN codes by class.
fn same_code(ours: u32, gpu: u32) -> bool {
    ours == gpu || (ours & 0x7f == 0x7f && gpu & 0x7f == 0x7f)
}
