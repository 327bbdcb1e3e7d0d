//! Histories from a seed or from a fuzzer's bytes. Legal events nine times in ten, by a record of where
//! each sequence stands; the tenth is anything.

use super::encode::Tried;
use super::events::{Event, Failure, Step};
use super::history::{CAPACITIES, History, MOST_EVENTS, MOST_SEQUENCES, Rollback, Setup};
use contracts::dtype::DType;
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

    fn within(&mut self, (least, most): (u8, u8)) -> u8 {
        least + self.below(most - least + 1)
    }

    fn one_in(&mut self, count: u8) -> bool {
        self.below(count) == count - 1
    }

    fn is_used_up(&self) -> bool {
        matches!(self, Draw::Bytes(bytes) if bytes.is_empty())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Released,
    Idle,
    Open,
    Staged,
    Failed,
}

/// Where each sequence of a history stands, as far as drawing the next event needs to know.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Where the history happens.
    pub setup: Setup,
    sequences: Vec<(Standing, u8, u8)>,
}

impl Progress {
    /// At the beginning.
    pub fn new(setup: Setup) -> Progress {
        Progress { setup, sequences: vec![(Standing::Idle, 0, 0); setup.sequences.into()] }
    }

    /// After an event.
    pub fn after(&mut self, step: &Step) {
        use Standing::{Failed, Idle, Open, Released, Staged};
        let capacity = self.setup.capacity;
        let Some((standing, length, rows)) = self.sequences.get_mut(usize::from(step.sequence))
        else {
            return;
        };
        if step.stale {
            return;
        }
        let room = |more: u8| length.saturating_add(more) <= capacity;
        match (step.event, *standing) {
            (Event::Prefill(more), Idle) if more <= 10 && room(more.max(1)) => {
                *length += more.max(1);
            }
            (Event::Decode, Idle) if room(1) => *length += 1,
            (Event::Begin(count), Idle) if (2..=10).contains(&count) && room(count) => {
                (*standing, *rows) = (Open, count);
            }
            (Event::Verify(failure), Open) => {
                *standing = if failure.is_some() { Failed } else { Staged };
            }
            (Event::Commit(kept, _), Staged) if (1..=*rows).contains(&kept) => {
                (*standing, *length) = (Idle, *length + kept);
            }
            (Event::Abort(_) | Event::Drop { .. }, Open | Staged | Failed) => *standing = Idle,
            (Event::Release, Idle) => *standing = Released,
            (Event::Acquire, Released) => (*standing, *length) = (Idle, 0),
            _ => {}
        }
    }
}

/// Where a history happens.
pub fn setup(draw: &mut Draw<'_>) -> Setup {
    let wide = |draw: &mut Draw<'_>, narrow| if draw.one_in(4) { narrow } else { DType::F32 };
    Setup {
        rollback: if draw.below(2) == 0 { Rollback::Checkpoint } else { Rollback::Snapshot },
        io: wide(draw, DType::BF16),
        state: wide(draw, DType::F16),
        sequences: draw.within((1, MOST_SEQUENCES)),
        capacity: draw.within(CAPACITIES),
        gdn_layers: draw.within((1, 2)),
        attention_layers: 1 + u8::from(draw.one_in(4)),
    }
}

/// The next event.
pub fn next_step(progress: &Progress, draw: &mut Draw<'_>) -> Step {
    let sequence = draw.below(progress.setup.sequences);
    let (standing, length, rows) = progress.sequences[usize::from(sequence)];
    let room = progress.setup.capacity.saturating_sub(length);
    if draw.one_in(10) {
        // Just past what is legal, or anything.
        let past = match standing {
            Standing::Staged if draw.below(3) == 0 => {
                Some(Event::Commit(if draw.below(2) == 0 { 0 } else { rows + 1 }, None))
            }
            Standing::Idle if room < 10 && draw.below(3) == 0 => Some(Event::Begin(room + 1)),
            _ => None,
        };
        if let Some(event) = past {
            return Step { sequence, event, stale: false };
        }
        let stale = draw.one_in(3);
        let event = any_event(draw);
        let takes_ticket = matches!(event, Event::Verify(_) | Event::Commit(..) | Event::Abort(_));
        return Step { sequence, event, stale: stale && takes_ticket };
    }
    let event = match standing {
        Standing::Released => Event::Acquire,
        Standing::Idle if room == 0 => Event::Release,
        Standing::Idle => match draw.below(10) {
            0..=4 if room >= 2 => Event::Begin(verify_rows(draw, room)),
            5 | 6 => Event::Prefill(draw.within((1, room.min(9)))),
            7 | 8 => Event::Decode,
            9 => Event::Release,
            _ => Event::Decode,
        },
        Standing::Open => match draw.below(8) {
            0..=5 => Event::Verify(draw.one_in(5).then(|| failure(draw, 6))),
            6 => Event::Abort(None),
            _ => Event::Drop { unwinds: draw.below(2) == 1 },
        },
        Standing::Staged => match draw.below(8) {
            0..=4 => {
                let kept = draw.within((1, rows));
                Event::Commit(kept, draw.one_in(5).then(|| failure(draw, 4)))
            }
            5 => Event::Abort(draw.one_in(6).then(|| failure(draw, 4))),
            6 => Event::Abort(None),
            _ => Event::Drop { unwinds: draw.below(2) == 1 },
        },
        Standing::Failed => match draw.below(2) {
            0 => Event::Abort(None),
            _ => Event::Drop { unwinds: draw.below(2) == 1 },
        },
    };
    Step { sequence, event, stale: false }
}

/// Legal, and often at an edge: the least, the trained 8 and one more, the most, all there is room for.
fn verify_rows(draw: &mut Draw<'_>, room: u8) -> u8 {
    let most = room.min(10);
    let rows = match draw.below(6) {
        0 => 2,
        1 => 8 + draw.below(3),
        2 => most,
        _ => draw.within((2, most)),
    };
    rows.min(most)
}

fn failure(draw: &mut Draw<'_>, launches: u8) -> Failure {
    let at = draw.below(launches);
    if draw.below(2) == 0 { Failure::Once(at) } else { Failure::Lasting(at) }
}

fn any_event(draw: &mut Draw<'_>) -> Event {
    match draw.below(9) {
        0 => Event::Prefill(draw.within((1, 12))),
        1 => Event::Decode,
        2 => Event::Begin(draw.below(13)),
        3 => Event::Verify(draw.one_in(4).then(|| failure(draw, 6))),
        4 => Event::Commit(draw.below(13), draw.one_in(4).then(|| failure(draw, 4))),
        5 => Event::Abort(draw.one_in(4).then(|| failure(draw, 4))),
        6 => Event::Drop { unwinds: draw.below(2) == 1 },
        7 => Event::Release,
        _ => Event::Acquire,
    }
}

fn drawn(draw: &mut Draw<'_>, most: usize) -> History {
    let setup = setup(draw);
    let mut progress = Progress::new(setup);
    let mut steps = Vec::new();
    while steps.len() < most && !draw.is_used_up() {
        let step = next_step(&progress, draw);
        progress.after(&step);
        steps.push(step);
    }
    History { setup, steps }
}

/// The history of a seed.
pub fn history_of_seed(seed: u64) -> History {
    let mut draw = Draw::Seeded(seed, 0);
    let most = 4 + usize::from(draw.below(MOST_EVENTS as u8 - 4));
    drawn(&mut draw, most)
}

/// The history of a fuzzer's bytes.
pub fn history_of_bytes(bytes: &[u8]) -> History {
    drawn(&mut Draw::Bytes(bytes), MOST_EVENTS)
}
