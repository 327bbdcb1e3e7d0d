//! Speculative rounds: a few proposed rows run ahead of what is decided, a prefix of them is kept, the
//! rest never was. [`Rounds`] owns the states, convolution windows and rows of keys and values of some
//! sequences and moves them through rounds on either backend; [`Round`] resolves itself when dropped.
//!
//! ```text
//!          begin          verify          commit(c)
//!   idle ────────▶ open ─────────▶ staged ─────────▶ idle, c rows longer
//!                   │  └─ fails ▶ failed │
//!                   └────────┴───────┴───┴─ abort, drop ─▶ idle, as before
//! ```
//!
//! Invariant: what a sequence has published (its length, rows of keys and values, states and windows,
//! last token and count of rounds) changes as a whole or not at all. A device error that leaves it in
//! doubt makes the sequence broken, and a broken one is refused everything.

mod error;
mod geometry;
mod observe;
mod planted;
mod pool;
mod round;
mod rounds;
pub mod state_scatter;

pub use error::{Refusal, RoundError};
pub use geometry::{Geometry, MOST_VERIFY_ROWS, Projections, Rollback, Token, VERIFY_ROWS};
pub use observe::{Outputs, Published};
pub use planted::Planted;
pub use round::{Round, Session};
pub use rounds::{Rounds, Sequence, Stage, Ticket};
