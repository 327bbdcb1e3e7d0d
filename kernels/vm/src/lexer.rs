//! Splits PTX text into words, punctuation and strings, each with its line.
//! Opcodes with their dots (`ld.global.v4.u32`) are one word; comments vanish.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Word,
    Punct(u8),
    String,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    pub line: u32,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn is_number(token: &Token<'_>) -> bool {
    token.kind == Kind::Word && token.text.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether the sign of an exponent stands there, as in `1.5e-3`.
fn is_exponent_sign(word: &[u8], at: usize) -> bool {
    let fraction = |b: &u8| b.is_ascii_digit() || *b == b'.';
    matches!(word[at], b'+' | b'-')
        && at > 1
        && matches!(word[at - 1], b'e' | b'E')
        && word[..at - 1].iter().all(fraction)
        && word.get(at + 1).is_some_and(u8::is_ascii_digit)
}

/// All tokens, closed by one of kind [`Kind::End`].
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(text.len() / 5);
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let byte = bytes[at];
        match byte {
            b'\n' => {
                line += 1;
                at += 1;
            }
            b' ' | b'\t' | b'\r' | 0 => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at += 2;
                while at < bytes.len() && !bytes[at..].starts_with(b"*/") {
                    line += u32::from(bytes[at] == b'\n');
                    at += 1;
                }
                at = (at + 2).min(bytes.len());
            }
            b'"' => {
                let start = at + 1;
                at = start;
                while at < bytes.len() && bytes[at] != b'"' && bytes[at] != b'\n' {
                    at += 1;
                }
                out.push(Token {
                    kind: Kind::String,
                    text: text.get(start..at).unwrap_or(""),
                    line,
                });
                at = (at + 1).min(bytes.len());
            }
            // After a number it is the operator, not the start of a name.
            b'%' if out.last().is_some_and(|last: &Token<'_>| is_number(last)) => {
                out.push(Token { kind: Kind::Punct(byte), text: &text[at..=at], line });
                at += 1;
            }
            _ if is_word(byte) => {
                let start = at;
                while at < bytes.len()
                    && (is_word(bytes[at]) || is_exponent_sign(&bytes[start..], at - start))
                    && !(bytes[at] == b'%' && bytes[start].is_ascii_digit())
                {
                    at += 1;
                }
                // `::` belongs to modifiers such as `.shared::cta`.
                while bytes[at..].starts_with(b"::")
                    && bytes.get(at + 2).is_some_and(|b| is_word(*b))
                {
                    at += 2;
                    while at < bytes.len() && is_word(bytes[at]) {
                        at += 1;
                    }
                }
                out.push(Token { kind: Kind::Word, text: &text[start..at], line });
            }
            _ => {
                let len = text[at..].chars().next().map_or(1, char::len_utf8);
                out.push(Token { kind: Kind::Punct(byte), text: &text[at..at + len], line });
                at += len;
            }
        }
    }
    out.push(Token { kind: Kind::End, text: "the end of the text", line });
    out
}
