//! `wgmma`: products of four warps whose factors lie in shared memory.

use super::{Lower, Lowering, Refusal, bad};
use crate::program::{Class, Factor, Op, Slot, Sum};
use crate::rare::{Rare, Warpgroup, Wide, WideFactor};
use crate::syntax::{Instruction, Operand};

impl<'a> Lowering<'a, '_> {
    pub(super) fn push_rare(&mut self, rare: Rare) {
        self.rares.push(rare);
        self.emit(Op::Rare(self.rares.len().min(usize::from(u16::MAX)) as u16 - 1));
    }

    /// Number of a name among what the machine lacks, for what shows only when it runs.
    fn lacking(&mut self, name: &str) -> u16 {
        self.unsupported.push(name.to_owned());
        (self.unsupported.len() - 1).min(usize::from(u16::MAX)) as u16
    }

    pub(super) fn warpgroup(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        match parts {
            ["wgmma", "fence", "sync", "aligned"] => {
                self.push_rare(Rare::WarpgroupFence);
                Ok(())
            }
            ["wgmma", "commit_group", "sync", "aligned"] => {
                self.push_rare(Rare::WarpgroupCommit);
                Ok(())
            }
            ["wgmma", "wait_group", "sync", "aligned"] => {
                let [Operand::Int(pending)] = ins.operands.as_slice() else {
                    return bad();
                };
                let pending = u32::try_from(*pending).map_err(|_| Refusal::Unsupported)?;
                self.push_rare(Rare::WarpgroupWait { pending });
                Ok(())
            }
            ["wgmma", "mma_async", "sync", "aligned", shape, d, a, b] => {
                self.warpgroup_product(ins, shape, [d, a, b], false)
            }
            ["wgmma", "mma_async", "sync", "aligned", shape, "satfinite", d, a, b]
            | ["wgmma", "mma_async", "sync", "aligned", shape, d, a, b, "satfinite"] => {
                self.warpgroup_product(ins, shape, [d, a, b], true)
            }
            _ => Err(Refusal::Unsupported),
        }
    }

    fn warpgroup_product(
        &mut self,
        ins: &Instruction<'a>,
        shape: &str,
        [d, a, b]: [&str; 3],
        saturate: bool,
    ) -> Lower<()> {
        let [Operand::Vector(sums), left, right, accumulate, rest @ ..] = ins.operands.as_slice()
        else {
            return bad();
        };
        let (factors, sum) = types([d, a, b], saturate).ok_or(Refusal::Unsupported)?;
        let (columns, k) = shape
            .strip_prefix("m64n")
            .and_then(|shape| shape.split_once('k'))
            .and_then(|(n, k)| Some((n.parse::<usize>().ok()?, k.parse::<usize>().ok()?)))
            .ok_or(Refusal::Unsupported)?;
        let fits = columns.is_multiple_of(8) && (8..=256).contains(&columns);
        if !fits || k * factors[0].bits() != 256 {
            return Err(Refusal::Unsupported);
        }
        let count = if sum.is_f16() { columns / 4 } else { columns / 2 };
        if sums.len() != count {
            return bad();
        }
        let mut d: Vec<Slot> = Vec::with_capacity(count);
        for register in sums {
            d.push(self.target(register, Class::Word)?);
        }
        let wide = match left {
            Operand::Vector(list) => {
                let [p, q, r, s] = list.as_slice() else {
                    return bad();
                };
                Wide::Registers([self.word(p)?, self.word(q)?, self.word(r)?, self.word(s)?])
            }
            descriptor => Wide::Descriptor(self.long(descriptor)?),
        };
        let right = self.long(right)?;
        let accumulate = match accumulate {
            Operand::Int(0) => {
                let slot = self.fresh_predicate();
                self.emit(Op::NotP { d: slot, a: 0 });
                Some(slot)
            }
            Operand::Int(_) => None,
            other => {
                let (slot, negated) = self.predicate(other)?;
                if negated {
                    return bad();
                }
                Some(slot)
            }
        };
        let mut negate = [false; 2];
        let mut transposed = [false; 2];
        let rest = rest.iter().map(|operand| match operand {
            Operand::Int(value) => Ok(*value as i64),
            _ => bad(),
        });
        let rest = rest.collect::<Lower<Vec<i64>>>()?;
        let in_registers = matches!(wide, Wide::Registers(_));
        match rest.as_slice() {
            [] => {}
            [x, y, layouts @ ..] => {
                negate = [*x == -1, *y == -1];
                if [*x, *y].iter().any(|scale| scale.abs() != 1) {
                    return bad();
                }
                match (in_registers, layouts) {
                    (_, []) => {}
                    (false, [a, b]) => transposed = [*a != 0, *b != 0],
                    (true, [b]) => transposed = [false, *b != 0],
                    _ => return bad(),
                }
            }
            _ => return bad(),
        }
        if transposed != [false; 2] && factors[0].bits() != 16 {
            return bad();
        }
        let base_offset = self.lacking(&format!("{} with a base offset", ins.opcode));
        self.push_rare(Rare::Warpgroup(Box::new(Warpgroup {
            left: wide,
            factors,
            sum,
            right,
            negate,
            transposed,
            accumulate,
            c: d.clone(),
            d,
            base_offset,
        })));
        Ok(())
    }
}

fn types([d, a, b]: [&str; 3], saturate: bool) -> Option<([WideFactor; 2], Sum)> {
    use Factor::{E4m3, E5m2, F16, S8, Tf32, U8};
    let factor = |name: &str| {
        Some(match name {
            "bf16" => WideFactor::Bf16,
            "f16" => WideFactor::Other(F16),
            "tf32" => WideFactor::Other(Tf32),
            "e4m3" => WideFactor::Other(E4m3),
            "e5m2" => WideFactor::Other(E5m2),
            "s8" => WideFactor::Other(S8),
            "u8" => WideFactor::Other(U8),
            _ => return None,
        })
    };
    let factors @ [left, right] = [factor(a)?, factor(b)?];
    let eight = |f| matches!(f, WideFactor::Other(E4m3 | E5m2));
    let integer = |f| matches!(f, WideFactor::Other(S8 | U8));
    let sum = match d {
        "f32" if eight(left) && eight(right) => Sum::Short,
        "f32" if left == right && !integer(left) && !eight(left) => Sum::F32,
        "f16" if factors == [WideFactor::Other(F16); 2] => Sum::F16,
        "f16" if eight(left) && eight(right) => Sum::ShortF16,
        "s32" if integer(left) && integer(right) => return Some((factors, Sum::Int { saturate })),
        _ => return None,
    };
    (!saturate).then_some((factors, sum))
}
