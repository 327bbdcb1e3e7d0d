//! What the gated-delta kernels take alike: row tensors, state and slots, checked together.
//! A value of [`GatedDelta`] exists only for arguments that agree with each other.

use crate::call::{Call, Rejection, TensorArg};
use crate::launch::Argument;
use contracts::dtype::DType;
use contracts::format::ErrorKind;

/// Storage types of q, k, v and o.
pub(super) const IO: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
/// Head dims the kernels are compiled for.
const HEAD_DIMS: [u64; 3] = [32, 64, 128];
/// Alignment of every row that is read or written four elements at a time.
const ROW_ALIGN_BYTES: u64 = 16;
/// Value channels a block of the state kernels owns.
pub(super) const TILE_VALUES: u32 = 32;

/// Threads of a block of a speculative round: one warp holds a tile of an f32 state, two share one of an
/// f16 state.
pub(super) fn round_threads(state: DType) -> u32 {
    if state == DType::F32 { 32 } else { 64 }
}

/// Sequences from which on a round's launch has tiles enough to fill a GPU though they are parted less.
pub(super) const MANY_SEQUENCES: u32 = 3;

/// How the decay is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateForm {
    /// g, its logarithm.
    Log,
    /// alpha itself.
    Alpha,
}

impl GateForm {
    /// The form of the option `gate_form`; a call that does not state it means log.
    fn of(call: &Call, known: &[GateForm]) -> Result<GateForm, Rejection> {
        let given = call.word("gate_form").unwrap_or("log");
        known.iter().copied().find(|form| form.word() == given).ok_or_else(|| {
            let known: Vec<_> = known.iter().map(|form| form.word()).collect();
            let detail = format!("is `{given}`; this kernel knows {}", known.join(" and "));
            Rejection::new(ErrorKind::Shape, "gate_form", detail)
        })
    }

    fn word(self) -> &'static str {
        match self {
            GateForm::Log => "log",
            GateForm::Alpha => "alpha",
        }
    }

    fn decay(self) -> &'static str {
        match self {
            GateForm::Log => "g",
            GateForm::Alpha => "alpha",
        }
    }
}

/// The least log decay under the lower-bound law.
const LOWER_BOUND: f32 = -5.0;

/// What tells the two rules apart in a call.
struct Form {
    /// The decays' tensor.
    decay: &'static str,
    /// Whether each key channel has a decay of its own.
    by_key_channel: bool,
    /// The scalar that multiplies the output.
    scale: &'static str,
}

/// Checked arguments. Counts fit an i32; strides are in elements of the tensor's own type.
pub(super) struct GatedDelta {
    pub(super) io: DType,
    pub(super) state: DType,
    pub(super) rows: u64,
    pub(super) sequences: i32,
    pub(super) key_heads: i32,
    pub(super) value_heads: i32,
    pub(super) key_dim: i32,
    pub(super) value_dim: i32,
    pub(super) q_stride: i64,
    pub(super) k_stride: i64,
    pub(super) v_stride: i64,
    /// `g` or `alpha`.
    pub(super) decay: &'static str,
    pub(super) g_stride: i64,
    pub(super) beta_stride: i64,
    pub(super) s_stride: i64,
    pub(super) o_stride: i64,
    pub(super) head_map_cyclic: bool,
    pub(super) scale: f32,
}

impl GatedDelta {
    /// Checks q, k `[rows, Hk, Dk]`, v, o `[rows, Hv, Dv]`, g or alpha, beta `[rows, Hv]`, s
    /// `[slots, Hv, Dv, Dk]` of one of `states`, slot_of `[N]`, `scale` and the words, of which
    /// `gate_form` is one of `gate_forms`; nothing ties `rows` to N here.
    pub(super) fn check(
        call: &Call,
        states: &[DType],
        gate_forms: &[GateForm],
    ) -> Result<GatedDelta, Rejection> {
        let decay = GateForm::of(call, gate_forms)?.decay();
        GatedDelta::of_form(call, states, &Form { decay, by_key_channel: false, scale: "scale" })
    }

    /// As `check`, for decays of key channels: g `[rows, Hv, Dk]`, the scalar `q_output_scale`, and the
    /// word `gate_law` in place of `gate_form`; with it, the least log decay, which is −∞ for `softplus`.
    pub(super) fn check_key_decays(call: &Call) -> Result<(GatedDelta, f32), Rejection> {
        let bounded = one_of(call, "gate_law", ["softplus", "lb_sigmoid"])?;
        let form = Form { decay: "g", by_key_channel: true, scale: "q_output_scale" };
        let checked = GatedDelta::of_form(call, &[DType::F32], &form)?;
        Ok((checked, if bounded { LOWER_BOUND } else { f32::NEG_INFINITY }))
    }

    fn of_form(call: &Call, states: &[DType], form: &Form) -> Result<GatedDelta, Rejection> {
        let decay = form.decay;
        let q = call.tensor("q")?.dtype_in("q", &IO)?;
        let typed = |name: &str, dtype: DType| call.tensor(name)?.dtype_in(name, &[dtype]);
        let (k, v, o) = (typed("k", q.dtype)?, typed("v", q.dtype)?, typed("o", q.dtype)?);
        let (g, beta) = (typed(decay, DType::F32)?, typed("beta", DType::F32)?);
        let s = call.tensor("s")?.dtype_in("s", states)?;
        let slot_of = typed("slot_of", DType::I64)?;

        let [rows, key_heads, key_dim] = q.axes("q")?;
        let [_, value_heads, value_dim] = v.axes("v")?;
        let [slots, ..] = s.axes::<4>("s")?;
        let [sequences] = slot_of.axes("slot_of")?;
        k.shape_is("k", &[rows, key_heads, key_dim])?;
        v.shape_is("v", &[rows, value_heads, value_dim])?;
        o.shape_is("o", &[rows, value_heads, value_dim])?;
        let g_shape = [rows, value_heads, key_dim];
        g.shape_is(decay, if form.by_key_channel { &g_shape } else { &g_shape[..2] })?;
        beta.shape_is("beta", &[rows, value_heads])?;
        s.shape_is("s", &[slots, value_heads, value_dim, key_dim])?;
        head_dim("q", key_dim)?;
        head_dim("v", value_dim)?;
        whole_groups(key_heads, value_heads)?;

        let checked = GatedDelta {
            io: q.dtype,
            state: s.dtype,
            rows,
            sequences: count("slot_of", "sequences", sequences)?,
            key_heads: count("q", "key heads", key_heads)?,
            value_heads: count("v", "value heads", value_heads)?,
            key_dim: count("q", "key channels", key_dim)?,
            value_dim: count("v", "value channels", value_dim)?,
            q_stride: aligned_stride("q", q)?,
            k_stride: aligned_stride("k", k)?,
            v_stride: aligned_stride("v", v)?,
            decay,
            g_stride: if form.by_key_channel { aligned_stride } else { stride }(decay, g)?,
            beta_stride: stride("beta", beta)?,
            s_stride: aligned_stride("s", s)?,
            o_stride: aligned_stride("o", o)?,
            head_map_cyclic: one_of(call, "head_map", ["block", "cyclic"])?,
            scale: call.f32(form.scale)?,
        };
        dense("slot_of", slot_of)?;
        only(call, "state_layout", "vk")?;
        call.no_alias(&["s", "o"])?;
        Ok(checked)
    }

    /// `io` and the key dim as entry names spell them.
    pub(super) fn entry(&self, stem: &str) -> String {
        format!("{stem}_{}_k{}", self.io.name(), self.key_dim)
    }

    pub(super) fn head_map(&self) -> Argument {
        Argument::I32(self.head_map_cyclic.into())
    }
}

/// Checks cu_seqlens `[N + 1]` of i32 or i64; whether it is i64.
pub(super) fn row_offsets(call: &Call, sequences: i32) -> Result<bool, Rejection> {
    let cu_seqlens =
        call.tensor("cu_seqlens")?.dtype_in("cu_seqlens", &[DType::I32, DType::I64])?;
    cu_seqlens.shape_is("cu_seqlens", &[u64::from(sequences.unsigned_abs()) + 1])?;
    dense("cu_seqlens", cu_seqlens)?;
    Ok(cu_seqlens.dtype == DType::I64)
}

pub(super) fn head_dim(name: &str, dim: u64) -> Result<(), Rejection> {
    if HEAD_DIMS.contains(&dim) {
        return Ok(());
    }
    let detail = format!("has {dim} channels a head; must be one of {HEAD_DIMS:?}");
    Err(Rejection::new(ErrorKind::Shape, name, detail))
}

pub(super) fn whole_groups(key_heads: u64, value_heads: u64) -> Result<(), Rejection> {
    if key_heads > 0 && value_heads > 0 && value_heads.is_multiple_of(key_heads) {
        return Ok(());
    }
    let detail =
        format!("has {value_heads} heads; must be a multiple of the {key_heads} key heads");
    Err(Rejection::new(ErrorKind::Shape, "v", detail))
}

/// A count a kernel holds in 32 bits.
pub(super) fn count(name: &str, what: &str, value: u64) -> Result<i32, Rejection> {
    i32::try_from(value).map_err(|_| {
        Rejection::new(ErrorKind::Shape, name, format!("has {value} {what}; at most 2^31 - 1 fit"))
    })
}

pub(super) fn stride(name: &str, tensor: &TensorArg) -> Result<i64, Rejection> {
    let stride = tensor.aligned(name, tensor.dtype.size_bytes())?.row_stride(name)?;
    i64::try_from(stride).map_err(|_| {
        Rejection::new(ErrorKind::Shape, name, format!("row stride {stride} exceeds 2^63 - 1"))
    })
}

pub(super) fn aligned_stride(name: &str, tensor: &TensorArg) -> Result<i64, Rejection> {
    let stride = stride(name, tensor)?;
    tensor.aligned(name, ROW_ALIGN_BYTES)?;
    Ok(stride)
}

/// Checks that a vector has no gaps.
pub(super) fn dense(name: &str, tensor: &TensorArg) -> Result<(), Rejection> {
    tensor.aligned(name, tensor.dtype.size_bytes())?;
    if tensor.row_stride(name)? == 1 || tensor.count() < 2 {
        return Ok(());
    }
    Err(Rejection::new(ErrorKind::Shape, name, "must be contiguous"))
}

/// Whether the option is the second of two words.
pub(super) fn one_of(call: &Call, option: &str, words: [&str; 2]) -> Result<bool, Rejection> {
    match call.word(option)? {
        word if word == words[0] => Ok(false),
        word if word == words[1] => Ok(true),
        word => {
            let detail = format!("is `{word}`; must be `{}` or `{}`", words[0], words[1]);
            Err(Rejection::new(ErrorKind::Shape, option, detail))
        }
    }
}

/// Refuses an option's other words; a call that does not state the option means `word`.
pub(super) fn only(call: &Call, option: &str, word: &str) -> Result<(), Rejection> {
    match call.word(option) {
        Ok(given) if given != word => Err(Rejection::new(
            ErrorKind::Shape,
            option,
            format!("is `{given}`; this kernel knows `{word}` alone"),
        )),
        _ => Ok(()),
    }
}
