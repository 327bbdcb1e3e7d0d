//! One test per instruction form: operands at the edges, results computed here in other ways
//! (wider integers, exact f64, counting). Forms with the hardware's own values are in `golden`.

mod support;

use ptx_vm::{Memory, Module, Options, Stop};
use support::{Parameters, bytes32, go, input, output, words};

const EDGES: [u32; 16] = [
    0,
    1,
    2,
    7,
    31,
    32,
    0x7f,
    0x80,
    0x8000,
    0xffff,
    0x1_0000,
    0x00ff_ff80,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
];
const FLOATS: [f32; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    -2.5,
    3.0,
    1.000_000_1,
    16_777_217.0,
    -0.333_333_34,
    1e-3,
    65504.0,
    f32::INFINITY,
    f32::NAN,
];

/// Runs `code` with `%r1`, `%r2`, `%r4` (and `%f1`, `%f2`) in; `%rd3` out, or `%r3` widened.
fn run(code: &str, cases: &[[u32; 3]]) -> Result<Vec<u64>, Stop> {
    let wide = if code.contains("%rd3") { "" } else { "cvt.u64.u32 %rd3, %r3;" };
    let text = format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n.shared .align 8 .b8 s[64];\n\
         .visible .entry t(.param .u64 x, .param .u64 d)\n{{\n\
         .reg .pred %p<9>;.reg .b16 %h<9>;.reg .f32 %f<9>;.reg .f64 %fd<9>;.reg .b32 %r<20>;.reg .b64 %rd<20>;\n\
         ld.param.u64 %rd10, [x];ld.param.u64 %rd11, [d];mov.u32 %r10, %ctaid.x;\n\
         mad.wide.u32 %rd10, %r10, 12, %rd10;mad.wide.u32 %rd11, %r10, 8, %rd11;\n\
         ld.global.u32 %r1, [%rd10];ld.global.u32 %r2, [%rd10+4];ld.global.u32 %r4, [%rd10+8];\n\
         mov.b32 %f1, %r1;mov.b32 %f2, %r2;mov.b32 %f4, %r4;mov.b64 %rd1, {{%r2,%r1}};mov.u32 %r3, 0;\n\
         {code}\n{wide}\nst.global.u64 [%rd11], %rd3;\nret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{code}: {e}"));
    let mut memory = Memory::new();
    let x = input(&mut memory, "x", &bytes32(cases.as_flattened()));
    let d = output(&mut memory, "d", cases.len() as u64 * 8);
    let parameters = Parameters::default().u64(memory.address(x, 0)).u64(memory.address(d, 0)).0;
    let grid = [cases.len() as u32, 1, 1];
    go(&module, &mut memory, "t", grid, [1; 3], &parameters, &Options::default())?;
    let out = words(&memory, d);
    Ok(out.chunks_exact(2).map(|c| u64::from(c[0]) | u64::from(c[1]) << 32).collect())
}

fn check(code: &str, values: &[u32], want: impl Fn(u32, u32, u32) -> u64) {
    let third = [values[0], values[values.len() / 2], values[values.len() - 1]];
    let mut cases = Vec::new();
    for a in values {
        for b in values {
            cases.extend(third.map(|c| [*a, *b, c]));
        }
    }
    let got = run(code, &cases).unwrap_or_else(|e| panic!("{code}: {e}"));
    for ([a, b, c], got) in cases.iter().zip(got) {
        let want = want(*a, *b, *c);
        assert_eq!(got, want, "{code} on {a:#x}, {b:#x}, {c:#x}: {got:#x}, not {want:#x}");
    }
}

fn floats() -> Vec<u32> {
    FLOATS.iter().map(|x| x.to_bits()).collect()
}

fn s(x: u32) -> i64 {
    i64::from(x as i32)
}

fn u(x: u32) -> u64 {
    x.into()
}

/// Names of forms, their code and their results over all pairs of integer edges.
macro_rules! integer_forms {
    ($($name:ident $code:literal = $want:expr;)*) => {$(
        #[test]
        fn $name() {
            check($code, &EDGES, $want);
        }
    )*};
}

integer_forms! {
    add_cc_addc "add.cc.u32 %r5, %r1, %r2; addc.u32 %r3, %r4, 0;"
        = |a, b, c| u64::from(c.wrapping_add(((u(a) + u(b)) >> 32) as u32));
    sub_cc_subc "sub.cc.u32 %r5, %r1, %r2; subc.u32 %r3, %r4, 0;"
        = |a, b, c| u64::from(c.wrapping_sub(u32::from(b > a)));
    mad_lo_cc_madc_hi "mad.lo.cc.u32 %r5, %r1, %r2, %r4; madc.hi.u32 %r6, %r1, %r2, 0; mov.b64 %rd3, {%r5,%r6};"
        = |a, b, c| u(a) * u(b) + u(c);
    mad_hi_s32 "mad.hi.s32 %r3, %r1, %r2, %r4;"
        = |a, b, c| u64::from((((s(a) * s(b)) >> 32) as u32).wrapping_add(c));
    mad_hi_sat_s32 "mad.hi.sat.s32 %r3, %r1, %r2, %r4;"
        = |a, b, c| u64::from((((s(a) * s(b)) >> 32) + s(c)).clamp(i32::MIN.into(), i32::MAX.into()) as u32);
    mad_hi_s16 "cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2; cvt.u16.u32 %h4, %r4; mad.hi.s16 %h3, %h1, %h2, %h4; cvt.u32.u16 %r3, %h3;"
        = |a, b, c| {
            let product = i32::from(a as i16) * i32::from(b as i16);
            u64::from((((product >> 16) as u32).wrapping_add(c)) as u16)
        };
    mad24_hi_u32 "mad24.hi.u32 %r3, %r1, %r2, %r4;"
        = |a, b, c| u64::from((((u(a) & 0xff_ffff) * (u(b) & 0xff_ffff)) >> 16).wrapping_add(u(c)) as u32);
    add_sat_s32 "add.sat.s32 %r3, %r1, %r2;"
        = |a, b, _| u64::from((s(a) + s(b)).clamp(i32::MIN.into(), i32::MAX.into()) as u32);
    min_relu_s32 "min.relu.s32 %r3, %r1, %r2;" = |a, b, _| s(a).min(s(b)).max(0) as u64;
    max_relu_s32 "max.relu.s32 %r3, %r1, %r2;" = |a, b, _| s(a).max(s(b)).max(0) as u64;
    add_u16x2 "add.u16x2 %r3, %r1, %r2;"
        = |a, b, _| u(a.wrapping_add(b) & 0xffff) | u(((a >> 16) + (b >> 16)) & 0xffff) << 16;
    max_s16x2 "max.s16x2 %r3, %r1, %r2;" = |a, b, _| {
        let one = |x: u32, y: u32| u64::from((x as i16).max(y as i16) as u16);
        one(a, b) | one(a >> 16, b >> 16) << 16
    };
    min_u16x2 "min.u16x2 %r3, %r1, %r2;"
        = |a, b, _| u((a & 0xffff).min(b & 0xffff)) | u((a >> 16).min(b >> 16)) << 16;
    dp2a_lo_s32_s32 "dp2a.lo.s32.s32 %r3, %r1, %r2, %r4;" = |a, b, c| {
        let sum = i64::from(a as i16) * i64::from(b as i8)
            + i64::from((a >> 16) as i16) * i64::from((b >> 8) as i8);
        u64::from((sum + s(c)) as u32)
    };
    dp2a_hi_u32_u32 "dp2a.hi.u32.u32 %r3, %r1, %r2, %r4;" = |a, b, c| {
        let sum = u(a & 0xffff) * u(b >> 16 & 0xff) + u(a >> 16) * u(b >> 24);
        u64::from((sum + u(c)) as u32)
    };
    dp4a_s32_u32 "dp4a.s32.u32 %r3, %r1, %r2, %r4;" = |a, b, c| {
        let sum: i64 = (0..4)
            .map(|i| i64::from((a >> (8 * i)) as i8) * i64::from((b >> (8 * i)) as u8))
            .sum();
        u64::from((sum + s(c)) as u32)
    };
    sad_u32 "sad.u32 %r3, %r1, %r2, %r4;"
        = |a, b, c| u64::from((u(a).max(u(b)) - u(a).min(u(b)) + u(c)) as u32);
    bmsk_clamp "bmsk.clamp.b32 %r3, %r1, %r2;"
        = |a, b, _| (0..32).filter(|i| *i >= u(a) && *i < u(a) + u(b)).map(|i| 1 << i).sum();
    bmsk_wrap "bmsk.wrap.b32 %r3, %r1, %r2;" = |a, b, _| {
        let (a, b) = (u(a) % 32, u(b) % 32);
        (0..32).filter(|i| *i >= a && *i < a + b).map(|i| 1 << i).sum()
    };
    szext_clamp_s32 "szext.clamp.s32 %r3, %r1, %r2;" = |a, b, _| match b {
        0 => 0,
        1..=31 => (0..32).map(|i: u32| u(a >> i.min(b - 1) & 1) << i).sum(),
        _ => a.into(),
    };
    szext_wrap_u32 "szext.wrap.u32 %r3, %r1, %r2;" = |a, b, _| u(a) % (1 << (b % 32));
    bfe_s32 "bfe.s32 %r3, %r1, %r2, %r4;" = |a, b, c| {
        let (at, len) = (u(b) & 0xff, u(c) & 0xff);
        let bit = |i: u64| u(a) >> i.min(31) & 1;
        let sign = if len == 0 { 0 } else { bit(at + len - 1) };
        (0..32).map(|i| if i < len && at + i < 32 { bit(at + i) << i } else { sign << i }).sum()
    };
    bfi_b32 "bfi.b32 %r3, %r1, %r2, %r4, 5;" = |a, b, c| {
        let at = u(c) & 0xff;
        (0..32).map(|i| if i >= at && i < at + 5 { u(a) >> (i - at) & 1 } else { u(b) >> i & 1 } << i).sum()
    };
    lop3_or "setp.eq.u32 %p1, %r2, 7; lop3.or.b32 %r5|%p2, %r1, %r2, %r4, 0x80, %p1; selp.u32 %r3, 1, 0, %p2;"
        = |a, b, c| u64::from(a & b & c != 0 || b == 7);
    lop3_and "setp.ne.u32 %p1, %r2, 7; lop3.and.b32 %r3|%p2, %r1, %r2, %r4, 0xfe, %p1; @!%p2 mov.u32 %r3, 5;"
        = |a, b, c| if a | b | c != 0 && b != 7 { u(a | b | c) } else { 5 };
    cvt_pack_sat_s16 "cvt.pack.sat.s16.s32 %r3, %r1, %r2;" = |a, b, _| {
        let cut = |x| s(x).clamp(-0x8000, 0x7fff) as u64 & 0xffff;
        cut(a) << 16 | cut(b)
    };
    cvt_pack_sat_u8 "cvt.pack.sat.u8.s32.b32 %r3, %r1, %r2, %r4;"
        = |a, b, c| u(c) << 16 & 0xffff_0000 | (s(a).clamp(0, 255) << 8 | s(b).clamp(0, 255)) as u64;
    cvt_rz_f64_u64 "cvt.rz.f64.u64 %fd1, %rd1; cvt.rzi.u64.f64 %rd3, %fd1;" = |a, b, _| {
        let x = u(a) << 32 | u(b);
        let lost = 11u32.saturating_sub(x.leading_zeros());
        x >> lost << lost
    };
    fns_first "fns.b32 %r3, %r1, 0, 1;" = |a, _, _| u(if a == 0 { u32::MAX } else { a.trailing_zeros() });
    slct_s32 "slct.b32.s32 %r3, %r1, %r2, %r4;" = |a, b, c| u(if s(c) >= 0 { a } else { b });
    atom_shared_inc "st.shared.u32 [s], %r1; atom.shared.inc.u32 %r5, [s], %r2; ld.shared.u32 %r3, [s];"
        = |a, b, _| u(if a >= b { 0 } else { a + 1 });
    createpolicy "createpolicy.fractional.L2::evict_last.b64 %rd4, 0f3F800000; ld.global.L2::cache_hint.u32 %r3, [%rd10], %rd4;"
        = |a, _, _| a.into();
    clock_rises "mov.u64 %rd4, %clock64; mov.u64 %rd5, %clock64; setp.gt.u64 %p1, %rd5, %rd4; selp.u32 %r3, 1, 0, %p1;"
        = |_, _, _| 1;
    globaltimer_rises "mov.u64 %rd4, %globaltimer; mov.u64 %rd5, %globaltimer; setp.gt.u64 %p1, %rd5, %rd4; selp.u32 %r3, 1, 0, %p1;"
        = |_, _, _| 1;
}

fn f(x: u32) -> f32 {
    f32::from_bits(x)
}

/// The f32 next to an exact f64 value on one side.
fn beside(exact: f64, up: bool) -> f32 {
    let near = exact as f32;
    match (f64::from(near) > exact, f64::from(near) < exact) {
        (true, _) if !up => near.next_down(),
        (_, true) if up => near.next_up(),
        _ => near,
    }
}

fn shown(x: f32) -> u64 {
    if x.is_nan() { 0x7fff_ffff } else { x.to_bits().into() }
}

#[test]
fn mul_rm_f32() {
    check("mul.rm.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", &floats(), |a, b, _| {
        shown(beside(f64::from(f(a)) * f64::from(f(b)), false))
    });
}

#[test]
fn mul_rp_f32() {
    check("mul.rp.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", &floats(), |a, b, _| {
        shown(beside(f64::from(f(a)) * f64::from(f(b)), true))
    });
}

#[test]
fn add_rp_f32() {
    // Sums of these are exact in f64, but for signs of zero and infinities.
    check("add.rp.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", &floats(), |a, b, _| {
        shown(beside(f64::from(f(a)) + f64::from(f(b)), true))
    });
}

#[test]
fn min_xorsign_abs_f32() {
    check("min.xorsign.abs.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;", &floats(), |a, b, _| {
        let smaller = f(a).abs().min(f(b).abs());
        if smaller.is_nan() { 0x7fff_ffff } else { u(smaller.to_bits() | (a ^ b) & 1 << 31) }
    });
}

#[test]
fn max_xorsign_abs_f16() {
    let halves: Vec<u32> = [0, 0x8000, 0x3c00, 0xc000, 0x7c00, 0x0001, 0xfbff].to_vec();
    let code = "cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2; max.xorsign.abs.f16 %h3, %h1, %h2; cvt.u32.u16 %r3, %h3;";
    check(code, &halves, |a, b, _| u((a & 0x7fff).max(b & 0x7fff) | (a ^ b) & 0x8000));
}

#[test]
fn setp_ftz_f16() {
    let halves = [0, 1, 0x3ff, 0x400, 0x8001, 0x3c00];
    let code = "cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2; setp.eq.ftz.f16 %p1, %h1, %h2; selp.u32 %r3, 1, 0, %p1;";
    check(code, &halves, |a, b, _| {
        let zero = |x: u32| x & 0x7c00 == 0;
        u64::from(a == b || zero(a) && zero(b))
    });
}

#[test]
fn testp_subnormal_f64() {
    let code = "mov.b64 %fd1, %rd1; testp.subnormal.f64 %p1, %fd1; selp.u32 %r3, 1, 0, %p1;";
    check(code, &EDGES, |a, b, _| u64::from(a & 0x7ff0_0000 == 0 && (a & 0xf_ffff != 0 || b != 0)));
}

#[test]
fn cvt_rz_tf32() {
    check("cvt.rz.tf32.f32 %r3, %f1;", &floats(), |a, _, _| {
        if f(a).is_nan() { 0x7fff_ffff } else { u(a >> 13 << 13) }
    });
}

#[test]
fn atom_add_f32_keeps_subnormals_in_shared_memory_alone() {
    let shared = "st.shared.u32 [s], %r1; red.shared.add.f32 [s], %f2; ld.shared.u32 %r3, [s];";
    let global =
        "st.global.u32 [%rd11], %r1; red.global.add.f32 [%rd11], %f2; ld.global.u32 %r3, [%rd11];";
    let tiny = [1, 2, 0x7f_ffff];
    check(shared, &tiny, |a, b, _| u(a + b));
    check(global, &tiny, |_, _, _| 0);
}

#[test]
fn whatever_is_missing_says_its_name() {
    for code in [
        "add.sat.u16x2 %r3, %r1, %r2;",
        "vadd4.u32.u32.u32 %r3, %r1, %r2, %r4;",
        "redux.sync.min.abs.f32 %f3, %f1, 1;",
    ] {
        let name = code.split(' ').next().unwrap_or_default();
        match run(code, &[[0; 3]]) {
            Err(Stop::Unsupported { what, .. }) => assert_eq!(what, name),
            other => panic!("{code}: {other:?}"),
        }
    }
}

#[test]
fn the_checked_in_kernels_need_nothing_that_is_missing() {
    let mut seen = 0;
    for folder in ["../ptx", "tests/ptx", "tests/ptx/triton"] {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "ptx") {
                continue;
            }
            let module = Module::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
            for entry in module.entries() {
                let missing: Vec<_> = entry.unsupported().collect();
                assert!(missing.is_empty(), "{}: {missing:?}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen} kernels");
}
