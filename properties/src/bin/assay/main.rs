//! The `assay` command: parses arguments, runs one subcommand, turns its answer into an exit code:
//! 0 nothing found, 1 something found, 2 the tool could not do its work, 130 interrupted before either.

mod compile;
mod corpus;
mod doctor;
mod explain;
mod list;
mod mutate;
mod replay;
mod review;
mod rounds;
mod run;
mod search;
mod shrink;

use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// Searches for inputs on which a CUDA kernel and its reference disagree.
#[derive(Parser)]
#[command(name = "assay", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Search all contracts (or those named) until every clause is exercised or time is up.
    Search(search::Arguments),
    /// Run stored cases again: files, contract names, or everything in corpora/.
    Replay(replay::Arguments),
    /// Make one stored case smaller while the same clause fails.
    Shrink(shrink::Arguments),
    /// Look after stored cases: which could go, and what they give a fuzzer.
    Corpus(corpus::Arguments),
    /// Run one kernel of any PTX file, every checker on, and say what it did wrong or left.
    Run(run::Arguments),
    /// Say what a change weakens, in numbers, and whether it says why.
    Review(review::Arguments),
    /// Run histories of speculative rounds, or show what finds a fault planted in their transaction.
    Rounds(rounds::Arguments),
    /// List contracts with their clauses and corpora.
    List(list::Arguments),
    /// Say in sentences what contracts promise.
    Explain(explain::Arguments),
    /// Print the contract format as a JSON Schema, for editors.
    Schema(explain::SchemaArguments),
    /// Say what this machine can do, and what would let it do more.
    Doctor(doctor::Arguments),
    /// Try wrong kernels: which of them a contract notices, and which survive.
    Mutate(mutate::Arguments),
    /// Compile kernels/cuda to kernels/ptx with NVRTC, and record what the kernels cost a GPU.
    Compile(compile::Arguments),
    /// Write the generated part of fuzz/Cargo.toml.
    FuzzTargets(list::FuzzTargetArguments),
}

/// How a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a person.
    Text,
    /// One JSON document on standard output.
    Json,
}

/// What a command came to.
enum Outcome {
    Clean,
    Found,
    Interrupted,
}

/// Why a command could not do its work: one paragraph with the way out.
struct Failure(String);

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    // A contract that does not load is missing from every list: nothing is said without it.
    let answer = match contracts::check_builtin() {
        Ok(()) => run_command(command),
        Err(error) => Err(Failure(error.to_string())),
    };
    match answer {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(1),
        Ok(Outcome::Interrupted) => ExitCode::from(130),
        Err(Failure(text)) => {
            eprintln!("assay: {text}");
            ExitCode::from(2)
        }
    }
}

fn run_command(command: Command) -> Result<Outcome, Failure> {
    match command {
        Command::Search(arguments) => search::run(arguments),
        Command::Replay(arguments) => replay::run(arguments),
        Command::Shrink(arguments) => shrink::run(arguments),
        Command::Corpus(arguments) => corpus::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Review(arguments) => review::run(arguments),
        Command::Rounds(arguments) => rounds::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Schema(arguments) => explain::schema(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Mutate(arguments) => mutate::run(arguments),
        Command::Compile(arguments) => compile::run(arguments),
        Command::FuzzTargets(arguments) => list::write_fuzz_targets(arguments),
    }
}

/// Prints to standard output. A reader that went away (`| head`) is no failure; a full disk is.
fn say(text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// The repository: where corpora/ and kernels/ are. The folder this was built in if it still
/// exists, else the current one.
fn repository() -> PathBuf {
    let built = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if built.join("contracts").is_dir() {
        built.canonicalize().unwrap_or(built)
    } else {
        PathBuf::from(".")
    }
}

/// Writes which lines of the kernels were executed.
fn write_lcov<'a>(
    path: &std::path::Path,
    coverage: impl IntoIterator<Item = &'a kernels::backend::vm::Coverage>,
) -> Result<(), Failure> {
    let lcov = kernels::backend::vm::lcov(coverage, &repository());
    std::fs::write(path, lcov.to_string())
        .map_err(|error| Failure(format!("{}: {error}", path.display())))
}

/// The subjects of these names; all production subjects when none is named.
fn subjects(names: &[String]) -> Result<Vec<&'static properties::subject::Subject>, Failure> {
    if names.is_empty() {
        return Ok(properties::subject::subjects().iter().collect());
    }
    names
        .iter()
        .map(|name| {
            properties::subject::subject(name).ok_or_else(|| {
                let known: Vec<_> =
                    properties::subject::subjects().iter().map(|s| s.name()).collect();
                Failure(format!("no contract is named `{name}`; there are {}", known.join(", ")))
            })
        })
        .collect()
}
