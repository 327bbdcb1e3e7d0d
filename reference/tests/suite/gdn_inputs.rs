//! Inputs of the gated delta rule for tests: f32 tensors by contract name.

use contracts::dtype::DType;
use contracts::logical::Logical;
use reference::{Expected, Inputs, Outputs};

/// Row tensors and the state, row-major, as f32 values.
#[derive(Clone, Debug)]
pub struct Gdn {
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    pub slots: usize,
    pub head_map: &'static str,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub g: Vec<f32>,
    pub beta: Vec<f32>,
    /// `[slots,Hv,Dv,Dk]`.
    pub s: Vec<f32>,
    pub scale: f32,
}

/// A step with nothing fused.
pub const PLAIN_STEP: [(&str, &str); 5] = [
    ("gate_form", "log"),
    ("alpha_clamp", "none"),
    ("qk_norm", "none"),
    ("output_gate", "none"),
    ("snapshot", "none"),
];

impl Gdn {
    /// Rows `range` alone, with the same state.
    pub fn rows(&self, range: std::ops::Range<usize>) -> Gdn {
        let cut =
            |values: &[f32], width: usize| values[range.start * width..range.end * width].to_vec();
        Gdn {
            q: cut(&self.q, self.key_heads * self.key_dim),
            k: cut(&self.k, self.key_heads * self.key_dim),
            v: cut(&self.v, self.value_heads * self.value_dim),
            g: cut(&self.g, self.value_heads),
            beta: cut(&self.beta, self.value_heads),
            ..self.clone()
        }
    }

    fn inputs(&self, with_state: bool) -> Inputs {
        let rows = self.g.len() / self.value_heads;
        let keys = [rows, self.key_heads, self.key_dim];
        let values = [rows, self.value_heads, self.value_dim];
        let mut tensors = vec![
            ("q".to_owned(), f32_tensor(&keys, &self.q)),
            ("k".to_owned(), f32_tensor(&keys, &self.k)),
            ("v".to_owned(), f32_tensor(&values, &self.v)),
            ("g".to_owned(), f32_tensor(&[rows, self.value_heads], &self.g)),
            ("beta".to_owned(), f32_tensor(&[rows, self.value_heads], &self.beta)),
        ];
        if with_state {
            let shape = [self.slots, self.value_heads, self.value_dim, self.key_dim];
            tensors.push(("s".to_owned(), f32_tensor(&shape, &self.s)));
        }
        Inputs {
            tensors,
            scalars: vec![("scale".to_owned(), f64::from(self.scale))],
            options: vec![("head_map".to_owned(), self.head_map.to_owned())],
            dims: vec![("slots".to_owned(), self.slots as i64)],
            ..Inputs::default()
        }
    }

    /// Runs `gdn_decode`: row i on slot `slot[i]`.
    pub fn decode(&self, slot: &[i64]) -> Outputs {
        let mut inputs = self.inputs(true);
        inputs.lists.push(("slot".to_owned(), slot.to_vec()));
        for (option, word) in PLAIN_STEP {
            inputs.options.push((option.to_owned(), word.to_owned()));
        }
        inputs.scalars.extend(["qk_eps", "norm_eps"].map(|name| (name.to_owned(), 1e-6)));
        reference::reference("gdn_decode").expect("gdn_decode is registered")(&inputs)
    }

    /// Runs `gdn_chunk`; with `initial_state` `zero` the state is withheld.
    pub fn chunk(&self, initial_state: &str, seq_len: &[i64], slot: &[i64]) -> Outputs {
        let mut inputs = self.inputs(initial_state == "slot");
        inputs.options.push(("initial_state".to_owned(), initial_state.to_owned()));
        inputs.lists.push(("seq_len".to_owned(), seq_len.to_vec()));
        inputs.lists.push(("slot".to_owned(), slot.to_vec()));
        reference::reference("gdn_chunk").expect("gdn_chunk is registered")(&inputs)
    }
}

/// Rows of the rule with a decay for each key channel: g is `[rows,Hv,Dk]`.
#[derive(Clone, Debug)]
pub struct Kda(pub Gdn);

impl Kda {
    /// Rows `range` alone, with the same state.
    pub fn rows(&self, range: std::ops::Range<usize>) -> Kda {
        let width = self.0.value_heads * self.0.key_dim;
        let g = self.0.g[range.start * width..range.end * width].to_vec();
        let rows = Gdn { g: Vec::new(), ..self.0.clone() };
        let of_heads = vec![0.0; self.0.beta.len()];
        Kda(Gdn { g, ..Gdn { g: of_heads, ..rows }.rows(range) })
    }

    fn inputs(&self, gate_law: &str) -> Inputs {
        let gdn = &self.0;
        let of_heads = Gdn { g: vec![0.0; gdn.beta.len()], ..gdn.clone() };
        let mut inputs = of_heads.inputs(true);
        let shape = [gdn.beta.len() / gdn.value_heads, gdn.value_heads, gdn.key_dim];
        let g = inputs.tensors.iter_mut().find(|(name, _)| name == "g").expect("g");
        g.1 = f32_tensor(&shape, &gdn.g);
        inputs.scalars = vec![("q_output_scale".to_owned(), f64::from(gdn.scale))];
        inputs.options.push(("gate_law".to_owned(), gate_law.to_owned()));
        inputs
    }

    /// Runs `kda_decode`: row i on slot `slot[i]`.
    pub fn decode(&self, gate_law: &str, slot: &[i64]) -> Outputs {
        let mut inputs = self.inputs(gate_law);
        inputs.lists.push(("slot".to_owned(), slot.to_vec()));
        reference::reference("kda_decode").expect("kda_decode is registered")(&inputs)
    }

    /// Runs `kda_chunk` from the slots.
    pub fn chunk(&self, gate_law: &str, seq_len: &[i64], slot: &[i64]) -> Outputs {
        self.chunk_from("slot", gate_law, seq_len, slot)
    }

    /// Runs `kda_chunk`; with `initial_state` `zero` the state is withheld.
    pub fn chunk_from(
        &self,
        initial_state: &str,
        gate_law: &str,
        seq_len: &[i64],
        slot: &[i64],
    ) -> Outputs {
        let mut inputs = self.inputs(gate_law);
        if initial_state == "zero" {
            inputs.tensors.retain(|(name, _)| name != "s");
        }
        inputs.options.push(("initial_state".to_owned(), initial_state.to_owned()));
        inputs.lists.push(("seq_len".to_owned(), seq_len.to_vec()));
        inputs.lists.push(("slot".to_owned(), slot.to_vec()));
        reference::reference("kda_chunk").expect("kda_chunk is registered")(&inputs)
    }
}

/// A dense f32 tensor.
pub fn f32_tensor(shape: &[usize], values: &[f32]) -> Logical {
    assert_eq!(shape.iter().product::<usize>(), values.len(), "shape {shape:?}");
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let shape = shape.iter().map(|extent| *extent as u64).collect();
    Logical::from_bytes(DType::F32, shape, bytes)
}

/// Values of an output that is a real number.
pub fn value<'a>(outputs: &'a Outputs, tensor: &str) -> &'a [f64] {
    match outputs.tensor(tensor) {
        Some(Expected::Real { value, .. }) => value,
        other => panic!("{tensor} is not real: {other:?}"),
    }
}

/// A magnitude of an output.
pub fn magnitude<'a>(outputs: &'a Outputs, tensor: &str, name: &str) -> &'a [f64] {
    outputs.tensor(tensor).and_then(|expected| expected.magnitude(name)).expect("a magnitude")
}

/// A measure of an output.
pub fn measure<'a>(outputs: &'a Outputs, tensor: &str, name: &str) -> &'a [f64] {
    outputs.tensor(tensor).and_then(|expected| expected.measure(name)).expect("a measure")
}
