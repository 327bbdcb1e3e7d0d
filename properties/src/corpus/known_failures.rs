//! `known_failures.yaml`: stored cases that may fail, each with a link to the issue about it and a day
//! after which that is an error. One that passes is as much a failure of the run as one that fails
//! without an entry.

use super::{CorpusError, Date, read_text};
use crate::verdict::Verdict;
use contracts::ContractError;
use serde::Deserialize;
use std::io::ErrorKind;
use std::path::Path;

/// Its largest size.
const LIMIT_BYTES: u64 = 1 << 20;

/// One tolerated failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFailure {
    /// Contract.
    pub contract: String,
    /// File stem of the stored case.
    pub case: String,
    /// The clause it fails.
    pub clause: String,
    /// Link to the issue.
    pub issue: String,
    /// The last day it may fail; a replay refuses an entry without one.
    pub expires: Option<Date>,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "known failure",
    expecting = "a map with contract, case, clause, issue and expires"
)]
struct Written {
    contract: String,
    case: String,
    clause: String,
    #[serde(default)]
    issue: String,
    #[serde(default)]
    expires: Option<String>,
}

/// All tolerated failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownFailures {
    entries: Vec<KnownFailure>,
}

/// What a replayed case means for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<'a> {
    /// It passes and should.
    Passes,
    /// It fails and no entry tolerates that.
    Fails,
    /// It fails, and not by the clause that the entry tolerates.
    FailsOtherwise(&'a KnownFailure),
    /// It fails as the entry says.
    Tolerated(&'a KnownFailure),
    /// It passes though the entry says it fails: the entry must go.
    PassesUnexpectedly(&'a KnownFailure),
    /// The backend or the contract could not say.
    Undecided,
}

impl KnownFailures {
    /// The file's name, at the root of the corpora.
    pub const FILE: &str = "known_failures.yaml";

    /// Reads the file; no entries when there is none. An entry without an issue link, without a day
    /// to come, said twice, or whose case is not stored is an error.
    pub fn read(root: &Path) -> Result<KnownFailures, CorpusError> {
        let (known, mut errors) = KnownFailures::in_force(root);
        if errors.is_empty() { Ok(known) } else { Err(errors.remove(0)) }
    }

    /// What may fail today, and what is wrong with the file: so that a day that has come, or a slip in
    /// one entry, hides nothing else. Nothing may fail where the file cannot be read.
    pub fn in_force(root: &Path) -> (KnownFailures, Vec<CorpusError>) {
        let path = root.join(KnownFailures::FILE);
        // A link that leads nowhere is no missing file.
        if std::fs::symlink_metadata(&path).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            return (KnownFailures::default(), Vec::new());
        }
        let text = match read_text(&path, LIMIT_BYTES) {
            Ok(text) => text,
            Err(error) => return (KnownFailures::default(), vec![error]),
        };
        let file = path.display().to_string();
        let stored = |entry: &KnownFailure| {
            root.join(&entry.contract).join(format!("{}.yaml", entry.case)).is_file()
        };
        match KnownFailures::parse(&text, &file, &stored) {
            Ok(known) => {
                let (known, over) = known.on(&file, Date::today());
                (known, over.into_iter().map(CorpusError::KnownFailures).collect())
            }
            Err(error) => (KnownFailures::default(), vec![CorpusError::KnownFailures(error)]),
        }
    }

    /// The entries that hold on this day, and what is wrong with each of the others.
    fn on(self, file: &str, today: Date) -> (KnownFailures, Vec<ContractError>) {
        let (mut entries, mut errors) = (Vec::new(), Vec::new());
        for (place, entry) in self.entries.into_iter().enumerate() {
            let (what, remedy) = match entry.expires {
                None => (
                    "it is missing".to_owned(),
                    "write expires: YYYY-MM-DD, the last day the case may fail",
                ),
                Some(day) if day < today => (
                    format!("`{}` may fail until {day}, and today is {today}", entry.case),
                    "fix what the issue is about and remove the entry, or agree on a later day there",
                ),
                Some(_) => {
                    entries.push(entry);
                    continue;
                }
            };
            errors.push(refused(file, place, "expires", what, remedy));
        }
        (KnownFailures { entries }, errors)
    }

    /// Parses the text of the file; `stored` says whether an entry's case is there. What day it is
    /// does not matter here.
    pub fn parse(
        text: &str,
        file: &str,
        stored: &dyn Fn(&KnownFailure) -> bool,
    ) -> Result<KnownFailures, ContractError> {
        let blank =
            text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        let written: Vec<Written> =
            if blank { Vec::new() } else { contracts::load::parse_yaml(text, file)? };
        let mut entries: Vec<KnownFailure> = Vec::new();
        for (place, written) in written.into_iter().enumerate() {
            let refused =
                |field: &str, what: String, remedy: &str| refused(file, place, field, what, remedy);
            let Written { contract, case, clause, issue, expires } = written;
            let expires = match expires {
                None => None,
                Some(text) => Some(Date::parse(&text).ok_or_else(|| {
                    refused("expires", format!("`{text}` is no day"), "write YYYY-MM-DD")
                })?),
            };
            let entry = KnownFailure { contract, case, clause, issue, expires };
            let plain = |name: &str| {
                !name.is_empty() && !name.contains(['/', '\\']) && !name.starts_with('.')
            };
            if !contracts::load::is_link(&entry.issue) {
                let what = format!("`{}` is no link to an issue", entry.issue);
                return Err(refused(
                    "issue",
                    what,
                    "write issue: https://…, a tolerated failure needs one",
                ));
            }
            if !plain(&entry.contract) || !plain(&entry.case) || !stored(&entry) {
                let what = format!("no case `{}` of {} is stored", entry.case, entry.contract);
                return Err(refused(
                    "case",
                    what,
                    "name the file without .yaml, or remove the entry",
                ));
            }
            if entries
                .iter()
                .any(|other| other.contract == entry.contract && other.case == entry.case)
            {
                let what = format!("`{}` of {} is listed twice", entry.case, entry.contract);
                return Err(refused("case", what, "keep one of the two"));
            }
            entries.push(entry);
        }
        Ok(KnownFailures { entries })
    }

    /// Every entry.
    pub fn entries(&self) -> &[KnownFailure] {
        &self.entries
    }

    /// The entry that tolerates this failure, if one does.
    pub fn tolerates(&self, contract: &str, case: &str, clause: &str) -> Option<&KnownFailure> {
        self.entry(contract, case).filter(|entry| entry.clause == clause)
    }

    /// Whether an entry speaks of this stored case, by file stem.
    pub fn names(&self, contract: &str, case: &str) -> bool {
        self.entry(contract, case).is_some()
    }

    /// What the verdict of a stored case (by file stem) means.
    pub fn standing(&self, contract: &str, case: &str, verdict: &Verdict) -> Standing<'_> {
        match verdict {
            Verdict::Unsupported(_) | Verdict::Discard(_) => Standing::Undecided,
            _ => self.of(contract, case, verdict.clause().filter(|_| verdict.is_failure())),
        }
    }

    /// What it means that a stored case (by file stem) fails by this clause, or passes.
    pub fn of(&self, contract: &str, case: &str, failing: Option<&str>) -> Standing<'_> {
        match (failing, self.entry(contract, case)) {
            (None, None) => Standing::Passes,
            (None, Some(entry)) => Standing::PassesUnexpectedly(entry),
            (Some(_), None) => Standing::Fails,
            (Some(clause), Some(entry)) if clause == entry.clause => Standing::Tolerated(entry),
            (Some(_), Some(entry)) => Standing::FailsOtherwise(entry),
        }
    }

    fn entry(&self, contract: &str, case: &str) -> Option<&KnownFailure> {
        self.entries.iter().find(|entry| entry.contract == contract && entry.case == case)
    }
}

fn refused(file: &str, place: usize, field: &str, what: String, remedy: &str) -> ContractError {
    ContractError {
        file: file.to_owned(),
        line: None,
        path: format!("[{place}].{field}"),
        what,
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::FaultReport;

    const ENTRY: &str = "- {contract: argmax_rows, case: house_bounds-1a2b3c4d, clause: house.bounds, \
                         issue: \"https://example.org/issues/12\", expires: 2027-03-31}\n";

    fn parse(text: &str) -> Result<KnownFailures, String> {
        KnownFailures::parse(text, "known_failures.yaml", &|entry| entry.case.starts_with("house"))
            .map_err(|error| error.to_string())
    }

    fn fault(clause: &str) -> Verdict {
        Verdict::Fault(Box::new(FaultReport {
            clause: clause.to_owned(),
            text: String::new(),
            tensor: None,
            source: None,
        }))
    }

    #[test]
    fn a_known_failure_is_tolerated_for_its_clause_alone_and_may_not_pass() {
        let known = parse(ENTRY).expect("it is well formed");
        let entry = &known.entries()[0];
        let standing =
            |verdict: &Verdict| known.standing("argmax_rows", "house_bounds-1a2b3c4d", verdict);
        assert_eq!(standing(&fault("house.bounds")), Standing::Tolerated(entry));
        assert_eq!(standing(&fault("house.races")), Standing::FailsOtherwise(entry));
        assert_eq!(standing(&Verdict::Agree), Standing::PassesUnexpectedly(entry));
        assert_eq!(standing(&Verdict::Unsupported("wgmma".to_owned())), Standing::Undecided);
        assert_eq!(
            known.standing("argmax_rows", "house_races-0", &Verdict::Agree),
            Standing::Passes
        );
        assert_eq!(known.tolerates("argmax_rows", "house_bounds-1a2b3c4d", "house.races"), None);
    }

    #[test]
    fn comments_alone_are_no_entries() {
        assert_eq!(parse("# nothing is tolerated\n\n"), Ok(KnownFailures::default()));
    }

    #[test]
    fn an_entry_needs_a_link_a_stored_case_and_no_twin() {
        let error =
            parse(&ENTRY.replace(", issue: \"https://example.org/issues/12\"", "")).unwrap_err();
        assert!(error.contains("[0].issue") && error.contains("link to an issue"), "{error}");
        let error = parse(&ENTRY.replace("https://example.org/issues/12", "later")).unwrap_err();
        assert!(error.contains("`later` is no link"), "{error}");
        let error = parse(&ENTRY.replace("house_bounds-1a2b3c4d", "gone-00000000")).unwrap_err();
        assert!(error.contains("no case `gone-00000000` of argmax_rows is stored"), "{error}");
        let error = parse(&ENTRY.replace("house_bounds-1a2b3c4d", "house/../../x")).unwrap_err();
        assert!(error.contains("no case"), "{error}");
        let error = parse(&ENTRY.repeat(2)).unwrap_err();
        assert!(error.contains("listed twice"), "{error}");
        let error = parse(&ENTRY.replace("clause", "claus")).unwrap_err();
        assert!(error.contains("unknown field `claus`"), "{error}");
    }

    #[test]
    fn an_entry_holds_up_to_its_day_and_no_entry_for_ever() {
        let day = |text: &str| Date::parse(text).expect("a day");
        let known = parse(ENTRY).expect("it is well formed");
        assert_eq!(known.entries()[0].expires, Some(day("2027-03-31")));
        let on = |known: &KnownFailures, today: &str| {
            let (known, errors) = known.clone().on("known_failures.yaml", day(today));
            (known, errors.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(on(&known, "2027-03-31"), (known.clone(), vec![]), "the last day");
        let over = "known_failures.yaml: [0].expires: `house_bounds-1a2b3c4d` may fail until \
                    2027-03-31, and today is 2027-04-01; fix what the issue is about and remove the \
                    entry, or agree on a later day there";
        assert_eq!(on(&known, "2027-04-01"), (KnownFailures::default(), vec![over.to_owned()]));
        let endless =
            parse(&ENTRY.replace(", expires: 2027-03-31", "")).expect("it is well formed");
        let (none, errors) = on(&endless, "2027-04-01");
        assert_eq!((none.entries.len(), errors.len()), (0, 1));
        assert!(
            errors[0].contains("[0].expires: it is missing; write expires: YYYY-MM-DD"),
            "{errors:?}"
        );
        let later = ENTRY.replace("1a2b3c4d", "2").replace("2027-03-31", "2027-05-31");
        let both = parse(&format!("{ENTRY}{later}")).expect("well formed");
        let (left, errors) = on(&both, "2027-04-01");
        assert_eq!((left.entries(), errors), (&both.entries()[1..], vec![over.to_owned()]));
        let error = parse(&ENTRY.replace("2027-03-31", "2027-02-30")).unwrap_err();
        assert!(error.contains("[0].expires: `2027-02-30` is no day; write YYYY-MM-DD"), "{error}");
        let error = parse(&ENTRY.replace("2027-03-31", "[soon]")).unwrap_err();
        assert!(error.contains("expires"), "{error}");
    }
}
