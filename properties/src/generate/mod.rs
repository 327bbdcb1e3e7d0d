//! From choices to a case: every decision is keyed by its path and 0 is the simplest, so fuzzer bytes,
//! a seed and an exhaustive walk steer the same generator. What it returns satisfies the contract.

mod budget;
mod complete;
mod contents;
mod layouts;
mod plan;
mod rarity;
mod structure;
mod wish;

pub use complete::{complete, first_scalar};

use crate::choices::{Choices, Path};
use crate::examine::Examine;
use crate::subject::Subject;
use contracts::case::{Case, Schedule};
use contracts::format::{Contract, Fixture};
use plan::Plan;
use rarity::rarity;
use std::fmt;
use wish::Wish;

/// A case and what to examine of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw {
    /// The case.
    pub case: Case,
    /// What to examine.
    pub examine: Examine,
}

impl Draw {
    /// The two together. An order of blocks and warps is examined by itself: what differs between the
    /// runs of a relation is then the relation's.
    pub fn of(mut case: Case, examine: Examine) -> Draw {
        if matches!(examine, Examine::Relation(_)) {
            case.schedule = Schedule::InOrder;
        }
        Draw { case, examine }
    }
}

/// Why these choices make no case: a combination the contract refuses, met too often in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discard(pub String);

impl fmt::Display for Discard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no case: {}", self.0)
    }
}

impl std::error::Error for Discard {}

/// How often a combination that the contract refuses is drawn again.
const ATTEMPTS: usize = 64;

/// Draws a case: one in eight completes a fixture, large ones less often; some of the others begin
/// with a wish for what is seldom met; the rest is free.
pub fn draw(subject: &Subject, choices: &mut dyn Choices) -> Result<Draw, Discard> {
    let path = Path::new("fixture");
    let fixtures = &subject.contract.fixtures;
    let mut fixture = None;
    if choices.one_in(path, 8) {
        let which = choices.choose(path.child("which"), fixtures.len() as u64);
        fixture = fixtures.get_index(which as usize).map(|(_, fixture)| fixture);
        let times = fixture.map_or(1, |fixture| rarity(subject.contract, fixture));
        if times > 1 && !choices.one_in(path.child("large"), times as u64) {
            fixture = None;
        }
    }
    let wish = if fixture.is_none() { Wish::draw(subject.contract, choices) } else { None };
    let case = assemble(subject.contract, Given { fixture, wish, production: false }, choices)?;
    let examine = Examine::draw(subject.contract, choices);
    Ok(Draw::of(case, examine))
}

/// Draws a case of a contract that may have no kernel here.
pub fn draw_unbound(
    contract: &'static Contract,
    choices: &mut dyn Choices,
) -> Result<Case, Discard> {
    assemble(contract, Given::default(), choices)
}

/// Completes one fixture or production shape, by name.
pub fn draw_fixture(
    subject: &Subject,
    fixture: &str,
    choices: &mut dyn Choices,
) -> Result<Case, Discard> {
    let contract = subject.contract;
    let production = contract.production.get(fixture);
    let Some(assigned) = contract.fixtures.get(fixture).or(production) else {
        let known: Vec<&str> = contract
            .fixtures
            .keys()
            .chain(contract.production.keys())
            .map(String::as_str)
            .collect();
        let name = &contract.contract;
        return Err(Discard(format!(
            "`{name}` has no fixture `{fixture}`; it has {}",
            known.join(", ")
        )));
    };
    let production = production.is_some();
    let given = Given { fixture: Some(assigned), wish: None, production };
    assemble(contract, given, choices)
}

/// Completes an assignment that stands in no contract, within the bounds of a free draw.
pub fn draw_assigned(
    subject: &Subject,
    assigned: &Fixture,
    choices: &mut dyn Choices,
) -> Result<Case, Discard> {
    let given = Given { fixture: Some(assigned), ..Given::default() };
    assemble(subject.contract, given, choices)
}

/// Features drawn once a case: each is off in about half of all cases, so that they occur alone and
/// together. None is on when every choice is 0.
#[derive(Clone, Copy, Debug)]
struct Swarm(u64);

impl Swarm {
    const PADDED: Swarm = Swarm(1);
    const OFFSET: Swarm = Swarm(1 << 1);
    const PACKED: Swarm = Swarm(1 << 2);
    const PADS: Swarm = Swarm(1 << 3);
    const NAN: Swarm = Swarm(1 << 4);
    const INVALID: Swarm = Swarm(1 << 5);
    const SPARE: Swarm = Swarm(1 << 6);
    const SPECIAL: Swarm = Swarm(1 << 7);
    const COUNT: u64 = 1 << 8;

    fn draw(choices: &mut dyn Choices) -> Swarm {
        Swarm(choices.choose(Path::new("swarm"), Swarm::COUNT))
    }

    fn has(self, feature: Swarm) -> bool {
        self.0 & feature.0 != 0
    }

    fn without<const N: usize>(self, features: [Swarm; N]) -> Swarm {
        Swarm(features.iter().fold(self.0, |left, feature| left & !feature.0))
    }
}

/// What is decided before a draw begins.
#[derive(Clone, Copy, Debug, Default)]
struct Given<'a> {
    fixture: Option<&'a Fixture>,
    wish: Option<Wish<'a>>,
    /// Whether sizes are the fixture's own, however large.
    production: bool,
}

/// What one draw works with.
struct Source<'a> {
    contract: &'a Contract,
    plan: &'a Plan,
    fixture: Option<&'a Fixture>,
    /// What is to hold, until it is given up.
    wish: Option<Wish<'a>>,
    /// Whether sizes are a fixture's own, however large.
    production: bool,
    swarm: Swarm,
    choices: &'a mut dyn Choices,
}

fn assemble(
    contract: &'static Contract,
    given: Given<'_>,
    choices: &mut dyn Choices,
) -> Result<Case, Discard> {
    let plan = Plan::of(contract);
    let drawn = Swarm::draw(choices);
    let Given { fixture, wish, production } = given;
    let swarm = wish.map_or(drawn, |wish| wish.narrowed(drawn));
    let mut source = Source { contract, plan: &plan, fixture, wish, production, swarm, choices };
    let mut refused = String::new();
    for attempt in 0..ATTEMPTS {
        if attempt == wish::ATTEMPTS {
            (source.wish, source.swarm) = (None, drawn);
        }
        match source.structure(attempt) {
            Ok(mut case) => {
                source.layouts(&mut case);
                source.contents(&mut case);
                return Ok(case);
            }
            Err(why) => refused = why,
        }
    }
    Err(Discard(refused))
}

/// A section's path; another one for every new attempt at the structure.
fn section(name: &str, attempt: usize) -> Path {
    let path = Path::new(name);
    if attempt == 0 { path } else { path.child("again").index(attempt) }
}

#[cfg(test)]
mod often;
#[cfg(test)]
mod tests;
