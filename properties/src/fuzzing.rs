//! What every libFuzzer target does with its bytes: a tape becomes a case, the case a verdict. A
//! disagreement is shrunk and written to `corpora/` before the process crashes on it. Inputs are kept
//! for the kernel's branches they reach and for the decisions they make, not for the harness's own.

pub mod export;
pub mod seed;

use crate::check::{Workspace, check};
use crate::choices::{Answer, mix};
use crate::corpus;
use crate::counters::Counters;
use crate::report;
use crate::search::shrink_on;
use crate::subject::{Subject, subject};
use kernels::backend::vm::{VmBackend, guidance};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// State one fuzz target keeps between inputs.
pub struct Harness {
    subject: &'static Subject,
    decoder: seed::Decoder,
    backend: VmBackend,
    workspace: Workspace,
    counters: Counters,
    inputs: u64,
    launched: u64,
    started: Instant,
    reported: Instant,
    asked: Vec<u16>,
}

/// Whether libFuzzer should keep an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It was a case.
    Yes,
    /// It was none.
    No,
}

/// Time a crashing input may be shrunk for.
const SHRINK_LIMIT: Duration = Duration::from_secs(20);
/// Between two writes of the coverage report.
const REPORT_EVERY: Duration = Duration::from_secs(5);

impl Harness {
    /// A harness for one contract.
    ///
    /// # Panics
    /// When no contract has this name: the target's name is wrong and nothing can be fuzzed.
    pub fn new(contract: &str) -> Harness {
        let Some(subject) = subject(contract) else {
            panic!("no contract is named `{contract}`; `cargo run --release -- list` names them");
        };
        Harness {
            subject,
            decoder: seed::Decoder::new(subject),
            backend: VmBackend::new(),
            workspace: Workspace::new(),
            counters: Counters::default(),
            inputs: 0,
            launched: 0,
            started: Instant::now(),
            reported: Instant::now(),
            asked: Vec::new(),
        }
    }

    /// Runs one input.
    ///
    /// # Panics
    /// On a disagreement or fault, after it has been shrunk and written; and when the tool fails.
    pub fn run(&mut self, bytes: &[u8]) -> Keep {
        self.inputs += 1;
        let (draw, asked) = self.decoder.decode(bytes);
        self.remember(&asked);
        let Ok(draw) = draw else { return Keep::No };
        for (key, answer) in &asked {
            guidance::count_feature(u64::from(*key) << 8 | u64::from(*answer));
        }
        let before = self.backend.launches();
        let verdict = check(
            self.subject,
            &draw.case,
            &draw.examine,
            &mut self.backend,
            &mut self.workspace,
            &mut self.counters,
        );
        self.launched += u64::from(self.backend.launches() > before);
        let verdict = verdict.unwrap_or_else(|error| panic!("{error}"));
        if verdict.is_failure() {
            self.crash(&draw.case, &verdict);
        }
        if self.reported.elapsed() >= REPORT_EVERY {
            self.reported = Instant::now();
            self.report();
        }
        Keep::Yes
    }

    fn remember(&mut self, asked: &[(u16, Answer)]) {
        for (key, _) in asked {
            if let Err(place) = self.asked.binary_search(key) {
                self.asked.insert(place, *key);
            }
        }
    }

    fn crash(&mut self, case: &contracts::case::Case, verdict: &crate::verdict::Verdict) -> ! {
        eprintln!(
            "{}: a disagreement; shrinking it for up to {SHRINK_LIMIT:?}",
            self.subject.name()
        );
        let mut backend = VmBackend::new();
        let shrunk =
            shrink_on(self.subject, case, verdict, &mut backend, &mut self.workspace, SHRINK_LIMIT);
        let written = corpus::write_regression(
            &repository().join("corpora"),
            self.subject,
            &shrunk.case,
            &shrunk.verdict,
            "vm",
        );
        let path = written.as_ref().ok().map(PathBuf::as_path);
        eprintln!("{}", report::finding(self.subject, &shrunk.case, &shrunk.verdict, path));
        if let Err(error) = &written {
            eprintln!("{error}");
        }
        panic!("{} disagrees on {}", self.subject.name(), verdict.clause().unwrap_or("?"));
    }

    fn report(&self) {
        let text = self.coverage_report();
        let path = repository().join("fuzz/coverage").join(format!("{}.txt", self.subject.name()));
        let written = path.parent().map(std::fs::create_dir_all).transpose().map(|_| ());
        if written.and_then(|()| std::fs::write(&path, &text)).is_ok() {
            let first = text.lines().next().unwrap_or_default();
            eprintln!("{first}; by PTX block in {}", path.display());
        }
    }

    /// Launches, rates and every PTX block with its hits and source line.
    pub fn coverage_report(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        format!(
            "{}: {} inputs, {} of them launched, {} launches ({:.0} per second), {}\n{}",
            self.subject.name(),
            self.inputs,
            self.launched,
            self.backend.launches(),
            self.backend.launches() as f64 / seconds.max(1e-9),
            self.backend.coverage().headline(),
            self.backend.coverage().by_block(),
        )
    }

    /// Edits a tape in place: a new seed, or one record's key and value. A case before the records stays
    /// as it is. Returns the new size.
    pub fn mutate(&self, bytes: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
        let random = |n: u64| mix(u64::from(seed), n);
        let limit = max_size.min(bytes.len());
        if limit < 16 {
            return size.min(limit);
        }
        let mut size = size.min(limit).max(8) / 8 * 8;
        let head = seed::head_bytes(&bytes[..size]);
        let records = (size - head) / 8;
        match random(0) % 8 {
            0 if head == 8 => bytes[..8].copy_from_slice(&random(1).to_le_bytes()),
            1 if records > 0 => size -= 8,
            kind => {
                let append = size + 8 <= limit && (kind < 5 || records == 0);
                if !append && records == 0 {
                    return size;
                }
                let place = if append { size } else { head + 8 * (random(2) as usize % records) };
                if append {
                    size += 8;
                }
                let key = match self.asked.len() as u64 {
                    0 => random(3) as u16,
                    count => self.asked[(random(3) % count) as usize],
                };
                // Small values reach edges and first choices; wide ones, seeds and large ranges.
                let value = if random(4) & 1 == 0 { random(5) % 64 } else { random(5) };
                bytes[place..place + 2].copy_from_slice(&key.to_le_bytes());
                bytes[place + 2..place + 8].copy_from_slice(&value.to_le_bytes()[..6]);
            }
        }
        size
    }
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
