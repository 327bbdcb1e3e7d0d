//! Matrix operations and asynchronous copies.

use super::memory::space_of;
use super::{Binding, Lower, Lowering, Refusal, bad};
use crate::program::{
    Class, Copying, Factor, Fragments, Ignored, Matrix, Multiply, Op, Product, Shape, Slot, Sum,
};
use crate::syntax::{Instruction, Operand, Space};

impl<'a> Lowering<'a, '_> {
    pub(super) fn matrix(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        match parts[0] {
            "ldmatrix" => self.fragments(ins, parts, true),
            "stmatrix" => self.fragments(ins, parts, false),
            "movmatrix" => self.transpose(ins, parts),
            "mma" => self.product(ins, parts),
            "cp" => self.async_copy(ins, parts),
            _ => Err(Refusal::Unsupported),
        }
    }

    fn word_list<const N: usize>(
        &mut self,
        operand: &Operand<'a>,
        count: usize,
    ) -> Lower<[Slot; N]> {
        let single = [operand.clone()];
        let list = match operand {
            Operand::Vector(list) => list.as_slice(),
            _ => &single,
        };
        if list.len() != count || count > N {
            return bad();
        }
        let mut slots = [0; N];
        for (slot, item) in slots.iter_mut().zip(list) {
            *slot = self.word(item)?;
        }
        Ok(slots)
    }

    /// `ldmatrix` or `stmatrix`.
    fn fragments(&mut self, ins: &Instruction<'a>, parts: &[&str], load: bool) -> Lower<()> {
        let [first, second] = ins.operands.as_slice() else {
            return bad();
        };
        let (list, address) = if load { (first, second) } else { (second, first) };
        if !parts.contains(&"m8n8") || !parts.contains(&"b16") {
            return Err(Refusal::Unsupported);
        }
        let count = if parts.contains(&"x4") {
            4
        } else if parts.contains(&"x2") {
            2
        } else {
            1
        };
        let regs = self.word_list::<4>(list, count)?;
        let (base, offset, _) = self.address(address)?;
        let transposed = parts.contains(&"trans");
        let fragments = Fragments { regs, count: count as u8, transposed, base, offset };
        let matrix = if load { Matrix::Load(fragments) } else { Matrix::Store(fragments) };
        self.push_matrix(matrix);
        Ok(())
    }

    fn transpose(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let ["movmatrix", "sync", "aligned", "m8n8", "trans", "b16"] = parts else {
            return Err(Refusal::Unsupported);
        };
        let [d, a] = ins.operands.as_slice() else {
            return bad();
        };
        let d = self.target(d, Class::Word)?;
        let a = self.word(a)?;
        self.push_matrix(Matrix::Transpose { d, a });
        Ok(())
    }

    pub(super) fn push_matrix(&mut self, matrix: Matrix) {
        self.matrices.push(matrix);
        self.emit(Op::Matrix(self.matrices.len() as u16 - 1));
    }

    fn product(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let [d, a, b, c] = ins.operands.as_slice() else {
            return Err(Refusal::Unsupported);
        };
        let shape = match parts {
            ["mma", "sync", "aligned", shape, "row", "col", ..] => shape,
            _ => return Err(Refusal::Unsupported),
        };
        let types = &parts[parts.len().saturating_sub(4)..];
        let hot = match (shape, types) {
            (&"m16n8k16", ["f32", "bf16", "bf16", "f32"]) => Some(Shape::Bf16K16),
            (&"m16n8k16", ["f32", "f16", "f16", "f32"]) => Some(Shape::F16K16),
            (&"m16n8k8", ["f32", "bf16", "bf16", "f32"]) => Some(Shape::Bf16K8),
            (&"m16n8k8", ["f32", "f16", "f16", "f32"]) => Some(Shape::F16K8),
            _ => None,
        };
        let Some(shape) = hot else {
            let form = form(shape, &parts[6..]).ok_or(Refusal::Unsupported)?;
            let multiply = Multiply {
                a: self.word_list(a, form.lefts().into())?,
                b: self.word_list(b, form.rights().into())?,
                c: self.word_list(c, form.sums().into())?,
                d: self.word_list(d, form.sums().into())?,
                ..form
            };
            self.push_matrix(Matrix::Multiply(multiply));
            return Ok(());
        };
        if parts.len() != 10 {
            return Err(Refusal::Unsupported);
        }
        let (a_count, b_count) = shape.registers();
        let product = Product {
            shape,
            a: self.word_list(a, a_count)?,
            b: self.word_list(b, b_count)?,
            c: self.word_list(c, 4)?,
            d: self.word_list(d, 4)?,
        };
        self.push_matrix(Matrix::Product(product));
        Ok(())
    }

    fn async_copy(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        match parts {
            ["cp", "async", "commit_group"] => self.push_matrix(Matrix::Commit),
            ["cp", "async", "wait_all"] => self.push_matrix(Matrix::Wait { pending: None }),
            ["cp", "async", "wait_group"] => {
                let [Operand::Int(pending)] = ins.operands.as_slice() else {
                    return bad();
                };
                self.push_matrix(Matrix::Wait { pending: Some(*pending as u32) });
            }
            ["cp", "async", "ca" | "cg", ..] if space_of(parts) == Space::Shared => {
                let [d, s, Operand::Int(bytes), rest @ ..] = ins.operands.as_slice() else {
                    return bad();
                };
                let (d, d_offset, _) = self.address(d)?;
                let (s, s_offset, _) = self.address(s)?;
                let (mut size, mut ignored) = (None, None);
                match rest {
                    [] => {}
                    [_] if parts.contains(&"L2::cache_hint") => {}
                    [Operand::Not(_), ..] => ignored = Some(self.ignored(&rest[0])?),
                    [Operand::Name(name), ..] if self.is_predicate(name) => {
                        ignored = Some(self.ignored(&rest[0])?);
                    }
                    [other, ..] => size = Some(self.word(other)?),
                }
                if !matches!(bytes, 4 | 8 | 16) || *bytes != 16 && parts[2] == "cg" {
                    return bad();
                }
                self.push_matrix(Matrix::Copy(Copying {
                    bytes: *bytes as u8,
                    d,
                    d_offset,
                    s,
                    s_offset,
                    size,
                    ignored,
                }));
            }
            _ => return Err(Refusal::Unsupported),
        }
        Ok(())
    }

    fn is_predicate(&mut self, name: &'a str) -> bool {
        match self.lookup(name) {
            Some(Binding::Register { reg, .. }) => reg.class == Class::Predicate,
            _ => false,
        }
    }

    fn ignored(&mut self, operand: &Operand<'a>) -> Lower<Ignored> {
        let (slot, negate) = self.predicate(operand)?;
        Ok(Ignored { slot, negate })
    }
}

/// The form of a product, without its registers. `rest` stands behind the layouts.
fn form(shape: &str, rest: &[&str]) -> Option<Multiply> {
    use Factor::{E4m3, E5m2, F16, S4, S8, Tf32, U4, U8};
    let (saturate, types) = match rest {
        ["satfinite", types @ ..] => (true, types),
        types => (false, types),
    };
    let &[d, a, b, c] = types else {
        return None;
    };
    let factor = |name: &str| {
        Some(match name {
            "tf32" => Tf32,
            "f16" => F16,
            "e4m3" => E4m3,
            "e5m2" => E5m2,
            "s8" => S8,
            "u8" => U8,
            "s4" => S4,
            "u4" => U4,
            _ => return None,
        })
    };
    let (left, right) = (factor(a)?, factor(b)?);
    let sum = match (d, c, left, right) {
        ("f32", "f32", Tf32, Tf32) => Sum::F32,
        ("f32", "f32", E4m3 | E5m2, E4m3 | E5m2) => Sum::F32,
        ("f16", "f16", F16, F16) => Sum::F16,
        ("s32", "s32", S8 | U8, S8 | U8) | ("s32", "s32", S4 | U4, S4 | U4) => {
            Sum::Int { saturate }
        }
        _ => return None,
    };
    if saturate && !matches!(sum, Sum::Int { .. }) {
        return None;
    }
    let (rows, k) = match (shape, left.bits()) {
        ("m16n8k4", 32) => (16, 4),
        ("m16n8k8", 16 | 32) => (16, 8),
        ("m16n8k16", 16) => (16, 16),
        ("m16n8k16", 8) if matches!(sum, Sum::Int { .. }) => (16, 16),
        ("m16n8k32", 4 | 8) => (16, 32),
        ("m16n8k64", 4) => (16, 64),
        ("m8n8k16", 8) if matches!(sum, Sum::Int { .. }) => (8, 16),
        ("m8n8k32", 4) => (8, 32),
        _ => return None,
    };
    let none = [0; 4];
    Some(Multiply { left, right, sum, rows, k, a: none, b: [0; 2], c: none, d: none })
}
