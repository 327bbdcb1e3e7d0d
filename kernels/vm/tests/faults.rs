//! Every checker fires on its fault and stays silent on the near miss beside it.

mod support;

use ptx_vm::{
    Coverage, FaultKind, Launch, LaunchError, Limits, Memory, MemorySpace, Module, Options,
    RaceKind, Stats, Stop, launch, marks,
};
use support::{Parameters, bytes32, output, words};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// A kernel `t(p)` with registers declared, `%rd1` = p, `%r1` = tid, `%rd3` = &p[tid].
fn kernel(body: &str) -> String {
    format!(
        "{HEAD}.visible .entry t(.param .u64 p)\n{{\n.reg .pred %p<9>;.reg .b16 %rs<9>;.reg .f32 %f<9>;\n\
         .reg .b32 %r<30>;.reg .b64 %rd<30>;\n.shared .align 16 .b8 s[256];.shared .align 4 .b8 z[64];\n\
         ld.param.u64 %rd1, [p];mov.u32 %r1, %tid.x;mul.wide.u32 %rd2, %r1, 4;add.s64 %rd3, %rd1, %rd2;\n\
         mov.u32 %r29, s;shl.b32 %r28, %r1, 2;add.u32 %r27, %r29, %r28;and.b32 %r26, %r1, 31;\n{body}\nret;\n}}\n"
    )
}

struct Run {
    memory: Memory,
    result: Result<Stats, Stop>,
}

fn run_with(body: &str, threads: u32, prepare: impl Fn(&mut Memory, ptx_vm::BufferId)) -> Run {
    let module = Module::parse(&kernel(body)).unwrap();
    let mut memory = Memory::new();
    let _before = output(&mut memory, "before", 64);
    let x = memory.allocate("x", 1024, &[], 0);
    memory.write(x, 0, &bytes32(&[7; 256]));
    let _after = output(&mut memory, "after", 64);
    prepare(&mut memory, x);
    let parameters = Parameters::default().u64(memory.address(x, 0)).0;
    let what = Launch {
        entry: "t",
        grid: [1, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let limits = Limits { instructions: 100_000, ..Limits::default() };
    let result =
        launch(&module, &mut memory, &what, &limits, &Options::default(), &mut Coverage::new());
    Run { memory, result }
}

fn run(body: &str, threads: u32) -> Run {
    run_with(body, threads, |_, _| {})
}

#[track_caller]
fn fault(run: Run) -> ptx_vm::Fault {
    match run.result {
        Err(Stop::Fault(fault)) => {
            assert!(!fault.kind.to_string().is_empty());
            *fault
        }
        other => panic!("expected a fault, got {other:?}"),
    }
}

#[track_caller]
fn fine(run: Run) -> Vec<u32> {
    run.result.unwrap();
    words(&run.memory, ptx_vm::BufferId(1))
}

#[test]
fn global_bounds() {
    fine(run("ld.global.u32 %r2, [%rd1+1020];", 1));
    let f = fault(run("ld.global.u32 %r2, [%rd1+1024];", 1));
    match f.kind {
        FaultKind::OutOfBounds { buffer: Some(b), store: false, access_bytes: 4, .. } => {
            assert_eq!((b.name.as_str(), b.offset), ("x", 1024))
        }
        other => panic!("{other:?}"),
    }
    let f = fault(run("st.global.u32 [%rd1+-4], %r1;", 1));
    match f.kind {
        FaultKind::OutOfBounds { buffer: Some(b), store: true, .. } => {
            assert_eq!((b.name.as_str(), b.offset), ("x", -4))
        }
        other => panic!("{other:?}"),
    }
    // One lane of many.
    fine(run("ld.global.u32 %r2, [%rd3+512];", 128));
    let f = fault(run("ld.global.u32 %r2, [%rd3+516];", 128));
    assert_eq!(f.thread, [127, 0, 0]);
    let f = fault(run("mov.u64 %rd4, 16;ld.global.u32 %r2, [%rd4];", 1));
    assert!(matches!(f.kind, FaultKind::OutOfBounds { buffer: None, .. }));
}

#[test]
fn alignment_is_of_the_whole_access() {
    fine(run("ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd1+16];", 1));
    let f = fault(run("ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd1+8];", 1));
    assert!(matches!(f.kind, FaultKind::Misaligned { access_bytes: 16, .. }));
    let f = fault(run("st.global.u16 [%rd1+1], %rs1;", 1));
    assert!(matches!(f.kind, FaultKind::Misaligned { store: true, .. }));
    let f = fault(run("st.shared.u32 [s+2], %r1;", 1));
    assert!(matches!(f.kind, FaultKind::Misaligned { space: MemorySpace::Shared, .. }));
}

#[test]
fn marks_are_exact_to_the_byte() {
    let load = "ld.global.u32 %r2, [%rd1+8];";
    let mark = |at: u64, set: u8, clear: u8| {
        move |memory: &mut Memory, x| memory.mark(x, at..at + 1, set, clear)
    };
    for (at, hit) in [(7, false), (8, true), (11, true), (12, false)] {
        let r = run_with(load, 1, mark(at, marks::UNREAD, 0));
        if hit {
            match fault(r).kind {
                FaultKind::UnreadRead { buffer } => assert_eq!(buffer.offset, at as i64),
                other => panic!("{other:?}"),
            }
        } else {
            fine(r);
        }
        let r = run_with(load, 1, mark(at, 0, marks::INIT));
        if hit {
            match fault(r).kind {
                FaultKind::Uninitialised { offset, .. } => assert_eq!(offset, at),
                other => panic!("{other:?}"),
            }
        } else {
            fine(r);
        }
        let r = run_with("st.global.u32 [%rd1+8], %r1;", 1, mark(at, marks::UNWRITABLE, 0));
        if hit {
            assert!(matches!(fault(r).kind, FaultKind::UnwritableWrite { .. }));
        } else {
            assert_eq!(r.memory.written_ranges(ptx_vm::BufferId(1)), vec![8..12]);
            fine(r);
        }
    }
    // A whole warp at once, the mark under its last lane.
    let r = run_with("ld.global.u32 %r2, [%rd3];", 32, mark(127, marks::UNREAD, 0));
    assert_eq!(fault(r).thread, [31, 0, 0]);
}

#[test]
fn lanes_that_store_different_values_to_one_address() {
    fine(run("mov.u32 %r2, 5;st.global.u32 [%rd1], %r2;", 32));
    let f = fault(run("st.global.u32 [%rd1], %r1;", 32));
    assert!(matches!(f.kind, FaultKind::GlobalRace { .. }));
    let f = fault(run("st.shared.u32 [s], %r1;", 32));
    assert!(matches!(f.kind, FaultKind::SharedRace { race: RaceKind::WriteAfterWrite, .. }));
    fine(run("mov.u32 %r2, 5;st.shared.u32 [s], %r2;", 32));
}

#[test]
fn shared_bounds_and_initialisation() {
    fine(run("st.shared.u32 [s+252], %r1;", 1));
    let f = fault(run("st.shared.u32 [s+256], %r1;", 1));
    assert!(matches!(f.kind, FaultKind::OutOfBounds { space: MemorySpace::Shared, .. }));
    let f = fault(run("ld.shared.u32 %r2, [s+4];", 1));
    assert!(matches!(
        f.kind,
        FaultKind::Uninitialised { space: MemorySpace::Shared, offset: 4, .. }
    ));
}

#[test]
fn shared_races_across_warps() {
    let body = |middle: &str| {
        format!(
            "st.shared.u32 [%r27], %r1;\n{middle}\nxor.b32 %r2, %r28, 128;add.u32 %r3, %r29, %r2;ld.shared.u32 %r4, [%r3];st.global.u32 [%rd3], %r4;"
        )
    };
    let got = fine(run(&body("bar.sync 0;"), 64));
    assert_eq!(got[0], 32);
    let f = fault(run(&body(""), 64));
    // The second warp's bytes are not there yet, or are raced for; both name the load.
    assert!(f.instruction.contains("ld.shared"));
    let late = "bar.sync 0;xor.b32 %r2, %r28, 128;add.u32 %r3, %r29, %r2;";
    let f = fault(run(
        &format!(
            "st.shared.u32 [%r27], %r1;{late}\nld.shared.u32 %r4, [%r3];\nst.shared.u32 [%r27], %r4;"
        ),
        64,
    ));
    assert!(matches!(
        f.kind,
        FaultKind::SharedRace { race: RaceKind::WriteAfterRead | RaceKind::ReadAfterWrite, .. }
    ));
    let other = f.other.unwrap();
    assert_ne!(other.ptx_line, f.ptx_line);
    fine(run(
        &format!(
            "st.shared.u32 [%r27], %r1;{late}ld.shared.u32 %r4, [%r3];bar.sync 0;st.shared.u32 [%r27], %r4;"
        ),
        64,
    ));
}

#[test]
fn shared_races_within_a_warp() {
    let body = |middle: &str| {
        format!(
            "st.shared.u32 [%r27], %r1;{middle}xor.b32 %r2, %r28, 4;add.u32 %r3, %r29, %r2;ld.shared.u32 %r4, [%r3];st.global.u32 [%rd3], %r4;"
        )
    };
    assert_eq!(fine(run(&body("bar.warp.sync 0xffffffff;"), 32))[0], 1);
    let f = fault(run(&body(""), 32));
    assert!(matches!(f.kind, FaultKind::SharedRace { race: RaceKind::ReadAfterWrite, .. }));
}

#[test]
fn atomics_do_not_race_with_atomics() {
    let body = "setp.eq.u32 %p1, %r1, 0;mov.u32 %r2, 0;@%p1 st.shared.u32 [z], %r2;\n\
                bar.sync 0;atom.shared.add.u32 %r3, [z], 1;";
    let got = fine(run(
        &format!("{body}bar.sync 0;ld.shared.u32 %r4, [z];st.global.u32 [%rd3], %r4;"),
        64,
    ));
    assert_eq!(got[63], 64);
    let f = fault(run(&format!("{body}\nld.shared.u32 %r4, [z];"), 64));
    assert!(matches!(f.kind, FaultKind::SharedRace { .. }));
}

#[test]
fn barriers() {
    // Exited threads count as arrived.
    fine(run("setp.gt.u32 %p1, %r1, 40;@%p1 bra OUT;bar.sync 0;OUT:", 64));
    // Lanes of a warp arrive from different places.
    fine(run("setp.gt.u32 %p1, %r26, 9;@%p1 bra A;bar.sync 0;bra B;A: bar.sync 0;B:", 64));
    let f = fault(run("setp.gt.u32 %p1, %r1, 31;@%p1 bra A;bar.sync 0;bra B;A: bar.sync 1;B:", 64));
    assert_eq!(f.kind, FaultKind::BarrierMismatch { first: 0, second: 1 });
    let f = fault(run("setp.gt.u32 %p1, %r1, 31;@%p1 bra OUT;bar.sync 1, 64;OUT:", 64));
    assert_eq!(f.kind, FaultKind::ExitedAtBarrier { barrier: 1, arrived: 32, expected: 64 });
    fine(run("setp.gt.u32 %p1, %r1, 31;@%p1 bra OUT;bar.sync 1, 32;OUT:", 64));
    fine(run(
        "setp.gt.u32 %p1, %r1, 31;@%p1 bra A;bar.sync 1, 64;bra B;A: bar.arrive 1, 64;B:",
        64,
    ));
    // A half warp waits for a shuffle whose other half waits at the barrier.
    let f = fault(run(
        "setp.gt.u32 %p1, %r26, 15;@%p1 bra A;shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffffffff;A: bar.sync 0;",
        64,
    ));
    assert!(matches!(f.kind, FaultKind::BarrierDivergence { .. }));
    let f = fault(run("bar.sync 16;", 32));
    assert!(matches!(f.kind, FaultKind::BadBarrier { barrier: 16, .. }));
}

#[test]
fn barrier_reductions() {
    let got = fine(run(
        "setp.lt.u32 %p1, %r1, 40;bar.red.popc.u32 %r2, 0, %p1;bar.red.and.pred %p2, 0, %p1;bar.red.or.pred %p3, 0, %p1;\n\
         selp.u32 %r3, 1000, 0, %p2;selp.u32 %r4, 2000, 0, %p3;add.u32 %r2, %r2, %r3;add.u32 %r2, %r2, %r4;st.global.u32 [%rd3], %r2;",
        64,
    ));
    assert_eq!(got[0], 2040);
    assert_eq!(got[63], 2040);
}

#[test]
fn shuffles_and_member_masks() {
    let got = fine(run(
        "shfl.sync.up.b32 %r2|%p1, %r1, 1, 0, 0xffffffff;selp.u32 %r3, %r2, 99, %p1;st.global.u32 [%rd3], %r3;",
        32,
    ));
    assert_eq!(got[..3], [99, 0, 1]);
    let got = fine(run(
        "shfl.sync.idx.b32 %r2, %r1, 2, 0x181f, 0xffffffff;st.global.u32 [%rd3], %r2;",
        32,
    ));
    assert_eq!((got[0], got[9], got[31]), (2, 10, 26));
    let f = fault(run("shfl.sync.idx.b32 %r2, %r1, 20, 31, 0xffffffff;", 16));
    assert_eq!(f.kind, FaultKind::ShuffleInactive { lane: 20 });
    fine(run("shfl.sync.idx.b32 %r2, %r1, 15, 31, 0xffffffff;", 16));
    let f = fault(run("shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffff;", 32));
    assert_eq!(f.kind, FaultKind::BadMemberMask { members: 0xffff });
    assert_eq!(f.thread, [16, 0, 0]);
}

#[test]
fn votes_matches_and_reductions() {
    let got = fine(run(
        "setp.lt.u32 %p1, %r1, 5;vote.sync.ballot.b32 %r2, %p1, 0xffffffff;and.b32 %r3, %r1, 3;\n\
         match.any.sync.b32 %r4, %r3, 0xffffffff;redux.sync.add.u32 %r5, %r1, 0xffffffff;redux.sync.max.s32 %r6, %r1, 0xffffffff;\n\
         setp.eq.u32 %p2, %r1, 0;@%p2 st.global.v4.u32 [%rd1], {%r2,%r4,%r5,%r6};",
        32,
    ));
    assert_eq!(got[..4], [0x1f, 0x1111_1111, 496, 31]);
}

#[test]
fn a_lock_inside_a_warp_is_no_deadlock() {
    let got = fine(run(
        "setp.eq.u32 %p1, %r1, 0;mov.u32 %r2, 0;@%p1 st.global.u32 [%rd1], %r2;@%p1 st.global.u32 [%rd1+4], %r2;bar.sync 0;\n\
         L: atom.global.cas.b32 %r3, [%rd1], 0, 1;setp.ne.u32 %p2, %r3, 0;@%p2 bra L;\n\
         ld.volatile.global.u32 %r4, [%rd1+4];add.u32 %r4, %r4, 1;st.volatile.global.u32 [%rd1+4], %r4;\n\
         atom.global.exch.b32 %r5, [%rd1], 0;",
        8,
    ));
    assert_eq!(got[..2], [0, 8]);
}

#[test]
fn budget_trap_and_unsupported() {
    let f = fault(run("L: bra L;", 32));
    assert_eq!(f.kind, FaultKind::InstructionBudget { limit: 100_000 });
    assert_eq!(fault(run("trap;", 1)).kind, FaultKind::Trap);
    fine(run("setp.eq.u32 %p1, %r1, 9;@%p1 frobnicate.b32 %r1, %r2;", 1));
    match run("frobnicate.b32 %r1, %r2;", 1).result {
        Err(Stop::Unsupported { what, ptx_line, .. }) => {
            assert_eq!(what, "frobnicate.b32");
            assert!(ptx_line > 5);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn impossible_launches() {
    let module = Module::parse(&kernel("")).unwrap();
    let mut memory = Memory::new();
    let good = Launch {
        entry: "t",
        grid: [1, 1, 1],
        block: [32, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &[0; 8],
    };
    let mut go = |what: Launch<'_>| {
        launch(
            &module,
            &mut memory,
            &what,
            &Limits::default(),
            &Options::default(),
            &mut Coverage::new(),
        )
    };
    assert!(go(good).is_ok());
    let bad = |r: Result<Stats, Stop>| match r {
        Err(Stop::BadLaunch(e)) => e,
        other => panic!("{other:?}"),
    };
    assert!(matches!(bad(go(Launch { entry: "u", ..good })), LaunchError::UnknownEntry(_)));
    assert!(matches!(
        bad(go(Launch { parameters: &[0; 4], ..good })),
        LaunchError::ParameterLength { expected_bytes: 8, given_bytes: 4 }
    ));
    assert!(matches!(
        bad(go(Launch { block: [1025, 1, 1], ..good })),
        LaunchError::TooManyThreads { limit: 1024, .. }
    ));
    assert!(matches!(bad(go(Launch { grid: [0, 1, 1], ..good })), LaunchError::BadGeometry { .. }));
    assert!(matches!(
        bad(go(Launch { dynamic_shared_bytes: 1 << 20, ..good })),
        LaunchError::TooMuchShared { .. }
    ));
}

#[test]
fn coverage_counts_edges_and_blocks() {
    let text =
        kernel("setp.lt.u32 %p1, %r1, 9;@%p1 bra A;add.u32 %r2, %r1, 1;A: add.u32 %r3, %r1, 1;");
    let module = Module::parse(&text).unwrap();
    let entry = module.entry("t").unwrap();
    let mut coverage = Coverage::new();
    let mut memory = Memory::new();
    for (threads, hits) in [(4u32, [1, 0, 1]), (32, [2, 1, 2])] {
        let what = Launch {
            entry: "t",
            grid: [1, 1, 1],
            block: [threads, 1, 1],
            dynamic_shared_bytes: 0,
            parameters: &[0; 8],
        };
        launch(&module, &mut memory, &what, &Limits::default(), &Options::default(), &mut coverage)
            .unwrap();
        let counts = coverage.entry("t").unwrap().block_hits(entry);
        assert_eq!(counts.iter().map(|c| (*c).min(2)).collect::<Vec<_>>()[1], hits[1]);
    }
    assert_eq!(entry.blocks()[2].label.as_deref(), Some("A"));
}

#[test]
fn planted_faults_in_compiled_kernels_name_their_source_line() {
    type Expected = fn(&FaultKind) -> bool;
    let cases: [(&str, Expected); 4] = [
        (include_str!("ptx/sim_NOSYNC.sm80.ptx"), |k| {
            matches!(k, FaultKind::SharedRace { .. } | FaultKind::Uninitialised { .. })
        }),
        (include_str!("ptx/sim_OOB.sm80.ptx"), |k| matches!(k, FaultKind::OutOfBounds { .. })),
        (include_str!("ptx/sim_UNINIT.sm80.ptx"), |k| {
            matches!(k, FaultKind::Uninitialised { space: MemorySpace::Shared, .. })
        }),
        (include_str!("ptx/sim.sm80.ptx"), |_| false),
    ];
    for (text, expected) in cases {
        let module = Module::parse(text).unwrap();
        let mut memory = Memory::new();
        let mut parameters = Parameters::default();
        let heads = 2u64;
        for (name, len) in [
            ("S", 128 * 128),
            ("k", 128),
            ("q", 128),
            ("v", 128),
            ("alpha", 1),
            ("beta", 1),
            ("o", 128),
        ] {
            let b = memory.allocate(name, len * heads * 4, &[0, 0, 128, 63], marks::INIT);
            parameters = parameters.u64(memory.address(b, 0));
        }
        let what = Launch {
            entry: "gdn_simple",
            grid: [2, 1, 1],
            block: [128, 1, 1],
            dynamic_shared_bytes: 0,
            parameters: &parameters.0,
        };
        let result = launch(
            &module,
            &mut memory,
            &what,
            &Limits::default(),
            &Options::default(),
            &mut Coverage::new(),
        );
        match result {
            Ok(_) => assert!(text.contains("bar.sync") && !expected(&FaultKind::Trap)),
            Err(Stop::Fault(f)) => {
                assert!(expected(&f.kind), "{f}");
                let source = f.source.unwrap();
                assert_eq!(&*source.file, "sim.cu");
                assert!(source.line > 9);
            }
            Err(other) => panic!("{other}"),
        }
    }
}
