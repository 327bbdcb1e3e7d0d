//! The gates of the gated delta rule as tensors: every layout, given and projected, against the law worked
//! out here, with its magnitudes.

use crate::draws::Draws;
use crate::gdn_inputs::{f32_tensor, magnitude, value};
use reference::{Inputs, Outputs, reference};

const ROWS: usize = 3;
const KEY_HEADS: usize = 2;
const VALUE_HEADS: usize = 6;
const HIDDEN: usize = 5;
const UNIT: f64 = 1.0 / 16_777_216.0;

struct Problem {
    /// a and b, `[rows,Hv]`, or their weights, `[Hv,hidden]`.
    a: Vec<f64>,
    b: Vec<f64>,
    x: Vec<f64>,
    dt_bias: Vec<f64>,
    a_log: Vec<f64>,
}

fn f32s(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

impl Problem {
    fn draw(projected: bool) -> Problem {
        let mut draws = Draws::new(23);
        let each = if projected { HIDDEN } else { ROWS };
        Problem {
            a: draws.normals(VALUE_HEADS * each),
            b: draws.normals(VALUE_HEADS * each),
            x: draws.normals(ROWS * HIDDEN),
            dt_bias: draws.uniforms(VALUE_HEADS, -1.0, 1.0),
            a_log: draws.uniforms(VALUE_HEADS, -2.0, 1.0),
        }
    }

    /// What of a or b (or of a weight) comes for a head: one number a row, or one row of weights.
    fn of_head(&self, which: char, projected: bool, head: usize) -> Vec<f64> {
        let all = if which == 'a' { &self.a } else { &self.b };
        if projected {
            all[head * HIDDEN..(head + 1) * HIDDEN].to_vec()
        } else {
            (0..ROWS).map(|row| all[row * VALUE_HEADS + head]).collect()
        }
    }

    /// The tensors of one layout, laid out column by column: columns are heads of a and b in its order.
    fn tensors(&self, layout: &str, projected: bool) -> Vec<(&'static str, Vec<f64>, usize)> {
        let heads = |which: char, range: std::ops::Range<usize>| range.map(move |h| (which, h));
        let group = VALUE_HEADS / KEY_HEADS;
        let all = 0..VALUE_HEADS;
        let joined: Vec<(char, usize)> = match layout {
            "separate" => {
                let names = if projected { ["w_a", "w_b"] } else { ["a", "b"] };
                return ['a', 'b']
                    .iter()
                    .zip(names)
                    .map(|(which, name)| {
                        let columns: Vec<_> = heads(*which, all.clone()).collect();
                        (name, self.laid_out(&columns, projected), columns.len())
                    })
                    .collect();
            }
            "concat_ab" => heads('a', all.clone()).chain(heads('b', all)).collect(),
            "concat_ba" => heads('b', all.clone()).chain(heads('a', all)).collect(),
            "grouped_ba" => (0..KEY_HEADS)
                .flat_map(|key| {
                    let own = key * group..(key + 1) * group;
                    heads('b', own.clone()).chain(heads('a', own)).collect::<Vec<_>>()
                })
                .collect(),
            other => panic!("no layout {other}"),
        };
        let name = match (layout == "grouped_ba", projected) {
            (false, false) => "ab",
            (false, true) => "w_ab",
            (true, false) => "ab_grouped",
            (true, true) => "w_ab_grouped",
        };
        vec![(name, self.laid_out(&joined, projected), joined.len())]
    }

    fn laid_out(&self, columns: &[(char, usize)], projected: bool) -> Vec<f64> {
        let parts: Vec<Vec<f64>> =
            columns.iter().map(|(which, head)| self.of_head(*which, projected, *head)).collect();
        if projected {
            return parts.concat();
        }
        (0..ROWS).flat_map(|row| parts.iter().map(move |part| part[row])).collect()
    }

    fn run(&self, layout: &str, projected: bool, gives: &str) -> Outputs {
        let mut tensors = vec![
            ("dt_bias".to_owned(), f32_tensor(&[VALUE_HEADS], &f32s(&self.dt_bias))),
            ("a_log".to_owned(), f32_tensor(&[VALUE_HEADS], &f32s(&self.a_log))),
        ];
        for (name, values, columns) in self.tensors(layout, projected) {
            let shape = if projected { [columns, HIDDEN] } else { [ROWS, columns] };
            tensors.push((name.to_owned(), f32_tensor(&shape, &f32s(&values))));
        }
        if projected {
            tensors.push(("x".to_owned(), f32_tensor(&[ROWS, HIDDEN], &f32s(&self.x))));
        }
        let input = if projected { "projected" } else { "given" };
        let words = [("input", input), ("ba_layout", layout), ("gives", gives)];
        let inputs = Inputs {
            tensors,
            options: words.map(|(name, word)| (name.to_owned(), word.to_owned())).to_vec(),
            dims: vec![("Hv".to_owned(), VALUE_HEADS as i64), ("Hk".to_owned(), KEY_HEADS as i64)],
            ..Inputs::default()
        };
        reference("gdn_gates").expect("it is registered")(&inputs)
    }

    /// a or b of a row and head, and by how many units its projection may miss.
    fn raw(&self, which: char, projected: bool, row: usize, head: usize) -> (f64, f64) {
        let own = self.of_head(which, projected, head);
        if !projected {
            return (own[row], 0.0);
        }
        let x = &self.x[row * HIDDEN..(row + 1) * HIDDEN];
        let (mut sum, mut size) = (0.0, 0.0);
        for (x, w) in x.iter().zip(&own) {
            sum += x * w;
            size += (x * w).abs();
        }
        (sum, 2.0 * (HIDDEN as f64).sqrt() * size)
    }
}

fn near(what: &str, observed: f64, expected: f64) {
    assert!(
        (observed - expected).abs() <= 1e-11 * expected.abs(),
        "{what}: {observed}, {expected}"
    );
}

#[test]
fn gates_are_their_law_in_every_layout() {
    for layout in ["separate", "concat_ab", "concat_ba", "grouped_ba"] {
        for projected in [false, true] {
            for gives in ["g", "alpha"] {
                agrees(layout, projected, gives);
            }
        }
    }
}

fn agrees(layout: &str, projected: bool, gives: &str) {
    let problem = Problem::draw(projected);
    let outputs = problem.run(layout, projected, gives);
    let of = |tensor: &str, part: &str| magnitude(&outputs, tensor, part).to_vec();
    assert_eq!(value(&outputs, gives).len(), ROWS * VALUE_HEADS);
    for row in 0..ROWS {
        for head in 0..VALUE_HEADS {
            let at = row * VALUE_HEADS + head;
            let what = format!("{layout} {projected} {gives} row {row} head {head}");
            let (a, a_error) = problem.raw('a', projected, row, head);
            let rate = problem.a_log[head].exp();
            let softplus = (1.0 + (a + problem.dt_bias[head]).exp()).ln();
            let (gates, projection) = (rate * (2.0 + 8.0 * softplus), rate * a_error);
            let g = -rate * softplus;
            let decay = value(&outputs, gives)[at];
            if gives == "g" {
                near(&what, decay, g);
                near(&what, of("g", "gates")[at], gates);
                near(&what, of("g", "projection")[at], projection);
            } else {
                let alpha = g.exp();
                let carried = |units: f64| alpha * (units * UNIT).exp_m1() / UNIT;
                near(&what, decay, alpha);
                near(&what, of("alpha", "gates")[at], carried(gates) + 4.0 * alpha);
                near(&what, of("alpha", "projection")[at], carried(projection));
            }
            let (b, b_error) = problem.raw('b', projected, row, head);
            let beta = (1.0 + (b / 2.0).tanh()) / 2.0;
            near(&what, value(&outputs, "beta")[at], beta);
            near(&what, of("beta", "gates")[at], 8.0 * beta);
            near(&what, of("beta", "projection")[at], b_error / 4.0);
        }
    }
}

#[test]
fn raw_gates_miss_by_what_softplus_and_the_exponential_do() {
    use reference::linear_attention::gates::Gates;
    let problem = Problem::draw(false);
    let gates = Gates::raw(&problem.a, &problem.b, &problem.dt_bias, &problem.a_log);
    for at in 0..ROWS * VALUE_HEADS {
        let head = at % VALUE_HEADS;
        let rate = problem.a_log[head].exp();
        let softplus = (1.0 + (problem.a[at] + problem.dt_bias[head]).exp()).ln();
        near("decay", gates.log_decay[at], -rate * softplus);
        near("its error", gates.alpha_error[at], rate * (2.0 + 8.0 * softplus) + 4.0);
        near("strength", gates.beta[at], 1.0 / (1.0 + (-problem.b[at]).exp()));
        assert_eq!(gates.beta_error[at], 8.0);
    }
}

#[test]
fn a_softplus_neither_overflows_nor_vanishes() {
    use reference::linear_attention::gates::softplus;
    assert_eq!(softplus(800.0), 800.0);
    assert_eq!(softplus(-800.0), 0.0);
    assert_eq!(softplus(0.0), 2f64.ln());
    near("far below", softplus(-40.0), (-40f64).exp());
    assert!(softplus(f64::NAN).is_nan());
}
