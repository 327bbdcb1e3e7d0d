//! The entries a plan chose, held against the contract's `paths`. Nothing is run for it: an entry that
//! is never chosen is right, and slower or never tested.

use super::Exercised;
use crate::check::ToolError;
use crate::prepare::Prepared;
use crate::verdict::Disagreement;
use contracts::expr::Expr;
use contracts::format::Path;
use contracts::geometry::TensorGeometry;
use contracts::{CaseError, CaseScope};
use kernels::launch::Plan;

/// The first path that is promised for this case and that the plan does not keep.
///
/// # Errors
/// When a condition of the contract cannot be evaluated for this case.
pub fn forsaken_path(
    prepared: &Prepared<'_>,
    plan: &Plan,
    exercised: &mut Exercised,
) -> Result<Option<Disagreement>, ToolError> {
    if plan.launches.is_empty() {
        return Ok(None);
    }
    for (name, path) in &prepared.subject.contract.paths {
        if !is_promised(prepared, name, path)? {
            continue;
        }
        exercised.mark(prepared.subject, &["paths", name]);
        let clause = format!("paths.{name}");
        if !keeps(path, plan) && prepared.subject.judges(&clause) {
            return Ok(Some(forsaken(clause, path, plan)));
        }
    }
    Ok(None)
}

fn keeps(path: &Path, plan: &Plan) -> bool {
    let chosen = plan.launches.iter().any(|launch| path.names(&launch.entry));
    chosen == path.takes.is_some()
}

fn forsaken(clause: String, path: &Path, plan: &Plan) -> Disagreement {
    let word = path.word().unwrap_or_default();
    let wanted = if path.takes.is_some() { "an entry with" } else { "no entry with" };
    let entries: Vec<&str> = plan.launches.iter().map(|launch| &*launch.entry).collect();
    Disagreement {
        clause,
        tensor: None,
        index: Vec::new(),
        expected: format!("{wanted} the word `{word}` in its name"),
        observed: entries.join(", "),
        written_by: String::new(),
        error: None,
        note: "what the plan launches for this call".to_owned(),
    }
}

fn is_promised(prepared: &Prepared<'_>, name: &str, path: &Path) -> Result<bool, ToolError> {
    for condition in [&path.when, &path.sizes].into_iter().flatten() {
        let scope = CaseScope::new(prepared.subject.contract, prepared.case);
        let holds = condition.eval_bool(&scope);
        if !holds.map_err(|error| unevaluated(name, condition, &error))? {
            return Ok(false);
        }
    }
    for (tensor, elements) in &path.pieces {
        let Some(tensor) = prepared.geometry.tensor(tensor) else { continue };
        let scope = CaseScope::new(prepared.subject.contract, prepared.case);
        let piece = elements.eval_int(&scope);
        if !is_in_pieces(tensor, piece.map_err(|error| unevaluated(name, elements, &error))?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether every index of the first axis begins on a multiple of so many elements, as a buffer does.
fn is_in_pieces(tensor: &TensorGeometry, piece: i128) -> bool {
    let Ok(piece) = u64::try_from(piece) else { return false };
    let has_rows = tensor.shape.len() > 1 && tensor.shape[0] > 1;
    let pitch = if has_rows { tensor.strides[0] } else { 0 };
    piece > 0 && tensor.offset.is_multiple_of(piece) && pitch.is_multiple_of(piece)
}

fn unevaluated(name: &str, expr: &Expr, error: &contracts::ExprError) -> ToolError {
    ToolError::Case(CaseError::expression(format!("paths.{name}"), expr, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::{Seeded, mix};
    use crate::generate::draw;
    use crate::prepare::prepare_unjudged;
    use crate::subject::{Subject, known_subjects};

    /// The subject with one path alone, and with what it promises turned around.
    fn turned(subject: &Subject, name: &str) -> Subject {
        let mut contract = subject.contract.clone();
        contract.paths.retain(|known, _| known == name);
        for path in contract.paths.values_mut() {
            std::mem::swap(&mut path.takes, &mut path.never);
        }
        Subject { contract: Box::leak(Box::new(contract)), ..subject.clone() }
    }

    fn forsakes(subject: &Subject, seed: u64) -> Option<String> {
        let drawn = draw(subject, &mut Seeded { seed: mix(0x9a74, seed) }).ok()?;
        let prepared = prepare_unjudged(subject, &drawn.case).expect("a drawn case is legal");
        let plan = prepared.plan().expect("a legal call");
        let found = forsaken_path(&prepared, &plan, &mut Exercised::default());
        found.expect("the conditions have values").map(|found| found.clause)
    }

    /// No plan forsakes a path of its contract; and each is promised for some of what is drawn, of entries
    /// that are named as it says: turned around it is forsaken.
    #[test]
    fn every_path_is_kept_and_forsaken_when_turned_around() {
        const CASES: u64 = 600;
        /// Draws among which the rarest is promised.
        const DRAWS: u64 = 20_000;
        let mut paths = 0;
        for subject in known_subjects() {
            for name in subject.contract.paths.keys() {
                let kept = (0..CASES).find_map(|seed| forsakes(subject, seed));
                assert_eq!(kept, None, "{}", subject.name());
                let turned = turned(subject, name);
                let broken = (0..DRAWS).find_map(|seed| forsakes(&turned, seed));
                assert_eq!(broken, Some(format!("paths.{name}")), "{}", subject.name());
                paths += 1;
            }
        }
        assert!(paths >= 8, "{paths} paths");
    }

    #[test]
    fn a_word_of_an_entry_stands_between_its_lines() {
        let path: Path = serde_json::from_str(r#"{"takes": "fours"}"#).expect("a path");
        assert!(path.names("k_f32_fours") && path.names("fours_k"));
        assert!(!path.names("k_f32_foursome") && !path.names("k_f32"));
    }

    #[test]
    fn rows_begin_on_whole_pieces() {
        let tensor = |shape: &[u64], strides: &[u64], offset: u64| TensorGeometry {
            name: "x".to_owned(),
            dtype: contracts::dtype::DType::F32,
            access: contracts::format::Access::Read,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            buffer: 0,
            offset,
            align_bytes: 4,
            kind: None,
            live: None,
            derived: None,
        };
        assert!(is_in_pieces(&tensor(&[2, 3], &[8, 1], 4), 4));
        assert!(!is_in_pieces(&tensor(&[2, 3], &[6, 1], 4), 4));
        assert!(!is_in_pieces(&tensor(&[2, 3], &[8, 1], 2), 4));
        // A single row's stride is never used, nor is a vector one of rows.
        assert!(is_in_pieces(&tensor(&[1, 3], &[6, 1], 0), 4));
        assert!(is_in_pieces(&tensor(&[5], &[1], 8), 4));
        assert!(!is_in_pieces(&tensor(&[5], &[1], 8), 0));
    }
}
