//! NumPy's `.npy` files, formats 1.0 to 3.0: little-endian, C order, plain element types. Nothing
//! is read that the header does not account for byte by byte, and no memory is taken before.

use super::element::Element;
use std::fmt;

/// Longest header read: NumPy writes some hundred bytes.
const HEADER_LIMIT_BYTES: usize = 1 << 16;
const MAGIC: &[u8] = b"\x93NUMPY";

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub element: Element,
    pub shape: Vec<u64>,
    /// Where the elements begin.
    pub data_at: usize,
}

/// What is wrong with a file, by the header's field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NpyError {
    /// It does not begin like a `.npy` file.
    Magic,
    /// A version later than 3.0, or earlier than 1.0.
    Version(u8, u8),
    /// The header ends before its stated length, or is longer than any that NumPy writes.
    HeaderLength(u64),
    /// The header is no dictionary of `descr`, `fortran_order` and `shape`.
    Dictionary(String),
    /// A field is missing.
    Missing(&'static str),
    /// An element type that is not read.
    Descr(String),
    /// Column-major elements.
    FortranOrder,
    /// A shape that is none, or larger than any memory.
    Shape(String),
    /// The elements' bytes are more or fewer than the shape says.
    Length { shape: Vec<u64>, expected: u64, found: u64 },
}

impl fmt::Display for NpyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NpyError::Magic => f.write_str(
                "magic: not a .npy file; save one with `numpy.save`, or pass the bytes with raw:",
            ),
            NpyError::Version(major, minor) => {
                write!(f, "version: {major}.{minor} is not known; there are 1.0, 2.0 and 3.0")
            }
            NpyError::HeaderLength(length) => write!(
                f,
                "header length: {length} bytes, beyond the end of the file or {HEADER_LIMIT_BYTES} bytes"
            ),
            NpyError::Dictionary(what) => write!(
                f,
                "header: {what}; a dictionary of descr, fortran_order and shape is expected"
            ),
            NpyError::Missing(field) => write!(f, "{field}: missing from the header"),
            NpyError::Descr(descr) => write!(
                f,
                "descr: {descr:?} is not read; little-endian f2, f4, f8, i1 to i8, u1 to u8 and b1 are \
                 (`x.astype('<f4')`; bf16 as uint16)"
            ),
            NpyError::FortranOrder => f.write_str(
                "fortran_order: True; save the C-order copy, `numpy.ascontiguousarray(x)`",
            ),
            NpyError::Shape(what) => write!(f, "shape: {what}"),
            NpyError::Length { shape, expected, found } => write!(
                f,
                "shape: {shape:?} needs {expected} bytes of elements, the file has {found}"
            ),
        }
    }
}

/// Reads a header from the beginning of a file of `file_bytes` bytes; `head` holds at least the
/// first [`prefix_bytes`] of it.
pub fn header(head: &[u8], file_bytes: u64) -> Result<Header, NpyError> {
    let rest = head.strip_prefix(MAGIC).ok_or(NpyError::Magic)?;
    let [major, minor, rest @ ..] = rest else { return Err(NpyError::Magic) };
    let (length, rest, at) = match (major, minor, rest) {
        (1, 0, [a, b, rest @ ..]) => (u64::from(u16::from_le_bytes([*a, *b])), rest, 10),
        (2 | 3, 0, [a, b, c, d, rest @ ..]) => {
            (u64::from(u32::from_le_bytes([*a, *b, *c, *d])), rest, 12)
        }
        (1..=3, 0, _) => return Err(NpyError::HeaderLength(0)),
        _ => return Err(NpyError::Version(*major, *minor)),
    };
    let text = usize::try_from(length).ok().filter(|length| *length <= HEADER_LIMIT_BYTES);
    let text = text.and_then(|length| rest.get(..length)).ok_or(NpyError::HeaderLength(length))?;
    let data_at = at + text.len();
    let text = std::str::from_utf8(text)
        .map_err(|_| NpyError::Dictionary("it is not UTF-8".to_owned()))?;
    let (element, shape) = dictionary(text)?;
    let expected = size_bytes(element, &shape)
        .ok_or_else(|| NpyError::Shape(format!("{shape:?} is larger than any memory")))?;
    let found = file_bytes.saturating_sub(data_at as u64);
    if expected != found {
        return Err(NpyError::Length { shape, expected, found });
    }
    Ok(Header { element, shape, data_at })
}

/// Bytes of a file that always hold its header.
pub const fn prefix_bytes() -> usize {
    HEADER_LIMIT_BYTES + 12
}

/// Bytes of an array; `None` beyond 2⁶³.
pub fn size_bytes(element: Element, shape: &[u64]) -> Option<u64> {
    let size = shape.iter().try_fold(element.size_bytes(), |size, n| size.checked_mul(*n))?;
    (size <= i64::MAX as u64).then_some(size)
}

/// A whole file of version 1.0. The shape's text must fit its 16-bit length, as any does that
/// this tool takes.
pub fn head_of(element: Element, shape: &[u64]) -> Vec<u8> {
    let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let mut text = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        element.descr(),
        extents.join(", ")
    );
    // The elements begin at a multiple of 64.
    let padded = (10 + text.len() + 1).next_multiple_of(64) - 10;
    text.extend(std::iter::repeat_n(' ', padded - 1 - text.len()));
    text.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

#[derive(Clone, Debug, PartialEq)]
enum Token<'a> {
    Text(&'a str),
    Word(&'a str),
    Mark(char),
}

fn tokens(text: &str) -> Result<Vec<Token<'_>>, NpyError> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '\'' | '"' => {
                let end = rest[1..].find(first).ok_or_else(|| {
                    NpyError::Dictionary("a quotation mark has no partner".to_owned())
                })?;
                all.push(Token::Text(&rest[1..1 + end]));
                end + 2
            }
            '{' | '}' | '(' | ')' | '[' | ']' | ':' | ',' => {
                all.push(Token::Mark(first));
                1
            }
            _ if first.is_ascii_alphanumeric() || first == '-' => {
                let word = |c: char| !c.is_ascii_alphanumeric() && c != '-';
                let end = rest.find(word).unwrap_or(rest.len());
                all.push(Token::Word(&rest[..end]));
                end
            }
            other => return Err(NpyError::Dictionary(format!("{other:?} has no place in it"))),
        };
        rest = rest[end..].trim_start();
    }
    Ok(all)
}

fn dictionary(text: &str) -> Result<(Element, Vec<u64>), NpyError> {
    let all = tokens(text)?;
    let [Token::Mark('{'), inner @ .., Token::Mark('}')] = &*all else {
        return Err(NpyError::Dictionary("it has no braces".to_owned()));
    };
    let (mut element, mut shape, mut order) = (None, None, false);
    let mut rest = inner;
    while let [key, tail @ ..] = rest {
        let (Token::Text(key), [Token::Mark(':'), value @ ..]) = (key, tail) else {
            return Err(NpyError::Dictionary("a field is no 'name': value".to_owned()));
        };
        let mut used = 1;
        match (*key, value) {
            ("descr", [Token::Text(descr), ..]) => {
                let known = Element::of_descr(descr);
                element = Some(known.ok_or_else(|| NpyError::Descr((*descr).to_owned()))?);
            }
            ("descr", _) => return Err(NpyError::Descr("a structured type".to_owned())),
            ("fortran_order", [Token::Word("False"), ..]) => order = true,
            ("fortran_order", [Token::Word("True"), ..]) => {
                return Err(NpyError::FortranOrder);
            }
            ("fortran_order", _) => {
                return Err(NpyError::Dictionary("fortran_order is not True or False".to_owned()));
            }
            ("shape", [Token::Mark('('), extents @ ..]) => {
                let (extents, taken) = tuple(extents)?;
                shape = Some(extents);
                used = taken + 1;
            }
            ("shape", _) => return Err(NpyError::Shape("not a tuple".to_owned())),
            (other, _) => {
                return Err(NpyError::Dictionary(format!("the field {other:?} is not known")));
            }
        }
        rest = match &value[used..] {
            [Token::Mark(','), rest @ ..] => rest,
            [] => &[],
            _ => return Err(NpyError::Dictionary(format!("after {key} a comma is missing"))),
        };
    }
    if !order && element.is_some() && shape.is_some() {
        return Err(NpyError::Missing("fortran_order"));
    }
    Ok((element.ok_or(NpyError::Missing("descr"))?, shape.ok_or(NpyError::Missing("shape"))?))
}

/// Extents up to the closing parenthesis, and how many tokens they and it took.
fn tuple(tokens: &[Token<'_>]) -> Result<(Vec<u64>, usize), NpyError> {
    const MOST: usize = 64;
    let mut extents = Vec::new();
    for (taken, token) in tokens.iter().enumerate() {
        match token {
            Token::Mark(')') => return Ok((extents, taken + 1)),
            Token::Mark(',') => {}
            // NumPy 1 on Python 2 wrote `3L`.
            Token::Word(word) if extents.len() < MOST => {
                let extent = word.trim_end_matches('L').parse();
                extents.push(extent.map_err(|_| NpyError::Shape(format!("{word} is no extent")))?);
            }
            _ => return Err(NpyError::Shape(format!("not a tuple of at most {MOST} numbers"))),
        }
    }
    Err(NpyError::Shape("the tuple has no end".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of version 1.0 with this dictionary and this many bytes of elements.
    fn file(text: &str, data: usize) -> (Vec<u8>, u64) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[1, 0]);
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        let size = (bytes.len() + data) as u64;
        (bytes, size)
    }

    fn read(text: &str, data: usize) -> Result<Header, NpyError> {
        let (bytes, size) = file(text, data);
        header(&bytes, size)
    }

    #[test]
    fn what_is_written_is_read() {
        for (element, shape) in [
            (Element::F32, vec![3, 4]),
            (Element::I8, vec![5]),
            (Element::U64, vec![]),
            (Element::F16, vec![0, 7]),
        ] {
            let head = head_of(element, &shape);
            assert_eq!(head.len() % 64, 0);
            let size = size_bytes(element, &shape).expect("small");
            let read = header(&head, head.len() as u64 + size).expect("it is well formed");
            assert_eq!(read, Header { element, shape, data_at: head.len() });
        }
        // bf16 travels as uint16.
        let head = head_of(Element::BF16, &[2]);
        let read = header(&head, head.len() as u64 + 4).expect("it is well formed");
        assert_eq!(read.element, Element::U16);
    }

    #[test]
    fn what_other_writers_write_is_read() {
        for text in [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
            "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L)}   ",
        ] {
            let read = read(text, 24).expect(text);
            assert_eq!((read.element, &*read.shape), (Element::F32, &[2, 3][..]));
        }
        let (bytes, _) = file("{'descr': '|u1', 'fortran_order': False, 'shape': ()}", 1);
        let mut second = MAGIC.to_vec();
        second.extend_from_slice(&[2, 0]);
        second.extend_from_slice(&(bytes.len() as u32 - 10).to_le_bytes());
        second.extend_from_slice(&bytes[10..]);
        let read = header(&second, second.len() as u64 + 1).expect("version 2.0");
        assert!(read.shape.is_empty());
    }

    #[test]
    fn errors_name_the_field() {
        let good = |field: &str, value: &str| {
            let mut text = String::from("{");
            for (name, usual) in
                [("descr", "'<f4'"), ("fortran_order", "False"), ("shape", "(2, 3)")]
            {
                let value = if name == field { value } else { usual };
                if !value.is_empty() {
                    text.push_str(&format!("'{name}': {value}, "));
                }
            }
            text + "}"
        };
        for (text, data, names) in [
            (good("descr", "'>f4'"), 24, "descr: \">f4\""),
            (good("descr", "'<c8'"), 24, "descr: \"<c8\""),
            (good("descr", "[('x', '<f4')]"), 24, "descr: \"a structured type\""),
            (good("descr", ""), 24, "descr: missing"),
            (good("fortran_order", "True"), 24, "fortran_order: True"),
            (good("fortran_order", "0"), 24, "fortran_order is not"),
            (good("fortran_order", ""), 24, "fortran_order: missing"),
            (good("shape", ""), 24, "shape: missing"),
            (good("shape", "[2, 3]"), 24, "shape: not a tuple"),
            (good("shape", "(2, -3)"), 24, "shape: -3"),
            (good("shape", "(2, 3"), 24, "shape: "),
            (good("shape", "(4294967296, 4294967296)"), 24, "larger than any memory"),
            (good("shape", "(99999999999999999999,)"), 24, "is no extent"),
            (good("shape", "(2, 3)"), 20, "needs 24 bytes of elements, the file has 20"),
            (good("shape", "(2, 3)"), 28, "needs 24 bytes of elements, the file has 28"),
            (good("shape", "(2, 3)").replace("'shape'", "'form'"), 24, "\"form\""),
            ("".to_owned(), 0, "no braces"),
            ("{'descr".to_owned(), 0, "no partner"),
            ("{'descr' '<f4'}".to_owned(), 0, "'name': value"),
            ("{'descr': '<f4' 'shape': ()}".to_owned(), 0, "a comma is missing"),
            ("{'shape': (2; 3)}".to_owned(), 0, "';'"),
        ] {
            let error = read(&text, data).expect_err(&text).to_string();
            assert!(error.contains(names), "{text}: {error}");
        }
        for (bytes, names) in [
            (&b""[..], "magic"),
            (b"\x93NUMPX\x01\x00\x00\x00", "magic"),
            (b"\x93NUMPY", "magic"),
            (b"\x93NUMPY\x04\x00\x00\x00", "version: 4.0"),
            (b"\x93NUMPY\x01\x00\x09", "header length"),
            (b"\x93NUMPY\x01\x00\xff\xff{}", "header length"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "header length"),
            (b"\x93NUMPY\x01\x00\x02\x00\xff\xfe", "UTF-8"),
        ] {
            let error = header(bytes, bytes.len() as u64).expect_err(names).to_string();
            assert!(error.contains(names), "{names}: {error}");
        }
    }

    #[test]
    fn no_truncation_or_flip_panics() {
        let (bytes, size) =
            file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
        for end in 0..bytes.len() {
            assert!(header(&bytes[..end], size).is_err());
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let _ = header(&changed, size);
            }
        }
    }
}
