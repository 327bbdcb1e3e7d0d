//! A shrink on several threads: candidates are judged ahead of their turn, as if those before were
//! rejected, and the first in order that fails alike is kept. What is judged in vain is not counted, so
//! case, verdict and counts are those of one thread.

use super::{STEPS, Shrunk, Stepper};
use crate::subject::Subject;
use crate::verdict::Verdict;
use contracts::case::Case;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Candidates under way for each thread: while one batch is waited for, nobody should be idle.
const AHEAD: usize = 2;

/// As [`super::shrink`], on this many threads; `judge` makes each thread its own judge.
pub fn shrink_on_threads<J: FnMut(&Case) -> Option<Verdict>>(
    subject: &Subject,
    case: &Case,
    failing: &Verdict,
    threads: usize,
    judge: &(dyn Fn() -> J + Sync),
    limit: Duration,
) -> Shrunk {
    let threads = threads.max(1);
    if threads == 1 {
        return super::shrink(subject, case, failing, &mut judge(), limit);
    }
    let desk = Desk::default();
    std::thread::scope(|scope| {
        let (sender, answers) = mpsc::channel();
        for _ in 0..threads {
            let (desk, sender) = (&desk, sender.clone());
            scope.spawn(move || {
                let _close = Close { desk, only_on_panic: true };
                let mut judge = judge();
                while let Some(job) = desk.take() {
                    let verdict = judge(&job.case).filter(|v| v.same_failure(failing));
                    if sender.send((job.batch, job.nth, verdict)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // Whatever ends this ends the workers.
        let _close = Close { desk: &desk, only_on_panic: false };
        lead(subject, case, failing, threads * AHEAD, (&desk, &answers), limit)
    })
}

type Answers = mpsc::Receiver<(u64, usize, Option<Verdict>)>;

/// Offers batches of candidates and follows the first of each that fails alike.
fn lead(
    subject: &Subject,
    case: &Case,
    failing: &Verdict,
    ahead: usize,
    (desk, answers): (&Desk, &Answers),
    limit: Duration,
) -> Shrunk {
    let deadline = Instant::now().checked_add(limit);
    let in_time = || deadline.is_none_or(|deadline| Instant::now() < deadline);
    let mut stepper = Stepper::new(subject.contract, case.clone());
    let mut shrunk =
        Shrunk { case: case.clone(), verdict: failing.clone(), tried: 0, kept: 0, finished: false };
    let mut batch = 0;
    while shrunk.tried < STEPS && in_time() {
        let most = usize::try_from(STEPS - shrunk.tried).map_or(ahead, |left| left.min(ahead));
        let cases: Vec<Case> = stepper.candidates(most, &in_time).cloned().collect();
        if cases.is_empty() {
            shrunk.finished = stepper.is_finished();
            break;
        }
        batch += 1;
        let count = cases.len();
        desk.put(batch, cases);
        let Some(first) = first_alike(batch, count, answers) else { break };
        match first {
            Some((nth, verdict)) => {
                shrunk.tried += nth as u64 + 1;
                shrunk.kept += 1;
                shrunk.verdict = verdict;
                stepper.keep_nth(nth);
            }
            None => {
                shrunk.tried += count as u64;
                stepper.reject();
            }
        }
    }
    shrunk.case = stepper.into_case();
    shrunk
}

/// The first in order of a batch that fails alike, as soon as all before it are answered; `None` when
/// no worker is left to answer.
fn first_alike(batch: u64, count: usize, answers: &Answers) -> Option<Option<(usize, Verdict)>> {
    let mut answered: Vec<Option<Option<Verdict>>> = vec![None; count];
    let mut next = 0;
    loop {
        match answered.get_mut(next).map(Option::take) {
            None => return Some(None),
            Some(Some(Some(verdict))) => return Some(Some((next, verdict))),
            Some(Some(None)) => next += 1,
            Some(None) => {
                let (of, nth, verdict) = answers.recv().ok()?;
                // Late answers are about cases that are no longer next.
                if of == batch {
                    answered[nth] = Some(verdict);
                }
            }
        }
    }
}

struct Job {
    batch: u64,
    nth: usize,
    case: Case,
}

/// Where workers find the batch that is wanted now.
#[derive(Default)]
struct Desk {
    jobs: Mutex<(VecDeque<Job>, bool)>,
    changed: Condvar,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Job>, bool)> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a batch in place of what is left of the one before.
    fn put(&self, batch: u64, cases: Vec<Case>) {
        let jobs = cases.into_iter().enumerate().map(|(nth, case)| Job { batch, nth, case });
        self.lock().0 = jobs.collect();
        self.changed.notify_all();
    }

    /// The next case to judge; `None` once the desk is closed.
    fn take(&self) -> Option<Job> {
        let mut desk = self.lock();
        loop {
            if desk.1 {
                return None;
            }
            if let Some(job) = desk.0.pop_front() {
                return Some(job);
            }
            desk = self.changed.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Closes the desk at the end: a worker that dies would be waited for by the others' leader.
struct Close<'d> {
    desk: &'d Desk,
    only_on_panic: bool,
}

impl Drop for Close<'_> {
    fn drop(&mut self) {
        if !self.only_on_panic || std::thread::panicking() {
            self.desk.lock().1 = true;
            self.desk.changed.notify_all();
        }
    }
}
