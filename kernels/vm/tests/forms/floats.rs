//! Float forms, by `ieee`.

use super::ieee::{BF16, F16, F32, F64, Format, MODES, Mode, Value};
use super::integers::{EDGES, LONG_EDGES};
use super::{Form, Operands, long_pairs, longs, pairs};

const FLOATS: [u32; 22] = [
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3dcc_cccd,
    0xc020_0000,
    0x4040_0000,
    0x3f80_0001,
    0x4b80_0001,
    0xbeaa_aaab,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x0000_0001,
    0x807f_ffff,
    0x0080_0000,
    0x0080_0001,
    0x3f00_0000,
    0x3fff_ffff,
    0x2000_0003,
];
const DOUBLES: [u64; 20] = [
    0,
    1 << 63,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0001,
    0x3fb9_9999_9999_999a,
    0x7fef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    1,
    0x800f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x4340_0000_0000_0001,
    0x3ca0_0000_0000_0000,
    0xc008_0000_0000_0000,
    0x47ef_ffff_f000_0001,
    0x3810_0000_1000_0000,
    0x36a0_0000_0000_0000,
    0x40ef_fdff_ffff_ffff,
    0x3fff_ffff_ffff_ffff,
];
const HALVES: [u32; 18] = [
    0, 0x8000, 0x3c00, 0xbc00, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00,
    0x3555, 0x5640, 0x3c01, 0xc200, 0x1400, 0x6800,
];
const BRAINS: [u32; 18] = [
    0, 0x8000, 0x3f80, 0xbf80, 0x0001, 0x807f, 0x0080, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0,
    0x3eab, 0x42c8, 0x3f81, 0xc040, 0x3300, 0x4b00,
];

/// A float type: its operands' registers and where its result goes.
#[derive(Clone, Copy)]
struct Type {
    name: &'static str,
    format: Format,
}

const TYPES: [Type; 4] = [
    Type { name: "f32", format: F32 },
    Type { name: "f64", format: F64 },
    Type { name: "f16", format: F16 },
    Type { name: "bf16", format: BF16 },
];

impl Type {
    fn cases(self) -> Vec<Operands> {
        match self.name {
            "f32" => pairs(&FLOATS),
            "f64" => long_pairs(&DOUBLES),
            "f16" => pairs(&HALVES),
            _ => pairs(&BRAINS),
        }
    }

    fn operands(self, x: Operands) -> [u64; 3] {
        if self.format == F64 { longs(x) } else { [x[0], x[1], x[2]].map(u64::from) }
    }

    fn list(self, count: usize) -> String {
        let prefix = match self.name {
            "f32" => "%f",
            "f64" => "%fd",
            _ => "%h",
        };
        [1, 2, 4][..count].iter().map(|n| format!("{prefix}{n}")).collect::<Vec<_>>().join(", ")
    }

    /// A form with this result.
    fn result(
        self,
        name: &str,
        sources: &str,
        cases: &[Operands],
        f: impl Fn(Operands) -> u64 + 'static,
    ) -> Form {
        let code = match self.name {
            "f32" => format!("{name} %f3, {sources};mov.b32 %r3, %f3;"),
            "f64" => format!("{name} %fd3, {sources};mov.b64 %rd3, %fd3;"),
            _ => format!("{name} %h3, {sources};cvt.u32.u16 %r3, %h3;"),
        };
        Form::each(name, code, cases, f)
    }

    fn form(self, name: &str, count: usize, f: impl Fn([u64; 3]) -> u64 + 'static) -> Form {
        self.result(name, &self.list(count), &self.cases(), move |x| f(self.operands(x)))
    }
}

/// What `.ftz` and `.sat` do around an operation.
#[derive(Clone, Copy)]
struct Around {
    flush: bool,
    saturate: bool,
}

impl Around {
    const ALL: [(Around, &'static str); 4] = [
        (Around { flush: false, saturate: false }, ""),
        (Around { flush: true, saturate: false }, ".ftz"),
        (Around { flush: false, saturate: true }, ".sat"),
        (Around { flush: true, saturate: true }, ".ftz.sat"),
    ];

    /// `f` rounds as the mode says; `early`: what is flushed is judged before rounding.
    fn apply(
        self,
        format: Format,
        bits: [u64; 3],
        early: bool,
        mode: Mode,
        f: impl Fn([Value; 3], Mode) -> u64,
    ) -> u64 {
        let bits = if self.flush { bits.map(|x| format.flushed(x)) } else { bits };
        let values = bits.map(|x| format.value(x));
        let mut out = f(values.clone(), mode);
        if self.flush {
            // Cut off, a number below the least normal one is still below it.
            let cut = if early { f(values, Mode::Zero) } else { out };
            out =
                if format.flushed(cut) == cut { format.flushed(out) } else { format.flushed(cut) };
        }
        if self.saturate { format.saturated(out) } else { out }
    }
}

type Exact = fn(Format, &[Value; 3], Mode) -> u64;

fn negated(x: &Value) -> Value {
    match *x {
        Value::Nan => Value::Nan,
        Value::Infinite(s) => Value::Infinite(!s),
        Value::Finite(s, n, e) => Value::Finite(!s, n, e),
    }
}

const BASIC: [(&str, usize, Exact); 4] = [
    ("add", 2, |f, [a, b, _], mode| f.sum(a, b, mode)),
    ("sub", 2, |f, [a, b, _], mode| f.sum(a, &negated(b), mode)),
    ("mul", 2, |f, [a, b, _], mode| f.product(a, b, mode)),
    ("fma", 3, |f, [a, b, c], mode| f.fused(a, b, c, mode)),
];
const DIVIDING: [(&str, usize, Exact); 3] = [
    ("div", 2, |f, [a, b, _], mode| f.quotient(a, b, mode)),
    ("rcp", 1, |f, [a, ..], mode| f.quotient(&Value::Finite(false, 1, 0), a, mode)),
    ("sqrt", 1, |f, [a, ..], mode| f.root(a, mode)),
];

fn arithmetic(out: &mut Vec<Form>) {
    for t in TYPES {
        let format = t.format;
        for (op, count, f) in BASIC.into_iter().chain(DIVIDING) {
            let dividing = matches!(op, "div" | "rcp" | "sqrt");
            for (mode, mode_name) in MODES {
                for (around, suffix) in Around::ALL {
                    let offered = match t.name {
                        "f32" => !dividing || !around.saturate,
                        "f64" => suffix.is_empty(),
                        "f16" => !dividing && mode == Mode::Nearest,
                        _ => !dividing && mode == Mode::Nearest && suffix.is_empty(),
                    };
                    if !offered {
                        continue;
                    }
                    let name = format!("{op}.{mode_name}{suffix}.{}", t.name);
                    out.push(t.form(&name, count, move |bits| {
                        let out = around
                            .apply(format, bits, dividing, mode, |x, mode| f(format, &x, mode));
                        let none = matches!(format.value(out), Value::Nan);
                        if none && format == F64 { Format::no_double(&bits[..count]) } else { out }
                    }));
                }
            }
        }
        for (op, larger) in [("min", false), ("max", true)] {
            for (suffix, strict, flush) in
                [("", false, false), (".NaN", true, false), (".ftz", false, true)]
            {
                let offered = match t.name {
                    "f64" => suffix.is_empty(),
                    "bf16" => !flush,
                    _ => true,
                };
                if !offered {
                    continue;
                }
                out.push(t.form(&format!("{op}{suffix}.{}", t.name), 2, move |[a, b, _]| {
                    let [a, b] = if flush { [a, b].map(|x| format.flushed(x)) } else { [a, b] };
                    format.extreme(a, b, larger, strict)
                }));
            }
        }
        let not_nan: Vec<Operands> = t
            .cases()
            .into_iter()
            .filter(|x| !matches!(format.value(t.operands(*x)[0]), Value::Nan))
            .collect();
        let sign = 1u64 << (format.bits() - 1);
        let name = format!("neg.{}", t.name);
        out.push(t.result(&name, &t.list(1), &not_nan, move |x| t.operands(x)[0] ^ sign));
        let name = format!("abs.{}", t.name);
        out.push(t.result(&name, &t.list(1), &not_nan, move |x| t.operands(x)[0] & !sign));
    }
    out.push(TYPES[0].form("copysign.f32", 2, |[a, b, _]| b & 0x7fff_ffff | a & 0x8000_0000));
    // Two halves in one register, each for itself.
    for (name, format, edges) in [("f16x2", F16, HALVES), ("bf16x2", BF16, BRAINS)] {
        let cases: Vec<Operands> = pairs(&edges)
            .into_iter()
            .map(|[a, b, c, d]| [a | d << 16, b | c << 16, c | b << 16, 0])
            .collect();
        for (op, count, f) in BASIC {
            let form = format!("{op}.rn.{name}");
            let list = ["%r1", "%r2", "%r4"][..count].join(", ");
            out.push(Form::each(
                &*form,
                format!("{form} %r3, {list};"),
                &cases,
                move |[a, b, c, _]| {
                    let half = |by: u32| {
                        let x = [a, b, c].map(|x| format.value((x >> by & 0xffff).into()));
                        f(format, &x, Mode::Nearest)
                    };
                    half(0) | half(16) << 16
                },
            ));
        }
    }
    for (name, format, t) in
        [("fma.rn.relu.f16", F16, TYPES[2]), ("fma.rn.relu.bf16", BF16, TYPES[3])]
    {
        out.push(t.form(name, 3, move |bits| {
            let [a, b, c] = bits.map(|x| format.value(x));
            let sum = format.fused(&a, &b, &c, Mode::Nearest);
            match format.value(sum) {
                Value::Nan => sum,
                _ if sum >> 15 == 1 => 0,
                _ => sum,
            }
        }));
    }
}

fn comparisons(out: &mut Vec<Form>) {
    type Test = fn(Option<std::cmp::Ordering>) -> bool;
    let tests: [(&str, Test); 14] = [
        ("eq", |o| o.is_some_and(|o| o.is_eq())),
        ("ne", |o| o.is_some_and(|o| o.is_ne())),
        ("lt", |o| o.is_some_and(|o| o.is_lt())),
        ("le", |o| o.is_some_and(|o| o.is_le())),
        ("gt", |o| o.is_some_and(|o| o.is_gt())),
        ("ge", |o| o.is_some_and(|o| o.is_ge())),
        ("equ", |o| o.is_none_or(|o| o.is_eq())),
        ("neu", |o| o.is_none_or(|o| o.is_ne())),
        ("ltu", |o| o.is_none_or(|o| o.is_lt())),
        ("leu", |o| o.is_none_or(|o| o.is_le())),
        ("gtu", |o| o.is_none_or(|o| o.is_gt())),
        ("geu", |o| o.is_none_or(|o| o.is_ge())),
        ("num", |o| o.is_some()),
        ("nan", |o| o.is_none()),
    ];
    for t in TYPES {
        for (op, test) in tests {
            let name = format!("setp.{op}.{}", t.name);
            let code = format!("{name} %p1, {};selp.u32 %r3, 1, 0, %p1;", t.list(2));
            out.push(Form::each(name, code, &t.cases(), move |x| {
                let [a, b, _] = t.operands(x);
                let real = |bits: u64| {
                    f64::from_bits(match t.format.value(bits) {
                        Value::Nan => F64.nan(),
                        value => F64.of(&value, Mode::Nearest),
                    })
                };
                test(real(a).partial_cmp(&real(b))).into()
            }));
        }
    }
}

fn to_integers(out: &mut Vec<Form>) {
    for t in TYPES {
        for (mode, name) in MODES {
            for (to, bits, signed) in [
                ("s32", 32u32, true),
                ("u32", 32, false),
                ("s64", 64, true),
                ("u64", 64, false),
                ("s16", 16, true),
                ("u16", 16, false),
            ] {
                let form = format!("cvt.{name}i.{to}.{}", t.name);
                let code = match bits {
                    16 => format!("{form} %h3, {};cvt.u32.u16 %r3, %h3;", t.list(1)),
                    32 => format!("{form} %r3, {};", t.list(1)),
                    _ => format!("{form} %rd3, {};", t.list(1)),
                };
                // What becomes of no number depends on both types; the hardware's is in `golden`.
                let cases: Vec<Operands> = t
                    .cases()
                    .into_iter()
                    .filter(|x| !matches!(t.format.value(t.operands(*x)[0]), Value::Nan))
                    .collect();
                out.push(Form::each(form, code, &cases, move |x| {
                    let whole = t.format.whole(t.operands(x)[0], mode, signed, bits);
                    (whole as u128 & (u128::MAX >> (128 - bits))) as u64
                }));
            }
        }
    }
}

fn from_integers(out: &mut Vec<Form>) {
    for t in TYPES {
        for (mode, mode_name) in MODES {
            for (from, bits, signed) in
                [("s32", 32u32, true), ("u32", 32, false), ("s64", 64, true), ("u64", 64, false)]
            {
                if t.format.bits() == 16 && mode != Mode::Nearest {
                    continue;
                }
                let source = if bits == 64 { "%rd1" } else { "%r1" };
                let cases = if bits == 64 { long_pairs(&LONG_EDGES) } else { pairs(&EDGES) };
                let name = format!("cvt.{mode_name}.{}.{from}", t.name);
                out.push(t.result(&name, source, &cases, move |x| {
                    let raw = if bits == 64 { longs(x)[0] } else { x[0].into() };
                    let value = match (bits, signed) {
                        (64, true) => i128::from(raw as i64),
                        (_, true) => i128::from(raw as i32),
                        _ => i128::from(raw),
                    };
                    t.format.of_integer(value, mode)
                }));
            }
        }
    }
}

fn between_floats(out: &mut Vec<Form>) {
    for from in TYPES {
        for to in TYPES {
            if from.name == to.name || from.format.bits() == 16 && to.format.bits() == 16 {
                continue;
            }
            let widens = from.format.bits() < to.format.bits();
            for (mode, mode_name) in MODES {
                let offered = if widens {
                    mode == Mode::Nearest
                } else if to.name == "bf16" || to.name == "f16" {
                    mode == Mode::Nearest || mode == Mode::Zero && from.name == "f32"
                } else {
                    true
                };
                // From and to bf16 there are no doubles before sm_90.
                if !offered {
                    continue;
                }
                let rounding = if widens { String::new() } else { format!("{mode_name}.") };
                let name = format!("cvt.{rounding}{}.{}", to.name, from.name);
                out.push(to.result(&name, &from.list(1), &from.cases(), move |x| {
                    let bits = from.operands(x)[0];
                    match from.format.value(bits) {
                        // Others are the one of the format.
                        Value::Nan
                            if from.format == F64 || (from.name, to.name) == ("bf16", "f32") =>
                        {
                            from.format.carried(bits, to.format)
                        }
                        value => to.format.of(&value, mode),
                    }
                }));
            }
        }
    }
    for (name, format) in
        [("cvt.rn.f16x2.f32", F16), ("cvt.rn.bf16x2.f32", BF16), ("cvt.rz.bf16x2.f32", BF16)]
    {
        let mode = if name.contains(".rz.") { Mode::Zero } else { Mode::Nearest };
        out.push(Form::each(
            name,
            format!("{name} %r3, %f1, %f2;"),
            &pairs(&FLOATS),
            move |[a, b, ..]| {
                let half = |x: u32| format.of(&F32.value(x.into()), mode);
                half(b) | half(a) << 16
            },
        ));
    }
    for (mode, mode_name) in MODES {
        let name = format!("cvt.{mode_name}i.f32.f32");
        out.push(TYPES[0].form(&name, 1, move |[a, ..]| match F32.value(a) {
            Value::Finite(_, _, exponent) if exponent >= 0 => a,
            Value::Finite(negative, ..) => {
                let whole = F32.whole(a, mode, true, 127);
                let magnitude = F32.of_integer(whole.abs(), Mode::Nearest);
                magnitude | u64::from(negative) << 31
            }
            value => F32.of(&value, mode),
        }));
    }
}

fn atomics(out: &mut Vec<Form>) {
    for (name, ty) in [("atom.shared.add.f32", TYPES[0]), ("atom.shared.add.f64", TYPES[1])] {
        let (a, b, size) = if ty.name == "f64" { ("%rd1", "%fd2", 64) } else { ("%r1", "%f2", 32) };
        let d = if size == 64 { "%rd3" } else { "%r3" };
        let old = if size == 64 { "%fd3" } else { "%f3" };
        let code = format!(
            "st.shared.b{size} [%r15], {a};{name} {old}, [%r15], {b};ld.shared.b{size} {d}, [%r15];"
        );
        out.push(Form::each(name, code, &ty.cases(), move |x| {
            let bits = ty.operands(x);
            let [a, b, _] = bits.map(|x| ty.format.value(x));
            let sum = ty.format.sum(&a, &b, Mode::Nearest);
            let none = matches!(ty.format.value(sum), Value::Nan);
            if none && ty.format == F64 { Format::no_double(&bits[..2]) } else { sum }
        }));
    }
    for (name, format, edges) in [("f16", F16, HALVES), ("bf16", BF16, BRAINS)] {
        let single = format!("atom.global.add.noftz.{name}");
        let code = format!(
            "st.global.u32 [%rd11], %r1;{single} %h3, [%rd11], %h2;ld.global.u32 %r3, [%rd11];"
        );
        out.push(Form::each(single, code, &pairs(&edges), move |[a, b, ..]| {
            let [a, b] = [a, b].map(|x| format.value(x.into()));
            format.sum(&a, &b, Mode::Nearest)
        }));
        let pair = format!("atom.global.add.noftz.{name}x2");
        let code = format!(
            "st.global.u32 [%rd11], %r1;{pair} %r5, [%rd11], %r2;ld.global.u32 %r3, [%rd11];"
        );
        let cases: Vec<Operands> = pairs(&edges)
            .into_iter()
            .map(|[a, b, c, d]| [a | c << 16, b | d << 16, 0, 0])
            .collect();
        out.push(Form::each(pair, code, &cases, move |[a, b, ..]| {
            let half = |by: u32| {
                let [a, b] = [a, b].map(|x| format.value((x >> by & 0xffff).into()));
                format.sum(&a, &b, Mode::Nearest)
            };
            half(0) | half(16) << 16
        }));
    }
    let code = "st.global.u64 [%rd11], %rd1;atom.global.v2.f32.add {%f5,%f6}, [%rd11], {%f4,%f2};ld.global.u64 %rd3, [%rd11];";
    let code = code.replace("v2.f32.add", "add.v2.f32");
    let plain = [0x3f80_0000u32, 0xbf80_0000, 0x4040_0000, 0x3dcc_cccd, 0x7f80_0000, 0x4b80_0001];
    out.push(Form::each("atom.global.add.v2.f32", code, &pairs(&plain), |[a, b, c, _]| {
        let sum =
            |x: u32, y: u32| F32.sum(&F32.value(x.into()), &F32.value(y.into()), Mode::Nearest);
        sum(a, c) | sum(b, b) << 32
    }));
}

/// `cvt.rna.satfinite.tf32.f32`: halves away from zero, the largest finite number for what is above.
/// No number, where the PTX ISA has 0x7fffffff: an H200 cuts the payload and takes one step off.
fn tf32(out: &mut Vec<Form>) {
    let name = "cvt.rna.satfinite.tf32.f32";
    let code = format!("{name} %r3, %f1;");
    let more = [
        0x3f80_1000,
        0x3f80_0fff,
        0xbf80_1000,
        0x7f7f_efff,
        0x7f7f_f000,
        0xff7f_f001,
        0x1000,
        0xfff,
    ];
    let edges: Vec<u32> = FLOATS.iter().copied().chain(more).collect();
    out.push(Form::each(name, code, &pairs(&edges), |[a, ..]| {
        let x = f64::from(f32::from_bits(a));
        if x.is_nan() {
            return u64::from(a / 0x2000 * 0x2000 - 0x2000);
        }
        let exponent = (a >> 23 & 0xff).max(1) as i32 - 127;
        let unit = 2f64.powi(exponent - 10);
        let most = (2.0 - 2f64.powi(-10)) * 2f64.powi(127);
        let rounded = ((x.abs() / unit + 0.5).floor() * unit).min(most);
        u64::from((rounded as f32).to_bits() | a & 0x8000_0000)
    }));
}

pub fn forms() -> Vec<Form> {
    let mut out = Vec::new();
    arithmetic(&mut out);
    comparisons(&mut out);
    to_integers(&mut out);
    from_integers(&mut out);
    between_floats(&mut out);
    atomics(&mut out);
    tf32(&mut out);
    out
}
