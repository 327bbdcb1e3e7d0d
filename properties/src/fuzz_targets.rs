//! The generated part of fuzz/Cargo.toml: cargo-fuzz finds a target only as a `[[bin]]` entry, so
//! the registry is written out there, and a test compares.

use crate::subject::{canary, subjects};

/// The line after which everything is generated.
pub const MARK: &str = "# --- generated: one entry per contract ---";
/// What writes it.
pub const COMMAND: &str = "cargo run --release -- fuzz-targets";

/// The manifest with its generated part made anew; `None` when the mark is missing.
pub fn manifest(old: &str) -> Option<String> {
    let head = &old[..old.find(MARK)?];
    let names = subjects().iter().chain(canary()).map(|subject| subject.name());
    let entries: Vec<_> = names.map(entry).collect();
    Some(format!("{head}{MARK}\n{}", entries.join("\n")))
}

fn entry(name: &str) -> String {
    format!(
        "[[bin]]\nname = \"{name}\"\npath = \"fuzz_targets/contract.rs\"\ntest = false\ndoc = false\nbench = false\n"
    )
}
