//! Whatever the machine does in a short way (by constants, whole warps, neighbouring addresses)
//! gives what the definition gives lane by lane.

mod support;

use ptx_vm::{Memory, Module, Options};
use support::{Parameters, bytes32, go, input, output, words};

/// Runs `code` in one block of `threads`: `%r1` holds the thread's word of `x`, `%rd3` points to
/// its two words of the result.
fn run(code: &str, threads: u32, x: &[u32]) -> Vec<u32> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry t(.param .u64 x, .param .u64 d)\n{{\n\
         .reg .pred %p<9>;.reg .b32 %r<40>;.reg .b64 %rd<20>;\n\
         ld.param.u64 %rd1, [x];ld.param.u64 %rd2, [d];mov.u32 %r30, %tid.x;\n\
         mul.wide.u32 %rd4, %r30, 4;add.s64 %rd5, %rd1, %rd4;ld.global.u32 %r1, [%rd5];\n\
         mul.wide.u32 %rd4, %r30, 8;add.s64 %rd3, %rd2, %rd4;\n{code}\nret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{code}: {e}"));
    let mut memory = Memory::new();
    let x = input(&mut memory, "x", &bytes32(x));
    let d = output(&mut memory, "d", u64::from(threads) * 8);
    let parameters = Parameters::default().u64(memory.address(x, 0)).u64(memory.address(d, 0)).0;
    go(&module, &mut memory, "t", [1; 3], [threads, 1, 1], &parameters, &Options::default())
        .unwrap_or_else(|e| panic!("{code}: {e}"));
    words(&memory, d)
}

/// The lane that `shfl` reads from, and whether the wanted one is there: PTX ISA, `shfl.sync`.
fn source(mode: &str, lane: i32, by: i32, c: i32) -> (i32, bool) {
    let (clamp, segments) = (c & 31, c >> 8 & 31);
    let highest = (lane & segments) | (clamp & !segments);
    let (from, there) = match mode {
        "up" => (lane - by, lane - by >= highest),
        "down" => (lane + by, lane + by <= highest),
        "bfly" => (lane ^ by, (lane ^ by) <= highest),
        _ => {
            let from = (lane & segments) | (by & !segments);
            (from, from <= highest)
        }
    };
    (if there { from } else { lane }, there)
}

#[test]
fn shuffles_with_constants_follow_the_definition() {
    let x: Vec<u32> = (0..32).map(|i| i * 0x0101_0101 + 7).collect();
    for mode in ["up", "down", "bfly", "idx"] {
        for c in [0, 0x1f, 0x0f, 0x1c1f, 0x1c00, 0x181f] {
            for by in [0, 1, 2, 3, 4, 8, 15, 16, 17, 31, 33] {
                let tail = "selp.u32 %r3, 1, 0, %p1;st.global.u32 [%rd3], %r2;st.global.u32 [%rd3+4], %r3;";
                let constant = run(
                    &format!("shfl.sync.{mode}.b32 %r2|%p1, %r1, {by}, {c}, 0xffffffff;{tail}"),
                    32,
                    &x,
                );
                // Nobody reads the predicate; the result takes the place of the operand.
                let alone = run(
                    &format!(
                        "shfl.sync.{mode}.b32 %r1, %r1, {by}, {c}, 0xffffffff;st.global.u32 [%rd3], %r1;st.global.u32 [%rd3+4], %r30;"
                    ),
                    32,
                    &x,
                );
                for lane in 0..32 {
                    let (from, there) = source(mode, lane, by & 31, c);
                    let what = format!("shfl.{mode} by {by}, c {c:#x}, lane {lane}");
                    let (at, value) = (lane as usize * 2, x[from as usize]);
                    assert_eq!(constant[at..at + 2], [value, u32::from(there)], "{what}");
                    assert_eq!(alone[at], value, "{what}, no predicate");
                }
            }
        }
    }
}

/// Two kernels that show every register a launch starts with, and one that reads registers
/// nobody wrote.
const STARTS: &str = ".version 8.0\n.target sm_90\n.address_size 64\n\
    .extern .shared .align 16 .b8 dynamic[];\n\
    .visible .entry first(.param .u64 d, .param .u32 a, .param .s16 b)\n{\n\
    .reg .pred %p<3>;.reg .b32 %r<40>;.reg .b64 %rd<9>;.shared .align 4 .b8 s[64];\n\
    ld.param.u64 %rd1, [d];mov.u32 %r1, %tid.x;mov.u32 %r2, %ctaid.x;mov.u32 %r3, %ntid.x;mad.lo.u32 %r4, %r2, %r3, %r1;\n\
    mul.wide.u32 %rd2, %r4, 16;add.s64 %rd1, %rd1, %rd2;ld.param.u32 %r5, [a];ld.param.s16 %r6, [b];mov.u32 %r7, %dynamic_smem_size;\n\
    mov.u32 %r8, dynamic;shl.b32 %r7, %r7, 8;add.u32 %r7, %r7, %r8;mov.u32 %r9, %nctaid.x;shl.b32 %r9, %r9, 16;add.u32 %r7, %r7, %r9;\n\
    @%p1 add.u32 %r20, %r20, 1;setp.eq.u32 %p1, %r1, %r1;add.u32 %r20, %r20, %r6;\n\
    st.global.v4.u32 [%rd1], {%r5,%r20,%r7,%r1};ret;\n}\n\
    .visible .entry second(.param .u64 d, .param .u32 a, .param .s16 b)\n{\n\
    .reg .b32 %r<40>;.reg .b64 %rd<9>;\n\
    ld.param.u64 %rd1, [d];mov.u32 %r1, %tid.x;mov.u32 %r2, %ctaid.x;mov.u32 %r3, %ntid.x;mad.lo.u32 %r4, %r2, %r3, %r1;\n\
    mul.wide.u32 %rd2, %r4, 16;add.s64 %rd1, %rd1, %rd2;ld.param.u32 %r5, [a];mul.lo.u32 %r5, %r5, 77;add.u32 %r6, %r6, 5;add.u32 %r7, %r7, %r1;\n\
    st.global.v4.u32 [%rd1], {%r5,%r6,%r7,%r1};ret;\n}\n";

/// One launch of what [`STARTS`] holds.
type Start = (usize, &'static str, u32, u32, u32, u32);

fn start(modules: &[Module], (module, entry, grid, block, dynamic, a): Start) -> Vec<u32> {
    let mut memory = Memory::new();
    let d = output(&mut memory, "d", u64::from(grid * block) * 16);
    let parameters =
        Parameters::default().u64(memory.address(d, 0)).u32(a).put((-3i16).to_le_bytes()).0;
    let launch = ptx_vm::Launch {
        entry,
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        dynamic_shared_bytes: dynamic,
        parameters: &parameters,
    };
    let limits = ptx_vm::Limits::default();
    let mut coverage = ptx_vm::Coverage::new();
    ptx_vm::launch(
        &modules[module],
        &mut memory,
        &launch,
        &limits,
        &Options::default(),
        &mut coverage,
    )
    .unwrap_or_else(|e| panic!("{entry}: {e}"));
    words(&memory, d)
}

#[test]
fn a_launch_finds_nothing_of_the_ones_before() {
    let modules: Vec<Module> = (0..3).map(|_| Module::parse(STARTS).expect("text")).collect();
    let mut seed = 3u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..400 {
        let what = (
            random(3) as usize,
            ["first", "second"][random(2) as usize],
            1 + random(2) as u32,
            [1, 31, 32, 33, 64, 96][random(6) as usize],
            [0, 64][random(2) as usize],
            random(3) as u32,
        );
        let here = start(&modules, what);
        // A thread of its own has launched nothing before.
        let afresh = std::thread::scope(|scope| {
            scope.spawn(|| start(&modules, what)).join().expect("the launch ends")
        });
        assert_eq!(here, afresh, "{what:?}");
    }
}
