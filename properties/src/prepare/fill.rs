//! Writes a case into an arena: live inputs, and poison with its marks everywhere else. A byte the
//! kernel may not read is `UNREAD`, one it may not store to `UNWRITABLE`, one it must write first has
//! no `INIT`; so every stray access is a fault at the instruction that makes it.

use super::Prepared;
use contracts::case::Content;
use contracts::dtype::Poison;
use contracts::format::Access;
use kernels::arena::Arena;
use ptx_vm::{BufferId, marks};

/// Dead bytes and padding. They hold poison on purpose, so a read is a read of something unread, not
/// of something uninitialised.
const DEAD: u8 = marks::INIT | marks::UNREAD | marks::UNWRITABLE;

/// Fills an arena for one run. Costs the live elements, not the buffers.
pub fn fill(prepared: &Prepared<'_>, poison: Poison, arena: &mut Arena) {
    arena.clear();
    arena.set_poison(poison);
    for buffer in &prepared.geometry.buffers {
        let pattern = buffer.dtype.poison(poison).to_le_bytes();
        let element = &pattern[..buffer.dtype.size_bytes() as usize];
        arena.add_buffer(&buffer.name, buffer.len_bytes, element, DEAD);
    }
    let mut inputs = prepared.inputs.tensors.iter();
    let mut row = Vec::new();
    for (tensor, runs) in prepared.geometry.tensors.iter().zip(&prepared.live) {
        let buffer = BufferId(tensor.buffer as u32);
        let size = tensor.dtype.size_bytes();
        let clear = match tensor.access {
            Access::Read => marks::UNREAD,
            Access::ReadWrite => marks::UNREAD | marks::UNWRITABLE,
            Access::Write => DEAD,
        };
        // Inputs are in the order of the geometry, less what is only written.
        let content = match tensor.access {
            Access::Write => None,
            _ => inputs.next().map(|(_, logical)| &logical.content),
        };
        let memory = arena.memory_mut();
        for run in runs {
            memory.mark(buffer, run.offset * size..(run.offset + run.count) * size, 0, clear);
            match content.map(|content| &**content) {
                Some(Content::Dense(bytes)) => {
                    let from = (run.flat * size) as usize;
                    let to = ((run.flat + run.count) * size) as usize;
                    memory.write(buffer, run.offset * size, &bytes[from..to]);
                }
                Some(sparse @ Content::Sparse { .. }) => {
                    row.clear();
                    sparse.append_bytes(tensor.dtype, run.flat..run.flat + run.count, &mut row);
                    memory.write(buffer, run.offset * size, &row);
                }
                Some(Content::Derived | Content::Output) | None => {}
            }
        }
    }
}
