//! One finding: what was promised, where it broke, what was expected and seen, on which case, and how
//! to see it again.

use super::clause::promise;
use super::paint::Paint;
use crate::corpus;
use crate::subject::Subject;
use crate::verdict::{ErrorSummary, FaultReport, Verdict};
use contracts::case::{Case, Layout, StoreForm};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Largest source file looked into.
const SOURCE_LIMIT_BYTES: u64 = 4 << 20;

/// The finding for a terminal, in colour where standard output shows it; without a final newline.
pub fn finding(subject: &Subject, case: &Case, verdict: &Verdict, path: Option<&Path>) -> String {
    text(subject, case, verdict, path, Paint::stdout())
}

fn text(
    subject: &Subject,
    case: &Case,
    verdict: &Verdict,
    path: Option<&Path>,
    paint: Paint,
) -> String {
    let what = match verdict {
        Verdict::Agree => "agrees",
        Verdict::Disagree(_) => "disagrees",
        Verdict::Fault(_) => "faults",
        Verdict::Unsupported(_) => "cannot run",
        Verdict::Discard(_) => "was not asked",
    };
    let clause = verdict.clause().unwrap_or_default();
    let head = format!("{} {what}: {clause}", subject.name());
    let mut rows = Rows { lines: vec![paint.bad(head.trim_end_matches([':', ' ']))], paint };
    rows.add("promise", &promise(subject.contract, clause));
    match verdict {
        Verdict::Disagree(found) => {
            if let Some(tensor) = &found.tensor {
                rows.add("where", &place(tensor, &found.index));
            }
            rows.add("expected", &found.expected);
            rows.add("observed", &rows.paint.strong(&found.observed));
            rows.add("written by", &found.written_by);
            if let Some(error) = &found.error {
                rows.add("error", &error_text(error));
            }
            rows.add("note", &found.note);
        }
        Verdict::Fault(fault) => {
            rows.add("fault", &rows.paint.strong(&fault.text));
            if let Some(tensor) = &fault.tensor {
                rows.add("tensor", tensor);
            }
            if let Some(source) = &fault.source {
                rows.add("source", source);
                rows.add("", &source_text(subject.family, source).unwrap_or_default());
            }
        }
        Verdict::Unsupported(why) | Verdict::Discard(why) => rows.add("because", why),
        Verdict::Agree => {}
    }
    rows.add("case", &corpus::describe(case));
    if let Some(path) = path {
        rows.add("regression", &path.display().to_string());
        rows.add("replay", &replay(path));
    }
    rows.lines.join("\n")
}

struct Rows {
    lines: Vec<String>,
    paint: Paint,
}

impl Rows {
    /// One labelled row; the lines of a longer value stand under each other. Nothing for no value.
    fn add(&mut self, label: &str, value: &str) {
        for (number, line) in value.lines().enumerate() {
            let label = if number == 0 { label } else { "" };
            let label = self.paint.faint(&format!("{label:<10}"));
            self.lines.push(format!("  {label} {line}"));
        }
    }
}

fn place(tensor: &str, index: &[u64]) -> String {
    let index: Vec<String> = index.iter().map(u64::to_string).collect();
    format!("{tensor}[{}]", index.join(", "))
}

fn error_text(error: &ErrorSummary) -> String {
    let times = error.error / error.bound;
    let times =
        if times.is_finite() { format!(", {times:.3} times as much") } else { String::new() };
    format!(
        "{:.3e} where {:.3e} is allowed{times}; {} of {} elements wrong\n\
         largest {:.3e} ({:.1} ulp), worst {:.3} of its bound, relative RMS {:.3e}, norm ratio {:.6}, {} not finite",
        error.error,
        error.bound,
        error.wrong,
        error.compared,
        error.max_abs,
        error.max_ulps,
        error.worst_ratio,
        error.relative_rms,
        error.norm_ratio,
        error.nonfinite
    )
}

/// The replay command of a regression; its root is the folder above the contract's.
fn replay(path: &Path) -> String {
    let root = path.parent().and_then(Path::parent).unwrap_or(Path::new(""));
    corpus::replay_command(path, root)
}

/// The text of a line such as `gdn_chunk.cu:120`, where the kernels' sources are at hand.
fn source_text(family: &str, source: &str) -> Option<String> {
    let built = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/cuda"));
    [built, Path::new("kernels/cuda")]
        .into_iter()
        .find_map(|folder| source_line(folder, family, source))
}

fn source_line(folder: &Path, family: &str, source: &str) -> Option<String> {
    let (file, line) = source.rsplit_once(':')?;
    let line: usize = line.parse().ok()?;
    let file = Path::new(file);
    if file.components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
        return None;
    }
    let places: [PathBuf; 3] =
        [folder.join(file), folder.join(family).join(file), folder.join("include").join(file)];
    let text = places.iter().find_map(|place| {
        let small = std::fs::metadata(place).ok()?.len() <= SOURCE_LIMIT_BYTES;
        small.then(|| std::fs::read_to_string(place).ok()).flatten()
    })?;
    text.lines().nth(line.checked_sub(1)?).map(|line| line.trim().to_owned())
}

/// The finding under stable keys. Numbers JSON lacks (NaN, infinities) are null.
pub fn finding_json(
    subject: &Subject,
    case: &Case,
    verdict: &Verdict,
    path: Option<&Path>,
) -> Value {
    let clause = verdict.clause();
    let mut value = json!({
        "contract": subject.name(),
        "family": subject.family,
        "verdict": kind(verdict),
        "clause": clause,
        "promise": clause.map(|clause| promise(subject.contract, clause)),
        "tensor": verdict.tensor(),
        "case": case_json(case),
        "regression": path.map(|path| path.display().to_string()),
        "replay": path.map(replay),
    });
    let detail = match verdict {
        Verdict::Disagree(found) => json!({
            "index": found.index,
            "expected": found.expected,
            "observed": found.observed,
            "written_by": (!found.written_by.is_empty()).then_some(&found.written_by),
            "error": found.error.as_ref().map(error_json),
            "note": found.note,
        }),
        Verdict::Fault(fault) => fault_json(subject.family, fault),
        Verdict::Unsupported(why) | Verdict::Discard(why) => json!({ "because": why }),
        Verdict::Agree => json!({}),
    };
    if let (Value::Object(value), Value::Object(detail)) = (&mut value, detail) {
        value.extend(detail);
    }
    value
}

fn kind(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Agree => "agree",
        Verdict::Disagree(_) => "disagree",
        Verdict::Fault(_) => "fault",
        Verdict::Unsupported(_) => "unsupported",
        Verdict::Discard(_) => "discard",
    }
}

fn fault_json(family: &str, fault: &FaultReport) -> Value {
    let source_text = fault.source.as_ref().and_then(|source| source_text(family, source));
    json!({ "fault": fault.text, "source": fault.source, "source_text": source_text })
}

fn error_json(error: &ErrorSummary) -> Value {
    json!({
        "error": error.error,
        "bound": error.bound,
        "wrong": error.wrong,
        "compared": error.compared,
        "max_abs": error.max_abs,
        "max_ulps": error.max_ulps,
        "relative_rms": error.relative_rms,
        "norm_ratio": error.norm_ratio,
        "nonfinite": error.nonfinite,
        "worst_ratio": error.worst_ratio,
    })
}

fn case_json(case: &Case) -> Value {
    let layouts = case.tensors.iter().filter(|(_, tensor)| tensor.layout != Layout::Dense);
    let layout = |layout: &Layout| match layout {
        Layout::Dense => json!("dense"),
        Layout::Permuted => json!("permuted"),
        Layout::OddUnitStrides(amount) => json!({ "odd_unit_strides": amount }),
        Layout::Wide => json!("wide"),
        Layout::Rank0 => json!("rank0"),
        Layout::RowPadded(amount) => json!({ "row_padded": amount }),
        Layout::OuterPadded(amount) => json!({ "outer_padded": amount }),
        Layout::Offset(amount) => json!({ "offset": amount }),
    };
    let stores = case.stores.iter().map(|(name, form)| {
        let form = match form {
            StoreForm::Separate => json!("separate"),
            StoreForm::Packed { pad } => json!({ "packed": pad }),
        };
        (name.clone(), form)
    });
    json!({
        "version": case.version,
        "dtypes": case.dtypes,
        "options": case.options,
        "variants": case.variants,
        "dims": case.dims,
        "lists": case.lists,
        "stores": stores.collect::<serde_json::Map<_, _>>(),
        "layouts": layouts.map(|(name, tensor)| (name.clone(), layout(&tensor.layout))).collect::<serde_json::Map<_, _>>(),
        "poison": case.poison,
        "schedule": match case.schedule {
            contracts::case::Schedule::InOrder => json!("in_order"),
            contracts::case::Schedule::Seeded(seed) => json!(seed),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Disagreement;
    use contracts::case::{CaseTensor, Content, Decisions, Schedule};
    use contracts::dtype::{DType, Poison};

    fn subject() -> &'static Subject {
        crate::subject::subject("canary_row_sum").expect("the canary")
    }

    fn case() -> Case {
        let x = CaseTensor { layout: Layout::RowPadded(3), content: Content::Dense(Vec::new()) };
        Case {
            contract: "canary_row_sum".to_owned(),
            version: 1,
            found: None,
            dtypes: [("x".to_owned(), DType::F32)].into_iter().collect(),
            options: Decisions::new(),
            variants: Decisions::new(),
            dims: [("R".to_owned(), 1), ("n".to_owned(), 65)].into_iter().collect(),
            lists: Decisions::new(),
            scalars: Decisions::new(),
            stores: Decisions::new(),
            poison: Poison::Quiet,
            schedule: Schedule::InOrder,
            tensors: [("x".to_owned(), x)].into_iter().collect(),
        }
    }

    fn disagreement() -> Verdict {
        let error = ErrorSummary {
            error: 1.0,
            bound: 0.25,
            wrong: 1,
            compared: 1,
            max_abs: 1.0,
            relative_rms: 1.0,
            norm_ratio: 0.0,
            nonfinite: 0,
            max_ulps: 8_388_608.0,
            worst_ratio: 4.0,
        };
        Verdict::Disagree(Box::new(Disagreement {
            clause: "tolerance.y.all".to_owned(),
            tensor: Some("y".to_owned()),
            index: vec![0],
            expected: "1 (0x3f800000)".to_owned(),
            observed: "0 (0x00000000)".to_owned(),
            written_by: String::new(),
            error: Some(error),
            note: String::new(),
        }))
    }

    fn fault(source: &str) -> Verdict {
        Verdict::Fault(Box::new(FaultReport {
            clause: "house.bounds".to_owned(),
            text: "read of 4 bytes past x\nby thread 3".to_owned(),
            tensor: Some("x".to_owned()),
            source: Some(source.to_owned()),
        }))
    }

    #[test]
    fn a_disagreement_in_full() {
        let path = Path::new("here/corpora/canary_row_sum/tolerance_y_all-1a2b3c4d.yaml");
        let expected = "\
canary_row_sum disagrees: tolerance.y.all
  promise    |y - reference| <= half an ulp of f32 + 256 u(f32) abs_sum + 1e-30
  where      y[0]
  expected   1 (0x3f800000)
  observed   0 (0x00000000)
  error      1.000e0 where 2.500e-1 is allowed, 4.000 times as much; 1 of 1 elements wrong
             largest 1.000e0 (8388608.0 ulp), worst 4.000 of its bound, relative RMS 1.000e0, norm ratio 0.000000, 0 not finite
  case       x=f32 R=1 n=65 x row_padded 3
  regression here/corpora/canary_row_sum/tolerance_y_all-1a2b3c4d.yaml
  replay     cargo run --release -- replay here/corpora/canary_row_sum/tolerance_y_all-1a2b3c4d.yaml";
        assert_eq!(text(subject(), &case(), &disagreement(), Some(path), Paint::PLAIN), expected);
    }

    #[test]
    fn the_writer_stands_below_the_value() {
        let mut verdict = disagreement();
        if let Verdict::Disagree(found) = &mut verdict {
            found.written_by = "PTX line 9: st\nthe last of 2 stores to it".to_owned();
        }
        let text = text(subject(), &case(), &verdict, None, Paint::PLAIN);
        let expected = "  observed   0 (0x00000000)\n  written by PTX line 9: st\n             the last of 2 stores to it\n  error ";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_fault_in_full() {
        let expected = "\
canary_row_sum faults: house.bounds
  promise    every access lies inside a buffer and is aligned
  fault      read of 4 bytes past x
             by thread 3
  tensor     x
  source     nowhere.cu:12
  case       x=f32 R=1 n=65 x row_padded 3";
        assert_eq!(text(subject(), &case(), &fault("nowhere.cu:12"), None, Paint::PLAIN), expected);
    }

    #[test]
    fn source_lines_are_found_by_family_or_among_headers_and_nowhere_else() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let inside = folder.path().join("cuda");
        std::fs::create_dir_all(inside.join("canary")).expect("made");
        std::fs::write(inside.join("canary/k.cu"), "one\n  y[row] = sum;\n").expect("written");
        std::fs::write(folder.path().join("secret"), "no\n").expect("written");
        let line = |source| source_line(&inside, "canary", source);
        assert_eq!(line("k.cu:2").as_deref(), Some("y[row] = sum;"));
        assert_eq!(line("canary/k.cu:1").as_deref(), Some("one"));
        assert_eq!(
            (line("k.cu:3"), line("k.cu:0"), line("k.cu"), line("../secret:1")),
            (None, None, None, None)
        );
    }

    #[test]
    fn json_keys_are_stable() {
        let value = finding_json(subject(), &case(), &disagreement(), None);
        let keys: Vec<&str> =
            value.as_object().expect("an object").keys().map(String::as_str).collect();
        let expected = [
            "contract",
            "family",
            "verdict",
            "clause",
            "promise",
            "tensor",
            "case",
            "regression",
            "replay",
            "index",
            "expected",
            "observed",
            "written_by",
            "error",
            "note",
        ];
        assert_eq!(keys, expected);
        assert_eq!(value["error"]["worst_ratio"], 4.0);
        assert_eq!(value["case"]["layouts"], json!({ "x": { "row_padded": 3 } }));
        let value =
            finding_json(subject(), &case(), &fault("x.cu:1"), Some(Path::new("corpora/a/b.yaml")));
        let known = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpora/a/b.yaml"));
        assert!(value["replay"].as_str().is_some_and(|text| text.ends_with("corpora/a/b.yaml")));
        let value = finding_json(subject(), &case(), &fault("x.cu:1"), Some(known));
        assert_eq!(value["replay"], "cargo run --release -- replay corpora/a/b.yaml");
        assert_eq!(value["source"], "x.cu:1");
    }
}
