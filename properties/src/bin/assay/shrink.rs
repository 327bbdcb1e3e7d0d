//! `assay shrink`: one stored case made smaller while the same clause fails.

use crate::replay::threads;
use crate::{Failure, Outcome, repository, say};
use contracts::case::{Case, Found};
use properties::check::{Workspace, check};
use properties::corpus;
use properties::counters::Counters;
use properties::examine::Examine;
use properties::provenance;
use properties::replay;
use properties::shrink::{Shrunk, elements_that_matter, shrink_on_threads};
use properties::subject::Subject;
use properties::verdict::Verdict;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    /// The case.
    file: PathBuf,
    /// Put the smaller case in the file's place; it is printed otherwise.
    #[arg(long)]
    write: bool,
    /// Stop after this many seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Worker threads; one a core by default. The result does not depend on their number.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Where the corpora are.
    #[arg(long, value_name = "FOLDER")]
    corpora: Option<PathBuf>,
}

/// What was found is the failure: 1 when the case fails, shrunk or not, and 0 when it passes.
pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let root = arguments.corpora.clone().unwrap_or_else(|| repository().join("corpora"));
    let path = &arguments.file;
    let (subject, case) = replay::read(&root, path)?;
    // What is written in its place is a smaller form of this text and of no later one.
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure(format!("{}: {error}", path.display())))?;
    let mut workspace = Workspace::new();
    let examine = replay::examination(&case);
    let (mut machine, mut ignored) = (kernels::backend::vm::VmBackend::new(), Counters::default());
    let verdict = check(subject, &case, &examine, &mut machine, &mut workspace, &mut ignored)?;
    match &verdict {
        Verdict::Agree => {
            say(&format!("{} passes: there is no failure to keep\n", path.display()))?;
            return Ok(Outcome::Clean);
        }
        Verdict::Unsupported(_) | Verdict::Discard(_) => {
            return Err(Failure(format!(
                "{}: {verdict}; only what fails can be shrunk",
                path.display()
            )));
        }
        Verdict::Disagree(_) | Verdict::Fault(_) => {}
    }
    let started = Instant::now();
    let limit = Duration::from_secs(arguments.seconds);
    let mut shrunk = shrunk(subject, &case, &verdict, threads(arguments.threads), limit);
    // Words for the reader: without them the finding stands all the same.
    let _ =
        provenance::trace(subject, &shrunk.case, &mut shrunk.verdict, &mut machine, &mut workspace);
    eprintln!("{}", told(subject, &case, &shrunk, started.elapsed()));
    let small = with_found(&shrunk);
    let fresh = corpus::comment(path, &root, &small, &shrunk.verdict);
    if arguments.write {
        corpus::replace_case(path, &text, &small, subject.contract, Some(&fresh))?;
        say(&format!("{} holds the smaller case\n", path.display()))?;
    } else {
        say(&corpus::replacement(path, &text, &small, subject.contract, Some(&fresh)))?;
    }
    Ok(Outcome::Found)
}

fn shrunk(
    subject: &'static Subject,
    case: &Case,
    verdict: &Verdict,
    threads: usize,
    limit: Duration,
) -> Shrunk {
    let examine = Examine::for_clause(verdict.clause().unwrap_or_default());
    let judge = || {
        let (mut machine, mut workspace) =
            (kernels::backend::vm::VmBackend::new(), Workspace::new());
        let examine = examine.clone();
        move |case: &Case| {
            let mut ignored = Counters::default();
            check(subject, case, &examine, &mut machine, &mut workspace, &mut ignored).ok()
        }
    };
    shrink_on_threads(subject, case, verdict, threads, &judge, limit)
}

/// The shrunk case as a regression: what it shows now, and the report it linked before.
fn with_found(shrunk: &Shrunk) -> Case {
    let issue = shrunk.case.found.as_ref().and_then(|found| found.issue.clone());
    let clause = shrunk.verdict.clause().unwrap_or_default().to_owned();
    let found = Found { clause, backend: "vm".to_owned(), issue };
    Case { found: Some(found), ..shrunk.case.clone() }
}

fn told(subject: &Subject, before: &Case, shrunk: &Shrunk, elapsed: Duration) -> String {
    let elements = |case: &Case| elements_that_matter(subject.contract, case);
    let end = if shrunk.finished {
        "no single step makes it smaller"
    } else {
        "time or steps ran out: again with more --seconds"
    };
    format!(
        "{}: {} to {} elements that matter, {} cases judged, {} kept, {:.2} s; {end}",
        shrunk.verdict.clause().unwrap_or_default(),
        elements(before),
        elements(&shrunk.case),
        shrunk.tried,
        shrunk.kept,
        elapsed.as_secs_f64(),
    )
}
