//! Gated delta rule, one token a sequence: see `cuda/linear_attention/gdn_decode.cu`.
//! One launch; a block owns 32 value channels of one head, or with a fused output gate the whole head.
//! With the gate apart a second launch norms what the first left in f32 scratch.

use super::gated_delta::{
    IO, TILE_VALUES, aligned_stride, count, dense, head_dim, one_of, only, stride, whole_groups,
};
use crate::call::{Call, Rejection, TensorArg};
use crate::launch::{Argument, Launch, Plan, Scratch};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const MODULE: &str = "gdn_decode";
/// Storage types of the state.
const STATES: [DType; 2] = [DType::F32, DType::F16];
/// Threads of a block of 32 value channels, by the state's type: a narrow state's warps hold twice the rows.
const THREADS: [(DType, u32); 2] = [(DType::F32, 128), (DType::F16, 64)];
/// Most threads of a block that owns a head.
const GATED_THREADS: u32 = 256;
/// Threads a value channel of a head keeps busy: four rows a warp, two passes.
const THREADS_PER_VALUE: u32 = 4;
/// The key dim the staged twin is compiled for.
const STAGED_KEY_DIM: u64 = 128;
/// Limit of the grid's second and third axis.
const GRID_LIMIT: u32 = 65_535;

/// Checks q, k `[N, Hk, Dk]`, v, o `[N, Hv, Dv]` (f32, f16 or bf16), s `[slots, Hv, Dv, Dk]` (f32 or
/// f16), slot_of `[N]` i64, the scalar `scale` and the words, in elements of each tensor's own type:
///
/// * `gate_form`: `log` takes g, beta `[N, Hv]` f32; `alpha` alpha, beta; `raw` a, b `[N, Hv]` as q and
///   dt_bias, a_log `[Hv]` f32;
/// * `alpha_clamp`: `range` takes the scalars `alpha_low` ≤ `alpha_high`;
/// * `qk_norm`: `l2` and `rms_scaled` take `qk_eps`; `rms_scaled` does not use `scale`;
/// * `output_gate`: `rms_silu` takes z `[N, Hv, Dv]`, w `[Dv]` as q, and `norm_eps`;
/// * `snapshot`: `each` takes snap `[N, Hv, Dv, Dk]` of the state's type, with a stride of its own;
/// * `head_map`, and of the variants `retention` (shared: Dk 128, no output gate) and `epilogue`.
///
/// Plans one launch or two, or none for an empty batch.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let step = Step::check(call)?;
    if step.sequences == 0 {
        return Ok(Plan::default());
    }
    let apart = step.gated && step.apart;
    let sequences = step.sequences.unsigned_abs();
    let heads = step.value_heads.unsigned_abs();
    let values = step.value_dim.unsigned_abs();
    let whole_heads = step.gated && !apart;
    // Blocks of the last axis take further sequences in turn.
    let later = sequences.min(GRID_LIMIT);
    let mut plan = Plan::default();
    plan.launches.push(Launch {
        module: MODULE,
        entry: step.entry(whole_heads).into(),
        grid: [if whole_heads { 1 } else { values / TILE_VALUES }, heads, later],
        block: [step.threads(whole_heads), 1, 1],
        dynamic_shared_bytes: 0,
        arguments: if step.is_plain() { step.plain_arguments() } else { step.arguments(apart) },
    });
    if apart {
        plan.scratch.push(Scratch {
            name: "wide_o",
            dtype: DType::F32,
            shape: vec![u64::from(sequences), u64::from(heads), u64::from(values)],
        });
        plan.launches.push(Launch {
            module: MODULE,
            entry: format!("gdn_output_gate_{}", step.io.name()).into(),
            grid: [heads, later, 1],
            block: [values, 1, 1],
            dynamic_shared_bytes: 0,
            arguments: vec![
                Argument::Scratch(0),
                Argument::Tensor("z"),
                Argument::Tensor("w"),
                Argument::Tensor("slot_of"),
                Argument::Tensor("o"),
                Argument::I64(step.z_stride),
                Argument::I64(step.o_stride),
                Argument::I32(step.sequences),
                Argument::I32(step.value_dim),
                Argument::F32(step.norm_eps),
            ],
        });
    }
    Ok(plan)
}

/// The gates' tensors and their row strides; the kernel's numbers of the forms.
enum Gates {
    /// g (0) or alpha (1), with beta.
    Given { form: i32, decay: &'static str, decay_stride: i64, beta_stride: i64 },
    /// a, b, dt_bias and a_log (2).
    Raw { a_stride: i64, b_stride: i64 },
}

/// Checked arguments. Counts fit an i32; strides are in elements of the tensor's own type.
struct Step {
    io: DType,
    state: DType,
    sequences: i32,
    key_heads: i32,
    value_heads: i32,
    key_dim: u64,
    value_dim: i32,
    gates: Gates,
    qk_norm: i32,
    clamps_alpha: bool,
    gated: bool,
    has_snapshots: bool,
    apart: bool,
    staged: bool,
    head_map_cyclic: bool,
    q_stride: i64,
    k_stride: i64,
    v_stride: i64,
    z_stride: i64,
    s_stride: i64,
    snap_stride: i64,
    o_stride: i64,
    scale: f32,
    qk_eps: f32,
    norm_eps: f32,
    alpha_low: f32,
    alpha_high: f32,
}

/// What the words ask for, before any tensor is looked at.
struct Words {
    gate_form: usize,
    qk_norm: usize,
    clamps_alpha: bool,
    gated: bool,
    snapshots: bool,
}

impl Words {
    fn read(call: &Call) -> Result<Words, Rejection> {
        only(call, "state_layout", "vk")?;
        Ok(Words {
            gate_form: word(call, "gate_form", &["log", "alpha", "raw"])?,
            qk_norm: word(call, "qk_norm", &["none", "l2", "rms_scaled"])?,
            clamps_alpha: one_of(call, "alpha_clamp", ["none", "range"])?,
            gated: one_of(call, "output_gate", ["none", "rms_silu"])?,
            snapshots: one_of(call, "snapshot", ["none", "each"])?,
        })
    }

    /// The row tensors of shape `[N, Hv]`, and whether they are of the type of q.
    fn gates(&self) -> [(&'static str, bool); 2] {
        match self.gate_form {
            0 => [("g", false), ("beta", false)],
            1 => [("alpha", false), ("beta", false)],
            _ => [("a", true), ("b", true)],
        }
    }

    fn is_raw(&self) -> bool {
        self.gate_form == 2
    }
}

impl Step {
    fn check(call: &Call) -> Result<Step, Rejection> {
        let words = Words::read(call)?;
        let shapes = Shapes::check(call, &words)?;
        let Shapes { q, s, sequences, key_heads, key_dim, value_heads, value_dim } = shapes;
        let row = |name: &str| aligned_stride(name, call.tensor(name)?);
        let plain = |name: &str| stride(name, call.tensor(name)?);
        let [first, second] = words.gates().map(|(name, _)| plain(name));
        let (first, second) = (first?, second?);
        let gates = match words.gate_form {
            0 => Gates::Given { form: 0, decay: "g", decay_stride: first, beta_stride: second },
            1 => Gates::Given { form: 1, decay: "alpha", decay_stride: first, beta_stride: second },
            _ => Gates::Raw { a_stride: first, b_stride: second },
        };
        let step = Step {
            io: q.dtype,
            state: s.dtype,
            sequences: count("slot_of", "sequences", sequences)?,
            key_heads: count("q", "key heads", key_heads)?,
            value_heads: heads(value_heads)?,
            key_dim,
            value_dim: count("v", "value channels", value_dim)?,
            gates,
            qk_norm: words.qk_norm as i32,
            clamps_alpha: words.clamps_alpha,
            gated: words.gated,
            has_snapshots: words.snapshots,
            apart: one_of(call, "epilogue", ["fused", "apart"])?,
            staged: one_of(call, "retention", ["registers", "shared"])?,
            head_map_cyclic: one_of(call, "head_map", ["block", "cyclic"])?,
            q_stride: row("q")?,
            k_stride: row("k")?,
            v_stride: row("v")?,
            z_stride: if words.gated { plain("z")? } else { 0 },
            s_stride: row("s")?,
            snap_stride: if words.snapshots { row("snap")? } else { 0 },
            o_stride: row("o")?,
            scale: call.f32("scale")?,
            qk_eps: call.f32("qk_eps")?,
            norm_eps: call.f32("norm_eps")?,
            alpha_low: call.f32("alpha_low")?,
            alpha_high: call.f32("alpha_high")?,
        };
        dense("slot_of", call.tensor("slot_of")?)?;
        let vectors: &[&str] = if words.is_raw() { &["dt_bias", "a_log"] } else { &[] };
        for name in vectors.iter().chain(if words.gated { &["w"][..] } else { &[] }) {
            dense(name, call.tensor(name)?)?;
        }
        step.check_words()?;
        call.no_alias(&["s", "o", "snap"])?;
        Ok(step)
    }

    fn check_words(&self) -> Result<(), Rejection> {
        if self.staged && (self.gated || self.key_dim != STAGED_KEY_DIM) {
            let detail = format!(
                "is `shared`, which needs {STAGED_KEY_DIM} key channels (there are {}) and no \
                 output gate; pass `registers`",
                self.key_dim
            );
            return Err(Rejection::new(ErrorKind::Shape, "retention", detail));
        }
        if self.apart && !self.gated {
            let detail = "is `apart`, and there is no output gate; pass `fused`";
            return Err(Rejection::new(ErrorKind::Shape, "epilogue", detail));
        }
        // NaN compares with nothing.
        let ordered = self.alpha_low.partial_cmp(&self.alpha_high).is_some_and(|o| o.is_le());
        if self.clamps_alpha && !ordered {
            let detail = format!(
                "is {}, above alpha_high, {}; pass low <= high",
                self.alpha_low, self.alpha_high
            );
            return Err(Rejection::new(ErrorKind::Shape, "alpha_low", detail));
        }
        Ok(())
    }

    /// Whether nothing is fused but the exponential of log gates.
    fn is_plain(&self) -> bool {
        let gates_given = matches!(self.gates, Gates::Given { .. }) && !self.clamps_alpha;
        gates_given && self.qk_norm == 0 && !self.gated && !self.has_snapshots && !self.staged
    }

    fn threads(&self, whole_heads: bool) -> u32 {
        if whole_heads {
            return GATED_THREADS.min(self.value_dim.unsigned_abs() * THREADS_PER_VALUE);
        }
        let of_state = THREADS.iter().find(|(state, _)| *state == self.state);
        of_state.map_or(THREADS[0].1, |(_, threads)| *threads)
    }

    fn entry(&self, whole_heads: bool) -> String {
        let twin = match () {
            () if whole_heads => "_gated",
            () if self.staged => "_shared",
            () if self.is_plain() => "",
            () => "_fused",
        };
        format!("gdn_decode_{}_{}_k{}{twin}", self.io.name(), self.state.name(), self.key_dim)
    }

    /// The parameters of a plain entry.
    fn plain_arguments(&self) -> Vec<Argument> {
        let Gates::Given { form, decay, decay_stride, beta_stride } = self.gates else {
            return Vec::new();
        };
        vec![
            Argument::Tensor("q"),
            Argument::Tensor("k"),
            Argument::Tensor("v"),
            Argument::Tensor(decay),
            Argument::Tensor("beta"),
            Argument::Tensor("s"),
            Argument::Tensor("slot_of"),
            Argument::Tensor("o"),
            Argument::I64(self.q_stride),
            Argument::I64(self.k_stride),
            Argument::I64(self.v_stride),
            Argument::I64(decay_stride),
            Argument::I64(beta_stride),
            Argument::I64(self.s_stride),
            Argument::I64(self.o_stride),
            Argument::I32(self.sequences),
            Argument::I32(self.key_heads),
            Argument::I32(self.value_heads),
            Argument::I32(self.value_dim),
            Argument::I32(self.head_map_cyclic.into()),
            Argument::I32(form),
            Argument::F32(self.scale),
        ]
    }

    /// The parameters of every other entry.
    fn arguments(&self, apart: bool) -> Vec<Argument> {
        let raw = matches!(self.gates, Gates::Raw { .. });
        let tensor_if = |wanted: bool, name| {
            if wanted { Argument::Tensor(name) } else { Argument::Null }
        };
        let (form, decay, decay_stride, beta_stride, a_stride, b_stride) = match self.gates {
            Gates::Given { form, decay, decay_stride, beta_stride } => {
                (form, Argument::Tensor(decay), decay_stride, beta_stride, 0, 0)
            }
            Gates::Raw { a_stride, b_stride } => (2, Argument::Null, 0, 0, a_stride, b_stride),
        };
        vec![
            Argument::Tensor("q"),
            Argument::Tensor("k"),
            Argument::Tensor("v"),
            decay,
            tensor_if(!raw, "beta"),
            tensor_if(raw, "a"),
            tensor_if(raw, "b"),
            tensor_if(raw, "dt_bias"),
            tensor_if(raw, "a_log"),
            tensor_if(self.gated, "z"),
            tensor_if(self.gated, "w"),
            Argument::Tensor("s"),
            // Null without snapshots: the call has no such tensor.
            Argument::Tensor("snap"),
            Argument::Tensor("slot_of"),
            Argument::Tensor("o"),
            if apart { Argument::Scratch(0) } else { Argument::Null },
            Argument::I64(self.q_stride),
            Argument::I64(self.k_stride),
            Argument::I64(self.v_stride),
            Argument::I64(decay_stride),
            Argument::I64(beta_stride),
            Argument::I64(a_stride),
            Argument::I64(b_stride),
            Argument::I64(self.z_stride),
            Argument::I64(self.s_stride),
            Argument::I64(self.snap_stride),
            Argument::I64(self.o_stride),
            Argument::I32(self.sequences),
            Argument::I32(self.key_heads),
            Argument::I32(self.value_heads),
            Argument::I32(self.value_dim),
            Argument::I32(self.head_map_cyclic.into()),
            Argument::I32(form),
            Argument::I32(self.qk_norm),
            Argument::I32(self.clamps_alpha.into()),
            Argument::F32(self.scale),
            Argument::F32(self.qk_eps),
            Argument::F32(self.norm_eps),
            Argument::F32(self.alpha_low),
            Argument::F32(self.alpha_high),
        ]
    }
}

/// Tensors whose types and shapes agree.
struct Shapes<'a> {
    q: &'a TensorArg,
    s: &'a TensorArg,
    sequences: u64,
    key_heads: u64,
    key_dim: u64,
    value_heads: u64,
    value_dim: u64,
}

impl<'a> Shapes<'a> {
    fn check(call: &'a Call, words: &Words) -> Result<Shapes<'a>, Rejection> {
        let q = call.tensor("q")?.dtype_in("q", &IO)?;
        let s = call.tensor("s")?.dtype_in("s", &STATES)?;
        let typed = |name: &str, dtype: DType| call.tensor(name)?.dtype_in(name, &[dtype]);
        let (k, v, o) = (typed("k", q.dtype)?, typed("v", q.dtype)?, typed("o", q.dtype)?);
        let slot_of = typed("slot_of", DType::I64)?;
        let [sequences, key_heads, key_dim] = q.axes("q")?;
        let [_, value_heads, value_dim] = v.axes("v")?;
        let [slots, ..] = s.axes::<4>("s")?;
        let values = [sequences, value_heads, value_dim];
        let mut expected: Vec<(&str, &TensorArg, Vec<u64>)> = vec![
            ("k", k, vec![sequences, key_heads, key_dim]),
            ("v", v, values.to_vec()),
            ("o", o, values.to_vec()),
            ("s", s, vec![slots, value_heads, value_dim, key_dim]),
            ("slot_of", slot_of, vec![sequences]),
        ];
        for (name, as_q) in words.gates() {
            let tensor = typed(name, if as_q { q.dtype } else { DType::F32 })?;
            expected.push((name, tensor, vec![sequences, value_heads]));
        }
        if words.is_raw() {
            for name in ["dt_bias", "a_log"] {
                expected.push((name, typed(name, DType::F32)?, vec![value_heads]));
            }
        }
        if words.gated {
            expected.push(("z", typed("z", q.dtype)?, values.to_vec()));
            expected.push(("w", typed("w", q.dtype)?, vec![value_dim]));
        }
        if words.snapshots {
            let shape = vec![sequences, value_heads, value_dim, key_dim];
            expected.push(("snap", typed("snap", s.dtype)?, shape));
        }
        for (name, tensor, shape) in &expected {
            tensor.shape_is(name, shape)?;
        }
        head_dim("q", key_dim)?;
        head_dim("v", value_dim)?;
        whole_groups(key_heads, value_heads)?;
        Ok(Shapes { q, s, sequences, key_heads, key_dim, value_heads, value_dim })
    }
}

fn heads(value_heads: u64) -> Result<i32, Rejection> {
    if value_heads > u64::from(GRID_LIMIT) {
        let detail = format!("has {value_heads} heads; at most {GRID_LIMIT} fit one launch");
        return Err(Rejection::new(ErrorKind::Shape, "v", detail));
    }
    count("v", "value heads", value_heads)
}

/// The place of an option's word among those known.
fn word(call: &Call, option: &str, known: &[&str]) -> Result<usize, Rejection> {
    let given = call.word(option)?;
    known.iter().position(|word| *word == given).ok_or_else(|| {
        let detail = format!("is `{given}`; must be one of {}", known.join(", "));
        Rejection::new(ErrorKind::Shape, option, detail)
    })
}
