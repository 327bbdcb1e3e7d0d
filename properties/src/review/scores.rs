//! How many wrong kernels are noticed, as `corpora/mutation.md` has it on record: of the first sample, of
//! the second, of those the contracts name. A smaller share, and one of fewer, is looser.

use super::change::Class;
use super::git::ReviewError;
use super::sides::{Record, number};
use super::tree::Tree;
use std::collections::BTreeMap;

const SCORES: &str = "corpora/mutation.md";

/// What is on record of one contract.
#[derive(Default)]
pub struct Scored {
    /// Of the sample that survivors are worked off of.
    first: Option<Share>,
    /// Of one by a seed that nobody saw.
    second: Option<Share>,
    /// Of the wrong kernels the contract names.
    named: Option<Share>,
}

/// A share of so many.
#[derive(Clone, Copy, PartialEq)]
struct Share {
    points: f64,
    of: f64,
}

impl Share {
    fn text(self) -> String {
        format!("{} % of {}", number(self.points), number(self.of))
    }
}

/// Every row of the record, by its contract.
pub fn read(tree: &Tree<'_>) -> Result<BTreeMap<(String, String), Scored>, ReviewError> {
    let text = if tree.has(SCORES) { tree.text(SCORES)? } else { String::new() };
    let mut head: Vec<String> = Vec::new();
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let Some(row) = line.strip_prefix('|') else { continue };
        let cells: Vec<&str> = row.trim_end().trim_end_matches('|').split('|').collect();
        let cells: Vec<&str> = cells.into_iter().map(str::trim).collect();
        if cells.contains(&"score") {
            head = cells.into_iter().map(str::to_owned).collect();
        } else if let Some((name, scored)) = scored(&head, &cells) {
            all.insert((name, String::new()), scored);
        }
    }
    Ok(all)
}

/// A row, by the heads of its columns: `| name | family | 84.9 % | 124 | 22 | …`.
fn scored(head: &[String], cells: &[&str]) -> Option<(String, Scored)> {
    let cell = |name: &str| {
        let at = head.iter().position(|head| head == name)?;
        cells.get(at).copied()
    };
    let count = |name: &str| cell(name)?.parse::<f64>().ok();
    let points: f64 = cell("score")?.strip_suffix('%')?.trim().parse().ok()?;
    let of = count("killed").unwrap_or(0.0) + count("survived").unwrap_or(0.0);
    let scored = Scored {
        first: Some(Share { points, of }),
        second: cell("second sample").and_then(second),
        named: cell("named killed").and_then(named),
    };
    Some((cells.first()?.to_string(), scored))
}

/// `84.1 % of 88 (seed)`.
fn second(cell: &str) -> Option<Share> {
    let (points, rest) = cell.split_once(" % of ")?;
    let of = rest.split(' ').next()?.parse().ok()?;
    Some(Share { points: points.parse().ok()?, of })
}

/// `9 of 11`, in points of a hundred with one decimal.
fn named(cell: &str) -> Option<Share> {
    let (killed, of) = cell.split_once(" of ")?;
    let (killed, of): (f64, f64) = (killed.parse().ok()?, of.parse().ok()?);
    Some(Share { points: (1000.0 * killed / of.max(1.0)).round() / 10.0, of })
}

/// Changes of one contract's row.
pub fn compare(record: &mut Record, old: Option<&Scored>, new: Option<&Scored>) {
    let of = |side: Option<&Scored>, which: fn(&Scored) -> Option<Share>| side.and_then(which);
    let first: fn(&Scored) -> Option<Share> = |scored| scored.first;
    share(record, ("score", "sample"), "", of(old, first), of(new, first));
    // With the whole row all of it comes and goes.
    if let (Some(old), Some(new)) = (old, new) {
        let (clauses, words) = (("second", "second_sample"), " in the second sample");
        share(record, clauses, words, old.second, new.second);
        share(record, ("named", "named_sample"), " of the named ones", old.named, new.named);
    }
}

/// One share and what it is of; `words` tell it from the others.
fn share(
    record: &mut Record,
    (score, sample): (&str, &str),
    words: &str,
    old: Option<Share>,
    new: Option<Share>,
) {
    let (clause, sample) = (&format!("mutation.{score}"), &format!("mutation.{sample}"));
    match (old, new) {
        (Some(old), None) => {
            let text = old.text();
            let says = format!(
                "how many wrong kernels are noticed{words} ({text}) is no longer on record"
            );
            record.gone(clause, Class::Loosened, says, text);
        }
        (None, Some(new)) => {
            let text = new.text();
            let says =
                format!("how many wrong kernels are noticed{words} is now on record: {text}");
            record.new_at(clause, Class::Tightened, says, text);
        }
        (Some(old), Some(new)) => {
            let class = |less: bool| if less { Class::Loosened } else { Class::Tightened };
            if old.points != new.points {
                let (before, after) = (old.text(), new.text());
                let says = format!("wrong kernels that must be noticed{words}: {before} → {after}");
                let values = (Some(before), Some(after));
                record.push(clause, class(new.points < old.points), says, values);
            }
            if old.of != new.of {
                let (before, after) = (number(old.of), number(new.of));
                let says =
                    format!("wrong kernels the score{words} on record is of: {before} → {after}");
                record.push(sample, class(new.of < old.of), says, (Some(before), Some(after)));
            }
        }
        (None, None) => {}
    }
}
