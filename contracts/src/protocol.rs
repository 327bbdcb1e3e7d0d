//! Contracts of protocols: when an event is legal, where it leads, how it is refused and what is drawn.
//! The effect of an event is a method of the reference with its name; nothing here computes a row.
//! Invariant: in a protocol that was returned, every state, argument and name of a condition exists.

use crate::check::{Checked, check_name, ensure, found};
use crate::dtype::DType;
use crate::expr::{Expr, ExprError, Scope, Value};
use crate::format::{HistoryEntry, Named};
use crate::load::{ContractError, suggestion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names every condition may use besides dims and the event's arguments: rows that are published, and
/// rows of the round that is open.
pub const COUNTERS: [&str; 2] = ["length", "verify_rows"];

/// One protocol: what a sequence of events promises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// The file's stem; also the reference's, fuzz target's and corpus folder's name.
    pub contract: String,
    /// Rises whenever an older history would not decode to the same meaning.
    pub version: u32,
    /// What is promised about.
    pub kind: ProtocolKind,
    /// One sentence for a reader.
    pub summary: String,
    /// Where the rules stand.
    pub spec: String,
    /// Dtype symbols and the types each may take; the first is the simplest.
    pub dtypes: Named<Vec<DType>>,
    /// Choices with a meaning; the first is the simplest.
    pub options: Named<Vec<String>>,
    /// Sizes.
    pub dims: Named<Drawn>,
    /// Where a sequence may stand; it starts in the first.
    pub states: Named<State>,
    /// What may happen.
    pub events: Named<Event>,
    /// What every history keeps, in a sentence each.
    pub invariants: Named<String>,
    /// How much is drawn.
    pub limits: Limits,
    /// Wrong transactions that must be found, by an invariant or one of several.
    pub mutants: Named<ProtocolMutant>,
    /// Changes, newest last.
    #[serde(default)]
    pub history: Vec<HistoryEntry>,
}

/// What a protocol is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProtocolKind {
    /// Events of sequences.
    Protocol,
}

/// Inclusive bounds of what is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Drawn {
    /// Least and most.
    pub range: [u8; 2],
}

/// A state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// How everything that is not legal here is refused, before a ticket is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuses: Option<Refused>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The states it is legal in.
    pub from: Vec<String>,
    /// The state it leads to.
    pub to: String,
    /// How it is refused in another state; unless said, as that state refuses, or else `state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<Refused>,
    /// Whether it names a round, and is refused by `stale_id` when that is not the latest.
    #[serde(default)]
    pub by_ticket: bool,
    /// Its one argument, as it is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Drawn>,
    /// What must hold besides, by the refusal otherwise.
    #[serde(default)]
    pub requires: Named<Expr>,
    /// Rows it publishes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publishes: Option<Expr>,
    /// Rows of the round it opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens: Option<Expr>,
    /// Whether nothing is published afterwards.
    #[serde(default)]
    pub empties: bool,
    /// Launches that are made to fail, and where that leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<Failing>,
}

/// Launches of an event that fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Failing {
    /// Numbers of the launches that may, counted from 0.
    pub launches: u8,
    /// The state after one launch failed that works when it is tried again.
    pub once: String,
    /// The state after every launch from one on failed.
    pub lasting: String,
}

/// Why an event is refused. Where several apply, the first of this order is the refusal.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// The sequence was released.
    Released,
    /// The sequence is in doubt.
    Broken,
    /// It names an earlier round.
    StaleId,
    /// Not in this state.
    State,
    /// A number of rows outside what is legal.
    Rows,
    /// No room.
    Capacity,
}

/// How much is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Most events of a history.
    pub events: u8,
    /// One event in so many is drawn whether it is legal or not.
    pub illegal_one_in: u8,
}

/// A wrong transaction, and the invariants that may show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtocolMutant {
    /// Names of invariants; which one shows it depends on the history.
    pub killed_by: Vec<String>,
}

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing<'p> {
    /// Its state.
    pub state: &'p str,
    /// Rows published.
    pub length: u8,
    /// Rows of the round that is open.
    pub verify_rows: u8,
}

impl Refused {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            Refused::Released => "released",
            Refused::Broken => "broken",
            Refused::StaleId => "stale_id",
            Refused::State => "state",
            Refused::Rows => "rows",
            Refused::Capacity => "capacity",
        }
    }

    fn named(name: &str) -> Option<Refused> {
        use Refused::{Broken, Capacity, Released, Rows, StaleId, State};
        [Released, Broken, StaleId, State, Rows, Capacity]
            .into_iter()
            .find(|refused| refused.name() == name)
    }
}

/// Parses and checks a protocol. `file` is only named in errors.
pub fn parse_protocol(text: &str, file: &str) -> Result<Protocol, ContractError> {
    let protocol: Protocol = crate::load::parse_yaml(text, file)?;
    match check(&protocol) {
        Ok(()) => Ok(protocol),
        Err(wrong) => Err(crate::load::placed(text, file, wrong.path, wrong.what, wrong.remedy)),
    }
}

impl Protocol {
    /// The format as a JSON Schema (draft 2020-12).
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(Protocol).to_value()
    }

    /// A sequence before anything happened.
    pub fn start(&self) -> Standing<'_> {
        let state = self.states.keys().next().map_or("", String::as_str);
        Standing { state, length: 0, verify_rows: 0 }
    }

    /// Bounds of a dim; `[0, 0]` of one there is not.
    pub fn range(&self, dim: &str) -> [u8; 2] {
        self.dims.get(dim).map_or([0, 0], |drawn| drawn.range)
    }

    /// What an event makes of where a sequence stands, none of its launches failing: the next standing,
    /// or the refusal. `rows` is its argument, `current` whether it names the latest round, `dims` the
    /// sizes of the history.
    ///
    /// # Errors
    /// The refusal, `state` for an event that the protocol does not have.
    pub fn after<'p>(
        &'p self,
        dims: &dyn Fn(&str) -> Option<u8>,
        standing: Standing<'p>,
        event: &str,
        rows: u8,
        current: bool,
    ) -> Result<Standing<'p>, Refused> {
        let Some(rule) = self.events.get(event) else { return Err(Refused::State) };
        let legal = rule.from.iter().any(|state| state == standing.state);
        let refuses = self.states.get(standing.state).and_then(|state| state.refuses);
        if let (false, None, Some(refused)) = (legal, rule.otherwise, refuses) {
            return Err(refused);
        }
        if rule.by_ticket && !current {
            return Err(Refused::StaleId);
        }
        if !legal {
            return Err(rule.otherwise.unwrap_or(Refused::State));
        }
        let names = Names { dims, standing, rows };
        let broken = rule.requires.iter().filter(|(_, that)| that.eval_bool(&names) != Ok(true));
        if let Some(refused) = broken.filter_map(|(name, _)| Refused::named(name)).min() {
            return Err(refused);
        }
        let count = |rows: &Option<Expr>| match rows {
            Some(rows) => rows.eval_int(&names).ok().and_then(|rows| u8::try_from(rows).ok()),
            None => Some(0),
        };
        let (Some(published), Some(opened)) = (count(&rule.publishes), count(&rule.opens)) else {
            return Err(Refused::Rows);
        };
        let length = if rule.empties { 0 } else { standing.length };
        Ok(Standing {
            state: &rule.to,
            length: length.saturating_add(published),
            verify_rows: if rule.opens.is_some() { opened } else { standing.verify_rows },
        })
    }
}

/// What a condition may speak of.
struct Names<'n, 'p> {
    dims: &'n dyn Fn(&str) -> Option<u8>,
    standing: Standing<'p>,
    rows: u8,
}

impl Scope for Names<'_, '_> {
    fn value(&self, name: &str) -> Option<Value<'_>> {
        let value = match name {
            "length" => self.standing.length,
            "verify_rows" => self.standing.verify_rows,
            "rows" => self.rows,
            dim => (self.dims)(dim)?,
        };
        Some(Value::Int(value.into()))
    }
}

fn check(protocol: &Protocol) -> Checked {
    ensure(protocol.version >= 1, "version", "versions count from 1", "write 1 or more")?;
    check_name("contract", &protocol.contract)?;
    for (section, is_empty) in [
        ("dtypes", protocol.dtypes.values().any(Vec::is_empty)),
        ("options", protocol.options.values().any(Vec::is_empty)),
        ("states", protocol.states.is_empty()),
        ("events", protocol.events.is_empty()),
        ("invariants", protocol.invariants.is_empty()),
    ] {
        ensure(!is_empty, section, "nothing is declared", "declare at least one")?;
    }
    for (name, drawn) in &protocol.dims {
        let path = format!("dims.{name}");
        check_name(&path, name)?;
        let taken = COUNTERS.contains(&name.as_str()) || name == "rows";
        ensure(!taken, &path, "the name is a counter's or the argument's", "choose another name")?;
        check_range(&path, *drawn)?;
    }
    for (name, event) in &protocol.events {
        check_event(protocol, &format!("events.{name}"), event)?;
    }
    for (name, sentence) in &protocol.invariants {
        let path = format!("invariants.{name}");
        ensure(!sentence.trim().is_empty(), &path, "it says nothing", "say what holds")?;
    }
    for (name, mutant) in &protocol.mutants {
        let path = format!("mutants.{name}.killed_by");
        ensure(!mutant.killed_by.is_empty(), &path, "nothing kills it", "name an invariant")?;
        for invariant in &mutant.killed_by {
            known(&path, invariant, protocol.invariants.keys())?;
        }
    }
    let limits = protocol.limits;
    ensure(
        limits.events >= 8 && limits.illegal_one_in >= 2,
        "limits",
        "histories are too short, or hardly one event is legal",
        "write events: 8 or more, illegal_one_in: 2 or more",
    )?;
    crate::check_history::check_reasons(&protocol.history, protocol.version)
}

fn check_range(path: &str, drawn: Drawn) -> Checked {
    let [least, most] = drawn.range;
    ensure(
        least <= most && most < u8::MAX,
        path,
        "no number lies in the range",
        "write [least, most], below 255",
    )
}

fn check_event(protocol: &Protocol, path: &str, event: &Event) -> Checked {
    let states = || protocol.states.keys();
    ensure(!event.from.is_empty(), path, "it is legal nowhere", "name a state in `from`")?;
    for state in event.from.iter().chain([&event.to]) {
        known(path, state, states())?;
    }
    if let Some(failing) = &event.failing {
        known(path, &failing.once, states())?;
        known(path, &failing.lasting, states())?;
        ensure(failing.launches > 0, path, "no launch may fail", "write launches: 1 or more")?;
    }
    if let Some(rows) = event.rows {
        check_range(path, rows)?;
    }
    for refused in event.requires.keys() {
        let is_known = Refused::named(refused).is_some();
        let what = format!("`{refused}` is no refusal");
        let words = ["rows", "capacity", "state"].into_iter();
        ensure(is_known, &format!("{path}.requires"), &what, &suggestion(refused, words))?;
    }
    let conditions =
        event.requires.iter().map(|(name, that)| (format!("requires.{name}"), that, true));
    let counts = [("publishes", &event.publishes), ("opens", &event.opens)];
    let counts = counts
        .into_iter()
        .filter_map(|(name, rows)| Some((name.to_owned(), rows.as_ref()?, false)));
    for (field, expression, is_condition) in conditions.chain(counts) {
        let path = format!("{path}.{field}");
        for name in expression.names() {
            let of_event = name == "rows" && event.rows.is_some();
            if !of_event && !COUNTERS.contains(&name) {
                known(&path, name, protocol.dims.keys())?;
            }
        }
        check_evaluates(protocol, &path, expression, is_condition)?;
    }
    Ok(())
}

/// A condition is true or false, a count an integer, whatever the names stand for.
fn check_evaluates(
    protocol: &Protocol,
    path: &str,
    expression: &Expr,
    is_condition: bool,
) -> Checked {
    let dims = |name: &str| protocol.dims.get(name).map(|drawn| drawn.range[1]);
    let standing = Standing { state: "", length: 1, verify_rows: 1 };
    let names = Names { dims: &dims, standing, rows: 1 };
    let complaint = |error: ExprError| {
        found(path, error.to_string(), "write a condition on rows, or a number of rows")
    };
    if is_condition {
        expression.eval_bool(&names).map(|_| ()).map_err(complaint)
    } else {
        expression.eval_int(&names).map(|_| ()).map_err(complaint)
    }
}

fn known<'a>(
    path: &str,
    name: &str,
    mut names: impl Iterator<Item = &'a String> + Clone,
) -> Checked {
    let is_known = names.clone().any(|known| known == name);
    let remedy = suggestion(name, &mut names.by_ref().map(String::as_str));
    ensure(is_known, path, &format!("`{name}` is declared nowhere"), &remedy)
}
