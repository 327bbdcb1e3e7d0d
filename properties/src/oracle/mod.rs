//! Compares what a backend left in memory with what the reference expects, clause by clause. Only
//! live elements have values to compare; everything else is guarded by the marks `prepare` sets.

mod drift;
mod exercised;
mod faults;
mod house;
mod nan;
mod observed;
mod paths;
mod show;
mod tolerance;

pub use drift::drift;
pub use exercised::Exercised;
pub use faults::fault_report;
pub use house::{first_difference, first_unchanged, first_unwritten};
pub use nan::{NanReach, has_nan_input};
pub use observed::Observed;
pub(crate) use observed::each;
pub use paths::forsaken_path;
pub use show::{show, show_number};
pub use tolerance::Allowed;

use crate::check::ToolError;
use crate::counters::Headroom;
use crate::prepare::{Prepared, missing};
use crate::verdict::{Disagreement, ErrorSummary};
use contracts::dtype::DType;
use contracts::geometry::TensorGeometry;
use reference::Expected;

/// Judges every written tensor by its tolerance, NaN by the contract's policy, and drift; the first that
/// fails.
///
/// # Errors
/// When the contract names a magnitude, measure or tensor that the reference does not return.
pub fn judge(
    prepared: &Prepared<'_>,
    observed: &Observed,
    exercised: &mut Exercised,
) -> Result<Option<Disagreement>, ToolError> {
    for place in written_and_live(prepared) {
        if let Some(found) = judge_values(prepared, place, observed, exercised)? {
            return Ok(Some(found));
        }
        let expected = expected(prepared, &prepared.geometry.tensors[place])?;
        let bytes = &observed.tensors[place];
        if let Some(found) = drift(prepared, place, expected, bytes, exercised)?
            && prepared.subject.judges(&found.clause)
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// As [`judge`], every clause that fails and not only the first.
///
/// # Errors
/// As [`judge`].
pub fn failing_clauses(
    prepared: &Prepared<'_>,
    observed: &Observed,
) -> Result<Vec<String>, ToolError> {
    let mut exercised = Exercised::default();
    let mut clauses = Vec::new();
    for place in written_and_live(prepared) {
        let expected = expected(prepared, &prepared.geometry.tensors[place])?;
        let bytes = &observed.tensors[place];
        let values = judge_values(prepared, place, observed, &mut exercised)?;
        let whole = drift(prepared, place, expected, bytes, &mut exercised)?;
        clauses.extend(values.into_iter().chain(whole).map(|found| found.clause));
    }
    Ok(clauses)
}

/// Places of the tensors that have values to compare.
fn written_and_live<'p>(prepared: &'p Prepared<'_>) -> impl Iterator<Item = usize> + use<'p> {
    prepared.written().filter(|place| !prepared.live[*place].is_empty())
}

/// One tensor by its tolerance and the policy of NaN.
fn judge_values(
    prepared: &Prepared<'_>,
    place: usize,
    observed: &Observed,
    exercised: &mut Exercised,
) -> Result<Option<Disagreement>, ToolError> {
    let subject = prepared.subject;
    let nan_given = subject.contract.nan.is_some() && has_nan_input(prepared);
    let tensor = &prepared.geometry.tensors[place];
    let expected = expected(prepared, tensor)?;
    let allowed = Allowed::of(subject.contract, prepared.case, tensor, expected)?;
    exercised.mark(subject, &["tolerance", &tensor.name, allowed.class]);
    let bytes = &observed.tensors[place];
    let policy = subject.contract.nan.as_ref().and_then(|nan| nan.reach.get(&tensor.name));
    if nan_given && policy.is_some() {
        exercised.mark(subject, &["nan", &tensor.name]);
    }
    if exercised.measures {
        let tally = tallied(prepared, place, bytes, &allowed);
        exercised.measured(&tensor.name, Headroom::of(&tally.summary()));
    }
    if allowed.all_fit(&prepared.live[place], bytes) {
        return Ok(None);
    }
    let reach = match policy {
        Some(policy) if nan_given => NanReach::of(prepared, tensor, expected, *policy),
        _ => NanReach::none(),
    };
    let by_policy = nan_given && policy.is_some();
    Ok(disagreement(prepared, place, bytes, &allowed, &reach, by_policy))
}

/// What the reference expects of a tensor, whole.
///
/// # Errors
/// When the reference does not return it, or returns another number of elements.
pub fn expected<'a>(
    prepared: &'a Prepared<'_>,
    tensor: &TensorGeometry,
) -> Result<&'a Expected, ToolError> {
    let name = prepared.subject.name();
    let expected = missing(
        || {
            format!(
                "the reference of {name} returns no tensor `{}`; make it return one",
                tensor.name
            )
        },
        prepared.expected.tensor(&tensor.name),
    )?;
    if expected.count() as u64 != tensor.count() {
        return Err(ToolError::Missing(format!(
            "the reference of {name} returns {} elements of `{}`, whose shape {:?} has {}",
            expected.count(),
            tensor.name,
            tensor.shape,
            tensor.count()
        )));
    }
    Ok(expected)
}

/// Every live element of a tensor against its expectation.
fn tallied(prepared: &Prepared<'_>, place: usize, bytes: &[u8], allowed: &Allowed<'_>) -> Tally {
    let dtype = prepared.geometry.tensors[place].dtype;
    let mut tally = Tally::of(dtype);
    each(&prepared.live[place], dtype, bytes, |flat, bits| {
        let at = flat as usize;
        let fits = allowed.fits(at, bits);
        tally.add(allowed.value(at), dtype.to_f64(bits), allowed.bound(at), fits);
    });
    tally
}

/// The first wrong element of a tensor in row-major order, with what all of them amount to; `None`
/// when every misfit is a NaN within reach.
fn disagreement(
    prepared: &Prepared<'_>,
    place: usize,
    bytes: &[u8],
    allowed: &Allowed<'_>,
    reach: &NanReach,
    nan_by_policy: bool,
) -> Option<Disagreement> {
    let tensor = &prepared.geometry.tensors[place];
    let dtype = tensor.dtype;
    let by_nan = format!("nan.{}", tensor.name);
    let by_value = format!("tolerance.{}.{}", tensor.name, allowed.class);
    let clause = |flat: u64, bits: u64| {
        let is_nan = allowed.value(flat as usize).is_nan();
        if nan_by_policy && is_nan != dtype.is_nan(bits) { &by_nan } else { &by_value }
    };
    let subject = prepared.subject;
    let fits = |flat: u64, bits: u64| {
        allowed.fits(flat as usize, bits)
            || dtype.is_nan(bits) && reach.allows(flat)
            || !subject.off.is_empty() && !subject.judges(clause(flat, bits))
    };
    let mut first: Option<(u64, u64)> = None;
    each(&prepared.live[place], dtype, bytes, |flat, bits| {
        if first.is_none() && !fits(flat, bits) {
            first = Some((flat, bits));
        }
    });
    let (flat, bits) = first?;
    let mut tally = Tally::of(dtype);
    each(&prepared.live[place], dtype, bytes, |flat, bits| {
        let (value, bound) = (allowed.value(flat as usize), allowed.bound(flat as usize));
        tally.add(value, dtype.to_f64(bits), bound, fits(flat, bits));
    });
    let value = allowed.value(flat as usize);
    let clause = clause(flat, bits).clone();
    let error = ErrorSummary {
        error: finite((dtype.to_f64(bits) - value).abs()),
        bound: finite(allowed.bound(flat as usize)),
        ..tally.summary()
    };
    Some(Disagreement {
        clause,
        tensor: Some(tensor.name.clone()),
        index: tensor.coordinates(flat),
        expected: allowed.show(flat as usize),
        observed: show(dtype, bits),
        written_by: String::new(),
        error: Some(error),
        note: String::new(),
    })
}

/// One unit in the last place of a value in a type: the distance of its neighbours there. Whole numbers
/// for a type of whole numbers.
fn ulp(dtype: DType, value: f64) -> f64 {
    if !dtype.is_float() {
        return 1.0;
    }
    let power = libm::ilogb(value).clamp(-1100, 1100);
    let unit = 2.0 * dtype.unit_roundoff() * libm::exp2(f64::from(power));
    unit.max(dtype.smallest_subnormal())
}

/// A NaN error is as large as an error can be; summaries stay comparable.
fn finite(error: f64) -> f64 {
    if error.is_nan() { f64::INFINITY } else { error }
}

/// Running sums over the elements of a tensor.
pub(crate) struct Tally {
    dtype: DType,
    max_ulps: f64,
    wrong: u64,
    compared: u64,
    nonfinite: u64,
    max_abs: f64,
    worst_ratio: f64,
    error_squared: f64,
    expected_squared: f64,
    observed_squared: f64,
}

impl Tally {
    /// Nothing yet of a tensor of this type.
    pub(crate) fn of(dtype: DType) -> Tally {
        Tally {
            dtype,
            max_ulps: 0.0,
            wrong: 0,
            compared: 0,
            nonfinite: 0,
            max_abs: 0.0,
            worst_ratio: 0.0,
            error_squared: 0.0,
            expected_squared: 0.0,
            observed_squared: 0.0,
        }
    }

    /// Adds one element. Only finite pairs enter the norms.
    pub(crate) fn add(&mut self, expected: f64, observed: f64, bound: f64, fits: bool) {
        self.compared += 1;
        self.wrong += u64::from(!fits);
        if !expected.is_finite() || !observed.is_finite() {
            self.nonfinite += u64::from(expected.is_finite() && !observed.is_finite());
            return;
        }
        let error = (observed - expected).abs();
        self.max_abs = self.max_abs.max(error);
        if error > 0.0 {
            self.worst_ratio = self.worst_ratio.max(error / bound);
            self.max_ulps = self.max_ulps.max(error / ulp(self.dtype, expected));
        }
        self.error_squared += error * error;
        self.expected_squared += expected * expected;
        self.observed_squared += observed * observed;
    }

    /// The sums as figures; norms over nothing are zero, relative ones over zero infinite.
    pub(crate) fn summary(&self) -> ErrorSummary {
        let relative =
            |part: f64, whole: f64| if part == 0.0 { 0.0 } else { (part / whole).sqrt() };
        ErrorSummary {
            error: 0.0,
            bound: 0.0,
            wrong: self.wrong,
            compared: self.compared,
            max_abs: self.max_abs,
            max_ulps: self.max_ulps,
            relative_rms: relative(self.error_squared, self.expected_squared),
            norm_ratio: relative(self.observed_squared, self.expected_squared),
            nonfinite: self.nonfinite,
            worst_ratio: self.worst_ratio,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_in_the_last_place_is_the_distance_of_neighbours() {
        for (dtype, value, unit) in [
            (DType::F32, 1.0, 2f64.powi(-23)),
            (DType::F32, -1.5, 2f64.powi(-23)),
            (DType::F32, 1.999, 2f64.powi(-23)),
            (DType::F32, 2.0, 2f64.powi(-22)),
            (DType::F16, 1.0, 2f64.powi(-10)),
            (DType::BF16, 0.75, 2f64.powi(-8)),
            (DType::F16, 0.0, DType::F16.smallest_subnormal()),
            (DType::I32, 7.0, 1.0),
        ] {
            assert_eq!(ulp(dtype, value), unit, "{dtype} {value}");
        }
    }

    #[test]
    fn a_tally_tells_every_figure_of_a_tensor() {
        let mut tally = Tally::of(DType::F16);
        tally.add(1.0, 1.0 + 2f64.powi(-9), 2f64.powi(-8), true);
        tally.add(2.0, 2.0, 0.0, true);
        tally.add(3.0, f64::NAN, 1.0, false);
        let summary = tally.summary();
        assert_eq!((summary.wrong, summary.compared, summary.nonfinite), (1, 3, 1));
        assert_eq!((summary.max_ulps, summary.worst_ratio), (2.0, 0.5));
        assert_eq!(summary.max_abs, 2f64.powi(-9));
        assert!((summary.relative_rms - 2f64.powi(-9) / 5f64.sqrt()).abs() < 1e-15);
        assert!(summary.norm_ratio > 1.0 && summary.norm_ratio < 1.001);
    }
}
