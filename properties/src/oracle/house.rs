//! House rules that are seen in results rather than at an instruction: every live element of an
//! output is written, and two runs that differ only in what must stay unread leave the same bits.

use super::observed::{Observed, find_pair};
use super::show::show;
use crate::prepare::Prepared;
use crate::verdict::Disagreement;
use contracts::dtype::Poison;
use contracts::format::Access;
use kernels::arena::Arena;
use ptx_vm::{BufferId, marks};

/// The first element of a purely written tensor with a byte nobody stored to, by the arena's marks:
/// for a backend that marks every store.
pub fn first_unwritten(prepared: &Prepared<'_>, arena: &Arena) -> Option<Disagreement> {
    for place in outputs(prepared) {
        let tensor = &prepared.geometry.tensors[place];
        let (buffer, size) = (BufferId(tensor.buffer as u32), tensor.dtype.size_bytes());
        for run in &prepared.live[place] {
            let bytes = run.offset * size..(run.offset + run.count) * size;
            let shadow = arena.memory().marks(buffer, bytes);
            if shadow.iter().fold(marks::WRITTEN, |all, one| all & one) == 0 {
                let byte = shadow.iter().position(|one| one & marks::WRITTEN == 0)?;
                return Some(unwritten(prepared, place, run.flat + byte as u64 / size));
            }
        }
    }
    None
}

/// The first element of a purely written tensor that holds the fill after both runs: for a backend
/// that sees only which bytes changed. The two fills differ, so a written element differs from one.
pub fn first_unchanged(
    prepared: &Prepared<'_>,
    (quiet, quiet_poison): (&Observed, Poison),
    (large, large_poison): (&Observed, Poison),
) -> Option<Disagreement> {
    for place in outputs(prepared) {
        let dtype = prepared.geometry.tensors[place].dtype;
        let fills = (dtype.poison(quiet_poison), dtype.poison(large_poison));
        let runs = (&*quiet.tensors[place], &*large.tensors[place]);
        let first = find_pair(&prepared.live[place], dtype, runs, |flat, quiet, large| {
            ((quiet, large) == fills).then_some(flat)
        });
        if let Some(flat) = first {
            return Some(unwritten(prepared, place, flat));
        }
    }
    None
}

/// The first live element on which two runs of one case differ in any bit.
pub fn first_difference(
    prepared: &Prepared<'_>,
    one: &Observed,
    other: &Observed,
    clause: &str,
    note: &str,
) -> Option<Disagreement> {
    if one == other {
        return None;
    }
    for place in prepared.written() {
        if one.tensors[place] == other.tensors[place] {
            continue;
        }
        let tensor = &prepared.geometry.tensors[place];
        let runs = (&*one.tensors[place], &*other.tensors[place]);
        let first = find_pair(&prepared.live[place], tensor.dtype, runs, |flat, bits, second| {
            (bits != second).then_some((flat, bits, second))
        });
        let (flat, bits, second) = first?;
        return Some(Disagreement {
            clause: clause.to_owned(),
            tensor: Some(tensor.name.clone()),
            index: tensor.coordinates(flat),
            expected: show(tensor.dtype, bits),
            observed: show(tensor.dtype, second),
            written_by: String::new(),
            error: None,
            note: note.to_owned(),
        });
    }
    None
}

/// Tensors that must be written wherever they are live. One that is also read may keep an element.
fn outputs<'a>(prepared: &'a Prepared<'_>) -> impl Iterator<Item = usize> + 'a {
    prepared.written().filter(|place| prepared.geometry.tensors[*place].access == Access::Write)
}

fn unwritten(prepared: &Prepared<'_>, place: usize, flat: u64) -> Disagreement {
    let tensor = &prepared.geometry.tensors[place];
    Disagreement {
        clause: "house.written".to_owned(),
        tensor: Some(tensor.name.clone()),
        index: tensor.coordinates(flat),
        expected: "an element written by the kernel".to_owned(),
        observed: "the memory's fill, never stored to".to_owned(),
        written_by: String::new(),
        error: None,
        note: String::new(),
    }
}
