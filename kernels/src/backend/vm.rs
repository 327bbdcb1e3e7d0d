//! Runs plans on the PTX virtual machine: every access checked against the arena's marks, races and
//! barriers checked, branch edges counted. The same case gives the same outcome on every host.

use super::modules::Modules;
use super::{Backend, BackendError, Fault, Outcome, RunStats, arguments, entry_of};
use crate::arena::Arena;
use crate::call::Call;
use crate::launch::Plan;
use crate::ptx;
use contracts::case::Schedule;
pub use ptx_vm::guidance;
use ptx_vm::{BufferId, Lcov, Limits, Options, Stop, Watch};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Warp instructions one launch may take before it counts as endless: some seconds, and far more
/// than any generated case needs.
pub const INSTRUCTION_BUDGET: u64 = 1 << 28;

/// The virtual machine as a backend.
pub struct VmBackend {
    limits: Limits,
    options: Options,
    modules: Modules,
    coverage: Coverage,
    /// What replaced modules reached: their edges are not those of the kernels.
    replaced: ptx_vm::Coverage,
    parameters: Vec<u8>,
    launches: u64,
}

/// What launches reached of the checked-in modules, by module and entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    modules: BTreeMap<&'static str, ptx_vm::Coverage>,
}

impl VmBackend {
    /// A machine with every check on, and [`INSTRUCTION_BUDGET`] for each launch.
    pub fn new() -> VmBackend {
        let limits = Limits { instructions: INSTRUCTION_BUDGET, ..Limits::default() };
        VmBackend::with(limits, Options::default())
    }

    /// A machine with other limits or checks.
    pub fn with(limits: Limits, options: Options) -> VmBackend {
        VmBackend {
            limits,
            options,
            modules: Modules::default(),
            coverage: Coverage::new(),
            replaced: ptx_vm::Coverage::new(),
            parameters: Vec::new(),
            launches: 0,
        }
    }

    /// What was reached so far.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// From now on, runs `ptx` for this one entry of module `stem`, and the checked-in text for its
    /// other entries: a mutant of one entry is parsed without its many neighbours.
    ///
    /// # Errors
    /// When `ptx` cannot be parsed.
    pub fn replace_entry(
        &mut self,
        stem: &str,
        entry: &str,
        ptx: String,
    ) -> Result<(), BackendError> {
        self.replaced = ptx_vm::Coverage::new();
        Ok(self.modules.replace_entry(stem, entry, ptx)?)
    }

    /// Launches so far, of all runs.
    pub fn launches(&self) -> u64 {
        self.launches
    }

    fn run_plan(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
        mut watch: Option<&mut Watch>,
    ) -> Result<Outcome, BackendError> {
        let scratch = match arguments::allocate_scratch(plan, arena) {
            Ok(scratch) => scratch,
            Err(what) => return Ok(Outcome::Unsupported { what, where_: "the plan".to_owned() }),
        };
        let reach = arguments::Reach { call, scratch: &scratch };
        let mut stats = RunStats::default();
        for launch in &plan.launches {
            let module = self.modules.module_of(launch.module, &launch.entry)?;
            let entry = entry_of(module, launch.module, &launch.entry)?;
            let memory = arena.memory();
            let address = |buffer: BufferId, offset: u64| memory.address(buffer, offset);
            arguments::encode(entry, launch, &reach, arena, &address, &mut self.parameters)?;
            let machine_launch = ptx_vm::Launch {
                entry: &launch.entry,
                grid: launch.grid,
                block: launch.block,
                dynamic_shared_bytes: launch.dynamic_shared_bytes,
                parameters: &self.parameters,
            };
            let coverage = if self.modules.is_replaced(launch.module) {
                &mut self.replaced
            } else {
                self.coverage.modules.entry(launch.module).or_default()
            };
            self.launches += 1;
            let memory = arena.memory_mut();
            let (limits, options) = (&self.limits, &self.options);
            let result = match watch.as_deref_mut() {
                None => ptx_vm::launch(module, memory, &machine_launch, limits, options, coverage),
                Some(watch) => ptx_vm::launch_watched(
                    module,
                    memory,
                    &machine_launch,
                    limits,
                    options,
                    coverage,
                    watch,
                ),
            };
            match result {
                Ok(cost) => {
                    stats.launches += 1;
                    stats.instructions += cost.warp_instructions;
                }
                Err(Stop::Fault(fault)) => return Ok(Outcome::Fault(Fault::Machine(fault))),
                Err(Stop::Unsupported { what, ptx_line, source }) => {
                    let mut where_ = format!("{}.ptx line {ptx_line}", launch.module);
                    if let Some(source) = source {
                        where_.push_str(&format!(", {source}"));
                    }
                    return Ok(Outcome::Unsupported { what, where_ });
                }
                Err(Stop::BadLaunch(error)) => {
                    return Err(BackendError::BadLaunch {
                        entry: launch.entry.to_string(),
                        why: error.to_string(),
                    });
                }
            }
        }
        match arguments::residue(plan, &scratch, arena) {
            Some(fault) => Ok(Outcome::Fault(fault)),
            None => Ok(Outcome::Ran(stats)),
        }
    }
}

impl Default for VmBackend {
    fn default() -> Self {
        VmBackend::new()
    }
}

impl Backend for VmBackend {
    fn name(&self) -> &'static str {
        "vm"
    }

    fn run(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
    ) -> Result<Outcome, BackendError> {
        self.run_plan(call, plan, arena, None)
    }

    fn order(&mut self, schedule: Schedule) {
        self.options.schedule = match schedule {
            Schedule::InOrder => ptx_vm::Schedule::InOrder,
            Schedule::Seeded(seed) => ptx_vm::Schedule::Seeded(seed),
        };
    }

    fn orders(&self) -> bool {
        true
    }

    fn run_watched(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
        watch: &mut Watch,
    ) -> Result<Option<Outcome>, BackendError> {
        self.run_plan(call, plan, arena, Some(watch)).map(Some)
    }

    fn reached(&self) -> Option<&Coverage> {
        Some(&self.coverage)
    }

    fn replace_module(&mut self, stem: &str, ptx: &str) -> Result<(), BackendError> {
        self.replaced = ptx_vm::Coverage::new();
        Ok(self.modules.replace(stem, ptx)?)
    }

    fn restore_modules(&mut self) {
        self.modules.restore();
    }
}

impl Coverage {
    /// Nothing reached.
    pub fn new() -> Coverage {
        Coverage::default()
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Coverage) {
        for (stem, theirs) in &other.modules {
            self.modules.entry(stem).or_default().merge(theirs);
        }
    }

    /// What was reached, by module.
    pub fn modules(&self) -> impl Iterator<Item = (&'static str, &ptx_vm::Coverage)> {
        self.modules.iter().map(|(stem, coverage)| (*stem, coverage))
    }

    /// Branch edges taken at least once, of all entries launched.
    pub fn edges(&self) -> usize {
        self.counted_edges().filter(|hits| *hits > 0).count()
    }

    /// Branch edges of all entries launched.
    pub fn edges_in_all(&self) -> usize {
        self.counted_edges().count()
    }

    fn counted_edges(&self) -> impl Iterator<Item = u64> {
        let entries = self.modules.values().flat_map(ptx_vm::Coverage::entries);
        entries.flat_map(|(_, entry)| entry.edges.iter().copied())
    }

    /// The reach in a few words.
    pub fn headline(&self) -> String {
        let entries: usize = self.modules.values().map(|coverage| coverage.entries().count()).sum();
        format!("{} of {} PTX branch edges in {entries} entries", self.edges(), self.edges_in_all())
    }

    /// Every basic block of every entry launched: hits, PTX line, label and source line. Modules
    /// whose PTX can no longer be read are left out.
    pub fn by_block(&self) -> impl fmt::Display {
        ByBlock(self.clone())
    }
}

/// Executed and unexecuted lines as an lcov tracefile: PTX and sources of every entry launched, by
/// their paths in the repository at `root`. Modules whose PTX can no longer be read are left out.
pub fn lcov<'a>(coverage: impl IntoIterator<Item = &'a Coverage>, root: &Path) -> Lcov {
    let mut lcov = Lcov::new();
    let kernels = root.join("kernels");
    for coverage in coverage {
        for (stem, counts) in &coverage.modules {
            let Ok(module) = ptx::module(stem) else { continue };
            let ptx = kernels.join("ptx").join(format!("{stem}.ptx"));
            lcov.add(&ptx.display().to_string(), module, counts, |file| {
                kernels.join("cuda").join(file).display().to_string()
            });
        }
    }
    lcov
}

struct ByBlock(Coverage);

impl fmt::Display for ByBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (stem, coverage) in &self.0.modules {
            let Ok(module) = ptx::module(stem) else { continue };
            for (name, counts) in coverage.entries() {
                let Some(entry) = module.entry(name) else { continue };
                writeln!(f, "{stem}.ptx {name}: {} blocks launched", counts.launched)?;
                for (block, hits) in entry.blocks().iter().zip(counts.block_hits(entry)) {
                    write!(f, "{hits:>14}  line {:<6}", block.ptx_line)?;
                    if let Some(source) = &block.source {
                        write!(f, " {}:{}", source.file, source.line)?;
                    }
                    if let Some(label) = &block.label {
                        write!(f, " {label}")?;
                    }
                    writeln!(f)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::TensorArg;
    use crate::launch::{Argument, Launch, Scratch};
    use contracts::dtype::{DType, Poison};
    use ptx_vm::marks;

    /// to[i] = from[i] + 1 for i < n.
    const PTX: &str = "
.version 9.0
.target sm_80
.address_size 64
.visible .entry copy(
	.param .u64 copy_param_0,
	.param .u64 copy_param_1,
	.param .u32 copy_param_2
)
{
	.reg .pred %p<2>;
	.reg .b32 %r<6>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [copy_param_0];
	ld.param.u64 %rd2, [copy_param_1];
	ld.param.u32 %r1, [copy_param_2];
	mov.u32 %r2, %tid.x;
	setp.ge.u32 %p1, %r2, %r1;
	@%p1 bra DONE;
	cvta.to.global.u64 %rd3, %rd1;
	cvta.to.global.u64 %rd4, %rd2;
	mul.wide.u32 %rd5, %r2, 4;
	add.s64 %rd6, %rd3, %rd5;
	add.s64 %rd7, %rd4, %rd5;
	ld.global.u32 %r3, [%rd6];
	add.s32 %r4, %r3, 1;
	st.global.u32 [%rd7], %r4;
DONE:
	ret;
}
";

    fn tensor(buffer: u32) -> TensorArg {
        TensorArg {
            dtype: DType::I32,
            shape: vec![4],
            strides: vec![1],
            buffer,
            offset_bytes: 0,
            kind: None,
        }
    }

    fn launch(from: Argument, to: Argument, count: u32) -> Launch {
        Launch {
            module: "copy",
            entry: "copy".into(),
            grid: [1, 1, 1],
            block: [32, 1, 1],
            dynamic_shared_bytes: 0,
            arguments: vec![from, to, Argument::U32(count)],
        }
    }

    /// x and y of four elements; x holds 10, 11, 12, 13 and is read-only.
    fn case(y_bytes: u64) -> (Call, Arena, VmBackend) {
        let mut backend = VmBackend::new();
        backend.replace_module("copy", PTX).expect("the PTX parses");
        let mut arena = Arena::new();
        arena.set_poison(Poison::Large);
        let x = arena.add_buffer("x", 16, &[], marks::UNWRITABLE);
        let y = arena.add_buffer("y", y_bytes, &[0xa5], 0);
        let bytes: Vec<u8> = (10i32..14).flat_map(i32::to_le_bytes).collect();
        arena.memory_mut().write(BufferId(x), 0, &bytes);
        let call = Call {
            tensors: vec![("x".to_owned(), tensor(x)), ("y".to_owned(), tensor(y))],
            ..Call::default()
        };
        (call, arena, backend)
    }

    fn through_scratch(first: u32, second: u32) -> Plan {
        Plan {
            scratch: vec![Scratch { name: "s", dtype: DType::I32, shape: vec![4], zeroed: false }],
            launches: vec![
                launch(Argument::Tensor("x"), Argument::Scratch(0), first),
                launch(Argument::Scratch(0), Argument::Tensor("y"), second),
            ],
        }
    }

    #[test]
    fn launches_run_in_order_and_leave_their_results() {
        let (call, mut arena, mut backend) = case(16);
        let outcome =
            backend.run(&call, &through_scratch(4, 3), &mut arena).expect("the tool works");
        let Outcome::Ran(stats) = outcome else { panic!("did not run: {outcome:?}") };
        assert_eq!((stats.launches, backend.launches()), (2, 2));
        assert!(stats.instructions > 0);
        let mut bytes = [0; 16];
        arena.memory().read(BufferId(1), 0, &mut bytes);
        let expected: Vec<u8> =
            [12, 13, 14].into_iter().flat_map(i32::to_le_bytes).chain([0xa5; 4]).collect();
        assert_eq!(bytes[..], expected);
        assert_eq!(arena.memory().written_ranges(BufferId(1)), vec![0..12]);
        assert_eq!(backend.coverage(), &Coverage::new(), "a replacement is not the kernel");
    }

    #[test]
    fn scratch_is_uninitialised() {
        let (call, mut arena, mut backend) = case(16);
        let outcome =
            backend.run(&call, &through_scratch(2, 3), &mut arena).expect("the tool works");
        let Outcome::Fault(fault) = outcome else { panic!("no fault: {outcome:?}") };
        assert!(
            matches!(&fault, Fault::Machine(fault) if matches!(fault.kind, ptx_vm::FaultKind::Uninitialised { .. }))
        );
        assert!(fault.to_string().contains("ld.global.u32"), "{fault}");
    }

    #[test]
    fn the_arena_ends_where_its_buffers_end() {
        let (call, mut arena, mut backend) = case(12);
        let outcome =
            backend.run(&call, &through_scratch(4, 4), &mut arena).expect("the tool works");
        let Outcome::Fault(fault) = outcome else { panic!("no fault: {outcome:?}") };
        assert!(fault.to_string().contains('y'), "{fault}");
    }

    #[test]
    fn a_plan_the_module_does_not_know_is_the_tools_error() {
        let (call, mut arena, mut backend) = case(16);
        let mut plan =
            Plan { scratch: vec![], launches: vec![launch(Argument::Null, Argument::Null, 0)] };
        assert!(matches!(backend.run(&call, &plan, &mut arena), Ok(Outcome::Ran(_))));
        plan.launches[0].grid = [0, 1, 1];
        let error = backend.run(&call, &plan, &mut arena).expect_err("an empty grid");
        assert!(matches!(error, BackendError::BadLaunch { .. }), "{error}");
        plan.launches[0].entry = "other".into();
        let error =
            backend.run(&call, &plan, &mut arena).expect_err("an unknown entry").to_string();
        assert!(error.contains("other") && error.contains("copy"), "{error}");
        backend.restore_modules();
        let error = backend.run(&call, &plan, &mut arena).expect_err("no such module");
        assert!(matches!(error, BackendError::Ptx(_)), "{error}");
    }
}
