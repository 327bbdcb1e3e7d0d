//! Which stored cases of a contract could go: those that together exercise nothing the others do not.
//! What is held is every clause × dtype, every PTX branch edge and every clause once shown × dtype. A
//! case stays whatever it covers while a person or an issue speaks of it, and while it fails.

use super::write::is_ours;
use super::{CorpusError, KnownFailures, comment, files, read_text, remove_case};
use crate::check::{ToolError, Workspace, check};
use crate::counters::{Counters, dtype_label};
use crate::replay;
use crate::subject::Subject;
use crate::verdict::Verdict;
use contracts::case::Case;
use contracts::case_yaml::CASE_LIMIT_BYTES;
use kernels::backend::vm::{Coverage, VmBackend};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a stored case stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stays {
    /// `known_failures.yaml` names it.
    KnownFailure,
    /// It fails, by this clause.
    Fails(String),
    /// The machine could not judge it.
    Undecided(String),
    /// It links a report.
    Report(String),
    /// It cannot be read.
    Unreadable(String),
    /// Its name or contents are not as the tool wrote them.
    ByHand,
    /// A person's comment.
    Comment(String),
    /// So many things that no other kept case covers.
    Covers(usize),
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stays::KnownFailure => write!(f, "{} names it", KnownFailures::FILE),
            Stays::Fails(clause) => write!(f, "it fails {clause}"),
            Stays::Undecided(why) => write!(f, "it was not judged: {why}"),
            Stays::Report(link) => write!(f, "it links {link}"),
            Stays::Unreadable(why) => write!(f, "it cannot be read: {why}"),
            Stays::ByHand => f.write_str("a person wrote or edited it"),
            Stays::Comment(line) => write!(f, "a person wrote: {line}"),
            Stays::Covers(count) => write!(f, "{count} clauses and edges that no other covers"),
        }
    }
}

/// A stored case that could go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spare {
    /// The file.
    pub path: PathBuf,
    text: String,
}

impl Spare {
    /// Removes it, unless it is another case by now.
    ///
    /// # Errors
    /// When it stays, and why.
    pub fn remove(&self) -> Result<(), CorpusError> {
        remove_case(&self.path, &self.text)
    }
}

/// What became of one contract's stored cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Minimal {
    /// Those that stay, and why.
    pub kept: Vec<(PathBuf, Stays)>,
    /// Those that could go.
    pub spare: Vec<Spare>,
    /// Clauses × dtypes, edges and clauses shown that all of them cover.
    pub covered: usize,
}

/// Something that a set of cases must hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Feature {
    /// A clause exercised under a dtype label.
    Clause(String, usize),
    /// A clause that the case once showed.
    Shown(String, String),
    /// A branch edge of an entry.
    Edge(&'static str, String, usize),
}

struct Measured {
    path: PathBuf,
    text: String,
    stays: Option<Stays>,
    covers: BTreeSet<Feature>,
}

/// Looks for cases that could go. Nothing is removed.
///
/// # Errors
/// When the corpora cannot be listed, `known_failures.yaml` is not what it must be, or the tool fails.
pub fn minimize(root: &Path, subject: &'static Subject) -> Result<Minimal, ToolError> {
    let told = |error: CorpusError| ToolError::Missing(error.to_string());
    let known = KnownFailures::read(root).map_err(told)?;
    let mut workspace = Workspace::new();
    let mut cases = Vec::new();
    for path in files(root, subject.name()).map_err(told)? {
        cases.push(measure(root, subject, path, &known, &mut workspace)?);
    }
    Ok(choose(cases))
}

/// Runs one case and says what it covers, and whether it stays in any event.
fn measure(
    root: &Path,
    subject: &'static Subject,
    path: PathBuf,
    known: &KnownFailures,
    workspace: &mut Workspace,
) -> Result<Measured, ToolError> {
    let stays = |path: PathBuf, stays| Measured {
        path,
        text: String::new(),
        stays: Some(stays),
        covers: BTreeSet::new(),
    };
    // Before the case: what is judged is never older than what is compared when it is removed.
    let text = match read_text(&path, CASE_LIMIT_BYTES as u64) {
        Ok(text) => text,
        Err(error) => return Ok(stays(path, Stays::Unreadable(error.to_string()))),
    };
    let case = match replay::read(root, &path) {
        Ok((of, case)) if of.name() == subject.name() => case,
        Ok((of, _)) => {
            let what = format!("it is of {}", of.name());
            return Ok(stays(path, Stays::Unreadable(what)));
        }
        Err(error) => return Ok(stays(path, Stays::Unreadable(error.to_string()))),
    };
    let (mut backend, mut counters) = (VmBackend::new(), Counters::default());
    let examine = replay::examination(&case);
    let verdict = check(subject, &case, &examine, &mut backend, workspace, &mut counters)?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let stays = match &verdict {
        _ if known.names(subject.name(), &stem) => Some(Stays::KnownFailure),
        Verdict::Unsupported(why) | Verdict::Discard(why) => Some(Stays::Undecided(why.clone())),
        Verdict::Disagree(_) | Verdict::Fault(_) => {
            Some(Stays::Fails(verdict.clause().unwrap_or_default().to_owned()))
        }
        Verdict::Agree => of_people(&path, &case, &text),
    };
    let covers = features(&case, &counters, backend.coverage());
    Ok(Measured { path, text, stays, covers })
}

/// Whether a person speaks of the case: by a link, a comment, a name or an edit.
fn of_people(path: &Path, case: &Case, text: &str) -> Option<Stays> {
    let Some(found) = &case.found else { return Some(Stays::ByHand) };
    if let Some(link) = &found.issue {
        return Some(Stays::Report(link.clone()));
    }
    if let Some(line) = comment::of_people(text).first() {
        return Some(Stays::Comment((*line).to_owned()));
    }
    (!is_ours(path, text)).then_some(Stays::ByHand)
}

fn features(case: &Case, counters: &Counters, coverage: &Coverage) -> BTreeSet<Feature> {
    let clauses = counters.exercised().map(|(label, at)| Feature::Clause(label.to_owned(), at));
    let shown = case.found.as_ref();
    let shown = shown.map(|found| Feature::Shown(dtype_label(case), found.clause.clone()));
    let mut features: BTreeSet<Feature> = clauses.chain(shown).collect();
    for (stem, module) in coverage.modules() {
        for (name, entry) in module.entries() {
            let taken = entry.edges.iter().enumerate().filter(|(_, hits)| **hits > 0);
            features.extend(taken.map(|(edge, _)| Feature::Edge(stem, name.to_owned(), edge)));
        }
    }
    features
}

/// Those that stay in any event, then always the case that adds most (the shortest of several), then
/// without those that the later ones made needless: no chosen case can be left out.
fn choose(mut cases: Vec<Measured>) -> Minimal {
    let all: BTreeSet<&Feature> = cases.iter().flat_map(|case| &case.covers).collect();
    let covered = all.len();
    let mut held: BTreeSet<Feature> = BTreeSet::new();
    for case in cases.iter().filter(|case| case.stays.is_some()) {
        held.extend(case.covers.iter().cloned());
    }
    let fixed = held.clone();
    let mut chosen: Vec<usize> = Vec::new();
    loop {
        let adds = |case: &Measured| case.covers.difference(&held).count();
        let free = (0..cases.len()).filter(|at| cases[*at].stays.is_none() && !chosen.contains(at));
        let best = free.max_by_key(|at| {
            let case = &cases[*at];
            let first = std::cmp::Reverse((case.text.len(), case.path.clone()));
            (adds(case), first)
        });
        let Some(best) = best.filter(|at| adds(&cases[*at]) > 0) else { break };
        held.extend(cases[best].covers.iter().cloned());
        chosen.push(best);
    }
    for at in chosen.clone() {
        let others = chosen.iter().filter(|other| **other != at);
        let others: BTreeSet<&Feature> = others.flat_map(|other| &cases[*other].covers).collect();
        let needless = |feature| fixed.contains(feature) || others.contains(feature);
        if cases[at].covers.iter().all(needless) {
            chosen.retain(|other| *other != at);
        }
    }
    for at in &chosen {
        let alone = |feature: &&Feature| {
            let others = chosen.iter().filter(|other| *other != at);
            !fixed.contains(feature)
                && !others.into_iter().any(|o| cases[*o].covers.contains(feature))
        };
        let count = cases[*at].covers.iter().filter(alone).count();
        cases[*at].stays = Some(Stays::Covers(count));
    }
    let mut minimal = Minimal { covered, ..Minimal::default() };
    for case in cases {
        match case.stays {
            Some(stays) => minimal.kept.push((case.path, stays)),
            None => minimal.spare.push(Spare { path: case.path, text: case.text }),
        }
    }
    minimal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::{Seeded, mix};
    use crate::corpus::write::stems;
    use contracts::case::Found;
    use contracts::case_yaml::write_case;

    fn measured(name: &str, len_bytes: usize, stays: Option<Stays>, covers: &[usize]) -> Measured {
        let covers = covers.iter().map(|at| Feature::Clause(String::new(), *at)).collect();
        Measured { path: name.into(), text: "x".repeat(len_bytes), stays, covers }
    }

    fn spare(cases: Vec<Measured>) -> Vec<String> {
        choose(cases).spare.iter().map(|spare| spare.path.display().to_string()).collect()
    }

    #[test]
    fn what_the_others_cover_could_go_and_nothing_else() {
        let cases = vec![
            measured("a", 10, None, &[1, 2, 3]),
            measured("b", 10, None, &[2, 3]),
            measured("c", 10, None, &[3, 4]),
            measured("d", 10, Some(Stays::ByHand), &[4]),
        ];
        assert_eq!(spare(cases), ["b", "c"]);
        let cases = vec![measured("a", 10, None, &[1, 2]), measured("b", 10, None, &[2, 3])];
        assert!(spare(cases).is_empty());
    }

    #[test]
    fn of_two_alike_the_shorter_stays_and_a_greedy_choice_is_taken_back() {
        let cases = vec![measured("long", 90, None, &[1]), measured("short", 10, None, &[1])];
        assert_eq!(spare(cases), ["long"]);
        // `most` is chosen first, and then both others are needed without it.
        let cases = vec![
            measured("most", 10, None, &[2, 3, 4, 5]),
            measured("left", 10, None, &[1, 2, 3]),
            measured("right", 10, None, &[4, 5, 6]),
        ];
        assert_eq!(spare(cases), ["most"]);
    }

    #[test]
    fn what_stays_in_any_event_stays_though_it_covers_nothing() {
        let cases = vec![
            measured("a", 10, Some(Stays::KnownFailure), &[]),
            measured("b", 10, Some(Stays::Comment("why".to_owned())), &[1]),
            measured("c", 10, None, &[1]),
        ];
        let minimal = choose(cases);
        assert_eq!(minimal.kept.len(), 2);
        let spare: Vec<_> = minimal.spare.into_iter().map(|spare| spare.path).collect();
        assert_eq!((spare, minimal.covered), (vec![PathBuf::from("c")], 1));
    }

    /// A corpus of drawn cases under the names and comments that the tool gives.
    #[test]
    fn a_case_of_people_is_never_spare_and_coverage_is_kept() {
        let subject = crate::subject::subject("argmax_rows").expect("a production subject");
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join(subject.name());
        std::fs::create_dir(&folder).expect("made");
        let store = |seed: u64, stem: Option<&str>, comment: &str, issue: Option<&str>| {
            let draw = crate::generate::draw(subject, &mut Seeded { seed });
            let mut case = draw.expect("drawn").case;
            let body = write_case(&case, subject.contract, None);
            let ours = stems("tolerance.ids.all", &body)[0].clone();
            let (clause, backend) = ("tolerance.ids.all".to_owned(), "vm".to_owned());
            case.found = Some(Found { clause, backend, issue: issue.map(str::to_owned) });
            let path = folder.join(format!("{}.yaml", stem.unwrap_or(&ours)));
            std::fs::write(&path, write_case(&case, subject.contract, Some(comment)))
                .expect("written");
            path
        };
        let ours = "what it shows\ncargo run --release -- replay x.yaml";
        let seed = |number| mix(77, number);
        (0..40).for_each(|number| drop(store(seed(number), None, ours, None)));
        let named = store(seed(1), Some("my_case"), ours, None);
        let linked = store(seed(90), None, ours, Some("https://example.org/1"));
        let noted = store(seed(91), None, &format!("{ours}\nsee the mail"), None);
        std::fs::write(folder.join("broken.yaml"), "case: 1\n").expect("written");
        let minimal = minimize(root.path(), subject).expect("the tool works");
        let why = |path: &Path| {
            let kept = minimal.kept.iter().find(|(kept, _)| kept == path);
            kept.map(|(_, why)| why.to_string()).unwrap_or_default()
        };
        assert_eq!(why(&named), "a person wrote or edited it");
        assert_eq!(why(&linked), "it links https://example.org/1");
        assert_eq!(why(&noted), "a person wrote: see the mail");
        assert!(why(&folder.join("broken.yaml")).starts_with("it cannot be read"));
        assert!(minimal.spare.len() > 10, "{minimal:?}");
        // What a person changes after it was judged stays.
        let (edited, others) = minimal.spare.split_first().expect("some");
        let text = std::fs::read_to_string(&edited.path).expect("read");
        std::fs::write(&edited.path, format!("{text}# kept on purpose\n")).expect("written");
        let error = edited.remove().expect_err("it changed").to_string();
        assert!(
            error.ends_with("it was changed meanwhile and stays as it is; run the command again")
        );
        assert!(edited.path.exists());
        std::fs::write(&edited.path, text).expect("written");
        edited.remove().expect("as it was");
        for spare in others {
            spare.remove().expect("removed");
        }
        let again = minimize(root.path(), subject).expect("the tool works");
        assert_eq!(again.covered, minimal.covered, "what is covered is still covered");
        assert!(again.spare.is_empty(), "{again:?}");
    }
}
