//! The source of decisions: fuzzer bytes, a seeded generator, or an exhaustive walk. Decisions are
//! keyed by their path, never by their order, so a new dim disturbs no other decision.

use std::collections::HashMap;

/// The path of a decision, hashed: `Path::new("dims").child("N")`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path(u64);

impl Path {
    /// A section.
    pub fn new(section: &str) -> Path {
        Path(0xcbf2_9ce4_8422_2325).child(section)
    }

    /// A name under this path.
    pub fn child(self, name: &str) -> Path {
        let mut hash = self.0 ^ 0xff;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Path(hash.wrapping_mul(0x0000_0100_0000_01b3))
    }

    /// An index under this path.
    pub fn index(self, index: usize) -> Path {
        Path(mix(self.0, index as u64 + 1))
    }

    /// The key of tape records.
    pub fn key(self) -> u16 {
        let h = self.0;
        (h ^ (h >> 16) ^ (h >> 32) ^ (h >> 48)) as u16
    }
}

/// Answers "which of `count`?" for a path. The same path gets the same answer all through one case.
pub trait Choices {
    /// A number below `count` (0 when `count` is 0 or 1). 0 is the simplest choice everywhere.
    fn choose(&mut self, path: Path, count: u64) -> u64;

    /// 64 bits for a pointwise generator of values.
    fn seed(&mut self, path: Path) -> u64 {
        self.choose(path, u64::MAX)
    }

    /// True about once in `n`.
    fn one_in(&mut self, path: Path, n: u64) -> bool {
        n > 0 && self.choose(path, n) == n - 1
    }
}

/// A frozen seeded source: the answer is a hash of seed and path.
#[derive(Clone, Copy, Debug)]
pub struct Seeded {
    /// The seed.
    pub seed: u64,
}

impl Choices for Seeded {
    fn choose(&mut self, path: Path, count: u64) -> u64 {
        if count <= 1 { 0 } else { scale(mix(self.seed, path.0), count) }
    }
}

/// Fuzzer bytes: the first eight are a seed that answers every path without a record; then records
/// `key: u16, value: u48`, little endian. The last record of a key wins, unknown keys are ignored.
/// A zero seed answers 0, the simplest choice.
#[derive(Clone, Debug, Default)]
pub struct Tape {
    seed: u64,
    records: HashMap<u16, u64>,
    /// Keys asked for with what was answered, in order of first use: what a mutator may edit.
    pub asked: Vec<(u16, Answer)>,
}

/// An answer, coarsely: which of few, or about how large and how near the end.
pub type Answer = u8;

/// Seeds and other wide ranges say nothing; small numbers stand for themselves, larger ones for their
/// size, the last one for being the last.
fn coarse(answer: u64, count: u64) -> Answer {
    match answer {
        _ if count > 1 << 32 => 0,
        _ if answer + 1 == count => Answer::MAX,
        0..8 => answer as Answer,
        _ => 8 + answer.ilog2() as Answer,
    }
}

impl Tape {
    /// Reads a tape; any bytes are one.
    pub fn new(bytes: &[u8]) -> Tape {
        let mut raw = [0u8; 8];
        let head = bytes.len().min(8);
        raw[..head].copy_from_slice(&bytes[..head]);
        let records = bytes[head..]
            .chunks_exact(8)
            .map(|record| {
                let mut value = [0u8; 8];
                value[..6].copy_from_slice(&record[2..]);
                (u16::from_le_bytes([record[0], record[1]]), u64::from_le_bytes(value))
            })
            .collect();
        Tape { seed: u64::from_le_bytes(raw), records, asked: Vec::new() }
    }
}

impl Choices for Tape {
    fn choose(&mut self, path: Path, count: u64) -> u64 {
        let key = path.key();
        let answer = match self.records.get(&key) {
            _ if count <= 1 => 0,
            Some(value) => value % count,
            None if self.seed == 0 => 0,
            None => scale(mix(self.seed, path.0), count),
        };
        if !self.asked.iter().any(|(known, _)| *known == key) {
            self.asked.push((key, coarse(answer, count)));
        }
        answer
    }
}

/// Walks every combination of the first `depth` decisions it meets, in odometer order; later
/// decisions take the answer of a seeded source.
#[derive(Clone, Debug)]
pub struct Exhaustive {
    digits: Vec<(Path, u64, u64)>,
    position: usize,
    depth: usize,
    rest: Seeded,
}

impl Exhaustive {
    /// A walk over `depth` decisions.
    pub fn new(depth: usize, seed: u64) -> Exhaustive {
        Exhaustive { digits: Vec::new(), position: 0, depth, rest: Seeded { seed } }
    }

    /// Moves to the next combination; false when all have been seen.
    pub fn advance(&mut self) -> bool {
        self.digits.truncate(self.position);
        self.position = 0;
        while let Some((_, value, count)) = self.digits.last_mut() {
            if *value + 1 < *count {
                *value += 1;
                return true;
            }
            self.digits.pop();
        }
        false
    }
}

impl Choices for Exhaustive {
    fn choose(&mut self, path: Path, count: u64) -> u64 {
        if count <= 1 {
            return 0;
        }
        let seen = &self.digits[..self.position];
        if let Some((_, value, _)) = seen.iter().find(|(known, ..)| *known == path) {
            return (*value).min(count - 1);
        }
        if self.position >= self.depth {
            return self.rest.choose(path, count);
        }
        if self.position == self.digits.len() {
            self.digits.push((path, 0, count));
        }
        // An earlier digit changed, so this place may hold another path now.
        let digit = &mut self.digits[self.position];
        if digit.0 != path {
            *digit = (path, 0, count);
            self.digits.truncate(self.position + 1);
        }
        self.position += 1;
        self.digits[self.position - 1].1
    }
}

/// A seed as people write one: a number, or a commit's whole hash (40 hexadecimal digits, 64 for
/// SHA-256), so that each commit searches elsewhere and can be searched again.
///
/// # Errors
/// In words, when it is neither.
pub fn seed_of(text: &str) -> Result<u64, String> {
    if let Ok(seed) = text.parse() {
        return Ok(seed);
    }
    let is_hash = matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_hash {
        return Err("write a number of at most 64 bits, or a commit's hash of 40 digits".to_owned());
    }
    let digits = text.bytes().map(|byte| u64::from(byte.to_ascii_lowercase()));
    Ok(digits.fold(0, mix))
}

/// SplitMix64's finaliser over two words.
pub fn mix(seed: u64, word: u64) -> u64 {
    let mut z = seed
        .wrapping_add(word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(0x632b_e59b_d9b4_e019);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn scale(word: u64, count: u64) -> u64 {
    ((u128::from(word) * u128::from(count)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exhaustive_walk_sees_every_combination_once() {
        let mut walk = Exhaustive::new(2, 7);
        let mut seen = Vec::new();
        loop {
            let a = walk.choose(Path::new("a"), 3);
            let b = walk.choose(Path::new("b"), 2 + a);
            seen.push((a, b));
            if !walk.advance() {
                break;
            }
        }
        assert_eq!(seen, [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (2, 3)]);
    }

    #[test]
    fn a_tape_answers_by_path_and_its_last_record_wins() {
        let path = Path::new("dims").child("N");
        let mut bytes = vec![0; 8];
        for value in [5u64, 9] {
            bytes.extend_from_slice(&path.key().to_le_bytes());
            bytes.extend_from_slice(&value.to_le_bytes()[..6]);
        }
        let mut tape = Tape::new(&bytes);
        assert_eq!(tape.choose(Path::new("dims").child("M"), 10), 0);
        assert_eq!(tape.choose(path, 10), 9);
        assert_eq!(tape.asked.len(), 2);
    }

    #[test]
    fn answers_are_told_apart_as_far_as_a_fuzzer_should_care() {
        let few: Vec<_> = (0..4).map(|answer| coarse(answer, 5)).collect();
        assert_eq!(few, [0, 1, 2, 3]);
        assert_eq!([coarse(4, 5), coarse(199, 200)], [Answer::MAX; 2], "the last of its range");
        assert_eq!(coarse(64, 200), coarse(127, 200));
        assert!(coarse(63, 200) != coarse(64, 200) && coarse(7, 200) != coarse(8, 200));
        assert_eq!([coarse(5, u64::MAX), coarse(1 << 40, u64::MAX)], [0; 2], "seeds");
    }

    #[test]
    fn a_commit_is_a_seed_as_a_number_is() {
        let hash = "5a249fd0123456789abcdef0123456789abcdef0";
        assert_eq!((seed_of("7"), seed_of("18446744073709551615")), (Ok(7), Ok(u64::MAX)));
        // Frozen: a search is repeated by it.
        assert_eq!(seed_of(hash), Ok(FROZEN));
        assert_eq!(seed_of(&hash.to_uppercase()), seed_of(hash));
        let digits = "1111111111111111111111111111111111111111";
        assert!(seed_of(digits).is_ok_and(|seed| seed > u64::from(u32::MAX)), "a hash of digits");
        assert!(seed_of(&hash.replace("5a2", "5a3")) != seed_of(hash));
        for text in ["", "-1", "main", "5a249fd", "18446744073709551616", &hash.replace('f', "g")] {
            assert!(seed_of(text).is_err_and(|why| why.contains("40 digits")), "{text}");
        }
    }

    const FROZEN: u64 = 0xd011_3ca2_8b1f_82e3;

    #[test]
    fn seeded_answers_do_not_depend_on_order() {
        let mut one = Seeded { seed: 3 };
        let (a, b) = (Path::new("a"), Path::new("b"));
        let forward = (one.choose(a, 1000), one.choose(b, 1000));
        let backward = (one.choose(b, 1000), one.choose(a, 1000));
        assert_eq!(forward, (backward.1, backward.0));
    }
}
