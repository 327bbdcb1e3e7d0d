//! What a caller sees of a parsed module: kernels, parameters, basic blocks.

use crate::parse_error::ParseError;
use crate::program::{
    Access, Action, Atomic, Barrier, Lane, Matrix, Place, Pure, Reg, SharedArray, Shuffle, Slot,
    Special, Step, Table, Vote,
};
use crate::rare::Rare;
use crate::source::{Sites, SourceLine};
use std::collections::HashMap;
use std::ops::Range;

/// The type of a kernel parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ParameterType {
    /// 8-bit integer or bits.
    U8,
    /// Signed 8-bit integer.
    S8,
    /// 16-bit integer or bits (f16 and bf16 too).
    U16,
    /// Signed 16-bit integer.
    S16,
    /// 32-bit integer or bits.
    U32,
    /// Signed 32-bit integer.
    S32,
    /// 64-bit integer, bits or pointer.
    U64,
    /// Signed 64-bit integer.
    S64,
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// An array of bytes (a struct passed by value).
    Bytes,
}

/// One kernel parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Name in the PTX.
    pub name: String,
    /// Declared type.
    pub ty: ParameterType,
    /// Size.
    pub size_bytes: u32,
    /// Alignment.
    pub align_bytes: u32,
    /// Position in [`crate::Launch::parameters`].
    pub offset_bytes: u32,
}

/// A basic block of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockInfo {
    /// Label in the PTX, where it has one.
    pub label: Option<String>,
    /// First PTX line of the block.
    pub ptx_line: u32,
    /// CUDA source of its first instruction.
    pub source: Option<SourceLine>,
}

/// One kernel of a module, lowered.
pub struct Entry {
    /// No other entry of this process has it.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) parameter_bytes: u32,
    pub(crate) max_threads: Option<u32>,
    /// Blocks of a cluster, where the kernel says.
    pub(crate) cluster: Option<[u32; 3]>,
    pub(crate) explicit_cluster: bool,
    pub(crate) static_shared_bytes: u32,
    pub(crate) shared: Vec<SharedArray>,
    /// Offset of dynamic shared memory.
    pub(crate) dynamic_shared_offset: u32,
    pub(crate) local_bytes: u32,
    pub(crate) code: Vec<Step>,
    /// As long as `code`.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) places: Vec<Place>,
    pub(crate) blocks: Vec<BlockInfo>,
    /// First instruction of each block.
    pub(crate) block_starts: Vec<u32>,
    /// Block each edge leads to.
    pub(crate) edge_targets: Vec<u32>,
    /// Whether control reaches block i + 1 from block i without a branch.
    pub(crate) falls_through: Vec<bool>,
    pub(crate) words: u32,
    pub(crate) longs: u32,
    pub(crate) predicates: u32,
    pub(crate) word_constants: Vec<(Slot, u32)>,
    pub(crate) long_constants: Vec<(Slot, u64)>,
    pub(crate) specials: Vec<(Special, Reg)>,
    /// Parameters read at fixed places: offset, bytes, sign extension, slot.
    pub(crate) parameter_slots: Vec<(u32, u8, bool, Reg)>,
    /// Slots a thread may read before it writes them.
    pub(crate) exposed: Vec<Reg>,
    pub(crate) pures: Vec<Pure>,
    pub(crate) accesses: Vec<Access>,
    pub(crate) atomics: Vec<Atomic>,
    pub(crate) barriers: Vec<Barrier>,
    pub(crate) shuffles: Vec<Shuffle>,
    pub(crate) votes: Vec<Vote>,
    pub(crate) tables: Vec<Table>,
    pub(crate) matrices: Vec<Matrix>,
    pub(crate) rares: Vec<Rare>,
    pub(crate) unsupported: Vec<String>,
    /// A fence or a release may order blocks.
    pub(crate) synchronises: bool,
    /// Seed of this entry's edges among the fuzzer's counters.
    pub(crate) edge_seed: u32,
}

impl Entry {
    /// The kernel's name in the PTX.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters, in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Length of the parameter bytes a launch passes.
    pub fn parameter_bytes(&self) -> u32 {
        self.parameter_bytes
    }

    /// Bytes of its declared shared arrays, as the compiler laid them out.
    pub fn static_shared_bytes(&self) -> u32 {
        self.static_shared_bytes
    }

    /// Its basic blocks, in the order of the PTX.
    pub fn blocks(&self) -> &[BlockInfo] {
        &self.blocks
    }

    /// Threads a block may have, from `.maxntid` or `.reqntid`.
    pub fn max_threads(&self) -> Option<u32> {
        self.max_threads
    }

    /// Blocks of a cluster along x, y, z, from `.reqnctapercluster`.
    pub fn cluster(&self) -> Option<[u32; 3]> {
        self.cluster
    }

    /// Instructions the machine lacks, with their PTX lines: a launch that reaches one stops with
    /// [`crate::Stop::Unsupported`].
    pub fn unsupported(&self) -> impl Iterator<Item = (&str, u32)> {
        self.code.iter().zip(&self.places).filter_map(|(instr, place)| match instr.action {
            Action::Unsupported(i) => {
                Some((self.unsupported[usize::from(i)].as_str(), place.ptx_line))
            }
            _ => None,
        })
    }

    /// Which blocks a branch or the block before leads to: what stands behind the last `ret` is no
    /// code.
    pub fn reachable_blocks(&self) -> Vec<bool> {
        let mut reachable = vec![false; self.blocks.len()];
        let mut open = vec![0];
        while let Some(block) = open.pop() {
            if std::mem::replace(&mut reachable[block], true) {
                continue;
            }
            if self.falls_through[block] && block + 1 < reachable.len() {
                open.push(block + 1);
            }
            open.extend(self.edges_of(block));
        }
        reachable
    }

    /// Blocks that the branches in a block lead to.
    fn edges_of(&self, block: usize) -> impl Iterator<Item = usize> {
        let end = self.block_starts.get(block + 1).map_or(self.code.len(), |end| *end as usize);
        let steps = &self.code[self.block_starts[block] as usize..end];
        steps.iter().flat_map(|step| {
            let edges = match step.action {
                Action::Branch { edge, .. } => {
                    let first = usize::from(edge);
                    first..first + 1 + usize::from(step.guard != 0)
                }
                Action::BranchTable(i) => {
                    let table = &self.tables[usize::from(i)];
                    let first = usize::from(table.edge);
                    first..first + table.targets.len()
                }
                _ => 0..0,
            };
            edges.map(|edge| self.edge_targets[edge] as usize)
        })
    }

    /// Number of branch edges [`crate::Coverage`] counts.
    pub fn edge_count(&self) -> usize {
        self.edge_targets.len()
    }
}

/// A parsed and lowered PTX module.
pub struct Module {
    pub(crate) entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    pub(crate) lines: Vec<String>,
    sites: Sites,
    /// Bytes of module-scope `.global` and `.const` variables, as every launch starts with them.
    pub(crate) data: Vec<u8>,
    /// Whose each of those bytes is.
    pub(crate) owners: Vec<Owner>,
    /// Where each lies, in order.
    pub(crate) variables: Vec<Placed>,
}

/// Whose a byte of a module's data is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// It lies between two variables.
    Nobody,
    /// A thread may only load it.
    Const,
    Global,
}

/// A `.global` or `.const` variable of a module.
pub(crate) struct Placed {
    pub name: String,
    pub is_const: bool,
    /// Of its first byte.
    pub start: u64,
    pub len_bytes: u64,
}

impl Module {
    /// Parses and lowers PTX text.
    ///
    /// # Errors
    /// When the text is not PTX. Instructions the machine lacks are no error here: they stop a
    /// launch that reaches them.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        Module::translate(text, true)
    }

    /// The same without simplifications, for tests of them: slower, with the same results, faults
    /// and edges.
    ///
    /// # Errors
    /// As [`Module::parse`].
    pub fn parse_plainly(text: &str) -> Result<Module, ParseError> {
        Module::translate(text, false)
    }

    fn translate(text: &str, simplified: bool) -> Result<Module, ParseError> {
        let tree = crate::parse::parse(text)?;
        let lowered = crate::lower::lower(&tree, simplified)?;
        let by_name =
            lowered.entries.iter().enumerate().map(|(i, entry)| (entry.name.clone(), i)).collect();
        Ok(Module {
            entries: lowered.entries,
            by_name,
            lines: text.lines().map(|line| line.trim().to_owned()).collect(),
            sites: tree.sites,
            data: lowered.data,
            owners: lowered.owners,
            variables: lowered.variables,
        })
    }

    /// Every kernel, in the order of the text.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The kernel of that name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.by_name.get(name).map(|&i| &self.entries[i])
    }

    /// The variable that holds a byte, or is nearest to it.
    pub(crate) fn variable(&self, offset: u64) -> Option<&Placed> {
        let behind = self.variables.partition_point(|variable| variable.start <= offset);
        let (before, after) = self.variables.split_at(behind);
        let holds = |variable: &&Placed| variable.len_bytes != 0 || variable.start == offset;
        let last = before.iter().rev().find(holds);
        let next = after.iter().find(holds);
        match (last, next) {
            (Some(last), Some(next)) => {
                let past = offset.saturating_sub(last.start + last.len_bytes);
                Some(if past < next.start - offset { last } else { next })
            }
            _ => last.or(next),
        }
    }

    /// The bytes at an offset, if all belong to variables.
    pub(crate) fn owned(&self, offset: u64, len: usize) -> Option<Range<usize>> {
        let at = usize::try_from(offset).ok()?;
        let range = at..at.checked_add(len)?;
        let owners = self.owners.get(range.clone())?;
        (!owners.contains(&Owner::Nobody)).then_some(range)
    }

    pub(crate) fn source(&self, place: Place) -> Option<SourceLine> {
        self.sites.line(place.source?)
    }

    /// The PTX line as written, its words one space apart.
    pub(crate) fn text(&self, ptx_line: u32) -> String {
        self.line(ptx_line).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn line(&self, ptx_line: u32) -> &str {
        self.lines.get((ptx_line as usize).wrapping_sub(1)).map_or("", String::as_str)
    }
}
