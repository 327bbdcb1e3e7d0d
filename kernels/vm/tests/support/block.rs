//! One block whose threads meet at mbarriers: a kernel around some code, and its launch.

use super::{Parameters, bytes32, input, output, words};
use ptx_vm::{Coverage, Launch, Limits, Memory, Module, Options, Schedule, Stop, launch};

/// What the code finds.
pub struct Block {
    /// Words of `x`, the i-th of them 1000 + 7·i, and of `d`, which are zero. The code has `%rd1` and
    /// `%rd2` as their addresses, and `%rd3` and `%rd4` as those of the thread's own words.
    pub words: u32,
    /// mbarriers at `m`, of which `%r2` is the shared address.
    pub mbarriers: u32,
    /// Bytes at `s`, of which `%r3` is the shared address, and `%r31` that of the thread's own word.
    pub shared_bytes: u32,
}

impl Block {
    /// Runs `code` on threads along x and returns `d`. `%r1` is the thread, `%r30` four times that, `%p8`
    /// set in thread 0.
    pub fn run(&self, threads: u32, schedule: Schedule, code: &str) -> Result<Vec<u32>, Stop> {
        let Block { words: count, mbarriers, shared_bytes } = self;
        let text = format!(
            ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry t(.param .u64 x, .param .u64 d)\n{{\n\
             .reg .pred %p<9>;.reg .b32 %r<40>;.reg .b64 %rd<20>;\n\
             .shared .align 8 .b8 m[{}];.shared .align 128 .b8 s[{shared_bytes}];\n\
             ld.param.u64 %rd1, [x];ld.param.u64 %rd2, [d];mov.u32 %r1, %tid.x;mov.u32 %r2, m;mov.u32 %r3, s;\n\
             mul.wide.u32 %rd9, %r1, 4;shl.b32 %r30, %r1, 2;setp.eq.u32 %p8, %r1, 0;\n\
             add.s64 %rd3, %rd1, %rd9;add.s64 %rd4, %rd2, %rd9;add.u32 %r31, %r3, %r30;\n\
             {code}\nret;\n}}\n",
            8 * mbarriers
        );
        let module = Module::parse(&text).unwrap_or_else(|e| panic!("{code}: {e}"));
        let mut memory = Memory::new();
        let x: Vec<u32> = (0..*count).map(|i| 1000 + 7 * i).collect();
        let x = input(&mut memory, "x", &bytes32(&x));
        let d = output(&mut memory, "d", 4 * u64::from(*count));
        memory.write(d, 0, &vec![0; 4 * *count as usize]);
        let parameters =
            Parameters::default().u64(memory.address(x, 0)).u64(memory.address(d, 0)).0;
        let what = Launch {
            entry: "t",
            grid: [1; 3],
            block: [threads, 1, 1],
            dynamic_shared_bytes: 0,
            parameters: &parameters,
        };
        let limits = Limits { instructions: 1 << 24, ..Limits::default() };
        let options = Options { schedule, ..Options::default() };
        launch(&module, &mut memory, &what, &limits, &options, &mut Coverage::new())?;
        Ok(words(&memory, d))
    }
}
