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

#[test]
fn lanes_that_store_at_one_place_must_agree() {
    // Lanes 2i and 2i + 1 share a place; `%r2` is what they store.
    let stored = |value: &str| {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry t(.param .u64 x, .param .u64 d)\n{{\n\
             .reg .pred %p<3>;.reg .b32 %r<9>;.reg .b64 %rd<9>;ld.param.u64 %rd1, [d];mov.u32 %r1, %tid.x;shr.u32 %r3, %r1, 1;\n\
             {value}mul.wide.u32 %rd2, %r3, 4;add.s64 %rd2, %rd1, %rd2;st.global.u32 [%rd2], %r2;ret;\n}}\n"
        );
        outcome(&Module::parse(&text).unwrap_or_else(|e| panic!("{value}: {e}")), "t", &[0])
    };
    assert!(stored("mov.u32 %r2, %r3;").0.is_ok());
    let all = stored("mov.u32 %r2, %r1;").0.expect_err("they differ");
    assert!(all.contains("different values"), "{all}");
    let last = stored("setp.eq.u32 %p1, %r1, 31;add.u32 %r2, %r3, 1;@!%p1 sub.u32 %r2, %r2, 1;");
    assert!(last.0.expect_err("the last lane differs").contains("thread [31, 0, 0]"));
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

/// A launch's output bytes and marks, or how it ended otherwise, and which edges it took.
fn outcome(module: &Module, entry: &str, words_in: &[u32]) -> (Result<Vec<u32>, String>, Vec<u64>) {
    let mut memory = Memory::new();
    let x = input(&mut memory, "x", &bytes32(words_in));
    let d = output(&mut memory, "d", 64 * 64);
    let parameters = Parameters::default().u64(memory.address(x, 0)).u64(memory.address(d, 0)).0;
    let launch = ptx_vm::Launch {
        entry,
        grid: [1; 3],
        block: [64, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let limits = ptx_vm::Limits { instructions: 100_000, ..ptx_vm::Limits::default() };
    let mut coverage = ptx_vm::Coverage::new();
    let ended =
        ptx_vm::launch(module, &mut memory, &launch, &limits, &Options::default(), &mut coverage);
    let edges = coverage.entry(entry).map_or(Vec::new(), |entry| entry.edges.clone());
    let mut out = words(&memory, d);
    out.extend(memory.marks(d, 0..64 * 64).iter().map(|mark| u32::from(*mark)));
    (ended.map(|_| out).map_err(|stop| stop.to_string()), edges)
}

/// Random code of what the simplifications look for: sums that become addresses, widened and
/// narrowed words, halves put together and taken apart, results nobody reads, all of it guarded
/// here and there and repeated in a loop.
fn program(random: &mut impl FnMut(u64) -> u64) -> String {
    let mut code = String::new();
    let mut edges = 0;
    for _ in 0..12 + random(24) {
        let [a, b, c] = [(); 3].map(|()| random(6));
        let constant = [0, 4, 8, 64, 0xffff_ffff_ffff_fff8u64 as i64][random(5) as usize];
        let guard = ["", "", "", "@%p1 ", "@!%p2 "][random(5) as usize];
        let line = match random(22) {
            0 => format!("add.s64 %rd{a}, %rd{b}, {constant};"),
            1 => format!("add.s64 %rd{a}, %rd{b}, %rd{c};"),
            2 => format!("add.s64 %rd{a}, %rd10, %rd{b};"),
            3 => format!("add.s64 %rd{a}, %rd{b}, %rd11;"),
            4 => format!("cvt.u64.u32 %rd{a}, %r{b};"),
            5 => format!("cvt.s64.s32 %rd{a}, %r{b};"),
            6 => format!("cvt.u32.u64 %r{a}, %rd{b};"),
            7 => format!("mul.wide.u32 %rd{a}, %r{b}, 4;"),
            8 => format!("mul.wide.s32 %rd{a}, %r{b}, %r{c};"),
            9 => format!("bfi.b64 %rd{a}, %rd{b}, %rd{c}, 32, 32;"),
            10 => format!("mov.b64 %rd{a}, {{%r{b},%r{c}}};"),
            11 => format!("mov.b64 {{%r{a},%r{b}}}, %rd{c};"),
            12 => format!("and.b32 %r{a}, %r{b}, 1020;"),
            13 => format!("mov.u64 %rd{a}, %rd{b};"),
            14 => format!("setp.lt.u32 %p{}, %r{a}, %r{b};", 1 + random(2)),
            15 => format!("add.u32 %r{a}, %r{b}, %r{c};"),
            // A load and a store that may well be fine.
            16 => format!(
                "and.b32 %r{a}, %r{a}, 252;cvt.u64.u32 %rd{b}, %r{a};add.s64 %rd{c}, %rd10, %rd{b};{guard}ld.global.u32 %r{b}, [%rd{c}+4];"
            ),
            17 => format!(
                "and.b32 %r{a}, %r30, 63;mul.wide.u32 %rd{b}, %r{a}, 64;add.s64 %rd{c}, %rd{b}, %rd11;add.s64 %rd{b}, %rd{c}, 8;{guard}st.global.u32 [%rd{b}+-4], %r{c};"
            ),
            18 => format!(
                "mul.wide.u32 %rd{a}, %r30, 4;mov.u64 %rd{b}, s;add.s64 %rd{a}, %rd{b}, %rd{a};{guard}st.shared.u32 [%rd{a}], %r{c};{guard}ld.shared.u32 %r{b}, [%rd{a}];"
            ),
            19 => format!(
                "mul.wide.u32 %rd{a}, %r30, 4;mov.u64 %rd{b}, s;add.s64 %rd{a}, %rd{b}, %rd{a};st.shared.u32 [%rd{a}], 7;atom.shared.add.u32 %r{c}, [%rd{a}], 1;"
            ),
            20 => format!("ld.global.u32 %r{a}, [%rd{b}];"),
            _ => {
                edges += 1;
                format!("@%p1 bra L{edges};add.u32 %r{a}, %r{b}, 3;L{edges}:")
            }
        };
        // A guard before the first instruction alone.
        let plain = line.starts_with('@') || line.contains("ld.") || line.contains("st.");
        code += if plain { "" } else { guard };
        code += &line;
        code.push('\n');
    }
    let all: String = (0..6)
        .map(|i| {
            format!(
                "st.global.u32 [%rd12+{}], %r{i};st.global.u64 [%rd12+{}], %rd{i};\n",
                4 * i,
                32 + 8 * (i % 4)
            )
        })
        .collect();
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry t(.param .u64 x, .param .u64 d)\n{{\n\
         .reg .pred %p<5>;.reg .b32 %r<40>;.reg .b64 %rd<20>;.shared .align 8 .b8 s[256];\n\
         ld.param.u64 %rd10, [x];ld.param.u64 %rd11, [d];mov.u32 %r30, %tid.x;mul.wide.u32 %rd12, %r30, 64;add.s64 %rd12, %rd12, %rd11;\n\
         mov.u32 %r0, %r30;mov.u32 %r1, 5;mov.u32 %r2, -9;mov.u32 %r3, 1020;mov.u32 %r4, 77;mov.u32 %r5, %r30;\n\
         mov.u64 %rd0, %rd10;mov.u64 %rd1, 3;mov.u64 %rd2, -1;mov.u64 %rd3, %rd11;mov.u64 %rd4, 0;mov.u64 %rd5, %rd10;mov.u32 %r31, 0;\n\
         setp.lt.u32 %p1, %r30, 9;setp.gt.u32 %p2, %r30, 40;\n\
         AGAIN: {code}\nadd.u32 %r31, %r31, 1;setp.lt.u32 %p3, %r31, 2;@%p3 bra AGAIN;\n{all}ret;\n}}\n"
    )
}

#[test]
fn simplified_code_does_what_the_plain_translation_does() {
    let mut seed = 9u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let x: Vec<u32> = (0..512).map(|i: u32| i.wrapping_mul(2_654_435_761)).collect();
    let (mut fine, mut faults) = (0, 0);
    for _ in 0..1500 {
        let text = program(&mut random);
        let [short, plain] = [Module::parse(&text), Module::parse_plainly(&text)]
            .map(|module| outcome(&module.unwrap_or_else(|e| panic!("{text}: {e}")), "t", &x));
        assert_eq!(short, plain, "{text}");
        if short.0.is_ok() {
            fine += 1;
        } else {
            faults += 1;
        }
    }
    assert!(fine > 200 && faults > 200, "{fine} fine, {faults} faults");
}
