//! Properties of the gated delta rule that hold whatever the inputs, and a check that its magnitudes
//! bound an honest f32 evaluation while wrong ones exceed them.

use crate::draws::Draws;
use reference::linear_attention::gated_delta_rule::{
    HeadMap, Heads, Recurrence, Rows, Sequence, gated_delta_rule, gated_delta_rule_in_chunks,
};

const HEADS: Heads =
    Heads { key_heads: 2, value_heads: 4, key_dim: 8, value_dim: 6, map: HeadMap::Block };

/// Owned inputs of one run.
#[derive(Clone)]
struct Problem {
    heads: Heads,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    g: Vec<f64>,
    beta: Vec<f64>,
    s: Vec<f64>,
    scale: f64,
}

impl Problem {
    fn draw(seed: u64, heads: Heads, rows: usize, slots: usize) -> Problem {
        let mut draws = Draws::new(seed);
        let keys = rows * heads.key_heads;
        Problem {
            heads,
            q: draws.unit_rows(keys, heads.key_dim, 0.0),
            k: draws.unit_rows(keys, heads.key_dim, 0.5),
            v: draws.normals(rows * heads.value_heads * heads.value_dim),
            g: draws.uniforms(rows * heads.value_heads, -0.5, 0.0),
            beta: draws.uniforms(rows * heads.value_heads, 0.2, 0.8),
            s: draws.normals(slots * heads.slot_count()).iter().map(|x| 0.3 * x).collect(),
            scale: f64::from((heads.key_dim as f32).sqrt().recip()),
        }
    }

    fn row_count(&self) -> usize {
        self.g.len() / self.heads.value_heads
    }

    fn run(&self, sequences: &[Sequence]) -> Recurrence {
        let slots = self.s.len() / self.heads.slot_count();
        gated_delta_rule(self.heads, self.rows(), sequences, slots, Some(&self.s))
    }

    fn run_all(&self) -> Recurrence {
        self.run(&[sequence(0, self.row_count(), Some(0))])
    }

    fn rows(&self) -> Rows<'_> {
        Rows { q: &self.q, k: &self.k, v: &self.v, g: &self.g, beta: &self.beta, scale: self.scale }
    }

    fn key(&self, rows: &[f64], row: usize, value_head: usize) -> Vec<f64> {
        let Heads { key_heads, key_dim, .. } = self.heads;
        let at = (row * key_heads + self.heads.key_head(value_head)) * key_dim;
        rows[at..at + key_dim].to_vec()
    }
}

fn sequence(first_row: usize, row_count: usize, slot: Option<usize>) -> Sequence {
    Sequence { first_row, row_count, slot }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Whether every element differs by no more than `tolerance` of its magnitude.
fn near(observed: &[f64], expected: &[f64], magnitude: &[f64], tolerance: f64) -> bool {
    observed.len() == expected.len()
        && (0..observed.len())
            .all(|at| (observed[at] - expected[at]).abs() <= tolerance * magnitude[at] + 1e-300)
}

/// The closed form over all rows at once, derived from the recurrence by hand:
/// δ_i = β_i(v_i − e^{G_i}S_0k_i − Σ_{j<i} e^{G_i−G_j}(k_i·k_j)δ_j), o_i = s·S_iq_i.
#[test]
fn agrees_with_the_closed_form_over_a_chunk() {
    let problem = Problem::draw(1, HEADS, 21, 1);
    let result = problem.run_all();
    let Heads { value_heads, key_dim, value_dim, .. } = problem.heads;
    let mut expected = vec![0.0; result.o.len()];
    for value_head in 0..value_heads {
        let mut decay = 0.0;
        let mut written: Vec<(f64, Vec<f64>, Vec<f64>)> = Vec::new();
        for row in 0..problem.row_count() {
            let gate = row * value_heads + value_head;
            decay += problem.g[gate];
            let k = problem.key(&problem.k, row, value_head);
            let q = problem.key(&problem.q, row, value_head);
            let initial = |channel: usize, key: &[f64]| {
                let at = (value_head * value_dim + channel) * key_dim;
                decay.exp() * dot(&problem.s[at..at + key_dim], key)
            };
            let recalled = |written: &[(f64, Vec<f64>, Vec<f64>)], channel: usize, key: &[f64]| {
                let earlier = written.iter().map(|(then, other, delta)| {
                    (decay - then).exp() * dot(other, key) * delta[channel]
                });
                initial(channel, key) + earlier.sum::<f64>()
            };
            let delta = (0..value_dim)
                .map(|channel| {
                    let v = problem.v[gate * value_dim + channel];
                    problem.beta[gate] * (v - recalled(&written, channel, &k))
                })
                .collect();
            written.push((decay, k, delta));
            for channel in 0..value_dim {
                expected[gate * value_dim + channel] =
                    problem.scale * recalled(&written, channel, &q);
            }
        }
    }
    assert!(near(&result.o, &expected, &result.o_paths, 1e-13));
    // Without the decay it would be another function: the comparison can fail.
    let undecayed = Problem { g: vec![0.0; problem.g.len()], ..problem };
    assert!(!near(&undecayed.run_all().o, &expected, &result.o_paths, 1e-3));
}

#[test]
fn a_sequence_is_its_rows_one_after_the_other() {
    let problem = Problem::draw(2, HEADS, 70, 1);
    let whole = problem.run_all();
    let mut carried = problem.clone();
    for row in 0..problem.row_count() {
        let step = carried.run(&[sequence(row, 1, Some(0))]);
        let outputs = HEADS.value_heads * HEADS.value_dim;
        let range = row * outputs..(row + 1) * outputs;
        assert_eq!(step.o[range.clone()], whole.o[range], "row {row}");
        carried.s = step.s;
    }
    assert_eq!(carried.s, whole.s);
}

#[test]
fn sequences_and_slots_do_not_meet() {
    let problem = Problem::draw(3, HEADS, 12, 3);
    let together = problem.run(&[
        sequence(0, 5, Some(2)),
        sequence(5, 0, Some(0)),
        sequence(5, 3, None),
        sequence(8, 3, Some(1)),
    ]);
    let first = problem.run(&[sequence(0, 5, Some(2))]);
    let last = problem.run(&[sequence(8, 3, Some(1))]);
    let (slot, row) = (HEADS.slot_count(), HEADS.value_heads * HEADS.value_dim);
    assert_eq!(together.s[..slot], problem.s[..slot], "an empty sequence leaves its state");
    assert_eq!(together.s[slot..2 * slot], last.s[slot..2 * slot]);
    assert_eq!(together.s[2 * slot..], first.s[2 * slot..]);
    assert_eq!(together.o[..5 * row], first.o[..5 * row]);
    assert!(together.o[5 * row..8 * row].iter().all(|o| *o == 0.0), "a skipped sequence is dead");
    assert_eq!(together.o[8 * row..11 * row], last.o[8 * row..11 * row]);
}

#[test]
fn without_gates_the_state_stays_and_is_only_read() {
    let mut problem = Problem::draw(4, HEADS, 9, 1);
    problem.g.fill(0.0);
    problem.beta.fill(0.0);
    let result = problem.run_all();
    assert_eq!(result.s, problem.s);
    assert_eq!(result.s_paths, problem.s.iter().map(|s| s.abs()).collect::<Vec<_>>());
    for row in 0..problem.row_count() {
        let q = problem.key(&problem.q, row, 0);
        let read = problem.scale * dot(&problem.s[..HEADS.key_dim], &q);
        assert!((result.o[row * HEADS.value_heads * HEADS.value_dim] - read).abs() < 1e-15);
    }
}

#[test]
fn from_a_zero_state_outputs_are_linear_in_v() {
    let mut first = Problem::draw(5, HEADS, 30, 1);
    first.s.fill(0.0);
    let second = Problem { v: Draws::new(6).normals(first.v.len()), ..first.clone() };
    let both = Problem {
        v: first.v.iter().zip(&second.v).map(|(a, b)| a - 2.0 * b).collect(),
        ..first.clone()
    };
    let (a, b, sum) = (first.run_all(), second.run_all(), both.run_all());
    let expected: Vec<f64> = a.o.iter().zip(&b.o).map(|(a, b)| a - 2.0 * b).collect();
    assert!(near(&sum.o, &expected, &vec![1.0; expected.len()], 1e-13));
    assert!(sum.o.iter().any(|o| o.abs() > 0.1));
}

#[test]
fn head_maps_differ_exactly_where_they_choose_another_key_head() {
    let block = Problem::draw(7, HEADS, 4, 1);
    let cyclic = Problem { heads: Heads { map: HeadMap::Cyclic, ..HEADS }, ..block.clone() };
    let (block, cyclic) = (block.run_all().o, cyclic.run_all().o);
    for (at, (block, cyclic)) in block.iter().zip(&cyclic).enumerate() {
        let head = at / HEADS.value_dim % HEADS.value_heads;
        // Two key heads, four value heads: 0 0 1 1 against 0 1 0 1.
        assert_eq!(block == cyclic, head == 0 || head == 3, "head {head}");
    }
}

#[test]
fn magnitudes_dominate_values_and_carry_the_decay_of_the_worst_chunk() {
    let mut problem = Problem::draw(8, HEADS, 150, 1);
    let head = 1;
    for row in 0..150 {
        // Chunks of 64 rows sum to −8, −32 and −22.
        let decay = [-0.125, -0.5, -1.0][row / 64];
        problem.g[row * HEADS.value_heads + head] = decay;
    }
    let result = problem.run_all();
    let dominated = |value: &[f64], paths: &[f64]| {
        value.iter().zip(paths).all(|(value, paths)| value.abs() <= paths * (1.0 + 1e-12))
    };
    assert!(dominated(&result.o, &result.o_paths) && dominated(&result.s, &result.s_paths));
    assert_eq!(result.one_plus_gamma_32[head], 1.0 + 32.0 / 32.0);
    for (at, paths) in result.o_paths.iter().enumerate() {
        if at / HEADS.value_dim % HEADS.value_heads == head {
            assert_eq!(result.o_paths_gamma[at], paths * 32.0);
        }
    }
    let state = head * HEADS.value_dim * HEADS.key_dim;
    assert_eq!(result.s_paths_gamma[state], result.s_paths[state] * 32.0);
}

#[test]
fn what_cancels_in_s_still_errs_in_later_rows_of_chunks() {
    let heads =
        Heads { key_heads: 1, value_heads: 1, key_dim: 1, value_dim: 1, map: HeadMap::Block };
    // The second row takes back what the first wrote; the others find nothing.
    let paths = |row_count: usize, in_chunks: bool| {
        let (ones, zeros) = (vec![1.0; row_count], vec![0.0; row_count]);
        let mut v = zeros.clone();
        v[0] = 1.0;
        let rows = Rows { q: &ones, k: &ones, v: &v, g: &zeros, beta: &ones, scale: 1.0 };
        let evaluate = if in_chunks { gated_delta_rule_in_chunks } else { gated_delta_rule };
        let result = evaluate(heads, rows, &[sequence(0, row_count, Some(0))], 1, None);
        assert_eq!(result.s[0], if row_count == 1 { 1.0 } else { 0.0 });
        assert_eq!(result.o_paths[row_count - 1], result.s_paths[0]);
        result.s_paths[0]
    };
    for (row_count, by_row, in_chunks) in
        [(1, 1.0, 1.0), (2, 2.0, 2.0), (3, 2.0, 4.0), (64, 2.0, 126.0), (70, 2.0, 138.0)]
    {
        assert_eq!((paths(row_count, false), paths(row_count, true)), (by_row, in_chunks));
    }
}

#[test]
fn rounding_walk_saturates_with_what_is_forgotten() {
    let unit = 0.42 * 2f64.powi(-24);
    let walk = |g: f64, beta: f64, rows: usize| {
        let mut problem = Problem::draw(9, HEADS, rows, 1);
        problem.g.fill(g);
        problem.beta.fill(beta);
        problem.run(&[sequence(0, rows, Some(0))]).rounding_walk[0] / unit
    };
    assert_eq!(walk(0.0, 0.0, 100), 10.0, "nothing is forgotten: √T");
    assert_eq!(walk(-0.25, 0.5, 0), 0.0, "no row, no rounding");
    assert_eq!(walk(-0.25, 0.5, 1), 1.0);
    // α² = e^{−1/2}, β(2−β) = 3/4, Dk = 8.
    let saturated = (1.0 / (1.0 - (-0.5f64).exp() * (1.0 - 0.75 / 8.0))).sqrt();
    assert!((walk(-0.25, 0.5, 400) - saturated).abs() < 1e-12);
}

#[test]
fn nan_goes_where_the_equations_send_it() {
    let clean = Problem::draw(10, HEADS, 8, 1);
    let Heads { key_heads, value_heads, key_dim, value_dim, .. } = HEADS;
    let (row, head, channel) = (3, 2, 4);
    let is_nan = |problem: &Problem, expected: &dyn Fn(usize, usize, usize) -> bool, what: &str| {
        for (at, o) in problem.run_all().o.iter().enumerate() {
            let place =
                (at / value_dim / value_heads, at / value_dim % value_heads, at % value_dim);
            assert_eq!(o.is_nan(), expected(place.0, place.1, place.2), "{what} at {place:?}");
        }
    };
    let mut problem = clean.clone();
    let gate = row * value_heads + head;
    problem.v[gate * value_dim + channel] = f64::NAN;
    problem.beta[gate] = 0.0;
    is_nan(&problem, &|t, h, c| t >= row && h == head && c == channel, "v, unmasked by β = 0");
    let mut problem = clean.clone();
    problem.beta[gate] = f64::NAN;
    is_nan(&problem, &|t, h, _| t >= row && h == head, "β");
    let mut problem = clean.clone();
    problem.k[(row * key_heads + 1) * key_dim] = f64::NAN;
    is_nan(&problem, &|t, h, _| t >= row && h >= 2, "k of the second key head");
    let mut problem = clean.clone();
    problem.q[row * key_heads * key_dim] = f64::NAN;
    is_nan(&problem, &|t, h, _| t == row && h < 2, "q of the first key head");
    let mut problem = clean.clone();
    problem.s[(head * value_dim + channel) * key_dim] = f64::NAN;
    problem.g[head] = -1e4;
    is_nan(&problem, &|_, h, c| h == head && c == channel, "s, unmasked by α = 0");
}

/// The recurrence as a simple kernel evaluates it: f32 throughout, k innermost.
fn sequential_f32(problem: &Problem, decays: &dyn Fn(f64) -> f32) -> (Vec<f64>, Vec<f64>) {
    let Heads { value_heads, key_dim, value_dim, .. } = problem.heads;
    let mut s: Vec<f32> = problem.s.iter().map(|s| *s as f32).collect();
    let mut o = vec![0.0; problem.v.len()];
    for row in 0..problem.row_count() {
        for value_head in 0..value_heads {
            let k = problem.key(&problem.k, row, value_head);
            let q = problem.key(&problem.q, row, value_head);
            let gate = row * value_heads + value_head;
            let (alpha, beta) = (decays(problem.g[gate]), problem.beta[gate] as f32);
            for channel in 0..value_dim {
                let at = (value_head * value_dim + channel) * key_dim;
                let state = &mut s[at..at + key_dim];
                let mut recalled = 0f32;
                for (s, k) in state.iter_mut().zip(&k) {
                    *s *= alpha;
                    recalled += *s * *k as f32;
                }
                let delta = beta * (problem.v[gate * value_dim + channel] as f32 - recalled);
                let mut read = 0f32;
                for ((s, k), q) in state.iter_mut().zip(&k).zip(&q) {
                    *s += delta * *k as f32;
                    read += *s * *q as f32;
                }
                o[gate * value_dim + channel] = f64::from(read * problem.scale as f32);
            }
        }
    }
    (o, s.into_iter().map(f64::from).collect())
}

/// Largest error over the bound u|r| + κ·u·M.
fn worst(observed: &[f64], expected: &[f64], paths: &[f64], kappa: f64) -> f64 {
    let unit = 2f64.powi(-24);
    (0..observed.len())
        .map(|at| {
            let bound = unit * expected[at].abs() + kappa * unit * paths[at] + 1e-30;
            (observed[at] - expected[at]).abs() / bound
        })
        .fold(0.0, f64::max)
}

#[test]
fn bounds_hold_for_an_f32_recurrence_and_fail_for_wrong_ones() {
    let honest = |g: f64| libm::exp(g) as f32;
    let heads = |dim| Heads { key_heads: 1, value_heads: 2, key_dim: dim, value_dim: dim, ..HEADS };
    let decays: [(&str, f64, f64); 4] =
        [("one", 0.0, 0.0), ("slow", -0.007, 0.0), ("model", -2.0, -0.1), ("fast", -7.0, -0.4)];
    for (seed, (class, low, high)) in (20..).zip(decays) {
        for (dim, rows, shared) in [(32, 1, 0.0), (32, 65, 0.9), (64, 193, 0.5), (128, 130, 0.0)] {
            let mut problem = Problem::draw(seed, heads(dim), rows, 1);
            problem.k = Draws::new(seed + 100).unit_rows(rows, dim, shared);
            problem.g = Draws::new(seed + 200).uniforms(2 * rows, low, high);
            let truth = problem.run_all();
            let (o, s) = sequential_f32(&problem, &honest);
            let o_ratio = worst(&o, &truth.o, &truth.o_paths, 8.0);
            let s_ratio = worst(&s, &truth.s, &truth.s_paths, 40.0);
            println!("{class} D={dim} T={rows} shared {shared}: o {o_ratio:.3}, s {s_ratio:.3}");
            assert!(o_ratio <= 1.0 && s_ratio <= 1.0, "{class}: o {o_ratio}, s {s_ratio}");
            for head in 0..2 {
                let range = head * dim * dim..(head + 1) * dim * dim;
                let error = dot_of_differences(&s[range.clone()], &truth.s[range.clone()]).sqrt();
                let norm = dot(&truth.s[range.clone()], &truth.s[range]).sqrt();
                let limit = 3.0 * truth.rounding_walk[head] + 5e-7;
                assert!(error / norm <= limit, "{class}: head {head} drifts {}", error / norm);
            }
        }
    }
    let problem = Problem::draw(30, heads(32), 65, 1);
    let truth = problem.run_all();
    let wrong: [(&str, &dyn Fn(f64) -> f32); 3] = [
        ("decay sign", &|g| libm::exp(-g) as f32),
        ("no decay", &|_| 1.0),
        ("decay too large by 1e-4", &|g| (libm::exp(g) * (1.0 + 1e-4)) as f32),
    ];
    for (what, decays) in wrong {
        let (o, _) = sequential_f32(&problem, decays);
        let ratio = worst(&o, &truth.o, &truth.o_paths, 8.0);
        println!("{what}: o {ratio:.0} times the bound");
        assert!(ratio > 10.0, "{what}: {ratio}");
    }
}

fn dot_of_differences(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}
