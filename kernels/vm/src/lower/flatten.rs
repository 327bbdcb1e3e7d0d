//! The last translation: every operation becomes the action the machine executes.

use crate::exec::lane::Kernel;
use crate::program::{
    Action, Binary, Compare, Instr, Long2, Op, Shift, Slot, Step, Ternary, Unary,
};

/// The steps of a kernel.
pub(super) fn steps(code: &[Instr]) -> Vec<Step> {
    let mut steps: Vec<Step> = code
        .iter()
        .map(|instr| Step {
            action: action(instr.op),
            guard: instr.guard,
            flip: instr.flip,
            run: 0,
        })
        .collect();
    let mut run = 0u8;
    for step in steps.iter_mut().rev() {
        let plain = step.guard == 0 && matches!(step.action, Action::Lane { .. });
        run = if plain { run.saturating_add(1) } else { 0 };
        step.run = run;
    }
    steps
}

fn lane(kernel: Kernel, s: &[Slot]) -> Action {
    let mut slots = [0; 4];
    slots[..s.len()].copy_from_slice(s);
    Action::Lane { kernel, s: slots }
}

/// The action of one operation.
fn action(op: Op) -> Action {
    match op {
        Op::Mov32 { d, a } => lane(Kernel::Mov32, &[d, a]),
        Op::Mov64 { d, a } => lane(Kernel::Mov64, &[d, a]),
        Op::MovP { d, a } => lane(Kernel::MovP, &[d, a]),
        Op::NotP { d, a } => lane(Kernel::NotP, &[d, a]),
        Op::AndP { d, a, b } => lane(Kernel::AndP, &[d, a, b]),
        Op::OrP { d, a, b } => lane(Kernel::OrP, &[d, a, b]),
        Op::XorP { d, a, b } => lane(Kernel::XorP, &[d, a, b]),
        Op::Unary { op, d, a } => lane(unary(op), &[d, a]),
        Op::Binary { op, d, a, b } => lane(binary(op), &[d, a, b]),
        Op::Ternary { op, d, a, b, c } => lane(ternary(op), &[d, a, b, c]),
        Op::Long2 { op, d, a, b } => lane(long(op), &[d, a, b]),
        Op::Shift64 { op, d, a, b } => lane(shift(op), &[d, a, b]),
        Op::MulWideS { d, a, b } => lane(Kernel::MulWideS, &[d, a, b]),
        Op::MulWideU { d, a, b } => lane(Kernel::MulWideU, &[d, a, b]),
        Op::MadWideS { d, a, b, c } => lane(Kernel::MadWideS, &[d, a, b, c]),
        Op::MadWideU { d, a, b, c } => lane(Kernel::MadWideU, &[d, a, b, c]),
        Op::Mad64 { d, a, b, c } => lane(Kernel::Mad64, &[d, a, b, c]),
        Op::Sext { d, a } => lane(Kernel::Sext, &[d, a]),
        Op::Zext { d, a } => lane(Kernel::Zext, &[d, a]),
        Op::Trunc { d, a } => lane(Kernel::Trunc, &[d, a]),
        Op::Join { d, a, b } => lane(Kernel::Join, &[d, a, b]),
        Op::Split { low, high, a } => lane(Kernel::Split, &[low, high, a]),
        Op::Select32 { d, a, b, p } => lane(Kernel::Select32, &[d, a, b, p]),
        Op::Select64 { d, a, b, p } => lane(Kernel::Select64, &[d, a, b, p]),
        Op::Set32 { op, d, a, b } => lane(compare32(op), &[d, a, b]),
        Op::Set64 { op, d, a, b } => lane(compare64(op), &[d, a, b]),
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
        Op::Fence => Action::Fence,
        Op::Trap => Action::Trap,
        Op::Unsupported(i) => Action::Unsupported(i),
    }
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
