//! Speculative rounds under test: a history of events runs on the transaction of `kernels` and on the
//! plain model of `reference`, and after every event what each sequence has published must agree bit for
//! bit. Any list of events is a history: an event that is not legal has a refusal for its outcome. So a
//! failing history shrinks by leaving events out, is printed as a script, and is kept in
//! `corpora/speculative_round/`.

mod encode;
mod events;
mod failing;
mod fuzzing;
mod generate;
mod history;
mod machine;
mod modes;
mod protocol;
mod rows;
mod search;
mod shrink;
mod store;
mod violation;

pub use encode::{Tried, bytes_of_history};
pub use events::{Event, Failure, Step};
pub use fuzzing::{PLANTED_VARIABLE, RoundHarness};
pub use generate::{Draw, Progress, history_of_bytes, history_of_seed, next_step, setup};
pub use history::{History, Rollback, Setup};
pub use machine::{Did, Machine, Run, run, script};
pub use protocol::protocol;
pub use search::{Found, Search, search};
pub use shrink::{Shrunk, shrink};
pub use store::{
    CONTRACT, MeaningOfRound, RoundReplay, StoredHistory, is_history, read, replay, write,
};
pub use violation::{Invariant, Violation};
