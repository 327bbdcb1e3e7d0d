//! How small failures get, over planted ones of every contract: the table of properties/SHRINKING.md.
//! `cargo run --release -p properties --example shrinking [--show] [FAILURES A CONTRACT] [CONTRACT…] > properties/SHRINKING.md`
//! With `--show`, the shrunk case of each contract that has the most elements goes to standard error.

use contracts::case_yaml::write_case;
use properties::check::ToolError;
use properties::mutate::shrunk::{Kernels, Planted, planted};
use properties::subject::known_subjects;

/// Failures planted in each kernel, unless another number is asked for.
const FAILURES: usize = 20;
/// One shrunk case in this many has every single edit tried on it once more.
const EVERY: usize = 4;
const SEED: u64 = 6;

struct Line {
    failures: Vec<Planted>,
    /// Shrunk cases tried once more, edits tried, edits that kept the failure.
    again: [usize; 3],
}

fn main() -> Result<(), ToolError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let shows = arguments.iter().any(|argument| argument == "--show");
    let count = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(FAILURES);
    let is_named = |name: &str| arguments.iter().any(|argument| argument == name);
    let is_any_named = known_subjects().any(|subject| is_named(subject.name()));
    let mut lines = Vec::new();
    print_head();
    for subject in known_subjects() {
        if is_any_named && !is_named(subject.name()) {
            continue;
        }
        let (kernels, failures) = planted(subject, count, SEED)?;
        eprintln!("{}: {} failures shrunk", subject.name(), failures.len());
        if shows {
            show(&failures);
        }
        let again = tried_again(&kernels, &failures)?;
        row(subject.name(), &failures.iter().collect::<Vec<_>>(), again);
        lines.push(Line { failures, again });
    }
    let all: Vec<&Planted> = lines.iter().flat_map(|line| &line.failures).collect();
    let sum = |at: usize| lines.iter().map(|line| line.again[at]).sum();
    row("**all**", &all, [sum(0), sum(1), sum(2)]);
    Ok(())
}

fn tried_again(kernels: &Kernels, failures: &[Planted]) -> Result<[usize; 3], ToolError> {
    let mut again = [0; 3];
    for failure in failures.iter().step_by(EVERY).filter(|failure| failure.shrunk.finished) {
        let (edits, alike) = failure.single_edits(kernels)?;
        again[0] += 1;
        again[1] += edits;
        again[2] += usize::from(alike.is_some());
        if let Some(case) = alike {
            eprintln!("still fails: {:?}\n{case:?}", failure.mutant);
        }
    }
    Ok(again)
}

/// The shrunk case a reader has to look at longest.
fn show(failures: &[Planted]) {
    let Some(worst) = failures.iter().max_by_key(|failure| failure.elements()[1]) else { return };
    let Planted { subject, mutant, shrunk, .. } = worst;
    if let Some(mutant) = mutant {
        eprintln!("{} line {}: {} became {}", mutant.entry, mutant.line, mutant.was, mutant.now);
    }
    eprintln!("{}\n{}", shrunk.verdict, write_case(&shrunk.case, subject.contract, None));
}

fn print_head() {
    println!("{}", include_str!("shrinking.md").trim_end());
    println!();
    println!(
        "| contract | failures | elements drawn | elements left | 90 % at most | cases judged | 90 % at most | \
         seconds | 90 % at most | unfinished | tried again | edits | that kept it |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
}

fn row(name: &str, failures: &[&Planted], again: [usize; 3]) {
    let of = |value: &dyn Fn(&Planted) -> f64| {
        let mut values: Vec<f64> = failures.iter().map(|failure| value(failure)).collect();
        values.sort_by(f64::total_cmp);
        move |share: usize| {
            values
                .get((values.len() * share / 100).min(values.len().max(1) - 1))
                .copied()
                .unwrap_or(0.0)
        }
    };
    let before = of(&|failure| failure.elements()[0] as f64);
    let after = of(&|failure| failure.elements()[1] as f64);
    let judged = of(&|failure| failure.shrunk.tried as f64);
    let seconds = of(&|failure| failure.seconds);
    let unfinished = failures.iter().filter(|failure| !failure.shrunk.finished).count();
    println!(
        "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {unfinished} | {} | {} | {} |",
        failures.len(),
        before(50),
        after(50),
        after(90),
        judged(50),
        judged(90),
        shown(seconds(50)),
        shown(seconds(90)),
        again[0],
        again[1],
        again[2],
    );
}

/// Seconds; the system counts what a thread ran in steps of this size.
fn shown(seconds: f64) -> String {
    const STEP: f64 = 0.004;
    if seconds < STEP { format!("< {STEP}") } else { format!("{seconds:.3}") }
}
