//! Bytes as a history of speculative rounds; `ASSAY_PLANTED=NAME` plants a wrong decision.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use properties::fuzzing::Keep;
use properties::rounds::RoundHarness;
use std::cell::RefCell;

thread_local! {
    static HARNESS: RefCell<RoundHarness> = RefCell::new(RoundHarness::new());
}

fuzz_target!(|bytes: &[u8]| -> Corpus {
    match HARNESS.with_borrow_mut(|harness| harness.run(bytes)) {
        Keep::Yes => Corpus::Keep,
        Keep::No => Corpus::Reject,
    }
});
