//! A call as a consumer makes it: explicit layouts, types and options, nothing inferred.
//! Checks consume a `Call` and answer with a typed `Rejection`; nothing is written or launched before all pass.

use contracts::dtype::DType;
use contracts::format::{ErrorKind, ScaleKind};
use std::fmt;

/// A tensor argument: where it lies and how.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorArg {
    /// Element type.
    pub dtype: DType,
    /// Logical shape, outermost axis first.
    pub shape: Vec<u64>,
    /// Stride of each axis, in elements.
    pub strides: Vec<u64>,
    /// Which allocation; allocations start 256-byte aligned and never overlap.
    pub buffer: u32,
    /// Distance of element 0 from the allocation's start, in bytes.
    pub offset_bytes: u64,
    /// Scale kind, if the tensor is a scale.
    pub kind: Option<ScaleKind>,
}

/// A scalar argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarArg {
    /// f32, as bits.
    F32(u32),
    /// i32.
    I32(i32),
    /// i64.
    I64(i64),
}

/// All arguments of one kernel call, by the contract's names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// Present tensors; an absent one is a null argument.
    pub tensors: Vec<(String, TensorArg)>,
    /// Scalars.
    pub scalars: Vec<(String, ScalarArg)>,
    /// Options and variants: words.
    pub words: Vec<(String, String)>,
}

/// Why a call was refused. Nothing was launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The closed class of the error.
    pub kind: ErrorKind,
    /// The argument at fault.
    pub argument: String,
    /// What is wrong and what would be right.
    pub detail: String,
}

impl Rejection {
    /// A refusal of one argument.
    pub fn new(kind: ErrorKind, argument: &str, detail: impl Into<String>) -> Self {
        Rejection { kind, argument: argument.to_owned(), detail: detail.into() }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}: {}", self.kind, self.argument, self.detail)
    }
}

impl std::error::Error for Rejection {}

impl Call {
    /// The tensor, or a `Shape` rejection saying it is missing.
    pub fn tensor(&self, name: &str) -> Result<&TensorArg, Rejection> {
        self.optional_tensor(name)
            .ok_or_else(|| Rejection::new(ErrorKind::Shape, name, "missing; the call must pass it"))
    }

    /// The tensor, or `None` for a null argument.
    pub fn optional_tensor(&self, name: &str) -> Option<&TensorArg> {
        self.tensors.iter().find(|(key, _)| key == name).map(|(_, tensor)| tensor)
    }

    /// The word of an option or variant.
    pub fn word(&self, name: &str) -> Result<&str, Rejection> {
        self.words
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, word)| word.as_str())
            .ok_or_else(|| Rejection::new(ErrorKind::Shape, name, "missing option"))
    }

    /// An f32 scalar.
    pub fn f32(&self, name: &str) -> Result<f32, Rejection> {
        match self.scalars.iter().find(|(key, _)| key == name) {
            Some((_, ScalarArg::F32(bits))) => Ok(f32::from_bits(*bits)),
            Some(_) => Err(Rejection::new(ErrorKind::Dtype, name, "must be an f32 scalar")),
            None => Err(Rejection::new(ErrorKind::Shape, name, "missing scalar")),
        }
    }

    /// An i32 scalar.
    pub fn i32(&self, name: &str) -> Result<i32, Rejection> {
        match self.scalars.iter().find(|(key, _)| key == name) {
            Some((_, ScalarArg::I32(value))) => Ok(*value),
            Some(_) => Err(Rejection::new(ErrorKind::Dtype, name, "must be an i32 scalar")),
            None => Err(Rejection::new(ErrorKind::Shape, name, "missing scalar")),
        }
    }

    /// Refuses any overlap of a written tensor's extent with another tensor's extent, unless both
    /// are interleaved slices of equal rows that never share an element.
    pub fn no_alias(&self, written: &[&str]) -> Result<(), Rejection> {
        for name in written {
            let Some(tensor) = self.optional_tensor(name) else { continue };
            for (other_name, other) in &self.tensors {
                if other_name != name && tensor.overlaps(other) {
                    return Err(Rejection::new(
                        ErrorKind::Alias,
                        name,
                        format!(
                            "is written and overlaps `{other_name}`; give it memory of its own"
                        ),
                    ));
                }
            }
        }
        Ok(())
    }
}

impl TensorArg {
    /// Number of elements.
    pub fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes from element 0 to the end of the last element; 0 when empty.
    pub fn extent_bytes(&self) -> u64 {
        if self.count() == 0 {
            return 0;
        }
        let last: u64 = self
            .shape
            .iter()
            .zip(&self.strides)
            .map(|(extent, stride)| (extent - 1) * stride)
            .sum();
        (last + 1) * self.dtype.size_bytes()
    }

    fn overlaps(&self, other: &TensorArg) -> bool {
        let (mine, theirs) = (self.extent_bytes(), other.extent_bytes());
        if self.buffer != other.buffer || mine == 0 || theirs == 0 {
            return false;
        }
        let apart = self.offset_bytes + mine <= other.offset_bytes
            || other.offset_bytes + theirs <= self.offset_bytes;
        !apart && !self.interleaves(other)
    }

    /// Two slices of the same packed rows: equal row pitch, and byte windows within the pitch that
    /// do not meet.
    fn interleaves(&self, other: &TensorArg) -> bool {
        let (Some(pitch), Some(other_pitch)) = (self.pitch_bytes(), other.pitch_bytes()) else {
            return false;
        };
        if pitch != other_pitch || pitch == 0 {
            return false;
        }
        let (mine, theirs) = (self.row_bytes(), other.row_bytes());
        let (a, b) = (self.offset_bytes % pitch, other.offset_bytes % pitch);
        a + mine <= pitch && b + theirs <= pitch && (a + mine <= b || b + theirs <= a)
    }

    fn pitch_bytes(&self) -> Option<u64> {
        self.strides.first().map(|stride| stride * self.dtype.size_bytes())
    }

    /// Bytes one index of the first axis spans.
    fn row_bytes(&self) -> u64 {
        let last: u64 = self
            .shape
            .iter()
            .zip(&self.strides)
            .skip(1)
            .map(|(extent, stride)| extent.saturating_sub(1) * stride)
            .sum();
        (last + 1) * self.dtype.size_bytes()
    }

    /// Checks the type.
    pub fn dtype_in(&self, name: &str, allowed: &[DType]) -> Result<&Self, Rejection> {
        if allowed.contains(&self.dtype) {
            return Ok(self);
        }
        let words: Vec<_> = allowed.iter().map(|dtype| dtype.name()).collect();
        let detail = format!("is {}; must be {}", self.dtype, words.join(" or "));
        Err(Rejection::new(ErrorKind::Dtype, name, detail))
    }

    /// Checks the shape exactly.
    pub fn shape_is(&self, name: &str, expected: &[u64]) -> Result<&Self, Rejection> {
        if self.shape == expected {
            return Ok(self);
        }
        let detail = format!("has shape {:?}; must be {expected:?}", self.shape);
        Err(Rejection::new(ErrorKind::Shape, name, detail))
    }

    /// Checks the number of axes and returns the shape.
    pub fn axes<const N: usize>(&self, name: &str) -> Result<[u64; N], Rejection> {
        <[u64; N]>::try_from(self.shape.as_slice()).map_err(|_| {
            let detail = format!("has {} axes; must have {N}", self.shape.len());
            Rejection::new(ErrorKind::Shape, name, detail)
        })
    }

    /// Checks that every axis but the first is contiguous and that rows do not overlap; returns the
    /// row stride in elements.
    pub fn row_stride(&self, name: &str) -> Result<u64, Rejection> {
        let mut run = 1;
        for axis in (1..self.shape.len()).rev() {
            if self.strides[axis] != run && self.shape[axis] > 1 {
                let detail = format!(
                    "axis {axis} has stride {}; must be {run}: only the first axis may be padded",
                    self.strides[axis]
                );
                return Err(Rejection::new(ErrorKind::Shape, name, detail));
            }
            run *= self.shape[axis];
        }
        let stride = self.strides.first().copied().unwrap_or(run);
        if stride < run && self.shape.first().copied().unwrap_or(0) > 1 {
            let detail = format!("row stride {stride} is shorter than a row of {run} elements");
            return Err(Rejection::new(ErrorKind::Shape, name, detail));
        }
        Ok(stride)
    }

    /// Checks that the base, and the row stride where there is a second row, are multiples of `bytes`.
    pub fn aligned(&self, name: &str, bytes: u64) -> Result<&Self, Rejection> {
        let pitch = self.pitch_bytes().unwrap_or(0);
        let rows = self.shape.first().copied().unwrap_or(1);
        if !self.offset_bytes.is_multiple_of(bytes) {
            let detail =
                format!("base is {} bytes past a {bytes}-byte boundary", self.offset_bytes % bytes);
            return Err(Rejection::new(ErrorKind::Align, name, detail));
        }
        if rows > 1 && !pitch.is_multiple_of(bytes) {
            let detail = format!("row pitch of {pitch} bytes is not a multiple of {bytes}");
            return Err(Rejection::new(ErrorKind::Align, name, detail));
        }
        Ok(self)
    }
}
