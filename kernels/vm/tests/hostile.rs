//! Text that no compiler writes and launches that no GPU takes: a typed error or a fault, soon, and
//! never a panic. What the fuzz targets `ptx_parse` and `ptx_exec` found stays here as text.

mod support;

use ptx_vm::{
    Coverage, FaultKind, Launch, LaunchError, Limits, Memory, Module, Options, ParseErrorKind,
    Stats, Stop, launch,
};

fn kernel(body: &str) -> String {
    format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry t()\n{{\n\
         .reg .pred %p<4>;.reg .b16 %h<4>;.reg .b32 %r<40>;.reg .b64 %rd<9>;.reg .f32 %f<9>;\n{body}\nret;\n}}\n"
    )
}

fn refused(text: &str) -> ParseErrorKind {
    match Module::parse(text) {
        Ok(_) => panic!("{:.200} is understood", text),
        Err(error) => {
            assert_eq!(Module::parse_plainly(text).err(), Some(error.clone()));
            assert!(!error.to_string().is_empty());
            error.what
        }
    }
}

fn go(text: &str, grid: [u32; 3], block: [u32; 3], limits: Limits) -> Result<Stats, Stop> {
    let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let what = Launch { entry: "t", grid, block, dynamic_shared_bytes: 0, parameters: &[] };
    launch(&module, &mut Memory::new(), &what, &limits, &Options::default(), &mut Coverage::new())
}

#[test]
fn brackets_end_somewhere() {
    for open in ["{", "(", "[%rd1, {", "[%rd1, "] {
        let text = kernel(&format!("mov.b64 {}", open.repeat(200_000)));
        assert_eq!(refused(&text), ParseErrorKind::TooDeep, "{open}");
    }
    let text = format!(".version 8.4\n.target sm_90\n.global .b32 g[4] = {};", "{".repeat(200_000));
    assert_eq!(refused(&text), ParseErrorKind::TooDeep);
    // As deep as calls and initial values really are.
    Module::parse(".version 8.4\n.target sm_90\n.global .b32 g[2][2] = {{1, 2}, {3, 4}};").unwrap();
    Module::parse(&kernel("mov.b64 {%r1, %r2}, %rd1;")).unwrap();
}

#[test]
fn vectors_have_the_sizes_of_the_language() {
    let list = |n: usize| vec!["%r1"; n].join(",");
    for (opcode, counts) in
        [("ld.u8", [0, 3, 16, 32]), ("st.u8", [0, 5, 16, 32]), ("ld.global.u64", [8, 16, 33, 256])]
    {
        for n in counts {
            let list = list(n).replace("%r", if opcode.ends_with("64") { "%rd" } else { "%r" });
            let operands = if opcode.starts_with("ld") {
                format!("{{{list}}}, [%rd1]")
            } else {
                format!("[%rd1], {{{list}}}")
            };
            let what = refused(&kernel(&format!("{opcode} {operands};")));
            assert_eq!(what, ParseErrorKind::BadOperands(opcode.to_owned()), "{n}");
        }
    }
    for n in [0, 1, 3, 5, 8, 255, 256, 512] {
        for text in
            [format!("mov.b32 %r2, {{{}}};", list(n)), format!("mov.b32 {{{}}}, %r2;", list(n))]
        {
            assert_eq!(
                refused(&kernel(&text)),
                ParseErrorKind::BadOperands("mov.b32".to_owned()),
                "{n}"
            );
        }
    }
    for text in ["st.pred [%rd1], %p1;", "ld.global.pred %p1, [%rd1];", "st.global.pred [%rd1], 1;"]
    {
        assert!(matches!(refused(&kernel(text)), ParseErrorKind::BadOperands(_)), "{text}");
    }
}

#[test]
fn declarations_have_bounds() {
    for align in ["0", "3", "12", "131072", "1073741824", "2147483648"] {
        let what = refused(&format!(".version 8.4\n.target sm_90\n.global .align {align} .b32 g;"));
        assert_eq!(what, ParseErrorKind::BadAlignment(align.parse().unwrap()));
        assert!(matches!(
            refused(&kernel(&format!(".shared .align {align} .b8 s[4];"))),
            ParseErrorKind::BadAlignment(_)
        ));
    }
    Module::parse(&kernel(".shared .align 1024 .b8 s[4096];")).unwrap();
    let large = |text: &str| {
        let what = refused(text);
        assert!(matches!(what, ParseErrorKind::TooLarge(_)), "{what:?} of {text:.100}");
    };
    for space in ["global", "const", "shared"] {
        for size in
            ["4294967295", "18446744073709551615", "4294967296][4294967296", "65536][65536][65536"]
        {
            large(&format!(
                ".version 8.4\n.target sm_90\n.{space} .b64 g[{size}];\n.entry t() {{ .reg .b32 %r<2>; mov.u32 %r1, g; ret; }}"
            ));
        }
    }
    large(&format!(".version 8.4\n.target sm_90\n{}", ".global .b8 g[16777216];".repeat(40)));
    large(&kernel(&(0..400).map(|i| format!(".shared .b8 s{i}[16777216];")).collect::<String>()));
    large(&kernel(&(0..400).map(|i| format!(".local .b8 l{i}[16777216];")).collect::<String>()));
    large(&kernel(".local .b64 l[18446744073709551615];"));
    large(
        ".version 8.4\n.target sm_90\n.entry t(.param .b8 a[4294967295], .param .b8 b[4294967295]) { ret; }",
    );
    large(
        ".version 8.4\n.target sm_90\n.entry t(.param .align 65536 .b8 a[32000], .param .align 65536 .b8 b[32000]) { ret; }",
    );
    // Registers cost only where they are named.
    Module::parse(&kernel(".reg .b128 %q<4294967295>;")).unwrap();
}

#[test]
fn calls_do_not_multiply_without_end() {
    // Each function calls the next twice: 2^30 copies of nothing.
    let mut text = ".version 8.4\n.target sm_90\n".to_owned();
    for i in 0..30 {
        text += &format!(".func f{i}() {{ call f{0}; call f{0}; ret; }}\n", i + 1);
    }
    text += ".func f30() { ret; }\n.visible .entry t() { call f0; ret; }\n";
    assert!(matches!(refused(&text), ParseErrorKind::TooLarge(_)));
    // The same for many kernels, each of which alone would do.
    let mut text = ".version 8.4\n.target sm_90\n".to_owned();
    for i in 0..16 {
        text += &format!(".func f{i}() {{ call f{0}; call f{0}; ret; }}\n", i + 1);
    }
    text += ".func f16() { ret; }\n";
    text += &(0..2000)
        .map(|i| format!(".visible .entry t{i}() {{ call f0; ret; }}\n"))
        .collect::<String>();
    assert!(matches!(refused(&text), ParseErrorKind::TooLarge(_)));
}

#[test]
fn recursion_through_pointers_ends_in_a_fault() {
    let call = "{ .param .b64 x; st.param.b64 [x], %rd1; call %rd1, (x), P; }\n";
    let text = format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n\
         .func f(.param .b64 p) {{ .reg .b64 %rd<3>; P: .callprototype _ (.param .b64 _);\n ld.param.b64 %rd1, [p]; {} ret; }}\n\
         .func g(.param .b64 p) {{ .reg .b64 %rd<3>; P: .callprototype _ (.param .b64 _);\n ld.param.b64 %rd1, [p]; {} ret; }}\n\
         .visible .entry t() {{ .reg .b64 %rd<3>; P: .callprototype _ (.param .b64 _);\n mov.u64 %rd1, f; {call} ret; }}\n",
        call.repeat(3),
        call.repeat(5)
    );
    let stop = go(&text, [1; 3], [32, 1, 1], Limits::default()).unwrap_err();
    let Stop::Fault(fault) = stop else { panic!("{stop}") };
    assert!(matches!(fault.kind, FaultKind::CallDepth), "{fault}");
}

#[test]
fn liveness_of_many_registers_over_many_branches_is_refused() {
    let registers: String = (0..40_000).map(|i| format!("mov.u32 %r{i}, {i};\n")).collect();
    let branches: String =
        (0..30_000).map(|i| format!("L{i}: @%p1 bra L{};\n", 29_999 - i)).collect();
    let what = refused(&kernel(&format!("{registers}{branches}")));
    assert!(matches!(what, ParseErrorKind::TooLarge(_)), "{what:?}");
}

#[test]
fn geometries_that_overflow_are_too_large() {
    let text = kernel("");
    let huge = [u32::MAX, 1 << 31, 1 << 20, 65_536, 1025];
    for x in huge {
        for y in huge {
            for z in [1, 4, 64] {
                let error = go(&text, [1; 3], [x, y, z], Limits::default()).unwrap_err();
                assert!(
                    matches!(error, Stop::BadLaunch(LaunchError::TooManyThreads { .. })),
                    "{error}"
                );
            }
        }
    }
    for grid in [[1 << 31, 1, 1], [1, 65_536, 1], [1, 1, u32::MAX], [0, 1, 1]] {
        let error = go(&text, grid, [32, 1, 1], Limits::default()).unwrap_err();
        assert!(matches!(error, Stop::BadLaunch(LaunchError::BadGeometry { .. })), "{error}");
    }
}

#[test]
fn a_block_takes_no_more_memory_than_the_host_allows() {
    let text = kernel(".local .b8 l[16777216]; st.local.u8 [l], 1;");
    let error = go(&text, [1; 3], [1024, 1, 1], Limits::default()).unwrap_err();
    let Stop::BadLaunch(LaunchError::TooMuchMemory { bytes, limit }) = error else {
        panic!("{error}")
    };
    assert!(bytes > 1 << 34 && limit == 1 << 30);
    // One warp of a device's 512 KiB a thread is no problem.
    go(&kernel(".local .b8 l[524288]; st.local.u8 [l], 1;"), [1; 3], [32, 1, 1], Limits::default())
        .unwrap();
}

#[test]
fn the_start_of_a_block_counts_for_the_budget_and_not_as_an_instruction() {
    let text = kernel(".shared .b8 s[204800]; st.shared.u8 [s], 1;");
    let budget = Limits { instructions: 1 << 20, ..Limits::default() };
    // 2^31 blocks of two instructions and 200 KiB.
    let grid = [i32::MAX as u32, 1, 1];
    let Err(Stop::Fault(fault)) = go(&text, grid, [1; 3], budget) else { panic!("no fault") };
    assert_eq!(fault.kind, FaultKind::InstructionBudget { limit: 1 << 20 });
    assert!(fault.block[0] < 10_000, "{fault}");
    let stats = go(&text, [3, 1, 1], [1; 3], budget).unwrap();
    assert_eq!(stats.warp_instructions, 6);
}

#[test]
fn copies_that_nobody_waits_for_take_bounded_memory() {
    // Without a bound, 20,000 copies of 700 bytes each for each of two warps.
    let text = ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry t(.param .u64 x, .param .u64 y)\n{\n\
        .reg .pred %p<4>;.reg .b32 %r<9>;.reg .b64 %rd<9>;.shared .align 16 .b8 s[1024];\n\
        ld.param.u64 %rd1, [x];ld.param.u64 %rd4, [y];mov.u32 %r1, %tid.x;mov.u32 %r2, s;mad.lo.u32 %r3, %r1, 16, %r2;\n\
        mul.wide.u32 %rd2, %r1, 16;add.u64 %rd3, %rd1, %rd2;mov.u32 %r4, 0;\n\
        L: cp.async.cg.shared.global [%r3], [%rd3], 16;add.u32 %r4, %r4, 1;setp.lt.u32 %p1, %r4, 20000;@%p1 bra L;\n\
        cp.async.wait_all;ld.shared.v2.u64 {%rd5, %rd6}, [%r3];add.u64 %rd3, %rd4, %rd2;st.global.v2.u64 [%rd3], {%rd5, %rd6};ret;\n}\n";
    let module = Module::parse(text).unwrap();
    let mut memory = Memory::new();
    let bytes: Vec<u8> = (0..1024u32).map(|i| ((i * 7) >> 2) as u8).collect();
    let x = support::input(&mut memory, "x", &bytes);
    let y = support::output(&mut memory, "y", 1024);
    let parameters =
        support::Parameters::default().u64(memory.address(x, 0)).u64(memory.address(y, 0)).0;
    support::go(&module, &mut memory, "t", [1; 3], [64, 1, 1], &parameters, &Options::default())
        .unwrap();
    let mut out = vec![0; 1024];
    memory.read(y, 0, &mut out);
    assert_eq!(out, bytes);
}

#[test]
fn a_format_has_at_most_as_many_arguments_as_in_cuda() {
    let format: String = "%d ".repeat(40);
    let bytes: Vec<String> = format.bytes().chain([0]).map(|b| b.to_string()).collect();
    let text = format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n\
         .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n\
         .global .align 1 .b8 f[{}] = {{{}}};\n.visible .entry t()\n{{\n.reg .b32 %r<9>;.reg .b64 %rd<9>;\n\
         .local .align 8 .b8 l[16];\nmov.u64 %rd1, f;\nmov.u64 %rd2, -8;\n\
         {{.param .b64 a;.param .b64 b;.param .b32 r;st.param.b64 [a], %rd1;st.param.b64 [b], %rd2;\n\
         call.uni (r), vprintf, (a, b);\n}}\nret;\n}}\n",
        bytes.len(),
        bytes.join(",")
    );
    // The arguments' address is at the end of all addresses: a fault, and no overflow.
    let Err(Stop::Fault(fault)) = go(&text, [1; 3], [1; 3], Limits::default()) else {
        panic!("no fault")
    };
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. }), "{fault}");
}

#[test]
fn initial_values_fit_and_their_names_are_declared() {
    let head = ".version 8.4\n.target sm_90\n.address_size 64";
    let module = |variables: &str| format!("{head}\n{variables}\n.entry t() {{ ret; }}");
    for fine in [
        ".global .u64 a = a;",
        ".global .u64 a[2] = {b, a+8};\n.global .u64 b = a+99999999999;",
        ".global .u32 a[] = {1, 2, 3};",
        ".global .u32 a[4] = {1, 2};",
        ".global .u32 a[0];",
    ] {
        Module::parse(&module(fine)).unwrap_or_else(|e| panic!("{fine}: {e}"));
    }
    let unknown = refused(&module(".global .u64 a = nowhere;"));
    assert_eq!(unknown, ParseErrorKind::UnknownName("nowhere".to_owned()));
    for many in [".global .u32 a[2] = {1, 2, 3};", ".const .u32 a[1][2] = {{1, 2}, {3, 4}};"] {
        let error = Module::parse(&module(many)).err().unwrap();
        assert!(matches!(error.what, ParseErrorKind::TooLarge(_)), "{many}: {error}");
        assert_eq!(error.line, 4);
    }
}

#[test]
fn a_message_quotes_no_more_than_a_line() {
    for text in [
        kernel(&format!("add.u32 %r1, {};", "%r1".repeat(100_000))),
        kernel(&format!("bra {};", "L".repeat(100_000))),
        kernel(&format!(".reg .{} %q;", "b".repeat(100_000))),
    ] {
        let message = Module::parse(&text).err().unwrap().to_string();
        assert!(message.len() < 200, "{}", message.len());
    }
}

#[test]
fn vectors_stacks_and_discards_in_wrong_places() {
    for body in [
        ".reg .v4 .b32 %v<3>;",
        ".reg .v4 .v4 .b32 %v;",
        ".reg .v4 .pred %v;mov.v4.pred %v, %tid;",
        ".reg .v2 .b128 %v;mov.v2.b128 %v, %v;",
        ".reg .v2 .b32 %v;mov.v4.u32 %v, %tid;",
        ".reg .v2 .b32 %v;mov.u32 %r1, %v.w;",
        ".reg .v2 .b32 %v;mov.u32 %r1, %v;",
        ".reg .v2 .b32 %v;mov.u32 %r1, %v.x.y;",
        ".reg .v2 .b32 %v;add.u32 %v, %v, %v;",
        ".reg .v2 .b32 %v;ld.global.u32 %r1, [%v];",
        "mov.v4.u32 {%r1,%r2,%r3,%r4}, %laneid;",
        "mov.v4.u32 {%r1,%r2,%r3}, %tid;",
        "alloca.u64 %rd1, 8, 3;",
        "alloca.u32 %r1, %r2, %r3;",
        "discard.global.L2 [%rd1], 64;",
    ] {
        refused(&kernel(body));
    }
    refused(&kernel(&(0..40_000).map(|i| format!(".reg .v4 .b32 %v{i};")).collect::<String>()));
}

#[test]
fn thousands_of_mbarriers_cost_no_more_each() {
    let body = ".shared .align 8 .b8 m[40000];mov.u32 %r1, 0;mov.u32 %r2, m;\
        L: mbarrier.init.shared.b64 [%r2], 1;add.u32 %r2, %r2, 8;add.u32 %r1, %r1, 1;setp.lt.u32 %p1, %r1, 5000;@%p1 bra L;\
        mov.u32 %r1, 0;M: mbarrier.arrive.shared.b64 _, [%r2+-8];add.u32 %r1, %r1, 1;setp.lt.u32 %p1, %r1, 50000;@%p1 bra M;";
    let start = std::time::Instant::now();
    go(&kernel(body), [1; 3], [1; 3], Limits::default()).unwrap();
    assert!(start.elapsed().as_secs() < 60);
}

/// A call through a register may be of any function, and a return to any place after such a call: 26,486
/// blocks. This sees that none of the passes takes much longer than all do now, well under a second; that the
/// search for what is alive looks at each block a few times, `lower/alive.rs` counts on a graph of the kind.
#[test]
fn copies_of_functions_called_through_registers_are_read_soon() {
    let start = std::time::Instant::now();
    let _ = Module::parse(include_str!("ptx/indirect_calls.ptx"));
    assert!(start.elapsed().as_secs() < 10);
}
