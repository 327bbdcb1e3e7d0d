//! `known_failures.yaml`: stored cases that may fail, each with a link to the issue about it. One that
//! passes is as much a failure of the run as one that fails without an entry.

use super::{CorpusError, read_text};
use crate::verdict::Verdict;
use contracts::ContractError;
use serde::Deserialize;
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
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "known failure",
    expecting = "a map with contract, case, clause and issue"
)]
struct Written {
    contract: String,
    case: String,
    clause: String,
    #[serde(default)]
    issue: String,
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

    /// Reads the file; no entries when there is none. An entry without an issue link, one said twice,
    /// or one whose case is not stored is an error.
    pub fn read(root: &Path) -> Result<KnownFailures, CorpusError> {
        let path = root.join(KnownFailures::FILE);
        if !path.exists() {
            return Ok(KnownFailures::default());
        }
        let text = read_text(&path, LIMIT_BYTES)?;
        let file = path.display().to_string();
        let stored = |entry: &KnownFailure| {
            root.join(&entry.contract).join(format!("{}.yaml", entry.case)).is_file()
        };
        KnownFailures::parse(&text, &file, &stored).map_err(CorpusError::KnownFailures)
    }

    /// Parses the text of the file; `stored` says whether an entry's case is there.
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
        for (place, Written { contract, case, clause, issue }) in written.into_iter().enumerate() {
            let entry = KnownFailure { contract, case, clause, issue };
            let refused = |field: &str, what: String, remedy: &str| ContractError {
                file: file.to_owned(),
                line: None,
                path: format!("[{place}].{field}"),
                what,
                remedy: remedy.to_owned(),
            };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::FaultReport;

    const ENTRY: &str = "- {contract: argmax_rows, case: house_bounds-1a2b3c4d, clause: house.bounds, \
                         issue: \"https://example.org/issues/12\"}\n";

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
}
