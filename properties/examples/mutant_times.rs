//! How long a search takes to find each mutant the contracts name: fresh cases of several seeds, on one
//! thread, from the first draw to the first failure, whatever its clause. Prints the medians, and fails
//! where one is above the limit. Needs NVRTC: `cargo run --release -p properties --example mutant_times
//! [CONTRACT…]`.

use kernels::backend::Backend;
use kernels::backend::vm::VmBackend;
use kernels::compile::Compiler;
use kernels::ptx::sources;
use properties::check::{Workspace, check};
use properties::choices::{Seeded, mix};
use properties::counters::Counters;
use properties::generate;
use properties::mutate::named::{self, Named};
use properties::subject::{Subject, subjects};
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Searches of each mutant; odd, so that one of them is the median.
const SEEDS: u64 = 5;
/// What a median may be.
const MEDIAN_LIMIT: Duration = Duration::from_secs(2);
/// A search that takes longer is given up.
const GIVEN_UP: Duration = Duration::from_secs(30);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let compiler = Compiler::find()?;
    let root = sources::checkout_root().ok_or("kernels/cuda is not here: run in a checkout")?;
    let (mut medians, mut slow) = (Vec::new(), Vec::new());
    println!(
        "{:<14} {:<26} {:>9} {:>9}  {:<28}",
        "contract", "mutant", "median s", "cases", "clause"
    );
    for subject in subjects() {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == subject.name()) {
            continue;
        }
        for mutant in named::of_contract(compiler.installation(), &root, subject)? {
            if subject.contract.mutants.get(&mutant.id).is_some_and(|one| one.equivalent.is_some())
            {
                continue;
            }
            let mut searches = Vec::new();
            for seed in 0..SEEDS {
                searches.push(search(subject, &mutant, seed)?);
            }
            searches.sort_by_key(|search| search.took);
            let median = &searches[searches.len() / 2];
            let seconds = median.took.as_secs_f64();
            let clause = median.clause.as_deref().unwrap_or("not found");
            println!(
                "{:<14} {:<26} {seconds:>9.3} {:>9}  {clause:<28}",
                subject.name(),
                mutant.id,
                median.cases
            );
            if median.took > MEDIAN_LIMIT || median.clause.is_none() {
                slow.push(format!("{}.{}", subject.name(), mutant.id));
            }
            medians.push(seconds);
        }
    }
    medians.sort_by(f64::total_cmp);
    if let (Some(middle), Some(last)) = (medians.get(medians.len() / 2), medians.last()) {
        println!("{} mutants: median {middle:.3} s, slowest {last:.3} s", medians.len());
    }
    if slow.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("above {} s: {}", MEDIAN_LIMIT.as_secs(), slow.join(", "));
    Ok(ExitCode::FAILURE)
}

/// One search of one mutant.
struct Search {
    took: Duration,
    cases: u64,
    clause: Option<String>,
}

fn search(subject: &Subject, mutant: &Named, seed: u64) -> Result<Search, Box<dyn Error>> {
    let mut backend = VmBackend::new();
    backend.replace_module(subject.name(), &mutant.ptx)?;
    let (mut workspace, mut counters) = (Workspace::new(), Counters::default());
    let started = Instant::now();
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
                return Ok(Search { took: started.elapsed(), cases, clause });
            }
        }
        if started.elapsed() > GIVEN_UP {
            return Ok(Search { took: started.elapsed(), cases, clause: None });
        }
    }
}
