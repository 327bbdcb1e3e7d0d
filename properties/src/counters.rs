//! How often each clause was exercised, per dtype combination. A clause that never fires is a defect.

use crate::subject::Subject;
use crate::verdict::ErrorSummary;
use contracts::case::Case;
use std::collections::BTreeMap;

/// Exercise counts of one subject.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// `(dtype label, clause index) -> cases`.
    counts: BTreeMap<(String, usize), u64>,
    /// How far inside their bounds written tensors are: `(dtype label, tensor)`.
    headroom: BTreeMap<(String, String), Headroom>,
    /// Cases with a verdict.
    pub cases: u64,
    /// Cases discarded.
    pub discarded: u64,
}

/// How near a tensor came to what its tolerance allows, over the cases that were measured. A bound whose
/// share stays small is too loose.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Headroom {
    /// Cases measured.
    pub cases: u64,
    /// Largest error over bound of any element; 1 is the bound itself, 0 that every bit is equal.
    pub worst_ratio: f64,
    /// Largest error.
    pub max_abs: f64,
    /// Largest error in units in the last place of the expectation.
    pub max_ulps: f64,
    /// Largest relative RMS error of a case.
    pub relative_rms: f64,
    /// Least and largest norm ratio of a case.
    pub norm_ratio: [f64; 2],
    /// Elements NaN or infinite where the expectation is finite.
    pub nonfinite: u64,
}

impl Headroom {
    /// One case.
    pub fn of(summary: &ErrorSummary) -> Headroom {
        Headroom {
            cases: 1,
            worst_ratio: summary.worst_ratio,
            max_abs: summary.max_abs,
            max_ulps: summary.max_ulps,
            relative_rms: summary.relative_rms,
            norm_ratio: [summary.norm_ratio; 2],
            nonfinite: summary.nonfinite,
        }
    }

    /// Both together.
    pub fn merge(&mut self, other: &Headroom) {
        if self.cases == 0 {
            *self = *other;
            return;
        }
        self.cases += other.cases;
        self.worst_ratio = self.worst_ratio.max(other.worst_ratio);
        self.max_abs = self.max_abs.max(other.max_abs);
        self.max_ulps = self.max_ulps.max(other.max_ulps);
        self.relative_rms = self.relative_rms.max(other.relative_rms);
        self.norm_ratio[0] = self.norm_ratio[0].min(other.norm_ratio[0]);
        self.norm_ratio[1] = self.norm_ratio[1].max(other.norm_ratio[1]);
        self.nonfinite += other.nonfinite;
    }
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

    /// Adds a measurement of a tensor.
    pub(crate) fn measured(&mut self, label: &str, tensor: &str, headroom: Headroom) {
        self.headroom.entry((label.to_owned(), tensor.to_owned())).or_default().merge(&headroom);
    }

    /// What was measured, by dtypes and tensor.
    pub fn headroom(&self) -> impl Iterator<Item = (&str, &str, &Headroom)> {
        self.headroom.iter().map(|((label, tensor), held)| (&**label, &**tensor, held))
    }

    /// Adds another worker's counts.
    pub fn merge(&mut self, other: &Counters) {
        for (key, count) in &other.counts {
            *self.counts.entry(key.clone()).or_default() += count;
        }
        for ((label, tensor), headroom) in &other.headroom {
            self.measured(label, tensor, *headroom);
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
