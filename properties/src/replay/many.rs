//! Many stored cases at once, on every core: each worker has backends and memory of its own, and the
//! answers come back in the order of the files, whoever gave them.

use super::{Replay, one};
use crate::check::{ToolError, Workspace};
use crate::corpus::KnownFailures;
use kernels::backend::vm::Coverage;
use kernels::backend::{Backend, BackendError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// What became of many files.
#[derive(Debug)]
pub struct Replayed {
    /// By file, in the order asked for: its replays, or why there are none.
    pub files: Vec<Result<Vec<Replay>, ToolError>>,
    /// PTX reached by all of them.
    pub coverage: Coverage,
}

/// Replays every file, `threads` at a time, held against what may fail. `backends` is asked once a worker; `observe` is told each
/// file as it is finished.
///
/// # Errors
/// When there is no backend. A file that cannot be
/// replayed is an error in its place and hides none of the others.
pub fn replay_all(
    root: &Path,
    known: &KnownFailures,
    paths: &[PathBuf],
    threads: usize,
    backends: &(dyn Fn() -> Result<Vec<Box<dyn Backend>>, BackendError> + Sync),
    observe: &mut dyn FnMut(&Path),
) -> Result<Replayed, ToolError> {
    let next = AtomicUsize::new(0);
    let work = |answers: mpsc::Sender<(usize, Result<Vec<Replay>, ToolError>)>| {
        let mut backends = backends()?;
        let mut workspace = Workspace::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(place) else { break };
            let answer = one(root, known, path, &mut backends, &mut workspace);
            // The receiver outlives every worker.
            let _ = answers.send((place, answer));
        }
        let mut coverage = Coverage::new();
        backends.iter().filter_map(|backend| backend.reached()).for_each(|c| coverage.merge(c));
        Ok(coverage)
    };
    let mut answered: Vec<(usize, Result<Vec<Replay>, ToolError>)> = Vec::new();
    let mut coverage = Coverage::new();
    let mut failure: Option<BackendError> = None;
    std::thread::scope(|scope| {
        let (sender, answers) = mpsc::channel();
        let workers: Vec<_> = (0..threads.clamp(1, paths.len().max(1)))
            .map(|_| {
                let (work, sender) = (&work, sender.clone());
                scope.spawn(move || work(sender))
            })
            .collect();
        drop(sender);
        for (place, answer) in answers {
            observe(&paths[place]);
            answered.push((place, answer));
        }
        for worker in workers {
            match worker.join() {
                Ok(Ok(reached)) => coverage.merge(&reached),
                Ok(Err(error)) => failure = Some(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    if let Some(error) = failure {
        return Err(error.into());
    }
    answered.sort_by_key(|(place, _)| *place);
    Ok(Replayed { files: answered.into_iter().map(|(_, answer)| answer).collect(), coverage })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::{Seeded, mix};
    use crate::corpus;
    use contracts::case_yaml::write_case;

    fn vm() -> Result<Vec<Box<dyn Backend>>, BackendError> {
        Ok(vec![Box::new(kernels::backend::vm::VmBackend::new())])
    }

    fn known() -> KnownFailures {
        KnownFailures::default()
    }

    /// Stored cases of one contract, drawn; the third file is no case.
    fn corpora(count: u64) -> (tempfile::TempDir, Vec<PathBuf>) {
        let root = tempfile::tempdir().expect("a folder");
        let subject = crate::subject::subject("argmax_rows").expect("a production subject");
        let folder = root.path().join(subject.name());
        std::fs::create_dir(&folder).expect("made");
        for number in 0..count {
            let draw = crate::generate::draw(subject, &mut Seeded { seed: mix(7, number) });
            let case = draw.expect("drawn").case;
            let text = write_case(&case, subject.contract, None);
            std::fs::write(folder.join(format!("case-{number:03}.yaml")), text).expect("written");
        }
        std::fs::write(folder.join("case-002.yaml"), "case: 1\n").expect("written");
        let paths = corpus::files(root.path(), subject.name()).expect("listed");
        (root, paths)
    }

    #[test]
    fn answers_come_in_the_order_of_the_files_on_any_number_of_threads() {
        let (root, paths) = corpora(24);
        let replayed = |threads| {
            let mut told = 0;
            let all = replay_all(root.path(), &known(), &paths, threads, &vm, &mut |_| told += 1);
            let all = all.expect("the tool works");
            assert_eq!((told, all.files.len()), (24, 24));
            let texts = all.files.iter().map(|file| match file {
                Ok(replays) => format!("{} {}", replays[0].path.display(), replays[0].verdict),
                Err(error) => error.to_string(),
            });
            (texts.collect::<Vec<_>>(), all.coverage)
        };
        let (texts, coverage) = replayed(1);
        assert!(texts[2].contains("case-002.yaml") && texts[2].contains("is missing"), "{texts:?}");
        assert!(texts[3].contains("case-003.yaml agree"), "{texts:?}");
        assert!(coverage.edges() > 0);
        for threads in [2, 7] {
            assert!(replayed(threads) == (texts.clone(), coverage.clone()), "{threads} threads");
        }
    }

    #[test]
    fn no_backend_is_an_error_and_no_file_none() {
        let (root, paths) = corpora(3);
        let none = || Err(BackendError::CannotCapture { backend: "none" });
        let error =
            replay_all(root.path(), &known(), &paths, 2, &none, &mut |_| {}).expect_err("none");
        assert!(matches!(error, ToolError::Backend(_)), "{error}");
        let all =
            replay_all(root.path(), &known(), &[], 2, &vm, &mut |_| {}).expect("nothing to do");
        assert!(all.files.is_empty());
    }
}
