//! Which registers the operations of [`crate::rare`] read and write.

use super::visit::{Role, Visitor};
use crate::program::Class;
use crate::rare::{Act, At, Rare, TensorAct, Wide};

fn address(f: Visitor<'_>, at: &mut At) {
    if let Some(reg) = &mut at.base {
        f(Role::Use, reg.class, &mut reg.slot);
    }
}

pub(super) fn visit(rare: &mut Rare, f: Visitor<'_>) {
    use Class::{Long, Predicate, Word};
    use Role::{Define, Use};
    match rare {
        Rare::Warpgroup(what) => {
            match &mut what.left {
                Wide::Registers(slots) => slots.iter_mut().for_each(|slot| f(Use, Word, slot)),
                Wide::Descriptor(slot) => f(Use, Long, slot),
            }
            f(Use, Long, &mut what.right);
            if let Some(slot) = &mut what.accumulate {
                f(Use, Predicate, slot);
            }
            what.c.iter_mut().for_each(|slot| f(Use, Word, slot));
            what.d.iter_mut().for_each(|slot| f(Define, Word, slot));
        }
        Rare::Mbarrier(what) => {
            address(f, &mut what.at);
            f(Use, Word, &mut what.amount);
            if let Some(state) = &mut what.state {
                let role = if matches!(what.act, Act::Test { .. }) { Use } else { Define };
                f(role, Long, state);
            }
            if let Some(p) = &mut what.complete {
                f(Define, Predicate, p);
            }
        }
        Rare::Print(what) => {
            f(Use, Long, &mut what.format);
            f(Use, Long, &mut what.arguments);
            f(Define, Word, &mut what.count);
        }
        Rare::Assert(what) => {
            for slot in [&mut what.message, &mut what.file, &mut what.function] {
                f(Use, Long, slot);
            }
            f(Use, Word, &mut what.line);
        }
        Rare::Exchange(what) => {
            address(f, &mut what.at);
            let sources = what.new.iter_mut().chain(what.expected.iter_mut().flatten());
            sources.for_each(|slot| f(Use, Long, slot));
            what.old.iter_mut().flatten().for_each(|slot| f(Define, Long, slot));
        }
        Rare::Tile(what) => {
            address(f, &mut what.at);
            if let Some(stride) = &mut what.stride {
                f(Use, Word, stride);
            }
            let role = if what.store { Use } else { Define };
            let slots = what.regs.iter_mut().take(what.count.into());
            slots.for_each(|slot| f(role, Word, slot));
        }
        Rare::Aligned { at, .. } | Rare::Discard(at) => address(f, at),
        Rare::TooDeep
        | Rare::WarpgroupFence
        | Rare::WarpgroupCommit
        | Rare::WarpgroupWait { .. }
        | Rare::BlockFence
        | Rare::ClusterFence
        | Rare::ProxyFence => {}
        // What is written counts as read, so that its slot holds nothing else until then.
        Rare::Touches(what) => {
            let sources = what
                .copies
                .iter_mut()
                .flat_map(|(d, sources)| sources.iter_mut().chain(std::iter::once(d)));
            let all = what.reads.iter_mut().chain(&mut what.writes).chain(sources);
            all.for_each(|slot| f(Use, Word, slot));
        }
        Rare::CallNowhere { address } => f(Use, Long, address),
        Rare::Bulk(what) => {
            address(f, &mut what.to);
            address(f, &mut what.from);
            f(Use, Word, &mut what.bytes);
            if let Some(at) = &mut what.counts {
                address(f, at);
            }
            if let Some(ranks) = &mut what.ranks {
                f(Use, Word, ranks);
            }
        }
        Rare::Tensor(what) => {
            address(f, &mut what.map);
            address(f, &mut what.at);
            let used = usize::from(what.rank);
            what.coordinates[..used].iter_mut().for_each(|slot| f(Use, Word, slot));
            if let TensorAct::Load { counts, ranks } = &mut what.act {
                address(f, counts);
                if let Some(ranks) = ranks {
                    f(Use, Word, ranks);
                }
            }
        }
        Rare::Async(what) => {
            address(f, &mut what.at);
            address(f, &mut what.counts);
            for reg in &mut what.regs[..usize::from(what.count)] {
                f(Use, reg.class, &mut reg.slot);
            }
            if let Some(reduces) = &mut what.reduces {
                f(Use, reduces.a.class, &mut reduces.a.slot);
                f(Use, reduces.b.class, &mut reduces.b.slot);
            }
        }
        Rare::BulkGroup(_) => {}
    }
}
