//! Gates of the gated delta rule, from a and b or from what they are projected from: see
//! `cuda/linear_attention/gdn_gates.cu`. One launch.

use super::gated_delta::{IO, count, dense, one_of, stride, whole_groups};
use crate::call::{Call, Rejection, TensorArg};
use crate::launch::{Argument, Launch, Plan};
use contracts::dtype::DType;
use contracts::format::ErrorKind;

const MODULE: &str = "gdn_gates";
const THREADS: u32 = 128;
/// Rows a block of the projection takes together.
const TILE_ROWS: u64 = 4;
/// Heads a thread of given gates takes together, where they lie side by side.
const VECTOR_HEADS: u64 = 4;
/// Limit of the grid's second axis; blocks take further rows in turn.
const GRID_LIMIT: u64 = 65_535;
const VECTOR_BYTES: u64 = 16;

/// Checks dt_bias, a_log `[Hv]` f32, beta and, by the option `gives`, g or alpha `[rows, Hv]` f32, and by
/// the options `input` and `ba_layout`:
///
/// * `given`: a, b `[rows, Hv]` (f32, f16 or bf16) where `separate`; ab `[rows, 2 Hv]` where `concat_ab` or
///   `concat_ba`; ab_grouped `[rows, Hk, 2 Hv / Hk]`, a key head's b then its a, where `grouped_ba`;
/// * `projected`: x `[rows, hidden]` (f32, f16 or bf16), and of its type w_a, w_b `[Hv, hidden]`, w_ab
///   `[2 Hv, hidden]` or w_ab_grouped `[Hk, 2 Hv / Hk, hidden]`;
///
/// and plans one launch; none for no rows.
///
/// # Errors
/// The first argument at fault.
pub fn plan(call: &Call) -> Result<Plan, Rejection> {
    let out = Outputs::check(call)?;
    let projects = one_of(call, "input", ["given", "projected"])?;
    let pair = Pair::check(call, projects, [out.rows, out.heads])?;
    let launch = if projects { projected(call, &pair, &out)? } else { given(call, &pair, &out)? };
    call.no_alias(&[out.decay, "beta"])?;
    if out.rows == 0 || out.heads == 0 {
        return Ok(Plan::default());
    }
    Ok(Plan { scratch: Vec::new(), launches: vec![launch] })
}

/// dt_bias, a_log and what is written.
struct Outputs {
    rows: u64,
    heads: u64,
    decay: &'static str,
    strides: [i64; 2],
}

impl Outputs {
    fn check(call: &Call) -> Result<Outputs, Rejection> {
        let typed = |name: &str| call.tensor(name)?.dtype_in(name, &[DType::F32]);
        let decay = if one_of(call, "gives", ["log", "alpha"])? { "alpha" } else { "g" };
        let beta = typed("beta")?;
        let [rows, heads] = beta.axes("beta")?;
        let out = typed(decay)?.shape_is(decay, &[rows, heads])?;
        for name in ["dt_bias", "a_log"] {
            dense(name, typed(name)?.shape_is(name, &[heads])?)?;
        }
        count("beta", "heads", heads)?;
        Ok(Outputs { rows, heads, decay, strides: [stride(decay, out)?, stride("beta", beta)?] })
    }

    fn is_whole(&self, call: &Call) -> bool {
        [self.decay, "beta", "dt_bias", "a_log"].iter().all(|name| is_whole(call, name))
    }
}

/// Where a and b, or their weights, lie: in a tensor each, or in one.
struct Pair {
    dtype: DType,
    a: &'static str,
    b: &'static str,
    /// Of a row of both, or of the rows of both weights.
    strides: [i64; 2],
    group: i32,
    a_at: i32,
    b_at: i32,
}

impl Pair {
    /// `extents` are the rows and the heads of the output.
    fn check(call: &Call, projects: bool, [rows, heads]: [u64; 2]) -> Result<Pair, Rejection> {
        let hidden = if projects { Some(call.tensor("x")?.axes::<2>("x")?[1]) } else { None };
        let own = count("beta", "heads", heads.saturating_mul(2))? / 2;
        let layout = call.word("ba_layout")?;
        let [a, b] = match (layout, projects) {
            ("separate", false) => ["a", "b"],
            ("separate", true) => ["w_a", "w_b"],
            ("concat_ab" | "concat_ba", false) => ["ab"; 2],
            ("concat_ab" | "concat_ba", true) => ["w_ab"; 2],
            ("grouped_ba", false) => ["ab_grouped"; 2],
            ("grouped_ba", true) => ["w_ab_grouped"; 2],
            (other, _) => {
                let known = "`separate`, `concat_ab`, `concat_ba` or `grouped_ba`";
                let detail = format!("is `{other}`; must be {known}");
                return Err(Rejection::new(ErrorKind::Shape, "ba_layout", detail));
            }
        };
        let dtype = call.tensor(a)?.dtype_in(a, &IO)?.dtype;
        let checked = |name: &str| -> Result<i64, Rejection> {
            let tensor = call.tensor(name)?.dtype_in(name, &[dtype])?;
            let of_both = if a == b { 2 * heads } else { heads };
            match (layout, hidden) {
                ("grouped_ba", None) => {
                    stride(name, grouped(name, tensor, Some(rows), heads, None)?)
                }
                ("grouped_ba", Some(_)) => {
                    packed(name, grouped(name, tensor, None, heads, hidden)?)
                }
                (_, None) => stride(name, tensor.shape_is(name, &[rows, of_both])?),
                (_, Some(hidden)) => stride(name, tensor.shape_is(name, &[of_both, hidden])?),
            }
        };
        let strides = [checked(a)?, checked(b)?];
        let (group, a_at, b_at) = match layout {
            "separate" => (own, 0, 0),
            "concat_ab" => (own, 0, own),
            "concat_ba" => (own, own, 0),
            _ => {
                let shape = &call.tensor(a)?.shape;
                // Both of one key head: the axis after that of key heads.
                let of_group = shape[if projects { 1 } else { 2 }] / 2;
                let group = count(a, "heads", of_group)?;
                (group, group, 0)
            }
        };
        Ok(Pair { dtype, a, b, strides, group: group.max(1), a_at, b_at })
    }
}

/// Checks `[rows, Hk, 2 r]`, or with `hidden` `[Hk, 2 r, hidden]`, where Hk · r are the heads.
fn grouped<'a>(
    name: &str,
    tensor: &'a TensorArg,
    rows: Option<u64>,
    heads: u64,
    hidden: Option<u64>,
) -> Result<&'a TensorArg, Rejection> {
    let axes = tensor.axes::<3>(name)?;
    let [key_heads, both] = if rows.is_some() { [axes[1], axes[2]] } else { [axes[0], axes[1]] };
    whole_groups(key_heads, heads)
        .map_err(|refusal| Rejection::new(refusal.kind, name, refusal.detail))?;
    let group = heads / key_heads;
    if both != 2 * group {
        let detail = format!("has {both} channels a key head; must have {}", 2 * group);
        return Err(Rejection::new(ErrorKind::Shape, name, detail));
    }
    let shape = match (rows, hidden) {
        (Some(rows), _) => [rows, key_heads, both],
        (None, hidden) => [key_heads, both, hidden.unwrap_or(axes[2])],
    };
    tensor.shape_is(name, &shape)
}

/// The stride of the last axis but one, of a tensor without gaps.
fn packed(name: &str, tensor: &TensorArg) -> Result<i64, Rejection> {
    let [outer, rows, columns] = tensor.axes(name)?;
    let stride = stride(name, tensor)?;
    if outer > 1 && u64::try_from(stride) != Ok(rows * columns) {
        return Err(Rejection::new(ErrorKind::Shape, name, "must be contiguous"));
    }
    i64::try_from(columns)
        .map_err(|_| Rejection::new(ErrorKind::Shape, name, "a row exceeds 2^63 - 1 elements"))
}

fn given(call: &Call, pair: &Pair, out: &Outputs) -> Result<Launch, Rejection> {
    let group = u64::from(pair.group.unsigned_abs());
    let vectors = group.is_multiple_of(VECTOR_HEADS)
        && out.is_whole(call)
        && is_whole(call, pair.a)
        && is_whole(call, pair.b);
    let a_row = if vectors { out.heads / VECTOR_HEADS } else { out.heads };
    let threads = u128::from(out.rows) * u128::from(a_row);
    let blocks = u64::try_from(threads.div_ceil(THREADS.into())).unwrap_or(u64::MAX);
    Ok(Launch {
        module: MODULE,
        entry: format!("gdn_gates_given_{}", pair.dtype.name()).into(),
        grid: [count("beta", "blocks of rows", blocks)?.unsigned_abs(), 1, 1],
        block: [THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor(pair.a),
            Argument::Tensor(pair.b),
            Argument::Tensor("dt_bias"),
            Argument::Tensor("a_log"),
            Argument::Tensor(out.decay),
            Argument::Tensor("beta"),
            Argument::I64(pair.strides[0]),
            Argument::I64(pair.strides[1]),
            Argument::I64(out.strides[0]),
            Argument::I64(out.strides[1]),
            Argument::I64(out.rows as i64),
            Argument::I32(out.heads as i32),
            Argument::I32(pair.group),
            Argument::I32(pair.a_at),
            Argument::I32(pair.b_at),
            Argument::I32(vectors.into()),
            Argument::I32((out.decay == "alpha").into()),
        ],
    })
}

fn projected(call: &Call, pair: &Pair, out: &Outputs) -> Result<Launch, Rejection> {
    let x = call.tensor("x")?.dtype_in("x", &[pair.dtype])?;
    let [_, hidden] = x.axes("x")?;
    x.shape_is("x", &[out.rows, hidden])?;
    let x_stride = stride("x", x)?;
    let vectors = hidden.is_multiple_of(VECTOR_BYTES / pair.dtype.size_bytes())
        && ["x", pair.a, pair.b].iter().all(|name| is_whole(call, name));
    Ok(Launch {
        module: MODULE,
        entry: format!("gdn_gates_projected_{}", pair.dtype.name()).into(),
        grid: [out.heads as u32, out.rows.div_ceil(TILE_ROWS).min(GRID_LIMIT) as u32, 1],
        block: [THREADS, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![
            Argument::Tensor("x"),
            Argument::Tensor(pair.a),
            Argument::Tensor(pair.b),
            Argument::Tensor("dt_bias"),
            Argument::Tensor("a_log"),
            Argument::Tensor(out.decay),
            Argument::Tensor("beta"),
            Argument::I64(x_stride),
            Argument::I64(pair.strides[0]),
            Argument::I64(pair.strides[1]),
            Argument::I64(out.strides[0]),
            Argument::I64(out.strides[1]),
            Argument::I64(out.rows as i64),
            Argument::I32(count("x", "channels", hidden)?),
            Argument::I32(pair.group),
            Argument::I32(pair.a_at),
            Argument::I32(pair.b_at),
            Argument::I32(vectors.into()),
            Argument::I32((out.decay == "alpha").into()),
        ],
    })
}

/// Whether rows begin on whole vectors; a vector of one axis is a row.
fn is_whole(call: &Call, name: &str) -> bool {
    let whole = |tensor: &TensorArg| match tensor.shape.len() {
        1 => tensor.offset_bytes.is_multiple_of(VECTOR_BYTES),
        _ => tensor.aligned(name, VECTOR_BYTES).is_ok(),
    };
    call.optional_tensor(name).is_some_and(whole)
}
