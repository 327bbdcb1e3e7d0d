//! Rows of a token, made from its number alone: what a model's projections would give. Small multiples
//! of powers of two, so that every storage type holds them exactly.

use super::speculative_round::Shape;
use contracts::dtype::DType;

/// Mixes numbers into one that has nothing to do with its neighbours'.
pub fn mixed(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0x9e37_79b9_7f4a_7c15, |state, number| {
        let mut x = (state ^ number).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 29;
        x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 32)
    })
}

/// Multiples of 1/16 between −2 and 2.
fn sixteenths(seed: &[u64], count: usize) -> Vec<f32> {
    let seed = mixed(seed);
    (0..count as u64).map(|at| ((mixed(&[seed, at]) % 65) as f32 - 32.0) / 16.0).collect()
}

/// Weights of a layer's convolution, `[channels, width]`, none of them zero.
pub fn weights(shape: &Shape, layer: usize) -> Vec<f32> {
    let weights = sixteenths(&[1, layer as u64], shape.channels() * shape.conv_width);
    weights.iter().map(|weight| if *weight == 0.0 { 0.5 } else { *weight }).collect()
}

/// The convolution's input.
pub fn row(shape: &Shape, layer: usize, token: u64) -> Vec<f32> {
    sixteenths(&[2, layer as u64, token], shape.channels())
}

/// Decays and strengths of the write of every value head: 0.75 to 1, and 1/8 to 7/8.
pub fn gates(shape: &Shape, layer: usize, token: u64) -> (Vec<f32>, Vec<f32>) {
    let eighths = |kind: u64, count: u64| -> Vec<f32> {
        let heads = 0..shape.value_heads as u64;
        heads.map(|head| (mixed(&[kind, layer as u64, token, head]) % count) as f32 / 8.0).collect()
    };
    let decays = eighths(3, 3).iter().map(|eighth| 0.75 + eighth).collect();
    (decays, eighths(4, 7).iter().map(|eighth| 0.125 + eighth).collect())
}

/// A row of keys and values.
pub fn keys_and_values(shape: &Shape, layer: usize, token: u64) -> Vec<f32> {
    sixteenths(&[5, layer as u64, token], shape.kv_width)
}

/// The bits of exact numbers in a storage type.
pub fn bits(dtype: DType, numbers: &[f32]) -> Vec<u64> {
    numbers.iter().map(|x| dtype.round_from_f64(f64::from(*x))).collect()
}
