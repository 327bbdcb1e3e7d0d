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

/// The fields of a row.
type Line = Vec<String>;
/// What a row is compared by, to what it says.
type Rows<T> = BTreeMap<(String, String), T>;

/// What an entry may spill.
struct Excuse {
    entry: String,
    bytes: String,
    reason: String,
}

/// What an entry costs.
struct Costs {
    entry: String,
    columns: Line,
}

/// The tables of one tree; each row under its contract or module and a name within.
#[derive(Default)]
struct Side {
    /// Contract and mutant to the edit.
    edits: Rows<String>,
    /// Contract and place to the reason.
    equivalents: Rows<String>,
    /// Contract and entry to the excuse.
    spills: Rows<Excuse>,
    /// Contract and entry to what it costs.
    resources: Rows<Costs>,
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
    /// Reads them; the names are those of each tree's contracts.
    pub fn read(
        base: &'t Tree<'t>,
        head: &'t Tree<'t>,
        (old_names, new_names): (&BTreeSet<&str>, &BTreeSet<&str>),
    ) -> Result<Tables<'t>, ReviewError> {
        let all = old_names.union(new_names).copied().collect();
        let (before, after) = (Side::of(base, old_names, &all)?, Side::of(head, new_names, &all)?);
        Ok(Tables { base, head, before, after })
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
        for (_, old, new) in paired(&before.spills, &after.spills, was, is) {
            spill(record, old, new);
        }
        self.costs(record, was, is);
        let scores = paired(&before.scores, &after.scores, was, is);
        for (_, old, new) in scores {
            score(record, old, new);
        }
    }

    /// Changes of the rows that belong to no contract.
    pub fn of_nobody(&self, record: &mut Record) {
        for (_, old, new) in paired(&self.before.spills, &self.after.spills, "", "") {
            spill(record, old, new);
        }
        for (place, old, new) in paired(&self.before.equivalents, &self.after.equivalents, "", "") {
            equivalent(record, place, old, new);
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
        for (_, old, new) in paired(&self.before.resources, &self.after.resources, was, is) {
            let Some(Costs { entry, .. }) = new.or(old) else { continue };
            let clause = &format!("resources.{entry}");
            let column = |row: &Costs, at: usize| row.columns.get(at).cloned().unwrap_or_default();
            match (old, new) {
                (Some(old), Some(new)) => {
                    for (at, what) in TOLD {
                        let (old, new) = (column(old, at), column(new, at));
                        told.extend((old != new).then(|| format!("{entry} {what} {old} → {new}")));
                    }
                    for (at, what) in SPILLED {
                        let what = format!("{what} of {entry}");
                        amount(record, clause, &what, &column(old, at), &column(new, at));
                    }
                }
                (Some(old), None) if ships(self.head, is, entry) => {
                    let says = format!("what {entry} costs is no longer on record");
                    record.gone(clause, Class::Loosened, says, old.columns.join(" "));
                }
                (None, Some(new)) if ships(self.base, was, entry) => {
                    let says = format!("what {entry} costs is now on record");
                    record.new_at(clause, Class::Tightened, says, new.columns.join(" "));
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
fn lines(tree: &Tree<'_>, path: &str) -> Result<Vec<Line>, ReviewError> {
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
    /// Of a tree with these contracts; `all` are the names in both trees.
    fn of(
        tree: &Tree<'_>,
        contracts: &BTreeSet<&str>,
        all: &BTreeSet<&str>,
    ) -> Result<Side, ReviewError> {
        let mut side = Side::default();
        let field = |row: &[String], at: usize| row.get(at).cloned().unwrap_or_default();
        for row in lines(tree, MUTANTS)? {
            let edit = row.get(3..).unwrap_or_default().join(" | ");
            // The file a text stands in is no part of the edit. Two rows of one id are both.
            let old = side.edits.entry((field(&row, 0), field(&row, 1))).or_default();
            *old = if old.is_empty() { edit } else { format!("{old}; {edit}") };
        }
        for row in lines(tree, EQUIVALENTS)? {
            let (owner, place) = (field(&row, 0), row.get(1..4).unwrap_or_default().join(" | "));
            let reason = row.get(4..).unwrap_or_default().join(" ");
            let key = match contracts.contains(owner.as_str()) {
                true => (owner, place),
                false => (String::new(), format!("{owner} | {place}")),
            };
            // Two rows of one place are both.
            let old = side.equivalents.entry(key).or_default();
            *old = if old.is_empty() { reason } else { format!("{old}; {reason}") };
        }
        for row in lines(tree, SPILLS)? {
            let (entry, bytes) = (field(&row, 0), field(&row, 1));
            let owners = contracts.iter().filter(|name| entry.starts_with(**name));
            let owner = owners.max_by_key(|name| name.len()).copied().unwrap_or_default();
            let reason = row.get(2..).unwrap_or_default().join(" ");
            let key = (owner.to_owned(), within(all, &entry));
            let bytes = match side.spills.get(&key) {
                Some(other) => format!("{}; {bytes}", other.bytes),
                None => bytes,
            };
            side.spills.insert(key, Excuse { entry, bytes, reason });
        }
        for row in lines(tree, RESOURCES)?.into_iter().filter(|row| field(row, 0) != "module") {
            let (module, entry) = (field(&row, 0), field(&row, 1));
            let columns = row.get(2..).unwrap_or_default().to_vec();
            let key = (module, within(all, &entry));
            side.resources.insert(key, Costs { entry, columns });
        }
        for row in lines(tree, SCORES)? {
            side.scores.extend(scored(&row.join("\t")));
        }
        Ok(side)
    }
}

/// An entry's name without its contract's, which may be another at the head.
fn within(names: &BTreeSet<&str>, entry: &str) -> String {
    let owner = names.iter().filter(|name| entry.starts_with(**name)).max_by_key(|name| name.len());
    entry[owner.map_or(0, |name| name.len())..].to_owned()
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

fn spill(record: &mut Record, old: Option<&Excuse>, new: Option<&Excuse>) {
    let Some(Excuse { entry, .. }) = new.or(old) else { return };
    let clause = &format!("spills.{entry}");
    match (old, new) {
        (None, Some(Excuse { bytes, reason, .. })) => {
            let says = format!("{entry} may now spill {bytes} bytes: {reason}");
            record.new_at(clause, Class::Loosened, says, bytes.clone());
        }
        (Some(Excuse { bytes, .. }), None) => {
            let says = format!("{entry} may no longer spill {bytes} bytes");
            record.gone(clause, Class::Tightened, says, bytes.clone());
        }
        (Some(old), Some(new)) => {
            amount(record, clause, &format!("bytes {entry} may spill"), &old.bytes, &new.bytes);
            if old.reason != new.reason {
                let says = format!("why {entry} may spill: `{}` → `{}`", old.reason, new.reason);
                let values = (Some(old.reason.clone()), Some(new.reason.clone()));
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
