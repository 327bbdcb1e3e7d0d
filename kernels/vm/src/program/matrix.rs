//! The matrix operations of one warp, and the asynchronous copies that feed them.

use super::{Reg, Slot};

/// Matrix instructions of one warp, asynchronous copies and clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Matrix {
    /// `ldmatrix`
    Load(Fragments),
    /// `stmatrix`
    Store(Fragments),
    /// `movmatrix`
    Transpose {
        d: Slot,
        a: Slot,
    },
    Product(Product),
    Multiply(Multiply),
    Copy(Copying),
    Commit,
    /// A clock into a register: no time passes but by reading, so that equal launches agree.
    Clock {
        d: Reg,
        step: u32,
        /// Its upper 32 bits.
        high: bool,
    },
    /// Waits until at most `pending` groups are outstanding; `None` for all.
    Wait {
        pending: Option<u32>,
    },
}

impl Matrix {
    /// All lanes of the warp execute it together.
    pub fn aligned(&self) -> bool {
        !matches!(
            self,
            Matrix::Copy(_) | Matrix::Commit | Matrix::Clock { .. } | Matrix::Wait { .. }
        )
    }
}

/// `count` 8×8 b16 tiles in registers and in shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragments {
    pub regs: [Slot; 4],
    pub count: u8,
    pub transposed: bool,
    pub base: Option<Reg>,
    pub offset: i64,
}

/// `cp.async`: bytes copied, destination in shared memory, source in global memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copying {
    pub bytes: u8,
    pub d: Option<Reg>,
    pub d_offset: i64,
    pub s: Option<Reg>,
    pub s_offset: i64,
    /// Bytes read; the rest becomes zero.
    pub size: Option<Slot>,
    /// Where it holds, nothing is read and all becomes zero.
    pub ignored: Option<Ignored>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ignored {
    pub slot: Slot,
    pub negate: bool,
}

/// `mma.sync` with f32 sums: registers of a, b, c, d.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub shape: Shape,
    pub a: [Slot; 4],
    pub b: [Slot; 2],
    pub c: [Slot; 4],
    pub d: [Slot; 4],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    Bf16K16,
    F16K16,
    Bf16K8,
    F16K8,
}

impl Shape {
    /// Registers of a and of b.
    pub fn registers(self) -> (usize, usize) {
        match self {
            Shape::Bf16K16 | Shape::F16K16 => (4, 2),
            Shape::Bf16K8 | Shape::F16K8 => (2, 1),
        }
    }
}

/// `mma.sync` of the other types: an m×8 result of rows and columns k long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multiply {
    pub left: Factor,
    pub right: Factor,
    pub sum: Sum,
    /// 8 or 16.
    pub rows: u8,
    pub k: u8,
    pub a: [Slot; 4],
    pub b: [Slot; 2],
    pub c: [Slot; 4],
    pub d: [Slot; 4],
}

impl Multiply {
    /// Registers of a.
    pub fn lefts(&self) -> u8 {
        self.rights() * (self.rows / 8)
    }

    /// Registers of b: what four lanes hold of a column.
    pub fn rights(&self) -> u8 {
        (usize::from(self.k) * self.right.bits() / 128) as u8
    }

    /// Registers of c and of d.
    pub fn sums(&self) -> u8 {
        if self.sum.is_f16() { self.rows / 8 } else { self.rows / 4 }
    }
}

/// The type of a factor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Factor {
    Tf32,
    F16,
    E4m3,
    E5m2,
    S8,
    U8,
    S4,
    U4,
}

/// The type of an accumulator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sum {
    F32,
    F16,
    /// f32 of which 13 fraction bits are kept: fp8 products of a warpgroup.
    Short,
    /// The same as f16.
    ShortF16,
    Int {
        saturate: bool,
    },
}

impl Sum {
    /// Two lie in a register.
    pub fn is_f16(self) -> bool {
        matches!(self, Sum::F16 | Sum::ShortF16)
    }
}
