//! Addresses of other blocks' shared memory, and stores there that an mbarrier counts.

use super::memory::space_of;
use super::operand::{Ty, TyKind};
use super::{Lower, Lowering, Refusal, bad};
use crate::program::{Atomic, Class, Scope, Special};
use crate::rare::{AsyncStore, Rare};
use crate::space::{SHARED_BASE, WINDOW_BYTES, at_rank, rank_of};
use crate::syntax::{Instruction, Operand, Space};

/// Leads nowhere, as does what is no shared address.
const NOWHERE: u64 = u64::MAX;

impl<'a> Lowering<'a, '_> {
    /// `mapa` and `getctarank`. A rank that the cluster lacks gives an address that leads nowhere.
    pub(super) fn cluster(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let own = self.special(Special::ClusterRank, false);
        match (parts, ins.operands.as_slice()) {
            (["mapa", "shared::cluster", "u32"], [d, a, rank]) => {
                let d = Self::as_word(self.target(d, Class::Word)?);
                let [a, rank] = [self.word(a)?, self.word(rank)?].map(Self::as_word);
                self.pure(at_rank, d, &[a, rank, own]);
            }
            (["mapa", "shared::cluster", "u64"], [d, a, rank]) => {
                let d = Self::as_long(self.target(d, Class::Long)?);
                let sources = [Self::as_long(self.long(a)?), Self::as_word(self.word(rank)?), own];
                self.pure(at_rank, d, &sources);
            }
            (["mapa", "u64"], [d, a, rank]) => {
                fn generic(a: u64, rank: u64, own: u64) -> u64 {
                    match a.wrapping_sub(SHARED_BASE) {
                        offset @ 0..WINDOW_BYTES => SHARED_BASE + at_rank(offset, rank, own),
                        _ => NOWHERE,
                    }
                }
                let d = Self::as_long(self.target(d, Class::Long)?);
                let sources = [Self::as_long(self.long(a)?), Self::as_word(self.word(rank)?), own];
                self.pure(generic, d, &sources);
            }
            (["getctarank", "shared::cluster", "u32"], [d, a]) => {
                let d = Self::as_word(self.target(d, Class::Word)?);
                let a = Self::as_word(self.word(a)?);
                self.pure(|a, own, _| rank_of(a, own), d, &[a, own]);
            }
            (["getctarank", "shared::cluster", "u64"], [d, a]) => {
                let d = Self::as_word(self.target(d, Class::Word)?);
                let a = Self::as_long(self.long(a)?);
                self.pure(|a, own, _| rank_of(a, own), d, &[a, own]);
            }
            (["getctarank", "u64"], [d, a]) => {
                let d = Self::as_word(self.target(d, Class::Word)?);
                let a = Self::as_long(self.long(a)?);
                self.pure(|a, own, _| rank_of(a.wrapping_sub(SHARED_BASE), own), d, &[a, own]);
            }
            _ => return Err(Refusal::Unsupported),
        }
        Ok(())
    }

    /// `st.async` and `red.async`.
    pub(super) fn async_store(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let counted = parts.contains(&"mbarrier::complete_tx::bytes");
        let name = parts.last().copied().unwrap_or_default();
        let ty = Ty::parse(name).ok_or(Refusal::Unsupported)?;
        let whole = matches!(ty.bits, 32 | 64);
        if !counted || !whole || space_of(parts) != Space::Cluster {
            return Err(Refusal::Unsupported);
        }
        let [at, value, counts] = ins.operands.as_slice() else {
            return bad();
        };
        let list = match value {
            Operand::Vector(list) => list.as_slice(),
            single => std::slice::from_ref(single),
        };
        let vector = match parts[parts.len() - 2] {
            "v2" => 2,
            "v4" => 4,
            _ => 1,
        };
        if list.len() != vector || vector * usize::from(ty.bits) > 128 {
            return bad();
        }
        let known = ["weak", "relaxed", "cluster", "shared::cluster", "v2", "v4"];
        let rest: Vec<&str> = parts[2..parts.len() - 1]
            .iter()
            .copied()
            .filter(|p| !known.contains(p) && *p != "mbarrier::complete_tx::bytes")
            .collect();
        let reduces = match (parts[0], rest.as_slice()) {
            ("st", []) => None,
            ("red", [operation]) if vector == 1 => {
                Some(super::memory::reduction(operation, ty).ok_or(Refusal::Unsupported)?)
            }
            _ => return Err(Refusal::Unsupported),
        };
        let (at, counts) = (self.at(at, Space::Cluster)?, self.at(counts, Space::Cluster)?);
        let ty = Ty { kind: TyKind::Bits, ..ty };
        let mut regs = [Self::as_word(0); 4];
        for (reg, value) in regs.iter_mut().zip(list) {
            *reg = self.source(value, ty)?;
        }
        let reduces = reduces.map(|op| Atomic {
            op,
            space: Space::Cluster,
            width_bytes: ty.bits / 8,
            d: None,
            base: None,
            offset: 0,
            a: regs[0],
            b: regs[0],
            release: false,
            scope: Scope::Wide,
        });
        let (count, width_bytes) = (vector as u8, ty.bits / 8);
        self.push_rare(Rare::Async(AsyncStore { at, counts, regs, count, width_bytes, reduces }));
        Ok(())
    }
}
