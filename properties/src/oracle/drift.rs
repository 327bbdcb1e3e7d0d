//! The second gate of a tensor: the relative RMS error of each group of elements. It sees errors that
//! all lie within their bounds but lean one way. Only well-conditioned groups have a meaningful one.

use super::exercised::Exercised;
use super::observed::each_value;
use super::show::show_number;
use crate::check::ToolError;
use crate::prepare::{Prepared, missing};
use crate::verdict::{Disagreement, ErrorSummary};
use contracts::CaseScope;
use contracts::format::Drift;
use reference::Expected;

/// ‖r‖ of a group must be at least this share of ‖paths‖: below, cancellation rules the quotient.
const WELL_CONDITIONED: f64 = 1.0 / 256.0;
/// Error per element that is never counted: where results underflow f32, nothing relative holds
/// (linear_attention §0.3, a_S). A narrow type underflows earlier: half its smallest subnormal.
const FLOOR: f64 = 1.0e-30;
/// The magnitude conditioning is measured by.
const CONDITION: &str = "paths";

/// Sums over one group.
#[derive(Clone, Copy, Default)]
struct Group {
    number: usize,
    count: u64,
    error: f64,
    expected: f64,
    observed: f64,
    condition: f64,
}

/// Checks the drift the contract promises for a tensor, if any. `bytes` are its live elements.
///
/// # Errors
/// When the reference lacks the measure or the magnitude `paths`.
pub fn drift(
    prepared: &Prepared<'_>,
    place: usize,
    expected: &Expected,
    bytes: &[u8],
    exercised: &mut Exercised,
) -> Result<Option<Disagreement>, ToolError> {
    let (subject, tensor) = (prepared.subject, &prepared.geometry.tensors[place]);
    let scope = CaseScope::new(subject.contract, prepared.case);
    let Some((class, drift)) = subject.contract.drift_of(&tensor.name, &scope) else {
        return Ok(None);
    };
    let Expected::Real { value, .. } = expected else { return Ok(None) };
    let wants = |kind: &str, name: &str| {
        format!(
            "drift.{}.{class} of {} needs the {kind} `{name}`, which the reference does not return",
            tensor.name,
            subject.name()
        )
    };
    let condition = missing(|| wants("magnitude", CONDITION), expected.magnitude(CONDITION))?;
    let measure = missing(|| wants("measure", &drift.of), expected.measure(&drift.of))?;
    let size = tensor.shape.iter().skip(drift.axes).product::<u64>().max(1) as usize;
    let mut group = Group::default();
    let mut judged = 0u64;
    let mut worst: Option<(f64, Group)> = None;
    let floor = FLOOR.max(0.5 * tensor.dtype.smallest_subnormal());
    let mut finish = |group: Group| {
        let Some((error, allowed)) = judge(&group, drift, measure, floor) else { return };
        judged += 1;
        if error > allowed && worst.is_none() {
            worst = Some((error, group));
        }
    };
    each_value(&prepared.live[place], tensor.dtype, bytes, |flat, observed| {
        if flat / size != group.number {
            finish(std::mem::take(&mut group));
            group.number = flat / size;
        }
        let expected = value[flat];
        let error = observed - expected;
        group.count += 1;
        group.error += error * error;
        group.expected += expected * expected;
        group.observed += observed * observed;
        group.condition += condition[flat] * condition[flat];
    });
    finish(group);
    if judged > 0 {
        exercised.mark(subject, &["drift", &tensor.name, class]);
    }
    let Some((error, group)) = worst else { return Ok(None) };
    let allowed = drift.times * measure[group.number] + drift.plus;
    let summary = ErrorSummary {
        error,
        bound: allowed,
        wrong: 1,
        compared: judged,
        max_abs: 0.0,
        max_ulps: 0.0,
        relative_rms: error,
        norm_ratio: (group.observed / group.expected).sqrt(),
        nonfinite: 0,
        worst_ratio: error / allowed,
    };
    Ok(Some(Disagreement {
        clause: format!("drift.{}.{class}", tensor.name),
        tensor: Some(tensor.name.clone()),
        index: tensor.coordinates((group.number * size) as u64)
            [..drift.axes.min(tensor.shape.len())]
            .to_vec(),
        expected: format!("a relative RMS error of at most {}", show_number(allowed)),
        observed: show_number(error),
        written_by: String::new(),
        error: Some(summary),
        note: format!(
            "over the {} elements of the group: {} times `{}` plus {}; figures count groups",
            group.count, drift.times, drift.of, drift.plus
        ),
    }))
}

/// Relative RMS error and what is allowed; `None` for an ill-conditioned or non-finite group.
fn judge(group: &Group, drift: &Drift, measure: &[f64], floor: f64) -> Option<(f64, f64)> {
    let conditioned = group.expected.sqrt() >= WELL_CONDITIONED * group.condition.sqrt();
    if group.count == 0 || group.expected == 0.0 || !conditioned || !group.error.is_finite() {
        return None;
    }
    let measure = *measure.get(group.number)?;
    let uncounted = floor * (group.count as f64).sqrt();
    let error = (group.error.sqrt() - uncounted).max(0.0) / group.expected.sqrt();
    Some((error, drift.times * measure + drift.plus))
}
