//! Operands: registers, constants, special registers and addresses become slots.

use super::{Binding, Family, Lower, Lowering, Refusal, bad};
use crate::parse_error::ParseErrorKind;
use crate::program::{Class, Compare, Matrix, Op, Pure, Reg, Slot, Special, Unary};
use crate::space::DATA_BASE;
use crate::syntax::{Operand, Space};

/// A scalar type of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ty {
    pub kind: TyKind,
    pub bits: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TyKind {
    Unsigned,
    Signed,
    Bits,
    Float,
    Bf16,
    F16x2,
    Bf16x2,
    Predicate,
}

impl Ty {
    pub fn parse(name: &str) -> Option<Ty> {
        use TyKind::{Bf16, Bf16x2, Bits, F16x2, Float, Predicate, Signed, Unsigned};
        let (kind, bits) = match name {
            "u8" => (Unsigned, 8),
            "u16" => (Unsigned, 16),
            "u32" => (Unsigned, 32),
            "u64" => (Unsigned, 64),
            "s8" => (Signed, 8),
            "s16" => (Signed, 16),
            "s32" => (Signed, 32),
            "s64" => (Signed, 64),
            "b8" => (Bits, 8),
            "b16" => (Bits, 16),
            "b32" => (Bits, 32),
            "b64" => (Bits, 64),
            "f16" => (Float, 16),
            "f32" => (Float, 32),
            "f64" => (Float, 64),
            "bf16" => (Bf16, 16),
            "f16x2" => (F16x2, 32),
            "bf16x2" => (Bf16x2, 32),
            "pred" => (Predicate, 1),
            _ => return None,
        };
        Some(Ty { kind, bits })
    }

    pub fn class(self) -> Class {
        match self.bits {
            1 => Class::Predicate,
            64 => Class::Long,
            _ => Class::Word,
        }
    }

    pub fn signed(self) -> bool {
        self.kind == TyKind::Signed
    }
}

impl<'a> Lowering<'a, '_> {
    pub(crate) fn fresh(&mut self, class: Class) -> Reg {
        let next = &mut self.next[class as usize];
        *next += 1;
        Reg {
            class,
            // Bounded before each statement; one statement takes far fewer than the rest.
            slot: (*next - 1).min(u32::from(u16::MAX)) as Slot,
        }
    }

    pub(crate) fn fresh_word(&mut self) -> Slot {
        self.fresh(Class::Word).slot
    }

    pub(crate) fn fresh_long(&mut self) -> Slot {
        self.fresh(Class::Long).slot
    }

    pub(crate) fn fresh_predicate(&mut self) -> Slot {
        self.fresh(Class::Predicate).slot
    }

    pub(crate) fn word_constant(&mut self, value: u32) -> Slot {
        if let Some(slot) = self.words.get(&value) {
            return *slot;
        }
        let slot = self.fresh_word();
        self.words.insert(value, slot);
        slot
    }

    pub(crate) fn long_constant(&mut self, value: u64) -> Slot {
        if let Some(slot) = self.longs.get(&value) {
            return *slot;
        }
        let slot = self.fresh_long();
        self.longs.insert(value, slot);
        slot
    }

    pub(crate) fn constant(&mut self, value: u64, class: Class) -> Reg {
        let slot = match class {
            Class::Long => self.long_constant(value),
            _ => self.word_constant(value as u32),
        };
        Reg { class, slot }
    }

    pub(crate) fn special(&mut self, special: Special, long: bool) -> Reg {
        if let Some(reg) = self.specials.get(&(special, long)) {
            return *reg;
        }
        let reg = self.fresh(if long { Class::Long } else { Class::Word });
        self.specials.insert((special, long), reg);
        reg
    }

    /// Slots for a declared register.
    pub(crate) fn new_register(&mut self, class: Class, bits: u8) -> Binding {
        if bits == 128 {
            return Binding::Pair([self.fresh_long(), self.fresh_long()]);
        }
        Binding::Register { reg: self.fresh(class), bits }
    }

    pub(crate) fn lookup(&mut self, name: &'a str) -> Option<Binding> {
        for i in (0..self.scopes.len()).rev() {
            if let Some(binding) = self.scopes[i].names.get(name) {
                return Some(*binding);
            }
            let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
            if prefix.len() < name.len() {
                let found = self.scopes[i].families.iter().find(|(p, _)| *p == prefix);
                if let Some(&(_, Family { class, bits })) = found {
                    let binding = self.new_register(class, bits);
                    self.scopes[i].names.insert(name, binding);
                    return Some(binding);
                }
            }
        }
        if let Some(element) = self.element(name) {
            return Some(element);
        }
        if let Some(offset) = self.data.get(name) {
            return Some(Binding::Data(*offset));
        }
        if let Some(offset) = self.shared_names.get(name) {
            return Some(Binding::Shared(*offset));
        }
        let tree = self.tree;
        let variable =
            tree.variables.iter().find(|v| v.name == name && v.space == Space::Shared)?;
        if variable.external || variable.count == Some(0) {
            self.dynamic_align = self.dynamic_align.max(variable.align_bytes);
            return Some(Binding::DynamicShared);
        }
        let offset = self.place_shared(variable);
        self.shared_names.insert(variable.name, offset);
        Some(Binding::Shared(offset))
    }

    /// The special register of that name, as 32 bits or, with the last value, 64.
    fn special_named(&self, name: &str) -> Option<Special> {
        let axis = |suffix: &str| match suffix {
            "x" => Some(0),
            "y" => Some(1),
            "z" => Some(2),
            _ => None,
        };
        let (head, suffix) = name.split_once('.').unwrap_or((name, ""));
        Some(match head {
            "%tid" => Special::Tid(axis(suffix)?),
            "%ntid" => Special::Ntid(axis(suffix)?),
            "%ctaid" => Special::Ctaid(axis(suffix)?),
            "%nctaid" => Special::Nctaid(axis(suffix)?),
            "%clusterid" => Special::ClusterId(axis(suffix)?),
            "%nclusterid" => Special::ClusterCount(axis(suffix)?),
            "%cluster_ctaid" => Special::ClusterCtaid(axis(suffix)?),
            "%cluster_nctaid" => Special::ClusterNctaid(axis(suffix)?),
            "%cluster_ctarank" => Special::ClusterRank,
            "%cluster_nctarank" => Special::ClusterRanks,
            "%laneid" => Special::Lane,
            "%warpid" => Special::Warp,
            "%nwarpid" => Special::WarpCount,
            "%lanemask_eq" => Special::LaneMaskEq,
            "%lanemask_lt" => Special::LaneMaskLt,
            "%lanemask_le" => Special::LaneMaskLe,
            "%lanemask_gt" => Special::LaneMaskGt,
            "%lanemask_ge" => Special::LaneMaskGe,
            "%dynamic_smem_size" => Special::DynamicShared,
            "%total_smem_size" => Special::TotalShared,
            "%gridid" | "%smid" => Special::Zero,
            _ => return None,
        })
    }

    fn unknown<T>(name: &str) -> Lower<T> {
        Err(Refusal::Wrong(ParseErrorKind::UnknownName(name.to_owned())))
    }

    /// A source operand of `ty`; narrower integer constants are cut to the type.
    pub(crate) fn source(&mut self, operand: &Operand<'a>, ty: Ty) -> Lower<Reg> {
        let class = ty.class();
        match operand {
            Operand::Int(value) if class == Class::Predicate => {
                let slot = self.fresh_predicate();
                let op = if *value != 0 {
                    Op::MovP { d: slot, a: 0 }
                } else {
                    Op::NotP { d: slot, a: 0 }
                };
                self.emit(op);
                Ok(Reg { class, slot })
            }
            Operand::Int(value) => {
                let value = match (ty.kind, ty.bits) {
                    (_, 64) => *value,
                    (_, bits) => *value & ((1 << bits) - 1),
                };
                Ok(self.constant(value, class))
            }
            Operand::F32(bits) if ty.bits == 64 => {
                Ok(self.constant(f64::from(f32::from_bits(*bits)).to_bits(), class))
            }
            Operand::F32(bits) => Ok(self.constant(u64::from(*bits), class)),
            Operand::F64(bits) if ty.bits == 32 => {
                Ok(self.constant(u64::from((f64::from_bits(*bits) as f32).to_bits()), class))
            }
            Operand::F64(bits) => Ok(self.constant(*bits, class)),
            Operand::Name(name) => self.named(name, class),
            Operand::Sum(name, offset) => match self.lookup(name) {
                Some(binding) => self.address_constant(binding, *offset, class),
                None => Self::unknown(name),
            },
            Operand::Element(name, at) => match self.vector_element(name, *at)? {
                (reg, _) if reg.class == class => Ok(reg),
                _ => bad(),
            },
            _ => bad(),
        }
    }

    fn named(&mut self, name: &'a str, class: Class) -> Lower<Reg> {
        if let Some(special) = self.special_named(name) {
            return Ok(self.special(special, class == Class::Long));
        }
        /// Cycles and nanoseconds that pass from one reading to the next.
        const CLOCK_STEP: u32 = 32;
        const TIMER_STEP: u32 = 1024;
        let clock = match (name, class) {
            ("%clock" | "%clock64", _) => Some((CLOCK_STEP, false)),
            ("%clock_hi", _) => Some((CLOCK_STEP, true)),
            ("%globaltimer", Class::Long) | ("%globaltimer_lo", _) => Some((TIMER_STEP, false)),
            ("%globaltimer_hi", _) => Some((TIMER_STEP, true)),
            _ => None,
        };
        if let Some((step, high)) = clock {
            let d = self.fresh(class);
            self.push_matrix(Matrix::Clock { d, step, high });
            return Ok(d);
        }
        match name {
            "WARP_SZ" => return Ok(self.constant(32, class)),
            "%nsmid" => return Ok(self.constant(1, class)),
            "%is_explicit_cluster" if class == Class::Predicate => {
                let a = self.special(Special::ExplicitCluster, false).slot;
                let (d, b) = (self.fresh_predicate(), self.word_constant(0));
                self.emit(Op::Set32 { op: Compare::Ne, d, a, b });
                return Ok(Self::as_predicate(d));
            }
            _ => {}
        }
        match self.lookup(name) {
            Some(Binding::Pair(_)) => Err(Refusal::Unsupported),
            Some(Binding::Register { reg, .. }) if reg.class == class => Ok(reg),
            // A wider register is read by its low bits.
            Some(Binding::Register { reg, .. })
                if reg.class == Class::Long && class == Class::Word =>
            {
                let d = self.fresh_word();
                self.emit(Op::Trunc { d, a: reg.slot });
                Ok(Reg { class, slot: d })
            }
            Some(Binding::Register { .. }) => bad(),
            Some(binding) => self.address_constant(binding, 0, class),
            // These have no reproducible value.
            None if [
                "%clock",
                "%globaltimer",
                "%pm",
                "%envreg",
                "%reserved_smem",
                "%is_",
                "%aggr",
            ]
            .iter()
            .any(|known| name.starts_with(known)) =>
            {
                Err(Refusal::Missing(format!("special register {name}")))
            }
            None if class == Class::Long
                && let Some(address) = super::calls::function_address(self.tree, name) =>
            {
                Ok(self.constant(address, class))
            }
            None => Self::unknown(name),
        }
    }

    fn address_constant(&mut self, binding: Binding, offset: i64, class: Class) -> Lower<Reg> {
        let value = match binding {
            Binding::Shared(at) => u64::from(at),
            Binding::Local(at) => u64::from(at),
            Binding::Parameter { offset } => u64::from(offset),
            Binding::Vector(_) => return bad(),
            Binding::Data(at) => DATA_BASE + at,
            Binding::DynamicShared => {
                let base = self.special(Special::DynamicBase, class == Class::Long);
                if offset == 0 {
                    return Ok(base);
                }
                let extra = self.constant(offset as u64, class);
                let d = self.fresh(class);
                self.emit(if class == Class::Long {
                    Op::Long2 {
                        op: crate::program::Long2::Add,
                        d: d.slot,
                        a: base.slot,
                        b: extra.slot,
                    }
                } else {
                    Op::Binary {
                        op: crate::program::Binary::Add,
                        d: d.slot,
                        a: base.slot,
                        b: extra.slot,
                    }
                });
                return Ok(d);
            }
            Binding::Register { .. } | Binding::Pair(_) => return bad(),
        };
        Ok(self.constant(value.wrapping_add(offset as u64), class))
    }

    pub(crate) fn word(&mut self, operand: &Operand<'a>) -> Lower<Slot> {
        self.source(operand, Ty { kind: TyKind::Bits, bits: 32 }).map(|reg| reg.slot)
    }

    pub(crate) fn long(&mut self, operand: &Operand<'a>) -> Lower<Slot> {
        self.source(operand, Ty { kind: TyKind::Bits, bits: 64 }).map(|reg| reg.slot)
    }

    /// A predicate operand and whether it is negated.
    pub(crate) fn predicate(&mut self, operand: &Operand<'a>) -> Lower<(Slot, bool)> {
        let ty = Ty { kind: TyKind::Predicate, bits: 1 };
        match operand {
            Operand::Not(name) => Ok((self.source(&Operand::Name(name), ty)?.slot, true)),
            other => Ok((self.source(other, ty)?.slot, false)),
        }
    }

    /// A destination register with its width; `_` gives a scratch register of `class`.
    pub(crate) fn destination(&mut self, operand: &Operand<'a>, class: Class) -> Lower<(Reg, u8)> {
        match operand {
            Operand::Name("_") => {
                Ok((self.fresh(class), if class == Class::Long { 64 } else { 32 }))
            }
            Operand::Name(name) => match self.lookup(name) {
                Some(Binding::Pair(_)) => Err(Refusal::Unsupported),
                Some(Binding::Register { reg, bits }) => Ok((reg, bits)),
                Some(_) => bad(),
                None => Self::unknown(name),
            },
            Operand::Element(name, at) => self.vector_element(name, *at),
            _ => bad(),
        }
    }

    /// A destination that must be of `class`.
    pub(crate) fn target(&mut self, operand: &Operand<'a>, class: Class) -> Lower<Slot> {
        match self.destination(operand, class)? {
            (reg, _) if reg.class == class => Ok(reg.slot),
            _ => bad(),
        }
    }

    /// Base register and offset of an address operand, and the space its variable implies.
    pub(crate) fn address(
        &mut self,
        operand: &Operand<'a>,
    ) -> Lower<(Option<Reg>, i64, Option<Space>)> {
        let Operand::Address(base, offset) = operand else {
            return bad();
        };
        let Some(name) = base else {
            return Ok((None, *offset, None));
        };
        match self.lookup(name) {
            Some(Binding::Register { reg, .. }) if reg.class != Class::Predicate => {
                Ok((Some(reg), *offset, None))
            }
            Some(Binding::Register { .. } | Binding::Pair(_) | Binding::Vector(_)) => bad(),
            Some(Binding::Shared(at)) => {
                Ok((None, i64::from(at).wrapping_add(*offset), Some(Space::Shared)))
            }
            Some(Binding::DynamicShared) => {
                Ok((Some(self.special(Special::DynamicBase, true)), *offset, Some(Space::Shared)))
            }
            Some(Binding::Local(at)) => {
                Ok((None, i64::from(at).wrapping_add(*offset), Some(Space::Local)))
            }
            Some(Binding::Parameter { offset: at }) => {
                Ok((None, i64::from(at).wrapping_add(*offset), Some(Space::Param)))
            }
            Some(Binding::Data(at)) => {
                Ok((None, ((DATA_BASE + at) as i64).wrapping_add(*offset), Some(Space::Global)))
            }
            None => Self::unknown(name),
        }
    }

    pub(crate) fn unary(&mut self, op: Unary, a: Slot) -> Slot {
        let d = self.fresh_word();
        self.emit(Op::Unary { op, d, a });
        d
    }

    /// Emits a lane-wise function without an operation of its own.
    pub(crate) fn pure(&mut self, f: fn(u64, u64, u64) -> u64, d: Reg, sources: &[Reg]) {
        let mut all = [Reg { class: Class::Predicate, slot: 0 }; 3];
        all[..sources.len()].copy_from_slice(sources);
        self.pures.push(Pure { f, d, sources: all, count: sources.len() as u8 });
        let index = self.pures.len() - 1;
        self.emit(Op::Pure(index.min(usize::from(u16::MAX)) as u16));
    }

    /// The same into a fresh register of `class`.
    pub(crate) fn pure_fresh(
        &mut self,
        f: fn(u64, u64, u64) -> u64,
        class: Class,
        sources: &[Reg],
    ) -> Reg {
        let d = self.fresh(class);
        self.pure(f, d, sources);
        d
    }

    /// Copies between registers of one class.
    pub(crate) fn copy(&mut self, d: Reg, a: Reg) {
        let (slot, a) = (d.slot, a.slot);
        self.emit(match d.class {
            Class::Predicate => Op::MovP { d: slot, a },
            Class::Word => Op::Mov32 { d: slot, a },
            Class::Long => Op::Mov64 { d: slot, a },
        });
    }

    pub(crate) fn as_word(slot: Slot) -> Reg {
        Reg { class: Class::Word, slot }
    }

    pub(crate) fn as_long(slot: Slot) -> Reg {
        Reg { class: Class::Long, slot }
    }

    pub(crate) fn as_predicate(slot: Slot) -> Reg {
        Reg { class: Class::Predicate, slot }
    }
}
