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
        let path = root.join(KnownFailures::FILE);
        // A link that leads nowhere is no missing file.
        if std::fs::symlink_metadata(&path).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            return Ok(KnownFailures::default());
        }
        let text = read_text(&path, LIMIT_BYTES)?;
        let file = path.display().to_string();
        let stored = |entry: &KnownFailure| {
            root.join(&entry.contract).join(format!("{}.yaml", entry.case)).is_file()
        };
        KnownFailures::parse(&text, &file, &stored)
            .and_then(|known| known.in_force(&file, Date::today()).map(|()| known))
            .map_err(CorpusError::KnownFailures)
    }

    /// Whether every entry still holds on this day.
    fn in_force(&self, file: &str, today: Date) -> Result<(), ContractError> {
        for (place, entry) in self.entries.iter().enumerate() {
            let (what, remedy) = match entry.expires {
                None => (
                    "it is missing".to_owned(),
                    "write expires: YYYY-MM-DD, the last day the case may fail",
                ),
                Some(day) if day < today => (
                    format!("`{}` may fail until {day}, and today is {today}", entry.case),
                    "fix what the issue is about and remove the entry, or agree on a later day there",
                ),
                Some(_) => continue,
            };
            return Err(refused(file, place, "expires", what, remedy));
        }
        Ok(())
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
        match (verdict, self.entry(contract, case)) {
            (Verdict::Unsupported(_) | Verdict::Discard(_), _) => Standing::Undecided,
            (Verdict::Agree, None) => Standing::Passes,
            (Verdict::Agree, Some(entry)) => Standing::PassesUnexpectedly(entry),
            (_, Some(entry)) if verdict.clause() == Some(&entry.clause) => {
                Standing::Tolerated(entry)
            }
            _ => Standing::Fails,
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
        assert_eq!(standing(&fault("house.races")), Standing::Fails);
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
        let day = |text| Date::parse(text).expect("a day");
        let known = parse(ENTRY).expect("it is well formed");
        assert_eq!(known.entries()[0].expires, Some(day("2027-03-31")));
        known.in_force("known_failures.yaml", day("2027-03-31")).expect("the last day");
        let error = known.in_force("known_failures.yaml", day("2027-04-01")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "known_failures.yaml: [0].expires: `house_bounds-1a2b3c4d` may fail until 2027-03-31, \
             and today is 2027-04-01; fix what the issue is about and remove the entry, or agree on \
             a later day there"
        );
        let endless =
            parse(&ENTRY.replace(", expires: 2027-03-31", "")).expect("it is well formed");
        let error = endless.in_force("known_failures.yaml", day("2027-04-01")).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("[0].expires: it is missing; write expires: YYYY-MM-DD"), "{error}");
        let error = parse(&ENTRY.replace("2027-03-31", "2027-02-30")).unwrap_err();
        assert!(error.contains("[0].expires: `2027-02-30` is no day; write YYYY-MM-DD"), "{error}");
        let error = parse(&ENTRY.replace("2027-03-31", "[soon]")).unwrap_err();
        assert!(error.contains("expires"), "{error}");
    }
}
