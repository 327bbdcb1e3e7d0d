//! Speculative rounds: the transaction keeps every promise over drawn histories, by seeds and by a
//! proptest state machine; every wrong decision that can be planted is found by both, and the history
//! that shows it is short; stored histories replay.

use contracts::protocol::Standing;
use kernels::backend::Backend;
use kernels::backend::vm::VmBackend;
use kernels::transaction::{Planted, Published};
use properties::rounds::{
    CONTRACT, Did, Draw, Event, History, Invariant, Machine, MeaningOfRound, Progress, Rollback,
    Search, Setup, Step, history_of_bytes, history_of_seed, next_step, protocol, read, replay, run,
    search, setup,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most events of a shrunk history.
const MOST_EVENTS: usize = 8;
/// Time in which every planted decision must be found.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn the_transaction_keeps_every_promise() {
    let mut backend = VmBackend::new();
    let mut seen = BTreeSet::new();
    for seed in 0..250 {
        let history = history_of_seed(0x5eed + seed);
        let run = run(&history, None, &mut backend);
        if let Some(violation) = run.violation {
            panic!("seed {seed}: {violation}\n{:?}", history.steps);
        }
        for (step, did) in history.steps.iter().zip(run.did) {
            seen.insert(format!("{did:?} {}", kind(&step.event)));
        }
    }
    // A search in which something never happens, or is never refused, has not looked.
    for wanted in [
        "Happened acquire",
        "Happened prefill",
        "Happened decode",
        "Happened begin",
        "Happened verify",
        "Happened commit",
        "Happened abort",
        "Happened drop",
        "Happened unwind",
        "Happened release",
        "Refused acquire",
        "Refused prefill",
        "Refused decode",
        "Refused begin",
        "Refused verify",
        "Refused commit",
        "Refused abort",
        "Refused release",
        "Failed verify",
        "Failed commit",
        "Failed abort",
        "Skipped drop",
    ] {
        assert!(seen.contains(wanted), "no history has `{wanted}`; there are {seen:?}");
    }
}

fn kind(event: &Event) -> &'static str {
    if matches!(event, Event::Drop { unwinds: true }) { "unwind" } else { event.name() }
}

/// The contract's table and the plain model are two descriptions of one thing: every event of drawn
/// histories has the outcome, the refusal and the next state in one that it has in the other.
#[test]
fn the_contract_says_what_the_model_does() {
    let mut backend = VmBackend::new();
    let mut seen = BTreeSet::new();
    for seed in 0..400 {
        let History { setup, steps } = history_of_seed(0xc0de + seed);
        let dims = |name: &str| setup.dim(name);
        let mut machine = Machine::new(&mut backend, setup, None).expect("a machine");
        let mut standings = vec![protocol().start(); setup.sequences.into()];
        for step in &steps {
            let own = usize::from(step.sequence);
            let (name, rows) = (step.event.name(), step.event.rows());
            let before = standings[own];
            let expected = protocol().after(&dims, before, name, rows, !step.stale);
            let did = machine.apply(step).unwrap_or_else(|violation| panic!("{violation}"));
            let failing = protocol().events[name].failing.as_ref();
            let next = match (did, expected) {
                (Did::Happened, Ok(next)) => next,
                (Did::Failed, Ok(_)) => {
                    let failing = failing.unwrap_or_else(|| panic!("{name} may not fail"));
                    let state = match step.event.failure() {
                        Some(properties::rounds::Failure::Once(_)) => &failing.once,
                        _ => &failing.lasting,
                    };
                    Standing { state, ..before }
                }
                (Did::Refused, Err(refused)) => {
                    let model = machine.refusal().expect("a refusal");
                    assert_eq!(refused.name(), name_of(model), "seed {seed}: {step} of {before:?}");
                    seen.insert(format!("{name} {}", refused.name()));
                    before
                }
                // No round to drop, no earlier ticket, no free slot to take.
                (Did::Skipped, _) => before,
                (did, expected) => {
                    panic!("seed {seed}: {step} of {before:?}: {did:?}, {expected:?}")
                }
            };
            let slot = machine.slot(own).expect("a slot");
            let stage = format!("{:?}", slot.stage).to_lowercase();
            assert_eq!(next.state, if slot.held { stage.as_str() } else { "released" }, "{step}");
            if slot.held && next.state != "broken" {
                assert_eq!(usize::from(next.length), slot.tokens.len(), "{step}");
            }
            standings[own] = next;
        }
    }
    for wanted in [
        "prefill state",
        "prefill rows",
        "prefill capacity",
        "prefill released",
        "prefill broken",
        "decode capacity",
        "begin rows",
        "begin capacity",
        "begin state",
        "verify state",
        "verify stale_id",
        "commit rows",
        "commit state",
        "commit stale_id",
        "abort state",
        "abort stale_id",
        "release state",
        "release released",
        "acquire capacity",
    ] {
        assert!(seen.contains(wanted), "no history has `{wanted}`; there are {seen:?}");
    }
}

fn name_of(refused: reference::transaction::Refused) -> &'static str {
    use reference::transaction::Refused;
    match refused {
        Refused::State => "state",
        Refused::StaleId => "stale_id",
        Refused::Released => "released",
        Refused::Capacity => "capacity",
        Refused::Rows => "rows",
        Refused::Broken => "broken",
    }
}

#[test]
fn the_contract_names_every_promise_and_every_fault() {
    let invariants: Vec<&str> = Invariant::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(protocol().invariants.keys().collect::<Vec<_>>(), invariants);
    let planted: Vec<&str> = Planted::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(protocol().mutants.keys().collect::<Vec<_>>(), planted);
}

/// The wrong decision is found, by one of the promises its contract names, in a history of at most eight events that
/// the sound transaction passes.
fn is_found(planted: Planted) {
    let promises = &protocol().mutants[planted.name()].killed_by;
    let mut backend = VmBackend::new();
    let plan = Search { seed: 1, histories: u64::MAX, limit: LIMIT, planted: Some(planted) };
    let (histories, _, found) = search(plan, &mut backend);
    let found = found.unwrap_or_else(|| panic!("not found in {histories} histories"));
    let shrunk = &found.shrunk;
    assert!(shrunk.history.steps.len() <= MOST_EVENTS, "{:?}", shrunk.history.steps);
    let invariant = shrunk.violation.invariant.name();
    assert!(promises.iter().any(|promise| promise == invariant), "{}", shrunk.violation);
    let sound = run(&shrunk.history, None, &mut backend);
    assert_eq!(sound.violation, None, "the sound transaction passes");
    // No single event can be left out.
    for at in 0..shrunk.history.steps.len() {
        let mut less = shrunk.history.clone();
        less.steps.remove(at);
        let violation = run(&less, Some(planted), &mut backend).violation;
        let same = violation.is_some_and(|found| found.invariant == shrunk.violation.invariant);
        assert!(!same, "event {at} is not needed: {:?}", shrunk.history.steps);
    }
}

macro_rules! planted {
    ($($name:ident: $planted:ident;)*) => {
        const PLANTED: &[Planted] = &[$(Planted::$planted),*];

        mod finds {
            use super::*;
            $(
                #[test]
                fn $name() { is_found(Planted::$planted) }
            )*
        }
    };
}

planted! {
    conv_not_rolled_back: ConvNotRolledBack;
    kv_tail_read: KvTailRead;
    snapshot_late: SnapshotLate;
    second_commit_accepted: SecondCommitAccepted;
    drop_is_noop: DropIsNoop;
    slot_reuse_leaks: SlotReuseLeaks;
    one_layer_commits: OneLayerCommits;
    kv_commits_less: KvCommitsLess;
    conv_commits_less: ConvCommitsLess;
    poison_skipped: PoisonSkipped;
    count_is_global: CountIsGlobal;
    stale_id_accepted: StaleIdAccepted;
    verify_error_ignored: VerifyErrorIgnored;
    verified_mark_kept: VerifiedMarkKept;
    layers_swapped: LayersSwapped;
    commits_all_rows: CommitsAllRows;
    accepted_for_committed: AcceptedForCommitted;
    capacity_ignored: CapacityIgnored;
    released_while_open: ReleasedWhileOpen;
    abort_keeps_state: AbortKeepsState;
    count_unchecked: CountUnchecked;
    half_commit_left: HalfCommitLeft;
    trained_rows_only: TrainedRowsOnly;
    unwind_skips_abort: UnwindSkipsAbort;
    first_checkpoint_for_all: FirstCheckpointForAll;
    broken_is_used: BrokenIsUsed;
    fold_twice: FoldTwice;
    fold_all_rows: FoldAllRows;
    first_stash_for_all: FirstStashForAll;
    first_engaged_for_all: FirstEngagedForAll;
}

#[test]
fn everything_that_can_be_planted_is_looked_for() {
    let looked_for: Vec<&str> = PLANTED.iter().map(|planted| planted.name()).collect();
    let all: Vec<&str> = Planted::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(looked_for, all);
}

/// The state machine proptest draws from: where the sequences stand, and the events so far are drawn by.
struct RoundMachine;

impl ReferenceStateMachine for RoundMachine {
    type State = Progress;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Progress> {
        any::<u64>().prop_map(|seed| Progress::new(setup(&mut Draw::Seeded(seed, 0)))).boxed()
    }

    fn transitions(state: &Progress) -> BoxedStrategy<Step> {
        let state = state.clone();
        any::<u64>().prop_map(move |seed| next_step(&state, &mut Draw::Seeded(seed, 0))).boxed()
    }

    fn apply(mut state: Progress, step: &Step) -> Progress {
        state.after(step);
        state
    }

    // Every event may come in every state: what is not legal must be refused.
    fn preconditions(_: &Progress, _: &Step) -> bool {
        true
    }
}

/// Drives transaction and model through what proptest draws; its smallest failing history.
fn proptest_finds(planted: Option<Planted>, cases: u32) -> Option<(History, String)> {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let strategy = RoundMachine::sequential_strategy(1..30);
    let outcome = runner.run(&strategy, |(start, steps, seen)| {
        let mut backend = VmBackend::new();
        let mut machine = Machine::new(&mut backend, start.setup, planted)
            .map_err(|violation| TestCaseError::fail(violation.to_string()))?;
        for step in &steps {
            // Shrinking starts with the events that were reached.
            if let Some(seen) = &seen {
                seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
            machine.apply(step).map_err(|violation| TestCaseError::fail(violation.to_string()))?;
        }
        Ok(())
    });
    match outcome {
        Ok(()) => None,
        Err(TestError::Fail(reason, (start, steps, _))) => {
            Some((History { setup: start.setup, steps }, reason.to_string()))
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

#[test]
fn the_state_machine_finds_nothing_in_the_transaction() {
    if let Some((history, reason)) = proptest_finds(None, 150) {
        panic!("{reason}\n{:?}\n{:?}", history.setup, history.steps);
    }
}

#[test]
fn the_state_machine_finds_everything_planted() {
    for planted in PLANTED {
        let promises = &protocol().mutants[planted.name()].killed_by;
        let started = Instant::now();
        let (history, reason) = proptest_finds(Some(*planted), 4000)
            .unwrap_or_else(|| panic!("{} is not found", planted.name()));
        assert!(started.elapsed() < LIMIT, "{}: {:?}", planted.name(), started.elapsed());
        assert!(history.steps.len() <= MOST_EVENTS, "{}: {:?}", planted.name(), history.steps);
        // A wrong commit during which a launch failed and was tried again shows as a mixed one.
        let mixed = Invariant::NeverMixed.name().to_owned();
        let named = promises
            .iter()
            .chain([&mixed])
            .any(|promise| reason.contains(&format!("invariants.{promise} ")));
        assert!(named, "{}: {reason}", planted.name());
    }
}

/// What happened of a history, and nothing else: no refusals, no failing launches, no earlier tickets.
fn what_happened(history: &History, backend: &mut dyn Backend) -> History {
    let plain = |step: &Step| {
        let event = match step.event {
            Event::Verify(_) => Event::Verify(None),
            Event::Commit(rows, _) => Event::Commit(rows, None),
            Event::Abort(_) => Event::Abort(None),
            event => event,
        };
        Step { event, ..*step }
    };
    let steps: Vec<Step> = history.steps.iter().filter(|step| !step.stale).map(plain).collect();
    let history = History { steps, ..history.clone() };
    let did = run(&history, None, backend).did;
    let happened = history.steps.iter().zip(did).filter(|(_, did)| *did == Did::Happened);
    History { steps: happened.map(|(step, _)| *step).collect(), ..history.clone() }
}

fn left_by(history: &History, backend: &mut dyn Backend) -> Vec<Option<Published>> {
    let mut machine = Machine::new(backend, history.setup, None).expect("a machine");
    for step in &history.steps {
        let did = machine.apply(step).unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(did, Did::Happened, "{step}");
    }
    (0..history.setup.sequences.into()).map(|sequence| machine.seen(sequence)).collect()
}

#[test]
fn all_ways_to_undo_a_round_leave_the_same() {
    let mut backend = VmBackend::new();
    for seed in 0..60 {
        let mut history = what_happened(&history_of_seed(0xa6e + seed), &mut backend);
        history.setup.rollback = Rollback::Checkpoint;
        let one = left_by(&history, &mut backend);
        for other in [Rollback::Snapshot, Rollback::WriteOnAccept] {
            history.setup.rollback = other;
            let other_left = left_by(&history, &mut backend);
            assert!(one == other_left, "seed {seed}, {other:?}: {:?}", history.steps);
        }
    }
}

/// The history without its aborted and dropped rounds.
fn without_aborted(history: &History) -> History {
    let mut kept: Vec<Option<Step>> = history.steps.iter().copied().map(Some).collect();
    for (end, step) in history.steps.iter().enumerate() {
        if !matches!(step.event, Event::Abort(_) | Event::Drop { .. }) {
            continue;
        }
        let own = |at: &usize| history.steps[*at].sequence == step.sequence;
        let begun = (0..end).rev().filter(own);
        let begin =
            begun.into_iter().find(|at| matches!(history.steps[*at].event, Event::Begin(_)));
        let Some(begin) = begin else { continue };
        (begin..=end).filter(own).for_each(|at| kept[at] = None);
    }
    History { steps: kept.into_iter().flatten().collect(), ..history.clone() }
}

#[test]
fn an_aborted_round_never_was() {
    let mut backend = VmBackend::new();
    let mut erased = 0;
    for seed in 0..60 {
        let history = what_happened(&history_of_seed(0xe4a + seed), &mut backend);
        let less = without_aborted(&history);
        erased += history.steps.len() - less.steps.len();
        let (whole, less) = (left_by(&history, &mut backend), left_by(&less, &mut backend));
        // A sequence whose round is still open has published what it had.
        assert!(whole == less, "seed {seed}: {:?}", history.steps);
    }
    assert!(erased > 100, "{erased} events erased");
}

#[test]
fn any_bytes_are_a_history() {
    let mut backend = VmBackend::new();
    let mut events = 0;
    for seed in 0..120u64 {
        let bytes: Vec<u8> =
            (0..seed * 2).map(|at| (seed.wrapping_mul(31) + at * at * 7) as u8).collect();
        let history = history_of_bytes(&bytes);
        events += history.steps.len();
        assert_eq!(run(&history, None, &mut backend).violation, None, "{:?}", history.steps);
    }
    assert!(events > 500, "{events}");
    assert!(history_of_bytes(&[]).steps.is_empty());
}

fn corpora() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let beside = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).join("../corpora");
    if beside.is_dir() { beside } else { Path::new("corpora").to_owned() }
}

#[test]
fn stored_histories_replay() {
    let files = properties::corpus::files(&corpora(), CONTRACT).unwrap_or_else(|e| panic!("{e}"));
    let mut backends = kernels::backend::of_this_build().unwrap_or_else(|e| panic!("{e}"));
    let mut shown = BTreeSet::new();
    for file in &files {
        let stored = read(file).unwrap_or_else(|error| panic!("{error}"));
        assert!(stored.history.steps.len() <= MOST_EVENTS, "{}", file.display());
        shown.extend(stored.planted.map(Planted::name));
        for replayed in replay(file, &mut backends).unwrap_or_else(|error| panic!("{error}")) {
            let passes = replayed.meaning == MeaningOfRound::Passes;
            // Reading what nobody wrote shows on the machine alone; a GPU reads the poison there.
            let elsewhere = replayed.backend != "vm"
                && matches!(replayed.meaning, MeaningOfRound::NotNoticed(Some(_)));
            assert!(passes || elsewhere, "{}: {:?}", file.display(), replayed.meaning);
        }
    }
    let all: BTreeSet<&str> = Planted::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(shown, all, "everything planted has a stored history");
}

/// On a GPU, through captured graphs, whose memory must stay where it is.
#[cfg(feature = "cuda")]
#[test]
fn the_gpu_keeps_every_promise() {
    let mut backends = kernels::backend::of_this_build().unwrap_or_else(|e| panic!("{e}"));
    let cuda = backends.last_mut().expect("a GPU");
    assert_eq!(cuda.name(), "cuda");
    assert!(cuda.captures(), "rounds run through graphs");
    for seed in 0..40 {
        let history = history_of_seed(0xc0da + seed);
        let violation = run(&history, None, cuda.as_mut()).violation;
        assert_eq!(violation, None, "seed {seed}: {:?}", history.steps);
    }
}

#[test]
fn what_is_planted_is_nowhere_else() {
    // Production builds answer the question whether something is planted with a constant.
    let manifest = include_str!("../../kernels/Cargo.toml");
    assert!(manifest.contains("planted = []") && !manifest.contains("default ="), "{manifest}");
    assert_eq!(Setup::PLAIN.geometry().slots, 1);
}
