//! Modules with `wgmma` or bulk copies out of shared memory: before every instruction that touches a
//! register of a product, or stores to shared memory, stands an operation that says so. What a register
//! may take over by moves counts as the product's. Other modules have none of these.

use super::Lowering;
use super::visit::Role;
use crate::program::{Access, Class, Matrix, Op, Slot};
use crate::rare::{Generic, Rare, Touches, Wide};
use crate::syntax::{Instruction, Space, Statement, Tree};
use std::collections::HashSet;

/// Whether any function of a module has the asynchronous proxy read what threads stored.
pub(super) fn asynchronous(tree: &Tree<'_>) -> bool {
    any(tree, |ins| {
        let bulk = ["cp.async.bulk", "cp.reduce.async.bulk"];
        let copies = bulk.iter().any(|name| ins.opcode.starts_with(name));
        ins.opcode.starts_with("wgmma.mma_async")
            || copies && ins.opcode.contains(".global.shared::cta")
    })
}

/// Whether such an instruction stands in any function.
pub(super) fn any(tree: &Tree<'_>, is: impl Fn(&Instruction<'_>) -> bool) -> bool {
    let is = |statement: &Statement<'_>| match statement {
        Statement::Instruction(instruction) => is(instruction),
        _ => false,
    };
    tree.functions.iter().flat_map(|f| f.body.iter().flatten()).any(is)
}

impl Lowering<'_, '_> {
    /// Makes room before an instruction; true when [`Lowering::describe`] is to fill it.
    pub(super) fn reserve(&mut self, ins: &Instruction<'_>) -> bool {
        let opcode = ins.opcode;
        // Products look after themselves; what a call inlines has operations of its own.
        if !self.watched || opcode.starts_with("wgmma") || opcode.starts_with("call") {
            return false;
        }
        self.push_rare(Rare::Touches(Box::default()));
        true
    }

    /// Says in the operation at `at` what those behind it touch.
    pub(super) fn describe(&mut self, at: usize) {
        let mut touches = Touches::default();
        for pc in at + 1..self.code.len() {
            let mut op = self.code[pc].op;
            match op {
                Op::Mov32 { d, a } => {
                    touches.copies.push((d, [a; 2]));
                    continue;
                }
                Op::Select32 { d, a, b, .. } => {
                    touches.copies.push((d, [a, b]));
                    continue;
                }
                Op::Store(i) => {
                    let Access { space, .. } = self.accesses[usize::from(i)];
                    if matches!(space, Space::Shared | Space::Generic) {
                        touches.generic = Some(Generic::Store(i));
                    }
                }
                Op::Atomic(i) => {
                    let space = self.atomics[usize::from(i)].space;
                    if matches!(space, Space::Shared | Space::Generic) {
                        touches.generic = Some(Generic::Atomic(i));
                    }
                }
                Op::Matrix(i) => {
                    let stores = |what: &Matrix| matches!(what, Matrix::Store(_) | Matrix::Copy(_));
                    if stores(&self.matrices[usize::from(i)]) {
                        touches.generic = Some(Generic::Matrix(i));
                    }
                }
                _ => {}
            }
            self.visit(&mut op, &mut |role, class, slot| {
                let list = if role == Role::Use { &mut touches.reads } else { &mut touches.writes };
                if class == Class::Word {
                    list.push(*slot);
                }
            });
        }
        if let Op::Rare(i) = self.code[at].op
            && let Rare::Touches(empty) = &mut self.rares[usize::from(i)]
        {
            **empty = touches;
        }
    }

    /// Leaves only what concerns registers of products, and stores.
    pub(super) fn drop_untouched(&mut self) {
        let concerned = self.concerned();
        let mut keep = vec![true; self.code.len()];
        for (pc, instr) in self.code.iter().enumerate() {
            let Op::Rare(i) = instr.op else {
                continue;
            };
            let Rare::Touches(touches) = &mut self.rares[usize::from(i)] else {
                continue;
            };
            touches.reads.retain(|slot| concerned.contains(slot));
            touches.writes.retain(|slot| concerned.contains(slot));
            touches.copies.retain(|(d, _)| concerned.contains(d));
            let empty =
                touches.reads.is_empty() && touches.writes.is_empty() && touches.copies.is_empty();
            keep[pc] = !empty || touches.generic.is_some();
        }
        self.remove(&keep);
    }

    /// Registers of products, and all that moves connect with them.
    fn concerned(&self) -> HashSet<Slot> {
        let constants: HashSet<Slot> = self.words.values().copied().collect();
        let mut concerned = HashSet::new();
        let mut moves = Vec::new();
        for rare in &self.rares {
            match rare {
                Rare::Warpgroup(what) => {
                    concerned.extend(&what.d);
                    if let Wide::Registers(slots) = what.left {
                        concerned.extend(slots);
                    }
                }
                Rare::Touches(touches) => moves.extend(&touches.copies),
                _ => {}
            }
        }
        loop {
            let before = concerned.len();
            for (d, sources) in &moves {
                let known = |slot: &Slot| concerned.contains(slot);
                if known(d) || sources.iter().any(known) {
                    concerned.insert(*d);
                    concerned.extend(sources.iter().filter(|slot| !constants.contains(slot)));
                }
            }
            if concerned.len() == before {
                return concerned;
            }
        }
    }
}
