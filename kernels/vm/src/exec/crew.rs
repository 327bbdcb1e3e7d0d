//! The warps of a block with what their registers hold from the start. Constants, thread numbers
//! and parameters stand in slots that no instruction writes, so the next launch of a kernel finds
//! them as the last one left them, and only what differs is set again.

use super::Launch;
use super::cluster::Clusters;
use super::warp::{self, Longs, Warp, Words};
use crate::module::Entry;
use crate::program::{Class, Special};

#[derive(Default)]
pub(super) struct Crew {
    warps: Vec<Warp>,
    /// Warps of the launch; those behind are of earlier ones.
    count: usize,
    /// What the registers hold: kernel, geometry and shared bytes, parameters.
    entry: u64,
    shape: [[u32; 3]; 3],
    explicit: bool,
    dynamic_shared_bytes: u32,
    parameters: Vec<u8>,
}

impl Crew {
    pub fn warps(&self) -> &[Warp] {
        &self.warps[..self.count]
    }

    pub fn warps_mut(&mut self) -> &mut [Warp] {
        &mut self.warps[..self.count]
    }

    /// Whether its registers are laid out for a kernel.
    pub fn knows(&self, entry: &Entry) -> bool {
        self.entry == entry.id
    }

    /// Readies the warps of a launch but for what each block sets.
    pub fn prepare(
        &mut self,
        entry: &Entry,
        launch: &Launch<'_>,
        clusters: Clusters,
        count: usize,
    ) {
        self.count = count;
        let shape = [launch.grid, launch.block, clusters.dims];
        let same = self.entry == entry.id
            && self.shape == shape
            && self.explicit == clusters.explicit
            && self.dynamic_shared_bytes == launch.dynamic_shared_bytes;
        if self.warps.len() < count {
            self.warps.resize_with(count, Warp::default);
        }
        for warp in &mut self.warps[..count] {
            warp.predicates.fill(0);
            if let Some(always) = warp.predicates.first_mut() {
                *always = warp::FULL;
            }
        }
        if !same {
            (self.entry, self.shape) = (entry.id, shape);
            self.dynamic_shared_bytes = launch.dynamic_shared_bytes;
            self.explicit = clusters.explicit;
            for (index, warp) in self.warps[..count].iter_mut().enumerate() {
                constants(warp, index as u32, entry, launch, clusters);
            }
        }
        if !same || self.parameters != launch.parameters {
            self.parameters.clear();
            self.parameters.extend_from_slice(launch.parameters);
            for warp in &mut self.warps[..count] {
                parameters(warp, entry, launch.parameters);
            }
        }
    }
}

/// Gives a warp its registers, constants and thread numbers.
fn constants(warp: &mut Warp, index: u32, entry: &Entry, launch: &Launch<'_>, clusters: Clusters) {
    warp.index = index;
    let size = [entry.words, entry.longs, entry.predicates].map(|n| n as usize);
    // What a thread may read before writing is zeroed at each block's start; the rest of the
    // slots need no value.
    warp.words.resize(size[0], Words([0; 32]));
    warp.longs.resize(size[1], Longs([0; 32]));
    warp.predicates.clear();
    warp.predicates.resize(size[2].max(1), 0);
    warp.predicates[0] = warp::FULL;
    for (slot, value) in &entry.word_constants {
        warp.words[usize::from(*slot)].0 = [*value; 32];
    }
    for (slot, value) in &entry.long_constants {
        warp.longs[usize::from(*slot)].0 = [*value; 32];
    }
    for (special, reg) in &entry.specials {
        let values = match clusters.special(*special, [0; 3]) {
            Some(value) => [value; 32],
            None => special_values(*special, index, entry, launch),
        };
        match reg.class {
            Class::Word => warp.words[usize::from(reg.slot)].0 = values,
            Class::Long => warp.longs[usize::from(reg.slot)].0 = values.map(u64::from),
            Class::Predicate => {}
        }
    }
}

fn parameters(warp: &mut Warp, entry: &Entry, given: &[u8]) {
    for (offset, width, signed, reg) in &entry.parameter_slots {
        let at = *offset as usize;
        let mut bytes = [0u8; 8];
        let width = usize::from(*width);
        if let Some(given) = given.get(at..at + width) {
            bytes[..width].copy_from_slice(given);
        }
        let mut value = u64::from_le_bytes(bytes);
        if *signed && width < 8 {
            let unused = 64 - 8 * width as u32;
            value = ((value << unused) as i64 >> unused) as u64;
        }
        warp.fill(*reg, value);
    }
}

/// A special register in every lane of a warp; those of the block are set at its start.
fn special_values(special: Special, warp: u32, entry: &Entry, launch: &Launch<'_>) -> [u32; 32] {
    let [bx, by, bz] = launch.block;
    let first = warp * 32;
    let lanes = |f: fn(u32) -> u32| std::array::from_fn(|lane| f(lane as u32));
    let same = |value| [value; 32];
    match special {
        Special::Tid(0) if first + 32 <= bx => std::array::from_fn(|lane| first + lane as u32),
        Special::Tid(axis) => {
            let (mut x, mut y, mut z) = (first % bx, first / bx % by, first / bx / by);
            std::array::from_fn(|_| {
                let value = [x, y, z][usize::from(axis).min(2)];
                x += 1;
                if x == bx {
                    (x, y) = (0, y + 1);
                }
                if y == by {
                    (y, z) = (0, z + 1);
                }
                value
            })
        }
        Special::Ntid(axis) => same(launch.block[usize::from(axis).min(2)]),
        Special::Nctaid(axis) => same(launch.grid[usize::from(axis).min(2)]),
        Special::Zero
        | Special::Ctaid(_)
        | Special::ClusterId(_)
        | Special::ClusterCount(_)
        | Special::ClusterCtaid(_)
        | Special::ClusterNctaid(_)
        | Special::ClusterRank
        | Special::ClusterRanks
        | Special::ExplicitCluster => same(0),
        Special::Lane => lanes(|lane| lane),
        Special::Warp => same(warp),
        Special::WarpCount => same((bx * by * bz).div_ceil(32)),
        Special::LaneMaskEq => lanes(|lane| 1 << lane),
        Special::LaneMaskLt => lanes(|lane| (1 << lane) - 1),
        Special::LaneMaskLe => lanes(|lane| (1 << lane) | ((1 << lane) - 1)),
        Special::LaneMaskGt => lanes(|lane| !((1 << lane) | ((1 << lane) - 1))),
        Special::LaneMaskGe => lanes(|lane| !((1 << lane) - 1)),
        Special::DynamicShared => same(launch.dynamic_shared_bytes),
        Special::TotalShared => same(entry.static_shared_bytes + launch.dynamic_shared_bytes),
        Special::DynamicBase => same(entry.dynamic_shared_offset),
    }
}
