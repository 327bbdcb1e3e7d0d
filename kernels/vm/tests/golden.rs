//! Instructions against what an H200 returned, bit for bit where the machine promises it.

mod support;

use ptx_vm::{Memory, Module, Options};
use safetensors::SafeTensors;
use support::{Parameters, bytes32, go, input, output, products, words};

fn file() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpora/golden/h200.safetensors");
    std::fs::read(path).expect("the golden vectors are in corpora/golden")
}

fn tensor(file: &SafeTensors<'_>, name: &str) -> Vec<u32> {
    let view = file.tensor(name).unwrap();
    let data = view.data();
    match data.len() / view.shape().iter().product::<usize>().max(1) {
        1 => data.iter().map(|b| u32::from(*b)).collect(),
        2 => data.chunks_exact(2).map(|c| u32::from(u16::from_le_bytes([c[0], c[1]]))).collect(),
        4 => data.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect(),
        _ => data.chunks_exact(8).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect(),
    }
}

/// Runs `code` on every (a, b): `%r1` and `%r2` in, `%r3` out; floats as `%f1`, `%f2`, `%f3`.
fn apply(code: &str, a: &[u32], b: &[u32]) -> Vec<u32> {
    let text = format!(
        ".version 8.6\n.target sm_100a\n.address_size 64\n.visible .entry t(.param .u64 a, .param .u64 b, .param .u64 d, .param .u32 n)\n{{\n\
         .reg .pred %p<4>;.reg .b16 %h<4>;.reg .f32 %f<9>;.reg .b32 %r<20>;.reg .b64 %rd<20>;\n\
         mov.u32 %r10, %ctaid.x;mov.u32 %r11, %ntid.x;mov.u32 %r12, %tid.x;mad.lo.s32 %r13, %r10, %r11, %r12;\n\
         ld.param.u32 %r14, [n];setp.ge.u32 %p1, %r13, %r14;@%p1 ret;\n\
         ld.param.u64 %rd1, [a];ld.param.u64 %rd2, [b];ld.param.u64 %rd3, [d];mul.wide.u32 %rd4, %r13, 4;\n\
         add.u64 %rd5, %rd1, %rd4;add.u64 %rd6, %rd2, %rd4;add.u64 %rd7, %rd3, %rd4;\n\
         ld.global.u32 %r1, [%rd5];ld.global.u32 %r2, [%rd6];mov.b32 %f1, %r1;mov.b32 %f2, %r2;mov.u32 %r3, 0;\n\
         {code}\nst.global.u32 [%rd7], %r3;\nret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{code}: {e}"));
    let mut memory = Memory::new();
    let x = input(&mut memory, "a", &bytes32(a));
    let y = input(&mut memory, "b", &bytes32(b));
    let d = output(&mut memory, "d", a.len() as u64 * 4);
    let parameters = Parameters::default()
        .u64(memory.address(x, 0))
        .u64(memory.address(y, 0))
        .u64(memory.address(d, 0))
        .u32(a.len() as u32);
    let grid = [a.len().div_ceil(128) as u32, 1, 1];
    go(&module, &mut memory, "t", grid, [128, 1, 1], &parameters.0, &Options::default())
        .unwrap_or_else(|e| panic!("{code}: {e}"));
    words(&memory, d)
}

/// Elements of `want` that `got` misses by more than `ulps` units in the last place.
fn misses(name: &str, x: &[u32], got: &[u32], want: &[u32], ulps: u32) -> usize {
    let key = |bits: u32| if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    let close = |a: u32, b: u32| a == b || ulps > 0 && key(a).abs_diff(key(b)) <= ulps;
    assert_eq!(got.len(), want.len());
    let wrong: Vec<usize> = (0..want.len()).filter(|i| !close(got[*i], want[*i])).collect();
    for i in wrong.iter().take(4) {
        eprintln!("{name}: x {:#010x} got {:#x} want {:#x}", x[*i], got[*i], want[*i]);
    }
    if !wrong.is_empty() {
        eprintln!("{name}: {} of {} differ", wrong.len(), want.len());
    }
    wrong.len()
}

/// Checks `(tensor, code, ulps)` rows against `family.x` (or a and b).
fn check(family: &str, a: &str, b: &str, rows: &[(&str, &str, u32)]) {
    let bytes = file();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let a = tensor(&file, &format!("{family}.{a}"));
    let b = tensor(&file, &format!("{family}.{b}"));
    let mut wrong = 0;
    for (name, code, ulps) in rows {
        let want = tensor(&file, &format!("{family}.{name}"));
        wrong += misses(name, &a, &apply(code, &a, &b), &want, *ulps);
    }
    assert_eq!(wrong, 0);
}

fn to_bits(code: &str) -> String {
    format!("{code} mov.b32 %r3, %f3;")
}

#[test]
fn unary_operations() {
    let f = |name: &str| to_bits(&format!("{name} %f3, %f1;"));
    let exact = [
        ("ex2_approx", f("ex2.approx.f32")),
        ("ex2_approx_ftz", f("ex2.approx.ftz.f32")),
        ("rcp_approx", f("rcp.approx.f32")),
        ("rcp_approx_ftz", f("rcp.approx.ftz.f32")),
        ("rsqrt_approx", f("rsqrt.approx.f32")),
        ("rcp_rn", f("rcp.rn.f32")),
        ("sqrt_rn", f("sqrt.rn.f32")),
        ("to_f16", "cvt.rn.f16.f32 %h1, %f1; cvt.u32.u16 %r3, %h1;".to_owned()),
        ("to_bf16", "cvt.rn.bf16.f32 %h1, %f1; cvt.u32.u16 %r3, %h1;".to_owned()),
        ("to_s32_rzi", "cvt.rzi.s32.f32 %r3, %f1;".to_owned()),
        ("to_s32_rni", "cvt.rni.s32.f32 %r3, %f1;".to_owned()),
        ("to_u32_rzi", "cvt.rzi.u32.f32 %r3, %f1;".to_owned()),
    ];
    let rows: Vec<_> = exact.iter().map(|(n, c)| (*n, c.as_str(), 0)).collect();
    check("unary", "x", "x", &rows);
}

#[test]
fn square_root_is_within_its_documented_bound() {
    let code = to_bits("sqrt.approx.f32 %f3, %f1;");
    check("unary", "x", "x", &[("sqrt_approx", &code, 2)]);
}

#[test]
fn binary_operations() {
    let f = |name: &str| to_bits(&format!("{name} %f3, %f1, %f2;"));
    let exact = [
        ("add_f32", f("add.f32")),
        ("add_ftz", f("add.ftz.f32")),
        ("add_sat", f("add.sat.f32")),
        ("mul_f32", f("mul.f32")),
        ("div_rn", f("div.rn.f32")),
        ("min_f32", f("min.f32")),
        ("max_f32", f("max.f32")),
        ("min_nan", f("min.NaN.f32")),
        ("max_nan", f("max.NaN.f32")),
    ];
    let rows: Vec<_> = exact.iter().map(|(n, c)| (*n, c.as_str(), 0)).collect();
    check("binary", "a", "b", &rows);
}

#[test]
fn narrow_floats_decode() {
    let bytes = file();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let codes: Vec<u32> = (0..256).collect();
    for format in ["e4m3", "e5m2"] {
        let code = format!(
            "cvt.u16.u32 %h1, %r1; cvt.rn.f16x2.{format}x2 %r4, %h1; mov.b32 {{%h2,%h3}}, %r4;\n\
             cvt.f32.f16 %f3, %h2; mov.b32 %r3, %f3;"
        );
        let want = tensor(&file, &format!("decode.{format}"));
        assert_eq!(misses(format, &codes, &apply(&code, &codes, &codes), &want, 0), 0);
    }
}

#[test]
fn narrow_floats_encode() {
    let one = |ty: &str, mode: &str| {
        format!(
            "cvt.{mode}.satfinite.{ty}x2.f32 %h1, %f1, %f1; cvt.u32.u16 %r3, %h1; and.b32 %r3, %r3, 255;"
        )
    };
    let rows = [
        ("to_e4m3_sat", one("e4m3", "rn")),
        ("to_e5m2_sat", one("e5m2", "rn")),
        ("to_e8m0_zero", one("ue8m0", "rz")),
        ("to_e8m0_posinf", one("ue8m0", "rp")),
        (
            "to_e4m3x2_ptx",
            "neg.f32 %f2, %f1; cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2; cvt.u32.u16 %r3, %h1;"
                .to_owned(),
        ),
    ];
    let rows: Vec<_> = rows.iter().map(|(n, c)| (*n, c.as_str(), 0)).collect();
    check("encode", "x", "x", &rows);
}

/// The file's fragments, one product a block, against the file's results.
fn product(family: &str, form: &str, per_lane: [usize; 3]) {
    let bytes = file();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let get = |part: &str| tensor(&file, &format!("mma_{family}.{part}"));
    let (a, b, c, d) = (get("a"), get("b"), get("c"), get("d"));
    let got = products(form, per_lane, [&a, &b, &c]).unwrap_or_else(|e| panic!("{form}: {e}"));
    assert_eq!(misses(family, &d, &got, &d, 0), 0, "{form}");
}

#[test]
fn tensor_core_sums() {
    product("bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", [4, 2, 4]);
    product("f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", [4, 2, 4]);
}

#[test]
fn tensor_core_sums_of_tf32() {
    product("tf32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", [4, 2, 4]);
}

#[test]
fn tensor_core_sums_of_fp8() {
    product("e4m3", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", [4, 2, 4]);
    product("e5m2", "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32", [4, 2, 4]);
}

#[test]
fn tensor_core_sums_of_bytes() {
    product("s8", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", [4, 2, 4]);
}

#[test]
fn tensor_core_sums_in_f16() {
    product("f16_f16acc", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", [4, 2, 2]);
}

#[test]
fn approximate_quotients() {
    let f = |name: &str| to_bits(&format!("{name} %f3, %f1, %f2;"));
    let rows = [("div_approx", f("div.approx.f32")), ("div_full", f("div.full.f32"))];
    let rows: Vec<_> = rows.iter().map(|(n, c)| (*n, c.as_str(), 0)).collect();
    check("binary", "a", "b", &rows);
}
