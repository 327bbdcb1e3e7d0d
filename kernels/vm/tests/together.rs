//! What only several parts of the machine together can get wrong: mbarriers, wide atomics, bulk
//! copies, tiles and clusters in launches of several blocks, with the checks of blocks, of waiting
//! and of strict rules, and under a watch.

mod support;

use ptx_vm::{
    BufferId, Coverage, Fault, FaultKind, Launch, Limits, MbarrierFault, Memory, Module, Options,
    Schedule, Stats, Stop, Watch, launch, launch_watched,
};
use support::{Parameters, bytes32, words};

/// A kernel `t(p)`: `%rd1` = p, `%rd5` = p + 2048 (zeroed, as all), `%r1` = tid, `%r2` = ctaid,
/// `%r8` and `%r9` the shared addresses of `m` (two mbarriers) and `s`, `%p1`: tid is 0, `%p2`:
/// ctaid is 0, `%p3`: both are.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry t(.param .u64 p)\n{{\n\
         .reg .pred %p<9>;.reg .f32 %f<9>;.reg .b32 %r<40>;.reg .b64 %rd<30>;.reg .b128 %q<4>;\n\
         .shared .align 8 .b8 m[16];.shared .align 128 .b8 s[1024];\n\
         ld.param.u64 %rd1, [p];add.s64 %rd5, %rd1, 2048;mov.u32 %r1, %tid.x;mov.u32 %r2, %ctaid.x;\n\
         mov.u32 %r8, m;mov.u32 %r9, s;setp.eq.u32 %p1, %r1, 0;setp.eq.u32 %p2, %r2, 0;and.pred %p3, %p1, %p2;\n{body}\nret;\n}}\n"
    )
}

fn memory() -> Memory {
    let mut memory = Memory::new();
    let x = memory.allocate("x", 4096, &[], 0);
    memory.write(x, 0, &bytes32(&[0; 1024]));
    memory
}

fn with(
    body: &str,
    [blocks, threads]: [u32; 2],
    options: &Options,
    watch: Option<&mut Watch>,
    memory: &mut Memory,
) -> Result<Stats, Stop> {
    let module = Module::parse(&kernel(body)).unwrap_or_else(|error| panic!("{body}: {error}"));
    let parameters = Parameters::default().u64(memory.address(X, 0)).0;
    let what = Launch {
        entry: "t",
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let limits = Limits { instructions: 3_000_000, ..Limits::default() };
    let mut coverage = Coverage::new();
    match watch {
        Some(watch) => {
            launch_watched(&module, memory, &what, &limits, options, &mut coverage, watch)
        }
        None => launch(&module, memory, &what, &limits, options, &mut coverage),
    }
}

const X: BufferId = BufferId(0);

fn run(body: &str, shape: [u32; 2]) -> Result<Vec<u32>, Stop> {
    let mut memory = memory();
    with(body, shape, &Options::default(), None, &mut memory)?;
    Ok(words(&memory, X))
}

/// The words in order, which every schedule gives.
#[track_caller]
fn fine(body: &str, shape: [u32; 2]) -> Vec<u32> {
    let first = run(body, shape).unwrap_or_else(|stop| panic!("{body}: {stop}"));
    for seed in 0..12 {
        let mut memory = memory();
        let options = Options { schedule: Schedule::Seeded(seed), ..Options::default() };
        let result = with(body, shape, &options, None, &mut memory);
        result.unwrap_or_else(|stop| panic!("{body}: seed {seed}: {stop}"));
        assert_eq!(words(&memory, X), first, "seed {seed}");
    }
    first
}

#[track_caller]
fn fault(body: &str, shape: [u32; 2]) -> Fault {
    match run(body, shape) {
        Err(Stop::Fault(fault)) => *fault,
        other => panic!("{body}: {other:?}"),
    }
}

#[track_caller]
fn race(body: &str, shape: [u32; 2]) {
    let fault = fault(body, shape);
    assert!(matches!(fault.kind, FaultKind::BlockRace { .. }), "{fault}");
    assert!(fault.other.is_some_and(|other| other.block.is_some()));
}

/// Block 0: warp 0 waits at an mbarrier for warp 1, which waits for a flag of block 1.
fn chain(set: &str) -> String {
    format!(
        "@%p1 mbarrier.init.shared::cta.b64 [%r8], 1;bar.sync 0;\n\
         @!%p2 bra SET;setp.lt.u32 %p4, %r1, 32;@%p4 bra WAIT;\n\
         setp.ne.u32 %p4, %r1, 32;@%p4 bra END;\n\
         P: ld.relaxed.gpu.global.u32 %r10, [%rd5];setp.eq.u32 %p5, %r10, 0;@%p5 bra P;\n\
         fence.acq_rel.gpu;ld.global.u32 %r11, [%rd5+64];st.shared.u32 [%r9], %r11;mbarrier.arrive.shared::cta.b64 _, [%r8];bra END;\n\
         WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r8], 0;@!%p6 bra WAIT;\n\
         ld.shared.u32 %r12, [%r9];@%p1 st.global.u32 [%rd1], %r12;bra END;\n\
         SET: @!%p1 bra END;setp.ne.u32 %p4, %r2, 1;@%p4 bra END;mov.u32 %r13, 77;st.global.u32 [%rd5+64], %r13;fence.acq_rel.gpu;{set}\nEND:"
    )
}

#[test]
fn a_wait_at_an_mbarrier_lets_other_blocks_run() {
    let body = chain("st.relaxed.gpu.global.u32 [%rd5], %r13;");
    assert_eq!(fine(&body, [2, 64])[0], 77);
    assert_eq!(fine(&body.replace("fence.acq_rel.gpu;st", "membar.gl;st"), [5, 96])[0], 77);
    // Without the fence the flag orders nothing.
    race(&body.replacen("%r13;fence.acq_rel.gpu;", "%r13;", 1), [2, 64]);
    // Without the flag the block waits in vain: the poll is named, not the mbarrier behind it.
    let stuck = fault(&chain(""), [2, 64]);
    assert!(matches!(stuck.kind, FaultKind::NoProgress { .. }), "{stuck}");
    assert!(stuck.instruction.contains("ld.relaxed"), "{stuck}");
    assert_eq!((stuck.block, stuck.thread), ([0, 0, 0], [32, 0, 0]));
}

#[test]
fn mbarriers_belong_to_their_block() {
    // Each block completes its own phases while the others stand between theirs: a grid barrier
    // between the arrivals and the tests.
    let body = "@%p1 mbarrier.init.shared::cta.b64 [%r8], 64;bar.sync 0;mov.u32 %r3, %nctaid.x;\n\
        mbarrier.arrive.shared::cta.b64 %rd10, [%r8];bar.sync 0;\n\
        @!%p1 bra D;atom.global.add.u32 %r4, [%rd5], 1;\n\
        W: ld.volatile.global.u32 %r4, [%rd5];setp.lt.u32 %p4, %r4, %r3;@%p4 bra W;D: bar.sync 0;\n\
        T: mbarrier.test_wait.shared::cta.b64 %p5, [%r8], %rd10;@!%p5 bra T;\n\
        mul.wide.u32 %rd6, %r2, 4;add.s64 %rd6, %rd6, %rd1;@%p1 st.global.u32 [%rd6], %r3;";
    for blocks in [1, 2, 9] {
        let got = fine(body, [blocks, 64]);
        assert!(got[..blocks as usize].iter().all(|word| *word == blocks));
    }
    // An arrival too few in the last block alone.
    let short = body.replace(
        "mbarrier.arrive",
        "setp.eq.u32 %p6, %r2, 2;and.pred %p6, %p6, %p1;@!%p6 mbarrier.arrive",
    );
    let fault = fault(&short, [3, 64]);
    let wrong = MbarrierFault::NoProgress { phase: 0, pending: 1, bytes: 0 };
    assert!(matches!(&fault.kind, FaultKind::Mbarrier { wrong: w, .. } if *w == wrong), "{fault}");
    assert_eq!(fault.block, [2, 0, 0]);
}

#[test]
fn bytes_that_did_not_come_are_seen_at_the_end_of_each_block() {
    let body = "@%p1 mbarrier.init.shared::cta.b64 [%r8], 1;bar.sync 0;setp.eq.u32 %p4, %r2, 1;\n\
        and.pred %p4, %p4, %p1;@%p4 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 16;";
    let leaked = fault(body, [3, 32]);
    let wrong = MbarrierFault::Leaked { bytes: 16 };
    assert!(matches!(&leaked.kind, FaultKind::Mbarrier { wrong: w, .. } if *w == wrong));
    assert_eq!(leaked.block, [1, 0, 0]);
    fine(&body.replace("%r2, 1;", "%r2, 9;"), [3, 32]);
}

#[test]
fn sixteen_bytes_at_once_are_atomic() {
    // Every block adds one to the lower half: load, compare and swap until it succeeds.
    let body = |load: &str| {
        format!(
            "@!%p1 bra END;\nL: {load} %q0, [%rd1];mov.b128 {{%rd10, %rd11}}, %q0;add.u64 %rd12, %rd10, 1;\n\
             mov.b128 %q1, {{%rd12, %rd11}};atom.relaxed.gpu.global.cas.b128 %q2, [%rd1], %q0, %q1;\n\
             mov.b128 {{%rd13, %rd14}}, %q2;setp.ne.u64 %p4, %rd13, %rd10;@%p4 bra L;\nEND:"
        )
    };
    assert_eq!(fine(&body("ld.relaxed.gpu.global.b128"), [7, 32])[0], 7);
    // A weak load meets the other block's exchange.
    race(&body("ld.global.b128"), [2, 32]);
    // One that fails forever makes no progress.
    let stuck = fault(
        "mov.u64 %rd10, 5;mov.b128 %q0, {%rd10, %rd10};\n\
         L: atom.relaxed.gpu.global.cas.b128 %q2, [%rd1], %q0, %q0;mov.b128 {%rd13, %rd14}, %q2;\n\
         setp.ne.u64 %p4, %rd13, 5;@%p4 bra L;",
        [2, 32],
    );
    assert!(matches!(stuck.kind, FaultKind::NoProgress { .. }), "{stuck}");
    assert!(stuck.instruction.contains("cas.b128"), "{stuck}");
}

#[test]
fn a_released_exchange_of_sixteen_bytes_hands_over_what_was_stored_before() {
    let body = |set: &str| {
        format!(
            "@!%p1 bra END;@!%p2 bra SET;\n\
             P: ld.acquire.gpu.global.b128 %q0, [%rd5];mov.b128 {{%rd10, %rd11}}, %q0;setp.eq.u64 %p4, %rd10, 0;@%p4 bra P;\n\
             ld.global.u32 %r10, [%rd5+64];st.global.u32 [%rd1], %r10;bra END;\n\
             SET: mov.u32 %r10, 55;st.global.u32 [%rd5+64], %r10;mov.u64 %rd12, 1;mov.b128 %q1, {{%rd12, %rd12}};\n\
             {set} %q2, [%rd5], %q1;\nEND:"
        )
    };
    assert_eq!(fine(&body("atom.release.gpu.global.exch.b128"), [2, 32])[0], 55);
    race(&body("atom.relaxed.gpu.global.exch.b128"), [2, 32]);
}

#[test]
fn vectors_of_atomics_meet_without_a_race() {
    let body = "mov.f32 %f1, 0f3f800000;@%p1 red.global.add.v2.f32 [%rd1], {%f1, %f1};";
    assert_eq!(fine(body, [8, 32])[..2], [8f32.to_bits(); 2]);
    let weak = format!("{body}@%p1 ld.global.f32 %f2, [%rd1+4];");
    race(&weak, [2, 32]);
}

#[test]
fn bulk_copies_and_tiles_race_as_the_stores_they_are() {
    let copy = |address: &str| {
        format!(
            "mov.u32 %r10, 3;shl.b32 %r11, %r1, 2;add.u32 %r11, %r11, %r9;st.shared.u32 [%r11], %r10;\n\
             fence.proxy.async.shared::cta;bar.sync 0;mul.wide.u32 %rd10, %r2, 128;add.s64 %rd10, %rd10, %rd1;\n\
             @%p1 cp.async.bulk.global.shared::cta.bulk_group [{address}], [%r9], 128;\n\
             @%p1 cp.async.bulk.commit_group;@%p1 cp.async.bulk.wait_group 0;"
        )
    };
    assert_eq!(fine(&copy("%rd10"), [3, 32])[..97], [[3; 96].as_slice(), &[0]].concat());
    race(&copy("%rd1"), [3, 32]);
    let tile = |address: &str| {
        format!(
            "mov.f32 %f1, 0f3f800000;mul.wide.u32 %rd10, %r2, 1024;add.s64 %rd10, %rd10, %rd1;\n\
             wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [{address}], {{%f1,%f1,%f1,%f1,%f1,%f1,%f1,%f1}};"
        )
    };
    assert_eq!(fine(&tile("%rd10"), [2, 32])[..512], [1f32.to_bits(); 512]);
    race(&tile("%rd1"), [2, 32]);
}

#[test]
fn a_flag_set_by_a_bulk_copy_or_a_tile_ends_a_poll() {
    let body = |store: &str| {
        format!(
            "@%p2 bra P;setp.ne.u32 %p4, %r2, 1;@%p4 bra END;mov.f32 %f1, 0f3f800000;mov.u32 %r10, 1;\n\
             shl.b32 %r11, %r1, 2;add.u32 %r11, %r11, %r9;st.shared.u32 [%r11], %r10;fence.proxy.async.shared::cta;bar.sync 0;\n{store}\nbra END;\n\
             P: @!%p1 bra END;Q: ld.volatile.global.u32 %r12, [%rd5];setp.eq.u32 %p5, %r12, 0;@%p5 bra Q;END:"
        )
    };
    // The store is weak: that it is a race is the only thing wrong with it.
    for store in [
        "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd5], [%r9], 16;",
        "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd5], {%f1,%f1,%f1,%f1,%f1,%f1,%f1,%f1};",
    ] {
        race(&body(store), [2, 32]);
        let unchecked = Options { checks: false, ..Options::default() };
        with(&body(store), [2, 32], &unchecked, None, &mut memory()).unwrap();
    }
}

#[test]
fn a_watch_names_the_block_whose_turn_it_is() {
    // Block 0 stores before and after it waits for block 1, which stores between.
    let body = "@!%p1 bra END;@!%p2 bra SET;mov.u32 %r10, 5;st.global.u32 [%rd1], %r10;\n\
        P: ld.volatile.global.u32 %r11, [%rd5];setp.eq.u32 %p4, %r11, 0;@%p4 bra P;st.global.u32 [%rd1+8], %r10;bra END;\n\
        SET: mov.u32 %r10, 6;st.global.u32 [%rd1+4], %r10;st.volatile.global.u32 [%rd5], %r10;END:";
    for schedule in [Schedule::InOrder, Schedule::Seeded(1), Schedule::Seeded(2)] {
        let (mut memory, mut watch) = (memory(), Watch::new());
        watch.add(&memory, X, 0..12);
        let options = Options { schedule, ..Options::default() };
        with(body, [2, 32], &options, Some(&mut watch), &mut memory).unwrap();
        let blocks = [0, 4, 8].map(|at| watch.last(X, at).map(|write| write.block[0]));
        assert_eq!(blocks, [Some(0), Some(1), Some(0)], "{schedule:?}");
        assert_eq!(words(&memory, X)[..3], [5, 6, 5]);
    }
    // Under a watch the checks are those of every launch.
    let (mut memory, mut watch) = (memory(), Watch::new());
    watch.add(&memory, X, 0..4);
    let racing = body.replace("[%rd1+4]", "[%rd1]");
    let result = with(&racing, [2, 32], &Options::default(), Some(&mut watch), &mut memory);
    assert!(
        matches!(&result, Err(Stop::Fault(f)) if matches!(f.kind, FaultKind::BlockRace { .. })),
        "{result:?}"
    );
    assert_eq!(watch.last(X, 0).map(|write| write.block[0]), Some(0));
}

#[test]
fn strict_rules_know_clusters_and_copies_that_an_mbarrier_tracks() {
    let strict = Options { strict: true, ..Options::default() };
    let run = |body: &str| with(body, [2, 64], &strict, None, &mut memory());
    // A cluster's barrier waits for those who are left, a block's for all.
    let leave = "setp.gt.u32 %p4, %r1, 31;@%p4 ret;";
    let cluster = "barrier.cluster.arrive.aligned;barrier.cluster.wait.aligned;";
    run(&format!("{leave}{cluster}")).unwrap();
    let block = run(&format!("{leave}bar.sync 0;")).unwrap_err();
    assert!(
        matches!(&block, Stop::Fault(f) if matches!(f.kind, FaultKind::ExitedAtBarrier { .. })),
        "{block}"
    );
    // The mbarrier, not the thread, says when the bytes are there.
    let copy = |arrive: &str| {
        format!(
            "@%p1 mbarrier.init.shared::cta.b64 [%r8], 32;bar.sync 0;setp.gt.u32 %p4, %r1, 31;@%p4 bra T;\n\
             shl.b32 %r10, %r1, 2;add.u32 %r11, %r10, %r9;cvt.u64.u32 %rd10, %r10;add.s64 %rd10, %rd10, %rd1;\n\
             cp.async.ca.shared.global [%r11], [%rd10], 4;{arrive};bra END;\n\
             T: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r8], 0;@!%p5 bra T;END:"
        )
    };
    run(&copy("cp.async.mbarrier.arrive.noinc.shared.b64 [%r8]")).unwrap();
    let left = run(&copy("mbarrier.arrive.shared::cta.b64 _, [%r8]")).unwrap_err();
    assert!(matches!(&left, Stop::Fault(f) if matches!(f.kind, FaultKind::CopyUnderWay)), "{left}");
}
