//! Failures of real wrong kernels: shrunk, finished, and minimal over every single edit; the same again
//! from the same seed.

use properties::mutate::shrunk::planted;
use properties::subject::subject;

fn shrinks(name: &str, count: usize) {
    let subject = subject(name).expect("a subject");
    let (kernels, failures) = planted(subject, count, 21).expect("the tool works");
    assert_eq!(failures.len(), count, "{name}: too few wrong kernels fail");
    for failure in &failures {
        let [before, after] = failure.elements();
        assert!(failure.shrunk.finished, "{:?}", failure.mutant);
        // Thousands of ids are taken in runs.
        assert!(failure.shrunk.tried <= 500, "{name}: {} judged", failure.shrunk.tried);
        assert!(after <= before && after <= 64, "{name}: {after} of {before} elements left");
        let (edits, alike) = failure.single_edits(&kernels).expect("the tool works");
        assert!(alike.is_none(), "{:?}: {alike:?}", failure.mutant);
        println!(
            "{name}: {before} to {after} elements, {} judged, {edits} edits tried again",
            failure.shrunk.tried
        );
    }
    let (_, again) = planted(subject, 1, 21).expect("the tool works");
    assert_eq!(again[0].shrunk, failures[0].shrunk);
}

#[test]
fn the_canary_shrinks_to_a_minimum() {
    shrinks("canary_row_sum", 4);
}

#[test]
fn wrong_argmaxes_shrink_to_a_minimum() {
    shrinks("argmax_rows", 6);
}

#[test]
fn wrong_gathers_shrink_to_a_minimum() {
    shrinks("ple_gather", 6);
}

#[test]
fn wrong_decodes_shrink_to_a_minimum() {
    shrinks("gdn_decode", 3);
}
