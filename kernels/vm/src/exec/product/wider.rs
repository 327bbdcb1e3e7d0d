//! The sums of a product with 512-bit vectors, two k at once; the rest is that of the wide build.

use super::wide::{Tile, floats, put_sum, unchanged};
use super::{Left, Right};
use std::arch::x86_64::*;

/// The sums of every row, in quanta.
#[target_feature(enable = "avx512f,avx2,fma,f16c,bmi1,bmi2,popcnt,lzcnt")]
pub(crate) fn sums(left: &Left, right: &Right, tile: &mut Tile) {
    let pairs: [__m512; 8] = std::array::from_fn(|i| {
        both(floats(&right.values[2 * i]), floats(&right.values[2 * i + 1]))
    });
    // Factors 2i and 2i + 1 of a row, eight times each.
    let picks: [__m512i; 8] = std::array::from_fn(|i| {
        let first = _mm256_set1_epi32(2 * i as i32);
        let second = _mm256_set1_epi32(2 * i as i32 + 1);
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second)
    });
    for row in 0..16 {
        if left.zero >> row & 1 != 0 {
            unchanged(tile, row);
            continue;
        }
        let x = both(floats(&left.values[0][row]), floats(&left.values[1][row]));
        let scale = both(tile.scales[row], tile.scales[row]);
        let mut sums = [_mm512_setzero_si512(); 2];
        for i in 0..8 {
            let product = _mm512_mul_ps(_mm512_permutexvar_ps(picks[i], x), pairs[i]);
            let whole = _mm512_cvttps_epi32(_mm512_mul_ps(product, scale));
            sums[i % 2] = _mm512_add_epi32(sums[i % 2], whole);
        }
        let sum = _mm512_add_epi32(sums[0], sums[1]);
        let (even, odd) = (_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum));
        put_sum(tile, row, _mm256_add_epi32(even, odd));
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx2,fma,f16c,bmi1,bmi2,popcnt,lzcnt")]
fn both(low: __m256, high: __m256) -> __m512 {
    let low = _mm512_castpd256_pd512(_mm256_castps_pd(low));
    _mm512_castpd_ps(_mm512_insertf64x4::<1>(low, _mm256_castps_pd(high)))
}
