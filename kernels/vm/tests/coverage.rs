//! Which lines a launch executed, by PTX and CUDA source line, and as lcov's tracefile.

use ptx_vm::{Coverage, Launch, Lcov, Limits, Memory, Module, Options, launch, marks};

/// Threads at or beyond `n` leave; the others store; a debug path is never taken; a function is
/// called from two places.
const PTX: &str = "\
.version 8.0
.target sm_80
.address_size 64
.func twice(.param .b32 a)
{
.reg .b32 %r<3>;
.loc 2 3 1
ld.param.u32 %r1, [a];
add.s32 %r2, %r1, %r1;
ret;
}
.visible .entry k(.param .u64 p, .param .u32 n)
{
.reg .pred %p<4>;
.reg .b32 %r<9>;
.reg .b64 %rd<9>;
.loc 1 10 1
ld.param.u64 %rd1, [p];
ld.param.u32 %r2, [n];
mov.u32 %r1, %tid.x;
setp.ge.u32 %p1, %r1, %r2;
@%p1 bra $end;
.loc 1 12 1
setp.gt.u32 %p2, %r2, 1000;
@%p2 bra $debug;
mul.wide.u32 %rd2, %r1, 4;
add.s64 %rd3, %rd1, %rd2;
.loc 1 14 1
st.global.u32 [%rd3], %r1;
{ .param .b32 to;
st.param.b32 [to], %r1;
call.uni twice, (to);
}
bra.uni $end;
$debug:
.loc 1 16 1
{ .param .b32 to;
st.param.b32 [to], %r1;
call.uni twice, (to);
}
trap;
$end:
.loc 1 18 1
ret;
}
.file 1 \"dir/k.cu\"
.file 2 \"helper.cuh\"
";

fn covered(n: u32, blocks: u32) -> (Module, Coverage) {
    let module = Module::parse(PTX).unwrap();
    let mut memory = Memory::new();
    // Every block stores the same values.
    let x = memory.allocate("x", 256, &[], marks::SAME_VALUE);
    let mut parameters = memory.address(x, 0).to_le_bytes().to_vec();
    parameters.extend_from_slice(&n.to_le_bytes());
    let what = Launch {
        entry: "k",
        grid: [blocks, 1, 1],
        block: [64, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let mut coverage = Coverage::new();
    let (limits, options) = (Limits::default(), Options::default());
    launch(&module, &mut memory, &what, &limits, &options, &mut coverage).unwrap();
    (module, coverage)
}

fn line_of(text: &str) -> u32 {
    PTX.lines().position(|line| line == text).unwrap() as u32 + 1
}

#[test]
fn lines_are_executed_or_not() {
    let (module, coverage) = covered(64, 2);
    let entry = module.entry("k").unwrap();
    let lines = coverage.entry("k").unwrap().line_hits(&module, entry);
    assert_eq!(lines.ptx.get(&line_of("trap;")), Some(&0));
    assert_eq!(lines.ptx.get(&line_of("st.global.u32 [%rd3], %r1;")), Some(&4));
    assert_eq!(lines.ptx.get(&line_of("$end:")), None);
    let source = &lines.source["dir/k.cu"];
    assert_eq!(
        source.iter().map(|(l, h)| (*l, *h > 0)).collect::<Vec<_>>(),
        [(10, true), (12, true), (14, true), (16, false), (18, true)]
    );
    // The function stands at two calls, one of them executed.
    assert!(lines.source["helper.cuh"][&3] > 0);
    assert_eq!(lines.source_lines(), (5, 6));
    // The machine's own end of the code behind `ret` is no block of the kernel.
    let reachable = entry.reachable_blocks();
    assert_eq!(reachable.iter().filter(|one| !**one).count(), 1);
    assert_eq!(reachable.last(), Some(&false));
}

#[test]
fn nothing_is_executed_behind_a_branch_not_taken() {
    let (module, coverage) = covered(0, 1);
    let lines = coverage.entry("k").unwrap().line_hits(&module, module.entry("k").unwrap());
    let source = &lines.source["dir/k.cu"];
    assert_eq!(
        source.values().map(|hits| *hits > 0).collect::<Vec<_>>(),
        [true, false, false, false, true]
    );
}

#[test]
fn a_tracefile_has_a_record_a_file() {
    let (module, coverage) = covered(64, 2);
    let mut lcov = Lcov::new();
    lcov.add("k.ptx", &module, &coverage, |file| format!("/src/{file}"));
    let text = lcov.to_string();
    let records: Vec<&str> = text.split("end_of_record\n").filter(|r| !r.is_empty()).collect();
    assert_eq!(records.len(), 3, "{text}");
    assert!(records[1].starts_with("TN:\nSF:/src/helper.cuh\n"), "{text}");
    assert_eq!(
        records[0],
        "TN:\nSF:/src/dir/k.cu\nFNF:0\nFNH:0\nDA:10,2\nDA:12,4\nDA:14,4\nDA:16,0\nDA:18,4\nLF:5\nLH:4\n"
    );
    assert!(records[2].starts_with("TN:\nSF:k.ptx\nFN:"), "{text}");
    for line in ["FNDA:2,k", "FNF:1", "FNH:1"] {
        assert!(records[2].lines().any(|one| one == line), "{line} in {text}");
    }
    let count = |prefix: &str| records[2].lines().filter(|l| l.starts_with(prefix)).count();
    let value = |prefix: &str| -> usize {
        let line = records[2].lines().find(|line| line.starts_with(prefix)).unwrap();
        line[prefix.len()..].parse().unwrap()
    };
    let unhit = records[2].lines().filter(|l| l.starts_with("DA:") && l.ends_with(",0")).count();
    assert_eq!((count("DA:"), count("DA:") - unhit), (value("LF:"), value("LH:")));
    // The trap and the argument of the call before it.
    assert_eq!(unhit, 2);
    // A second run adds to the first.
    let once = lcov.clone();
    lcov.add("k.ptx", &module, &coverage, |file| format!("/src/{file}"));
    assert_ne!(lcov, once);
    assert!(lcov.to_string().contains("DA:14,8\n"));
}
