//! Kernels, in the virtual machine, against answers of public model code that nobody here computed.
//! The files hold states as [key,value]; kernels keep them as [value,key].
#![allow(clippy::disallowed_methods, reason = "the answers compared with are not the reference's")]

use contracts::DType;
use contracts::case::{Case, Content, Decisions, Schedule};
use contracts::dtype::Poison;
use kernels::arena::Arena;
use kernels::backend::vm::VmBackend;
use properties::check::{Session, attempt};
use properties::generate::complete;
use properties::oracle::Observed;
use properties::prepare::prepare_unjudged;
use properties::subject::{Subject, subject};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeSet;

const EPSILON: f32 = 1e-6;
/// Relative RMS error, and largest error of a norm's output.
const TOLERANCE: f64 = 1e-5;

fn golden() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpora/golden/peers.safetensors");
    std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn floats(file: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
    tensor.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn shape<const N: usize>(file: &SafeTensors<'_>, name: &str) -> [usize; N] {
    let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    tensor.shape().try_into().unwrap_or_else(|_| panic!("{name}: {:?}", tensor.shape()))
}

fn kernel(name: &str) -> &'static Subject {
    subject(name).unwrap_or_else(|| panic!("`{name}` is registered"))
}

/// A case with these decisions, all else the contract's first, and these f32 contents.
struct Call<'a> {
    subject: &'static Subject,
    options: Vec<(&'a str, &'a str)>,
    dims: Vec<(&'a str, usize)>,
    lists: Vec<(&'a str, Vec<i64>)>,
    scalars: Vec<(&'a str, f32)>,
    tensors: Vec<(&'a str, &'a [f32])>,
}

impl Call<'_> {
    fn case(&self) -> Case {
        let contract = self.subject.contract;
        let owned = |name: &&str| (*name).to_owned();
        let mut case = Case {
            contract: contract.contract.clone(),
            version: contract.version,
            found: None,
            dtypes: Decisions::new(),
            options: self.options.iter().map(|(name, word)| (owned(name), owned(word))).collect(),
            variants: Decisions::new(),
            dims: self.dims.iter().map(|(name, size)| (owned(name), *size as i64)).collect(),
            lists: self.lists.iter().map(|(name, items)| (owned(name), items.clone())).collect(),
            scalars: self
                .scalars
                .iter()
                .map(|(name, value)| (owned(name), u64::from(value.to_bits())))
                .collect(),
            stores: Decisions::new(),
            poison: Poison::Quiet,
            schedule: Schedule::InOrder,
            tensors: Decisions::new(),
        };
        complete(contract, &mut case).unwrap_or_else(|error| panic!("{error}"));
        for (name, values) in &self.tensors {
            let tensor = case.tensors.get_mut(*name).unwrap_or_else(|| panic!("no `{name}`"));
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            tensor.content = Content::Dense(bytes);
        }
        case
    }

    /// Runs the kernel; what it left in `outputs`, all of whose elements are live.
    fn run<const N: usize>(&self, outputs: [&str; N]) -> [Vec<f32>; N] {
        let case = self.case();
        // The whole check: contents included.
        contracts::Geometry::of(self.subject.contract, &case).unwrap_or_else(|e| panic!("{e}"));
        let prepared = prepare_unjudged(self.subject, &case).unwrap_or_else(|e| panic!("{e}"));
        let (mut backend, mut arena) = (VmBackend::new(), Arena::default());
        let mut session = Session { backend: &mut backend, arena: &mut arena };
        let ended = attempt(&prepared, Poison::Quiet, &mut session);
        let ended = ended.unwrap_or_else(|error| panic!("{error}"));
        assert!(ended.is_none(), "{}", ended.expect("just asked"));
        let mut observed = Observed::default();
        observed.gather(&prepared, &arena);
        outputs.map(|name| {
            let place = prepared.geometry.tensors.iter().position(|t| t.name == name);
            let place = place.unwrap_or_else(|| panic!("no `{name}`"));
            assert_eq!(prepared.geometry.tensors[place].dtype, DType::F32, "{name}");
            let words = observed.tensors[place].as_chunks::<4>().0;
            words.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        })
    }
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

fn relative_rms(observed: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(observed.len(), expected.len());
    let pairs = observed.iter().zip(expected).map(|(y, r)| (f64::from(*y), f64::from(*r)));
    let error: f64 = pairs.clone().map(|(y, r)| (y - r) * (y - r)).sum();
    (error / pairs.map(|(_, r)| r * r).sum::<f64>()).sqrt()
}

/// One case of the file.
struct Gdn {
    rows: usize,
    key_heads: usize,
    value_heads: usize,
    key_dim: usize,
    value_dim: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    g: Vec<f32>,
    beta: Vec<f32>,
    /// a, dt_bias and A_log, where the file has them.
    raw: Option<[Vec<f32>; 3]>,
    state: Vec<f32>,
    out: Vec<f32>,
    state_out: Vec<f32>,
}

impl Gdn {
    fn read(file: &SafeTensors<'_>, case: &str) -> Gdn {
        let name = |tensor: &str| format!("{case}.{tensor}");
        let all = |tensor: &str| floats(file, &name(tensor));
        let [_, rows, key_heads, key_dim] = shape(file, &name("q"));
        let [.., value_heads, value_dim] = shape::<4>(file, &name("v"));
        let is_raw = file.tensor(&name("A_log")).is_ok();
        Gdn {
            rows,
            key_heads,
            value_heads,
            key_dim,
            value_dim,
            q: all("q"),
            k: all("k"),
            v: all("v"),
            g: all("g"),
            beta: all("beta"),
            raw: is_raw.then(|| ["a", "dt_bias", "A_log"].map(all)),
            state: value_first(&all("state_in_kv"), key_dim, value_dim),
            out: all("out"),
            state_out: value_first(&all("state_out_kv"), key_dim, value_dim),
        }
    }

    fn dims(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("N", 1),
            ("Hk", self.key_heads),
            ("Hv", self.value_heads),
            ("Dk", self.key_dim),
            ("Dv", self.value_dim),
            ("slots", 1),
        ]
    }

    fn scale(&self) -> f32 {
        (self.key_dim as f32).sqrt().recip()
    }

    /// Token by token through the kernel, q and k normalised in it.
    fn decode(&self, gate_form: &str) -> [Vec<f32>; 2] {
        let (mut out, mut state) = (Vec::new(), self.state.clone());
        // σ(b) = β.
        let b: Vec<f32> = self.beta.iter().map(|beta| (beta / (1.0 - beta)).ln()).collect();
        let alpha: Vec<f32> = self.g.iter().map(|g| g.exp()).collect();
        for row in 0..self.rows {
            let of = |values: &'_ [f32], width: usize| -> Vec<f32> {
                values[row * width..(row + 1) * width].to_vec()
            };
            let q = of(&self.q, self.key_heads * self.key_dim);
            let k = of(&self.k, self.key_heads * self.key_dim);
            let v = of(&self.v, self.value_heads * self.value_dim);
            let (first, second) = match (gate_form, &self.raw) {
                ("log", _) => (of(&self.g, self.value_heads), &self.beta),
                ("alpha", _) => (of(&alpha, self.value_heads), &self.beta),
                (_, Some([a, ..])) => (of(a, self.value_heads), &b),
                (_, None) => panic!("the file has no raw gates"),
            };
            let second = of(second, self.value_heads);
            let mut tensors: Vec<(&str, &[f32])> =
                vec![("q", &q), ("k", &k), ("v", &v), ("s", &state)];
            match (gate_form, &self.raw) {
                ("log", _) => tensors.extend([("g", &*first), ("beta", &*second)]),
                ("alpha", _) => tensors.extend([("alpha", &*first), ("beta", &*second)]),
                (_, Some([_, dt_bias, a_log])) => tensors.extend([
                    ("a", &*first),
                    ("b", &*second),
                    ("dt_bias", dt_bias),
                    ("a_log", a_log),
                ]),
                (_, None) => {}
            }
            let call = Call {
                subject: kernel("gdn_decode"),
                options: vec![("gate_form", gate_form), ("qk_norm", "l2")],
                dims: self.dims(),
                lists: vec![("slot", vec![0])],
                scalars: vec![("scale", self.scale()), ("qk_eps", EPSILON)],
                tensors,
            };
            let [o, s] = call.run(["o", "s"]);
            out.extend(o);
            state = s;
        }
        [out, state]
    }

    /// All rows at once through the chunked kernel, which takes q and k normalised.
    fn chunk(&self) -> [Vec<f32>; 2] {
        let [q, k] = [&self.q, &self.k].map(|x| l2_normalised(x, self.key_dim));
        let mut dims = self.dims();
        dims.push(("rows", self.rows));
        Call {
            subject: kernel("gdn_chunk"),
            options: vec![("initial_state", "slot"), ("gate_form", "log")],
            dims,
            lists: vec![("seq_len", vec![self.rows as i64]), ("slot", vec![0])],
            scalars: vec![("scale", self.scale())],
            tensors: vec![
                ("q", &q),
                ("k", &k),
                ("v", &self.v),
                ("g", &self.g),
                ("beta", &self.beta),
                ("s", &self.state),
            ],
        }
        .run(["o", "s"])
    }

    fn agrees(&self, what: &str, [out, state]: [Vec<f32>; 2]) {
        for (tensor, observed, expected) in [("o", out, &self.out), ("s", state, &self.state_out)] {
            let error = relative_rms(&observed, expected);
            println!("{what}: {tensor}: relative RMS {error:.1e}");
            assert!(error <= TOLERANCE, "{what}: {tensor}: relative RMS {error:e}");
        }
    }
}

/// Each row of `width` elements over √(Σx² + ε).
fn l2_normalised(raw: &[f32], width: usize) -> Vec<f32> {
    raw.chunks_exact(width)
        .flat_map(|row| {
            let square: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
            let norm = (square + f64::from(EPSILON)).sqrt();
            row.iter().map(move |x| (f64::from(*x) / norm) as f32)
        })
        .collect()
}

#[test]
fn the_gated_delta_kernels_agree_with_public_model_code() {
    let bytes = golden();
    let file = SafeTensors::deserialize(&bytes).expect("peers.safetensors is intact");
    let cases: BTreeSet<&str> = file
        .names()
        .into_iter()
        .filter(|name| name.starts_with("gdn.") || name.starts_with("gdn_chunk."))
        .filter_map(|name| name.strip_suffix(".state_out_kv"))
        .collect();
    for case in &cases {
        let gdn = Gdn::read(&file, case);
        let forms: &[&str] =
            if gdn.raw.is_some() { &["log", "alpha", "raw"] } else { &["log", "alpha"] };
        for form in forms {
            gdn.agrees(&format!("{case}: gdn_decode, {form} gates"), gdn.decode(form));
        }
        gdn.agrees(&format!("{case}: gdn_chunk"), gdn.chunk());
    }
    let expected = ["gdn.t1", "gdn.t130", "gdn.t5", "gdn.t63", "gdn.t64", "gdn.t65"];
    let expected = expected.into_iter().chain(["gdn_chunk.t67d128"]);
    assert_eq!(cases, expected.collect(), "every case of the file was run");
}

/// With S = 0, β = 1, k = q = e₀ and scale 1 the step's output is v, so y is the norm of v alone.
#[test]
fn the_output_gate_agrees_with_public_model_code() {
    let bytes = golden();
    let file = SafeTensors::deserialize(&bytes).expect("peers.safetensors is intact");
    let all = |tensor: &str| floats(&file, &format!("gated_rms_norm.silu.{tensor}"));
    let [heads, dim] = shape(&file, "gated_rms_norm.silu.x");
    let first: Vec<f32> = (0..32).map(|at| if at == 0 { 1.0 } else { 0.0 }).collect();
    let [x, z, w, expected] = ["x", "gate", "weight", "out"].map(all);
    let call = Call {
        subject: kernel("gdn_decode"),
        options: vec![("gate_form", "log"), ("output_gate", "rms_silu")],
        dims: vec![("N", 1), ("Hk", 1), ("Hv", heads), ("Dk", 32), ("Dv", dim), ("slots", 1)],
        lists: vec![("slot", vec![0])],
        scalars: vec![("scale", 1.0), ("norm_eps", EPSILON)],
        tensors: vec![
            ("q", &first),
            ("k", &first),
            ("v", &x),
            ("z", &z),
            ("w", &w),
            ("g", &[0.0; 7]),
            ("beta", &[1.0; 7]),
        ],
    };
    let [y] = call.run(["o"]);
    let error = y.iter().zip(&expected).map(|(y, r)| f64::from((y - r).abs())).fold(0.0, f64::max);
    println!("gated_rms_norm.silu: largest error {error:.1e}");
    assert!(error <= TOLERANCE, "largest error {error:e}");
}

/// `[B,C,T]` to `[B,T,C]`.
fn rows_first(x: &[f32], [batch, channels, rows]: [usize; 3]) -> Vec<f32> {
    let place = |b: usize, t: usize, c: usize| (b * channels + c) * rows + t;
    let at = |flat: usize| {
        let (b, t, c) = (flat / (rows * channels), flat / channels % rows, flat % channels);
        x[place(b, t, c)]
    };
    (0..batch * rows * channels).map(at).collect()
}

/// The rows of two sequences from empty windows, all at once, and the window after every row.
#[test]
fn the_convolution_agrees_with_public_model_code() {
    let bytes = golden();
    let file = SafeTensors::deserialize(&bytes).expect("peers.safetensors is intact");
    let name = |tensor: &str| format!("causal_conv1d.w4_silu.{tensor}");
    let extents @ [batch, channels, rows] = shape(&file, &name("x"));
    let [_, width] = shape(&file, &name("weight"));
    let x = rows_first(&floats(&file, &name("x")), extents);
    let weight = floats(&file, &name("weight"));
    let windows = floats(&file, &name("state_after_step"));
    let empty = vec![0.0; batch * channels * width];
    let call = Call {
        subject: kernel("causal_conv1d"),
        options: vec![("activation", "silu"), ("snapshot", "each")],
        dims: vec![
            ("N", batch),
            ("heads", channels),
            ("D", 1),
            ("W", width),
            ("kept", width),
            ("slots", batch),
        ],
        lists: vec![("seq_len", vec![rows as i64; batch]), ("slot", (0..batch as i64).collect())],
        scalars: vec![("eps", EPSILON)],
        tensors: vec![("x", &x), ("weight", &weight), ("state", &empty)],
    };
    let [out, state, snap] = call.run(["out", "state", "snap"]);
    for answer in ["full", "step"] {
        let expected = rows_first(&floats(&file, &name(answer)), extents);
        let error = relative_rms(&out, &expected);
        println!("causal_conv1d.w4_silu.{answer}: relative RMS {error:.1e}");
        assert!(error <= TOLERANCE, "{answer}: relative RMS {error:e}");
    }
    let slot = channels * width;
    for row in 0..rows {
        for sequence in 0..batch {
            let expected = &windows[(row * batch + sequence) * slot..][..slot];
            let place = (sequence * rows + row) * slot;
            assert_eq!(&snap[place..place + slot], expected, "row {row} of sequence {sequence}");
        }
    }
    assert_eq!(state, windows[windows.len() - batch * slot..], "the slots, W inputs each");
}

/// What an f16 state cannot hold stops at its largest number; infinities and NaN stay what they are.
/// With k = e₀ and β = 1 column 0 of S' is v and the others are S.
#[test]
fn an_f16_state_saturates_what_is_finite_and_nothing_else() {
    let subject = kernel("gdn_decode");
    let first: Vec<f32> = (0..32).map(|at| if at == 0 { 1.0 } else { 0.0 }).collect();
    let mut v = vec![0.0f32; 32];
    v[..8].copy_from_slice(&[
        65519.0,
        65520.0,
        -1.0e9,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        65503.0,
    ]);
    let call = Call {
        subject,
        options: vec![("gate_form", "log"), ("snapshot", "each")],
        dims: vec![("N", 1), ("Hk", 1), ("Hv", 1), ("Dk", 32), ("Dv", 32), ("slots", 1)],
        lists: vec![("slot", vec![0])],
        scalars: vec![("scale", 1.0)],
        tensors: vec![("q", &first), ("k", &first), ("v", &v), ("g", &[0.0]), ("beta", &[1.0])],
    };
    let mut case = call.case();
    case.dtypes.insert("state".to_owned(), DType::F16);
    let prepared = prepare_unjudged(subject, &case).unwrap_or_else(|e| panic!("{e}"));
    let (mut backend, mut arena) = (VmBackend::new(), Arena::default());
    let mut session = Session { backend: &mut backend, arena: &mut arena };
    let ended = attempt(&prepared, Poison::Quiet, &mut session).unwrap_or_else(|e| panic!("{e}"));
    assert!(ended.is_none(), "the kernel runs");
    let mut observed = Observed::default();
    observed.gather(&prepared, &arena);
    let place = |name: &str| {
        prepared.geometry.tensors.iter().position(|t| t.name == name).expect("an output")
    };
    let bits = |name: &str, flat: u64| observed.bits(&prepared, place(name), flat).expect("live");
    let column: Vec<u64> = (0..8).map(|value| bits("s", value * 32)).collect();
    assert_eq!(column[..6], [0x7bff, 0x7bff, 0xfbff, 0x7bff, 0x7c00, 0xfc00]);
    assert!(DType::F16.is_nan(column[6]));
    assert_eq!(column[7], 0x7bff, "65503 is nearer 65504 than 65472");
    let o = |value: u64| f32::from_bits(bits("o", value) as u32);
    assert_eq!(o(1), 65504.0, "the output reads what was stored");
    // An infinite delta times the zeros of k is NaN, so rows 4 to 6 are NaN elsewhere.
    assert!(o(4).is_nan() && o(6).is_nan());
    for flat in 0..32 * 32 {
        assert_eq!(bits("snap", flat), bits("s", flat), "element {flat}");
    }
}

/// The kernel alone, in f32, by both gates; the last row is zero.
#[test]
fn gated_rms_norm_agrees_with_public_model_code() {
    let bytes = golden();
    let file = SafeTensors::deserialize(&bytes).expect("peers.safetensors is intact");
    for gate in ["silu", "sigmoid"] {
        let all = |tensor: &str| floats(&file, &format!("gated_rms_norm.{gate}.{tensor}"));
        let [rows, dim] = shape(&file, &format!("gated_rms_norm.{gate}.x"));
        let [x, z, w, expected] = ["x", "gate", "weight", "out"].map(all);
        for round_point in ["end", "after_norm"] {
            let call = Call {
                subject: kernel("gated_rms_norm"),
                options: vec![("gate", gate), ("round_point", round_point), ("wide_out", "f32")],
                dims: vec![("rows", rows), ("D", dim)],
                lists: Vec::new(),
                scalars: vec![("eps", EPSILON)],
                tensors: vec![("x", &x), ("z", &z), ("w", &w)],
            };
            let [y, wide] = call.run(["out", "out_f32"]);
            let errors = y.iter().zip(&expected).map(|(y, r)| f64::from((y - r).abs()));
            let error = errors.fold(0.0, f64::max);
            println!("gated_rms_norm.{gate}, {round_point}: largest error {error:.1e}");
            assert!(error <= 2e-6, "{gate}: largest error {error:e}");
            assert_eq!(y, wide, "{gate}: in f32 there is nothing to round");
        }
    }
}
