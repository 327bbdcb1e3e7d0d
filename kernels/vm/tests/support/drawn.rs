//! Operands of matrix products as `hardware/mma.py` draws them: by their place alone, of a kind that
//! goes by the tile's number.

pub const KINDS: [&str; 12] = [
    "any bits",
    "ordinary",
    "subnormal a",
    "any normal",
    "overflowing",
    "specials",
    "subnormal a, large b",
    "cancelling",
    "tiny on a zero",
    "vanishing beside c",
    "zeros",
    "about the largest",
];

#[derive(Clone, Copy, PartialEq)]
pub enum Element {
    /// Total, exponent and mantissa bits.
    Float(u32, u32, u32),
    Bits,
    /// Near the ends of the range, so that sums saturate.
    High,
}
pub const BF16: Element = Element::Float(16, 8, 7);
pub const F16: Element = Element::Float(16, 5, 10);
pub const F32: Element = Element::Float(32, 8, 23);
pub const E4M3: Element = Element::Float(8, 4, 3);
pub const E5M2: Element = Element::Float(8, 5, 2);

/// splitmix64's finaliser.
pub fn mixed(key: u64) -> u64 {
    let x = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// One element: its kind goes by the tile's number. `operand` is 0, 1 or 2 for a, b, c.
fn float(random: u64, tile: usize, operand: usize, exponent_bits: u32, mantissa_bits: u32) -> u64 {
    let (ones, bias) = ((1u64 << exponent_bits) - 1, (1u64 << (exponent_bits - 1)) - 1);
    let (sign, mut mantissa) = (random >> 63, random & ((1 << mantissa_bits) - 1));
    let pick = random >> 32 & 0xffff;
    let near_one = bias - 3 + pick % 7;
    let large = ones - 1 - pick % 3;
    let c = operand == 2;
    let mut exponent = match tile % KINDS.len() {
        0 => ones & random >> mantissa_bits,
        2 => [0, near_one, pick % ones.min(30)][operand],
        3 => 1 + pick % (ones - 1),
        4 => large,
        6 => [0, large, 0][operand],
        7 => bias + pick % 2 + if c { 4 } else { 0 },
        8 => {
            if c {
                0
            } else {
                pick % 8
            }
        }
        9 if c => (bias + 20).min(ones - 10) + pick % 10,
        10 => {
            if c || pick & 8 == 0 {
                0
            } else {
                near_one
            }
        }
        11 => {
            if c {
                large
            } else {
                bias + bias / 2 + pick % 2
            }
        }
        _ => near_one,
    };
    if (tile % KINDS.len() == 8 && c) || (tile % KINDS.len() == 10 && exponent == 0) {
        mantissa = 0;
    }
    let rare = pick >> 3 & 7 == 0;
    match pick % 8 {
        _ if tile % KINDS.len() != 5 => {}
        0 => (exponent, mantissa) = (0, 0),
        1 => exponent = 0,
        5 => (exponent, mantissa) = (ones - 1, (1 << mantissa_bits) - 1),
        6 if rare => (exponent, mantissa) = (ones, 0),
        7 if rare => (exponent, mantissa) = (ones, mantissa | 1),
        _ => {}
    }
    sign << (exponent_bits + mantissa_bits) | exponent << mantissa_bits | mantissa
}

/// The word whose place is `key`, of which the lowest four bits are free.
pub fn word(element: Element, key: u64, tile: usize, operand: usize) -> u32 {
    let draw = |part: u32| mixed(key | u64::from(part));
    match element {
        Element::Bits => draw(0) as u32,
        Element::High => {
            let end = if draw(0) >> 40 & 1 == 1 { 0x7fff_ffff } else { 0x8000_0000 };
            end ^ draw(0) as u32 & 0x3_ffff
        }
        Element::Float(bits, exponent_bits, mantissa_bits) => (0..32 / bits)
            .map(|part| {
                let value = float(draw(part), tile, operand, exponent_bits, mantissa_bits);
                (value as u32) << (bits * part)
            })
            .fold(0, |word, value| word | value),
    }
}

/// FNV-1a over the words' bytes.
pub fn digest(words: &[u32]) -> u64 {
    words.iter().flat_map(|word| word.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
