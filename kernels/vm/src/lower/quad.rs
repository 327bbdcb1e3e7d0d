//! What is wider than a register: 128-bit values, atomics on vectors, and `wmma` tiles, which
//! become products of eight columns each.

use super::memory::{is_strong, releases, scope, space_of};
use super::operand::Ty;
use super::{Binding, Lower, Lowering, Refusal, bad};
use crate::program::{Access, Class, Factor, Matrix, Multiply, Op, Product, Shape, Slot, Sum};
use crate::rare::{Exchange, Part, Rare, Tile};
use crate::syntax::{Instruction, Operand, Space};

impl<'a> Lowering<'a, '_> {
    fn pair_named(&mut self, operand: &Operand<'a>) -> Lower<[Slot; 2]> {
        match operand {
            Operand::Name(name) => match self.lookup(name) {
                Some(Binding::Pair(slots)) => Ok(slots),
                _ => bad(),
            },
            _ => bad(),
        }
    }

    /// `mov`, `ld`, `st` and `atom` of `.b128`.
    pub(super) fn quad(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        match (parts[0], ins.operands.as_slice()) {
            ("mov", [Operand::Vector(list), a]) => {
                let [low, high] = list.as_slice() else {
                    return bad();
                };
                let from = self.pair_named(a)?;
                let to = [self.target(low, Class::Long)?, self.target(high, Class::Long)?];
                self.copy_pair(to, from);
            }
            ("mov", [d, Operand::Vector(list)]) => {
                let [low, high] = list.as_slice() else {
                    return bad();
                };
                let from = [self.long(low)?, self.long(high)?];
                let to = self.pair_named(d)?;
                self.copy_pair(to, from);
            }
            ("mov", [d, a]) => {
                let (to, from) = (self.pair_named(d)?, self.pair_named(a)?);
                self.copy_pair(to, from);
            }
            ("ld", [d, at]) => {
                let (slots, access) = (self.pair_named(d)?, self.at(at, space_of(parts))?);
                self.accesses.push(Self::whole(slots, access, parts));
                self.emit(Op::Load(self.accesses.len() as u16 - 1));
            }
            ("st", [at, a]) => {
                let (slots, access) = (self.pair_named(a)?, self.at(at, space_of(parts))?);
                self.accesses.push(Self::whole(slots, access, parts));
                self.emit(Op::Store(self.accesses.len() as u16 - 1));
            }
            ("atom", [d, at, operands @ ..]) => {
                let old = match d {
                    Operand::Name("_") => None,
                    d => Some(self.pair_named(d)?),
                };
                let at = self.at(at, space_of(parts))?;
                let (new, expected) = match operands {
                    [new] if parts.contains(&"exch") => (self.pair_named(new)?, None),
                    [expected, new] if parts.contains(&"cas") => {
                        (self.pair_named(new)?, Some(self.pair_named(expected)?))
                    }
                    _ => return Err(Refusal::Unsupported),
                };
                let release = releases(parts);
                let scope = scope(parts);
                let what = Exchange { at, old, new, expected, release, scope };
                self.push_rare(Rare::Exchange(what));
            }
            _ => return Err(Refusal::Unsupported),
        }
        Ok(())
    }

    /// Both at once: halves may change places.
    fn copy_pair(&mut self, to: [Slot; 2], from: [Slot; 2]) {
        let kept = self.fresh_long();
        self.emit(Op::Mov64 { d: kept, a: from[1] });
        self.emit(Op::Mov64 { d: to[0], a: from[0] });
        self.emit(Op::Mov64 { d: to[1], a: kept });
    }

    fn whole(slots: [Slot; 2], at: crate::rare::At, parts: &[&str]) -> Access {
        let [low, high] = slots.map(Self::as_long);
        Access {
            space: at.space,
            width_bytes: 8,
            count: 2,
            signed: false,
            half: false,
            regs: [low, high, low, low, low, low, low, low],
            base: at.base,
            offset: at.offset,
            plus: None,
            strong: is_strong(parts),
            release: parts.contains(&"release"),
            scope: scope(parts),
        }
    }

    /// `.v2`, `.v4`, `.v8`: each element is an atomic of its own.
    pub(super) fn atomic_vector(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        // The type may stand before the operation.
        let name = parts.iter().find(|part| Ty::parse(part).is_some());
        let name = *name.ok_or(Refusal::Unsupported)?;
        let ty = Ty::parse(name).ok_or(Refusal::Unsupported)?;
        let count: usize = parts
            .iter()
            .find_map(|part| part.strip_prefix('v').and_then(|n| n.parse().ok()))
            .ok_or(Refusal::Unsupported)?;
        let bytes = count * usize::from(ty.bits / 8);
        let global = matches!(space_of(parts), Space::Global | Space::Generic);
        if !parts.contains(&"add") || !matches!(bytes, 4 | 8 | 16) || !global || ty.bits == 64 {
            return Err(Refusal::Unsupported);
        }
        let mut single: Vec<&str> = parts.to_vec();
        single.retain(|part| !matches!(*part, "v2" | "v4" | "v8") && *part != name);
        single.push(name);
        let place = usize::from(parts[0] == "atom");
        let address = ins.operands.get(place).cloned().ok_or(Refusal::Unsupported)?;
        let at = self.at(&address, space_of(parts))?;
        self.push_rare(Rare::Aligned { at, bytes: bytes as u32 });
        let mut results = Vec::new();
        for element in 0..count {
            let mut operands = Vec::with_capacity(3);
            for operand in ins.operands.iter().take(place + 2) {
                operands.push(match operand {
                    Operand::Vector(list) if list.len() == count => list[element].clone(),
                    Operand::Vector(_) => return bad(),
                    other => other.clone(),
                });
            }
            self.atomic_element(&operands, &single, element)?;
            // Results wait until every element is read.
            if let Some(d) = self.atomics.last().and_then(|atomic| atomic.d) {
                let kept = self.fresh(d.class);
                if let Some(atomic) = self.atomics.last_mut() {
                    atomic.d = Some(kept);
                }
                results.push((d, kept));
            }
        }
        for (d, kept) in results {
            self.copy(d, kept);
        }
        Ok(())
    }

    pub(super) fn tiles(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        match parts {
            ["wmma", "load", part, "sync", "aligned", layout, shape, rest @ ..] => {
                self.tile(ins, (part, layout, shape), rest, false)
            }
            ["wmma", "store", "d", "sync", "aligned", layout, shape, rest @ ..] => {
                self.tile(ins, ("d", layout, shape), rest, true)
            }
            ["wmma", "mma", "sync", "aligned", _, _, shape, rest @ ..] => {
                self.tile_product(ins, shape, rest)
            }
            _ => Err(Refusal::Unsupported),
        }
    }

    fn tile(
        &mut self,
        ins: &Instruction<'a>,
        (part, layout, shape): (&str, &str, &str),
        rest: &[&str],
        store: bool,
    ) -> Lower<()> {
        let (space, ty) = match rest {
            [ty] => (Space::Generic, *ty),
            ["global", ty] => (Space::Global, *ty),
            ["shared" | "shared::cta", ty] => (Space::Shared, *ty),
            _ => return Err(Refusal::Unsupported),
        };
        let [m, n, k] = dimensions(shape).ok_or(Refusal::Unsupported)?;
        let (first, second, stride) = match ins.operands.as_slice() {
            [first, second] => (first, second, None),
            [first, second, stride] => (first, second, Some(self.word(stride)?)),
            _ => return bad(),
        };
        let (list, address) = if store { (second, first) } else { (first, second) };
        let Operand::Vector(list) = list else {
            return bad();
        };
        // m8n32 is computed as its transpose, 32×8.
        let swapped = m == 8;
        let by_column = layout == "col";
        let (part, element_bytes, registers, across) = match (part, ty) {
            ("a" | "b", _) => {
                let element_bytes = match ty {
                    "f16" | "bf16" => 2,
                    "tf32" => 4,
                    "s8" | "u8" => 1,
                    _ => return Err(Refusal::Unsupported),
                };
                let lines = if part == "a" { m } else { n };
                let left = (part == "a") != swapped;
                let needed = usize::from(lines) * usize::from(k) * element_bytes / 128;
                // Of f16 the instruction names eight registers, whatever is needed.
                let registers = if ty == "f16" { 8 } else { needed };
                let across = by_column == (part == "a");
                (Part::Factor { lines, k, left }, element_bytes, registers, across)
            }
            ("c" | "d", "f16" | "f32" | "s32") => {
                let (rows, columns) = if swapped { (n, m) } else { (m, n) };
                let (bytes, registers) = if ty == "f16" { (2, 4) } else { (4, 8) };
                (Part::Sum { rows, columns }, bytes, registers, by_column != swapped)
            }
            _ => return Err(Refusal::Unsupported),
        };
        if list.len() != registers {
            return bad();
        }
        let mut regs = [0; 8];
        for (slot, item) in regs.iter_mut().zip(list) {
            *slot = if store { self.word(item)? } else { self.target(item, Class::Word)? };
        }
        let at = self.at(address, space)?;
        self.push_rare(Rare::Tile(Tile {
            at,
            stride,
            part,
            element_bytes: element_bytes as u8,
            across,
            regs,
            count: registers as u8,
            store,
        }));
        Ok(())
    }

    fn tile_product(&mut self, ins: &Instruction<'a>, shape: &str, rest: &[&str]) -> Lower<()> {
        let (saturate, types) = match rest {
            [types @ .., "satfinite"] => (true, types),
            types => (false, types),
        };
        let [m, n, k] = dimensions(shape).ok_or(Refusal::Unsupported)?;
        let (factors, sum) = match types {
            ["f32", "f32"] | ["f32", "f16", "f16", "f32"] => ([Factor::F16; 2], Sum::F32),
            ["f16", "f16"] | ["f16", "f16", "f16", "f16"] => ([Factor::F16; 2], Sum::F16),
            ["f32", "bf16", "bf16", "f32"] => ([Factor::F16; 2], Sum::F32),
            ["f32", "tf32", "tf32", "f32"] => ([Factor::Tf32; 2], Sum::F32),
            ["s32", a @ ("s8" | "u8"), b, "s32"] if a == b => {
                let factor = if *a == "s8" { Factor::S8 } else { Factor::U8 };
                ([factor; 2], Sum::Int { saturate })
            }
            _ => return Err(Refusal::Unsupported),
        };
        if saturate && !matches!(sum, Sum::Int { .. }) {
            return Err(Refusal::Unsupported);
        }
        let bits = factors[0].bits();
        if k != if bits == 32 { 8 } else { 16 } {
            return Err(Refusal::Unsupported);
        }
        let [d, a, b, c] = ins.operands.as_slice() else {
            return bad();
        };
        let mut lists = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for (list, operand) in lists.iter_mut().zip([d, a, b, c]) {
            let Operand::Vector(items) = operand else {
                return bad();
            };
            for item in items {
                list.push(self.word(item)?);
            }
        }
        let [d, a, b, c] = lists;
        let (left, right, rows, columns) = if m == 8 { (b, a, n, m) } else { (a, b, m, n) };
        // Registers of sixteen rows, of eight columns, and of the sums of both.
        let (high, wide) = (usize::from(k) * bits / 64, usize::from(k) * bits / 128);
        let sums = if sum == Sum::F16 { 2 } else { 4 };
        let (bands, tiles) = (usize::from(rows / 16), usize::from(columns / 8));
        let fits = left.len() >= bands * high
            && right.len() >= tiles * wide
            && c.len() == bands * tiles * sums
            && d.len() == c.len();
        if !fits {
            return bad();
        }
        let brain = types.contains(&"bf16");
        for band in 0..bands {
            for tile in 0..tiles {
                let at = (band * tiles + tile) * sums;
                let pick = |list: &[Slot], at: usize, n: usize| -> [Slot; 4] {
                    let mut out = [0; 4];
                    out[..n].copy_from_slice(&list[at..at + n]);
                    out
                };
                let x = pick(&left, band * high, high);
                let y = pick(&right, tile * wide, wide);
                let (c, d) = (pick(&c, at, sums), pick(&d, at, sums));
                let b = [y[0], y[1]];
                self.push_matrix(if bits == 16 && sum == Sum::F32 {
                    let shape = if brain { Shape::Bf16K16 } else { Shape::F16K16 };
                    Matrix::Product(Product { shape, a: x, b, c, d })
                } else {
                    let [left, right] = factors;
                    Matrix::Multiply(Multiply { left, right, sum, rows: 16, k, a: x, b, c, d })
                });
            }
        }
        Ok(())
    }
}

fn dimensions(shape: &str) -> Option<[u8; 3]> {
    Some(match shape {
        "m16n16k16" => [16, 16, 16],
        "m16n16k8" => [16, 16, 8],
        "m32n8k16" => [32, 8, 16],
        "m8n32k16" => [8, 32, 16],
        _ => return None,
    })
}
