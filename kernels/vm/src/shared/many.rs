//! Accesses of many lanes at once, wherever they lie: checked lane after lane with as few branches
//! as the rules allow. They judge and record as the same accesses one by one do, or refuse.
//! Loops over lanes are written out: closures of iterators are not compiled for the wide build.

use super::record::{
    ATOMIC, EPOCH_SHIFT, Four, SPLIT, THREAD_SHIFT, against, foreign, joined, joined_by_two,
    judged, merged, record,
};
use super::{INIT, Shared, Touch, Toucher, UNINIT};

impl Shared {
    /// Atomic updates of words by the lanes of a mask, in order, as long as nothing stands against
    /// them: only atomics touched the words in this epoch. `f` gives a lane's new value; `before`
    /// receives the old ones. Returns the lanes that are left.
    #[inline(always)]
    pub fn update_words(
        &mut self,
        address: impl Fn(usize) -> u64,
        mask: u32,
        first: Toucher,
        before: &mut [u32; 32],
        f: impl Fn(u32, usize) -> u32,
    ) -> u32 {
        if self.phases.on {
            // Who shares a word is looked up.
            return mask;
        }
        let (first, epoch) = (record(self.epoch, first, true), self.epoch as u32);
        // One length for all, so that one comparison a lane is enough.
        let (state, words) = (self.state.as_chunks().0, self.data.as_chunks_mut().0);
        let cells = state.len().min(words.len());
        let (Some(state), Some(words), Some(writers), Some(readers)) = (
            state.get(..cells),
            words.get_mut(..cells),
            self.writers.get_mut(..cells),
            self.readers.get_mut(..cells),
        ) else {
            return mask;
        };
        let mut left = mask;
        while left != 0 {
            let l = left.trailing_zeros() as usize & 31;
            let at = address(l);
            let cell = (at / 4) as usize;
            if !at.is_multiple_of(4) || cell >= cells || state[cell] != [INIT; 4] {
                return left;
            }
            let Some(four) = self.fours.get_mut(cell / 4) else {
                return left;
            };
            let mine = first + ((l as u64) << THREAD_SHIFT);
            let (writer, reader) = (writers[cell], readers[cell]);
            let alone = |old: u64| (old ^ mine) >> EPOCH_SHIFT != 0;
            let free = |old: u64| alone(old) || old & (SPLIT | ATOMIC) == ATOMIC;
            if writer == reader {
                if !free(writer) {
                    return left;
                }
                let next = joined(writer, mine);
                (writers[cell], readers[cell]) = (next, next);
            } else {
                if !free(writer) || !free(reader) {
                    return left;
                }
                writers[cell] = joined(writer, mine);
                readers[cell] = joined(reader, mine);
            }
            *four = Four { stored: epoch, read: epoch };
            let old = u32::from_le_bytes(words[cell]);
            words[cell] = f(old, l).to_le_bytes();
            before[l] = old;
            left &= left - 1;
        }
        0
    }

    /// Reads of pieces anywhere by the lanes of a mask, when nothing stands against any; `false`
    /// asks for the slow way.
    #[inline(always)]
    pub fn read_apart<const BYTES: usize>(
        &mut self,
        addresses: &[u64; 32],
        mask: u32,
        first: Toucher,
        out: &mut [[u8; BYTES]; 32],
    ) -> bool {
        if self.phases.on {
            return self.read_in_phases(addresses, mask, first, out);
        }
        self.read_pieces::<BYTES, false>(addresses, mask, first, out)
    }

    #[inline(never)]
    fn read_in_phases<const BYTES: usize>(
        &mut self,
        addresses: &[u64; 32],
        mask: u32,
        first: Toucher,
        out: &mut [[u8; BYTES]; 32],
    ) -> bool {
        self.read_pieces::<BYTES, true>(addresses, mask, first, out)
    }

    #[inline(always)]
    fn read_pieces<const BYTES: usize, const PHASED: bool>(
        &mut self,
        addresses: &[u64; 32],
        mask: u32,
        first: Toucher,
        out: &mut [[u8; BYTES]; 32],
    ) -> bool {
        if !BYTES.is_multiple_of(4) || BYTES > 16 {
            return false;
        }
        let (me, epoch) = (first, self.epoch as u32);
        let first = record(self.epoch, me, false);
        let judged = if PHASED { judged(first, me) } else { first };
        // One length for all, so that one comparison a lane is enough.
        let (state, data) = (self.state.as_chunks::<BYTES>().0, self.data.as_chunks::<BYTES>().0);
        let (pieces, cells) = (state.len().min(data.len()), BYTES / 4);
        let (Some(writers), Some(readers), state, data) = (
            self.writers.get(..pieces * cells),
            self.readers.get_mut(..pieces * cells),
            &state[..pieces],
            &data[..pieces],
        ) else {
            return false;
        };
        let mut left = mask;
        while left != 0 {
            let l = left.trailing_zeros() as usize & 31;
            left &= left - 1;
            let piece = (addresses[l] / BYTES as u64) as usize;
            if !addresses[l].is_multiple_of(BYTES as u64) || piece >= pieces {
                return false;
            }
            let (Some(four), Some(writers), Some(readers)) = (
                self.fours.get_mut(piece * BYTES / 16),
                writers.get(piece * cells..(piece + 1) * cells),
                readers.get_mut(piece * cells..(piece + 1) * cells),
            ) else {
                return false;
            };
            let lane = (l as u64) << THREAD_SHIFT;
            let mine = first + lane;
            let stored = four.stored == epoch && against(writers, judged + lane);
            if state[piece] != [INIT; BYTES] || stored {
                return false;
            }
            if four.read != epoch {
                readers.fill(mine);
                four.read = epoch;
            } else if PHASED && foreign(readers, mine) {
                return false;
            } else {
                for reader in readers {
                    // Several at once are judged without branches.
                    let more = if BYTES == 4 { joined } else { merged };
                    *reader = more(*reader, mine);
                }
            }
            out[l] = data[piece];
        }
        true
    }

    /// Stores of pieces anywhere by the lanes of a mask, in order, as long as nothing stands
    /// against them; returns the lanes that are left. Without `ARRIVED` the bytes are only
    /// announced: nothing may read them.
    #[inline(always)]
    pub fn write_apart<const BYTES: usize, const ARRIVED: bool>(
        &mut self,
        addresses: &[u64; 32],
        mask: u32,
        first: Toucher,
        pieces: &[[u8; BYTES]],
    ) -> u32 {
        if self.phases.on {
            return self.write_in_phases::<BYTES, ARRIVED>(addresses, mask, first, pieces);
        }
        self.write_pieces::<BYTES, ARRIVED, false>(addresses, mask, first, pieces)
    }

    #[inline(never)]
    fn write_in_phases<const BYTES: usize, const ARRIVED: bool>(
        &mut self,
        addresses: &[u64; 32],
        mask: u32,
        first: Toucher,
        pieces: &[[u8; BYTES]],
    ) -> u32 {
        self.write_pieces::<BYTES, ARRIVED, true>(addresses, mask, first, pieces)
    }

    #[inline(always)]
    fn write_pieces<const BYTES: usize, const ARRIVED: bool, const PHASED: bool>(
        &mut self,
        addresses: &[u64; 32],
        mask: u32,
        first: Toucher,
        pieces: &[[u8; BYTES]],
    ) -> u32 {
        if !BYTES.is_multiple_of(4) || BYTES > 16 {
            return mask;
        }
        let (me, epoch) = (first, self.epoch as u32);
        let first = record(self.epoch, me, false);
        let judged = if PHASED { judged(first, me) } else { first };
        // One length for all, so that one comparison a lane is enough.
        let state = self.state.as_chunks_mut::<BYTES>().0;
        let data = self.data.as_chunks_mut::<BYTES>().0;
        let (places, cells) = (state.len().min(data.len()), BYTES / 4);
        let (Some(writers), Some(readers), Some(pieces), state, data) = (
            self.writers.get_mut(..places * cells),
            self.readers.get(..places * cells),
            pieces.first_chunk::<32>(),
            &mut state[..places],
            &mut data[..places],
        ) else {
            return mask;
        };
        let mut left = mask;
        while left != 0 {
            let l = left.trailing_zeros() as usize & 31;
            let place = (addresses[l] / BYTES as u64) as usize;
            if !addresses[l].is_multiple_of(BYTES as u64) || place >= places {
                return left;
            }
            let (Some(four), Some(writers), Some(readers)) = (
                self.fours.get_mut(place * BYTES / 16),
                writers.get_mut(place * cells..(place + 1) * cells),
                readers.get(place * cells..(place + 1) * cells),
            ) else {
                return left;
            };
            let state = &mut state[place];
            let whole = *state == [INIT; BYTES] || *state == [UNINIT; BYTES];
            let lane = (l as u64) << THREAD_SHIFT;
            let mine = first + lane;
            let stored = four.stored == epoch && against(writers, judged + lane);
            if !whole || stored || four.read == epoch && against(readers, judged + lane) {
                return left;
            }
            four.stored = epoch;
            writers.fill(mine);
            *state = [if ARRIVED { INIT } else { UNINIT }; BYTES];
            if ARRIVED {
                data[place] = pieces[l];
            }
            left &= left - 1;
        }
        0
    }

    /// A read of the same aligned bytes by two threads of one warp, or one alone, when nothing
    /// stands against it; `false` asks for the slow way.
    #[inline(always)]
    pub fn read_same<const BYTES: usize>(
        &mut self,
        offset: u64,
        a: Toucher,
        b: Option<Toucher>,
    ) -> bool {
        let at = offset as usize;
        if offset >= self.state.len() as u64 {
            return false;
        }
        if !BYTES.is_multiple_of(4) || BYTES > 16 {
            // Parts of words have records of their own, and more lie in several fours.
            let ready = self.ready(at, BYTES) == Some(true);
            let mut read = |me| self.touch(at, BYTES, me, Touch::Read, true).is_ok();
            return ready && read(a) && b.is_none_or(read);
        }
        let epoch = self.epoch as u32;
        let cells = at / 4..at / 4 + BYTES / 4;
        let (Some(four), Some(state), Some(writers), Some(readers)) = (
            self.fours.get_mut(at / 16),
            self.state.get(at..at + BYTES),
            self.writers.get(cells.clone()),
            self.readers.get_mut(cells),
        ) else {
            return false;
        };
        let alone = b.is_none();
        let me = a;
        let [a, b] = [a, b.unwrap_or(a)].map(|me| record(self.epoch, me, false));
        let stored = four.stored == epoch
            && (against(writers, judged(a, me)) || against(writers, judged(b, me)));
        if *state != [INIT; BYTES] || stored {
            return false;
        }
        let read = four.read == epoch;
        if read && self.phases.on && foreign(readers, a) {
            return false;
        }
        four.read = epoch;
        for reader in readers {
            *reader = match alone {
                true if read => joined(*reader, b),
                true => b,
                false => joined_by_two(*reader, b),
            };
        }
        true
    }
}
