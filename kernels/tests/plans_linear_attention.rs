//! Launch functions of the linear-attention family: what they plan fits the PTX, and every refusal fires.

mod support;

use contracts::dtype::DType;
use contracts::format::ErrorKind;
use kernels::call::Call;
use kernels::launch::Argument;
use support::{call, edit, every_entry_is_planned, plan, refuses, set_word, tensor};

const IO: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Two rounds, of 8 and 2 rows, with two key heads and four value heads of 64 channels.
fn write_on_accept(phase: &str, io: DType, state: DType, key_dim: u64) -> Call {
    let (keys, values) = ([10, 2, key_dim], [10, 4, 64]);
    call(
        &[
            ("q", io, &keys),
            ("k", io, &keys),
            ("v", io, &values),
            ("g", DType::F32, &[10, 4]),
            ("beta", DType::F32, &[10, 4]),
            ("s", state, &[3, 4, 64, key_dim]),
            ("snap", state, &[10, 4, 64, key_dim]),
            ("stash_alpha", DType::F32, &[10, 4]),
            ("stash_delta", DType::F32, &values),
            ("stash_key", DType::F32, &keys),
            ("engaged", DType::I32, &[2]),
            ("engaged_of", DType::I32, &[2]),
            ("accepted_of", DType::I32, &[2]),
            ("cu_seqlens", DType::I32, &[3]),
            ("slot_of", DType::I64, &[2]),
            ("o", io, &values),
        ],
        &[("scale", 0.125)],
        &[("phase", phase), ("head_map", "cyclic"), ("gate_form", "log"), ("state_layout", "vk")],
    )
}

#[test]
fn a_write_on_accept_round_plans_its_launches_in_order() {
    let mut calls = Vec::new();
    for io in IO {
        for state in [DType::F32, DType::F16] {
            for key_dim in [32, 64, 128] {
                calls.push(write_on_accept("round", io, state, key_dim));
            }
        }
    }
    calls.push(write_on_accept("clear", DType::F32, DType::F32, 32));
    every_entry_is_planned("gdn_write_on_accept", &calls);
    let entries = |phase: &str| -> Vec<String> {
        let call = write_on_accept(phase, DType::BF16, DType::F16, 64);
        let launches = plan("gdn_write_on_accept", &call).expect("legal").launches;
        launches.iter().map(|launch| launch.entry.to_string()).collect()
    };
    let clear = "gdn_write_on_accept_clear";
    let verify = "gdn_write_on_accept_verify_bf16_f16_k64";
    let fold = "gdn_write_on_accept_fold_f16_k64";
    assert_eq!(entries("round"), [verify, fold]);
    assert_eq!(entries("verify"), [verify]);
    assert_eq!((entries("fold"), entries("clear")), (vec![fold.into()], vec![clear.into()]));
    let round = write_on_accept("round", DType::BF16, DType::F32, 128);
    let launches = plan("gdn_write_on_accept", &round).expect("legal").launches;
    assert_eq!(launches[0].grid, [2, 4, 2], "tiles of 32 channels, heads, sequences");
    assert_eq!(
        (launches[0].block, launches[1].block),
        ([32, 1, 1], [64, 1, 1]),
        "eight rows a lane"
    );
    assert!(launches[1].arguments[1] == Argument::Null, "a round has no snapshots");
    let mut many = round.clone();
    for name in ["slot_of", "engaged", "accepted_of"] {
        edit(&mut many, name).shape[0] = 3;
    }
    edit(&mut many, "cu_seqlens").shape[0] = 4;
    let verify = &plan("gdn_write_on_accept", &many).expect("legal").launches[0];
    assert_eq!((verify.grid, verify.block), ([1, 4, 3], [64, 1, 1]), "both tiles of a head");
    let fold = write_on_accept("fold", DType::F32, DType::F32, 64);
    let fold = &plan("gdn_write_on_accept", &fold).expect("legal").launches[0];
    assert_eq!(fold.arguments[1], Argument::Tensor("snap"));
    let mut none = round;
    for name in ["engaged", "engaged_of", "accepted_of", "slot_of"] {
        edit(&mut none, name).shape[0] = 0;
    }
    edit(&mut none, "cu_seqlens").shape[0] = 1;
    assert!(plan("gdn_write_on_accept", &none).expect("legal").launches.is_empty());
}

#[test]
fn refusals_of_a_write_on_accept_round_fire() {
    use ErrorKind::{Alias, Align, Dtype, Shape};
    let name = "gdn_write_on_accept";
    let round = write_on_accept("round", DType::BF16, DType::F16, 64);
    refuses(name, &round, Shape, "phase", |call| set_word(call, "phase", "commit"));
    refuses(name, &round, Dtype, "s", |call| edit(call, "s").dtype = DType::BF16);
    refuses(name, &round, Dtype, "stash_delta", |call| {
        edit(call, "stash_delta").dtype = DType::BF16;
    });
    refuses(name, &round, Dtype, "engaged", |call| edit(call, "engaged").dtype = DType::I64);
    refuses(name, &round, Shape, "engaged", |call| edit(call, "engaged").shape[0] = 3);
    refuses(name, &round, Shape, "accepted_of", |call| edit(call, "accepted_of").shape[0] = 1);
    refuses(name, &round, Shape, "stash_alpha", |call| edit(call, "stash_alpha").shape[1] = 2);
    refuses(name, &round, Shape, "stash_key", |call| edit(call, "stash_key").shape[1] = 1);
    refuses(name, &round, Align, "stash_key", |call| edit(call, "stash_key").offset_bytes = 4);
    refuses(name, &round, Alias, "stash_delta", |call| {
        let beta = edit(call, "beta").buffer;
        edit(call, "stash_delta").buffer = beta;
    });
    let fold = write_on_accept("fold", DType::BF16, DType::F16, 64);
    refuses(name, &fold, Dtype, "snap", |call| edit(call, "snap").dtype = DType::F32);
    refuses(name, &fold, Shape, "snap", |call| edit(call, "snap").shape[0] = 9);
    refuses(name, &fold, Shape, "s", |call| edit(call, "s").shape[2] = 32);
    refuses(name, &fold, Align, "s", |call| edit(call, "s").offset_bytes = 8);
    refuses(name, &fold, Alias, "s", |call| {
        let snap = edit(call, "snap").buffer;
        edit(call, "s").buffer = snap;
    });
    refuses(name, &fold, Shape, "stash_delta", |call| {
        let key = edit(call, "stash_key");
        (key.shape[1], key.strides[0]) = (3, 3 * 64);
    });
}

/// Nine rows of eight heads, four key heads, from `input`.
fn gates(input: &str, layout: &str, io: DType) -> Call {
    let mut call = call(
        &[
            ("a", io, &[9, 8]),
            ("b", io, &[9, 8]),
            ("ab", io, &[9, 16]),
            ("ab_grouped", io, &[9, 4, 4]),
            ("x", io, &[9, 40]),
            ("w_a", io, &[8, 40]),
            ("w_b", io, &[8, 40]),
            ("w_ab", io, &[16, 40]),
            ("w_ab_grouped", io, &[4, 4, 40]),
            ("dt_bias", DType::F32, &[8]),
            ("a_log", DType::F32, &[8]),
            ("g", DType::F32, &[9, 8]),
            ("beta", DType::F32, &[9, 8]),
        ],
        &[],
        &[("input", input), ("ba_layout", layout), ("gives", "log")],
    );
    let alpha = tensor(call.tensors.len() as u32, DType::F32, &[9, 8]);
    call.tensors.push(("alpha".to_owned(), alpha));
    call
}

const LAYOUTS: [&str; 4] = ["separate", "concat_ab", "concat_ba", "grouped_ba"];

#[test]
fn gates_read_each_layout_where_it_lies() {
    let mut calls = Vec::new();
    for input in ["given", "projected"] {
        for layout in LAYOUTS {
            calls.extend(IO.map(|io| gates(input, layout, io)));
        }
    }
    every_entry_is_planned("gdn_gates", &calls);
    let places = |input: &str, layout: &str| {
        let call = gates(input, layout, DType::BF16);
        let launch = plan("gdn_gates", &call).expect("legal").launches.remove(0);
        // group, a_at, b_at, vectors
        let first = if input == "given" { 12 } else { 14 };
        let integer = |argument: &Argument| match argument {
            Argument::I32(value) => *value,
            other => panic!("{other:?}"),
        };
        launch.arguments[first..first + 4].iter().map(integer).collect::<Vec<_>>()
    };
    assert_eq!(places("given", "separate"), [8, 0, 0, 1]);
    assert_eq!(places("given", "concat_ab"), [8, 0, 8, 1]);
    assert_eq!(places("given", "concat_ba"), [8, 8, 0, 1]);
    assert_eq!(places("given", "grouped_ba"), [2, 2, 0, 0], "two heads are no whole vector");
    assert_eq!(places("projected", "grouped_ba"), [2, 2, 0, 1]);
    let mut odd = gates("given", "separate", DType::F32);
    edit(&mut odd, "a").offset_bytes = 4;
    let launch = plan("gdn_gates", &odd).expect("legal").launches.remove(0);
    assert_eq!(launch.arguments[15], Argument::I32(0), "an odd address is read one by one");
    assert_eq!(launch.grid, [1, 1, 1]);
}

#[test]
fn refusals_of_gates_fire() {
    use ErrorKind::{Alias, Align, Dtype, Shape};
    let name = "gdn_gates";
    let given = gates("given", "separate", DType::F16);
    refuses(name, &given, Shape, "input", |call| set_word(call, "input", "x"));
    refuses(name, &given, Shape, "ba_layout", |call| set_word(call, "ba_layout", "ab"));
    refuses(name, &given, Shape, "gives", |call| set_word(call, "gives", "beta"));
    refuses(name, &given, Dtype, "b", |call| edit(call, "b").dtype = DType::F32);
    refuses(name, &given, Dtype, "g", |call| edit(call, "g").dtype = DType::F16);
    refuses(name, &given, Shape, "a", |call| edit(call, "a").shape[1] = 7);
    refuses(name, &given, Shape, "dt_bias", |call| edit(call, "dt_bias").shape[0] = 4);
    refuses(name, &given, Align, "b", |call| edit(call, "b").offset_bytes = 1);
    refuses(name, &given, Alias, "g", |call| {
        let a = edit(call, "a").buffer;
        edit(call, "g").buffer = a;
    });
    let grouped = gates("given", "grouped_ba", DType::F16);
    refuses(name, &grouped, Shape, "ab_grouped", |call| edit(call, "ab_grouped").shape[2] = 6);
    refuses(name, &grouped, Shape, "ab_grouped", |call| edit(call, "ab_grouped").shape[1] = 3);
    let projected = gates("projected", "grouped_ba", DType::BF16);
    refuses(name, &projected, Dtype, "x", |call| edit(call, "x").dtype = DType::F16);
    refuses(name, &projected, Shape, "x", |call| edit(call, "x").shape[0] = 8);
    refuses(name, &projected, Shape, "w_ab_grouped", |call| {
        edit(call, "w_ab_grouped").shape[2] = 39;
    });
    refuses(name, &projected, Shape, "w_ab_grouped", |call| {
        edit(call, "w_ab_grouped").strides[0] += 8;
    });
}

/// Five rows of two key heads and six value heads.
fn deinterleave(io: DType, key_dim: u64, value_dim: u64) -> Call {
    call(
        &[
            ("mixed", io, &[5, 2, 2 * key_dim + 6 * value_dim]),
            ("q", io, &[5, 2, key_dim]),
            ("k", io, &[5, 2, key_dim]),
            ("v", io, &[5, 6, value_dim]),
            ("z", io, &[5, 6, value_dim]),
        ],
        &[],
        &[],
    )
}

#[test]
fn deinterleaving_goes_by_the_largest_unit() {
    let calls = [
        deinterleave(DType::BF16, 64, 32),
        deinterleave(DType::F32, 33, 7),
        deinterleave(DType::F16, 33, 7),
    ];
    every_entry_is_planned("qkvz_deinterleave", &calls);
    let launch = plan("qkvz_deinterleave", &calls[0]).expect("legal").launches.remove(0);
    assert_eq!((launch.entry.as_ref(), launch.grid), ("qkvz_deinterleave_16", [1, 5, 1]));
    assert_eq!(launch.arguments[12..], [8, 12].map(Argument::I32), "units of a key head");
    let mut odd = calls[0].clone();
    edit(&mut odd, "z").offset_bytes = 4;
    let launch = plan("qkvz_deinterleave", &odd).expect("legal").launches.remove(0);
    assert_eq!(launch.entry, "qkvz_deinterleave_4");
    let name = "qkvz_deinterleave";
    refuses(name, &calls[0], ErrorKind::Dtype, "z", |call| edit(call, "z").dtype = DType::F16);
    refuses(name, &calls[0], ErrorKind::Shape, "mixed", |call| edit(call, "mixed").shape[2] -= 1);
    refuses(name, &calls[0], ErrorKind::Shape, "k", |call| edit(call, "k").shape[1] = 1);
    refuses(name, &calls[0], ErrorKind::Shape, "v", |call| {
        for tensor in ["v", "z"] {
            edit(call, tensor).shape[1] = 5;
        }
    });
    refuses(name, &calls[0], ErrorKind::Align, "q", |call| edit(call, "q").offset_bytes = 1);
    refuses(name, &calls[0], ErrorKind::Alias, "v", |call| edit(call, "v").buffer = 0);
}
