//! `assay replay`: stored cases again, on every backend of this build.

use crate::{Failure, Format, Outcome, repository, say, subjects, write_lcov};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use properties::check::ToolError;
use properties::corpus;
use properties::replay::{Meaning, replay};
use properties::report;
use properties::rounds::{self, MeaningOfRound};
use properties::subject::known_subjects;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Arguments {
    /// Case files or contract names; everything in corpora/ when none is named.
    what: Vec<String>,
    /// Where the corpora are.
    #[arg(long, value_name = "FOLDER")]
    corpora: Option<PathBuf>,
    /// Write which lines of PTX and sources the virtual machine executed, in lcov's format.
    #[arg(long, value_name = "FILE")]
    lcov: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let root = arguments.corpora.clone().unwrap_or_else(|| repository().join("corpora"));
    let (files, names): (Vec<_>, Vec<_>) =
        arguments.what.iter().partition(|what| is_file(what.as_str()));
    let is_rounds = |name: &&String| name.as_str() == rounds::CONTRACT;
    let asks_for_rounds = arguments.what.is_empty() || names.iter().any(|name| is_rounds(name));
    let names: Vec<String> = names.into_iter().filter(|name| !is_rounds(name)).cloned().collect();
    let mut paths: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
    let mut histories = take_histories(&mut paths)?;
    if asks_for_rounds {
        histories.extend(corpus::files(&root, rounds::CONTRACT)?);
    }
    // What cannot be replayed hides none of the rest.
    let mut broken = Vec::new();
    let everything = arguments.what.is_empty();
    if everything || !names.is_empty() {
        for subject in subjects(&names)? {
            paths.extend(corpus::files(&root, subject.name())?);
        }
    }
    if arguments.what.is_empty() {
        let mut known: Vec<_> = known_subjects().map(|subject| subject.name()).collect();
        known.push(rounds::CONTRACT);
        broken.extend(corpus::strays(&root, &known)?.iter().map(ToString::to_string));
    }
    if paths.is_empty() && histories.is_empty() && broken.is_empty() {
        return Err(Failure(format!("{}: no stored case was selected", root.display())));
    }
    let mut backends = kernels::backend::of_this_build().map_err(ToolError::from)?;
    let mut replays = Vec::new();
    let progress = Progress::new(paths.len(), arguments.format);
    for path in &paths {
        progress.begin(path);
        match replay(&root, std::slice::from_ref(path), &mut backends) {
            Ok(replayed) => replays.extend(replayed),
            Err(error) => broken.push(error.to_string()),
        }
    }
    progress.end();
    let mut rounds_fail = false;
    for path in &histories {
        match rounds::replay(path, &mut backends) {
            Ok(replays) => rounds_fail |= tell_rounds(&replays, arguments.format)?,
            Err(error) => broken.push(error.to_string()),
        }
    }
    if let Some(path) = &arguments.lcov {
        write_lcov(path, backends.iter().filter_map(|backend| backend.reached()))?;
    }
    match arguments.format {
        Format::Text if replays.is_empty() && !histories.is_empty() => {}
        Format::Text => say(&report::replays(&replays))?,
        Format::Json => say(&format!("{}\n", report::replays_json(&replays)))?,
    }
    if !broken.is_empty() {
        return Err(Failure(broken.join("\nassay: ")));
    }
    if rounds_fail || replays.iter().any(|replay| replay.is_failure()) {
        return Ok(Outcome::Found);
    }
    let undecided = replays.iter().filter(|replay| replay.meaning == Meaning::Undecided).count();
    if undecided > 0 {
        return Err(Failure(format!(
            "{undecided} of {} replays were not judged; the lines marked undecided say why",
            replays.len()
        )));
    }
    Ok(Outcome::Clean)
}

/// The files among these that are histories of speculative rounds.
fn take_histories(paths: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    let mut histories = Vec::new();
    for path in std::mem::take(paths) {
        let is_history = corpus::contract_of(&path)? == rounds::CONTRACT;
        if is_history { histories.push(path) } else { paths.push(path) }
    }
    Ok(histories)
}

/// Says what became of a history; whether it fails.
fn tell_rounds(replays: &[rounds::RoundReplay], format: Format) -> Result<bool, Failure> {
    let mut fails = false;
    for replay in replays {
        let what = match &replay.meaning {
            MeaningOfRound::Passes => "passes".to_owned(),
            MeaningOfRound::Fails(violation) => format!("FAILS: {violation}"),
            MeaningOfRound::NotNoticed(None) => {
                "FAILS: the planted fault breaks no promise any more".to_owned()
            }
            MeaningOfRound::NotNoticed(Some(violation)) => {
                format!("FAILS: the planted fault breaks another promise: {violation}")
            }
        };
        fails |= replay.meaning != MeaningOfRound::Passes;
        if format == Format::Text || replay.meaning != MeaningOfRound::Passes {
            let line = format!("{} on {}: {what}\n", replay.path.display(), replay.backend);
            if format == Format::Text { say(&line)? } else { eprint!("{line}") }
        }
    }
    Ok(fails)
}

/// Which file is being replayed: a large case takes its time.
struct Progress(ProgressBar);

impl Progress {
    fn new(files: usize, format: Format) -> Progress {
        let bar = ProgressBar::new(files as u64);
        if format == Format::Json {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{pos:>4}/{len} {elapsed} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(250));
        Progress(bar)
    }

    fn begin(&self, path: &Path) {
        self.0.inc(1);
        self.0.set_message(path.display().to_string());
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// Whether an argument means a file rather than a contract.
fn is_file(what: &str) -> bool {
    what.contains('/') || Path::new(what).extension().is_some()
}
