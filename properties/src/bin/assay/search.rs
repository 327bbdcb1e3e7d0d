//! `assay search`: the canary first (a search that cannot find it is broken), then the contracts,
//! with live progress and a summary of every clause.

use crate::{Failure, Format, Outcome, repository, say, subjects, write_lcov};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use properties::report;
use properties::search::{Plan, Progress, Summary, search};
use properties::subject::canary;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Arguments {
    /// Contracts; all when none is named.
    contracts: Vec<String>,
    /// Stop when every clause of every contract, per dtype, has this many cases.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    cases: u64,
    /// Stop after this many seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Go on to the time limit even when every clause has its cases.
    #[arg(long)]
    until_time: bool,
    /// First seed: a number or a commit's hash. The same seed gives the same cases on any number of
    /// threads.
    #[arg(long, default_value = "1", value_parser = properties::choices::seed_of)]
    seed: u64,
    /// Worker threads; one a core by default.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Where regressions go.
    #[arg(long, value_name = "FOLDER")]
    corpora: Option<PathBuf>,
    /// Also print every PTX block with its hits.
    #[arg(long)]
    coverage: bool,
    /// Write which lines of PTX and sources were executed, in lcov's format.
    #[arg(long, value_name = "FILE")]
    lcov: Option<PathBuf>,
    /// How to print the summary.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

static STOP: AtomicBool = AtomicBool::new(false);

/// Cases within which the canary must be found.
const CANARY_CASES: u64 = 2_000;

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    ctrlc::set_handler(|| {
        // A second interrupt does not wait for the summary.
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    })?;
    let threads = arguments
        .threads
        .map(usize::from)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    if arguments.contracts.is_empty() {
        find_canary(threads, arguments.format)?;
    }
    let plan = Plan {
        subjects: subjects(&arguments.contracts)?,
        cases_per_clause: if arguments.until_time { u64::MAX } else { arguments.cases },
        limit: Duration::from_secs(arguments.seconds),
        seed: arguments.seed,
        threads,
        corpora: Some(arguments.corpora.clone().unwrap_or_else(|| repository().join("corpora"))),
        shrink_limit: Duration::from_secs(20),
        findings_per_subject: 3,
    };
    writable(plan.corpora.as_deref())?;
    let bars = Bars::new(&plan, arguments.format == Format::Text);
    let summary = search(plan, &STOP, &mut |progress, elapsed| bars.show(progress, elapsed))?;
    bars.clear();
    if let Some(path) = &arguments.lcov {
        write_lcov(path, summary.subjects.iter().map(|subject| &subject.coverage))?;
    }
    match arguments.format {
        Format::Text => say(&report::summary(&summary, arguments.coverage))?,
        Format::Json => say(&format!("{}\n", report::summary_json(&summary)))?,
    }
    let mut findings = summary.subjects.iter().flat_map(|subject| &subject.findings);
    if let Some(why) = findings.find_map(|finding| finding.unwritten.as_ref()) {
        return Err(Failure(why.clone()));
    }
    if summary.subjects.iter().any(|subject| !subject.findings.is_empty()) {
        return Ok(Outcome::Found);
    }
    let unjudged = summary.subjects.iter().filter(|subject| !subject.unsupported.is_empty());
    let unjudged: Vec<_> = unjudged.map(|subject| subject.subject.name()).collect();
    if !unjudged.is_empty() {
        return Err(Failure(format!(
            "cases of {} were not judged: the summary names what the machine cannot run; \
             build them without it, or judge them on a GPU (`cargo test --release --features cuda`)",
            unjudged.join(", ")
        )));
    }
    Ok(if summary.interrupted { Outcome::Interrupted } else { Outcome::Clean })
}

/// Whether regressions can be written, before an hour is spent on finding some.
pub fn writable(corpora: Option<&Path>) -> Result<(), Failure> {
    let Some(corpora) = corpora else { return Ok(()) };
    let probe = std::fs::create_dir_all(corpora)
        .and_then(|()| tempfile::Builder::new().prefix(".").tempfile_in(corpora));
    match probe {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure(format!(
            "{}: {error}; regressions are written there: make it writable, or name another folder with --corpora",
            corpora.display()
        ))),
    }
}

/// Finds and shrinks the planted bug; an error when the search cannot.
fn find_canary(threads: usize, format: Format) -> Result<(), Failure> {
    let subject =
        canary().ok_or_else(|| Failure("the canary contract does not load".to_owned()))?;
    let plan = Plan {
        subjects: vec![subject],
        cases_per_clause: u64::MAX,
        limit: Duration::from_secs(20),
        seed: 1,
        threads,
        corpora: None,
        shrink_limit: Duration::from_secs(10),
        findings_per_subject: 1,
    };
    let summary: Summary = search(plan, &STOP, &mut |_, _| {})?;
    let found = summary.subjects.first().and_then(|subject| subject.findings.first());
    match found {
        Some(finding) if finding.after_cases <= CANARY_CASES => {
            if format == Format::Text {
                say(&format!("{}\n", report::canary(subject, finding)))?;
            }
            Ok(())
        }
        _ if summary.interrupted => Ok(()),
        _ => Err(Failure(format!(
            "the search is broken: it did not find the bug planted in {} within {CANARY_CASES} cases",
            subject.name()
        ))),
    }
}

/// One line a contract.
struct Bars {
    lines: Vec<ProgressBar>,
    multi: MultiProgress,
    limit: Duration,
}

impl Bars {
    fn new(plan: &Plan, visible: bool) -> Bars {
        let multi = MultiProgress::new();
        if !visible {
            multi.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        let style =
            ProgressStyle::with_template("{prefix:>16} {bar:24} {pos:>4}/{len} clauses  {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
        let line = |subject: &&'static properties::subject::Subject| {
            let bar = multi.add(ProgressBar::new(0).with_style(style.clone()));
            bar.set_prefix(subject.name());
            bar
        };
        let lines = plan.subjects.iter().map(line).collect();
        Bars { lines, multi, limit: plan.limit }
    }

    fn show(&self, progress: &[Progress], elapsed: Duration) {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let left = self.limit.saturating_sub(elapsed).as_secs();
        for (bar, line) in self.lines.iter().zip(progress) {
            bar.set_length(line.total as u64);
            bar.set_position(line.done as u64);
            bar.set_message(format!(
                "{} cases, {:.0}/s, {} edges, {} found, {left} s left",
                line.cases,
                line.cases as f64 / seconds,
                line.edges,
                line.findings,
            ));
        }
    }

    fn clear(&self) {
        for line in &self.lines {
            line.finish_and_clear();
        }
        // Nothing to do about a terminal that went away.
        let _ = self.multi.clear();
    }
}
