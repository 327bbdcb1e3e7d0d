//! Strict rules: each fires on its fault, stays silent on the near miss, and is silent by default.

mod support;

use ptx_vm::{
    Coverage, Fault, FaultKind, Launch, Limits, Memory, Module, Options, Stop, launch, marks,
};
use support::Parameters;

fn run(body: &str, threads: u32, strict: bool) -> Result<(), Stop> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry t(.param .u64 p)\n{{\n.reg .pred %p<9>;.reg .b32 %r<30>;.reg .b64 %rd<30>;\n\
         .shared .align 16 .b8 s[1024];\n\
         ld.param.u64 %rd1, [p];mov.u32 %r1, %tid.x;and.b32 %r26, %r1, 31;mov.u32 %r29, s;shl.b32 %r28, %r1, 4;add.u32 %r27, %r29, %r28;\n{body}\nret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap();
    let mut memory = Memory::new();
    let x = memory.allocate("x", 4096, &[], marks::INIT);
    let parameters = Parameters::default().u64(memory.address(x, 0)).0;
    let what = Launch {
        entry: "t",
        grid: [1, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let options = Options { strict, ..Options::default() };
    launch(&module, &mut memory, &what, &Limits::default(), &options, &mut Coverage::new())
        .map(|_| ())
}

/// Fires under strict rules only.
#[track_caller]
fn fires(body: &str, threads: u32) -> Fault {
    run(body, threads, false).unwrap_or_else(|stop| panic!("{stop}"));
    match run(body, threads, true) {
        Err(Stop::Fault(fault)) => *fault,
        other => panic!("expected a fault, got {other:?}"),
    }
}

#[track_caller]
fn silent(body: &str, threads: u32) {
    run(body, threads, true).unwrap_or_else(|stop| panic!("{stop}"));
}

#[test]
fn member_masks_name_only_lanes_that_are_there() {
    let operations = [
        "shfl.sync.idx.b32 %r2, %r1, 0, 31, MASK;",
        "vote.sync.any.pred %p2, %p1, MASK;",
        "match.any.sync.b32 %r2, %r1, MASK;",
        "redux.sync.add.u32 %r2, %r1, MASK;",
        "bar.warp.sync MASK;",
    ];
    for operation in operations {
        let body = |leave: &str, mask: &str| {
            format!("setp.gt.u32 %p1, %r26, 27;{leave}\n{}", operation.replace("MASK", mask))
        };
        let fault = fires(&body("@%p1 exit;", "0xffffffff"), 64);
        assert_eq!(
            fault.kind,
            FaultKind::MissingLane { members: 0xffff_ffff, lane: 28, exited: true }
        );
        let other = fault.other.clone().unwrap();
        assert_eq!(other.thread, Some([28, 0, 0]));
        assert!(other.instruction.contains("exit") && other.ptx_line < fault.ptx_line);
        assert!(fault.to_string().contains("exited at PTX line"), "{fault}");
        silent(&body("@%p1 exit;", "0x0fffffff"), 64);
        silent(&body("", "0xffffffff"), 64);
        // A block that is no multiple of a warp.
        let fault = fires(&body("", "0xffffffff"), 40);
        assert_eq!(
            fault.kind,
            FaultKind::MissingLane { members: 0xffff_ffff, lane: 8, exited: false }
        );
        assert_eq!(fault.other, None);
        silent(&body("", "0xff"), 8);
    }
}

#[test]
fn threads_that_returned_before_a_barrier() {
    let body = "setp.gt.u32 %p1, %r1, 40;\n@%p1 bra OUT;bar.sync 0;\nOUT:";
    let fault = fires(body, 64);
    assert_eq!(fault.kind, FaultKind::ExitedAtBarrier { barrier: 0, arrived: 41, expected: 64 });
    assert!(fault.instruction.contains("bar.sync"));
    assert_eq!(fault.other.unwrap().thread, Some([41, 0, 0]));
    // Afterwards they may, and before a barrier that counts without them.
    silent("bar.sync 0;setp.gt.u32 %p1, %r1, 40;@%p1 exit;", 64);
    silent("setp.gt.u32 %p1, %r1, 31;@%p1 exit;bar.sync 1, 32;", 64);
    silent("bar.sync 0;", 40);
}

#[test]
fn a_warp_comes_to_an_aligned_barrier_as_one() {
    let two = |barrier: &str| {
        format!("setp.gt.u32 %p1, %r26, 9;@%p1 bra A;\n{barrier}\nbra B;\nA: {barrier}\nB:")
    };
    let fault = fires(&two("bar.sync 0;"), 64);
    assert_eq!(fault.kind, FaultKind::DivergedBarrier { barrier: 0 });
    assert_ne!(fault.other.unwrap().ptx_line, fault.ptx_line);
    fires(&two("barrier.sync.aligned 0;"), 64);
    // Without `.aligned` it is allowed, and so are two places for two warps.
    silent(&two("barrier.sync 0;"), 64);
    silent(&two("bar.sync 0;").replace("%r26, 9", "%r1, 31"), 64);
    // Lanes that come late to one place.
    silent(
        "setp.gt.u32 %p1, %r26, 9;@%p1 bra A;mov.u32 %r2, 0;L: add.u32 %r2, %r2, 1;setp.lt.u32 %p2, %r2, 5000;@%p2 bra L;A: bar.sync 0;",
        64,
    );
}

#[test]
fn copies_arrive_before_their_thread_exits() {
    let copy = "cp.async.ca.shared.global [%r27], [%rd1], 16;";
    let fault = fires(&format!("{copy}cp.async.commit_group;"), 32);
    assert_eq!(fault.kind, FaultKind::CopyUnderWay);
    assert!(fault.instruction.starts_with("ret"));
    fires(
        &format!("{copy}cp.async.commit_group;{copy}cp.async.commit_group;cp.async.wait_group 1;"),
        32,
    );
    silent(&format!("{copy}cp.async.commit_group;cp.async.wait_group 0;"), 32);
    silent(&format!("{copy}cp.async.wait_all;"), 32);
    // Another lane's copies are not its own.
    silent(&format!("setp.gt.u32 %p1, %r26, 9;@%p1 exit;{copy}cp.async.wait_all;"), 32);
}
