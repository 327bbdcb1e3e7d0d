//! Which registers an operation reads and writes.

use super::{Lowering, visit_rare};
use crate::program::{Class, Copying, Fragments, Matrix, Op, Product, Reg, Slot};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Use,
    Define,
}

pub(super) type Visitor<'v> = &'v mut dyn FnMut(Role, Class, &mut Slot);

fn reg(f: Visitor<'_>, role: Role, reg: &mut Reg) {
    f(role, reg.class, &mut reg.slot);
}

fn base(f: Visitor<'_>, base: &mut Option<Reg>) {
    if let Some(base) = base {
        reg(f, Role::Use, base);
    }
}

impl Lowering<'_, '_> {
    /// Calls `f` for every register of the operation, those in tables included.
    pub(super) fn visit(&mut self, op: &mut Op, f: Visitor<'_>) {
        use Class::{Long, Predicate, Word};
        use Role::{Define, Use};
        match op {
            Op::Mov32 { d, a } | Op::Unary { d, a, .. } | Op::Approx { d, a, .. } => {
                f(Use, Word, a);
                f(Define, Word, d);
            }
            Op::Mov64 { d, a } => {
                f(Use, Long, a);
                f(Define, Long, d);
            }
            Op::MovP { d, a } | Op::NotP { d, a } => {
                f(Use, Predicate, a);
                f(Define, Predicate, d);
            }
            Op::AndP { d, a, b } | Op::OrP { d, a, b } | Op::XorP { d, a, b } => {
                f(Use, Predicate, a);
                f(Use, Predicate, b);
                f(Define, Predicate, d);
            }
            Op::Binary { d, a, b, .. } => {
                f(Use, Word, a);
                f(Use, Word, b);
                f(Define, Word, d);
            }
            Op::Ternary { d, a, b, c, .. } => {
                for s in [a, b, c] {
                    f(Use, Word, s);
                }
                f(Define, Word, d);
            }
            Op::Long2 { d, a, b, .. } => {
                f(Use, Long, a);
                f(Use, Long, b);
                f(Define, Long, d);
            }
            Op::Shift64 { d, a, b, .. } => {
                f(Use, Long, a);
                f(Use, Word, b);
                f(Define, Long, d);
            }
            Op::MulWideS { d, a, b } | Op::MulWideU { d, a, b } | Op::Join { d, a, b } => {
                f(Use, Word, a);
                f(Use, Word, b);
                f(Define, Long, d);
            }
            Op::MadWideS { d, a, b, c } | Op::MadWideU { d, a, b, c } => {
                f(Use, Word, a);
                f(Use, Word, b);
                f(Use, Long, c);
                f(Define, Long, d);
            }
            Op::Mad64 { d, a, b, c } => {
                for s in [a, b, c] {
                    f(Use, Long, s);
                }
                f(Define, Long, d);
            }
            Op::Sext { d, a } | Op::Zext { d, a } => {
                f(Use, Word, a);
                f(Define, Long, d);
            }
            Op::Trunc { d, a } => {
                f(Use, Long, a);
                f(Define, Word, d);
            }
            Op::Split { low, high, a } => {
                f(Use, Long, a);
                f(Define, Word, low);
                f(Define, Word, high);
            }
            Op::Select32 { d, a, b, p } => {
                f(Use, Word, a);
                f(Use, Word, b);
                f(Use, Predicate, p);
                f(Define, Word, d);
            }
            Op::Select64 { d, a, b, p } => {
                f(Use, Long, a);
                f(Use, Long, b);
                f(Use, Predicate, p);
                f(Define, Long, d);
            }
            Op::Set32 { d, a, b, .. } => {
                f(Use, Word, a);
                f(Use, Word, b);
                f(Define, Predicate, d);
            }
            Op::Set64 { d, a, b, .. } => {
                f(Use, Long, a);
                f(Use, Long, b);
                f(Define, Predicate, d);
            }
            Op::WarpSync { members } => f(Use, Word, members),
            Op::ActiveMask { d } => f(Define, Word, d),
            Op::Pure(_)
            | Op::Load(_)
            | Op::Store(_)
            | Op::Atomic(_)
            | Op::BranchTable(_)
            | Op::Barrier(_)
            | Op::Shuffle(_)
            | Op::Vote(_)
            | Op::Matrix(_)
            | Op::Rare(_) => self.visit_table(op, f),
            Op::Branch { .. } | Op::Exit | Op::Fence | Op::Trap | Op::Unsupported(_) => {}
        }
    }

    fn visit_table(&mut self, op: &Op, f: Visitor<'_>) {
        use Class::{Long, Predicate, Word};
        use Role::{Define, Use};
        match *op {
            Op::Pure(i) => {
                let pure = &mut self.pures[usize::from(i)];
                for source in pure.sources.iter_mut().take(usize::from(pure.count)) {
                    reg(f, Use, source);
                }
                reg(f, Define, &mut pure.d);
            }
            Op::Load(i) => {
                let access = &mut self.accesses[usize::from(i)];
                base(f, &mut access.base);
                if let Some(plus) = &mut access.plus {
                    f(Use, Long, plus);
                }
                for d in access.regs.iter_mut().take(usize::from(access.count)) {
                    reg(f, Define, d);
                }
            }
            Op::Store(i) => {
                let access = &mut self.accesses[usize::from(i)];
                base(f, &mut access.base);
                if let Some(plus) = &mut access.plus {
                    f(Use, Long, plus);
                }
                for s in access.regs.iter_mut().take(usize::from(access.count)) {
                    reg(f, Use, s);
                }
            }
            Op::Atomic(i) => {
                let atomic = &mut self.atomics[usize::from(i)];
                base(f, &mut atomic.base);
                reg(f, Use, &mut atomic.a);
                reg(f, Use, &mut atomic.b);
                if let Some(d) = &mut atomic.d {
                    reg(f, Define, d);
                }
            }
            Op::BranchTable(i) => f(Use, Word, &mut self.tables[usize::from(i)].index),
            Op::Barrier(i) => {
                let barrier = &mut self.barriers[usize::from(i)];
                f(Use, Word, &mut barrier.id);
                if let Some(count) = &mut barrier.count {
                    f(Use, Word, count);
                }
                f(Use, Predicate, &mut barrier.p);
                if let Some(d) = &mut barrier.d {
                    reg(f, Define, d);
                }
            }
            Op::Shuffle(i) => {
                let shuffle = &mut self.shuffles[usize::from(i)];
                for s in [&mut shuffle.a, &mut shuffle.b, &mut shuffle.c, &mut shuffle.members] {
                    f(Use, Word, s);
                }
                f(Define, Word, &mut shuffle.d);
                if let Some(p) = &mut shuffle.p {
                    f(Define, Predicate, p);
                }
            }
            Op::Vote(i) => {
                let vote = &mut self.votes[usize::from(i)];
                reg(f, Use, &mut vote.a);
                f(Use, Word, &mut vote.members);
                if let Some(d) = &mut vote.d {
                    reg(f, Define, d);
                }
                if let Some(p) = &mut vote.p {
                    f(Define, Predicate, p);
                }
            }
            Op::Rare(i) => visit_rare::visit(&mut self.rares[usize::from(i)], f),
            Op::Matrix(i) => visit_matrix(&mut self.matrices[usize::from(i)], f),
            _ => {}
        }
    }
}

fn visit_matrix(matrix: &mut Matrix, f: Visitor<'_>) {
    use Class::{Predicate, Word};
    use Role::{Define, Use};
    match matrix {
        Matrix::Load(Fragments { regs, count, base: from, .. }) => {
            base(f, from);
            for d in regs.iter_mut().take(usize::from(*count)) {
                f(Define, Word, d);
            }
        }
        Matrix::Store(Fragments { regs, count, base: to, .. }) => {
            base(f, to);
            for s in regs.iter_mut().take(usize::from(*count)) {
                f(Use, Word, s);
            }
        }
        Matrix::Transpose { d, a } => {
            f(Use, Word, a);
            f(Define, Word, d);
        }
        Matrix::Product(Product { shape, a, b, c, d }) => {
            let (a_count, b_count) = shape.registers();
            for s in a.iter_mut().take(a_count) {
                f(Use, Word, s);
            }
            for s in b.iter_mut().take(b_count) {
                f(Use, Word, s);
            }
            for s in c {
                f(Use, Word, s);
            }
            for d in d {
                f(Define, Word, d);
            }
        }
        Matrix::Multiply(what) => {
            let (lefts, rights, sums) = (what.lefts(), what.rights(), what.sums());
            let sources =
                [(&mut what.a[..], lefts), (&mut what.b[..], rights), (&mut what.c[..], sums)];
            for (slots, count) in sources {
                for s in slots.iter_mut().take(count.into()) {
                    f(Use, Word, s);
                }
            }
            for d in what.d.iter_mut().take(sums.into()) {
                f(Define, Word, d);
            }
        }
        Matrix::Copy(Copying { d, s, size, ignored, .. }) => {
            base(f, d);
            base(f, s);
            if let Some(size) = size {
                f(Use, Word, size);
            }
            if let Some(ignored) = ignored {
                f(Use, Predicate, &mut ignored.slot);
            }
        }
        Matrix::Clock { d, .. } => reg(f, Define, d),
        Matrix::Commit | Matrix::Wait { .. } => {}
    }
}
