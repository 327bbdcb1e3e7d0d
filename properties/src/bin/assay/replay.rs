//! `assay replay`: stored cases again, on every backend of this build.

use crate::{Failure, Format, Outcome, repository, rounds, say, subjects, write_lcov};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use properties::corpus::{self, KnownFailures};
use properties::replay::{Meaning, replay_all};
use properties::report;
use properties::rounds::CONTRACT;
use properties::subject::known_subjects;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    /// Case files or contract names; everything in corpora/ when none is named.
    what: Vec<String>,
    /// Also every stored case of this contract.
    #[arg(long, value_name = "NAME")]
    contract: Vec<String>,
    /// Worker threads; one a core by default. A build with a GPU uses one.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
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
    let mut names: Vec<String> = names.into_iter().chain(&arguments.contract).cloned().collect();
    let everything = files.is_empty() && names.is_empty();
    let mut paths: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
    let mut histories = rounds::take_histories(&mut paths);
    let named = names.len();
    names.retain(|name| name != CONTRACT);
    if everything || names.len() < named {
        histories.extend(corpus::files(&root, CONTRACT)?);
    }
    // What cannot be replayed hides none of the rest, nor does an entry whose day has come.
    let (known, wrong) = KnownFailures::in_force(&root);
    let mut broken: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    if everything || !names.is_empty() {
        for subject in subjects(&names)? {
            paths.extend(corpus::files(&root, subject.name())?);
        }
    }
    if everything {
        let mut names: Vec<_> = known_subjects().map(|subject| subject.name()).collect();
        names.push(CONTRACT);
        broken.extend(corpus::strays(&root, &names)?.iter().map(ToString::to_string));
    }
    if paths.is_empty() && histories.is_empty() && broken.is_empty() {
        return Err(Failure(format!("{}: no stored case was selected", root.display())));
    }
    let started = Instant::now();
    let progress = Progress::new(paths.len(), arguments.format);
    let replayed = replay_all(
        &root,
        &known,
        &paths,
        threads(arguments.threads),
        &kernels::backend::of_this_build,
        &mut |path| progress.done(path),
    )?;
    progress.end();
    let elapsed = started.elapsed();
    let mut replays = Vec::new();
    for file in replayed.files {
        match file {
            Ok(of_file) => replays.extend(of_file),
            Err(error) => broken.push(error.to_string()),
        }
    }
    if let Some(path) = &arguments.lcov {
        write_lcov(path, [&replayed.coverage])?;
    }
    let rounds_fail = rounds::replay(&histories, &known, arguments.format, &mut broken)?;
    match arguments.format {
        Format::Text if replays.is_empty() && !histories.is_empty() => {}
        Format::Text => say(&report::replays(&replays, Some(elapsed)))?,
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

/// Worker threads: one where a GPU is at hand, whose context workers would share.
pub fn threads(asked: Option<u16>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    if cfg!(feature = "cuda") { 1 } else { asked.map_or_else(cores, usize::from) }
}

/// Which file was replayed last: a large case takes its time.
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

    fn done(&self, path: &Path) {
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
