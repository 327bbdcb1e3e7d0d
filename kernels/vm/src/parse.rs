//! PTX text → syntax tree. Errors carry the line; an unknown instruction is no error here.

mod constant;
mod function;
mod operand;
mod variable;

use crate::lexer::{Kind, Token, tokens};
use crate::parse_error::{DEEPEST, LARGEST_ALIGN_BYTES, ParseError, ParseErrorKind};
use crate::source::Sites;
use crate::syntax::{Operand, Space, Tree};
use operand::number;
use std::sync::Arc;

pub(crate) struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    sites: Sites,
    /// The site of what comes next.
    source: Option<u32>,
    /// Lists that are open.
    depth: u32,
    /// The operands are a call's.
    calls: bool,
}

type Parsed<T> = Result<T, ParseError>;

/// Parses a whole module.
pub(crate) fn parse(text: &str) -> Parsed<Tree<'_>> {
    let sites = Sites::default();
    let mut parser =
        Parser { tokens: tokens(text), at: 0, sites, source: None, depth: 0, calls: false };
    let mut tree = parser.module()?;
    parser.sites.finish();
    tree.sites = parser.sites;
    Ok(tree)
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.at]
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.tokens[self.at];
        if token.kind != Kind::End {
            self.at += 1;
        }
        token
    }

    fn eat(&mut self, punct: u8) -> bool {
        let found = self.peek().kind == Kind::Punct(punct);
        if found {
            self.at += 1;
        }
        found
    }

    fn expected<T>(&self, wanted: &'static str) -> Parsed<T> {
        let token = self.peek();
        Err(ParseError {
            line: token.line,
            what: ParseErrorKind::Expected { wanted, found: token.text.to_owned() },
        })
    }

    fn need(&mut self, punct: u8, wanted: &'static str) -> Parsed<()> {
        if self.eat(punct) { Ok(()) } else { self.expected(wanted) }
    }

    fn word(&mut self, wanted: &'static str) -> Parsed<&'a str> {
        if self.peek().kind == Kind::Word { Ok(self.next().text) } else { self.expected(wanted) }
    }

    fn skip_line(&mut self) {
        let line = self.peek().line;
        while self.peek().line == line && self.peek().kind != Kind::End {
            self.at += 1;
        }
    }

    fn skip_to_semicolon(&mut self) {
        while self.peek().kind != Kind::End && !self.eat(b';') {
            self.at += 1;
        }
    }

    fn skip_braces(&mut self) {
        let mut depth = 0;
        while self.peek().kind != Kind::End {
            match self.next().kind {
                Kind::Punct(b'{') => depth += 1,
                Kind::Punct(b'}') => {
                    depth -= 1;
                    if depth == 0 {
                        return;
                    }
                }
                _ => {}
            }
        }
    }

    fn integer(&mut self) -> Parsed<u64> {
        Ok(self.constant()?.value)
    }

    /// A number alone: `>` may follow it.
    fn integer32(&mut self) -> Parsed<u32> {
        let line = self.peek().line;
        let value = self.unary()?.value;
        u32::try_from(value)
            .map_err(|_| ParseError { line, what: ParseErrorKind::BadNumber(value.to_string()) })
    }

    fn alignment(&mut self) -> Parsed<u32> {
        let line = self.peek().line;
        let align = self.integer32()?;
        if align.is_power_of_two() && align <= LARGEST_ALIGN_BYTES {
            return Ok(align);
        }
        Err(ParseError { line, what: ParseErrorKind::BadAlignment(align) })
    }

    /// What stands within brackets: each level takes the host's stack.
    fn within<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEEPEST {
            return Err(ParseError { line: self.peek().line, what: ParseErrorKind::TooDeep });
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn module(&mut self) -> Parsed<Tree<'a>> {
        let mut tree = Tree::default();
        let mut external = false;
        loop {
            let token = self.peek();
            if token.kind == Kind::End {
                return Ok(tree);
            }
            if self.eat(b';') {
                continue;
            }
            match self.word("a directive")? {
                ".target" => {
                    let target = self.peek().text;
                    tree.target = target.strip_prefix("sm_").map(|_| target);
                    self.at -= 1;
                    self.skip_line();
                }
                ".version" | ".address_size" => {
                    self.at -= 1;
                    self.skip_line();
                }
                ".file" => self.file()?,
                ".loc" => self.loc()?,
                ".section" => self.skip_braces(),
                ".pragma" => self.skip_to_semicolon(),
                ".visible" | ".weak" | ".common" => external = false,
                ".extern" => external = true,
                ".entry" => {
                    tree.functions.push(self.function(true, token.line)?);
                    external = false;
                }
                ".func" => {
                    tree.functions.push(self.function(false, token.line)?);
                    external = false;
                }
                ".alias" => self.skip_to_semicolon(),
                word @ (".global" | ".const" | ".shared") => {
                    for mut variable in self.variables(space_of(word))? {
                        variable.external = external;
                        tree.variables.push(variable);
                    }
                    external = false;
                }
                other => {
                    return Err(ParseError {
                        line: token.line,
                        what: ParseErrorKind::UnknownDirective(other.to_owned()),
                    });
                }
            }
        }
    }

    fn file(&mut self) -> Parsed<()> {
        let number = self.integer32()?;
        if self.peek().kind != Kind::String {
            return self.expected("a file name");
        }
        let name: Arc<str> = self.next().text.into();
        self.sites.file(number, name);
        while self.eat(b',') {
            self.at += 1;
        }
        Ok(())
    }

    fn loc(&mut self) -> Parsed<()> {
        let line = self.peek().line;
        let (file, source_line) = (self.integer32()?, self.integer32()?);
        let mut rest: Vec<&str> = Vec::new();
        while self.peek().line == line && self.peek().kind != Kind::End {
            rest.push(self.next().text);
        }
        let number = |text: &&str| match number(text) {
            Some(Operand::Int(value)) => u32::try_from(value).ok(),
            _ => None,
        };
        let column = rest.first().and_then(number).unwrap_or(0);
        let call = rest.iter().position(|word| *word == "inlined_at").and_then(|at| {
            let place: Vec<u32> = rest[at + 1..].iter().take(3).map_while(number).collect();
            place.try_into().ok()
        });
        self.source = Some(self.sites.note([file, source_line, column], call));
        Ok(())
    }
}

fn space_of(word: &str) -> Space {
    match word {
        ".shared" => Space::Shared,
        ".local" => Space::Local,
        ".param" => Space::Param,
        ".const" => Space::Const,
        _ => Space::Global,
    }
}
