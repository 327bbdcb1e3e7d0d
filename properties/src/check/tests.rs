use super::fake::{Hand, fake};
use super::*;
use crate::choices::Seeded;
use crate::generate::{complete, draw, draw_fixture};
use crate::subject::{canary, subject};
use contracts::case::{CaseTensor, Layout};
use contracts::dtype::DType;
use contracts::geometry::Geometry;
use kernels::backend::Fault;
use ptx_vm::{BufferPlace, FaultKind};

fn named(name: &str) -> &'static Subject {
    subject(name).unwrap_or_else(|| panic!("{name} is not registered"))
}

fn row_sum() -> &'static Subject {
    canary().expect("the canary is registered")
}

/// A case of a subject: a draw whose dims, lists, options and dtypes are then set.
fn case(
    subject: &Subject,
    dims: &[(&str, i64)],
    lists: &[(&str, &[i64])],
    words: &[(&str, &str)],
    io: DType,
) -> Case {
    let mut case = draw(subject, &mut Seeded { seed: 5 }).expect("a draw").case;
    for (name, size) in dims {
        case.dims.insert((*name).to_owned(), *size);
    }
    for (name, items) in lists {
        case.lists.insert((*name).to_owned(), items.to_vec());
    }
    for (name, word) in words {
        let section =
            if case.options.contains_key(*name) { &mut case.options } else { &mut case.variants };
        section.insert((*name).to_owned(), (*word).to_owned());
    }
    let (symbol, _) = case.dtypes.first().expect("a symbol");
    let symbol = symbol.clone();
    case.dtypes.insert(symbol, io);
    case.tensors.clear();
    complete(subject.contract, &mut case).expect("a case");
    case
}

/// Fills a tensor with small exact values that differ.
fn set(subject: &Subject, case: &mut Case, tensor: &str, value: impl Fn(u64) -> f64) {
    let geometry = Geometry::layout_only(subject.contract, case).expect("a geometry");
    let facts = geometry.tensor(tensor).expect("the tensor");
    let mut bytes = Vec::new();
    for flat in 0..facts.count() {
        facts.dtype.push_bytes(facts.dtype.round_from_f64(value(flat)), &mut bytes);
    }
    case.tensors[tensor].content = Content::Dense(bytes);
}

fn rows(n: i64) -> Case {
    let mut made = case(row_sum(), &[("R", 2), ("n", n)], &[], &[], DType::F32);
    made.poison = Poison::Quiet;
    set(row_sum(), &mut made, "x", |flat| 1.0 + flat as f64);
    made.tensors["x"].layout = Layout::RowPadded(3);
    made
}

/// A decode of three sequences, one a pad, on four slots.
fn decode() -> Case {
    let gdn = named("gdn_decode");
    let dims = [("N", 3), ("Hk", 1), ("Hv", 2), ("Dk", 32), ("Dv", 32), ("slots", 4)];
    let words = [
        ("head_map", "block"),
        ("gate_form", "log"),
        ("alpha_clamp", "none"),
        ("qk_norm", "none"),
        ("output_gate", "none"),
        ("snapshot", "none"),
        ("retention", "registers"),
        ("epilogue", "fused"),
    ];
    let mut made = case(gdn, &dims, &[("slot", &[2, -1, 0])], &words, DType::F32);
    made.dtypes.insert("state".to_owned(), DType::F32);
    complete(gdn.contract, &mut made).expect("a case");
    gates(gdn, &mut made);
    made
}

/// A prefill of these lengths in slots 0, 1, ….
fn prefill(lengths: &[i64]) -> Case {
    let gdn = named("gdn_chunk");
    let count = lengths.len() as i64;
    let dims =
        [("N", count), ("Hk", 1), ("Hv", 2), ("Dk", 32), ("Dv", 32), ("slots", count.max(1))];
    let slots: Vec<i64> = (0..count).collect();
    let dims = [&dims[..], &[("rows", lengths.iter().sum())]].concat();
    let words = [("initial_state", "slot"), ("head_map", "block")];
    let mut made = case(gdn, &dims, &[("seq_len", lengths), ("slot", &slots)], &words, DType::F32);
    gates(gdn, &mut made);
    made
}

fn gates(subject: &Subject, case: &mut Case) {
    let wave = |flat: u64| ((flat * 37 % 101) as f64 / 101.0 - 0.5) / 4.0;
    for tensor in ["q", "k", "v", "s"] {
        set(subject, case, tensor, wave);
    }
    set(subject, case, "g", |flat| -0.25 * (1.0 + (flat % 3) as f64));
    set(subject, case, "beta", |flat| 0.25 * (1.0 + (flat % 3) as f64));
}

struct Checked {
    verdict: Verdict,
    counters: Counters,
}

fn run_on(
    name: &'static str,
    subject: &Subject,
    case: &Case,
    examine: &Examine,
    kernel: impl FnMut(&mut Hand<'_>) -> Option<Fault>,
) -> Checked {
    let mut backend = fake(kernel);
    backend.name = name;
    let mut counters = Counters::default();
    let mut workspace = Workspace::new();
    let verdict = check(subject, case, examine, &mut backend, &mut workspace, &mut counters)
        .unwrap_or_else(|error| panic!("{error}"));
    Checked { verdict, counters }
}

fn verdict(
    subject: &Subject,
    case: &Case,
    examine: &Examine,
    mut tamper: impl FnMut(&mut Hand<'_>),
) -> Verdict {
    let kernel = |hand: &mut Hand<'_>| {
        hand.honest(subject);
        tamper(hand);
        None
    };
    run_on("vm", subject, case, examine, kernel).verdict
}

fn counted(checked: &Checked, subject: &Subject, clause: &str) -> u64 {
    let lines = checked.counters.summary(subject, true, true);
    lines.iter().filter(|line| line.clause == clause).map(|line| line.cases).sum()
}

#[test]
fn an_honest_kernel_agrees_on_whatever_is_drawn() {
    for (subject, seeds) in [
        (row_sum(), 40),
        (named("argmax_rows"), 40),
        (named("gdn_decode"), 12),
        (named("gdn_chunk"), 4),
    ] {
        for seed in 0..seeds {
            let Ok(draw) = draw(subject, &mut Seeded { seed }) else { continue };
            for backend in ["vm", "cuda"] {
                let kernel = |hand: &mut Hand<'_>| {
                    let steps = subject.name() == "gdn_chunk"
                        && hand.call.optional_tensor("cu_seqlens").is_none();
                    hand.honest(if steps { named("gdn_decode") } else { subject });
                    None
                };
                let checked = run_on(backend, subject, &draw.case, &Examine::All, kernel);
                assert_eq!(checked.verdict, Verdict::Agree, "{} seed {seed}", subject.name());
            }
        }
    }
}

#[test]
fn a_sum_off_by_more_than_its_bound_is_found_and_one_within_is_not() {
    let made = rows(5);
    // Sums 15 and 40; bound (256 + ½ ulp's worth) · 2⁻²⁴ · 15 ≈ 2.3e-4.
    let off = |by: f64| {
        verdict(row_sum(), &made, &Examine::Kernel, |hand| hand.edit("y", 0, |sum| sum + by))
    };
    assert_eq!(off(2.0e-4), Verdict::Agree);
    let Verdict::Disagree(found) = off(3.0e-4) else { panic!("a wrong sum passed") };
    assert_eq!((&*found.clause, &found.index[..]), ("tolerance.y.all", &[0][..]));
    assert_eq!(found.expected, "15 (0x41700000)");
    let error = found.error.expect("a numeric clause");
    assert_eq!((error.wrong, error.compared, error.nonfinite), (1, 2, 0));
    assert!(error.error > error.bound && error.worst_ratio > 1.0 && error.worst_ratio < 2.0);
    assert!(error.relative_rms > 0.0 && (error.norm_ratio - 1.0).abs() < 1e-3);
    let Verdict::Disagree(found) = off(f64::NAN) else { panic!("NaN passed") };
    assert_eq!(found.error.expect("a summary").nonfinite, 1);
}

#[test]
fn each_clause_is_counted_once_a_case_and_only_when_exercised() {
    let checked = |case: &Case| {
        let kernel = |hand: &mut Hand<'_>| {
            hand.honest(row_sum());
            None
        };
        run_on("vm", row_sum(), case, &Examine::Kernel, kernel)
    };
    let padded = checked(&rows(5));
    for clause in
        ["tolerance.y.all", "house.bounds", "house.unread", "house.written", "house.races"]
    {
        assert_eq!(counted(&padded, row_sum(), clause), 1, "{clause}");
    }
    assert_eq!(counted(&padded, row_sum(), "house.guard"), 0);
    let mut dense = rows(5);
    dense.tensors["x"].layout = Layout::Dense;
    let dense = checked(&dense);
    assert_eq!(counted(&dense, row_sum(), "house.unread"), 0);
    assert_eq!(counted(&dense, row_sum(), "house.dead_untouched"), 0);
    assert_eq!(counted(&dense, row_sum(), "house.read_only"), 1);
    assert_eq!(dense.counters.cases, 1);
}

#[test]
fn an_output_never_written_is_found_by_marks_and_by_fills() {
    let made = rows(5);
    for backend in ["vm", "cuda"] {
        let kernel = |hand: &mut Hand<'_>| {
            let sum = hand.bits("x", 0);
            hand.store("y", 0, sum);
            None
        };
        let found = run_on(backend, row_sum(), &made, &Examine::Kernel, kernel).verdict;
        assert_eq!(
            (found.clause(), found.tensor()),
            (Some("house.written"), Some("y")),
            "{backend}"
        );
        let Verdict::Disagree(found) = found else { panic!("not a disagreement") };
        assert_eq!(found.index, [1]);
    }
    // A stored value that happens to be one run's fill is written all the same.
    let quiet = DType::F32.poison(Poison::Quiet);
    let kernel = |hand: &mut Hand<'_>| {
        (0..2).for_each(|row| hand.store("y", row, quiet));
        None
    };
    let found = run_on("cuda", row_sum(), &made, &Examine::Kernel, kernel).verdict;
    assert_eq!(found.clause(), Some("tolerance.y.all"));
}

#[test]
fn a_result_that_depends_on_unread_memory_is_found_without_marks() {
    let made = rows(5);
    let kernel = |hand: &mut Hand<'_>| {
        hand.honest(row_sum());
        let (buffer, offset) = hand.address("x", 4);
        let mut raw = [0; 4];
        hand.arena.memory().read(buffer, offset + 4, &mut raw);
        let stray = f64::from(f32::from_le_bytes(raw));
        hand.edit("y", 0, |sum| if stray > 1e20 { sum + 1e-4 } else { sum });
        None
    };
    let found = run_on("cuda", row_sum(), &made, &Examine::Kernel, kernel).verdict;
    assert_eq!((found.clause(), found.tensor()), (Some("house.poison_agree"), Some("y")));
}

#[test]
fn other_poison_is_tried_where_no_mark_guards_it() {
    let made = rows(5);
    assert!(!is_rerun(&made), "choose a case that is not of the share run again");
    let runs = |name, subject: &Subject, examine: &Examine| {
        let mut poisons = Vec::new();
        let kernel = |hand: &mut Hand<'_>| {
            let (buffer, offset) = hand.address("x", 4);
            let mut raw = [0; 4];
            hand.arena.memory().read(buffer, offset + 4, &mut raw);
            poisons.push(f32::from_le_bytes(raw).is_nan());
            hand.honest(row_sum());
            None
        };
        let checked = run_on(name, subject, &made, examine, kernel);
        assert_eq!(checked.verdict, Verdict::Agree);
        let exercised = counted(&checked, subject, "house.poison_agree");
        assert_eq!(exercised, u64::from(poisons.contains(&false)), "{name}");
        poisons
    };
    assert_eq!(runs("vm", row_sum(), &Examine::Kernel), [true]);
    assert_eq!(runs("cuda", row_sum(), &Examine::Kernel), [true, false]);
    assert_eq!(runs("vm", row_sum(), &Examine::Reruns), [true, false, true]);
    for rule in ["house.unread", "house.initialised"] {
        assert_eq!(
            runs("vm", &row_sum().without(&[rule]), &Examine::Kernel),
            [true, false],
            "{rule}"
        );
    }
}

#[test]
fn a_run_that_differs_from_the_same_run_is_found_where_runs_are_repeated() {
    let made = rows(5);
    let at = |wrong_run: usize| {
        verdict(row_sum(), &made, &Examine::Reruns, |hand| {
            if hand.run == wrong_run {
                hand.edit("y", 1, |sum| sum + 1e-5);
            }
        })
    };
    assert_eq!(at(2).clause(), Some("house.repeat"));
    assert_eq!(at(1).clause(), Some("house.poison_agree"));
    assert_eq!(at(3), Verdict::Agree);
}

#[test]
fn a_rule_that_the_contract_excepts_is_not_judged() {
    let mut contract = row_sum().contract.clone();
    contract.except.insert("repeat".to_owned(), "blocks add in any order".to_owned());
    let contract = Box::leak(Box::new(contract));
    let subject = Subject::new(contract, &kernels::registry::CANARY, row_sum().reference);
    let at = |wrong_run: usize| {
        verdict(&subject, &rows(5), &Examine::Reruns, |hand| {
            if hand.run == wrong_run {
                hand.edit("y", 1, |sum| sum + 1e-5);
            }
        })
    };
    assert_eq!(at(2), Verdict::Agree);
    assert_eq!(at(1).clause(), Some("house.poison_agree"));
    assert_eq!(subject.without(&["house.poison_agree"]).off.len(), 2);
}

#[test]
fn a_lean_within_every_bound_is_drift() {
    let made = decode();
    let gdn = named("gdn_decode");
    let leaning = |by: f64| {
        let lean = |hand: &mut Hand<'_>| {
            (0..2 * 32 * 32).for_each(|flat| hand.edit("s", flat, |value| value * (1.0 + by)));
        };
        verdict(gdn, &made, &Examine::Kernel, lean)
    };
    assert_eq!(leaning(2.0e-7), Verdict::Agree);
    let Verdict::Disagree(found) = leaning(1.8e-6) else { panic!("the lean passed") };
    assert_eq!(found.clause, "drift.s.f32");
    assert_eq!(found.index, [0, 0], "slot and head");
    let error = found.error.expect("a numeric clause");
    assert!(error.error > error.bound && error.error < 3e-6);
}

/// A decode that keeps snapshots.
fn snapshots() -> Case {
    let gdn = named("gdn_decode");
    let mut made = decode();
    made.options.insert("snapshot".to_owned(), "each".to_owned());
    complete(gdn.contract, &mut made).expect("a case");
    made
}

#[test]
fn snapshots_outputs_and_state_of_a_step_are_held_together() {
    let (made, gdn) = (snapshots(), named("gdn_decode"));
    let relation = |name: &str| Examine::Relation(format!("relations.{name}"));
    let names = ["snapshot_is_copy", "snapshot_is_free", "stored_is_read", "sequences_alone"];
    for name in names {
        assert_eq!(verdict(gdn, &made, &relation(name), |_| {}), Verdict::Agree, "{name}");
    }
    // Far inside every bound; the last row of snapshots belongs to slot 0.
    let nudge = |value: f64| value * (1.0 + 2f64.powi(-22));
    let last = 2 * 2 * 32 * 32 + 5;
    let copied = |hand: &mut Hand<'_>| hand.edit("snap", last, nudge);
    let found = verdict(gdn, &made, &relation("snapshot_is_copy"), copied);
    assert_eq!(found.clause(), Some("relations.snapshot_is_copy"));
    let Verdict::Disagree(found) = found else { panic!("not a disagreement") };
    assert_eq!((found.tensor.as_deref(), &found.index[..]), (Some("s"), &[0, 0, 0, 5][..]));
    assert_eq!(verdict(gdn, &made, &Examine::Kernel, copied), Verdict::Agree);

    // An output that is not read from what was stored.
    let unread = |hand: &mut Hand<'_>| {
        if hand.bits("beta", 0) != 0 {
            hand.edit("o", 0, nudge);
        }
    };
    let found = verdict(gdn, &made, &relation("stored_is_read"), unread);
    assert_eq!(found.clause(), Some("relations.stored_is_read"));
    assert_eq!(verdict(gdn, &made, &Examine::Kernel, unread), Verdict::Agree);

    // A step that differs because it keeps a snapshot.
    let dearer = |hand: &mut Hand<'_>| {
        if hand.call.optional_tensor("snap").is_some() {
            hand.edit("s", 3, nudge);
            hand.edit("snap", 2 * 2 * 32 * 32 + 3, nudge);
        }
    };
    let found = verdict(gdn, &made, &relation("snapshot_is_free"), dearer);
    assert_eq!((found.clause(), found.tensor()), (Some("relations.snapshot_is_free"), Some("s")));
    assert_eq!(verdict(gdn, &made, &Examine::Kernel, dearer), Verdict::Agree);
}

#[test]
fn outputs_are_computed_from_what_was_stored() {
    let conv = named("draft_conv");
    let made = draw_fixture(conv, "projecting", &mut Seeded { seed: 3 }).expect("a case");
    let stored = Examine::Relation("relations.stored_are_used".to_owned());
    assert_eq!(verdict(conv, &made, &stored, |_| {}), Verdict::Agree);
    let nudge = |value: f64| value * (1.0 + 2f64.powi(-22));
    let projects = |hand: &Hand<'_>| hand.call.word("stage") == Ok("project");
    // Far inside the bound; not where the call that is given the coefficients does the same.
    let apart = |hand: &mut Hand<'_>| {
        if projects(hand) {
            hand.edit("y", 5, nudge);
        }
    };
    let found = verdict(conv, &made, &stored, apart);
    assert_eq!((found.clause(), found.tensor()), (Some("relations.stored_are_used"), Some("y")));
    assert_eq!(verdict(conv, &made, &Examine::Kernel, apart), Verdict::Agree);
    let alike = |hand: &mut Hand<'_>| hand.edit("y", 5, nudge);
    assert_eq!(verdict(conv, &made, &stored, alike), Verdict::Agree);
    // Others are stored than were used.
    let restored = |hand: &mut Hand<'_>| {
        if projects(hand) {
            hand.edit("coef", 0, |value| value * (1.0 + 2f64.powi(-20)));
        }
    };
    let found = verdict(conv, &made, &stored, restored);
    assert_eq!(found.clause(), Some("relations.stored_are_used"));
    // Nothing is stored where coefficients are given.
    let given = draw_fixture(conv, "blocks", &mut Seeded { seed: 3 }).expect("a case");
    assert_eq!(verdict(conv, &given, &stored, |hand| hand.edit("y", 5, nudge)), Verdict::Agree);
}

#[test]
fn dead_slots_and_padded_rows_are_not_compared() {
    let made = decode();
    let gdn = named("gdn_decode");
    // Slot 1 is nobody's, row 1 a pad. Marks guard them on a real backend.
    let scribble = |hand: &mut Hand<'_>| {
        hand.store("s", 2 * 32 * 32, 0);
        hand.store("o", 2 * 32, 0);
    };
    assert_eq!(verdict(gdn, &made, &Examine::Kernel, scribble), Verdict::Agree);
    let wrong = |hand: &mut Hand<'_>| hand.edit("s", 2 * 2 * 32 * 32, |value| value + 1.0);
    let found = verdict(gdn, &made, &Examine::Kernel, wrong);
    assert_eq!((found.clause(), found.tensor()), (Some("tolerance.s.f32"), Some("s")));
}

#[test]
fn nan_reaches_as_far_as_the_policy_says() {
    let gdn = named("gdn_chunk");
    let mut made = prefill(&[70, 3]);
    // A NaN in v at row 66, head 1: the second chunk of the first sequence.
    let width = 2 * 32;
    let at = 66 * width + 32 + 5;
    let CaseTensor { content: Content::Dense(bytes), .. } = &mut made.tensors["v"] else {
        panic!("v is dense")
    };
    bytes[at * 4..at * 4 + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let nan_at = |row: u64, head: u64| {
        verdict(gdn, &made, &Examine::Kernel, |hand| {
            hand.edit("o", row * width as u64 + head * 32 + 7, |_| f64::NAN);
        })
    };
    assert_eq!(nan_at(66, 1), Verdict::Agree, "the same row");
    assert_eq!(nan_at(64, 1), Verdict::Agree, "an earlier row of the chunk");
    for (row, head) in [(63, 1), (64, 0), (71, 1)] {
        assert_eq!(nan_at(row, head).clause(), Some("nan.o"), "row {row} head {head}");
    }
    let kept = verdict(gdn, &made, &Examine::Kernel, |hand| {
        hand.edit("o", at as u64, |_| 0.0);
    });
    assert_eq!(kept.clause(), Some("nan.o"), "a NaN the equations give must be there");
    let state = verdict(gdn, &made, &Examine::Kernel, |hand| hand.edit("s", 0, |_| f64::NAN));
    assert_eq!(state.clause(), Some("nan.s"));
    // Without a NaN input, a NaN output is just wrong.
    let plain = prefill(&[70, 3]);
    let found = verdict(gdn, &plain, &Examine::Kernel, |hand| hand.edit("o", 9, |_| f64::NAN));
    assert_eq!(found.clause(), Some("tolerance.o.f32"));
}

#[test]
fn sequences_that_see_each_other_break_alone() {
    let gdn = named("gdn_chunk");
    let made = prefill(&[2, 0, 5]);
    let alone = Examine::Relation("relations.sequences_alone".to_owned());
    let leak = |hand: &mut Hand<'_>| {
        if hand.call.tensor("slot_of").is_ok_and(|slots| slots.shape[0] > 1) {
            // Within every bound, yet another bit.
            hand.edit("o", 3 * 2 * 32, |value| value * (1.0 + 1.2e-7));
        }
    };
    let found = verdict(gdn, &made, &alone, leak);
    let Verdict::Disagree(found) = found else { panic!("the leak passed: {found:?}") };
    assert_eq!(found.clause, "relations.sequences_alone");
    assert_eq!((found.tensor.as_deref(), &found.index[..]), (Some("o"), &[3, 0, 0][..]));
    let kernel = |hand: &mut Hand<'_>| {
        hand.honest(gdn);
        None
    };
    let held = run_on("vm", gdn, &made, &alone, kernel);
    assert_eq!(held.verdict, Verdict::Agree);
    assert_eq!(counted(&held, gdn, "relations.sequences_alone"), 1);
}

#[test]
fn a_forgotten_state_breaks_the_split_and_a_short_sequence_cannot_be_split() {
    let gdn = named("gdn_chunk");
    let anywhere = Examine::Relation("relations.split_anywhere".to_owned());
    let at_chunk = Examine::Relation("relations.split_at_chunk".to_owned());
    let made = prefill(&[9, 4]);
    let forgetful = |hand: &mut Hand<'_>| {
        if hand.run >= 1 {
            (0..2 * 32 * 32).for_each(|flat| hand.edit("s", flat, |value| value + 0.5));
        }
    };
    // Run 0 is the whole case; the first part leaves a state that is off, so the second
    // part's rows are.
    let found = verdict(gdn, &made, &anywhere, forgetful);
    assert_eq!(found.clause(), Some("relations.split_anywhere"));
    let kernel = |hand: &mut Hand<'_>| {
        hand.honest(gdn);
        None
    };
    let held = run_on("vm", gdn, &made, &anywhere, kernel);
    assert_eq!(
        (held.verdict.clone(), counted(&held, gdn, "relations.split_anywhere")),
        (Verdict::Agree, 1)
    );
    let held = run_on("vm", gdn, &made, &at_chunk, kernel);
    assert_eq!(
        (held.verdict.clone(), counted(&held, gdn, "relations.split_at_chunk")),
        (Verdict::Agree, 0)
    );
}

#[test]
fn steps_through_the_decode_kernel_equal_the_prefill() {
    let gdn = named("gdn_chunk");
    let recurrence = Examine::Relation("relations.recurrence".to_owned());
    let mut made = prefill(&[3, 0, 2]);
    made.lists.insert("slot".to_owned(), vec![2, 0, -1]);
    let kernel = |wrong: bool| {
        move |hand: &mut Hand<'_>| {
            let is_prefill = hand.call.optional_tensor("cu_seqlens").is_some();
            hand.honest(if is_prefill { gdn } else { named("gdn_decode") });
            if wrong && !is_prefill && hand.run == 3 {
                hand.edit("o", 5, |value| value + 0.01);
            }
            None
        }
    };
    let held = run_on("vm", gdn, &made, &recurrence, kernel(false));
    assert_eq!(
        (held.verdict.clone(), counted(&held, gdn, "relations.recurrence")),
        (Verdict::Agree, 1)
    );
    // Run 0 is the prefill, 1.. the steps: run 3 is row 2 of the first sequence.
    let found = run_on("vm", gdn, &made, &recurrence, kernel(true)).verdict;
    let Verdict::Disagree(found) = found else { panic!("a wrong step passed: {found:?}") };
    assert_eq!((&*found.clause, &found.index[..]), ("relations.recurrence", &[2, 0, 5][..]));
    let found = run_on("vm", gdn, &made, &recurrence, |hand| {
        let is_prefill = hand.call.optional_tensor("cu_seqlens").is_some();
        hand.honest(if is_prefill { gdn } else { named("gdn_decode") });
        (!is_prefill).then(|| Fault::Device { code: 700, message: "x".into(), entries: "y".into() })
    });
    assert_eq!(
        found.verdict.clause(),
        Some("relations.recurrence"),
        "a fault in a step is its finding"
    );
}

#[test]
fn a_result_that_depends_on_the_pitch_breaks_append_dead() {
    let argmax = named("argmax_rows");
    let words = [("value_kind", "none"), ("blocks_per_row", "1")];
    let mut made = case(argmax, &[("R", 2), ("V", 40)], &[], &words, DType::F32);
    set(argmax, &mut made, "x", |flat| ((flat * 7) % 40) as f64);
    let dead_tail = Examine::Relation("relations.dead_tail".to_owned());
    let found = verdict(argmax, &made, &dead_tail, |hand| {
        if hand.call.tensor("x").is_ok_and(|x| x.strides[0] > 40) {
            hand.edit("ids", 1, |id| id + 1.0);
        }
    });
    assert_eq!((found.clause(), found.tensor()), (Some("relations.dead_tail"), Some("ids")));
    let kernel = |hand: &mut Hand<'_>| {
        hand.honest(argmax);
        None
    };
    let held = run_on("vm", argmax, &made, &dead_tail, kernel);
    assert_eq!(
        (held.verdict.clone(), counted(&held, argmax, "relations.dead_tail")),
        (Verdict::Agree, 1)
    );
}

/// A fault of the machine at a byte of a buffer.
fn machine(kind: FaultKind) -> Fault {
    Fault::Machine(Box::new(ptx_vm::Fault {
        printed: String::new(),
        kind,
        entry: "k".to_owned(),
        ptx_line: 7,
        instruction: "ld.global.f32".to_owned(),
        source: None,
        block: [0; 3],
        thread: [0; 3],
        other: None,
    }))
}

#[test]
fn faults_are_attributed_to_house_rules_and_tensors() {
    let made = rows(5);
    let attributed = |kind: &dyn Fn(BufferPlace) -> FaultKind, buffer: u32, offset: i64| {
        let found = run_on("vm", row_sum(), &made, &Examine::Kernel, |hand| {
            let id = ptx_vm::BufferId(buffer);
            let memory = hand.arena.memory();
            let name = memory.name(id).to_owned();
            Some(machine(kind(BufferPlace { id, name, offset, len_bytes: memory.len_bytes(id) })))
        });
        let Verdict::Fault(report) = found.verdict else { panic!("not a fault") };
        assert!(report.text.contains("PTX line 7"));
        (report.clause.clone(), report.tensor.clone(), report.text.clone())
    };
    let unread = |buffer| FaultKind::UnreadRead { buffer };
    let store = |buffer| FaultKind::UnwritableWrite { buffer };
    // x is [2, 5] with a pitch of 8 elements; y is [2].
    let (clause, tensor, text) = attributed(&unread, 0, 4 * 6);
    assert_eq!((&*clause, tensor.as_deref()), ("house.unread", Some("x")));
    assert!(text.ends_with("that is padding after row 0 of x"), "{text}");
    let (clause, _, text) = attributed(&store, 0, 4 * 9);
    assert_eq!(clause, "house.read_only");
    assert!(text.ends_with("that is x[1, 1]"), "{text}");
    assert_eq!(attributed(&store, 0, 4 * 7).0, "house.dead_untouched");
    let beyond = |place: BufferPlace| FaultKind::OutOfBounds {
        space: ptx_vm::MemorySpace::Global,
        address: 0,
        access_bytes: 4,
        store: true,
        buffer: Some(place),
    };
    let (clause, tensor, text) = attributed(&beyond, 1, 8);
    assert_eq!((&*clause, tensor.as_deref()), ("house.bounds", Some("y")));
    assert!(text.ends_with("that is 0 bytes past the end of y"), "{text}");
    let budget = |_| FaultKind::InstructionBudget { limit: 9 };
    assert_eq!(attributed(&budget, 0, 0).0, "house.budget");
    let race = |_| FaultKind::SharedRace {
        offset: 0,
        access_bytes: 4,
        race: ptx_vm::RaceKind::ReadAfterWrite,
    };
    assert_eq!(attributed(&race, 0, 0).0, "house.races");
    let blocks = |place: BufferPlace| FaultKind::BlockRace {
        buffer: Some(place),
        address: 0,
        race: ptx_vm::RaceKind::WriteAfterWrite,
    };
    let (clause, tensor, text) = attributed(&blocks, 1, 4);
    assert_eq!((&*clause, tensor.as_deref()), ("house.races", Some("y")));
    assert!(text.ends_with("that is y[1]"), "{text}");
    let waits = |place: BufferPlace| FaultKind::NoProgress {
        space: ptx_vm::MemorySpace::Global,
        buffer: Some(place),
        address: 0,
        waiting_blocks: 2,
        unstarted_blocks: 0,
    };
    assert_eq!(attributed(&waits, 1, 0).0, "house.budget");
    let missing = |_| FaultKind::MissingLane { members: 3, lane: 1, exited: true };
    assert_eq!(attributed(&missing, 0, 0).0, "house.barriers");
    let diverged = |_| FaultKind::BarrierDivergence { waiting: 1, alive: 2 };
    assert_eq!(attributed(&diverged, 0, 0).0, "house.barriers");
    let uninitialised = |place: BufferPlace| FaultKind::Uninitialised {
        space: ptx_vm::MemorySpace::Global,
        offset: 0,
        access_bytes: 4,
        buffer: Some(place),
    };
    assert_eq!(attributed(&uninitialised, 1, 4).0, "house.initialised");

    let stray = |offset_bytes| {
        let fault = Fault::StrayWrite { buffer: "x".to_owned(), offset_bytes, before: 0, after: 1 };
        let mut fault = Some(fault);
        run_on("cuda", row_sum(), &made, &Examine::Kernel, |_| fault.take()).verdict
    };
    assert_eq!(stray(0).clause(), Some("house.read_only"));
    assert_eq!(stray(4 * 5).clause(), Some("house.dead_untouched"));
}

#[test]
fn fixtures_run_to_a_verdict() {
    for (name, fixture) in
        [("gdn_decode", "pads"), ("argmax_rows", "short_row"), ("ple_gather", "bad_ids")]
    {
        let subject = named(name);
        let case = draw_fixture(subject, fixture, &mut Seeded { seed: 1 }).expect("a fixture");
        let kernel = |hand: &mut Hand<'_>| {
            hand.honest(subject);
            None
        };
        let checked = run_on("vm", subject, &case, &Examine::All, kernel);
        assert_eq!(checked.verdict, Verdict::Agree, "{name}.{fixture}");
    }
}
