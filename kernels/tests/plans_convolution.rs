//! Launch functions of the convolutions and of the state's conversion: what is walked how, and refusals.

mod support;

use contracts::dtype::DType;
use contracts::format::ErrorKind;
use kernels::call::Call;
use kernels::launch::{Argument, Plan};
use support::calls::{conv, convert, draft};
use support::{edit, plan, refuses, set_word};

#[test]
fn a_drafting_convolution_is_refused_argument_by_argument() {
    let good = draft(DType::BF16, 5120, 320);
    let Plan { launches, scratch } = plan("draft_conv", &good).expect("legal");
    assert_eq!(launches[0].grid, [5, 20, 1], "1024 channels, 64 outputs");
    assert_eq!(
        launches[1].grid,
        [10 + 10, 24, 1],
        "512 channels, 128 coefficients to store, a row"
    );
    assert_eq!(launches[1].arguments[13..], [16, 0, 5].map(Argument::I32));
    assert_eq!(scratch[0].shape, [5, 24, 1280], "a sum of every part");
    let wide = plan("draft_conv", &draft(DType::F32, 5120, 320)).expect("legal");
    assert_eq!(wide.launches[0].grid, [320, 3, 1], "four outputs, eight rows");
    assert_eq!(wide.scratch[0].shape, [1, 24, 1280]);
    refuses("draft_conv", &good, ErrorKind::Shape, "stage", |call| {
        set_word(call, "stage", "begin");
    });
    refuses("draft_conv", &good, ErrorKind::Shape, "coef", |call| edit(call, "coef").shape[4] = 3);
    refuses("draft_conv", &good, ErrorKind::Shape, "coef", |call| edit(call, "coef").shape[4] = 0);
    refuses("draft_conv", &draft(DType::BF16, 1 << 20, 1), ErrorKind::Shape, "coef", |call| {
        edit(call, "coef").shape[4] = 1 << 20;
        edit(call, "w").shape[0] = 4 << 20;
    });
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
    assert_eq!(launches[0].entry, "draft_conv_project_bf16_elements");
    assert_eq!(launches[1].entry, "draft_conv_bf16");
    let fours = plan("draft_conv", &draft(DType::BF16, 5124, 3)).expect("legal").launches;
    assert_eq!(fours[0].entry, "draft_conv_project_bf16_elements", "no whole eights");
    assert_eq!(fours[1].entry, "draft_conv_bf16");
    let mut finish = good;
    set_word(&mut finish, "stage", "finish");
    let Plan { launches, scratch } = plan("draft_conv", &finish).expect("legal");
    assert_eq!((launches.len(), scratch.len()), (1, 0));
    assert_eq!(launches[0].grid, [10, 24, 1]);
    assert_eq!(launches[0].arguments[3], Argument::Null, "coefficients are given");
    for name in ["x", "y", "coef", "residual"] {
        edit(&mut finish, name).shape[0] = 0;
    }
    assert!(plan("draft_conv", &finish).expect("legal").launches.is_empty(), "no rows");
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
