//! Which instruction wrote a wrong element: the failing run once more, with a watch on the element's
//! bytes. It adds words to a finding and never changes what was found.

use crate::check::{ToolError, Workspace};
use crate::examine::Examine;
use crate::prepare::{fill, prepare};
use crate::subject::Subject;
use crate::verdict::{Disagreement, Verdict};
use contracts::case::{Case, Schedule};
use contracts::dtype::Poison;
use contracts::format::Access;
use kernels::backend::{Backend, Outcome};
use ptx_vm::{BufferId, Watch};

/// Says in a disagreement about an element which instruction stored it last, or that none did. Left as
/// it is: other verdicts, clauses about a changed call, backends that cannot tell, and tensors the
/// kernel only reads.
///
/// # Errors
/// When the backend fails, or the case is not legal.
pub fn trace(
    subject: &Subject,
    case: &Case,
    verdict: &mut Verdict,
    backend: &mut dyn Backend,
    workspace: &mut Workspace,
) -> Result<(), ToolError> {
    let Verdict::Disagree(found) = verdict else { return Ok(()) };
    // A relation compares with the run of another case, a rejection runs none.
    if !matches!(Examine::for_clause(&found.clause), Examine::Kernel | Examine::Reruns) {
        return Ok(());
    }
    if let Some(text) = written_by(subject, case, found, backend, workspace)? {
        found.written_by = text;
    }
    Ok(())
}

fn written_by(
    subject: &Subject,
    case: &Case,
    found: &Disagreement,
    backend: &mut dyn Backend,
    workspace: &mut Workspace,
) -> Result<Option<String>, ToolError> {
    let prepared = prepare(subject, case).map_err(ToolError::Case)?;
    let Some(tensor) = found.tensor.as_ref().and_then(|name| prepared.geometry.tensor(name)) else {
        return Ok(None);
    };
    let inside = found.index.len() == tensor.shape.len()
        && found.index.iter().zip(&tensor.shape).all(|(at, extent)| at < extent);
    let Ok(plan) = prepared.plan() else { return Ok(None) };
    if !inside || tensor.access == Access::Read {
        return Ok(None);
    }
    // The run whose value was observed: of two poisons, the second.
    let poison = if found.clause == "house.poison_agree" { Poison::Large } else { case.poison };
    let by_number = found.clause == "house.schedule";
    backend.order(if by_number { Schedule::InOrder } else { case.schedule });
    let arena = workspace.arena();
    fill(&prepared, poison, arena);
    let strides = found.index.iter().zip(&tensor.strides);
    let element = tensor.offset + strides.map(|(at, stride)| at * stride).sum::<u64>();
    let size = tensor.dtype.size_bytes();
    let bytes = element * size..(element + 1) * size;
    let buffer = BufferId(tensor.buffer as u32);
    let mut watch = Watch::new();
    watch.add(arena.memory(), buffer, bytes.clone());
    match backend.run_watched(&prepared.call, &plan, arena, &mut watch)? {
        Some(Outcome::Ran(_)) => {}
        _ => return Ok(None),
    }
    // An element may be stored in parts.
    let mut writers: Vec<String> = Vec::new();
    for byte in bytes.clone() {
        let text = match watch.last(buffer, byte) {
            Some(write) => format!("{write:#}"),
            None => "no instruction: no thread stored to it".to_owned(),
        };
        if !writers.contains(&text) {
            writers.push(text);
        }
    }
    let stores = watch.stores(buffer, bytes.start);
    if stores > 1 {
        writers.push(format!("the last of {stores} stores to it"));
    }
    Ok(Some(writers.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::counters::Counters;
    use crate::verdict::ErrorSummary;
    use kernels::backend::vm::VmBackend;
    use std::path::Path;

    fn stored(contract: &str, file: &str) -> (&'static Subject, Case) {
        let subject = crate::subject::subject(contract).expect("registered");
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpora"));
        let path = root.join(contract).join(file);
        (subject, crate::corpus::read(&path, subject.contract).expect("a stored case"))
    }

    fn judged(subject: &Subject, case: &Case, backend: &mut VmBackend) -> (Verdict, Workspace) {
        let (mut workspace, mut counters) = (Workspace::new(), Counters::default());
        let examine = Examine::Kernel;
        let verdict = check(subject, case, &examine, backend, &mut workspace, &mut counters);
        (verdict.expect("the tool works"), workspace)
    }

    #[test]
    fn the_sign_of_a_decay_is_traced_to_the_store_of_the_state() {
        let (subject, case) = stored("gdn_chunk", "tolerance_s_f32-0d716de0.yaml");
        let mut backend = VmBackend::new();
        let (mut verdict, mut workspace) = judged(subject, &case, &mut backend);
        assert_eq!(verdict, Verdict::Agree);
        trace(subject, &case, &mut verdict, &mut backend, &mut workspace).expect("traced");
        assert_eq!(verdict, Verdict::Agree, "only a disagreement has a writer");

        // exp(g) becomes exp(-g): log2(e) changes its sign.
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/ptx/gdn_chunk.ptx");
        let text = std::fs::read_to_string(path).expect("the module");
        let planted = text.replace("0f3FB8AA3B", "0fBFB8AA3B");
        assert_ne!(text, planted);
        backend.replace_module("gdn_chunk", &planted).expect("it parses");
        let (mut verdict, mut workspace) = judged(subject, &case, &mut backend);
        let before = verdict.clone();
        trace(subject, &case, &mut verdict, &mut backend, &mut workspace).expect("traced");
        let (Verdict::Disagree(found), Verdict::Disagree(before)) = (&verdict, &before) else {
            panic!("no disagreement: {verdict}")
        };
        assert_eq!(found.clause, "tolerance.s.f32");
        // The line is a store to global memory, of the very bits that were observed.
        let said = found.written_by.as_str();
        let line = said.lines().next().expect("a writer");
        let number = line.strip_prefix("PTX line ").and_then(|rest| rest.split_once(':'));
        let number: usize = number.expect(line).0.parse().expect(line);
        let written = text.lines().nth(number - 1).expect("the line").trim();
        assert!(written.contains("st.global"), "{written}");
        assert!(line.contains(".cuh:") || line.contains(".cu:"), "{line}");
        assert!(said.contains("block [0, 0, 0], thread ["), "{said}");
        let bits = found.observed.split_once("(0x").expect("bits").1.trim_end_matches(')');
        let values = said.lines().find(|line| line.starts_with("storing ")).expect(said);
        assert!(values.contains(&format!("0x{bits}")), "{} is not in {said}", found.observed);
        // Nothing else of the finding changed.
        let mut same = found.clone();
        same.written_by = String::new();
        assert_eq!(same, *before);
    }

    #[test]
    fn the_canarys_wrong_sum_is_traced_and_an_unwritten_element_has_no_writer() {
        let subject = crate::subject::canary().expect("the canary");
        let mut backend = VmBackend::new();
        let found = (0..2_000).find_map(|seed| {
            let case =
                crate::generate::draw(subject, &mut crate::choices::Seeded { seed }).ok()?.case;
            let (verdict, workspace) = judged(subject, &case, &mut backend);
            matches!(verdict, Verdict::Disagree(_)).then_some((case, verdict, workspace))
        });
        let (case, mut verdict, mut workspace) = found.expect("the planted bug");
        trace(subject, &case, &mut verdict, &mut backend, &mut workspace).expect("traced");
        let Verdict::Disagree(wrong) = &verdict else { panic!("{verdict}") };
        assert!(wrong.written_by.contains("st.global.f32"), "{}", wrong.written_by);
        assert!(wrong.written_by.contains("row_sum.cu:"), "{}", wrong.written_by);
        assert!(wrong.written_by.contains("computed by PTX line"), "{}", wrong.written_by);

        // The same kernel without its store: every element keeps the memory's fill.
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/ptx/canary_row_sum.ptx");
        let text = std::fs::read_to_string(path).expect("the module");
        let silent: Vec<&str> = text.lines().filter(|line| !line.contains("st.global")).collect();
        backend.replace_module("canary_row_sum", &silent.join("\n")).expect("it parses");
        let (mut verdict, mut workspace) = judged(subject, &case, &mut backend);
        trace(subject, &case, &mut verdict, &mut backend, &mut workspace).expect("traced");
        let Verdict::Disagree(unwritten) = &verdict else { panic!("{verdict}") };
        assert_eq!(unwritten.clause, "house.written");
        assert_eq!(unwritten.written_by, "no instruction: no thread stored to it");
    }

    #[test]
    fn what_has_no_element_of_a_result_has_no_writer() {
        let (subject, case) = stored("gdn_chunk", "tolerance_s_f32-0d716de0.yaml");
        let mut backend = VmBackend::new();
        let (_, mut workspace) = judged(subject, &case, &mut backend);
        let about = |clause: &str, tensor: Option<&str>, index: &[u64]| {
            Verdict::Disagree(Box::new(Disagreement {
                clause: clause.to_owned(),
                tensor: tensor.map(str::to_owned),
                index: index.to_vec(),
                expected: String::new(),
                observed: String::new(),
                written_by: String::new(),
                error: Some(ErrorSummary::default()),
                note: String::new(),
            }))
        };
        for (clause, tensor, index) in [
            ("relations.split_anywhere", Some("s"), &[0, 0, 0, 0][..]),
            ("tolerance.s.f32", None, &[0, 0, 0, 0]),
            ("tolerance.s.f32", Some("s"), &[0, 0]),
            ("tolerance.s.f32", Some("s"), &[0, 0, 0, 1 << 40]),
            ("tolerance.s.f32", Some("q"), &[0, 0, 0]),
        ] {
            let before = about(clause, tensor, index);
            let mut after = before.clone();
            trace(subject, &case, &mut after, &mut backend, &mut workspace).expect("traced");
            assert_eq!(before, after);
        }
    }
}
