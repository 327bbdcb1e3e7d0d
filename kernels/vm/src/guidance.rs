//! What a fuzz target may tell libFuzzer beside the branch edges the machine counts by itself. Without
//! the `libfuzzer` feature nothing happens.
//!
//! A harness has many thousand branches of its own, and libFuzzer would spend its time on inputs that
//! vary the harness alone. A target that does not want it links the functions through which
//! instrumented code speaks to libFuzzer (`--wrap=__sanitizer_cov_…`) to
//! `__sanitizer_ptx_vm_nothing`; the machine's counters are not told through them.

use crate::dispatch;

/// Marks a feature of the present input, for example a decision and its answer. Keys are hashed into
/// 16,384 counters of their own; a feature counts once an input.
pub fn count_feature(key: u64) {
    dispatch::count_feature(key);
}
