//! `scale`: inputs times a power of two give outputs times it, bit for bit where no number leaves the
//! range of normal ones: a threshold, an absolute epsilon or a wrong exponent shows.

use super::comparison::Comparison;
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::oracle::each;
use crate::verdict::Verdict;
use contracts::case::{Case, Content};
use contracts::dtype::DType;
use contracts::format::Scaled;

pub(super) fn scale(
    related: &mut Related<'_, '_>,
    scaled: &Scaled,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let factor = 2f64.powi(scaled.power);
    let mut case = Case { found: None, ..whole.case.clone() };
    for name in &scaled.tensors {
        let (Some(placed), Some(tensor)) =
            (whole.geometry.tensor(name), case.tensors.get_mut(name))
        else {
            continue;
        };
        match times(&tensor.content, placed.dtype, placed.count(), factor) {
            Some(content) => tensor.content = content,
            None => return Ok(None),
        }
    }
    if contracts::Geometry::of(whole.subject.contract, &case).is_err() {
        return Ok(None);
    }
    let what = format!("{} times 2^{}", scaled.tensors.join(" and "), scaled.power);
    let (part, observed) = match related.run(whole.subject, &case, &what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    for place in part.written() {
        let tensor = &part.geometry.tensors[place];
        if !scaled.outputs.contains(&tensor.name) {
            continue;
        }
        let note = format!("expected is the case as it is, observed {what}, scaled back");
        let (run, compare) = ((whole, related.observed), related.relation.compare);
        let mut comparison = Comparison::of(related.clause, run, place, compare, None, note)?;
        let dtype = tensor.dtype;
        each(&part.live[place], dtype, &observed.tensors[place], |flat, bits| {
            let before = related.observed.bits(whole, place, flat).unwrap_or(bits);
            if is_normal(dtype, before) && is_normal(dtype, bits) {
                comparison.element(flat, dtype.round_from_f64(dtype.to_f64(bits) / factor));
            }
        });
        let (compared, found) = comparison.finish();
        related.compared += compared;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Contents times a power of two; `None` where a number is not finite or would be rounded.
fn times(content: &Content, dtype: DType, count: u64, factor: f64) -> Option<Content> {
    let one = |bits: u64| {
        let wanted = dtype.to_f64(bits) * factor;
        let scaled = dtype.round_from_f64(wanted);
        (wanted.is_finite() && dtype.to_f64(scaled) == wanted).then_some(scaled)
    };
    match content {
        Content::Derived | Content::Output => None,
        Content::Sparse { fill: contracts::Fill::Bits(fill), at } => {
            let at = at.iter().map(|(flat, bits)| Some((*flat, one(*bits)?)));
            Some(Content::Sparse {
                fill: contracts::Fill::Bits(one(*fill)?),
                at: at.collect::<Option<_>>()?,
            })
        }
        Content::Sparse { .. } => None,
        Content::Dense(_) => {
            let mut bytes = Vec::new();
            for flat in 0..count {
                dtype.push_bytes(one(content.bits(dtype, flat))?, &mut bytes);
            }
            Some(Content::Dense(bytes))
        }
    }
}

/// Zero, or far enough above the subnormals that no step on the way to it was rounded there.
fn is_normal(dtype: DType, bits: u64) -> bool {
    let value = dtype.to_f64(bits).abs();
    value == 0.0 || value.is_finite() && value >= dtype.smallest_subnormal() * 2f64.powi(64)
}
