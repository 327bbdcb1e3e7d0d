//! The last translation: every operation becomes the action the machine executes.

use crate::dispatch::LaneFunction;
use crate::exec::lane::{Kernel, Slots};
use crate::program::{
    Action, Binary, Compare, Instr, Lane, Long2, Op, Shift, Shuffle, Slot, Step, Ternary, Unary,
};

/// The steps of a kernel, and the function of whole registers that each has, if any.
pub(super) fn steps(code: &[Instr], shuffles: &[Shuffle]) -> (Vec<Step>, Vec<Lane>) {
    let mut lanes = Vec::with_capacity(code.len());
    let mut steps = Vec::with_capacity(code.len());
    for instr in code {
        let (action, kernel, s) = match action(instr.op) {
            Chosen::Lane(kernel, s) => (Action::Lane, kernel, s),
            Chosen::Other(Action::Shuffle(i)) => {
                let Shuffle { d, a, p, whole, .. } = shuffles[usize::from(i)];
                match whole {
                    Some((kernel, last)) => {
                        (Action::Exchange(i), kernel, [d, a, p.unwrap_or(0), last])
                    }
                    None => (Action::Shuffle(i), Kernel::Mov32, [0; 4]),
                }
            }
            Chosen::Other(action) => (action, Kernel::Mov32, [0; 4]),
        };
        steps.push(Step { action, guard: instr.guard, flip: instr.flip, run: 0, whole_run: 0 });
        lanes.push(Lane { function: LaneFunction::of(kernel), s });
    }
    let (mut run, mut whole_run) = (0u8, 0u8);
    for step in steps.iter_mut().rev() {
        let lane = step.guard == 0 && matches!(step.action, Action::Lane);
        let exchange = step.guard == 0 && matches!(step.action, Action::Exchange(_));
        run = if lane { run.saturating_add(1) } else { 0 };
        whole_run = if lane || exchange { whole_run.saturating_add(1) } else { 0 };
        (step.run, step.whole_run) = (run, whole_run);
    }
    (steps, lanes)
}

/// What executes an operation.
enum Chosen {
    Lane(Kernel, Slots),
    Other(Action),
}

fn lane(kernel: Kernel, s: &[Slot]) -> Chosen {
    let mut slots = [0; 4];
    slots[..s.len()].copy_from_slice(s);
    Chosen::Lane(kernel, slots)
}

fn action(op: Op) -> Chosen {
    Chosen::Other(match op {
        Op::Mov32 { d, a } => return lane(Kernel::Mov32, &[d, a]),
        Op::Mov64 { d, a } => return lane(Kernel::Mov64, &[d, a]),
        Op::MovP { d, a } => return lane(Kernel::MovP, &[d, a]),
        Op::NotP { d, a } => return lane(Kernel::NotP, &[d, a]),
        Op::AndP { d, a, b } => return lane(Kernel::AndP, &[d, a, b]),
        Op::OrP { d, a, b } => return lane(Kernel::OrP, &[d, a, b]),
        Op::XorP { d, a, b } => return lane(Kernel::XorP, &[d, a, b]),
        Op::Unary { op, d, a } => return lane(unary(op), &[d, a]),
        Op::Binary { op, d, a, b } => return lane(binary(op), &[d, a, b]),
        Op::Ternary { op, d, a, b, c } => return lane(ternary(op), &[d, a, b, c]),
        Op::Long2 { op, d, a, b } => return lane(long(op), &[d, a, b]),
        Op::Shift64 { op, d, a, b } => return lane(shift(op), &[d, a, b]),
        Op::MulWideS { d, a, b } => return lane(Kernel::MulWideS, &[d, a, b]),
        Op::MulWideU { d, a, b } => return lane(Kernel::MulWideU, &[d, a, b]),
        Op::MadWideS { d, a, b, c } => return lane(Kernel::MadWideS, &[d, a, b, c]),
        Op::MadWideU { d, a, b, c } => return lane(Kernel::MadWideU, &[d, a, b, c]),
        Op::Mad64 { d, a, b, c } => return lane(Kernel::Mad64, &[d, a, b, c]),
        Op::Sext { d, a } => return lane(Kernel::Sext, &[d, a]),
        Op::Zext { d, a } => return lane(Kernel::Zext, &[d, a]),
        Op::Trunc { d, a } => return lane(Kernel::Trunc, &[d, a]),
        Op::Join { d, a, b } => return lane(Kernel::Join, &[d, a, b]),
        Op::Split { low, high, a } => return lane(Kernel::Split, &[low, high, a]),
        Op::Select32 { d, a, b, p } => return lane(Kernel::Select32, &[d, a, b, p]),
        Op::Select64 { d, a, b, p } => return lane(Kernel::Select64, &[d, a, b, p]),
        Op::Set32 { op, d, a, b } => return lane(compare32(op), &[d, a, b]),
        Op::Set64 { op, d, a, b } => return lane(compare64(op), &[d, a, b]),
        Op::Approx { op, d, a } => Action::Approx { op, d, a },
        Op::Pure(i) => Action::Pure(i),
        Op::Load(i) => Action::Load(i),
        Op::Store(i) => Action::Store(i),
        Op::Atomic(i) => Action::Atomic(i),
        Op::Branch { target, edge } => Action::Branch { target, edge },
        Op::BranchTable(i) => Action::BranchTable(i),
        Op::Exit => Action::Exit,
        Op::Barrier(i) => Action::Barrier(i),
        Op::WarpSync { members } => Action::WarpSync { members },
        Op::Shuffle(i) => Action::Shuffle(i),
        Op::Vote(i) => Action::Vote(i),
        Op::ActiveMask { d } => Action::ActiveMask { d },
        Op::Matrix(i) => Action::Matrix(i),
        Op::Rare(i) => Action::Rare(i),
        Op::Fence => Action::Fence,
        Op::Trap => Action::Trap,
        Op::Unsupported(i) => Action::Unsupported(i),
    })
}

macro_rules! same_names {
    ($function:ident, $from:ident: $($name:ident)*) => {
        fn $function(op: $from) -> Kernel {
            match op { $($from::$name => Kernel::$name),* }
        }
    };
}

same_names! { unary, Unary:
    Not Negate AbsS FloatNegate FloatAbs Popc Clz Brev Low16 High16 Sext8 Sext16 F32OfS32
    F32OfU32 Saturate Bf16OfF32 F32OfBf16 F32OfF16 F16OfF32
}
same_names! { binary, Binary:
    Add Sub Mul MulHiS MulHiU And Or Xor Shl ShrU ShrS MinS MinU MaxS MaxU Pack16 FAdd FSub FMul
    FMin FMax FAddZero BfPairAdd BfPairMul PackBf16
}
same_names! { ternary, Ternary: Mad Fma FmaDown BfPairFma }

fn long(op: Long2) -> Kernel {
    match op {
        Long2::Add => Kernel::Add64,
        Long2::Sub => Kernel::Sub64,
        Long2::Mul => Kernel::Mul64,
        Long2::And => Kernel::And64,
        Long2::Or => Kernel::Or64,
        Long2::Xor => Kernel::Xor64,
        Long2::MinS => Kernel::MinS64,
        Long2::MinU => Kernel::MinU64,
        Long2::MaxS => Kernel::MaxS64,
        Long2::MaxU => Kernel::MaxU64,
    }
}

fn shift(op: Shift) -> Kernel {
    match op {
        Shift::Left => Kernel::Shl64,
        Shift::RightU => Kernel::ShrU64,
        Shift::RightS => Kernel::ShrS64,
    }
}

fn compare32(op: Compare) -> Kernel {
    match op {
        Compare::Eq => Kernel::Eq32,
        Compare::Ne => Kernel::Ne32,
        Compare::LtS => Kernel::LtS32,
        Compare::LeS => Kernel::LeS32,
        Compare::GtS => Kernel::GtS32,
        Compare::GeS => Kernel::GeS32,
        Compare::LtU => Kernel::LtU32,
        Compare::LeU => Kernel::LeU32,
        Compare::GtU => Kernel::GtU32,
        Compare::GeU => Kernel::GeU32,
        Compare::FEq => Kernel::FEq,
        Compare::FNe => Kernel::FNe,
        Compare::FLt => Kernel::FLt,
        Compare::FLe => Kernel::FLe,
        Compare::FGt => Kernel::FGt,
        Compare::FGe => Kernel::FGe,
        Compare::FEqU => Kernel::FEqU,
        Compare::FNeU => Kernel::FNeU,
        Compare::FLtU => Kernel::FLtU,
        Compare::FLeU => Kernel::FLeU,
        Compare::FGtU => Kernel::FGtU,
        Compare::FGeU => Kernel::FGeU,
        Compare::FNum => Kernel::FNum,
        Compare::FNan => Kernel::FNan,
    }
}

fn compare64(op: Compare) -> Kernel {
    match op {
        Compare::Eq => Kernel::Eq64,
        Compare::LtS => Kernel::LtS64,
        Compare::LeS => Kernel::LeS64,
        Compare::GtS => Kernel::GtS64,
        Compare::GeS => Kernel::GeS64,
        Compare::LtU => Kernel::LtU64,
        Compare::LeU => Kernel::LeU64,
        Compare::GtU => Kernel::GtU64,
        Compare::GeU => Kernel::GeU64,
        // Float comparisons of 64 bits are lane functions; the lowering never gives them here.
        _ => Kernel::Ne64,
    }
}
