//! Races of one block's warps on global memory: each is found with both parties, and the ordered
//! code beside it stays silent in every order of warps.

mod support;

use ptx_vm::{
    BufferId, Coverage, Fault, FaultKind, Launch, Limits, Memory, Module, Options, RaceKind,
    Schedule, Stop, launch,
};
use support::{Parameters, bytes32, words};

/// A kernel `t(p)`: `%rd1` = p, `%r1` = tid, `%r2` = lane, `%r3` = tid of the other of two warps,
/// `%rd3` = &p[tid], `%rd4` = &p[lane], `%rd5` = &p[%r3], `%p1`: warp 0, `%p2`: tid is 0, `%p3`: tid
/// is 32.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.global .align 4 .u32 counter = 0;\n\
         .visible .entry t(.param .u64 p)\n{{\n.reg .pred %p<9>;.reg .b16 %rs<9>;.reg .b32 %r<30>;.reg .b64 %rd<30>;\n\
         .shared .align 4 .u32 flag;\n\
         ld.param.u64 %rd1, [p];mov.u32 %r1, %tid.x;and.b32 %r2, %r1, 31;xor.b32 %r3, %r1, 32;\n\
         mul.wide.u32 %rd2, %r1, 4;add.s64 %rd3, %rd1, %rd2;mul.wide.u32 %rd2, %r2, 4;add.s64 %rd4, %rd1, %rd2;\n\
         mul.wide.u32 %rd2, %r3, 4;add.s64 %rd5, %rd1, %rd2;\n\
         setp.lt.u32 %p1, %r1, 32;setp.eq.u32 %p2, %r1, 0;setp.eq.u32 %p3, %r1, 32;\n{body}\nE: ret;\n}}\n"
    )
}

fn run(body: &str, blocks: u32, threads: u32, schedule: Schedule) -> Result<Vec<u32>, Stop> {
    let module = Module::parse(&kernel(body)).unwrap();
    let mut memory = Memory::new();
    let x = memory.allocate("x", 4096, &[], 0);
    memory.write(x, 0, &bytes32(&[0; 1024]));
    let parameters = Parameters::default().u64(memory.address(x, 0)).0;
    let what = Launch {
        entry: "t",
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let limits = Limits { instructions: 3_000_000, ..Limits::default() };
    let options = Options { schedule, ..Options::default() };
    launch(&module, &mut memory, &what, &limits, &options, &mut Coverage::new())?;
    Ok(words(&memory, BufferId(0)))
}

#[track_caller]
fn race(body: &str) -> (Fault, RaceKind, i64) {
    let found = match run(body, 1, 64, Schedule::InOrder) {
        Err(Stop::Fault(fault)) => *fault,
        other => panic!("expected a race, got {other:?}"),
    };
    let FaultKind::WarpRace { buffer, race, .. } = &found.kind else { panic!("{found}") };
    let other = found.other.as_ref().expect("both parties are named");
    assert_eq!(other.block, None, "{found}");
    let warp = |thread: [u32; 3]| thread[0] / 32;
    assert_ne!(warp(found.thread), warp(other.thread.expect("a thread")), "{found}");
    let (race, offset) = (*race, buffer.as_ref().map_or(-1, |buffer| buffer.offset));
    (found, race, offset)
}

/// In every order of warps, with one block and with some.
#[track_caller]
fn fine(body: &str) -> Vec<u32> {
    for schedule in (1..8).map(Schedule::Seeded) {
        run(body, 1, 64, schedule).unwrap_or_else(|stop| panic!("{schedule:?}: {stop}"));
    }
    run(body, 1, 64, Schedule::InOrder).unwrap_or_else(|stop| panic!("{stop}"))
}

#[test]
fn a_warp_reads_what_another_stores() {
    let (store, load) = ("@%p1 st.global.u32 [%rd3], %r1;", "@!%p1 ld.global.u32 %r4, [%rd5];");
    let (fault, kind, offset) = race(&format!("{store}\n{load}"));
    assert_eq!((kind, offset), (RaceKind::ReadAfterWrite, 0));
    assert_eq!(fault.instruction, load);
    let other = fault.other.as_ref().unwrap();
    assert_eq!((other.instruction.as_str(), other.thread), (store, Some([0, 0, 0])));
    assert!(fault.to_string().contains("another warp"), "{fault}");
    let (store, load) = ("st.global.u32 [%rd3], %r1;", "ld.global.u32 %r4, [%rd5];");
    let got =
        fine(&format!("{store}\nbar.sync 0;\n{load}\nbar.sync 0;\nst.global.u32 [%rd3], %r4;"));
    assert_eq!((got[0], got[40]), (32, 8));
    // A barrier of these threads alone, and one that also counts.
    fine(&format!("{store}\nbar.sync 3, 64;\n{load}"));
    fine(&format!("{store}\nbar.red.popc.u32 %r9, 0, %p1;\n{load}"));
    // The next block's warps do not meet this one's.
    let each = "mov.u32 %r5, %ctaid.x;mul.wide.u32 %rd6, %r5, 256;add.s64 %rd3, %rd3, %rd6;add.s64 %rd5, %rd5, %rd6;";
    let ordered = format!("{each}{store}\nbar.sync 0;\n{load}");
    run(&ordered, 4, 64, Schedule::InOrder).unwrap_or_else(|stop| panic!("{stop}"));
    let broken = run(&ordered.replace("bar.sync 0;", ""), 4, 64, Schedule::InOrder);
    assert!(matches!(broken, Err(Stop::Fault(f)) if matches!(f.kind, FaultKind::WarpRace { .. })));
}

#[test]
fn a_warp_stores_to_what_another_reads() {
    let body = "@%p1 ld.global.u32 %r4, [%rd5];\n@!%p1 st.global.u32 [%rd3], 7;";
    let (fault, kind, offset) = race(body);
    assert_eq!((kind, offset), (RaceKind::WriteAfterRead, 128));
    assert_eq!((fault.thread, fault.other.unwrap().thread), ([32, 0, 0], Some([0, 0, 0])));
    fine(&body.replace('\n', "\nbar.sync 0;\n"));
    // Two warps read, and one of them stores: the other's read is not forgotten.
    let body = "ld.global.u32 %r4, [%rd4];\n@%p1 bra E;\nst.global.u32 [%rd4], 7;";
    let (fault, kind, _) = race(body);
    assert_eq!((kind, fault.other.unwrap().thread), (RaceKind::WriteAfterRead, Some([0, 0, 0])));
}

#[test]
fn two_warps_store_to_one_place() {
    let (_, kind, offset) = race("st.global.u32 [%rd4], %r1;");
    assert_eq!((kind, offset), (RaceKind::WriteAfterWrite, 0));
    // The same value leaves nothing to the order; nor do places of their own.
    fine("st.global.u32 [%rd4], %r2;");
    fine("st.global.u32 [%rd3], %r1;");
    fine("@%p1 st.global.u32 [%rd4], %r1;\nbar.sync 0;\n@!%p1 st.global.u32 [%rd4], %r1;");
    // A variable of the module.
    let (_, _, offset) = race("@%p2 st.global.u32 [counter], 1;\n@%p3 st.global.u32 [counter], 2;");
    assert_eq!(offset, 0);
    fine("@%p2 st.global.u32 [counter], 1;\nbar.sync 0;\n@%p3 st.global.u32 [counter], 2;");
}

#[test]
fn bytes_of_one_word_are_places_of_their_own() {
    let halves = |step: u32| {
        format!(
            "mul.wide.u32 %rd6, %r1, {step};add.s64 %rd6, %rd6, %rd1;cvt.u16.u32 %rs1, %r1;\n\
             st.global.u16 [%rd6], %rs1;"
        )
    };
    fine(&halves(2));
    // Thread 15 of warp 0 and thread 16 of warp 1 share words where warps overlap.
    fine(
        "shl.b32 %r5, %r2, 2;shr.u32 %r6, %r1, 5;add.u32 %r5, %r5, %r6;cvt.u64.u32 %rd6, %r5;add.s64 %rd6, %rd6, %rd1;cvt.u16.u32 %rs1, %r1;\nst.global.u8 [%rd6], %rs1;\nld.global.u8 %rs2, [%rd6];",
    );
    let far = "@%p1 st.global.u16 [%rd4], 1;\n@%p1 bra E;\nld.global.u16 %rs2, [%rd4+2];";
    fine(far);
    let (_, kind, offset) = race(&far.replace("+2]", "]"));
    assert_eq!((kind, offset), (RaceKind::ReadAfterWrite, 0));
    let wide = "@%p1 st.global.u16 [%rd4+2], 1;\n@%p1 bra E;\nld.global.u32 %r5, [%rd4];";
    assert_eq!(race(wide).2, 2);
}

#[test]
fn lines_shared_by_warps_are_no_race() {
    // Warps take turns at words, each reading and writing its own.
    let body = "shl.b32 %r5, %r2, 1;shr.u32 %r6, %r1, 5;add.u32 %r5, %r5, %r6;mul.wide.u32 %rd6, %r5, 4;add.s64 %rd6, %rd6, %rd1;\n\
                ld.global.u32 %r7, [%rd6];\nadd.u32 %r7, %r7, 1;\nst.global.u32 [%rd6], %r7;\nld.global.u32 %r7, [%rd6];\nst.global.u32 [%rd6], %r7;";
    assert_eq!(fine(body)[..64], [1; 64]);
    // All read one line that nobody stores to.
    fine("ld.global.u32 %r5, [%rd4];\nld.global.u32 %r6, [%rd1];\nst.global.u32 [%rd3+512], %r5;");
}

#[test]
fn flags_order_warps() {
    for flag in ["[%rd1+1024]", "[counter]"] {
        let body = format!(
            "@%p1 bra WRITER;\nL: ld.volatile.global.u32 %r5, {flag};\nsetp.eq.u32 %p4, %r5, 0;\n@%p4 bra L;\n\
             ld.global.u32 %r6, [%rd5];\nst.global.u32 [%rd3], %r6;\nbra E;\n\
             WRITER:\nst.global.u32 [%rd3], 5;\nmembar.cta;\nbar.warp.sync -1;\n@%p2 st.volatile.global.u32 {flag}, 1;"
        );
        assert_eq!(fine(&body)[40], 5);
        let atomic = body
            .replace("ld.volatile.global.u32 %r5,", "atom.acquire.cta.global.or.b32 %r5,")
            .replace(&format!("{flag};\nsetp"), &format!("{flag}, 0;\nsetp"))
            .replace("st.volatile.global", "red.release.cta.global.add");
        assert_eq!(fine(&atomic)[40], 5);
    }
    let shared = "@%p2 st.shared.u32 [flag], 0;\nbar.sync 0;\n@%p1 bra WRITER;\nL: ld.volatile.shared.u32 %r5, [flag];\nsetp.eq.u32 %p4, %r5, 0;\n@%p4 bra L;\n\
                  ld.global.u32 %r6, [%rd5];\nst.global.u32 [%rd3], %r6;\nbra E;\n\
                  WRITER:\nst.global.u32 [%rd3], 5;\nmembar.cta;\nbar.warp.sync -1;\n@%p2 st.volatile.shared.u32 [flag], 1;";
    assert_eq!(fine(shared)[40], 5);
}

#[test]
fn atomics_do_not_race_with_each_other() {
    assert_eq!(
        fine("red.global.add.u32 [%rd1], 1;\natom.global.max.u32 %r5, [%rd1+4], %r1;")[..2],
        [64, 63]
    );
    fine("st.volatile.global.u32 [%rd4], %r1;");
    // But with a plain load of another warp.
    let (fault, ..) = race("@%p1 red.global.add.u32 [%rd1], 1;\n@%p3 ld.global.u32 %r5, [%rd1];");
    assert!(fault.other.unwrap().instruction.contains("red.global"));
}

#[test]
fn one_warp_is_ordered_with_itself() {
    let body = "st.global.u32 [%rd3], %r1;\nbar.warp.sync -1;\nld.global.u32 %r5, [%rd1];\nst.global.u32 [%rd3+4], %r5;";
    run(body, 1, 32, Schedule::InOrder).unwrap_or_else(|stop| panic!("{stop}"));
    // Both warps, each in its own words.
    fine(
        "st.global.u32 [%rd3], %r1;\nbar.warp.sync -1;\nxor.b32 %r5, %r1, 1;mul.wide.u32 %rd6, %r5, 4;add.s64 %rd6, %rd6, %rd1;\nld.global.u32 %r6, [%rd6];\nst.global.u32 [%rd6], %r6;",
    );
}
