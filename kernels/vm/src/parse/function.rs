//! Kernels and device functions: head, parameters, and the statements of the body.

use super::{Parsed, Parser, space_of};
use crate::lexer::Kind;
use crate::parse_error::{ParseError, ParseErrorKind};
use crate::syntax::{Function, Instruction, Space, Statement, Variable};

impl<'a> Parser<'a> {
    pub(super) fn function(&mut self, is_entry: bool, line: u32) -> Parsed<Function<'a>> {
        let mut returns = Vec::new();
        if !is_entry && self.peek().kind == Kind::Punct(b'(') {
            returns = self.parameter_list()?;
        }
        let name = self.word("a function name")?;
        let mut parameters = Vec::new();
        if self.peek().kind == Kind::Punct(b'(') {
            parameters = self.parameter_list()?;
        }
        let mut function = Function {
            name,
            is_entry,
            returns,
            parameters,
            max_threads: None,
            cluster: None,
            explicit_cluster: false,
            body: None,
            line,
        };
        loop {
            match self.peek().kind {
                Kind::Punct(b';') => {
                    self.at += 1;
                    return Ok(function);
                }
                Kind::Punct(b'{') => break,
                Kind::Word => self.function_directive(&mut function)?,
                _ => return self.expected("a function body"),
            }
        }
        self.source = None;
        self.sites.begin_function();
        function.body = Some(self.body()?);
        Ok(function)
    }

    /// One directive between a function's head and its body, and up to three numbers.
    fn function_directive(&mut self, function: &mut Function<'a>) -> Parsed<()> {
        let directive = self.next().text;
        let mut axes = [1u32; 3];
        let mut count = 0;
        while self.peek().kind == Kind::Word
            && self.peek().text.starts_with(|c: char| c.is_ascii_digit())
        {
            let value = self.integer32()?;
            if let Some(axis) = axes.get_mut(count) {
                *axis = value;
            }
            count += 1;
            if !self.eat(b',') {
                break;
            }
        }
        match directive {
            ".maxntid" | ".reqntid" if count > 0 => {
                let threads = axes.iter().fold(1, |all: u32, n| all.saturating_mul(*n));
                function.max_threads = Some(threads);
            }
            ".reqnctapercluster" if count > 0 => function.cluster = Some(axes),
            ".explicitcluster" => function.explicit_cluster = true,
            ".pragma" => self.skip_to_semicolon(),
            _ => {}
        }
        Ok(())
    }

    fn parameter_list(&mut self) -> Parsed<Vec<Variable<'a>>> {
        self.need(b'(', "(")?;
        let mut list = Vec::new();
        while !self.eat(b')') {
            let word = self.word(".param or .reg")?;
            if word != ".param" && word != ".reg" {
                self.at -= 1;
                return self.expected(".param");
            }
            // A register lies in no space.
            let space = if word == ".reg" { Space::Generic } else { Space::Param };
            list.push(self.variable_head(space)?.0);
            if !self.eat(b',') {
                self.need(b')', ") after parameters")?;
                break;
            }
        }
        Ok(list)
    }

    fn body(&mut self) -> Parsed<Vec<Statement<'a>>> {
        self.need(b'{', "{")?;
        let mut out = Vec::new();
        let mut depth = 1;
        loop {
            let token = self.peek();
            match token.kind {
                Kind::End => return self.expected("} to close the function"),
                Kind::Punct(b'{') => {
                    self.at += 1;
                    depth += 1;
                    out.push(Statement::Open);
                }
                Kind::Punct(b'}') => {
                    self.at += 1;
                    depth -= 1;
                    if depth == 0 {
                        return Ok(out);
                    }
                    out.push(Statement::Close);
                }
                Kind::Punct(b';') => self.at += 1,
                _ => self.statement(&mut out)?,
            }
        }
    }

    fn statement(&mut self, out: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let token = self.peek();
        if token.kind == Kind::Word {
            if token.text.starts_with('.') {
                return self.directive(out);
            }
            if self.tokens[self.at + 1].kind == Kind::Punct(b':') {
                self.at += 2;
                let next = self.peek().text;
                if next == ".branchtargets" || next == ".calltargets" || next == ".callprototype" {
                    self.at += 1;
                    let mut names = Vec::new();
                    while !self.eat(b';') {
                        if self.peek().kind == Kind::End {
                            return self.expected("; after branch targets");
                        }
                        let piece = self.next();
                        if piece.kind == Kind::Word {
                            names.push(piece.text);
                        }
                    }
                    out.push(Statement::BranchTargets(token.text, names));
                } else {
                    out.push(Statement::Label(token.text));
                }
                return Ok(());
            }
        }
        let mut guard = None;
        if self.eat(b'@') {
            let negated = self.eat(b'!');
            guard = Some((self.word("a predicate")?, negated));
        }
        let line = self.peek().line;
        let opcode = self.word("an instruction")?;
        self.calls = opcode == "call" || opcode.starts_with("call.");
        let mut operands = Vec::new();
        while !self.eat(b';') {
            operands.push(self.operand()?);
            self.eat(b',');
        }
        out.push(Statement::Instruction(Instruction {
            guard,
            opcode,
            operands,
            line,
            source: self.source,
        }));
        Ok(())
    }

    fn directive(&mut self, out: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let token = self.next();
        let mut word = token.text;
        // Inline assembly writes `.reg.b32` without a blank.
        let mut glued = None;
        if let Some((first, second)) = word[1..].split_once('.') {
            glued = Some(second);
            word = &word[..first.len() + 1];
        }
        match word {
            ".loc" => self.loc(),
            ".pragma" => {
                self.skip_to_semicolon();
                Ok(())
            }
            ".reg" => self.registers(glued, out),
            ".shared" | ".local" | ".param" | ".const" | ".global" => {
                for variable in self.variables(space_of(word))? {
                    out.push(Statement::Variable(variable));
                }
                Ok(())
            }
            _ => Err(ParseError {
                line: token.line,
                what: ParseErrorKind::UnknownDirective(token.text.to_owned()),
            }),
        }
    }

    /// `.reg .b32 %r<9>, %s;` behind its first word, which may have the type `glued` to it.
    fn registers(&mut self, glued: Option<&'a str>, out: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let mut kind = match glued {
            Some(kind) => kind,
            None => self.word("a register type")?.trim_start_matches('.'),
        };
        let vector = match kind {
            "v2" => Some(2),
            "v4" => Some(4),
            _ => None,
        };
        if vector.is_some() {
            kind = self.word("a register type")?.trim_start_matches('.');
        }
        loop {
            let name = self.word("a register name")?;
            if let Some(len) = vector {
                out.push(Statement::VectorRegister(kind, name, len));
                if !self.eat(b',') {
                    break;
                }
                continue;
            }
            let mut count = None;
            if self.eat(b'<') {
                count = Some(self.integer32()?);
                self.need(b'>', ">")?;
            }
            out.push(Statement::Registers(kind, name, count));
            if !self.eat(b',') {
                break;
            }
        }
        self.need(b';', "; after registers")
    }
}
