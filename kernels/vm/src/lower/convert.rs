//! `cvt` between every pair of types, composed of exact steps.

use super::arithmetic::{LaneFn, rounding};
use super::operand::{Ty, TyKind};
use super::{Lower, Lowering, Refusal, bad};
use crate::float::{self, BF16, F16, Narrow, Rounding, bits64};
use crate::program::{Binary, Class, Long2, Op, Reg, Unary};
use crate::syntax::Instruction;

/// Picks the instance of a lane function for a rounding direction.
macro_rules! rounded {
    ($mode:expr, |$a:ident, $r:ident| $body:expr) => {
        match $mode {
            Rounding::Nearest => rounded!(@one $a $r Nearest $body),
            Rounding::Zero => rounded!(@one $a $r Zero $body),
            Rounding::Down => rounded!(@one $a $r Down $body),
            Rounding::Up => rounded!(@one $a $r Up $body),
        }
    };
    (@one $a:ident $r:ident $mode:ident $body:expr) => {
        (|$a, _, _| {
            let $r = Rounding::$mode;
            $body
        }) as LaneFn
    };
}

fn real(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// An integer as f64 bits, rounded to odd where it has more than 53 bits.
fn odd_of(magnitude: u64, negative: bool) -> u64 {
    let lost = 64u32.saturating_sub(53 + magnitude.leading_zeros());
    let kept = if lost == 0 {
        magnitude
    } else {
        let sticky = u64::from(magnitude & ((1 << lost) - 1) != 0);
        ((magnitude >> lost) | sticky) << lost
    };
    let x = kept as f64;
    (if negative { -x } else { x }).to_bits()
}

/// An integer as f64 bits: the halves are exact, and so is the sum but for its rounding.
fn whole_to_f64(magnitude: u64, negative: bool, rounding: Rounding) -> u64 {
    let high = (magnitude >> 32) as f64 * 4_294_967_296.0;
    let low = (magnitude & 0xffff_ffff) as f64;
    match (magnitude, negative) {
        (0, _) => 0,
        (_, true) => crate::exact::add(-high, -low, rounding),
        _ => crate::exact::add(high, low, rounding),
    }
}

fn from_signed(a: u64, _: u64, _: u64) -> u64 {
    odd_of((a as i64).unsigned_abs(), (a as i64) < 0)
}

fn from_unsigned(a: u64, _: u64, _: u64) -> u64 {
    odd_of(a, false)
}

impl<'a> Lowering<'a, '_> {
    pub(super) fn convert(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        if parts.get(1) == Some(&"pack") {
            return self.convert_pack(ins, parts);
        }
        let from_name = *parts.last().unwrap_or(&"");
        let to_name = *parts.get(parts.len().wrapping_sub(2)).unwrap_or(&"");
        let packed = ["bf16x2", "f16x2", "e4m3x2", "e5m2x2", "e2m1x2", "ue8m0x2"];
        if packed.contains(&to_name) || packed.contains(&from_name) {
            return self.convert_packed(ins, parts, to_name, from_name);
        }
        let [d, a] = ins.operands.as_slice() else {
            return bad();
        };
        if to_name == "tf32" {
            let d = self.target(d, Class::Word)?;
            let a = self.word(a)?;
            let f: LaneFn = match parts {
                ["cvt", "rna", "tf32", "f32"] => |a, _, _| u64::from(tf32_away(a as u32)),
                ["cvt", "rna", "satfinite", "tf32", "f32"] => {
                    |a, _, _| u64::from(tf32_away_finite(a as u32))
                }
                ["cvt", "rn", "tf32", "f32"] => |a, _, _| u64::from(tf32_nearest(a as u32)),
                ["cvt", "rz", "tf32", "f32"] => |a, _, _| u64::from(tf32_toward_zero(a as u32)),
                ["cvt", "rn", "relu", "tf32", "f32"] => {
                    |a, _, _| u64::from(positive(tf32_nearest(a as u32)))
                }
                ["cvt", "rz", "relu", "tf32", "f32"] => {
                    |a, _, _| u64::from(positive(tf32_toward_zero(a as u32)))
                }
                _ => return Err(Refusal::Unsupported),
            };
            self.pure(f, Self::as_word(d), &[Self::as_word(a)]);
            return Ok(());
        }
        let (Some(to), Some(from)) = (Ty::parse(to_name), Ty::parse(from_name)) else {
            return Err(Refusal::Unsupported);
        };
        let (d, d_bits) = self.destination(d, to.class())?;
        let a = self.any_source(a, from)?;
        let floating = |ty: Ty| matches!(ty.kind, TyKind::Float | TyKind::Bf16);
        match (floating(from), floating(to)) {
            (false, false) => self.integer_to_integer(d, d_bits, a, to, from, parts),
            (false, true) => self.integer_to_float(d, a, to, from, parts),
            (true, false) => self.float_to_integer(d, d_bits, a, to, from, parts),
            (true, true) => self.float_to_float(d, a, to, from, parts),
        }
    }

    /// A source register that may be wider than its type.
    pub(super) fn any_source(
        &mut self,
        operand: &crate::syntax::Operand<'a>,
        ty: Ty,
    ) -> Lower<Reg> {
        if let crate::syntax::Operand::Name(name) = operand
            && let Some(super::Binding::Register { reg, bits }) = self.lookup(name)
            && bits != 128
            && reg.class != Class::Predicate
            && bits >= ty.bits
        {
            return Ok(reg);
        }
        self.source(operand, ty)
    }

    /// The integer value of `a`, extended by its type to 64 bits.
    fn extended(&mut self, a: Reg, from: Ty) -> Reg {
        let mut word = a;
        if a.class == Class::Long {
            if from.bits == 64 {
                return a;
            }
            word = self.fresh(Class::Word);
            self.emit(Op::Trunc { d: word.slot, a: a.slot });
        }
        word = self.cut(word, from);
        let d = self.fresh_long();
        self.emit(if from.signed() {
            Op::Sext { d, a: word.slot }
        } else {
            Op::Zext { d, a: word.slot }
        });
        Self::as_long(d)
    }

    /// A word reduced to an 8- or 16-bit type and extended by it to 32 bits.
    fn cut(&mut self, word: Reg, from: Ty) -> Reg {
        let slot = match (from.bits, from.signed()) {
            (8, true) => self.unary(Unary::Sext8, word.slot),
            (16, true) => self.unary(Unary::Sext16, word.slot),
            (16, false) => self.unary(Unary::Low16, word.slot),
            (8, false) => {
                let mask = self.word_constant(0xff);
                let d = self.fresh_word();
                self.emit(Op::Binary { op: Binary::And, d, a: word.slot, b: mask });
                d
            }
            _ => return word,
        };
        Self::as_word(slot)
    }

    /// Writes a 64-bit integer value into `d`, a register of `d_bits` holding type `to`.
    fn deliver(&mut self, d: Reg, d_bits: u8, value: Reg, to: Ty) {
        if d.class == Class::Long {
            if to.bits == 64 {
                self.copy(d, value);
            } else {
                let word = self.fresh_word();
                self.emit(Op::Trunc { d: word, a: value.slot });
                let word = self.cut(Self::as_word(word), to);
                self.emit(if to.signed() {
                    Op::Sext { d: d.slot, a: word.slot }
                } else {
                    Op::Zext { d: d.slot, a: word.slot }
                });
            }
            return;
        }
        if to.bits == 32 && d_bits == 32 {
            self.emit(Op::Trunc { d: d.slot, a: value.slot });
            return;
        }
        let word = self.fresh_word();
        self.emit(Op::Trunc { d: word, a: value.slot });
        let word = self.cut(Self::as_word(word), to);
        if d_bits <= 16 {
            self.emit(Op::Unary { op: Unary::Low16, d: d.slot, a: word.slot });
        } else {
            self.copy(d, word);
        }
    }

    fn integer_to_integer(
        &mut self,
        d: Reg,
        d_bits: u8,
        a: Reg,
        to: Ty,
        from: Ty,
        parts: &[&str],
    ) -> Lower<()> {
        let sat = parts.contains(&"sat");
        if !sat && a.class == Class::Word && d.class == Class::Long && to.bits == 64 {
            let word = self.cut(a, from);
            self.emit(if from.signed() {
                Op::Sext { d: d.slot, a: word.slot }
            } else {
                Op::Zext { d: d.slot, a: word.slot }
            });
            return Ok(());
        }
        if !sat && a.class == Class::Long && d_bits == 32 && to.bits == 32 && from.bits >= 32 {
            self.emit(Op::Trunc { d: d.slot, a: a.slot });
            return Ok(());
        }
        if !sat && a.class == Class::Word && d.class == Class::Word {
            let mut word = self.cut(a, from);
            word = self.cut(word, to);
            if d_bits <= 16 {
                self.emit(Op::Unary { op: Unary::Low16, d: d.slot, a: word.slot });
            } else {
                self.copy(d, word);
            }
            return Ok(());
        }
        let mut value = self.extended(a, from);
        if sat {
            value = self.clamp(value, to, from)?;
        }
        self.deliver(d, d_bits, value, to);
        Ok(())
    }

    fn clamp(&mut self, value: Reg, to: Ty, from: Ty) -> Lower<Reg> {
        if to.bits == 64 {
            if to.signed() == from.signed() {
                return Ok(value);
            }
            let f: LaneFn = if to.signed() {
                |a, _, _| a.min(i64::MAX as u64)
            } else {
                |a, _, _| (a as i64).max(0) as u64
            };
            return Ok(self.pure_fresh(f, Class::Long, &[value]));
        }
        let (low, high) = if to.signed() {
            (-(1i64 << (to.bits - 1)), (1i64 << (to.bits - 1)) - 1)
        } else {
            (0, (1i64 << to.bits) - 1)
        };
        let mut value = value;
        let limits = if from.signed() {
            vec![(Long2::MaxS, low), (Long2::MinS, high)]
        } else {
            vec![(Long2::MinU, high)]
        };
        for (op, limit) in limits {
            let b = self.long_constant(limit as u64);
            let d = self.fresh_long();
            self.emit(Op::Long2 { op, d, a: value.slot, b });
            value = Self::as_long(d);
        }
        Ok(value)
    }

    fn integer_to_float(&mut self, d: Reg, a: Reg, to: Ty, from: Ty, parts: &[&str]) -> Lower<()> {
        let mode = rounding(parts);
        if to.kind == TyKind::Float
            && to.bits == 32
            && from.bits <= 32
            && mode == Rounding::Nearest
            && a.class == Class::Word
            && !parts.contains(&"sat")
        {
            let word = self.cut(a, from);
            let op = if from.signed() { Unary::F32OfS32 } else { Unary::F32OfU32 };
            self.emit(Op::Unary { op, d: d.slot, a: word.slot });
            return Ok(());
        }
        let value = self.extended(a, from);
        if to.bits == 64 {
            let f: LaneFn = if from.signed() {
                rounded!(mode, |a, r| whole_to_f64((a as i64).unsigned_abs(), (a as i64) < 0, r))
            } else {
                rounded!(mode, |a, r| whole_to_f64(a, false, r))
            };
            self.pure(f, d, &[value]);
            return Ok(());
        }
        let odd: LaneFn = if from.signed() { from_signed } else { from_unsigned };
        let exact = self.pure_fresh(odd, Class::Long, &[value]);
        self.narrowed(d, exact, to, mode, parts)
    }

    /// f64 bits (exact or rounded to odd) into a float type of at most 32 bits.
    fn narrowed(&mut self, d: Reg, a: Reg, to: Ty, mode: Rounding, parts: &[&str]) -> Lower<()> {
        let finite = parts.contains(&"satfinite");
        let f: LaneFn = match (to.kind, to.bits) {
            (TyKind::Float, 32) => rounded!(mode, |a, r| narrow_bits(a, r)),
            (TyKind::Float, 16) if finite => {
                rounded!(mode, |a, r| u64::from(F16.encode(real(a), r, true)))
            }
            (TyKind::Float, 16) => rounded!(mode, |a, r| u64::from(F16.encode(real(a), r, false))),
            (TyKind::Bf16, _) if finite => {
                rounded!(mode, |a, r| u64::from(BF16.encode(real(a), r, true)))
            }
            (TyKind::Bf16, _) => rounded!(mode, |a, r| u64::from(BF16.encode(real(a), r, false))),
            _ => return Err(Refusal::Unsupported),
        };
        let relu = parts.contains(&"relu");
        let sat = parts.contains(&"sat");
        let ftz = parts.contains(&"ftz") && to.bits == 32;
        if !relu && !sat && !ftz {
            self.pure(f, d, &[a]);
            return Ok(());
        }
        let mut a = a;
        if relu {
            a = self.pure_fresh(
                |a, _, _| if real(a).is_nan() || real(a) > 0.0 { a } else { 0 },
                Class::Long,
                &[a],
            );
        }
        if sat {
            a = self.pure_fresh(
                |a, _, _| if real(a) > 0.0 { real(a).min(1.0).to_bits() } else { 0 },
                Class::Long,
                &[a],
            );
        }
        if ftz {
            let f: LaneFn = rounded!(mode, |a, r| u64::from(float::narrow_flushed(real(a), r)));
            self.pure(f, d, &[a]);
        } else {
            self.pure(f, d, &[a]);
        }
        Ok(())
    }

    /// The exact f64 value of a float operand.
    fn widened(&mut self, a: Reg, from: Ty, ftz: bool) -> Lower<Reg> {
        let step: LaneFn = match (from.kind, from.bits) {
            (TyKind::Float, 64) => return Ok(a),
            (TyKind::Float, 32) if ftz => {
                |a, _, _| f64::from(f32::from_bits(float::flush(a as u32))).to_bits()
            }
            (TyKind::Float, 32) => |a, _, _| f64::from(f32::from_bits(a as u32)).to_bits(),
            (TyKind::Float, 16) => |a, _, _| F16.decode(a as u32 & 0xffff).to_bits(),
            (TyKind::Bf16, _) => |a, _, _| BF16.decode(a as u32 & 0xffff).to_bits(),
            _ => return Err(Refusal::Unsupported),
        };
        Ok(self.pure_fresh(step, Class::Long, &[a]))
    }

    fn float_to_integer(
        &mut self,
        d: Reg,
        d_bits: u8,
        a: Reg,
        to: Ty,
        from: Ty,
        parts: &[&str],
    ) -> Lower<()> {
        let mode = integral_mode(parts).unwrap_or(Rounding::Zero);
        let wide = self.widened(a, from, parts.contains(&"ftz"))?;
        let whole = self.pure_fresh(
            rounded!(mode, |a, r| float::integral(real(a), r).to_bits()),
            Class::Long,
            &[wide],
        );
        // NaN gives zero, except from f64 or into 64 bits: there it is the sign bit alone.
        let sign_nan = from.bits == 64 || to.bits == 64;
        let convert: LaneFn = match (to.signed(), to.bits) {
            (true, 8) if sign_nan => |a, _, _| nan_or(a, 1 << 7, |x| x as i8 as u64),
            (true, 16) if sign_nan => |a, _, _| nan_or(a, 1 << 15, |x| x as i16 as u64),
            (true, 8) => |a, _, _| real(a) as i8 as u64,
            (true, 16) => |a, _, _| real(a) as i16 as u64,
            (true, 32) if sign_nan => |a, _, _| nan_or(a, 1 << 31, |x| x as i32 as u64),
            (true, 32) => |a, _, _| real(a) as i32 as u64,
            (true, _) => |a, _, _| nan_or(a, 1 << 63, |x| x as i64 as u64),
            (false, 8) if sign_nan => |a, _, _| nan_or(a, 1 << 7, |x| u64::from(x as u8)),
            (false, 16) if sign_nan => |a, _, _| nan_or(a, 1 << 15, |x| u64::from(x as u16)),
            (false, 8) => |a, _, _| u64::from(real(a) as u8),
            (false, 16) => |a, _, _| u64::from(real(a) as u16),
            (false, 32) if sign_nan => |a, _, _| nan_or(a, 1 << 31, |x| u64::from(x as u32)),
            (false, 32) => |a, _, _| u64::from(real(a) as u32),
            (false, _) => |a, _, _| nan_or(a, 1 << 63, |x| x as u64),
        };
        let value = self.pure_fresh(convert, Class::Long, &[whole]);
        self.deliver(d, d_bits, value, to);
        Ok(())
    }

    fn float_to_float(&mut self, d: Reg, a: Reg, to: Ty, from: Ty, parts: &[&str]) -> Lower<()> {
        let whole = integral_mode(parts);
        let plain = !parts.contains(&"ftz")
            && !parts.contains(&"sat")
            && !parts.contains(&"relu")
            && !parts.contains(&"satfinite")
            && whole.is_none();
        let mode = rounding(parts);
        if plain && mode == Rounding::Nearest {
            let op = match ((from.kind, from.bits), (to.kind, to.bits)) {
                ((TyKind::Float, 32), (TyKind::Bf16, _)) => Some(Unary::Bf16OfF32),
                ((TyKind::Float, 32), (TyKind::Float, 16)) => Some(Unary::F16OfF32),
                ((TyKind::Bf16, _), (TyKind::Float, 32)) => Some(Unary::F32OfBf16),
                ((TyKind::Float, 16), (TyKind::Float, 32)) => Some(Unary::F32OfF16),
                _ => None,
            };
            if let Some(op) = op {
                self.emit(Op::Unary { op, d: d.slot, a: a.slot });
                return Ok(());
            }
        }
        if from.bits == 32
            && to.bits == 32
            && parts.contains(&"sat")
            && whole.is_none()
            && !parts.contains(&"ftz")
        {
            self.emit(Op::Unary { op: Unary::Saturate, d: d.slot, a: a.slot });
            return Ok(());
        }
        let mut wide = self.widened(a, from, parts.contains(&"ftz"))?;
        if let Some(mode) = whole {
            wide = self.pure_fresh(
                rounded!(mode, |a, r| {
                    if float::is_nan64(a) { a } else { float::integral(real(a), r).to_bits() }
                }),
                Class::Long,
                &[wide],
            );
        }
        if to.bits == 64 {
            let step: LaneFn = if parts.contains(&"sat") {
                |a, _, _| if real(a) > 0.0 { real(a).min(1.0).to_bits() } else { 0 }
            } else if from.bits == 64 {
                |a, _, _| float::quiet64(a)
            } else {
                |a, _, _| bits64(real(a))
            };
            self.pure(step, d, &[wide]);
            return Ok(());
        }
        if from.bits == 64 && plain {
            let f: LaneFn = match (to.kind, to.bits) {
                (TyKind::Float, 32) => rounded!(mode, |a, r| cut32(a, r)),
                (TyKind::Float, 16) => rounded!(mode, |a, r| cut16(a, F16, r)),
                (TyKind::Bf16, _) => rounded!(mode, |a, r| cut16(a, BF16, r)),
                _ => return Err(Refusal::Unsupported),
            };
            self.pure(f, d, &[wide]);
            return Ok(());
        }
        self.narrowed(d, wide, to, mode, parts)
    }
}

/// A double to f32; of a NaN the top stays.
fn cut32(a: u64, mode: Rounding) -> u64 {
    if float::is_nan64(a) { float::narrow_nan64(a, 8, 23) } else { narrow_bits(a, mode) }
}

/// A double to a half; of a NaN the top stays.
fn cut16(a: u64, to: Narrow, mode: Rounding) -> u64 {
    if float::is_nan64(a) {
        return float::narrow_nan64(a, to.exponent_bits, to.mantissa_bits);
    }
    u64::from(to.encode(real(a), mode, false))
}

fn narrow_bits(a: u64, mode: Rounding) -> u64 {
    let x = real(a);
    if x.is_infinite() || x.is_nan() {
        return u64::from(float::bits32(x as f32));
    }
    u64::from(float::bits32(float::narrow(x, mode)))
}

fn nan_or(a: u64, nan: u64, convert: fn(f64) -> u64) -> u64 {
    if real(a).is_nan() { nan } else { convert(real(a)) }
}

fn tf32_away(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0x7f80_0000 {
        return if bits & 0x7f_ffff != 0 { float::NAN_F32 } else { bits };
    }
    bits.wrapping_add(0x1000) & !0x1fff
}

/// What exceeds the largest finite number is one step less: infinity becomes that number, and no
/// number keeps its payload but for that step (an H200 computes it so).
fn tf32_away_finite(bits: u32) -> u32 {
    let not_finite = |bits: u32| bits & 0x7f80_0000 == 0x7f80_0000;
    let rounded = if not_finite(bits) { bits } else { bits.wrapping_add(0x1000) } & !0x1fff;
    if not_finite(rounded) { rounded - 0x2000 } else { rounded }
}

pub(crate) fn tf32_nearest(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0x7f80_0000 {
        return if bits & 0x7f_ffff != 0 { float::NAN_F32 } else { bits };
    }
    bits.wrapping_add(0xfff + (bits >> 13 & 1)) & !0x1fff
}

fn tf32_toward_zero(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0x7f80_0000 && bits & 0x7f_ffff != 0 {
        return float::NAN_F32;
    }
    bits & !0x1fff
}

/// Zero instead of a negative number.
fn positive(bits: u32) -> u32 {
    if bits >> 31 == 1 && !f32::from_bits(bits).is_nan() { 0 } else { bits }
}

fn integral_mode(parts: &[&str]) -> Option<Rounding> {
    parts.iter().find_map(|part| match *part {
        "rni" => Some(Rounding::Nearest),
        "rzi" => Some(Rounding::Zero),
        "rmi" => Some(Rounding::Down),
        "rpi" => Some(Rounding::Up),
        _ => None,
    })
}
