//! What a contract promises: where NaN may reach, how near outputs must be, relations between runs,
//! calls that are refused. Every promise is a clause with an id of its own.

use super::{Compare, DTypeRef, ErrorKind, Named, Word};
use crate::dtype::DType;
use crate::expr::Expr;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// NaN's policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NanPolicy {
    /// Tensors NaN may be planted in.
    pub into: Vec<String>,
    /// How far each output may spread it beyond the reference.
    pub reach: Named<Reach>,
}

/// How far NaN may spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Exactly where the reference is NaN.
    Exact,
    /// Also elsewhere in the same innermost row.
    Row,
    /// Also earlier rows of the same chunk, of the same head.
    Chunk,
}

/// One tolerance, for the cases `when` admits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tolerance {
    /// Which cases; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Expr>,
    /// Bit-equal, NaN by class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<Empty>,
    /// |y−r| ≤ u_out|r| + Σ times·unit·magnitude + floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
}

/// Which of a kernel's entries a plan must choose: what nothing else shows, for every one of them is
/// right. Exactly one of `takes` and `never`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// Some launch's entry has this word in its name, between `_`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes: Option<String>,
    /// No launch's entry has this word in its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never: Option<String>,
    /// Under which choices; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Expr>,
    /// For which sizes; all when absent.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Expr>,
    /// Where every row of these tensors, of those that are present, begins on a multiple of so many
    /// elements.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub pieces: Named<Expr>,
}

impl Path {
    /// Its two forms, and which of them it is.
    pub fn forms(&self) -> [(&'static str, bool); 2] {
        [("takes", self.takes.is_some()), ("never", self.never.is_some())]
    }

    /// The word of an entry it speaks of; none in a path of no form.
    pub fn word(&self) -> Option<&str> {
        self.takes.as_deref().or(self.never.as_deref())
    }

    /// Whether an entry of this name is one of those it speaks of.
    pub fn names(&self, entry: &str) -> bool {
        self.word().is_some_and(|word| entry.split('_').any(|part| part == word))
    }
}

/// `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// The one numeric form of tolerance. Larger means looser in every field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The type of the final rounding: half a unit in the last place of the reference value.
    pub round_out: DTypeRef,
    /// What becomes of a finite value past the type's largest number.
    #[serde(default, skip_serializing_if = "Overflow::is_infinite")]
    pub overflow: Overflow,
    /// Magnitude name to coefficient.
    pub terms: Named<Term>,
    /// Absolute part.
    pub floor: f64,
}

/// What a finite value past the largest number of its type is stored as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// Infinity, as IEEE 754 rounds.
    #[default]
    Infinite,
    /// The largest number; infinity only where the reference has infinity.
    Saturates,
}

impl Overflow {
    fn is_infinite(&self) -> bool {
        *self == Overflow::Infinite
    }
}

/// One term of a bound: `times · unit · magnitude`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// Coefficient.
    pub times: f64,
    /// Unit roundoff of a type or dtype symbol.
    pub unit: DTypeRef,
}

/// Relative RMS per group ≤ times·measure + plus, for groups that are well conditioned
/// (‖r‖ ≥ 2⁻⁸ of the norm of the magnitude `paths`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Drift {
    /// Which cases; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Expr>,
    /// How many leading axes of the tensor make a group.
    pub axes: usize,
    /// Coefficient.
    pub times: f64,
    /// A measure the reference returns per group.
    pub of: String,
    /// Absolute part.
    pub plus: f64,
}

/// A promise about two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Relation {
    /// Each index of the axis run alone gives the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<OverAxis>,
    /// Two runs, one after the other, give the same as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// Another contract, through an adapter in Rust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equals: Option<Equals>,
    /// Dead elements appended to every row change nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_dead: Option<OverAxis>,
    /// The same tensors under other options or variants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same: Option<Same>,
    /// One output repeats another's slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<Copies>,
    /// The indices of an axis in another order give the same, in that order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permute: Option<OverAxis>,
    /// One row of each segment after another gives what one run gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Carried>,
    /// Each index of one axis with its share of another, run alone, gives the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<Heads>,
    /// Inputs times a power of two give outputs times the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scaled>,
    /// The same call with another scalar, in the same process, gives what the reference says, and the
    /// first call then gives what it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall: Option<Recall>,
    /// The launches planned for one call, run again with other lengths in the same memory, give what
    /// the reference says: what a captured graph does when it is replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Carried>,
    /// Which cases; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Expr>,
    /// How.
    pub compare: Compare,
}

impl Relation {
    /// Every form a relation may have, and which this one has.
    pub fn forms(&self) -> [(&'static str, bool); 12] {
        [
            ("alone", self.alone.is_some()),
            ("split", self.split.is_some()),
            ("equals", self.equals.is_some()),
            ("append_dead", self.append_dead.is_some()),
            ("same", self.same.is_some()),
            ("copies", self.copies.is_some()),
            ("permute", self.permute.is_some()),
            ("steps", self.steps.is_some()),
            ("heads", self.heads.is_some()),
            ("scale", self.scale.is_some()),
            ("recall", self.recall.is_some()),
            ("replay", self.replay.is_some()),
        ]
    }
}

/// Runs one after another over the segments of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// The list of segment lengths.
    pub list: String,
    /// Tensors handed from run to run.
    pub carry: Vec<String>,
}

/// Groups of heads: index h of `of` belongs with the h-th equal share of `with`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Heads {
    /// The dim with an index a group.
    pub of: String,
    /// The dim that is a multiple of it.
    pub with: String,
}

/// Tensors times 2^power.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scaled {
    /// Inputs.
    pub tensors: Vec<String>,
    /// The power of two.
    pub power: i32,
    /// Outputs that scale alike.
    pub outputs: Vec<String>,
}

/// The scalar a second call changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recall {
    /// A scalar.
    pub change: String,
}

/// Names one axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OverAxis {
    /// A dim.
    pub axis: String,
}

/// Cuts each segment of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// The list of segment lengths.
    pub list: String,
    /// The cut is a multiple of this.
    pub at: Expr,
    /// Tensors handed from the first run to the second.
    pub carry: Vec<String>,
}

/// Another contract gives the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Equals {
    /// The contract.
    pub contract: String,
    /// The adapter, a name registered in Rust.
    pub adapter: String,
    /// Words of the other contract's options and variants that this one lacks.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub set: Named<Word>,
}

/// The same logical inputs under other words: tensors both runs write are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Same {
    /// Options and variants to other words.
    pub set: Named<Word>,
}

/// Row n of one output is the slot of another that a list names for n, in one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Copies {
    /// The output in a pool.
    pub of: String,
    /// The output over the list's axis.
    pub into: String,
    /// The list of slots.
    pub by: String,
}

/// One edit of a legal call that must be refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rejection {
    /// Tensor to a type it must not have.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub set_dtype: Named<DType>,
    /// Tensor to a shape it must not have.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub set_shape: Named<Vec<Expr>>,
    /// Tensor to a row stride, in elements.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub set_stride: Named<Expr>,
    /// Dim to a value.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub set_dim: Named<Expr>,
    /// The error expected.
    pub error: ErrorKind,
    /// Where it is found.
    #[serde(default)]
    pub detected: Detected,
}

/// Where a refusal is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Detected {
    /// From the arguments, before anything is launched.
    #[default]
    Plan,
    /// A device word the kernel writes: an ordinary output.
    Status,
    /// The caller's obligation; never generated.
    Caller,
}
