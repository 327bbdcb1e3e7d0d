//! RMS norm, weight and gate of rows: see `cuda/elementwise/gated_rms_norm.cu`.
//! One launch; a row is had by a part of a warp, or by a block where it is long.

use crate::call::{Call, Rejection, TensorArg};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const IO: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
const THREADS: u64 = 256;
/// Bytes a thread reads at a time.
const PIECE_BYTES: u64 = 16;
/// Pieces of a row a lane holds from the sum to the product.
const HELD: u64 = 2;
/// Pieces of a lane up to which a warp is enough for a row.
const PIECES_OF_A_LANE: u64 = 4;

/// Checks x, z, out `[rows, D]` (f32, f16 or bf16), w `[D]` or `[1, D]` of their type, the scalar `eps` and the options
/// `gate` (`silu` or `sigmoid`), `weight` (`plain`, or `one_plus`: 1 + w), `round_point` (`end`, or
/// `after_norm`: also before the weight) and `wide_out` (`f32` takes out_f32 `[rows, D]`), and plans one
/// launch; none for no rows.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let x = call.tensor("x")?.dtype_in("x", &IO)?;
    let [rows, channels] = x.axes("x")?;
    let like_x = |name: &str| call.tensor(name)?.dtype_in(name, &[x.dtype]);
    let (z, w, out) = (like_x("z")?, like_x("w")?, like_x("out")?);
    z.shape_is("z", &[rows, channels])?;
    if w.shape != [channels] {
        w.shape_is("w", &[1, channels])?;
    }
    out.shape_is("out", &[rows, channels])?;
    let gate_is_sigmoid = second_of(call, "gate", ["silu", "sigmoid"])?;
    let weight_is_offset = second_of(call, "weight", ["plain", "one_plus"])?;
    let rounds_norm = second_of(call, "round_point", ["end", "after_norm"])?;
    let gives_f32 = second_of(call, "wide_out", ["none", "f32"])?;
    let mut strided = vec![("x", x), ("z", z), ("out", out)];
    if gives_f32 {
        let wide = call.tensor("out_f32")?.dtype_in("out_f32", &[DType::F32])?;
        strided.push(("out_f32", wide.shape_is("out_f32", &[rows, channels])?));
    }
    let strides: Vec<i64> =
        strided.iter().map(|(name, tensor)| row_stride(name, tensor)).collect::<Result<_, _>>()?;
    if !w.offset_bytes.is_multiple_of(w.dtype.size_bytes()) {
        return Err(Rejection::new(ErrorKind::Align, "w", "does not begin on an element"));
    }
    if w.strides.last() != Some(&1) && channels > 1 {
        return Err(Rejection::new(ErrorKind::Shape, "w", "must be contiguous"));
    }
    call.no_alias(&["out", "out_f32"])?;
    let channel_count = i32::try_from(channels).map_err(|_| {
        let detail = format!("has {channels} channels; at most 2^31 - 1 fit");
        Rejection::new(ErrorKind::Shape, "x", detail)
    })?;
    if rows == 0 || channels == 0 {
        return Ok(Plan::default());
    }
    let in_piece = PIECE_BYTES / x.dtype.size_bytes();
    let whole = |tensor: &TensorArg| tensor.aligned("", PIECE_BYTES).is_ok();
    let vectors = channels.is_multiple_of(in_piece)
        && w.offset_bytes.is_multiple_of(PIECE_BYTES)
        && strided.iter().all(|(_, tensor)| whole(tensor));
    let pieces = channels.div_ceil(in_piece);
    let (form, lanes) = if pieces <= 32 * PIECES_OF_A_LANE {
        ("part", pieces.div_ceil(HELD).next_power_of_two().min(32))
    } else {
        ("block", THREADS)
    };
    let blocks = rows.div_ceil(THREADS / lanes);
    let launch = Launch {
        module: "gated_rms_norm",
        entry: format!("gated_rms_norm_{}_{form}", x.dtype.name()).into(),
        grid: [grid_extent(rows, blocks)?, 1, 1],
        block: [THREADS as u32, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("x"),
            Argument::Tensor("z"),
            Argument::Tensor("w"),
            Argument::Tensor("out"),
            if gives_f32 { Argument::Tensor("out_f32") } else { Argument::Null },
            Argument::I64(strides[0]),
            Argument::I64(strides[1]),
            Argument::I64(strides[2]),
            Argument::I64(strides.get(3).copied().unwrap_or(0)),
            Argument::I64(signed("x", rows)?),
            Argument::I32(channel_count),
            Argument::I32(lanes as i32),
            Argument::I32(vectors.into()),
            Argument::I32(gate_is_sigmoid.into()),
            Argument::I32(weight_is_offset.into()),
            Argument::I32(rounds_norm.into()),
            Argument::F32(call.f32("eps")?),
        ],
    };
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}

/// Whether the option is the second of two words.
fn second_of(call: &Call, option: &str, words: [&str; 2]) -> Result<bool, Rejection> {
    let given = call.word(option)?;
    match words.iter().position(|word| *word == given) {
        Some(place) => Ok(place == 1),
        None => {
            let detail = format!("is `{given}`; must be `{}` or `{}`", words[0], words[1]);
            Err(Rejection::new(ErrorKind::Shape, option, detail))
        }
    }
}

fn row_stride(name: &str, tensor: &TensorArg) -> Result<i64, Rejection> {
    let stride = tensor.aligned(name, tensor.dtype.size_bytes())?.row_stride(name)?;
    signed(name, stride)
}

fn grid_extent(rows: u64, blocks: u64) -> Result<u32, Rejection> {
    i32::try_from(blocks).map(i32::unsigned_abs).map_err(|_| {
        let detail = format!("has {rows} rows; at most 2^31 - 1 blocks of them fit one launch");
        Rejection::new(ErrorKind::Shape, "x", detail)
    })
}

fn signed(name: &str, value: u64) -> Result<i64, Rejection> {
    i64::try_from(value).map_err(|_| {
        Rejection::new(ErrorKind::Shape, name, format!("extent {value} exceeds 2^63 - 1"))
    })
}
