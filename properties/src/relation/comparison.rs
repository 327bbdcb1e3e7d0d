//! Compares one tensor of the whole run with the same elements of another run: bit for bit, or within
//! both runs' bounds around the same expectation. Where the policy leaves open whether NaN arrives, two
//! kernels may differ in it, one and the same may not.

use crate::check::ToolError;
use crate::oracle::{Allowed, NanReach, Observed, Tally, expected, has_nan_input, show};
use crate::prepare::Prepared;
use crate::verdict::{Disagreement, ErrorSummary, Verdict};
use contracts::dtype::DType;
use contracts::format::Compare;

/// One tensor of the whole run, and how another run's elements are compared with it.
pub(super) struct Comparison<'a> {
    clause: &'a str,
    whole: &'a Prepared<'a>,
    observed: &'a Observed,
    place: usize,
    /// What the other run is.
    note: String,
    form: Form<'a>,
    tally: Tally,
    compared: u64,
    first: Option<First>,
}

/// Bits, or the bounds of both runs; with the elements where one may be NaN alone.
enum Form<'a> {
    Bits { reach: NanReach },
    Bound { one: Allowed<'a>, other: Allowed<'a>, reach: NanReach },
}

/// Elements of the tensor at `place` where NaN may arrive or not.
fn open_to_nan(whole: &Prepared<'_>, place: usize) -> Result<NanReach, ToolError> {
    let tensor = &whole.geometry.tensors[place];
    let policy = whole.subject.contract.nan.as_ref();
    match policy.and_then(|policy| policy.reach.get(&tensor.name)) {
        Some(reach) if has_nan_input(whole) => {
            Ok(NanReach::of_any_chunks(whole, tensor, expected(whole, tensor)?, *reach))
        }
        _ => Ok(NanReach::none()),
    }
}

struct First {
    flat: u64,
    whole: u64,
    other: u64,
    allowed: f64,
}

impl<'a> Comparison<'a> {
    /// A comparison of the tensor at `place`. `other` is the tolerance of the other run; the whole's
    /// own when it is a run of the same kernel.
    ///
    /// # Errors
    /// When the tolerance needs what the reference does not return.
    pub(super) fn of(
        clause: &'a str,
        (whole, observed): (&'a Prepared<'a>, &'a Observed),
        place: usize,
        compare: Compare,
        other: Option<Allowed<'a>>,
        note: String,
    ) -> Result<Comparison<'a>, ToolError> {
        let form = match compare {
            Compare::Bits => Form::Bits { reach: NanReach::none() },
            Compare::Bound => {
                let tensor = &whole.geometry.tensors[place];
                let expected = expected(whole, tensor)?;
                let one = Allowed::of(whole.subject.contract, whole.case, tensor, expected)?;
                let other = other.unwrap_or_else(|| one.clone());
                Form::Bound { one, other, reach: open_to_nan(whole, place)? }
            }
        };
        Ok(Comparison {
            clause,
            whole,
            observed,
            place,
            note,
            form,
            tally: Tally::of(whole.geometry.tensors[place].dtype),
            compared: 0,
            first: None,
        })
    }

    /// As two different kernels are compared: even bit for bit, what the policy leaves open is not.
    ///
    /// # Errors
    /// As [`Comparison::of`].
    pub(super) fn between_kernels(mut self) -> Result<Comparison<'a>, ToolError> {
        if let Form::Bits { reach } = &mut self.form {
            *reach = open_to_nan(self.whole, self.place)?;
        }
        Ok(self)
    }

    fn dtype(&self) -> DType {
        self.whole.geometry.tensors[self.place].dtype
    }

    /// Compares the whole's element at `flat` with bits of the other run. Elements the whole does not
    /// hold live are passed over.
    pub(super) fn element(&mut self, flat: u64, other: u64) {
        let Some(whole) = self.observed.bits(self.whole, self.place, flat) else { return };
        self.compared += 1;
        let dtype = self.dtype();
        let (a, b) = (dtype.to_f64(whole), dtype.to_f64(other));
        let both_nan = dtype.is_nan(whole) && dtype.is_nan(other);
        let (agrees, allowed) = match &self.form {
            Form::Bits { reach } => {
                let one_is_nan = dtype.is_nan(whole) != dtype.is_nan(other);
                (whole == other || both_nan || one_is_nan && reach.allows(flat), 0.0)
            }
            Form::Bound { one, other: second, reach } => {
                let at = flat as usize;
                let allowed = one.bound(at) + second.bound(at);
                let agrees = if whole == other || both_nan {
                    true
                } else if a.is_nan() || b.is_nan() {
                    reach.allows(flat)
                } else if a.is_infinite() || b.is_infinite() {
                    // One of them rounded past the largest number: right if both may have.
                    one.fits(at, whole) && second.fits(at, other)
                } else {
                    (a - b).abs() <= allowed
                };
                (agrees, allowed)
            }
        };
        self.tally.add(a, b, allowed, agrees);
        if !agrees && self.first.as_ref().is_none_or(|first| flat < first.flat) {
            self.first = Some(First { flat, whole, other, allowed });
        }
    }

    /// Elements compared, and the first wrong one as a verdict.
    pub(super) fn finish(self) -> (u64, Option<Verdict>) {
        let Some(first) = &self.first else { return (self.compared, None) };
        let tensor = &self.whole.geometry.tensors[self.place];
        let error = (tensor.dtype.to_f64(first.whole) - tensor.dtype.to_f64(first.other)).abs();
        let summary = ErrorSummary {
            error: if error.is_nan() { f64::INFINITY } else { error },
            bound: first.allowed,
            ..self.tally.summary()
        };
        let verdict = Verdict::Disagree(Box::new(Disagreement {
            clause: self.clause.to_owned(),
            tensor: Some(tensor.name.clone()),
            index: tensor.coordinates(first.flat),
            expected: show(tensor.dtype, first.whole),
            observed: show(tensor.dtype, first.other),
            written_by: String::new(),
            error: Some(summary),
            note: self.note,
        }));
        (self.compared, Some(verdict))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Session, attempt};
    use crate::choices::Seeded;
    use crate::generate::draw_assigned;
    use crate::prepare::prepare;
    use crate::subject::subject;
    use contracts::case::{Case, Content};
    use contracts::dtype::Poison;
    use contracts::format::{Fixture, Word};
    use kernels::arena::Arena;
    use kernels::backend::vm::VmBackend;

    /// Four rows of two value heads and one column, NaN in row 1 of the first head.
    fn with_one_nan() -> Case {
        let steps = subject("canary_steps").expect("it is registered");
        let mut assigned = Fixture::default();
        let dims = [("N", 1), ("Hk", 1), ("Hv", 2), ("D", 1), ("slots", 1)];
        assigned.dims.extend(dims.map(|(dim, size)| (dim.to_owned(), size)));
        assigned.lists.extend([("len".to_owned(), vec![4]), ("slot".to_owned(), vec![0])]);
        assigned.variants.insert("width".to_owned(), Word("whole".to_owned()));
        let drawn = draw_assigned(steps, &assigned, &mut Seeded { seed: 1 });
        let mut case = drawn.expect("it is legal");
        for name in ["k", "v", "s"] {
            let count =
                prepare(steps, &case).expect("a case").geometry.tensor(name).map(|t| t.count());
            let mut values = vec![1.0_f32; count.expect("it is there") as usize];
            if name == "v" {
                values[2] = f32::NAN;
            }
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            case.tensors[name].content = Content::Dense(bytes);
        }
        case
    }

    /// Whether the run of `with_one_nan` agrees with one whose element of `o` at `flat` is NaN too.
    fn agrees_with_nan_at(flat: u64, as_kernels: bool) -> bool {
        let (steps, case) = (subject("canary_steps").expect("it is registered"), with_one_nan());
        let whole = prepare(steps, &case).expect("a case");
        let (mut backend, mut arena) = (VmBackend::new(), Arena::default());
        let mut session = Session { backend: &mut backend, arena: &mut arena };
        let ended = attempt(&whole, Poison::Quiet, &mut session).expect("it runs");
        assert_eq!(ended, None);
        let mut observed = Observed::default();
        observed.gather(&whole, &arena);
        let place = whole.geometry.tensors.iter().position(|tensor| tensor.name == "o");
        let place = place.expect("an output");
        let run = (&whole, &observed);
        let mut comparison = Comparison::of("", run, place, Compare::Bits, None, String::new())
            .expect("a comparison");
        if as_kernels {
            comparison = comparison.between_kernels().expect("a policy");
        }
        for at in 0..8 {
            let bits = observed.bits(&whole, place, at).expect("it is live");
            comparison.element(at, if at == flat { f32::NAN.to_bits().into() } else { bits });
        }
        let (compared, found) = comparison.finish();
        assert_eq!(compared, 8);
        found.is_none()
    }

    #[test]
    fn two_kernels_may_differ_in_nan_within_its_reach_and_nowhere_else() {
        // Chunks of two rows: the first head's row 0 may be NaN with its row 1; the second head has none.
        let (before_it, itself, other_head) = (0, 2, 1);
        assert!(agrees_with_nan_at(before_it, true));
        assert!(agrees_with_nan_at(itself, true));
        assert!(!agrees_with_nan_at(other_head, true));
        assert!(!agrees_with_nan_at(7, true));
    }

    #[test]
    fn one_kernel_may_not_differ_in_nan_at_all() {
        assert!(!agrees_with_nan_at(0, false));
        assert!(agrees_with_nan_at(2, false));
    }
}
