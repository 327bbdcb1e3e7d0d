//! gdn_verify and gdn_write_on_accept against their equations, worked out element by element here: every
//! gate form, head map and state type, rows of nobody, and each error that is carried from row to row.

use crate::draws::Draws;
use contracts::dtype::DType;
use contracts::logical::Logical;
use reference::{Expected, Inputs, Outputs, reference};

const KEY_HEADS: usize = 2;
const VALUE_HEADS: usize = 4;
const KEY_DIM: usize = 3;
/// More than the reference takes at a time.
const VALUE_DIM: usize = 18;
const SLOTS: usize = 4;
/// Rows past the last sequence's are nobody's.
const ROWS: usize = 8;
/// Rows and slot of each sequence: one is a pad's, one is empty, and slot 3 is nobody's.
const SEQUENCES: [(usize, i64); 4] = [(3, 2), (2, -1), (1, 0), (0, 1)];
const SCALE: f64 = -0.5;
const STATE: usize = VALUE_HEADS * VALUE_DIM * KEY_DIM;

#[derive(Clone, Copy, Debug)]
struct Form {
    gate: &'static str,
    map: &'static str,
    state: DType,
    io: DType,
    /// How large values are; an f16 state stops where they are large.
    size: f64,
}

fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for gate in ["log", "alpha"] {
        for map in ["block", "cyclic"] {
            for (state, io) in [(DType::F32, DType::F32), (DType::F16, DType::BF16)] {
                for size in [1.0, 1e5] {
                    forms.push(Form { gate, map, state, io, size });
                }
            }
        }
    }
    forms
}

/// An element of a state and what it may miss: S, M, D, R, C and E of the equations.
#[derive(Clone, Copy, Debug, Default)]
struct Element {
    s: f64,
    m: f64,
    d: f64,
    r: f64,
    c: f64,
    e: f64,
}

/// A result with the magnitudes paths, stored and decays.
type Carried = [f64; 4];

/// One row of one value channel.
struct Step {
    o: Carried,
    delta: Carried,
    row: Vec<Element>,
}

struct Round {
    form: Form,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    gate: Vec<f64>,
    beta: Vec<f64>,
    s: Vec<f64>,
}

fn exact(dtype: DType, values: Vec<f64>) -> Vec<f64> {
    values.into_iter().map(|value| dtype.to_f64(dtype.round_from_f64(value))).collect()
}

fn tensor(name: &str, dtype: DType, shape: &[usize], values: &[f64]) -> (String, Logical) {
    assert_eq!(shape.iter().product::<usize>(), values.len(), "{name}");
    let mut bytes = Vec::new();
    values.iter().for_each(|value| dtype.push_bytes(dtype.round_from_f64(*value), &mut bytes));
    let shape = shape.iter().map(|extent| *extent as u64).collect();
    (name.to_owned(), Logical::from_bytes(dtype, shape, bytes))
}

fn words(words: &[(&str, &str)]) -> Vec<(String, String)> {
    words.iter().map(|(name, word)| ((*name).to_owned(), (*word).to_owned())).collect()
}

fn sequences() -> Vec<(String, Vec<i64>)> {
    vec![
        ("seq_len".to_owned(), SEQUENCES.iter().map(|(rows, _)| *rows as i64).collect()),
        ("slot".to_owned(), SEQUENCES.iter().map(|(_, slot)| *slot).collect()),
    ]
}

fn key_head(map: &str, head: usize) -> usize {
    if map == "cyclic" { head % KEY_HEADS } else { head * KEY_HEADS / VALUE_HEADS }
}

impl Round {
    fn draw(form: Form) -> Round {
        let mut draws = Draws::new(31);
        let mut values = draws.normals(ROWS * VALUE_HEADS * VALUE_DIM);
        let gates = ROWS * VALUE_HEADS;
        let decays = if form.gate == "log" { (-1.5, 0.0) } else { (0.25, 1.0) };
        let mut s = draws.normals(SLOTS * STATE);
        // A channel of zeros, which are rounded as the smallest normal number is.
        values.iter_mut().step_by(VALUE_DIM).for_each(|value| *value = 0.0);
        s.chunks_mut(KEY_DIM).step_by(VALUE_DIM).for_each(|row| row.fill(0.0));
        Round {
            form,
            q: exact(form.io, draws.unit_rows(ROWS * KEY_HEADS, KEY_DIM, 0.0)),
            k: exact(form.io, draws.unit_rows(ROWS * KEY_HEADS, KEY_DIM, 0.4)),
            v: exact(form.io, values.iter().map(|value| form.size * value).collect()),
            gate: draws.uniforms(gates, decays.0, decays.1),
            beta: draws.uniforms(gates, 0.2, 0.9),
            s: exact(form.state, s),
        }
    }

    fn inputs(&self) -> Inputs {
        let io = self.form.io;
        let gate = if self.form.gate == "log" { "g" } else { "alpha" };
        Inputs {
            tensors: vec![
                tensor("q", io, &[ROWS, KEY_HEADS, KEY_DIM], &self.q),
                tensor("k", io, &[ROWS, KEY_HEADS, KEY_DIM], &self.k),
                tensor("v", io, &[ROWS, VALUE_HEADS, VALUE_DIM], &self.v),
                tensor(gate, DType::F32, &[ROWS, VALUE_HEADS], &self.gate),
                tensor("beta", DType::F32, &[ROWS, VALUE_HEADS], &self.beta),
                tensor("s", self.form.state, &[SLOTS, VALUE_HEADS, VALUE_DIM, KEY_DIM], &self.s),
            ],
            scalars: vec![("scale".to_owned(), SCALE)],
            options: words(&[("gate_form", self.form.gate), ("head_map", self.form.map)]),
            dims: vec![("slots".to_owned(), SLOTS as i64)],
            lists: sequences(),
            ..Inputs::default()
        }
    }

    fn alpha(&self, row: usize, head: usize) -> f64 {
        let gate = self.gate[row * VALUE_HEADS + head];
        if self.form.gate == "log" { gate.exp() } else { gate }
    }

    /// The rows of one sequence, one value channel at a time, by the equations.
    fn walk(
        &self,
        rows: std::ops::Range<usize>,
        slot: usize,
        head: usize,
        value: usize,
    ) -> Vec<Step> {
        let first = slot * STATE + (head * VALUE_DIM + value) * KEY_DIM;
        let mut state: Vec<Element> = self.s[first..first + KEY_DIM]
            .iter()
            .map(|s| Element { s: *s, m: s.abs(), e: s.abs(), ..Element::default() })
            .collect();
        rows.map(|row| {
            let step = self.step(&state, row, head, value);
            state.clone_from(&step.row);
            step
        })
        .collect()
    }

    fn step(&self, before: &[Element], row: usize, head: usize, value: usize) -> Step {
        let keys = (row * KEY_HEADS + key_head(self.form.map, head)) * KEY_DIM;
        let [k, q] = [&self.k, &self.q].map(|rows| &rows[keys..keys + KEY_DIM]);
        let (alpha, beta) = (self.alpha(row, head), self.beta[row * VALUE_HEADS + head]);
        let v = self.v[(row * VALUE_HEADS + head) * VALUE_DIM + value];
        let recall = |part: fn(&Element) -> f64| -> f64 {
            before.iter().zip(k).map(|(element, k)| alpha * part(element) * k.abs()).sum()
        };
        let recalled: f64 = before.iter().zip(k).map(|(element, k)| alpha * element.s * k).sum();
        let delta = beta * (v - recalled);
        let delta_m = beta * (v.abs() + recall(|element| element.s.abs()));
        let (r, e) = (recall(|element| element.r), recall(|element| element.e));
        let (unit, least, largest) = match self.form.state {
            DType::F16 => (2f64.powi(-11), 2f64.powi(-14), 65504.0),
            _ => (2f64.powi(-24), 2f64.powi(-126), f64::INFINITY),
        };
        let computed = f64::from(u8::from(self.form.gate == "log"));
        let after: Vec<Element> = before
            .iter()
            .zip(k)
            .map(|(old, k)| {
                let s = (alpha * old.s + delta * k).clamp(-largest, largest);
                let d = alpha * old.r + beta * r * k.abs();
                let c = alpha * old.e + beta * e * k.abs();
                Element {
                    s,
                    m: alpha * old.m + delta_m * k.abs(),
                    d,
                    r: (1.0 + unit) * d + s.abs().max(least),
                    c,
                    e: c + s.abs(),
                }
            })
            .collect();
        let read = |part: fn(&Element) -> f64| -> f64 {
            after.iter().zip(q).map(|(element, q)| part(element) * q.abs()).sum::<f64>()
                * SCALE.abs()
        };
        let o = after.iter().zip(q).map(|(element, q)| element.s * q).sum::<f64>() * SCALE;
        let paths = beta * (v.abs() + recall(|element| element.m));
        Step {
            o: [o, read(|at| at.m), read(|at| at.r), computed * read(|at| at.c)],
            delta: [delta, paths, beta * r, computed * beta * e],
            row: after,
        }
    }

    fn of_state(&self, element: &Element) -> Carried {
        let computed = f64::from(u8::from(self.form.gate == "log"));
        [element.s, element.m, element.d, computed * element.c]
    }

    /// Every step of every sequence that has a slot, with its row.
    fn each_step(&self, mut f: impl FnMut(usize, usize, usize, &Step)) {
        let mut first = 0;
        for (rows, slot) in SEQUENCES {
            let own = first..first + rows;
            first += rows;
            let Ok(slot) = usize::try_from(slot) else { continue };
            for head in 0..VALUE_HEADS {
                for value in 0..VALUE_DIM {
                    for (row, step) in own.clone().zip(self.walk(own.clone(), slot, head, value)) {
                        f(row, head, value, &step);
                    }
                }
            }
        }
    }

    /// The state after the first rows of each sequence, as many as are accepted; slots of nobody as they were.
    fn after(&self, accepted: [usize; 4]) -> Vec<Carried> {
        let mut all: Vec<Carried> = self.s.iter().map(|s| [*s, s.abs(), 0.0, 0.0]).collect();
        let mut first = 0;
        for ((rows, slot), accepted) in SEQUENCES.into_iter().zip(accepted) {
            let own = first..first + rows;
            first += rows;
            let (Ok(slot), Some(last)) = (usize::try_from(slot), accepted.min(rows).checked_sub(1))
            else {
                continue;
            };
            for head in 0..VALUE_HEADS {
                for value in 0..VALUE_DIM {
                    let steps = self.walk(own.clone(), slot, head, value);
                    for (key, element) in steps[last].row.iter().enumerate() {
                        let at = slot * STATE + (head * VALUE_DIM + value) * KEY_DIM + key;
                        all[at] = self.of_state(element);
                    }
                }
            }
        }
        all
    }
}

fn carried(outputs: &Outputs, name: &str, at: usize) -> Carried {
    match outputs.tensor(name) {
        Some(Expected::Real { value, magnitudes, .. }) => {
            let names: Vec<_> = magnitudes.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, ["paths", "stored", "decays"], "{name}");
            [value[at], magnitudes[0].1[at], magnitudes[1].1[at], magnitudes[2].1[at]]
        }
        other => panic!("{name} is not real: {other:?}"),
    }
}

fn bits<'a>(outputs: &'a Outputs, name: &str) -> &'a [u64] {
    match outputs.tensor(name) {
        Some(Expected::Bits(bits)) => bits,
        other => panic!("{name} is not exact: {other:?}"),
    }
}

/// Sums in another order: a few roundings of f64 apart.
fn near(what: &str, observed: Carried, expected: Carried) {
    for (part, (a, b)) in observed.into_iter().zip(expected).enumerate() {
        let size = if part == 0 { expected[1] } else { b };
        assert!((a - b).abs() <= 1e-12 * size.abs(), "{what}, part {part}: {a} where {b} is right");
    }
}

#[test]
fn a_verify_has_the_state_after_every_row() {
    let mut any_stopped = false;
    for form in forms() {
        let round = Round::draw(form);
        for live in ["advanced", "kept"] {
            let mut inputs = round.inputs();
            inputs.options.extend(words(&[("live_state", live)]));
            let outputs = reference("gdn_verify").expect("it is registered")(&inputs);
            let counts = ["o", "snap"].map(|name| outputs.tensor(name).map(Expected::count));
            assert_eq!(counts, [Some(ROWS * VALUE_HEADS * VALUE_DIM), Some(ROWS * STATE)]);
            round.each_step(|row, head, value, step| {
                let what = format!("{form:?} row {row} head {head} value {value}");
                let at = (row * VALUE_HEADS + head) * VALUE_DIM + value;
                near(&what, carried(&outputs, "o", at), step.o);
                for (key, element) in step.row.iter().enumerate() {
                    any_stopped |= element.s.abs() == 65504.0;
                    near(
                        &what,
                        carried(&outputs, "snap", at * KEY_DIM + key),
                        round.of_state(element),
                    );
                }
            });
            assert_eq!(outputs.tensor("s").is_some(), live == "advanced");
            if live == "advanced" {
                for (at, expected) in round.after([usize::MAX; 4]).into_iter().enumerate() {
                    // A slot of nobody is dead.
                    if at < 3 * STATE {
                        near(&format!("{form:?} s[{at}]"), carried(&outputs, "s", at), expected);
                    }
                }
            }
        }
    }
    assert!(any_stopped, "no f16 state came to its largest number");
}

#[test]
fn a_stash_is_what_its_rows_do_and_a_round_keeps_what_is_accepted() {
    for form in forms() {
        let round = Round::draw(form);
        for phase in ["verify", "round"] {
            let mut inputs = round.inputs();
            inputs.options.extend(words(&[("phase", phase)]));
            // More than there are, a pad's, and fewer than none.
            for (accepted, counts) in [([2, 1, 5, 1], [2, 1, 5, 1]), ([3, -1, -1, 0], [3, 0, 0, 0])]
            {
                inputs.lists.retain(|(name, _)| name != "accepted");
                inputs.lists.push(("accepted".to_owned(), accepted.to_vec()));
                let outputs = reference("gdn_write_on_accept").expect("it is registered")(&inputs);
                stash_agrees(&round, &outputs);
                assert_eq!(outputs.tensor("s").is_some(), phase == "round");
                if phase == "round" {
                    for (at, expected) in round.after(counts).into_iter().enumerate() {
                        near(&format!("{form:?} s[{at}]"), carried(&outputs, "s", at), expected);
                    }
                }
            }
        }
    }
}

fn stash_agrees(round: &Round, outputs: &Outputs) {
    let form = round.form;
    round.each_step(|row, head, value, step| {
        let what = format!("{form:?} row {row} head {head} value {value}");
        let at = (row * VALUE_HEADS + head) * VALUE_DIM + value;
        near(&what, carried(outputs, "o", at), step.o);
        near(&what, carried(outputs, "stash_delta", at), step.delta);
    });
    let Some(Expected::Real { value, magnitudes, .. }) = outputs.tensor("stash_alpha") else {
        panic!("stash_alpha is real");
    };
    assert_eq!(magnitudes[0].0, "exponential");
    for row in 0..ROWS {
        for head in 0..VALUE_HEADS {
            let (at, alpha) = (row * VALUE_HEADS + head, round.alpha(row, head));
            assert!((value[at] - alpha).abs() <= 1e-15 * alpha);
            let exponential = if form.gate == "log" { value[at] } else { 0.0 };
            assert_eq!(magnitudes[0].1[at], exponential);
        }
    }
    let keys: Vec<u64> = round.k.iter().map(|k| u64::from((*k as f32).to_bits())).collect();
    assert_eq!(bits(outputs, "stash_key"), keys);
    assert_eq!(bits(outputs, "engaged"), [1, 0, 1, 1]);
}

/// A stash of any numbers, which no verify made.
struct Stash {
    alpha: Vec<f64>,
    delta: Vec<f64>,
    key: Vec<f64>,
    snap: Vec<f64>,
    s: Vec<f64>,
}

impl Stash {
    fn draw(state: DType, size: f64) -> Stash {
        let mut draws = Draws::new(41);
        let delta = draws.normals(ROWS * VALUE_HEADS * VALUE_DIM);
        Stash {
            alpha: draws.uniforms(ROWS * VALUE_HEADS, 0.25, 1.0),
            delta: exact(DType::F32, delta.iter().map(|delta| size * delta).collect()),
            key: draws.unit_rows(ROWS * KEY_HEADS, KEY_DIM, 0.4),
            snap: exact(state, draws.normals(ROWS * STATE)),
            s: exact(state, draws.normals(SLOTS * STATE)),
        }
    }

    fn fold(&self, state: DType, map: &str, accepted: [i64; 4], engaged: [i64; 4]) -> Outputs {
        let mut lists = sequences();
        lists.push(("accepted".to_owned(), accepted.to_vec()));
        lists.push(("engaged".to_owned(), engaged.to_vec()));
        let keys = [ROWS, KEY_HEADS, KEY_DIM];
        let values = [ROWS, VALUE_HEADS, VALUE_DIM];
        let inputs = Inputs {
            tensors: vec![
                tensor("stash_alpha", DType::F32, &values[..2], &self.alpha),
                tensor("stash_delta", DType::F32, &values, &self.delta),
                tensor("stash_key", DType::F32, &keys, &self.key),
                tensor("snap", state, &[ROWS, VALUE_HEADS, VALUE_DIM, KEY_DIM], &self.snap),
                tensor("s", state, &[SLOTS, VALUE_HEADS, VALUE_DIM, KEY_DIM], &self.s),
            ],
            options: words(&[("phase", "fold"), ("head_map", map)]),
            dims: vec![("slots".to_owned(), SLOTS as i64)],
            lists,
            ..Inputs::default()
        };
        reference("gdn_write_on_accept").expect("it is registered")(&inputs)
    }

    /// One element of a slot after so many rows from the first.
    fn folded(
        &self,
        state: DType,
        map: &str,
        slot: usize,
        own: usize,
        rows: std::ops::Range<usize>,
    ) -> Carried {
        let (channel, key) = (own / KEY_DIM, own % KEY_DIM);
        let head = channel / VALUE_DIM;
        let (unit, least, largest) = match state {
            DType::F16 => (2f64.powi(-11), 2f64.powi(-14), 65504.0),
            _ => (2f64.powi(-24), 2f64.powi(-126), f64::INFINITY),
        };
        let s = self.s[slot * STATE + own];
        let mut at = Element { s, m: s.abs(), ..Element::default() };
        for row in rows {
            let alpha = self.alpha[row * VALUE_HEADS + head];
            let written = self.delta[row * VALUE_HEADS * VALUE_DIM + channel]
                * self.key[(row * KEY_HEADS + key_head(map, head)) * KEY_DIM + key];
            let s = (alpha * at.s + written).clamp(-largest, largest);
            let d = alpha * at.r;
            let r = (1.0 + unit) * d + s.abs().max(least);
            at = Element { s, m: alpha * at.m + written.abs(), d, r, ..at };
        }
        [at.s, at.m, at.d, 0.0]
    }
}

#[test]
fn a_fold_takes_the_stash_of_the_engaged_and_the_snapshot_of_others() {
    // Accepted rows, engaged; the pad and the empty sequence have neither.
    let calls =
        [([2, 2, 1, 0], [1, 1, 1, 1]), ([2, 1, 1, 1], [0, 0, 0, 0]), ([9, 0, -1, 3], [1, 0, 0, 0])];
    for state in [DType::F32, DType::F16] {
        for map in ["block", "cyclic"] {
            for size in [1.0, 1e5] {
                let stash = Stash::draw(state, size);
                for (accepted, engaged) in calls {
                    let outputs = stash.fold(state, map, accepted, engaged);
                    fold_agrees(&stash, state, map, accepted, engaged, &outputs);
                }
            }
        }
    }
}

fn fold_agrees(
    stash: &Stash,
    state: DType,
    map: &str,
    accepted: [i64; 4],
    engaged: [i64; 4],
    outputs: &Outputs,
) {
    let mut expected: Vec<Carried> = stash.s.iter().map(|s| [*s, s.abs(), 0.0, 0.0]).collect();
    let mut first = 0;
    for (n, (rows, slot)) in SEQUENCES.into_iter().enumerate() {
        let kept = accepted[n].clamp(0, rows as i64) as usize;
        let own = first..first + kept;
        first += rows;
        let (Ok(slot), true) = (usize::try_from(slot), kept > 0) else { continue };
        for at in 0..STATE {
            expected[slot * STATE + at] = if engaged[n] == 1 {
                stash.folded(state, map, slot, at, own.clone())
            } else if kept < rows {
                [stash.snap[(own.end - 1) * STATE + at], 0.0, 0.0, 0.0]
            } else {
                // All rows are kept: the live state is the last row's already.
                [stash.s[slot * STATE + at], 0.0, 0.0, 0.0]
            };
        }
    }
    for (at, expected) in expected.into_iter().enumerate() {
        near(&format!("{state:?} {map} s[{at}]"), carried(outputs, "s", at), expected);
    }
}

#[test]
fn a_clear_engages_nobody() {
    let inputs =
        Inputs { options: words(&[("phase", "clear")]), lists: sequences(), ..Inputs::default() };
    let outputs = reference("gdn_write_on_accept").expect("it is registered")(&inputs);
    assert_eq!(bits(&outputs, "engaged"), [0; 4]);
    assert_eq!(outputs.tensors.len(), 1);
}
