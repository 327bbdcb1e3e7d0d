//! Stored cases replayed per second, per contract: a thousand small cases, as shrunk ones are, are written
//! to files and replayed on every core, reading and checking of the files included.
//!
//! `cargo run --release -p properties --example replay_rate [CONTRACT…]`

use contracts::case_yaml::write_case;
use kernels::backend::Backend;
use kernels::backend::vm::VmBackend;
use properties::choices::{Seeded, mix};
use properties::corpus;
use properties::examine::Examine;
use properties::generate::{Draw, draw};
use properties::replay::{Meaning, replay_all};
use properties::shrink::neighbours;
use properties::subject::{Subject, subjects};
use std::error::Error;
use std::time::{Duration, Instant};

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
    let (mut all, mut spent) = (0, Duration::ZERO);
    println!("{threads} threads, {CASES} cases a contract of at most {MOST_BYTES} bytes");
    for subject in subjects() {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == subject.name()) {
            continue;
        }
        let (cases, took) = replayed(subject, threads)?;
        let rate = cases as f64 / took.as_secs_f64();
        println!("{:<16} {rate:>8.0} cases per second, {cases} cases", subject.name());
        all += cases;
        spent += took;
    }
    let rate = all as f64 / spent.as_secs_f64();
    println!("all              {rate:>8.0} cases per second; {WANTED} are wanted");
    Ok(())
}

fn replayed(
    subject: &'static Subject,
    threads: usize,
) -> Result<(usize, Duration), Box<dyn Error>> {
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
    let machine = || Ok(vec![Box::new(VmBackend::new()) as Box<dyn Backend>]);
    // Once before: what is read and parsed once a process is no part of a rate.
    replay_all(root.path(), &paths[..paths.len().min(8)], threads, &machine, &mut |_| {})?;
    let started = Instant::now();
    let all = replay_all(root.path(), &paths, threads, &machine, &mut |_| {})?;
    let took = started.elapsed();
    for file in all.files {
        for replay in file? {
            let fine = replay.meaning == Meaning::Passes;
            assert!(fine, "{}: {}", replay.path.display(), replay.verdict);
        }
    }
    Ok((paths.len(), took))
}
