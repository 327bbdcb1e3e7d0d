//! `copies`: row n of one output holds the bits of the slot that a list names for n, in the case's own
//! run. Nothing is run again.

use super::Related;
use super::comparison::Comparison;
use crate::check::ToolError;
use crate::verdict::Verdict;
use contracts::format::Copies;

pub(super) fn copies(
    related: &mut Related<'_, '_>,
    copies: &Copies,
) -> Result<Option<Verdict>, ToolError> {
    let (whole, observed) = (related.whole, related.observed);
    let place = |name: &str| whole.written().find(|p| whole.geometry.tensors[*p].name == *name);
    let (Some(pool), Some(rows)) = (place(&copies.of), place(&copies.into)) else {
        return Ok(None);
    };
    let Some(slots) = whole.case.lists.get(&copies.by) else { return Ok(None) };
    let count = whole.geometry.tensors[pool].row_count();
    let note = format!("expected is {} of the same run, observed {}", copies.of, copies.into);
    let run = (whole, observed);
    let compare = related.relation.compare;
    let mut comparison = Comparison::of(related.clause, run, pool, compare, None, note)?;
    for (row, slot) in (0u64..).zip(slots) {
        let Ok(slot) = u64::try_from(*slot) else { continue };
        for element in 0..count {
            if let Some(bits) = observed.bits(whole, rows, row * count + element) {
                comparison.element(slot * count + element, bits);
            }
        }
    }
    let (compared, found) = comparison.finish();
    related.compared += compared;
    Ok(found)
}
