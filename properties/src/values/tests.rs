//! Each generator means what its name says, in every type, and depends on coordinates alone.

use super::*;
use contracts::format::{GateClass, LogDecay, Number, PlantPlace, TiePlace};

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn drawn(values: &Values, dtype: DType, shape: &[u64], domain: &Domain, seed: u64) -> Vec<u64> {
    let dims = Decisions::from([("D".to_owned(), 64i64)]);
    let field = Field { dtype, shape, domain, seed, dims: &dims };
    let content = described(values, &field).unwrap_or_else(|| materialised(values, &field, None));
    (0..field.count()).map(|flat| content.bits(dtype, flat)).collect()
}

fn valued(values: &Values, dtype: DType, shape: &[u64], seed: u64) -> Vec<f64> {
    drawn(values, dtype, shape, &Domain::Any, seed).iter().map(|bits| dtype.to_f64(*bits)).collect()
}

#[test]
fn unit_rows_have_unit_norm_in_every_type() {
    let domain = Domain::RowNorm(1.02);
    for dtype in FLOATS {
        for values in
            [Values::UnitRows, Values::CorrelatedRows(vec![0.5, 0.9]), Values::AxisRows(12)]
        {
            for row in drawn(&values, dtype, &[5, 2, 64], &domain, 3).chunks(64) {
                let norm = row_norm(dtype, row);
                assert!((norm - 1.0).abs() < 0.005, "{dtype} {values:?}: {norm}");
            }
        }
    }
}

#[test]
fn correlated_rows_share_a_direction_within_a_head_only() {
    let values = valued(&Values::CorrelatedRows(vec![0.9]), DType::F32, &[4, 2, 64], 5);
    let row = |index: usize| &values[index * 64..(index + 1) * 64];
    let cosine = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    assert!(cosine(row(0), row(2)) > 0.9 && cosine(row(1), row(7)) > 0.9);
    assert!(cosine(row(0), row(1)).abs() < 0.5);
}

#[test]
fn axis_rows_are_alike_opposite_or_orthogonal_and_use_every_place() {
    for (places, columns, used) in [(12, 64, 12), (12, 8, 8), (1, 5, 1)] {
        let mut seen = std::collections::BTreeSet::new();
        for row in valued(&Values::AxisRows(places), DType::BF16, &[200, columns], 5)
            .chunks(columns as usize)
        {
            let set: Vec<usize> = (0..row.len()).filter(|column| row[*column] != 0.0).collect();
            assert!(set.len() == 1 && row[set[0]].abs() == 1.0, "{row:?}");
            assert_eq!(set[0] % (columns / used) as usize, 0, "{places} of {columns}");
            seen.insert((set[0], row[set[0]] > 0.0));
        }
        assert_eq!(seen.len() as u64, 2 * used, "{places} of {columns}");
    }
    valued(&Values::AxisRows(3), DType::F32, &[3, 0], 5);
}

#[test]
fn ties_stand_above_the_rest() {
    for place in [TiePlace::Lane, TiePlace::Warp, TiePlace::Block, TiePlace::Last] {
        let values = Values::Ties { places: vec![place] };
        let (mut tied, mut last) = (0, 0);
        for row in valued(&values, DType::BF16, &[40, 700], 9).chunks(700) {
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert!(largest == 4.0 || largest == -4.0, "{largest}");
            tied += u32::from(row.iter().filter(|value| **value == largest).count() >= 2);
            last += u32::from(row[699] == largest);
        }
        assert!(tied >= 35, "{place:?}: {tied} of 40 rows have a tie");
        assert!(place != TiePlace::Last || last == 40);
    }
    valued(&Values::Ties { places: vec![TiePlace::Block] }, DType::F32, &[3, 1], 9);
}

#[test]
fn masked_rows_keep_as_many_survivors_as_drawn() {
    let values = Values::Masked { survivors: vec![0, 1, 3] };
    let mut counts = [0; 4];
    for row in valued(&values, DType::F16, &[90, 11], 2).chunks(11) {
        counts[row.iter().filter(|value| **value != f64::NEG_INFINITY).count()] += 1;
    }
    assert!(counts[2] == 0 && counts[0] > 10 && counts[1] > 10 && counts[3] > 10, "{counts:?}");
}

#[test]
fn planted_values_stand_where_they_should() {
    let at = vec![PlantPlace::First, PlantPlace::Last];
    let values = Values::Planted { value: Number(f64::NAN), at };
    for row in valued(&values, DType::F32, &[3, 9], 1).chunks(9) {
        assert!(
            row[0].is_nan() && row[8].is_nan() && row[1..8].iter().all(|value| value.is_finite())
        );
    }
}

#[test]
fn runs_are_few_and_of_the_values_named() {
    let values = Values::Runs(vec![Number(f64::NAN), Number(f64::NEG_INFINITY), Number(1.0)]);
    let (mut counts, mut nan_first) = ([0; 5], 0);
    for row in drawn(&values, DType::F16, &[400, 90], &Domain::Any, 4).chunks(90) {
        let known = [0x7e00, 0xfc00, 0x3c00];
        assert!(row.iter().all(|bits| known.contains(bits)), "{row:x?}");
        let runs = 1 + row.windows(2).filter(|pair| pair[0] != pair[1]).count();
        counts[runs] += 1;
        nan_first += u32::from(row[0] == 0x7e00 && row[89] == 0xfc00);
    }
    assert!(counts[1..].iter().all(|count| *count > 5), "{counts:?}");
    assert!(nan_first > 5, "{nan_first}");
    drawn(&values, DType::F32, &[3, 0], &Domain::Any, 4);
    drawn(&values, DType::F32, &[3, 1], &Domain::Any, 4);
}

#[test]
fn teeth_stand_a_drawn_distance_apart_above_the_rest() {
    let values = |gaps| Values::Comb {
        every: vec![8, 32],
        width: 4,
        values: vec![Number(1.0), Number(-0.0)],
        gaps,
    };
    let (mut alike, mut starts) = (0, std::collections::BTreeSet::new());
    for row in drawn(&values(0), DType::F16, &[80, 100], &Domain::Any, 6).chunks(100) {
        let is_tooth = |column: usize| [0x3c00, 0x8000].contains(&row[column]);
        let teeth: Vec<usize> = (0..100).filter(|column| is_tooth(*column)).collect();
        let start = teeth[0];
        let every = if teeth.len() > 24 { 8 } else { 32 };
        let expected = (start..100).filter(|column| (column - start) % every < 4);
        assert!(teeth.iter().copied().eq(expected), "{teeth:?}");
        assert!((0..100).all(|at| is_tooth(at) || DType::F16.to_f64(row[at]) <= -1.0));
        starts.insert((every, start));
        alike += u32::from(teeth.iter().all(|column| row[*column] == row[start]));
    }
    assert_eq!(starts.len(), 2 + 8, "every multiple of the width below the distance: {starts:?}");
    assert!((25..=55).contains(&alike), "{alike} of 80 rows have one value");

    let comb = Values::Comb { every: vec![1], width: 1, values: vec![Number(2.0)], gaps: 3 };
    let mut counts = [0; 4];
    for row in valued(&comb, DType::F32, &[80, 50], 7).chunks(50) {
        counts[row.iter().filter(|value| **value != 2.0).count()] += 1;
    }
    assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
    drawn(&values(3), DType::F32, &[3, 0], &Domain::Any, 4);
    drawn(&values(3), DType::F32, &[3, 1], &Domain::Any, 4);
}

#[test]
fn log_decays_are_of_their_class_channel_by_channel() {
    let of = |class| valued(&Values::LogDecays(class), DType::F32, &[40, 32], 5);
    let share = |values: &[f64], of: &dyn Fn(f64) -> bool| {
        values.iter().filter(|value| of(**value)).count() as f64 / values.len() as f64
    };
    let lb = of(LogDecay::Lb);
    assert!(lb.iter().all(|g| *g > -5.0 && *g < 0.0));
    assert!((share(&lb, &|g| g < -2.5) - 0.5).abs() < 0.1, "the sigmoid's middle");
    assert!(of(LogDecay::Lbmax).iter().all(|g| *g == -5.0));
    let mix = of(LogDecay::Mix);
    assert!((share(&mix, &|g| g == -5.0) - 0.3).abs() < 0.1);
    assert!(mix.iter().all(|g| *g == -5.0 || *g == f64::from(-1.0e-3f32)));
    assert!(mix.chunks(32).all(|row| row.contains(&-5.0) && row.iter().any(|g| *g > -1.0)));
    assert!(of(LogDecay::Slow).iter().all(|g| *g > -0.0068 && *g < -0.000_123));
}

#[test]
fn ramps_increase_and_are_distinct() {
    for (dtype, count) in
        [(DType::F32, 4000), (DType::BF16, 200), (DType::BF16, 4000), (DType::F16, 4000)]
    {
        let values = valued(&Values::Ramp, dtype, &[count], 0);
        assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{dtype} {count}");
    }
}

#[test]
fn distinct_mantissas_are_distinct_and_no_power_of_two() {
    for (dtype, count) in [(DType::F32, 3000usize), (DType::BF16, 127), (DType::F16, 1023)] {
        let bits = drawn(&Values::DistinctMantissas, dtype, &[count as u64], &Domain::Positive, 77);
        let mask = (1u64 << mantissa_bits(dtype)) - 1;
        let mut mantissas: Vec<u64> = bits.iter().map(|bits| bits & mask).collect();
        mantissas.sort_unstable();
        mantissas.dedup();
        assert_eq!(mantissas.len(), count, "{dtype}");
        assert!(!mantissas.contains(&0));
        assert!(bits.iter().all(|bits| (0.5..4.0).contains(&dtype.to_f64(*bits))));
    }
}

#[test]
fn one_element_of_a_spike_is_large() {
    for seed in 0..20 {
        let values = valued(&Values::Spike, DType::F32, &[8, 100], seed);
        assert!(values.iter().filter(|value| value.abs() > 10.0).count() <= 1);
    }
    let large = (0..200).filter(|seed| {
        valued(&Values::Spike, DType::F32, &[8, 10], *seed).iter().any(|value| value.abs() > 10.0)
    });
    assert!(large.count() > 190);
}

#[test]
fn every_spiked_row_has_one_large_element_and_any_column_may_hold_it() {
    let (mut columns, mut negative) = (std::collections::BTreeSet::new(), 0);
    for row in valued(&Values::SpikedRows, DType::F32, &[400, 16], 4).chunks(16) {
        let large: Vec<usize> = (0..16).filter(|column| row[*column].abs() > 10.0).collect();
        assert!(large.len() <= 1, "{row:?}");
        negative += large.iter().filter(|column| row[**column] < 0.0).count();
        columns.extend(large);
    }
    assert_eq!(columns.len(), 16);
    assert!((100..300).contains(&negative), "{negative} of 400 are negative");
}

#[test]
fn codes_cycle_and_literals_repeat() {
    let codes = drawn(&Values::AllCodes, DType::E4M3, &[4, 64], &Domain::Any, 5);
    assert_eq!(codes.iter().collect::<std::collections::BTreeSet<_>>().len(), 256);
    let literal = drawn(&Values::Literal(vec![1, 2, 3]), DType::E4M3, &[2, 4], &Domain::Any, 5);
    assert_eq!(literal, [1, 2, 3, 1, 2, 3, 1, 2]);
    assert_eq!(valued(&Values::ModelScale("D".to_owned()), DType::F32, &[1], 5), [0.125]);
}

#[test]
fn a_crowd_stands_together_above_the_rest() {
    let crowd = Values::Crowd { band: [1.0, 1.25], count: 40 };
    for dtype in [DType::F32, DType::BF16] {
        for row in valued(&crowd, dtype, &[6, 100], 3).chunks(100) {
            let inside: Vec<usize> =
                (0..100).filter(|column| (1.0..=1.25).contains(&row[*column])).collect();
            assert_eq!(inside.len(), 40);
            assert!(row.iter().all(|value| *value >= 1.0 || *value <= 0.0));
            let starts = |column: &&usize| !inside.contains(&((**column + 99) % 100));
            assert_eq!(inside.iter().filter(starts).count(), 1, "side by side, around the end");
        }
    }
    let whole = Values::Crowd { band: [1.0, 1.0], count: 1000 };
    assert!(valued(&whole, DType::F16, &[2, 9], 3).iter().all(|value| *value == 1.0));
}

#[test]
fn every_generator_respects_every_domain() {
    let generators = [
        Values::Zero,
        Values::Constant(3.0),
        Values::Normal(2.0),
        Values::Uniform([-3.0, 3.0]),
        Values::LogUniform([-40.0, 40.0]),
        Values::UnitRows,
        Values::CorrelatedRows(vec![0.5]),
        Values::AxisRows(5),
        Values::Ramp,
        Values::Spike,
        Values::SpikedRows,
        Values::DistinctMantissas,
        Values::Lattice,
        Values::OneHotRows,
        Values::Alternating,
        Values::Midpoints(DType::BF16),
        Values::NanPayloads,
        Values::Hashed,
        Values::Specials,
        Values::Ties { places: vec![TiePlace::Warp, TiePlace::Last] },
        Values::Masked { survivors: vec![1] },
        Values::Crowd { band: [1.0, 1.25], count: 5 },
        Values::Planted { value: Number(f64::INFINITY), at: vec![PlantPlace::Last] },
        Values::Literal(vec![0x7f80]),
    ];
    let domains = [
        Domain::Finite,
        Domain::Positive,
        Domain::Nonzero,
        Domain::Range([-1.0e4, 0.0]),
        Domain::Range([0.0, 1.0]),
        Domain::RowNorm(1.02),
    ];
    for (values, domain) in generators.iter().flat_map(|g| domains.iter().map(move |d| (g, d))) {
        for dtype in FLOATS {
            for row in drawn(values, dtype, &[9, 17], domain, 4).chunks(17) {
                let legal = row.iter().all(|bits| admits(domain, dtype, *bits));
                assert!(legal, "{values:?} in {domain:?} as {dtype}");
                if let Domain::RowNorm(most) = domain {
                    assert!(row_norm(dtype, row) <= *most, "{values:?} as {dtype}");
                }
            }
        }
    }
}

#[test]
fn some_rows_hold_what_the_whole_tensor_holds_there() {
    let dims = Decisions::new();
    let shape = [6, 2, 8];
    let field =
        Field { dtype: DType::F32, shape: &shape, domain: &Domain::Finite, seed: 8, dims: &dims };
    let values = Values::Normal(1.0);
    let whole = materialised(&values, &field, None);
    let some = materialised(&values, &field, Some(&[1, 4]));
    let sparse = content_of_rows(&values, &field, &[1, 4]);
    for flat in 0..field.count() {
        let expected = if [1, 4].contains(&(flat / 16)) { whole.bits(DType::F32, flat) } else { 0 };
        assert_eq!(some.bits(DType::F32, flat), expected, "{flat}");
        assert_eq!(sparse.bits(DType::F32, flat), expected, "{flat}");
    }
}

#[test]
fn nothing_is_drawn_for_a_tensor_without_elements() {
    for shape in [&[0, 4][..], &[4, 0], &[0]] {
        assert!(drawn(&Values::Spike, DType::F32, shape, &Domain::Finite, 1).is_empty());
    }
    assert_eq!(drawn(&Values::Normal(1.0), DType::F32, &[], &Domain::Finite, 1).len(), 1);
}

#[test]
fn gates_follow_their_class_per_sequence_and_head() {
    let (log, beta) = (Domain::Range([-1.0e4, 0.0]), Domain::Range([0.0, 1.0]));
    let lengths = [40, 0, 30];
    let field = GateField {
        tensors: GateTensors::Log([(DType::F32, &log), (DType::F32, &beta)]),
        rows: 72,
        heads: 3,
        segments: Some(&lengths),
    };
    let read = |content: &Content| -> Vec<f64> {
        (0..216).map(|flat| DType::F32.to_f64(content.bits(DType::F32, flat))).collect()
    };
    let gates = |only, adversarial| Gates { classes: &[], only, adversarial, seed: 6 };
    for (class, low, high) in [
        (GateClass::One, 0.0, 0.0),
        (GateClass::Slow, -0.0068, -0.0001),
        (GateClass::Model, -16.0, -1.0e-4),
        (GateClass::Fast, -7.4, -0.36),
        (GateClass::Discriminating, -2.0, -0.1),
    ] {
        let contents = gates(Some(class), false).contents(&field);
        let (g, b) = (read(&contents[0]), read(&contents[1]));
        assert!(g[..210].iter().all(|g| (low..=high).contains(g)), "{class:?}");
        assert!(g[210..].iter().chain(&b[210..]).all(|value| *value == 0.0), "spare rows");
        if class == GateClass::Discriminating {
            assert!(b[..210].iter().all(|b| (0.2..=0.8).contains(b)));
        }
    }
    let mixed = Gates {
        classes: &[GateClass::One, GateClass::Fast],
        only: None,
        adversarial: false,
        seed: 11,
    };
    let g = read(&mixed.contents(&field)[0]);
    for (first, last) in [(0, 40), (40, 70)] {
        for head in 0..3 {
            let zeros = (first..last).filter(|row| g[row * 3 + head] == 0.0).count();
            assert!(zeros == 0 || zeros == last - first, "one class per sequence and head");
        }
    }
    let extreme = (0..50u64).any(|seed| {
        let gates = Gates { seed: seed + 1, ..gates(Some(GateClass::Slow), true) };
        let contents = gates.contents(&field);
        read(&contents[0]).contains(&-1.0e4) && read(&contents[1]).contains(&1.0)
    });
    assert!(extreme);
}

#[test]
fn raw_gates_give_the_decays_of_their_class() {
    let (any, log) = (Domain::Any, Domain::AtMost(2.7726));
    let (range, unit) = (Domain::Range([-200.0, 200.0]), Domain::Range([0.0, 1.0]));
    let members = [(DType::F32, &range), (DType::F32, &any), (DType::F32, &range)];
    let raw = GateTensors::Raw([members[0], members[1], members[2], (DType::F32, &log)]);
    let negative = Domain::AtMost(0.0);
    let plain = GateTensors::Log([(DType::F32, &negative), (DType::F32, &unit)]);
    let alpha = GateTensors::Alpha([(DType::F32, &unit), (DType::F32, &unit)]);
    let field = |tensors| GateField { tensors, rows: 50, heads: 4, segments: None };
    let read = |content: &Content, flat: u64| DType::F32.to_f64(content.bits(DType::F32, flat));
    for class in [GateClass::One, GateClass::Slow, GateClass::Fast, GateClass::Discriminating] {
        let gates = Gates { classes: &[], only: Some(class), adversarial: false, seed: 8 };
        let [raw, plain, alpha] =
            [raw, plain, alpha].map(|tensors| gates.contents(&field(tensors)));
        for flat in 0..200 {
            let (a, b) = (read(&raw[0], flat), read(&raw[1], flat));
            let (bias, a_log) = (read(&raw[2], flat % 4), read(&raw[3], flat % 4));
            let g = -libm::exp(a_log) * libm::log1p(libm::exp(a + bias));
            let (wanted, beta) = (read(&plain[0], flat), read(&plain[1], flat));
            assert!((g - wanted).abs() <= 1e-4 * wanted.abs() + 1e-30, "{class:?}: {g} {wanted}");
            assert!((1.0 / (1.0 + libm::exp(-b)) - beta).abs() < 1e-6, "{class:?}");
            assert!((read(&alpha[0], flat) - libm::exp(wanted)).abs() < 1e-6, "{class:?}");
        }
    }
    let edges = (1..50u64).any(|seed| {
        let gates = Gates { classes: &[GateClass::Slow], only: None, adversarial: true, seed };
        let raw = gates.contents(&field(raw));
        let infinite = (0..200).any(|flat| read(&raw[1], flat) == f64::INFINITY);
        infinite && (0..4).any(|head| read(&raw[3], head) == f64::NEG_INFINITY)
    });
    assert!(edges);
}

#[test]
fn a_value_costs_nanoseconds() {
    let dims = Decisions::new();
    let domain = Domain::Range([-4096.0, 4096.0]);
    for dtype in FLOATS {
        let field = Field { dtype, shape: &[4000, 128], domain: &domain, seed: 3, dims: &dims };
        let start = std::time::Instant::now();
        let content = materialised(&Values::Normal(0.3), &field, None);
        let each = start.elapsed().as_secs_f64() * 1e9 / field.count() as f64;
        println!("{dtype}: {each:.1} ns a value");
        assert!(
            matches!(content, Content::Dense(bytes) if bytes.len() as u64 == field.count() * dtype.size_bytes())
        );
        // Far above what it takes, far below what a transcendental function an element would.
        assert!(each < 300.0, "{dtype}: {each} ns a value");
    }
}

#[test]
fn sums_and_products_of_a_lattice_are_exact() {
    for dtype in FLOATS {
        let values = valued(&Values::Lattice, dtype, &[8, 64], 3);
        assert!(values.iter().all(|value| (value * 8.0).fract() == 0.0 && value.abs() <= 2.0));
        assert!(values.iter().any(|value| *value < 0.0) && values.iter().any(|value| *value > 1.0));
    }
}

#[test]
fn one_hot_rows_are_the_identity_again_and_again() {
    for row in valued(&Values::OneHotRows, DType::F16, &[9, 4], 3).chunks(4).enumerate() {
        let wanted: Vec<f64> = (0..4).map(|column| f64::from(column == row.0 % 4)).collect();
        assert_eq!(row.1, wanted);
    }
}

#[test]
fn alternating_rows_cancel() {
    let values = valued(&Values::Alternating, DType::F32, &[3, 10], 3);
    assert!(values.chunks(2).all(|pair| pair[0] == -pair[1] && pair[0] >= 0.5));
}

#[test]
fn midpoints_lie_between_two_neighbours_of_the_narrower_type() {
    for of in [DType::BF16, DType::F16, DType::E4M3] {
        let values = valued(&Values::Midpoints(of), DType::F32, &[4, 64], 3);
        let between = |value: &f64| {
            let near = of.to_f64(of.round_from_f64(*value));
            let other = of.to_f64(of.round_from_f64(2.0 * value - near));
            near != *value && (near + other) * 0.5 == *value
        };
        let midpoints = values.iter().filter(|value| between(value)).count();
        assert!(midpoints > 250, "{of}: {midpoints} of 256");
    }
}

#[test]
fn nan_payloads_are_many_and_of_both_signs_and_kinds() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let bits = drawn(&Values::NanPayloads, dtype, &[4, 64], &Domain::Any, 3);
        let nan: std::collections::BTreeSet<u64> =
            bits.iter().copied().filter(|bits| dtype.is_nan(*bits)).collect();
        let quiet = dtype.poison(contracts::dtype::Poison::Quiet);
        let quieting = 1u64 << (mantissa_bits(dtype) - 1);
        let sign = (dtype.mask() >> 1) + 1;
        assert!(nan.len() > 40, "{dtype}: {} payloads", nan.len());
        assert!(quiet & quieting != 0, "the poison is quiet");
        for half in [sign, quieting] {
            let set = nan.iter().filter(|bits| *bits & half != 0).count();
            assert!(set > 10 && set < nan.len() - 10, "{dtype}: {set} of {}", nan.len());
        }
        assert!(bits.iter().any(|bits| !dtype.is_nan(*bits)));
    }
}
