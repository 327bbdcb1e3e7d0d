//! `assay list`: what is promised, and what stands in the corpora. Also writes the one generated
//! list that is not Rust: the targets in fuzz/Cargo.toml.

use crate::{Failure, Format, Outcome, repository, say};
use properties::corpus;
use properties::fuzz_targets;
use properties::mutate::record::{Record, Recorded};
use properties::reach::{Reach, reach};
use properties::rounds::{CONTRACT, protocol};
use properties::subject::{Subject, subjects};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Arguments {
    /// Where the corpora are.
    #[arg(long, value_name = "FOLDER")]
    corpora: Option<PathBuf>,
    /// Also run the stored cases, the fixtures and so many fresh cases of each contract, and count the PTX
    /// branch edges they take.
    #[arg(long, value_name = "CASES")]
    edges: Option<u64>,
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

/// One contract, with what is on record and what was measured of it.
struct Row {
    subject: &'static Subject,
    regressions: usize,
    recorded: Option<Recorded>,
    reach: Option<Reach>,
}

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let root = arguments.corpora.unwrap_or_else(|| repository().join("corpora"));
    let record = Record::read(&root).map_err(Failure)?;
    let mut rows = Vec::new();
    for subject in subjects() {
        let regressions = corpus::files(&root, subject.name())?.len();
        let recorded = record.contract(subject.name()).cloned();
        let reach = arguments.edges.map(|cases| reach(subject, &root, cases)).transpose()?;
        rows.push(Row { subject, regressions, recorded, reach });
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
        "protocol\n  {:<19} {}\n  {:<19} version {}, {} events, {} invariants, {} mutants, {histories} regressions; cargo fuzz run {}\n",
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

fn text(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut family = "";
    for row in rows {
        let Row { subject, regressions, recorded, reach } = row;
        if subject.family != family {
            family = subject.family;
            out.push_str(&format!("{family}\n"));
        }
        let contract = subject.contract;
        out.push_str(&format!("  {:<19} {}\n", subject.name(), contract.summary));
        let mut line = |text: String| out.push_str(&format!("  {:<19} {text}\n", ""));
        line(format!(
            "version {}, {} clauses, {} fixtures, {regressions} regressions; cargo fuzz run {}",
            contract.version,
            subject.clauses.len(),
            contract.fixtures.len(),
            subject.name(),
        ));
        line(match recorded {
            Some(recorded) => format!(
                "mutants killed: {} of {} ({:.1} %); of {} named ones: {}",
                recorded.killed,
                recorded.total,
                recorded.points,
                contract.mutants.len(),
                recorded.named,
            ),
            None => format!("mutants: {} named, none on record", contract.mutants.len()),
        });
        if let Some(Reach { edges, entries }) = reach {
            line(format!(
                "PTX edges covered: {} of {}, in {} of {} entries",
                edges.0, edges.1, entries.0, entries.1
            ));
        }
    }
    out
}

fn json(row: &Row) -> serde_json::Value {
    let Row { subject, regressions, recorded, reach } = row;
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
        "score": recorded.as_ref().map(|recorded| serde_json::json!({
            "killed": recorded.killed,
            "total": recorded.total,
            "named": recorded.named,
        })),
        "ptx_edges": reach.map(|reach| [reach.edges.0, reach.edges.1]),
        "ptx_entries": reach.map(|reach| [reach.entries.0, reach.entries.1]),
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
