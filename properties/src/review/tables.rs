//! Tables beside the contracts, row by row: how wrong kernels are made, which edits of PTX count as no
//! other kernel, what may spill, what entries cost, how many wrong kernels are noticed. A row that asks
//! less of somebody is looser.

use super::change::Class;
use super::git::ReviewError;
use super::scores::{self, Scored};
use super::sides::{Record, Renames, shown};
use super::tree::Tree;
use contracts::format::{Mutant, Named};
use std::collections::{BTreeMap, BTreeSet};

const SOURCES: &str = "kernels/cuda";
const MUTANTS: &str = "kernels/cuda/mutants.tsv";
const EQUIVALENTS: &str = "kernels/cuda/equivalent.tsv";
const SPILLS: &str = "kernels/cuda/spills.tsv";
const RESOURCES: &str = "kernels/ptx/resources.tsv";

/// The fields of a row.
type Line = Vec<String>;
/// What a row is compared by, to what it says.
type Rows<T> = BTreeMap<(String, String), T>;

/// One edit of a source that makes a wrong kernel.
#[derive(PartialEq)]
struct Edit {
    file: String,
    /// What stands there exactly once.
    text: String,
    /// What stands in its place.
    by: String,
}

/// An edit of PTX that counts as no other kernel.
struct Declared {
    /// The source, and the line of it that the edit belongs to.
    file: String,
    line: String,
    /// The edit with registers blanked.
    shape: String,
    reason: String,
}

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
    /// Contract and mutant to its edits.
    edits: Rows<Vec<Edit>>,
    /// Contract and place to what is declared.
    equivalents: Rows<Declared>,
    /// Contract and entry to the excuse.
    spills: Rows<Excuse>,
    /// Contract and entry to what it costs.
    resources: Rows<Costs>,
    /// Contract to how many wrong kernels were noticed.
    scores: Rows<Scored>,
}

/// The tables of both trees.
pub struct Tables<'t> {
    base: &'t Tree<'t>,
    head: &'t Tree<'t>,
    before: Side,
    after: Side,
}

impl<'t> Tables<'t> {
    /// Reads them; the names are those of each tree's contracts. A row that still has the name its
    /// contract has in the other tree is the contract's.
    pub fn read(
        base: &'t Tree<'t>,
        head: &'t Tree<'t>,
        (old_names, new_names): (&BTreeSet<&str>, &BTreeSet<&str>),
        renames: &Renames,
    ) -> Result<Tables<'t>, ReviewError> {
        let all = old_names.union(new_names).copied().collect();
        let back = renames.iter().map(|(was, is)| (is.clone(), was.clone())).collect();
        let before = Side::of(base, &Names { own: old_names, others: &back, all: &all })?;
        let after = Side::of(head, &Names { own: new_names, others: renames, all: &all })?;
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
                self.edits(record, id, old, new);
            }
        }
        self.equivalents(record, was, is);
        for (_, old, new) in paired(&before.spills, &after.spills, was, is) {
            spill(record, old, new);
        }
        self.costs(record, was, is);
        let scores = paired(&before.scores, &after.scores, was, is);
        for (_, old, new) in scores {
            scores::compare(record, old, new);
        }
    }

    /// Changes of the rows that belong to no contract.
    pub fn of_nobody(&self, record: &mut Record) {
        for (_, old, new) in paired(&self.before.spills, &self.after.spills, "", "") {
            spill(record, old, new);
        }
        self.equivalents(record, "", "");
        let (old, new) = (measured(self.base), measured(self.head));
        if old != new {
            let says = format!("what entries cost was measured by `{old}`, is by `{new}`");
            record.push("resources.measured", Class::Neutral, says, (Some(old), Some(new)));
        }
    }

    /// Whether a text went with its code from one file to another: only the one had it, and only the other
    /// has it. Anything else points at other code.
    fn moved(&self, text: &str, was: &str, is: &str) -> bool {
        let has = |tree: &Tree<'_>, file: &str| {
            let path = format!("{SOURCES}/{file}");
            tree.has(&path) && tree.text(&path).is_ok_and(|source| source.contains(text))
        };
        let went = has(self.base, was) && !has(self.head, was);
        was == is || (went && has(self.head, is) && !has(self.base, is))
    }

    fn edits(
        &self,
        record: &mut Record,
        id: &str,
        old: Option<&Vec<Edit>>,
        new: Option<&Vec<Edit>>,
    ) {
        let none = Vec::new();
        let (old, new) = (old.unwrap_or(&none), new.unwrap_or(&none));
        let same = |(a, b): (&Edit, &Edit)| {
            let text = a.text.replace("\\n", "\n");
            (&a.text, &a.by) == (&b.text, &b.by) && self.moved(&text, &a.file, &b.file)
        };
        if old.len() == new.len() && old.iter().zip(new).all(same) {
            return;
        }
        let text = |edits: &[Edit], with_file: bool| -> String {
            let one = |Edit { file, text, by }: &Edit| match with_file {
                true => format!("{file} | {text} | {by}"),
                false => format!("{text} | {by}"),
            };
            edits.iter().map(one).collect::<Vec<_>>().join("; ")
        };
        // The files are told where nothing else differs.
        let with_files = text(old, false) == text(new, false);
        let (before, after) = (text(old, with_files), text(new, with_files));
        let clause = &format!("mutants.{id}");
        if !old.is_empty() {
            let says = format!("the wrong kernel {id} made by `{before}` need no longer be caught");
            record.gone(clause, Class::Loosened, says, before);
        }
        if !new.is_empty() {
            let says = format!("the wrong kernel {id} made by `{after}` must now be caught");
            record.new_at(clause, Class::Tightened, says, after);
        }
    }

    fn equivalents(&self, record: &mut Record, was: &str, is: &str) {
        let rows = paired(&self.before.equivalents, &self.after.equivalents, was, is);
        let mut added: Vec<(&str, &Declared)> = Vec::new();
        let mut removed = Vec::new();
        for (place, old, new) in rows {
            match (old, new) {
                (Some(old), Some(new)) => reworded(record, place, old, new),
                (Some(old), None) => removed.push((place, old)),
                (None, Some(new)) => added.push((place, new)),
                (None, None) => {}
            }
        }
        for (place, old) in removed {
            let follows = |(_, new): &(&str, &Declared)| {
                (&new.line, &new.shape) == (&old.line, &old.shape)
                    && self.moved(&old.line, &old.file, &new.file)
            };
            if let Some(at) = added.iter().position(follows) {
                let (new_place, new) = added.remove(at);
                record.alias(&declared_at(place), &declared_at(new_place));
                reworded(record, new_place, old, new);
                continue;
            }
            let says = format!("the edit `{place}` is no longer declared to change nothing");
            record.gone(&declared_at(place), Class::Tightened, says, old.reason.clone());
        }
        for (place, Declared { reason, .. }) in added {
            let says = format!("the edit `{place}` is declared to change nothing: {reason}");
            record.new_at(&declared_at(place), Class::Loosened, says, reason.clone());
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
                    record.alias(&format!("resources.{}", old.entry), clause);
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
            record.alias(&format!("resources.{was}"), &format!("resources.{is}"));
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

/// Names of contracts, to tell whose a row is.
struct Names<'n> {
    /// Of the tree's own.
    own: &'n BTreeSet<&'n str>,
    /// What contracts of the other tree are called in this one, where that is something else.
    others: &'n Renames,
    /// Of both trees.
    all: &'n BTreeSet<&'n str>,
}

impl Names<'_> {
    /// The contract that a row names, by its name in this tree; `None` where neither tree has it. Rows of
    /// a contract that is gone went with it, and are not newly anybody else's.
    fn owner<'o>(&'o self, named: &'o str) -> Option<&'o str> {
        let renamed = || self.others.get(named).map(String::as_str);
        let known = || self.all.contains(named).then_some(named);
        if self.own.contains(named) { Some(named) } else { renamed().or_else(known) }
    }
}

impl Side {
    fn of(tree: &Tree<'_>, names: &Names<'_>) -> Result<Side, ReviewError> {
        let mut side = Side { scores: scores::read(tree)?, ..Side::default() };
        let Names { all, .. } = names;
        let field = |row: &[String], at: usize| row.get(at).cloned().unwrap_or_default();
        for row in lines(tree, MUTANTS)? {
            let owner = field(&row, 0);
            let owner = names.owner(&owner).unwrap_or(&owner).to_owned();
            let by = row.get(4..).unwrap_or_default().join(" | ");
            let edit = Edit { file: field(&row, 2), text: field(&row, 3), by };
            // Two rows of one id are both.
            side.edits.entry((owner, field(&row, 1))).or_default().push(edit);
        }
        for row in lines(tree, EQUIVALENTS)? {
            let (owner, place) = (field(&row, 0), row.get(1..4).unwrap_or_default().join(" | "));
            let key = match names.owner(&owner) {
                Some(owner) => (owner.to_owned(), place),
                None => (String::new(), format!("{owner} | {place}")),
            };
            let [file, line, shape] = [1, 2, 3].map(|at| field(&row, at));
            let mut reason = row.get(4..).unwrap_or_default().join(" ");
            // Two rows of one place are both.
            if let Some(other) = side.equivalents.get(&key) {
                reason = format!("{}; {reason}", other.reason);
            }
            side.equivalents.insert(key, Declared { file, line, shape, reason });
        }
        for row in lines(tree, SPILLS)? {
            let (entry, bytes) = (field(&row, 0), field(&row, 1));
            let owner = longest(all, &entry).and_then(|name| names.owner(name)).unwrap_or_default();
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
        Ok(side)
    }
}

/// The longest name an entry begins with.
fn longest<'n>(names: &BTreeSet<&'n str>, entry: &str) -> Option<&'n str> {
    let own = names.iter().copied().filter(|name| entry.starts_with(name));
    own.max_by_key(|name| name.len())
}

/// An entry's name without its contract's, which may be another at the head.
fn within(names: &BTreeSet<&str>, entry: &str) -> String {
    let owner = longest(names, entry);
    entry[owner.map_or(0, |name| name.len())..].to_owned()
}

/// Another reason for what was declared before.
fn reworded(record: &mut Record, place: &str, old: &Declared, new: &Declared) {
    let (old, new) = (&old.reason, &new.reason);
    if old != new {
        let says = format!("why `{place}` changes nothing: `{old}` → `{new}`");
        let values = (Some(old.clone()), Some(new.clone()));
        record.push(&declared_at(place), Class::Neutral, says, values);
    }
}

/// What a history calls a declaration.
fn declared_at(place: &str) -> String {
    format!("equivalent.{:08x}", digest(place))
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
            record.alias(&format!("spills.{}", old.entry), clause);
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
