//! Integer forms: arithmetic, bits, comparisons, conversions, memory and atomics, by wider integers.

use super::{Form, Operands, long_pairs, longs, pairs};

pub const EDGES: [u32; 17] = [
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
    0x1234_abcd,
];
pub const LONG_EDGES: [u64; 17] = [
    0,
    1,
    3,
    63,
    64,
    0xff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_fffe,
    0xffff_ffff_ffff_ffff,
    0x0123_4567_89ab_cdef,
    1 << 53,
    0xffff_ffff_8000_0000,
    0x0000_ffff_ffff_0000,
];

/// An integer type and how to reach its operands.
#[derive(Clone, Copy)]
struct Type {
    name: &'static str,
    bits: u32,
    signed: bool,
}

const TYPES: [Type; 6] = [
    Type { name: "u16", bits: 16, signed: false },
    Type { name: "s16", bits: 16, signed: true },
    Type { name: "u32", bits: 32, signed: false },
    Type { name: "s32", bits: 32, signed: true },
    Type { name: "u64", bits: 64, signed: false },
    Type { name: "s64", bits: 64, signed: true },
];

impl Type {
    fn value(self, bits: u64) -> i128 {
        let unused = 128 - self.bits;
        let wide = u128::from(bits) << unused;
        if self.signed { wide as i128 >> unused } else { (wide >> unused) as i128 }
    }

    fn cut(self, x: i128) -> u64 {
        (x as u128 & (u128::MAX >> (128 - self.bits))) as u64
    }

    fn cases(self) -> Vec<Operands> {
        if self.bits == 64 { long_pairs(&LONG_EDGES) } else { pairs(&EDGES) }
    }

    /// Operands of a thread as values.
    fn operands(self, x: Operands) -> [i128; 3] {
        let bits = if self.bits == 64 { longs(x) } else { [x[0], x[1], x[2]].map(u64::from) };
        bits.map(|bits| self.value(bits))
    }

    fn register(self, number: u32) -> String {
        let prefix = match self.bits {
            16 => "%h",
            32 => "%r",
            _ => "%rd",
        };
        let number = match (self.bits, number) {
            (64, 2) => 4,
            (64, n) => n + 1,
            (_, 2) => 4,
            (_, n) => n + 1,
        };
        format!("{prefix}{number}")
    }

    /// Code that leaves the result of this width where it belongs.
    fn finish(self, code: &str) -> String {
        match self.bits {
            16 => format!("{} cvt.u32.u16 %r3, %h3;", code.replace("{d}", "%h3")),
            32 => code.replace("{d}", "%r3"),
            _ => code.replace("{d}", "%rd3"),
        }
    }

    /// `opcode d, a, b, c` with as many sources as asked for.
    fn form(self, opcode: &str, sources: u32, f: impl Fn([i128; 3]) -> i128 + 'static) -> Form {
        let list: Vec<String> = (0..sources).map(|i| self.register(i)).collect();
        let code = self.finish(&format!("{opcode} {{d}}, {};", list.join(", ")));
        Form::each(opcode, code, &self.cases(), move |x| self.cut(f(self.operands(x))))
    }
}

fn arithmetic(out: &mut Vec<Form>) {
    for t in TYPES {
        let name = t.name;
        let n = t.bits;
        out.push(t.form(&format!("add.{name}"), 2, |[a, b, _]| a + b));
        out.push(t.form(&format!("sub.{name}"), 2, |[a, b, _]| a - b));
        out.push(t.form(&format!("mul.lo.{name}"), 2, |[a, b, _]| a.wrapping_mul(b)));
        out.push(
            t.form(&format!("mad.lo.{name}"), 3, |[a, b, c]| a.wrapping_mul(b).wrapping_add(c)),
        );
        out.push(t.form(&format!("min.{name}"), 2, |[a, b, _]| a.min(b)));
        out.push(t.form(&format!("max.{name}"), 2, |[a, b, _]| a.max(b)));
        out.push(t.form(&format!("mul.hi.{name}"), 2, move |[a, b, _]| high(a, b, n)));
        if t.signed {
            out.push(t.form(&format!("abs.{name}"), 1, |[a, ..]| a.abs()));
            out.push(t.form(&format!("neg.{name}"), 1, |[a, ..]| -a));
        }
        // A quotient by zero is whatever the hardware gives: it is left out.
        let nonzero: Vec<Operands> =
            t.cases().into_iter().filter(|x| t.operands(*x)[1] != 0).collect();
        for (op, f) in [("div", quotient as fn(i128, i128) -> i128), ("rem", rest)] {
            let mut form = t.form(&format!("{op}.{name}"), 2, move |[a, b, _]| f(a, b));
            form.operands = super::padded(&nonzero);
            out.push(form);
        }
        if n < 64 {
            let wide = format!("mul.wide.{name}");
            let d = if n == 16 { "%r3" } else { "%rd3" };
            let code = format!("{wide} {d}, {}, {};", t.register(0), t.register(1));
            let mask = if n == 16 { 0xffff_ffff } else { u64::MAX };
            out.push(Form::each(wide, code, &t.cases(), move |x| {
                let [a, b, _] = t.operands(x);
                (a * b) as u64 & mask
            }));
        }
    }
    let s32 = TYPES[3];
    let clamp = |x: i128| x.clamp(i32::MIN.into(), i32::MAX.into());
    out.push(s32.form("add.sat.s32", 2, move |[a, b, _]| clamp(a + b)));
    out.push(s32.form("sub.sat.s32", 2, move |[a, b, _]| clamp(a - b)));
    out.push(s32.form("sad.s32", 3, |[a, b, c]| (a - b).abs() + c));
    out.push(s32.form("mul24.lo.s32", 2, |[a, b, _]| sign24(a) * sign24(b)));
    out.push(s32.form("mad.hi.sat.s32", 3, move |[a, b, c]| clamp(((a * b) >> 32) + c)));
}

fn sign24(x: i128) -> i128 {
    i128::from((x as i32) << 8 >> 8)
}

fn high(a: i128, b: i128, bits: u32) -> i128 {
    match a.checked_mul(b) {
        Some(product) => product >> bits,
        // Both are unsigned and of 64 bits.
        None => ((a as u128).wrapping_mul(b as u128) >> bits) as i128,
    }
}

fn quotient(a: i128, b: i128) -> i128 {
    a / b
}

fn rest(a: i128, b: i128) -> i128 {
    a % b
}

fn bits(out: &mut Vec<Form>) {
    for (n, t) in [(16u32, TYPES[0]), (32, TYPES[2]), (64, TYPES[4])] {
        for (op, f) in [
            ("and", (|a, b| a & b) as fn(i128, i128) -> i128),
            ("or", |a, b| a | b),
            ("xor", |a, b| a ^ b),
        ] {
            out.push(t.form(&format!("{op}.b{n}"), 2, move |[a, b, _]| f(a, b)));
        }
        out.push(t.form(&format!("not.b{n}"), 1, |[a, ..]| !a));
        out.push(t.form(&format!("cnot.b{n}"), 1, |[a, ..]| i128::from(a == 0)));
        // Shifts count by a word; more than all bits is all bits.
        for (op, ty) in
            [("shl", format!("b{n}")), ("shr", format!("u{n}")), ("shr", format!("s{n}"))]
        {
            let signed = ty.starts_with('s');
            let by = if n == 64 { "%r4" } else { "%r2" };
            let name = format!("{op}.{ty}");
            let code = t.finish(&format!("{name} {{d}}, {}, {by};", t.register(0)));
            let ty = Type { signed, ..t };
            out.push(Form::each(name, code, &t.cases(), move |x| {
                let by = if n == 64 { x[2] } else { x[1] }.min(n);
                let [a, ..] = ty.operands(x);
                ty.cut(if op == "shl" {
                    (a << by.min(64)) & if by >= n { 0 } else { -1 }
                } else {
                    a >> by
                })
            }));
        }
    }
    for (n, t) in [(32u32, TYPES[2]), (64, TYPES[4])] {
        let count = move |op: &'static str, f: fn(u64, u32) -> u32| {
            let name = format!("{op}.b{n}");
            let code = format!("{name} %r3, {};", t.register(0));
            Form::each(name, code, &t.cases(), move |x| f(t.operands(x)[0] as u64, n).into())
        };
        out.push(count("popc", |x, _| (0..64).map(|i| (x >> i) as u32 & 1).sum()));
        out.push(count("clz", |x, n| (0..n).rev().take_while(|i| x >> i & 1 == 0).count() as u32));
        out.push(t.form(&format!("brev.b{n}"), 1, move |[a, ..]| {
            (0..n).map(|i| (a >> i & 1) << (n - 1 - i)).sum()
        }));
        for (name, signed, shift) in [
            (format!("bfind.u{n}"), false, false),
            (format!("bfind.s{n}"), true, false),
            (format!("bfind.shiftamt.u{n}"), false, true),
        ] {
            let code = format!("{name} %r3, {};", t.register(0));
            let ty = Type { signed, ..t };
            out.push(Form::each(name, code, &t.cases(), move |x| {
                let [a, ..] = ty.operands(x);
                let a = if a < 0 { !a } else { a };
                match (0..n).rev().find(|i| a >> i & 1 == 1) {
                    Some(at) => u64::from(if shift { n - 1 - at } else { at }),
                    None => 0xffff_ffff,
                }
            }));
        }
        // Fields: place and length are bytes of 32-bit words, and whole for 64 bits.
        for signed in [false, true] {
            let name = format!("bfe.{}{n}", if signed { 's' } else { 'u' });
            let (p, l) = if n == 64 { ("%r4", "%r7") } else { ("%r2", "%r4") };
            let code = t.finish(&format!("{name} {{d}}, {}, {p}, {l};", t.register(0)));
            out.push(Form::each(name, code, &t.cases(), move |x| {
                let (at, len) =
                    if n == 64 { (x[2].min(64), x[3].min(64)) } else { (x[1] & 0xff, x[2] & 0xff) };
                let a = t.operands(x)[0] as u64;
                let bit = |i: u32| a >> i.min(n - 1) & 1;
                let sign = if signed && len != 0 { bit((at + len - 1).min(n - 1)) } else { 0 };
                (0..n)
                    .map(|i| if i < len && at + i < n { bit(at + i) << i } else { sign << i })
                    .sum()
            }));
        }
    }
    let t = TYPES[2];
    for (mode, f) in [
        ("l.wrap", (|c| (c & 31, true)) as fn(u32) -> (u32, bool)),
        ("l.clamp", |c| (c.min(32), true)),
        ("r.wrap", |c| (c & 31, false)),
        ("r.clamp", |c| (c.min(32), false)),
    ] {
        let name = format!("shf.{mode}.b32");
        out.push(Form::each(
            &*name,
            format!("{name} %r3, %r1, %r2, %r4;"),
            &pairs(&EDGES),
            move |[a, b, c, _]| {
                let both = u128::from(a) | u128::from(b) << 32;
                let (by, left) = f(c);
                let shifted = if left { both << by >> 32 } else { both >> by };
                shifted as u64 & 0xffff_ffff
            },
        ));
    }
    for table in [0x80u32, 0x96, 0xe8, 0xca, 0x01] {
        let name = format!("lop3.b32 {table:#04x}");
        let code = format!("lop3.b32 %r3, %r1, %r2, %r4, {table:#x};");
        out.push(Form::each(name, code, &pairs(&EDGES), move |[a, b, c, _]| {
            let bit = |x: u32, i: u32| x >> i & 1;
            (0..32)
                .map(|i| u64::from(table >> (4 * bit(a, i) + 2 * bit(b, i) + bit(c, i)) & 1) << i)
                .sum()
        }));
    }
    out.push(t.form("prmt.b32", 3, |[a, b, c]| {
        let byte = |selector: i128| {
            let value = (a | b << 32) >> (8 * (selector & 7)) & 0xff;
            if selector & 8 == 0 { value } else { 0xff * (value >> 7) }
        };
        (0..4).map(|i| byte(c >> (4 * i) & 15) << (8 * i)).sum()
    }));
    for (mode, place) in [
        ("f4e", (|i, s| i + s) as fn(i128, i128) -> i128),
        ("b4e", |i, s| s - i),
        ("rc8", |_, s| s),
        ("ecl", |i, s| i.max(s)),
        ("ecr", |i, s| i.min(s)),
        ("rc16", |i, s| 2 * (s & 1) + i % 2),
    ] {
        out.push(t.form(&format!("prmt.b32.{mode}"), 3, move |[a, b, c]| {
            let byte = |at: i128| (a | b << 32) >> (8 * (at & 7)) & 0xff;
            (0..4).map(|i| byte(place(i, c & 3)) << (8 * i)).sum()
        }));
    }
}

fn comparisons(out: &mut Vec<Form>) {
    for t in TYPES {
        for (op, f) in [
            ("eq", (|a, b| a == b) as fn(i128, i128) -> bool),
            ("ne", |a, b| a != b),
            ("lt", |a, b| a < b),
            ("le", |a, b| a <= b),
            ("gt", |a, b| a > b),
            ("ge", |a, b| a >= b),
        ] {
            let name = format!("setp.{op}.{}", t.name);
            let code = format!(
                "{name} %p1, {}, {};selp.u32 %r3, 1, 0, %p1;",
                t.register(0),
                t.register(1)
            );
            out.push(Form::each(name, code, &t.cases(), move |x| {
                let [a, b, _] = t.operands(x);
                f(a, b).into()
            }));
        }
    }
    let code = "set.lt.s32.s32 %r3, %r1, %r2;";
    out.push(Form::each("set.lt.s32.s32", code, &pairs(&EDGES), |[a, b, ..]| {
        if (a as i32) < b as i32 { 0xffff_ffff } else { 0 }
    }));
    let code = "setp.lt.and.u32 %p1|%p2, %r1, %r2, %p3;selp.u32 %r3, 1, 0, %p1;selp.u32 %r5, 2, 0, %p2;or.b32 %r3, %r3, %r5;";
    let code = format!("setp.gt.u32 %p3, %r4, 100;{code}");
    out.push(Form::each("setp.lt.and.u32 p|q", code, &pairs(&EDGES), |[a, b, c, _]| {
        u64::from(a < b && c > 100) | u64::from(a >= b && c > 100) << 1
    }));
}

fn conversions(out: &mut Vec<Form>) {
    for from in TYPES {
        for to in TYPES {
            if from.name == to.name {
                continue;
            }
            for saturate in [false, true] {
                // Where every value fits there is nothing to saturate.
                let fits = to.bits > from.bits && (to.signed || !from.signed);
                let narrowing = !fits && (to.bits < from.bits || to.signed != from.signed);
                if saturate && !narrowing {
                    continue;
                }
                let sat = if saturate { "sat." } else { "" };
                let name = format!("cvt.{sat}{}.{}", to.name, from.name);
                let code = to.finish(&format!("{name} {{d}}, {};", from.register(0)));
                out.push(Form::each(name, code, &from.cases(), move |x| {
                    let [a, ..] = from.operands(x);
                    let (least, most) = if to.signed {
                        (-(1i128 << (to.bits - 1)), (1i128 << (to.bits - 1)) - 1)
                    } else {
                        (0, (1i128 << to.bits) - 1)
                    };
                    to.cut(if saturate { a.clamp(least, most) } else { a })
                }));
            }
        }
    }
    for (name, signed) in [("cvt.s32.s8", true), ("cvt.u32.u8", false)] {
        out.push(Form::each(name, format!("{name} %r3, %r1;"), &pairs(&EDGES), move |[a, ..]| {
            u64::from(if signed { a as u8 as i8 as u32 } else { a & 0xff })
        }));
    }
}

fn memory(out: &mut Vec<Form>) {
    for (ty, bytes, signed) in [
        ("u8", 1u32, false),
        ("s8", 1, true),
        ("u16", 2, false),
        ("s16", 2, true),
        ("u32", 4, false),
    ] {
        let name = format!("ld.shared.{ty}");
        let code = format!("st.shared.u32 [%r15], %r1;{name} %r3, [%r15];");
        out.push(Form::each(name, code, &pairs(&EDGES), move |[a, ..]| {
            let unused = 32 - 8 * bytes;
            u64::from(if signed {
                ((a << unused) as i32 >> unused) as u32
            } else {
                a << unused >> unused
            })
        }));
    }
    for (name, code) in [
        ("st.shared.v2.u32", "st.shared.v2.u32 [%r15], {%r1,%r2};ld.shared.u64 %rd3, [%r15];"),
        (
            "ld.shared.v2.u32",
            "st.shared.u64 [%r15], %rd1;ld.shared.v2.u32 {%r5,%r6}, [%r15];mov.b64 %rd3, {%r5,%r6};",
        ),
        (
            "ld.shared.v4.u16",
            "st.shared.u64 [%r15], %rd1;ld.shared.v4.u16 {%h5,%h6,%h7,%h8}, [%r15];mov.b64 %rd3, {%h5,%h6,%h7,%h8};",
        ),
        (
            "st.shared.v4.u32",
            "st.shared.v4.u32 [%r15], {%r7,%r4,%r1,%r2};ld.shared.u64 %rd3, [%r15+8];",
        ),
        ("ld.global.nc.v2.u64", "ld.global.nc.v2.u64 {%rd3,%rd5}, [%rd10];"),
        ("ld.global.relaxed.gpu.u64", "ld.relaxed.gpu.global.u64 %rd3, [%rd10];"),
        ("ld.volatile.global.u64", "ld.volatile.global.u64 %rd3, [%rd10];"),
        ("ld.u64", "ld.u64 %rd3, [%rd10];"),
        (
            "st.local.u64, ld.local.u64",
            ".local .align 8 .b8 l[8];st.local.u64 [l], %rd1;ld.local.u64 %rd3, [l];",
        ),
        (
            "cp.async.ca.shared.global 8",
            "cp.async.ca.shared.global [%r15], [%rd10], 8;cp.async.wait_all;ld.shared.u64 %rd3, [%r15];",
        ),
        (
            "cp.async.cg.shared.global 16",
            "cp.async.cg.shared.global [%r15], [%rd10], 16;cp.async.commit_group;cp.async.wait_group 0;ld.shared.u64 %rd3, [%r15];",
        ),
        (
            "cvta.shared.u64",
            "st.shared.u64 [%r15], %rd1;cvt.u64.u32 %rd5, %r15;cvta.shared.u64 %rd5, %rd5;ld.u64 %rd3, [%rd5];",
        ),
        ("mov.b64 {lo,hi}", "mov.b64 {%r5,%r6}, %rd1;mov.b64 %rd3, {%r5,%r6};"),
        ("mov.b128", "{.reg .b128 q;mov.b128 q, {%rd2,%rd1};mov.b128 {%rd5,%rd3}, q;}"),
        (
            "discard.global.L2",
            "and.b64 %rd5, %rd11, -128;discard.global.L2 [%rd5], 128;bar.warp.sync -1;mov.b64 %rd3, %rd1;",
        ),
        (
            "stacksave, alloca, stackrestore",
            "stacksave.u64 %rd5;alloca.u64 %rd6, 24, 32;st.local.u64 [%rd6+16], %rd1;alloca.u64 %rd7, 8;st.local.u64 [%rd7], %rd2;\
             ld.local.u64 %rd3, [%rd6+16];stackrestore.u64 %rd5;alloca.u64 %rd8, 24, 32;\
             sub.u64 %rd9, %rd8, %rd6;add.u64 %rd3, %rd3, %rd9;and.b64 %rd9, %rd6, 31;add.u64 %rd3, %rd3, %rd9;",
        ),
        (
            "mov.v4.u32",
            "{.reg .v4 .u32 v;.reg .v4 .b32 w;mov.v4.u32 v, {%r2,%r7,%r1,%r4};mov.v4.b32 w, v;mov.b64 %rd3, {w.z,v.x};}",
        ),
    ] {
        out.push(Form::each(name, code, &pairs(&EDGES), |x| longs(x)[0]));
    }
    for (space, want) in [("const", 0), ("global", 1), ("local", 0), ("shared", 0)] {
        let code = format!("isspacep.{space} %p1, %rd10;selp.u32 %r3, 1, 0, %p1;");
        let name = format!("isspacep.{space} of global memory");
        out.push(Form::each(name, code, &pairs(&EDGES), move |_| want));
    }
}

/// `cvt.pack`: two integers cut to a type below the low bits of a third, bit by bit.
fn packs(out: &mut Vec<Form>) {
    for (ty, bits, signed) in [
        ("u8", 8, false),
        ("s8", 8, true),
        ("u4", 4, false),
        ("s4", 4, true),
        ("u2", 2, false),
        ("s2", 2, true),
    ] {
        let name = format!("cvt.pack.sat.{ty}.s32.b32");
        let code = format!("{name} %r3, %r1, %r2, %r4;");
        let edges: Vec<u32> = EDGES.iter().copied().chain([1, 2, 3, 4, 7, 8, 9, 15, 16]).collect();
        out.push(Form::each(name, code, &pairs(&edges), move |[a, b, c, _]| {
            let (least, most) = if signed {
                (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1)
            } else {
                (0, (1 << bits) - 1)
            };
            let cut = |x: u32| i64::from(x as i32).clamp(least, most);
            (0..32).fold(0, |all, i| {
                let bit = match i / bits {
                    0 => cut(b) >> i & 1,
                    1 => cut(a) >> (i - bits) & 1,
                    _ => i64::from(c) >> (i - 2 * bits) & 1,
                };
                all | (bit as u64) << i
            })
        }));
    }
}

fn atomics(out: &mut Vec<Form>) {
    let wide = |bits: u32, signed: bool| Type { name: "", bits, signed };
    type Update = fn(i128, i128, i128) -> i128;
    let list: [(&str, u32, bool, Update); 20] = [
        ("add.u32", 32, false, |old, a, _| old + a),
        ("add.s32", 32, true, |old, a, _| old + a),
        ("add.u64", 64, false, |old, a, _| old + a),
        ("min.u32", 32, false, |old, a, _| old.min(a)),
        ("min.s32", 32, true, |old, a, _| old.min(a)),
        ("max.u32", 32, false, |old, a, _| old.max(a)),
        ("max.s32", 32, true, |old, a, _| old.max(a)),
        ("min.u64", 64, false, |old, a, _| old.min(a)),
        ("min.s64", 64, true, |old, a, _| old.min(a)),
        ("max.u64", 64, false, |old, a, _| old.max(a)),
        ("max.s64", 64, true, |old, a, _| old.max(a)),
        ("and.b32", 32, false, |old, a, _| old & a),
        ("or.b32", 32, false, |old, a, _| old | a),
        ("xor.b64", 64, false, |old, a, _| old ^ a),
        ("exch.b32", 32, false, |_, a, _| a),
        ("exch.b64", 64, false, |_, a, _| a),
        ("inc.u32", 32, false, |old, a, _| if old >= a { 0 } else { old + 1 }),
        ("dec.u32", 32, false, |old, a, _| if old == 0 || old > a { a } else { old - 1 }),
        ("cas.b32", 32, false, |old, a, b| if old == a { b } else { old }),
        ("cas.b64", 64, false, |old, a, b| if old == a { b } else { old }),
    ];
    for space in ["shared", "global"] {
        for (op, bits, signed, f) in list {
            let t = wide(bits, signed);
            let at = if space == "shared" { "%r15" } else { "%rd11" };
            let name = format!("atom.{space}.{op}");
            let (a, b, c, old) = if bits == 64 {
                ("%rd1", "%rd2", "%rd4", "%rd6")
            } else {
                ("%r1", "%r2", "%r4", "%r6")
            };
            let third = if op.starts_with("cas") { format!(", {c}") } else { String::new() };
            // What stands there afterwards, less what stood there before: both must be right.
            let code = format!(
                "st.{space}.b{bits} [{at}], {a};{name} {old}, [{at}], {b}{third};ld.{space}.b{bits} %r{{d}}, [{at}];xor.b{bits} %r{{d}}, %r{{d}}, {old};"
            );
            let code = code.replace("%r{d}", if bits == 64 { "%rd3" } else { "%r3" });
            out.push(Form::each(name, code, &t.cases(), move |x| {
                let [old, a, b] = t.operands(x);
                t.cut(f(old, a, b) ^ old)
            }));
        }
        let at = if space == "shared" { "%r15" } else { "%rd11" };
        let code = format!(
            "st.{space}.u32 [{at}], %r1;atom.{space}.cas.b16 %h5, [{at}], %h2, %h4;ld.{space}.u32 %r3, [{at}];"
        );
        out.push(Form::each(
            format!("atom.{space}.cas.b16"),
            code,
            &pairs(&EDGES),
            |[old, a, b, _]| {
                u64::from(if (old ^ a) & 0xffff == 0 {
                    old & 0xffff_0000 | b & 0xffff
                } else {
                    old
                })
            },
        ));
    }
    let code = "{.reg .b128 o, e, n;mov.b128 n, {%rd1,%rd2};st.shared.b128 [%r15], n;mov.b128 e, {%rd1,%rd1};atom.shared.cas.b128 o, [%r15], e, e;ld.shared.u64 %rd3, [%r15+8];}";
    out.push(Form::each("atom.shared.cas.b128", code, &long_pairs(&LONG_EDGES), |x| {
        // It changes nothing that can be told: either it was equal or it stays.
        longs(x)[1]
    }));
    let code = "{.reg .b128 o, n;st.shared.u64 [%r15], %rd1;st.shared.u64 [%r15+8], %rd2;mov.b128 n, {%rd2,%rd1};atom.shared.exch.b128 o, [%r15], n;mov.b128 {%rd5,%rd6}, o;ld.shared.u64 %rd7, [%r15];xor.b64 %rd3, %rd6, %rd7;add.u64 %rd3, %rd3, %rd5;}";
    out.push(Form::each("atom.shared.exch.b128", code, &long_pairs(&LONG_EDGES), |x| longs(x)[0]));
}

pub fn forms() -> Vec<Form> {
    let mut out = Vec::new();
    arithmetic(&mut out);
    bits(&mut out);
    comparisons(&mut out);
    conversions(&mut out);
    packs(&mut out);
    memory(&mut out);
    atomics(&mut out);
    out
}
