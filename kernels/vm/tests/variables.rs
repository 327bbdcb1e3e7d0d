//! Variables of a module and of a block have bounds of their own: what runs over an end is found, named
//! by the variable that it runs over, and does not reach the next; what stays inside is silent.

mod support;

use ptx_vm::{
    Coverage, Fault, FaultKind, Launch, Limits, Memory, MemorySpace, Module, Options, Stop, launch,
};
use support::{Parameters, output, words};

/// Neighbours in every space; `%rd1` has 32 words `d`, `%r1` the thread, `%rd9` four times that.
fn module(body: &str) -> Module {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n\
         .global .align 4 .u32 count = 3;\n\
         .global .align 4 .b8 table[32] = {{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8}};\n\
         .global .align 1 .b8 letter[1] = {{65}};\n\
         .global .align 16 .b8 wide[64];\n\
         .global .align 8 .u64 inner[2] = {{generic(table)+28, generic(wide)}};\n\
         .const .align 4 .u32 factors[4] = {{10, 20, 30, 40}};\n\
         .const .align 4 .u32 last = 50;\n\
         .extern .shared .align 4 .b8 more[];\n\
         .visible .entry t(.param .u64 d)\n{{\n\
         .reg .pred %p<9>;.reg .b16 %h<4>;.reg .b32 %r<20>;.reg .b64 %rd<20>;\n\
         .shared .align 4 .b8 left[64];.shared .align 4 .b8 right[64];\n\
         ld.param.u64 %rd1, [d];mov.u32 %r1, %tid.x;mul.wide.u32 %rd9, %r1, 4;add.s64 %rd2, %rd1, %rd9;\n\
         mov.u64 %rd3, table;mov.u64 %rd4, factors;shl.b32 %r9, %r1, 2;\n\
         {body}\nst.global.u32 [%rd2], %r2;\nret;\n}}\n"
    );
    Module::parse(&text).unwrap_or_else(|error| panic!("{body}: {error}"))
}

fn run(body: &str, threads: u32) -> Result<Vec<u32>, Stop> {
    let mut memory = Memory::new();
    let d = output(&mut memory, "d", 128);
    memory.write(d, 0, &[0; 128]);
    let what = Launch {
        entry: "t",
        grid: [1; 3],
        block: [threads, 1, 1],
        dynamic_shared_bytes: 64,
        parameters: &Parameters::default().u64(memory.address(d, 0)).0,
    };
    let (limits, options) = (Limits::default(), Options::default());
    launch(&module(body), &mut memory, &what, &limits, &options, &mut Coverage::new())?;
    Ok(words(&memory, d))
}

#[track_caller]
fn first(body: &str, threads: u32) -> u32 {
    run(body, threads).unwrap_or_else(|stop| panic!("{body}: {stop}"))[0]
}

#[track_caller]
fn outside(body: &str, threads: u32) -> Fault {
    match run(body, threads) {
        Err(Stop::Fault(fault)) if matches!(fault.kind, FaultKind::OutOfBounds { .. }) => *fault,
        other => panic!("{body}: {other:?}"),
    }
}

#[test]
fn variables_of_the_module_end_where_they_end() {
    // Body, threads, the variable and the byte of it, the thread.
    for (body, threads, name, at, thread) in [
        ("ld.global.u32 %r2, [table+32];", 1, ".global table", 32, 0),
        ("ld.global.u32 %r2, [table+-4];", 1, ".global table", -4, 0),
        ("ld.global.u32 %r2, [count+4];", 1, ".global count", 4, 0),
        ("st.global.u32 [count+4], %r1;", 1, ".global count", 4, 0),
        ("atom.global.add.u32 %r2, [table+32], 1;", 1, ".global table", 32, 0),
        ("add.s64 %rd5, %rd3, %rd9;ld.global.u32 %r2, [%rd5];", 9, ".global table", 32, 8),
        ("ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [wide+64];", 1, ".global wide", 64, 0),
        ("ld.global.u8 %h1, [letter+1];", 1, ".global letter", 1, 0),
        ("ld.const.u32 %r2, [factors+16];", 1, ".const factors", 16, 0),
        ("add.s64 %rd5, %rd4, %rd9;ld.const.u32 %r2, [%rd5];", 5, ".const factors", 16, 4),
        ("ld.const.u32 %r2, [last+4];", 1, ".const last", 4, 0),
        ("ld.const.u32 %r2, [last+-4];", 1, ".const last", -4, 0),
        // By an address that another variable holds.
        ("ld.global.u64 %rd5, [inner];ld.u32 %r2, [%rd5+4];", 1, ".global table", 32, 0),
    ] {
        let fault = outside(body, threads);
        let FaultKind::OutOfBounds { buffer: Some(place), .. } = &fault.kind else {
            panic!("{body}: {fault}")
        };
        assert_eq!((place.name.as_str(), place.offset), (name, at), "{body}: {fault}");
        assert_eq!(fault.thread, [thread, 0, 0], "{body}");
        assert!(fault.to_string().contains(name), "{fault}");
    }
}

#[test]
fn what_stays_inside_is_silent() {
    for (body, value) in [
        ("ld.global.u32 %r2, [table+28];", 8),
        ("add.s64 %rd5, %rd3, 64;ld.global.u32 %r2, [%rd5+-36];", 8),
        ("ld.global.u32 %r2, [count];", 3),
        ("ld.global.u8 %h1, [letter];cvt.u32.u16 %r2, %h1;", 65),
        ("ld.global.v4.u32 {%r3,%r4,%r5,%r2}, [wide+48];", 0),
        ("st.global.v4.u32 [wide+48], {9,9,9,9};ld.global.u32 %r2, [wide+60];", 9),
        ("atom.global.add.u32 %r3, [count], 4;ld.global.u32 %r2, [count];", 7),
        ("ld.const.u32 %r2, [factors+12];", 40),
        ("ld.const.v4.u32 {%r3,%r4,%r5,%r2}, [factors];", 40),
        ("ld.const.u32 %r2, [last];", 50),
        ("ld.global.u64 %rd5, [inner];ld.u32 %r2, [%rd5];", 8),
        ("ld.global.u64 %rd5, [inner+8];ld.u32 %r2, [%rd5+60];", 0),
        // The end of one is no place, but it may be compared with.
        ("add.s64 %rd5, %rd3, 32;setp.ne.u64 %p1, %rd5, %rd3;selp.u32 %r2, 1, 0, %p1;", 1),
    ] {
        assert_eq!(first(body, 1), value, "{body}");
    }
    let all = run("add.s64 %rd5, %rd3, %rd9;ld.global.u32 %r2, [%rd5];", 8).unwrap();
    assert_eq!(all[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
    // A constant may still not be stored to, nor by its generic address.
    let constant = run("cvta.const.u64 %rd5, %rd4;st.u32 [%rd5+4], %r1;", 1);
    match constant {
        Err(Stop::Fault(fault)) => {
            assert!(matches!(fault.kind, FaultKind::ConstWrite { .. }), "{fault}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn shared_arrays_end_where_they_end() {
    let fill = "mov.u32 %r3, left;add.u32 %r3, %r3, %r9;st.shared.u32 [%r3], %r1;mov.u32 %r4, right;add.u32 %r4, %r4, %r9;\
                st.shared.u32 [%r4], %r1;mov.u32 %r5, more;add.u32 %r5, %r5, %r9;st.shared.u32 [%r5], %r1;bar.warp.sync -1;";
    for inside in ["left+60", "right", "right+60", "more", "more+60"] {
        let expected = if inside.contains("60") { 15 } else { 0 };
        assert_eq!(first(&format!("{fill}ld.shared.u32 %r2, [{inside}];"), 16), expected);
    }
    for past in ["left+64", "right+64", "right+-4", "more+-4", "more+64"] {
        for access in ["ld.shared.u32 %r2, [AT];", "st.shared.u32 [AT], %r1;"] {
            let fault = outside(&format!("{fill}{}", access.replace("AT", past)), 16);
            let in_shared =
                matches!(fault.kind, FaultKind::OutOfBounds { space: MemorySpace::Shared, .. });
            assert!(in_shared, "{past}: {fault}");
        }
    }
}
