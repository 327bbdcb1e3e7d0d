//! Shows one row: draws cases of its test kernel, examines all that applies, and collects which clauses
//! failed, with the fault planted, with its clause switched off, and with the near-miss in its place.

use crate::table::{Off, Row};
use contracts::case::Schedule;
use kernels::arena::Arena;
use kernels::backend::emulated::EmulatedGpu;
use kernels::backend::vm::VmBackend;
use kernels::backend::{Backend, BackendError, Outcome};
use kernels::call::Call;
use kernels::launch::Plan;
use properties::check::{Workspace, check};
use properties::choices::{Choices, Path, Seeded, mix};
use properties::counters::Counters;
use properties::examine::Examine;
use properties::generate;
use properties::subject::{Subject, planted, test_kernels};
use ptx_vm::{Limits, Options};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Cases drawn for each part of a row.
const CASES: u64 = 400;
/// Warp instructions of a launch: the right kernels need a hundredth.
const INSTRUCTIONS: u64 = 1 << 16;

/// Where the launches of a row run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// The machine with every check.
    Exact,
    /// The machine as a GPU would look from outside: no marks, no initialisation, no races.
    Blind,
    /// A GPU emulated by the machine: guard bands, captured launches.
    Emulated,
}

/// What a row showed.
pub struct Shown {
    /// Cases until the fault was found.
    pub after: u64,
    /// How often the clause was exercised by the near-miss.
    pub exercised: u64,
}

/// Failures of a number of cases.
pub struct Found {
    /// Failing clauses, each with the first case.
    pub clauses: BTreeMap<String, u64>,
    /// Cases with a verdict.
    pub cases: u64,
    counters: Counters,
}

/// Shows every row, several a core: rows differ much in how long they take.
pub fn show_all(rows: &[&Row]) -> Vec<Result<Shown, String>> {
    let next = AtomicUsize::new(0);
    let shown = Mutex::new(Vec::new());
    let threads = 8 * std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((place, row)) = {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    rows.get(place).map(|row| (place, *row))
                } {
                    let result = show(row);
                    shown.lock().expect("no thread panics").push((place, result));
                }
            });
        }
    });
    let mut shown = shown.into_inner().expect("no thread panicked");
    shown.sort_by_key(|(place, _)| *place);
    shown.into_iter().map(|(_, result)| result).collect()
}

/// Shows a row, or says what it does not show.
pub fn show(row: &Row) -> Result<Shown, String> {
    let faulty = planted(row.kernel, row.fault).ok_or("no such fault")?;
    let found = failing(&faulty, Some(row), CASES);
    let others: Vec<_> = found.clauses.keys().filter(|clause| !row.finds(clause)).collect();
    if !others.is_empty() {
        return Err(format!("found by {others:?} too"));
    }
    let after = found.clauses.values().min().copied().ok_or("not found")?;
    let off = switched_off(row, &faulty)?;
    let survives = failing(&off, Some(row), CASES);
    if !survives.clauses.is_empty() {
        return Err(format!("with the clause switched off found by {:?}", survives.clauses));
    }
    let passing = match row.near_miss {
        Some(near_miss) => planted(row.kernel, near_miss).ok_or("no such near-miss")?,
        None => right(row.kernel)?.clone(),
    };
    let passed = failing(&passing, Some(row), CASES);
    if !passed.clauses.is_empty() {
        return Err(format!("the near-miss is found by {:?}", passed.clauses));
    }
    let exercised = exercises(row, &passing, &passed.counters);
    if exercised == 0 {
        return Err("the near-miss does not exercise the clause".to_owned());
    }
    Ok(Shown { after, exercised })
}

fn right(kernel: &str) -> Result<&'static Subject, String> {
    let found = test_kernels().iter().find(|subject| subject.name() == kernel);
    found.ok_or_else(|| format!("no test kernel {kernel}"))
}

/// Failing clauses of the first `cases` cases, each examined in full.
pub fn failing(subject: &Subject, row: Option<&Row>, cases: u64) -> Found {
    let backing = row.map_or(Backing::Exact, |row| row.backing);
    let dims = row.and_then(|row| row.dims);
    let mut backend = backend(backing);
    let (mut workspace, mut counters) = (Workspace::new(), Counters::default());
    let mut clauses = BTreeMap::new();
    for number in 0..cases {
        let mut choices = drawn_by(row, number);
        let fixture = dims.map(|(dim, size)| contracts::format::Fixture {
            dims: [(dim.to_owned(), size)].into_iter().collect(),
            ..Default::default()
        });
        let drawn = match &fixture {
            Some(fixture) => generate::draw_assigned(subject, fixture, choices.as_mut()),
            None => generate::draw(subject, choices.as_mut()).map(|draw| draw.case),
        };
        let Ok(mut case) = drawn else { continue };
        // Relations are held between runs by number; an order of its own is examined by itself.
        let by_order = number % 3 == 0;
        case.schedule = if by_order { Schedule::Seeded(number) } else { Schedule::InOrder };
        let examine = if by_order { Examine::Kernel } else { Examine::All };
        let verdict =
            check(subject, &case, &examine, backend.as_mut(), &mut workspace, &mut counters)
                .unwrap_or_else(|error| panic!("{}: {error}", subject.name()));
        if let Some(clause) = verdict.clause().filter(|_| verdict.is_failure()) {
            clauses.entry(clause.to_owned()).or_insert(number + 1);
        }
    }
    Found { clauses, cases: counters.cases, counters }
}

/// What decides a case: for a generator's row, nothing but generators makes values.
fn drawn_by(row: Option<&Row>, number: u64) -> Box<dyn Choices> {
    let seeded = Seeded { seed: mix(0xc1a5, number) };
    match row.map(|row| row.off) {
        Some(Off::Values(..)) => Box::new(Unsprinkled(seeded)),
        _ => Box::new(seeded),
    }
}

/// Choices that put no special value and no NaN among those a generator made.
struct Unsprinkled(Seeded);

impl Choices for Unsprinkled {
    fn choose(&mut self, path: Path, count: u64) -> u64 {
        let sprinkles = path == Path::new("special") || path == Path::new("nan");
        if sprinkles { 0 } else { self.0.choose(path, count) }
    }
}

/// The faulty subject with the row's clause switched off: not judged, or its layout never drawn.
fn switched_off(row: &Row, faulty: &Subject) -> Result<Subject, String> {
    match row.off {
        Off::Clauses(clauses) => Ok(faulty.without(clauses)),
        Off::Layout(tensor, kind) => {
            let mut contract = faulty.contract.clone();
            let declared = contract.tensors.get_mut(tensor).ok_or("no such tensor")?;
            declared.layout.retain(|known| *known != kind);
            // Which strides must be refused follows from the layouts.
            let strides = format!("rejects.auto.stride.{tensor}");
            let contract = Box::leak(Box::new(contract));
            Ok(Subject { contract, ..faulty.without(&[&strides]) })
        }
        Off::Values(tensor, plainer) => {
            let mut contract = faulty.contract.clone();
            contract.tensors.get_mut(tensor).ok_or("no such tensor")?.values = plainer.to_vec();
            Ok(Subject { contract: Box::leak(Box::new(contract)), ..faulty.clone() })
        }
        Off::Store(store) => {
            let mut contract = faulty.contract.clone();
            contract.stores.shift_remove(store).ok_or("no such store")?;
            Ok(Subject { contract: Box::leak(Box::new(contract)), ..faulty.clone() })
        }
    }
}

/// How often a subject's counters saw the row's clause; for a layout, how many cases have it.
fn exercises(row: &Row, subject: &Subject, counters: &Counters) -> u64 {
    let count = |clause: &str| {
        let lines = counters.summary(subject, false, false);
        lines.iter().filter(|line| line.clause == clause).map(|line| line.cases).sum()
    };
    match row.off {
        Off::Clauses(clauses) => clauses.iter().map(|clause| count(clause)).min().unwrap_or(0),
        Off::Layout(tensor, kind) => drawn(subject, |case| {
            case.tensors.get(tensor).is_some_and(|tensor| tensor.layout.kind() == kind)
        }),
        // What it draws is nothing a case tells.
        Off::Values(..) => CASES,
        Off::Store(store) => drawn(subject, |case| {
            matches!(case.stores.get(store), Some(contracts::StoreForm::Packed { .. }))
        }),
    }
}

fn drawn(subject: &Subject, has: impl Fn(&contracts::Case) -> bool) -> u64 {
    let draw = |number| generate::draw(subject, &mut Seeded { seed: mix(0xc1a5, number) }).ok();
    (0..CASES).filter_map(draw).filter(|draw| has(&draw.case)).count() as u64
}

/// What the launches of a row run on.
fn backend(backing: Backing) -> Box<dyn Backend> {
    let limits = Limits { instructions: INSTRUCTIONS, ..Limits::default() };
    match backing {
        Backing::Exact => Box::new(VmBackend::with(limits, Options::default())),
        Backing::Blind => {
            let options = Options { checks: false, ..Options::default() };
            Box::new(Blind(VmBackend::with(limits, options)))
        }
        Backing::Emulated => Box::new(EmulatedGpu::new(INSTRUCTIONS)),
    }
}

/// The machine, seen from outside.
struct Blind(VmBackend);

impl Backend for Blind {
    fn name(&self) -> &'static str {
        "blind"
    }

    fn run(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
    ) -> Result<Outcome, BackendError> {
        self.0.run(call, plan, arena)
    }

    fn order(&mut self, schedule: Schedule) {
        self.0.order(schedule);
    }

    fn orders(&self) -> bool {
        true
    }

    fn replace_module(&mut self, stem: &str, ptx: &str) -> Result<(), BackendError> {
        self.0.replace_module(stem, ptx)
    }

    fn restore_modules(&mut self) {
        self.0.restore_modules();
    }
}
