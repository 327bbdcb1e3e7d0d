//! The contract as typed Rust: every section of the YAML and nothing else. A field that no code
//! reads does not exist; unknown fields are refused. Expressions are parsed when the file is.

mod promises;
mod values;

pub use promises::{
    Bound, Carried, Copies, Detected, Drift, Empty, Equals, Heads, NanPolicy, OverAxis, Overflow,
    Path, Reach, Recall, Rejection, Relation, Same, Scaled, Split, Term, Tolerance,
};
pub use values::{
    Domain, GateClass, Joint, LogDecay, Number, PlantPlace, RawGates, TiePlace, Values,
};

use crate::dtype::DType;
use crate::expr::Expr;
use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Ordered map from a name to a section entry. Order carries no meaning.
pub type Named<T> = IndexMap<String, T>;

/// One contract: what one kernel promises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// The file's stem; also the kernel's, reference's, fuzz target's and corpus folder's name.
    pub contract: String,
    /// Rises whenever an older case would not decode to the same meaning.
    pub version: u32,
    /// What is promised about.
    pub kind: ContractKind,
    /// One sentence for a reader.
    pub summary: String,
    /// Where the equations stand.
    pub spec: String,
    /// Dtype symbols and the types each may take; the first is the simplest.
    pub dtypes: Named<Vec<DType>>,
    /// Choices with a meaning: the reference sees them.
    #[serde(default)]
    pub options: Named<Vec<String>>,
    /// Choices without a meaning: the reference cannot see them.
    #[serde(default)]
    pub variants: Named<Variant>,
    /// Sizes.
    pub dims: Named<Dim>,
    /// Integers that address or count.
    #[serde(default)]
    pub lists: Named<List>,
    /// Legality, tested from both sides.
    #[serde(default)]
    pub requires: Named<Requirement>,
    /// Numbers passed by value.
    #[serde(default)]
    pub scalars: Named<Scalar>,
    /// Tensors that may share one packed row.
    #[serde(default)]
    pub stores: Named<Store>,
    /// Everything in memory.
    pub tensors: Named<Tensor>,
    /// Generators that write several tensors together.
    #[serde(default)]
    pub joint: Named<Joint>,
    /// Where NaN may be planted and how far it may reach.
    #[serde(default)]
    pub nan: Option<NanPolicy>,
    /// How near each written tensor must be.
    pub tolerance: Named<Named<Tolerance>>,
    /// A second gate per group of elements.
    #[serde(default)]
    pub drift: Named<Named<Drift>>,
    /// Promises about two runs.
    #[serde(default)]
    pub relations: Named<Relation>,
    /// Launches that a plan must choose, or must not, wherever the call allows it.
    #[serde(default)]
    pub paths: Named<Path>,
    /// Calls that must be refused with a typed error and untouched memory.
    #[serde(default)]
    pub rejects: Named<Rejection>,
    /// Named partial assignments, always run.
    #[serde(default)]
    pub fixtures: Named<Fixture>,
    /// Wrong kernels that must be caught; the source edit lives beside the kernel under the same id.
    #[serde(default)]
    pub mutants: Named<Mutant>,
    /// Large named shapes, for a GPU only.
    #[serde(default)]
    pub production: Named<Fixture>,
    /// House rules this contract weakens, each with a reason.
    #[serde(default)]
    pub except: Named<String>,
    /// Changes, newest last.
    #[serde(default)]
    pub history: Vec<HistoryEntry>,
}

impl Contract {
    /// The format as a JSON Schema (draft 2020-12), for editors that check YAML while it is written.
    /// Names, types and closed lists are in it; what a field means for another is checked on loading.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(Contract).to_value()
    }
}

/// What a contract is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContractKind {
    /// One kernel call.
    Kernel,
}

/// A choice without a meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// The words, or numbers written as words.
    pub values: Vec<Word>,
    /// How equal two values' results must be.
    pub equal: Compare,
    /// Where a value is available; absent means everywhere.
    #[serde(default, rename = "where")]
    pub available: Named<Expr>,
}

/// A word or an integer in YAML, kept as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Word(pub String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyWord;
        impl serde::de::Visitor<'_> for AnyWord {
            type Value = Word;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a word or an integer")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Word, E> {
                Ok(Word(text.to_owned()))
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Word, E> {
                Ok(Word(value.to_string()))
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Word, E> {
                Ok(Word(value.to_string()))
            }
        }
        deserializer.deserialize_any(AnyWord)
    }
}

impl JsonSchema for Word {
    fn schema_name() -> Cow<'static, str> {
        "Word".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "integer"], "description": "A word or an integer."})
    }
}

/// How two runs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compare {
    /// Bit for bit (NaN by class).
    Bits,
    /// Within both runs' bounds together.
    Bound,
}

/// A size. Exactly one of the forms; `edges` only with `range`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dim {
    /// Inclusive bounds of what is drawn; callers may exceed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[i64; 2]>,
    /// Values drawn more often.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<i64>,
    /// The only legal values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<i64>,
    /// A multiple of this; the decision is `factor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiple_of: Option<Expr>,
    /// Inclusive bounds of the factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<[i64; 2]>,
    /// At least this; the decision is `slack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Expr>,
    /// Inclusive bounds of the slack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack: Option<[i64; 2]>,
    /// Exactly this; no decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<Expr>,
    /// The sum of a list, one segment an element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<String>,
    /// Physical rows past the last segment, inclusive bounds of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<[i64; 2]>,
}

/// A list of integers, one an index of an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// The dim that says how many.
    pub each: String,
    /// Lengths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<Lengths>,
    /// Places in a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<Slots>,
    /// Row numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Ids>,
    /// Computed from the same index of other lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<Expr>,
}

/// Lengths drawn from an inclusive range, edges more often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lengths {
    /// Inclusive bounds of what is drawn.
    pub range: [i64; 2],
    /// Values drawn more often.
    #[serde(default)]
    pub edges: Vec<i64>,
}

/// Distinct places in a pool; some may be pads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Slots {
    /// The dim that sizes the pool.
    pub pool: String,
    /// Values meaning "no place", all negative.
    #[serde(default)]
    pub pad: Vec<i64>,
}

/// Row numbers below a dim; some may be invalid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    /// The dim that bounds them.
    pub below: String,
    /// Expressions of values outside the table.
    #[serde(default)]
    pub invalid: Vec<Expr>,
    /// Whether a row may be named twice.
    #[serde(default)]
    pub repeats: bool,
}

/// Legal cases satisfy `that`; cases that break only it are refused with `else`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// The condition.
    pub that: Expr,
    /// The error a violation gets.
    #[serde(rename = "else")]
    pub otherwise: ErrorKind,
}

/// The closed list of refusals.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A dim, or a shape against the others.
    Shape,
    /// An element type.
    Dtype,
    /// The shape of a scale.
    ScaleShape,
    /// The kind of a scale.
    ScaleKind,
    /// The value of a scale.
    ScaleValue,
    /// A row or slot outside its table.
    IdRange,
    /// A base, offset or stride not a multiple of the declared alignment.
    Align,
    /// A written tensor overlaps another.
    Alias,
    /// One place named twice.
    Duplicate,
    /// A value that must be finite.
    Nonfinite,
    /// An event in the wrong state.
    State,
    /// A pool that is too small.
    Capacity,
}

/// A number passed by value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scalar {
    /// Its type.
    pub dtype: DType,
    /// What callers may pass.
    pub domain: Domain,
    /// What is drawn.
    pub values: Vec<Values>,
}

/// Tensors that may be slices of one packed row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Their first axis.
    pub along: String,
    /// The tensors, in the order of the packed row.
    pub holds: Vec<String>,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Who touches it.
    pub access: By<Access>,
    /// A type, or a dtype symbol.
    pub dtype: DTypeRef,
    /// Logical shape, outermost axis first.
    pub shape: Vec<Expr>,
    /// Absent when this fails: a null argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Expr>,
    /// Physical layouts callers may use; dense alone when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layout: Vec<LayoutKind>,
    /// Alignment of base, offset and row stride, in bytes; the element's size when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub align: Option<u64>,
    /// The list that names the only part that may be touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
    /// The scale's kind, never convertible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ScaleKind>,
    /// Contents that follow from a list: never drawn, mutated or shrunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Derivation>,
    /// What callers may pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<By<Domain>>,
    /// What is drawn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Values>,
}

impl Tensor {
    /// What callers may pass under these options; `None` for a tensor nobody passes contents in.
    pub fn domain_under(&self, options: &crate::case::Decisions<String>) -> Option<&Domain> {
        self.domain.as_ref()?.resolve(options)
    }
}

/// A value, or one per word of a single option.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum By<T> {
    /// The same in every case.
    Always(T),
    /// One per word of an option: `{by: {option: {word: value}}}`.
    Option {
        /// `option -> word -> value`; exactly one option, total over its words.
        by: Named<Named<T>>,
    },
}

impl<'de, T: serde::de::DeserializeOwned> Deserialize<'de> for By<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        match value.get("by") {
            Some(table) => serde_json::from_value(table.clone())
                .map(|by| By::Option { by })
                .map_err(|e| serde::de::Error::custom(format!("by: {e}"))),
            None => serde_json::from_value(value).map(By::Always).map_err(serde::de::Error::custom),
        }
    }
}

/// Who touches a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read only; bit-unchanged afterwards.
    Read,
    /// Written everywhere live; never read.
    Write,
    /// Read, then written in place.
    ReadWrite,
}

/// A type, or a symbol from `dtypes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct DTypeRef(pub String);

/// A physical layout's name; its amounts are decisions of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LayoutKind {
    /// Row-major without gaps.
    Dense,
    /// Gaps between indices of the first axis.
    RowPadded,
    /// Gaps between indices of the first axis of a pool; a row is a whole slot.
    OuterPadded,
    /// The first element lies past the buffer's start.
    Offset,
    /// The last two of three axes or more change places in memory.
    Permuted,
    /// Axes of one index have strides that mean nothing.
    OddUnitStrides,
    /// The last index of the first axis begins beyond 2³² elements.
    Wide,
    /// No axes at all: shape `[]` where the contract writes `["1"]`.
    Rank0,
}

/// `by` names a list; what it selects along the first axis is all that may be touched.
///
/// First axis = the list's pool (`slots`, `ids`): the indices listed. First axis = the list's
/// `each`: the indices whose entry is not a pad. First axis = segments over the same `each`: the
/// rows of such segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// The list.
    pub by: String,
}

/// Kinds of scale; one is never accepted for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScaleKind {
    /// One bf16 multiplier for the tensor.
    TensorBf16,
    /// One f32 multiplier for the tensor.
    TensorF32Multiplier,
    /// One f32 per row.
    RowF32,
    /// One f32 per 128×128 block.
    Block128F32,
}

/// How a derived tensor's contents follow from a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Derivation {
    /// The list itself.
    Copy(String),
    /// 0, then the running sums.
    PrefixSum(String),
}

/// A partial assignment; the rest is drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fixture {
    /// Dims.
    pub dims: Named<i64>,
    /// Lists.
    pub lists: Named<Vec<i64>>,
    /// Dtype symbols.
    pub dtypes: Named<DType>,
    /// Options.
    pub options: Named<Word>,
    /// Variants.
    pub variants: Named<Word>,
    /// Layouts of tensors.
    pub layout: Named<LayoutKind>,
    /// Values of tensors.
    pub values: Named<Values>,
    /// Class of a joint generator, by its name.
    pub joint: Named<GateClass>,
}

/// A wrong kernel and the clause that catches it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// A clause or a prefix of one.
    pub killed_by: String,
    /// The fixture that shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// Why no case can tell it from the kernel; then nothing has to catch it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equivalent: Option<String>,
}

/// One change of the contract.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryEntry {
    /// The version it led to; the one before again where older cases keep their meaning.
    pub version: u32,
    /// What it makes weaker, as `assay review` names it (`tolerance.o.bf16`, `dims.T`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clauses: Vec<String>,
    /// Why.
    pub because: String,
    /// Where it was discussed.
    pub link: String,
    /// What a case of an older version calls otherwise, by dotted path: `{dims.T: dims.tokens}`, a word
    /// of an option as `{options.order.rank: options.order.position}`, a clause likewise.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub renamed: Named<String>,
    /// What a case of an older version decides and today's does not, with the one value that means the
    /// same today; `~` where every value does. A case with another value cannot be read any more.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub retired: Named<serde_json::Value>,
    /// What a case of an older version does not decide, with what it meant all the same. One number
    /// stands for every item of a list and for every element of a tensor.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub added: Named<serde_json::Value>,
    /// Axes of extent 1 that tensors gained: the same bytes, one more coordinate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub axis: Vec<AxisAdded>,
}

impl HistoryEntry {
    /// Whether it says anything about how older cases are read.
    pub fn migrates(&self) -> bool {
        !(self.renamed.is_empty()
            && self.retired.is_empty()
            && self.added.is_empty()
            && self.axis.is_empty())
    }
}

/// An axis that a tensor gained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AxisAdded {
    /// The tensor.
    pub tensor: String,
    /// Its place among the axes, from 0.
    pub at: usize,
    /// The dim that is its extent: 1 in every older case.
    pub dim: String,
}
