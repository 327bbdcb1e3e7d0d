//! In which order blocks start, blocks and warps take turns, and how long a turn is.
//! Invariant: everything follows from the schedule and the order of the calls.

use super::step::SLICE;
use std::ops::Range;

/// The order in which blocks and warps run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// Block after block and warp after warp, as far as nobody waits.
    #[default]
    InOrder,
    /// Some blocks at once, all and their warps in an order drawn from the seed, with turns of all
    /// lengths: results that depend on the order differ from seed to seed.
    Seeded(u64),
}

/// Blocks that a seeded schedule mixes.
const MIXED: usize = 4;
/// How far ahead a seeded schedule starts blocks.
const WINDOW: usize = 64;

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Below `n`, which is not 0.
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn draw(schedule: Schedule, stream: u64) -> Option<Draw> {
    match schedule {
        Schedule::InOrder => None,
        Schedule::Seeded(seed) => Some(Draw(seed ^ stream)),
    }
}

/// The blocks that have not started.
pub(super) struct Blocks {
    draw: Option<Draw>,
    next: u64,
    total: u64,
    /// Drawn from, ascending.
    window: Vec<u64>,
    room: usize,
    pub started: u64,
}

impl Blocks {
    /// Blocks 0 to `total`, of which `room` can be under way at once.
    pub fn new(schedule: Schedule, total: u64, room: usize) -> Blocks {
        let draw = draw(schedule, 0x0062_6c6f_636b);
        Blocks { draw, next: 0, total, window: Vec::new(), room, started: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// Blocks left to start.
    pub fn left(&self) -> u64 {
        self.total - self.next + self.window.len() as u64
    }

    /// The next to start beside so many others. The last free place is the lowest block's: whoever
    /// waits for blocks of lower numbers, as hardware starts them first, does not wait in vain.
    pub fn next(&mut self, under_way: usize) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        self.started += 1;
        let Some(draw) = &mut self.draw else {
            self.next += 1;
            return Some(self.next - 1);
        };
        while self.window.len() < WINDOW && self.next < self.total {
            self.window.push(self.next);
            self.next += 1;
        }
        let at = if under_way + 1 >= self.room { 0 } else { draw.below(self.window.len()) };
        Some(self.window.remove(at))
    }
}

/// Whose turn it is.
pub(super) struct Turns {
    draw: Option<Draw>,
}

impl Turns {
    pub fn new(schedule: Schedule) -> Turns {
        Turns { draw: draw(schedule, 0x7475_726e) }
    }

    pub fn in_order(&self) -> bool {
        self.draw.is_none()
    }

    /// Whether another block starts beside those under way, if it can; in order, one is asked for
    /// only when all wait.
    pub fn another(&mut self, under_way: usize) -> bool {
        match &mut self.draw {
            None => true,
            Some(draw) => under_way < MIXED || draw.below(4) == 0,
        }
    }

    /// Which of the blocks laid aside is next.
    pub fn pick(&mut self, aside: usize, steady: bool) -> usize {
        match &mut self.draw {
            Some(draw) if aside > 1 && !steady => draw.below(aside),
            _ => 0,
        }
    }

    /// Rounds of warps before others may run.
    pub fn rounds(&mut self, steady: bool) -> u64 {
        match &mut self.draw {
            Some(draw) if !steady => 1 + draw.next() % 32,
            _ => u64::MAX,
        }
    }

    /// Which of the warps that can run do so in a round.
    pub fn warps(&mut self, steady: bool, ready: impl Fn() -> usize) -> Range<usize> {
        match &mut self.draw {
            Some(draw) if !steady => {
                let w = draw.below(ready().max(1));
                w..w + 1
            }
            _ => 0..usize::MAX,
        }
    }

    /// Instructions of a turn.
    pub fn slice(&mut self, steady: bool) -> u64 {
        match &mut self.draw {
            Some(draw) if !steady => {
                let scale = draw.next() % 10;
                1 + draw.next() % (2 << scale)
            }
            _ => SLICE,
        }
    }
}
