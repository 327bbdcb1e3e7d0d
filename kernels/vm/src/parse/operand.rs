//! Operands of an instruction: registers, literals, addresses and lists of them.

use super::{Parsed, Parser};
use crate::lexer::Kind;
use crate::parse_error::{ParseError, ParseErrorKind};
use crate::syntax::Operand;

impl<'a> Parser<'a> {
    pub(super) fn operand(&mut self) -> Parsed<Operand<'a>> {
        self.within(Self::operand_within)
    }

    fn operand_within(&mut self) -> Parsed<Operand<'a>> {
        if self.starts_constant() {
            return Ok(Operand::Int(self.constant()?.value));
        }
        let first = self.simple_operand()?;
        if self.eat(b'|') {
            let second = self.simple_operand()?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        if let Operand::Name(name) = first {
            let minus = self.peek().kind == Kind::Punct(b'-');
            if minus || self.eat(b'+') {
                return Ok(Operand::Sum(name, self.constant()?.value as i64));
            }
        }
        Ok(first)
    }

    fn simple_operand(&mut self) -> Parsed<Operand<'a>> {
        let token = self.peek();
        match token.kind {
            Kind::Punct(b'[') => {
                self.at += 1;
                self.address()
            }
            Kind::Punct(b'{') => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.eat(b'}') {
                    items.push(self.operand()?);
                    self.eat(b',');
                }
                Ok(Operand::Vector(items))
            }
            Kind::Punct(b'(') => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.eat(b')') {
                    items.push(self.operand()?);
                    self.eat(b',');
                }
                Ok(Operand::List(items))
            }
            Kind::Punct(b'!') => {
                self.at += 1;
                Ok(Operand::Not(self.word("a predicate")?))
            }
            Kind::Punct(b'-') => {
                self.at += 1;
                let word = self.word("a number")?;
                match number(word) {
                    Some(Operand::Int(value)) => Ok(Operand::Int(value.wrapping_neg())),
                    Some(Operand::F32(bits)) => Ok(Operand::F32(bits ^ 1 << 31)),
                    Some(Operand::F64(bits)) => Ok(Operand::F64(bits ^ 1 << 63)),
                    _ => Err(ParseError {
                        line: token.line,
                        what: ParseErrorKind::BadNumber(word.to_owned()),
                    }),
                }
            }
            Kind::Word => {
                self.at += 1;
                if starts_number(token.text) {
                    return number(token.text).ok_or_else(|| ParseError {
                        line: token.line,
                        what: ParseErrorKind::BadNumber(token.text.to_owned()),
                    });
                }
                Ok(Operand::Name(token.text))
            }
            _ => self.expected("an operand"),
        }
    }

    /// Whether a constant of integers begins here. Only a call's operands are lists.
    fn starts_constant(&self) -> bool {
        let integer = |text| matches!(number(text), Some(Operand::Int(_)));
        let token = self.peek();
        match token.kind {
            Kind::Punct(b'(') => !self.calls,
            Kind::Punct(b'~') => true,
            Kind::Punct(b'!' | b'-') => {
                let next = self.tokens[(self.at + 1).min(self.tokens.len() - 1)];
                match next.kind {
                    Kind::Punct(punct) => matches!(punct, b'(' | b'-' | b'~' | b'!'),
                    Kind::Word => integer(next.text),
                    _ => false,
                }
            }
            Kind::Word => {
                token.text.starts_with(|c: char| c.is_ascii_digit()) && integer(token.text)
            }
            _ => false,
        }
    }

    fn address(&mut self) -> Parsed<Operand<'a>> {
        let mut base = None;
        let mut offset = 0i64;
        let token = self.peek();
        if token.kind == Kind::Word && !token.text.starts_with(|c: char| c.is_ascii_digit()) {
            self.at += 1;
            base = Some(token.text);
        } else {
            offset = self.product()?.value as i64;
        }
        while !self.eat(b']') {
            if self.eat(b',') {
                let mut coordinates = Vec::new();
                while self.eat(b',') || self.peek().kind != Kind::Punct(b']') {
                    coordinates.push(self.operand()?);
                }
                self.need(b']', "] after coordinates")?;
                let map = Operand::Address(base, offset);
                return Ok(Operand::Coordinates(Box::new(map), coordinates));
            }
            let minus = self.eat(b'-');
            if !minus && !self.eat(b'+') {
                return self.expected("] after an address");
            }
            let term = self.product()?.value as i64;
            offset = if minus { offset.wrapping_sub(term) } else { offset.wrapping_add(term) };
        }
        Ok(Operand::Address(base, offset))
    }
}

/// Whether a word is a number, right or wrong.
pub(super) fn starts_number(word: &str) -> bool {
    let word = word.strip_prefix('.').unwrap_or(word);
    word.starts_with(|c: char| c.is_ascii_digit())
}

/// Reads a PTX literal: `12`, `0x1F`, `017`, `0b1`, `12U`, `0f3F800000`, `0d…`, `1.5`, `1e-3`.
pub(super) fn number(word: &str) -> Option<Operand<'static>> {
    let lower = word.as_bytes();
    if lower.len() == 10 && lower[0] == b'0' && matches!(lower[1], b'f' | b'F') {
        return u32::from_str_radix(&word[2..], 16).ok().map(Operand::F32);
    }
    if lower.len() == 18 && lower[0] == b'0' && matches!(lower[1], b'd' | b'D') {
        return u64::from_str_radix(&word[2..], 16).ok().map(Operand::F64);
    }
    let prefixed = lower.len() > 1 && lower[0] == b'0' && lower[1].is_ascii_alphabetic();
    let exponent = !prefixed && starts_number(word) && word.contains(['e', 'E']);
    if word.contains('.') || exponent {
        return word.parse::<f64>().ok().map(|x| Operand::F64(x.to_bits()));
    }
    let word = word.trim_end_matches(['U', 'u']);
    let value = if let Some(hex) = word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        u64::from_str_radix(hex, 16)
    } else if let Some(bits) = word.strip_prefix("0b").or(word.strip_prefix("0B")) {
        u64::from_str_radix(bits, 2)
    } else if word.len() > 1 && word.starts_with('0') {
        u64::from_str_radix(&word[1..], 8)
    } else {
        word.parse()
    };
    value.ok().map(Operand::Int)
}
