//! `mbarrier`, copies that arrive at one, and what clusters add: here a cluster is one block.

use super::memory::space_of;
use super::{Lower, Lowering, Refusal, bad};
use crate::program::{Class, Op};
use crate::rare::{Act, At, Bulk, Mbarrier, Rare};
use crate::syntax::{Instruction, Operand, Space};

/// Parts that change nothing for one block.
const ORDER: &[&str] = &[
    "release",
    "acquire",
    "relaxed",
    "cta",
    "cluster",
    "shared",
    "shared::cta",
    "shared::cluster",
    "b64",
];

impl<'a> Lowering<'a, '_> {
    pub(super) fn at(&mut self, operand: &Operand<'a>, space: Space) -> Lower<At> {
        let (base, offset, implied) = self.address(operand)?;
        let space = if space == Space::Generic { implied.unwrap_or(space) } else { space };
        Ok(At { base, offset, space })
    }

    pub(super) fn mbarrier(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let space = space_of(parts);
        let (name, rest) = match parts {
            ["mbarrier", name, rest @ ..] => (*name, rest),
            _ => return Err(Refusal::Unsupported),
        };
        let own: Vec<&str> = rest.iter().copied().filter(|part| !ORDER.contains(part)).collect();
        let operands = ins.operands.as_slice();
        let one = self.word_constant(1);
        let mut what = Mbarrier {
            act: Act::Init,
            at: At { base: None, offset: 0, space },
            amount: one,
            state: None,
            complete: None,
        };
        match (name, own.as_slice(), operands) {
            ("init", [], [at, count]) => {
                what.at = self.at(at, space)?;
                what.amount = self.word(count)?;
            }
            ("inval", [], [at]) => {
                what.act = Act::Invalidate;
                what.at = self.at(at, space)?;
            }
            ("expect_tx" | "complete_tx", [], [at, bytes]) => {
                what.act = if name == "expect_tx" { Act::Expect } else { Act::Complete };
                what.at = self.at(at, space)?;
                what.amount = self.word(bytes)?;
            }
            (
                "arrive" | "arrive_drop",
                [] | ["expect_tx"] | ["noComplete"],
                [state, at, amount @ ..],
            ) => {
                let expects = own == ["expect_tx"];
                let incomplete = own == ["noComplete"];
                what.act = Act::Arrive { expects, drops: name == "arrive_drop", incomplete };
                what.at = self.at(at, space)?;
                match amount {
                    [] if !expects && !incomplete => {}
                    [amount] => what.amount = self.word(amount)?,
                    _ => return bad(),
                }
                if !matches!(state, Operand::Name("_")) {
                    what.state = Some(self.target(state, Class::Long)?);
                }
            }
            ("test_wait" | "try_wait", [] | ["parity"], [p, at, tested, hint @ ..]) => {
                let parity = own == ["parity"];
                if hint.len() > usize::from(name == "try_wait") {
                    return bad();
                }
                what.act = Act::Test { parity };
                what.at = self.at(at, space)?;
                if parity {
                    what.amount = self.word(tested)?;
                } else {
                    what.state = Some(self.long(tested)?);
                }
                what.complete = Some(self.target(p, Class::Predicate)?);
            }
            ("pending_count", [], [d, state]) => {
                // The lower half of a state is what was pending before the arrival.
                let d = self.target(d, Class::Word)?;
                let a = self.long(state)?;
                self.emit(Op::Trunc { d, a });
                return Ok(());
            }
            _ => return Err(Refusal::Unsupported),
        }
        self.push_rare(Rare::Mbarrier(what));
        Ok(())
    }

    /// `cp.async.mbarrier.arrive` and `cp.async.bulk`.
    pub(super) fn bulk(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let hint = parts.contains(&"L2::cache_hint");
        let parts: Vec<&str> = parts.iter().copied().filter(|p| *p != "L2::cache_hint").collect();
        let operands = ins.operands.as_slice();
        match (parts.as_slice(), operands) {
            (["cp", "async", "mbarrier", "arrive", rest @ ..], [at]) => {
                let counted = rest.first() == Some(&"noinc");
                let rest = &rest[usize::from(counted)..];
                if !matches!(rest, ["b64"] | ["shared" | "shared::cta", "b64"]) {
                    return Err(Refusal::Unsupported);
                }
                let at = self.at(at, space_of(rest))?;
                let (act, amount) = (Act::Copies { counted }, self.word_constant(1));
                let what = Mbarrier { act, at, amount, state: None, complete: None };
                self.push_rare(Rare::Mbarrier(what));
            }
            (
                [
                    "cp",
                    "async",
                    "bulk",
                    "shared::cluster" | "shared::cta",
                    "global",
                    "mbarrier::complete_tx::bytes",
                ],
                [to, from, bytes, counts, rest @ ..],
            ) if rest.len() == usize::from(hint) => {
                let what = Bulk {
                    to: self.at(to, Space::Shared)?,
                    from: self.at(from, Space::Global)?,
                    bytes: self.word(bytes)?,
                    counts: Some(self.at(counts, Space::Shared)?),
                };
                self.push_rare(Rare::Bulk(what));
            }
            (
                ["cp", "async", "bulk", "global", "shared::cta", "bulk_group"],
                [to, from, bytes, rest @ ..],
            ) if rest.len() == usize::from(hint) => {
                let what = Bulk {
                    to: self.at(to, Space::Global)?,
                    from: self.at(from, Space::Shared)?,
                    bytes: self.word(bytes)?,
                    counts: None,
                };
                self.push_rare(Rare::Bulk(what));
            }
            // What leaves shared memory has left at once.
            (["cp", "async", "bulk", "commit_group"], [])
            | (["cp", "async", "bulk", "wait_group"], [_])
            | (["cp", "async", "bulk", "wait_group", "read"], [_])
            | (["cp", "async", "bulk", "prefetch", "L2", "global"], _) => {}
            _ => return Err(Refusal::Unsupported),
        }
        Ok(())
    }

    /// The only block of a cluster has rank 0 and its own shared memory.
    pub(super) fn cluster(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        match (parts, ins.operands.as_slice()) {
            // Another rank leads nowhere, and an access says so.
            (["mapa", "shared::cluster", "u32"], [d, a, rank]) => {
                let d = Self::as_word(self.target(d, Class::Word)?);
                let sources = [self.word(a)?, self.word(rank)?].map(Self::as_word);
                self.pure(|a, rank, _| if rank == 0 { a } else { u32::MAX.into() }, d, &sources);
                Ok(())
            }
            (["mapa", "u64"] | ["mapa", "shared::cluster", "u64"], [d, a, rank]) => {
                let d = Self::as_long(self.target(d, Class::Long)?);
                let sources = [Self::as_long(self.long(a)?), Self::as_word(self.word(rank)?)];
                self.pure(|a, rank, _| if rank == 0 { a } else { u64::MAX }, d, &sources);
                Ok(())
            }
            (["getctarank", .., "u32" | "u64"], [d, _]) => {
                let d = self.target(d, Class::Word)?;
                let a = self.word_constant(0);
                self.emit(Op::Mov32 { d, a });
                Ok(())
            }
            _ => Err(Refusal::Unsupported),
        }
    }
}
