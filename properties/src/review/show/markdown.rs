//! A review as a pull request's comment. Strings of contracts are escaped so that they can neither
//! close a cell, nor be markup, nor call a person, nor link anywhere but from an entry's own link.

use super::super::change::{Change, Class, ContractReview, Reason, Review};
use super::super::exercise::CASES;
use super::{counts, is_trick, place, title, wanted};
use std::fmt::Write as _;

/// The first line, by which a comment is found again.
pub const MARK: &str = "<!-- contract-review -->";

/// Most characters a comment may have, with room for its end.
const MOST_CHARS: usize = 60_000;
/// Most characters of one string of a contract.
const MOST_TEXT: usize = 400;
/// Most rows a contract gets.
const MOST_ROWS: usize = 60;

/// Most characters of all notes.
const MOST_NOTED: usize = 6_000;

/// The comment. What does not fit is counted, and what is weaker without a reason comes first.
pub fn markdown(review: &Review) -> String {
    if let Some(error) = &review.error {
        let says = text(error);
        return format!("{MARK}\n### Contract review: nothing could be compared\n\n{says}\n");
    }
    let weaker = review.count(Class::Loosened) + review.count(Class::Incomparable);
    let title = match (review.unjustified(), weaker) {
        (0, 0) => "nothing is weaker".to_owned(),
        (0, 1) => "1 change may weaken, with a reason".to_owned(),
        (0, many) => format!("{many} changes may weaken, each with a reason"),
        (1, _) => "1 change is weaker without a reason".to_owned(),
        (many, _) => format!("{many} changes are weaker without a reason"),
    };
    let read = if review.notes.is_empty() { "" } else { "; the notes are to be read" };
    let mut out = format!("{MARK}\n### Contract review: {title}{read}\n\n");
    let _ = writeln!(out, "{} → {}: {}.", code(&review.base), code(&review.head), counts(review));
    out.push_str(&notes(review));
    let mut contracts: Vec<&ContractReview> = review.contracts.iter().collect();
    let unjustified = |contract: &ContractReview| {
        contract.changes.iter().filter(|change| change.is_unjustified()).count()
    };
    contracts.sort_by_key(|contract| unjustified(contract) == 0);
    let (mut left_out, mut weaker) = (0, 0);
    for contract in contracts {
        let room = MOST_CHARS.saturating_sub(out.chars().count());
        match one(contract, room) {
            Some(part) => out.push_str(&part),
            None => {
                left_out += 1;
                weaker += unjustified(contract);
            }
        }
    }
    out.push_str(&kernels(review, MOST_CHARS.saturating_sub(out.chars().count())));
    if left_out > 0 {
        let _ = writeln!(
            out,
            "\n{left_out} more contracts changed, {weaker} of their changes weaker without a reason: `assay review --base …` shows them."
        );
    }
    out
}

/// What a reader must know of the comparison; of many, the first and how many more.
fn notes(review: &Review) -> String {
    let mut out = String::new();
    for (place, note) in review.notes.iter().enumerate() {
        let line = format!("\n> {}\n", text(note));
        if out.chars().count() + line.chars().count() > MOST_NOTED {
            let _ = writeln!(out, "\n> {} more notes.", review.notes.len() - place);
            break;
        }
        out.push_str(&line);
    }
    out
}

/// A contract's part in so much room; `None` where not even its first changes fit.
fn one(contract: &ContractReview, room: usize) -> Option<String> {
    let mut out = String::new();
    let _ = writeln!(out, "\n#### {} <sub>{}</sub>\n", text(title(contract)), code(&contract.file));
    let reasons = contract.changes.iter().any(|change| change.class.needs_reason());
    let (head, rule) = if reasons {
        ("| | clause | change | reason |", "|---|---|---|---|")
    } else {
        ("| | clause | change |", "|---|---|---|")
    };
    let _ = writeln!(out, "{head}\n{rule}");
    let end = end_of(contract);
    // What comes after the rows, and a word about rows left out.
    let rows_until = room.saturating_sub(end.chars().count() + 200);
    let mut rows = 0;
    for change in contract.changes.iter().take(MOST_ROWS) {
        let reason = if reasons { format!(" {} |", reason(change)) } else { String::new() };
        let (sign, says) = (sign(change.class), text(&change.says));
        let row = format!("| {sign} | {} | {says} |{reason}\n", code(&change.clause));
        if out.chars().count() + row.chars().count() > rows_until {
            break;
        }
        out.push_str(&row);
        rows += 1;
    }
    if rows == 0 {
        return None;
    }
    let rest = &contract.changes[rows..];
    if !rest.is_empty() {
        let weaker = match rest.iter().filter(|change| change.is_unjustified()).count() {
            0 => String::new(),
            many => format!(", {many} of them weaker without a reason"),
        };
        let _ = writeln!(
            out,
            "\n{} more changes{weaker}: `assay review --base …` shows them.",
            rest.len()
        );
    }
    Some(out + &end)
}

/// What stands below a contract's changes.
fn end_of(contract: &ContractReview) -> String {
    let mut out = String::new();
    if !contract.unexercised.is_empty() {
        let clauses: Vec<String> =
            contract.unexercised.iter().take(MOST_ROWS).map(|clause| code(clause)).collect();
        let _ = writeln!(out, "\n⚠️ None of {CASES} drawn cases exercises {}.", clauses.join(", "));
    }
    if let Some(entry) = wanted(contract) {
        // A fence longer than any run of backquotes inside.
        let entry: String = plain(&entry).chars().filter(|c| *c != '`').collect();
        let _ =
            writeln!(out, "\nSay why in {}:\n\n````yaml\n{entry}\n````", text(&place(contract)));
    }
    out
}

fn sign(class: Class) -> &'static str {
    match class {
        Class::Loosened => "🔴 Loosened",
        Class::Incomparable => "🟠 Incomparable",
        Class::Tightened => "🟢 Tightened",
        Class::Neutral => "⚪ Neutral",
    }
}

fn reason(change: &Change) -> String {
    match &change.reason {
        Some(Reason::Given { because, link }) => format!("{} ({})", text(because), linked(link)),
        Some(Reason::Missing { why }) if !why.is_empty() => format!("**none**: {}", text(why)),
        Some(Reason::Missing { .. }) => "**none**".to_owned(),
        None => String::new(),
    }
}

fn kernels(review: &Review, room: usize) -> String {
    if review.kernels.is_empty() {
        return String::new();
    }
    let mut out = "\n#### Kernels\n\n| kernel | changed | judged by |\n|---|---|---|\n".to_owned();
    for kernel in &review.kernels {
        let mut changed: Vec<String> =
            kernel.sources.iter().take(MOST_ROWS).map(|source| code(source)).collect();
        if let Some(mismatch) = &kernel.mismatch {
            changed.push(format!("⚠️ {}", text(mismatch)));
        }
        let judged: Vec<String> =
            kernel.judged_by.iter().take(MOST_ROWS).map(|name| code(name)).collect();
        let judged = if judged.is_empty() { "no contract".to_owned() } else { judged.join(", ") };
        if changed.is_empty() {
            changed.push("source and PTX".to_owned());
        }
        let row = format!("| {} | {} | {judged} |\n", code(&kernel.kernel), changed.join("<br>"));
        if out.chars().count() + row.chars().count() > room {
            out.push_str("\nMore kernels changed: `assay review --base …` shows them.\n");
            break;
        }
        out.push_str(&row);
    }
    out
}

/// One line without tricks, not too long.
fn plain(text: &str) -> String {
    text.chars().map(|c| if is_trick(c) { ' ' } else { c }).collect()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A name as code. Nothing inside a code span is markup; a bar would still end a table's cell.
fn code(name: &str) -> String {
    let inner = cut(&plain(name)).replace('`', "'").replace('|', "\\|");
    if inner.trim().is_empty() { "` `".to_owned() } else { format!("`{inner}`") }
}

/// Prose: what stands between backquotes as code, the rest escaped.
fn text(prose: &str) -> String {
    let prose = cut(&plain(prose));
    let parts: Vec<&str> = prose.split('`').collect();
    // An odd quote out quotes nothing.
    if parts.len().is_multiple_of(2) {
        return escaped(&prose);
    }
    let part = |(place, part): (usize, &&str)| {
        if place % 2 == 1 { code(part) } else { escaped(part) }
    };
    parts.iter().enumerate().map(part).collect()
}

/// Characters that could be markup, as themselves. A zero-width space keeps names, issue numbers and
/// addresses from becoming mentions and links.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '(' | ')' | '|' | '~' | '$' | '!' => {
                out.push('\\');
                out.push(c);
            }
            '@' | '#' => {
                out.push(c);
                out.push('\u{200b}');
            }
            _ => out.push(c),
        }
    }
    let out = out.replace("://", ":\u{200b}//").replace("www.", "www\u{200b}.");
    // `GH-7` is issue 7 too, in any letters.
    let mut apart = String::with_capacity(out.len());
    for c in out.chars() {
        let tail = apart.len().checked_sub(2).and_then(|from| apart.get(from..));
        if c == '-' && tail.is_some_and(|tail| tail.eq_ignore_ascii_case("gh")) {
            apart.push('\u{200b}');
        }
        apart.push(c);
    }
    apart
}

/// An entry's link, its text without the scheme. Whatever an address cannot hold is encoded.
fn linked(link: &str) -> String {
    if !contracts::load::is_link(link) {
        return text(link);
    }
    let mut target = String::new();
    for byte in link.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~:/?#@!&+,;=%".contains(&byte);
        if plain {
            target.push(char::from(byte));
        } else {
            let _ = write!(target, "%{byte:02X}");
        }
    }
    let shown = link.split_once("://").map_or(link, |(_, rest)| rest);
    format!("[{}]({target})", escaped(&cut(&plain(shown))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_neither_markup_nor_a_mention_nor_a_link() {
        assert_eq!(text("a|b"), "a\\|b");
        assert_eq!(
            text("<img src=x> **b** _c_ [d](e)"),
            "&lt;img src=x&gt; \\*\\*b\\*\\* \\_c\\_ \\[d\\]\\(e\\)"
        );
        assert_eq!(text("@all see #1"), "@\u{200b}all see #\u{200b}1");
        assert_eq!(text("GH-7 or gh-7, é-7"), "GH\u{200b}-7 or gh\u{200b}-7, é-7");
        assert_eq!(
            text("https://evil.example www.evil.example"),
            "https:\u{200b}//evil.example www\u{200b}.evil.example"
        );
        assert_eq!(text("one\n\n# two\u{202e}"), "one  #\u{200b} two ");
        assert_eq!(text("`a|b` and _c_"), "`a\\|b` and \\_c\\_");
        assert_eq!(text("an odd ` quote <b>"), "an odd \\` quote &lt;b&gt;");
        assert_eq!(code("a`b\nc"), "`a'b c`");
        assert!(text(&"x".repeat(5000)).chars().count() <= MOST_TEXT + 1);
    }

    #[test]
    fn only_web_addresses_are_links() {
        assert_eq!(
            linked("https://example.org/issues/1"),
            "[example.org/issues/1](https://example.org/issues/1)"
        );
        assert_eq!(
            linked("https://e.org/a)b|c\"<"),
            "[e.org/a\\)b\\|c\"&lt;](https://e.org/a%29b%7Cc%22%3C)"
        );
        assert_eq!(linked("javascript:alert(1)"), "javascript:alert\\(1\\)");
    }
}
