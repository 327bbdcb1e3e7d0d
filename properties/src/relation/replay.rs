//! `replay`: the launches planned for one call, run again with other lengths in the same memory, give
//! what the reference says of those lengths. A captured graph does just this, so whatever the first
//! run left behind (a bound, a length, a table) and the second run trusts shows.

use super::slice::overlaid;
use super::{Related, SubRun};
use crate::check::ToolError;
use crate::verdict::Verdict;
use contracts::case::Case;
use contracts::format::Carried;

pub(super) fn replay(
    related: &mut Related<'_, '_>,
    carried: &Carried,
) -> Result<Option<Verdict>, ToolError> {
    let whole = related.whole;
    let Some(lengths) = whole.case.lists.get(&carried.list) else { return Ok(None) };
    let Ok(plan) = whole.plan() else { return Ok(None) };
    for (index, other) in others(lengths, room(related, &carried.list)).into_iter().enumerate() {
        let mut case = Case { found: None, ..whole.case.clone() };
        case.lists.insert(carried.list.clone(), other.clone());
        for name in &carried.carry {
            let place = whole.geometry.tensors.iter().position(|tensor| tensor.name == *name);
            let (Some(place), Some(held)) = (place, case.tensors.get_mut(name)) else { continue };
            let tensor = &whole.geometry.tensors[place];
            let (runs, bytes) = (&whole.live[place], &related.observed.tensors[place]);
            held.content = overlaid(&held.content, tensor.dtype, tensor.count(), runs, bytes);
        }
        let legal = contracts::Geometry::of(whole.subject.contract, &case);
        let same_memory = legal.is_ok_and(|geometry| geometry.buffers == whole.geometry.buffers);
        if !same_memory {
            continue;
        }
        let what = format!("the planned launches again with {} {other:?}", carried.list);
        match related.judge(&case, Some(&plan), &what)? {
            SubRun::Ran(..) => related.compared += 1 + index as u64,
            SubRun::Ended(verdict) => return Ok(Some(verdict)),
        }
    }
    Ok(None)
}

/// Rows past the last segment of an axis over the list.
fn room(related: &Related<'_, '_>, list: &str) -> i64 {
    let case = related.whole.case;
    let used: i64 = case.lists.get(list).map_or(0, |lengths| lengths.iter().sum());
    let dims = super::slice::segment_dims(related.whole.subject.contract, list);
    dims.filter_map(|dim| case.dims.get(dim)).map(|rows| rows - used).min().unwrap_or(0)
}

/// One segment shorter by a row, and one longer where there is room.
fn others(lengths: &[i64], room: i64) -> Vec<Vec<i64>> {
    let mut all = Vec::new();
    if let Some(longest) = (0..lengths.len()).max_by_key(|index| lengths[*index]) {
        if lengths[longest] > 0 {
            let mut shorter = lengths.to_vec();
            shorter[longest] -= 1;
            all.push(shorter);
        }
        if room > 0 {
            let mut longer = lengths.to_vec();
            longer[longest] += 1;
            all.push(longer);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_differ_by_one_row_and_stay_in_the_memory() {
        assert_eq!(others(&[3, 0, 5], 0), [vec![3, 0, 4]]);
        assert_eq!(others(&[3, 0, 5], 2), [vec![3, 0, 4], vec![3, 0, 6]]);
        assert_eq!(others(&[0], 0), Vec::<Vec<i64>>::new());
        assert_eq!(others(&[], 4), Vec::<Vec<i64>>::new());
    }
}
