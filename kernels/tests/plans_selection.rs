//! Launch functions of the selection and embedding families: every refusal fires.

mod support;

use contracts::dtype::DType;
use contracts::format::{ErrorKind, ScaleKind};
use support::calls::{argmax, canary, ple, topk};
use support::{edit, refuses, set_word};

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
