//! `assay corpus`: what could leave the corpora, what they give a fuzzer, and their cases in today's
//! form. Nothing is changed unless asked for with `--write`.

use crate::{Failure, Outcome, repository, say, subjects};
use properties::corpus::files;
use properties::corpus::migrate::migrate;
use properties::corpus::minimize::{Minimal, Spare, Stays, minimize};
use properties::fuzzing::export::{Exported, export, export_histories};
use properties::rounds::{self, CONTRACT as ROUNDS};
use properties::subject::{Subject, known_subjects};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Where the corpora are.
    #[arg(long, value_name = "FOLDER", global = true)]
    corpora: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Cases that exercise nothing the others do not. Those a person or an issue speaks of stay.
    Minimize {
        /// Contracts; all when none is named.
        contracts: Vec<String>,
        /// Remove them; otherwise they are only named.
        #[arg(long)]
        write: bool,
    },
    /// Stored cases and histories as inputs of the fuzz targets, so that a run starts from everything
    /// known.
    Export {
        /// Contracts, or `speculative_round`; all when none is named.
        contracts: Vec<String>,
        /// Where the targets' corpora are; a folder a target.
        #[arg(long, value_name = "FOLDER")]
        to: Option<PathBuf>,
    },
    /// Cases written for an older version of their contract, in today's form. Those that cannot be
    /// carried over are named, with the reason, and stay as they are.
    Migrate {
        /// Contracts; all when none is named.
        contracts: Vec<String>,
        /// Write them; otherwise they are only named.
        #[arg(long)]
        write: bool,
    },
}

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let root = arguments.corpora.unwrap_or_else(|| repository().join("corpora"));
    match arguments.what {
        What::Minimize { contracts, write } => minimized(&root, &contracts, write),
        What::Export { contracts, to } => {
            let to = to.unwrap_or_else(|| repository().join("fuzz/corpus"));
            exported(&root, &contracts, &to)
        }
        What::Migrate { contracts, write } => migrated(&root, &contracts, write),
    }
}

fn minimized(root: &Path, contracts: &[String], write: bool) -> Result<Outcome, Failure> {
    let mut broken = Vec::new();
    for subject in subjects(contracts)? {
        let minimal = minimize(root, subject)?;
        broken.extend(minimal.kept.iter().filter_map(|(_, why)| match why {
            Stays::Unreadable(why) => Some(why.clone()),
            _ => None,
        }));
        let mut removed = Vec::new();
        for spare in minimal.spare.iter().filter(|_| write) {
            match spare.remove() {
                Ok(()) => removed.push(spare),
                Err(error) => broken.push(error.to_string()),
            }
        }
        say(&shown(subject.name(), &minimal, write.then_some(&removed)))?;
    }
    if broken.is_empty() { Ok(Outcome::Clean) } else { Err(Failure(broken.join("\nassay: "))) }
}

fn shown(name: &str, minimal: &Minimal, removed: Option<&Vec<&Spare>>) -> String {
    let mut out = String::new();
    for (path, why) in &minimal.kept {
        let _ = writeln!(out, "stays     {}: {why}", path.display());
    }
    let could_go: Vec<&Spare> = minimal.spare.iter().collect();
    let (word, spare) = removed.map_or(("could go ", &could_go), |removed| ("removed  ", removed));
    for spare in spare {
        let _ = writeln!(out, "{word} {}", spare.path.display());
    }
    let _ = writeln!(
        out,
        "{name}: {} of {} cases cover all {} clauses, edges and clauses shown{}",
        minimal.kept.len(),
        minimal.kept.len() + minimal.spare.len(),
        minimal.covered,
        if removed.is_some() || minimal.spare.is_empty() {
            ""
        } else {
            "; --write removes the others"
        },
    );
    out
}

/// The subjects named, and whether speculative rounds are; `all` and them when none is.
fn named(
    contracts: &[String],
    all: impl Fn() -> Vec<&'static Subject>,
) -> Result<(Vec<&'static Subject>, bool), Failure> {
    let (rounds, contracts): (Vec<_>, Vec<_>) =
        contracts.iter().cloned().partition(|name| name == ROUNDS);
    Ok(match () {
        () if rounds.is_empty() && contracts.is_empty() => (all(), true),
        () if contracts.is_empty() => (Vec::new(), true),
        () => (subjects(&contracts)?, !rounds.is_empty()),
    })
}

fn exported(root: &Path, contracts: &[String], to: &Path) -> Result<Outcome, Failure> {
    let (all, rounds) = named(contracts, || known_subjects().collect())?;
    let mut broken = Vec::new();
    let mut told = |name: &str, folder: &Path, exported: Exported| {
        let Exported { written, refused } = exported;
        if written > 0 || !refused.is_empty() {
            say(&format!("{name}: {written} inputs in {}\n", folder.display()))?;
        }
        broken.extend(refused);
        Ok::<_, Failure>(())
    };
    for subject in all {
        let folder = to.join(subject.name());
        told(subject.name(), &folder, export(root, subject, &folder)?)?;
    }
    if rounds {
        let folder = to.join(ROUNDS);
        told(ROUNDS, &folder, export_histories(root, &folder)?)?;
    }
    if broken.is_empty() { Ok(Outcome::Clean) } else { Err(Failure(broken.join("\nassay: "))) }
}

fn migrated(root: &Path, contracts: &[String], write: bool) -> Result<Outcome, Failure> {
    let mut refused = Vec::new();
    let (all, rounds) = named(contracts, || subjects(&[]).unwrap_or_default())?;
    for subject in all {
        let migrated = migrate(root, subject.contract, write)?;
        let word = if write { "written " } else { "is older" };
        let lines: String =
            migrated.carried.iter().map(|path| format!("{word} {}\n", path.display())).collect();
        say(&format!(
            "{lines}{}: {} in the form of version {}, {} older, {} that cannot be carried over{}\n",
            subject.name(),
            migrated.current,
            subject.contract.version,
            migrated.carried.len(),
            migrated.refused.len(),
            if write || migrated.carried.is_empty() {
                ""
            } else {
                "; --write writes the older ones"
            },
        ))?;
        refused.extend(migrated.refused);
    }
    if rounds {
        // Their contract has one version: a history is in its form, or is none.
        let read = files(root, ROUNDS)?.into_iter().map(|path| rounds::read(&path));
        let (current, others): (Vec<_>, Vec<_>) = read.partition(Result::is_ok);
        say(&format!(
            "{ROUNDS}: {} in the form of version 1, 0 older, {} that cannot be carried over\n",
            current.len(),
            others.len()
        ))?;
        refused.extend(others.into_iter().filter_map(Result::err).map(|error| error.to_string()));
    }
    if refused.is_empty() { Ok(Outcome::Clean) } else { Err(Failure(refused.join("\nassay: "))) }
}
