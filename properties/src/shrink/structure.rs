//! Structural edits: a decision changes, everything that follows from it is recomputed, and every
//! tensor keeps the slice of its contents that the surviving indices name.

use super::axis::{AxisMap, slice};
use super::values;
use contracts::CaseScope;
use contracts::case::{Case, Layout};
use contracts::dtype::DType;
use contracts::expr::{Expr, Scope};
use contracts::format::{Contract, Dim, List};
use indexmap::IndexMap;
use std::collections::{BTreeSet, HashMap};

/// One change of a decision that sizes or addresses something.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Structural {
    /// Indices of an axis leave every list and tensor.
    Drop { axis: String, start: u64, count: u64 },
    /// One element of a list of lengths; the segment loses its tail, or its head.
    Length { list: String, index: usize, value: i64, from_head: bool },
    /// A dim decided directly; tensors keep their leading slice.
    Size { dim: String, value: i64 },
    /// The factor of a multiple, the slack of a pool, or the spare rows of segments. With `strided`,
    /// a multiple's indices are numbered repeat-major.
    Amount { dim: String, value: i64, strided: bool },
    /// Entries of a list that address; what they address follows.
    Renumber { list: String },
    /// Entries of a list of ids, one after another, become 0.
    Ids { list: String, start: usize, count: usize },
    /// Words of options and variants, and types; contents are converted by value.
    Words {
        options: Vec<(String, String)>,
        variants: Vec<(String, String)>,
        dtypes: Vec<(String, DType)>,
    },
}

/// What a dim's decision is, besides the dims it follows from.
pub(super) fn amount(contract: &Contract, case: &Case, name: &str) -> Option<i64> {
    let (dim, size) = (contract.dims.get(name)?, *case.dims.get(name)?);
    let base = base(dim, contract, case)?;
    if dim.multiple_of.is_some() { size.checked_div(base) } else { size.checked_sub(base) }
}

/// What a dim's amount is counted from: the divisor, the least size, the sum of the segments.
fn base(dim: &Dim, contract: &Contract, case: &Case) -> Option<i64> {
    if let Some(list) = &dim.segments {
        return Some(case.lists.get(list)?.iter().sum());
    }
    let expr = dim.multiple_of.as_ref().or(dim.at_least.as_ref())?;
    evaluate(expr, &CaseScope::new(contract, case))
}

fn evaluate(expr: &Expr, scope: &dyn Scope) -> Option<i64> {
    i64::try_from(expr.eval_int(scope).ok()?).ok()
}

/// The name an expression consists of.
pub(super) fn plain_name(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Name(name) => Some(name),
        _ => None,
    }
}

/// The case after an edit; `None` where the edit makes no sense. Legality is the caller's to check.
pub(super) fn apply(contract: &Contract, case: &Case, edit: &Structural) -> Option<Case> {
    let mut work = Work::begin(contract, case)?;
    match edit {
        Structural::Drop { axis, start, count } => {
            let size = u64::try_from(*case.dims.get(axis)?).ok()?;
            let kept = (0..size).filter(|i| !(*start..start + count).contains(i)).collect();
            work.keep_of_axis(axis, kept);
        }
        Structural::Size { dim, value } => {
            let size = u64::try_from(*value).ok()?;
            if case
                .lists
                .keys()
                .any(|list| contract.lists.get(list).is_some_and(|l| &l.each == dim))
            {
                work.keep_of_axis(dim, (0..size).collect());
            }
            work.new.dims.insert(dim.clone(), *value);
        }
        Structural::Length { list, index, value, from_head } => {
            *work.new.lists.get_mut(list)?.get_mut(*index)? = *value;
            work.head_cut = from_head.then_some((list.as_str(), *index));
        }
        Structural::Amount { dim, value, strided } => {
            *work.amounts.get_mut(dim.as_str())? = *value;
            work.strided = strided.then_some(dim.as_str());
        }
        Structural::Ids { list, start, count } => {
            work.new.lists.get_mut(list)?.get_mut(*start..start + count)?.fill(0);
        }
        Structural::Words { options, variants, dtypes } => {
            work.new.options.extend(options.iter().cloned());
            work.new.variants.extend(variants.iter().cloned());
            work.new.dtypes.extend(dtypes.iter().cloned());
        }
        Structural::Renumber { .. } => {}
    }
    work.resolve()?;
    let renumbered = match edit {
        Structural::Renumber { list } => Some(list.as_str()),
        _ => None,
    };
    work.address(renumbered)?;
    work.map_dims()?;
    work.slice_tensors()?;
    crate::generate::complete(contract, &mut work.new).ok()?;
    Some(work.new)
}

/// An edit in progress.
struct Work<'a> {
    contract: &'a Contract,
    old: &'a Case,
    new: Case,
    /// Factor, slack or spare of every dim that has one.
    amounts: IndexMap<&'a str, i64>,
    maps: HashMap<&'a str, AxisMap>,
    /// Old index of each index of an axis that lost some.
    kept: Option<(&'a str, Vec<u64>)>,
    head_cut: Option<(&'a str, usize)>,
    strided: Option<&'a str>,
}

impl<'a> Work<'a> {
    fn begin(contract: &'a Contract, old: &'a Case) -> Option<Work<'a>> {
        let mut amounts = IndexMap::new();
        for (name, dim) in &contract.dims {
            if dim.multiple_of.is_some() || dim.at_least.is_some() || dim.segments.is_some() {
                amounts.insert(name.as_str(), amount(contract, old, name)?);
            }
        }
        let new = old.clone();
        Some(Work {
            contract,
            old,
            new,
            amounts,
            maps: HashMap::new(),
            kept: None,
            head_cut: None,
            strided: None,
        })
    }

    fn keep_of_axis(&mut self, axis: &str, kept: Vec<u64>) {
        let Some((axis, size)) =
            self.contract.dims.get_key_value(axis).map(|(axis, _)| (axis, kept.len()))
        else {
            return;
        };
        for (name, list) in &self.contract.lists {
            if let (true, Some(items)) = (&list.each == axis, self.new.lists.get_mut(name)) {
                *items = kept.iter().filter_map(|&old| items.get(old as usize).copied()).collect();
            }
        }
        self.new.dims.insert(axis.clone(), size as i64);
        self.maps
            .insert(axis, AxisMap::kept(self.old.dims.get(axis).map_or(0, |s| *s as u64), &kept));
        self.kept = Some((axis, kept));
    }

    /// Recomputes dims and lists until nothing changes; the contract has no cycles, so the number of
    /// rounds is bounded by their number.
    fn resolve(&mut self) -> Option<()> {
        for _ in 0..=self.contract.dims.len() + self.contract.lists.len() {
            let mut changed = false;
            for (name, dim) in &self.contract.dims {
                let size = if let Some(expr) = &dim.is {
                    evaluate(expr, &CaseScope::new(self.contract, &self.new))?
                } else if let Some(amount) = self.amounts.get(name.as_str()) {
                    let base = base(dim, self.contract, &self.new)?;
                    if dim.multiple_of.is_some() {
                        base.checked_mul(*amount)?
                    } else {
                        base.checked_add(*amount)?
                    }
                } else {
                    continue;
                };
                changed |= self.new.dims.insert(name.clone(), size) != Some(size);
            }
            for (name, list) in &self.contract.lists {
                if let Some(expr) = &list.is {
                    let items = self.computed_list(expr, list)?;
                    changed |= self.new.lists.get(name) != Some(&items);
                    self.new.lists.insert(name.clone(), items);
                }
            }
            if !changed {
                return Some(());
            }
        }
        None
    }

    fn computed_list(&self, expr: &Expr, list: &List) -> Option<Vec<i64>> {
        let scope = CaseScope::new(self.contract, &self.new);
        let size = usize::try_from(*self.new.dims.get(&list.each)?).ok()?;
        (0..size).map(|index| evaluate(expr, &scope.at(&list.each, index))).collect()
    }

    /// Lets every list that addresses fit what it addresses, and records where those rows went.
    fn address(&mut self, renumbered: Option<&str>) -> Option<()> {
        for (name, list) in &self.contract.lists {
            let rank = renumbered == Some(name.as_str());
            if let Some(slots) = &list.slots {
                self.fit_slots(&slots.pool, rank)?;
            }
            if let Some(ids) = &list.ids {
                self.fit_ids(name, list, &ids.below, rank)?;
            }
        }
        Some(())
    }

    fn fit_slots(&mut self, pool: &str, rank: bool) -> Option<()> {
        let (pool, _) = self.contract.dims.get_key_value(pool)?;
        let (old, new) = (
            u64::try_from(*self.old.dims.get(pool)?).ok()?,
            u64::try_from(*self.new.dims.get(pool)?).ok()?,
        );
        if self.maps.contains_key(pool.as_str()) || (old == new && !rank) {
            return Some(());
        }
        let lists: Vec<&String> = self
            .contract
            .lists
            .iter()
            .filter(|(_, list)| list.slots.as_ref().is_some_and(|s| &s.pool == pool))
            .map(|(name, _)| name)
            .collect();
        let mut used: Vec<u64> = Vec::new();
        for slot in lists.iter().filter_map(|list| self.new.lists.get(*list)).flatten() {
            match u64::try_from(*slot) {
                Ok(slot) if !used.contains(&slot) => used.push(slot),
                _ => {}
            }
        }
        let kept = if rank { ranked(&used, old, new) } else { thinned(&used, old, new)? };
        let places: HashMap<u64, u64> =
            kept.iter().enumerate().map(|(new, old)| (*old, new as u64)).collect();
        for list in lists {
            for slot in self.new.lists.get_mut(list)?.iter_mut().filter(|slot| **slot >= 0) {
                *slot = i64::try_from(*places.get(&(*slot as u64))?).ok()?;
            }
        }
        self.maps.insert(pool, AxisMap::kept(old, &kept));
        Some(())
    }

    fn fit_ids(&mut self, name: &str, list: &List, below: &str, rank: bool) -> Option<()> {
        let (below, _) = self.contract.dims.get_key_value(below)?;
        let (old, new) = (*self.old.dims.get(below)?, *self.new.dims.get(below)?);
        if self.maps.contains_key(below.as_str()) || (old == new && !rank) {
            return Some(());
        }
        let mut items = self.new.lists.get(name)?.clone();
        let valid = |id: &i64| (0..old).contains(id);
        let mut moves: Vec<(i64, i64)> = Vec::new();
        if rank || items.iter().filter(|id| valid(id)).any(|id| *id >= new) {
            let mut order: Vec<i64> = Vec::new();
            for id in items.iter().copied().filter(valid) {
                if !order.contains(&id) {
                    order.push(id);
                }
            }
            if order.len() as i64 > new {
                return None;
            }
            moves.extend((0..).zip(order));
        }
        for (index, id) in items.iter_mut().enumerate() {
            *id = if valid(id) {
                moves.iter().find(|(_, old)| old == id).map_or(*id, |(new, _)| *new)
            } else {
                self.invalid_id(list, index, *id)?
            };
        }
        self.new.lists.insert(name.to_owned(), items);
        let mut moved: Vec<(u64, u64)> =
            moves.iter().map(|(new, old)| (*new as u64, *old as u64)).collect();
        if old == new {
            // Rows that make room take the places left behind, so that no row is held twice.
            let (to, from): (BTreeSet<u64>, BTreeSet<u64>) = moved.iter().copied().unzip();
            moved.extend(from.difference(&to).copied().zip(to.difference(&from).copied()));
        }
        self.maps.insert(below, AxisMap::moving(old as u64, new as u64, moved));
        Some(())
    }

    /// An id outside the table, said again in the new table's terms.
    fn invalid_id(&self, list: &List, index: usize, id: i64) -> Option<i64> {
        let (before, after) =
            (CaseScope::new(self.contract, self.old), CaseScope::new(self.contract, &self.new));
        let exprs = &list.ids.as_ref()?.invalid;
        let same = exprs.iter().find(|e| evaluate(e, &before.at(&list.each, index)) == Some(id));
        same.map_or(Some(id), |expr| evaluate(expr, &after.at(&list.each, index)))
    }

    /// A map for every dim whose size changed and that has none yet.
    fn map_dims(&mut self) -> Option<()> {
        for (name, dim) in &self.contract.dims {
            if self.maps.contains_key(name.as_str()) {
                continue;
            }
            let old = u64::try_from(*self.old.dims.get(name)?).ok()?;
            let new = u64::try_from(*self.new.dims.get(name)?).ok()?;
            let map = match (&dim.segments, &dim.multiple_of) {
                (Some(list), _) => self.segment_rows(list, old, new)?,
                (_, Some(of)) => self.multiple(name, of, old, new)?,
                _ => AxisMap::leading(old, new),
            };
            self.maps.insert(name, map);
        }
        Some(())
    }

    fn segment_rows(&self, list: &str, old_rows: u64, new_rows: u64) -> Option<AxisMap> {
        let (old, new) = (self.old.lists.get(list)?, self.new.lists.get(list)?);
        let starts: Vec<i64> =
            old.iter().scan(0, |next, len| Some(std::mem::replace(next, *next + len))).collect();
        let each = &self.contract.lists.get(list)?.each;
        let mut rows = Vec::new();
        for (index, len) in new.iter().enumerate() {
            let came_from = match &self.kept {
                Some((axis, kept)) if axis == each => *kept.get(index)? as usize,
                _ => index,
            };
            let (start, had, len) = (*starts.get(came_from)?, *old.get(came_from)?, *len);
            let first = if self.head_cut == Some((list, index)) {
                start + (had - len).max(0)
            } else {
                start
            };
            rows.extend((first..first + len.min(had)).map(|row| row as u64));
            rows.extend((had..len).map(|_| old_rows));
        }
        let spare = old.iter().sum::<i64>() as u64;
        rows.extend(
            (spare..old_rows)
                .chain(std::iter::repeat(old_rows))
                .take((new_rows as usize).checked_sub(rows.len())?),
        );
        Some(AxisMap::kept(old_rows, &rows))
    }

    /// Index `(of, repeat)` of a multiple, numbered of-major or repeat-major.
    fn multiple(&self, name: &str, of: &Expr, old: u64, new: u64) -> Option<AxisMap> {
        let Some(map) = plain_name(of).and_then(|dim| self.maps.get(dim)).cloned().or_else(|| {
            let size = *self.old.dims.get(plain_name(of)?)? as u64;
            Some(AxisMap::leading(size, *self.new.dims.get(plain_name(of)?)? as u64))
        }) else {
            return Some(AxisMap::leading(old, new));
        };
        let base = u64::try_from(*self.old.dims.get(plain_name(of)?)?).ok()?;
        let (factor, new_factor) = (old.checked_div(base)?, new.checked_div(map.len).unwrap_or(0));
        let place = |of: u64, repeat: u64| {
            if self.strided == Some(name) { repeat * base + of } else { of * factor + repeat }
        };
        let mut kept = Vec::with_capacity(new as usize);
        for index in 0..new {
            let (of, repeat) = if self.strided == Some(name) {
                (index % map.len, index / map.len)
            } else {
                (index / new_factor, index % new_factor)
            };
            kept.push(if repeat < factor { place(map.source(of)?, repeat) } else { old });
        }
        Some(AxisMap::kept(old, &kept))
    }

    fn slice_tensors(&mut self) -> Option<()> {
        for (name, tensor) in &self.contract.tensors {
            let (Some(old), Some(dtype)) =
                (self.old.tensors.get(name), tensor.dtype.resolve(&self.old.dtypes))
            else {
                continue;
            };
            if tensor.from.is_some() {
                continue;
            }
            let (before, after) =
                (CaseScope::new(self.contract, self.old), CaseScope::new(self.contract, &self.new));
            let mut maps = Vec::with_capacity(tensor.shape.len());
            for axis in &tensor.shape {
                maps.push(match plain_name(axis).and_then(|dim| self.maps.get(dim)) {
                    Some(map) => map.clone(),
                    None => AxisMap::leading(
                        u64::try_from(evaluate(axis, &before)?).ok()?,
                        u64::try_from(evaluate(axis, &after)?).ok()?,
                    ),
                });
            }
            let domain = tensor.domain_under(&self.old.options);
            let sliced = slice(&old.content, dtype, &maps, values::base_bits(domain, dtype));
            let becomes = tensor.dtype.resolve(&self.new.dtypes)?;
            let row = maps.iter().skip(1).map(|map| map.len).product();
            let changed = self.new.tensors.get_mut(name)?;
            changed.content = values::converted(sliced, dtype, becomes);
            changed.layout = realigned(old.layout, row, tensor.align, becomes);
        }
        Some(())
    }
}

/// Used slots in order of use, then unused ones: place by place, the new pool.
fn ranked(used: &[u64], old: u64, new: u64) -> Vec<u64> {
    let unused = (0..old).filter(|slot| !used.contains(slot));
    used.iter().copied().chain(unused).chain(std::iter::repeat(old)).take(new as usize).collect()
}

/// The old pool without as many unused slots as it shrank by, the highest first.
fn thinned(used: &[u64], old: u64, new: u64) -> Option<Vec<u64>> {
    let mut surplus = old.saturating_sub(new);
    let mut kept: Vec<u64> = (0..old)
        .rev()
        .filter(|slot| {
            let gone = surplus > 0 && !used.contains(slot);
            surplus -= u64::from(gone);
            !gone
        })
        .collect();
    kept.reverse();
    kept.extend((old..new).map(|_| old));
    (surplus == 0).then_some(kept)
}

/// Padding that keeps the row stride a multiple of the alignment though the row changed.
pub(super) fn realigned(
    layout: Layout,
    row: u64,
    align_bytes: Option<u64>,
    dtype: DType,
) -> Layout {
    let unit = align_bytes.map_or(1, |bytes| (bytes / dtype.size_bytes()).max(1));
    let fit = |pad: u64| (row + pad).next_multiple_of(unit) - row;
    match layout {
        Layout::RowPadded(pad) => Layout::RowPadded(fit(pad)),
        Layout::OuterPadded(pad) => Layout::OuterPadded(fit(pad)),
        Layout::Offset(offset) => Layout::Offset(offset.next_multiple_of(unit)),
        other => other,
    }
}
