//! What a person or a program is told about findings and runs. Text says what a kernel engineer needs
//! to see the fault without a debugger; JSON has the same under keys that do not change.

mod clause;
pub(crate) mod explain;
mod finding;
mod mutation;
mod paint;
mod replays;
mod summary;

pub use clause::promise;
pub use explain::explain;
pub use finding::{finding, finding_json};
pub use mutation::{mutation, mutation_json};
pub use paint::Paint;
pub use replays::{replays, replays_json};
pub use summary::{canary, summary, summary_json};
