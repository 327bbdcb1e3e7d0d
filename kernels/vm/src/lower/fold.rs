//! Fewer operations: additions to addresses become part of the access, a product's addition part
//! of the product, halves put together and taken apart cancel, and what nobody reads is dropped.
//! Every register keeps its value wherever it is still read, and whatever may fault, compare or
//! branch stays: results, faults and edges are those of the plain translation.

use super::Lowering;
use super::visit::Role;
use crate::program::{Class, Instr, Long2, Matrix, Op, Reg, Slot, Special};
use std::collections::{HashMap, HashSet};

/// What a block's operations up to some place have defined: where each register was set last.
/// Lanes that reach that place together came through the whole block before it, each with
/// registers of its own.
type Latest = HashMap<Reg, usize>;

fn long(slot: Slot) -> Reg {
    Reg { class: Class::Long, slot }
}

fn word(slot: Slot) -> Reg {
    Reg { class: Class::Word, slot }
}

/// Values known before the first operation.
struct Known {
    longs: HashMap<Slot, u64>,
    /// Long registers that hold one value in all lanes of a block and are never set.
    uniform: HashSet<Slot>,
    /// How often each register is read.
    uses: HashMap<Reg, u32>,
}

/// The address of a memory operation, as far as it can be changed.
struct Address<'a> {
    base: &'a mut Option<Reg>,
    offset: &'a mut i64,
    /// A uniform register to add, where the operation can.
    plus: Option<&'a mut Option<Slot>>,
}

impl Lowering<'_, '_> {
    /// Simplifies the operations of each block; what becomes superfluous stays.
    pub(super) fn fold(&mut self, starts: &[u32]) {
        let known = Known {
            longs: self.longs.iter().map(|(value, slot)| (*slot, *value)).collect(),
            uniform: self
                .parameter_slots
                .values()
                .chain(self.specials.iter().filter_map(|((special, _), reg)| {
                    matches!(special, Special::DynamicBase | Special::Ctaid(_)).then_some(reg)
                }))
                .filter(|reg| reg.class == Class::Long)
                .map(|reg| reg.slot)
                .collect(),
            uses: self.count_uses(),
        };
        for (block, start) in starts.iter().enumerate() {
            let end = starts.get(block + 1).map_or(self.code.len(), |s| *s as usize);
            let mut latest = Latest::new();
            for pc in *start as usize..end {
                self.fold_address(pc, &latest, &known);
                if let Some(op) = self.folded(pc, &latest, &known) {
                    self.code[pc].op = op;
                }
                let mut op = self.code[pc].op;
                self.visit(&mut op, &mut |role, class, slot| {
                    if role == Role::Define {
                        latest.insert(Reg { class, slot: *slot }, pc);
                    }
                });
            }
        }
    }

    /// The operation that set a register last, if it did so for every lane here and its own
    /// operands still hold what they held then.
    fn source_of(&self, reg: Reg, latest: &Latest) -> Option<Op> {
        let at = *latest.get(&reg)?;
        let Instr { op, guard: 0, .. } = self.code[at] else {
            return None;
        };
        let operands = match op {
            Op::Long2 { a, b, .. } => [Some(long(a)), Some(long(b))],
            Op::Zext { a, .. } | Op::Sext { a, .. } => [Some(word(a)), None],
            Op::MulWideS { a, b, .. } | Op::MulWideU { a, b, .. } | Op::Join { a, b, .. } => {
                [Some(word(a)), Some(word(b))]
            }
            _ => return None,
        };
        let same = |reg: &Reg| latest.get(reg).is_none_or(|set| *set < at);
        operands.iter().flatten().all(same).then_some(op)
    }

    /// A simpler operation with the same result.
    fn folded(&self, pc: usize, latest: &Latest, known: &Known) -> Option<Op> {
        match self.code[pc].op {
            Op::Trunc { d, a } => match self.source_of(long(a), latest)? {
                Op::Zext { a, .. } | Op::Sext { a, .. } | Op::Join { a, .. } => {
                    Some(Op::Mov32 { d, a })
                }
                _ => None,
            },
            Op::Long2 { op: Long2::Add, d, a, b } => {
                let product = |product: Slot, c: Slot| {
                    if known.uses.get(&long(product)) != Some(&1) {
                        return None;
                    }
                    match self.source_of(long(product), latest)? {
                        Op::MulWideS { a, b, .. } => Some(Op::MadWideS { d, a, b, c }),
                        Op::MulWideU { a, b, .. } => Some(Op::MadWideU { d, a, b, c }),
                        _ => None,
                    }
                };
                product(a, b).or_else(|| product(b, a))
            }
            _ => None,
        }
    }

    /// Moves additions to the base of a memory operation into the operation.
    fn fold_address(&mut self, pc: usize, latest: &Latest, known: &Known) {
        // Each round takes one addition into the access; a chain of them is short.
        while let Some((base, offset, plus)) = self.nearer(pc, latest, known) {
            let Some(address) = self.address_of(pc) else {
                return;
            };
            *address.base = Some(base);
            *address.offset = offset;
            if let Some(to) = address.plus
                && plus.is_some()
            {
                *to = plus;
            }
        }
    }

    /// The same address one addition nearer to its origin: base, offset, uniform register.
    fn nearer(
        &mut self,
        pc: usize,
        latest: &Latest,
        known: &Known,
    ) -> Option<(Reg, i64, Option<Slot>)> {
        let address = self.address_of(pc)?;
        let offset = *address.offset;
        let may_add = address.plus.is_some_and(|plus| plus.is_none());
        let base = (*address.base)?;
        if base.class != Class::Long {
            return None;
        }
        match self.source_of(base, latest)? {
            Op::Zext { a, .. } => Some((word(a), offset, None)),
            Op::Long2 { op: Long2::Add, a, b, .. } => {
                for (rest, term) in [(a, b), (b, a)] {
                    if let Some(value) = known.longs.get(&term) {
                        return Some((long(rest), offset.wrapping_add(*value as i64), None));
                    }
                }
                for (rest, term) in [(a, b), (b, a)] {
                    if may_add && known.uniform.contains(&term) {
                        return Some((long(rest), offset, Some(term)));
                    }
                }
                None
            }
            _ => None,
        }
    }

    fn address_of(&mut self, pc: usize) -> Option<Address<'_>> {
        match self.code[pc].op {
            Op::Load(i) | Op::Store(i) => {
                let access = &mut self.accesses[usize::from(i)];
                Some(Address {
                    base: &mut access.base,
                    offset: &mut access.offset,
                    plus: Some(&mut access.plus),
                })
            }
            Op::Atomic(i) => {
                let atomic = &mut self.atomics[usize::from(i)];
                Some(Address { base: &mut atomic.base, offset: &mut atomic.offset, plus: None })
            }
            Op::Matrix(i) => match &mut self.matrices[usize::from(i)] {
                Matrix::Load(what) | Matrix::Store(what) => {
                    Some(Address { base: &mut what.base, offset: &mut what.offset, plus: None })
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn count_uses(&mut self) -> HashMap<Reg, u32> {
        let mut uses = HashMap::new();
        for pc in 0..self.code.len() {
            let Instr { mut op, guard, .. } = self.code[pc];
            if guard != 0 {
                *uses.entry(Reg { class: Class::Predicate, slot: guard }).or_insert(0) += 1;
            }
            self.visit(&mut op, &mut |role, class, slot| {
                if role == Role::Use {
                    *uses.entry(Reg { class, slot: *slot }).or_insert(0) += 1;
                }
            });
        }
        uses
    }

    /// Drops results that nobody reads, and the operations that have no other effect. No block
    /// becomes empty: whoever counts blocks finds them all.
    pub(super) fn drop_unread(&mut self, starts: &[u32]) {
        let mut uses = self.count_uses();
        let read = |uses: &HashMap<Reg, u32>, reg: Reg| uses.get(&reg).is_some_and(|n| *n > 0);
        for shuffle in &mut self.shuffles {
            let unread = |p: &Slot| !read(&uses, Reg { class: Class::Predicate, slot: *p });
            if shuffle.p.as_ref().is_some_and(unread) {
                shuffle.p = None;
            }
        }
        let mut keep = vec![true; self.code.len()];
        let mut block_end = self.code.len();
        // Backwards, so that what only dropped operations read is dropped as well.
        for pc in (0..self.code.len()).rev() {
            let Instr { mut op, guard, .. } = self.code[pc];
            let first = starts.binary_search(&(pc as u32)).is_ok();
            let last_left = first && !keep[pc + 1..block_end].contains(&true);
            if first {
                block_end = pc;
            }
            if !computes(op) || last_left {
                continue;
            }
            let mut operands = Vec::new();
            let mut needed = false;
            self.visit(&mut op, &mut |role, class, slot| {
                let reg = Reg { class, slot: *slot };
                match role {
                    Role::Define => needed |= read(&uses, reg),
                    Role::Use => operands.push(reg),
                }
            });
            if needed {
                continue;
            }
            keep[pc] = false;
            if guard != 0 {
                operands.push(Reg { class: Class::Predicate, slot: guard });
            }
            for reg in operands {
                uses.entry(reg).and_modify(|n| *n -= 1);
            }
        }
        self.remove(&keep);
    }
}

/// Whether an operation sets registers and does nothing else. Comparisons are told to the fuzzer.
fn computes(op: Op) -> bool {
    !matches!(
        op,
        Op::Set32 { .. }
            | Op::Set64 { .. }
            | Op::Load(_)
            | Op::Store(_)
            | Op::Atomic(_)
            | Op::Branch { .. }
            | Op::BranchTable(_)
            | Op::Exit
            | Op::Barrier(_)
            | Op::WarpSync { .. }
            | Op::Fence
            | Op::Shuffle(_)
            | Op::Vote(_)
            | Op::Matrix(_)
            | Op::Rare(_)
            | Op::Trap
            | Op::Unsupported(_)
    )
}
