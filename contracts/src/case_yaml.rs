//! Cases as YAML: decoded decisions, floating-point values as bits of their type's width, elements by
//! logical coordinates. Reading gives back every bit; a text that no longer fits its contract is an
//! error that says which field changed.

mod read;
mod write;

pub use read::{read_case, read_versioned};
pub use write::write_case;

/// Longest case, in bytes.
pub const CASE_LIMIT_BYTES: usize = 4 << 20;

/// Most elements written one by one beside a fill; denser contents are written as digits.
const MOST_OVERRIDES: usize = 4096;

/// The version of this form, the value of `case:`.
const FORM_VERSION: u32 = 1;
