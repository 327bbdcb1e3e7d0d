//! What threads owe each other, as `assay run` tells it: barriers that all reach, words that one of them
//! writes, results that follow from no order.

use super::{assay, folder, shows};

/// Half a warp leaves before the barrier; each block puts its number into `last`, one after the other.
const ORDERED: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry leaves(.param .u64 out) {
    .reg .pred %p1; .reg .b32 %r1; .reg .b64 %rd<4>;
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p1, %r1, 16;
    @%p1 ret;
    bar.sync 0;
    ld.param.u64 %rd1, [out];
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}
.visible .entry last(.param .u64 out) {
    .reg .b32 %r<3>; .reg .b64 %rd1;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x;
    atom.global.exch.b32 %r2, [%rd1], %r1;
    ret;
}
";

#[test]
fn strict_rules_are_asked_for() {
    let folder = folder();
    std::fs::write(folder.path().join("ordered.ptx"), ORDERED).expect("written");
    let with = |rest: &[&str], block: &str| {
        let launch = ["run", "ordered.ptx", "--entry", "leaves", "--grid", "1", "--block", block];
        assay(folder.path(), &[&launch, rest, &["--arg", "out:i32:16"][..]].concat())
    };
    shows(&with(&[], "32"), 0, &["clean"]);
    shows(
        &with(&["--strict"], "32"),
        1,
        &["barrier 0 has 16 of 32 threads", "PTX line 9: bar.sync 0", "PTX line 8: @%p1 ret"],
    );
    shows(&with(&["--strict"], "16"), 0, &["clean"]);
    shows(&with(&["--strict", "--no-checks"], "16"), 2, &["--no-checks"]);
}

/// Both blocks store their number to one word, by thread 3.
const COLLIDING: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry collide(.param .u64 out) {
    .reg .pred %p1; .reg .b32 %r<3>; .reg .b64 %rd1;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    setp.ne.u32 %p1, %r2, 3;
    @%p1 ret;
    st.global.u32 [%rd1], %r1;
    ret;
}
";

#[test]
fn both_parties_of_a_race_are_told_with_block_and_thread() {
    let folder = folder();
    std::fs::write(folder.path().join("colliding.ptx"), COLLIDING).expect("written");
    let launch = ["run", "colliding.ptx", "--grid", "2", "--block", "32", "--arg", "out:i32:1"];
    let said = assay(folder.path(), &launch);
    shows(&said, 1, &["block [1, 0, 0], thread [3, 0, 0]", "block [0, 0, 0], thread [3, 0, 0]"]);
    let said = assay(folder.path(), &[&launch[..], &["--format", "json"]].concat());
    let fault: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(fault["block_index"], serde_json::json!([1, 0, 0]));
    assert_eq!(fault["other"]["block_index"], serde_json::json!([0, 0, 0]));
    assert_eq!(fault["other"]["thread_index"], serde_json::json!([3, 0, 0]));
}

#[test]
fn results_that_depend_on_the_order_differ_with_it() {
    let folder = folder();
    std::fs::write(folder.path().join("ordered.ptx"), ORDERED).expect("written");
    let last = |rest: &[&str]| {
        let launch = ["run", "ordered.ptx", "--entry", "last", "--grid", "8", "--block", "1"];
        let said =
            assay(folder.path(), &[&launch, rest, &["--arg", "inout:fill:i32:1:-1"][..]].concat());
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        let line = said.out.lines().find(|line| line.contains("least")).expect("a summary");
        line.split("least ").nth(1).and_then(|rest| rest.split(',').next()).map(str::to_owned)
    };
    assert_eq!(last(&[]).as_deref(), Some("7"));
    let seeds: Vec<String> = (0..8).map(|seed: u32| seed.to_string()).collect();
    let drawn = || seeds.iter().map(|seed| last(&["--order", seed])).collect::<Vec<_>>();
    let (first, again) = (drawn(), drawn());
    assert_eq!(first, again, "a seed is an order");
    assert!(first.iter().any(|value| *value != first[0]), "{first:?}");
}
