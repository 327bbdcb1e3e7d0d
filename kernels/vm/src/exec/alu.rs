//! Arithmetic without a kernel of its own: lane after lane.

use super::machine::Machine;
use super::warp::{Warp, lanes};
use crate::approx::evaluate;
use crate::program::{Approx, Pure, Slot};

#[inline(always)]
pub(crate) fn approximate(
    warp: &mut Warp,
    machine: &Machine<'_>,
    [d, a]: [Slot; 2],
    op: Approx,
    m: u32,
) {
    let model = machine.model;
    let mut last: Option<(u32, u32)> = None;
    for lane in lanes(m) {
        let x = warp.words[usize::from(a)].0[lane];
        let y = match last {
            Some((key, value)) if key == x => value,
            _ => evaluate(model, op, x),
        };
        last = Some((x, y));
        warp.words[usize::from(d)].0[lane] = y;
    }
}

pub(crate) fn pure(warp: &mut Warp, pure: &Pure, mask: u32) {
    let [a, b, c] = pure.sources;
    let count = pure.count;
    let get = |warp: &Warp, lane| {
        let x = warp.value(a, lane);
        let y = if count > 1 { warp.value(b, lane) } else { 0 };
        let z = if count > 2 { warp.value(c, lane) } else { 0 };
        (x, y, z)
    };
    let mut last = None;
    for lane in lanes(mask) {
        let (x, y, z) = get(warp, lane);
        // Neighbouring lanes often agree.
        let value = match last {
            Some((key, value)) if key == (x, y, z) => value,
            _ => (pure.f)(x, y, z),
        };
        last = Some(((x, y, z), value));
        warp.set(pure.d, lane, value);
    }
}
