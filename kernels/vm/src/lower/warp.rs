//! Shuffles, votes, matches and reductions across a warp.

use super::{Lower, Lowering, Refusal, bad};
use crate::program::{Class, Op, Reg, Shuffle, ShuffleMode, Vote, VoteKind};
use crate::syntax::{Instruction, Operand};

impl<'a> Lowering<'a, '_> {
    pub(super) fn warp(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        match parts[0] {
            "shfl" => self.shuffle(ins, parts),
            "activemask" => {
                let [d] = ins.operands.as_slice() else {
                    return bad();
                };
                let d = self.target(d, Class::Word)?;
                self.emit(Op::ActiveMask { d });
                Ok(())
            }
            "vote" => self.vote(ins, parts),
            "match" => self.matching(ins, parts),
            "redux" => self.redux(ins, parts),
            "elect" => self.elect(ins),
            _ => Err(Refusal::Unsupported),
        }
    }

    fn shuffle(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let mode = match parts.get(2) {
            Some(&"up") => ShuffleMode::Up,
            Some(&"down") => ShuffleMode::Down,
            Some(&"bfly") => ShuffleMode::Butterfly,
            Some(&"idx") => ShuffleMode::Index,
            _ => return Err(Refusal::Unsupported),
        };
        let [d, a, b, c, members] = ins.operands.as_slice() else {
            return bad();
        };
        let (d, p) = self.pair(d, Class::Word)?;
        let shuffle = Shuffle {
            mode,
            d: d.map_or_else(|| self.fresh_word(), |reg| reg.slot),
            p,
            a: self.word(a)?,
            b: self.word(b)?,
            c: self.word(c)?,
            members: self.word(members)?,
            fixed: None,
            whole: None,
        };
        self.shuffles.push(shuffle);
        self.emit(Op::Shuffle(self.shuffles.len() as u16 - 1));
        Ok(())
    }

    /// `d|p`, either of which may be `_`.
    fn pair(&mut self, operand: &Operand<'a>, class: Class) -> Lower<(Option<Reg>, Option<u16>)> {
        match operand {
            Operand::Pair(d, p) => {
                let slot = self.target(d, class)?;
                let p = self.target(p, Class::Predicate)?;
                Ok((Some(Reg { class, slot }), Some(p)))
            }
            other => {
                let slot = self.target(other, class)?;
                Ok((Some(Reg { class, slot }), None))
            }
        }
    }

    fn push_vote(&mut self, vote: Vote) {
        self.votes.push(vote);
        self.emit(Op::Vote(self.votes.len() as u16 - 1));
    }

    fn vote(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let [d, a, members] = ins.operands.as_slice() else {
            return Err(Refusal::Unsupported);
        };
        let (kind, class) = match parts.get(2) {
            Some(&"any") => (VoteKind::Any, Class::Predicate),
            Some(&"all") => (VoteKind::All, Class::Predicate),
            Some(&"uni") => (VoteKind::Uniform, Class::Predicate),
            Some(&"ballot") => (VoteKind::Ballot, Class::Word),
            _ => return Err(Refusal::Unsupported),
        };
        let slot = self.target(d, class)?;
        let (a, negate) = self.predicate(a)?;
        let members = self.word(members)?;
        self.push_vote(Vote {
            kind,
            d: Some(Reg { class, slot }),
            p: None,
            a: Self::as_predicate(a),
            negate,
            members,
        });
        Ok(())
    }

    fn matching(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let [d, a, members] = ins.operands.as_slice() else {
            return bad();
        };
        let kind = match parts.get(1) {
            Some(&"any") => VoteKind::MatchAny,
            Some(&"all") => VoteKind::MatchAll,
            _ => return Err(Refusal::Unsupported),
        };
        let (d, p) = self.pair(d, Class::Word)?;
        let a = if parts.contains(&"b64") {
            Self::as_long(self.long(a)?)
        } else {
            Self::as_word(self.word(a)?)
        };
        let members = self.word(members)?;
        self.push_vote(Vote { kind, d, p, a, negate: false, members });
        Ok(())
    }

    fn redux(&mut self, ins: &Instruction<'a>, parts: &[&str]) -> Lower<()> {
        let [d, a, members] = ins.operands.as_slice() else {
            return bad();
        };
        let signed = parts.contains(&"s32");
        let kind = match parts.get(2) {
            Some(&"add") => VoteKind::AddU,
            Some(&"min") if signed => VoteKind::MinS,
            Some(&"min") => VoteKind::MinU,
            Some(&"max") if signed => VoteKind::MaxS,
            Some(&"max") => VoteKind::MaxU,
            Some(&"and") => VoteKind::And,
            Some(&"or") => VoteKind::Or,
            Some(&"xor") => VoteKind::Xor,
            _ => return Err(Refusal::Unsupported),
        };
        if parts.contains(&"f32") {
            return Err(Refusal::Unsupported);
        }
        let slot = self.target(d, Class::Word)?;
        let a = Self::as_word(self.word(a)?);
        let members = self.word(members)?;
        self.push_vote(Vote {
            kind,
            d: Some(Self::as_word(slot)),
            p: None,
            a,
            negate: false,
            members,
        });
        Ok(())
    }

    fn elect(&mut self, ins: &Instruction<'a>) -> Lower<()> {
        let [d, members] = ins.operands.as_slice() else {
            return bad();
        };
        let (d, p) = self.pair(d, Class::Word)?;
        let members = self.word(members)?;
        self.push_vote(Vote {
            kind: VoteKind::Elect,
            d,
            p,
            a: Self::as_predicate(0),
            negate: false,
            members,
        });
        Ok(())
    }
}
