//! `assay replay`: stored cases again, on every backend this machine has.

use crate::{Failure, Format, Outcome, repository, say, subjects};
use properties::corpus;
use properties::report;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Arguments {
    /// Case files or contract names; everything in corpora/ when none is named.
    what: Vec<String>,
    /// Where the corpora are.
    #[arg(long)]
    corpora: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let root = arguments.corpora.clone().unwrap_or_else(|| repository().join("corpora"));
    let (files, names): (Vec<_>, Vec<_>) =
        arguments.what.iter().partition(|what| is_file(what.as_str()));
    let names: Vec<String> = names.into_iter().cloned().collect();
    let mut paths: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
    if paths.is_empty() || !names.is_empty() {
        for subject in subjects(&names)? {
            paths.extend(corpus::files(&root, subject.name())?);
        }
    }
    if paths.is_empty() {
        return Err(Failure(format!("{}: no stored case was selected", root.display())));
    }
    // A file that cannot be replayed hides none of the others.
    let mut replays = Vec::new();
    let mut broken = Vec::new();
    for path in &paths {
        match properties::replay::replay(&root, std::slice::from_ref(path)) {
            Ok(replayed) => replays.extend(replayed),
            Err(error) => broken.push(error.to_string()),
        }
    }
    match arguments.format {
        Format::Text => say(&report::replays(&replays))?,
        Format::Json => say(&format!("{}\n", report::replays_json(&replays)))?,
    }
    if !broken.is_empty() {
        return Err(Failure(broken.join("\nassay: ")));
    }
    let failed = replays.iter().any(|replay| replay.is_failure());
    Ok(if failed { Outcome::Found } else { Outcome::Clean })
}

/// Whether an argument means a file rather than a contract.
fn is_file(what: &str) -> bool {
    what.contains('/') || Path::new(what).extension().is_some()
}
