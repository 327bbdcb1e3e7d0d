//! The exact products of [`super::wide`] with 512-bit vectors: two rows of the tile at once, the upper
//! one in the lower half. Results are the same, element by element.

use super::wide::{all as all8, put_left, put_right, put_words};
use super::{
    Accumulator, HIGHEST, LOWEST, Left, Leftover, MatrixModel, NONE, Operands, Product, Right,
    Start, TINY, ZERO, is_brain, one_by_one,
};
use crate::exec::warp::Warp;
use std::arch::x86_64::*;

/// Functions of the build with 512-bit vectors.
macro_rules! pairs {
    ($($(#[$what:meta])* $see:vis fn $name:ident($($arg:tt)*) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$what])*
        #[inline]
        #[target_feature(
            enable = "avx2,fma,f16c,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl"
        )]
        $see fn $name($($arg)*) $(-> $result)? $body
    )*};
}

/// What the sums of two rows are counted in.
#[derive(Clone, Copy)]
struct Quanta {
    /// Factor of the accumulators, as bits.
    unit: __m512i,
    /// Factor of the scaled products.
    scale: __m512,
    /// Elements that have to be computed one by one.
    slow: u16,
}

pairs! {
    /// d = a·b + c over the whole warp.
    pub(crate) fn product(warp: &mut Warp, operands: &mut Operands, what: &Product) {
        let work = operands.hold(warp, what, MatrixModel::H200);
        let brain = is_brain(what.shape);
        if work.new_left {
            put_left(work.left, brain);
        }
        if work.new_right {
            put_right(work.right, brain);
        }
        let start = what.c.map(|slot| &warp.words[usize::from(slot)].0);
        let mut out: Accumulator = [[0; 32]; 4];
        let slow = tile(work.left, work.right, &start, &mut out);
        one_by_one(&work, &start, &slow, &mut out);
        for (slot, values) in what.d.iter().zip(&out) {
            warp.words[usize::from(*slot)].0 = *values;
        }
    }

    fn all(x: i32) -> __m512i {
        _mm512_set1_epi32(x)
    }

    /// Eight numbers for both rows.
    fn twice(x: &[f32; 8]) -> __m512 {
        let eight = _mm256_setr_ps(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]);
        _mm512_broadcast_f32x8(eight)
    }

    /// Eight numbers of each row.
    fn both(x: &[f32; 8], y: &[f32; 8]) -> __m512 {
        _mm512_setr_ps(
            x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], y[0], y[1], y[2], y[3], y[4], y[5],
            y[6], y[7],
        )
    }

    /// Sixteen lanes of a register.
    fn words(x: &[u32; 16]) -> __m512i {
        let x = x.map(|word| word as i32);
        _mm512_setr_epi32(
            x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10], x[11], x[12], x[13],
            x[14], x[15],
        )
    }

    /// Computes what it can of a tile; says what it cannot. Step by step over all rows: within a
    /// row every step waits for the one before.
    fn tile(left: &Left, right: &Right, start: &Start<'_>, out: &mut Accumulator) -> Leftover {
        let mut rows = accumulators(start);
        let mut quanta = [Quanta { unit: all(0), scale: _mm512_setzero_ps(), slow: 0 }; 8];
        let columns: [__m512i; 4] = std::array::from_fn(|i| {
            let e = &right.exponents[4 * i..4 * i + 4];
            _mm512_setr_epi64(e[0], e[0], e[1], e[1], e[2], e[2], e[3], e[3])
        });
        let p = right.peaks;
        let peaks = _mm256_setr_epi32(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]);
        let peaks = _mm512_broadcast_i32x8(_mm256_sub_epi32(peaks, all8(127)));
        let nothing = |pair: usize| left.zero >> (2 * pair) & 3;
        for pair in 0..8 {
            if nothing(pair) != 3 {
                let [upper, lower] = [2 * pair, 2 * pair + 1];
                let exponents = left.exponents.map(|e| _mm_set_epi64x(e[lower], e[upper]));
                let own = _mm512_inserti64x4::<1>(all(left.peaks[upper]), all8(left.peaks[lower]));
                let near = nearest(exponents, &columns);
                quanta[pair] = quanta_of(near, _mm512_add_epi32(peaks, own), rows[pair]);
            }
        }
        let factors: [__m512; 16] = std::array::from_fn(|k| twice(&right.values[k]));
        let mut slow = [0u16; 8];
        for pair in 0..8 {
            let zeros = nothing(pair);
            let begun = rows[pair];
            if zeros != 3 {
                let [low, high] = [0, 1].map(|half| {
                    let values = &left.values[half];
                    both(&values[2 * pair], &values[2 * pair + 1])
                });
                let large;
                (rows[pair], large) = sum([low, high], &factors, &quanta[pair], begun);
                slow[pair] = quanta[pair].slow | large;
            }
            if zeros != 0 {
                // A row without products stays, and -0 becomes +0.
                let mask = [0, 0xff, 0xff00, 0xffff][zeros as usize];
                let doubled = _mm512_slli_epi32::<1>(begun);
                let some = _mm512_test_epi32_mask(doubled, doubled);
                let infinite = _mm512_cmpeq_epi32_mask(_mm512_srli_epi32::<24>(doubled), all(255));
                let stays = _mm512_maskz_mov_epi32(some, begun);
                rows[pair] = _mm512_mask_mov_epi32(rows[pair], mask, stays);
                slow[pair] = slow[pair] & !mask | infinite & mask;
            }
        }
        put_rows(&rows, out);
        let mut leftover = [0; 16];
        for (columns, pair) in leftover.as_chunks_mut::<2>().0.iter_mut().zip(slow) {
            *columns = pair.to_le_bytes();
        }
        leftover
    }

    /// Where the elements of two rows lie in sixteen lanes of the register of even columns and, from 16
    /// on, that of odd ones.
    fn places(first: i32) -> __m512i {
        let at = |i: i32| first + i / 8 * 4 + i % 8 / 2 + i % 2 * 16;
        _mm512_setr_epi32(
            at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), at(11),
            at(12), at(13), at(14), at(15),
        )
    }

    /// The accumulators, two rows each.
    fn accumulators(start: &Start<'_>) -> [__m512i; 8] {
        let mut rows = [all(0); 8];
        for (four, rows) in rows.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let (r, half) = (four / 2 * 2, four % 2);
            let [even, odd] = [r, r + 1].map(|r| words(&start[r].as_chunks::<16>().0[half]));
            *rows = [0, 8].map(|first| _mm512_permutex2var_epi32(even, places(first), odd));
        }
        rows
    }

    /// The rows back into registers.
    fn put_rows(rows: &[__m512i; 8], out: &mut Accumulator) {
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_add_epi32(even, all(1));
        for (four, [upper, lower]) in rows.as_chunks::<2>().0.iter().enumerate() {
            let (r, half) = (four / 2 * 2, four % 2);
            for (r, places) in [(r, even), (r + 1, odd)] {
                let lanes = _mm512_permutex2var_epi32(*upper, places, *lower);
                let out = out[r].as_chunks_mut::<8>().0;
                put_words(_mm512_castsi512_si256(lanes), &mut out[2 * half]);
                put_words(_mm512_extracti64x4_epi64::<1>(lanes), &mut out[2 * half + 1]);
            }
        }
    }

    /// The bytes of four k of two rows, each eight times, from `first` on.
    fn spread(first: i8) -> __m512i {
        let at = |k: i8, row: i8| i64::from(first + k + 8 * row) * 0x0101_0101_0101_0101;
        _mm512_setr_epi64(at(0, 0), at(0, 1), at(1, 0), at(1, 1), at(2, 0), at(2, 1), at(3, 0), at(3, 1))
    }

    /// The largest exponent of each column's products with two rows, relative to the peaks.
    fn nearest(rows: [__m128i; 2], columns: &[__m512i; 4]) -> __m512i {
        let rows = rows.map(|eight| _mm512_broadcast_i32x4(eight));
        let sums = |x, first, y| _mm512_adds_epi8(_mm512_shuffle_epi8(x, spread(first)), y);
        let low = _mm512_max_epi8(sums(rows[0], 0, columns[0]), sums(rows[0], 4, columns[1]));
        let high = _mm512_max_epi8(sums(rows[1], 0, columns[2]), sums(rows[1], 4, columns[3]));
        let four = _mm512_max_epi8(low, high);
        let (first, last) = (_mm512_castsi512_si256(four), _mm512_extracti64x4_epi64::<1>(four));
        let two = _mm256_max_epi8(first, last);
        let (first, last) = (_mm256_castsi256_si128(two), _mm256_extracti128_si256::<1>(two));
        _mm512_cvtepi8_epi32(_mm_max_epi8(first, last))
    }

    /// As [`super::wide`]'s: `near` is the largest exponent of the products relative to `both` peaks.
    /// Exponents are biased by 127 here.
    fn quanta_of(near: __m512i, both: __m512i, start: __m512i) -> Quanta {
        let none = _mm512_cmpeq_epi32_mask(near, all(ZERO.into()));
        let far = _mm512_cmpgt_epi32_mask(all(i32::from(TINY) + 1), near) & !none;
        let products = _mm512_mask_mov_epi32(_mm512_add_epi32(near, both), none, all(NONE));
        let doubled = _mm512_slli_epi32::<1>(start);
        let zero = _mm512_testn_epi32_mask(doubled, doubled);
        let top = _mm512_max_epi32(products, _mm512_srli_epi32::<24>(doubled));
        let low = _mm512_cmpgt_epi32_mask(all(LOWEST + 127), top) & !(none & zero);
        // An infinity stands highest.
        let high = _mm512_cmpgt_epi32_mask(top, all(HIGHEST + 127));
        let field = _mm512_sub_epi32(all(279), _mm512_max_epi32(top, all(LOWEST + 127)));
        let power = _mm512_add_epi32(field, _mm512_sub_epi32(both, all(129)));
        let power = _mm512_min_epi32(_mm512_max_epi32(power, all(1)), all(254));
        Quanta {
            unit: _mm512_slli_epi32::<23>(field),
            scale: _mm512_castsi512_ps(_mm512_slli_epi32::<23>(power)),
            slow: far | low | high,
        }
    }

    /// Two rows' sums as f32, cut toward zero, and the elements where the sum of quanta may be too large.
    /// `x` are the first and the last eight factors of each row.
    fn sum(x: [__m512; 2], factors: &[__m512; 16], quanta: &Quanta, start: __m512i) -> (__m512i, u16) {
        // Sixteen numbers below 2^27, and one of 2^26.
        let mut sums = [all(0); 2];
        for half in 0..2 {
            let four = [
                _mm512_shuffle_f32x4::<0b10_10_00_00>(x[half], x[half]),
                _mm512_shuffle_f32x4::<0b11_11_01_01>(x[half], x[half]),
            ];
            for (i, four) in four.into_iter().enumerate() {
                let each = [
                    _mm512_permute_ps::<0b00_00_00_00>(four),
                    _mm512_permute_ps::<0b01_01_01_01>(four),
                    _mm512_permute_ps::<0b10_10_10_10>(four),
                    _mm512_permute_ps::<0b11_11_11_11>(four),
                ];
                for (k, x) in each.into_iter().enumerate() {
                    let product = _mm512_mul_ps(x, factors[8 * half + 4 * i + k]);
                    let whole = _mm512_cvttps_epi32(_mm512_mul_ps(product, quanta.scale));
                    sums[k % 2] = _mm512_add_epi32(sums[k % 2], whole);
                }
            }
        }
        let products = _mm512_add_epi32(sums[0], sums[1]);
        let large = all(i32::MAX - (1 << 27));
        let large = _mm512_cmpgt_epi32_mask(_mm512_abs_epi32(products), large);
        let own = _mm512_mul_ps(_mm512_castsi512_ps(start), _mm512_castsi512_ps(quanta.unit));
        let sum = _mm512_add_epi32(products, _mm512_cvttps_epi32(own));
        let cut = _mm512_cvt_roundepi32_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(sum);
        let quantum = _mm512_castsi512_ps(_mm512_sub_epi32(all(254 << 23), quanta.unit));
        (_mm512_castps_si512(_mm512_mul_ps(cut, quantum)), large)
    }
}
