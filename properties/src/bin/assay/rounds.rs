//! `assay rounds`: histories of speculative rounds on the transaction and its model; or a wrong decision
//! planted in it, and the shortest history that shows it.

use crate::{Failure, Format, Outcome, repository, say};
use kernels::backend::vm::VmBackend;
use kernels::transaction::Planted;
use properties::check::ToolError;
use properties::corpus::{KnownFailures, Standing, replay_command};
use properties::rounds::{self, Found, MeaningOfRound, RoundReplay, Search, script, search, write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    /// Plant this wrong decision and show the history that finds it.
    #[arg(long = "fault", value_name = "NAME")]
    faults: Vec<String>,
    /// Plant every one in turn.
    #[arg(long)]
    all_faults: bool,
    /// Most time, for each fault.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Most histories, for each fault.
    #[arg(long, default_value_t = u64::MAX)]
    histories: u64,
    /// The first history.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Keep the histories that show faults, too, under corpora/speculative_round.
    #[arg(long)]
    keep: bool,
    /// Where the corpora are.
    #[arg(long, value_name = "FOLDER")]
    corpora: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let mut faults = Vec::new();
    for name in &arguments.faults {
        faults.push(Planted::named(name).ok_or_else(|| {
            let known: Vec<_> = Planted::ALL.iter().map(|(name, _)| *name).collect();
            Failure(format!("no fault is named `{name}`; there are {}", known.join(", ")))
        })?);
    }
    if arguments.all_faults {
        faults.extend(Planted::ALL.iter().map(|(_, planted)| *planted));
    }
    if faults.is_empty() {
        return sound(&arguments);
    }
    let missed = faults.into_iter().map(|planted| planted_in(&arguments, planted));
    let missed: Vec<Option<Planted>> = missed.collect::<Result<_, _>>()?;
    let missed: Vec<&str> = missed.into_iter().flatten().map(Planted::name).collect();
    if missed.is_empty() {
        return Ok(Outcome::Clean);
    }
    Err(Failure(format!("not found: {}; give it more --seconds", missed.join(", "))))
}

fn plan(arguments: &Arguments, planted: Option<Planted>) -> Search {
    let limit = Duration::from_secs(arguments.seconds);
    Search { seed: arguments.seed, histories: arguments.histories, limit, planted }
}

/// The transaction as it is.
fn sound(arguments: &Arguments) -> Result<Outcome, Failure> {
    let mut backend = VmBackend::new();
    let started = Instant::now();
    let (histories, events, found) = search(plan(arguments, None), &mut backend);
    let seconds = started.elapsed().as_secs_f64();
    let Some(found) = found else {
        say(&format!(
            "{histories} histories, {events} events in {seconds:.1} s: every promise holds\n"
        ))?;
        return Ok(Outcome::Clean);
    };
    tell("the transaction", &found, None, seconds, histories)?;
    keep(arguments, &found, None)?;
    Ok(Outcome::Found)
}

/// The files among these that are histories; the others stay.
pub fn take_histories(paths: &mut Vec<PathBuf>) -> Vec<PathBuf> {
    let is_history = |path: &PathBuf| rounds::is_history(path);
    let (histories, others) = std::mem::take(paths).into_iter().partition(is_history);
    *paths = others;
    histories
}

/// Replays histories on every backend of this build and says what became of them; whether one fails
/// that is not known to. Files that cannot be read join the `broken`.
pub fn replay(
    paths: &[PathBuf],
    known: &KnownFailures,
    format: Format,
    broken: &mut Vec<String>,
) -> Result<bool, Failure> {
    if paths.is_empty() {
        return Ok(false);
    }
    let mut backends = kernels::backend::of_this_build().map_err(ToolError::from)?;
    let mut fails = false;
    for path in paths {
        let replays = match rounds::replay(path, &mut backends) {
            Ok(replays) => replays,
            Err(error) => {
                broken.push(error.to_string());
                continue;
            }
        };
        for replayed in replays {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let standing = known.of(rounds::CONTRACT, &stem, replayed.failing.as_deref());
            fails |= !matches!(standing, Standing::Passes | Standing::Tolerated(_));
            let line = told(&replayed, &standing);
            match format {
                Format::Text => say(&line)?,
                Format::Json => eprint!("{line}"),
            }
        }
    }
    Ok(fails)
}

/// A line on one replay, given what it means for the run.
fn told(replayed: &RoundReplay, standing: &Standing<'_>) -> String {
    let at = format!("{} on {}", replayed.path.display(), replayed.backend);
    match standing {
        Standing::Tolerated(entry) => format!("tolerated {at}, known: {}\n", entry.issue),
        Standing::PassesUnexpectedly(entry) => format!(
            "FAILS: passes {at} though known_failures.yaml says it fails ({}); remove its entry\n",
            entry.issue
        ),
        Standing::FailsOtherwise(entry) => format!(
            "{} {at} though known_failures.yaml tolerates only {}\n",
            meant(&replayed.meaning),
            entry.clause
        ),
        Standing::Passes | Standing::Fails | Standing::Undecided => {
            format!("{} {at}\n", meant(&replayed.meaning))
        }
    }
}

fn meant(meaning: &MeaningOfRound) -> String {
    match meaning {
        MeaningOfRound::Passes => "passes   ".to_owned(),
        MeaningOfRound::Fails(violation) => format!("FAILS, {violation}:"),
        MeaningOfRound::NotNoticed(None) => {
            "FAILS, the planted fault breaks no promise any more:".to_owned()
        }
        MeaningOfRound::NotNoticed(Some(violation)) => {
            format!("FAILS, the planted fault breaks another promise, {violation}:")
        }
    }
}

/// A wrong one; gives it back when nothing was found.
fn planted_in(arguments: &Arguments, planted: Planted) -> Result<Option<Planted>, Failure> {
    let mut backend = VmBackend::new();
    let started = Instant::now();
    let (histories, _, found) = search(plan(arguments, Some(planted)), &mut backend);
    let seconds = started.elapsed().as_secs_f64();
    let Some(found) = found else { return Ok(Some(planted)) };
    tell(planted.name(), &found, Some(planted), seconds, histories)?;
    if arguments.keep {
        keep(arguments, &found, Some(planted))?;
    }
    Ok(None)
}

fn tell(
    what: &str,
    found: &Found,
    planted: Option<Planted>,
    seconds: f64,
    histories: u64,
) -> Result<(), Failure> {
    let shrunk = &found.shrunk;
    let text = script(&shrunk.history, planted, &mut VmBackend::new());
    say(&format!(
        "{what}: found by history {histories}, of {} events, and shrunk to {} in {} tries, {seconds:.1} s in all\n{text}",
        found.history.steps.len(),
        shrunk.history.steps.len(),
        shrunk.tries
    ))
}

fn keep(arguments: &Arguments, found: &Found, planted: Option<Planted>) -> Result<(), Failure> {
    let root = arguments.corpora.clone().unwrap_or_else(|| repository().join("corpora"));
    let path = write(&root, &found.shrunk, planted, &mut VmBackend::new())?;
    say(&format!("  {}\n", replay_command(&path, &root)))
}
