//! The one fuzz target: the binary's name is the contract's.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target};
use properties::fuzzing::{Harness, Keep};
use std::cell::RefCell;

thread_local! {
    static HARNESS: RefCell<Harness> = RefCell::new(Harness::new(env!("CARGO_BIN_NAME")));
}

fuzz_target!(|bytes: &[u8]| -> Corpus {
    match HARNESS.with_borrow_mut(|harness| harness.run(bytes)) {
        Keep::Yes => Corpus::Keep,
        Keep::No => Corpus::Reject,
    }
});

fuzz_mutator!(|bytes: &mut [u8], size: usize, max_size: usize, seed: u32| {
    HARNESS.with_borrow(|harness| harness.mutate(bytes, size, max_size, seed))
});
