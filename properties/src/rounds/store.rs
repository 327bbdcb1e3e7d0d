//! Histories on disk: `corpora/speculative_round/<invariant>-<digest>.yaml`, a head as every stored case
//! has and the script, one line an event. A file that says which wrong transaction it is about must still
//! fail with that one planted, and pass without it; any other must pass.

use super::events::{NoEvent, Step};
use super::history::{History, ROLLBACKS, Rollback, Setup};
use super::machine::{run, script};
use super::protocol::protocol;
use super::shrink::Shrunk;
use super::violation::{Invariant, Violation};
use crate::corpus::{self, CorpusError};
use contracts::ContractError;
use contracts::dtype::DType;
use kernels::backend::Backend;
use kernels::transaction::Planted;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The folder, and what the files call themselves.
pub const CONTRACT: &str = "speculative_round";
/// Most bytes of a file.
const LIMIT_BYTES: u64 = 64 << 10;

/// A file, field by field.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a map with case, contract, version, found, dtypes, options, dims and script"
)]
struct Stored {
    case: u64,
    contract: String,
    version: u64,
    found: StoredFound,
    dtypes: StoredTypes,
    options: StoredOptions,
    dims: StoredDims,
    script: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredFound {
    clause: String,
    #[serde(default)]
    planted: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTypes {
    io: DType,
    state: DType,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredOptions {
    rollback: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredDims {
    sequences: u8,
    capacity: u8,
    gdn_layers: u8,
    attention_layers: u8,
}

/// A stored history, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHistory {
    /// The history.
    pub history: History,
    /// The promise it broke.
    pub invariant: Invariant,
    /// In which wrong transaction.
    pub planted: Option<Planted>,
}

/// What a replay came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeaningOfRound {
    /// As it must be.
    Passes,
    /// The transaction breaks a promise.
    Fails(Violation),
    /// The wrong transaction it is about breaks no promise, or another.
    NotNoticed(Option<Violation>),
}

impl StoredHistory {
    /// The clause by which it fails, where it does: the promise that is broken, or that a planted fault
    /// should break.
    pub fn failing(&self, meaning: &MeaningOfRound) -> Option<String> {
        let invariant = match meaning {
            MeaningOfRound::Passes => return None,
            MeaningOfRound::Fails(violation) => violation.invariant,
            MeaningOfRound::NotNoticed(_) => self.invariant,
        };
        Some(invariant.clause())
    }
}

/// One stored history on one backend.
#[derive(Clone, Debug)]
pub struct RoundReplay {
    /// The file.
    pub path: PathBuf,
    /// `vm` or `cuda`.
    pub backend: &'static str,
    /// What it came to.
    pub meaning: MeaningOfRound,
    /// The clause by which it fails.
    pub failing: Option<String>,
}

/// Writes a small history; gives its file, which a history that is there already keeps.
///
/// # Errors
/// When it cannot be written.
pub fn write(
    root: &Path,
    shrunk: &Shrunk,
    planted: Option<Planted>,
    backend: &mut dyn Backend,
) -> Result<PathBuf, CorpusError> {
    let name = shrunk.violation.invariant.name();
    let body = body(&shrunk.history, shrunk.violation.invariant, planted);
    let digest = corpus::fnv(body.as_bytes());
    let folder = root.join(CONTRACT);
    let path = folder.join(format!("{name}-{:08x}.yaml", digest >> 32));
    if path.exists() {
        return Ok(path);
    }
    let shown = script(&shrunk.history, planted, backend);
    let comment: String = shown.lines().map(|line| format!("# {line}\n")).collect();
    let command = corpus::replay_command(&path, root);
    let text = format!("{comment}# {command}\n{body}");
    corpus::write_whole(&path, text.as_bytes())?;
    Ok(path)
}

fn body(history: &History, invariant: Invariant, planted: Option<Planted>) -> String {
    let setup = &history.setup;
    let planted = planted.map_or(String::new(), |planted| format!(", planted: {}", planted.name()));
    let mut text = format!(
        "case: 1\ncontract: {CONTRACT}\nversion: 1\nfound: {{clause: invariants.{}{planted}}}\n\
         dtypes: {{io: {}, state: {}}}\noptions: {{rollback: {}}}\n\
         dims: {{sequences: {}, capacity: {}, gdn_layers: {}, attention_layers: {}}}\nscript:\n",
        invariant.name(),
        setup.io,
        setup.state,
        rollback_word(setup.rollback),
        setup.sequences,
        setup.capacity,
        setup.gdn_layers,
        setup.attention_layers,
    );
    for step in &history.steps {
        text.push_str(&format!("  - {step}\n"));
    }
    text
}

fn rollback_word(rollback: Rollback) -> &'static str {
    ROLLBACKS.iter().find(|(_, one)| *one == rollback).map_or("?", |(word, _)| word)
}

/// Whether a file calls itself a history; one that cannot be read does not.
pub fn is_history(path: &Path) -> bool {
    let Ok(text) = corpus::read_text(path, LIMIT_BYTES) else { return false };
    let tree: Result<serde_json::Value, _> = contracts::load::parse_yaml(&text, "");
    tree.is_ok_and(|tree| tree.get("contract").and_then(|name| name.as_str()) == Some(CONTRACT))
}

/// Reads a stored history.
///
/// # Errors
/// The field at fault, and what would be right.
pub fn read(path: &Path) -> Result<StoredHistory, CorpusError> {
    let text = corpus::read_text(path, LIMIT_BYTES)?;
    parse(&text, &path.display().to_string()).map_err(CorpusError::Case)
}

fn parse(text: &str, file: &str) -> Result<StoredHistory, ContractError> {
    let stored: Stored = contracts::load::parse_yaml(text, file)?;
    let wrong = |field: &str, what: String, remedy: &str| {
        contracts::load::placed(text, file, field.to_owned(), what, remedy.to_owned())
    };
    for (field, given, known) in [
        ("case", stored.case.to_string(), "1"),
        ("contract", stored.contract.clone(), CONTRACT),
        ("version", stored.version.to_string(), "1"),
    ] {
        if given != known {
            let what = format!("`{given}` is not what is read here");
            return Err(wrong(field, what, &format!("write {field}: {known}")));
        }
    }
    let clause = &stored.found.clause;
    let invariant = clause.strip_prefix("invariants.").and_then(Invariant::named);
    let known = Invariant::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let invariant = invariant.ok_or_else(|| {
        wrong(
            "found.clause",
            format!("`{clause}` is no invariant"),
            &format!("write `invariants.` and one of {known}"),
        )
    })?;
    let planted = match stored.found.planted.as_deref() {
        None => None,
        Some(name) => Some(Planted::named(name).ok_or_else(|| {
            let known = Planted::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            wrong(
                "found.planted",
                format!("no wrong transaction is named `{name}`"),
                &format!("there are {known}"),
            )
        })?),
    };
    let word = stored.options.rollback.as_str();
    let rollback = ROLLBACKS.iter().find(|(known, _)| *known == word).map(|(_, one)| *one);
    let rollback = rollback.ok_or_else(|| {
        let words = ROLLBACKS.map(|(word, _)| word).join(" or ");
        let what = format!("`{word}` is no way to undo a round");
        wrong("options.rollback", what, &format!("write {words}"))
    })?;
    let dims = &stored.dims;
    for (name, value) in [
        ("sequences", dims.sequences),
        ("capacity", dims.capacity),
        ("gdn_layers", dims.gdn_layers),
        ("attention_layers", dims.attention_layers),
    ] {
        let [least, most] = protocol().range(name);
        if !(least..=most).contains(&value) {
            let remedy = format!("write {least} to {most}");
            return Err(wrong(&format!("dims.{name}"), value.to_string(), &remedy));
        }
    }
    for (symbol, dtype) in [("io", stored.dtypes.io), ("state", stored.dtypes.state)] {
        let legal = protocol().dtypes.get(symbol).map_or(&[][..], Vec::as_slice);
        if !legal.contains(&dtype) {
            let words: Vec<&str> = legal.iter().map(|dtype| dtype.name()).collect();
            let remedy = format!("write {}", words.join(" or "));
            return Err(wrong(&format!("dtypes.{symbol}"), dtype.to_string(), &remedy));
        }
    }
    let most = usize::from(protocol().limits.events);
    if stored.script.len() > most {
        let what = format!("{} events", stored.script.len());
        return Err(wrong("script", what, &format!("at most {most} are read")));
    }
    let mut steps = Vec::with_capacity(stored.script.len());
    for (at, line) in stored.script.iter().enumerate() {
        let step: Step = line.parse().map_err(|error: NoEvent| {
            wrong(&format!("script[{at}]"), error.what(), NoEvent::REMEDY)
        })?;
        if step.sequence >= dims.sequences {
            let what = format!("`{line}` is of a sequence there is not");
            let remedy = format!("there are {}, from s0 on", dims.sequences);
            return Err(wrong(&format!("script[{at}]"), what, &remedy));
        }
        steps.push(step);
    }
    let setup = Setup {
        rollback,
        io: stored.dtypes.io,
        state: stored.dtypes.state,
        sequences: dims.sequences,
        capacity: dims.capacity,
        gdn_layers: dims.gdn_layers,
        attention_layers: dims.attention_layers,
    };
    Ok(StoredHistory { history: History { setup, steps }, invariant, planted })
}

/// Replays one file on each backend.
///
/// # Errors
/// When it is no stored history.
pub fn replay(
    path: &Path,
    backends: &mut [Box<dyn Backend>],
) -> Result<Vec<RoundReplay>, CorpusError> {
    let stored = read(path)?;
    Ok(backends
        .iter_mut()
        .map(|backend| {
            let name = backend.name();
            let meaning = meaning(&stored, backend.as_mut());
            let failing = stored.failing(&meaning);
            RoundReplay { path: path.to_owned(), backend: name, meaning, failing }
        })
        .collect())
}

fn meaning(stored: &StoredHistory, backend: &mut dyn Backend) -> MeaningOfRound {
    if let Some(violation) = run(&stored.history, None, backend).violation {
        return MeaningOfRound::Fails(violation);
    }
    if stored.planted.is_none() {
        return MeaningOfRound::Passes;
    }
    match run(&stored.history, stored.planted, backend).violation {
        Some(violation) if violation.invariant == stored.invariant => MeaningOfRound::Passes,
        other => MeaningOfRound::NotNoticed(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::history_of_seed;

    #[test]
    fn what_is_written_is_what_is_read() {
        for seed in 0..200 {
            let history = history_of_seed(seed);
            let planted = (seed % 2 == 0).then_some(Planted::DropIsNoop);
            let text = body(&history, Invariant::Restores, planted);
            let stored = parse(&text, "x").unwrap_or_else(|error| panic!("{error}\n{text}"));
            let wanted = StoredHistory { history, invariant: Invariant::Restores, planted };
            assert_eq!(stored, wanted);
        }
    }

    #[test]
    fn nonsense_names_its_field() {
        let good = body(&history_of_seed(3), Invariant::Restores, Some(Planted::DropIsNoop));
        for (from, to, field) in [
            ("case: 1", "case: 2", "x:1: case: `2`"),
            ("contract: spec", "contract: [spec]\nx: spec", "x:2: contract"),
            (
                "version: 1",
                "version: 9",
                "x:3: version: `9` is not what is read here; write version: 1",
            ),
            ("invariants.restores", "restores", "found.clause"),
            ("drop_is_noop", "drop_is_nope", "found.planted"),
            ("rollback: ", "rollback: un", "options.rollback"),
            ("sequences: ", "sequences: 9", "dims.sequences"),
            ("capacity: ", "capacity: 1", "dims.capacity"),
            ("gdn_layers: ", "gdn_layers: 7", "dims.gdn_layers"),
            ("  - s", "  - t", "x:9: script[0]"),
            ("  - s", "  - s7 decode\n  - s", "x:9: script[0]"),
        ] {
            assert!(good.contains(from), "{good}");
            let text = good.replacen(from, to, 1);
            let error = parse(&text, "x").expect_err(&text).to_string();
            assert!(error.contains(field), "{field}: {error}");
        }
    }
}
