//! Edits of a text by its lines and tokens.

use crate::samples::pieces;
use crate::text::{lines, tokens, words};
use arbitrary::Arbitrary;

/// No edit makes a text longer than this.
const LONGEST_BYTES: usize = 64 << 10;

/// One change. Positions and choices are taken modulo what there is.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub enum Edit {
    /// A token becomes a word of its kind: a modifier, a register, a number or a sign.
    Word { at: u16, word: u16 },
    /// A token becomes a number.
    Number { at: u16, value: i32 },
    /// A token becomes another one of the text.
    Copy { at: u16, from: u16 },
    /// Two tokens change places.
    Exchange { at: u16, with: u16 },
    /// A word stands before a token.
    Insert { at: u16, word: u16 },
    /// A statement stands before a line.
    Statement { at: u16, word: u16 },
    /// A line is said again elsewhere.
    Line { at: u16, from: u16 },
    /// A line of another piece comes in.
    Graft { at: u16, piece: u8, from: u16 },
    /// Lines go.
    Remove { at: u16, count: u8 },
    /// A line is said many times.
    Repeat { at: u16, times: u8 },
    /// A sign stands many times before a token.
    Nest { at: u16, sign: u8, times: u16 },
    /// A byte changes.
    Byte { at: u16, value: u8 },
    /// The text ends.
    Cut { at: u16 },
}

/// A piece after some edits.
#[derive(Arbitrary, Debug, Clone)]
pub struct Mutant {
    /// Which piece.
    pub piece: u8,
    /// What is done to it, one after the other.
    pub edits: Vec<Edit>,
}

impl Mutant {
    /// The edited text.
    pub fn text(&self) -> String {
        let all = pieces();
        let mut text = all[usize::from(self.piece) % all.len()].clone();
        for edit in self.edits.iter().take(16) {
            edit.apply(&mut text);
        }
        text
    }
}

impl Edit {
    /// Changes the text, if it has what is to be changed.
    pub fn apply(self, text: &mut String) {
        match self {
            Edit::Word { at, word } => {
                let kind = |text: &str| match text.as_bytes() {
                    [b'.', rest @ ..] if !rest.is_empty() && !rest.contains(&b' ') => 0,
                    [b'%', ..] => 1,
                    [b'0'..=b'9', ..] | [b'-', _, ..] => 2,
                    _ => 3,
                };
                if let Some(token) = nth(&tokens(text), at) {
                    let wanted = kind(&text[token]);
                    let all: Vec<_> = words()
                        .iter()
                        .filter(|word| kind(word) == wanted && word.len() < 22)
                        .collect();
                    replace(text, at, all[usize::from(word) % all.len()]);
                }
            }
            Edit::Number { at, value } => replace(text, at, &value.to_string()),
            Edit::Copy { at, from } => {
                let all = tokens(text);
                if let Some(from) = nth(&all, from) {
                    let from = text[from].to_owned();
                    replace(text, at, &from);
                }
            }
            Edit::Exchange { at, with } => {
                let all = tokens(text);
                if let (Some(a), Some(b)) = (nth(&all, at), nth(&all, with)) {
                    let (first, second) = if a.start <= b.start { (a, b) } else { (b, a) };
                    if first.end <= second.start {
                        let (one, other) =
                            (text[first.clone()].to_owned(), text[second.clone()].to_owned());
                        text.replace_range(second, &one);
                        text.replace_range(first, &other);
                    }
                }
            }
            Edit::Insert { at, word } => {
                insert(text, at, &format!("{} ", words()[usize::from(word) % words().len()]))
            }
            Edit::Statement { at, word } => {
                let all: Vec<_> = words()
                    .iter()
                    .filter(|word| word.ends_with([';', ':']) && word.len() > 1)
                    .collect();
                if let Some(line) = nth(&lines(text), at) {
                    put(text, line.start, all[usize::from(word) % all.len()]);
                }
            }
            Edit::Line { at, from } => {
                let all = lines(text);
                if let (Some(at), Some(from)) = (nth(&all, at), nth(&all, from)) {
                    let line = text[from].to_owned();
                    put(text, at.start, &line);
                }
            }
            Edit::Graft { at, piece, from } => {
                let other = &pieces()[usize::from(piece) % pieces().len()];
                if let (Some(at), Some(from)) = (nth(&lines(text), at), nth(&lines(other), from)) {
                    put(text, at.start, &other[from]);
                }
            }
            Edit::Remove { at, count } => {
                let all = lines(text);
                if let Some(first) = nth(&all, at) {
                    let ahead = all.iter().filter(|line| line.start >= first.start);
                    let last = ahead
                        .take(usize::from(count % 8) + 1)
                        .last()
                        .map_or(first.end, |line| line.end);
                    text.replace_range(first.start..last, "");
                }
            }
            Edit::Repeat { at, times } => {
                if let Some(line) = nth(&lines(text), at) {
                    let again = text[line.clone()].repeat(usize::from(times));
                    put(text, line.start, &again);
                }
            }
            Edit::Nest { at, sign, times } => {
                let sign = ["{", "(", "[", "-", "!", "|", "@", ","][usize::from(sign) % 8];
                insert(text, at, &sign.repeat(usize::from(times)));
            }
            Edit::Byte { at, value } => {
                let Some(token) = nth(&tokens(text), at) else { return };
                text.replace_range(token, &char::from(value).to_string());
            }
            Edit::Cut { at } => {
                if let Some(token) = nth(&tokens(text), at) {
                    text.truncate(token.start);
                }
            }
        }
    }
}

fn nth(all: &[std::ops::Range<usize>], n: u16) -> Option<std::ops::Range<usize>> {
    (!all.is_empty()).then(|| all[usize::from(n) % all.len()].clone())
}

fn replace(text: &mut String, at: u16, by: &str) {
    if let Some(token) = nth(&tokens(text), at) {
        text.replace_range(token, by);
    }
}

fn insert(text: &mut String, at: u16, what: &str) {
    match nth(&tokens(text), at) {
        Some(token) => put(text, token.start, what),
        None => put(text, 0, what),
    }
}

fn put(text: &mut String, at: usize, what: &str) {
    if text.len() + what.len() <= LONGEST_BYTES {
        text.insert_str(at, what);
    }
}
