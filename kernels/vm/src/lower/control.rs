//! Branches, calls, barriers and fences.

use super::memory::space_of;
use super::{Fixup, FixupAt, Lower, Lowering, Refusal, bad};
use crate::parse_error::ParseErrorKind;
use crate::program::{Barrier, BarrierKind, Class, Op, Table};
use crate::rare::Rare;
use crate::syntax::{Instruction, Operand};

/// What `membar` and `fence` may bear.
const FENCES: &[&str] = &[
    "cta",
    "gl",
    "sys",
    "gpu",
    "cluster",
    "sc",
    "acq_rel",
    "acquire",
    "release",
    "proxy",
    "alias",
    "tensormap::generic",
    "async",
    "global",
    "shared::cta",
    "shared::cluster",
    "mbarrier_init",
    "sync_restrict::shared::cta",
    "sync_restrict::shared::cluster",
];

impl<'a> Lowering<'a, '_> {
    pub(super) fn control(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        match parts[0] {
            "bra" => self.branch(ins),
            "brx" => self.branch_table(ins),
            "ret" => {
                match self.return_to {
                    None => self.emit(Op::Exit),
                    Some(label) => {
                        self.return_branches.push((self.code.len(), label));
                        self.emit_branch();
                    }
                }
                Ok(())
            }
            "exit" => {
                self.emit(Op::Exit);
                Ok(())
            }
            "call" => self.call(ins),
            "trap" | "brkpt" => {
                self.emit(Op::Trap);
                Ok(())
            }
            "bar" | "barrier" => self.barrier(ins, parts),
            // One warp at a time runs and every store is visible at once: a fence only orders.
            "membar" | "fence" if parts[1..].iter().all(|part| FENCES.contains(part)) => {
                let wide = |part: &&str| matches!(*part, "gl" | "gpu" | "sys");
                let narrow = |part: &&str| matches!(*part, "proxy" | "mbarrier_init");
                if parts.iter().any(wide) && !parts.iter().any(narrow) {
                    self.emit(Op::Fence);
                } else if parts.contains(&"cluster") && !parts.iter().any(narrow) {
                    self.push_rare(Rare::ClusterFence);
                } else if parts.contains(&"cta") && !parts.iter().any(narrow) {
                    self.push_rare(Rare::BlockFence);
                }
                let proxy = ["proxy", "async"].iter().all(|part| parts.contains(part));
                if self.watched && proxy && !parts.contains(&"global") {
                    self.push_rare(Rare::ProxyFence);
                }
                Ok(())
            }
            "discard" => match (parts, ins.operands.as_slice()) {
                (["discard", "L2"] | ["discard", "global", "L2"], [at, Operand::Int(128)]) => {
                    let at = self.at(at, space_of(parts))?;
                    self.push_rare(Rare::Discard(at));
                    Ok(())
                }
                _ => bad(),
            },
            "nanosleep" | "pmevent" | "prefetch" | "prefetchu" | "griddepcontrol"
            | "setmaxnreg" | "applypriority" => Ok(()),
            _ => Err(Refusal::Unsupported),
        }
    }

    /// Emits a branch whose target is patched later.
    pub(super) fn emit_branch(&mut self) {
        let edge = self.edges;
        self.edges += if self.guard.0 == 0 { 1 } else { 2 };
        self.emit(Op::Branch { target: 0, edge: edge.min(u32::from(u16::MAX)) as u16 });
    }

    fn branch(&mut self, ins: &Instruction<'a>) -> Lower<()> {
        let [Operand::Name(label)] = ins.operands.as_slice() else {
            return bad();
        };
        self.fixups.push(Fixup {
            at: FixupAt::Branch(self.code.len()),
            scopes: self.scope_chain(),
            label,
            line: ins.line,
        });
        self.emit_branch();
        Ok(())
    }

    fn branch_table(&mut self, ins: &Instruction<'a>) -> Lower<()> {
        let [index, Operand::Name(list)] = ins.operands.as_slice() else {
            return bad();
        };
        let index = self.word(index)?;
        let found = self.scopes.iter().rev().find_map(|s| s.branch_targets.get(list));
        let Some(labels) = found.cloned() else {
            return Err(Refusal::Wrong(ParseErrorKind::UnknownLabel((*list).to_owned())));
        };
        let table = self.tables.len();
        for (i, label) in labels.iter().enumerate() {
            self.fixups.push(Fixup {
                at: FixupAt::Table(table, i),
                scopes: self.scope_chain(),
                label,
                line: ins.line,
            });
        }
        self.tables.push(Table {
            index,
            targets: vec![0; labels.len()],
            edge: self.edges.min(u32::from(u16::MAX)) as u16,
        });
        self.edges += labels.len() as u32;
        self.emit(Op::BranchTable(table as u16));
        Ok(())
    }

    fn barrier(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        if let ["barrier", "cluster", action, rest @ ..] = parts {
            let kind = match *action {
                "arrive" => BarrierKind::ClusterArrive { release: !rest.contains(&"relaxed") },
                "wait" => BarrierKind::ClusterWait,
                _ => return Err(Refusal::Unsupported),
            };
            let known = ["release", "acquire", "relaxed", "aligned"];
            if !rest.iter().all(|part| known.contains(part)) {
                return Err(Refusal::Unsupported);
            }
            if !ins.operands.is_empty() {
                return bad();
            }
            let (id, aligned) = (self.word_constant(0), rest.contains(&"aligned"));
            let barrier = Barrier { kind, id, count: None, d: None, p: 0, negate: false, aligned };
            self.barriers.push(barrier);
            self.emit(Op::Barrier(self.barriers.len() as u16 - 1));
            return Ok(());
        }
        if parts.contains(&"warp") {
            let [members] = ins.operands.as_slice() else {
                return bad();
            };
            let members = self.word(members)?;
            self.emit(Op::WarpSync { members });
            return Ok(());
        }
        let action = parts.iter().find(|p| matches!(**p, "sync" | "arrive" | "red"));
        let (kind, mut rest) = match action {
            Some(&"sync") => (BarrierKind::Sync, ins.operands.as_slice()),
            Some(&"arrive") => (BarrierKind::Arrive, ins.operands.as_slice()),
            Some(&"red") => {
                let kind = if parts.contains(&"popc") {
                    BarrierKind::RedPopc
                } else if parts.contains(&"and") {
                    BarrierKind::RedAnd
                } else {
                    BarrierKind::RedOr
                };
                (kind, ins.operands.as_slice())
            }
            _ => return Err(Refusal::Unsupported),
        };
        let aligned = parts[0] == "bar" || parts.contains(&"aligned");
        let mut barrier =
            Barrier { kind, id: 0, count: None, d: None, p: 0, negate: false, aligned };
        if matches!(kind, BarrierKind::RedPopc | BarrierKind::RedAnd | BarrierKind::RedOr) {
            let [d, middle @ .., p] = rest else {
                return bad();
            };
            let class = if kind == BarrierKind::RedPopc { Class::Word } else { Class::Predicate };
            let slot = self.target(d, class)?;
            barrier.d = Some(crate::program::Reg { class, slot });
            (barrier.p, barrier.negate) = self.predicate(p)?;
            rest = middle;
        }
        match rest {
            [id] => barrier.id = self.word(id)?,
            [id, count] => {
                barrier.id = self.word(id)?;
                barrier.count = Some(self.word(count)?);
            }
            _ => return bad(),
        }
        self.barriers.push(barrier);
        self.emit(Op::Barrier(self.barriers.len() as u16 - 1));
        Ok(())
    }
}
