//! PTX text → syntax tree. Errors carry the line; an unknown instruction is no error here.

mod constant;
mod operand;

use crate::lexer::{Kind, Token, tokens};
use crate::parse_error::{DEEPEST, LARGEST_ALIGN_BYTES, ParseError, ParseErrorKind};
use crate::source::Sites;
use crate::syntax::{
    Function, Initial, Instruction, Operand, Space, Statement, Tree, Variable, type_bytes,
};
use operand::{number, starts_number};
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

    fn function(&mut self, is_entry: bool, line: u32) -> Parsed<Function<'a>> {
        let mut returns = Vec::new();
        if !is_entry && self.peek().kind == Kind::Punct(b'(') {
            returns = self.parameter_list()?;
        }
        let name = self.word("a function name")?;
        let mut parameters = Vec::new();
        if self.peek().kind == Kind::Punct(b'(') {
            parameters = self.parameter_list()?;
        }
        let mut max_threads = None;
        let (mut cluster, mut explicit_cluster) = (None, false);
        loop {
            let token = self.peek();
            match token.kind {
                Kind::Punct(b';') => {
                    self.at += 1;
                    return Ok(Function {
                        name,
                        is_entry,
                        returns,
                        parameters,
                        max_threads,
                        cluster,
                        explicit_cluster,
                        body: None,
                        line,
                    });
                }
                Kind::Punct(b'{') => break,
                Kind::Word => {
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
                    if count > 0 && matches!(directive, ".maxntid" | ".reqntid") {
                        max_threads = Some(axes.iter().fold(1, |all, n| all.saturating_mul(*n)));
                    }
                    if count > 0 && directive == ".reqnctapercluster" {
                        cluster = Some(axes);
                    }
                    explicit_cluster |= directive == ".explicitcluster";
                    if directive == ".pragma" {
                        self.skip_to_semicolon();
                    }
                }
                _ => return self.expected("a function body"),
            }
        }
        self.source = None;
        self.sites.begin_function();
        let body = self.body()?;
        let body = Some(body);
        Ok(Function {
            name,
            is_entry,
            returns,
            parameters,
            max_threads,
            cluster,
            explicit_cluster,
            body,
            line,
        })
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

    /// `.align 4 .b8 name[12]`, without the space word.
    fn variable_head(&mut self, space: Space) -> Parsed<(Variable<'a>, u32)> {
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

    fn variables(&mut self, space: Space) -> Parsed<Vec<Variable<'a>>> {
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
            let (element, element_bytes, align_bytes, line) =
                (variable.element, variable.element_bytes, variable.align_bytes, variable.line);
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
            variable = Variable {
                space,
                name,
                align_bytes,
                element,
                element_bytes,
                count,
                external: false,
                initial: Vec::new(),
                line,
            };
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
            ".reg" => {
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
