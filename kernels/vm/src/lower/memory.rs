//! Loads, stores, atomics, address conversions and moves.

use super::operand::{Ty, TyKind};
use super::{Binding, Lower, Lowering, Refusal, bad};
use crate::program::{Access, Atomic, AtomicOp, Binary, Class, Long2, Op, Reg, Scope, Slot, Unary};
use crate::space::{DATA_BASE, LOCAL_BASE, OWN_BYTES, PARAM_BASE, SHARED_BASE, WINDOW_BYTES};
use crate::syntax::{Instruction, Operand, Space};

pub(super) fn space_of(parts: &[&str]) -> Space {
    for part in parts {
        match part.split("::").next().unwrap_or_default() {
            "global" => return Space::Global,
            "shared" if *part == "shared::cluster" => return Space::Cluster,
            "shared" => return Space::Shared,
            "local" => return Space::Local,
            "const" => return Space::Const,
            "param" => return Space::Param,
            _ => {}
        }
    }
    Space::Generic
}

/// Whether an access does not race with its like. `.cv` and `.wt` go around the caches, as
/// `.volatile` does.
pub(super) fn is_strong(parts: &[&str]) -> bool {
    let strong =
        |p: &&str| matches!(*p, "volatile" | "relaxed" | "acquire" | "release" | "cv" | "wt");
    parts.iter().any(strong)
}

/// Among whom a strong access is one.
pub(super) fn scope(parts: &[&str]) -> Scope {
    match parts.iter().find(|part| matches!(**part, "cta" | "cluster" | "gpu" | "sys")) {
        Some(&"cta") => Scope::Block,
        Some(&"cluster") => Scope::Cluster,
        _ => Scope::Wide,
    }
}

/// Whether a fence comes before an atomic.
pub(super) fn releases(parts: &[&str]) -> bool {
    parts.iter().any(|part| matches!(*part, "release" | "acq_rel"))
}

/// What an atomic of that name does to values of a type.
pub(super) fn reduction(name: &str, ty: Ty) -> Option<AtomicOp> {
    Some(match (name, ty.signed()) {
        ("add", _) => match (ty.kind, ty.bits) {
            (TyKind::Float, 32) => AtomicOp::AddF32,
            (TyKind::Float, 64) => AtomicOp::AddF64,
            (TyKind::Float, _) => AtomicOp::AddF16,
            (TyKind::F16x2, _) => AtomicOp::AddF16x2,
            (TyKind::Bf16x2, _) => AtomicOp::AddBf16x2,
            (TyKind::Bf16, _) => AtomicOp::AddBf16,
            _ => AtomicOp::AddInt,
        },
        ("min", true) => AtomicOp::MinS,
        ("min", false) => AtomicOp::MinU,
        ("max", true) => AtomicOp::MaxS,
        ("max", false) => AtomicOp::MaxU,
        ("exch", _) => AtomicOp::Exchange,
        ("cas", _) => AtomicOp::CompareSwap,
        ("and", _) => AtomicOp::And,
        ("or", _) => AtomicOp::Or,
        ("xor", _) => AtomicOp::Xor,
        ("inc", _) => AtomicOp::Increment,
        ("dec", _) => AtomicOp::Decrement,
        _ => return None,
    })
}

impl<'a> Lowering<'a, '_> {
    pub(super) fn memory(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        if parts.last() == Some(&"b128") && parts[0] != "red" {
            return self.quad(ins, parts);
        }
        match parts[0] {
            "ld" | "ldu" => self.load(ins, parts),
            "st" => self.store(ins, parts),
            "atom" | "red" => self.atomic(ins, parts),
            "cvta" => self.convert_address(ins, parts),
            "isspacep" => self.is_space(ins, parts),
            "mov" => self.mov(ins, parts),
            _ => Err(Refusal::Unsupported),
        }
    }

    fn access(
        &mut self,
        parts: &[&str],
        address: &Operand<'a>,
        values: &Operand<'a>,
        load: bool,
    ) -> Lower<Access> {
        let ty = parts.last().and_then(|name| Ty::parse(name)).ok_or(Refusal::Unsupported)?;
        if parts.contains(&"mmio") {
            return Err(Refusal::Unsupported);
        }
        let (base, offset, implied) = self.address(address)?;
        let mut space = space_of(parts);
        if let Some(implied) = implied {
            if space == Space::Generic || (space == Space::Param && implied == Space::Local) {
                space = implied;
            } else if space == Space::Const && implied == Space::Global {
                space = Space::Global;
            }
        }
        let elements = self.elements_of(values);
        let list = match (&elements, values) {
            (Some(elements), _) => elements.as_slice(),
            (None, Operand::Vector(list)) => list.as_slice(),
            (None, single) => std::slice::from_ref(single),
        };
        // Vectors of 2, 4 or 8 elements and at most 32 bytes.
        let counted = list.len() <= 8 && list.len().is_power_of_two();
        if !counted || ty.bits < 8 || list.len() * usize::from(ty.bits / 8) > 32 {
            return bad();
        }
        let mut access = Access {
            space,
            width_bytes: ty.bits / 8,
            count: list.len() as u8,
            signed: ty.signed(),
            half: false,
            regs: [Reg { class: ty.class(), slot: 0 }; 8],
            base,
            offset,
            plus: None,
            strong: is_strong(parts),
            release: parts.contains(&"release"),
            scope: scope(parts),
        };
        for (i, value) in list.iter().enumerate() {
            access.regs[i] = if load {
                let (reg, bits) = self.destination(value, ty.class())?;
                if bits < ty.bits || reg.class == Class::Predicate {
                    return bad();
                }
                access.half = bits == 16 || (bits == 8);
                reg
            } else if let Operand::Name(name) = value
                && let Some(Binding::Register { reg, .. }) = self.lookup(name)
                && reg.class != Class::Predicate
            {
                reg
            } else {
                self.source(value, ty)?
            };
        }
        Ok(access)
    }

    fn load(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let [values, address] = ins.operands.as_slice() else {
            // A cache policy operand changes nothing here.
            let [values, address, _] = ins.operands.as_slice() else {
                return bad();
            };
            return self.load_from(parts, values, address);
        };
        self.load_from(parts, values, address)
    }

    fn load_from(
        &mut self,
        parts: &[&str],
        values: &Operand<'a>,
        address: &Operand<'a>,
    ) -> Lower<()> {
        if let Operand::Address(Some(name), 0) = address
            && let Some(Binding::Register { reg, .. }) = self.lookup(name)
            && space_of(parts) == Space::Param
            && self.calls.len() > 1
        {
            // A `.reg` parameter of an inlined function.
            let d = self.destination(values, reg.class)?.0;
            if d.class == reg.class {
                self.copy(d, reg);
                return Ok(());
            }
        }
        let access = self.access(parts, address, values, true)?;
        if access.space == Space::Param && access.base.is_none() && self.guard.0 == 0 {
            for i in 0..usize::from(access.count) {
                let at = access.offset.wrapping_add(i as i64 * i64::from(access.width_bytes));
                let d = access.regs[i];
                let key = (at as u32, access.width_bytes, access.signed, d.class);
                let slot = match self.parameter_slots.get(&key) {
                    Some(slot) => *slot,
                    None => {
                        let slot = self.fresh(d.class);
                        self.parameter_slots.insert(key, slot);
                        slot
                    }
                };
                if access.half && access.signed && access.width_bytes < 2 {
                    self.emit(Op::Unary { op: Unary::Low16, d: d.slot, a: slot.slot });
                } else {
                    self.copy(d, slot);
                }
            }
            return Ok(());
        }
        self.accesses.push(access);
        self.emit(Op::Load(self.accesses.len() as u16 - 1));
        Ok(())
    }

    fn store(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let (address, values) = match ins.operands.as_slice() {
            [address, values] | [address, values, _] => (address, values),
            _ => return bad(),
        };
        if parts.contains(&"async") || parts.contains(&"bulk") {
            return Err(Refusal::Unsupported);
        }
        let access = self.access(parts, address, values, false)?;
        if access.space == Space::Param {
            return Err(Refusal::Unsupported);
        }
        self.accesses.push(access);
        self.emit(Op::Store(self.accesses.len() as u16 - 1));
        Ok(())
    }

    fn atomic(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        if parts.iter().any(|part| matches!(*part, "v2" | "v4" | "v8")) {
            return self.atomic_vector(ins, parts);
        }
        self.atomic_element(&ins.operands, parts, 0)
    }

    /// One atomic, or the `element`-th of a vector's.
    pub(super) fn atomic_element(
        &mut self,
        operands: &[Operand<'a>],
        parts: &[&str],
        element: usize,
    ) -> Lower<()> {
        let ty = parts.last().and_then(|name| Ty::parse(name)).ok_or(Refusal::Unsupported)?;
        let operation =
            parts.iter().find_map(|part| reduction(part, ty)).ok_or(Refusal::Unsupported)?;
        let floating = !matches!(ty.kind, TyKind::Unsigned | TyKind::Signed | TyKind::Bits);
        if floating && matches!(operation, AtomicOp::MinU | AtomicOp::MaxU) {
            return Err(Refusal::Unsupported);
        }
        let mut operands = operands;
        let mut d = None;
        if parts[0] == "atom" {
            let [first, rest @ ..] = operands else {
                return bad();
            };
            if !matches!(first, Operand::Name("_")) {
                let (reg, _) = self.destination(first, ty.class())?;
                if reg.class != ty.class() {
                    return bad();
                }
                d = Some(reg);
            }
            operands = rest;
        }
        let (address, a, b) = match operands {
            [address, a] => (address, a, None),
            [address, a, b] if operation == AtomicOp::CompareSwap => (address, a, Some(b)),
            [address, a, _] => (address, a, None),
            _ => return bad(),
        };
        let (base, offset, implied) = self.address(address)?;
        let offset = offset.wrapping_add((element * usize::from(ty.bits / 8)) as i64);
        let mut space = space_of(parts);
        if space == Space::Generic
            && let Some(implied) = implied
        {
            space = implied;
        }
        let a = self.source(a, ty)?;
        let b = match b {
            Some(b) => self.source(b, ty)?,
            None => a,
        };
        self.atomics.push(Atomic {
            op: operation,
            space,
            width_bytes: ty.bits / 8,
            d,
            base,
            offset,
            a,
            b,
            release: releases(parts),
            scope: scope(parts),
        });
        self.emit(Op::Atomic(self.atomics.len() as u16 - 1));
        Ok(())
    }

    fn convert_address(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let [d, a] = ins.operands.as_slice() else {
            return bad();
        };
        let to = parts.get(1) == Some(&"to");
        let base = match space_of(parts) {
            Space::Shared | Space::Cluster => SHARED_BASE,
            Space::Local => LOCAL_BASE,
            Space::Param => PARAM_BASE,
            _ => 0,
        };
        let long = parts.last() == Some(&"u64");
        if !long {
            return Err(Refusal::Unsupported);
        }
        let d = self.target(d, Class::Long)?;
        let a = self.long(a)?;
        if base == 0 {
            self.emit(Op::Mov64 { d, a });
        } else {
            let b = self.long_constant(if to { base.wrapping_neg() } else { base });
            self.emit(Op::Long2 { op: Long2::Add, d, a, b });
        }
        Ok(())
    }

    /// A cache policy changes no value: any number stands for it.
    pub(super) fn policy(&mut self, ins: &Instruction<'a>) -> Lower<()> {
        let d = self.target(ins.operands.first().ok_or(Refusal::Unsupported)?, Class::Long)?;
        let a = self.long_constant(0);
        self.emit(Op::Mov64 { d, a });
        Ok(())
    }

    fn is_space(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let [d, a] = ins.operands.as_slice() else {
            return bad();
        };
        fn within(a: u64, base: u64) -> u64 {
            u64::from(a.wrapping_sub(base) < WINDOW_BYTES)
        }
        let f: fn(u64, u64, u64) -> u64 = match space_of(parts) {
            Space::Shared => |a, _, _| u64::from(a.wrapping_sub(SHARED_BASE) < OWN_BYTES),
            Space::Cluster => |a, _, _| within(a, SHARED_BASE),
            Space::Local => |a, _, _| within(a, LOCAL_BASE),
            Space::Param => |a, _, _| within(a, PARAM_BASE),
            // Parameters lie in the window of global memory.
            Space::Global => |a, constants, _| {
                let variable = a.wrapping_sub(DATA_BASE) < constants;
                u64::from(a >= 1 << 40 || variable) | within(a, PARAM_BASE)
            },
            Space::Const => |a, constants, _| {
                let at = a.wrapping_sub(DATA_BASE);
                u64::from(at < WINDOW_BYTES && at >= constants)
            },
            _ => return Err(Refusal::Unsupported),
        };
        let d = self.target(d, Class::Predicate)?;
        let a = self.long(a)?;
        let constants = self.constant(self.constants, Class::Long);
        self.pure(f, Self::as_predicate(d), &[Self::as_long(a), constants]);
        Ok(())
    }

    fn mov(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let ty = parts.last().and_then(|name| Ty::parse(name)).ok_or(Refusal::Unsupported)?;
        if let ["mov", of @ ("v2" | "v4"), _] = parts {
            return self.move_vector(ins, if *of == "v2" { 2 } else { 4 }, ty);
        }
        match ins.operands.as_slice() {
            [Operand::Vector(list), a] => self.unpack(list, a, ty),
            [d, Operand::Vector(list)] => self.pack(d, list, ty),
            [d, a] => {
                let (d, bits) = self.destination(d, ty.class())?;
                let a = self.source(a, ty)?;
                if d.class == a.class {
                    if bits == 16 && ty.bits == 32 {
                        return bad();
                    }
                    self.copy(d, a);
                } else if d.class == Class::Long && a.class == Class::Word {
                    self.emit(Op::Zext { d: d.slot, a: a.slot });
                } else {
                    return bad();
                }
                Ok(())
            }
            _ => bad(),
        }
    }

    fn unpack(&mut self, list: &[Operand<'a>], a: &Operand<'a>, ty: Ty) -> Lower<()> {
        let a = self.source(a, ty)?;
        match (ty.bits, list) {
            (64, [low, high]) => {
                let low = self.target(low, Class::Word)?;
                let high = self.target(high, Class::Word)?;
                self.emit(Op::Split { low, high, a: a.slot });
            }
            (32, [low, high]) => {
                let low = self.target(low, Class::Word)?;
                let high = self.target(high, Class::Word)?;
                let kept = self.fresh_word();
                self.emit(Op::Mov32 { d: kept, a: a.slot });
                self.emit(Op::Unary { op: Unary::Low16, d: low, a: kept });
                self.emit(Op::Unary { op: Unary::High16, d: high, a: kept });
            }
            (16 | 32 | 64, all @ ([_, _] | [_, _, _, _] | [_, _, _, _, _, _, _, _])) => {
                let piece_bits = ty.bits / all.len() as u8;
                if piece_bits != 8 && piece_bits != 16 {
                    return bad();
                }
                let kept = self.fresh(a.class);
                self.copy(kept, a);
                for (i, piece) in all.iter().enumerate() {
                    let d = self.target(piece, Class::Word)?;
                    let shift = self.word_constant(u32::from(piece_bits) * i as u32);
                    let f: fn(u64, u64, u64) -> u64 = if piece_bits == 8 {
                        |a, s, _| (a >> s) & 0xff
                    } else {
                        |a, s, _| (a >> s) & 0xffff
                    };
                    self.pure(f, Self::as_word(d), &[kept, Self::as_word(shift)]);
                }
            }
            _ => return bad(),
        }
        Ok(())
    }

    fn pack(&mut self, d: &Operand<'a>, list: &[Operand<'a>], ty: Ty) -> Lower<()> {
        let (d, _) = self.destination(d, ty.class())?;
        if d.class != ty.class() || !matches!(list.len(), 2 | 4) {
            return bad();
        }
        let piece = Ty { kind: TyKind::Bits, bits: ty.bits / list.len() as u8 };
        let mut slots: Vec<Slot> = Vec::new();
        for item in list {
            slots.push(self.source(item, piece)?.slot);
        }
        match (ty.bits, slots.as_slice()) {
            (64, [low, high]) => self.emit(Op::Join { d: d.slot, a: *low, b: *high }),
            (32, [low, high]) => {
                self.emit(Op::Binary { op: Binary::Pack16, d: d.slot, a: *low, b: *high })
            }
            (64, [a, b, c, e]) => {
                let low = self.fresh_word();
                let high = self.fresh_word();
                let op = Binary::Pack16;
                self.emit(Op::Binary { op, d: low, a: *a, b: *b });
                self.emit(Op::Binary { op, d: high, a: *c, b: *e });
                self.emit(Op::Join { d: d.slot, a: low, b: high });
            }
            (32, [a, b, c, e]) => {
                let parts = [*a, *b, *c, *e].map(Self::as_word);
                let low = self.pure_fresh(
                    |a, b, _| (a & 0xff) | (b & 0xff) << 8,
                    Class::Word,
                    &parts[..2],
                );
                self.pure(
                    |low, c, e| low | (c & 0xff) << 16 | (e & 0xff) << 24,
                    d,
                    &[low, parts[2], parts[3]],
                );
            }
            (16, [a, b]) => {
                let parts = [*a, *b].map(Self::as_word);
                self.pure(|a, b, _| (a & 0xff) | (b & 0xff) << 8, d, &parts);
            }
            _ => return bad(),
        }
        Ok(())
    }
}
