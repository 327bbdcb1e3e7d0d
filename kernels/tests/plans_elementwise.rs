//! Launch functions of the elementwise family: what they plan fits the PTX, and every refusal fires.

mod support;

use contracts::dtype::DType;
use contracts::format::ErrorKind;
use kernels::call::Call;
use kernels::launch::{Argument, Launch};
use support::{call, edit, every_entry_is_planned, plan, refuses, set_word};

fn norm(io: DType, rows: u64, channels: u64) -> Call {
    call(
        &[
            ("x", io, &[rows, channels]),
            ("z", io, &[rows, channels]),
            ("w", io, &[channels]),
            ("out", io, &[rows, channels]),
            ("out_f32", DType::F32, &[rows, channels]),
        ],
        &[("eps", 1e-6)],
        &[
            ("gate", "sigmoid"),
            ("weight", "one_plus"),
            ("round_point", "after_norm"),
            ("wide_out", "f32"),
        ],
    )
}

fn only_launch(call: &Call) -> Launch {
    let mut launches = plan("gated_rms_norm", call).expect("legal").launches;
    assert_eq!(launches.len(), 1);
    launches.remove(0)
}

#[test]
fn a_row_goes_to_half_as_many_threads_as_it_has_pieces() {
    let io = [DType::F32, DType::F16, DType::BF16];
    let calls: Vec<Call> =
        [128, 300, 5120].into_iter().flat_map(|d| io.map(|io| norm(io, 9, d))).collect();
    every_entry_is_planned("gated_rms_norm", &calls);
    // Form, lanes, rows a block.
    for (io, channels, form, lanes, grid) in [
        (DType::BF16, 128, "part", 8, 1),
        (DType::F32, 128, "part", 16, 1),
        (DType::F32, 132, "part", 32, 2),
        (DType::BF16, 1, "part", 1, 1),
        (DType::BF16, 257, "part", 32, 2),
        (DType::F32, 512, "part", 32, 2),
        (DType::F32, 513, "block", 256, 9),
        (DType::BF16, 5120, "block", 256, 9),
    ] {
        let launch = only_launch(&norm(io, 9, channels));
        assert_eq!(launch.entry, format!("gated_rms_norm_{}_{form}", io.name()), "{channels}");
        assert_eq!(launch.arguments[11], Argument::I32(lanes), "{channels}");
        assert_eq!(launch.grid, [grid, 1, 1], "{channels}");
    }
    assert!(plan("gated_rms_norm", &norm(DType::F32, 0, 8)).expect("legal").launches.is_empty());
}

#[test]
fn rows_that_are_not_whole_pieces_go_by_elements() {
    let vectors = |call: &Call| only_launch(call).arguments[12].clone();
    let whole = norm(DType::BF16, 3, 128);
    assert_eq!(vectors(&whole), Argument::I32(1));
    assert_eq!(vectors(&norm(DType::BF16, 3, 132)), Argument::I32(0));
    for name in ["x", "z", "w", "out", "out_f32"] {
        let mut odd = whole.clone();
        edit(&mut odd, name).offset_bytes = 4;
        assert_eq!(vectors(&odd), Argument::I32(0), "{name}");
    }
    let mut padded = whole;
    edit(&mut padded, "x").strides[0] += 4;
    assert_eq!(vectors(&padded), Argument::I32(0));
}

#[test]
fn refusals_of_a_gated_norm_fire() {
    use ErrorKind::{Alias, Align, Dtype, Shape};
    let name = "gated_rms_norm";
    let legal = &norm(DType::BF16, 3, 128);
    for tensor in ["z", "w", "out"] {
        refuses(name, legal, Dtype, tensor, |call| edit(call, tensor).dtype = DType::F16);
    }
    refuses(name, legal, Dtype, "out_f32", |call| edit(call, "out_f32").dtype = DType::BF16);
    refuses(name, legal, Dtype, "x", |call| edit(call, "x").dtype = DType::E4M3);
    for tensor in ["z", "out", "out_f32"] {
        refuses(name, legal, Shape, tensor, |call| edit(call, tensor).shape[0] = 2);
    }
    refuses(name, legal, Shape, "w", |call| edit(call, "w").shape[0] = 64);
    refuses(name, legal, Shape, "w", |call| edit(call, "w").strides[0] = 2);
    refuses(name, legal, Shape, "x", |call| edit(call, "x").strides[0] = 127);
    refuses(name, legal, Align, "z", |call| edit(call, "z").offset_bytes = 1);
    refuses(name, legal, Alias, "out", |call| edit(call, "out").buffer = 0);
    for (option, word) in
        [("gate", "relu"), ("weight", "half"), ("round_point", "start"), ("wide_out", "f16")]
    {
        refuses(name, legal, Shape, option, |call| set_word(call, option, word));
    }
    refuses(name, legal, Shape, "eps", |call| call.scalars.clear());
}
