//! Launches of any kernel with small budgets, in ways whose results have to agree.

use arbitrary::Arbitrary;
use ptx_vm::{
    BufferId, Coverage, Entry, FaultKind, Launch, LaunchError, Limits, Memory, Module, Options,
    Schedule, Stats, Stop, Swizzle, TENSOR_MAP_BYTES, TensorMap, TensorType, Watch, launch,
    launch_watched, marks, portably,
};

/// How a kernel is launched. Small numbers stand for themselves, large ones for what no GPU takes.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub struct Setup {
    grid: [u8; 3],
    block: [u8; 3],
    dynamic_shared: u8,
    cluster: u8,
    /// What each parameter holds.
    parameters: [u8; 12],
    /// Of the schedule in another order.
    seed: u16,
    strict: bool,
    unchecked: bool,
    budget: u8,
    /// What else is compared.
    also: u8,
}

const EXTENTS: [u32; 8] = [0, 64, 96, 1024, 65_535, 65_536, i32::MAX as u32, u32::MAX];
const SMALL_BYTES: u64 = 4096;
const LARGE_BYTES: u64 = 1 << 33;

/// Everything a launch gives.
#[derive(Debug, PartialEq)]
struct Outcome {
    result: Result<Stats, Stop>,
    coverage: Coverage,
    contents: Vec<Vec<u8>>,
}

/// Launches every kernel of a module; where no register is read before it is set, simplifications of the
/// program are compared as well.
///
/// # Panics
/// When two ways to run it disagree.
pub fn module(text: &str, setup: &Setup, initialised: bool) {
    let Ok(module) = Module::parse(text) else { return };
    for entry in module.entries().take(4) {
        kernel(text, &module, entry, setup, initialised);
    }
}

fn kernel(text: &str, module: &Module, entry: &Entry, setup: &Setup, initialised: bool) {
    let options = Options {
        checks: !setup.unchecked,
        strict: setup.strict,
        cluster: setup.cluster(),
        ..Options::default()
    };
    let outcome = setup.run(module, entry, &options, false);
    let portable = portably(|| {
        let module = Module::parse(text).expect("it was parsed before");
        let entry = module.entry(entry.name()).expect("it was there before");
        setup.run(&module, entry, &options, false)
    });
    assert_eq!(outcome, portable, "the builds of the loop disagree");
    let seeded = Options { schedule: Schedule::Seeded(setup.seed.into()), ..options };
    drop(setup.run(module, entry, &seeded, false));
    match setup.also % 4 {
        0 => {
            let watched = setup.run(module, entry, &options, true);
            assert_eq!(outcome, watched, "a watched launch differs");
        }
        1 if initialised => plain(text, entry, setup, &options, outcome),
        _ => {}
    }
}

/// Simplifications change no result. They change the number of instructions and registers, and so what
/// a budget or a clock makes of it.
fn plain(text: &str, entry: &Entry, setup: &Setup, options: &Options, outcome: Outcome) {
    let module = Module::parse_plainly(text).expect("it was parsed before");
    let entry = module.entry(entry.name()).expect("it was there before");
    let plain = setup.run(&module, entry, options, false);
    let counts = |outcome: &Outcome| match &outcome.result {
        Err(Stop::Fault(fault)) => matches!(fault.kind, FaultKind::InstructionBudget { .. }),
        Err(Stop::BadLaunch(error)) => matches!(error, LaunchError::TooMuchMemory { .. }),
        _ => false,
    };
    if counts(&outcome)
        || counts(&plain)
        || text.contains("%clock")
        || text.contains("%globaltimer")
    {
        return;
    }
    let [outcome, plain] = [outcome, plain].map(|mut outcome| {
        if let Ok(stats) = &mut outcome.result {
            stats.warp_instructions = 0;
        }
        outcome
    });
    assert_eq!(outcome, plain, "a simplification changes the result");
}

impl Setup {
    fn run(&self, module: &Module, entry: &Entry, options: &Options, watched: bool) -> Outcome {
        let mut memory = Memory::new();
        memory.limit_touched(4 << 20);
        let whole: Vec<u8> = (0..SMALL_BYTES).map(|i| ((i * 37) >> 3) as u8).collect();
        let inputs = memory.allocate("inputs", SMALL_BYTES, &[], marks::UNWRITABLE);
        memory.write(inputs, 0, &whole);
        memory.mark(inputs, 2048..2304, marks::UNREAD, 0);
        let both = memory.allocate("both", SMALL_BYTES, &[3, 0, 0, 0], marks::INIT);
        let fresh = memory.allocate("fresh", SMALL_BYTES, &[0xa5], 0);
        memory.mark(fresh, 0..256, marks::SAME_VALUE, 0);
        let large = memory.allocate("large", LARGE_BYTES, &[1, 2, 3], marks::INIT);
        let parameters = self.parameters(entry, &memory, [both, inputs, fresh, large]);
        let limits = Limits {
            instructions: 1 << (4 + self.budget % 10),
            multiprocessors: 2,
            resident_bytes: 32 << 20,
            ..Limits::default()
        };
        let what = Launch {
            entry: entry.name(),
            grid: extents(self.grid, 3),
            block: extents(self.block, 48),
            dynamic_shared_bytes: match self.dynamic_shared {
                n @ 0..=247 => u32::from(n) * 8,
                n => u32::MAX >> (n % 32),
            },
            parameters: &parameters,
        };
        let mut coverage = Coverage::new();
        let result = if watched {
            let mut watch = Watch::new();
            watch.add(&memory, both, 0..SMALL_BYTES);
            watch.add(&memory, fresh, 0..64);
            launch_watched(module, &mut memory, &what, &limits, options, &mut coverage, &mut watch)
        } else {
            launch(module, &mut memory, &what, &limits, options, &mut coverage)
        };
        if let Err(stop) = &result {
            assert!(!stop.to_string().is_empty());
        }
        for entry in module.entries() {
            if let Some(counts) = coverage.entry(entry.name()) {
                drop((counts.block_hits(entry), entry.reachable_blocks()));
            }
        }
        let contents = [both, inputs, fresh].map(|buffer| {
            let mut bytes = vec![0; SMALL_BYTES as usize];
            memory.read(buffer, 0, &mut bytes);
            bytes
        });
        Outcome { result, coverage, contents: contents.into() }
    }

    /// Most launches have none; some of the others are more than a GPU takes.
    fn cluster(&self) -> Option<[u32; 3]> {
        match self.cluster {
            0..=179 => None,
            n @ 180..=239 => Some([1 + u32::from(n) % 3, 1 + u32::from(n) / 3 % 2, 1]),
            n => Some([EXTENTS[usize::from(n) % 8], 1, 1 + u32::from(n) % 16]),
        }
    }

    /// Pointers, also wrong ones, small numbers and tensor maps.
    fn parameters(&self, entry: &Entry, memory: &Memory, buffers: [BufferId; 4]) -> Vec<u8> {
        let mut bytes = vec![0; entry.parameter_bytes() as usize];
        for (i, parameter) in entry.parameters().iter().enumerate() {
            let choice = u64::from(self.parameters[i % self.parameters.len()]);
            let at = parameter.offset_bytes as usize;
            if u64::from(parameter.size_bytes) == TENSOR_MAP_BYTES as u64 {
                let address = memory.address(buffers[(choice % 4) as usize], 0);
                if let (Ok(map), Some(to)) =
                    (tensor_map(choice, address).encode(), bytes.get_mut(at..at + TENSOR_MAP_BYTES))
                {
                    to.copy_from_slice(&map);
                }
                continue;
            }
            let value = match (parameter.size_bytes, choice) {
                (8, 0..=235) => {
                    memory.address(buffers[((choice + i as u64) % 4) as usize], choice / 32 * 16)
                }
                (8, 236..=245) => choice - 236,
                (8, _) => memory.address(buffers[3], LARGE_BYTES).wrapping_add(choice << 57),
                (_, 0..=235) => choice,
                (_, 236..=245) => u64::from(1.5f32.to_bits()),
                (_, _) => u64::MAX >> (choice % 8),
            };
            let len = bytes.len().saturating_sub(at).min(parameter.size_bytes.min(8) as usize);
            bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        bytes
    }
}

/// Maps of one to five dimensions over a buffer, also beyond it, and a few that no driver encodes.
fn tensor_map(choice: u64, address: u64) -> TensorMap {
    let (ty, dims, strides, box_dims): (_, &[u64], &[u64], &[u32]) = match choice / 4 % 8 {
        0 | 1 => (TensorType::U32, &[16, 16], &[64], &[8, 8]),
        2 => (TensorType::F32, &[256], &[], &[64]),
        3 => (TensorType::Bf16, &[32, 8, 4], &[64, 512], &[8, 4, 2]),
        4 => (TensorType::F16, &[8, 2, 2, 2, 3], &[16, 32, 64, 128], &[8, 2, 1, 2, 3]),
        5 => (TensorType::U8, &[1 << 32, 1 << 20], &[1 << 33], &[16, 16]),
        6 => (TensorType::F64, &[31, 9], &[256], &[2, 255]),
        _ => (TensorType::U32, &[3, 5], &[16], &[3, 5]),
    };
    let mut map = TensorMap::tiled(ty, address, dims, strides, box_dims);
    map.swizzle =
        [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128][(choice / 64) as usize];
    if choice % 32 == 5 {
        map.element_strides[0] = 2;
    }
    map
}

fn extents(bytes: [u8; 3], along_x: u32) -> [u32; 3] {
    let mut axis = 0;
    bytes.map(|byte| {
        axis += 1;
        match u32::from(byte) {
            200..=249 if axis == 1 && along_x > 32 => 128,
            n @ 0..=249 => 1 + n % if axis == 1 { along_x } else { 2 },
            n => EXTENTS[n as usize % 8],
        }
    })
}
