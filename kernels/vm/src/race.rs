//! Races on global memory: two accesses of one byte by threads of different blocks, or of different
//! warps of one block, one of them a store, one of them weak (neither atomic nor `.volatile`,
//! `.relaxed`, `.acquire`, `.release`; of the scope of a block, to other blocks), and nothing that
//! orders the two. Blocks are ordered by a release and an acquire ([`order`] has the rules); weak
//! stores of one value by two blocks are a race too, unless the bytes bear [`crate::marks::SAME_VALUE`]. Warps of a block are ordered by
//! whatever may let one learn of the other: any barrier, of a part of the block too, any strong
//! access of shared memory, any strong load of global memory or atomic there, any successful test of
//! an mbarrier. A store of the value already there is no race among them, as in shared memory.
//!
//! No false alarms: every access of a block is compared with what really happened before it, and
//! where order cannot be told, it is assumed. So these are missed: races of lanes of one warp but for
//! those of one instruction, a flag between warps without a fence, a reader that two later ones
//! replaced in the records, a scope of `.cluster` between clusters of several blocks, and whatever follows
//! 2²² blocks, or accesses that differ in instruction, warp, block or the fences before them. Bytes
//! that nobody may store to are not recorded, and nothing is in launches of one warp.

mod clock;
mod judge;
mod order;
mod record;
mod shadow;

use crate::fault::RaceKind;
use crate::shared::{Other, Toucher};
use order::Order;
pub(crate) use order::Standing;
use record::Foreign;
pub(crate) use shadow::Shadow;
use shadow::{INDEX_SHIFT, WHOLE, index_of, lane_of, mask_of, number};

/// Accesses, and blocks, a launch may log.
const LOG: u32 = 1 << 22;
/// Accesses for which the log of a launch has room when it begins: few log more.
const KEPT_LOG: usize = 1 << 18;
/// Numbers of accesses that fit into a record.
const INDICES: u32 = 1 << (32 - INDEX_SHIFT);

/// One instruction of a warp, between two fences.
#[derive(Clone, Copy)]
struct Logged {
    serial: u32,
    tick: u32,
    pc: u32,
    warp: u8,
    /// Bytes of one lane.
    piece: u8,
    strong: bool,
    /// Strong among the threads of the block alone.
    narrow: bool,
    /// An earlier access to other bytes of the same cell, which this one's records stand for too.
    joint: Option<Earlier>,
}

/// The bytes of a cell that an earlier access touched.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Earlier {
    index: u32,
    mask: u8,
    /// Its lane, where that is not the later one's.
    lane: Option<u8>,
}

/// The last index made for an access together with an earlier one.
#[derive(Clone, Copy, Default)]
struct Joint {
    before: Earlier,
    after: u32,
    index: u32,
}

/// The access a new one races with.
pub(crate) struct Foe {
    pub race: RaceKind,
    /// The first byte they share, from the start of the access.
    pub byte: usize,
    pub other: Other,
}

/// What an access of one lane does.
#[derive(Clone, Copy)]
pub(crate) struct Act {
    pub store: bool,
    pub strong: bool,
    /// The store leaves every byte as it is, and that is declared harmless.
    pub harmless: bool,
    /// The store leaves every byte as it is.
    pub same: bool,
}

/// The log and the order of a launch.
#[derive(Default)]
pub(crate) struct Races {
    /// Accesses are recorded: the launch has several warps.
    pub on: bool,
    /// The strong access under way is so among the threads of the block alone.
    pub narrow: bool,
    /// Something in the kernel may order blocks: a fence or a release.
    synchronises: bool,
    log: Vec<Logged>,
    /// Indices of this launch begin here; the first is that of no access but marks split cells.
    first: u32,
    /// Those of the running block, since it last began to run.
    block_first: u32,
    /// Those of the running block since its warps last met.
    met_first: u32,
    next: u32,
    /// The latest index of each instruction.
    recent: Vec<u32>,
    /// The last that shared a cell with an earlier one.
    joint: Joint,
    order: Order,
    standing: Standing,
    /// Blocks in the order of their start.
    blocks: Vec<u32>,
    /// Records of the module's own variables.
    pub data: Shadow,
}

impl Races {
    /// A launch begins; `next` is the first number that the memory has not seen. False when too few
    /// are left: the memory must forget its records, and then 0 be passed.
    pub fn begin(&mut self, next: u32, code: usize, data_bytes: usize, synchronises: bool) -> bool {
        if next == 0 {
            self.next = 1;
            self.recent.clear();
            self.joint = Joint::default();
            self.data.forget();
        }
        // Numbers may have been used in other memories and by other launches of this thread.
        self.next = self.next.max(next).max(1);
        if self.next >= INDICES - LOG {
            return false;
        }
        (self.on, self.narrow) = (true, false);
        self.synchronises = synchronises;
        self.log.clear();
        self.log.shrink_to(KEPT_LOG);
        self.blocks.clear();
        self.blocks.shrink_to(KEPT_LOG);
        if self.recent.len() < code {
            self.recent.resize(code, 0);
        }
        self.data.cover(data_bytes);
        self.order.restart();
        self.first = self.next;
        let mark = Logged {
            serial: u32::MAX,
            tick: 0,
            pc: 0,
            warp: 0,
            piece: 4,
            strong: false,
            narrow: false,
            joint: None,
        };
        self.log.push(mark);
        self.next += 1;
        (self.block_first, self.met_first) = (self.next, self.next);
        true
    }

    /// The launch ended: the first unused index.
    pub fn end(&mut self) -> u32 {
        self.on = false;
        self.next += 1;
        self.next
    }

    /// A block starts.
    pub fn start_block(&mut self, block: u32) {
        if self.blocks.len() >= LOG as usize {
            self.on = false;
        }
        if self.on {
            let serial = self.blocks.len() as u32;
            self.blocks.push(block);
            self.standing.restart(serial, self.order.tick);
            (self.block_first, self.met_first) = (self.next, self.next);
        }
    }

    /// A block is laid aside, or goes on.
    pub fn exchange_block(&mut self, standing: &mut Standing) {
        if self.on {
            std::mem::swap(&mut self.standing, standing);
            (self.block_first, self.met_first) = (self.next, self.next);
        }
    }

    /// The number of an access by lane 0 to a whole cell.
    #[inline(always)]
    fn access(&mut self, me: Toucher, piece: usize, strong: bool) -> u32 {
        let known = self.recent.get(me.pc as usize).copied().unwrap_or(0);
        if known >= self.met_first
            && let Some(logged) = self.log.get((known - self.first) as usize)
            && logged.tick == self.order.tick
            && u32::from(logged.warp) == me.thread / 32
        {
            return number(known, 0, WHOLE);
        }
        self.log_access(me, piece, strong)
    }

    #[cfg_attr(feature = "libfuzzer", inline(always))]
    #[cfg_attr(not(feature = "libfuzzer"), inline(never))]
    fn log_access(&mut self, me: Toucher, piece: usize, strong: bool) -> u32 {
        let index = self.next;
        if index - self.first >= LOG {
            self.on = false;
            return number(index, 0, WHOLE);
        }
        self.next += 1;
        self.log.push(Logged {
            serial: self.standing.serial,
            tick: self.order.tick,
            pc: me.pc,
            warp: (me.thread / 32) as u8,
            piece: piece as u8,
            strong,
            narrow: strong && self.narrow,
            joint: None,
        });
        if let Some(recent) = self.recent.get_mut(me.pc as usize) {
            *recent = index;
        }
        number(index, 0, WHOLE)
    }

    #[inline(always)]
    fn foreign(&self) -> Foreign {
        Foreign {
            base: self.first << INDEX_SHIFT,
            width: (self.block_first - self.first) << INDEX_SHIFT,
        }
    }

    /// Whether a number is of another warp of the running block than mine, since they last met.
    #[inline(always)]
    fn rival(&self, number: u32, mine: u32) -> bool {
        index_of(number) >= self.met_first
            && index_of(number) != index_of(mine)
            && self.of_two_warps(number, mine)
    }

    #[inline(never)]
    fn of_two_warps(&self, number: u32, mine: u32) -> bool {
        let warp = |number| self.logged(number).map(|logged| logged.warp);
        warp(number) != warp(mine)
    }

    /// The number of no access.
    #[inline(always)]
    fn mark(&self) -> u32 {
        number(self.first, 0, 0)
    }

    /// The number of a weak access together with an earlier one of the block to other bytes of the
    /// cell.
    #[inline(always)]
    fn join(&mut self, old: u32, mine: u32) -> Option<u32> {
        if mask_of(old) & mask_of(mine) != 0 || mask_of(old) == 0 {
            return None;
        }
        let apart = lane_of(old) != lane_of(mine);
        let before = Earlier {
            index: index_of(old),
            mask: mask_of(old) as u8,
            lane: apart.then(|| lane_of(old) as u8),
        };
        let known = self.joint.before == before && self.joint.after == index_of(mine);
        let index = if known { self.joint.index } else { self.log_joint(before, mine)? };
        Some(number(index, lane_of(mine), mask_of(old) | mask_of(mine)))
    }

    #[inline(never)]
    fn log_joint(&mut self, before: Earlier, mine: u32) -> Option<u32> {
        let me = *self.logged(mine)?;
        if self.next - self.first >= LOG {
            return None;
        }
        let index = self.next;
        self.next += 1;
        self.log.push(Logged { joint: Some(before), ..me });
        self.joint = Joint { before, after: index_of(mine), index };
        Some(index)
    }

    /// The number of the access that touched a byte of a cell, where a record stands for several.
    fn part_of(&self, record: u32, byte: usize) -> u32 {
        let mut record = record;
        while let Some(before) = self.logged(record).and_then(|logged| logged.joint) {
            let lane = lane_of(record);
            if before.mask >> byte & 1 == 0 {
                return number(index_of(record), lane, mask_of(record) & !u32::from(before.mask));
            }
            let lane = before.lane.map_or(lane, u32::from);
            record = number(before.index, lane, before.mask.into());
        }
        record
    }

    /// A fence of the whole GPU by a warp.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn fence(&mut self, warp: u32) {
        if self.on {
            self.order.fence(&mut self.standing, warp);
        }
    }

    /// The threads of the block meet, at a barrier or through shared memory.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn meet(&mut self) {
        if self.on {
            self.met_first = self.next;
            if self.synchronises {
                self.order.barrier(&mut self.standing, self.next);
            }
        }
    }

    /// A strong load of an address of global memory.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn acquire(&mut self, warp: u32, address: u64) {
        // The lanes of one instruction meet others once.
        let lately = self.met_first + 1 == self.next
            && self.log.last().is_some_and(|last| last.strong && u32::from(last.warp) == warp);
        if !lately {
            self.met_first = self.next;
        }
        if self.synchronises && !self.narrow {
            self.order.acquire(&mut self.standing, warp, address / 8);
        }
    }

    /// A strong store to it.
    #[cfg_attr(feature = "libfuzzer", inline(always))]
    pub fn release(&mut self, warp: u32, address: u64, fenced: bool) {
        if self.synchronises && !self.narrow {
            if fenced {
                self.order.fence(&mut self.standing, warp);
            }
            self.order.release(&mut self.standing, warp, address / 8);
        }
    }
}
