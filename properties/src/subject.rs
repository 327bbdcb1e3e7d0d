//! A contract with the kernel and the reference it speaks of. The registry is open: a downstream
//! crate builds its own `Subject`s; nothing here asks whether one is ours.

use contracts::clause::Clause;
use contracts::format::Contract;
use kernels::registry::{CANARY, Kernel, PlanFn, TEST_KERNELS};
use reference::Reference;
use std::sync::OnceLock;

/// What a search works on.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The promise.
    pub contract: &'static Contract,
    /// Family: the folder in every crate.
    pub family: &'static str,
    /// The kernel's launch function.
    pub plan: PlanFn,
    /// The reference function.
    pub reference: Reference,
    /// Every clause, in order; counters are indexed by it.
    pub clauses: Vec<Clause>,
    /// Clause ids of calls that must be refused.
    pub rejections: Vec<String>,
    /// Clauses that are not judged, by id: house rules the contract excepts, and whatever is switched off to
    /// see what it alone catches.
    pub off: Vec<String>,
}

impl Subject {
    /// Joins the three pieces.
    pub fn new(contract: &'static Contract, kernel: &Kernel, reference: Reference) -> Subject {
        let clauses = contracts::clause::clauses(contract);
        let rejections = clauses
            .iter()
            .map(|clause| clause.id.clone())
            .filter(|id| id.starts_with("rejects.") || id.starts_with("requires."))
            .collect();
        Subject {
            contract,
            family: kernel.family,
            plan: kernel.plan,
            reference,
            clauses,
            rejections,
            off: contract.except.keys().map(|rule| format!("house.{rule}")).collect(),
        }
    }

    /// The subject with these clauses switched off, besides those its contract excepts.
    pub fn without(&self, clauses: &[&str]) -> Subject {
        let mut subject = self.clone();
        subject.off.extend(clauses.iter().map(|clause| (*clause).to_owned()));
        subject
    }

    /// Whether a clause is judged.
    pub fn judges(&self, clause: &str) -> bool {
        self.off.iter().all(|off| off != clause)
    }

    /// The contract's name.
    pub fn name(&self) -> &'static str {
        &self.contract.contract
    }
}

/// Every production subject, in registry order. Panics name a contract or reference that is broken;
/// `contracts`' own tests fail first.
pub fn subjects() -> &'static [Subject] {
    static SUBJECTS: OnceLock<Vec<Subject>> = OnceLock::new();
    SUBJECTS.get_or_init(|| {
        kernels::registry::KERNELS
            .iter()
            .filter_map(|kernel| {
                let contract = contracts::contract(kernel.name)?;
                Some(Subject::new(contract, kernel, reference::reference(kernel.name)?))
            })
            .collect()
    })
}

/// The canary: a planted bug that a search must find, or the search itself is broken.
pub fn canary() -> Option<&'static Subject> {
    static SUBJECT: OnceLock<Option<Subject>> = OnceLock::new();
    SUBJECT
        .get_or_init(|| {
            let contract = contracts::canary()?;
            Some(Subject::new(contract, &CANARY, reference::canary_reference(CANARY.name)?))
        })
        .as_ref()
}

/// The kernels on which clauses and relations are shown, right as they are.
pub fn test_kernels() -> &'static [Subject] {
    static SUBJECTS: OnceLock<Vec<Subject>> = OnceLock::new();
    SUBJECTS.get_or_init(|| {
        let kernels = TEST_KERNELS.iter().filter_map(|(kernel, _)| {
            let contract = contracts::contract(kernel.name)?;
            Some(Subject::new(contract, kernel, reference::canary_reference(kernel.name)?))
        });
        kernels.collect()
    })
}

/// A test kernel with one fault planted, or one near-miss; `None` where it has none of that name.
pub fn planted(kernel: &str, fault: &str) -> Option<Subject> {
    let (_, faults) = TEST_KERNELS.iter().find(|(known, _)| known.name == kernel)?;
    let right = test_kernels().iter().find(|subject| subject.name() == kernel)?;
    let plan = faults.iter().find(|planted| planted.name == fault)?.plan;
    Some(Subject { plan, ..right.clone() })
}

/// Every subject that has a name here: production, canary and test kernels.
pub fn known_subjects() -> impl Iterator<Item = &'static Subject> {
    subjects().iter().chain(canary()).chain(test_kernels())
}

/// The production subject or canary of this name.
pub fn subject(name: &str) -> Option<&'static Subject> {
    known_subjects().find(|subject| subject.name() == name)
}
