//! How long a search takes to find each mutant the contracts name: writes properties/MUTANT_TIMES.md.
//! Fresh cases of several seeds, on one thread, from the first draw to the first failure, whatever its
//! clause; fails where a median is above the limit. What is not named keeps its row. Needs NVRTC:
//! `cargo run --release -p properties --example mutant_times [CONTRACT or CONTRACT.MUTANT…]`

use kernels::backend::Backend;
use kernels::backend::vm::VmBackend;
use kernels::compile::Compiler;
use kernels::ptx::sources;
use properties::check::{Workspace, check};
use properties::choices::{Seeded, mix};
use properties::corpus::Date;
use properties::counters::Counters;
use properties::generate;
use properties::mutate::clock::Clock;
use properties::mutate::named::{self, Named};
use properties::subject::{Subject, subjects};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::process::ExitCode;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/MUTANT_TIMES.md");
/// In place of a clause.
const NOT_FOUND: &str = "not found";
/// Searches of each mutant; odd, so that one of them is the median.
const SEEDS: u64 = 5;
/// What a median may be.
const MEDIAN_SECONDS: f64 = 2.0;
/// A search that takes longer is given up.
const GIVEN_UP_SECONDS: f64 = 30.0;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let compiler = Compiler::find()?;
    let root = sources::checkout_root().ok_or("kernels/cuda is not here: run in a checkout")?;
    let mut rows = measured(&std::fs::read_to_string(TABLE)?)?;
    let declared = subjects().iter().flat_map(|subject| {
        let mutants = subject.contract.mutants.iter();
        let told_apart = mutants.filter(|(_, mutant)| mutant.equivalent.is_none());
        told_apart.map(move |(id, _)| (subject, id, format!("{}.{id}", subject.name())))
    });
    let declared: Vec<(&Subject, &String, String)> = declared.collect();
    rows.retain(|of, _| declared.iter().any(|(_, _, name)| name == of));
    for (subject, id, name) in &declared {
        if wanted.is_empty() || wanted.iter().any(|one| one == name || one == subject.name()) {
            let mutant = named::of_mutant(compiler.installation(), &root, subject, id)?;
            let row = measure(subject, &mutant)?;
            println!("{row}");
            rows.insert(name.clone(), row);
            // At once: what is stopped keeps what it has measured.
            std::fs::write(
                TABLE,
                document(declared.iter().filter_map(|(_, _, name)| rows.get(name))),
            )?;
        }
    }
    let is_slow = |row: &Row| row.seconds > MEDIAN_SECONDS || row.clause == NOT_FOUND;
    let slow: Vec<&str> =
        rows.iter().filter(|(_, row)| is_slow(row)).map(|(name, _)| name.as_str()).collect();
    if slow.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("above {MEDIAN_SECONDS} s: {}", slow.join(", "));
    Ok(ExitCode::FAILURE)
}

/// One line of the table.
struct Row {
    mutant: [String; 2],
    seconds: f64,
    most: f64,
    cases: u64,
    clause: String,
    day: Date,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { mutant: [contract, id], seconds, most, cases, clause, day } = self;
        write!(f, "| {contract} | {id} | {seconds:.3} | {most:.3} | {cases} | `{clause}` | {day} |")
    }
}

/// The rows of a table as written, by mutant.
fn measured(table: &str) -> Result<BTreeMap<String, Row>, Box<dyn Error>> {
    let lines = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [contract, id, seconds, most, cases, clause, day] = cells[..] else { return None };
        let row = Row {
            mutant: [contract.to_owned(), id.to_owned()],
            seconds: seconds.parse().ok()?,
            most: most.parse().ok()?,
            cases: cases.parse().ok()?,
            clause: clause.trim_matches('`').to_owned(),
            day: Date::parse(day)?,
        };
        Some((format!("{contract}.{id}"), row))
    };
    lines.map(|line| row(line).ok_or_else(|| format!("{TABLE}: no row: {line}").into())).collect()
}

fn document<'r>(rows: impl Iterator<Item = &'r Row>) -> String {
    let mut text = include_str!("mutant_times.md").trim_end().to_owned();
    text += "\n\n| contract | mutant | seconds, median | most | cases, median | clause | day |";
    text += "\n|---|---|---|---|---|---|---|\n";
    let mut medians = Vec::new();
    for row in rows {
        text += &format!("{row}\n");
        medians.push(row.seconds);
    }
    medians.sort_by(f64::total_cmp);
    if let (Some(middle), Some(last)) = (medians.get(medians.len() / 2), medians.last()) {
        let count = medians.len();
        text += &format!(
            "\n{count} mutants: half of the medians are at most {middle:.3} s, all at most {last:.3} s.\n"
        );
    }
    text
}

fn measure(subject: &Subject, mutant: &Named) -> Result<Row, Box<dyn Error>> {
    let mut searches = Vec::new();
    for seed in 0..SEEDS {
        searches.push(search(subject, mutant, seed)?);
    }
    searches.sort_by(|one, other| {
        one.seconds.total_cmp(&other.seconds).then(one.cases.cmp(&other.cases))
    });
    let most = searches[searches.len() - 1].seconds;
    let Search { seconds, cases, clause } = searches.swap_remove(searches.len() / 2);
    let mutant = [subject.name().to_owned(), mutant.id.clone()];
    let clause = clause.unwrap_or_else(|| NOT_FOUND.to_owned());
    Ok(Row { mutant, seconds, most, cases, clause, day: Date::today() })
}

/// One search of one mutant.
struct Search {
    /// Of the thread's own time.
    seconds: f64,
    cases: u64,
    clause: Option<String>,
}

fn search(subject: &Subject, mutant: &Named, seed: u64) -> Result<Search, Box<dyn Error>> {
    let mut backend = VmBackend::new();
    backend.replace_module(&mutant.module, &mutant.ptx)?;
    let (mut workspace, mut counters) = (Workspace::new(), Counters::default());
    let started = Clock::start();
    let mut cases = 0;
    loop {
        let mut choices = Seeded { seed: mix(mix(0x7157, seed), cases) };
        cases += 1;
        if let Ok(draw) = generate::draw(subject, &mut choices) {
            let (case, examine) = (&draw.case, &draw.examine);
            let verdict =
                check(subject, case, examine, &mut backend, &mut workspace, &mut counters)?;
            if verdict.is_failure() {
                let clause = verdict.clause().map(str::to_owned);
                return Ok(Search { seconds: started.seconds(), cases, clause });
            }
        }
        if started.seconds() > GIVEN_UP_SECONDS {
            return Ok(Search { seconds: started.seconds(), cases, clause: None });
        }
    }
}
