//! Semantics of single instructions: integer edges, conversions, bit operations, packed types,
//! calls, tables and module variables.

mod support;

use ptx_vm::{Memory, Module, Options, ParseErrorKind};
use support::{Parameters, bytes32, go, input, output, words};

/// Runs `code` in one thread: `%r1 = a`, `%r2 = b`, `%rd1 = a:b` (a high); result in `%r3`, or in
/// `%rd3` when the code sets it.
fn eval(code: &str, a: u32, b: u32) -> u64 {
    eval_with("", code, a, b)
}

fn eval_with(module_scope: &str, code: &str, a: u32, b: u32) -> u64 {
    let text = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n{module_scope}\n.visible .entry t(.param .u64 x, .param .u64 d)\n{{\n\
         .reg .pred %p<9>;.reg .b16 %h<20>;.reg .f32 %f<20>;.reg .f64 %fd<9>;.reg .b32 %r<20>;.reg .b64 %rd<20>;\n\
         .local .align 16 .b8 depot[64];\n\
         ld.param.u64 %rd18, [x];ld.param.u64 %rd19, [d];ld.global.u32 %r1, [%rd18];ld.global.u32 %r2, [%rd18+4];\n\
         mov.b64 %rd1, {{%r2,%r1}};mov.u32 %r3, 0;mov.u64 %rd3, 0;mov.b32 %f1, %r1;mov.b32 %f2, %r2;\n\
         cvt.u16.u32 %h1, %r1;cvt.u16.u32 %h2, %r2;\n{code}\n\
         st.global.u32 [%rd19], %r3;st.global.u64 [%rd19+8], %rd3;\nret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{code}: {e}"));
    let mut memory = Memory::new();
    let x = input(&mut memory, "x", &bytes32(&[a, b]));
    let d = output(&mut memory, "d", 16);
    let parameters = Parameters::default().u64(memory.address(x, 0)).u64(memory.address(d, 0)).0;
    go(&module, &mut memory, "t", [1; 3], [1; 3], &parameters, &Options::default())
        .unwrap_or_else(|e| panic!("{code}: {e}"));
    let out = words(&memory, d);
    if code.contains("%rd3,") {
        u64::from(out[2]) | u64::from(out[3]) << 32
    } else {
        u64::from(out[0])
    }
}

#[track_caller]
fn table(rows: &[(&str, u32, u32, u64)]) {
    for (code, a, b, want) in rows {
        let got = eval(code, *a, *b);
        assert_eq!(got, *want, "{code} on {a:#x}, {b:#x}: got {got:#x}, want {want:#x}");
    }
}

const MINUS: u32 = u32::MAX;
const MIN: u32 = 1 << 31;

#[test]
fn integers() {
    table(&[
        ("add.s32 %r3, %r1, %r2;", MINUS, 2, 1),
        ("sub.s32 %r3, %r1, %r2;", 0, 1, MINUS.into()),
        ("mul.hi.s32 %r3, %r1, %r2;", MINUS, 1, MINUS.into()),
        ("mul.hi.u32 %r3, %r1, %r2;", MINUS, 2, 1),
        ("mul.wide.s32 %rd3, %r1, %r2;", MINUS, 3, (-3i64) as u64),
        ("mul.wide.u32 %rd3, %r1, %r2;", MINUS, 2, 0x1_ffff_fffe),
        ("mad.lo.s32 %r3, %r1, %r2, 5;", 3, 4, 17),
        ("mad.wide.s32 %rd3, %r1, %r2, 1;", MINUS, 3, (-2i64) as u64),
        ("div.s32 %r3, %r1, %r2;", MIN, MINUS, MIN.into()),
        ("rem.s32 %r3, %r1, %r2;", (-7i32) as u32, 3, MINUS.into()),
        ("abs.s32 %r3, %r1;", MIN, 0, MIN.into()),
        ("neg.s32 %r3, %r1;", 5, 0, (-5i32 as u32).into()),
        ("min.s32 %r3, %r1, %r2;", MINUS, 1, MINUS.into()),
        ("min.u32 %r3, %r1, %r2;", MINUS, 1, 1),
        ("max.s32 %r3, %r1, %r2;", MINUS, 1, 1),
        ("shl.b32 %r3, %r1, %r2;", 1, 32, 0),
        ("shl.b32 %r3, %r1, %r2;", 1, 31, MIN.into()),
        ("shr.u32 %r3, %r1, %r2;", MIN, 40, 0),
        ("shr.s32 %r3, %r1, %r2;", MIN, 40, MINUS.into()),
        ("shr.s64 %rd3, %rd1, %r2;", MIN, 100, u64::MAX),
        ("shl.b64 %rd3, %rd1, 64;", 1, 1, 0),
        ("popc.b32 %r3, %r1;", 0xf0f0, 0, 8),
        ("clz.b32 %r3, %r1;", 0, 0, 32),
        ("clz.b64 %r3, %rd1;", 1, 0, 31),
        ("brev.b32 %r3, %r1;", 1, 0, MIN.into()),
        ("bfe.u32 %r3, %r1, 4, 8;", 0xabcd, 0, 0xbc),
        ("bfe.s32 %r3, %r1, 4, 4;", 0xc0, 0, 0xffff_fffc),
        ("bfi.b32 %r3, %r1, %r2, 8, 8;", 0x1ff, 0, 0xff00),
        ("bfi.b64 %rd3, %rd1, 7, 32, 32;", 0, 9, 9 << 32 | 7),
        ("lop3.b32 %r3, %r1, %r2, 0xff, 0xe8;", 0xf0, 0x3c, 0xfc),
        ("lop3.b32 %r3, %r1, %r2, 0xff, 0x96;", 0xf0, 0x3c, 0x33),
        ("prmt.b32 %r3, %r1, %r2, 0x5410;", 0x1111_2222, 0x3333_4444, 0x4444_2222),
        ("shf.l.wrap.b32 %r3, %r1, %r2, 4;", 0xf000_0000, 1, 0x1f),
        ("cnot.b32 %r3, %r1;", 0, 0, 1),
        ("sad.s32 %r3, %r1, %r2, 1;", MINUS, 2, 4),
        ("add.cc.u32 %r3, %r1, %r2; addc.u32 %r3, 0, 0;", MINUS, 1, 1),
        ("add.s16 %h3, %h1, %h2; cvt.u32.u16 %r3, %h3;", 0xffff, 2, 1),
        ("mul.lo.s16 %h3, %h1, %h2; cvt.s32.s16 %r3, %h3;", 0xffff, 3, 0xffff_fffd),
        ("shr.s16 %h3, %h1, 4; cvt.u32.u16 %r3, %h3;", 0x8000, 0, 0xf800),
        ("min.s16 %h3, %h1, %h2; cvt.u32.u16 %r3, %h3;", 0x8000, 1, 0x8000),
        ("not.b16 %h3, %h1; cvt.u32.u16 %r3, %h3;", 0x00ff, 0, 0xff00),
        ("slct.b32.s32 %r3, 1, 2, %r1;", MINUS, 0, 2),
        ("slct.u32.f32 %r3, 1, 2, %f1;", MIN, 0, 1),
        ("set.lt.u32.s32 %r3, %r1, %r2;", MINUS, 0, MINUS.into()),
        (
            "setp.lt.and.u32 %p1|%p2, %r1, %r2, 1; selp.u32 %r3, 1, 0, %p1; @%p2 add.u32 %r3, %r3, 2;",
            3,
            2,
            2,
        ),
        ("mul.hi.u64 %rd3, %rd1, %rd1;", 1 << 31, 0, 1 << 62),
        ("dp4a.s32.s32 %r3, %r1, %r2, 10;", 0x01ff_0203, 0x0101_0101, 15),
    ]);
}

#[test]
fn conversions() {
    let f = |x: f32| x.to_bits();
    table(&[
        ("cvt.rzi.s32.f32 %r3, %f1;", f(-1.9), 0, MINUS.into()),
        ("cvt.rni.s32.f32 %r3, %f1;", f(2.5), 0, 2),
        ("cvt.rmi.s32.f32 %r3, %f1;", f(-1.1), 0, 0xffff_fffe),
        ("cvt.rpi.u32.f32 %r3, %f1;", f(1.1), 0, 2),
        ("cvt.rzi.u32.f32 %r3, %f1;", f(-3.0), 0, 0),
        ("cvt.rzi.s32.f32 %r3, %f1;", f(f32::NAN), 0, 0),
        ("cvt.rzi.s32.f32 %r3, %f1;", f(1e20), 0, 0x7fff_ffff),
        ("cvt.rzi.s64.f32 %rd3, %f1;", f(f32::NAN), 0, 1 << 63),
        ("cvt.rn.f32.u32 %f3, %r1; mov.b32 %r3, %f3;", 0xffff_ffff, 0, 0x4f80_0000),
        ("cvt.rz.f32.u32 %f3, %r1; mov.b32 %r3, %f3;", 0xffff_ffff, 0, 0x4f7f_ffff),
        ("cvt.rp.f32.u64 %f3, %rd1; mov.b32 %r3, %f3;", 0x8000_0000, 1, 0x5f00_0001),
        ("cvt.rn.f32.u64 %f3, %rd1; mov.b32 %r3, %f3;", 0x8000_0080, 1, 0x5f00_0001),
        ("cvt.s32.s8 %r3, %r1;", 0x80, 0, 0xffff_ff80),
        ("cvt.u32.u8 %r3, %r1;", 0x1ff, 0, 0xff),
        ("cvt.s64.s16 %rd3, %h1;", 0x8000, 0, 0xffff_ffff_ffff_8000),
        ("cvt.sat.s8.s32 %r3, %r1;", 300, 0, 127),
        ("cvt.sat.u8.s32 %r3, %r1;", MINUS, 0, 0),
        ("cvt.sat.f32.f32 %f3, %f1; mov.b32 %r3, %f3;", f(f32::NAN), 0, 0),
        ("cvt.rzi.f32.f32 %f3, %f1; mov.b32 %r3, %f3;", f(-2.7), 0, f(-2.0).into()),
        ("cvt.rn.bf16x2.f32 %r3, %f1, %f2;", f(1.0), f(2.0), 0x3f80_4000),
        ("cvt.rn.f16x2.f32 %r3, %f1, %f2;", f(1.0), f(2.0), 0x3c00_4000),
        ("cvt.rz.bf16.f32 %h3, %f1; cvt.u32.u16 %r3, %h3;", 0x3f80_ffff, 0, 0x3f80),
        ("cvt.rn.relu.bf16.f32 %h3, %f1; cvt.u32.u16 %r3, %h3;", f(-1.0), 0, 0),
        ("cvt.rna.tf32.f32 %r3, %f1;", 0x3f80_1000, 0, 0x3f80_2000),
        (
            "cvt.f64.f32 %fd1, %f1; cvt.rm.f32.f64 %f3, %fd1; mov.b32 %r3, %f3;",
            f(0.1),
            0,
            f(0.1).into(),
        ),
    ]);
}

#[test]
fn floats() {
    let f = |x: f32| x.to_bits();
    table(&[
        (
            "add.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;",
            f(f32::INFINITY),
            f(f32::NEG_INFINITY),
            0x7fff_ffff,
        ),
        ("mul.ftz.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", 0x8000_0001, f(1.0), 0x8000_0000),
        ("add.rz.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", f(1.0), 0x3380_0001, f(1.0).into()),
        ("add.rp.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", f(1.0), 1, u64::from(f(1.0)) + 1),
        ("fma.rm.f32 %f3, %f1, %f2, 0fBF800000; mov.b32 %r3, %f3;", f(1.0), f(1.0), 0x8000_0000),
        ("setp.neu.f32 %p1, %f1, %f1; selp.u32 %r3, 1, 0, %p1;", f(f32::NAN), 0, 1),
        ("setp.ne.f32 %p1, %f1, %f1; selp.u32 %r3, 1, 0, %p1;", f(f32::NAN), 0, 0),
        ("setp.geu.f32 %p1, %f1, %f2; selp.u32 %r3, 1, 0, %p1;", f(1.0), f(2.0), 0),
        ("copysign.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", f(-1.0), f(2.0), f(-2.0).into()),
        ("fma.rn.f16x2 %r3, %r1, %r2, %r1;", 0x3c00_4000, 0x4000_3c00, 0x4200_4400),
        ("fma.rn.bf16x2 %r3, %r1, %r2, %r1;", 0x3f80_4000, 0x4000_3f80, 0x4040_4080),
        ("add.bf16 %h3, %h1, %h2; cvt.u32.u16 %r3, %h3;", 0x3f80, 0x3b80, 0x3f80),
        ("max.bf16x2 %r3, %r1, %r2;", 0x7fff_3f80, 0x3f80_4000, 0x3f80_4000),
        ("min.NaN.f16 %h3, %h1, %h2; cvt.u32.u16 %r3, %h3;", 0x7e00, 0x3c00, 0x7fff),
        ("set.lt.f16x2.f16x2 %r3, %r1, %r2;", 0x3c00_4000, 0x4000_3c00, 0x3c00_0000),
        (
            "cvt.f64.f32 %fd1, %f1; mul.rp.f64 %fd2, %fd1, %fd1; sub.f64 %fd3, %fd2, %fd2; mov.b64 %rd3, %fd3;",
            f(0.1),
            0,
            0,
        ),
    ]);
}

#[test]
fn memory_widths_and_packing() {
    table(&[
        ("ld.global.s8 %r3, [%rd18];", 0x80, 0, 0xffff_ff80),
        ("ld.global.u8 %h3, [%rd18+1]; cvt.u32.u16 %r3, %h3;", 0xab00, 0, 0xab),
        ("ld.global.s8 %h3, [%rd18]; cvt.u32.u16 %r3, %h3;", 0x80, 0, 0xff80),
        ("ld.global.s32 %rd3, [%rd18];", MINUS, 0, u64::MAX),
        (
            "ld.global.v2.u16 {%h3,%h4}, [%rd18]; mov.b32 %r3, {%h4,%h3};",
            0x1234_5678,
            0,
            0x5678_1234,
        ),
        ("mov.b32 {%h3,_}, %r1; cvt.u32.u16 %r3, %h3;", 0x1234_5678, 0, 0x5678),
        ("mov.b64 {%r4,%r3}, %rd1;", 7, 9, 7),
        ("mov.b64 %rd3, {%h1,%h2,%h1,%h2};", 1, 2, 0x0002_0001_0002_0001),
        ("{ .reg .b32 t; mov.b32 t, %r1; add.u32 %r3, t, 1; }", 5, 0, 6),
        (
            "mov.u64 %rd4, depot; cvta.local.u64 %rd5, %rd4; st.u32 [%rd5+8], %r1; ld.local.u32 %r3, [depot+8];",
            77,
            0,
            77,
        ),
        ("isspacep.global %p1, %rd18; selp.u32 %r3, 1, 0, %p1;", 0, 0, 1),
    ]);
}

#[test]
fn atomics_return_the_old_value() {
    let on = |op: &str| {
        format!(
            "st.global.u32 [%rd19], %r1; {op} add.u32 %r4, %r4, 0; ld.global.u32 %r5, [%rd19]; mov.b64 %rd3, {{%r4,%r5}};"
        )
    };
    let row = |op: &str, a, b| eval(&on(op), a, b);
    assert_eq!(row("atom.global.add.u32 %r4, [%rd19], %r2;", 5, 7), 12 << 32 | 5);
    assert_eq!(row("atom.global.min.s32 %r4, [%rd19], %r2;", 5, MINUS), u64::from(MINUS) << 32 | 5);
    assert_eq!(row("atom.global.cas.b32 %r4, [%rd19], 5, %r2;", 5, 9), 9 << 32 | 5);
    assert_eq!(row("atom.global.cas.b32 %r4, [%rd19], 6, %r2;", 5, 9), 5 << 32 | 5);
    assert_eq!(row("atom.global.inc.u32 %r4, [%rd19], %r2;", 5, 5), 5);
    assert_eq!(row("atom.global.dec.u32 %r4, [%rd19], %r2;", 0, 5), 5 << 32);
    let one = u64::from(1.0f32.to_bits());
    let two = u64::from(2.0f32.to_bits());
    let sum = "mov.u32 %r6, 0; atom.global.add.f32 %f4, [%rd19], %f2; mov.b32 %r4, %f4;";
    assert_eq!(row(sum, 1.0f32.to_bits(), 1.0f32.to_bits()), two << 32 | one);
}

#[test]
fn atomics_of_every_type_and_space() {
    let wide = |op: &str| {
        format!(
            "st.global.u64 [%rd19+8], %rd1; mov.u64 %rd4, 9; {op} ld.global.u64 %rd3, [%rd19+8]; add.u64 %rd3, %rd3, 0;"
        )
    };
    for (op, a, b, want) in [
        ("atom.global.add.u64 %rd5, [%rd19+8], %rd4;", 1, MINUS, 2 << 32 | 8),
        ("red.global.min.u64 [%rd19+8], %rd4;", 1, 1, 9),
        ("red.global.max.s64 [%rd19+8], %rd4;", MINUS, 0, 9),
        ("red.global.max.u64 [%rd19+8], %rd4;", MINUS, 0, u64::from(MINUS) << 32),
        ("red.relaxed.gpu.global.or.b64 [%rd19+8], %rd4;", 1, 2, 1 << 32 | 11),
        ("red.global.and.b64 [%rd19+8], %rd4;", 1, 0xc, 8),
        ("atom.acq_rel.sys.global.exch.b64 %rd5, [%rd19+8], %rd4;", 1, 1, 9),
        ("atom.global.cas.b64 %rd5, [%rd19+8], %rd1, %rd4;", 1, 1, 9),
        ("atom.global.cas.b64 %rd5, [%rd19+8], %rd4, 3;", 0, 1, 1),
    ] {
        assert_eq!(eval(&wide(op), a, b), want, "{op}");
    }
    let scope = ".shared .align 8 .b8 s[16];\n";
    let shared = |op: &str| {
        format!(
            "st.shared.u32 [s], %r1; mov.u32 %r4, 0; bar.sync 0; {op} bar.sync 0; ld.shared.u32 %r5, [s]; mov.b64 %rd3, {{%r4,%r5}};"
        )
    };
    let both = |old: u32, new: u32| u64::from(new) << 32 | u64::from(old);
    for (op, a, b, want) in [
        ("atom.shared.add.u32 %r4, [s], %r2;", MINUS, 2, both(MINUS, 1)),
        ("atom.shared::cta.add.s32 %r4, [s], -1;", 1, 0, both(1, 0)),
        ("red.shared.min.s32 [s], %r2;", 5, MINUS, both(0, MINUS)),
        ("red.shared.min.u32 [s], %r2;", 5, MINUS, both(0, 5)),
        ("red.shared.max.s32 [s], %r2;", 5, MINUS, both(0, 5)),
        ("red.shared.max.u32 [s], %r2;", 5, MINUS, both(0, MINUS)),
        ("atom.shared.inc.u32 %r4, [s], %r2;", 7, 7, both(7, 0)),
        ("atom.shared.exch.b32 %r4, [s], %r2;", 7, 8, both(7, 8)),
        ("atom.shared.cas.b32 %r4, [s], 7, %r2;", 7, 8, both(7, 8)),
        ("atom.shared.cas.b32 %r4, [s], 6, %r2;", 7, 8, both(7, 7)),
        ("atom.shared.or.b32 %r4, [s], %r2;", 5, 2, both(5, 7)),
        ("atom.shared.and.b32 %r4, [s], %r2;", 5, 4, both(5, 4)),
        ("atom.shared.xor.b32 %r4, [s], %r2;", 5, 4, both(5, 1)),
        (
            "mov.u64 %rd4, s; cvta.shared.u64 %rd5, %rd4; atom.add.u32 %r4, [%rd5], %r2;",
            5,
            4,
            both(5, 9),
        ),
    ] {
        assert_eq!(eval_with(scope, &shared(op), a, b), want, "{op}");
    }
}

#[test]
fn fences_and_ordered_accesses() {
    let code = "fence.acq_rel.gpu; membar.gl; fence.sc.cta; st.release.gpu.global.u32 [%rd19], %r1;\n\
        ld.acquire.gpu.global.u32 %r3, [%rd19]; fence.proxy.async;";
    assert_eq!(eval(code, 6, 0), 6);
}

#[test]
fn warp_collectives_of_one_thread() {
    table(&[
        ("match.any.sync.b32 %r3, %r1, 1;", 7, 0, 1),
        ("match.all.sync.b64 %r3|%p1, %rd1, 1; @!%p1 mov.u32 %r3, 9;", 7, 0, 1),
        ("redux.sync.add.s32 %r3, %r1, 1;", 7, 0, 7),
        ("redux.sync.max.u32 %r3, %r1, 1;", MINUS, 0, MINUS.into()),
        ("redux.sync.xor.b32 %r3, %r1, 1;", 7, 0, 7),
        ("setp.eq.u32 %p1, %r1, 7; vote.sync.ballot.b32 %r3, %p1, 1;", 7, 0, 1),
        ("setp.eq.u32 %p1, %r1, 7; vote.sync.ballot.b32 %r3, !%p1, 1;", 7, 0, 0),
        ("prmt.b32 %r3, %r1, %r2, 0x7610;", 0x1111_2222, 0x3333_4444, 0x3333_2222),
        ("prmt.b32.f4e %r3, %r1, %r2, 1;", 0x0403_0201, 0x0807_0605, 0x0504_0302),
    ]);
}

#[test]
fn calls_tables_and_module_variables() {
    let scope = ".const .align 4 .b8 tab[8] = {1, 0, 0, 0, 42};\n.global .align 4 .u32 g[2] = {7, 8};\n\
        .func (.param .b32 out) twice(.param .b32 x, .param .b64 p)\n{\n.reg .b32 %r<4>;.reg .b64 %rd<3>;.reg .pred %p<2>;\n\
        ld.param.u32 %r1, [x];setp.eq.u32 %p1, %r1, 0;@%p1 bra Z;ld.param.u64 %rd1, [p];st.u32 [%rd1], %r1;\n\
        add.u32 %r2, %r1, %r1;st.param.b32 [out+0], %r2;ret;\nZ: mov.u32 %r3, 99;st.param.b32 [out+0], %r3;ret;\n}\n";
    let call = "cvta.local.u64 %rd5, depot;{ .param .b32 a;st.param.b32 [a+0], %r1;.param .b64 b;st.param.b64 [b+0], %rd5;\n\
        .param .b32 r;call.uni (r), twice, (a, b);ld.param.b32 %r3, [r+0];}";
    assert_eq!(eval_with(scope, call, 21, 0), 42);
    assert_eq!(eval_with(scope, call, 0, 0), 99);
    let both = format!("{call} ld.local.u32 %r4, [depot]; add.u32 %r3, %r3, %r4;");
    assert_eq!(eval_with(scope, &both, 21, 0), 63);
    let table = "L: .branchtargets A, B, C; brx.idx %r1, L; A: mov.u32 %r3, 10; bra E; B: mov.u32 %r3, 20; bra E; C: mov.u32 %r3, 30; E:";
    for (a, want) in [(0, 10), (1, 20), (2, 30)] {
        assert_eq!(eval(table, a, 0), want);
    }
    assert_eq!(eval_with(scope, "ld.const.u32 %r3, [tab+4];", 0, 0), 42);
    let global = "mov.u64 %rd4, g; ld.global.u32 %r3, [%rd4+4]; st.global.u32 [g], %r3; ld.global.u32 %r3, [g];";
    assert_eq!(eval_with(scope, global, 0, 0), 8);
}

#[test]
fn variables_and_parameters_lie_in_their_windows() {
    // Constants between other variables, and the windows of each.
    let scope = ".global .align 4 .u32 g = 5;\n.const .align 4 .u32 c[2] = {6, 7};\n.global .align 8 .u64 h = 8;\n.const .align 16 .u32 k = 9;\n";
    for (name, constant) in [("g", 0), ("h", 0), ("c+4", 1), ("k", 1)] {
        for (space, want) in
            [("const", constant), ("global", 1 - constant), ("shared", 0), ("local", 0)]
        {
            let code =
                format!("mov.u64 %rd5, {name};isspacep.{space} %p1, %rd5;selp.u32 %r3, 1, 0, %p1;");
            assert_eq!(eval_with(scope, &code, 0, 0), want, "{name} {space}");
        }
    }
    let all = "ld.global.u32 %r4, [g];ld.const.u32 %r5, [c+4];ld.global.u32 %r6, [h];ld.const.u32 %r7, [k];\
        mad.lo.u32 %r3, %r4, 10, %r5;mad.lo.u32 %r3, %r3, 10, %r6;mad.lo.u32 %r3, %r3, 10, %r7;";
    assert_eq!(eval_with(scope, all, 0, 0), 5789);
    let param = "mov.b64 %rd5, x;cvta.param.u64 %rd5, %rd5;isspacep.SPACE %p1, %rd5;selp.u32 %r3, 1, 0, %p1;";
    for (space, want) in [("param", 1), ("global", 1), ("const", 0), ("local", 0)] {
        assert_eq!(eval(&param.replace("SPACE", space), 0, 0), want, "{space}");
    }
}

#[test]
fn clocks_have_an_upper_half() {
    let upper = "mov.u32 %r4, %clock_hi;mov.u32 %r5, %globaltimer_hi;or.b32 %r3, %r4, %r5;";
    assert_eq!(eval(upper, 0, 0), 0);
    // Four thousand readings of a timer of 1024 ns pass 2^32 ns after four million.
    let later = "L: mov.u64 %rd5, %globaltimer;shr.u64 %rd6, %rd5, 32;setp.eq.u64 %p1, %rd6, 0;@%p1 bra L;mov.u32 %r3, %globaltimer_hi;";
    assert_eq!(eval(later, 0, 0), 1);
}

#[test]
fn what_a_function_takes_of_the_stack_goes_back() {
    let scope = ".func (.param .b64 out) taker(.param .b64 n)\n{\n.reg .b64 %rd<6>;\nld.param.u64 %rd1, [n];alloca.u64 %rd2, %rd1, 8;\
        st.local.u64 [%rd2], %rd1;ld.local.u64 %rd3, [%rd2];add.u64 %rd3, %rd3, 1;st.param.b64 [out], %rd3;ret;\n}\n";
    let call = "{.param .b64 a;.param .b64 r;st.param.b64 [a], 2000;call.uni (r), taker, (a);ld.param.b64 %rd4, [r];}";
    let code = format!("{}mov.u64 %rd3, %rd4;", call.repeat(9));
    assert_eq!(eval_with(scope, &code, 0, 0), 2001);
    // More than there is: the pointer leads nowhere, and the first access says so.
    let text = |code: &str| {
        format!(
            ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry t()\n{{\n.reg .b64 %rd<9>;\n{code}\nret;\n}}\n"
        )
    };
    let run = |code: &str| {
        let module = Module::parse(&text(code)).unwrap();
        go(&module, &mut Memory::new(), "t", [1; 3], [1; 3], &[], &Options::default())
    };
    run("alloca.u64 %rd1, 8000;st.local.u64 [%rd1+7992], %rd1;").unwrap();
    for code in [
        "alloca.u64 %rd1, 9000;st.local.u64 [%rd1], %rd1;",
        "alloca.u64 %rd1, -8;st.local.u64 [%rd1], %rd1;",
        "alloca.u64 %rd1, 5000;alloca.u64 %rd2, 5000;st.local.u64 [%rd2], %rd1;",
        "mov.u64 %rd1, 3;stackrestore.u64 %rd1;alloca.u64 %rd2, 64;st.local.u64 [%rd2], %rd1;",
        "alloca.u64 %rd1, 64;st.local.u64 [%rd1+64], %rd1;",
    ] {
        let stop = run(code).unwrap_err().to_string();
        assert!(stop.contains("out of bounds") && stop.contains("local memory"), "{code}: {stop}");
    }
    for align in ["3", "16777216"] {
        assert!(Module::parse(&text(&format!("alloca.u64 %rd1, 64, {align};"))).is_err());
    }
}

#[test]
fn a_target_without_a_form_says_which_has_it() {
    let text = |target: &str, code: &str| {
        format!(
            ".version 8.8\n{target}\n.address_size 64\n.visible .entry t(.param .u64 x)\n{{\n.reg .b32 %r<9>;.reg .f32 %f<9>;.reg .b16 %h<9>;.reg .b64 %rd<9>;\nld.param.u64 %rd1, [x];\n{code}\nret;\n}}\n"
        )
    };
    let missing = |target: &str, code: &str| -> Vec<String> {
        let module = Module::parse(&text(target, code)).unwrap_or_else(|e| panic!("{code}: {e}"));
        module.entry("t").unwrap().unsupported().map(|(what, _)| what.to_owned()).collect()
    };
    for (code, needs) in [
        ("ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1];", "sm_100 or later)"),
        ("st.global.v8.f32 [%rd1], {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8};", "sm_100 or later)"),
        ("ld.global.v4.u64 {%rd2,%rd3,%rd4,%rd5}, [%rd1];", "sm_100 or later)"),
        ("cvt.rz.satfinite.ue8m0x2.f32 %h1, %f1, %f2;", "sm_100a"),
        ("cvt.rn.bf16x2.ue8m0x2 %r1, %h1;", "sm_100a"),
    ] {
        for target in [".target sm_80", ".target sm_90", ".target sm_90a, debug"] {
            let what = missing(target, code);
            assert_eq!(what.len(), 1, "{target} {code}");
            assert!(what[0].contains(needs), "{what:?}");
            assert!(what[0].starts_with(code.split(' ').next().unwrap()), "{what:?}");
        }
        for target in [".target sm_100a", ".target sm_121a", ".target sm_120", "// none"] {
            assert_eq!(missing(target, code), Vec::<String>::new(), "{target} {code}");
        }
    }
    for code in [
        "ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%rd1];",
        "ld.global.v2.b64 {%rd2,%rd3}, [%rd1];",
        "ld.global.v8.b8 {%h1,%h2,%h3,%h4,%h5,%h6,%h7,%h8}, [%rd1];",
        "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;",
    ] {
        assert_eq!(missing(".target sm_90", code), Vec::<String>::new(), "{code}");
    }
}

#[test]
fn wrong_text_is_an_error_with_its_line() {
    let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
    let wrong = |body: &str| Module::parse(&format!("{head}{body}")).err().unwrap();
    let e = wrong(".visible .entry t()\n{\n.reg .b32 %r<3>;\nadd.s32 %r1, %r2, %q;\n}");
    assert_eq!((e.line, matches!(e.what, ParseErrorKind::UnknownName(_))), (7, true));
    let e = wrong(".visible .entry t()\n{\nbra NOWHERE;\n}");
    assert!(matches!(e.what, ParseErrorKind::UnknownLabel(_)));
    let e = wrong(
        ".visible .entry t()\n{\n.reg .b32 %r<3>;.reg .pred %p<3>;\nadd.s32 %r1, %r2, %p1;\n}",
    );
    assert_eq!((e.line, matches!(e.what, ParseErrorKind::BadOperands(_))), (7, true));
    let e = wrong(".visible .entry t(\n{\n}");
    assert!(matches!(e.what, ParseErrorKind::Expected { .. }));
    let e = wrong(".visible .entry t()\n{\nret;\n");
    assert!(matches!(e.what, ParseErrorKind::Expected { .. }));
    assert!(Module::parse("").unwrap().entries().next().is_none());
}

#[test]
fn a_broad_source_needs_nothing_the_machine_lacks() {
    for text in [
        include_str!("ptx/misc.sm80.ptx"),
        include_str!("ptx/misc.sm90.ptx"),
        include_str!("ptx/misc.sm121a.ptx"),
    ] {
        let module = Module::parse(text).unwrap();
        for entry in module.entries() {
            let lacking: Vec<_> = entry.unsupported().collect();
            assert!(lacking.is_empty(), "{}: {lacking:?}", entry.name());
        }
    }
}
