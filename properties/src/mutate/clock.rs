//! Time that a thread ran, where the system tells it; else time that passed. Others on the machine do not
//! change the first.

use std::time::Instant;

/// A stopwatch of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    ran: Option<u64>,
}

impl Clock {
    /// Starts it, on the thread that will ask.
    pub fn start() -> Clock {
        Clock { started: Instant::now(), ran: ran_nanoseconds() }
    }

    /// Seconds since.
    pub fn seconds(&self) -> f64 {
        match (self.ran, ran_nanoseconds()) {
            (Some(then), Some(now)) => now.saturating_sub(then) as f64 * 1e-9,
            _ => self.started.elapsed().as_secs_f64(),
        }
    }
}

fn ran_nanoseconds() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
