//! The syntax tree of a PTX module: declarations and statements as written, names unresolved.

use crate::source::Sites;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Space {
    Global,
    /// The executing block's own.
    Shared,
    /// That of any block of the cluster.
    Cluster,
    Local,
    Const,
    Param,
    #[default]
    Generic,
}

/// A declared variable outside the registers.
#[derive(Clone, Debug)]
pub(crate) struct Variable<'a> {
    pub space: Space,
    pub name: &'a str,
    pub align_bytes: u32,
    pub element: &'a str,
    pub element_bytes: u32,
    /// Number of elements; `None` for a scalar, `Some(0)` for `[]`.
    pub count: Option<u64>,
    pub external: bool,
    pub initial: Vec<Initial<'a>>,
    pub line: u32,
}

impl Variable<'_> {
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.element_bytes).saturating_mul(self.count.unwrap_or(1))
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Initial<'a> {
    Bits(u64),
    Address(&'a str, i64),
}

#[derive(Clone, Debug)]
pub(crate) enum Operand<'a> {
    /// Register, variable or label.
    Name(&'a str),
    /// Integer; negative ones as two's complement.
    Int(u64),
    F32(u32),
    F64(u64),
    /// `[base + offset]`.
    Address(Option<&'a str>, i64),
    /// `[map, {coordinates}]` of tensor copies.
    Coordinates(Box<Operand<'a>>, Vec<Operand<'a>>),
    Vector(Vec<Operand<'a>>),
    /// An element of a vector register that is named whole.
    Element(&'a str, u8),
    /// `p|q`.
    Pair(Box<Operand<'a>>, Box<Operand<'a>>),
    /// `!p`.
    Not(&'a str),
    /// `name + offset` outside brackets.
    Sum(&'a str, i64),
    /// `( … )` of a call.
    List(Vec<Operand<'a>>),
}

#[derive(Clone, Debug)]
pub(crate) struct Instruction<'a> {
    /// Guarding predicate and whether it is negated.
    pub guard: Option<(&'a str, bool)>,
    pub opcode: &'a str,
    pub operands: Vec<Operand<'a>>,
    pub line: u32,
    pub source: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) enum Statement<'a> {
    Label(&'a str),
    Instruction(Instruction<'a>),
    /// Register type, name, and the count of `%r<count>`.
    Registers(&'a str, &'a str, Option<u32>),
    /// Element type, name, and elements of `.reg .v4 .b32 %r`.
    VectorRegister(&'a str, &'a str, u8),
    Variable(Variable<'a>),
    BranchTargets(&'a str, Vec<&'a str>),
    Open,
    Close,
}

#[derive(Clone, Debug)]
pub(crate) struct Function<'a> {
    pub name: &'a str,
    pub is_entry: bool,
    pub returns: Vec<Variable<'a>>,
    pub parameters: Vec<Variable<'a>>,
    pub max_threads: Option<u32>,
    /// Blocks of a cluster along x, y, z, from `.reqnctapercluster`.
    pub cluster: Option<[u32; 3]>,
    /// `.explicitcluster`: it must be launched with clusters.
    pub explicit_cluster: bool,
    pub body: Option<Vec<Statement<'a>>>,
    pub line: u32,
}

#[derive(Default, Debug)]
pub(crate) struct Tree<'a> {
    pub variables: Vec<Variable<'a>>,
    pub functions: Vec<Function<'a>>,
    /// `.target`: the architecture, such as `sm_90a`.
    pub target: Option<&'a str>,
    /// Where the instructions come from.
    pub sites: Sites,
}

/// Bytes of a scalar type name (without its dot); `None` for an unknown one.
pub(crate) fn type_bytes(name: &str) -> Option<u32> {
    Some(match name {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "tf32" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        "b128" => 16,
        _ => return None,
    })
}
