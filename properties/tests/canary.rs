//! The search must find the planted bug soon and shrink it to what a person sees at a glance.

use contracts::case::{Content, Fill, Layout};
use properties::search::{Plan, search};
use properties::subject::canary;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The kernel drops the tail of rows longer than 64 whose length is no multiple of four.
const SMALLEST_FAILING_LENGTH: i64 = 65;

#[test]
fn the_planted_tail_bug_is_found_and_shrunk_to_a_glance() {
    static STOP: AtomicBool = AtomicBool::new(false);
    for seed in [1, 2, 3, 4, 5] {
        let plan = Plan {
            subjects: vec![canary().expect("the canary loads")],
            cases_per_clause: u64::MAX,
            limit: Duration::from_secs(30),
            seed,
            threads: 1,
            corpora: None,
            shrink_limit: Duration::from_secs(20),
            findings_per_subject: 1,
        };
        let summary = search(plan, &STOP, &mut |_, _| {}).expect("the search runs");
        let finding = summary.subjects[0].findings.first().expect("the planted bug is found");
        assert!(
            finding.after_cases <= 200,
            "seed {seed}: found after {} cases",
            finding.after_cases
        );
        let case = &finding.shrunk.case;
        let length = case.dims["n"];
        assert!(
            (SMALLEST_FAILING_LENGTH..=SMALLEST_FAILING_LENGTH + 2).contains(&length),
            "seed {seed}: length {length}"
        );
        assert_eq!(case.dims["R"], 1, "seed {seed}");
        assert!(case.tensors.values().all(|tensor| tensor.layout == Layout::Dense), "seed {seed}");
        let Content::Sparse { fill: Fill::Bits(0), at } = &case.tensors["x"].content else {
            panic!("seed {seed}: x is not sparse over zero: {:?}", case.tensors["x"].content)
        };
        assert!((1..=4).contains(&at.len()), "seed {seed}: {} non-zero values", at.len());
    }
}
