//! Races of blocks on global memory: each is found with both parties, and the ordered code beside
//! it stays silent.

mod support;

use ptx_vm::{
    BufferId, Coverage, Fault, FaultKind, Launch, Limits, Memory, Module, Options, RaceKind, Stop,
    launch, marks,
};
use support::{Parameters, bytes32, words};

/// A kernel `t(p)`: `%rd1` = p, `%r1` = tid, `%r2` = ctaid, `%r3` = nctaid, `%rd3` = &p[tid],
/// `%rd4` = &p[ctaid], `%p1`: tid is 0, `%p2`: ctaid is 0, `%p3`: both are.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.global .align 4 .u32 counter = 0;\n\
         .visible .entry t(.param .u64 p)\n{{\n.reg .pred %p<9>;.reg .b16 %rs<9>;.reg .b32 %r<30>;.reg .b64 %rd<30>;\n\
         .shared .align 4 .u32 last;\n\
         ld.param.u64 %rd1, [p];mov.u32 %r1, %tid.x;mov.u32 %r2, %ctaid.x;mov.u32 %r3, %nctaid.x;\n\
         mul.wide.u32 %rd2, %r1, 4;add.s64 %rd3, %rd1, %rd2;mul.wide.u32 %rd2, %r2, 4;add.s64 %rd4, %rd1, %rd2;\n\
         setp.eq.u32 %p1, %r1, 0;setp.eq.u32 %p2, %r2, 0;and.pred %p3, %p1, %p2;\n{body}\nret;\n}}\n"
    )
}

fn run_marked(body: &str, blocks: u32, threads: u32, set: u8) -> Result<Vec<u32>, Stop> {
    let module = Module::parse(&kernel(body)).unwrap();
    let mut memory = Memory::new();
    let x = memory.allocate("x", 4096, &[], 0);
    memory.write(x, 0, &bytes32(&[0; 1024]));
    memory.mark(x, 0..4096, set, 0);
    let parameters = Parameters::default().u64(memory.address(x, 0)).0;
    let what = Launch {
        entry: "t",
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let limits = Limits { instructions: 3_000_000, ..Limits::default() };
    launch(&module, &mut memory, &what, &limits, &Options::default(), &mut Coverage::new())?;
    Ok(words(&memory, BufferId(0)))
}

fn run(body: &str, blocks: u32, threads: u32) -> Result<Vec<u32>, Stop> {
    run_marked(body, blocks, threads, 0)
}

#[track_caller]
fn race(result: Result<Vec<u32>, Stop>) -> (Fault, RaceKind, i64) {
    match result {
        Err(Stop::Fault(fault)) => {
            assert!(fault.to_string().contains("of block ["), "{fault}");
            match &fault.kind {
                FaultKind::BlockRace { buffer, race, .. } => {
                    let offset = buffer.as_ref().map_or(-1, |b| b.offset);
                    ((*fault).clone(), *race, offset)
                }
                other => panic!("{other}"),
            }
        }
        other => panic!("expected a race, got {other:?}"),
    }
}

#[track_caller]
fn fine(result: Result<Vec<u32>, Stop>) -> Vec<u32> {
    result.unwrap_or_else(|stop| panic!("{stop}"))
}

#[test]
fn stores_of_two_blocks_to_one_byte() {
    let (fault, kind, offset) = race(run("st.global.u32 [%rd3], %r2;", 2, 32));
    assert_eq!((kind, offset), (RaceKind::WriteAfterWrite, 0));
    assert_eq!((fault.block, fault.thread), ([1, 0, 0], [0, 0, 0]));
    let other = fault.other.unwrap();
    assert_eq!((other.block, other.thread), (Some([0, 0, 0]), Some([0, 0, 0])));
    assert!(other.instruction.contains("st.global.u32"));
    // One word each.
    let got = fine(run("@%p1 st.global.u32 [%rd4], %r2;", 9, 32));
    assert_eq!(got[..9], [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    // One block alone may do what it likes here.
    fine(run("st.global.u32 [%rd3], %r2;", 1, 32));
}

#[test]
fn parties_are_named_to_the_lane() {
    // Block 1 reads what thread 5 of block 0 stored.
    let body = "@%p2 st.global.u32 [%rd3], %r1;@%p2 bra E;@%p1 ld.global.u32 %r4, [%rd1+20];E:";
    let (fault, kind, offset) = race(run(body, 2, 64));
    assert_eq!((kind, offset), (RaceKind::ReadAfterWrite, 20));
    assert_eq!(fault.other.unwrap().thread, Some([5, 0, 0]));
    let far = "@%p2 st.global.u32 [%rd3], %r1;@%p2 bra E;@%p1 ld.global.u32 %r4, [%rd1+256];E:";
    fine(run(far, 2, 64));
    // Halves of a word, side by side and one by one.
    let half = "mul.wide.u32 %rd5, %r1, 2;add.s64 %rd5, %rd5, %rd1;mov.u16 %rs1, 1;@%p2 st.global.u16 [%rd5], %rs1;\n\
                @%p2 bra E;@%p1 ld.global.u16 %rs2, [%rd1+14];E:";
    let (fault, _, offset) = race(run(half, 2, 32));
    assert_eq!((offset, fault.other.unwrap().thread), (14, Some([7, 0, 0])));
    let strided = half.replace("%r1, 2;", "%r1, 6;").replace("+14]", "+42]");
    let (fault, _, offset) = race(run(&strided, 2, 32));
    assert_eq!((offset, fault.other.unwrap().thread), (42, Some([7, 0, 0])));
    fine(run(&strided.replace("+42]", "+44]"), 2, 32));
}

#[test]
fn records_are_exact_to_the_byte() {
    let byte = |base: &str| {
        format!(
            "cvt.u64.u32 %rd5, %r2;add.s64 %rd5, %rd5, %rd1;cvt.u16.u32 %rs1, %r2;@%p1 st.global.u8 [%rd5{base}], %rs1;\n"
        )
    };
    // Bytes of one word by different blocks.
    let got = fine(run(&byte(""), 8, 32));
    assert_eq!(got[..2], [0x0302_0100, 0x0706_0504]);
    // The last block reads a neighbour's.
    let body = byte("") + "setp.eq.u32 %p4, %r2, 7;@%p4 ld.global.u8 %rs2, [%rd1+2];";
    let (fault, kind, offset) = race(run(&body, 8, 1));
    assert_eq!((kind, offset), (RaceKind::ReadAfterWrite, 2));
    assert_eq!(fault.other.unwrap().block, Some([2, 0, 0]));
    fine(run(&body.replace("+2]", "+7]"), 8, 1));
    // A word over them.
    let body = byte("") + "setp.eq.u32 %p4, %r2, 7;@%p4 st.global.u32 [%rd1], %r2;";
    assert_eq!(race(run(&body, 8, 1)).1, RaceKind::WriteAfterWrite);
}

#[test]
fn stores_to_what_other_blocks_read() {
    let body = "ld.global.u32 %r4, [%rd1];setp.eq.u32 %p4, %r2, 2;and.pred %p4, %p4, %p1;@%p4 st.global.u32 [%rd1], %r4;";
    let (fault, kind, _) = race(run(body, 3, 32));
    assert_eq!((kind, fault.block), (RaceKind::WriteAfterRead, [2, 0, 0]));
    assert_ne!(fault.other.unwrap().block, Some([2, 0, 0]));
    // The reader is the same block.
    let own = "@!%p2 bra E;ld.global.u32 %r4, [%rd1];@%p1 st.global.u32 [%rd1], %r4;E:";
    fine(run(own, 3, 32));
    // The first reader is the writer, the second is not.
    let second = "ld.global.u32 %r4, [%rd1];@%p2 bra E;@%p1 st.global.u32 [%rd1], %r4;E:";
    assert_eq!(race(run(second, 2, 32)).1, RaceKind::WriteAfterRead);
    fine(run("ld.global.u32 %r4, [%rd1];ld.global.v4.u32 {%r5,%r6,%r7,%r8}, [%rd1+16];", 9, 64));
}

#[test]
fn copies_and_scattered_accesses_are_recorded_too() {
    let body = |access: &str| {
        format!(
            "@%p3 st.global.u32 [%rd1+64], %r1;@%p2 bra E;mov.u32 %r9, last;mul.wide.u32 %rd5, %r1, 8;add.s64 %rd5, %rd5, %rd1;{access}E:"
        )
    };
    for access in [
        "@%p1 cp.async.ca.shared.global [%r9], [%rd1+64], 4;cp.async.wait_all;",
        "ld.global.u32 %r4, [%rd5];",
        "ld.global.v2.u32 {%r4,%r5}, [%rd5];",
        "@%p1 ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%rd1+64];",
        "st.global.u32 [%rd5], %r4;",
        "@%p1 st.global.v4.u32 [%rd1+64], {%r4,%r5,%r6,%r7};",
        "@%p1 st.global.v2.u32 [%rd1+64], {%r4,%r5};",
        "@%p1 atom.global.add.u32 %r4, [%rd1+64], 1;",
        "@%p1 red.global.add.u32 [%rd1+64], 1;",
        "@%p1 ld.volatile.global.u32 %r4, [%rd1+64];",
        "@%p1 ld.u32 %r4, [%rd1+64];",
    ] {
        race(run(&body(access), 2, 32));
    }
    for access in [
        "@%p1 cp.async.ca.shared.global [%r9], [%rd1+68], 4;cp.async.wait_all;",
        "ld.global.u32 %r4, [%rd5+4];",
        "@%p1 atom.global.add.u32 %r4, [%rd1+60], 1;",
    ] {
        fine(run(&body(access), 2, 32));
    }
}

#[test]
fn variables_of_the_module_race_as_well() {
    let weak = "mov.u64 %rd5, counter;@%p1 ld.global.u32 %r4, [%rd5];add.u32 %r4, %r4, 1;@%p1 st.global.u32 [%rd5], %r4;";
    let (fault, ..) = race(run(weak, 2, 32));
    assert!(fault.to_string().contains("byte 0 of .global counter (4 bytes)"), "{fault}");
    assert!(fault.kind.buffer().is_none());
    let FaultKind::BlockRace { buffer: Some(place), .. } = &fault.kind else { panic!("{fault}") };
    assert_eq!((place.id, place.name.as_str()), (BufferId::VARIABLE, ".global counter"));
    fine(run("mov.u64 %rd5, counter;@%p1 atom.global.add.u32 %r4, [%rd5], 1;", 4, 32));
    fine(run("mov.u64 %rd5, counter;@%p1 ld.global.u32 %r4, [%rd5];", 4, 32));
}

#[test]
fn atomics_race_with_weak_accesses_only() {
    fine(run("atom.global.add.u32 %r4, [%rd3], 1;red.global.add.u32 [%rd1], 1;", 4, 32));
    fine(run("st.volatile.global.u32 [%rd1], %r2;ld.volatile.global.u32 %r4, [%rd1];", 4, 1));
    let body = "@%p3 st.global.u32 [%rd1], %r1;bar.sync 0;red.global.add.u32 [%rd1], 1;";
    assert_eq!(race(run(body, 2, 32)).1, RaceKind::ReadAfterWrite);
    let body = "red.global.add.u32 [%rd1], 1;bar.sync 0;ld.global.u32 %r4, [%rd1];";
    assert_eq!(race(run(body, 2, 32)).1, RaceKind::WriteAfterRead);
}

#[test]
fn the_scope_of_a_block_says_nothing_to_others() {
    // Atomic and strong accesses of one place: only a wider scope makes them so between blocks.
    for access in [
        "atom.relaxed.SCOPE.global.add.u32 %r4, [%rd1], 1;",
        "red.relaxed.SCOPE.global.add.u32 [%rd1], 1;",
        "st.relaxed.SCOPE.global.u32 [%rd1], %r2;ld.relaxed.SCOPE.global.u32 %r4, [%rd1];",
        "atom.acq_rel.SCOPE.global.add.u32 %r4, [counter], 1;",
    ] {
        race(run(&access.replace("SCOPE", "cta"), 2, 1));
        race(run(&access.replace("SCOPE", "cluster"), 2, 1));
        fine(run(&access.replace("SCOPE", "gpu"), 2, 1));
        fine(run(&access.replace("SCOPE", "sys"), 2, 1));
        // One block alone may use it, and each may use its own place.
        fine(run(&access.replace("SCOPE", "cta"), 1, 64));
        fine(run(
            &access.replace("SCOPE", "cta").replace("%rd1", "%rd4").replace("[counter]", "[%rd4]"),
            4,
            64,
        ));
    }
    // Flags: the store, the load, and the fence must all be of the GPU.
    let (raise, wait) = (
        "st.release.SCOPE.global.u32 [%rd1+1024], %r4",
        "ld.acquire.SCOPE.global.u32 %r4, [%rd1+1024]",
    );
    let met = |raise: &str, wait: &str| flag("bar.sync 0;", raise, wait, "bar.sync 0;");
    let of = |text: &str, scope: &str| text.replace("SCOPE", scope);
    fine(run(&met(&of(raise, "gpu"), &of(wait, "gpu")), 2, 64));
    race(run(&met(&of(raise, "cta"), &of(wait, "gpu")), 2, 64));
    race(run(&met(&of(raise, "gpu"), &of(wait, "cta")), 2, 64));
    race(run(&met(&of(raise, "cluster"), &of(wait, "cluster")), 2, 64));
    let volatile =
        ["st.volatile.global.u32 [%rd1+1024], %r4", "ld.volatile.global.u32 %r4, [%rd1+1024]"];
    let fenced = |fence: &str| {
        flag(
            &format!("{fence};bar.sync 0;"),
            volatile[0],
            volatile[1],
            &format!("{fence};bar.sync 0;"),
        )
    };
    for fence in ["membar.cta", "fence.acq_rel.cta", "fence.sc.cta", "fence.acq_rel.cluster"] {
        race(run(&fenced(fence), 2, 64));
    }
    for fence in ["membar.gl", "membar.sys", "fence.acq_rel.gpu", "fence.sc.sys"] {
        fine(run(&fenced(fence), 2, 64));
    }
}

/// Block 0 stores data and raises a flag; block 1 waits for it and reads.
fn flag(before: &str, raise: &str, wait: &str, after: &str) -> String {
    format!(
        "@!%p2 bra R;add.u32 %r9, %r1, 7;st.global.u32 [%rd3], %r9;{before}mov.u32 %r4, 1;@%p1 {raise};bra E;\n\
         R: @!%p1 bra J;L: {wait};setp.eq.u32 %p4, %r4, 0;@%p4 bra L;J: {after}xor.b32 %r5, %r1, 33;mul.wide.u32 %rd5, %r5, 4;add.s64 %rd5, %rd5, %rd1;\n\
         ld.global.u32 %r6, [%rd5];st.global.u32 [%rd3+512], %r6;E:"
    )
}

#[test]
fn a_missing_fence_before_a_flag() {
    let (set, wait) =
        ("st.volatile.global.u32 [%rd1+2048], %r4", "ld.volatile.global.u32 %r4, [%rd1+2048]");
    let got = fine(run(&flag("bar.sync 0;membar.gl;", set, wait, "bar.sync 0;"), 2, 64));
    assert_eq!(got[128], 7 + 33);
    // The fences of all threads, then the barrier.
    fine(run(&flag("membar.gl;bar.sync 0;", set, wait, "bar.sync 0;"), 2, 64));
    fine(run(&flag("fence.acq_rel.gpu;bar.sync 0;", set, wait, "bar.sync 0;"), 2, 64));
    let (fault, kind, _) = race(run(&flag("bar.sync 0;", set, wait, "bar.sync 0;"), 2, 64));
    assert_eq!(kind, RaceKind::ReadAfterWrite);
    assert!(fault.instruction.starts_with("ld.global.u32"), "{fault}");
    assert!(fault.other.unwrap().instruction.contains("st.global.u32"));
    // A fence of the block is none of the GPU.
    race(run(&flag("bar.sync 0;membar.cta;", set, wait, "bar.sync 0;"), 2, 64));
    race(run(&flag("bar.sync 0;fence.acq_rel.cta;", set, wait, "bar.sync 0;"), 2, 64));
    // The fence comes after the flag.
    let late = flag(
        "bar.sync 0;",
        "st.volatile.global.u32 [%rd1+2048], %r4;membar.gl",
        wait,
        "bar.sync 0;",
    );
    race(run(&late, 2, 64));
    // Nobody waits for the other warp's stores.
    race(run(&flag("membar.gl;", set, wait, "bar.sync 0;"), 2, 64));
    // Nor for those that were there before the fence by chance.
    let by_chance = "@!%p2 bra R;add.u32 %r9, %r1, 7;setp.lt.u32 %p5, %r1, 32;@%p5 st.global.u32 [%rd3], %r9;@%p5 bra E;\n\
                     FENCEmov.u32 %r4, 1;setp.eq.u32 %p6, %r1, 32;@%p6 st.volatile.global.u32 [%rd1+2048], %r4;bra E;\n\
                     R: @!%p1 bra E;L: ld.volatile.global.u32 %r4, [%rd1+2048];setp.eq.u32 %p4, %r4, 0;@%p4 bra L;ld.global.u32 %r6, [%rd1+4];E:";
    race(run(&by_chance.replace("FENCE", "membar.gl;"), 2, 64));
    let met = by_chance.replace("@%p5 bra E;", "bar.sync 0;@%p5 bra E;");
    fine(run(&met.replace("FENCE", "membar.gl;"), 2, 64));
    race(run(&met.replace("FENCE", ""), 2, 64));
    // The reader's other threads do not wait for the one that saw the flag.
    race(run(&flag("bar.sync 0;membar.gl;", set, wait, ""), 2, 64));
    // A flag that is no strong access is a race itself.
    race(run(
        &flag("bar.sync 0;membar.gl;", "st.global.u32 [%rd1+2048], %r4", wait, "bar.sync 0;"),
        2,
        64,
    ));
    // Another flag than the one raised.
    let other = "ld.volatile.global.u32 %r4, [%rd1+2056];mov.u32 %r4, 1";
    race(run(&flag("bar.sync 0;membar.gl;", set, other, "bar.sync 0;"), 2, 64));
}

#[test]
fn releases_and_acquires_in_all_their_forms() {
    let raises = [
        "st.release.gpu.global.u32 [%rd1+2048], %r4",
        "red.release.gpu.global.add.u32 [%rd1+2048], 1",
        "atom.acq_rel.gpu.global.exch.b32 %r5, [%rd1+2048], 1",
    ];
    let waits = [
        "ld.acquire.gpu.global.u32 %r4, [%rd1+2048]",
        "ld.relaxed.gpu.global.u32 %r4, [%rd1+2048];fence.acq_rel.gpu",
        "atom.global.or.b32 %r4, [%rd1+2048], 0",
        "atom.acquire.gpu.global.cas.b32 %r4, [%rd1+2048], 5, 5",
    ];
    for raise in raises {
        for wait in waits {
            fine(run(&flag("bar.sync 0;", raise, wait, "bar.sync 0;"), 2, 64));
        }
    }
    let relaxed = "red.relaxed.gpu.global.add.u32 [%rd1+2048], 1";
    race(run(&flag("bar.sync 0;", relaxed, waits[0], "bar.sync 0;"), 2, 64));
}

/// The last block to finish adds up what all have stored, and resets the counter.
fn last_block(fence: &str) -> String {
    format!(
        "mov.u64 %rd6, counter;add.u32 %r9, %r2, 1;@%p1 st.global.u32 [%rd4], %r9;\n\
         @!%p1 bra W;{fence}atom.global.inc.u32 %r4, [%rd6], 1000;add.u32 %r4, %r4, 1;setp.eq.u32 %p4, %r4, %r3;selp.u32 %r5, 1, 0, %p4;st.shared.u32 [last], %r5;\n\
         W: bar.sync 0;ld.shared.u32 %r5, [last];setp.eq.u32 %p4, %r5, 0;@%p4 bra E;\n\
         mov.u32 %r6, 0;mov.u32 %r7, 0;S: mul.wide.u32 %rd5, %r7, 4;add.s64 %rd5, %rd5, %rd1;ld.global.u32 %r8, [%rd5];add.u32 %r6, %r6, %r8;add.u32 %r7, %r7, 1;setp.lt.u32 %p5, %r7, %r3;@%p5 bra S;\n\
         mov.u32 %r10, 0;@%p1 st.global.u32 [%rd1+2048], %r6;@%p1 st.global.u32 [%rd6], %r10;E:"
    )
}

#[test]
fn the_last_block_may_read_what_all_fenced() {
    let got = fine(run(&last_block("membar.gl;"), 20, 64));
    assert_eq!(got[512], 210);
    let (fault, kind, _) = race(run(&last_block(""), 20, 64));
    assert_eq!((kind, fault.block), (RaceKind::ReadAfterWrite, [19, 0, 0]));
}

#[test]
fn a_counter_is_reset_by_who_saw_it_full() {
    // Nothing but the counter itself is shared: no fence is needed.
    let body = "@!%p1 bra E;atom.global.add.u32 %r4, [%rd1+64], 1;add.u32 %r4, %r4, 1;setp.ne.u32 %p4, %r4, %r3;@%p4 bra E;\n\
                mov.u32 %r5, 0;st.global.u32 [%rd1+64], %r5;st.global.u32 [%rd1], %r4;E:";
    assert_eq!(fine(run(body, 20, 32))[..17], [20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let fenced = body.replacen("atom", "membar.gl;atom", 1);
    fine(run(&fenced, 20, 32));
    // A reset by the first block meets the others' counts.
    race(run(&body.replace("%r4, %r3;", "%r4, 1;"), 20, 32));
    race(run(&fenced.replace("%r4, %r3;", "%r4, 1;"), 20, 32));
    // A flag that is polled and then taken down.
    let taken = "@!%p1 bra E;@%p2 bra F;L: ld.volatile.global.u32 %r4, [%rd1+64];setp.eq.u32 %p4, %r4, 0;@%p4 bra L;mov.u32 %r5, 0;st.global.u32 [%rd1+64], %r5;bra E;F: st.volatile.global.u32 [%rd1+64], %r3;E:";
    fine(run(taken, 2, 32));
    race(run(&taken.replace("@%p4 bra L;", "").replace("ld.volatile", "ld"), 2, 32));
}

#[test]
fn a_place_that_many_blocks_update_costs_no_more_each_time() {
    // 400 blocks, 64 counts each, of one word and of many: quadratic work would take minutes.
    let count = |at: &str| {
        format!(
            "membar.gl;mov.u32 %r5, 0;L: shl.b32 %r6, %r5, 2;and.b32 %r6, %r6, {at};cvt.u64.u32 %rd5, %r6;add.s64 %rd5, %rd5, %rd1;\n\
             @%p1 atom.global.add.u32 %r4, [%rd5], 1;add.u32 %r5, %r5, 1;setp.lt.u32 %p4, %r5, 64;@%p4 bra L;"
        )
    };
    assert_eq!(fine(run(&count("0"), 400, 32))[0], 400 * 64);
    assert_eq!(fine(run(&count("63"), 400, 32))[15], 400 * 4);
}

#[test]
fn order_passes_on_from_block_to_block() {
    // Block 1 waits for block 0, block 2 for block 1 only, and reads what block 0 stored.
    let chain = |fence: &str| {
        format!(
            "@!%p1 bra E;mul.wide.u32 %rd5, %r2, 4;add.s64 %rd5, %rd5, %rd1;@%p2 bra F;\n\
             L: ld.volatile.global.u32 %r4, [%rd5+1020];setp.eq.u32 %p4, %r4, 0;@%p4 bra L;bra G;\n\
             F: mov.u32 %r5, 77;st.global.u32 [%rd1], %r5;{fence}\n\
             G: setp.eq.u32 %p5, %r2, 2;@%p5 bra R;membar.gl;mov.u32 %r6, 1;st.volatile.global.u32 [%rd5+1024], %r6;bra E;\n\
             R: ld.global.u32 %r7, [%rd1];st.global.u32 [%rd1+64], %r7;E:"
        )
    };
    assert_eq!(fine(run(&chain(""), 3, 32))[16], 77);
    // A store after the fence is not part of it.
    let late = chain(
        "membar.gl;st.volatile.global.u32 [%rd5+1024], %r5;st.global.u32 [%rd1+4], %r5;bra E;",
    )
    .replace("ld.global.u32 %r7, [%rd1];", "ld.global.u32 %r7, [%rd1+4];");
    race(run(&late, 3, 32));
}

#[test]
fn equal_values_are_harmless_only_where_declared() {
    let body = "mov.u32 %r4, 9;@%p1 st.global.u32 [%rd1], %r4;";
    assert_eq!(race(run(body, 3, 32)).1, RaceKind::WriteAfterWrite);
    assert_eq!(fine(run_marked(body, 3, 32, marks::SAME_VALUE))[0], 9);
    let other = "@%p1 st.global.u32 [%rd1], %r2;";
    race(run_marked(other, 3, 32, marks::SAME_VALUE));
    // Readers are not excused.
    let read = format!("{body}ld.global.u32 %r5, [%rd1];");
    race(run_marked(&read, 3, 32, marks::SAME_VALUE));
}

#[test]
fn launches_do_not_race_with_each_other() {
    let module = Module::parse(&kernel("@%p3 st.global.u32 [%rd1], %r1;@%p2 bra E;add.u32 %r5, %r1, 7;st.global.u32 [%rd4], %r5;E:")).unwrap();
    let readers = Module::parse(&kernel("ld.global.u32 %r4, [%rd3];")).unwrap();
    let mut memory = Memory::new();
    let x = memory.allocate("x", 4096, &[], marks::INIT);
    let parameters = Parameters::default().u64(memory.address(x, 0)).0;
    for module in [&readers, &module, &readers, &module, &readers] {
        let options = Options::default();
        support::go(module, &mut memory, "t", [3, 1, 1], [1, 1, 1], &parameters, &options).unwrap();
    }
}

#[test]
fn halves_of_a_word_that_one_thread_stores_apart_keep_their_lines() {
    let body = "@!%p2 bra R;mov.u16 %rs1, 1;@%p1 st.global.u16 [%rd1], %rs1;\n@%p1 st.global.u16 [%rd1+2], %rs1;\nbra E;\n\
                R: @%p1 ld.global.u16 %rs2, [%rd1+AT];E:";
    for (at, line) in [("0", "[%rd1], %rs1"), ("2", "[%rd1+2], %rs1")] {
        let (fault, _, offset) = race(run(&body.replace("AT", at), 2, 32));
        assert_eq!(offset.to_string(), at);
        assert!(fault.other.unwrap().instruction.contains(line), "{at}");
    }
    fine(run(&body.replace("AT", "4"), 2, 32));
    // A fence between the halves: one is ordered and the other is not.
    let body = "@!%p1 bra E;@!%p2 bra R;mov.u16 %rs1, 1;st.global.u16 [%rd1], %rs1;membar.gl;st.volatile.global.u32 [%rd1+64], %r3;st.global.u16 [%rd1+2], %rs1;bra E;\n\
                R: ld.volatile.global.u32 %r4, [%rd1+64];ld.global.u16 %rs2, [%rd1+AT];E:";
    fine(run(&body.replace("AT", "0"), 2, 32));
    race(run(&body.replace("AT", "2"), 2, 32));
}
