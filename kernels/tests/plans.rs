//! Every launch function: what it plans fits the PTX it names, and every refusal fires.

mod support;

use contracts::dtype::DType;
use contracts::format::{ErrorKind, ScaleKind};
use kernels::call::{Call, ScalarArg};
use kernels::launch::Argument;
use std::collections::BTreeSet;
use support::{call, edit, fits, parameters, plan, refuses, set_word, tensor};

const IO: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
const HEADS: [u64; 2] = [2, 4];

fn gdn(io: DType, key_dim: u64, value_dim: u64, sequences: u64, rows: u64) -> Call {
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
        ],
    )
}

/// Two rounds, of 8 and 2 rows.
fn verify(io: DType, state: DType, key_dim: u64) -> Call {
    let mut call = gdn(io, key_dim, 64, 2, 10);
    edit(&mut call, "s").dtype = state;
    let snap = tensor(call.tensors.len() as u32, state, &[10, HEADS[1], 64, key_dim]);
    call.tensors.push(("snap".to_owned(), snap));
    call.words.push(("live_state".to_owned(), "kept".to_owned()));
    call
}

/// Rows of the rule with a decay for each key channel.
fn kda(io: DType, key_dim: u64, value_dim: u64, sequences: u64, rows: u64) -> Call {
    let mut call = gdn(io, key_dim, value_dim, sequences, rows);
    let g = tensor(3, DType::F32, &[rows, HEADS[1], key_dim]);
    *edit(&mut call, "g") = g;
    call.scalars.push(("q_output_scale".to_owned(), ScalarArg::F32(0.125f32.to_bits())));
    call.words.push(("gate_law".to_owned(), "lb_sigmoid".to_owned()));
    call
}

fn kda_qk_norm(io: DType, dim: u64) -> Call {
    let shape = [10, 3, dim];
    call(
        &[("q", io, &shape), ("k", io, &shape), ("q_out", io, &shape), ("k_out", io, &shape)],
        &[("eps", 1e-6)],
        &[("place", "apart")],
    )
}

fn kda_gate(io: DType, law: &str) -> Call {
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
fn conv(io: DType, out: DType, width: u64, walk: &str) -> Call {
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

fn scatter(io: DType) -> Call {
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

#[test]
fn what_a_round_runs_is_refused_argument_by_argument() {
    let good = verify(DType::BF16, DType::F16, 64);
    let grid = plan("gdn_verify", &good).expect("legal").launches[0].grid;
    assert_eq!(grid, [2, 4, 2], "tiles of 32 channels, heads, sequences");
    refuses("gdn_verify", &good, ErrorKind::Dtype, "s", |call| edit(call, "s").dtype = DType::BF16);
    refuses("gdn_verify", &good, ErrorKind::Dtype, "snap", |call| {
        edit(call, "snap").dtype = DType::F32;
    });
    refuses("gdn_verify", &good, ErrorKind::Shape, "snap", |call| edit(call, "snap").shape[0] = 9);
    refuses("gdn_verify", &good, ErrorKind::Align, "snap", |call| {
        edit(call, "snap").offset_bytes = 8;
    });
    refuses("gdn_verify", &good, ErrorKind::Alias, "s", |call| {
        edit(call, "snap").buffer = 5;
    });
    refuses("gdn_verify", &good, ErrorKind::Shape, "gate_form", |call| {
        set_word(call, "gate_form", "raw");
    });
    refuses("gdn_verify", &good, ErrorKind::Shape, "live_state", |call| {
        set_word(call, "live_state", "half");
    });
    refuses("gdn_verify", &good, ErrorKind::Shape, "cu_seqlens", |call| {
        edit(call, "cu_seqlens").shape[0] = 2;
    });

    let good = conv(DType::F16, DType::F32, 4, "rows");
    let grid = plan("causal_conv1d", &good).expect("legal").launches[0].grid;
    assert_eq!(grid, [3, 2, 1], "320 channels by 128, sequences");
    refuses("causal_conv1d", &good, ErrorKind::Dtype, "out", |call| {
        edit(call, "out").dtype = DType::E4M3;
    });
    for (option, word) in [("walk", "columns"), ("silu_form", "quotient")] {
        refuses("causal_conv1d", &good, ErrorKind::Shape, option, |call| {
            set_word(call, option, word)
        });
    }
    refuses("causal_conv1d", &good, ErrorKind::Dtype, "state", |call| {
        edit(call, "state").dtype = DType::BF16;
    });
    refuses("causal_conv1d", &good, ErrorKind::Shape, "weight", |call| {
        edit(call, "weight").shape[2] = 5;
    });
    refuses("causal_conv1d", &good, ErrorKind::Shape, "state", |call| {
        edit(call, "state").shape[3] = 5;
    });
    refuses("causal_conv1d", &good, ErrorKind::Shape, "x", |call| {
        for name in ["x", "out", "weight", "bias", "state", "snap"] {
            let axis = edit(call, name).shape.iter().position(|extent| *extent == 64).expect("D");
            edit(call, name).shape[axis] = 48;
        }
    });
    refuses("causal_conv1d", &good, ErrorKind::Shape, "normed_heads", |call| {
        call.scalars.retain(|(name, _)| name != "normed_heads");
        call.scalars.push(("normed_heads".to_owned(), ScalarArg::I32(-1)));
    });
    refuses("causal_conv1d", &good, ErrorKind::Dtype, "normed_heads", |call| {
        call.scalars.retain(|(name, _)| name != "normed_heads");
        call.scalars.push(("normed_heads".to_owned(), ScalarArg::F32(0)));
    });
    refuses("causal_conv1d", &good, ErrorKind::Alias, "out", |call| edit(call, "out").buffer = 0);

    let good = scatter(DType::BF16);
    let launch = &plan("state_scatter", &good).expect("legal").launches[0];
    assert_eq!(launch.grid, [1, 3, 1]);
    assert_eq!(launch.arguments[6], Argument::I64(5), "whole vectors of 16 bytes");
    refuses("state_scatter", &good, ErrorKind::Dtype, "to", |call| {
        edit(call, "to").dtype = DType::F16;
    });
    refuses("state_scatter", &good, ErrorKind::Shape, "to", |call| edit(call, "to").shape[1] = 48);
    refuses("state_scatter", &good, ErrorKind::Shape, "to_of", |call| {
        edit(call, "to_of").shape[0] = 2;
    });
    refuses("state_scatter", &good, ErrorKind::Shape, "from", |call| {
        for name in ["from", "to"] {
            edit(call, name).shape[1] = 12;
        }
    });
    refuses("state_scatter", &good, ErrorKind::Alias, "to", |call| edit(call, "to").buffer = 0);
}

#[test]
fn decays_of_key_channels_are_refused_argument_by_argument() {
    for kernel in ["kda_decode", "kda_chunk"] {
        let good = kda(DType::BF16, 64, 64, 3, 3);
        let plan_of = plan(kernel, &good).expect("legal");
        let least = Argument::F32(-5.0);
        assert!(plan_of.launches[0].arguments.contains(&least), "the law's bound");
        refuses(kernel, &good, ErrorKind::Shape, "g", |call| {
            *edit(call, "g") = tensor(3, DType::F32, &[3, HEADS[1]]);
        });
        refuses(kernel, &good, ErrorKind::Dtype, "g", |call| edit(call, "g").dtype = DType::BF16);
        refuses(kernel, &good, ErrorKind::Align, "g", |call| edit(call, "g").offset_bytes = 8);
        refuses(kernel, &good, ErrorKind::Dtype, "s", |call| edit(call, "s").dtype = DType::F16);
        refuses(kernel, &good, ErrorKind::Alias, "o", |call| edit(call, "o").buffer = 2);
        refuses(kernel, &good, ErrorKind::Shape, "q_output_scale", |call| {
            call.scalars.retain(|(name, _)| name != "q_output_scale");
        });
        refuses(kernel, &good, ErrorKind::Shape, "gate_law", |call| {
            set_word(call, "gate_law", "log");
        });
    }
    let mut unbounded = kda(DType::F32, 32, 32, 1, 1);
    set_word(&mut unbounded, "gate_law", "softplus");
    let arguments = &plan("kda_decode", &unbounded).expect("legal").launches[0].arguments;
    assert!(arguments.contains(&Argument::F32(f32::NEG_INFINITY)), "no bound");
    let rows = kda(DType::F32, 32, 32, 2, 3);
    refuses("kda_decode", &kda(DType::F32, 32, 32, 3, 3), ErrorKind::Shape, "q", |call| {
        *call = rows.clone();
    });

    let launches = plan("kda_chunk", &kda(DType::BF16, 128, 128, 3, 130)).expect("legal").launches;
    assert_eq!(launches[0].grid, [(130 / 64 + 3) * 4, 1, 1], "chunks and heads");
    let shared = [32, 64, 128].map(|key_dim| {
        let call = kda(DType::BF16, key_dim, 128, 3, 130);
        plan("kda_chunk", &call).expect("legal").launches[0].dynamic_shared_bytes
    });
    assert_eq!(shared, [20_480, 36_864, 73_728], "decayed rows, or the square in their place");
    assert_eq!((launches[1].grid, launches[1].block), ([3 * 4 * 2, 1, 1], [320, 1, 1]));
    assert_eq!(launches[1].dynamic_shared_bytes, 197_632, "KdaTiles<128>::kBytes");

    let good = kda_qk_norm(DType::BF16, 128);
    let grid = plan("kda_qk_norm", &good).expect("legal").launches[0].grid;
    assert_eq!(grid, [4, 2, 1], "30 rows of heads by 8, q and k");
    refuses("kda_qk_norm", &good, ErrorKind::Shape, "k", |call| edit(call, "k").shape[1] = 2);
    refuses("kda_qk_norm", &good, ErrorKind::Shape, "k_out", |call| {
        call.tensors.retain(|(name, _)| name != "k_out");
    });
    refuses("kda_qk_norm", &good, ErrorKind::Alias, "q_out", |call| {
        edit(call, "k_out").buffer = 2;
    });
    refuses("kda_qk_norm", &good, ErrorKind::Alias, "k", |call| {
        edit(call, "q_out").buffer = 1;
    });
    let mut in_place = good.clone();
    set_word(&mut in_place, "place", "in_place");
    in_place.tensors.truncate(2);
    let arguments = &plan("kda_qk_norm", &in_place).expect("legal").launches[0].arguments;
    assert_eq!(arguments[..2], arguments[2..4], "the inputs' own places");
    refuses("kda_qk_norm", &in_place, ErrorKind::Alias, "q", |call| edit(call, "k").buffer = 0);

    let good = kda_gate(DType::F16, "softplus");
    let grid = plan("kda_gate", &good).expect("legal").launches[0].grid;
    assert_eq!(grid, [1, 10, 1], "384 channels by 1024, rows");
    refuses("kda_gate", &good, ErrorKind::Shape, "a_log", |call| {
        *edit(call, "a_log") = tensor(2, DType::F32, &[3, 128]);
    });
    refuses("kda_gate", &good, ErrorKind::Shape, "dt_bias", |call| {
        edit(call, "dt_bias").strides[0] = 132;
    });
    refuses("kda_gate", &good, ErrorKind::Align, "dt_bias", |call| {
        edit(call, "dt_bias").offset_bytes = 4;
    });
    refuses("kda_gate", &good, ErrorKind::Shape, "f", |call| {
        *call = kda_gate(DType::F16, "softplus");
        for name in ["f", "g", "dt_bias"] {
            let narrow = edit(call, name);
            *narrow.shape.last_mut().expect("axes") = 6;
        }
    });
    refuses("kda_gate", &good, ErrorKind::Alias, "g", |call| edit(call, "g").buffer = 1);
}

/// A decode step of `sequences` with everything fused, in raw gates.
fn fused(io: DType, state: DType, key_dim: u64, value_dim: u64, sequences: u64) -> Call {
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

fn ple(out: DType, count: u64) -> Call {
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

fn argmax(dtype: DType, rows: u64, columns: u64, parts: &str) -> Call {
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

fn topk(dtype: DType, rows: u64, columns: u64, k: u64, parts: &str) -> Call {
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

fn canary() -> Call {
    call(&[("x", DType::F32, &[9, 70]), ("y", DType::F32, &[9])], &[], &[])
}

#[test]
fn planned_arguments_match_every_entry_of_the_ptx() {
    let mut planned = BTreeSet::new();
    let mut modules = BTreeSet::new();
    let mut check = |name: &str, call: &Call| {
        for launch in plan(name, call).expect("a legal call").launches {
            planned.insert(fits(&launch));
            modules.insert(launch.module);
        }
    };
    for io in IO {
        for key_dim in [32, 64, 128] {
            for state in [DType::F32, DType::F16] {
                let mut step = gdn(io, key_dim, 64, 3, 3);
                edit(&mut step, "s").dtype = state;
                check("gdn_decode", &step);
                let mut step = fused(io, state, key_dim, 64, 3);
                check("gdn_decode", &step);
                set_word(&mut step, "epilogue", "apart");
                check("gdn_decode", &step);
                set_word(&mut step, "epilogue", "fused");
                set_word(&mut step, "output_gate", "none");
                check("gdn_decode", &step);
                if key_dim == 128 {
                    set_word(&mut step, "retention", "shared");
                    check("gdn_decode", &step);
                }
            }
            check("gdn_chunk", &gdn(io, key_dim, 32, 3, 130));
            check("kda_decode", &kda(io, key_dim, 32, 3, 3));
            check("kda_chunk", &kda(io, key_dim, 32, 3, 130));
            check("kda_qk_norm", &kda_qk_norm(io, key_dim));
            for state in [DType::F32, DType::F16] {
                check("gdn_verify", &verify(io, state, key_dim));
            }
        }
        for width in [2, 3, 4] {
            for out in IO {
                check("causal_conv1d", &conv(io, out, width, "rows"));
                check("causal_conv1d", &conv(io, out, width, "tiles"));
            }
        }
        for channels in [40, 5] {
            check("draft_conv", &draft(io, channels, 5));
        }
        check("kda_gate", &kda_gate(io, "softplus"));
        check("kda_gate", &kda_gate(io, "lb_sigmoid"));
        check("state_scatter", &scatter(io));
        check("ple_gather", &ple(io, 40));
        check("argmax_rows", &argmax(io, 3, 1000, "1"));
        check("argmax_rows", &argmax(io, 3, 1000, "4"));
        check("row_topk", &topk(io, 3, 1000, 10, "1"));
        check("row_topk", &topk(io, 3, 1000, 64, "4"));
    }
    for direction in ["narrow", "widen"] {
        for count in [40, 33] {
            check("state_convert", &convert(direction, 2, count));
        }
    }
    check("canary_row_sum", &canary());
    for module in modules {
        for (entry, _) in parameters(kernels::ptx::embedded(module).expect("checked above")) {
            assert!(planned.contains(&entry), "no plan reaches entry `{entry}` of `{module}`");
        }
    }
}

/// A drafting block's convolution before a sublayer, its coefficients projected.
fn draft(io: DType, channels: u64, groups: u64) -> Call {
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

#[test]
fn a_drafting_convolution_is_refused_argument_by_argument() {
    let good = draft(DType::BF16, 5120, 320);
    let launches = plan("draft_conv", &good).expect("legal").launches;
    assert_eq!(launches[0].grid, [320, 3, 1], "four outputs, eight rows");
    assert_eq!(launches[1].grid, [10, 24, 1], "512 channels, a row");
    assert_eq!(launches[1].arguments[12..], [Argument::I32(16), Argument::I32(0)]);
    refuses("draft_conv", &good, ErrorKind::Shape, "stage", |call| {
        set_word(call, "stage", "begin");
    });
    refuses("draft_conv", &good, ErrorKind::Shape, "coef", |call| edit(call, "coef").shape[4] = 3);
    refuses("draft_conv", &good, ErrorKind::Shape, "coef", |call| edit(call, "coef").shape[4] = 0);
    refuses("draft_conv", &good, ErrorKind::Shape, "w", |call| edit(call, "w").shape[0] = 640);
    refuses("draft_conv", &good, ErrorKind::Dtype, "coef", |call| {
        edit(call, "coef").dtype = DType::F32;
    });
    refuses("draft_conv", &good, ErrorKind::Alias, "y", |call| {
        edit(call, "y").buffer = edit(call, "residual").buffer;
    });
    refuses("draft_conv", &good, ErrorKind::Alias, "coef", |call| {
        edit(call, "coef").buffer = edit(call, "x").buffer;
    });
    let mut moved = good.clone();
    edit(&mut moved, "w").offset_bytes = 2;
    let launches = plan("draft_conv", &moved).expect("legal").launches;
    assert_eq!(launches[0].entry, "draft_conv_project_bf16_single");
    assert_eq!(launches[1].entry, "draft_conv_bf16");
    let mut finish = good;
    set_word(&mut finish, "stage", "finish");
    assert_eq!(plan("draft_conv", &finish).expect("legal").launches.len(), 1);
    for name in ["x", "y", "coef", "residual"] {
        edit(&mut finish, name).shape[0] = 0;
    }
    assert!(plan("draft_conv", &finish).expect("legal").launches.is_empty(), "no rows");
}

fn convert(direction: &str, slots: u64, count: u64) -> Call {
    call(
        &[("wide", DType::F32, &[slots, count]), ("narrow", DType::F16, &[slots, count])],
        &[],
        &[("direction", direction)],
    )
}

#[test]
fn a_conversion_counts_in_64_bits_and_is_never_in_place() {
    let launch = |call: &Call| plan("state_convert", call).expect("legal").launches.remove(0);
    let many = (1 << 32) + 1;
    let narrowed = launch(&convert("narrow", 1, many));
    assert_eq!(narrowed.arguments[5], Argument::I64(many as i64));
    assert_eq!(narrowed.arguments[..2], [Argument::Tensor("wide"), Argument::Tensor("narrow")]);
    assert_eq!((&*narrowed.entry, narrowed.grid), ("state_convert_f32_f16_single", [65_536, 1, 1]));
    let whole = launch(&convert("widen", 3, 40));
    assert_eq!(whole.arguments[4..], [1, 15].map(Argument::I64), "no gaps: one slot");
    let mut padded = convert("widen", 3, 40);
    edit(&mut padded, "narrow").strides[0] = 48;
    let expected = [48, 40, 3, 5].map(Argument::I64);
    assert_eq!(launch(&padded).arguments[2..], expected, "pitches, slots, pieces of eight");
    edit(&mut padded, "narrow").strides[0] = 44;
    let single = launch(&padded).entry;
    assert_eq!(single, "state_convert_f16_f32_single", "slots begin 8 bytes off");
    let good = convert("narrow", 3, 40);
    refuses("state_convert", &good, ErrorKind::Dtype, "narrow", |call| {
        edit(call, "narrow").dtype = DType::F32;
    });
    refuses("state_convert", &good, ErrorKind::Dtype, "wide", |call| {
        edit(call, "wide").dtype = DType::BF16;
    });
    refuses("state_convert", &good, ErrorKind::Shape, "narrow", |call| {
        edit(call, "narrow").shape[1] = 80;
    });
    refuses("state_convert", &good, ErrorKind::Shape, "direction", |call| {
        set_word(call, "direction", "both");
    });
    for offset in [0, 238] {
        refuses("state_convert", &good, ErrorKind::Alias, "wide", |call| {
            edit(call, "narrow").buffer = edit(call, "wide").buffer;
            edit(call, "narrow").offset_bytes = offset;
        });
    }
    assert!(plan("state_convert", &convert("narrow", 0, 40)).expect("legal").launches.is_empty());
}

#[test]
fn a_convolution_walks_tiles_where_rows_are_whole_pieces() {
    let walk = |call: &Call| {
        let launch = plan("causal_conv1d", call).expect("legal").launches.remove(0);
        (launch.entry.contains("tiles"), launch.grid)
    };
    let io = DType::BF16;
    let tiles = conv(io, io, 4, "tiles");
    assert_eq!(
        walk(&tiles),
        (true, [3, 1, 1]),
        "a tile of 10 rows, and one for each sequence's end"
    );
    assert!(!walk(&conv(io, io, 4, "chosen")).0, "five rows a sequence are few");
    let mut long = conv(io, io, 4, "chosen");
    for name in ["x", "out", "snap"] {
        edit(&mut long, name).shape[0] = 4096;
    }
    assert_eq!(walk(&long), (true, [130, 1, 1]));
    for name in ["x", "out", "weight", "bias"] {
        let mut moved = tiles.clone();
        let size = edit(&mut moved, name).dtype.size_bytes();
        edit(&mut moved, name).offset_bytes = size;
        assert_eq!(walk(&moved), (false, [3, 2, 1]), "{name} does not begin with a whole piece");
        edit(&mut moved, name).offset_bytes = 4 * size;
        assert!(walk(&moved).0, "{name}");
    }
    let mut padded = tiles.clone();
    edit(&mut padded, "x").strides[0] += 2;
    assert!(!walk(&padded).0, "rows of x lie two elements off");
    refuses("causal_conv1d", &long, ErrorKind::Shape, "x", |call| {
        for name in ["x", "out", "snap"] {
            edit(call, name).shape[0] = 1 << 37;
        }
    });
}

#[test]
fn grids_cover_the_work_and_scratch_its_bound() {
    let decode = plan("gdn_decode", &gdn(DType::BF16, 128, 64, 70_000, 70_000)).expect("legal");
    assert_eq!(decode.launches[0].grid, [2, 4, 65_535], "later sequences are taken in turn");
    assert_eq!(decode.launches[0].block, [128, 1, 1]);

    // A norm needs its head whole, so a block has all value channels; apart, the step leaves it f32.
    let mut gated = fused(DType::BF16, DType::F16, 128, 128, 3);
    let launches = plan("gdn_decode", &gated).expect("legal").launches;
    assert_eq!((launches[0].grid, launches[0].block), ([1, 4, 3], [256, 1, 1]));
    let narrow = plan("gdn_decode", &fused(DType::BF16, DType::F16, 128, 32, 3)).expect("legal");
    assert_eq!(narrow.launches[0].block, [128, 1, 1]);
    set_word(&mut gated, "epilogue", "apart");
    let apart = plan("gdn_decode", &gated).expect("legal");
    assert_eq!((apart.launches[0].grid, apart.launches[0].block), ([4, 4, 3], [64, 1, 1]));
    assert_eq!((apart.launches[1].grid, apart.launches[1].block), ([4, 3, 1], [128, 1, 1]));
    assert_eq!((apart.scratch[0].dtype, &*apart.scratch[0].shape), (DType::F32, &[3, 4, 128][..]));

    let chunk = plan("gdn_chunk", &gdn(DType::F32, 32, 64, 3, 130)).expect("legal");
    let grids: Vec<_> = chunk.launches.iter().map(|launch| launch.grid[0]).collect();
    assert_eq!(grids, [(130 / 64 + 3) * 4, 3 * 4 * 2, (130 / 64 + 3) * 4]);
    let shapes: Vec<_> = chunk.scratch.iter().map(|scratch| scratch.shape.clone()).collect();
    assert_eq!(shapes[0], [130, 4, 2]);
    assert_eq!(shapes[3], [5, 4, 64, 32], "value channels, then key channels");

    let mut short = gdn(DType::BF16, 128, 128, 3, 130);
    set_word(&mut short, "C", "32");
    let short = plan("gdn_chunk", &short).expect("legal");
    let grids: Vec<_> = short.launches.iter().map(|launch| launch.grid[0]).collect();
    assert_eq!(grids, [(130 / 32 + 3) * 2, 3 * 4 * 2], "key heads, then halves of value heads");
    assert_eq!(short.scratch[1].shape, [7, 4, 32, 32]);
    assert_eq!(short.launches[1].block, [320, 1, 1]);
    assert_eq!(short.launches[1].dynamic_shared_bytes, 169_984, "InterTiles<128>::kBytes");

    let wide = plan("argmax_rows", &argmax(DType::F16, 2, 1001, "4")).expect("legal");
    assert_eq!(wide.launches[0].grid, [2, 4, 1]);
    assert_eq!(wide.launches[0].arguments.last(), Some(&Argument::I32(256)), "whole vectors");

    let zeroed: Vec<_> = wide.scratch.iter().map(|scratch| scratch.zeroed).collect();
    assert_eq!(zeroed, [false, true], "only the counters are");

    let split = plan("row_topk", &topk(DType::F32, 2, 1001, 64, "4")).expect("legal");
    assert_eq!(split.launches[0].grid, [2, 4, 1]);
    assert_eq!(split.launches[0].block, [128, 1, 1], "four warps can offer 64 candidates");
    assert_eq!(split.scratch[0].shape, [2, 128, 4]);
    assert_eq!(split.scratch[1].len_bytes(), 8);
    assert!(split.scratch[1].zeroed);
    let whole = plan("row_topk", &topk(DType::F32, 2, 151_936, 1, "1")).expect("legal");
    assert_eq!((whole.launches[0].block, whole.scratch.len()), ([512, 1, 1], 0));

    let gather = plan("ple_gather", &ple(DType::F32, 0)).expect("legal");
    assert_eq!(gather.launches[0].grid, [1, 1, 1], "the status word is written without ids too");
}

#[test]
fn empty_work_plans_nothing_but_what_an_empty_sequence_needs() {
    assert!(plan("gdn_decode", &gdn(DType::F32, 32, 32, 0, 0)).expect("legal").launches.is_empty());
    assert!(plan("gdn_chunk", &gdn(DType::F32, 32, 32, 0, 5)).expect("legal").launches.is_empty());
    assert!(
        plan("argmax_rows", &argmax(DType::F32, 0, 5, "4")).expect("legal").launches.is_empty()
    );
    let no_rows = plan("row_topk", &topk(DType::F32, 0, 5, 8, "2")).expect("legal");
    assert!(no_rows.launches.is_empty() && no_rows.scratch.is_empty());
    let sequences_of_no_rows = plan("gdn_chunk", &gdn(DType::F32, 32, 32, 2, 0)).expect("legal");
    assert_eq!(sequences_of_no_rows.launches.len(), 3, "a zero state may have to be written");
}

#[test]
fn layouts_callers_may_use_are_accepted_and_passed_on() {
    let mut padded = gdn(DType::BF16, 64, 64, 3, 130);
    edit(&mut padded, "s").strides[0] += 8;
    edit(&mut padded, "v").strides[0] += 16;
    edit(&mut padded, "v").offset_bytes = 16;
    let plan_of = plan("gdn_chunk", &padded).expect("padded rows are legal");
    assert!(plan_of.launches[1].arguments.contains(&Argument::I64(4 * 64 + 16)));
    assert!(plan_of.launches[1].arguments.contains(&Argument::I64(4 * 64 * 64 + 8)));

    // Slices of one packed [q | k | v] row interleave without overlap.
    let mut packed = gdn(DType::F32, 32, 32, 3, 3);
    for (name, offset) in [("q", 0), ("k", 64), ("v", 128)] {
        let slice = edit(&mut packed, name);
        (slice.buffer, slice.offset_bytes, slice.strides[0]) = (0, 4 * offset, 256);
    }
    plan("gdn_decode", &packed).expect("a packed row is legal");

    let mut rank0 = ple(DType::F16, 3);
    let scale = edit(&mut rank0, "scale");
    (scale.shape, scale.strides) = (vec![], vec![]);
    plan("ple_gather", &rank0).expect("a scale of rank 0 is legal");

    let mut ids_only = argmax(DType::F32, 3, 7, "1");
    set_word(&mut ids_only, "value_kind", "none");
    ids_only.tensors.retain(|(name, _)| name != "values");
    let launches = plan("argmax_rows", &ids_only).expect("values are optional").launches;
    assert!(launches[0].arguments.contains(&Argument::Null));
}

#[test]
fn gated_delta_refusals_fire() {
    for name in ["gdn_decode", "gdn_chunk"] {
        let legal = gdn(DType::BF16, 64, 32, 3, 3);
        let legal = &legal;
        for (tensor, foreign) in [
            ("q", DType::I32),
            ("k", DType::F32),
            ("v", DType::F16),
            ("o", DType::F32),
            ("g", DType::BF16),
            ("beta", DType::F16),
            ("s", DType::BF16),
            ("slot_of", DType::I32),
        ] {
            refuses(name, legal, ErrorKind::Dtype, tensor, |call| {
                edit(call, tensor).dtype = foreign
            });
        }
        for tensor in ["k", "v", "o", "g", "beta"] {
            refuses(name, legal, ErrorKind::Shape, tensor, |call| edit(call, tensor).shape[0] += 1);
        }
        refuses(name, legal, ErrorKind::Shape, "s", |call| edit(call, "s").shape[3] = 32);
        refuses(name, legal, ErrorKind::Shape, "s", |call| {
            let s = edit(call, "s");
            (s.shape, s.strides) = (vec![5, 4], vec![4, 1]);
        });
        for tensor in ["q", "k", "v", "o", "s", "g", "beta"] {
            refuses(name, legal, ErrorKind::Shape, tensor, |call| {
                edit(call, tensor).strides[0] -= 1
            });
            refuses(name, legal, ErrorKind::Shape, tensor, |call| {
                edit(call, tensor).strides[1] += 1
            });
        }
        for tensor in ["q", "k", "v", "o"] {
            refuses(name, legal, ErrorKind::Align, tensor, |call| {
                edit(call, tensor).offset_bytes = 8
            });
            refuses(name, legal, ErrorKind::Align, tensor, |call| {
                edit(call, tensor).strides[0] += 1
            });
        }
        refuses(name, legal, ErrorKind::Align, "s", |call| edit(call, "s").strides[0] += 2);
        refuses(name, legal, ErrorKind::Align, "beta", |call| edit(call, "beta").offset_bytes = 2);
        refuses(name, legal, ErrorKind::Shape, "slot_of", |call| {
            edit(call, "slot_of").strides[0] = 2
        });
        for written in ["s", "o"] {
            refuses(name, legal, ErrorKind::Alias, written, |call| {
                let victim = edit(call, "k").buffer;
                edit(call, written).buffer = victim;
            });
        }
        for option in ["head_map", "state_layout", "gate_form"] {
            refuses(name, legal, ErrorKind::Shape, option, |call| set_word(call, option, "kv"));
        }
        refuses(name, legal, ErrorKind::Shape, "v", |call| {
            for (tensor, axis) in [("v", 1), ("o", 1), ("g", 1), ("beta", 1), ("s", 1)] {
                edit(call, tensor).shape[axis] = 0;
            }
        });
        refuses(name, legal, ErrorKind::Shape, "scale", |call| call.scalars.clear());
        refuses(name, legal, ErrorKind::Dtype, "scale", |call| {
            call.scalars[0].1 = ScalarArg::I32(1)
        });
        refuses(name, legal, ErrorKind::Shape, "v", |call| {
            for tensor in ["q", "k"] {
                let keys = edit(call, tensor);
                (keys.shape[1], keys.strides[0]) = (3, 3 * 64);
            }
        });
        refuses(name, legal, ErrorKind::Shape, "q", |call| {
            for (tensor, axis) in [("q", 2), ("k", 2), ("s", 3)] {
                edit(call, tensor).shape[axis] = 96;
            }
        });
    }
    let decode = gdn(DType::F32, 32, 32, 3, 3);
    refuses("gdn_decode", &decode, ErrorKind::Shape, "slot_of", |call| {
        edit(call, "slot_of").shape[0] = 2
    });
    let chunk = gdn(DType::F32, 32, 32, 3, 130);
    refuses("gdn_chunk", &chunk, ErrorKind::Shape, "cu_seqlens", |call| {
        edit(call, "slot_of").shape[0] = 2
    });
    refuses("gdn_chunk", &chunk, ErrorKind::Dtype, "cu_seqlens", |call| {
        edit(call, "cu_seqlens").dtype = DType::F32;
    });
    refuses("gdn_chunk", &chunk, ErrorKind::Align, "cu_seqlens", |call| {
        edit(call, "cu_seqlens").offset_bytes = 2;
    });
    refuses("gdn_chunk", &chunk, ErrorKind::Shape, "C", |call| set_word(call, "C", "48"));
    refuses("gdn_chunk", &chunk, ErrorKind::Shape, "initial_state", |call| {
        set_word(call, "initial_state", "one");
    });
}

#[test]
fn refusals_of_a_fused_step_fire() {
    let legal = &fused(DType::BF16, DType::F16, 128, 64, 3);
    let refuses = |kind, argument: &str, break_it: &dyn Fn(&mut Call)| {
        refuses("gdn_decode", legal, kind, argument, break_it);
    };
    for (tensor, foreign) in [
        ("a", DType::F32),
        ("b", DType::F32),
        ("z", DType::F16),
        ("w", DType::F32),
        ("dt_bias", DType::BF16),
        ("a_log", DType::F16),
        // A narrow pool is never read or copied at another width.
        ("snap", DType::F32),
    ] {
        refuses(ErrorKind::Dtype, tensor, &|call| edit(call, tensor).dtype = foreign);
        refuses(ErrorKind::Shape, tensor, &|call| {
            call.tensors.retain(|(name, _)| name != tensor);
        });
        refuses(ErrorKind::Shape, tensor, &|call| edit(call, tensor).shape[0] += 1);
    }
    for tensor in ["dt_bias", "a_log", "w"] {
        refuses(ErrorKind::Shape, tensor, &|call| edit(call, tensor).strides[0] = 2);
    }
    refuses(ErrorKind::Align, "snap", &|call| edit(call, "snap").strides[0] += 4);
    refuses(ErrorKind::Alias, "snap", &|call| {
        let victim = edit(call, "z").buffer;
        edit(call, "snap").buffer = victim;
    });
    refuses(ErrorKind::Alias, "s", &|call| {
        let victim = edit(call, "snap").buffer;
        edit(call, "s").buffer = victim;
    });
    for option in
        ["gate_form", "alpha_clamp", "qk_norm", "output_gate", "snapshot", "retention", "epilogue"]
    {
        refuses(ErrorKind::Shape, option, &|call| set_word(call, option, "some"));
        refuses(ErrorKind::Shape, option, &|call| call.words.retain(|(name, _)| name != option));
    }
    refuses(ErrorKind::Shape, "retention", &|call| set_word(call, "retention", "shared"));
    refuses(ErrorKind::Shape, "retention", &|call| {
        *call = gdn(DType::F32, 64, 64, 3, 3);
        set_word(call, "retention", "shared");
    });
    refuses(ErrorKind::Shape, "epilogue", &|call| {
        set_word(call, "output_gate", "none");
        set_word(call, "epilogue", "apart");
    });
    for scalar in ["qk_eps", "norm_eps", "alpha_low", "alpha_high"] {
        refuses(ErrorKind::Shape, scalar, &|call| {
            call.scalars.retain(|(name, _)| name != scalar);
        });
    }
    for low in [2.0, f32::NAN] {
        refuses(ErrorKind::Shape, "alpha_low", &|call| {
            let low_bound = call.scalars.iter_mut().find(|(name, _)| name == "alpha_low");
            low_bound.expect("a bound").1 = ScalarArg::F32(low.to_bits());
        });
    }
}

#[test]
fn ple_gather_refusals_fire() {
    let legal = &ple(DType::F16, 5);
    for (tensor, foreign) in [
        ("codes", DType::F16),
        ("scale", DType::F32),
        ("ids", DType::I32),
        ("out", DType::E4M3),
        ("status", DType::I64),
    ] {
        refuses("ple_gather", legal, ErrorKind::Dtype, tensor, |call| {
            edit(call, tensor).dtype = foreign
        });
    }
    for shape in [vec![33], vec![128], vec![160], vec![1, 1], vec![0]] {
        refuses("ple_gather", legal, ErrorKind::ScaleShape, "scale", |call| {
            let scale = edit(call, "scale");
            scale.strides = vec![1; shape.len()];
            scale.shape = shape;
        });
    }
    for kind in [None, Some(ScaleKind::TensorF32Multiplier), Some(ScaleKind::RowF32)] {
        refuses("ple_gather", legal, ErrorKind::ScaleKind, "scale", |call| {
            edit(call, "scale").kind = kind
        });
    }
    refuses("ple_gather", legal, ErrorKind::Shape, "codes", |call| {
        edit(call, "codes").shape[1] = 159
    });
    refuses("ple_gather", legal, ErrorKind::Shape, "out", |call| edit(call, "ids").shape[0] = 6);
    refuses("ple_gather", legal, ErrorKind::Shape, "status", |call| {
        edit(call, "status").shape[0] = 2
    });
    refuses("ple_gather", legal, ErrorKind::Shape, "ids", |call| edit(call, "ids").strides[0] = 2);
    for tensor in ["codes", "out"] {
        refuses("ple_gather", legal, ErrorKind::Shape, tensor, |call| {
            edit(call, tensor).strides[0] = 144
        });
        refuses("ple_gather", legal, ErrorKind::Align, tensor, |call| {
            edit(call, tensor).strides[0] += 4
        });
        refuses("ple_gather", legal, ErrorKind::Align, tensor, |call| {
            edit(call, tensor).offset_bytes = 8
        });
    }
    refuses("ple_gather", legal, ErrorKind::Align, "scale", |call| {
        edit(call, "scale").offset_bytes = 1
    });
    for written in ["out", "status"] {
        refuses("ple_gather", legal, ErrorKind::Alias, written, |call| {
            let victim = edit(call, "ids").buffer;
            edit(call, written).buffer = victim;
        });
    }
}

#[test]
fn row_topk_refusals_fire() {
    let legal = &topk(DType::F16, 3, 100, 8, "2");
    for (tensor, foreign) in [("x", DType::I32), ("ids", DType::I64), ("values", DType::F16)] {
        refuses("row_topk", legal, ErrorKind::Dtype, tensor, |call| {
            edit(call, tensor).dtype = foreign
        });
    }
    for k in [0, 65] {
        refuses("row_topk", legal, ErrorKind::Shape, "ids", |call| {
            for tensor in ["ids", "values"] {
                let output = edit(call, tensor);
                (output.shape[1], output.strides[0]) = (k, k);
            }
        });
    }
    refuses("row_topk", legal, ErrorKind::Shape, "values", |call| {
        edit(call, "values").shape[1] = 4
    });
    for tensor in ["ids", "values"] {
        refuses("row_topk", legal, ErrorKind::Shape, tensor, |call| {
            edit(call, tensor).shape[0] = 4
        });
        refuses("row_topk", legal, ErrorKind::Shape, tensor, |call| {
            edit(call, tensor).strides[0] = 9
        });
        refuses("row_topk", legal, ErrorKind::Alias, tensor, |call| {
            let victim = edit(call, "x").buffer;
            edit(call, tensor).buffer = victim;
        });
    }
    refuses("row_topk", legal, ErrorKind::Shape, "x", |call| edit(call, "x").strides[0] = 99);
    refuses("row_topk", legal, ErrorKind::Align, "x", |call| edit(call, "x").offset_bytes = 1);
    refuses("row_topk", legal, ErrorKind::Shape, "x", |call| edit(call, "x").shape[1] = 0);
    refuses("row_topk", legal, ErrorKind::Shape, "x", |call| {
        let x = edit(call, "x");
        (x.shape[1], x.strides[0]) = (1 << 31, 1 << 31);
    });
    for word in ["0", "65536", "many"] {
        refuses("row_topk", legal, ErrorKind::Shape, "blocks_per_row", |call| {
            set_word(call, "blocks_per_row", word);
        });
    }
}

#[test]
fn argmax_and_canary_refusals_fire() {
    let legal = &argmax(DType::BF16, 3, 100, "4");
    for (tensor, foreign) in [("x", DType::E4M3), ("ids", DType::I64), ("values", DType::F16)] {
        refuses("argmax_rows", legal, ErrorKind::Dtype, tensor, |call| {
            edit(call, tensor).dtype = foreign
        });
    }
    for tensor in ["ids", "values"] {
        refuses("argmax_rows", legal, ErrorKind::Shape, tensor, |call| {
            edit(call, tensor).shape[0] = 4
        });
        refuses("argmax_rows", legal, ErrorKind::Shape, tensor, |call| {
            edit(call, tensor).strides[0] = 2
        });
        refuses("argmax_rows", legal, ErrorKind::Alias, tensor, |call| {
            let victim = edit(call, "x").buffer;
            edit(call, tensor).buffer = victim;
        });
    }
    refuses("argmax_rows", legal, ErrorKind::Shape, "values", |call| {
        call.tensors.retain(|(name, _)| name != "values");
    });
    refuses("argmax_rows", legal, ErrorKind::Shape, "x", |call| edit(call, "x").strides[0] = 99);
    refuses("argmax_rows", legal, ErrorKind::Shape, "x", |call| edit(call, "x").strides[1] = 2);
    refuses("argmax_rows", legal, ErrorKind::Align, "x", |call| edit(call, "x").offset_bytes = 1);
    refuses("argmax_rows", legal, ErrorKind::Shape, "x", |call| {
        let x = edit(call, "x");
        (x.shape[1], x.strides[0]) = (1 << 31, 1 << 31);
    });
    refuses("argmax_rows", legal, ErrorKind::Shape, "x", |call| edit(call, "x").shape[1] = 0);
    for word in ["0", "65536", "-1", "many"] {
        refuses("argmax_rows", legal, ErrorKind::Shape, "blocks_per_row", |call| {
            set_word(call, "blocks_per_row", word);
        });
    }
    refuses("argmax_rows", legal, ErrorKind::Shape, "value_kind", |call| {
        set_word(call, "value_kind", "f16")
    });

    let legal = &canary();
    refuses("canary_row_sum", legal, ErrorKind::Dtype, "x", |call| {
        edit(call, "x").dtype = DType::F16
    });
    refuses("canary_row_sum", legal, ErrorKind::Dtype, "y", |call| {
        edit(call, "y").dtype = DType::F16
    });
    refuses("canary_row_sum", legal, ErrorKind::Shape, "y", |call| edit(call, "y").shape[0] = 8);
    refuses("canary_row_sum", legal, ErrorKind::Shape, "x", |call| edit(call, "x").strides[0] = 69);
    refuses("canary_row_sum", legal, ErrorKind::Align, "x", |call| {
        edit(call, "x").offset_bytes = 2
    });
    refuses("canary_row_sum", legal, ErrorKind::Alias, "y", |call| {
        let victim = edit(call, "x").buffer;
        edit(call, "y").buffer = victim;
    });
}
