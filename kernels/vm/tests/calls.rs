//! Calls as two compiler generations write them: through pointers, recursive, and the runtime's.

mod support;

use ptx_vm::{FaultKind, Memory, Module, Options, Stats, Stop};
use support::{Parameters, bytes_f32, bytes32, go, input, output, words};

const CALLS: [&str; 3] = [
    include_str!("ptx/calls.sm80.ptx"),
    include_str!("ptx/calls.sm90.ptx"),
    include_str!("ptx/calls.sm121a.ptx"),
];

/// Runs a kernel of one warp on inputs and an output of 32 words.
fn run(text: &str, entry: &str, inputs: &[&[u8]]) -> Result<(Vec<u32>, Stats), Stop> {
    let module = Module::parse(text).unwrap();
    let mut memory = Memory::new();
    let mut parameters = Parameters::default();
    for bytes in inputs {
        let buffer = input(&mut memory, "in", bytes);
        parameters = parameters.u64(memory.address(buffer, 0));
    }
    let out = output(&mut memory, "out", 128);
    memory.write(out, 0, &[0; 128]);
    if entry != "asserts" {
        parameters = parameters.u64(memory.address(out, 0));
    }
    let options = Options::default();
    let stats = go(&module, &mut memory, entry, [1; 3], [32, 1, 1], &parameters.0, &options)?;
    Ok((words(&memory, out), stats))
}

fn fault(text: &str, entry: &str, inputs: &[&[u8]]) -> ptx_vm::Fault {
    match run(text, entry, inputs) {
        Err(Stop::Fault(fault)) => *fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn pointers_lead_to_their_functions() {
    for text in CALLS {
        let which: Vec<u32> = (0..32).map(|i| i % 3).collect();
        let a: Vec<f32> = (0..32).map(|i| if i % 5 == 0 { 3.0 } else { -2.0 - i as f32 }).collect();
        let b: Vec<f32> = (0..32).map(|i| (i % 7) as f32).collect();
        let inputs = [&bytes32(&which)[..], &bytes_f32(&a), &bytes_f32(&b)];
        let (got, _) = run(text, "through_pointers", &inputs).unwrap();
        for i in 0..32 {
            let function = match (a[i] > 0.0, i % 2, which[i]) {
                (true, 1, _) | (false, _, 0) => a[i] + b[i],
                (true, _, _) | (false, _, 1) => a[i] * b[i],
                _ => a[i].powi(b[i] as i32),
            };
            assert_eq!(f32::from_bits(got[i]), function, "thread {i}");
        }
        // Behind the table stands no function.
        let beyond = [3u32; 32];
        let negative = bytes_f32(&[-1.0; 32]);
        let fault = fault(text, "through_pointers", &[&bytes32(&beyond), &negative, &negative]);
        let kind = fault.kind;
        let outside = matches!(kind, FaultKind::BadCall { .. } | FaultKind::OutOfBounds { .. });
        assert!(outside, "{kind}");
    }
}

#[test]
fn recursion_is_followed_and_bounded() {
    for text in CALLS {
        let n: Vec<u32> = (0..32).map(|i| if i % 4 == 3 { u32::MAX } else { i / 4 % 4 }).collect();
        let (got, _) = run(text, "recursive", &[&bytes32(&n)]).unwrap();
        for i in 0..32 {
            let want = if i % 4 == 3 { 0 } else { [0, 1, 1, 2][n[i] as usize] };
            assert_eq!(got[i], want, "thread {i}");
        }
        let deep = fault(text, "recursive", &[&bytes32(&[400; 32])]);
        assert_eq!(deep.kind, FaultKind::CallDepth);
        assert!(deep.source.is_some());
    }
}

#[test]
fn printed_lines_are_in_the_result() {
    for text in CALLS {
        let n: Vec<u32> = (0..32).map(|i| if i == 1 { (-7i32) as u32 } else { i }).collect();
        let x: Vec<u8> = (0..32).flat_map(|i| (1234.5f64 / 10f64.powi(i)).to_le_bytes()).collect();
        let (got, stats) = run(text, "prints", &[&bytes32(&n), &x]).unwrap();
        assert_eq!(got, [10; 32]);
        let lines: Vec<&str> = stats.printed.lines().collect();
        assert_eq!(lines.len(), 32);
        // As a C library prints them.
        assert_eq!(lines[0], "  0|0   |0|1234.50|1.234500e+03|1234.5|a|even|1099511627776|0x10|%");
        assert_eq!(
            lines[1],
            " -7|4294967289|0xfffffff9|123.45|1.234500e+02|123.45|b|odd|1099511627776|0x10|%"
        );
        assert_eq!(
            lines[8],
            "  8|8   |0x8| 0.00|1.234500e-05|1.2345e-05|i|odd|1099511627776|0x10|%"
        );
    }
}

#[test]
fn a_failed_assertion_says_what_it_said() {
    for text in CALLS {
        let mut n = [6u32; 32];
        run(text, "asserts", &[&bytes32(&n)]).unwrap();
        n[5] = 7;
        let fault = fault(text, "asserts", &[&bytes32(&n)]);
        assert_eq!(fault.thread, [5, 0, 0]);
        assert_eq!(fault.kind.to_string(), "assertion \"n < 7\" of asserts failed at calls.cu:42");
    }
}

/// A kernel that declares `malloc` and calls as told.
fn hand_written(body: &str) -> Result<Stats, Stop> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
         .global .align 1 .b8 text[4] = {{37, 115, 10, 0}};\n\
         .visible .entry t()\n{{.reg .pred %p<4>;.reg .b32 %r<9>;.reg .b64 %rd<9>;.local .align 8 .b8 list[8];\n\
         {{.param .b64 n;.param .b64 m;.param .b64 r;.param .b32 c;setp.eq.u32 %p1, 1, 2;\n{body}\n}}\nret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap();
    let options = Options::default();
    go(&module, &mut Memory::new(), "t", [1; 3], [1, 1, 1], &[], &options)
}

#[test]
fn what_is_missing_has_its_name() {
    match hand_written("mov.u64 %rd1, 4;st.param.b64 [n], %rd1;call.uni (r), malloc, (n);") {
        Err(Stop::Unsupported { what, .. }) => assert_eq!(what, "call of malloc"),
        other => panic!("{other:?}"),
    }
    // A call that is not made is not missed.
    hand_written("mov.u64 %rd1, 4;st.param.b64 [n], %rd1;@%p1 call (r), malloc, (n);").unwrap();
}

#[test]
fn a_text_that_is_nowhere_is_a_fault() {
    // %s of a null pointer.
    let code = "mov.u64 %rd1, 0;st.local.u64 [list], %rd1;mov.u64 %rd2, text;cvta.global.u64 %rd2, %rd2;st.param.b64 [n], %rd2;\n\
        mov.u64 %rd3, list;cvta.local.u64 %rd3, %rd3;st.param.b64 [m], %rd3;call.uni (c), vprintf, (n, m);";
    match hand_written(code) {
        Err(Stop::Fault(fault)) => {
            assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. }), "{fault}");
        }
        other => panic!("{other:?}"),
    }
    let to_itself =
        code.replace("mov.u64 %rd1, 0;", "mov.u64 %rd1, text;cvta.global.u64 %rd1, %rd1;");
    assert_eq!(hand_written(&to_itself).unwrap().printed, "%s\n\n");
}

#[test]
fn the_log_is_bounded() {
    let code = "mov.u64 %rd1, text;cvta.global.u64 %rd1, %rd1;st.local.u64 [list], %rd1;st.param.b64 [n], %rd1;\n\
        mov.u64 %rd3, list;cvta.local.u64 %rd3, %rd3;st.param.b64 [m], %rd3;mov.u32 %r1, 0;\n\
        L: call.uni (c), vprintf, (n, m);add.u32 %r1, %r1, 1;setp.lt.u32 %p2, %r1, 100000;@%p2 bra L;";
    let printed = hand_written(code).unwrap().printed;
    assert_eq!(printed.len(), 1 << 16);
}
