//! The lowered program: compact operations over numbered slots.
//! Invariant: every slot, table index and branch target in an [`Op`] is inside its table.

mod matrix;

use crate::dispatch::LaneFunction;
use crate::exec::lane::{Kernel, Slots};
use crate::syntax::Space;
pub(crate) use matrix::{
    Copying, Factor, Fragments, Ignored, Matrix, Multiply, Product, Shape, Sum,
};

/// Index of a register in its class.
pub(crate) type Slot = u16;

/// Which register file a slot belongs to. 16-bit registers live zero-extended in `Word`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    Predicate,
    Word,
    Long,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Reg {
    pub class: Class,
    pub slot: Slot,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unary {
    Not,
    Negate,
    AbsS,
    FloatNegate,
    FloatAbs,
    Popc,
    Clz,
    Brev,
    Low16,
    High16,
    Sext8,
    Sext16,
    F32OfS32,
    F32OfU32,
    Saturate,
    Bf16OfF32,
    F32OfBf16,
    F32OfF16,
    F16OfF32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    MulHiS,
    MulHiU,
    And,
    Or,
    Xor,
    Shl,
    ShrU,
    ShrS,
    MinS,
    MinU,
    MaxS,
    MaxU,
    Pack16,
    FAdd,
    FSub,
    FMul,
    FMin,
    FMax,
    FAddZero,
    BfPairAdd,
    BfPairMul,
    PackBf16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ternary {
    Mad,
    Fma,
    FmaDown,
    BfPairFma,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Long2 {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    MinS,
    MinU,
    MaxS,
    MaxU,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shift {
    Left,
    RightU,
    RightS,
}

/// A comparison; the float ones with `U` hold for NaN as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compare {
    Eq,
    Ne,
    LtS,
    LeS,
    GtS,
    GeS,
    LtU,
    LeU,
    GtU,
    GeU,
    FEq,
    FNe,
    FLt,
    FLe,
    FGt,
    FGe,
    FEqU,
    FNeU,
    FLtU,
    FLeU,
    FGtU,
    FGeU,
    FNum,
    FNan,
}

/// The approximate functions whose results depend on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Approx {
    Ex2,
    Ex2Ftz,
    Lg2,
    Lg2Ftz,
    Rcp,
    RcpFtz,
    Rsqrt,
    RsqrtFtz,
    Sqrt,
    SqrtFtz,
    Sin,
    SinFtz,
    Cos,
    CosFtz,
    Tanh,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Mov32 { d: Slot, a: Slot },
    Mov64 { d: Slot, a: Slot },
    MovP { d: Slot, a: Slot },
    NotP { d: Slot, a: Slot },
    AndP { d: Slot, a: Slot, b: Slot },
    OrP { d: Slot, a: Slot, b: Slot },
    XorP { d: Slot, a: Slot, b: Slot },
    Unary { op: Unary, d: Slot, a: Slot },
    Binary { op: Binary, d: Slot, a: Slot, b: Slot },
    Ternary { op: Ternary, d: Slot, a: Slot, b: Slot, c: Slot },
    Approx { op: Approx, d: Slot, a: Slot },
    Long2 { op: Long2, d: Slot, a: Slot, b: Slot },
    Shift64 { op: Shift, d: Slot, a: Slot, b: Slot },
    MulWideS { d: Slot, a: Slot, b: Slot },
    MulWideU { d: Slot, a: Slot, b: Slot },
    MadWideS { d: Slot, a: Slot, b: Slot, c: Slot },
    MadWideU { d: Slot, a: Slot, b: Slot, c: Slot },
    Mad64 { d: Slot, a: Slot, b: Slot, c: Slot },
    Sext { d: Slot, a: Slot },
    Zext { d: Slot, a: Slot },
    Trunc { d: Slot, a: Slot },
    Join { d: Slot, a: Slot, b: Slot },
    Split { low: Slot, high: Slot, a: Slot },
    Select32 { d: Slot, a: Slot, b: Slot, p: Slot },
    Select64 { d: Slot, a: Slot, b: Slot, p: Slot },
    Set32 { op: Compare, d: Slot, a: Slot, b: Slot },
    Set64 { op: Compare, d: Slot, a: Slot, b: Slot },
    Pure(u16),
    Load(u16),
    Store(u16),
    Atomic(u16),
    Branch { target: u32, edge: u16 },
    BranchTable(u16),
    Exit,
    Barrier(u16),
    WarpSync { members: Slot },
    Fence,
    Shuffle(u16),
    Vote(u16),
    ActiveMask { d: Slot },
    Matrix(u16),
    Rare(u16),
    Trap,
    Unsupported(u16),
}

/// One operation under its guard: predicate `guard` xor `flip` (slot 0 is always true).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instr {
    pub op: Op,
    pub guard: Slot,
    pub flip: bool,
}

/// What the machine executes for an [`Op`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// A function of whole registers, the [`Lane`] of this place.
    Lane,
    Approx {
        op: Approx,
        d: Slot,
        a: Slot,
    },
    Pure(u16),
    Load(u16),
    Store(u16),
    Atomic(u16),
    Branch {
        target: u32,
        edge: u16,
    },
    BranchTable(u16),
    Exit,
    Barrier(u16),
    WarpSync {
        members: Slot,
    },
    /// A fence of the whole GPU.
    Fence,
    Shuffle(u16),
    /// A shuffle that the [`Lane`] of this place does when the whole warp is here.
    Exchange(u16),
    Vote(u16),
    ActiveMask {
        d: Slot,
    },
    Matrix(u16),
    Rare(u16),
    Trap,
    Unsupported(u16),
}

/// A function of whole registers and the slots it works on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub function: LaneFunction,
    pub s: Slots,
}

/// One action under its guard, as in [`Instr`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub action: Action,
    pub guard: Slot,
    pub flip: bool,
    /// How many unguarded [`Action::Lane`] stand here in a row, at most 255.
    pub run: u8,
    /// The same for a whole warp, which does [`Action::Exchange`] likewise.
    pub whole_run: u8,
}

/// A lane-wise function of up to three operands, for everything without an [`Op`] of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pure {
    pub f: fn(u64, u64, u64) -> u64,
    pub d: Reg,
    pub sources: [Reg; 3],
    pub count: u8,
}

/// A load or store of `count` elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub space: Space,
    pub width_bytes: u8,
    pub count: u8,
    /// Sign-extend elements narrower than the register.
    pub signed: bool,
    /// The registers hold 16 bits.
    pub half: bool,
    pub regs: [Reg; 8],
    pub base: Option<Reg>,
    pub offset: i64,
    /// A long register that holds one value in all lanes, added to the address.
    pub plus: Option<Slot>,
    /// `.volatile`, `.relaxed`, `.acquire`, `.release`: does not race with its like.
    pub strong: bool,
    /// `.release`: a fence comes before it.
    pub release: bool,
    pub scope: Scope,
}

/// Among whom a strong access is one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Scope {
    /// The threads of the GPU, or more.
    #[default]
    Wide,
    Cluster,
    Block,
}

impl Access {
    pub fn bytes(&self) -> u32 {
        u32::from(self.width_bytes) * u32::from(self.count)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AtomicOp {
    AddInt,
    AddF32,
    AddF64,
    AddF16x2,
    AddBf16x2,
    AddF16,
    AddBf16,
    MinS,
    MinU,
    MaxS,
    MaxU,
    Exchange,
    CompareSwap,
    And,
    Or,
    Xor,
    Increment,
    Decrement,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Atomic {
    pub op: AtomicOp,
    pub space: Space,
    pub width_bytes: u8,
    pub d: Option<Reg>,
    pub base: Option<Reg>,
    pub offset: i64,
    pub a: Reg,
    pub b: Reg,
    /// `.release` or `.acq_rel`: a fence comes before it.
    pub release: bool,
    pub scope: Scope,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// `barrier.cluster.arrive`, and whether what was done before is released.
    ClusterArrive {
        release: bool,
    },
    ClusterWait,
    RedPopc,
    RedAnd,
    RedOr,
}

impl BarrierKind {
    /// It orders blocks.
    pub fn releases(self) -> bool {
        matches!(self, BarrierKind::ClusterArrive { release: true })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    pub kind: BarrierKind,
    pub id: Slot,
    /// Explicit thread count.
    pub count: Option<Slot>,
    pub d: Option<Reg>,
    pub p: Slot,
    pub negate: bool,
    /// A warp comes to it as one.
    pub aligned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    pub mode: ShuffleMode,
    pub d: Slot,
    pub p: Option<Slot>,
    pub a: Slot,
    pub b: Slot,
    pub c: Slot,
    pub members: Slot,
    /// Values of `b` and `c` where they and the full member mask are constants.
    pub fixed: Option<(u32, u32)>,
    /// What does it for a whole warp, where there is such a kernel, and its last slot.
    pub whole: Option<(Kernel, Slot)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VoteKind {
    Any,
    All,
    Uniform,
    Ballot,
    MatchAny,
    MatchAll,
    Elect,
    AddU,
    MinU,
    MaxU,
    MinS,
    MaxS,
    And,
    Or,
    Xor,
}

/// Anything that combines a value of the member lanes into one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vote {
    pub kind: VoteKind,
    pub d: Option<Reg>,
    pub p: Option<Slot>,
    pub a: Reg,
    pub negate: bool,
    pub members: Slot,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub index: Slot,
    pub targets: Vec<u32>,
    pub edge: u16,
}

/// Values every thread of a launch knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    /// `%clusterid`, `%nclusterid`, `%cluster_ctaid`, `%cluster_nctaid`.
    ClusterId(u8),
    ClusterCount(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterRank,
    ClusterRanks,
    /// Somebody asked for clusters.
    ExplicitCluster,
    Lane,
    Warp,
    WarpCount,
    LaneMaskEq,
    LaneMaskLt,
    LaneMaskLe,
    LaneMaskGt,
    LaneMaskGe,
    DynamicShared,
    TotalShared,
    DynamicBase,
    Zero,
}

/// Where in the PTX and the CUDA source an operation comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub ptx_line: u32,
    /// A number of [`crate::source::Sites`].
    pub source: Option<u32>,
}

/// A byte range of shared memory that belongs to one variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedArray {
    pub offset_bytes: u32,
    pub size_bytes: u32,
}
