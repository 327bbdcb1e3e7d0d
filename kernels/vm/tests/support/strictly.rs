//! A launch by strict rules, in one order of many, and whole numbers for it to work on.

use super::{Parameters, Random, words};
use ptx_vm::{BufferId, Coverage, Launch, Limits, Memory, Module, Options, Schedule, Stop, launch};

/// In the order of the program, then in `drawn` others.
pub fn orders(drawn: u64) -> impl Iterator<Item = Schedule> {
    std::iter::once(Schedule::InOrder).chain((0..drawn).map(Schedule::Seeded))
}

/// Runs an entry of a module's text; what the strict rules find is the error.
pub fn run(
    text: &str,
    entry: &str,
    [blocks, threads]: [u32; 2],
    memory: &mut Memory,
    parameters: &Parameters,
    schedule: Schedule,
) -> Result<(), Stop> {
    let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let what = Launch {
        entry,
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters.0,
    };
    let options = Options { schedule, strict: true, ..Options::default() };
    let limits = Limits { instructions: 50_000_000, ..Limits::default() };
    launch(&module, memory, &what, &limits, &options, &mut Coverage::new()).map(|_| ())
}

pub fn floats(memory: &Memory, b: BufferId) -> Vec<f32> {
    words(memory, b).into_iter().map(f32::from_bits).collect()
}

/// Whole numbers, so that sums are exact in any order.
pub fn whole(count: usize) -> Vec<f32> {
    let mut random = Random(count as u64);
    (0..count).map(|_| (random.next() % 100) as f32).collect()
}
