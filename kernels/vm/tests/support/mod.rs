//! The kernels the machine is measured and tested on: inputs, launches and plain references.
#![allow(dead_code)]

pub mod block;
pub mod boxes;
pub mod drawn;
pub mod strictly;

use ptx_vm::{
    BufferId, Coverage, Launch, Limits, Memory, Module, Options, Stats, Stop, launch, marks,
};

/// Parameter bytes, each value aligned to its size.
#[derive(Default)]
pub struct Parameters(pub Vec<u8>);

impl Parameters {
    pub fn put<const N: usize>(mut self, bytes: [u8; N]) -> Self {
        self.0.resize(self.0.len().next_multiple_of(N), 0);
        self.0.extend_from_slice(&bytes);
        self
    }

    pub fn u64(self, value: u64) -> Self {
        self.put(value.to_le_bytes())
    }

    pub fn u32(self, value: u32) -> Self {
        self.put(value.to_le_bytes())
    }

    pub fn f32(self, value: f32) -> Self {
        self.put(value.to_le_bytes())
    }
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32 ^ (self.0 >> 17) as u32
    }

    /// Uniform in [−1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

pub fn bytes32(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub fn bytes_f32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

pub fn from_bf16(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

pub fn bytes_bf16(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| bf16(*v).to_le_bytes()).collect()
}

/// A buffer with initialised contents.
pub fn input(memory: &mut Memory, name: &str, bytes: &[u8]) -> BufferId {
    let b = memory.allocate(name, bytes.len() as u64, &[], marks::UNWRITABLE);
    memory.write(b, 0, bytes);
    b
}

/// A buffer nobody wrote yet.
pub fn output(memory: &mut Memory, name: &str, len: u64) -> BufferId {
    memory.allocate(name, len, &[0xa5, 0x5a], 0)
}

pub fn words(memory: &Memory, b: BufferId) -> Vec<u32> {
    let mut bytes = vec![0; memory.len_bytes(b) as usize];
    memory.read(b, 0, &mut bytes);
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

pub fn halves(memory: &Memory, b: BufferId) -> Vec<u16> {
    let mut bytes = vec![0; memory.len_bytes(b) as usize];
    memory.read(b, 0, &mut bytes);
    bytes.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect()
}

/// One launch with default limits.
pub fn go(
    module: &Module,
    memory: &mut Memory,
    entry: &str,
    grid: [u32; 3],
    block: [u32; 3],
    parameters: &[u8],
    options: &Options,
) -> Result<Stats, Stop> {
    let what = Launch { entry, grid, block, dynamic_shared_bytes: 0, parameters };
    launch(module, memory, &what, &Limits::default(), options, &mut Coverage::new())
}

/// D = A·B + C by `form`, one product a block. Lane l of block n holds `per_lane` words of A, of B, of C
/// and D, lane after lane and block after block.
pub fn products(
    form: &str,
    per_lane: [usize; 3],
    fragments: [&[u32]; 3],
) -> Result<Vec<u32>, Stop> {
    let [a, b, sums] = per_lane;
    let list = |first: usize, n: usize| {
        (first..first + n).map(|i| format!("%r{i}")).collect::<Vec<_>>().join(",")
    };
    let load = |first: usize, n: usize, base: &str| -> String {
        (0..n).map(|i| format!("ld.global.u32 %r{}, [{base}+{}];", first + i, 4 * i)).collect()
    };
    let places: String = [a, b, sums, sums]
        .iter()
        .enumerate()
        .map(|(i, n)| format!("mad.wide.u32 %rd{0}, %r30, {1}, %rd{0};", i + 1, 4 * n))
        .collect();
    let store: String =
        (0..sums).map(|i| format!("st.global.u32 [%rd4+{}], %r{};", 4 * i, 16 + i)).collect();
    let text = format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry t(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)\n{{\n\
         .reg .b32 %r<40>;.reg .b64 %rd<9>;\n\
         ld.param.u64 %rd1, [a];ld.param.u64 %rd2, [b];ld.param.u64 %rd3, [c];ld.param.u64 %rd4, [d];\n\
         mov.u32 %r30, %ctaid.x;shl.b32 %r30, %r30, 5;mov.u32 %r31, %tid.x;add.u32 %r30, %r30, %r31;\n\
         {places}\n{}{}{}\n{form} {{{}}}, {{{}}}, {{{}}}, {{{}}};\n{store}\nret;\n}}\n",
        load(0, a, "%rd1"),
        load(4, b, "%rd2"),
        load(8, sums, "%rd3"),
        list(16, sums),
        list(0, a),
        list(4, b),
        list(8, sums),
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{form}: {e}"));
    let mut memory = Memory::new();
    let mut parameters = Parameters::default();
    for (name, values) in ["a", "b", "c"].iter().zip(fragments) {
        let buffer = input(&mut memory, name, &bytes32(values));
        parameters = parameters.u64(memory.address(buffer, 0));
    }
    let count = fragments[2].len() / 32 / sums;
    let out = output(&mut memory, "d", (count * 32 * sums * 4) as u64);
    let parameters = parameters.u64(memory.address(out, 0));
    let (grid, block) = ([count as u32, 1, 1], [32, 1, 1]);
    go(&module, &mut memory, "t", grid, block, &parameters.0, &Options::default())?;
    Ok(words(&memory, out))
}

/// The inputs of a gated delta rule step.
pub struct Gdn {
    pub heads: usize,
    pub dim: usize,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub a: Vec<f32>,
    pub a_log: Vec<f32>,
    pub dt_bias: Vec<f32>,
    pub b: Vec<f32>,
    pub state: Vec<f32>,
}

impl Gdn {
    pub fn new(heads: usize, dim: usize, seed: u64) -> Gdn {
        let mut random = Random(seed);
        let mut many = |n: usize, scale: f32| -> Vec<f32> {
            (0..n).map(|_| from_bf16(bf16(random.unit() * scale))).collect()
        };
        Gdn {
            heads,
            dim,
            q: many(heads * dim, 1.0),
            k: many(heads * dim, 1.0),
            v: many(heads * dim, 1.0),
            a: many(heads, 1.0),
            a_log: many(heads, 1.0),
            dt_bias: many(heads, 1.0),
            b: many(heads, 1.0),
            state: many(heads * dim * dim, 0.5),
        }
    }

    /// Runs the kernel; returns state and output buffers.
    pub fn run(
        &self,
        module: &Module,
        memory: &mut Memory,
        options: &Options,
    ) -> Result<(BufferId, BufferId, Stats), Stop> {
        memory.clear();
        let inputs = [
            input(memory, "q", &bytes_bf16(&self.q)),
            input(memory, "k", &bytes_bf16(&self.k)),
            input(memory, "v", &bytes_bf16(&self.v)),
            input(memory, "a", &bytes_f32(&self.a)),
            input(memory, "A_log", &bytes_f32(&self.a_log)),
            input(memory, "dt_bias", &bytes_f32(&self.dt_bias)),
            input(memory, "b", &bytes_bf16(&self.b)),
        ];
        let state = output(memory, "state", self.state.len() as u64 * 4);
        memory.write(state, 0, &bytes_f32(&self.state));
        let out = output(memory, "out", (self.heads * self.dim * 2) as u64);
        let slot = input(memory, "slot", &bytes32(&[0]));
        let mut parameters = Parameters::default();
        for b in inputs.into_iter().chain([state, out, slot]) {
            parameters = parameters.u64(memory.address(b, 0));
        }
        let parameters = parameters.u32(self.heads as u32).u32(self.heads as u32).f32(1e-6);
        let entry = format!("gdn_{}", self.dim);
        let grid = [self.heads as u32, 1, 1];
        let stats = go(module, memory, &entry, grid, [128, 1, 1], &parameters.0, options)?;
        Ok((state, out, stats))
    }

    /// State and output in f64.
    pub fn reference(&self) -> (Vec<f64>, Vec<f64>) {
        let d = self.dim;
        let mut state: Vec<f64> = self.state.iter().map(|x| f64::from(*x)).collect();
        let mut out = Vec::new();
        for h in 0..self.heads {
            let row = |x: &[f32]| -> Vec<f64> {
                x[h * d..(h + 1) * d].iter().map(|v| f64::from(*v)).collect()
            };
            let norm = |x: &[f64]| 1.0 / (x.iter().map(|v| v * v).sum::<f64>() + 1e-6).sqrt();
            let (q, k, v) = (row(&self.q), row(&self.k), row(&self.v));
            let (nq, nk) = (norm(&q) / (d as f64).sqrt(), norm(&k));
            let x = f64::from(self.a[h] + self.dt_bias[h]);
            let decay = (-f64::from(self.a_log[h]).exp() * x.exp().ln_1p()).exp();
            let beta = 1.0 / (1.0 + (-f64::from(self.b[h])).exp());
            for r in 0..d {
                let s = &mut state[(h * d + r) * d..(h * d + r + 1) * d];
                let mut dot = 0.0;
                for j in 0..d {
                    s[j] *= decay;
                    dot += s[j] * k[j] * nk;
                }
                let delta = (v[r] - dot) * beta;
                let mut acc = 0.0;
                for j in 0..d {
                    s[j] += k[j] * nk * delta;
                    acc += s[j] * q[j] * nq;
                }
                out.push(acc);
            }
        }
        (state, out)
    }
}

/// argmax of bf16 rows; returns index and value buffers.
pub fn argmax(
    module: &Module,
    memory: &mut Memory,
    rows: &[u16],
    n: usize,
    options: &Options,
) -> Result<(BufferId, BufferId, Stats), Stop> {
    memory.clear();
    let count = rows.len() / n;
    let bytes: Vec<u8> = rows.iter().flat_map(|v| v.to_le_bytes()).collect();
    let x = input(memory, "x", &bytes);
    let index = output(memory, "idx", count as u64 * 4);
    let value = output(memory, "val", count as u64 * 4);
    let parameters = Parameters::default()
        .u64(memory.address(x, 0))
        .u64(memory.address(index, 0))
        .u64(memory.address(value, 0))
        .u32(n as u32)
        .u32(n as u32);
    let grid = [count as u32, 1, 1];
    let stats = go(module, memory, "argmax_rows", grid, [256, 1, 1], &parameters.0, options)?;
    Ok((index, value, stats))
}

/// Top-k of one f32 row.
pub fn top_k(
    module: &Module,
    memory: &mut Memory,
    row: &[f32],
    k: u32,
    options: &Options,
) -> Result<(BufferId, BufferId, Stats), Stop> {
    memory.clear();
    let x = input(memory, "x", &bytes_f32(row));
    let index = output(memory, "oidx", u64::from(k) * 4);
    let value = output(memory, "oval", u64::from(k) * 4);
    let parameters = Parameters::default()
        .u64(memory.address(x, 0))
        .u64(memory.address(index, 0))
        .u64(memory.address(value, 0))
        .u32(row.len() as u32)
        .u32(k);
    let stats = go(module, memory, "topk_rows", [1, 1, 1], [256, 1, 1], &parameters.0, options)?;
    Ok((index, value, stats))
}

/// C = A·Bᵀ in bf16; returns the C buffer.
pub fn gemm(
    module: &Module,
    memory: &mut Memory,
    a: &[f32],
    b: &[f32],
    [m, n, k]: [usize; 3],
    options: &Options,
) -> Result<(BufferId, Stats), Stop> {
    memory.clear();
    let left = input(memory, "A", &bytes_bf16(a));
    let right = input(memory, "B", &bytes_bf16(b));
    let c = output(memory, "C", (m * n * 2) as u64);
    let parameters = Parameters::default()
        .u64(memory.address(left, 0))
        .u64(memory.address(right, 0))
        .u64(memory.address(c, 0))
        .u32(m as u32)
        .u32(n as u32)
        .u32(k as u32);
    let grid = [n.div_ceil(64) as u32, m.div_ceil(64) as u32, 1];
    let stats = go(module, memory, "gemm_bf16", grid, [128, 1, 1], &parameters.0, options)?;
    Ok((c, stats))
}
