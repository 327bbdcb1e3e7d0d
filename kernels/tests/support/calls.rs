//! Legal calls of the kernels that several tests plan: one builder a kernel, dense and distinct buffers.

use super::{call, edit, set_word, tensor};
use contracts::dtype::DType;
use contracts::format::ScaleKind;
use kernels::call::{Call, ScalarArg};

/// Every dtype that rows come in.
pub const IO: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Key heads and value heads of the gated delta rule's calls.
pub const HEADS: [u64; 2] = [2, 4];

pub fn gdn(io: DType, key_dim: u64, value_dim: u64, sequences: u64, rows: u64) -> Call {
    let [key_heads, value_heads] = HEADS;
    let keys = [rows, key_heads, key_dim];
    let values = [rows, value_heads, value_dim];
    let gates = [rows, value_heads];
    call(
        &[
            ("q", io, &keys),
            ("k", io, &keys),
            ("v", io, &values),
            ("g", DType::F32, &gates),
            ("beta", DType::F32, &gates),
            ("s", DType::F32, &[sequences + 2, value_heads, value_dim, key_dim]),
            ("slot_of", DType::I64, &[sequences]),
            ("o", io, &values),
            ("cu_seqlens", DType::I32, &[sequences + 1]),
        ],
        &[
            ("scale", 0.125),
            ("qk_eps", 1e-6),
            ("norm_eps", 1e-6),
            ("alpha_low", 0.0),
            ("alpha_high", 1.0),
        ],
        &[
            ("head_map", "cyclic"),
            ("initial_state", "slot"),
            ("state_layout", "vk"),
            ("gate_form", "log"),
            ("alpha_clamp", "none"),
            ("qk_norm", "none"),
            ("output_gate", "none"),
            ("snapshot", "none"),
            ("retention", "registers"),
            ("epilogue", "fused"),
            ("C", "64"),
            ("arch", "portable"),
        ],
    )
}

/// Two rounds, of 8 and 2 rows.
pub fn verify(io: DType, state: DType, key_dim: u64) -> Call {
    let mut call = gdn(io, key_dim, 64, 2, 10);
    edit(&mut call, "s").dtype = state;
    let snap = tensor(call.tensors.len() as u32, state, &[10, HEADS[1], 64, key_dim]);
    call.tensors.push(("snap".to_owned(), snap));
    call.words.push(("live_state".to_owned(), "kept".to_owned()));
    call
}

/// Rows of the rule with a decay for each key channel.
pub fn kda(io: DType, key_dim: u64, value_dim: u64, sequences: u64, rows: u64) -> Call {
    let mut call = gdn(io, key_dim, value_dim, sequences, rows);
    let g = tensor(3, DType::F32, &[rows, HEADS[1], key_dim]);
    *edit(&mut call, "g") = g;
    call.scalars.push(("q_output_scale".to_owned(), ScalarArg::F32(0.125f32.to_bits())));
    call.words.push(("gate_law".to_owned(), "lb_sigmoid".to_owned()));
    call
}

pub fn kda_qk_norm(io: DType, dim: u64) -> Call {
    let shape = [10, 3, dim];
    call(
        &[("q", io, &shape), ("k", io, &shape), ("q_out", io, &shape), ("k_out", io, &shape)],
        &[("eps", 1e-6)],
        &[("place", "apart")],
    )
}

pub fn kda_gate(io: DType, law: &str) -> Call {
    call(
        &[
            ("f", io, &[10, 3, 128]),
            ("dt_bias", DType::F32, &[3, 128]),
            ("a_log", DType::F32, &[3]),
            ("g", DType::F32, &[10, 3, 128]),
        ],
        &[("lower_bound", -5.0)],
        &[("gate_law", law)],
    )
}

/// As many rows through the convolution, with everything an option may ask for.
pub fn conv(io: DType, out: DType, width: u64, walk: &str) -> Call {
    let mut call = call(
        &[
            ("x", io, &[10, 5, 64]),
            ("weight", io, &[5, 64, width]),
            ("bias", DType::F32, &[5, 64]),
            ("state", DType::F32, &[4, 5, 64, width - 1]),
            ("snap", DType::F32, &[10, 5, 64, width - 1]),
            ("cu_seqlens", DType::I64, &[3]),
            ("slot_of", DType::I64, &[2]),
            ("out", out, &[10, 5, 64]),
        ],
        &[("eps", 1e-6)],
        &[
            ("bias", "given"),
            ("activation", "silu"),
            ("norm", "l2"),
            ("live_state", "advanced"),
            ("snapshot", "each"),
            ("silu_form", "product"),
            ("walk", walk),
        ],
    );
    call.scalars.push(("normed_heads".to_owned(), ScalarArg::I32(2)));
    call
}

pub fn scatter(io: DType) -> Call {
    call(
        &[
            ("from", io, &[5, 40]),
            ("from_of", DType::I64, &[3]),
            ("to_of", DType::I64, &[3]),
            ("to", io, &[4, 40]),
        ],
        &[],
        &[],
    )
}

/// A decode step of `sequences` with everything fused, in raw gates.
pub fn fused(io: DType, state: DType, key_dim: u64, value_dim: u64, sequences: u64) -> Call {
    let [_, value_heads] = HEADS;
    let mut call = gdn(io, key_dim, value_dim, sequences, sequences);
    let gates = [sequences, value_heads];
    let slot = [value_heads, value_dim, key_dim];
    let mut add = |name: &str, dtype: DType, shape: &[u64]| {
        let buffer = call.tensors.len() as u32;
        call.tensors.push((name.to_owned(), tensor(buffer, dtype, shape)));
    };
    add("a", io, &gates);
    add("b", io, &gates);
    add("dt_bias", DType::F32, &[value_heads]);
    add("a_log", DType::F32, &[value_heads]);
    add("z", io, &[sequences, value_heads, value_dim]);
    add("w", io, &[value_dim]);
    add("snap", state, &[&[sequences], &slot[..]].concat());
    edit(&mut call, "s").dtype = state;
    for (option, word) in [
        ("gate_form", "raw"),
        ("alpha_clamp", "range"),
        ("qk_norm", "l2"),
        ("output_gate", "rms_silu"),
        ("snapshot", "each"),
    ] {
        set_word(&mut call, option, word);
    }
    call
}

pub fn ple(out: DType, count: u64) -> Call {
    let mut call = call(
        &[
            ("codes", DType::E4M3, &[33, 160]),
            ("scale", DType::BF16, &[1]),
            ("ids", DType::I64, &[count]),
            ("out", out, &[count, 160]),
            ("status", DType::I32, &[1]),
        ],
        &[],
        &[],
    );
    edit(&mut call, "scale").kind = Some(ScaleKind::TensorBf16);
    call
}

pub fn argmax(dtype: DType, rows: u64, columns: u64, parts: &str) -> Call {
    call(
        &[
            ("x", dtype, &[rows, columns]),
            ("ids", DType::I32, &[rows]),
            ("values", DType::F32, &[rows]),
        ],
        &[],
        &[("value_kind", "f32"), ("blocks_per_row", parts)],
    )
}

pub fn topk(dtype: DType, rows: u64, columns: u64, k: u64, parts: &str) -> Call {
    call(
        &[
            ("x", dtype, &[rows, columns]),
            ("ids", DType::I32, &[rows, k]),
            ("values", DType::F32, &[rows, k]),
        ],
        &[],
        &[("blocks_per_row", parts)],
    )
}

pub fn canary() -> Call {
    call(&[("x", DType::F32, &[9, 70]), ("y", DType::F32, &[9])], &[], &[])
}

/// A drafting block's convolution before a sublayer, its coefficients projected.
pub fn draft(io: DType, channels: u64, groups: u64) -> Call {
    call(
        &[
            ("x", io, &[3, 8, channels]),
            ("y", io, &[3, 8, channels]),
            ("base", io, &[2, 2, channels]),
            ("coef", io, &[3, 8, 2, 2, groups]),
            ("w", io, &[4 * groups, channels]),
            ("residual", io, &[3, 8, channels]),
        ],
        &[],
        &[("stage", "project"), ("residual", "added")],
    )
}

pub fn convert(direction: &str, slots: u64, count: u64) -> Call {
    call(
        &[("wide", DType::F32, &[slots, count]), ("narrow", DType::F16, &[slots, count])],
        &[],
        &[("direction", direction)],
    )
}
