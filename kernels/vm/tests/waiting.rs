//! Blocks that wait for each other run to the end when others can let them, and are reported when
//! nobody can; the seed of a schedule changes what depends on the order, and nothing else.

mod support;

use ptx_vm::{
    BufferId, Coverage, Fault, FaultKind, Launch, Limits, Memory, MemorySpace, Module, Options,
    Schedule, Stop, launch,
};
use support::{Parameters, bytes32, words};

/// A kernel `t(p)`: `%rd1` = p, `%r1` = tid, `%r2` = ctaid, `%r3` = nctaid, `%rd3` = &p[tid],
/// `%rd4` = &p[ctaid], `%rd5` = p + 2048, `%p1`: tid is 0, `%p2`: ctaid is 0.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.global .align 4 .u32 state = 0;\n\
         .visible .entry t(.param .u64 p)\n{{\n.reg .pred %p<9>;.reg .b32 %r<30>;.reg .b64 %rd<30>;\n\
         .shared .align 16 .b8 s[1024];\n\
         ld.param.u64 %rd1, [p];mov.u32 %r1, %tid.x;mov.u32 %r2, %ctaid.x;mov.u32 %r3, %nctaid.x;\n\
         mul.wide.u32 %rd2, %r1, 4;add.s64 %rd3, %rd1, %rd2;mul.wide.u32 %rd2, %r2, 4;add.s64 %rd4, %rd1, %rd2;\n\
         add.s64 %rd5, %rd1, 2048;setp.eq.u32 %p1, %r1, 0;setp.eq.u32 %p2, %r2, 0;\n{body}\nret;\n}}\n"
    )
}

struct Shape {
    blocks: u32,
    threads: u32,
    schedule: Schedule,
    limits: Limits,
}

fn shape(blocks: u32, threads: u32) -> Shape {
    let limits = Limits { instructions: 3_000_000, ..Limits::default() };
    Shape { blocks, threads, schedule: Schedule::InOrder, limits }
}

fn run(body: &str, shape: &Shape) -> Result<Vec<u32>, Stop> {
    let module = Module::parse(&kernel(body)).unwrap();
    let mut memory = Memory::new();
    let x = memory.allocate("x", 8192, &[], 0);
    memory.write(x, 0, &bytes32(&[0; 2048]));
    let parameters = Parameters::default().u64(memory.address(x, 0)).0;
    let what = Launch {
        entry: "t",
        grid: [shape.blocks, 1, 1],
        block: [shape.threads, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let options = Options { schedule: shape.schedule, ..Options::default() };
    launch(&module, &mut memory, &what, &shape.limits, &options, &mut Coverage::new())?;
    Ok(words(&memory, BufferId(0)))
}

/// The same in order and under many seeds.
#[track_caller]
fn always(body: &str, blocks: u32, threads: u32) -> Vec<u32> {
    let mut shape = shape(blocks, threads);
    let first = run(body, &shape).unwrap_or_else(|stop| panic!("{stop}"));
    for seed in 0..20 {
        shape.schedule = Schedule::Seeded(seed);
        let next = run(body, &shape).unwrap_or_else(|stop| panic!("seed {seed}: {stop}"));
        assert_eq!(first, next, "seed {seed}");
    }
    first
}

#[track_caller]
fn stuck(result: Result<Vec<u32>, Stop>) -> Fault {
    match result {
        Err(Stop::Fault(fault)) if matches!(fault.kind, FaultKind::NoProgress { .. }) => {
            assert!(fault.to_string().contains("no progress"), "{fault}");
            *fault
        }
        other => panic!("expected no progress, got {other:?}"),
    }
}

/// A barrier of the grid: count in, wait for the phase. `%r20` = phase, from 0 on.
fn grid_barrier(label: &str) -> String {
    format!(
        "bar.sync 0;@!%p1 bra D{label};membar.gl;\n\
         add.u32 %r20, %r20, 1;mul.lo.u32 %r21, %r20, %r3;atom.global.add.u32 %r22, [%rd5], 1;\n\
         W{label}: ld.volatile.global.u32 %r22, [%rd5];setp.lt.u32 %p8, %r22, %r21;@%p8 bra W{label};\n\
         membar.gl;D{label}: bar.sync 0;\n"
    )
}

#[test]
fn a_grid_barrier_lets_every_block_through() {
    // Each block stores, all meet, each reads its neighbour's, all meet, each stores again.
    let body = format!(
        "mov.u32 %r20, 0;add.u32 %r9, %r2, 100;@%p1 st.global.u32 [%rd4], %r9;\n{}\
         add.u32 %r10, %r2, 1;rem.u32 %r10, %r10, %r3;mul.wide.u32 %rd6, %r10, 4;add.s64 %rd6, %rd6, %rd1;ld.global.u32 %r11, [%rd6];\n{}\
         @%p1 st.global.u32 [%rd4], %r11;",
        grid_barrier("a"),
        grid_barrier("b")
    );
    for blocks in [1, 2, 7, 100] {
        let got = always(&body, blocks, 64);
        for b in 0..blocks {
            assert_eq!(got[b as usize], 100 + (b + 1) % blocks);
        }
    }
    // A barrier too few: a neighbour's store meets the read.
    let body = body.replacen(&grid_barrier("b"), "", 1);
    let error = run(&body, &shape(7, 64)).unwrap_err();
    assert!(
        matches!(&error, Stop::Fault(f) if matches!(f.kind, FaultKind::BlockRace { .. })),
        "{error}"
    );
}

#[test]
fn a_grid_barrier_of_more_blocks_than_fit_is_reported() {
    let body = format!("mov.u32 %r20, 0;\n{}", grid_barrier("a"));
    let mut small = shape(40, 1024);
    small.limits.multiprocessors = 16;
    let fault = stuck(run(&body, &small));
    match fault.kind.clone() {
        FaultKind::NoProgress { space, buffer, waiting_blocks, unstarted_blocks, .. } => {
            assert_eq!((space, waiting_blocks, unstarted_blocks), (MemorySpace::Global, 32, 8));
            let place = buffer.unwrap();
            assert_eq!((place.name.as_str(), place.offset), ("x", 2048));
        }
        other => panic!("{other}"),
    }
    assert!(fault.instruction.contains("ld.volatile.global"), "{fault}");
    assert_eq!(fault.thread, [0, 0, 0]);
    small.schedule = Schedule::Seeded(5);
    stuck(run(&body, &small));
    small.blocks = 32;
    run(&body, &small).unwrap();
    small.schedule = Schedule::InOrder;
    run(&body, &small).unwrap();
    // Room on the host is no fault of the kernel.
    small.limits.resident_bytes = 1 << 20;
    let error = run(&body, &small).unwrap_err();
    assert!(matches!(&error, Stop::Unsupported { what, .. } if what.contains("resident_bytes")));
}

#[test]
fn blocks_look_back_at_those_before_them() {
    // A running sum: each block waits for its predecessor's.
    let body = "@!%p1 bra E;mov.u32 %r9, 0;@%p2 bra F;L: ld.acquire.gpu.global.u32 %r4, [%rd4+2044];setp.eq.u32 %p4, %r4, 0;@%p4 bra L;ld.global.u32 %r9, [%rd4+-4];\n\
                F: add.u32 %r9, %r9, %r2;st.global.u32 [%rd4], %r9;mov.u32 %r5, 1;st.release.gpu.global.u32 [%rd4+2048], %r5;E:";
    let got = always(body, 300, 32);
    assert_eq!((got[10], got[299]), (55, 299 * 300 / 2));
}

#[test]
fn blocks_wait_for_later_ones() {
    // The first block adds what the others leave for it.
    let body = "@!%p1 bra E;@%p2 bra F;st.global.u32 [%rd4], %r2;membar.gl;mov.u32 %r5, 1;st.volatile.global.u32 [%rd4+2048], %r5;bra E;\n\
                F: mov.u32 %r6, 1;mov.u32 %r7, 0;mov.u64 %rd6, %rd1;N: add.s64 %rd6, %rd6, 4;W: ld.volatile.global.u32 %r4, [%rd6+2048];setp.eq.u32 %p4, %r4, 0;@%p4 bra W;\n\
                membar.gl;ld.global.u32 %r8, [%rd6];add.u32 %r7, %r7, %r8;add.u32 %r6, %r6, 1;setp.lt.u32 %p5, %r6, %r3;@%p5 bra N;st.global.u32 [%rd1], %r7;E:";
    assert_eq!(always(body, 50, 32)[0], 49 * 50 / 2);
}

#[test]
fn a_lock_between_blocks() {
    let body = "@!%p1 bra E;L: atom.acquire.gpu.global.cas.b32 %r4, [%rd5], 0, 1;setp.ne.u32 %p4, %r4, 0;@%p4 bra L;\n\
                ld.global.u32 %r5, [%rd1];add.u32 %r5, %r5, 1;st.global.u32 [%rd1], %r5;\n\
                atom.release.gpu.global.exch.b32 %r6, [%rd5], 0;E:";
    assert_eq!(always(body, 64, 32)[0], 64);
    // Without the release, the next owner's read races.
    let body = body.replace("atom.release.gpu", "atom.relaxed.gpu");
    let error = run(&body, &shape(4, 32)).unwrap_err();
    assert!(matches!(&error, Stop::Fault(f) if matches!(f.kind, FaultKind::BlockRace { .. })));
}

#[test]
fn lanes_and_warps_wait_for_each_other() {
    // Lane 0 waits for lane 1, through shared and through global memory.
    for space in [
        "shared.u32 %r4, [s]|st.volatile.shared.u32 [s]",
        "global.u32 %r4, [%rd4]|st.volatile.global.u32 [%rd4]",
    ] {
        let (load, store) = space.split_once('|').unwrap();
        let body = format!(
            "mov.u32 %r9, 0;@%p1 st.volatile.shared.u32 [s], %r9;bar.sync 0;mov.u32 %r5, 1;setp.eq.u32 %p3, %r1, N;\n\
             @!%p1 bra O;L: ld.volatile.{load};setp.eq.u32 %p4, %r4, 0;@%p4 bra L;bra E;O: @%p3 {store}, %r5;E:"
        );
        for (n, blocks) in [("1", 1), ("1", 5), ("40", 1), ("40", 5)] {
            always(&body.replace('N', n), blocks, 64);
        }
    }
}

#[test]
fn nobody_raises_the_flag() {
    let body =
        "@!%p1 bra E;L: ld.volatile.global.u32 %r4, [%rd5];setp.eq.u32 %p4, %r4, 0;@%p4 bra L;E:";
    for blocks in [1, 2, 9] {
        for schedule in [Schedule::InOrder, Schedule::Seeded(1), Schedule::Seeded(2)] {
            let fault = stuck(run(body, &Shape { schedule, ..shape(blocks, 64) }));
            match fault.kind {
                FaultKind::NoProgress { waiting_blocks, unstarted_blocks, buffer, .. } => {
                    assert_eq!((waiting_blocks, unstarted_blocks), (blocks.into(), 0));
                    assert_eq!(buffer.unwrap().offset, 2048);
                }
                other => panic!("{other}"),
            }
        }
    }
    // In shared memory, by a lock that nobody frees, and two flags in turn.
    let shared = "mov.u32 %r9, 0;@%p1 st.shared.u32 [s], %r9;bar.sync 0;L: ld.volatile.shared.u32 %r4, [s];setp.eq.u32 %p4, %r4, 0;@%p4 bra L;";
    let fault = stuck(run(shared, &shape(1, 64)));
    assert!(matches!(
        fault.kind,
        FaultKind::NoProgress { space: MemorySpace::Shared, address: 0, .. }
    ));
    let lock = "L: atom.global.cas.b32 %r4, [%rd5], 0, 1;setp.ne.u32 %p4, %r4, 0;@%p4 bra L;";
    stuck(run(lock, &shape(3, 1)));
    let two = "L: ld.volatile.global.u32 %r4, [%rd5];ld.volatile.global.u32 %r5, [%rd5+4];or.b32 %r4, %r4, %r5;setp.eq.u32 %p4, %r4, 0;@%p4 bra L;";
    stuck(run(two, &shape(3, 32)));
    let variable = "mov.u64 %rd6, state;L: ld.volatile.global.u32 %r4, [%rd6];setp.eq.u32 %p4, %r4, 0;@%p4 bra L;";
    let fault = stuck(run(variable, &shape(2, 1)));
    assert!(fault.to_string().contains("a thread polls byte 0 of .global state"), "{fault}");
    // The rest of the block waits at a barrier.
    let barrier = format!("{}bar.sync 0;", body.replace("E:", "E: "));
    stuck(run(&barrier, &shape(3, 128)));
}

#[test]
fn who_counts_polls_may_give_up() {
    // A bound on the polls: slow, but it ends.
    let body = "@!%p1 bra E;mov.u32 %r6, 0;L: ld.volatile.global.u32 %r4, [%rd5];add.u32 %r6, %r6, 1;setp.lt.u32 %p5, %r6, 20000;setp.eq.and.u32 %p4, %r4, 0, %p5;@%p4 bra L;\n\
                st.global.u32 [%rd4], %r6;E:";
    let got = run(body, &shape(3, 64)).unwrap();
    assert_eq!(got[..3], [20000; 3]);
    // The flag comes late: after much work without an access of memory.
    let body = "@!%p1 bra E;@!%p2 bra F;L: ld.volatile.global.u32 %r4, [%rd5];setp.eq.u32 %p4, %r4, 0;@%p4 bra L;bra E;\n\
                F: mov.u32 %r6, 0;M: add.u32 %r6, %r6, 1;setp.lt.u32 %p5, %r6, 300000;@%p5 bra M;st.volatile.global.u32 [%rd5], %r6;E:";
    assert_eq!(run(body, &shape(2, 64)).unwrap()[512], 300_000);
    always(body, 2, 32);
    // A clock is no state to come back to: the budget ends it.
    let body = "@!%p1 bra E;L: mov.u64 %rd8, %clock64;ld.volatile.global.u32 %r4, [%rd5];setp.eq.u32 %p4, %r4, 0;@%p4 bra L;E:";
    let error = run(body, &shape(2, 64)).unwrap_err();
    assert!(
        matches!(&error, Stop::Fault(f) if matches!(f.kind, FaultKind::InstructionBudget { .. }))
    );
}

#[test]
fn seeds_change_what_depends_on_the_order_and_repeat() {
    // Who comes first depends on the order; how many come does not.
    let body = "@!%p1 bra E;atom.global.add.u32 %r4, [%rd5], 1;mul.wide.u32 %rd6, %r4, 4;add.s64 %rd6, %rd6, %rd1;st.global.u32 [%rd6], %r2;E:";
    let of = |schedule| run(body, &Shape { schedule, ..shape(40, 32) }).unwrap();
    let in_order = of(Schedule::InOrder);
    assert!((0..40).all(|i| in_order[i] == i as u32));
    let seeds: Vec<_> = (0..8).map(|seed| of(Schedule::Seeded(seed))).collect();
    for (seed, got) in seeds.iter().enumerate() {
        assert_eq!(*got, of(Schedule::Seeded(seed as u64)), "seed {seed} repeats");
        assert_ne!(got[..40], in_order[..40]);
        let mut sorted = got[..40].to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, in_order[..40]);
        assert_eq!(got[512], 40);
    }
    assert_ne!(seeds[0], seeds[1]);
    // Warps of one block.
    let body = "and.b32 %r9, %r1, 31;setp.ne.u32 %p4, %r9, 0;@%p4 bra E;shr.u32 %r8, %r1, 5;atom.global.add.u32 %r4, [%rd5], 1;mul.wide.u32 %rd6, %r4, 4;add.s64 %rd6, %rd6, %rd1;st.global.u32 [%rd6], %r8;E:";
    let of = |schedule| run(body, &Shape { schedule, ..shape(1, 512) }).unwrap();
    assert_ne!(of(Schedule::Seeded(3)), of(Schedule::InOrder));
    // Independent blocks.
    always("mad.lo.u32 %r9, %r2, 7, %r1;@%p1 st.global.u32 [%rd4], %r9;", 200, 64);
}
