//! A review for a terminal, for a pull request's comment, for machines. All three say the same; what
//! comes out of contracts and file names is text there, and nothing else.

mod markdown;
mod terminal;

pub use markdown::{MARK, markdown};
pub use terminal::{one_line, terminal};

use super::change::{Class, ContractReview, Review};

/// Most clauses named in the entry that is asked for.
const MOST_CLAUSES: usize = 40;

/// JSON, as `Review` reads it again.
pub fn json(review: &Review) -> String {
    serde_json::to_string_pretty(review).unwrap_or_default()
}

/// "3 loosened, 1 tightened", weakest first; classes nothing is of are left out.
fn counts(review: &Review) -> String {
    let classes = [Class::Loosened, Class::Incomparable, Class::Tightened, Class::Neutral];
    let parts: Vec<String> = classes
        .into_iter()
        .map(|class| (review.count(class), class))
        .filter(|(count, _)| *count > 0)
        .map(|(count, class)| format!("{count} {}", class.name().to_lowercase()))
        .collect();
    if parts.is_empty() { "no contract changed".to_owned() } else { parts.join(", ") }
}

/// The entry that would say why, with the clauses that need it; `None` where all have a reason.
fn wanted(contract: &ContractReview) -> Option<String> {
    let mut clauses: Vec<&str> = Vec::new();
    for change in contract.changes.iter().filter(|change| change.is_unjustified()) {
        if !clauses.contains(&change.clause.as_str()) {
            clauses.push(&change.clause);
        }
    }
    if clauses.is_empty() {
        return None;
    }
    let version = match contract.file == super::ELSEWHERE {
        true => String::new(),
        false => format!("version: {}, ", contract.version),
    };
    let more = clauses.len().saturating_sub(MOST_CLAUSES);
    clauses.truncate(MOST_CLAUSES);
    let mut clauses = clauses.join(", ");
    if more > 0 {
        clauses.push_str(&format!(", … {more} more"));
    }
    Some(format!("- {{{version}clauses: [{clauses}], because: \"…\", link: \"https://…\"}}"))
}

/// What a contract's part is called.
fn title(contract: &ContractReview) -> &str {
    if contract.contract.is_empty() { "of no contract" } else { &contract.contract }
}

/// Where that entry goes.
fn place(contract: &ContractReview) -> String {
    match contract.file == super::ELSEWHERE {
        true => format!("`{}`", contract.file),
        false => format!("`history:` of `{}`", contract.file),
    }
}

/// Whether a character says something other than itself: it moves, hides or turns the text around it.
pub(super) fn is_trick(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{061c}')
}
