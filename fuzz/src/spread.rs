//! Inputs made larger than their bytes. libFuzzer begins with a few bytes and lets inputs grow slowly; a
//! kernel takes hundreds. So what an input lacks comes from a generator that its first bytes seed: a
//! byte that is appended, or changed behind them, changes one choice and leaves the others.

use arbitrary::{Arbitrary, Result, Unstructured};
use std::fmt;

/// Bytes that seed the generator.
const SEED_BYTES: usize = 4;
/// Bytes that every input has in the end.
const LEAST_BYTES: usize = 1024;

/// A value from the bytes of an input and of the generator behind them.
pub struct Spread<T>(pub T);

impl<T: fmt::Debug> fmt::Debug for Spread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// All bytes that are left.
pub struct Rest(pub Vec<u8>);

impl<'a> Arbitrary<'a> for Rest {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Rest> {
        u.bytes(u.len()).map(|bytes| Rest(bytes.to_vec()))
    }
}

impl<'a, T: for<'b> Arbitrary<'b>> Arbitrary<'a> for Spread<T> {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Spread<T>> {
        let bytes = u.bytes(u.len())?;
        let (seed, rest) = bytes.split_at(bytes.len().min(SEED_BYTES));
        let mut state = seed.iter().fold(1, |state: u64, byte| state << 8 | u64::from(*byte));
        let mut all = rest.to_vec();
        for at in 0..LEAST_BYTES {
            // splitmix64
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            if at >= rest.len() {
                all.push((x >> 56) as u8);
            }
        }
        T::arbitrary_take_rest(Unstructured::new(&all)).map(Spread)
    }
}
