//! Products of matrices with 256-bit vectors: sixteen factors of a row or column, then the eight
//! columns of a row at once.

use super::super::warp::{Warp, lanes};
use super::{
    Accumulator, HIGHEST, LOWEST, Left, Leftover, MatrixModel, NONE, Operands, Product, Right,
    Source, Start, TINY, Work, ZERO, is_brain, lowest_field, one_by_one,
};
use crate::float::NAN_F32;
use std::arch::x86_64::*;

/// Functions of the wide build.
macro_rules! wide {
    ($($(#[$what:meta])* $see:vis fn $name:ident($($arg:tt)*) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$what])*
        #[inline]
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,popcnt,lzcnt")]
        $see fn $name($($arg)*) $(-> $result)? $body
    )*};
}

wide! {
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

    /// The same in ordinary f32.
    pub(crate) fn plain(warp: &mut Warp, operands: &mut Operands, what: &Product) {
        let Work { left, right, new_left, new_right } =
            operands.hold(warp, what, MatrixModel::F32);
        let brain = is_brain(what.shape);
        if new_left {
            for row in 0..16 {
                let [low, high] = [0, 2].map(|half| &left.source.words[row / 8 + half]);
                put_floats(factors(brain, low, row % 8), &mut left.values[0][row]);
                put_floats(factors(brain, high, row % 8), &mut left.values[1][row]);
            }
        }
        if new_right {
            for (half, words) in right.source.words.iter().enumerate() {
                let mut lines = [_mm256_setzero_ps(); 8];
                for column in 0..8 {
                    lines[column] = factors(brain, words, column);
                }
                for (k, across) in transposed(&lines).into_iter().enumerate() {
                    put_floats(across, &mut right.values[8 * half + k]);
                }
            }
        }
        let start = what.c.map(|slot| &warp.words[usize::from(slot)].0);
        let mut rows = accumulators(&start);
        // Four rows at once: within a row every addition waits for the one before.
        for (i, four) in rows.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let mut sums = four.map(|x| _mm256_castsi256_ps(x));
            for k in 0..16 {
                let y = floats(&right.values[k]);
                for r in 0..4 {
                    let x = _mm256_set1_ps(left.values[k / 8][4 * i + r][k % 8]);
                    sums[r] = _mm256_add_ps(sums[r], _mm256_mul_ps(x, y));
                }
            }
            for r in 0..4 {
                let odd = _mm256_cmp_ps::<_CMP_UNORD_Q>(sums[r], sums[r]);
                let nan = _mm256_castsi256_ps(all(NAN_F32 as i32));
                four[r] = _mm256_castps_si256(_mm256_blendv_ps(sums[r], nan, odd));
            }
        }
        let mut out: Accumulator = [[0; 32]; 4];
        put_rows(&rows, &mut out);
        for (slot, values) in what.d.iter().zip(&out) {
            warp.words[usize::from(*slot)].0 = *values;
        }
    }

    fn floats(x: &[f32; 8]) -> __m256 {
        _mm256_setr_ps(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7])
    }

    fn put_floats(x: __m256, out: &mut [f32; 8]) {
        let mut bits = [0; 8];
        put_words(_mm256_castps_si256(x), &mut bits);
        *out = bits.map(f32::from_bits);
    }

    /// Eight lanes of a register.
    fn words(x: &[u32; 32], from: usize) -> __m256i {
        let at = |l: usize| x[from + l] as i32;
        _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7))
    }

    pub(super) fn put_words(x: __m256i, out: &mut [u32; 8]) {
        *out = [
            _mm256_extract_epi32::<0>(x) as u32,
            _mm256_extract_epi32::<1>(x) as u32,
            _mm256_extract_epi32::<2>(x) as u32,
            _mm256_extract_epi32::<3>(x) as u32,
            _mm256_extract_epi32::<4>(x) as u32,
            _mm256_extract_epi32::<5>(x) as u32,
            _mm256_extract_epi32::<6>(x) as u32,
            _mm256_extract_epi32::<7>(x) as u32,
        ];
    }

    pub(super) fn all(x: i32) -> __m256i {
        _mm256_set1_epi32(x)
    }

    /// Four lanes of a register: eight factors.
    fn factors(brain: bool, x: &[u32; 32], line: usize) -> __m256 {
        let at = |l: usize| x[4 * line + l] as i32;
        let eight = _mm_setr_epi32(at(0), at(1), at(2), at(3));
        if brain {
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(eight)))
        } else {
            _mm256_cvtph_ps(eight)
        }
    }

    /// Scales the sixteen factors of a row or column. Returns their relative exponents, a byte
    /// each in an order that all share, and the largest as it stands in an f32.
    fn scale(brain: bool, factors: &mut [__m256; 2]) -> ([i64; 2], i32) {
        let doubled = factors.map(|x| _mm256_slli_epi32::<1>(_mm256_castps_si256(x)));
        let field = doubled.map(|x| _mm256_srli_epi32::<24>(x));
        let zero = doubled.map(|x| _mm256_cmpeq_epi32(x, all(0)));
        let zero = _mm256_packs_epi32(zero[0], zero[1]);
        let field = _mm256_packs_epi32(field[0], field[1]);
        let lowest = _mm256_set1_epi16(lowest_field(brain) as i16);
        let field = _mm256_andnot_si256(zero, _mm256_max_epi16(field, lowest));
        let eight = _mm_max_epi16(
            _mm256_castsi256_si128(field),
            _mm256_extracti128_si256::<1>(field),
        );
        // The processor finds the least of eight.
        let least = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1)));

        let peak = _mm256_xor_si256(_mm256_broadcastw_epi16(least), _mm256_set1_epi16(-1));
        let below = _mm256_sub_epi16(field, peak);
        let below = _mm256_max_epi16(below, _mm256_set1_epi16(TINY.into()));
        let below = _mm256_blendv_epi8(below, _mm256_set1_epi16(ZERO.into()), zero);
        let bytes = _mm256_packs_epi16(below, below);
        let exponents = [_mm256_extract_epi64::<0>(bytes), _mm256_extract_epi64::<2>(bytes)];

        let peak = _mm256_and_si256(_mm256_broadcastd_epi32(least), all(0xffff));
        let factor = power(_mm256_sub_epi32(peak, all(0xff00)));
        *factors = factors.map(|x| _mm256_mul_ps(x, factor));
        (exponents, !_mm_cvtsi128_si32(least) & 0xffff)
    }

    /// Which of eight peaks are `field`.
    fn equal(peaks: &[i32; 8], field: i32) -> u32 {
        let p = peaks;
        let peaks = _mm256_setr_epi32(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]);
        let equal = _mm256_cmpeq_epi32(peaks, all(field));
        _mm256_movemask_ps(_mm256_castsi256_ps(equal)) as u32
    }

    pub(super) fn put_left(left: &mut Left, brain: bool) {
        for row in 0..16 {
            let low = &left.source.words[row / 8];
            let high = &left.source.words[row / 8 + 2];
            let mut line = [factors(brain, low, row % 8), factors(brain, high, row % 8)];
            let (exponents, peak) = scale(brain, &mut line);
            put_floats(line[0], &mut left.values[0][row]);
            put_floats(line[1], &mut left.values[1][row]);
            left.exponents[0][row] = exponents[0];
            left.exponents[1][row] = exponents[1];
            left.peaks[row] = peak;
        }
        let [upper, lower] = left.peaks.as_chunks::<8>().0 else {
            return;
        };
        left.odd = equal(upper, 255) | equal(lower, 255) << 8;
        left.zero = equal(upper, 0) | equal(lower, 0) << 8;
    }

    pub(super) fn put_right(right: &mut Right, brain: bool) {
        let Source { words: [low, high], .. } = &right.source;
        let mut lines = [[_mm256_setzero_ps(); 8]; 2];
        let mut exponents = [[0; 8]; 2];
        for column in 0..8 {
            let mut line = [factors(brain, low, column), factors(brain, high, column)];
            let (relative, peak) = scale(brain, &mut line);
            for half in 0..2 {
                lines[half][column] = line[half];
                exponents[half][column] = relative[half];
            }
            right.peaks[column] = peak;
        }
        right.odd = equal(&right.peaks, 255);
        for half in 0..2 {
            let across = transposed(&lines[half]);
            for k in 0..8 {
                put_floats(across[k], &mut right.values[8 * half + k]);
            }
            let across = transposed_bytes(&exponents[half]);
            right.exponents[8 * half..8 * half + 8].copy_from_slice(&across);
        }
    }

    fn transposed(x: &[__m256; 8]) -> [__m256; 8] {
        let pair = |i: usize| {
            (_mm256_unpacklo_ps(x[i], x[i + 1]), _mm256_unpackhi_ps(x[i], x[i + 1]))
        };
        let ((a, b), (c, d), (e, f), (g, h)) = (pair(0), pair(2), pair(4), pair(6));
        let low = |x, y| _mm256_shuffle_ps::<0b01_00_01_00>(x, y);
        let high = |x, y| _mm256_shuffle_ps::<0b11_10_11_10>(x, y);
        let upper = [low(a, c), high(a, c), low(b, d), high(b, d)];
        let lower = [low(e, g), high(e, g), low(f, h), high(f, h)];
        let mut out = [_mm256_setzero_ps(); 8];
        for i in 0..4 {
            out[i] = _mm256_permute2f128_ps::<0x20>(upper[i], lower[i]);
            out[i + 4] = _mm256_permute2f128_ps::<0x31>(upper[i], lower[i]);
        }
        out
    }

    /// Eight by eight bytes.
    fn transposed_bytes(x: &[i64; 8]) -> [i64; 8] {
        let two = |i: usize| _mm_set_epi64x(x[i + 1], x[i]);
        let pairs = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
        let [a, b, c, d] = [0, 2, 4, 6].map(|i| _mm_shuffle_epi8(two(i), pairs));
        let (ab, cd) = (_mm_unpacklo_epi16(a, b), _mm_unpacklo_epi16(c, d));
        let (ab_high, cd_high) = (_mm_unpackhi_epi16(a, b), _mm_unpackhi_epi16(c, d));
        let quarters = [
            _mm_unpacklo_epi32(ab, cd),
            _mm_unpackhi_epi32(ab, cd),
            _mm_unpacklo_epi32(ab_high, cd_high),
            _mm_unpackhi_epi32(ab_high, cd_high),
        ];
        let mut out = [0; 8];
        for (i, two) in quarters.into_iter().enumerate() {
            out[2 * i] = _mm_extract_epi64::<0>(two);
            out[2 * i + 1] = _mm_extract_epi64::<1>(two);
        }
        out
    }

    /// The bytes of four k of a row, each eight times, from `first` on.
    fn spread(first: i8) -> __m256i {
        let [a, b, c, d] = [0, 1, 2, 3].map(|k| i64::from(first + k) * 0x0101_0101_0101_0101);
        _mm256_setr_epi64x(a, b, c, d)
    }

    /// The numbers 2^(field − 127), of which the fields are brought into range.
    fn power(field: __m256i) -> __m256 {
        let field = _mm256_min_epi32(_mm256_max_epi32(field, all(1)), all(254));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(field))
    }

    /// The largest exponent of each column's products with a row, relative to the peaks.
    fn nearest(row: [i64; 2], columns: &[__m256i; 4]) -> __m256i {
        let row = row.map(|eight| _mm256_set1_epi64x(eight));
        let sums = |x, first, y| _mm256_adds_epi8(_mm256_shuffle_epi8(x, spread(first)), y);
        let low = _mm256_max_epi8(sums(row[0], 0, columns[0]), sums(row[0], 4, columns[1]));
        let high = _mm256_max_epi8(sums(row[1], 0, columns[2]), sums(row[1], 4, columns[3]));
        let four = _mm256_max_epi8(low, high);
        let two = _mm_max_epi8(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four));
        _mm256_cvtepi8_epi32(_mm_max_epi8(two, _mm_unpackhi_epi64(two, two)))
    }

    /// Computes what it can of a tile; says what it cannot. Step by step over all rows: within a
    /// row every step waits for the one before.
    fn tile(
        left: &Left,
        right: &Right,
        start: &Start<'_>,
        out: &mut Accumulator,
    ) -> Leftover {
        let columns: [__m256i; 4] = std::array::from_fn(|i| {
            let e = &right.exponents;
            _mm256_setr_epi64x(e[4 * i], e[4 * i + 1], e[4 * i + 2], e[4 * i + 3])
        });
        let p = right.peaks.map(|peak| peak - 127);
        let peaks = _mm256_setr_epi32(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]);
        let mut rows = accumulators(start);
        let mut units = [all(0); 16];
        let mut scales = [_mm256_setzero_ps(); 16];
        let mut odd = [all(0); 16];
        // What any row has to say: as a rule nothing.
        let mut any = all(0);
        for row in lanes(!left.zero & 0xffff) {
            let near = nearest([left.exponents[0][row], left.exponents[1][row]], &columns);
            let both = _mm256_add_epi32(peaks, all(left.peaks[row]));
            (units[row], scales[row], odd[row]) = quanta(near, both, rows[row]);
            any = _mm256_or_si256(any, odd[row]);
        }
        let factors: [__m256; 16] = std::array::from_fn(|k| floats(&right.values[k]));
        for row in 0..16 {
            if left.zero >> row & 1 != 0 {
                (rows[row], odd[row]) = unchanged(rows[row]);
                any = _mm256_or_si256(any, odd[row]);
                continue;
            }
            let x = [&left.values[0][row], &left.values[1][row]];
            let large;
            (rows[row], large) = sum(x, &factors, scales[row], rows[row], units[row]);
            odd[row] = _mm256_or_si256(odd[row], large);
            any = _mm256_or_si256(any, large);
        }
        for row in lanes(!left.zero & 0xffff) {
            rows[row] = rounded(rows[row], units[row]);
        }
        put_rows(&rows, out);
        if _mm256_testz_si256(any, any) != 0 { [0; 16] } else { odd.map(|x| columns_of(x)) }
    }

    /// The rows of the accumulator: eight lanes of two registers hold two of them, even and odd
    /// columns apart.
    fn accumulators(start: &Start<'_>) -> [__m256i; 16] {
        let mut rows = [all(0); 16];
        for (pair, rows) in rows.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let (r, l) = (pair / 4 * 2, pair % 4 * 8);
            let (even, odd) = (words(start[r], l), words(start[r + 1], l));
            let (low, high) = (_mm256_unpacklo_epi32(even, odd), _mm256_unpackhi_epi32(even, odd));
            *rows = [
                _mm256_permute2x128_si256::<0x20>(low, high),
                _mm256_permute2x128_si256::<0x31>(low, high),
            ];
        }
        rows
    }

    /// The rows back into registers.
    fn put_rows(rows: &[__m256i; 16], out: &mut Accumulator) {
        for (pair, lines) in rows.as_chunks::<2>().0.iter().enumerate() {
            let (r, l) = (pair / 4 * 2, pair % 4);
            let [upper, lower] = lines.map(|x| _mm256_castsi256_ps(x));
            let even = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(upper, lower));
            let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(upper, lower));
            let ordered = |x| _mm256_permute4x64_epi64::<0b11_01_10_00>(x);
            put_words(ordered(even), &mut out[r].as_chunks_mut::<8>().0[l]);
            put_words(ordered(odd), &mut out[r + 1].as_chunks_mut::<8>().0[l]);
        }
    }

    /// A row without products, and the columns for which that does not hold.
    fn unchanged(start: __m256i) -> (__m256i, __m256i) {
        let doubled = _mm256_slli_epi32::<1>(start);
        let zero = _mm256_cmpeq_epi32(doubled, all(0));
        let infinite = _mm256_cmpeq_epi32(_mm256_srli_epi32::<24>(doubled), all(255));
        (_mm256_andnot_si256(zero, start), infinite)
    }

    fn columns_of(x: __m256i) -> u8 {
        _mm256_movemask_ps(_mm256_castsi256_ps(x)) as u8
    }

    /// What one row's accumulators (2^(25 − E)) and scaled products are multiplied with to count
    /// quanta, and the columns that have to be computed one by one. `near` is the largest exponent
    /// of the products relative to `both` peaks. Exponents are biased by 127 here.
    fn quanta(near: __m256i, both: __m256i, start: __m256i) -> (__m256i, __m256, __m256i) {
        let none = _mm256_cmpeq_epi32(near, all(ZERO.into()));
        let far = _mm256_andnot_si256(none, _mm256_cmpgt_epi32(all(i32::from(TINY) + 1), near));
        let products = _mm256_blendv_epi8(_mm256_add_epi32(near, both), all(NONE), none);
        let doubled = _mm256_slli_epi32::<1>(start);
        let zero = _mm256_cmpeq_epi32(doubled, all(0));
        let top = _mm256_max_epi32(products, _mm256_srli_epi32::<24>(doubled));
        let low = _mm256_cmpgt_epi32(all(LOWEST + 127), top);
        let low = _mm256_andnot_si256(_mm256_and_si256(none, zero), low);
        // An infinity stands highest.
        let high = _mm256_cmpgt_epi32(top, all(HIGHEST + 127));
        let field = _mm256_sub_epi32(all(279), _mm256_max_epi32(top, all(LOWEST + 127)));
        let scale = power(_mm256_add_epi32(field, _mm256_sub_epi32(both, all(129))));
        let slow = _mm256_or_si256(_mm256_or_si256(far, low), high);
        (_mm256_slli_epi32::<23>(field), scale, slow)
    }

    /// A row's sums in quanta, and the columns where they may be too large.
    fn sum(
        x: [&[f32; 8]; 2],
        factors: &[__m256; 16],
        scale: __m256,
        start: __m256i,
        unit: __m256i,
    ) -> (__m256i, __m256i) {
        // Sixteen numbers below 2^27, and one of 2^26.
        let mut sums = [all(0); 2];
        for k in 0..16 {
            let product = _mm256_mul_ps(_mm256_set1_ps(x[k / 8][k % 8]), factors[k]);
            let whole = _mm256_cvttps_epi32(_mm256_mul_ps(product, scale));
            sums[k % 2] = _mm256_add_epi32(sums[k % 2], whole);
        }
        let sum = _mm256_add_epi32(sums[0], sums[1]);
        let large = _mm256_cmpgt_epi32(_mm256_abs_epi32(sum), all(i32::MAX - (1 << 27)));
        let own = _mm256_mul_ps(_mm256_castsi256_ps(start), _mm256_castsi256_ps(unit));
        (_mm256_add_epi32(sum, _mm256_cvttps_epi32(own)), large)
    }

    /// A row's sums as f32, cut toward zero: the nearest, and back one where that went up.
    fn rounded(sum: __m256i, unit: __m256i) -> __m256i {
        let magnitude = _mm256_abs_epi32(sum);
        let nearest = _mm256_cvtepi32_ps(magnitude);
        let up = _mm256_cmpgt_epi32(_mm256_cvttps_epi32(nearest), magnitude);
        let cut = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(nearest), up));
        let quantum = _mm256_castsi256_ps(_mm256_sub_epi32(all(254 << 23), unit));
        let result = _mm256_castps_si256(_mm256_mul_ps(cut, quantum));
        _mm256_or_si256(result, _mm256_and_si256(sum, all(i32::MIN)))
    }
}
