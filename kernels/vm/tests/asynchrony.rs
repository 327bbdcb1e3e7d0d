//! What `wgmma` forbids between a product and its wait, each rule broken and kept. Products are of
//! ones: the four buffers of 256 bytes, and the left factor, hold 1.0 in bf16.

mod support;

use ptx_vm::{
    Fault, FaultKind, Memory, Module, Options, Schedule, Stop, WarpgroupFault, WarpgroupFault::*,
};
use support::{Parameters, bytes_bf16, go, input, output, words};

const STORE: &str = "st.shared.v2.b32 [%r3], {%r5, %r5};";
const PROXY: &str = "fence.proxy.async;";
const BARRIER: &str = "bar.sync 0;";
const FENCE: &str = "wgmma.fence.sync.aligned;";
const COMMIT: &str = "wgmma.commit_group.sync.aligned;";
const WAIT: &str = "wgmma.wait_group.sync.aligned 0;";
const WAIT_BUT_ONE: &str = "wgmma.wait_group.sync.aligned 1;";
const OUT: &str = "st.global.v4.f32 [%rd1], {%f0, %f1, %f2, %f3};";
/// Sums in %f0 to %f3, the right factor in buffer 0.
const PRODUCT: &str = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, {%r10, %r11, %r12, %r13}, %rd3, %p1, 1, 1, 0;";
/// Sums in %f8 to %f11, the right factor in buffer 1.
const SECOND: &str = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f8, %f9, %f10, %f11}, {%r10, %r11, %r12, %r13}, %rd4, %p1, 1, 1, 0;";

/// What stands before the first wgmma.fence of a correct kernel.
const READY: [&str; 3] = [STORE, PROXY, BARRIER];

fn text(lines: &[&str]) -> String {
    let body = lines.join("\n");
    format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry t(.param .u64 d)\n{{\n\
         .reg .pred %p<5>;.reg .b32 %r<40>;.reg .f32 %f<40>;.reg .b64 %rd<20>;.shared .align 1024 .b8 s[1024];.shared .align 8 .b64 m;\n\
         ld.param.u64 %rd1, [d];mov.u32 %r1, %tid.x;mul.wide.u32 %rd2, %r1, 16;add.u64 %rd1, %rd1, %rd2;\n\
         mov.u32 %r2, s;and.b32 %r3, %r1, 127;shl.b32 %r3, %r3, 3;add.u32 %r3, %r3, %r2;\n\
         shr.u32 %r4, %r2, 4;cvt.u64.u32 %rd3, %r4;or.b64 %rd3, %rd3, 0x1000080000;add.u64 %rd4, %rd3, 16;\n\
         mov.u32 %r5, 0x3f803f80;setp.eq.u32 %p1, %r1, %r1;setp.eq.u32 %p2, %r1, 0;\n\
         add.u32 %r10, %r5, 0;add.u32 %r11, %r5, 0;add.u32 %r12, %r5, 0;add.u32 %r13, %r5, 0;\n\
         mov.f32 %f0, 0f00000000;mov.f32 %f1, %f0;mov.f32 %f2, %f0;mov.f32 %f3, %f0;\n\
         mov.f32 %f8, %f0;mov.f32 %f9, %f0;mov.f32 %f10, %f0;mov.f32 %f11, %f0;\n\
         {body}\nEND: ret;\n}}\n"
    )
}

fn run(lines: &[&str], threads: u32, schedule: Schedule) -> Result<Vec<f32>, Stop> {
    let module = Module::parse(&text(lines)).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = Memory::new();
    let d = output(&mut memory, "d", 16 * u64::from(threads));
    let parameters = Parameters::default().u64(memory.address(d, 0)).0;
    let options = Options { schedule, ..Options::default() };
    go(&module, &mut memory, "t", [1; 3], [threads, 1, 1], &parameters, &options)?;
    Ok(words(&memory, d).into_iter().map(f32::from_bits).collect())
}

fn fault(lines: &[&str]) -> Fault {
    match run(lines, 128, Schedule::InOrder) {
        Err(Stop::Fault(fault)) => *fault,
        other => panic!("{other:?}\n{}", lines.join("\n")),
    }
}

/// The rule, and the two lines that the report names.
fn breaks(before: &[&str], lines: &[&str], rule: WarpgroupFault, at: &str, other: Option<&str>) {
    let all = [before, lines].concat();
    let fault = fault(&all);
    assert_eq!(fault.kind, FaultKind::Warpgroup { wrong: rule }, "{fault}");
    assert_eq!(fault.instruction.trim(), at, "{fault}");
    let named = fault.other.as_ref().map(|party| party.instruction.trim());
    assert_eq!(named, other, "{fault}");
    let schedules = (1..6).map(Schedule::Seeded);
    for schedule in schedules {
        let stop = run(&all, 128, schedule);
        assert!(matches!(stop, Err(Stop::Fault(_))), "{schedule:?}: {stop:?}");
    }
}

/// Every thread's four sums are this, in any order of warps.
fn gives(lines: &[&str], threads: u32, sum: f32) {
    for schedule in std::iter::once(Schedule::InOrder).chain((1..12).map(Schedule::Seeded)) {
        let got = run(lines, threads, schedule)
            .unwrap_or_else(|stop| panic!("{schedule:?}: {stop}\n{}", lines.join("\n")));
        assert!(got[..512].iter().all(|x| *x == sum), "{schedule:?}: {:?}, not {sum}", &got[..8]);
    }
}

/// A kernel of these lines after [`READY`].
fn ready<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    [&READY, lines].concat()
}

#[test]
fn a_sum_is_read_before_its_wait() {
    let read = "add.f32 %f20, %f0, %f1;";
    let early = EarlyRead { committed: true };
    breaks(&READY, &[FENCE, PRODUCT, COMMIT, read, WAIT, OUT], early, read, Some(PRODUCT));
    breaks(&READY, &[FENCE, PRODUCT, COMMIT, WAIT_BUT_ONE, OUT], early, OUT, Some(PRODUCT));
    // The second group is the one that is still under way.
    let second = "add.f32 %f20, %f8, %f8;";
    let lines = [FENCE, PRODUCT, COMMIT, SECOND, COMMIT, WAIT_BUT_ONE, second, WAIT, OUT];
    breaks(&READY, &lines, early, second, Some(SECOND));
    // A move takes what is under way along.
    let lines = [FENCE, PRODUCT, COMMIT, "mov.f32 %f6, %f0;", "neg.f32 %f7, %f6;", WAIT, OUT];
    breaks(&READY, &lines, early, "neg.f32 %f7, %f6;", Some(PRODUCT));
}

#[test]
fn a_group_that_nobody_commits_is_never_waited_for() {
    let early = EarlyRead { committed: false };
    breaks(&READY, &[FENCE, PRODUCT, WAIT, OUT], early, OUT, Some(PRODUCT));
    breaks(&READY, &[FENCE, SECOND, COMMIT, PRODUCT, WAIT, OUT], early, OUT, Some(PRODUCT));
    gives(&ready(&[FENCE, PRODUCT, COMMIT, SECOND, WAIT, OUT, COMMIT, WAIT]), 128, 16.0);
}

#[test]
fn a_register_is_written_before_the_wait() {
    let sum = "add.f32 %f0, %f20, %f20;";
    let lines = [FENCE, PRODUCT, COMMIT, sum, WAIT, OUT];
    breaks(&READY, &lines, EarlyWrite { sum: true }, sum, Some(PRODUCT));
    let factor = "add.u32 %r10, %r5, 1;";
    let lines = [FENCE, PRODUCT, COMMIT, factor, WAIT, OUT];
    breaks(&READY, &lines, EarlyWrite { sum: false }, factor, Some(PRODUCT));
    let load = "ld.shared.b32 %r12, [%r3];";
    let lines = [FENCE, PRODUCT, COMMIT, load, WAIT, OUT];
    breaks(&READY, &lines, EarlyWrite { sum: false }, load, Some(PRODUCT));
    gives(&ready(&[FENCE, PRODUCT, COMMIT, WAIT, OUT, sum, factor, load]), 128, 16.0);
}

#[test]
fn a_fence_comes_before_a_product_and_after_its_registers_are_written() {
    breaks(&READY, &[PRODUCT, COMMIT, WAIT, OUT], NoFence, PRODUCT, None);
    let sum = "add.f32 %f1, %f0, %f0;";
    breaks(&READY, &[FENCE, sum, PRODUCT, COMMIT, WAIT, OUT], Unfenced, PRODUCT, Some(sum));
    let factor = "add.u32 %r13, %r5, 0;";
    breaks(&READY, &[FENCE, factor, PRODUCT, COMMIT, WAIT, OUT], Unfenced, PRODUCT, Some(factor));
    // Written between two products, the first of which has been waited for.
    let lines = [FENCE, PRODUCT, COMMIT, WAIT, sum, PRODUCT, COMMIT, WAIT, OUT];
    breaks(&READY, &lines, Unfenced, PRODUCT, Some(sum));
    let zero = "sub.f32 %f0, %f0, %f0;";
    gives(
        &ready(&[
            FENCE,
            PRODUCT,
            COMMIT,
            WAIT,
            zero,
            FENCE,
            PRODUCT,
            COMMIT,
            WAIT,
            "mov.f32 %f1, %f0;",
            "mov.f32 %f2, %f0;",
            "mov.f32 %f3, %f0;",
            OUT,
        ]),
        128,
        16.0,
    );
    // Compilers put moves of constants and copies there.
    let moves = "mov.f32 %f0, 0f00000000;mov.f32 %f12, %f1;mov.f32 %f1, %f12;";
    gives(&ready(&[FENCE, moves, PRODUCT, COMMIT, WAIT, OUT]), 128, 16.0);
}

#[test]
fn sums_of_one_shape_are_added_to_without_a_wait() {
    gives(&ready(&[FENCE, PRODUCT, PRODUCT, COMMIT, PRODUCT, COMMIT, WAIT, OUT]), 128, 48.0);
    let wide = "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3, %f8, %f9, %f10, %f11}, {%r10, %r11, %r12, %r13}, %rd3, %p1, 1, 1, 0;";
    breaks(&READY, &[FENCE, PRODUCT, wide, COMMIT, WAIT, OUT], OtherShape, wide, Some(PRODUCT));
    gives(&ready(&[FENCE, PRODUCT, COMMIT, WAIT, wide, COMMIT, WAIT, OUT]), 128, 32.0);
}

#[test]
fn groups_are_waited_for_in_order() {
    let carried = "mov.f32 %f12, %f8;mov.f32 %f8, %f12;";
    gives(
        &ready(&[
            FENCE,
            PRODUCT,
            COMMIT,
            SECOND,
            COMMIT,
            carried,
            WAIT_BUT_ONE,
            OUT,
            WAIT,
            "add.f32 %f20, %f8, %f8;",
        ]),
        128,
        16.0,
    );
}

#[test]
fn a_factor_in_shared_memory_is_overwritten_before_the_wait() {
    let store = "st.shared.b32 [%r3], %r1;";
    let lines = [FENCE, PRODUCT, COMMIT, BARRIER, store, WAIT, OUT];
    let all = ready(&lines);
    let found = fault(&all);
    let FaultKind::Warpgroup { wrong: Overwritten { product_line, .. } } = found.kind else {
        panic!("{found}")
    };
    let product = text(&all).lines().position(|line| line == PRODUCT).unwrap() + 1;
    assert_eq!(product_line as usize, product, "{found}");
    assert_eq!(found.instruction.trim(), WAIT, "{found}");
    assert_eq!(found.other.as_ref().unwrap().instruction.trim(), store, "{found}");
    // An asynchronous copy that is on its way.
    let copy = "cp.async.ca.shared.global [%r3], [%rd1], 8;";
    let mut lines = ready(&[FENCE, PRODUCT, COMMIT, BARRIER, copy, WAIT, OUT]);
    lines.insert(0, OUT);
    let found = fault(&lines);
    assert!(matches!(found.kind, FaultKind::Warpgroup { wrong: Overwritten { .. } }), "{found}");
    assert_eq!(found.other.as_ref().unwrap().instruction.trim(), copy, "{found}");
    // After the wait and a barrier.
    gives(&ready(&[FENCE, PRODUCT, COMMIT, WAIT, BARRIER, store, OUT]), 128, 16.0);
    // After the wait of one's own warp, another's may still be to come.
    let early = ready(&[FENCE, PRODUCT, COMMIT, BARRIER, WAIT, store, OUT]);
    assert!((0..8).any(|seed| run(&early, 128, Schedule::Seeded(seed)).is_err()));
}

#[test]
fn two_buffers_take_turns() {
    let zero = "mov.u32 %r6, 0;shl.b32 %r7, %r1, 1;and.b32 %r7, %r7, 252;add.u32 %r7, %r7, %r2;";
    let into_second = "st.shared.b32 [%r7+256], %r6;";
    let into_first = "st.shared.b32 [%r7], %r5;";
    let lines = ready(&[
        zero,
        FENCE,
        PRODUCT,
        COMMIT,
        into_second,
        PROXY,
        BARRIER,
        FENCE,
        SECOND,
        COMMIT,
        WAIT_BUT_ONE,
        BARRIER,
        into_first,
        PROXY,
        BARRIER,
        PRODUCT,
        COMMIT,
        WAIT,
        OUT,
    ]);
    gives(&lines, 128, 32.0);
}

#[test]
fn stores_of_threads_need_a_proxy_fence() {
    let offset = |fault: &Fault| match fault.kind {
        FaultKind::Warpgroup { wrong: NoProxyFence { offset } } => offset,
        _ => panic!("{fault}"),
    };
    let found = fault(&[STORE, BARRIER, FENCE, PRODUCT, COMMIT, WAIT, OUT]);
    assert_eq!((offset(&found), found.instruction.trim()), (0, PRODUCT));
    assert_eq!(found.other.as_ref().unwrap().instruction.trim(), STORE);
    // A fence before the store is none.
    offset(&fault(&[PROXY, STORE, BARRIER, FENCE, PRODUCT, COMMIT, WAIT, OUT]));
    offset(&fault(&[
        STORE,
        "fence.proxy.async.global;",
        BARRIER,
        FENCE,
        PRODUCT,
        COMMIT,
        WAIT,
        OUT,
    ]));
    // By the reader, or by anybody between two barriers.
    gives(&[STORE, BARRIER, PROXY, FENCE, PRODUCT, COMMIT, WAIT, OUT], 128, 16.0);
    let one = "@%p2 fence.proxy.async.shared::cta;";
    gives(&[STORE, BARRIER, one, BARRIER, FENCE, PRODUCT, COMMIT, WAIT, OUT], 128, 16.0);
}

#[test]
fn a_wait_is_for_the_whole_warpgroup() {
    let some = "setp.ge.u32 %p3, %r1, 96;@%p3 bra END;";
    breaks(&READY, &[some, FENCE, PRODUCT, COMMIT, WAIT, OUT], MissingWarps, WAIT, None);
}

/// One thread of the warpgroup tells the producer that the buffer is free.
#[test]
fn one_warp_releases_a_buffer_for_all_four() {
    let lines = [
        "@%p2 mbarrier.init.shared.b64 [m], 1;",
        "setp.ge.u32 %p3, %r1, 128;",
        STORE,
        PROXY,
        BARRIER,
        "@%p3 bra PRODUCER;",
        FENCE,
        PRODUCT,
        COMMIT,
        WAIT,
        "@%p2 mbarrier.arrive.shared.b64 %rd9, [m];",
        OUT,
        "bra END;",
        "PRODUCER:",
        "mbarrier.try_wait.parity.shared.b64 %p4, [m], 0;",
        "@!%p4 bra PRODUCER;",
        "st.shared.b32 [%r3], %r1;",
    ];
    gives(&lines, 256, 16.0);
}

/// A product of two 64×K factors by `cuda/wgmma.cu` as a compiler wrote it.
fn compiled(text: &str, schedule: Schedule) -> Result<Vec<f32>, Stop> {
    let (n, k) = (128usize, 256usize);
    let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = Memory::new();
    // Each tile of k has a value of its own.
    let left: Vec<f32> = (0..64 * k).map(|i| (i % k / 64 + 1) as f32).collect();
    let a = input(&mut memory, "a", &bytes_bf16(&left));
    let b = input(&mut memory, "b", &bytes_bf16(&vec![1.0; n * k]));
    let c = output(&mut memory, "c", (64 * n * 4) as u64);
    let parameters = [a, b, c]
        .iter()
        .fold(Parameters::default(), |all, buffer| all.u64(memory.address(*buffer, 0)))
        .u32(n as u32)
        .u32(k as u32);
    let options = Options { schedule, ..Options::default() };
    go(&module, &mut memory, "gemm_wgmma", [2, 1, 1], [128, 1, 1], &parameters.0, &options)?;
    Ok(words(&memory, c).into_iter().map(f32::from_bits).collect())
}

#[test]
fn what_a_compiler_writes_is_silent_unless_the_source_is_wrong() {
    let correct = include_str!("ptx/wgmma.sm90.ptx");
    for schedule in std::iter::once(Schedule::InOrder).chain((1..5).map(Schedule::Seeded)) {
        let got = compiled(correct, schedule).unwrap_or_else(|stop| panic!("{schedule:?}: {stop}"));
        assert!(got.iter().all(|x| *x == 640.0), "{schedule:?}: {:?}", &got[..8]);
    }
    let line = |text: &str| match compiled(text, Schedule::InOrder) {
        Err(Stop::Fault(fault)) => {
            let FaultKind::Warpgroup { wrong } = fault.kind else { panic!("{fault}") };
            let source = |line: &Option<ptx_vm::SourceLine>| line.as_ref().map(|at| at.line);
            let other = fault.other.as_ref().expect("both parties are named");
            (wrong, source(&fault.source), source(&other.source))
        }
        other => panic!("{other:?}"),
    };
    let place = |text: &str| {
        let all = include_str!("cuda/wgmma.cu");
        Some(
            all.lines().position(|line| line.contains(text)).expect("a line of the source") as u32
                + 1,
        )
    };
    // The sums are stored without a wait.
    let (wrong, at, product) = line(include_str!("ptx/wgmma_NOWAIT.sm90.ptx"));
    assert_eq!(wrong, EarlyRead { committed: true });
    assert_eq!((at, product), (place("c[(row"), place(r#": "l"(a), "l"(b)"#)));
    // Threads store the factors, and no fence is between.
    let (wrong, at, store) = line(include_str!("ptx/wgmma_NOPROXY.sm90.ptx"));
    assert!(matches!(wrong, NoProxyFence { .. }), "{wrong:?}");
    assert_eq!((at, store), (place(r#": "l"(a), "l"(b)"#), place("from + row * stride")));
    // The next tiles are stored while products read the ones before.
    let early = compiled(include_str!("ptx/wgmma_EARLY.sm90.ptx"), Schedule::InOrder);
    let Err(Stop::Fault(early)) = early else { panic!("{early:?}") };
    assert!(matches!(early.kind, FaultKind::Warpgroup { wrong: Overwritten { .. } }), "{early}");
}
