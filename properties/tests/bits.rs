//! The machine and an H200 give the same bits: at least a thousand fresh cases of every contract, every
//! live element of every written tensor. A difference names its case and element.

use kernels::arena::Arena;
use kernels::backend::Backend;
use properties::check::{Session, attempt};
use properties::choices::{Seeded, mix};
use properties::generate;
use properties::oracle::{Observed, first_difference};
use properties::prepare::prepare;
use properties::subject::{Subject, subject};
use properties::verdict::Verdict;

const CASES: u64 = 1000;
/// Differences that a failure prints.
const SHOWN: usize = 8;

fn backends() -> [Box<dyn Backend>; 2] {
    let backends = kernels::backend::of_this_build().unwrap_or_else(|error| panic!("{error}"));
    let both = <[_; 2]>::try_from(backends).unwrap_or_else(|_| panic!("two backends"));
    assert_eq!(both.each_ref().map(|backend| backend.name()), ["vm", "cuda"]);
    both
}

/// What the machine (expected) and the GPU (observed) disagree on in this draw; `None` when it is no
/// case or has nothing to launch.
fn differences(
    subject: &Subject,
    seed: u64,
    backends: &mut [Box<dyn Backend>; 2],
    arena: &mut Arena,
) -> Option<Option<String>> {
    let mut choices = Seeded { seed: mix(0xb175, seed) };
    let draw = generate::draw(subject, &mut choices).ok()?;
    let case = &draw.case;
    let prepared = prepare(subject, case).unwrap_or_else(|e| panic!("{e}"));
    let mut observed = Vec::new();
    for backend in backends {
        let mut session = Session { backend: backend.as_mut(), arena: &mut *arena };
        let ended = attempt(&prepared, case.poison, &mut session).unwrap_or_else(|e| panic!("{e}"));
        match ended {
            None => {}
            // More memory than is copied to a GPU for one case.
            Some(Verdict::Unsupported(_)) if backend.name() == "cuda" => return None,
            Some(verdict) => panic!("{}: {verdict}", subject.name()),
        }
        let mut outputs = Observed::default();
        outputs.gather(&prepared, arena);
        observed.push(outputs);
    }
    let found = first_difference(&prepared, &observed[0], &observed[1], "bits", "");
    Some(found.map(|found| {
        let tensor = found.tensor.unwrap_or_default();
        let (index, expected, got) = (found.index, found.expected, found.observed);
        let (dtypes, options, dims) = (&case.dtypes, &case.options, &case.dims);
        format!("{tensor}{index:?}: machine {expected}, GPU {got}; draw {seed}, {dtypes:?} {options:?} {dims:?}")
    }))
}

fn bits_agree(name: &str) {
    let subject = subject(name).unwrap_or_else(|| panic!("`{name}` has no subject"));
    let (mut backends, mut arena) = (backends(), Arena::default());
    let (mut cases, mut seed, mut found) = (0, 0, Vec::new());
    while cases < CASES {
        if let Some(difference) = differences(subject, seed, &mut backends, &mut arena) {
            cases += 1;
            found.extend(difference);
        }
        seed += 1;
        assert!(seed < 4 * CASES, "{name}: only {cases} of {seed} draws are cases");
    }
    let shown = found.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n");
    assert!(found.is_empty(), "{name}: {} of {cases} cases differ\n{shown}", found.len());
}

macro_rules! suites {
    ($($family:ident { $($name:ident)* })*) => { $($(
        #[test]
        fn $name() { bits_agree(stringify!($name)) }
    )*)* };
}
contracts::registry!(suites);
