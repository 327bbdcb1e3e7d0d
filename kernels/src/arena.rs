//! The memory of one case, shared by every backend: buffers by index, each byte with its marks.
//! Invariant: the index that [`Arena::add_buffer`] returns is what `TensorArg::buffer` holds, until
//! the next [`Arena::clear`].

use contracts::dtype::{DType, Poison};
use ptx_vm::{BufferId, Memory, marks};

/// The memory of one case. Reused from case to case: clearing keeps the allocations.
pub struct Arena {
    memory: Memory,
    poison: Poison,
    buffers: u32,
}

impl Default for Arena {
    fn default() -> Self {
        Arena::new()
    }
}

/// One element of poison, as the repeating pattern of a fill.
pub fn poison_pattern(dtype: DType, poison: Poison) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(8);
    dtype.push_bytes(dtype.poison(poison), &mut pattern);
    pattern
}

impl Arena {
    /// An empty arena whose scratch holds quiet NaN.
    pub fn new() -> Arena {
        Arena { memory: Memory::new(), poison: Poison::Quiet, buffers: 0 }
    }

    /// Drops every buffer, and keeps the allocations and the poison.
    pub fn clear(&mut self) {
        self.memory.clear();
        self.buffers = 0;
    }

    /// What a backend fills scratch with from now on.
    pub fn set_poison(&mut self, poison: Poison) {
        self.poison = poison;
    }

    /// What a backend fills scratch with.
    pub fn poison(&self) -> Poison {
        self.poison
    }

    /// Adds a buffer of the call. A byte nobody wrote holds `fill[offset % fill.len()]` (zero for an
    /// empty pattern) and starts with `marks`, a set of [`ptx_vm::marks`]. Bases are 256-byte aligned.
    ///
    /// # Panics
    /// Beyond 2³⁹ bytes or 2²³ buffers.
    pub fn add_buffer(&mut self, name: &str, len_bytes: u64, fill: &[u8], marks: u8) -> u32 {
        let BufferId(index) = self.memory.allocate(name, len_bytes, fill, marks);
        self.buffers = index + 1;
        index
    }

    /// Adds a buffer of scratch: uninitialised, filled with the arena's poison. Scratch follows the
    /// buffers of the call and is no part of it.
    pub(crate) fn add_scratch(&mut self, name: &str, dtype: DType, len_bytes: u64) -> BufferId {
        self.memory.allocate(name, len_bytes, &poison_pattern(dtype, self.poison), 0)
    }

    /// Adds a buffer of scratch that holds zeros.
    pub(crate) fn add_zeroed_scratch(&mut self, name: &str, len_bytes: u64) -> BufferId {
        self.memory.allocate(name, len_bytes, &[], marks::INIT)
    }

    /// The buffer of this index, if the call has it.
    pub fn buffer(&self, index: u32) -> Option<BufferId> {
        (index < self.buffers).then_some(BufferId(index))
    }

    /// Number of buffers of the call; scratch is not counted.
    pub fn buffer_count(&self) -> u32 {
        self.buffers
    }

    /// All bytes and marks.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// All bytes and marks, to write inputs and set marks.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_repeats_the_poison_of_its_type() {
        let mut arena = Arena::new();
        for dtype in DType::ALL {
            for poison in [Poison::Quiet, Poison::Signalling, Poison::Large] {
                let pattern = poison_pattern(dtype, poison);
                assert_eq!(pattern.len() as u64, dtype.size_bytes());
                let index = arena.add_buffer("x", 3 * dtype.size_bytes(), &pattern, marks::UNREAD);
                let mut bytes = vec![0; 3 * pattern.len()];
                arena.memory().read(BufferId(index), 0, &mut bytes);
                for element in bytes.chunks(pattern.len()) {
                    assert_eq!(dtype.from_bytes(element), dtype.poison(poison));
                }
            }
        }
    }

    #[test]
    fn clearing_starts_the_indices_again() {
        let mut arena = Arena::new();
        assert_eq!(arena.add_buffer("a", 4, &[], 0), 0);
        assert_eq!(arena.add_buffer("b", 4, &[], 0), 1);
        arena.memory_mut().write(BufferId(0), 0, &[1, 2, 3, 4]);
        let scratch = arena.add_scratch("s", DType::F32, 8);
        assert_eq!(arena.buffer(scratch.0), None, "scratch is no buffer of the call");
        arena.clear();
        assert_eq!(arena.buffer(0), None);
        assert_eq!(arena.add_buffer("c", 4, &[7], 0), 0);
        let mut bytes = [0; 4];
        arena.memory().read(BufferId(0), 0, &mut bytes);
        assert_eq!(bytes, [7; 4], "nothing of the earlier case is left");
    }
}
