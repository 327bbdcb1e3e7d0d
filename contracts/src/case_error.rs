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

    pub(crate) fn expression(path: String, expr: &Expr, error: &ExprError) -> CaseError {
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
            write!(f, "{}: ", place.join(":"))?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}; {}", shortened(&self.what), self.remedy)
    }
}

impl std::error::Error for CaseError {}

/// A message with what the file said cut to a length a person reads.
pub(crate) fn shortened(what: &str) -> std::borrow::Cow<'_, str> {
    const LONGEST: usize = 400;
    if what.len() <= LONGEST {
        return what.into();
    }
    let end = what.floor_char_boundary(LONGEST);
    format!("{}… ({} bytes)", &what[..end], what.len()).into()
}
