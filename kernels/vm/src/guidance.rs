//! What a fuzz target may tell libFuzzer beside the branch edges the machine counts by itself. Without
//! the `libfuzzer` feature nothing happens.

use crate::dispatch;

/// Marks a feature of the present input, for example a decision and its answer. Keys are hashed into
/// 16,384 counters of their own; a feature counts once an input.
pub fn count_feature(key: u64) {
    dispatch::count_feature(key);
}

/// Forgets which branches of the host's own instrumented code the present input took. A harness has
/// many thousand of them, and libFuzzer would spend its time on inputs that vary the harness alone.
pub fn forget_host_code() {
    dispatch::forget_host_code();
}
