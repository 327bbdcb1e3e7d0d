//! What may happen to a sequence, as one line of a script: `s0 begin 4`, `s1 commit 2 !0`, `s0 drop
//! !unwind`, `s0 abort stale`. What is printed is what is read.

use std::fmt;
use std::str::FromStr;

/// A launch that fails within an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Launch number `at` of the event fails, and works when it is tried again.
    Once(u8),
    /// Every launch from number `at` on fails.
    Lasting(u8),
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// So many rows are certain.
    Prefill(u8),
    /// One row is certain.
    Decode,
    /// A round over so many rows.
    Begin(u8),
    /// Its rows run.
    Verify(Option<Failure>),
    /// So many rows are kept.
    Commit(u8, Option<Failure>),
    /// None is.
    Abort(Option<Failure>),
    /// The round goes out of scope, or a panic takes it along.
    Drop {
        /// Whether by a panic.
        unwinds: bool,
    },
    /// The slot is given back.
    Release,
    /// A free slot is taken.
    Acquire,
}

/// One event of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Which.
    pub sequence: u8,
    /// What.
    pub event: Event,
    /// Whether by the ticket of the round before.
    pub stale: bool,
}

impl Event {
    /// Its name in the contract.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Prefill(_) => "prefill",
            Event::Decode => "decode",
            Event::Begin(_) => "begin",
            Event::Verify(_) => "verify",
            Event::Commit(..) => "commit",
            Event::Abort(_) => "abort",
            Event::Drop { .. } => "drop",
            Event::Release => "release",
            Event::Acquire => "acquire",
        }
    }

    /// Its argument; a prefill has at least the one row that is always there.
    pub fn rows(&self) -> u8 {
        match *self {
            Event::Prefill(rows) => rows.max(1),
            Event::Begin(rows) | Event::Commit(rows, _) => rows,
            _ => 0,
        }
    }

    /// The launch that is made to fail.
    pub fn failure(&self) -> Option<Failure> {
        match *self {
            Event::Verify(failure) | Event::Commit(_, failure) | Event::Abort(failure) => failure,
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Once(at) => write!(f, "!{at}"),
            Failure::Lasting(at) => write!(f, "!!{at}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{} {}", self.sequence, self.event.name())?;
        match self.event {
            Event::Prefill(rows) | Event::Begin(rows) | Event::Commit(rows, _) => {
                write!(f, " {rows}")?;
            }
            Event::Drop { unwinds: true } => f.write_str(" !unwind")?,
            _ => {}
        }
        if let Some(failure) = self.event.failure() {
            write!(f, " {failure}")?;
        }
        if self.stale { f.write_str(" stale") } else { Ok(()) }
    }
}

/// Why a line is no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoEvent {
    line: String,
    what: String,
}

impl NoEvent {
    /// What would be right.
    pub const REMEDY: &str = "write `s0 prefill 4`, `s0 decode`, `s0 begin 4`, `s0 verify [!K]`, \
        `s0 commit 3 [!K|!!K]`, `s0 abort [!!K]`, `s0 drop [!unwind]`, `s0 release` or `s0 acquire`; \
        after verify, commit and abort `stale` may follow";

    /// The line, and what is wrong with it.
    pub fn what(&self) -> String {
        format!("`{}`: {}", self.line, self.what)
    }
}

impl fmt::Display for NoEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what(), NoEvent::REMEDY)
    }
}

impl std::error::Error for NoEvent {}

impl FromStr for Step {
    type Err = NoEvent;

    fn from_str(line: &str) -> Result<Step, NoEvent> {
        let wrong = |what: &str| NoEvent { line: line.to_owned(), what: what.to_owned() };
        let mut words = line.split_whitespace().peekable();
        let sequence = words
            .next()
            .and_then(|word| word.strip_prefix('s')?.parse().ok())
            .filter(|sequence| *sequence < 8)
            .ok_or_else(|| wrong("it begins with no sequence, s0 to s7"))?;
        let name = words.next().ok_or_else(|| wrong("it names no event"))?;
        let mut rows = || -> Result<u8, NoEvent> {
            let rows = words.next().and_then(|word| word.parse().ok());
            rows.ok_or_else(|| wrong("the event needs a number of rows, 0 to 255"))
        };
        let event = match name {
            "prefill" => Event::Prefill(rows()?),
            "decode" => Event::Decode,
            "begin" => Event::Begin(rows()?),
            "verify" => Event::Verify(None),
            "commit" => Event::Commit(rows()?, None),
            "abort" => Event::Abort(None),
            "drop" => Event::Drop { unwinds: words.next_if_eq(&"!unwind").is_some() },
            "release" => Event::Release,
            "acquire" => Event::Acquire,
            _ => return Err(wrong("no event has this name")),
        };
        let failure = match words.next_if(|word| word.starts_with('!')) {
            None => None,
            Some(word) => {
                let lasting = word.strip_prefix("!!").map(|at| at.parse().map(Failure::Lasting));
                let failure = lasting.unwrap_or_else(|| word[1..].parse().map(Failure::Once));
                Some(failure.map_err(|_| wrong("`!` is followed by no launch number"))?)
            }
        };
        let event = match (event, failure) {
            (event, None) => event,
            (Event::Verify(_), Some(_)) => Event::Verify(failure),
            (Event::Commit(rows, _), Some(_)) => Event::Commit(rows, failure),
            (Event::Abort(_), Some(_)) => Event::Abort(failure),
            _ => return Err(wrong("no launch of this event can be made to fail")),
        };
        let takes_ticket = matches!(event, Event::Verify(_) | Event::Commit(..) | Event::Abort(_));
        let stale = takes_ticket && words.next_if_eq(&"stale").is_some();
        match words.next() {
            None => Ok(Step { sequence, event, stale }),
            Some(word) => Err(wrong(&format!("`{word}` is one word too many"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_what_is_read() {
        for line in [
            "s0 prefill 4",
            "s1 decode",
            "s2 begin 10",
            "s0 verify",
            "s0 verify !3",
            "s0 verify !!0 stale",
            "s0 commit 3",
            "s0 commit 255 !!1",
            "s0 commit 0 !2 stale",
            "s0 abort",
            "s0 abort !!0",
            "s0 drop",
            "s0 drop !unwind",
            "s0 release",
            "s7 acquire",
        ] {
            let step: Step = line.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(step.to_string(), line);
        }
    }

    #[test]
    fn nonsense_says_what_would_be_right() {
        for (line, what) in [
            ("", "no sequence"),
            ("s8 decode", "no sequence"),
            ("s0", "names no event"),
            ("s0 dance", "no event has this name"),
            ("s0 begin", "number of rows"),
            ("s0 begin 256", "number of rows"),
            ("s0 begin -1", "number of rows"),
            ("s0 verify !", "no launch number"),
            ("s0 verify !x", "no launch number"),
            ("s0 decode !1", "made to fail"),
            ("s0 begin 4 stale", "one word too many"),
            ("s0 drop now", "one word too many"),
        ] {
            let error = line.parse::<Step>().expect_err(line).to_string();
            assert!(error.contains(what) && error.contains("s0 commit 3"), "{line}: {error}");
        }
    }
}
