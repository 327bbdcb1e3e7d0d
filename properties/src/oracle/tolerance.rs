//! What a tolerance allows one element to be. `bits`: equal, or both NaN. `bound`: within half a unit
//! of the output type plus the magnitudes' share of the value the reference expects.

use super::observed::{each, each_value};
use super::show::{show, show_number};
use crate::check::ToolError;
use crate::prepare::{LiveRun, missing};
use contracts::CaseScope;
use contracts::case::Case;
use contracts::dtype::DType;
use contracts::format::{Contract, Overflow};
use contracts::geometry::TensorGeometry;
use reference::Expected;

/// The tolerance of one tensor in one case, with everything it is computed from.
#[derive(Clone, Debug)]
pub struct Allowed<'a> {
    /// The tolerance's key under its tensor.
    pub class: &'a str,
    dtype: DType,
    expected: &'a Expected,
    form: Form<'a>,
}

#[derive(Clone, Debug)]
enum Form<'a> {
    Bits,
    Bound {
        /// Type of the final rounding.
        round: DType,
        overflow: Overflow,
        /// `times · unit` and the magnitude it multiplies.
        terms: Vec<(f64, &'a [f64])>,
        floor: f64,
    },
}

impl<'a> Allowed<'a> {
    /// The tolerance a contract sets for a tensor in a case.
    ///
    /// # Errors
    /// When the contract sets none, or names a magnitude the reference does not return.
    pub fn of(
        contract: &'a Contract,
        case: &Case,
        tensor: &TensorGeometry,
        expected: &'a Expected,
    ) -> Result<Allowed<'a>, ToolError> {
        let name = &tensor.name;
        let scope = CaseScope::new(contract, case);
        let (class, tolerance) = missing(
            || format!("{} sets no tolerance for `{name}` in this case", contract.contract),
            contract.tolerance_of(name, &scope),
        )?;
        let Some(bound) = &tolerance.bound else {
            return Ok(Allowed { class, dtype: tensor.dtype, expected, form: Form::Bits });
        };
        let dtype_named = |word: &contracts::format::DTypeRef| {
            missing(
                || format!("{}: `{}` is no type and no dtype symbol", contract.contract, word.0),
                word.resolve(&case.dtypes),
            )
        };
        let mut terms = Vec::with_capacity(bound.terms.len());
        for (magnitude, term) in &bound.terms {
            let values = missing(
                || {
                    format!(
                        "tolerance.{name}.{class} of {} needs the magnitude `{magnitude}`, which the \
                         reference does not return; it returns {}",
                        contract.contract,
                        names(expected)
                    )
                },
                expected.magnitude(magnitude).filter(|values| values.len() == expected.count()),
            )?;
            terms.push((term.times * dtype_named(&term.unit)?.unit_roundoff(), values));
        }
        let form = Form::Bound {
            round: dtype_named(&bound.round_out)?,
            overflow: bound.overflow,
            terms,
            floor: bound.floor,
        };
        Ok(Allowed { class, dtype: tensor.dtype, expected, form })
    }

    /// The expected value; for exact expectations, of the bits.
    pub fn value(&self, flat: usize) -> f64 {
        match self.expected {
            Expected::Bits(bits) => self.dtype.to_f64(bits[flat]),
            Expected::Real { value, .. } => value[flat],
        }
    }

    fn bits(&self, flat: usize) -> u64 {
        match self.expected {
            Expected::Bits(bits) => bits[flat],
            Expected::Real { value, .. } => self.dtype.round_from_f64(value[flat]),
        }
    }

    /// Largest |observed − expected|; zero where bits must be equal.
    pub fn bound(&self, flat: usize) -> f64 {
        match &self.form {
            Form::Bits => 0.0,
            Form::Bound { round, terms, floor, .. } => {
                let rounding = half_unit(*round, self.value(flat));
                terms
                    .iter()
                    .fold(rounding + floor, |sum, (share, magnitude)| sum + share * magnitude[flat])
            }
        }
    }

    /// Whether an element may have these bits.
    pub fn fits(&self, flat: usize, bits: u64) -> bool {
        let Form::Bound { round, overflow, .. } = &self.form else {
            return self.are_same(bits, self.bits(flat));
        };
        let (expected, observed) = (self.value(flat), self.dtype.to_f64(bits));
        if expected.is_nan() || observed.is_nan() {
            return expected.is_nan() && observed.is_nan();
        }
        if expected.is_infinite() {
            return observed == expected;
        }
        let bound = self.bound(flat);
        if observed.is_infinite() {
            // Rounding overflows only if the value may have been past the largest number.
            let reached = expected * observed.signum() + bound;
            return *overflow == Overflow::Infinite
                && reached >= round.largest_finite() * (1.0 + round.unit_roundoff());
        }
        (observed - expected).abs() <= bound
    }

    /// Equal bits, or NaN both.
    fn are_same(&self, bits: u64, expected: u64) -> bool {
        bits == expected || self.dtype.is_nan(bits) && self.dtype.is_nan(expected)
    }

    /// Whether every live element plainly fits. False asks for a closer look at each: infinities, and NaN
    /// where a number is expected, are not decided here.
    pub fn all_fit(&self, runs: &[LiveRun], bytes: &[u8]) -> bool {
        let mut fit = true;
        match (&self.form, self.expected) {
            (Form::Bits, Expected::Bits(expected)) => {
                each(runs, self.dtype, bytes, |flat, bits| {
                    fit &= self.are_same(bits, expected[flat as usize]);
                });
            }
            (Form::Bits, Expected::Real { .. }) => {
                each(runs, self.dtype, bytes, |flat, bits| {
                    fit &= self.are_same(bits, self.bits(flat as usize));
                });
            }
            (Form::Bound { round, terms, floor, .. }, Expected::Real { value, .. }) => {
                let (unit, least) = (round.unit_roundoff(), 0.5 * round.smallest_subnormal());
                each_value(runs, self.dtype, bytes, |flat, observed| {
                    let expected = value[flat];
                    let mut bound = (unit * expected.abs()).max(least) + floor;
                    for (share, magnitude) in terms {
                        bound += share * magnitude[flat];
                    }
                    let error = (observed - expected).abs();
                    let both_nan = expected.is_nan() && observed.is_nan();
                    fit &= both_nan || error <= bound && error < f64::INFINITY;
                });
            }
            (Form::Bound { .. }, Expected::Bits(_)) => fit = false,
        }
        fit
    }

    /// The expected element for a reader: its value before rounding, and the nearest bits.
    pub fn show(&self, flat: usize) -> String {
        match self.expected {
            Expected::Bits(bits) => show(self.dtype, bits[flat]),
            Expected::Real { value, .. } => {
                let width = 2 * self.dtype.size_bytes() as usize;
                format!("{} (0x{:0width$x})", show_number(value[flat]), self.bits(flat))
            }
        }
    }
}

/// Half a unit in the last place of `value` in a type: u·|value|, or half the smallest subnormal.
fn half_unit(dtype: DType, value: f64) -> f64 {
    (dtype.unit_roundoff() * value.abs()).max(0.5 * dtype.smallest_subnormal())
}

fn names(expected: &Expected) -> String {
    match expected {
        Expected::Real { magnitudes, .. } if !magnitudes.is_empty() => {
            let names: Vec<_> = magnitudes.iter().map(|(name, _)| *name).collect();
            names.join(", ")
        }
        _ => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn real(value: &[f64]) -> Expected {
        Expected::Real { value: value.to_vec(), magnitudes: Vec::new(), measures: Vec::new() }
    }

    fn within<'a>(
        dtype: DType,
        expected: &'a Expected,
        share: f64,
        magnitude: &'a [f64],
    ) -> Allowed<'a> {
        let terms = vec![(share, magnitude)];
        let overflow = Overflow::Infinite;
        let form = Form::Bound { round: dtype, overflow, terms, floor: 1e-30 };
        Allowed { class: "all", dtype, expected, form }
    }

    fn fits(allowed: &Allowed<'_>, dtype: DType, observed: f64) -> bool {
        let bits = dtype.round_from_f64(observed);
        let mut bytes = Vec::new();
        dtype.push_bytes(bits, &mut bytes);
        let runs = [LiveRun { flat: 0, count: 1, offset: 0, before: 0 }];
        let fits = allowed.fits(0, bits);
        assert!(
            fits || !allowed.all_fit(&runs, &bytes),
            "the fast path accepts what the slow one does not"
        );
        fits
    }

    #[test]
    fn a_bound_is_half_a_unit_and_the_magnitudes_share() {
        let expected = real(&[1.0]);
        let allowed = within(DType::F32, &expected, 4.0 * DType::F32.unit_roundoff(), &[2.0]);
        let unit = DType::F32.unit_roundoff();
        assert!((allowed.bound(0) - 9.0 * unit).abs() < 1e-20);
        for (units, right) in
            [(8.0, true), (-8.0, true), (9.0, true), (10.0, false), (-10.0, false)]
        {
            assert_eq!(fits(&allowed, DType::F32, 1.0 + units * unit), right, "{units} units");
        }
    }

    #[test]
    fn nan_fits_where_nan_is_expected_alone() {
        for (value, observed, right) in
            [(f64::NAN, f64::NAN, true), (f64::NAN, 1.0, false), (1.0, f64::NAN, false)]
        {
            let expected = real(&[value]);
            let allowed = within(DType::F32, &expected, 0.0, &[0.0]);
            assert_eq!(fits(&allowed, DType::F32, observed), right, "{value} {observed}");
            let mut bytes = Vec::new();
            DType::F32.push_bytes(DType::F32.round_from_f64(observed), &mut bytes);
            let runs = [LiveRun { flat: 0, count: 1, offset: 0, before: 0 }];
            assert_eq!(allowed.all_fit(&runs, &bytes), right, "{value} {observed}");
        }
    }

    #[test]
    fn near_zero_half_the_smallest_subnormal_is_a_rounding() {
        let least = DType::F16.smallest_subnormal();
        let expected = real(&[0.4 * least]);
        let allowed = within(DType::F16, &expected, 0.0, &[0.0]);
        assert!(fits(&allowed, DType::F16, 0.0));
        assert!(!fits(&allowed, DType::F16, least));
    }

    #[test]
    fn infinity_is_right_only_where_rounding_may_overflow() {
        let infinity = f64::INFINITY;
        for (value, share, observed, right) in [
            (65530.0, 0.0, infinity, true),
            (65000.0, 0.0, infinity, false),
            (65000.0, 0.01, infinity, true),
            (-65530.0, 0.0, -infinity, true),
            (-65530.0, 0.0, infinity, false),
            (infinity, 0.0, infinity, true),
            (infinity, 0.0, -infinity, false),
            (infinity, 0.0, 65504.0, false),
            (1e6, 0.0, infinity, true),
            (1e6, 0.0, 65504.0, false),
        ] {
            let expected = real(&[value]);
            let magnitude = [if value.is_finite() { value.abs() } else { 0.0 }];
            let allowed = within(DType::F16, &expected, share, &magnitude);
            assert_eq!(fits(&allowed, DType::F16, observed), right, "{value} {share} {observed}");
        }
    }

    #[test]
    fn where_overflow_saturates_infinity_is_right_only_for_infinity() {
        let infinity = f64::INFINITY;
        for (value, observed, right) in [
            (65504.0, infinity, false),
            (65504.0, 65504.0, true),
            (-65504.0, -infinity, false),
            (infinity, infinity, true),
            (infinity, 65504.0, false),
        ] {
            let expected = real(&[value]);
            let magnitude = [if value.is_finite() { value.abs() } else { 0.0 }];
            let mut allowed = within(DType::F16, &expected, 0.01, &magnitude);
            if let Form::Bound { overflow, .. } = &mut allowed.form {
                *overflow = Overflow::Saturates;
            }
            assert_eq!(fits(&allowed, DType::F16, observed), right, "{value} {observed}");
        }
    }

    #[test]
    fn nan_is_right_exactly_where_it_is_expected() {
        let (nan, one) = (real(&[f64::NAN]), real(&[1.0]));
        let (nan, one) =
            (within(DType::F32, &nan, 0.0, &[0.0]), within(DType::F32, &one, 0.0, &[0.0]));
        assert!(fits(&nan, DType::F32, f64::NAN) && !fits(&nan, DType::F32, 1.0));
        assert!(fits(&one, DType::F32, 1.0) && !fits(&one, DType::F32, f64::NAN));
    }

    #[test]
    fn bits_are_equal_or_both_nan() {
        let expected = Expected::Bits(vec![0x7fc0_0000, 0x8000_0000]);
        let allowed =
            Allowed { class: "all", dtype: DType::F32, expected: &expected, form: Form::Bits };
        assert!(allowed.fits(0, 0x7fff_ffff) && !allowed.fits(0, 0x7f80_0000));
        assert!(allowed.fits(1, 0x8000_0000) && !allowed.fits(1, 0));
        let rounded = real(&[1.0 + 1e-9]);
        let allowed =
            Allowed { class: "all", dtype: DType::F32, expected: &rounded, form: Form::Bits };
        assert!(allowed.fits(0, 0x3f80_0000) && !allowed.fits(0, 0x3f80_0001));
    }
}
