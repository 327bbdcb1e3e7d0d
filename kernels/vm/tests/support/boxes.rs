//! A kernel around some code that copies boxes of a tensor, and its launch.

use super::Parameters;
use ptx_vm::{
    BufferId, Coverage, Fault, Launch, Limits, Memory, Module, Options, Schedule, Stop, TensorMap,
    TensorType, launch, marks,
};

/// A kernel of 64 threads, a block each row of the grid: `%rd1` the map, `%rd2` 1024 words `d`, `%r1`
/// tid, `%r2` ctaid, `%r3` 4 KiB of shared memory, `%r4` an mbarrier, `%p1`: tid is 0.
pub fn kernel(body: &str) -> String {
    format!(
        ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry t(.param .align 64 .b8 map[128], .param .u64 d)\n{{\n\
         .reg .pred %p<9>;.reg .b16 %rs<4>;.reg .b32 %r<40>;.reg .b64 %rd<20>;.shared .align 1024 .b8 s[4096];.shared .align 8 .b64 m;\n\
         mov.b64 %rd1, map;cvta.param.u64 %rd1, %rd1;ld.param.u64 %rd2, [d];mov.u32 %r1, %tid.x;mov.u32 %r2, %ctaid.x;\n\
         mov.u32 %r3, s;mov.u32 %r4, m;setp.eq.u32 %p1, %r1, 0;\n{body}\nret;\n}}\n"
    )
}

pub struct Setup {
    pub memory: Memory,
    pub x: BufferId,
    pub d: BufferId,
}

/// `x`: 16 lines of 64 words, the number of each; `d`: zeros.
pub fn setup() -> Setup {
    let mut memory = Memory::new();
    let x = memory.allocate("x", 4096, &[], 0);
    let values: Vec<u8> = (0..1024u32).flat_map(u32::to_le_bytes).collect();
    memory.write(x, 0, &values);
    let d = memory.allocate("d", 4096, &[0], marks::INIT);
    Setup { memory, x, d }
}

/// Boxes of 4 lines of 8 words of `x`.
pub fn map(setup: &Setup) -> TensorMap {
    let address = setup.memory.address(setup.x, 0);
    TensorMap::tiled(TensorType::U32, address, &[64, 16], &[256], &[8, 4])
}

pub fn go(
    setup: &mut Setup,
    map: &TensorMap,
    body: &str,
    blocks: u32,
    options: &Options,
) -> Result<(), Stop> {
    let module = Module::parse(&kernel(body)).unwrap_or_else(|error| panic!("{body}: {error}"));
    let mut parameters = map.encode().unwrap().to_vec();
    parameters.extend(Parameters::default().u64(setup.memory.address(setup.d, 0)).0);
    let what = Launch {
        entry: "t",
        grid: [blocks, 1, 1],
        block: [64, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let limits = Limits { instructions: 3_000_000, ..Limits::default() };
    launch(&module, &mut setup.memory, &what, &limits, options, &mut Coverage::new()).map(|_| ())
}

#[track_caller]
pub fn silent(map_of: impl Fn(&Setup) -> TensorMap, body: &str, blocks: u32) -> Setup {
    for schedule in [Schedule::Seeded(1), Schedule::Seeded(2), Schedule::InOrder] {
        let mut setup = setup();
        let map = map_of(&setup);
        let options = Options { schedule, ..Options::default() };
        go(&mut setup, &map, body, blocks, &options)
            .unwrap_or_else(|stop| panic!("{body}: {stop}"));
        if schedule == Schedule::InOrder {
            return setup;
        }
    }
    setup()
}

#[track_caller]
pub fn fault(map_of: impl Fn(&Setup) -> TensorMap, body: &str) -> Fault {
    let mut setup = setup();
    let map = map_of(&setup);
    match go(&mut setup, &map, body, 1, &Options::default()) {
        Err(Stop::Fault(fault)) => *fault,
        other => panic!("{body}: {other:?}"),
    }
}
