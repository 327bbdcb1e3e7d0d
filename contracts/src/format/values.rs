//! The closed lists of domains and of generators: what callers may pass and what is drawn. A name here
//! has one meaning; how it is drawn is decided where cases are generated.

use crate::dtype::DType;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Which values are legal, elementwise unless said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Domain {
    /// Every bit pattern.
    Any,
    /// No NaN, no infinity.
    Finite,
    /// Finite and above zero.
    Positive,
    /// Finite and not zero.
    Nonzero,
    /// Between the two, inclusive.
    Range([f64; 2]),
    /// Between the two, inclusive, or an infinity; one is drawn only where a fixture plants it.
    RangeOrInfinite([f64; 2]),
    /// This or less, −∞ included.
    AtMost(f64),
    /// The L2 norm of each innermost row is at most this.
    RowNorm(f64),
}

/// A named generator of values. Each is pointwise: a function of seed, tensor and coordinates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// All zero.
    Zero,
    /// One value everywhere.
    Constant(f64),
    /// N(0, σ).
    Normal(f64),
    /// Uniform between the two.
    Uniform([f64; 2]),
    /// ±2^e with e uniform between the two.
    LogUniform([f64; 2]),
    /// 1/√dim, for a scalar.
    ModelScale(String),
    /// Innermost rows of unit L2 norm.
    UnitRows,
    /// Unit rows, a share c of each common to all rows; c from the list.
    CorrelatedRows(Vec<f64>),
    /// Rows of one ±1, each at a drawn one of so many places, as far apart as the row allows: two rows are
    /// alike, opposite or orthogonal, so what one pair of rows shares is not lost among all the others.
    AxisRows(u64),
    /// Distinct, increasing along the row-major order.
    Ramp,
    /// N(0,1) with one element of the tensor ×2¹⁰.
    Spike,
    /// N(0,1) with one element of each row ×2¹⁰, at a drawn place.
    SpikedRows,
    /// Different significands, exponents near zero, never a power of two.
    DistinctMantissas,
    /// Every bit pattern of a one-byte type, cycling.
    AllCodes,
    /// Multiples of 1/8 up to 2: sums and products of many are exact in any order.
    Lattice,
    /// One 1 a row, along the diagonal: a product with it is a copy of a row.
    OneHotRows,
    /// The same size everywhere, signs alternating along the row.
    Alternating,
    /// Halfway between two neighbours of a narrower type, where it rounds to even.
    Midpoints(DType),
    /// NaN of many payloads, quiet and signalling, of either sign, among numbers.
    NanPayloads,
    /// Bits from a hash of the coordinates: costs only the elements looked at.
    Hashed,
    /// ±0, subnormals, ±∞, extremes, NaN.
    Specials,
    /// Rows with equal largest values planted at the named places.
    Ties {
        /// Where the equal values lie.
        places: Vec<TiePlace>,
    },
    /// −∞ everywhere but for as many survivors a row as one of the list.
    Masked {
        /// Survivor counts to choose from.
        survivors: Vec<u64>,
    },
    /// Values in a band, all at or above the rest of the row, side by side from a drawn place on.
    Crowd {
        /// Lowest and highest of them.
        band: [f64; 2],
        /// How many, at most the whole row.
        count: u64,
    },
    /// Above one thing that fills the rest of the row (numbers far below, −∞, NaN, or some of each), up
    /// to this many contenders: equal, neighbouring, negative or zeros of either sign, scattered or side
    /// by side from a drawn place on. Which of a row's elements wins, and what it leaves behind, differs
    /// from row to row.
    Contenders(u64),
    /// Teeth above the rest of the row, from a drawn place on: one position of every vector, or all that
    /// one thread looks at, when the distance is a vector's or a block's. Half of the rows have one value
    /// in all teeth.
    Comb {
        /// Elements from tooth to tooth, one of these a row; 1 is the whole row.
        every: Vec<u64>,
        /// Elements of a tooth.
        width: u64,
        /// Values of a tooth's elements.
        values: Vec<Number>,
        /// Teeth' first elements that are missing, at most.
        gaps: u64,
    },
    /// One value at named places of each row, N(0,1) elsewhere.
    Planted {
        /// The value.
        value: Number,
        /// The places.
        at: Vec<PlantPlace>,
    },
    /// One to four runs of equal values, each drawn from these: what an early end or a late start
    /// of a walk along the row confuses.
    Runs(Vec<Number>),
    /// Log decays drawn for each key channel by itself.
    LogDecays(LogDecay),
    /// These bits, cycling in row-major order.
    Literal(Vec<u64>),
}

/// A number in YAML, `nan` and `inf` included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(pub f64);

impl Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value if value.is_nan() => serializer.serialize_str("nan"),
            value if value.is_infinite() => {
                serializer.serialize_str(if value > 0.0 { "inf" } else { "-inf" })
            }
            value => serializer.serialize_f64(value),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Number(n) => {
                Ok(Number(n.as_f64().ok_or_else(|| serde::de::Error::custom("not an f64"))?))
            }
            serde_json::Value::String(s) => match s.as_str() {
                "nan" => Ok(Number(f64::NAN)),
                "inf" => Ok(Number(f64::INFINITY)),
                "-inf" => Ok(Number(f64::NEG_INFINITY)),
                other => Err(serde::de::Error::custom(format!(
                    "`{other}` is not a number; write a number, nan, inf or -inf"
                ))),
            },
            other => Err(serde::de::Error::custom(format!("`{other}` is not a number"))),
        }
    }
}

impl JsonSchema for Number {
    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}],
            "description": "A number, nan or an infinity."
        })
    }
}

/// Where equal values are planted in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TiePlace {
    /// Elements one thread visits: equal modulo a block.
    Lane,
    /// Neighbours within 32.
    Warp,
    /// Far apart.
    Block,
    /// Including the last element.
    Last,
}

/// How far each key channel of a row decays (linear_attention §5d).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogDecay {
    /// −5σ(N(0,1)): the lower-bound law.
    Lb,
    /// −5 everywhere: its bound.
    Lbmax,
    /// −5 in 30 of 100 channels, −10⁻³ in the others: forgotten beside kept.
    Mix,
    /// −e^U(−9,−5).
    Slow,
}

/// A place in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlantPlace {
    /// Index 0.
    First,
    /// The last index.
    Last,
}

/// A generator over several tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Joint {
    /// The gates of the gated delta rule, one decay class per (sequence, head), in whichever form is
    /// present: log decay or decay with β, or what they are computed from.
    GdnGates {
        /// Tensor of log decays.
        log: String,
        /// Tensor of decays e^g.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        alpha: Option<String>,
        /// Tensor of β.
        beta: String,
        /// Raw gates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw: Option<RawGates>,
        /// Classes to draw from.
        classes: Vec<GateClass>,
    },
}

impl Joint {
    /// Every tensor the generator may write.
    pub fn tensors(&self) -> impl Iterator<Item = &str> {
        let Joint::GdnGates { log, alpha, beta, raw, .. } = self;
        let raw = raw.iter().flat_map(|raw| [&raw.a, &raw.b, &raw.dt_bias, &raw.a_log]);
        [log, beta].into_iter().chain(alpha).chain(raw).map(String::as_str)
    }
}

/// Tensors gates are computed from (linear_attention §4): g = −e^a_log·softplus(a + dt_bias), β = σ(b).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawGates {
    /// Tensor of a, a row a sequence.
    pub a: String,
    /// Tensor of b.
    pub b: String,
    /// Tensor of biases of a, one a head.
    pub dt_bias: String,
    /// Tensor of logarithms of the rate, one a head.
    pub a_log: String,
}

/// Decay classes of the gated delta rule (linear_attention §0.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateClass {
    /// g = 0.
    One,
    /// g = −e^U(−9,−5).
    Slow,
    /// g = −A·softplus(dt), A ~ U(1,16), dt ~ N(−4,1).
    Model,
    /// g = −e^U(−1,2).
    Fast,
    /// g ∈ [−2,−0.1], β ∈ [0.2,0.8].
    Discriminating,
}
