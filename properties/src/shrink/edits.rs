//! The passes of a shrink, in order, and the edits each one tries on a case. An edit is listed only
//! when it would make the case simpler, so a pass that keeps an edit comes to an end.

use super::structure::{self, Structural, amount, plain_name};
use super::values::{self, Edited, ValueEdit};
use contracts::case::{Case, Layout, Schedule, StoreForm};
use contracts::dtype::Poison;
use contracts::format::{Contract, Dim, List, Variant};

/// Axes longer than this lose indices only in runs of a sixteenth: the pass over dims does the rest.
const LONG_AXIS: u64 = 64;

/// One step of a shrink.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Edit {
    /// Sizes, lists, words.
    Structural(Structural),
    /// Layouts of tensors and forms of stores.
    Layout { tensors: Vec<(String, Layout)>, stores: Vec<(String, StoreForm)> },
    /// The fill of unread memory.
    Quiet,
    /// Blocks and warps by number.
    InOrder,
    /// A scalar's bits.
    Scalar { scalar: String, bits: u64 },
    /// Contents.
    Value(ValueEdit),
}

impl Edit {
    /// Whether both are about the same length, dim, tensor, element…; false for edits that remove
    /// what they are about.
    pub(super) fn same_target(&self, other: &Edit) -> bool {
        use Structural::{Amount, Ids, Length, Size};
        match (self, other) {
            (Edit::Structural(mine), Edit::Structural(theirs)) => match (mine, theirs) {
                (Length { list: a, index: i, .. }, Length { list: b, index: j, .. }) => {
                    a == b && i == j
                }
                (Ids { .. }, Ids { .. }) => mine == theirs,
                (Size { dim: a, .. }, Size { dim: b, .. })
                | (Amount { dim: a, .. }, Amount { dim: b, .. }) => a == b,
                _ => false,
            },
            (
                Edit::Value(ValueEdit::Set { tensor: a, index: i, .. }),
                Edit::Value(ValueEdit::Set { tensor: b, index: j, .. }),
            ) => a == b && i == j,
            (Edit::Value(ValueEdit::Clear { .. }), _)
            | (_, Edit::Value(ValueEdit::Clear { .. })) => false,
            (Edit::Value(mine), Edit::Value(theirs)) => {
                mine.tensor().is_some() && mine.tensor() == theirs.tensor()
            }
            (Edit::Layout { tensors: a, stores: c }, Edit::Layout { tensors: b, stores: d }) => {
                a.iter().map(|(name, _)| name).eq(b.iter().map(|(name, _)| name))
                    && c.iter().map(|(name, _)| name).eq(d.iter().map(|(name, _)| name))
            }
            _ => false,
        }
    }
}

/// The passes, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Blocks and warps by number: whatever is left then does not depend on an order.
    Schedule,
    /// Indices of an axis, in ever smaller runs, the last first; axes that lists run over first.
    Drop,
    /// Pools without unused places, segments without spare rows.
    Pools,
    /// Lengths, the last first.
    Lengths,
    /// Dims and factors.
    Dims,
    /// Options, variants, types.
    Words,
    /// Dense layouts and memory of their own; else smaller amounts.
    Layouts,
    /// Slots and ids 0, 1, 2…; ids 0, in ever smaller runs.
    Identity,
    /// A quiet NaN as poison.
    Poison,
    /// Scalars.
    Scalars,
    /// Whole tensors.
    Whole,
    /// Fewer elements that differ from the base value, in ever smaller parts.
    Clear,
    /// Short significands everywhere.
    Shorten,
    /// Elements one by one.
    Elements,
}

impl Pass {
    /// All passes.
    pub(super) const ALL: [Pass; 14] = [
        Pass::Schedule,
        Pass::Drop,
        Pass::Pools,
        Pass::Lengths,
        Pass::Dims,
        Pass::Words,
        Pass::Layouts,
        Pass::Identity,
        Pass::Poison,
        Pass::Scalars,
        Pass::Whole,
        Pass::Clear,
        Pass::Shorten,
        Pass::Elements,
    ];

    /// The edits of one level of this pass; `None` past the last level. `most_parts` bounds the parts
    /// a tensor's elements are cut into, and the elements edited one by one.
    pub(super) fn edits(
        self,
        level: u32,
        contract: &Contract,
        case: &Case,
        most_parts: usize,
    ) -> Option<Vec<Edit>> {
        let by_levels = matches!(self, Pass::Drop | Pass::Identity | Pass::Clear);
        if level > 0 && !by_levels {
            return None;
        }
        let edits = match self {
            Pass::Schedule if case.schedule == Schedule::InOrder => Vec::new(),
            Pass::Schedule => vec![Edit::InOrder],
            Pass::Drop => return drops(level, contract, case),
            Pass::Pools => pools(contract, case),
            Pass::Lengths => lengths(contract, case),
            Pass::Dims => dims(contract, case),
            Pass::Words => words(contract, case),
            Pass::Layouts => layouts(contract, case),
            Pass::Identity => return identity(level, contract, case),
            Pass::Poison if case.poison == Poison::Quiet => Vec::new(),
            Pass::Poison => vec![Edit::Quiet],
            Pass::Scalars => scalars(contract, case),
            Pass::Whole => whole(contract, case),
            Pass::Clear if 1usize.checked_shl(level).is_none_or(|parts| parts > most_parts) => {
                return None;
            }
            Pass::Clear => {
                let edits =
                    of_tensors(contract, case, |edited, name| edited.clear(name, level + 1));
                return (!edits.is_empty()).then_some(edits);
            }
            Pass::Shorten => of_tensors(contract, case, |edited, name| edited.shorten(name)),
            Pass::Elements => {
                of_tensors(contract, case, |edited, name| edited.elements(name, most_parts))
            }
        };
        Some(edits)
    }
}

/// The case after an edit; `None` where it makes no sense. Legality is the caller's to check.
pub(super) fn apply(contract: &Contract, case: &Case, edit: &Edit) -> Option<Case> {
    let mut new = match edit {
        Edit::Structural(edit) => return structure::apply(contract, case, edit),
        Edit::Value(edit) => return values::apply(contract, case, edit),
        _ => case.clone(),
    };
    match edit {
        Edit::Layout { tensors, stores } => {
            for (name, layout) in tensors {
                new.tensors.get_mut(name)?.layout = *layout;
            }
            for (name, form) in stores {
                new.stores.insert(name.clone(), *form);
            }
        }
        Edit::InOrder => new.schedule = Schedule::InOrder,
        Edit::Quiet => new.poison = Poison::Quiet,
        Edit::Scalar { scalar, bits } => {
            new.scalars.insert(scalar.clone(), *bits);
        }
        Edit::Structural(_) | Edit::Value(_) => {}
    }
    Some(new)
}

/// Dims that are decided freely, those that lists of lengths run over first, then other lists' axes.
fn free_axes<'a>(contract: &'a Contract, case: &Case) -> Vec<(&'a str, u64, u64)> {
    let over = |name: &str, of: fn(&List) -> bool| {
        contract.lists.values().any(|list| list.each == name && of(list))
    };
    let mut axes: Vec<(u8, &str, u64, u64)> = Vec::new();
    for (name, dim) in &contract.dims {
        let (Some([low, _]), Some(size)) = (dim.range, case.dims.get(name)) else { continue };
        let is_axis = contract
            .tensors
            .values()
            .any(|t| t.shape.iter().any(|axis| plain_name(axis) == Some(name)));
        let order = match () {
            () if over(name, |list| list.length.is_some()) => 0,
            () if over(name, |_| true) => 1,
            () if is_axis => 2,
            () => continue,
        };
        axes.push((
            order,
            name,
            u64::try_from(*size).unwrap_or(0),
            u64::try_from(low).unwrap_or(0),
        ));
    }
    axes.sort_by_key(|(order, ..)| *order);
    axes.into_iter().map(|(_, name, size, low)| (name, size, low)).collect()
}

fn drops(level: u32, contract: &Contract, case: &Case) -> Option<Vec<Edit>> {
    let axes = free_axes(contract, case);
    let levels =
        axes.iter().map(|(_, size, _)| u64::BITS - size.leading_zeros()).max().unwrap_or(0);
    if level >= levels.max(1) {
        return None;
    }
    let mut edits = Vec::new();
    for (axis, size, low) in axes {
        let least = if size > LONG_AXIS { size.div_ceil(16) } else { 1 };
        let count = (size >> level).max(1);
        let is_new = level == 0 || count != (size >> (level - 1)).max(1);
        if count < least || !is_new {
            continue;
        }
        for start in (0..size).step_by(count as usize).collect::<Vec<_>>().into_iter().rev() {
            let count = count.min(size - start);
            if size - count >= low {
                edits.push(Edit::Structural(Structural::Drop {
                    axis: axis.to_owned(),
                    start,
                    count,
                }));
            }
        }
    }
    Some(edits)
}

fn pools(contract: &Contract, case: &Case) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (dim, declared) in &contract.dims {
        let low = match (declared.slack, declared.spare) {
            (Some([low, _]), _) if declared.at_least.is_some() => low.min(0),
            (_, spare) if declared.segments.is_some() => spare.map_or(0, |[low, _]| low.min(0)),
            _ => continue,
        };
        if let Some(held) = amount(contract, case, dim) {
            for value in descent(low, held, &[]) {
                edits.push(Edit::Structural(Structural::Amount {
                    dim: dim.clone(),
                    value,
                    strided: false,
                }));
            }
        }
    }
    edits
}

fn lengths(contract: &Contract, case: &Case) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (name, list) in &contract.lists {
        let (Some(lengths), Some(items)) = (&list.length, case.lists.get(name)) else { continue };
        let segmented = contract.dims.values().any(|dim| dim.segments.as_ref() == Some(name));
        for (index, held) in items.iter().enumerate().rev() {
            let cut = |value, from_head| {
                Edit::Structural(Structural::Length { list: name.clone(), index, value, from_head })
            };
            edits.extend(
                descent(lengths.range[0], *held, &lengths.edges)
                    .into_iter()
                    .map(|value| cut(value, false)),
            );
            if segmented {
                edits.extend(
                    descent(lengths.range[0].max(1), *held, &[])
                        .into_iter()
                        .map(|value| cut(value, true)),
                );
            }
        }
    }
    edits
}

fn dims(contract: &Contract, case: &Case) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (name, dim) in &contract.dims {
        let Some(held) = case.dims.get(name) else { continue };
        let size = |value| Edit::Structural(Structural::Size { dim: name.clone(), value });
        match dim {
            Dim { range: Some([low, _]), edges, .. } => {
                edits.extend(descent(*low, *held, edges).into_iter().map(size));
            }
            Dim { multiple_of: Some(_), factor, .. } => {
                let low = factor.map_or(1, |[low, _]| low);
                for value in descent(low, amount(contract, case, name).unwrap_or(low), &[]) {
                    for strided in [false, true] {
                        let dim = name.clone();
                        edits.push(Edit::Structural(Structural::Amount { dim, value, strided }));
                    }
                }
            }
            Dim { one_of, .. } => {
                edits.extend(one_of.iter().take_while(|value| *value != held).copied().map(size))
            }
        }
    }
    edits
}

/// Values below `held` to try: the least, one, the edges, then ever nearer to it.
fn descent(low: i64, held: i64, edges: &[i64]) -> Vec<i64> {
    let mut values = vec![low, low.max(1)];
    let mut edges = edges.to_vec();
    edges.sort_unstable();
    values.extend(edges);
    let mut step = (held - low) / 2;
    while step > 0 {
        values.push(held - step);
        step /= 2;
    }
    values.push(held - 1);
    let mut seen = Vec::new();
    values.retain(|value| {
        let new = (low..held).contains(value) && !seen.contains(value);
        seen.push(*value);
        new
    });
    values
}

fn words(contract: &Contract, case: &Case) -> Vec<Edit> {
    let earlier =
        |name: &str, words: Vec<String>, held: Option<&String>| -> Vec<(String, String)> {
            words
                .into_iter()
                .take_while(|word| Some(word) != held)
                .map(|word| (name.to_owned(), word))
                .collect()
        };
    let spoken = |variant: &Variant| variant.values.iter().map(|word| word.0.clone()).collect();
    let options = contract
        .options
        .iter()
        .map(|(name, all)| earlier(name, all.clone(), case.options.get(name)));
    let options: Vec<_> = options.collect();
    let variants = contract
        .variants
        .iter()
        .map(|(name, all)| earlier(name, spoken(all), case.variants.get(name)));
    let variants: Vec<_> = variants.collect();
    let dtypes: Vec<Vec<_>> = contract
        .dtypes
        .iter()
        .map(|(symbol, all)| {
            let held = case.dtypes.get(symbol);
            all.iter()
                .take_while(|dtype| Some(*dtype) != held)
                .map(|dtype| (symbol.clone(), *dtype))
                .collect()
        })
        .collect();
    let edit = |options, variants, dtypes| {
        Edit::Structural(Structural::Words { options, variants, dtypes })
    };
    let firsts = |all: &[Vec<(String, String)>]| {
        all.iter().filter_map(|some| some.first().cloned()).collect::<Vec<_>>()
    };
    let together = (
        firsts(&options),
        firsts(&variants),
        dtypes.iter().filter_map(|some| some.first().cloned()).collect::<Vec<_>>(),
    );
    let mut edits = Vec::new();
    if together.0.len() + together.1.len() + together.2.len() > 1 {
        edits.push(edit(together.0, together.1, together.2));
    }
    edits.extend(
        variants.into_iter().flatten().map(|word| edit(Vec::new(), vec![word], Vec::new())),
    );
    edits
        .extend(options.into_iter().flatten().map(|word| edit(vec![word], Vec::new(), Vec::new())));
    edits.extend(
        dtypes.into_iter().flatten().map(|dtype| edit(Vec::new(), Vec::new(), vec![dtype])),
    );
    edits
}

fn layouts(contract: &Contract, case: &Case) -> Vec<Edit> {
    let uneven: Vec<_> =
        case.tensors.iter().filter(|(_, tensor)| tensor.layout != Layout::Dense).collect();
    let packed: Vec<_> =
        case.stores.iter().filter(|(_, form)| **form != StoreForm::Separate).collect();
    let edit = |tensors, stores| Edit::Layout { tensors, stores };
    let mut edits = Vec::new();
    if uneven.len() + packed.len() > 1 {
        edits.push(edit(
            uneven.iter().map(|(name, _)| ((*name).clone(), Layout::Dense)).collect(),
            packed.iter().map(|(name, _)| ((*name).clone(), StoreForm::Separate)).collect(),
        ));
    }
    for (name, form) in packed {
        let StoreForm::Packed { pad } = form else { continue };
        let smaller = [0, 1, 2, 4, 8, 16, 32].into_iter().take_while(|less| less < pad);
        let forms = std::iter::once(StoreForm::Separate)
            .chain(smaller.map(|pad| StoreForm::Packed { pad }));
        edits.extend(forms.map(|form| edit(Vec::new(), vec![(name.clone(), form)])));
    }
    for (name, tensor) in uneven {
        let allowed = contract.tensors.get(name).map(|declared| &declared.layout);
        let padded =
            allowed.is_some_and(|all| all.contains(&contracts::format::LayoutKind::RowPadded));
        let (held, form): (u64, fn(u64) -> Layout) = match tensor.layout {
            Layout::RowPadded(pad) => (pad, Layout::RowPadded),
            Layout::OuterPadded(pad) => (pad, Layout::OuterPadded),
            Layout::Offset(offset) => (offset, Layout::Offset),
            Layout::Wide if padded => (17, Layout::RowPadded),
            Layout::OddUnitStrides(more) => (more, Layout::OddUnitStrides),
            Layout::Permuted | Layout::Wide | Layout::Rank0 | Layout::Dense => {
                (0, |_| Layout::Dense)
            }
        };
        let smaller = [1, 2, 4, 8, 16].into_iter().filter(|less| *less < held).map(form);
        let layouts = std::iter::once(Layout::Dense).chain(smaller);
        edits.extend(layouts.map(|layout| edit(vec![(name.clone(), layout)], Vec::new())));
    }
    edits
}

fn identity(level: u32, contract: &Contract, case: &Case) -> Option<Vec<Edit>> {
    let lists = contract.lists.iter().filter_map(|(name, list)| {
        let pool = match (&list.slots, &list.ids) {
            (Some(slots), _) => &slots.pool,
            (None, ids) => &ids.as_ref()?.below,
        };
        Some((name, list, case.lists.get(name)?, *case.dims.get(pool)?))
    });
    let (mut edits, mut levels) = (Vec::new(), 1);
    for (name, list, items, limit) in lists {
        if level == 0 && !is_numbered(items, limit) {
            edits.push(Edit::Structural(Structural::Renumber { list: name.clone() }));
        }
        if list.ids.is_none() {
            continue;
        }
        levels = levels.max(usize::BITS - items.len().leading_zeros());
        let count = (items.len() >> level).max(1);
        let runs = items.chunks(count).enumerate().filter(|(_, run)| run.iter().any(|id| *id != 0));
        edits.extend(runs.map(|(nth, run)| {
            let (start, count) = (nth * count, run.len());
            Edit::Structural(Structural::Ids { list: name.clone(), start, count })
        }));
    }
    (level < levels).then_some(edits)
}

/// Whether the entries below the limit are 0, 1, 2… in the order of their first use.
fn is_numbered(items: &[i64], limit: i64) -> bool {
    let mut used = 0;
    items.iter().filter(|item| (0..limit).contains(*item)).all(|item| {
        used += i64::from(*item == used);
        *item < used
    })
}

fn scalars(contract: &Contract, case: &Case) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (name, scalar) in &contract.scalars {
        let Some(bits) = case.scalars.get(name) else { continue };
        let plain = values::plain_scalars(scalar, case, *bits);
        edits.extend(plain.into_iter().map(|bits| Edit::Scalar { scalar: name.clone(), bits }));
    }
    edits
}

fn whole(contract: &Contract, case: &Case) -> Vec<Edit> {
    let edited =
        |name: &String| Edited::of(contract, case, name).filter(|edited| !edited.is_blank());
    let mut edits = Vec::new();
    if contract.tensors.keys().filter_map(edited).count() > 1 {
        edits.push(Edit::Value(ValueEdit::BlankAll));
    }
    edits.extend(of_tensors(contract, case, |edited, name| edited.whole(name)));
    edits
}

fn of_tensors(
    contract: &Contract,
    case: &Case,
    edits: impl Fn(&Edited<'_>, &str) -> Vec<ValueEdit>,
) -> Vec<Edit> {
    let names = contract.tensors.keys();
    names
        .filter_map(|name| Some((name, Edited::of(contract, case, name)?)))
        .flat_map(|(name, edited)| edits(&edited, name))
        .map(Edit::Value)
        .collect()
}
