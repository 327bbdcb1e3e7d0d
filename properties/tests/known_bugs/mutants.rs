//! PTX of mutants, one entry each, stored beside the rows with the hash of the edited sources.

use kernels::compile::Compiler;
use kernels::ptx::sources;
use properties::mutate::named;
use std::path::PathBuf;

/// The PTX of one entry of a mutant; compiled anew, and stored, where the table is written.
pub fn ptx(contract: &str, mutant: &str, entry: &str, compiles: bool) -> String {
    let path = path(contract, mutant);
    if compiles && is_fresh(contract, mutant).is_err() {
        let compiler = Compiler::find().unwrap_or_else(|error| panic!("{error}"));
        let root = sources::checkout_root().expect("a checkout");
        let subject = properties::subject::subject(contract).expect("a contract");
        let made = named::of_mutant(compiler.installation(), &root, subject, mutant)
            .unwrap_or_else(|error| panic!("{error}"));
        let text = only(&made.ptx, entry);
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether the stored PTX was compiled from the sources as they are, edited.
pub fn is_fresh(contract: &str, mutant: &str) -> Result<(), String> {
    let root = sources::checkout_root().ok_or("kernels/cuda is not here")?;
    let hash = named::source_hash(&root, contract, mutant).map_err(|error| error.to_string())?;
    let path = path(contract, mutant);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let head = text.lines().next().unwrap_or_default();
    if head.contains(&hash) {
        return Ok(());
    }
    Err(format!(
        "{} is not compiled from these sources; UPDATE_KNOWN_BUGS=1 cargo test --release -p properties \
         --test known_bugs",
        path.display()
    ))
}

fn path(contract: &str, mutant: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/known_bugs");
    folder.join(format!("{contract}.{mutant}.ptx"))
}

/// The text without other entries, and without lines of the debugger's sections.
fn only(text: &str, entry: &str) -> String {
    let mut out = String::new();
    let (mut inside, mut keeps) = (false, true);
    for line in text.lines() {
        if let Some((_, declared)) = line.split_once(".entry ") {
            inside = true;
            keeps = declared.split(['(', ' ', '{']).next() == Some(entry);
        }
        if !inside || keeps {
            out.push_str(line);
            out.push('\n');
        }
        if inside && line.starts_with('}') {
            (inside, keeps) = (false, true);
        }
    }
    out
}
