//! The model of speculative rounds: which events are legal when, what is published, and its rows against the
//! equations in f64 and against the declared order of operations, bit for bit.

use crate::draws::Draws;
use contracts::dtype::DType;
use reference::transaction::ordered::{Row, convolve, stored};
use reference::transaction::projections;
use reference::transaction::{Model, Refused, Shape, Stage};

const SHAPE: Shape = Shape {
    slots: 2,
    capacity: 16,
    gdn_layers: 2,
    attention_layers: 1,
    key_heads: 2,
    value_heads: 4,
    head_dim: 32,
    conv_width: 4,
    kv_width: 6,
    io: DType::F32,
    state: DType::F32,
};

/// A model whose first slot stands so.
fn standing(stage: Stage) -> Model {
    let mut model = Model::new(SHAPE);
    model.acquire(0, 7);
    model.ingest(0, &[8, 9], 10).expect("legal");
    if stage != Stage::Idle {
        model.begin(0, &[11, 12]).expect("legal");
    }
    match stage {
        Stage::Staged => model.verified(0, true),
        Stage::Failed => model.verified(0, false),
        Stage::Broken => model.break_down(0),
        Stage::Idle | Stage::Open => {}
    }
    model
}

/// `mixed` of 1, 2 and 3, and the first numbers of a row and of keys, by a program apart.
const MIXED: u64 = 0x05fb_5fee_82a8_937f;
const ROW: [f32; 4] = [0.0, -1.9375, -1.0, -0.3125];
const KV: f32 = -1.5625;
const KV_F16: u16 = 0xbe40;

const STAGES: [Stage; 5] = [Stage::Idle, Stage::Open, Stage::Staged, Stage::Failed, Stage::Broken];

/// An event on the first slot.
type Event = fn(&mut Model) -> Result<(), Refused>;

/// Events with where they are legal.
const EVENTS: [(&str, Event, &[Stage]); 6] = [
    ("ingest", |model| model.ingest(0, &[1], 2), &[Stage::Idle]),
    ("begin", |model| model.begin(0, &[1]), &[Stage::Idle]),
    ("verify", |model| model.may_verify(0, true), &[Stage::Open]),
    ("commit", |model| model.commit(0, true, 1, 2), &[Stage::Staged]),
    ("abort", |model| model.abort(0, true), &[Stage::Open, Stage::Staged, Stage::Failed]),
    ("release", |model| model.release(0), &[Stage::Idle]),
];

/// Everything of a model, to see that nothing changed.
fn all(model: &Model) -> String {
    format!("{model:?}")
}

#[test]
fn an_event_is_legal_where_it_is_and_nowhere_else_changes_anything() {
    for stage in STAGES {
        for (name, event, legal) in EVENTS {
            let mut model = standing(stage);
            assert_eq!(model.slots[0].stage, stage);
            let before = all(&model);
            let wanted = match stage {
                _ if legal.contains(&stage) => Ok(()),
                Stage::Broken => Err(Refused::Broken),
                _ => Err(Refused::State),
            };
            assert_eq!(event(&mut model), wanted, "{name} where {stage:?}");
            if wanted.is_err() {
                assert_eq!(all(&model), before, "{name} where {stage:?} changed something");
            }
        }
    }
}

#[test]
fn nobody_s_slot_takes_no_event_and_an_old_ticket_none_of_its_round() {
    for (name, event, _) in EVENTS {
        let mut model = Model::new(SHAPE);
        assert_eq!(event(&mut model), Err(Refused::Released), "{name}");
        let mut model = standing(Stage::Idle);
        model.release(0).expect("legal");
        assert!(!model.slots[0].held);
        assert_eq!(event(&mut model), Err(Refused::Released), "{name}");
    }
    for stage in [Stage::Open, Stage::Staged, Stage::Failed] {
        let mut model = standing(stage);
        assert_eq!(model.may_verify(0, false), Err(Refused::StaleId));
        assert_eq!(model.commit(0, false, 1, 2), Err(Refused::StaleId));
        assert_eq!(model.abort(0, false), Err(Refused::StaleId));
    }
    assert_eq!(standing(Stage::Broken).may_verify(0, false), Err(Refused::Broken), "before the id");
}

#[test]
fn rows_and_room_have_bounds() {
    let of = |rows: usize| vec![1; rows - 1];
    let wide = Shape { capacity: 100, ..SHAPE };
    let fresh = |shape| {
        let mut model = Model::new(shape);
        model.acquire(0, 1);
        model
    };
    for (rows, wanted) in
        [(1, Err(Refused::Rows)), (2, Ok(())), (10, Ok(())), (11, Err(Refused::Rows))]
    {
        assert_eq!(fresh(wide).begin(0, &of(rows)), wanted, "a round of {rows}");
    }
    for (rows, wanted) in [(1, Ok(())), (10, Ok(())), (11, Err(Refused::Rows))] {
        assert_eq!(fresh(wide).ingest(0, &of(rows), 2), wanted, "{rows} at once");
    }
    for (rows, wanted) in [(6, Ok(())), (7, Err(Refused::Capacity))] {
        let mut model = fresh(SHAPE);
        model.ingest(0, &of(10), 2).expect("legal");
        assert_eq!(model.ingest(0, &of(rows), 2), wanted, "{rows} where there is room for 6");
        let mut model = fresh(SHAPE);
        model.ingest(0, &of(10), 2).expect("legal");
        assert_eq!(
            model.begin(0, &of(rows)),
            wanted,
            "a round of {rows} where there is room for 6"
        );
    }
    for (rows, wanted) in [(0, Err(Refused::Rows)), (3, Ok(())), (4, Err(Refused::Rows))] {
        assert_eq!(standing(Stage::Staged).commit(0, true, rows, 5), wanted, "{rows} of 3");
    }
}

#[test]
fn a_round_publishes_what_it_commits_and_an_abort_nothing() {
    for rows in 1..=3 {
        let mut model = standing(Stage::Staged);
        let after: Vec<_> = (0..2).map(|layer| model.after_bits(0, layer)).collect();
        assert_eq!(model.slots[0].context, [7, 8, 9, 10, 11, 12], "what attention reads");
        model.commit(0, true, rows, 99).expect("legal");
        let slot = &model.slots[0];
        assert_eq!(slot.tokens, [7, 8, 9, 10, 11, 12][..3 + rows]);
        assert_eq!((slot.last_token, slot.round, slot.stage), (99, 1, Stage::Idle));
        for (layer, after) in after.iter().enumerate() {
            let published = (model.state_bits(0, layer), model.window_bits(0, layer));
            assert_eq!(published, after[rows - 1], "layer {layer} after {rows} rows");
            assert_ne!(published.0, after[rows % 3].0, "rows differ");
            assert!(model.after_bits(0, layer).is_empty(), "the round is over");
        }
        // The same rows, certain from the start, leave the same.
        let mut certain = Model::new(SHAPE);
        certain.acquire(0, 7);
        certain.ingest(0, &[8, 9, 10, 11, 12][..1 + rows + 1], 99).expect("legal");
        for layer in 0..2 {
            assert_eq!(model.state_bits(0, layer), certain.state_bits(0, layer));
            assert_eq!(model.window_bits(0, layer), certain.window_bits(0, layer));
        }
        assert_eq!(certain.slots[0].round, 0, "nothing was a round");
    }
    for stage in [Stage::Open, Stage::Staged, Stage::Failed] {
        let (mut model, before) = (standing(stage), standing(Stage::Idle));
        assert_eq!(model.is_touched(0), stage != Stage::Open);
        model.abort(0, true).expect("legal");
        assert!(!model.is_touched(0));
        assert_eq!(model.state_bits(0, 1), before.state_bits(0, 1));
        assert_eq!(model.window_bits(0, 1), before.window_bits(0, 1));
        assert_eq!(model.slots[0].tokens, before.slots[0].tokens);
        assert_eq!((model.slots[0].last_token, model.slots[0].round), (10, 0));
    }
}

#[test]
fn whoever_acquires_a_slot_finds_it_empty_and_the_other_untouched() {
    let mut model = standing(Stage::Staged);
    model.acquire(1, 3);
    model.ingest(1, &[4], 5).expect("legal");
    let neighbour = (model.state_bits(1, 0), model.window_bits(1, 1));
    model.acquire(0, 50);
    let slot = &model.slots[0];
    assert!(slot.held && slot.tokens.is_empty() && slot.context.is_empty());
    assert_eq!((slot.stage, slot.last_token, slot.round), (Stage::Idle, 50, 0));
    let empty = vec![0; 4 * 32 * 32];
    assert_eq!(model.state_bits(0, 1), empty);
    assert_eq!(model.window_bits(0, 0), vec![0; (2 * 2 + 4) * 32 * 3]);
    assert!(model.output_bits(0, 0).is_empty());
    assert_eq!((model.state_bits(1, 0), model.window_bits(1, 1)), neighbour);
}

/// One layer of one sequence in f64, by the equations; types round what they hold.
struct Truth {
    shape: Shape,
    layer: usize,
    rows: Vec<Vec<f64>>,
    state: Vec<f64>,
    o: Vec<Vec<f64>>,
}

fn round(dtype: DType, x: f64) -> f64 {
    dtype.to_f64(dtype.round_from_f64(x))
}

impl Truth {
    fn of(shape: Shape, layer: usize, tokens: &[u64]) -> Truth {
        let dim = shape.head_dim;
        let state = vec![0.0; shape.value_heads * dim * dim];
        let mut truth = Truth { shape, layer, rows: Vec::new(), state, o: Vec::new() };
        tokens.iter().for_each(|token| truth.advance(*token));
        truth
    }

    /// Row [q | k | v] of the newest token: the taps of each channel, heads of q and k of unit length.
    fn convolved(&self) -> Vec<f64> {
        let (dim, width) = (self.shape.head_dim, self.shape.conv_width);
        let weights = projections::weights(&self.shape, self.layer);
        let newest = self.rows.len() - 1;
        let tap = |channel: usize, tap: usize| {
            let back = width - 1 - tap;
            let x = if back > newest { 0.0 } else { self.rows[newest - back][channel] };
            f64::from(weights[channel * width + tap]) * x
        };
        let channels = self.rows[newest].len();
        let mut y: Vec<f64> =
            (0..channels).map(|channel| (0..width).map(|at| tap(channel, at)).sum()).collect();
        for head in y.chunks_mut(dim).take(2 * self.shape.key_heads) {
            let length = (head.iter().map(|y| y * y).sum::<f64>() + 1e-6).sqrt();
            head.iter_mut().for_each(|y| *y /= length);
        }
        y.iter().map(|y| round(self.shape.io, *y)).collect()
    }

    fn advance(&mut self, token: u64) {
        let Shape { key_heads, value_heads, head_dim: dim, io, state, .. } = self.shape;
        let row = projections::row(&self.shape, self.layer, token);
        self.rows.push(row.iter().map(|x| f64::from(*x)).collect());
        let y = self.convolved();
        let (decays, rates) = projections::gates(&self.shape, self.layer, token);
        let mut o = Vec::new();
        for head in 0..value_heads {
            let key_head = head * key_heads / value_heads;
            let of = |number: usize| &y[number * dim..(number + 1) * dim];
            let (q, k, v) = (of(key_head), of(key_heads + key_head), of(2 * key_heads + head));
            let (alpha, beta) = (f64::from(decays[head]), f64::from(rates[head]));
            for (value, v) in v.iter().enumerate() {
                let own = &mut self.state[(head * dim + value) * dim..][..dim];
                let recalled: f64 = own.iter().zip(k).map(|(s, k)| alpha * s * k).sum();
                let delta = beta * (v - recalled);
                for (s, k) in own.iter_mut().zip(k) {
                    *s = round(state, alpha * *s + delta * k);
                }
                let read: f64 = own.iter().zip(q).map(|(s, q)| s * q).sum();
                o.push(round(io, read / (dim as f64).sqrt()));
            }
        }
        self.o.push(o);
    }

    fn window(&self) -> Vec<f64> {
        let width = self.shape.conv_width;
        let row = |back: usize| self.rows.len().checked_sub(back).map(|at| &self.rows[at]);
        (0..self.rows[0].len())
            .flat_map(|channel| (1..width).rev().map(move |back| (channel, back)))
            .map(|(channel, back)| row(back).map_or(0.0, |row| row[channel]))
            .collect()
    }
}

fn near(what: &str, dtype: DType, observed: &[u64], expected: &[f64], unit: f64) {
    assert_eq!(observed.len(), expected.len(), "{what}");
    assert!(expected.iter().any(|x| x.abs() > 0.1), "{what}: nothing to see");
    for (at, (bits, x)) in observed.iter().zip(expected).enumerate() {
        let y = dtype.to_f64(*bits);
        assert!((y - x).abs() <= unit * (1.0 + x.abs()), "{what}[{at}]: {y}, {x} is right");
    }
}

#[test]
fn rows_are_those_of_the_equations() {
    let tokens = [7, 8, 9, 10, 11, 12, 13];
    for (io, state, unit) in [
        (DType::F32, DType::F32, 1e-5),
        (DType::BF16, DType::F32, 0.03),
        (DType::F16, DType::F16, 0.01),
    ] {
        for (key_heads, value_heads, head_dim, conv_width) in [(2, 4, 32, 4), (1, 3, 64, 3)] {
            let shape = Shape { key_heads, value_heads, head_dim, conv_width, io, state, ..SHAPE };
            let mut model = Model::new(shape);
            model.acquire(0, tokens[0]);
            model.ingest(0, &tokens[1..4], tokens[4]).expect("legal");
            model.begin(0, &tokens[5..]).expect("legal");
            model.verified(0, true);
            for layer in 0..2 {
                let published = Truth::of(shape, layer, &tokens[..4]);
                let what = format!("{shape:?} layer {layer}");
                near(&what, state, &model.state_bits(0, layer), &published.state, unit);
                near(&what, DType::F32, &model.window_bits(0, layer), &published.window(), 0.0);
                let all = Truth::of(shape, layer, &tokens);
                near(&what, io, model.output_bits(0, layer), &all.o[4..].concat(), unit);
                let after = model.after_bits(0, layer);
                assert_eq!(after.len(), 3);
                near(&what, state, &after[2].0, &all.state, unit);
                near(&what, DType::F32, &after[2].1, &all.window(), 0.0);
            }
        }
    }
}

/// Numbers of such different sizes that every other order of a sum gives other bits.
fn rough(draws: &mut Draws, count: usize) -> Vec<f32> {
    (0..count).map(|_| (draws.normal() * 2f64.powf(draws.uniform(-6.0, 6.0))) as f32).collect()
}

#[test]
fn a_row_of_the_state_is_read_by_eight_lanes_of_whole_vectors() {
    // Dk, the state's type, and elements of a vector.
    for (dim, dtype, vector) in [
        (32, DType::F32, 4),
        (64, DType::F32, 4),
        (128, DType::F32, 4),
        (32, DType::F16, 4),
        (64, DType::F16, 8),
        (128, DType::F16, 8),
    ] {
        for seed in 0..8 {
            let mut draws = Draws::new(seed);
            let (q, k) = (rough(&mut draws, dim), vec![0.0; dim]);
            let held: Vec<f32> = rough(&mut draws, dim).iter().map(|s| stored(dtype, *s)).collect();
            let row = Row { state: dtype, q: &q, k: &k, v: &[0.0], gates: (1.0, 0.5), scale: 0.25 };
            let mut state = held.clone();
            let lane = |lane: usize| {
                let mut sum = 0.0f32;
                for first in (lane * vector..dim).step_by(8 * vector) {
                    for at in first..first + vector {
                        sum = held[at].mul_add(q[at], sum);
                    }
                }
                sum
            };
            let l: [f32; 8] = std::array::from_fn(lane);
            let sum = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
            assert_eq!(row.advance(&mut state), [0.25 * sum], "{dim} {dtype:?}");
            assert_eq!(state, held, "a key of zeros writes nothing");
        }
    }
}

#[test]
fn squares_add_up_by_neighbours_and_warps_in_turn() {
    for seed in 0..8 {
        let x = rough(&mut Draws::new(seed), 96);
        let y = convolve(DType::F32, &[0.0, 1.0].repeat(96), &mut vec![0.0; 96], &x, 96, 1);
        let square = |at: usize| x[at] * x[at];
        let two = |at: usize| square(at) + square(at + 1);
        let four = |at: usize| two(at) + two(at + 2);
        let eight = |at: usize| four(at) + four(at + 4);
        let half = |at: usize| eight(at) + eight(at + 8);
        let warp = |at: usize| half(at) + half(at + 16);
        let inverse = 1.0 / ((warp(0) + warp(32)) + warp(64) + 1e-6f32).sqrt();
        let expected: Vec<f32> = x.iter().map(|x| x * inverse).collect();
        assert_eq!(y, expected);
    }
}

/// The numbers of a token are part of every stored history: worked out by hand, they stay what they are.
#[test]
fn numbers_of_a_token_stay_what_they_are() {
    assert_eq!(projections::mixed(&[]), 0x9e37_79b9_7f4a_7c15);
    assert_eq!(projections::mixed(&[1, 2, 3]), MIXED);
    let shape = Shape { slots: 1, ..SHAPE };
    let (decays, rates) = projections::gates(&shape, 1, 42);
    assert_eq!((decays.len(), rates.len()), (4, 4));
    let mut seen = [vec![], vec![]];
    for token in 0..200 {
        let (decays, rates) = projections::gates(&shape, 0, token);
        seen[0].extend(decays);
        seen[1].extend(rates);
    }
    for (seen, all) in seen
        .iter_mut()
        .zip([vec![0.75, 0.875, 1.0], vec![0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875]])
    {
        seen.sort_by(f32::total_cmp);
        seen.dedup();
        assert_eq!(*seen, all);
    }
    let weights = projections::weights(&shape, 0);
    assert_eq!(weights.len(), 8 * 32 * 4);
    assert!(weights.iter().all(|w| *w != 0.0 && w.abs() <= 2.0 && (w * 16.0).fract() == 0.0));
    assert_ne!(weights, projections::weights(&shape, 1));
    let row = projections::row(&shape, 0, 5);
    assert_eq!(row.len(), 8 * 32);
    assert!(row.iter().any(|x| *x < -1.9) && row.iter().any(|x| *x > 1.9) && row.contains(&0.0));
    assert_eq!(row[..4], ROW);
    let kv = projections::keys_and_values(&shape, 2, 9);
    assert_eq!((kv.len(), kv[0]), (6, KV));
    let bits = projections::bits(DType::F16, &kv);
    assert_eq!(bits[0], u64::from(KV_F16));
    let model = Model::new(shape);
    assert_eq!(model.kv_bits(2, &[9, 9])[..6], model.kv_bits(2, &[9, 9])[6..]);
    assert_eq!(model.kv_bits(2, &[9])[0], u64::from(KV.to_bits()));
}
