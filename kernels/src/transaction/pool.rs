//! The memory of all sequences, and the launches that move it. Which launches, in which order, is the
//! transaction's business; here each is one checked call. Regions of two slots are disjoint, and no
//! buffer moves or is added after the first event: captured launches stay valid.

use super::error::RoundError;
use super::geometry::{Geometry, MOST_VERIFY_ROWS, Projections, Token};
use super::state_scatter;
use crate::arena::{Arena, poison_pattern};
use crate::backend::{Backend, Outcome};
use crate::call::{Call, Rejection, ScalarArg, TensorArg};
use crate::launch::Plan;
use crate::linear_attention::{causal_conv1d, gdn_decode, gdn_verify, gdn_write_on_accept};
use contracts::dtype::DType;
use ptx_vm::{BufferId, marks};

/// Rows of one width.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) buffer: u32,
    pub(super) dtype: DType,
    pub(super) width: u64,
    pub(super) rows: u64,
}

impl Table {
    pub(super) fn row_bytes(&self) -> u64 {
        self.width * self.dtype.size_bytes()
    }

    /// `count` rows from `first` on, each of this shape.
    fn rows(&self, first: u64, count: u64, row: &[u64]) -> TensorArg {
        self.slice(first, count, 0, row)
    }

    /// As `rows`, from element `start` of each.
    fn slice(&self, first: u64, count: u64, start: u64, row: &[u64]) -> TensorArg {
        let mut strides = vec![self.width];
        let inner: Vec<u64> =
            (1..=row.len()).map(|axis| row[axis..].iter().product::<u64>()).collect();
        strides.extend(inner);
        TensorArg {
            dtype: self.dtype,
            shape: [&[count], row].concat(),
            strides,
            buffer: self.buffer,
            offset_bytes: (first * self.width + start) * self.dtype.size_bytes(),
            kind: None,
        }
    }

    fn whole(&self, row: &[u64]) -> TensorArg {
        self.rows(0, self.rows, row)
    }

    /// A list of the first `count` numbers.
    fn list(&self, count: u64) -> TensorArg {
        TensorArg { shape: vec![count], strides: vec![1], ..self.rows(0, 1, &[self.width]) }
    }
}

/// What a layer with a matrix state has: by slot what is published, its checkpoint, and by slot and row
/// of a round everything else.
#[derive(Clone, Copy, Debug)]
pub(super) struct GdnLayer {
    pub(super) s: Table,
    pub(super) window: Table,
    pub(super) kept_s: Table,
    pub(super) kept_window: Table,
    pub(super) snap_s: Table,
    pub(super) snap_window: Table,
    pub(super) stash: Stash,
    x: Table,
    qkv: Table,
    alpha: Table,
    beta: Table,
    pub(super) o: Table,
    weight: Table,
}

impl GdnLayer {
    /// What a round leaves, by slot and row.
    pub(super) fn staged(&self) -> [Table; 5] {
        let Stash { alpha, delta, key, .. } = self.stash;
        [self.snap_s, self.snap_window, alpha, delta, key]
    }

    /// What a round leaves, by slot.
    pub(super) fn of_round(&self) -> [Table; 3] {
        [self.kept_s, self.kept_window, self.stash.engaged]
    }
}

/// What each row of a round would do to the state, and by slot whether the round stashed it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stash {
    pub(super) alpha: Table,
    pub(super) delta: Table,
    pub(super) key: Table,
    pub(super) engaged: Table,
}

/// Rows of keys and values, the new ones, and what attention reads of them, by slot and row.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttentionLayer {
    pub(super) kv: Table,
    new: Table,
    pub(super) context: Table,
}

/// How rows are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// One row by the decode kernel.
    Step,
    /// Rows by the verify kernel, the slot advanced.
    InPlace,
    /// Rows by the verify kernel, the slot read alone.
    Apart,
    /// Rows by the verify of write on accept: the slot read alone, and no state written.
    Stashed,
}

impl Path {
    /// Whether the slot holds the state after the last row.
    fn advances(self) -> bool {
        matches!(self, Path::Step | Path::InPlace)
    }
}

/// Rows to fold into a slot; in a sound transaction every place is that of the slot's own round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    pub(super) slot: u64,
    /// Rows of the round, and how many of them count.
    pub(super) rows: u64,
    pub(super) accepted: u64,
    /// The layer whose stash is read, the slot whose rows of it, and the slot whose word says that they
    /// are there.
    pub(super) from: usize,
    pub(super) stash_of: u64,
    pub(super) engaged_by: u64,
}

pub(super) struct Pool<B> {
    pub(super) backend: B,
    pub(super) arena: Arena,
    pub(super) geometry: Geometry,
    pub(super) gdn: Vec<GdnLayer>,
    pub(super) attention: Vec<AttentionLayer>,
    blank_s: Table,
    blank_window: Table,
    row_offsets: Table,
    slot_of: Table,
    from_of: Table,
    to_of: Table,
    accepted_of: Table,
    /// Run through captured graphs.
    pub(super) captures: bool,
}

impl<B: Backend> Pool<B> {
    pub(super) fn new(backend: B, geometry: Geometry, projections: &dyn Projections) -> Pool<B> {
        let mut arena = Arena::new();
        let (slots, staged) = (geometry.slots, geometry.slots * MOST_VERIFY_ROWS);
        let (io, state) = (geometry.io, geometry.state);
        // Dead until it is written: poison that no kernel may read.
        let mut table = |name: String, dtype: DType, rows: u64, width: u64, marks: u8| {
            let fill = poison_pattern(dtype, arena.poison());
            let len_bytes = rows * width * dtype.size_bytes();
            Table { buffer: arena.add_buffer(&name, len_bytes, &fill, marks), dtype, width, rows }
        };
        let (s_width, window_width) = (geometry.state_width(), geometry.window_width());
        let heads = geometry.value_heads;
        let (key_width, value_width) =
            (geometry.key_heads * geometry.head_dim, heads * geometry.head_dim);
        let gdn = (0..geometry.gdn_layers).map(|layer| GdnLayer {
            s: table(format!("s.{layer}"), state, slots, s_width, 0),
            window: table(format!("window.{layer}"), DType::F32, slots, window_width, 0),
            kept_s: table(format!("kept_s.{layer}"), state, slots, s_width, 0),
            kept_window: table(format!("kept_window.{layer}"), DType::F32, slots, window_width, 0),
            snap_s: table(format!("snap_s.{layer}"), state, staged, s_width, 0),
            snap_window: table(format!("snap_window.{layer}"), DType::F32, staged, window_width, 0),
            stash: Stash {
                alpha: table(format!("stash_alpha.{layer}"), DType::F32, staged, heads, 0),
                delta: table(format!("stash_delta.{layer}"), DType::F32, staged, value_width, 0),
                key: table(format!("stash_key.{layer}"), DType::F32, staged, key_width, 0),
                engaged: table(format!("engaged.{layer}"), DType::I32, slots, 1, 0),
            },
            x: table(format!("x.{layer}"), io, staged, geometry.row_width(), marks::UNWRITABLE),
            qkv: table(format!("qkv.{layer}"), io, staged, geometry.row_width(), 0),
            alpha: table(format!("alpha.{layer}"), DType::F32, staged, heads, marks::UNWRITABLE),
            beta: table(format!("beta.{layer}"), DType::F32, staged, heads, marks::UNWRITABLE),
            o: table(format!("o.{layer}"), io, staged, value_width, 0),
            weight: table(
                format!("weight.{layer}"),
                io,
                1,
                geometry.row_width() * geometry.conv_width,
                marks::UNWRITABLE,
            ),
        });
        let gdn: Vec<GdnLayer> = gdn.collect();
        let (kv_rows, kv_width) = (slots * geometry.capacity, geometry.kv_width);
        let attention = (0..geometry.attention_layers).map(|layer| AttentionLayer {
            kv: table(format!("kv.{layer}"), io, kv_rows, kv_width, 0),
            new: table(format!("kv_new.{layer}"), io, staged, kv_width, marks::UNWRITABLE),
            context: table(format!("context.{layer}"), io, kv_rows, kv_width, 0),
        });
        let attention: Vec<AttentionLayer> = attention.collect();
        let blank_s = table("blank_s".to_owned(), state, 1, s_width, marks::UNWRITABLE);
        let blank_window =
            table("blank_window".to_owned(), DType::F32, 1, window_width, marks::UNWRITABLE);
        let longest = geometry.capacity + MOST_VERIFY_ROWS;
        let mut list = |name: &str, count: u64| {
            table(name.to_owned(), DType::I64, 1, count, marks::UNWRITABLE)
        };
        let (row_offsets, slot_of) = (list("cu_seqlens", 2), list("slot_of", 1));
        let (from_of, to_of) = (list("from_of", longest), list("to_of", longest));
        let accepted_of = table("accepted_of".to_owned(), DType::I32, 1, 1, marks::UNWRITABLE);
        let mut pool = Pool {
            backend,
            arena,
            geometry,
            gdn,
            attention,
            blank_s,
            blank_window,
            row_offsets,
            slot_of,
            from_of,
            to_of,
            accepted_of,
            captures: false,
        };
        for blank in [blank_s, blank_window] {
            pool.write(blank, 0, &vec![0; blank.width as usize]);
        }
        for layer in 0..pool.gdn.len() {
            pool.write(pool.gdn[layer].weight, 0, &projections.weights(layer));
        }
        pool
    }

    /// Elements of a row, by their bits.
    fn write(&mut self, table: Table, row: u64, elements: &[u64]) {
        let mut bytes = Vec::with_capacity(elements.len() * 8);
        elements.iter().for_each(|bits| table.dtype.push_bytes(*bits, &mut bytes));
        self.arena.memory_mut().write(BufferId(table.buffer), row * table.row_bytes(), &bytes);
    }

    fn write_list(&mut self, table: Table, numbers: impl Iterator<Item = u64>) {
        let numbers: Vec<u64> = numbers.collect();
        self.write(table, 0, &numbers);
    }

    fn launch(
        &mut self,
        plan: fn(&Call) -> Result<Plan, Rejection>,
        call: &Call,
    ) -> Result<(), RoundError> {
        let plan = plan(call)?;
        let outcome = if self.captures && self.backend.captures() {
            self.backend.run_captured(call, &plan, &mut self.arena)?
        } else {
            self.backend.run(call, &plan, &mut self.arena)?
        };
        match outcome {
            Outcome::Ran(_) => Ok(()),
            Outcome::Fault(fault) => Err(RoundError::Fault(Box::new(fault))),
            Outcome::Unsupported { what, where_ } => {
                Err(RoundError::Unsupported(format!("{what} ({where_})")))
            }
        }
    }

    /// Copies rows: (from, to).
    pub(super) fn copy(
        &mut self,
        from: Table,
        to: Table,
        pairs: &[(u64, u64)],
    ) -> Result<(), RoundError> {
        self.write_list(self.from_of, pairs.iter().map(|(from, _)| *from));
        self.write_list(self.to_of, pairs.iter().map(|(_, to)| *to));
        let count = pairs.len() as u64;
        let call = Call {
            tensors: tensors([
                ("from", from.whole(&[from.width])),
                ("from_of", self.from_of.list(count)),
                ("to_of", self.to_of.list(count)),
                ("to", to.whole(&[to.width])),
            ]),
            ..Call::default()
        };
        self.launch(state_scatter::plan, &call)
    }

    /// An empty state and window in a slot.
    pub(super) fn clear(&mut self, slot: u64) -> Result<(), RoundError> {
        for layer in 0..self.gdn.len() {
            let GdnLayer { s, window, .. } = self.gdn[layer];
            self.copy(self.blank_s, s, &[(0, slot)])?;
            self.copy(self.blank_window, window, &[(0, slot)])?;
        }
        Ok(())
    }

    /// Writes what the kernels read of these tokens to the slot's rows.
    pub(super) fn stage(&mut self, slot: u64, tokens: &[Token], projections: &dyn Projections) {
        for (row, token) in (slot * MOST_VERIFY_ROWS..).zip(tokens) {
            for layer in 0..self.gdn.len() {
                let GdnLayer { x, alpha, beta, .. } = self.gdn[layer];
                self.write(x, row, &projections.row(layer, *token));
                let (decay, rate) = projections.gates(layer, *token);
                let bits = |gates: Vec<f32>| -> Vec<u64> {
                    gates.iter().map(|gate| u64::from(gate.to_bits())).collect()
                };
                self.write(alpha, row, &bits(decay));
                self.write(beta, row, &bits(rate));
            }
            for layer in 0..self.attention.len() {
                let new = self.attention[layer].new;
                self.write(new, row, &projections.keys_and_values(layer, *token));
            }
        }
    }

    /// Runs the slot's first `rows` staged rows through one layer with a state.
    pub(super) fn advance(
        &mut self,
        layer: usize,
        slot: u64,
        rows: u64,
        path: Path,
    ) -> Result<(), RoundError> {
        self.write_list(self.row_offsets, [0, rows].into_iter());
        self.write_list(self.slot_of, [slot].into_iter());
        let call = self.conv_call(layer, slot, rows, path);
        self.launch(causal_conv1d::plan, &call)?;
        let call = self.gdn_call(layer, slot, rows, path);
        let plan = match path {
            Path::Step => gdn_decode::plan,
            Path::InPlace | Path::Apart => gdn_verify::plan,
            Path::Stashed => gdn_write_on_accept::plan,
        };
        self.launch(plan, &call)
    }

    /// Brings a layer's state in `slot` past the first `accepted` of the `rows` that the round of
    /// `stash_of` stashed in layer `from`, if the round of `engaged_by` did stash.
    pub(super) fn fold(&mut self, layer: usize, fold: Fold) -> Result<(), RoundError> {
        let Fold { slot, rows, accepted, from, stash_of, engaged_by } = fold;
        self.write_list(self.row_offsets, [0, rows].into_iter());
        self.write_list(self.slot_of, [slot].into_iter());
        self.write(self.accepted_of, 0, &[accepted]);
        let Geometry { value_heads, head_dim, .. } = self.geometry;
        let state = [value_heads, head_dim, head_dim];
        let (first, own) = (stash_of * MOST_VERIFY_ROWS, self.gdn[layer]);
        let mut held = tensors([
            ("s", own.s.whole(&state)),
            ("snap", own.snap_s.rows(first, rows, &state)),
            ("cu_seqlens", self.row_offsets.list(2)),
            ("slot_of", self.slot_of.list(1)),
            ("accepted_of", self.accepted_of.list(1)),
            ("engaged_of", own.stash.engaged.rows(engaged_by, 1, &[])),
        ]);
        held.extend(self.stash_tensors(from, first, rows));
        let words = words(&[("phase", "fold"), ("head_map", "block")]);
        let call = Call { tensors: held, scalars: Vec::new(), words };
        self.launch(gdn_write_on_accept::plan, &call)
    }

    fn stash_tensors(&self, layer: usize, first: u64, rows: u64) -> [(String, TensorArg); 3] {
        let Geometry { key_heads, value_heads, head_dim, .. } = self.geometry;
        let Stash { alpha, delta, key, .. } = self.gdn[layer].stash;
        [
            ("stash_alpha".to_owned(), alpha.rows(first, rows, &[value_heads])),
            ("stash_delta".to_owned(), delta.rows(first, rows, &[value_heads, head_dim])),
            ("stash_key".to_owned(), key.rows(first, rows, &[key_heads, head_dim])),
        ]
    }

    fn conv_call(&self, layer: usize, slot: u64, rows: u64, path: Path) -> Call {
        let (own, Geometry { key_heads, head_dim, conv_width, .. }) =
            (self.gdn[layer], self.geometry);
        let (heads, first) = (self.geometry.row_heads(), slot * MOST_VERIFY_ROWS);
        let window = [heads, head_dim, conv_width - 1];
        let mut held = tensors([
            ("x", own.x.rows(first, rows, &[heads, head_dim])),
            ("out", own.qkv.rows(first, rows, &[heads, head_dim])),
            ("state", own.window.whole(&window)),
            ("cu_seqlens", self.row_offsets.list(2)),
            ("slot_of", self.slot_of.list(1)),
        ]);
        let mut weight = own.weight.rows(0, 1, &[heads, head_dim, conv_width]);
        weight.shape.remove(0);
        weight.strides.remove(0);
        held.push(("weight".to_owned(), weight));
        if path != Path::Step {
            held.push(("snap".to_owned(), own.snap_window.rows(first, rows, &window)));
        }
        Call {
            tensors: held,
            scalars: vec![
                ("eps".to_owned(), ScalarArg::F32(1e-6f32.to_bits())),
                ("normed_heads".to_owned(), ScalarArg::I32(2 * key_heads as i32)),
            ],
            words: words(&[
                ("bias", "none"),
                ("activation", "none"),
                ("norm", "l2"),
                ("live_state", if path.advances() { "advanced" } else { "kept" }),
                ("snapshot", if path == Path::Step { "none" } else { "each" }),
                ("walk", "chosen"),
            ]),
        }
    }

    fn gdn_call(&self, layer: usize, slot: u64, rows: u64, path: Path) -> Call {
        let own = self.gdn[layer];
        let Geometry { key_heads, value_heads, head_dim, .. } = self.geometry;
        let first = slot * MOST_VERIFY_ROWS;
        let part =
            |head: u64, heads: u64| own.qkv.slice(first, rows, head * head_dim, &[heads, head_dim]);
        let state = [value_heads, head_dim, head_dim];
        let mut held = tensors([
            ("q", part(0, key_heads)),
            ("k", part(key_heads, key_heads)),
            ("v", part(2 * key_heads, value_heads)),
            ("alpha", own.alpha.rows(first, rows, &[value_heads])),
            ("beta", own.beta.rows(first, rows, &[value_heads])),
            ("s", own.s.whole(&state)),
            ("slot_of", self.slot_of.list(1)),
            ("o", own.o.rows(first, rows, &[value_heads, head_dim])),
        ]);
        let scale = (head_dim as f32).sqrt().recip();
        let mut scalars = vec![("scale".to_owned(), ScalarArg::F32(scale.to_bits()))];
        let mut given = vec![("gate_form", "alpha"), ("head_map", "block")];
        held.extend(
            (path != Path::Step).then(|| ("cu_seqlens".to_owned(), self.row_offsets.list(2))),
        );
        match path {
            Path::Step => {
                for name in ["qk_eps", "norm_eps", "alpha_low", "alpha_high"] {
                    scalars.push((name.to_owned(), ScalarArg::F32(0)));
                }
                given.extend([
                    ("alpha_clamp", "none"),
                    ("qk_norm", "none"),
                    ("output_gate", "none"),
                ]);
                given.extend([
                    ("snapshot", "none"),
                    ("retention", "registers"),
                    ("epilogue", "fused"),
                ]);
            }
            Path::InPlace | Path::Apart => {
                held.push(("snap".to_owned(), own.snap_s.rows(first, rows, &state)));
                given.push(("live_state", if path.advances() { "advanced" } else { "kept" }));
            }
            Path::Stashed => {
                held.extend(self.stash_tensors(layer, first, rows));
                held.push(("engaged".to_owned(), own.stash.engaged.rows(slot, 1, &[])));
                given.push(("phase", "verify"));
            }
        }
        Call { tensors: held, scalars, words: words(&given) }
    }

    /// Appends the slot's first `rows` staged rows of keys and values after `length`, and reads
    /// `read_rows` rows of the sequence, as attention does.
    pub(super) fn attend(
        &mut self,
        layer: usize,
        slot: u64,
        length: u64,
        rows: u64,
        read_rows: u64,
    ) -> Result<(), RoundError> {
        let AttentionLayer { kv, new, context } = self.attention[layer];
        let (first, staged) = (slot * self.geometry.capacity, slot * MOST_VERIFY_ROWS);
        let appended: Vec<_> = (0..rows).map(|row| (staged + row, first + length + row)).collect();
        self.copy(new, kv, &appended)?;
        let read: Vec<_> = (0..read_rows).map(|row| (first + row, first + row)).collect();
        self.copy(kv, context, &read)
    }

    /// Makes rows dead again: poison that no kernel may read.
    pub(super) fn poison(&mut self, table: Table, first: u64, count: u64) {
        if count == 0 {
            return;
        }
        let pattern = poison_pattern(table.dtype, self.arena.poison());
        let bytes = pattern.repeat((count * table.width) as usize);
        let at = first * table.row_bytes();
        let memory = self.arena.memory_mut();
        memory.write(BufferId(table.buffer), at, &bytes);
        memory.mark(BufferId(table.buffer), at..at + bytes.len() as u64, 0, marks::INIT);
    }

    /// Poisons what the first `rows` staged rows of a slot left behind.
    pub(super) fn poison_staged(&mut self, slot: u64, rows: u64) {
        let first = slot * MOST_VERIFY_ROWS;
        for layer in self.gdn.clone() {
            for table in
                [layer.qkv, layer.x, layer.alpha, layer.beta].into_iter().chain(layer.staged())
            {
                self.poison(table, first, rows);
            }
            for table in layer.of_round() {
                self.poison(table, slot, 1);
            }
        }
        for layer in self.attention.clone() {
            self.poison(layer.new, first, rows);
        }
    }
}

fn tensors<const N: usize>(named: [(&str, TensorArg); N]) -> Vec<(String, TensorArg)> {
    named.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect()
}

fn words(given: &[(&str, &str)]) -> Vec<(String, String)> {
    given.iter().map(|(name, word)| ((*name).to_owned(), (*word).to_owned())).collect()
}
