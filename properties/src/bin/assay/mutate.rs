//! `assay mutate`: wrong kernels, and whether their contracts notice. Fails when a named mutant lives,
//! a score dropped against the one on record, or a clause is exercised by nothing.

use crate::{Failure, Format, Outcome, repository, say, subjects};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kernels::compile::Compiler;
use properties::mutate::changes::Changes;
use properties::mutate::equivalents::{Equivalents, FILE, SURVIVORS};
use properties::mutate::machine_code::Assembler;
use properties::mutate::named;
use properties::mutate::record::{self, Record};
use properties::mutate::{Plan, Score, mutate};
use properties::report;
use properties::subject::Subject;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Arguments {
    /// Contracts; all when none is named.
    contracts: Vec<String>,
    /// Only mutants of source lines that the working tree changes against this revision.
    #[arg(long, value_name = "REF")]
    in_diff: Option<String>,
    /// Judge for this many seconds, shared by the contracts; one that is left without any mutant judged
    /// fails. What the unchanged kernel answers is measured before.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    budget: Option<u64>,
    /// Run this source in the one contract's place, and nothing else.
    #[arg(long, value_name = "FILE.cu", conflicts_with_all = ["in_diff", "write", "named"])]
    patch: Option<PathBuf>,
    /// Decides the sample: a commit's hash, or any word; that of HEAD by default.
    #[arg(long, value_name = "COMMIT")]
    seed: Option<String>,
    /// Automatic mutants a contract; 0 with --named: none, and --write leaves the score on record.
    #[arg(long, default_value_t = 150)]
    sample: u32,
    /// In place of a sample every edit of these PTX lines, as a list of survivors names them.
    #[arg(long, value_name = "LINE", value_delimiter = ',', conflicts_with_all = ["in_diff", "patch", "write", "sample"])]
    at: Vec<u32>,
    /// Fresh cases in the suite that every mutant of a contract is asked from.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    cases: u64,
    /// Also the named mutants of kernels/cuda/mutants.tsv; needs NVRTC.
    #[arg(long)]
    named: bool,
    /// Ask killed mutants on, to count those that one clause alone kills.
    #[arg(long)]
    clauses: bool,
    /// Refresh the rows of these contracts in corpora/mutation.md, with a second sample by another seed.
    #[arg(long, conflicts_with_all = ["in_diff", "budget"])]
    write: bool,
    /// Worker threads; one a core by default.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Where the corpora are.
    #[arg(long, value_name = "FOLDER")]
    corpora: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

static STOP: AtomicBool = AtomicBool::new(false);

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    ctrlc::set_handler(|| {
        // A second interrupt does not wait for the summary.
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    })?;
    let subjects = subjects(&arguments.contracts)?;
    if arguments.patch.is_some() && subjects.len() != 1 {
        return Err(Failure("--patch needs the one contract whose kernel it replaces".to_owned()));
    }
    if !arguments.at.is_empty() && subjects.len() != 1 {
        return Err(Failure("--at needs the one contract in whose PTX the lines are".to_owned()));
    }
    if arguments.sample == 0 && !arguments.named {
        return Err(Failure("--sample 0 tries nothing: add --named".to_owned()));
    }
    let corpora = arguments.corpora.clone().unwrap_or_else(|| repository().join("corpora"));
    let record = Record::read(&corpora).map_err(Failure)?;
    let plans = plans(&arguments, &subjects, &corpora)?;
    let budget = arguments.budget.map(Duration::from_secs);
    let mut left = budget;
    // A mutant that was begun is judged to its end: what one contract overruns by leaves the others half
    // of an even share at least.
    let least = budget.map(|budget| budget / (2 * plans.len().max(1)) as u32);
    let mut scores = Vec::new();
    for (place, plan) in plans.iter().enumerate() {
        // What one contract leaves of its share, the next ones have.
        let mut plan = plan.clone();
        plan.budget = left.map(|left| left / (plans.len() - place) as u32).max(least);
        let bar = bar(plan.subject, arguments.format);
        let score = mutate(&plan, &STOP, &mut |progress| {
            bar.set_length(progress.chosen as u64);
            bar.set_position(progress.judged as u64);
        });
        bar.finish_and_clear();
        let mut score = score?;
        left = left.map(|left| left.saturating_sub(score.judging));
        if arguments.write && arguments.sample > 0 && !STOP.load(Ordering::Relaxed) {
            score.second = Some(mutate(&second(&plan), &STOP, &mut |_| {})?.as_second());
        }
        scores.push(score);
        if STOP.load(Ordering::Relaxed) {
            break;
        }
    }
    match arguments.format {
        Format::Text => say(&report::mutation(&scores))?,
        Format::Json => say(&format!("{:#}\n", report::mutation_json(&scores)))?,
    }
    if STOP.load(Ordering::Relaxed) {
        return Ok(Outcome::Interrupted);
    }
    if let Some(reference) = arguments.in_diff.as_ref().filter(|_| tried_nothing(&scores)) {
        eprintln!(
            "assay: no line of a kernel that is executed changed since {reference}: no mutant was tried, and nothing is shown"
        );
    }
    let record = if arguments.write { write(&corpora, &scores)? } else { record };
    let faults = faults(&scores, &record, &arguments);
    faults.iter().for_each(|fault| eprintln!("assay: {fault}"));
    Ok(if faults.is_empty() { Outcome::Clean } else { Outcome::Found })
}

/// Whether a run says nothing of any kernel.
fn tried_nothing(scores: &[Score]) -> bool {
    scores.iter().all(|score| score.chosen == 0 && score.named.is_empty())
}

/// The same by a seed that follows from the first and that nobody looked at.
fn second(plan: &Plan) -> Plan {
    Plan {
        seed: format!("{}-second", plan.seed),
        named: Vec::new(),
        is_thorough: false,
        ..plan.clone()
    }
}

/// Puts the scores on record. Another process may be at it too: the record is read again under a lock,
/// and the new one takes its place whole.
fn write(corpora: &std::path::Path, scores: &[Score]) -> Result<Record, Failure> {
    let failed = |error: std::io::Error| Failure(format!("{}: {error}", corpora.display()));
    let folder = std::fs::File::open(corpora).map_err(failed)?;
    folder.lock().map_err(failed)?;
    let mut record = Record::read(corpora).map_err(Failure)?;
    scores.iter().for_each(|score| record.put(score));
    let new = corpora.join(format!(".{}.{}", record::FILE, std::process::id()));
    std::fs::write(&new, record.text()).map_err(failed)?;
    std::fs::rename(&new, corpora.join(record::FILE)).map_err(failed)?;
    Ok(record)
}

/// One plan a contract; with `--in-diff`, of the contracts that may be touched.
fn plans(
    arguments: &Arguments,
    subjects: &[&'static Subject],
    corpora: &std::path::Path,
) -> Result<Vec<Plan>, Failure> {
    let threads = arguments
        .threads
        .map(usize::from)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let changes = match &arguments.in_diff {
        Some(reference) => Some(Changes::since(&repository(), reference).map_err(Failure)?),
        None => None,
    };
    let root = sources();
    let (equivalents, explained) =
        (Equivalents::read(&root, FILE)?, Equivalents::read(&root, SURVIVORS)?);
    let compiler = Compiler::find();
    let assembler = compiler.as_ref().ok().and_then(Compiler::ptxas).map(Assembler::new);
    let seed = arguments.seed.clone().unwrap_or_else(head);
    let mut plans = Vec::new();
    for &subject in subjects {
        let mut named = Vec::new();
        if arguments.named || arguments.patch.is_some() {
            let compiler = compiler.as_ref().map_err(|error| Failure(error.to_string()))?;
            let installation = compiler.installation();
            named = match &arguments.patch {
                Some(file) => vec![named::of_file(installation, &root, subject.name(), file)?],
                None => named::of_contract(installation, &root, subject)?,
            };
        }
        plans.push(Plan {
            subject,
            corpora: corpora.to_owned(),
            cases: arguments.cases,
            sample: if arguments.patch.is_some() { 0 } else { arguments.sample as usize },
            seed: seed.clone(),
            threads,
            budget: None,
            changes: changes.clone(),
            lines: arguments.at.clone(),
            named,
            assembler: assembler.clone(),
            equivalents: equivalents.clone(),
            explained: explained.clone(),
            is_thorough: arguments.clauses,
        });
    }
    if let Some(changes) = &changes {
        plans.retain(|plan| changes.concerns(plan.subject.family, plan.subject.name()));
    }
    Ok(plans)
}

/// The sources of the kernels and the tables beside them: those this was built from, else those under the
/// current folder.
fn sources() -> PathBuf {
    let here = || repository().join("kernels").join("cuda");
    kernels::ptx::sources::checkout_root().unwrap_or_else(here)
}

/// The commit that is checked out; a fixed word where git cannot say.
fn head() -> String {
    let mut git = std::process::Command::new("git");
    let output = git.arg("-C").arg(repository()).args(["rev-parse", "--short=12", "HEAD"]).output();
    let text = output.ok().filter(|output| output.status.success());
    let text = text.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "none".to_owned())
}

/// Everything that makes the run a failure, one line each.
fn faults(scores: &[Score], record: &Record, arguments: &Arguments) -> Vec<String> {
    let mut faults = Vec::new();
    let canary = properties::subject::canary().map(Subject::name);
    for score in scores {
        let name = score.subject.name();
        // The canary is wrong on purpose.
        if Some(name) != canary {
            faults.extend(score.failing.first().map(|(origin, clause)| {
                format!("{name}: the kernel itself fails {origin} by {clause}: mend that first")
            }));
        }
        faults.extend(score.named_failures().into_iter().map(|(id, what)| {
            format!("{name}: mutant {id} {what}: its clause promises more than it notices")
        }));
        if score.is_unjudged() {
            faults.push(format!(
                "{name}: the budget was over before one of {} mutants was judged: raise --budget or lower --cases",
                score.chosen
            ));
        }
        // What another kernel is tried on may be too little to exercise everything.
        if arguments.patch.is_none() {
            faults.extend(score.vacuous.iter().map(|clause| {
                format!("{name}: no case exercises {clause}: mend the generators or remove it")
            }));
        }
        if arguments.at.is_empty() && score.declares_too_many() {
            let (declared, all) = (score.declared(), score.judged.len());
            faults.push(format!(
                "{name}: {declared} of {all} mutants are declared equivalent, a tenth may be: find clauses for some"
            ));
        }
        // A rewritten record may be lower; a reader of the change sees it there.
        if !arguments.write && arguments.at.is_empty() {
            faults.extend(record.drop_of(score));
        }
        faults.extend(record.gap_of(name));
    }
    faults
}

fn bar(subject: &Subject, format: Format) -> ProgressBar {
    let bar = ProgressBar::new(0);
    if format == Format::Json {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style =
        ProgressStyle::with_template("{prefix:>16} {bar:24} {pos:>4}/{len} mutants  {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(subject.name());
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
