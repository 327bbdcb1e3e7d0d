//! The gates of the gated delta rule as tensors, from a and b or from rows and the weights that project
//! them; softplus exact for every argument.
//!
//! ```text
//! a = x·w_a   b = x·w_b      g = −e^a_log · ln(1 + e^(a + dt_bias))   α = e^g   β = σ(b)
//! ```
//!
//! Magnitudes, in units of 2⁻²⁴: `gates`, with A = e^a_log: of g A(2 + 8 sp), of α as much carried
//! through the exponential and 4 of its own, of β 8 β; `projection`: 2 √hidden Σ|x||w|, carried by
//! |∂g/∂a| ≤ A and |∂β/∂b| ≤ ¼.

use super::gates::softplus;
use crate::{Expected, Inputs, Outputs};

const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// Reads dt_bias, a_log `[Hv]`, the dims `Hv` and, where grouped, `Hk`, and by the options `input` and
/// `ba_layout` what they are made from: a, b `[rows,Hv]`, ab `[rows,2·Hv]` or ab_grouped `[rows,Hk,2·r]`; or x
/// `[rows,hidden]` with w_a, w_b `[Hv,hidden]`, w_ab `[2·Hv,hidden]` or w_ab_grouped `[Hk,2·r,hidden]`. Returns `g` or `alpha`,
/// as `gives` says, and `beta`, `[rows,Hv]`.
///
/// # Panics
/// If a name is missing or the inputs contradict their contract.
pub fn gdn_gates(inputs: &Inputs) -> Outputs {
    let places = Places::read(inputs);
    let heads = places.heads;
    let rate: Vec<f64> = inputs.tensor("a_log").to_f64().into_iter().map(libm::exp).collect();
    let dt_bias = inputs.tensor("dt_bias").to_f64();
    let (a, b) = places.pair(inputs);
    let gives_alpha = inputs.word("gives") == "alpha";
    let mut decay = Gate::default();
    let mut beta = Gate::default();
    for (at, (a, b)) in a.into_iter().zip(b).enumerate() {
        let rate = rate[at % heads];
        let softplus = softplus(a.value + dt_bias[at % heads]);
        let g = -rate * softplus;
        let (gates, projection) = (rate * (2.0 + 8.0 * softplus), rate * a.error);
        if gives_alpha {
            let alpha = libm::exp(g);
            // What an error of the exponent makes of α, however large it is.
            let carried = |units: f64| alpha * libm::expm1(units * UNIT) / UNIT;
            decay.push(alpha, carried(gates) + 4.0 * alpha, carried(projection));
        } else {
            decay.push(g, gates, projection);
        }
        let rate_of_write = 1.0 / (1.0 + libm::exp(-b.value));
        beta.push(rate_of_write, 8.0 * rate_of_write, 0.25 * b.error);
    }
    let name = if gives_alpha { "alpha" } else { "g" };
    Outputs { tensors: vec![(name, decay.expected()), ("beta", beta.expected())] }
}

/// One output with its magnitudes.
#[derive(Default)]
struct Gate {
    value: Vec<f64>,
    gates: Vec<f64>,
    projection: Vec<f64>,
}

impl Gate {
    fn push(&mut self, value: f64, gates: f64, projection: f64) {
        self.value.push(value);
        self.gates.push(gates);
        self.projection.push(projection);
    }

    fn expected(self) -> Expected {
        Expected::Real {
            value: self.value,
            magnitudes: vec![("gates", self.gates), ("projection", self.projection)],
            measures: Vec::new(),
        }
    }
}

/// a or b of one row and head, and by how many units it may miss.
struct Raw {
    value: f64,
    error: f64,
}

/// Where a and b of a head lie.
struct Places {
    heads: usize,
    /// Tensors of a and of b, or of their weights.
    names: [&'static str; 2],
    /// Columns (or weights) of a row's a and b, by head.
    columns: [Vec<usize>; 2],
    projects: bool,
}

impl Places {
    fn read(inputs: &Inputs) -> Places {
        let extent = |dim: &str| usize::try_from(inputs.dim(dim)).expect("a dim is not negative");
        let heads = extent("Hv");
        let projects = match inputs.word("input") {
            "given" => false,
            "projected" => true,
            other => panic!("option `input` is `{other}`; the reference knows given and projected"),
        };
        let from = |first: usize| -> Vec<usize> { (first..first + heads).collect() };
        let (names, columns) = match inputs.word("ba_layout") {
            "separate" => (if projects { ["w_a", "w_b"] } else { ["a", "b"] }, [from(0), from(0)]),
            "concat_ab" => ([if projects { "w_ab" } else { "ab" }; 2], [from(0), from(heads)]),
            "concat_ba" => ([if projects { "w_ab" } else { "ab" }; 2], [from(heads), from(0)]),
            "grouped_ba" => {
                let group = heads / extent("Hk");
                let of_head = |head: usize| head / group * 2 * group + head % group;
                let b: Vec<usize> = (0..heads).map(of_head).collect();
                let a = b.iter().map(|column| column + group).collect();
                ([if projects { "w_ab_grouped" } else { "ab_grouped" }; 2], [a, b])
            }
            other => panic!("option `ba_layout` is `{other}`; the reference does not know it"),
        };
        Places { heads, names, columns, projects }
    }

    /// a and b, `[rows,Hv]`.
    fn pair(&self, inputs: &Inputs) -> (Vec<Raw>, Vec<Raw>) {
        let [a, b] = [0, 1].map(|which| {
            let tensor = inputs.tensor(self.names[which]).to_f64();
            let columns = &self.columns[which];
            if self.projects {
                projected(inputs, &tensor, columns)
            } else {
                self.given(&tensor, columns)
            }
        });
        (a, b)
    }

    fn given(&self, tensor: &[f64], columns: &[usize]) -> Vec<Raw> {
        let is_joined = self.names[0] == self.names[1];
        let width = if is_joined { 2 * self.heads } else { self.heads };
        tensor
            .chunks_exact(width)
            .flat_map(|row| columns.iter().map(|column| Raw { value: row[*column], error: 0.0 }))
            .collect()
    }
}

fn projected(inputs: &Inputs, weights: &[f64], columns: &[usize]) -> Vec<Raw> {
    let [rows, hidden] = [0, 1].map(|axis| inputs.tensor("x").shape[axis] as usize);
    let x = inputs.tensor("x").to_f64();
    let error = 2.0 * libm::sqrt(hidden as f64);
    let dot = |row: &[f64], column: usize| {
        let weight = &weights[column * hidden..(column + 1) * hidden];
        let products = || row.iter().zip(weight).map(|(x, w)| x * w);
        let size: f64 = products().map(f64::abs).sum();
        Raw { value: products().sum(), error: error * size }
    };
    (0..rows)
        .map(|row| &x[row * hidden..(row + 1) * hidden])
        .flat_map(|row| columns.iter().map(|column| dot(row, *column)).collect::<Vec<_>>())
        .collect()
}
