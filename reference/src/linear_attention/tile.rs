//! Some value rows of a state under the gated delta rule: one row of the recurrence at a time, with the
//! magnitudes and errors that `gated_delta_rule` defines.

use super::gated_delta_rule::StateType;

/// Value rows advanced together. A value row of S never meets another, so a tile of them stays in
/// cache over all rows of a sequence; lanes are innermost so that no sum is reordered.
pub(super) const LANES: usize = 16;

/// `LANES` value rows of S, M and the carried errors, transposed to `[Dk][LANES]`; errors only of a state
/// that is kept row by row.
pub(super) struct Tile {
    pub(super) state: Vec<[f64; LANES]>,
    pub(super) paths: Vec<[f64; LANES]>,
    /// N, of an evaluation in chunks.
    later_paths: Option<Vec<[f64; LANES]>>,
    /// D and R.
    pub(super) rounding: Carried,
    /// C and E.
    pub(super) decaying: Carried,
    largest: f64,
}

/// Errors of a state that the rule carries on: what has come of earlier rows' `now`, and what the next row
/// takes over.
pub(super) struct Carried {
    pub(super) now: Vec<[f64; LANES]>,
    next: Vec<[f64; LANES]>,
}

impl Carried {
    fn new(key_dim: usize) -> Carried {
        Carried { now: vec![[0.0; LANES]; key_dim], next: vec![[0.0; LANES]; key_dim] }
    }

    /// The rule's absolute terms over what the row takes over.
    fn advance(&mut self, (decay, beta): (&[f64], f64), k: &[f64]) {
        let mut recalled = [0.0; LANES];
        for (next, (&k, &alpha)) in self.next.iter().zip(k.iter().zip(decay)) {
            for lane in 0..LANES {
                recalled[lane] += alpha * next[lane] * k.abs();
            }
        }
        for (key, now) in self.now.iter_mut().enumerate() {
            for lane in 0..LANES {
                let written = beta.abs() * recalled[lane] * k[key].abs();
                now[lane] = decay[key] * self.next[key][lane] + written;
            }
        }
    }
}

impl Tile {
    pub(super) fn new(key_dim: usize, kept: Option<StateType>, in_chunks: bool) -> Tile {
        let zero = vec![[0.0; LANES]; key_dim];
        let carried_dim = if kept.is_some() { key_dim } else { 0 };
        Tile {
            state: zero.clone(),
            later_paths: in_chunks.then(|| zero.clone()),
            paths: zero,
            rounding: Carried::new(carried_dim),
            decaying: Carried::new(carried_dim),
            largest: kept.map_or(f64::INFINITY, |kept| kept.largest),
        }
    }

    /// Takes up to `LANES` value rows of the state, each of `key_dim` elements.
    pub(super) fn load(&mut self, rows: &[f64]) {
        for (lane, row) in rows.chunks_exact(self.state.len()).enumerate() {
            for ((state, paths), value) in self.state.iter_mut().zip(&mut self.paths).zip(row) {
                state[lane] = *value;
                paths[lane] = value.abs();
            }
        }
        for (next, paths) in self.decaying.next.iter_mut().zip(&self.paths) {
            *next = *paths;
        }
        if let Some(later) = &mut self.later_paths {
            later.copy_from_slice(&self.paths);
        }
    }

    /// The magnitudes of the state: N where it is asked for, M.
    pub(super) fn all_paths(&self) -> &[[f64; LANES]] {
        self.later_paths.as_ref().unwrap_or(&self.paths)
    }

    /// Stops every finite element at the largest number; whether one was past it.
    fn saturate(&mut self) -> bool {
        let mut any = false;
        for element in self.state.iter_mut().flatten() {
            if element.is_finite() && element.abs() > self.largest {
                *element = element.clamp(-self.largest, self.largest);
                any = true;
            }
        }
        any
    }

    /// One row of the recurrence; returns S_t q and M_t |q|, or N_t |q|, not yet scaled.
    pub(super) fn advance(
        &mut self,
        (decay, beta): (&[f64], f64),
        k: &[f64],
        q: &[f64],
        v: [f64; LANES],
    ) -> ([f64; LANES], [f64; LANES]) {
        let mut recalled = [0.0; LANES];
        let mut recalled_paths = [0.0; LANES];
        for (state, (&k, &alpha)) in self.state.iter().zip(k.iter().zip(decay)) {
            for lane in 0..LANES {
                let term = alpha * state[lane] * k;
                recalled[lane] += term;
                recalled_paths[lane] += term.abs();
            }
        }
        let delta: [f64; LANES] = std::array::from_fn(|lane| beta * (v[lane] - recalled[lane]));
        let sum_of_paths = |recalled: [f64; LANES]| -> [f64; LANES] {
            std::array::from_fn(|lane| beta.abs() * (v[lane].abs() + recalled[lane]))
        };
        let later_delta = sum_of_paths(match &self.later_paths {
            Some(_) => recalled_of(&self.paths, decay, k),
            None => recalled_paths,
        });
        let delta_paths = sum_of_paths(recalled_paths);
        // M follows the same recurrence as S, with absolute terms.
        let read = write_and_read(&mut self.state, decay, delta, k, q, |x| x);
        let read = if self.saturate() { read_row(&self.state, q, |x| x) } else { read };
        let read_paths = write_and_read(&mut self.paths, decay, delta_paths, k, q, f64::abs);
        let read_later = self
            .later_paths
            .as_mut()
            .map(|later| write_and_read(later, decay, later_delta, k, q, f64::abs));
        (read, read_later.unwrap_or(read_paths))
    }

    /// The errors of the row that the state just advanced by; returns R_t |q| and C_t |q|, not yet scaled.
    pub(super) fn carry_errors(
        &mut self,
        kept: StateType,
        gate: (&[f64], f64),
        k: &[f64],
        q: &[f64],
    ) -> ([f64; LANES], [f64; LANES]) {
        self.rounding.advance(gate, k);
        self.decaying.advance(gate, k);
        for (key, state) in self.state.iter().enumerate() {
            let (rounding, decaying) = (&mut self.rounding, &mut self.decaying);
            for (lane, state) in state.iter().enumerate() {
                rounding.next[key][lane] = kept.rounded(rounding.now[key][lane], *state);
                decaying.next[key][lane] = decaying.now[key][lane] + state.abs();
            }
        }
        (read_row(&self.rounding.next, q, f64::abs), read_row(&self.decaying.now, q, f64::abs))
    }
}

/// As many value rows of a tile as `rows` holds, back from `[Dk][LANES]`.
pub(super) fn store(tile: &[[f64; LANES]], rows: &mut [f64]) {
    for (lane, row) in rows.chunks_exact_mut(tile.len()).enumerate() {
        for (element, of_key) in row.iter_mut().zip(tile) {
            *element = of_key[lane];
        }
    }
}

/// X·q, with `part` applied to q.
fn read_row(tile: &[[f64; LANES]], q: &[f64], part: impl Fn(f64) -> f64) -> [f64; LANES] {
    let mut read = [0.0; LANES];
    for (elements, &q) in tile.iter().zip(q) {
        for lane in 0..LANES {
            read[lane] += elements[lane] * part(q);
        }
    }
    read
}

/// (decay·X)·|k|, what a row recalls of magnitudes X.
fn recalled_of(tile: &[[f64; LANES]], decay: &[f64], k: &[f64]) -> [f64; LANES] {
    let mut recalled = [0.0; LANES];
    for (elements, (&k, &alpha)) in tile.iter().zip(k.iter().zip(decay)) {
        for lane in 0..LANES {
            recalled[lane] += alpha * elements[lane] * k.abs();
        }
    }
    recalled
}

/// X ← decay·X + written·kᵀ, then X·q, with `part` applied to k and q.
fn write_and_read(
    tile: &mut [[f64; LANES]],
    decay: &[f64],
    written: [f64; LANES],
    k: &[f64],
    q: &[f64],
    part: impl Fn(f64) -> f64,
) -> [f64; LANES] {
    let mut read = [0.0; LANES];
    for ((elements, &decay), (&k, &q)) in tile.iter_mut().zip(decay).zip(k.iter().zip(q)) {
        let (k, q) = (part(k), part(q));
        for lane in 0..LANES {
            elements[lane] = decay * elements[lane] + written[lane] * k;
            read[lane] += elements[lane] * q;
        }
    }
    read
}
