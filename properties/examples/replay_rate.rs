//! Stored cases replayed per second, per contract: a thousand small cases, as shrunk ones are, are written
//! to files and replayed on every core, reading and checking of the files included. Beside the rate of the
//! clock stands that of a second of one core, which others on the machine do not change.
//!
//! `cargo run --release -p properties --example replay_rate [CONTRACT…]`

use contracts::case_yaml::write_case;
use kernels::backend::Backend;
use kernels::backend::vm::VmBackend;
use properties::choices::{Seeded, mix};
use properties::corpus::{self, KnownFailures};
use properties::examine::Examine;
use properties::generate::{Draw, draw};
use properties::replay::{Meaning, replay_all};
use properties::shrink::neighbours;
use properties::subject::{Subject, subjects};
use std::error::Error;
use std::time::Instant;

const CASES: usize = 1000;
/// A small case's text.
const MOST_BYTES: usize = 4 << 10;
/// Draws after which a contract is taken to have no more small cases.
const DRAWS: u64 = 40_000;
/// What all contracts together must reach.
const WANTED: f64 = 2000.0;

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut all, mut spent) = (0, [0.0; 2]);
    println!("{threads} threads, {CASES} cases a contract of at most {MOST_BYTES} bytes");
    for subject in subjects() {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == subject.name()) {
            continue;
        }
        let (cases, took) = replayed(subject, threads)?;
        print(subject.name(), cases, took);
        all += cases;
        spent = [spent[0] + took[0], spent[1] + took[1]];
    }
    print("all", all, spent);
    println!("wanted: {WANTED} cases a second in all");
    Ok(())
}

fn print(name: &str, cases: usize, [passed, ran]: [f64; 2]) {
    let (by_clock, by_core) = (cases as f64 / passed, cases as f64 / ran);
    println!(
        "{name:<16} {by_clock:>8.0} cases a second, {by_core:>8.0} a second of one core; {cases} cases"
    );
}

/// Time that this process ran: fields 14 and 15 of its `stat`, in hundredths of a second.
fn seconds_run() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // The second field is a name in brackets, which may have blanks.
    let (_, rest) = text.rsplit_once(')').ok_or("/proc/self/stat names no program")?;
    let times = rest.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let hundredths = times.sum::<Result<u64, _>>()?;
    Ok(hundredths as f64 / 100.0)
}

/// How many cases, and the seconds that passed and that this process ran.
fn replayed(
    subject: &'static Subject,
    threads: usize,
) -> Result<(usize, [f64; 2]), Box<dyn Error>> {
    let root = tempfile::tempdir()?;
    let folder = root.path().join(subject.name());
    std::fs::create_dir(&folder)?;
    let mut written = 0;
    let mut keep = |text: &str| {
        let small = text.len() <= MOST_BYTES && written < CASES;
        if small {
            written += 1;
            std::fs::write(folder.join(format!("case-{written:04}.yaml")), text)?;
        }
        Ok::<_, std::io::Error>(written < CASES)
    };
    // Drawn cases that are small, and what single edits make of them.
    'drawing: for number in 0..DRAWS {
        let Ok(Draw { case, examine, .. }) = draw(subject, &mut Seeded { seed: mix(9, number) })
        else {
            continue;
        };
        if examine != Examine::Kernel {
            continue;
        }
        let text = write_case(&case, subject.contract, None);
        if text.len() > MOST_BYTES {
            continue;
        }
        let more = neighbours(subject.contract, &case);
        let texts = more.iter().take(20).map(|case| write_case(case, subject.contract, None));
        for text in std::iter::once(text.clone()).chain(texts) {
            if !keep(&text)? {
                break 'drawing;
            }
        }
    }
    let paths = corpus::files(root.path(), subject.name())?;
    let known = KnownFailures::default();
    let machine = || Ok(vec![Box::new(VmBackend::new()) as Box<dyn Backend>]);
    // Once before: what is read and parsed once a process is no part of a rate.
    replay_all(root.path(), &known, &paths[..paths.len().min(8)], threads, &machine, &mut |_| {})?;
    let (started, before) = (Instant::now(), seconds_run()?);
    let all = replay_all(root.path(), &known, &paths, threads, &machine, &mut |_| {})?;
    let took = [started.elapsed().as_secs_f64(), seconds_run()? - before];
    for file in all.files {
        for replay in file? {
            let fine = replay.meaning == Meaning::Passes;
            assert!(fine, "{}: {}", replay.path.display(), replay.verdict);
        }
    }
    Ok((paths.len(), took))
}
