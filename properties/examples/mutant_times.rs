//! How long a search takes to find each mutant the contracts name: the table of
//! properties/MUTANT_TIMES.md. Fresh cases of several seeds, on one thread, from the first draw to the
//! first failure, whatever its clause; fails where a median is above the limit. Needs NVRTC:
//! `cargo run --release -p properties --example mutant_times [CONTRACT or CONTRACT.MUTANT…] > properties/MUTANT_TIMES.md`

use kernels::backend::Backend;
use kernels::backend::vm::VmBackend;
use kernels::compile::Compiler;
use kernels::ptx::sources;
use properties::check::{Workspace, check};
use properties::choices::{Seeded, mix};
use properties::counters::Counters;
use properties::generate;
use properties::mutate::clock::Clock;
use properties::mutate::named::{self, Named};
use properties::subject::{Subject, subjects};
use std::error::Error;
use std::process::ExitCode;

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
    let (mut medians, mut slow) = (Vec::new(), Vec::new());
    println!("{}", include_str!("mutant_times.md").trim_end());
    println!("\n| contract | mutant | seconds, median | most | cases, median | clause |");
    println!("|---|---|---|---|---|---|");
    for subject in subjects() {
        for (id, declared) in &subject.contract.mutants {
            let is_wanted =
                |one: &String| one == subject.name() || *one == format!("{}.{id}", subject.name());
            let passed_over = !wanted.is_empty() && !wanted.iter().any(is_wanted);
            if declared.equivalent.is_some() || passed_over {
                continue;
            }
            let mutant = named::of_mutant(compiler.installation(), &root, subject, id)?;
            let mut searches = Vec::new();
            for seed in 0..SEEDS {
                searches.push(search(subject, &mutant, seed)?);
            }
            searches.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
            let median = &searches[searches.len() / 2];
            let Search { seconds, cases, .. } = *median;
            let most = searches[searches.len() - 1].seconds;
            let clause = median.clause.as_deref().unwrap_or("not found");
            let (name, id) = (subject.name(), &mutant.id);
            println!("| {name} | {id} | {seconds:.3} | {most:.3} | {cases} | `{clause}` |");
            if seconds > MEDIAN_SECONDS || median.clause.is_none() {
                slow.push(format!("{}.{}", subject.name(), mutant.id));
            }
            medians.push(seconds);
        }
    }
    medians.sort_by(f64::total_cmp);
    if let (Some(middle), Some(last)) = (medians.get(medians.len() / 2), medians.last()) {
        let count = medians.len();
        println!(
            "\n{count} mutants: half of the medians are at most {middle:.3} s, all at most {last:.3} s."
        );
    }
    if slow.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("\nAbove {MEDIAN_SECONDS} s: {}.", slow.join(", "));
    Ok(ExitCode::FAILURE)
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
