//! `mbarrier`.

use super::memory::space_of;
use super::{Lower, Lowering, Refusal, bad};
use crate::program::{Class, Op};
use crate::rare::{Act, At, Mbarrier, Rare};
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
            release: false,
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
        let wide = rest.contains(&"cluster") || what.at.space == Space::Cluster;
        what.release = wide && matches!(what.act, Act::Arrive { .. }) && !rest.contains(&"relaxed");
        self.push_rare(Rare::Mbarrier(what));
        Ok(())
    }
}
