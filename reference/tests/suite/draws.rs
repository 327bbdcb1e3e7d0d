//! Deterministic draws for tests.

use contracts::case::hashed_bits;

/// A stream of draws, fixed by its seed.
pub struct Draws {
    seed: u64,
    next: u64,
}

impl Draws {
    pub fn new(seed: u64) -> Draws {
        Draws { seed, next: 0 }
    }

    /// Uniform in [low, high), exact in f32.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        self.next += 1;
        let unit = (hashed_bits(self.seed, self.next) >> 40) as f64 * 2f64.powi(-24);
        f64::from((low + (high - low) * unit) as f32)
    }

    /// Nearly normal with mean 0 and variance 1 (a sum of twelve uniforms), exact in f32.
    pub fn normal(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.uniform(-0.5, 0.5)).sum();
        f64::from(sum as f32)
    }

    pub fn normals(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.normal()).collect()
    }

    pub fn uniforms(&mut self, count: usize, low: f64, high: f64) -> Vec<f64> {
        (0..count).map(|_| self.uniform(low, high)).collect()
    }

    /// Rows of unit length, exact in f32; `shared` in 0..1 pulls them toward one direction.
    pub fn unit_rows(&mut self, count: usize, width: usize, shared: f64) -> Vec<f64> {
        let common = self.normals(width);
        (0..count)
            .flat_map(|_| {
                let mut row = self.normals(width);
                for (x, common) in row.iter_mut().zip(&common) {
                    *x = (1.0 - shared) * *x + shared * common;
                }
                let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
                row.into_iter().map(move |x| f64::from((x / norm) as f32))
            })
            .collect()
    }
}
