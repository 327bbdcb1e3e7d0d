//! Convolution and gated delta rule in f32, in the declared order of the kernels, so that a round can be
//! judged bit for bit. Every operation is one IEEE rounding (products and sums, fused where declared, root
//! and quotient), so the bits are the same on every machine; no exponential is among them.
//!
//! Declared order: taps oldest first, fused; a head's squares by a butterfly over 32 channels, neighbours
//! first, then those sums in turn, and a product with the inverse length; a state row by eight lanes of consecutive vectors, fused, lanes by a butterfly; decay
//! first, output from the updated state (linear_attention §0.2, `fma: on`, `form: decay_first`).

use contracts::dtype::DType;

/// Lanes that share a row of the state.
const LANES: usize = 8;

/// Rounds an f32 to a storage type and back, as a kernel stores and reads it.
pub fn stored(dtype: DType, x: f32) -> f32 {
    dtype.to_f64(stored_bits(dtype, x)) as f32
}

/// The bits an f32 is stored as.
pub fn stored_bits(dtype: DType, x: f32) -> u64 {
    dtype.round_from_f64(f64::from(x))
}

/// One row of the convolution over all channels: advances `window` (`[channels, width - 1]`, oldest
/// first) and returns the outputs, of which the first `normed_heads` heads have unit length.
pub fn convolve(
    io: DType,
    weights: &[f32],
    window: &mut [f32],
    x: &[f32],
    head_dim: usize,
    normed_heads: usize,
) -> Vec<f32> {
    let held = window.len() / x.len();
    let mut y: Vec<f32> = x
        .iter()
        .zip(window.chunks_exact_mut(held).zip(weights.chunks_exact(held + 1)))
        .map(|(x, (window, weights))| {
            let older = window.iter().zip(weights);
            let acc = older.fold(0.0f32, |acc, (x, weight)| weight.mul_add(*x, acc));
            let acc = weights[held].mul_add(*x, acc);
            window.rotate_left(1);
            window[held - 1] = *x;
            acc
        })
        .collect();
    for head in y.chunks_exact_mut(head_dim).take(normed_heads) {
        let inverse = 1.0 / (square(head) + 1e-6).sqrt();
        head.iter_mut().for_each(|y| *y *= inverse);
    }
    y.iter().map(|y| stored(io, *y)).collect()
}

/// The sum of squares of a head.
fn square(head: &[f32]) -> f32 {
    let squares = head.chunks(32).map(|warp| {
        let mut sums: Vec<f32> = warp.iter().map(|y| y * y).collect();
        while sums.len() > 1 {
            sums = sums.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
        sums[0]
    });
    squares.reduce(|sum, warp| sum + warp).unwrap_or(0.0)
}

/// The sum that every lane of an exchange has, by halves.
fn butterfly(lanes: &[f32]) -> f32 {
    let mut lanes = lanes.to_vec();
    while lanes.len() > 1 {
        let half = lanes.len() / 2;
        lanes = (0..half).map(|lane| lanes[lane] + lanes[lane + half]).collect();
    }
    lanes[0]
}

/// One row of the gated delta rule on one head: advances `state` (`[Dv, Dk]`, stored) and returns the
/// outputs before their own rounding.
pub struct Row<'a> {
    /// Storage of the state.
    pub state: DType,
    /// The head's query.
    pub q: &'a [f32],
    /// Its key.
    pub k: &'a [f32],
    /// Its values.
    pub v: &'a [f32],
    /// Decay and strength of the write.
    pub gates: (f32, f32),
    /// Factor of the output.
    pub scale: f32,
}

impl Row<'_> {
    /// Advances the head's state.
    pub fn advance(&self, state: &mut [f32]) -> Vec<f32> {
        let dim = self.k.len();
        state.chunks_exact_mut(dim).zip(self.v).map(|(row, v)| self.advance_row(row, *v)).collect()
    }

    fn advance_row(&self, row: &mut [f32], v: f32) -> f32 {
        let (alpha, rate) = self.gates;
        row.iter_mut().for_each(|s| *s *= alpha);
        let delta = rate * (v - self.read(row, self.k));
        for (s, k) in row.iter_mut().zip(self.k) {
            *s = stored(self.state, delta.mul_add(*k, *s));
        }
        self.scale * self.read(row, self.q)
    }

    /// The product of a state row with a key or query.
    fn read(&self, row: &[f32], by: &[f32]) -> f32 {
        let share = row.len() / LANES;
        let vector = if self.state == DType::F16 && share.is_multiple_of(8) { 8 } else { 4 };
        let lanes: Vec<f32> = (0..LANES)
            .map(|lane| {
                let columns = (lane * vector..row.len()).step_by(LANES * vector);
                let own = columns.flat_map(|first| first..first + vector);
                own.fold(0.0f32, |sum, column| row[column].mul_add(by[column], sum))
            })
            .collect();
        butterfly(&lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_moves_by_one_and_the_newest_tap_sees_the_row() {
        let mut window = vec![1.0, 2.0, 3.0];
        let y = convolve(DType::F32, &[0.0, 0.0, 1.0, 10.0], &mut window, &[4.0], 1, 0);
        assert_eq!((y, window), (vec![43.0], vec![2.0, 3.0, 4.0]));
    }

    #[test]
    fn a_normed_head_has_unit_length_and_the_others_their_own() {
        let x: Vec<f32> = (0..64).map(|i| i as f32 / 16.0).collect();
        let y = convolve(DType::F32, &[0.0, 1.0].repeat(64), &mut vec![0.0; 64], &x, 32, 1);
        let length: f32 = y[..32].iter().map(|y| y * y).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
        assert_eq!(y[32..], x[32..]);
    }

    #[test]
    fn a_write_at_full_strength_is_read_back() {
        let mut key = vec![0.0; 32];
        key[5] = 1.0;
        let v = [3.0, -2.0];
        let row = Row { state: DType::F32, q: &key, k: &key, v: &v, gates: (1.0, 1.0), scale: 0.5 };
        let mut state = vec![0.25; 64];
        assert_eq!(row.advance(&mut state), vec![1.5, -1.0]);
        assert_eq!((state[5], state[32 + 5], state[6]), (3.0, -2.0, 0.25));
    }
}
