//! A GPU as its host sees one, emulated by the virtual machine: all buffers between guard bands in one
//! piece of memory, in which nothing is checked, and what a run changed found by comparison. Replays of
//! captured launches take blocks and warps in other orders than an eager run, as a GPU may. So the rules
//! that only a GPU's runs are held to can be shown where there is none; production kernels go to a real
//! one.

use super::slab::Layout;
use super::{
    Backend, BackendError, Fault, Outcome, RunStats, arguments, entry_of, modules::Modules,
};
use crate::arena::Arena;
use crate::call::Call;
use crate::launch::Plan;
use ptx_vm::{BufferId, Limits, Memory, Options, Schedule, Stop, marks};

/// The emulated GPU.
pub struct EmulatedGpu {
    limits: Limits,
    modules: Modules,
}

/// A launch with its parameters as they were when it was made or captured.
struct Prepared<'a> {
    module: &'static str,
    entry: &'a str,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared_bytes: u32,
    parameters: Vec<u8>,
}

impl EmulatedGpu {
    /// A GPU that gives up a launch after this many warp instructions.
    pub fn new(instructions: u64) -> EmulatedGpu {
        let limits = Limits { instructions, ..Limits::default() };
        EmulatedGpu { limits, modules: Modules::default() }
    }

    /// The launches with the addresses of a piece of memory laid out so.
    fn prepare<'a>(
        &mut self,
        call: &Call,
        plan: &'a Plan,
        scratch: &[BufferId],
        (layout, arena): (&Layout, &Arena),
    ) -> Result<Vec<Prepared<'a>>, BackendError> {
        let reach = arguments::Reach { call, scratch };
        // Every piece of memory is the only buffer of its own, so their addresses are alike.
        let start = slab(&[]).1;
        let address = |buffer: BufferId, offset: u64| start + layout.position(buffer, offset);
        let mut prepared = Vec::with_capacity(plan.launches.len());
        for launch in &plan.launches {
            let module = self.modules.module_of(launch.module, &launch.entry)?;
            let entry = entry_of(module, launch.module, &launch.entry)?;
            let mut parameters = Vec::new();
            arguments::encode(entry, launch, &reach, arena, &address, &mut parameters)?;
            prepared.push(Prepared {
                module: launch.module,
                entry: &launch.entry,
                grid: launch.grid,
                block: launch.block,
                dynamic_shared_bytes: launch.dynamic_shared_bytes,
                parameters,
            });
        }
        Ok(prepared)
    }

    /// Runs the launches on this image; what it holds afterwards, or how the GPU stopped.
    fn execute(
        &mut self,
        launches: &[Prepared<'_>],
        image: &[u8],
        schedule: Schedule,
    ) -> Result<Result<Vec<u8>, Outcome>, BackendError> {
        let (mut memory, _) = slab(image);
        let options = Options { checks: false, schedule, ..Options::default() };
        let mut coverage = ptx_vm::Coverage::new();
        for launch in launches {
            let module = self.modules.module_of(launch.module, launch.entry)?;
            let machine_launch = ptx_vm::Launch {
                entry: launch.entry,
                grid: launch.grid,
                block: launch.block,
                dynamic_shared_bytes: launch.dynamic_shared_bytes,
                parameters: &launch.parameters,
            };
            let ended = ptx_vm::launch(
                module,
                &mut memory,
                &machine_launch,
                &self.limits,
                &options,
                &mut coverage,
            );
            let entry = launch.entry.to_owned();
            match ended {
                Ok(_) => {}
                Err(Stop::Fault(fault)) => {
                    let message = fault.to_string();
                    let fault = Fault::Device { code: 0, message, entries: entry };
                    return Ok(Err(Outcome::Fault(fault)));
                }
                Err(Stop::Unsupported { what, .. }) => {
                    return Ok(Err(Outcome::Unsupported { what, where_: entry }));
                }
                Err(Stop::BadLaunch(error)) => {
                    return Err(BackendError::BadLaunch { entry, why: error.to_string() });
                }
            }
        }
        let mut after = vec![0; image.len()];
        memory.read(BufferId(0), 0, &mut after);
        Ok(Ok(after))
    }

    fn run_by(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
        schedules: &[Schedule],
    ) -> Result<Outcome, BackendError> {
        let unsupported = |what| Outcome::Unsupported { what, where_: "the plan".to_owned() };
        let scratch = match arguments::allocate_scratch(plan, arena) {
            Ok(scratch) => scratch,
            Err(what) => return Ok(unsupported(what)),
        };
        let layout = Layout::of(arena.memory());
        if !layout.huge().is_empty() {
            return Ok(unsupported("a buffer too large to be copied".to_owned()));
        }
        let launches = self.prepare(call, plan, &scratch, (&layout, arena))?;
        let mut before = Vec::new();
        layout.image(arena.memory(), &mut before);
        let (mut after, mut fault) = (None::<Vec<u8>>, None);
        for schedule in schedules {
            let image = match self.execute(&launches, &before, *schedule)? {
                Ok(image) => image,
                Err(outcome) => return Ok(outcome),
            };
            let earlier = after.replace(image);
            let (Some(first), Some(second)) = (&earlier, &after) else { continue };
            let difference = layout.first_difference(arena.buffer_count(), first, second);
            fault = fault.or(difference.map(|(buffer, offset_bytes)| {
                let at = layout.position(buffer, offset_bytes) as usize;
                let buffer = arena.memory().name(buffer).to_owned();
                Fault::Replay { buffer, offset_bytes, first: first[at], second: second[at] }
            }));
        }
        let after = after.unwrap_or_else(|| before.clone());
        let broken = layout.settle_image(&before, &after, arena.memory_mut());
        let residue = || arguments::residue(plan, &scratch, arena);
        Ok(match fault.or(broken).or_else(residue) {
            Some(fault) => Outcome::Fault(fault),
            None => Outcome::Ran(RunStats { launches: launches.len() as u64, instructions: 0 }),
        })
    }
}

/// Memory that holds this image, and its address.
fn slab(image: &[u8]) -> (Memory, u64) {
    let mut memory = Memory::new();
    let buffer = memory.allocate("device", image.len() as u64, &[], marks::INIT);
    memory.write(buffer, 0, image);
    let address = memory.address(buffer, 0);
    (memory, address)
}

impl Backend for EmulatedGpu {
    fn name(&self) -> &'static str {
        "emulated"
    }

    fn run(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
    ) -> Result<Outcome, BackendError> {
        self.run_by(call, plan, arena, &[Schedule::InOrder])
    }

    fn replace_module(&mut self, stem: &str, ptx: &str) -> Result<(), BackendError> {
        Ok(self.modules.replace(stem, ptx)?)
    }

    fn restore_modules(&mut self) {
        self.modules.restore();
    }

    fn captures(&self) -> bool {
        true
    }

    fn run_captured(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
    ) -> Result<Outcome, BackendError> {
        self.run_by(call, plan, arena, &[Schedule::Seeded(1), Schedule::Seeded(2)])
    }
}
