//! Kernels made up from bytes: well-formed PTX that does what no compiler would write.
//! Invariant: the text parses, whatever the bytes.
//!
//! The instructions are in `instructions.txt`.

use arbitrary::{Arbitrary, Result, Unstructured};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::OnceLock;

/// A module with one kernel, `k`, of three pointers, a number and a tensor map.
#[derive(Clone)]
pub struct Kernel {
    /// The module.
    pub text: String,
    /// Every register of the kernel has a value from the start.
    pub initialised: bool,
}

const PARAMETERS: &str =
    ".param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n, .param .align 64 .b8 t[128]";

/// The templates of each group.
fn templates() -> &'static HashMap<&'static str, Vec<&'static str>> {
    static ALL: OnceLock<HashMap<&str, Vec<&str>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all: HashMap<&str, Vec<&str>> = HashMap::new();
        let mut group = "";
        for line in include_str!("../instructions.txt").lines() {
            match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                Some(name) => group = name,
                None if line.is_empty() || line.starts_with('#') => {}
                None => all.entry(group).or_default().push(line),
            }
        }
        all
    })
}

const CONSTANTS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "4",
    "8",
    "31",
    "32",
    "33",
    "63",
    "64",
    "0xff",
    "0x8000",
    "0x7fffffff",
    "0x80000000",
    "0xffffffff",
    "-2",
    "0x1c1f",
];
const WIDE: &[&str] = &[
    "0",
    "1",
    "4096",
    "-1",
    "0x8000000000000000",
    "0x7fffffffffffffff",
    "0x10000000000",
    "0xfffffffffff0",
];
const SINGLE: &[&str] = &[
    "0f00000000",
    "0f80000000",
    "0f3F800000",
    "0f7F800000",
    "0fFF800000",
    "0f7FC00001",
    "0f00000001",
    "0f7F7FFFFF",
    "0fC2FC0000",
];
const DOUBLE: &[&str] = &[
    "0d0000000000000000",
    "0d3FF0000000000000",
    "0d7FF0000000000000",
    "0d7FF8000000000001",
    "0d0000000000000001",
    "0d7FEFFFFFFFFFFFFF",
];
const MASKS: &[&str] = &[
    "0xffffffff",
    "0xffffffff",
    "0xffffffff",
    "0",
    "1",
    "0xffff",
    "0xaaaaaaaa",
    "0x80000000",
    "0x7fffffff",
];
const OFFSETS: &[&str] = &[
    "0",
    "0",
    "0",
    "4",
    "8",
    "16",
    "1",
    "2",
    "3",
    "60",
    "-4",
    "1048576",
    "-9223372036854775808",
    "4294967295",
];
/// Of what a copy takes and an mbarrier expects.
const COUNTS: &[&str] = &["16", "64", "128", "256", "1024", "0", "8", "0xfffff", "-16"];
/// Matrix descriptors but for their start: plain, swizzled by 32 and 128 bytes, with a base offset, far.
const DESCRIPTORS: &[&str] = &[
    "0x0000001000080000",
    "0x0000001000080000",
    "0x4000004000010000",
    "0xC000001000010000",
    "0x4002004000010000",
    "0x80003fff3fff0000",
];
const LABELS: u8 = 6;

impl<'a> Arbitrary<'a> for Kernel {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Kernel> {
        let initialised = u.arbitrary()?;
        let mut writer = Writer { u, out: String::new(), initialised, labels: 0, loops: 0 };
        writer.module()?;
        Ok(Kernel { text: writer.out, initialised })
    }
}

struct Writer<'w, 'a> {
    u: &'w mut Unstructured<'a>,
    out: String,
    initialised: bool,
    /// Labels that stand already.
    labels: u8,
    loops: u32,
}

impl Writer<'_, '_> {
    fn module(&mut self) -> Result<()> {
        let shared = *self.u.choose(&[
            1024u32,
            4096,
            64,
            1024,
            48 << 10,
            4096,
            227 << 10,
            0,
            1024,
            8192,
            1 << 20,
        ])?;
        let align = *self.u.choose(&[16u32, 8, 128, 1024])?;
        let local = *self.u.choose(&[64u32, 64, 64, 8, 64, 4096, 64, 64, 1 << 19, 64, 64])?;
        self.out.push_str(".version 8.4\n.target sm_90a\n.address_size 64\n");
        self.out
            .push_str(".global .align 8 .b8 v[64];\n.const .align 4 .u32 w[4] = {1, 2, 3, 4};\n");
        _ = writeln!(self.out, ".shared .align {align} .b8 s[{shared}];");
        self.out.push_str(".extern .shared .align 16 .b8 e[];\n.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n");
        // Each may call itself and the others.
        let functions = [
            ("f0", "", ""),
            ("f1", "(.param .b32 r) ", "(.param .b32 t)"),
            ("f2", "(.param .b32 r) ", "(.param .b32 t)"),
        ];
        for (name, returns, parameters) in functions {
            _ = writeln!(self.out, ".func {returns}{name}{parameters}\n{{");
            self.declarations(8);
            if !parameters.is_empty() {
                self.out.push_str("ld.param.b32 %r1, [t];\n");
            }
            self.labels = 0;
            let count = self.u.int_in_range(0..=4)?;
            self.statements(count, 1)?;
            self.rest_of_labels();
            if !parameters.is_empty() {
                self.out.push_str("st.param.b32 [r], %r2;\n");
            }
            self.out.push_str("ret;\n}\n");
        }
        let bound = *self.u.choose(&[
            "",
            "",
            "",
            "",
            "",
            "\n.maxntid 128, 1, 1",
            "",
            "\n.reqntid 64",
            "",
            "",
            "\n.reqnctapercluster 2",
            "\n.reqntid 128",
        ])?;
        _ = writeln!(self.out, ".visible .entry k({PARAMETERS}){bound}\n{{");
        self.declarations(local);
        self.out.push_str("ld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\nld.param.u64 %d3, [c];\nld.param.u32 %r1, [n];\n");
        self.out.push_str("mov.u32 %r2, %tid.x;\nmad.wide.u32 %d4, %r2, 4, %d1;\nmad.wide.u32 %d5, %r2, 16, %d2;\n");
        self.out.push_str("mov.u32 %r3, s;\nmad.lo.u32 %r4, %r2, 4, %r3;\nmad.lo.u32 %r5, %r2, 16, %r3;\nsetp.lt.u32 %p1, %r2, 16;\nsetp.eq.u32 %p2, %r2, 0;\n");
        self.for_tensors(shared)?;
        self.labels = 0;
        let count = self.u.int_in_range(1..=24)?;
        self.statements(count, 0)?;
        self.rest_of_labels();
        self.out.push_str("ret;\n}\n");
        Ok(())
    }

    /// What the Hopper instructions take: `%d10` the tensor map, `%d11` a matrix descriptor, `%r12` shared
    /// memory of the next block of a cluster; the first of the shared memory may be full.
    fn for_tensors(&mut self, shared: u32) -> Result<()> {
        let strides = *self.u.choose(DESCRIPTORS)?;
        _ = writeln!(
            self.out,
            "mov.b64 %d10, t;\ncvta.param.u64 %d10, %d10;\nshr.u32 %r12, %r3, 4;\ncvt.u64.u32 %d11, %r12;\nor.b64 %d11, %d11, {strides};\n\
             mov.u32 %r12, %cluster_ctarank;\nxor.b32 %r12, %r12, 1;\nmapa.shared::cluster.u32 %r12, %r3, %r12;"
        );
        if self.u.arbitrary()? {
            let end = shared.min(4096) & !15;
            _ = writeln!(
                self.out,
                "mov.u32 %r13, %ntid.x;\nshl.b32 %r13, %r13, 4;\nshl.b32 %r14, %r2, 4;\n\
                 F: setp.ge.u32 %p3, %r14, {end};\n@%p3 bra G;\nadd.u32 %r15, %r3, %r14;\n\
                 st.shared.v4.u32 [%r15], {{%r14, %r14, %r14, %r14}};\nadd.u32 %r14, %r14, %r13;\nbra F;\n\
                 G: fence.proxy.async;\nbar.sync 0;"
            );
        }
        Ok(())
    }

    fn declarations(&mut self, local: u32) {
        _ = writeln!(self.out, ".local .align 16 .b8 l[{local}];");
        self.out.push_str(".reg .pred %p<8>;\n.reg .b16 %h<8>;\n.reg .b32 %r<16>;\n.reg .b64 %d<12>;\n.reg .b128 %q<4>;\n");
        self.out.push_str(
            ".reg .f32 %f<8>;\n.reg .f64 %g<8>;\n.reg .pred %c<64>;\n.reg .b32 %n<64>;\n",
        );
        if self.initialised {
            let families = [
                ("p", "pred", "1", 8),
                ("h", "b16", "7", 8),
                ("r", "b32", "3", 16),
                ("d", "b64", "5", 12),
            ];
            for (name, kind, value, count) in families {
                (0..count).for_each(|i| _ = writeln!(self.out, "mov.{kind} %{name}{i}, {value};"));
            }
            (0..4).for_each(|i| _ = writeln!(self.out, "mov.b128 %q{i}, {{%d0, %d1}};"));
            (0..8).for_each(|i| {
                _ = writeln!(
                    self.out,
                    "mov.f32 %f{i}, 0f3F800000;\nmov.f64 %g{i}, 0d4000000000000000;"
                )
            });
        }
        self.out.push_str("T: .branchtargets L0, L1, L3;\nprototype: .callprototype (.param .b32 _) _ (.param .b32 _);\n");
    }

    fn rest_of_labels(&mut self) {
        while self.labels < LABELS {
            self.label();
        }
    }

    fn label(&mut self) {
        if self.labels < LABELS {
            _ = writeln!(self.out, "L{}:", self.labels);
            self.labels += 1;
        }
    }

    fn statements(&mut self, count: usize, depth: u32) -> Result<()> {
        for _ in 0..count {
            match self.u.int_in_range(0..=19u8)? {
                0 => self.label(),
                1 if depth < 3 => self.counted_loop(depth)?,
                2 if depth < 3 => self.branch_around(depth)?,
                3 => self.instruction("control")?,
                4..=6 => self.instruction("arithmetic")?,
                7..=8 => self.instruction("floating")?,
                9..=12 => self.instruction("memory")?,
                13..=16 => self.instruction("hopper")?,
                _ => self.instruction("warp")?,
            }
        }
        Ok(())
    }

    fn counted_loop(&mut self, depth: u32) -> Result<()> {
        let number = self.loops.min(31) * 2 + depth % 2;
        self.loops += 1;
        let tag = self.out.len();
        let times = *self.u.choose(&["3", "%r2", "64", "0x7fffffff"])?;
        _ = writeln!(self.out, "mov.u32 %n{number}, 0;\nB{tag}:");
        let count = self.u.int_in_range(1..=4)?;
        self.statements(count, depth + 1)?;
        _ = writeln!(
            self.out,
            "add.u32 %n{number}, %n{number}, 1;\nsetp.lt.u32 %c{number}, %n{number}, {times};\n@%c{number} bra B{tag};"
        );
        Ok(())
    }

    fn branch_around(&mut self, depth: u32) -> Result<()> {
        let tag = self.out.len();
        let p = self.u.int_in_range(0..=7u8)?;
        _ = writeln!(self.out, "@%p{p} bra E{tag};");
        let count = self.u.int_in_range(1..=4)?;
        self.statements(count, depth + 1)?;
        _ = writeln!(self.out, "E{tag}:");
        Ok(())
    }

    fn instruction(&mut self, group: &str) -> Result<()> {
        let template = *self.u.choose(&templates()[group])?;
        let call = template.starts_with("call") && template.contains("(x)");
        if call {
            // A call has variables of its own.
            self.out.push_str("{\n.param .b32 x;\n.param .b32 y;\n.param .b64 z;\nst.param.b32 [y], %r1;\nst.param.b64 [z], %d1;\n");
        }
        match self.u.int_in_range(0..=8u8)? {
            _ if template.starts_with('@') => {}
            8 => self.out.push_str("@%p2 "),
            0 => self.out.push_str("@%p1 "),
            1 => self.out.push_str("@!%p1 "),
            2 => {
                let p = self.u.int_in_range(0..=7u8)?;
                _ = write!(self.out, "@%p{p} ");
            }
            _ => {}
        }
        let mut pieces = template.split('$');
        self.out.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            let (kind, rest) = piece.split_at(1);
            self.operand(kind)?;
            self.out.push_str(rest);
        }
        self.out.push_str(if call { ";\nld.param.b32 %r2, [x];\n}\n" } else { ";\n" });
        Ok(())
    }

    fn operand(&mut self, kind: &str) -> Result<()> {
        match kind {
            "p" => self.register("%p", 8),
            "h" => self.register("%h", 8),
            "r" => self.register("%r", 12),
            "d" => self.register("%d", 10),
            "q" => self.register("%q", 4),
            "f" => self.register("%f", 8),
            "g" => self.register("%g", 8),
            "i" => self.register_or("%r", 12, CONSTANTS),
            "j" => self.register_or("%d", 10, WIDE),
            "x" => self.register_or("%f", 8, SINGLE),
            "y" => self.register_or("%g", 8, DOUBLE),
            "m" => self.register_or("%r", 0, MASKS),
            "n" => self.of(&["0", "1", "2", "4", "15", "16", "32", "64", "1"]),
            "a" => self.place(&["%d4", "%d5", "%d1", "%d2", "%d3", "%d6", "%d7"]),
            "s" => self.place(&["%r4", "%r5", "s", "%r3", "%r6", "e", "%r7"]),
            "l" => self.place(&["l", "%d8"]),
            "b" => self.place(&["s"]),
            "c" => self.place(&["%r12", "%r12", "%r4", "%r6", "s"]),
            "t" => self.of(&["%d10", "%d10", "%d10", "%d10", "%d6", "%d1", "s"]),
            "w" => self.of(&["%d11", "%d11", "%d11", "%d11", "%d6", "%d9"]),
            "z" => self.register_or("%r", 2, COUNTS),
            _ => {
                let label = self.u.int_in_range(0..=LABELS - 1)?;
                _ = write!(self.out, "L{label}");
                Ok(())
            }
        }
    }

    fn register(&mut self, family: &str, count: u8) -> Result<()> {
        let n = self.u.int_in_range(0..=count - 1)?;
        _ = write!(self.out, "{family}{n}");
        Ok(())
    }

    fn of(&mut self, all: &[&str]) -> Result<()> {
        self.out.push_str(self.u.choose(all)?);
        Ok(())
    }

    /// A register of the first `count`, or a constant.
    fn register_or(&mut self, family: &str, count: u8, constants: &[&str]) -> Result<()> {
        let n = self.u.int_in_range(0..=count.max(8) * 2 - 1)?;
        if n < count {
            _ = write!(self.out, "{family}{n}");
        } else {
            self.out.push_str(self.u.choose(constants)?);
        }
        Ok(())
    }

    fn place(&mut self, bases: &[&str]) -> Result<()> {
        let (base, offset) = (*self.u.choose(bases)?, *self.u.choose(OFFSETS)?);
        _ = write!(self.out, "[{base}+{offset}]");
        Ok(())
    }
}
