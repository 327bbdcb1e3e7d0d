//! A history as the bytes that decode to it: the draws that can make each event are tried in order until
//! they make it. Every edit of such bytes is a history as well, so a fuzzer goes on from what is known.

use super::generate::{Draw, Progress, history_of_bytes, next_step, setup};
use super::history::History;

/// Sequences of draws in order, the last number running fastest.
#[derive(Debug, Default)]
pub struct Tried {
    /// Each number drawn, and how many there were to draw from.
    drawn: Vec<(u8, u8)>,
    at: usize,
}

impl Tried {
    pub(super) fn below(&mut self, count: u8) -> u8 {
        if self.at == self.drawn.len() {
            self.drawn.push((0, count));
        }
        self.at += 1;
        self.drawn[self.at - 1].0
    }

    /// Goes on to the next sequence, if there is one.
    fn advance(&mut self) -> bool {
        self.drawn.truncate(self.at);
        self.at = 0;
        while let Some((number, count)) = self.drawn.pop() {
            if number + 1 < count {
                self.drawn.push((number + 1, count));
                return true;
            }
        }
        false
    }
}

/// The first draws that make what is wanted.
fn draws_of<T: PartialEq>(wanted: &T, made: impl Fn(&mut Draw<'_>) -> T) -> Option<Vec<u8>> {
    let mut tried = Tried::default();
    loop {
        if made(&mut Draw::Tried(&mut tried)) == *wanted {
            return Some(tried.drawn[..tried.at].iter().map(|(number, _)| *number).collect());
        }
        if !tried.advance() {
            return None;
        }
    }
}

/// The bytes of a history, or what of it no bytes make.
///
/// # Errors
/// The setup or the event that is never drawn.
pub fn bytes_of_history(history: &History) -> Result<Vec<u8>, String> {
    let setup = draws_of(&history.setup, setup)
        .ok_or_else(|| format!("no history is drawn with {:?}", history.setup))?;
    // No event follows those that the bytes make.
    let mut bytes = vec![0];
    bytes.extend(setup);
    let mut progress = Progress::new(history.setup);
    for (number, step) in history.steps.iter().enumerate() {
        let draws = draws_of(step, |draw| next_step(&progress, draw))
            .ok_or_else(|| format!("event {number}, `{step}`, is never drawn there"))?;
        bytes.extend(draws);
        progress.after(step);
    }
    if history_of_bytes(&bytes) == *history {
        Ok(bytes)
    } else {
        Err(format!("{} events are more than are drawn", history.steps.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::events::{Event, Step};
    use super::super::generate::history_of_seed;
    use super::super::history::Setup;
    use super::super::protocol::protocol;
    use super::*;

    #[test]
    fn what_is_drawn_is_encoded_and_decodes_to_the_same() {
        for seed in 0..40 {
            let history = history_of_seed(0xe6c0 + seed);
            let bytes = bytes_of_history(&history).unwrap_or_else(|why| panic!("{seed}: {why}"));
            assert_eq!(history_of_bytes(&bytes), history, "seed {seed}");
        }
    }

    #[test]
    fn the_first_byte_adds_events_and_changes_none() {
        let history = history_of_seed(0xadd);
        let mut bytes = bytes_of_history(&history).unwrap_or_else(|why| panic!("{why}"));
        let most = usize::from(protocol().limits.events);
        for further in [1, 5, most] {
            bytes[0] = further as u8;
            let longer = history_of_bytes(&bytes);
            assert_eq!(longer.steps.len(), (history.steps.len() + further).min(most));
            assert_eq!(longer.steps[..history.steps.len()], history.steps);
        }
        assert_eq!(history_of_bytes(&[7]).steps.len(), 7, "of no other byte");
    }

    #[test]
    fn what_is_never_drawn_is_told() {
        let step = |event| Step { sequence: 0, event, stale: false };
        let history = |steps| History { setup: Setup::PLAIN, steps };
        let endless = bytes_of_history(&history(vec![step(Event::Prefill(200))]));
        assert!(endless.expect_err("never drawn").contains("`s0 prefill 200`"));
        let stranger = Step { sequence: 2, event: Event::Decode, stale: false };
        assert!(bytes_of_history(&history(vec![stranger])).is_err(), "there is one sequence");
        let wide = Setup { capacity: 99, ..Setup::PLAIN };
        let error = bytes_of_history(&History { setup: wide, steps: Vec::new() });
        assert!(error.expect_err("never drawn").contains("capacity: 99"));
        let most = usize::from(protocol().limits.events);
        let long = history(vec![step(Event::Release); most + 1]);
        assert!(bytes_of_history(&long).is_err(), "longer than any that is drawn");
    }
}
