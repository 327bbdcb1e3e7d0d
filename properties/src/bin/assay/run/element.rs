//! Element types of one-off runs: how a number is read, what a bit pattern is worth, and what NumPy
//! calls it. Invariant: bits travel as the low bits of a `u64`.

use contracts::dtype::DType;

/// The type of a scalar argument or of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    F64,
    F32,
    F16,
    BF16,
    E4M3,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
}

use Element::{BF16, E4M3, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

impl Element {
    /// All, in the order error messages list them.
    pub const ALL: [Element; 13] =
        [F64, F32, F16, BF16, E4M3, I64, I32, I16, I8, U64, U32, U16, U8];

    /// The word used in arguments.
    pub fn name(self) -> &'static str {
        match self {
            F64 => "f64",
            F32 => "f32",
            F16 => "f16",
            BF16 => "bf16",
            E4M3 => "e4m3",
            I64 => "i64",
            I32 => "i32",
            I16 => "i16",
            I8 => "i8",
            U64 => "u64",
            U32 => "u32",
            U16 => "u16",
            U8 => "u8",
        }
    }

    /// The type of that name.
    pub fn of_name(name: &str) -> Option<Element> {
        Element::ALL.into_iter().find(|element| element.name() == name)
    }

    /// Every name, for an error message.
    pub fn names() -> String {
        Element::ALL.map(Element::name).join(", ")
    }

    pub fn size_bytes(self) -> u64 {
        match self {
            F64 | I64 | U64 => 8,
            F32 | I32 | U32 => 4,
            F16 | BF16 | I16 | U16 => 2,
            E4M3 | I8 | U8 => 1,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, F64 | F32 | F16 | BF16 | E4M3)
    }

    fn is_signed(self) -> bool {
        matches!(self, I64 | I32 | I16 | I8)
    }

    /// NumPy's type string. It has none for bf16 and e4m3: their bits stand as unsigned integers.
    pub fn descr(self) -> &'static str {
        match self {
            F64 => "<f8",
            F32 => "<f4",
            F16 => "<f2",
            BF16 | U16 => "<u2",
            E4M3 | U8 => "|u1",
            I64 => "<i8",
            I32 => "<i4",
            I16 => "<i2",
            I8 => "|i1",
            U64 => "<u8",
            U32 => "<u4",
        }
    }

    /// The type of NumPy's type string; booleans are bytes.
    pub fn of_descr(descr: &str) -> Option<Element> {
        let plain = [F64, F32, F16, I64, I32, I16, I8, U64, U32, U16, U8];
        let (order, rest) = descr.split_at_checked(1)?;
        if rest == "b1" && matches!(order, "|" | "<") {
            return Some(U8);
        }
        let one_byte = matches!(rest, "i1" | "u1");
        let known = |element: &Element| element.descr()[1..] == *rest;
        let native = order == "<" || one_byte && order == "|";
        plain.into_iter().find(known).filter(|_| native)
    }

    /// Whether bits stored as `stored` may be read as `self`.
    pub fn reads(self, stored: Element) -> bool {
        self == stored || self.size_bytes() == stored.size_bytes() && self.descr() == stored.descr()
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.size_bytes())
    }

    /// Reads a number: decimal, or `0x` and the bits. `None` when it is none or does not fit.
    pub fn parse(self, text: &str) -> Option<u64> {
        if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            let bits = u64::from_str_radix(digits, 16).ok()?;
            return (bits & !self.mask() == 0).then_some(bits);
        }
        if self.is_float() {
            let value: f64 = text.parse().ok()?;
            return Some(match self {
                F64 => value.to_bits(),
                // Rounded once, from the decimal digits.
                F32 => u64::from(text.parse::<f32>().ok()?.to_bits()),
                F16 => DType::F16.round_from_f64(value),
                BF16 => DType::BF16.round_from_f64(value),
                _ => DType::E4M3.round_from_f64(value),
            });
        }
        let value: i128 = text.parse().ok()?;
        let (low, high) = self.range();
        (low..=high).contains(&value).then_some(value as u64 & self.mask())
    }

    /// Least and largest integer.
    pub fn range(self) -> (i128, i128) {
        let bits = 8 * self.size_bytes();
        if self.is_signed() {
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        } else {
            (0, (1 << bits) - 1)
        }
    }

    /// The value as f64; integers beyond 2⁵³ round.
    pub fn value(self, bits: u64) -> f64 {
        match self {
            F64 => f64::from_bits(bits),
            F32 => DType::F32.to_f64(bits),
            F16 => DType::F16.to_f64(bits),
            BF16 => DType::BF16.to_f64(bits),
            E4M3 => DType::E4M3.to_f64(bits),
            _ => self.integer(bits) as f64,
        }
    }

    fn integer(self, bits: u64) -> i128 {
        let unused = 64 - 8 * self.size_bytes() as u32;
        if self.is_signed() {
            i128::from((bits << unused) as i64 >> unused)
        } else {
            i128::from(bits)
        }
    }

    /// The value as a reader should see it.
    pub fn text(self, bits: u64) -> String {
        match self {
            F32 => format!("{:?}", f32::from_bits(bits as u32)),
            _ if self.is_float() => format!("{:?}", self.value(bits)),
            _ => self.integer(bits).to_string(),
        }
    }

    /// Value and bits.
    pub fn show(self, bits: u64) -> String {
        let width = 2 + 2 * self.size_bytes() as usize;
        format!("{} ({bits:#0width$x})", self.text(bits))
    }

    /// The element whose little-endian bytes these are.
    pub fn of_bytes(self, bytes: &[u8]) -> u64 {
        bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
    }

    /// The element's bytes.
    pub fn bytes(self, bits: u64) -> Vec<u8> {
        bits.to_le_bytes()[..self.size_bytes() as usize].to_vec()
    }

    /// The nearest element to a value inside its range.
    pub fn nearest(self, value: f64) -> u64 {
        match self {
            F64 => value.to_bits(),
            F32 => DType::F32.round_from_f64(value),
            F16 => DType::F16.round_from_f64(value),
            BF16 => DType::BF16.round_from_f64(value),
            E4M3 => DType::E4M3.round_from_f64(value),
            _ => {
                let (low, high) = self.range();
                (value as i128).clamp(low, high) as u64 & self.mask()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_by_their_type() {
        let read = |element: Element, text| element.parse(text);
        assert_eq!(read(F32, "1.5"), Some(0x3fc0_0000));
        assert_eq!(read(F32, "-0"), Some(0x8000_0000));
        assert_eq!(read(F32, "nan").map(|bits| f32::from_bits(bits as u32).is_nan()), Some(true));
        assert_eq!(
            (read(F16, "1"), read(BF16, "1"), read(E4M3, "1")),
            (Some(0x3c00), Some(0x3f80), Some(0x38))
        );
        assert_eq!(
            (read(I8, "-128"), read(I8, "128"), read(U8, "255")),
            (Some(0x80), None, Some(255))
        );
        assert_eq!((read(U64, "18446744073709551615"), read(U64, "-1")), (Some(u64::MAX), None));
        assert_eq!((read(F32, "0x7fc00000"), read(F16, "0x10000")), (Some(0x7fc0_0000), None));
        assert_eq!((read(I32, "1.5"), read(F32, "one"), read(I32, "")), (None, None, None));
    }

    #[test]
    fn every_type_round_trips() {
        for element in Element::ALL {
            assert_eq!(Element::of_name(element.name()), Some(element));
            let one = element.parse("1").expect("one");
            assert_eq!((element.value(one), element.nearest(1.0)), (1.0, one));
            assert_eq!(element.of_bytes(&element.bytes(one)), one);
            let stored = Element::of_descr(element.descr()).expect("NumPy has it");
            assert!(element.reads(stored), "{element:?}");
        }
        assert_eq!(I32.text(0xffff_ffff), "-1");
        assert!(!F32.reads(I32) && !BF16.reads(F16));
        assert_eq!((Element::of_descr(">f4"), Element::of_descr("|f4")), (None, None));
        assert_eq!(Element::of_descr("|b1"), Some(U8));
        assert_eq!(Element::of_descr("é4"), None);
    }
}
