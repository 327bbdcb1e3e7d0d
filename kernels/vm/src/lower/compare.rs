//! `setp` and `set`: comparisons of every type, combined with a predicate.

use super::arithmetic::LaneFn;
use super::operand::{Ty, TyKind};
use super::{Lower, Lowering, Refusal, bad};
use crate::float;
use crate::program::{Binary, Class, Compare, Op, Slot, Unary};
use crate::syntax::{Instruction, Operand};

const NAMES: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan",
];

fn comparison(name: &str, ty: Ty) -> Option<Compare> {
    let signed = ty.signed();
    let float = matches!(ty.kind, TyKind::Float | TyKind::Bf16 | TyKind::F16x2 | TyKind::Bf16x2);
    Some(match (name, float, signed) {
        ("eq", true, _) => Compare::FEq,
        ("ne", true, _) => Compare::FNe,
        ("lt", true, _) => Compare::FLt,
        ("le", true, _) => Compare::FLe,
        ("gt", true, _) => Compare::FGt,
        ("ge", true, _) => Compare::FGe,
        ("equ", true, _) => Compare::FEqU,
        ("neu", true, _) => Compare::FNeU,
        ("ltu", true, _) => Compare::FLtU,
        ("leu", true, _) => Compare::FLeU,
        ("gtu", true, _) => Compare::FGtU,
        ("geu", true, _) => Compare::FGeU,
        ("num", true, _) => Compare::FNum,
        ("nan", true, _) => Compare::FNan,
        ("eq", false, _) => Compare::Eq,
        ("ne", false, _) => Compare::Ne,
        ("lt", false, true) => Compare::LtS,
        ("le", false, true) => Compare::LeS,
        ("gt", false, true) => Compare::GtS,
        ("ge", false, true) => Compare::GeS,
        ("lt" | "lo", false, _) => Compare::LtU,
        ("le" | "ls", false, _) => Compare::LeU,
        ("gt" | "hi", false, _) => Compare::GtU,
        ("ge" | "hs", false, _) => Compare::GeU,
        _ => return None,
    })
}

/// Replaces subnormal f16 in either half by zeros of their signs.
fn flush_halves(a: u64, _: u64, _: u64) -> u64 {
    let one = |code: u64| if code & 0x7c00 == 0 { code & 0x8000 } else { code };
    one(a & 0xffff) | one(a >> 16 & 0xffff) << 16
}

/// Both are numbers, and different ones.
fn differ(x: f64, y: f64) -> bool {
    x.partial_cmp(&y).is_some_and(std::cmp::Ordering::is_ne)
}

fn wide_comparison(op: Compare) -> Option<LaneFn> {
    macro_rules! test {
        (|$x:ident, $y:ident| $body:expr) => {
            |a, b, _| {
                let ($x, $y) = (f64::from_bits(a), f64::from_bits(b));
                u64::from($body)
            }
        };
    }
    Some(match op {
        Compare::FEq => test!(|x, y| x == y),
        Compare::FNe => test!(|x, y| differ(x, y)),
        Compare::FLt => test!(|x, y| x < y),
        Compare::FLe => test!(|x, y| x <= y),
        Compare::FGt => test!(|x, y| x > y),
        Compare::FGe => test!(|x, y| x >= y),
        Compare::FEqU => test!(|x, y| !differ(x, y)),
        Compare::FNeU => test!(|x, y| x != y),
        Compare::FLtU => test!(|x, y| x.is_nan() || y.is_nan() || x < y),
        Compare::FLeU => test!(|x, y| x.is_nan() || y.is_nan() || x <= y),
        Compare::FGtU => test!(|x, y| x.is_nan() || y.is_nan() || x > y),
        Compare::FGeU => test!(|x, y| x.is_nan() || y.is_nan() || x >= y),
        Compare::FNum => test!(|x, y| !x.is_nan() && !y.is_nan()),
        Compare::FNan => test!(|x, y| x.is_nan() || y.is_nan()),
        _ => return None,
    })
}

impl<'a> Lowering<'a, '_> {
    /// The lane-wise comparison of `a` and `b` as a predicate; packed types give two.
    fn compared(
        &mut self,
        parts: &[&str],
        ty: Ty,
        a: &Operand<'a>,
        b: &Operand<'a>,
    ) -> Lower<(Slot, Option<Slot>)> {
        let name = parts.iter().find(|part| NAMES.contains(part)).ok_or(Refusal::Unsupported)?;
        let op = comparison(name, ty).ok_or(Refusal::Unsupported)?;
        let mut a = self.source(a, ty)?;
        let mut b = self.source(b, ty)?;
        let ftz = parts.contains(&"ftz");
        if ftz && matches!((ty.kind, ty.bits), (TyKind::Float, 16) | (TyKind::F16x2, _)) {
            for reg in [&mut a, &mut b] {
                *reg = self.pure_fresh(flush_halves, Class::Word, &[*reg]);
            }
        }
        let d = self.fresh_predicate();
        match (ty.kind, ty.bits) {
            (TyKind::Float, 64) => {
                let f = wide_comparison(op).ok_or(Refusal::Unsupported)?;
                self.pure(f, Self::as_predicate(d), &[a, b]);
            }
            (TyKind::F16x2 | TyKind::Bf16x2, _) => {
                let widen =
                    if ty.kind == TyKind::F16x2 { Unary::F32OfF16 } else { Unary::F32OfBf16 };
                let mut halves = [0; 2];
                for (half, part) in halves.iter_mut().zip([Unary::Low16, Unary::High16]) {
                    *half = self.fresh_predicate();
                    let x = self.unary(part, a.slot);
                    let x = self.unary(widen, x);
                    let y = self.unary(part, b.slot);
                    let y = self.unary(widen, y);
                    let d = *half;
                    self.emit(Op::Set32 { op, d, a: x, b: y });
                }
                return Ok((halves[0], Some(halves[1])));
            }
            (_, 64) => self.emit(Op::Set64 { op, d, a: a.slot, b: b.slot }),
            (TyKind::Predicate, _) => return Err(Refusal::Unsupported),
            _ => {
                let widen = match (ty.kind, ty.bits) {
                    (TyKind::Float, 16) => Some(Unary::F32OfF16),
                    (TyKind::Bf16, _) => Some(Unary::F32OfBf16),
                    (TyKind::Signed, 16) => Some(Unary::Sext16),
                    _ => None,
                };
                if let Some(widen) = widen {
                    a.slot = self.unary(widen, a.slot);
                    b.slot = self.unary(widen, b.slot);
                }
                if ftz && ty.bits == 32 {
                    let f: LaneFn = |a, _, _| u64::from(float::flush(a as u32));
                    a = self.pure_fresh(f, Class::Word, &[a]);
                    b = self.pure_fresh(f, Class::Word, &[b]);
                }
                self.emit(Op::Set32 { op, d, a: a.slot, b: b.slot });
            }
        }
        Ok((d, None))
    }

    /// Combines `p` with the instruction's third predicate operand, if it has one.
    fn combined(&mut self, parts: &[&str], p: Slot, c: Option<&Operand<'a>>) -> Lower<Slot> {
        let Some(c) = c else {
            return Ok(p);
        };
        let (mut c, negated) = self.predicate(c)?;
        if negated {
            let n = self.fresh_predicate();
            self.emit(Op::NotP { d: n, a: c });
            c = n;
        }
        let d = self.fresh_predicate();
        let op = if parts.contains(&"and") {
            Op::AndP { d, a: p, b: c }
        } else if parts.contains(&"or") {
            Op::OrP { d, a: p, b: c }
        } else if parts.contains(&"xor") {
            Op::XorP { d, a: p, b: c }
        } else {
            return bad();
        };
        self.emit(op);
        Ok(d)
    }

    pub(super) fn setp(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let ty = parts.last().and_then(|name| Ty::parse(name)).ok_or(Refusal::Unsupported)?;
        let (d, a, b, c) = match ins.operands.as_slice() {
            [d, a, b] => (d, a, b, None),
            [d, a, b, c] => (d, a, b, Some(c)),
            _ => return bad(),
        };
        let (p, q) = match d {
            Operand::Pair(p, q) => {
                (self.target(p, Class::Predicate)?, Some(self.target(q, Class::Predicate)?))
            }
            other => (self.target(other, Class::Predicate)?, None),
        };
        let (low, high) = self.compared(parts, ty, a, b)?;
        let simple = q.is_none() && c.is_none() && high.is_none();
        if simple && let Some(last) = self.code.last_mut() {
            // The comparison was emitted last: give it the destination itself.
            if let Op::Set32 { d, .. } | Op::Set64 { d, .. } = &mut last.op {
                *d = p;
                return Ok(());
            }
        }
        let first = self.combined(parts, low, c)?;
        let second = match (q, high) {
            (Some(q), Some(high)) => Some((q, self.combined(parts, high, c)?)),
            (Some(q), None) => {
                let n = self.fresh_predicate();
                self.emit(Op::NotP { d: n, a: low });
                Some((q, self.combined(parts, n, c)?))
            }
            (None, _) => None,
        };
        self.emit(Op::MovP { d: p, a: first });
        if let Some((q, second)) = second {
            self.emit(Op::MovP { d: q, a: second });
        }
        Ok(())
    }

    pub(super) fn set(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let source = parts.last().and_then(|name| Ty::parse(name));
        let result = parts.get(parts.len().wrapping_sub(2)).and_then(|name| Ty::parse(name));
        let (Some(source), Some(result)) = (source, result) else {
            return Err(Refusal::Unsupported);
        };
        let (d, a, b, c) = match ins.operands.as_slice() {
            [d, a, b] => (d, a, b, None),
            [d, a, b, c] => (d, a, b, Some(c)),
            _ => return bad(),
        };
        let d = self.target(d, Class::Word)?;
        let (low, high) = self.compared(parts, source, a, b)?;
        let low = self.combined(parts, low, c)?;
        let yes = match result.kind {
            TyKind::Float if result.bits == 32 => 0x3f80_0000,
            TyKind::Float | TyKind::F16x2 => 0x3c00,
            TyKind::Bf16 | TyKind::Bf16x2 => 0x3f80,
            _ if result.bits == 16 || high.is_some() => 0xffff,
            _ => u32::MAX,
        };
        let yes = self.word_constant(yes);
        let no = self.word_constant(0);
        let Some(high) = high else {
            self.emit(Op::Select32 { d, a: yes, b: no, p: low });
            return Ok(());
        };
        let high = self.combined(parts, high, c)?;
        let mut halves = [0; 2];
        for (half, p) in halves.iter_mut().zip([low, high]) {
            *half = self.fresh_word();
            let d = *half;
            self.emit(Op::Select32 { d, a: yes, b: no, p });
        }
        self.emit(Op::Binary { op: Binary::Pack16, d, a: halves[0], b: halves[1] });
        Ok(())
    }
}
