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
