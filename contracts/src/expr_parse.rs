//! Text to `Expr`, by recursive descent. Length and nesting are limited, so no text exhausts the stack.

use crate::expr::{Expr, ExprError, Function, Operator};

/// Longest expression, in bytes.
const LONGEST_BYTES: usize = 1024;
/// Deepest nesting of parentheses, calls and `not`.
const DEEPEST: usize = 32;

pub(crate) fn parse(text: &str) -> Result<Expr, ExprError> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    if text.len() > LONGEST_BYTES {
        return parser.fail(&format!("at most {LONGEST_BYTES} bytes"));
    }
    let expr = parser.or()?;
    parser.skip_spaces();
    if parser.at < text.len() {
        return parser.fail("an operator or the end");
    }
    Ok(expr)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

type Parsed = Result<Expr, ExprError>;

impl<'a> Parser<'a> {
    fn fail<T>(&self, expected: &str) -> Result<T, ExprError> {
        Err(ExprError::Syntax { at: self.at, expected: expected.to_owned() })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_spaces(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\n', '\t']).len();
    }

    /// Takes this punctuation if it is next.
    fn takes(&mut self, symbol: &str) -> bool {
        self.skip_spaces();
        let next = self.rest().starts_with(symbol);
        if next {
            self.at += symbol.len();
        }
        next
    }

    /// Takes this keyword if it is the next word.
    fn takes_word(&mut self, keyword: &str) -> bool {
        self.skip_spaces();
        let next = word_at(self.rest()) == keyword;
        if next {
            self.at += keyword.len();
        }
        next
    }

    fn needs(&mut self, symbol: &str) -> Result<(), ExprError> {
        if self.takes(symbol) { Ok(()) } else { self.fail(&format!("`{symbol}`")) }
    }

    fn deeper(&mut self) -> Result<(), ExprError> {
        self.depth += 1;
        if self.depth > DEEPEST { self.fail(&format!("at most {DEEPEST} levels")) } else { Ok(()) }
    }

    fn or(&mut self) -> Parsed {
        let mut left = self.and()?;
        while self.takes_word("or") {
            left = binary(Operator::Or, left, self.and()?);
        }
        Ok(left)
    }

    fn and(&mut self) -> Parsed {
        let mut left = self.not()?;
        while self.takes_word("and") {
            left = binary(Operator::And, left, self.not()?);
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed {
        if !self.takes_word("not") {
            return self.comparison();
        }
        self.deeper()?;
        let inner = self.not()?;
        self.depth -= 1;
        Ok(Expr::Not(Box::new(inner)))
    }

    fn comparison(&mut self) -> Parsed {
        // Longer symbols come first: `<=` also starts with `<`.
        const SYMBOLS: [Operator; 6] = [
            Operator::Equal,
            Operator::NotEqual,
            Operator::LessEqual,
            Operator::GreaterEqual,
            Operator::Less,
            Operator::Greater,
        ];
        let left = self.sum()?;
        if self.takes_word("in") {
            self.needs("[")?;
            let mut items = vec![self.atom()?];
            while self.takes(",") {
                items.push(self.atom()?);
            }
            self.needs("]")?;
            return Ok(Expr::In(Box::new(left), items));
        }
        for operator in SYMBOLS {
            if self.takes(operator.symbol()) {
                return Ok(binary(operator, left, self.sum()?));
            }
        }
        Ok(left)
    }

    fn sum(&mut self) -> Parsed {
        let mut left = self.product()?;
        loop {
            let operator = match () {
                () if self.takes("+") => Operator::Add,
                () if self.takes("-") => Operator::Subtract,
                () => return Ok(left),
            };
            left = binary(operator, left, self.product()?);
        }
    }

    fn product(&mut self) -> Parsed {
        let mut left = self.atom()?;
        loop {
            let operator = match () {
                () if self.takes("*") => Operator::Multiply,
                () if self.takes("/") => Operator::Divide,
                () if self.takes("%") => Operator::Remainder,
                () => return Ok(left),
            };
            left = binary(operator, left, self.atom()?);
        }
    }

    fn atom(&mut self) -> Parsed {
        if self.takes("(") {
            self.deeper()?;
            let inner = self.or()?;
            self.depth -= 1;
            self.needs(")")?;
            return Ok(inner);
        }
        let negative = self.takes("-");
        let digits =
            self.rest().len() - self.rest().trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits > 0 {
            let number = &self.rest()[..digits];
            let signed = if negative { format!("-{number}") } else { number.to_owned() };
            let Ok(value) = signed.parse::<i128>() else {
                return self.fail("an integer of at most 128 bits");
            };
            self.at += digits;
            return if word_at(self.rest()).is_empty() {
                Ok(Expr::Int(value))
            } else {
                self.fail("an operator after the integer")
            };
        }
        if negative {
            return self.fail("digits after `-`");
        }
        self.name_or_call()
    }

    fn name_or_call(&mut self) -> Parsed {
        self.skip_spaces();
        let word = word_at(self.rest());
        if word.is_empty() || matches!(word, "or" | "and" | "not" | "in") {
            return self.fail("an integer, a name, a call or `(`");
        }
        let start = self.at;
        self.at += word.len();
        if !self.takes("(") {
            return Ok(Expr::Name(word.into()));
        }
        let Some(function) = Function::ALL.into_iter().find(|f| f.name() == word) else {
            self.at = start;
            let names = Function::ALL.map(Function::name).join(", ");
            return self.fail(&format!("one of the functions {names}; `{word}` is none"));
        };
        self.deeper()?;
        let mut arguments = vec![self.or()?];
        while self.takes(",") {
            arguments.push(self.or()?);
        }
        self.depth -= 1;
        self.needs(")")?;
        if arguments.len() != function.arity() {
            self.at = start;
            let wanted = function.arity();
            return self
                .fail(&format!("`{word}` with {wanted} argument(s), not {}", arguments.len()));
        }
        Ok(Expr::Call(function, arguments))
    }
}

fn binary(operator: Operator, left: Expr, right: Expr) -> Expr {
    Expr::Binary(operator, Box::new(left), Box::new(right))
}

/// The word at the start of a text: letters, digits and `_`. Empty when there is none.
fn word_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}
