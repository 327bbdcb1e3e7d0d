//! Cuts a case along its axes: kept ranges of dims, the lists over them, and each tensor's elements.
//! Layouts become dense and stores separate: layouts are examined by the case as a whole.

use crate::check::ToolError;
use crate::generate::complete;
use crate::prepare::{LiveRun, Prepared};
use contracts::case::{Case, CaseTensor, Content, Decisions, Fill, Layout, StoreForm};
use contracts::dtype::DType;
use contracts::expr::Expr;
use contracts::format::{Contract, LayoutKind};
use std::collections::BTreeMap;
use std::ops::Range;

/// Most elements a hashed fill is written out for.
const MOST_MATERIALISED: u64 = 1 << 20;

/// What is kept of one dim, ascending ranges of its indices.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) dim: String,
    pub(super) ranges: Vec<Range<u64>>,
}

impl Kept {
    pub(super) fn len(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// The whole's index of a kept index.
    pub(super) fn source(&self, kept: u64) -> Option<u64> {
        let mut rest = kept;
        for range in &self.ranges {
            let len = range.end - range.start;
            if rest < len {
                return Some(range.start + rest);
            }
            rest -= len;
        }
        None
    }
}

/// Where each segment of a list starts and ends along its axis.
pub(super) fn segments(lengths: &[i64]) -> Vec<Range<u64>> {
    let mut start = 0;
    let next = |length: &i64| {
        let range = start..start + (*length).max(0) as u64;
        start = range.end;
        range
    };
    lengths.iter().map(next).collect()
}

/// Dims that are the segments of a list.
pub(super) fn segment_dims<'a>(
    contract: &'a Contract,
    list: &'a str,
) -> impl Iterator<Item = &'a String> {
    let of_list = move |dim: &contracts::format::Dim| dim.segments.as_deref() == Some(list);
    contract.dims.iter().filter(move |(_, dim)| of_list(dim)).map(|(name, _)| name)
}

/// The kept range of each axis of a tensor, `None` where an axis is kept whole.
pub(super) fn kept_axes<'k>(
    contract: &Contract,
    tensor: &str,
    kept: &'k [Kept],
) -> Vec<Option<&'k Kept>> {
    let Some(declared) = contract.tensors.get(tensor) else { return Vec::new() };
    let of_axis = |extent: &Expr| match extent {
        Expr::Name(name) => kept.iter().find(|kept| *kept.dim == **name),
        _ => None,
    };
    declared.shape.iter().map(of_axis).collect()
}

/// The case with only these indices of these dims. Lists over a dim lose the same indices; `lists`
/// replaces others.
///
/// # Errors
/// When what follows from the kept decisions has no value.
pub(super) fn sub_case(
    whole: &Prepared<'_>,
    kept: &[Kept],
    lists: &[(&str, Vec<i64>)],
) -> Result<Case, ToolError> {
    let contract = whole.subject.contract;
    let mut case = Case {
        found: None,
        tensors: Decisions::with_capacity(whole.case.tensors.len()),
        stores: whole.case.stores.keys().map(|name| (name.clone(), StoreForm::Separate)).collect(),
        ..skeleton(whole.case)
    };
    for one in kept {
        if let Some(size) = case.dims.get_mut(&one.dim) {
            *size = one.len() as i64;
        }
        for (name, list) in &mut case.lists {
            if contract.lists.get(name).is_some_and(|declared| declared.each == one.dim) {
                let items = one.ranges.iter().flat_map(|range| range.clone());
                *list = items.filter_map(|index| list.get(index as usize).copied()).collect();
            }
        }
    }
    for (name, items) in lists {
        if let Some(list) = case.lists.get_mut(*name) {
            list.clone_from(items);
        }
    }
    for (name, tensor) in &whole.case.tensors {
        let axes = kept_axes(contract, name, kept);
        let geometry = whole.geometry.tensor(name);
        let content = match geometry {
            Some(geometry) if axes.iter().any(Option::is_some) => {
                sliced(&tensor.content, geometry.dtype, &geometry.shape, &axes)
            }
            _ => tensor.content.clone(),
        };
        case.tensors.insert(
            name.clone(),
            CaseTensor { layout: plain(contract, name, tensor.layout), content },
        );
    }
    complete(contract, &mut case).map_err(ToolError::Case)?;
    Ok(case)
}

/// Everything but contents.
pub(crate) fn skeleton(case: &Case) -> Case {
    Case {
        contract: case.contract.clone(),
        version: case.version,
        found: None,
        dtypes: case.dtypes.clone(),
        options: case.options.clone(),
        variants: case.variants.clone(),
        dims: case.dims.clone(),
        lists: case.lists.clone(),
        scalars: case.scalars.clone(),
        stores: case.stores.clone(),
        poison: case.poison,
        schedule: case.schedule,
        tensors: Decisions::new(),
    }
}

/// Dense, where the contract lets callers be dense.
pub(crate) fn plain(contract: &Contract, tensor: &str, layout: Layout) -> Layout {
    let layouts = contract.tensors.get(tensor).map_or(&[][..], |declared| &declared.layout);
    if layouts.is_empty() || layouts.contains(&LayoutKind::Dense) { Layout::Dense } else { layout }
}

/// The kept elements of contents of a shape, row-major.
pub(super) fn sliced(
    content: &Content,
    dtype: DType,
    shape: &[u64],
    axes: &[Option<&Kept>],
) -> Content {
    let extents: Vec<u64> = (shape.iter().enumerate())
        .map(|(axis, extent)| axes.get(axis).copied().flatten().map_or(*extent, Kept::len))
        .collect();
    let count: u64 = extents.iter().product();
    match content {
        Content::Derived | Content::Output => content.clone(),
        Content::Sparse { fill: Fill::Bits(bits), at } => {
            let mut kept = BTreeMap::new();
            for (flat, value) in at {
                if let Some(target) = target_of(*flat, shape, &extents, axes) {
                    kept.insert(target, *value);
                }
            }
            Content::Sparse { fill: Fill::Bits(*bits), at: kept }
        }
        // A hashed fill is a function of the whole's index: kept elements are written out.
        Content::Sparse { .. } if count > MOST_MATERIALISED => content.clone(),
        Content::Dense(_) | Content::Sparse { .. } => {
            let mut bytes = Vec::with_capacity((count * dtype.size_bytes()) as usize);
            push_sliced(content, dtype, shape, axes, 0, &mut bytes);
            Content::Dense(bytes)
        }
    }
}

/// Appends the kept elements below one index prefix whose first element is at `base`.
fn push_sliced(
    content: &Content,
    dtype: DType,
    shape: &[u64],
    axes: &[Option<&Kept>],
    base: u64,
    bytes: &mut Vec<u8>,
) {
    let first_kept = axes.iter().position(Option::is_some);
    let Some(axis) = first_kept.filter(|axis| *axis < shape.len()) else {
        push_range(content, dtype, base..base + shape.iter().product::<u64>(), bytes);
        return;
    };
    let inner: u64 = shape[axis + 1..].iter().product();
    let outer: u64 = shape[..axis].iter().product();
    let Some(kept) = axes[axis] else { return };
    let deeper = axes[axis + 1..].iter().any(Option::is_some);
    for block in 0..outer {
        let start = base + block * shape[axis] * inner;
        for range in &kept.ranges {
            if deeper {
                for index in range.clone() {
                    let below = start + index * inner;
                    push_sliced(
                        content,
                        dtype,
                        &shape[axis + 1..],
                        &axes[axis + 1..],
                        below,
                        bytes,
                    );
                }
            } else {
                push_range(
                    content,
                    dtype,
                    start + range.start * inner..start + range.end * inner,
                    bytes,
                );
            }
        }
    }
}

fn push_range(content: &Content, dtype: DType, flats: Range<u64>, bytes: &mut Vec<u8>) {
    match content {
        Content::Dense(all) => {
            let size = dtype.size_bytes();
            bytes.extend_from_slice(
                &all[(flats.start * size) as usize..(flats.end * size) as usize],
            );
        }
        other => flats.for_each(|flat| dtype.push_bytes(other.bits(dtype, flat), bytes)),
    }
}

/// The kept flat index of one of the whole's.
fn target_of(flat: u64, shape: &[u64], extents: &[u64], axes: &[Option<&Kept>]) -> Option<u64> {
    let mut rest = flat;
    let mut coordinates = vec![0; shape.len()];
    for (axis, extent) in shape.iter().enumerate().rev() {
        coordinates[axis] = rest % extent;
        rest /= extent;
    }
    let mut target = 0;
    for (axis, coordinate) in coordinates.iter().enumerate() {
        let here = match axes.get(axis).copied().flatten() {
            None => *coordinate,
            Some(kept) => {
                let mut before = 0;
                let mut found = None;
                for range in &kept.ranges {
                    if range.contains(coordinate) {
                        found = Some(before + coordinate - range.start);
                        break;
                    }
                    before += range.end - range.start;
                }
                found?
            }
        };
        target = target * extents[axis] + here;
    }
    Some(target)
}

/// The whole's flat index of a kept flat index.
pub(super) fn source_of(
    flat: u64,
    shape: &[u64],
    extents: &[u64],
    axes: &[Option<&Kept>],
) -> Option<u64> {
    let mut rest = flat;
    let mut source = 0;
    let mut stride = 1;
    for axis in (0..shape.len()).rev() {
        let index = rest % extents[axis];
        rest /= extents[axis];
        let index = match axes.get(axis).copied().flatten() {
            Some(kept) => kept.source(index)?,
            None => index,
        };
        source += index * stride;
        stride *= shape[axis];
    }
    Some(source)
}

/// Contents with the live elements of a run laid over them, every element written out.
pub(super) fn overlaid(
    content: &Content,
    dtype: DType,
    count: u64,
    runs: &[LiveRun],
    live: &[u8],
) -> Content {
    let mut bytes = Vec::with_capacity((count * dtype.size_bytes()) as usize);
    push_range(content, dtype, 0..count, &mut bytes);
    let size = dtype.size_bytes() as usize;
    for run in runs {
        let (to, from) = (run.flat as usize * size, run.before as usize * size);
        let len = run.count as usize * size;
        bytes[to..to + len].copy_from_slice(&live[from..from + len]);
    }
    Content::Dense(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(ranges: &[(u64, u64)]) -> Kept {
        Kept {
            dim: "N".to_owned(),
            ranges: ranges.iter().map(|(start, end)| *start..*end).collect(),
        }
    }

    fn elements(content: &Content, count: u64) -> Vec<u64> {
        (0..count).map(|flat| content.bits(DType::E4M3, flat)).collect()
    }

    #[test]
    fn slices_of_any_axes_keep_the_row_major_order() {
        // [2, 3, 2]: element value = flat index.
        let dense = Content::Dense((0..12).collect());
        let at = (0..12).map(|flat| (flat, flat)).collect();
        let sparse = Content::Sparse { fill: Fill::Bits(0), at };
        let (first, middle) = (kept(&[(1, 2)]), kept(&[(0, 1), (2, 3)]));
        for (axes, expected) in [
            (vec![Some(&first), None, None], vec![6, 7, 8, 9, 10, 11]),
            (vec![None, Some(&middle), None], vec![0, 1, 4, 5, 6, 7, 10, 11]),
            (vec![Some(&first), Some(&middle), None], vec![6, 7, 10, 11]),
        ] {
            let count = expected.len() as u64;
            for content in [&dense, &sparse] {
                assert_eq!(
                    elements(&sliced(content, DType::E4M3, &[2, 3, 2], &axes), count),
                    expected
                );
            }
            let extents: Vec<u64> = ([2, 3, 2].iter().zip(&axes))
                .map(|(extent, axis)| axis.map_or(*extent, Kept::len))
                .collect();
            let sources: Vec<u64> = (0..count)
                .filter_map(|flat| source_of(flat, &[2, 3, 2], &extents, &axes))
                .collect();
            assert_eq!(sources, expected);
        }
    }

    #[test]
    fn hashed_fills_keep_the_values_of_the_whole() {
        let hashed =
            Content::Sparse { fill: Fill::Hashed { seed: 9 }, at: BTreeMap::from([(5, 0x7f)]) };
        let part = sliced(&hashed, DType::E4M3, &[4, 2], &[Some(&kept(&[(2, 3)])), None]);
        assert_eq!(elements(&part, 2), [hashed.bits(DType::E4M3, 4), 0x7f]);
    }

    #[test]
    fn live_elements_lie_over_the_rest() {
        let runs = [LiveRun { flat: 1, count: 2, offset: 0, before: 0 }];
        let content = overlaid(&Content::Dense(vec![1, 2, 3, 4]), DType::E4M3, 4, &runs, &[8, 9]);
        assert_eq!(content, Content::Dense(vec![1, 8, 9, 4]));
    }
}
