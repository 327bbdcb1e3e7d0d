//! The generators, one innermost row at a time: a row depends on seed and coordinates alone, so rows
//! may be asked for in any order, or only some of them.

use super::domain::rounded;
use super::noise::{below, between, normal, row_key, uniform, word};
use super::{Field, mantissa_bits};
use contracts::dtype::{DType, Poison};
use contracts::format::{Domain, LogDecay, Number, PlantPlace, TiePlace, Values};

/// Columns at or past this draw what concerns a whole row, not one of its elements.
const WHOLE_ROW: usize = 1 << 40;

/// Writes rows of one tensor.
pub(super) struct Rows<'a> {
    values: &'a Values,
    field: &'a Field<'a>,
    /// The share of correlated rows, the index of a spike: whatever one tensor draws once.
    once: u64,
    scratch: Vec<f64>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(values: &'a Values, field: &'a Field<'a>) -> Rows<'a> {
        let once = word(row_key(field.seed, u64::MAX), WHOLE_ROW);
        Rows { values, field, once, scratch: Vec::new() }
    }

    /// Writes the bits of one row, before the domain has its say.
    pub(super) fn write(&mut self, index: u64, row: &mut [u64]) {
        let (dtype, seed) = (self.field.dtype, self.field.seed);
        let key = row_key(seed, index);
        let first = index * row.len() as u64;
        match self.values {
            Values::Zero => row.fill(0),
            Values::Constant(value) => row.fill(rounded(dtype, *value)),
            Values::ModelScale(dim) => {
                row.fill(rounded(dtype, super::model_scale(self.field.dims.get(dim))));
            }
            Values::Normal(sigma) => each(dtype, key, row, |w| sigma * normal(w)),
            Values::Uniform([low, high]) => each(dtype, key, row, |w| between(w, *low, *high)),
            Values::LogUniform([low, high]) => each(dtype, key, row, |w| {
                let magnitude = libm::exp2(between(w, *low, *high));
                if w & 1 == 0 { magnitude } else { -magnitude }
            }),
            Values::UnitRows => self.unit_row(key, None, row),
            Values::CorrelatedRows(shares) => {
                let share = shares.get(below(self.once, shares.len().max(1) as u64) as usize);
                let rows_below: u64 = self.field.shape.iter().rev().skip(1).rev().skip(1).product();
                let common = row_key(!seed, index % rows_below.max(1));
                self.unit_row(key, share.map(|share| (*share, common)), row);
            }
            Values::AxisRows(places) => axis_row(dtype, key, *places, row),
            Values::Ramp => fill_by_index(row, first, |flat| ramp(self.field, flat)),
            Values::Spike => {
                let place = below(self.once, self.field.count().max(1));
                each(dtype, key, row, normal);
                if (first..first + row.len() as u64).contains(&place) {
                    let column = (place - first) as usize;
                    row[column] = rounded(dtype, 1024.0 * normal(word(key, column)));
                }
            }
            Values::SpikedRows => {
                each(dtype, key, row, normal);
                let column = below(word(key, WHOLE_ROW), row.len().max(1) as u64) as usize;
                if let Some(bits) = row.get_mut(column) {
                    *bits = rounded(dtype, 1024.0 * normal(word(key, column)));
                }
            }
            Values::DistinctMantissas => {
                fill_by_index(row, first, |flat| distinct_mantissa(self.field, flat));
            }
            Values::AllCodes => {
                fill_by_index(row, first, |flat| flat.wrapping_add(seed) & dtype.mask());
            }
            Values::Lattice => each(dtype, key, row, |w| below(w, 33) as f64 / 8.0 - 2.0),
            Values::OneHotRows => {
                row.fill(0);
                let place = index.checked_rem(row.len() as u64);
                if let Some(one) = place.and_then(|place| row.get_mut(place as usize)) {
                    *one = rounded(dtype, 1.0);
                }
            }
            Values::Alternating => {
                let size = between(self.once, 0.5, 2.0);
                for (column, bits) in row.iter_mut().enumerate() {
                    *bits = rounded(dtype, if column % 2 == 0 { size } else { -size });
                }
            }
            Values::Midpoints(of) => each(dtype, key, row, |w| midpoint(*of, w)),
            Values::NanPayloads => nan_row(dtype, key, row),
            Values::Hashed => {
                fill_by_index(row, first, |flat| word(seed, flat as usize) & dtype.mask())
            }
            Values::Specials => {
                let specials = special_bits(dtype);
                for (column, bits) in row.iter_mut().enumerate() {
                    *bits = specials[below(word(key, column), specials.len() as u64) as usize];
                }
            }
            Values::Ties { places } => tied_row(dtype, key, places, row),
            Values::Crowd { band, count } => crowded_row(dtype, key, *band, *count, row),
            Values::Contenders(most) => contended_row(dtype, key, *most, row),
            Values::Comb { every, width, values, gaps } => {
                let comb = Comb { every, width: *width, values, gaps: *gaps };
                comb.write(dtype, key, row);
            }
            Values::Masked { survivors } => masked_row(dtype, key, survivors, row),
            Values::Planted { value, at } => {
                each(dtype, key, row, normal);
                for place in at {
                    let planted = match place {
                        PlantPlace::First => row.first_mut(),
                        PlantPlace::Last => row.last_mut(),
                    };
                    planted.into_iter().for_each(|bits| *bits = rounded(dtype, value.0));
                }
            }
            Values::Runs(values) => run_row(dtype, key, values, row),
            Values::LogDecays(class) => each(dtype, key, row, |w| log_decay(*class, w)),
            Values::Literal(bits) => {
                let period = bits.len().max(1) as u64;
                fill_by_index(row, first, |flat| {
                    bits.get((flat % period) as usize).copied().unwrap_or(0) & dtype.mask()
                });
            }
        }
    }

    /// A normal row scaled to unit norm in f64; `common` mixes in a share of another row.
    fn unit_row(&mut self, key: u64, common: Option<(f64, u64)>, row: &mut [u64]) {
        self.scratch.clear();
        self.scratch.extend((0..row.len()).map(|column| normal(word(key, column))));
        if let Some((share, common)) = common {
            for (column, value) in self.scratch.iter_mut().enumerate() {
                *value = (1.0 - share) * *value + share * normal(word(common, column));
            }
        }
        let norm = libm::sqrt(self.scratch.iter().map(|value| value * value).sum());
        let scale = if norm > 0.0 { 1.0 / norm } else { 0.0 };
        for (bits, value) in row.iter_mut().zip(&self.scratch) {
            *bits = rounded(self.field.dtype, value * scale);
        }
    }
}

fn each(dtype: DType, key: u64, row: &mut [u64], value: impl Fn(u64) -> f64) {
    // The common type gets a loop of its own; the others round through the table of types.
    if dtype == DType::F32 {
        for (column, bits) in row.iter_mut().enumerate() {
            *bits = u64::from((value(word(key, column)) as f32).to_bits());
        }
        return;
    }
    for (column, bits) in row.iter_mut().enumerate() {
        *bits = rounded(dtype, value(word(key, column)));
    }
}

/// Whether the generator cannot leave the domain, so that nobody need look.
pub(super) fn stays_inside(values: &Values, domain: &Domain) -> bool {
    let within = |low: f64, high: f64| match domain {
        Domain::Any => true,
        // f16 is the narrowest type that holds normal deviates.
        Domain::Finite => low >= -65504.0 && high <= 65504.0,
        Domain::Range(ends) | Domain::RangeOrInfinite(ends) => low >= ends[0] && high <= ends[1],
        Domain::AtMost(most) => high <= *most,
        Domain::Positive | Domain::Nonzero | Domain::RowNorm(_) => false,
    };
    match values {
        // Quantiles are solved for up to 9; the rest is room for rounding.
        Values::Normal(sigma) => within(-10.0 * sigma.abs(), 10.0 * sigma.abs()),
        // Each element is rounded by at most 2⁻⁸ of itself.
        Values::UnitRows | Values::CorrelatedRows(_) | Values::AxisRows(_) => match domain {
            Domain::RowNorm(most) => *most >= 1.005,
            _ => within(-1.005, 1.005),
        },
        _ => matches!(domain, Domain::Any),
    }
}

/// One ±1 at a multiple of the widest step that gives so many places, or as many as there are columns.
fn axis_row(dtype: DType, key: u64, places: u64, row: &mut [u64]) {
    row.fill(0);
    let columns = row.len() as u64;
    let places = places.min(columns);
    let Some(step) = columns.checked_div(places) else { return };
    let drawn = word(key, WHOLE_ROW);
    let column = below(drawn, places) * step;
    row[column as usize] = rounded(dtype, if drawn & 1 == 0 { 1.0 } else { -1.0 });
}

fn fill_by_index(row: &mut [u64], first: u64, bits_of: impl Fn(u64) -> u64) {
    for (flat, bits) in (first..).zip(row) {
        *bits = bits_of(flat);
    }
}

/// 1, 2, 3… where the type holds that many integers and the domain admits them; else consecutive bit
/// patterns, which order positive floats.
fn ramp(field: &Field<'_>, flat: u64) -> u64 {
    let dtype = field.dtype;
    if !dtype.is_float() {
        return flat & dtype.mask();
    }
    let exact = 1u64 << (mantissa_bits(dtype) + 1);
    let high = match field.domain {
        Domain::Range([_, high]) | Domain::RangeOrInfinite([_, high]) | Domain::AtMost(high) => {
            *high
        }
        Domain::RowNorm(most) => *most,
        _ => dtype.largest_finite(),
    };
    if field.count() <= exact.min(high.max(0.0) as u64) {
        return rounded(dtype, (flat + 1) as f64);
    }
    let (largest, low) = match field.domain {
        // Negative floats are ordered the other way.
        Domain::Range([low, high]) if *high <= 0.0 => (0, *low),
        Domain::AtMost(high) if *high <= 0.0 => (0, -dtype.largest_finite()),
        _ => (rounded(dtype, high), 0.0),
    };
    if largest == 0 {
        let lowest = rounded(dtype, low);
        return lowest - (flat % (lowest & (dtype.mask() >> 1)).max(1));
    }
    let start = largest.saturating_sub(field.count());
    start + 1 + flat % (largest - start)
}

/// Significands differ from element to element and none is zero; exponents are −1, 0 or 1.
fn distinct_mantissa(field: &Field<'_>, flat: u64) -> u64 {
    let bits = mantissa_bits(field.dtype);
    if bits == 0 {
        return flat & field.dtype.mask();
    }
    // 5 divides none of the moduli 2²³−1, 2¹⁰−1, 2⁷−1, 2³−1, so a whole cycle is distinct.
    let modulus = (1u64 << bits) - 1;
    let mantissa = 1 + (flat % modulus * 5 + field.seed % modulus) % modulus;
    let noise = word(field.seed, flat as usize);
    let magnitude =
        (1.0 + mantissa as f64 / (modulus + 1) as f64) * [0.5, 1.0, 2.0][below(noise, 3) as usize];
    let signed = !matches!(field.domain, Domain::Positive) && noise & 1 == 1;
    rounded(field.dtype, if signed { -magnitude } else { magnitude })
}

/// ±0, subnormals, ±1, the neighbours of overflow, ±∞ and NaN, as far as the type has them.
pub(crate) fn special_bits(dtype: DType) -> Vec<u64> {
    let sign = (dtype.mask() >> 1) + 1;
    let one = rounded(dtype, 1.0);
    if !dtype.is_float() {
        return vec![0, 1, dtype.mask(), sign, sign - 1];
    }
    let largest = rounded(dtype, dtype.largest_finite());
    let hidden = 1u64 << mantissa_bits(dtype);
    let mut magnitudes = vec![0, 1, hidden - 1, hidden, one, one + 1, largest];
    if dtype != DType::E4M3 {
        magnitudes.push(largest + 1);
    }
    let mut specials: Vec<u64> = magnitudes.iter().flat_map(|bits| [*bits, *bits | sign]).collect();
    specials.push(dtype.poison(Poison::Quiet));
    specials.push(dtype.poison(Poison::Signalling));
    specials
}

/// A normal number of a type plus half the distance to its neighbour away from zero.
fn midpoint(of: DType, word: u64) -> f64 {
    let bits = of.round_from_f64(normal(word));
    let (here, next) = (of.to_f64(bits), of.to_f64(bits + 1));
    if next.is_finite() { 0.5 * (here + next) } else { here }
}

/// A NaN of its own payload and sign at about every other column, normal numbers elsewhere.
fn nan_row(dtype: DType, key: u64, row: &mut [u64]) {
    each(dtype, key, row, normal);
    if !dtype.is_float() {
        return;
    }
    let (sign, payload) = ((dtype.mask() >> 1) + 1, (1u64 << mantissa_bits(dtype)) - 1);
    let exponent = dtype.poison(Poison::Quiet) & !sign & !payload;
    for (column, bits) in row.iter_mut().enumerate() {
        let word = word(!key, column);
        if word & 1 == 0 {
            // E4M3 has one NaN.
            let held = if dtype == DType::E4M3 { payload } else { (word >> 8 & payload).max(1) };
            *bits = exponent | held | if word & 2 == 0 { sign } else { 0 };
        }
    }
}

/// Normal values well below (or, for every other row, all negative and below) a largest value that
/// stands in two or three places.
fn tied_row(dtype: DType, key: u64, places: &[TiePlace], row: &mut [u64]) {
    let len = row.len();
    if len == 0 {
        return;
    }
    let whole = |number: usize| word(key, WHOLE_ROW + number);
    let base = if whole(0) & 1 == 0 { 0.0 } else { -8.0 };
    each(dtype, key, row, |w| base + normal(w).min(3.0));
    let tie = rounded(dtype, base + 4.0);
    let first = below(whole(1), len as u64) as usize;
    let mut plant = |column: usize| row[column % len] = tie;
    let place = places.get(below(whole(2), places.len().max(1) as u64) as usize);
    plant(first);
    match place.copied().unwrap_or(TiePlace::Warp) {
        TiePlace::Lane => {
            // One thread visits every 32nd, 128th, 256th or 1024th element.
            let blocks = [32, 128, 256, 1024].map(|block| block.min(len.div_ceil(2)));
            let block = blocks[below(whole(3), 4) as usize];
            let behind = (len - 1 - first) / block;
            let visited = behind + first / block;
            let step = below(whole(4), visited.max(1) as u64) as usize;
            // The visits behind first, then those before.
            plant(if step < behind {
                first + block * (step + 1)
            } else {
                first % block + block * (step - behind)
            });
        }
        TiePlace::Warp => {
            let near = first / 32 * 32 + (first % 32 + 1 + below(whole(3), 31) as usize) % 32;
            plant(if near < len { near } else { first.saturating_sub(1) });
        }
        TiePlace::Block => {
            plant(first + len / 2);
            plant(first + len / 4);
        }
        TiePlace::Last => plant(len - 1),
    }
}

/// Values in the band, `count` of them side by side and around the end of the row; the others are
/// below the band by 1 to 9.
fn crowded_row(dtype: DType, key: u64, [low, high]: [f64; 2], count: u64, row: &mut [u64]) {
    let len = row.len();
    let start = below(word(key, WHOLE_ROW), len.max(1) as u64) as usize;
    for (column, bits) in row.iter_mut().enumerate() {
        let place = (column + len - start) % len;
        let drawn = word(key, column);
        let value = if (place as u64) < count {
            between(drawn, low, high)
        } else {
            low - 1.0 - 8.0 * uniform(drawn)
        };
        *bits = rounded(dtype, value);
    }
}

/// A few contenders above one background: a quarter of the rows have numbers far below all of them, a
/// quarter −∞, a quarter NaN, a quarter −∞ and NaN mixed; and as often the contenders are equal, differ
/// in their last bits, are −∞, zeros of either sign, or differ much. Half of the rows have one alone, a quarter
/// up to sixteen, a quarter up to `most`.
fn contended_row(dtype: DType, key: u64, most: u64, row: &mut [u64]) {
    let len = row.len() as u64;
    if len == 0 {
        return;
    }
    let whole = |number: usize| word(key, WHOLE_ROW + number);
    let (nothing, lowest) = (dtype.poison(Poison::Quiet), rounded(dtype, f64::NEG_INFINITY));
    match below(whole(0), 4) {
        0 => each(dtype, key, row, |w| -64.0 + normal(w)),
        1 => row.fill(lowest),
        2 => row.fill(nothing),
        _ => {
            for (column, bits) in row.iter_mut().enumerate() {
                *bits = if word(key, column) & 1 == 0 { nothing } else { lowest };
            }
        }
    }
    let base = [1.0, -1.0, 0.25, -24.0, f64::NEG_INFINITY][below(whole(1), 5) as usize];
    let kind = below(whole(2), 4);
    let few = [1, 1, 16, most][below(whole(3), 4) as usize].min(most);
    let count = 1 + below(whole(4), few);
    let is_run = whole(5) & 1 == 0;
    let start = below(whole(6), len);
    for number in 0..count.min(len) {
        let drawn = word(!key, number as usize);
        let place = if is_run { (start + number) % len } else { below(drawn, len) };
        let noise = word(drawn, 1);
        row[place as usize] = match kind {
            0 => rounded(dtype, base),
            1 => rounded(dtype, base.max(-24.0)) + (noise & 3),
            2 => rounded(dtype, if noise & 1 == 0 { 0.0 } else { -0.0 }),
            _ => rounded(dtype, base + between(noise, -4.0, 4.0)),
        };
    }
}

/// The teeth of [`Values::Comb`].
struct Comb<'a> {
    every: &'a [u64],
    width: u64,
    values: &'a [Number],
    gaps: u64,
}

impl Comb<'_> {
    /// A tooth begins at a multiple of its width; what is no tooth is below all of them by 1 to 9.
    fn write(&self, dtype: DType, key: u64, row: &mut [u64]) {
        let len = row.len() as u64;
        let whole = |number: usize| word(key, WHOLE_ROW + number);
        let one_of = |word: u64, values: &[Number]| {
            let which = below(word, values.len().max(1) as u64) as usize;
            values.get(which).map_or(0.0, |value| value.0)
        };
        let every = self.every.get(below(whole(0), self.every.len().max(1) as u64) as usize);
        let (every, width) = (every.map_or(1, |every| (*every).max(1)), self.width.max(1));
        let start = below(whole(1), (every / width).max(1)) * width;
        let into_tooth = |column: u64| (column + every - start) % every;
        let low = self.values.iter().fold(f64::INFINITY, |low, value| low.min(value.0));
        let background = |drawn: u64| rounded(dtype, low - 1.0 - 8.0 * uniform(drawn));
        let alike = (whole(2) & 1 == 0).then(|| one_of(whole(3), self.values));
        for (column, bits) in row.iter_mut().enumerate() {
            let drawn = word(key, column);
            *bits = if into_tooth(column as u64) < width {
                rounded(dtype, alike.unwrap_or_else(|| one_of(drawn, self.values)))
            } else {
                background(drawn)
            };
        }
        for gap in 0..below(whole(4), self.gaps + 1).min(len) {
            let drawn = whole(5 + gap as usize);
            let column = below(drawn, len);
            let first = column.saturating_sub(into_tooth(column)) as usize;
            row[first] = background(drawn);
        }
    }
}

/// −∞ but for a drawn number of survivors.
fn masked_row(dtype: DType, key: u64, survivors: &[u64], row: &mut [u64]) {
    let len = row.len();
    row.fill(rounded(dtype, f64::NEG_INFINITY));
    let pick = below(word(key, WHOLE_ROW), survivors.len().max(1) as u64) as usize;
    let wanted = survivors.get(pick).map_or(0, |count| (*count).min(len as u64) as usize);
    let masked = rounded(dtype, f64::NEG_INFINITY);
    for number in 0..wanted {
        let start = below(word(key, WHOLE_ROW + 1 + number), len as u64) as usize;
        let free = (0..len).map(|step| (start + step) % len).find(|column| row[*column] == masked);
        if let Some(column) = free {
            row[column] = rounded(dtype, normal(word(key, column)));
        }
    }
}

/// g of one key channel of one row.
fn log_decay(class: LogDecay, word: u64) -> f64 {
    match class {
        LogDecay::Lb => -5.0 / (1.0 + libm::exp(-normal(word))),
        LogDecay::Lbmax => -5.0,
        LogDecay::Mix => {
            if uniform(word) < 0.3 {
                -5.0
            } else {
                -1.0e-3
            }
        }
        LogDecay::Slow => -libm::exp(between(word, -9.0, -5.0)),
    }
}

/// One to four runs, each of one of the values; neighbours may draw the same one.
fn run_row(dtype: DType, key: u64, values: &[Number], row: &mut [u64]) {
    let whole = |number: usize, limit: usize| {
        below(word(key, WHOLE_ROW + number), limit.max(1) as u64) as usize
    };
    let runs = 1 + whole(0, 4);
    let mut from = 0;
    for run in 0..runs {
        let rest = row.len() - from;
        let to = if run + 1 == runs { row.len() } else { from + whole(2 * run + 1, rest + 1) };
        let value = values.get(whole(2 * run + 2, values.len())).map_or(0.0, |value| value.0);
        row[from..to].fill(rounded(dtype, value));
        from = to;
    }
}

/// A probability's draw, for generators that need one outside a row.
pub(super) fn chance(word: u64, one_in: u64) -> bool {
    uniform(word) * (one_in as f64) < 1.0
}
