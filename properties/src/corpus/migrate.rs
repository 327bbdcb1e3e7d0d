//! Stored cases of an older version written in today's form. A case is carried over as the contract's
//! history says, or is named with the reason why not and left as it is; none is dropped.

use super::{CorpusError, files, must_be_of, or_another, read_text, replace_case};
use contracts::CaseError;
use contracts::case::Case;
use contracts::case_yaml::{CASE_LIMIT_BYTES, read_case, read_versioned, write_case};
use contracts::format::Contract;
use std::path::{Path, PathBuf};

/// What became of one contract's stored cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Cases of an older version that are, or could be, in today's form.
    pub carried: Vec<PathBuf>,
    /// Cases that cannot be read under today's contract, with the reason.
    pub refused: Vec<String>,
    /// Cases that are in today's form already.
    pub current: usize,
}

/// Goes through the stored cases of a contract; with `write`, those of an older version are written
/// anew, comments kept.
///
/// # Errors
/// When the corpora cannot be listed or written.
pub fn migrate(root: &Path, contract: &Contract, write: bool) -> Result<Migrated, CorpusError> {
    let mut migrated = Migrated::default();
    for path in files(root, &contract.contract)? {
        let text = match read_text(&path, CASE_LIMIT_BYTES as u64) {
            Ok(text) => text,
            Err(error) => {
                migrated.refused.push(error.to_string());
                continue;
            }
        };
        match carried(&text, &path, contract) {
            Ok(None) => migrated.current += 1,
            Ok(Some(case)) => {
                if write {
                    replace_case(&path, &text, &case, contract, None)?;
                }
                migrated.carried.push(path);
            }
            Err(error) => migrated.refused.push(error.to_string()),
        }
    }
    Ok(migrated)
}

/// The case in today's form, `None` when it is; only what reads back the same is carried over.
fn carried(text: &str, path: &Path, contract: &Contract) -> Result<Option<Case>, CaseError> {
    let file = path.display().to_string();
    let lookup = |name: &str| or_another(contract, name);
    let (case, is_older) = read_versioned(text, &file, &lookup)?;
    must_be_of(&case, contract, path)?;
    if !is_older {
        return Ok(None);
    }
    let again = read_case(&write_case(&case, contract, None), &file, &lookup)?;
    if again != case {
        let what = "in today's form it reads as another case";
        let remedy = "keep the file as it is: it is still read by the history";
        return Err(CaseError { file, ..CaseError::new("", what, remedy) });
    }
    Ok(Some(case))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::write::{is_ours, stems};

    const CONTRACT: &str = "\
contract: scale_rows
version: 2
kind: kernel
summary: Each row times its factor.
spec: none
dtypes: {io: [f32]}
options: {order: [first, final]}
dims:
  tokens: {range: [0, 4]}
tensors:
  x: {access: read, dtype: io, shape: [tokens], domain: any, values: [{normal: 1.0}]}
  out: {access: write, dtype: io, shape: [tokens]}
tolerance:
  out: {all: {bits: {}}}
history:
  - version: 2
    because: rows are tokens, and there is no sorted order any more
    link: \"https://example.org/issues/9\"
    renamed: {dims.T: dims.tokens, tensors.y: tensors.out, options.order.last: options.order.final}
";

    const OLD: &str = "\
# tolerance.y.all: expected 1, observed 2
# cargo run --release -- replay corpora/scale_rows/tolerance_y_all-00000000.yaml
# seen in the field
case: 1
contract: scale_rows
version: 1
found: {clause: tolerance.y.all, backend: vm}
dtypes: {io: f32}
options: {order: last}
dims: {T: 2}
poison: quiet
tensors:
  x: {layout: dense, fill: 0x3f800000, at: {\"1\": 0x40000000}}   # the second row
  y: {layout: dense}
";

    const NEW: &str = "\
# tolerance.y.all: expected 1, observed 2
# cargo run --release -- replay corpora/scale_rows/tolerance_y_all-00000000.yaml
# seen in the field
# the second row
case: 1
contract: scale_rows
version: 2
found: {clause: tolerance.out.all, backend: vm}
dtypes: {io: f32}
options: {order: final}
dims: {tokens: 2}
poison: quiet
tensors:
  x: {layout: dense, fill: 0x3f800000, at: {\"1\": 0x40000000}}
  out: {layout: dense}
";

    #[test]
    fn old_cases_are_carried_over_or_named_and_none_is_lost() {
        let contract = contracts::parse_contract(CONTRACT, "scale_rows.yaml").expect("it loads");
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("scale_rows");
        std::fs::create_dir(&folder).expect("made");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).expect("written");
        };
        write("a.yaml", OLD);
        write("b.yaml", &OLD.replace("order: last", "order: sorted"));
        write("c.yaml", NEW);
        write("d.yaml", "case: 1\n");
        std::fs::create_dir(folder.join("e.yaml")).expect("made");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("read");

        let shown = migrate(root.path(), &contract, false).expect("listed");
        assert_eq!(read("a.yaml"), OLD, "nothing is written unasked");
        let written = migrate(root.path(), &contract, true).expect("written");
        assert_eq!(shown, written);
        assert_eq!(written.carried, [folder.join("a.yaml")]);
        assert_eq!((written.current, written.refused.len()), (1, 3), "{written:?}");
        assert!(
            written.refused[0].contains("b.yaml:9: options.order: `sorted` is no value of `order`"),
            "{written:?}"
        );
        assert!(written.refused[1].contains("d.yaml"), "{written:?}");
        assert!(written.refused[2].contains("e.yaml"), "{written:?}");
        assert_eq!(read("a.yaml"), NEW);
        assert_eq!(read("b.yaml"), OLD.replace("order: last", "order: sorted"), "left as it was");

        let again = migrate(root.path(), &contract, true).expect("nothing to do");
        assert_eq!((again.carried.len(), again.current, again.refused.len()), (0, 2, 3));
    }

    /// A name goes by what the case was; that a tool wrote it is known afterwards too.
    #[test]
    fn what_the_tool_wrote_is_still_its_own_when_carried_over() {
        let contract = contracts::parse_contract(CONTRACT, "scale_rows.yaml").expect("it loads");
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("scale_rows");
        std::fs::create_dir(&folder).expect("made");
        let told = OLD.replace("# seen in the field\n", "").replace("   # the second row", "");
        let body: String =
            told.split_inclusive('\n').filter(|line| !line.starts_with(['#', 'f'])).collect();
        let [stem, _] = stems("tolerance.y.all", &body);
        let (ours, by_hand) =
            (folder.join(format!("{stem}.yaml")), folder.join("tolerance_y_all-00000000.yaml"));
        for path in [&ours, &by_hand] {
            std::fs::write(path, &told).expect("written");
        }
        let is_ours = |path: &Path| {
            let text = std::fs::read_to_string(path).expect("read");
            (is_ours(path, &text), text)
        };
        assert_eq!((is_ours(&ours).0, is_ours(&by_hand).0), (true, false));
        migrate(root.path(), &contract, true).expect("written");
        let (still, text) = is_ours(&ours);
        assert!(still && text.contains("\n# rewritten, digest "), "{text}");
        assert!(!is_ours(&by_hand).0);
        let edited = text.replace("fill: 0x3f800000", "fill: 0x40000000");
        assert!(edited != text && !crate::corpus::write::is_ours(&ours, &edited), "{edited}");
    }
}
