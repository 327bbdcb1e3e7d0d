//! How far NaN may spread. The reference says where a NaN input reaches by the equations; a kernel
//! that multiplies by masked zeros may spread it further, as far as the contract's `nan.reach` says.

use crate::prepare::Prepared;
use contracts::case::{Content, Fill};
use contracts::dtype::DType;
use contracts::format::Reach;
use contracts::geometry::TensorGeometry;
use reference::Expected;

/// Rows a chunk has where no variant `C` says otherwise.
const CHUNK_ROWS: u64 = 64;

/// Elements that may be NaN although the reference is not.
#[derive(Clone, Debug, Default)]
pub struct NanReach {
    /// By flat index; empty when there are none.
    allowed: Vec<bool>,
}

impl NanReach {
    /// No element.
    pub fn none() -> NanReach {
        NanReach::default()
    }

    /// As [`NanReach::of`] for two runs whose chunks may begin at different rows: within a segment and
    /// head, whatever some chunk would have together with a NaN row after it.
    pub fn of_any_chunks(
        prepared: &Prepared<'_>,
        tensor: &TensorGeometry,
        expected: &Expected,
        policy: Reach,
    ) -> NanReach {
        if policy != Reach::Chunk {
            return NanReach::of(prepared, tensor, expected, policy);
        }
        let (segments, chunk) = (segments(prepared, tensor), chunk_rows(prepared));
        let is_nan = |flat: usize| is_nan(tensor, expected, flat);
        NanReach { allowed: any_chunks(&tensor.shape, &segments, chunk, &is_nan) }
    }

    /// The elements a policy allows for a tensor in a case.
    pub fn of(
        prepared: &Prepared<'_>,
        tensor: &TensorGeometry,
        expected: &Expected,
        policy: Reach,
    ) -> NanReach {
        let count = expected.count();
        let is_nan = |flat: usize| is_nan(tensor, expected, flat);
        match policy {
            Reach::Exact => NanReach::none(),
            Reach::Row => {
                // One element a row is its own row: what NaN did to others is none of its business.
                let row =
                    tensor.shape.iter().skip(1).next_back().copied().unwrap_or(1).max(1) as usize;
                let mut allowed = vec![false; count];
                for start in (0..count).step_by(row) {
                    let elements = start..(start + row).min(count);
                    let any = elements.clone().any(is_nan);
                    allowed[elements].fill(any);
                }
                NanReach { allowed }
            }
            Reach::Chunk => {
                let (segments, chunk) = (segments(prepared, tensor), chunk_rows(prepared));
                NanReach { allowed: chunks(&tensor.shape, &segments, chunk, &is_nan) }
            }
        }
    }

    /// Whether the element may be NaN.
    pub fn allows(&self, flat: u64) -> bool {
        self.allowed.get(flat as usize).copied().unwrap_or(false)
    }
}

fn is_nan(tensor: &TensorGeometry, expected: &Expected, flat: usize) -> bool {
    match expected {
        Expected::Bits(bits) => tensor.dtype.is_nan(bits[flat]),
        Expected::Real { value, .. } => value[flat].is_nan(),
    }
}

fn chunk_rows(prepared: &Prepared<'_>) -> u64 {
    let variant = prepared.case.variants.get("C").and_then(|word| word.parse().ok());
    variant.unwrap_or(CHUNK_ROWS)
}

/// Lengths of the segments along a tensor's first axis; one segment when the axis has none.
fn segments(prepared: &Prepared<'_>, tensor: &TensorGeometry) -> Vec<u64> {
    let contract = prepared.subject.contract;
    let axis = contract.tensors.get(&tensor.name).and_then(|declared| declared.shape.first());
    let list = axis
        .and_then(|axis| contract.dims.get(&axis.to_string()))
        .and_then(|dim| dim.segments.as_ref())
        .and_then(|list| prepared.case.lists.get(list));
    match list {
        Some(lengths) => lengths.iter().map(|length| (*length).max(0) as u64).collect(),
        None => vec![tensor.shape.first().copied().unwrap_or(0)],
    }
}

/// For each chunk of each segment and each index of the second axis: every row up to the last one
/// that holds a NaN. Chunks start at the segment's first row.
fn chunks(
    shape: &[u64],
    segments: &[u64],
    chunk: u64,
    is_nan: &dyn Fn(usize) -> bool,
) -> Vec<bool> {
    back_from_nan(shape, segments, is_nan, &|place| place - place % chunk.max(1) as usize)
}

/// The same wherever chunks may begin: every row less than a chunk's length before a NaN row.
fn any_chunks(
    shape: &[u64],
    segments: &[u64],
    chunk: u64,
    is_nan: &dyn Fn(usize) -> bool,
) -> Vec<bool> {
    back_from_nan(shape, segments, is_nan, &|place| (place + 1).saturating_sub(chunk as usize))
}

/// In each segment, for each index of the second axis: from every row that holds a NaN back to
/// `first_of` it, rows counted from the segment's first.
fn back_from_nan(
    shape: &[u64],
    segments: &[u64],
    is_nan: &dyn Fn(usize) -> bool,
    first_of: &dyn Fn(usize) -> usize,
) -> Vec<bool> {
    let heads = shape.get(1).copied().unwrap_or(1) as usize;
    let width = shape.iter().skip(2).product::<u64>() as usize;
    let rows = shape.first().copied().unwrap_or(0) as usize;
    let mut allowed = vec![false; rows * heads * width];
    let mut start = 0;
    for length in segments {
        let end = (start + *length as usize).min(rows);
        for head in 0..heads {
            let elements =
                |row: usize| (row * heads + head) * width..(row * heads + head + 1) * width;
            // From the last row back: what a later row reached needs no second look.
            let mut reached = end;
            for row in (start..end).rev() {
                if elements(row).any(is_nan) {
                    let first = start + first_of(row - start);
                    for row in first..reached.min(row + 1) {
                        allowed[elements(row)].fill(true);
                    }
                    reached = reached.min(first);
                }
            }
        }
        start = end;
    }
    allowed
}

/// Whether a live element of a tensor NaN may be planted in is NaN.
pub fn has_nan_input(prepared: &Prepared<'_>) -> bool {
    let Some(policy) = &prepared.subject.contract.nan else { return false };
    policy.into.iter().any(|name| {
        let Some((_, logical)) = prepared.inputs.tensors.iter().find(|(tensor, _)| tensor == name)
        else {
            return false;
        };
        let Some(place) = prepared.geometry.tensors.iter().position(|t| t.name == *name) else {
            return false;
        };
        prepared.live[place]
            .iter()
            .any(|run| any_nan(&logical.content, logical.dtype, run.flat, run.flat + run.count))
    })
}

fn any_nan(content: &Content, dtype: DType, from: u64, to: u64) -> bool {
    if !dtype.is_float() {
        return false;
    }
    match content {
        Content::Derived | Content::Output => false,
        Content::Dense(bytes) => {
            let size = dtype.size_bytes();
            let bytes = &bytes[(from * size) as usize..(to * size) as usize];
            match dtype {
                DType::F32 => bytes.as_chunks::<4>().0.iter().fold(false, |any, raw| {
                    any | (u32::from_le_bytes(*raw) & 0x7fff_ffff > 0x7f80_0000)
                }),
                _ => {
                    bytes.chunks_exact(size as usize).any(|raw| dtype.is_nan(dtype.from_bytes(raw)))
                }
            }
        }
        Content::Sparse { fill, at } => {
            let overridden = at.range(from..to).any(|(_, bits)| dtype.is_nan(*bits));
            overridden
                || match fill {
                    Fill::Bits(bits) => dtype.is_nan(*bits),
                    Fill::Hashed { .. } => {
                        (from..to).any(|flat| dtype.is_nan(content.bits(dtype, flat)))
                    }
                }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_reaches_back_to_its_own_start_in_its_own_head() {
        // Rows 0..5 and 5..8, chunks of 2, two heads of width 3; NaN at row 3 head 1, row 6 head 0.
        let nan = [(3 * 2 + 1) * 3 + 2, (6 * 2) * 3];
        let allowed = chunks(&[8, 2, 3], &[5, 3], 2, &|flat| nan.contains(&flat));
        let rows_of = |head: usize| -> Vec<usize> {
            (0..8).filter(|row| allowed[(row * 2 + head) * 3]).collect()
        };
        assert_eq!(rows_of(1), [2, 3]);
        assert_eq!(rows_of(0), [5, 6]);
        assert!(allowed[(2 * 2 + 1) * 3..(2 * 2 + 2) * 3].iter().all(|one| *one));
    }

    #[test]
    fn chunks_that_may_begin_anywhere_reach_back_less_than_their_length() {
        // One head of width 1; segments of 6 and 2 rows, chunks of 3, NaN at rows 4 and 7.
        let allowed = any_chunks(&[8, 1, 1], &[6, 2], 3, &|flat| flat == 4 || flat == 7);
        assert_eq!(allowed, [false, false, true, true, true, false, true, true]);
        let by_chunks = chunks(&[8, 1, 1], &[6, 2], 3, &|flat| flat == 4 || flat == 7);
        assert_eq!(by_chunks, [false, false, false, true, true, false, true, true]);
    }

    #[test]
    fn rows_past_the_segments_are_out_of_reach() {
        let allowed = chunks(&[4, 1, 1], &[2], 64, &|flat| flat >= 1);
        assert_eq!(allowed, [true, true, false, false]);
    }
}
