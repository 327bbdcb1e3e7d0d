//! Which old index each index of an edited axis came from, and contents sliced by such maps.
//! Costs the elements kept (overrides, for sparse contents), never the size of a virtual table.

use contracts::case::{Content, Fill};
use contracts::dtype::DType;
use std::collections::{BTreeMap, HashMap};

/// Hashed contents up to this many elements are written out when an edit would change the hash.
const WRITE_OUT_ELEMENTS: u64 = 1 << 16;

/// The edited indices of one axis; all others keep their place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AxisMap {
    /// Extent after the edit.
    pub(super) len: u64,
    old_len: u64,
    moved: BTreeMap<u64, u64>,
}

impl AxisMap {
    /// The first `len` indices stay.
    pub(super) fn leading(old_len: u64, len: u64) -> AxisMap {
        AxisMap { len, old_len, moved: BTreeMap::new() }
    }

    /// The kept old indices, in their new order.
    pub(super) fn kept(old_len: u64, kept: &[u64]) -> AxisMap {
        let moved = kept.iter().enumerate().map(|(new, old)| (new as u64, *old));
        let moved = moved.filter(|(new, old)| new != old).collect();
        AxisMap { len: kept.len() as u64, old_len, moved }
    }

    /// A few indices come from elsewhere: `(new, old)`; the rest stay.
    pub(super) fn moving(
        old_len: u64,
        len: u64,
        moves: impl IntoIterator<Item = (u64, u64)>,
    ) -> AxisMap {
        let moved = moves.into_iter().filter(|(new, old)| new != old && *new < len).collect();
        AxisMap { len, old_len, moved }
    }

    /// The old index an index came from; `None` when it is new.
    pub(super) fn source(&self, new: u64) -> Option<u64> {
        let old = self.moved.get(&new).copied().unwrap_or(new);
        (old < self.old_len).then_some(old)
    }

    fn is_leading(&self) -> bool {
        self.moved.is_empty()
    }

    fn is_same(&self) -> bool {
        self.is_leading() && self.len == self.old_len
    }

    fn destinations(&self) -> Destinations<'_> {
        let moved = self.moved.iter().map(|(new, old)| (*old, *new)).collect();
        Destinations { map: self, moved }
    }
}

/// The inverse of a map.
struct Destinations<'a> {
    map: &'a AxisMap,
    moved: HashMap<u64, u64>,
}

impl Destinations<'_> {
    fn of(&self, old: u64) -> Option<u64> {
        if let Some(new) = self.moved.get(&old) {
            return Some(*new);
        }
        (old < self.map.len && !self.map.moved.contains_key(&old)).then_some(old)
    }
}

/// One tensor's contents after its axes were edited. New elements hold `blank`, or the fill of
/// sparse contents.
pub(super) fn slice(content: &Content, dtype: DType, maps: &[AxisMap], blank: u64) -> Content {
    if maps.iter().all(AxisMap::is_same) {
        return content.clone();
    }
    match content {
        Content::Derived | Content::Output => content.clone(),
        Content::Dense(bytes) => Content::Dense(slice_dense(bytes, dtype, maps, blank)),
        Content::Sparse { fill: Fill::Hashed { seed }, at } => {
            let keeps_flat_indices =
                maps.iter().all(AxisMap::is_leading) && maps.iter().skip(1).all(AxisMap::is_same);
            let count = count(maps);
            if keeps_flat_indices || count > WRITE_OUT_ELEMENTS {
                return Content::Sparse {
                    fill: Fill::Hashed { seed: *seed },
                    at: slice_overrides(at, maps),
                };
            }
            let mut bytes = Vec::with_capacity((count * dtype.size_bytes()) as usize);
            for flat in 0..count {
                let bits = source_flat(flat, maps).map_or(blank, |old| content.bits(dtype, old));
                dtype.push_bytes(bits, &mut bytes);
            }
            Content::Dense(bytes)
        }
        Content::Sparse { fill, at } => {
            Content::Sparse { fill: *fill, at: slice_overrides(at, maps) }
        }
    }
}

fn count(maps: &[AxisMap]) -> u64 {
    maps.iter().fold(1, |count: u64, map| count.saturating_mul(map.len))
}

fn source_flat(flat: u64, maps: &[AxisMap]) -> Option<u64> {
    let (mut rest, mut old_flat, mut scale) = (flat, 0, 1);
    for map in maps.iter().rev() {
        old_flat += map.source(rest % map.len)? * scale;
        rest /= map.len;
        scale *= map.old_len;
    }
    Some(old_flat)
}

fn slice_overrides(at: &BTreeMap<u64, u64>, maps: &[AxisMap]) -> BTreeMap<u64, u64> {
    let inverse: Vec<_> = maps.iter().map(AxisMap::destinations).collect();
    at.iter()
        .filter_map(|(flat, bits)| {
            let (mut rest, mut new_flat, mut scale) = (*flat, 0, 1);
            for destinations in inverse.iter().rev() {
                let map = destinations.map;
                new_flat += destinations.of(rest % map.old_len)? * scale;
                rest /= map.old_len;
                scale *= map.len;
            }
            Some((new_flat, *bits))
        })
        .collect()
}

fn slice_dense(bytes: &[u8], dtype: DType, maps: &[AxisMap], blank: u64) -> Vec<u8> {
    let size = dtype.size_bytes() as usize;
    let total = count(maps);
    let mut out = Vec::with_capacity(total as usize * size);
    let Some((inner, outer)) = maps.split_last() else { return bytes.to_vec() };
    if total == 0 {
        return out;
    }
    for row in 0..count(outer) {
        let source = source_flat(row, outer).map(|old| (old * inner.old_len) as usize);
        let mut pushed = 0;
        if let Some(start) = source.filter(|_| inner.is_leading()) {
            pushed = inner.len.min(inner.old_len);
            out.extend_from_slice(&bytes[start * size..(start + pushed as usize) * size]);
        }
        for column in pushed..inner.len {
            match (source, inner.source(column)) {
                (Some(start), Some(old)) => {
                    let at = (start + old as usize) * size;
                    out.extend_from_slice(&bytes[at..at + size]);
                }
                _ => dtype.push_bytes(blank, &mut out),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use contracts::case::hashed_bits;

    fn dense(count: u64) -> Content {
        let mut bytes = Vec::new();
        (0..count).for_each(|value| DType::I32.push_bytes(value, &mut bytes));
        Content::Dense(bytes)
    }

    fn values(content: &Content, count: u64) -> Vec<u64> {
        (0..count).map(|flat| content.bits(DType::I32, flat)).collect()
    }

    #[test]
    fn dense_and_sparse_contents_are_sliced_alike() {
        let maps = [AxisMap::kept(3, &[2, 0]), AxisMap::leading(2, 2), AxisMap::kept(4, &[1, 3])];
        let whole = dense(24);
        let sparse = Content::Sparse { fill: Fill::Bits(0), at: (0..24).map(|i| (i, i)).collect() };
        let expected = [17, 19, 21, 23, 1, 3, 5, 7];
        assert_eq!(values(&slice(&whole, DType::I32, &maps, 0), 8), expected);
        assert_eq!(values(&slice(&sparse, DType::I32, &maps, 0), 8), expected);
    }

    #[test]
    fn new_elements_are_blank() {
        let maps = [AxisMap::leading(1, 2), AxisMap::leading(2, 3)];
        assert_eq!(values(&slice(&dense(2), DType::I32, &maps, 9), 6), [0, 1, 9, 9, 9, 9]);
    }

    #[test]
    fn hashed_contents_keep_their_values_whether_or_not_the_hash_can_stay() {
        let table =
            Content::Sparse { fill: Fill::Hashed { seed: 5 }, at: BTreeMap::from([(3, 1)]) };
        let shorter = slice(
            &table,
            DType::I32,
            &[AxisMap::leading(2_500_012, 33), AxisMap::leading(2, 2)],
            0,
        );
        assert!(matches!(&shorter, Content::Sparse { at, .. } if at.len() == 1));
        let moved = AxisMap::moving(2_500_012, 7, [(0, 2_400_000)]);
        let rows = slice(&table, DType::I32, &[moved, AxisMap::leading(2, 2)], 0);
        let expected = hashed_bits(5, 4_800_001) & 0xffff_ffff;
        assert_eq!((rows.bits(DType::I32, 1), rows.bits(DType::I32, 3)), (expected, 1));
    }

    #[test]
    fn scalars_of_no_axes_and_empty_tensors_survive() {
        assert_eq!(slice(&dense(1), DType::I32, &[], 0), dense(1));
        assert_eq!(slice(&dense(4), DType::I32, &[AxisMap::leading(4, 0)], 0), dense(0));
    }
}
