//! What a byte of a buffer is to the contract: a live element of a tensor, a dead row, padding, or
//! scratch. Faults are worded and attributed to clauses by it.

use super::Prepared;
use contracts::format::Access;
use contracts::geometry::TensorGeometry;

/// Who owns a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A live element of a tensor that is only read.
    ReadOnly,
    /// A live element of a tensor the kernel writes.
    Written,
    /// A row no list names.
    DeadRow,
    /// Between or around rows.
    Padding,
    /// Scratch of the plan.
    Scratch,
    /// Past an end of the buffer.
    Outside,
}

/// A byte in the contract's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Who owns it.
    pub owner: Owner,
    /// The tensor it belongs to, or lies nearest to.
    pub tensor: Option<String>,
    /// Logical index, where it is an element.
    pub index: Vec<u64>,
    /// For a reader: `q[3, 0, 5]`, `padding after row 3 of q`.
    pub text: String,
}

/// Names the byte at an offset of a buffer; offsets past an end name the nearest tensor.
pub fn locate(prepared: &Prepared<'_>, buffer: u32, offset_bytes: i64) -> Place {
    let Some(facts) = prepared.geometry.buffers.get(buffer as usize) else {
        let text = "scratch of the plan".to_owned();
        return Place { owner: Owner::Scratch, tensor: None, index: Vec::new(), text };
    };
    let here = || prepared.geometry.tensors.iter().filter(|t| t.buffer == buffer as usize);
    if offset_bytes < 0 || offset_bytes as u64 >= facts.len_bytes {
        // A stray access past a tensor's end is that tensor's, so several in one buffer stay unnamed.
        let only = (here().count() == 1).then(|| here().next()).flatten();
        let text = match u64::try_from(offset_bytes) {
            Err(_) => format!("{} bytes before {}", offset_bytes.unsigned_abs(), facts.name),
            Ok(at) => format!("{} bytes past the end of {}", at - facts.len_bytes, facts.name),
        };
        let tensor = only.map(|tensor| tensor.name.clone());
        return Place { owner: Owner::Outside, tensor, index: Vec::new(), text };
    }
    let offset = offset_bytes as u64;
    for tensor in here() {
        if let Some(flat) = element_at(tensor, offset / tensor.dtype.size_bytes()) {
            return element(tensor, flat);
        }
    }
    // Padding follows the row that starts nearest before it.
    let nearest = here()
        .filter_map(|tensor| {
            let element = offset / tensor.dtype.size_bytes();
            let pitch = tensor.strides.first().copied().unwrap_or(0);
            let past = element.checked_sub(tensor.offset)?;
            let rows = tensor.shape.first().copied().unwrap_or(1);
            let row = past.checked_div(pitch).unwrap_or(0).min(rows.saturating_sub(1));
            Some((past - row * pitch, row, tensor))
        })
        .min_by_key(|(past, ..)| *past);
    match nearest {
        Some((_, row, tensor)) => Place {
            owner: Owner::Padding,
            tensor: Some(tensor.name.clone()),
            index: Vec::new(),
            text: format!("padding after row {row} of {}", tensor.name),
        },
        None => Place {
            owner: Owner::Padding,
            tensor: here().next().map(|tensor| tensor.name.clone()),
            index: Vec::new(),
            text: format!("padding before the first element of {}", facts.name),
        },
    }
}

fn element(tensor: &TensorGeometry, flat: u64) -> Place {
    let index = tensor.coordinates(flat);
    let row = index.first().copied().unwrap_or(0);
    let live = tensor.is_live_row(row);
    let owner = match (live, tensor.access) {
        (false, _) => Owner::DeadRow,
        (true, Access::Read) => Owner::ReadOnly,
        (true, _) => Owner::Written,
    };
    let mut text = format!("{}{index:?}", tensor.name);
    if !live {
        text.push_str(" (a dead row)");
    }
    Place { owner, tensor: Some(tensor.name.clone()), index, text }
}

/// Flat index of the element at this distance from the buffer's start.
fn element_at(tensor: &TensorGeometry, offset: u64) -> Option<u64> {
    let past = offset.checked_sub(tensor.offset)?;
    if tensor.strides.windows(2).any(|pair| pair[0] < pair[1]) {
        return element_among(tensor, past);
    }
    let row_count = tensor.row_count();
    let rows = tensor.shape.first().copied().unwrap_or(1);
    let pitch = match tensor.strides.first() {
        Some(pitch) if rows > 1 => *pitch,
        _ => row_count,
    };
    if pitch == 0 || past / pitch >= rows || past % pitch >= row_count {
        return None;
    }
    Some(past / pitch * row_count + past % pitch)
}

/// The same where axes lie in another order in memory than in the shape.
fn element_among(tensor: &TensorGeometry, past: u64) -> Option<u64> {
    let mut axes: Vec<usize> = (0..tensor.shape.len()).filter(|a| tensor.shape[*a] > 1).collect();
    axes.sort_by_key(|axis| std::cmp::Reverse(tensor.strides[*axis]));
    let (mut rest, mut coordinates) = (past, vec![0; tensor.shape.len()]);
    for axis in axes {
        coordinates[axis] = (rest / tensor.strides[axis].max(1)).min(tensor.shape[axis] - 1);
        rest -= coordinates[axis] * tensor.strides[axis];
    }
    let flat = coordinates.iter().zip(&tensor.shape).fold(0, |flat, (at, n)| flat * n + at);
    (rest == 0 && !tensor.shape.contains(&0)).then_some(flat)
}
