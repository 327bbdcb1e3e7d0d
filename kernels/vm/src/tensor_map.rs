//! Tensor maps: what the driver's `cuTensorMapEncodeTiled` takes, refused where the driver refuses it,
//! and the 128 bytes that a kernel gets as its parameter.
//! Invariant: what [`TensorMap::decode`] accepts keeps the rules of [`TensorMap::encode`], whoever
//! wrote it.

use std::fmt;

/// The most dimensions.
pub(crate) const RANKS: usize = 5;
/// Bytes of a map.
pub const TENSOR_MAP_BYTES: usize = 128;
/// What a map begins with.
const MAGIC: [u8; 8] = *b"ptxvmTM1";
/// Where the sum over everything before stands.
const SUM: usize = 88;

/// The type of a tensor's elements, as a map names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TensorType {
    /// Bytes.
    U8,
    /// 16 bits.
    U16,
    /// 32 bits.
    U32,
    /// Signed 32 bits.
    S32,
    /// 64 bits.
    U64,
    /// Signed 64 bits.
    S64,
    /// f16.
    F16,
    /// f32.
    F32,
    /// f64.
    F64,
    /// bf16.
    Bf16,
    /// f32; a reduction takes subnormal numbers for zero.
    F32Flushed,
    /// tf32 in 32 bits, rounded on the way to shared memory.
    Tf32,
    /// tf32; a reduction takes subnormal numbers for zero.
    Tf32Flushed,
}

/// The driver's order.
const TYPES: [TensorType; 13] = [
    TensorType::U8,
    TensorType::U16,
    TensorType::U32,
    TensorType::S32,
    TensorType::U64,
    TensorType::S64,
    TensorType::F16,
    TensorType::F32,
    TensorType::F64,
    TensorType::Bf16,
    TensorType::F32Flushed,
    TensorType::Tf32,
    TensorType::Tf32Flushed,
];

impl TensorType {
    /// Bytes of an element.
    pub fn size_bytes(self) -> u64 {
        match self {
            TensorType::U8 => 1,
            TensorType::U16 | TensorType::F16 | TensorType::Bf16 => 2,
            TensorType::U64 | TensorType::S64 | TensorType::F64 => 8,
            _ => 4,
        }
    }

    fn is_float(self) -> bool {
        use TensorType::{Bf16, F16, F32, F32Flushed, F64, Tf32, Tf32Flushed};
        matches!(self, F16 | F32 | F64 | Bf16 | F32Flushed | Tf32 | Tf32Flushed)
    }
}

/// How pieces of sixteen bytes change places in shared memory: within lines of so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Swizzle {
    /// They stay.
    #[default]
    None,
    /// 32 bytes.
    B32,
    /// 64 bytes.
    B64,
    /// 128 bytes.
    B128,
}

impl Swizzle {
    /// Bytes of a line; 16 where pieces stay.
    pub(crate) fn line_bytes(self) -> u64 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }
}

/// Interleaved layouts; the machine has none of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Interleave {
    /// Elements side by side.
    #[default]
    None,
    /// Slices of 16 bytes.
    B16,
    /// Slices of 32 bytes.
    B32,
}

/// What a box holds for what lies outside the tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Fill {
    /// Zeros.
    #[default]
    Zero,
    /// The NaN that a fused multiply-add takes for zero.
    Nan,
}

/// A tiled tensor map. Promotion to the L2 cache changes no value and is left out.
///
/// ```
/// use ptx_vm::{Memory, TensorMap, TensorType, marks};
/// let mut memory = Memory::new();
/// let x = memory.allocate("x", 64 * 128, &[0], marks::INIT);
/// let map = TensorMap::tiled(TensorType::F16, memory.address(x, 0), &[64, 64], &[128], &[32, 8]);
/// let parameter: [u8; 128] = map.encode()?;
/// # Ok::<(), ptx_vm::TensorMapError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    /// Of the elements.
    pub ty: TensorType,
    /// Device address of the first element.
    pub address: u64,
    /// Elements along each dimension, innermost first; one to five.
    pub dims: Vec<u64>,
    /// Bytes from one element to the next along each dimension but the innermost.
    pub strides: Vec<u64>,
    /// The box: elements that a copy spans along each dimension.
    pub box_dims: Vec<u32>,
    /// Of those, a copy takes every so many; along the innermost dimension all.
    pub element_strides: Vec<u32>,
    /// Must be none.
    pub interleave: Interleave,
    /// Order in shared memory.
    pub swizzle: Swizzle,
    /// Of what lies outside.
    pub fill: Fill,
}

/// Why there is no such map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TensorMapError {
    /// The machine lacks it.
    Unsupported(&'static str),
    /// The driver refuses it: which field, and what it must be.
    Field {
        /// The field's name here.
        field: &'static str,
        /// What it must be.
        rule: &'static str,
    },
}

impl fmt::Display for TensorMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorMapError::Unsupported(what) => write!(f, "{what} is not supported"),
            TensorMapError::Field { field, rule } => write!(f, "`{field}` must be {rule}"),
        }
    }
}

impl std::error::Error for TensorMapError {}

/// What encoded bytes say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoded {
    pub ty: TensorType,
    pub address: u64,
    pub rank: usize,
    pub dims: [u64; RANKS],
    /// Bytes along each dimension.
    pub strides: [u64; RANKS],
    /// Elements taken along each dimension, and how far apart.
    pub counts: [u64; RANKS],
    pub steps: [u64; RANKS],
    pub swizzle: Swizzle,
    pub fill: Fill,
}

impl TensorMap {
    /// A map without element strides, swizzle and NaN.
    pub fn tiled(
        ty: TensorType,
        address: u64,
        dims: &[u64],
        strides: &[u64],
        box_dims: &[u32],
    ) -> TensorMap {
        TensorMap {
            ty,
            address,
            dims: dims.to_vec(),
            strides: strides.to_vec(),
            box_dims: box_dims.to_vec(),
            element_strides: vec![1; dims.len()],
            interleave: Interleave::None,
            swizzle: Swizzle::None,
            fill: Fill::Zero,
        }
    }

    fn check(&self) -> Result<(), TensorMapError> {
        let must = |holds: bool, field: &'static str, rule: &'static str| {
            if holds { Ok(()) } else { Err(TensorMapError::Field { field, rule }) }
        };
        match self.interleave {
            Interleave::None => {}
            Interleave::B16 => {
                return Err(TensorMapError::Unsupported("CU_TENSOR_MAP_INTERLEAVE_16B"));
            }
            Interleave::B32 => {
                return Err(TensorMapError::Unsupported("CU_TENSOR_MAP_INTERLEAVE_32B"));
            }
        }
        let rank = self.dims.len();
        must((1..=RANKS).contains(&rank), "dims", "one to five long")?;
        must(self.strides.len() + 1 == rank, "strides", "as long as `dims`, less one")?;
        must(self.box_dims.len() == rank, "box_dims", "as long as `dims`")?;
        must(self.element_strides.len() == rank, "element_strides", "as long as `dims`")?;
        must(self.address.is_multiple_of(16), "address", "a multiple of 16")?;
        must(self.dims.iter().all(|n| (1..=1 << 32).contains(n)), "dims", "each 1 to 2^32")?;
        let stride = |n: &u64| n.is_multiple_of(16) && *n < 1 << 40;
        must(self.strides.iter().all(stride), "strides", "each a multiple of 16 below 2^40")?;
        must(self.box_dims.iter().all(|n| (1..=256).contains(n)), "box_dims", "each 1 to 256")?;
        let step = |n: &u32| (1..=8).contains(n);
        must(self.element_strides.iter().all(step), "element_strides", "each 1 to 8")?;
        let inner = u64::from(self.box_dims[0]) * self.ty.size_bytes();
        must(inner.is_multiple_of(16), "box_dims", "a multiple of 16 bytes along the innermost")?;
        let fits = self.swizzle == Swizzle::None || inner <= self.swizzle.line_bytes();
        must(fits, "box_dims", "no longer than the swizzle's line along the innermost")?;
        let nan = self.fill == Fill::Zero || self.ty.is_float();
        must(nan, "fill", "zero for integers")
    }

    /// The bytes of a kernel's parameter. They stand for the map in this machine alone and are not
    /// the hardware's; a kernel may copy them, and copies stand for the same map.
    ///
    /// # Errors
    /// What the driver refuses, or the machine lacks.
    pub fn encode(&self) -> Result<[u8; TENSOR_MAP_BYTES], TensorMapError> {
        self.check()?;
        let mut out = [0; TENSOR_MAP_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..16].copy_from_slice(&self.address.to_le_bytes());
        for (i, n) in self.dims.iter().enumerate() {
            out[16 + 4 * i..][..4].copy_from_slice(&((n - 1) as u32).to_le_bytes());
        }
        for (i, n) in self.strides.iter().enumerate() {
            out[36 + 8 * i..][..8].copy_from_slice(&n.to_le_bytes());
        }
        for (i, n) in self.box_dims.iter().enumerate() {
            out[68 + 2 * i..][..2].copy_from_slice(&(*n as u16).to_le_bytes());
        }
        for (i, n) in self.element_strides.iter().enumerate() {
            out[78 + i] = *n as u8;
        }
        let ty = TYPES.iter().position(|ty| *ty == self.ty).unwrap_or_default();
        out[83] = ty as u8;
        out[84] = self.dims.len() as u8;
        out[85] = self.swizzle as u8;
        out[86] = self.fill as u8;
        let sum = sum(&out[..SUM]);
        out[SUM..SUM + 8].copy_from_slice(&sum.to_le_bytes());
        Ok(out)
    }

    /// The map that bytes stand for.
    pub(crate) fn decode(bytes: &[u8; TENSOR_MAP_BYTES]) -> Option<Decoded> {
        let word = |at: usize, len: usize| {
            let mut all = [0; 8];
            all[..len].copy_from_slice(&bytes[at..at + len]);
            u64::from_le_bytes(all)
        };
        if bytes[..8] != MAGIC || word(SUM, 8) != sum(&bytes[..SUM]) {
            return None;
        }
        let ty = *TYPES.get(usize::from(bytes[83]))?;
        let rank = usize::from(bytes[84]);
        if !(1..=RANKS).contains(&rank) {
            return None;
        }
        let mut map = Decoded {
            ty,
            address: word(8, 8),
            rank,
            dims: [1; RANKS],
            strides: [0; RANKS],
            counts: [1; RANKS],
            steps: [1; RANKS],
            swizzle: match bytes[85] {
                0 => Swizzle::None,
                1 => Swizzle::B32,
                2 => Swizzle::B64,
                _ => Swizzle::B128,
            },
            fill: if bytes[86] == 0 { Fill::Zero } else { Fill::Nan },
        };
        map.strides[0] = ty.size_bytes();
        for i in 0..rank {
            map.dims[i] = word(16 + 4 * i, 4) + 1;
            map.counts[i] = word(68 + 2 * i, 2);
            if i > 0 {
                map.strides[i] = word(36 + 8 * (i - 1), 8);
                map.steps[i] = u64::from(bytes[78 + i]);
            }
        }
        let within = |all: [u64; RANKS], most| all.iter().all(|n| (1..=most).contains(n));
        let line = map.counts[0] * ty.size_bytes();
        let fits = map.swizzle == Swizzle::None || line <= map.swizzle.line_bytes();
        let sound = within(map.counts, 256) && within(map.steps, 8) && fits;
        if !sound || !line.is_multiple_of(16) || !map.address.is_multiple_of(16) {
            return None;
        }
        for (count, step) in map.counts.iter_mut().zip(map.steps) {
            *count = count.div_ceil(step);
        }
        Some(map)
    }
}

/// FNV-1a.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |state, byte| {
        (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> TensorMap {
        TensorMap::tiled(TensorType::F16, 4096, &[64, 16], &[128], &[32, 8])
    }

    #[test]
    fn a_map_comes_back() {
        let map = TensorMap {
            element_strides: vec![1, 3],
            swizzle: Swizzle::B64,
            fill: Fill::Nan,
            ..plain()
        };
        let bytes = map.encode().unwrap();
        let back = TensorMap::decode(&bytes).unwrap();
        assert_eq!((back.ty, back.address, back.rank), (TensorType::F16, 4096, 2));
        assert_eq!((back.dims[..2].to_vec(), back.strides[1]), (vec![64, 16], 128));
        assert_eq!((back.counts[..2].to_vec(), back.steps[1]), (vec![32, 3], 3));
        assert_eq!((back.swizzle, back.fill), (Swizzle::B64, Fill::Nan));
        for at in 0..96 {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert!(TensorMap::decode(&changed).is_none(), "byte {at}");
        }
        // A kernel may forge the sum, not the rules.
        for (at, value) in [(84, 0), (84, 6), (83, 13), (69, 2), (70, 0), (79, 9), (8, 1), (68, 31)]
        {
            let mut forged = bytes;
            forged[at] = value;
            let total = sum(&forged[..SUM]);
            forged[SUM..SUM + 8].copy_from_slice(&total.to_le_bytes());
            assert!(TensorMap::decode(&forged).is_none(), "byte {at}");
        }
    }

    #[test]
    fn what_the_machine_lacks_says_its_name() {
        let map = TensorMap { interleave: Interleave::B32, ..plain() };
        let error = map.encode().unwrap_err();
        assert_eq!(error.to_string(), "CU_TENSOR_MAP_INTERLEAVE_32B is not supported");
    }
}
