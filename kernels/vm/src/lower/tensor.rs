//! Bulk copies: of bytes side by side, and of boxes of tensors under a map.

use super::memory::space_of;
use super::{Lower, Lowering, Refusal, bad};
use crate::rare::{Act, At, Bulk, BulkGroup, Mbarrier, Number, Rare, Reduction, Tensor, TensorAct};
use crate::syntax::{Instruction, Operand, Space};

const HINT: &str = "L2::cache_hint";
const MULTICAST: &str = "multicast::cluster";
const COUNTED: &str = "mbarrier::complete_tx::bytes";

fn reduction(name: &str) -> Option<Reduction> {
    Some(match name {
        "add" => Reduction::Add,
        "min" => Reduction::Min,
        "max" => Reduction::Max,
        "inc" => Reduction::Increment,
        "dec" => Reduction::Decrement,
        "and" => Reduction::And,
        "or" => Reduction::Or,
        "xor" => Reduction::Xor,
        _ => return None,
    })
}

/// The type of a bulk reduction, where there is such a one.
fn number(operation: Reduction, name: &str, global: bool) -> Option<Number> {
    use Reduction::{Add, And, Decrement, Increment, Max, Min, Or, Xor};
    let number = match name {
        "u32" => Number::Unsigned(32),
        "u64" => Number::Unsigned(64),
        "s32" => Number::Signed(32),
        "s64" => Number::Signed(64),
        "b32" => Number::Unsigned(32),
        "b64" => Number::Unsigned(64),
        "f16" => Number::F16,
        "bf16" => Number::Bf16,
        "f32" => Number::F32,
        "f64" => Number::F64,
        _ => return None,
    };
    let bits = name.starts_with('b') && name != "bf16";
    let known = match operation {
        And | Or | Xor => bits && (global || name == "b32"),
        Increment | Decrement => name == "u32",
        Add if !global => matches!(name, "u32" | "s32" | "u64"),
        Min | Max if !global => matches!(name, "u32" | "s32"),
        Add => !bits && name != "s64",
        Min | Max => !bits && !matches!(name, "f32" | "f64"),
    };
    known.then_some(number)
}

impl<'a> Lowering<'a, '_> {
    /// `cp.async.mbarrier.arrive`, `cp.async.bulk` and `cp.reduce.async.bulk`.
    pub(super) fn bulk(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let hint = usize::from(parts.contains(&HINT));
        let multicast = parts.contains(&MULTICAST);
        let plain: Vec<&str> =
            parts.iter().copied().filter(|p| *p != HINT && *p != MULTICAST).collect();
        let operands = ins.operands.as_slice();
        match (plain.as_slice(), operands) {
            (["cp", "async", "mbarrier", "arrive", rest @ ..], [at]) => {
                let counted = rest.first() == Some(&"noinc");
                let rest = &rest[usize::from(counted)..];
                if !matches!(rest, ["b64"] | ["shared" | "shared::cta", "b64"]) {
                    return Err(Refusal::Unsupported);
                }
                let at = self.at(at, space_of(rest))?;
                let (act, amount) = (Act::Copies { counted }, self.word_constant(1));
                let (state, complete, release) = (None, None, false);
                let what = Mbarrier { act, at, amount, state, complete, release };
                self.push_rare(Rare::Mbarrier(what));
            }
            (
                ["cp", "async", "bulk", to @ ("shared::cluster" | "shared::cta"), from, COUNTED],
                [d, a, bytes, counts, rest @ ..],
            ) if rest.len() == hint + usize::from(multicast) => {
                let from = match *from {
                    "global" => Space::Global,
                    "shared::cta" if *to == "shared::cluster" && !multicast => Space::Shared,
                    _ => return Err(Refusal::Unsupported),
                };
                let to = space_of(&[to]);
                let what = Bulk {
                    to: self.at(d, to)?,
                    from: self.at(a, from)?,
                    bytes: self.word(bytes)?,
                    counts: Some(self.at(counts, to)?),
                    ranks: self.ranks(multicast, rest)?,
                    reduces: None,
                };
                self.push_rare(Rare::Bulk(what));
            }
            (
                ["cp", "async", "bulk", "global", "shared::cta", "bulk_group"],
                [d, a, bytes, rest @ ..],
            ) if rest.len() == hint && !multicast => {
                let what = self.out(d, a, bytes)?;
                self.push_rare(Rare::Bulk(what));
            }
            (["cp", "async", "bulk", "prefetch", "L2", "global"], _) => {}
            (["cp", "async", "bulk", "commit_group"], []) => {
                self.push_rare(Rare::BulkGroup(BulkGroup::Commit));
            }
            (
                ["cp", "async", "bulk", "wait_group"]
                | ["cp", "async", "bulk", "wait_group", "read"],
                [Operand::Int(pending)],
            ) => {
                let pending = u32::try_from(*pending).unwrap_or(u32::MAX);
                self.push_rare(Rare::BulkGroup(BulkGroup::Wait(pending)));
            }
            (["cp", "reduce", "async", "bulk", rest @ ..], _) if !multicast => {
                return self.bulk_reduction(operands, rest, hint);
            }
            _ => return Err(Refusal::Unsupported),
        }
        Ok(())
    }

    /// Out of shared memory.
    fn out(&mut self, d: &Operand<'a>, a: &Operand<'a>, bytes: &Operand<'a>) -> Lower<Bulk> {
        Ok(Bulk {
            to: self.at(d, Space::Global)?,
            from: self.at(a, Space::Shared)?,
            bytes: self.word(bytes)?,
            counts: None,
            ranks: None,
            reduces: None,
        })
    }

    fn bulk_reduction(
        &mut self,
        operands: &[Operand<'a>],
        parts: &[&str],
        hint: usize,
    ) -> Lower<()> {
        let (to, operation, name) = match parts {
            ["global", "shared::cta", "bulk_group", "add", "noftz", name @ ("f16" | "bf16")] => {
                (Space::Global, Reduction::Add, *name)
            }
            // Without it, sums of halves would be flushed, and no such form exists.
            ["global", "shared::cta", "bulk_group", "add", "f16" | "bf16"] => {
                return Err(Refusal::Unsupported);
            }
            ["global", "shared::cta", "bulk_group", operation, name] => {
                (Space::Global, reduction(operation).ok_or(Refusal::Unsupported)?, *name)
            }
            ["shared::cluster", "shared::cta", COUNTED, operation, name] => {
                (Space::Cluster, reduction(operation).ok_or(Refusal::Unsupported)?, *name)
            }
            _ => return Err(Refusal::Unsupported),
        };
        let number = number(operation, name, to == Space::Global).ok_or(Refusal::Unsupported)?;
        let reduces = Some((operation, number));
        let what = match (to, operands) {
            (Space::Global, [d, a, bytes, rest @ ..]) if rest.len() == hint => {
                Bulk { reduces, ..self.out(d, a, bytes)? }
            }
            (Space::Cluster, [d, a, bytes, counts]) if hint == 0 => Bulk {
                to: self.at(d, Space::Cluster)?,
                from: self.at(a, Space::Shared)?,
                bytes: self.word(bytes)?,
                counts: Some(self.at(counts, Space::Cluster)?),
                ranks: None,
                reduces,
            },
            _ => return bad(),
        };
        self.push_rare(Rare::Bulk(what));
        Ok(())
    }

    /// The operand that names the ranks of a multicast, first of those left.
    fn ranks(&mut self, multicast: bool, rest: &[Operand<'a>]) -> Lower<Option<u16>> {
        match rest {
            [ranks, ..] if multicast => self
                .source(ranks, super::operand::Ty { kind: super::operand::TyKind::Bits, bits: 16 })
                .map(|reg| Some(reg.slot)),
            _ => Ok(None),
        }
    }

    /// `cp.async.bulk.tensor`, its prefetch and its reduction.
    pub(super) fn tensor(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let hint = usize::from(parts.contains(&HINT));
        let multicast = parts.contains(&MULTICAST);
        // `.tile` is what a copy does when it names nothing.
        let plain: Vec<&str> =
            parts.iter().copied().filter(|p| ![HINT, MULTICAST, "tile"].contains(p)).collect();
        match (plain.as_slice(), ins.operands.as_slice()) {
            (
                [
                    "cp",
                    "async",
                    "bulk",
                    "tensor",
                    rank,
                    to @ ("shared::cluster" | "shared::cta"),
                    "global",
                    COUNTED,
                ],
                [at, map, counts, rest @ ..],
            ) if rest.len() == hint + usize::from(multicast) => {
                let to = space_of(&[to]);
                let at = self.at(at, to)?;
                let counts = self.at(counts, to)?;
                let act = TensorAct::Load { counts, ranks: self.ranks(multicast, rest)? };
                self.box_copy(rank, map, at, act)
            }
            (
                ["cp", "async", "bulk", "tensor", rank, "global", "shared::cta", "bulk_group"],
                [map, at, rest @ ..],
            ) if rest.len() == hint && !multicast => {
                let at = self.at(at, Space::Shared)?;
                self.box_copy(rank, map, at, TensorAct::Store)
            }
            (
                [
                    "cp",
                    "reduce",
                    "async",
                    "bulk",
                    "tensor",
                    rank,
                    "global",
                    "shared::cta",
                    operation,
                    "bulk_group",
                ],
                [map, at, rest @ ..],
            ) if rest.len() == hint && !multicast => {
                let at = self.at(at, Space::Shared)?;
                let operation = reduction(operation).ok_or(Refusal::Unsupported)?;
                self.box_copy(rank, map, at, TensorAct::Reduce(operation))
            }
            (
                ["cp", "async", "bulk", "prefetch", "tensor", rank, "L2", "global"],
                [map, rest @ ..],
            ) if rest.len() == hint => {
                let at = At { base: None, offset: 0, space: Space::Shared };
                self.box_copy(rank, map, at, TensorAct::Prefetch)
            }
            _ => Err(Refusal::Unsupported),
        }
    }

    fn box_copy(&mut self, rank: &str, map: &Operand<'a>, at: At, act: TensorAct) -> Lower<()> {
        let Operand::Coordinates(map, place) = map else {
            return bad();
        };
        let rank = match rank {
            "1d" => 1,
            "2d" => 2,
            "3d" => 3,
            "4d" => 4,
            "5d" => 5,
            _ => return Err(Refusal::Unsupported),
        };
        let place = match place.as_slice() {
            [Operand::Vector(list)] => list.as_slice(),
            single => single,
        };
        if place.len() != rank {
            return bad();
        }
        let mut coordinates = [self.word_constant(0); 5];
        for (slot, operand) in coordinates.iter_mut().zip(place) {
            *slot = self.word(operand)?;
        }
        let map = self.at(map, Space::Generic)?;
        let what = Tensor { map, coordinates, rank: rank as u8, at, act };
        self.push_rare(Rare::Tensor(Box::new(what)));
        Ok(())
    }
}
