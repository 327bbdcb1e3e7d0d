//! Known failures compared: each tolerates one stored case, so a new one is looser. An entry whose case
//! has another name follows it.

use super::change::Class;
use super::git::ReviewError;
use super::sides::Record;
use super::tree::Tree;
use crate::corpus::{KnownFailure, KnownFailures};
use std::collections::BTreeMap;

/// Known failures of both trees.
pub struct Known {
    before: Vec<KnownFailure>,
    after: Vec<KnownFailure>,
}

impl Known {
    /// Reads both lists; a tree without one tolerates nothing.
    pub fn read(base: &Tree<'_>, head: &Tree<'_>) -> Result<Known, ReviewError> {
        let path = format!("corpora/{}", KnownFailures::FILE);
        let entries = |tree: &Tree<'_>| -> Result<Vec<KnownFailure>, ReviewError> {
            if !tree.has(&path) {
                return Ok(Vec::new());
            }
            // Whether the case is stored is the replay's question.
            let parsed = KnownFailures::parse(&tree.text(&path)?, &path, &|_| true);
            let parsed = parsed.map_err(|error| ReviewError::File {
                tree: tree.name.clone(),
                path: path.clone(),
                what: error.to_string(),
                remedy: "see the entries in CONTRIBUTING.md".to_owned(),
            })?;
            Ok(parsed.entries().to_vec())
        };
        Ok(Known { before: entries(base)?, after: entries(head)? })
    }

    /// Every name that entries give a contract.
    pub fn contracts(&self) -> impl Iterator<Item = &str> {
        self.before.iter().chain(&self.after).map(|entry| entry.contract.as_str())
    }

    /// Changes of the entries of one folder of cases, whose own places begin with `cases`; those of the
    /// entries begin with `section`.
    pub fn compare(
        &self,
        record: &mut Record,
        (section, cases): (&str, &str),
        was: &str,
        is: &str,
    ) {
        let of = |side: &[KnownFailure], name: &str, case: &dyn Fn(&str) -> String| {
            let own = side.iter().filter(|entry| entry.contract == name);
            own.map(|entry| (case(&entry.case), entry.clone())).collect()
        };
        let followed = |case: &str| {
            let place = record.new_name(&format!("{cases}.{case}"));
            place[cases.len() + 1..].to_owned()
        };
        let before: BTreeMap<String, KnownFailure> = of(&self.before, was, &followed);
        let after: BTreeMap<String, KnownFailure> = of(&self.after, is, &str::to_owned);
        for (case, old) in &before {
            match after.get(case) {
                Some(new) => both(record, (section, case), old, new),
                None => {
                    let case = &old.case;
                    let says = format!("{case}.yaml may no longer fail `{}`", old.clause);
                    let clause = format!("{section}.{case}");
                    record.gone(&clause, Class::Tightened, says, old.clause.clone());
                }
            }
        }
        for (case, new) in after.iter().filter(|(case, _)| !before.contains_key(*case)) {
            let KnownFailure { clause, issue, expires, .. } = new;
            let end = expires.map_or("without end".to_owned(), |day| format!("until {day}"));
            let says = format!("{case}.yaml may now fail `{clause}` {end}; {issue}");
            record.new_at(&format!("{section}.{case}"), Class::Loosened, says, new.clause.clone());
        }
    }
}

fn both(
    record: &mut Record,
    (section, case): (&str, &str),
    old: &KnownFailure,
    new: &KnownFailure,
) {
    let KnownFailure { contract: _, case: old_case, clause: failed, issue, expires } = old;
    let clause = &format!("{section}.{case}");
    if old_case != case {
        record.renamed(section, old_case, case);
    }
    if !record.is_renamed(failed, &new.clause) {
        record.either(clause, &format!("the clause {case}.yaml may fail"), failed, &new.clause);
    }
    if *issue != new.issue {
        let says = format!("{case}.yaml: issue {issue} → {}", new.issue);
        let values = (Some(issue.clone()), Some(new.issue.clone()));
        record.push(clause, Class::Neutral, says, values);
    }
    if *expires != new.expires {
        // Nothing written never ends here; a replay refuses it, and a base may predate the rule.
        let day = |entry: &KnownFailure| entry.expires.map(|day| day.to_string());
        let shown = |entry: &KnownFailure| day(entry).unwrap_or_else(|| "no day".to_owned());
        let sooner = new.expires.is_some_and(|new| expires.is_none_or(|old| new < old));
        let class = if sooner { Class::Tightened } else { Class::Loosened };
        let says = format!("{case}.yaml may fail until {} → {}", shown(old), shown(new));
        record.push(clause, class, says, (day(old), day(new)));
    }
}
