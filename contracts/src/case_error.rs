//! Why a case is not legal, or a text is not a case: file, place, what is wrong, what would be right.

use crate::expr::{Expr, ExprError};
use std::fmt;

/// A refused case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseError {
    /// The file, when the case came from one; else empty.
    pub file: String,
    /// Line of the place in the file, from 1.
    pub line: Option<usize>,
    /// Dotted path of the place; empty when the case as a whole is meant.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

impl CaseError {
    /// An error without a file.
    pub fn new(
        path: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> CaseError {
        CaseError {
            file: String::new(),
            line: None,
            path: path.into(),
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// An expression of the contract that has no value for the case.
    pub fn expression(path: String, expr: &Expr, error: &ExprError) -> CaseError {
        CaseError::new(
            path,
            format!("`{expr}` has no value: {error}"),
            "decide the dims, lists and options it names",
        )
    }

    pub(crate) fn in_file(self, file: &str) -> CaseError {
        CaseError { file: file.to_owned(), ..self }
    }
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map(|line| line.to_string()).unwrap_or_default();
        let places = [self.file.as_str(), line.as_str()];
        let place: Vec<&str> = places.into_iter().filter(|part| !part.is_empty()).collect();
        if !place.is_empty() {
            write!(f, "{}: ", printable(&place.join(":")))?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", printable(&self.path))?;
        }
        write!(f, "{}; {}", printable(&shortened(&self.what)), printable(&self.remedy))
    }
}

impl std::error::Error for CaseError {}

/// Text that came from outside as a terminal may show it: what would move its cursor, change its colours
/// or turn the line around stands there escaped.
pub fn printable(text: &str) -> std::borrow::Cow<'_, str> {
    let acts =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(acts) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if acts(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown.into()
}

/// A message with what the file said cut to a length a person reads.
pub(crate) fn shortened(what: &str) -> std::borrow::Cow<'_, str> {
    const LONGEST: usize = 400;
    if what.len() <= LONGEST {
        return what.into();
    }
    let end = what.floor_char_boundary(LONGEST);
    format!("{}… ({} bytes)", &what[..end], what.len()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_escaped_and_nothing_else() {
        assert_eq!(printable("dims.R: größer, 一"), "dims.R: größer, 一");
        assert_eq!(printable("a\u{1b}[31mb\nc\u{202e}d"), "a\\u{1b}[31mb\\nc\\u{202e}d");
        let error = CaseError::new("dims.\u{7}", "no `\u{1b}`", "write \u{9b}");
        assert!(error.to_string().chars().all(|c| !c.is_control()), "{error}");
    }
}
