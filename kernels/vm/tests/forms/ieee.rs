//! IEEE arithmetic by whole numbers: every value is a multiple of a unit far below the least, so
//! that sums and products are exact and one rule rounds them all. Slow, and apart from the machine.

use std::cmp::Ordering;

/// Values are multiples of 2 to minus this.
const SCALE: i32 = 2300;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Nearest,
    Zero,
    Down,
    Up,
}

pub const MODES: [(Mode, &str); 4] =
    [(Mode::Nearest, "rn"), (Mode::Zero, "rz"), (Mode::Down, "rm"), (Mode::Up, "rp")];

/// A float format: bits of the fraction with the hidden one, and of the exponent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    pub precision: u32,
    pub exponent_bits: u32,
}

pub const F16: Format = Format { precision: 11, exponent_bits: 5 };
pub const BF16: Format = Format { precision: 8, exponent_bits: 8 };
pub const F32: Format = Format { precision: 24, exponent_bits: 8 };
pub const F64: Format = Format { precision: 53, exponent_bits: 11 };

/// A whole number of any size, least word first.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Big(Vec<u32>);

impl Big {
    fn shifted(value: u128, by: u32) -> Big {
        let mut words = vec![0; (by / 32) as usize];
        let (low, high) = (value << (by % 32), (value >> 64) >> (64 - by % 32).min(127));
        let high = if by.is_multiple_of(32) { 0 } else { high };
        words.extend((0..4).map(|i| (low >> (32 * i)) as u32));
        words.push(high as u32);
        Big(words)
    }

    fn word(&self, i: usize) -> u32 {
        self.0.get(i).copied().unwrap_or(0)
    }

    fn bits(&self) -> u32 {
        let top = self.0.iter().rposition(|word| *word != 0);
        top.map_or(0, |i| 32 * (i as u32 + 1) - self.0[i].leading_zeros())
    }

    fn compare(&self, other: &Big) -> Ordering {
        let len = self.0.len().max(other.0.len());
        (0..len)
            .rev()
            .map(|i| self.word(i).cmp(&other.word(i)))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    fn plus(&self, other: &Big) -> Big {
        let mut carry = 0u64;
        let len = self.0.len().max(other.0.len()) + 1;
        Big((0..len)
            .map(|i| {
                carry += u64::from(self.word(i)) + u64::from(other.word(i));
                let word = carry as u32;
                carry >>= 32;
                word
            })
            .collect())
    }

    /// Less a smaller one.
    fn minus(&self, other: &Big) -> Big {
        let mut borrow = 0i64;
        Big((0..self.0.len())
            .map(|i| {
                borrow += i64::from(self.word(i)) - i64::from(other.word(i));
                let word = borrow as u32;
                borrow >>= 32;
                word
            })
            .collect())
    }

    /// The 64 bits from `at` on, and whether any is set below.
    fn at_bit(&self, at: u32) -> (u64, bool) {
        let (word, bit) = ((at / 32) as usize, at % 32);
        let three = (0..3).fold(0u128, |all, i| all | u128::from(self.word(word + i)) << (32 * i));
        let below = self.0.iter().take(word).any(|w| *w != 0)
            || self.word(word) & ((1u64 << bit) - 1) as u32 != 0;
        ((three >> bit) as u64, below)
    }
}

/// A float taken apart.
#[derive(Clone, Debug)]
pub enum Value {
    Nan,
    Infinite(bool),
    /// Sign, whole number, exponent.
    Finite(bool, u128, i32),
}

use Value::{Finite, Infinite, Nan};

impl Format {
    pub fn bits(self) -> u32 {
        self.precision + self.exponent_bits
    }

    fn least_exponent(self) -> i32 {
        2 - (1 << (self.exponent_bits - 1))
    }

    pub fn value(self, bits: u64) -> Value {
        let fraction_bits = self.precision - 1;
        let negative = bits >> (self.bits() - 1) & 1 == 1;
        let field = bits >> fraction_bits & ((1 << self.exponent_bits) - 1);
        let fraction = bits & ((1 << fraction_bits) - 1);
        if field == (1 << self.exponent_bits) - 1 {
            return if fraction == 0 { Infinite(negative) } else { Nan };
        }
        let hidden = if field == 0 { 0 } else { 1 << fraction_bits };
        let exponent = self.least_exponent() + field.max(1) as i32 - 1 - fraction_bits as i32;
        Finite(negative, (fraction | hidden).into(), exponent)
    }

    fn sign(self, negative: bool) -> u64 {
        u64::from(negative) << (self.bits() - 1)
    }

    fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << (self.precision - 1)
    }

    /// What the hardware gives for no number.
    pub fn nan(self) -> u64 {
        match self.bits() {
            64 => 0x7ff8_0000_0000_0000,
            bits => (1 << (bits - 1)) - 1,
        }
    }

    fn rounded(self, negative: bool, exact: &Big, mode: Mode) -> u64 {
        let top = exact.bits() as i32 - 1 - SCALE;
        let quantum = top.max(self.least_exponent()) - (self.precision as i32 - 1);
        let (kept, below) = exact.at_bit((quantum + SCALE) as u32);
        let half = exact.at_bit((quantum + SCALE - 1) as u32);
        let (is_half, more) = (half.0 & 1 == 1, half.1);
        let any = below;
        let up = match mode {
            Mode::Nearest => is_half && (more || kept & 1 == 1),
            Mode::Zero => false,
            Mode::Down => negative && any,
            Mode::Up => !negative && any,
        };
        let kept = kept + u64::from(up);
        let hidden = 1u64 << (self.precision - 1);
        let steps = (quantum + self.precision as i32 - 1 - self.least_exponent()) as u64;
        // A carry out of the fraction raises the exponent by itself.
        let bits = if kept < hidden { kept } else { (steps + 1) * hidden + (kept - hidden) };
        if bits < self.infinity() {
            return self.sign(negative) | bits;
        }
        let stays = match mode {
            Mode::Nearest => false,
            Mode::Zero => true,
            Mode::Down => !negative,
            Mode::Up => negative,
        };
        self.sign(negative) | (self.infinity() - u64::from(stays))
    }

    /// A finite value in this format.
    pub fn of(self, value: &Value, mode: Mode) -> u64 {
        match value {
            Nan => self.nan(),
            Infinite(negative) => self.sign(*negative) | self.infinity(),
            Finite(negative, 0, _) => self.sign(*negative),
            Finite(negative, whole, exponent) => {
                self.rounded(*negative, &Big::shifted(*whole, (exponent + SCALE) as u32), mode)
            }
        }
    }

    /// a·b + c.
    pub fn fused(self, a: &Value, b: &Value, c: &Value, mode: Mode) -> u64 {
        let product = match (a, b) {
            (Nan, _) | (_, Nan) => Nan,
            (Infinite(x), Infinite(y)) => Infinite(x ^ y),
            (Infinite(x), Finite(y, n, _)) | (Finite(y, n, _), Infinite(x)) => {
                if *n == 0 {
                    Nan
                } else {
                    Infinite(x ^ y)
                }
            }
            (Finite(x, n, e), Finite(y, m, f)) => Finite(x ^ y, n * m, e + f),
        };
        self.sum(&product, c, mode)
    }

    pub fn sum(self, a: &Value, b: &Value, mode: Mode) -> u64 {
        match (a, b) {
            (Nan, _) | (_, Nan) => self.nan(),
            (Infinite(x), Infinite(y)) if x != y => self.nan(),
            (Infinite(x), _) | (_, Infinite(x)) => self.sign(*x) | self.infinity(),
            (Finite(x, n, e), Finite(y, m, f)) => {
                let big = |whole: u128, exponent: i32| {
                    Big::shifted(whole, if whole == 0 { 0 } else { (exponent + SCALE) as u32 })
                };
                let (p, q) = (big(*n, *e), big(*m, *f));
                let (negative, exact) = if x == y {
                    (*x, p.plus(&q))
                } else {
                    match p.compare(&q) {
                        Ordering::Greater => (*x, p.minus(&q)),
                        Ordering::Less => (*y, q.minus(&p)),
                        Ordering::Equal => (mode == Mode::Down, Big(vec![0])),
                    }
                };
                if exact.bits() == 0 {
                    self.sign(negative)
                } else {
                    self.rounded(negative, &exact, mode)
                }
            }
        }
    }

    pub fn product(self, a: &Value, b: &Value, mode: Mode) -> u64 {
        match (a, b) {
            (Finite(x, n, e), Finite(y, m, f)) => self.of(&Finite(x ^ y, n * m, e + f), mode),
            _ => self.fused(a, b, &Finite(false, 0, 0), mode),
        }
    }

    pub fn quotient(self, a: &Value, b: &Value, mode: Mode) -> u64 {
        match (a, b) {
            (Nan, _)
            | (_, Nan)
            | (Infinite(_), Infinite(_))
            | (Finite(_, 0, _), Finite(_, 0, _)) => self.nan(),
            (Infinite(x), Finite(y, ..)) | (Finite(x, ..), Finite(y, 0, _)) => {
                self.sign(x ^ y) | self.infinity()
            }
            (Finite(x, ..), Infinite(y)) | (Finite(x, 0, _), Finite(y, ..)) => self.sign(x ^ y),
            (Finite(x, n, e), Finite(y, m, f)) => {
                let by = n.leading_zeros() - 1;
                let (whole, rest) = ((n << by) / m, (n << by) % m);
                let whole = whole << 1 | u128::from(rest != 0);
                self.of(&Finite(x ^ y, whole, e - f - by as i32 - 1), mode)
            }
        }
    }

    pub fn root(self, a: &Value, mode: Mode) -> u64 {
        match a {
            Finite(negative, 0, _) => self.sign(*negative),
            Nan | Infinite(true) | Finite(true, ..) => self.nan(),
            Infinite(false) => self.infinity(),
            Finite(false, n, e) => {
                let mut by = n.leading_zeros() as i32 - 2;
                by -= (e - by) & 1;
                let wide = n << by;
                let root = wide.isqrt();
                let sticky = u128::from(root * root != wide);
                self.of(&Finite(false, root << 1 | sticky, (e - by) / 2 - 1), mode)
            }
        }
    }

    /// Subnormal numbers become zero.
    pub fn flushed(self, bits: u64) -> u64 {
        let sign = self.sign(bits >> (self.bits() - 1) & 1 == 1);
        if bits & self.infinity() == 0 { sign } else { bits }
    }

    /// Clamped to [0, 1]; no number becomes 0.
    pub fn saturated(self, bits: u64) -> u64 {
        let one = (self.infinity() >> (self.precision - 1) >> 1) << (self.precision - 1);
        match self.value(bits) {
            Nan => 0,
            Infinite(true) | Finite(true, ..) => 0,
            _ => bits.min(one),
        }
    }

    /// The smaller or the larger; the number of a number and none, unless `strict`.
    pub fn extreme(self, a: u64, b: u64, larger: bool, strict: bool) -> u64 {
        let nan = |bits: u64| matches!(self.value(bits), Nan);
        match (nan(a), nan(b)) {
            (true, true) => self.nan(),
            (true, false) => {
                if strict {
                    self.nan()
                } else {
                    b
                }
            }
            (false, true) => {
                if strict {
                    self.nan()
                } else {
                    a
                }
            }
            _ => {
                let key = |bits: u64| {
                    let sign = bits >> (self.bits() - 1) & 1;
                    let magnitude = (bits & !self.sign(true)) as i64;
                    if sign == 1 { -1 - magnitude } else { magnitude }
                };
                if (key(a) < key(b)) ^ larger { a } else { b }
            }
        }
    }

    /// A value as a whole number, cut to the type.
    pub fn whole(self, bits: u64, mode: Mode, signed: bool, width: u32) -> i128 {
        let (least, most) = if signed {
            (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1)
        } else {
            (0, (1i128 << width) - 1)
        };
        match self.value(bits) {
            Nan => 0,
            Infinite(negative) => {
                if negative {
                    least
                } else {
                    most
                }
            }
            Finite(negative, n, e) => {
                let magnitude = if e >= 0 {
                    if n == 0 {
                        0
                    } else {
                        n.checked_shl(e.min(70) as u32).map_or(i128::MAX, |x| x as i128)
                    }
                } else {
                    let by = (-e).min(120) as u32;
                    let (kept, rest) = (n >> by, n & ((1u128 << by) - 1));
                    let half = 1u128 << (by - 1);
                    let up = match mode {
                        Mode::Nearest => rest > half || rest == half && kept & 1 == 1,
                        Mode::Zero => false,
                        Mode::Down => negative && rest != 0,
                        Mode::Up => !negative && rest != 0,
                    };
                    (kept + u128::from(up)) as i128
                };
                (if negative { -magnitude } else { magnitude }).clamp(least, most)
            }
        }
    }

    pub fn of_integer(self, x: i128, mode: Mode) -> u64 {
        self.of(&Finite(x < 0, x.unsigned_abs(), 0), mode)
    }
}
