//! What a launch function plans from checked arguments: entries, grids, shared memory, arguments,
//! scratch. Pure data: both backends run the same plan, and the plan itself is under test.

use contracts::dtype::DType;
use std::borrow::Cow;

/// Launches in stream order, and the scratch they share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Memory the caller provides, by index.
    pub scratch: Vec<Scratch>,
    /// Empty when there is nothing to do.
    pub launches: Vec<Launch>,
}

/// Scratch the caller's arena provides.
#[derive(Clone, Debug, PartialEq)]
pub struct Scratch {
    /// For reports.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Shape; dense.
    pub shape: Vec<u64>,
    /// Whether the caller gives it zeroed. Then the plan leaves it zero: whoever owns it clears it
    /// once, and it serves run after run, replays of a captured graph included. Runs that may overlap
    /// need scratch of their own. Otherwise its contents are undefined at the start.
    pub zeroed: bool,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Stem of the PTX module that holds the entry.
    pub module: &'static str,
    /// Entry name.
    pub entry: Cow<'static, str>,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub dynamic_shared_bytes: u32,
    /// In the entry's parameter order.
    pub arguments: Vec<Argument>,
}

/// One kernel argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// Address of element 0 of a tensor of the call; null when the call lacks it.
    Tensor(&'static str),
    /// Address of a scratch allocation.
    Scratch(usize),
    /// A null pointer.
    Null,
    /// 32-bit unsigned.
    U32(u32),
    /// 32-bit signed.
    I32(i32),
    /// 64-bit signed.
    I64(i64),
    /// f32.
    F32(f32),
}

impl Scratch {
    /// Size.
    pub fn len_bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.size_bytes()
    }
}
