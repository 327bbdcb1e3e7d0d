//! The text of one `--arg`: a number, or a buffer with its contents, its access and the file its
//! results go to. Nothing is read or allocated here.

use super::element::Element;
use super::npy;
use std::fmt;
use std::path::PathBuf;

/// One argument as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A number whose type is the parameter's.
    Bare(String),
    /// A null pointer.
    Null,
    /// A number of a given type.
    Scalar(Element, u64),
    /// The bytes of a struct.
    Bytes(Vec<u8>),
    /// A struct by its pieces.
    Struct(Vec<Piece>),
    /// The address of a buffer.
    Buffer(Buffer),
    /// A tensor map of a buffer.
    TensorMap(TensorMap, Buffer),
}

/// What stands in a struct, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    pub offset_bytes: u32,
    pub text: String,
    /// No number without a type, no struct.
    pub argument: Argument,
}

/// A buffer to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    pub contents: Contents,
    pub access: Access,
    /// Where its contents go after the launch.
    pub save: Option<PathBuf>,
}

/// What a tensor map says beside its buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorMap {
    /// Of the box, in the order of the buffer's shape.
    pub extents: Vec<u32>,
    /// Bytes of a swizzled line; 0 for none.
    pub swizzle_bytes: u32,
    /// Outside the tensor a box holds NaN.
    pub nan: bool,
}

/// What a buffer holds before the launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Contents {
    /// A `.npy` file, perhaps read as another type of the same bits.
    Npy(Option<Element>, PathBuf),
    /// The bytes of a file.
    Raw(Element, PathBuf),
    /// One value everywhere.
    Fill(Element, Vec<u64>, u64),
    /// Uniform in a range, its end left out; without one in −1 to 1, or among all integers.
    Random { element: Element, shape: Vec<u64>, seed: u64, range: Option<(f64, f64)> },
    /// Nothing: reading it before it is written is a fault.
    Uninitialised(Element, Vec<u64>),
    /// What must not be read at all.
    Unread(Element, Vec<u64>),
}

/// What the kernel may do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Stores are faults.
    ReadOnly,
    /// It is scratch, or holds results.
    Writable,
}

/// Why a text is no argument, and what would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentError {
    UnknownForm(String),
    UnknownType(String),
    BadNumber(Element, String),
    BadShape(String),
    TooLarge(String),
    BadSeed(String),
    BadRange(String),
    Missing(&'static str, &'static str),
    BadHex(String),
    BadBox(String),
    BadPiece(String),
    NotSaved(String),
}

/// The forms, for messages and for `--help`.
pub const FORMS: &str = "\
A number: 5, 1.5, TYPE:VALUE (i32:5, f16:0.5, u64:0x10), null, hex:BYTES (a struct). A struct by its
pieces: struct:AT=PIECE;AT=PIECE, each TYPE:VALUE, null, hex:, a buffer or a tensor map at a byte offset,
zeros between.
A buffer the kernel only reads: in:[TYPE:]FILE.npy, raw:[TYPE:]FILE, fill:TYPE:SHAPE:VALUE,
random:TYPE:SHAPE:SEED[:LOW:HIGH]. One it writes: out:TYPE:SHAPE[=FILE.npy], inout:BUFFER[=FILE.npy]
(BUFFER is FILE.npy or one of the forms above). Scratch: uninit:TYPE:SHAPE. Memory that must stay
unread: poison:TYPE:SHAPE. A tensor map (128 bytes) of a buffer: tensormap:BOX:BUFFER, its box of as many
extents as the buffer's shape, the last along memory; +swizzle32, +swizzle64, +swizzle128 and +nan may
follow BOX.
TYPE: f64, f32, f16, bf16, e4m3, i64 to i8, u64 to u8. SHAPE: 1024, 64x128.";

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgumentError::UnknownForm(form) => {
                write!(f, "`{form}` begins no argument.\n{FORMS}")
            }
            ArgumentError::UnknownType(name) => {
                write!(f, "`{name}` is no type; there are {}", Element::names())
            }
            ArgumentError::BadNumber(element, text) => {
                write!(f, "`{text}` is no {}", element.name())?;
                if element.is_float() {
                    write!(f, "; write 1.5, -2e-3, nan, inf, or its bits as 0x…")
                } else {
                    let (low, high) = element.range();
                    write!(f, "; write an integer from {low} to {high}, or its bits as 0x…")
                }
            }
            ArgumentError::BadShape(text) => {
                write!(f, "`{text}` is no shape; write extents as in 1024 or 64x128")
            }
            ArgumentError::TooLarge(text) => {
                write!(f, "a buffer of shape {text} is larger than 2^39 bytes")
            }
            ArgumentError::BadSeed(text) => {
                write!(f, "`{text}` is no seed; write an integer from 0 to 2^64 - 1")
            }
            ArgumentError::BadRange(text) => {
                write!(f, "`{text}` is no range; write LOW:HIGH, finite, LOW not above HIGH")
            }
            ArgumentError::Missing(what, form) => write!(f, "{what} is missing; write {form}"),
            ArgumentError::BadHex(text) => {
                write!(f, "`{text}` is no row of bytes; write two hexadecimal digits a byte")
            }
            ArgumentError::BadBox(text) => write!(
                f,
                "`{text}` is no box; write extents as in 64x32, then +swizzle32, +swizzle64, +swizzle128 or +nan"
            ),
            ArgumentError::BadPiece(text) => write!(
                f,
                "`{text}` is no piece of a struct; write AT=PIECE, AT a byte offset, PIECE as in i32:5, null, \
                 hex:00ff, fill:f32:8:0 or tensormap:8x8:fill:f32:8x8:0"
            ),
            ArgumentError::NotSaved(form) => write!(
                f,
                "`{form}:` is not written by the kernel, so there is nothing to save; `inout:{form}:…` is"
            ),
        }
    }
}

type Parsed<T> = Result<T, ArgumentError>;

/// Reads one argument.
pub fn parse(text: &str) -> Parsed<Argument> {
    if text == "null" {
        return Ok(Argument::Null);
    }
    let Some((head, rest)) = text.split_once(':') else {
        let number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        if number || matches!(text, "nan" | "inf") {
            return Ok(Argument::Bare(text.to_owned()));
        }
        return Err(ArgumentError::UnknownForm(text.to_owned()));
    };
    if let Some(element) = Element::of_name(head) {
        return Ok(Argument::Scalar(element, number(element, rest)?));
    }
    match head {
        "hex" => hex(rest).map(Argument::Bytes),
        "struct" => rest.split(';').map(piece).collect::<Parsed<_>>().map(Argument::Struct),
        "tensormap" => {
            let form = "tensormap:BOX:BUFFER";
            let (wanted, buffer) =
                rest.split_once(':').ok_or(ArgumentError::Missing("the buffer", form))?;
            match parse(buffer)? {
                Argument::Buffer(buffer) => Ok(Argument::TensorMap(tensor_map(wanted)?, buffer)),
                _ => Err(ArgumentError::Missing("the buffer", form)),
            }
        }
        "out" => {
            let form = "out:TYPE:SHAPE[=FILE.npy]";
            let (rest, save) = match rest.split_once('=') {
                Some((rest, path)) => (rest, Some(PathBuf::from(path))),
                None => (rest, None),
            };
            let (element, shape) = element_and_shape(rest, form)?;
            let contents = Contents::Uninitialised(element, shape);
            Ok(Argument::Buffer(Buffer { contents, access: Access::Writable, save }))
        }
        "inout" => {
            let (rest, save) = split_save(rest);
            let contents = match contents(rest) {
                Some(contents) => contents?,
                None => npy(rest)?,
            };
            Ok(Argument::Buffer(Buffer { contents, access: Access::Writable, save }))
        }
        _ => {
            let is_file = matches!(head, "in" | "raw");
            if !is_file && contents(text).is_some() && rest.contains('=') {
                return Err(ArgumentError::NotSaved(head.to_owned()));
            }
            let contents =
                contents(text).ok_or_else(|| ArgumentError::UnknownForm(head.to_owned()))??;
            let scratch = matches!(contents, Contents::Uninitialised(..) | Contents::Unread(..));
            let access = if scratch { Access::Writable } else { Access::ReadOnly };
            Ok(Argument::Buffer(Buffer { contents, access, save: None }))
        }
    }
}

/// `128=u64:5`.
fn piece(text: &str) -> Parsed<Piece> {
    let bad = || ArgumentError::BadPiece(text.to_owned());
    let (offset, rest) = text.split_once('=').ok_or_else(bad)?;
    let offset_bytes = offset.trim().parse().map_err(|_| bad())?;
    match parse(rest)? {
        Argument::Bare(_) | Argument::Struct(_) => Err(bad()),
        argument => Ok(Piece { offset_bytes, text: rest.to_owned(), argument }),
    }
}

/// The text before `=` and the file after it: a file's name may hold the sign, nothing else does.
fn split_save(text: &str) -> (&str, Option<PathBuf>) {
    let ends_in_file =
        contents(text).is_none() || matches!(text.split(':').next(), Some("in" | "raw"));
    let parts = if ends_in_file { text.rsplit_once('=') } else { text.split_once('=') };
    match parts {
        Some((rest, path)) => (rest, Some(PathBuf::from(path))),
        None => (text, None),
    }
}

/// Contents by their form; `None` when the text begins with no form.
fn contents(text: &str) -> Option<Parsed<Contents>> {
    let (head, rest) = text.split_once(':')?;
    Some(match head {
        "in" => npy(rest),
        "raw" => {
            let (element, path) = typed_path(rest);
            Ok(Contents::Raw(element.unwrap_or(Element::U8), path))
        }
        "fill" => fill(rest),
        "random" => random(rest),
        "uninit" => element_and_shape(rest, "uninit:TYPE:SHAPE")
            .map(|(element, shape)| Contents::Uninitialised(element, shape)),
        "poison" => element_and_shape(rest, "poison:TYPE:SHAPE")
            .map(|(element, shape)| Contents::Unread(element, shape)),
        _ => return None,
    })
}

fn npy(text: &str) -> Parsed<Contents> {
    if text.is_empty() {
        return Err(ArgumentError::Missing("the file", "in:[TYPE:]FILE.npy"));
    }
    let (element, path) = typed_path(text);
    Ok(Contents::Npy(element, path))
}

/// `TYPE:FILE` or `FILE`.
fn typed_path(text: &str) -> (Option<Element>, PathBuf) {
    if let Some((head, path)) = text.split_once(':')
        && let Some(element) = Element::of_name(head)
    {
        return (Some(element), PathBuf::from(path));
    }
    (None, PathBuf::from(text))
}

fn fill(text: &str) -> Parsed<Contents> {
    let form = "fill:TYPE:SHAPE:VALUE";
    let (head, value) = text.rsplit_once(':').ok_or(ArgumentError::Missing("the value", form))?;
    let (element, shape) = element_and_shape(head, form)?;
    Ok(Contents::Fill(element, shape, number(element, value)?))
}

fn random(text: &str) -> Parsed<Contents> {
    let form = "random:TYPE:SHAPE:SEED[:LOW:HIGH]";
    let parts: Vec<&str> = text.split(':').collect();
    let (head, seed, range) = match &*parts {
        [element, shape, seed] => ([*element, *shape], *seed, None),
        [element, shape, seed, low, high] => ([*element, *shape], *seed, Some((*low, *high))),
        _ => return Err(ArgumentError::Missing("a part", form)),
    };
    let (element, shape) = element_and_shape(&head.join(":"), form)?;
    let seed = seed.parse().map_err(|_| ArgumentError::BadSeed(seed.to_owned()))?;
    let range = match range {
        None => None,
        Some((low, high)) => {
            let bad = || ArgumentError::BadRange(format!("{low}:{high}"));
            let bound = |text: &str| text.parse::<f64>().ok().filter(|bound| bound.is_finite());
            let pair = (bound(low).ok_or_else(bad)?, bound(high).ok_or_else(bad)?);
            if pair.0 > pair.1 {
                return Err(bad());
            }
            // The bounds must be values of the type.
            number(element, low)?;
            number(element, high)?;
            Some(pair)
        }
    };
    Ok(Contents::Random { element, shape, seed, range })
}

fn element_and_shape(text: &str, form: &'static str) -> Parsed<(Element, Vec<u64>)> {
    let (name, shape) =
        text.split_once(':').ok_or(ArgumentError::Missing("the type or the shape", form))?;
    let element =
        Element::of_name(name).ok_or_else(|| ArgumentError::UnknownType(name.to_owned()))?;
    let extents: Result<Vec<u64>, _> = shape.split('x').map(str::parse).collect();
    let extents = extents.map_err(|_| ArgumentError::BadShape(shape.to_owned()))?;
    let size = npy::size_bytes(element, &extents);
    if extents.len() > 64 || size.is_none_or(|size| size > BUFFER_LIMIT_BYTES) {
        return Err(ArgumentError::TooLarge(shape.to_owned()));
    }
    Ok((element, extents))
}

/// The largest buffer of the virtual machine.
pub const BUFFER_LIMIT_BYTES: u64 = 1 << 39;

fn number(element: Element, text: &str) -> Parsed<u64> {
    element.parse(text).ok_or_else(|| ArgumentError::BadNumber(element, text.to_owned()))
}

/// `64x32+swizzle128+nan`.
fn tensor_map(text: &str) -> Parsed<TensorMap> {
    let bad = || ArgumentError::BadBox(text.to_owned());
    let mut parts = text.split('+');
    let extents = parts.next().unwrap_or_default().split('x').map(str::parse);
    let mut map = TensorMap {
        extents: extents.collect::<Result<_, _>>().map_err(|_| bad())?,
        swizzle_bytes: 0,
        nan: false,
    };
    for part in parts {
        match part {
            "swizzle32" => map.swizzle_bytes = 32,
            "swizzle64" => map.swizzle_bytes = 64,
            "swizzle128" => map.swizzle_bytes = 128,
            "nan" => map.nan = true,
            _ => return Err(bad()),
        }
    }
    Ok(map)
}

fn hex(text: &str) -> Parsed<Vec<u8>> {
    let bad = || ArgumentError::BadHex(text.to_owned());
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(bad());
    }
    let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| bad());
    (0..text.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(text: &str) -> Buffer {
        match parse(text) {
            Ok(Argument::Buffer(buffer)) => buffer,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(parse("5"), Ok(Argument::Bare("5".to_owned())));
        assert_eq!(parse("-1.5e3"), Ok(Argument::Bare("-1.5e3".to_owned())));
        assert_eq!(parse("bf16:1"), Ok(Argument::Scalar(Element::BF16, 0x3f80)));
        assert_eq!(parse("null"), Ok(Argument::Null));
        assert_eq!(parse("hex:00Ff10"), Ok(Argument::Bytes(vec![0, 255, 16])));
        let Ok(Argument::Struct(pieces)) = parse("struct:0=u8:5;128=inout:x.npy=y.npy") else {
            panic!("a struct");
        };
        let parts: Vec<_> = pieces.iter().map(|piece| (piece.offset_bytes, &*piece.text)).collect();
        assert_eq!(parts, [(0, "u8:5"), (128, "inout:x.npy=y.npy")]);
    }

    #[test]
    fn what_is_not_written_is_read_only() {
        for (text, access) in [
            ("in:x.npy", Access::ReadOnly),
            ("raw:x.bin", Access::ReadOnly),
            ("fill:f32:4:0", Access::ReadOnly),
            ("random:f32:4:1", Access::ReadOnly),
            ("uninit:f32:4", Access::Writable),
            ("poison:f32:4", Access::Writable),
            ("out:f32:4", Access::Writable),
            ("inout:x.npy", Access::Writable),
            ("inout:fill:f32:4:0", Access::Writable),
        ] {
            assert_eq!(buffer(text).access, access, "{text}");
        }
    }

    #[test]
    fn buffers() {
        assert_eq!(
            buffer("in:bf16:a:b.npy").contents,
            Contents::Npy(Some(Element::BF16), "a:b.npy".into())
        );
        assert_eq!(buffer("in:dir/x=1.npy").contents, Contents::Npy(None, "dir/x=1.npy".into()));
        let out = buffer("out:f16:2x3=a=b.npy");
        assert_eq!(out.contents, Contents::Uninitialised(Element::F16, vec![2, 3]));
        assert_eq!(out.save, Some("a=b.npy".into()));
        let inout = buffer("inout:x.npy=y.npy");
        assert_eq!(
            (inout.contents, inout.save),
            (Contents::Npy(None, "x.npy".into()), Some("y.npy".into()))
        );
        let inout = buffer("inout:fill:f32:4:0=a=b.npy");
        assert_eq!(inout.contents, Contents::Fill(Element::F32, vec![4], 0));
        assert_eq!(inout.save, Some("a=b.npy".into()));
        let random = buffer("random:i32:8:3:-1:5").contents;
        let (element, shape) = (Element::I32, vec![8]);
        assert_eq!(random, Contents::Random { element, shape, seed: 3, range: Some((-1.0, 5.0)) });
        assert_eq!(buffer("raw:f32:x").contents, Contents::Raw(Element::F32, "x".into()));
    }

    #[test]
    fn errors_name_the_part_and_the_way_out() {
        for (text, names) in [
            ("", "begins no argument"),
            ("x.npy", "begins no argument"),
            ("im:x.npy", "`im` begins no argument"),
            ("i32:1.5", "`1.5` is no i32; write an integer from -2147483648"),
            ("u8:256", "from 0 to 255"),
            ("f32:one", "`one` is no f32"),
            ("fill:f33:4:0", "`f33` is no type; there are f64"),
            ("fill:f32:4", "the type or the shape is missing; write fill:TYPE:SHAPE:VALUE"),
            ("fill:f32", "the value is missing; write fill:TYPE:SHAPE:VALUE"),
            ("fill:f32:4y4:0", "`4y4` is no shape"),
            ("fill:f32:-4:0", "`-4` is no shape"),
            ("fill:f32:1099511627776:0", "larger than 2^39 bytes"),
            ("out:f32:4294967296x4294967296", "larger than 2^39 bytes"),
            ("out:f32", "write out:TYPE:SHAPE[=FILE.npy]"),
            ("random:f32:4", "a part is missing; write random:TYPE:SHAPE:SEED"),
            ("random:f32:4:x", "`x` is no seed"),
            ("random:f32:4:1:2:1", "`2:1` is no range"),
            ("random:f32:4:1:0:inf", "`0:inf` is no range"),
            ("random:u8:4:1:0:256", "`256` is no u8"),
            ("in:", "the file is missing"),
            ("inout:", "the file is missing"),
            ("hex:0", "two hexadecimal digits"),
            ("hex:é", "two hexadecimal digits"),
            ("tensormap:8x8", "the buffer is missing; write tensormap:BOX:BUFFER"),
            ("tensormap:8x8:5", "the buffer is missing"),
            ("tensormap:8y8:out:f32:8x8", "`8y8` is no box"),
            ("tensormap:8x8+swizzle16:out:f32:8x8", "then +swizzle32"),
            ("fill:f32:4:0=y.npy", "`inout:fill:…` is"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(names), "{text}: {error}");
        }
    }
}
