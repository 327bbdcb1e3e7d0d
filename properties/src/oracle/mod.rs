//! Compares what a backend left in memory with what the reference expects, clause by clause. Only
//! live elements have values to compare; everything else is guarded by the marks `prepare` sets.

mod drift;
mod exercised;
mod faults;
mod house;
mod nan;
mod observed;
mod show;
mod tolerance;

pub use drift::drift;
pub use exercised::Exercised;
pub use faults::fault_report;
pub use house::{first_difference, first_unchanged, first_unwritten};
pub use nan::{NanReach, has_nan_input};
pub use observed::Observed;
pub(crate) use observed::each;
pub use show::{show, show_number};
pub use tolerance::Allowed;

use crate::check::ToolError;
use crate::prepare::{Prepared, missing};
use crate::verdict::{Disagreement, ErrorSummary};
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
        if let Some(found) = drift(prepared, place, expected, bytes, exercised)? {
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
    let mut first: Option<(u64, u64)> = None;
    let mut tally = Tally::default();
    each(&prepared.live[place], dtype, bytes, |flat, bits| {
        let fits = allowed.fits(flat as usize, bits) || dtype.is_nan(bits) && reach.allows(flat);
        tally.add(
            allowed.value(flat as usize),
            dtype.to_f64(bits),
            allowed.bound(flat as usize),
            fits,
        );
        if !fits && first.is_none() {
            first = Some((flat, bits));
        }
    });
    let (flat, bits) = first?;
    let value = allowed.value(flat as usize);
    let clause = if nan_by_policy && value.is_nan() != dtype.is_nan(bits) {
        format!("nan.{}", tensor.name)
    } else {
        format!("tolerance.{}.{}", tensor.name, allowed.class)
    };
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

/// A NaN error is as large as an error can be; summaries stay comparable.
fn finite(error: f64) -> f64 {
    if error.is_nan() { f64::INFINITY } else { error }
}

/// Running sums over the elements of a tensor.
#[derive(Default)]
pub(crate) struct Tally {
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
            relative_rms: relative(self.error_squared, self.expected_squared),
            norm_ratio: relative(self.observed_squared, self.expected_squared),
            nonfinite: self.nonfinite,
            worst_ratio: self.worst_ratio,
        }
    }
}
