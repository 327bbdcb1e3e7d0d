//! `cvt` to and from pairs of narrow floats.

use super::arithmetic::{LaneFn, rounding};
use super::operand::{Ty, TyKind};
use super::{Lower, Lowering, Refusal, bad};
use crate::float::{BF16, E2M1, E4M3, E5M2, F16, Narrow, Rounding};
use crate::program::{Binary, Class, Op};
use crate::syntax::Instruction;

impl<'a> Lowering<'a, '_> {
    pub(super) fn convert_packed(
        &mut self,
        ins: &Instruction<'a>,
        parts: &[&str],
        to: &str,
        from: &str,
    ) -> Lower<()> {
        let finite = parts.contains(&"satfinite");
        let relu = parts.contains(&"relu");
        let d = self.target(ins.operands.first().ok_or(Refusal::Unsupported)?, Class::Word)?;
        let d = Self::as_word(d);
        if from == "f32" {
            let [_, high, low] = ins.operands.as_slice() else {
                return bad();
            };
            let high = Self::as_word(self.word(high)?);
            let low = Self::as_word(self.word(low)?);
            let mode = rounding(parts);
            if to == "bf16x2" && mode == Rounding::Nearest && !relu && !finite {
                self.emit(Op::Binary {
                    op: Binary::PackBf16,
                    d: d.slot,
                    a: low.slot,
                    b: high.slot,
                });
                return Ok(());
            }
            let step: LaneFn = match (to, mode, finite) {
                ("bf16x2", Rounding::Nearest, false) => {
                    |a, _, _| one(BF16, a, Rounding::Nearest, false)
                }
                ("bf16x2", Rounding::Nearest, true) => {
                    |a, _, _| one(BF16, a, Rounding::Nearest, true)
                }
                ("bf16x2", Rounding::Zero, false) => |a, _, _| one(BF16, a, Rounding::Zero, false),
                ("f16x2", Rounding::Nearest, false) => {
                    |a, _, _| one(F16, a, Rounding::Nearest, false)
                }
                ("f16x2", Rounding::Nearest, true) => {
                    |a, _, _| one(F16, a, Rounding::Nearest, true)
                }
                ("f16x2", Rounding::Zero, false) => |a, _, _| one(F16, a, Rounding::Zero, false),
                ("e4m3x2", Rounding::Nearest, true) => {
                    |a, _, _| one(E4M3, a, Rounding::Nearest, true)
                }
                ("e5m2x2", Rounding::Nearest, true) => {
                    |a, _, _| one(E5M2, a, Rounding::Nearest, true)
                }
                ("e2m1x2", Rounding::Nearest, true) => {
                    |a, _, _| one(E2M1, a, Rounding::Nearest, true)
                }
                ("ue8m0x2", Rounding::Zero, true) => |a, _, _| u64::from(ue8m0(a as u32, false)),
                ("ue8m0x2", Rounding::Up, true) => |a, _, _| u64::from(ue8m0(a as u32, true)),
                _ => return Err(Refusal::Unsupported),
            };
            let mut pieces = [high, low];
            for piece in &mut pieces {
                if relu {
                    *piece = self.pure_fresh(
                        |a, _, _| {
                            let x = f32::from_bits(a as u32);
                            if x.is_nan() || x > 0.0 { a } else { 0 }
                        },
                        Class::Word,
                        &[*piece],
                    );
                }
                *piece = self.pure_fresh(step, Class::Word, &[*piece]);
            }
            let join: LaneFn = match to {
                "bf16x2" | "f16x2" => |high, low, _| high << 16 | low,
                "e2m1x2" => |high, low, _| high << 4 | low,
                _ => |high, low, _| high << 8 | low,
            };
            self.pure(join, d, &pieces);
            return Ok(());
        }
        let [_, a] = ins.operands.as_slice() else {
            return bad();
        };
        let ty = Ty {
            kind: TyKind::Bits,
            bits: if matches!(from, "f16x2" | "bf16x2") { 32 } else { 16 },
        };
        let a = self.any_source(a, ty)?;
        let step: LaneFn = match (to, from) {
            ("f16x2", "e4m3x2") => |a, _, _| widen_pair(E4M3, F16, 8, a),
            ("f16x2", "e5m2x2") => |a, _, _| widen_pair(E5M2, F16, 8, a),
            ("f16x2", "e2m1x2") => |a, _, _| widen_pair(E2M1, F16, 4, a),
            ("bf16x2", "ue8m0x2") => |a, _, _| {
                let one = |code: u64| {
                    if code == 0xff {
                        0x7fff
                    } else if code == 0 {
                        0x40
                    } else {
                        code << 7
                    }
                };
                one(a & 0xff) | one(a >> 8 & 0xff) << 16
            },
            ("e4m3x2", "f16x2") if finite => |a, _, _| narrow_pair(E4M3, a),
            ("e5m2x2", "f16x2") if finite => |a, _, _| narrow_pair(E5M2, a),
            _ => return Err(Refusal::Unsupported),
        };
        if !relu {
            self.pure(step, d, &[a]);
            return Ok(());
        }
        match (to, from) {
            // Of the wide side, negative halves become zero; NaN stays.
            ("f16x2", _) => {
                let t = self.pure_fresh(step, Class::Word, &[a]);
                self.pure(relu_halves, d, &[t]);
            }
            (_, "f16x2") => {
                let t = self.pure_fresh(relu_halves, Class::Word, &[a]);
                self.pure(step, d, &[t]);
            }
            _ => return Err(Refusal::Unsupported),
        }
        Ok(())
    }

    /// `cvt.pack.sat`: two integers cut to a narrower type, in front of those of a third operand.
    pub(super) fn convert_pack(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let (to, third) = match parts {
            ["cvt", "pack", "sat", to, "s32"] => (*to, false),
            ["cvt", "pack", "sat", to, "s32", "b32"] => (*to, true),
            _ => return Err(Refusal::Unsupported),
        };
        let f: LaneFn = match (to, third) {
            ("u16", false) => |a, b, _| cut_pair(a, b, 0, 0xffff) & 0xffff_ffff,
            ("s16", false) => |a, b, _| cut_pair(a, b, -0x8000, 0x7fff) & 0xffff_ffff,
            ("u8", true) => |a, b, c| onto(c, 8, cut(a, 0, 0xff), cut(b, 0, 0xff)),
            ("s8", true) => |a, b, c| onto(c, 8, cut(a, -0x80, 0x7f), cut(b, -0x80, 0x7f)),
            ("u4", true) => |a, b, c| onto(c, 4, cut(a, 0, 0xf), cut(b, 0, 0xf)),
            ("s4", true) => |a, b, c| onto(c, 4, cut(a, -8, 7), cut(b, -8, 7)),
            ("u2", true) => |a, b, c| onto(c, 2, cut(a, 0, 3), cut(b, 0, 3)),
            ("s2", true) => |a, b, c| onto(c, 2, cut(a, -2, 1), cut(b, -2, 1)),
            _ => return Err(Refusal::Unsupported),
        };
        let (d, sources) = match ins.operands.as_slice() {
            [d, a, b] if !third => (d, vec![self.word(a)?, self.word(b)?]),
            [d, a, b, c] if third => (d, vec![self.word(a)?, self.word(b)?, self.word(c)?]),
            _ => return bad(),
        };
        let d = self.target(d, Class::Word)?;
        let sources: Vec<_> = sources.into_iter().map(Self::as_word).collect();
        self.pure(f, Self::as_word(d), &sources);
        Ok(())
    }
}

fn cut(x: u64, low: i32, high: i32) -> u64 {
    u64::from((x as i32).clamp(low, high) as u32)
}

fn cut_pair(a: u64, b: u64, low: i32, high: i32) -> u64 {
    cut(a, low, high) << 16 | cut(b, low, high) & 0xffff
}

/// Two integers of so many bits below the low bits of a third.
fn onto(c: u64, bits: u32, a: u64, b: u64) -> u64 {
    let mask = (1 << bits) - 1;
    (c << (2 * bits) | (a & mask) << bits | b & mask) & 0xffff_ffff
}

fn relu_halves(a: u64, _: u64, _: u64) -> u64 {
    let one = |code: u64| if code & 0x8000 != 0 && code & 0x7fff <= 0x7c00 { 0 } else { code };
    one(a & 0xffff) | one(a >> 16 & 0xffff) << 16
}

fn one(format: Narrow, bits: u64, mode: Rounding, finite: bool) -> u64 {
    u64::from(format.encode(f64::from(f32::from_bits(bits as u32)), mode, finite))
}

fn widen_pair(from: Narrow, to: Narrow, width: u32, a: u64) -> u64 {
    let mask = (1u64 << width) - 1;
    let piece = |code: u64| {
        u64::from(to.encode(from.decode((code & mask) as u32), Rounding::Nearest, false))
    };
    piece(a) | piece(a >> width) << 16
}

fn narrow_pair(to: Narrow, a: u64) -> u64 {
    let piece =
        |code: u64| u64::from(to.encode(F16.decode(code as u32 & 0xffff), Rounding::Nearest, true));
    piece(a) | piece(a >> 16) << 8
}

/// A power-of-two scale: the biased exponent, rounded toward zero or up.
fn ue8m0(bits: u32, up: bool) -> u32 {
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return 0xff;
    }
    let exponent = magnitude >> 23;
    let rest = magnitude & 0x7f_ffff != 0;
    // Exponent field 0 holds 2^-127 as a subnormal of half the smallest normal.
    let above = if exponent == 0 { magnitude > 0x40_0000 } else { rest };
    (exponent + u32::from(up && above)).min(0xfe)
}
