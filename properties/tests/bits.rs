//! The machine and an H200 give the same bits: at least a thousand fresh cases of every contract, every
//! live element of every written tensor. A difference names its case and element.
//!
//! One thing is left open, as the PTX ISA leaves it: the sign that `neg` gives to a NaN. The GPU's
//! assembler folds a `neg` into the product or sum before it, whose NaN has no sign; the machine does what
//! is written. Cases that differ in that alone are counted and said.

use contracts::dtype::DType;
use kernels::arena::Arena;
use kernels::backend::Backend;
use properties::check::{Session, attempt};
use properties::choices::{Seeded, mix};
use properties::generate;
use properties::oracle::{Observed, first_difference};
use properties::prepare::{Prepared, prepare};
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

/// What became of one draw.
enum Draw {
    /// It is no case, or has nothing to launch.
    NoCase,
    /// The same bits.
    Equal,
    /// The same but for signs of NaN.
    NanSigns,
    /// What the machine (expected) and the GPU (observed) disagree on.
    Different(String),
}

/// Takes the sign of every f32 NaN.
fn without_nan_signs(prepared: &Prepared<'_>, mut outputs: Observed) -> Observed {
    for (tensor, bytes) in prepared.geometry.tensors.iter().zip(&mut outputs.tensors) {
        if tensor.dtype != DType::F32 {
            continue;
        }
        for element in bytes.chunks_exact_mut(4) {
            let bits = u32::from_le_bytes([element[0], element[1], element[2], element[3]]);
            if f32::from_bits(bits).is_nan() {
                element.copy_from_slice(&(bits & 0x7fff_ffff).to_le_bytes());
            }
        }
    }
    outputs
}

fn differences(
    subject: &Subject,
    seed: u64,
    backends: &mut [Box<dyn Backend>; 2],
    arena: &mut Arena,
) -> Draw {
    let mut choices = Seeded { seed: mix(0xb175, seed) };
    let Ok(draw) = generate::draw(subject, &mut choices) else { return Draw::NoCase };
    let case = &draw.case;
    let prepared = prepare(subject, case).unwrap_or_else(|e| panic!("{e}"));
    let mut observed = Vec::new();
    for backend in backends {
        let mut session = Session { backend: backend.as_mut(), arena: &mut *arena };
        let ended = attempt(&prepared, case.poison, &mut session).unwrap_or_else(|e| panic!("{e}"));
        match ended {
            None => {}
            // More memory than is copied to a GPU for one case.
            Some(Verdict::Unsupported(_)) if backend.name() == "cuda" => return Draw::NoCase,
            Some(verdict) => panic!("{}: {verdict}", subject.name()),
        }
        let mut outputs = Observed::default();
        outputs.gather(&prepared, arena);
        observed.push(outputs);
    }
    if observed[0] == observed[1] {
        return Draw::Equal;
    }
    let [machine, gpu] = <[_; 2]>::try_from(observed)
        .unwrap_or_else(|_| panic!("two backends"))
        .map(|outputs| without_nan_signs(&prepared, outputs));
    let Some(found) = first_difference(&prepared, &machine, &gpu, "bits", "") else {
        return Draw::NanSigns;
    };
    let tensor = found.tensor.unwrap_or_default();
    let (index, expected, got) = (found.index, found.expected, found.observed);
    let (dtypes, options, dims) = (&case.dtypes, &case.options, &case.dims);
    Draw::Different(format!(
        "{tensor}{index:?}: machine {expected}, GPU {got}; draw {seed}, {dtypes:?} {options:?} {dims:?}"
    ))
}

fn bits_agree(name: &str) {
    let subject = subject(name).unwrap_or_else(|| panic!("`{name}` has no subject"));
    let (mut backends, mut arena) = (backends(), Arena::default());
    let (mut cases, mut seed, mut found, mut nan_signs) = (0, 0, Vec::new(), 0);
    while cases < CASES {
        let draw = differences(subject, seed, &mut backends, &mut arena);
        cases += u64::from(!matches!(draw, Draw::NoCase));
        match draw {
            Draw::NoCase | Draw::Equal => {}
            Draw::NanSigns => nan_signs += 1,
            Draw::Different(what) => found.push(what),
        }
        seed += 1;
        assert!(seed < 4 * CASES, "{name}: only {cases} of {seed} draws are cases");
    }
    println!("{name}: {cases} cases, {nan_signs} of them equal but for the sign of a NaN");
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
