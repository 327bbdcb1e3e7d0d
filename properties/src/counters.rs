//! How often each clause was exercised, per dtype combination. A clause that never fires is a defect.

use crate::subject::Subject;
use contracts::case::Case;
use std::collections::BTreeMap;

/// Exercise counts of one subject.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// `(dtype label, clause index) -> cases`.
    counts: BTreeMap<(String, usize), u64>,
    /// Cases with a verdict.
    pub cases: u64,
    /// Cases discarded.
    pub discarded: u64,
}

/// One line of a summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Exercised {
    /// Clause id.
    pub clause: String,
    /// For example `io=f16`.
    pub dtypes: String,
    /// Cases.
    pub cases: u64,
    /// What is missing here, if it cannot be exercised on this machine: `cuda`, `nvrtc`.
    pub not_here: Option<&'static str>,
}

/// The label of a case's first dtype symbol, which a contract's clauses are counted by: `io=f16`.
pub fn dtype_label(case: &Case) -> String {
    case.dtypes.first().map_or_else(String::new, |(symbol, dtype)| format!("{symbol}={dtype}"))
}

impl Counters {
    /// Counts one case for one clause, by its place in `subject.clauses`.
    pub fn count(&mut self, label: &str, clause: usize) {
        if let Some(count) = self.counts.get_mut(&(label.to_owned(), clause)) {
            *count += 1;
        } else {
            self.counts.insert((label.to_owned(), clause), 1);
        }
    }

    /// Counts one case for one clause, by id. Unknown ids are ignored: they belong to no summary.
    pub fn count_id(&mut self, subject: &Subject, label: &str, id: &str) {
        if let Some(place) = subject.clauses.iter().position(|clause| clause.id == id) {
            self.count(label, place);
        }
    }

    /// Every dtype label and clause, by its place in `subject.clauses`, that some case exercised.
    pub fn exercised(&self) -> impl Iterator<Item = (&str, usize)> {
        self.counts.keys().map(|(label, clause)| (label.as_str(), *clause))
    }

    /// Adds another worker's counts.
    pub fn merge(&mut self, other: &Counters) {
        for (key, count) in &other.counts {
            *self.counts.entry(key.clone()).or_default() += count;
        }
        self.cases += other.cases;
        self.discarded += other.discarded;
    }

    /// Every clause × dtype the contract has, with its count, zero included.
    pub fn summary(&self, subject: &Subject, has_cuda: bool, has_nvrtc: bool) -> Vec<Exercised> {
        let Some((symbol, types)) = subject.contract.dtypes.first() else { return Vec::new() };
        let mut lines = Vec::new();
        for dtype in types {
            let label = format!("{symbol}={dtype}");
            for (place, clause) in subject.clauses.iter().enumerate() {
                if !clause.applies_to(subject.contract, *dtype) {
                    continue;
                }
                let cases = self.counts.get(&(label.clone(), place)).copied().unwrap_or(0);
                let not_here = clause.needs.missing(has_cuda, has_nvrtc);
                lines.push(Exercised {
                    clause: clause.id.clone(),
                    dtypes: label.clone(),
                    cases,
                    not_here,
                });
            }
        }
        lines
    }

    /// Relations that still lack cases for some dtype, the least exercised first: each needs an
    /// examination of its own.
    pub fn neediest(&self, subject: &Subject, cases_per_clause: u64) -> Vec<String> {
        let mut lacking: Vec<(u64, String)> = Vec::new();
        for line in self.summary(subject, false, false) {
            if !line.clause.starts_with("relations.") || line.cases >= cases_per_clause {
                continue;
            }
            match lacking.iter_mut().find(|(_, clause)| *clause == line.clause) {
                Some((least, _)) => *least = line.cases.min(*least),
                None => lacking.push((line.cases, line.clause)),
            }
        }
        lacking.sort();
        lacking.into_iter().map(|(_, clause)| clause).collect()
    }

    /// Whether a call that must be refused still lacks cases for some dtype.
    pub fn rejections_lack(&self, subject: &Subject, cases_per_clause: u64) -> bool {
        self.summary(subject, false, false).iter().any(|line| {
            let is_rejection =
                line.clause.starts_with("rejects.") || line.clause.starts_with("requires.");
            is_rejection && line.cases < cases_per_clause
        })
    }

    /// The smallest count over everything that can be exercised here.
    pub fn least(&self, subject: &Subject, has_cuda: bool, has_nvrtc: bool) -> u64 {
        self.summary(subject, has_cuda, has_nvrtc)
            .iter()
            .filter(|line| line.not_here.is_none())
            .map(|line| line.cases)
            .min()
            .unwrap_or(0)
    }
}
