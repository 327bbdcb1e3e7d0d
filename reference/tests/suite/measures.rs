//! What a reference returns beside its results: counts, magnitudes and measures, each against its
//! definition worked out here, on shapes that are no multiple of anything.

use crate::draws::Draws;
use reference::Expected;
use reference::canary::row_sums;
use reference::linear_attention::gated_delta_rule::{
    HeadMap, Heads, Recurrence, Rows, Sequence, gated_delta_rule,
};

const HEADS: Heads =
    Heads { key_heads: 1, value_heads: 2, key_dim: 5, value_dim: 19, map: HeadMap::Block };
const SLOTS: usize = 3;

/// Two sequences of 3 and 70 rows in slots 2 and 1; slot 0 is nobody's.
fn recurrence(v_scale: f64, with_initial: bool) -> (Recurrence, Vec<f64>) {
    let rows = 73;
    let mut draws = Draws::new(7);
    let q = draws.unit_rows(rows, HEADS.key_dim, 0.0);
    let k = draws.unit_rows(rows, HEADS.key_dim, 0.5);
    let v: Vec<f64> = draws
        .normals(rows * HEADS.value_heads * HEADS.value_dim)
        .iter()
        .map(|x| v_scale * x)
        .collect();
    let g = draws.uniforms(rows * HEADS.value_heads, -0.5, 0.0);
    let beta = draws.uniforms(rows * HEADS.value_heads, 0.2, 0.8);
    let s = draws.normals(SLOTS * HEADS.slot_count());
    let inputs = Rows { q: &q, k: &k, v: &v, g: &g, beta: &beta, scale: -0.5 };
    let sequences = [
        Sequence { first_row: 0, row_count: 3, slot: Some(2) },
        Sequence { first_row: 3, row_count: 70, slot: Some(1) },
    ];
    let initial = with_initial.then_some(s.as_slice());
    (gated_delta_rule(HEADS, inputs, &sequences, SLOTS, initial), g)
}

/// Γ by its definition: the largest sum of |g| over 64 rows of the sequence.
fn gamma(g: &[f64], rows: std::ops::Range<usize>, head: usize) -> f64 {
    let own: Vec<f64> = rows.map(|row| -g[row * HEADS.value_heads + head]).collect();
    own.chunks(64).map(|chunk| chunk.iter().sum()).fold(0.0, f64::max)
}

#[test]
fn magnitudes_and_measures_are_those_of_their_definitions() {
    let (result, g) = recurrence(1.0, true);
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b.abs();
    let size = HEADS.value_dim * HEADS.key_dim;
    for (slot, rows) in [(2, 0..3), (1, 3..73)] {
        for head in 0..HEADS.value_heads {
            let group = slot * HEADS.value_heads + head;
            let gamma = gamma(&g, rows.clone(), head);
            assert!(near(result.one_plus_gamma_32[group], 1.0 + gamma / 32.0));
            let own = group * size..(group + 1) * size;
            let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
            let ratio = norm(&result.s_paths[own.clone()]) / norm(&result.s[own.clone()]);
            assert!(near(result.paths_ratio[group], ratio) && ratio >= 1.0, "{ratio}");
            for at in own {
                assert!(result.s[at] != 0.0, "every element of the state is written");
                assert!(near(result.s_paths_gamma[at], result.s_paths[at] * gamma));
            }
            for row in rows.clone() {
                for channel in 0..HEADS.value_dim {
                    let at = (row * HEADS.value_heads + head) * HEADS.value_dim + channel;
                    assert!(result.o[at] != 0.0, "every output is written");
                    assert!(result.o_paths[at] >= result.o[at].abs());
                    assert!(near(result.o_paths_gamma[at], result.o_paths[at] * gamma));
                }
            }
        }
    }
    let nobodys = 0..HEADS.slot_count();
    assert!(result.s[nobodys].iter().all(|x| *x == 0.0), "slot 0 is no sequence's");
    assert_eq!(result.paths_ratio[..HEADS.value_heads], [0.0; 2]);
}

#[test]
fn a_state_of_zero_has_no_ratio() {
    let (result, _) = recurrence(0.0, false);
    assert!(result.s.iter().all(|x| *x == 0.0));
    assert!(result.paths_ratio.iter().all(|ratio| *ratio == 0.0), "{:?}", result.paths_ratio);
}

#[test]
fn counts_are_those_of_the_elements() {
    assert_eq!(Expected::Bits(vec![5; 7]).count(), 7);
    let value = vec![0.0; 3];
    let real = Expected::Real { value, magnitudes: Vec::new(), measures: Vec::new() };
    assert_eq!(real.count(), 3);
}

#[test]
fn rows_of_a_sum_begin_where_the_one_before_ends() {
    let x: Vec<f64> = (0..12).map(|at| f64::from(1 << at)).collect();
    let (sums, magnitudes) = row_sums(&x, 3, 4);
    assert_eq!(sums, [15.0, 240.0, 3840.0]);
    assert_eq!(magnitudes, sums);
}
