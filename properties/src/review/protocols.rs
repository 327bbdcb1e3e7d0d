//! Protocols of two trees, compared section by section as contracts of kernels are: their legality,
//! what is drawn, their invariants, their wrong transactions and their stored histories. The
//! destructurings name every field there is, so that a new one is decided on here.

use super::Both;
use super::change::{Class, ContractReview};
use super::corpora::{self, Folder};
use super::git::ReviewError;
use super::history::{ELSEWHERE, History};
use super::judges::is_contract;
use super::sides::{Pair, Record, pairs, shown};
use super::structure;
use super::tree::Tree;
use contracts::expr::Expr;
use contracts::format::{HistoryEntry, Named};
use contracts::protocol::{
    Drawn, Event, Failing, Limits, Protocol, ProtocolMutant, parse_protocol,
};
use std::collections::{BTreeMap, BTreeSet};

/// The protocols of one tree, by their file's stem.
type Files = BTreeMap<String, (String, Protocol)>;

/// The protocols of two trees.
pub struct Protocols {
    before: Files,
    after: Files,
}

/// Whether a file says that it is a protocol; one that cannot be read does not.
pub fn is_protocol(tree: &Tree<'_>, path: &str) -> bool {
    let Ok(text) = tree.text(path) else { return false };
    let read: Result<serde_json::Value, _> = contracts::load::parse_yaml(&text, path);
    read.is_ok_and(|value| value["kind"] == "protocol")
}

impl Protocols {
    /// Reads the protocols of both trees.
    ///
    /// # Errors
    /// When one does not load.
    pub fn read(base: &Tree<'_>, head: &Tree<'_>) -> Result<Protocols, ReviewError> {
        let old = |said: String| ReviewError::OldFormat { tree: base.name.clone(), said };
        Ok(Protocols {
            before: files(base).map_err(|error| old(error.to_string()))?,
            after: files(head).map_err(|error| ReviewError::File {
                tree: head.name.clone(),
                path: error.file,
                what: error.what,
                remedy: error.remedy,
            })?,
        })
    }

    /// Their names on either side.
    pub fn names(&self) -> BTreeSet<&str> {
        self.before.keys().chain(self.after.keys()).map(String::as_str).collect()
    }

    /// What their histories say at the base.
    pub fn told(&self) -> impl Iterator<Item = &HistoryEntry> {
        self.before.values().flat_map(|(_, protocol)| &protocol.history)
    }

    /// Those in which something changed.
    pub fn reviews(&self, both: &Both<'_>) -> Vec<ContractReview> {
        let Both { base, head, known, registry, elsewhere, said, .. } = both;
        let review = |name: &str| {
            let (before, after) = (self.before.get(name), self.after.get(name));
            let mut record = Record::default();
            match (before, after) {
                (Some((_, before)), Some((_, after))) => compare(&mut record, before, after),
                (Some((_, gone)), None) => one_sided(&mut record, gone, true),
                (None, Some((_, new))) => one_sided(&mut record, new, false),
                (None, None) => {}
            }
            if let (Some((from, _)), Some((to, _))) = (before, after)
                && from != to
            {
                let values = (Some(from.clone()), Some(to.clone()));
                record.push(
                    "contract",
                    Class::Neutral,
                    format!("moved from {from} to {to}"),
                    values,
                );
            }
            if before.is_some() && after.is_some() {
                registry.compare(&mut record, name, name);
            }
            let of = |tree| Folder { tree, name, contract: None };
            corpora::regressions(&mut record, "regressions", of(base), of(head));
            known.compare(&mut record, ("known_failures", "regressions"), name, name);
            let mut changes = record.into_changes();
            let (file, protocol) = after.or(before)?;
            match (before, after) {
                (Some((_, before)), Some((_, after))) => {
                    History::of(&before.history, &after.history).beside(said).judge(&mut changes);
                }
                // One that is gone has no history any more.
                _ => elsewhere.judge(&mut changes),
            }
            let file = if after.is_some() { file.clone() } else { ELSEWHERE.to_owned() };
            let (contract, version) = (name.to_owned(), protocol.version);
            let review =
                ContractReview { contract, file, version, changes, ..ContractReview::default() };
            (!review.changes.is_empty()).then_some(review)
        };
        self.names().into_iter().filter_map(review).collect()
    }
}

fn files(tree: &Tree<'_>) -> Result<Files, contracts::ContractError> {
    let mut files = Files::new();
    for path in tree.under("contracts").filter(|path| is_contract(path) && is_protocol(tree, path))
    {
        let Ok(text) = tree.text(path) else { continue };
        let protocol = parse_protocol(&text, path)?;
        let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".yaml");
        files.insert(stem.to_owned(), (path.to_owned(), protocol));
    }
    Ok(files)
}

fn one_sided(record: &mut Record, protocol: &Protocol, is_gone: bool) {
    let counts = format!(
        "{} events, {} invariants, {} wrong transactions",
        protocol.events.len(),
        protocol.invariants.len(),
        protocol.mutants.len()
    );
    let clause = format!("contracts.{}", protocol.contract);
    let says = |verb: &str| format!("protocol {} of {counts} {verb}", protocol.contract);
    match is_gone {
        true => record.gone(&clause, Class::Loosened, says("is gone"), counts.clone()),
        false => record.new_at(&clause, Class::Tightened, says("is new"), counts.clone()),
    }
}

fn compare(record: &mut Record, before: &Protocol, after: &Protocol) {
    let Protocol {
        contract,
        version,
        kind: _,
        summary,
        spec,
        dtypes,
        options,
        dims,
        states,
        events,
        invariants,
        limits,
        mutants,
        history,
    } = before;
    let (was, is) = (version.to_string(), after.version.to_string());
    for (clause, before, after) in [
        ("contract", contract, &after.contract),
        ("version", &was, &is),
        ("summary", summary, &after.summary),
        ("spec", spec, &after.spec),
    ] {
        reworded(record, clause, clause, before, after);
    }
    structure::words(record, "dtypes", dtypes, &after.dtypes);
    structure::words(record, "options", options, &after.options);
    named(record, "dims", dims, &after.dims, |record, clause, name, before, after| {
        drawn(record, clause, name, *before, *after);
    });
    named(record, "states", states, &after.states, |record, clause, name, before, after| {
        record.either(clause, &format!("how {name} refuses"), &before.refuses, &after.refuses);
    });
    named(record, "events", events, &after.events, event);
    named(
        record,
        "invariants",
        invariants,
        &after.invariants,
        |record, clause, name, before, after| {
            reworded(record, clause, name, before, after);
        },
    );
    draws(record, *limits, after.limits);
    named(record, "mutants", mutants, &after.mutants, mutant);
    for entry in history.iter().filter(|entry| !after.history.contains(entry)) {
        let says =
            format!("the history of version {} no longer says: {}", entry.version, entry.because);
        record.gone("history", Class::Neutral, says, entry.because.clone());
    }
}

/// Entries of a section: one less is looser, one more tighter.
fn named<T: serde::Serialize>(
    record: &mut Record,
    section: &str,
    before: &Named<T>,
    after: &Named<T>,
    both: impl Fn(&mut Record, &str, &str, &T, &T),
) {
    // An equal entry of another name is no other name of it: names are those of checks in Rust.
    for pair in pairs(before, after) {
        match pair {
            Pair::Gone(name, old) => gone(record, section, name, old),
            Pair::New(name, new) => new_at(record, section, name, new),
            Pair::Renamed(old, new) => {
                gone(record, section, old, &before[old]);
                new_at(record, section, new, &after[new]);
            }
            Pair::Both(name, old, new) => {
                both(record, &format!("{section}.{name}"), name, old, new);
            }
        }
    }
}

fn gone<T: serde::Serialize>(record: &mut Record, section: &str, name: &str, old: &T) {
    let says = format!("{section} no longer have {name}");
    record.gone(&format!("{section}.{name}"), Class::Loosened, says, shown(old));
}

fn new_at<T: serde::Serialize>(record: &mut Record, section: &str, name: &str, new: &T) {
    let says = format!("{section} now have {name}");
    record.new_at(&format!("{section}.{name}"), Class::Tightened, says, shown(new));
}

fn drawn(record: &mut Record, clause: &str, what: &str, before: Drawn, after: Drawn) {
    let wide = |drawn: Drawn| drawn.range.map(i64::from);
    record.range(clause, what, wide(before), wide(after));
}

fn event(record: &mut Record, clause: &str, name: &str, before: &Event, after: &Event) {
    let Event {
        from,
        to,
        otherwise,
        by_ticket,
        rows,
        requires,
        publishes,
        opens,
        empties,
        failing,
    } = before;
    record.either(&format!("{clause}.from"), &format!("where {name} is legal"), from, &after.from);
    record.either(&format!("{clause}.to"), &format!("where {name} leads"), to, &after.to);
    record.either(
        &format!("{clause}.otherwise"),
        &format!("how {name} is refused elsewhere"),
        otherwise,
        &after.otherwise,
    );
    record.either(
        &format!("{clause}.by_ticket"),
        &format!("whether {name} names a round"),
        by_ticket,
        &after.by_ticket,
    );
    record.either(
        &format!("{clause}.empties"),
        &format!("whether {name} empties"),
        empties,
        &after.empties,
    );
    match (rows, after.rows) {
        (Some(before), Some(after)) => {
            drawn(record, &format!("{clause}.rows"), &format!("rows of {name}"), *before, after)
        }
        (before, after) => {
            record.either(&format!("{clause}.rows"), &format!("rows of {name}"), before, &after)
        }
    }
    named(
        record,
        &format!("{clause}.requires"),
        requires,
        &after.requires,
        |record, clause, refusal, before: &Expr, after| {
            record.expressions(
                clause,
                &format!("when {name} is not refused by {refusal}"),
                Some(before),
                Some(after),
            );
        },
    );
    for (field, what, before, after) in [
        ("publishes", "publishes", publishes, &after.publishes),
        ("opens", "opens", opens, &after.opens),
    ] {
        record.expressions(
            &format!("{clause}.{field}"),
            &format!("rows that {name} {what}"),
            before.as_ref(),
            after.as_ref(),
        );
    }
    let clause = format!("{clause}.failing");
    match (failing, &after.failing) {
        (Some(before), Some(after)) => fails(record, &clause, name, before, after),
        (Some(before), None) => record.gone(
            &clause,
            Class::Loosened,
            format!("no launch of {name} fails any more"),
            shown(before),
        ),
        (None, Some(after)) => record.new_at(
            &clause,
            Class::Tightened,
            format!("launches of {name} now fail"),
            shown(after),
        ),
        (None, None) => {}
    }
}

fn fails(record: &mut Record, clause: &str, name: &str, before: &Failing, after: &Failing) {
    let Failing { launches, once, lasting } = before;
    fewer(
        record,
        clause,
        &format!("launches of {name} that fail"),
        (*launches, after.launches),
        true,
    );
    record.either(clause, &format!("where one failed launch of {name} leads"), once, &after.once);
    record.either(
        clause,
        &format!("where failing launches of {name} lead"),
        lasting,
        &after.lasting,
    );
}

fn draws(record: &mut Record, before: Limits, after: Limits) {
    let Limits { events, illegal_one_in } = before;
    fewer(record, "limits.events", "most events of a history", (events, after.events), true);
    let what = "events for each that may be illegal";
    fewer(record, "limits.illegal_one_in", what, (illegal_one_in, after.illegal_one_in), false);
}

/// A number that is looser the smaller it is, or the larger.
fn fewer(
    record: &mut Record,
    clause: &str,
    what: &str,
    (before, after): (u8, u8),
    small_is_loose: bool,
) {
    if before == after {
        return;
    }
    let is_looser = (after < before) == small_is_loose;
    let class = if is_looser { Class::Loosened } else { Class::Tightened };
    let values = (Some(before.to_string()), Some(after.to_string()));
    record.push(clause, class, format!("{what}: {before} → {after}"), values);
}

/// Any of several invariants may show it: one more to choose from is looser.
fn mutant(
    record: &mut Record,
    clause: &str,
    name: &str,
    before: &ProtocolMutant,
    after: &ProtocolMutant,
) {
    let (old, new) = (&before.killed_by, &after.killed_by);
    for invariant in new.iter().filter(|invariant| !old.contains(invariant)) {
        let says = format!("{name} may now be shown by {invariant} too");
        record.new_at(clause, Class::Loosened, says, invariant.clone());
    }
    for invariant in old.iter().filter(|invariant| !new.contains(invariant)) {
        let says = format!("{name} may no longer be shown by {invariant}");
        record.gone(clause, Class::Tightened, says, invariant.clone());
    }
}

/// What readers are told, and nothing is judged by.
fn reworded(record: &mut Record, clause: &str, what: &str, before: &str, after: &str) {
    if before != after {
        let says = format!("{what} `{before}` → `{after}`");
        let values = (Some(before.to_owned()), Some(after.to_owned()));
        record.push(clause, Class::Neutral, says, values);
    }
}
