//! `append_dead`: longer rows change nothing. The logical case stays; only the unread elements after
//! each row become more.

use super::comparison::Comparison;
use super::slice::skeleton;
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::oracle::each;
use crate::verdict::Verdict;
use contracts::case::{Case, CaseTensor, Layout, StoreForm};
use contracts::expr::Expr;
use contracts::format::{LayoutKind, OverAxis};

/// Alignment units appended after each row.
const APPENDED: u64 = 3;

pub(super) fn append_dead(
    related: &mut Related<'_, '_>,
    over: &OverAxis,
) -> Result<Option<Verdict>, ToolError> {
    let Some(case) = longer_rows(related, over) else { return Ok(None) };
    let whole = related.whole;
    let what = format!("rows along {} with more unread elements", over.axis);
    let (part, observed) = match related.run(whole.subject, &case, &what)? {
        SubRun::Ran(prepared, observed) => (prepared, observed),
        SubRun::Ended(verdict) => return Ok(Some(verdict)),
    };
    for place in whole.written() {
        let tensor = &whole.geometry.tensors[place];
        let note = format!("expected is the case as it is, observed {what}");
        let compare = related.relation.compare;
        let mut comparison =
            Comparison::of(related.clause, (whole, related.observed), place, compare, None, note)?;
        each(&part.live[place], tensor.dtype, &observed.tensors[place], |flat, bits| {
            comparison.element(flat, bits);
        });
        let (compared, found) = comparison.finish();
        related.compared += compared;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The case with more padding on every tensor whose rows run along the axis and may be padded; `None`
/// when there is no such tensor with two rows.
fn longer_rows(related: &Related<'_, '_>, over: &OverAxis) -> Option<Case> {
    let whole = related.whole;
    let contract = whole.subject.contract;
    let mut changed = false;
    let mut case = Case {
        stores: whole.case.stores.keys().map(|name| (name.clone(), StoreForm::Separate)).collect(),
        ..skeleton(whole.case)
    };
    for (name, tensor) in &whole.case.tensors {
        let declared = contract.tensors.get(name)?;
        let along = |extent: &Expr| matches!(extent, Expr::Name(dim) if **dim == *over.axis);
        let runs_along = declared.shape.iter().skip(1).any(along);
        let may_pad = declared.layout.contains(&LayoutKind::RowPadded);
        let geometry = whole.geometry.tensor(name);
        let unit = geometry.map_or(1, |g| (g.align_bytes / g.dtype.size_bytes()).max(1));
        let layout = match tensor.layout {
            Layout::Wide => Layout::Wide,
            old if runs_along && may_pad => {
                changed |= geometry.is_some_and(|g| g.shape.first().is_some_and(|rows| *rows > 1));
                let before = if let Layout::RowPadded(pad) = old { pad } else { 0 };
                // From dense rows, up to a whole unit: the pitch must stay aligned.
                let row = geometry.map_or(0, |g| g.row_count());
                let aligned = (row + before).next_multiple_of(unit) - row;
                Layout::RowPadded(aligned + APPENDED * unit)
            }
            old => old,
        };
        case.tensors.insert(name.clone(), CaseTensor { layout, content: tensor.content.clone() });
    }
    changed.then_some(case)
}
