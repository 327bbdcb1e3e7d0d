//! Order by the phases of mbarriers: what lies before an arrival is ordered before what follows a
//! wait for its phase, and nothing else is. Each handover that must run in silence has a wrong twin
//! whose race must be found. Threads number along x.

mod support;

use ptx_vm::{Fault, FaultKind, RaceKind, Schedule, Stop};
use support::block::Block;

const ORDERS: [Schedule; 5] = [
    Schedule::InOrder,
    Schedule::Seeded(1),
    Schedule::Seeded(2),
    Schedule::Seeded(3),
    Schedule::Seeded(4),
];

const BLOCK: Block = Block { words: 512, mbarriers: 4, shared_bytes: 2048 };

fn run(threads: u32, schedule: Schedule, code: &str) -> Result<Vec<u32>, Stop> {
    BLOCK.run(threads, schedule, code)
}

/// No order of the warps gives a report.
fn silent(threads: u32, code: &str) -> Vec<u32> {
    let all = ORDERS.map(|order| {
        run(threads, order, code).unwrap_or_else(|stop| panic!("{order:?}: {code}: {stop}"))
    });
    all[0].clone()
}

/// The race that each order of the warps gives.
fn races(threads: u32, code: &str) -> Vec<(RaceKind, Fault)> {
    let race = |order| match run(threads, order, code) {
        Err(Stop::Fault(fault)) => match fault.kind {
            FaultKind::SharedRace { race, .. } => (race, *fault),
            ref other => panic!("{order:?}: {code}: {other}"),
        },
        other => panic!("{order:?}: {code}: {other:?}"),
    };
    ORDERS.into_iter().map(race).collect()
}

/// Thread 0 initialises the first mbarriers for so many arrivals each.
fn init(counts: &[u32]) -> String {
    let one = |(i, count)| format!("@%p8 mbarrier.init.shared.b64 [%r2+{}], {count};", 8 * i);
    counts.iter().enumerate().map(one).collect::<String>() + "fence.proxy.async;bar.sync 0;\n"
}

/// Waits for the parity at the address.
fn wait(label: &str, at: &str, parity: &str) -> String {
    format!(
        "{label}: mbarrier.try_wait.parity.shared.b64 %p7, [{at}], {parity};@!%p7 bra {label};\n"
    )
}

fn arrive(at: &str) -> String {
    format!("mbarrier.arrive.shared.b64 _, [{at}];\n")
}

/// Each thread stores its word, all meet at a phase, and each reads the word of the thread on the
/// other side; `rounds` times, `end` behind each.
fn exchange(threads: u32, rounds: u32, end: &str) -> String {
    let other = 4 * (threads - 1);
    format!(
        "{}mov.u32 %r9, 0;mov.u32 %r10, 0;\n\
         R: add.u32 %r4, %r1, %r9;st.shared.u32 [%r31], %r4;{}{}\
         sub.u32 %r5, {other}, %r30;add.u32 %r5, %r5, %r3;ld.shared.u32 %r6, [%r5];st.global.u32 [%rd4], %r6;\n\
         xor.b32 %r10, %r10, 1;{end}add.u32 %r9, %r9, 1;setp.lt.u32 %p1, %r9, {rounds};@%p1 bra R;",
        init(&[threads]),
        arrive("%r2"),
        wait("W", "%r2", "%r10"),
    )
}

#[test]
fn a_store_after_a_phase_races_with_a_read_after_it() {
    for threads in [32, 64, 128, 256] {
        let meet = format!("{}{}xor.b32 %r10, %r10, 1;", arrive("%r2"), wait("V", "%r2", "%r10"));
        let got = silent(threads, &exchange(threads, 5, &meet));
        let want: Vec<u32> = (0..threads).map(|t| threads - 1 - t + 4).collect();
        assert_eq!(got[..threads as usize], want);
        silent(threads, &exchange(threads, 5, "bar.sync 0;"));
        // One phase for both directions: who is late still reads.
        for (race, fault) in races(threads, &exchange(threads, 2, "")) {
            assert!(matches!(race, RaceKind::WriteAfterRead | RaceKind::ReadAfterWrite), "{fault}");
            assert!(fault.other.is_some_and(|other| other.thread.is_some()));
        }
        silent(threads, &exchange(threads, 1, ""));
    }
}

#[test]
fn a_thousand_phases_are_no_race() {
    let meet = format!("{}{}xor.b32 %r10, %r10, 1;", arrive("%r2"), wait("V", "%r2", "%r10"));
    silent(64, &exchange(64, 2500, &meet));
}

#[test]
fn who_does_not_wait_learns_nothing() {
    // Warp 1 stores and arrives; warp 0 waits; warp 2 reads without a wait of its own, late.
    let code = |wait_of_2: &str, late: &str| {
        format!(
            "{}setp.lt.u32 %p1, %r1, 32;@%p1 bra A;setp.ge.u32 %p2, %r1, 64;@%p2 bra C;\n\
             st.shared.u32 [%r31], %r1;{}bra E;\n\
             A: {}bra E;\n\
             C: {wait_of_2}{late}ld.shared.u32 %r6, [%r31+-128];st.global.u32 [%rd4], %r6;E:",
            init(&[32]),
            arrive("%r2"),
            wait("W", "%r2", "0"),
        )
    };
    let slow = "mov.u32 %r9, 0;S: nanosleep.u32 100;add.u32 %r9, %r9, 1;setp.lt.u32 %p3, %r9, 300;@%p3 bra S;";
    assert_eq!(silent(96, &code(&wait("V", "%r2", "0"), ""))[64..96], (32..64).collect::<Vec<_>>());
    silent(96, &code(&wait("V", "%r2", "0"), slow));
    let kind = run(96, Schedule::InOrder, &code("", slow)).unwrap_err();
    let Stop::Fault(fault) = kind else { panic!("{kind}") };
    assert!(
        matches!(fault.kind, FaultKind::SharedRace { race: RaceKind::ReadAfterWrite, .. }),
        "{fault}"
    );
}

#[test]
fn order_is_passed_on() {
    // Warp 0 hands to warp 1, which hands to warp 2, which stores where warp 0 read and stored.
    let code = |second: &str| {
        format!(
            "{}setp.lt.u32 %p1, %r1, 32;@%p1 bra A;setp.ge.u32 %p2, %r1, 64;@%p2 bra C;\n\
             {second}{}bra E;\n\
             A: st.shared.u32 [%r31], 1;ld.shared.u32 %r5, [%r31];{}bra E;\n\
             C: {}st.shared.u32 [%r31+-256], 3;E:",
            init(&[32, 32]),
            arrive("%r2+8"),
            arrive("%r2"),
            wait("W", "%r2+8", "0"),
        )
    };
    silent(96, &code(&wait("V", "%r2", "0")));
    // Warp 1 arrives without having waited.
    races(96, &code(""));
}

#[test]
fn a_wait_is_that_of_the_lane_that_waits() {
    // Warp 1 stores and arrives; some lanes of warp 0 wait, and `then` reads what warp 1 stored.
    let code = |waiting: &str, then: &str| {
        format!(
            "{}setp.lt.u32 %p1, %r1, 32;@%p1 bra A;st.shared.u32 [%r31], %r1;{}bra E;\n\
             A: {SLOW}setp.lt.u32 %p2, %r1, 8;{waiting}{then}E:",
            init(&[32]),
            arrive("%r2"),
        )
    };
    let read = "ld.shared.u32 %r6, [%r31+128];st.global.u32 [%rd4], %r6;";
    let (one, other) = (wait("W", "%r2", "0"), wait("V", "%r2", "0"));
    let some = format!("@!%p2 bra N;{one}N: ");
    let both = format!("@!%p2 bra N;{one}bra M;N: {other}M: ");
    for (waiting, then) in [
        (one.as_str(), read.to_owned()),
        // All wait, though not together.
        (&both, read.to_owned()),
        // The others learn of it when the warp meets.
        (&some, format!("bar.warp.sync -1;{read}")),
        (&some, format!("bar.sync 1, 32;{read}")),
        // Only those read that waited, or that met one of them.
        (&some, format!("@%p2 {}", read.replace(";st", ";@%p2 st"))),
        (&some, format!("setp.lt.u32 %p3, %r1, 16;@!%p3 bra E;bar.warp.sync 0xffff;{read}")),
        // One that waited hands it on to warp 2's phase: nobody else reads.
        (&format!("@!%p2 bra E;{one}"), read.to_owned()),
    ] {
        let got = silent(64, &code(waiting, &then));
        assert_eq!(got[..8], (32..40).collect::<Vec<_>>(), "{then}");
    }
    for then in [
        read.to_owned(),
        // These meet without one of those that waited.
        format!("@%p2 bra E;bar.warp.sync 0xffffff00;{read}"),
        format!("setp.lt.u32 %p3, %r1, 16;@!%p3 bra G;bar.warp.sync 0xffff;G: {read}"),
    ] {
        let found = races(64, &code(&some, &then));
        for (race, fault) in found {
            assert_eq!(race, RaceKind::ReadAfterWrite, "{fault}");
            assert!(fault.thread[0] >= 8 && fault.thread[0] < 32, "{fault}");
            assert!(fault.other.unwrap().instruction.contains("st.shared"));
        }
    }
}

/// Long enough that other warps come before.
const SLOW: &str = "mov.u32 %r9, 0;S: add.u32 %r9, %r9, 1;setp.lt.u32 %p3, %r9, 100000;@%p3 bra S;";

/// A ring of two stages: thread 0 of warp 0 fills them with bulk copies, the warps behind it
/// read all 32 words of a stage each. Full mbarriers at `m`, empty ones behind them.
fn ring(arrivals: u32, rounds: u32, consume: &str) -> String {
    format!(
        "{}mov.u32 %r10, 0;setp.ge.u32 %p1, %r1, 32;@%p1 bra Q;@!%p8 bra E;\n\
         P: and.b32 %r12, %r10, 1;shr.u32 %r11, %r10, 1;and.b32 %r11, %r11, 1;xor.b32 %r13, %r11, 1;\n\
         shl.b32 %r14, %r12, 3;add.u32 %r20, %r2, %r14;add.u32 %r21, %r20, 16;shl.b32 %r15, %r12, 7;add.u32 %r22, %r3, %r15;\n\
         {}mbarrier.arrive.expect_tx.shared.b64 _, [%r20], 128;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r22], [%rd1], 128, [%r20];\n\
         add.u32 %r10, %r10, 1;setp.lt.u32 %p2, %r10, {rounds};@%p2 bra P;bra E;\n\
         Q: and.b32 %r17, %r30, 124;and.b32 %r12, %r10, 1;shr.u32 %r11, %r10, 1;and.b32 %r11, %r11, 1;shl.b32 %r14, %r12, 3;add.u32 %r20, %r2, %r14;add.u32 %r21, %r20, 16;\n\
         shl.b32 %r15, %r12, 7;add.u32 %r22, %r3, %r15;add.u32 %r22, %r22, %r17;\n\
         {consume}st.global.u32 [%rd4], %r4;\n\
         add.u32 %r10, %r10, 1;setp.lt.u32 %p2, %r10, {rounds};@%p2 bra Q;E:",
        init(&[1, 1, arrivals, arrivals]),
        wait("F", "%r21", "%r13")
    )
}

const READ: &str = "ld.shared.u32 %r4, [%r22];";

#[test]
fn a_ring_of_copies_is_no_race_and_an_early_release_is() {
    let full = wait("C", "%r20", "%r11");
    for warps in [1, 2, 3, 7] {
        let threads = 32 + 32 * warps;
        let all = format!("{full}{READ}{}", arrive("%r21"));
        silent(threads, &ring(32 * warps, 9, &all));
        // One lane speaks for its warp.
        let one = format!(
            "{full}{READ}bar.warp.sync -1;setp.eq.u32 %p6, %r17, 0;@%p6 {}",
            arrive("%r21")
        );
        silent(threads, &ring(warps, 9, &one));
        let early = format!("{full}{}{READ}", arrive("%r21"));
        found(threads, &ring(32 * warps, 9, &early));
    }
    // Of two warps that read, one alone is waited for.
    let some = format!("{full}{READ}setp.lt.u32 %p6, %r1, 64;@%p6 {}", arrive("%r21"));
    found(96, &ring(32, 9, &some));
    // Only the first round waits for its bytes.
    let first = format!("setp.ne.u32 %p6, %r10, 0;@%p6 bra G;{full}G: {READ}{}", arrive("%r21"));
    found(64, &ring(32, 9, &first));
}

/// Some order of the warps shows the race, or bytes that have not come.
fn found(threads: u32, code: &str) {
    let stops = ORDERS.map(|order| run(threads, order, code));
    let mut any = false;
    for stop in stops {
        match stop {
            Ok(_) => {}
            Err(Stop::Fault(fault)) => {
                let race = matches!(fault.kind, FaultKind::SharedRace { .. });
                assert!(race || matches!(fault.kind, FaultKind::Uninitialised { .. }), "{fault}");
                any = true;
            }
            Err(stop) => panic!("{stop}"),
        }
    }
    assert!(any, "{code}");
}

#[test]
fn barriers_between_the_copy_and_the_wait_change_nothing() {
    // Thread 0 sends bytes, all meet at a barrier, all wait for them; then all meet again and the
    // next bytes come.
    let code = |wait: &str, between: &str| {
        format!(
            "{}mov.u32 %r9, 0;mov.u32 %r10, 0;\n\
             R: @!%p8 bra N;mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256;\n\
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 256, [%r2];N: {between}\n\
             {wait}ld.shared.u32 %r6, [%r31];st.global.u32 [%rd4], %r6;bar.sync 0;\n\
             xor.b32 %r10, %r10, 1;add.u32 %r9, %r9, 1;setp.lt.u32 %p1, %r9, 4;@%p1 bra R;",
            init(&[1]),
        )
    };
    let full = wait("W", "%r2", "%r10");
    for between in ["", "bar.sync 0;", "bar.warp.sync -1;bar.sync 0;bar.sync 0;"] {
        assert_eq!(silent(64, &code(&full, between))[63], 1000 + 7 * 63);
        // Warp 0 alone waits.
        let some = format!("setp.ge.u32 %p6, %r1, 32;@%p6 bra G;{full}G: ");
        found(64, &code(&some, between));
    }
}

#[test]
fn tracked_copies_of_producing_warps_are_no_race() {
    // Warp 0 copies asynchronously into one of two stages, warp 1 reads it.
    let code = |full: &str, release: &str| {
        format!(
            "{}mov.u32 %r10, 0;and.b32 %r17, %r30, 124;setp.ge.u32 %p1, %r1, 32;\n\
             R: and.b32 %r12, %r10, 1;shr.u32 %r11, %r10, 1;and.b32 %r11, %r11, 1;xor.b32 %r13, %r11, 1;\n\
             shl.b32 %r14, %r12, 3;add.u32 %r20, %r2, %r14;add.u32 %r21, %r20, 16;shl.b32 %r15, %r12, 7;add.u32 %r22, %r3, %r15;add.u32 %r22, %r22, %r17;\n\
             @%p1 bra C;{}cp.async.ca.shared.global [%r22], [%rd3], 4;cp.async.mbarrier.arrive.noinc.shared.b64 [%r20];bra N;\n\
             C: {full}{READ}st.global.u32 [%rd4], %r4;{release}N:\n\
             add.u32 %r10, %r10, 1;setp.lt.u32 %p2, %r10, 9;@%p2 bra R;",
            init(&[32, 32, 32, 32]),
            wait("F", "%r21", "%r13")
        )
    };
    let (full, empty) = (wait("W", "%r20", "%r11"), arrive("%r21"));
    let got = silent(64, &code(&full, &empty));
    assert_eq!(got[32..64], (0..32).map(|i| 1000 + 7 * i).collect::<Vec<_>>());
    found(64, &code(&format!("{full}{empty}"), ""));
}

/// Two warpgroups multiply by what thread 256 sends into two stages of 256 bytes; `release` says how
/// a stage goes back.
fn products(release: &str, end: &str) -> String {
    format!(
        "{}.reg .f32 %f<4>;mov.f32 %f0, 0f00000000;mov.f32 %f1, %f0;mov.f32 %f2, %f0;mov.f32 %f3, %f0;mov.u32 %r33, 0x3f803f80;\n\
         mov.u32 %r10, 0;and.b32 %r16, %r1, 127;setp.eq.u32 %p5, %r16, 77;setp.lt.u32 %p1, %r1, 256;@%p1 bra Q;setp.ne.u32 %p2, %r1, 256;@%p2 bra E;\n\
         P: and.b32 %r12, %r10, 1;shr.u32 %r11, %r10, 1;and.b32 %r11, %r11, 1;xor.b32 %r13, %r11, 1;\n\
         shl.b32 %r14, %r12, 3;add.u32 %r20, %r2, %r14;add.u32 %r21, %r20, 16;shl.b32 %r15, %r12, 8;add.u32 %r22, %r3, %r15;\n\
         {}mbarrier.arrive.expect_tx.shared.b64 _, [%r20], 256;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r22], [%rd1], 256, [%r20];\n\
         add.u32 %r10, %r10, 1;setp.lt.u32 %p2, %r10, 9;@%p2 bra P;bra E;\n\
         Q: and.b32 %r12, %r10, 1;shr.u32 %r11, %r10, 1;and.b32 %r11, %r11, 1;shl.b32 %r14, %r12, 3;add.u32 %r20, %r2, %r14;add.u32 %r21, %r20, 16;xor.b32 %r23, %r14, 8;add.u32 %r23, %r23, %r2;add.u32 %r23, %r23, 16;\n\
         shl.b32 %r15, %r12, 8;add.u32 %r22, %r3, %r15;shr.u32 %r22, %r22, 4;cvt.u64.u32 %rd5, %r22;or.b64 %rd5, %rd5, 0x1000080000;\n\
         {}wgmma.fence.sync.aligned;\n\
         wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f0, %f1, %f2, %f3}}, {{%r33, %r33, %r33, %r33}}, %rd5, 1, 1, 1, 0;\n\
         wgmma.commit_group.sync.aligned;\n{release}\n\
         add.u32 %r10, %r10, 1;setp.lt.u32 %p2, %r10, 9;@%p2 bra Q;{end}st.global.f32 [%rd4], %f0;E:",
        init(&[1, 1, 2, 2]),
        wait("F", "%r21", "%r13"),
        wait("C", "%r20", "%r11"),
    )
}

#[test]
fn products_release_their_stage_by_one_thread_of_each_warpgroup() {
    let free = |at: &str| format!("@%p5 mbarrier.arrive.shared.b64 _, [{at}];");
    let done = format!("wgmma.wait_group.sync.aligned 0;{}", free("%r21"));
    let got = silent(288, &products(&done, ""));
    // One product stays under way while the stage before goes back.
    let delayed = format!(
        "wgmma.wait_group.sync.aligned 1;setp.eq.u32 %p6, %r10, 0;@%p6 bra N;{}N:",
        free("%r23")
    );
    assert_eq!(silent(288, &products(&delayed, "wgmma.wait_group.sync.aligned 0;")), got);
    // The stage goes back while its product is under way.
    let early = format!("{}wgmma.wait_group.sync.aligned 0;", free("%r21"));
    let stops = ORDERS.map(|order| run(288, order, &products(&early, "")));
    let found = |stop: &Result<Vec<u32>, Stop>| match stop {
        Err(Stop::Fault(fault)) => matches!(
            fault.kind,
            FaultKind::SharedRace { .. }
                | FaultKind::Warpgroup { .. }
                | FaultKind::Uninitialised { .. }
        ),
        _ => false,
    };
    assert!(stops.iter().any(found), "{stops:?}");
}
