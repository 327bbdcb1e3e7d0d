//! Integer, logic, comparison and float instructions.

use super::operand::{Ty, TyKind};
use super::{Lower, Lowering, Refusal, bad};
use crate::float::Rounding;
use crate::integer;
use crate::program::{Binary, Class, Compare, Long2, Op, Reg, Shift, Slot, Ternary, Unary};
use crate::syntax::Instruction;

pub(crate) type LaneFn = fn(u64, u64, u64) -> u64;

/// The rounding an opcode names; nearest where it names none.
pub(crate) fn rounding(parts: &[&str]) -> Rounding {
    for part in parts {
        match *part {
            "rz" => return Rounding::Zero,
            "rm" => return Rounding::Down,
            "rp" => return Rounding::Up,
            _ => {}
        }
    }
    Rounding::Nearest
}

fn hi24(a: u64, b: u64) -> i64 {
    (integer::s24(a) * integer::s24(b)) >> 16
}

impl<'a> Lowering<'a, '_> {
    pub(super) fn arithmetic(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let base = parts[0];
        match base {
            "setp" => return self.setp(ins, parts),
            "set" => return self.set(ins, parts),
            "selp" => return self.selp(ins, parts),
            "slct" => return self.slct(ins, parts),
            "copysign" | "testp" => return self.float_misc(ins, parts),
            "dp4a" | "dp2a" => return self.dot(ins, parts),
            _ => {}
        }
        // A mode may stand behind the type of `prmt`.
        let name = if parts[0] == "prmt" { parts.get(1) } else { parts.last() };
        if let Some(&pair @ ("u16x2" | "s16x2")) = name {
            return self.short_pair(ins, parts, pair == "s16x2");
        }
        let ty = name.and_then(|name| Ty::parse(name)).ok_or(Refusal::Unsupported)?;
        match ty.kind {
            TyKind::Predicate => self.predicate_logic(ins, base),
            TyKind::Float if ty.bits == 32 => self.float32(ins, parts),
            TyKind::Float if ty.bits == 64 => self.float64(ins, parts),
            TyKind::Float | TyKind::Bf16 | TyKind::F16x2 | TyKind::Bf16x2 => {
                self.half(ins, parts, ty)
            }
            _ if ty.bits == 64 => self.integer64(ins, parts, ty),
            _ => self.integer32(ins, parts, ty),
        }
    }

    fn predicate_logic(&mut self, ins: &Instruction<'a>, base: &str) -> Lower<()> {
        let d = self.target(ins.operands.first().ok_or(Refusal::Unsupported)?, Class::Predicate)?;
        let mut sources = Vec::new();
        for operand in &ins.operands[1..] {
            let (slot, negated) = self.predicate(operand)?;
            sources.push(if negated {
                let n = self.fresh_predicate();
                self.emit(Op::NotP { d: n, a: slot });
                n
            } else {
                slot
            });
        }
        match (base, sources.as_slice()) {
            ("and", [a, b]) => self.emit(Op::AndP { d, a: *a, b: *b }),
            ("or", [a, b]) => self.emit(Op::OrP { d, a: *a, b: *b }),
            ("xor", [a, b]) => self.emit(Op::XorP { d, a: *a, b: *b }),
            ("not", [a]) => self.emit(Op::NotP { d, a: *a }),
            _ => return Err(Refusal::Unsupported),
        }
        Ok(())
    }

    /// All sources of `ty`, after the destination.
    pub(super) fn sources(&mut self, ins: &Instruction<'a>, ty: Ty) -> Lower<Vec<Reg>> {
        ins.operands.iter().skip(1).map(|operand| self.source(operand, ty)).collect()
    }

    fn integer32(&mut self, ins: &Instruction<'a>, parts: &[&str], ty: Ty) -> Lower<()> {
        let base = parts[0];
        let signed = ty.signed();
        let half = ty.bits == 16;
        if ty.bits == 8 {
            return Err(Refusal::Unsupported);
        }
        let wide = parts.contains(&"wide");
        if matches!(base, "shl" | "shr") {
            let [d, a, b] = ins.operands.as_slice() else {
                return bad();
            };
            let d = self.target(d, Class::Word)?;
            let mut a = self.source(a, ty)?.slot;
            let b = self.word(b)?;
            if half && signed {
                a = self.unary(Unary::Sext16, a);
            }
            let op = match (base, signed) {
                ("shl", _) => Binary::Shl,
                (_, true) => Binary::ShrS,
                _ => Binary::ShrU,
            };
            return self.finish_word(Op::Binary { op, d, a, b }, d, half);
        }
        if matches!(base, "bfe" | "bfi" | "prmt" | "shf" | "lop3" | "bmsk" | "szext") {
            return self.bit_fields(ins, parts, ty);
        }
        if wide && base != "mad24" {
            return self.wide(ins, base, ty);
        }
        let first = ins.operands.first().ok_or(Refusal::Unsupported)?;
        if parts.contains(&"cc") || matches!(base, "addc" | "subc" | "madc") {
            return self.carried(ins, parts, ty);
        }
        let d = self.target(first, Class::Word)?;
        if parts.contains(&"relu") {
            return self.clamped_pick(ins, parts, d);
        }
        let all = self.sources(ins, ty)?;
        let sign_sensitive =
            matches!(base, "div" | "rem" | "min" | "max" | "abs" | "neg" | "mul" | "mad" | "sad");
        let mut s: Vec<Slot> = all.iter().map(|reg| reg.slot).collect();
        if half && signed && sign_sensitive {
            for slot in &mut s {
                *slot = self.unary(Unary::Sext16, *slot);
            }
        }
        let hi = parts.contains(&"hi");
        let sat = parts.contains(&"sat");
        let binary = |op| Some(op);
        let op = match (base, s.len()) {
            ("add", 2) if !sat => binary(Binary::Add),
            ("sub", 2) if !sat => binary(Binary::Sub),
            ("mul", 2) if !hi => binary(Binary::Mul),
            ("mul", 2) if hi && !half && signed => binary(Binary::MulHiS),
            ("mul", 2) if hi && !half => binary(Binary::MulHiU),
            ("and", 2) => binary(Binary::And),
            ("or", 2) => binary(Binary::Or),
            ("xor", 2) => binary(Binary::Xor),
            ("min", 2) if signed => binary(Binary::MinS),
            ("min", 2) => binary(Binary::MinU),
            ("max", 2) if signed => binary(Binary::MaxS),
            ("max", 2) => binary(Binary::MaxU),
            _ => None,
        };
        if let Some(op) = op {
            let (a, b) = (s[0], s[1]);
            return self.finish_word(Op::Binary { op, d, a, b }, d, half);
        }
        let unary = match (base, s.len()) {
            ("not", 1) => Some(Unary::Not),
            ("neg", 1) => Some(Unary::Negate),
            ("abs", 1) => Some(Unary::AbsS),
            ("popc", 1) => Some(Unary::Popc),
            ("clz", 1) => Some(Unary::Clz),
            ("brev", 1) => Some(Unary::Brev),
            _ => None,
        };
        if let Some(op) = unary {
            return self.finish_word(Op::Unary { op, d, a: s[0] }, d, half);
        }
        if base == "mad" && s.len() == 3 && !hi && !sat {
            let op = Ternary::Mad;
            let (a, b, c) = (s[0], s[1], s[2]);
            return self.finish_word(Op::Ternary { op, d, a, b, c }, d, half);
        }
        let regs: Vec<Reg> = s.iter().map(|slot| Self::as_word(*slot)).collect();
        let f: LaneFn = match (base, signed, half) {
            ("div", true, _) => integer::div_s32,
            ("div", false, _) => integer::div_u32,
            ("rem", true, _) => integer::rem_s32,
            ("rem", false, _) => integer::rem_u32,
            ("add", true, false) if sat => integer::add_sat,
            ("sub", true, false) if sat => integer::sub_sat,
            ("mul", true, true) => |a, b, _| ((a as i32).wrapping_mul(b as i32) >> 16) as u64,
            ("mul", false, true) => |a, b, _| (a * b) >> 16,
            ("mad", true, true) if hi => {
                |a, b, c| (((a as i32).wrapping_mul(b as i32) >> 16) as u64).wrapping_add(c)
            }
            ("mad", false, true) if hi => |a, b, c| ((a * b) >> 16) + c,
            ("mad", true, false) if sat && hi => integer::mad_hi_sat,
            ("mad", true, false) if hi && !sat => integer::mad_hi_s32,
            ("mad", false, false) if hi && !sat => integer::mad_hi_u32,
            ("mul24", true, _) if hi => {
                |a, b, _| ((integer::s24(a) * integer::s24(b)) >> 16) as u64
            }
            ("mul24", false, _) if hi => |a, b, _| ((a & 0xff_ffff) * (b & 0xff_ffff)) >> 16,
            ("mul24", true, _) => |a, b, _| (integer::s24(a) * integer::s24(b)) as u64,
            ("mul24", false, _) => |a, b, _| (a & 0xff_ffff) * (b & 0xff_ffff),
            ("mad24", true, _) if hi && sat => {
                |a, b, c| u64::from((hi24(a, b) as i32).saturating_add(c as i32) as u32)
            }
            ("mad24", true, _) if hi => |a, b, c| (hi24(a, b) as u64).wrapping_add(c),
            ("mad24", false, _) if hi => |a, b, c| (((a & 0xff_ffff) * (b & 0xff_ffff)) >> 16) + c,
            ("mad24", true, _) => {
                |a, b, c| (integer::s24(a) * integer::s24(b)).wrapping_add(c as i64) as u64
            }
            ("mad24", false, _) => |a, b, c| (a & 0xff_ffff) * (b & 0xff_ffff) + c,
            ("sad", true, _) => {
                |a, b, c| u64::from((a as i32).abs_diff(b as i32).wrapping_add(c as u32))
            }
            ("sad", false, _) => {
                |a, b, c| u64::from((a as u32).abs_diff(b as u32).wrapping_add(c as u32))
            }
            ("bfind", true, _) if parts.contains(&"shiftamt") => integer::bfind_s32_shift,
            ("bfind", false, _) if parts.contains(&"shiftamt") => integer::bfind_u32_shift,
            ("bfind", true, _) => integer::bfind_s32,
            ("bfind", false, _) => integer::bfind_u32,
            ("cnot", _, _) => |a, _, _| u64::from(a == 0),
            ("fns", _, _) => integer::fns,
            _ => return Err(Refusal::Unsupported),
        };
        let t = if half { self.fresh_word() } else { d };
        self.pure(f, Self::as_word(t), &regs);
        if half {
            self.emit(Op::Unary { op: Unary::Low16, d, a: t });
        }
        Ok(())
    }

    /// Emits `op`; a 16-bit result is cut to its width.
    fn finish_word(&mut self, mut op: Op, d: Slot, half: bool) -> Lower<()> {
        if half {
            let t = self.fresh_word();
            match &mut op {
                Op::Binary { d, .. } | Op::Unary { d, .. } | Op::Ternary { d, .. } => *d = t,
                _ => {}
            }
            self.emit(op);
            self.emit(Op::Unary { op: Unary::Low16, d, a: t });
        } else {
            self.emit(op);
        }
        Ok(())
    }

    fn wide(&mut self, ins: &Instruction<'a>, base: &str, ty: Ty) -> Lower<()> {
        let signed = ty.signed();
        let half = ty.bits == 16;
        match (base, ins.operands.as_slice()) {
            ("mul", [d, a, b]) if half => {
                let d = self.target(d, Class::Word)?;
                let mut s = [self.source(a, ty)?.slot, self.source(b, ty)?.slot];
                if signed {
                    s = s.map(|slot| self.unary(Unary::Sext16, slot));
                }
                let op = Binary::Mul;
                self.emit(Op::Binary { op, d, a: s[0], b: s[1] });
            }
            ("mad", [d, a, b, c]) if half => {
                let d = self.target(d, Class::Word)?;
                let mut s = [self.source(a, ty)?.slot, self.source(b, ty)?.slot];
                let c = self.word(c)?;
                if signed {
                    s = s.map(|slot| self.unary(Unary::Sext16, slot));
                }
                let op = Ternary::Mad;
                let (a, b) = (s[0], s[1]);
                self.emit(Op::Ternary { op, d, a, b, c });
            }
            ("mul", [d, a, b]) => {
                let d = self.target(d, Class::Long)?;
                let a = self.source(a, ty)?.slot;
                let b = self.source(b, ty)?.slot;
                self.emit(if signed { Op::MulWideS { d, a, b } } else { Op::MulWideU { d, a, b } });
            }
            ("mad", [d, a, b, c]) => {
                let d = self.target(d, Class::Long)?;
                let a = self.source(a, ty)?.slot;
                let b = self.source(b, ty)?.slot;
                let c = self.long(c)?;
                self.emit(if signed {
                    Op::MadWideS { d, a, b, c }
                } else {
                    Op::MadWideU { d, a, b, c }
                });
            }
            _ => return Err(Refusal::Unsupported),
        }
        Ok(())
    }

    fn carried(&mut self, ins: &Instruction<'a>, parts: &[&str], ty: Ty) -> Lower<()> {
        let class = ty.class();
        let (d, a, b) = match ins.operands.as_slice() {
            [d, a, b] if !parts[0].starts_with("mad") => {
                (d, self.source(a, ty)?, self.source(b, ty)?)
            }
            [d, a, b, c] if parts[0].starts_with("mad") => {
                let factors = [self.source(a, ty)?, self.source(b, ty)?];
                let f = integer::product_part(parts.contains(&"hi"), ty.signed(), ty.bits == 64);
                (d, self.pure_fresh(f, class, &factors), self.source(c, ty)?)
            }
            _ => return bad(),
        };
        let (d, _) = self.destination(d, class)?;
        if d.class != class || ty.bits < 32 {
            return bad();
        }
        let carry = *self.carry.get_or_insert_with(|| {
            self.next[0] += 1;
            self.next[0] as Slot - 1
        });
        let carry = Self::as_predicate(carry);
        let uses = matches!(parts[0], "addc" | "subc" | "madc");
        let long = ty.bits == 64;
        let (value, out): (LaneFn, LaneFn) = match (parts[0], long) {
            ("add" | "addc" | "mad" | "madc", false) => (
                |a, b, c| a.wrapping_add(b).wrapping_add(c) & 0xffff_ffff,
                |a, b, c| (a + b + c) >> 32 & 1,
            ),
            ("add" | "addc" | "mad" | "madc", true) => (
                |a, b, c| a.wrapping_add(b).wrapping_add(c),
                |a, b, c| ((u128::from(a) + u128::from(b) + u128::from(c)) >> 64) as u64 & 1,
            ),
            ("sub" | "subc", false) => (
                |a, b, c| a.wrapping_sub(b).wrapping_sub(c) & 0xffff_ffff,
                |a, b, c| u64::from(b + c > a),
            ),
            ("sub" | "subc", true) => (
                |a, b, c| a.wrapping_sub(b).wrapping_sub(c),
                |a, b, c| u64::from(u128::from(b) + u128::from(c) > u128::from(a)),
            ),
            _ => return Err(Refusal::Unsupported),
        };
        let used = if uses { vec![a, b, carry] } else { vec![a, b] };
        let next = self.pure_fresh(out, Class::Predicate, &used);
        self.pure(value, d, &used);
        if parts.contains(&"cc") {
            self.copy(carry, next);
        }
        Ok(())
    }

    fn integer64(&mut self, ins: &Instruction<'a>, parts: &[&str], ty: Ty) -> Lower<()> {
        let base = parts[0];
        let signed = ty.signed();
        if matches!(base, "shl" | "shr") {
            let [d, a, b] = ins.operands.as_slice() else {
                return bad();
            };
            let d = self.target(d, Class::Long)?;
            let a = self.source(a, ty)?.slot;
            let b = self.word(b)?;
            let op = match (base, signed) {
                ("shl", _) => Shift::Left,
                (_, true) => Shift::RightS,
                _ => Shift::RightU,
            };
            self.emit(Op::Shift64 { op, d, a, b });
            return Ok(());
        }
        if matches!(base, "bfe" | "bfi") {
            return self.bit_fields(ins, parts, ty);
        }
        if parts.contains(&"cc") || matches!(base, "addc" | "subc" | "madc") {
            return self.carried(ins, parts, ty);
        }
        let narrow_result = matches!(base, "popc" | "clz" | "bfind");
        let class = if narrow_result { Class::Word } else { Class::Long };
        let d = self.target(ins.operands.first().ok_or(Refusal::Unsupported)?, class)?;
        let regs = self.sources(ins, ty)?;
        let s: Vec<Slot> = regs.iter().map(|reg| reg.slot).collect();
        let hi = parts.contains(&"hi");
        let op = match base {
            "add" => Some(Long2::Add),
            "sub" => Some(Long2::Sub),
            "mul" if !hi => Some(Long2::Mul),
            "and" => Some(Long2::And),
            "or" => Some(Long2::Or),
            "xor" => Some(Long2::Xor),
            "min" if signed => Some(Long2::MinS),
            "min" => Some(Long2::MinU),
            "max" if signed => Some(Long2::MaxS),
            "max" => Some(Long2::MaxU),
            _ => None,
        };
        if let (Some(op), &[a, b]) = (op, s.as_slice()) {
            self.emit(Op::Long2 { op, d, a, b });
            return Ok(());
        }
        if let ("mad", false, &[a, b, c]) = (base, hi, s.as_slice()) {
            self.emit(Op::Mad64 { d, a, b, c });
            return Ok(());
        }
        let f: LaneFn = match (base, signed) {
            ("mul", true) => integer::mul_hi_s64,
            ("mul", false) => integer::mul_hi_u64,
            ("mad", true) => |a, b, c| integer::mul_hi_s64(a, b, 0).wrapping_add(c),
            ("mad", false) => |a, b, c| integer::mul_hi_u64(a, b, 0).wrapping_add(c),
            ("div", true) => integer::div_s64,
            ("div", false) => integer::div_u64,
            ("rem", true) => integer::rem_s64,
            ("rem", false) => integer::rem_u64,
            ("neg", _) => |a, _, _| a.wrapping_neg(),
            ("abs", _) => |a, _, _| (a as i64).wrapping_abs() as u64,
            ("not", _) => |a, _, _| !a,
            ("cnot", _) => |a, _, _| u64::from(a == 0),
            ("popc", _) => |a, _, _| u64::from(a.count_ones()),
            ("clz", _) => |a, _, _| u64::from(a.leading_zeros()),
            ("brev", _) => |a, _, _| a.reverse_bits(),
            ("sad", true) => |a, b, c| (a as i64).abs_diff(b as i64).wrapping_add(c),
            ("sad", false) => |a, b, c| a.abs_diff(b).wrapping_add(c),
            ("bfind", true) if parts.contains(&"shiftamt") => integer::bfind_s64_shift,
            ("bfind", false) if parts.contains(&"shiftamt") => integer::bfind_u64_shift,
            ("bfind", true) => integer::bfind_s64,
            ("bfind", false) => integer::bfind_u64,
            _ => return Err(Refusal::Unsupported),
        };
        self.pure(f, Reg { class, slot: d }, &regs);
        Ok(())
    }

    /// Two 16-bit integers in one register.
    fn short_pair(&mut self, ins: &Instruction<'a>, parts: &[&str], signed: bool) -> Lower<()> {
        let [d, a, b] = ins.operands.as_slice() else {
            return bad();
        };
        let f = integer::pair_function(parts, signed).ok_or(Refusal::Unsupported)?;
        let d = self.target(d, Class::Word)?;
        let sources = [self.word(a)?, self.word(b)?].map(Self::as_word);
        self.pure(f, Self::as_word(d), &sources);
        Ok(())
    }

    /// `min.relu.s32` and `max.relu.s32`.
    fn clamped_pick(&mut self, ins: &Instruction<'a>, parts: &[&str], d: Slot) -> Lower<()> {
        let f: LaneFn = match parts {
            ["min", "relu", "s32"] => |a, b, _| (a as i32).min(b as i32).max(0) as u64,
            ["max", "relu", "s32"] => |a, b, _| (a as i32).max(b as i32).max(0) as u64,
            _ => return Err(Refusal::Unsupported),
        };
        let [_, a, b] = ins.operands.as_slice() else {
            return bad();
        };
        let sources = [self.word(a)?, self.word(b)?].map(Self::as_word);
        self.pure(f, Self::as_word(d), &sources);
        Ok(())
    }

    fn selp(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let ty = parts.last().and_then(|name| Ty::parse(name)).ok_or(Refusal::Unsupported)?;
        let [d, a, b, p] = ins.operands.as_slice() else {
            return bad();
        };
        let d = self.target(d, ty.class())?;
        let mut a = self.source(a, ty)?.slot;
        let mut b = self.source(b, ty)?.slot;
        let (p, negated) = self.predicate(p)?;
        if negated {
            std::mem::swap(&mut a, &mut b);
        }
        self.emit(match ty.class() {
            Class::Word => Op::Select32 { d, a, b, p },
            Class::Long => Op::Select64 { d, a, b, p },
            Class::Predicate => return Err(Refusal::Unsupported),
        });
        Ok(())
    }

    fn slct(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let [d, a, b, c] = ins.operands.as_slice() else {
            return bad();
        };
        let selector = parts.last().and_then(|name| Ty::parse(name));
        let ty = parts.get(parts.len().wrapping_sub(2)).and_then(|name| Ty::parse(name));
        let (Some(ty), Some(selector)) = (ty, selector) else {
            return Err(Refusal::Unsupported);
        };
        let d = self.target(d, ty.class())?;
        let a = self.source(a, ty)?.slot;
        let b = self.source(b, ty)?.slot;
        let mut c = self.word(c)?;
        if parts.contains(&"ftz") {
            let flush: LaneFn = |a, _, _| u64::from(crate::float::flush(a as u32));
            c = self.pure_fresh(flush, Class::Word, &[Self::as_word(c)]).slot;
        }
        let zero = self.word_constant(0);
        let p = self.fresh_predicate();
        let op = if selector.kind == TyKind::Float { Compare::FGe } else { Compare::GeS };
        self.emit(Op::Set32 { op, d: p, a: c, b: zero });
        self.emit(if ty.class() == Class::Long {
            Op::Select64 { d, a, b, p }
        } else {
            Op::Select32 { d, a, b, p }
        });
        Ok(())
    }

    fn dot(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let [d, a, b, c] = ins.operands.as_slice() else {
            return bad();
        };
        let f: LaneFn = match parts {
            ["dp4a", "s32", "s32"] => integer::dp4a::<true, true>,
            ["dp4a", "s32", "u32"] => integer::dp4a::<true, false>,
            ["dp4a", "u32", "s32"] => integer::dp4a::<false, true>,
            ["dp4a", "u32", "u32"] => integer::dp4a::<false, false>,
            ["dp2a", "lo", "s32", "s32"] => integer::dp2a::<true, true, false>,
            ["dp2a", "lo", "s32", "u32"] => integer::dp2a::<true, false, false>,
            ["dp2a", "lo", "u32", "s32"] => integer::dp2a::<false, true, false>,
            ["dp2a", "lo", "u32", "u32"] => integer::dp2a::<false, false, false>,
            ["dp2a", "hi", "s32", "s32"] => integer::dp2a::<true, true, true>,
            ["dp2a", "hi", "s32", "u32"] => integer::dp2a::<true, false, true>,
            ["dp2a", "hi", "u32", "s32"] => integer::dp2a::<false, true, true>,
            ["dp2a", "hi", "u32", "u32"] => integer::dp2a::<false, false, true>,
            _ => return Err(Refusal::Unsupported),
        };
        let d = self.target(d, Class::Word)?;
        let sources = [self.word(a)?, self.word(b)?, self.word(c)?].map(Self::as_word);
        self.pure(f, Self::as_word(d), &sources);
        Ok(())
    }
}
