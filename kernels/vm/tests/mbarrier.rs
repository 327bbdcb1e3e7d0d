//! mbarriers: pipelines that must run in silence, with their results, and each misuse that must be
//! named. Threads number along x.

mod support;

use ptx_vm::{Fault, FaultKind, MbarrierFault, RaceKind, Schedule, Stop};
use support::block::Block;

const BLOCK: Block = Block { words: 64, mbarriers: 2, shared_bytes: 512 };

fn run(threads: u32, code: &str) -> Result<Vec<u32>, Stop> {
    BLOCK.run(threads, Schedule::InOrder, code)
}

fn fine(threads: u32, code: &str) -> Vec<u32> {
    run(threads, code).unwrap_or_else(|stop| panic!("{code}: {stop}"))
}

fn fault(threads: u32, code: &str) -> FaultKind {
    match run(threads, code) {
        Err(Stop::Fault(fault)) => fault.kind,
        other => panic!("{code}: {other:?}"),
    }
}

fn misuse(threads: u32, code: &str) -> MbarrierFault {
    match fault(threads, code) {
        FaultKind::Mbarrier { wrong, .. } => wrong,
        other => panic!("{code}: {other}"),
    }
}

/// One thread initialises both for `count` arrivals; all see it.
fn init(count: u32) -> String {
    format!(
        "@%p8 mbarrier.init.shared::cta.b64 [%r2], {count};@%p8 mbarrier.init.shared::cta.b64 [%r2+8], {count};\n\
         fence.mbarrier_init.release.cluster;fence.proxy.async.shared::cta;bar.sync 0;\n"
    )
}

/// Waits for the parity at the address.
fn wait(label: &str, at: &str, parity: &str) -> String {
    format!(
        "{label}: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p7, [{at}], {parity};@!%p7 bra {label};\n"
    )
}

/// Every thread stores a word, arrives, waits and reads its neighbour's.
fn exchange(arrive_and_wait: &str) -> String {
    format!(
        "{}ld.global.u32 %r4, [%rd3];st.shared.u32 [%r31], %r4;\n{arrive_and_wait}\n\
         xor.b32 %r5, %r30, 4;add.u32 %r5, %r5, %r3;ld.shared.u32 %r6, [%r5];st.global.u32 [%rd4], %r6;",
        init(64)
    )
}

fn neighbours() -> Vec<u32> {
    (0..64).map(|i| 1000 + 7 * (i ^ 1)).collect()
}

#[test]
fn a_state_waits_for_its_phase() {
    for arrive in [
        "mbarrier.arrive.shared.b64 %rd10, [%r2];",
        "mbarrier.arrive.release.cta.shared::cta.b64 %rd10, [%r2], 1;",
        "cvta.shared.u64 %rd11, %rd12;mbarrier.arrive.b64 %rd10, [%rd11];",
        "setp.ne.u32 %p1, %r1, 63;@%p1 mbarrier.arrive.noComplete.release.cta.shared.b64 %rd10, [%r2], 1;@!%p1 mbarrier.arrive.shared.b64 %rd10, [%r2];",
    ] {
        for test in ["mbarrier.test_wait.shared.b64", "mbarrier.try_wait.shared::cta.b64"] {
            let code = format!(
                "cvt.u64.u32 %rd12, %r2;{arrive}\nL: {test} %p1, [%r2], %rd10;@!%p1 bra L;"
            );
            assert_eq!(fine(64, &exchange(&code)), neighbours());
        }
    }
}

#[test]
fn a_parity_waits_for_its_phase() {
    let code = format!("mbarrier.arrive.shared::cta.b64 _, [%r2];\n{}", wait("L", "%r2", "0"));
    assert_eq!(fine(64, &exchange(&code)), neighbours());
    // Without the wait the neighbour may not have stored yet.
    let kind = fault(64, &exchange("mbarrier.arrive.shared::cta.b64 _, [%r2];"));
    let race = matches!(kind, FaultKind::SharedRace { race: RaceKind::ReadAfterWrite, .. });
    assert!(race || matches!(kind, FaultKind::Uninitialised { .. }), "{kind}");
}

#[test]
fn lanes_of_one_warp_wait_for_each_other() {
    // Lane 1 arrives only on a way that lane 0 waits before.
    let code = format!(
        "{}@%p8 bra W;st.shared.u32 [%r3], 77;mbarrier.arrive.shared::cta.b64 _, [%r2];bra E;\n\
         W: {}ld.shared.u32 %r4, [%r3];st.global.u32 [%rd2], %r4;E:",
        init(1),
        wait("L", "%r2", "0")
    );
    assert_eq!(fine(2, &code)[0], 77);
}

#[test]
fn dropped_threads_are_not_missed_in_later_phases() {
    // Thread 1 leaves in phase 0; thread 0 completes phases 1 and 2 alone.
    let code = format!(
        "{}@!%p8 bra D;mbarrier.arrive.shared::cta.b64 _, [%r2];{}mbarrier.arrive.shared::cta.b64 _, [%r2];{}\
         mbarrier.arrive.shared::cta.b64 %rd10, [%r2];mbarrier.pending_count.b64 %r4, %rd10;st.global.u32 [%rd2], %r4;bra E;\n\
         D: mbarrier.arrive_drop.shared::cta.b64 _, [%r2];E:",
        init(2),
        wait("L", "%r2", "0"),
        wait("M", "%r2", "1")
    );
    assert_eq!(fine(2, &code)[0], 1);
}

/// Two stages of 32 words: warp 0 loads, warp 1 adds one; each stage has a full mbarrier in `m`
/// and an empty one in `e`.
fn pipeline(consumer_waits: bool, expected_bytes: u32, rounds: u32) -> String {
    let consume = if consumer_waits { wait("C", "%r20", "%r11") } else { String::new() };
    format!(
        ".shared .align 8 .b8 e[16];mov.u32 %r9, e;\n\
         @%p8 mbarrier.init.shared::cta.b64 [%r2], 1;@%p8 mbarrier.init.shared::cta.b64 [%r2+8], 1;\n\
         @%p8 mbarrier.init.shared::cta.b64 [%r9], 32;@%p8 mbarrier.init.shared::cta.b64 [%r9+8], 32;fence.proxy.async;bar.sync 0;\n\
         mov.u32 %r10, 0;setp.ge.u32 %p1, %r1, 32;@%p1 bra CONSUMER;@!%p8 bra E;\n\
         P: and.b32 %r12, %r10, 1;shr.u32 %r11, %r10, 1;and.b32 %r11, %r11, 1;xor.b32 %r13, %r11, 1;\n\
         shl.b32 %r14, %r12, 3;add.u32 %r20, %r2, %r14;add.u32 %r21, %r9, %r14;shl.b32 %r15, %r12, 7;add.u32 %r22, %r3, %r15;\n\
         {}mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], {expected_bytes};\n\
         cvt.u64.u32 %rd5, %r15;add.s64 %rd5, %rd5, %rd1;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r22], [%rd5], 128, [%r20];\n\
         add.u32 %r10, %r10, 1;setp.lt.u32 %p2, %r10, {rounds};@%p2 bra P;bra E;\n\
         CONSUMER: sub.u32 %r17, %r1, 32;shl.b32 %r17, %r17, 2;\n\
         Q: and.b32 %r12, %r10, 1;shr.u32 %r11, %r10, 1;and.b32 %r11, %r11, 1;shl.b32 %r14, %r12, 3;add.u32 %r20, %r2, %r14;add.u32 %r21, %r9, %r14;\n\
         shl.b32 %r15, %r12, 7;add.u32 %r22, %r3, %r15;add.u32 %r22, %r22, %r17;\n\
         {consume}ld.shared.u32 %r4, [%r22];mbarrier.arrive.shared::cta.b64 _, [%r21];\n\
         add.u32 %r15, %r15, %r17;cvt.u64.u32 %rd6, %r15;add.s64 %rd6, %rd6, %rd2;ld.global.u32 %r5, [%rd6];add.u32 %r5, %r5, %r4;st.global.u32 [%rd6], %r5;\n\
         add.u32 %r10, %r10, 1;setp.lt.u32 %p2, %r10, {rounds};@%p2 bra Q;E:",
        wait("F", "%r21", "%r13")
    )
}

#[test]
fn bulk_copies_through_two_stages() {
    // Each stage twice and once more; the last empty phases stay as they are.
    let got = fine(64, &pipeline(true, 128, 5));
    let want: Vec<u32> = (0..64).map(|i| (1000 + 7 * i) * if i < 32 { 3 } else { 2 }).collect();
    assert_eq!(got, want);
    let kind = fault(64, &pipeline(false, 128, 5));
    let race = matches!(kind, FaultKind::SharedRace { .. });
    assert!(race || matches!(kind, FaultKind::Uninitialised { .. }), "{kind}");
}

#[test]
fn wrong_byte_counts_starve_or_leak() {
    let wrong = misuse(64, &pipeline(true, 144, 2));
    assert_eq!(wrong, MbarrierFault::NoProgress { phase: 0, pending: 0, bytes: 16 });
    let code = format!("{}@%p8 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;", init(1));
    assert_eq!(misuse(32, &code), MbarrierFault::Leaked { bytes: 16 });
    let code = format!(
        "{}@%p8 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 64, [%r2];",
        init(1)
    );
    assert_eq!(misuse(32, &code), MbarrierFault::Leaked { bytes: -64 });
    let code =
        format!("{}@%p8 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 0x100000;", init(1));
    assert_eq!(misuse(32, &code), MbarrierFault::TooManyBytes { bytes: 1 << 20 });
}

#[test]
fn bytes_may_come_before_they_are_expected() {
    let code = format!(
        "{}@!%p8 bra E;cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 64, [%r2];\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 64;{}ld.shared.u32 %r4, [%r3+60];st.global.u32 [%rd2], %r4;E:",
        init(1),
        wait("L", "%r2", "0")
    );
    assert_eq!(fine(1, &code)[0], 1000 + 7 * 15);
    let code = code.replace("64;", "64;ld.shared.u32 %r4, [%r3];");
    assert!(matches!(fault(1, &code), FaultKind::Uninitialised { .. }));
}

#[test]
fn bulk_copies_out_of_shared_memory() {
    let code = "mul.lo.u32 %r4, %r1, 3;add.u32 %r31, %r3, %r30;st.shared.u32 [%r31], %r4;fence.proxy.async.shared::cta;bar.sync 0;\n\
        @%p8 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 256;@%p8 cp.async.bulk.commit_group;@%p8 cp.async.bulk.wait_group.read 0;";
    assert_eq!(fine(64, code), (0..64).map(|i| 3 * i).collect::<Vec<_>>());
    let early = code.replace("bar.sync 0;", "");
    assert!(matches!(
        fault(64, &early),
        FaultKind::Uninitialised { .. } | FaultKind::SharedRace { .. }
    ));
    let beyond = code.replace("[%rd2]", "[%rd2+16]");
    assert!(matches!(fault(64, &beyond), FaultKind::OutOfBounds { .. }));
    let crooked = code.replace("[%rd2]", "[%rd2+8]").replace(", 256", ", 128");
    assert!(matches!(fault(64, &crooked), FaultKind::Misaligned { .. }));
}

#[test]
fn copies_come_with_the_phase_that_tracks_them() {
    let code = |arrive: &str, read: &str| {
        format!(
            "{}cp.async.ca.shared.global [%r31], [%rd3], 4;\n{arrive}\n{}xor.b32 %r5, %r30, 4;add.u32 %r5, %r5, %r3;ld.shared.u32 %r6, [%r5];st.global.u32 [%rd4], %r6;",
            init(64),
            read
        )
    };
    let wait = wait("L", "%r2", "0");
    for arrive in [
        "cp.async.mbarrier.arrive.noinc.shared.b64 [%r2];",
        "cp.async.mbarrier.arrive.shared::cta.b64 [%r2];mbarrier.arrive.shared::cta.b64 _, [%r2];",
    ] {
        assert_eq!(fine(64, &code(arrive, &wait)), neighbours());
        assert!(matches!(fault(64, &code(arrive, "")), FaultKind::Uninitialised { .. }));
    }
    // A plain arrival says nothing of copies.
    let plain = code("mbarrier.arrive.shared::cta.b64 _, [%r2];", &wait);
    assert!(matches!(fault(64, &plain), FaultKind::Uninitialised { .. }));
    // Lanes of one copy may track it at different mbarriers.
    let parted = "and.b32 %r7, %r1, 1;shl.b32 %r7, %r7, 3;add.u32 %r7, %r7, %r2;cp.async.mbarrier.arrive.noinc.shared.b64 [%r7];";
    let both = format!("{wait}{}", self::wait("M", "%r2+8", "0"));
    let halves = code(parted, &both).replace("], 64;", "], 32;");
    assert_eq!(fine(64, &halves), neighbours());
}

#[test]
fn each_misuse_has_its_name() {
    let misuse =
        |threads, count: u32, code: &str| misuse(threads, &format!("{}{code}", init(count)));
    assert_eq!(
        super_misuse("mbarrier.arrive.shared::cta.b64 _, [%r2];"),
        MbarrierFault::Uninitialised
    );
    assert_eq!(
        super_misuse("mbarrier.init.shared.b64 [%r2], 0;"),
        MbarrierFault::BadCount { count: 0 }
    );
    assert_eq!(
        misuse(1, 1, "mbarrier.inval.shared.b64 [%r2];mbarrier.arrive.shared::cta.b64 _, [%r2];"),
        MbarrierFault::Uninitialised
    );
    assert_eq!(
        misuse(1, 2, "mbarrier.arrive.shared::cta.b64 _, [%r2], 3;"),
        MbarrierFault::OverArrived { pending: 2, count: 3 }
    );
    assert_eq!(
        misuse(
            2,
            1,
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 16;mbarrier.arrive.shared::cta.b64 _, [%r2];"
        ),
        MbarrierFault::OverArrived { pending: 0, count: 1 }
    );
    assert_eq!(
        misuse(1, 1, "mbarrier.arrive.noComplete.release.cta.shared.b64 %rd10, [%r2], 1;"),
        MbarrierFault::Completes { pending: 1 }
    );
    let twice =
        "mbarrier.arrive.shared::cta.b64 %rd10, [%r2];mbarrier.arrive.shared::cta.b64 _, [%r2];";
    assert_eq!(
        misuse(1, 1, &format!("{twice}mbarrier.test_wait.shared.b64 %p1, [%r2], %rd10;")),
        MbarrierFault::StalePhase { tested: 0, current: 2 }
    );
    assert_eq!(misuse(1, 1, &wait("L", "%r2", "2")), MbarrierFault::BadParity { parity: 2 });
    // The wrong parity waits for a phase that nobody brings.
    assert_eq!(
        misuse(
            64,
            64,
            &format!("mbarrier.arrive.shared::cta.b64 _, [%r2];{}", wait("L", "%r2", "1"))
        ),
        MbarrierFault::NoProgress { phase: 1, pending: 64, bytes: 0 }
    );
    // A thread that exits without its arrival starves the others.
    assert_eq!(
        misuse(
            64,
            64,
            &format!("@%p8 ret;mbarrier.arrive.shared::cta.b64 _, [%r2];{}", wait("L", "%r2", "0"))
        ),
        MbarrierFault::NoProgress { phase: 0, pending: 1, bytes: 0 }
    );
}

fn told(threads: u32, code: &str) -> Fault {
    match run(threads, code) {
        Err(Stop::Fault(fault)) => *fault,
        other => panic!("{code}: {other:?}"),
    }
}

fn told_of(code: &str) -> Fault {
    told(1, code)
}

/// Without anybody's initialisation.
fn super_misuse(code: &str) -> MbarrierFault {
    misuse(1, code)
}

#[test]
fn an_initialisation_that_others_may_miss_is_a_race() {
    let code =
        "@%p8 mbarrier.init.shared::cta.b64 [%r2], 64;mbarrier.arrive.shared::cta.b64 _, [%r2];";
    let told = told(64, code);
    let unordered = FaultKind::Mbarrier { offset: 0, wrong: MbarrierFault::UnorderedInit };
    assert_eq!(told.kind, unordered);
    let init = told.other.as_ref().unwrap();
    assert!(init.instruction.contains("mbarrier.init"), "{told}");
    assert_eq!(init.thread, Some([0, 0, 0]));
    assert!(told.to_string().contains("; its initialisation is PTX line"), "{told}");
    // Who comes first finds none at all, and the report says where the only one is.
    let late = "setp.lt.u32 %p1, %r1, 32;@%p1 bra W;@%p1 ret;setp.eq.u32 %p2, %r1, 32;@%p2 mbarrier.init.shared.b64 [%r2], 32;bra E;\n\
        W: mbarrier.arrive.shared.b64 _, [%r2];E:";
    let told = self::told(64, late);
    let none = FaultKind::Mbarrier { offset: 0, wrong: MbarrierFault::Uninitialised };
    assert_eq!(told.kind, none);
    assert!(told.to_string().contains("; the kernel's only initialisation is PTX line"), "{told}");
    let none = told_of("mbarrier.arrive.shared.b64 _, [%r2];");
    assert!(none.other.is_none(), "{none}");
    let synced = code.replace(";mbarrier.arrive", ";bar.sync 0;mbarrier.arrive");
    fine(64, &synced);
    // In one warp its own barrier is enough.
    let warp = code
        .replace("], 64;", "], 32;")
        .replace(";mbarrier.arrive", ";bar.warp.sync -1;mbarrier.arrive");
    fine(32, &warp);
}

#[test]
fn correct_oddities_are_silent() {
    // The phase before the first counts as complete; an mbarrier may be used anew; a thread may ask
    // again and again before it is brought what it waits for by a slower one.
    fine(1, &format!("{}{}", init(1), wait("L", "%r2", "1")));
    fine(
        1,
        &format!("{}mbarrier.inval.shared.b64 [%r2];mbarrier.init.shared.b64 [%r2], 5;", init(1)),
    );
    let slow = format!(
        "{}setp.ge.u32 %p1, %r1, 32;@%p1 bra S;{}bra E;S: mov.u32 %r4, 0;\n\
         T: add.u32 %r4, %r4, 1;setp.lt.u32 %p2, %r4, 2000000;@%p2 bra T;mbarrier.arrive.shared::cta.b64 _, [%r2];E:",
        init(32),
        wait("L", "%r2", "0")
    );
    fine(64, &slow);
}

/// Waits as libraries do: some tests, then by the clock with growing pauses; after `limit`
/// nanoseconds it gives up.
fn timed_wait(limit: &str) -> String {
    format!(
        "mov.u64 %rd15, %globaltimer;mov.u32 %r20, 0;\n\
         W: mbarrier.try_wait.parity.shared.b64 %p7, [%r2], 0;@%p7 bra D;\n\
         add.u32 %r20, %r20, 1;setp.lt.u32 %p6, %r20, 16;@%p6 bra W;\n\
         mov.u64 %rd16, %globaltimer;sub.s64 %rd16, %rd16, %rd15;setp.gt.s64 %p6, %rd16, {limit};@%p6 bra D;\n\
         setp.lt.s64 %p6, %rd16, 40000;@%p6 bra W;shr.u64 %rd16, %rd16, 2;cvt.u32.u64 %r21, %rd16;nanosleep.u32 %r21;bra W;\n\
         D:\n"
    )
}

#[test]
fn a_wait_by_the_clock_that_nobody_ends_is_found() {
    const NEVER: &str = "0x7fffffffffffffff";
    for threads in [1, 32, 96] {
        let starved = format!(
            "{}@%p8 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 64;{}",
            init(1),
            timed_wait(NEVER)
        );
        assert_eq!(
            misuse(threads, &starved),
            MbarrierFault::NoProgress { phase: 0, pending: 0, bytes: 64 }
        );
    }
    let missing = format!("{}mbarrier.arrive.shared.b64 _, [%r2];{}", init(33), timed_wait(NEVER));
    assert_eq!(misuse(32, &missing), MbarrierFault::NoProgress { phase: 0, pending: 1, bytes: 0 });
    // Another looks at the clock for a long time before it helps, pausing meanwhile.
    let slow = format!(
        "{}setp.ge.u32 %p1, %r1, 32;@%p1 bra S;{}bra E;\n\
         S: mov.u64 %rd17, %globaltimer;T: nanosleep.u32 1000;mov.u64 %rd18, %globaltimer;sub.s64 %rd18, %rd18, %rd17;\n\
         setp.lt.s64 %p2, %rd18, 600000000;@%p2 bra T;mbarrier.arrive.shared.b64 _, [%r2];E:",
        init(32),
        timed_wait(NEVER)
    );
    fine(64, &slow);
    // It gives up in time, and that is right.
    fine(32, &format!("{}{}", init(1), timed_wait("100000000")));
}

#[test]
fn bytes_on_their_way_are_told_with_their_copy() {
    let named = |code: &str, copy: &str, thread: u32| {
        let told = told(64, code);
        assert!(matches!(told.kind, FaultKind::Uninitialised { .. }), "{told}");
        let other = told.other.clone().unwrap_or_else(|| panic!("{told}"));
        assert!(other.instruction.contains(copy), "{told}");
        assert_eq!(other.thread, Some([thread, 0, 0]));
        assert!(told.to_string().contains("; a copy that nobody waited for brings them: PTX line"));
    };
    let bulk = format!(
        "{}@%p8 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 128;\n\
         @%p8 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 128, [%r2];\n\
         and.b32 %r4, %r30, 124;add.u32 %r4, %r4, %r3;ld.shared.u32 %r6, [%r4];",
        init(1)
    );
    named(&bulk, "cp.async.bulk", 0);
    let own = "cp.async.ca.shared.global [%r31], [%rd3], 4;\n";
    named(&format!("{own}bar.sync 0;ld.shared.u32 %r6, [%r3+20];"), "cp.async.ca", 5);
    named(
        &format!("{own}cp.async.commit_group;cp.async.wait_group 1;ld.shared.u32 %r6, [%r31];"),
        "cp.async.ca",
        0,
    );
    // Nobody copies there.
    let none = told(64, &format!("{own}ld.shared.u32 %r6, [%r3+256];"));
    assert!(none.other.is_none() && matches!(none.kind, FaultKind::Uninitialised { .. }), "{none}");
}

#[test]
fn a_misplaced_mbarrier_is_no_access() {
    assert!(matches!(
        fault(1, "mbarrier.init.shared.b64 [%r2+4], 1;"),
        FaultKind::Misaligned { .. }
    ));
    assert!(matches!(
        fault(1, "mbarrier.init.shared.b64 [%r2+16], 1;"),
        FaultKind::OutOfBounds { .. }
    ));
    assert!(matches!(fault(1, "mbarrier.init.b64 [%rd1], 1;"), FaultKind::OutOfBounds { .. }));
}

#[test]
fn a_store_before_a_warp_barrier_and_atomics_after_it_do_not_race() {
    let code = "@%p8 st.shared.u32 [%r3], 5;bar.warp.sync -1;red.shared.add.u32 [%r3], 2;bar.warp.sync -1;\n\
        @%p8 ld.shared.u32 %r4, [%r3];@%p8 st.global.u32 [%rd2], %r4;";
    assert_eq!(fine(32, code)[0], 69);
    assert!(matches!(
        fault(32, &code.replacen("bar.warp.sync -1;", "", 1)),
        FaultKind::SharedRace { .. }
    ));
}
