//! Runs plans on the first NVIDIA GPU, from the same PTX the virtual machine runs. Every buffer lies
//! between guard bands in one piece of device memory; what a run changed is copied back and held
//! against the marks. Without a usable device there is an error that says why, never a panic.
//! Backends on several threads take turns.
//!
//! What the device cannot tell: a store of the very value a byte held is no change, so it is not
//! marked `WRITTEN`; reads leave no trace at all. In a buffer beyond 64 MiB only the pages that the
//! host wrote or marked are copied and compared.

mod driver;

use super::slab::{GUARD, Layout, settle_bytes};
use super::{
    Backend, BackendError, COPYING_RESULTS, Fault, Outcome, RunStats, arguments, entry_of,
    modules::Modules,
};
use crate::arena::Arena;
use crate::call::Call;
use crate::compile;
use crate::launch::{Launch, Plan};
use cudarc::driver::DriverError;
use driver::{Driver, Function, LoadedModule, Prepared};
use ptx_vm::BufferId;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// More memory than this is refused as unsupported.
pub const MEMORY_LIMIT_BYTES: u64 = 8 << 30;

/// Ranges of huge buffers travel in pieces of this size.
const PIECE_BYTES: u64 = 16 << 20;

/// Written before each timed run when the caches are to be cold: more than any L2 holds.
const FLUSH_BYTES: u64 = 192 << 20;

/// The GPU backend.
pub struct CudaBackend {
    driver: Driver,
    modules: Modules,
    loaded: HashMap<String, Loaded>,
    /// The image as uploaded and as downloaded; kept for their allocations.
    before: Vec<u8>,
    after: Vec<u8>,
    lost: Option<String>,
}

/// A case laid out and its launches encoded.
struct Ready {
    layout: Layout,
    launches: Vec<Prepared>,
    /// The plan's scratch, by index.
    scratch: Vec<BufferId>,
}

struct Loaded {
    module: LoadedModule,
    /// By entry: the function and the dynamic shared memory it was allowed.
    functions: HashMap<String, (Function, u32)>,
}

/// How [`CudaBackend::time_ms`] measures.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Runs before the first timed one.
    pub warm_ups: u32,
    /// Timed runs.
    pub runs: u32,
    /// Whether to write over the L2 cache before each run.
    pub cold_cache: bool,
}

impl CudaBackend {
    /// Opens the first device, or says in one paragraph why there is none.
    pub fn new() -> Result<CudaBackend, BackendError> {
        let _turn = driver::turn();
        let driver = Driver::open().map_err(|reason| BackendError::NoDevice { reason })?;
        Ok(CudaBackend {
            driver,
            modules: Modules::default(),
            loaded: HashMap::new(),
            before: Vec::new(),
            after: Vec::new(),
            lost: None,
        })
    }

    /// Name and compute capability of the device.
    pub fn device(&self) -> String {
        self.driver.describe()
    }

    /// Runs the plan again and again on the same memory, and gives each run's time on the device in
    /// milliseconds. The arena keeps what it held, except for the plan's scratch, which is added.
    pub fn time_ms(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
        timing: Timing,
    ) -> Result<Vec<f32>, BackendError> {
        let _turn = driver::turn();
        let flush = if timing.cold_cache { FLUSH_BYTES } else { 0 };
        let Ready { layout, launches, .. } = match self.prepare(call, plan, arena, flush)? {
            Ok(ready) => ready,
            Err(what) => return Err(BackendError::Driver { doing: "timing", message: what }),
        };
        self.stage(&layout, arena)
            .map_err(|error| driver_error("copying a case to the GPU", error))?;
        let flush = layout.total_bytes..layout.total_bytes + flush;
        let measure = || -> Result<Vec<f32>, DriverError> {
            let mut times = Vec::with_capacity(timing.runs as usize);
            for run in 0..timing.warm_ups + timing.runs {
                if !flush.is_empty() {
                    self.driver.fill(flush.clone(), &[run as u8])?;
                }
                let time = self.driver.time_ms(&launches)?;
                if run >= timing.warm_ups {
                    times.push(time);
                }
            }
            Ok(times)
        };
        measure().map_err(|error| {
            let reason = driver::words(error);
            self.lost = Some(reason.clone());
            BackendError::DeviceLost { reason }
        })
    }

    fn check_alive(&self) -> Result<(), BackendError> {
        match &self.lost {
            Some(reason) => Err(BackendError::DeviceLost { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Lays the case out and encodes its launches. The inner error says why it cannot run here.
    fn prepare(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
        spare_bytes: u64,
    ) -> Result<Result<Ready, String>, BackendError> {
        self.check_alive()?;
        let scratch = match arguments::allocate_scratch(plan, arena) {
            Ok(scratch) => scratch,
            Err(what) => return Ok(Err(what)),
        };
        let layout = Layout::of(arena.memory());
        let needed = layout.total_bytes + spare_bytes;
        if needed > MEMORY_LIMIT_BYTES {
            return Ok(Err(format!(
                "needs {needed} bytes of device memory; the limit is {MEMORY_LIMIT_BYTES}"
            )));
        }
        if let Some(placement) = layout.huge().iter().find(|placement| {
            !matches!(arena.memory().fill(placement.buffer).len(), 0 | 1 | 2 | 4 | 8)
        }) {
            let name = arena.memory().name(placement.buffer);
            return Ok(Err(format!(
                "`{name}` is too large to copy and its fill cannot be made on the device"
            )));
        }
        self.driver
            .reserve(needed)
            .map_err(|error| driver_error("allocating device memory", error))?;
        let reach = arguments::Reach { call, scratch: &scratch };
        let mut launches = Vec::with_capacity(plan.launches.len());
        for launch in &plan.launches {
            launches.push(self.prepare_launch(launch, &reach, arena, &layout)?);
        }
        Ok(Ok(Ready { layout, launches, scratch }))
    }

    fn prepare_launch(
        &mut self,
        launch: &Launch,
        reach: &arguments::Reach<'_>,
        arena: &Arena,
        layout: &Layout,
    ) -> Result<Prepared, BackendError> {
        let function = self.function(launch)?;
        let entry = entry_of(self.modules.module(launch.module)?, launch.module, &launch.entry)?;
        let slab = self.driver.slab();
        let address = |buffer: BufferId, offset: u64| slab + layout.position(buffer, offset);
        let mut parameters = Vec::new();
        arguments::encode(entry, launch, reach, arena, &address, &mut parameters)?;
        Ok(Prepared {
            function,
            grid: launch.grid,
            block: launch.block,
            dynamic_shared_bytes: launch.dynamic_shared_bytes,
            parameters,
            offsets: entry
                .parameters()
                .iter()
                .map(|parameter| parameter.offset_bytes as usize)
                .collect(),
        })
    }

    /// The entry's function; its module is compiled for the device once.
    fn function(&mut self, launch: &Launch) -> Result<Function, BackendError> {
        let loaded = match self.loaded.entry(launch.module.to_owned()) {
            Entry::Occupied(present) => present.into_mut(),
            Entry::Vacant(absent) => {
                admit(&self.driver, launch.module)?;
                let text = self.modules.text(launch.module)?;
                let module = self.driver.load(text);
                let module =
                    module.map_err(|error| driver_error("compiling PTX for the GPU", error))?;
                absent.insert(Loaded { module, functions: HashMap::new() })
            }
        };
        let wanted = launch.dynamic_shared_bytes;
        match loaded.functions.get(&*launch.entry) {
            Some((function, allowed)) if *allowed >= wanted => Ok(function.clone()),
            _ => {
                let function = self
                    .driver
                    .function(&loaded.module, &launch.entry, wanted)
                    .map_err(|error| bad_launch(launch, error))?;
                loaded.functions.insert(launch.entry.to_string(), (function.clone(), wanted));
                Ok(function)
            }
        }
    }

    /// Puts the case into device memory.
    fn stage(&mut self, layout: &Layout, arena: &Arena) -> Result<(), DriverError> {
        let memory = arena.memory();
        layout.image(memory, &mut self.before);
        self.driver.upload(0, &self.before)?;
        for guard in layout.huge_guards() {
            self.driver.fill(guard, &[GUARD])?;
        }
        let mut piece = Vec::new();
        for placement in layout.huge() {
            let fill = memory.fill(placement.buffer);
            self.driver.fill(placement.base..placement.base + placement.len_bytes, fill)?;
            for range in pieces(&memory.touched_ranges(placement.buffer)) {
                piece.resize((range.end - range.start) as usize, 0);
                memory.read(placement.buffer, range.start, &mut piece);
                self.driver.upload(placement.base + range.start, &piece)?;
            }
        }
        Ok(())
    }

    /// Runs the launches in order and waits.
    fn execute(
        &mut self,
        plan: &Plan,
        launches: &[Prepared],
    ) -> Result<Option<Fault>, BackendError> {
        for (launch, prepared) in plan.launches.iter().zip(launches) {
            if let Err(error) = self.driver.launch(prepared) {
                // An earlier kernel's fault also answers a later call; only a live context accuses the launch.
                return match self.driver.synchronize() {
                    Ok(()) => Err(bad_launch(launch, error)),
                    Err(error) => Ok(Some(self.lose(plan, error))),
                };
            }
        }
        Ok(self.driver.synchronize().err().map(|error| self.lose(plan, error)))
    }

    /// A fault on the device poisons its context: no further run can be trusted.
    fn lose(&mut self, plan: &Plan, error: DriverError) -> Fault {
        let message = driver::words(error);
        self.lost = Some(message.clone());
        let entries: Vec<&str> = plan.launches.iter().map(|launch| &*launch.entry).collect();
        Fault::Device { code: error.0 as u32, message, entries: entries.join(", ") }
    }

    /// Copies the changes back to the arena; gives the first broken rule.
    fn settle(&mut self, layout: &Layout, arena: &mut Arena) -> Result<Option<Fault>, DriverError> {
        let memory = arena.memory_mut();
        self.after.resize(layout.image_bytes as usize, 0);
        self.driver.download(0, &mut self.after)?;
        let mut fault = layout.settle_image(&self.before, &self.after, memory);
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for guard in layout.huge_guards() {
            new.resize((guard.end - guard.start) as usize, 0);
            self.driver.download(guard.start, &mut new)?;
            fault = fault.or_else(|| layout.guard_fault(guard.start, &new, memory));
        }
        for placement in layout.huge() {
            for range in pieces(&memory.touched_ranges(placement.buffer)) {
                let len = (range.end - range.start) as usize;
                old.resize(len, 0);
                new.resize(len, 0);
                memory.read(placement.buffer, range.start, &mut old);
                self.driver.download(placement.base + range.start, &mut new)?;
                let stray = settle_bytes(placement.buffer, range.start, &old, &new, memory);
                fault = fault.or(stray);
            }
        }
        Ok(fault)
    }

    /// Two replays of the captured launches, each from the case's own memory.
    fn replay(
        &mut self,
        plan: &Plan,
        layout: &Layout,
        launches: &[Prepared],
        arena: &Arena,
    ) -> Result<Option<Fault>, BackendError> {
        let captured = self.driver.capture(launches);
        let graph = match captured.map_err(|error| driver_error("capturing the launches", error))? {
            Some(graph) => graph,
            None => return Err(BackendError::CannotCapture { backend: "cuda" }),
        };
        let mut first = Vec::new();
        for replay in 0..2 {
            self.stage(layout, arena)
                .map_err(|error| driver_error("copying a case to the GPU", error))?;
            let ended = graph.launch().and_then(|()| self.driver.synchronize());
            if let Err(error) = ended {
                return Ok(Some(self.lose(plan, error)));
            }
            let image = if replay == 0 { &mut first } else { &mut self.after };
            image.resize(layout.image_bytes as usize, 0);
            self.driver.download(0, image).map_err(|error| driver_error(COPYING_RESULTS, error))?;
        }
        let difference = layout.first_difference(arena.buffer_count(), &first, &self.after);
        Ok(difference.map(|(buffer, offset_bytes)| {
            let at = layout.position(buffer, offset_bytes) as usize;
            let name = arena.memory().name(buffer).to_owned();
            Fault::Replay { buffer: name, offset_bytes, first: first[at], second: self.after[at] }
        }))
    }

    fn run_by(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
        captured: bool,
    ) -> Result<Outcome, BackendError> {
        let _turn = driver::turn();
        let Ready { layout, launches, scratch } = match self.prepare(call, plan, arena, 0)? {
            Ok(ready) => ready,
            Err(what) => {
                return Ok(Outcome::Unsupported { what, where_: "the cuda backend".to_owned() });
            }
        };
        let fault = if launches.is_empty() {
            return Ok(Outcome::Ran(RunStats::default()));
        } else if captured {
            self.replay(plan, &layout, &launches, arena)?
        } else {
            self.stage(&layout, arena)
                .map_err(|error| driver_error("copying a case to the GPU", error))?;
            self.execute(plan, &launches)?
        };
        if self.lost.is_none() {
            let broken = self
                .settle(&layout, arena)
                .map_err(|error| driver_error(COPYING_RESULTS, error))?;
            let residue = || arguments::residue(plan, &scratch, arena);
            if let Some(fault) = fault.or(broken).or_else(residue) {
                return Ok(Outcome::Fault(fault));
            }
        } else if let Some(fault) = fault {
            return Ok(Outcome::Fault(fault));
        }
        Ok(Outcome::Ran(RunStats { launches: launches.len() as u64, instructions: 0 }))
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        let _turn = driver::turn();
        self.loaded.clear();
        // After a lost context freeing fails, and the process's end frees all.
        let _ = self.driver.release();
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn run(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
    ) -> Result<Outcome, BackendError> {
        self.run_by(call, plan, arena, false)
    }

    fn replace_module(&mut self, stem: &str, ptx: &str) -> Result<(), BackendError> {
        self.modules.replace(stem, ptx)?;
        let _turn = driver::turn();
        self.loaded.remove(stem);
        Ok(())
    }

    fn restore_modules(&mut self) {
        let replaced = self.modules.restore();
        let _turn = driver::turn();
        self.loaded.retain(|stem, _| !replaced.contains(stem));
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
        self.run_by(call, plan, arena, true)
    }
}

/// Cuts ranges into pieces that fit a small host buffer.
fn pieces(ranges: &[Range<u64>]) -> impl Iterator<Item = Range<u64>> {
    ranges.iter().flat_map(|range| {
        let end = range.end;
        (range.start..end)
            .step_by(PIECE_BYTES as usize)
            .map(move |start| start..(start + PIECE_BYTES).min(end))
    })
}

/// Refuses a module written for another generation of GPUs than the device's.
fn admit(driver: &Driver, module: &str) -> Result<(), BackendError> {
    let Some(demanded) = compile::only_on(module) else { return Ok(()) };
    let found = driver.compute_capability();
    let found = found.map_err(|error| driver_error("asking for the compute capability", error))?;
    if found == demanded {
        return Ok(());
    }
    Err(BackendError::OtherDevice { module: module.to_owned(), demanded, found })
}

fn driver_error(doing: &'static str, error: DriverError) -> BackendError {
    BackendError::Driver { doing, message: driver::words(error) }
}

fn bad_launch(launch: &Launch, error: DriverError) -> BackendError {
    BackendError::BadLaunch { entry: launch.entry.to_string(), why: driver::words(error) }
}
