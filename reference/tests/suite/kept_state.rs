//! Errors that a state kept row by row carries on, of its own roundings and of its decays: their magnitudes
//! bound every honest one, for any q, and are passed by coarser ones.

use crate::draws::Draws;
use contracts::dtype::DType;
use reference::linear_attention::gated_delta_rule::{
    HeadMap, Heads, Recurrence, Rows, Sequence, StateType, gated_delta_rule_by_row,
};

const DIM: usize = 8;
const ROWS: usize = 17;
const HEADS: Heads =
    Heads { key_heads: 1, value_heads: 1, key_dim: DIM, value_dim: 1, map: HeadMap::Block };

/// One value row, so that a whole walk is a few lines here.
struct Walk {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    g: Vec<f64>,
    beta: Vec<f64>,
    s: Vec<f64>,
}

impl Walk {
    /// With `one_channel` every q reads one element, so that no roundings average.
    fn draw(seed: u64, scale_of_state: f64, one_channel: bool) -> Walk {
        let mut draws = Draws::new(seed);
        let q = if one_channel {
            (0..ROWS * DIM).map(|at| f64::from(u8::from(at % DIM == seed as usize % DIM))).collect()
        } else {
            draws.unit_rows(ROWS, DIM, 0.0)
        };
        Walk {
            q,
            k: draws.unit_rows(ROWS, DIM, 0.5),
            v: draws.normals(ROWS).iter().map(|v| v * scale_of_state).collect(),
            g: draws.uniforms(ROWS, -0.3, 0.0),
            beta: draws.uniforms(ROWS, 0.0, 1.0),
            s: draws.normals(DIM).iter().map(|s| nearest(DType::F16, s * scale_of_state)).collect(),
        }
    }

    fn reference(&self) -> Recurrence {
        let rows =
            Rows { q: &self.q, k: &self.k, v: &self.v, g: &self.g, beta: &self.beta, scale: 1.0 };
        let sequence = Sequence { first_row: 0, row_count: ROWS, slot: Some(0) };
        let kept = StateType::of(DType::F16);
        gated_delta_rule_by_row(HEADS, rows, &[sequence], 1, Some(&self.s), kept)
    }

    /// The state before each row's rounding and the outputs, of a walk rounded by `round`.
    fn rounded(&self, round: impl Fn(f64) -> f64) -> (Vec<f64>, Vec<f64>) {
        self.walked(round, 0.0)
    }

    /// Likewise, of decays that are all wrong by the relative error `of_decay`.
    fn walked(&self, round: impl Fn(f64) -> f64, of_decay: f64) -> (Vec<f64>, Vec<f64>) {
        let (mut state, mut states, mut outputs) = (self.s.clone(), Vec::new(), Vec::new());
        for row in 0..ROWS {
            let (k, q) = (&self.k[row * DIM..][..DIM], &self.q[row * DIM..][..DIM]);
            let alpha = libm::exp(self.g[row]) * (1.0 + of_decay);
            let recalled: f64 = (0..DIM).map(|at| alpha * state[at] * k[at]).sum();
            let delta = self.beta[row] * (self.v[row] - recalled);
            for at in 0..DIM {
                state[at] = alpha * state[at] + delta * k[at];
            }
            states.extend_from_slice(&state);
            state.iter_mut().for_each(|s| *s = round(*s));
            outputs.push((0..DIM).map(|at| state[at] * q[at]).sum());
        }
        (states, outputs)
    }
}

fn nearest(dtype: DType, value: f64) -> f64 {
    dtype.to_f64(dtype.round_from_f64(value))
}

/// The largest error in units of what a narrow state's roundings allow; f64's own are far below either.
fn worst(observed: &[f64], expected: &[f64], magnitude: &[f64]) -> f64 {
    worst_in(StateType::of(DType::F16).roundoff, observed, expected, magnitude)
}

fn worst_in(unit: f64, observed: &[f64], expected: &[f64], magnitude: &[f64]) -> f64 {
    let of = |at: usize| (observed[at] - expected[at]).abs() / (unit * magnitude[at] + 1e-15);
    (0..observed.len()).map(of).fold(0.0, f64::max)
}

#[test]
fn every_honest_rounding_stays_within_the_drift() {
    let mut least_slack: f64 = 0.0;
    for seed in 0..400 {
        // Ordinary states, and ones whose elements are subnormal in f16.
        for (scale, one_channel) in [(0.3, false), (0.3, true), (3e-5, false), (3e-5, true)] {
            let walk = Walk::draw(seed, scale, one_channel);
            let exact = walk.reference();
            let (states, outputs) = walk.rounded(|s| nearest(DType::F16, s));
            for worst in [
                worst(&states, &exact.s_by_row, &exact.s_by_row_drift),
                worst(&outputs, &exact.o, &exact.o_drift),
            ] {
                assert!(worst <= 1.0, "seed {seed}, scale {scale}: {worst} of the bound");
                least_slack = least_slack.max(worst);
            }
        }
    }
    assert!(least_slack > 0.8, "no walk comes near: the bound allows {least_slack} of itself");
}

#[test]
fn a_coarser_rounding_passes_the_drift() {
    let coarser = |s: f64| nearest(DType::BF16, s);
    let mut passed = 0;
    for seed in 0..50 {
        let walk = Walk::draw(seed, 0.3, true);
        let exact = walk.reference();
        let (states, outputs) = walk.rounded(coarser);
        assert!(worst(&states, &exact.s_by_row, &exact.s_by_row_drift) > 1.0, "seed {seed}");
        passed += u32::from(worst(&outputs, &exact.o, &exact.o_drift) > 1.0);
    }
    assert!(passed >= 40, "one element of each row is read: {passed} of 50 walks show it");
}

#[test]
fn a_state_that_is_never_changed_is_never_rounded() {
    let mut walk = Walk::draw(3, 0.3, true);
    walk.beta.fill(0.0);
    walk.g.fill(0.0);
    let (states, _) = walk.rounded(|s| nearest(DType::F16, s));
    assert_eq!(states, walk.reference().s_by_row);
}

#[test]
fn equal_errors_of_every_decay_stay_within_theirs() {
    let (unit, mut nearest_to_bound) = (1e-7, 0.0f64);
    for seed in 0..200 {
        for (one_channel, without_writes) in [(false, false), (true, false), (true, true)] {
            let mut walk = Walk::draw(seed, 0.3, one_channel);
            if without_writes {
                walk.beta.fill(0.0);
            }
            let exact = walk.reference();
            let (states, outputs) = walk.walked(|s| s, unit);
            // The error is of first order; what is left is a relative 17 · 1e-7.
            for worst in [
                worst_in(unit, &states, &exact.s_by_row, &exact.s_by_row_decays),
                worst_in(unit, &outputs, &exact.o, &exact.o_decays),
            ] {
                assert!(worst <= 1.0 + 1e-5, "seed {seed}: {worst} of the bound");
                nearest_to_bound = nearest_to_bound.max(worst);
            }
            let (states, _) = walk.walked(|s| s, 2.0 * unit);
            let twice = worst_in(unit, &states, &exact.s_by_row, &exact.s_by_row_decays);
            assert!(!without_writes || twice > 1.9, "decay alone is exact: {twice}");
        }
    }
    assert!(nearest_to_bound > 0.99, "decay alone reaches its bound: {nearest_to_bound}");
}
