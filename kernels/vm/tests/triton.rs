//! What Triton writes for sm_80 and sm_90, against references in f64. How the PTX was made stands
//! in `ptx/triton/README.md`.

mod support;

use ptx_vm::{BufferId, Coverage, Launch, Limits, Memory, Module, Options, launch};
use support::{Parameters, Random, bf16, bytes_f32, from_bf16, input, output, words};

/// A kernel of the folder for both architectures.
macro_rules! texts {
    ($name:literal) => {
        [
            include_str!(concat!("ptx/triton/", $name, ".sm80.ptx")),
            include_str!(concat!("ptx/triton/", $name, ".sm90.ptx")),
        ]
    };
}

/// Launches the module's one kernel with the threads and shared memory that its first line names.
fn run(text: &str, memory: &mut Memory, grid: [u32; 3], parameters: Parameters, checks: bool) {
    let module = Module::parse(text).unwrap();
    let head: Vec<u32> = text
        .lines()
        .next()
        .and_then(|line| line.split_once("launch with "))
        .map(|(_, rest)| rest.split(' ').filter_map(|word| word.parse().ok()).collect())
        .unwrap_or_default();
    let [threads, shared] = head[..] else {
        panic!("the first line names no launch");
    };
    let entry = module.entries().next().unwrap().name().to_owned();
    // Two pointers to scratch memory, which none of the kernels has.
    let parameters = parameters.u64(0).u64(0).0;
    let what = Launch {
        entry: &entry,
        grid,
        block: [threads, 1, 1],
        dynamic_shared_bytes: shared,
        parameters: &parameters,
    };
    let options = Options { checks, ..Options::default() };
    let limits = Limits { instructions: 1 << 24, ..Limits::default() };
    let result = launch(&module, memory, &what, &limits, &options, &mut Coverage::new());
    result.unwrap_or_else(|stop| panic!("{entry}: {stop}"));
}

fn floats(memory: &Memory, buffer: BufferId) -> Vec<f64> {
    words(memory, buffer).iter().map(|bits| f64::from(f32::from_bits(*bits))).collect()
}

#[test]
fn softmax_of_padded_rows() {
    let (rows, stride) = (3usize, 1024usize);
    for text in texts!("softmax") {
        for (columns, checks) in [(1usize, true), (33, true), (777, true), (1024, false)] {
            let mut random = Random(columns as u64);
            let x: Vec<f32> = (0..rows * stride).map(|_| 20.0 * random.unit()).collect();
            let mut memory = Memory::new();
            let from = input(&mut memory, "x", &bytes_f32(&x));
            let to = output(&mut memory, "out", (rows * stride * 4) as u64);
            let parameters = Parameters::default()
                .u64(memory.address(to, 0))
                .u64(memory.address(from, 0))
                .u32(stride as u32)
                .u32(columns as u32);
            run(text, &mut memory, [rows as u32, 1, 1], parameters, checks);
            let got = floats(&memory, to);
            for row in 0..rows {
                let x = &x[row * stride..row * stride + columns];
                let top = x.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
                let e: Vec<f64> = x.iter().map(|x| f64::from(x - top).exp()).collect();
                let total: f64 = e.iter().sum();
                for (got, e) in got[row * stride..].iter().zip(&e) {
                    // 30 of the exponent's multiplication by log2(e), the rest by the sums.
                    let allowed = 100.0 * 2f64.powi(-24) * e / total + 1e-37;
                    let error = (got - e / total).abs();
                    assert!(error <= allowed, "{columns} columns: {got} for {}", e / total);
                }
            }
            let written: u64 = memory.written_ranges(to).iter().map(|r| r.end - r.start).sum();
            assert_eq!(written, (rows * columns * 4) as u64, "nothing past a row's end");
        }
    }
}

/// How an element is stored, and what the tensor cores read of it.
struct Io {
    bytes: usize,
    store: fn(f32) -> u32,
    read: fn(u32) -> f64,
    /// Relative error of one addition: of the alignment inside the tensor cores.
    unit: f64,
}

const BF16: Io = Io {
    bytes: 2,
    store: |x| bf16(x).into(),
    read: |bits| from_bf16(bits as u16).into(),
    unit: 1.0 / (1 << 22) as f64,
};
/// f32 of which ten fraction bits count.
const TF32: Io = Io {
    bytes: 4,
    store: f32::to_bits,
    read: |bits| f32::from_bits(bits >> 13 << 13).into(),
    unit: 1.0 / (1 << 22) as f64,
};
/// The upper byte of an f16. Sums on sm_90 keep 13 fraction bits.
const E5M2: Io = Io {
    bytes: 1,
    store: |x| {
        let bits = x.to_bits();
        let magnitude = (bits & 0x7fff_ffff).saturating_sub(112 << 23) >> 21;
        bits >> 24 & 0x80 | magnitude
    },
    read: |code| {
        let (exponent, fraction) = ((code >> 2 & 31) as i32, f64::from(code & 3));
        let magnitude = match exponent {
            0 => fraction * 2f64.powi(-16),
            _ => (1.0 + fraction / 4.0) * 2f64.powi(exponent - 15),
        };
        if code & 0x80 == 0 { magnitude } else { -magnitude }
    },
    unit: 1.0 / (1 << 12) as f64,
};

fn stored(io: &Io, values: &[f32]) -> (Vec<u8>, Vec<f64>) {
    let codes: Vec<u32> = values.iter().map(|x| (io.store)(*x)).collect();
    let bytes = codes.iter().flat_map(|code| code.to_le_bytes()[..io.bytes].to_vec()).collect();
    (bytes, codes.iter().map(|code| (io.read)(*code)).collect())
}

fn matmul(texts: [&str; 2], io: &Io, shapes: &[[usize; 3]]) {
    for text in texts {
        for (i, [m, n, k]) in shapes.iter().copied().enumerate() {
            let mut random = Random(m as u64);
            let [da, db, dc] = [k, n, n].map(|n| n.next_multiple_of(16));
            let mut draw = |count: usize| -> (Vec<u8>, Vec<f64>) {
                stored(io, &(0..count).map(|_| random.unit()).collect::<Vec<_>>())
            };
            let ((a_bytes, a), (b_bytes, b)) = (draw(m * da), draw(k * db));
            let mut memory = Memory::new();
            let left = input(&mut memory, "a", &a_bytes);
            let right = input(&mut memory, "b", &b_bytes);
            let c = output(&mut memory, "c", (m * dc * 4) as u64);
            let mut parameters = Parameters::default();
            for buffer in [left, right, c] {
                parameters = parameters.u64(memory.address(buffer, 0));
            }
            for value in [m, n, k, da, db, dc] {
                parameters = parameters.u32(value as u32);
            }
            let tiles = m.div_ceil(64) * n.div_ceil(64);
            run(text, &mut memory, [tiles as u32, 1, 1], parameters, i % 2 == 0);
            let got = floats(&memory, c);
            for row in 0..m {
                for column in 0..n {
                    let product = |x: usize| a[row * da + x] * b[x * db + column];
                    let want: f64 = (0..k).map(product).sum();
                    let size: f64 = (0..k).map(|x| product(x).abs()).sum();
                    let error = (got[row * dc + column] - want).abs();
                    let allowed = io.unit * size * (k.div_ceil(8) + 2) as f64;
                    assert!(error <= allowed, "{m}×{n}×{k} [{row}, {column}]: {error} > {allowed}");
                }
            }
            let written: u64 = memory.written_ranges(c).iter().map(|r| r.end - r.start).sum();
            assert_eq!(written, (m * n * 4) as u64);
        }
    }
}

#[test]
fn matmul_of_bf16() {
    matmul(
        texts!("matmul_bf16"),
        &BF16,
        &[[1, 16, 16], [70, 80, 96], [64, 64, 256], [130, 16, 48]],
    );
}

#[test]
fn matmul_of_tf32() {
    matmul(texts!("matmul_fp32"), &TF32, &[[1, 1, 1], [65, 67, 33], [64, 64, 128], [3, 130, 95]]);
}

#[test]
fn matmul_of_e5m2() {
    matmul(texts!("matmul_fp8e5"), &E5M2, &[[1, 16, 16], [70, 80, 96], [64, 64, 256]]);
}

#[test]
fn causal_flash_attention() {
    let (heads, dim) = (2usize, 64usize);
    for text in texts!("attention") {
        for (rows, checks) in [(1usize, true), (65, true), (128, false), (130, true)] {
            let mut random = Random(rows as u64);
            let count = heads * rows * dim;
            let scale = 0.25f32;
            let mut draw = || {
                let x: Vec<f32> = (0..count).map(|_| 2.0 * random.unit()).collect();
                stored(&BF16, &x)
            };
            let ((q_bytes, q), (k_bytes, k), (v_bytes, v)) = (draw(), draw(), draw());
            let mut memory = Memory::new();
            let inputs = [("q", q_bytes), ("k", k_bytes), ("v", v_bytes)]
                .map(|(name, bytes)| input(&mut memory, name, &bytes));
            let out = output(&mut memory, "out", (count * 4) as u64);
            let lse = output(&mut memory, "lse", (heads * rows * 4) as u64);
            let mut parameters = Parameters::default();
            for buffer in inputs.into_iter().chain([out, lse]) {
                parameters = parameters.u64(memory.address(buffer, 0));
            }
            parameters = parameters.f32(scale);
            for value in [rows, rows * dim, dim] {
                parameters = parameters.u32(value as u32);
            }
            let grid = [rows.div_ceil(64) as u32, heads as u32, 1];
            run(text, &mut memory, grid, parameters, checks);
            let (got, got_lse) = (floats(&memory, out), floats(&memory, lse));
            for head in 0..heads {
                for i in 0..rows {
                    let at = |row: usize| (head * rows + row) * dim;
                    let dot = |j: usize| (0..dim).map(|d| q[at(i) + d] * k[at(j) + d]).sum::<f64>();
                    let scores: Vec<f64> = (0..=i).map(|j| f64::from(scale) * dot(j)).collect();
                    let top = scores.iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b));
                    let total: f64 = scores.iter().map(|s| (s - top).exp()).sum();
                    let want_lse = (top + total.ln()) / std::f64::consts::LN_2;
                    let error = (got_lse[head * rows + i] - want_lse).abs();
                    assert!(error < 1e-4, "lse of {rows} rows [{head}, {i}]: {error}");
                    for d in 0..dim {
                        let weight = |j: usize| (scores[j] - top).exp() / total;
                        let want: f64 = (0..=i).map(|j| weight(j) * v[at(j) + d]).sum();
                        let size: f64 = (0..=i).map(|j| weight(j) * v[at(j) + d].abs()).sum();
                        // Each weight is rounded to bf16 before the second product.
                        let allowed = size * 2f64.powi(-8) + 1e-5;
                        let error = (got[at(i) + d] - want).abs();
                        assert!(error <= allowed, "{rows} rows [{head}, {i}, {d}]: {error}");
                    }
                }
            }
        }
    }
}
