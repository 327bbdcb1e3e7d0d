//! Histories from a seed or from a fuzzer's bytes, with the sizes, the legality and the limits of the
//! contract. Legal events nine times in ten, by a record of where each sequence stands; the tenth is
//! anything.

use super::encode::Tried;
use super::events::{Event, Failure, Step};
use super::history::{History, ROLLBACKS, Setup};
use super::protocol::protocol;
use contracts::dtype::DType;
use contracts::protocol::Standing;
use reference::transaction::projections::mixed;

/// A source of small numbers.
pub enum Draw<'a> {
    /// A frozen generator: its seed, and how many numbers it gave.
    Seeded(u64, u64),
    /// Bytes, one a number; zeros when they are used up.
    Bytes(&'a [u8]),
    /// One of all the sequences there are.
    Tried(&'a mut Tried),
}

impl Draw<'_> {
    /// A number below `count`, which is 1 to 255.
    pub fn below(&mut self, count: u8) -> u8 {
        let count = count.max(1);
        match self {
            Draw::Seeded(seed, given) => {
                *given += 1;
                (mixed(&[*seed, *given]) % u64::from(count)) as u8
            }
            Draw::Bytes(bytes) => match bytes.split_first() {
                Some((first, rest)) => {
                    *bytes = rest;
                    first % count
                }
                None => 0,
            },
            Draw::Tried(tried) => tried.below(count),
        }
    }

    fn within(&mut self, [least, most]: [u8; 2]) -> u8 {
        least + self.below(most - least + 1)
    }

    fn one_in(&mut self, count: u8) -> bool {
        self.below(count) == count - 1
    }

    fn is_used_up(&self) -> bool {
        matches!(self, Draw::Bytes(bytes) if bytes.is_empty())
    }
}

/// Where each sequence of a history stands, as far as drawing the next event needs to know.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Where the history happens.
    pub setup: Setup,
    sequences: Vec<Standing<'static>>,
}

impl Progress {
    /// At the beginning.
    pub fn new(setup: Setup) -> Progress {
        Progress { setup, sequences: vec![protocol().start(); setup.sequences.into()] }
    }

    /// After an event.
    pub fn after(&mut self, step: &Step) {
        let Some(standing) = self.sequences.get_mut(usize::from(step.sequence)) else { return };
        let name = step.event.name();
        let dims = |name: &str| self.setup.dim(name);
        let next = protocol().after(&dims, *standing, name, step.event.rows(), !step.stale);
        // A refused event changes nothing.
        let Ok(next) = next else { return };
        *standing = next;
        let failing = protocol().events.get(name).and_then(|event| event.failing.as_ref());
        // Where the kind of failure decides, whether a launch is left to fail is not known here.
        if let (Some(_), Some(failing)) = (step.event.failure(), failing)
            && failing.once == failing.lasting
        {
            standing.state = &failing.once;
        }
    }
}

/// Where a history happens.
pub fn setup(draw: &mut Draw<'_>) -> Setup {
    let dim = |draw: &mut Draw<'_>, name: &str| draw.within(protocol().range(name));
    Setup {
        rollback: ROLLBACKS[usize::from(draw.below(ROLLBACKS.len() as u8))].1,
        io: mostly_first(draw, "io"),
        state: mostly_first(draw, "state"),
        sequences: dim(draw, "sequences"),
        capacity: dim(draw, "capacity"),
        gdn_layers: dim(draw, "gdn_layers"),
        attention_layers: {
            let [least, most] = protocol().range("attention_layers");
            if draw.one_in(4) { most } else { least }
        },
    }
}

/// The simplest type three times in four, else the last.
fn mostly_first(draw: &mut Draw<'_>, symbol: &str) -> DType {
    let types = protocol().dtypes.get(symbol).map_or(&[][..], Vec::as_slice);
    let which = if draw.one_in(4) { types.last() } else { types.first() };
    which.copied().unwrap_or(DType::F32)
}

/// Bounds of an event's argument.
fn rows_of(event: &str) -> [u8; 2] {
    protocol().events.get(event).and_then(|event| event.rows).map_or([1, 1], |rows| rows.range)
}

/// The next event.
pub fn next_step(progress: &Progress, draw: &mut Draw<'_>) -> Step {
    let sequence = draw.below(progress.setup.sequences);
    let Standing { state, length, verify_rows: rows } = progress.sequences[usize::from(sequence)];
    let room = progress.setup.capacity.saturating_sub(length);
    if draw.one_in(protocol().limits.illegal_one_in) {
        // Just past what is legal, or anything.
        let past = match state {
            "staged" if draw.below(3) == 0 => {
                Some(Event::Commit(if draw.below(2) == 0 { 0 } else { rows + 1 }, None))
            }
            "idle" if room < 10 && draw.below(3) == 0 => Some(Event::Begin(room + 1)),
            _ => None,
        };
        if let Some(event) = past {
            return Step { sequence, event, stale: false };
        }
        let stale = draw.one_in(3);
        let event = any_event(draw);
        let takes_ticket = protocol().events.get(event.name()).is_some_and(|event| event.by_ticket);
        return Step { sequence, event, stale: stale && takes_ticket };
    }
    let event = match state {
        "released" => Event::Acquire,
        "idle" if room == 0 => Event::Release,
        "idle" => match draw.below(10) {
            0..=4 if room >= 2 => Event::Begin(verify_rows(draw, room)),
            5 | 6 => Event::Prefill({
                let [least, most] = rows_of("prefill");
                draw.within([least, most.min(room)])
            }),
            7 | 8 => Event::Decode,
            9 => Event::Release,
            _ => Event::Decode,
        },
        "open" => match draw.below(8) {
            0..=5 => Event::Verify(draw.one_in(5).then(|| failure(draw, "verify"))),
            6 => Event::Abort(None),
            _ => Event::Drop { unwinds: draw.below(2) == 1 },
        },
        "staged" => match draw.below(8) {
            0..=4 => {
                let kept = draw.within([1, rows]);
                Event::Commit(kept, draw.one_in(5).then(|| failure(draw, "commit")))
            }
            5 => Event::Abort(draw.one_in(6).then(|| failure(draw, "abort"))),
            6 => Event::Abort(None),
            _ => Event::Drop { unwinds: draw.below(2) == 1 },
        },
        _ => match draw.below(2) {
            0 => Event::Abort(None),
            _ => Event::Drop { unwinds: draw.below(2) == 1 },
        },
    };
    Step { sequence, event, stale: false }
}

/// Legal, and often at an edge: the least, the trained 8 and one more, the most, all there is room for.
fn verify_rows(draw: &mut Draw<'_>, room: u8) -> u8 {
    let [least, most] = rows_of("begin");
    let most = most.min(room);
    let rows = match draw.below(6) {
        0 => least,
        1 => 8 + draw.below(3),
        2 => most,
        _ => draw.within([least, most]),
    };
    rows.min(most)
}

fn failure(draw: &mut Draw<'_>, event: &str) -> Failure {
    let failing = protocol().events.get(event).and_then(|event| event.failing.as_ref());
    let launches = failing.map_or(1, |failing| failing.launches);
    let at = draw.below(launches);
    if draw.below(2) == 0 { Failure::Once(at) } else { Failure::Lasting(at) }
}

fn any_event(draw: &mut Draw<'_>) -> Event {
    match draw.below(9) {
        0 => Event::Prefill(draw.within([1, 12])),
        1 => Event::Decode,
        2 => Event::Begin(draw.below(13)),
        3 => Event::Verify(draw.one_in(4).then(|| failure(draw, "verify"))),
        4 => Event::Commit(draw.below(13), draw.one_in(4).then(|| failure(draw, "commit"))),
        5 => Event::Abort(draw.one_in(4).then(|| failure(draw, "abort"))),
        6 => Event::Drop { unwinds: draw.below(2) == 1 },
        7 => Event::Release,
        _ => Event::Acquire,
    }
}

/// Goes on with a history, to so many events at most, as long as there is something to draw from.
fn go_on(history: &mut History, progress: &mut Progress, draw: &mut Draw<'_>, most: usize) {
    while history.steps.len() < most && !draw.is_used_up() {
        let step = next_step(progress, draw);
        progress.after(&step);
        history.steps.push(step);
    }
}

fn begun(setup: Setup) -> (History, Progress) {
    (History { setup, steps: Vec::new() }, Progress::new(setup))
}

/// The history of a seed.
pub fn history_of_seed(seed: u64) -> History {
    let mut draw = Draw::Seeded(seed, 0);
    let most = 4 + usize::from(draw.below(protocol().limits.events - 4));
    let (mut history, mut progress) = begun(setup(&mut draw));
    go_on(&mut history, &mut progress, &mut draw, most);
    history
}

/// The history of a fuzzer's bytes: the first says how many events follow those that the others make, so
/// that a short input, too, is a long history.
pub fn history_of_bytes(bytes: &[u8]) -> History {
    let Some((&further, bytes)) = bytes.split_first() else { return begun(Setup::PLAIN).0 };
    let most = usize::from(protocol().limits.events);
    let seed = bytes.iter().fold(u64::from(further), |seed, byte| mixed(&[seed, u64::from(*byte)]));
    let (mut made, mut follows) = (Draw::Bytes(bytes), Draw::Seeded(seed, 0));
    let draw = if bytes.is_empty() { &mut follows } else { &mut made };
    let (mut history, mut progress) = begun(setup(draw));
    go_on(&mut history, &mut progress, &mut made, most);
    let all = history.steps.len() + usize::from(further) % (most + 1);
    go_on(&mut history, &mut progress, &mut follows, all.min(most));
    history
}
