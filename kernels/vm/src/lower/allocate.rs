//! Fewer moves and fewer slots: copies of values that never change are read in place, and
//! registers that are not alive together share a slot, so that a warp fits the nearest cache.
//! Lanes write only their own part of a slot, so divergence does not matter here.

use super::Lowering;
use super::alive::alive_at_start;
use super::visit::Role;
use crate::program::{Class, Op, Reg, Slot};
use std::collections::{BTreeSet, HashMap};

/// Position of a use at an operation; a definition comes one later, so that a result may take
/// the place of an operand that dies there.
fn use_at(pc: usize) -> u32 {
    pc as u32 * 2
}

fn index(class: Class, slot: Slot) -> usize {
    usize::from(slot) * 2 + usize::from(class == Class::Long)
}

impl Lowering<'_, '_> {
    /// Registers set before the first operation and never again.
    fn pinned(&self) -> Vec<Reg> {
        let words = self.words.values().map(|slot| Self::as_word(*slot));
        let longs = self.longs.values().map(|slot| Self::as_long(*slot));
        let mut all: Vec<Reg> = words.chain(longs).collect();
        all.extend(self.specials.values());
        all.extend(self.parameter_slots.values());
        all.retain(|reg| reg.class != Class::Predicate);
        all.sort_by_key(|reg| (reg.class, reg.slot));
        all
    }

    /// Replaces single-definition copies of pinned registers by their source.
    pub(super) fn propagate_copies(&mut self) {
        let mut definitions: HashMap<Reg, u32> = HashMap::new();
        for pc in 0..self.code.len() {
            let mut op = self.code[pc].op;
            self.visit(&mut op, &mut |role, class, slot| {
                if role == Role::Define {
                    *definitions.entry(Reg { class, slot: *slot }).or_insert(0) += 1;
                }
            });
        }
        let pinned: std::collections::HashSet<Reg> = self.pinned().into_iter().collect();
        let mut replaced: HashMap<Reg, Slot> = HashMap::new();
        let mut keep = vec![true; self.code.len()];
        for pc in 0..self.code.len() {
            let (class, d, a) = match self.code[pc].op {
                Op::Mov32 { d, a } => (Class::Word, d, a),
                Op::Mov64 { d, a } => (Class::Long, d, a),
                _ => continue,
            };
            let source = replaced.get(&Reg { class, slot: a }).copied().unwrap_or(a);
            let single = definitions.get(&Reg { class, slot: d }) == Some(&1);
            if self.code[pc].guard == 0 && single && pinned.contains(&Reg { class, slot: source }) {
                replaced.insert(Reg { class, slot: d }, source);
                keep[pc] = false;
            }
        }
        for pc in 0..self.code.len() {
            let mut op = self.code[pc].op;
            self.visit(&mut op, &mut |role, class, slot| {
                if role == Role::Use
                    && let Some(source) = replaced.get(&Reg { class, slot: *slot })
                {
                    *slot = *source;
                }
            });
            self.code[pc].op = op;
        }
        self.remove(&keep);
    }

    /// Reads a copy at its source where both are set once within the block, and drops copies
    /// that nobody reads any more.
    pub(super) fn propagate_within_blocks(&mut self, starts: &[u32]) {
        let mut definitions: HashMap<Reg, u32> = HashMap::new();
        let mut uses: HashMap<Reg, u32> = HashMap::new();
        for pc in 0..self.code.len() {
            let mut op = self.code[pc].op;
            self.visit(&mut op, &mut |role, class, slot| {
                let counts = if role == Role::Define { &mut definitions } else { &mut uses };
                *counts.entry(Reg { class, slot: *slot }).or_insert(0) += 1;
            });
        }
        let mut keep = vec![true; self.code.len()];
        for (block, start) in starts.iter().enumerate() {
            let end = starts.get(block + 1).map_or(self.code.len(), |s| *s as usize);
            for pc in *start as usize..end {
                let (class, d, a) = match self.code[pc].op {
                    Op::Mov32 { d, a } => (Class::Word, d, a),
                    Op::Mov64 { d, a } => (Class::Long, d, a),
                    _ => continue,
                };
                let single = definitions.get(&Reg { class, slot: d }) == Some(&1);
                if self.code[pc].guard != 0 || !single || d == a {
                    continue;
                }
                let total = uses.get(&Reg { class, slot: d }).copied().unwrap_or(0);
                let moved = self.read_at_source(pc + 1..end, class, d, a, total);
                uses.insert(Reg { class, slot: d }, total - moved);
                *uses.entry(Reg { class, slot: a }).or_insert(0) += moved;
                keep[pc] = moved < total;
            }
        }
        self.remove(&keep);
    }

    /// Replaces uses of `d` by `a` up to where `a` changes, at most `total`; says how many.
    fn read_at_source(
        &mut self,
        range: std::ops::Range<usize>,
        class: Class,
        d: Slot,
        a: Slot,
        total: u32,
    ) -> u32 {
        let mut moved = 0;
        for at in range {
            if moved == total {
                break;
            }
            let mut op = self.code[at].op;
            let mut changed = false;
            self.visit(&mut op, &mut |role, other, slot| {
                if other == class && role == Role::Use && *slot == d {
                    *slot = a;
                    moved += 1;
                }
                changed |= other == class && role == Role::Define && *slot == a;
            });
            self.code[at].op = op;
            if changed {
                break;
            }
        }
        moved
    }

    pub(super) fn remove(&mut self, keep: &[bool]) {
        let mut moved = Vec::with_capacity(keep.len());
        let mut next = 0u32;
        for kept in keep {
            moved.push(next);
            next += u32::from(*kept);
        }
        let mut flags = keep.iter();
        self.code.retain(|_| flags.next().is_none_or(|k| *k));
        let mut flags = keep.iter();
        self.places.retain(|_| flags.next().is_none_or(|k| *k));
        let place = |target: u32| moved.get(target as usize).copied().unwrap_or(next);
        for instr in &mut self.code {
            if let Op::Branch { target, .. } = &mut instr.op {
                *target = place(*target);
            }
        }
        for table in &mut self.tables {
            for target in &mut table.targets {
                *target = place(*target);
            }
        }
        let mut names: Vec<_> = self.label_names.drain().collect();
        names.sort_unstable();
        for (at, name) in names {
            self.label_names.entry(place(at)).or_insert(name);
        }
    }

    /// Gives every register its final slot. Returns those a thread may read before it writes; `None`
    /// when that would take too long to find out.
    pub(super) fn allocate(&mut self, starts: &[u32]) -> Option<Vec<Reg>> {
        let count = usize::max(self.next[1] as usize, self.next[2] as usize) * 2;
        let pinned = self.pinned();
        let mut is_pinned = vec![false; count];
        for reg in &pinned {
            is_pinned[index(reg.class, reg.slot)] = true;
        }
        let (intervals, exposed) = self.intervals(starts, count, &is_pinned)?;
        let mut slots: Vec<Option<Slot>> = vec![None; count];
        let mut used = [0u32; 3];
        for reg in &pinned {
            let next = &mut used[reg.class as usize];
            slots[index(reg.class, reg.slot)] = Some(*next as Slot);
            *next += 1;
        }
        let mut order: Vec<usize> = (0..count).filter(|i| intervals[*i].is_some()).collect();
        order.sort_by_key(|i| (intervals[*i], *i));
        let mut free: [BTreeSet<Slot>; 2] = Default::default();
        let mut active: BTreeSet<(u32, usize)> = BTreeSet::new();
        for i in order {
            let Some((start, end)) = intervals[i] else {
                continue;
            };
            while let Some(&(last, j)) = active.first() {
                if last >= start {
                    break;
                }
                active.pop_first();
                if let Some(slot) = slots[j] {
                    free[j & 1].insert(slot);
                }
            }
            let slot = free[i & 1].pop_first().unwrap_or_else(|| {
                let next = &mut used[1 + (i & 1)];
                *next += 1;
                *next as Slot - 1
            });
            slots[i] = Some(slot);
            active.insert((end, i));
        }
        let rename = |class: Class, slot: Slot| slots[index(class, slot)].unwrap_or(0);
        for pc in 0..self.code.len() {
            let mut op = self.code[pc].op;
            self.visit(&mut op, &mut |_, class, slot| {
                if class != Class::Predicate {
                    *slot = rename(class, *slot);
                }
            });
            self.code[pc].op = op;
        }
        for slot in self.words.values_mut() {
            *slot = rename(Class::Word, *slot);
        }
        for slot in self.longs.values_mut() {
            *slot = rename(Class::Long, *slot);
        }
        for reg in self.specials.values_mut().chain(self.parameter_slots.values_mut()) {
            if reg.class != Class::Predicate {
                reg.slot = rename(reg.class, reg.slot);
            }
        }
        self.next[1] = used[1].max(1);
        self.next[2] = used[2].max(1);
        let renamed = |reg: Reg| Reg { class: reg.class, slot: rename(reg.class, reg.slot) };
        Some(exposed.into_iter().map(renamed).collect())
    }

    /// The span of positions in which each register is alive, and those alive at the start.
    #[allow(clippy::type_complexity)]
    fn intervals(
        &mut self,
        starts: &[u32],
        count: usize,
        is_pinned: &[bool],
    ) -> Option<(Vec<Option<(u32, u32)>>, Vec<Reg>)> {
        /// Registers times blocks, over 64: three bits each are kept.
        const MOST_WORDS: usize = 1 << 24;
        /// Of the search for what is alive: a word of a set at each way out of a block is one.
        const MOST_STEPS: usize = 1 << 28;
        let words = count.div_ceil(64);
        let blocks = starts.len();
        if words * blocks > MOST_WORDS {
            return None;
        }
        let mut uses = vec![vec![0u64; words]; blocks];
        let mut defines = vec![vec![0u64; words]; blocks];
        let mut intervals: Vec<Option<(u32, u32)>> = vec![None; count];
        let end_of = |block: usize, len: usize| starts.get(block + 1).map_or(len, |s| *s as usize);
        let len = self.code.len();
        for block in 0..blocks {
            for pc in starts[block] as usize..end_of(block, len) {
                let guarded = self.code[pc].guard != 0;
                let mut op = self.code[pc].op;
                let mut seen: Vec<(Role, usize)> = Vec::new();
                self.visit(&mut op, &mut |role, class, slot| {
                    if class != Class::Predicate && !is_pinned[index(class, *slot)] {
                        seen.push((role, index(class, *slot)));
                    }
                });
                for pass in [Role::Use, Role::Define] {
                    for &(role, i) in seen.iter().filter(|(role, _)| *role == pass) {
                        let bit = 1u64 << (i % 64);
                        // A guarded definition leaves the old value to other threads.
                        let reads = role == Role::Use || guarded;
                        if reads && defines[block][i / 64] & bit == 0 {
                            uses[block][i / 64] |= bit;
                        }
                        if role == Role::Define && !guarded {
                            defines[block][i / 64] |= bit;
                        }
                        let at = use_at(pc) + u32::from(role == Role::Define);
                        widen(&mut intervals[i], at);
                    }
                }
            }
        }
        let successors: Vec<Vec<usize>> =
            (0..blocks).map(|block| self.successors(starts, block)).collect();
        let alive = alive_at_start(&uses, &defines, &successors, MOST_STEPS)?;
        for block in 0..blocks {
            let first = use_at(starts[block] as usize);
            let last = use_at(end_of(block, len)) + 1;
            for word in 0..words {
                let out = successors[block].iter().fold(0, |all, s| all | alive[*s][word]);
                for (mut bits, at) in [(alive[block][word], first), (out, last)] {
                    while bits != 0 {
                        widen(&mut intervals[word * 64 + bits.trailing_zeros() as usize], at);
                        bits &= bits - 1;
                    }
                }
            }
        }
        let mut exposed = Vec::new();
        for i in 0..count {
            if alive[0][i / 64] >> (i % 64) & 1 == 1 {
                let class = if i & 1 == 1 { Class::Long } else { Class::Word };
                exposed.push(Reg { class, slot: (i / 2) as Slot });
            }
        }
        Some((intervals, exposed))
    }

    fn successors(&self, starts: &[u32], block: usize) -> Vec<usize> {
        let block_of = |pc: u32| starts.partition_point(|start| *start <= pc) - 1;
        let end = starts.get(block + 1).map_or(self.code.len(), |s| *s as usize);
        let last = self.code[end - 1];
        let mut out = Vec::new();
        let falls = match last.op {
            Op::Branch { target, .. } => {
                out.push(block_of(target));
                last.guard != 0
            }
            Op::BranchTable(table) => {
                let targets = &self.tables[usize::from(table)].targets;
                out.extend(targets.iter().map(|target| block_of(*target)));
                last.guard != 0
            }
            Op::Exit => last.guard != 0,
            _ => true,
        };
        if falls && block + 1 < starts.len() {
            out.push(block + 1);
        }
        out
    }
}

fn widen(interval: &mut Option<(u32, u32)>, at: u32) {
    *interval = Some(match *interval {
        None => (at, at),
        Some((start, end)) => (start.min(at), end.max(at)),
    });
}
