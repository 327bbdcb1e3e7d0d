//! f16 and bf16 arithmetic, scalar and packed.

use super::arithmetic::LaneFn;
use super::operand::{Ty, TyKind};
use super::{Lower, Lowering, Refusal};
use crate::float::{BF16, F16, NAN_16, Narrow, Rounding, add_to_odd};
use crate::program::{Binary, Class, Op, Reg, Ternary};
use crate::syntax::Instruction;

fn encode(format: Narrow, x: f64) -> u64 {
    u64::from(format.encode(x, Rounding::Nearest, false))
}

/// f16 has a flushing form; a subnormal becomes a zero of its sign.
fn flush16(code: u64) -> u64 {
    if code & 0x7c00 == 0 { code & 0x8000 } else { code }
}

/// A result of `.ftz`: zero where the exact value lies below the least normal number when it is
/// rounded to as many bits as a normal one has, as an H200 has it.
fn encode_flushed(x: f64) -> u64 {
    const LEAST: f64 = 1.0 / 16384.0;
    const SCALE: f64 = 1024.0;
    let rounded = F16.decode(F16.encode(x * SCALE, Rounding::Nearest, false));
    let tiny = x.abs() < LEAST && rounded.abs() < LEAST * SCALE;
    if tiny { x.to_bits() >> 63 << 15 } else { encode(F16, x) }
}

/// Of a result: no number has one pattern there, in both formats.
fn relu(code: u64) -> u64 {
    if code == u64::from(NAN_16) || code & 0x8000 == 0 { code } else { 0 }
}

fn saturate(format: Narrow, code: u64) -> u64 {
    let x = format.decode(code as u32);
    encode(format, if x > 0.0 { x.min(1.0) } else { 0.0 })
}

fn min_max(format: Narrow, a: u64, b: u64, larger: bool, nan_wins: bool) -> u64 {
    let (a, b) = (a & 0xffff, b & 0xffff);
    let is_nan = |code: u64| (code & 0x7fff) as u32 > format.infinity;
    match (is_nan(a), is_nan(b)) {
        (true, true) => return 0x7fff,
        (true, _) | (_, true) if nan_wins => return 0x7fff,
        (true, false) => return b,
        (false, true) => return a,
        _ => {}
    }
    let key = |code: u64| {
        let signed = i32::from(code as u16 as i16);
        signed ^ (((signed >> 31) as u32) >> 1) as i32
    };
    if (key(a) > key(b)) == larger { a } else { b }
}

/// Applies `f` to both halves.
fn pair(a: u64, b: u64, c: u64, f: fn(u64, u64, u64) -> u64) -> u64 {
    let low = f(a & 0xffff, b & 0xffff, c & 0xffff) & 0xffff;
    let high = f(a >> 16 & 0xffff, b >> 16 & 0xffff, c >> 16 & 0xffff) & 0xffff;
    low | high << 16
}

macro_rules! lanes {
    ($packed:expr, |$a:ident, $b:ident, $c:ident| $body:expr) => {
        if $packed {
            (|a, b, c| {
                pair(a, b, c, |$a, $b, $c| {
                    let _ = ($a, $b, $c);
                    $body
                })
            }) as LaneFn
        } else {
            (|$a, $b, $c| {
                let _ = ($a, $b, $c);
                $body
            }) as LaneFn
        }
    };
}

macro_rules! arithmetic_of {
    ($name:ident, $format:ident) => {
        fn $name(base: &str, parts: &[&str], packed: bool) -> Option<(LaneFn, usize)> {
            let x = |code: u64| $format.decode(code as u32);
            let _ = x;
            let nan = parts.contains(&"NaN");
            let ftz = parts.contains(&"ftz");
            Some(match base {
                "mul" if ftz => (
                    lanes!(packed, |a, b, c| encode_flushed(
                        $format.decode(a as u32) * $format.decode(b as u32)
                    )),
                    2,
                ),
                "fma" if ftz => (
                    lanes!(packed, |a, b, c| encode_flushed(add_to_odd(
                        $format.decode(a as u32) * $format.decode(b as u32),
                        $format.decode(c as u32)
                    ))),
                    3,
                ),
                "add" => (
                    lanes!(packed, |a, b, c| encode(
                        $format,
                        add_to_odd($format.decode(a as u32), $format.decode(b as u32))
                    )),
                    2,
                ),
                "sub" => (
                    lanes!(packed, |a, b, c| encode(
                        $format,
                        add_to_odd($format.decode(a as u32), -$format.decode(b as u32))
                    )),
                    2,
                ),
                "mul" => (
                    lanes!(packed, |a, b, c| encode(
                        $format,
                        $format.decode(a as u32) * $format.decode(b as u32)
                    )),
                    2,
                ),
                "fma" => (
                    lanes!(packed, |a, b, c| encode(
                        $format,
                        add_to_odd(
                            $format.decode(a as u32) * $format.decode(b as u32),
                            $format.decode(c as u32)
                        )
                    )),
                    3,
                ),
                "min" if nan => (lanes!(packed, |a, b, c| min_max($format, a, b, false, true)), 2),
                "max" if nan => (lanes!(packed, |a, b, c| min_max($format, a, b, true, true)), 2),
                "min" => (lanes!(packed, |a, b, c| min_max($format, a, b, false, false)), 2),
                "max" => (lanes!(packed, |a, b, c| min_max($format, a, b, true, false)), 2),
                "neg" => (lanes!(packed, |a, b, c| a ^ 0x8000), 1),
                "abs" => (lanes!(packed, |a, b, c| a & 0x7fff), 1),
                "ex2" => (
                    lanes!(packed, |a, b, c| encode($format, libm::exp2($format.decode(a as u32)))),
                    1,
                ),
                "tanh" => (
                    lanes!(packed, |a, b, c| encode($format, libm::tanh($format.decode(a as u32)))),
                    1,
                ),
                _ => return None,
            })
        }
    };
}

arithmetic_of!(half_f16, F16);
arithmetic_of!(half_bf16, BF16);

impl<'a> Lowering<'a, '_> {
    pub(super) fn half(&mut self, ins: &Instruction<'a>, parts: &[&str], ty: Ty) -> Lower<()> {
        let packed = matches!(ty.kind, TyKind::F16x2 | TyKind::Bf16x2);
        let brain = matches!(ty.kind, TyKind::Bf16 | TyKind::Bf16x2);
        if super::arithmetic::rounding(parts) != Rounding::Nearest {
            return Err(Refusal::Unsupported);
        }
        let signed = parts[0] != "abs" && (parts.contains(&"xorsign") || parts.contains(&"abs"));
        let first = ins.operands.first().ok_or(Refusal::Unsupported)?;
        let d = self.target(first, Class::Word)?;
        let mut sources: Vec<Reg> = Vec::new();
        for operand in &ins.operands[1..] {
            sources.push(self.source(operand, ty)?);
        }
        let table = if brain { half_bf16 } else { half_f16 };
        let (f, count) = table(parts[0], parts, packed).ok_or(Refusal::Unsupported)?;
        if sources.len() != count {
            return Err(Refusal::Unsupported);
        }
        let ftz = parts.contains(&"ftz") && !brain;
        if ftz {
            let flush = lanes!(packed, |a, b, c| flush16(a));
            for reg in &mut sources {
                *reg = self.pure_fresh(flush, Class::Word, &[*reg]);
            }
        }
        let mut after: Vec<LaneFn> = Vec::new();
        let mut product_sign = None;
        if signed {
            super::float::xor_sign(parts)?;
            let [a, b] = [sources[0], sources[1]];
            product_sign =
                Some(self.pure_fresh(|a, b, _| (a ^ b) & 0x8000_8000, Class::Word, &[a, b]));
            for reg in &mut sources {
                *reg = self.pure_fresh(|a, _, _| a & 0x7fff_7fff, Class::Word, &[*reg]);
            }
        }
        if ftz {
            after.push(lanes!(packed, |a, b, c| flush16(a)));
        }
        if parts.contains(&"relu") {
            after.push(lanes!(packed, |a, b, c| relu(a)));
        }
        if parts.contains(&"sat") {
            after.push(if brain {
                lanes!(packed, |a, b, c| saturate(BF16, a))
            } else {
                lanes!(packed, |a, b, c| saturate(F16, a))
            });
        }
        if let Some(sign) = product_sign {
            let chosen = self.pure_fresh(f, Class::Word, &sources);
            // NaN stays as it is.
            let give: LaneFn = if packed {
                |a, sign, _| pair(a, sign, 0, |a, sign, _| if a == 0x7fff { a } else { a | sign })
            } else {
                |a, sign, _| if a == 0x7fff { a } else { a | sign & 0x8000 }
            };
            self.pure(give, Self::as_word(d), &[chosen, sign]);
            return Ok(());
        }
        if brain && packed && after.is_empty() && self.packed_bf16(parts[0], d, &sources) {
            return Ok(());
        }
        let mut at = if after.is_empty() { Self::as_word(d) } else { self.fresh(Class::Word) };
        self.pure(f, at, &sources);
        for (i, step) in after.iter().enumerate() {
            let next =
                if i + 1 == after.len() { Self::as_word(d) } else { self.fresh(Class::Word) };
            self.pure(*step, next, &[at]);
            at = next;
        }
        Ok(())
    }

    fn packed_bf16(&mut self, base: &str, d: u16, s: &[Reg]) -> bool {
        match (base, s) {
            ("add", [a, b]) => {
                self.emit(Op::Binary { op: Binary::BfPairAdd, d, a: a.slot, b: b.slot })
            }
            ("mul", [a, b]) => {
                self.emit(Op::Binary { op: Binary::BfPairMul, d, a: a.slot, b: b.slot })
            }
            ("fma", [a, b, c]) => self.emit(Op::Ternary {
                op: Ternary::BfPairFma,
                d,
                a: a.slot,
                b: b.slot,
                c: c.slot,
            }),
            _ => return false,
        }
        true
    }
}
