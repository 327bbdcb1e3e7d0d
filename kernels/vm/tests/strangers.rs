//! What PTX written by hand has and compilers seldom write: constant expressions, decimal fractions,
//! functions that take registers, flags in shared memory.

mod support;

use ptx_vm::{
    Coverage, FaultKind, Launch, Limits, Memory, Module, Options, RaceKind, Stop, launch,
};
use support::{Parameters, bytes32, words};

/// Runs a kernel `t(p)` with `%rd1` = p, `%r1` = tid; 64 words of zero lie there.
fn run_with(globals: &str, body: &str, threads: u32) -> Result<Vec<u32>, Stop> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n{globals}\n.visible .entry t(.param .u64 p)\n{{\n\
         .reg .pred %p<9>;.reg .b32 %r<30>;.reg .f32 %f<9>;.reg .f64 %fd<9>;.reg .b64 %rd<30>;\n\
         .shared .align 8 .u32 s[64];.shared .align 4 .u32 flag;\n\
         ld.param.u64 %rd1, [p];mov.u32 %r1, %tid.x;shl.b32 %r2, %r1, 2;mov.u32 %r3, s;add.u32 %r3, %r3, %r2;\n\
         cvt.u64.u32 %rd2, %r2;add.u64 %rd2, %rd1, %rd2;setp.eq.u32 %p1, %r1, 0;\n{body}\nret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}: {body}"));
    let mut memory = Memory::new();
    let x = memory.allocate("x", 256, &[], 0);
    memory.write(x, 0, &bytes32(&[0; 64]));
    let parameters = Parameters::default().u64(memory.address(x, 0)).0;
    let what = Launch {
        entry: "t",
        grid: [1, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let limits = Limits { instructions: 1_000_000, ..Limits::default() };
    launch(&module, &mut memory, &what, &limits, &Options::default(), &mut Coverage::new())?;
    Ok(words(&memory, x))
}

fn value(globals: &str, body: &str) -> u32 {
    run_with(globals, body, 1).unwrap_or_else(|stop| panic!("{stop}: {body}"))[0]
}

#[test]
fn constant_expressions() {
    for (text, expected) in [
        ("(3+4)*2-1", 13),
        ("2+3*4", 14),
        ("~5", !5),
        ("(1<<4)|3", 19),
        ("1<<2+1", 8),
        ("5>3?7:9", 7),
        ("-(3)", 3u32.wrapping_neg()),
        ("!0", 1),
        ("!7", 0),
        ("-8>>1", 4u32.wrapping_neg()),
        ("-7/2", 3u32.wrapping_neg()),
        ("7%4", 3),
        ("6&3|8^1", 11),
        ("(1==1)&&(2!=2)", 0),
        ("0x10-017", 1),
        ("(.s64)-1<0", 1),
        ("-1<0U", 0),
        ("-3", 3u32.wrapping_neg()),
    ] {
        let got = value("", &format!("mov.b32 %r4, {text};st.global.u32 [%rd1], %r4;"));
        assert_eq!(got, expected, "{text}");
    }
    let data = ".global .u32 g[2*2] = {1<<4, 2, -(3), 4};\n.reg .b32 %q<5>;";
    let data = data.trim_end_matches("\n.reg .b32 %q<5>;");
    assert_eq!(value(data, "ld.global.u32 %r4, [g+2*4-8];st.global.u32 [%rd1], %r4;"), 16);
    assert_eq!(
        value(data, "mov.u64 %rd3, g;ld.global.u32 %r4, [%rd3+(1<<2)];st.global.u32 [%rd1], %r4;"),
        2
    );
    assert_eq!(
        value(data, "ld.global.u32 %r4, [g+8];st.global.u32 [%rd1+4-2*2], %r4;"),
        3u32.wrapping_neg()
    );
}

#[test]
fn a_constant_that_is_none_is_refused() {
    for text in
        ["1/0", "7%0", "(1", "1<<", "1?2", "((((((((((((((((((((1))))))))))))))))))))", "~%r1"]
    {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry t()\n{{\n.reg .b32 %r<5>;\nmov.b32 %r1, {text};\n}}"
        );
        assert_eq!(Module::parse(&text).err().map(|error| error.line), Some(7), "{text}");
    }
}

#[test]
fn decimal_fractions() {
    for (text, expected) in [
        ("1e-3", 1e-3),
        (".5", 0.5),
        ("1.5e+3", 1500.0),
        ("-2.0E-2", -0.02),
        ("1e5", 1e5),
        ("1.25", 1.25f64),
    ] {
        let body = format!("mov.f64 %fd1, {text};st.global.f64 [%rd1], %fd1;");
        let got = run_with("", &body, 1).unwrap();
        assert_eq!(u64::from(got[0]) | u64::from(got[1]) << 32, expected.to_bits(), "{text}");
    }
    let data = ".global .f32 a = 1.5;.global .f32 b[2] = {-1.5, -0f3fc00000};\n\
                .global .f64 c = -2.5;.global .f64 d = 0f3fc00000;";
    let load = |place: &str| {
        value(data, &format!("ld.global.u32 %r4, [{place}];st.global.u32 [%rd1], %r4;"))
    };
    let high = |x: f64| (x.to_bits() >> 32) as u32;
    assert_eq!(load("a"), 1.5f32.to_bits());
    assert_eq!([load("b"), load("b+4")], [(-1.5f32).to_bits(); 2]);
    assert_eq!([load("c+4"), load("d+4")], [high(-2.5), high(1.5)]);
}

#[test]
fn functions_that_take_registers() {
    let functions = ".func (.reg .u32 r) next(.reg .u32 a) { add.u32 a, a, 1;mov.u32 r, a;ret; }\n\
         .func (.param .b32 r) twice(.param .b32 n) { .reg .b32 a;ld.param.u32 a, [n];add.u32 a, a, a;st.param.b32 [r], a;ret; }\n";
    assert_eq!(value(functions, "call (%r4), next, (41);st.global.u32 [%rd1], %r4;"), 42);
    // The callee's register is its own.
    let both = "mov.u32 %r5, 7;call (%r4), next, (%r5);mad.lo.u32 %r4, %r4, 10, %r5;st.global.u32 [%rd1], %r4;";
    assert_eq!(value(functions, both), 87);
    // A call through a pointer passes those by that take no variables.
    let through = "P: .callprototype (.param .b32 _) _ (.param .b32 _);\nmov.u64 %rd3, twice;\n\
         {.param .b32 x;.param .b32 y;st.param.b32 [x], 21;call (y), %rd3, (x), P;ld.param.b32 %r4, [y];}st.global.u32 [%rd1], %r4;";
    assert_eq!(value(functions, through), 42);
}

#[test]
fn a_missing_special_register_is_named() {
    match run_with("", "mov.u32 %r4, %envreg3;", 1) {
        Err(Stop::Unsupported { what, .. }) => assert!(what.contains("%envreg3"), "{what}"),
        other => panic!("{other:?}"),
    }
}

/// Warp 0 stores and raises a flag in shared memory, warp 1 waits for it and reads.
fn flagged(fence: &str, raise: &str, wait: &str) -> Result<Vec<u32>, Stop> {
    let body = format!(
        "@%p1 st.shared.u32 [flag], 0;bar.sync 0;setp.lt.u32 %p2, %r1, 32;@!%p2 bra R;\n\
         st.shared.u32 [%r3], %r1;bar.warp.sync 0xffffffff;{fence}@%p1 {raise};bra E;\n\
         R: {wait} setp.eq.u32 %p3, %r4, 0;@%p3 bra R;xor.b32 %r5, %r2, 252;mov.u32 %r6, s;add.u32 %r6, %r6, %r5;\n\
         ld.shared.u32 %r7, [%r6];st.global.u32 [%rd2], %r7;E:"
    );
    run_with("", &body, 64)
}

#[test]
fn flags_in_shared_memory() {
    let (volatile, poll) =
        ("st.volatile.shared.u32 [flag], 1", "ld.volatile.shared.u32 %r4, [flag];");
    let (exchange, ask) =
        ("atom.shared.exch.b32 %r8, [flag], 1", "atom.shared.or.b32 %r4, [flag], 0;");
    for (fence, raise, wait) in [
        ("membar.cta;", volatile, poll),
        ("membar.gl;", volatile, poll),
        ("fence.acq_rel.cta;", exchange, ask),
        ("", "st.release.cta.shared.u32 [flag], 1", "ld.acquire.cta.shared.u32 %r4, [flag];"),
        (
            "",
            "atom.acq_rel.cta.shared.exch.b32 %r8, [flag], 1",
            "ld.acquire.cta.shared.u32 %r4, [flag];",
        ),
    ] {
        let got =
            flagged(fence, raise, wait).unwrap_or_else(|stop| panic!("{stop}: {fence}{raise}"));
        assert_eq!((got[32], got[63]), (31, 0), "{raise}");
    }
    for (fence, raise, wait) in [
        // No fence; one after the flag; a flag that is a plain store.
        ("", volatile, poll),
        ("", exchange, ask),
        ("", "st.volatile.shared.u32 [flag], 1;membar.cta", poll),
    ] {
        match flagged(fence, raise, wait) {
            Err(Stop::Fault(fault)) => {
                assert!(
                    matches!(
                        fault.kind,
                        FaultKind::SharedRace { race: RaceKind::ReadAfterWrite, .. }
                    ),
                    "{fault}"
                );
                assert!(fault.other.is_some());
            }
            other => panic!("{other:?}: {fence}{raise}"),
        }
    }
}
