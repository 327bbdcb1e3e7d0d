//! Which clauses one case exercised, as places in `Subject::clauses`: collected without a string, so
//! the passing path formats nothing.

use crate::counters::{Counters, Headroom, dtype_label};
use crate::subject::Subject;
use contracts::case::Case;

/// Clauses of one case; a clause marked twice counts once.
#[derive(Clone, Debug, Default)]
pub struct Exercised {
    places: Vec<usize>,
    /// Whether errors are measured where everything agrees.
    pub(crate) measures: bool,
    /// Written tensors of the case, measured.
    headroom: Vec<(String, Headroom)>,
}

impl Exercised {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.places.clear();
        self.measures = false;
        self.headroom.clear();
    }

    /// Marks the clause whose id is these parts joined by dots. Ids the contract lacks (a house rule
    /// it excepts) are ignored.
    pub fn mark(&mut self, subject: &Subject, id: &[&str]) {
        // The lengths tell nearly all ids apart.
        let len = id.iter().map(|part| part.len() + 1).sum::<usize>() - 1;
        let found = subject
            .clauses
            .iter()
            .position(|clause| clause.id.len() == len && is_joined(&clause.id, id));
        if let Some(place) = found
            && !self.places.contains(&place)
        {
            self.places.push(place);
        }
    }

    /// Keeps how far inside its bounds a tensor is.
    pub(crate) fn measured(&mut self, tensor: &str, headroom: Headroom) {
        self.headroom.push((tensor.to_owned(), headroom));
    }

    /// Adds one case to the counters for each clause marked.
    pub fn count(&self, subject: &Subject, case: &Case, counters: &mut Counters) {
        let label = dtype_label(case);
        for place in &self.places {
            debug_assert!(*place < subject.clauses.len());
            counters.count(&label, *place);
        }
        for (tensor, headroom) in &self.headroom {
            counters.measured(&label, tensor, *headroom);
        }
    }

    /// Whether a clause was marked.
    pub fn has(&self, subject: &Subject, id: &str) -> bool {
        self.places.iter().any(|place| subject.clauses[*place].id == id)
    }
}

fn is_joined(id: &str, parts: &[&str]) -> bool {
    let mut rest = Some(id);
    for (place, part) in parts.iter().enumerate() {
        rest = rest
            .and_then(|rest| if place == 0 { Some(rest) } else { rest.strip_prefix('.') })
            .and_then(|rest| rest.strip_prefix(part));
    }
    rest == Some("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_match_part_by_part() {
        assert!(is_joined("tolerance.o.f32", &["tolerance", "o", "f32"]));
        assert!(is_joined("tolerance.o.f32", &["tolerance.o.f32"]));
        assert!(!is_joined("tolerance.out.f32", &["tolerance", "o", "f32"]));
        assert!(!is_joined("tolerance.o", &["tolerance", "o", "f32"]));
        assert!(!is_joined("tolerance.o.f32", &["tolerance", "o"]));
    }
}
