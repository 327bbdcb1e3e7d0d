//! Stored cases and histories written out as inputs of a fuzz target. Each is decoded again before it is
//! written: what would not start the target from exactly that case is told instead.

use super::seed::{Decoder, LONGEST_INPUT_BYTES, input_of};
use crate::corpus::{self, CorpusError};
use crate::replay;
use crate::rounds;
use crate::subject::Subject;
use contracts::case::Case;
use contracts::case_yaml::write_case;
use std::path::Path;

/// What became of one contract's cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Inputs in the folder now.
    pub written: usize,
    /// Cases that are none, with the reason.
    pub refused: Vec<String>,
}

/// How the files' names end.
const EXTENSION: &str = "case";

/// Writes an input for every stored case of a contract into `folder`, and removes the inputs of cases
/// that are gone.
///
/// # Errors
/// When a folder cannot be listed or written.
pub fn export(
    root: &Path,
    subject: &'static Subject,
    folder: &Path,
) -> Result<Exported, CorpusError> {
    let mut decoder = Decoder::new(subject);
    write_inputs(root, subject.name(), folder, |path| {
        let (_, case) = replay::read(root, path).map_err(|error| error.to_string())?;
        input(subject, &case, &mut decoder).map_err(|why| format!("{}: {why}", path.display()))
    })
}

/// As [`export`], of the stored histories of speculative rounds.
///
/// # Errors
/// When a folder cannot be listed or written.
pub fn export_histories(root: &Path, folder: &Path) -> Result<Exported, CorpusError> {
    write_inputs(root, rounds::CONTRACT, folder, |path| {
        let stored = rounds::read(path).map_err(|error| error.to_string())?;
        let bytes = rounds::bytes_of_history(&stored.history);
        bytes.map_err(|why| format!("{}: {why}", path.display()))
    })
}

/// An input for every stored file that makes one.
fn write_inputs(
    root: &Path,
    contract: &str,
    folder: &Path,
    mut input: impl FnMut(&Path) -> Result<Vec<u8>, String>,
) -> Result<Exported, CorpusError> {
    let mut exported = Exported::default();
    let mut stems: Vec<String> = Vec::new();
    for path in &corpus::files(root, contract)? {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match input(path) {
            Ok(bytes) => {
                corpus::write_whole(&folder.join(format!("{stem}.{EXTENSION}")), &bytes)?;
                exported.written += 1;
                stems.push(stem);
            }
            Err(why) => exported.refused.push(why),
        }
    }
    remove_others(folder, &stems);
    Ok(exported)
}

fn input(subject: &Subject, case: &Case, decoder: &mut Decoder) -> Result<Vec<u8>, String> {
    let text = |case: &Case| write_case(case, subject.contract, None);
    let bytes = input_of(&text(case)).ok_or_else(|| {
        format!("as an input it is longer than {LONGEST_INPUT_BYTES} bytes; shrink it, or fuzz without it")
    })?;
    match decoder.decode(&bytes).0 {
        Ok(draw) if text(&draw.case) == text(case) && draw.examine == replay::examination(case) => {
            Ok(bytes)
        }
        Ok(_) => Err("as an input it decodes to another case".to_owned()),
        Err(discard) => Err(format!("as an input it decodes to none: {}", discard.0)),
    }
}

/// Inputs that were written for cases no longer stored; a fuzzer's own finds have other names.
fn remove_others(folder: &Path, stems: &[String]) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_ours = path.extension().is_some_and(|extension| extension == EXTENSION);
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if is_ours && !stems.iter().any(|kept| *kept == stem) {
            // One that stays starts a run from a case that was known once: no harm.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stored_case_is_an_input_and_what_is_none_is_told() {
        let ours = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpora"));
        let to = tempfile::tempdir().expect("a folder");
        let mut all = 0;
        for subject in crate::subject::subjects() {
            let folder = to.path().join(subject.name());
            let exported = export(ours, subject, &folder).expect("written");
            assert_eq!(exported.refused, Vec::<String>::new());
            let files = std::fs::read_dir(&folder).map_or(0, Iterator::count);
            assert_eq!(files, exported.written, "{}", subject.name());
            all += files;
        }
        assert!(all >= 46, "{all} inputs");
    }

    #[test]
    fn every_stored_history_is_an_input_and_a_broken_one_is_told() {
        let ours = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpora"));
        let root = tempfile::tempdir().expect("a folder");
        let (stored, to) = (root.path().join(rounds::CONTRACT), root.path().join("inputs"));
        std::fs::create_dir(&stored).expect("made");
        let files = corpus::files(ours, rounds::CONTRACT).expect("listed");
        for file in &files {
            let name = file.file_name().expect("a file");
            std::fs::copy(file, stored.join(name)).expect("copied");
        }
        std::fs::write(stored.join("broken.yaml"), "case: 1\n").expect("written");
        let exported = export_histories(root.path(), &to).expect("written");
        assert!(exported.written >= 26 && exported.written == files.len(), "{exported:?}");
        assert_eq!(exported.refused.len(), 1, "{exported:?}");
        assert!(exported.refused[0].contains("broken.yaml"), "{exported:?}");
        for file in &files {
            let stem = file.file_stem().expect("a name").to_string_lossy();
            let bytes = std::fs::read(to.join(format!("{stem}.{EXTENSION}"))).expect("there");
            let read = rounds::read(file).expect("it reads");
            assert_eq!(rounds::history_of_bytes(&bytes), read.history, "{stem}");
        }
    }

    #[test]
    fn inputs_follow_the_stored_cases() {
        let subject = crate::subject::subject("row_topk").expect("a production subject");
        let root = tempfile::tempdir().expect("a folder");
        let ours = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpora/row_topk"));
        let (stored, to) = (root.path().join("row_topk"), root.path().join("inputs"));
        std::fs::create_dir(&stored).expect("made");
        for entry in std::fs::read_dir(ours).expect("listed").flatten() {
            std::fs::copy(entry.path(), stored.join(entry.file_name())).expect("copied");
        }
        std::fs::write(stored.join("broken.yaml"), "case: 1\n").expect("written");
        let first = export(root.path(), subject, &to).expect("written");
        assert!(first.written >= 3 && first.refused.len() == 1, "{first:?}");
        assert!(first.refused[0].contains("broken.yaml"), "{first:?}");
        std::fs::write(to.join("found_by_the_fuzzer"), "x").expect("written");
        let gone = corpus::files(root.path(), "row_topk").expect("listed").pop().expect("one");
        std::fs::remove_file(&gone).expect("removed");
        let again = export(root.path(), subject, &to).expect("written");
        assert_eq!(again.written, first.written - 1);
        let files = std::fs::read_dir(&to).expect("listed").count();
        assert_eq!(files, again.written + 1, "and the fuzzer's own");
    }
}
