//! What every warp of a launch shares: memories, barriers, limits and what is counted.

use super::cluster::{Cluster, Clusters};
use super::copy::PendingCopy;
use super::flight::Flight;
use super::mbarrier::Mbarriers;
use super::product::{MatrixModel, Operands};
use super::warp::Warp;
use crate::approx::FloatModel;
use crate::fault::{BufferPlace, FaultKind, MemorySpace};
use crate::memory::{BufferId, Memory};
use crate::module::{Entry, Module};
use crate::race::Races;
use crate::shared::{Other, Shared};
use crate::space::{DATA_BASE, WINDOW_BYTES};
use crate::watch::Watch;
use std::collections::VecDeque;

/// Arrivals at one barrier number.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Gate {
    pub arrived: u32,
    /// Explicit thread count; 0 for the whole block.
    pub expected: u32,
    pub popc: u32,
    pub all: bool,
    pub any: bool,
}

/// Local memory of one block's threads.
#[derive(Default)]
pub(crate) struct Local {
    pub bytes_per_thread: usize,
    pub data: Vec<u8>,
    pub init: Vec<bool>,
}

pub(crate) struct Machine<'m> {
    pub module: &'m Module,
    pub entry: &'m Entry,
    pub memory: &'m mut Memory,
    pub shared: &'m mut Shared,
    pub local: &'m mut Local,
    pub parameters: &'m [u8],
    pub data: &'m mut Vec<u8>,
    pub edges: &'m mut [u64],
    pub model: FloatModel,
    pub matrix_model: MatrixModel,
    pub wide: Option<crate::dispatch::Wide>,
    /// Initialisation, marks and races are checked.
    pub checks: bool,
    /// The rules of [`super::strict`] too.
    pub strict: bool,
    /// Accesses of global memory by several blocks.
    pub races: &'m mut Races,
    /// Instructions left in the launch.
    pub left: u64,
    /// What was taken from it for the starts of blocks, which are none.
    pub charged: u64,
    /// Instructions of a warp's turn.
    pub slice: u64,
    /// Grows with whatever may change memory or let a thread go on.
    pub changes: u64,
    /// The warp accessed memory as those do who wait.
    pub polled: bool,
    pub gates: [Gate; 16],
    /// How the grid falls into clusters, and the one of the running block.
    pub clusters: Clusters,
    pub cluster: Cluster,
    /// Threads of the block that have not exited.
    pub alive_threads: u32,
    pub block_threads: u32,
    /// Copies of each warp that have not arrived.
    pub copies: &'m mut Vec<VecDeque<PendingCopy>>,
    /// Commits of each warp's threads so far.
    pub commits: &'m mut Vec<[u32; 32]>,
    /// Times that a clock was read.
    pub ticks: u64,
    /// What the kernel printed.
    pub printed: String,
    /// Working space of matrix products.
    pub operands: &'m mut Operands,
    /// Whose bytes' writers are to be known; the loop then runs in a build of its own.
    pub watch: Option<&'m mut Watch>,
    /// Registers for the parts of a larger product.
    pub tile: &'m mut Warp,
    pub mbarriers: &'m mut Mbarriers,
    /// Products under way of each warp.
    pub flights: &'m mut Vec<Flight>,
}

/// A fault before its place and thread are named.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub kind: FaultKind,
    pub other: Option<Other>,
}

impl From<FaultKind> for Box<Trouble> {
    fn from(kind: FaultKind) -> Self {
        Box::new(Trouble { kind, other: None })
    }
}

impl Machine<'_> {
    /// Lanes of a warp read a clock of so long a step.
    #[inline(never)]
    pub fn read_clock(&mut self, warp: u32, mask: u32, step: u32) -> u64 {
        self.ticks += 1;
        self.mbarriers.look_at_clock(warp, mask);
        self.ticks.wrapping_mul(step.into())
    }

    /// The buffer an address belongs to, or is nearest to.
    pub fn buffer_place(&self, address: u64) -> Option<BufferPlace> {
        let variable = address.wrapping_sub(DATA_BASE);
        if variable < WINDOW_BYTES {
            return self.variable_place(variable);
        }
        let (id, offset) = self.memory.locate(address)?;
        Some(BufferPlace {
            id,
            name: self.memory.name(id).to_owned(),
            offset,
            len_bytes: self.memory.len_bytes(id),
        })
    }

    /// The variable of the module that a byte of them belongs to, or lies behind.
    pub fn variable_place(&self, offset: u64) -> Option<BufferPlace> {
        let variable = self.module.variable(offset)?;
        let space = if variable.is_const { ".const" } else { ".global" };
        Some(BufferPlace {
            id: BufferId::VARIABLE,
            name: format!("{space} {}", variable.name),
            offset: offset as i64 - variable.start as i64,
            len_bytes: variable.len_bytes,
        })
    }

    /// The space as its variable has it, and the buffer or variable.
    fn named_place(&self, space: MemorySpace, address: u64) -> (MemorySpace, Option<BufferPlace>) {
        match space {
            MemorySpace::Global => (space, self.buffer_place(address)),
            MemorySpace::Const => {
                let global = self.module.variable(address).is_some_and(|v| !v.is_const);
                let space = if global { MemorySpace::Global } else { space };
                (space, self.variable_place(address))
            }
            _ => (space, None),
        }
    }

    pub fn out_of_bounds(
        &self,
        space: MemorySpace,
        address: u64,
        access_bytes: u32,
        store: bool,
    ) -> Box<Trouble> {
        if space == MemorySpace::Global
            && let Some(limit_bytes) = self.memory.exhausted()
        {
            return FaultKind::MemoryBudget { limit_bytes }.into();
        }
        let (space, buffer) = self.named_place(space, address);
        FaultKind::OutOfBounds { space, buffer, address, access_bytes, store }.into()
    }

    pub fn misaligned(
        &self,
        space: MemorySpace,
        address: u64,
        access_bytes: u32,
        store: bool,
    ) -> Box<Trouble> {
        let (space, buffer) = self.named_place(space, address);
        FaultKind::Misaligned { space, buffer, address, access_bytes, store }.into()
    }
}
