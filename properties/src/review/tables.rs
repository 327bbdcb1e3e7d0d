//! Tables beside the contracts, row by row: how wrong kernels are made, which edits of PTX count as no
//! other kernel, what may spill, what entries cost, how many wrong kernels are noticed. A row that asks
//! less of somebody is looser.

use super::change::Class;
use super::git::ReviewError;
use super::sides::{Record, number, shown};
use super::tree::Tree;
use contracts::format::{Mutant, Named};
use std::collections::{BTreeMap, BTreeSet};

const MUTANTS: &str = "kernels/cuda/mutants.tsv";
const EQUIVALENTS: &str = "kernels/cuda/equivalent.tsv";
const SPILLS: &str = "kernels/cuda/spills.tsv";
const RESOURCES: &str = "kernels/ptx/resources.tsv";
const SCORES: &str = "corpora/mutation.md";

/// What a row is compared by, to what it says.
type Rows<T> = BTreeMap<(String, String), T>;

/// The tables of one tree; each row under its contract or module and a name within.
#[derive(Default)]
struct Side {
    /// Contract and mutant to the edit.
    edits: Rows<String>,
    /// Contract and place to the reason.
    equivalents: Rows<String>,
    /// Contract and entry to the bytes, and the reason.
    spills: Rows<(String, String)>,
    /// Module and entry to the columns.
    resources: Rows<Vec<String>>,
    /// Contract to the share that was noticed, and how many were tried.
    scores: Rows<(f64, f64)>,
}

/// The tables of both trees.
pub struct Tables<'t> {
    base: &'t Tree<'t>,
    head: &'t Tree<'t>,
    before: Side,
    after: Side,
}

impl<'t> Tables<'t> {
    /// Reads what differs. `contracts` are the names an entry of a kernel begins with.
    pub fn read(
        base: &'t Tree<'t>,
        head: &'t Tree<'t>,
        contracts: &BTreeSet<String>,
    ) -> Result<Tables<'t>, ReviewError> {
        let side = |tree: &Tree<'_>| -> Result<Side, ReviewError> {
            // What both trees have alike is read of neither.
            let rows = |path: &str| match base.same(path, head, path) {
                true => Ok(Vec::new()),
                false => lines(tree, path),
            };
            Side::of(&rows, contracts)
        };
        Ok(Tables { base, head, before: side(base)?, after: side(head)? })
    }

    /// Changes of the rows of one contract; `mutants` are its wrong kernels on both sides.
    pub fn compare(
        &self,
        record: &mut Record,
        (was, is): (&str, &str),
        (old_mutants, new_mutants): (&Named<Mutant>, &Named<Mutant>),
    ) {
        let (before, after) = (&self.before, &self.after);
        for (id, old, new) in paired(&before.edits, &after.edits, was, is) {
            // A mutant that came or went did so in the contract, and shows there.
            if old_mutants.contains_key(id) && new_mutants.contains_key(id) {
                edit(record, id, old, new);
            }
        }
        for (place, old, new) in paired(&before.equivalents, &after.equivalents, was, is) {
            equivalent(record, place, old, new);
        }
        for (entry, old, new) in paired(&before.spills, &after.spills, was, is) {
            spill(record, entry, old, new);
        }
        self.costs(record, was, is);
        let scores = paired(&before.scores, &after.scores, was, is);
        for (_, old, new) in scores {
            score(record, old, new);
        }
    }

    /// Changes of the rows that belong to no contract.
    pub fn of_nobody(&self, record: &mut Record) {
        for (entry, old, new) in paired(&self.before.spills, &self.after.spills, "", "") {
            spill(record, entry, old, new);
        }
        let (old, new) = (measured(self.base), measured(self.head));
        if old != new {
            let says = format!("what entries cost was measured by `{old}`, is by `{new}`");
            record.push("resources.measured", Class::Neutral, says, (Some(old), Some(new)));
        }
    }

    /// Registers and shared memory are costs a reader is told of; what spills and what is on the stack
    /// is what excuses are about.
    fn costs(&self, record: &mut Record, was: &str, is: &str) {
        const TOLD: [(usize, &str); 2] = [(0, "registers"), (1, "shared bytes")];
        const SPILLED: [(usize, &str); 3] =
            [(2, "bytes of stack"), (3, "bytes spilled"), (4, "bytes filled again")];
        let mut told = Vec::new();
        for (entry, old, new) in paired(&self.before.resources, &self.after.resources, was, is) {
            let clause = &format!("resources.{entry}");
            let column = |row: &[String], at: usize| row.get(at).cloned().unwrap_or_default();
            match (old, new) {
                (Some(old), Some(new)) => {
                    for (at, what) in
                        TOLD.into_iter().filter(|(at, _)| column(old, *at) != column(new, *at))
                    {
                        told.push(format!(
                            "{entry} {what} {} → {}",
                            column(old, at),
                            column(new, at)
                        ));
                    }
                    for (at, what) in SPILLED {
                        amount(
                            record,
                            clause,
                            &format!("{what} of {entry}"),
                            &column(old, at),
                            &column(new, at),
                        );
                    }
                }
                (Some(old), None) if ships(self.head, is, entry) => {
                    let says = format!("what {entry} costs is no longer on record");
                    record.gone(clause, Class::Loosened, says, old.join(" "));
                }
                (None, Some(new)) if ships(self.base, was, entry) => {
                    let says = format!("what {entry} costs is now on record");
                    record.new_at(clause, Class::Tightened, says, new.join(" "));
                }
                (Some(_), None) => told.push(format!("{entry} is gone")),
                (None, Some(_)) => told.push(format!("{entry} is new")),
                (None, None) => {}
            }
        }
        if !told.is_empty() {
            let says = format!("costs: {}", told.join(", "));
            record.push(&format!("resources.{is}"), Class::Neutral, says, (None, None));
        }
    }
}

/// The rows of a contract on both sides, by their name within it.
fn paired<'s, T>(
    before: &'s Rows<T>,
    after: &'s Rows<T>,
    was: &str,
    is: &str,
) -> Vec<(&'s str, Option<&'s T>, Option<&'s T>)> {
    let own = |rows: &'s Rows<T>, contract: &str| -> BTreeMap<&'s str, &'s T> {
        let own = rows.iter().filter(|((name, _), _)| name == contract);
        own.map(|((_, name), row)| (name.as_str(), row)).collect()
    };
    let (before, after) = (own(before, was), own(after, is));
    let names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    names
        .into_iter()
        .map(|name| (name, before.get(name).copied(), after.get(name).copied()))
        .collect()
}

/// The rows of a table, as their fields; none where there is no table.
fn lines(tree: &Tree<'_>, path: &str) -> Result<Vec<Vec<String>>, ReviewError> {
    if !tree.has(path) {
        return Ok(Vec::new());
    }
    let text = tree.text(path)?;
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    Ok(rows.map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// By what the costs were measured, as their table says.
fn measured(tree: &Tree<'_>) -> String {
    let text =
        if tree.has(RESOURCES) { tree.text(RESOURCES).unwrap_or_default() } else { String::new() };
    text.lines().next().unwrap_or_default().trim_start_matches(['#', ' ']).to_owned()
}

impl Side {
    fn of(
        rows: &dyn Fn(&str) -> Result<Vec<Vec<String>>, ReviewError>,
        contracts: &BTreeSet<String>,
    ) -> Result<Side, ReviewError> {
        let mut side = Side::default();
        let field = |row: &[String], at: usize| row.get(at).cloned().unwrap_or_default();
        for row in rows(MUTANTS)? {
            let edit = row.get(3..).unwrap_or_default().join(" | ");
            // The file a text stands in is no part of the edit. Two rows of one id are both.
            let old = side.edits.entry((field(&row, 0), field(&row, 1))).or_default();
            *old = if old.is_empty() { edit } else { format!("{old}; {edit}") };
        }
        for row in rows(EQUIVALENTS)? {
            let place = row.get(1..4).unwrap_or_default().join(" | ");
            side.equivalents
                .insert((field(&row, 0), place), row.get(4..).unwrap_or_default().join(" "));
        }
        for row in rows(SPILLS)? {
            let (entry, reason) = (field(&row, 0), row.get(2..).unwrap_or_default().join(" "));
            let owner = contracts.iter().filter(|name| entry.starts_with(name.as_str()));
            let owner = owner.max_by_key(|name| name.len()).cloned().unwrap_or_default();
            side.spills.insert((owner, entry), (field(&row, 1), reason));
        }
        for row in rows(RESOURCES)?.into_iter().filter(|row| field(row, 0) != "module") {
            let columns = row.get(2..).unwrap_or_default().to_vec();
            side.resources.insert((field(&row, 0), field(&row, 1)), columns);
        }
        for row in rows(SCORES)? {
            side.scores.extend(scored(&row.join("\t")));
        }
        Ok(side)
    }
}

/// A row of the table of scores: `| contract | family | 84.9 % | killed | survived | …`.
fn scored(line: &str) -> Option<((String, String), (f64, f64))> {
    let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let score = cells.get(2)?.strip_suffix('%')?.trim().parse().ok()?;
    let count = |at: usize| cells.get(at).and_then(|cell| cell.parse::<f64>().ok()).unwrap_or(0.0);
    Some((((*cells.first()?).to_owned(), String::new()), (score, count(3) + count(4))))
}

fn edit(record: &mut Record, id: &str, old: Option<&String>, new: Option<&String>) {
    if old == new {
        return;
    }
    let clause = &format!("mutants.{id}");
    if let Some(old) = old {
        let says = format!("the wrong kernel {id} made by `{old}` need no longer be caught");
        record.gone(clause, Class::Loosened, says, old.clone());
    }
    if let Some(new) = new {
        let says = format!("the wrong kernel {id} made by `{new}` must now be caught");
        record.new_at(clause, Class::Tightened, says, new.clone());
    }
}

fn equivalent(record: &mut Record, place: &str, old: Option<&String>, new: Option<&String>) {
    let clause = &format!("equivalent.{:08x}", digest(place));
    match (old, new) {
        (None, Some(why)) => {
            let says = format!("the edit `{place}` is declared to change nothing: {why}");
            record.new_at(clause, Class::Loosened, says, why.clone());
        }
        (Some(why), None) => {
            let says = format!("the edit `{place}` is no longer declared to change nothing");
            record.gone(clause, Class::Tightened, says, why.clone());
        }
        (Some(old), Some(new)) if old != new => {
            let says = format!("why `{place}` changes nothing: `{old}` → `{new}`");
            record.push(clause, Class::Neutral, says, (Some(old.clone()), Some(new.clone())));
        }
        _ => {}
    }
}

/// A name for a place that history can write: 32 bits of FNV-1a.
fn digest(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

type Excuse = (String, String);

fn spill(record: &mut Record, entry: &str, old: Option<&Excuse>, new: Option<&Excuse>) {
    let clause = &format!("spills.{entry}");
    match (old, new) {
        (None, Some((bytes, why))) => {
            let says = format!("{entry} may now spill {bytes} bytes: {why}");
            record.new_at(clause, Class::Loosened, says, bytes.clone());
        }
        (Some((bytes, _)), None) => {
            let says = format!("{entry} may no longer spill {bytes} bytes");
            record.gone(clause, Class::Tightened, says, bytes.clone());
        }
        (Some((old, why)), Some((new, why_now))) => {
            amount(record, clause, &format!("bytes {entry} may spill"), old, new);
            if why != why_now {
                let says = format!("why {entry} may spill: `{why}` → `{why_now}`");
                let values = (Some(why.clone()), Some(why_now.clone()));
                record.push(clause, Class::Neutral, says, values);
            }
        }
        (None, None) => {}
    }
}

fn score(record: &mut Record, old: Option<&(f64, f64)>, new: Option<&(f64, f64)>) {
    let clause = "mutation.score";
    let text = |(score, tried): &(f64, f64)| format!("{} % of {}", number(*score), number(*tried));
    match (old, new) {
        (Some(old), None) => {
            let says = format!(
                "how many wrong kernels are noticed ({}) is no longer on record",
                text(old)
            );
            record.gone(clause, Class::Loosened, says, text(old));
        }
        (None, Some(new)) => {
            let says =
                format!("how many wrong kernels are noticed is now on record: {}", text(new));
            record.new_at(clause, Class::Tightened, says, text(new));
        }
        (Some(old), Some(new)) => {
            for (class, lower) in
                [(Class::Loosened, new.0 < old.0), (Class::Tightened, new.0 > old.0)]
            {
                if lower {
                    let says = format!(
                        "wrong kernels that must be noticed: {} → {}",
                        text(old),
                        text(new)
                    );
                    record.push(clause, class, says, (Some(text(old)), Some(text(new))));
                }
            }
            let (old, new) = (old.1, new.1);
            if old != new {
                let class = if new < old { Class::Loosened } else { Class::Tightened };
                let says = format!(
                    "wrong kernels the score on record is of: {} → {}",
                    number(old),
                    number(new)
                );
                let values = (Some(number(old)), Some(number(new)));
                record.push("mutation.sample", class, says, values);
            }
        }
        (None, None) => {}
    }
}

/// A number that is looser where it is larger; another text is no number, and has to be read.
fn amount(record: &mut Record, clause: &str, what: &str, old: &str, new: &str) {
    match (old.trim().parse::<u64>(), new.trim().parse::<u64>()) {
        (Ok(old), Ok(new)) => record.coefficient(clause, what, old as f64, new as f64),
        _ => record.either(clause, what, &shown(&old), &shown(&new)),
    }
}

/// Whether a module has an entry.
fn ships(tree: &Tree<'_>, module: &str, entry: &str) -> bool {
    let text = tree.text(&format!("kernels/ptx/{module}.ptx")).unwrap_or_default();
    text.contains(&format!(".entry {entry}("))
}
