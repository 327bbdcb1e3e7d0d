//! f32 and f64 instructions.

use super::arithmetic::{LaneFn, rounding};
use super::operand::{Ty, TyKind};
use super::{Lower, Lowering, Refusal, bad};
use crate::float::{self, Rounding};
use crate::program::{Approx, Binary, Class, Op, Reg, Slot, Ternary, Unary};
use crate::syntax::Instruction;

impl<'a> Lowering<'a, '_> {
    pub(super) fn float_misc(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let ty = parts.last().and_then(|name| Ty::parse(name)).ok_or(Refusal::Unsupported)?;
        let (class, f): (Class, LaneFn) = match (parts[0], ty.bits, parts.get(1)) {
            ("copysign", 32, _) => (Class::Word, |a, b, _| (a & 0x8000_0000) | (b & 0x7fff_ffff)),
            ("copysign", 64, _) => (Class::Long, |a, b, _| (a & 1 << 63) | (b & !(1 << 63))),
            ("testp", 64, Some(property)) => (Class::Predicate, property64(property)?),
            ("testp", 32, Some(&"finite")) => {
                (Class::Predicate, |a, _, _| u64::from(f32::from_bits(a as u32).is_finite()))
            }
            ("testp", 32, Some(&"infinite")) => {
                (Class::Predicate, |a, _, _| u64::from(f32::from_bits(a as u32).is_infinite()))
            }
            ("testp", 32, Some(&"number")) => {
                (Class::Predicate, |a, _, _| u64::from(!f32::from_bits(a as u32).is_nan()))
            }
            ("testp", 32, Some(&"notanumber")) => {
                (Class::Predicate, |a, _, _| u64::from(f32::from_bits(a as u32).is_nan()))
            }
            ("testp", 32, Some(&"normal")) => {
                (Class::Predicate, |a, _, _| u64::from(f32::from_bits(a as u32).is_normal()))
            }
            ("testp", 32, Some(&"subnormal")) => {
                (Class::Predicate, |a, _, _| u64::from(f32::from_bits(a as u32).is_subnormal()))
            }
            _ => return Err(Refusal::Unsupported),
        };
        let d = self.target(ins.operands.first().ok_or(Refusal::Unsupported)?, class)?;
        let regs = self.sources(ins, ty)?;
        self.pure(f, Reg { class, slot: d }, &regs);
        Ok(())
    }

    pub(super) fn float32(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let base = parts[0];
        let ty = Ty { kind: TyKind::Float, bits: 32 };
        let d = self.target(ins.operands.first().ok_or(Refusal::Unsupported)?, Class::Word)?;
        let mut s: Vec<Slot> = self.sources(ins, ty)?.iter().map(|r| r.slot).collect();
        let ftz = parts.contains(&"ftz");
        let sat = parts.contains(&"sat");
        let approx = parts.contains(&"approx") || parts.contains(&"full");
        if let Some(op) = approximate(base, approx, ftz) {
            let &[a] = s.as_slice() else { return bad() };
            self.emit(Op::Approx { op, d, a });
            return Ok(());
        }
        // Products flush their operands themselves, for they judge them exactly.
        let product = matches!(base, "mul" | "fma" | "mad");
        if ftz && !product {
            for slot in &mut s {
                let t = self.fresh_word();
                self.pure(
                    |a, _, _| u64::from(float::flush(a as u32)),
                    Self::as_word(t),
                    &[Self::as_word(*slot)],
                );
                *slot = t;
            }
        }
        let result = if ftz || sat { self.fresh_word() } else { d };
        if let ("div", true, &[a, b]) = (base, approx, s.as_slice()) {
            self.quotient([parts.contains(&"full"), ftz], result, a, b);
        } else {
            self.float32_op(base, parts, result, &s)?;
        }
        let mut at = result;
        if ftz {
            let t = if sat { self.fresh_word() } else { d };
            self.pure(
                |a, _, _| u64::from(float::flush(a as u32)),
                Self::as_word(t),
                &[Self::as_word(at)],
            );
            at = t;
        }
        if sat {
            self.emit(Op::Unary { op: Unary::Saturate, d, a: at });
        }
        Ok(())
    }

    /// The quotient as the hardware makes it of a reciprocal: operands are scaled where the divisor
    /// has none that is normal; without `full`, divisors above 2^126 give zero.
    fn quotient(&mut self, [full, ftz]: [bool; 2], d: Slot, a: Slot, b: Slot) {
        let scale: LaneFn = |b, full, _| {
            let magnitude = f32::from_bits(b as u32).abs();
            let by = if magnitude < f32::MIN_POSITIVE {
                16_777_216.0f32
            } else if full != 0 && magnitude > 8.507_059e37 {
                0.25
            } else {
                1.0
            };
            u64::from(by.to_bits())
        };
        let flag = self.word_constant(full.into());
        let by = self.pure_fresh(scale, Class::Word, &[b, flag].map(Self::as_word)).slot;
        let [x, y, r] = [0; 3].map(|_| self.fresh_word());
        self.binary(Binary::FMul, x, b, by);
        self.binary(Binary::FMul, y, a, by);
        let op = if full { Approx::Rcp } else { Approx::RcpFtz };
        self.emit(Op::Approx { op, d: r, a: x });
        match directed32("mul", Rounding::Nearest, true) {
            Some(f) if ftz => self.pure(f, Self::as_word(d), &[y, r].map(Self::as_word)),
            _ => self.binary(Binary::FMul, d, y, r),
        }
    }

    fn float32_op(&mut self, base: &str, parts: &[&str], d: Slot, s: &[Slot]) -> Lower<()> {
        let mode = rounding(parts);
        let nan = parts.contains(&"NaN");
        if base != "abs" && parts.iter().any(|part| matches!(*part, "xorsign" | "abs" | "relu")) {
            let f: LaneFn = match (base, nan, xor_sign(parts)?) {
                ("min", false, ()) => |a, b, _| signed_pick(a, b, |a, b| float::min32(a, b, false)),
                ("min", true, ()) => |a, b, _| signed_pick(a, b, |a, b| float::min32(a, b, true)),
                ("max", false, ()) => |a, b, _| signed_pick(a, b, |a, b| float::max32(a, b, false)),
                ("max", true, ()) => |a, b, _| signed_pick(a, b, |a, b| float::max32(a, b, true)),
                _ => return Err(Refusal::Unsupported),
            };
            let &[a, b] = s else { return bad() };
            self.pure(f, Self::as_word(d), &[a, b].map(Self::as_word));
            return Ok(());
        }
        let ftz = parts.contains(&"ftz");
        let nearest = mode == Rounding::Nearest;
        match (base, s) {
            ("add", &[a, b]) if nearest => self.binary(Binary::FAdd, d, a, b),
            ("add", &[a, b]) if mode == Rounding::Zero => self.binary(Binary::FAddZero, d, a, b),
            ("sub", &[a, b]) if nearest => self.binary(Binary::FSub, d, a, b),
            ("mul", &[a, b]) if nearest && !ftz => self.binary(Binary::FMul, d, a, b),
            ("min", &[a, b]) if !nan => self.binary(Binary::FMin, d, a, b),
            ("max", &[a, b]) if !nan => self.binary(Binary::FMax, d, a, b),
            ("neg", &[a]) => self.emit(Op::Unary { op: Unary::FloatNegate, d, a }),
            ("abs", &[a]) => self.emit(Op::Unary { op: Unary::FloatAbs, d, a }),
            ("fma" | "mad", &[a, b, c]) if nearest && !ftz => {
                self.emit(Op::Ternary { op: Ternary::Fma, d, a, b, c })
            }
            ("fma" | "mad", &[a, b, c]) if mode == Rounding::Down && !ftz => {
                self.emit(Op::Ternary { op: Ternary::FmaDown, d, a, b, c })
            }
            _ => {
                let f = directed32(base, mode, ftz).ok_or(Refusal::Unsupported)?;
                let regs: Vec<Reg> = s.iter().map(|slot| Self::as_word(*slot)).collect();
                if regs.len() > 3 {
                    return Err(Refusal::Unsupported);
                }
                self.pure(f, Self::as_word(d), &regs);
            }
        }
        Ok(())
    }

    fn binary(&mut self, op: Binary, d: Slot, a: Slot, b: Slot) {
        self.emit(Op::Binary { op, d, a, b });
    }

    pub(super) fn float64(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let ty = Ty { kind: TyKind::Float, bits: 64 };
        let d = self.target(ins.operands.first().ok_or(Refusal::Unsupported)?, Class::Long)?;
        let regs = self.sources(ins, ty)?;
        let f = crate::wide::function(parts[0], rounding(parts), parts)
            .filter(|(_, count)| *count == regs.len())
            .ok_or(Refusal::Unsupported)?
            .0;
        self.pure(f, Self::as_long(d), &regs);
        Ok(())
    }
}

/// `.xorsign.abs`, which always stand together.
pub(super) fn xor_sign(parts: &[&str]) -> Lower<()> {
    let both = parts.contains(&"xorsign") && parts.contains(&"abs") && !parts.contains(&"relu");
    if both { Ok(()) } else { Err(Refusal::Unsupported) }
}

/// A choice between magnitudes that takes the product's sign; NaN stays as it is.
fn signed_pick(a: u64, b: u64, pick: fn(u32, u32) -> u32) -> u64 {
    let (a, b) = (a as u32, b as u32);
    let chosen = pick(a & 0x7fff_ffff, b & 0x7fff_ffff);
    let sign = if f32::from_bits(chosen).is_nan() { 0 } else { (a ^ b) & 0x8000_0000 };
    u64::from(chosen | sign)
}

fn property64(name: &str) -> Lower<LaneFn> {
    Ok(match name {
        "finite" => |a, _, _| u64::from(f64::from_bits(a).is_finite()),
        "infinite" => |a, _, _| u64::from(f64::from_bits(a).is_infinite()),
        "number" => |a, _, _| u64::from(!f64::from_bits(a).is_nan()),
        "notanumber" => |a, _, _| u64::from(f64::from_bits(a).is_nan()),
        "normal" => |a, _, _| u64::from(f64::from_bits(a).is_normal()),
        "subnormal" => |a, _, _| u64::from(f64::from_bits(a).is_subnormal()),
        _ => return Err(Refusal::Unsupported),
    })
}

fn approximate(base: &str, approx: bool, ftz: bool) -> Option<Approx> {
    let (plain, flushed) = match base {
        "ex2" => (Approx::Ex2, Approx::Ex2Ftz),
        "lg2" => (Approx::Lg2, Approx::Lg2Ftz),
        "sin" => (Approx::Sin, Approx::SinFtz),
        "cos" => (Approx::Cos, Approx::CosFtz),
        "tanh" => (Approx::Tanh, Approx::Tanh),
        "rsqrt" => (Approx::Rsqrt, Approx::RsqrtFtz),
        "rcp" if approx => (Approx::Rcp, Approx::RcpFtz),
        "sqrt" if approx => (Approx::Sqrt, Approx::SqrtFtz),
        _ => return None,
    };
    Some(if ftz { flushed } else { plain })
}

/// The f32 operations outside the hot ones, by rounding direction.
fn directed32(base: &str, mode: Rounding, ftz: bool) -> Option<LaneFn> {
    macro_rules! by_mode {
        (|$a:ident, $b:ident, $c:ident, $r:ident| $body:expr) => {
            match mode {
                Rounding::Nearest => by_mode!(@one $a $b $c $r Nearest $body),
                Rounding::Zero => by_mode!(@one $a $b $c $r Zero $body),
                Rounding::Down => by_mode!(@one $a $b $c $r Down $body),
                Rounding::Up => by_mode!(@one $a $b $c $r Up $body),
            }
        };
        (@one $a:ident $b:ident $c:ident $r:ident $mode:ident $body:expr) => {
            |$a, $b, $c| {
                let ($a, $b, $c) = (
                    float::f32_of($a as u32),
                    float::f32_of($b as u32),
                    float::f32_of($c as u32),
                );
                let $r = Rounding::$mode;
                let _ = ($a, $b, $c);
                u64::from($body)
            }
        };
    }
    let f: LaneFn = match base {
        "add" => by_mode!(|a, b, c, r| float::add32(a, b, r)),
        "sub" => by_mode!(|a, b, c, r| float::add32(a, -b, r)),
        "mul" if ftz => by_mode!(|a, b, c, r| float::mul32_flushed(a, b, r)),
        "fma" | "mad" if ftz => by_mode!(|a, b, c, r| float::fma32_flushed(a, b, c, r)),
        "mul" => by_mode!(|a, b, c, r| float::mul32(a, b, r)),
        "fma" | "mad" => by_mode!(|a, b, c, r| float::fma32(a, b, c, r)),
        "div" if ftz => by_mode!(|a, b, c, r| float::div32_flushed(a, b, r)),
        "rcp" if ftz => by_mode!(|a, b, c, r| float::div32_flushed(1.0, a, r)),
        "div" => by_mode!(|a, b, c, r| float::div32(a, b, r)),
        "rcp" => by_mode!(|a, b, c, r| float::div32(1.0, a, r)),
        "sqrt" => by_mode!(|a, b, c, r| float::sqrt32(a, r)),
        "min" => |a, b, _| u64::from(float::min32(a as u32, b as u32, true)),
        "max" => |a, b, _| u64::from(float::max32(a as u32, b as u32, true)),
        _ => return None,
    };
    Some(f)
}
