//! Variables: their types, sizes and initial values.

use super::operand::{number, starts_number};
use super::{Parsed, Parser};
use crate::lexer::Kind;
use crate::parse_error::{ParseError, ParseErrorKind};
use crate::syntax::{Initial, Operand, Space, Variable, type_bytes};

impl<'a> Parser<'a> {
    /// `.align 4 .b8 name[12]`, without the space word.
    pub(super) fn variable_head(&mut self, space: Space) -> Parsed<(Variable<'a>, u32)> {
        let mut align = 0;
        let mut vector = 1;
        let (element, line) = loop {
            let token = self.peek();
            let word = self.word("a type")?;
            match word {
                ".align" => align = self.alignment()?,
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                ".ptr" | ".managed" => {}
                ".global" | ".const" | ".shared" | ".local" | ".param" => {}
                _ => break (word.trim_start_matches('.'), token.line),
            }
        };
        let Some(scalar_bytes) = type_bytes(element) else {
            return Err(ParseError { line, what: ParseErrorKind::UnknownType(element.to_owned()) });
        };
        // `.param .u64 .ptr .align 1 name`
        while self.peek().text.starts_with('.') {
            match self.next().text {
                ".align" => {
                    self.alignment()?;
                }
                _ => continue,
            }
        }
        let name = self.word("a variable name")?;
        let mut count: Option<u64> = None;
        while self.eat(b'[') {
            let dimension = if self.peek().kind == Kind::Punct(b']') { 0 } else { self.integer()? };
            count = Some(count.unwrap_or(1).saturating_mul(dimension));
            self.need(b']', "]")?;
        }
        let element_bytes = scalar_bytes * vector;
        let variable = Variable {
            space,
            name,
            align_bytes: if align == 0 { element_bytes } else { align },
            element,
            element_bytes,
            count,
            external: false,
            initial: Vec::new(),
            line,
        };
        Ok((variable, scalar_bytes))
    }

    pub(super) fn variables(&mut self, space: Space) -> Parsed<Vec<Variable<'a>>> {
        let (mut variable, _) = self.variable_head(space)?;
        let mut list = Vec::new();
        loop {
            if self.eat(b'=') {
                let element = variable.element;
                self.initial(element, &mut variable.initial)?;
                if variable.count == Some(0) {
                    // `[]`: as many as there are values.
                    variable.count = Some(variable.initial.len() as u64);
                }
            }
            let next = Variable { initial: Vec::new(), ..variable };
            list.push(variable);
            if !self.eat(b',') {
                break;
            }
            let name = self.word("a variable name")?;
            let mut count = None;
            while self.eat(b'[') {
                count = Some(count.unwrap_or(1u64).saturating_mul(self.integer()?));
                self.need(b']', "]")?;
            }
            variable = Variable { name, count, ..next };
        }
        self.need(b';', "; after a variable")?;
        Ok(list)
    }

    fn initial(&mut self, element: &str, out: &mut Vec<Initial<'a>>) -> Parsed<()> {
        if self.eat(b'{') {
            return self.within(|parser| {
                while !parser.eat(b'}') {
                    parser.initial(element, out)?;
                    parser.eat(b',');
                }
                Ok(())
            });
        }
        if let Some(bits) = self.fraction(element) {
            out.push(Initial::Bits(bits));
            return Ok(());
        }
        let token = self.peek();
        if token.kind != Kind::Word || starts_number(token.text) {
            let value = self.constant()?.value;
            out.push(Initial::Bits(value));
            return Ok(());
        }
        let mut name = self.next().text;
        if name == "generic" && self.eat(b'(') {
            name = self.word("a variable name")?;
            self.need(b')', ")")?;
        }
        let minus = self.peek().kind == Kind::Punct(b'-');
        let offset = if minus || self.eat(b'+') { self.integer()? as i64 } else { 0 };
        out.push(Initial::Address(name, offset));
        Ok(())
    }

    /// The bits that a floating-point literal gives an element, if one stands here.
    fn fraction(&mut self, element: &str) -> Option<u64> {
        let sign = self.peek().kind == Kind::Punct(b'-');
        let word = self.tokens.get(self.at + usize::from(sign))?;
        let literal = (word.kind == Kind::Word && starts_number(word.text))
            .then(|| number(word.text))
            .flatten()?;
        let bits = match (literal, element) {
            (Operand::F32(bits), "f64") => {
                let wide = f64::from(f32::from_bits(bits)).to_bits();
                wide ^ u64::from(sign) << 63
            }
            (Operand::F64(bits), "f32") => {
                let narrow = (f64::from_bits(bits) as f32).to_bits();
                u64::from(narrow ^ u32::from(sign) << 31)
            }
            (Operand::F32(bits), _) => u64::from(bits ^ u32::from(sign) << 31),
            (Operand::F64(bits), _) => bits ^ u64::from(sign) << 63,
            _ => return None,
        };
        self.at += 1 + usize::from(sign);
        Some(bits)
    }
}
