//! What can be wrong with PTX text, and its wording.

use std::fmt;

/// Alignments up to this are understood; shared memory needs 1,024 at most.
pub(crate) const LARGEST_ALIGN_BYTES: u32 = 1 << 16;
/// Lists within lists: a call has two.
pub(crate) const DEEPEST: u32 = 16;

/// PTX text that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line of the PTX text, from 1.
    pub line: u32,
    /// What is wrong.
    pub what: ParseErrorKind,
}

/// What is wrong with the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// Another token was needed here.
    Expected {
        /// What the grammar asks for.
        wanted: &'static str,
        /// What stands there.
        found: String,
    },
    /// A number that cannot be read.
    BadNumber(String),
    /// A type name PTX does not have.
    UnknownType(String),
    /// A directive this machine does not know.
    UnknownDirective(String),
    /// A name without a declaration.
    UnknownName(String),
    /// A label without a statement.
    UnknownLabel(String),
    /// An alignment that no variable can have.
    BadAlignment(u32),
    /// Braces or brackets within each other, deeper than any instruction has them.
    TooDeep,
    /// Operands that do not fit their instruction.
    BadOperands(String),
    /// More than the machine's tables hold.
    TooLarge(&'static str),
}

/// The first characters of what stands in the text, which may be endless.
fn cut(text: &str) -> &str {
    text.char_indices().nth(80).map_or(text, |(at, _)| &text[..at])
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}: ", self.line)?;
        match &self.what {
            ParseErrorKind::Expected { wanted, found } => {
                write!(f, "expected {wanted}, found {:?}", cut(found))
            }
            ParseErrorKind::BadNumber(text) => write!(f, "{:?} is not a number", cut(text)),
            ParseErrorKind::UnknownType(text) => write!(f, "unknown type {:?}", cut(text)),
            ParseErrorKind::UnknownDirective(text) => {
                write!(f, "unknown directive {:?}", cut(text))
            }
            ParseErrorKind::UnknownName(text) => write!(f, "{:?} is not declared", cut(text)),
            ParseErrorKind::UnknownLabel(text) => {
                write!(f, "no statement has the label {:?}", cut(text))
            }
            ParseErrorKind::BadOperands(text) => write!(f, "operands do not fit {:?}", cut(text)),
            ParseErrorKind::BadAlignment(align) => {
                write!(f, "an alignment of {align} is no power of two up to {LARGEST_ALIGN_BYTES}")
            }
            ParseErrorKind::TooDeep => write!(f, "more than {DEEPEST} brackets within each other"),
            ParseErrorKind::TooLarge(what) => write!(f, "too many {what}"),
        }
    }
}

impl std::error::Error for ParseError {}
