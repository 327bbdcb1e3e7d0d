//! What a reference sees (logical tensors, scalars, options, lists) and what it returns.
//! Variants and layouts are not here, so a reference cannot depend on them.

use contracts::dtype::DType;
use contracts::logical::Logical;

/// Logical inputs of one case.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Every tensor the kernel reads, by contract name.
    pub tensors: Vec<(String, Logical)>,
    /// Dtype symbols: an exact result is rounded to the type its symbol names.
    pub dtypes: Vec<(String, DType)>,
    /// Scalars, as values.
    pub scalars: Vec<(String, f64)>,
    /// Options, as words.
    pub options: Vec<(String, String)>,
    /// Dims.
    pub dims: Vec<(String, i64)>,
    /// Lists, for example segment lengths and slots.
    pub lists: Vec<(String, Vec<i64>)>,
}

/// Results by tensor name. Dead elements hold anything.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// Every written tensor.
    pub tensors: Vec<(&'static str, Expected)>,
}

/// The expected contents of one tensor, by flat row-major index.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// Exact bits.
    Bits(Vec<u64>),
    /// A value with the magnitudes and measures its tolerance is built from.
    Real {
        /// The value before rounding to the output type.
        value: Vec<f64>,
        /// Named magnitudes, elementwise: `paths`, `paths_gamma`, `abs_sum`…
        magnitudes: Vec<(&'static str, Vec<f64>)>,
        /// Named measures, one per group of leading axes: `rounding_walk`, `one_plus_gamma_32`…
        measures: Vec<(&'static str, Vec<f64>)>,
    },
}

impl Inputs {
    /// The tensor of this name.
    ///
    /// # Panics
    /// If there is none: the caller offers a reference everything its contract declares.
    pub fn tensor(&self, name: &str) -> &Logical {
        offered("tensor", &self.tensors, name)
    }

    /// The type this symbol names.
    ///
    /// # Panics
    /// As `tensor`.
    pub fn dtype(&self, symbol: &str) -> DType {
        *offered("dtype", &self.dtypes, symbol)
    }

    /// The value of this scalar.
    ///
    /// # Panics
    /// As `tensor`.
    pub fn scalar(&self, name: &str) -> f64 {
        *offered("scalar", &self.scalars, name)
    }

    /// The word chosen for this option.
    ///
    /// # Panics
    /// As `tensor`.
    pub fn word(&self, option: &str) -> &str {
        offered("option", &self.options, option).as_str()
    }

    /// The size of this dim.
    ///
    /// # Panics
    /// As `tensor`.
    pub fn dim(&self, name: &str) -> i64 {
        *offered("dim", &self.dims, name)
    }

    /// The elements of this list.
    ///
    /// # Panics
    /// As `tensor`.
    pub fn list(&self, name: &str) -> &[i64] {
        offered("list", &self.lists, name).as_slice()
    }
}

impl Outputs {
    /// What is expected of this tensor, if the kernel writes it in this case.
    pub fn tensor(&self, name: &str) -> Option<&Expected> {
        self.tensors.iter().find(|(tensor, _)| *tensor == name).map(|(_, expected)| expected)
    }
}

impl Expected {
    /// Number of elements.
    pub fn count(&self) -> usize {
        match self {
            Expected::Bits(bits) => bits.len(),
            Expected::Real { value, .. } => value.len(),
        }
    }

    /// The magnitude of this name; `None` for exact bits and unknown names.
    pub fn magnitude(&self, name: &str) -> Option<&[f64]> {
        match self {
            Expected::Bits(_) => None,
            Expected::Real { magnitudes, .. } => named(magnitudes, name),
        }
    }

    /// The measure of this name; `None` for exact bits and unknown names.
    pub fn measure(&self, name: &str) -> Option<&[f64]> {
        match self {
            Expected::Bits(_) => None,
            Expected::Real { measures, .. } => named(measures, name),
        }
    }
}

fn offered<'a, T>(kind: &str, among: &'a [(String, T)], name: &str) -> &'a T {
    among
        .iter()
        .find_map(|(other, value)| (other == name).then_some(value))
        .unwrap_or_else(|| panic!("the reference reads {kind} `{name}`, which the inputs lack"))
}

fn named<'a>(among: &'a [(&'static str, Vec<f64>)], name: &str) -> Option<&'a [f64]> {
    among.iter().find(|(other, _)| *other == name).map(|(_, values)| values.as_slice())
}
