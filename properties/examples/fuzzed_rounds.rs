//! Whether libFuzzer finds each wrong decision planted in a speculative round: the table of
//! properties/ROUNDS.md. Each is searched for from nothing, with several seeds; a fault not found within
//! the limit, or a shrunk history of too many events, fails.
//! `cargo run --release -p properties --example fuzzed_rounds [--built PROGRAM] [FAULT…] > properties/ROUNDS.md`
//! builds the target first, unless it is told where a built one is.

use kernels::transaction::Planted;
use properties::rounds::PLANTED_VARIABLE;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const TARGET: &str = "speculative_round";
/// Runs of each fault; odd, so that one of them is the median.
const SEEDS: [u32; 3] = [1, 2, 3];
/// Time of one core in which each must be found.
const LIMIT_SECONDS: u32 = 60;
/// Time after which the target gives up by itself: others may use the cores as well.
const GIVEN_UP_SECONDS: u32 = 10 * LIMIT_SECONDS;
/// Most events of a shrunk history.
const MOST_EVENTS: usize = 8;

/// One run of the target with one fault planted.
struct Run {
    /// Of one core, until the target had crashed, the history shrunk and printed.
    seconds: f64,
    /// The shrunk history's events, and the promise it breaks; nothing when none was found in time.
    found: Option<(usize, String)>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    let program = match wanted.first().map(String::as_str) {
        Some("--built") if wanted.len() >= 2 => wanted.drain(..2).nth(1),
        _ => None,
    };
    let program = program.map(PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if program.is_none() {
        let mut build = Command::new("cargo");
        if !build.args(["fuzz", "build", TARGET]).current_dir(&root).status()?.success() {
            return Err(format!("cargo fuzz build {TARGET} failed").into());
        }
    }
    let mut short = Vec::new();
    println!("{}", include_str!("fuzzed_rounds.md").trim_end());
    println!();
    println!("| planted | seconds, median | most | events left, most | promise it breaks |");
    println!("|---|---|---|---|---|");
    for (name, _) in Planted::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|one| one == name) {
            continue;
        }
        let runs = SEEDS.map(|seed| fuzz(&root, program.as_deref(), name, seed));
        let mut runs = runs.into_iter().collect::<Result<Vec<_>, _>>()?;
        runs.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        let events = runs.iter().map(|run| run.found.as_ref().map_or(usize::MAX, |found| found.0));
        let events = events.max().unwrap_or(usize::MAX);
        let (median, most) = (runs[runs.len() / 2].seconds, runs[runs.len() - 1].seconds);
        if events > MOST_EVENTS || most > f64::from(LIMIT_SECONDS) {
            short.push(*name);
        }
        let mut promises: Vec<&str> =
            runs.iter().filter_map(|run| Some(run.found.as_ref()?.1.as_str())).collect();
        promises.sort_unstable();
        promises.dedup();
        let events = if events == usize::MAX { "not found".to_owned() } else { events.to_string() };
        let promises = promises.join("`, `");
        println!("| {name} | {median:.1} | {most:.1} | {events} | `{promises}` |");
    }
    if short.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "not within {LIMIT_SECONDS} s, or more than {MOST_EVENTS} events: {}",
        short.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

/// One run from an empty corpus.
fn fuzz(
    root: &Path,
    program: Option<&Path>,
    planted: &str,
    seed: u32,
) -> Result<Run, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let before = seconds_of_children()?;
    let mut command = Command::new(program.unwrap_or_else(|| Path::new("cargo")));
    if program.is_none() {
        command.args(["fuzz", "run", TARGET]);
    }
    command.arg(folder.path());
    if program.is_none() {
        command.arg("--");
    }
    let output = command
        .arg(format!("-max_total_time={GIVEN_UP_SECONDS}"))
        .arg(format!("-seed={seed}"))
        .arg(format!("-artifact_prefix={}/", folder.path().display()))
        .env(PLANTED_VARIABLE, planted)
        .current_dir(root)
        .stdin(Stdio::null())
        .output()?;
    let seconds = seconds_of_children()? - before;
    let text = String::from_utf8_lossy(&output.stderr);
    let found = text.lines().find_map(told);
    if found.is_none() && !output.status.success() {
        return Err(format!("{planted}, seed {seed}: the target failed otherwise:\n{text}").into());
    }
    eprintln!("{planted}, seed {seed}: {seconds:.1} s, {found:?}");
    Ok(Run { seconds, found })
}

/// What the target says as it crashes: `5 events; invariants.restores …`.
fn told(line: &str) -> Option<(usize, String)> {
    let (events, violation) = line.split_once(" events; ")?;
    let promise = violation.split_whitespace().next()?;
    Some((events.trim().parse().ok()?, promise.to_owned()))
}

/// Time that finished children of this process ran, and theirs: fields 16 and 17 of its `stat`, in
/// hundredths of a second.
fn seconds_of_children() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // The second field is a name in brackets, which may have blanks.
    let (_, rest) = text.rsplit_once(')').ok_or("/proc/self/stat names no program")?;
    let times = rest.split_whitespace().skip(13).take(2).map(str::parse::<u64>);
    let hundredths = times.sum::<Result<u64, _>>()?;
    Ok(hundredths as f64 / 100.0)
}
