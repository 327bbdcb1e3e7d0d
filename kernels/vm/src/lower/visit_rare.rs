//! Which registers the operations of [`crate::rare`] read and write.

use super::visit::{Role, Visitor};
use crate::program::Class;
use crate::rare::{Rare, Wide};

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
    }
}
