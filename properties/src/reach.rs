//! How much of a kernel's PTX its contract's cases run: branch edges and entries, of all there are in the
//! module, those of entries that nothing launches included.

use crate::check::{ToolError, Workspace, check};
use crate::counters::Counters;
use crate::mutate::suite::questions;
use crate::subject::Subject;
use kernels::backend::BackendError;
use kernels::backend::vm::VmBackend;
use std::path::Path;

/// Counts of one module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Branch edges taken, and all.
    pub edges: (usize, usize),
    /// Entries launched, and all.
    pub entries: (usize, usize),
}

/// What the stored cases, the fixtures and so many fresh cases of a contract run.
///
/// # Errors
/// When a stored case cannot be read or the tool fails.
pub fn reach(subject: &Subject, corpora: &Path, fresh: u64) -> Result<Reach, ToolError> {
    let mut backend = VmBackend::new();
    let (mut workspace, mut counters) = (Workspace::new(), Counters::default());
    for question in questions(subject, corpora, fresh)? {
        let (case, examine) = question.parts();
        check(subject, case, examine, &mut backend, &mut workspace, &mut counters)?;
    }
    let module = kernels::ptx::module(subject.name()).map_err(BackendError::from)?;
    let mut reach = Reach::default();
    for entry in module.entries() {
        reach.edges.1 += entry.edge_count();
        reach.entries.1 += 1;
    }
    let own = |(stem, _): &(&str, &ptx_vm::Coverage)| *stem == subject.name();
    if let Some((_, coverage)) = backend.coverage().modules().find(own) {
        for (_, entry) in coverage.entries() {
            reach.edges.0 += entry.edges.iter().filter(|hits| **hits > 0).count();
            reach.entries.0 += usize::from(entry.launched > 0);
        }
    }
    Ok(reach)
}

#[cfg(test)]
mod tests {
    use super::reach;
    use crate::subject::canary;
    use std::path::Path;

    #[test]
    fn more_cases_reach_more_and_never_more_than_all() {
        let canary = canary().expect("it loads");
        let of = |fresh| reach(canary, Path::new("no corpora"), fresh).expect("it runs");
        let (few, many) = (of(1), of(300));
        assert!(few.edges.0 < many.edges.0, "{few:?}, {many:?}");
        assert!(many.edges.0 <= many.edges.1 && many.entries == (1, 1), "{many:?}");
    }
}
