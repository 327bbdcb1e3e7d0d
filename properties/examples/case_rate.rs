//! Cases per second over a frozen list, per contract: geometry, the virtual machine with all checks, the
//! reference and the oracle, as a search does them. Generation is not counted. Beside the rate of the clock
//! stands that of a second of one core, which others on the machine change less.
//!
//! `cargo run --release -p properties --example case_rate`

use contracts::case::Case;
use contracts::format::Fixture;
use kernels::backend::vm::VmBackend;
use properties::check::{Workspace, check};
use properties::choices::{Seeded, mix};
use properties::counters::Counters;
use properties::examine::Examine;
use properties::generate::draw_assigned;
use properties::subject::{Subject, subject};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Contract, fixed dims, fixed lists, cases in the list.
type Shape =
    (&'static str, &'static [(&'static str, i64)], &'static [(&'static str, &'static [i64])], u64);

const SHAPES: &[Shape] = &[
    ("argmax_rows", &[], &[], 512),
    ("row_topk", &[("V", 64), ("k", 8)], &[], 512),
    ("row_topk", &[("V", 1025), ("k", 64)], &[], 256),
    ("ple_gather", &[("R", 33)], &[], 512),
    ("gdn_decode", &[("N", 1), ("Hk", 1), ("Hv", 2), ("Dk", 64), ("Dv", 64)], &[], 64),
    (
        "gdn_chunk",
        &[("N", 1), ("Hk", 1), ("Hv", 1), ("Dk", 32), ("Dv", 32)],
        &[("seq_len", &[64]), ("slot", &[0])],
        32,
    ),
];
const SECONDS_PER_SHAPE: Duration = Duration::from_secs(5);

fn main() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{threads} threads, {SECONDS_PER_SHAPE:?} a contract");
    for (name, dims, lists, count) in SHAPES {
        let subject = subject(name).expect("a registered contract");
        let mut assigned = Fixture::default();
        assigned.dims.extend(dims.iter().map(|(dim, size)| ((*dim).to_owned(), *size)));
        assigned
            .lists
            .extend(lists.iter().map(|(list, items)| ((*list).to_owned(), items.to_vec())));
        let cases: Vec<Case> = (0..*count)
            .map(|seed| {
                draw_assigned(subject, &assigned, &mut Seeded { seed: mix(0xbe4c, seed) })
                    .expect("the assignment is legal")
            })
            .collect();
        let before = seconds_run();
        let (done, elapsed) = rate(subject, &cases, threads);
        let by_core = done as f64 / (seconds_run() - before);
        let by_clock = done as f64 / elapsed;
        println!(
            "{name:<16} {by_clock:>8.0} cases a second, {by_core:>8.0} a second of one core {dims:?} {lists:?}"
        );
    }
}

/// Time that this process ran: fields 14 and 15 of its `stat`, in hundredths of a second.
fn seconds_run() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("it is there on Linux");
    // The second field is a name in brackets, which may have blanks.
    let (_, rest) = text.rsplit_once(')').expect("it names the program");
    let times = rest.split_whitespace().skip(11).take(2).map(|time| time.parse::<u64>());
    times.map(|time| time.expect("a number")).sum::<u64>() as f64 / 100.0
}

fn rate(subject: &Subject, cases: &[Case], threads: usize) -> (usize, f64) {
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (mut backend, mut workspace) = (VmBackend::new(), Workspace::new());
                let mut counters = Counters::default();
                while started.elapsed() < SECONDS_PER_SHAPE {
                    let case = &cases[next.fetch_add(1, Ordering::Relaxed) % cases.len()];
                    let verdict = check(
                        subject,
                        case,
                        &Examine::Kernel,
                        &mut backend,
                        &mut workspace,
                        &mut counters,
                    )
                    .expect("the tool works");
                    assert!(!verdict.is_failure(), "{verdict}");
                }
            });
        }
    });
    (next.into_inner(), started.elapsed().as_secs_f64())
}
