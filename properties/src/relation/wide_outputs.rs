//! The adapter `wide_outputs`: the same tensors with f32 outputs give, rounded once, the narrow outputs
//! bit for bit. So a narrow twin rounds nowhere but where it stores. Outputs of f32 are the same.

use super::comparison::Comparison;
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::generate::complete;
use crate::oracle::each;
use crate::verdict::Verdict;
use contracts::DType;
use contracts::case::Case;
use contracts::format::{Access, Contract, Equals};

pub(super) fn wide_outputs(
    related: &mut Related<'_, '_>,
    _: &Equals,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let mut case = Case { found: None, ..whole.case.clone() };
    for (symbol, dtype) in &mut case.dtypes {
        if *dtype != DType::F32 && is_of_outputs(whole.subject.contract, whole.case, symbol) {
            *dtype = DType::F32;
        }
    }
    if case.dtypes == whole.case.dtypes {
        return Ok(None);
    }
    complete(whole.subject.contract, &mut case).map_err(ToolError::Case)?;
    let what = "the same tensors with f32 outputs";
    let (part, observed) = match related.run(whole.subject, &case, what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    for place in part.written() {
        let (wide, narrow) = (&part.geometry.tensors[place], &whole.geometry.tensors[place]);
        let note = format!("expected is the case as it is, observed {what}, rounded");
        let (run, compare) = ((whole, related.observed), related.relation.compare);
        let mut comparison = Comparison::of(related.clause, run, place, compare, None, note)?;
        each(&part.live[place], wide.dtype, &observed.tensors[place], |flat, bits| {
            let rounded = if wide.dtype == narrow.dtype {
                bits
            } else {
                narrow.dtype.round_from_f64(wide.dtype.to_f64(bits))
            };
            comparison.element(flat, rounded);
        });
        let (compared, found) = comparison.finish();
        related.compared += compared;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Whether a dtype symbol is that of outputs alone.
fn is_of_outputs(contract: &Contract, case: &Case, symbol: &str) -> bool {
    let mut of_symbol = contract.tensors.values().filter(|tensor| tensor.dtype.0 == symbol);
    let is_output = |tensor: &contracts::format::Tensor| {
        tensor.access.resolve(&case.options) == Some(&Access::Write)
    };
    contract.tensors.values().any(|tensor| tensor.dtype.0 == symbol) && of_symbol.all(is_output)
}
