//! Instruction forms as data: the PTX, the operands at the edges, and the answer, computed here in
//! other ways than the machine does. Nothing here needs the machine: whoever can launch PTX runs
//! [`Form::text`] on [`Form::operands`] and compares with [`Form::expected`], a GPU as well.

#![allow(dead_code)]

pub mod floats;
pub mod ieee;
pub mod integers;
pub mod warps;

/// Four words of one thread.
pub type Operands = [u32; 4];

type Each = Box<dyn Fn(Operands) -> u64>;
type Whole = Box<dyn Fn(&[Operands; 32]) -> [u64; 32]>;

pub enum Answer {
    /// Of each thread alone.
    Each(Each),
    /// Of a warp's 32 threads.
    Warp(Whole),
}

pub struct Form {
    pub name: String,
    /// What stands in the kernel: words `%r1`, `%r2`, `%r4`, `%r7`; their lower halves `%h1`, `%h2`,
    /// `%h4`; `%f1`, `%f2`, `%f4`; `%rd1` = (1, 2), `%rd2` = (4, 7), `%rd4` = (2, 7), as `%fd` too;
    /// `%r15` this thread's sixteen bytes of shared memory. `%rd3`, else `%r3`, is the result.
    pub code: String,
    pub operands: Vec<Operands>,
    pub answer: Answer,
}

impl Form {
    pub fn each(
        name: impl Into<String>,
        code: impl Into<String>,
        operands: &[Operands],
        answer: impl Fn(Operands) -> u64 + 'static,
    ) -> Form {
        let (name, code) = (name.into(), code.into());
        Form { name, code, operands: padded(operands), answer: Answer::Each(Box::new(answer)) }
    }

    pub fn warp(
        name: impl Into<String>,
        code: impl Into<String>,
        operands: &[Operands],
        answer: impl Fn(&[Operands; 32]) -> [u64; 32] + 'static,
    ) -> Form {
        let (name, code) = (name.into(), code.into());
        Form { name, code, operands: padded(operands), answer: Answer::Warp(Box::new(answer)) }
    }

    /// A module whose entry `t(x, d)` is launched with one block of 32 threads for every 32
    /// operands: four words a thread in `x`, eight bytes a thread out in `d`.
    pub fn text(&self) -> String {
        let wide = if self.code.contains("%rd3") { "" } else { "cvt.u64.u32 %rd3, %r3;" };
        format!(
            ".version 8.6\n.target sm_90\n.address_size 64\n\
             .visible .entry t(.param .u64 x, .param .u64 d)\n{{\n\
             .reg .pred %p<9>;.reg .b16 %h<9>;.reg .f32 %f<9>;.reg .f64 %fd<9>;.reg .b32 %r<40>;.reg .b64 %rd<20>;\n\
             .shared .align 16 .b8 s[512];\n\
             ld.param.u64 %rd10, [x];ld.param.u64 %rd11, [d];mov.u32 %r10, %ctaid.x;mov.u32 %r11, %tid.x;\n\
             mad.lo.u32 %r10, %r10, 32, %r11;mad.wide.u32 %rd10, %r10, 16, %rd10;mad.wide.u32 %rd11, %r10, 8, %rd11;\n\
             ld.global.v4.u32 {{%r1,%r2,%r4,%r7}}, [%rd10];mov.u32 %r15, s;mad.lo.u32 %r15, %r11, 16, %r15;\n\
             mov.b32 %f1, %r1;mov.b32 %f2, %r2;mov.b32 %f4, %r4;cvt.u16.u32 %h1, %r1;cvt.u16.u32 %h2, %r2;cvt.u16.u32 %h4, %r4;\n\
             mov.b64 %rd1, {{%r1,%r2}};mov.b64 %rd2, {{%r4,%r7}};mov.b64 %rd4, {{%r2,%r7}};\n\
             mov.b64 %fd1, %rd1;mov.b64 %fd2, %rd2;mov.b64 %fd4, %rd4;mov.u32 %r3, 0;\n\
             {}\n{wide}\nst.global.u64 [%rd11], %rd3;\nret;\n}}\n",
            self.code
        )
    }

    pub fn expected(&self) -> Vec<u64> {
        match &self.answer {
            Answer::Each(f) => self.operands.iter().map(|x| f(*x)).collect(),
            Answer::Warp(f) => {
                let (warps, _) = self.operands.as_chunks::<32>();
                warps.iter().flat_map(f).collect()
            }
        }
    }
}

/// Whole warps: the first operands fill the last one.
fn padded(operands: &[Operands]) -> Vec<Operands> {
    let len = operands.len().next_multiple_of(32);
    operands.iter().cycle().take(len).copied().collect()
}

/// All pairs of edges as the first words, the others going round.
pub fn pairs(edges: &[u32]) -> Vec<Operands> {
    let n = edges.len();
    let all = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
    all.map(|(i, j)| [edges[i], edges[j], edges[(i + 3 * j) % n], edges[(5 * i + j + 1) % n]])
        .collect()
}

/// All pairs of edges of 64 bits.
pub fn long_pairs(edges: &[u64]) -> Vec<Operands> {
    let all = edges.iter().flat_map(|a| edges.iter().map(move |b| (a, b)));
    all.map(|(a, b)| [*a as u32, (*a >> 32) as u32, *b as u32, (*b >> 32) as u32]).collect()
}

/// The 64-bit operands of a thread: `%rd1`, `%rd2`, `%rd4`.
pub fn longs([a, b, c, d]: Operands) -> [u64; 3] {
    let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    [join(a, b), join(c, d), join(b, d)]
}

/// Every form.
pub fn all() -> Vec<Form> {
    let mut forms = integers::forms();
    forms.extend(floats::forms());
    forms.extend(warps::forms());
    forms
}
