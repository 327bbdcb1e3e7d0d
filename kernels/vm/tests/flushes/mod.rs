//! Results about the least normal number against an H200, with `.ftz` in every rounding and without:
//! whether such a result is judged before rounding or after is what `hardware/flush.py` measured
//! (`corpora/golden/flush_h200.safetensors`).

#![allow(dead_code)]

use crate::support::drawn::mixed;
use crate::support::{Parameters, go, input, output, words};
use ptx_vm::{Memory, Module, Options};
use safetensors::SafeTensors;
use std::fmt::Write;

pub const CASES: usize = 512;
const MODES: [&str; 4] = ["rn", "rz", "rm", "rp"];

/// How operands are drawn.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Product,
    Sum,
    Quotient,
    Reciprocal,
    Narrowed,
}

/// A float format: name, register, bits, precision, exponent bits.
type Format = (&'static str, &'static str, u32, u32, u32);
const F16: Format = ("f16", "%h", 16, 11, 5);
const F32: Format = ("f32", "%s", 32, 24, 8);
const F64: Format = ("f64", "%l", 64, 53, 11);

pub struct Form {
    pub instruction: String,
    kind: Kind,
    format: Format,
    count: usize,
}

/// In the order of `flush.py`.
pub fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    let mut push = |instruction: &str, kind, format, count| {
        let modes: &[&str] = if instruction.contains('{') { &MODES } else { &["rn"] };
        for mode in modes {
            let instruction = instruction.replace("{}", mode);
            forms.push(Form { instruction, kind, format, count });
        }
    };
    push("mul.{}.ftz.f32", Kind::Product, F32, 2);
    push("fma.{}.ftz.f32", Kind::Product, F32, 3);
    push("add.{}.ftz.f32", Kind::Sum, F32, 2);
    push("sub.{}.ftz.f32", Kind::Sum, F32, 2);
    push("div.{}.ftz.f32", Kind::Quotient, F32, 2);
    push("rcp.{}.ftz.f32", Kind::Reciprocal, F32, 1);
    push("cvt.{}.ftz.f32.f64", Kind::Narrowed, F64, 1);
    push("div.approx.ftz.f32", Kind::Quotient, F32, 2);
    push("div.full.ftz.f32", Kind::Quotient, F32, 2);
    push("mul.rn.ftz.sat.f32", Kind::Product, F32, 2);
    push("fma.rp.ftz.sat.f32", Kind::Product, F32, 3);
    push("mul.rn.ftz.f16", Kind::Product, F16, 2);
    push("fma.rn.ftz.f16", Kind::Product, F16, 3);
    push("add.rn.ftz.f16", Kind::Sum, F16, 2);
    push("sub.rn.ftz.f16", Kind::Sum, F16, 2);
    push("mul.{}.f32", Kind::Product, F32, 2);
    push("fma.{}.f32", Kind::Product, F32, 3);
    push("mul.rn.f16", Kind::Product, F16, 2);
    push("fma.rn.f16", Kind::Product, F16, 3);
    push("mul.{}.f64", Kind::Product, F64, 2);
    push("fma.{}.f64", Kind::Product, F64, 3);
    forms
}

/// A number's bits by sign, exponent and whole mantissa.
struct Maker {
    precision: u32,
    exponent_bits: u32,
    most: i64,
}

impl Maker {
    fn bits(&self, negative: u64, exponent: i64, mantissa: u64) -> u64 {
        let one = 1u64 << (self.precision - 1);
        let field = if mantissa >= one { (exponent + self.most) as u64 } else { 0 };
        let sign = (negative & 1) << (self.precision - 1 + self.exponent_bits);
        sign | field << (self.precision - 1) | (mantissa % one)
    }
}

fn operands(number: usize, form: &Form, case: usize) -> [u64; 3] {
    let (_, _, _, precision, exponent_bits) = form.format;
    let most = (1i64 << (exponent_bits - 1)) - 1;
    let (least, one) = (1 - most, 1u64 << (precision - 1));
    let make = Maker { precision, exponent_bits, most };
    let r: [u64; 8] = std::array::from_fn(|part| mixed((number << 32 | case << 8 | part) as u64));
    let rest = |x: u64, n: i64| (x % n as u64) as i64;
    let any = |x: u64| one + x % one;
    let inside = |n: i128| n.clamp(one.into(), (2 * one - 1).into()) as u64;
    let m = any(r[0]);
    match form.kind {
        Kind::Product => {
            let third = if form.count == 3 { case / 4 % 4 } else { 0 };
            // Products about the least number, or far below it beside a c that is the least.
            let far = if third == 2 { i64::from(precision) + rest(r[1], 3) } else { 0 };
            let near = (1u128 << (2 * precision - 1)) / u128::from(m);
            let spread = [3, 1, 9, 1][case % 4];
            let n = match case % 2 {
                0 => inside(near as i128 + i128::from(rest(r[2], spread) - spread / 2)),
                _ => any(r[2]),
            };
            let wide = case % 4 == 1 && third != 2;
            let total = least - 1 - far + if wide { rest(r[3], 3) - 1 } else { 0 };
            let e = least + rest(r[4], total - 2 * least + 1);
            let c = match third {
                0 => make.bits(r[5], least, 0),
                1 => make.bits(r[5], least, r[6] % one),
                2 => make.bits(r[5], least, one + r[6] % 2),
                _ => make.bits(r[5], least + rest(r[6], 3), any(r[7])),
            };
            [make.bits(r[0] >> 63, e, m), make.bits(r[2] >> 63, total - e, n), c]
        }
        Kind::Sum => {
            let b = make.bits(r[3], least + rest(r[4], 3), any(r[5]));
            [make.bits(r[1], least + rest(r[2], 3), m), b, 0]
        }
        Kind::Quotient => {
            let near = i128::from(m) + i128::from(rest(r[1], 9) - 4);
            let n = if case.is_multiple_of(2) { inside(near) } else { any(r[1]) };
            let total = least + rest(r[2], 3) - 1;
            let e = least + rest(r[3], most + total - least);
            [make.bits(r[4], e, m), make.bits(r[5], e - total, n), 0]
        }
        Kind::Reciprocal => {
            let n = if case.is_multiple_of(2) { one + r[1] % 4 } else { m };
            [make.bits(r[2], most - rest(r[3], 3), n), 0, 0]
        }
        Kind::Narrowed => {
            // A double about the least f32.
            let low = (r[1] >> (r[2] % 50)) % one;
            let odd = case % 2;
            let m = [one + low, 2 * one - 1 - low][odd];
            let e = -126 - odd as i64 - i64::from((case / 2).is_multiple_of(8));
            [make.bits(r[3], e, m), 0, 0]
        }
    }
}

fn ptx(form: &Form) -> String {
    let (name, register, bits, ..) = form.format;
    let narrowed = form.kind == Kind::Narrowed;
    let (to, to_bits) = if narrowed { ("%s", 32) } else { (register, bits) };
    let list: Vec<String> = (0..form.count).map(|i| format!("{register}{i}")).collect();
    let mut text = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry flush(.param .u64 x, .param .u64 d)\n{{\n\
         .reg .b16 %h<4>;.reg .b32 %s<4>, %t<4>;.reg .b64 %l<4>, %x, %d;// {name}\n\
         ld.param.u64 %x, [x];ld.param.u64 %d, [d];mov.u32 %t0, %ctaid.x;mov.u32 %t1, %tid.x;\n\
         mad.lo.u32 %t2, %t0, 32, %t1;mad.wide.u32 %x, %t2, 24, %x;mad.wide.u32 %d, %t2, 8, %d;\n"
    );
    for (i, operand) in list.iter().enumerate() {
        let _ = writeln!(text, "ld.global.b{bits} {operand}, [%x+{}];", 8 * i);
    }
    let _ = writeln!(text, "{} {to}3, {};", form.instruction, list.join(", "));
    text + &format!("st.global.b{to_bits} [%d], {to}3;\nret;\n}}\n")
}

fn run(form: &Form, operands: &[[u64; 3]]) -> Vec<u64> {
    let module = Module::parse(&ptx(form)).unwrap_or_else(|e| panic!("{}: {e}", form.instruction));
    let mut memory = Memory::new();
    let bytes: Vec<u8> = operands.as_flattened().iter().flat_map(|x| x.to_le_bytes()).collect();
    let x = input(&mut memory, "x", &bytes);
    let d = output(&mut memory, "d", 8 * CASES as u64);
    memory.write(d, 0, &[0; 8 * CASES]);
    let parameters = Parameters::default().u64(memory.address(x, 0)).u64(memory.address(d, 0)).0;
    let grid = [(CASES / 32) as u32, 1, 1];
    go(&module, &mut memory, "flush", grid, [32, 1, 1], &parameters, &Options::default())
        .unwrap_or_else(|stop| panic!("{}: {stop}", form.instruction));
    let all = words(&memory, d);
    all.as_chunks::<2>().0.iter().map(|[a, b]| u64::from(*a) | u64::from(*b) << 32).collect()
}

/// What differs from the hardware, form by form, in the order of [`forms`].
pub fn compared() -> Vec<(Form, Vec<String>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpora/golden/flush_h200.safetensors");
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let golden = SafeTensors::deserialize(&file).expect("a safetensors file");
    let forms = forms();
    assert_eq!(golden.names().len(), forms.len());
    let all = forms.into_iter().enumerate();
    all.map(|(number, form)| {
        let wrong = differences(number, &form, &golden);
        (form, wrong)
    })
    .collect()
}

fn differences(number: usize, form: &Form, golden: &SafeTensors<'_>) -> Vec<String> {
    let stored = golden.tensor(&form.instruction).expect("stored");
    let data = stored.data();
    let want: Vec<u64> = if data.len() == 8 * CASES {
        data.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect()
    } else {
        data.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b).into()).collect()
    };
    let operands: Vec<[u64; 3]> = (0..CASES).map(|c| operands(number, form, c)).collect();
    let got = run(form, &operands);
    let wrong = (0..CASES).filter(|i| got[*i] != want[*i]);
    wrong
        .map(|i| {
            format!(
                "{}: {:x?}: machine {:x}, H200 {:x}",
                form.instruction, operands[i], got[i], want[i]
            )
        })
        .collect()
}
