//! Constant expressions of integers: the operators of C with their precedence, in 64 bits. As in
//! PTX a literal is signed unless it is written with `U` or too large; an operation on an unsigned
//! value is unsigned.

use super::operand::number;
use super::{Parsed, Parser};
use crate::lexer::Kind;
use crate::parse_error::{ParseError, ParseErrorKind};
use crate::syntax::Operand;

/// A value, and whether it counts as unsigned.
#[derive(Clone, Copy)]
pub(super) struct Constant {
    pub value: u64,
    unsigned: bool,
}

/// The binary operators from the loosest on.
const LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];
/// The level of products.
const PRODUCTS: usize = 9;

impl Constant {
    /// As a literal is written.
    fn literal(value: u64, text: &str) -> Self {
        Self { value, unsigned: text.ends_with(['U', 'u']) || value > i64::MAX as u64 }
    }

    fn truth(holds: bool) -> Self {
        Self { value: holds.into(), unsigned: false }
    }

    /// `None` where it has no value: a division by zero.
    fn with(self, operator: &str, other: Self) -> Option<Self> {
        let unsigned = self.unsigned || other.unsigned;
        let (a, b) = (self.value, other.value);
        let (x, y) = (a as i64, b as i64);
        let less = if unsigned { a < b } else { x < y };
        let value = match operator {
            "||" => return Some(Self::truth(a != 0 || b != 0)),
            "&&" => return Some(Self::truth(a != 0 && b != 0)),
            "==" => return Some(Self::truth(a == b)),
            "!=" => return Some(Self::truth(a != b)),
            "<" => return Some(Self::truth(less)),
            ">=" => return Some(Self::truth(!less)),
            "<=" => return Some(Self::truth(less || a == b)),
            ">" => return Some(Self::truth(!less && a != b)),
            "|" => a | b,
            "^" => a ^ b,
            "&" => a & b,
            "+" => a.wrapping_add(b),
            "-" => a.wrapping_sub(b),
            "*" => a.wrapping_mul(b),
            "/" if unsigned => a.checked_div(b)?,
            "%" if unsigned => a.checked_rem(b)?,
            "/" | "%" if b == 0 => return None,
            "/" => x.wrapping_div(y) as u64,
            "%" => x.wrapping_rem(y) as u64,
            // The count's own sign does not make a shift unsigned.
            "<<" => return Some(Self { value: a.checked_shl(count(b)).unwrap_or(0), ..self }),
            _ if self.unsigned => a.checked_shr(count(b)).unwrap_or(0),
            _ => return Some(Self { value: (x >> count(b).min(63)) as u64, unsigned: false }),
        };
        Some(Self { value, unsigned })
    }
}

fn count(b: u64) -> u32 {
    u32::try_from(b).unwrap_or(u32::MAX)
}

impl Parser<'_> {
    /// Products alone, for a term of an address.
    pub(super) fn product(&mut self) -> Parsed<Constant> {
        let first = self.unary()?;
        self.binary(first, PRODUCTS)
    }

    /// A whole expression.
    pub(super) fn constant(&mut self) -> Parsed<Constant> {
        let first = self.unary()?;
        let condition = self.binary(first, 0)?;
        if !self.eat(b'?') {
            return Ok(condition);
        }
        let then = self.within(Self::constant)?;
        self.need(b':', ": between the values of a condition")?;
        let otherwise = self.within(Self::constant)?;
        Ok(if condition.value != 0 { then } else { otherwise })
    }

    /// The operator that stands here, of a level or a tighter one.
    fn operator(&self, least: usize) -> Option<(usize, &'static str)> {
        let punct = |at: usize| match self.tokens.get(self.at + at)?.kind {
            Kind::Punct(byte) => Some(byte),
            _ => None,
        };
        let here = [punct(0)?, punct(1).unwrap_or(0)];
        let all =
            LEVELS.iter().enumerate().flat_map(|(level, all)| all.iter().map(move |o| (level, *o)));
        let longest =
            all.filter(|(_, o)| here.starts_with(o.as_bytes())).max_by_key(|(_, o)| o.len());
        longest.filter(|(level, _)| *level >= least)
    }

    fn binary(&mut self, first: Constant, least: usize) -> Parsed<Constant> {
        let mut left = first;
        while let Some((level, operator)) = self.operator(least) {
            let line = self.peek().line;
            self.at += operator.len();
            let mut right = self.unary()?;
            if self.operator(level + 1).is_some() {
                right = self.within(|parser| parser.binary(right, level + 1))?;
            }
            left = left.with(operator, right).ok_or_else(|| ParseError {
                line,
                what: ParseErrorKind::BadNumber(format!("{operator} 0")),
            })?;
        }
        Ok(left)
    }

    pub(super) fn unary(&mut self) -> Parsed<Constant> {
        self.within(Self::unary_within)
    }

    fn unary_within(&mut self) -> Parsed<Constant> {
        let token = self.peek();
        let Kind::Punct(punct) = token.kind else {
            let word = self.word("an integer")?;
            return match number(word) {
                Some(Operand::Int(value)) => Ok(Constant::literal(value, word)),
                _ => Err(ParseError {
                    line: token.line,
                    what: ParseErrorKind::BadNumber(word.to_owned()),
                }),
            };
        };
        if !matches!(punct, b'(' | b'-' | b'+' | b'~' | b'!') {
            return self.expected("an integer");
        }
        self.at += 1;
        if punct == b'(' {
            if let Some(unsigned) = match self.peek().text {
                ".u64" => Some(true),
                ".s64" => Some(false),
                _ => None,
            } {
                self.at += 1;
                self.need(b')', ") after a type")?;
                return Ok(Constant { unsigned, ..self.unary()? });
            }
            let inner = self.constant()?;
            self.need(b')', ") after an expression")?;
            return Ok(inner);
        }
        let of = self.unary()?;
        Ok(match punct {
            b'-' => Constant { value: of.value.wrapping_neg(), ..of },
            b'~' => Constant { value: !of.value, ..of },
            b'!' => Constant::truth(of.value == 0),
            _ => of,
        })
    }
}
