//! The last step: labels resolved, basic blocks and edges numbered, the entry assembled.

use super::{FixupAt, Lowering, too_large};
use crate::exec::lane::Kernel;
use crate::module::{BlockInfo, Entry};
use crate::parse_error::{ParseError, ParseErrorKind};
use crate::program::{Op, ShuffleMode, Slot};
use crate::rare::Rare;
use crate::syntax::Function;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// 0 is no entry's.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl<'a> Lowering<'a, '_> {
    pub(super) fn finish(mut self, function: &Function<'a>) -> Result<Entry, ParseError> {
        self.resolve_labels()?;
        if self.watched {
            self.drop_untouched();
        }
        let tables = [
            self.pures.len(),
            self.accesses.len(),
            self.atomics.len(),
            self.barriers.len(),
            self.shuffles.len(),
            self.votes.len(),
            self.matrices.len(),
            self.rares.len(),
            self.unsupported.len(),
            self.tables.len(),
            self.edges as usize,
        ];
        if tables.iter().any(|len| *len > usize::from(u16::MAX)) {
            return Err(too_large("instructions of one kind", function.line));
        }
        if self.simplified {
            self.propagate_copies();
            let starts = self.block_starts();
            self.fold(&starts);
            self.propagate_within_blocks(&starts);
            let starts = self.block_starts();
            self.drop_unread(&starts);
        }
        let starts = self.block_starts();
        let Some(exposed) = self.allocate(&starts) else {
            return Err(too_large("branches among so many registers", function.line));
        };
        self.fix_shuffles();
        let block_of = |pc: u32| starts.partition_point(|start| *start <= pc) as u32 - 1;
        let mut edge_targets = vec![0; self.edges as usize];
        for (pc, instr) in self.code.iter().enumerate() {
            match instr.op {
                Op::Branch { target, edge } => {
                    edge_targets[usize::from(edge)] = block_of(target);
                    if instr.guard != 0 {
                        edge_targets[usize::from(edge) + 1] = block_of(pc as u32 + 1);
                    }
                }
                Op::BranchTable(table) => {
                    let table = &self.tables[usize::from(table)];
                    for (i, target) in table.targets.iter().enumerate() {
                        edge_targets[usize::from(table.edge) + i] = block_of(*target);
                    }
                }
                _ => {}
            }
        }
        let falls_through = (0..starts.len())
            .map(|block| {
                let end = starts.get(block + 1).map_or(self.code.len() as u32, |s| *s);
                let last = self.code[end as usize - 1];
                match last.op {
                    Op::Branch { .. } | Op::BranchTable(_) => false,
                    Op::Exit => last.guard != 0,
                    _ => true,
                }
            })
            .collect();
        let blocks = starts
            .iter()
            .map(|start| {
                let place = self.places[*start as usize];
                BlockInfo {
                    label: self.label_names.get(start).map(|name| (*name).to_owned()),
                    ptx_line: place.ptx_line,
                    source: place.source.and_then(|site| self.tree.sites.line(site)),
                }
            })
            .collect();
        let (code, lanes) = super::flatten::steps(&self.code, &self.shuffles);
        let parameter_bytes = self.parameters.last().map_or(0, |p| p.offset_bytes + p.size_bytes);
        let dynamic = self.shared_end.next_multiple_of(self.dynamic_align.max(16));
        let mut seed = 0x811c_9dc5u32;
        for byte in function.name.bytes() {
            seed = (seed ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
        let synchronises = self.accesses.iter().any(|access| access.release)
            || self.atomics.iter().any(|atomic| atomic.release)
            || self.rares.iter().any(Rare::releases)
            || self.barriers.iter().any(|barrier| barrier.kind.releases())
            || self.code.iter().any(|i| matches!(i.op, Op::Fence));
        Ok(Entry {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            name: function.name.to_owned(),
            parameters: self.parameters,
            parameter_bytes,
            max_threads: function.max_threads,
            cluster: function.cluster,
            explicit_cluster: function.explicit_cluster,
            static_shared_bytes: self.static_shared,
            shared: self.shared,
            dynamic_shared_offset: dynamic,
            local_bytes: self.local_end,
            code,
            lanes,
            places: self.places,
            blocks,
            block_starts: starts,
            edge_targets,
            falls_through,
            words: self.next[1],
            longs: self.next[2],
            predicates: self.next[0],
            word_constants: sorted(self.words.into_iter().map(|(v, s)| (s, v)).collect()),
            long_constants: sorted(self.longs.into_iter().map(|(v, s)| (s, v)).collect()),
            specials: {
                let mut all: Vec<_> =
                    self.specials.into_iter().map(|((special, _), reg)| (special, reg)).collect();
                all.sort_by_key(|(_, reg)| (reg.class, reg.slot));
                all
            },
            parameter_slots: {
                let mut all: Vec<_> = self
                    .parameter_slots
                    .into_iter()
                    .map(|((offset, width, signed, _), reg)| (offset, width, signed, reg))
                    .collect();
                all.sort_by_key(|(_, _, _, reg)| (reg.class, reg.slot));
                all
            },
            exposed,
            pures: self.pures,
            accesses: self.accesses,
            atomics: self.atomics,
            barriers: self.barriers,
            shuffles: self.shuffles,
            votes: self.votes,
            tables: self.tables,
            matrices: self.matrices,
            rares: self.rares,
            unsupported: self.unsupported,
            synchronises,
            edge_seed: seed,
        })
    }

    fn resolve_labels(&mut self) -> Result<(), ParseError> {
        for fixup in std::mem::take(&mut self.fixups) {
            let found =
                fixup.scopes.iter().find_map(|scope| self.labels.get(&(*scope, fixup.label)));
            let Some(&target) = found else {
                return Err(ParseError {
                    line: fixup.line,
                    what: ParseErrorKind::UnknownLabel(fixup.label.to_owned()),
                });
            };
            match fixup.at {
                FixupAt::Branch(at) => {
                    if let Some(instr) = self.code.get_mut(at)
                        && let Op::Branch { target: to, .. } = &mut instr.op
                    {
                        *to = target;
                    }
                }
                FixupAt::Table(table, i) => self.tables[table].targets[i] = target,
            }
        }
        Ok(())
    }

    /// Notes which shuffles have constant operands.
    fn fix_shuffles(&mut self) {
        let values: HashMap<u16, u32> = self.words.iter().map(|(v, slot)| (*slot, *v)).collect();
        for shuffle in &mut self.shuffles {
            let [b, c, members] =
                [shuffle.b, shuffle.c, shuffle.members].map(|slot| values.get(&slot).copied());
            shuffle.fixed = match (b, c, members) {
                (Some(b), Some(c), Some(u32::MAX)) => Some((b & 31, c)),
                _ => None,
            };
            shuffle.whole = shuffle.fixed.and_then(|(b, c)| exchange(shuffle.mode, b, c));
        }
    }

    fn block_starts(&self) -> Vec<u32> {
        let mut starts = vec![0];
        for (pc, instr) in self.code.iter().enumerate() {
            let next = pc as u32 + 1;
            match instr.op {
                Op::Branch { target, .. } => starts.extend([target, next]),
                Op::BranchTable(table) => {
                    starts.extend(&self.tables[usize::from(table)].targets);
                    starts.push(next);
                }
                Op::Exit => starts.push(next),
                _ => {}
            }
        }
        starts.sort_unstable();
        starts.dedup();
        starts.retain(|start| (*start as usize) < self.code.len());
        starts
    }
}

/// The kernel that exchanges words within a whole warp, undivided, and its last slot.
fn exchange(mode: ShuffleMode, by: u32, c: u32) -> Option<(Kernel, Slot)> {
    let undivided = if mode == ShuffleMode::Up { 0 } else { 0x1f };
    if c & 0x1f1f != undivided {
        return None;
    }
    let kernel = match (mode, by) {
        (ShuffleMode::Index, _) => return Some((Kernel::Broadcast, by as Slot)),
        (ShuffleMode::Butterfly, 1) => Kernel::Swap1,
        (ShuffleMode::Butterfly, 2) => Kernel::Swap2,
        (ShuffleMode::Butterfly, 4) => Kernel::Swap4,
        (ShuffleMode::Butterfly, 8) => Kernel::Swap8,
        (ShuffleMode::Butterfly, 16) => Kernel::Swap16,
        (ShuffleMode::Up, 1) => Kernel::Up1,
        (ShuffleMode::Up, 2) => Kernel::Up2,
        (ShuffleMode::Up, 4) => Kernel::Up4,
        (ShuffleMode::Up, 8) => Kernel::Up8,
        (ShuffleMode::Up, 16) => Kernel::Up16,
        (ShuffleMode::Down, 1) => Kernel::Down1,
        (ShuffleMode::Down, 2) => Kernel::Down2,
        (ShuffleMode::Down, 4) => Kernel::Down4,
        (ShuffleMode::Down, 8) => Kernel::Down8,
        (ShuffleMode::Down, 16) => Kernel::Down16,
        _ => return None,
    };
    Some((kernel, 0))
}

fn sorted<V: Copy>(mut all: Vec<(u16, V)>) -> Vec<(u16, V)> {
    all.sort_by_key(|(slot, _)| *slot);
    all
}
