//! What keeps a one-off run from starting, and its wording. A fault of the kernel is none of these.

use super::argument::{ArgumentError, FORMS};
use super::element::Element;
use ptx_vm::{Entry, Parameter, ParameterType};
use std::fmt;
use std::path::{Path, PathBuf};

/// Why there was no run.
#[derive(Debug)]
pub enum RunError {
    /// A file that cannot be read or written, or holds something else.
    File { path: PathBuf, what: String },
    /// The PTX text is none, or has no kernel.
    Ptx { path: PathBuf, what: String },
    /// No kernel of that name, or several and none was named.
    Entry { wanted: Option<String>, known: Vec<String> },
    /// More or fewer arguments than parameters.
    Count { entry: String, signature: String, expected: usize, given: usize },
    /// A text that is no argument.
    Argument { number: usize, text: String, error: ArgumentError },
    /// An argument that its parameter cannot take.
    Parameter { number: usize, text: String, parameter: String, why: String },
    /// A buffer that cannot be made.
    Buffer { name: String, what: String },
    /// A watch of nothing.
    Watch { text: String, why: String },
    /// A launch that no GPU would take.
    Launch { entry: String, why: String },
    /// An instruction the machine lacks.
    Unsupported { entry: String, what: String, place: String },
}

impl RunError {
    /// An input/output error of this file.
    pub fn file(path: &Path) -> impl Fn(std::io::Error) -> RunError {
        move |error| RunError::File { path: path.to_owned(), what: error.to_string() }
    }
}

/// The parameters of a kernel, one a line.
pub fn signature(entry: &Entry) -> String {
    let line = |(number, parameter): (usize, &Parameter)| {
        format!("\n  {number}  {:<24} {}", parameter.name, kind(parameter))
    };
    entry.parameters().iter().enumerate().map(line).collect()
}

/// What a parameter takes, in words.
pub fn kind(parameter: &Parameter) -> String {
    let words = match parameter.ty {
        ParameterType::U64 | ParameterType::S64 => "a buffer or a 64-bit integer",
        ParameterType::U32 | ParameterType::S32 => "a 32-bit integer",
        ParameterType::U16 | ParameterType::S16 => "16 bits: u16:, i16:, f16: or bf16:",
        ParameterType::U8 | ParameterType::S8 => "an 8-bit integer",
        ParameterType::F32 => "an f32",
        ParameterType::F64 => "an f64",
        ParameterType::Bytes if parameter.size_bytes == 128 => {
            "128 bytes: tensormap:BOX:BUFFER, hex:… or struct:AT=PIECE;…"
        }
        ParameterType::Bytes => {
            return format!("{} bytes: hex:… or struct:AT=PIECE;…", parameter.size_bytes);
        }
    };
    words.to_owned()
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::File { path, what } | RunError::Ptx { path, what } => {
                write!(f, "{}: {what}", path.display())
            }
            RunError::Entry { wanted: Some(wanted), known } => {
                write!(f, "--entry: the PTX has no kernel `{wanted}`; it has {}", known.join(", "))
            }
            RunError::Entry { wanted: None, known } => {
                write!(f, "--entry: name one of the PTX's kernels: {}", known.join(", "))
            }
            RunError::Count { entry, signature, expected, given } => write!(
                f,
                "--arg: `{entry}` takes {expected} arguments, {given} given:{signature}\n{FORMS}"
            ),
            RunError::Argument { number, text, error } => {
                write!(f, "--arg {number} `{text}`: {error}")
            }
            RunError::Parameter { number, text, parameter, why } => {
                write!(f, "--arg {number} `{text}`: {parameter} {why}")
            }
            RunError::Buffer { name, what } => write!(f, "{name}: {what}"),
            RunError::Watch { text, why } => write!(f, "--watch `{text}`: {why}"),
            RunError::Launch { entry, why } => write!(f, "`{entry}` cannot be launched: {why}"),
            RunError::Unsupported { entry, what, place } => write!(
                f,
                "`{entry}` reached {what} ({place}), which the virtual machine does not have; \
                 what it did until then was clean"
            ),
        }
    }
}

impl std::error::Error for RunError {}

/// The bits of a number for a parameter, or why it takes none such.
pub fn scalar_bits(parameter: &Parameter, element: Element, bits: u64) -> Result<u64, String> {
    use ParameterType::{F32, F64};
    let size = u64::from(parameter.size_bytes);
    // PTX declares integers and bits alike, a class around a number as bytes; what it declares a float is one.
    let is_float = matches!(parameter.ty, F32 | F64);
    let fits = element.size_bytes() == size && (!is_float || element.is_float());
    if !fits {
        return Err(format!("takes {}", kind(parameter)));
    }
    Ok(bits)
}

/// The bits of a number without a type.
pub fn bare_bits(parameter: &Parameter, text: &str) -> Result<u64, String> {
    use ParameterType::{Bytes, F32, F64, S8, S16, S32, S64, U8, U16, U32, U64};
    let read = |types: &[Element]| {
        let found = types.iter().find_map(|element| element.parse(text));
        found.ok_or_else(|| {
            let float = Element::F32.parse(text).is_some();
            let hint =
                if float { "; say the type if it is a float all the same (f32:1.5)" } else { "" };
            format!("takes {}{hint}", kind(parameter))
        })
    };
    match parameter.ty {
        F32 => read(&[Element::F32]),
        F64 => read(&[Element::F64]),
        U8 | S8 => read(&[Element::U8, Element::I8]),
        U32 | S32 => read(&[Element::U32, Element::I32]),
        U64 | S64 => read(&[Element::U64, Element::I64]),
        U16 | S16 => Err("holds 16 bits, of which PTX does not say the type; write u16:, i16:, f16: or bf16: before the number".to_owned()),
        Bytes => Err(format!("takes {}", kind(parameter))),
    }
}
