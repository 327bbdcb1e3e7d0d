//! `discard`: a weak store of no value in particular to a line of 128 bytes of global memory. What is
//! read there before the next store is uninitialised; a variable of the module keeps its bytes.

use super::access::toucher;
use super::address::{Target, addresses, resolve, space_of};
use super::machine::{Machine, Trouble};
use super::rare::Turn;
use super::step::Laned;
use super::store::write_one;
use super::warp::{Warp, lanes};
use crate::fault::MemorySpace;
use crate::memory::marks;
use crate::rare::At;
use crate::shared::Toucher;

const LINE: u64 = 128;
const PIECE: usize = 16;

pub(super) fn discard(
    warp: &Warp,
    machine: &mut Machine<'_>,
    at: At,
    mask: u32,
    pc: u32,
) -> Result<Turn, Laned> {
    let all = addresses(warp, at.base, at.offset);
    machine.changes += 1;
    for lane in lanes(mask) {
        let me = toucher(warp, lane, pc);
        let target = resolve(at.space, all[lane]);
        line(machine, target, me).map_err(|trouble| (lane as u32, trouble))?;
    }
    Ok(Turn::Next)
}

fn line(machine: &mut Machine<'_>, target: Target, me: Toucher) -> Result<(), Box<Trouble>> {
    let (space, start) = space_of(target);
    if !start.is_multiple_of(LINE) {
        return Err(machine.misaligned(space, start, LINE as u32, true));
    }
    for at in (0..LINE).step_by(PIECE) {
        let (place, bytes) = match target {
            Target::Global(address) => {
                let found = machine.memory.window(address + at, PIECE as u64);
                let Some((page, from)) = found else {
                    return Err(machine.out_of_bounds(space, address, LINE as u32, true));
                };
                // Whatever stands there then, it is not what stood there.
                let old = &page.data[from..from + PIECE];
                (Target::Global(address + at), std::array::from_fn(|i| !old[i]))
            }
            Target::Data(offset) => {
                let from = (offset + at) as usize;
                let old = machine.data.get(from..from + PIECE);
                let Some(old) = old.and_then(|old| old.first_chunk::<PIECE>()).copied() else {
                    return Err(machine.out_of_bounds(space, offset, LINE as u32, true));
                };
                (Target::Data(offset + at), old)
            }
            _ => return Err(machine.out_of_bounds(MemorySpace::Global, start, LINE as u32, true)),
        };
        if machine.checks {
            write_one::<true>(machine, place, &bytes, me, false)?;
        } else {
            write_one::<false>(machine, place, &bytes, me, false)?;
        }
        if let Target::Global(address) = place
            && let Some((page, from)) = machine.memory.window(address, PIECE as u64)
        {
            page.marks[from..from + PIECE].iter_mut().for_each(|mark| *mark &= !marks::INIT);
        }
    }
    Ok(())
}
