//! A launch takes no more memory than its host allows, and says so when it wants more.

mod support;

use ptx_vm::{BufferId, FaultKind, Memory, Module, Options, Stop};
use support::{Parameters, go};

/// Every thread stores (or loads, or adds) at p + tid·2²⁰.
fn walk(body: &str) -> Module {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry t(.param .u64 p)\n{{\n\
         .reg .b32 %r<4>;.reg .b64 %rd<4>;\nld.param.u64 %rd1, [p];mov.u32 %r1, %tid.x;\n\
         mul.wide.u32 %rd2, %r1, 1048576;add.s64 %rd3, %rd1, %rd2;\n{body}\nret;\n}}\n"
    );
    Module::parse(&text).unwrap()
}

/// Of a buffer as large as this one.
const PAGE_BYTES: u64 = 1 << 11;

fn run(body: &str, threads: u32, pages: u64) -> (Memory, Result<ptx_vm::Stats, Stop>) {
    let mut memory = Memory::new();
    memory.limit_touched(pages * PAGE_BYTES);
    let big = memory.allocate("big", 1 << 39, &[7], ptx_vm::marks::INIT);
    let parameters = Parameters::default().u64(memory.address(big, 0)).0;
    let options = Options::default();
    let result =
        go(&walk(body), &mut memory, "t", [1, 1, 1], [threads, 1, 1], &parameters, &options);
    (memory, result)
}

#[test]
fn pages_beyond_the_limit_end_the_launch() {
    for body in [
        "st.global.u32 [%rd3], %r1;",
        "ld.global.u32 %r2, [%rd3];",
        "atom.global.add.u32 %r2, [%rd3], 1;",
    ] {
        let (memory, result) = run(body, 64, 64);
        result.unwrap();
        assert_eq!(memory.touched_ranges(BufferId(0)).len(), 64);
        let (memory, result) = run(body, 64, 63);
        let Err(Stop::Fault(fault)) = result else { panic!("{body}: {result:?}") };
        let limit_bytes = 63 * PAGE_BYTES;
        assert_eq!(fault.kind, FaultKind::MemoryBudget { limit_bytes }, "{body}");
        assert_eq!(fault.ptx_line, 9);
        assert!(memory.touched_ranges(BufferId(0)).len() <= 63);
    }
}

#[test]
fn pages_touched_already_cost_nothing_and_the_end_is_still_the_end() {
    let body =
        "st.global.u32 [%rd3], %r1;\nld.global.u32 %r2, [%rd3];\nst.global.u32 [%rd3+8], %r2;";
    run(body, 32, 32).1.unwrap();
    let (_, result) = run("ld.global.u32 %r2, [%rd1+-4];", 1, 0);
    let Err(Stop::Fault(fault)) = result else { panic!("{result:?}") };
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. }), "{}", fault.kind);
    // What the host writes is not the threads'.
    let mut memory = Memory::new();
    memory.limit_touched(0);
    let x = memory.allocate("x", 64, &[], 0);
    memory.write(x, 0, &[1; 64]);
    let parameters = Parameters::default().u64(memory.address(x, 0)).0;
    let module = walk("ld.global.u32 %r2, [%rd1];");
    let options = Options::default();
    go(&module, &mut memory, "t", [1, 1, 1], [32, 1, 1], &parameters, &options).unwrap();
}
