//! Launch functions around the gated delta rule: every refusal fires.

mod support;

use contracts::dtype::DType;
use contracts::format::ErrorKind;
use kernels::call::{Call, ScalarArg};
use kernels::launch::Argument;
use support::calls::{HEADS, conv, fused, gdn, kda, kda_gate, kda_qk_norm, scatter, verify};
use support::{edit, plan, refuses, set_word, tensor};

#[test]
fn a_tile_of_a_narrow_state_has_two_warps_where_tiles_are_few() {
    let threads = |state, sequences: u64| {
        let mut call = verify(DType::BF16, state, 64);
        edit(&mut call, "slot_of").shape[0] = sequences;
        edit(&mut call, "cu_seqlens").shape[0] = sequences + 1;
        plan("gdn_verify", &call).expect("legal").launches[0].block
    };
    let of = |state| [1, 2, 3].map(|sequences| threads(state, sequences)[0]);
    assert_eq!((of(DType::F16), of(DType::F32)), ([64, 64, 32], [32, 32, 32]));
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
    refuses("gdn_verify", &good, ErrorKind::Shape, "q", |call| {
        for name in ["q", "k", "v", "o", "g", "beta", "snap"] {
            edit(call, name).shape[0] = 1 << 31;
        }
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
fn the_hopper_variant_takes_what_it_is_compiled_for() {
    let hopper = |io, key_dim, value_dim| {
        let mut call = gdn(io, key_dim, value_dim, 3, 130);
        set_word(&mut call, "arch", "hopper");
        call
    };
    for (value_dim, blocks) in [(64, 12), (128, 24)] {
        let plan = plan("gdn_chunk", &hopper(DType::BF16, 128, value_dim)).expect("legal");
        let [intra, inter] = plan.launches.as_slice() else { panic!("{plan:?}") };
        assert_eq!((intra.module, inter.module), ("gdn_chunk", "gdn_chunk_hopper"));
        assert_eq!((inter.grid, inter.block), ([blocks, 1, 1], [384, 1, 1]));
        assert!(inter.dynamic_shared_bytes <= 227 << 10, "what a block may have");
    }
    let good = hopper(DType::BF16, 128, 128);
    for (kind, at_fault, call) in [
        (ErrorKind::Dtype, "q", hopper(DType::F16, 128, 128)),
        (ErrorKind::Dtype, "q", hopper(DType::F32, 128, 128)),
        (ErrorKind::Shape, "q", hopper(DType::BF16, 64, 128)),
        (ErrorKind::Shape, "v", hopper(DType::BF16, 128, 32)),
    ] {
        refuses("gdn_chunk", &good, kind, at_fault, |good| *good = call.clone());
    }
    refuses("gdn_chunk", &good, ErrorKind::Shape, "arch", |call| set_word(call, "arch", "ampere"));
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
