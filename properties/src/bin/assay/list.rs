//! `assay list`: what is promised, and what stands in the corpora. Also writes the one generated
//! list that is not Rust: the targets in fuzz/Cargo.toml.

use crate::{Failure, Format, Outcome, repository, say};
use properties::corpus;
use properties::fuzz_targets;
use properties::rounds::{CONTRACT, protocol};
use properties::subject::{Subject, subjects};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Arguments {
    /// Where the corpora are.
    #[arg(long, value_name = "FOLDER")]
    corpora: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(clap::Args)]
pub struct FuzzTargetArguments {
    /// Only say whether the file is as it should be.
    #[arg(long)]
    check: bool,
}

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let root = arguments.corpora.unwrap_or_else(|| repository().join("corpora"));
    let mut rows = Vec::new();
    for subject in subjects() {
        let regressions = corpus::files(&root, subject.name())?.len();
        rows.push((subject, regressions));
    }
    let histories = corpus::files(&root, CONTRACT)?.len();
    match arguments.format {
        Format::Text => say(&format!("{}{}", text(&rows), protocol_text(histories)))?,
        Format::Json => {
            let mut rows: Vec<_> = rows.iter().map(json).collect();
            rows.push(protocol_json(histories));
            say(&format!("{}\n", serde_json::Value::from(rows)))?;
        }
    }
    Ok(Outcome::Clean)
}

/// What is promised of events, which no kernel keeps alone.
fn protocol_text(histories: usize) -> String {
    let protocol = protocol();
    format!(
        "protocol\n  {:<16} {}\n  {:<16} version {}, {} events, {} invariants, {} mutants, {histories} regressions; cargo fuzz run {}\n",
        protocol.contract,
        protocol.summary,
        "",
        protocol.version,
        protocol.events.len(),
        protocol.invariants.len(),
        protocol.mutants.len(),
        protocol.contract,
    )
}

fn protocol_json(histories: usize) -> serde_json::Value {
    let protocol = protocol();
    serde_json::json!({
        "contract": protocol.contract,
        "family": contracts::family(&protocol.contract),
        "version": protocol.version,
        "summary": protocol.summary,
        "spec": protocol.spec,
        "dtypes": protocol.dtypes,
        "events": protocol.events.keys().collect::<Vec<_>>(),
        "clauses": protocol.invariants.keys().map(|name| format!("invariants.{name}")).collect::<Vec<_>>(),
        "mutants": protocol.mutants.keys().collect::<Vec<_>>(),
        "regressions": histories,
        "fuzz_target": protocol.contract,
    })
}

fn text(rows: &[(&Subject, usize)]) -> String {
    let mut out = String::new();
    let mut family = "";
    for (subject, regressions) in rows {
        if subject.family != family {
            family = subject.family;
            out.push_str(&format!("{family}\n"));
        }
        let contract = subject.contract;
        out.push_str(&format!("  {:<16} {}\n", subject.name(), contract.summary));
        out.push_str(&format!(
            "  {:<16} version {}, {} clauses, {} fixtures, {} mutants, {regressions} regressions; cargo fuzz run {}\n",
            "",
            contract.version,
            subject.clauses.len(),
            contract.fixtures.len(),
            contract.mutants.len(),
            subject.name(),
        ));
    }
    out
}

fn json((subject, regressions): &(&Subject, usize)) -> serde_json::Value {
    let contract = subject.contract;
    let clauses: Vec<_> = subject.clauses.iter().map(|clause| clause.id.as_str()).collect();
    serde_json::json!({
        "contract": subject.name(),
        "family": subject.family,
        "version": contract.version,
        "summary": contract.summary,
        "spec": contract.spec,
        "dtypes": contract.dtypes,
        "clauses": clauses,
        "fixtures": contract.fixtures.keys().collect::<Vec<_>>(),
        "mutants": contract.mutants.keys().collect::<Vec<_>>(),
        "regressions": regressions,
        "fuzz_target": subject.name(),
    })
}

pub fn write_fuzz_targets(arguments: FuzzTargetArguments) -> Result<Outcome, Failure> {
    let path = repository().join("fuzz/Cargo.toml");
    let named = |error: std::io::Error| Failure(format!("{}: {error}", path.display()));
    let old = std::fs::read_to_string(&path).map_err(named)?;
    let new = fuzz_targets::manifest(&old).ok_or_else(|| {
        Failure(format!("{}: lacks the line `{}`", path.display(), fuzz_targets::MARK))
    })?;
    if old == new {
        return Ok(Outcome::Clean);
    }
    if arguments.check {
        eprintln!("{}: run `{}`", path.display(), fuzz_targets::COMMAND);
        return Ok(Outcome::Found);
    }
    std::fs::write(&path, new).map_err(named)?;
    Ok(Outcome::Clean)
}
