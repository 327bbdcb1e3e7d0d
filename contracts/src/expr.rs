//! Expressions of a contract: integers, booleans and words, no floats. Evaluation is total and
//! checked in 128 bits: a case can make an expression fail, never panic or wrap. Division floors.

use crate::dtype::DType;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// An integer.
    Int(i128),
    /// A dim, list, option, variant or dtype symbol; a word when it is none of them.
    Name(Arc<str>),
    /// Logical negation.
    Not(Box<Expr>),
    /// Two operands.
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// Whether the first equals one of the others.
    In(Box<Expr>, Vec<Expr>),
    /// A call of one of the closed list of functions.
    Call(Function, Vec<Expr>),
}

/// Operators with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// The closed list of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `ceil_div(a, b)`: a / b, rounded up.
    CeilDiv,
    /// `align_up(a, b)`: the least multiple of b that is at least a.
    AlignUp,
    /// `min(a, b)`.
    Min,
    /// `max(a, b)`.
    Max,
    /// `sum(list)`.
    Sum,
    /// `largest(list)`; zero for an empty list.
    Largest,
    /// `count(list)`.
    Count,
    /// `bytes(dtype)`: the size of one element.
    Bytes,
}

/// What an expression evaluates to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// An integer.
    Int(i128),
    /// A truth value.
    Bool(bool),
    /// A value of an option or variant.
    Word(&'a str),
    /// A whole list.
    List(&'a [i64]),
    /// The type behind a dtype symbol.
    DType(DType),
}

/// Where names get their values.
pub trait Scope {
    /// The value of a name; `None` makes the name a word.
    fn value(&self, name: &str) -> Option<Value<'_>>;
}

/// Why an expression is not one, or has no value here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExprError {
    /// The text does not follow the grammar.
    Syntax {
        /// Byte offset of the surprise.
        at: usize,
        /// What was expected there.
        expected: String,
    },
    /// An operand has the wrong type, or its name has no value here.
    Operand {
        /// What the operator takes.
        wanted: &'static str,
        /// The operand as written, and what it is.
        found: String,
    },
    /// Beyond 128 bits.
    Overflow,
    /// Division by zero.
    DivideByZero,
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExprError::Syntax { at, expected } => write!(f, "at byte {at}: expected {expected}"),
            ExprError::Operand { wanted, found } => write!(f, "expected {wanted}, found {found}"),
            ExprError::Overflow => f.write_str("the result exceeds 128 bits"),
            ExprError::DivideByZero => f.write_str("division by zero"),
        }
    }
}

impl std::error::Error for ExprError {}

impl Function {
    /// All functions.
    pub const ALL: [Function; 8] = [
        Function::CeilDiv,
        Function::AlignUp,
        Function::Min,
        Function::Max,
        Function::Sum,
        Function::Largest,
        Function::Count,
        Function::Bytes,
    ];

    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            Function::CeilDiv => "ceil_div",
            Function::AlignUp => "align_up",
            Function::Min => "min",
            Function::Max => "max",
            Function::Sum => "sum",
            Function::Largest => "largest",
            Function::Count => "count",
            Function::Bytes => "bytes",
        }
    }

    /// How many arguments it takes.
    pub fn arity(self) -> usize {
        match self {
            Function::CeilDiv | Function::AlignUp | Function::Min | Function::Max => 2,
            Function::Sum | Function::Largest | Function::Count | Function::Bytes => 1,
        }
    }
}

impl Operator {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Operator::Or => "or",
            Operator::And => "and",
            Operator::Equal => "==",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::LessEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterEqual => ">=",
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Remainder => "%",
        }
    }

    /// How tightly it binds; a comparison does not chain.
    fn level(self) -> u8 {
        match self {
            Operator::Or => 0,
            Operator::And => 1,
            Operator::Equal
            | Operator::NotEqual
            | Operator::Less
            | Operator::LessEqual
            | Operator::Greater
            | Operator::GreaterEqual => 3,
            Operator::Add | Operator::Subtract => 4,
            Operator::Multiply | Operator::Divide | Operator::Remainder => 5,
        }
    }
}

impl Expr {
    /// Parses the grammar of the crate documentation.
    pub fn parse(text: &str) -> Result<Expr, ExprError> {
        crate::expr_parse::parse(text)
    }

    /// Every name it mentions, in order of appearance, each once. Words are among them.
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.collect_names(&mut names);
        names
    }

    fn collect_names<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Expr::Int(_) => {}
            Expr::Name(name) => {
                if !names.contains(&&**name) {
                    names.push(name);
                }
            }
            Expr::Not(inner) => inner.collect_names(names),
            Expr::Binary(_, left, right) => {
                left.collect_names(names);
                right.collect_names(names);
            }
            Expr::In(item, list) => {
                item.collect_names(names);
                list.iter().for_each(|e| e.collect_names(names));
            }
            Expr::Call(_, arguments) => arguments.iter().for_each(|e| e.collect_names(names)),
        }
    }

    /// Every whole number it mentions, in order of appearance.
    pub fn numbers(&self) -> Vec<i128> {
        match self {
            Expr::Int(value) => vec![*value],
            Expr::Name(_) => Vec::new(),
            Expr::Not(inner) => inner.numbers(),
            Expr::Binary(_, left, right) => [left.numbers(), right.numbers()].concat(),
            Expr::In(item, list) => {
                std::iter::once(&**item).chain(list).flat_map(Expr::numbers).collect()
            }
            Expr::Call(_, arguments) => arguments.iter().flat_map(Expr::numbers).collect(),
        }
    }

    /// Its value in this scope.
    pub fn eval<'a>(&'a self, scope: &'a dyn Scope) -> Result<Value<'a>, ExprError> {
        match self {
            Expr::Int(value) => Ok(Value::Int(*value)),
            Expr::Name(name) => Ok(scope.value(name).unwrap_or(Value::Word(name))),
            Expr::Not(inner) => inner.eval_bool(scope).map(|value| Value::Bool(!value)),
            Expr::Binary(Operator::Or, left, right) => {
                Ok(Value::Bool(left.eval_bool(scope)? || right.eval_bool(scope)?))
            }
            Expr::Binary(Operator::And, left, right) => {
                Ok(Value::Bool(left.eval_bool(scope)? && right.eval_bool(scope)?))
            }
            Expr::Binary(operator, left, right) => match operator.level() {
                3 => compare(*operator, left, right, scope).map(Value::Bool),
                _ => arithmetic(*operator, left.eval_int(scope)?, right.eval_int(scope)?)
                    .map(Value::Int),
            },
            Expr::In(item, list) => {
                for candidate in list {
                    if compare(Operator::Equal, item, candidate, scope)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            Expr::Call(function, arguments) => call(*function, arguments, scope).map(Value::Int),
        }
    }

    /// Its value, which must be an integer.
    pub fn eval_int(&self, scope: &dyn Scope) -> Result<i128, ExprError> {
        match self.eval(scope)? {
            Value::Int(value) => Ok(value),
            other => Err(operand("an integer", self, other)),
        }
    }

    /// Its value, which must be true or false.
    pub fn eval_bool(&self, scope: &dyn Scope) -> Result<bool, ExprError> {
        match self.eval(scope)? {
            Value::Bool(value) => Ok(value),
            other => Err(operand("a condition", self, other)),
        }
    }

    fn level(&self) -> u8 {
        match self {
            Expr::Int(_) | Expr::Name(_) | Expr::Call(..) => 6,
            Expr::Not(_) => 2,
            Expr::In(..) => 3,
            Expr::Binary(operator, ..) => operator.level(),
        }
    }
}

fn operand(wanted: &'static str, expr: &Expr, found: Value<'_>) -> ExprError {
    let found = match found {
        Value::Int(value) => format!("`{expr}`, the integer {value}"),
        Value::Bool(value) => format!("`{expr}`, which is {value}"),
        Value::Word(word) if matches!(expr, Expr::Name(name) if **name == *word) => {
            format!("`{expr}`, which has no value here")
        }
        Value::Word(word) => format!("`{expr}`, the word {word}"),
        Value::List(_) => format!("`{expr}`, a whole list"),
        Value::DType(dtype) => format!("`{expr}`, the type {dtype}"),
    };
    ExprError::Operand { wanted, found }
}

fn arithmetic(operator: Operator, a: i128, b: i128) -> Result<i128, ExprError> {
    let value = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide => return floor_div(a, b),
        // The remainder of flooring division: it has the divisor's sign.
        _ => {
            return floor_div(a, b).and_then(|q| {
                q.checked_mul(b).and_then(|qb| a.checked_sub(qb)).ok_or(ExprError::Overflow)
            });
        }
    };
    value.ok_or(ExprError::Overflow)
}

fn floor_div(a: i128, b: i128) -> Result<i128, ExprError> {
    if b == 0 {
        return Err(ExprError::DivideByZero);
    }
    let quotient = a.checked_div(b).ok_or(ExprError::Overflow)?;
    // Truncation and floor differ where the signs do and the division leaves a rest.
    Ok(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

fn compare(
    operator: Operator,
    left: &Expr,
    right: &Expr,
    scope: &dyn Scope,
) -> Result<bool, ExprError> {
    let (mut a, mut b) = (left.eval(scope)?, right.eval(scope)?);
    // Beside a choice a bare name is one of its words, even where a dim or list has that name too.
    match (a, b, left, right) {
        (Value::Word(_) | Value::DType(_), Value::Int(_) | Value::List(_), _, Expr::Name(word)) => {
            b = Value::Word(word);
        }
        (Value::Int(_) | Value::List(_), Value::Word(_) | Value::DType(_), Expr::Name(word), _) => {
            a = Value::Word(word);
        }
        _ => {}
    }
    let ordering = match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(&b),
        (Value::Word(_) | Value::DType(_), Value::Word(_) | Value::DType(_)) => {
            let equal = spelled(a) == spelled(b);
            return match operator {
                Operator::Equal => Ok(equal),
                Operator::NotEqual => Ok(!equal),
                _ => Err(operand("integers to order", left, a)),
            };
        }
        (Value::Int(_), other) => return Err(operand("an integer to compare", right, other)),
        (Value::Word(_) | Value::DType(_), other) => {
            return Err(operand("a word to compare", right, other));
        }
        (other, _) => return Err(operand("an integer or a word to compare", left, other)),
    };
    Ok(match operator {
        Operator::Equal => ordering == Ordering::Equal,
        Operator::NotEqual => ordering != Ordering::Equal,
        Operator::Less => ordering == Ordering::Less,
        Operator::LessEqual => ordering != Ordering::Greater,
        Operator::Greater => ordering == Ordering::Greater,
        _ => ordering != Ordering::Less,
    })
}

fn spelled(value: Value<'_>) -> &str {
    match value {
        Value::Word(word) => word,
        Value::DType(dtype) => dtype.name(),
        Value::Int(_) | Value::Bool(_) | Value::List(_) => "",
    }
}

fn call(function: Function, arguments: &[Expr], scope: &dyn Scope) -> Result<i128, ExprError> {
    let int = |index: usize| arguments[index].eval_int(scope);
    let list = || match arguments[0].eval(scope)? {
        Value::List(list) => Ok(list),
        other => Err(operand("a list", &arguments[0], other)),
    };
    match function {
        Function::Min => Ok(int(0)?.min(int(1)?)),
        Function::Max => Ok(int(0)?.max(int(1)?)),
        Function::CeilDiv => ceil_div(int(0)?, int(1)?),
        Function::AlignUp => {
            let multiple = int(1)?;
            ceil_div(int(0)?, multiple)?.checked_mul(multiple).ok_or(ExprError::Overflow)
        }
        Function::Sum => Ok(list()?.iter().map(|&item| i128::from(item)).sum()),
        Function::Largest => Ok(list()?.iter().copied().max().map_or(0, i128::from)),
        Function::Count => Ok(list()?.len() as i128),
        Function::Bytes => match arguments[0].eval(scope)? {
            Value::DType(dtype) => Ok(i128::from(dtype.size_bytes())),
            other => Err(operand("a dtype symbol", &arguments[0], other)),
        },
    }
}

fn ceil_div(a: i128, b: i128) -> Result<i128, ExprError> {
    let negated = a.checked_neg().ok_or(ExprError::Overflow)?;
    floor_div(negated, b)?.checked_neg().ok_or(ExprError::Overflow)
}

impl fmt::Display for Expr {
    /// Canonical text: it parses to the same expression, with no needless parenthesis.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nested = |f: &mut fmt::Formatter<'_>, inner: &Expr, at_least: u8| {
            if inner.level() < at_least { write!(f, "({inner})") } else { write!(f, "{inner}") }
        };
        let listed = |f: &mut fmt::Formatter<'_>, items: &[Expr], at_least: u8| {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    f.write_str(", ")?;
                }
                nested(f, item, at_least)?;
            }
            Ok(())
        };
        match self {
            Expr::Int(value) => write!(f, "{value}"),
            Expr::Name(name) => f.write_str(name),
            Expr::Not(inner) => {
                f.write_str("not ")?;
                nested(f, inner, 2)
            }
            Expr::Binary(operator, left, right) => {
                let level = operator.level();
                // Comparisons do not chain, so their left side needs the tighter level too.
                nested(f, left, if level == 3 { 4 } else { level })?;
                write!(f, " {} ", operator.symbol())?;
                nested(f, right, level + 1)
            }
            Expr::In(item, list) => {
                nested(f, item, 4)?;
                f.write_str(" in [")?;
                listed(f, list, 6)?;
                f.write_str("]")
            }
            Expr::Call(function, arguments) => {
                write!(f, "{}(", function.name())?;
                listed(f, arguments, 0)?;
                f.write_str(")")
            }
        }
    }
}

impl Serialize for Expr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Expr::Int(value) if i64::try_from(*value).is_ok() => {
                serializer.serialize_i64(*value as i64)
            }
            other => serializer.collect_str(other),
        }
    }
}

impl JsonSchema for Expr {
    fn schema_name() -> Cow<'static, str> {
        "Expr".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "description": "An integer, or an expression over dims, lists, options, variants and dtypes."
        })
    }
}

impl<'de> Deserialize<'de> for Expr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = Expr;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an expression or an integer")
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Expr, E> {
                Ok(Expr::Int(value.into()))
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Expr, E> {
                Ok(Expr::Int(value.into()))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Expr, E> {
                Expr::parse(text).map_err(|e| E::custom(format!("`{text}` is no expression: {e}")))
            }
        }
        deserializer.deserialize_any(Text)
    }
}
