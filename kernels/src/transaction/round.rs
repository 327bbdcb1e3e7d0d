//! Sequences and rounds as values that clean up after themselves: a [`Round`] that goes out of scope
//! unresolved is aborted, by a panic too.

use super::error::RoundError;
use super::geometry::Token;
use super::rounds::{Rounds, Sequence, Ticket};
use crate::backend::Backend;
use std::cell::RefCell;
use std::rc::Rc;

/// Rounds that several owners share, one thread's.
pub struct Session<B: Backend> {
    rounds: Rc<RefCell<Rounds<B>>>,
}

impl<B: Backend> Clone for Session<B> {
    fn clone(&self) -> Self {
        Session { rounds: Rc::clone(&self.rounds) }
    }
}

/// An open round; dropping it undoes it.
pub struct Round<B: Backend> {
    rounds: Rc<RefCell<Rounds<B>>>,
    ticket: Ticket,
}

impl<B: Backend> Session<B> {
    /// Shares these.
    pub fn new(rounds: Rounds<B>) -> Session<B> {
        Session { rounds: Rc::new(RefCell::new(rounds)) }
    }

    /// Calls `f` with the rounds.
    ///
    /// # Panics
    /// If `f` calls this again.
    pub fn with<T>(&self, f: impl FnOnce(&mut Rounds<B>) -> T) -> T {
        f(&mut self.rounds.borrow_mut())
    }

    /// As [`Rounds::begin`].
    ///
    /// # Errors
    /// Likewise.
    pub fn begin(&self, sequence: Sequence, proposals: &[Token]) -> Result<Round<B>, RoundError> {
        let ticket = self.with(|rounds| rounds.begin(sequence, proposals))?;
        Ok(Round { rounds: Rc::clone(&self.rounds), ticket })
    }
}

impl<B: Backend> Round<B> {
    /// Its ticket, for who resolves it by number.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// As [`Rounds::verify`].
    ///
    /// # Errors
    /// Likewise.
    pub fn verify(&mut self) -> Result<(), RoundError> {
        self.rounds.borrow_mut().verify(self.ticket)
    }

    /// As [`Rounds::commit`]; whatever fails, the round is over.
    ///
    /// # Errors
    /// Likewise.
    pub fn commit(self, rows: usize, next: Token) -> Result<(), RoundError> {
        self.rounds.borrow_mut().commit(self.ticket, rows, next)
    }

    /// As [`Rounds::abort`].
    ///
    /// # Errors
    /// Likewise.
    pub fn abort(self) -> Result<(), RoundError> {
        self.rounds.borrow_mut().abort(self.ticket)
    }
}

impl<B: Backend> Drop for Round<B> {
    fn drop(&mut self) {
        // Borrowed only by a call that panicked inside: its rounds are gone with it.
        if let Ok(mut rounds) = self.rounds.try_borrow_mut() {
            rounds.drop_round(self.ticket);
        }
    }
}
