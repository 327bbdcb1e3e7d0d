//! Stores and physical layouts with their amounts: every base, offset and row stride is a multiple of
//! the tensor's alignment, because anything else is a call the kernel must refuse.

use super::structure::pick;
use super::{Source, Swarm};
use crate::choices::Path;
use contracts::CaseScope;
use contracts::case::{Case, CaseTensor, Content, Layout, StoreForm};
use contracts::format::{Access, Contract, LayoutKind, Store, Tensor};

/// Amounts go up to this many elements, or to two alignments.
const LARGEST_AMOUNT: u64 = 17;

impl Source<'_> {
    /// Decides the form of every store and the layout of every present tensor; contents that are
    /// drawn come later.
    pub(super) fn layouts(&mut self, case: &mut Case) {
        let contract = self.contract;
        for (name, store) in &contract.stores {
            let form = self.store(case, name, store);
            case.stores.insert(name.clone(), form);
        }
        for (name, tensor) in &contract.tensors {
            if !is_present(contract, case, tensor) {
                continue;
            }
            let layout = if is_packed(contract, case, name) {
                Layout::Dense
            } else {
                self.layout(case, name, tensor)
            };
            let content = undrawn_content(case, tensor);
            case.tensors.insert(name.clone(), CaseTensor { layout, content });
        }
    }

    fn store(&mut self, case: &Case, name: &str, store: &Store) -> StoreForm {
        let path = Path::new("stores").child(name);
        // A layout that a fixture assigns needs memory of its own.
        let assigned = self.fixture.is_some_and(|fixture| {
            store.holds.iter().any(|held| fixture.layout.contains_key(held))
        });
        if assigned || !self.swarm.has(Swarm::PACKED) || self.choices.choose(path, 2) == 0 {
            return StoreForm::Separate;
        }
        let Some(align) = packed_align(self.contract, case, store) else {
            return StoreForm::Separate;
        };
        StoreForm::Packed {
            pad: align.first_pad + align.elements * self.choices.choose(path.child("pad"), 3),
        }
    }

    fn layout(&mut self, case: &Case, name: &str, tensor: &Tensor) -> Layout {
        let path = Path::new("tensors").child(name).child("layout");
        let Some(shape) = shape_of(self.contract, case, tensor) else { return Layout::Dense };
        let rows = shape.first().copied().unwrap_or(1);
        let possible = |kind: &LayoutKind| match kind {
            LayoutKind::Dense | LayoutKind::Offset => true,
            LayoutKind::RowPadded | LayoutKind::OuterPadded => shape.len() >= 2,
            LayoutKind::Wide => shape.len() >= 2 && rows >= 2,
            LayoutKind::Permuted => shape.len() >= 3,
            LayoutKind::OddUnitStrides => shape.contains(&1),
            LayoutKind::Rank0 => shape == [1],
        };
        let assigned = self.fixture.and_then(|fixture| fixture.layout.get(name)).copied();
        let kind = match assigned.filter(possible) {
            Some(kind) => kind,
            None if tensor.layout.contains(&LayoutKind::Wide)
                && possible(&LayoutKind::Wide)
                && self.swarm.has(Swarm::PADDED)
                && self.choices.one_in(path.child("wide"), 16) =>
            {
                LayoutKind::Wide
            }
            None => {
                let swarm = self.swarm;
                let offered = |kind: &LayoutKind| match kind {
                    LayoutKind::Dense => true,
                    LayoutKind::Wide => false,
                    LayoutKind::RowPadded | LayoutKind::OuterPadded | LayoutKind::Permuted => {
                        swarm.has(Swarm::PADDED)
                    }
                    LayoutKind::Offset | LayoutKind::Rank0 | LayoutKind::OddUnitStrides => {
                        swarm.has(Swarm::OFFSET)
                    }
                };
                let kinds: Vec<LayoutKind> = tensor
                    .layout
                    .iter()
                    .copied()
                    .filter(|kind| offered(kind) && possible(kind))
                    .collect();
                pick(self.choices, path, &kinds).copied().unwrap_or(LayoutKind::Dense)
            }
        };
        let align = align_elements(case, tensor);
        let steps = (LARGEST_AMOUNT / align).max(2);
        let amount = align * (1 + self.choices.choose(path.child("amount"), steps));
        // Whatever aligns the row, then a multiple of the alignment.
        let row: u64 = shape.iter().skip(1).map(|extent| (*extent).max(1)).product();
        let ragged = row.next_multiple_of(align) - row;
        let padded = if ragged > 0 { ragged + amount - align } else { amount };
        match kind {
            LayoutKind::Dense => Layout::Dense,
            LayoutKind::RowPadded => Layout::RowPadded(padded),
            LayoutKind::OuterPadded => Layout::OuterPadded(padded),
            LayoutKind::Offset => Layout::Offset(amount),
            LayoutKind::Permuted => Layout::Permuted,
            LayoutKind::OddUnitStrides => Layout::OddUnitStrides(amount),
            LayoutKind::Wide => Layout::Wide,
            LayoutKind::Rank0 => Layout::Rank0,
        }
    }
}

/// What a packed row's pads are made of.
struct PackedAlign {
    /// The pad without unneeded elements.
    first_pad: u64,
    /// Further pad comes in steps of this.
    elements: u64,
}

/// How the store's present members pack; `None` where one of them would lie misaligned, or fewer than
/// two are there.
fn packed_align(contract: &Contract, case: &Case, store: &Store) -> Option<PackedAlign> {
    let (mut running, mut elements, mut members) = (0u64, 1u64, 0);
    for held in &store.holds {
        let tensor = contract.tensors.get(held)?;
        if !is_present(contract, case, tensor) {
            continue;
        }
        let align = align_elements(case, tensor);
        if !running.is_multiple_of(align) {
            return None;
        }
        let row: u64 = shape_of(contract, case, tensor)?.iter().skip(1).product();
        running += row;
        elements = elements.max(align);
        members += 1;
    }
    let first_pad = running.next_multiple_of(elements) - running;
    (members >= 2).then_some(PackedAlign { first_pad, elements })
}

/// The form itself while its members still pack, with the next pad that aligns the row; else separate.
pub(super) fn realigned_store(
    contract: &Contract,
    case: &Case,
    store: &Store,
    form: StoreForm,
) -> StoreForm {
    let StoreForm::Packed { pad } = form else { return form };
    match packed_align(contract, case, store) {
        Some(align) => {
            let beyond = pad.saturating_sub(align.first_pad).next_multiple_of(align.elements);
            StoreForm::Packed { pad: align.first_pad + beyond }
        }
        None => StoreForm::Separate,
    }
}

/// The layout with the next amount that keeps the alignment.
pub(super) fn realigned(case: &Case, tensor: &Tensor, shape: &[u64], layout: Layout) -> Layout {
    let align = align_elements(case, tensor);
    let row: u64 = shape.iter().skip(1).map(|extent| (*extent).max(1)).product();
    let padded = |pad: u64| (row + pad).next_multiple_of(align) - row;
    match layout {
        Layout::RowPadded(pad) => Layout::RowPadded(padded(pad)),
        Layout::OuterPadded(pad) => Layout::OuterPadded(padded(pad)),
        Layout::Offset(elements) => Layout::Offset(elements.next_multiple_of(align)),
        Layout::OddUnitStrides(more) => Layout::OddUnitStrides(more.next_multiple_of(align)),
        Layout::Dense | Layout::Permuted | Layout::Wide | Layout::Rank0 => layout,
    }
}

/// The tensor's alignment in elements, at least 1.
fn align_elements(case: &Case, tensor: &Tensor) -> u64 {
    let size = tensor.dtype.resolve(&case.dtypes).map_or(1, contracts::DType::size_bytes);
    (tensor.align.unwrap_or(size) / size).max(1)
}

/// The logical shape; `None` where an extent has no value or is negative.
pub(super) fn shape_of(contract: &Contract, case: &Case, tensor: &Tensor) -> Option<Vec<u64>> {
    let scope = CaseScope::new(contract, case);
    tensor
        .shape
        .iter()
        .map(|extent| extent.eval_int(&scope).ok().and_then(|e| u64::try_from(e).ok()))
        .collect()
}

/// Whether the tensor is there under the case's options, variants and dtypes.
pub(super) fn is_present(contract: &Contract, case: &Case, tensor: &Tensor) -> bool {
    tensor
        .when
        .as_ref()
        .is_none_or(|when| when.eval_bool(&CaseScope::new(contract, case)).unwrap_or(false))
}

/// Whether the tensor lies in a packed row.
pub(super) fn is_packed(contract: &Contract, case: &Case, name: &str) -> bool {
    contract.stores.iter().any(|(store, members)| {
        matches!(case.stores.get(store), Some(StoreForm::Packed { .. }))
            && members.holds.iter().any(|held| held == name)
    })
}

/// The contents of a tensor nobody draws; all zero bits for one that somebody will.
pub(super) fn undrawn_content(case: &Case, tensor: &Tensor) -> Content {
    if tensor.from.is_some() {
        Content::Derived
    } else if tensor.access.resolve(&case.options) == Some(&Access::Write) {
        Content::Output
    } else {
        crate::values::fill(0)
    }
}
