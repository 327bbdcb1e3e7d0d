//! PTX text as lines and tokens, and the words that edits put in.

use std::ops::Range;
use std::sync::OnceLock;

/// Words of the language, statements and numbers at the edges.
pub fn words() -> &'static [&'static str] {
    static WORDS: OnceLock<Vec<&str>> = OnceLock::new();
    WORDS.get_or_init(|| include_str!("../words.txt").lines().collect())
}

/// Where the lines are, their ends included.
pub fn lines(text: &str) -> Vec<Range<usize>> {
    let mut start = 0;
    let pieces = text.split_inclusive('\n');
    pieces
        .map(|line| {
            let range = start..start + line.len();
            start = range.end;
            range
        })
        .collect()
}

/// Where the words, numbers and single signs are; an opcode's parts with their dots are tokens each.
pub fn tokens(text: &str) -> Vec<Range<usize>> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | ':');
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut open = false;
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        match out.last_mut() {
            Some(last) if open && is_word(c) => last.end = end,
            _ if c.is_whitespace() => {}
            _ => out.push(at..end),
        }
        open = is_word(c) || matches!(c, '.' | '%');
    }
    out
}
