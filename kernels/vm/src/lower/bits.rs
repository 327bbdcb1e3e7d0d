//! Bit fields and the three-operand logic of a truth table.

use super::arithmetic::LaneFn;
use super::operand::{Ty, TyKind};
use super::{Lower, Lowering, Refusal, bad};
use crate::integer;
use crate::program::{Binary, Class, Compare, Long2, Op, Reg, Shift, Slot, Unary};
use crate::syntax::{Instruction, Operand};

impl<'a> Lowering<'a, '_> {
    pub(super) fn bit_fields(
        &mut self,
        ins: &Instruction<'a>,
        parts: &[&str],
        ty: Ty,
    ) -> Lower<()> {
        let word = Ty { kind: TyKind::Bits, bits: 32 };
        if parts[0] == "lop3" && parts.len() > 2 {
            return self.tested_lop3(ins, parts);
        }
        let first = ins.operands.first().ok_or(Refusal::Unsupported)?;
        let (d, _) = self.destination(first, ty.class())?;
        if d.class != ty.class() {
            return bad();
        }
        let long = ty.bits == 64;
        let mut regs = Vec::new();
        for (i, operand) in ins.operands.iter().enumerate().skip(1) {
            // Positions and lengths are always 32 bits wide.
            let is_value = match parts[0] {
                "bfe" => i == 1,
                "bfi" => i <= 2,
                _ => true,
            };
            regs.push(self.source(operand, if is_value { ty } else { word })?);
        }
        match (parts[0], regs.len()) {
            ("bfe", 3) => {
                let f: LaneFn = match (long, ty.signed()) {
                    (false, false) => integer::bfe_u32,
                    (false, true) => integer::bfe_s32,
                    (true, false) => integer::bfe_u64,
                    (true, true) => integer::bfe_s64,
                };
                self.pure(f, d, &regs);
            }
            ("bfi", 4) if self.constant_field(ins, 3, ty.bits).is_some() => {
                let (position, length) = self.constant_field(ins, 3, ty.bits).unwrap_or((0, 0));
                if long && (position, length) == (32, 32) {
                    // The low halves of both, put together.
                    let [high, low] = [regs[0].slot, regs[1].slot].map(|a| {
                        let d = self.fresh_word();
                        self.emit(Op::Trunc { d, a });
                        d
                    });
                    self.emit(Op::Join { d: d.slot, a: low, b: high });
                    return Ok(());
                }
                let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
                self.insert_field(d, regs[0], regs[1], position, ones << position);
            }
            ("bfi", 4) => {
                // Position and length share one operand of the lane function.
                let range = self.pure_fresh(
                    |position, length, _| (position & 0xff) | (length & 0xff) << 8,
                    Class::Word,
                    &regs[2..4],
                );
                let f = if long { integer::bfi_64 } else { integer::bfi_32 };
                self.pure(f, d, &[regs[0], regs[1], range]);
            }
            ("prmt", 3) => {
                let f: LaneFn = match parts.get(2) {
                    None => integer::prmt,
                    Some(&"f4e") => integer::prmt_f4e,
                    Some(&"b4e") => integer::prmt_b4e,
                    Some(&"rc8") => integer::prmt_rc8,
                    Some(&"ecl") => integer::prmt_ecl,
                    Some(&"ecr") => integer::prmt_ecr,
                    Some(&"rc16") => integer::prmt_rc16,
                    _ => return Err(Refusal::Unsupported),
                };
                self.pure(f, d, &regs);
            }
            ("shf", 3) => {
                let f: LaneFn = match (parts.get(1), parts.get(2)) {
                    (Some(&"l"), Some(&"wrap")) => integer::shf_left_wrap,
                    (Some(&"l"), Some(&"clamp")) => integer::shf_left_clamp,
                    (Some(&"r"), Some(&"wrap")) => integer::shf_right_wrap,
                    (Some(&"r"), Some(&"clamp")) => integer::shf_right_clamp,
                    _ => return Err(Refusal::Unsupported),
                };
                self.pure(f, d, &regs);
            }
            ("lop3", 4) => {
                let Some(Operand::Int(table)) = ins.operands.get(4) else {
                    return bad();
                };
                self.lop3(d.slot, &regs, *table as u8);
            }
            ("bmsk", 2) if parts.contains(&"wrap") => self.pure(integer::bmsk_wrap, d, &regs),
            ("szext", 2) => {
                let f: LaneFn = match (ty.signed(), parts.contains(&"clamp")) {
                    (true, true) => integer::szext::<true, true>,
                    (true, false) => integer::szext::<true, false>,
                    (false, true) => integer::szext::<false, true>,
                    (false, false) => integer::szext::<false, false>,
                };
                self.pure(f, d, &regs);
            }
            ("bmsk", 2) if parts.contains(&"clamp") => {
                self.pure(integer::bmsk_clamp, d, &regs);
            }
            _ => return Err(Refusal::Unsupported),
        }
        Ok(())
    }

    /// `lop3.or` and `lop3.and`: whether the result has a bit, combined with a predicate.
    fn tested_lop3(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let [Operand::Pair(d, p), a, b, c, Operand::Int(table), q] = ins.operands.as_slice() else {
            return bad();
        };
        let d = self.target(d, Class::Word)?;
        let p = self.target(p, Class::Predicate)?;
        let regs = [self.word(a)?, self.word(b)?, self.word(c)?].map(Self::as_word);
        let (mut q, negated) = self.predicate(q)?;
        if negated {
            let n = self.fresh_predicate();
            self.emit(Op::NotP { d: n, a: q });
            q = n;
        }
        let result = self.fresh_word();
        self.lop3(result, &regs, *table as u8);
        let zero = self.word_constant(0);
        let any = self.fresh_predicate();
        self.emit(Op::Set32 { op: Compare::Ne, d: any, a: result, b: zero });
        self.emit(match parts[1] {
            "and" => Op::AndP { d: p, a: any, b: q },
            "or" => Op::OrP { d: p, a: any, b: q },
            _ => return Err(Refusal::Unsupported),
        });
        self.emit(Op::Mov32 { d, a: result });
        Ok(())
    }

    /// Position and length of a bit field, when both are constants that fit the type.
    fn constant_field(&self, ins: &Instruction<'a>, at: usize, bits: u8) -> Option<(u32, u32)> {
        match (&ins.operands[at], &ins.operands[at + 1]) {
            (Operand::Int(position), Operand::Int(length))
                if *position < u64::from(bits) && *length > 0 && *length <= u64::from(bits) =>
            {
                Some((*position as u32, *length as u32))
            }
            _ => None,
        }
    }

    /// d = (b & !mask) | ((a << position) & mask).
    fn insert_field(&mut self, d: Reg, a: Reg, b: Reg, position: u32, mask: u64) {
        let by = self.word_constant(position);
        let inside = self.constant(mask, d.class);
        let outside = self.constant(!mask, d.class);
        let [moved, cut, kept] = [0; 3].map(|_| self.fresh(d.class).slot);
        if d.class == Class::Long {
            self.emit(Op::Shift64 { op: Shift::Left, d: moved, a: a.slot, b: by });
            for (op, d, a, b) in [
                (Long2::And, cut, moved, inside.slot),
                (Long2::And, kept, b.slot, outside.slot),
                (Long2::Or, d.slot, cut, kept),
            ] {
                self.emit(Op::Long2 { op, d, a, b });
            }
        } else {
            for (op, d, a, b) in [
                (Binary::Shl, moved, a.slot, by),
                (Binary::And, cut, moved, inside.slot),
                (Binary::And, kept, b.slot, outside.slot),
                (Binary::Or, d.slot, cut, kept),
            ] {
                self.emit(Op::Binary { op, d, a, b });
            }
        }
    }

    /// Sum of products of the table's set rows.
    pub(super) fn lop3(&mut self, d: Slot, regs: &[Reg], table: u8) {
        let inputs = [regs[0].slot, regs[1].slot, regs[2].slot];
        let negated = inputs.map(|a| self.unary(Unary::Not, a));
        let mut sum = self.word_constant(0);
        for row in 0..8u8 {
            if table >> row & 1 == 0 {
                continue;
            }
            let pick = |i: usize| {
                // Row bits are a, b, c from the highest down.
                if row >> (2 - i) & 1 == 1 { inputs[i] } else { negated[i] }
            };
            let term = self.fresh_word();
            let (a, b, c) = (pick(0), pick(1), pick(2));
            let op = Binary::And;
            self.emit(Op::Binary { op, d: term, a, b });
            let term2 = self.fresh_word();
            self.emit(Op::Binary { op, d: term2, a: term, b: c });
            let next = self.fresh_word();
            self.emit(Op::Binary { op: Binary::Or, d: next, a: sum, b: term2 });
            sum = next;
        }
        self.emit(Op::Mov32 { d, a: sum });
    }
}
