//! `assay run`: one launch of anybody's PTX with every checker on. Arguments become memory, the
//! machine runs, and what it found or what the kernel left is told. Exit code 0: clean; 1: a
//! fault; 2: there was no run.

mod argument;
mod buffer;
mod element;
mod error;
mod npy;
mod parameters;
mod report;
mod tensor_map;

use crate::{Failure, Format, Outcome, say};
use buffer::Made;
use error::RunError;
use ptx_vm::{
    Coverage, Entry, FloatModel, Launch, Lcov, Limits, Memory, Module, Options, Schedule, Stats,
    Stop, Watch, launch, launch_watched,
};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(after_help = argument::FORMS)]
pub struct Arguments {
    /// PTX text, from any compiler.
    ptx: PathBuf,
    /// The kernel; may be left out when the file has one.
    #[arg(long, value_name = "NAME")]
    entry: Option<String>,
    /// Blocks of the grid.
    #[arg(long, value_name = "X[,Y,Z]", value_parser = extent)]
    grid: [u32; 3],
    /// Threads of a block.
    #[arg(long, value_name = "X[,Y,Z]", value_parser = extent)]
    block: [u32; 3],
    /// Blocks of a cluster, where the kernel does not say.
    #[arg(long, value_name = "X[,Y,Z]", value_parser = extent)]
    cluster: Option<[u32; 3]>,
    /// Dynamic shared memory of a block.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    shared: u32,
    /// The kernel's arguments, in order; the forms are below.
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    args: Vec<String>,
    /// Say which instruction stored an element last: argument number or parameter name, and indices.
    #[arg(long, value_name = "ARG[INDEX]")]
    watch: Vec<String>,
    /// Warp instructions after which the launch counts as endless.
    #[arg(long, value_name = "N", default_value_t = Limits::default().instructions, value_parser = clap::value_parser!(u64).range(1..))]
    budget: u64,
    /// Bytes of untouched memory (fill:, uninit:, out:) that threads may touch; twice that is needed.
    #[arg(long, value_name = "BYTES", default_value_t = 2 << 30)]
    memory: u64,
    /// Check bounds, alignment and barriers only, not initialisation, marks and races.
    #[arg(long)]
    no_checks: bool,
    /// Report as well what hardware lets pass: masks that name missing lanes, threads gone before a
    /// barrier, one barrier reached at two places, copies under way at an exit.
    #[arg(long, conflicts_with = "no_checks")]
    strict: bool,
    /// Run blocks and warps in an order drawn from this seed: results that depend on it differ.
    #[arg(long, value_name = "SEED")]
    order: Option<u64>,
    /// Whose approximate functions.
    #[arg(long, value_enum, default_value_t = Model::H200)]
    model: Model,
    /// Write which lines were executed, in lcov's format.
    #[arg(long, value_name = "FILE")]
    lcov: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Whose results `ex2.approx` and its like have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Model {
    /// An H200's.
    H200,
    /// The correctly rounded ones.
    Rounded,
}

/// One launch and what came of it.
struct Run<'a> {
    path: &'a Path,
    module: &'a Module,
    entry: &'a Entry,
    arguments: &'a Arguments,
    /// Scalars and buffers in the order of the parameters.
    given: Vec<Given>,
    memory: Memory,
    watched: Vec<Watched>,
    watch: Watch,
    coverage: Coverage,
    result: Result<Stats, Box<ptx_vm::Fault>>,
    elapsed: Duration,
}

/// An argument as it went in.
enum Given {
    Scalar(String),
    Buffer(Made),
    Struct { text: String, buffers: Vec<Made> },
}

/// An element somebody asks about.
struct Watched {
    /// Which argument.
    number: usize,
    flat: u64,
}

/// Largest PTX text read.
const PTX_LIMIT_BYTES: u64 = 256 << 20;

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let text = read_text(&arguments.ptx)?;
    let wrong = |what: String| RunError::Ptx { path: arguments.ptx.clone(), what };
    let module = Module::parse(&text).map_err(|error| wrong(error.to_string()))?;
    let entry = choose(&module, arguments.entry.as_deref()).map_err(|error| match error {
        RunError::Entry { known, .. } if known.is_empty() => {
            wrong("no kernel (`.entry`) in it".to_owned())
        }
        error => error,
    })?;
    let mut memory = Memory::new();
    memory.limit_touched(arguments.memory);
    let (given, parameters) = parameters::lay(entry, &arguments.args, &mut memory)?;
    let mut watch = Watch::new();
    let watched = arguments.watch.iter().map(|text| watched(text, entry, &given));
    let watched = watched.collect::<Result<Vec<_>, _>>()?;
    for one in &watched {
        if let [made] = given[one.number].buffers() {
            let size = made.element.size_bytes();
            watch.add(&memory, made.id, one.flat * size..(one.flat + 1) * size);
        }
    }
    for made in given.iter().flat_map(Given::buffers) {
        made.check_save()?;
    }
    let mut run = Run {
        path: &arguments.ptx,
        module: &module,
        entry,
        arguments: &arguments,
        given,
        memory,
        watched,
        watch,
        coverage: Coverage::new(),
        result: Ok(Stats::default()),
        elapsed: Duration::ZERO,
    };
    run.launch(&parameters)?;
    // After a fault the results are not the kernel's.
    if run.result.is_ok() {
        for made in run.given.iter().flat_map(Given::buffers) {
            made.store(&run.memory)?;
        }
        if let Some(path) = &arguments.lcov {
            std::fs::write(path, run.lcov().to_string()).map_err(RunError::file(path))?;
        }
    }
    match arguments.format {
        Format::Text => say(&report::text(&run))?,
        Format::Json => say(&format!("{}\n", report::json(&run)))?,
    }
    Ok(if run.result.is_ok() { Outcome::Clean } else { Outcome::Found })
}

impl Given {
    fn buffers(&self) -> &[Made] {
        match self {
            Given::Scalar(_) => &[],
            Given::Buffer(made) => std::slice::from_ref(made),
            Given::Struct { buffers, .. } => buffers,
        }
    }
}

impl Run<'_> {
    fn launch(&mut self, parameters: &[u8]) -> Result<(), RunError> {
        let what = Launch {
            entry: self.entry.name(),
            grid: self.arguments.grid,
            block: self.arguments.block,
            dynamic_shared_bytes: self.arguments.shared,
            parameters,
        };
        let limits = Limits { instructions: self.arguments.budget, ..Limits::default() };
        let mut options = Options::default();
        if self.arguments.no_checks {
            options.checks = false;
        }
        options.strict = self.arguments.strict;
        options.cluster = self.arguments.cluster;
        if let Some(seed) = self.arguments.order {
            options.schedule = Schedule::Seeded(seed);
        }
        if self.arguments.model == Model::Rounded {
            options.float_model = FloatModel::Portable;
        }
        let (memory, coverage) = (&mut self.memory, &mut self.coverage);
        let started = Instant::now();
        let result = if self.watched.is_empty() {
            launch(self.module, memory, &what, &limits, &options, coverage)
        } else {
            let watch = &mut self.watch;
            launch_watched(self.module, memory, &what, &limits, &options, coverage, watch)
        };
        self.elapsed = started.elapsed();
        let entry = self.entry.name().to_owned();
        self.result = match result {
            Ok(stats) => Ok(stats),
            Err(Stop::Fault(fault)) => Err(fault),
            Err(Stop::BadLaunch(error)) => {
                return Err(RunError::Launch { entry, why: error.to_string() });
            }
            Err(Stop::Unsupported { what, ptx_line, source }) => {
                let mut place = format!("PTX line {ptx_line}");
                if let Some(source) = source {
                    place.push_str(&format!(", {}:{}", source.file, source.line));
                }
                return Err(RunError::Unsupported { entry, what, place });
            }
        };
        Ok(())
    }

    /// What was executed. Sources lie where the PTX says, or beside it.
    fn lcov(&self) -> Lcov {
        let mut lcov = Lcov::new();
        let ptx = self.path.display().to_string();
        lcov.add(&ptx, self.module, &self.coverage, |file| {
            source_path(self.path, file).map_or(file.to_owned(), |path| path.display().to_string())
        });
        lcov
    }
}

/// Where a source file lies that the compiler recorded under a name.
fn source_path(ptx: &Path, file: &str) -> Option<PathBuf> {
    let beside = ptx.parent().unwrap_or(Path::new("")).join(file);
    [beside, PathBuf::from(file)].into_iter().find(|path| path.is_file())
}

/// `X`, `X,Y` or `X,Y,Z`.
fn extent(text: &str) -> Result<[u32; 3], String> {
    let mut out = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err("more than three extents".to_owned());
    }
    for (to, part) in out.iter_mut().zip(parts) {
        let parsed: Option<u32> = part.trim().parse().ok().filter(|extent| *extent > 0);
        *to = parsed.ok_or_else(|| format!("`{part}` is no extent; write 128 or 4,2,1"))?;
    }
    Ok(out)
}

fn read_text(path: &Path) -> Result<String, RunError> {
    let (file, bytes) = buffer::open(path)?;
    let wrong = |what: &str| RunError::Ptx { path: path.to_owned(), what: what.to_owned() };
    if bytes > PTX_LIMIT_BYTES {
        return Err(wrong("larger than 256 MiB: not a PTX text"));
    }
    let mut all = Vec::new();
    file.take(PTX_LIMIT_BYTES).read_to_end(&mut all).map_err(RunError::file(path))?;
    String::from_utf8(all).map_err(|_| {
        wrong("not text; a cubin or fatbin has none: compile with `nvcc --ptx`, or `cuobjdump --dump-ptx`")
    })
}

fn choose<'m>(module: &'m Module, wanted: Option<&str>) -> Result<&'m Entry, RunError> {
    let known = || module.entries().map(|entry| entry.name().to_owned()).collect();
    let mut all = module.entries();
    match (wanted, all.next(), all.next()) {
        (None, Some(only), None) => Ok(only),
        (Some(name), ..) => module
            .entry(name)
            .or_else(|| {
                let mut alike = module.entries().filter(|entry| entry.name().contains(name));
                alike.next().filter(|_| alike.next().is_none())
            })
            .ok_or_else(|| RunError::Entry { wanted: Some(name.to_owned()), known: known() }),
        _ => Err(RunError::Entry { wanted: None, known: known() }),
    }
}

/// `2[5]`, `2[1,3]`, `kernel_param_2[5]`: one number is a flat index.
fn watched(text: &str, entry: &Entry, given: &[Given]) -> Result<Watched, RunError> {
    let refuse = |why: String| RunError::Watch { text: text.to_owned(), why };
    let parts = text.strip_suffix(']').and_then(|rest| rest.split_once('['));
    let (name, indices) =
        parts.ok_or_else(|| refuse("write ARG[INDEX], such as 2[5] or 2[1,3]".to_owned()))?;
    let by_name = || entry.parameters().iter().position(|parameter| parameter.name == name);
    let number = name.parse().ok().or_else(by_name).filter(|number| *number < given.len());
    let number = number.ok_or_else(|| {
        refuse(format!("`{name}` is no argument of `{}`:{}", entry.name(), error::signature(entry)))
    })?;
    let [made] = given[number].buffers() else {
        return Err(refuse(format!("argument {number} is no buffer, nor a struct with one")));
    };
    let index = indices.split(',').map(|part| part.trim().parse::<u64>());
    let index = index.collect::<Result<Vec<u64>, _>>();
    let index = index.map_err(|_| refuse(format!("`{indices}` is no index")))?;
    let outside = || refuse(format!("the buffer is {}", made.form()));
    let flat = match &*index {
        [flat] => *flat,
        all if all.len() == made.shape.len() => {
            let pairs = all.iter().zip(&made.shape);
            pairs
                .into_iter()
                .try_fold(0u64, |flat, (index, extent)| {
                    (index < extent).then(|| flat.saturating_mul(*extent).saturating_add(*index))
                })
                .ok_or_else(outside)?
        }
        _ => return Err(outside()),
    };
    if flat >= made.count() {
        return Err(outside());
    }
    Ok(Watched { number, flat })
}
